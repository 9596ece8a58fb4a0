"""How far a score is from what another sample would give: standard errors, and convergence in n."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import (
    Entropy,
    PerScore,
    PerTerm,
    log_scores,
    of_squared_norm,
    renyi,
    von_neumann,
)
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.grams._pairwise import Factor, Factors, Subsets
from condvendi_jax.kernels import Gaussian, Kernel
from condvendi_jax.pairs import Pairs
from condvendi_jax.scores._decompose import Decomposition, Scores
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Computed, Method

DEFAULT_GROUPS = 20
# With fewer groups there is no test. Two samples of one distribution differed at the level 5% in up
# to 15% of 1,000 trials with 2 groups of prompts (information: in all), 9% with 3, 8% with 4, and
# in at most 6% with 5 or more (three scores, orders 1 and 2, Gaussian kernels).
FEWEST_TESTED = 5


class Groups(NamedTuple):
    """Which rows leave together in a jackknife.

    Attributes:
      membership: the group of every row, `[n]`, numbered from 0.
      units: what was put into groups, in words: 'rows', 'rows of one prompt' or 'given labels'.
    """

    membership: np.ndarray
    units: str

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.membership.max()) + 1

    def one_hot(self, dtype: np.dtype) -> jax.Array:
        """`[n, g]`, one where a row is of a group and zero elsewhere."""
        return jax.nn.one_hot(self.membership, self.count, dtype=dtype)

    @property
    def fractions(self) -> np.ndarray:
        """The share of the rows that each group has, `[g]`."""
        return np.bincount(self.membership) / self.membership.size


def group_rows(
    n: int,
    groups: int | ArrayLike = DEFAULT_GROUPS,
    *,
    key: jax.Array | None = None,
    prompts: np.ndarray | None = None,
) -> Groups:
    """Puts rows into groups for a jackknife: rows of one prompt stay together.

    Several outputs of one prompt depend on each other. Groups that split them understate the error:
    at eight outputs a prompt, Information-RKE's comes out at half of the truth.

    Args:
      n: how many rows there are.
      groups: how many groups of almost equal size at most, or the label `[n]` of every row's group.
      key: puts them into groups at random; needed where `groups` is a number.
      prompts: `[n, d]`; rows that are equal there stay together. Where all are equal, or all
        different, rows are grouped one by one.

    Raises:
      TypeError, ValueError: `groups` is below 2 or above n, the labels are not n or all the same,
        or the key is missing.
    """
    if not isinstance(groups, (int, np.integer)):
        distinct, membership = validation.check_labels(groups, n, name="groups")
        if distinct.size < 2:
            raise ValueError("groups: expected at least two distinct labels, received one.")
        return Groups(membership, "given labels")
    count = validation.check_count(groups, name="groups", minimum=2)
    if count > n:
        raise ValueError(f"groups: expected at most n = {n}, received {count}.")
    validation.check_key(key)
    assert key is not None
    kinds, of_row = (n, np.arange(n)) if prompts is None else validation.distinct_rows(prompts)
    if kinds in (1, n):
        return Groups(np.asarray(jax.random.permutation(key, n)) % count, "rows")
    order = np.asarray(jax.random.permutation(key, kinds))
    sizes = np.bincount(of_row)
    # Each kind goes to the group that is smallest by then.
    smallest = [(0, group) for group in range(min(count, kinds))]
    group_of = np.zeros(kinds, int)
    for kind in order.tolist():
        filled, group = heapq.heappop(smallest)
        group_of[kind] = group
        heapq.heappush(smallest, (filled + int(sizes[kind]), group))
    return Groups(group_of[of_row], "rows of one prompt")


@validation.outside_transformations
def standard_error(
    score: Callable[..., Any],
    outputs: ArrayLike,
    prompts: ArrayLike | None = None,
    *,
    key: jax.Array | None = None,
    groups: int | ArrayLike = DEFAULT_GROUPS,
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
    rows repairs both. Rows that depend on each other leave together: those of equal prompts do by
    themselves, others where labels say so.

    The error is of the sampling noise at this n, of kernels that are given. The bias of a score
    that still grows with n is not in it (see `convergence_curve`), and neither is the choice of a
    bandwidth.

    Args:
      score: `score(outputs)` or `score(outputs, prompts)`, returning a scalar or a pytree of
        scalars, a `Decomposition` for instance. It is given arrays of the compute dtype; what lies
        so far from the origin that the cast would blur it comes as it was passed.
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

    Examples:
      Of a mean it is s / sqrt(n):

      >>> import jax, numpy as np
      >>> import jax.numpy as jnp
      >>> import condvendi_jax as cv
      >>> values = np.arange(16, dtype=np.float32)[:, None]
      >>> print(f"{cv.standard_error(jnp.mean, values, key=jax.random.key(0), groups=16):.4f}")
      1.1902
      >>> print(f"{values.std(ddof=1) / 4:.4f}")
      1.1902
    """
    if not callable(score):
        raise TypeError(f"score: expected a function of the arrays, received {score!r}.")
    named = {"outputs": outputs} | ({} if prompts is None else {"prompts": prompts})
    given = {name: validation.as_array(array, name=name) for name, array in named.items()}
    blurred = {n: np.asarray(a[:1]) for n, a in given.items() if validation.is_blurred(a)}
    checked = dict(zip(given, validation.check_arrays(given, origins={**blurred}), strict=True))
    arrays = [given[name] if name in blurred else array for name, array in checked.items()]
    n = arrays[0].shape[0]
    if n == 1:
        return _undefined(score(*arrays))
    together = None if prompts is None else np.asarray(arrays[1])
    chosen = group_rows(n, groups, key=key, prompts=together)
    everything, structure = jax.tree.flatten(score(*arrays))
    kept = [np.flatnonzero(chosen.membership != group) for group in range(chosen.count)]
    # By leaves: a result may record its n, which differs between the deletions.
    deleted = [jax.tree.leaves(score(*(array[rows] for array in arrays))) for rows in kept]
    errors = [
        _jackknife(whole, jnp.stack(parts), chosen.fractions)
        for whole, *parts in zip(everything, *deleted, strict=True)
    ]
    return jax.tree.unflatten(structure, errors)


def _undefined(like: Any) -> Any:
    validation.warn("a standard error needs at least two rows: it is NaN for n = 1.")
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), like)


def undefined_errors(points: Pairs) -> PerScore:
    """NaN, with a warning: the errors of the scores of so few points that none can be left out."""
    validation.warn(
        f"the standard error of a score needs at least three rows: it is NaN for n = {points.n}."
    )
    return PerScore(*jnp.full((3,), jnp.nan, points.dtype))


def influences(whole: jax.Array, deleted: jax.Array, fractions: np.ndarray) -> jax.Array:
    """What each group does to a score, `[g]`; the jackknife error is their root mean square.

    The error of a difference of two scores is that of the differences of their influences, where
    both were computed without the same groups.

    Args:
      whole: the score of all rows.
      deleted: `[g]`, without each group.
      fractions: `[g]`, the shares of the rows that the groups have.
    """
    h = jnp.asarray(1 / fractions, deleted.dtype)
    pseudo = h * whole - (h - 1) * deleted
    estimate = h.shape[0] * whole - jnp.sum((1 - 1 / h) * deleted)
    return (pseudo - estimate) / jnp.sqrt(h - 1)


def _jackknife(whole: jax.Array, deleted: jax.Array, fractions: np.ndarray) -> jax.Array:
    """The delete-m_j jackknife error of `whole` from `deleted` `[g]`, groups of given fractions."""
    return jnp.sqrt(jnp.mean(jnp.square(influences(whole, deleted, fractions))))


class Deletions(NamedTuple):
    """The scores of all rows, and without each of g groups.

    Attributes:
      whole: scalars.
      deleted: `[g]` each.
      groups: the groups.
      decomposition: of all rows by the method; None where a pass over the pairs gives everything.
      defined: False where a deletion leaves the rows of a single prompt: influences and errors of
        conditional and information are NaN.
    """

    whole: PerScore
    deleted: PerScore
    groups: Groups
    decomposition: Decomposition | None = None
    defined: bool = True

    @property
    def intervals(self) -> PerScore | None:
        """(low, high) of each score of all rows where it is estimated, None where exact."""
        if self.decomposition is None or self.decomposition.estimation is None:
            return None
        return self.decomposition.intervals

    def influences(self) -> PerScore:
        """What each group does to each score, `[g]` each: see `influences`."""
        found = _influences(self.whole, self.deleted, self.groups.fractions)
        if self.defined:
            return found
        undefined = jnp.full_like(found.vendi, jnp.nan)
        return found._replace(conditional=undefined, information=undefined)

    def errors(self) -> PerScore:
        """The delete-group jackknife errors."""
        return _root_mean_squares(self.influences())


@jax.jit
def _influences(whole: PerScore, deleted: PerScore, fractions: np.ndarray) -> PerScore:
    return jax.tree.map(lambda w, d: influences(w, d, fractions), whole, deleted)


@jax.jit
def _root_mean_squares(values: PerScore) -> PerScore:
    return jax.tree.map(lambda value: jnp.sqrt(jnp.mean(jnp.square(value))), values)


@validation.outside_transformations
def decomposition_errors(
    outputs: ArrayLike,
    prompts: ArrayLike | None = None,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel | None = None,
    order: float = 1,
    truncation: int | None = None,
    method: Method = AUTO,
    key: jax.Array | None = None,
    groups: int | ArrayLike = DEFAULT_GROUPS,
    progress: Callable[[], Any] = lambda: None,
) -> PerScore:
    """`standard_error` of all three scores of `decompose`.

    At order 2 all deletions come out of one pass over the pairs: the squared norm without a group
    is the whole less what the pairs with a member in that group contribute. At other orders it
    takes one spectrum a group, by the method: where it estimates, the estimates' own noise is in
    the error as well, which it can only enlarge, and a warning says where it is most of it.

    Args:
      outputs, prompts, output_kernel, prompt_kernel, order, truncation, method: as `decompose`.
      key, groups: as `standard_error`.
      progress: called after each evaluation of the scores.

    Returns:
      The standard errors of vendi, conditional and information, in effective numbers of modes.

    Raises:
      TypeError, ValueError: as `decompose` and `standard_error`.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
      >>> options = dict(output_kernel=cv.Gaussian(1.0), order=2)
      >>> error = cv.decomposition_errors(outputs, **options, key=jax.random.key(0)).vendi
      >>> print(f"{cv.decompose(outputs, **options).vendi:.2f} +- {error:.2f}")
      4.84 +- 0.25
    """
    entropy = Entropy(order=order, truncation=truncation)
    points = Pairs(
        outputs, prompts, output_kernel=output_kernel, prompt_kernel=prompt_kernel
    ).gathered()
    entropy = entropy.clamped(points.n)
    if points.n <= 2:
        # Without one of two rows every score is 1, whatever they are.
        return undefined_errors(points)
    together = np.asarray(points.arrays[1]) if points.paired else None
    chosen = group_rows(points.n, groups, key=key, prompts=together)
    return delete_groups(points, entropy, chosen, method=method, progress=progress).errors()


def delete_groups(
    points: Pairs,
    entropy: Entropy,
    groups: Groups,
    *,
    method: Method = AUTO,
    progress: Callable[[], Any] = lambda: None,
) -> Deletions:
    """The scores of all points, and without each group: what a jackknife is made of.

    Args:
      points: on one device.
      entropy: of a truncation up to n.
      groups: as `group_rows` gives them.
      method: how eigenvalues are computed.
      progress: called after each evaluation of the scores.

    Raises:
      TypeError, ValueError: the method cannot be used on these points.
    """
    defined = not _leaves_one_prompt(points, groups)
    if not methods.check_method(method).computes(entropy):
        whole, deleted = _order_two_deletions(points, groups.one_hot(points.dtype))
        progress()
        return Deletions(whole, deleted, groups, defined=defined)
    kept = [groups.membership != group for group in range(groups.count)]
    everything, found = methods.compute_deletions(points, entropy, kept, method, progress)
    if not method.approximates:
        _warn_of_noise(found)
    whole = Decomposition.of(everything, entropy, n=points.n)
    return Deletions(
        whole.scores,
        _scores_of_all([computed.values for computed in found]),
        groups,
        whole,
        defined,
    )


def _leaves_one_prompt(points: Pairs, groups: Groups) -> bool:
    """Whether prompts differ, and without some group they do not; says so in a warning.

    Of a single prompt information is 1 and conditional is vendi, whatever the outputs.
    """
    if not points.paired:
        return False
    kinds, of_row = validation.distinct_rows(np.asarray(points.arrays[1]))
    for group in range(groups.count if kinds > 1 else 0):
        rest = of_row[groups.membership != group]
        if (rest == rest[0]).all():
            validation.warn(
                f"prompts: {kinds} distinct prompts in {groups.count} groups give no standard "
                "errors of conditional and information: without one of the groups all rows have "
                "the same prompt. Use at least three prompts, and groups whose prompts differ."
            )
            return True
    return False


def bandwidth_errors(
    points: Pairs,
    entropy: Entropy,
    groups: Groups,
    whole: PerScore,
    relative_errors: Sequence[float | None],
    *,
    method: Method = AUTO,
) -> PerScore | None:
    """How far the noise of the bandwidths moves the scores.

    To first order: each bandwidth is moved by its error, and the changes add up as independent ones
    do.

    Args:
      points, entropy, groups, method: as `delete_groups`, whose compiled programs serve here too.
      whole: the scores at the bandwidths of the points.
      relative_errors: of the bandwidth of each kernel, None where it has none.

    Returns:
      The standard deviations of the scores, or None where no bandwidth has an error.
    """
    squares = []
    for index, error in enumerate(relative_errors):
        if error is None:
            continue
        kernel = points.kernels[index]
        assert isinstance(kernel, Gaussian)  # No other has a bandwidth to choose.
        moved = points.at_bandwidth(index, float(kernel.bandwidth) * (1 + error))
        if methods.check_method(method).computes(entropy):
            computed, _ = methods.compute_deletions(moved, entropy, (), method, lambda: None)
            scores = Decomposition.of(computed, entropy, n=points.n).scores
        else:
            scores, _ = _order_two_deletions(moved, groups.one_hot(points.dtype))
        squares.append([float(a - b) ** 2 for a, b in zip(scores, whole, strict=True)])
    if not squares:
        return None
    return PerScore(*(math.sqrt(sum(of_score)) for of_score in zip(*squares, strict=True)))


@jax.jit
def _scores_of_all(turns: list[PerTerm]) -> PerScore:
    """The scores of every turn, `[turns]` each: one program for what would be many small ones."""
    return PerScore(*map(jnp.stack, zip(*map(_scores_of, turns), strict=True)))


def _scores_of(values: PerTerm) -> PerScore:
    """The scores of entropies, of pairs or of outputs alone."""
    if values.prompts is None:
        values = PerTerm(values.outputs, jnp.zeros_like(values.outputs), values.outputs)
    return PerScore(*map(jnp.exp, log_scores(*values)))


def _warn_of_noise(deletions: Sequence[Computed]) -> None:
    """Says so where a jackknife error is mostly that of the estimates that it is made of."""
    if deletions[0].estimates is None:
        return
    logs = [log_scores(*computed.estimates) for computed in deletions if computed.estimates]
    for name, estimates in zip(PerScore._fields, zip(*logs, strict=True), strict=True):
        if estimates[0] is None:
            continue
        variance = np.var([estimate.value for estimate in estimates], ddof=1)
        noise = np.mean([estimate.standard_error**2 for estimate in estimates])
        if noise > variance / 2:
            validation.warn(
                f"the standard error of {name} is mostly that of the estimated spectra: a smaller "
                "rtol gives a smaller one."
            )


@jax.jit
def _order_two_deletions(points: Pairs, one_hot: jax.Array) -> tuple[PerScore, PerScore]:
    """The order-2 scores of all rows, and `[g]` of them without each group."""
    norms = pairwise.group_norms(*_factors(points), one_hot)
    sizes = jnp.sum(one_hot, axis=0)
    n = jnp.sum(sizes)
    total = jnp.sum(norms, axis=(1, 2))
    inside = jnp.diagonal(norms, axis1=1, axis2=2)
    without = total[:, None] - 2 * jnp.sum(norms, axis=2) + inside
    left = (n - sizes)[None]
    return _order_two_scores(total / n / n), _order_two_scores(without / left / left)


def _order_two_scores(norms: jax.Array) -> PerScore:
    """CV eq. 4 and 11 from the squared norms of K_X / n and, with prompts, K_T and the pairs."""
    return _scores_of(_order_two_entropies(norms))


def _order_two_entropies(norms: jax.Array) -> PerTerm:
    missing = (None,) * (3 - norms.shape[0])
    return PerTerm(*map(of_squared_norm, norms), *missing)


def _factors(points: Pairs) -> tuple[Factors, Subsets]:
    """The factors of all points, and those of X and, with prompts, of T and of the pairs."""
    pairs = zip(points.kernels, points.arrays, strict=True)
    factors = tuple(Factor(kernel, kernel.prepare(array)) for kernel, array in pairs)
    return factors, ((0,), (1,), (0, 1)) if points.paired else ((0,),)


@dataclasses.dataclass(frozen=True)
class ConvergenceCurve(Scores):
    """The scores of the first n' pairs against n': every field of a `Decomposition` along sizes.

    Attributes:
      sizes: the n', `m` of them, ascending.
      entropy_outputs: H(X) in nats, `[m]`.
      entropy_prompts: H(T) in nats, `[m]`.
      entropy_joint: H(X, T) in nats, `[m]`.
      intervals: the ends (low, high) of each score's interval at 95%, `[2, m]`, as far as estimates
        go; equal where all eigenvalues were taken.
      standard_errors: of the estimates, `[m]` each; zero where exact.
      methods: how each size was computed.
      order: the order of all entropies.
      truncation: how many eigenvalues they keep, all of them at smaller sizes; or None.
      dtype: the name of the dtype they were computed in.
    """

    sizes: tuple[int, ...]
    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    intervals: PerScore
    standard_errors: PerScore
    methods: tuple[str, ...]
    order: float
    truncation: int | None
    dtype: str


@validation.outside_transformations
def convergence_curve(
    outputs: ArrayLike,
    prompts: ArrayLike | None,
    sizes: Sequence[int],
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel | None = None,
    entropies: Sequence[Entropy] = (von_neumann, renyi(2)),
    method: Method = AUTO,
    progress: Callable[[], Any] = lambda: None,
) -> list[ConvergenceCurve]:
    """The scores of the first n' pairs, for every size n' (CV figs 2, 3 and 19).

    Order 2 is one pass over the largest size, whatever the number of sizes; every other entropy
    shares one set of spectra a size. Shuffle the rows first: a prefix must be a random sample.

    Args:
      outputs, prompts, output_kernel, prompt_kernel: as `decompose`.
      sizes: the n', ascending, between 1 and n.
      entropies: what is computed. A truncation above a size keeps all its eigenvalues.
      method: as `decompose`, size by size: with a key, `Auto` estimates the larger ones.
      progress: called after each size.

    Returns:
      A curve for each entropy.

    Raises:
      TypeError, ValueError: as `decompose`, or a size is not in range or not ascending.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.tile(np.arange(4, dtype=np.float32), 25)[:, None]
      >>> (curve,) = cv.convergence_curve(
      ...     outputs, None, [2, 4, 100], output_kernel=cv.Gaussian(0.1), entropies=[cv.renyi(2)]
      ... )
      >>> print(curve.vendi.round(2))
      [2. 4. 4.]
    """
    points = Pairs(
        outputs, prompts, output_kernel=output_kernel, prompt_kernel=prompt_kernel
    ).gathered()
    sizes = tuple(validation.check_count(size, name="sizes", minimum=1) for size in sizes)
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[-1] > points.n:
        raise ValueError(
            f"sizes: expected ascending numbers up to n = {points.n}, received {sizes}."
        )
    for entropy in entropies:
        if not isinstance(entropy, Entropy):
            raise TypeError(
                f"entropies: expected such as cv.von_neumann or cv.renyi(2), received {entropy!r}."
            )
    of_method = [methods.check_method(method).computes(entropy) for entropy in entropies]
    spectral = tuple(e for e, own in zip(entropies, of_method, strict=True) if own)
    if spectral:
        # For the largest size first: what is refused is refused before anything is computed.
        methods.check(points.rows(slice(sizes[-1])), method)
    prefix = None
    if len(spectral) < len(entropies):
        prefix = _prefix_entropies(points.rows(slice(sizes[-1])))
    curves: list[list[Decomposition]] = [[] for _ in entropies]
    for size in sizes:
        fitted = [entropy.fitted(size) for entropy in spectral]
        found = iter(methods.compute(points.rows(slice(size)), fitted, method) if spectral else ())
        for entropy, curve, own in zip(entropies, curves, of_method, strict=True):
            if own:
                computed = next(found)
            else:
                assert prefix is not None
                values = jax.tree.map(lambda all_sizes, size=size: all_sizes[size - 1], prefix)
                computed = Computed(values, None, methods.FROBENIUS)
            curve.append(Decomposition.of(computed, entropy, n=size))
        progress()
    return [_along(curve) for curve in curves]


def _along(curve: Sequence[Decomposition]) -> ConvergenceCurve:
    """The decompositions of all sizes as one curve."""
    first = curve[0]
    exact = PerScore(0.0, 0.0, 0.0)
    errors = [found.estimation.standard_errors if found.estimation else exact for found in curve]
    ends = [jax.tree.map(float, found.intervals) for found in curve]
    return ConvergenceCurve(
        sizes=tuple(found.n for found in curve),
        **{
            name: jnp.stack([getattr(found, name) for found in curve])
            for name in ("entropy_outputs", "entropy_prompts", "entropy_joint")
        },
        intervals=PerScore(*(np.array(of_score).T for of_score in zip(*ends, strict=True))),
        standard_errors=PerScore(*(np.array(of_score) for of_score in zip(*errors, strict=True))),
        methods=tuple(found.method for found in curve),
        order=first.order,
        truncation=first.truncation,
        dtype=first.dtype,
    )


@jax.jit
def _prefix_entropies(points: Pairs) -> PerTerm:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[n]` each."""
    return _order_two_entropies(pairwise.prefix_norms(*_factors(points)))


def settled_from(sizes: Sequence[int], values: ArrayLike, *, tolerance: float) -> int | None:
    """The smallest size from which a curve stays within a relative tolerance of its last value.

    Args:
      sizes: `[m]`, ascending.
      values: the score at every size, `[m]`.
      tolerance: relative, 0.02 for two per cent.

    Returns:
      The size, or None where only the last point itself is that near.

    Examples:
      >>> import condvendi_jax as cv
      >>> cv.inference.settled_from([100, 200, 400, 800], [3.0, 3.9, 4.01, 4.0], tolerance=0.03)
      200
    """
    values = np.asarray(values, np.float64)
    if values.shape != np.shape(sizes) or values.ndim != 1 or not values.size:
        raise ValueError(
            f"values: expected one for each of {len(sizes)} sizes, received shape {values.shape}."
        )
    near = np.abs(values / values[-1] - 1) <= tolerance
    first = len(near) - int(np.argmin(near[::-1])) if not near.all() else 0
    if not math.isfinite(values[-1]) or first >= len(near) - 1:
        return None
    return int(sizes[first])
