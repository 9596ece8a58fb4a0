"""The studies, a folder for each theme; `python -m experiments.NAME --help` lists a study's flags.

Python finds a study by its name alone, too: `experiments.convergence` is the file
conditional_vendi/convergence.py. This serves commands. Code imports
`experiments.conditional_vendi.convergence`, so that no module is loaded twice.
"""

import pathlib

THEMES = ("conditional_vendi", "rke", "guidance", "language_models", "calibration", "cost")
__path__ += [str(pathlib.Path(__file__).parent / theme) for theme in THEMES]
