"""Every formal statement of the four papers, tried against numbers and judged.

`python -m theory_checks` tries them; `claim.py` says what a claim is; a module a theme has them.
"""

import os

# Threads of OpenBLAS wait by spinning: on matrices this small they cost more than they save, and
# far more on cores that other programs use. Read when NumPy is loaded; what a user sets counts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
