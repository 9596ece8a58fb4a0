"""What several models have in common given the prompts, from one kernel block a prompt."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def kernels(outputs: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel of all answers to each prompt, float64 `[prompts, m, n, m, n]`.

    Args:
      outputs: embeddings `[m, prompts, n, d]`.
      bandwidth: of the kernel.
    """
    models, prompts, n, _ = outputs.shape
    rows = outputs.astype(np.float64).swapaxes(0, 1).reshape(prompts, models * n, -1)
    norms = np.sum(rows**2, axis=-1)
    distances = norms[:, :, None] + norms[:, None, :] - 2 * rows @ rows.swapaxes(1, 2)
    gram = np.exp(-np.maximum(distances, 0) / (2 * bandwidth**2))
    gram[:, np.arange(models * n), np.arange(models * n)] = 1
    return gram.reshape(prompts, models, n, models, n)


def block_means(squares: np.ndarray) -> np.ndarray:
    """The means over the answers of every two models, `[prompts, m, m]`, of `[.., m, n, m, n]`."""
    return squares.mean(axis=(2, 4))


def without_itself(means: np.ndarray, n: int) -> np.ndarray:
    """Means of squared kernels `[..., m, m]` without the pairs of an answer and itself.

    Their expectation is the same for every n, so that of two samples of one model all entries are
    the same.
    """
    of_one = means.diagonal(axis1=-2, axis2=-1)
    found = means.copy()
    indices = np.arange(means.shape[-1])
    found[..., indices, indices] = (n * of_one - 1) / (n - 1)
    return found


def number(means: np.ndarray) -> np.ndarray:
    """exp I(X; M | T) of order 2, `[...]`, of mean squared kernels `[..., m, m]` over prompts."""
    return means.shape[-1] * np.trace(means, axis1=-2, axis2=-1) / means.sum(axis=(-2, -1))


def parts(means: np.ndarray) -> np.ndarray:
    """Of order 2: the number of models, the answers of one and of all, `[..., 3]`.

    The last is the product of the two before.
    """
    of_one = 1 / np.trace(means, axis1=-2, axis2=-1) * means.shape[-1]
    return np.stack([number(means), of_one, 1 / means.mean(axis=(-2, -1))], axis=-1)


def overlap(means: np.ndarray) -> np.ndarray:
    """The overlap of every two models at order 2, `[..., m, m]`, of mean squared kernels."""
    of_one = means.diagonal(axis1=-2, axis2=-1)
    return 2 * means / (of_one[..., :, None] + of_one[..., None, :])


def split(squares: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """What two random halves of the answers of each model have in common and each by itself.

    Args:
      squares: squared kernels `[prompts, m, n, m, n]`.
      generator: draws the halves, for each prompt and model anew.

    Returns:
      Unbiased mean squared kernels of the two halves, `[prompts, m, 2, 2]`.
    """
    prompts, models, n, *_ = squares.shape
    of_one = np.moveaxis(squares.diagonal(axis1=1, axis2=3), -1, 1)
    halves = generator.permuted(np.tile(np.arange(n), (prompts, models, 1)), axis=-1)[
        ..., : n // 2 * 2
    ]
    place = np.ix_(range(prompts), range(models))
    rows = tuple(index[..., None, None] for index in place)
    drawn = of_one[(*rows, halves[..., :, None], halves[..., None, :])]
    drawn = drawn.reshape(prompts, models, 2, n // 2, 2, n // 2)
    return without_itself(drawn.mean(axis=(3, 5)), n // 2)


def with_error(
    statistic: Callable[[np.ndarray], np.ndarray], blocks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A statistic of the mean over prompts, and its jackknife error over them.

    Args:
      statistic: of means `[..., *shape]`, in one go.
      blocks: of each prompt, `[prompts, *shape]`.
    """
    deleted = (blocks.sum(axis=0) - blocks) / (len(blocks) - 1)
    return np.array(statistic(blocks.mean(axis=0))), spread(statistic(deleted))


class Dealt:
    """Answers that are dealt anew to models that are taken for one: what their number is then.

    Args:
      gram: the kernel of all their answers to each prompt, `[prompts, m n, m n]`.
      models: how many.
      generator: of the deals, for each prompt by itself.
    """

    def __init__(self, gram: np.ndarray, models: int, generator: np.random.Generator):
        self.gram, self.generator = gram, generator
        prompts, size, _ = gram.shape
        self.rows = np.tile(np.arange(size), (prompts, 1))
        self.shape = prompts, models, size // models
        self.total = float(np.mean(gram**2))

    def numbers(self, whole: np.ndarray | None) -> tuple[float, float]:
        """The numbers of orders 1 and 2 after one deal.

        Args:
          whole: the entropy of order 1 of all answers to each prompt, which no deal changes; None
            to leave order 1 out, as NaN.
        """
        dealt = self.generator.permuted(self.rows, axis=-1).reshape(self.shape)
        prompt = np.arange(self.shape[0])[:, None, None, None]
        blocks = self.gram[prompt, dealt[..., :, None], dealt[..., None, :]]
        second = float(np.mean(blocks**2)) / self.total
        if whole is None:
            return math.nan, second
        p = np.maximum(np.linalg.eigvalsh(blocks / self.shape[2]), 0)
        own = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=-1)
        return math.exp(np.mean(whole) - np.mean(own)), second


def spread(deleted: np.ndarray) -> np.ndarray:
    """The jackknife's standard error of what each deletion leaves, `[groups, ...]`."""
    return np.sqrt((len(deleted) - 1) * np.var(deleted, axis=0))


def of_halves(blocks: np.ndarray) -> np.ndarray:
    """The overlap of two halves, `[..., m]`, of `[..., m, 2, 2]`."""
    return overlap(blocks)[..., 0, 1]


def mean_of(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The mean of the chosen entries of `[..., m, m]`, `[...]`; NaN where none is chosen."""
    picked = values[..., chosen]
    return picked.mean(axis=-1) if chosen.any() else np.full(picked.shape[:-1], np.nan)
