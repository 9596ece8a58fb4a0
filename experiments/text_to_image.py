"""Which text-to-image model is more diverse, and which follows its prompts: CV-early figure 4.

Models that answered different prompts, with different numbers of pictures, are compared on what
they share: the same prompts and as many samples of each. First as many models as share enough
prompts, together; then every two models on all that the two share. Differences are paired, prompt
by prompt, and tested; a pair that no test tells apart is said to be equal.

    python -m experiments.text_to_image --data=gallery
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from condvendi_jax import validation
from experiments import lab, shared_prompts
from experiments.lab import figures, models, style, tables
from experiments.shared_prompts import FEWEST_PROMPTS, Design

TOGETHER, PAIRS = "together", "pairs"
_POINTS: Any = {"kind": "points", "error": "error", "letters": "letters", "sharey": "none"}
_POINTS |= {"x_label": ""}
_BARS = "one standard error; a letter in common: not told apart"


@dataclasses.dataclass(frozen=True)
class TextToImage(lab.Study):
    """Which text-to-image model is more diverse, given the prompts and without them?"""

    name = "text_to_image"
    reproduces = "CV-early fig 4"
    duration = "2 minutes"
    data = "gallery"
    needs = ("models",)
    takes = ("prompt",)
    runs = ((),)
    drawings = ("text_to_image", "text_to_image_bandwidth", "text_to_image_pairs")

    bandwidths: lab.Scales = lab.Scales()
    orders: tuple[float, ...] = lab.flag((1.0, 2.0), "Renyi orders: 1 is Vendi, 2 is RKE.")
    samples: int | None = lab.flag(
        None,
        "Samples a prompt, of every model; if unset, as many as leave the most rows to compare.",
        at_least=1,
    )
    least_prompts: int = lab.flag(
        20,
        "Models are left out of the comparison of all, that of the fewest prompts first, until the "
        "others share so many.",
        at_least=FEWEST_PROMPTS,
    )
    most_prompts: int = lab.flag(200, "Prompts of a comparison at most.", at_least=FEWEST_PROMPTS)
    groups: int = lab.flag(20, "Groups of prompts of the jackknife, at most.", at_least=3)
    level: float = lab.flag(0.05, "Family-wise error rate of each score.", above=0, below=1)
    data_name: str = lab.resolved("")
    together: Design = lab.resolved()
    couples: tuple[Design, ...] = lab.resolved(())
    left_out: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Finds what the models share, and chooses the bandwidths."""
        orders = tuple(map(validation.check_order, self.orders))
        pairs = load()
        names, counts = shared_prompts.count_rows(pairs)
        sizes = shared_prompts.Sizes(self.samples, self.least_prompts, self.most_prompts)
        together, left_out = shared_prompts.share(names, counts, sizes)
        matched = (
            shared_prompts.match(names, counts, rows, sizes)
            for rows in itertools.combinations(range(len(names)), 2)
        )
        arrays = {role: pairs.arrays[role] for role in ("outputs", "prompts", "models")}
        return self.ready(
            pairs,
            state=pairs,
            arrays=arrays | {"prompt": pairs.prompt_numbers},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            orders=orders,
            data_name=pairs.name,
            together=together,
            couples=tuple(design for design in matched if design.prompts >= FEWEST_PROMPTS),
            left_out=left_out,
        )

    def axes(self):
        """Both comparisons at every multiple of the bandwidths."""
        return {"comparison": (TOGETHER, PAIRS), "scale": self.bandwidths.axis}

    def compute(self, state, context, *, comparison, scale):
        """Scores, paired differences and their p-values, on the same rows at every bandwidth.

        Returns:
          As `models.compare`, of all models together; of every two, `of_pair`, the score of a model
          where it is compared with the other, and `p_value` adjusted over all pairs.
        """

        def compare(index, design):
            context.say(" and ".join(design.models))
            key = jax.random.fold_in(context.shared_key, index)
            rows = shared_prompts.draw_rows(state, design, key)
            groups = np.arange(design.prompts) % min(self.groups, design.prompts)
            return models.compare(
                {m: state.outputs[r.ravel()] for m, r in zip(design.models, rows, strict=True)},
                state.prompts[rows[0].ravel()],
                scale,
                groups=np.repeat(groups, design.samples),
                orders=self.orders,
                level=self.level,
            )

        if comparison == TOGETHER:
            return compare(0, self.together)
        return shared_prompts.of_pairs(
            [compare(index, design) for index, design in enumerate(self.couples)]
        )

    def tables(self, run):
        """The models by each score and bandwidth; every two; whose order turns."""
        found = run.found
        rows = ("scale", "score", "model")
        together = found.sel(comparison=TOGETHER, model=list(self.together.models))
        yield tables.table(together, rows=rows, error="error", letters="letters")
        apart = shared_prompts.verdicts(found.sel(comparison=PAIRS), self.level)
        told = (apart > 0).sum(("model", "other"))
        turned = ((apart > 0).any("scale") & (apart < 0).any("scale")).sum(("model", "other")) // 2
        axis = xr.DataArray(["pairs told apart", "order turns"], dims="of", name="of")
        counts = xr.concat([told, turned.broadcast_like(told)], axis)
        counts = xr.Dataset({"value": counts.astype(float)})
        yield tables.table(counts, rows=rows[:2], columns="of")

    @classmethod
    def figures(cls, runs):
        """The models together, at every bandwidth, and every two: three figures a run."""
        drawn = {}
        for run in runs:
            study = run.study
            suffix = "" if study.data_name == cls.data else f"_{study.data_name}"
            found = run.found.sel(comparison=TOGETHER, model=list(study.together.models))
            drawn[f"text_to_image{suffix}"] = _together(run, found)
            if len(study.bandwidths.axis) > 1:
                drawn[f"text_to_image_bandwidth{suffix}"] = _bandwidths(run, found)
            drawn[f"text_to_image_pairs{suffix}"] = _pairs(run)
        return drawn


def _shared(run: lab.Run) -> str:
    shared = run.study.together
    return f"{shared.samples} of each of {shared.prompts} shared prompts"


def _together(run: lab.Run, found: xr.Dataset) -> Figure:
    """A panel a score at the rule's bandwidths; letters say who cannot be told apart."""
    scale = run.study.bandwidths.shown
    shown = found.sel(scale=scale)
    drawn = figures.facets(
        shown, x="model", column="score", across=3, size=(4.6, 2.4), **_POINTS,
        title=lambda _, score: f"{score}: {models.leader(shown.sel(score=score))}",
    )  # fmt: skip
    return figures.caption(drawn, run, n=_shared(run), bars=_BARS, scale=scale)


def _bandwidths(run: lab.Run, found: xr.Dataset) -> Figure:
    """A row a conditional score, a column a multiple of the bandwidths."""
    names = [s for s in found.score.values.tolist() if s.startswith("Conditional")]
    shown = found.sel(score=names)

    def title(score, scale):
        return f"bandwidths x {scale:g}:\n{models.leader(shown.sel(score=score, scale=scale))}"

    drawn = figures.facets(
        shown, x="model", row="score", column="scale", y_label=str, size=(4.4, 2.4), **_POINTS,
        title=title,
    )  # fmt: skip
    return figures.caption(drawn, run, n=_shared(run), bars=_BARS)


def _pairs(run: lab.Run) -> Figure:
    """Every two: by how much the row's conditional score exceeds the column's, where told apart."""
    study = run.study
    names = [s for s in run.found.score.values.tolist() if s.startswith("Conditional")]
    apart = shared_prompts.verdicts(run.found.sel(comparison=PAIRS, score=names), study.level)
    labels = list(dict.fromkeys(model for design in study.couples for model in design.models))
    apart = apart.sel(model=labels, other=labels)
    base = apart.sel(scale=study.bandwidths.shown)
    figure, axes = style.panels(
        len(names), size=(1.6 + 0.55 * len(labels), 1.6 + 0.4 * len(labels))
    )
    for panel, score in zip(axes, names, strict=True):
        values = 100 * base.sel(score=score).transpose("model", "other").values
        limit = max(np.nanmax(np.abs(values), initial=0), 1e-3)
        signs = np.sign(apart.sel(score=score).transpose("scale", "model", "other").values)
        agree = (signs == np.sign(values)).sum(axis=0)
        words = [
            [
                "" if np.isnan(v) else f"{v:+.0f}\n({a}/{len(signs)})"
                for v, a in zip(*of, strict=True)
            ]
            for of in zip(values, agree, strict=True)
        ]
        look = {"aspect": "auto", "cmap": "PuOr", "vmin": -1.6 * limit, "vmax": 1.6 * limit}
        style.matrix(panel, values, labels, words, **look)
        told = int((values > 0).sum())
        panel.set_title(f"{score}: {told} of {len(study.couples)} pairs told apart")
    prompts = sorted(design.prompts for design in study.couples)
    n = (
        f"the row over the column in per cent, on {prompts[0]} to {prompts[-1]} shared prompts, "
        "with the bandwidths at which a test agrees"
    )
    return figures.caption(figure, run, n=n, scale=study.bandwidths.shown)


if __name__ == "__main__":
    lab.main(TextToImage)
