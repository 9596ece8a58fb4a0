"""How often intervals hold the most and the least diverse prompt: prints each cell as JSON.

python -m experiments.prompt_ends --draws=100
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from condvendi_jax.statistics import components, shrinkage
from experiments.calibration import simulated

ENDS = ("most diverse", "least diverse", "all")


@functools.cache
def population(kind: str, overlapping: bool) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of 40 answers to 400 prompts, `[400, 40]`, and their squared kernel.

    Answers are the same or different or, where they overlap, points in space under a Gaussian.
    Of 'wide' prompts, a tenth has 40 equally likely answers, and the others 4; of 'halves', half
    nearly always have the same answer, and the others 40.
    """
    rng, square = np.random.default_rng(3), np.eye(40)
    equal = np.full((400, 40), 1 / 40)
    if not overlapping:
        shares = simulated.answers_of(kind if kind in simulated.KINDS else "mild")
        equal = np.tile(np.arange(40) < 4, (400, 1)) / 4
        same = shares[5]
    else:
        points = rng.normal(size=(40, 3))
        square = np.exp(-np.sum((points[:, None] - points) ** 2, axis=2) / 0.6**2)
        if kind == "bimodal":  # 85% prefer one answer.
            shares = np.where(np.arange(400)[:, None] < 340, 0.1, 1) * equal
            shares[np.arange(340), rng.integers(40, size=340)] += 0.9
            return shares, square
        sizes = np.exp(rng.normal(np.log(0.15), 1, 400)) if kind == "heavy" else np.full(400, 0.3)
        shares = np.stack([rng.dirichlet(np.full(40, size)) for size in sizes])
        same = shares[0]
    if kind in ("wide", "halves"):
        few = np.arange(40) < (4 if kind == "wide" else 1)
        few = few / 4 if kind == "wide" else np.where(few, 0.97, 0.03 / 39)
        shares = np.where(np.arange(400)[:, None] % (10 if kind == "wide" else 2), few, 1 / 40)
    shares = {"identical": np.tile(same, (400, 1)), "equal": equal}.get(kind, shares)
    return shares, square


def cover(kind: str, overlapping: bool, counts: Sequence[int], draws: int) -> dict[str, Any]:
    """Coverage and mean length at both ends and of all, of intervals and of two errors; the test.

    Two errors are those of a prompt by itself, of the table that is sorted by plain similarities.
    """
    rng, held, tests = np.random.default_rng([len(counts), *counts[:2]]), [], []
    of_all, square = population(kind, overlapping)
    for _ in range(draws):
        counts_of, shares = rng.permutation(counts), of_all[rng.integers(400, size=len(counts))]
        copies = rng.multinomial(counts_of, shares)
        truth = np.einsum("pa,ab,pb->p", shares, square, shares)  # Similarities.
        prompt, answer = np.nonzero(copies)
        sums, squares = ((copies @ of)[prompt, answer] - 1 for of in (square, square**2))
        parts = components.of_sums(sums, squares, copies[prompt, answer], prompt, len(counts))
        found = shrinkage.shrink(parts)
        if isinstance(found, str):
            continue
        (p_value, _, reliability, _), (value, *ends) = found
        plain, error = parts.similarity, 2 * np.sqrt(np.maximum(parts.within(), 0))
        table = []
        for by, (low, high) in ((value, ends), (plain, (plain - error, plain + error))):
            covered = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
            order = np.lexsort([rng.random(by.size), by])[[0, -1]]  # Ties at random.
            table += [[*of[order], of.mean()] for of in (covered, high - low)]
        held.append(table)
        tests.append([p_value < 0.05, reliability])
    names = ("coverage", "length", "coverage of two errors", "length of two errors")
    rows = np.round(np.mean(held, axis=0), 3).tolist()
    cells = {name: dict(zip(ENDS, row, strict=True)) for name, row in zip(names, rows, strict=True)}
    rejected, reliability = np.round(np.mean(tests, axis=0), 3).tolist()
    return {**cells, "rejected": rejected, "reliability": reliability, "tables": len(held)}


def cells(draws: int = 200) -> Iterator[dict[str, Any]]:
    """The cells, of `draws` tables each."""
    designs = itertools.product((8, 20, 100), ([4], [5], [10], [50], [4, 5, 10, 30]))
    kinds = ("identical", "equal", "wide", "halves", *simulated.KINDS)
    for (count, k), kind, overlapping in itertools.product(designs, kinds, (False, True)):
        cell = {"kind": kind, "overlapping": overlapping, "prompts": count, "answers": k}
        yield cell | cover(kind, overlapping, np.resize(k, count).tolist(), draws)


if __name__ == "__main__":
    simulated.run(cells)
