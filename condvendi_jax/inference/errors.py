"""Standard errors of scores: from the influences of groups of rows, or from their deletions.

Rows that depend on each other, such as those of one prompt, are one unit: their influences add up.
At orders 1 and 2 the exact change of the score without a unit takes the place of its influence. If
units are too few, or the score is too steep, groups of rows are left out in turn, at the price of
one spectrum for each: the delete-group jackknife. See docs/errors.md.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.entropies import Decomposition, Entropy, PerScore, PerTerm, log_scores, of_pairs
from condvendi_jax.results.evaluation import ErrorsBy, ScoredOrder
from condvendi_jax.spectra import computation, methods
from condvendi_jax.spectra.pair_sums import Leaving, PairSums, leaving_of
from condvendi_jax.statistics.influences import NOISE, Error, group_influences, is_noisy
from condvendi_jax.statistics.reasons import ONE_PROMPT, Reason

# Where influences are too few, or too unlike the change by a deletion, for an error that covers; by
# simulation (docs/errors.md). Rows; groups of rows at order 2; groups of rows elsewhere.
FEWEST_UNITS, FEWEST_GROUPS, FEWEST_SPECTRAL_GROUPS = 20, 7, 50
# Below order 2, a row whose mode no other row has counts for more than its derivative says: up to
# this share of modes among the rows it does not matter; of groups of rows, up to a larger one.
_MODES, _MODES_OF_GROUPS = 0.1, 0.5
DEFAULT_GROUPS = 20  # A choice: at orders other than 2 each group costs a spectrum.
FEWEST_ROWS = 3  # Below it a deletion leaves a single row, and every score of that is 1.


class Groups(NamedTuple):
    """The groups of rows that count as independent in a standard error."""

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
        return int(np.count_nonzero(np.bincount(self.membership)))

    def independent(self, pairs: Pairs) -> int:
        """The number of independent groups: of rows, as many as integer weights say."""
        return pairs.total if self.units == "rows" else self.present

    def leaving(self, pairs: Pairs) -> list[Leaving]:
        """The rows of each group, or one copy of each row; groups of unlike sizes apart."""
        if self.units == "rows":
            rows, copies = np.arange(pairs.n), 1 if pairs.copies is None else pairs.copies
            return [Leaving(rows, rows[:, None], (pairs.shares / np.maximum(copies, 1))[:, None])]
        return leaving_of(pairs.shares, self.membership, self.count)


def deal(count: int | None, key: jax.Array | None, kinds: np.ndarray, copies: np.ndarray) -> Groups:
    """Deals rows to groups, those of one of `kinds` together; each counts as `copies` `[n]`.

    Where all kinds are equal, or all differ, rows are dealt one by one.
    """
    n, sizes = len(kinds), np.bincount(kinds, copies)
    repeated = copies.dtype.kind in "iu" and copies.max() > 1
    alone = sizes.size == 1 or (sizes.size == n and not repeated)
    if count is None:
        return Groups(np.arange(n), "rows") if alone else Groups(kinds, "rows of one prompt")
    if alone:
        return Groups(np.asarray(jax.random.permutation(checks.check_key(key), n)) % count, "rows")
    # Each prompt goes to the group that has the fewest rows by then.
    filled, group_of = np.zeros(min(count, sizes.size)), np.zeros(sizes.size, int)
    for kind in np.asarray(jax.random.permutation(checks.check_key(key), sizes.size)).tolist():
        group_of[kind] = group = filled.argmin()
        filled[group] += sizes[kind]
    return Groups(group_of[kinds], "rows of one prompt")


def _numbers(pairs: Pairs) -> np.ndarray:
    """The number of rows that each row counts as, `[n]`: integers, or relative to the mean."""
    if pairs.weights is None:
        return np.ones(pairs.n, int)
    return pairs.n * pairs.shares if pairs.copies is None else pairs.copies


def group_models(
    models: Mapping[str, Pairs], count: int | None, *, key: jax.Array | None = None
) -> tuple[dict[str, Groups], str]:
    """The groups of each model, and how models are matched: 'rows', 'prompts', 'labels', 'none'.

    At most `count` groups, unless rows share labels; where it is None, every row, or all rows of a
    prompt, are a group. Raises ValueError where all rows of a model have one label.
    """
    first = next(iter(models.values()))
    if count is not None:
        count = min(count, *(pairs.n for pairs in models.values()))
    if first.groups is not None:
        labels = [pairs.groups for pairs in models.values() if pairs.groups is not None]
        # Rows of weight zero may have taken a label with them.
        of_row = np.unique(np.concatenate(labels), return_inverse=True)[1]
        together = Groups(of_row, "given labels")
        totals = [pairs.total for pairs in models.values()]
        if [np.unique(groups).size for groups in labels] == totals:  # Every row has one.
            together = deal(count, key, of_row, np.ones(of_row.size, int))._replace(units="rows")
        split = _split(together, models)
        for name, groups in split.items():
            if groups.present < 2:
                words = "expected two distinct labels or more, received one."
                raise ValueError(f"{name}: groups: {words}")
        return split, "labels"
    if len(models) == 1:
        dealt = deal(count, key, first.prompt_kinds[1], _numbers(first))
        return dict.fromkeys(models, dealt), "none"
    kinds, prompts = prompts_by_model([*models.values()])
    of_row = np.concatenate(prompts)
    kind_counts = {name: pairs.prompt_kinds[0] for name, pairs in models.items()}
    numbers = np.concatenate([_numbers(pairs) for pairs in models.values()])
    split = _split(deal(count and min(count, kinds), key, of_row, numbers), models)
    nothing_common = kinds == 1 or kinds == sum(kind_counts.values())
    if nothing_common or min(groups.present for groups in split.values()) < 2:
        if count is not None:
            count = min([count, *(kinds for kinds in kind_counts.values() if kinds > 1)])
        dealt = {}
        for index, (name, pairs) in enumerate(models.items()):
            of_model = None if key is None else jax.random.fold_in(key, index)
            dealt[name] = deal(count, of_model, pairs.prompt_kinds[1], _numbers(pairs))
        return dealt, "none"
    if all(kind_counts[name] == pairs.total for name, pairs in models.items()):
        split = {name: groups._replace(units="rows") for name, groups in split.items()}
    same_rows = all(np.array_equal(prompts[0], other) for other in prompts[1:])
    return split, "rows" if same_rows else "prompts"


def _split(together: Groups, models: Mapping[str, Pairs]) -> dict[str, Groups]:
    """The groups of each model, of those of the rows of all models."""
    ends = np.cumsum([pairs.n for pairs in models.values()])[:-1]
    rows = zip(models, np.split(together.membership, ends), strict=True)
    return {name: Groups(part, together.units, together.count) for name, part in rows}


class Units(NamedTuple):
    """The independent groups of several models, and how to form groups that are left out."""

    of_models: dict[str, Groups]  # Every row by itself, or those of one prompt or label together.
    matched: str  # As in `group_models`.
    count: int | None  # Of groups to leave out in turn; None to use influences if they suffice.
    key: jax.Array | Callable[[], jax.Array]  # Draws the groups that are left out.

    @classmethod
    def of(cls, models: Mapping[str, Pairs], count: int | None, key: Any) -> Self:
        """The units of models."""
        return cls(*group_models(models, None), count, key)


def leaves_one_prompt(kinds: np.ndarray, groups: Groups) -> bool:
    """Whether prompts differ, but not without some group: of one, information is always 1."""
    if (kinds == kinds[0]).all():
        return False
    both = np.unique([kinds, groups.membership], axis=1)
    _, first, parts = np.unique(both[0], return_index=True, return_counts=True)
    # A prompt whose rows are all in one group leaves with it.
    leave = np.bincount(both[1, first[parts == 1]], minlength=groups.count)
    return bool((parts.size - leave <= 1).any())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Errors(ScoredOrder):
    """The scores of one model with their errors, and what these are of."""

    pairs: Pairs  # The rows that were scored.
    units: Groups | None = None  # The groups that count as independent.
    pair_sums: PairSums | None = None  # Of these groups, at order 2.


def standard_errors(
    models: Mapping[str, Pairs],
    entropy: Entropy,
    method: methods.Method,
    units: Units | None,
    progress: Callable[[str], Any] = lambda _: None,
) -> dict[str, Errors]:
    """The scores of models; with `units`, their errors by influences, or by deletions for all."""

    def announced() -> Iterator[tuple[str, Pairs]]:
        for name, pairs in models.items():
            progress(f"order {entropy.order:g}" + (f" of {name}" if name else ""))
            yield name, pairs

    if units is None:
        score = computation.score
        return {n: Errors(score(p, entropy, method), None, pairs=p) for n, p in announced()}
    errors, reason = dict[str, Errors](), None
    few = (too_few(models[name], groups, entropy) for name, groups in units.of_models.items())
    if units.count is None and (reason := next(filter(None, few), None)) is None:
        for name, pairs in announced():
            model_units = units.of_models[name]
            influences = row_influences(pairs, entropy, method, model_units.leaving(pairs))
            reason = too_many_modes(pairs, influences, model_units)
            if reason is not None and influences.decomposition.estimation is None:
                break
            errors[name] = _by_influences(pairs, influences, model_units, reason)
        else:
            return errors
    models = {name: pairs.gathered() for name, pairs in models.items()}
    if all(groups.units == "rows" for groups in units.of_models.values()):
        models = {name: pairs.repeated() for name, pairs in models.items()}
    key = units.key() if callable(units.key) else units.key
    groups, _ = group_models(models, units.count or DEFAULT_GROUPS, key=key)
    how: Any = {"method": method, "progress": progress, "reason": reason}
    return {n: delete_groups(p, entropy, groups[n], **how) for n, p in announced()}


class Influences(NamedTuple):
    """The scores of one model, and how the weight of each row changes them (`order_two.Sloped`)."""

    decomposition: Decomposition
    # Of each row, float64 `[replicates, n]`, in effective numbers of modes; or, if `deleted`, what
    # each score loses without each unit, `[1, G]`.
    changes: PerScore
    deleted: bool
    pair_sums: PairSums | None  # None at orders other than 2.


def row_influences(
    pairs: Pairs, entropy: Entropy, method: methods.Method, leaving: Sequence[Leaving] | None = None
) -> Influences:
    """The scores of pairs, with deletions of the groups in `leaving` or influences of rows."""
    sloped = computation.compute_sloped(pairs, entropy, method, leaving)
    whole = computation.decomposition(pairs, entropy, sloped.computed)
    logs = _logs(sloped.rows if sloped.deletions is None else sloped.deletions)
    # d exp(h) = exp(h) dh.
    changes = whole.scores.map(lambda score, log: float(score) * np.atleast_2d(log), logs)
    return Influences(whole, changes, sloped.deletions is not None, sloped.pair_sums)


def _by_influences(pairs: Pairs, computed: Influences, units: Groups, reason: str | None) -> Errors:
    """The errors from the influences of units, or from their deletions; NaN for a `reason`."""
    whole, of_units = computed.decomposition, influences_of_units(computed, pairs, units)
    if reason is not None:  # Deletions of so many rows would take too long: there is no error.
        words = f"derivatives make errors too small if {reason}: give fewer groups (groups=20)"
        checks.warn(f"there are no standard errors (NaN): {words}.")
        of_units, reason = PerScore(*(np.full_like(x, np.nan) for x in of_units)), Reason(words)
    _warn_of_noise(map(is_noisy, of_units))
    by = ErrorsBy("influences", units.independent(pairs), units.units, reason)
    rows: Any = {"pairs": pairs, "units": units, "pair_sums": computed.pair_sums}
    return Errors(whole, _errors_of(whole, of_units, by, [reason] * 3), errors_by=by, **rows)


def _errors_of(
    whole: Decomposition, of_units: Iterable[Any], by: ErrorsBy, reasons: Iterable[Reason | None]
) -> PerScore:
    """The `Error` of each score, from influences `[replicates, G]`."""
    parts = zip(whole.scores, of_units, reasons, strict=True)
    freedom = by.groups - 1
    return PerScore(*(Error(float(x), change, by.units, freedom, why) for x, change, why in parts))


def too_few(pairs: Pairs, units: Groups, entropy: Entropy) -> Reason | None:
    """Why there are too few units for influences; None where there are enough."""
    of_groups = FEWEST_SPECTRAL_GROUPS if entropy.needs_spectrum else FEWEST_GROUPS
    fewest = FEWEST_UNITS if units.units == "rows" else of_groups
    enough = _effective_count(pairs, units) >= fewest
    return None if enough else Reason(f"there are fewer than {fewest} {units.units}")


def too_many_modes(pairs: Pairs, influences: Influences, units: Groups) -> str | None:
    """Why influences that are derivatives give too small an error, in words; None where not."""
    whole = influences.decomposition
    steep = whole.order < 2 and whole.truncation is None and not influences.deleted
    count, modes = pairs.total, math.exp(max(map(float, whole.entropies)))
    share = _MODES_OF_GROUPS
    if units.units == "rows":
        count, share = _effective_count(pairs, units), _MODES
    if not steep or modes <= share * count:
        return None
    return f"{count:,} rows are few for {modes:,.0f} modes"


def _effective_count(pairs: Pairs, units: Groups) -> int:
    """As many units of equal weight: rows of unequal weights count for fewer."""
    if pairs.weights is None or pairs.copies is not None or units.units != "rows":
        return units.independent(pairs)
    return round(1 / float(np.sum(np.square(pairs.shares))))


def influences_of_units(influences: Influences, pairs: Pairs, units: Groups) -> PerScore:
    """The influences of units on each score, `[replicates, G]`, from deletions if there are any."""
    how = influences.deleted
    return influences.changes.map(lambda part: unit_influences(part, pairs, units, deleted=how))


def unit_influences(
    changes: np.ndarray, pairs: Pairs, units: Groups, *, deleted: bool = False
) -> np.ndarray:
    """The influences of units, `[replicates, G]`, whose root mean square is the error."""
    count, independent = units.count, units.independent(pairs)
    shares, membership = pairs.shares, units.membership
    if deleted:
        if units.units != "rows":
            shares, membership = np.bincount(membership, shares, count), None
        changes = changes - changes @ shares[:, None]
    weighted = np.where(shares > 0, changes * shares, 0)
    if pairs.copies is not None and units.units == "rows":  # Row i stands for copies_i units.
        weighted /= np.sqrt(np.maximum(pairs.copies, 1))
    sums = weighted
    if membership is not None:
        sums = np.stack([np.bincount(membership, row, minlength=count) for row in weighted])
    return sums * math.sqrt(count * independent / (independent - 1))


def delete_groups(
    pairs: Pairs,
    entropy: Entropy,
    groups: Groups,
    *,
    method: methods.Method = computation.AUTO,
    progress: Callable[[str], Any] = lambda _: None,
    reason: str | None = None,
) -> Errors:
    """The scores of all pairs, which are on one device, and their errors by the jackknife.

    The scores without each group of rows are computed in turn, each after a call of `progress`;
    `reason` is why, in words.
    """
    whole, shares, parts = computation.score(pairs, entropy, method), pairs.shares, []
    for group in range(groups.count):
        progress(f"errors of order {entropy.order:g}: {group} of {groups.count} groups done")
        kept = groups.membership != group
        rest = np.asarray(shares * kept / shares[kept].sum(), pairs.dtype)  # One program for all.
        parts.append(computation.score(pairs.weighed(rest), entropy, method))
    deleted = np.exp([_logs(part.entropies) for part in parts]).T
    if noise := [part.estimation.standard_errors for part in parts if part.estimation]:
        noisy = np.mean(np.square(noise), axis=0) > NOISE * np.var(deleted, axis=1, ddof=1)
        _warn_of_noise(noisy if pairs.paired else noisy[:1])
    of_groups = np.bincount(groups.membership, shares, groups.count)
    influences = group_influences(np.exp(_logs(whole.entropies)), deleted, of_groups)
    by, missing = ErrorsBy("deletions", groups.present, groups.units, reason), None
    kinds, of_row = pairs.prompt_kinds
    if leaves_one_prompt(of_row, groups):
        words = f"errors of conditional and information: {ONE_PROMPT}. Use at least three prompts"
        few = f"{kinds} distinct prompts in {groups.count} groups give no standard {words}"
        checks.warn(f"prompts: {few}, and groups whose prompts differ.")
        influences[1:], missing = np.nan, ONE_PROMPT
    errors = _errors_of(whole, influences[:, None], by, [None, missing, missing])
    units = groups._replace(units=f"groups of {groups.units}")
    return Errors(whole, errors, errors_by=by, pairs=pairs, units=units)


def _logs(values: PerTerm) -> PerScore:
    """The logarithms of scores from entropies of pairs or of outputs alone, in float64."""
    terms = (None if value is None else np.asarray(value, np.float64) for value in values)
    return log_scores(*of_pairs(PerTerm(*terms)))


def _warn_of_noise(noisy: Iterable[bool]) -> None:
    for name in itertools.compress(PerScore._fields, noisy):
        what = f"the standard error of {name} is mostly that of the estimated spectra"
        checks.warn(f"{what}: a smaller rtol gives a smaller one.")
