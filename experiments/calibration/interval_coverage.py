"""How often 95% intervals cover: prints each cell of the tables of docs/errors.md as JSON.

python -m experiments.interval_coverage --n=200 --draws=100
"""

import dataclasses
import functools
import itertools
import json
from typing import Any

import jax
import numpy as np
from absl import flags
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.cli import command
from experiments.data import PairedEmbeddings, load
from experiments.lab import runner

SCORES = ("vendi", "conditional", "information")
EACH = 8  # Answers to a prompt, where rows depend on each other.
EXACT: dict[str, Any] = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
_FLAGS = flags.FlagValues()
flags.DEFINE_multi_integer("n", [200, 1000, 4000], "Numbers of rows.", 1, flag_values=_FLAGS)
flags.DEFINE_integer("draws", 400, "Samples of each cell.", 1, flag_values=_FLAGS)


@dataclasses.dataclass(frozen=True)
class Case:
    """Values of an output and a prompt, with weights and their prompts' numbers."""

    outputs: np.ndarray
    prompts: np.ndarray
    kinds: np.ndarray
    weights: np.ndarray
    widths: tuple[float, float]
    truncation: int

    @property
    def kernels(self) -> dict[str, Any]:
        """The two kernels."""
        return dict(zip(EXACT, map(cv.Gaussian, self.widths), strict=True))

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
    return Case(outputs, prompts[kinds], kinds, weights / weights.sum(), (0.8, 0.8), 5)


def separate_modes() -> Case:
    """15 outputs far apart, of unequal weights, and 3 prompts far apart, each with 5 outputs."""
    weights = np.array([0.25, 0.2, 0.15, 0.12, 0.1, *[0.018] * 10])
    outputs, kinds = np.arange(15)[:, None], np.arange(15) % 3
    return Case(outputs, kinds[:, None], kinds, weights / weights.sum(), (0.1, 0.1), 5)


def equal_modes() -> Case:
    """4 outputs and 4 prompts, far apart and independent: 16 pairs of equal weight."""
    outputs, kinds = np.repeat(np.arange(4), 4)[:, None], np.tile(np.arange(4), 4)
    return Case(outputs, kinds[:, None], kinds, np.full(16, 1 / 16), (0.1, 0.1), 8)


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
    arrays, n, key = (pairs.outputs, pairs.prompts), len(pairs), jax.random.key(0)
    of_outputs, of_prompts = (cv.bandwidth.median_heuristic(array, key=key) for array in arrays)
    _, kinds = np.unique(pairs.labels["prompt"], return_inverse=True)
    return Case(*arrays, kinds, np.full(n, 1 / n), (of_outputs, of_prompts), 20)


CASES = (values_60, separate_modes, equal_modes, gallery, emoji)


@functools.cache
def answers_of(kind: str) -> np.ndarray:
    """The probabilities of 40 answers to each of 400 equally likely prompts, `[400, 40]`.

    Mild prompts have six answers. Heavy ones prefer one answer, with a log-normal probability that
    two answers agree. Of bimodal ones, a tenth has one answer and the others have twenty.
    """
    rng, shares = np.random.default_rng(7), np.zeros((400, 40))
    if kind == "heavy":
        agreeing = np.exp(np.log(0.05) + stats.norm.ppf((np.arange(400) + 0.5) / 400))
        most = np.sqrt(np.minimum(agreeing, 0.95))
        shares += ((1 - most) / 39)[:, None]
        shares[np.arange(400), rng.integers(40, size=400)] = most
        return shares
    for prompt, row in enumerate(shares):
        count = 6 if kind == "mild" else 1 if prompt < 40 else 20
        row[rng.choice(40, count, replace=False)] = rng.dirichlet(np.ones(count))
    return shares


def draw_answers(rng: Any, kind: str, prompts: np.ndarray, counts: Any) -> tuple[Any, Any]:
    """`counts` answers to each of some prompts; a prompt that is drawn twice is two prompts."""
    numbers = rng.multinomial(counts, answers_of(kind)[prompts])
    prompt, answer = np.nonzero(numbers)
    rows = np.repeat(np.stack([answer, prompt], axis=1), numbers[prompt, answer], axis=0)
    return np.float32(rows[:, :1]), np.float32(rows[:, 1:])


def cover_prompts(kind: str, count: int, k: int, unequal: bool, draws: int) -> dict[str, float]:
    """How often intervals of order 2 hold the score of all prompts, of k or 2 to 2k answers."""
    rng, shares, held = np.random.default_rng([count, k, unequal]), answers_of(kind), []
    within = float(np.mean(np.sum(shares**2, axis=1)))
    between = float(np.sum(shares.mean(axis=0) ** 2))
    for _ in range(draws):
        counts = rng.permutation(np.resize(np.arange(2, 2 * k + 1), count)) if unequal else k
        sample = draw_answers(rng, kind, rng.integers(400, size=count), counts)
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


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    kinds = itertools.product(("mild", "heavy", "bimodal"), (20, 50, 200), (2, 5, 10, 50))
    for (kind, count, k), unequal in itertools.product(kinds, (False, True)):
        found = cover_prompts(kind, count, k, unequal, _FLAGS.draws)
        _show(found, kind=kind, prompts=count, answers=k, unequal=unequal)
    for make, n in itertools.product(CASES, map(int, _FLAGS.n)):
        case, named = make(), {"case": make.__name__, "n": n}
        for dependent, order in itertools.product((False, True), (1, 2)):
            for kept in (None, case.truncation)[order - 1 :]:
                options: dict[str, Any] = {"orders": [order], "truncation": kept}
                found = cover_mean(case, n, dependent, _FLAGS.draws, **options)
                _show(found, **named, dependent=dependent, **options)


def _show(found: dict[str, Any], **cell: Any) -> None:
    print(json.dumps(cell | found), flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
