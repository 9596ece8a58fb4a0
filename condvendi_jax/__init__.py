"""Prompt-aware diversity scores of generative models, in JAX.

H(X) = H(X|T) + I(X;T): how much of the diversity of outputs X the model adds, and how much it
owes to the prompts T. See the README for a tour and `decompose` for the main call.
"""

__version__ = "0.1.0"

from condvendi_jax.bandwidth import bandwidth_by_rule, median_heuristic, select_bandwidth
from condvendi_jax.entropies import (
    Entropy,
    conditional,
    mutual_information,
    renyi,
    truncated,
    von_neumann,
)
from condvendi_jax.estimators import Budget, spectral_measure
from condvendi_jax.grams import DenseGram, FeatureGram, Gram, TiledGram, gram
from condvendi_jax.kernels import Cosine, Gaussian, Kernel
from condvendi_jax.measures import Estimate, SpectralMeasure
from condvendi_jax.mid import mutual_information_divergence, pointwise_mutual_information
from condvendi_jax.relative import rrke
from condvendi_jax.scores import (
    Decomposition,
    conditional_rke,
    conditional_vendi,
    decompose,
    information_rke,
    information_vendi,
    rke,
    vendi,
    vendi_with_interval,
)
from condvendi_jax.spectra import truncate
from condvendi_jax.uncertainty import convergence_curve, decomposition_errors, standard_error
