"""Spectra of unit-trace positive semidefinite matrices, and their truncation, of arrays only."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # Its modules are imported when they are used.

from condvendi_jax.base import checks, devices

# In eps of the largest eigenvalue: zero eigenvalues of a rank-deficient Gram come out at a few eps
# of it (4.4 at n = 4,000), and an order below 1 would count each of them as a mode.
NOISE_FLOOR = 16
RANK_ONE = 16  # In eps: a squared norm this near to one is that of identical rows, of rank one.
# How far right eigenvalues may move their sum and the sum of their squares, in n eps and in
# sqrt(n) eps of the largest. Measured: 1 and 1.8 at most, over many Grams of 2 to 2,000 points.
_TRACE_TOLERANCE = 4
_NORM_TOLERANCE = 16
_SMALL = 128  # Side up to which SciPy, and bisection, take no less time than NumPy and `eigvalsh`.


def matmul(left: Any, right: Any) -> Any:
    """The product of matrices at full precision."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left @ right
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def squared_norm(matrix: Any) -> Any:
    """||A||_F^2, summed by rows first, for the accuracy of float32."""
    xp = devices.namespace(matrix)
    return xp.sum(xp.sum(xp.square(matrix), axis=1))


def spectrum(matrix: Any) -> Any:
    """Eigenvalues of a symmetric positive semidefinite matrix of trace one, in descending order.

    An entropy sums the rounding of all: a nearly constant float32 Gram of 2,000 points loses four
    digits of exp(H), of which the projection onto the simplex gives most back. The derivative along
    a symmetric tangent B, diag(V^T B V), is finite at ties and at zero.
    """
    if isinstance(matrix, np.ndarray):
        return _of_matrix(eigenpairs(matrix, vectors=False)[0], matrix)
    return _spectrum(matrix)


def _bisected(matrix: jax.Array) -> jax.Array:
    """Eigenvalues by bisection, which takes half the time of `eigvalsh` on a CPU."""
    _, diagonal, off_diagonal, _ = jax.lax.linalg.tridiagonal(matrix, lower=True)
    # JAX's bisection divides 0 by 0 where the first row is isolated: its first pivot is
    # (eps * off_diagonal[0])^2 wherever a midpoint meets diagonal[0]. A first off-diagonal that
    # keeps this square in range moves no eigenvalue by more than itself: less than rounding.
    limits = jnp.finfo(matrix.dtype)
    smallest = 2 * float(limits.tiny) ** 0.5 / float(limits.eps)
    first = jnp.maximum(jnp.abs(off_diagonal[0]), smallest)  # Its sign has no meaning.
    # The bisection of SciPy's namespace promotes ranks; it is sound.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        off_diagonal = off_diagonal.at[0].set(first)
        return jax.scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal, eigvals_only=True)


@jax.custom_jvp
def _spectrum(matrix: jax.Array) -> jax.Array:
    if matrix.shape[0] <= _SMALL:  # Bisection takes a second to compile.
        return _of_matrix(jnp.linalg.eigvalsh(matrix), matrix)
    values = jax.lax.platform_dependent(matrix, cpu=_bisected, default=jnp.linalg.eigvalsh)
    return _of_matrix(values, matrix)


@_spectrum.defjvp
def _spectrum_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (matrix,), (tangent,) = primals, tangents
    values, vectors = decomposed(matrix)
    return values, jnp.sum(vectors * matmul(tangent, vectors), axis=0)


def decomposed(matrix: Any) -> tuple[Any, Any]:
    """`spectrum` with eigenvectors, the columns of `[n, n]`; more work, and not differentiable."""
    on_host = isinstance(matrix, np.ndarray)
    values, vectors = eigenpairs(matrix) if on_host else jnp.linalg.eigh(matrix)
    return _of_matrix(values, matrix), vectors[:, ::-1]


def eigenpairs(matrices: np.ndarray, *, vectors: bool = True) -> tuple[np.ndarray, Any]:
    """Ascending eigenvalues of `[..., n, n]` and, if wanted, eigenvectors; NaN where one fails."""
    try:
        if matrices.shape[-1] <= _SMALL:
            return np.linalg.eigh(matrices) if vectors else (np.linalg.eigvalsh(matrices), None)
        if matrices.ndim > 2:
            parts = [eigenpairs(matrix, vectors=vectors) for matrix in matrices]
            values, columns = zip(*parts, strict=True)
            return np.stack(values), np.stack(columns) if vectors else None
        # By divide and conquer, which takes half the time of the default. The transposed matrix
        # is the same one, in the order of LAPACK.
        how: Any = {"driver": "evd", "check_finite": False, "eigvals_only": not vectors}
        result = scipy.linalg.eigh(matrices.T, **how)
        return result if vectors else (result, None)
    except np.linalg.LinAlgError:
        return np.full(matrices.shape[:-1], np.nan, matrices.dtype), np.full_like(matrices, np.nan)


def check_spectra(*spectra: jax.Array) -> None:
    """Raises FloatingPointError where a spectrum, or a number from one, is NaN, outside `jit`."""
    for values in spectra:
        if checks.is_concrete(values) and np.isnan(values).any():
            raise FloatingPointError(
                "the computed eigenvalues do not add up to the trace and the Frobenius norm of "
                "their matrix, so that no score is returned: the eigenvalue routine failed. "
                "method=cv.Stored(key), on the command line --method=stored, does not use it."
            )


def _sum(values: Any) -> Any:
    """The sum of `[n]`, in rows of about sqrt(n): rounding grows with sqrt(n), not with n."""
    width, xp = math.isqrt(values.shape[0]) + 1, devices.namespace(values)
    return xp.sum(xp.sum(xp.pad(values, (0, -values.shape[0] % width)).reshape(-1, width), axis=1))


def _of_matrix(values: Any, matrix: Any) -> Any:
    return projected(values, devices.namespace(matrix).diagonal(matrix), squared_norm(matrix))


def projected(values: Any, diagonal: Any, norm: Any) -> Any:
    """Eigenvalues `[n]` projected to the simplex, descending; NaN where their sums are wrong."""
    # A wrong eigenvalue moves the sum of all, which is that of the diagonal, or that of squares;
    # projected, it would be a plausible spectrum of another matrix.
    n, eps, xp = values.shape[0], jnp.finfo(values.dtype).eps, devices.namespace(values)
    largest = xp.max(xp.abs(values))
    off_trace = xp.abs(_sum(values) - _sum(diagonal))
    off_norm = xp.abs(_sum(xp.square(values)) - norm)
    # The errors of the eigenvalues, and the rounding of the sums. A NaN fails both.
    right_trace = off_trace <= eps * (_TRACE_TOLERANCE * n * largest + 4 * n**0.5)
    right_norm = off_norm <= eps * (_NORM_TOLERANCE * n**0.5 * largest + 2 * n * norm)
    # Tr A = 1 bounds the largest eigenvalue from below by ||A||_F^2: at norm one the rank is one,
    # which n identical rows reach, and which Householder reflections of equal numbers miss.
    first = (xp.arange(n) == 0).astype(values.dtype)
    checked = xp.where(right_trace & right_norm, project_to_simplex(values), xp.nan)
    return xp.where(norm >= 1 - RANK_ONE * eps, first, checked)


def project_to_simplex(values: Any) -> Any:
    """The nearest point to `values` `[n]` with non-negative entries of sum one, descending."""
    xp = devices.namespace(values)
    descending = xp.sort(values)[::-1]
    counts = xp.arange(1, values.shape[0] + 1, dtype=values.dtype)
    wide = np.float64 if xp is np else None  # NumPy adds one after the other.
    kept = descending * counts > xp.cumsum(descending, dtype=wide) - 1
    theta = (_sum(xp.where(kept, descending, 0)) - 1) / xp.sum(kept, dtype=values.dtype)
    return xp.maximum(descending - theta, 0)


def truncate(eigenvalues: Any, t: int) -> Any:
    """The t largest eigenvalues, moved by one constant, not rescaled, to sum to one (CV eq. 13)."""
    if t > eigenvalues.shape[0]:
        raise ValueError(f"t: expected at most n = {eigenvalues.shape[0]}, received {t}.")
    descending = (xp := devices.namespace(eigenvalues)).sort(eigenvalues)[::-1]
    leading = descending[:t]
    if xp is jnp:  # The values stay, their gradients are shared.
        tied = tied_across(descending, t)
        mean = jnp.sum(descending, where=tied) / jnp.sum(tied, dtype=descending.dtype)
        shared = jnp.where(tied, mean, descending)[:t]
        leading = jax.lax.stop_gradient(leading - shared) + shared
    return leading + (1 - leading.sum()) / t


def tied_across(descending: Any, t: int) -> Any:
    """Which eigenvalues `[n]` are those on both sides of a truncation, but for rounding.

    Which of them are kept is then the rounding's choice: they share what depends on it.
    """
    noise = NOISE_FLOOR * jnp.finfo(descending.dtype).eps * descending[0]
    return devices.namespace(descending).abs(descending - descending[t - 1]) <= noise
