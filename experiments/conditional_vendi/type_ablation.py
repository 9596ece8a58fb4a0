"""Scores of 1, 2, ... types by prompts that name the type or do not: CV figures 5 and 16-18."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from experiments import lab
from experiments.conditional_vendi import type_draws
from experiments.conditional_vendi.type_draws import PROMPTINGS, SCORES
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables

_PROMPTS = {
    "first": ("prompts", "typed_prompts"),
    "second": ("second_prompts", "second_typed_prompts"),
}
_SETS = ("dogs", "fruits", "clothing", "animals", "objects")
_MODELS = ("0.1", "0.55", "1")
_UNCLUSTERED = ("Conditional-Vendi", "Vendi", "Conditional-RKE", "RKE")
_SHOWN = ["Conditional-Vendi", "Cluster-Vendi", "Conditional-RKE", "Cluster-RKE"]
_OTHERS = [score for score in SCORES if score not in _SHOWN]


class TypeAblation(lab.Study):
    """Do conditional scores measure only the diversity that prompts leave open?"""

    name = "type_ablation"
    control = "The same outputs are scored with named and unnamed types, at equal n and at n of j."
    grows = ("j",)
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
        "type_ablation_dogs_others",
        *(f"type_ablation_sketched_animals_{model}" for model in _MODELS),
        "type_ablation_bandwidths",
        "type_ablation_correlation",
    )

    bandwidths: lab.Scales = lab.Scales()
    repeats: int = lab.flag(5, "Draws of the order of types, of outputs and wordings.", at_least=1)
    per_type: int = lab.flag(
        50, "Outputs of each type in a draw; at most as many as the rarest type has.", at_least=1
    )
    prompts_by: str = lab.flag(
        "first",
        "Take --prompts and --typed_prompts, or --second_prompts and --second_typed_prompts.",
        choices=tuple(_PROMPTS),
    )
    restarts: int = lab.flag(10, "Starts of K-means, of which the best is taken.", at_least=1)
    model: str | None = lab.flag(
        None, "Take the outputs of this model of --models alone; bandwidths are chosen on all."
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
        bandwidths, description = self.bandwidths.resolve(pooled, seed), pairs.description
        if self.model is not None:
            models = np.asarray(pairs.labels.get("models", ())).astype(str)
            if self.model not in models:
                known = ", ".join(np.unique(models)) or "none, without --models"
                raise ValueError(f"--model: unknown {self.model!r}; known: {known}.")
            kept = models == self.model
            pairs, prompts = pairs.rows(kept), [embeddings[kept] for embeddings in prompts]
            description = f"{description.rstrip('.')}; the {len(pairs):,} of {self.model}"
        types, counts = np.unique(pairs.labels["types"], return_counts=True)
        if len(types) < 2:
            raise ValueError(f"--types: expected at least two types, received {len(types)}.")
        arrays = {"outputs": pairs.outputs, "prompts": prompts[0], "typed_prompts": prompts[1]}
        arrays |= {of: pairs.labels[of] for of in ("types", "wording") if of in pairs.labels}
        return self.ready(
            state=(pairs, prompts),
            arrays=arrays,
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
        first, second = (given[role] for role in roles)
        if first.shape != second.shape:
            shapes = f"received shapes {first.shape} and {second.shape}"
            raise ValueError(f"{' and '.join(roles)} must be of one encoder, {shapes}.")
        return [first, second]

    def axes(self):
        return {"repeat": range(self.repeats)}

    def compute(self, state, context, *, repeat):
        """Every score of every number of types, for one draw at every multiple of the bandwidths.

        Of all types by prompting, `agreement` is the adjusted Rand index of the best K-means
        clusters and the types, and `stability` its mean over that start and every other one.
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
        context.say("K-means")
        best, agreement, stability = [], [], []
        for text in texts:
            starts = [
                type_draws.by_k_means(text[:n], j, self.restarts, context.key)
                for j, n in enumerate(sizes, start=1)
            ]
            best.append([of_j[0] for of_j in starts])
            first, *others = starts[-1]
            agreement.append(type_draws.rand_index(types, first))
            same = [type_draws.rand_index(first, other) for other in others]
            stability.append(np.mean(same or [1]))
        values = [
            type_draws.scores_by_count(outputs, texts, types, sizes, best, scale.kernels)
            for scale in self.bandwidths.axis
        ]
        axes = {"scale": list(self.bandwidths.scales or ()), "prompting": list(PROMPTINGS)}
        axes |= {"score": list(SCORES), "j": numbers}
        indices = {"agreement": ("prompting", agreement), "stability": ("prompting", stability)}
        return xr.Dataset({"value": (tuple(axes), np.stack(values)), **indices}, axes)

    def tables(self, run):
        """The scores of one and of all types, and the correlations, at every multiple."""
        found = run.found
        look: dict[str, Any] = {"columns": "prompting", "error": "error"}
        ends = tables.spreads(found.value.isel(j=[0, -1]), "repeat")
        yield tables.table(ends, rows=("scale", "score", "j"), **look)
        together = tables.spreads(type_draws.correlations(found.value, ["j"]), "repeat")
        names = {"score": "Pearson's correlation over j"}
        yield tables.table(together, rows=("scale", "score"), names=names, digits=3, **look)
        indices = found[["agreement", "stability"]].mean("repeat").to_dataarray("Rand index")
        yield tables.table(
            indices.to_dataset(name="value"), rows=("Rand index",), columns="prompting", digits=2
        )

    def variant(self):
        model = re.sub(r"[^\w.+]+", "_", self.model or "")
        second = "second" if self.prompts_by == "second" else ""
        return "-".join(filter(None, (model, second)))

    @classmethod
    def facts(cls, runs):
        found, few = _together(runs), list(_UNCLUSTERED[:3])
        value, widths = found.value, [run.study.bandwidths for run in runs]
        mean, growth = value.mean("repeat"), type_draws.growth(value)
        ends = (mean.sel(score=few).isel(j=place) for place in (0, -1))
        words = xr.apply_ufunc(lambda *of: "{:.3g}→{:.3g}".format(*of), *ends, vectorize=True)
        ends, columns = xr.Dataset({"value": words}), "prompting"
        sets = ends.sel(run=[*_SETS, "second"], scale=1)
        models = growth.sel(run=list(_MODELS), score=few, scale=[0.5, 1])
        return {
            "mean": mean,
            "growth": growth,
            "spread": value.std("repeat", ddof=1),
            "within": tables.spreads(type_draws.correlations(value, ["j"]), "repeat"),
            "over": type_draws.correlations(value, ["prompting", "j"]).mean("repeat"),
            "rand": found[["agreement", "stability"]].mean("repeat"),
            "widths": np.array([[of.output_bandwidth, of.prompt_bandwidth] for of in widths]),
            "sets": tables.table(sets, rows=("run", "score"), columns=columns),
            "dogs": tables.table(ends.sel(run="dogs"), rows=("scale", "score"), columns=columns),
            "drawn": tables.table(
                models, rows=("run", "scale", "score"), columns=columns, digits=3
            ),
        }

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            words = "type_ablation", run.study.data_name, run.study.variant().replace("-", "_")
            name = "_".join(filter(None, words))
            drawn[name] = _scores(run, _SHOWN)
            if name == "type_ablation_dogs":
                drawn[f"{name}_others"] = _scores(run, _OTHERS)
        whole = [run for run in runs if run.study.model is None]
        if whole:
            drawn["type_ablation_bandwidths"] = _growth(whole)
            drawn["type_ablation_correlation"] = _correlation(whole)
        return drawn


def _together(runs: Sequence[lab.Run]) -> xr.Dataset:
    """The results of several runs, by the name of the model, of the encoder or of the data."""
    names = [run.study.variant() or run.study.data_name for run in runs]
    return xr.concat([run.found for run in runs], xr.DataArray(names, dims="run", name="run"))


def _draws(runs: Sequence[lab.Run]) -> str:
    of = runs[0].study
    return f"{len(runs)} sets, {of.repeats} draws of {of.per_type} a type; seed {runs[0].seed}"


def _scores(run: lab.Run, shown: list[str]) -> Figure:
    """Scores against the number of types, by prompts that leave the type open and that name it."""
    study = run.study
    values = run.found.value.sel(scale=study.bandwidths.shown, drop=True)
    times = type_draws.growth(values).value.sel(score=shown[::2])
    drawn = figures.facets(
        tables.spreads(values.sel(score=shown), "repeat"), x="j", hue="prompting", column="score",
        error="error", across=2, names=dict(zip(PROMPTINGS, ("unnamed", "named"), strict=True)),
        x_label=f"number of types j (n = {study.per_type} j)", size=(3.45, 2.2),
    )  # fmt: skip
    drawn.axes[0].set_ylim(0)
    drawn.axes[2].set_ylim(0)  # Each row has one axis.
    said = (
        "{} is x {:.2g} (named x {:.2g})".format(of.score.item(), *of.values)
        for of in times.transpose("score", "prompting")
    )
    count = len(study.types)
    style.headline(drawn, f"With {count} types and {count} times n, {', '.join(said)}")
    n = f"{study.repeats} draws"
    n += ", prompts by the second encoder" if study.prompts_by == "second" else ""
    bars = "one standard deviation"
    return figures.caption(drawn, run, n=n, bars=bars, scale=study.bandwidths.shown)


def _growth(runs: Sequence[lab.Run]) -> Figure:
    """How many times the score of all types is that of one, against the bandwidths."""
    growth = type_draws.growth(_together(runs).value.sel(score=_SHOWN[::2]))
    drawn = figures.facets(
        growth, x="scale", hue="run", row="score", column="prompting",
        error="error", log_y=True, x_label="multiple of the bandwidths",
        y_label="score of all types / of one", size=(3.45, 2.3), sharey=True,
    )  # fmt: skip
    unnamed, named = growth.value.isel(scale=0).transpose("prompting", ...)
    words = f"x {unnamed.min():.1f} or more, named types x {named.max():.1f} or less"
    finding = f"At {growth.scale[0]:g} of the bandwidths, unnamed types raise both scores"
    style.headline(drawn, f"{finding} {words}")
    return style.caption(drawn, f"{_draws(runs)}. Bars: one standard deviation.")


def _correlation(runs: Sequence[lab.Run]) -> Figure:
    """Conditional- against Cluster-scores, a point a number of types (CV-early figs 22 and 23)."""
    figure, axes = style.panels(4, columns=2, size=(3.45, 2.8))
    values = _together(runs).value.sel(scale=runs[0].study.bandwidths.shown)
    together = type_draws.correlations(values, ["prompting", "j"]).mean("repeat")
    found = tables.spreads(values, "repeat")
    for panel, name in zip(axes, type_draws.CLUSTERED, strict=True):
        conditional, r = type_draws.conditional_of(name), together.sel(score=name)
        for run, colour, marker in zip(found.run.values, style.CYCLE, style.MARKERS, strict=False):
            look: dict[str, Any] = {"color": colour, "marker": marker, "ls": "", "capsize": 0}
            for prompting, face in zip(PROMPTINGS, (colour, "white"), strict=True):
                part = found.sel(run=run, prompting=prompting)
                x, y = (part.sel(score=score) for score in (name, conditional))
                look |= {"markerfacecolor": face, "label": run if face == colour else None}
                panel.errorbar(x.value, y.value, y.error, x.error, elinewidth=0.5, **look)
        title = f"r = {r.min():.2f} to {r.max():.2f} over all prompts of a set"
        panel.set(xlabel=name, ylabel=conditional, title=title)
    style.legend_above(figure, axes[0], columns=6)
    finding = "Conditional- and Cluster-scores correlate at"
    style.headline(figure, f"{finding} {together.min():.2f} to {together.max():.2f}")
    words = "A point a number of types; filled: type unspecified, open: specified. Bars: one "
    words += "standard deviation. r: Pearson's correlation within a draw, the mean of the draws."
    return style.caption(figure, f"{_draws(runs)}. {words}")
