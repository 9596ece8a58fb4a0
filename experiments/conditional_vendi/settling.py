"""Curves of scores against the sample size: where samples settle, and errors of estimates."""

import itertools
from collections.abc import Sequence

import numpy as np
import xarray as xr

from condvendi_jax.entropies import log_scores
from experiments import lab

NEAR = 0.02  # Of its last value: how near a curve that has settled stays.
SCORES = ("vendi", "conditional", "information")
TERMS = ("outputs", "prompts", "joint")


def entropies(results: Sequence, curves: list[str], sizes: list[int]) -> xr.Dataset:
    """H(X), H(T) and H(X, T) by curve and size, `entropy` in nats; with the names of the scores."""
    values = [[getattr(result, f"entropy_{term}") for term in TERMS] for result in results]
    labels = {"curve": curves, "term": list(TERMS), "n": sizes}
    along = {"entropy": (tuple(labels), np.array(values))}
    return xr.Dataset(along, labels | {"score": list(SCORES)})


def scores_of(found: xr.Dataset) -> xr.DataArray:
    """The scores out of the three entropies, in effective numbers of modes."""
    logs = log_scores(*(found.entropy.astype(float).sel(term=t, drop=True) for t in TERMS))
    scores = xr.concat([np.exp(getattr(logs, score)) for score in SCORES], "score")
    return scores.assign_coords(score=list(SCORES))


def over_orders(found: xr.Dataset) -> xr.Dataset:
    """The mean of each score over the `orders` that have a size, and the `error` of one sample.

    Few orders say little of one size, so the deviation is one constant for all sizes, over √n.
    """
    scores = scores_of(found)
    mean, orders, n = scores.mean("repeat"), scores.count("repeat"), scores.n
    axes = [["repeat", "n"], ["n"]]
    constant = xr.apply_ufunc(_pooled, scores / mean - 1, n, input_core_dims=axes, vectorize=True)
    return xr.Dataset({"value": mean, "error": mean * (constant / n) ** 0.5, "orders": orders})


def _pooled(away: np.ndarray, n: np.ndarray) -> float:
    """n times the variance of a sample, from distances `[orders, n]` to the mean over the orders.

    Samples of an order overlap, but each d further of N pairs are new: what they add to n times the
    distance has the variance (d - d²/N) times the constant.
    """
    if len(away) < 2 or not (there := np.isfinite(away).all(axis=0)).any():
        return np.nan
    further, added = (np.diff(of[..., there], prepend=0) for of in (n, n * away))
    return np.mean(np.sum(added**2, axis=0) / (len(away) - 1) / (further - further**2 / n[-1]))


def samples_settle(curve: xr.Dataset, near: float = NEAR) -> int | None:
    """The least size from which single samples stay near the last value; None where none do.

    Two deviations of a sample are added to the distance of the mean of `orders` samples, as far as
    that is beyond the mean's own error.
    """
    curve = curve.dropna("n", subset=["value"])
    last, error = curve.value[-1], curve.error.fillna(np.inf)
    away = np.maximum((curve.value - last) ** 2 - error**2 / curve.orders, 0) ** 0.5
    near_end = (away + 2 * error <= near * last).values
    first = near_end.size - np.argmin(near_end[::-1]) if not near_end.all() else 0
    return int(curve.n.values[first]) if first < curve.n.size - 1 else None


def verdict(curve: xr.Dataset, near: float = NEAR) -> tuple[str, int | None]:
    """Whether single samples settle, in words, and from which size on; None where they do not.

    They do if they stay near the last value from a size on that the data have at least twice.
    """
    start = samples_settle(curve, near)
    if curve.error.isnull().all():
        return "has one order", None
    if start is None:
        return "does not settle", None
    if 2 * start > curve.value.dropna("n").n.max():
        return f"may settle at n = {start:,}", None
    return f"settles at n = {start:,}", start


def held(run: lab.Run, known: lab.Run) -> tuple[int, int]:
    """How many intervals of estimated scores hold those of all eigenvalues, and how many are."""
    low, high = (run.found.interval.isel(end=end) for end in range(2))
    values = scores_of(known.found).where(run.found.method == "stored").where(low.notnull())
    return int(((low <= values) & (values <= high)).sum()), int(values.count())


def deviation(runs: Sequence[lab.Run], exact: Sequence[lab.Run], score: str) -> float | None:
    """The largest relative error of estimated scores, where other runs know the eigenvalues."""
    errors = []
    for run, known in itertools.product(runs, exact):
        one, other = ((of.identity["arrays"], of.seed) for of in (run, known))
        # To three digits: others come from rounding.
        widths = [set(of.study.bandwidths.widths.split(", ")) for of in (run, known)]
        rules = [words.split()[0] for words in widths[0] & widths[1]]
        if one == other and rules:
            ratio = scores_of(run.found) / scores_of(known.found)  # At the sizes of both.
            errors.append(abs(ratio.sel(score=score, rule=rules) - 1).max().item())
    return max(errors, default=None)
