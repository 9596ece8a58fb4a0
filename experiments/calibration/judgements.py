"""Sets of responses that people judged: their scores in many configurations, and pools of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments.data import PairedEmbeddings
from experiments.data.sets import TEXT
from experiments.lab import Bandwidths, Scales, agreement

METRIC = "metric_"  # Of labels that are published scores.
SCORES = ("Conditional-RKE", "RKE", "Conditional-Vendi", "Vendi")
SCORES += ("Conditional-RKE, unbiased", "RKE, unbiased")
_POOLED = ((2, False), (1, False), (2, True))  # Orders, and whether unbiased, of pairs of scores.
# Contexts of the less diverse pool, as a multiple of those of the more diverse one.
DESIGNS = {"as many contexts in both": 1, "twice the contexts in the less diverse": 2}
_SHARES = (0.0, 0.25, 0.5, 0.75)  # Of the context's embedding.
SIMILARITIES = ("edit_similarity", "trigram_similarity", "token_similarity")
_KEY = 0x4D0DE5  # Of the second encoder's bandwidth.


class Responses(NamedTuple):
    """The sets, in the order of their numbers."""

    members: list[np.ndarray]  # The rows of each.
    task: np.ndarray  # `[S]`.
    context: np.ndarray  # Its number, `[S]`.
    labels: dict[str, np.ndarray]  # People, label, temperature and the published metrics, `[S]`.

    @classmethod
    def of(cls, pairs: PairedEmbeddings) -> Responses:
        """The sets of some pairs, with one label and prompt each, and two responses or more."""
        _, first, index = np.unique(pairs.labels["sets"], return_index=True, return_inverse=True)
        members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
        context = np.unique(pairs.prompts, axis=0, return_inverse=True)[1].reshape(-1)
        known = {"task": np.full(len(pairs), pairs.name), "prompts": context, **pairs.labels}
        for role, values in known.items():
            words = values.astype(str)  # NaN equals NaN.
            for row in np.flatnonzero(words != words[first][index]):
                raise ValueError(f"{role}: expected one value a set, row {row} differs in its set.")
        if (fewest := min(map(len, members))) < 2:
            raise ValueError(f"sets: expected two responses or more in each, received {fewest}.")
        people = pairs.labels["people"]
        if people.dtype.kind not in "iuf" or not np.all(np.isfinite(people)):
            raise ValueError("people: expected finite numbers, one for each row.")
        numbers = {
            role: values[first].astype(np.float64)
            for role, values in pairs.labels.items()
            if role in ("people", "label", "temperature") or role.startswith((METRIC, TEXT))
        }
        return cls(members, known["task"].astype(str)[first], context[first], numbers)

    def some(self, chosen: np.ndarray) -> Responses:
        """Some of the sets, by their numbers."""
        members = [self.members[s] for s in chosen]
        labels = {role: values[chosen] for role, values in self.labels.items()}
        return Responses(members, self.task[chosen], self.context[chosen], labels)


@functools.partial(jax.jit, static_argnames="orders")
def _of_sets(rows: jax.Array, kernel: cv.Kernel, *, orders: tuple[float, ...]) -> jax.Array:
    """`entropies` of sets of one size, `[S, k, d]`."""

    def of_one(outputs: jax.Array) -> jax.Array:
        found = [cv.decompose(outputs, kernel=kernel, order=order) for order in orders]
        return jnp.stack([of.entropy_outputs for of in found])

    return jax.vmap(of_one, out_axes=1)(rows)


def entropies(
    outputs: np.ndarray, members: Sequence[np.ndarray], kernel: cv.Kernel, orders: Sequence[float]
) -> np.ndarray:
    """H(X) of each set of rows in nats at each order, `[orders, S]`."""
    size = np.array(list(map(len, members)))
    found = np.zeros((len(orders), len(members)), np.float32)
    for k in np.unique(size):
        sets = np.flatnonzero(size == k)
        rows = outputs[np.stack([members[s] for s in sets.tolist()])]
        found[:, sets] = _of_sets(rows, kernel, orders=tuple(orders))
    return found


def scores_of_sets(
    pairs: PairedEmbeddings,
    members: Sequence[np.ndarray],
    tried: Mapping[str, Sequence[Any]],
    units: Mapping[str, float],
    cosine: bool = False,
) -> np.ndarray:
    """H(X) of each set in nats, in every configuration, `[C, S]`.

    What is tried: encoders, shares of the context that are subtracted, multiples of the bandwidth,
    which is one of `units` for each encoder, and orders. The cosine kernel has no bandwidth.
    """
    encoders, less, multiples, orders = tried.values()
    kernels = [cv.Cosine() if cosine else cv.Gaussian(multiple) for multiple in multiples]
    found = []
    for encoder, share in itertools.product(encoders, less):
        outputs = representation(pairs, units, encoder, share)
        found += [entropies(outputs, members, kernel, orders) for kernel in kernels]
    return np.concatenate(found)


def scores_of_similarities(
    pairs: PairedEmbeddings, members: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """H(X) of each set in nats by similarity, `[S]` each, that of the cosine beside them."""
    sets, vectors = pairs.labels["sets"], {}
    for role in filter(pairs.further.__contains__, SIMILARITIES):
        grams = {sets[of[0]].item(): pairs.further[role][of, : len(of)] for of in members}
        similarities = cv.Similarities(grams, prompts=sets.tolist(), name=role)
        vectors[role.replace("_", " ")] = similarities.vectors
    vectors["cosine similarity"] = pairs.outputs
    return {
        name: entropies(rows.astype(np.float32), members, cv.Cosine(), (1.0,))[0]
        for name, rows in vectors.items()
    }


def encoders_of(pairs: PairedEmbeddings) -> dict[str, tuple[np.ndarray, Any]]:
    """The outputs and the contexts as the first encoder has them, and the second where there is."""
    found: dict[str, tuple[np.ndarray, Any]] = {"first": (pairs.outputs, pairs.prompts)}
    if "second_outputs" in pairs.further:
        found["second"] = pairs.further["second_outputs"], pairs.further.get("second_prompts")
    return found


def shares_of(pairs: PairedEmbeddings) -> tuple[float, ...]:
    """How much of the context is subtracted: nothing where it is not as long as the outputs."""
    alike = [t is not None and t.shape == x.shape for x, t in encoders_of(pairs).values()]
    return _SHARES if all(alike) else (0.0,)


def units_of(pairs: PairedEmbeddings, bandwidths: Scales, seed: int) -> dict[str, float]:
    """The bandwidth of each encoder; 1 for the cosine kernel."""
    units: dict[str, Any] = dict.fromkeys(encoders_of(pairs), bandwidths.output_bandwidth or 1.0)
    if bandwidths.output_bandwidth and "second" in units:
        key = jax.random.fold_in(jax.random.key(seed), _KEY)
        second = pairs.further["second_outputs"]
        chosen = cv.bandwidth_by_rule(second, bandwidths.rule, key=key, partitions=1)
        units["second"] = chosen.bandwidth
    return units


def representation(
    pairs: PairedEmbeddings, units: Mapping[str, float], encoder: str, less: float
) -> np.ndarray:
    """The outputs by one or both encoders, in units of bandwidths, less a part of the context.

    A multiple of the prompt's embedding is subtracted, and the row scaled to its norm again. Both
    stand side by side, so that their Gaussian kernel is the product of the two.
    """
    found = []
    for name, (outputs, prompts) in encoders_of(pairs).items():
        if encoder not in (name, "both"):
            continue
        if less:
            rest = outputs - np.float32(less) * prompts
            norms, wanted = (np.linalg.norm(x, axis=1, keepdims=True) for x in (rest, outputs))
            outputs = rest * (wanted / np.maximum(norms, np.finfo(np.float32).tiny))
        found.append(outputs / np.float32(units[name]))
    return np.concatenate(found, axis=1)


def choose_elsewhere(
    scores: np.ndarray, people: np.ndarray, fold: np.ndarray, orders: Sequence[float]
) -> np.ndarray:
    """What each fold is judged by: the number of the best configuration on the others, `[folds]`.

    Of scores `[C, n]`, of order `[C]`, the people's `[n]` in a fold have no part in its choice.
    """
    others = [fold != part for part in range(fold.max() + 1)]
    found = [agreement.spearman(scores[:, sets], people[sets], orders) for sets in others]
    return np.nanargmax(found, axis=1)


def choose_on_other_tasks(
    orders: Sequence[float], responses: Responses, scores: np.ndarray, task: str
) -> int | None:
    """The configuration that is best on the other tasks, where they have other contexts."""
    own = np.unique(responses.context[responses.task == task])
    means = []
    for other in dict.fromkeys(responses.task.tolist()):
        sets = (responses.task == other) & ~np.isin(responses.context, own)
        if other != task and np.sum(sets) > 2:
            people = responses.labels["people"][sets]
            means.append(agreement.spearman(scores[:, sets], people, orders))
    return int(np.nanargmax(np.mean(means, axis=0))) if means else None


def draw_pools(
    sets: Responses, count: int, generator: np.random.Generator
) -> list[list[np.ndarray]]:
    """`count` pools of the sets above the median of the people's scores, and of those below.

    A pool has one set of each context that there is, in a random order.
    """
    people, halves = sets.labels["people"], []
    for part in (people > np.median(people), people < np.median(people)):
        orders = [generator.permutation(np.flatnonzero(part)) for _ in range(count)]
        firsts = [np.unique(sets.context[order], return_index=True)[1] for order in orders]
        halves.append([o[np.sort(first)] for o, first in zip(orders, firsts, strict=True)])
    return halves


@functools.partial(jax.jit, static_argnames="contexts")
def _scores_of_pools(
    pools: tuple[jax.Array, jax.Array], kernels: Mapping[str, Any], *, contexts: int
) -> jax.Array:
    """The logarithms of `SCORES` of pools of outputs and prompts `[p, n, d]`, `[SCORES, p]`."""
    ids = np.repeat(np.arange(contexts), pools[0].shape[1] // contexts)

    def of_one(pool: tuple[jax.Array, jax.Array]) -> list[jax.Array]:
        points = cv.Pairs(*pool, prompt_ids=ids, **kernels)
        found = [cv.decompose(points, order=o, unbiased=u).log_scores for o, u in _POOLED]
        return [score for of in found for score in (of.conditional, of.vendi)]

    return jnp.stack(jax.lax.map(of_one, pools))


def tell_pools(
    pairs: PairedEmbeddings,
    members: Sequence[np.ndarray],
    halves: Sequence[Sequence[np.ndarray]],
    scales: Sequence[Bandwidths],
    contexts: Sequence[int],
) -> xr.DataArray:
    """How often a pool of the first half scores higher, `[design, scale, score, contexts]`.

    NaN where there are too few contexts, or their number in the other pool is not asked for.
    """
    size = min(map(len, members))
    rows = np.stack([of[:size] for of in members])
    axes = {"scale": [of.coordinate for of in scales], "score": list(SCORES)}
    axes |= {"contexts": list(contexts), "draw": list(range(len(halves[0])))}
    logs = np.full((2, *map(len, axes.values())), np.nan)
    each = itertools.product(enumerate(halves), enumerate(scales), enumerate(contexts))
    for (half, pools), (b, bandwidths), (c, count) in each:
        if min(map(len, pools)) >= count:
            chosen = np.stack([rows[pool[:count]].reshape(-1) for pool in pools])
            drawn = pairs.outputs[chosen], pairs.prompts[chosen]
            logs[half, b, :, c] = _scores_of_pools(drawn, bandwidths.kernels, contexts=count)
    more, less = (xr.DataArray(of, axes, tuple(axes)) for of in logs)
    others = (less.reindex(contexts=factor * np.array(contexts)) for factor in DESIGNS.values())
    gain = xr.concat([more - other.values for other in others], "design")
    right = gain.copy(data=(np.sign(gain.values) + 1) / 2).mean("draw", skipna=False)
    return right.assign_coords(design=list(DESIGNS))


def with_ends(value: xr.DataArray) -> xr.Dataset:
    """Values and the `ends` of their intervals, of an axis `end`: value, low, high."""
    parts = {"value": value.sel(end="value", drop=True), "ends": value.sel(end=["low", "high"])}
    return xr.Dataset(parts)
