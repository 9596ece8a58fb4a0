"""Entropies of a kernel's Gram from finite features, and bounds of their error.

Random Fourier features: an entropy grows with the number of frequencies, and subsets of them show
its limit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.entropies import Entropy, eigenvalues
from condvendi_jax.spectra.measures import ROUNDING, Estimate, standard_error

# Groups of frequencies that are left out in turn: Student's t has seven degrees of freedom, and the
# 13 subsets below are few enough spectra.
GROUPS = 8
# Every group is in half of these, so that what is linear in a group cancels in their mean.
_HALVES = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7))
_WITHOUT = tuple(tuple(g for g in range(GROUPS) if g != left) for left in range(GROUPS))
_SUBSETS = (tuple(range(GROUPS)), *_WITHOUT, *_HALVES)
# The largest power s of a bias c D^-s: far above 1, at which the jackknife leaves nothing.
_STEEPEST = 6.0
# The rest is at most this many times the jackknife's correction: where the entropy grows like
# log D, no finite rest fits.
_FURTHEST = 8.0


def fourier_estimates(matrix: jax.Array, wanted: Sequence[Entropy], n: int) -> list[Estimate]:
    """Entropies of the kernel, from the covariance of its random Fourier features.

    docs/any_n.md has the extrapolation. `matrix` is the covariance `[2 D, 2 D]`, of trace one, the
    features of a frequency side by side and D a multiple of 8; or Z `[n, 2 D]`, n < 2 D, whose
    covariance is Z^T Z. Estimates of several covariances have pseudo-values that pair up.
    """
    needed = any(entropy.needs_spectrum for entropy in wanted)
    of_subsets = _spectra_of_subsets(matrix) if needed else []
    eigenvalues.check_spectra(*of_subsets)
    norms = np.asarray(_norms_of_subsets(matrix), np.float64)
    eps = float(jnp.finfo(matrix.dtype).eps)
    estimates = []
    for entropy in wanted:
        if entropy.needs_spectrum:
            values = np.concatenate(
                [np.asarray(_entropy(entropy, part), np.float64) for part in of_subsets]
            )
            limit = math.log(min(n, entropy.truncation or n))
            estimate = _extrapolated(values, limit, below_one=entropy.order < 1)
        else:
            estimate = _of_squared_norms(norms, n)
        rounding = ROUNDING * eps * max(estimate.value, 1.0)
        estimates.append(Estimate(estimate.per_probe, estimate.gap, 0.0, rounding))
    return estimates


@jax.jit
def _spectra_of_subsets(matrix: jax.Array) -> list[jax.Array]:
    """Eigenvalues with all groups, without each, and with each half: arrays `[m, size]`."""
    rows, features = matrix.shape
    columns = matrix.reshape(rows, GROUPS, -1)

    def subset_spectrum(chosen: jax.Array) -> jax.Array:
        part = columns[:, chosen].reshape(rows, -1)
        if rows < features:  # Z Z^T and Z^T Z have the same eigenvalues, up to zeros.
            part = eigenvalues.outer_products(part.T)
        else:
            part = part.reshape(GROUPS, -1, part.shape[1])[chosen].reshape(part.shape[1], -1)
        return eigenvalues.spectrum(part / jnp.trace(part))

    by_size = (_SUBSETS[:1], _WITHOUT, _HALVES)
    return [jax.lax.map(subset_spectrum, jnp.array(subsets)) for subsets in by_size]


@jax.jit
def _norms_of_subsets(matrix: jax.Array) -> jax.Array:
    """||.||_F^2 of the same subsets' matrices, of trace one, `[13]`."""
    columns = matrix.reshape(matrix.shape[0], GROUPS, -1)
    if matrix.shape[0] < matrix.shape[1]:
        grams = jnp.einsum("igk,jgk->gij", columns, columns, precision="highest")
        norms = jnp.einsum("gij,hij->gh", grams, grams, precision="highest")
        traces = jnp.sum(jnp.square(columns), axis=(0, 2))
    else:
        norms = jnp.sum(jnp.square(columns).reshape(GROUPS, -1, *columns.shape[1:]), axis=(1, 3))
        traces = jnp.sum(jnp.diagonal(matrix).reshape(GROUPS, -1), axis=1)
    # One for the groups of each subset and zero for the others, `[13, 8]`.
    members = jnp.array([[g in s for g in range(GROUPS)] for s in _SUBSETS], matrix.dtype)
    inside = jnp.einsum("sg,gh,sh->s", members, norms, members, precision="highest")
    return inside / jnp.square(jnp.matmul(members, traces, precision="highest"))


@functools.partial(jax.jit, static_argnums=0)
def _entropy(entropy: Entropy, values: jax.Array) -> jax.Array:
    """The entropies `[m]` of spectra `[m, size]`; a truncation counts their zeros too."""
    missing = max((entropy.truncation or 0) - values.shape[1], 0)
    return jax.vmap(entropy.of_spectrum)(jnp.pad(values, ((0, 0), (0, missing))))


def _jackknife(values: np.ndarray) -> tuple[float, np.ndarray]:
    """The jackknife's correction to the value of all groups, and its pseudo-values `[groups]`."""
    pseudo = GROUPS * values[0] - (GROUPS - 1) * values[1 : 1 + GROUPS]
    return float(np.mean(pseudo) - values[0]), pseudo


def _of_squared_norms(norms: np.ndarray, n: int) -> Estimate:
    """Order 2: the norm has a bias of c / D, and its logarithm one of second order."""
    added, pseudo = _jackknife(norms)
    norm = min(max(norms[0] + added, 1 / n), 1.0)
    relative = standard_error(pseudo) / norm
    per_probe = -math.log(norm) - (pseudo - np.mean(pseudo)) / norm
    return Estimate(per_probe, gap=relative**2)


def _extrapolated(values: np.ndarray, limit: float, *, below_one: bool = False) -> Estimate:
    """The entropies `[13]` of all subsets, at most `limit`, extrapolated to all frequencies."""
    added, pseudo = _jackknife(values)
    corrected = min(max(float(np.mean(pseudo)), 0.0), limit)
    halved = float(values[0] - np.mean(values[1 + GROUPS :]))
    if abs(added) <= standard_error(pseudo) or added * halved <= 0:
        # Noise: it determines no power.
        shift, gap = 0.0, abs(added)
    else:
        rest = min(max(corrected + _rest(added, halved), 0.0), limit) - corrected
        shift, gap = rest / 3, abs(rest) * 2 / 3
        if below_one:  # Too large a step, once the features span the points.
            shift, gap = 0.0, max(abs(rest), abs(added))
    return Estimate(corrected + shift + pseudo - np.mean(pseudo), gap=gap)


def _rest(added: float, halved: float) -> float:
    """The bias of H - c D^-s that the jackknife leaves, from its change and that by a halving."""
    furthest = math.copysign(_FURTHEST * abs(added), added)

    def changes(s: float) -> tuple[float, float]:
        """For c D^-s = 1: what the jackknife adds, and what a halving takes away."""
        return (GROUPS - 1) * math.expm1(s * math.log(GROUPS / (GROUPS - 1))), 2**s - 1

    def ratio(s: float) -> float:
        one, other = changes(s)
        return one / other

    low, high = 1e-6, _STEEPEST
    if added / halved >= ratio(low):
        return furthest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) > added / halved else (low, middle)
    one, other = changes(low)
    rest = halved / other * (1 - one)
    return math.copysign(min(abs(rest), abs(furthest)), rest)
