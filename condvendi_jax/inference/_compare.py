"""Which of several models is more diverse, and whether the difference is real.

All models are scored under the same kernels: bandwidths chosen for each would give numbers of
different scales. What models share, such as their prompts, moves all their scores alike and cancels
in a difference: its error is the root mean square of the differences of the influences of each
prompt, or of each other group of rows.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import _between as between_models
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import _profile as profiles
from condvendi_jax.inference import saturation
from condvendi_jax.inference._infinitesimal import root_mean_square
from condvendi_jax.inference._plan import Designs, Plan
from condvendi_jax.inference._results import Comparison, Difference, Ranking, ScoredOrder
from condvendi_jax.kernels import Kernel
from condvendi_jax.pairs import Labels, Pairs
from condvendi_jax.spectra._methods import Method

# The width of a 95% interval of a normal variable, in standard errors.
_WIDTH = 2 * 1.96
_NO_ERRORS = "standard errors were not computed of every order"
_ONE_PROMPT = (
    "without one of the groups all rows have the same prompt, for which conditional and "
    "information say nothing"
)


@validation.outside_transformations
def compare(
    models: Mapping[str, ArrayLike],
    prompts: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    rule: str = "variance",
    orders: Sequence[float] = (1, 2),
    truncation: int | None = None,
    method: Method | None = None,
    errors: bool = True,
    prompt_ids: Labels | Mapping[str, Labels] | None = None,
    groups: int | ArrayLike | None = None,
    weights: ArrayLike | Mapping[str, ArrayLike] | None = None,
    level: float = 0.05,
    profile: bool | None = None,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Comparison:
    """Scores of several models under one bandwidth, and the paired difference of every two.

    Args:
      models: the outputs of each by name, embeddings `[n, d_x]` of one encoder.
      prompts: embeddings `[n, d_t]` that all models share row by row; or those of each model by
        name, whose rows are matched where they are equal; or None to compare outputs alone.
        Outputs alone, and models without a prompt in common, are not matched.
      output_kernel, prompt_kernel, rule, orders, truncation, method, seed, progress: as `evaluate`.
        A rule is applied to the outputs of all models together, as many rows of each.
      errors: as `evaluate`; differences are tested only where there are errors of all models.
      prompt_ids: which prompts are the same, within models and across them: a label, such as the
        text, for each row `[n]` of all models, or those of each model by its name.
      groups: as `evaluate`; labels need models of the same rows. Rows with equal prompts stay
        together, within models and across them.
      weights: as `Pairs`: `[n]` for all models, or those of each model by its name.
      level: the family-wise rate of false differences, within a score, that the letters allow.
      profile: whether to say over which bandwidths the order of the models holds, at order 2; as
        `profile` does, over both bandwidths. Where None, up to 10,000 rows of all models together.

    Returns:
      A `Comparison`; `print` shows it as tables. Of one model it is its evaluation, ranked alone.

    Raises:
      TypeError, ValueError: the arrays of the models do not fit together, a model has no row in
        some group, a profile is asked for where there is none, or as `evaluate`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.normal(size=(300, 2)).astype(np.float32)
      >>> few, many = (prompts + s * rng.normal(size=(300, 2)).astype(np.float32) for s in (0.2, 1))
      >>> result = cv.compare({"few": few, "many": many}, prompts, rule="median", orders=[2])
      >>> list(result.ranking("conditional", 2).values), result.ranking("conditional", 2).letters
      (['many', 'few'], {'many': 'a', 'few': 'b'})
    """
    plan = Plan(orders, truncation, method, errors, groups, seed, progress)
    level = profiles.check_level(level)
    pairs = Pairs.of_models(
        models,
        prompts,
        output_kernel=output_kernel,
        prompt_kernel=prompt_kernel,
        rule=rule,
        key=plan.keys.rule,
        prompt_ids=prompt_ids,
        groups=plan.labels,
        weights=weights,
        progress=progress,
    )
    given = pairs
    pairs = {name: own.supported() for name, own in pairs.items()}
    designs = check_numbers(pairs, plan)
    shared = not isinstance(prompts, Mapping)
    evaluations, matched = plan.evaluate(pairs, shared=shared)
    first, untested = next(iter(evaluations.values())), None
    computed = [o.errors_by for e in evaluations.values() for o in e.orders if o.errors_by]
    fewest = min(computed, key=lambda by: by.groups, default=None)
    if fewest and fewest.groups < jackknife.FEWEST_TESTED and len(evaluations) > 1:
        untested = (
            f"{fewest.groups} groups of {fewest.units} are too few, at least "
            f"{jackknife.FEWEST_TESTED} are needed"
        )
    by_order = zip(*(evaluation.orders for evaluation in evaluations.values()), strict=True)
    options: dict[str, Any] = {"level": level, "paired": matched != "none", "designs": designs}
    options["tested"] = untested is None
    rankings = tuple(
        _ranking(score, dict(zip(evaluations, of_models, strict=True)), **options)
        for of_models in by_order
        for score in first.names
    )
    some = len(pairs) == 1 or any(designs.equal(*two) for two in itertools.combinations(pairs, 2))
    testable = untested is None and some
    if untested is None and any(not r.tested and not r.saturated for r in rankings):
        missing = any(o.influences is None for e in evaluations.values() for o in e.orders)
        withheld = [by.reason for by in computed if by.withheld]
        other = designs.differ or (withheld[0] if withheld else _ONE_PROMPT)
        untested = _NO_ERRORS if missing else other
    between = between_models.of_plan(pairs, plan, evaluations, shared=shared)
    over = None
    if profile or (profile is None and testable and untested in (None, designs.differ)):
        asked = bool(profile)
        over = profiles.of_plan(pairs, plan, designs, level=level, shared=shared, asked=asked)
    return Comparison(evaluations, rankings, matched, level, untested, between, over, given)


def check_numbers(models: Mapping[str, Pairs], plan: Plan) -> Designs:
    """The designs of models, with a warning where they differ; refuses models of too few rows."""
    numbers = {name: pairs.total for name, pairs in models.items()}
    if plan.errors and min(numbers.values()) < jackknife.FEWEST_ROWS:
        raise ValueError(f"models: expected three outputs of each or more, received {numbers}.")
    return Designs.of(models)


def _ranking(
    score: str,
    scored: Mapping[str, ScoredOrder],
    *,
    level: float,
    tested: bool,
    paired: bool,
    designs: Designs,
) -> Ranking:
    """All models by one score of one order."""
    first = next(iter(scored.values())).decomposition
    entropy = Entropy(order=first.order, truncation=first.truncation)
    values = {name: float(getattr(o.decomposition.scores, score)) for name, o in scored.items()}
    n = [o.largest for o in scored.values()]
    limit = saturation.limit_of([*values.values()], n, entropy, first.dtype)
    if limit is None:  # Otherwise rounding would decide on the order.
        values = dict(sorted(values.items(), key=lambda item: -item[1]))

    def of_each(results: Callable[[ScoredOrder], PerScore | None]) -> dict[str, Any]:
        """This score in results, of the models that have them, in the order of the values."""
        found = {name: results(scored[name]) for name in values}
        return {name: getattr(own, score) for name, own in found.items() if own is not None}

    errors = of_each(lambda o: o.standard_errors)
    influences = of_each(lambda o: o.influences)
    groups = [o.errors_by.groups for o in scored.values() if o.errors_by]
    intervals = of_each(lambda o: o.decomposition.estimation and o.decomposition.intervals)
    rounding = saturation.rounding(entropy, first.dtype)
    differences = _differences(
        values,
        influences,
        intervals,
        tested=designs.equal if tested and limit is None else lambda *_: False,
        rounding=rounding,
        paired=paired,
        freedom=min(groups, default=2) - 1,
    )
    letters = dict.fromkeys(values, "")
    if not any(math.isnan(d.p_value) for d in differences) and limit is None:
        apart = {frozenset(d[:2]) for d in differences if d.adjusted <= level}
        letters = letter_display(list(values), apart)
    return Ranking(
        score=score,
        order=first.order,
        truncation=first.truncation,
        values=values,
        standard_errors={name: float(errors.get(name, math.nan)) for name in values},
        intervals=intervals or None,
        differences=differences,
        letters=letters,
        bandwidth_errors=of_each(lambda o: o.bandwidth_errors) or None,
        saturated=limit,
    )


def _differences(
    values: Mapping[str, float],
    influences: Mapping[str, np.ndarray],
    intervals: Mapping[str, tuple[float, float]],
    *,
    freedom: int,
    tested: Callable[[str, str], bool] = lambda *_: True,
    rounding: float = 0.0,
    paired: bool = True,
) -> tuple[Difference, ...]:
    """Every pair of models, with p-values for each and for all at once of those that are `tested`.

    Values that differ by no more than `rounding`, relative to the larger, have p = 1. The error of
    an estimate is added, by the width of the intervals. The influences of `paired` models are of
    the same groups; `freedom` is the number of degrees of freedom of their errors.
    """
    from scipy.special import stdtr  # Imported where it is used: it is slow to import.

    found = []
    for one, two in itertools.combinations(values, 2):
        value = values[one] - values[two]
        estimated = [np.subtract(*intervals[name]) / _WIDTH for name in (one, two) if intervals]
        error = math.nan
        if influences:
            error = math.hypot(_error(influences[one], influences[two], paired), *estimated)
        if not tested(one, two) or math.isnan(error):
            p_value = math.nan
        elif abs(value) <= rounding * max(abs(values[one]), abs(values[two])):
            p_value = 1.0
        else:
            p_value = float(2 * stdtr(freedom, -abs(value) / error)) if error > 0 else 0.0
        found.append(Difference(one, two, value, error, p_value, math.nan))
    adjusted = holm([difference.p_value for difference in found])
    return tuple(d._replace(adjusted=p) for d, p in zip(found, adjusted, strict=True))


def _error(one: np.ndarray, two: np.ndarray, paired: bool) -> float:
    """The error of a difference from the influences `[replicates, g]` of two models."""
    if paired:
        several = [len(of) for of in (one, two) if len(of) > 1]
        count = min(several, default=1)
        return root_mean_square(one[:count] - two[:count])
    return math.hypot(root_mean_square(one), root_mean_square(two))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, by Holm's step-down (1979).

    The k-th smallest of m is multiplied by m - k + 1; none may be less than a smaller one's.
    Rejecting those up to a level keeps the probability of any false rejection at that level,
    whatever the dependence. Those that are NaN were not tested: they stay NaN and do not count.
    """
    tested = int(np.sum(~np.isnan(p_values)))
    adjusted = np.full(len(p_values), np.nan)
    largest = 0.0
    for rank, index in enumerate(np.argsort(p_values)[:tested].tolist()):  # NaN comes last.
        largest = max(largest, min(1.0, (tested - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def letter_display(models: Sequence[str], apart: set[frozenset[str]]) -> dict[str, str]:
    """A compact letter display (Piepho, 2004): models share a letter unless a test parts them."""
    columns = [set(models)]
    # In another order than that of the models there would be far more columns on the way.
    for one, two in ((one, two) for k, two in enumerate(models) for one in models[:k]):
        pair = {one, two}
        if frozenset(pair) not in apart:
            continue
        for column in [column for column in columns if pair <= column]:
            columns.remove(column)
            columns += [column - {one}, column - {two}]
        distinct = list(map(set, dict.fromkeys(map(frozenset, columns))))
        columns = [own for own in distinct if not any(own < other for other in distinct)]
    columns.sort(key=lambda column: [model not in column for model in models])
    # After a to z and A to Z, the accented letters of Unicode.
    letters = string.ascii_letters + "".join(map(chr, range(0x100, 0x100 + len(columns))))
    lettered = list(zip(letters, columns, strict=False))
    return {model: "".join(x for x, column in lettered if model in column) for model in models}
