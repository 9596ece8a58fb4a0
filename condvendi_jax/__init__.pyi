"""The public names and their homes; `__init__.py` imports each from here when it is first used."""

from condvendi_jax import bandwidth as bandwidth
from condvendi_jax import entropies as entropies
from condvendi_jax import grams as grams
from condvendi_jax import guidance as guidance
from condvendi_jax import inference as inference
from condvendi_jax import scores as scores
from condvendi_jax import spectra as spectra
from condvendi_jax import testing as testing
from condvendi_jax.bandwidth import bandwidth_by_rule as bandwidth_by_rule
from condvendi_jax.bandwidth import bandwidth_from_pairs as bandwidth_from_pairs
from condvendi_jax.encoders.records import read_records as read_records
from condvendi_jax.entropies import Entropy as Entropy
from condvendi_jax.entropies import renyi as renyi
from condvendi_jax.entropies import truncated as truncated
from condvendi_jax.entropies import von_neumann as von_neumann
from condvendi_jax.grams import gram as gram
from condvendi_jax.inference import between_models as between_models
from condvendi_jax.inference import compare as compare
from condvendi_jax.inference import contributions as contributions
from condvendi_jax.inference import convergence_curve as convergence_curve
from condvendi_jax.inference import decomposition_errors as decomposition_errors
from condvendi_jax.inference import evaluate as evaluate
from condvendi_jax.inference import mixture as mixture
from condvendi_jax.inference import profile as profile
from condvendi_jax.inference import prompt_table as prompt_table
from condvendi_jax.inference import select as select
from condvendi_jax.inference import standard_error as standard_error
from condvendi_jax.kernels import Cosine as Cosine
from condvendi_jax.kernels import Gaussian as Gaussian
from condvendi_jax.kernels import Indicator as Indicator
from condvendi_jax.kernels import Kernel as Kernel
from condvendi_jax.pairs import Pairs as Pairs
from condvendi_jax.scores import baselines as baselines
from condvendi_jax.scores import clusters as clusters
from condvendi_jax.scores import conditional_rke as conditional_rke
from condvendi_jax.scores import conditional_vendi as conditional_vendi
from condvendi_jax.scores import decompose as decompose
from condvendi_jax.scores import information_rke as information_rke
from condvendi_jax.scores import information_vendi as information_vendi
from condvendi_jax.scores import rke as rke
from condvendi_jax.scores import vendi as vendi
from condvendi_jax.spectra import Auto as Auto
from condvendi_jax.spectra import Exact as Exact
from condvendi_jax.spectra import MatrixFree as MatrixFree
from condvendi_jax.spectra import RandomFeatures as RandomFeatures
from condvendi_jax.spectra import Sampled as Sampled
from condvendi_jax.spectra import Stored as Stored

__version__: str
__all__: list[str]
