"""Standard errors of scores by the delete-group jackknife."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, log_scores, of_pairs
from condvendi_jax.inference import saturation
from condvendi_jax.inference._results import ErrorsBy, ScoredOrder
from condvendi_jax.pairs import Pairs, distinct_prompts
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Deleted, Method

# A choice: at other orders each group costs a spectrum.
DEFAULT_GROUPS = 20
# With fewer groups there is no test. Two samples of one distribution differed at the level 5% in up
# to 15% of 1,000 trials with 2 groups of prompts (information: in all), 9% with 3, 8% with 4, and
# in at most 6% with 5 or more (three scores, orders 1 and 2, Gaussian kernels).
FEWEST_TESTED = 5
# Below this number of rows a deletion leaves a single row, and every score of it is 1.
FEWEST_ROWS = 3


class Groups(NamedTuple):
    """Which rows leave together in a jackknife."""

    membership: np.ndarray  # The group of every row, `[n]`, numbered from 0.
    units: str  # In words: 'rows', 'rows of one prompt' or 'given labels'.
    of_all: int = 0  # The number of groups of all models together, where some lack one.

    @property
    def count(self) -> int:
        """The number of groups."""
        return max(self.of_all, int(self.membership.max()) + 1)

    @property
    def present(self) -> int:
        """The number of groups that have a row."""
        return np.unique(self.membership).size

    @property
    def fractions(self) -> np.ndarray:
        """The share of the rows that each group has, `[g]`."""
        return np.bincount(self.membership, minlength=self.count) / self.membership.size

    def shares(self, pairs: Pairs) -> np.ndarray:
        """The share of the weight of the rows that each group has, `[g]`."""
        if pairs.weights is None:
            return self.fractions
        return np.bincount(self.membership, pairs.shares, self.count)


def group_rows(
    n: int,
    groups: int | ArrayLike = DEFAULT_GROUPS,
    *,
    key: jax.Array | None = None,
    kinds: np.ndarray | None = None,
) -> Groups:
    """Puts rows into groups for a jackknife: rows of one prompt stay together.

    Several outputs of one prompt depend on each other. Groups that split them understate the error:
    with eight outputs of each prompt, that of Information-RKE is half of the truth. Where `kinds`
    (as `Pairs.prompt_kinds`) are all equal, or all differ, rows are grouped one by one.
    """
    if not isinstance(groups, (int, np.integer)):
        return _labelled(validation.check_labels(groups, n, name="groups")[1])
    count = validation.check_count(groups, name="groups", minimum=2)
    if count > n:
        raise ValueError(f"groups: expected at most n = {n}, received {count}.")
    kinds = np.zeros(n, int) if kinds is None else kinds
    return _deal(count, validation.check_key(key), kinds, np.ones(n, int))


def _deal(count: int | None, key: jax.Array, kinds: np.ndarray, numbers: np.ndarray) -> Groups:
    """`group_rows` of a number of groups; each row, or each prompt, by itself where None.

    A row counts as many as `numbers` `[n]` say: copies of one prompt are rows of one prompt.
    """
    n, sizes = len(kinds), np.bincount(kinds, numbers)
    repeated = numbers.dtype.kind in "iu" and numbers.max() > 1
    alone = sizes.size == 1 or (sizes.size == n and not repeated)
    if count is None:
        return Groups(np.arange(n), "rows") if alone else Groups(kinds, "rows of one prompt")
    if alone:
        return Groups(np.asarray(jax.random.permutation(key, n)) % count, "rows")
    # Each prompt goes to the group that has the fewest rows by then.
    smallest = [(0.0, group) for group in range(min(count, sizes.size))]
    group_of = np.zeros(sizes.size, int)
    for kind in np.asarray(jax.random.permutation(key, sizes.size)).tolist():
        filled, group = heapq.heappop(smallest)
        group_of[kind] = group
        heapq.heappush(smallest, (filled + float(sizes[kind]), group))
    return Groups(group_of[kinds], "rows of one prompt")


def _numbers(pairs: Pairs) -> np.ndarray:
    """How many rows each row counts as, `[n]`: integers, or relative to the mean."""
    if pairs.weights is None:
        return np.ones(pairs.n, int)
    return pairs.n * pairs.shares if pairs.copies is None else pairs.copies


def _labelled(membership: np.ndarray) -> Groups:
    """Groups of the rows of each label, by its number."""
    if not membership.any():
        raise ValueError("groups: expected at least two distinct labels, received one.")
    return Groups(membership, "given labels")


def group_models(
    models: Mapping[str, Pairs], count: int | None, *, key: jax.Array, shared: bool = True
) -> tuple[dict[str, Groups], str]:
    """The groups of each model, and how models are matched: 'rows', 'prompts', 'labels', 'none'.

    At most `count` groups, unless rows share labels; where it is None, every row, or all rows of a
    prompt, are a group. `shared` says whether all models have the same prompts row by row.
    Raises ValueError where all rows of a model have one label.
    """
    first = next(iter(models.values()))
    if count is not None:
        count = min(count, *(pairs.n for pairs in models.values()))
    if first.groups is not None:
        labels = [pairs.groups for pairs in models.values() if pairs.groups is not None]
        # Rows of weight zero may have taken a label with them.
        of_row = np.unique(np.concatenate(labels), return_inverse=True)[1]
        together = _labelled(of_row)
        totals = [pairs.total for pairs in models.values()]
        if [np.unique(own).size for own in labels] == totals:  # Every row has its own.
            together = _deal(count, key, of_row, np.ones(of_row.size, int))._replace(units="rows")
        split = _split(together, models)
        for name, own in split.items():
            if own.present < 2:
                raise ValueError(
                    f"{name}: groups: expected two distinct labels or more, received one."
                )
        return split, "labels"
    if len(models) == 1:
        dealt = _deal(count, key, first.prompt_kinds[1], _numbers(first))
        return dict.fromkeys(models, dealt), "none"
    kinds, of_row = distinct_prompts([*models.values()])
    own_kinds = {name: pairs.prompt_kinds[0] for name, pairs in models.items()}
    numbers = np.concatenate([_numbers(pairs) for pairs in models.values()])
    together = _deal(count and min(count, kinds), key, of_row, numbers)
    split = _split(together, models)
    nothing_common = kinds == 1 or kinds == sum(own_kinds.values())
    if nothing_common or min(own.present for own in split.values()) < 2:
        if count is not None:
            count = min([count, *(kinds for kinds in own_kinds.values() if kinds > 1)])
        return {
            name: _deal(
                count, jax.random.fold_in(key, index), pairs.prompt_kinds[1], _numbers(pairs)
            )
            for index, (name, pairs) in enumerate(models.items())
        }, "none"
    if all(own_kinds[name] == pairs.total for name, pairs in models.items()):
        split = {name: own._replace(units="rows") for name, own in split.items()}
    return split, "rows" if shared else "prompts"


def _split(together: Groups, models: Mapping[str, Pairs]) -> dict[str, Groups]:
    """The groups of each model, of those of the rows of all models."""
    ends = np.cumsum([pairs.n for pairs in models.values()])[:-1]
    rows = np.split(together.membership, ends)
    return {
        name: Groups(own, together.units, together.count)
        for name, own in zip(models, rows, strict=True)
    }


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

    The score is computed without each group of rows in turn, and the spread of the results gives
    the error (the delete-m_j jackknife of Busing, Meijer and van der Leeden, 1999, which for equal
    groups is the usual (g - 1)/g sum (theta_j - mean)^2). Rows that depend on each other leave
    together: those of equal prompts do by themselves, others where labels say so.

    The error is of the sampling noise at this n, for given kernels. It does not contain the bias of
    a score that still grows with n (see `convergence_curve`), nor the choice of a bandwidth. The
    bootstrap would be biased, because it duplicates rows. It knows no weights: a score that needs
    them can read them from a column of the outputs, and `decomposition_errors` takes them.

    Args:
      score: `score(outputs)` or `score(outputs, prompts)`, returning a scalar or a pytree of
        scalars, a `Decomposition` for instance. It receives arrays of the compute dtype; an array
        so far from the origin that the cast would blur it arrives as it was passed.
      outputs: embeddings `[n, d_x]`.
      prompts: embeddings `[n, d_t]`, or None for a score of the outputs alone.
      key: assigns rows to groups at random; needed where `groups` is a number.
      groups: the number of groups of (almost) equal size, or the label `[n]` of each row's group.

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
      >>> error = cv.standard_error(jnp.mean, values, key=jax.random.key(0), groups=16)
      >>> print(f"{error:.4f} = {values.std(ddof=1) / 4:.4f}")
      1.1902 = 1.1902
    """
    if not callable(score):
        raise TypeError(f"score: expected a function of the arrays, received {score!r}.")
    named = {"outputs": outputs} | ({} if prompts is None else {"prompts": prompts})
    validation.check_indices(named | {"groups": groups})
    given = validation.as_arrays(named)
    blurred = [name for name, array in given.items() if validation.is_blurred(array)]
    origins = validation.origins_of(given, blurred)
    checked = dict(zip(given, validation.check_arrays(given, origins=origins), strict=True))
    arrays = [given[name] if name in blurred else array for name, array in checked.items()]
    n = arrays[0].shape[0]
    if n == 1:
        validation.warn("a standard error needs at least two rows: it is NaN for n = 1.")
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), score(*arrays))
    kinds = None
    if prompts is not None:
        kinds = validation.equal_rows(np.asarray(arrays[1]), name="prompts")[1]
    chosen = group_rows(n, groups, key=key, kinds=kinds)
    everything, structure = jax.tree.flatten(score(*arrays))
    kept = [np.flatnonzero(chosen.membership != group) for group in range(chosen.count)]
    # By leaves: a result may record its n, which differs between the deletions.
    deleted = [jax.tree.leaves(score(*(array[rows] for array in arrays))) for rows in kept]
    found = [
        influences(whole, jnp.stack(parts), chosen.fractions)
        for whole, *parts in zip(everything, *deleted, strict=True)
    ]
    return jax.tree.unflatten(structure, _root_mean_squares(found))


def influences(whole: jax.Array, deleted: jax.Array, fractions: np.ndarray) -> jax.Array:
    """What each group does to a score, `[g]`; the jackknife error is their root mean square.

    The score is `whole` with all rows, and `deleted` without each group, of the given share of the
    rows. The error of a difference of two scores is that of the differences of their influences,
    where both were computed without the same groups. A group without rows does nothing, and does
    not count in the mean square.
    """
    share = jnp.asarray(fractions, deleted.dtype)
    present = share > 0
    count = jnp.sum(present, dtype=share.dtype)
    h = 1 / jnp.where(present, share, 0.5)
    pseudo = h * whole - (h - 1) * deleted
    estimate = count * whole - jnp.sum(jnp.where(present, (1 - share) * deleted, 0))
    scale = jnp.sqrt(share.size / count / (h - 1))
    return jnp.where(present, (pseudo - estimate) * scale, 0)


@jax.jit
def _root_mean_squares(found: Any) -> Any:
    return jax.tree.map(lambda values: jnp.sqrt(jnp.mean(jnp.square(values))), found)


@dataclasses.dataclass(frozen=True)
class Deletions:
    """The scores of all rows, and without each of g groups."""

    decomposition: Decomposition
    deleted: PerScore  # `[g]` each.
    shares: np.ndarray  # Of the weight of all rows that each group has, `[g]`.
    # False where a deletion leaves the rows of a single prompt: influences and errors of
    # conditional and information are then NaN.
    defined: bool = True
    # How far the noise of the bandwidths moves the scores; None where no bandwidth has any.
    bandwidth_errors: PerScore | None = None

    def influences(self) -> PerScore:
        """What each group does to each score, `[g]` each: see `influences`."""
        found = _influences(self.decomposition.scores, self.deleted, self.shares)
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


def undefined_errors(pairs: Pairs) -> PerScore:
    """NaN, with a warning: without one of two rows every score is 1, whatever they are."""
    validation.warn(
        f"the standard error of a score needs at least three rows: it is NaN for n = {pairs.n}."
    )
    return PerScore(*jnp.full((3,), jnp.nan, pairs.dtype))


def delete_groups(
    pairs: Pairs,
    entropy: Entropy,
    groups: Groups,
    *,
    method: Method = AUTO,
    progress: Callable[[], Any] = lambda: None,
) -> Deletions:
    """The scores of all pairs, which are on one device, and without each group.

    Progress is called after each evaluation of the scores.
    """
    found = methods.compute_deleted(pairs, entropy, groups.membership, method, progress)
    return _deletions(found, pairs, entropy, groups)


def _deletions(found: Deleted, pairs: Pairs, entropy: Entropy, groups: Groups) -> Deletions:
    if found.estimates:
        _warn_of_noise(found.estimates)
    defined = not leaves_one_prompt(pairs, groups)
    whole = Decomposition.of(found.everything, entropy, n=pairs.n, points=pairs)
    without, *moved = _scores_of_each([found.without, *found.moved])
    # Groups that only other models have rows in.
    absent = groups.count - without.vendi.size
    deleted = jax.tree.map(
        lambda of, score: jnp.pad(of, (0, absent), constant_values=score), without, whole.scores
    )
    # To first order, the changes by several bandwidths add up as independent ones do.
    changes = [[float(a - b) for a, b in zip(m, whole.scores, strict=True)] for m in moved]
    noise = PerScore(*map(math.hypot, *changes)) if changes else None
    return Deletions(whole, deleted, groups.shares(pairs), defined, noise)


def score(
    pairs: Pairs,
    entropy: Entropy,
    groups: Groups,
    *,
    method: Method,
    moved: Sequence[Pairs],
    progress: Callable[[], Any],
    reason: str | None = None,
) -> ScoredOrder:
    """The scores of one order with errors, of the sample and of the bandwidths, by deletions."""
    found = methods.compute_deleted(pairs, entropy, groups.membership, method, progress, moved)
    deletions = _deletions(found, pairs, entropy, groups)
    influences = jax.tree.map(lambda of: np.asarray(of, np.float64)[None], deletions.influences())
    largest = pairs.largest(entropy)
    return ScoredOrder(
        deletions.decomposition,
        deletions.errors(),
        deletions.bandwidth_errors,
        saturation.limits_of(deletions.decomposition, paired=pairs.paired, largest=largest),
        influences,
        ErrorsBy("deletions", groups.present, groups.units, reason),
        largest,
    )


def leaves_one_prompt(pairs: Pairs, groups: Groups) -> bool:
    """Whether prompts differ, and without some group they do not; warns where that is so.

    Of a single prompt information is 1 and conditional is vendi, whatever the outputs.
    """
    kinds, of_row = pairs.prompt_kinds
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


@jax.jit
def _scores_of_each(turns: list[PerTerm]) -> list[PerScore]:
    """The scores of entropies, of pairs or of outputs alone."""
    return [PerScore(*map(jnp.exp, log_scores(*of_pairs(values)))) for values in turns]


def _warn_of_noise(deletions: Sequence[PerTerm]) -> None:
    """Warns where a jackknife error is mostly that of the estimates behind it."""
    logs = [log_scores(*estimates) for estimates in deletions]
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
