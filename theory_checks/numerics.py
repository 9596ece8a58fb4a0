"""Kernels, spectra and entropies in plain NumPy float64, and the search for violations.

Nothing here calls the library: it is the other side of every comparison with it. Points are
`[n, d]`, spectra on the last axis, so that a batch of samples is one call.
"""

from collections.abc import Callable

import numpy as np

# Eigenvalues of a Gram of rank below n come out as rounding of either sign.
_FLOOR = 1e-13


def squared_distances(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    """|x_i - y_j|^2 by subtraction, `[n, m]`."""
    y = x if y is None else y
    return np.sum((x[:, None] - y[None, :]) ** 2, axis=-1)


def gaussian(x: np.ndarray, y: np.ndarray | None = None, *, bandwidth: float = 1.0) -> np.ndarray:
    """exp(-|x_i - y_j|^2 / (2 bandwidth^2)), `[n, m]`."""
    return np.exp(-squared_distances(x, y) / (2 * bandwidth**2))


def unit_features(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Random unit vectors `[n, d]`: feature maps of a normalised kernel of dimension d."""
    features = rng.normal(size=(n, d))
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def covariance(rng: np.random.Generator, d: int) -> np.ndarray:
    """A random positive semi-definite matrix `[d, d]` of mean eigenvalue about one."""
    factor = rng.normal(size=(d, d))
    return factor @ factor.T / d


def spectrum(gram: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Descending eigenvalues of D^(1/2) K D^(1/2), of unit sum; D = I / n without weights.

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


def conditional_entropy(
    k_x: np.ndarray, k_t: np.ndarray, order: float = 1.0, weights: np.ndarray | None = None
) -> np.ndarray:
    """H(X|T) = H(X,T) - H(T) of two Grams `[k, k]`."""
    joint, prompts = (entropy(spectrum(gram, weights), order) for gram in (k_x * k_t, k_t))
    return joint - prompts


def information(
    k_x: np.ndarray, k_t: np.ndarray, order: float = 1.0, weights: np.ndarray | None = None
) -> np.ndarray:
    """I(X;T) = H(X) + H(T) - H(X,T) of two Grams `[k, k]`."""
    outputs = entropy(spectrum(k_x, weights), order)
    return outputs - conditional_entropy(k_x, k_t, order, weights)


def exceedances(
    errors: np.ndarray, log_chances: np.ndarray, *, most: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Levels of an error, and the chance that it reaches each, less a billionth.

    A bound that holds with probability 1 - delta is at least the level wherever delta is below the
    chance: so each level tries it at the delta that is hardest for it.

    Args:
        errors: of every outcome, `[outcomes]`.
        log_chances: logarithms of the outcomes' probabilities.
        most: number of levels, spread evenly over the logarithms of their chances.
    """
    order = np.argsort(-errors)
    levels, logs = errors[order], np.logaddexp.accumulate(log_chances[order])
    last = np.append(levels[1:] < levels[:-1] - 1e-12 * np.abs(levels[:-1]), True)
    kept = np.flatnonzero(last & (levels > 1e-12) & (logs > -690))
    if len(kept) > most:
        spread = np.searchsorted(logs[kept], np.linspace(logs[kept[0]], logs[kept[-1]], most))
        kept = kept[np.unique(spread)]
    return levels[kept], np.exp(np.minimum(logs[kept], 0)) * (1 - 1e-9)


def climb(
    objective: Callable[[np.ndarray], float],
    start: np.ndarray,
    rng: np.random.Generator,
    *,
    steps: int,
    scale: float = 0.5,
) -> tuple[np.ndarray, float]:
    """Raise an objective by random steps whose length adapts to success (the 1/5 rule).

    Needs no gradient and survives kinks. Every other proposal moves one coordinate, the others
    move all; a NaN never counts as a success.

    Returns:
        The best point, of the shape of start, and the objective there.
    """
    best, value = np.array(start, float), objective(start)
    for step in range(steps):
        move = scale * rng.normal(size=best.shape)
        if step % 2:
            chosen = np.arange(move.size).reshape(move.shape) == rng.integers(move.size)
            move = np.where(chosen, 3 * move, 0.0)
        reached = objective(best + move)
        if reached > value or np.isnan(value):
            best, value, scale = best + move, reached, min(2.0 * scale, 4.0)
        else:
            scale = max(0.85 * scale, 1e-4)
    return best, value
