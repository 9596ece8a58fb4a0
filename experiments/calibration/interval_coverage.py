"""How often 95% intervals cover: prints each cell of the tables of docs/errors.md as JSON.

python -m experiments.interval_coverage --n=200 --draws=100
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

import condvendi_jax as cv
from experiments.calibration import simulated
from experiments.calibration.simulated import EACH, EXACT, KINDS, SCORES
from experiments.data import PairedEmbeddings, load
from experiments.lab import scales


@dataclasses.dataclass(frozen=True)
class Case:
    """Values of an output and a prompt, with weights and their prompts' numbers."""

    outputs: np.ndarray
    prompts: np.ndarray
    kinds: np.ndarray
    weights: np.ndarray
    kernels: dict[str, Any]
    truncation: int = 5

    def draw(self, rng: Any, n: int, dependent: bool = False) -> tuple[np.ndarray, ...]:
        """n independent rows, or `EACH` answers to each of n / EACH prompts."""
        if dependent:
            of_kinds = np.bincount(self.kinds, self.weights)
            shares = self.weights / of_kinds[self.kinds]
            chosen = rng.choice(len(of_kinds), n // EACH, p=of_kinds)
            own = (np.where(self.kinds == kind, shares, 0) for kind in chosen)
            rows = np.concatenate([rng.choice(len(shares), EACH, p=of) for of in own])
        else:
            rows = rng.choice(len(self.kinds), n, p=self.weights)
        return tuple(of[rows].astype(np.float32) for of in (self.outputs, self.prompts))


def values_60() -> Case:
    """60 outputs that overlap, 5 near each of 12 prompts, of unequal weights."""
    rng = np.random.default_rng(5)
    prompts, kinds = 2 * rng.normal(size=(12, 2)), np.repeat(np.arange(12), 5)
    outputs = 0.6 * prompts[kinds] + 1.2 * rng.normal(size=(60, 2))
    weights = np.repeat(rng.dirichlet(np.full(12, 3.0)), 5)
    weights *= np.concatenate([rng.dirichlet(np.full(5, 1.5)) for _ in range(12)])
    kernels = dict.fromkeys(EXACT, cv.Gaussian(0.8))
    return Case(outputs, prompts[kinds], kinds, weights / weights.sum(), kernels)


def separate_modes() -> Case:
    """15 outputs far apart, of unequal weights, and 3 prompts far apart, each with 5 outputs."""
    weights = np.array([0.25, 0.2, 0.15, 0.12, 0.1, *[0.018] * 10])
    outputs, kinds = np.arange(15)[:, None], np.arange(15) % 3
    kernels = dict.fromkeys(EXACT, cv.Gaussian(0.1))
    return Case(outputs, kinds[:, None], kinds, weights / weights.sum(), kernels)


def equal_modes() -> Case:
    """4 outputs and 4 prompts, far apart and independent: 16 pairs of equal weight."""
    outputs, kinds = np.repeat(np.arange(4), 4)[:, None], np.tile(np.arange(4), 4)
    kernels = dict.fromkeys(EXACT, cv.Gaussian(0.1))
    return Case(outputs, kinds[:, None], kinds, np.full(16, 1 / 16), kernels, 8)


def gallery() -> Case:
    """Nine pictures by latent diffusion for each of 41 prompts."""
    pairs = load("gallery")
    return _of_data(pairs.rows(pairs.labels["models"] == "latent diffusion"))


def emoji() -> Case:
    """Drawings of activities by four designers, under the names of the emoji."""
    pairs = load("emoji")
    designers = np.isin(pairs.labels["models"], ["Fluent", "Noto", "OpenMoji", "Twemoji"])
    return _of_data(pairs.rows(designers & (pairs.labels["types"] == "activities")))


def _of_data(pairs: PairedEmbeddings) -> Case:
    _, kinds = np.unique(pairs.labels["prompt"], return_inverse=True)
    weights, kernels = np.full(len(kinds), 1 / len(kinds)), scales.by_rule(pairs, "median", 0)
    return Case(pairs.outputs, pairs.prompts, kinds, weights, kernels.kernels, 20)


CASES = (values_60, separate_modes, equal_modes, gallery, emoji)


def cover_prompts(kind: str, count: int, k: int, unequal: bool, draws: int) -> dict[str, float]:
    """How often intervals of order 2 hold the score of all prompts, of k or 2 to 2k answers."""
    rng, held = np.random.default_rng([count, k, unequal]), []
    shares = simulated.answers_of(kind)
    within = float(np.mean(np.sum(shares**2, axis=1)))
    between = float(np.sum(shares.mean(axis=0) ** 2))
    for _ in range(draws):
        counts = simulated.numbers(rng, count, k, unequal)
        sample = simulated.draw_answers(rng, kind, rng.integers(400, size=count), counts)
        found = cv.evaluate(*sample, orders=[2], **EXACT).order(2).population
        similar = found.of_prompts * within + (1 - found.of_prompts) * between
        (low, high), truth = np.transpose(found.intervals), [similar, within, similar / within]
        held.append((low <= 1 / np.array(truth)) & (1 / np.array(truth) <= high))
    return dict(zip(SCORES, np.mean(held, axis=0).tolist(), strict=True))


def cover_mean(case: Case, n: int, dependent: bool, draws: int, **options: Any) -> dict[str, Any]:
    """By score: how often intervals hold the mean score, and the error over the deviation."""
    rng, found = np.random.default_rng([0, n, dependent]), []
    options |= {"groups": np.arange(n) // (EACH if dependent else 1), **case.kernels}
    for _ in range(draws):
        found += cv.evaluate(*case.draw(rng, n, dependent), **options).orders
    width, cells = stats.t.ppf(0.975, options["groups"][-1]), {}
    for name in SCORES:
        values = np.array([getattr(of.decomposition, name) for of in found], np.float64)
        errors = np.array([getattr(of.standard_errors, name) for of in found], np.float64)
        errors = np.maximum(errors, 1e-5 * values)  # No interval covers rounding.
        held = float(np.mean(np.abs(values - values.mean()) < width * errors))
        ratio = float(np.sqrt(np.mean(errors**2)) / max(values.std(), 1e-9))
        cells[name] = {"coverage": held, "error / deviation": ratio}
    return cells


def cells(n: Any = (200, 1000, 4000), draws: int = 400) -> Iterator[dict[str, Any]]:
    """The cells of `draws` samples each; those of the mean score, for each number of rows."""
    populations = itertools.product(KINDS, (20, 50, 200), (2, 5, 10, 50), (False, True))
    for kind, count, k, unequal in populations:
        cell = {"kind": kind, "prompts": count, "answers": k, "unequal": unequal}
        yield cell | cover_prompts(kind, count, k, unequal, draws)
    sampled: Iterator[Any] = itertools.product(CASES, n, (False, True), (1, 2))
    for make, rows, dependent, order in sampled:
        case = make()
        for kept in (None, case.truncation)[order - 1 :]:
            options: dict[str, Any] = {"orders": [order], "truncation": kept}
            cell = {"case": make.__name__, "n": rows, "dependent": dependent, **options}
            yield cell | cover_mean(case, rows, dependent, draws, **options)


if __name__ == "__main__":
    simulated.run(cells)
