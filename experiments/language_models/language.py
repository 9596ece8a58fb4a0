"""Which language models answer more diversely, and how much of that is their length."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.lab import agreement, figures, models, style, tables

_VARIANTS = ("_concise", "", "_verbose")
_RESAMPLES = 2000  # Of the models.


def variants(names: Sequence[str]) -> dict[str, list[str]]:
    """By model, its concise, plain and verbose variants where it has all three."""
    found = {name: [name + ending for ending in _VARIANTS] for name in names}
    return {name: of for name, of in found.items() if set(of) <= set(names)}


def correlations(values: np.ndarray, words: np.ndarray, seed: int) -> np.ndarray:
    """Spearman's correlation of each score with the length, and its 95% interval, `[scores, 3]`.

    Args:
      values: `models.SCORES` of m models, and others of order 2, `[scores, m]`.
      words: the mean length of each model's answers, `[m]`.
      seed: draws the resamples of the models, from which the interval comes.
    """
    drawn = np.random.default_rng(seed).integers(len(words), size=(_RESAMPLES, len(words)))
    orders = [order for _, order in models.SCORES] + [2.0] * (len(values) - len(models.SCORES))
    return agreement.correlate(values, words, list(drawn), orders)


def conditional_rke(
    outputs: np.ndarray, prompts: np.ndarray, bandwidths: lab.Bandwidths, multiple: float
) -> float:
    """Conditional-RKE with the prompts' bandwidth multiplied, the outputs' as it is."""
    assert bandwidths.prompts is not None
    wider = dataclasses.replace(bandwidths, prompts=multiple * bandwidths.prompts)
    kernels: dict[str, Any] = wider.kernels
    return float(cv.conditional_rke(outputs, prompts, **kernels))


def modes(prompts: np.ndarray, bandwidths: lab.Bandwidths) -> list[float]:
    """Vendi and RKE of the prompts alone: how many neighbourhoods they form."""
    kernel = bandwidths.kernels["prompt_kernel"]
    found = (cv.decompose(prompts, output_kernel=kernel, order=order) for order in (1.0, 2.0))
    return [float(parts.vendi) for parts in found]


WHOLE, CUT = "whole", "cut"
_COLOURS = {WHOLE: style.BLUE, CUT: style.ORANGE}
_NAMES = {WHOLE: "whole answers", CUT: "answers cut to one length"}
_UNBIASED = "{}, unbiased"
_SHOWN = ("Conditional-RKE", *map(_UNBIASED.format, ("Conditional-RKE", "Information-RKE")))
_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # Of the prompts' bandwidth.


class Language(lab.Study):
    """Which language models answer more diversely, and how much of that is length?"""

    name = "language"
    version = 3
    duration = "4 minutes"
    data = "language"
    needs = ("models",)
    takes = ("words",)
    further = ("truncated",)
    drawings = ("language", "language_length", "language_bandwidth")

    bandwidths: lab.Scales = lab.Scales()
    groups: int = lab.flag(20, "Groups of prompts that the jackknife leaves out.", at_least=2)
    n: int = lab.resolved()
    prompts: int = lab.resolved()
    models: tuple[str, ...] = lab.resolved()
    texts: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        counts = models.check_shared(pairs)
        words = pairs.labels.get("words")
        if words is not None and words.dtype.kind not in "iuf":
            raise ValueError(f"--words: expected a number for each answer, received {words.dtype}.")
        return self.ready(
            pairs,
            state=pairs,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            n=int(counts.sum()),
            prompts=len(counts),
            models=tuple(models.rows_by_model(pairs.labels["models"])),
            texts=(WHOLE, CUT) if "truncated" in pairs.further else (WHOLE,),
        )

    def axes(self):
        return {"text": self.texts, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, text, scale):
        """All scores of all models with errors, their correlation with length, and the sweep.

        Those of order 2 are the papers', and again unbiased.
        `words` is the mean length of the whole answers. `swept` is Conditional-RKE at multiples of
        the prompts' bandwidth, of whole answers at the scale that the figures show.
        """
        names, seed = state.labels["models"], context.shared_seed
        texts = state.outputs if text == WHOLE else state.further["truncated"]
        outputs, prompts = (models.by_model(rows, names) for rows in (texts, state.prompts))
        options = {"groups": self.groups, "seed": seed, "method": cv.Exact(), "say": context.say}
        found = models.compare(outputs, prompts, scale, unbiased=False, **options)
        unbiased = models.compare(outputs, prompts, scale, orders=[2], **options)
        unbiased["score"] = [_UNBIASED.format(score) for score in unbiased.score.values]
        found = xr.concat([found, unbiased], "score", data_vars="minimal", coords="minimal")
        words = state.labels.get("words", np.full(len(names), np.nan))
        words = np.array([of.mean() for of in models.by_model(words, names).values()])
        of_length = correlations(found.value.values, words, seed)
        shown = text == WHOLE and scale.coordinate == self.bandwidths.shown
        multiples = _MULTIPLES if shown and scale.prompts is not None else ()
        swept = [
            [conditional_rke(outputs[m], prompts[m], scale, times) for times in multiples]
            for m in outputs
        ]
        return found.assign(
            words=("model", words),
            correlation=("score", of_length[:, 0]),
            interval=(("score", "end"), of_length[:, 1:]),
            prompt_modes=("order", modes(prompts[self.models[0]], scale)),
            swept=(("model", "multiple"), np.reshape(swept, (len(outputs), len(multiples)))),
        ).assign_coords(order=[1.0, 2.0], multiple=list(multiples))

    def tables(self, run):
        """The scores and lengths at the scale that figures show; the correlations with length."""
        found = run.found
        base = found.sel(scale=self.bandwidths.shown)
        rows = ("text", "model")
        yield tables.table(base, rows=rows, columns="score", error="error", letters="letters")
        yield tables.table(base.sel(text=WHOLE), rows=("model",), value="words")
        ends: list[xr.DataArray] = [found.correlation, found.interval]
        words = tables.intervals(xr.concat(ends, "end"))
        yield tables.table(words, rows=("text", "scale"), columns="score")

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, scale = run.study, run.study.bandwidths.shown
        found = run.found.sel(scale=scale)
        n = f"{study.n} of each model, {study.n / study.prompts:.3g} a prompt"
        over = f"over {study.groups} groups of prompts"
        error = f"one standard error {over}"
        resampled = "95% intervals over resampled models; saturated scores have no correlation"
        caption = functools.partial(figures.caption, runs=run, n=n)
        return {
            "language": caption(_models(found), bars=f"95% intervals {over}", scale=scale),
            "language_length": caption(_length(found), bars=error, scale=scale),
            "language_bandwidth": caption(_bandwidth(run.found), bars=resampled),
        }


def _models(found: xr.Dataset) -> Figure:
    """A line a model, the shortest answers above; whole and cut answers."""
    words = found.words.sel(text=WHOLE)
    order = np.argsort(words.values, kind="stable")
    found, words = found.isel(model=order), words.isel(model=order)
    places = -np.arange(len(order))
    pairs = len(order) * (len(order) - 1) // 2
    figure, panels = style.panels(3, size=(3.6, 0.7 + 0.2 * len(order)), sharey=True)
    for panel, score in zip(panels, _SHOWN, strict=True):
        apart = []
        for offset, text in zip((0.15, -0.15), found.text.values, strict=False):
            one = found.sel(score=score, text=text)
            panel.errorbar(
                one.value, places + offset, xerr=1.96 * one.error, fmt="o", markersize=3.5,
                elinewidth=0.8, color=_COLOURS[text], label=_NAMES[text],
            )  # fmt: skip
            apart.append(f"{(one.p_value < models.LEVEL).sum().item() // 2} {text}")
        panel.set_title(f"{score}:\n{', '.join(apart)} of {pairs} pairs told apart")
        panel.set(xlabel="effective number", ylim=(places[-1] - 0.7, 0.7))
    labels = zip(found.model.values, words.values, strict=True)
    names = [f"{name} ({length:.0f} words)" if length > 0 else name for name, length in labels]
    panels[0].set_yticks(places, names, fontsize=7.5)
    style.legend_above(figure, panels[0])
    return figure


def _length(found: xr.Dataset) -> Figure:
    """Conditional-RKE against length, of whole and cut answers; against the prompts' bandwidth."""
    texts = found.text.values.tolist()
    figure, panels = style.panels(len(texts) + (found.sizes["multiple"] > 0), size=(4.2, 3.2))
    for panel, text in zip(panels, texts, strict=False):
        _scatter(panel, found.sel(text=text, score=_SHOWN[1]), text)
        panel.sharey(panels[0])
    style.legend_above(figure, panels[0], columns=7)
    if found.sizes["multiple"]:
        _sweep(panels[-1], found.sel(text=WHOLE))
    return figure


def _scatter(panel: Axes, found: xr.Dataset, text: str) -> None:
    """The score of each model against the mean length of its whole answers; variants joined."""
    names = found.model.values.tolist()
    lines = variants(names)
    marks = [f"-{marker}" for marker in style.MARKERS]
    look: dict[str, Any] = dict(zip(lines, zip(style.CYCLE, marks, strict=True), strict=False))
    if others := sorted(set(names) - set(itertools.chain(*(lines[name] for name in look)))):
        lines["other models"], look["other models"] = others, (style.GREY, "x")
    for name, (colour, mark) in look.items():
        one = found.sel(model=lines[name])
        panel.errorbar(one.words, one.value, one.error, fmt=mark, color=colour, label=name, lw=1)
    of = f"rank correlation {tables.interval(found.correlation, *found.interval)}"
    panel.set_title(f"{_NAMES[text]}:\n{of}")
    panel.set(xlabel="mean length of the whole answers, words", ylabel=_SHOWN[1])


def _sweep(panel: Axes, found: xr.Dataset) -> None:
    """Conditional-RKE of all models against the prompts' bandwidth, between its two limits."""
    ends = found.swept.min("model"), found.swept.max("model")
    panel.fill_between(found.multiple, *ends, color=style.BLUE, label="all models")
    rke, wide = found.value.sel(score="RKE").mean().item(), "their mean RKE, the limit of wide ones"
    panel.axhline(rke, color=style.VERMILION, ls="--", lw=1, label=wide)
    panel.axhline(1, color=style.BLACK, lw=0.8, label="1, the limit of narrow ones")
    panel.set_xscale("log", base=2)
    style.log_axis(panel)
    style.log_numbers(panel.xaxis)
    count = found.prompt_modes.sel(order=2).item()
    panel.set_title(f"{_NAMES[WHOLE]}: at multiple 1\nthe prompts form {count:.1f} modes (RKE)")
    panel.set(xlabel="multiple of the prompts' bandwidth", ylabel="Conditional-RKE")
    panel.legend()


def _bandwidth(found: xr.Dataset) -> Figure:
    """Rank correlation of each score with length, a panel a scale."""
    counts = (np.sign(found.interval).prod("end", skipna=False) > 0).sum("score")

    def title(_: None, scale: float) -> str:
        words = [f"{counts.sel(scale=scale, text=t).item()} {t}" for t in found.text.values]
        return f"bandwidths x {scale:g}: away from 0 are\n{', '.join(words)} of {found.score.size}"

    return figures.facets(
        found, x="score", hue="text", column="scale", kind="points", value="correlation",
        error="interval", colours=_COLOURS, names=_NAMES, title=title, size=(3.8, 3.3),
        y_label="rank correlation with length",
        each=lambda panel, _: panel.axhline(0, color=style.GREY, linewidth=0.8),
    )  # fmt: skip
