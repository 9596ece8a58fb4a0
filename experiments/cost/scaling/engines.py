"""The contestants that run on JAX: the library's engines, and what one would write without it."""

import functools
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import condvendi_jax as cv
from condvendi_jax import entropies
from condvendi_jax.base import memory
from condvendi_jax.cli import provenance
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import eigenvalues as spectra
from condvendi_jax.entropies import log_scores
from condvendi_jax.grams import fold
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.spectra import computation, estimators, refinement
from experiments.cost.scaling import reference
from experiments.cost.scaling.worker import Cell, Contestant, load_points

_HIGHEST = lax.Precision.HIGHEST
_SUBSETS = ((0,), (1,), (0, 1))
_SCORES = ("vendi", "conditional", "information")
_CPU_SIDE = 4096
_ACCELERATOR_SIDE = 8192


def describe() -> tuple[str, int | None, dict[str, Any]]:
    """'cpu' or 'accelerator', its memory in bytes, its name and the processor's cores."""
    platform = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    on = {"device": provenance.collect()["device"], "cores": cores}
    return platform, memory.limit(), on


def _points(cell: Cell) -> list[jax.Array]:
    return [jnp.asarray(points) for points in load_points(cell)]


def _compiled(
    function: Callable[..., Any],
    read: Callable[[Any], dict[str, Any]],
    prepare: Callable[[int], Sequence[Any]],
) -> Contestant:
    """Calls a function, compiled ahead of time, on what `prepare(seed)` makes before the clock."""
    compiled = jax.jit(function).lower(*jax.eval_shape(prepare, 0)).compile()

    def ready(seed: int) -> Callable[[], Any]:
        arguments = jax.block_until_ready(prepare(seed))
        return lambda: jax.block_until_ready(compiled(*arguments))

    return Contestant(ready, read)


def _of_points(
    cell: Cell, function: Callable[..., Any], read: Callable[[Any], dict[str, Any]]
) -> Contestant:
    """As `_compiled`, of outputs and prompts."""
    points = _points(cell)
    return _compiled(function, read, lambda seed: points)


def _read_entropies(nats: Sequence[Any]) -> dict[str, float]:
    """The norms whose negative logarithms they are."""
    return reference.read_norms(np.exp(-np.array(nats, np.float64)))


def _factors(cell: Cell, outputs: jax.Array, prompts: jax.Array, scale: Any = 1.0) -> fold.Factors:
    kernels = [cv.Gaussian(scale * bandwidth) for bandwidth in cell["bandwidths"]]
    return tuple(
        fold.Factor(kernel, kernel.prepare(points))
        for kernel, points in zip(kernels, (outputs, prompts), strict=True)
    )


def _kernels(cell: Cell) -> dict[str, Any]:
    """The kernels as the scores take them."""
    of_outputs, of_prompts = map(cv.Gaussian, cell["bandwidths"])
    return {"output_kernel": of_outputs, "prompt_kernel": of_prompts}


def library_norms(cell: Cell) -> Contestant:
    """Ours: the entropies of order 2 as every score computes them, of points checked before.

    The library chooses the representation of the Grams at this n.
    """
    points = Pairs(*_points(cell), **_kernels(cell))

    def call() -> entropies.PerTerm:
        (computed,) = computation.compute(points, [entropies.renyi(2)], computation.AUTO)
        return jax.block_until_ready(computed.values)

    return Contestant(lambda seed: call, _read_entropies)


def _norms(cell: Cell, *points: jax.Array, scale: Any = 1.0) -> jax.Array:
    return pairwise.squared_norms(_factors(cell, *points, scale=scale), _SUBSETS)


def tile_norms(cell: Cell) -> Contestant:
    """Ours: ||.||_F^2 / n^2 of K_X, K_T and their product in one pass over tiles."""
    return _of_points(cell, functools.partial(_norms, cell), reference.read_norms)


def all_prefixes(cell: Cell) -> Contestant:
    """Ours: the same norms of the first n' points, for every n' up to n."""

    def curves(*points: jax.Array) -> jax.Array:
        sums = pairwise.arrival_sums(_factors(cell, *points), _SUBSETS)[:, 0]
        # Scanned sums add in a tree: the error grows with log n, not with n.
        totals = lax.associative_scan(jnp.add, 2 * sums + 1, axis=-1)
        return totals / jnp.square(jnp.arange(1, sums.shape[-1] + 1, dtype=sums.dtype))[None]

    return _of_points(cell, curves, lambda found: reference.read_norms(found[:, -1]))


def many_bandwidths(cell: Cell) -> Contestant:
    """Ours: the same norms at 16 multiples of the bandwidths; the last is 1."""

    def sweep(*points: jax.Array) -> jax.Array:
        scales = jnp.linspace(0.5, 1.0, 16)
        return jax.vmap(lambda scale: _norms(cell, *points, scale=scale))(scales)

    return _of_points(cell, sweep, lambda found: reference.read_norms(found[-1]))


def value_and_gradient(cell: Cell) -> Contestant:
    """Ours: Conditional-RKE and its gradient in the outputs."""

    def conditional(*points: jax.Array) -> jax.Array:
        return operator.truediv(*pairwise.squared_norms(_factors(cell, *points), _SUBSETS[1:]))

    def read(result: Any) -> dict[str, float]:
        return {"conditional": float(result[0]), "slope": float(jnp.linalg.norm(result[1]))}

    return _of_points(cell, jax.value_and_grad(conditional), read)


def dense_norms(cell: Cell) -> Contestant:
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

    return _of_points(cell, norms, reference.read_norms)


def matrix_product(cell: Cell) -> Contestant:
    """The machine's limit: one large float32 matrix product at the precision of the engines."""
    side = _CPU_SIDE if jax.default_backend() == "cpu" else _ACCELERATOR_SIDE
    matrix = jnp.ones((side, side))
    return _compiled(
        lambda a: jnp.matmul(a.T, a, precision=_HIGHEST),
        lambda product: {"operations": 2 * side**3},
        lambda seed: [matrix],
    )


def _grams(cell: Cell, *points: jax.Array) -> list[cv.grams.DenseGram]:
    """The Grams of outputs and prompts, or of the outputs alone."""
    return [
        cv.grams.DenseGram.from_points(cv.Gaussian(bandwidth), of_role)
        for of_role, bandwidth in zip(points, cell["bandwidths"], strict=False)
    ]


def spectrum(cell: Cell, *, ours: bool = True) -> Contestant:
    """All eigenvalues of the outputs' K / n, which is made before: ours, or `jnp.linalg`'s."""
    outputs, _ = _points(cell)
    scaled = jax.jit(lambda x: _grams(cell, x)[0].matrix / cell["n"])
    function = spectra.spectrum if ours else jnp.linalg.eigvalsh
    return _compiled(function, reference.read_spectrum, lambda seed: [scaled(outputs)])


def _quantities(cell: Cell) -> dict[str, cv.Entropy]:
    """The entropies of the measure part, by the suffix of their names."""
    return {"": cv.von_neumann} | {f"-t{t}": cv.truncated(t) for t in cell["truncations"]}


def exact(cell: Cell) -> Contestant:
    """All eigenvalues of K_X, K_T and their product."""
    points = _points(cell)

    def eigenvalues(subset: Sequence[int], *points: jax.Array) -> jax.Array:
        grams = _grams(cell, *points)
        of_terms: list[cv.grams.Gram] = [grams[term] for term in subset]
        return functools.reduce(lambda one, other: one * other, of_terms).eigenvalues()

    calls = [
        jax.jit(functools.partial(eigenvalues, subset)).lower(*points).compile()
        for subset in _SUBSETS
    ]

    def read(spectra_of: list[jax.Array]) -> dict[str, Any]:
        values = {}
        for suffix, entropy in _quantities(cell).items():
            x, t, joint = (reference.entropy(np.asarray(s), entropy.truncation) for s in spectra_of)
            for name, nats in (log_scores(x, t, joint)._asdict() | {"joint": joint}).items():
                values[name + suffix] = [nats] * 3
        return values

    # One after the other: together their Grams would be held at the same time.
    return Contestant(
        lambda seed: lambda: [jax.block_until_ready(call(*points)) for call in calls], read
    )


def order_two_call(cell: Cell) -> Contestant:
    """Ours: `decompose(order=2)` from the arrays on, with the checks of its arguments."""
    call = functools.partial(cv.decompose, *_points(cell), **_kernels(cell), order=2)
    return Contestant(
        lambda seed: lambda: jax.block_until_ready(call()),
        lambda found: _read_entropies(found.entropies),
    )


def decompose(method: str, cell: Cell) -> Contestant:
    """Ours: `decompose` by a method, from the arrays on; 'auto' is without a key."""
    call = functools.partial(cv.decompose, *_points(cell), **_kernels(cell))

    def ready(seed: int) -> Callable[[], Any]:
        settings = {"key": jax.random.key(seed), "rtol": cell["rtol"]}
        chosen = computation.AUTO if method == "auto" else computation.named(method, **settings)
        return lambda: jax.block_until_ready(call(method=chosen))

    def read(result: cv.scores.Decomposition) -> dict[str, Any]:
        found = {n: [getattr(result, n), *getattr(result.intervals, n)] for n in _SCORES}
        return {name: np.log(np.array(of, np.float64)).tolist() for name, of in found.items()}

    return Contestant(ready, read)


def evaluate(cell: Cell, *, groups: int | None = None, **options: Any) -> Contestant:
    """Ours: `evaluate` from the arrays on; its errors of order 1, or its scores if without errors.

    Where `groups` is a number, that many are left out in turn, or every row if there are fewer.
    """
    given = _kernels(cell) | options | {"groups": groups and min(groups, cell["n"])}
    call = functools.partial(cv.evaluate, *_points(cell), **given)

    def read(found: Any) -> dict[str, float]:
        asked = found.order(1).standard_errors or found.order(1).decomposition
        return {name: float(getattr(asked, name)) for name in _SCORES}

    return Contestant(lambda seed: functools.partial(call, seed=seed), read)


def contributions(cell: Cell) -> Contestant:
    """Ours: `contributions` of order 1, from the arrays on; gives the errors that follow."""
    call = functools.partial(cv.contributions, *_points(cell), **_kernels(cell))

    def read(found: Any) -> dict[str, float]:
        return {n: np.std(of) / cell["n"] ** 0.5 for n, of in found.influences._asdict().items()}

    return Contestant(lambda seed: call, read)


def select(cell: Cell) -> Contestant:
    """Ours: `select` of a tenth of the rows, from the arrays on; gives their Conditional-RKE."""
    given = _kernels(cell) | {"k": cell["n"] // 10, "first": 0}
    call = functools.partial(cv.select, *_points(cell), **given)
    return Contestant(lambda seed: call, lambda found: {"conditional": float(found.scores[-1])})


def _interval(estimate: Any) -> list[float]:
    """The value and the ends of its interval, in nats."""
    return [float(estimate.value), *map(float, estimate.interval)]


def by_tolerance(cell: Cell) -> Contestant:
    """Ours: the tolerance asked of the three scores of order 1, the same measures truncated."""
    points = _points(cell)

    def ready(seed: int) -> Callable[[], Any]:
        # Made anew for every seed: otherwise they would take memory in the turns of others.
        gram_x, gram_t = _grams(cell, *points)
        of_grams = jax.block_until_ready([gram_x, gram_t, gram_x * gram_t])
        return lambda: refinement.refine(
            of_grams,
            [cv.von_neumann],
            lambda estimates: log_scores(*estimates),
            key=jax.random.key(seed),
            rtol=cell["rtol"],
        )

    def read(refined: Any) -> dict[str, Any]:
        measures = [sampler.measure() for sampler in refined.samplers]
        found = {}
        for suffix, entropy in _quantities(cell).items():
            scores = log_scores(*(measure.entropy(entropy) for measure in measures))
            found |= {name + suffix: _interval(of) for name, of in scores._asdict().items()}
        return found

    return Contestant(ready, read)


def by_budget(cell: Cell) -> Contestant:
    """Ours: H(X, T) from measures of fixed budgets of products."""
    joint = jax.block_until_ready(operator.mul(*_grams(cell, *_points(cell))))
    budgets = {products: estimators.Budget(**of) for products, of in cell["budgets"].items()}

    def ready(seed: int) -> Callable[[], Any]:
        key = jax.random.key(seed)
        return lambda: {
            products: refinement.spectral_measure(joint, key=key, budget=budget)
            for products, budget in budgets.items()
        }

    def read(measures: dict[str, Any]) -> dict[str, Any]:
        return {f"joint {p}": _interval(m.entropy(cv.von_neumann)) for p, m in measures.items()}

    return Contestant(ready, read)
