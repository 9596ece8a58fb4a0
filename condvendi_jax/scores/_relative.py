"""Relative Renyi kernel entropy of order 1/2: how many modes two samples have in common.

    RRKE(X, Y) = -2 log || K_XY ||_*,    K_XY = [k(x_i, y_j)] / sqrt(n m)          (RKE Theorem 7)

where || . ||_* is the nuclear norm, the sum of the singular values. The norm is the root fidelity
of the two kernel covariances. For k and l equally likely, separated modes of which c are common,
exp(-RRKE) = c^2 / (k l).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.grams import _memory as memory
from condvendi_jax.kernels import Kernel, check_kernel


def root_fidelity(outputs: ArrayLike, references: ArrayLike, *, kernel: Kernel) -> jax.Array:
    """Nuclear norm of the normalised cross Gram, || [k(x_i, y_j)] / sqrt(n m) ||_*.

    Args:
      outputs: X, embeddings `[n, d]`.
      references: Y, embeddings `[m, d]` of the same space; n and m may differ.
      kernel: a kernel on that space.

    Returns:
      A scalar in [0, 1]: 1 where the two samples have the same kernel covariance, 0 where no point
      of one resembles a point of the other. Takes O(n m min(n, m)) time.

    Raises:
      TypeError, ValueError: the inputs are not two finite real arrays with as many columns, the
        kernel is not defined on them, or the cross Gram does not fit in memory.

    References:
      Jalali, Li and Farnia, An Information-Theoretic Evaluation of Generative Models (NeurIPS
      2023), section 3.3 and Theorem 7.

    Examples:
      Two modes and four, two of them common: 2^2 / (2 * 4) = 1/2.

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.array([[0.0], [1.0]], np.float32)
      >>> references = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
      >>> found = cv.baselines.root_fidelity(outputs, references, kernel=cv.Gaussian(0.1))
      >>> print(f"{found**2:.4f}")
      0.5000
    """
    check_kernel(kernel, name="kernel")
    outputs, references = (
        validation.as_array(array, name=name)
        for name, array in (("outputs", outputs), ("references", references))
    )
    # One origin for both: they share a space.
    origins = map(validation.origin_of, (outputs, references))
    origin = next((o for o in origins if o is not None), None) if kernel.shift_invariant else None
    if outputs.ndim == references.ndim == 2 and outputs.shape[1] != references.shape[1]:
        origin = None  # Refused below.
    outputs = validation.check_embeddings(outputs, name="outputs", origin=origin)
    references = validation.check_embeddings(references, name="references", origin=origin)
    if outputs.shape[1] != references.shape[1]:
        raise ValueError(
            "references: expected embeddings of the same space as the outputs, received "
            f"{references.shape[1]} columns for {outputs.shape[1]}."
        )
    dtype = jnp.promote_types(outputs.dtype, references.dtype)
    outputs, references = outputs.astype(dtype), references.astype(dtype)
    if validation.is_concrete(outputs, references, kernel):
        for name, points in (("outputs", outputs), ("references", references)):
            kernel.check_points(points, name=name)
        kernel = kernel.suited_to(jnp.concatenate([outputs, references]))
    memory.check_cross(len(outputs), len(references), dtype)
    return _root_fidelity(outputs, references, kernel)


def rrke(outputs: ArrayLike, references: ArrayLike, *, kernel: Kernel) -> jax.Array:
    """Relative Renyi kernel entropy of order 1/2, RRKE(X, Y) = -2 log || K_XY ||_*.

    Args:
      outputs: X, embeddings `[n, d]`.
      references: Y, embeddings `[m, d]` of the same space; n and m may differ.
      kernel: a kernel on that space.

    Returns:
      A scalar in nats, 0 or more, symmetric in the two samples: 0 where their kernel covariances
      agree, infinite where they have nothing in common. Lower is closer.

    Raises:
      TypeError, ValueError: as `root_fidelity`.

    References:
      Jalali, Li and Farnia, An Information-Theoretic Evaluation of Generative Models (NeurIPS
      2023), Theorem 7.

    Examples:
      Two modes and four, two of them common: 2^2 / (2 * 4) = 1/2.

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.array([[0.0], [1.0]], np.float32)
      >>> references = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
      >>> print(f"{np.exp(-cv.baselines.rrke(outputs, references, kernel=cv.Gaussian(0.1))):.4f}")
      0.5000
    """
    return -2 * jnp.log(root_fidelity(outputs, references, kernel=kernel))


@jax.jit
def _root_fidelity(outputs: jax.Array, references: jax.Array, kernel: Kernel) -> jax.Array:
    n, m = len(outputs), len(references)
    # Prepared together: a kernel that centres its points must centre both samples alike.
    prepared = kernel.prepare(jnp.concatenate([outputs, references]))
    left = jax.tree.map(lambda leaf: leaf[:n], prepared)
    right = jax.tree.map(lambda leaf: leaf[n:], prepared)
    cross = kernel.cross(left, right) / jnp.sqrt(jnp.asarray(n * m, outputs.dtype))
    norm = jnp.sum(jnp.linalg.svd(cross, compute_uv=False))
    # Rounding can leave the fidelity of a sample with itself an ulp above one.
    return jnp.minimum(norm, 1)
