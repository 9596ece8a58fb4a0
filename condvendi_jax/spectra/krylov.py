"""Krylov spaces of a Gram for its large eigenvalues, Lanczos recurrences and quadratures.

All work is products. Without Householder factorisations, XLA turns each inner product of vectors
that are sharded by rows into an all-reduce, and this module needs no code for devices.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax.grams.operators import Together

_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
_einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
# In eps of the largest squared length in a block, empirical: the inverse square root of a Gram of
# columns cannot resolve shorter directions, which are left to the next block.
_RESOLVED = 100
_NOISE = 8  # In eps of the largest eigenvalue, empirical: shorter products with A are rounding.
# How many vectors of a recurrence are projected off at once. The room for later ones is not read.
_TOGETHER = 16


class KrylovSpace(NamedTuple):
    """A block Krylov space of A = K / n, and A projected to it."""

    basis: jax.Array  # Q `[rows, m]`, orthonormal columns, or zeros where the space is exhausted.
    projected: jax.Array  # Q^T A Q `[m, m]`; only its upper triangle is meant.
    # R^T R `[b, b]`, of the part R of the last block's image outside of the space.
    remainder: jax.Array


class Tridiagonals(NamedTuple):
    """Lanczos recurrences of several probes, resumable."""

    following: jax.Array  # `[rows, probes]`, the next vectors; zero where a space is complete.
    history: jax.Array  # `[probes, capacity, rows]`, the orthonormal vectors of each so far.
    alpha: jax.Array  # `[probes, capacity]`, the diagonals.
    beta: jax.Array  # `[probes, capacity]`; entry k couples steps k and k + 1.
    squares: jax.Array  # `[probes]`, the squared norms of the projected probes.


def project_off(vectors: jax.Array, basis: jax.Array) -> jax.Array:
    """Removes the span of orthonormal (or zero) columns; once leaves rounding of what went."""
    for _ in range(2):
        vectors = vectors - _product(basis, _product(basis.T, vectors))
    return vectors


def _inverse_or_zero(values: jax.Array, positive: jax.Array) -> jax.Array:
    return jnp.where(positive, 1 / jnp.where(positive, values, 1), 0)


def orthonormal(vectors: jax.Array, basis: jax.Array, floor: jax.Array) -> jax.Array:
    """Orthonormal columns for what `vectors` add to the span of `basis`; zeros for the others.

    Columns are scaled to unit length and multiplied by the inverse root of their Gram, twice. A
    factorisation would complete a deficient block with directions that are not orthogonal to the
    basis. Columns not longer than `floor` outside of it are rounding.
    """
    eps = jnp.finfo(vectors.dtype).eps
    # In the second round a column of unit length that the basis shortens was rounding as well.
    for shortest in (floor, jnp.asarray(0.5, vectors.dtype)):
        vectors = project_off(vectors, basis)
        norms = jnp.linalg.norm(vectors, axis=0)
        vectors = vectors * _inverse_or_zero(norms, norms > shortest)[None, :]
        squares, rotation = jnp.linalg.eigh(_product(vectors.T, vectors))
        resolved = squares > jnp.maximum(_RESOLVED * eps * squares[-1], eps)
        scales = jnp.sqrt(_inverse_or_zero(squares, resolved))
        vectors = _product(vectors, rotation * scales[None, :])
    return vectors


@functools.partial(jax.jit, static_argnames="sweeps")
def krylov_spaces(
    products: Together, starts: tuple[jax.Array, ...], *, sweeps: int
) -> tuple[KrylovSpace, ...]:
    """For every operator, the space of `sweeps` blocks that its start `[rows, b]` spans under A."""
    rows, width = starts[0].shape
    dtype, size = starts[0].dtype, sweeps * width
    eps = jnp.finfo(dtype).eps

    # Of a space that has some of its blocks: A times the last block `[rows, b]`, the longest column
    # of all such images, the basis, and A projected to it.
    def sweep(k: jax.Array, spaces: Any) -> Any:
        blocks = tuple(orthonormal(x, basis, _NOISE * eps * most) for x, most, basis, _ in spaces)
        return tuple(map(functools.partial(extended, k), spaces, blocks, products.matvecs(blocks)))

    def extended(k: jax.Array, space: Any, block: jax.Array, image: jax.Array) -> Any:
        _, largest, basis, projected = space
        basis = lax.dynamic_update_slice_in_dim(basis, block, k * width, axis=1)
        column = _product(basis.T, image)
        projected = lax.dynamic_update_slice_in_dim(projected, column, k * width, axis=1)
        largest = jnp.maximum(largest, jnp.max(jnp.linalg.norm(image, axis=0)))
        return image, largest, basis, projected

    def completed(space: Any) -> KrylovSpace:
        image, _, basis, projected = space
        rest = project_off(image, basis)
        return KrylovSpace(basis, projected, _product(rest.T, rest))

    empty = jnp.zeros((), dtype), jnp.zeros((rows, size), dtype), jnp.zeros((size, size), dtype)
    spaces = tuple((start, *empty) for start in starts)
    return tuple(map(completed, lax.fori_loop(0, sweeps, sweep, spaces)))


#: Combinations `[rows, k]` of the columns of a basis, by coefficients `[m, k]`.
combine = jax.jit(_product)
#: Combinations `[rows, probes]` of the vectors of each probe, by `[probes, capacity]`.
unroll = jax.jit(lambda state, coefficients: _einsum("pkn,pk->np", state.history, coefficients))


@functools.partial(jax.jit, static_argnames="capacity")
def start_lanczos(basis: jax.Array, probes: jax.Array, *, capacity: int) -> Tridiagonals:
    """The recurrences of P A P before their first step, P the projection off `basis`."""
    probes = project_off(probes, basis)
    squares = jnp.sum(jnp.square(probes), axis=0)
    table = jnp.zeros((probes.shape[1], capacity), probes.dtype)
    following = probes * _inverse_or_zero(jnp.sqrt(squares), squares > 0)[None, :]
    # Padded, not made of zeros: it is to lie on the devices as the probes do.
    history = jnp.pad(following.T[:, None], ((0, 0), (0, capacity - 1), (0, 0)))
    return Tridiagonals(following, history, alpha=table, beta=table, squares=squares)


@jax.jit
def lanczos(
    products: Together,
    bases: tuple[jax.Array, ...],
    states: tuple[tuple[Tridiagonals, ...], ...],
    first: jax.Array,
    last: jax.Array,
) -> tuple[tuple[Tridiagonals, ...], ...]:
    """Steps `first` ... `last - 1` of the recurrences, with full reorthogonalisation.

    There are a basis and any number of states for every operator. The bounds are traced: one
    compiled program serves every number of steps up to the capacity.
    """

    def step(k: jax.Array, states: Any) -> Any:
        following = (jnp.concatenate([s.following for s in some], axis=1) for some in states)
        images = products.matvecs(tuple(following))
        return tuple(map(functools.partial(advanced, k), states, bases, images))

    def advanced(k: jax.Array, states: Any, basis: jax.Array, images: jax.Array) -> Any:
        ends = np.cumsum([state.following.shape[1] for state in states])
        parts = jnp.split(images, ends[:-1], axis=1)
        return tuple(_extend(k, *pair, basis) for pair in zip(states, parts, strict=True))

    return lax.fori_loop(first, last, step, states)


def _extend(k: jax.Array, state: Tridiagonals, image: jax.Array, basis: jax.Array) -> Tridiagonals:
    """Step k, from the images of the vectors that follow."""
    eps = jnp.finfo(state.alpha.dtype).eps
    current = state.following
    history = lax.dynamic_update_index_in_dim(state.history, current.T, k, axis=1)
    image = project_off(image, basis)
    diagonal = jnp.sum(current * image, axis=0)
    largest = jnp.linalg.norm(image, axis=0)
    size = min(_TOGETHER, history.shape[1])

    def apart(part: jax.Array, image: jax.Array) -> jax.Array:
        known = lax.dynamic_slice_in_dim(history, part * size, size, axis=1)
        return image - _einsum("pkn,pk->pn", known, _einsum("pkn,pn->pk", known, image))

    image = image.T  # A probe at a time: its vectors lie together.
    for _ in range(2):
        image = lax.fori_loop(0, k // size + 1, apart, image)
    image = image.T
    norm = jnp.linalg.norm(image, axis=0)
    # A complete Krylov space leaves a remainder of rounding's size: its direction is noise.
    norm = jnp.where(norm > _NOISE * eps * largest, norm, 0)
    alpha, beta = state.alpha.at[:, k].set(diagonal), state.beta.at[:, k].set(norm)
    following = image * _inverse_or_zero(norm, norm > 0)[None, :]
    return Tridiagonals(following, history, alpha, beta, state.squares)


@functools.partial(jax.jit, static_argnames="capacity")
def enlarge(state: Tridiagonals, *, capacity: int) -> Tridiagonals:
    """The recurrences with room for more steps."""
    more = capacity - state.alpha.shape[1]
    history = jnp.pad(state.history, ((0, 0), (0, more), (0, 0)))
    alpha, beta = (jnp.pad(part, ((0, 0), (0, more))) for part in (state.alpha, state.beta))
    return state._replace(history=history, alpha=alpha, beta=beta)


def tridiagonal_eigen(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues `[probes, m]` and eigenvectors `[probes, m, m]` of tridiagonal matrices."""
    size = alpha.shape[1]
    matrices = alpha[:, :, None] * np.eye(size)
    matrices[:, 1:, :-1] += beta[:, :, None] * np.eye(size - 1)  # Its lower triangle is read.
    return np.linalg.eigh(matrices)


def gauss(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights `[probes, m]` of Gauss quadratures; the weights of a probe sum to one."""
    nodes, vectors = tridiagonal_eigen(alpha, beta)
    # The spectrum ends at zero: a node below it is rounding.
    return np.maximum(nodes, 0), np.square(vectors[:, 0, :])


def radau(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights `[probes, m + 1]` of Gauss-Radau quadratures with a node at zero.

    Zero is an eigenvalue of the matrix with one row more, whose last entry is beta^2 over the last
    pivot of T (Golub, 1973), with `beta[:, -1]` the norm of the remainder after m steps. A pivot
    that is not positive is rounding: the Gauss quadrature has a node at zero already.
    """
    pivot = alpha[:, 0]
    for k in range(1, alpha.shape[1]):
        pivot = alpha[:, k] - np.square(beta[:, k - 1]) / np.where(pivot > 0, pivot, np.inf)
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
    extended = np.pad(projected, (0, width))
    extended[size:, size - width : size] = extended[size - width : size, size:] = root
    extended[size:, size:] = root @ (last @ last.T) @ root
    return extended
