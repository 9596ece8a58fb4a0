"""Whom to ask, in what shares: the mixture of models whose answers differ most.

With shares w, two answers of a mixture count as the same with probability w' J w, where J[a, b] is
the mean over prompts of k(x, y)^2 between an answer of model a and another of b.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import scipy  # Its modules are imported when they are used.
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Labels, of_each_model
from condvendi_jax.inference import population
from condvendi_jax.inference.between import Pooled, groups_of
from condvendi_jax.inference.designs import Rows
from condvendi_jax.inference.errors import DEFAULT_GROUPS
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.inference.quality import of_outputs
from condvendi_jax.results.estimate import Estimate
from condvendi_jax.results.mixing import Floor, Mix
from condvendi_jax.statistics import intervals, reasons
from condvendi_jax.statistics.influences import Error, root_mean_square
from condvendi_jax.statistics.multiplicity import winner_interval
from condvendi_jax.statistics.power import FEWEST_TESTED

_GAP = 1e-6  # By how much of it w' J w may exceed the least one.
_TOO_SMALL = 1e-3  # Of w' J w, relative to the mean of models: below, it is 0 as far as is known.
_LEAST = 1e-8  # Smaller shares, and parts of a limit, are rounding.


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
    progress: Callable[[str], Any] = lambda _: None,
    **data: Unpack[Data],
) -> Mix:
    """Returns the shares of models with the most different answers, and their score.

    The shares w minimise w' J w (see above). On the prompts that chose them their score 1 / w' J w
    is too large, so that each group of prompts is scored by shares that the other groups choose.

    Args:
      models, prompts: as `compare`, two models or more, on the prompts that all of them share.
      quality, least_quality: as `quality` of `compare`, and the least mean over prompts. Groups
        that cannot choose shares of this quality take the largest that they can.
      costs, most_cost: the price of an answer of each model by name, and the largest mean price.
      groups: of prompts, a number or labels as `compare`; 20 where None, fewer of few rows.
      seed, progress, data: as `compare`; no weights.

    Raises:
      ValueError: no shares meet the limits, a limit is given without its numbers, there are fewer
        than seven prompts, a group has no answers that can be compared, or as `compare`.

    Examples:
      A and B have two answers each; C has one of those of A:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts, answers = np.repeat(np.arange(20), 4), np.arange(80)[:, None] % 2
      >>> models = {"A": answers, "B": answers + 2, "C": 0 * answers}
      >>> result = cv.mix(models, prompts, output_kernel=cv.Indicator())
      >>> {name: round(share, 3) for name, share in result.shares.items()}
      {'A': 0.5, 'B': 0.5, 'C': 0.0}
      >>> print(f"{result.score.value:.1f}, {result.gain.value:.1f} times {result.best}")
      6.0, 2.0 times A
    """
    plan = Plan([2], None, None, True, groups, seed, progress)
    if (quality is None, costs is None) != (least_quality is None, most_cost is None):
        names = "quality and least_quality, or costs and most_cost"
        raise ValueError(f"{names}: expected both or none, received one.")
    pairs = plan.pairs(models, prompts, across=True, **data)
    if len(pairs) < 2:
        raise ValueError(f"models: expected at least two, received {[*pairs]}.")
    for name, numbers in of_each_model(quality, pairs, "quality").items():
        checks.check_indices({"outputs": models[name], "quality": numbers})
        pairs[name].refuse_weights("shares of models")
    none: Any = {name: np.zeros(rows.n) for name, rows in pairs.items()}
    rated = of_outputs(none if quality is None else quality, pairs)
    least, spare = 0.0, np.zeros(len(pairs))  # By how much an answer costs less than the most.
    if quality is not None:
        least = checks.check_number(least_quality, name="least_quality", above=-math.inf)
    if most_cost is not None:
        how: Any = {"above": -math.ulp(0.0), "expected": "a finite number of at least 0"}
        prices = of_each_model(costs, pairs, "costs").items()
        prices = np.array([checks.check_number(x, name=f"costs: {m}", **how) for m, x in prices])
        spare = checks.check_number(most_cost, name="most_cost", **how) - prices
        if spare.max() < 0:
            cheapest = f"at least {min(prices):g}, the price of the cheapest model"
            raise ValueError(f"most_cost: expected {cheapest}, received {most_cost!r}.")
    rows, paired = Rows.of(pairs), next(iter(pairs.values())).paired
    shared, chosen = rows.shared([*pairs]), rows.chosen([*pairs])
    if paired and shared.sum() < FEWEST_TESTED:
        fewest = f"at least {FEWEST_TESTED} that all models answer, received {shared.sum()}"
        raise ValueError(f"prompts: expected {fewest}.")
    pairs, usual = rows.restricted([*pairs]), max(2, min(map(len, chosen.values())) // 4)
    plan.count = plan.count or min(DEFAULT_GROUPS, usual)
    progress("pairs of answers")
    pooled = Pooled(pairs, grouped := groups_of(pairs, plan))
    if paired and population.splits(pooled.group, pooled.prompt):
        raise ValueError(f"groups: expected a label for each prompt; {reasons.SPLIT}.")
    folds = _folds(pooled, np.concatenate([rated[name][chosen[name]] for name in pairs]), spare)
    whole, most = folds[0], folds[0].most
    if least > most + _LEAST * abs(most):
        largest = f"at most {most:.9g}, the largest mean quality" + " at this cost" * bool(costs)
        raise ValueError(f"least_quality: expected {largest}, received {least:g}.")
    progress("shares")
    floors, known = [least], list[Any]([None] * len(pairs))
    if quality is not None:
        free, known = whole.shares(min(whole.quality)) @ whole.quality, whole.quality.tolist()
        floors += np.linspace(free, most, 7).tolist()
    first, *frontier = (_held_out(folds, floor, [*pairs]) for floor in floors)
    w = np.array([*first.shares.values()])
    similar = np.array([w @ whole.similar @ w, *whole.similar.diagonal()]) / whole.pairs
    fitted, *alone = [1 / x if x > intervals.NO_PAIR else math.inf for x in similar.tolist()]
    estimates = first.shares, first.score, fitted, [*pairs][whole.within(least)[0]], first.gain
    cost = None if most_cost is None else float(most_cost - spare @ w)
    limits = None if quality is None else first.quality, cost, least_quality, most_cost
    single = dict(zip(pairs, zip(alone, known, strict=True), strict=True))
    units = reasons.in_words([*grouped.values()][0].units), int(np.sum(~shared))
    return Mix(*estimates, *limits, tuple(frontier), single, *units)


class _Prompts(NamedTuple):
    """What is known of some prompts, a part `size` of all."""

    similar: np.ndarray  # J, times `pairs`, `[m, m]`.
    pairs: float  # How much their pairs of answers count.
    size: float
    quality: np.ndarray  # Of each model, `[m]`.
    most: float  # The largest mean quality of shares that are not too expensive.
    spare: np.ndarray

    def limits(self, least: float) -> np.ndarray:
        """Rows r of the limits r @ w >= 0; a least quality out of reach becomes the largest."""
        limits = np.array([self.spare, self.quality - min(least, self.most)])
        return limits / np.maximum(np.abs(limits).max(axis=1, keepdims=True), intervals.NO_PAIR)

    def within(self, least: float) -> np.ndarray:
        """The models within the limits, or all if none is, the most diverse first."""
        within, ordered = self.limits(least).min(axis=0) >= 0, self.similar.diagonal().argsort()
        return ordered[within[ordered]] if within.any() else ordered

    def shares(self, least: float) -> np.ndarray:
        """The shares w with the least w' J w, where J is made positive semidefinite, as in truth.

        RuntimeError unless the tangent at w, which is nowhere above w' J w, proves the optimum.
        """
        limits, (values, vectors) = self.limits(least), np.linalg.eigh(self.similar)
        convex = (vectors * np.maximum(values, 0)) @ vectors.T
        convex /= max(np.trace(convex) / len(convex), intervals.NO_PAIR)
        equal: Any = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
        above: Any = {"type": "ineq", "fun": lambda w: limits @ w, "jac": lambda _: limits}
        how: Any = {"constraints": [equal, above], "bounds": [(0, 1)] * len(convex)}
        how |= {"jac": lambda w: 2 * convex @ w, "options": {"ftol": 1e-15, "maxiter": 1000}}
        even = np.full(len(convex), 1 / len(convex))
        w = scipy.optimize.minimize(lambda w: w @ convex @ w, even, method="SLSQP", **how).x
        w = np.where(w > _LEAST, w, 0) / np.sum(w, where=w > _LEAST)
        slope = convex @ w
        gap, most = 2 * (slope @ w - _lowest(slope, limits)), _GAP * max(slope @ w, _TOO_SMALL)
        if gap > most or min(limits @ w) < -_LEAST:
            raise RuntimeError("mix: the best shares were not reached; please report these data.")
        return w


def _folds(pooled: Pooled, quality: np.ndarray, spare: np.ndarray) -> list[_Prompts]:
    """All prompts, those without each group, and each group alone; by the quality of rows `[n]`."""
    pooled.kept = np.concatenate([pooled.kept, np.eye(pooled.count)])
    joint, *rest = pooled.means_of(("joint", "prompts")[: 1 + pooled.models[0].paired])
    prompts = rest[0] if rest else 1 + 0 * joint  # The same of all models.
    if not (prompts > 0).all():
        expected = "two answers of each model to similar prompts in every group"
        raise ValueError(f"groups: expected {expected}; give more answers, or take fewer groups.")
    sums = np.bincount(pooled.place, pooled.weights * quality).reshape(pooled.sizes.shape)
    rated = (pooled.kept @ sums.T) / (pooled.kept @ pooled.sizes.T)
    sizes = pooled.kept @ np.mean(pooled.sizes / pooled.sizes.sum(1, keepdims=True), axis=0)
    folds = []
    for j, t, size, of_prompts in zip(joint, prompts[:, 0, 0], sizes, rated, strict=True):
        most = -_lowest(-of_prompts, spare[None])
        folds.append(_Prompts(j * size**2, t * size**2, size, of_prompts, most, spare))
    return folds


def _held_out(folds: Sequence[_Prompts], least: float, names: Sequence[str]) -> Floor:
    """The shares, with the score and quality of groups by the shares that the others choose.

    The gain is over the first of the models that may be the most diverse: see `winner_interval`.
    """
    g, whole = len(folds) // 2, folds[0]
    models, fixed = whole.within(least), whole.shares(least)
    sums, sizes = np.zeros((2, g, models.size + 3))
    for k, (others, group) in enumerate(zip(folds[1 : g + 1], folds[g + 1 :], strict=True)):
        w, same = others.shares(least), group.similar
        alone, rated = same.diagonal()[models], group.size * (w @ group.quality)
        sums[k] = [w @ same @ w, fixed @ same @ fixed, *alone, rated]
        sizes[k] = [group.pairs] * (2 + models.size) + [group.size]
    values = sums.sum(axis=0) / sizes.sum(axis=0)
    changes = (sums - values * sizes) / sizes.sum(axis=0) * g / math.sqrt(g - 1)
    spread, known = root_mean_square(changes.T), np.maximum(values, intervals.NO_PAIR)
    # Groups move together by the shares that they choose for others; the spread shows half of it.
    changes[:, 0] *= math.sqrt(max(2 - (spread[1] / max(spread[0], intervals.NO_PAIR)) ** 2, 1))
    score, rating = (Error(float(values[k]), changes[None, :, k], freedom=g - 1) for k in (0, -1))
    ratios = known[0] / known[2:-1]
    apart = changes[:, 2:-1] / known[2:-1] - changes[:, :1] / known[0]
    errors = ratios * root_mean_square(apart.T)
    with np.errstate(over="ignore"):  # Of errors that say nothing.
        every = [intervals.ratio(*both, g - 1) for both in zip(ratios, errors, strict=True)]
        low, high = winner_interval(every, 0.05)
        estimate = Estimate.of(score.in_logarithms().inverted())
    value, ends = float(1 / ratios[0]), (1 / high, 1 / low if low > 0 else math.inf)
    gain = Estimate(value, float(errors[0]) * value**2, ends)
    shares = dict(zip(names, fixed.tolist(), strict=True))
    return Floor(least, shares, estimate, Estimate.of(rating), gain)


def _lowest(values: np.ndarray, limits: np.ndarray) -> float:
    """The least mean of values `[m]` by shares within the limits."""
    how: Any = {"A_ub": -limits, "b_ub": np.zeros(len(limits)), "b_eq": 1.0}
    return scipy.optimize.linprog(values, A_eq=np.ones((1, values.size)), **how).fun
