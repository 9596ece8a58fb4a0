"""What truncating a generator's latents does to the scores: RKE figure 2."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

from condvendi_jax.scores import clusters
from experiments import lab
from experiments.data.sets import FOLDER, SEED
from experiments.generators import pictures
from experiments.lab import figures, knobs, models, style, tables

PICTURES = FOLDER / "drawings" / "quickdraw.npz"
_LARGEST = 900  # Pairs at one setting of the knob, by default.
# What the knob of a shipped set is, and whose; of others it is 'knob'.
_KNOBS = {"quickdraw": "psi", "sketches": "temperature"}
_GENERATORS = {"psi": "conditional VAE", "temperature": "Sketch-RNN"}


class LatentTruncation(lab.Study):
    """How do truncated latents, or a generator's temperature, change the scores?"""

    control = "Every setting has as many outputs of the same classes; one class has fewer."
    grows = ("within",)
    tolerance = 5e-3  # Errors are spreads of scores in float32 without a group.
    data = "quickdraw"
    needs = ("types", "models")
    runs = ((), ("--data=sketches",))

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
        labels = {"setting": settings, "other": settings, "type": kinds}
        return (
            found.rename(model="setting")
            .assign_coords(labels)
            .assign(within=(("type", "setting"), within))
        )

    def tables(self, run):
        """Every score at every setting, and how RKE within a type follows the knob."""
        yield tables.table(_with_types(run.found), error="error", **_TABLE)
        trends = _trends(run.found).to_dataset(name="value")
        yield tables.table(trends, rows=("scale",), columns="rank correlation", digits=2)

    @classmethod
    def figures(cls, runs):
        drawn = {"latent_truncation": _as_printed(runs)}
        if any(run.study.knob == "psi" for run in runs):
            drawn["latent_truncation_drawings"] = _drawings()
        return drawn

    @classmethod
    def facts(cls, runs):
        scores = {run.study.knob: _with_types(run.found).isel(setting=[0, -1]) for run in runs}

        def end(knob, score, setting, scale=1.0):
            return scores[knob].value.sel(score=score, scale=scale).isel(setting=setting)

        known: dict = {"end": end, "trends": {r.study.knob: _trends(r.found) for r in runs}}
        shown = {knob: of.sel(score=_PRINTED) for knob, of in scores.items()}
        return known | {"tables": {knob: tables.table(of, **_TABLE) for knob, of in shown.items()}}


_WITHIN = "RKE-within-type"
_PRINTED = [_WITHIN, "RKE", "Conditional-RKE", "Conditional-Vendi", "Information-Vendi"]
_TABLE: dict = {"rows": ("scale", "setting"), "columns": "score", "digits": 3}


def _with_types(found: xr.Dataset) -> xr.Dataset:
    """All scores with their errors, and the mean RKE within a type as one more."""
    within = tables.means(found.within, "type").expand_dims(score=[_WITHIN])
    return xr.concat([found[["value", "error"]], within], "score")


def _trends(found: xr.Dataset) -> xr.DataArray:
    """The rank correlation of RKE within a type with the knob at every bandwidth: mean, ends."""
    trends = [knobs.trend(found.within.sel(scale=scale)) for scale in found.scale.values]
    axes = {"scale": found.scale.values, "rank correlation": ["mean", "from", "to"]}
    return xr.DataArray([[mean, *interval] for mean, interval in trends], axes)


def _drawings() -> Figure:
    """Drawings by the VAE, a row a psi and a column a class: the same latents down a column."""
    with np.load(PICTURES, allow_pickle=False) as stored:
        ink, types, psi = stored["ink"], stored["types"], stored["models"]
    _, classes, draws, *side = ink.shape
    size = 0.5 * draws, 0.56
    figure, panels = pictures.strips((255 - ink).reshape(-1, draws, *side), classes, size)
    for panel, name in zip(panels, types, strict=False):
        panel.set_title(name, loc="left", fontsize=7.5)
    for panel, value in zip(panels[::classes], psi, strict=True):
        panel.set_ylabel(f"psi {value}", rotation=0, ha="right", va="center")
    style.headline(figure, "At psi = 0 all drawings of a class are one; they part as psi grows")
    words = f"{draws} of each of {classes} classes, seed {SEED}; the same latents down a column"
    whose = "Conditional VAE (weights: ml5.js, trained on Quick, Draw!)"
    return style.caption(figure, f"{whose}: {words}.")


def _as_printed(runs: Sequence[lab.Run]) -> Figure:
    """A row a generator: RKE-MC of all its outputs against the knob, and within a type."""
    parts = [_with_types(run.found).sel(score=["RKE", _WITHIN]) for run in runs]
    whose = {_GENERATORS.get(run.study.knob, "generator"): run.study.knob for run in runs}
    names = xr.DataArray([*whose], dims="generator", name="generator")
    shown = xr.concat(parts, names, join="outer").rename(score="of")
    half = stats.t.ppf(0.975, runs[0].study.groups - 1) * shown.error
    shown = shown.assign(half=half).assign_coords(of=["all types", "within a type"])
    drawn = figures.facets(
        shown, x="setting", hue="scale", row="generator", column="of", error="half", log_y=True,
        names={label: f"x {label:g}" for label in shown.scale.values.tolist()},
        title=lambda generator, of: f"{generator}, {of}", x_label=whose.__getitem__,
        y_label="RKE-MC", size=(3.75, 2.4), sharey="row",
    )  # fmt: skip

    def change(curve: xr.DataArray) -> str:
        first, last = curve.dropna("setting").isel(setting=[0, -1]).values
        return f"{'rises' if last > first else 'falls'} by {abs(last / first - 1):.0%}"

    middle = shown.value.sel(scale=runs[0].study.bandwidths.shown)
    whole, within = (" and ".join(map(change, middle.sel(of=of))) for of in shown.of.values)
    style.headline(drawn, f"Within a type RKE {within}; over all types it {whole}")
    return figures.caption(drawn, runs, bars="95%", scale=1.0)
