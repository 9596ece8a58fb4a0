"""Two mixtures of Gaussians in the plane and the pairing of their points, as in CV figure 11."""

from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist


class Mixture(NamedTuple):
    """Equally likely isotropic Gaussians: centres `[k, 2]` and one standard deviation."""

    centres: np.ndarray
    spread: float


def mixture(modes: int, apart: float, spread: float) -> Mixture:
    """So many components of one spread, neighbours so far apart."""
    return Mixture(columns(apart / 2, modes), spread)


def columns(extent: float, modes: int) -> np.ndarray:
    """Places in two columns, neighbours `2 * extent` apart, `[modes, 2]`; a single one is at 0."""
    if modes == 1:
        return np.zeros((1, 2))
    left = -(-modes // 2)
    rows = [(x, np.arange(m) - (m - 1) / 2) for x, m in ((-1, left), (1, modes - left))]
    return np.concatenate([[(x * extent, 2 * extent * y) for y in of] for x, of in rows])


class Pairs(NamedTuple):
    """Paired points of two mixtures `[n, 2]`, and the components that they are of `[n]`."""

    outputs: np.ndarray
    prompts: np.ndarray
    output_modes: np.ndarray
    prompt_modes: np.ndarray


def draw_pairs(outputs: Mixture, prompts: Mixture, key: jax.Array, n: int) -> Pairs:
    """Draws n points of each mixture, as evenly of its components as n allows, and pairs them.

    The same key gives the same noise, whatever the mixtures.
    """
    points, modes = [], []
    for mixture, own in zip((outputs, prompts), jax.random.split(key), strict=True):
        modes.append(np.arange(n) % len(mixture.centres))
        noise = np.asarray(jax.random.normal(own, (n, 2)))
        points.append(np.float32(mixture.centres[modes[-1]] + mixture.spread * noise))
    order = match(*points)
    return Pairs(points[0][order], points[1], modes[0][order], modes[1])


def match(outputs: np.ndarray, prompts: np.ndarray) -> np.ndarray:
    """The output of each prompt, `[n]`, in the matching with the least sum of distances."""
    distances = cdist(prompts.astype(np.float64), outputs.astype(np.float64))
    return linear_sum_assignment(distances)[1]
