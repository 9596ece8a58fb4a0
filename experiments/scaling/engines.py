"""The contestants that run on JAX: the library's engines, and what one would write without it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import condvendi_jax as cv
from condvendi_jax import entropies
from condvendi_jax.cli import provenance
from condvendi_jax.entropies import log_scores
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _estimators as estimators
from condvendi_jax.spectra import _methods as methods
from experiments.scaling import reference
from experiments.scaling.contestant import Cell, Contestant, load_points

_HIGHEST = lax.Precision.HIGHEST
_SUBSETS = ((0,), (1,), (0, 1))
_NAMES = ("outputs", "prompts", "joint")
_SCORES = ("vendi", "conditional", "information")
_BANDWIDTHS = 16
_CPU_SIDE = 4096
_ACCELERATOR_SIDE = 8192


def describe() -> dict[str, Any]:
    """The device, its memory in bytes and the processor's cores."""
    device = jax.local_devices()[0]
    return {
        "provenance": provenance.collect(),
        "platform": device.platform,
        "kind": device.device_kind,
        "memory_bytes": memory.limit(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def _points(cell: Cell) -> tuple[jax.Array, jax.Array]:
    outputs, prompts = map(jnp.asarray, load_points(cell))
    return outputs, prompts


def _device_bytes() -> tuple[int, int] | None:
    statistics = jax.local_devices()[0].memory_stats()
    if not statistics:
        return None
    return statistics["bytes_in_use"], statistics["peak_bytes_in_use"]


def _compile(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """The function compiled for the shapes of its arguments, and the seconds that took."""
    started = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    return compiled, time.perf_counter() - started


def _on_points(
    function: Callable[..., Any], cell: Cell, read: Callable[[Any], dict[str, Any]], *more: Any
) -> Contestant:
    """A contestant that calls `function(outputs, prompts, *more)`, compiled ahead of time."""
    arguments = (*_points(cell), *more)
    compiled, seconds = _compile(function, *arguments)
    return Contestant(
        ready=lambda seed: lambda: jax.block_until_ready(compiled(*arguments)),
        read=read,
        compile_seconds=seconds,
        device_bytes=_device_bytes,
    )


def _read_norms(norms: jax.Array) -> dict[str, float]:
    return dict(zip(_NAMES, np.asarray(norms, np.float64).tolist(), strict=True))


def _factors(outputs: jax.Array, prompts: jax.Array, bandwidths: Sequence[Any]) -> pairwise.Factors:
    kernels = map(cv.Gaussian, bandwidths)
    return tuple(
        pairwise.Factor(kernel, kernel.prepare(points))
        for kernel, points in zip(kernels, (outputs, prompts), strict=True)
    )


def _kernels(cell: Cell) -> dict[str, Any]:
    """The kernels as the scores take them."""
    of_outputs, of_prompts = map(cv.Gaussian, cell["bandwidths"])
    return {"output_kernel": of_outputs, "prompt_kernel": of_prompts}


def library_norms(cell: Cell) -> Contestant:
    """Ours: the entropies of order 2 as every score has them, of points that were checked before.

    What represents the Grams at this n is the library's choice.
    """
    points = Pairs(*_points(cell), **_kernels(cell))

    def call() -> entropies.PerTerm:
        (computed,) = methods.compute(points, [entropies.renyi(2)], methods.AUTO)
        return jax.block_until_ready(computed.values)

    return Contestant(
        ready=lambda seed: call,
        read=lambda nats: _read_entropies(*nats),
        device_bytes=_device_bytes,
    )


def order_two_call(cell: Cell) -> Contestant:
    """Ours: `decompose(order=2)` from the arrays on, with the checks of what is passed."""
    call = functools.partial(cv.decompose, *_points(cell), **_kernels(cell), order=2)
    return Contestant(
        ready=lambda seed: lambda: jax.block_until_ready(call()),
        read=lambda found: _read_entropies(
            found.entropy_outputs, found.entropy_prompts, found.entropy_joint
        ),
        device_bytes=_device_bytes,
    )


def _read_entropies(*nats: jax.Array) -> dict[str, float]:
    """The norms whose negative logarithms they are."""
    return dict(zip(_NAMES, np.exp(-np.array(nats, np.float64)).tolist(), strict=True))


def tile_norms(cell: Cell) -> Contestant:
    """Ours: ||.||_F^2 / n^2 of K_X, K_T and their product in one pass over tiles."""

    def norms(outputs: jax.Array, prompts: jax.Array) -> jax.Array:
        factors = _factors(outputs, prompts, cell["bandwidths"])
        return pairwise.squared_norms(factors, _SUBSETS)

    return _on_points(norms, cell, _read_norms)


def all_prefixes(cell: Cell) -> Contestant:
    """Ours: the same norms of the first n' points, for every n' up to n."""

    def norms(outputs: jax.Array, prompts: jax.Array) -> jax.Array:
        factors = _factors(outputs, prompts, cell["bandwidths"])
        return pairwise.prefix_norms(factors, _SUBSETS)

    return _on_points(norms, cell, lambda curves: _read_norms(curves[:, -1]))


def many_bandwidths(cell: Cell) -> Contestant:
    """Ours: the same norms at 16 multiples of the bandwidths, any of them; the last is 1."""
    scales = jnp.linspace(0.5, 1.0, _BANDWIDTHS)

    def norms(outputs: jax.Array, prompts: jax.Array, scales: jax.Array) -> jax.Array:
        def at(scale: jax.Array) -> jax.Array:
            factors = _factors(outputs, prompts, [scale * b for b in cell["bandwidths"]])
            return pairwise.squared_norms(factors, _SUBSETS)

        return jax.vmap(at)(scales)

    return _on_points(norms, cell, lambda sweep: _read_norms(sweep[-1]), scales)


def value_and_gradient(cell: Cell) -> Contestant:
    """Ours: Conditional-RKE and its gradient in the outputs."""

    def conditional(outputs: jax.Array, prompts: jax.Array) -> jax.Array:
        factors = _factors(outputs, prompts, cell["bandwidths"])
        pair = pairwise.squared_norms(factors, _SUBSETS[1:])
        return pair[0] / pair[1]

    def read(result: Any) -> dict[str, float]:
        return {"conditional": float(result[0]), "slope": float(jnp.linalg.norm(result[1]))}

    return _on_points(jax.value_and_grad(conditional), cell, read)


def dense_norms(cell: Cell) -> Contestant:
    """A peer: the same norms from two n x n arrays, as one would write it in JAX."""

    def gram(points: jax.Array, bandwidth: float) -> jax.Array:
        squares = jnp.sum(jnp.square(points), axis=1)
        products = jnp.matmul(points, points.T, precision=_HIGHEST)
        distances = squares[:, None] + squares[None, :] - 2 * products
        return jnp.exp(-jnp.maximum(distances, 0) / (2 * bandwidth**2))

    def norms(outputs: jax.Array, prompts: jax.Array) -> jax.Array:
        gram_x, gram_t = map(gram, (outputs, prompts), cell["bandwidths"])
        sums = [jnp.sum(jnp.square(g)) for g in (gram_x, gram_t, gram_x * gram_t)]
        return jnp.stack(sums) / cell["n"] ** 2

    return _on_points(norms, cell, _read_norms)


def matrix_product(cell: Cell) -> Contestant:
    """The machine's limit: one large float32 matrix product at the precision of the engines."""
    side = _CPU_SIDE if jax.default_backend() == "cpu" else _ACCELERATOR_SIDE
    matrix = jnp.ones((side, side))
    compiled, seconds = _compile(lambda a: jnp.matmul(a.T, a, precision=_HIGHEST), matrix)
    return Contestant(
        ready=lambda seed: lambda: jax.block_until_ready(compiled(matrix)),
        read=lambda product: {"operations": 2 * side**3},
        compile_seconds=seconds,
        device_bytes=_device_bytes,
    )


def _of_matrix(
    function: Callable[[jax.Array], jax.Array], read: Callable[[Any], dict[str, Any]], cell: Cell
) -> Contestant:
    """A contestant of the outputs' K / n, which is made before the clock starts."""
    outputs, _ = _points(cell)
    n = cell["n"]
    shape = jax.ShapeDtypeStruct((n, n), outputs.dtype)
    compiled, seconds = _compile(function, shape)
    scaled = jax.jit(lambda x: _gram(cell, "outputs", x).matrix / n)

    def ready(seed: int) -> Callable[[], Any]:
        matrix = jax.block_until_ready(scaled(outputs))
        return lambda: jax.block_until_ready(compiled(matrix))

    return Contestant(ready, read, seconds, _device_bytes)


def _gram(cell: Cell, role: str, points: jax.Array) -> cv.grams.DenseGram:
    bandwidth = cell["bandwidths"][_NAMES.index(role)]
    return cv.grams.DenseGram.from_points(cv.Gaussian(bandwidth), points)


def spectrum(cell: Cell) -> Contestant:
    """Ours: all eigenvalues of one Gram, values only."""

    def read(values: jax.Array) -> dict[str, Any]:
        return {"vendi": [float(cv.von_neumann.of_spectrum(values))] * 3}

    return _of_matrix(spectra.spectrum, read, cell)


def eigvalsh(cell: Cell) -> Contestant:
    """A peer: `jnp.linalg.eigvalsh`."""
    return _of_matrix(
        jnp.linalg.eigvalsh, lambda v: {"vendi": [reference.entropy(np.asarray(v))] * 3}, cell
    )


def _quantities(cell: Cell) -> dict[str, cv.Entropy]:
    """The entropies of the measure part, by the suffix of their names."""
    return {"": cv.von_neumann} | {f"-t{t}": cv.truncated(t) for t in cell["truncations"]}


def exact(cell: Cell) -> Contestant:
    """All eigenvalues of K_X, K_T and their product; keeps those of the joint for a peer."""
    outputs, prompts = _points(cell)
    started = time.perf_counter()

    def of_one(role: str) -> Callable[..., jax.Array]:
        return lambda points: _gram(cell, role, points).eigenvalues()

    def of_joint(outputs: jax.Array, prompts: jax.Array) -> jax.Array:
        joint = _gram(cell, "outputs", outputs) * _gram(cell, "prompts", prompts)
        return joint.eigenvalues()

    calls = [
        (_compile(of_one("outputs"), outputs)[0], (outputs,)),
        (_compile(of_one("prompts"), prompts)[0], (prompts,)),
        (_compile(of_joint, outputs, prompts)[0], (outputs, prompts)),
    ]
    seconds = time.perf_counter() - started

    def read(spectra_of: list[jax.Array]) -> dict[str, Any]:
        np.save(cell["eigenvalues"], np.asarray(spectra_of[2]))
        values = {}
        for suffix, entropy in _quantities(cell).items():
            x, t, joint = (reference.entropy(np.asarray(s), entropy.truncation) for s in spectra_of)
            for name, nats in (log_scores(x, t, joint)._asdict() | {"joint": joint}).items():
                values[name + suffix] = [nats] * 3
        return values

    return Contestant(
        # One after the other: together their Grams would be held at the same time.
        ready=lambda seed: lambda: [jax.block_until_ready(call(*of)) for call, of in calls],
        read=read,
        compile_seconds=seconds,
        device_bytes=_device_bytes,
    )


def _scores(cell: Cell, method: Callable[[int], cv.spectra.Method]) -> Contestant:
    """`decompose` by the method of a seed, from points to scores with intervals."""
    decompose = functools.partial(cv.decompose, *_points(cell), **_kernels(cell))

    def ready(seed: int) -> Callable[[], Any]:
        chosen = method(seed)
        return lambda: jax.block_until_ready(decompose(method=chosen))

    def read(result: cv.scores.Decomposition) -> dict[str, Any]:
        intervals = result.intervals
        return {
            name: np.log([float(getattr(result, name)), *map(float, getattr(intervals, name))])
            .astype(float)
            .tolist()
            for name in _SCORES
        }

    return Contestant(ready=ready, read=read, device_bytes=_device_bytes)


def decompose(cell: Cell) -> Contestant:
    """Ours: `decompose` as it is without a method or a key."""
    return _scores(cell, lambda seed: methods.AUTO)


def stored(cell: Cell) -> Contestant:
    """Ours: `decompose(method=Stored(...))`."""
    return _scores(cell, lambda seed: cv.Stored(jax.random.key(seed), rtol=cell["rtol"]))


def matrix_free(cell: Cell) -> Contestant:
    """Ours: `decompose(method=MatrixFree(...))`."""
    return _scores(cell, lambda seed: cv.MatrixFree(jax.random.key(seed), rtol=cell["rtol"]))


def fourier_features(cell: Cell) -> Contestant:
    """Ours: `decompose(method=RandomFeatures(...))`, a cosine and a sine of each frequency."""
    count = cell["features"] // 2
    method = cv.RandomFeatures
    return _scores(cell, lambda seed: method(jax.random.key(seed), count=count))


def nystroem_features(cell: Cell) -> Contestant:
    """Ours: `decompose(method=Nystroem(...))`."""
    count = cell["features"]
    method = cv.Nystroem
    return _scores(cell, lambda seed: method(jax.random.key(seed), landmarks=count))


def plain_features(cell: Cell) -> Contestant:
    """FKEA's scores, of as many features as the others: what one has without extrapolating."""

    def log_scores_of(outputs: jax.Array, prompts: jax.Array, key: jax.Array) -> Any:
        count = cell["features"] // 2
        drawn = cv.spectra.fourier_features(
            outputs, prompts, **_kernels(cell), key=key, count=count
        )
        return log_scores(*map(cv.von_neumann, drawn))

    points = _points(cell)
    compiled, seconds = _compile(log_scores_of, *points, jax.random.key(0))

    def ready(seed: int) -> Callable[[], Any]:
        key = jax.random.key(seed)
        return lambda: jax.block_until_ready(compiled(*points, key))

    def read(found: Any) -> dict[str, Any]:
        return {name: [float(value)] * 3 for name, value in found._asdict().items()}

    return Contestant(ready, read, seconds, _device_bytes)


def jackknife(cell: Cell) -> Contestant:
    """Ours: `evaluate` of order 1 with standard errors, from the arrays on."""
    points, kernels = _points(cell), _kernels(cell)

    def ready(seed: int) -> Callable[[], cv.inference.Evaluation]:
        def call() -> cv.inference.Evaluation:
            found = cv.evaluate(*points, **kernels, orders=[1], errors="all", seed=seed)
            jax.block_until_ready(found.order(1).standard_errors)
            return found

        return call

    def read(found: cv.inference.Evaluation) -> dict[str, float]:
        (scored,) = found.orders
        assert scored.standard_errors is not None
        return {name: float(getattr(scored.standard_errors, name)) for name in _SCORES}

    return Contestant(ready, read, device_bytes=_device_bytes)


def _stored_grams(cell: Cell, outputs: jax.Array, prompts: jax.Array) -> list[cv.grams.Gram]:
    """The Grams of outputs and prompts, and their product."""
    gram_x, gram_t = _gram(cell, "outputs", outputs), _gram(cell, "prompts", prompts)
    return jax.block_until_ready([gram_x, gram_t, gram_x * gram_t])


def by_tolerance(cell: Cell) -> Contestant:
    """Ours: the tolerance asked of the three scores of order 1, the same measures truncated."""
    points = _points(cell)

    def ready(seed: int) -> Callable[[], Any]:
        # Made anew for every seed: kept, they would be in the way of whose turn it is.
        of_grams = _stored_grams(cell, *points)
        return lambda: estimators.refine(
            of_grams,
            [cv.von_neumann],
            lambda estimates: log_scores(*estimates),
            key=jax.random.key(seed),
            rtol=cell["rtol"],
        )

    def read(refined: Any) -> dict[str, Any]:
        measures = [sampler.measure() for sampler in refined.samplers]
        return {
            name + suffix: _interval(estimate)
            for suffix, entropy in _quantities(cell).items()
            for name, estimate in log_scores(*(m.entropy(entropy) for m in measures))
            ._asdict()
            .items()
        }

    return Contestant(ready, read, device_bytes=_device_bytes)


def by_budget(cell: Cell) -> Contestant:
    """Ours: the joint entropies from measures of fixed budgets of products."""
    joint = _stored_grams(cell, *_points(cell))[2]

    def ready(seed: int) -> Callable[[], Any]:
        key = jax.random.key(seed)
        return lambda: {
            products: estimators.spectral_measure(
                joint, key=key, budget=estimators.Budget(**budget)
            )
            for products, budget in cell["budgets"].items()
        }

    def read(measures: dict[str, Any]) -> dict[str, Any]:
        return {
            f"joint{suffix} {products}": _interval(measure.entropy(entropy))
            for products, measure in measures.items()
            for suffix, entropy in _quantities(cell).items()
        }

    return Contestant(ready, read, device_bytes=_device_bytes)


def _interval(estimate: Any) -> list[float]:
    """The value and the ends of its interval, in nats."""
    return [float(estimate.value), *map(float, estimate.interval)]
