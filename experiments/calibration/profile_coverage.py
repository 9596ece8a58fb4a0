"""How often bands and signs over a ladder of bandwidths are right.

python -m experiments.profile_coverage --cases=same --n=200 --draws=100
python -m experiments.profile_coverage --cases=few --draws=400

prints each cell of the tables of docs/bandwidths.md as JSON.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

import condvendi_jax as cv
from experiments.calibration import simulated
from experiments.calibration.simulated import EACH, KINDS, SCORES

Profiles = list[cv.inference.Profile]
PLACES = np.random.default_rng(11).normal(size=(40, 3)).astype(np.float32)
_CENTRES = 2 * np.random.default_rng(3).normal(size=(12, 2))
_FEW = ((5, 10), (8, 5), (8, 10), (12, 10), (20, 10))  # Prompts, and answers to each.


# Answers of models are on a circle around the prompt: the number of places, its radius, and the
# noise around each place. Models of one distribution; some of one distribution beside another; and
# two whose order turns: many answers near each other, and a few far apart.
CASES = {
    "same": ((5, 1.0, 0.3),) * 3,
    "partly": ((5, 1.0, 0.3), (5, 1.0, 0.3), (5, 1.2, 0.3)),
    "turning": ((12, 0.8, 0.02), (3, 2.5, 0.02)),
}
SAME = {"same": "012", "partly": "01", "turning": ""}  # Names of models of one distribution.


def profiles(name: str, n: int, each: int, draws: int) -> Profiles:
    """The profiles of many draws of the models of a case; `each` rows have one prompt."""
    rng, found = np.random.default_rng([n, each, len(name)]), []
    kernels: dict[str, Any] = dict.fromkeys(simulated.EXACT, cv.Gaussian(1.0))
    for _ in range(draws):
        prompts = _CENTRES[rng.choice(12, n // each)] + 0.3 * rng.normal(size=(n // each, 2))
        prompts, outputs = np.repeat(prompts, each, axis=0), {}
        for number, (modes, radius, noise) in enumerate(CASES[name]):
            angles = 2 * np.pi * rng.integers(modes, size=n) / modes
            places = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            outputs[f"{number}"] = np.float32(prompts + places + noise * rng.normal(size=(n, 2)))
        found.append(cv.profile(outputs, np.float32(prompts), **kernels))
    return found


def few_prompts(
    kind: str, count: int, k: int, unequal: bool, matched: bool, draws: int
) -> Profiles:
    """The profiles of equal models, of k or 2 to 2k answers to each of a few skewed prompts.

    The answers are 40 places of overlapping embeddings; prompts are equal or different.
    """
    rng, drawn = np.random.default_rng([count, k, unequal, matched, 3]), []
    for _ in range(draws):
        outputs, asked, prompts = {}, {}, rng.integers(400, size=count)
        for model in range(3):
            numbers = simulated.numbers(rng, count, k, unequal)
            of = prompts if matched else rng.integers(400, size=count)
            rows, ids = simulated.draw_answers(rng, kind, of, numbers)
            outputs[f"{model}"] = PLACES[rows[:, 0].astype(int)]
            asked[f"{model}"] = ids if matched else ids + count * model
        drawn.append(cv.profile(outputs, asked, output_kernel=cv.Gaussian(1.0)))
    return drawn


def held(drawn: Profiles, kind: str) -> float:
    """The share of bands that hold Conditional-RKE of all 400 prompts at all bandwidths."""
    shares, squares = simulated.answers_of(kind), np.sum((PLACES[:, None] - PLACES) ** 2, axis=2)
    alike = np.exp(-squares / drawn[0].bandwidths[:, None, None] ** 2)
    truth = 1 / np.mean(np.einsum("pi,bij,pj->bp", shares, alike, shares, optimize=True), axis=1)
    return _inside(np.array([of.bands.conditional for of in drawn]), truth)


def bands(drawn: Profiles) -> dict[str, float]:
    """By score the share of bands that cover the mean score at all bandwidths, of all models."""
    shares = {}
    for score in SCORES:
        means = np.mean(np.log([getattr(of.values, score) for of in drawn]), axis=0)
        shares[score] = _inside(np.log([getattr(of.bands, score) for of in drawn]), means)
    return shares


def _inside(ends: np.ndarray, truth: np.ndarray) -> float:
    low, high = np.moveaxis(ends, -1, 0)
    return float(np.mean(((low <= truth) & (truth <= high) | np.isnan(low)).all(axis=2)))


def false_statements(drawn: Profiles, same: str) -> dict[str, float]:
    """By score the share of draws in which any sign of any pair is false.

    The models that `same` names have no sign. Of others it is that of the mean difference, where
    that is clear of the draws' noise.
    """
    shares = {}
    for score in SCORES:
        wrong = np.zeros(len(drawn), bool)
        for one, two in itertools.combinations(drawn[0].models, 2):
            signs = np.array([of.pair(one, two, score).signs for of in drawn])
            if one in same and two in same:
                false = signs != 0
            else:
                k, m = (drawn[0].models.index(model) for model in (one, two))
                values = np.log([getattr(of.values, score) for of in drawn])
                differences = values[:, k] - values[:, m]
                test: Any = stats.ttest_1samp(differences, 0)
                clear = np.abs(test.statistic) > 4
                false = signs * np.where(clear, np.sign(differences.mean(axis=0)), 0) < 0
            wrong |= false.any(axis=1)
        shares[score] = float(wrong.mean())
    return shares


def cells(
    cases: Any = (*CASES, "few"), n: Any = (200, 400, 1000), draws: int = 500
) -> Iterator[dict[str, Any]]:
    """The cells of these cases, of `draws` samples each; of all but `few` for numbers of rows."""
    if "few" in cases:
        few = itertools.product(KINDS, _FEW, (False, True), (True, False))
        for kind, (count, k), unequal, matched in few:
            drawn = few_prompts(kind, count, k, unequal, matched, draws)
            cell = {"case": kind, "prompts": count, "k": k, "unequal": unequal, "matched": matched}
            cell |= {"draws": draws, "bands": held(drawn, kind)}
            yield cell | {"false": false_statements(drawn, "012")}
    chosen = [name for name in cases if name in CASES]
    for name, rows, each in itertools.product(chosen, n, (1, EACH)):
        drawn = profiles(name, rows, each, draws)
        cell = {"case": name, "n": rows, "each": each, "draws": draws, "bands": bands(drawn)}
        yield cell | {"false": false_statements(drawn, SAME[name])}


if __name__ == "__main__":
    simulated.run(cells, fewest=2)
