"""Matrices of similarities that are given: their checks, and vectors that have them."""

from __future__ import annotations

import numpy as np

#: The share of the trace that negative eigenvalues may have. A choice.
LIMIT = 0.05


def check_gram(matrix: np.ndarray, tolerance: float, *, name: str = "matrix") -> None:
    """Raises where a matrix is not symmetric, of unit diagonal and within [-1, 1]."""
    by_row = {
        "the unit diagonal of a normalised kernel (K_ij / sqrt(K_ii K_jj) has one, a matrix of "
        "distances has none)": np.abs(np.diagonal(matrix) - 1),
        "entries in [-1, 1]": np.max(np.abs(matrix), axis=1) - 1,
        "a symmetric matrix": np.max(np.abs(matrix - matrix.T), axis=1),
    }
    for expected, by in by_row.items():
        if by.max() > tolerance:
            off = f"received one that is off by {by.max():.2g} in row {int(by.argmax())}"
            raise ValueError(f"{name}: expected {expected}, {off}.")


def unit_vectors(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Unit vectors `[k, d]` with the inner products of a Gram `[k, k]`, and its negative share.

    Negative eigenvalues count as zero; what they had is their share of the trace.
    """
    from scipy.linalg import lapack  # Imported where it is used: it is slow to import.

    k, rounding = len(matrix), len(matrix) * np.finfo(np.float64).eps
    values, vectors = np.linalg.eigh(matrix)
    negative = float(-values[values < 0].sum() / k)
    kept = values > rounding * values[-1]
    rows = vectors[:, kept] * np.sqrt(values[kept])
    if negative <= rounding:  # Then equal rows have equal vectors, and classes those of a basis.
        factor, pivots, rank, _ = lapack.dpstrf(matrix, lower=1)
        rows = np.tril(factor)[np.argsort(pivots), :rank]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), negative
