"""Gauss and Gauss-Radau quadrature of a spectrum, from the small matrices of `krylov`."""

from __future__ import annotations

import numpy as np


def tridiagonal_eigen(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues `[probes, m]` and eigenvectors `[probes, m, m]` of tridiagonal matrices."""
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
    pivot of T (Golub, 1973), with `beta[:, -1]` the norm of the remainder after m steps. A pivot
    that is not positive is rounding: the Gauss quadrature has a node at zero already.
    """
    pivot = alpha[:, 0]
    for k in range(1, alpha.shape[1]):
        safe = np.where(pivot > 0, pivot, np.inf)
        pivot = alpha[:, k] - np.square(beta[:, k - 1]) / safe
    positive = pivot > 0
    last = np.where(positive, np.square(beta[:, -1]) / np.where(positive, pivot, 1), 0)
    return gauss(np.concatenate([alpha, last[:, None]], axis=1), beta)


def with_null_space(projected: np.ndarray, remainder: np.ndarray, floor: float) -> np.ndarray:
    """The block Gauss-Radau matrix with a node at zero: one block more, which adds no rank.

    With T = Q^T A Q and B^T B the remainder, [[T, E B^T], [B E^T, B E^T T^-1 E B^T]] has the rank
    of T, E the last columns of the identity. Eigenvalues of T up to `floor` are rounding of zero.
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
