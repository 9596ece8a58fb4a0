"""Prompt-aware diversity scores of generative models, in JAX.

H(X) = H(X|T) + I(X;T): how much of the diversity of outputs X the model adds, and how much it
owes to the prompts T. See the README for a tour, `evaluate` and `compare` for the scores with
errors in one call, and `decompose` for the scores alone.
"""

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING, Any

from condvendi_jax import evaluation
from condvendi_jax.bandwidth import (
    BandwidthSelection,
    RuledBandwidth,
    bandwidth_by_rule,
    median_heuristic,
    select_bandwidth,
)
from condvendi_jax.entropies import (
    Entropy,
    PerScore,
    PerTerm,
    conditional,
    mutual_information,
    renyi,
    truncated,
    von_neumann,
)
from condvendi_jax.estimators import Budget, spectral_measure
from condvendi_jax.evaluation import Evaluation, ScoredOrder, evaluate
from condvendi_jax.feature_maps import fourier_features, nystroem_features
from condvendi_jax.grams import DenseGram, FeatureGram, Gram, TiledGram, gram
from condvendi_jax.kernels import Cosine, Gaussian, Kernel
from condvendi_jax.measures import Estimate, SpectralMeasure
from condvendi_jax.methods import (
    Auto,
    Exact,
    MatrixFree,
    Method,
    Nystroem,
    RandomFeatures,
    Stored,
)
from condvendi_jax.scores import (
    Decomposition,
    Estimation,
    conditional_rke,
    conditional_vendi,
    decompose,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from condvendi_jax.spectra import truncate
from condvendi_jax.uncertainty import (
    ConvergenceCurve,
    convergence_curve,
    decomposition_errors,
    settled_from,
    standard_error,
)

if TYPE_CHECKING:
    from condvendi_jax import comparison, guidance, populations
    from condvendi_jax.clusters import (
        Clustering,
        PromptMode,
        cluster_rke,
        cluster_vendi,
        k_means,
        prompt_modes,
    )
    from condvendi_jax.comparison import Comparison, Difference, Ranking, compare
    from condvendi_jax.mid import (
        gaussian_mutual_information,
        mutual_information_divergence,
        pointwise_mutual_information,
    )
    from condvendi_jax.relative import root_fidelity, rrke

# Imported when they are first asked for: they are a quarter of the package's own time of importing.
_LATER = {
    "clusters": (
        "Clustering",
        "PromptMode",
        "cluster_rke",
        "cluster_vendi",
        "k_means",
        "prompt_modes",
    ),
    "comparison": ("Comparison", "Difference", "Ranking", "compare"),
    "guidance": (),
    "mid": (
        "gaussian_mutual_information",
        "mutual_information_divergence",
        "pointwise_mutual_information",
    ),
    "populations": (),
    "relative": ("root_fidelity", "rrke"),
}

__all__ = [
    "Auto",
    "BandwidthSelection",
    "Budget",
    "Clustering",
    "Comparison",
    "ConvergenceCurve",
    "Cosine",
    "Decomposition",
    "DenseGram",
    "Difference",
    "Entropy",
    "Estimate",
    "Estimation",
    "Evaluation",
    "Exact",
    "FeatureGram",
    "Gaussian",
    "Gram",
    "Kernel",
    "MatrixFree",
    "Method",
    "Nystroem",
    "PerScore",
    "PerTerm",
    "PromptMode",
    "RandomFeatures",
    "Ranking",
    "RuledBandwidth",
    "ScoredOrder",
    "SpectralMeasure",
    "Stored",
    "TiledGram",
    "bandwidth_by_rule",
    "cluster_rke",
    "cluster_vendi",
    "compare",
    "comparison",
    "conditional",
    "conditional_rke",
    "conditional_vendi",
    "convergence_curve",
    "decompose",
    "decomposition_errors",
    "evaluate",
    "evaluation",
    "fourier_features",
    "gaussian_mutual_information",
    "gram",
    "guidance",
    "information_rke",
    "information_vendi",
    "k_means",
    "median_heuristic",
    "mutual_information",
    "mutual_information_divergence",
    "nystroem_features",
    "pointwise_mutual_information",
    "populations",
    "prompt_modes",
    "renyi",
    "rke",
    "root_fidelity",
    "rrke",
    "select_bandwidth",
    "settled_from",
    "spectral_measure",
    "standard_error",
    "truncate",
    "truncated",
    "vendi",
    "von_neumann",
]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name == module or name in names:
            found = importlib.import_module(f"condvendi_jax.{module}")
            return found if name == module else getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
