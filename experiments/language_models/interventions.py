"""Cures for sameness at equal quality: what is counted passes one bar, of as many requests."""

import pathlib
import tomllib
from typing import Any

import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments import lab
from experiments.lab import figures, models, style, tables
from experiments.language_models import judged
from experiments.language_models.judged import WHOLE

_TOML = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))
PUBLISHED: dict[str, dict[str, list[float]]] = _TOML["cures"]


class Interventions(lab.Study):
    """Which cure for sameness buys most different answers at equal quality?"""

    data = "interventions"
    needs = ("models", "source", "prompt", "quality")
    further = ("truncated",)
    random = False
    control = "All cures of a source answer the same prompts, equally often, for one judge."
    grows = ("source",)

    widths: judged.Widths = judged.Widths()
    bars: tuple[float, ...] = lab.flag(
        (0, 4, 6, 7, 8, 9, 10), "Qualities from which answers count, each drawn."
    )
    at_least: float = lab.flag(6.0, "The one that tables and titles show.")
    counts: dict[str, list[int]] = lab.resolved()
    texts: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        sources = models.rows_by_model(pairs.labels["source"])
        parts = {name: pairs.rows(chosen) for name, chosen in sources.items()}
        state = {name: (part, judged.by_prompt(part)[0]) for name, part in parts.items()}
        return self.ready(
            pairs,
            state=state,
            widths=self.widths.resolve(pairs),
            counts={name: list(rows.shape) for name, (_, rows) in state.items()},
            texts=tuple(judged.texts_of(pairs)),
        )

    def axes(self):
        return {"source": tuple(self.counts), "text": self.texts, "scale": self.widths.axis}

    def compute(self, state, context, *, source, text, scale):
        """The cures of a source beside its baseline, the first of them.

        Over `model` and `end` (the value and its 95% interval): the unbiased `number` of different
        answers and how many `times` the baseline's it is; the mean `quality` and how much `better`
        than the baseline's it is; over `bar` too: `good`, how many of the answers to a prompt pass
        the bar and differ, and `good_times` the baseline's. All bars for whole answers at the scale
        shown, else the one of the tables.
        """
        part, rows = state[source]
        outputs = judged.texts_of(part)[text][rows]
        names = list(judged.by_model(part, rows, "models"))
        quality = judged.numbers(part, "quality", rows)
        prompts = np.repeat(np.arange(rows.shape[1]), rows.shape[2])
        answers, values = (
            dict(zip(names, of.reshape(len(names), len(prompts), *of.shape[3:]), strict=True))
            for of in (outputs, quality)
        )
        shown = text == WHOLE and scale.coordinate == self.widths.shown
        good, good_times = {}, {}
        options: Any = {"output_kernel": cv.Gaussian(scale.outputs), "orders": [2]}
        options |= {"quality": values, "profile": False}
        for bar in sorted({self.at_least, *(self.bars if shown else ())}):
            context.say(f"answers of at least {bar:g}")
            compared = cv.compare(answers, prompts, at_least=bar, **options)
            found = [compared.qualities[name].number for name in names]
            good[bar] = [[one.value, *(one.ends or (np.nan, np.nan))] for one in found]
            good_times[bar] = _times(compared.ranking("quality", 0), names)
        scores, means = compared.ranking("conditional", 2), quality.mean(axis=2)
        assert scores.unbiased and scores.intervals is not None
        by, by_bar = ("model", "end"), ("bar", "model", "end")
        fields = {
            "number": (by, [[scores.values[name], *scores.intervals[name]] for name in names]),
            "times": (by, _times(scores, names)),
            "quality": (by, _with_ends(means)),
            "better": (by, _with_ends(means - means[0])),
            "good": (by_bar, list(good.values())),
            "good_times": (by_bar, list(good_times.values())),
        }
        return xr.Dataset(fields, {"model": names, "bar": list(good)})

    def tables(self, run):
        """Every cure, by all of its answers and by those that pass the bar."""
        found = _known(run.found)
        for text in run.study.texts:
            for scale in run.study.widths.scales:
                yield _cures(found.sel(text=text, scale=scale, bar=run.study.at_least))

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        found, shown = _known(run.found), run.study.widths.shown
        every = found.max("source")  # A cure has one source.
        told = "asked again", "one conversation", "verbalized sampling"  # The page has these.
        rows = [[m, k, *map(str, PUBLISHED[m][k])] for m in [*PUBLISHED][:2] for k in told]

        def of(cure: str, text: str = WHOLE, scale: float = shown) -> xr.Dataset:
            return every.sel(model=cure.replace("_", " "), text=text, scale=scale)

        return {
            "cures": _cures(found.sel(text=WHOLE, scale=shown, bar=run.study.at_least)),
            "of": of,
            "poems": lambda model, cure: PUBLISHED[model.replace("_", " ")][cure.replace("_", " ")],
            "published": tables.grid_of([["model", "cure", "distance", "quality"], *rows]),
        }

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        parts = _parts(_known(run.found).sel(text=WHOLE, scale=run.study.widths.shown))
        plane, panels = style.panels(len(parts) + 1, columns=2, size=(3.5, 2.7))
        sweep, of_bars = style.panels(len(parts), columns=len(parts), size=(2.4, 2.9))
        for panel, of_bar, (source, part) in zip(panels, of_bars, parts.items(), strict=False):
            names, title = part.model.values, _TOML["titles"].get(source, source)
            _plane(panel, names, part.quality.values, part.number.values, style.CYCLE)
            panel.set(title=title, ylabel="different answers to a prompt")
            for place, (value, *ends) in enumerate(part.good.transpose("model", "end", ...).values):
                look = {"label": names[place], **style.look(place, style.CYCLE[place])}
                of_bar.errorbar(part.bar, value, abs(ends - value), **look, elinewidth=0.8)
            asked = f"good and different, of {run.study.counts[source][2]} answers"
            of_bar.set(title=title, xlabel="good: quality of at least", ylabel=asked)
            of_bar.set(xticks=part.bar[::2], ylim=(0, None))
            of_bar.legend(loc="lower left", handlelength=1)
        both = []  # Whether a published cure raises distance and quality.
        for model, colour in zip([*PUBLISHED][:2], style.CYCLE, strict=False):
            distance, quality = np.array([*PUBLISHED[model].values()]).T[..., None]
            _plane(panels[-1], [*PUBLISHED[model]], quality, distance, 9 * [colour])
            style.above(panels[-1], model, (quality[0, 0], distance[0, 0]), -12)
            both += np.all([of[1:] > of[0] for of in (distance, quality)], axis=(0, 2)).tolist()
        panels[-1].set(title="Poems by two models (published)", ylabel="mean distance of two poems")
        for panel in panels:  # The markers of both models mean the same.
            shown = dict(zip(*panel.get_legend_handles_labels()[::-1], strict=True))
            panel.legend(shown.values(), shown, loc="upper center", ncols=2)
            panel.set_ylim(0, 1.5 * panel.get_ylim()[1])
        bar, names = run.study.at_least, ("times", "better", "good_times")
        cures = [part.isel(model=slice(1, None)) for part in parts.values()]
        times, better, good = (np.concatenate([of[k] for of in cures], axis=-2) for k in names)
        told = np.repeat(~np.isin([*parts], _TOML["dependent"]), [of.model.size for of in cures])
        bars, more = cures[0].bar.values.tolist(), times[:, 1] > 1
        place, worse = bars.index(bar), np.sum(better[more, 2] < 0)
        words = "all" if worse == more.sum() else worse
        finding = f"of {told.sum()} cures that can be tested give more different answers, {words}"
        published = f"{sum(both)} of {len(both)} published for poems raise distance and quality"
        style.headline(plane, f"{more.sum()} {finding} of lower quality; {published}")
        helped = good[:, told & (good[place, :, 1] > 1), 0]
        spans = [f"{min(k):.2f} to {max(k):.2f} times" for k in helped[[place, 0]] if k.size]
        words = f"; of quality {bars[0]:g} or more, ".join(spans)
        words += "" if told.all() else ". Samplers: too few prompts to tell"
        finding = f"{helped.shape[1]} of {told.sum()} cures give more different answers"
        style.headline(sweep, f"{finding} of quality {bar:g} or more: {words}")
        drawn = {"interventions": plane, "interventions_bars": sweep}
        n = ", ".join(f"{of[1]} x {of[2]}" for of in run.study.counts.values())
        look: dict[str, Any] = {"n": f"prompts x answers {n}", "bars": "95%", "scale": 1.0}
        return {name: figures.caption(of, run, **look) for name, of in drawn.items()}


def _known(found: xr.Dataset) -> xr.Dataset:
    """Without the ends of intervals where a source has too few prompts for any."""
    ends = xr.DataArray(np.arange(3) > 0, dims="end")
    return found.where(~(found.source.isin(_TOML["dependent"]) & ends))


def _parts(found: xr.Dataset) -> dict[str, xr.Dataset]:
    """The cures of every source, its baseline first."""
    whole = {source: found.sel(source=source) for source in found.source.values.tolist()}
    parts = {k: of.dropna("model", how="all", subset=["number"]) for k, of in whole.items()}
    return {k: of.sortby((of.times != 1).any("end")) for k, of in parts.items()}


def _times(ranking: Any, names: list[str]) -> list[list[float]]:
    """How many times the score of the first model each has, with the ends of the interval."""
    first, found = ranking.values[names[0]], [[1.0, 1.0, 1.0]]
    for name in names[1:]:
        one = ranking.difference(name, names[0])
        times = ranking.values[name] / first if first else np.nan
        found.append([times, one.ratio_low, one.ratio_high])
    return found


def _with_ends(values: np.ndarray) -> np.ndarray:
    """The means over the prompts `[cures, prompts]` with their 95% intervals, `[cures, 3]`."""
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return mean[:, None] + 1.96 * error[:, None] * np.array([0, -1, 1])


def _cures(found: xr.Dataset) -> Any:
    """The cures of every source, each below its baseline, with 95% intervals."""
    names = {"model": "cure", "number": "different answers", "good": "good and different"}
    names["good_times"] = "times, good"
    order = [model for part in _parts(found).values() for model in part.model.values]
    shown = found.max("source").sel(model=order)[
        ["number", "times", "quality", "good", "good_times"]
    ]
    words = tables.intervals(shown.to_array("score"))
    return tables.table(words, rows=["model"], columns="score", names=names)


def _plane(panel: Any, names: Any, x: np.ndarray, y: np.ndarray, colours: Any) -> None:
    """Points `[n, 1 or 3]` with the ends of their intervals, and arrows from the first."""
    for place, name in enumerate(names):
        (x_0, y_0), look = (x[place, 0], y[place, 0]), style.look(place, colours[place])
        if x.shape[1] > 1:
            look |= {"xerr": abs(x[place, 1:, None] - x_0), "yerr": abs(y[place, 1:, None] - y_0)}
        panel.errorbar(x_0, y_0, **look, elinewidth=0.8, ls="", label=name)
        arrow = {"arrowstyle": "->", "color": style.GREY, "lw": 0.7, "shrinkA": 4, "shrinkB": 4}
        panel.annotate("", (x_0, y_0), (x[0, 0], y[0, 0]), arrowprops=arrow)
    panel.set_xlabel("mean quality by the source's judge")
    panel.margins(0.15)
