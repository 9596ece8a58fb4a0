"""The contestants of the `bench` extra, each importing its package where it is used."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.cost.scaling import reference
from experiments.cost.scaling.worker import Cell, Contestant, load_points


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
        return reference.read_norms([float(s) / cell["n"] ** 2 for s in sums])

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

    return Contestant(ready, lambda values: reference.read_spectrum(values.cpu()))


def rke_score(cell: Cell) -> Contestant:
    """The package as it is: RKE of the outputs alone, the least that it can be asked."""
    from rke_score import RKE  # pyright: ignore[reportMissingImports] - an extra brings it.

    outputs, _ = load_points(cell)
    bandwidth = cell["bandwidths"][0]
    engine = RKE(kernel_bandwidth=[bandwidth])

    return Contestant(
        lambda seed: lambda: engine.compute_rke_mc_frobenius_norm(outputs),
        lambda norms: {"outputs": float(norms[bandwidth])},
    )


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
    """Stochastic Lanczos quadrature by `matfree`: H(X, T) at given numbers of products."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import entr
    from matfree import decomp, funm, stochtrace  # pyright: ignore[reportMissingImports] - an extra.

    import condvendi_jax as cv

    gram_x, gram_t = (
        cv.grams.DenseGram.from_points(cv.Gaussian(bandwidth), jnp.asarray(points)).matrix
        for points, bandwidth in zip(load_points(cell), cell["bandwidths"], strict=True)
    )
    matrix = gram_x * gram_t / cell["n"]
    del gram_x, gram_t
    # What rounds to below zero has no entropy.
    entropy = funm.dense_funm_sym_eigh(lambda nodes: entr(jnp.maximum(nodes, 0)))

    @functools.partial(jax.jit, static_argnames=("probes", "steps"))
    def trace(matrix: Any, key: Any, *, probes: int, steps: int) -> Any:
        quadrature = funm.monte_carlo_funm_sym(entropy, decomp.tridiag_sym(steps))
        estimate = stochtrace.estimator_monte_carlo(
            quadrature, stochtrace.sampler_signs(matrix[0], num=probes)
        )
        product = functools.partial(jnp.matmul, matrix, precision=jax.lax.Precision.HIGHEST)
        return estimate(product, key)

    def estimates(seed: int) -> dict[str, list[float]]:
        key, found = jax.random.key(seed), {}
        for products, splits in cell["splits"].items():
            for probes, steps in splits:
                value = trace(matrix, key, probes=probes, steps=steps)
                found[f"joint {products} {probes}x{steps}"] = [float(value)] * 3
        return found

    return Contestant(lambda seed: lambda: estimates(seed), dict)
