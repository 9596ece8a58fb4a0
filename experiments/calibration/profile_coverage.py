"""How often bands and signs over a ladder of bandwidths are right, and what the test can see.

python -m experiments.profile_coverage --cases=same --n=200 --draws=100

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
from experiments.lab import runner

EACH = 8  # Outputs of a prompt, where rows depend on each other.
SCORES = ("vendi", "conditional", "information")
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
flags.DEFINE_multi_enum("cases", [*CASES], [*CASES], "The models.", flag_values=_FLAGS)
flags.DEFINE_multi_integer("n", [200, 400, 1000], "Numbers of rows.", 1, flag_values=_FLAGS)
flags.DEFINE_integer("draws", 500, "Samples of each cell.", 2, flag_values=_FLAGS)


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    for name, n, each in itertools.product(_FLAGS.cases, map(int, _FLAGS.n), (1, EACH)):
        drawn = profiles(name, n, each, _FLAGS.draws)
        same = {"same": set(itertools.combinations("012", 2)), "partly": {("0", "1")}}
        cell = {"case": name, "n": n, "each": each, "draws": _FLAGS.draws, "bands": bands(drawn)}
        cell |= {"false": false_statements(drawn, same.get(name, set()))}
        cell |= {"power": power(drawn, "0", drawn[0].models[-1])} if name != "same" else {}
        print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
