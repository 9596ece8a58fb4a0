"""How far a score is from what another sample would give: standard errors, and convergence in n."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax import grams, scores, tiles, validation
from condvendi_jax.entropies import Entropy, PerScore, log_scores, renyi, von_neumann
from condvendi_jax.kernels import Kernel
from condvendi_jax.scores import Decomposition, Estimation

DEFAULT_GROUPS = 20


def standard_error(
    score: Callable[..., Any],
    outputs: Any,
    prompts: Any = None,
    *,
    key: jax.Array | None = None,
    groups: int | Any = DEFAULT_GROUPS,
) -> Any:
    """The delete-group jackknife standard error of any score.

    Rows are split into groups, the score is computed without each group in turn, and the spread
    of the results gives the error (the delete-m_j jackknife of Busing, Meijer and van der Leeden,
    1999, which for equal groups is the usual (g - 1)/g sum (theta_j - mean)^2).

    Why not the bootstrap: it draws rows with replacement, and a row drawn twice is a duplicate, a
    pair of similarity one that the sample does not have. Duplicates lower diversity, so every
    replicate is too low (at n = 300 by 12% for RKE and 21% for Vendi). Deleting keeps the rows
    distinct. Why groups: leaving out single rows takes n evaluations, and for scores that are not
    smooth in one row, such as truncated spectra, its errors are inconsistent; deleting a block of
    rows repairs both. Where rows depend on each other, several outputs of one prompt say, give
    labels, so that dependent rows leave together.

    The error is of the sampling noise at this n. The bias of a score that still grows with n is
    not in it: see `convergence_curve`.

    Args:
      score: `score(outputs)` or `score(outputs, prompts)`, returning a scalar or a pytree of
        scalars, a `Decomposition` for instance.
      outputs: embeddings `[n, d_x]`.
      prompts: embeddings `[n, d_t]`, or None for a score of the outputs alone.
      key: assigns rows to groups at random; needed where `groups` is a number.
      groups: how many groups of (almost) equal size, or the label `[n]` of every row's group.

    Returns:
      The standard errors, in the structure and units of what `score` returns. NaN, with a
      warning, where n = 1.

    Raises:
      TypeError, ValueError: the arrays are not valid or do not pair up, `groups` is below 2 or
        above n, the labels are not n or all the same, or `key` is missing.
    """
    if prompts is None:
        arrays = (validation.check_embeddings(outputs, name="outputs"),)
    else:
        arrays = validation.check_pairs(outputs, prompts)
    n = arrays[0].shape[0]
    if n == 1:
        return _undefined(score(*arrays))
    membership = _membership(n, groups, key)
    everything, structure = jax.tree.flatten(score(*arrays))
    kept = [np.flatnonzero(membership != group) for group in range(membership.max() + 1)]
    # By leaves: a result may record its n, which differs between the deletions.
    deleted = [jax.tree.leaves(score(*(array[rows] for array in arrays))) for rows in kept]
    fractions = 1 - np.array([rows.size for rows in kept]) / n
    errors = [
        _jackknife(whole, jnp.stack(parts), fractions)
        for whole, *parts in zip(everything, *deleted, strict=True)
    ]
    return jax.tree.unflatten(structure, errors)


def _undefined(like: Any) -> Any:
    warnings.warn("a standard error needs at least two rows: it is NaN for n = 1.", stacklevel=3)
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), like)


def _membership(n: int, groups: int | Any, key: jax.Array | None) -> np.ndarray:
    """The group of every row, `[n]`, numbered from 0."""
    if not isinstance(groups, (int, np.integer)):
        labels = np.asarray(groups)
        if labels.shape != (n,):
            raise ValueError(f"groups: expected {n} labels, received shape {labels.shape}.")
        distinct, membership = np.unique(labels, return_inverse=True)
        if distinct.size < 2:
            raise ValueError("groups: expected at least two distinct labels, received one.")
        return membership
    groups = validation.check_count(groups, name="groups", minimum=2)
    if groups > n:
        raise ValueError(f"groups: expected at most n = {n}, received {groups}.")
    if key is None:
        raise ValueError("key: expected a random key, to assign the rows to groups.")
    return np.asarray(jax.random.permutation(key, n)) % groups


def _jackknife(whole: jax.Array, deleted: jax.Array, fractions: np.ndarray) -> jax.Array:
    """The delete-m_j jackknife error of `whole` from `deleted` `[g]`, groups of given fractions."""
    h = jnp.asarray(1 / fractions, deleted.dtype)
    pseudo = h * whole - (h - 1) * deleted
    estimate = h.shape[0] * whole - jnp.sum((1 - 1 / h) * deleted)
    return jnp.sqrt(jnp.mean(jnp.square(pseudo - estimate) / (h - 1)))


def decomposition_errors(
    outputs: Any,
    prompts: Any,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    key: jax.Array | None = None,
    groups: int | Any = DEFAULT_GROUPS,
    progress: Callable[[], Any] = lambda: None,
) -> PerScore:
    """`standard_error` of all three scores of `decompose`.

    At order 2 all deletions come out of one pass over the pairs: the squared norm without a group
    is the whole less what the pairs with a member in that group contribute. At other orders it
    takes one decomposition a group, with all eigenvalues: an estimated spectrum would put its own
    noise into the differences that the error is made of.

    Args:
      outputs, prompts, output_kernel, prompt_kernel, order, truncation: as `decompose`.
      key, groups: as `standard_error`.
      progress: called after each evaluation of the scores.

    Returns:
      The standard errors of vendi, conditional and information.

    Raises:
      TypeError, ValueError: as `decompose` and `standard_error`.
    """
    kernels: dict[str, Any] = {"output_kernel": output_kernel, "prompt_kernel": prompt_kernel}
    entropy = Entropy(order=order, truncation=truncation)
    if entropy.needs_spectrum:
        entropy.clamped(np.shape(outputs)[0])
        with warnings.catch_warnings():
            # Said once, above; and a truncation just below n exceeds the rows of a deletion.
            warnings.filterwarnings("ignore", message="truncation .* exceeds n")

            def score(outputs: jax.Array, prompts: jax.Array) -> PerScore:
                result = _three_scores(
                    scores.decompose(
                        outputs,
                        prompts,
                        **kernels,
                        order=order,
                        truncation=truncation,
                        method="exact",
                    )
                )
                progress()
                return result

            return standard_error(score, outputs, prompts, key=key, groups=groups)
    outputs, prompts = scores.check_inputs(outputs, prompts, output_kernel, prompt_kernel)
    n = outputs.shape[0]
    if n == 1:
        return _undefined(PerScore(*jnp.ones((3,), outputs.dtype)))
    membership = _membership(n, groups, key)
    one_hot = jax.nn.one_hot(membership, membership.max() + 1, dtype=outputs.dtype)
    whole, deleted = _order_two_deletions(outputs, prompts, output_kernel, prompt_kernel, one_hot)
    progress()
    fractions = np.bincount(membership) / n
    return jax.tree.map(lambda w, d: _jackknife(w, d, fractions), whole, deleted)


def _three_scores(result: Decomposition) -> PerScore:
    return PerScore(result.vendi, result.conditional, result.information)


@jax.jit
def _order_two_deletions(
    outputs: jax.Array,
    prompts: jax.Array,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    one_hot: jax.Array,
) -> tuple[PerScore, PerScore]:
    """The order-2 scores of all rows, and `[g]` of them without each group."""
    factors_x = grams.TiledGram.from_points(output_kernel, outputs).factors()
    factors_t = grams.TiledGram.from_points(prompt_kernel, prompts).factors()
    norms = tiles.group_norms(
        factors_x + factors_t,
        ((0,), (1,), (0, 1)),
        one_hot,
        tile_size=tiles.default_tile_size(),
    )
    sizes = jnp.sum(one_hot, axis=0)
    n = jnp.sum(sizes)
    total = jnp.sum(norms, axis=(1, 2))
    inside = jnp.diagonal(norms, axis1=1, axis2=2)
    without = total[:, None] - 2 * jnp.sum(norms, axis=2) + inside
    return _order_two_scores(total, n), _order_two_scores(without, n - sizes)


def _order_two_scores(norms: jax.Array, n: jax.Array) -> PerScore:
    """CV eq. 4 and 11 from the squared norms of K_X, K_T and their product, not over n^2."""
    of_x, of_t, joint = norms / jnp.square(n)[None] if norms.ndim > 1 else norms / jnp.square(n)
    return PerScore(1 / of_x, of_t / joint, joint / (of_x * of_t))


def convergence_curve(
    outputs: Any,
    prompts: Any,
    sizes: Sequence[int],
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    entropies: Sequence[Entropy] = (von_neumann, renyi(2)),
    method: str = "auto",
    key: jax.Array | None = None,
    rtol: float | None = None,
    progress: Callable[[], Any] = lambda: None,
) -> list[Decomposition]:
    """The scores of the first n' pairs, for every size n' (CV figs 2, 3 and 19).

    Order 2 is one pass over the largest size, whatever the number of sizes; every other entropy
    shares one set of spectra a size. Shuffle the rows first: a prefix must be a random sample.

    Args:
      outputs, prompts, output_kernel, prompt_kernel: as `decompose`.
      sizes: the n', ascending, between 1 and n.
      entropies: what is computed. A truncation above a size keeps all its eigenvalues.
      method, key, rtol: as `decompose`, size by size: with a key, the larger ones are estimated.
      progress: called after each size.

    Returns:
      For each entropy a `Decomposition` whose entropies are arrays `[len(sizes)]`, whose n and
      method are tuples with an entry for each size, and whose standard errors and ends of
      intervals, where any size was estimated, are arrays too, zero wide where one was exact.

    Raises:
      TypeError, ValueError: as `decompose`, or a size is not in range or not ascending.
    """
    outputs, prompts = scores.check_inputs(outputs, prompts, output_kernel, prompt_kernel)
    sizes = tuple(validation.check_count(size, name="sizes", minimum=1) for size in sizes)
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[-1] > outputs.shape[0]:
        raise ValueError(
            f"sizes: expected ascending numbers up to n = {outputs.shape[0]}, received {sizes}."
        )
    spectral = tuple(entropy for entropy in entropies if entropy.needs_spectrum)
    kernels = (output_kernel, prompt_kernel)
    # Chosen for all sizes first: what is refused is refused before anything is computed.
    methods = [
        scores.choose_method(method, spectral, (outputs[:size], prompts[:size]), kernels, key=key)
        for size in sizes
    ]
    curves: list[_Curve] = [[] for _ in entropies]
    prefix = jnp.zeros((3, 0))
    if len(spectral) < len(entropies):
        largest = (outputs[: sizes[-1]], prompts[: sizes[-1]])
        prefix = _prefix_entropies(*largest, output_kernel, prompt_kernel)
    for size, chosen in zip(sizes, methods, strict=True):
        found: Iterator[_Point] = iter(())
        if spectral:
            found = iter(
                scores.entropies_of_pairs(
                    (outputs[:size], prompts[:size]),
                    kernels,
                    tuple(_fitted(entropy, size) for entropy in spectral),
                    chosen,
                    key=key,
                    rtol=rtol,
                )
            )
        for entropy, curve in zip(entropies, curves, strict=True):
            curve.append(next(found) if entropy.needs_spectrum else (prefix[:, size - 1], None))
        progress()
    return [
        Decomposition(
            *jnp.stack([jnp.stack(values) for values, _ in curve], axis=1),
            order=entropy.order,
            truncation=entropy.truncation,
            n=sizes,
            dtype=np.dtype(outputs.dtype).name,
            method=tuple(methods) if entropy.needs_spectrum else ("frobenius",) * len(sizes),
            estimation=_along(curve),
        )
        for entropy, curve in zip(entropies, curves, strict=True)
    ]


_Point = tuple[Any, Estimation | None]
_Curve = list[_Point]


def _along(curve: _Curve) -> Estimation | None:
    """The estimations of all sizes as one of arrays; exact sizes have no error."""
    if all(estimation is None for _, estimation in curve):
        return None
    filled = [
        _exactly(values) if estimation is None else estimation for values, estimation in curve
    ]
    return jax.tree.map(lambda *leaves: np.array(leaves), *filled)


def _exactly(entropies: Sequence[jax.Array]) -> Estimation:
    values = PerScore(*map(math.exp, log_scores(*map(float, entropies))))
    return Estimation(PerScore(0.0, 0.0, 0.0), PerScore(*((value, value) for value in values)))


def _fitted(entropy: Entropy, n: int) -> Entropy:
    """The entropy with a truncation of at most n; on a curve that is expected, not a warning."""
    if entropy.truncation is None:
        return entropy
    return Entropy(order=entropy.order, truncation=min(entropy.truncation, n))


@jax.jit
def _prefix_entropies(
    outputs: jax.Array, prompts: jax.Array, output_kernel: Kernel, prompt_kernel: Kernel
) -> jax.Array:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[3, n]`."""
    factors = (
        tiles.Factor(output_kernel, output_kernel.prepare(outputs)),
        tiles.Factor(prompt_kernel, prompt_kernel.prepare(prompts)),
    )
    norms = tiles.prefix_norms(factors, ((0,), (1,), (0, 1)), tile_size=tiles.default_tile_size())
    return jnp.maximum(-jnp.log(norms), 0)


def settled_from(sizes: Sequence[int], values: Any, *, tolerance: float) -> int | None:
    """The smallest size from which a curve stays within a relative tolerance of its last value.

    Args:
      sizes: `[m]`, ascending.
      values: the score at every size, `[m]`.
      tolerance: relative, 0.02 for two per cent.

    Returns:
      The size, or None where only the last point itself is that near.
    """
    values = np.asarray(values, np.float64)
    near = np.abs(values / values[-1] - 1) <= tolerance
    first = len(near) - int(np.argmin(near[::-1])) if not near.all() else 0
    if not math.isfinite(values[-1]) or first >= len(near) - 1:
        return None
    return int(sizes[first])
