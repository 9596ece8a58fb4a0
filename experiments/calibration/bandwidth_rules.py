"""Which rule for the bandwidths counts right: every candidate, where the count is known.

The number of modes, or the order of diversity, of each set is known. One half of it chooses the
bandwidths at which the other half is scored.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr

import condvendi_jax as cv
from experiments import data, lab
from experiments.calibration.judgements import Responses
from experiments.lab import agreement, figures, style, tables
from experiments.lab.models import rows_by_cell

OF_PAIRS, OF_SHARE = "pairs", "pairs with their share"
_PARTS = (1.0, 0.7, 0.5, 0.35, 0.25)
_PARTITIONS = 16  # The noise that they leave in a bandwidth is 1 to 2%.
_LADDER = 2.0 ** (np.arange(-24, 25) / 6)  # Of the median distance, as in the papers' rules.
_LEVELS = 9
# Candidates that the tables and the figure show, as the rules of outputs and of prompts.
FIXED = {
    "variance rule": ("variance x 1", "variance x 1"),
    "half of the default rule": ("default x 0.5", "default x 0.5"),
}
CHOSEN, KIND = "chosen on other sets", "chosen on its kind"
_BY_LABELS = {"labels": OF_PAIRS, "labels, share": OF_SHARE}
# The questions: RKE; Conditional-RKE; and Conditional-RKE where prompts name what is counted.
TOTAL, OPEN, NAMED = "total", "conditional", "conditional, named"
# Sets in which every output of a prompt counts as one; in the others classes of outputs do.
EVERY = ("designs", "captioning", "language")
_WORDINGS = 4  # Of the prompts of types.
_MODES, _PROMPTS = 6, 6  # Of the mixtures: most outputs a prompt, and prompts.


class Question(NamedTuple):
    """What is asked of a set."""

    name: str  # That of its prompts; TOTAL for RKE of the outputs alone.
    levels: Sequence[Sequence[int]]  # The slots that each level scores together.
    truth: Sequence[float]  # The modes of each level, or its rank.
    counted: bool = True  # Whether these are modes.


class Half(NamedTuple):
    """Some rows of a set."""

    outputs: np.ndarray  # `[n, d]`.
    prompts: Mapping[str, np.ndarray]  # By name.
    slot: np.ndarray  # Which output of its prompt, type, temperature or third each row is.
    classes: np.ndarray | None = None  # Where people would call others of its class the same.


KnownSet = tuple[tuple[Half, ...], tuple[Question, ...]]  # Two halves, and what is asked of them.


def _grouped(group, slot, rng):
    """The rows `[groups, slots, k]` of the groups with rows in every slot, all in random order."""
    return rng.permutation(rows_by_cell(group, slot, rng.uniform(size=len(group))))


def _halves(pairs, rows, most, prompt_rows=None):
    """The rows `[groups, slots, k]`, every second group in a half, at most so many rows in each."""
    groups, slots, k = rows.shape
    k = max(1, min(k, most * 2 // (groups * slots)))
    kept = max(1, min(groups // 2, most // (slots * k)))
    found = []
    for part in range(2):
        chosen = np.arange(part, 2 * kept, 2)
        some = rows[chosen, :, :k].ravel()
        prompts = some if prompt_rows is None else np.repeat(prompt_rows[chosen], slots * k)
        slot = np.tile(np.repeat(np.arange(slots), k), kept)
        found.append(Half(pairs.outputs[some], {OPEN: pairs.prompts[prompts]}, slot))
    return tuple(found)


def _designs(name, ks, of, rng, most):
    """Prompts with k = 1, 2, ... different outputs, those of `of` in the same order for all."""
    pairs = data.load(name)
    slot, names = pd.factorize(pairs.labels[of], sort=True)
    slot = rng.permutation(len(names))[slot]
    rows = _grouped(pairs.prompt_numbers, slot, rng)[:, : max(ks), :1]
    return _halves(pairs, rows, most), (Question(OPEN, [range(k) for k in ks], ks),)


def _ordered(name, group, levels, rng, most):
    """Outputs of the same prompts, more diverse from one model to the next."""
    pairs = data.load(name)
    slot, _ = pd.factorize(pairs.labels["models"], sort=True)
    rows = _grouped(pd.factorize(pairs.labels[group], sort=True)[0], slot, rng)
    ranks = range(1, levels + 1)
    question = Question(OPEN, [(slot,) for slot in range(levels)], ranks, counted=False)
    # One wording of the prompt of each group: its first.
    return _halves(pairs, rows, most, rows[:, 0, 0]), (question,)


def _types(name, rng, most):
    """Pictures of j types, with prompts that leave the type open and prompts that name it."""
    pairs = data.load(name)
    types, names = pd.factorize(pairs.labels["types"], sort=True)
    wording, _ = pd.factorize(pairs.labels["wording"], sort=True)
    count = len(names)
    types = rng.permutation(count)[types]
    each = min(np.bincount(types).min() // 2, most // count)
    worded = rows_by_cell(wording, types)[:_WORDINGS, :, 0].T
    drawn = [rng.permutation(np.flatnonzero(types == t)) for t in range(count)]
    slot = np.repeat(np.arange(count), each)
    said = worded[slot, np.arange(len(slot)) % each % _WORDINGS]
    prompts = {OPEN: pairs.prompts[said], NAMED: pairs.further["typed_prompts"][said]}
    parts = ([of[first : first + each] for of in drawn] for first in (0, each))
    halves = tuple(Half(pairs.outputs[np.concatenate(of)], prompts, slot, slot) for of in parts)
    js = (1, 2, 4, 6, 8, 10)
    truths = {TOTAL: js, OPEN: js, NAMED: (1,) * len(js)}
    levels = [range(j) for j in js]
    return halves, tuple(Question(of, levels, truth) for of, truth in truths.items())


def _mixture(dimensions, spread, rng, most):
    """Six prompts with k = 1 ... 6 modes of outputs each, all at distances of 1 or about sqrt(2).

    Rows differ from their centre by a normal vector of expected squared norm `spread`^2.
    """
    slot, prompt = np.divmod(np.arange(_MODES * _PROMPTS), _PROMPTS)
    slot, prompt = (np.repeat(of, most // len(slot)) for of in (slot, prompt))
    centres = rng.normal(size=(_MODES * _PROMPTS, dimensions))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    if dimensions == 2:
        centres = np.stack(np.divmod(rng.permutation(len(centres)), _MODES), axis=1)

    def draw(mode: np.ndarray) -> np.ndarray:
        noise = rng.normal(scale=spread / np.sqrt(dimensions), size=(len(mode), dimensions))
        return (centres[mode] + noise).astype(np.float32)

    modes = slot * _PROMPTS + prompt
    halves = tuple(Half(draw(modes), {OPEN: draw(prompt)}, slot, modes) for _ in range(2))
    ks = range(1, _MODES + 1)
    levels = [range(k) for k in ks]
    total = Question(TOTAL, levels, [_PROMPTS * k for k in ks])
    return halves, (total, Question(OPEN, levels, ks))


def _human(rng, most):
    """Sets of responses in three thirds of each task, by what people say of their diversity."""
    pairs = data.load("human")
    responses = Responses.of(pairs)
    of_task = pd.Series(responses.labels["people"]).groupby(responses.task)
    third = 3 * (of_task.rank(method="first").astype(int) - 1) // of_task.transform("size")
    contexts = rng.permutation(responses.context.max() + 1)
    found = []
    for part in range(2):
        chosen, slot = [], []
        for context in contexts[part::2]:
            for one in np.flatnonzero(responses.context == context):
                chosen.append(responses.members[one])
                slot += [third[one]] * len(chosen[-1])
            if len(slot) > most:
                break
        rows = np.concatenate(chosen)
        found.append(Half(pairs.outputs[rows], {OPEN: pairs.prompts[rows]}, np.array(slot)))
    question = Question(OPEN, [(0,), (1,), (2,)], (1, 2, 3), counted=False)
    return tuple(found), (question,)


SETS: dict[str, Callable[[np.random.Generator, int], KnownSet]] = {
    "designs": partial(_designs, "emoji", range(1, 10), "models"),
    "captioning": partial(_designs, "captioning", range(1, 6), "caption"),
    "language": partial(_designs, "language", (1, 2, 4, 8, 16), "models"),
    **{name: partial(_types, name) for name in ("dogs", "fruits", "clothing", "sketched_animals")},
    "plane": partial(_mixture, 2, 0.15),
    "mixture": partial(_mixture, 64, 0.4),
    "quickdraw": partial(_ordered, "quickdraw", "types", 6),
    "sketches": partial(_ordered, "sketches", "types", 7),
    "stories": partial(_ordered, "stories", "prompt", 4),
    "human": _human,
}


def squared_distances(points: np.ndarray) -> np.ndarray:
    """Of all rows `[n, n]`, in float64; 0 where rows are equal."""
    rows = points.astype(np.float64) - points[:1]
    norms = np.sum(rows**2, axis=1)
    squares = norms[:, None] + norms - 2 * rows @ rows.T
    # Rounding leaves equal rows a distance of about 1e-15.
    return np.where(squares < 1e-12 * norms.max(), 0, squares)


def by_distances(points: np.ndarray, key: jax.Array) -> dict[str, float]:
    """The bandwidth of rows `[n, d]` by every rule that needs no labels, NaN where it has none.

    `A x p` is a multiple of a rule of the library, or of the median distance of a row to the
    nearest other one. `plateau`: where log RKE changes least with the log of the bandwidth, between
    a tenth and nine tenths of its largest value. `least / 3`, `1% / 3`: a third of the smallest
    distance, or of their first percentile. `90% apart`, `50% apart`: the largest at which RKE is
    that share of its value where all different rows are apart.
    """
    squares = squared_distances(points)
    apart = np.sqrt(squares[np.triu_indices(len(squares), 1)])
    apart = apart[apart > 0]
    nearest = np.sqrt(np.min(np.where(squares > 0, squares, np.inf), axis=1))
    widths = {"nearest": float(np.median(nearest)), "median": float(np.median(apart))}
    for rule in ("variance", "std"):
        ruled = cv.bandwidth_by_rule(points, rule, key=key, partitions=_PARTITIONS)
        widths[rule] = ruled.bandwidth or math.nan
    chosen = cv.Pairs(points, rule="auto").bandwidths["outputs"]
    widths["default"] = chosen.bandwidth or math.nan
    found = {f"{rule} x {p:g}": p * width for p in _PARTS for rule, width in widths.items()}
    found |= {"least / 3": apart.min() / 3, "1% / 3": np.quantile(apart, 0.01) / 3}
    ladder, few = widths["median"] * _LADDER, squares.astype(np.float32)
    logs = -np.log([np.mean(np.exp(few / np.float32(-(w**2))), dtype=np.float64) for w in ladder])
    largest = -np.log(np.mean(squares == 0))
    slopes = np.abs(np.gradient(logs, np.log(ladder)))
    inner = (logs > 0.1 * largest) & (logs < 0.9 * largest)
    found["plateau"] = ladder[np.argmin(np.where(inner, slopes, np.inf))]
    for share in (0.9, 0.5):
        # Logarithms are about linear in that of the bandwidth; RKE falls with it.
        wanted = largest + math.log(share)
        found[f"{share:.0%} apart"] = math.exp(np.interp(-wanted, -logs, np.log(ladder)))
    return {rule: float(width) for rule, width in found.items()}


def by_labels(
    outputs: np.ndarray, classes: np.ndarray | None, rng: np.random.Generator
) -> dict[str, float]:
    """The bandwidths of outputs `[n, d]` from pairs of them with labels; NaN without classes.

    `OF_PAIRS` is the likeliest; under `OF_SHARE` the mean squared kernel over random pairs is the
    share of them that are the same.
    """
    if classes is None:
        return dict.fromkeys((OF_PAIRS, OF_SHARE), math.nan)
    one, two = rng.integers(0, len(outputs), (2, 20_000))
    one, two = one[one != two], two[one != two]
    same = classes[one] == classes[two]
    shares = {OF_PAIRS: None, OF_SHARE: float(same.mean())}
    of_pairs = partial(cv.bandwidth_from_pairs, outputs[one], outputs[two], same)
    return {name: of_pairs(share=share) for name, share in shares.items()}


def counts(
    squares: Sequence[np.ndarray],
    slot: np.ndarray,
    levels: Sequence[Sequence[int]],
    *widths: np.ndarray,
) -> np.ndarray:
    """Conditional-RKE at every pair of bandwidths, `[outputs, prompts, levels]`.

    From squared distances `[n, n]` of outputs and prompts (all 0: RKE), the slot of each row, and
    the bandwidths of both; a level is the rows of some slots. A bandwidth of NaN gives NaN.
    """
    found = []
    for level in levels:
        rows = np.isin(slot, list(level))
        k_x, k_t = (
            np.exp(np.outer(np.float32(-1 / own**2), np.float32(of[np.ix_(rows, rows)])))
            for of, own in zip(squares, widths, strict=True)
        )
        found.append(k_t.sum(axis=1, dtype=np.float64) / (k_x @ k_t.T))
    return np.stack(found, axis=-1)


class BandwidthRules(lab.Study):
    """Which rule for the bandwidths gives the right number of modes?"""

    control = "Bandwidths are chosen on one half and judged on the other; sets differ in size."
    grows = ("set", "level")
    version = 2
    data = None

    sets: tuple[str, ...] = lab.flag(tuple(SETS), "The sets, at least three.", choices=tuple(SETS))
    rows: int = lab.flag(1000, "Rows of each half of a set, about, at most.", at_least=80)

    def prepare(self, load, seed):
        if len(self.sets) < 3:
            raise ValueError(f"--sets: expected at least three, received {len(self.sets)}.")
        state = {
            name: SETS[name](np.random.default_rng((seed, len(name))), self.rows)
            for name in self.sets
        }
        arrays = {
            f"{name}, half {part}, {role}": array
            for name, (halves, _) in state.items()
            for part, half in enumerate(halves)
            for role, array in {**half.prompts, "outputs": half.outputs, "slot": half.slot}.items()
        }
        description = f"{len(state)} sets whose count or order is known"
        return self.ready(state=state, arrays=arrays, description=description)

    def axes(self):
        return {"set": self.sets}

    def compute(self, state, context, *, set):
        """The scores of one half at the bandwidths that the other half chooses.

        `value`, of order 2, and `truth`, by question and level. `order_one`: the scores of the last
        level of the first half at order 1, by FIXED. `counted`: whether the truth is a count.
        """
        halves, questions = state[set]
        rng = np.random.default_rng(context.shared_seed)
        free = [by_distances(half.outputs, context.key) for half in halves]
        rules = [
            of | by_labels(half.outputs, half.classes, rng)
            for of, half in zip(free, halves, strict=True)
        ]
        values, ones = [], []
        for question, (part, half) in itertools.product(questions, enumerate(halves)):
            context.say(question.name)
            of_x, of_t = rules[1 - part], dict.fromkeys(free[0], 1.0)
            t = np.zeros((len(half.slot), 1))  # One prompt: RKE.
            if question.name != TOTAL:
                t, other = (of.prompts[question.name] for of in (half, halves[1 - part]))
                of_t = by_distances(other, context.key)
            squares = [squared_distances(points) for points in (half.outputs, t)]
            widths = (np.array(list(of.values())) for of in (of_x, of_t))
            values.append(counts(squares, half.slot, question.levels, *widths))
            if part == 0:
                rows = np.isin(half.slot, list(question.levels[-1]))
                points = half.outputs[rows], t[rows]
                ones.append([_order_one(*points, of_x[a], of_t[b]) for a, b in FIXED.values()])
        by_half = np.array(values, np.float32).reshape(len(questions), 2, *values[0].shape)
        truths = np.array([question.truth for question in questions], np.float32)
        variables = {
            "value": (("question", "half", "outputs", "prompts", "level"), by_half),
            "truth": (("question", "level"), truths),
            "order_one": (("question", "fixed"), ones),
            "counted": all(question.counted for question in questions),
        }
        axes = {"question": [question.name for question in questions], "half": [0, 1]}
        axes |= {"outputs": list(rules[0]), "prompts": list(free[0]), "fixed": list(FIXED)}
        found = xr.Dataset(variables, axes | {"level": range(len(truths[0]))})
        return found.reindex(question=[TOTAL, OPEN, NAMED], level=np.arange(_LEVELS))

    def tables(self, run):
        """The finalists by set: errors of the count, Kendall's tau (reversed pairs), order 1."""
        shown, of = finalists(run.found), {"rows": ("question", "set"), "digits": 2}
        yield tables.table(shown, columns="candidate", **of)
        told = shown.assign(reversed="(" + shown.pairs.fillna(0).astype(int).astype(str) + ")")
        yield tables.table(told, columns="candidate", value="tau", letters="reversed", **of)
        off = abs(np.log(run.found.order_one / run.found.truth.max("level")))
        one = xr.Dataset({"value": off.where(run.found.counted.astype(bool))})
        yield tables.table(one, columns="fixed", **of)

    @classmethod
    def figures(cls, runs):
        shown = finalists(runs[-1].found)
        rule, chosen = shown.value.median("set").isel(candidate=[0, 2]).transpose("candidate", ...)
        counted = shown.sel(set=runs[-1].found.counted.astype(bool))
        drawn = figures.facets(
            counted, x="set", hue="candidate", column="question", across=1, kind="points",
            y_label="|log(score / count)|", size=(7.0, 2.1), sharey=True, x_label="",
        )  # fmt: skip
        rule, chosen = (f"{v.min():.2f} to {v.max():.2f}" for v in (rule, chosen))
        style.headline(drawn, f"Median errors: {rule} by the variance rule, {chosen} if {CHOSEN}")
        n = f"{runs[-1].study.rows:,} rows a half at most"
        return {"bandwidth_rules": figures.caption(drawn, runs[-1], n=n)}

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        found, shown, error = run.found, finalists(run.found), errors(run.found)
        reversed_ = ranked(found).reversed.sum("question")
        middle, (x, t) = error.mean("question").median("set"), best(error, found.set.values)
        first, half = (reversed_.sel(outputs=x, prompts=t) for x, t in FIXED.values())
        grid, _, one = run.study.tables(run)
        over = shown[["pairs", "known"]].sum(("question", "set"))
        over["middle"] = shown.value.mean("question").median("set")
        words = {"middle": "median", "pairs": "reversed pairs", "known": "pairs"}
        for name, word in words.items():
            grid.add_row("all", word, *(f"{value:.3g}" for value in over[name].values))
        last = found.value.isel(level=5).mean("half").sel(question=TOTAL)

        def of(rule, name):
            x, t = FIXED[rule.replace("_", " ")]
            return last.sel(set=name, outputs=x, prompts=t)

        return {
            **{"errors": grid, "order_one": one, "value": shown.value, "of": of, "half": half},
            **over,
            "best": (x, t, middle.min(), middle.sel(outputs=x, prompts="variance x 1")),
            "fewer": (half < first).sum(),
            "more": (half > first).sum(),
            "none": (reversed_.sum("set") == 0).sum(),
            "elsewhere": sum(chosen_by_order(found, name) for name in found.set.values),
        }


def _order_one(x, t, of_x, of_t):
    """Conditional-Vendi of outputs and prompts at two bandwidths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Kernels that tell all prompts apart are meant to be.
        pairs = cv.Pairs(x, t, output_kernel=cv.Gaussian(of_x), prompt_kernel=cv.Gaussian(of_t))
        return float(cv.conditional_vendi(pairs, method=cv.Exact()))


def errors(found: xr.Dataset) -> xr.DataArray:
    """|log(score / count)|: the median of the levels, the mean of the halves; NaN without count."""
    off = abs(np.log(found.value / found.truth)).where(found.counted.astype(bool))
    return off.median("level").mean("half")


def ranked(found: xr.Dataset) -> xr.Dataset:
    """How many of the `known` pairs of levels, of both halves, are `reversed`, and Kendall's `tau`.

    Scores that differ by rounding alone are neither in the known order nor reversed.
    """
    allowed = 1 + agreement.rounding(2.0)
    both = np.triu_indices(found.sizes["level"], 1)
    low, high = (found.isel(level=xr.DataArray(of, dims="pair")) for of in both)
    differ = (low.truth < high.truth) & high.value.notnull()
    right, wrong = high.value > allowed * low.value, low.value > allowed * high.value
    known, right, wrong = (
        of.sum(("half", "pair")) for of in (differ, differ & right, differ & wrong)
    )
    tau = (right - wrong) / known.where(known > 0)
    return xr.Dataset({"reversed": wrong, "known": known, "tau": tau})


def best(error: xr.DataArray, sets: Iterable[str]) -> tuple[str, str]:
    """The rules of outputs and of prompts of the least median error over these sets.

    The error of a set is the mean of its questions'. Rules that need labels take no part.
    """
    free = error.sel(set=list(sets)).drop_sel(outputs=list(_BY_LABELS.values()))
    middle = free.mean("question").median("set").stack(rules=("outputs", "prompts"))
    return middle.rules[middle.values.argmin()].item()


def finalists(found: xr.Dataset) -> xr.Dataset:
    """Error and reversed pairs, by question and set, of FIXED and of the chosen candidates.

    CHOSEN is the best on the other sets, KIND on those others in which the same things count: every
    output, or classes. Those by labels take bandwidths of outputs from labelled pairs, and those
    of prompts as KIND.
    """
    error = errors(found)
    whole, parts = ranked(found).rename(reversed="pairs").assign(value=error), []
    for name in found.set.values:
        others = [other for other in found.set.values if other != name]
        kind = best(error, [of for of in others if (of in EVERY) == (name in EVERY)])
        rules = FIXED | {CHOSEN: best(error, others), KIND: kind}
        rules |= {of: (rule, kind[1]) for of, rule in _BY_LABELS.items()}
        x, t = (
            xr.DataArray([rule[side] for rule in rules.values()], {"candidate": list(rules)})
            for side in range(2)
        )
        parts.append(whole.sel(set=name, outputs=x, prompts=t).drop_vars(("outputs", "prompts")))
    return xr.concat(parts, found.set)


def chosen_by_order(found: xr.Dataset, name: str) -> float:
    """How many pairs of a set the candidate of the largest mean tau on the others reverses."""
    order = ranked(found).drop_sel(outputs=list(_BY_LABELS.values()))
    tau = order.tau.drop_sel(set=name).mean(("set", "question")).stack(rules=("outputs", "prompts"))
    own = order.reversed.sel(set=name).sum("question").stack(rules=("outputs", "prompts"))
    return own.isel(rules=tau.argmax("rules")).item()
