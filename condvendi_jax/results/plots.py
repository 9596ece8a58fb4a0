"""Results as figures: as wide as a column of a paper, with the finding as title."""

import math
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, PercentFormatter

from condvendi_jax.base.result import encoded
from condvendi_jax.base.tables import OPEN, capitalized, shortened, span
from condvendi_jax.results.estimate import Quality, undominated
from condvendi_jax.results.evaluation import Evaluation, score_name
from condvendi_jax.results.one_prompt import Bars
from condvendi_jax.statistics.power import FEWEST_TESTED

COLUMN = 3.3  # The width of a column of a paper, in inches.
# Okabe and Ito's colours, which colour-blind readers can tell apart, in an order in which
# neighbours also differ in grey. Markers and dashes repeat at other periods.
_COLOURS = ("#0072B2", "#E69F00", "#000000", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)))
_DOTS = 120  # An inch of a picture, in a notebook.
_SHADE, _GREY = "0.9", "0.4"
_BESIDE = ("axes fraction", "data")  # The coordinates of a text beside a panel.
_SMALL = 7  # The size of texts in points.


class Picture(Figure):
    """A figure of Matplotlib that a notebook shows also without `%matplotlib inline`."""

    __module__ = Figure.__module__  # By which W&B knows a figure.

    def _repr_png_(self) -> tuple[str, dict[str, int]]:
        width, height = (int(_DOTS * inches) for inches in self.get_size_inches())
        return encoded(self, "png", 2 * _DOTS), {"width": width, "height": height}


def started(title: str, caption: str = "", *, height: float = 2.3) -> tuple[Picture, Any]:
    """A picture as wide as a column with one panel, of this height without title and caption.

    The title is the finding; each paragraph of the caption has at most two lines.
    """
    above, below = textwrap.wrap(_plain(title), 50), []
    for words in _plain(caption).splitlines():
        below += textwrap.wrap(words, 64, max_lines=2, placeholder=" ...")
    height += 0.14 * len([*above, *below])
    size: Any = {"figsize": (COLUMN, height), "dpi": 2 * _DOTS}
    picture, left = Picture(**size, layout="constrained"), {"x": 0.02}
    picture.suptitle("\n".join(above), fontsize=8, ha="left", **left)
    picture.supxlabel("\n".join(below), fontsize=_SMALL, color=_GREY, ha="left", **left)
    panel = picture.subplots()
    panel.tick_params(labelsize=_SMALL)
    panel.xaxis.label.set_fontsize(_SMALL)
    panel.yaxis.label.set_fontsize(_SMALL)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)
    panel.set_axisbelow(True)
    return picture, panel


def look(index: int) -> dict[str, Any]:
    """The colour, marker and dashes of a model by its place: no two of 56 look the same."""
    cycles = {"color": _COLOURS, "marker": _MARKERS, "linestyle": _DASHES}
    return {name: values[index % len(values)] for name, values in cycles.items()}


def _plain(text: str) -> str:
    """A text in which no dollar starts a formula."""
    return text.replace("$", r"\$")


def _reach(values: np.ndarray, ends: np.ndarray) -> tuple[float, float]:
    """The ends of an axis: of the known values, and of their intervals up to twice as far."""
    known, ends = values[np.isfinite(values) & (values > 0)], ends[np.isfinite(ends)]
    low, high = min(known, default=1.0), max(known, default=2.0)
    return max(min([low, *ends]), low / 2) / 1.05, 1.05 * min(max([high, *ends]), 2 * high)


def forest(bars: Bars, title: str, bandwidth: float | None) -> Picture:
    """A point with its interval for each model, and its number and letters beside it."""
    models, end, ink = bars.models, bars.end, "0.15"
    at = "" if bandwidth is None else f", at bandwidth {bandwidth:.4g}"
    caption = f"{bars.axis}{at}.\nLines: 95% intervals."
    if any(bar.letters for bar in models):
        caption += " A shared letter: not told apart."
    picture, panel = started(title, caption, height=0.23 * len(models) + 0.4)
    for place, bar in enumerate(models):
        ends = np.clip([bar.low, bar.high], 1, end)
        panel.plot(ends, [place, place], "-" if bar.known else ":", color=ink, linewidth=1.2)
        if math.isinf(bar.high):
            panel.plot(end, place, ">", color=ink, markersize=4, clip_on=False)
        elif bar.known:
            panel.plot(bar.value, place, "o", color=_COLOURS[0], markersize=4, clip_on=False)
        words = f"{bar}  {bar.letters}".rstrip()
        panel.annotate(words, (1.04, place), xycoords=_BESIDE, va="center", size=_SMALL)
    names = [shortened(_plain(bar.model), 24) for bar in models]
    panel.set_yticks(range(len(models)), names if any(names) else [""] * len(names))
    panel.set(ylim=(len(models) - 0.5, -0.5), xlim=(1, end), xticks=bars.ticks)
    if math.isfinite(bars.limit):
        panel.axvline(end, color=_GREY, linewidth=0.8)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    panel.spines["left"].set_visible(False)
    return picture


def over_bandwidths(profile: Any, score: str | None) -> Picture:
    """A score of a `Profile` with bands; lines end where models are at a limit.

    Where only answers to equal prompts are compared, it is the number of these that differ.
    """
    name, widths = score or profile.main, profile.bandwidths
    if name not in profile.names:
        raise ValueError(f"score: expected one of {profile.names}, received {score!r}.")
    values, bands, saturated = profile.curves(name)
    title = f"{score_name(name, profile.order, None)} over the bandwidths of the {profile.axis}"
    title = profile.verdict() if name == profile.main else title
    at_limit, height = np.all(saturated, axis=0), max(2.3, 0.13 * len(profile.models))
    bands_are = f"Bands: {1 - profile.level:.0%}, of a model at all bandwidths at once."
    if np.isnan(profile.bands.vendi).all() and profile.reason is not None:
        bands_are = f"Without bands: {profile.reason}."
    grey = " Grey: all are at a limit." * bool(at_limit.any())
    caption = f"{bands_are} Dashed: the chosen bandwidth.{grey}"
    picture, panel = started(title, caption, height=height)
    limit = profile.answers if name == "conditional" else 1
    if limit > 1:  # One over the similarity of two draws of so many answers.
        values, bands = (1 / (1 / limit + (1 - 1 / limit) / x) for x in (values, bands))
    drawn = np.where(saturated, math.nan, values)
    for index, curve in enumerate(drawn):
        drawn_as = look(index)
        label = _plain(shortened(profile.models[index], 18))
        panel.plot(widths, curve, linewidth=1.2, markersize=3, label=label, **drawn_as)
        band = np.clip(bands[index].T, values[index] / OPEN, values[index] * OPEN)
        panel.fill_between(widths, *band, alpha=0.15, linewidth=0, color=drawn_as["color"])
    panel.set_xscale("log", base=2)
    panel.set_xlim(widths[0], widths[-1])
    label = f"{score_name(name, profile.order, None)} (effective number)"
    if limit > 1:
        panel.set_ylim(1, limit)
        label = f"effectively different outputs, of {limit:,}"
    else:
        panel.set_yscale("log")
        low, high = _reach(drawn, np.where(saturated[..., None], math.nan, bands))
        panel.set_ylim(low, high)
        panel.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 300 * low else (1, 2, 5)))
    ends = np.concatenate([widths[:1], np.sqrt(widths[1:] * widths[:-1]), widths[-1:]])
    for k in np.flatnonzero(at_limit):  # Up to half way to the next ones.
        panel.axvspan(ends[k], ends[k + 1], color=_SHADE, linewidth=0, zorder=0)
    chosen = widths[0] / profile.multiples[0]
    if widths[0] <= chosen <= widths[-1]:
        panel.axvline(chosen, color=_GREY, linewidth=0.9, dashes=(4, 3), zorder=0)
    for axis in (panel.xaxis, panel.yaxis):  # Without powers of ten, at the main ticks.
        axis.set_major_formatter("{x:,.4g}")
        axis.set_minor_formatter("")
    both = profile.over == "both" and "prompts" in profile.chosen
    whose = "outputs, and of the prompts in proportion" if both else profile.axis
    panel.set(xlabel=f"bandwidth of the {whose}", ylabel=label)
    if any(profile.models):  # As their scores are at the chosen bandwidth.
        order = np.argsort(-values[:, np.abs(np.log(widths / chosen)).argmin()], kind="stable")
        lines = [panel.lines[k] for k in order]
        beside: Any = {"loc": "upper left", "bbox_to_anchor": (1, 1), "borderaxespad": 0}
        panel.legend(handles=lines, fontsize=_SMALL, frameon=False, **beside)
    return picture


def of_plan(plan: Any, title: str) -> Picture:
    """The power of a study against its number of prompts, with what the pilot leaves open."""
    best, spread = plan.best, plan.spread
    caption = "Band: 90% of what the pilot leaves open. Dashed: wanted power."
    picture, panel = started(title, caption)
    effect, end = spread.effect(plan.ratio or best.ratio), max(2 * best.prompts, 4 * FEWEST_TESTED)
    prompts = np.unique(np.linspace(FEWEST_TESTED, end, 50).astype(int))
    mean, low, high = (
        [spread.power(best.answers, p, effect, plan.level, at) for p in prompts.tolist()]
        for at in (None, 1.645, -1.645)
    )
    panel.plot(prompts, mean, color=_COLOURS[0], linewidth=1.2)
    panel.fill_between(prompts, low, high, alpha=0.2, linewidth=0, color=_COLOURS[0])
    panel.axhline(plan.power, color=_GREY, linewidth=0.9, dashes=(4, 3), zorder=0)
    panel.plot(best.prompts, best.power or plan.power, "o", color=_COLOURS[3])
    whose = "" if best.answers == 1 else f", {best.answers:,} answers each"
    panel.set(xlabel=f"{spread.unit} of a model{whose}", ylabel="studies that find it")
    panel.set(xlim=(0, end), ylim=(0, 1))
    panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    return picture


def of_looks(looks: Any) -> Picture:
    """The score at each look at a run, with the baseline, and the alarm."""
    first, (baseline, *ends) = looks.alarm, looks.baseline
    alarm = first and f"Alarm at step {first.step:,}: answers became less diverse"
    title = alarm or f"No alarm in {len(looks.looks):,} looks"
    caption = "Bars and band: 95% intervals, over other answers to these prompts. "
    picture, panel = started(title, caption + "Dashed: only scores below can raise an alarm.")
    step, score, *bars = np.transpose([[x.step, x.score, x.low, x.high] for x in looks.looks])
    end = _reach(np.array([baseline, *score]), np.array([*ends, *bars[1]]))[1]
    panel.axhspan(ends[0], min(ends[1], 2 * end), color=_SHADE, linewidth=0, zorder=0)
    panel.axhline(baseline, color=_GREY, linewidth=0.9, zorder=0)
    panel.axhline(looks.bound, color=_GREY, linewidth=0.9, dashes=(4, 3), zorder=0)
    panel.vlines(step, bars[0], np.minimum(bars[1], 2 * end), color=_COLOURS[0], linewidth=0.9)
    panel.plot(step, score, "o-", color=_COLOURS[0], linewidth=0.9, markersize=3, clip_on=False)
    at, more = (1.02, min(baseline, end)), ":\ninfinite" * math.isinf(baseline)
    panel.annotate(f"baseline{more}", at, xycoords=_BESIDE, va="center", size=_SMALL)
    if first is not None:
        at = first.step, first.score
        panel.plot(*at, "X", color=_COLOURS[3], markersize=8, clip_on=False)
        panel.annotate("alarm", at, (6, 4), textcoords="offset points", size=_SMALL)
    panel.set(xlabel="step", ylabel="Conditional-RKE (effective number)", ylim=(1, end))
    panel.xaxis.get_major_locator().set_params(integer=True)
    return picture


def of_distances(curve: Any) -> Picture:
    """How similar outputs are by the distance of their prompts, with what is read at distance 0."""
    known, names = math.isfinite(curve.read_at_0), ("distance", "similarity", "low", "high")
    title = f"Outputs to one prompt would have a similarity of {curve.read_at_0:.2g}"
    title = title if known else "How similar outputs are"
    caption = "Bars: they hold together in about 95% of samples. Dashed: read at distance 0."
    picture, panel = started(title, caption)
    at, values, low, high = np.transpose([[line[name] for name in names] for line in curve.lines()])
    panel.errorbar(at, values, [values - low, high - values], fmt="o", ms=3, color=_COLOURS[0])
    if known:
        panel.plot([0, curve.distance], [curve.read_at_0, curve.near.value], "--", color=_GREY)
    panel.set(xlim=(0, None), xlabel="distance of the two prompts")
    panel.set(ylim=(0, None), ylabel="similarity of outputs (mean squared kernel)")
    return picture


def of_parts(values: Mapping[str, float], score: str, few: int = 3) -> Picture:
    """The rows, or the labels, that add least and most to a score."""
    ordered = sorted((x, name) for name, x in values.items() if math.isfinite(x))
    shown = ordered if len(ordered) <= 2 * few else [*ordered[:few], *ordered[-few:]]
    least, most = (shortened(shown[k][1], 20) for k in (0, -1))
    title = capitalized(f"{most} adds most to {score}, {least} least")
    caption = f"Of {len(ordered):,}, those at both ends; below 0 are redundant ones."
    picture, panel = started(title, caption, height=0.5 + 0.2 * len(shown))
    for place, (amount, name) in enumerate(shown):  # Names stand where there is no bar.
        side, colour = ("right", _COLOURS[0]) if amount > 0 else ("left", _COLOURS[1])
        panel.barh(place, amount, color=colour, height=0.7)
        how: Any = {"ha": side, "va": "center", "size": _SMALL, "textcoords": "offset points"}
        panel.annotate(shortened(_plain(name), 28), (0, place), (-4 if amount > 0 else 4, 0), **how)
    panel.axvline(0, color=_GREY, linewidth=0.9)
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    end = 1.05 * max(abs(amount) for amount, _ in shown) or 1.0
    panel.set(xlim=(-end, end), xlabel=f"influence on {score} (effective number)")
    return picture


def qualities(models: Mapping[str, Quality], n: Iterable[int], first: Evaluation) -> Picture:
    """The share of good outputs of models, and the diversity among them, with intervals.

    The caption has the choices of the `first` evaluation.
    """
    caption = f"Lines: 95% intervals; n = {span(n)}; seed {first.seed}. "
    caption += first.kernels
    picture, plane = started("Filled: no other model is better in both", caption, height=2.6)
    best = undominated(models)
    for index, (model, rated) in enumerate(models.items()):
        colour, marker = look(index)["color"], look(index)["marker"]
        x, y = rated.share.value, rated.diversity.value
        if math.isfinite(y):
            ends = [np.array(e.ends or [e.value] * 2) for e in (rated.share, rated.diversity)]
            high = np.minimum(ends[1], OPEN * y)
            plane.plot(ends[0], [y, y], [x, x], high, linewidth=1, color=colour)
            plane.plot(x, y, marker, color=colour, fillstyle=("none", "full")[model in best])
            plane.annotate(_plain(model), (x, y), (3, 3), textcoords="offset points", size=_SMALL)
    plane.set(xlabel="share of good outputs", ylabel="diversity among good outputs")
    return picture


def of_mix(mix: Any) -> Picture:
    """The frontier of score and quality, and models alone."""
    caption = "Best shares, on prompts that were not used, with 95% intervals. Grey: one model."
    picture, panel = started(f"Best shares: {mix.verdict}", caption, height=2.6)
    both = [(part.quality, part.score) for part in mix.frontier]
    ends = np.array([[(e.value, *(e.ends or [e.value] * 2)) for e in two] for two in both])
    (x, left, right), (y, low, high) = ends.transpose(1, 2, 0)
    panel.hlines(y, left, right, color=_COLOURS[0], linewidth=0.7)
    panel.vlines(x, low, np.minimum(high, OPEN * y), color=_COLOURS[0], linewidth=0.7)
    panel.plot(x, y, "o-", color=_COLOURS[0], markersize=3, linewidth=1.2)
    named = {mix.best, *(max(mix.alone, key=lambda m, k=k: mix.alone[m][k]) for k in (0, 1))}
    for model, (score, quality) in mix.alone.items():
        panel.plot(quality, score, "o", color=_GREY, markersize=2.5)
        if model in named:  # The best of all, of those within the limits, and by quality.
            how: Any = {"textcoords": "offset points", "size": _SMALL, "ha": "center"}
            panel.annotate(shortened(_plain(model), 24), (quality, score), (0, -8), **how)
    panel.set(xlabel="mean quality", ylabel="effective number of answers")
    return picture
