"""Samples that have lost types, and recall and coverage: what share of references they reach."""

from __future__ import annotations

import jax
import numpy as np

from experiments.data import PairedEmbeddings


def split(
    pairs: PairedEmbeddings, kept: int, repeat: int, key: jax.Array
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the samples, some types of a random half, and of the references, the other half.

    The halves and the order of the types are those of the repeat, whatever the number of types.
    """
    generator = np.random.default_rng((int(jax.random.bits(key)), repeat))
    samples, references = np.split(generator.permutation(len(pairs)), [len(pairs) // 2])
    labels = pairs.labels["types"]
    types = generator.permutation(np.unique(labels))[:kept]
    return samples[np.isin(labels[samples], types)], references


def recall(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references within the reach of a sample (Kynkaanniemi et al. 2019, eq. 2).

    Of distances `[references, samples]` and of samples `[s, s]`, which reach to their k-th
    neighbour.
    """
    return float(np.mean(np.any(across <= _reach(within, k)[None, :], axis=1)))


def coverage(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references with a sample within their reach (Naeem et al. 2020, eq. 4).

    Of distances `[references, samples]` and of references `[r, r]`.
    """
    return float(np.mean(np.min(across, axis=1) <= _reach(within, k)))


def _reach(within: np.ndarray, k: int) -> np.ndarray:
    """The distance to the k-th neighbour; the zero in front is that to the point itself."""
    return np.partition(within, k, axis=1)[:, k]


def expected_coverage(sizes: np.ndarray, k: int) -> np.ndarray:
    """The coverage of n references by n samples of the same distribution (Naeem et al. 2020).

    Of a reference's neighbours among n - 1 references and n samples, the k nearest must not all be
    references: all orders are equally likely.
    """
    steps = np.arange(1, k + 1)
    sizes = np.asarray(sizes, float)[:, None]
    return 1 - np.prod((sizes - steps) / (2 * sizes - steps), axis=1)
