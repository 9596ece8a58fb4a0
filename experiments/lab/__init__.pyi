"""The names of the lab and their homes; `__init__.py` imports each when it is first used."""

from . import checking as checking
from . import pages as pages
from . import runner as runner
from . import store as store
from .cells import Cell as Cell
from .cells import Context as Context
from .cells import Run as Run
from .cells import gather as gather
from .runner import main as main
from .scales import Bandwidths as Bandwidths
from .scales import Rules as Rules
from .scales import Scales as Scales
from .study import Setup as Setup
from .study import Study as Study
from .study import flag as flag
from .study import resolved as resolved
