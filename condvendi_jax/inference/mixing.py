"""Whom to ask, in what shares: the mixture of models whose answers differ most.

With shares w, two answers count as the same with probability w' J w, J[a, b] being the mean over
prompts of k(x, y)^2 between independent answers of a and b (`cv-shares` of docs/theory.md).
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import scipy  # Its modules are imported when they are used.
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.base.result import Figure, Result
from condvendi_jax.base.tables import Table, listed
from condvendi_jax.data.pairs import Labels, of_each_model
from condvendi_jax.inference import population
from condvendi_jax.inference.between import Pooled, groups_of
from condvendi_jax.inference.designs import Rows
from condvendi_jax.inference.errors import DEFAULT_GROUPS
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.inference.quality import of_outputs
from condvendi_jax.results.estimate import Estimate
from condvendi_jax.statistics import reasons
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.intervals import NO_PAIR
from condvendi_jax.statistics.power import FEWEST_TESTED

_GAP = 1e-6  # By how much of it w' J w may exceed the least one.
_TOO_SMALL = 1e-3  # Of w' J w, relative to the mean of models: below, it is 0 as far as is known.
_ROUNDING = 1e-8  # Of shares, and of limits.


@dataclasses.dataclass(frozen=True, repr=False)
class Mix(Result):
    """The shares in which to ask models. Prints as a few lines.

    The score, the gain and the quality are those of groups of prompts, each with the shares that
    the other groups choose, and intervals at 95% over groups.
    """

    shares: dict[str, float]  # Of each model, by all prompts.
    fitted: float  # The score of `shares` on the prompts that chose them: too large.
    best: str  # The most diverse model within the limits, or of all where no model meets them.
    score: Estimate  # The effective number of answers of the mixture, 1 / w' J w.
    gain: Estimate  # The score over that of `best`.
    quality: Estimate | None
    cost: float | None  # The mean price of an answer at `shares`.
    least_quality: float | None
    most_cost: float | None
    left_out: int  # Prompts that not all models answer.
    alone: dict[str, tuple[float, float | None]]  # The score and the quality of each model.
    frontier: tuple["Mix", ...] = ()  # From the quality of the most diverse shares to the largest.

    @property
    def verdict(self) -> str:
        """The gain in words, which is shown if its interval is above 1."""
        shown = self.gain.ends is not None and self.gain.ends[0] > 1
        limits = " within the limits" * (self.least_quality is not None or self.cost is not None)
        words = f"{self.gain} times the most diverse model{limits} ({self.best})"
        return words if shown else f"{words}: no gain over it alone is shown"

    def lines(self) -> list[dict[str, Any]]:
        """A line for each model: its share, and its score and quality alone."""
        names, alone = ("model", "share", "score", "quality"), self.alone
        return [dict(zip(names, (m, w, *alone[m]), strict=True)) for m, w in self.shares.items()]

    def parts(self) -> list[str | Table]:
        """Whom to ask, what it gains, the limits, and the frontier."""
        asked = sorted(((w, m) for m, w in self.shares.items() if w >= 0.005), reverse=True)
        score = f"{self.score} effective answers on data that were not used"
        words = listed([f"{model} {share:.0%}" for share, model in asked])
        parts: list[str | Table] = [f"Ask {words}: {score}, {self.verdict}"]
        if self.cost is not None:
            parts.append(f"Mean cost: {self.cost:.3g}, at most {self.most_cost:g}")
        if self.quality is not None:
            parts.append(f"Mean quality: {self.quality}, where at least {self.least_quality:g}")
            rows = [[f"{x.least_quality:.4g}", f"{x.quality}", f"{x.score}"] for x in self.frontier]
            parts.append(Table(["quality at least", "mean quality", "effective answers"], rows))
        if self.left_out:
            parts.append(f"{self.left_out:,} prompts that not all models answer are left out")
        return parts

    def plot(self) -> Figure:
        """The effective number against the mean quality; ValueError without a quality."""
        if not self.frontier:
            raise ValueError("plot: expected shares with a quality, against which it draws them.")
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.of_mix(self)


@takes_data
def mix(
    models: Mapping[str, ArrayLike | Labels],
    prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
    *,
    quality: ArrayLike | Mapping[str, ArrayLike] | None = None,
    least_quality: float | None = None,
    costs: Mapping[str, float] | None = None,
    most_cost: float | None = None,
    groups: int | ArrayLike | None = None,
    seed: int = 0,
    **data: Unpack[Data],
) -> Mix:
    """Returns the shares w of models with the least w' J w: the most different answers.

    On the prompts that chose them their score 1 / w' J w is too large, so that each group of
    prompts is scored by the shares that the other groups choose.

    Args:
      models, prompts: as `compare`, two models or more, on the prompts that all of them share.
      quality, least_quality: as `quality` of `compare`, and the least mean over prompts. Groups
        that cannot choose shares of this quality take the largest that they can.
      costs, most_cost: the price of an answer of each model by name, and the largest mean price.
      groups: of prompts, as `compare`; 20 where None, fewer of few rows.
      seed, data: as `compare`; no weights.

    Raises:
      ValueError: no shares meet the limits, prompts or answers are too few, or as `compare`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts, answers = np.repeat(np.arange(20), 4), np.arange(80)[:, None] % 2
      >>> models = {"A": answers, "B": answers + 2, "part of A": 0 * answers}
      >>> result = cv.mix(models, prompts, output_kernel=cv.Indicator())
      >>> print(f"{result.shares['B']:.1f}: {result.gain.value:.1f} times {result.best}")
      0.5: 2.0 times A
    """
    plan = Plan([2], None, None, True, groups, seed, lambda _: None)
    if (quality is None, costs is None) != (least_quality is None, most_cost is None):
        raise ValueError("quality and least_quality, costs and most_cost: expected both or none.")
    pairs = plan.pairs(models, prompts, across=True, **data)
    for name, numbers in of_each_model(quality, pairs, "quality").items():
        checks.check_indices({"outputs": models[name], "quality": numbers})
        pairs[name].refuse_weights("shares of models")
    rated = None if quality is None else of_outputs(quality, pairs)
    spare = np.zeros(len(pairs))  # By how much an answer of each model costs less than the most.
    if costs is not None:
        how: Any = {"above": -math.ulp(0.0), "expected": "a finite number of at least 0"}
        given = of_each_model(costs, pairs, "costs").items()
        prices = np.array([checks.check_number(x, name=f"costs: {m}", **how) for m, x in given])
        cheapest = f"at least {min(prices):g}, the price of the cheapest model"
        how = {"above": np.nextafter(min(prices), -math.inf), "expected": cheapest}
        spare = checks.check_number(most_cost, name="most_cost", **how) - prices
    rows, paired = Rows.of(pairs), next(iter(pairs.values())).paired
    shared, chosen = rows.shared([*pairs]), rows.chosen([*pairs])
    pairs = rows.restricted([*pairs])
    if paired and shared.sum() < FEWEST_TESTED:
        expected = f"expected {FEWEST_TESTED} or more that all models answer"
        raise ValueError(f"prompts: {expected}, received {shared.sum()}.")
    for two in itertools.combinations(pairs, 2):
        if all(map(np.array_equal, *(pairs[m].gathered().arrays for m in two))):
            raise ValueError(f"models: {listed(two)} have the same outputs; leave one of them out.")
    plan.count = plan.count or min(DEFAULT_GROUPS, max(2, min(map(len, chosen.values())) // 4))
    pooled = Pooled(pairs, groups_of(pairs, plan))
    if paired and population.splits(pooled.group, pooled.prompt):
        raise ValueError(f"groups: expected a label for each prompt; {reasons.SPLIT}.")
    values = [rated[m][rows] if rated else 0.0 * rows for m, rows in chosen.items()]
    folds, held_out = _of_folds(pooled, np.concatenate(values))
    same, known = folds[0]
    least, most = 0.0, float(known @ _lowest(-known, spare[None]))
    if rated:
        largest = f"at most {most:.9g}, the largest mean quality" + " at this cost" * bool(costs)
        how = {"above": -math.inf, "below": most + _ROUNDING * (1 + abs(most))}
        least = checks.check_number(least_quality, name="least_quality", expected=largest, **how)

    def at(least: float) -> Mix:
        """The shares at a least quality; each group is scored by those that the others choose."""
        (w, within), *others = (_shares(j, q, spare, least) for j, q in folds)
        best = int(np.where(within | ~within.any(), same.diagonal(), math.inf).argmin())
        score, gain, mean = _scored(np.array([v for v, _ in others]), best, *held_out)
        alike = [w @ same @ w, *same.diagonal()]
        fitted, *alone = (float(1 / x) if x > NO_PAIR else math.inf for x in alike)
        scores = fitted, [*pairs][best], score, gain, mean if rated else None
        cost = None if most_cost is None else float(most_cost - spare @ w)
        limits = least if rated else None, most_cost, int(np.sum(~shared))
        single: Any = zip(alone, known.tolist() if rated else [None] * len(w), strict=True)
        shares, single = (dict(zip(pairs, x, strict=True)) for x in (w.tolist(), single))
        return Mix(shares, *scores, cost, *limits, single)

    floors = known @ _shares(same, known, spare, min(known))[0], most
    frontier = map(at, np.linspace(*floors, 7).tolist() if rated else [])
    return dataclasses.replace(at(least), frontier=tuple(frontier))


def _of_folds(pooled: Pooled, quality: np.ndarray) -> Any:
    """J and the mean quality of models, of all prompts and without each of g groups.

    And those of each group, with its weights in means of J, J and the quality, `[g, 3]`.
    """
    pooled.kept = np.concatenate([pooled.kept, np.eye(pooled.count)])
    joint, *prompts = pooled.means_of(("joint", "prompts")[: 1 + pooled.models[0].paired])
    prompts = prompts[0] if prompts else np.ones_like(joint)  # The same of all models.
    if not (prompts > 0).all():
        expected = "two answers of each model to similar prompts in every group"
        raise ValueError(f"groups: expected {expected}; give more answers, or fewer groups.")
    sums = np.bincount(pooled.place, pooled.weights * quality).reshape(pooled.sizes.shape)
    sizes, first = pooled.kept @ pooled.sizes.T, 1 + pooled.count
    part = np.mean(sizes / sizes[0], axis=1)
    weights = np.stack([prompts[:, 0, 0] * part**2] * 2 + [part], axis=1)
    every = joint / prompts, pooled.kept @ sums.T / sizes, weights
    return [*zip(*(x[:first] for x in every[:2]), strict=True)], [x[first:] for x in every]


def _shares(similar: np.ndarray, quality: np.ndarray, spare: np.ndarray, least: float) -> Any:
    """The shares w with the least w' J w within the limits, and whether each model is within.

    J is made positive semidefinite, as in truth; a least quality out of reach becomes the largest.
    RuntimeError unless the tangent at w, which is nowhere above w' J w, proves the optimum.
    """
    most, m = quality @ _lowest(-quality, spare[None]), len(quality)
    limits = np.array([spare, quality - min(least, most - _ROUNDING * abs(most))])
    limits /= np.maximum(np.abs(limits).max(axis=1, keepdims=True), NO_PAIR)
    values, vectors = np.linalg.eigh(similar / max(np.trace(similar) / m, NO_PAIR))
    convex = (vectors * np.maximum(values, 0)) @ vectors.T
    how: Any = {"jac": lambda w: 2 * convex @ w, "options": {"ftol": 1e-15, "maxiter": 1000}}
    sums = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    above = {"type": "ineq", "fun": lambda w: limits @ w, "jac": lambda _: limits}
    how |= {"bounds": [(0, 1)] * m, "constraints": [sums, above], "method": "SLSQP"}
    w = scipy.optimize.minimize(lambda w: w @ convex @ w, np.full(m, 1 / m), **how).x
    w = np.where(w > _ROUNDING, w, 0) / np.sum(w, where=w > _ROUNDING)
    slope = convex @ w
    gap = 2 * slope @ (w - _lowest(slope, limits))
    if gap > _GAP * max(slope @ w, _TOO_SMALL) or min(limits @ w) < -_ROUNDING:
        raise RuntimeError("mix: the best shares were not reached; please report these data.")
    return w, limits.min(axis=0) >= 0


def _lowest(values: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The shares of the least mean of values `[m]`, where limits @ shares is at least 0."""
    even = np.zeros(len(limits)), np.ones((1, values.size)), 1.0
    scaled = [x / max(np.abs(x).max(), NO_PAIR) for x in (values, -limits)]  # For its tolerances.
    return scipy.optimize.linprog(*scaled, *even).x


def _scored(shares: np.ndarray, best: int, similar: Any, quality: Any, weights: Any) -> Any:
    """The score, the gain over the best model and the quality of groups of shares `[g, m]`."""
    alike = np.einsum("ga,gab,gb->g", shares, similar, shares), similar[:, best, best]
    values = np.stack([*alike, np.sum(shares * quality, axis=1)], axis=1)
    means, scales = np.average(values, axis=0, weights=weights), weights / weights.mean(axis=0)
    changes = (scales * (values - means)).T / math.sqrt(len(shares) - 1)
    single = max(means[1], NO_PAIR)
    means[1] = means[0] / single  # One over the gain.
    changes[1] = (changes[0] - means[1] * changes[1]) / single
    numbers = zip(means.tolist(), changes[:, None], strict=True)
    score, over, mean = (Error(*both, freedom=len(shares) - 1) for both in numbers)
    ends, m = over.in_logarithms().at_levels, len(similar[0])
    # The most diverse of m models was chosen, so that the gain over it tends to be too small.
    over = dataclasses.replace(over, ends=lambda level: (ends(level / m)[0], ends(level)[1]))
    return *(Estimate.of(e.inverted()) for e in (score.in_logarithms(), over)), Estimate.of(mean)
