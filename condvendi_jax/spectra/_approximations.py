"""Entropies of a kernel's Gram out of finite features of it, and how far they may be off.

With fewer frequencies an entropy of random Fourier features is smaller, on average: what a half of
them and seven eighths of them give shows how it grows, and where to. Nystroem's eigenvalues are
below those of the kernel, one by one, and the trace says by how much together: that leaves some
entropies possible and no others.

Everything here is small, and but for the spectra float64 on the host.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _features as features
from condvendi_jax.spectra._measures import Estimate, half_interval, standard_error

# Groups of frequencies that are left out in turn: seven degrees of freedom.
GROUPS = 8
# Every group is in half of these, so that what is linear in a group cancels in their mean.
_HALVES = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7))
_WITHOUT = tuple(tuple(g for g in range(GROUPS) if g != left) for left in range(GROUPS))
_SUBSETS = (tuple(range(GROUPS)), *_WITHOUT, *_HALVES)
# The bias is a power of the number of frequencies, up to this one.
_STEEPEST = 6.0
# How many corrections the rest may be; a logarithm's, which has no limit, is larger than any.
_FURTHEST = 8.0
# In eps of the dtype: what products leave in a trace, as in `measures`.
_ROUNDING = 30


def fourier_estimates(matrix: jax.Array, wanted: Sequence[Entropy], n: int) -> list[Estimate]:
    """Entropies of the kernel of which these are random Fourier features.

    An entropy H_D of D frequencies approaches H as H - c D^-s. The delete-group jackknife, of eight
    groups, removes a bias with s = 1; half of the frequencies tell s, and so what is left where
    the spectrum falls slowly, which is s < 1, up to the bound log n. The estimate is a third of the
    way on, near where measurements were, and two thirds of it are in the `gap`; below order 1 it is
    not carried on, and the gap is wider. The squared norm, and so the order 2, has s = 1 exactly:
    there the jackknife leaves no bias.

    Args:
      matrix: the covariance `[2 D, 2 D]`, of trace one, the features of a frequency side by side
        and D a multiple of 8; or, smaller where there are few points, the Gram of the features of
        every group of frequencies `[8, n, n]`, of trace one together.
      wanted: the entropies, of truncations up to n.
      n: the number of points.

    Returns:
      An estimate of each, of a pseudo-value `[8]` a group: with those of other covariances of the
      same frequencies they pair up.
    """
    found = {}
    if any(entropy.needs_spectrum for entropy in wanted):
        found[True] = _spectra_of_subsets(matrix)
        spectra.check_spectra(*found[True])
    norms = np.asarray(_norms_of_subsets(matrix), np.float64)
    eps = float(jnp.finfo(matrix.dtype).eps)
    estimates = []
    for entropy in wanted:
        if entropy.needs_spectrum:
            of_subsets = [_entropy(entropy, values) for values in found[True]]
            values = np.concatenate([np.asarray(part, np.float64) for part in of_subsets])
            estimate = _extrapolated(values, _limit(entropy, n), below_one=entropy.order < 1)
        else:
            estimate = _of_squared_norms(norms, n)
        rounding = _ROUNDING * eps * max(estimate.value, 1.0)
        estimates.append(Estimate(estimate.per_probe, estimate.gap, 0.0, rounding))
    return estimates


def _limit(entropy: Entropy, n: int) -> float:
    """The largest entropy that there is."""
    return math.log(min(n, entropy.truncation or n))


@jax.jit
def _spectra_of_subsets(matrix: jax.Array) -> list[jax.Array]:
    """Eigenvalues with all groups, without each, and with each half: arrays `[m, size]`."""

    def normalised(part: jax.Array) -> jax.Array:
        return spectra.spectrum(part / jnp.trace(part))

    if matrix.ndim == 3:
        return [jax.lax.map(lambda chosen: normalised(_summed(chosen, matrix)), _members(matrix))]
    groups = matrix.reshape(GROUPS, -1, GROUPS, matrix.shape[1] // GROUPS)

    def of_subset(chosen: jax.Array) -> jax.Array:
        part = groups[chosen][:, :, chosen]
        return normalised(part.reshape(part.shape[0] * part.shape[1], -1))

    by_size = [jnp.array([list(s) for s in subsets]) for _, subsets in _by_size()]
    return [jax.lax.map(of_subset, subsets) for subsets in by_size]


def _members(matrix: jax.Array) -> jax.Array:
    """One for the groups of each subset and zero for the others, `[13, 8]`."""
    return jnp.array([[g in s for g in range(GROUPS)] for s in _SUBSETS], matrix.dtype)


_summed = functools.partial(jnp.tensordot, axes=1, precision="highest")


def _by_size() -> list[tuple[int, list[tuple[int, ...]]]]:
    return [(size, list(subsets)) for size, subsets in itertools.groupby(_SUBSETS, key=len)]


@jax.jit
def _norms_of_subsets(matrix: jax.Array) -> jax.Array:
    """||.||_F^2 of the same subsets' matrices, of trace one, `[13]`."""
    if matrix.ndim == 2:
        groups = matrix.reshape(GROUPS, -1, GROUPS, matrix.shape[1] // GROUPS)
        norms = jnp.sum(jnp.sum(jnp.square(groups), axis=3), axis=1)
        traces = jnp.sum(jnp.diagonal(matrix).reshape(GROUPS, -1), axis=1)
    else:
        # ||Z_g^T Z_h||_F^2 is the inner product of the Grams of g and h.
        norms = jax.lax.map(
            lambda gram: jnp.sum(jnp.sum(gram[None] * matrix, axis=2), axis=1), matrix
        )
        traces = jnp.trace(matrix, axis1=1, axis2=2)
    members = _members(matrix)
    inside = jnp.einsum("sg,gh,sh->s", members, norms, members, precision="highest")
    return inside / jnp.square(jnp.matmul(members, traces, precision="highest"))


@functools.partial(jax.jit, static_argnums=0)
def _entropy(entropy: Entropy, values: jax.Array) -> jax.Array:
    """Of spectra `[m, size]`, `[m]`; a truncation counts their zeros too."""
    missing = max((entropy.truncation or 0) - values.shape[1], 0)
    return jax.vmap(entropy.of_spectrum)(jnp.pad(values, ((0, 0), (0, missing))))


def _jackknife(values: np.ndarray) -> tuple[float, np.ndarray]:
    """What the jackknife adds to the value of all groups, and its pseudo-values `[groups]`."""
    pseudo = GROUPS * values[0] - (GROUPS - 1) * values[1 : 1 + GROUPS]
    return float(np.mean(pseudo) - values[0]), pseudo


def _of_squared_norms(norms: np.ndarray, n: int) -> Estimate:
    """The order 2: the norm has a bias of c / D, and its logarithm follows to second order."""
    added, pseudo = _jackknife(norms)
    norm = min(max(norms[0] + added, 1 / n), 1.0)
    relative = standard_error(pseudo) / norm
    per_probe = -math.log(norm) - (pseudo - np.mean(pseudo)) / norm
    return Estimate(per_probe, gap=relative**2)


def _extrapolated(values: np.ndarray, limit: float, *, below_one: bool = False) -> Estimate:
    """The entropies of all subsets, carried to infinitely many frequencies.

    Args:
      values: `[13]`, one for each of the subsets.
      limit: the largest entropy that there is.
      below_one: whether the order is. There the jackknife takes too large a step once the features
        span the points: the gap goes back to where it began.
    """
    added, pseudo = _jackknife(values)
    corrected = min(max(float(np.mean(pseudo)), 0.0), limit)
    halved = float(values[0] - np.mean(values[1 + GROUPS :]))
    if abs(added) <= standard_error(pseudo) or added * halved <= 0:
        # Noise, of which no power can be told.
        shift, gap = 0.0, abs(added)
    else:
        rest = min(max(corrected + _rest(added, halved), 0.0), limit) - corrected
        shift, gap = rest / 3, abs(rest) * 2 / 3
        if below_one:
            shift, gap = 0.0, max(abs(rest), abs(added))
    return Estimate(corrected + shift + pseudo - np.mean(pseudo), gap=gap)


def _rest(added: float, halved: float) -> float:
    """What H - c D^-s still lacks after the jackknife, from what this and a halving change."""
    furthest = math.copysign(_FURTHEST * abs(added), added)

    def changes(s: float) -> tuple[float, float]:
        """Of c D^-s = 1: what the jackknife adds, and what a halving takes."""
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


def nystroem_estimates(
    covariance: jax.Array, residual: np.ndarray, wanted: Sequence[Entropy], n: int
) -> list[Estimate]:
    """Entropies of the kernel whose Nystroem features have this covariance.

    The landmarks span a part of the Gram, A = A_m + R with both semidefinite. So each eigenvalue of
    A is at least that of A_m, and all together exceed it by Tr R: entropies are largest where that
    lies on the smallest eigenvalues, as level as it can be. And the k largest of A exceed those of
    A_m by at most the k largest of R (Ky Fan), which is at most the root of k ||R||_F^2: entropies
    are smallest where each of these is reached. Both are so for truncated entropies too, of their
    t. Between them the estimate takes R to have equal eigenvalues, and the vectors of none of A_m.

    Args:
      covariance: `[m, m]`, of a trace up to one.
      residual: values `[groups + 1]` of ||R||_F^2, from a sample of pairs of points: of all of it,
        and without each group of points. One value where it is of all points.
      wanted: the entropies, of truncations up to n.
      n: the number of points.

    Returns:
      An estimate of each. In its interval is all that the trace and the norm leave possible; that
      of the norm is one of 95%.
    """
    trace = float(jnp.trace(covariance))
    missing = max(1 - trace, 0.0)
    values = np.zeros(n)
    computed = features.eigenvalues(covariance / trace, covariance.shape[0])
    spectra.check_spectra(computed)
    kept = np.asarray(computed, np.float64)
    values[: min(kept.size, n)] = kept[:n] * (1 - missing)
    square, most = residual[0], residual[0]
    if residual.size > 1:
        added, pseudo = _jackknife(residual)
        square, most = square + added, square + added + half_interval(pseudo)
    # Between that of n equal eigenvalues, and of one.
    square, most = (min(max(q, missing**2 / n), missing**2) for q in (square, most))
    eps = float(jnp.finfo(covariance.dtype).eps)
    return [_between(entropy, values, missing, (square, most), eps) for entropy in wanted]


def residual_norms(squares: np.ndarray, n: int) -> np.ndarray:
    """||R||_F^2 from the squares `[s, s]` of n R between s of n points, as a jackknife needs them.

    Returns:
      `[1]` where the points are all; else, without the rest of s / groups, `[groups + 1]`: of all
      of them, and without each group.
    """
    s = squares.shape[0]
    if s == n:
        return np.array([squares.sum() / n**2])
    s -= s % GROUPS
    diagonal = np.diagonal(squares)[:s].reshape(GROUPS, -1).sum(axis=1)
    sums = squares[:s, :s].reshape(GROUPS, s // GROUPS, GROUPS, -1).sum(axis=(1, 3))
    sums -= np.diag(diagonal)
    norms = []
    for subset in _SUBSETS[: GROUPS + 1]:
        size = len(subset) * s // GROUPS
        pairs = sums[np.ix_(subset, subset)].sum() / (size * (size - 1))
        norms.append(pairs * (n - 1) / n + diagonal[list(subset)].sum() / size / n)
    return np.array(norms)


def _between(
    entropy: Entropy, values: np.ndarray, missing: float, squares: tuple[float, float], eps: float
) -> Estimate:
    square, most = squares
    t = entropy.truncation or values.size
    share = np.arange(t + 1) / t
    gains = np.minimum(np.sqrt(np.arange(t + 1) * most), missing)
    if t < values.size:
        # What a truncation keeps is not known: at worst, the k largest gain and the others do not.
        gains = gains * (1 - share) + (1 - values[:t].sum()) * share
    equal = round(missing**2 / square) if square > 0 else 1
    beside = np.concatenate([values, np.full(equal, missing / equal)])
    low, high, value = (
        _host_entropy(entropy, p[:t], eps)
        for p in (
            values[:t] + np.diff(gains),
            _levelled(values[:t], missing),
            np.sort(beside)[::-1],
        )
    )
    value, middle = min(max(value, low), max(low, high)), (low + high) / 2
    rounding = _ROUNDING * eps * max(high, 1.0)
    return Estimate(
        np.full(2, value),
        gap=max(high - low, 0.0) / 2,
        rounding=rounding,
        offset=middle - value,
    )


def _levelled(values: np.ndarray, mass: float) -> np.ndarray:
    """Descending values, the smallest raised to one level by a mass in all."""
    ascending = values[::-1]
    counts = np.arange(1, values.size + 1)
    levels = (np.cumsum(ascending) + mass) / counts
    # The level of so many that the next is above it.
    above = np.append(ascending[1:], np.inf)
    level = levels[int(np.argmax(levels <= above))]
    return np.maximum(values, level)


def _host_entropy(entropy: Entropy, p: np.ndarray, eps: float) -> float:
    """The entropy of the leading eigenvalues of a spectrum of sum one, shifted to that sum."""
    p = p + (1 - p.sum()) / p.size
    if entropy.order < 1:
        p = np.where(p > spectra.NOISE_FLOOR * eps * p.max(), p, 0)
    p = p[p > 0]
    if entropy.order == 1:
        return max(float(-np.sum(p * np.log(p))), 0.0)
    if math.isinf(entropy.order):
        return max(float(-np.log(p.max())), 0.0)
    largest = float(p.max())
    total = math.log(float(np.sum((p / largest) ** entropy.order)))
    return max((total + entropy.order * math.log(largest)) / (1 - entropy.order), 0.0)
