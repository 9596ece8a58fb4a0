"""The public names and their homes; `__init__.py` imports each from here when it is first used."""

from . import entropies as entropies
from . import grams as grams
from . import guidance as guidance
from . import inference as inference
from . import report as report
from . import scores as scores
from . import spectra as spectra
from .data.bandwidth import bandwidth_by_rule as bandwidth_by_rule
from .data.bandwidth import bandwidth_from_pairs as bandwidth_from_pairs
from .data.kernels import Cosine as Cosine
from .data.kernels import Gaussian as Gaussian
from .data.kernels import Indicator as Indicator
from .data.kernels import Kernel as Kernel
from .data.pairs import Pairs as Pairs
from .data.similarities import Similarities as Similarities
from .entropies import Entropy as Entropy
from .entropies import von_neumann as von_neumann
from .grams import gram as gram
from .inference import between_models as between_models
from .inference import compare as compare
from .inference import contributions as contributions
from .inference import enough as enough
from .inference import evaluate as evaluate
from .inference import mix as mix
from .inference import monitor as monitor
from .inference import plan as plan
from .inference import profile as profile
from .inference import prompt_table as prompt_table
from .inference import select as select
from .records.reading import read_records as read_records
from .scores import baselines as baselines
from .scores import clusters as clusters
from .scores import conditional_rke as conditional_rke
from .scores import conditional_vendi as conditional_vendi
from .scores import decompose as decompose
from .scores import information_rke as information_rke
from .scores import information_vendi as information_vendi
from .scores import rke as rke
from .scores import vendi as vendi
from .spectra import Auto as Auto
from .spectra import Exact as Exact
from .spectra import MatrixFree as MatrixFree
from .spectra import Stored as Stored

__version__: str
__all__: list[str]
