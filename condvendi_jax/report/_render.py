"""Results as text: aligned tables for a terminal, Markdown, CSV, and notes on what they mean."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # The results themselves import this module.
    from condvendi_jax.bandwidth import RuledBandwidth
    from condvendi_jax.inference._between import Between
    from condvendi_jax.inference._population import Population
    from condvendi_jax.inference._profile import PairProfile, Profile
    from condvendi_jax.inference._prompt_table import PromptTable
    from condvendi_jax.inference._results import (
        Comparison,
        ErrorsBy,
        Evaluation,
        Ranking,
        ScoredOrder,
    )
    from condvendi_jax.inference.saturation import Limit

Rows = Sequence[Sequence[str]]
_HEADINGS = {"vendi": "total", "conditional": "conditional", "information": "information"}
_ORDERS = {1.0: "1 (Vendi)", 2.0: "2 (RKE)"}
ERRORS_COVER = "one standard error of the sample at these bandwidths, not of their choice"
MATCHED = {
    "rows": "matched row by row",
    "prompts": "matched by equal prompts",
    "labels": "matched by the labels of their groups",
    "none": "not matched: errors of differences are those of independent samples",
}
_ROUNDED = 0.01  # Relative: what rounding may do above this is said.
_SATURATED = {
    ("vendi", "smallest"): "all outputs count as the same",
    ("vendi", "largest"): "all outputs count as different",
    ("conditional", "smallest"): "similar prompts count as having the same output",
    ("conditional", "largest"): "all outputs count as different, and all prompts as similar",
    ("information", "smallest"): "the outputs say nothing about the prompts",
    ("information", "largest"): "every prompt counts as having an output of its own",
}


def aligned(heading: Sequence[str], rows: Rows) -> str:
    """Columns of equal width, the first to the left and the others to the right."""
    everything = [list(heading), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def markdown(heading: Sequence[str], rows: Rows) -> str:
    """A table of Markdown; a vertical bar in a cell is escaped."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heading), "|" + "---|" * len(heading), *map(line, rows)])


def with_error(value: float, error: float | None) -> str:
    """A value to the digits that its error, if there is one, leaves it: '4.63 ± 0.12'."""
    if error is None or math.isnan(error):
        return f"{value:.4g}"
    if not 1e-6 * abs(value) < error < math.inf:  # Zero, or one of rounding alone.
        return f"{value:.4g} ± {error:.2g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def cut(truncation: int | None) -> str:
    """The truncation as the end of a score's name."""
    return "" if truncation is None else f", t = {truncation:,}"


def score_name(score: str, order: float, truncation: int | None) -> str:
    """A score in words: 'Conditional-Vendi', 'RKE', 'Vendi, t = 50'."""
    kind = "RKE" if order == 2 else "Vendi"
    prefix = "" if score == "vendi" else f"{score.capitalize()}-"
    of_order = "" if order in (1, 2) else f" of order {order:g}"
    return prefix + kind + of_order + cut(truncation)


def evaluation(found: Evaluation) -> str:
    """The table of one model, and below it what its numbers mean."""
    kind = "pairs" if len(found.names) > 1 else "outputs"
    title = f"{found.n:,} {kind}, {found.dtype}"
    return "\n".join([title, aligned(*scores_by_order(found)), *_notes_on_evaluation(found)])


def scores_by_order(found: Evaluation) -> tuple[list[str], list[list[str]]]:
    """The heading, and a row for each order: the scores of one model with errors."""
    rows = []
    for scored in found.orders:
        plain = [_cell(scored, name) for name in found.names]
        of = scored.population
        if of is None or not found.unbiased:
            rows.append([_order(scored), *plain])
            continue
        rows.append([_order(scored), *(_unbiased_cell(of, name) for name in found.names)])
        rows.append([f"{_order(scored)}, plug-in", *plain])
    return ["order", *(_HEADINGS[name] for name in found.names)], rows


def _unbiased_cell(of: Population, name: str) -> str:
    """An unbiased score with its error and its interval."""
    errors, intervals = of.standard_errors, of.intervals
    ends = None if intervals is None else getattr(intervals, name)
    cell = unbiased_cell(getattr(of.values, name), errors and getattr(errors, name), ends)
    return f"{cell} {interval(ends)}" if ends and math.isfinite(ends[1]) else cell


def unbiased_cell(value: float, error: float | None, ends: Sequence[float] | None) -> str:
    """An unbiased score with its error: 'more than 4.2' where its interval has no upper end."""
    if math.isnan(value):
        return "-"
    if ends and math.isinf(ends[1]):
        return f"more than {ends[0]:.4g}"
    return with_error(value, error)


def interval(ends: Sequence[float]) -> str:
    """An interval: '[4.2, 5.6]'."""
    return "[{:.4g}, {:.4g}]".format(*ends)


def _order(scored: ScoredOrder) -> str:
    """The order for a table: '1 (Vendi)', 'inf, t = 50'."""
    found = scored.decomposition
    return _ORDERS.get(found.order, f"{found.order:g}") + cut(found.truncation)


def _cell(scored: ScoredOrder, name: str) -> str:
    result, errors = scored.decomposition, scored.standard_errors
    cell = with_error(float(getattr(result, name)), errors and float(getattr(errors, name)))
    if result.estimation is not None:
        cell += " [{:.4g}, {:.4g}]".format(*getattr(result.intervals, name))
    return cell


def unbiased(evaluations: Sequence[Evaluation], plug_in: str) -> list[str]:
    """What unbiased scores of order 2 are of; `plug_in` says where the papers' are shown."""
    found = [o.population for e in evaluations for o in e.orders if o.population and e.unbiased]
    if not found:
        return []
    prompts = [0 if of.answers.kind is None else int(of.answers.kind.max()) + 1 for of in found]
    whose, sample = "any number of outputs", "outputs"
    if min(prompts):
        fewest = f"{min(prompts):,} prompts"
        whose = f"{fewest} and any number of answers to each"
        sample = "prompts and their answers"
    notes = [f"order 2: of {whose}; {plug_in}: the papers' score, which grows with n"]
    if any(of.intervals is not None for of in found):
        notes.append(f"± and 95% intervals [low, high] of order 2: with {sample} as a sample")
    left_out = max(of.answers.left_out for of in found)
    if left_out:
        notes.append(f"left out of order 2: {left_out:,} prompts with a single answer")
    notes += [f"no errors of order 2: {of.withheld}" for of in found[:1] if of.withheld]
    return notes


def fixed_prompts(found: Evaluation) -> list[str]:
    """The errors of unbiased scores over other answers to the same prompts."""
    for scored in found.orders:
        fixed = scored.population and scored.population.fixed_errors
        if fixed is not None and found.unbiased:
            each = [f"{_HEADINGS[name]} ± {getattr(fixed, name):.2g}" for name in found.names]
            return [f"order 2 with these prompts fixed, over other answers: {', '.join(each)}"]
    return []


def slopes(found: Evaluation) -> list[str]:
    """How far scores that grow with the rows are from settled."""
    prompts = found.distinct_prompts
    what = "answers to each prompt" if prompts and 1 < prompts < found.n else "outputs"
    return [
        f"order {_order(scored)} grew with the last doubling of the {what} by "
        + ", ".join(f"{_HEADINGS[n]} {getattr(scored.slope, n):+.2g}" for n in found.names)
        for scored in found.orders
        if scored.slope is not None
    ]


def _notes_on_evaluation(found: Evaluation) -> list[str]:
    notes = _bandwidths(found.bandwidths)
    notes += [*unbiased([found], "plug-in"), *fixed_prompts(found), *slopes(found)]
    if found.elsewhere:
        notes.append(elsewhere(found))
    notes += [f"saturated: {item}" for item in found.advice]
    estimated = {o.decomposition.method for o in found.orders if o.decomposition.estimation}
    if estimated:
        notes.append(
            f"[low, high]: estimated ({', '.join(sorted(estimated))}), the 95% interval of what "
            "all eigenvalues would give"
        )
    notes += [
        f"order {_order(scored)}: rounding to {found.dtype} may move scores by {moved:.0%}; use x64"
        for scored in found.orders
        if (moved := math.expm1(max(scored.decomposition.rounding or (0,)))) > _ROUNDED
    ]
    notes += errors(found.orders)
    missing = [_order(scored) for scored in found.orders if scored.standard_errors is None]
    if missing:
        notes.append(f"no standard errors were computed of order {', '.join(missing)}")
    limits: dict[tuple[str, Limit], list[str]] = {}
    for scored in found.orders:
        for name, limit in scored.saturated.items():
            if name != "vendi" and scored.saturated.get("vendi") != "smallest":
                limits.setdefault((name, limit), []).append(_order(scored))
    notes += [  # The advice says it of the outputs; where they are alike, all three scores are 1.
        f"saturated: {_HEADINGS[name]} of order {', '.join(orders)} is {_saturation(name, limit)}"
        for (name, limit), orders in limits.items()
    ]
    for scored in found.orders:
        noise = scored.bandwidth_errors
        if found.unbiased and scored.population is not None:
            noise = scored.population.bandwidth_errors
        if noise is not None:
            spread = ", ".join(
                f"{_HEADINGS[name]} by ± {float(getattr(noise, name)):.2g}" for name in found.names
            )
            notes.append(
                f"choice of bandwidth, order {_order(scored)}: other draws of the rule's subsets "
                f"move {spread}"
            )
    return notes


def elsewhere(found: Evaluation) -> str:
    """The scores of order 2 at half and at twice the bandwidths, in a line."""
    assert found.elsewhere is not None  # The caller has seen to it.
    scores = [
        f"{_HEADINGS[name]} "
        + " and ".join(f"{float(getattr(of, name)):.4g}" for of in found.elsewhere.values())
        for name in found.names
    ]
    return f"order 2 at half and at twice the bandwidths: {', '.join(scores)}"


def _bandwidths(bandwidths: Mapping[str, RuledBandwidth]) -> list[str]:
    return [
        f"bandwidth of {name}: " + (f"{width:.4g}, " if width else "") + rule
        for name, (width, rule, _) in bandwidths.items()
    ]


def errors(orders: Sequence[ScoredOrder]) -> list[str]:
    """What errors cover, and how they were computed where there are any."""
    words: dict[str, list[str]] = {}
    for scored in orders:
        if scored.errors_by is not None:
            own = words.setdefault(errors_in_words(scored.errors_by), [])
            own += [_order(scored)] if _order(scored) not in own else []
    several = len(words) > 1
    found = "; ".join(f"order {', '.join(o)}: {w}" if several else w for w, o in words.items())
    return [f"±: {ERRORS_COVER}; {found}"] if words else []


def errors_in_words(by: ErrorsBy) -> str:
    """How errors were computed: 'from the influences of 1,000 rows'."""
    if by.method == "influences":
        units = "prompts" if by.units == "rows of one prompt" else by.units
        doubt = "" if by.reason is None else f", but not given: {by.reason}"
        return f"from the influences of {by.groups:,} {units}{doubt}"
    because = "" if by.reason is None else f", because {by.reason}"
    return f"from deletions of {by.groups} groups of {by.units}{because}"


def _saturation(score: str, limit: Limit) -> str:
    if limit == "equal":
        return "all values are equal up to rounding"
    value = "1" if limit == "smallest" else "as large as it can be"
    return f"{value} up to rounding, because {_SATURATED[score, limit]}"


def between(found: Between) -> str:
    """The number of different models in a line, the overlaps as a table, and what they mean."""
    return "\n".join([different_models(found), aligned(*overlaps(found)), *notes_on_between(found)])


def different_models(found: Between) -> str:
    """The number of different models in a line."""
    limit, largest = f"{len(found.models)}", f"{found.largest:.4g}"
    if largest != limit:
        limit += f" (at most {largest}, because prompts differ between models)"
    number = with_error(found.number, found.standard_error)
    words = "effective number of different models" + _given(found)
    return f"{words}, order 2: {number} of {limit}"


def _given(found: Between) -> str:
    return " given the prompts" if found.paired else ""


def notes_on_between(found: Between) -> list[str]:
    """What the overlaps are, and where the errors come from."""
    undefined = any(math.isnan(own) for row in found.overlaps.tolist() for own in row)
    notes = [
        f"overlap: the share of their outputs that two models have in common{_given(found)}; 1 if "
        "they say the same, 0 if nothing is common"
        + (", - if they have no prompt in common" if undefined else "")
    ]
    if found.left_out:
        notes.append(
            f"left out of different models and overlaps: {found.left_out} prompts to which a model "
            "has a single answer"
        )
    if found.groups is not None:
        notes.append(
            "± of different models and overlaps: one standard error of the sample, from deletions "
            f"of {found.groups} groups of {found.units}"
        )
    return notes


def overlaps(found: Between) -> tuple[list[str], list[list[str]]]:
    """The heading, and a row for each model: its overlap with every other."""

    def cell(value: float, error: float) -> str:
        """Neither a number nor an error smaller than this is more than rounding."""
        if math.isnan(value):
            return "-"
        return with_error(round(value, 5) + 0.0, error if error >= 1e-5 else None)

    rows = zip(found.models, found.overlaps, found.overlap_errors, strict=True)
    return ["overlap", *found.models], [
        [name, *map(cell, own, errors)] for name, own, errors in rows
    ]


def comparison(found: Comparison) -> str:
    """The tables of several models, and below them what their numbers mean."""
    heading, rows = differences(found)
    words = [f"{ranking.name}: {ranking_in_words(ranking)}" for ranking in found.rankings]
    words = [line + _intervals(own) for line, own in zip(words, found.rankings, strict=True)]
    table = [aligned(heading, rows), ""] if rows else []
    if found.between:
        table += [different_models(found.between), aligned(*overlaps(found.between)), ""]
    notes = notes_on_comparison(found)
    over = _over_bandwidths(found)
    return "\n".join([aligned(*scores_by_model(found)), "", *words, "", *over, *table, *notes])


def _intervals(found: Ranking) -> str:
    """The intervals of a few models' unbiased scores, to be added to their ranking."""
    if found.population is None or len(found.values) > _LISTED:
        return ""
    each = [
        f"{name} {interval(ends)}"
        for name, ends in found.population.items()
        if math.isfinite(ends[1])
    ]
    return f"; {listed(each)}" if each else ""


def _over_bandwidths(found: Comparison) -> list[str]:
    """Where the order of the models holds, with a heading; nothing without a profile."""
    if found.profile is None:
        return []
    heading, sentences = over_bandwidths(found.profile)
    return [heading, *sentences, ""]


def over_bandwidths(found: Profile) -> tuple[str, list[str]]:
    """By the main score: a heading, and where the order of the models holds in sentences."""
    score, widths = found.main, found.bandwidths
    heading = (
        f"{score_name(score, found.order, None)} {_moving(found)}, {found.axis} from "
        f"{widths[0]:.3g} to {widths[-1]:.3g}:"
    )
    return heading, leads(found, score)


def comparison_in_markdown(found: Comparison) -> str:
    """Both tables and their notes in Markdown."""
    heading, rows = differences(found)
    tables = [markdown(*scores_by_model(found)), *([markdown(heading, rows)] if rows else [])]
    if found.between:
        tables += [different_models(found.between), markdown(*overlaps(found.between))]
    notes = "\n".join(
        f"- {note}" for note in [*_over_bandwidths(found)[:-1], *notes_on_comparison(found)]
    )
    return "\n\n".join([*tables, notes]) + "\n"


def comparison_in_csv(found: Comparison) -> str:
    """A line for each score and model, each difference and each overlap, unrounded."""
    heading = ["score", "order", "truncation", "first", "second", "value", "standard_error"]
    rows = [[*heading, "p_value", "adjusted_p_value"]]
    for ranking in found.rankings:
        truncation = "" if ranking.truncation is None else str(ranking.truncation)
        start = [ranking.score, f"{ranking.order:g}", truncation]
        for model, value in ranking.values.items():
            error = ranking.standard_errors[model]
            rows.append([*start, model, "", _plain(value), _plain(error), "", ""])
        rows += [[*start, d.first, d.second, *map(_plain, d[2:])] for d in ranking.differences]
    if found.between:
        whole = found.between.as_dict()
        named = [("different_models", "", "", whole["number"], whole["standard_error"])]
        named += [("overlap", *overlap.values()) for overlap in whole["overlaps"]]
        order = "2"
        rows += [[s, order, "", *pair, _plain(v), _plain(e), "", ""] for s, *pair, v, e in named]
    return _comma_separated(rows)


def _plain(value: float) -> str:
    """A number unrounded; nothing for a NaN."""
    return "" if math.isnan(value) else repr(value)


def _comma_separated(rows: Rows) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def profile(found: Profile) -> str:
    """The main score of every model along the ladder with its band, and where a model leads."""
    score = found.main
    heading = ["times", f"bandwidth of {found.axis}", *(model or "score" for model in found.models)]
    values, bands, saturated = found.curves(score)

    def cell(value: float, band: Sequence[float], at_limit: bool) -> str:
        if at_limit or math.isnan(band[0]):
            return f"{value:.4g}" + (" *" if at_limit else "")
        return "{:.4g} [{:.4g}, {:.4g}]".format(value, *band)

    rows = [
        [f"{multiple:.3g}", f"{width:.4g}"]
        + [cell(values[m, k], bands[m, k], saturated[m, k]) for m in range(len(found.models))]
        for k, (multiple, width) in enumerate(zip(found.multiples, found.bandwidths, strict=True))
    ]
    units = "prompts" if found.units == "rows of one prompt" else found.units
    notes = [
        f"[low, high]: {1 - found.level:.0%} bands, each for all bandwidths at once, from the "
        f"influences of {found.groups:,} {units}"
        + (", which are few: too narrow" if found.groups < _FEW else "")
    ]
    if saturated.any():
        notes.append("*: at a limit: nearly all rows count as different, or outputs as the same")
    told = [*leads(found, score), ""] if found.pairs else []
    lines = [aligned(heading, rows), "", *told, *notes]
    return "\n".join([f"{score_name(score, found.order, None)}, {_moving(found)}", *lines])


def joint_confidence(found: Profile) -> str:
    """How certain the stated differences over the bandwidths are."""
    return f"all stated differences hold jointly with {1 - found.level:.0%} confidence"


def _moving(found: Profile) -> str:
    whose = "outputs and prompts" if found.over == "both" and len(found.names) > 1 else found.axis
    return f"over the bandwidths of {whose}"


# Bands from fewer groups covered in 85 to 96% of draws, not in 95% (docs/bandwidths.md).
_FEW = 100
# More pairs of models than this are counted, not listed.
_LISTED = 6


def leads(found: Profile, score: str) -> list[str]:
    """Where one model is more diverse than another, in sentences."""
    if found.untested is not None:
        return [f"nothing is tested over the bandwidths: {found.untested}"]
    pairs = [pair for pair in found.pairs if pair.score == score]
    if len(pairs) <= _LISTED:
        return [_lead(pair, found.bandwidths.tolist()) for pair in pairs]
    one_order = sum(pair.signs.any() and not pair.depends for pair in pairs)
    untested = sum(None not in pair.untested for pair in pairs)
    turning = [f"{pair.first} - {pair.second}" for pair in pairs if pair.depends]
    alike = len(pairs) - one_order - untested - len(turning)
    named = f" ({listed(turning)})" if turning else ""
    return [
        f"of {len(pairs)} pairs of models, {one_order} have one order wherever they differ "
        f"significantly; the order of {len(turning)} depends on the bandwidth{named}; {alike} have "
        f"no significant difference; {untested} are not tested"
    ]


def _lead(pair: PairProfile, widths: Sequence[float]) -> str:
    """The state of two models everywhere: 'A is more diverse than B at 0.4; not tested at 0.8'."""
    states, one, two = pair.states, pair.first, pair.second
    orders = [
        f"{first} is more diverse than {second} {where(states, sign, widths)}"
        for first, second, sign in ((one, two, 1), (two, one, -1))
        if sign in states
    ]
    parts = [", and ".join(orders)] if orders else []
    if 0 in states:
        parts.append(f"no significant difference {where(states, 0, widths)}")
    for why in dict.fromkeys(state for state in states if isinstance(state, str)):
        parts.append(f"not tested {where(states, why, widths)} ({why})")
    start = f"the order of {one} and {two} depends on the bandwidth: " if pair.depends else ""
    return (start if orders else f"{one} and {two}: ") + "; ".join(parts)


def where(states: Sequence[object], state: object, widths: Sequence[float]) -> str:
    """The bandwidths that have a state: 'at bandwidths from 0.4 to 1.6 and at 3.2'."""
    runs = [
        [width for _, width in run]
        for own, run in itertools.groupby(zip(states, widths, strict=True), lambda place: place[0])
        if own == state
    ]
    return " and ".join(
        f"at {run[0]:.3g}" if len(run) == 1 else f"at bandwidths from {run[0]:.3g} to {run[-1]:.3g}"
        for run in runs
    )


def prompts(tables: Sequence[PromptTable], count: int = 3) -> str:
    """The least and the most diverse prompts, with their own scores of the order of each table."""
    first = tables[0]
    shown = [*first.least_diverse(count), *reversed(first.most_diverse(count))]
    shown = list(dict.fromkeys(scored.row for scored in shown))
    names = [(table.decomposition.order, table.decomposition.truncation) for table in tables]
    heading = ["prompt", "n", "similarity", *(score_name("vendi", *name) for name in names)]
    heading += ["to " + score_name("conditional", *name) for name in names]
    by_row = [{scored.row: scored for scored in table.prompts} for table in tables]
    rows = []
    for row in shown:
        own = [scores[row] for scores in by_row]
        words = f"row {row}" if own[0].prompt is None else shortened(str(own[0].prompt))
        rows.append(
            [words, f"{own[0].n:,}", f"{own[0].similarity:.3f}"]
            + [with_error(scored.score, scored.standard_error) for scored in own]
            + [f"{scored.contributions.conditional:+.3g}" for scored in own]
        )
    compared = sum(not math.isnan(scored.similarity) for scored in first.prompts)
    if compared > 2 * count:
        rows.insert(count, ["..."] + [""] * (len(heading) - 1))
    title = f"{len(first.prompts):,} prompts, the least diverse first"
    table = [aligned(heading, rows)] if rows else []
    return "\n".join([title, *table, *_notes_on_prompts(first, compared)])


def shortened(text: str, width: int = 48) -> str:
    """A text in one line of at most this many characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."


def _notes_on_prompts(table: PromptTable, compared: int) -> list[str]:
    """What the columns mean, and the prompts that nothing but rounding tells apart."""
    if not compared:
        return [
            "no prompt has two outputs: all their own scores are 1, and only contributions differ"
        ]
    notes = [
        "similarity: of two different outputs of a prompt, 0 where all count as different, 1 where "
        "all count as the same",
        "scores: of the outputs of a prompt alone; to Conditional: what the prompt contributes to "
        "the papers' score of all rows",
    ]
    alone = len(table.prompts) - compared
    if alone:
        notes.append(f"prompts with one output, which have no similarity: {alone:,}")
    for limit, words in ((0, "different"), (1, "the same")):
        saturated = sum(scored.similarity == limit for scored in table.prompts)
        if saturated:
            notes.append(f"prompts whose outputs all count as {words}: {saturated:,}")
    return notes


def prompts_in_csv(tables: Sequence[PromptTable]) -> str:
    """One line for each prompt and table, unrounded."""
    heading, rows = [], []
    for table in tables:
        order, truncation = table.decomposition.order, table.decomposition.truncation
        start = [f"{order:g}", "" if truncation is None else str(truncation)]
        for scored in table.prompts:
            plain = scored.as_dict()
            name = plain.pop("prompt")
            heading = ["prompt", "order", "truncation", *plain]
            rows.append(["" if name is None else str(name), *start, *map(_plain, plain.values())])
    return _comma_separated([heading, *rows])


def scores_by_model(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """The heading, and a row for each model: its scores with errors and letters."""

    def cell(ranking: Ranking, model: str) -> str:
        ends = ranking.population[model] if ranking.population else None
        score = unbiased_cell(ranking.values[model], ranking.standard_errors[model], ends)
        plain = f" ({ranking.plug_in[model]:.4g})" if ranking.unbiased and ranking.plug_in else ""
        return f"{score}{plain} {ranking.letters[model]}".rstrip()

    heading = ["model", "n", *(ranking.name for ranking in found.rankings)]
    return heading, [
        [model, f"{n:,}", *(cell(ranking, model) for ranking in found.rankings)]
        for model, n in found.n.items()
    ]


def differences(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """The heading, and a row for each score and pair of models."""

    def p(value: float) -> str:  # Very small ones depend on tails that are uncertain.
        return "-" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.2g}"

    return ["score", "models", "difference", "p", "adjusted p"], [
        [ranking.name, f"{one} - {two}", unbiased_cell(value, error, None), *map(p, p_values)]
        for ranking in found.rankings
        for one, two, value, error, *p_values in ranking.differences
    ]


def ranking_in_words(found: Ranking) -> str:
    """The ranking in a line, as `order_in_words`."""
    if found.saturated:
        return ", ".join(found.values) + " (saturated: neither ranked nor tested)"
    states = {}
    for one, two, *_, adjusted in found.differences:
        apart = set(found.letters[one]).isdisjoint(found.letters[two])
        states[one, two] = math.nan if math.isnan(adjusted) else float(apart)
    return order_in_words(list(found.values), states)


def order_in_words(names: Sequence[str], states: Mapping[tuple[str, str], float]) -> str:
    """Models in descending order, and which of them differ: 'A > B >= C'.

    The state of two models, in this order, is 1 if their difference is significant, 0 if it is not,
    NaN if it was not tested. Where a chain would be wrong about two models, pairs are listed.
    """
    links = [states[pair] for pair in itertools.pairwise(names)]
    places = {name: place for place, name in enumerate(names)}
    if all(own == max(links[places[a] : places[b]]) for (a, b), own in states.items()):
        if 1 not in links:
            return ", ".join(names) + (" (no significant difference)" if links else "")
        signs = [" > " if link else " >= " for link in links]
        words = "".join(map("".join, zip(names, [*signs, ""], strict=True)))
        return words + (" (>=: no significant difference)" if 0 in links else "")
    told = [f"{one} > {two}" for (one, two), own in states.items() if own == 1]
    untested = [f"{one} - {two}" for (one, two), own in states.items() if math.isnan(own)]
    if len(untested) == len(states):
        return ", ".join(names) + " (in descending order; not tested)"
    words = f"{', '.join(names)} (in descending order; significant: {listed(told) or 'none'}"
    return words + (f"; not tested: {listed(untested)})" if untested else ")")


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: 'A, B and C', those beyond the first six as a number."""
    several = [
        *names[:_LISTED],
        *([f"{len(names) - _LISTED} more"] if len(names) > _LISTED else []),
    ]
    return " and ".join([", ".join(several[:-1])] * (len(several) > 1) + several[-1:])


def saturated(found: Comparison) -> list[str]:
    """The scores that are not tested, and at which limit they are."""
    limits: dict[str, list[str]] = {}
    for ranking in found.rankings:
        if ranking.saturated:
            words = _saturation(ranking.score, ranking.saturated)
            limits.setdefault(words, []).append(ranking.name)
    return [f"no test of {' and '.join(names)}: {words}" for words, names in limits.items()]


def notes_on_comparison(found: Comparison) -> list[str]:
    """What the numbers of the tables mean."""
    notes = _bandwidths(found.bandwidths)
    notes += unbiased([*found.evaluations.values()], "in brackets")
    if found.at is not None:
        notes.append(f"models differ in their numbers of outputs: where scores grow, {found.at}")
    growing = [_order(o) for o in found.first.orders if o.decomposition.order < 2]
    if growing and len(found.models) > 1:
        notes.append(
            f"order {', '.join(growing)}: a model of many rare outputs may rank too low at any "
            "equal n, however significant; unbiased order 2 does not depend on n"
        )
    notes += [f"saturated: {item}" for item in [*saturated(found), *found.advice]]
    notes += _largest_bandwidth_noise(found)
    notes += errors([o for e in found.evaluations.values() for o in e.orders])
    if len(found.models) == 1:
        return notes
    if any(ranking.tested for ranking in found.rankings):
        notes.append(
            f"models that share a letter cannot be told apart at the level {found.level:g} (Holm, "
            "over all pairs of models within a score)"
        )
    if found.untested:
        notes.append(f"differences are not tested: {found.untested}")
    if found.profile and found.profile.untested is None:
        notes.append(f"over the bandwidths: {joint_confidence(found.profile)}")
    if found.between:
        notes += notes_on_between(found.between)
    return [*notes, f"outputs of different models are {MATCHED[found.matched]}"]


def _largest_bandwidth_noise(found: Comparison) -> list[str]:
    """Where the draw of the rule's subsets matters most."""
    places = [
        (noise, ranking.standard_errors[model], f"{ranking.name} of {model}")
        for ranking in found.rankings
        for model, noise in (ranking.bandwidth_errors or {}).items()
    ]
    if not places:
        return []
    # Relative to the standard errors where there are any.
    noise, error, place = max(places, key=lambda p: p[0] / p[1] if p[1] > 0 else 0.0)
    beside = f", beside a standard error of {error:.2g}" if error > 0 else ""
    return [
        "choice of bandwidth: other draws of the rule's subsets move every score, most of all "
        f"{place}, by ± {noise:.2g}{beside}"
    ]
