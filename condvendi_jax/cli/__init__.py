"""The `condvendi` command: scores of one's own files, without a line of Python.

| module | what it does |
|---|---|
| score.py | `condvendi score`: the scores of one model |
| compare.py | `condvendi compare`: several models side by side |
| report.py | `condvendi report`: the same as a page of HTML, with the outputs behind the scores |
| options.py | the flags that all have, and what they mean to the library |
| inputs.py | embeddings from array files, or of pictures and texts by an encoder |
| figure.py | the comparison as a figure |
| command.py | exit statuses, one-line errors, tables and progress, of every command |
| provenance.py | what every written result records beside itself |
"""
