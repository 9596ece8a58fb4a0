"""Checks of a matrix that is given as a Gram."""

from __future__ import annotations

import numpy as np

from condvendi_jax.base import checks

# The largest share of the trace that negative eigenvalues may have, and the rows that are looked at
# for them, in a fifth of a second. Choices.
_NEGATIVE, _LOOKED_AT = 0.05, 1000


def check_gram(matrix: np.ndarray, tolerance: float) -> None:
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
            raise ValueError(f"matrix: expected {expected}, {off}.")


def check_semidefinite(matrix: np.ndarray, *, eps: float) -> None:
    """Warns where negative eigenvalues are more than rounding, and raises where they are many."""
    n = min(matrix.shape[0], _LOOKED_AT)
    # The negative share of a principal submatrix is, in the mean, at most that of the matrix.
    rows = np.sort(np.random.default_rng(0).permutation(matrix.shape[0])[:n])
    values = np.linalg.eigvalsh(matrix[np.ix_(rows, rows)].astype(np.float64) / n)[::-1]
    share = float(-np.minimum(values, 0).sum())
    if share <= min(n * eps, _NEGATIVE):
        return
    says = f"expected a positive semidefinite matrix, received one in which {n} rows have negative "
    says += f"eigenvalues of {share:.2g} of the trace"
    if share > _NEGATIVE:
        raise ValueError(
            f"matrix: {says}: no score is defined. Use a kernel of embeddings (cv.gram), or "
            "replace negative eigenvalues by zero and divide K_ij by sqrt(K_ii K_jj)."
        )
    checks.warn(
        f"matrix: {says}. Scores use the nearest eigenvalues that are not negative; order 2 counts "
        "the squares of all."
    )
