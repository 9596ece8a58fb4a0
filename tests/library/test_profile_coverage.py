"""How often bands and signs over a ladder of bandwidths are right, and what the test can see.

    PYTHONPATH=tests python tests/library/test_profile_coverage.py > profiles.jsonl

measures the tables of docs/bandwidths.md and writes one line of JSON for each cell.
"""

import itertools
import json
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from rates import is_at_most
from scipy import stats

import condvendi_jax as cv

EACH = 8  # Outputs of a prompt, where rows depend on each other.
SCORES = ("vendi", "conditional", "information")
_CENTRES = 2 * np.random.default_rng(3).normal(size=(12, 2))
_ANGLES = np.random.default_rng(4).uniform(0, 2 * np.pi, 12)


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


def bands(found: list[cv.inference.Profile]) -> dict[str, float]:
    """By score the share of bands that cover the mean score at all bandwidths, of all models."""
    shares = {}
    for score in SCORES:
        values = np.log([getattr(of.values, score) for of in found])
        ends = np.log([getattr(of.bands, score) for of in found])
        means = values.mean(axis=0)
        inside = (ends[..., 0] <= means) & (means <= ends[..., 1]) | np.isnan(ends[..., 0])
        shares[score] = float(inside.all(axis=2).mean())
    return shares


def false_statements(found: list[cv.inference.Profile], same: set[tuple[str, str]]) -> Any:
    """By score the share of draws in which any sign of any pair is false.

    Models of one distribution have no sign. Of others it is that of the mean difference, where that
    is clear of the draws' noise.
    """
    shares = {}
    for score in SCORES:
        wrong = np.zeros(len(found), bool)
        for one, two in itertools.combinations(found[0].models, 2):
            k, m = found[0].models.index(one), found[0].models.index(two)
            values = np.log([getattr(of.values, score) for of in found])
            differences = values[:, k] - values[:, m]
            clear = np.abs(stats.ttest_1samp(differences, 0).statistic) > 4
            truth = np.where(clear, np.sign(differences.mean(axis=0)), 0)
            signs = np.array([of.pair(one, two, score).signs for of in found])
            false = signs * truth < 0
            if (one, two) in same:
                false = signs != 0
            wrong |= false.any(axis=1)
        shares[score] = float(wrong.mean())
    return shares


def power(found: list[cv.inference.Profile], one: str, two: str) -> dict[str, dict[str, float]]:
    """By score how often a difference is found: over the ladder, and at single bandwidths.

    A single bandwidth is tested alone, at the level of the ladder. The best one is known only after
    many draws.
    """
    rates = {}
    for score in SCORES:
        over = np.mean([of.pair(one, two, score).p_value <= of.level for of in found])
        k, m = found[0].models.index(one), found[0].models.index(two)
        values = np.log([getattr(of.values, score) for of in found])
        differences = values[:, k] - values[:, m]
        # The spread over the draws stands for the error of a single bandwidth.
        alone = np.mean(np.abs(differences) > 1.96 * differences.std(axis=0), axis=0)
        centre = int(np.argmin(np.abs(np.log(found[0].multiples))))
        rates[score] = {
            "ladder": float(over),
            "best bandwidth": float(alone.max()),
            "chosen bandwidth": float(alone[centre]),
        }
    return rates


@pytest.mark.slow
@pytest.mark.parametrize("each", [1, EACH])
def test_signs_of_models_of_one_distribution_are_rarely_told(each):
    """Of 150 draws; a right method fails with probability 1e-3 per score."""
    found = profiles("same", 400, each, 150)
    for share in false_statements(found, {("0", "1"), ("0", "2"), ("1", "2")}).values():
        assert is_at_most(share, 150, 0.05)
    for share in bands(found).values():  # Those of 50 prompts are a little too narrow.
        assert is_at_most(1 - share, 3 * 150, 0.05 if each == 1 else 0.1)


@pytest.mark.slow
def test_the_order_of_models_turns_where_it_does():
    found = profiles("turning", 400, 1, 20)
    signs = np.array([of.pair("0", "1").signs for of in found])
    assert (signs.max(axis=1) == 1).all() and (signs.min(axis=1) == -1).all()
    assert all(of.pair("0", "1").depends for of in found)
    assert not any(false_statements(found, set()).values())


def main(names: list[str]) -> None:
    """Prints the cells of some cases, or of all."""
    for name, n, each in itertools.product(names or CASES, (200, 400, 1000), (1, EACH)):
        draws = 1000 if n == 200 else 500
        found = profiles(name, n, each, draws)
        same = {("0", "1")} if name == "partly" else set()
        if name == "same":
            same = {("0", "1"), ("0", "2"), ("1", "2")}
        cell = {"case": name, "n": n, "each": each, "draws": draws, "bands": bands(found)}
        cell |= {"false": false_statements(found, same)}
        cell |= {"power": power(found, "0", found[0].models[-1])} if name != "same" else {}
        print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
