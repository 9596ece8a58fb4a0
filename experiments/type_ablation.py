"""Does the score see what the prompt leaves open? CV figures 5 and 16-18, CV-early 2, 3 and 12-23.

Photographs of j = 1, 2, ... types play the outputs of a model, once with prompts that name the type
and once with the same wordings that do not. Where the prompt leaves the type open, every type more
is diversity that the model adds, and the conditional scores should grow with j; where it is named,
they should not. Beside them are the scores without prompts and the averages over clusters of
prompts that CV G.1 compares with, clusters by the type that the prompt names and by K-means.

    python -m experiments.type_ablation --data=dogs
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax import _extras, validation
from condvendi_jax.pairs import Pairs
from experiments import lab, type_draws
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables
from experiments.type_draws import FAMILIES, KINDS, PROMPTINGS, SCORES

# So many photographs of a type, if there are: ten types take seconds a draw.
_PER_TYPE = 50
_PROMPTS = {
    "first": ("prompts", "typed_prompts"),
    "second": ("second_prompts", "second_typed_prompts"),
}
_SETS = ("dogs", "fruits", "clothing", "animals", "objects")
_MODELS = ("0.1", "0.55", "1")
_CLUSTERS = ("Cluster", "K-means Cluster")
_MARKED = (2, 5, 20, 50, 200, 500)  # On logarithmic axes, between the decades.


@dataclasses.dataclass(frozen=True)
class TypeAblation(lab.Study):
    """Do conditional scores see the diversity that prompts leave open, and only that?"""

    name = "type_ablation"
    reproduces = "CV figs 5, 16-18; CV-early figs 2, 3, 12-23"
    duration = "2 minutes"
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
        "Draws: the order of the types, the photographs of each, and the wording of each.",
        at_least=1,
    )
    per_type: int | None = lab.flag(
        None,
        f"Outputs of each type in a draw; as many as the rarest type has, up to {_PER_TYPE}, if "
        "unset.",
        at_least=1,
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
        "The outputs of one model alone, of those in --models; bandwidths are those of all of "
        "them. All outputs if unset.",
    )
    data_name: str = lab.resolved("")
    n: int = lab.resolved(0)
    types: tuple[str, ...] = lab.resolved(())
    exchanged: bool = lab.resolved(False)

    def prepare(self, load, seed):
        """Checks the types and prompts, and chooses bandwidths that hold for both promptings."""
        pairs = load()
        prompts = self._promptings(pairs)
        pooled = PairedEmbeddings(
            pairs.name,
            outputs=np.concatenate([pairs.outputs] * 2),
            prompts=np.concatenate(prompts),
            description=pairs.description,
        )
        bandwidths = self.bandwidths.resolve(pooled, seed)
        description = pairs.description
        if self.model is not None:
            kept = type_draws.rows_of(self.model, pairs)
            pairs, prompts = pairs.rows(kept), [embeddings[kept] for embeddings in prompts]
            description = f"{description.rstrip('.')}; the {len(pairs):,} of {self.model}"
        types, counts = np.unique(pairs.labels["types"], return_counts=True)
        if len(types) < 2:
            raise ValueError(f"--types: expected at least two types, received {len(types)}.")
        per_type = min(int(counts.min()), _PER_TYPE) if self.per_type is None else self.per_type
        validation.check_count(per_type, name="--per_type", minimum=1)
        if per_type > counts.min():
            raise ValueError(
                f"--per_type: received {per_type}, but there are {counts.min()} of the type "
                f"{types[counts.argmin()]}."
            )
        labels = {role: pairs.labels[role] for role in ("types", "wording") if role in pairs.labels}
        arrays = {"outputs": pairs.outputs, "prompts": prompts[0], "typed_prompts": prompts[1]}
        return self.ready(
            state=(pairs, prompts),
            arrays={**arrays, **labels},
            description=description,
            bandwidths=bandwidths,
            per_type=per_type,
            data_name=pairs.name,
            n=len(pairs),
            types=tuple(map(str, types)),
            exchanged="wording" in pairs.labels,
        )

    def _promptings(self, pairs: PairedEmbeddings) -> list[np.ndarray]:
        """The prompts without the type and with it, by the encoder that is asked for."""
        given = {"prompts": pairs.prompts, **pairs.further}
        for role in _PROMPTS[self.prompts_by]:
            if role not in given:
                raise ValueError(
                    f"--{role}: the study needs the prompts twice, with the type unspecified and "
                    f"with the type named, by one encoder; {pairs.name} has {', '.join(given)}."
                )
        prompts = [given[role] for role in _PROMPTS[self.prompts_by]]
        if prompts[0].shape != prompts[1].shape:
            both = " and ".join(_PROMPTS[self.prompts_by])
            raise ValueError(
                f"{both} must be of one encoder, received shapes {prompts[0].shape} and "
                f"{prompts[1].shape}."
            )
        if self.bandwidths.kernel == "cosine":  # A row that is refused is named as in its file.
            for rows in prompts:
                Pairs(pairs.outputs, rows, output_kernel=cv.Cosine(), prompt_kernel=cv.Cosine())
        return prompts

    def axes(self):
        """Every draw."""
        return {"repeat": range(self.repeats)}

    def compute(self, state, context, *, repeat):
        """Every score of every number of types, for one draw at every multiple of the bandwidths.

        Returns:
          `value` by `scale`, `prompting`, `score` and `j`, effective numbers of modes; by prompting
          `agreement`, the adjusted Rand index between the best K-means clusters of all types and
          the types (1 where they are the same, 0 at chance), and `stability`, the mean of that
          index between the best start of K-means and the other ones.
        """
        pairs, prompts = state
        rows, prompt_rows = type_draws.draw_rows(
            pairs.labels["types"],
            self.per_type or 0,
            exchanged=self.exchanged,
            seed=np.asarray(jax.random.key_data(context.key)).tolist(),
        )
        outputs, texts = pairs.outputs[rows], [embeddings[prompt_rows] for embeddings in prompts]
        numbers = np.arange(1, len(self.types) + 1)
        types, sizes = np.repeat(numbers - 1, self.per_type or 0), (self.per_type or 0) * numbers
        with _extras.needed("clusters", package="scikit-learn", purpose="this study"):
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
        last = [of_text[-1] for of_text in means]
        return self.labelled(
            np.stack(values),
            [adjusted_rand_score(types, starts[0]) for starts in last],
            [np.mean([adjusted_rand_score(s[0], o) for o in s[1:]] or [1]) for s in last],
        )

    def labelled(self, values, agreement, stability) -> xr.Dataset:
        """The scores of a draw by their axes."""
        axes = {
            "scale": list(self.bandwidths.scales or ()),
            "prompting": list(PROMPTINGS),
            "score": list(SCORES),
            "j": np.arange(1, len(self.types) + 1),
        }
        found = {"agreement": agreement, "stability": stability}
        of_promptings = {name: ("prompting", value) for name, value in found.items()}
        return xr.Dataset({"value": (tuple(axes), values), **of_promptings}, axes)

    def tables(self, run):
        """The scores of one and of all types, and the correlations, at every multiple."""
        found = run.found
        rows, ends = ("scale", "score", "j"), type_draws.over_draws(found.value.isel(j=[0, -1]))
        yield tables.table(ends, rows=rows, columns="prompting", error="error")
        places = [(family, kind) for family in FAMILIES for kind in _CLUSTERS]
        axes = {
            "scale": found.scale.values,
            "correlation with": [f"{kind}-{family}" for family, kind in places],
            "prompting": list(PROMPTINGS),
        }
        values = [
            [
                [type_draws.correlation(found.value.sel(scale=s), *of, p, 0)[0] for p in PROMPTINGS]
                for of in places
            ]
            for s in axes["scale"]
        ]
        correlations = xr.Dataset({"value": (tuple(axes), values)}, axes)
        yield tables.table(correlations, rows=tuple(axes)[:2], columns="prompting", digits=3)
        indices = found[["agreement", "stability"]].mean("repeat").to_dataarray("Rand index")
        indices = xr.Dataset({"value": indices})
        yield tables.table(indices, rows=("Rand index",), columns="prompting", digits=2)

    def variant(self):
        """The model that is taken alone, and 'second' for the second encoder of prompts."""
        model = re.sub(r"[^\w.+]+", "_", self.model or "")
        second = "second" if self.prompts_by == "second" else ""
        return "-".join(filter(None, (model, second)))

    @classmethod
    def figures(cls, runs):
        """A figure of each data set, the growth and correlations of all, and models together."""
        drawn = {f"type_ablation_{_file(run)}": _scores(run) for run in runs}
        whole = [run for run in runs if run.study.model is None]
        if whole:
            drawn["type_ablation_bandwidths"] = _growth(whole)
            drawn["type_ablation_correlation"] = _correlation(whole)
        alone = [run for run in runs if run.study.model is not None]
        for name in dict.fromkeys(run.study.data_name for run in alone):
            of_set = [run for run in alone if run.study.data_name == name]
            drawn[f"type_ablation_{name}"] = _models(of_set)
        return drawn


def _file(run: lab.Run) -> str:
    """What the figure of a run is called."""
    study = run.study
    second = "second" if study.prompts_by == "second" else None
    return "_".join(filter(None, (study.data_name, study.model, second)))


def _label(run: lab.Run) -> str:
    second = " (second encoder)" if run.study.prompts_by == "second" else ""
    return run.study.data_name + second


def _shown(run: lab.Run) -> xr.DataArray:
    """The scores at the one multiple of the bandwidths that is drawn."""
    return run.found.value.sel(scale=run.study.bandwidths.shown)


def _times(values: xr.DataArray) -> float:
    """How many times the score of all types is that of one, in the mean of the draws."""
    return type_draws.growth(values).value.item()


def _line(panel: Axes, values: xr.DataArray, dashes: str, colour: str, label: str = "") -> None:
    """The mean over the draws against j, and one standard deviation as a band."""
    found = type_draws.over_draws(values)
    panel.plot(found.j, found.value, dashes, color=colour, label=label or None)
    low, high = found.value - found.error, found.value + found.error
    panel.fill_between(found.j, low, high, alpha=0.3, linewidth=0, color=colour)
    step = max(1, -(-found.sizes["j"] // 5))
    panel.set_xticks(range(step, found.sizes["j"] + 1, step))


def _scores(run: lab.Run) -> Figure:
    """Type unspecified above, specified below; a column a score (CV figs 5 and 16-18)."""
    found = _shown(run)
    columns = [kind.format(family) for family in FAMILIES for kind in KINDS[:3]]
    figure, axes = style.panels(
        2 * len(columns), columns=len(columns), size=(2.2, 2.3), sharex=True, sharey="col"
    )
    for index, panel in enumerate(axes):
        prompting, name = PROMPTINGS[index // len(columns)], columns[index % len(columns)]
        names = [name, f"K-means {name}"] if name.startswith("Cluster") else [name]
        for score, dashes in zip(names, ("-", "--"), strict=False):
            values = found.sel(prompting=prompting, score=score)
            _line(panel, values, dashes, style.score_colour(score))
        panel.set_title(f"{name} x {_times(found.sel(prompting=prompting, score=name)):.2g}")
        if index % len(columns) == 0:
            panel.set_ylabel(prompting)
        if index >= len(columns):
            panel.set_xlabel("number of types j")
    for panel in axes:
        panel.set_ylim(0, None)
    bars = "one standard deviation; titles: all types over one; dashed: clusters by K-means"
    return _caption(figure, [run], bars)


def _caption(figure: Figure, runs: Sequence[lab.Run], bars: str) -> Figure:
    study = runs[0].study
    n = f"{study.repeats} draws of {study.per_type} a type"
    if study.prompts_by == "second":
        n = f"prompts by the second encoder, {n}"
    return figures.caption(figure, runs, n=n, bars=bars, scale=study.bandwidths.shown)


def _models(runs: Sequence[lab.Run]) -> Figure:
    """A column a model, a row a score: prompts that leave the type open, and that name it."""
    names = [kind.format(family) for family in FAMILIES for kind in KINDS[:2]]
    figure, axes = style.panels(
        len(names) * len(runs), columns=len(runs), size=(3.0, 2.0), sharex=True, sharey="row"
    )
    for index, panel in enumerate(axes):
        run, name = runs[index % len(runs)], names[index // len(runs)]
        found = _shown(run).sel(score=name)
        for prompting, dashes in zip(PROMPTINGS, ("-", "--"), strict=True):
            values = found.sel(prompting=prompting)
            _line(panel, values, dashes, style.score_colour(name), prompting)
        times = [f"{_times(found.sel(prompting=prompting)):.2g}" for prompting in PROMPTINGS]
        panel.set_title(f"{run.study.model}: x {times[0]}, named x {times[1]}")
        panel.set_ylim(0, None)
        if index % len(runs) == 0:
            panel.set_ylabel(name)
        if index >= len(axes) - len(runs):
            panel.set_xlabel("number of types j")
    axes[0].legend()
    # Of all models: without the words on the one that is taken alone.
    whole = runs[0].study.description.rpartition("; the ")[0]
    shown = dataclasses.replace(runs[0].study, description=whole)
    first = dataclasses.replace(runs[0], study=shown)
    return _caption(figure, [first], "one standard deviation; titles: all types over one")


def _growth(runs: Sequence[lab.Run]) -> Figure:
    """How many times the score of all types is that of one, against the bandwidths."""
    names = [kind.format(family) for family in FAMILIES for kind in KINDS[:2]]
    found = xr.concat(
        [type_draws.growth(run.found.value.sel(score=names)) for run in runs],
        xr.DataArray([_label(run) for run in runs], dims="set", name="set"),
        join="outer",
    )

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
    places = [(family, kind) for family in FAMILIES for kind in _CLUSTERS]
    for panel, (family, kind) in zip(axes, places, strict=True):
        names = f"{kind}-{family}", f"Conditional-{family}"
        together = []
        for run, colour in zip(runs, style.CYCLE, strict=False):
            means = _shown(run).mean("repeat")
            for prompting, face in zip(PROMPTINGS, (colour, "white"), strict=True):
                x, y = (means.sel(prompting=prompting, score=name) for name in names)
                label = f"{_label(run)}, {prompting}"
                panel.plot(x, y, "o", color=colour, markerfacecolor=face, label=label)
            together.append(type_draws.correlation(_shown(run), family, kind, None, run.seed)[0])
        panel.set(xlabel=names[0], ylabel=names[1], xscale="log", yscale="log")
        panel.set_title(f"r = {min(together):.2f} to {max(together):.2f} over all prompts of a set")
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


if __name__ == "__main__":
    lab.main(TypeAblation)
