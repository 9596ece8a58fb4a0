"""Scores of models at every bandwidth of a ladder, and over which of them one model leads.

A score depends on the bandwidths, and so may the order of two models. A profile has the scores at
all bandwidths of a ladder, with bands that hold for the whole ladder at once, and says for every
two models where one is more diverse than the other. Both come from the influences of rows at every
bandwidth: with a normal multiplier for each independent group of rows, their sums have the joint
distribution of the errors of all models at all bandwidths, and so of the largest of them
(docs/bandwidths.md).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.bandwidth import RuledBandwidth
from condvendi_jax.entropies import Entropy, PerScore, log_scores
from condvendi_jax.grams import to_host
from condvendi_jax.inference import _infinitesimal as infinitesimal
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import _population as populations
from condvendi_jax.inference import saturation
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.inference._plan import Common, Plan
from condvendi_jax.inference._population import Population
from condvendi_jax.kernel_choice import NAMES
from condvendi_jax.kernels import Gaussian, Kernel
from condvendi_jax.pairs import Labels, Pairs
from condvendi_jax.report import _render
from condvendi_jax.spectra import _order_two as order_two
from condvendi_jax.spectra._methods import Method
from condvendi_jax.spectra._order_two import Leaving

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Over = Literal["outputs", "prompts", "both"]
LADDER: tuple[float, ...] = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""The default multiples of the bandwidths: from 1/8 to 8, two to an octave."""
# Draws of the multipliers: a p-value of 0.05 has a standard error of 0.003.
_DRAWS = 5000
# Rows that one pass may have at several bandwidths without being asked for: a few seconds.
_CHEAP = 10_000


class PairProfile(NamedTuple):
    """Where on a ladder of bandwidths one model is more diverse than another.

    Attributes:
      first, second: the models.
      score: vendi, conditional or information.
      signs: `[m]`, 1 where the first model has the larger score, -1 where the second has, 0 where
        the difference is not significant or not tested. All signs of all pairs of a score are right
        at once, but for the level.
      untested: `[m]`, why the two are not tested, in words; None where they are.
      p_value: of no difference at any bandwidth of the ladder; NaN where nothing is tested.
      adjusted: the same for all pairs at once.
    """

    first: str
    second: str
    score: str
    signs: np.ndarray
    untested: Sequence[str | None]
    p_value: float
    adjusted: float

    @property
    def depends(self) -> bool:
        """Whether each of the two is more diverse somewhere."""
        return bool((self.signs > 0).any() and (self.signs < 0).any())

    @property
    def states(self) -> list[int | str]:
        """At each bandwidth why the two are not tested, or the sign: 0 if it is not significant."""
        return [why or sign for why, sign in zip(self.untested, self.signs.tolist(), strict=True)]


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """Scores of models over a ladder of bandwidths. Prints as text; `figure` draws it.

    Attributes:
      models: their names.
      n: the number of rows of each, `[models]`.
      order: the Renyi order.
      over: whose bandwidth the ladder multiplies: 'outputs', 'prompts' or 'both'.
      multiples: of the bandwidths in `chosen`, `[m]`, ascending.
      chosen: the bandwidth of outputs and of prompts at the multiple 1, with their rule.
      values: the scores, `[models, m]` each.
      bands: the ends of their simultaneous bands, `[models, m, 2]` each; NaN where a score is
        saturated, or where there is no error.
      saturated: where a score counts rows, or where all outputs count as the same, `[models, m]`
        each: `saturation.untested` says which models are not tested there.
      pairs: every two models by every score.
      level: one less the coverage of a band, and the rate at which any of the signs is wrong.
      units: what the groups of rows are that count as independent.
      groups: how many there are, of the model that has the fewest.
      seed: of all that is drawn.
      untested: why nothing is tested; None where something is. Bands are NaN where influences give
        no errors.
    """

    models: tuple[str, ...]
    n: tuple[int, ...]
    order: float
    over: Over
    multiples: np.ndarray
    chosen: Mapping[str, RuledBandwidth]
    values: PerScore
    bands: PerScore
    saturated: PerScore
    pairs: tuple[PairProfile, ...]
    level: float
    units: str
    groups: int
    seed: int
    untested: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores: one without prompts, three with them."""
        return PerScore._fields if "prompts" in self.chosen else ("vendi",)

    @property
    def main(self) -> str:
        """The score of which the text tells: conditional, or vendi where there are no prompts."""
        return "conditional" if "conditional" in self.names else "vendi"

    @property
    def axis(self) -> str:
        """Whose bandwidths `bandwidths` are: those of the outputs, unless only prompts move."""
        return "prompts" if self.over == "prompts" else "outputs"

    @property
    def bandwidths(self) -> np.ndarray:
        """The bandwidths of `axis` in the units of the embeddings, `[m]`."""
        width = self.chosen[self.axis].bandwidth
        assert width is not None  # `profile` refuses kernels that have none.
        return width * self.multiples

    def pair(self, first: str, second: str, score: str = "conditional") -> PairProfile:
        """Two models, in that order; KeyError where they were not compared by this score."""
        for found in self.pairs:
            if (found.first, found.second, found.score) == (first, second, score):
                return found
            if (found.second, found.first, found.score) == (first, second, score):
                return found._replace(first=first, second=second, signs=-found.signs)
        raise KeyError(f"{first!r} and {second!r} were not compared by {score!r}.")

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        curves = {
            name: {
                model: {
                    "values": values.tolist(),
                    "bands": [None if math.isnan(a) else [a, b] for a, b in bands.tolist()],
                    "saturated": saturated.tolist(),
                }
                for model, values, bands, saturated in zip(
                    self.models, *self.curves(name), strict=True
                )
            }
            for name in self.names
        }
        return {
            "order": self.order,
            "over": self.over,
            "multiples": self.multiples.tolist(),
            "bandwidths": {name: chosen._asdict() for name, chosen in self.chosen.items()},
            "n": dict(zip(self.models, self.n, strict=True)),
            "seed": self.seed,
            "level": self.level,
            "units": self.units,
            "groups": self.groups,
            "untested": self.untested,
            "curves": curves,
            "pairs": [pair._asdict() | {"signs": pair.signs.tolist()} for pair in self.pairs],
        }

    def curves(self, score: str) -> list[Any]:
        """The `values`, `bands` and `saturated` of a score."""
        return [getattr(of, score) for of in (self.values, self.bands, self.saturated)]

    def figure(self) -> Figure:
        """The scores against the bandwidth, with a band for each model, as matplotlib draws it."""
        from condvendi_jax.report import _figures  # Imported where it is used: matplotlib is slow.

        return _figures.profile(self)

    def __str__(self) -> str:
        """The scores along the ladder, and where one model leads."""
        return _render.profile(self)


@validation.outside_transformations
def profile(
    models: Mapping[str, ArrayLike] | ArrayLike,
    prompts: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    over: Over = "both",
    multiples: Sequence[float] = LADDER,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    rule: str = "variance",
    order: float = 2,
    method: Method | None = None,
    unbiased: bool = True,
    prompt_ids: Labels | Mapping[str, Labels] | None = None,
    groups: ArrayLike | None = None,
    weights: ArrayLike | Mapping[str, ArrayLike] | None = None,
    level: float = 0.05,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Profile:
    """The scores of models at every bandwidth of a ladder, and where one model leads.

    Use it before you conclude anything from scores at one bandwidth: it says over which bandwidths
    a conclusion holds.

    Args:
      models: the outputs of each by name, embeddings `[n, d_x]` of one encoder; or those of one.
      prompts: as `compare`; None to profile outputs alone.
      over: which bandwidths the multiples multiply: those of 'outputs', 'prompts' or 'both'.
      multiples: of the chosen bandwidths, ascending.
      output_kernel, prompt_kernel, rule, seed, progress: as `compare`; the kernels that move are
        `Gaussian`.
      order: the Renyi order. Order 2 takes one pass over the pairs for all bandwidths together;
        other orders take spectra at each of them.
      method, unbiased: as `evaluate`.
      prompt_ids: as `compare`.
      groups: the label of each row, `[n]`, as `compare`; where None, rows of equal prompts depend
        on each other.
      weights: as `compare`.
      level: the bands of a model cover all of its scores at once, and all signs of all pairs are
        right at once, with probability 1 - level.

    Returns:
      A `Profile`; `print` shows it, and its `figure` draws it.

    Raises:
      TypeError, ValueError: `over` is unknown, a kernel that moves is not a `Gaussian`, the
        multiples are not ascending numbers above 0, or as `compare`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.normal(size=(300, 2)).astype(np.float32)
      >>> few, many = (prompts + s * rng.normal(size=(300, 2)).astype(np.float32) for s in (0.2, 1))
      >>> kernel = cv.Gaussian(1.0)
      >>> options = dict(output_kernel=kernel, prompt_kernel=kernel, multiples=[0.5, 1, 2])
      >>> found = cv.profile({"few": few, "many": many}, prompts, **options)
      >>> found.pair("many", "few").signs.tolist()
      [1, 1, 1]
    """
    plan = Plan([order], None, method, True, groups, seed, progress, unbiased=unbiased)
    if plan.count is not None:
        raise ValueError(f"groups: expected the label of each row or None, received {groups!r}.")
    pairs = Pairs.of_models(
        models if isinstance(models, Mapping) else {"": models},
        prompts,
        output_kernel=output_kernel,
        prompt_kernel=prompt_kernel,
        rule=rule,
        key=plan.keys.rule,
        prompt_ids=prompt_ids,
        groups=plan.labels,
        weights=weights,
        progress=progress,
    )
    pairs = {name: own.supported() for name, own in pairs.items()}
    shared = not isinstance(prompts, Mapping)
    options: dict[str, Any] = {"level": check_level(level), "shared": shared}
    return of_pairs(pairs, plan, Common.of(pairs), over=over, multiples=multiples, **options)


def check_level(level: float) -> float:
    """The level, or ValueError."""
    if not isinstance(level, (int, float)) or not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, received {level!r}.")
    return float(level)


def of_plan(
    pairs: Mapping[str, Pairs],
    plan: Plan,
    common: Common,
    *,
    level: float,
    shared: bool,
    asked: bool,
) -> Profile | None:
    """What `compare` shows: order 2 over the bandwidths that there are, where it is cheap.

    Where it is asked for, at any n; ValueError where it cannot be.
    """
    first, refused = next(iter(pairs.values())), None
    moving = [isinstance(kernel, Gaussian) for kernel in first.kernels]
    if not any(moving):
        refused = "a Gaussian kernel, whose bandwidth moves"
    elif all(map(plan.method.computes, plan.entropies)):
        refused = "order 2 without truncation, of all pairs of rows"
    elif not plan.errors or plan.count is not None:
        refused = "errors, from the influences of rows"
    if asked and refused:
        raise ValueError(f"profile: expected {refused}.")
    cheap = len(pairs) > 1 and sum(own.n for own in pairs.values()) <= _CHEAP
    if refused or not (asked or cheap):
        return None
    over: Any = "both" if all(moving) else NAMES[moving.index(True)]
    options: dict[str, Any] = {"over": over, "multiples": LADDER, "level": level, "shared": shared}
    return of_pairs(pairs, plan, common, **options)


def of_pairs(
    pairs: Mapping[str, Pairs],
    plan: Plan,
    common: Common,
    *,
    over: Over,
    multiples: Sequence[float],
    level: float,
    shared: bool,
) -> Profile:
    """What `profile` returns, of pairs under the same kernels; of order 2 if it is among several.

    `shared` says whether all models have the same prompts row by row.
    """
    first = next(iter(pairs.values()))
    moving = _moving(first, over)
    ladder = _check_multiples(multiples)
    units, matched = jackknife.group_models(pairs, None, key=plan.keys.groups, shared=shared)
    entropy = min(plan.entropies, key=lambda entropy: entropy.needs_spectrum)
    spectral = plan.method.computes(entropy)
    unbiased, curves, along = plan.unbiased and not spectral, {}, {}
    for name, own in pairs.items():
        plan.progress("all bandwidths" + (f" of {name}" if name else ""))
        if spectral:
            curves[name] = _curve(own, moving, ladder, entropy, plan.method, units[name])
        else:
            along[name] = _populations(own, moving, ladder, units[name], unbiased=unbiased)
    for name, own in along.items():
        if unbiased:
            shares = common.shares([of[0] for of in along.values()], unbiased=True)
            own = [of.at(*shares) for of in own]
        curves[name] = _curve_of(pairs[name], own, entropy, units[name])
    untested = next((c.untested for c in curves.values() if c.untested is not None), None)
    if not unbiased and untested is None and len(pairs) > 1:
        untested = common.differ
    rounding = saturation.rounding(entropy, first.dtype)
    found = _Tested(curves, matched != "none", level, plan.seed, rounding)
    by_score: dict[str, list[Any]] = {"values": [], "bands": [], "saturated": []}
    told = []
    for index, score in enumerate(PerScore._fields[: 3 if first.paired else 1]):
        values = np.exp([own.logs[index] for own in curves.values()])
        if untested is None:
            bands, compared = found.of_score(index)
        else:
            bands = np.full((*values.shape, 2), math.nan)
            none = np.zeros(ladder.size, int), [untested] * ladder.size, math.nan, math.nan
            compared = [PairProfile(*two, score, *none) for two in itertools.combinations(pairs, 2)]
        by_score["values"].append(values)
        by_score["bands"].append(bands)
        by_score["saturated"].append(np.array([own.saturated[index] for own in curves.values()]))
        told += compared
    missing = [None] * (0 if first.paired else 2)
    return Profile(
        tuple(pairs),
        tuple(own.total for own in pairs.values()),
        entropy.order,
        over,
        ladder,
        first.bandwidths,
        **{name: PerScore(*of, *missing) for name, of in by_score.items()},
        pairs=tuple(told),
        level=level,
        units=next(iter(units.values())).units,
        groups=1 + min(own.freedom for own in curves.values()),
        seed=plan.seed,
        untested=untested,
    )


def _moving(points: Pairs, over: Over) -> list[int]:
    """The numbers of the kernels that move; ValueError where one of them has no bandwidth."""
    choices = (*NAMES, "both") if points.paired else ("outputs", "both")
    if over not in choices:
        raise ValueError(f"over: expected one of {', '.join(choices)}, received {over!r}.")
    moving = [k for k in range(len(points.kernels)) if over in (NAMES[k], "both")]
    for index in moving:
        if not isinstance(points.kernels[index], Gaussian):
            raise ValueError(
                f"over: expected a Gaussian kernel of the {NAMES[index]}, whose bandwidth moves, "
                f"received {points.kernels[index]!r}."
            )
    return moving


def _check_multiples(multiples: Any) -> np.ndarray:
    """The multiples as float64 `[m]`, or ValueError."""
    found = np.array(multiples, np.float64) if np.ndim(multiples) == 1 else np.zeros(0)
    ascending = found.size > 0 and np.isfinite(found).all() and (np.diff(found) > 0).all()
    if not ascending or found[0] <= 0:
        raise ValueError(f"multiples: expected ascending numbers above 0, received {multiples!r}.")
    return found


class _Curve(NamedTuple):
    """One model along the ladder."""

    logs: np.ndarray  # Of the scores, `[scores, m]`.
    of_units: np.ndarray  # The influences of groups of rows on them, `[scores, m, g]`.
    noise: np.ndarray  # The standard errors of estimates, `[scores, m]`; 0 where exact.
    full: np.ndarray  # Where outputs, or pairs, count as rows, `[scores, m]`.
    constant: np.ndarray  # Where all outputs count as the same, `[m]`.
    freedom: int  # The number of independent groups less one.
    untested: str | None  # Why influences give no errors.
    refused: np.ndarray | bool = False  # Where errors are too small, `[m]`.

    @property
    def saturated(self) -> np.ndarray:
        """Where a score has no band, `[scores, m]`."""
        return self.full | self.constant | self.refused


def _curve(
    pairs: Pairs,
    moving: Sequence[int],
    ladder: np.ndarray,
    entropy: Entropy,
    method: Method,
    units: Groups,
) -> _Curve:
    """The scores of one model along the ladder, with influences."""
    terms, of_units, noise, refused = _other_orders(pairs, moving, ladder, entropy, method, units)
    doubt = infinitesimal.too_few(pairs, units, entropy)
    return _limited(pairs, terms, _scores(terms), of_units, entropy, units, doubt)._replace(
        noise=noise, refused=refused
    )


def _limited(
    pairs: Pairs,
    terms: np.ndarray,
    logs: np.ndarray,
    of_units: np.ndarray,
    entropy: Entropy,
    units: Groups,
    doubt: str | None,
) -> _Curve:
    """A curve, and where its scores are at a limit by the entropies of the sample."""
    full = terms > math.log(saturation.APART * pairs.largest(entropy))
    return _Curve(
        logs=logs,
        of_units=of_units,
        noise=np.zeros(logs.shape),
        full=np.stack([full[0], full[-1], full[0] | full[-1]][: len(logs)]),
        constant=terms[0] < math.log(saturation.ALIKE),
        freedom=infinitesimal.independent_units(pairs, units) - 1,
        untested=doubt,
    )


def _curve_of(pairs: Pairs, along: Sequence[Population], entropy: Entropy, units: Groups) -> _Curve:
    """`_curve` of order 2, from the scores at each bandwidth."""
    scores, first = (3 if pairs.paired else 1), along[0]
    doubt = first.withheld or infinitesimal.too_few(pairs, units, entropy)
    signs = np.where(populations.INVERTED[:scores], -1.0, 1.0)[:, None]
    similarities = np.array([of.similarities[:scores] for of in along]).T
    influences = np.zeros((scores, len(along), units.count))
    for k, of in enumerate(along):
        if of.influences is not None:
            influences[:, k] = np.concatenate(of.influences[:scores])
    known = similarities > 0
    safe = np.where(known, similarities, 1)
    none = np.where(np.isnan(similarities), math.inf, signs * -math.inf)
    logs = np.where(known, signs * np.log(safe), none)
    of_units = np.where(known[..., None], (signs / safe)[..., None] * influences, 0)
    # Without some unit no two rows have similar prompts: there is no error.
    refused = np.isnan(of_units).any(axis=(0, 2))
    of_units = np.nan_to_num(of_units)
    shares = first.answers.points.shares
    terms = np.array([-np.log((of.sums[0] + shares) @ shares) for of in along]).T
    found = _limited(first.answers.points, terms, logs, of_units, entropy, units, doubt)
    return found._replace(freedom=max(first.freedom, 1), refused=refused)


def _scores(terms: np.ndarray) -> np.ndarray:
    """The logarithms of the scores from the entropies, `[1 or 3, ...]` both."""
    return terms if len(terms) == 1 else np.stack(log_scores(*terms))


class _Ladder:
    """Sums over pairs at every multiple of the bandwidths that move, from one set of distances."""

    def __init__(self, points: Pairs, moving: Sequence[int], ladder: np.ndarray):
        kernels = list(points.kernels)
        for index in moving:  # One form of the kernel, that of the narrowest, serves all.
            kernel: Any = kernels[index]
            narrowest = _times(kernel, ladder[0]).suited_to(points.arrays[index])
            kernels[index] = Gaussian(kernel.bandwidth, unit=narrowest.unit)
        self.points, self.moving = points.under(tuple(kernels)), tuple(moving)
        self.multiples = jnp.asarray(ladder, points.dtype)

    def row_sums(self) -> np.ndarray:
        """`order_two.row_sums`, `[m, terms, n]`."""
        return self._at_every(order_two.row_sums)[..., : self.points.n]

    def inside(self, leaving: Leaving) -> np.ndarray:
        """`order_two.sums_inside` groups, `[m, terms, G, rows]`."""
        return self._at_every(order_two.sums_inside, leaving)

    def _at_every(self, function: Callable[..., jax.Array], *given: Any) -> np.ndarray:
        found = _at_every(function, self.points, self.moving, self.multiples, *given)
        return np.asarray(to_host(found), np.float64)


def _populations(
    pairs: Pairs, moving: Sequence[int], ladder: np.ndarray, units: Groups | None, *, unbiased: bool
) -> list[Population]:
    """The scores of order 2 at every multiple of the bandwidths, in one pass."""
    answers = order_two.Answers.of(pairs) if unbiased else order_two.Answers.apart(pairs)
    along = _Ladder(answers.points, moving, ladder)
    inside = answers.inside(lambda _, of: along.inside(of))
    found = populations.of_each(answers, units, along.row_sums(), inside, along.inside)
    return found if unbiased else [of.at(None, 0.0) for of in found]


def scores_at(
    pairs: Pairs, moving: Sequence[int], ladder: np.ndarray, *, unbiased: bool
) -> dict[float, PerScore]:
    """The scores of order 2 at each of some multiples of the bandwidths, in one pass."""
    found = _populations(pairs, moving, ladder, None, unbiased=unbiased)
    return dict(zip(ladder.tolist(), (of.values for of in found), strict=True))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _at_every(
    function: Callable[..., jax.Array],
    points: Pairs,
    moving: tuple[int, ...],
    multiples: jax.Array,
    *given: Any,
) -> jax.Array:
    """A function of the points at every multiple of the bandwidths that move, `[m, ...]`."""
    return jax.vmap(lambda times: function(_moved(points, moving, times), *given))(multiples)


def _moved(points: Pairs, moving: Sequence[int], times: Any) -> Pairs:
    """The points under kernels of other bandwidths, which no rule has drawn."""
    kernels = [
        _times(kernel, times) if index in moving else kernel
        for index, kernel in enumerate(points.kernels)
    ]
    return points.under(tuple(kernels))


def at_multiple(points: Pairs, moving: Sequence[int], times: float) -> Pairs:
    """The points with some bandwidths multiplied, in the form that suits them."""
    moved = _moved(points, moving, times)
    return moved.under(tuple(map(Kernel.suited_to, moved.kernels, moved.arrays)))


def _times(kernel: Any, times: Any) -> Gaussian:
    width = jnp.asarray(kernel.bandwidth)
    return Gaussian(width * jnp.asarray(times, width.dtype), unit=kernel.unit)


def _other_orders(
    pairs: Pairs,
    moving: Sequence[int],
    ladder: np.ndarray,
    entropy: Entropy,
    method: Method,
    units: Groups,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """From spectra: entropies `[terms, m]`, influences of units on scores, `[scores, m, g]`.

    Also the errors of estimates, `[scores, m]`, and where errors are too small, `[m]`.
    """
    terms, influences, noise, refused = [], [], [], []
    leaving = infinitesimal.leaving(pairs, units)
    for times in ladder:
        own = at_multiple(pairs, moving, float(times))
        found = infinitesimal.influences(own, entropy, method, leaving)
        whole, of_units = found.decomposition, infinitesimal.influences_of_units(found, own, units)
        count = 3 if pairs.paired else 1
        scores = np.array(whole.scores, np.float64)[:count]
        terms.append(np.array(whole.entropies, np.float64)[:count])
        means = [of.mean(axis=0) for of in of_units[:count]]
        influences.append(np.array(means) / scores[:, None])
        errors = np.zeros(count)
        if whole.estimation is not None:
            errors = np.array(whole.estimation.standard_errors, np.float64)[:count] / scores
        noise.append(errors)
        refused.append(infinitesimal.too_many_modes(pairs, found, units) is not None)
    stacked = np.array(influences).transpose(1, 0, 2)
    return np.transpose(terms), stacked, np.transpose(noise), np.array(refused)


class _Tested(NamedTuple):
    """Bands and signs of models along the ladder, from draws of all their errors together."""

    curves: Mapping[str, _Curve]
    matched: bool  # Whether the groups of all models are the same.
    level: float
    seed: int
    rounding: float  # Of the logarithm of a score: no error counts as smaller.

    def of_score(self, score: int) -> tuple[np.ndarray, list[PairProfile]]:
        """The bands of each model, `[models, m, 2]`, and every two models."""
        draws, curves = self.draws(score), list(self.curves.values())
        bands = np.array([self._band(draws[:, k], own, score) for k, own in enumerate(curves)])
        return bands, self._differences(draws, score)

    def draws(self, score: int) -> np.ndarray:
        """Errors of all models along the ladder, `[draws, models, m]`.

        Sums of influences with a normal multiplier for each group have this covariance. As it is
        estimated from few groups, the draws are of Student's t.
        """
        generator, curves = np.random.default_rng([self.seed, score]), [*self.curves.values()]
        of_units = [own.of_units[score] for own in curves]  # `[m, g]` each.
        blocks = [np.concatenate(of_units)] if self.matched else of_units
        drawn = []
        for block in blocks:
            lengths, axes = np.linalg.eigh(block @ block.T / block.shape[1])
            root = axes * np.sqrt(np.maximum(lengths, 0))
            drawn.append(generator.standard_normal((_DRAWS, len(root))) @ root.T)
        together = np.concatenate(drawn, axis=1).reshape(_DRAWS, len(of_units), -1)
        noise = np.array([own.noise[score] for own in curves])
        together += noise * generator.standard_normal(together.shape)
        freedom = min(own.freedom for own in curves)
        spread = np.sqrt(generator.chisquare(freedom, (_DRAWS, 1, 1)) / freedom)
        return (together / spread).astype(np.float32)

    def errors(self, score: int, *curves: _Curve) -> np.ndarray:
        """The standard errors of the logarithm of a score, or of a difference of two, `[m]`."""
        of_units = [own.of_units[score] for own in curves]
        if len(curves) > 1 and self.matched:
            of_units = [of_units[0] - of_units[1]]
        squares = sum(np.mean(np.square(of), axis=1) for of in of_units)
        errors = np.sqrt(squares + sum(np.square(own.noise[score]) for own in curves))
        return np.maximum(errors, self.rounding)

    def _band(self, draws: np.ndarray, own: _Curve, score: int) -> np.ndarray:
        """The ends of the band of a model, `[m, 2]`, from draws `[draws, m]`."""
        errors, kept = self.errors(score, own), ~own.saturated[score]
        ends = np.full((kept.size, 2), math.nan)
        if kept.any():
            largest = np.max(np.abs(draws[:, kept]) / errors[kept], axis=1)
            width = np.quantile(largest, 1 - self.level) * errors[kept, None]
            ends[kept] = np.exp(own.logs[score][kept, None] + width * [-1, 1])
        return ends

    def _differences(self, draws: np.ndarray, score: int) -> list[PairProfile]:
        """Every two models: signs, why they are not tested, the p-value alone and among all."""
        pairs = list(itertools.combinations(range(len(self.curves)), 2))
        if not pairs:
            return []
        names, curves = zip(*self.curves.items(), strict=True)
        name = PerScore._fields[score]
        observed, drawn, reasons = [], [], []
        for one, two in pairs:
            first, second = curves[one], curves[two]
            logs = np.array([first.logs[score], second.logs[score]])
            same, full = [first.constant, second.constant], [first.full[score], second.full[score]]
            limits = saturation.Nearly(np.array(same), np.array(full))
            why = saturation.untested(name, (names[one], names[two]), logs, limits)
            for place in np.flatnonzero(first.refused | second.refused).tolist():
                why[place] = "rows are few for so many modes"
            tested = [reason is None for reason in why]
            scale = np.where(tested, self.errors(score, first, second), math.inf)
            with np.errstate(invalid="ignore"):  # Both may be infinite.
                difference = logs[0] - logs[1]
            known = np.array(tested) & (np.abs(difference) > self.rounding)
            observed.append(np.where(known, difference, 0) / scale)
            drawn.append(np.abs(draws[:, one] - draws[:, two]) / scale)
            reasons.append(why)
        statistics, largest = np.array(observed), np.stack(drawn, axis=1)
        told = _stepped_down(np.abs(statistics), largest, self.level)
        p_values = np.array(_p_values(np.abs(statistics).max(axis=1), largest.max(axis=2)))
        p_values[:, [None not in why for why in reasons]] = math.nan
        signs = np.where(told, np.sign(statistics), 0).astype(int)
        return [
            PairProfile(names[one], names[two], name, signs[k], reasons[k], *p_values[:, k])
            for k, (one, two) in enumerate(pairs)
        ]


def _stepped_down(observed: np.ndarray, drawn: np.ndarray, level: float) -> np.ndarray:
    """Which statistics are larger than chance makes the largest of those that are not.

    The step-down of Romano and Wolf (2005): `observed` `[...]` and `drawn` `[draws, ...]`.
    """
    told = np.zeros(observed.shape, bool)
    while not told.all():
        limit = np.quantile(drawn[:, ~told].max(axis=1), 1 - level)
        further = ~told & (observed > limit)
        if not further.any():
            break
        told |= further
    return told


def _p_values(observed: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The p-value of each of the statistics `[k]`, and those adjusted for their number.

    Adjusted as by Westfall and Young (1993): against the largest of the draws `[draws, k]` of those
    that are not larger; none is less than that of a larger one.
    """
    draws = len(drawn)
    alone = (1 + np.sum(drawn >= observed, axis=0)) / (draws + 1)
    adjusted, largest = np.empty_like(alone), 0.0
    falling = np.argsort(-observed)
    for rank, index in enumerate(falling):
        above = drawn[:, falling[rank:]].max(axis=1) >= observed[index]
        largest = max(largest, float((1 + above.sum()) / (draws + 1)))
        adjusted[index] = largest
    return alone, adjusted
