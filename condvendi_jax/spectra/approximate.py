"""Random Fourier features in place of the kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import numpy as np

from condvendi_jax.base import checks, memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy
from condvendi_jax.spectra import feature_errors, feature_maps
from condvendi_jax.spectra.estimated import estimated
from condvendi_jax.spectra.methods import Method, OfRows, Terms, subset


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures(Method):
    """Random Fourier features of Gaussian kernels: time and memory linear in n, at any order.

    FKEA (Ospanov et al., 2024) scores the features as they are, at order 1 too low by tenths of a
    nat. This method extrapolates to infinitely many frequencies, with intervals: narrow from order
    2 on, coarse at order 1 where many small eigenvalues matter, and coarser below.

    Points are on one device; no standard errors; not inside `jax.jit` and not differentiable. The
    time is O(n count^2 + count^3).

    Attributes:
      key: draws the frequencies, which outputs, prompts and pairs share.
      count: how many, a multiple of 8; there are twice as many features.
    """

    name: ClassVar[str] = "random-features"
    approximates: ClassVar[bool] = True
    key: jax.Array
    count: int = dataclasses.field(default=feature_maps.DEFAULT_COUNT, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", checks.check_key(self.key))
        count = checks.check_count(self.count, name="count", minimum=1)
        if count % feature_errors.GROUPS:
            raise ValueError(
                f"count: expected a multiple of {feature_errors.GROUPS}, received {count}."
            )

    def check(self, points: Pairs, terms: Terms) -> None:
        if points.layout is not None:
            raise ValueError(
                f"method: {self.name} needs points on one device, received ones on a mesh."
            )
        if not checks.is_concrete(points):
            raise TypeError(
                f"method: {self.name} estimates, which cannot be done inside jit or vmap nor "
                "differentiated; cv.Exact() can."
            )
        for kernel in points.kernels:
            feature_maps.length_scale(kernel)
        memory.check_fourier(
            points.n,
            self.count,
            points.dtype,
            terms=len(terms),
            dimensions=sum(part.shape[1] for part in points.arrays),
        )

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        return self.of_subsets(points, terms)(np.ones(points.n, bool), wanted)

    def of_subsets(self, points: Pairs, terms: Terms) -> OfRows:
        """From one draw of features, whose error is then much the same for every subset."""
        self.check(points, terms)
        drawn = feature_maps.draw_frequencies(points, key=self.key, count=self.count)

        def of_rows(rows: np.ndarray, wanted: Sequence[Entropy]) -> list[Computed]:
            chosen = subset(points, rows)
            matrices = feature_maps.covariances(chosen, drawn, terms)
            by_term = [feature_errors.fourier_estimates(m, wanted, chosen.n) for m in matrices]
            return [
                estimated(terms, row, self.name, points.dtype) for row in zip(*by_term, strict=True)
            ]

        return of_rows
