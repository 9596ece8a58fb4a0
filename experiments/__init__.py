"""The papers' studies, one script each; `python -m experiments.NAME --help` lists its flags."""
