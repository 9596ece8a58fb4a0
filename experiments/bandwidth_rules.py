"""Which rule for the bandwidths counts right: every candidate, where the count is known.

One half of each set chooses the bandwidths. The scores of the other half are compared with the
known number of modes, or with the known order. A candidate is judged on other sets than those that
it is chosen on.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterable

import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments import bandwidth_candidates as candidates
from experiments import known_modes, lab
from experiments.known_modes import EVERY, NAMED, OPEN, TOTAL, Half, Question
from experiments.lab import agreement, figures, tables

_LEVELS = 9
# Candidates that the tables and the figure show, as the rules of outputs and of prompts.
FIXED = {
    "variance rule": ("variance x 1", "variance x 1"),
    "half of it": ("variance x 0.5", "variance x 0.5"),
}
CHOSEN, KIND, LABELS, SHARE = (
    "chosen on other sets",
    "chosen on its kind",
    "labels",
    "labels, share",
)
_BY_LABELS = {LABELS: candidates.PAIRS, SHARE: candidates.SHARE}


@dataclasses.dataclass(frozen=True)
class BandwidthRules(lab.Study):
    """Which rule for the bandwidths gives the right number of modes?"""

    name = "bandwidth_rules"
    duration = "3 minutes"
    data = None
    runs = ((),)
    drawings = ("bandwidth_rules",)

    sets: tuple[str, ...] = lab.flag(
        tuple(known_modes.SETS), "The sets, at least three.", choices=tuple(known_modes.SETS)
    )
    rows: int = lab.flag(1000, "Rows of each half of a set, about, at most.", at_least=80)

    def prepare(self, load, seed):
        """Reads the sets and splits them."""
        if len(self.sets) < 3:
            raise ValueError(f"--sets: expected at least three, received {len(self.sets)}.")
        state = {
            name: known_modes.SETS[name](np.random.default_rng((seed, len(name))), self.rows)
            for name in self.sets
        }
        arrays = {
            f"{name}, half {part}, {role}": array
            for name, of in state.items()
            for part, half in enumerate(of.halves)
            for role, array in {**half.prompts, "outputs": half.outputs, "slot": half.slot}.items()
        }
        description = f"{len(state)} sets whose count or order is known"
        return self.ready(state=state, arrays=arrays, description=description)

    def axes(self):
        """Every set."""
        return {"set": self.sets}

    def compute(self, state, context, *, set):
        """The scores of one half at the bandwidths that the other half chooses.

        `value`, of order 2, and `truth`, by question and level. `order_one`: the scores of the last
        level of the first half at order 1, by FIXED. `counted`: whether the truth is a count.
        """
        halves, questions = state[set]
        rng = np.random.default_rng(context.shared_seed)
        rules = [
            candidates.by_distances(half.outputs, context.key)
            | candidates.by_labels(half.outputs, half.classes, rng)
            for half in halves
        ]
        free = [rule for rule in rules[0] if rule not in _BY_LABELS.values()]
        axes = {"question": [TOTAL, OPEN, NAMED], "half": [0, 1], "outputs": list(rules[0])}
        axes |= {"prompts": free, "level": list(range(_LEVELS))}
        value = xr.DataArray(np.full([len(of) for of in axes.values()], np.nan, np.float32), axes)
        truth = value[:, 0, 0, 0].drop_vars(["half", "outputs", "prompts"]).copy()
        one = xr.DataArray(
            np.full((3, len(FIXED)), np.nan), {"question": axes["question"], "fixed": list(FIXED)}
        )
        for part, half in enumerate(halves):
            x = candidates.squared_distances(half.outputs)
            of_x = rules[1 - part]
            for question in questions:
                context.say(question.name)
                of_t, t = dict.fromkeys(free, 1.0), None
                if question.name != TOTAL:
                    other = halves[1 - part].prompts[question.name]
                    of_t = candidates.by_distances(other, context.key)
                    t = candidates.squared_distances(half.prompts[question.name])
                widths = (np.array(list(of.values())) for of in (of_x, of_t))
                levels = slice(0, len(question.truth) - 1)
                found = candidates.counts((x, t), half.slot, question.levels, *widths)
                value.loc[question.name, part, :, :, levels] = found
                truth.loc[question.name, levels] = list(question.truth)
                if part == 0:
                    one.loc[question.name] = [
                        _order_one(half, question, of_x[a], of_t[b]) for a, b in FIXED.values()
                    ]
        counted = all(question.counted for question in questions)
        return xr.Dataset({"value": value, "truth": truth, "order_one": one, "counted": counted})

    def tables(self, run):
        """The finalists by set: errors of the count, Kendall's tau (reversed pairs), order 1.

        Then every rule: its median error over the sets (reversed pairs).
        """
        shown, rows = finalists(run.found), ("question", "set")
        yield tables.table(shown, rows=rows, columns="candidate", digits=2)
        yield tables.table(
            shown, rows=rows, columns="candidate", value="tau", letters="reversed", digits=2
        )
        off = abs(np.log(run.found.order_one / run.found.truth.max("level")))
        one = xr.Dataset({"value": off.where(run.found.counted.astype(bool))})
        yield tables.table(one, rows=rows, columns="fixed", digits=2)
        yield tables.table(
            over_sets(run.found), rows=("rule",), columns="of", letters="reversed", digits=2
        )

    @classmethod
    def figures(cls, runs):
        """The errors of the finalists in every set, a panel a question."""
        shown = finalists(runs[-1].found)

        def title(_, question):
            middle = shown.value.sel(question=question).median("set")
            first, second = (middle.sel(candidate=of).item() for of in (next(iter(FIXED)), CHOSEN))
            return (
                f"{question}: {first:.2f} by the variance rule, {second:.2f} chosen on other sets"
            )

        counted = shown.sel(set=runs[-1].found.counted.astype(bool))
        drawn = figures.facets(
            counted, x="set", hue="candidate", column="question", across=1, kind="points",
            title=title, y_label="|log(score / count)|", size=(8.0, 2.2),
        )  # fmt: skip
        n = f"{runs[-1].study.rows:,} rows a half at most; titles: medians over the sets"
        return {"bandwidth_rules": figures.caption(drawn, runs[-1], n=n)}


def _order_one(half: Half, question: Question, of_x: float, of_t: float) -> float:
    """Vendi or Conditional-Vendi of the last level."""
    rows = np.isin(half.slot, list(question.levels[-1]))
    x, kernel, method = half.outputs[rows], cv.Gaussian(of_x), cv.Exact()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Kernels that tell all prompts apart are meant to be.
        if question.name == TOTAL:
            return float(cv.vendi(x, kernel=kernel, method=method))
        kernels = {"output_kernel": kernel, "prompt_kernel": cv.Gaussian(of_t)}
        t = half.prompts[question.name][rows]
        return float(cv.conditional_vendi(x, t, **kernels, method=method))


def errors(found: xr.Dataset) -> xr.DataArray:
    """|log(score / count)|: the median of the levels, the mean of the halves; NaN without count."""
    off = abs(np.log(found.value / found.truth)).where(found.counted.astype(bool))
    return off.median("level").mean("half")


def ranked(found: xr.Dataset) -> xr.Dataset:
    """How many pairs of levels are `reversed`, of both halves, and Kendall's `tau` (NaN: no order).

    Scores that differ by rounding alone are neither in the known order nor reversed.
    """
    allowed = 1 + agreement.rounding(2.0)
    right = wrong = known = xr.zeros_like(found.value.isel(level=0, drop=True)).fillna(0)
    for i, j in itertools.combinations(range(found.sizes["level"]), 2):
        low, high = found.isel(level=i, drop=True), found.isel(level=j, drop=True)
        differ = (low.truth < high.truth) & high.value.notnull()
        known = known + differ
        right = right + (differ & (high.value > allowed * low.value))
        wrong = wrong + (differ & (low.value > allowed * high.value))
    right, wrong, known = (of.sum("half") for of in (right, wrong, known))
    return xr.Dataset({"reversed": wrong, "tau": (right - wrong) / known.where(known > 0)})


def best(error: xr.DataArray, sets: Iterable[str]) -> tuple[str, str]:
    """The rules of outputs and of prompts of the least median error over these sets.

    The error of a set is the mean of its questions'. Rules that need labels take no part.
    """
    free = error.sel(set=list(sets)).drop_sel(outputs=list(_BY_LABELS.values()))
    middle = free.mean("question").median("set")
    place = np.unravel_index(np.argmin(middle.values), middle.shape)
    return tuple(middle[axis].values[i].item() for axis, i in zip(middle.dims, place, strict=True))


def finalists(found: xr.Dataset) -> xr.Dataset:
    """Error and reversed pairs, by question and set, of FIXED and of the chosen candidates.

    CHOSEN is the best on the other sets, KIND on those others in which the same things count: every
    output, or classes. LABELS and SHARE take bandwidths of outputs from labelled pairs, and those
    of prompts as KIND.
    """
    error, order = errors(found), ranked(found)
    parts: list[xr.Dataset] = []
    for name in found.set.values:
        others = [other for other in found.set.values if other != name]
        alike = [other for other in others if (other in EVERY) == (name in EVERY)]
        kind = best(error, alike)
        rules = FIXED | {CHOSEN: best(error, others), KIND: kind}
        rules |= {of: (rule, kind[1]) for of, rule in _BY_LABELS.items()}
        of_set = [
            xr.Dataset({"value": error, "pairs": order.reversed, "tau": order.tau}).sel(
                set=name, outputs=x, prompts=t, drop=True
            )
            for x, t in rules.values()
        ]
        parts.append(
            xr.concat(of_set, xr.DataArray(list(rules), dims="candidate", name="candidate"))
        )
    along = xr.concat(parts, found.set)
    return along.assign(reversed=_words(along.pairs))


def over_sets(found: xr.Dataset) -> xr.Dataset:
    """The median error over the sets of every rule, of outputs and of prompts, with reversals.

    Its partner, for the prompts or for the outputs, is the best in hindsight.
    """
    error, pairs = errors(found), ranked(found).reversed.sum(("set", "question"))
    middle = error.mean("question").median("set")
    parts: list[xr.Dataset] = []
    x, t = best(error, found.set.values)
    for axis, partner in (("outputs", {"prompts": t}), ("prompts", {"outputs": x})):
        of = xr.Dataset({"value": middle, "pairs": pairs}).sel(partner, drop=True)
        parts.append(of.rename({axis: "rule"}))
    names = xr.DataArray(
        [f"outputs, prompts by {t}", f"prompts, outputs by {x}"], dims="of", name="of"
    )
    along = xr.concat(parts, names, join="outer")
    return along.assign(reversed=_words(along.pairs))


def _words(pairs: xr.DataArray) -> xr.DataArray:
    return "(" + pairs.fillna(0).astype(int).astype(str) + ")"


if __name__ == "__main__":
    lab.main(BandwidthRules)
