"""Which model is more diverse under every one of several encoders of the same outputs.

Encoders take the place of the bandwidths of a profile: the influences of the same prompts under all
of them are drawn together, so that all signs hold jointly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import profiles, saturation
from condvendi_jax.inference.designs import Common
from condvendi_jax.inference.errors import Units
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.inference.results import Comparison, Consensus


def has_encoders(models: Any) -> bool:
    """Whether outputs are given by encoder, and then by model."""
    return isinstance(models, Mapping) and any(isinstance(of, Mapping) for of in models.values())


def compare_encoders(
    compare: Callable[..., Comparison], models: Mapping[str, Any], prompts: Any, **options: Any
) -> Consensus:
    """The comparison under each encoder, and a joint test of order 2 over encoders and models.

    The outputs of `models` are by the name of the encoder and then of the model.
    """
    kernels, seed = options.pop("output_kernel", None), options["seed"]
    if not isinstance(kernels, Mapping):
        kernels = dict.fromkeys(models, kernels)
    _check(models, prompts, kernels, options)
    comparisons = {
        encoder: compare(models[encoder], prompts, output_kernel=kernels[encoder], **options)
        for encoder in models
    }
    first, entropy = next(iter(comparisons.values())), Entropy(order=2)
    pairs = {name: rows.supported() for name, rows in first.pairs.items()}
    units = Units.of(pairs, None, Keys(seed).groups)
    every = [of.evaluations for of in comparisons.values()]
    along = {name: [of[name].order(2).population for of in every] for name in pairs}
    curves = profiles.curves_of(pairs, along, entropy, units, Common.of(pairs), unbiased=True)
    rounding = saturation.rounding(entropy, first.first.dtype)
    tested = profiles.Tested(curves, units.matched != "none", options["level"], seed, rounding)
    main = int(first.first.paired)  # Conditional, or vendi.
    return Consensus(comparisons, tuple(tested.of_score(main)[1]), tested.level)


def _check(models: Mapping[str, Any], prompts: Any, kernels: Any, options: Any) -> None:
    """Raises ValueError where encoders differ in more than their embeddings."""
    rows = {
        encoder: {name: len(outputs) for name, outputs in of.items()}
        if isinstance(of, Mapping)
        else len(of)
        for encoder, of in models.items()
    }
    first, *others = rows.values()
    if isinstance(first, dict) and len(first) < 2:
        raise ValueError(f"models: expected two models or more, received {[*first]}.")
    if not others or any(of != first for of in others):
        raise ValueError(
            "models: expected two encoders or more of the same models and rows, received numbers "
            f"of rows {rows}."
        )
    if set(kernels) != set(models) or (
        isinstance(prompts, Mapping) and set(prompts) == set(models)
    ):
        raise ValueError(
            f"expected an output_kernel of each of the encoders {[*models]}, and prompts that they "
            f"share, received kernels {kernels} and prompts {type(prompts).__name__}."
        )
    exact = options["method"] is None and options["truncation"] is None
    exact = exact and 2 in np.ravel(options["orders"])
    if not (exact and options["errors"]) or isinstance(options["groups"], int):
        raise ValueError(
            "several encoders: expected orders with 2 and errors=True, without truncation, method "
            "or a number of groups."
        )
