"""Sets of responses that people judged: their scores in many configurations, and pools of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import condvendi_jax as cv
from condvendi_jax import spectra
from condvendi_jax.entropies import log_scores
from condvendi_jax.pairs import Pairs
from experiments.data import PairedEmbeddings
from experiments.lab import Bandwidths, agreement

METRIC = "metric_"
SCORES = ("Conditional-RKE", "RKE", "Conditional-Vendi", "Vendi")
_POOLED = (cv.Entropy(order=2), cv.Entropy(order=1))
# Contexts of the less diverse pool, as a multiple of those of the more diverse one.
DESIGNS = {"as many contexts in both": 1, "twice the contexts in the less diverse": 2}
_ENOUGH = 0.95


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A way of scoring a set.

    Attributes:
      encoder: first, second or both.
      less: how much of the context's embedding is subtracted from each response.
      scale: the multiple of the rule's bandwidth; None for the cosine kernel.
      order: of the entropy.
    """

    encoder: str
    less: float
    scale: float | None
    order: float


class Responses(NamedTuple):
    """The sets, in the order of their numbers, and the rows of the pairs that each has.

    Attributes:
      members: the rows of each set.
      task: `[S]`.
      context: `[S]`, equal for the sets of one context.
      labels: by role, `[S]`: people, label, temperature and the published metrics.
    """

    members: list[np.ndarray]
    task: np.ndarray
    context: np.ndarray
    labels: dict[str, np.ndarray]

    @classmethod
    def of(cls, pairs: PairedEmbeddings) -> Responses:
        """The sets of some pairs.

        Raises:
          ValueError: a label or the prompt differs within a set, or a set has one response.
        """
        _, first, index = np.unique(pairs.labels["sets"], return_index=True, return_inverse=True)
        members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
        context = np.unique(pairs.prompts, axis=0, return_inverse=True)[1].reshape(-1)
        known = {"prompts": context, **pairs.labels}
        for role, values in known.items():
            same = values == values[first][index]
            if values.dtype.kind == "f":
                same |= np.isnan(values) & np.isnan(values[first][index])
            if not np.all(same):
                at = int(np.argmin(same))
                raise ValueError(f"{role}: expected one value a set, row {at} differs in its set.")
        if (fewest := min(map(len, members))) < 2:
            raise ValueError(f"sets: expected two responses or more in each, received {fewest}.")
        people = pairs.labels["people"]
        if people.dtype.kind not in "iuf" or not np.all(np.isfinite(people)):
            raise ValueError("people: expected finite numbers, one for each row.")
        numbers = {
            role: values[first].astype(np.float64)
            for role, values in pairs.labels.items()
            if role in ("people", "label", "temperature") or role.startswith(METRIC)
        }
        task = known.get("task", np.full(len(people), pairs.name)).astype(str)
        return cls(members, task[first], context[first], numbers)

    def some(self, chosen: np.ndarray) -> Responses:
        """Some of the sets, by their numbers."""
        return Responses(
            [self.members[s] for s in chosen],
            self.task[chosen],
            self.context[chosen],
            {role: values[chosen] for role, values in self.labels.items()},
        )


@functools.partial(jax.jit, static_argnames="orders")
def _entropies_of_sets(
    rows: jax.Array, kernel: cv.Kernel, *, orders: tuple[float, ...]
) -> jax.Array:
    """H(X) in nats of each of some sets `[S, k, d]` at each order, `[orders, S]`."""

    def of_one(outputs: jax.Array) -> jax.Array:
        points = Pairs(outputs, output_kernel=kernel)
        wanted = [cv.Entropy(order=order) for order in orders]
        found = spectra.compute(points, wanted, spectra.Exact())
        return jnp.stack([computed.values.outputs for computed in found])

    return jax.vmap(of_one, out_axes=1)(rows)


def scores_of_sets(
    pairs: PairedEmbeddings,
    members: Sequence[np.ndarray],
    configurations: Sequence[Configuration],
    units: Mapping[str, float],
) -> np.ndarray:
    """H(X) of each set in nats, in every configuration, `[C, S]`.

    Args:
      pairs: the responses.
      members: the rows of each set.
      configurations: those that differ in their orders alone stand together.
      units: the bandwidth of each encoder, of which the scales are multiples.
    """
    size = np.array(list(map(len, members)))
    found = np.zeros((len(configurations), len(members)), np.float32)
    for (encoder, less, scale), group in itertools.groupby(
        enumerate(configurations), key=lambda item: (item[1].encoder, item[1].less, item[1].scale)
    ):
        numbers, same = zip(*group, strict=True)
        outputs = representation(pairs, units, encoder, less)
        for k in np.unique(size):
            sets = np.flatnonzero(size == k)
            rows = outputs[np.stack([members[s] for s in sets.tolist()])]
            kernel = cv.Cosine() if scale is None else cv.Gaussian(scale)
            orders = tuple(configuration.order for configuration in same)
            found[np.ix_(numbers, sets)] = _entropies_of_sets(rows, kernel, orders=orders)
    return found


def representation(
    pairs: PairedEmbeddings, units: Mapping[str, float], encoder: str, less: float
) -> np.ndarray:
    """The outputs as one or both encoders have them, less a part of what the context says.

    A multiple of the prompt's embedding is subtracted, and the row scaled to its norm again. Rows
    are in units of their encoder's bandwidth; both stand side by side, so that the Gaussian kernel
    of both is the product of the two.

    Args:
      pairs: the responses and their contexts.
      units: the bandwidth of each encoder that there is.
      encoder: first, second or both.
      less: the multiple.
    """
    found = []
    for name in units if encoder == "both" else (encoder,):
        outputs, prompts = (
            (pairs.outputs, pairs.prompts)
            if name == "first"
            else (pairs.further["second_outputs"], pairs.further.get("second_prompts"))
        )
        if less:
            assert prompts is not None
            rest = outputs - np.float32(less) * prompts
            norms, wanted = (np.linalg.norm(x, axis=1, keepdims=True) for x in (rest, outputs))
            outputs = rest * (wanted / np.maximum(norms, np.finfo(np.float32).tiny))
        found.append(outputs / np.float32(units[name]))
    return np.concatenate(found, axis=1)


def choose_elsewhere(
    scores: np.ndarray, people: np.ndarray, fold: np.ndarray, orders: Sequence[float]
) -> np.ndarray:
    """What each fold is judged by: the configuration that is best on the other folds.

    Args:
      scores: of each set in every configuration, `[C, n]`.
      people: their scores, `[n]`; those of a fold have no part in its choice.
      fold: of each set, from 0.
      orders: the Renyi order of each configuration.

    Returns:
      The number of the configuration of each fold, `[folds]`.
    """
    return np.array(
        [
            np.nanargmax(agreement.spearman(scores[:, fold != part], people[fold != part], orders))
            for part in range(fold.max() + 1)
        ]
    )


def placed(scores: np.ndarray, configuration: np.ndarray, orders: Sequence[float]) -> np.ndarray:
    """Each set's rank among all sets in its own configuration, `[n]`, on one scale for all.

    Args:
      scores: `[C, n]`.
      configuration: of each set, `[n]`.
      orders: the Renyi order of each configuration.
    """
    found = np.zeros(scores.shape[1])
    for c in np.unique(configuration):
        found[configuration == c] = agreement.ranks(scores[c], orders[c])[configuration == c]
    return found


def choose_on_other_tasks(
    tasks: Collection[str],
    orders: Sequence[float],
    responses: Responses,
    scores: np.ndarray,
    task: str,
) -> int | None:
    """The configuration that is best on the other tasks, where they have other contexts."""
    own = np.unique(responses.context[responses.task == task])
    means = []
    for other in tasks:
        sets = (responses.task == other) & ~np.isin(responses.context, own)
        if other != task and np.sum(sets) > 2:
            people = responses.labels["people"][sets]
            means.append(agreement.spearman(scores[:, sets], people, orders))
    return int(np.nanargmax(np.mean(means, axis=0))) if means else None


def draw_pools(
    sets: np.ndarray, context: np.ndarray, count: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """`count` times the sets `[h]` in a random order, one of each context that there is."""
    found = []
    for _ in range(count):
        order = generator.permutation(sets)
        found.append(order[np.sort(np.unique(context[order], return_index=True)[1])])
    return found


@jax.jit
def _entropies_of_pools(
    outputs: jax.Array, prompts: jax.Array, rows: jax.Array, kernels: Mapping[str, Any]
) -> jax.Array:
    """H(X), H(T) and H(X, T) of some pools `[p, n]` of rows, `[p, orders, 3]`."""

    def of_one(chosen: jax.Array) -> jax.Array:
        points = Pairs(outputs[chosen], prompts[chosen], **kernels)
        found = spectra.compute(points, _POOLED, spectra.Exact())
        return jnp.stack([jnp.stack(computed.values) for computed in found])

    return jax.lax.map(of_one, rows)


def tell_pools(
    pairs: PairedEmbeddings,
    sets: Responses,
    scales: Sequence[Bandwidths],
    contexts: Sequence[int],
    draws: int,
    generator: np.random.Generator,
    say: Callable[[str], None] = lambda words: None,
) -> np.ndarray:
    """How often the more diverse of two pools of one task scores higher.

    The pools are of the sets above and below the median of the people's scores, one set a context.

    Returns:
      `[designs, scales, SCORES, contexts]`; NaN where there are too few contexts, or their number
      in the less diverse pool is none of those asked for.
    """
    people, size = sets.labels["people"], min(map(len, sets.members))
    rows = np.stack([members[:size] for members in sets.members])
    middle = np.median(people)
    above, below = (
        draw_pools(np.flatnonzero(part), sets.context, draws, generator)
        for part in (people > middle, people < middle)
    )
    outputs, prompts = jnp.asarray(pairs.outputs), jnp.asarray(pairs.prompts)

    def scores(pools: list[np.ndarray], count: int, kernels: Mapping[str, Any]) -> np.ndarray:
        """`[draws, SCORES]` of the first `count` contexts; NaN where there are fewer."""
        if not pools or min(map(len, pools)) < count:
            return np.full((draws, len(SCORES)), np.nan)
        chosen = np.stack([rows[pool[:count]].reshape(-1) for pool in pools])
        found = np.asarray(_entropies_of_pools(outputs, prompts, chosen, kernels), np.float64)
        logs = log_scores(*np.moveaxis(found, -1, 0))
        return np.stack([logs.conditional, logs.vendi], axis=-1).reshape(len(pools), -1)

    shape = len(DESIGNS), len(scales), len(SCORES), len(contexts)
    right = np.full(shape, np.nan)
    for b, bandwidths in enumerate(scales):
        kernels = bandwidths.kernels
        say(f"pools, bandwidth {bandwidths}")
        more, less = (
            {count: scores(pools, count, kernels) for count in contexts} for pools in (above, below)
        )
        for (d, factor), (p, m) in itertools.product(
            enumerate(DESIGNS.values()), enumerate(contexts)
        ):
            if factor * m in less:
                gain = more[m] - less[factor * m]
                shares = np.where(np.isnan(gain), np.nan, (np.sign(gain) + 1) / 2)
                right[d, b, :, p] = shares.mean(axis=0)
    return right


def enough(right: np.ndarray, contexts: Sequence[int]) -> int | None:
    """From how many contexts on the more diverse pool scores higher 95 times in 100.

    Args:
      right: how often, `[contexts]`; NaN where there are too few.
      contexts: the numbers of contexts, ascending.
    """
    known = [(m, share) for m, share in zip(contexts, right, strict=True) if share == share]
    below = [i for i, (_, share) in enumerate(known) if share < _ENOUGH]
    first = below[-1] + 1 if below else 0
    return known[first][0] if first < len(known) else None
