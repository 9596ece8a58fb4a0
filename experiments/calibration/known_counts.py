"""Prompts with a known number of outputs, and what the scores say of k of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax import inference, spectra
from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Pairs
from experiments.data import PairedEmbeddings
from experiments.lab import Bandwidths, models

ORDERS = (1.0, 2.0, math.inf)
# Prompts that enough of make a score of.
ENOUGH = 100
# The nearest two prompts are so many bandwidths apart: their kernel value is exp(-18).
DISTANCE = 6.0


def prompts_of(pairs: PairedEmbeddings) -> np.ndarray:
    """The number of every pair's prompt, `[n]`; labels and embeddings must agree on it."""
    label = pairs.prompt_numbers
    count, embedded = checks.distinct_rows(pairs.prompts)
    if not len(np.unique(label * count + embedded)) == count == label.max() + 1:
        raise ValueError(
            f"--prompt: {label.max() + 1} labels for {count} different rows of the prompts; pairs "
            "of one prompt have one label and identical rows."
        )
    return label


def most_of(counts: np.ndarray) -> int:
    """The largest number of outputs that enough prompts have, or half of them where few are."""
    needed = min(ENOUGH, -(-len(counts) // 2))
    return int(np.sort(counts)[::-1][needed - 1])


def apart(prompts: np.ndarray) -> float:
    """The prompt bandwidth under which the nearest two prompts have nothing in common."""
    distinct = np.unique(prompts, axis=0).astype(np.float64)
    return float(distance.pdist(distinct).min()) / DISTANCE


def models_of(pairs: PairedEmbeddings) -> tuple[str, ...]:
    """The models, where each of them has one output of every prompt; none otherwise."""
    if "models" not in pairs.labels:
        return ()
    names, counts = models.count_rows(pairs, least=1)
    return tuple(names) if (counts == 1).all() else ()


def in_random_order(pairs: PairedEmbeddings, generator: np.random.Generator) -> np.ndarray:
    """The rows of every prompt, prompts and models in random orders, `[prompts, least count]`.

    Where outputs have models, their order is the same for every prompt.
    """
    prompt = pairs.prompt_numbers
    counts = np.bincount(prompt)
    order = generator.permutation(len(counts))
    names, model = np.unique(pairs.labels.get("models", np.zeros(len(pairs))), return_inverse=True)
    rank = generator.permutation(len(names))[model] + generator.uniform(size=len(pairs))
    starts = np.cumsum(counts) - counts
    return np.lexsort((rank, prompt))[starts[order, None] + np.arange(counts.min())]


def conditional(points: Pairs) -> list[float]:
    """The conditional scores of ORDERS, from all eigenvalues."""
    found = spectra.compute(points, [cv.Entropy(order=order) for order in ORDERS], cv.Exact())
    return [math.exp(of.values.joint - of.values.prompts) for of in found]


def points_of(pairs: PairedEmbeddings, designs: np.ndarray, bandwidths: Bandwidths) -> Pairs:
    """The pairs of some designs `[prompts, k]`, prompt by prompt."""
    arrays = tuple(jnp.asarray(a[designs.ravel()]) for a in (pairs.outputs, pairs.prompts))
    kernels = zip(bandwidths.kernels.values(), arrays, strict=True)
    # Without the checks, which warn of prompts that are told apart: here they are meant to be.
    return Pairs.trusted(arrays, tuple(k.suited_to(a) for k, a in kernels), n=designs.size)


def order_two(points: Pairs, designs: np.ndarray, key: jax.Array) -> tuple[float, float]:
    """Conditional-RKE and its error by the jackknife over at most 20 groups of prompts."""
    prompts, k = designs.shape
    membership = np.repeat(np.asarray(jax.random.permutation(key, prompts)) % min(20, prompts), k)
    groups = inference.group_rows(points.n, membership)
    found = inference.delete_groups(points, cv.renyi(2), groups)
    return float(found.decomposition.conditional), float(found.errors().conditional)


def grams_of(designs: np.ndarray, kernel: cv.Kernel) -> np.ndarray:
    """The kernel among the outputs of each prompt `[prompts, k, d]`, `[prompts, k, k]`."""
    pairwise = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))
    grams = jax.lax.map(lambda own: pairwise(own, own), jnp.asarray(designs))
    return np.asarray(grams, np.float64)


def means_within(grams: np.ndarray) -> list[float]:
    """The means over prompts of the Vendi and the RKE of Grams `[prompts, k, k]`."""
    values = np.linalg.eigvalsh(grams / grams.shape[1])
    vendi = np.exp(np.sum(special.entr(np.maximum(values, 0)), axis=1))
    return [float(vendi.mean()), float(np.mean(1 / np.sum(values**2, axis=1)))]
