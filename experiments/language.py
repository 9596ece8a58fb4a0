"""Which language models answer more diversely, and how much of that is their length.

Beyond the papers: the answers of many models to the same instructions, by all scores with paired
differences, and again with every answer cut to one number of words. There is one answer an
instruction, so what Conditional-* measures is how far the answers to similar instructions differ:
the prompts' bandwidth says which are similar, and as it goes to zero no two are, and Conditional-*
is 1 for every model. The study shows that too.

    python -m experiments.language --scales=1
"""

from __future__ import annotations

import dataclasses

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import answers, lab
from experiments.lab import figures, models, style, tables

WHOLE, CUT = "whole", "cut"
_COLOURS = {WHOLE: style.BLUE, CUT: style.ORANGE}
_NAMES = {WHOLE: "whole answers", CUT: "answers cut to one length"}
_SHOWN = ("Conditional-RKE", "Information-RKE", "RKE")


@dataclasses.dataclass(frozen=True)
class Language(lab.Study):
    """Which language models answer more diversely, and how much of that is length?"""

    name = "language"
    version = 2
    duration = "2 minutes"
    data = "language"
    needs = ("models",)
    takes = ("words",)
    further = ("truncated",)
    runs = ((),)
    drawings = ("language", "language_length", "language_bandwidth")

    bandwidths: lab.Scales = lab.Scales()
    groups: int = lab.flag(
        20, "Groups of prompts that the jackknife leaves out, one at a time.", at_least=2
    )
    resamples: int = lab.flag(
        2000, "Resamples of the models, for the correlations' intervals.", at_least=100
    )
    multiples: tuple[float, ...] = lab.flag(
        tuple(2.0**power for power in range(-2, 6)),
        "Multiples of the prompts' bandwidth at which Conditional-RKE is followed.",
        above=0,
    )
    n: int = lab.resolved()
    prompts: int = lab.resolved()
    models: tuple[str, ...] = lab.resolved()
    texts: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        """Checks that the models answered the same prompts equally often."""
        pairs = load()
        rows = models.rows_by_model(pairs.labels["models"])
        prompts = answers.check_shared(pairs, rows)
        words = pairs.labels.get("words")
        if words is not None and words.dtype.kind not in "iuf":
            raise ValueError(
                f"--words: expected the length of each answer, received {words.dtype}."
            )
        return self.ready(
            pairs,
            state=pairs,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            multiples=() if self.bandwidths.kernel == "cosine" else tuple(sorted(self.multiples)),
            n=len(pairs) // len(rows),
            prompts=prompts,
            models=tuple(rows),
            texts=(WHOLE, CUT) if "truncated" in pairs.further else (WHOLE,),
        )

    def axes(self):
        """Every text under every scale."""
        return {"text": self.texts, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, text, scale):
        """All scores of all models with errors, their correlation with length, and the sweep.

        `words` is the mean length of the whole answers. `swept` is Conditional-RKE at multiples of
        the prompts' bandwidth, of whole answers at the scale that the figures show.
        """
        texts = state.outputs if text == WHOLE else state.further["truncated"]
        rows = models.rows_by_model(state.labels["models"])
        outputs = {name: texts[of] for name, of in rows.items()}
        prompts = {name: state.prompts[of] for name, of in rows.items()}
        seed = context.shared_seed
        found = models.compare(
            outputs,
            prompts,
            scale,
            groups=self.groups,
            seed=seed,
            say=context.say,
            method=cv.Exact(),
        )
        words = np.full(len(rows), np.nan)
        correlations = np.full((len(models.SCORES), 3), np.nan)
        if "words" in state.labels:
            words = np.array([state.labels["words"][of].mean() for of in rows.values()])
            correlations = answers.correlations(
                found.value.values, words, [o for _, o in models.SCORES], self.resamples, seed
            )
        context.say("prompt bandwidths")
        shown = text == WHOLE and scale.coordinate == self.bandwidths.shown
        multiples = self.multiples if shown else ()
        swept = [
            [answers.conditional_rke(outputs[m], prompts[m], scale, times) for times in multiples]
            for m in rows
        ]
        return found.assign(
            words=("model", words),
            correlation=("score", correlations[:, 0]),
            interval=(("score", "end"), correlations[:, 1:]),
            prompt_modes=("order", answers.modes(next(iter(prompts.values())), scale)),
            swept=(("model", "multiple"), np.reshape(swept, (len(rows), len(multiples)))),
        ).assign_coords(order=[1.0, 2.0], multiple=list(map(float, multiples)))

    def tables(self, run):
        """The scores and lengths at the scale that figures show; the correlations with length."""
        found = run.found
        base = found.sel(scale=self.bandwidths.shown)
        rows = ("text", "model")
        yield tables.table(base, rows=rows, columns="score", error="error", letters="letters")
        yield tables.table(base.sel(text=WHOLE), rows=("model",), value="words")
        words = xr.apply_ufunc(
            lambda centre, ends: f"{centre:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]",
            found.correlation,
            found.interval,
            input_core_dims=[[], ["end"]],
            vectorize=True,
        )
        yield tables.table(xr.Dataset({"value": words}), rows=("text", "scale"), columns="score")

    @classmethod
    def figures(cls, runs):
        """The models side by side, and what length and the bandwidths do."""
        (run,) = runs
        study, base = run.study, run.study.bandwidths.shown
        found = run.found.sel(scale=base)
        each = study.n / study.prompts
        n = f"{study.n} of each model, {each:.3g} a prompt"
        groups = f"over {study.groups} groups of prompts"
        resampled = "95% intervals over resampled models; saturated scores have no correlation"
        return {
            "language": figures.caption(
                _models(found), run, n=n, bars=f"95% intervals {groups}", scale=base
            ),
            "language_length": figures.caption(
                _length(found), run, n=n, bars=f"one standard error {groups}", scale=base
            ),
            "language_bandwidth": figures.caption(_bandwidth(run.found), run, n=n, bars=resampled),
        }


def _models(found: xr.Dataset) -> Figure:
    """A line a model, the shortest answers above; whole and cut answers."""
    words = found.words.sel(text=WHOLE)
    found = found.isel(model=np.argsort(words.values, kind="stable"))
    places = -np.arange(found.sizes["model"])
    height = 0.7 + 0.2 * len(places)
    figure, panels = style.panels(3, size=(3.6, height), sharey=True)
    for panel, score in zip(panels, _SHOWN, strict=True):
        apart = []
        for offset, text in zip((0.15, -0.15), found.text.values, strict=False):
            one = found.sel(score=score, text=text)
            panel.errorbar(
                one.value, places + offset, xerr=1.96 * one.error, fmt="o", markersize=3.5,
                elinewidth=0.8, color=_COLOURS[text], label=_NAMES[text],
            )  # fmt: skip
            apart.append(f"{(one.p_value < models.LEVEL).sum().item() // 2} {text}")
        pairs = len(places) * (len(places) - 1) // 2
        panel.set_title(f"{score}: of {pairs} pairs told apart,\n{', '.join(apart)}")
        panel.set(xlabel="effective number", ylim=(places[-1] - 0.7, 0.7))
    names = [
        f"{name} ({length:.0f} words)" if length > 0 else name
        for name, length in zip(found.model.values, found.words.sel(text=WHOLE).values, strict=True)
    ]
    panels[0].set_yticks(places, names, fontsize=7.5)
    style.legend_above(figure, panels[0])
    return figure


def _length(found: xr.Dataset) -> Figure:
    """Conditional-RKE against length, of whole and cut answers; against the prompts' bandwidth."""
    texts = found.text.values.tolist()
    figure, panels = style.panels(len(texts) + (found.sizes["multiple"] > 0), size=(4.2, 3.2))
    for panel, text in zip(panels, texts, strict=False):
        _scatter(panel, found.sel(text=text, score="Conditional-RKE"), text)
        panel.sharey(panels[0])
    style.legend_above(figure, panels[0], columns=7)
    if found.sizes["multiple"]:
        _sweep(panels[-1], found.sel(text=WHOLE))
    return figure


def _scatter(panel: Axes, found: xr.Dataset, text: str) -> None:
    """The score of each model against the mean length of its whole answers; variants joined."""
    joined = answers.variants(found.model.values.tolist())
    variants = {name for of in joined.values() for name in of}
    others = [name for name in found.model.values.tolist() if name not in variants]
    looks = zip(style.CYCLE, style.MARKERS, strict=True)
    for (name, of), (colour, marker) in zip(joined.items(), looks, strict=False):
        one = found.sel(model=of)
        panel.errorbar(
            one.words, one.value, one.error, color=colour, marker=marker, label=name, lw=1
        )
    if others:
        one = found.sel(model=others)
        look = {"color": style.GREY, "fmt": "x", "lw": 1, "label": "other models"}
        panel.errorbar(one.words, one.value, one.error, **look)
    low, high = found.interval.values
    of = f"rank correlation {found.correlation.item():.2f} [{low:.2f}, {high:.2f}]"
    panel.set_title(f"{_NAMES[text]}:\n{of}")
    panel.set(xlabel="mean length of the whole answers, words", ylabel="Conditional-RKE")


def _sweep(panel: Axes, found: xr.Dataset) -> None:
    """Conditional-RKE of all models against the prompts' bandwidth, between its two limits."""
    swept, limits = found.swept, found.value.sel(score="RKE")
    ends = swept.min("model"), swept.max("model")
    panel.fill_between(found.multiple, *ends, color=style.BLUE, label="all models")
    look = {"color": style.VERMILION, "ls": "--", "lw": 1}
    panel.axhline(limits.mean().item(), label="their mean RKE, the limit of wide ones", **look)
    panel.axhline(1, color=style.BLACK, lw=0.8, label="1, the limit of narrow ones")
    panel.set_xscale("log", base=2)
    style.log_axis(panel)
    style.log_numbers(panel.xaxis)
    modes = found.prompt_modes.sel(order=2).item()
    panel.set_title(f"{_NAMES[WHOLE]}: at multiple 1\nthe prompts form {modes:.1f} modes (RKE)")
    panel.set(xlabel="multiple of the prompts' bandwidth", ylabel="Conditional-RKE")
    panel.legend()


def _bandwidth(found: xr.Dataset) -> Figure:
    """Rank correlation of each score with length, a panel a scale."""
    clear = (found.interval.isel(end=0) > 0) | (found.interval.isel(end=1) < 0)
    counts = clear.sum("score")

    def title(_: None, scale: float) -> str:
        words = [f"{counts.sel(scale=scale, text=t).item()} {t}" for t in found.text.values]
        return f"bandwidths x {scale:g}: away from 0 are\n{', '.join(words)} of {clear.score.size}"

    return figures.facets(
        found,
        x="score",
        hue="text",
        column="scale",
        kind="points",
        value="correlation",
        error="interval",
        colours=_COLOURS,
        names=_NAMES,
        title=title,
        x_label="",
        y_label="rank correlation with length",
        size=(3.8, 3.3),
        each=lambda panel, _: panel.axhline(0, color=style.GREY, linewidth=0.8),
    )


if __name__ == "__main__":
    lab.main(Language)
