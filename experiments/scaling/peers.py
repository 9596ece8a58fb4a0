"""The contestants of the `bench` extra, each importing its package where it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.scaling import reference
from experiments.scaling.worker import Cell, Contestant, load_points


def device_bytes() -> tuple[int, int] | None:
    """The bytes that torch has on a GPU now and had at the peak; None where it has none."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()


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


def torch_norms(cell: Cell) -> Contestant:
    """||.||_F^2 / n^2 of K_X, K_T and their product in dense torch.

    Two n x n arrays in all. The kernels are squared in the exponent, and the product is taken in
    place; only sums leave the device.
    """
    torch, points, synchronize = _torch_tensors(*load_points(cell))

    def norms() -> list[Any]:
        squares = [
            _torch_log_gram(torch, p, bandwidth).mul_(2).exp_()
            for p, bandwidth in zip(points, cell["bandwidths"], strict=True)
        ]
        sums = [square.sum() for square in squares]
        sums.append(squares[0].mul_(squares[1]).sum())
        synchronize()
        return sums

    def read(sums: list[Any]) -> dict[str, float]:
        values = [float(s) / cell["n"] ** 2 for s in sums]
        return dict(zip(("outputs", "prompts", "joint"), values, strict=True))

    return Contestant(lambda seed: norms, read)


def torch_eigvalsh(cell: Cell) -> Contestant:
    """`torch.linalg.eigvalsh` of the outputs' K / n."""
    torch, (points,), synchronize = _torch_tensors(load_points(cell)[0])

    def ready(seed: int) -> Callable[[], Any]:
        gram = _torch_log_gram(torch, points, cell["bandwidths"][0]).clamp_(max=0).exp_()
        gram.fill_diagonal_(1).div_(cell["n"])
        synchronize()

        def eigenvalues() -> Any:
            values = torch.linalg.eigvalsh(gram)
            synchronize()
            return values

        return eigenvalues

    def read(values: Any) -> dict[str, Any]:
        return {"vendi": [reference.entropy(values.cpu().numpy())] * 3}

    return Contestant(ready, read)


def rke_score(cell: Cell) -> Contestant:
    """The package as it is: RKE of the outputs alone, the least that it can be asked."""
    from rke_score import RKE  # pyright: ignore[reportMissingImports] - an extra brings it.

    outputs, _ = load_points(cell)
    bandwidth = cell["bandwidths"][0]
    engine = RKE(kernel_bandwidth=[bandwidth])

    def read(norms: dict[float, float]) -> dict[str, float]:
        return {"outputs": float(norms[bandwidth])}

    return Contestant(lambda seed: lambda: engine.compute_rke_mc_frobenius_norm(outputs), read)


def vendi_score(cell: Cell) -> Contestant:
    """The package as it is: `score_K` on the outputs' Gram, made before the clock starts."""
    from vendi_score import vendi  # pyright: ignore[reportMissingImports] - an extra brings it.

    outputs, _ = load_points(cell)
    centred = outputs - outputs.mean(axis=0)

    def ready(seed: int) -> Callable[[], float]:
        gram = reference.gaussian(centred, centred, cell["bandwidths"][0])
        np.fill_diagonal(gram, 1)
        return lambda: vendi.score_K(gram)

    return Contestant(ready, lambda score: {"vendi": [float(np.log(score))] * 3})


def plain_quadrature(cell: Cell) -> Contestant:
    """Stochastic Lanczos quadrature by `matfree`: the joint entropies at given numbers of products.

    A truncated entropy is handed the exact t-th eigenvalue and the exact shift, which no one has,
    so that a single trace is left to estimate.
    """
    import jax
    import jax.numpy as jnp
    from jax import lax
    from matfree import decomp, stochtrace  # pyright: ignore[reportMissingImports] - an extra.

    import condvendi_jax as cv

    outputs, prompts = load_points(cell)
    matrices = [
        cv.grams.DenseGram.from_points(cv.Gaussian(bandwidth), jnp.asarray(points)).matrix
        for points, bandwidth in zip((outputs, prompts), cell["bandwidths"], strict=True)
    ]
    matrix = matrices[0] * matrices[1] / cell["n"]
    del matrices

    def traces(matrix: Any, key: Any, floors: Any, shifts: Any, *, probes: int, steps: int) -> Any:
        """Those of g(lambda) - g(floor) above the floor, g(x) = -(x + shift) log(x + shift)."""

        def g(x: Any) -> Any:
            moved = x + shifts
            return -moved * jnp.log(jnp.where(moved > 0, moved, 1))

        def quadratures(product: Any, probe: Any) -> Any:
            """What `funm.monte_carlo_funm_sym` computes, for all functions of one Lanczos run."""
            length = jnp.linalg.norm(probe)
            _, tridiagonal, *_ = decomp.tridiag_sym(steps)(product, probe / length)
            nodes, vectors = jnp.linalg.eigh(tridiagonal)
            nodes = nodes[:, None]
            # Without a truncation the floor is 0: what rounds to below it has no entropy.
            values = jnp.where(nodes > floors, g(nodes) - g(floors), 0)
            return length**2 * (vectors[0] ** 2) @ values

        def product(vector: Any) -> Any:
            return jnp.matmul(matrix, vector, precision=lax.Precision.HIGHEST)

        sampler = stochtrace.sampler_signs(matrix[0], num=probes)
        return stochtrace.estimator_monte_carlo(quadratures, sampler)(product, key)

    compiled = jax.jit(traces, static_argnames=("probes", "steps"))

    def ready(seed: int) -> Callable[[], Any]:
        names, *known = zip(*_known(cell), strict=True)
        floors, shifts, constants = (np.array(values, np.float32) for values in known)

        def estimates() -> dict[str, float]:
            found = {}
            for products, splits in cell["splits"].items():
                for probes, steps in splits:
                    sampled = compiled(
                        matrix, jax.random.key(seed), floors, shifts, probes=probes, steps=steps
                    )
                    for name, value in zip(names, np.asarray(sampled) + constants, strict=True):
                        found[f"{name} {products} {probes}x{steps}"] = float(value)
            return found

        return estimates

    return Contestant(ready, lambda found: {name: [value] * 3 for name, value in found.items()})


def _known(cell: Cell) -> list[tuple[str, float, float, float]]:
    """For every entropy its name, the floor, the shift, and t g(floor), which is not estimated."""
    found = [("joint", 0.0, 0.0, 0.0)]
    descending = np.sort(np.load(cell["eigenvalues"]).astype(np.float64))[::-1]
    for t in cell["truncations"]:
        shift = float(1 - descending[:t].sum()) / t
        floor = float(descending[t - 1])
        moved = floor + shift
        found.append((f"joint-t{t}", floor, shift, float(-t * moved * np.log(moved))))
    return found
