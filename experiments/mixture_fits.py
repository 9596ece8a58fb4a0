"""Geometries of two mixtures, fitted to the scores that CV fig 11 prints."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from scipy.optimize import least_squares, linprog

import condvendi_jax as cv
from experiments import records
from experiments.generators import mixtures2d
from experiments.generators.mixtures2d import OUTPUT_MODES, PROMPT_MODES, Geometry

SCORES = ("Conditional-Vendi", "Information-Vendi")
NEAR = 0.03
# Families of spreads, by the numbers that they leave free beside the extent.
SPREADS = {
    "one": ("prompts", "outputs"),
    "power": ("prompts", "outputs", "power"),
    "own": (*(f"prompts {m}" for m in PROMPT_MODES), *(f"outputs {m}" for m in OUTPUT_MODES)),
}
NUMBERS = ("extent", *SPREADS["own"])
_ROUNDS, _STEPS = 3, 5
_EXTENT = 3.5  # Bandwidths.
_FLAT = 1e-4  # Of a singular value: its direction is not seen in the scores.
_BOUNDS = (0.02, 10.0)  # Bandwidths.
_FARTHEST = 0.08  # Of a parameter in one step, relatively.
_STEP = 0.04  # Of a parameter, relatively, in a difference quotient: matchings are not smooth.


@dataclasses.dataclass(frozen=True)
class Panel:
    """What a panel of CV fig 11 prints: the components of both mixtures, and two scores."""

    prompts: int
    outputs: int
    conditional: float
    information: float


PRINTED = (
    Panel(1, 4, 2.21, 2.97),
    Panel(4, 4, 1.34, 4.61),
    Panel(2, 2, 1.55, 4.01),
    Panel(2, 6, 2.46, 3.42),
)


class Family(NamedTuple):
    """Geometries of one layout and one weight of the matching, with spreads of `SPREADS`."""

    layout: str
    weight: str
    spreads: str

    def start(self, bandwidth: float) -> np.ndarray:
        """Where a fit starts: logarithms of the extent and of what the spreads are made of.

        Components far apart add their effective numbers of modes, so that the printed Vendi scores
        say how wide each is: half of the bandwidth for two, a quarter for four, a fifth for six.
        """
        spreads = {
            "one": (0.75, 0.5),
            "power": (1.0, 1.0, 1.0 / bandwidth),
            "own": (1.0, 0.5, 0.25, 0.5, 0.25, 0.2),
        }
        return np.log(bandwidth * np.array([_EXTENT, *spreads[self.spreads]]))

    def geometry(self, parameters: np.ndarray) -> Geometry:
        """The geometry with these parameters, as `start` has them."""
        extent, *rest = np.exp(parameters).tolist()
        if self.spreads == "own":
            prompts, outputs = rest[: len(PROMPT_MODES)], rest[len(PROMPT_MODES) :]
        else:
            of_prompts, of_outputs, power = (*rest, 0.0)[:3]
            prompts = [of_prompts * modes**-power for modes in PROMPT_MODES]
            outputs = [of_outputs * modes**-power for modes in OUTPUT_MODES]
        return Geometry(self.layout, extent, tuple(prompts), tuple(outputs), self.weight)


class Aim(NamedTuple):
    """The scores to be met."""

    printed: Sequence[Panel]
    bandwidth: float  # Of both kernels.
    n: int  # Pairs, on which a fit is judged.
    trial: int  # Pairs in the trials of a fit.
    seeds: Sequence[int]  # Of the draw of the trials, and of every draw on which a fit is judged.


def read_printed(path: str) -> tuple[Panel, ...]:
    """The scores of a file, which must be a list of panels that a geometry can have."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        panels = records.typed(tuple[Panel, ...], content)
        known = all(p.prompts in PROMPT_MODES and p.outputs in OUTPUT_MODES for p in panels)
        positive = all(p.conditional > 0 and p.information > 0 for p in panels)
        if not (panels and known and positive):
            raise ValueError(
                f"prompts of {PROMPT_MODES}, outputs of {OUTPUT_MODES}, scores above 0"
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--printed: {path}: expected a list of {{prompts, outputs, conditional, "
            f"information}} ({error})."
        ) from error
    return panels


def numbers_of(geometry: Geometry) -> np.ndarray:
    """The extent and the spreads of a geometry, as `NUMBERS` names them."""
    return np.array([geometry.extent, *geometry.prompt_spreads, *geometry.output_spreads])


def fit(aim: Aim, family: Family, parameters: np.ndarray, say: Callable[[str], None]) -> xr.Dataset:
    """Fits one family from some parameters on, on few points, then twice with what many change.

    The last time it is fourth powers of the residuals whose sum is made least, so that what is
    farthest off counts for most. A family that comes within twice `NEAR` is then moved, on all
    draws of n points, to where its worst score is the least off.

    Gives `value`, the scores of every draw at every panel; `geometry`, its `NUMBERS`; `trials`, how
    many geometries were tried; `sensitivity`, how the logarithms of the scores change with those of
    the fitted parameters.
    """
    first, *seeds = aim.seeds
    wanted = np.log(np.array([(p.conditional, p.information) for p in aim.printed]))
    trials, change = 0, np.zeros_like(wanted)

    def logs(parameters: np.ndarray, n: int, *seeds: int) -> np.ndarray:
        """Of the scores, `[seeds, panels, 2]`."""
        geometry, of_all = family.geometry(parameters), {"n": n, "bandwidth": aim.bandwidth}
        found = [[log_scores(geometry, p, seed=s, **of_all) for p in aim.printed] for s in seeds]
        return np.array(found)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        nonlocal trials
        trials += 1
        return (logs(parameters, aim.trial, first)[0] + change - wanted).ravel()

    def steep(parameters: np.ndarray) -> np.ndarray:
        found = residuals(parameters)
        return found * np.abs(found) / NEAR

    def result() -> xr.Dataset:
        moved = [residuals(parameters + _STEP * unit) for unit in np.eye(len(parameters))]
        sensitivity = (np.stack(moved, axis=1) - residuals(parameters)[:, None]) / _STEP
        shape = (*wanted.shape, -1)
        return xr.Dataset(
            {
                "value": (("draw", "panel", "score"), np.exp(many)),
                "sensitivity": (("panel", "score", "parameter"), sensitivity.reshape(shape)),
                "geometry": (("number",), numbers_of(family.geometry(parameters))),
            },
            {
                "panel": [f"T: {panel.prompts}, X: {panel.outputs}" for panel in aim.printed],
                "score": list(SCORES),
                "parameter": ["extent", *SPREADS[family.spreads]],
                "number": list(NUMBERS),
            },
        )

    bounds = np.log(aim.bandwidth * np.array(_BOUNDS))
    parameters = np.clip(parameters, bounds[0] + _STEP, bounds[1] - _STEP)
    limits: dict[str, Any] = {"bounds": bounds, "diff_step": _STEP, "max_nfev": _STEPS}
    for step in range(_ROUNDS):
        say(f"round {step + 1} of {_ROUNDS}")
        last = step == _ROUNDS - 1
        parameters = least_squares(steep if last else residuals, parameters, **limits).x
        many = logs(parameters, aim.n, *(seeds if last else seeds[:1]))
        change = many.mean(axis=0) - logs(parameters, aim.trial, first)[0]
    found = result()
    for _ in range(_ROUNDS):
        worst = off(found, aim.printed).max()
        if not NEAR < worst <= 2 * NEAR:
            break
        say(f"{worst:.1%} off")
        parameters = parameters + least_worst(many.mean(axis=0) - wanted, found.sensitivity.values)
        many = logs(parameters, aim.n, *seeds)
        further = result()
        if off(further, aim.printed).max() >= worst:
            break
        found = further
    return found.assign(trials=trials)


def least_worst(residuals: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
    """The step `[parameters]` after which, to first order, the largest residual is the least.

    A linear program, of residuals `[...]` that change by `[..., parameters]`.
    """
    slopes, residuals = sensitivity.reshape(residuals.size, -1), residuals.ravel()
    worst, count = -np.ones((len(slopes), 1)), slopes.shape[1]
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.block([[slopes, worst], [-slopes, worst]]),
        b_ub=np.concatenate([-residuals, residuals]),
        bounds=[(-_FARTHEST, _FARTHEST)] * count + [(0, None)],
    )
    return found.x[:count]


def off(found: xr.Dataset, printed: Sequence[Panel]) -> xr.DataArray:
    """How far the mean scores are off the printed ones, relatively, by panel and score."""
    wanted = [(panel.conditional, panel.information) for panel in printed]
    return abs(found.value.mean("draw") / xr.DataArray(wanted, dims=("panel", "score")) - 1)


def widths(found: xr.Dataset) -> xr.DataArray:
    """By how much each fitted parameter could be off, if the scores were off by `NEAR`.

    Relatively, of the fit of one family; far above 1 where the scores do not say.
    """
    sensitivity = found.sensitivity.dropna("parameter")
    slopes = sensitivity.values.reshape(-1, sensitivity.sizes["parameter"])
    _, singular, directions = np.linalg.svd(slopes, full_matrices=False)
    sharp = NEAR * np.linalg.norm(directions / np.maximum(singular, _FLAT)[:, None], axis=0)
    return xr.DataArray(sharp, {"parameter": sensitivity.parameter})


def log_scores(
    geometry: Geometry, panel: Panel, *, n: int, seed: int, bandwidth: float
) -> np.ndarray:
    """H(X|T) and I(X;T) of one draw of n pairs, in nats, `[2]`."""
    mixtures = geometry.prompts(panel.prompts), geometry.outputs(panel.outputs)
    prompts, outputs = ((float(mixture.spread),) * 3 for mixture in mixtures)
    own = dataclasses.replace(geometry, prompt_spreads=prompts, output_spreads=outputs)
    return _log_scores(own, panel.prompts, panel.outputs, n, seed, bandwidth)


# Most panels stay as they are when the spread of one mixture changes.
@functools.lru_cache(maxsize=1024)
def _log_scores(
    geometry: Geometry, prompts: int, outputs: int, n: int, seed: int, bandwidth: float
) -> np.ndarray:
    mixtures = geometry.outputs(outputs), geometry.prompts(prompts)
    pairs = mixtures2d.draw_pairs(*mixtures, jax.random.key(seed), n, geometry.weight)
    kernel = cv.Gaussian(bandwidth)
    found = cv.decompose(pairs.outputs, pairs.prompts, output_kernel=kernel, prompt_kernel=kernel)
    return np.array(found.log_scores[1:], np.float64)
