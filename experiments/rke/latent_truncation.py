"""What truncating a generator's latents does to the scores: RKE figure 2."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table
from scipy import stats

from condvendi_jax.scores import clusters
from experiments import lab
from experiments.data.sets import FOLDER, SEED
from experiments.lab import figures, knobs, models, style, tables

PICTURES = FOLDER / "drawings" / "quickdraw.npz"


def by_psi() -> Figure:
    """Drawings by the VAE, a row a psi and a column a drawing: the same latents down a column."""
    with np.load(PICTURES, allow_pickle=False) as stored:
        ink, types, psi = stored["ink"], stored["types"], stored["models"]
    rows, classes, draws, *side = ink.shape
    pictures = ink.reshape(rows, -1, *side)

    names = [str(kind) if first == 0 else "" for kind in types for first in range(draws)]
    size = 0.55 * len(names) + 0.8, 0.56 * rows + 0.9
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, len(names), squeeze=False)
    for (row, column), axes in np.ndenumerate(grid):
        axes.imshow(255 - pictures[row, column], cmap="gray", vmin=0)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        if row == 0:
            axes.set_title(names[column], loc="left", fontsize=7.5)
        if column == 0:
            axes.set_ylabel(f"psi {psi[row]}", rotation=0, ha="right", va="center")
    style.headline(figure, "At psi = 0 all drawings of a class are one; they part as psi grows")
    words = f"{draws} of each of {classes} classes, seed {SEED}; the same latents down a column"
    whose = "Conditional VAE (weights: ml5.js, trained on Quick, Draw!)"
    return style.caption(figure, f"{whose}: {words}.")


_LARGEST = 900  # Pairs at one setting of the knob, by default.
# What the knob of a shipped set is, and whose; of others it is 'knob'.
_KNOBS = {"quickdraw": "psi", "sketches": "temperature"}
_GENERATORS = {"psi": "conditional VAE", "temperature": "Sketch-RNN"}


class LatentTruncation(lab.Study):
    """How do truncated latents, or a generator's temperature, change the scores?"""

    name = "latent_truncation"
    control = "Every setting has as many outputs of the same classes; one class has fewer."
    grows = ("within",)
    tolerance = 5e-3  # Errors are spreads of scores in float32 without a group.
    data = "quickdraw"
    needs = ("types", "models")
    runs = ((), ("--data=sketches",))
    drawings = ("latent_truncation", "latent_truncation_drawings")

    bandwidths: lab.Scales = lab.Scales()
    samples: int | None = lab.flag(
        help="Outputs of each type at each setting; as many as there are everywhere, up to "
        f"{_LARGEST} in all, if unset.",
        at_least=2,
    )
    groups: int = lab.flag(8, "Groups of prompts of the jackknife.", at_least=2)
    knob: str = lab.resolved("")
    values: tuple[float, ...] = lab.resolved(())
    types: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Reads the knob's settings, and takes as many outputs of each type."""
        pairs = load()
        many = _LARGEST // len(np.unique(pairs.labels["types"]))
        chosen, samples, types = knobs.take(pairs, self.samples, many)
        roles = ("outputs", "prompts", "types", "models")
        return self.ready(
            pairs,
            state=chosen,
            arrays={role: chosen.arrays[role] for role in roles},
            bandwidths=self.bandwidths.resolve(chosen, seed),
            samples=samples,
            knob=_KNOBS.get(pairs.name, "knob"),
            values=tuple(np.unique(knobs.settings(pairs)).tolist()),
            types=tuple(types),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis}

    def compute(self, state, context, *, scale):
        """All scores as `models.compare`, the settings as models.

        Beside them stands `within`, over type and setting: the RKE of the outputs of each type.
        """
        settings, kinds = list(self.values), list(self.types)
        names = [f"{value:g}" for value in settings]
        outputs, prompts = (
            dict(zip(names, np.split(rows, len(names)), strict=True))
            for rows in (state.outputs, state.prompts)
        )
        options = {"groups": self.groups, "seed": context.shared_seed, "unbiased": False}
        found = models.compare(outputs, prompts, scale, say=context.say, **options)
        context.say("types")
        number = np.arange(len(state)) * len(settings) * len(kinds) // len(state)
        kernel = scale.kernels["output_kernel"]
        rke = clusters.scores_by_cluster(state.outputs, number, kernel=kernel, order=2).scores
        within = np.asarray(rke, float).reshape(len(settings), len(kinds)).T
        found = found.rename(model="setting")
        found = found.assign_coords(setting=settings, other=settings, type=kinds)
        return found.assign(within=(("type", "setting"), within))

    def tables(self, run):
        """Every score at every setting, and how RKE within a type follows the knob."""
        yield _table(_with_types(run.found))
        trends = _trends(run.found).to_dataset(name="value")
        yield tables.table(trends, rows=("scale",), columns="rank correlation", digits=2)

    @classmethod
    def figures(cls, runs):
        drawn = {"latent_truncation": _as_printed(runs)}
        if any(run.study.knob == "psi" for run in runs):
            drawn["latent_truncation_drawings"] = by_psi()
        return drawn

    @classmethod
    def facts(cls, runs):
        scores = {run.study.knob: _with_types(run.found).isel(setting=[0, -1]) for run in runs}

        def end(knob, score, setting, scale=1.0):
            return scores[knob].value.sel(score=score, scale=scale).isel(setting=setting)

        return {
            "end": end,
            "trends": {run.study.knob: _trends(run.found) for run in runs},
            "tables": {knob: _table(of.sel(score=_PRINTED), None) for knob, of in scores.items()},
        }


_WITHIN = "RKE-within-type"
_PRINTED = [_WITHIN, "RKE", "Conditional-RKE", "Conditional-Vendi", "Information-Vendi"]


def _with_types(found: xr.Dataset) -> xr.Dataset:
    """All scores with their errors, and the mean RKE within a type as one more."""
    within = tables.means(found.within, "type").expand_dims(score=[_WITHIN])
    return xr.concat([found[["value", "error"]], within], "score")


def _trends(found: xr.Dataset) -> xr.DataArray:
    """The rank correlation of RKE within a type with the knob at every bandwidth: mean, ends."""
    trends = [knobs.trend(found.within.sel(scale=scale)) for scale in found.scale.values]
    axes = {"scale": found.scale.values, "rank correlation": ["mean", "from", "to"]}
    return xr.DataArray([[mean, *interval] for mean, interval in trends], axes)


def _table(found: xr.Dataset, error: str | None = "error") -> Table:
    rows = ("scale", "setting")
    return tables.table(found, rows=rows, columns="score", error=error, digits=3)


def _knobs(runs: Sequence[lab.Run]) -> dict[str, str]:
    """What the knob of each generator is."""
    return {_GENERATORS.get(run.study.knob, "generator"): run.study.knob for run in runs}


def _change(curve: xr.DataArray) -> str:
    """By how much the last setting differs from the first, in words."""
    curve = curve.dropna("setting")
    ratio = (curve.isel(setting=-1) / curve.isel(setting=0)).item()
    return f"{'rises' if ratio > 1 else 'falls'} by {abs(ratio - 1):.0%}"


def _as_printed(runs: Sequence[lab.Run]) -> Figure:
    """A row a generator: RKE-MC of all its outputs against the knob, and within a type."""
    parts = [_with_types(run.found).sel(score=["RKE", _WITHIN]) for run in runs]
    names = xr.DataArray(list(_knobs(runs)), dims="generator", name="generator")
    shown = xr.concat(parts, names, join="outer").rename(score="of")
    half = stats.t.ppf(0.975, runs[0].study.groups - 1) * shown.error
    shown = shown.assign(half=half).assign_coords(of=["all types", "within a type"])
    scale = runs[0].study.bandwidths.shown

    drawn = figures.facets(
        shown, x="setting", hue="scale", row="generator", column="of", error="half", log_y=True,
        names={label: f"x {label:g}" for label in shown.scale.values.tolist()},
        title=lambda generator, of: f"{generator}, {of}", x_label=_knobs(runs).__getitem__,
        y_label="RKE-MC", size=(3.75, 2.4), sharey="row",
    )  # fmt: skip
    middle = shown.value.sel(scale=scale)
    whole, within = (
        " and ".join(_change(curve.sel(of=of)) for curve in middle) for of in shown.of.values
    )
    style.headline(drawn, f"Within a type RKE {within}; over all types it {whole}")
    return figures.caption(drawn, runs, bars="95%", scale=1.0)
