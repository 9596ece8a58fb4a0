"""How many outputs to one prompt differ: of prompts that repeat, or that were asked once.

Outputs to near prompts are less alike than outputs to one prompt, by as much as their prompts
differ: every mean over pairs of prompts bounds the similarity within a prompt, if outputs are
independent given their prompts (`cv-order-2-identity` of docs/theory.md).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from condvendi_jax.base.devices import placed, to_host
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.inference import population as populations
from condvendi_jax.inference.errors import Units
from condvendi_jax.results.evaluation import ScoredOrder
from condvendi_jax.results.one_prompt import Curve, OnePrompt, State
from condvendi_jax.spectra import order_two, pair_sums
from condvendi_jax.statistics import asked_once as statistics
from condvendi_jax.statistics.influences import Error

_ROWS_OF_EDGES = 256  # Whose distances to all others place the bins.
_FEWEST = 3  # Prompts.
_BETTER = 1.05  # The number over all prompts, relative to a bound that says more.
_LEVEL = 0.05
_APART = "no two answers to a prompt count as the same; take a wider output bandwidth"
_ALONE = "no prompt has two answers, of different batches if any; give at least two"


def of_models(
    models: Mapping[str, Pairs], orders: Sequence[Mapping[str, ScoredOrder]], units: Units | None
) -> dict[str, OnePrompt]:
    """What is known of the outputs of each model to one prompt, if order 2 was computed."""
    known, ends = dict[str, OnePrompt](), None
    scored = next((order for order in orders if all(s.population for s in order.values())), {})
    for name, of_order in scored.items():
        pairs, population = models[name], of_order.population
        if not pairs.paired:
            return {}
        count, kinds = pairs.prompt_kinds
        single = order_two.single_answers(kinds, pairs.draws, np.zeros_like(kinds), exact=True)
        if single is None and count > 1:
            known[name] = one = of_pairs(pairs, ends)
            ends = one.curve.ends if one.curve else None
        else:
            known[name] = _of_repeated(pairs, population, units and units.of_models[name])
    return known


def _of_repeated(pairs: Pairs, population: populations.Population, units: Any) -> OnePrompt:
    """Of prompts that were asked several times; or of one, to which all outputs are."""
    borrowed, total = None, population.values.vendi
    if pairs.prompt_kinds[0] > 1 and not pairs.kernels[1].compares_equality:
        numbers = placed(pairs.prompt_kinds[1][:, None].astype(pairs.dtype))
        near, pairs = pairs, pairs.gathered().exactly(numbers)
        population = populations.of_pairs(pairs, units)
        borrowed = _borrowed(near.gathered(), population)
    kind, value = population.answers.kind, population.values.conditional
    prompts = 1 if kind is None else int(kind.max()) + 1
    rest = total, prompts, True, population.answers.left_out, borrowed
    if not math.isfinite(value):
        rest = math.nan, *rest, _APART if value > 0 else _ALONE
        return OnePrompt("cannot be told", math.nan, math.nan, math.nan, *rest)
    ends = population.intervals.conditional if population.intervals else (math.nan, math.nan)
    low, high = map(float, ends)
    return OnePrompt("known", value, low, high, math.nan, *rest)


def _borrowed(pairs: Pairs, exact: populations.Population) -> float | None:
    """The share of Conditional-RKE, over pairs of different prompts, that is not of one prompt.

    By `cv-order-2-identity` one over it is the mean similarity within prompts less half a
    squared MMD of near ones. Prompts count by how many others are similar to them.
    """
    kind, points = exact.answers.kind, exact.answers.points
    if kind is None or not (parts := populations.components_of(exact.answers, exact.inside)):
        return None  # One prompt, or unequal weights.
    shares = points.shares.astype(points.dtype)
    rows = pairs.rows(exact.answers.rows).weighed(shares, copies=points.copies)
    inside = order_two.Answers(rows, np.arange(rows.n), exact.answers.copies, kind, 0)
    sums = pair_sums.row_sums(rows) - inside.inside().prompt
    _, of_prompts, joint = sums @ rows.shares
    if not (of_prompts > 0 and joint > 0):
        return None
    within = float(np.bincount(kind, rows.shares * sums[1]) @ parts.similarity)
    return max(0.0, 1 - float(joint) / within) if within > 0 else None


def at_one_distance(
    known: Mapping[str, OnePrompt], units: Units | None
) -> tuple[float, dict[str, Error]]:
    """The number of different outputs for prompts closer than a distance, which models share.

    Returns the end of the first bin and the errors; none if prompts repeat or have no such pair.
    """
    curves = {name: one.curve for name, one in known.items() if one.curve}
    within = {float(curve.ends[0]) for curve in curves.values()}
    some = all(curve.similarity.pairs[0] > 0 for curve in curves.values())
    if len(curves) < len(known) or not some or len(within) != 1 or math.inf in within:
        return math.nan, {}
    errors = {}
    for name, curve in curves.items():
        value, changes = float(curve.similarity.values[0]), curve.similarity.changes[0]
        label, n = "rows", changes.size
        if units is not None:
            groups = units.of_models[name]
            changes, label = np.bincount(groups.membership, changes, groups.count), groups.units
            n = groups.present
        ends = statistics.ends_of(statistics.Mean(value, changes), np.full(n, 1 / n))
        influences = changes[None] * math.sqrt(changes.size * n / max(n - 1, 1))
        errors[name] = Error(value, influences, label, n - 1, ends=ends).inverted()
    return within.pop(), errors


def of_pairs(pairs: Pairs, ends: np.ndarray | None = None) -> OnePrompt:
    """What is known of the outputs to one prompt from rows of different prompts.

    Rows of one group, such as a seed or a designer that several prompts share, are not compared.
    `ends` are those of the bins of distances; where None, each bin has twice as many pairs.
    """
    if pairs.kernels[1].compares_equality and pairs.arrays[1].shape[1] == 1:
        return _unknown(pairs, "prompts were asked once, and are labels, which have no distance")
    if not pairs.across_models:
        return _unknown(pairs, "prompts were asked once, and outputs to two are not compared")
    if pairs.n < _FEWEST:
        return _unknown(pairs, f"{pairs.n} prompts that were asked once are too few")
    shares, gathered = pairs.shares, pairs.gathered()
    groups = pairs.prompt_kinds[1] if pairs.groups is None else pairs.groups
    _, kinds, counts = np.unique(groups, return_inverse=True, return_counts=True)
    labels = np.where(counts[kinds] > 1, kinds, -1)  # A row by itself has none.
    prompts = gathered.arrays[1]
    few = pairwise.few_distances(prompts, _ROWS_OF_EDGES)
    if ends is None:  # Each bin has twice as many pairs of n rows.
        count = max(1, int(math.log2(max(pairs.n - 1, 2) / 2)) + 1)
        ends = np.quantile(few, np.minimum(2.0 ** np.arange(count) * 2 / max(pairs.n - 1, 2), 1))
        ends = np.append(np.unique(ends[ends > 0])[: count - 1], math.inf)
    bins, everywhere = _bins(pairs, prompts, ends, shares, labels)
    places = np.searchsorted(ends, few)
    sizes, sums = (np.bincount(places, weights, ends.size) for weights in (None, few))
    centres = sums / np.maximum(sizes, 1)  # The mean distance in each bin.
    near = statistics.near_pairs(*pairwise.nearest(prompts, labels, statistics.NEIGHBOURS), shares)
    if near.one.size == 0:
        return _unknown(pairs, "all prompts are of one group")
    kernel, outputs = gathered.kernels[0], gathered.arrays[0]
    left, right = outputs[near.one], outputs[near.other]
    similar = pairwise.squares_of_pairs(kernel, left, right)
    near_mean, zero = statistics.near_mean(near, similar), statistics.at_zero(near, similar)
    shifted, moved = None, _slope(gathered)
    if moved > 0:
        left = left - moved * (prompts[near.one] - prompts[near.other]).astype(left.dtype)
        shifted = statistics.near_mean(near, pairwise.squares_of_pairs(kernel, left, right))
    distance = float(near.weights @ near.distances)
    reach = distance / few.mean() if few.mean() > 0 else 1.0
    means = everywhere, near_mean, shifted, zero
    limits = statistics.known(*means, near.shares, reach, groups=pairs.groups)
    total = 1 / everywhere.value if everywhere.value > 0 else math.inf
    at_most = 1 / limits.at_least if limits.at_least > 0 else math.inf
    state: State = "known"
    if math.isnan(limits.low):
        state = "at most" if at_most < max(statistics.WIDEST, total / _BETTER) else "cannot be told"
    low, high = 1 / limits.high, 1 / limits.low
    curve = Curve(ends, centres, bins, distance, near_mean, read_at_0=zero.value)
    numbers = math.sqrt(low * high), low, high, at_most, total
    unknown = "each prompt was asked once, and outputs to near ones are no more alike"
    reason = unknown if state == "cannot be told" else None
    return OnePrompt(state, *numbers, pairs.n, repeated=False, reason=reason, curve=curve)


def _unknown(pairs: Pairs, reason: str) -> OnePrompt:
    """That nothing can be told, and why."""
    nothing = (math.nan,) * 5
    return OnePrompt("cannot be told", *nothing, prompts=pairs.n, repeated=False, reason=reason)


def _bins(
    pairs: Pairs, prompts: jnp.ndarray, ends: np.ndarray, shares: np.ndarray, labels: np.ndarray
) -> tuple[statistics.Bins, statistics.Mean]:
    """The mean similarity of outputs in each bin of distances, and everywhere, in one pass."""
    kernel, unit = pairwise.distance_kernel(prompts)
    tiles = pair_sums.tiles_of(pairs.under((pairs.kernels[0], kernel)))
    edges = np.stack([np.append(-1.0, ends[:-1] ** 2 / unit), ends**2 / unit])
    beside = jnp.asarray(shares, pairs.dtype), jnp.asarray(labels)
    if pairs.layout is not None:
        beside = tuple(map(pairs.layout.place, beside))
    sums = pairwise.sums_by_distance(tiles, jnp.asarray(edges, pairs.dtype), *beside)
    weights, similar = (np.asarray(to_host(part.T), np.float64)[: pairs.n].T for part in sums)
    whole, alike = (of_bins.sum(axis=0, keepdims=True) for of_bins in (weights, similar))
    everywhere = statistics.in_bins(whole, alike, shares, _LEVEL)
    bins = statistics.in_bins(weights, similar, shares, _LEVEL)
    return bins, statistics.Mean(float(everywhere.values[0]), everywhere.changes[0])


def _slope(pairs: Pairs) -> float:
    """How far outputs move with their prompts, where both lie in one space; 0 elsewhere.

    Outputs may be moved by any function of their prompts: those to one prompt move together.
    """
    kernel, (outputs, prompts) = pairs.kernels[0], pairs.arrays
    one_space = kernel.shift_invariant and outputs.shape[1] == prompts.shape[1]
    if not one_space or kernel.known_bandwidth is None:
        return 0.0
    x, t = (np.asarray(array, np.float64) for array in (outputs, prompts))
    x, t = x - x.mean(axis=0), t - t.mean(axis=0)
    spread = float(np.sum(t**2))
    return max(0.0, float(np.sum(x * t)) / spread) if spread > 0 else 0.0
