"""What meets the library and needs no JAX: torch, packages as they are, and NumPy in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from experiments.cost.worker import Cell, Contestant, load_points

_ROWS = 1000  # Of a block in float64.


def entropy(eigenvalues: Any, truncation: int | None = None) -> float:
    """The von Neumann entropy in nats of eigenvalues of sum one; truncated, of CV eq. 13."""
    values = np.clip(np.sort(np.asarray(eigenvalues, np.float64))[::-1], 0, None)
    if truncation is not None:
        values = values[:truncation]
        # By rounding the sum may exceed one, where some of those kept are zero.
        values = np.maximum(values + (1 - values.sum()) / truncation, 0)
    return float(special.entr(values).sum())


def read_norms(norms: Any) -> dict[str, float]:
    """The three norms by name."""
    values = np.asarray(norms, np.float64).tolist()
    return dict(zip(("outputs", "prompts", "joint"), values, strict=True))


def gaussian(rows: np.ndarray, columns: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel of all pairs, in the dtype of the points."""
    distances = np.sum(rows**2, axis=1)[:, None] + np.sum(columns**2, axis=1) - 2 * rows @ columns.T
    return np.exp(np.maximum(distances, 0) / (-2 * bandwidth**2))


def float64(cell: Cell) -> Contestant:
    """What errors are measured against: the three norms in NumPy, by blocks of rows."""
    points = [p.astype(np.float64) for p in load_points(cell)]
    centred = [p - p.mean(axis=0) for p in points]
    n = cell["n"]

    def sums(seed: int) -> np.ndarray:
        total = np.zeros(3)
        for start in range(0, n, _ROWS):
            squares = [
                gaussian(p[start : start + _ROWS], p, bandwidth) ** 2
                for p, bandwidth in zip(centred, cell["bandwidths"], strict=True)
            ]
            total += [square.sum() for square in (*squares, squares[0] * squares[1])]
        return total / n**2

    return Contestant(sums, read_norms)


def _torch_tensors(*arrays: np.ndarray) -> tuple[Any, list[Any], Callable[[], None]]:
    """Torch, the arrays on its device, and what waits for that device."""
    import torch  # pyright: ignore[reportMissingImports] - an extra brings it.

    on_gpu = torch.cuda.is_available()
    tensors = [torch.from_numpy(a).to("cuda" if on_gpu else "cpu") for a in arrays]
    return torch, tensors, torch.cuda.synchronize if on_gpu else lambda: None


def _torch_log_gram(torch: Any, points: Any, bandwidth: float) -> Any:
    """log k for all pairs: one product that the row norms are added to, and no copy of it."""
    scaled = (points - points.mean(dim=0)) / bandwidth
    halves = scaled.square().sum(dim=1).div_(2)
    return torch.addmm(halves.neg(), scaled, scaled.T).sub_(halves[:, None])


def dense_torch(cell: Cell) -> Contestant:
    """A peer: the same norms from two n x n arrays in torch, squared in the exponent, in place."""
    torch, points, synchronize = _torch_tensors(*load_points(cell))

    def norms(seed: int) -> list[Any]:
        squares = [
            _torch_log_gram(torch, p, bandwidth).mul_(2).exp_()
            for p, bandwidth in zip(points, cell["bandwidths"], strict=True)
        ]
        sums = [square.sum() for square in squares]
        sums.append(squares[0].mul_(squares[1]).sum())
        synchronize()
        return sums

    return Contestant(norms, lambda sums: read_norms([float(s) / cell["n"] ** 2 for s in sums]))


def rke_score(cell: Cell) -> Contestant:
    """The package as it is: RKE of the outputs alone, the least that it can be asked."""
    from rke_score import RKE  # pyright: ignore[reportMissingImports] - an extra brings it.

    outputs, _ = load_points(cell)
    bandwidth = cell["bandwidths"][0]
    engine = RKE(kernel_bandwidth=[bandwidth])
    return Contestant(
        lambda seed: engine.compute_rke_mc_frobenius_norm(outputs),
        lambda norms: {"outputs": float(norms[bandwidth])},
    )


def torch_eigenvalues(cell: Cell) -> Contestant:
    """`torch.linalg.eigvalsh` of the same matrix."""
    torch, (points,), synchronize = _torch_tensors(load_points(cell)[0])
    gram = _torch_log_gram(torch, points, cell["bandwidths"][0]).clamp_(max=0).exp_()
    gram.fill_diagonal_(1).div_(cell["n"])

    def call(seed: int) -> Any:
        values = torch.linalg.eigvalsh(gram)
        synchronize()
        return values

    return Contestant(call, lambda values: {"vendi": entropy(values.cpu())})


def vendi_score(cell: Cell) -> Contestant:
    """The package as it is: `score_K` on the outputs' Gram, made before the clock starts."""
    from vendi_score import vendi  # pyright: ignore[reportMissingImports] - an extra brings it.

    outputs, _ = load_points(cell)
    centred = outputs - outputs.mean(axis=0)
    gram = gaussian(centred, centred, cell["bandwidths"][0])
    np.fill_diagonal(gram, 1)
    return Contestant(
        lambda seed: vendi.score_K(gram), lambda score: {"vendi": float(np.log(score))}
    )
