"""Spectra of Grams that are zero between blocks of rows, such as the answers to one prompt.

The spectrum of such a Gram is the union of those of its blocks, and so are eigenvectors, slopes and
deletions: the cost is linear in the number of blocks, and no n x n array is needed.
"""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from condvendi_jax.base.devices import on_host
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy, PerTerm, eigenvalues
from condvendi_jax.grams.operators import TiledGram, WeightedGram, factor_of
from condvendi_jax.spectra import pair_sums

_LARGEST = 4096  # Rows of a block: of larger ones all eigenvalues take long.
_TILE = 128  # Rows whose kernel values are computed at once, also those between small blocks.


class Spectrum(NamedTuple):
    """The spectra of blocks of up to m rows, which have no feature in common.

    A projection is v_k^T phi_i, of the eigenvector v_k and the feature phi_i of a row.
    """

    rows: np.ndarray  # Their numbers, `[B, m]`.
    weights: np.ndarray  # Of the rows, `[B, m]`; zero where a block has fewer than m.
    values: np.ndarray  # Eigenvalues, `[B, r]`; zero where a block has fewer than r.
    projections: np.ndarray  # Of the rows, `[B, m, r]`; zero for rows of weight zero.


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks(TiledGram):
    """A Gram that is zero between rows of different kinds, in NumPy."""

    kinds: np.ndarray  # The number of the block of each row, `[n]`.
    varying: int | None  # The factor that is not one inside every block.

    @property
    def rank_bound(self) -> int:
        """The side of the largest matrix whose eigenvalues are needed."""
        return 1 if self.varying is None else int(np.bincount(self.kinds).max())

    def scaled(self, weights: Any) -> "WeightedBlocks":
        return WeightedBlocks(self, math.sqrt(self.n) * weights)

    def eigenvalues(self, shares: np.ndarray | None = None) -> Any:
        shares = np.full(self.n, 1 / self.n) if shares is None else shares
        return descending(self.spectra(shares, vectors=False), self.n)[0]

    def spectra(self, shares: np.ndarray, *, vectors: bool = True) -> list[Spectrum]:
        """The spectra of all blocks, those of similar sizes together, for shares `[n]` of rows.

        Without `vectors` the projections are not computed.
        """
        kept = np.flatnonzero(shares > 0)
        kinds = np.unique(self.kinds[kept], return_inverse=True)[1].reshape(-1)
        parts, masks, diagonals, norm = list[Spectrum](), list[np.ndarray](), [], 0.0
        for _, places, weights in pair_sums.leaving_of(shares[kept], kinds):
            roots, mask = np.sqrt(weights).astype(self.dtype), weights > 0
            if self.varying is None:
                mask = mask[:, :1]
                matrices = weights.sum(axis=1).astype(self.dtype)[:, None, None]
                values, columns = matrices[:, 0], roots[:, :, None] / np.sqrt(matrices)
            else:
                matrices = self._kernel_values(kept[places])
                matrices *= roots[:, :, None] * roots[:, None, :]
                values, columns = _eigenpairs(matrices, mask.sum(axis=1), vectors)
            parts.append(Spectrum(kept[places], weights, values.copy(), columns))
            masks.append(mask)
            diagonals.append(np.diagonal(matrices, axis1=1, axis2=2)[mask])
            norm += np.sum(np.square(matrices, dtype=float))
        flat = np.concatenate([part.values[mask] for part, mask in zip(parts, masks, strict=True)])
        projected = eigenvalues.projected(flat, np.concatenate(diagonals), flat.dtype.type(norm))
        flat[np.argsort(-flat, kind="stable")] = projected
        ends = np.cumsum([np.count_nonzero(mask) for mask in masks])[:-1]
        for part, mask, values in zip(parts, masks, np.split(flat, ends), strict=True):
            part.values[mask] = values
            roots = np.sqrt(np.where(part.weights > 0, part.weights, 1))
            scaled = np.sqrt(part.values)[:, None, :] / roots[:, :, None]
            np.multiply(part.projections, scaled, out=part.projections, casting="same_kind")
        return parts

    def _kernel_values(self, rows: np.ndarray) -> np.ndarray:
        """The kernel of all pairs of the rows `[B, m]` of each block, `[B, m, m]`."""
        assert self.varying is not None
        kernel, points = self.factors[self.varying]
        count, m = rows.shape
        values = np.empty((count, m, m), self.dtype)
        at_once = np.arange(min(max(1, _TILE // m), count))
        for start in range(0, count, at_once.size):
            some = np.minimum(start + at_once, count - 1)  # As many each time: one program.
            near = jax.tree.map(operator.itemgetter(rows[some].ravel()), points)
            tile = np.asarray(kernel.cross(near, near)).reshape(at_once.size, m, -1, m)
            values[some] = tile[at_once, :, at_once]
        values[:, np.arange(m), np.arange(m)] = 1
        return values


class WeightedBlocks(WeightedGram):
    """`Blocks` of weighted rows."""

    gram: Blocks

    spectra = property(lambda self: self.gram.spectra)

    def eigenvalues(self) -> Any:
        return self.gram.eigenvalues(np.square(self._unit()))


#: The Grams whose eigenvalues are those of blocks.
IN_BLOCKS = Blocks, WeightedBlocks


def _eigenpairs(matrices: np.ndarray, sizes: np.ndarray, vectors: bool) -> tuple[np.ndarray, ...]:
    """Eigenvalues and vectors of the leading block of each matrix `[B, m, m]`, of these sizes."""
    values, columns = np.zeros(matrices.shape[:2], matrices.dtype), np.zeros_like(matrices)
    for size in np.unique(sizes):
        some = np.flatnonzero(sizes == size)
        parts = eigenvalues.eigenpairs(matrices[some, :size, :size], vectors=vectors)
        values[some, :size] = parts[0]
        if vectors:
            columns[some, :size, :size] = parts[1]
    return values, columns


def descending(parts: Sequence[Spectrum], n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n eigenvalues of all blocks in descending order, and where the entries go to."""
    values = np.concatenate([part.values.ravel() for part in parts])
    order = np.argsort(-values, kind="stable")
    return np.pad(values[order], (0, max(n - values.size, 0)))[:n], order


def slopes(parts: Sequence[Spectrum], entropy: Entropy, n: int) -> tuple[np.ndarray, ...]:
    """The entropy of all blocks, its derivatives in the weights of rows `[n]`, and eigenvalues."""
    values, order = descending(parts, n)
    by_value, rows, start = np.zeros(order.size, values.dtype), np.zeros(n, values.dtype), 0
    by_value[order[:n]] = entropy.slopes(values)[: order.size]
    for part in parts:
        of_part = by_value[start : start + part.values.size].reshape(part.values.shape)
        there = part.weights > 0
        rows[part.rows[there]] = (np.square(part.projections) @ of_part[:, :, None])[there, 0]
        start += part.values.size
    return entropy.of_spectrum(values), rows, values


def blocks_of(points: Pairs) -> dict[str, Blocks]:
    """The Grams of those terms of points that are zero between several blocks, not too large.

    None inside transformations, and where the points are not on the host.
    """
    near, grams = on_host(points), dict[str, Blocks]()
    if near is None or (kinds := pair_sums.compared_rows(near)) is None:
        return grams
    factors = tuple(factor_of(*both, None) for both in zip(near.kernels, near.arrays, strict=True))
    for name, term in zip(PerTerm._fields, pair_sums.TERMS[: 2 * len(kinds) - 1], strict=False):
        if (equal := pair_sums.equal_rows(kinds, term)) is None:
            continue
        apart = [i for i, k in enumerate(term) if not near.kernels[k].compares_equality]
        gram = Blocks(tuple(factors[k] for k in term), equal, apart[0] if apart else None)
        if gram.rank_bound < min(near.n, _LARGEST + 1):
            grams[name] = gram
    return grams
