"""What a language model's temperature does to the diversity of its stories (CV tables 2, 4, 5)."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, knobs, models, papers, style, tables

FINISHED = "finished"
CONTROLS = ("perplexity", FINISHED, "tokens")
LABELS = (FINISHED, "tokens", "log_likelihood")


def balanced_finished(pairs: PairedEmbeddings) -> np.ndarray:
    """As many stories that ended of each prompt at every temperature, bool `[n]`."""
    temperature = np.unique(knobs.settings(pairs), return_inverse=True)[1]
    return knobs.balanced(temperature, pairs.prompt_numbers, pairs.labels[FINISHED].astype(bool))


def controls_of(pairs: PairedEmbeddings) -> tuple[np.ndarray, np.ndarray]:
    """Each of CONTROLS of the stories at one temperature and its standard error, `[controls]` both.

    Perplexity is exp(-total log-likelihood / total tokens). The error is that of the jackknife
    that leaves out one prompt at a time.
    """
    unknown = np.full(len(pairs), np.nan)
    columns = [np.ones(len(pairs)), *(pairs.labels.get(role, unknown) for role in LABELS)]
    sums = np.array([np.bincount(pairs.prompt_numbers, column) for column in columns])

    def of(totals: np.ndarray) -> np.ndarray:
        count, ended, length, log = totals
        return np.array([np.exp(-log / length), ended / count, length / count])

    whole = sums.sum(axis=1)
    deleted = of(whole[:, None] - sums)
    return of(whole), np.sqrt(sums.shape[1] - 1) * deleted.std(axis=1)


ALL, CUT = "all", "cut"
_SHOWN = "Conditional-RKE"
_PRINTED = 0.4, 0.7, 1.0, 1.3  # Temperatures of CV table 2.


class Temperature(lab.Study):
    """Does a language model's temperature raise its stories' diversity, or their nonsense?"""

    control = "Length and stories without an end could explain a rise; both are controls."
    grows = ("text",)
    tolerance = 5e-3  # Errors are spreads of scores in float32 without a group.
    unrepeated = ("p_value",)  # Of a difference near zero, it rests on rounding.
    data = "stories"
    needs = ("models",)
    takes = ("prompt", *LABELS)
    further = ("truncated",)

    bandwidths: lab.Scales = lab.Scales()
    groups: int = lab.flag(10, "Groups of prompts of the jackknife.", at_least=2)
    prompts: int = lab.resolved(0)
    models: tuple[str, ...] = lab.resolved(())
    texts: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        pairs = load()
        names = tuple(f"{value:g}" for value in np.unique(knobs.settings(pairs)))
        if len(set(names)) < len(names):
            raise ValueError(f"--models: six digits do not tell all temperatures apart: {names}.")
        for role in set(LABELS) & set(pairs.labels):
            kind = pairs.labels[role].dtype
            if kind.kind not in "biuf":
                raise ValueError(f"--{role}: expected a number of each story, received {kind}.")
        if "log_likelihood" in pairs.labels and "tokens" not in pairs.labels:
            raise ValueError("--log_likelihood: a perplexity needs --tokens too.")
        texts = [ALL]
        if FINISHED in pairs.labels:
            left = len(np.unique(pairs.prompt_numbers[balanced_finished(pairs)]))
            if left < self.groups:
                words = "have a story that ended from every model, fewer than"
                raise ValueError(f"--finished: {left} prompts {words} --groups={self.groups}.")
            texts.append(FINISHED)
        if "truncated" in pairs.further:
            texts.append(CUT)
        return self.ready(
            pairs,
            state=pairs,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            prompts=len(np.unique(pairs.prompt_numbers)),
            models=names,
            texts=tuple(texts),
        )

    def axes(self):
        return {"text": self.texts, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, text, scale):
        """All scores at each temperature as `models.compare`, and what tells nonsense.

        Beside them, by `control`, `known` of the stories that were scored and `known_error` over
        prompts: perplexity under the model at temperature 1, the share that ended, the mean length
        in tokens; NaN where the data do not say, and of cut stories.
        """
        pairs = state.rows(balanced_finished(state)) if text == FINISHED else state
        texts = pairs.further["truncated"] if text == CUT else pairs.outputs
        settings = knobs.settings(pairs)
        rows = [settings == value for value in np.unique(settings)]
        found = models.compare(
            {name: texts[of] for name, of in zip(self.models, rows, strict=True)},
            {name: pairs.prompts[of] for name, of in zip(self.models, rows, strict=True)},
            scale,
            groups=self.groups,
            seed=context.shared_seed,
            method=cv.Auto(context.shared_key, rtol=0.005),  # Exact up to n = 4,096.
            say=context.say,
            unbiased=False,
        )
        known = np.array([controls_of(pairs.rows(of)) for of in rows])
        if text == CUT:
            known[:] = np.nan
        axes = ("model", "control")
        found = found.assign(known=(axes, known[:, 0]), known_error=(axes, known[:, 1]))
        return found.assign_coords(control=list(CONTROLS))

    def tables(self, run):
        """The papers' tables: a row a score, a column a temperature; then steps, then controls."""
        found = run.found
        rows = ("text", "scale", "score")
        yield tables.table(found, rows=rows, columns="model", error="error", letters="letters")
        look: dict = {"rows": rows, "columns": "step"}
        steps = self.steps(run)
        yield tables.table(steps, value="difference", error="difference_error", **look)
        yield tables.table(steps, value="p_value", digits=1, **look)
        look |= {"rows": ("text", "control"), "columns": "model", "error": "known_error"}
        yield tables.table(found.sel(scale=self.bandwidths.shown), value="known", **look)

    def steps(self, run):
        """What changes from each temperature to the next, with errors and p-values."""
        names = {"other": self.models[:-1], "model": self.models[1:]}
        places: Any = {axis: xr.DataArray([*of], dims="step") for axis, of in names.items()}
        change = run.found[["difference", "difference_error", "p_value"]].sel(places)
        return change.assign_coords(step=change.model.str.cat(" - ", change.other))

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        whole = run.found.sel(text=ALL)
        cells: dict = {"columns": "model", "error": "error", "letters": "letters"}
        known: dict = {"columns": "model", "value": "known", "error": "known_error"}
        one = whole.sel(scale=1.0, control=list(CONTROLS[:2]))
        shown = {"score": cells, "control": known}
        grids = [tables.table(one, rows=(axis,), **of) for axis, of in shown.items()]
        rows = [row for grid in grids for row in zip(*(c.cells for c in grid.columns), strict=True)]
        printed = papers.printed("CV", "table 2").items()
        rows[:0] = [(name, *map("{:.2f}".format, numbers)) for name, numbers in printed]
        others = run.found.sel(score=_SHOWN, scale=1.0, text=[FINISHED, CUT])
        return {
            "beside": [["", *(f"T = {model}" for model in run.study.models)], *rows],
            "others": tables.table(others, rows=("text",), **cells),
            "at": whole,
            "ended": run.found.sel(text=FINISHED, scale=1.0),
            "steps": run.study.steps(run).sel(text=ALL),
        }

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        found, scale = run.found, run.study.bandwidths.shown
        start, places = found.value.isel(model=0), found.model.astype(float).values
        found = found.assign(over=found.value / start, bar=1.96 * found.error / start)
        found = found.assign_coords(model=places)
        whole, rises = found.sel(scale=scale, text=ALL), found.over.isel(model=-1) - 1
        nonsense = whole.known.sel(control="perplexity").values
        ticks = [f"{of:g}\n({p:,.0f})" for of, p in zip(places, nonsense, strict=True)]
        conditional, others = (
            [name for name in whole.score.values if ("Conditional" in name) == kind]
            for kind in (True, False)
        )
        controls = found.sel(score=_SHOWN)

        def drawn(of: xr.Dataset, words: str, **look: Any) -> Figure:
            figure = figures.facets(
                of, x="model", value="over", error="bar", sharey=True,
                x_label="temperature (perplexity)", y_label=f"over that at T = {places[0]:g}",
                each=look.pop("each", lambda panel, _: panel.set_xticks(places, ticks)), **look,
            )  # fmt: skip
            return style.headline(figure, f"T = {places[0]:g} to {places[-1]:g}: {words}")

        def beside(panel: Axes, part: xr.Dataset) -> None:
            panel.set_xticks(places, ticks)
            rows = papers.printed("CV", "table 2")
            for row in (row for name, row in rows.items() if name.startswith(part.score.item())):
                panel.plot(_PRINTED, np.divide(row, row[0]), "--", color=style.GREY, zorder=0)
            panel.legend(panel.lines[-1:], ["three models, printed"], loc="upper left")

        rise = rises.sel(scale=scale, text=ALL).to_series()
        rise = {name: f"{name} {by:+.0%}" for name, by in rise.items()}
        words = f"perplexity x {nonsense[-1] / nonsense[0]:,.0f}, {rise[conditional[0]]}"
        changes = ", ".join(rise[name] for name in others)
        least, most = (f"{of(rises.sel(score=_SHOWN)):+.0%}" for of in (np.min, np.max))
        drawings = {
            "temperature": drawn(
                whole.sel(score=conditional), words,
                column="score", each=beside, size=(3.5, 2.6),
            ),
            "temperature_scores": drawn(
                whole.sel(score=others), changes, hue="score", size=(7.0, 2.6)
            ),
            "temperature_controls": drawn(
                controls, f"{_SHOWN} {least} to {most}, by text and bandwidth", hue="text",
                column="scale", size=(2.3, 2.4),
            ),
        }  # fmt: skip
        return {k: figures.caption(of, run, bars="95%", scale=scale) for k, of in drawings.items()}
