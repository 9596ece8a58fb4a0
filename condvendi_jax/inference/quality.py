"""How many outputs are good, and how many of these are different (`cv-good-and-different`)."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Kernel, of_all
from condvendi_jax.data.pairs import Pairs, of_each_model
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import population
from condvendi_jax.inference.errors import Groups, Units
from condvendi_jax.results.estimate import Estimate, Quality
from condvendi_jax.spectra import exact, order_two, pair_sums
from condvendi_jax.statistics import intervals, reasons
from condvendi_jax.statistics.influences import Error, root_mean_square

_DRAWS = 100  # At most, where they are not given: time grows with them.


class Asked(NamedTuple):
    """The checked quality of the outputs of each model `[n]`, and what is asked of it."""

    values: dict[str, np.ndarray]
    at_least: float
    draws: int

    @classmethod
    def of(cls, models: Mapping[str, Pairs], quality: Any, at_least: Any, draws: Any) -> Any:
        """The checked arguments of `evaluate` and `compare`; None if none of them is given."""
        if quality is None and at_least is None and draws is None:
            return None
        if quality is None or at_least is None:
            missing = "quality" if quality is None else "at_least"
            both = "a number for each output and the number from which it is good"
            raise ValueError(f"quality, at_least: expected both, {both}, received no {missing}.")
        at_least = checks.check_number(at_least, name="at_least", above=-math.inf)
        values, most, usual = of_outputs(quality, models), math.inf, _DRAWS
        for pairs in models.values():
            pairs.refuse_weights("good and different outputs")
            sizes = np.bincount(pairs.prompt_kinds[1])
            most, usual = min(most, int(sizes.max())), min(usual, int(np.bincount(sizes).argmax()))
            if not (pairs.paired and memory.fits(int(sizes.max()), pairs.dtype)):
                expected = "the prompt of each output, and outputs to each whose n x n arrays fit"
                received = f"received {sizes.max():,} outputs to one prompt."
                raise ValueError(f"quality: expected {expected} in memory, {received}")
        draws = checks.check_count(usual if draws is None else draws, name="draws", minimum=1)
        if draws > most:
            largest = "the largest number of outputs to a prompt that every model has"
            raise ValueError(f"draws: expected at most {most}, {largest}, received {draws}.")
        return cls(values, at_least, draws)

    def of_rows(self, chosen: Mapping[str, np.ndarray]) -> Self:
        """The quality of the chosen rows of each model."""
        return self._replace(values={m: self.values[m][rows] for m, rows in chosen.items()})

    def scored(self, models: Mapping[str, Pairs], units: Units | None) -> dict[str, Quality]:
        """The `Quality` of each model, with errors if there are `units`."""
        scored, (total, prompts) = {}, prompts_by_model([*models.values()])
        enough = np.array([np.bincount(prompt, None, total) for prompt in prompts]) >= self.draws
        if (in_all := enough.all(axis=0)).any():  # Of the prompts that all models have.
            enough[:] = in_all
        for (name, pairs), prompt, wanted in zip(models.items(), prompts, enough, strict=True):
            groups, near = units and units.of_models[name], pairs.gathered()
            numbers, first, kinds = np.unique(prompt, True, True)
            sizes, kept = np.bincount(kinds), np.flatnonzero(wanted[numbers])
            # Python's number takes the dtype of the values: 0.7 in float32 is at least 0.7.
            good = self.values[name] >= self.at_least
            if groups is not None and population.splits(groups.membership, kinds):
                groups = None  # Prompts are not independent units.
            shares = (np.bincount(kinds, good) / sizes)[kept]
            parts = shares, _numbers(near, kinds, kept, good, self.draws) / self.draws
            unit = np.zeros(kept.size, int) if groups is None else groups.membership[first[kept]]
            count = 1 if groups is None else groups.count
            share, number = (mean_over_prompts(part, unit, count) for part in parts)
            number = number.times(self.draws)
            diversity, several = _diversity(near, good & np.isin(kinds, kept), kinds, groups)
            estimates = Estimate.of(share), Estimate.of(number), diversity
            counts = kept.size, sizes.size - kept.size, several
            scored[name] = Quality(self.at_least, self.draws, *estimates, *counts, number)
        return scored


def of_outputs(quality: Any, models: Mapping[str, Pairs]) -> dict[str, np.ndarray]:
    """The quality of the outputs of each model, `[n]`; ValueError where one is missing."""
    values = {}
    for name, numbers in of_each_model(quality, models, "quality").items():
        with checks.naming(name):
            if isinstance(numbers, (list, tuple)):
                numbers = [math.nan if value is None else value for value in numbers]
            n = models[name].n
            values[name] = checks.check_weights(numbers, n, name="quality", signed=True)
    return values


def _numbers(
    points: Pairs, kinds: np.ndarray, kept: np.ndarray, good: np.ndarray, draws: int
) -> np.ndarray:
    """The number of good and different outputs to each `kept` prompt, `[p]`."""
    rows, sizes = np.argsort(kinds, kind="stable"), np.bincount(kinds)
    numbers = np.zeros(sizes.size)
    for sets, places, inside in exact.padded_sets(sizes, kept, points.arrays[0].shape[1] + draws):
        members = rows[places]
        there = jnp.asarray(good[members] & inside, points.dtype)
        of_rows = _of_sets(points.kernels[0], points.arrays[0][members], there, sizes[sets], draws)
        numbers[sets] = np.sum(np.asarray(of_rows, np.float64), axis=1) / sizes[sets]
    return numbers[kept]


@functools.partial(jax.jit, static_argnums=4)
def _of_sets(kernel: Kernel, points: Any, good: Any, sizes: Any, draws: int) -> jax.Array:
    """How often each row of points `[g, m, d]` is good and new in k draws, `[g, m]`.

    The mean over the subsets of other rows, of each size below k, of the products of 1 - g_j k_ij^2
    over the subset, by adding one row after the other: a mean of means, which loses no digits.
    """
    same = jnp.square(jax.vmap(of_all, in_axes=(None, 0))(kernel, points))
    rows = jnp.arange(points.shape[1])[None, :, None]
    taken = jnp.arange(draws, dtype=points.dtype)[None, None, :]

    def add(j: jax.Array, means: jax.Array) -> jax.Array:
        others = jnp.where(rows > j, j + 1, jnp.maximum(j, 1))  # Up to row j, without each row.
        part = jnp.minimum(taken / others.astype(points.dtype), 1)
        different = 1 - good[:, j, None, None] * same[:, :, j, None]
        added = (1 - part) * means + part * different * jnp.roll(means, 1, axis=-1)
        return jnp.where((rows == j) | (j >= sizes[:, None, None]), means, added)

    none = jnp.zeros((*good.shape, draws), points.dtype).at[..., 0].set(1)
    return good * jnp.sum(jax.lax.fori_loop(0, points.shape[1], add, none), axis=-1)


def mean_over_prompts(by_prompt: np.ndarray, unit: np.ndarray, count: int) -> Error:
    """The mean of values `[p]` in [0, 1] of prompts, by their independent units of `count`."""
    value, independent = float(by_prompt.mean()), np.unique(unit).size
    if independent < 2:
        return Error(value, np.full((1, 1), math.nan), reason=reasons.ONE_UNIT, freedom=0)
    sizes = np.bincount(unit, minlength=count)
    apart = np.bincount(unit, by_prompt - value, count)
    scale = math.sqrt(count * independent / (independent - 1)) / unit.size
    changes = apart / np.maximum(unit.size - sizes, 1)  # What the mean loses without each unit.
    ends = intervals.prompt_mean(value, root_mean_square(scale * apart), changes, sizes / unit.size)
    return Error(value, scale * apart[None], "prompts", independent - 1, ends=ends)


def _diversity(
    points: Pairs, good: np.ndarray, kinds: np.ndarray, groups: Groups | None
) -> tuple[Estimate, int]:
    """Unbiased Conditional-RKE of good rows, and the number of prompts that have two of them."""
    if np.bincount(kinds).max() > 1:
        good = good & (np.bincount(kinds, good)[kinds] > 1)
    if (rows := np.flatnonzero(good)).size < 2:
        return Estimate(math.nan, math.nan, None), 0
    units = groups and groups._replace(membership=groups.membership[rows], of_all=groups.count)
    pairs = points.rows(rows)
    answers = order_two.Answers.of(pairs)
    drawn = points.kernels[1].compares_equality and points.batches is None
    if answers.kind is None or not drawn:
        result = population.of_pairs(pairs, units)
    else:  # By the program that serves any number of good rows.
        order, same = np.argsort(kinds, kind="stable"), np.zeros(kinds.size)
        prompts = order, np.bincount(kinds), np.arange(kinds.max() + 1), good.astype(np.float64)
        for block in exact.compute_sets(points, *prompts, Entropy(2)):
            sums = np.asarray(block.sums, np.float64)[:, 0]
            same[order[block.places[block.inside]]] = sums[block.inside]
        others = np.stack([same, np.bincount(kinds, good)[kinds], same])[None, :, rows] - 1
        inside = others[..., answers.rows] * answers.points.shares

        def inside_of(leaving: pair_sums.Leaving) -> np.ndarray:
            return np.where(leaving.weights > 0, inside[..., leaving.rows], 0)

        (result,) = population.of_each(answers, units, inside, order_two.Inside(inside), inside_of)
    prompts = np.unique(kinds[rows]).size
    if result.errors is None:
        return Estimate(result.values.conditional, math.nan, None), prompts
    return Estimate.of(result.errors.conditional), prompts
