"""Do all language models say the same when they are asked the same?

Beyond the papers: ten answers of each of 24 models to each of 100 prompts (NoveltyBench), at the
bandwidth of what people call the same (`experiments.judged`). With prompts that are equal or
different, `cv.between_models` is a sum over the prompts: everything follows from the blocks of the
kernel, one a prompt, exactly.

A sample of ten answers is compared with itself too, so that two samples of one model seem to
differ. At order 2 this is undone without bias by leaving out the pairs of an answer and itself; at
both orders, answers that are dealt to the models anew show how large it is.

    python -m experiments.hivemind
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from experiments import judged, lab, model_overlaps
from experiments.lab import agreement, figures, style, tables

WHOLE, CUT, ALL = "whole", "cut", "all"
FAMILY, VENDOR, OTHER = "same family", "same vendor, other family", "different vendors"
KINDS = (FAMILY, VENDOR, OTHER)
DIFFERENT, SHARED = "different models", "shared answers"
PARTS = (DIFFERENT, "answers of a model", "answers of all")
_NAMES = {WHOLE: "whole answers", CUT: "answers cut to one length"}
_FAMILIES = {
    "claude-3": "Claude 3",
    "command-r": "Command R",
    "gemini": "Gemini",
    "gemma-2": "Gemma 2",
    "gemma-3": "Gemma 3",
    "gpt-4o": "GPT-4o",
    "llama-3": "Llama 3",
}
_RELABELLED = 1999  # Permutations of the families over the models.
_DEALT = 20  # Of the permutations of answers, those that order 1 takes: it needs spectra.
_EXTREMES = 12  # Prompts at each end that a figure names.


@dataclasses.dataclass(frozen=True)
class Hivemind(lab.Study):
    """Do all language models say the same when they are asked the same?"""

    name = "hivemind"
    duration = "3 minutes"
    data = "answers"
    needs = ("models", "prompt")
    takes = ("vendors", "families")
    further = ("truncated",)
    runs = ((),)
    drawings = ("hivemind", "hivemind_numbers", "hivemind_prompts")

    widths: judged.Widths = judged.Widths()
    permutations: int = lab.flag(
        499, "Times that the answers to a prompt are dealt to the models anew.", at_least=1
    )
    resamples: int = lab.flag(2000, "Resamples of the prompts for intervals.", at_least=2)
    prompts: int = lab.resolved()
    of_each: int = lab.resolved()
    models: tuple[str, ...] = lab.resolved()
    vendors: tuple[str, ...] = lab.resolved()
    families: tuple[str, ...] = lab.resolved()
    texts: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        """Orders the answers by model and prompt, and says whose each model is."""
        pairs = load()
        rows, prompts = judged.by_prompt(pairs)
        if len(prompts) < 2 or rows.shape[2] < 4:
            raise ValueError(
                "--prompt: expected at least two prompts and four answers of each model to each, "
                f"received {len(prompts)} and {rows.shape[2]}."
            )
        names = _of_models(pairs.labels["models"], "models", rows)
        families = tuple(map(family_of, names))
        if "families" in pairs.labels:
            families = _of_models(pairs.labels["families"], "families", rows)
        vendors = families
        if "vendors" in pairs.labels:
            vendors = _of_models(pairs.labels["vendors"], "vendors", rows)
        return self.ready(
            pairs,
            state=(pairs, rows, prompts),
            widths=self.widths.resolve(pairs),
            prompts=len(prompts),
            of_each=rows.shape[2],
            models=names,
            vendors=vendors,
            families=families,
            texts=(WHOLE, CUT) if "truncated" in pairs.further else (WHOLE,),
        )

    def axes(self):
        """Every text under every bandwidth."""
        return {"text": self.texts, "scale": self.widths.axis}

    @property
    def sets(self) -> dict[str, list[int]]:
        """The numbers of the models of all, of each vendor and of each family, where several."""
        found = {ALL: list(range(len(self.models)))}
        for labels in (self.vendors, self.families):
            for label in sorted(set(labels)):
                members = [m for m, own in enumerate(labels) if own == label]
                if len(members) > 1 and members not in found.values():
                    found[label] = members
        return found

    @property
    def kinds(self) -> np.ndarray:
        """What every two models are to each other, of `KINDS`; '' for a model and itself."""
        family, vendor = (np.array(of) for of in (self.families, self.vendors))
        alike = family[:, None] == family, vendor[:, None] == vendor
        kinds = np.select(alike, [FAMILY, VENDOR], OTHER)
        return np.where(np.eye(len(family), dtype=bool), "", kinds)

    def compute(self, state, context, *, text, scale):
        """How many models are different, what every two have in common, and where all agree.

        Returns:
          Over `set` (all models, and those of each vendor and family): `number` and its error over
          `order`, where an answer also meets itself; `floor`, its mean over answers dealt anew; at
          order 2, over `part`, the unbiased `counts` of `cv.between_models` with errors: different
          models, different answers of one model to a prompt, and of all together; `p_value` of all
          models of the set being one.
          Over `model` and `other`: the unbiased `overlap` with errors, on its diagonal that of two
          halves of a model's answers; `repeated`, that of two samples of one model with these
          pairs. Over `kind`: the mean overlap of such pairs of models, with errors;
          `family_effect`, by how much it is higher in families than between vendors, its error and
          its p-value over permutations of models. Over `vendor` and `other_vendor`:
          the mean overlap of two models, with errors. Over `prompt` (a label): `different_models`
          and its error over answers, `different_answers` of one model, and `shared_answers`, the
          share of pairs of answers of two models that are the same. Over `agreement` and `end`: the
          rank correlation over prompts of `different_answers` with the number of different models
          and with the shared answers, and its 95% interval.
        """
        pairs, rows, prompts = state
        texts = pairs.outputs if text == WHOLE else pairs.further["truncated"]
        outputs = texts[rows]
        generator = np.random.default_rng(context.shared_seed)
        context.say("kernels")
        gram = model_overlaps.kernels(outputs, scale.outputs)
        squares = gram**2
        means = model_overlaps.block_means(squares)
        unbiased = model_overlaps.without_itself(means, self.of_each)
        found = [
            self._of_set(gram, means, unbiased, outputs, members, generator, scale.outputs, context)
            for members in self.sets.values()
        ]
        overlaps = model_overlaps.with_error(model_overlaps.overlap, unbiased)
        halves = model_overlaps.with_error(
            model_overlaps.of_halves, model_overlaps.split(squares, generator)
        )
        for whole, of_halves in zip(overlaps, halves, strict=True):
            np.fill_diagonal(whole, of_halves)
        kinds = model_overlaps.with_error(
            lambda blocks: self._by_kind(model_overlaps.overlap(blocks)), unbiased
        )
        effect = model_overlaps.with_error(
            lambda blocks: self._effect(model_overlaps.overlap(blocks)), unbiased
        )
        vendors = model_overlaps.with_error(
            lambda blocks: self._by_vendor(model_overlaps.overlap(blocks)), unbiased
        )
        own = unbiased.mean(axis=0).diagonal()
        of_prompts = xr.concat([xr.Dataset(one) for one in found], dim="set")
        return of_prompts.assign(
            overlap=(("model", "other"), overlaps[0]),
            overlap_error=(("model", "other"), overlaps[1]),
            repeated=("model", own / means.mean(axis=0).diagonal()),
            of_kind=("kind", kinds[0]),
            of_kind_error=("kind", kinds[1]),
            family_effect=((), effect[0]),
            family_effect_error=((), effect[1]),
            family_p_value=(
                (),
                self._relabelled(model_overlaps.overlap(unbiased.mean(axis=0)), generator),
            ),
            of_vendors=(("vendor", "other_vendor"), vendors[0]),
            of_vendors_error=(("vendor", "other_vendor"), vendors[1]),
            **self._of_prompts(squares, unbiased, generator),
        ).assign_coords(
            set=list(self.sets),
            order=[1.0, 2.0],
            part=list(PARTS),
            model=list(self.models),
            other=list(self.models),
            kind=list(KINDS),
            vendor=sorted(set(self.vendors)),
            other_vendor=sorted(set(self.vendors)),
            prompt=prompts,
            agreement=[DIFFERENT, SHARED],
        )

    def _of_set(
        self, gram, means, unbiased, outputs, members, generator, bandwidth, context
    ) -> dict[str, Any]:
        """The numbers of some models, by their numbers, as `compute` says."""
        names = [self.models[m] for m in members]
        context.say(f"{len(names)} models")
        size, inner = len(members) * self.of_each, np.ix_(range(self.prompts), members, members)
        chosen = outputs[members]
        # Of order 1 at each prompt: the entropies of all the answers together, and of each model.
        whole, own = (
            judged.entropies(of, bandwidth)[0]
            for of in (chosen.swapaxes(0, 1).reshape(self.prompts, size, -1), chosen)
        )
        information = (whole - own.mean(axis=0))[:, None]
        first = model_overlaps.with_error(lambda of: np.exp(of[..., 0]), information)
        second = model_overlaps.with_error(model_overlaps.number, means[inner])
        counts = model_overlaps.with_error(model_overlaps.parts, unbiased[inner])
        block = gram[:, members][:, :, :, members].reshape(self.prompts, size, size)
        dealt = model_overlaps.Dealt(block, len(members), generator)
        numbers = [dealt.numbers(whole if k < _DEALT else None) for k in range(self.permutations)]
        null = np.array(numbers)
        # Rounding must not tell apart what is the same.
        as_large = np.sum(null[:, 1] >= second[0] * (1 - 1e-9))
        return {
            "number": ("order", [first[0], second[0]]),
            "number_error": ("order", [first[1], second[1]]),
            "floor": ("order", np.nanmean(null, axis=0)),
            "counts": ("part", counts[0]),
            "counts_error": ("part", counts[1]),
            "p_value": ((), (1 + as_large) / (1 + self.permutations)),
            "largest": ((), len(members)),
        }

    def _by_kind(self, overlaps: np.ndarray) -> np.ndarray:
        """The mean overlap of pairs of models of each kind, `[..., kinds]`; NaN where none is."""
        return np.stack(
            [model_overlaps.mean_of(overlaps, self.kinds == kind) for kind in KINDS], axis=-1
        )

    def _effect(self, overlaps: np.ndarray) -> np.ndarray:
        """The mean overlap in families less that between vendors, `[...]`."""
        family, _, other = np.moveaxis(self._by_kind(overlaps), -1, 0)
        return family - other

    def _by_vendor(self, overlaps: np.ndarray) -> np.ndarray:
        """The mean overlap of two models, by their vendors, `[..., vendors, vendors]`."""
        whose = np.array(self.vendors)
        labels = sorted(set(self.vendors))
        masks = [
            [(whose == one)[:, None] & (whose == two) & (self.kinds != "") for two in labels]
            for one in labels
        ]
        return np.stack(
            [np.stack([model_overlaps.mean_of(overlaps, m) for m in row], -1) for row in masks], -2
        )

    def _relabelled(self, overlaps: np.ndarray, generator: np.random.Generator) -> float:
        """The two-sided p-value of `_effect`: families and vendors go to other models together."""
        value = abs(self._effect(overlaps))
        if np.isnan(value):
            return np.nan
        orders = [generator.permutation(len(overlaps)) for _ in range(_RELABELLED)]
        null = np.abs(self._effect(np.stack([overlaps[np.ix_(of, of)] for of in orders])))
        return (1 + np.sum(null >= value * (1 - 1e-9))) / (1 + _RELABELLED)

    def _of_prompts(
        self, squares: np.ndarray, unbiased: np.ndarray, generator: np.random.Generator
    ) -> dict[str, Any]:
        """What each prompt by itself says of all models, and what goes with what over prompts."""
        n, count = self.of_each, len(self.models)
        # Answer k of every model is left out in turn.
        deleted = [
            model_overlaps.number(
                model_overlaps.without_itself(
                    model_overlaps.block_means(np.delete(np.delete(squares, k, 2), k, 4)), n - 1
                )
            )
            for k in range(n)
        ]
        different, answers, _ = np.moveaxis(model_overlaps.parts(unbiased), -1, 0)
        shared = model_overlaps.mean_of(unbiased, ~np.eye(count, dtype=bool))
        draws = generator.integers(self.prompts, size=(self.resamples, self.prompts))
        correlation = agreement.with_interval(
            lambda of: agreement.spearman(np.stack([different, shared])[:, of], answers[of], 2.0),
            list(draws),
            self.prompts,
        )
        return {
            "different_models": ("prompt", different),
            "different_models_error": ("prompt", model_overlaps.spread(np.array(deleted))),
            "different_answers": ("prompt", answers),
            "shared_answers": ("prompt", shared),
            "correlation": (("agreement", "end"), correlation),
        }

    def tables(self, run):
        """The numbers, the overlaps by kind and vendor, the correlations, the extreme prompts."""
        found, shown = run.found, self.widths.shown
        rows = ("text", "scale", "set")
        yield tables.table(found, rows=rows, columns="part", value="counts", error="counts_error")
        yield tables.table(found, rows=rows, columns="order", value="number", error="number_error")
        yield tables.table(found, rows=rows, columns="order", value="floor")
        yield tables.table(found, rows=rows, value="p_value")
        rows = ("text", "scale")
        yield tables.table(found, rows=rows, columns="kind", value="of_kind", error="of_kind_error")
        yield tables.table(found, rows=rows, value="family_effect", error="family_effect_error")
        yield tables.table(found, rows=rows, value="family_p_value", digits=2)
        yield tables.table(
            found, rows=(*rows, "vendor"), columns="other_vendor",
            value="of_vendors", error="of_vendors_error", digits=3,
        )  # fmt: skip
        value, low, high = found.correlation.transpose("end", ...)
        words = xr.apply_ufunc(tables.interval, value, low, high, vectorize=True)
        yield tables.table(xr.Dataset({"value": words}), rows=rows, columns="agreement")
        base = found.sel(scale=shown, text=WHOLE)
        yield tables.table(
            base.isel(prompt=_extremes(base)), rows=("prompt",), value="different_models",
            error="different_models_error",
        )  # fmt: skip

    @classmethod
    def figures(cls, runs):
        """Every two models, clustered; the numbers of different models; the prompts."""
        (run,) = runs
        study, scale = run.study, run.study.widths.shown
        found = run.found.sel(scale=scale)
        n = f"n = {study.prompts * study.of_each} of each model"
        over = f"over the {study.prompts} prompts"
        drawn = {
            "hivemind": (_heat_map(found, study), ""),
            "hivemind_numbers": (_numbers(run.found, study), f"95% intervals {over}"),
            "hivemind_prompts": (_prompts(found, study), "95% intervals over answers"),
        }
        scales = {"hivemind_numbers": None}
        return {
            name: figures.caption(figure, run, n=n, bars=bars, scale=scales.get(name, scale))
            for name, (figure, bars) in drawn.items()
        }


def family_of(model: str) -> str:
    """The family of a model by its name; the name itself where no family is known by it."""
    name = model.lower()
    return next((family for of, family in _FAMILIES.items() if name.startswith(of)), model)


def _of_models(labels: np.ndarray, role: str, rows: np.ndarray) -> tuple[str, ...]:
    """The label of each model.

    Raises:
      ValueError: a model has two.
    """
    words = labels.astype(str)[rows].reshape(len(rows), -1)
    for of_model in words:
        if len(of := set(of_model.tolist())) > 1:
            raise ValueError(f"--{role}: expected one for each model, received {sorted(of)[:2]}.")
    return tuple(words[:, 0].tolist())


def _extremes(found: xr.Dataset) -> np.ndarray:
    """The places of the prompts on which the models agree most, then least."""
    order = np.argsort(found.different_models.values, kind="stable")
    ends = min(_EXTREMES, len(order) // 2)
    return np.concatenate([order[:ends], order[len(order) - ends :]])


def clustered(overlaps: np.ndarray) -> tuple[np.ndarray, Mapping[str, Any]]:
    """The models in the order of average linkage, neighbours most alike, and SciPy's dendrogram."""
    from scipy.cluster import hierarchy  # Imported where it is used: it is slow to import.
    from scipy.spatial import distance

    apart = np.maximum(1 - overlaps, 0)
    np.fill_diagonal(apart, 0)
    condensed = distance.squareform(apart, checks=False)
    tree = hierarchy.linkage(condensed, "average", optimal_ordering=True)
    drawn = hierarchy.dendrogram(tree, no_plot=True)
    return np.array(drawn["leaves"]), drawn


def _heat_map(found: xr.Dataset, study: Hivemind) -> Figure:
    """Whole answers below the diagonal, cut ones above; halves of one model on it."""
    first = found.overlap.sel(text=WHOLE).values
    order, tree = clustered(first)
    values = found.overlap.isel(text=-1).values.copy()
    values = values[np.ix_(order, order)]
    below = np.tril_indices(len(order))
    values[below] = first[np.ix_(order, order)][below]
    figure, (panel,) = style.panels(1, size=(2.6 + 0.36 * len(order), 2.4 + 0.34 * len(order)))
    names = [study.models[m] for m in order]
    words = [[f"{v:.2f}" for v in row] for row in values]
    style.matrix(panel, values, names, words, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    vendors = sorted(set(study.vendors))
    colours = dict(zip(vendors, itertools.cycle(style.CYCLE), strict=False))
    for labels in (panel.get_xticklabels(), panel.get_yticklabels()):
        for label, m in zip(labels, order, strict=True):
            label.set_color(colours[study.vendors[m]])
    above = panel.inset_axes((0, 1.01, 1, 0.12))
    lines = [
        np.column_stack([np.array(x) / 10 - 0.5, y])
        for x, y in zip(tree["icoord"], tree["dcoord"], strict=True)
    ]
    above.add_collection(LineCollection(lines, colors=style.GREY, linewidths=1))
    above.set(xlim=panel.get_xlim(), ylim=(0, 1.05 * max(line[:, 1].max() for line in lines)))
    above.set(xticks=[], ylabel="1 - overlap")
    above.grid(visible=False)
    above.set_title(
        "Overlap of every two models given the prompts"
        + (": whole answers below the diagonal, cut ones above" if CUT in study.texts else "")
        + "\n(on it: two halves of one model's answers)"
    )
    marks = [Line2D([], [], color=colours[v], marker="s", lw=0, label=v) for v in vendors]
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
    return figure


def _numbers(found: xr.Dataset, study: Hivemind) -> Figure:
    """How many models are different, by set; overlaps by vendor; by kind of pair and bandwidth."""
    figure, panels = style.panels(3, size=(4.6, 3.9))
    shown = found.sel(scale=study.widths.shown)
    _by_set(panels[0], shown.sel(text=WHOLE))
    of_vendors = shown.sel(text=WHOLE)
    values, errors = of_vendors.of_vendors.values, of_vendors.of_vendors_error.values
    words = [
        ["-" if np.isnan(v) else f"{v:.2f}\n± {e:.2f}" for v, e in zip(*row, strict=True)]
        for row in zip(values, errors, strict=True)
    ]
    names = found.vendor.values.tolist()
    style.matrix(panels[1], values, names, words, cmap="viridis", vmin=0, vmax=1)
    panels[1].set_title("Mean overlap of two models, by vendor\n(whole answers)")
    _by_kinds(panels[2], found, study)
    return figure


def _by_set(panel: Axes, found: xr.Dataset) -> None:
    """The numbers of different models, between what chance gives and the number of models."""
    places = np.arange(found.sizes["set"])
    one = found.sel(part=DIFFERENT)
    largest = found.largest.values.astype(int)
    panel.plot(places, largest, "_", color=style.BLACK, ms=12, label="models")
    look: dict[str, Any] = {"lw": 0, "ms": 4, "elinewidth": 0.8}
    panel.errorbar(
        places - 0.2, one.counts, 1.96 * one.counts_error, marker="o", color=style.BLUE,
        label="unbiased, order 2", **look,
    )  # fmt: skip
    for shift, order, colour in ((0.0, 2.0, style.VERMILION), (0.2, 1.0, style.ORANGE)):
        of = found.sel(order=order)
        panel.errorbar(
            places + shift, of.number, 1.96 * of.number_error, marker="s", color=colour,
            label=f"between_models, order {order:g}", **look,
        )  # fmt: skip
        name = f"order {order:g}, answers dealt anew"
        panel.plot(places + shift, of.floor, "x", color=colour, ms=5, label=name)
    panel.set_xticks(places, found.set.values, rotation=35, ha="right")
    style.log_axis(panel, (1, 2, 3, 5))
    panel.set(ylabel="effective number of different models")
    panel.set_title("How many models are different\n(whole answers)")
    panel.legend(fontsize=6.5)


def _by_kinds(panel: Axes, found: xr.Dataset, study: Hivemind) -> None:
    """The mean overlap of pairs of models of each kind, by text and bandwidth."""
    cells = list(itertools.product(study.texts, found.scale.values.tolist()))
    for number, (kind, colour) in enumerate(
        zip(KINDS, (style.BLUE, style.GREEN, style.VERMILION), strict=True)
    ):
        of = [found.sel(text=text, scale=scale, kind=kind) for text, scale in cells]
        panel.errorbar(
            np.arange(len(cells)) + 0.15 * (number - 1), [one.of_kind.item() for one in of],
            [1.96 * one.of_kind_error.item() for one in of], fmt=style.MARKERS[number],
            color=colour, elinewidth=0.8, label=kind,
        )  # fmt: skip
    labels = [f"{text}\nx {scale:g}" for text, scale in cells]
    panel.set_xticks(range(len(cells)), labels)
    panel.set(xlabel="answers and bandwidth", ylabel="mean overlap", ylim=(0, 1.05))
    panel.set_title("Overlap of two models of one family,\nvendor, or different vendors")
    panel.legend()


def _prompts(found: xr.Dataset, study: Hivemind) -> Figure:
    """The prompts on which the models agree most and least; agreement against diversity."""
    first = found.sel(text=WHOLE)
    figure, panels = style.panels(3, size=(4.2, 3.9))
    chosen = _extremes(first)
    one = first.isel(prompt=chosen)
    places = -np.arange(len(chosen), dtype=float) - (np.arange(len(chosen)) >= len(chosen) // 2)
    panels[0].errorbar(
        one.different_models, places, xerr=1.96 * one.different_models_error, fmt="o",
        markersize=3.5, elinewidth=0.8, color=style.BLUE,
    )  # fmt: skip
    panels[0].set_yticks(places, one.prompt.values, fontsize=7)
    panels[0].axvline(1, color=style.GREY, lw=0.8)
    panels[0].set(xlabel=f"different models of {len(study.models)}", ylabel="number of the prompt")
    panels[0].set_title("The prompts on which the models\nagree most, and least")
    agreements = (
        (DIFFERENT, first.different_models, f"different models of {len(study.models)}"),
        (SHARED, first.shared_answers, "share of the pairs of answers of two models"),
    )
    for panel, (kind, values, name) in zip(panels[1:], agreements, strict=True):
        panel.plot(first.different_answers, values, "o", ms=3.5, color=style.BLUE, alpha=0.6)
        correlation = tables.interval(*first.correlation.sel(agreement=kind).values)
        panel.set_title(f"{kind.capitalize()}: rank correlation\n{correlation}")
        panel.set_xscale("log")
        style.log_axis(panel)
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_minor_locator(NullLocator())
        style.log_numbers(panel.xaxis)
        panel.set(xlabel="different answers of one model", ylabel=name)
    few, most = (first.different_answers.values.min(), first.different_answers.values.max())
    panels[2].plot([few, most], [1 / few, 1 / most], color=style.GREY, lw=1, label="of one model")
    panels[2].legend()
    return figure


if __name__ == "__main__":
    lab.main(Hivemind)
