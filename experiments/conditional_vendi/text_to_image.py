"""Text-to-image models that answered different prompts, on what they share: CV-early figure 4."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from condvendi_jax import inference
from condvendi_jax.base import checks
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, models, style, tables

# Below this no error is worth its name.
FEWEST_PROMPTS = 3


@dataclasses.dataclass(frozen=True)
class Design:
    """What some models are compared on: how many shared prompts, how many samples of each."""

    models: tuple[str, ...]
    prompts: int
    samples: int


def match(names: Sequence[str], counts: np.ndarray, samples: int | None, most: int) -> Design:
    """Prompts and samples that some models share: as many rows as possible, then prompts.

    Each of the models has `counts` outputs of every prompt, `[models, prompts]`. `samples` of each
    prompt are taken (None: as many as leave the most rows), and `most` prompts at most.
    """
    fewest = counts.min(axis=0)
    tried = range(1, max(fewest.max(), 1) + 1) if samples is None else [samples]
    shared = {k: min(int(np.sum(fewest >= k)), most) for k in tried}
    samples = max(tried, key=lambda k: (k * shared[k], -k))
    return Design(tuple(names), shared[samples], samples)


def share(
    names: Sequence[str], counts: np.ndarray, samples: int | None, least: int, most: int
) -> tuple[Design, tuple[str, ...]]:
    """The comparison of as many models as share `least` prompts, and who is left out of it.

    The other arguments are those of `match`.

    Raises:
      ValueError: the last two share fewer than three.
    """
    rows, left_out = list(range(len(names))), []
    while True:
        design = match([names[row] for row in rows], counts[rows], samples, most)
        if design.prompts >= min(least, most) or len(rows) == 2:
            break
        fewest = min(rows, key=lambda row: (np.sum(counts[row] > 0), -row))
        rows.remove(fewest)
        left_out.append(names[fewest])
    if design.prompts < FEWEST_PROMPTS:
        several = "" if samples is None else f" with {samples} samples each"
        raise ValueError(
            f"--prompt: the models must share at least {FEWEST_PROMPTS} prompts{several}; "
            f"{' and '.join(design.models)} share {design.prompts}."
        )
    return design, tuple(left_out)


def draw_rows(pairs: PairedEmbeddings, design: Design, key: jax.Array) -> np.ndarray:
    """Rows of the pairs, `[models, prompts, samples]`: the same prompts of every model."""
    generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
    prompt, model = pairs.prompt_numbers.tolist(), pairs.labels["models"].astype(str).tolist()
    of_cell: dict[tuple[str, int], list[int]] = {}
    for row in generator.permutation(len(pairs)).tolist():
        of_cell.setdefault((model[row], prompt[row]), []).append(row)
    shared = [
        p
        for p in generator.permutation(max(prompt) + 1).tolist()
        if all(len(of_cell.get((m, p), ())) >= design.samples for m in design.models)
    ]
    return np.array(
        [[of_cell[m, p][: design.samples] for p in shared[: design.prompts]] for m in design.models]
    )


def of_pairs(compared: Sequence[xr.Dataset]) -> xr.Dataset:
    """Comparisons of two models each as one, with p-values adjusted for all of them by Holm.

    Over score, model and other: `of_pair`, the score of a model where it is compared with the
    other, `difference` and `p_value`; NaN of a model and itself.
    """
    first_two = np.array([one.p_value.values[:, 0, 1] for one in compared])
    adjusted = np.apply_along_axis(lambda p: inference.holm(p.tolist()), 0, first_two)
    found = []
    for one, p_value in zip(compared, adjusted, strict=True):
        fields = {"of_pair": one.value, "of_pair_error": one.error, "difference": one.difference}
        fields |= {"difference_error": one.difference_error, "p_value": ("score", p_value)}
        found.append(xr.Dataset(fields).where(one.model != one.other))
    return functools.reduce(xr.Dataset.combine_first, found)


def verdicts(pairs: xr.Dataset) -> xr.DataArray:
    """By what share a model exceeds another where a test tells the two apart; NaN elsewhere."""
    second = pairs.of_pair.rename(model="other", other="model")
    return (pairs.of_pair / second - 1).where(pairs.p_value <= models.LEVEL)


TOGETHER, PAIRS = "together", "pairs"
_BARS = "one standard error; a letter in common: not told apart"


class TextToImage(lab.Study):
    """Which text-to-image model is more diverse, given the prompts and without them?"""

    name = "text_to_image"
    reproduces = "CV-early fig 4"
    duration = "2 minutes"
    data = "gallery"
    needs = ("models",)
    takes = ("prompt",)
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
    data_name: str = lab.resolved("")
    together: Design = lab.resolved()
    couples: tuple[Design, ...] = lab.resolved(())
    left_out: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        orders = tuple(map(checks.check_order, self.orders))
        pairs = load()
        names, counts = models.count_rows(pairs)
        together, left_out = share(
            names, counts, self.samples, self.least_prompts, self.most_prompts
        )
        couples = [
            match([names[i], names[j]], counts[[i, j]], self.samples, self.most_prompts)
            for i, j in itertools.combinations(range(len(names)), 2)
        ]
        arrays = {role: pairs.arrays[role] for role in ("outputs", "prompts", "models")}
        return self.ready(
            pairs,
            state=pairs,
            arrays=arrays | {"prompt": pairs.prompt_numbers},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            orders=orders,
            data_name=pairs.name,
            together=together,
            couples=tuple(design for design in couples if design.prompts >= FEWEST_PROMPTS),
            left_out=left_out,
        )

    def axes(self):
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
            rows = draw_rows(state, design, key)
            groups = np.arange(design.prompts) % min(self.groups, design.prompts)
            return models.compare(
                {m: state.outputs[r.ravel()] for m, r in zip(design.models, rows, strict=True)},
                state.prompts[rows[0].ravel()],
                scale,
                groups=np.repeat(groups, design.samples),
                orders=self.orders,
                unbiased=False,
            )

        if comparison == TOGETHER:
            return compare(0, self.together)
        return of_pairs(list(map(compare, range(len(self.couples)), self.couples)))

    def tables(self, run):
        """The models by each score and bandwidth; every two; whose order turns."""
        found = run.found
        rows = ("scale", "score", "model")
        together = found.sel(comparison=TOGETHER, model=list(self.together.models))
        yield tables.table(together, rows=rows, error="error", letters="letters")
        apart = verdicts(found.sel(comparison=PAIRS))
        told = (apart > 0).sum(("model", "other"))
        turned = ((apart > 0).any("scale") & (apart < 0).any("scale")).sum(("model", "other")) // 2
        counts = xr.Dataset({"pairs told apart": told, "order turns": turned})
        counts = counts.to_dataarray("of").astype(float).to_dataset(name="value")
        yield tables.table(counts, rows=rows[:2], columns="of")

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            study, shared = run.study, run.study.together
            suffix = "" if study.data_name == cls.data else f"_{study.data_name}"
            found = run.found.sel(comparison=TOGETHER, model=list(shared.models))
            n = f"{shared.samples} of each of {shared.prompts} shared prompts"
            caption = functools.partial(figures.caption, runs=run, n=n, bars=_BARS)
            scale = study.bandwidths.shown
            figure = models.side_by_side(
                found.sel(scale=scale), error="error", across=3, size=(4.6, 2.4)
            )
            drawn[f"text_to_image{suffix}"] = caption(figure, scale=scale)
            if len(study.bandwidths.axis) > 1:
                figure = models.side_by_side(
                    found.sel(score=_conditional(found)), error="error", size=(4.4, 2.4)
                )
                drawn[f"text_to_image_bandwidth{suffix}"] = caption(figure)
            drawn[f"text_to_image_pairs{suffix}"] = _pairs(run)
        return drawn


def _conditional(found: xr.Dataset) -> list[str]:
    return [score for score in found.score.values.tolist() if score.startswith("Conditional")]


def _pairs(run: lab.Run) -> Figure:
    """Every two: by how much the row's conditional score exceeds the column's, where told apart."""
    study, names = run.study, _conditional(run.found)
    labels = list(dict.fromkeys(model for design in study.couples for model in design.models))
    apart = verdicts(
        run.found.sel(comparison=PAIRS, score=names, model=labels, other=labels)
    ).transpose("scale", "score", "model", "other")
    base = apart.sel(scale=study.bandwidths.shown)
    agree = (np.sign(apart) == np.sign(base)).sum("scale")
    scales = apart.sizes["scale"]
    figure, axes = style.panels(
        len(names), size=(1.6 + 0.55 * len(labels), 1.6 + 0.4 * len(labels))
    )
    for panel, score in zip(axes, names, strict=True):
        values = 100 * base.sel(score=score).values
        limit = max(np.nanmax(np.abs(values), initial=0), 1e-3)
        words = np.vectorize(lambda v, a: "" if np.isnan(v) else f"{v:+.0f}\n({a}/{scales})")(
            values, agree.sel(score=score)
        )
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
