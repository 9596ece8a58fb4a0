"""Mutual Information Divergence: how well outputs fit their prompts, under Gaussians.

A Gaussian is fitted to reference pairs, and the evaluated pairs are scored by its log ratio

    PMI(x; t) = log p(x, t) / (p(x) p(t)) = I(X; T) + (D^2(x) + D^2(t) - D^2(x, t)) / 2

of joint to marginal densities (MID eq. 4), where D is the Mahalanobis distance. MID is its mean
over the pairs (MID eq. 5): larger is better aligned, and no divergence, since it is bounded on
neither side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation

# A column counts as a combination of those before it where this many units of rounding of it are
# left by the factorisation.
_SINGULAR = 100


class _Fit(NamedTuple):
    """A Gaussian of pairs z = [x; t], by triangular roots of its covariances.

    Attributes:
      mean: mean of z, `[d_x + d_t]`.
      joint: upper triangular R with R^T R the covariance of z; its leading block is that of x.
      prompt: the same for t alone, `[d_t, d_t]`.
    """

    mean: jax.Array
    joint: jax.Array
    prompt: jax.Array


def pointwise_mutual_information(
    outputs: ArrayLike,
    prompts: ArrayLike,
    *,
    reference_outputs: ArrayLike | None = None,
    reference_prompts: ArrayLike | None = None,
    ridge: float | None = None,
) -> jax.Array:
    """Log ratio of joint to marginal densities of every pair, under the reference Gaussian.

    PMI(x; t) = I(X; T) + (D^2(x) + D^2(t) - D^2(z)) / 2 with z = [x; t]           (MID eq. 4)

    Args:
      outputs: evaluated outputs, embeddings `[n, d_x]`.
      prompts: evaluated prompts, embeddings `[n, d_t]`, row by row.
      reference_outputs: the outputs that the Gaussian is fitted to, `[m, d_x]`; the evaluated pairs
        themselves where both references are None.
      reference_prompts: the prompts that belong to them, `[m, d_t]`.
      ridge: what is added to the variance of every coordinate of the reference pairs, in squared
        units of the embeddings; it enters the information and the distances alike, so that the
        value stays the log ratio of a Gaussian. None fits the plain covariance (divided by m).

    Returns:
      PMI of every pair, `[n]`, in nats; positive where the pair is likelier together than apart.
      Unchanged under invertible affine maps of either modality, as long as there is no ridge.

    Raises:
      TypeError, ValueError: the inputs are not finite real arrays that pair up, only one reference
        is given, the reference has other dimensions, the ridge is not a positive number; or,
        without a ridge, the reference has m <= d_x + d_t pairs or a singular covariance.

    References:
      Kim et al., Mutual Information Divergence (NeurIPS 2022), eq. 4.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> t = np.random.default_rng(0).normal(size=(4000, 1)).astype(np.float32)
      >>> x = t + np.random.default_rng(1).normal(size=(4000, 1)).astype(np.float32)
      >>> print(f"{cv.baselines.pointwise_mutual_information(x, t).mean():.1f}")  # log(2) / 2
      0.3
    """
    x, t, reference = _check(outputs, prompts, reference_outputs, reference_prompts, ridge)
    fit = _fit(*reference, ridge or 0.0)
    _check_regular(fit)
    return _pointwise(x, t, fit)


def mutual_information_divergence(
    outputs: ArrayLike,
    prompts: ArrayLike,
    *,
    reference_outputs: ArrayLike | None = None,
    reference_prompts: ArrayLike | None = None,
    ridge: float | None = None,
) -> jax.Array:
    """MID: the mean point-wise mutual information of the evaluated pairs (MID eq. 5).

    Args:
      outputs: evaluated outputs, embeddings `[n, d_x]`.
      prompts: evaluated prompts, embeddings `[n, d_t]`, row by row.
      reference_outputs: the outputs that the Gaussian is fitted to, `[m, d_x]`; the evaluated pairs
        themselves where both references are None.
      reference_prompts: the prompts that belong to them, `[m, d_t]`.
      ridge: added to every variance; see `pointwise_mutual_information`.

    Returns:
      A scalar in nats. Of the reference pairs themselves, without a ridge, exactly their Gaussian
      mutual information. Other real pairs score less by about (d_x d_t) / m, and the information
      itself is too large by half that: compare scores only under one reference.

    Raises:
      TypeError, ValueError: as `pointwise_mutual_information`.

    References:
      Kim et al., Mutual Information Divergence (NeurIPS 2022), eq. 5.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> t = np.random.default_rng(0).normal(size=(4000, 1)).astype(np.float32)
      >>> x = t + np.random.default_rng(1).normal(size=(4000, 1)).astype(np.float32)
      >>> print(f"{cv.baselines.mutual_information_divergence(x, t):.1f}")  # log(2) / 2
      0.3
    """
    return jnp.mean(
        pointwise_mutual_information(
            outputs,
            prompts,
            reference_outputs=reference_outputs,
            reference_prompts=reference_prompts,
            ridge=ridge,
        )
    )


def gaussian_mutual_information(
    outputs: ArrayLike, prompts: ArrayLike, *, ridge: float | None = None
) -> jax.Array:
    """Mutual information of the Gaussian fitted to the pairs.

    I(X; T) = log(det S_x det S_t / det S_z) / 2                                   (MID eq. 3)

    Args:
      outputs: embeddings `[n, d_x]`.
      prompts: embeddings `[n, d_t]`, row by row.
      ridge: added to every variance; see `pointwise_mutual_information`.

    Returns:
      A scalar in nats, 0 or more.

    Raises:
      TypeError, ValueError: as `pointwise_mutual_information`.

    References:
      Kim et al., Mutual Information Divergence (NeurIPS 2022), eq. 3.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> t = np.random.default_rng(0).normal(size=(4000, 1)).astype(np.float32)
      >>> x = t + np.random.default_rng(1).normal(size=(4000, 1)).astype(np.float32)
      >>> print(f"{cv.baselines.gaussian_mutual_information(x, t):.1f}")  # log(2) / 2
      0.3
    """
    _, _, reference = _check(outputs, prompts, None, None, ridge)
    fit = _fit(*reference, ridge or 0.0)
    _check_regular(fit)
    return jnp.maximum(_information(fit), 0)


def _check(
    outputs: ArrayLike,
    prompts: ArrayLike,
    reference_outputs: ArrayLike | None,
    reference_prompts: ArrayLike | None,
    ridge: Any,
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array]]:
    """Evaluated outputs and prompts and the reference pairs, checked and in the compute dtype."""
    if (reference_outputs is None) != (reference_prompts is None):
        missing = "reference_outputs" if reference_outputs is None else "reference_prompts"
        raise ValueError(f"{missing}: expected both references or neither, received None.")
    evaluated = {
        name: validation.as_array(array, name=name)
        for name, array in {"outputs": outputs, "prompts": prompts}.items()
    }
    # Gaussians move along: what is far from the origin is moved near it before it is cast.
    origins = {name: validation.origin_of(array) for name, array in evaluated.items()}
    x, t = validation.check_arrays(evaluated, origins=origins)
    reference = (x, t)
    if reference_outputs is not None and reference_prompts is not None:
        reference = _check_reference(reference_outputs, reference_prompts, x, t, origins)
    _check_size(*reference, ridge)
    # Covariances of embeddings are badly conditioned: float64 wherever the user enabled it.
    dtype = validation.compute_dtype()
    first, second = reference
    return x.astype(dtype), t.astype(dtype), (first.astype(dtype), second.astype(dtype))


def _check_reference(
    outputs: ArrayLike,
    prompts: ArrayLike,
    x: jax.Array,
    t: jax.Array,
    origins: dict[str, np.ndarray | None],
) -> tuple[jax.Array, jax.Array]:
    named = {
        name: validation.as_array(array, name=name)
        for name, array in {"reference_outputs": outputs, "reference_prompts": prompts}.items()
    }
    for (name, given), evaluated in zip(named.items(), (x, t), strict=True):
        if given.ndim == 2 and given.shape[1] != evaluated.shape[1]:
            raise ValueError(
                f"{name}: expected {evaluated.shape[1]} columns as in the evaluated pairs, "
                f"received {given.shape[1]}."
            )
    moved = dict(zip(named, origins.values(), strict=True))
    first, second = validation.check_arrays(named, origins=moved)
    return first, second


def _check_size(outputs: jax.Array, prompts: jax.Array, ridge: Any) -> None:
    if ridge is not None:
        real = isinstance(ridge, (int, float, np.integer, np.floating))
        if not real or isinstance(ridge, bool) or not 0 < ridge < math.inf:
            raise ValueError(
                f"ridge: expected None or a finite number above 0, received {ridge!r}."
            )
        return
    size, dimension = len(outputs), outputs.shape[1] + prompts.shape[1]
    if size <= dimension:
        raise ValueError(
            f"A Gaussian of pairs in {outputs.shape[1]} + {prompts.shape[1]} = {dimension} "
            f"dimensions needs more than {dimension} reference pairs, received {size}: give more "
            "references, embed in fewer dimensions, or pass a ridge."
        )


def _check_regular(fit: _Fit) -> None:
    """Raises where a column is a combination of those before it: the information is infinite."""
    if not validation.is_concrete(fit):
        return
    left = np.abs(np.diag(fit.joint))
    whole = np.linalg.norm(np.asarray(fit.joint), axis=0)
    small = left <= _SINGULAR * np.finfo(left.dtype).eps * whole
    if small.any():
        column = int(small.argmax())
        kind = "outputs" if column < len(left) - len(fit.prompt) else "prompts"
        place = column if kind == "outputs" else column - (len(left) - len(fit.prompt))
        raise ValueError(
            f"The covariance of the reference pairs is singular in {left.dtype.name}: column "
            f"{place} of the {kind} is constant or a combination of the columns before it. Pass a "
            "ridge, embed in fewer dimensions, or enable x64."
        )


@jax.jit
def _fit(outputs: jax.Array, prompts: jax.Array, ridge: float) -> _Fit:
    """Fits the Gaussian by QR of the centred rows.

    The covariance is never formed: its condition number is the square of that of the rows, and in
    float32 nothing is left of an information computed from it.
    """
    z = jnp.concatenate([outputs, prompts], axis=1)
    # The mean relative to a row, for data whose mean is far larger than its spread.
    mean = z[0] + jnp.mean(z - z[:1], axis=0)
    rows = (z - mean[None]) / jnp.sqrt(jnp.asarray(len(z), z.dtype))
    rows = jnp.concatenate([rows, jnp.sqrt(ridge).astype(z.dtype) * jnp.eye(z.shape[1])])
    prompt = rows[:, outputs.shape[1] :]
    return _Fit(mean, jnp.linalg.qr(rows, mode="r"), jnp.linalg.qr(prompt, mode="r"))


def _information(fit: _Fit) -> jax.Array:
    """Information as log p(t | x) - log p(t) at the mean, by two triangular determinants."""
    conditional = jnp.diag(fit.joint)[-len(fit.prompt) :]
    return jnp.sum(jnp.log(jnp.abs(jnp.diag(fit.prompt))) - jnp.log(jnp.abs(conditional)))


@jax.jit
def _pointwise(outputs: jax.Array, prompts: jax.Array, fit: _Fit) -> jax.Array:
    """PMI as log p(t | x) / p(t): the distance of x cancels and is never computed."""
    split = outputs.shape[1]
    z = jnp.concatenate([outputs, prompts], axis=1) - fit.mean[None]
    joint = _whiten(fit.joint, z)[split:]
    prompt = _whiten(fit.prompt, z[:, split:])
    excess = jnp.sum(jnp.square(prompt), axis=0) - jnp.sum(jnp.square(joint), axis=0)
    return _information(fit) + excess / 2


def _whiten(root: jax.Array, rows: jax.Array) -> jax.Array:
    """R^{-T} of every row, `[d, n]`: its squared length is the Mahalanobis distance squared."""
    with jax.default_matmul_precision("highest"):
        return jax.scipy.linalg.solve_triangular(root, rows.T, trans=1)
