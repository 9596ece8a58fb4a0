"""Scores written down once more, in plain NumPy float64, and the search for violations.

Nothing here calls the library: it is the other side of every comparison with it. Spectra are on the
last axis, so that a batch of samples is one call.
"""

from collections.abc import Callable

import numpy as np

# Eigenvalues of a Gram of rank below n come out as rounding of either sign.
_FLOOR = 1e-13


def gaussian_gram(points: np.ndarray, bandwidth: float) -> np.ndarray:
    """exp(-|x_i - x_j|^2 / (2 bandwidth^2)) of points `[n, d]`, by subtraction."""
    squared = np.sum((points[:, None] - points[None, :]) ** 2, axis=-1)
    return np.exp(-squared / (2 * bandwidth**2))


def unit_features(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Random unit vectors `[n, d]`: feature maps of a normalised kernel of dimension d."""
    features = rng.normal(size=(n, d))
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def spectrum(gram: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Descending eigenvalues of D^(1/2) K D^(1/2); D = I / n without weights.

    Args:
        gram: `[k, k]` kernel matrix of the atoms.
        weights: `[k]` or a batch `[..., k]` of weights.
    """
    if weights is None:
        weights = np.full(len(gram), 1 / len(gram))
    roots = np.sqrt(weights)
    eigenvalues = np.linalg.eigvalsh(roots[..., :, None] * gram * roots[..., None, :])[..., ::-1]
    eigenvalues = np.where(eigenvalues > _FLOOR, eigenvalues, 0.0)
    return eigenvalues / eigenvalues.sum(axis=-1, keepdims=True)


def entropy(eigenvalues: np.ndarray, order: float = 1.0) -> np.ndarray:
    """Renyi entropy of spectra on the last axis, in nats."""
    positive = eigenvalues > 0
    logs = np.log(np.where(positive, eigenvalues, 1.0))
    if order == 1:
        return -np.sum(np.where(positive, eigenvalues * logs, 0.0), axis=-1)
    if np.isinf(order):
        return -np.log(eigenvalues.max(axis=-1))
    return np.log(np.sum(np.where(positive, np.exp(order * logs), 0.0), axis=-1)) / (1 - order)


def truncate(eigenvalues: np.ndarray, t: int) -> np.ndarray:
    """The t largest eigenvalues with (1 - S_t) / t added to each (CV Lemma A)."""
    top = -np.sort(-eigenvalues, axis=-1)[..., :t]
    return top + (1 - top.sum(axis=-1, keepdims=True)) / t


def conditional_entropy(k_x: np.ndarray, k_t: np.ndarray, order: float = 1.0) -> float:
    """H(X|T) = H(X,T) - H(T) of two Grams."""
    return float(entropy(spectrum(k_x * k_t), order) - entropy(spectrum(k_t), order))


def information(k_x: np.ndarray, k_t: np.ndarray, order: float = 1.0) -> float:
    """I(X;T) = H(X) + H(T) - H(X,T) of two Grams."""
    return float(entropy(spectrum(k_x), order)) - conditional_entropy(k_x, k_t, order)


def climb(
    objective: Callable[[np.ndarray], float],
    start: np.ndarray,
    rng: np.random.Generator,
    *,
    steps: int,
    scale: float = 0.5,
) -> tuple[np.ndarray, float]:
    """Random ascent with an adaptive step (the 1/5 rule): needs no gradient, survives kinks."""
    best, value = start, objective(start)
    for _ in range(steps):
        trial = best + scale * rng.normal(size=best.shape)
        gain = objective(trial)
        if gain > value:
            best, value, scale = trial, gain, scale * 1.5
        else:
            scale *= 0.9
    return best, value
