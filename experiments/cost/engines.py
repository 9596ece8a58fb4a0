"""What meets in the benchmarks and runs on JAX: the library's engines, dense code, `matfree`."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import condvendi_jax as cv
from condvendi_jax import entropies
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import eigenvalues as spectra
from condvendi_jax.entropies import log_scores
from condvendi_jax.grams.operators import DenseGram
from condvendi_jax.spectra import computation, estimators, refinement
from experiments.cost import peers
from experiments.cost.worker import Cell, Contestant, load_points

_HIGHEST = lax.Precision.HIGHEST
_ROLES = "output_kernel", "prompt_kernel"
_SCORES = ("vendi", "conditional", "information")
# Products with the matrix that both estimates of H(X, T) spend: ours in all, and the splits into
# probes x steps that plain quadrature may choose among (the best in hindsight counts).
PRODUCTS = 448
_BUDGET = estimators.Budget(block=32, sweeps=8, probes=16, steps=12)
_SPLITS = ((56, 8), (28, 16))


def load(cell: Cell) -> list[jax.Array]:
    """`worker.load_points` on the device."""
    return [jnp.asarray(points) for points in load_points(cell)]


def compiled(
    function: Callable[..., Any], read: Callable[[Any], dict[str, Any]], arguments: Sequence[Any]
) -> Contestant:
    """Calls a function that is compiled ahead of time."""
    compiled = jax.jit(function).lower(*arguments).compile()
    return Contestant(lambda seed: jax.block_until_ready(compiled(*arguments)), read)


def gaussians(cell: Cell) -> dict[str, Any]:
    """The kernels as the scores take them."""
    return dict(zip(_ROLES, map(cv.Gaussian, cell["bandwidths"]), strict=True))


def library(cell: Cell) -> Contestant:
    """Ours: the entropies of order 2 as every score computes them, of points checked before."""
    points = Pairs(*load(cell), **gaussians(cell))

    def call(seed: int) -> entropies.PerTerm:
        (computed,) = computation.compute(points, [entropies.Entropy(2)], computation.AUTO)
        return jax.block_until_ready(computed.values)

    # The norms, whose negative logarithms the entropies are.
    return Contestant(call, lambda nats: peers.read_norms(np.exp(-np.array(nats, np.float64))))


def dense_jax(cell: Cell) -> Contestant:
    """A peer: the same norms from two n x n arrays, as one would write it in JAX."""

    def gram(points: jax.Array, bandwidth: float) -> jax.Array:
        squares = jnp.sum(jnp.square(points), axis=1)
        products = jnp.matmul(points, points.T, precision=_HIGHEST)
        distances = squares[:, None] + squares[None, :] - 2 * products
        return jnp.exp(-jnp.maximum(distances, 0) / (2 * bandwidth**2))

    def norms(*points: jax.Array) -> jax.Array:
        gram_x, gram_t = map(gram, points, cell["bandwidths"])
        sums = [jnp.sum(jnp.square(g)) for g in (gram_x, gram_t, gram_x * gram_t)]
        return jnp.stack(sums) / cell["n"] ** 2

    return compiled(norms, peers.read_norms, load(cell))


def _grams(cell: Cell, *points: jax.Array) -> list[DenseGram]:
    """The Grams of outputs and prompts, or of the outputs alone."""
    return [
        DenseGram.from_points(cv.Gaussian(bandwidth), of_role)
        for of_role, bandwidth in zip(points, cell["bandwidths"], strict=False)
    ]


def eigenvalues(cell: Cell, *, ours: bool = True) -> Contestant:
    """All eigenvalues of the outputs' K / n, which is made before: ours, or `jnp.linalg`'s."""
    outputs, _ = load(cell)
    scaled = jax.jit(lambda x: _grams(cell, x)[0].matrix / cell["n"])
    function = spectra.spectrum if ours else jnp.linalg.eigvalsh
    outputs = scaled(outputs)
    return compiled(function, lambda values: {"vendi": peers.entropy(values)}, [outputs])


def _quantities(cell: Cell) -> dict[str, cv.Entropy]:
    """The entropies of the scores of order 1, by the suffix of their names."""
    return {"": cv.von_neumann} | {f"-t{t}": cv.Entropy(truncation=t) for t in cell["truncations"]}


def exact(cell: Cell) -> Contestant:
    """Ours: all eigenvalues of K_X, K_T and their product, and the scores from them."""
    points = load(cell)
    terms = [lambda x, t: x, lambda x, t: t, operator.mul]
    functions = [lambda *p, of=of: of(*_grams(cell, *p)).eigenvalues() for of in terms]
    calls = [jax.jit(function).lower(*points).compile() for function in functions]

    def read(spectra_of: list[jax.Array]) -> dict[str, Any]:
        values = {}
        for suffix, of in _quantities(cell).items():
            x, t, joint = (peers.entropy(np.asarray(s), of.truncation) for s in spectra_of)
            scores = log_scores(x, t, joint)._asdict() | {"joint": joint}
            values |= {name + suffix: nats for name, nats in scores.items()}
        return values

    # One after the other: together their Grams would be held at the same time.
    return Contestant(lambda seed: [jax.block_until_ready(of(*points)) for of in calls], read)


def stored(cell: Cell) -> Contestant:
    """Ours: `decompose` by `Stored` with a tolerance, from the arrays on."""
    points, kernels = load(cell), gaussians(cell)

    def call(seed: int) -> cv.scores.Decomposition:
        method = computation.named("stored", key=jax.random.key(seed), rtol=cell["rtol"])
        return jax.block_until_ready(cv.decompose(*points, **kernels, method=method))

    def read(result: cv.scores.Decomposition) -> dict[str, Any]:
        found = {n: [getattr(result, n), *getattr(result.intervals, n)] for n in _SCORES}
        return {name: np.log(np.array(of, np.float64)).tolist() for name, of in found.items()}

    return Contestant(call, read)


def _interval(estimate: Any) -> list[float]:
    """The value and the ends of its interval, in nats."""
    return [float(estimate.value), *map(float, estimate.interval)]


def by_tolerance(cell: Cell) -> Contestant:
    """Ours: the tolerance asked of the three scores of order 1, and the same measures truncated."""
    points = load(cell)

    def call(seed: int) -> Any:
        # Made anew for every seed: otherwise they would take memory in the turns of others.
        gram_x, gram_t = _grams(cell, *points)
        return refinement.refine(
            [gram_x, gram_t, gram_x * gram_t],
            [cv.von_neumann],
            lambda estimates: log_scores(*estimates),
            key=jax.random.key(seed),
            rtol=cell["rtol"],
        )

    def read(refined: Any) -> dict[str, Any]:
        measures = [sampler.measure() for sampler in refined[0]]
        found = {}
        for suffix, of in _quantities(cell).items():
            scores = log_scores(*(measure.entropy(of) for measure in measures))
            found |= {name + suffix: _interval(score) for name, score in scores._asdict().items()}
        return found

    return Contestant(call, read)


def by_budget(cell: Cell) -> Contestant:
    """Ours: H(X, T) from a measure of a fixed budget of products."""
    joint = jax.block_until_ready(operator.mul(*_grams(cell, *load(cell))))
    return Contestant(
        lambda seed: refinement.spectral_measure(joint, key=jax.random.key(seed), budget=_BUDGET),
        lambda found: {f"joint {PRODUCTS}": _interval(found.entropy(cv.von_neumann))},
    )


def plain_quadrature(cell: Cell) -> Contestant:
    """A peer: stochastic Lanczos quadrature by `matfree`, H(X, T) at as many products."""
    from jax.scipy.special import entr
    from matfree import decomp, funm, stochtrace  # pyright: ignore[reportMissingImports] - an extra.

    gram_x, gram_t = (gram.matrix for gram in _grams(cell, *load(cell)))
    matrix = gram_x * gram_t / cell["n"]
    del gram_x, gram_t
    # What rounds to below zero has no entropy.
    function = funm.dense_funm_sym_eigh(lambda nodes: entr(jnp.maximum(nodes, 0)))

    @functools.partial(jax.jit, static_argnames=("probes", "steps"))
    def trace(matrix: Any, key: Any, *, probes: int, steps: int) -> Any:
        quadrature = funm.monte_carlo_funm_sym(function, decomp.tridiag_sym(steps))
        sampler = stochtrace.sampler_signs(matrix[0], num=probes)
        estimate = stochtrace.estimator_monte_carlo(quadrature, sampler)
        return estimate(functools.partial(jnp.matmul, matrix, precision=_HIGHEST), key)

    def estimates(seed: int) -> dict[str, float]:
        return {
            f"joint {PRODUCTS} {probes}x{steps}": float(
                trace(matrix, jax.random.key(seed), probes=probes, steps=steps)
            )
            for probes, steps in _SPLITS
        }

    return Contestant(estimates, dict)
