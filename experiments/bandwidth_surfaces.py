"""Scores over all bandwidths of outputs and prompts, their limits, and the rankings they give."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import stats

import condvendi_jax as cv
from condvendi_jax import inference, validation
from condvendi_jax.grams import DenseGram
from experiments.data import PairedEmbeddings
from experiments.lab.agreement import ranks, rounding

ORDERS = {"Vendi": 1.0, "RKE": 2.0}
SCORES = ("Conditional", "Information")
SWEEPS = ("prompts", "outputs")
ENDS = ("narrow", "wide")
_ALL = "all pairs"
# Fewer prompts make no groups for a jackknife.
LEAST_PROMPTS = 10
# A difference of two models beyond so many standard errors is one.
_SIGNIFICANT = 2.0


def matched(pairs: PairedEmbeddings, *, least: float, rows: int, seed: int) -> PairedEmbeddings:
    """The prompts that all models answer, as many outputs of each by every model.

    Args:
      pairs: those of equal prompt embeddings are of one prompt; without the label `models` they are
        taken for one model's.
      least: models that answer a smaller share of all prompts are left out.
      rows: of each model at most, of prompts drawn at random by the seed.

    Returns:
      Model by model, the prompts in the same order.

    Raises:
      ValueError: fewer than two models are left, or they share too few prompts.
    """
    names = pairs.labels.get("models", np.full(len(pairs), _ALL))
    models, model = np.unique(names, return_inverse=True)
    kinds, prompt = validation.distinct_rows(pairs.prompts)
    counts = np.zeros((len(models), kinds), int)
    np.add.at(counts, (model, prompt), 1)
    kept = np.flatnonzero(np.mean(counts > 0, axis=1) >= least)
    if len(kept) < min(2, len(models)):
        raise ValueError(f"--least={least:g}: {len(kept)} of {len(models)} models are left.")
    shared = counts[kept].min(axis=0)
    if np.sum(shared > 0) < LEAST_PROMPTS:
        raise ValueError(
            f"models: {len(kept)} models share {np.sum(shared > 0)} prompts, expected "
            f"{LEAST_PROMPTS}; a larger --least leaves out those that answer few."
        )
    order = np.random.default_rng(seed).permutation(kinds)
    chosen = [
        of_prompt[: shared[p]]
        for m, p in itertools.product(kept, order)
        if (of_prompt := np.flatnonzero((model == m) & (prompt == p))).size and shared[p]
    ]
    per_model = min(rows, int(shared.sum()))
    by_model = np.concatenate(chosen).reshape(len(kept), -1)[:, :per_model]
    found = pairs.rows(by_model.ravel())
    labels = {**found.labels, "models": np.repeat(models[kept], per_model)}
    return dataclasses.replace(found, labels=labels)


def scores(
    pairs: PairedEmbeddings,
    widths: tuple[np.ndarray, np.ndarray],
    held: Sequence[int],
    key: jax.Array,
    say: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Every score of one model's pairs, and what the curves tend to; see `combine`.

    Args:
      pairs: of the model.
      widths: of outputs and of prompts, `[m]` each.
      held: the numbers of those that are held while the other is swept.
      key: draws the groups of prompts that are left out in turn.
      say: takes a few words before each step.
    """
    outputs, prompts = (
        _Side(jnp.asarray(points), of)
        for points, of in zip((pairs.outputs, pairs.prompts), widths, strict=True)
    )
    kinds = validation.distinct_rows(pairs.prompts)
    say("order 2")
    # The same prompts leave together in every model, so that what they share cancels.
    groups = inference.group_rows(len(pairs), min(20, kinds[0]), key=key, kinds=kinds[1])
    rke, conditional_rke, prompts_rke = _order_two(outputs, prompts, groups)
    say("spectra")
    vendi, conditional, prompts_vendi = _order_one(outputs, prompts, held)
    narrow = [
        [_narrow(outputs, prompts, index), _narrow(prompts, outputs, index)] for index in held
    ]
    of_prompts = np.stack([prompts_vendi, prompts_rke])
    at_ends = np.moveaxis(np.array(narrow), 0, -1)
    return combine(vendi, conditional, rke, conditional_rke, of_prompts, at_ends, held)


def combine(
    vendi: np.ndarray,
    conditional: np.ndarray,
    rke: np.ndarray,
    conditional_rke: np.ndarray,
    of_prompts: np.ndarray,
    narrow: np.ndarray,
    held: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:
    """Conditional-* and Information-* at all bandwidths, and their limits at both ends.

    Wide prompts are forgotten: Conditional-Vendi tends to Vendi and Information-Vendi to 1. Wide
    outputs are all alike: both tend to 1.

    Args:
      vendi: `[m]`, of order 1.
      conditional: `[m, m]`, of order 1, by output and prompt bandwidth; NaN where neither is held.
      rke: `[1 + g, m]`, of order 2; behind the first row those without each of g groups.
      conditional_rke: `[1 + g, m, m]`.
      of_prompts: `[2, m]`, the Vendi and the RKE of the prompts.
      narrow: `[2, 2, 2, S]`, exp H of orders 1 and 2 (last axis but one) in the limit of a narrow
        bandwidth of the prompts and of the outputs (first axis), the other being held: of the
        joint, and of the narrow ones alone (second axis).
      held: the S numbers of the bandwidths that are held.

    Returns:
      Scores `[orders, scores, 1 + g, m, m]`, of order 1 without groups NaN; limits `[sweeps, S,
      orders, scores, ends]`.
    """
    values = np.full((2, 2, *conditional_rke.shape), np.nan)
    values[0, :, 0] = conditional, vendi[:, None] / conditional
    values[1] = conditional_rke, rke[..., None] / conditional_rke
    limits = np.empty((2, len(held), 2, 2, 2))
    for (at, index), (order, whole) in itertools.product(
        enumerate(held), enumerate((vendi, rke[0]))
    ):
        joint, alone = narrow[:, :, order, at].T
        ends = {
            0: ((whole[index], joint[0] / alone[0]), (whole[index], whole[index])),
            1: ((alone[1], joint[1] / of_prompts[order, index]), (1.0, 1.0)),
        }
        for sweep, of_sweep in ends.items():
            limits[sweep, at, order] = np.transpose([(c, v / c) for v, c in of_sweep])
    return values, limits


class _Side:
    """Outputs or prompts `[n, d]`, their bandwidths `[m]` and the distances that all of them share.

    One form of the kernel, that of the narrowest bandwidth, serves all of them.
    """

    def __init__(self, points: jax.Array, widths: np.ndarray):
        self.points, self.widths = points, jnp.asarray(widths, points.dtype)
        self.unit = cv.Gaussian(float(widths.min())).suited_to(points).unit
        self.kinds = validation.distinct_rows(np.asarray(points))[1]
        kernel = cv.Gaussian(1.0, unit=self.unit)
        prepared = kernel.prepare(points)
        self._geometry = jnp.fill_diagonal(kernel.geometry(prepared, prepared), 0, inplace=False)

    def gram(self, index: int) -> jax.Array:
        """K at one of the bandwidths, `[n, n]`."""
        return cv.Gaussian(self.widths[index], unit=self.unit).profile(self._geometry)

    def grams(self, rows: np.ndarray) -> np.ndarray:
        """Some rows of K at every bandwidth, `[m, rows, n]`."""
        geometry = self._geometry[rows]
        kernels = [cv.Gaussian(width, unit=self.unit) for width in self.widths]
        return np.stack([kernel.profile(geometry) for kernel in kernels])


def _order_two(
    outputs: _Side, prompts: _Side, groups: inference.Groups
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """RKE `[1 + g, m]`, Conditional-RKE `[1 + g, m, m]`, RKE of the prompts `[m]`: in one pass.

    Squared norms of joints are inner products of squared Grams: each Gram is evaluated at its own m
    bandwidths, and a matrix product does the m^2 combinations. A Gram of ones stands in front.
    """
    touching, inside = [], []
    for group in range(groups.count):
        rows = groups.membership == group
        x, t = (np.square(side.grams(rows)) for side in (outputs, prompts))
        touching.append(_inner_products(x, t))
        inside.append(_inner_products(x[..., rows], t[..., rows]))
    total = np.sum(touching, axis=0)
    without = total - 2 * np.array(touching) + np.array(inside)
    norms = np.concatenate([total[None], without])
    left = len(outputs.kinds) * np.append(1, 1 - groups.fractions)
    rke = left[:, None] ** 2 / norms[:, 1:, 0]
    return rke, norms[:, :1, 1:] / norms[:, 1:, 1:], left[0] ** 2 / norms[0, 0, 1:]


def _inner_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Of all matrices `[m, r, n]` of both, with a matrix of ones in front, `[1 + m, 1 + m]`."""
    flat = [m.reshape(len(m), -1) for m in (left, right)]
    flat = [np.concatenate([np.ones_like(m[:1]), m]) for m in flat]
    return (flat[0] @ flat[1].T).astype(np.float64)


def _order_one(
    outputs: _Side, prompts: _Side, held: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vendi `[m]`, Conditional-Vendi `[m, m]`, NaN where neither is held, Vendi of the prompts."""
    m = len(outputs.widths)
    h_x, h_t = (
        np.array([_von_neumann(side.gram(index)) for index in range(m)])
        for side in (outputs, prompts)
    )
    conditional = np.full((m, m), np.nan)
    for i, j in itertools.product(range(m), repeat=2):
        if i in held or j in held:
            conditional[i, j] = math.exp(_von_neumann(outputs.gram(i), prompts.gram(j)) - h_t[j])
    return np.exp(h_x), conditional, np.exp(h_t)


@jax.jit
def _von_neumann(*grams: jax.Array) -> jax.Array:
    """H of the Hadamard product of Grams, by all eigenvalues; compiled once for all bandwidths."""
    return cv.von_neumann(DenseGram.trusted(functools.reduce(jnp.multiply, grams)))


def _narrow(other: _Side, narrow: _Side, held: int) -> np.ndarray:
    """exp H of the joint and of the narrow side alone, at orders 1 and 2, `[2, 2]`.

    A Gram whose bandwidth goes to zero tends to that of equality, and the joint to the other Gram,
    zero between what differs. As prompts narrow, Conditional-Vendi so tends to a geometric mean
    over the prompts and Conditional-RKE to a harmonic one, and both to 1 where each occurs once.
    """
    gram = np.asarray(other.gram(held), np.float64)
    return np.exp([_within(gram, narrow.kinds), _within(np.ones_like(gram), narrow.kinds)])


def _within(gram: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The entropies of orders 1 and 2, in nats, of a Gram set to zero between different kinds."""
    rows = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
    values = np.concatenate([np.linalg.eigvalsh(gram[np.ix_(r, r)]) for r in rows]) / len(gram)
    positive_values = values[values > 0]
    return np.array([-np.sum(positive_values * np.log(positive_values)), -np.log(values @ values)])


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How the ranking of the models in one sweep agrees with that at the rule's bandwidths.

    Attributes:
      taus: Kendall's tau at each multiple, `[m]`.
      same: the least and the largest multiple about 1 between which no pair of models changes
        places.
      reversed: how many pairs of models somewhere in the sweep stand the other way round, both
        there and at the rule beyond two standard errors of the paired jackknife; None at order 1,
        which has no errors.
      pairs: how many pairs there are.
    """

    taus: np.ndarray
    same: tuple[float, float]
    reversed: int | None
    pairs: int


def agreement(found: xr.Dataset, order: str, score: str, sweep: str, scale: float) -> Agreement:
    """The agreement of one sweep, the other bandwidth held, with the ranking at the rule's.

    Args:
      found: the scores of all models; `value` has the axes model, order, score, left_out, outputs
        and prompts, the last two by multiples of the rule's bandwidths.
      order, score, sweep: some of ORDERS, SCORES and SWEEPS.
      scale: the multiple at which the other bandwidth is held.
    """
    other = next(side for side in SWEEPS if side != sweep)
    values = found.value.sel(order=order, score=score).transpose("model", "left_out", ...)
    curves = values.sel({other: scale}).values
    at_rule = values.sel(outputs=1.0, prompts=1.0).values
    taus = kendall(at_rule[:, 0], curves[:, 0].T, ORDERS[order])
    first, second = np.triu_indices(len(at_rule), 1)
    reversed_pairs = None
    if order == "RKE":
        there = _strengths(curves[first], curves[second])
        here = _strengths(at_rule[first], at_rule[second])[:, None]
        opposite = (np.abs(there) > _SIGNIFICANT) & (np.abs(here) > _SIGNIFICANT)
        reversed_pairs = int(np.any(opposite & (there * here < 0), axis=1).sum())
    same = same_ranking(taus, values[sweep].values)
    return Agreement(taus, same, reversed_pairs, len(first))


def kendall(at_rule: np.ndarray, others: np.ndarray, order: float) -> np.ndarray:
    """Kendall's tau of scores `[models]` with others `[k, models]`, `[k]`; NaN where saturated."""
    ranked = ranks(at_rule, order)
    return np.array([stats.kendalltau(ranked, ranks(other, order))[0] for other in others])


def _strengths(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Differences of the order-2 scores `[pairs, 1 + g, ...]` of models in their jackknife errors.

    `[pairs, ...]`, zero where the scores differ by no more than rounding: there, both are at a
    limit that all models share.
    """
    errors = jackknife(one - two)
    differ = np.abs(one - two)[:, 0] > rounding(2.0) * np.abs(one[:, 0])
    out = np.zeros_like(errors)
    return np.divide((one - two)[:, 0], errors, out=out, where=differ & (errors > 0))


def jackknife(values: np.ndarray) -> np.ndarray:
    """The delete-group errors `[k, ...]` of values `[k, 1 + g, ...]`, of groups of one size."""
    deleted = values[:, 1:]
    count = deleted.shape[1]
    return np.sqrt((count - 1) * np.var(deleted, axis=1))


def same_ranking(taus: np.ndarray, multiples: np.ndarray) -> tuple[float, float]:
    """The least and largest multiple about 1 between which tau is 1."""
    same, reference = np.isclose(taus, 1), int(np.flatnonzero(multiples == 1)[0])
    if not same[reference]:  # Held at another scale, the ranking may differ everywhere.
        return math.nan, math.nan
    low = reference - int(np.argmin(np.append(same[reference::-1], False))) + 1
    high = reference + int(np.argmin(np.append(same[reference:], False))) - 1
    return float(multiples[low]), float(multiples[high])
