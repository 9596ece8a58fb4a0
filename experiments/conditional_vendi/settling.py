"""Curves of scores against the sample size: means, from where they settle, errors of estimates."""

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
    """The mean of each score over the orders that have a size; where several have, the `error`."""
    scores = scores_of(found)
    mean, count = scores.mean("repeat"), scores.count("repeat")
    # Not `std(ddof=1)`, which warns where there is one order.
    variance = ((scores - mean) ** 2).sum("repeat") / (count - 1).where(count > 1)
    return xr.Dataset({"value": mean, "error": (variance**0.5).where(scores.n < scores.n.max())})


def settled_from(curve: xr.DataArray, near: float = NEAR) -> int | None:
    """The least size from which a curve stays near its last value; None where only the last is."""
    curve = curve.dropna("n")
    away = np.flatnonzero(np.abs(curve.values / curve.values[-1] - 1) > near)
    first = away[-1] + 1 if away.size else 0
    return int(curve.n.values[first]) if first < curve.size - 1 else None


def verdict(curve: xr.DataArray) -> tuple[str, int | None]:
    """Whether a curve has settled, in words, and from which size on; None where it has not.

    It has if it stays near its last value from a size on that the data have at least twice.
    """
    start = settled_from(curve)
    if start is None:
        return "not settled", None
    if 2 * start > curve.dropna("n").n.max():
        return f"cannot say (near from {start:,})", None
    return f"settled from {start:,}", start


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
