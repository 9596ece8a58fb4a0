"""What an encoder's features say of generated pictures."""

import jax.numpy as jnp
import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments.data.sets import SEED
from experiments.generators import picture_encoder
from experiments.generators.benches import Bench
from experiments.lab import Scales

SCORES = ("Conditional-Vendi", "Vendi", "Conditional-RKE", "RKE")
MEASURES = ("first", "alignment", "kernel distance", *SCORES, "similarity")


def references(bench: Bench, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the real outputs that others are held against, and the rest."""
    order = np.random.default_rng(SEED).permutation(len(bench.real))
    return order[:count], order[count:]


def judged(
    features: np.ndarray,
    prompts: np.ndarray,
    kinds: np.ndarray,
    reference: np.ndarray,
    bandwidths: Scales,
    bench: Bench,
) -> np.ndarray:
    """What MEASURES names, of some samples: `[scales, measures]`.

    'first' and 'alignment' are the percent whose kind is the judge's first, and among its best. The
    distance to the reference and the similarity are times 100. Only SCORES depend on the scale.
    """
    logits = np.asarray(bench.logits(jnp.asarray(features)))
    first, alignment = (
        100 * float(np.mean(picture_encoder.found_among(logits, kinds, best)))
        for best in (1, bench.best)
    )
    away = 100 * kernel_distance(features, reference)
    alike = 100 * similarity(features, kinds)
    found = []
    for scale in bandwidths.axis:
        orders = [cv.decompose(features, prompts, order=o, **scale.kernels) for o in (1.0, 2.0)]
        scores = [float(v) for of in orders for v in (of.conditional, of.vendi)]
        found.append([first, alignment, away, *scores, alike])
    return np.array(found)


def kernel_distance(one: np.ndarray, other: np.ndarray) -> float:
    """The squared maximum mean discrepancy of unit features `[n, d]` and `[m, d]`, without bias.

    It may be negative. With the kernel (x . y / d + 1)^3 of Binkowski et al. (2018) on features of
    norm sqrt(d), which is that of cosines: (cos + 1)^3.
    """

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) @ y.T.astype(np.float64) + 1) ** 3

    def within(x: np.ndarray) -> float:
        matrix, n = kernel(x, x), len(x)
        return float((matrix.sum() - np.trace(matrix)) / (n * (n - 1)))

    return within(one) + within(other) - 2 * float(kernel(one, other).mean())


def similarity(features: np.ndarray, kinds: np.ndarray) -> float:
    """Mean cosine of unit features `[n, d]` over the pairs of different samples of one kind."""
    alike = (kinds[:, None] == kinds[None, :]) & ~np.eye(len(kinds), dtype=bool)
    return float((features @ features.T)[alike].mean()) if alike.any() else np.nan


def pictures(outputs: np.ndarray, kinds: np.ndarray, rows: int, columns: int) -> xr.Dataset:
    """The first samples of the first kinds that have so many, uint8; nothing of other outputs."""
    if outputs.ndim < 4:
        return xr.Dataset()
    found, counts = np.unique(kinds, return_counts=True)
    columns = min(columns, counts.max())
    chosen = found[counts >= columns][:rows]
    shown = np.stack([outputs[np.flatnonzero(kinds == kind)[:columns]] for kind in chosen])
    axes = ("kind", "sample", "row", "column", "channel")
    return xr.Dataset(
        {"pictures": (axes, np.round(255 * shown).astype(np.uint8))}, {"kind": chosen}
    )
