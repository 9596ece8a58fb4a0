"""What a language model's temperature does to the diversity of its stories (CV tables 2, 4, 5)."""

import itertools
from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, knobs, models, style, tables

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
    prompt = pairs.prompt_numbers
    unknown = np.full(len(pairs), np.nan)
    finished, tokens, likelihood = (
        np.asarray(pairs.labels.get(role, unknown), float) for role in LABELS
    )
    columns = np.stack([np.ones(len(pairs)), finished, tokens, likelihood])
    sums = np.array([np.bincount(prompt, column) for column in columns])

    def of(totals: np.ndarray) -> np.ndarray:
        count, ended, length, log = totals
        return np.array([np.exp(-log / length), ended / count, length / count])

    whole, parts = sums.sum(axis=1), sums.shape[1]
    deleted = of(whole[:, None] - sums)
    spread = np.sum((deleted - deleted.mean(axis=1, keepdims=True)) ** 2, axis=1)
    return of(whole), np.sqrt((parts - 1) / parts * spread)


ALL, CUT = "all", "cut"
_RTOL = 0.005
_WORDS = {ALL: "all", FINISHED: "ended", CUT: "cut"}
_COLOURS = {ALL: style.BLUE, FINISHED: style.GREEN, CUT: style.ORANGE}
_SHOWN = "Conditional-RKE"


class Temperature(lab.Study):
    """Does a language model's temperature raise its stories' diversity, or their nonsense?"""

    name = "temperature"
    duration = "2 minutes"
    data = "stories"
    needs = ("models",)
    takes = ("prompt", *LABELS)
    further = ("truncated",)
    drawings = ("temperature",)

    bandwidths: lab.Scales = lab.Scales()
    groups: int = lab.flag(
        10, "Groups of prompts that the jackknife leaves out, one at a time.", at_least=2
    )
    prompts: int = lab.resolved(0)
    models: tuple[str, ...] = lab.resolved(())
    texts: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        pairs = load()
        names = tuple(f"{value:g}" for value in np.unique(knobs.settings(pairs)))
        if len(set(names)) < len(names):
            raise ValueError(
                f"--models: expected six digits to tell temperatures apart, not {names}."
            )
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
                raise ValueError(
                    f"--finished: {left} prompts have a story that ended from every model, fewer "
                    f"than --groups={self.groups}."
                )
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

        Returns:
          Beside them, with the axis `control`: `known` of the stories that were scored, and
          `known_error` over prompts: perplexity under the model at temperature 1, the share that
          ended, the mean length in tokens; NaN where the data do not say, and of cut stories.
        """
        pairs = state
        if text == FINISHED:
            pairs = pairs.rows(balanced_finished(pairs))
        texts = pairs.further["truncated"] if text == CUT else pairs.outputs
        settings = knobs.settings(pairs)
        rows = dict(zip(self.models, [settings == v for v in np.unique(settings)], strict=True))
        found = models.compare(
            {name: texts[of] for name, of in rows.items()},
            {name: pairs.prompts[of] for name, of in rows.items()},
            scale,
            groups=self.groups,
            seed=context.shared_seed,
            method=cv.Auto(context.shared_key, rtol=_RTOL),  # Exact up to n = 4,096.
            say=context.say,
            unbiased=False,
        )
        known = np.array([controls_of(pairs.rows(of)) for of in rows.values()])
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
        steps = list(itertools.pairwise(self.models))
        words = xr.DataArray([f"{two} - {one}" for one, two in steps], dims="step", name="step")
        change = found[["difference", "difference_error", "p_value"]]
        parts = [change.sel(other=one, model=two, drop=True) for one, two in steps]
        changes, error = xr.concat(parts, words), "difference_error"
        yield tables.table(changes, rows=rows, columns="step", value="difference", error=error)
        yield tables.table(changes, rows=rows, columns="step", value="p_value", digits=1)
        known = found.sel(scale=self.bandwidths.shown)
        rows = ("text", "control")
        yield tables.table(known, rows=rows, columns="model", value="known", error="known_error")

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, found = run.study, run.found
        shown = found.sel(scale=study.bandwidths.shown)
        whole = shown.sel(text=ALL)
        figure, axes = style.panels(6, size=(3.6, 2.7))
        for panel, kind in zip(axes, ("Conditional-", "Information-", ""), strict=False):
            names = f"{kind}Vendi", f"{kind}RKE"
            for name in names:
                _line(panel, whole.sel(score=name), style.score_colour(name), name)
            panel.set_ylabel("effective number of modes")
            panel.set_title(_changes({name: whole.sel(score=name) for name in names}))
            if kind != "Conditional-":
                style.log_axis(panel)
        for text in study.texts:
            part = shown.sel(text=text, score=_SHOWN)
            _line(axes[3], part, _COLOURS[text], f"{_WORDS[text]} stories, n = {part.n[0]:,}")
        of = {_WORDS[text]: shown.sel(text=text, score=_SHOWN) for text in study.texts}
        axes[3].set(ylabel=_SHOWN, title=f"{_SHOWN}: {_changes(of)}")
        of = {f"x {x:g}": found.sel(scale=x, text=ALL, score=_SHOWN) for x in found.scale.values}
        for colour, (scale, part) in zip(style.CYCLE, of.items(), strict=False):
            scaled = part[["value", "error"]] / part.value[0]
            _line(axes[4], scaled, colour, f"bandwidths {scale}")
        axes[4].set(ylabel=f"{_SHOWN}, first = 1", title=f"{_SHOWN}: {_changes(of)}")
        for panel in axes[:5]:
            panel.legend()
        _controls(axes[5], whole)
        for panel in axes:
            panel.set_xticks([float(word) for word in study.models], study.models)
            panel.set_xlabel("temperature")
        n = f"n = {', '.join(f'{n:,}' for n in dict.fromkeys(whole.n.values.tolist()))} each"
        matched = {FINISHED: "ended ones matched by prompt", CUT: "cut ones to one length"}
        n = ", ".join([n, *(matched[text] for text in study.texts if text != ALL)])
        scale = f"bandwidths x {study.bandwidths.shown:g} where not said"
        bars = f"95%, over {study.groups} groups of prompts; {scale}"
        return {"temperature": figures.caption(figure, run, n=n, bars=bars)}


def _changes(curves: Mapping[str, xr.Dataset]) -> str:
    """By how much the last temperature's value differs from the first's, for each curve."""
    ratios = {name: (of.value[-1] / of.value[0]).item() for name, of in curves.items()}
    return ", ".join(f"{name} {ratio - 1:+.0%}" for name, ratio in ratios.items())


def _line(panel: Axes, found: xr.Dataset, colour: str, label: str) -> None:
    """One score of every temperature with 95% intervals."""
    look = {"color": colour, "marker": "o", "elinewidth": 0.8, "label": label}
    panel.errorbar(found.model.astype(float), found.value, 1.96 * found.error, **look)


def _controls(panel: Axes, found: xr.Dataset) -> None:
    """Perplexity on a logarithmic axis, the share that ended written at each point."""
    perplexity, ended = (found.known.sel(control=name) for name in CONTROLS[:2])
    if np.isnan(perplexity).all():
        panel.set_axis_off()
        return
    x = found.model.values.astype(float)
    errors = 1.96 * found.known_error.sel(control="perplexity")
    panel.errorbar(x, perplexity, errors, color=style.BLACK, marker="o")
    panel.set_yscale("log")
    style.log_numbers(panel.yaxis)
    times = (perplexity[-1] / perplexity[0]).item()
    panel.set(ylabel="perplexity, model at T = 1", title=f"perplexity rises {times:,.0f}-fold")
    panel.margins(x=0.45, y=0.15)
    for place, height, share in zip(x, perplexity.values, ended.values, strict=True):
        if not np.isnan(share):
            look = {"textcoords": "offset points", "ha": "right", "fontsize": 7.5}
            panel.annotate(f"{share:.0%} ended", (place, height), (-4, 4), **look)
