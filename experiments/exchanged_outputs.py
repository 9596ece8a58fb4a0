"""Outputs exchanged within and between prompts, and metrics that may notice it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments.data import PairedEmbeddings

SAME, OTHER = "same prompt", "other prompts"
# A score is saturated where this much of its whole change has happened.
SATURATED = 0.9
# Below so many standard deviations over the draws a metric is said not to move.
_MOVES = 2.0
_ROUNDS = 1000


class Drawn(NamedTuple):
    """Rows of one draw: some are scored, others are what MID and the map are fitted to."""

    rows: np.ndarray  # That are scored, `[n]`.
    partners: np.ndarray  # Another output of each one's prompt, none twice, `[n]`.
    order: np.ndarray  # In which the outputs are replaced, `[n]`.
    reference: np.ndarray  # All rows of the other half of the prompts.


def draw_rows(prompt: np.ndarray, scored: int, generator: np.random.Generator) -> Drawn:
    """Half of the prompts to score, half to fit to; half of a prompt's outputs as partners."""
    order = generator.permutation(len(prompt))
    ends = np.cumsum(np.bincount(prompt))[:-1]
    of_prompt = np.split(order[np.argsort(prompt[order], kind="stable")], ends)
    several = [rows for rows in of_prompt if len(rows) > 1]
    shuffled = [several[k] for k in generator.permutation(len(several)).tolist()]
    half = len(shuffled) // 2
    rows = np.concatenate([found[: len(found) // 2] for found in shuffled[:half]])
    partners = np.concatenate([found[-(len(found) // 2) :] for found in shuffled[:half]])
    return Drawn(
        rows[:scored],
        partners[:scored],
        generator.permutation(min(scored, len(rows))),
        np.concatenate(shuffled[half:]),
    )


def by_partners(drawn: Drawn, replaced: int) -> np.ndarray:
    """The rows of the outputs, the first `replaced` of the order by their partners, `[n]`."""
    rows, chosen = drawn.rows.copy(), drawn.order[:replaced]
    rows[chosen] = drawn.partners[chosen]
    return rows


def by_others(
    drawn: Drawn, prompt: np.ndarray, replaced: int, generator: np.random.Generator
) -> np.ndarray:
    """The rows of the outputs, the first `replaced` of the order permuted among them, `[n]`.

    No output stays with its prompt, unless one prompt has most of those that are permuted. The
    outputs as a whole are the same, so that nothing but their relation to the prompts changes.
    """
    chosen = drawn.order[:replaced]
    own, given = prompt[drawn.rows[chosen]], generator.permutation(drawn.rows[chosen])
    for _ in range(_ROUNDS):
        stayed = np.flatnonzero(prompt[given] == own)
        if not stayed.size:
            break
        with_whom = int(generator.integers(replaced))
        given[[stayed[0], with_whom]] = given[[with_whom, stayed[0]]]
    rows = drawn.rows.copy()
    rows[chosen] = given
    return rows


def alignment(
    pairs: PairedEmbeddings, drawn: Drawn, dimensions: int
) -> Callable[[np.ndarray], list[float]]:
    """MID (MID eq. 5) and the mean cosine of prompts and mapped outputs, as a function of outputs.

    The two embeddings share no space. Both are centred and turned onto their leading directions in
    the reference; the map is the least-squares one from outputs to prompts there, and MID's
    Gaussian is that of the reference.
    """
    turn_outputs = leading(pairs.outputs[drawn.reference], dimensions)
    turn_prompts = leading(pairs.prompts[drawn.reference], dimensions)
    reference = turn_outputs(pairs.outputs[drawn.reference])
    targets = turn_prompts(pairs.prompts[drawn.reference])
    prompts = turn_prompts(pairs.prompts[drawn.rows])
    linear = np.linalg.lstsq(reference, targets)[0]
    given, fitted_x, fitted_t = (a.astype(np.float32) for a in (prompts, reference, targets))

    def measure(outputs: np.ndarray) -> list[float]:
        turned = turn_outputs(outputs)
        mid = cv.baselines.mutual_information_divergence(
            turned.astype(np.float32), given, reference_outputs=fitted_x, reference_prompts=fitted_t
        )
        mapped = turned @ linear
        norms = np.linalg.norm(mapped, axis=1) * np.linalg.norm(prompts, axis=1)
        return [float(mid), float(np.mean(np.sum(mapped * prompts, axis=1) / norms))]

    return measure


def leading(points: np.ndarray, dimensions: int) -> Callable[[np.ndarray], np.ndarray]:
    """Points, less the mean of these, on the leading principal directions of these."""
    mean = np.mean(points, axis=0, dtype=np.float64)
    centred = points - mean
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dimensions]
    return lambda others: (others - mean) @ directions


def left(found: xr.Dataset) -> xr.DataArray:
    """How much is left of the range of each metric, of each draw.

    1 where nothing is replaced, 0 where all outputs are others'; NaN where the range is within
    chance of a draw.
    """
    of_other = found.value.sel(replaced=OTHER, drop=True)
    end = of_other.sel(share=1, drop=True)
    span = of_other.sel(share=0, drop=True) - end
    moves = abs(span.mean("repeat")) > _MOVES * span.std("repeat", ddof=1)
    return (found.value - end) / span.where(moves & (span != 0))


def saturates(curves: xr.DataArray) -> xr.DataArray:
    """The share from which on 90% of the change have happened for good, of each draw."""

    def reached(left: np.ndarray) -> float:
        if np.isnan(left).any():
            return np.nan
        last = np.flatnonzero(1 - left < SATURATED)[-1]
        around = slice(last, last + 2)
        return np.interp(SATURATED, 1 - left[around], shares[around])

    shares = curves.share.values
    return xr.apply_ufunc(reached, curves, input_core_dims=[["share"]], vectorize=True)
