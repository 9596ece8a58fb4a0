"""Scores over all bandwidths of outputs and prompts, their limits, and the rankings they give."""

from __future__ import annotations

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
# Fewer prompts make no groups for a jackknife.
LEAST_PROMPTS = 10
# A difference of two models beyond so many standard errors is one.
_SIGNIFICANT = 2.0


def matched(pairs: PairedEmbeddings, *, least: float, rows: int, seed: int) -> PairedEmbeddings:
    """The prompts that all models answer, as many outputs of each by every model, model by model.

    Pairs of equal prompt embeddings are of one prompt. Models that answer a smaller share than
    `least` of all prompts are left out. Of each model at most `rows` are taken, of random prompts.
    """
    models, model = np.unique(pairs.labels["models"], return_inverse=True)
    kinds, prompt = validation.distinct_rows(pairs.prompts)
    counts = np.zeros((len(models), kinds), int)
    np.add.at(counts, (model, prompt), 1)
    kept = np.flatnonzero(np.mean(counts > 0, axis=1) >= least)
    if len(kept) < 2:
        raise ValueError(f"--least={least:g} leaves {len(kept)} models, expected two or more.")
    shared = counts[kept].min(axis=0)
    if np.sum(shared > 0) < LEAST_PROMPTS:
        raise ValueError(
            f"models: {len(kept)} models share {np.sum(shared > 0)} prompts, expected "
            f"{LEAST_PROMPTS}; a larger --least leaves out those that answer few."
        )
    order = np.random.default_rng(seed).permutation(kinds)
    chosen = [
        np.flatnonzero((model == m) & (prompt == p))[: shared[p]]
        for m, p in itertools.product(kept, order)
    ]
    per_model = min(rows, int(shared.sum()))
    return pairs.rows(np.concatenate(chosen).reshape(len(kept), -1)[:, :per_model].ravel())


def other(sweep: str) -> str:
    """The side whose bandwidth is held in a sweep."""
    return next(side for side in SWEEPS if side != sweep)


def scores(
    pairs: PairedEmbeddings,
    widths: tuple[np.ndarray, np.ndarray],
    held: Sequence[int],
    key: jax.Array,
    say: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Conditional-* and Information-* of one model at all bandwidths, and their limits.

    Wide prompts are forgotten: Conditional-Vendi tends to Vendi and Information-Vendi to 1. Wide
    outputs are all alike: both tend to 1. For narrow ones see `_narrow`.

    Args:
      pairs: of the model.
      widths: of outputs and of prompts, `[m]` each.
      held: the numbers of the S of those that are held while the other is swept.
      key: draws the g groups of prompts that are left out in turn.
      say: takes a few words before each step.

    Returns:
      Scores `[orders, scores, 1 + g, m, m]`; limits `[sweeps, S, orders, scores, ends]`.
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
    values = np.full((2, 2, *conditional_rke.shape), np.nan)
    values[0, :, 0] = conditional, vendi[:, None] / conditional
    values[1] = conditional_rke, rke[..., None] / conditional_rke
    limits = []
    for index in held:  # All of both orders, `[2]`.
        whole = np.array([vendi[index], rke[0, index]])
        of_prompts = np.array([prompts_vendi[index], prompts_rke[index]])
        joint, alone = _narrow(outputs, prompts, index)
        joint_x, alone_x = _narrow(prompts, outputs, index)
        unconditional = np.array([[whole, whole], [alone_x, np.ones(2)]])
        limit = np.array([[joint / alone, whole], [joint_x / of_prompts, np.ones(2)]])
        limits.append([limit, unconditional / limit])
    return values, np.transpose(limits, (2, 0, 4, 1, 3))


class _Side:
    """Outputs or prompts `[n, d]`, their bandwidths `[m]` and the distances that all of them share.

    One form of the kernel, that of the narrowest bandwidth, serves all of them.
    """

    def __init__(self, points: jax.Array, widths: np.ndarray):
        self.widths = jnp.asarray(widths, points.dtype)
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


def _narrow(side: _Side, narrow: _Side, held: int) -> np.ndarray:
    """exp H of the joint and of the narrow side alone, at orders 1 and 2, `[2, 2]`.

    A Gram whose bandwidth goes to zero tends to that of equality, and the joint to the other Gram,
    zero between what differs. As prompts narrow, Conditional-Vendi so tends to a geometric mean
    over the prompts and Conditional-RKE to a harmonic one, and both to 1 where each occurs once.
    """
    equal = np.equal.outer(narrow.kinds, narrow.kinds).astype(np.float64)
    found = []
    for gram in (equal * np.asarray(side.gram(held)), equal):
        values = np.linalg.eigvalsh(gram) / len(gram)
        positive = values[values > 0]
        found.append([-np.sum(positive * np.log(positive)), -np.log(values @ values)])
    return np.exp(found)


def taus(found: xr.Dataset, order: str, score: str, sweep: str, scale: float) -> np.ndarray:
    """Kendall's tau of the models' ranking in a sweep with that at the rule's bandwidths, `[m]`.

    The other bandwidth is held at a multiple of the rule's, the scale.
    """
    values = found.value.sel(order=order, score=score, left_out=0)
    curves = values.sel({other(sweep): scale}).transpose(sweep, "model")
    at_rule = values.sel(outputs=1.0, prompts=1.0)
    return kendall(at_rule.values, curves.values, ORDERS[order])


def reversals(found: xr.Dataset, score: str, sweep: str, scale: float) -> str:
    """How many pairs of models, of all, a sweep of order 2 turns round.

    Those that somewhere stand the other way round, both there and at the rule's bandwidths beyond
    two standard errors of the paired jackknife.
    """
    values = found.value.sel(order="RKE", score=score).transpose("model", "left_out", ...)
    first, second = np.triu_indices(values.sizes["model"], 1)
    there, here = (
        _strengths(scores[first], scores[second])
        for scores in (
            values.sel({other(sweep): scale}).values,
            values.sel(outputs=1.0, prompts=1.0).values[..., None],
        )
    )
    significant = (np.abs(there) > _SIGNIFICANT) & (np.abs(here) > _SIGNIFICANT)
    turned = np.any(significant & (there * here < 0), axis=1)
    return f"{turned.sum()} of {len(turned)}"


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
    same = np.isclose(taus, 1)
    if not same[multiples == 1]:  # Held at another scale, the ranking may differ everywhere.
        return math.nan, math.nan
    breaks = np.cumsum(~same)
    unbroken = multiples[same & (breaks == breaks[multiples == 1])]
    return float(unbroken.min()), float(unbroken.max())
