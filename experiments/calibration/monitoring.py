"""False alarms and delays of `cv.monitor`: prints the cells of docs/training_loops.md as JSON.

python -m experiments.monitoring --runs=200
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from condvendi_jax.statistics.sequential import EProcess, upper_end
from experiments.calibration import simulated

LEVEL = 0.05
FALL = 4 / 3  # Of the similarity, for a score that falls by a quarter.
_AT_ONCE = 100  # Runs.


def similarities(counts: np.ndarray) -> np.ndarray:
    """Of prompts, from how often each answer was given, `[..., P, answers]`."""
    k = counts.sum(axis=-1)
    return np.sum(counts * (counts - 1), axis=-1) / (k * (k - 1))


def fixed_error(counts: np.ndarray) -> np.ndarray:
    """The error of their mean over other answers, `[...]`, as `Components.error`.

    The square of a similarity, less pairs of pairs of four different answers, is unbiased for its
    variance, which is at least that of answers of which none is more common.
    """
    k, n = counts[0, 0].sum(), counts.astype(np.float64)
    pairs, similar = np.sum(n * (n - 1), axis=-1), similarities(counts)
    apart = pairs**2 - 4 * np.sum(n * (n - 1) * (n - 2), axis=-1) - 2 * pairs
    apart /= k * (k - 1) * (k - 2) * (k - 3)
    least = 2 / (k * (k - 1)) * np.sum(similar - apart, axis=-1)
    variance = np.maximum(np.sum(similar**2 - apart, axis=-1), least)
    return np.sqrt(np.maximum(variance, 0)) / counts.shape[-2]


def collapsed(shares: np.ndarray, times: float) -> np.ndarray:
    """Answers `[runs, P, answers]` that move to the favourite of each prompt.

    The same part of them moves for all prompts of a run: so many that their mean similarity is
    `times` what it was.
    """
    favourite = np.eye(shares.shape[-1])[shares.argmax(axis=-1)]
    similar = np.mean(np.sum(shares**2, axis=-1), axis=-1)
    most = np.mean(shares.max(axis=-1), axis=-1)
    # (1 - b)^2 s + 2 b (1 - b) m + b^2 = times s.
    square, linear, rest = similar - 2 * most + 1, most - similar, -(times - 1) * similar
    moved = (np.sqrt(linear**2 - square * rest) - linear) / square
    moved = np.minimum(moved, 1)[:, None, None]
    return (1 - moved) * shares + moved * favourite


def simulate(
    kind: str, prompts: int, baseline: int, k: int, looks: int, runs: int, change: int = 0
) -> dict[str, np.ndarray]:
    """The look of the first alarm of each run, 0 without one: of the monitor and of two z tests.

    A run has `baseline` answers to each prompt in the baseline and k in each look. From the look
    `change` on, where there is one, the score is lower by a quarter. One test takes the baseline as
    if it had no error, the other the look before.
    """
    rng, found = np.random.default_rng([0, prompts, baseline, k]), []
    for _ in range(0, runs, _AT_ONCE):
        drawn = rng.integers(400, size=(min(runs, _AT_ONCE), prompts))
        before = simulated.answers_of(kind)[drawn]
        after = collapsed(before, FALL)
        counts = rng.multinomial(baseline, before)
        start, error = similarities(counts), fixed_error(counts)
        bound = upper_end(start.mean(axis=-1), prompts * (baseline // 2), LEVEL / 2)
        process, last = EProcess(start, error, bound), start
        alarms = np.zeros((3, len(before)), int)
        for look in range(1, looks + 1):
            now = similarities(rng.multinomial(k, after if 0 < change <= look else before))
            evident = process.update(now) >= np.log(2 / LEVEL)
            rings = np.array([evident, _rose(now - start), _rose(now - last)])
            alarms, last = np.where((alarms == 0) & rings, look, alarms), now
        found.append(alarms)
    return dict(zip(("monitor", "fixed", "previous"), np.concatenate(found, axis=1), strict=True))


def _rose(change: np.ndarray) -> np.ndarray:
    """Whether the mean over prompts `[..., P]` is above 0 by a one-sided z test at the level."""
    return change.mean(axis=-1) > stats.norm.isf(LEVEL) * stats.sem(change, axis=-1)


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


def cells(runs: int = 1000, looks: int = 200) -> Iterator[dict[str, Any]]:
    """The cells, of `runs` each; one without a change has so many looks."""
    for kind, prompts, k in itertools.product(simulated.KINDS, (20, 50), (5, 10)):
        alarms = simulate(kind, prompts, k, k, looks, runs)
        false = {name: float(np.mean(of > 0)) for name, of in alarms.items()}
        yield {"kind": kind, "prompts": prompts, "k": k, "false": false}
    sizes = ((5, 5), (10, 10), (20, 10), (40, 10))
    for kind, (baseline, k), change in itertools.product(simulated.KINDS, sizes, (1, 30)):
        alarms = simulate(kind, 50, baseline, k, change + 59, runs, change)
        cell = {"kind": kind, "baseline": baseline, "k": k, "change": change}
        yield cell | delays(alarms["monitor"], change)


if __name__ == "__main__":
    simulated.run(cells)
