"""Rows of outputs, or of outputs and their prompts, that were checked before."""

import copy
import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.base.devices import Layout, placed, take, to_host
from condvendi_jax.data.bandwidth import RuledBandwidth, as_given
from condvendi_jax.data.kernels import Indicator, Kernel, WithinPrompts

NAMES: tuple[str, str] = ("outputs", "prompts")
# Rows that integer weights may make a rule or a jackknife see: their time grows with them.
RESAMPLED = 2**14


class Rows:
    """The rows of `Pairs`, which has their attributes, with a kernel for each array."""

    arrays: tuple[jax.Array, ...]
    kernels: tuple[Kernel, ...]
    n: int
    layout: Layout | None = None
    weights: jax.Array | None = None
    prompt_ids: np.ndarray | None = None
    groups: np.ndarray | None = None
    copies: np.ndarray | None = None
    batches: np.ndarray | None = None
    prompt_numbers: Mapping[tuple[Any, str], int] = types.MappingProxyType({})  # Of typed labels.
    index: Any = None  # Of a DataFrame: labels that come later must have an equal one.
    _ruled: Mapping[str, RuledBandwidth] = types.MappingProxyType({})

    @classmethod
    def trusted(
        cls, arrays: Any, kernels: Any, *, n: int, layout: Any = None, weights: Any = None
    ) -> Self:
        """Pairs of arrays that were checked before: nothing is looked at."""
        pairs = object.__new__(cls)
        vars(pairs).update(arrays=arrays, kernels=kernels, n=n, layout=layout, weights=weights)
        return pairs

    def _but(self, **changes: Any) -> Self:
        other = copy.copy(self)
        vars(other).pop("prompt_kinds", None)  # Cached, and of these rows alone.
        vars(other).update(changes)
        return other

    @property
    def dtype(self) -> np.dtype:
        """The dtype that everything is computed in."""
        return np.dtype(self.arrays[0].dtype)

    @property
    def paired(self) -> bool:
        """Whether there are prompts."""
        return len(self.arrays) == 2

    @property
    def across_models(self) -> bool:
        """Whether outputs of several models can be compared, as all but some `Similarities` can."""
        return not isinstance(self.kernels[0], WithinPrompts) or self.kernels[0].across

    @property
    def bandwidths(self) -> dict[str, RuledBandwidth]:
        """The bandwidth of each kernel by name, and where it comes from."""
        kernels = zip(NAMES, self.kernels, strict=False)
        return {name: self._ruled.get(name) or as_given(kernel) for name, kernel in kernels}

    @functools.cached_property
    def prompt_kinds(self) -> tuple[int, np.ndarray]:
        """How many prompts differ (1 without), and the number of the prompt of each row, `[n]`."""
        count, (kinds,) = prompts_by_model([self])
        return count, kinds

    @property
    def total(self) -> int:
        """The number of rows that the pairs stand for: the sum of integer weights, or n."""
        return self.n if self.copies is None else int(self.copies.sum())

    @property
    def batch_kinds(self) -> np.ndarray:
        """The number of the prompt and batch of each row, `[n]`."""
        kinds = [self.prompt_kinds[1], self.batches]
        return np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1)

    @property
    def draws(self) -> np.ndarray:
        """How many independent draws each row stands for, `[n]`: copies, or its part of a batch."""
        if self.batches is not None:
            return 1 / np.bincount(self.batch_kinds)[self.batch_kinds]
        return np.ones(self.n, int) if self.copies is None else self.copies

    def rows(self, chosen: Any) -> Self:
        """Some of the rows, by a slice or by their numbers; of points on one device."""
        arrays = tuple(take(array, chosen) for array in self.arrays)
        names = ("prompt_ids", "groups", "copies", "batches")
        kept: Any = {k: part[chosen] for k in names if (part := getattr(self, k)) is not None}
        if self.weights is not None:
            kept["weights"] = placed(shares_of(take(self.weights, chosen)))
        return self._but(arrays=arrays, n=arrays[0].shape[0], index=None, **kept)

    def sample(self, chosen: np.ndarray) -> Self:
        """Some of the rows, which may repeat, on one device; unweighted, under given kernels."""
        none: Any = dict.fromkeys(("weights", "copies", "groups", "batches"))
        return self.gathered()._but(**none).rows(chosen)._but(_ruled={})

    def supported(self) -> Self:
        """The pairs without the rows of weight zero."""
        if (kept := np.flatnonzero(self.shares > 0)).size == self.n:
            return self
        pairs = self.gathered().rows(kept)
        if self.layout is None:
            return pairs
        layout = dataclasses.replace(self.layout, n=kept.size)
        placed = pairs._but(layout=layout, arrays=tuple(map(layout.shard, pairs.arrays)))
        return placed.weighed(pairs.weights, copies=pairs.copies)

    def repeated(self) -> Self:
        """Every row as often as its integer weight says, 2^14 rows at most; the same without."""
        if self.copies is None:
            return self
        if self.total > RESAMPLED:
            raise ValueError(
                f"weights: expected integers with a sum of at most {RESAMPLED:,} for "
                f"groups of rows, received {self.total:,}; give labels as groups, or "
                "floating-point weights, which are shares of one row each."
            )
        rows = np.repeat(np.arange(self.n), self.copies)
        shares = (self.shares / np.maximum(self.copies, 1))[rows]
        pairs = self.gathered()._but(weights=None, copies=None).rows(rows)
        return pairs if np.allclose(shares, shares[0], rtol=1e-5, atol=0) else pairs.weighed(shares)

    def under(self, kernels: tuple[Kernel, ...]) -> Self:
        """The same points under other kernels, which no rule has drawn."""
        return self._but(kernels=kernels, _ruled={})

    def exactly(self, numbers: jax.Array) -> Self:
        """The same rows with prompts that are equal or different, by their numbers `[n, 1]`."""
        return self.under((self.kernels[0], Indicator()))._but(arrays=(self.arrays[0], numbers))

    def weighed(self, shares: Any, *, copies: np.ndarray | None = None) -> Self:
        """The same points with other weights `[n]`, of sum one."""
        weights = placed(shares) if self.layout is None else self.layout.place(shares)
        return self._but(weights=weights, copies=copies)

    def prompts_once(self) -> Self:
        """The same points, each prompt counting once; under the weights of a caller as they are."""
        if not self.paired or (self.weights is not None and self.copies is None):
            return self
        count, kinds = self.prompt_kinds
        numbers = np.ones(self.n) if self.copies is None else self.copies
        answers = np.bincount(kinds, numbers, count)
        if np.ptp(answers) == 0:
            return self
        once = self.weighed(numbers / answers[kinds] / count, copies=self.copies)
        vars(once)["prompt_kinds"] = count, kinds
        return once

    def gathered(self) -> Self:
        """The same points on one device, without padding."""
        if self.layout is None:
            return self
        spread = self.arrays, self.weights
        arrays, weights = jax.tree.map(lambda leaf: placed(to_host(leaf)[: self.n]), spread)
        return self._but(arrays=arrays, weights=weights, layout=None)

    @property
    def shares(self) -> np.ndarray:
        """The share of each row, float64 `[n]`, of sum one."""
        if self.weights is None:
            return np.full(self.n, 1 / self.n)
        shares = np.asarray(to_host(self.weights), np.float64)[: self.n]
        return shares / shares.sum()

    def refuse_weights(self, asked: str) -> None:
        """Raises ValueError where rows are weighted, which `asked` has no use for."""
        if self.weights is not None:
            raise ValueError(f"weights: received some, and {asked} have none; expected None.")

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Arrays, kernels and weights are children; n and the layout are static."""
        return (self.arrays, self.kernels, self.weights), (self.n, self.layout)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Self:
        (arrays, kernels, weights), (n, layout) = children, static
        return cls.trusted(arrays, kernels, n=n, layout=layout, weights=weights)


def prompts_by_model(models: Sequence[Rows]) -> tuple[int, list[np.ndarray]]:
    """The number of distinct prompts, and for each model the number of the prompt of each row."""
    ends = np.cumsum([pairs.n for pairs in models])
    if not models[0].paired:
        return 1, np.split(np.zeros(ends[-1], int), ends[:-1])
    rows = [pairs.prompt_ids[:, None] for pairs in models if pairs.prompt_ids is not None]
    if known := len(rows) == len(models):
        prompts = np.concatenate(rows)
    else:
        prompts = np.concatenate([to_host(pairs.arrays[1])[: pairs.n] for pairs in models])
    count, numbers = checks.equal_rows(prompts, name="prompts")
    by_model = np.split(numbers, ends[:-1])
    if not known:
        for pairs, ids in zip(models, by_model, strict=True):
            pairs.prompt_ids = ids
    return count, by_model


def shares_of(weights: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
    """Checked weights divided by their sum, in the compute dtype."""
    if not checks.is_concrete(weights):
        cast = jnp.asarray(weights, checks.compute_dtype())
        return cast / jnp.sum(cast)
    wide = np.asarray(weights).astype(np.float64)  # In which integers and their sum are exact.
    relative = wide / wide.max()
    return (relative / np.sum(relative)).astype(checks.compute_dtype())
