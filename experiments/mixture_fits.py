"""Geometries of two mixtures, fitted to the scores that CV fig 11 prints."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.optimize import least_squares, linprog

import condvendi_jax as cv
from experiments.generators import mixtures2d
from experiments.generators.mixtures2d import LAYOUTS, OUTPUT_MODES, PROMPT_MODES, WEIGHTS, Geometry
from experiments.records import typed

SCORES = ("Conditional-Vendi", "Information-Vendi")
NEAR = 0.03
# Families of spreads, by how many numbers they leave free beside the extent.
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


class Aim(NamedTuple):
    """The scores to be met, and how many pairs they and the trials of a fit have."""

    printed: tuple[Panel, ...]
    bandwidth: float
    n: int
    trial: int

    def log_scores(self, geometry: Geometry, n: int, seed: int) -> np.ndarray:
        """H(X|T) and I(X;T) of one draw at every panel, in nats, `[panels, 2]`."""
        found = [
            log_scores(geometry, panel, n=n, seed=seed, bandwidth=self.bandwidth)
            for panel in self.printed
        ]
        return np.stack(found)


def read_printed(path: str) -> tuple[Panel, ...]:
    """Scores of a file.

    Raises:
      ValueError: it is no list of panels that a geometry can have.
    """
    try:
        panels = tuple(typed(Panel, entry) for entry in json.loads(pathlib.Path(path).read_text()))
        if not panels or not all(_possible(panel) for panel in panels):
            raise ValueError("components from 1 to 6, scores above 0")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--printed: {path}: expected a list of {{prompts, outputs, conditional, "
            f"information}} ({error})."
        ) from error
    return panels


def _possible(panel: Panel) -> bool:
    known = panel.prompts in PROMPT_MODES and panel.outputs in OUTPUT_MODES
    return known and panel.conditional > 0 and panel.information > 0


def read_geometry(path: str) -> Geometry:
    """The geometry of a file.

    Raises:
      ValueError: the file is no geometry.
    """
    try:
        geometry = typed(Geometry, json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
        numbers = numbers_of(geometry)
        if geometry.layout not in LAYOUTS or geometry.weight not in WEIGHTS:
            raise ValueError(f"{geometry.layout}, {geometry.weight}: unknown")
        if len(numbers) != len(NUMBERS) or not np.all(np.isfinite(numbers) & (numbers > 0)):
            raise ValueError("an extent and twice three spreads above 0")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--geometry: {path}: expected layout, extent, prompt_spreads, output_spreads and "
            f"weight ({error})."
        ) from error
    return geometry


def numbers_of(geometry: Geometry) -> np.ndarray:
    """The extent and the spreads of a geometry, as `NUMBERS` names them."""
    return np.array([geometry.extent, *geometry.prompt_spreads, *geometry.output_spreads])


def fit(
    aim: Aim,
    family: Family,
    parameters: np.ndarray,
    seeds: Sequence[int],
    say: Callable[[str], None],
) -> xr.Dataset:
    """Fits one family on few points, then twice with what many points change.

    The last time it is fourth powers of the residuals whose sum is made least, so that what is
    farthest off counts for most. A family that comes within twice `NEAR` is then moved, on all
    draws of n points, to where its worst score is the least off.

    Args:
      aim: the scores to be met.
      family: which geometries are tried.
      parameters: where the fit starts, as `start` gives them.
      seeds: of the trials' draw, and of every draw on which the fit is judged.
      say: called with a few words before each step.

    Returns:
      `value`, the scores of every draw at every panel; `geometry`, its `NUMBERS`; `trials`, how
      many geometries were tried; `sensitivity`, how the logarithms of the scores change with those
      of the fitted parameters.
    """
    first, *seeds = seeds
    wanted = np.log(np.array([(p.conditional, p.information) for p in aim.printed]))
    trials, change = 0, np.zeros_like(wanted)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        nonlocal trials
        trials += 1
        found = aim.log_scores(geometry_of(family, parameters), aim.trial, first)
        return (found + change - wanted).ravel()

    def steep(parameters: np.ndarray) -> np.ndarray:
        found = residuals(parameters)
        return found * np.abs(found) / NEAR

    bounds = np.log(aim.bandwidth * np.array(_BOUNDS))
    parameters = np.clip(parameters, bounds[0] + _STEP, bounds[1] - _STEP)
    for step in range(_ROUNDS):
        say(f"round {step + 1} of {_ROUNDS}")
        last = step == _ROUNDS - 1
        target = steep if last else residuals
        fitted = least_squares(target, parameters, bounds=bounds, diff_step=_STEP, max_nfev=_STEPS)
        parameters, geometry = fitted.x, geometry_of(family, fitted.x)
        draws = seeds[: None if last else 1]
        many = np.stack([aim.log_scores(geometry, aim.n, seed) for seed in draws])
        change = many.mean(axis=0) - aim.log_scores(geometry, aim.trial, first)

    def result() -> xr.Dataset:
        moved = [residuals(parameters + _STEP * unit) for unit in np.eye(len(parameters))]
        sensitivity = (np.stack(moved, axis=1) - residuals(parameters)[:, None]) / _STEP
        geometry = geometry_of(family, parameters)
        return as_result(aim.printed, family, geometry, np.exp(many), sensitivity, trials)

    found = result()
    for _ in range(_ROUNDS):
        worst = float(abs(deviations(found, aim.printed)).max())
        if not NEAR < worst <= 2 * NEAR:
            break
        say(f"{worst:.1%} off")
        off = (many.mean(axis=0) - wanted).ravel()
        parameters = parameters + least_worst(off, _flat(found.sensitivity))
        geometry = geometry_of(family, parameters)
        many = np.stack([aim.log_scores(geometry, aim.n, seed) for seed in seeds])
        further = result()
        if abs(deviations(further, aim.printed)).max() >= worst:
            break
        found = further
    return found.assign(trials=trials)


def as_result(
    printed: Sequence[Panel],
    family: Family,
    geometry: Geometry,
    scores: np.ndarray,
    sensitivity: np.ndarray,
    trials: int,
) -> xr.Dataset:
    """What `fit` returns, with names."""
    shape = (len(printed), len(SCORES), -1)
    return xr.Dataset(
        {
            "value": (("draw", "panel", "score"), scores),
            "sensitivity": (("panel", "score", "parameter"), sensitivity.reshape(shape)),
            "geometry": (("number",), numbers_of(geometry)),
            "trials": trials,
        },
        {
            "panel": [f"T: {panel.prompts}, X: {panel.outputs}" for panel in printed],
            "score": list(SCORES),
            "parameter": ["extent", *SPREADS[family.spreads]],
            "number": list(NUMBERS),
        },
    )


def _flat(sensitivity: xr.DataArray) -> np.ndarray:
    return sensitivity.values.reshape(-1, sensitivity.sizes["parameter"])


def least_worst(residuals: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
    """The step after which, to first order, the largest residual is the least: a linear program."""
    count = sensitivity.shape[1]
    worst = -np.ones((len(residuals), 1))
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.block([[sensitivity, worst], [-sensitivity, worst]]),
        b_ub=np.concatenate([-residuals, residuals]),
        bounds=[(-_FARTHEST, _FARTHEST)] * count + [(0, None)],
    )
    return found.x[:count]


def deviations(found: xr.Dataset, printed: Sequence[Panel]) -> xr.DataArray:
    """How far the mean scores are off the printed ones, relatively, by panel and score."""
    wanted = [(panel.conditional, panel.information) for panel in printed]
    return found.value.mean("draw") / xr.DataArray(wanted, dims=("panel", "score")) - 1


def widths(found: xr.Dataset) -> xr.DataArray:
    """By how much each fitted parameter could be off, if the scores were off by `NEAR`.

    Relatively; far above 1 where the scores do not say.

    Args:
      found: the fit of one family.
    """
    sensitivity = found.sensitivity.dropna("parameter")
    _, singular, directions = np.linalg.svd(_flat(sensitivity), full_matrices=False)
    sharp = NEAR * np.linalg.norm(directions / np.maximum(singular, _FLAT)[:, None], axis=0)
    return xr.DataArray(sharp, {"parameter": sensitivity.parameter})


def start(family: Family, bandwidth: float) -> np.ndarray:
    """Where a fit starts: the logarithms of the extent and of what the spreads are made of.

    Components far apart add their effective numbers of modes, so that the printed Vendi scores say
    how wide each is: half of the bandwidth for two, a quarter for four, a fifth for six.
    """
    spreads = {
        "one": (0.75, 0.5),
        "power": (1.0, 1.0, 1.0 / bandwidth),
        "own": (1.0, 0.5, 0.25, 0.5, 0.25, 0.2),
    }
    return np.log(bandwidth * np.array([_EXTENT, *spreads[family.spreads]]))


def geometry_of(family: Family, parameters: np.ndarray) -> Geometry:
    """The geometry of a family with these parameters, as `start` has them."""
    extent, *rest = np.exp(parameters).tolist()
    if family.spreads == "own":
        prompts, outputs = rest[: len(PROMPT_MODES)], rest[len(PROMPT_MODES) :]
    else:
        of_prompts, of_outputs, power = (*rest, 0.0)[:3]
        prompts = [of_prompts * modes**-power for modes in PROMPT_MODES]
        outputs = [of_outputs * modes**-power for modes in OUTPUT_MODES]
    return Geometry(family.layout, extent, tuple(prompts), tuple(outputs), family.weight)


def log_scores(
    geometry: Geometry, panel: Panel, *, n: int, seed: int, bandwidth: float
) -> np.ndarray:
    """H(X|T) and I(X;T) of one draw of n pairs, in nats, `[2]`."""
    mixtures = geometry.outputs(panel.outputs), geometry.prompts(panel.prompts)
    centres = tuple(np.asarray(mixture.centres).tobytes() for mixture in mixtures)
    spreads = tuple(float(mixture.spread) for mixture in mixtures)
    return _log_scores(centres, spreads, geometry.weight, n, seed, bandwidth)


# Most panels stay as they are when one number changes.
@functools.lru_cache(maxsize=1024)
def _log_scores(
    centres: tuple[bytes, ...],
    spreads: tuple[float, ...],
    weight: str,
    n: int,
    seed: int,
    bandwidth: float,
) -> np.ndarray:
    outputs, prompts = (
        mixtures2d.Mixture(jnp.asarray(np.frombuffer(c, np.float32).reshape(-1, 2)), jnp.asarray(s))
        for c, s in zip(centres, spreads, strict=True)
    )
    pairs = mixtures2d.draw_pairs(outputs, prompts, jax.random.key(seed), n, weight)
    kernel = cv.Gaussian(bandwidth)
    found = cv.decompose(pairs.outputs, pairs.prompts, output_kernel=kernel, prompt_kernel=kernel)
    return np.array(found.log_scores[1:], np.float64)
