"""Which of several models is more diverse, and whether the difference is real.

All models are scored under the same kernels: bandwidths chosen for each would give numbers of
different scales. What is deleted in the jackknife is deleted from all of them at once, the outputs
of some prompts say, so that what the models share cancels in a difference: the error of a
difference is the root mean square of the differences of the groups' influences.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.bandwidth import RuledBandwidth
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import _evaluate as evaluation
from condvendi_jax.inference import _jackknife as uncertainty
from condvendi_jax.inference import saturation
from condvendi_jax.inference._evaluate import Keys, RepeatedPrompts
from condvendi_jax.inference._jackknife import Deletions, Groups
from condvendi_jax.kernels import Kernel
from condvendi_jax.pairs import NAMES, Pairs
from condvendi_jax.report import _tables as tables
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Auto, Method

# Of a 95% interval, in standard errors.
_WIDTH = 2 * 1.96
_MATCHED = {
    "rows": "matched row by row",
    "prompts": "matched by equal prompts",
    "labels": "matched by the labels of their groups",
    "none": "not matched: errors of differences are those of independent samples",
}


class Difference(NamedTuple):
    """How two models differ in one score.

    Attributes:
      first, second: the models.
      value: the score of the first less that of the second, in effective numbers of modes.
      standard_error: of that difference: of the sample and, where the scores are estimated, of the
        estimates.
      p_value: of no difference, two-sided, by Student's t with one degree of freedom less than
        there are groups; 1 where the values differ by no more than rounding; NaN where there is no
        test (`Comparison.untested`, `Ranking.saturated`).
      adjusted: the same for all pairs of models at once, by Holm's step-down.
    """

    first: str
    second: str
    value: float
    standard_error: float
    p_value: float
    adjusted: float


@dataclasses.dataclass(frozen=True)
class Ranking:
    """All models by one score of one order.

    Attributes:
      score: vendi, conditional or information.
      order: the Renyi order.
      truncation: how many eigenvalues are kept, or None.
      values: the score of each model, the largest first; in the given order where saturated.
      standard_errors: of each model by itself.
      intervals: (low, high) of each model's estimate at 95%; None where exact.
      differences: of every pair of models, in the order of `values`.
      letters: models that share a letter cannot be told apart at the level; empty where
        differences are not tested.
      bandwidth_errors: how far other draws of the rule's random subsets would move each model's
        score, as a standard deviation; None where no bandwidth was drawn.
      saturated: where all values are 1, as large as they can be, or equal, up to rounding, which
        of these (`saturation.limit_of`): the models are neither ranked nor tested.
    """

    score: str
    order: float
    truncation: int | None
    values: dict[str, float]
    standard_errors: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None
    differences: tuple[Difference, ...]
    letters: dict[str, str]
    bandwidth_errors: dict[str, float] | None = None
    saturated: saturation.Limit | None = None

    @property
    def name(self) -> str:
        """The score in words: 'Conditional-Vendi', 'RKE', 'Vendi, t = 50'."""
        kind = "RKE" if self.order == 2 else "Vendi"
        prefix = "" if self.score == "vendi" else f"{self.score.capitalize()}-"
        order = "" if self.order in (1, 2) else f" of order {self.order:g}"
        cut = "" if self.truncation is None else f", t = {self.truncation:,}"
        return prefix + kind + order + cut

    def difference(self, first: str, second: str) -> Difference:
        """The difference of two models, in that order.

        Raises:
          KeyError: they were not compared.
        """
        for found in self.differences:
            if (found.first, found.second) == (first, second):
                return found
            if (found.second, found.first) == (first, second):
                return found._replace(first=first, second=second, value=-found.value)
        raise KeyError(f"{first!r} and {second!r} were not compared; there are {[*self.values]}.")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models side by side. Prints as tables.

    Attributes:
      n: the number of outputs of each model.
      dtype: the name of the dtype everything was computed in.
      bandwidths: of outputs and prompts, the same for all models, with their rule in words.
      rankings: one for each order and score.
      matched: how outputs of different models belong together: 'rows', 'prompts', 'labels' or
        'none'.
      groups: how many groups the jackknife had.
      units: what its groups are made of, in words.
      level: the family-wise rate of false differences that the letters allow.
      seed: of everything that is drawn.
      untested: why differences are not tested, or None where they are.
      repeated_prompts: how many of its prompts the kernel tells apart, by model; None where no
        model repeats its prompts.
    """

    n: dict[str, int]
    dtype: str
    bandwidths: Mapping[str, RuledBandwidth]
    rankings: tuple[Ranking, ...]
    matched: str
    groups: int
    units: str
    level: float
    seed: int
    untested: str | None = None
    repeated_prompts: dict[str, RepeatedPrompts] | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order in which they were given."""
        return tuple(self.n)

    def ranking(self, score: str, order: float) -> Ranking:
        """The models by one score.

        Raises:
          KeyError: it was not computed.
        """
        for found in self.rankings:
            if (found.score, found.order) == (score, order):
                return found
        there = ", ".join(f"({found.score!r}, {found.order:g})" for found in self.rankings)
        raise KeyError(f"({score!r}, {order:g}): computed were {there}.")

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""

        def plain(found: Ranking) -> dict[str, Any]:
            content = dataclasses.asdict(found)
            content["order"] = "inf" if math.isinf(found.order) else found.order
            content["differences"] = [difference._asdict() for difference in found.differences]
            return content

        return {
            "n": self.n,
            "dtype": self.dtype,
            "bandwidths": {name: chosen._asdict() for name, chosen in self.bandwidths.items()},
            "matched": self.matched,
            "groups": self.groups,
            "groups_of": self.units,
            "errors_cover": evaluation.ERRORS_COVER,
            "level": self.level,
            "untested": self.untested,
            "repeated_prompts": self.repeated_prompts
            and {name: found._asdict() for name, found in self.repeated_prompts.items()},
            "seed": self.seed,
            "rankings": [plain(found) for found in self.rankings],
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The heading, and a row for each model: its scores with errors and letters."""
        heading = ["model", "n", *(found.name for found in self.rankings)]
        rows = [
            [
                model,
                f"{self.n[model]:,}",
                *(
                    (
                        f"{tables.with_error(found.values[model], found.standard_errors[model])} "
                        f"{found.letters[model]}"
                    ).rstrip()
                    for found in self.rankings
                ),
            ]
            for model in self.models
        ]
        return heading, rows

    def differences_table(self) -> tuple[list[str], list[list[str]]]:
        """The heading, and a row for each score and pair of models."""
        heading = ["score", "models", "difference", "p", "adjusted p"]
        rows = [
            [
                found.name,
                f"{d.first} - {d.second}",
                tables.with_error(d.value, d.standard_error),
                *map(_p_value, (d.p_value, d.adjusted)),
            ]
            for found in self.rankings
            for d in found.differences
        ]
        return heading, rows

    def markdown(self) -> str:
        """Both tables and their notes in Markdown."""
        notes = "\n".join(f"- {note}" for note in self._notes())
        parts = (tables.markdown(*self.table()), tables.markdown(*self.differences_table()), notes)
        return "\n\n".join(parts) + "\n"

    def comma_separated(self) -> str:
        """One line for each score and model, and one for each difference, unrounded."""
        heading = ["score", "order", "truncation", "first", "second", "value", "standard_error"]
        heading += ["p_value", "adjusted_p_value"]
        rows = []

        def cell(value: float) -> str:
            return "" if math.isnan(value) else repr(value)

        for found in self.rankings:
            cut = "" if found.truncation is None else str(found.truncation)
            own = [found.score, f"{found.order:g}", cut]
            for model, value in found.values.items():
                error = found.standard_errors[model]
                rows.append([*own, model, "", cell(value), cell(error), "", ""])
            rows += [[*own, d.first, d.second, *map(cell, d[2:])] for d in found.differences]
        return tables.comma_separated(heading, rows)

    def __str__(self) -> str:
        """The tables, and below them what their numbers mean."""
        parts = [
            tables.aligned(*self.table()),
            "",
            *(f"{found.name}: {_in_words(found)}" for found in self.rankings),
            "",
            tables.aligned(*self.differences_table()),
            "",
            *self._notes(),
        ]
        return "\n".join(parts)

    def _notes(self) -> list[str]:
        tests = []
        if any(all(found.letters.values()) for found in self.rankings):
            tests.append(
                f"models that share a letter cannot be told apart at the level {self.level:g} "
                "(Holm, over all pairs of models within a score)"
            )
        if self.untested:
            tests.append(f"differences are not tested: {self.untested}")
        repeated = self.repeated_prompts or {}
        said = {name: r.describe() for name, r in repeated.items() if r.blurred}
        if len(set(said.values())) > 1:  # Each model has prompts of its own.
            said = {name: f"{name}: {words}" for name, words in said.items()}
        errors = [e for found in self.rankings for e in found.standard_errors.values()]
        covered = f"±: {evaluation.ERRORS_COVER}; {self.groups} groups of {self.units}"
        saturated = [
            f"saturated: {found.name} is not tested; "
            + ("" if found.saturated == "equal" else "it is ")
            + saturation.describe(found.score, found.saturated)
            for found in self.rankings
            if found.saturated
        ]
        return [
            *evaluation.describe_bandwidths(self.bandwidths),
            *saturated,
            *dict.fromkeys(said.values()),
            *self._bandwidth_note(),
            *([] if all(map(math.isnan, errors)) else [covered]),
            *tests,
            f"outputs of different models are {_MATCHED[self.matched]}",
        ]

    def _bandwidth_note(self) -> list[str]:
        """Where the draw of the rule's subsets matters most."""
        places = [
            (noise, found.standard_errors[model], f"{found.name} of {model}")
            for found in self.rankings
            for model, noise in (found.bandwidth_errors or {}).items()
        ]
        if not places:
            return []
        # Beside the standard errors where there are any.
        noise, error, place = max(places, key=lambda p: p[0] / p[1] if p[1] > 0 else 0.0)
        beside = f", beside a standard error of {error:.2g}" if error > 0 else ""
        return [
            "choice of bandwidth: other draws of the rule's subsets move every score, most of all "
            f"{place}, by ± {noise:.2g}{beside}"
        ]


def _p_value(value: float) -> str:
    """A p-value for a table: small ones hang on the tails of Student's t, which nobody knows."""
    if math.isnan(value):
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.2g}"


def _in_words(found: Ranking) -> str:
    """The ranking in a line: 'A > B >= C', where >= joins neighbours that no test tells apart."""
    models = list(found.values)
    if found.saturated:
        return ", ".join(models) + " (saturated; not ranked)"
    if not all(found.letters.values()):
        return ", ".join(models) + " (in descending order; not tested)"
    if len(set(found.letters.values())) == 1 and len(found.letters[models[0]]) == 1:
        return ", ".join(models) + " (no significant difference)"
    words = models[0]
    for one, two in itertools.pairwise(models):
        apart = not set(found.letters[one]) & set(found.letters[two])
        words += (" > " if apart else " >= ") + two
    return words + (" (>=: not told apart)" if ">=" in words else "")


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
    groups: int | ArrayLike = uncertainty.DEFAULT_GROUPS,
    level: float = 0.05,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Comparison:
    """Scores of several models under one bandwidth, and the paired difference of every two.

    Args:
      models: the outputs of each by name, embeddings `[n, d_x]` of one encoder.
      prompts: embeddings `[n, d_t]` that all models share row by row; or those of each model by
        name, whose rows are matched where they are equal; or None to compare outputs alone. Those,
        and models without a prompt in common, are not matched.
      output_kernel: a `Gaussian` whose bandwidth follows the rule on the pooled outputs, as many of
        every model, where None.
      prompt_kernel: the same for the prompts.
      rule: 'variance' (CV), 'std' (RKE) or 'median': see `bandwidth_by_rule`.
      orders: Renyi orders in (0, inf].
      truncation: how many eigenvalues every entropy keeps; all where None.
      method: how eigenvalues are computed; `Auto` with a key of the seed where None.
      groups: of the jackknife: how many; or the label `[n]` of every row, where all models have the
        same rows. Rows with equal prompts stay together, within models and across them.
      level: the family-wise rate of false differences, within a score, that the letters allow.
      seed: of the rule's subsets, the groups and the probes of an estimate.
      progress: called with a few words before each step.

    Returns:
      A `Comparison`; `print` shows it as tables.

    Raises:
      TypeError, ValueError: there are fewer than two models, their arrays do not fit together, a
        model has no row in some group, or as `evaluate`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.normal(size=(300, 2)).astype(np.float32)
      >>> few, many = (prompts + s * rng.normal(size=(300, 2)).astype(np.float32) for s in (0.2, 1))
      >>> found = cv.compare({"few": few, "many": many}, prompts, rule="median", orders=[2])
      >>> list(found.ranking("conditional", 2).values), found.ranking("conditional", 2).letters
      (['many', 'few'], {'many': 'a', 'few': 'b'})
    """
    entropies = evaluation.check_orders(orders, truncation)
    keys = Keys(seed)
    method = methods.check_method(Auto(keys.probes) if method is None else method)
    if not isinstance(level, (int, float)) or not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, received {level!r}.")
    if prompts is None and prompt_kernel is not None:
        raise ValueError("prompts: expected beside prompt_kernel, received None.")
    arrays = _check_models(models, prompts)
    numbers = {name: found["outputs"].shape[0] for name, found in arrays.items()}
    if len(set(numbers.values())) > 1:
        validation.warn(
            f"models: n differs, {numbers}; scores grow with n, those of order 1 most: compare "
            "equal numbers."
        )
    given = dict(zip(NAMES, (output_kernel, prompt_kernel), strict=True))
    kernels, bandwidths = evaluation.choose_kernels(
        _pooled(arrays, prompts, keys.rule), given, rule, keys.rule, progress
    )
    points = {name: _points(found, kernels, name) for name, found in arrays.items()}
    first = next(iter(points.values()))
    chosen, matched = _groups(arrays, not isinstance(prompts, Mapping), groups, keys.groups)
    names = ("vendi",) if prompts is None else PerScore._fields
    count = next(iter(chosen.values())).count
    if not method.approximates:
        _warn_of_many_spectra(entropies, numbers, count)
    untested = None
    if count < uncertainty.FEWEST_TESTED:
        untested = (
            f"{count} groups of {next(iter(chosen.values())).units} are too few, at least "
            f"{uncertainty.FEWEST_TESTED} are needed"
        )
    relative_errors = [chosen.relative_error for chosen in bandwidths.values()]
    rankings = []
    for entropy in entropies:
        fitted = entropy.clamped(min(numbers.values()))
        found, noise = {}, {}
        for name, own in points.items():
            words = f"order {entropy.order:g} of {name}"
            progress(words)
            found[name] = uncertainty.delete_groups(
                own,
                fitted,
                chosen[name],
                method=method,
                progress=evaluation.counting(progress, words),
            )
            progress(f"{words}, noise of the bandwidth")
            noise[name] = uncertainty.bandwidth_errors(
                own, fitted, chosen[name], found[name].whole, relative_errors, method=method
            )
        rankings += _rankings(
            fitted, found, noise, names, level, numbers, first.dtype, tested=untested is None
        )
    if isinstance(prompts, Mapping):
        repeated = {name: evaluation.repeated_prompts(own) for name, own in points.items()}
    else:
        repeated = dict.fromkeys(points, evaluation.repeated_prompts(first))
    if untested is None and any(
        not all(found.letters.values()) and not found.saturated for found in rankings
    ):
        untested = (
            "without one of the groups all rows have the same prompt, for which conditional and "
            "information say nothing"
        )
    units = dict.fromkeys(own.units for own in chosen.values())
    return Comparison(
        n=numbers,
        dtype=first.dtype.name,
        bandwidths=bandwidths,
        rankings=tuple(rankings),
        matched=matched,
        groups=count,
        units=" or ".join(units),
        level=float(level),
        seed=seed,
        untested=untested,
        repeated_prompts={n: r for n, r in repeated.items() if r is not None} or None,
    )


def _warn_of_many_spectra(
    entropies: Sequence[Entropy], numbers: Mapping[str, int], groups: int
) -> None:
    """Says beforehand what takes long, and what does not."""
    largest = max(numbers.values())
    spectral = [entropy.order for entropy in entropies if entropy.needs_spectrum]
    if spectral and largest > evaluation.ERRORS_UP_TO:
        validation.warn(
            f"orders: {', '.join(f'{order:g}' for order in spectral)} of n = {largest:,} take "
            f"{len(numbers) * (groups + 1)} sets of spectra each, for their errors; orders=[2] "
            "takes one pass for each model."
        )


def _check_models(
    models: Mapping[str, ArrayLike], prompts: ArrayLike | Mapping[str, ArrayLike] | None
) -> dict[str, dict[str, Any]]:
    """The arrays of each model by name and role, of shapes that fit together."""
    if not isinstance(models, Mapping) or len(models) < 2:
        raise ValueError("models: expected the outputs of at least two models by name.")
    for name in models:
        if not isinstance(name, str):
            raise TypeError(f"models: expected names that are strings, received {name!r}.")
    if isinstance(prompts, Mapping) and set(prompts) != set(models):
        raise ValueError(
            f"prompts: expected those of {sorted(models)}, received those of {sorted(prompts)}."
        )
    found = {}
    for name, outputs in models.items():
        own = prompts[name] if isinstance(prompts, Mapping) else prompts
        try:
            found[name] = evaluation.check_named(outputs, own)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from error
    for role in NAMES[: 1 if prompts is None else 2]:
        widths = {name: arrays[role].shape[1] for name, arrays in found.items()}
        if len(set(widths.values())) > 1:
            raise ValueError(f"{role}: expected one dimension for all models, received {widths}.")
    return found


def _pooled(
    arrays: Mapping[str, Mapping[str, Any]], prompts: Any, key: jax.Array
) -> dict[str, Any]:
    """As many rows of every model, drawn at random where it has more; prompts once if shared."""
    fewest = min(found["outputs"].shape[0] for found in arrays.values())
    pooled: dict[str, list[np.ndarray]] = {}
    for index, found in enumerate(arrays.values()):
        n = found["outputs"].shape[0]
        rows = np.arange(n)
        if n > fewest:
            drawn = jax.random.permutation(jax.random.fold_in(key, 100 + index), n)
            rows = np.sort(np.asarray(drawn)[:fewest])
        for role, array in found.items():
            pooled.setdefault(role, []).append(np.asarray(array)[rows])
    if prompts is not None and not isinstance(prompts, Mapping):
        pooled["prompts"] = pooled["prompts"][:1]
    return {role: np.concatenate(parts) for role, parts in pooled.items()}


def _points(arrays: Mapping[str, Any], kernels: Mapping[str, Kernel], name: str) -> Pairs:
    try:
        return Pairs(
            arrays["outputs"],
            arrays.get("prompts"),
            output_kernel=kernels["outputs"],
            prompt_kernel=kernels.get("prompts"),
        ).gathered()
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _groups(
    arrays: Mapping[str, Mapping[str, Any]], shared: bool, groups: int | ArrayLike, key: jax.Array
) -> tuple[dict[str, Groups], str]:
    """The groups of each model, the same units in each, and how the models are matched.

    Prompts are compared as they were given: a cast may move those of each model by another row.
    """
    numbers = {name: found["outputs"].shape[0] for name, found in arrays.items()}
    if not isinstance(groups, (int, np.integer)):
        if len(set(numbers.values())) > 1:
            raise ValueError(f"groups: labels need models of the same rows, received n: {numbers}.")
        given = uncertainty.group_rows(next(iter(numbers.values())), groups)
        return dict.fromkeys(arrays, given), "labels"
    count = min(validation.check_count(groups, name="groups", minimum=2), *numbers.values())
    if min(numbers.values()) < 3:
        raise ValueError(f"models: expected three outputs of each or more, received {numbers}.")
    prompts = {name: np.asarray(own["prompts"]) for name, own in arrays.items() if "prompts" in own}
    if not prompts:
        return _apart(numbers, count, key), "none"
    stacked = np.concatenate([*prompts.values()])
    kinds, of_row = validation.distinct_rows(stacked)
    ends = np.cumsum([*numbers.values()])
    of_model = dict(zip(numbers, np.split(of_row, ends[:-1]), strict=True))
    own_kinds = {name: np.unique(found).size for name, found in of_model.items()}
    if kinds == 1 or kinds == sum(own_kinds.values()):
        return _apart(numbers, count, key, of_model), "none"
    together = uncertainty.group_rows(len(stacked), min(count, kinds), key=key, prompts=stacked)
    units = "rows" if all(own_kinds[name] == n for name, n in numbers.items()) else together.units
    found = {}
    for name, rows in zip(numbers, np.split(together.membership, ends[:-1]), strict=True):
        if np.unique(rows).size < together.count:
            raise ValueError(
                f"groups: {name} has no output in some of {together.count} groups of prompts; give "
                "fewer groups, or prompts that the models share."
            )
        found[name] = Groups(rows, units)
    return found, "rows" if shared else "prompts"


def _apart(
    numbers: Mapping[str, int],
    count: int,
    key: jax.Array,
    kinds: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Groups]:
    """As many groups of every model, which have nothing to do with those of another."""
    several = [np.unique(own).size for own in (kinds or {}).values()]
    count = min([count, *(size for size in several if size > 1)])
    return {
        name: uncertainty.group_rows(
            n,
            count,
            key=jax.random.fold_in(key, index),
            prompts=None if kinds is None else kinds[name][:, None],
        )
        for index, (name, n) in enumerate(numbers.items())
    }


def _rankings(
    entropy: Entropy,
    deletions: Mapping[str, Deletions],
    noise: Mapping[str, PerScore | None],
    scores: Sequence[str],
    level: float,
    numbers: Mapping[str, int],
    dtype: np.dtype,
    *,
    tested: bool,
) -> list[Ranking]:
    """All models by each score of one order."""
    influences = {name: found.influences() for name, found in deletions.items()}
    rankings = []
    for score in scores:
        values = {name: float(getattr(found.whole, score)) for name, found in deletions.items()}
        n = [numbers[name] for name in values]
        limit = saturation.limit_of([*values.values()], n, entropy, dtype)
        if limit is None:  # Else the order would be that of rounding.
            values = dict(sorted(values.items(), key=lambda item: -item[1]))
        of_groups = {
            name: np.asarray(getattr(influences[name], score), np.float64) for name in values
        }
        intervals = {
            name: getattr(found.intervals, score)
            for name, found in deletions.items()
            if found.intervals is not None
        }
        differences = _differences(
            values,
            of_groups,
            intervals,
            tested and limit is None,
            rounding=saturation.rounding(entropy, dtype),
        )
        letters = dict.fromkeys(values, "")
        if not any(math.isnan(d.p_value) for d in differences):
            apart = {frozenset(d[:2]) for d in differences if d.adjusted <= level}
            letters = _letters(list(values), apart)
        moved = {name: getattr(noise[name], score) for name in values if noise[name] is not None}
        rankings.append(
            Ranking(
                score=score,
                order=entropy.order,
                truncation=entropy.truncation,
                values=values,
                standard_errors={name: _root_mean_square(e) for name, e in of_groups.items()},
                intervals=intervals or None,
                differences=differences,
                letters=letters,
                bandwidth_errors=moved or None,
                saturated=limit,
            )
        )
    return rankings


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _differences(
    values: Mapping[str, float],
    influences: Mapping[str, np.ndarray],
    intervals: Mapping[str, tuple[float, float]],
    tested: bool = True,
    *,
    rounding: float = 0.0,
) -> tuple[Difference, ...]:
    """Every pair of models, with p-values for each pair and for all of them at once, if `tested`.

    Values that differ by no more than `rounding`, relative to the larger, have p = 1.

    What an estimate is off by is off in all deletions alike, so that no jackknife sees it: it is
    added to the error, as wide as the intervals say.
    """
    from scipy.special import stdtr  # Imported where it is used: it is slow to import.

    found = []
    for one, two in itertools.combinations(values, 2):
        value = values[one] - values[two]
        estimated = [np.subtract(*intervals[name]) / _WIDTH for name in (one, two) if intervals]
        error = math.hypot(_root_mean_square(influences[one] - influences[two]), *estimated)
        freedom = influences[one].size - 1
        if not tested or math.isnan(error):
            p_value = math.nan
        elif abs(value) <= rounding * max(abs(values[one]), abs(values[two])):
            p_value = 1.0
        else:
            p_value = float(2 * stdtr(freedom, -abs(value) / error)) if error > 0 else 0.0
        found.append(Difference(one, two, value, error, p_value, math.nan))
    if any(math.isnan(difference.p_value) for difference in found):
        return tuple(found)
    adjusted = holm([difference.p_value for difference in found])
    return tuple(d._replace(adjusted=p) for d, p in zip(found, adjusted, strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, by Holm's step-down (1979).

    The k-th smallest of m is multiplied by m - k + 1; none may be less than a smaller one's.

    Args:
      p_values: of m hypotheses. Those that are NaN were not tested: they stay NaN and do not count.

    Returns:
      The adjusted ones, in the same order: rejecting those up to a level keeps the probability of
      any false rejection at that level, whatever the dependence.

    Examples:
      >>> import condvendi_jax as cv
      >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
      [0.03, 0.06, 0.06]
    """
    tested = int(np.sum(~np.isnan(p_values)))
    adjusted = np.full(len(p_values), np.nan)
    largest = 0.0
    for rank, index in enumerate(np.argsort(p_values)[:tested].tolist()):  # NaN comes last.
        largest = max(largest, min(1.0, (tested - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def _letters(models: Sequence[str], apart: set[frozenset[str]]) -> dict[str, str]:
    """A compact letter display (Piepho, 2004): models share a letter unless a test parts them."""
    columns = [set(models)]
    # In the order of the models: in another the columns multiply before they grow fewer.
    for one, two in ((one, two) for k, two in enumerate(models) for one in models[:k]):
        pair = {one, two}
        if frozenset(pair) not in apart:
            continue
        for column in [column for column in columns if pair <= column]:
            columns.remove(column)
            columns += [column - {one}, column - {two}]
        columns = [
            column
            for index, column in enumerate(columns)
            if not any(
                column < other or (column == other and index > place)
                for place, other in enumerate(columns)
            )
        ]
    columns.sort(key=lambda column: [model not in column for model in models])
    return {
        model: "".join(_letter(index) for index, column in enumerate(columns) if model in column)
        for model in models
    }


def _letter(index: int) -> str:
    """One character for each index: a to z, A to Z, then the accented letters of Unicode."""
    letters = string.ascii_letters
    return letters[index] if index < len(letters) else chr(0x100 + index - len(letters))
