"""All eigenvalues: entropies, their slopes, and deletions of groups from the eigenvectors."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, devices, memory
from condvendi_jax.data.kernels import Kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy, PerTerm, eigenvalues, of_squared_norm
from condvendi_jax.grams.operators import FeatureGram, Gram, grams_of, square_roots
from condvendi_jax.spectra import blocks, estimators, measures, order_two
from condvendi_jax.spectra.methods import Grams, Method, Terms, per_term, unweighted_grams
from condvendi_jax.spectra.pair_sums import Leaving, in_order, leaving_of

# Above this n all eigenvalues take minutes: a warning says so before the work begins.
_LONG_ABOVE = 8000
# Seconds per n^3 for one spectrum, measured on two CPU cores: 2e-11 at n = 4,000, 7e-11 at 14,000.
_SECONDS_PER_CUBE = 5e-11
# At order 1, groups are deleted exactly while their squared shares have up to this sum: with equal
# weights, deletions then take no longer than the eigenvectors, and less than four n x n arrays.
_GROUP_WORK = 0.2
_WHOLE = 1e-12  # Of the weight of a block: rows that have all but this are all of its rows.
_AT_ONCE = 2**20  # Entries of the features of groups that are deleted at once.
_ENTRIES = 2**22  # Of the points and kernels of several sets, which one program holds a few times.


@dataclasses.dataclass(frozen=True)
class Exact(Method):
    """All eigenvalues: O(n^3) time and n x n arrays.

    Less where the kernels have few features. Where prompts are equal or different, the conditional
    score takes the eigenvalues of each prompt by itself, in time linear in the number of prompts.
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
            spectra = [estimators.all_eigenvalues(grams[name]) for name in terms]
            spectra = per_term(terms, jax.block_until_ready(spectra))
        values = _entropies_of(spectra, tuple(wanted))
        eigenvalues.check_spectra(*jax.tree.leaves(values))
        return [Computed(value, None, self.name, spectra) for value in values]

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> order_two.Sloped:
        """The slopes, from one eigendecomposition of each Gram or of its dual matrix."""
        near = points.gathered()
        grams = unweighted_grams(near, terms)
        warn_of_long_work(grams, terms)
        if leaving is not None:
            # By weights, so that copies of rows and their numbers give the same errors.
            several = [part.weights.sum(1) for part in leaving if part.rows.shape[1] > 1]
            work = sum(np.square(weights).sum() for weights in several)
            if entropy != Entropy() or near.n == 1 or work > _GROUP_WORK:
                leaving = None
        with memory.explained(near.n, near.dtype):
            # One term at a time holds the vectors of one matrix.
            parts = [_term(grams[name], near.shares, leaving, entropy) for name in terms]
        values, rows, lost, spectra = (per_term(terms, part) for part in zip(*parts, strict=True))
        computed = Computed(jax.tree.map(devices.placed, values), None, self.name, spectra)
        return order_two.Sloped(computed, rows, None if leaving is None else lost)


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


@functools.partial(devices.compiled_elsewhere, static_argnums=1, of_jax=True)
def _entropies_of(spectra: PerTerm, wanted: tuple[Entropy, ...]) -> list[PerTerm]:
    return [jax.tree.map(entropy.of_spectrum, spectra) for entropy in wanted]


@devices.compiled_elsewhere
def _decomposed(gram: Gram, weights: Any) -> tuple[Any, Any]:
    """The eigenvalues above zero, `[r]`, and the projections `[n, r]` of the rows."""
    roots = square_roots(weights)
    if isinstance(gram, FeatureGram) and gram.rank_bound < gram.n:
        weighted = gram.features * roots[:, None]
        values, vectors = eigenvalues.decomposed(eigenvalues.matmul(weighted.T, weighted))
        return values, eigenvalues.matmul(gram.features, vectors)
    values, vectors = eigenvalues.decomposed(gram.dense().matrix * roots[:, None] * roots[None, :])
    xp, positive = devices.namespace(weights), weights > 0  # Zero for rows of weight zero.
    inverse = xp.where(positive, 1 / xp.where(positive, roots, 1), 0)
    return values, vectors * square_roots(values)[None, :] * inverse[:, None]


def _term(
    gram: Gram, shares: np.ndarray, leaving: Sequence[Leaving] | None, entropy: Entropy
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """The entropy of a term, the influences of rows, the losses of groups, and eigenvalues."""
    if isinstance(gram, blocks.Blocks):
        parts = gram.spectra(shares)
    else:
        values, projections = map(np.asarray, _decomposed(gram, np.asarray(shares, gram.dtype)))
        every = np.arange(shares.size)[None]
        parts = [blocks.Spectrum(every, shares[None], values[None], projections[None])]
    value, rows, padded = blocks.slopes(parts, entropy, shares.size)
    influences = estimators.centred(rows.astype(np.float64)[None], shares)
    lost = [_deletions(value, parts, part, shares.size) for part in leaving or ()]
    return value, influences, in_order(lost, leaving) if leaving else None, padded


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
@functools.partial(jax.vmap, in_axes=(None, 0, 0, None))
def _compute_apart(
    kernel: Kernel, points: jax.Array, weights: jax.Array, entropy: Entropy
) -> tuple[jax.Array, jax.Array]:
    """`Sets.values` and `Sets.sums` of the points `[g, m, d]` with weights `[g, m]`."""
    (gram,) = grams_of(Pairs.trusted((points,), (kernel,), n=points.shape[0]))
    matrix, roots = gram.dense().matrix, square_roots(weights)
    squares = jnp.square(matrix)
    sums = jnp.stack([eigenvalues.matmul(k, weights) for k in (squares, jnp.square(squares))])
    if not entropy.needs_spectrum:
        return of_squared_norm(jnp.sum(weights * sums[0])), sums
    return entropy.of_spectrum(eigenvalues.spectrum(matrix * roots[:, None] * roots[None, :])), sums


def _deletions(
    value: np.ndarray, parts: Sequence[blocks.Spectrum], leaving: Leaving, n: int
) -> np.ndarray:
    """The loss of the entropy of order 1 without each group, per weight, relative to the rest."""
    weights = np.sum(leaving.weights, axis=1, dtype=float)
    changes, (home, block, place) = np.zeros(weights.size), np.zeros((3, n), int)
    for index, part in enumerate(parts):
        there = np.nonzero(part.weights > 0)
        home[part.rows[there]] = index
        block[part.rows[there]], place[part.rows[there]] = there
    for index, part in enumerate(parts):
        # What leaves of one block is apart from the rest of its group.
        group, column = np.nonzero((leaving.weights > 0) & (home[leaving.rows] == index))
        rows, lost = leaving.rows[group, column], leaving.weights[group, column]
        pairs = group * len(part.rows) + block[rows]
        _, first, cells = np.unique(pairs, return_index=True, return_inverse=True)
        of_cells, cells = block[rows[first]], cells.reshape(-1)
        # A block that leaves takes all of its eigenvalues.
        taken, held = np.bincount(cells, lost), part.weights.sum(axis=1)[of_cells]
        entropies_of_blocks = np.sum(part.values * measures.log(part.values), axis=1, dtype=float)
        change = entropies_of_blocks[of_cells] - taken
        some = np.flatnonzero((taken < (1 - _WHOLE) * held)[cells])
        if some.size:
            rest, numbers = np.unique(cells[some], return_inverse=True)
            for groups, entries, of_rows in leaving_of(lost[some], numbers.reshape(-1)):
                places = place[rows[some][entries]]
                change[rest[groups]] = _changes(part, of_cells[rest[groups]], places, of_rows)
        changes += np.bincount(group[first], change, changes.size)
    # Divided by the weight term by term: the difference of two entropies would lose the digits.
    divided, lost = weights > 0, np.minimum(weights, 1 - np.finfo(value.dtype).epsneg)
    per_weight, rest = 1 / np.where(divided, weights, 1), (1 - lost) * np.log1p(-lost)
    return np.where(divided, -value - 1 - (changes + rest) * per_weight, 0)


def _changes(
    part: blocks.Spectrum, of_groups: np.ndarray, places: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The changes of tr A log A, less the weight that leaves, without groups of rows of blocks.

    Group g are the rows in some `places` `[G, m]` of the block `of_groups[g]`.

    -x log x is the integral over s of log(1 + x / s) - x / (1 + s), less x, so that a group changes
    log det(s + A), by log det(1 - B) with B_ij = (w_i w_j)^(1/2) phi_i' (s + A)^-1 phi_j. Of this
    -tr B has the integral sum_k q_k log x_k, q_k = sum_i w_i (v_k' phi_i)^2, and the trapezoid rule
    in log s the rest: with steps of one right to 1e-8, with the longer ones of float32 to 1e-7.
    """
    dtype, alone = part.values.dtype, len(part.values) == 1
    single = dtype == np.float32
    s = np.exp(np.arange(-24, 18 if single else 25, 1.25 if single else 1))
    # Zero eigenvalues have no part: the rows lie in what the others span.
    columns = 1 / (np.maximum(part.values, 0)[:, :, None] + s)
    columns = np.concatenate([columns, measures.log(part.values)[:, :, None]], axis=2).astype(dtype)
    largest = 1 - np.finfo(dtype).epsneg
    (count, m), rank = places.shape, columns.shape[1]
    roots, changes = np.sqrt(weights).astype(dtype), np.zeros(count)
    at_once = max(1, _AT_ONCE // max(m * rank, s.size * m * m, rank * s.size * (not alone)))
    for some in np.split(np.arange(count), range(at_once, count, at_once)):
        near = of_groups[some]
        parts = part.projections[near[:, None], places[some]] * roots[some, :, None]
        of_blocks = columns[0] if alone else columns[near]
        matrices = np.empty((some.size, s.size, m, m), dtype)
        for k in range(m):  # B of all s is one matrix product of the products of two rows.
            products = (parts[:, k:] * parts[:, k, None]) @ of_blocks
            matrices[:, :, k:, k] = matrices[:, :, k, k:] = products[..., :-1].swapaxes(1, 2)
            changes[some] += products[:, 0, -1]
        # By eigenvalues: where s is large, log det(1 - B) and -tr B would be equal up to rounding.
        lost = np.clip(np.linalg.eigvalsh(matrices), 0, largest).astype(np.float64)
        changes[some] += (np.log1p(-lost) + lost).sum(axis=-1) @ s * math.log(s[1] / s[0])
    return changes
