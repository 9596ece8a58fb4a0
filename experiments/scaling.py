"""How fast the engines are: order 2 against the GEMM peak and a dense peer, spectra against LAPACK.

Everything is timed in one run, in turn, and quoted as the median ratio of pairs, because machines
are noisy. Useful work at order 2 is n^2 (d_x + d_t) floating-point operations: half of the two full
matrix products of inner products, since the Gram is symmetric.

    python -m experiments.scaling --n=20000
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags
from jax import lax
from rich import console, table

import condvendi_jax as cv
from condvendi_jax import command, files, provenance, spectra, tiles, validation

_N = flags.DEFINE_integer("n", 20_000, "Pairs of the order-2 comparison.")
_SPECTRUM_N = flags.DEFINE_integer("spectrum_n", 4_000, "Points of the eigenvalue comparison.")
_OUTPUT_DIMENSION = flags.DEFINE_integer("output_dimension", 768, "d_x.")
_PROMPT_DIMENSION = flags.DEFINE_integer("prompt_dimension", 512, "d_t.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each, in turn.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the mixture that is scored.")
_JSON = flags.DEFINE_string("json", None, "Also write the results, with provenance, to this file.")
_BANDWIDTHS = 16
_MODES = 100


def mixture(n: int, dimension: int, key: jax.Array) -> jax.Array:
    """`[n, dimension]` points of a mixture of 100 normals, of unit scale."""
    centre_key, mode_key, noise_key = jax.random.split(key, 3)
    centres = jax.random.normal(centre_key, (_MODES, dimension))
    modes = jax.random.randint(mode_key, (n,), 0, _MODES)
    noise = jax.random.normal(noise_key, (n, dimension))
    return (centres[modes] + 0.5 * noise) / jnp.sqrt(dimension)


def in_turn(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every function, called in turn `repeats` times after one warm-up each."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            started = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(seconds: dict[str, list[float]], one: str, other: str) -> float:
    """The median over the rounds of one's time over the other's."""
    return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))


@jax.jit
def dense_norms(outputs: jax.Array, prompts: jax.Array, bandwidth: jax.Array) -> jax.Array:
    """The peer: squared norms of K_X, K_T and their product from two n x n arrays."""

    def gram(points: jax.Array) -> jax.Array:
        squares = jnp.sum(jnp.square(points), axis=1)
        products = jnp.matmul(points, points.T, precision=lax.Precision.HIGHEST)
        distances = squares[:, None] + squares[None, :] - 2 * products
        return jnp.exp(-jnp.maximum(distances, 0) / (2 * jnp.square(bandwidth)))

    gram_x, gram_t = gram(outputs), gram(prompts)
    return jnp.stack([jnp.sum(jnp.square(g)) for g in (gram_x, gram_t, gram_x * gram_t)])


def order_two(n: int, repeats: int, key: jax.Array) -> dict[str, Any]:
    """Conditional-RKE, prefixes, sweep and gradient against the GEMM peak and the dense peer."""
    keys = jax.random.split(key)
    outputs = mixture(n, _OUTPUT_DIMENSION.value, keys[0])
    prompts = mixture(n, _PROMPT_DIMENSION.value, keys[1])
    bandwidth = jnp.asarray(0.7)

    def factors(outputs: jax.Array, prompts: jax.Array, width: jax.Array) -> tiles.Factors:
        kernel = cv.Gaussian(width)
        return tuple(tiles.Factor(kernel, kernel.prepare(points)) for points in (outputs, prompts))

    subsets = ((0,), (1,), (0, 1))
    size = tiles.default_tile_size()
    norms = functools.partial(tiles.squared_norms, subsets=subsets, tile_size=size)
    prefixes = functools.partial(tiles.prefix_norms, subsets=subsets, tile_size=size)

    def conditional(outputs: jax.Array) -> jax.Array:
        pair = tiles.squared_norms(
            factors(outputs, prompts, bandwidth), ((1,), (0, 1)), tile_size=size
        )
        return pair[0] / pair[1]

    one = jax.jit(lambda x, t, b: norms(factors(x, t, b)))
    curve = jax.jit(lambda x, t, b: prefixes(factors(x, t, b)))
    sweep = jax.jit(jax.vmap(lambda x, t, b: norms(factors(x, t, b)), in_axes=(None, None, 0)))
    value_and_gradient = jax.jit(jax.value_and_grad(conditional))
    square = jnp.ones((min(n, 4096), 4096))
    gemm = jax.jit(lambda a: jnp.matmul(a.T, a, precision=lax.Precision.HIGHEST))
    seconds = in_turn(
        {
            "gemm": lambda: gemm(square),
            "tiles": lambda: one(outputs, prompts, bandwidth),
            "dense": lambda: dense_norms(outputs, prompts, bandwidth),
            "prefixes": lambda: curve(outputs, prompts, bandwidth),
            "sweep": lambda: sweep(outputs, prompts, jnp.linspace(0.5, 1.0, _BANDWIDTHS)),
            "gradient": lambda: value_and_gradient(outputs),
        },
        repeats,
    )
    useful = n * n * (_OUTPUT_DIMENSION.value + _PROMPT_DIMENSION.value)
    peak = max(2 * square.shape[0] * 4096 * 4096 / s for s in seconds["gemm"])
    median = statistics.median(seconds["tiles"])
    return {
        "n": n,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "gemm peak, GFLOP/s": peak / 1e9,
        "useful share of the GEMM peak": useful / median / peak,
        "dense peer / ours": ratio(seconds, "dense", "tiles"),
        "all prefixes / one evaluation": ratio(seconds, "prefixes", "tiles"),
        f"{_BANDWIDTHS} bandwidths / one evaluation": ratio(seconds, "sweep", "tiles"),
        "value with gradient / one evaluation": ratio(seconds, "gradient", "tiles"),
    }


def exact_spectrum(n: int, repeats: int, key: jax.Array) -> dict[str, Any]:
    """All eigenvalues of one Gram, against `jnp.linalg.eigvalsh`."""
    points = mixture(n, _OUTPUT_DIMENSION.value, key)
    matrix = cv.DenseGram.from_points(cv.Gaussian(0.7), points).matrix / n
    ours, lapack = jax.jit(spectra.spectrum), jax.jit(jnp.linalg.eigvalsh)
    seconds = in_turn({"ours": lambda: ours(matrix), "eigvalsh": lambda: lapack(matrix)}, repeats)
    return {
        "n": n,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "eigvalsh / ours": ratio(seconds, "eigvalsh", "ours"),
    }


def main(argv: list[str]) -> None:
    """Times, prints, writes."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}; flags are written --name=value.")
    if _JSON.value:
        files.check_writable(_JSON.value)
    repeats = validation.check_count(_REPEATS.value, name="--repeats", minimum=1)
    keys = jax.random.split(jax.random.key(_SEED.value))
    report = {
        "order 2": order_two(_N.value, repeats, keys[0]),
        "spectrum": exact_spectrum(_SPECTRUM_N.value, repeats, keys[1]),
        "dimensions": [_OUTPUT_DIMENSION.value, _PROMPT_DIMENSION.value],
        "repeats": repeats,
        "seed": _SEED.value,
        "provenance": provenance.collect(),
    }
    grid = table.Table("what", "n", "measured")
    for part in ("order 2", "spectrum"):
        for name, value in report[part].items():
            if isinstance(value, float):
                grid.add_row(name, f"{report[part]['n']:,}", f"{value:.3g}")
    console.Console().print(grid)
    if _JSON.value:
        files.write_json(_JSON.value, report)


if __name__ == "__main__":
    command.run(main)
