"""The `condvendi` command: scores of your files, without a line of Python."""
