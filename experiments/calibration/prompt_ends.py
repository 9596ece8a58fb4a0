"""How often intervals hold the most and the least diverse prompt: prints each cell as JSON.

python -m experiments.prompt_ends --draws=100
"""

import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.inference import components, shrinkage
from experiments.calibration.interval_coverage import answers_of
from experiments.lab import runner

KINDS = ("identical", "equal", "mild", "heavy", "bimodal")
ENDS = ("most diverse", "least diverse", "all")
_FLAGS = flags.FlagValues()
flags.DEFINE_integer("draws", 200, "Tables of each cell.", 1, flag_values=_FLAGS)


@functools.cache
def population(kind: str, overlapping: bool) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of 40 answers to 400 prompts, `[400, 40]`, and their squared kernel.

    Answers are the same or different or, where they overlap, points in space under a Gaussian.
    """
    rng, square = np.random.default_rng(3), np.eye(40)
    if not overlapping:
        if kind == "identical":
            return np.tile(answers_of("mild")[5], (400, 1)), square
        if kind == "equal":
            return np.tile(np.arange(40) < 4, (400, 1)) / 4, square
        return answers_of(kind), square
    points = rng.normal(size=(40, 3))
    square = np.exp(-np.sum((points[:, None] - points) ** 2, axis=2) / 0.6**2)
    if kind == "bimodal":  # 85% prefer one answer.
        shares = np.where(np.arange(400)[:, None] < 340, 0.1, 1) * np.full((400, 40), 1 / 40)
        shares[np.arange(340), rng.integers(40, size=340)] += 0.9
        return shares, square
    sizes = np.exp(rng.normal(np.log(0.15), 1, 400)) if kind == "heavy" else np.full(400, 0.3)
    shares = np.stack([rng.dirichlet(np.full(40, size)) for size in sizes])
    if kind == "identical":
        return np.tile(shares[0], (400, 1)), square
    return (np.full((400, 40), 1 / 40) if kind == "equal" else shares), square


def draw(
    rng: np.random.Generator, kind: str, overlapping: bool, counts: Any
) -> tuple[components.Components, np.ndarray]:
    """`counts` answers to each of some prompts, and the true similarity of each prompt, `[p]`."""
    shares, square = population(kind, overlapping)
    shares = shares[rng.integers(400, size=len(counts))]
    copies = rng.multinomial(counts, shares)
    prompt, answer = np.nonzero(copies)
    sums, squares = ((copies @ of)[prompt, answer] - 1 for of in (square, square**2))
    parts = components.of_sums(sums, squares, copies[prompt, answer], prompt, len(counts))
    return parts, np.einsum("pa,ab,pb->p", shares, square, shares)


def cover(kind: str, overlapping: bool, counts: Sequence[int], draws: int) -> dict[str, Any]:
    """Coverage and mean length at both ends and of all, of intervals and of two errors; the test.

    Two errors are those of a prompt by itself, of the table that is sorted by plain similarities.
    """
    rng, held, tests = np.random.default_rng([len(counts), *counts[:2]]), [], []
    for _ in range(draws):
        parts, truth = draw(rng, kind, overlapping, rng.permutation(counts))
        found = shrinkage.shrink(parts)
        if isinstance(found, str):
            continue
        (p_value, _, reliability, _), (value, low, high) = found
        error = 2 * np.sqrt(np.maximum(parts.within(), 0))
        table = []
        for by, ends in (
            (value, (low, high)),
            (parts.similarity, parts.similarity + [-error, error]),
        ):
            covered = (ends[0] - 1e-9 <= truth) & (truth <= ends[1] + 1e-9)
            order = np.lexsort([rng.random(by.size), by])[[0, -1]]  # Ties at random.
            for of in (covered, ends[1] - ends[0]):
                table.append([*of[order], of.mean()])
        held.append(table)
        tests.append([p_value < 0.05, reliability])
    names = ("coverage", "length", "coverage of two errors", "length of two errors")
    rows = np.round(np.mean(held, axis=0), 3).tolist()
    cells = {name: dict(zip(ENDS, row, strict=True)) for name, row in zip(names, rows, strict=True)}
    rejected, reliability = np.round(np.mean(tests, axis=0), 3).tolist()
    return {**cells, "rejected": rejected, "reliability": reliability, "tables": len(held)}


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    designs = itertools.product((8, 20, 100), ([4], [5], [10], [50], [4, 5, 10, 30]))
    for (count, k), kind, overlapping in itertools.product(designs, KINDS, (False, True)):
        found = cover(kind, overlapping, np.resize(k, count).tolist(), int(_FLAGS.draws))
        cell = {"kind": kind, "overlapping": overlapping, "prompts": count, "answers": k}
        print(json.dumps(cell | found), flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
