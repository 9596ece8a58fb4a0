"""How often bands and signs over a ladder of bandwidths are right, and what the test can see.

python -m experiments.profile_coverage --cases=same --n=200 --draws=100
python -m experiments.profile_coverage --cases=few --draws=400

prints each cell of the tables of docs/bandwidths.md as JSON.
"""

import itertools
import json
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.cli import command
from experiments.calibration import interval_coverage as answers
from experiments.lab import runner

EACH = 8  # Outputs of a prompt, where rows depend on each other.
SCORES = ("vendi", "conditional", "information")
PLACES = np.random.default_rng(11).normal(size=(40, 3)).astype(np.float32)
_CENTRES = 2 * np.random.default_rng(3).normal(size=(12, 2))


class Model(NamedTuple):
    """Answers on a circle around the prompt: `modes` places, and noise around each of them."""

    modes: int
    radius: float
    noise: float


# Models of one distribution; some of one distribution beside another; and two whose order turns:
# many answers near each other, and a few far apart.
SAME = (Model(5, 1.0, 0.3),) * 3
PARTLY = (Model(5, 1.0, 0.3), Model(5, 1.0, 0.3), Model(5, 1.2, 0.3))
TURNING = (Model(12, 0.8, 0.02), Model(3, 2.5, 0.02))
CASES = {"same": SAME, "partly": PARTLY, "turning": TURNING}


def draw(models: tuple[Model, ...], rng: Any, n: int, each: int) -> tuple[dict[str, Any], Any]:
    """Outputs of each model, and the prompts that they share, of which `each` rows are equal."""
    prompts = _CENTRES[rng.choice(12, n // each)] + 0.3 * rng.normal(size=(n // each, 2))
    prompts = np.repeat(prompts, each, axis=0)
    outputs = {}
    for number, model in enumerate(models):
        angles = 2 * np.pi * rng.integers(model.modes, size=n) / model.modes
        places = model.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        answers = prompts + places + model.noise * rng.normal(size=(n, 2))
        outputs[f"{number}"] = answers.astype(np.float32)
    return outputs, prompts.astype(np.float32)


def profiles(
    name: str, n: int, each: int, draws: int, **options: Any
) -> list[cv.inference.Profile]:
    """The profiles of many draws of the models of a case."""
    rng = np.random.default_rng([n, each, len(name)])
    kernel = cv.Gaussian(1.0)
    given: dict[str, Any] = {"output_kernel": kernel, "prompt_kernel": kernel} | options
    return [cv.profile(*draw(CASES[name], rng, n, each), **given) for _ in range(draws)]


def few_prompts(
    kind: str, count: int, k: int, unequal: bool, matched: bool, draws: int, models: int = 3
) -> list[cv.inference.Profile]:
    """The profiles of equal models, of k or 2 to 2k answers to each of a few skewed prompts.

    The answers are 40 places of overlapping embeddings; prompts are equal or different.
    """
    rng, drawn = np.random.default_rng([count, k, unequal, matched, models]), []
    for _ in range(draws):
        outputs, asked, prompts = {}, {}, rng.integers(400, size=count)
        for model in map(str, range(models)):
            number: Any = k
            if unequal:
                number = rng.permutation(np.resize(np.arange(2, 2 * k + 1), count))
            of = prompts if matched else rng.integers(400, size=count)
            rows, ids = answers.draw_answers(rng, kind, of, number)
            outputs[model] = PLACES[rows[:, 0].astype(int)]
            asked[model] = ids if matched else ids + count * int(model)
        drawn.append(cv.profile(outputs, asked, output_kernel=cv.Gaussian(1.0)))
    return drawn


def held(drawn: list[cv.inference.Profile], kind: str) -> float:
    """The share of bands that hold Conditional-RKE of all 400 prompts at all bandwidths."""
    shares, inside = answers.answers_of(kind), []
    squares = np.sum((PLACES[:, None] - PLACES) ** 2, axis=2)
    alike = np.exp(-squares / drawn[0].bandwidths[:, None, None] ** 2)
    truth = 1 / np.mean(np.einsum("pi,bij,pj->bp", shares, alike, shares, optimize=True), axis=1)
    for of in drawn:
        low, high = np.moveaxis(of.bands.conditional, 2, 0)
        inside.append(((low <= truth) & (truth <= high) | np.isnan(low)).all(axis=1))
    return float(np.mean(inside))


def bands(drawn: list[cv.inference.Profile]) -> dict[str, float]:
    """By score the share of bands that cover the mean score at all bandwidths, of all models."""
    shares = {}
    for score in SCORES:
        values = np.log([getattr(of.values, score) for of in drawn])
        ends = np.log([getattr(of.bands, score) for of in drawn])
        means = values.mean(axis=0)
        inside = (ends[..., 0] <= means) & (means <= ends[..., 1]) | np.isnan(ends[..., 0])
        shares[score] = float(inside.all(axis=2).mean())
    return shares


def false_statements(drawn: list[cv.inference.Profile], same: set[tuple[str, str]]) -> Any:
    """By score the share of draws in which any sign of any pair is false.

    Models of one distribution have no sign. Of others it is that of the mean difference, where that
    is clear of the draws' noise.
    """
    shares = {}
    for score in SCORES:
        wrong = np.zeros(len(drawn), bool)
        for one, two in itertools.combinations(drawn[0].models, 2):
            k, m = drawn[0].models.index(one), drawn[0].models.index(two)
            values = np.log([getattr(of.values, score) for of in drawn])
            differences = values[:, k] - values[:, m]
            test: Any = stats.ttest_1samp(differences, 0)
            clear = np.abs(test.statistic) > 4
            truth = np.where(clear, np.sign(differences.mean(axis=0)), 0)
            signs = np.array([of.pair(one, two, score).signs for of in drawn])
            false = signs * truth < 0
            if (one, two) in same:
                false = signs != 0
            wrong |= false.any(axis=1)
        shares[score] = float(wrong.mean())
    return shares


def power(drawn: list[cv.inference.Profile], one: str, two: str) -> dict[str, dict[str, float]]:
    """By score how often a difference is drawn: over the ladder, and at single bandwidths.

    A single bandwidth is tested alone, at the level of the ladder. The best one is known only after
    many draws.
    """
    rates = {}
    for score in SCORES:
        over = np.mean([of.pair(one, two, score).p_value <= of.level for of in drawn])
        k, m = drawn[0].models.index(one), drawn[0].models.index(two)
        values = np.log([getattr(of.values, score) for of in drawn])
        differences = values[:, k] - values[:, m]
        # The spread over the draws stands for the error of a single bandwidth.
        alone = np.mean(np.abs(differences) > 1.96 * differences.std(axis=0), axis=0)
        centre = int(np.argmin(np.abs(np.log(drawn[0].multiples))))
        rates[score] = {
            "ladder": float(over),
            "best bandwidth": float(alone.max()),
            "chosen bandwidth": float(alone[centre]),
        }
    return rates


_FLAGS = flags.FlagValues()
NAMES = (*CASES, "few")
flags.DEFINE_multi_enum("cases", NAMES, NAMES, "The models.", flag_values=_FLAGS)
flags.DEFINE_multi_integer("n", [200, 400, 1000], "Numbers of rows.", 1, flag_values=_FLAGS)
flags.DEFINE_integer("draws", 500, "Samples of each cell.", 2, flag_values=_FLAGS)


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    if "few" in _FLAGS.cases:
        kinds, few = ("mild", "heavy", "bimodal"), ((5, 10), (8, 5), (8, 10), (12, 10), (20, 10))
        for kind, (count, k), unequal, matched in itertools.product(
            kinds, few, (False, True), (True, False)
        ):
            drawn = few_prompts(kind, count, k, unequal, matched, _FLAGS.draws)
            cell = {"case": kind, "prompts": count, "k": k, "unequal": unequal, "matched": matched}
            cell |= {"draws": _FLAGS.draws, "bands": held(drawn, kind)}
            same = set(itertools.combinations("012", 2))
            print(json.dumps(cell | {"false": false_statements(drawn, same)}), flush=True)
    cases = [name for name in _FLAGS.cases if name in CASES]
    for name, n, each in itertools.product(cases, map(int, _FLAGS.n), (1, EACH)):
        drawn = profiles(name, n, each, _FLAGS.draws)
        same = {"same": set(itertools.combinations("012", 2)), "partly": {("0", "1")}}
        cell = {"case": name, "n": n, "each": each, "draws": _FLAGS.draws, "bands": bands(drawn)}
        cell |= {"false": false_statements(drawn, same.get(name, set()))}
        cell |= {"power": power(drawn, "0", drawn[0].models[-1])} if name != "same" else {}
        print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
