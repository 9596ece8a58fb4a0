"""Scores of 1, 2, ... types by prompts that name the type or do not: CV figures 5 and 16-18.

Along the papers' axis the number of outputs grows with the number of types, and Conditional-Vendi
grows with it alone. So the same types are also scored with as many outputs in all.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from experiments import lab
from experiments.conditional_vendi import type_draws
from experiments.conditional_vendi.type_draws import PROMPTINGS, UNBIASED, by_k_means, over_one
from experiments.data import PairedEmbeddings
from experiments.lab import figures, sizes, style, tables

_PROMPTS = {"first": "", "second": "second_"}  # Before the names of an encoder's prompts.
_SETS = ("dogs", "fruits", "clothing", "animals", "objects")
_MODELS = ("0.1", "0.55", "1")
_SHOWN = ["Conditional-Vendi", "Vendi", "Conditional-RKE", UNBIASED]
EACH = "as many of each"  # The papers' design; the others are numbers of outputs in all.


class TypeAblation(lab.Study):
    """Do conditional scores measure only the diversity that prompts leave open?"""

    control = "The same outputs are scored with named and unnamed types, at equal n and at n of j."
    grows = ("design", "j")
    version = 2
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
    _parts = ("", "_sets", "_dogs", "_bandwidths", "_correlation")

    bandwidths: lab.Scales = lab.Scales()
    repeats: int = lab.flag(5, "Draws of the order of types, of outputs and wordings.", at_least=1)
    per_type: int = lab.flag(
        50, "Outputs of each type in a draw; at most as many as the rarest type has.", at_least=1
    )
    in_all: tuple[int, ...] = lab.flag(
        (50, 100), "Outputs in all at equal n; left out where the rarest type has less.", at_least=2
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
            in_all=tuple(n for n in self.in_all if len(types) <= n <= counts.min()),
            data_name=pairs.name,
            n=len(pairs),
            types=tuple(map(str, types)),
            exchanged="wording" in pairs.labels,
        )

    def _promptings(self, pairs: PairedEmbeddings) -> list[np.ndarray]:
        """The prompts without the type and with it, by the encoder that is asked for."""
        given = {"prompts": pairs.prompts, **pairs.further}
        roles = [_PROMPTS[self.prompts_by] + of for of in ("prompts", "typed_prompts")]
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

    @property
    def designs(self) -> dict[str, np.ndarray]:
        """How many outputs of each type there are with 1, 2, ... types, `[j, types]`, by design."""
        number = np.arange(len(self.types))
        j = 1 + number[:, None]
        found = {EACH: self.per_type * (number < j)}
        return found | {f"{n} in all": (number < j) * -((number - n) // j) for n in self.in_all}

    def axes(self):
        return {"repeat": range(self.repeats)}

    def compute(self, state, context, *, repeat):
        """Every score of every number of types in every design, for one draw.

        Of all types by prompting, `agreement` is the adjusted Rand index of the best K-means
        clusters and the types, and `stability` its mean over that start and every other one.
        """
        pairs, prompts = state
        designs, count = self.designs, len(self.types)
        counts = np.max([*designs.values()], axis=(0, 1))
        rows, prompt_rows = type_draws.draw_rows(
            pairs.labels["types"],
            counts,
            exchanged=self.exchanged,
            seed=np.asarray(jax.random.key_data(context.key)).tolist(),
        )
        outputs, texts = pairs.outputs[rows], [embeddings[prompt_rows] for embeddings in prompts]
        types, place = (
            np.repeat(np.arange(count), counts),
            np.concatenate([*map(np.arange, counts)]),
        )
        # The rows of each design and number of types, the first of every type.
        kept = {
            (design, j): np.flatnonzero(place < of[types])
            for design, by_j in designs.items()
            for j, of in enumerate(by_j, start=1)
        }
        sizes.note(map(len, kept.values()))
        context.say("K-means")
        of_draw = functools.partial(by_k_means, restarts=self.restarts, key=context.key)
        starts = {j: [of_draw(t[kept[EACH, j]], j) for t in texts] for j in range(1, count + 1)}
        agreement, stability = [], []
        for first, *others in starts[count]:
            agreement.append(type_draws.rand_index(types[kept[EACH, count]], first))
            same = [type_draws.rand_index(first, other) for other in others]
            stability.append(np.mean(same or [1]))
        values = []
        for scale in self.bandwidths.axis:
            context.say("scores")
            x = type_draws.gram_of(scale.kernels["output_kernel"], outputs)
            ts = [type_draws.gram_of(scale.kernels["prompt_kernel"], text) for text in texts]
            for (design, j), of in kept.items():
                part = np.ix_(of, of)
                means = [best if design == EACH else None for best, *_ in starts[j]]
                grams = x[part], [t[part] for t in ts]
                values.append(type_draws.scores_of(*grams, types[of], means))
        labels = {"scale": list(self.bandwidths.scales or ()), "design": list(designs)}
        labels |= {"j": [*starts], "prompting": list(PROMPTINGS), "score": list(type_draws.SCORES)}
        whole = np.reshape(values, [len(of) for of in labels.values()])
        indices = {"agreement": ("prompting", agreement), "stability": ("prompting", stability)}
        return xr.Dataset({"value": (tuple(labels), whole), **indices}, labels)

    def tables(self, run):
        """The growth of the scores in every design, and the correlations, at every multiple."""
        found, growth = run.found, over_one(run.found.value).isel(j=-1)
        look: dict[str, Any] = {"columns": "prompting", "error": "error"}
        names = {"score": "of all types over that of one"}
        rows = ("scale", "design", "score")
        yield tables.table(growth, rows=rows, names=names, **look)
        each = found.value.sel(design=EACH, drop=True)
        together = tables.spreads(type_draws.correlations(each, ["j"]), "repeat")
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
        found = _together(runs)
        growth, each = over_one(found.value).isel(j=-1), found.value.sel(design=EACH)
        look: Any = {"rows": ("run", "score"), "columns": "column", "error": "error", "digits": 3}
        sets = [place for place, run in enumerate(runs) if not run.study.variant()]
        shown = growth.sel(score=[_SHOWN[0], UNBIASED], scale=1).isel(run=sets, design=slice(2))
        names = [f"{of}, {p}" for of in shown.design.values for p in ("unnamed", "named")]
        columns = shown.stack(column=["design", "prompting"], create_index=False)
        widths = [run.study.bandwidths.axis[1] for run in runs]  # At the rule's.
        return {
            "growth": growth,
            "mean": each.mean("repeat"),
            "within": tables.spreads(type_draws.correlations(each, ["j"]), "repeat"),
            "over": type_draws.correlations(each, ["prompting", "j"]).mean("repeat"),
            "rand": found[["agreement", "stability"]].mean("repeat"),
            "widths": np.array([[of.outputs, of.prompts] for of in widths]),
            "table": tables.table(columns.assign_coords(column=names), **look),
        }

    @classmethod
    def figures(cls, runs):
        first = next((run for run in runs if run.study.folder() == cls.name), runs[0])
        plain = [run for run in runs if not run.study.variant()] or runs
        whole = [run for run in runs if run.study.model is None] or runs
        drawn = {"": _contrast(plain), "_sets": _sets(runs), "_dogs": _as_printed(first)}
        drawn |= {"_bandwidths": _growth(whole), "_correlation": _correlation(whole)}
        return {cls.name + end: figure for end, figure in drawn.items()}


def _together(runs: Sequence[lab.Run]) -> xr.Dataset:
    """The results of several runs, by the name of the model, of the encoder or of the data."""
    names = [run.study.variant() or run.study.data_name for run in runs]
    run_names = xr.DataArray(names, dims="run", name="run")
    found = xr.concat([run.found for run in runs], run_names, join="outer")
    return found.sel(design=max((list(run.study.designs) for run in runs), key=len))


def _equal(found: Any) -> str:
    """The design at equal n that all sets have: the fewest outputs in all."""
    return found.design.values[1].item()


def _draws(runs: Sequence[lab.Run]) -> str:
    of = runs[0].study
    words = f"{len(runs)} sets, {of.repeats} draws; seed {runs[0].seed}"
    return f"{words}; bandwidths by the variance rule. Bars: 95%"


def _names(study: TypeAblation, design: str) -> dict[str, str]:
    named = dict(zip(PROMPTINGS, ("unnamed types", "named types"), strict=True))
    return named | {EACH: f"{study.per_type} of each type", design: f"{design}, n is equal"}


def _contrast(runs: Sequence[lab.Run]) -> Figure:
    """Conditional-Vendi over that of one type where n grows with the types, and at equal n."""
    found, study = _together(runs), runs[0].study
    equal, place = _equal(found), {"scale": study.bandwidths.shown, "score": _SHOWN[0]}
    ratios = over_one(found.value.sel(place, drop=True).sel(design=[EACH, equal]))
    drawn = figures.facets(
        ratios, x="j", hue="run", row="prompting", column="design", error="error", log_y=True,
        names=_names(study, equal), x_label="number of types j", size=(3.45, 2.2), sharey=True,
        y_label="Conditional-Vendi\nover that of one type",
        each=lambda panel, _: panel.axhline(1, color=style.BLACK, linewidth=0.8),
    )  # fmt: skip
    ends = ratios.value.sel(design=equal).isel(j=-1)
    unnamed, named = (ends.sel(prompting=of) for of in PROMPTINGS)
    moves = "lower" if (named < 1).all() else "do not always lower"
    finding = f"At equal n, named types {moves} Conditional-Vendi (x {named.max():.2f} or less)"
    style.headline(drawn, f"{finding}; unnamed types do not (x {unnamed.min():.2f} or more)")
    return style.caption(drawn, f"{_draws(runs)}.")


def _sets(runs: Sequence[lab.Run]) -> Figure:
    """How many times the score of all types is that of one, in every set."""
    found, study = _together(runs), runs[0].study
    named = {"second": "dogs, second prompts", **{m: f"drawings, T = {m}" for m in _MODELS}}
    rows = [named.get(run, run) for run in found.run.values]
    found = found.assign_coords(run=rows, prompting=["unnamed types", "named types"])
    equal = _equal(found)
    panels = {"score": [_SHOWN[0], _SHOWN[0], UNBIASED], "design": [EACH, equal, equal]}
    place: Any = {axis: xr.DataArray(labels, dims="panel") for axis, labels in panels.items()}
    growth = over_one(found.value.sel(place | {"scale": study.bandwidths.shown})).isel(j=-1)
    names, of_panels = _names(study, equal), zip(*panels.values(), strict=True)
    labels = [f"{score},\n{names[design]}" for score, design in of_panels]
    apart = growth.value.isel(panel=2, prompting=0) / growth.value.isel(panel=2, prompting=1)
    drawn = figures.dots(
        growth.assign_coords(panel=labels), row="run", hue="prompting", column="panel",
        x_label="all types / one",
        each=lambda panel, _: panel.axvline(1, color=style.BLACK, linewidth=0.8),
        headline="Named types raise Conditional-Vendi only where n grows; unbiased "
        f"Conditional-RKE hardly tells them from unnamed ones (ratio {apart.min():.2f} to "
        f"{apart.max():.2f})",
    )  # fmt: skip
    drawn.axes[0].legend([], frameon=False)  # The last panel has room for it.
    drawn.axes[-1].legend(*drawn.axes[-1].get_legend_handles_labels())
    return style.caption(drawn, f"{_draws(runs)}.")


def _as_printed(run: lab.Run) -> Figure:
    """Scores against the number of types as the papers draw them: n grows with it."""
    study, place = run.study, {"scale": run.study.bandwidths.shown, "design": EACH}
    values = run.found.value.sel(place, drop=True)
    drawn = figures.facets(
        tables.t_intervals(values.sel(score=_SHOWN), "repeat"), x="j", hue="prompting",
        column="score", error="error", across=2, size=(3.45, 2.2),
        names=dict(zip(PROMPTINGS, ("unnamed", "named"), strict=True)),
        x_label=f"number of types j (n = {study.per_type} j)",
    )  # fmt: skip
    for panel in drawn.axes[::2]:
        panel.set_ylim(0)  # Each row has one axis.
    growth = over_one(values).value.sel(score=_SHOWN[0]).isel(j=-1).values
    count = len(study.types)
    finding = f"With {count} types and {count} times n, Conditional-Vendi is x {growth[0]:.2g} "
    style.headline(drawn, f"{finding}with unnamed types and x {growth[1]:.2g} with named ones")
    n = f"{study.repeats} draws"
    return figures.caption(drawn, run, n=n, bars="95%", scale=study.bandwidths.shown)


def _growth(runs: Sequence[lab.Run]) -> Figure:
    """How many times the score of all types is that of one, against the bandwidths.

    Of Conditional-Vendi at equal n; of the unbiased score, which does not grow with it, with most.
    """
    found = _together(runs).value
    equal = _equal(found)
    parts = {"score": [_SHOWN[0], UNBIASED], "design": [equal, EACH]}
    place: Any = {axis: xr.DataArray(labels, dims="score") for axis, labels in parts.items()}
    growth = over_one(found.sel(place)).isel(j=-1)
    drawn = figures.facets(
        growth, x="scale", hue="run", row="score", column="prompting",
        error="error", log_y=True, x_label="multiple of the bandwidths",
        y_label="score of all types / of one", size=(3.45, 2.3), sharey=True,
        names=_names(runs[0].study, equal),
    )  # fmt: skip
    named = growth.value.isel(scale=0, score=0).sel(prompting=PROMPTINGS[1])
    unnamed = growth.value.isel(scale=0, score=1).sel(prompting=PROMPTINGS[0])
    finding = f"At {growth.scale[0]:g} of the bandwidths, named types lower Conditional-Vendi at "
    finding += f"equal n (x {named.max():.2f} or less); unnamed types raise unbiased "
    style.headline(drawn, f"{finding}Conditional-RKE (x {unnamed.min():.1f} or more)")
    rows = f"Top: {equal}; bottom: {runs[0].study.per_type} of each type"
    return style.caption(drawn, f"{_draws(runs)}. {rows}.")


def _correlation(runs: Sequence[lab.Run]) -> Figure:
    """Conditional- against Cluster-scores, a point a number of types (CV-early figs 22 and 23)."""
    figure, axes = style.panels(4, columns=2, size=(3.45, 2.8))
    values = _together(runs).value.sel(scale=runs[0].study.bandwidths.shown, design=EACH)
    together = type_draws.correlations(values, ["prompting", "j"]).mean("repeat")
    found = tables.t_intervals(values, "repeat")
    for panel, (name, conditional) in zip(axes, type_draws.CONDITIONAL.items(), strict=True):
        r = together.sel(score=name)
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
    within = type_draws.correlations(values, ["j"]).mean("repeat")
    named = within.sel(prompting=PROMPTINGS[1], score=(score := [*type_draws.CONDITIONAL][0]))
    finding = f"correlate at {together.min():.2f} to {together.max():.2f} over both promptings"
    finding += f"; {score} within named types at {named.min():.2f} to {named.max():.2f}"
    style.headline(figure, f"Conditional- and Cluster-scores {finding}")
    words = "A point a number of types; filled: type unspecified, open: specified. "
    words += "r: Pearson's correlation within a draw, the mean of the draws."
    return style.caption(figure, f"{_draws(runs)}. {words}")
