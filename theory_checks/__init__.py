"""Every formal statement of the four papers, tried against numbers and judged.

`python -m theory_checks` prints the table; `theory_checks.claim` says what a claim is; the other
modules hold the claims, one module a theme.
"""
