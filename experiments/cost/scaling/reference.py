"""The values that errors are measured against: NumPy and SciPy in float64, no JAX, no library."""

from typing import Any

import numpy as np
import scipy.linalg

from experiments.cost.scaling.worker import Cell, Contestant, load_points

_ROWS = 1000


def entropy(eigenvalues: np.ndarray, truncation: int | None = None) -> float:
    """The von Neumann entropy in nats of eigenvalues of sum one; truncated, of CV eq. 13."""
    values = np.clip(np.sort(np.asarray(eigenvalues, np.float64))[::-1], 0, None)
    if truncation is not None:
        values = values[:truncation]
        values = values + (1 - values.sum()) / truncation
    values = values[values > 0]
    return float(-np.sum(values * np.log(values)))


def read_norms(norms: Any) -> dict[str, float]:
    """The three norms by name."""
    values = np.asarray(norms, np.float64).tolist()
    return dict(zip(("outputs", "prompts", "joint"), values, strict=True))


def read_spectrum(eigenvalues: Any) -> dict[str, list[float]]:
    """Their entropy; with the ends of no interval."""
    return {"vendi": [entropy(np.asarray(eigenvalues))] * 3}


def norms(cell: Cell) -> Contestant:
    """||.||_F^2 / n^2 of K_X, K_T and their product, by blocks of rows."""
    points = [p.astype(np.float64) for p in load_points(cell)]
    centred = [p - p.mean(axis=0) for p in points]
    n = cell["n"]

    def sums() -> np.ndarray:
        total = np.zeros(3)
        for start in range(0, n, _ROWS):
            squares = [
                gaussian(p[start : start + _ROWS], p[start:], bandwidth) ** 2
                for p, bandwidth in zip(centred, cell["bandwidths"], strict=True)
            ]
            rows = squares[0].shape[0]
            for index, square in enumerate((*squares, squares[0] * squares[1])):
                total[index] += square[:, :rows].sum() + 2 * square[:, rows:].sum()
        return total / n**2

    return Contestant(lambda seed: sums, read_norms)


def eigenvalues(cell: Cell) -> Contestant:
    """All eigenvalues of the outputs' K / n by LAPACK in float64; gives the entropy."""
    outputs, _ = load_points(cell)
    points = outputs.astype(np.float64)
    centred = points - points.mean(axis=0)

    def ready(seed: int):
        gram = gaussian(centred, centred, cell["bandwidths"][0])
        np.fill_diagonal(gram, 1)
        gram /= cell["n"]
        return lambda: scipy.linalg.eigvalsh(gram, overwrite_a=True, check_finite=False)

    return Contestant(ready, read_spectrum)


def select(cell: Cell) -> Contestant:
    """A greedy choice of a tenth of the rows that scores the set anew with each candidate."""
    points = [p.astype(np.float64) for p in load_points(cell)]

    def choose() -> float:
        of_outputs, above = (
            gaussian(p, p, bandwidth) ** 2
            for p, bandwidth in zip(points, cell["bandwidths"], strict=True)
        )
        below, rows, scores = of_outputs * above, [0], {}
        while len(rows) < cell["n"] // 10:
            sets = {row: np.ix_([*rows, row], [*rows, row]) for row in range(cell["n"])}
            scores = {row: above[own].sum() / below[own].sum() for row, own in sets.items()}
            rows.append(max(scores.keys() - rows, key=scores.__getitem__))
        return scores[rows[-1]]

    return Contestant(lambda seed: choose, lambda score: {"conditional": float(score)})


def gaussian(rows: np.ndarray, columns: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel of all pairs, in the dtype of the points."""
    distances = rows @ columns.T
    distances *= -2
    distances += np.sum(rows**2, axis=1)[:, None]
    distances += np.sum(columns**2, axis=1)[None, :]
    np.maximum(distances, 0, out=distances)
    distances *= -1 / (2 * bandwidth**2)
    return np.exp(distances, out=distances)
