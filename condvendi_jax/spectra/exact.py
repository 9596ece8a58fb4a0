"""All eigenvalues: entropies, their slopes, and deletions of groups from the eigenvectors."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax import entropies
from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy, eigenvalues
from condvendi_jax.grams import grams_of
from condvendi_jax.grams.operators import FeatureGram, square_roots
from condvendi_jax.spectra import estimators
from condvendi_jax.spectra.methods import Grams, Method, Terms, per_term, unweighted_grams
from condvendi_jax.spectra.order_two import Leaving, Sloped, in_order

# Above this n all eigenvalues take minutes: a warning says so before the work begins.
_LONG_ABOVE = 8000
# Seconds per n^3 for one spectrum, measured on two CPU cores: 2e-11 at n = 4,000, 7e-11 at 14,000.
_SECONDS_PER_CUBE = 5e-11
# At order 1, groups are deleted exactly while their squared shares have up to this sum: with equal
# weights, deletions then take no longer than the eigenvectors, and less than four n x n arrays.
_GROUP_WORK = 0.2
_ENTRIES = 2**22  # Of the points and kernels of several sets, which one program holds a few times.


@dataclasses.dataclass(frozen=True)
class Exact(Method):
    """All eigenvalues: O(n^3) time and n x n arrays, or less where the kernels have few features.

    Needs no key. Differentiable, and the only method that works inside `jax.jit`.
    """

    name: ClassVar[str] = "exact"

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        if not all_dual(grams, terms):
            memory.check(grams["outputs"].n, grams["outputs"].dtype)
        return self

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        warn_of_long_work(grams, terms)
        with memory.explained(grams["outputs"].n, grams["outputs"].dtype):
            by_term = {name: estimators.all_eigenvalues(grams[name]) for name in terms}
            by_term = jax.block_until_ready(by_term)
        values = entropies_of_spectra(by_term, tuple(wanted))
        eigenvalues.check_spectra(*jax.tree.leaves(values))
        return [Computed(per_term(value), None, self.name, per_term(by_term)) for value in values]

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        """The slopes, from one eigendecomposition of each Gram or of its dual matrix."""
        near = points.gathered()
        warn_of_long_work(unweighted_grams(near), terms)
        if leaving is not None:
            # By weights, so that copies of rows and their numbers give the same errors.
            several = [part.weights.sum(1) for part in leaving if part.rows.shape[1] > 1]
            work = sum(np.square(weights).sum() for weights in several)
            if entropy != Entropy() or near.n == 1 or work > _GROUP_WORK:
                leaving = None
        weights = np.asarray(near.shares, near.dtype)

        def term_of(name: str) -> tuple[Any, ...]:
            """In two programs, the larger of which is compiled once for all terms."""
            operator = _operator(near, weights, name)
            # One term at a time holds the vectors of one matrix.
            return jax.block_until_ready(_term_of_operator(*operator, weights, leaving, entropy))

        with memory.explained(near.n, near.dtype):
            parts = zip(*map(term_of, terms), strict=True)
        values, rows, deletions, spectra = (dict(zip(terms, part, strict=True)) for part in parts)
        eigenvalues.check_spectra(*values.values())
        wide = {name: np.asarray(slopes, np.float64)[None] for name, slopes in rows.items()}
        influences = {name: estimators.centred(part, near.shares) for name, part in wide.items()}
        lost = {name: in_order(part, leaving) for name, part in deletions.items() if leaving}
        return Sloped(
            Computed(per_term(values), None, self.name, per_term(spectra)),
            per_term(influences),
            None if leaving is None else per_term(lost),
        )


def all_dual(grams: Grams, terms: Terms) -> bool:
    """Whether every spectrum can be computed from a matrix smaller than n x n."""
    return all(grams[name].rank_bound < grams[name].n for name in terms)


def warn_of_long_work(grams: Grams, terms: Terms) -> None:
    """Warns, with the expected time, where all eigenvalues take minutes."""
    ranks = [grams[name].rank_bound for name in terms]
    if max(ranks) > _LONG_ABOVE:
        minutes = sum(rank**3 for rank in ranks) * _SECONDS_PER_CUBE / 60
        checks.warn(
            f"all eigenvalues of n = {grams['outputs'].n:,} points take some {minutes:.0f} minutes "
            "on two CPU cores; method=cv.Auto(key=jax.random.key(0)) estimates the scores, with an "
            "interval, in a small part of that."
        )


@functools.partial(jax.jit, static_argnums=1)
def entropies_of_spectra(
    spectra_of_terms: dict[str, jax.Array], wanted: tuple[Entropy, ...]
) -> list[dict[str, jax.Array]]:
    """Each entropy of every spectrum."""
    return [jax.tree.map(entropy.of_spectrum, spectra_of_terms) for entropy in wanted]


@functools.partial(jax.jit, static_argnums=2)
def _operator(points: Pairs, weights: jax.Array, name: str) -> tuple[jax.Array, jax.Array | None]:
    """A and None, or features and their smaller matrix."""
    roots, gram = square_roots(weights), unweighted_grams(points)[name]
    if isinstance(gram, FeatureGram) and gram.rank_bound < gram.n:
        return eigenvalues.outer_products(gram.features * roots[:, None]), gram.features
    return gram.dense().matrix * roots[:, None] * roots[None, :], None


@functools.partial(jax.jit, static_argnums=4)
def _term_of_operator(
    operator: jax.Array,
    features: jax.Array | None,
    weights: jax.Array,
    leaving: Sequence[Leaving] | None,
    entropy: Entropy,
) -> tuple[jax.Array, jax.Array, list[jax.Array], jax.Array]:
    """The entropy of A, or of the smaller matrix of features, and its slopes.

    Returns the value, derivatives in the weights of rows, the losses of groups, and eigenvalues.
    """
    values, vectors = eigenvalues.decomposed(operator)
    # The eigenvalues of A that the features lack are zero.
    padded = functools.partial(jnp.pad, pad_width=(0, weights.size - values.size))
    value, slopes = jax.value_and_grad(lambda v: entropy.of_spectrum(padded(v)))(values)
    # v_k^T phi_i for the eigenvector v_k of the operator and the feature phi_i of a row.
    if features is not None:
        projections = eigenvalues.matmul(features, vectors)
    else:  # Zero for rows of weight zero.
        inverse = jnp.where(weights > 0, 1 / jnp.where(weights > 0, weights, 1), 0)
        projections = vectors * square_roots(values)[None, :] * square_roots(inverse)[:, None]
    lost = [_deletions(value, values, projections, part) for part in leaving or ()]
    rows = eigenvalues.matmul(jnp.square(projections), slopes)
    return value, rows, lost, padded(values)


class Sets(NamedTuple):
    """Some sets of rows, which are padded to one size m, with the entropy of each."""

    sets: np.ndarray  # Their numbers, `[g]`; the last may come several times.
    places: np.ndarray  # Where the rows of each are among the rows of all sets, `[g, m]`.
    inside: np.ndarray  # Which are rows, and which are padding, `[g, m]`.
    values: jax.Array  # The entropies of the outputs, `[g]`.
    # The weighted sums of squares and of fourth powers of the kernel of each row, `[g, 2, m]`.
    sums: jax.Array


def compute_sets(
    points: Pairs,
    rows: np.ndarray,
    sizes: np.ndarray,
    chosen: np.ndarray,
    weights: np.ndarray,
    entropy: Entropy,
) -> Iterator[Sets]:
    """Computes the entropies of the outputs of the `chosen` sets of rows, several sets at once.

    `rows` are those of set 0, then of set 1, and so on, as many as `sizes` `[p]` say. `weights`
    `[n]` have sum one in each set. A small set keeps all eigenvalues of a larger truncation.
    """
    for sets, places, inside in padded_sets(sizes, chosen, points.arrays[0].shape[1]):
        members = rows[places]
        shares = jnp.asarray(np.where(inside, weights[members], 0), points.dtype)
        fitted = entropy.fitted(inside.shape[1])
        values, sums = _compute_apart(points.kernels[0], points.arrays[0][members], shares, fitted)
        eigenvalues.check_spectra(values)
        yield Sets(sets, places, inside, values, sums)


def padded_sets(
    sizes: np.ndarray, chosen: np.ndarray, entries: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The `sets`, `places` and `inside` of `Sets`, as many at once as the memory should hold."""
    starts = np.cumsum(sizes) - sizes
    # Compiling takes longer than the numbers: one program for up to 16 rows, 32, 64, ...
    programs = np.ceil(np.log2(np.maximum(sizes[chosen], 16)))
    for program in np.unique(programs):
        together = chosen[programs == program]
        most = int(sizes[together].max())
        # A row takes its kernel values and so many entries.
        at_once = max(1, _ENTRIES // (most * (most + entries)))
        for start in range(0, together.size, at_once):
            # As many each time, so that all are one program: the last of them again.
            numbers = np.arange(start, start + min(at_once, together.size))
            sets = together[np.minimum(numbers, together.size - 1)]
            inside = np.arange(most) < sizes[sets, None]
            yield sets, starts[sets, None] + np.where(inside, np.arange(most), 0), inside


@functools.partial(jax.jit, static_argnums=3)
def _compute_apart(
    kernel: Kernel, points: jax.Array, weights: jax.Array, entropy: Entropy
) -> tuple[jax.Array, jax.Array]:
    """`Sets.values` and `Sets.sums` of the points `[g, m, d]` with weights `[g, m]`."""

    def compute_set(points: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        (gram,) = grams_of(Pairs.trusted((points,), (kernel,), n=points.shape[0]))
        matrix, roots = gram.dense().matrix, square_roots(weights)
        squares = jnp.square(matrix)
        sums = jnp.stack([eigenvalues.matmul(k, weights) for k in (squares, jnp.square(squares))])
        if not entropy.needs_spectrum:
            return entropies.of_squared_norm(jnp.sum(weights * sums[0])), sums
        values = eigenvalues.spectrum(matrix * roots[:, None] * roots[None, :])
        return entropy.of_spectrum(values), sums

    return jax.vmap(compute_set)(points, weights)


def _deletions(
    value: jax.Array, values: jax.Array, projections: jax.Array, leaving: Leaving
) -> jax.Array:
    """The loss of the entropy of order 1 without each group, per weight, relative to the rest.

    -x log x is the integral over s of log(1 + x / s) - x / (1 + s), less x, so that a group changes
    log det(s + A), by log det(1 - B) with B_ij = (w_i w_j)^(1/2) phi_i' (s + A)^-1 phi_j. In log s
    the trapezoid rule with steps of one is right to 1e-8.
    """
    s = jnp.exp(jnp.arange(-24, 25, dtype=values.dtype))
    # Zero eigenvalues have no part: the rows lie in what the others span.
    inverse = 1 / (jnp.maximum(values, 0)[None, :] + s[:, None])
    largest = 1 - jnp.finfo(values.dtype).epsneg
    weights = jnp.asarray(leaving.weights, values.dtype)

    def log_dets(group: tuple[jax.Array, jax.Array]) -> jax.Array:
        parts = projections[group[0]] * jnp.sqrt(group[1])[:, None]
        blocks = eigenvalues.matmul(inverse[:, None, :] * parts[None], parts.T)

        # By the pivots less one: where s is large, 1 - B would be rounded to one.
        def eliminate(k: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            blocks, total = carry
            column = blocks[:, k]
            pivot = jnp.clip(column[:, k], 0, largest)
            outer = column[:, :, None] * column[:, None, :]
            return blocks + outer / (1 - pivot)[:, None, None], total + jnp.log1p(-pivot)

        return lax.fori_loop(0, parts.shape[0], eliminate, (blocks, jnp.zeros_like(s)))[1]

    # Group by group: of all at once, the inverses times the features would be 49 n x n arrays.
    logs = lax.map(log_dets, (jnp.asarray(leaving.rows), weights))
    # Divided by the weight term by term: the difference of two entropies would lose the digits.
    weights = jnp.sum(weights, axis=1)
    divided = weights > 0
    per_weight = 1 / jnp.where(divided, weights, 1)
    parts = logs * per_weight[:, None] + 1 / (1 + s[None, :])
    unscaled = value + 1 + jnp.sum(parts * s[None, :], axis=1)
    lost = jnp.minimum(weights, largest)
    return jnp.where(divided, -unscaled - (1 - lost) * jnp.log1p(-lost) * per_weight, 0)
