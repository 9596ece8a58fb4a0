"""Gauss and Gauss-Radau quadrature of a spectrum, out of the small matrices of `krylov`.

Everything is small, float64, and on the host.
"""

from __future__ import annotations

import numpy as np

# How many canonical representations are looked at, besides that with a node at the kink.
_PLACES = 16
# In units of the largest node: what is farther would leave the others to rounding.
_FARTHEST = 1e4


def tridiagonal_eigen(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues `[probes, m]` and eigenvectors `[probes, m, m]` of tridiagonal matrices.

    Args:
      alpha: `[probes, m]`, the diagonals.
      beta: `[probes, m - 1]`, the off-diagonals.
    """
    size = alpha.shape[1]
    matrices = np.zeros((*alpha.shape, size))
    along, beside = np.arange(size), np.arange(size - 1)
    matrices[:, along, along] = alpha
    matrices[:, beside, beside + 1] = matrices[:, beside + 1, beside] = beta
    return np.linalg.eigh(matrices)


def gauss(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights `[probes, m]` of Gauss quadratures; the weights of a probe sum to one.

    The spectrum ends at zero: a node below it is rounding.
    """
    nodes, vectors = tridiagonal_eigen(alpha, beta)
    return np.maximum(nodes, 0), np.square(vectors[:, 0, :])


def radau(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights `[probes, m + 1]` of Gauss-Radau quadratures with a node at zero.

    Zero is an eigenvalue of the matrix with one row more, whose last entry is beta^2 over the last
    pivot of T (Golub, 1973). A pivot that rounding left without a sign says that zero is a node of
    the Gauss quadrature already.

    Args:
      alpha: `[probes, m]`.
      beta: `[probes, m]`, the last entry the norm of the remainder after m steps.
    """
    pivot = alpha[:, 0]
    for k in range(1, alpha.shape[1]):
        safe = np.where(pivot > 0, pivot, np.inf)
        pivot = alpha[:, k] - np.square(beta[:, k - 1]) / safe
    positive = pivot > 0
    last = np.where(positive, np.square(beta[:, -1]) / np.where(positive, pivot, 1), 0)
    return gauss(np.concatenate([alpha, last[:, None]], axis=1), beta)


def through(
    alpha: np.ndarray, beta: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights `[..., probes, m + 1]` of the quadratures with a node at each place.

    They have the moments 0 ... 2 m, as those of the matrices with one row more, whose last entry is
    free. They know nothing of the ends of the spectrum: a node may be outside. Next to a node of
    the Gauss quadrature the place is met but nearly, since another node leaves for infinity.

    Args:
      alpha: `[probes, m]`.
      beta: `[probes, m]`, the last entry the norm of the remainder after m steps.
      places: `[..., probes]`.
    """
    found, vectors = tridiagonal_eigen(alpha, beta[:, :-1])
    shares = np.square(beta[:, -1:] * vectors[:, -1, :])
    scale = max(float(np.abs(found).max()), np.finfo(float).tiny)
    distances = found - places[..., None]
    distances = np.where(np.abs(distances) > scale / _FARTHEST, distances, scale / _FARTHEST)
    last = places + np.sum(shares / distances, axis=-1)
    last = np.clip(last, -_FARTHEST * scale, _FARTHEST * scale)[..., None]
    size = alpha.shape[1]
    extended = np.concatenate([np.broadcast_to(alpha, (*last.shape[:-1], size)), last], axis=-1)
    off = np.broadcast_to(beta, (*last.shape[:-1], size))
    nodes, vectors = tridiagonal_eigen(extended.reshape(-1, size + 1), off.reshape(-1, size))
    return nodes.reshape(extended.shape), np.square(vectors[:, 0, :]).reshape(extended.shape)


def canonical(alpha: np.ndarray, beta: np.ndarray, kink: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights `[count, probes, m + 1]` of the measures that can be extreme at a kink.

    Every measure of m + 1 nodes with the moments 0 ... 2 m has one node between any two neighbours
    of the Gauss quadrature: the places between those next to the kink number them all. Over all
    measures with these moments the integral of (x - kink)_+ is least for the one with a node at the
    kink, and largest for another of them: a polynomial of degree 2 m touches the function at the
    nodes, from below or from above, and has no zero left to cross it with (Krein and Nudelman, The
    Markov Moment Problem, 1977).

    Args:
      alpha, beta: as for `through`.
      kink: where.
    """
    found, _ = tridiagonal_eigen(alpha, beta[:, :-1])
    reach = max(2 * float(found.max()), kink)
    ends = np.pad(found, ((0, 0), (1, 1)), constant_values=((0, 0), (0, reach)))
    before = np.sum(found <= kink, axis=1)[:, None]
    low, high = (np.take_along_axis(ends, before + k, axis=1)[:, 0] for k in (0, 1))
    parts = np.arange(1, _PLACES + 1)[:, None] / (_PLACES + 1)
    places = np.concatenate([low + (high - low) * parts, np.full((1, len(alpha)), kink)])
    return through(alpha, beta, places)


def with_null_space(projected: np.ndarray, remainder: np.ndarray, floor: float) -> np.ndarray:
    """The block form of `radau`'s matrix: one block more, which adds no rank.

    With T = Q^T A Q and B^T B the remainder, [[T, E B^T], [B E^T, B E^T T^-1 E B^T]] has the rank
    of T, E the last block of columns of the identity.

    Args:
      projected: T, `[m, m]`.
      remainder: `[b, b]`.
      floor: eigenvalues of T up to here are rounding of zero.
    """
    size, width = projected.shape[0], remainder.shape[0]
    values, vectors = np.linalg.eigh(remainder)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    nodes, vectors = np.linalg.eigh(projected)
    kept = nodes > floor
    last = vectors[size - width :, kept] / np.sqrt(nodes[kept])
    extended = np.zeros((size + width, size + width))
    extended[:size, :size] = projected
    extended[size:, size - width : size] = extended[size - width : size, size:] = root
    extended[size:, size:] = root @ (last @ last.T) @ root
    return extended
