"""How often intervals hold, and tests err, where some prompts have one answer only."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.optimize import brentq

from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.influences import Error, root_mean_square
from experiments import lab
from experiments.calibration import simulations
from experiments.calibration.simulations import SCORES
from experiments.lab import figures, style, tables

ZIPF = "Zipf"
# The share of prompts that collapse, by population; the last has unequal answers.
COLLAPSED = {"2%": 0.02, "5%": 0.05, "20%": 0.2, ZIPF: ZIPF}
TESTS = ("interval", "Student's t")
OWN, MATCHED, UNLIKE = "own prompts", "matched", "matched, unlike"
PROMPTS = (20, 50, 200)
# Models of one score, and their numbers of prompts.
ALIKE = (
    *((OWN, one, two) for one, two in ((10, 200), (20, 200), (100, 100))),
    *((kind, count, count) for kind in (MATCHED, UNLIKE) for count in PROMPTS),
)
APART = tuple(itertools.product((MATCHED, OWN), PROMPTS))  # Models at the margin.
GOOD = ("whole prompts", "single outputs")  # What is good, or bad, in a share of the cases.
_ANSWERS, _FEWER, _ZIPF = 50, 30, 20  # Of most models, of less diverse ones, and unequal ones.
_RATIO = 1.22  # Of the scores of two models of unequal answers.
_LEVEL = 0.05
# In the heads of tables.
_SHORT = ((OWN, "own"), (UNLIKE, "unlike"), (GOOD[0], "prompts"), (GOOD[1], "outputs"))


class Intervals(lab.Study):
    """How often are intervals and tests wrong if some prompts always get one answer?"""

    control = "The models of a pair have one score, so that every stated difference is false."
    grows = ("answers", "prompts")
    data = None
    tolerance = 0.01  # Rounding may decide on a draw.

    draws: int = lab.flag(2000, "Samples of models and of shares.", at_least=1)
    evaluations: int = lab.flag(600, "Samples of scores of all outputs.", at_least=1)

    def prepare(self, load, seed):
        return self.ready()

    def axes(self):
        return {"population": tuple(COLLAPSED), "answers": (5, 10)}

    def compute(self, state, context, *, population, answers):
        """Shares of draws: `false` differences; `equal` at the margin; `found`; intervals hold."""
        rng, law = np.random.default_rng(int(jax.random.bits(context.key))), COLLAPSED[population]

        def draw(count: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
            return drawn(rng, (self.draws, count, answers), **{"law": law, **options})

        context.say("models")
        false = [told(*_alike(rng, draw, law, *models)) for models in ALIKE]
        equal = [told(*_apart(draw, law, *models)) for models in APART]
        found, other = [], {"flatter": _flatter()} if law == ZIPF else {"answers": _FEWER}
        for count in PROMPTS:  # Both collapse on the same prompts and differ on the others.
            first, prompts = draw(count)
            found.append(told(first, draw(count, prompts=prompts, **other)[0], matched=True))
        context.say("scores")
        held, similar = [], similarities(law)
        for count in PROMPTS:
            samples = drawn(rng, (self.evaluations, count, answers), law=law)[0].astype(np.float32)
            prompts = np.repeat(np.arange(count), answers)
            of_all = [simulations.holds((of.reshape(-1, 1), prompts), *similar) for of in samples]
            held.append(np.mean(of_all, axis=0))
        shares = [
            [shares_held(rng, (self.draws, count, answers), law, good) for count in PROMPTS]
            for good in GOOD
        ]
        variables = {
            "false": (("alike", "test"), false),
            "equal": (("margin", "test"), equal),
            "found": (("prompts", "test"), found),
            "held": (("prompts", "score"), held),
            "shares": (("good", "prompts", "end"), shares),
        }
        labels = {"alike": _named(ALIKE), "margin": _named(APART), "test": list(TESTS)}
        labels |= {"prompts": list(PROMPTS), "score": list(SCORES), "good": list(GOOD)}
        return xr.Dataset(variables, labels)

    def tables(self, run):
        """All shares in percent."""
        yield from map(tables.grid_of, tables_of(run.found).values())

    @classmethod
    def figures(cls, runs):
        run, false = runs[-1], 100 * runs[-1].found.false
        most = false.max(("population", "answers", "alike")).values
        false = false.assign_coords(answers=[f"{k} answers" for k in false.answers.values])
        drawn = figures.dots(
            false.to_dataset(name="value"), row="alike", hue="test", column="answers",
            x_label="false differences, %", headline="False differences: up to "
            f"{most[0]:.1f}% by {TESTS[0]}s, {most[1]:.1f}% by {TESTS[1]}",
            each=lambda panel, _: panel.axvline(100 * _LEVEL, color=style.BLACK, linestyle=":"),
        )  # fmt: skip
        words = f"{run.study.draws:,} pairs of models of one score each; four populations a row. "
        return {"intervals": figures.caption(drawn, run, n=f"{words}Dotted: the level of 5%")}

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        tested = {"false": run.found.false, "equal": run.found.equal, "power": run.found.found}
        by_interval = {name: of.sel(test=TESTS[0]) for name, of in tested.items()}
        by_student = {f"{name}_t": of.sel(test=TESTS[1]) for name, of in tested.items()}
        return {**tables_of(run.found), **by_interval, **by_student}


def drawn(
    rng: np.random.Generator,
    size: tuple[int, int, int],
    *,
    law: Any,
    prompts: np.ndarray | None = None,
    answers: int = _ANSWERS,
    flatter: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Answers `[draws, prompts, k]`, and whether prompts collapse, or how unequal answers are.

    A share of the prompts always has the answer 0, the others any of `answers`. Unequal answers
    follow Zipf's law, with an exponent that is uniform in [0, 3] over prompts, times `flatter`.
    """
    if law == ZIPF:
        kinds = rng.uniform(0, 3, size[:2]) if prompts is None else prompts
        below, found = np.cumsum(zipf(flatter * kinds), axis=-1), np.zeros(size, np.int16)
        places = rng.random(size)
        for answer in range(_ZIPF - 1):
            found += places > below[..., answer, None]
        return found, kinds
    kinds = rng.random(size[:2]) < law if prompts is None else prompts
    found = rng.integers(answers, size=size, dtype=np.int16)
    return np.where(kinds[..., None], np.int16(0), found), kinds


def zipf(exponents: np.ndarray) -> np.ndarray:
    """The probabilities of 20 answers, `[..., 20]`."""
    shares = np.arange(1.0, _ZIPF + 1) ** -exponents[..., None]
    return shares / shares.sum(axis=-1, keepdims=True)


def similarities(law: Any, answers: int = _ANSWERS, flatter: float = 1.0) -> tuple[float, float]:
    """How often two answers to a prompt are the same, and two to different prompts."""
    if law == ZIPF:
        shares = zipf(3 * flatter * (np.arange(4000) + 0.5) / 4000)
        return float(np.mean(np.sum(shares**2, axis=1))), float(np.sum(shares.mean(axis=0) ** 2))
    other = (1 - law) / answers
    return law + other, (law + other) ** 2 + (answers - 1) * other**2


@functools.cache
def _flatter() -> float:
    """What multiplies Zipf's exponents so that the score is `_RATIO` times as large."""
    least, root = similarities(ZIPF)[0] / _RATIO, brentq
    found: Any = root(lambda times: similarities(ZIPF, flatter=times)[0] - least, 0.5, 1.0)
    return found


def _of_one_law(rng: np.random.Generator, size: tuple[int, ...], similarity: float) -> np.ndarray:
    """Answers of one law for all prompts: equally likely ones and a rarer one."""
    m = int(np.ceil(1 / similarity - 1e-9))
    rarer = (1 - np.sqrt(1 - m * (1 - similarity * (m - 1)))) / m
    return np.searchsorted(np.arange(1, m) * (1 - rarer) / (m - 1), rng.random(size))


def _alike(rng: Any, draw: Any, law: Any, kind: str, one: int, two: int) -> tuple[Any, ...]:
    """Two models of one score, and whether they are matched."""
    first, prompts = draw(one)
    if kind == UNLIKE:
        return first, _of_one_law(rng, first.shape, similarities(law)[0]), True
    matched = kind == MATCHED
    return first, draw(two, prompts=prompts if matched else None)[0], matched


def _apart(draw: Any, law: Any, kind: str, count: int) -> tuple[Any, ...]:
    """Two models, whether they are matched, and the ratio of their scores."""
    matched = kind == MATCHED
    if law == ZIPF:
        first, prompts = draw(count)
        shared = prompts if matched else None
        return first, draw(count, prompts=shared, flatter=_flatter())[0], matched, _RATIO
    ratio = similarities(law, _ZIPF)[0] * _ZIPF
    first, second = (draw(count, law=share, answers=_ZIPF)[0] for share in (law, 0.0))
    return first, second, matched, ratio


def told(one: np.ndarray, two: np.ndarray, matched: bool, margin: float = 0.0) -> list[float]:
    """By test, how often models of answers `[draws, P, k]` differ or, at a margin, are equal.

    They differ if the interval of the difference excludes 0, and are equal if each score is less
    than `margin` times the other, by tests of one side.
    """
    found, both = [], [same_answers(one), same_answers(two)]
    for test in TESTS:
        statements = []
        for a, b in zip(*([error_of(v, test).inverted() for v in of] for of in both), strict=True):
            if margin:
                sides = (_difference(x.times(margin), y, matched) for x, y in ((b, a), (a, b)))
                statements.append(all(side(2 * _LEVEL)[0] > 0 for side in sides))
            else:
                low, high = _difference(a, b, matched)(_LEVEL)
                statements.append(low > 0 or high < 0)
        found.append(np.mean(statements).item())
    return found


def _difference(one: Error, two: Error, matched: bool) -> intervals.Ends:
    """The interval of the difference of two scores, by that of the similarities they invert."""
    assert one.inverse is not None and two.inverse is not None
    below, above = two.inverse, one.inverse
    both = (below.value, above.value), (below.at_levels, above.at_levels)
    return intervals.difference(*both, below.correlation(above, matched=matched))


def same_answers(answers: np.ndarray) -> np.ndarray:
    """The share of the pairs of answers `[..., k]` to a prompt that are the same."""
    k, same = answers.shape[-1], answers[..., :, None] == answers[..., None, :]
    return (np.count_nonzero(same, axis=(-2, -1)) - k) / (k * (k - 1))


def error_of(values: np.ndarray, test: str = TESTS[0]) -> Error:
    """The error of a mean over prompts `[P]`, with its interval or Student's."""
    value, count = float(values.mean()), values.size
    changes = (values - value) / (count - 1)  # What the mean loses without each prompt.
    influences, shares = changes * np.sqrt(count - 1), np.full(count, 1 / count)
    error = float(root_mean_square(influences))
    ends = intervals.prompt_mean(value, error, changes, shares) if test == TESTS[0] else None
    return Error(value, influences[None], "prompts", count - 1, ends=ends)


def shares_held(
    rng: np.random.Generator, size: tuple[int, int, int], law: Any, good: str
) -> list[float]:
    """How often intervals hold the share of good outputs, near 0 and near 1."""
    if law == ZIPF:
        return [np.nan, np.nan]
    shape = (*size[:2], 1) if good == GOOD[0] else size
    found = []
    for share in (law, 1 - law):
        values = np.mean(rng.random(shape) < share, axis=-1)
        ends = [error_of(by_prompt).interval(_LEVEL) for by_prompt in values]
        found.append(np.mean([low <= share <= high for low, high in ends]).item())
    return found


def _named(cells: Sequence[tuple[Any, ...]]) -> list[str]:
    return [f"{kind} {'/'.join(map(str, dict.fromkeys(counts)))}" for kind, *counts in cells]


def tables_of(found: xr.Dataset) -> Mapping[str, list[list[str]]]:
    """Tables in percent, a row for each population; of tests, by the interval / Student's t."""

    def table(values: xr.DataArray, *columns: str) -> list[list[str]]:
        pairs = values.stack(column=columns)
        heads = [" ".join(map(str, column)) for column in pairs.column.values.tolist()]
        heads = [functools.reduce(lambda word, of: word.replace(*of), _SHORT, h) for h in heads]
        rows = [["answers", "population", *heads]]
        for k, law in itertools.product(found.answers.values, found.population.values):
            cells = pairs.sel(answers=k, population=law).transpose("column", ...).values
            words = ["/".join(f"{100 * share:.1f}" for share in cell) for cell in cells]
            rows += [] if np.isnan(cells).all() else [[f"{k}", law, *words]]
        return rows

    return {
        "differences": table(found.false, "alike"),
        "equalities": table(found.equal, "margin"),
        "powers": table(found.found, "prompts"),
        "scores": table(found.held, "prompts"),
        "good": table(found.shares, "good", "prompts"),
    }
