"""Scores of 1, 2, ... types by prompts that name the type or do not: CV figures 5 and 16-18."""

import dataclasses
import re
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import condvendi_jax as cv
from condvendi_jax.base import extras
from condvendi_jax.data.pairs import Pairs
from experiments import lab
from experiments.conditional_vendi import type_draws
from experiments.conditional_vendi.type_draws import FAMILIES, KINDS, PROMPTINGS, SCORES
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables

_PROMPTS = {
    "first": ("prompts", "typed_prompts"),
    "second": ("second_prompts", "second_typed_prompts"),
}
_SETS = ("dogs", "fruits", "clothing", "animals", "objects")
_MODELS = ("0.1", "0.55", "1")
_UNCLUSTERED = tuple(kind.format(family) for family in FAMILIES for kind in KINDS[:2])
_MARKED = (2, 5, 20, 50, 200, 500)  # On logarithmic axes, between the decades.


class TypeAblation(lab.Study):
    """Do conditional scores measure only the diversity that prompts leave open?"""

    name = "type_ablation"
    reproduces = "CV figs 5, 16-18; CV-early figs 2, 3, 12-23"
    duration = "2 minutes"
    packages = {"clusters": "scikit-learn"}
    data = "dogs"
    needs = ("types",)
    takes = ("wording", "models")
    further = ("typed_prompts", "second_prompts", "second_typed_prompts")
    runs = (
        (),
        *((f"--data={name}",) for name in _SETS[1:]),
        ("--prompts_by=second",),
        *(("--data=sketched_animals", f"--model={model}") for model in _MODELS),
    )
    drawings = (
        *(f"type_ablation_{name}" for name in _SETS),
        "type_ablation_dogs_second",
        "type_ablation_sketched_animals",
        *(f"type_ablation_sketched_animals_{model}" for model in _MODELS),
        "type_ablation_bandwidths",
        "type_ablation_correlation",
    )

    bandwidths: lab.Scales = lab.Scales()
    repeats: int = lab.flag(
        5,
        "Draws: the order of the types, the outputs of each, and the wording of each.",
        at_least=1,
    )
    per_type: int = lab.flag(
        50, "Outputs of each type in a draw; at most as many as the rarest type has.", at_least=1
    )
    prompts_by: str = lab.flag(
        "first",
        "Which embeddings of the prompts are taken: those of --prompts and --typed_prompts, or of "
        "--second_prompts and --second_typed_prompts.",
        choices=tuple(_PROMPTS),
    )
    restarts: int = lab.flag(10, "Starts of K-means, of which the best is taken.", at_least=1)
    model: str | None = lab.flag(
        None,
        "Take the outputs of this model alone, of those in --models; the bandwidths are chosen on "
        "all. All outputs if unset.",
    )
    data_name: str = lab.resolved("")
    n: int = lab.resolved(0)
    types: tuple[str, ...] = lab.resolved(())
    exchanged: bool = lab.resolved(False)

    def prepare(self, load, seed):
        """Checks the types and prompts, and chooses bandwidths that hold for both promptings."""
        pairs = load()
        prompts = self._promptings(pairs)
        outputs = np.concatenate([pairs.outputs] * 2)
        pooled = PairedEmbeddings(pairs.name, outputs, np.concatenate(prompts), "")
        bandwidths = self.bandwidths.resolve(pooled, seed)
        description = pairs.description
        if self.model is not None:
            kept = type_draws.rows_of(self.model, pairs)
            pairs, prompts = pairs.rows(kept), [embeddings[kept] for embeddings in prompts]
            description = f"{description.rstrip('.')}; the {len(pairs):,} of {self.model}"
        types, counts = np.unique(pairs.labels["types"], return_counts=True)
        if len(types) < 2:
            raise ValueError(f"--types: expected at least two types, received {len(types)}.")
        labels = {role: pairs.labels[role] for role in ("types", "wording") if role in pairs.labels}
        arrays = {"outputs": pairs.outputs, "prompts": prompts[0], "typed_prompts": prompts[1]}
        return self.ready(
            state=(pairs, prompts),
            arrays={**arrays, **labels},
            description=description,
            bandwidths=bandwidths,
            per_type=min(self.per_type, int(counts.min())),
            data_name=pairs.name,
            n=len(pairs),
            types=tuple(map(str, types)),
            exchanged="wording" in pairs.labels,
        )

    def _promptings(self, pairs: PairedEmbeddings) -> list[np.ndarray]:
        """The prompts without the type and with it, by the encoder that is asked for."""
        given, roles = {"prompts": pairs.prompts, **pairs.further}, _PROMPTS[self.prompts_by]
        for role in roles:
            if role not in given:
                raise ValueError(
                    f"--{role}: the study needs the prompts twice, with the type unspecified and "
                    f"with the type named, by one encoder; {pairs.name} has {', '.join(given)}."
                )
        prompts = [given[role] for role in roles]
        if prompts[0].shape != prompts[1].shape:
            raise ValueError(
                f"{' and '.join(roles)} must be of one encoder, received shapes "
                f"{prompts[0].shape} and {prompts[1].shape}."
            )
        if self.bandwidths.kernel == "cosine":  # A row that is refused is named as in its file.
            for rows in prompts:
                Pairs(pairs.outputs, rows, output_kernel=cv.Cosine(), prompt_kernel=cv.Cosine())
        return prompts

    def axes(self):
        return {"repeat": range(self.repeats)}

    def compute(self, state, context, *, repeat):
        """Every score of every number of types, for one draw at every multiple of the bandwidths.

        And of all types by prompting: `agreement`, the adjusted Rand index between the best K-means
        clusters and the types (1 where they are the same, 0 at chance), and `stability`, the mean
        of that index between the best start of K-means and the other ones.
        """
        pairs, prompts = state
        rows, prompt_rows = type_draws.draw_rows(
            pairs.labels["types"],
            self.per_type,
            exchanged=self.exchanged,
            seed=np.asarray(jax.random.key_data(context.key)).tolist(),
        )
        outputs, texts = pairs.outputs[rows], [embeddings[prompt_rows] for embeddings in prompts]
        numbers = np.arange(1, len(self.types) + 1)
        types, sizes = np.repeat(numbers - 1, self.per_type), self.per_type * numbers
        with extras.needed("clusters", package="scikit-learn", purpose="this study"):
            from sklearn.metrics import adjusted_rand_score
        context.say("K-means")
        means = [
            [
                type_draws.by_k_means(text[:n], j, self.restarts, context.key)
                for j, n in enumerate(sizes, start=1)
            ]
            for text in texts
        ]
        best = [[starts[0] for starts in of_text] for of_text in means]
        values = [
            type_draws.scores_by_count(outputs, texts, types, sizes, best, scale.kernels)
            for scale in self.bandwidths.axis
        ]
        agreement, stability = [], []
        for first, *others in (of_text[-1] for of_text in means):
            agreement.append(adjusted_rand_score(types, first))
            same = [adjusted_rand_score(first, other) for other in others]
            stability.append(np.mean(same or [1]))
        axes = {"scale": list(self.bandwidths.scales or ()), "prompting": list(PROMPTINGS)}
        axes |= {"score": list(SCORES), "j": numbers}
        indices = {"agreement": ("prompting", agreement), "stability": ("prompting", stability)}
        return xr.Dataset({"value": (tuple(axes), np.stack(values)), **indices}, axes)

    def tables(self, run):
        """The scores of one and of all types, and the correlations, at every multiple."""
        found, rows = run.found, ("scale", "score", "j")
        ends = tables.spreads(found.value.isel(j=[0, -1]), "repeat")
        yield tables.table(ends, rows=rows, columns="prompting", error="error")
        together = tables.spreads(type_draws.correlations(found.value, ["j"]), "repeat")
        heads = {"score": "Pearson's correlation over j"}
        yield tables.table(
            together, rows=rows[:2], columns="prompting", error="error", names=heads, digits=3
        )
        indices = found[["agreement", "stability"]].mean("repeat").to_dataarray("Rand index")
        indices = xr.Dataset({"value": indices})
        yield tables.table(indices, rows=("Rand index",), columns="prompting", digits=2)

    def variant(self):
        model = re.sub(r"[^\w.+]+", "_", self.model or "")
        second = "second" if self.prompts_by == "second" else ""
        return "-".join(filter(None, (model, second)))

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            words = "type_ablation", run.study.data_name, run.study.variant().replace("-", "_")
            drawn["_".join(filter(None, words))] = _scores(run)
        whole = [run for run in runs if run.study.model is None]
        if whole:
            drawn["type_ablation_bandwidths"] = _growth(whole)
            drawn["type_ablation_correlation"] = _correlation(whole)
        alone = [run for run in runs if run.study.model is not None]
        for name in dict.fromkeys(run.study.data_name for run in alone):
            of_set = [run for run in alone if run.study.data_name == name]
            drawn[f"type_ablation_{name}"] = _models(of_set)
        return drawn


def _label(run: lab.Run) -> str:
    second = " (second encoder)" if run.study.prompts_by == "second" else ""
    return run.study.data_name + second


def _shown(run: lab.Run) -> xr.DataArray:
    """The scores at the one multiple of the bandwidths that is drawn."""
    return run.found.value.sel(scale=run.study.bandwidths.shown, drop=True)


def _against_types(values: xr.DataArray, runs: Sequence[lab.Run], **panels) -> Figure:
    """Scores against the number of types, by prompts that leave the type open and that name it."""

    def title(of_row, of_column):
        place = {panels.get("row"): of_row, panels["column"]: of_column}
        times = type_draws.growth(values.sel({k: v for k, v in place.items() if k})).value
        both = (times.sel(prompting=prompting).item() for prompting in PROMPTINGS)
        return "{}: x {:.2g}, named x {:.2g}".format(of_column, *both)

    def from_zero(panel, _):
        panel.set_ylim(0, None)
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))

    drawn = figures.facets(
        tables.spreads(values, "repeat"), x="j", hue="prompting", error="error", each=from_zero,
        title=title, x_label="number of types j", **panels,
    )  # fmt: skip
    study = runs[0].study
    n = f"{study.repeats} draws of {study.per_type} a type"
    if study.prompts_by == "second":
        n = f"prompts by the second encoder, {n}"
    bars = "one standard deviation; titles: all types over one"
    return figures.caption(drawn, runs, n=n, bars=bars, scale=study.bandwidths.shown)


def _scores(run: lab.Run) -> Figure:
    """A row a family, a column a kind of score (CV figs 5 and 16-18)."""
    look = {"column": "score", "across": len(KINDS), "size": (3.1, 2.4), "sharey": False}
    return _against_types(_shown(run), [run], **look)


def _models(runs: Sequence[lab.Run]) -> Figure:
    """A column a model, a row a score."""
    models = xr.DataArray([run.study.model for run in runs], dims="model", name="model")
    values = xr.concat([_shown(run) for run in runs], models).sel(score=list(_UNCLUSTERED))

    # Of all models: without the words on the one that is taken alone.
    whole = runs[0].study.description.rpartition("; the ")[0]
    study = dataclasses.replace(runs[0].study, description=whole)
    look = {"row": "score", "column": "model", "size": (3.0, 2.0), "y_label": str}
    return _against_types(values, [dataclasses.replace(runs[0], study=study)], **look)


def _growth(runs: Sequence[lab.Run]) -> Figure:
    """How many times the score of all types is that of one, against the bandwidths."""
    sets = xr.DataArray([_label(run) for run in runs], dims="set", name="set")
    scores = [run.found.value.sel(score=list(_UNCLUSTERED)) for run in runs]
    found = xr.concat([type_draws.growth(values) for values in scores], sets, join="outer")

    def title(prompting, score):
        mean = found.value.sel(prompting=prompting, score=score).mean("set")
        low, high = mean.min().item(), mean.max().item()
        return f"{score}, {prompting}:\nx {low:.2g} to {high:.2g}"

    drawn = figures.facets(
        found, x="scale", hue="set", row="prompting", column="score", error="error", log_y=True,
        title=title, x_label="multiple of the bandwidths", size=(2.9, 2.5), sharey=True,
        y_label="score of all types / of one",
    )  # fmt: skip
    study = runs[0].study
    words = f"{len(runs)} sets, {study.repeats} draws of {study.per_type} a type"
    style.caption(drawn, f"{words}; seed {runs[0].seed}. Bars: one standard deviation.")
    return drawn


def _correlation(runs: Sequence[lab.Run]) -> Figure:
    """Conditional- against Cluster-scores, a point a number of types (CV-early figs 22 and 23)."""
    figure, axes = style.panels(4, columns=2, size=(4.4, 3.6))
    together = [type_draws.correlations(_shown(run), ["prompting", "j"]) for run in runs]
    together = xr.concat(together, "set").mean("repeat")
    for panel, name in zip(axes, type_draws.CLUSTERED, strict=True):
        conditional = type_draws.conditional_of(name)
        for run, colour in zip(runs, style.CYCLE, strict=False):
            means = _shown(run).mean("repeat")
            for prompting, face in zip(PROMPTINGS, (colour, "white"), strict=True):
                x, y = (means.sel(prompting=prompting, score=of) for of in (name, conditional))
                label = f"{_label(run)}, {prompting}"
                panel.plot(x, y, "o", color=colour, markerfacecolor=face, label=label)
        panel.set(xlabel=name, ylabel=conditional, xscale="log", yscale="log")
        r = together.sel(score=name)
        low, high = r.min().item(), r.max().item()
        panel.set_title(f"r = {low:.2f} to {high:.2f} over all prompts of a set")
        for axis in (panel.xaxis, panel.yaxis):
            style.log_numbers(axis)
            axis.set_minor_formatter(lambda value, _: f"{value:g}" if value in _MARKED else "")
    style.legend_above(figure, axes[0], columns=3)
    study = runs[0].study
    style.caption(
        figure,
        f"{len(runs)} sets, j = 1, 2, ... types, means of {study.repeats} draws of "
        f"{study.per_type} a type; seed {runs[0].seed}. r: Pearson's correlation over j within a "
        "draw, the mean of the draws.",
    )
    return figure
