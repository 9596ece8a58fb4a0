"""Two mixtures of Gaussians in the plane and the pairing of their points, as in CV figure 11."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist


class Mixture(NamedTuple):
    """A mixture of isotropic Gaussians: centres `[k, 2]` and one standard deviation."""

    centres: jax.Array
    spread: jax.Array


@jax.jit
def sample(params: Mixture, key: jax.Array, prompts: ArrayLike) -> jax.Array:
    """A point `[n, 2]` of the component whose number each prompt is, `[n]`."""
    noise = jax.random.normal(key, (*jnp.shape(prompts), 2), params.centres.dtype)
    return params.centres[jnp.asarray(prompts)] + params.spread * noise


def _polygon(extent: float, modes: int) -> np.ndarray:
    """Corners of a regular polygon, `extent` from its middle; a square's sides are upright."""
    angle = 2 * math.pi * (np.arange(modes) + (0.5 if modes == 4 else 0)) / modes
    return extent * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _line(extent: float, modes: int) -> np.ndarray:
    """Evenly from `-extent` to `extent` on a line."""
    return np.stack([np.linspace(-extent, extent, modes), np.zeros(modes)], axis=1)


def _columns(extent: float, modes: int) -> np.ndarray:
    """In two columns at `-extent` and `extent`, neighbours in one `2 * extent` apart."""
    left = -(-modes // 2)
    rows = [(x, np.arange(m) - (m - 1) / 2) for x, m in ((-1, left), (1, modes - left))]
    return np.concatenate(
        [np.stack([np.full(len(y), x * extent), 2 * extent * y], axis=1) for x, y in rows]
    )


LAYOUTS: Mapping[str, Callable[[float, int], np.ndarray]] = {
    "polygon": _polygon,
    "line": _line,
    "columns": _columns,
}
"""Where the centres of two or more components are: from an extent and their number, `[k, 2]`."""

PROMPT_MODES, OUTPUT_MODES = (1, 2, 4), (2, 4, 6)
"""The mixtures at the ends of the two rows of CV fig 11, whose spreads a geometry says."""

WEIGHTS: Mapping[str, int] = {"distance": 1, "squared": 2}
"""The power of the distances whose sum the matching makes least."""


def mixture(layout: str, extent: float, modes: int, spread: float) -> Mixture:
    """A mixture with its centres in a layout; a single one is in the middle."""
    centres = np.zeros((1, 2)) if modes == 1 else LAYOUTS[layout](extent, modes)
    return Mixture(jnp.asarray(centres, jnp.float32), jnp.asarray(spread, jnp.float32))


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Where the components are, how wide they are, and how the points are paired.

    Attributes:
      layout: of the centres of both mixtures, of `LAYOUTS`.
      extent: of the layout.
      prompt_spreads: standard deviation of the components of mixtures of `PROMPT_MODES` prompts.
      output_spreads: of mixtures of `OUTPUT_MODES` outputs. Those of other mixtures follow powers
        of the number of components in between.
      weight: of `WEIGHTS`.
    """

    layout: str
    extent: float
    prompt_spreads: tuple[float, ...]
    output_spreads: tuple[float, ...]
    weight: str

    def prompts(self, modes: int) -> Mixture:
        """The mixture of the prompts."""
        return self._mixture(modes, PROMPT_MODES, self.prompt_spreads)

    def outputs(self, modes: int) -> Mixture:
        """The mixture of the outputs."""
        return self._mixture(modes, OUTPUT_MODES, self.output_spreads)

    def _mixture(self, modes: int, known: Sequence[int], spreads: Sequence[float]) -> Mixture:
        spread = float(np.exp(np.interp(math.log(modes), np.log(known), np.log(spreads))))
        return mixture(self.layout, self.extent, modes, spread)


class Pairs(NamedTuple):
    """Paired points of two mixtures `[n, 2]`, and the components that they are of `[n]`."""

    outputs: np.ndarray
    prompts: np.ndarray
    output_modes: np.ndarray
    prompt_modes: np.ndarray


def draw_pairs(outputs: Mixture, prompts: Mixture, key: jax.Array, n: int, weight: str) -> Pairs:
    """Draws n points of each mixture, as evenly of its components as n allows, and pairs them.

    The same key gives the same noise, whatever the mixtures.
    """
    points, modes = [], []
    for mixture, own in zip((outputs, prompts), jax.random.split(key), strict=True):
        modes.append(np.arange(n) % len(mixture.centres))
        points.append(np.asarray(sample(mixture, own, modes[-1])))
    order = match(points[0], points[1], weight)
    return Pairs(points[0][order], points[1], modes[0][order], modes[1])


def match(outputs: np.ndarray, prompts: np.ndarray, weight: str) -> np.ndarray:
    """The output of each prompt, `[n]`, in the bipartite matching of least total weight.

    The weight of an edge is the distance of its ends, `[n, d]` both, or its square.
    """
    distances = cdist(prompts.astype(np.float64), outputs.astype(np.float64))
    return linear_sum_assignment(distances ** WEIGHTS[weight])[1]
