"""Sets of which one output to each prompt is kept, and methods that read the number from them."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.optimize import isotonic_regression

from condvendi_jax.grams import sums as pairwise
from condvendi_jax.statistics import asked_once
from condvendi_jax.statistics.asked_once import Mean
from experiments import data
from experiments.calibration.bandwidth_rules import squared_distances

# The label that parts each shipped set; of captioning, all photographs are a set too.
FAMILIES = {
    "captioning": "pictures",
    "human": "task",
    **dict.fromkeys(("answers", "post_training", "gallery", "language", "video"), "models"),
    **dict.fromkeys(("stories", "sketches", "sketched_animals", "quickdraw"), "models"),
    "emoji": None,
}
WHOLE, LABELLED = "all", "designers as labels"
FEWEST = 15  # Prompts with two outputs or more.
# The constants that are tried, and what is read at distance 0.
NEIGHBOURS, NARROW = (5, 8, 15), (0.05, 0.1, 0.25)
DISTANCE, SQUARED = "distance", "squared distance"
LINES = (DISTANCE, SQUARED, "distance, shifted")
_CONSTANTS: Mapping[str, tuple[Any, Any]] = {
    "neighbours": (asked_once.NEIGHBOURS, NEIGHBOURS),
    "narrow": (asked_once.NARROW, NARROW),
    "line": (DISTANCE, LINES),
    "errors": (asked_once.ERRORS, (1.0, 2.0, 3.0)),
    "widest": (asked_once.WIDEST, (1.5, 2.0, 3.0)),
    "seen": (0.0, (0.0, 0.25, 0.4)),
}
OWN = {name: own for name, (own, _) in _CONSTANTS.items()}  # The library's.
GRID = {name: list(values) for name, (_, values) in _CONSTANTS.items()}  # Those that are tried.
READ_OUTS = ("nearest prompt", "isotonic", "Lepski")
_LEVEL = 0.05
_WIDTHS = 2.0 ** np.arange(-5, 1.1, 0.5)  # Of Lepski's choice: times the median distance.
_PAIRS, _PROMPTS, _ERRORS = 20, 8, 2.0  # The fewest that it takes, and when means differ.


@dataclasses.dataclass(frozen=True)
class Outputs:
    """All outputs to the prompts of a set that have several."""

    outputs: np.ndarray  # `[n, d]`, by prompt.
    prompts: np.ndarray  # One row for each, `[P, d_t]`.
    starts: np.ndarray  # Where the outputs to each begin, and n, `[P + 1]`.
    groups: np.ndarray | None = None  # Labels `[n]`: outputs of one are not compared.

    @classmethod
    def of(cls, pairs: data.PairedEmbeddings, grouped: bool = False) -> "Outputs":
        """The outputs of pairs, those of one model in one group if `grouped`."""
        numbers = pairs.prompt_numbers
        several = np.bincount(numbers)[numbers] > 1
        order = np.flatnonzero(several)[np.argsort(numbers[several], kind="stable")]
        counts = np.unique(numbers[order], return_counts=True)[1]
        starts = np.append(0, np.cumsum(counts))
        groups = pairs.labels["models"][order] if grouped else None
        return cls(pairs.outputs[order], pairs.prompts[order[starts[:-1]]], starts, groups)

    def drawn(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """The rows of one output to each prompt, `[count, P]`."""
        counts = np.diff(self.starts)
        return self.starts[:-1] + rng.integers(counts, size=(count, counts.size))

    def similarity(self, bandwidths: Sequence[float]) -> np.ndarray:
        """The mean over prompts of the mean squared kernel of different outputs to it, by width."""
        found = []
        for start, end in itertools.pairwise(self.starts):
            squares = squared_distances(self.outputs[start:end])
            apart = squares[np.triu_indices(end - start, 1)]
            found.append([np.mean(np.exp(-apart / s**2)) for s in bandwidths])
        return np.mean(found, axis=0)


def sets_of(family: str) -> dict[str, Outputs]:
    """The sets of a family with enough prompts, by name."""
    pairs, role = data.load(family), FAMILIES[family]
    if "matched" in pairs.labels:  # The same answers, cut.
        pairs = pairs.rows(pairs.labels["matched"] == 0)
    if role is None:
        return {family: Outputs.of(pairs), f"{family}: {LABELLED}": Outputs.of(pairs, grouped=True)}
    labels = pairs.labels[role]
    parts = {name: Outputs.of(pairs.rows(labels == name)) for name in np.unique(labels).tolist()}
    if family == "captioning":
        parts = {WHOLE: Outputs.of(pairs), **parts}
    return {f"{family}: {k}": part for k, part in parts.items() if len(part.prompts) >= FEWEST}


def tried(outputs: Outputs, drawn: np.ndarray, bandwidths: Sequence[float]) -> xr.Dataset:
    """What the library decides by, of each draw `[draws, P]`, for other constants and lines.

    `far`, `near`: mean similarities of all and of near pairs; `near_low` the lower limit of `near`,
    `at_least` of the largest; `zero`, `zero_error`: what a line reads at distance 0.
    """
    n = len(outputs.prompts)
    shares = np.full(n, 1 / n)
    points = jnp.asarray(outputs.prompts)
    apart, others = pairwise.nearest(points, np.full(n, -1), min(max(NEIGHBOURS), n - 1))
    near_by = [
        asked_once.near_pairs(apart[:, :count], others[:, :count], shares, narrow)
        for count, narrow in itertools.product(NEIGHBOURS, NARROW)
    ]
    far, limits, zeros = [], [], []
    for rows in drawn:
        both = outputs.outputs[rows], outputs.prompts
        x, t = (of - of.mean(axis=0) for of in map(np.float64, both))
        # As the library finds it: 0 where outputs and prompts have no space in common.
        slope = max(0.0, np.sum(x * t) / np.sum(t**2)) if x.shape == t.shape else 0.0
        places = x, x - slope * t if slope else x  # The second move along with their prompts.
        squares, pairs, everything = squared_distances(x), n * (n - 1), []
        for width in bandwidths:
            sums = np.sum(np.exp(-squares / width**2), axis=1) - 1
            value = float(sums.sum()) / pairs
            everything.append(Mean(value, 2 * (sums - value * (n - 1)) / pairs))
        far.append([mean.value for mean in everything])
        level = _LEVEL / (2 + (slope > 0))
        for near in near_by:
            squared = near._replace(distances=near.distances**2)
            apart_by = [np.sum((of[near.one] - of[near.other]) ** 2, axis=1) for of in places]
            for whole, width in zip(everything, bandwidths, strict=True):
                similar, moved = (np.exp(-of / width**2) for of in apart_by)
                mean, other = (asked_once.near_mean(near, of) for of in (similar, moved))
                of_means = (whole, shares), (mean, near.shares), (other, near.shares)
                low = [asked_once.lower_limit(*of, level) for of in of_means]
                limits.append([mean.value, low[1], max(low)])
                lines = (near, similar), (squared, similar), (near, moved)
                of_lines = [asked_once.at_zero(*line) for line in lines]
                zeros.append([[zero.value, zero.error] for zero in of_lines])
    dims = ("tried", "neighbours", "narrow", "scale")
    sizes = len(drawn), len(NEIGHBOURS), len(NARROW), len(bandwidths)
    near, low, least = np.moveaxis(np.reshape(limits, (*sizes, 3)), -1, 0)
    zero, error = np.moveaxis(np.reshape(zeros, (*sizes, len(LINES), 2)), -1, 0)
    variables = {"far": (("tried", "scale"), far)}
    variables |= {"near": (dims, near), "near_low": (dims, low), "at_least": (dims, least)}
    variables |= {"zero": ((*dims, "line"), zero), "zero_error": ((*dims, "line"), error)}
    axes = {name: GRID[name] for name in ("neighbours", "narrow", "line")}
    found = xr.Dataset(variables, axes).astype(np.float32)
    return found.transpose("neighbours", "narrow", "line", "scale", "tried")


def decided(found: xr.Dataset) -> xr.Dataset:
    """By constants, as `asked_once.known`: `low` and `high` of the similarity, and if `given`."""
    errors, widest, seen = (
        xr.DataArray(np.array(GRID[name], np.float32), {name: GRID[name]}, (name,))
        for name in ("errors", "widest", "seen")
    )
    low, high = found.at_least, np.minimum(1, found.zero + errors * found.zero_error)
    given = (high > low) & (high <= widest * low) & (found.near_low > found.far)
    with np.errstate(invalid="ignore", divide="ignore"):
        rise, whole = np.log(found.near / found.far), np.log(high / found.far)
    return xr.Dataset({"low": low, "high": high, "given": given & (rise >= seen * whole)})


def read_outs(outputs: Outputs, drawn: np.ndarray, bandwidth: float) -> list[list[float]]:
    """The similarity of outputs to one prompt, of each draw by each of `READ_OUTS`."""
    n, squares = len(outputs.prompts), squared_distances(outputs.prompts)
    np.fill_diagonal(squares, np.inf)
    order = np.argsort(squares, axis=1)[:, : max(NEIGHBOURS)]
    pairs = np.stack([np.arange(n)[:, None] + 0 * order, order], axis=-1).reshape(-1, 2)
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    one, other = pairs[np.argsort(squares[tuple(pairs.T)], kind="stable")].T
    usual, found = np.median(squares[np.triu_indices(n, 1)]), []
    weights = [np.exp(-squares / (usual * width**2)).astype(np.float32) for width in _WIDTHS]
    for rows in drawn:
        similar = np.exp(-squared_distances(outputs.outputs[rows]) / bandwidth**2)
        nearest = np.mean(similar[np.arange(n), order[:, 0]])
        falling = isotonic_regression(similar[one, other], increasing=False).x
        found.append([nearest, falling[0], _lepski(weights, similar)])
    return found


def _lepski(weights: Sequence[np.ndarray], similar: np.ndarray) -> float:
    """The mean of the widest weights that agree with all narrower ones; NaN without any."""
    low, high, found = -np.inf, np.inf, np.nan
    for of_pairs in weights:
        sums, total = np.sum(of_pairs, axis=1, dtype=float), np.sum(of_pairs, dtype=float)
        prompts, pairs = (max(np.sum(of.astype(float) ** 2), 1e-300) for of in (sums, of_pairs))
        if total**2 < _PROMPTS * prompts or total**2 < 2 * _PAIRS * pairs:
            continue
        of_rows = np.einsum("ij,ij->i", of_pairs, similar)
        mean = of_rows.sum() / total
        error = 2 * np.sqrt(np.sum((of_rows - mean * sums) ** 2)) / total
        low, high = max(low, mean - _ERRORS * error), min(high, mean + _ERRORS * error)
        if low > high:
            break
        found = float(mean)
    return found
