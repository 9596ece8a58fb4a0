"""Scores that the papers compare with: MID, which fits Gaussians to pairs, and RRKE."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Kernel, check_kernel

__all__ = ["mutual_information_divergence", "pointwise_mutual_information", "rrke"]

# A column counts as a combination of those before it where the factorisation leaves less of it than
# this many units of rounding. The rounding of a QR of some hundred columns is a few units.
_SINGULAR = 100


# A Gaussian of pairs z = [x; t]: its mean, the upper triangular R with R^T R the covariance of z,
# and that of t alone.
_Fit = tuple[jax.Array, jax.Array, jax.Array]


def pointwise_mutual_information(
    outputs: ArrayLike,
    prompts: ArrayLike,
    *,
    reference_outputs: ArrayLike | None = None,
    reference_prompts: ArrayLike | None = None,
    ridge: float | None = None,
) -> jax.Array:
    """Log ratio of joint to marginal densities of every pair, under a Gaussian of references.

    PMI(x; t) = I(X; T) + (D^2(x) + D^2(t) - D^2(z)) / 2 with z = [x; t]           (MID eq. 4)

    where D is the Mahalanobis distance and I the mutual information of the Gaussian (MID eq. 3).

    Args:
      outputs, prompts: evaluated pairs, embeddings `[n, d_x]` and `[n, d_t]`.
      reference_outputs, reference_prompts: pairs to fit the Gaussian to, `[m, d_x]` and `[m, d_t]`;
        the evaluated pairs themselves where both are None.
      ridge: added to the variance of every coordinate of the reference pairs, in squared units of
        the embeddings. None fits the plain covariance (divided by m).

    Returns:
      PMI of every pair, `[n]`, in nats; positive where the pair is likelier together than apart.
      Without a ridge, invertible affine maps of either modality do not change it.

    Raises:
      TypeError, ValueError: the inputs are not finite real arrays that pair up; or, without a
        ridge, the reference has m <= d_x + d_t pairs or a singular covariance.

    References:
      Kim et al., Mutual Information Divergence (NeurIPS 2022), eq. 3 to 5.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> t = np.random.default_rng(0).normal(size=(4000, 1)).astype(np.float32)
      >>> x = t + np.random.default_rng(1).normal(size=(4000, 1)).astype(np.float32)
      >>> print(f"{cv.baselines.pointwise_mutual_information(x, t).mean():.1f}")  # log(2) / 2
      0.3
    """
    x, t, reference = _check_pairs(outputs, prompts, reference_outputs, reference_prompts)
    if ridge is not None:
        words = "None or a finite number above 0"
        ridge = checks.check_number(ridge, name="ridge", above=0, expected=words)
    size, d_x, d_t = len(reference[0]), x.shape[1], t.shape[1]
    if ridge is None and size <= d_x + d_t:
        d = d_x + d_t
        needed = f"{d_x} + {d_t} = {d} dimensions needs more than {d} reference pairs"
        cure = "give more references, embed in fewer dimensions, or pass a ridge."
        raise ValueError(f"A Gaussian of pairs in {needed}, received {size}: {cure}")
    fit = _fit(*reference, ridge or 0.0)
    if checks.is_concrete(fit):
        _check_regular(fit)
    return _pointwise(x, t, fit)


def mutual_information_divergence(
    outputs: ArrayLike, prompts: ArrayLike, **references: Any
) -> jax.Array:
    """MID: the mean point-wise mutual information of the evaluated pairs (MID eq. 5).

    Args, Raises: as `pointwise_mutual_information`.

    Returns:
      A scalar in nats, bounded on neither side; larger is better aligned. For the reference pairs
      themselves, without a ridge, it is the mutual information of their Gaussian,
      log(det S_x det S_t / det S_z) / 2 (MID eq. 3). Other real pairs score less by about
      (d_x d_t) / m: compare scores only under the same reference.
    """
    return jnp.mean(pointwise_mutual_information(outputs, prompts, **references))


def _check_pairs(
    outputs: ArrayLike, prompts: ArrayLike, reference_outputs: Any, reference_prompts: Any
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, ...]]:
    """Evaluated outputs and prompts and the reference pairs, in the compute dtype."""
    if (reference_outputs is None) != (reference_prompts is None):
        missing = "reference_outputs" if reference_outputs is None else "reference_prompts"
        raise ValueError(f"{missing}: expected both references or neither, received None.")
    evaluated = checks.as_arrays({"outputs": outputs, "prompts": prompts})
    # A Gaussian moves with its points: what is far from the origin moves near it before the cast.
    origins = {name: checks.origin_of(array) for name, array in evaluated.items()}
    x, t = checks.check_arrays(evaluated, origins=origins)
    if reference_outputs is None:
        return x, t, (x, t)
    given = {"reference_outputs": reference_outputs, "reference_prompts": reference_prompts}
    references = checks.as_arrays(given)
    for (name, array), points in zip(references.items(), (x, t), strict=True):
        if array.ndim == 2 and array.shape[1] != points.shape[1]:
            expected = f"expected {points.shape[1]} columns as in the evaluated pairs"
            raise ValueError(f"{name}: {expected}, received {array.shape[1]}.")
    moved = {f"reference_{name}": origin for name, origin in origins.items()}
    return x, t, tuple(checks.check_arrays(references, origins=moved))


def _check_regular(fit: _Fit) -> None:
    """Raises where a column is a combination of those before it: the information is infinite."""
    _, joint, prompt = map(np.asarray, fit)
    left, whole = np.abs(np.diag(joint)), np.linalg.norm(joint, axis=0)
    small = left <= _SINGULAR * np.finfo(left.dtype).eps * whole
    if small.any():
        column, d_x = int(small.argmax()), len(left) - len(prompt)
        place = f"{column} of the outputs" if column < d_x else f"{column - d_x} of the prompts"
        why = f"column {place} is constant or a combination of the columns before it"
        singular = f"covariance of the reference pairs is singular in {left.dtype.name}"
        cure = "Pass a ridge, embed in fewer dimensions, or enable x64."
        raise ValueError(f"The {singular}: {why}. {cure}")


@jax.jit
def _fit(outputs: jax.Array, prompts: jax.Array, ridge: float) -> _Fit:
    """QR of centred rows: the condition number of their covariance is the square of theirs."""
    z = jnp.concatenate([outputs, prompts], axis=1)
    # The mean relative to a row, for data whose mean is far larger than its spread.
    mean = z[0] + jnp.mean(z - z[:1], axis=0)
    rows = (z - mean[None]) / math.sqrt(len(z))
    rows = jnp.concatenate([rows, jnp.sqrt(ridge).astype(z.dtype) * jnp.eye(z.shape[1])])
    return mean, jnp.linalg.qr(rows, mode="r"), jnp.linalg.qr(rows[:, outputs.shape[1] :], mode="r")


@jax.jit
def _pointwise(outputs: jax.Array, prompts: jax.Array, fit: _Fit) -> jax.Array:
    """PMI as log p(t | x) / p(t): the distance of x cancels and is never computed."""
    split, (mean, of_pairs, of_prompts) = outputs.shape[1], fit
    z = jnp.concatenate([outputs, prompts], axis=1) - mean[None]
    whiten = functools.partial(jax.scipy.linalg.solve_triangular, trans=1)
    # R^{-T} of every row, `[d, n]`: its squared length is the Mahalanobis distance squared.
    with jax.default_matmul_precision("highest"):
        joint, prompt = whiten(of_pairs, z.T)[split:], whiten(of_prompts, z[:, split:].T)
    excess = jnp.sum(jnp.square(prompt), axis=0) - jnp.sum(jnp.square(joint), axis=0)
    scales = jnp.diag(of_prompts) / jnp.diag(of_pairs)[split:]
    return jnp.sum(jnp.log(jnp.abs(scales))) + excess / 2


def rrke(outputs: ArrayLike, references: ArrayLike, *, kernel: Kernel) -> jax.Array:
    """Relative Renyi kernel entropy of order 1/2: how many modes two samples share.

    RRKE(X, Y) = -2 log || [k(x_i, y_j)] / sqrt(n m) ||_*                          (RKE Theorem 7)

    where || . ||_* is the nuclear norm, the sum of the singular values. If X has k equally likely,
    separated modes, Y has l and c are common, exp(-RRKE) = c^2 / (k l). Time: O(n m min(n, m)).

    Args:
      outputs, references: X and Y, embeddings `[n, d]` and `[m, d]` of the same space.
      kernel: a kernel on that space.

    Returns:
      A scalar in nats, 0 or more, symmetric in the two samples: 0 where their kernel covariances
      agree, infinite where no point of one resembles a point of the other.

    Raises:
      TypeError, ValueError: the inputs are not two finite real arrays with the same number of
        columns, the kernel is not defined on them, or the cross Gram does not fit in memory.

    Examples:
      Two modes and four, two of them common: -log(2^2 / (2 * 4)) = log 2.

      >>> import condvendi_jax as cv
      >>> score = cv.baselines.rrke([[0], [1]], [[0], [1], [2], [3]], kernel=cv.Gaussian(0.1))
      >>> print(f"{score:.4f}")
      0.6931
    """
    check_kernel(kernel, name="kernel")
    given = checks.as_arrays({"outputs": outputs, "references": references})
    origin = None
    if kernel.shift_invariant and len({array.shape[1:] for array in given.values()}) == 1:
        origins = map(checks.origin_of, given.values())  # One origin for both: they share a space.
        origin = next((row for row in origins if row is not None), None)
    x, y = (checks.check_embeddings(a, name=k, origin=origin) for k, a in given.items())
    if x.shape[1] != y.shape[1]:
        expected = "expected embeddings of the same space as the outputs"
        raise ValueError(f"references: {expected}, received {y.shape[1]} columns for {x.shape[1]}.")
    if checks.is_concrete(x, y, kernel):
        for name, points in zip(given, (x, y), strict=True):
            kernel.check_points(points, name=name)
        kernel = kernel.suited_to(jnp.concatenate([x, y]))
    memory.check_cross(len(x), len(y), x.dtype)
    return _rrke(x, y, kernel)


@jax.jit
def _rrke(outputs: jax.Array, references: jax.Array, kernel: Kernel) -> jax.Array:
    n, m = len(outputs), len(references)
    # Prepared together: a kernel that centres its points must centre both samples alike.
    prepared = kernel.prepare(jnp.concatenate([outputs, references]))
    left = jax.tree.map(lambda leaf: leaf[:n], prepared)
    right = jax.tree.map(lambda leaf: leaf[n:], prepared)
    cross = kernel.cross(left, right) / math.sqrt(n * m)
    norm = jnp.sum(jnp.linalg.svd(cross, compute_uv=False))
    # Rounding can leave the norm of a sample with itself an ulp above one.
    return -2 * jnp.log(jnp.minimum(norm, 1))
