"""What order 1 costs at large n with `MatrixFree`, beside the arithmetic that its products need.

    python -m experiments.matrix_free                          # n = 4,000, 20,000 and 50,000
    python -m experiments.matrix_free --n=20000 --data=emoji-like --rtol=0.002

Prints a Markdown table. The emoji-like rows are those of emoji, projected on their first principal
directions, drawn again and moved a little. The arithmetic counts 2 n^2 operations for a product of
one column with one of the three matrices, and n^2 (d_x + d_t) for the distances of a pass that
serves all three. The last column divides the CPU seconds by those that one large matrix product
takes, in the same process, for as much arithmetic. Up to n = 8,000, the intervals of several keys
are compared with all eigenvalues. --n and --data may be given several times.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import condvendi_jax as cv
from condvendi_jax.cli import command
from condvendi_jax.entropies import log_scores
from condvendi_jax.spectra import _estimators as estimators
from experiments.data import mixture, sets
from experiments.scaling import engines

_FLAGS = flags.FlagValues()
DATA = ("mixture", "emoji-like")
_SIZES = (4000, 20_000, 50_000)
flags.DEFINE_multi_integer("n", _SIZES, "How many rows.", 600, flag_values=_FLAGS)
flags.DEFINE_multi_enum("data", DATA, DATA, "Of which data.", flag_values=_FLAGS)
flags.DEFINE_float("rtol", 0.01, "The tolerance of the three scores.", 0, 1, flag_values=_FLAGS)
flags.DEFINE_integer("keys", 6, "Keys where all eigenvalues are known.", 1, flag_values=_FLAGS)

_DIMENSIONS = (64, 48)
_EXACT_UP_TO = 8000
# Of the distance to the mean, in every direction together: rows that are drawn twice differ.
_MOVED = 0.1
# Of the median distance to the first row, which gives about the papers' bandwidth for emoji.
_OF_MEDIAN = 0.65


def draw(data: str, n: int) -> tuple[list[np.ndarray], list[float]]:
    """Outputs `[n, 64]` and prompts `[n, 48]` in float32, and their bandwidths."""
    if data == "mixture":
        points = [np.empty((n, d), np.float32) for d in _DIMENSIONS]
        mixture.fill_mixture(*points, seed=0)
        return points, [0.7, 0.7]
    rng = np.random.default_rng(0)
    emoji = sets.load("emoji")
    rows = rng.integers(len(emoji), size=n)
    points, bandwidths = [], []
    for of, d in zip((emoji.outputs, emoji.prompts), _DIMENSIONS, strict=True):
        centred = np.asarray(of, np.float64) - np.mean(of, axis=0, dtype=np.float64)
        _, directions = np.linalg.eigh(centred.T @ centred)
        projected = (centred @ directions[:, -d:])[rows]
        lengths = np.linalg.norm(projected, axis=1, keepdims=True)
        moved = projected + _MOVED / d**0.5 * lengths * rng.normal(size=projected.shape)
        apart = np.linalg.norm(moved[rng.integers(n, size=4000)] - moved[:1], axis=1)
        points.append(moved.astype(np.float32))
        bandwidths.append(_OF_MEDIAN * float(np.median(apart)))
    return points, bandwidths


def oracle(points: list[np.ndarray], bandwidths: list[float]) -> list[float]:
    """The entropies of outputs, prompts and pairs in float64, by NumPy alone."""
    grams = []
    for of, bandwidth in zip(points, bandwidths, strict=True):
        rows = of.astype(np.float64)
        squares = np.sum(np.square(rows), axis=1)
        apart = squares[:, None] + squares[None, :] - 2 * rows @ rows.T
        grams.append(np.exp(-np.maximum(apart, 0) / (2 * bandwidth**2)))
    entropies = []
    for gram in (*grams, grams[0] * grams[1]):
        values = np.linalg.eigvalsh(gram / len(gram))
        positive = values[values > 0]
        entropies.append(float(-np.sum(positive * np.log(positive))))
    return entropies


def spent(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds, seconds and the result of a call."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = jax.block_until_ready(call())
    after, end = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, end - start, found


def measure(data: str, n: int, rtol: float, keys: int) -> str:
    """A row of the table, measured in a process of its own."""
    product = engines.matrix_product({})
    seconds = min(spent(product.ready(0))[0] for _ in range(4))
    rate = product.read(None)["operations"] / seconds
    points, bandwidths = draw(data, n)
    single = [
        cv.grams.TiledGram.from_points(cv.Gaussian(bandwidth), jnp.asarray(of))
        for bandwidth, of in zip(bandwidths, points, strict=True)
    ]
    grams = [*single, single[0] * single[1]]

    def refined(seed: int) -> estimators.Refined:
        return estimators.refine(
            grams,
            [cv.von_neumann],
            lambda row: log_scores(*row),
            key=jax.random.key(seed),
            rtol=rtol,
        )

    cpu, taken, found = spent(lambda: refined(0))
    columns = sum(sampler.measure().products for sampler in found.samplers)
    # If probes were added later, these had passes of their own: then there is more arithmetic.
    passes = estimators.Budget().sweeps + max(sampler.steps for sampler in found.samplers)
    arithmetic = n**2 * (2 * columns + passes * sum(_DIMENSIONS))
    scores = log_scores(*found.estimates[0])._asdict().values()
    shown = [f"{np.exp(of.value):.4g} ± {of.half_width:.2%}" for of in scores]
    covered = ""
    if n <= _EXACT_UP_TO:
        exact = log_scores(*oracle(points, bandwidths))
        drawn = [log_scores(*refined(seed).estimates[0]) for seed in range(keys)]
        hits = [
            low <= truth <= high
            for of in drawn
            for (low, high), truth in zip((e.interval for e in of), exact, strict=True)
        ]
        covered = f"{sum(hits)} of {len(hits)}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    times = f"{cpu:.0f}", f"{taken:.0f}", f"{peak:.1f} GiB", f"{arithmetic / 1e12:.1f}"
    ratio = f"{cpu * rate / arithmetic:.1f}"
    return " | ".join((data, f"{n:,}", *shown, covered, *times, ratio))


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(command.parse(_FLAGS, argv))
    given: dict[str, Any] = _FLAGS.flag_values_dict()
    head = (
        "data | n | Vendi | Conditional-Vendi | Information-Vendi | covered | CPU s | seconds | "
        "memory | 10^12 operations | times the arithmetic"
    )
    print(f"| {head} |\n|{' --- |' * (head.count('|') + 1)}")
    spawn = multiprocessing.get_context("spawn")
    for n in given["n"]:
        for data in given["data"]:
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as process:
                row = process.submit(measure, data, n, given["rtol"], given["keys"])
                print(f"| {row.result()} |", flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
