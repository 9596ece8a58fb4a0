"""What all studies share.

| file | what it is |
|---|---|
| records.py | identities, and records that hold them with a checksum |
| cells.py | `Cell`, `Context`, `Run`: what a study and the lab hand to each other |
| study.py | `Study`: a frozen dataclass whose fields are flags and identity; its cells |
| registry.py | the studies by name |
| scales.py | kernels and bandwidths: multiples of a rule's, or by several rules |
| results.py | results with named axes, gathered from cells and as files hold them |
| store.py | whose a result is; saving, resuming and reading cells |
| runner.py | the command line of a study: flags, keys, interruption, drawing |
| models.py | models side by side, as a result |
| tables.py, figures.py | tables and figures of a result, by its axes; captions |
| knobs.py | the settings of a generator, side by side |
| agreement.py | ranks and rank correlations, accuracy, intervals by resampling groups |
| style.py | what makes the figures one family: palette, panels, captions, saving |

A new study is a module with a `Study` and a line in `experiments.lab.registry`
(docs/studies/your_own.md).
"""

from experiments.lab.cells import Cell, Context, Run
from experiments.lab.results import gather
from experiments.lab.runner import main
from experiments.lab.scales import Bandwidths, Rules, Scales
from experiments.lab.study import Setup, Study, flag, resolved

__all__ = [
    "Bandwidths",
    "Cell",
    "Context",
    "Rules",
    "Run",
    "Scales",
    "Setup",
    "Study",
    "flag",
    "gather",
    "main",
    "resolved",
]
