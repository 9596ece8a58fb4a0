"""The scores: exponentials of entropies, of conditional entropies and of information.

    Vendi(X) = Conditional-Vendi(X|T) * Information-Vendi(X;T)        (CV eq. 8)

at every order: order 1 is Vendi, order 2 is RKE. All are effective numbers of modes.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax import entropies, grams, validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.kernels import Cosine, Kernel, check_kernel

# Rows compared to find a bandwidth under which the kernel is constant or the identity.
_PROBED_ROWS = 256


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("entropy_outputs", "entropy_prompts", "entropy_joint"),
    meta_fields=("order", "truncation", "n", "dtype", "duplicates"),
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
    """

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    order: float
    truncation: int | None
    n: int | tuple[int, ...]
    dtype: str
    duplicates: int | None = None

    @property
    def vendi(self) -> jax.Array:
        """exp H(X): Vendi, or RKE at order 2. The product of the next two."""
        return jnp.exp(self.entropy_outputs)

    @property
    def conditional(self) -> jax.Array:
        """exp(H(X, T) - H(T)): the diversity that the model adds (CV eq. 6 and 9)."""
        return jnp.exp(self.entropy_joint - self.entropy_prompts)

    @property
    def information(self) -> jax.Array:
        """exp(H(X) + H(T) - H(X, T)): the diversity owed to the prompt (CV eq. 7 and 10)."""
        return jnp.exp(self.entropy_outputs + self.entropy_prompts - self.entropy_joint)


def decompose(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    count_duplicates: bool = False,
) -> Decomposition:
    """Splits the diversity of outputs into what the model adds and what the prompts bring.

    Args:
      outputs: X, embeddings `[n, d_x]`.
      prompts: T, embeddings `[n, d_t]`, row by row of the prompts that gave the outputs.
      output_kernel: the kernel of the outputs; its bandwidth is in the units of `outputs`.
      prompt_kernel: the kernel of the prompts.
      order: the Renyi order in (0, inf]; 1 gives Vendi, 2 gives RKE, in one streamed pass.
      truncation: how many eigenvalues every entropy keeps (CV eq. 13); all where None.
      count_duplicates: also count the pairs that repeat an earlier one exactly; not inside jit.

    Returns:
      A `Decomposition`: three entropies in nats and the scores as effective numbers of modes.
      Orders other than 2 take all eigenvalues of three n x n matrices: O(n^3) time. In float32
      they carry four to five digits; enable x64 for more.

    Raises:
      TypeError, ValueError: the inputs are not two finite real arrays of n >= 1 rows each, an
        argument is out of range, or the matrices do not fit in memory.

    References:
      CV eq. 5-10 and 13; for a general order CV-early eq. 5.
    """
    entropy = Entropy(order=order, truncation=truncation)
    outputs, prompts = check_inputs(outputs, prompts, output_kernel, prompt_kernel)
    entropy = _for_size(entropy, outputs, output_kernel, prompt_kernel)
    result = _decompose(outputs, prompts, output_kernel, prompt_kernel, entropy)
    if count_duplicates:
        pairs = np.concatenate([outputs, prompts], axis=1)
        repeated = result.n - np.unique(pairs, axis=0).shape[0]
        return dataclasses.replace(result, duplicates=repeated)
    return result


def check_inputs(
    outputs: Any, prompts: Any, output_kernel: Kernel, prompt_kernel: Kernel
) -> tuple[jax.Array, jax.Array]:
    """The two arrays, checked and cast, after the kernels were checked against them.

    Raises:
      TypeError, ValueError: as `decompose`.
    """
    check_kernel(output_kernel, name="output_kernel")
    check_kernel(prompt_kernel, name="prompt_kernel")
    outputs, prompts = validation.check_pairs(outputs, prompts)
    _check_points(outputs, output_kernel, name="outputs")
    _check_points(prompts, prompt_kernel, name="prompts")
    return outputs, prompts


def _check_points(points: jax.Array, kernel: Kernel, *, name: str) -> None:
    """Raises where the kernel is not defined on the points; warns where it says nothing of them."""
    if not validation.is_concrete(points, kernel):
        return
    kernel.check_points(points, name=name)
    rows = points[:: -(-points.shape[0] // _PROBED_ROWS)]
    if rows.shape[0] < 2 or bool((rows == rows[:1]).all()):
        return
    smallest, largest = map(float, _off_diagonal_range(kernel, rows))
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
def _off_diagonal_range(kernel: Kernel, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    prepared = kernel.prepare(points)
    values = kernel.cross(prepared, prepared)
    diagonal = jnp.eye(points.shape[0], dtype=bool)
    smallest = jnp.min(jnp.where(diagonal, jnp.inf, values))
    return smallest, jnp.max(jnp.where(diagonal, -jnp.inf, values))


def _for_size(entropy: Entropy, points: jax.Array, *kernels: Kernel) -> Entropy:
    """The entropy with its truncation clamped to n, after the memory it needs was checked."""
    n, dimension = points.shape
    in_the_dual = len(kernels) == 1 and isinstance(kernels[0], Cosine) and dimension < n
    if entropy.needs_spectrum and not in_the_dual:
        grams.check_memory(n, points.dtype)
    return entropy.clamped(n)


@functools.partial(jax.jit, static_argnums=4)
def _decompose(
    outputs: jax.Array,
    prompts: jax.Array,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    entropy: Entropy,
) -> Decomposition:
    gram_x = grams.represent(output_kernel, outputs)
    gram_t = grams.represent(prompt_kernel, prompts)
    return Decomposition(
        *entropies.entropies(entropy, gram_x, gram_t),
        order=entropy.order,
        truncation=entropy.truncation,
        n=gram_x.n,
        dtype=np.dtype(gram_x.dtype).name,
    )


def conditional_vendi(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
) -> jax.Array:
    """exp H(X|T), the model-induced diversity (CV eq. 6; truncated, eq. 13).

    Args, Raises: as `decompose`, of which this is one score; H(X) is not computed.

    Returns:
      A scalar, the effective number of modes that the model adds, in [1, n]; a truncated score can
      fall below 1.
    """
    entropy = Entropy(order=order, truncation=truncation)
    outputs, prompts = check_inputs(outputs, prompts, output_kernel, prompt_kernel)
    entropy = _for_size(entropy, outputs, output_kernel, prompt_kernel)
    return _conditional(outputs, prompts, output_kernel, prompt_kernel, entropy)


@functools.partial(jax.jit, static_argnums=4)
def _conditional(
    outputs: jax.Array,
    prompts: jax.Array,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    entropy: Entropy,
) -> jax.Array:
    gram_x = grams.represent(output_kernel, outputs)
    gram_t = grams.represent(prompt_kernel, prompts)
    return jnp.exp(entropies.conditional(entropy, gram_x, gram_t))


def information_vendi(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
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
    ).information


def conditional_rke(
    outputs: Any, prompts: Any, *, output_kernel: Kernel, prompt_kernel: Kernel
) -> jax.Array:
    """||K_T||_F^2 / ||K_X o K_T||_F^2, `conditional_vendi` at order 2 (CV eq. 9 and 11)."""
    return conditional_vendi(
        outputs, prompts, output_kernel=output_kernel, prompt_kernel=prompt_kernel, order=2
    )


def information_rke(
    outputs: Any, prompts: Any, *, output_kernel: Kernel, prompt_kernel: Kernel
) -> jax.Array:
    """n^2 ||K_X o K_T||^2 / (||K_X||^2 ||K_T||^2), `information_vendi` at order 2 (CV eq. 11)."""
    return information_vendi(
        outputs, prompts, output_kernel=output_kernel, prompt_kernel=prompt_kernel, order=2
    )


def vendi(
    outputs: Any, *, kernel: Kernel, order: float = 1, truncation: int | None = None
) -> jax.Array:
    """exp H(X), the unconditional Vendi score (CV eq. 3).

    Args:
      outputs: embeddings `[n, d]`.
      kernel: a normalised kernel.
      order: the Renyi order in (0, inf].
      truncation: how many eigenvalues are kept; all where None.

    Returns:
      A scalar, the effective number of modes, in [1, n].

    Raises:
      TypeError, ValueError: as `decompose`.
    """
    entropy = Entropy(order=order, truncation=truncation)
    check_kernel(kernel, name="kernel")
    outputs = validation.check_embeddings(outputs, name="outputs")
    _check_points(outputs, kernel, name="outputs")
    return _vendi(outputs, kernel, _for_size(entropy, outputs, kernel))


@functools.partial(jax.jit, static_argnums=2)
def _vendi(outputs: jax.Array, kernel: Kernel, entropy: Entropy) -> jax.Array:
    return jnp.exp(entropy(grams.represent(kernel, outputs)))


def rke(outputs: Any, *, kernel: Kernel) -> jax.Array:
    """||K / n||_F^-2, the Renyi kernel entropy score: `vendi` at order 2 (CV eq. 4)."""
    return vendi(outputs, kernel=kernel, order=2)
