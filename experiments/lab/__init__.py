"""What all studies share: flags, identity, saving and resuming, tables, figures and captions.

A new study is a module with a `Study` and a line in `experiments.lab.registry`
(docs/studies/your_own.md).
"""

from condvendi_jax.cli.flags import flag
from experiments.lab.cells import Cell, Context, Run
from experiments.lab.results import gather
from experiments.lab.runner import main
from experiments.lab.scales import Bandwidths, Rules, Scales
from experiments.lab.study import Setup, Study, resolved
