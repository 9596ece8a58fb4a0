"""What all studies share.

| file | what it is |
|---|---|
| study.py | `StudyRecord`: a study as data; its options, cells and results are dataclasses |
| store.py | whose a result is; saving, resuming and reading cells; the cache of dear artefacts |
| runner.py | the command line of a study: flags, keys, interruption, drawing |
| progress.py | what a run shows while it computes: what, how long it took, how long it will take |
| choices.py | kernels and bandwidths, as options and as what is made of them |
| models.py | models compared, as a result |
| agreement.py | ranks and rank correlations, accuracy, intervals by resampling groups |
| style.py | what makes the figures one family: palette, panels, captions, saving |

A new study is a module with a `STUDY`, a line in `experiments.registry`, and nothing else.
"""

from experiments.lab.adapting import record
from experiments.lab.declaring import Cell, Study, flag, gather, resolved
from experiments.lab.runner import main
from experiments.lab.scales import Bandwidths, Rules, Scales
from experiments.lab.store import Run
from experiments.lab.study import Context, Setup, StudyRecord, option

__all__ = [
    "Bandwidths",
    "Cell",
    "Context",
    "Rules",
    "Run",
    "Scales",
    "Setup",
    "Study",
    "StudyRecord",
    "flag",
    "gather",
    "main",
    "option",
    "record",
    "resolved",
]
