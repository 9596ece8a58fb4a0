"""What truncating a generator's latents does to the scores: RKE figure 2."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from condvendi_jax.scores import clusters
from experiments import lab
from experiments.data import strokes
from experiments.data.sets import FOLDER, SEED
from experiments.lab import figures, knobs, models, style, tables

STROKES = FOLDER / "drawings" / "sketches.json"
PICTURES = FOLDER / "drawings" / "quickdraw.npz"
_COLUMNS = 3  # Types side by side.
_NAME = 2.2  # Drawings that the name of a type takes the room of.


def by_temperature(types: Sequence[str], temperatures: Sequence[str]) -> Figure:
    """The first drawing by Sketch-RNN of every type at every temperature."""
    drawings = strokes.read(STROKES)
    wide, rows = len(temperatures) + _NAME, -(-len(types) // _COLUMNS)
    figure = Figure(figsize=(0.47 * wide * _COLUMNS, 0.47 * (rows + 2)), layout="constrained")
    panel = figure.subplots()
    for index, kind in enumerate(types):
        column, row = divmod(index, rows)
        left = column * wide + _NAME
        panel.text(left - 0.2, row + 0.5, kind, ha="right", va="center", fontsize=7.5)
        for place, word in enumerate(temperatures):
            if row == 0:
                panel.text(left + place + 0.5, -0.2, word, ha="center", fontsize=7.5)
            for line in drawings[kind, word]:
                x, y = (0.08 + 0.84 * line).T
                panel.plot(left + place + x, row + y, color=style.BLACK, linewidth=0.6)
    panel.set(xlim=(0, _COLUMNS * wide), ylim=(rows, -0.5), aspect="equal")
    panel.set_axis_off()
    style.caption(
        figure,
        f"Drawings by Sketch-RNN (weights: github.com/hardmaru/sema-demo) of {len(types)} classes "
        f"at {len(temperatures)} temperatures: the first of each that was drawn, seed {SEED}.",
    )
    return figure


def by_psi() -> Figure:
    """Drawings by the VAE, a row a psi and a column a drawing: the same latents down a column."""
    with np.load(PICTURES, allow_pickle=False) as stored:
        ink, types, psi = stored["ink"], stored["types"], stored["models"]
    rows, classes, draws, *_ = ink.shape
    figure = Figure(figsize=(0.52 * classes * draws, 0.56 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, classes * draws, squeeze=False)
    for axes, one in zip(grid.flat, ink.reshape(-1, *ink.shape[3:]), strict=True):
        axes.imshow(255 - one, cmap="gray", vmin=0)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for axes, kind in zip(grid[0, ::draws], types, strict=True):
        axes.set_title(str(kind), loc="left", fontsize=7.5)
    for axes, value in zip(grid[:, 0], psi, strict=True):
        axes.set_ylabel(f"psi {value}", rotation=0, ha="right", va="center")
    style.caption(
        figure,
        f"Drawings by a conditional VAE (weights: ml5.js, trained on Quick, Draw!): {draws} of "
        f"each of {classes} classes, seed {SEED}. Down a column stand the same latents, times psi.",
    )
    return figure


_LARGEST = 900  # Pairs at one setting of the knob, by default.
# What the knob of a shipped set is, and whose; of others it is 'knob'.
_KNOBS = {"quickdraw": "psi", "sketches": "temperature"}
_GENERATORS = {"psi": "conditional VAE", "temperature": "Sketch-RNN"}


class LatentTruncation(lab.Study):
    """How do truncated latents, or a generator's temperature, change the scores?"""

    name = "latent_truncation"
    reproduces = "RKE fig 2"
    duration = "1 minute"
    data = "quickdraw"
    needs = ("types", "models")
    runs = ((), ("--data=sketches",))
    drawings = ("latent_truncation", "latent_truncation_scores", "latent_truncation_drawings")
    drawings += ("sketch_drawings",)

    bandwidths: lab.Scales = lab.Scales()
    samples: int | None = lab.flag(
        None,
        "Outputs of each type at each setting; as many as there are everywhere, up to "
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
        found = run.found
        rows = ("scale", "setting")
        yield tables.table(found, rows=rows, columns="score", error="error")
        names = {"value": "RKE within a type"}
        yield tables.table(
            tables.means(found.within, "type"), rows=rows, error="error", names=names
        )
        trends = [knobs.trend(found.within.sel(scale=scale)) for scale in found.scale.values]
        axes = {"scale": found.scale.values, "rank correlation": ["mean", "from", "to"]}
        values = [[mean, *interval] for mean, interval in trends]
        correlations = xr.Dataset({"value": (tuple(axes), values)}, axes)
        yield tables.table(correlations, rows=("scale",), columns="rank correlation", digits=2)

    @classmethod
    def figures(cls, runs):
        drawn = {"latent_truncation": _as_printed(runs), "latent_truncation_scores": _scores(runs)}
        if any(run.study.knob == "psi" for run in runs):
            drawn["latent_truncation_drawings"] = by_psi()
        for run in runs:
            if run.data == "sketches":
                words = [f"{value:g}" for value in run.study.values]
                drawn["sketch_drawings"] = by_temperature(run.study.types, words)
        return drawn


def _knobs(runs: Sequence[lab.Run]) -> dict[str, str]:
    """What the knob of each generator is."""
    return {_GENERATORS.get(run.study.knob, "generator"): run.study.knob for run in runs}


def _gathered(runs: Sequence[lab.Run], parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """What each run gives, by generator, with the half widths of its intervals."""
    names = xr.DataArray(list(_knobs(runs)), dims="generator", name="generator")
    found = xr.concat([part[["value", "error"]] for part in parts], names, join="outer")
    return found.assign(half=1.96 * found.error)


def _change(curve: xr.DataArray) -> str:
    """By how much the last setting differs from the first, in words."""
    curve = curve.dropna("setting")
    ratio = (curve.isel(setting=-1) / curve.isel(setting=0)).item()
    return f"{'rises' if ratio > 1 else 'falls'} by {abs(ratio - 1):.0%}"


def _caption(figure: Figure, runs: Sequence[lab.Run]) -> Figure:
    study = runs[0].study
    bars = f"95%, {study.groups} groups of prompts or types"
    sizes = (run.study.samples * len(run.study.types) for run in runs)
    n = f"{' and '.join(f'{size:,}' for size in sizes)} a setting"
    return figures.caption(figure, runs, n=n, bars=bars)


def _as_printed(runs: Sequence[lab.Run]) -> Figure:
    """A row a generator: RKE-MC of all its outputs against the knob, and within a type."""
    whole = _gathered(runs, [run.found.sel(score="RKE", drop=True) for run in runs])
    within = _gathered(runs, [tables.means(run.found.within, "type") for run in runs])
    of = xr.DataArray(["all types", "within a type"], dims="of", name="of")
    shown = xr.concat([whole, within], of)
    scale = runs[0].study.bandwidths.shown

    def title(generator, of):
        curve = shown.value.sel(generator=generator, of=of, scale=scale)
        return f"{generator}, {of}: RKE {_change(curve)} (bandwidths x {scale:g})"

    drawn = figures.facets(
        shown, x="setting", hue="scale", row="generator", column="of", error="half", log_y=True,
        names={label: f"bandwidths x {label:g}" for label in shown.scale.values.tolist()},
        title=title, x_label=_knobs(runs).__getitem__, y_label="RKE-MC",
        size=(5.4, 2.9), sharey=False,
    )  # fmt: skip
    return _caption(drawn, runs)


def _scores(runs: Sequence[lab.Run]) -> Figure:
    """A row a generator, a column a multiple of the bandwidths."""
    found = _gathered(runs, [run.found for run in runs])

    def title(generator, scale):
        curve = found.value.sel(generator=generator, scale=scale, score="Conditional-Vendi")
        return f"{generator}, bandwidths x {scale:g}:\nConditional-Vendi {_change(curve)}"

    drawn = figures.facets(
        found, x="setting", hue="score", row="generator", column="scale", error="half",
        log_y=True, title=title, x_label=_knobs(runs).__getitem__, sharey=False,
    )  # fmt: skip
    return _caption(drawn, runs)
