"""Entropies of order 2 of the first rows against their number, to see whether a score settles."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import PerTerm, of_pairs
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.spectra import order_two, pair_sums
from experiments.lab import sizes as rows_scored


def order_two_curves(pairs: Pairs, sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """H(X), H(T) and H(X, T) of the first n' pairs in nats, `[3, m]`, and unbiased ones.

    One pass over the largest of the m sizes, whatever their number (CV figs 2, 3). Shuffle the rows
    first: a prefix must be a random sample.
    """
    rows_scored.note(sizes)
    last = np.array(sizes) - 1
    plug_in, unbiased = _prefix_entropies(pairs.rows(slice(max(sizes))))
    return np.array(of_pairs(plug_in))[:, last], np.array(of_pairs(unbiased))[:, last]


@jax.jit
def _prefix_entropies(pairs: Pairs) -> tuple[PerTerm, PerTerm]:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[n]`, and the unbiased ones."""
    n = jnp.arange(1, pairs.n + 1, dtype=pairs.dtype)[None]
    ones = jnp.ones((pairs.n, 1), pairs.dtype)
    sums = 2 * pairwise.arrival_sums(pair_sums.tiles_of(pairs), weights=ones)[:, 0]
    # Scanned sums add in a tree: the error grows with log n, not with n.
    others = lax.associative_scan(jnp.add, sums, axis=1)
    return order_two.entropies_of((others + n) / n**2), order_two.entropies_of(others / (n**2 - n))
