"""False alarms and delays of `cv.monitor`: prints the cells of docs/training_loops.md as JSON.

python -m experiments.monitoring --runs=200
"""

import itertools
import json
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from scipy import stats

from condvendi_jax.cli import command
from condvendi_jax.inference.monitoring import EProcess, bounds
from experiments.calibration.interval_coverage import answers_of
from experiments.lab import runner

KINDS = ("mild", "heavy", "bimodal")
LEVEL = 0.05
FALL = 4 / 3  # Of the similarity, for a score that falls by a quarter.
_AT_ONCE = 100  # Runs.
_FLAGS = flags.FlagValues()
flags.DEFINE_integer("runs", 1000, "Runs of each cell.", 1, flag_values=_FLAGS)
flags.DEFINE_integer("looks", 200, "Looks of a run without a change.", 1, flag_values=_FLAGS)


class Alarms(NamedTuple):
    """The look of the first alarm of each run, 0 without one, `[runs]`."""

    monitor: np.ndarray
    fixed: np.ndarray  # z at the level in each look, against the baseline as if it had no error.
    previous: np.ndarray  # Against the look before.


def similarities(counts: np.ndarray) -> np.ndarray:
    """Of prompts, from how often each answer was given, `[..., P, answers]`."""
    k = counts.sum(axis=-1)
    return np.sum(counts * (counts - 1), axis=-1) / (k * (k - 1))


def fixed_error(counts: np.ndarray) -> np.ndarray:
    """The error of their mean over other answers, `[...]`, as `Population.fixed_errors`.

    The square of a similarity, less pairs of pairs of four different answers, is unbiased for its
    variance; the variance by deletions bounds it from below.
    """
    k, n = counts[0, 0].sum(), counts.astype(np.float64)
    pairs = np.sum(n * (n - 1), axis=-1)
    without = (pairs[..., None] - 2 * (n - 1)) / ((k - 1) * (k - 2))
    centre = np.sum(n * without, axis=-1, keepdims=True) / k
    deletions = (k - 1) / k * np.sum(n * (without - centre) ** 2, axis=-1)
    apart = pairs**2 - 4 * np.sum(n * (n - 1) * (n - 2), axis=-1) - 2 * pairs
    unbiased = similarities(counts) ** 2 - apart / (k * (k - 1) * (k - 2) * (k - 3))
    least = (0.5 - 0.5 / (k - 1)) * np.sum(deletions, axis=-1)
    return np.sqrt(np.maximum(np.sum(unbiased, axis=-1), least)) / counts.shape[-2]


def collapsed(shares: np.ndarray, times: float) -> np.ndarray:
    """Answers `[runs, P, answers]` that move to the favourite of each prompt.

    The same part of them moves for all prompts of a run: so many that their mean similarity is
    `times` what it was.
    """
    favourite = shares == shares.max(axis=-1, keepdims=True)
    favourite &= np.cumsum(favourite, axis=-1) == 1
    similar = np.mean(np.sum(shares**2, axis=-1), axis=-1)
    most = np.mean(shares.max(axis=-1), axis=-1)
    # (1 - b)^2 s + 2 b (1 - b) m + b^2 = times s.
    square, linear, rest = similar - 2 * most + 1, most - similar, -(times - 1) * similar
    moved = (np.sqrt(linear**2 - square * rest) - linear) / square
    moved = np.minimum(moved, 1)[:, None, None]
    return (1 - moved) * shares + moved * favourite


def simulate(
    kind: str,
    prompts: int,
    baseline: int,
    k: int,
    looks: int,
    runs: int,
    change: int | None = None,
    seed: int = 0,
) -> Alarms:
    """Runs with so many answers to each prompt in the baseline and k in each look.

    Args:
      kind, prompts: of the population of `answers_of`, and how many are drawn for each run.
      baseline, k, looks, runs: numbers.
      change: the look from which on the score is lower by a quarter; never where None.
      seed: of all draws.
    """
    rng, found = np.random.default_rng([seed, prompts, baseline, k]), []
    for _ in range(0, runs, _AT_ONCE):
        before = answers_of(kind)[rng.integers(400, size=(min(runs, _AT_ONCE), prompts))]
        after = collapsed(before, FALL)
        counts = rng.multinomial(baseline, before)
        start, error = similarities(counts), fixed_error(counts)
        quantile, pairs = float(stats.norm.isf(LEVEL / 2)), prompts * baseline * (baseline - 1) / 2
        _, bound = bounds(start.mean(axis=-1), error, pairs, quantile)
        process, last = EProcess(start, error, bound), start
        alarms = np.zeros((3, len(before)), int)
        for look in range(1, looks + 1):
            changed = change is not None and look >= change
            now = similarities(rng.multinomial(k, after if changed else before))
            rings = [
                process.update(now) >= np.log(2 / LEVEL),
                _differs(now - start),
                _differs(now - last),
            ]
            alarms = np.where((alarms == 0) & np.array(rings), look, alarms)
            last = now
        found.append(alarms)
    return Alarms(*np.concatenate(found, axis=1))


def _differs(change: np.ndarray) -> np.ndarray:
    """Whether the mean over prompts `[..., P]` is above 0 by a one-sided z test at the level."""
    error = np.std(change, axis=-1, ddof=1) / np.sqrt(change.shape[-1])
    return change.mean(axis=-1) > stats.norm.isf(LEVEL) * error


def delays(alarms: np.ndarray, change: int) -> dict[str, Any]:
    """How many looks the change takes to be seen, and the share of runs in which it is.

    Quantiles are of the runs without an alarm before the change; None where most or a tenth of them
    have none.
    """
    there = alarms[(alarms == 0) | (alarms >= change)]
    waited = np.where(there == 0, np.inf, there - change + 1.0)
    ends = np.quantile(waited, [0.5, 0.9], method="higher").tolist()
    median, most = (int(end) if np.isfinite(end) else None for end in ends)
    return {"median": median, "90%": most, "found": float(np.mean(there > 0))}


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    for kind, prompts, k in itertools.product(KINDS, (20, 50), (5, 10)):
        alarms = simulate(kind, prompts, k, k, _FLAGS.looks, _FLAGS.runs)
        false = {name: float(np.mean(of > 0)) for name, of in alarms._asdict().items()}
        print(json.dumps({"kind": kind, "prompts": prompts, "k": k, "false": false}), flush=True)
    sizes = ((5, 5), (10, 10), (20, 10), (40, 10))
    for kind, (baseline, k), change in itertools.product(KINDS, sizes, (1, 30)):
        alarms = simulate(kind, 50, baseline, k, change + 59, _FLAGS.runs, change)
        cell = {"kind": kind, "baseline": baseline, "k": k, "change": change}
        print(json.dumps(cell | delays(alarms.monitor, change)), flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
