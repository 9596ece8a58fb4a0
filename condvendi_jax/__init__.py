"""Prompt-aware diversity scores of generative models, in JAX.

H(X) = H(X|T) + I(X;T): how much of the diversity of outputs X the model adds, and how much it
owes to the prompts T. See the README for a tour, `evaluate` and `compare` for the scores with
errors in one call, and `decompose` for the scores alone.
"""

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from condvendi_jax import comparison, evaluation, guidance, populations, saturation
    from condvendi_jax.bandwidth import (
        BandwidthSelection,
        RuledBandwidth,
        bandwidth_by_rule,
        median_heuristic,
        select_bandwidth,
    )
    from condvendi_jax.clusters import (
        Clustering,
        PromptMode,
        cluster_rke,
        cluster_vendi,
        k_means,
        prompt_modes,
    )
    from condvendi_jax.comparison import (
        Comparison,
        Difference,
        Ranking,
        compare,
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
    from condvendi_jax.estimators import (
        Budget,
        spectral_measure,
    )
    from condvendi_jax.evaluation import (
        Evaluation,
        ScoredOrder,
        evaluate,
    )
    from condvendi_jax.feature_maps import (
        fourier_features,
        nystroem_features,
    )
    from condvendi_jax.grams import (
        DenseGram,
        FeatureGram,
        Gram,
        TiledGram,
        gram,
    )
    from condvendi_jax.kernels import (
        Cosine,
        Gaussian,
        Kernel,
    )
    from condvendi_jax.measures import (
        Estimate,
        SpectralMeasure,
    )
    from condvendi_jax.methods import (
        Auto,
        Exact,
        MatrixFree,
        Method,
        Nystroem,
        RandomFeatures,
        Stored,
    )
    from condvendi_jax.mid import (
        gaussian_mutual_information,
        mutual_information_divergence,
        pointwise_mutual_information,
    )
    from condvendi_jax.relative import (
        root_fidelity,
        rrke,
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
    from condvendi_jax.spectra import (
        truncate,
    )
    from condvendi_jax.uncertainty import (
        ConvergenceCurve,
        convergence_curve,
        decomposition_errors,
        settled_from,
        standard_error,
    )

# Public names by module. A module is imported when one of its names is first used, so that
# `import condvendi_jax` takes no time and the command line can be interrupted from the start.
_NAMES = {
    "bandwidth": (
        "BandwidthSelection",
        "RuledBandwidth",
        "bandwidth_by_rule",
        "median_heuristic",
        "select_bandwidth",
    ),
    "clusters": (
        "Clustering",
        "PromptMode",
        "cluster_rke",
        "cluster_vendi",
        "k_means",
        "prompt_modes",
    ),
    "comparison": (
        "Comparison",
        "Difference",
        "Ranking",
        "compare",
    ),
    "entropies": (
        "Entropy",
        "PerScore",
        "PerTerm",
        "conditional",
        "mutual_information",
        "renyi",
        "truncated",
        "von_neumann",
    ),
    "estimators": (
        "Budget",
        "spectral_measure",
    ),
    "evaluation": (
        "Evaluation",
        "ScoredOrder",
        "evaluate",
    ),
    "feature_maps": (
        "fourier_features",
        "nystroem_features",
    ),
    "grams": (
        "DenseGram",
        "FeatureGram",
        "Gram",
        "TiledGram",
        "gram",
    ),
    "guidance": (),
    "kernels": (
        "Cosine",
        "Gaussian",
        "Kernel",
    ),
    "measures": (
        "Estimate",
        "SpectralMeasure",
    ),
    "methods": (
        "Auto",
        "Exact",
        "MatrixFree",
        "Method",
        "Nystroem",
        "RandomFeatures",
        "Stored",
    ),
    "mid": (
        "gaussian_mutual_information",
        "mutual_information_divergence",
        "pointwise_mutual_information",
    ),
    "populations": (),
    "relative": (
        "root_fidelity",
        "rrke",
    ),
    "saturation": (),
    "scores": (
        "Decomposition",
        "Estimation",
        "conditional_rke",
        "conditional_vendi",
        "decompose",
        "information_rke",
        "information_vendi",
        "rke",
        "vendi",
    ),
    "spectra": ("truncate",),
    "uncertainty": (
        "ConvergenceCurve",
        "convergence_curve",
        "decomposition_errors",
        "settled_from",
        "standard_error",
    ),
}
_MODULES = ("comparison", "evaluation", "guidance", "populations", "saturation")
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

# Pyright reads the names above instead.
__all__ = sorted([*_HOMES, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(importlib.import_module(f"condvendi_jax.{_HOMES[name]}"), name)
    elif name in _NAMES:
        found = importlib.import_module(f"condvendi_jax.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
