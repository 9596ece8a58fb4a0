"""Matrices of similarities that are given: their checks, and vectors that have them."""

from __future__ import annotations

import numpy as np

from condvendi_jax.base import checks

#: The share of the trace that negative eigenvalues may have. A choice.
LIMIT = 0.05
# The rows that are looked at for negative eigenvalues, in a fifth of a second. A choice.
_LOOKED_AT = 1000


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


def check_semidefinite(matrix: np.ndarray, *, eps: float) -> None:
    """Warns where negative eigenvalues are more than rounding, and raises where they are many."""
    n = min(matrix.shape[0], _LOOKED_AT)
    # The negative share of a principal submatrix is, in the mean, at most that of the matrix.
    rows = np.sort(np.random.default_rng(0).permutation(matrix.shape[0])[:n])
    values = np.linalg.eigvalsh(matrix[np.ix_(rows, rows)].astype(np.float64) / n)[::-1]
    share = float(-np.minimum(values, 0).sum())
    if share <= min(n * eps, LIMIT):
        return
    says = f"expected a positive semidefinite matrix, received one in which {n} rows have negative "
    says += f"eigenvalues of {share:.2g} of the trace"
    if share > LIMIT:
        raise ValueError(
            f"matrix: {says}: no score is defined. Use a kernel of embeddings (cv.gram), or "
            "cv.Similarities with a higher limit, which replaces negative eigenvalues by zero."
        )
    checks.warn(
        f"matrix: {says}. Scores use the nearest eigenvalues that are not negative; order 2 counts "
        "the squares of all."
    )


def unit_vectors(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Unit vectors `[k, d]` with the inner products of a Gram `[k, k]`, and its negative share.

    Negative eigenvalues count as zero; what they had is their share of the trace.
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    rows = vectors[:, kept] * np.sqrt(values[kept])
    negative = -values[values < 0].sum() / len(values)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), float(negative)
