"""How many of 24 language models are different, and how far every two overlap, without bias."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import inference
from condvendi_jax.statistics.influences import root_mean_square
from experiments import lab
from experiments.lab import agreement, figures, style, tables
from experiments.language_models import judged
from experiments.language_models.judged import WHOLE

ALL = "all"
FAMILY, VENDOR, OTHER = "same family", "same vendor, other family", "different vendors"
KINDS = (FAMILY, VENDOR, OTHER)
DIFFERENT, SHARED = "different models", "shared answers"
PARTS = (DIFFERENT, "answers of a model", "answers of all")
_PAIR = "model", "other"
_RELABELLED = 1999  # Permutations of the families over the models.


class Hivemind(lab.Study):
    """Do all language models say the same when they are asked the same?"""

    control = "All models answer the same prompts as often; unbiased scores do not grow with n."
    grows = ("prompt",)
    version = 2
    data = "answers"
    needs = ("models", "prompt")
    takes = ("vendors", "families")
    further = ("truncated",)

    widths: judged.Widths = judged.Widths()
    resamples: int = lab.flag(2000, "Resamples of the prompts for intervals.", at_least=2)
    prompts: int = lab.resolved()
    of_each: int = lab.resolved()
    models: tuple[str, ...] = lab.resolved()
    vendors: tuple[str, ...] = lab.resolved()
    families: tuple[str, ...] = lab.resolved()
    texts: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        rows, prompts = judged.by_prompt(pairs)
        if len(prompts) < 3 or rows.shape[2] < 3:
            raise ValueError(
                "--prompt: expected at least three prompts and three answers of each model to "
                f"each, received {len(prompts)} and {rows.shape[2]}."
            )
        families = judged.by_model(pairs, rows, "families")
        vendors = judged.by_model(pairs, rows, "vendors") if "vendors" in pairs.labels else families
        return self.ready(
            pairs,
            state=(pairs, rows, prompts),
            widths=self.widths.resolve(pairs),
            prompts=len(prompts),
            of_each=rows.shape[2],
            models=judged.by_model(pairs, rows, "models"),
            vendors=vendors,
            families=families,
            texts=tuple(judged.texts_of(pairs)),
        )

    def axes(self):
        return {"text": self.texts, "scale": self.widths.axis}

    @property
    def sets(self) -> dict[str, list[str]]:
        """The models: all, those of each vendor and of each family, where they are several."""
        found = {ALL: list(self.models)}
        for labels in (self.vendors, self.families):
            for label in sorted(set(labels)):
                of = [m for m, own in zip(self.models, labels, strict=True) if own == label]
                if len(of) > 1 and of not in found.values():
                    found[label] = of
        return found

    @property
    def masks(self) -> dict[str, xr.DataArray]:
        """The pairs of models of each of `KINDS`, and of every two vendors, by name."""
        family, vendor = (np.array(of)[:, None] == of for of in (self.families, self.vendors))
        apart = ~np.eye(len(family), dtype=bool)
        kinds = [family & apart, vendor & ~family, ~(family | vendor)]
        whose = np.unique(self.vendors)[:, None] == self.vendors
        vendors = whose[:, None, :, None] & whose[None, :, None, :] & apart
        return {
            "of_kind": xr.DataArray(kinds, dims=("kind", *_PAIR)),
            "of_vendors": xr.DataArray(vendors, dims=("vendor", "other_vendor", *_PAIR)),
        }

    def compute(self, state, context, *, text, scale):
        """How many models are different, what every two have in common, and where all agree.

        Over `set` (all models, and those of each vendor and family) and `part`: `counts` with
        errors, how many models are different, and how many answers one model gives to a prompt, and
        all together; `plug_in`, the same with each answer beside itself; `largest`, the number of
        models. Over `model` and `other`: the `overlap` with errors. Over `kind`: the mean overlap
        of such pairs of models, with errors; `family_effect`, by how much it is higher in families
        than between vendors, its error and its p-value over permutations of models. Over `vendor`
        and `other_vendor`: the mean overlap of two models, with errors. Over `prompt` (a label):
        `different_models` and its error over answers, `different_answers` of one model, and
        `shared_answers`, the share of pairs of answers of two models that are the same. Over
        `agreement` and `end`: the rank correlation over prompts of `different_answers` with the
        number of different models and with the shared answers, and its 95% interval.
        """
        pairs, rows, prompts = state
        outputs = dict(zip(self.models, judged.texts_of(pairs)[text][rows], strict=True))
        generator = np.random.default_rng(context.shared_seed)
        context.say("scores")
        options: dict[str, Any] = {"groups": self.prompts, **scale.kernels}
        number = np.repeat(np.arange(self.prompts, dtype=np.float32), self.of_each)[:, None]
        flat = {name: of.reshape(len(number), -1) for name, of in outputs.items()}
        compared = cv.compare(flat, number, orders=[2], profile=False, **options)
        between, sets = compared.between, []
        assert between is not None  # Order 2 is computed from pairs.
        for names in self.sets.values():
            context.say(f"{len(names)} models")
            own = {name: flat[name] for name in names}
            whole = len(own) == len(flat)
            of_set = between if whole else cv.between_models(own, number, **options)
            sets.append(_counts(of_set, compared))
        overlaps = xr.DataArray(between.overlaps, dims=_PAIR)
        influences = xr.DataArray(np.asarray(between.overlap_influences), dims=(*_PAIR, "unit"))
        found: dict[str, Any] = {
            "overlap": overlaps,
            "overlap_error": (_PAIR, between.overlap_errors),
            "family_p_value": self._relabelled(overlaps, generator),
            "family_effect": self._effect(overlaps),
            "family_effect_error": _error_of(self._effect(influences)),
        }
        for name, mask in self.masks.items():
            found[name] = overlaps.weighted(mask).mean(_PAIR)
            found[f"{name}_error"] = _error_of(influences.weighted(mask).mean(_PAIR))
        context.say("prompts")
        found |= self._of_prompts(outputs, scale, generator)
        labels: dict[str, Any] = dict.fromkeys(_PAIR, list(self.models))
        labels |= dict.fromkeys(("vendor", "other_vendor"), sorted(set(self.vendors)))
        labels |= {"set": list(self.sets), "part": list(PARTS), "kind": list(KINDS)}
        labels |= {"prompt": prompts, "agreement": [DIFFERENT, SHARED]}
        return xr.concat(sets, dim="set").assign(found).assign_coords(labels)

    def _effect(self, overlaps: xr.DataArray) -> xr.DataArray:
        """The mean overlap in families less that between vendors."""
        means = overlaps.weighted(self.masks["of_kind"]).mean(_PAIR)
        return means.isel(kind=0) - means.isel(kind=-1)

    def _relabelled(self, overlaps: xr.DataArray, generator: np.random.Generator) -> float:
        """The two-sided p-value of `_effect`: families and vendors go to other models together."""
        value = abs(self._effect(overlaps))
        if np.isnan(value):
            return np.nan
        orders = [generator.permutation(len(overlaps)) for _ in range(_RELABELLED)]
        relabelled = xr.concat([overlaps[of, of] for of in orders], "order")
        null = abs(self._effect(relabelled))
        return (1 + np.sum(null >= value * (1 - 1e-9))) / (1 + _RELABELLED)

    def _of_prompts(
        self, outputs: Mapping[str, np.ndarray], width: judged.Width, generator: np.random.Generator
    ) -> dict[str, Any]:
        """What each prompt by itself says of all models, and what goes with what over prompts."""
        kernel, groups = width.kernels["output_kernel"], np.arange(self.of_each)
        models = [{name: of[p] for name, of in outputs.items()} for p in range(self.prompts)]
        found = [cv.between_models(of, output_kernel=kernel, groups=groups) for of in models]
        different = np.array([of.number for of in found])
        entropies = [judged.entropies(of, width.outputs)[2] for of in outputs.values()]
        alike = np.exp(np.negative(entropies)).mean(axis=0)
        answers, count = 1 / alike, len(outputs)
        shared = alike * (count / different - 1) / (count - 1)
        draws = generator.integers(self.prompts, size=(self.resamples, self.prompts))
        both = np.stack([different, shared])
        correlation = agreement.correlate(both, answers, list(draws), 2.0)
        return {
            "different_models": ("prompt", different),
            "different_models_error": ("prompt", [of.standard_error for of in found]),
            "different_answers": ("prompt", answers),
            "shared_answers": ("prompt", shared),
            "correlation": (("agreement", "end"), correlation),
        }

    def tables(self, run):
        """The numbers, the overlaps by kind and by vendor, the correlations over prompts."""
        yield from _tables(run.found).values()

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        found, study = run.found, run.study
        base = found.sel(scale=study.widths.shown, text=WHOLE)
        error = base.different_models_error / base.different_models
        pairs = np.transpose(np.triu_indices(len(study.models), 1))
        pairs = pairs[np.argsort(base.overlap.values[tuple(pairs.T)])]
        count = base.sizes["model"]

        def prompt(place: int, scale: float = 1) -> xr.Dataset:
            ordered = found.sel(text=WHOLE, scale=scale).sortby("different_models")
            return ordered.isel(prompt=place)

        return {
            "base": base,
            "prompt": prompt,
            "pair": lambda k: base.isel(dict(zip(("model", "other"), pairs[k], strict=True))),
            # Of the answers of two models the share that is the same, over that of one model.
            "between": (count / base.counts[0, 0] - 1) / (count - 1),
            "real": 1 - (error**2).mean() / np.log(base.different_models).var(ddof=1),
            **{name: _tables(base)[name] for name in ("counts", "plug_in", "of_vendors")},
            "of_kind": _tables(found)["of_kind"],
        }

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, scale = run.study, run.study.widths.shown
        found = run.found.sel(scale=scale)
        kinds = xr.Dataset({"value": found.of_kind, "error": 1.96 * found.of_kind_error})
        kinds, by = kinds.dropna("kind"), found.of_kind.sel(text=WHOLE)
        low, high = (f"{by.sel(kind=of):.2f} ({of})" for of in (OTHER, FAMILY))
        drawn = {
            "hivemind": figures.dots(
                kinds.expand_dims("panel"), row="kind", hue="text", column="panel",
                x_label="overlap of two models (0: none, 1: the same answers)",
                headline=f"Two models overlap by {low} to {high}",
            ),
            "hivemind_pairs": _heat_map(found, study),
            "hivemind_prompts": _prompts(found.sel(text=WHOLE)),
        }  # fmt: skip
        return {k: figures.caption(of, run, bars="95%", scale=scale) for k, of in drawn.items()}


def _tables(found: xr.Dataset) -> dict[str, Table]:
    """All tables by the name of what they show; of results at one text and bandwidth or at all."""
    first = [axis for axis in ("text", "scale") if axis in found.dims]
    shown = {}
    for name in ("counts", "of_kind", "family_effect", "of_vendors"):
        axes = [str(axis) for axis in found[name].dims if axis not in first]
        columns = axes.pop() if axes else None
        words = judged.in_words("{:.2f}±{:.2f}", found[name], found[f"{name}_error"])
        shown[name] = tables.table(words, rows=[*first, *axes], columns=columns)
    of_sets = {"rows": [*first, "set"], "columns": "part"}
    shown["plug_in"] = tables.table(found, value="plug_in", digits=3, **of_sets)
    shown["p"] = tables.table(found, rows=first, value="family_p_value", digits=2)
    words = tables.intervals(found.correlation)
    shown["correlation"] = tables.table(words, rows=first, columns="agreement")
    return shown


def _counts(between: inference.Between, compared: inference.Comparison) -> xr.Dataset:
    """Of some models, how many differ, and the answers of one and of all, with errors."""
    scored = [compared.evaluations[name].order(2) for name in between.models]
    known = [own.population for own in scored if own.population is not None]
    alike, count = np.mean([own.similarities.conditional for own in known]), len(known)
    # What a prompt moves, relative to the number of models and to the answers of one.
    of_one = [own.influences.conditional[0] for own in known if own.influences is not None]
    assert between.error is not None
    moved = [between.error.influences[0] / between.number, -np.mean(of_one, axis=0) / alike]
    counts = np.array([between.number, 1 / alike, between.number / alike])
    plain = np.mean([1 / own.decomposition.scores.conditional for own in scored])
    # Of all answers, 1 / count are of one model.
    of_all = alike / between.number + (plain - alike) / count
    fields = {
        "counts": counts,
        "counts_error": counts * root_mean_square(np.stack([*moved, sum(moved)])),
        "plug_in": [plain / of_all, 1 / plain, 1 / of_all],
    }
    return xr.Dataset({k: ("part", of) for k, of in fields.items()}).assign(largest=count)


def _error_of(influences: xr.DataArray) -> xr.DataArray:
    return (influences**2).mean("unit") ** 0.5


def _heat_map(found: xr.Dataset, study: Hivemind) -> Figure:
    """Whole answers below the diagonal, cut ones above."""
    first = found.overlap.sel(text=WHOLE).values
    from scipy.cluster import hierarchy  # Imported where it is used: it is slow to import.
    from scipy.spatial import distance

    condensed = distance.squareform(np.maximum(1 - first, 0), checks=False)
    linkage = hierarchy.linkage(condensed, "average", optimal_ordering=True)
    order = hierarchy.leaves_list(linkage)  # Neighbours are most alike.
    last, below = found.overlap.isel(text=-1).values, np.tri(len(order), dtype=bool)
    values = np.where(below, *(of[np.ix_(order, order)] for of in (first, last)))
    figure, (panel,) = style.panels(1, size=(2.6 + 0.36 * len(order), 2.4 + 0.34 * len(order)))
    names = [study.models[m] for m in order]
    np.fill_diagonal(values, np.nan)
    words = [["" if np.isnan(v) else f"{v:.2f}" for v in row] for row in values]
    style.matrix(panel, values, names, words, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    vendors = sorted(set(study.vendors))
    colours = dict(zip(vendors, itertools.cycle(style.CYCLE), strict=False))
    for labels in (panel.get_xticklabels(), panel.get_yticklabels()):
        for label, m in zip(labels, order, strict=True):
            label.set_color(colours[study.vendors[m]])
    panel.set_title(f"whole answers below the diagonal, {study.texts[-1]} ones above")
    marks = [Line2D([], [], color=colours[v], marker="s", lw=0, label=v) for v in vendors]
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
    pair = np.unravel_index(np.argmax(np.tril(first, -1)), first.shape)
    closest = " and ".join(study.models[m] for m in pair)
    return style.headline(figure, f"{closest} overlap most, by {first[pair]:.2f}")


def _prompts(found: xr.Dataset) -> Figure:
    """How far models agree on a prompt, against how many different answers one model gives."""
    values = xr.concat([found.different_models, found.shared_answers], found.agreement)
    drawn = xr.Dataset({"value": values, "answers": found.different_answers})

    def title(kind: str, _: None) -> str:
        correlation = tables.interval(*found.correlation.sel(agreement=kind).values)
        return f"rank correlation over prompts {correlation}"

    labels = {DIFFERENT: "different models", SHARED: "answers shared by two"}
    figure = figures.facets(
        drawn, x="answers", row="agreement", kind="points", log_y=True, title=title,
        x_label="different answers of one model to the prompt", y_label=labels.__getitem__,
        size=(7.0, 2.1), each=lambda panel, _: style.log_counts(panel, (2, 5, 10, 20)),
    )  # fmt: skip
    words = "less" if found.correlation.sel(agreement=SHARED)[0] < 0 else "more"
    words = f"Models agree {words} where one model gives more different answers"
    return style.headline(figure, words)
