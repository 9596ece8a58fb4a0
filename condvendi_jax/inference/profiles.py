"""Scores of models at every bandwidth of a ladder, and over which of them one model leads.

Bands and signs come from the `Error` of each score at every bandwidth (`bands`).
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.data.rows import NAMES
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import errors as errors_of
from condvendi_jax.inference import population, saturation
from condvendi_jax.inference.bands import Curve, Tested
from condvendi_jax.inference.designs import Common
from condvendi_jax.inference.errors import FEWEST_ROWS, Groups, Units
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.inference.population import Population
from condvendi_jax.inference.shared_prompts import Rows
from condvendi_jax.results.profile import Over, Profile
from condvendi_jax.spectra import order_two
from condvendi_jax.spectra.order_two import Leaving, to_float64
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.reasons import SPLIT, Reason

LADDER: tuple[float, ...] = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""The default multiples of the bandwidths: from 1/8 to 8, two to an octave."""
# Rows that one pass may have at several bandwidths without being asked for: a few seconds.
_CHEAP = 10_000
_ENTROPY = Entropy(order=2)


@takes_data
def profile(
    models: Mapping[str, ArrayLike | Labels] | ArrayLike | Labels,
    prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
    *,
    over: Over | None = None,
    multiples: Sequence[float] = LADDER,
    unbiased: bool = True,
    one_population: bool = False,
    groups: ArrayLike | None = None,
    level: float = 0.05,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
    **data: Unpack[Data],
) -> Profile:
    """The scores of order 2 at every bandwidth of a ladder, and where one model leads.

    One pass over the pairs of rows gives all of them. Use it before you conclude anything from
    scores at one bandwidth: it says over which bandwidths a conclusion holds.

    Args:
      models: the outputs of each by name, as `compare`; or those of one.
      prompts: as `compare`.
      over: which bandwidths the multiples multiply: those of 'outputs', 'prompts' or 'both'; where
        None, those that there are.
      multiples: of the chosen bandwidths, ascending.
      seed, progress, data: see `compare`. A kernel of your own moves as `Kernel` says.
      unbiased, one_population: see `compare`. Models are compared on the prompts that all share.
      groups: the label of each row, `[n]`: rows of one label depend on each other. If None, rows of
        equal prompts do.
      level: the bands of a model cover all of its scores at once, and all signs of all pairs are
        right at once, with probability 1 - level.

    Returns:
      A `Profile`; `print` shows it, and its `plot` draws it.

    Raises:
      TypeError, ValueError: `over` is unknown, a kernel that moves has no bandwidth, the
        multiples are not ascending numbers above 0, or `compare` would refuse the arguments.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.normal(size=(300, 2)).astype(np.float32)
      >>> few, many = (prompts + s * rng.normal(size=(300, 2)).astype(np.float32) for s in (0.2, 1))
      >>> kernel = cv.Gaussian(1.0)
      >>> options = dict(output_kernel=kernel, prompt_kernel=kernel, multiples=[0.5, 1, 2])
      >>> result = cv.profile({"few": few, "many": many}, prompts, **options)
      >>> result.pair("many", "few").signs.tolist()
      [1, 1, 1]
    """
    plan = Plan([2], None, None, True, groups, seed, progress, unbiased=unbiased)
    if plan.count is not None:
        raise ValueError(f"groups: expected the label of each row or None, received {groups!r}.")
    pairs = plan.pairs(models if isinstance(models, Mapping) else {"": models}, prompts, **data)
    pairs = {name: rows.supported() for name, rows in pairs.items()}
    rows = Rows.of(pairs)
    shared = None if one_population else rows.numbers()
    level = checks.check_number(level, name="level", above=0, below=1)
    options: dict[str, Any] = {"over": over, "multiples": multiples, "level": level}
    return _of_pairs(rows.together(pairs, shared), plan, differ=shared and shared.apart, **options)


def of_plan(
    plan: Plan, pairs: Mapping[str, Pairs], *, level: float, asked: bool, differ: Reason | None
) -> Profile | None:
    """Computes the profile for `compare`: order 2 over all bandwidths.

    None above 10,000 rows, unless it is `asked` for, and of two rows, which have no errors;
    ValueError if it cannot be computed.
    """
    refused, kernels = None, next(iter(pairs.values())).kernels
    if all(kernel.known_bandwidth is None for kernel in kernels):
        refused = "a Gaussian kernel, whose bandwidth moves, or one of yours with a `bandwidth`"
    elif all(entropy.needs_spectrum for entropy in plan.entropies):
        refused = "order 2 without truncation, of all pairs of rows"
    elif not plan.errors or plan.count is not None:
        refused = "errors, from the influences of rows"
    if asked and refused:
        raise ValueError(f"profile: expected {refused}.")
    cheap = len(pairs) > 1 and sum(rows.n for rows in pairs.values()) <= _CHEAP
    few = min(rows.total for rows in pairs.values()) < FEWEST_ROWS
    if refused or few or not (asked or cheap):
        return None
    return _of_pairs(pairs, plan, over=None, multiples=LADDER, level=level, differ=differ)


def _of_pairs(
    pairs: Mapping[str, Pairs],
    plan: Plan,
    *,
    over: Any,
    multiples: Sequence[float],
    level: float,
    differ: Reason | None,
) -> Profile:
    """Computes the profile of pairs under the same kernels; `differ`: why it tests nothing."""
    first = next(iter(pairs.values()))
    moves = [kernel.known_bandwidth is not None for kernel in first.kernels]
    of_all = "both" if all(moves) or not any(moves) else NAMES[moves.index(True)]
    over = over or of_all
    moving, ladder = _moving(first, over), _check_multiples(multiples)
    common, units = Common.of(pairs), Units.of(pairs, None, plan.keys.groups)
    groups, unbiased, along = units.of_models, plan.unbiased, {}
    for name, rows in pairs.items():
        plan.progress("all bandwidths" + (f" of {name}" if name else ""))
        along[name] = _populations(rows, moving, ladder, groups[name], unbiased=unbiased)
    curves = curves_of(pairs, along, units, common, unbiased=unbiased)
    options: dict[str, Any] = {"over": over, "ladder": ladder, "level": level, "seed": plan.seed}
    if not unbiased and len(pairs) > 1:
        differ = differ or common.differ
    return of_curves(pairs, curves, units, entropy=_ENTROPY, differ=differ, **options)


def curves_of(
    pairs: Mapping[str, Pairs],
    along: Mapping[str, Sequence[Population]],
    units: Units,
    common: Common,
    *,
    unbiased: bool = True,
) -> dict[str, Curve]:
    """The curve of each model at order 2, from its scores under each of several kernels."""
    first, curves = [scores[0] for scores in along.values()], {}
    shares = common.shares(first, unbiased=True) if unbiased else (None, 0.0)
    for name, populations in along.items():
        at = [scores.at(*shares) for scores in populations]
        few = errors_of.too_few(pairs[name], units.of_models[name], _ENTROPY)
        reason = at[0].reason or (Reason(few) if few else None)
        reason = SPLIT if at[0].labels is not None else reason
        errors = [scores.errors or _without(scores, reason) for scores in at]
        if not unbiased:
            errors = [of_scores.map(Error.in_logarithms) for of_scores in errors]
        limits = zip(*(scores.limits for scores in at), strict=True)
        limits = saturation.Nearly(*(np.stack(ends, axis=1) for ends in limits))
        curves[name] = Curve(errors, limits, reason)
    return curves


def _without(scores: Population, reason: Reason | None) -> PerScore:
    """No errors of scores, for a reason."""
    unknown = np.full((1, 1), math.nan)
    return scores.values.map(lambda value: Error(value, unknown, reason=reason))


def of_curves(
    pairs: Mapping[str, Pairs],
    curves: Mapping[str, Curve],
    units: Units,
    *,
    entropy: Entropy,
    over: Over,
    ladder: np.ndarray,
    level: float,
    seed: int,
    differ: Reason | None = None,
) -> Profile:
    """The profile of models with these curves, with bands and signs."""
    first = next(iter(pairs.values()))
    rounding, scores = saturation.rounding(entropy, first.dtype), 3 if first.paired else 1
    tested = Tested(curves, units.matched != "none", level, seed, rounding, differ)
    names = PerScore._fields[:scores]
    bands, told = zip(*map(tested.of_score, names), strict=True)
    # Each `[scores, models, m]`, of one score without prompts, and else of three.
    values = [[curve.values(name) for curve in curves.values()] for name in names]
    saturated = [[curve.saturated(name) for curve in curves.values()] for name in names]
    missing = [None] * (3 - scores)
    return Profile(
        tuple(pairs),
        tuple(rows.total for rows in pairs.values()),
        entropy.order,
        over,
        ladder,
        first.bandwidths,
        *(PerScore(*map(np.array, part), *missing) for part in (values, bands, saturated)),
        pairs=tuple(itertools.chain(*told)),
        level=level,
        units=next(iter(units.of_models.values())).units,
        groups=min(rows.independent(pairs[name]) for name, rows in units.of_models.items()),
        seed=seed,
        reason=tested.reason,
    )


def _moving(points: Pairs, over: Over) -> list[int]:
    """The numbers of the kernels that move; ValueError where one of them has no bandwidth."""
    choices = (*NAMES, "both") if points.paired else ("outputs", "both")
    if over not in choices:
        raise ValueError(f"over: expected one of {', '.join(choices)}, received {over!r}.")
    moving = [k for k in range(len(points.kernels)) if over in (NAMES[k], "both")]
    for index in moving:
        if points.kernels[index].known_bandwidth is None:
            raise ValueError(
                f"over: expected a Gaussian kernel of the {NAMES[index]}, whose bandwidth moves, "
                f"or one of yours with a `bandwidth`, received {points.kernels[index]!r}."
            )
    return moving


def _check_multiples(multiples: Any) -> np.ndarray:
    """The multiples as float64 `[m]`, or ValueError."""
    ladder = np.array(multiples, np.float64) if np.ndim(multiples) == 1 else np.zeros(0)
    ascending = ladder.size > 0 and np.isfinite(ladder).all() and (np.diff(ladder) > 0).all()
    if not ascending or ladder[0] <= 0:
        raise ValueError(f"multiples: expected ascending numbers above 0, received {multiples!r}.")
    return ladder


def _populations(
    pairs: Pairs, moving: Sequence[int], ladder: np.ndarray, units: Groups | None, *, unbiased: bool
) -> list[Population]:
    """The scores of order 2 at every multiple of the bandwidths, in one pass."""
    answers = order_two.Answers.of(pairs) if unbiased else order_two.Answers.apart(pairs)
    kernels: list[Any] = list(answers.points.kernels)
    for index in moving:  # All multiples use the form of the kernel that suits the narrowest.
        kernel = kernels[index]
        narrowest = kernel.with_bandwidth(kernel.bandwidth * float(ladder[0]))
        fitting = narrowest.suited_to(answers.points.arrays[index])
        kernels[index] = fitting.with_bandwidth(kernel.bandwidth)
    points = answers.points.under(tuple(kernels))
    leaves = {index: jax.tree.leaves(kernels[index]) for index in moving}
    traced = all(any(x is kernels[k].bandwidth for x in leaves[k]) for k in moving)

    def along(function: Callable[..., jax.Array], *leaving: Leaving) -> np.ndarray:
        """A function of the points at every multiple, `[m, ...]`."""
        if traced:
            multiples = jnp.asarray(ladder, points.dtype)
            return to_float64(_at_every(function, points, tuple(moving), multiples, *leaving))
        several = (_times(points, tuple(moving), times) for times in ladder.tolist())
        return np.stack([to_float64(function(scaled, *leaving)) for scaled in several])

    inside = functools.partial(along, order_two.sums_inside)
    within = order_two.Inside()  # The papers' scores count the pairs within a batch.
    if unbiased:
        within = answers.inside(lambda _, leaving: inside(leaving))
    sums = along(order_two.row_sums)[..., : points.n]
    return population.of_each(answers, units, sums, within, inside)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _at_every(
    function: Callable[..., jax.Array],
    points: Pairs,
    moving: tuple[int, ...],
    multiples: jax.Array,
    *given: Any,
) -> jax.Array:
    """A function of the points at every multiple of the bandwidths that move, `[m, ...]`."""
    return jax.vmap(lambda times: function(_times(points, moving, times), *given))(multiples)


def _times(points: Pairs, moving: tuple[int, ...], times: Any) -> Pairs:
    """The points under kernels with multiples of their bandwidths."""
    kernels: list[Any] = list(points.kernels)
    for index in moving:
        kernels[index] = kernels[index].with_bandwidth(kernels[index].bandwidth * times)
    return points.under(tuple(kernels))
