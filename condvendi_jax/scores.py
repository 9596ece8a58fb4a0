"""The scores: exponentials of entropies, of conditional entropies and of information.

    Vendi(X) = Conditional-Vendi(X|T) * Information-Vendi(X;T)        (CV eq. 8)

at every order: order 1 is Vendi, order 2 is RKE. All are effective numbers of modes.

How they are computed depends on the order, n and the memory (`Decomposition.method` says how):

    frobenius     order 2: Frobenius norms, exact at any n
    exact         all eigenvalues, of the n x n matrices or of the smaller dual ones
    stored        a spectral measure (`estimators`) of stored n x n matrices
    matrix-free   a spectral measure of matrices that never exist, or of sharded ones
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from condvendi_jax import entropies, estimators, grams, memory, sharding, validation
from condvendi_jax.entropies import Entropy, PerScore, log_scores
from condvendi_jax.grams import Gram
from condvendi_jax.kernels import Cosine, Kernel, check_kernel
from condvendi_jax.measures import Estimate

METHODS = ("auto", "exact", "stored", "matrix-free")
# Rows compared to find a bandwidth under which the kernel is constant or the identity.
_PROBED_ROWS = 256
# Up to here all eigenvalues take seconds, and no sampling is needed to save them.
_EXACT_UP_TO = 4096


class Estimation(NamedTuple):
    """How far estimated scores may be from what all eigenvalues would give.

    Not the noise of another sample of data: for that, see `uncertainty`.

    Attributes:
      standard_errors: over the random probes, in effective numbers of modes.
      intervals: (low, high) at 95% confidence, which also hold what is systematic.
    """

    standard_errors: PerScore
    intervals: PerScore


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("entropy_outputs", "entropy_prompts", "entropy_joint", "estimation"),
    meta_fields=("order", "truncation", "n", "dtype", "duplicates", "method"),
)
@dataclasses.dataclass(frozen=True)
class Decomposition:
    """H(X) = H(X|T) + I(X;T), and the scores that are the exponentials of its terms.

    Attributes:
      entropy_outputs: H(X) in nats.
      entropy_prompts: H(T) in nats.
      entropy_joint: H(X, T) in nats.
      order: the order of all three entropies.
      truncation: how many eigenvalues all three keep, or None.
      n: the number of pairs; on a convergence curve the tuple of sizes.
      dtype: the name of the dtype they were computed in.
      duplicates: how many pairs repeat an earlier one, where that was asked for.
      method: how it was computed: frobenius, exact, stored or matrix-free.
      estimation: standard errors and intervals where it was estimated, None where it is exact.
    """

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    order: float
    truncation: int | None
    n: int | tuple[int, ...]
    dtype: str
    duplicates: int | None = None
    method: str | tuple[str, ...] = "exact"
    estimation: Estimation | None = None

    @property
    def log_scores(self) -> PerScore:
        """H(X), H(X|T) and I(X;T) in nats."""
        return log_scores(self.entropy_outputs, self.entropy_prompts, self.entropy_joint)

    @property
    def vendi(self) -> jax.Array:
        """exp H(X): Vendi, or RKE at order 2. The product of the next two."""
        return jnp.exp(self.log_scores.vendi)

    @property
    def conditional(self) -> jax.Array:
        """exp(H(X, T) - H(T)): the diversity that the model adds (CV eq. 6 and 9)."""
        return jnp.exp(self.log_scores.conditional)

    @property
    def information(self) -> jax.Array:
        """exp(H(X) + H(T) - H(X, T)): the diversity owed to the prompt (CV eq. 7 and 10)."""
        return jnp.exp(self.log_scores.information)


def decompose(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    method: str = "auto",
    key: jax.Array | None = None,
    rtol: float | None = None,
    mesh: Mesh | None = None,
    count_duplicates: bool = False,
) -> Decomposition:
    """Splits the diversity of outputs into what the model adds and what the prompts bring.

    Args:
      outputs: X, embeddings `[n, d_x]`; sharded by rows over many devices, they stay so.
      prompts: T, embeddings `[n, d_t]`, row by row of the prompts that gave the outputs.
      output_kernel: the kernel of the outputs; its bandwidth is in the units of `outputs`.
      prompt_kernel: the kernel of the prompts.
      order: the Renyi order in (0, inf]; 1 gives Vendi, 2 gives RKE, in one streamed pass.
      truncation: how many eigenvalues every entropy keeps (CV eq. 13); all where None.
      method: 'exact' (all eigenvalues), 'stored' or 'matrix-free' (a spectral measure, which is
        estimated), or 'auto': exact up to n = 4,096 and where there is no key, else stored while
        the n x n matrices fit in memory, else matrix-free. Order 2 without truncation is always
        exact.
      key: for the estimator's random probes. The same key gives the same numbers.
      rtol: of the estimator: how wide on either side, relatively, the intervals of the three
        scores may be; 0.002 where None.
      mesh: devices to spread the rows over, for arrays that are not sharded yet.
      count_duplicates: also count the pairs that repeat an earlier one exactly; not inside jit.

    Returns:
      A `Decomposition`: three entropies in nats and the scores as effective numbers of modes, with
      how they were computed and, where they were estimated, standard errors and intervals. In
      float32 the orders other than 2 carry four to five digits; enable x64 for more.

      Differentiable in the arrays and the bandwidths. Where the scores are estimated the gradient
      is too, from the same probes (`estimators.Sampler.sensitivity`); that is not available inside
      jit.

    Raises:
      TypeError, ValueError: the inputs are not two finite real arrays of n >= 1 rows each, an
        argument is out of range, a key is needed and missing, or the matrices that the method
        needs do not fit in memory.

    References:
      CV eq. 5-10 and 13; for a general order CV-early eq. 5.
    """
    entropy = Entropy(order=order, truncation=truncation)
    layout = sharding.layout_of(outputs, mesh=mesh)
    points = check_inputs(outputs, prompts, output_kernel, prompt_kernel, layout=layout)
    n = points[0].shape[0] if layout is None else layout.n
    entropy = entropy.clamped(n)
    kernels = (output_kernel, prompt_kernel)
    chosen = choose_method(method, (entropy,), points, kernels, key=key, layout=layout)
    ((values, estimation),) = entropies_of_pairs(
        points, kernels, (entropy,), chosen, key=key, rtol=rtol, layout=layout
    )
    return Decomposition(
        *values,
        order=entropy.order,
        truncation=entropy.truncation,
        n=n,
        dtype=np.dtype(points[0].dtype).name,
        duplicates=_duplicates(points, n) if count_duplicates else None,
        method=chosen,
        estimation=estimation,
    )


def _duplicates(points: tuple[jax.Array, jax.Array], n: int) -> int:
    pairs = np.concatenate([sharding.to_host(array)[:n] for array in points], axis=1)
    return n - np.unique(pairs, axis=0).shape[0]


def choose_method(
    method: str,
    entropies: Sequence[Entropy],
    points: Sequence[jax.Array],
    kernels: Sequence[Kernel],
    *,
    key: jax.Array | None,
    layout: sharding.Layout | None = None,
) -> str:
    """How these entropies of the joint of these points are to be computed.

    Args:
      method: one of `METHODS`.
      entropies: all that is asked for.
      points: `[n, d]` each, or as the layout puts them.
      kernels: one for each array of points.
      key: whether there is one decides what 'auto' may choose.
      layout: the devices that the points are spread over, if any.

    Returns:
      'frobenius', 'exact', 'stored' or 'matrix-free'.

    Raises:
      ValueError: there is no such method, the method needs a key, or it needs n x n matrices that
        do not fit in memory.
    """
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, received {method!r}.")
    if not any(entropy.needs_spectrum for entropy in entropies):
        return "frobenius"
    n, dtype = points[0].shape[0] if layout is None else layout.n, points[0].dtype
    in_the_dual = len(points) == 1 and isinstance(kernels[0], Cosine) and points[0].shape[1] < n
    if in_the_dual and method in ("auto", "exact"):
        return "exact"
    fits_here = memory.fits(n, dtype)
    if method == "auto":
        # Whether a tracer belongs to jit, where nothing can adapt, is not known here.
        exact = key is None or not validation.is_concrete(points, kernels) or n <= _EXACT_UP_TO
        fits = fits_here if layout is None else layout.fits_in_memory(dtype)
        if key is None and layout is None:
            memory.check(n, dtype)
        method = "exact" if fits_here and exact else "stored" if fits else "matrix-free"
    elif method == "exact" or (method == "stored" and layout is None):
        memory.check(n, dtype)
    if method in ("stored", "matrix-free") and key is None:
        raise ValueError(
            f"key: expected a random key, such as jax.random.key(0), to estimate the spectrum of "
            f"n = {n} points (method {method!r}); all of its eigenvalues, which need none, take "
            "n x n matrices that must fit in the memory of one device."
        )
    return method


@functools.partial(jax.jit, static_argnames="layout")
def represent(
    points: Sequence[jax.Array], kernels: Sequence[Kernel], layout: sharding.Layout | None
) -> tuple[Gram, ...]:
    """The Gram of each array of points, in what suits their number and their devices."""
    if layout is None:
        return tuple(grams.represent(k, p) for k, p in zip(kernels, points, strict=True))
    return tuple(
        sharding.ShardedGram.from_points(k, p, layout=layout)
        for k, p in zip(kernels, points, strict=True)
    )


def entropies_of_pairs(
    points: tuple[jax.Array, jax.Array],
    kernels: tuple[Kernel, Kernel],
    wanted: tuple[Entropy, ...],
    method: str,
    *,
    key: jax.Array | None,
    rtol: float | None,
    layout: sharding.Layout | None = None,
) -> list[tuple[Sequence[jax.Array], Estimation | None]]:
    """Several entropies of X, T and (X, T) from one set of spectra.

    Args:
      points, kernels: of outputs and prompts, checked before.
      wanted: the entropies, of truncations up to n.
      method: as `choose_method` returned it.
      key, rtol, layout: of the estimator, and the devices.

    Returns:
      For each entropy its three values; and how far the scores may be off, None where exact.
    """
    if method in ("frobenius", "exact"):
        return [(values, None) for values in _exact_entropies(points, kernels, wanted, layout)]
    values, estimates = sampled_entropies(
        wanted,
        represent(points, kernels, layout),
        lambda row: log_scores(*row),
        method,
        key=key,
        rtol=rtol,
    )
    return [
        (of_entropy, _estimation(log_scores(*row)))
        for of_entropy, row in zip(values, estimates, strict=True)
    ]


def _exact_entropies(
    points: tuple[jax.Array, jax.Array],
    kernels: tuple[Kernel, Kernel],
    wanted: tuple[Entropy, ...],
    layout: sharding.Layout | None,
) -> list[tuple[jax.Array, ...]]:
    if not any(entropy.needs_spectrum for entropy in wanted):
        return [_frobenius_entropies(points, kernels, entropy, layout) for entropy in wanted]
    gram_x, gram_t = represent(points, kernels, layout)
    spectra = tuple(_eigenvalues(gram) for gram in (gram_x, gram_t, gram_x * gram_t))
    return _of_spectra(spectra, wanted)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _frobenius_entropies(
    points: tuple[jax.Array, jax.Array],
    kernels: tuple[Kernel, Kernel],
    entropy: Entropy,
    layout: sharding.Layout | None,
) -> tuple[jax.Array, ...]:
    return entropies.entropies(entropy, *represent(points, kernels, layout))


# A program of its own: compiling it takes most of the time of a first call, and it serves outputs,
# prompts and their joint, of every order and truncation.
@jax.jit
def _eigenvalues(gram: Gram) -> jax.Array:
    return gram.eigenvalues()


@functools.partial(jax.jit, static_argnums=1)
def _of_spectra(
    spectra: tuple[jax.Array, ...], wanted: tuple[Entropy, ...]
) -> list[tuple[jax.Array, ...]]:
    """Each entropy of every spectrum."""
    return [tuple(entropy.of_spectrum(spectrum) for spectrum in spectra) for entropy in wanted]


def _estimation(logs: PerScore) -> Estimation:
    """Standard errors and intervals of the exponentials."""
    return Estimation(
        PerScore(*map(_standard_error, logs)),
        PerScore(*(tuple(map(math.exp, log.interval)) for log in logs)),
    )


def _standard_error(log: Estimate) -> float:
    """Of the exponential."""
    return math.exp(log.value) * log.standard_error


def sampled_entropies(
    wanted: Sequence[Entropy],
    marginals: Sequence[Gram],
    combine: Callable[[list[Estimate]], Iterable[Estimate]],
    method: str,
    *,
    key: jax.Array | None,
    rtol: float | None,
    skip: int = 0,
) -> tuple[list[list[jax.Array]], list[list[Estimate]]]:
    """Estimates entropies of Grams and of their product, differentiably.

    Args:
      wanted: the entropies.
      marginals: one Gram, or those of outputs and prompts, whose product is the last Gram.
      combine: from one entropy of all Grams to what `rtol` is about.
      method: 'stored' or 'matrix-free'.
      key, rtol: as for `estimators.spectral_measure`.
      skip: how many of the first Grams are in the product only.

    Returns:
      For each entropy its value for each Gram, and the estimates that those values are the means
      of.
    """
    assert key is not None
    differentiable = list(marginals)
    held = [jax.tree.map(lax.stop_gradient, gram) for gram in marginals]
    if method == "stored":
        held = [_store(gram) for gram in held]
    if marginals[1:]:
        differentiable.append(marginals[0] * marginals[1])
        joint = held[0] * held[1]
        held.append(_store(joint) if method == "stored" else joint)
    differentiable, held = differentiable[skip:], held[skip:]
    samplers, estimates = estimators.refine(held, wanted, combine, key=key, rtol=rtol)
    values = [
        [jnp.asarray(e.value, g.dtype) for e, g in zip(row, differentiable, strict=True)]
        for row in estimates
    ]
    if not validation.is_concrete(marginals):
        values = [
            [
                value + sampler.slope(entropy, gram)
                for value, sampler, gram in zip(row, samplers, differentiable, strict=True)
            ]
            for entropy, row in zip(wanted, values, strict=True)
        ]
    return values, estimates


@jax.jit
def _store(gram: Gram) -> Gram:
    return gram.store()


def check_inputs(
    outputs: Any,
    prompts: Any,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    *,
    layout: sharding.Layout | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The two arrays, checked, cast and placed, after the kernels were checked against them.

    Raises:
      TypeError, ValueError: as `decompose`.
    """
    check_kernel(output_kernel, name="output_kernel")
    check_kernel(prompt_kernel, name="prompt_kernel")
    placed = jnp.asarray if layout is None else layout.shard
    outputs, prompts = validation.check_pairs(outputs, prompts, place=placed)
    _check_points(outputs, output_kernel, name="outputs")
    _check_points(prompts, prompt_kernel, name="prompts")
    return outputs, prompts


def _check_points(points: jax.Array, kernel: Kernel, *, name: str) -> None:
    """Raises where the kernel is not defined on the points; warns where it says nothing of them."""
    if not validation.is_concrete(points, kernel):
        return
    # At once, also for constants inside jit.
    with jax.ensure_compile_time_eval():
        kernel.check_points(points, name=name)
        identical, smallest, largest = map(float, _off_diagonal_range(kernel, points))
    if identical:
        return
    if smallest > 1 - 1e-6:
        warnings.warn(
            f"{name}: under {kernel!r} all kernel values exceed 1 - 1e-6, the Gram is numerically "
            "constant and its scores are 1: it cannot tell these embeddings apart.",
            stacklevel=4,
        )
    elif max(abs(smallest), abs(largest)) < 1e-6:
        warnings.warn(
            f"{name}: under {kernel!r} all kernel values between different points are below 1e-6, "
            "the Gram is numerically the identity and its scores only count points.",
            stacklevel=4,
        )


@jax.jit
def _off_diagonal_range(
    kernel: Kernel, points: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of some rows: whether they are identical, and their least and largest kernel values."""
    rows = points[:: -(-points.shape[0] // _PROBED_ROWS)]
    prepared = kernel.prepare(rows)
    values = kernel.cross(prepared, prepared)
    # A constant of NumPy: inside of compile-time evaluation JAX would compile its making.
    diagonal = np.eye(rows.shape[0], dtype=bool)
    smallest = jnp.min(jnp.where(diagonal, jnp.inf, values))
    return (rows == rows[:1]).all(), smallest, jnp.max(jnp.where(diagonal, -jnp.inf, values))


def conditional_vendi(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    method: str = "auto",
    key: jax.Array | None = None,
    rtol: float | None = None,
    mesh: Mesh | None = None,
) -> jax.Array:
    """exp H(X|T), the model-induced diversity (CV eq. 6; truncated, eq. 13).

    Args, Raises: as `decompose`, of which this is one score; H(X) is not computed. Where it is
      estimated, `decompose` also gives its interval.

    Returns:
      A scalar, the effective number of modes that the model adds, in [1, n]; a truncated score can
      fall below 1.
    """
    entropy = Entropy(order=order, truncation=truncation)
    layout = sharding.layout_of(outputs, mesh=mesh)
    points = check_inputs(outputs, prompts, output_kernel, prompt_kernel, layout=layout)
    entropy = entropy.clamped(points[0].shape[0] if layout is None else layout.n)
    kernels = (output_kernel, prompt_kernel)
    chosen = choose_method(method, (entropy,), points, kernels, key=key, layout=layout)
    if chosen in ("frobenius", "exact"):
        return _conditional(points, kernels, entropy, layout)
    ((of_t, joint),), _ = sampled_entropies(
        (entropy,),
        represent(points, kernels, layout),
        lambda row: [log_scores(row[0], *row).conditional],
        chosen,
        key=key,
        rtol=rtol,
        skip=1,
    )
    return jnp.exp(log_scores(0.0, of_t, joint).conditional)


def _conditional(
    points: tuple[jax.Array, jax.Array],
    kernels: tuple[Kernel, Kernel],
    entropy: Entropy,
    layout: sharding.Layout | None,
) -> jax.Array:
    if not entropy.needs_spectrum:
        of_x, of_t, joint = _frobenius_entropies(points, kernels, entropy, layout)
    else:
        gram_x, gram_t = represent(points, kernels, layout)
        spectra = (_eigenvalues(gram_t), _eigenvalues(gram_x * gram_t))
        ((of_t, joint),) = _of_spectra(spectra, (entropy,))
        of_x = joint  # H(X) has no part in it, and would cost a spectrum.
    return jnp.exp(log_scores(of_x, of_t, joint).conditional)


def information_vendi(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    method: str = "auto",
    key: jax.Array | None = None,
    rtol: float | None = None,
    mesh: Mesh | None = None,
) -> jax.Array:
    """exp I(X;T), the prompt-induced diversity (CV eq. 7).

    Args, Raises: as `decompose`, of which this is one score.

    Returns:
      A scalar, an effective number of modes. At orders other than 1 it may fall below 1.
    """
    return decompose(
        outputs,
        prompts,
        output_kernel=output_kernel,
        prompt_kernel=prompt_kernel,
        order=order,
        truncation=truncation,
        method=method,
        key=key,
        rtol=rtol,
        mesh=mesh,
    ).information


def conditional_rke(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    mesh: Mesh | None = None,
) -> jax.Array:
    """||K_T||_F^2 / ||K_X o K_T||_F^2, `conditional_vendi` at order 2 (CV eq. 9 and 11)."""
    return conditional_vendi(
        outputs,
        prompts,
        output_kernel=output_kernel,
        prompt_kernel=prompt_kernel,
        order=2,
        mesh=mesh,
    )


def information_rke(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    mesh: Mesh | None = None,
) -> jax.Array:
    """n^2 ||K_X o K_T||^2 / (||K_X||^2 ||K_T||^2), `information_vendi` at order 2 (CV eq. 11)."""
    return information_vendi(
        outputs,
        prompts,
        output_kernel=output_kernel,
        prompt_kernel=prompt_kernel,
        order=2,
        mesh=mesh,
    )


def vendi(
    outputs: Any,
    *,
    kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    method: str = "auto",
    key: jax.Array | None = None,
    rtol: float | None = None,
    mesh: Mesh | None = None,
) -> jax.Array:
    """exp H(X), the unconditional Vendi score (CV eq. 3).

    Args:
      outputs: embeddings `[n, d]`.
      kernel: a normalised kernel.
      order: the Renyi order in (0, inf].
      truncation: how many eigenvalues are kept; all where None.
      method, key, rtol, mesh: as `decompose`.

    Returns:
      A scalar, the effective number of modes, in [1, n]. Where it is estimated,
      `vendi_with_interval` gives the same number and how far it may be off.

    Raises:
      TypeError, ValueError: as `decompose`.
    """
    return vendi_with_interval(
        outputs,
        kernel=kernel,
        order=order,
        truncation=truncation,
        method=method,
        key=key,
        rtol=rtol,
        mesh=mesh,
    ).vendi


class VendiWithInterval(NamedTuple):
    """A Vendi score and how it was computed.

    Attributes:
      vendi: a scalar, the effective number of modes.
      method: as `Decomposition.method`.
      standard_error: over the random probes; None where the score is exact.
      interval: (low, high) at 95% confidence; None where the score is exact.
    """

    vendi: jax.Array
    method: str
    standard_error: float | None = None
    interval: tuple[float, float] | None = None


def vendi_with_interval(
    outputs: Any,
    *,
    kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    method: str = "auto",
    key: jax.Array | None = None,
    rtol: float | None = None,
    mesh: Mesh | None = None,
) -> VendiWithInterval:
    """`vendi`, with the interval that an estimate has.

    Args, Raises: as `vendi`.
    """
    entropy = Entropy(order=order, truncation=truncation)
    check_kernel(kernel, name="kernel")
    layout = sharding.layout_of(outputs, mesh=mesh)
    placed = jnp.asarray if layout is None else layout.shard
    points = (validation.check_embeddings(outputs, name="outputs", place=placed),)
    _check_points(points[0], kernel, name="outputs")
    entropy = entropy.clamped(points[0].shape[0] if layout is None else layout.n)
    chosen = choose_method(method, (entropy,), points, (kernel,), key=key, layout=layout)
    if chosen in ("frobenius", "exact"):
        return VendiWithInterval(_vendi(points, (kernel,), entropy, layout), chosen)
    ((value,),), ((log,),) = sampled_entropies(
        (entropy,), represent(points, (kernel,), layout), list, chosen, key=key, rtol=rtol
    )
    low, high = map(math.exp, log.interval)
    return VendiWithInterval(jnp.exp(value), chosen, _standard_error(log), (low, high))


def _vendi(
    points: tuple[jax.Array],
    kernels: tuple[Kernel],
    entropy: Entropy,
    layout: sharding.Layout | None,
) -> jax.Array:
    if not entropy.needs_spectrum:
        return _frobenius_vendi(points, kernels, entropy, layout)
    (gram,) = represent(points, kernels, layout)
    ((value,),) = _of_spectra((_eigenvalues(gram),), (entropy,))
    return jnp.exp(value)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _frobenius_vendi(
    points: tuple[jax.Array],
    kernels: tuple[Kernel],
    entropy: Entropy,
    layout: sharding.Layout | None,
) -> jax.Array:
    return jnp.exp(entropy(*represent(points, kernels, layout)))


def rke(outputs: Any, *, kernel: Kernel, mesh: Mesh | None = None) -> jax.Array:
    """||K / n||_F^-2, the Renyi kernel entropy score: `vendi` at order 2 (CV eq. 4)."""
    return vendi(outputs, kernel=kernel, order=2, mesh=mesh)
