"""How many outputs to one prompt differ, where each prompt was asked once.

Outputs to near prompts are less alike than outputs to one prompt, by as much as their prompts
differ: every mean over pairs of prompts bounds the similarity within a prompt (docs/proofs.md, "One
output to each prompt"). What is assumed is that outputs are independent given their prompts.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from condvendi_jax.base.devices import to_host
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import distances
from condvendi_jax.grams.fold import Tiles
from condvendi_jax.grams.operators import factor_of
from condvendi_jax.results.one_prompt import Curve, OnePrompt, State
from condvendi_jax.statistics import asked_once as statistics
from condvendi_jax.statistics.asked_once import Bins, Mean

_ROWS_OF_EDGES = 256  # Whose distances to all others place the bins.
_FEWEST = 3  # Prompts.
_BETTER = 1.05  # The number over all prompts, relative to a bound that says more.
_LEVEL = 0.05


def of_pairs(pairs: Pairs) -> OnePrompt:
    """What is known of the outputs to one prompt from rows of different prompts.

    Rows of one group, such as a seed or a designer that several prompts share, are not compared.
    """
    if pairs.kernels[1].compares_equality and pairs.arrays[1].shape[1] == 1:
        return _unknown(pairs, "prompts were asked once, and are labels, which have no distance")
    if pairs.n < _FEWEST:
        return _unknown(pairs, f"{pairs.n} prompts that were asked once are too few")
    shares, gathered = pairs.shares, pairs.gathered()
    labels = _shared_labels(pairs.groups, pairs.n)
    prompts = gathered.arrays[1]
    ends, centres, bins = _curve(pairs, prompts, shares, labels)
    nearest = distances.nearest(prompts, labels, statistics.NEIGHBOURS)
    near = statistics.near_pairs(*nearest, shares)
    if near.one.size == 0:
        return _unknown(pairs, "all prompts are of one group")
    kernel, outputs = gathered.kernels[0], gathered.arrays[0]
    left, right = outputs[near.one], outputs[near.other]
    similar = distances.squares_of_pairs(kernel, left, right)
    near_mean, zero = statistics.near_mean(near, similar), statistics.at_zero(near, similar)
    shifted, moved = None, _slope(gathered)
    if moved > 0:
        left = left - moved * (prompts[near.one] - prompts[near.other]).astype(left.dtype)
        shifted = statistics.near_mean(near, distances.squares_of_pairs(kernel, left, right))
    weight = bins.pairs / bins.pairs.sum()
    there = weight > 0
    everywhere = Mean(
        float(weight[there] @ bins.values[there]), weight[there] @ bins.changes[there]
    )
    found = statistics.known(everywhere, near_mean, shifted, zero, near.shares)
    total = 1 / everywhere.value if everywhere.value > 0 else math.inf
    at_most = 1 / found.at_least if found.at_least > 0 else math.inf
    state: State = "known"
    if math.isnan(found.low):
        better = at_most < max(statistics.WIDEST, total / _BETTER)
        state = "at most" if better else "cannot be told"
    low, high = 1 / found.high, 1 / found.low
    curve = Curve(
        ends=ends,
        distances=centres,
        similarity=bins,
        distance=float(near.weights @ near.distances),
        near=near_mean,
        read_at_0=zero.value,
    )
    numbers = math.sqrt(low * high), low, high, at_most, total
    known = OnePrompt(state, *numbers, prompts=pairs.n, repeated=False, curve=curve)
    if state == "cannot be told":
        reason = "each prompt was asked once, and too few are near others"
        known = dataclasses.replace(known, reason=reason)
    return known


def _unknown(pairs: Pairs, reason: str) -> OnePrompt:
    """That nothing can be told, and why."""
    nothing = (math.nan,) * 5
    return OnePrompt("cannot be told", *nothing, prompts=pairs.n, repeated=False, reason=reason)


def _shared_labels(groups: np.ndarray | None, n: int) -> np.ndarray:
    """The number of the group of each row `[n]`; -1 for a row by itself."""
    if groups is None:
        return np.full(n, -1)
    _, kinds, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.where(counts[kinds] > 1, kinds, -1)


def _curve(
    pairs: Pairs, prompts: jnp.ndarray, shares: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Bins]:
    """Bins of distances, each with twice as many pairs: upper ends, mean distances, similarity."""
    few = distances.few_distances(prompts, _ROWS_OF_EDGES)
    count = max(1, int(math.log2(max(pairs.n - 1, 2) / 2)) + 1)
    ends = np.quantile(few, np.minimum(2.0 ** np.arange(count) * 2 / max(pairs.n - 1, 2), 1))
    ends = np.unique(ends[ends > 0])
    ends = np.append(ends[: count - 1], math.inf)
    places = np.searchsorted(ends, few)
    counts, sums = (np.bincount(places, weights, ends.size) for weights in (None, few))
    centres = sums / np.maximum(counts, 1)
    kernel, unit = distances.distance_kernel(prompts)
    factors = [
        factor_of(kernel, array, pairs.layout)
        for kernel, array in zip((pairs.kernels[0], kernel), pairs.arrays, strict=True)
    ]
    edges = np.stack([np.append(-1.0, ends[:-1]), ends])
    edges = np.sign(edges) * edges**2 / unit
    beside = jnp.asarray(shares, pairs.dtype), jnp.asarray(labels)
    if pairs.layout is not None:
        beside = tuple(pairs.layout.place(part[:, None])[:, 0] for part in beside)
    sums = distances.sums_by_distance(
        Tiles(tuple(factors), ((0,),), pairs.layout), jnp.asarray(edges, pairs.dtype), *beside
    )
    weights, similar = (np.asarray(to_host(part.T), np.float64)[: pairs.n].T for part in sums)
    return ends, centres, statistics.in_bins(weights, similar, shares, _LEVEL)


def _slope(pairs: Pairs) -> float:
    """How far outputs move with their prompts, where both lie in one space; 0 elsewhere.

    Outputs may be moved by any function of their prompts: those to one prompt move together.
    """
    kernel, (outputs, prompts) = pairs.kernels[0], pairs.arrays
    if not kernel.shift_invariant or kernel.known_bandwidth is None:
        return 0.0
    if outputs.shape[1] != prompts.shape[1]:
        return 0.0
    x, t = (np.asarray(array, np.float64) for array in (outputs, prompts))
    x, t = x - x.mean(axis=0), t - t.mean(axis=0)
    spread = float(np.sum(t**2))
    return max(0.0, float(np.sum(x * t)) / spread) if spread > 0 else 0.0
