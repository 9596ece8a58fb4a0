"""The `condvendi` command: scores of your files, without a line of Python.

| module | what it does |
|---|---|
| score.py | `condvendi score`: the scores of one model |
| compare.py | `condvendi compare`: several models side by side |
| report.py | `condvendi report`: the same as a page of HTML, with the outputs behind the scores |
| options.py | the flags as fields of a dataclass; parsing them, and writing results |
| inputs.py | embeddings from array files, or of pictures and texts by an encoder |
| command.py | exit statuses, one-line errors, interrupts and progress, of every command |
| provenance.py | the versions, device and date that every written result records |
"""
