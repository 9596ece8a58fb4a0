"""What does a generator's temperature do, given the prompt? Drawings by Sketch-RNN.

The papers leave out a knob whose effect on a generator is known. Here outputs of the same prompts
were made at several temperatures. What the generator adds to the prompt, Conditional-*, should rise
with the temperature, and what the outputs tell of the prompt, Information-*, should not: given the
prompts as they are embedded, in many wordings, and given the types that they name, exactly.

Whether a rise is more than noise is asked of the types: how often the nearest neighbour of an
output is of its own type, and how diverse the outputs are for which it is. Where it is known which
outputs the generator ended by itself, the same is asked of those.

    python -m experiments.sketch_temperature --samples=50
"""

from __future__ import annotations

import dataclasses

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from condvendi_jax.scores import clusters
from experiments import knobs, lab, recognition
from experiments.data import strokes
from experiments.data.sets import FOLDER, SEED
from experiments.lab import figures, models, style, tables

DATA = "sketches"
_SAMPLES = 30
_SHOWN = ["Conditional-Vendi", "Conditional-RKE", "Information-Vendi", "Information-RKE"]
PROMPTS, TYPES = GIVEN = ("prompts", "types")
WHOLE, *PARTS = ALL_PARTS = ("all", "recognised", "ended")
OWN, LOWEST = NEIGHBOURS = ("at its own temperature", "at the lowest one")
_NAME = 2.2  # Drawings that the name of a type takes the room of.
_APART = 20.0  # Bandwidths between the rows of two types: their kernel is zero.


@dataclasses.dataclass(frozen=True)
class SketchTemperature(lab.Study):
    """What does a generator's temperature do to the scores, given the prompt?"""

    name = "sketch_temperature"
    duration = "1 minute"
    data = DATA
    needs = ("types", "models")
    takes = ("ended",)
    runs = ((),)
    drawings = ("sketch_temperature", "sketch_temperature_types", "sketch_drawings")

    bandwidths: lab.Scales = lab.Scales()
    samples: int | None = lab.flag(
        None,
        "Outputs of each type at each temperature; as many as there are everywhere, up to "
        f"{_SAMPLES}, if unset.",
        at_least=2,
    )
    groups: int = lab.flag(8, "Groups of prompts of the jackknife.", at_least=2)
    temperatures: tuple[str, ...] = lab.resolved(())
    types: tuple[str, ...] = lab.resolved(())
    # Whether drawings of these data are shipped.
    shown: bool = lab.resolved(False)

    def prepare(self, load, seed):
        """Reads temperatures and types, and takes as many outputs of each."""
        pairs = load()
        ended = pairs.labels.get("ended")
        if ended is not None and not np.isin(ended, (0, 1)).all():
            raise ValueError(f"--ended: expected 0 or 1 for each output, received {ended.dtype}.")
        chosen, samples, types = knobs.take(pairs, self.samples, _SAMPLES)
        if len(types) < 2:
            raise ValueError(f"--types: expected at least two types, received {', '.join(types)}.")
        roles = ("outputs", "prompts", "types", "models", "ended")
        return self.ready(
            pairs,
            state=chosen,
            arrays={role: chosen.arrays[role] for role in roles if role in chosen.arrays},
            bandwidths=self.bandwidths.resolve(chosen, seed),
            samples=samples,
            temperatures=tuple(f"{value:g}" for value in np.unique(knobs.settings(pairs))),
            types=tuple(types),
            shown=pairs.name == DATA and "prompt" in pairs.labels,
        )

    def axes(self):
        """Given prompts and types, at every multiple of the bandwidths."""
        return {"given": GIVEN, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, given, scale):
        """All scores as `models.compare`, the temperatures as models, and what a control says.

        Returns:
          Beside them, with the axes `type` and `model`: `within`, the RKE of the outputs of each
          type; with `neighbour`, `known`: the share of the outputs whose nearest neighbour at their
          own temperature, or at the lowest, is of their type. With `part` (recognised, ended):
          `kept`, how many a temperature, of each type as many as are at every temperature, and
          `of_part` with `of_part_error`, the Conditional-RKE of those, NaN where they are too few.
        """
        seed = context.shared_seed
        count, each = len(self.temperatures), (len(self.types), self.samples or 0)
        types, n = np.repeat(np.arange(each[0]), each[1]), each[0] * each[1]
        outputs, prompts = (
            points.reshape(count, n, -1) for points in (state.outputs, state.prompts)
        )
        if given == TYPES:
            apart = np.eye(each[0], dtype=np.float32) * _APART * (scale.prompts or 1.0)
            prompts = np.broadcast_to(apart[types], (count, n, each[0]))
        found = models.compare(
            dict(zip(self.temperatures, outputs, strict=True)),
            dict(zip(self.temperatures, prompts, strict=True)),
            scale,
            groups=self.groups,
            seed=seed,
            say=context.say,
        )
        context.say("types and neighbours")
        numbers = np.repeat(np.arange(count * each[0]), each[1])
        kernel = scale.kernels["output_kernel"]
        within = clusters.scores_by_cluster(state.outputs, numbers, kernel=kernel, order=2)
        known = np.stack([recognition.recognised(own, types) for own in outputs])
        later = (recognition.recognised(own, types, outputs[0]) for own in outputs[1:])
        alike = np.stack([known[0], *later])
        ended = state.labels.get("ended", np.zeros(len(state))).reshape(count, -1) == 1
        kept = [recognition.balanced(part, types) for part in (known, ended)]
        of_parts = np.array(
            [
                [
                    recognition.conditional(
                        outputs[at, own],
                        prompts[at, own],
                        scale.kernels,
                        self.groups,
                        context.shared_seed,
                    )
                    for at, own in enumerate(rows)
                ]
                for rows in kept
            ]
        )
        shares = [part.reshape(count, *each).mean(axis=-1).T for part in (known, alike)]
        return self.labelled(
            found,
            within=np.asarray(within.scores, float).reshape(count, -1).T,
            known=shares,
            kept=[len(rows[0]) for rows in kept],
            of_part=of_parts[..., 0],
            of_part_error=of_parts[..., 1],
        )

    def labelled(self, found, *, within, known, kept, of_part, of_part_error) -> xr.Dataset:
        """The scores of the temperatures with what is known of types and parts, by their axes."""
        labels = {"type": list(self.types), "neighbour": list(NEIGHBOURS), "part": list(PARTS)}
        return found.assign_coords(labels).assign(
            within=(("type", "model"), within),
            known=(("neighbour", "type", "model"), known),
            kept=("part", kept),
            of_part=(("part", "model"), of_part),
            of_part_error=(("part", "model"), of_part_error),
        )

    def tables(self, run):
        """Every temperature at every multiple; steps say whether neighbours can be told apart."""
        found = run.found
        rows = ("scale", "given", "score")
        yield tables.table(found, rows=rows, columns="model", error="error", letters="letters")
        rows = ("scale", "given", "part")
        yield tables.table(
            found, rows=rows, columns="model", value="of_part", error="of_part_error"
        )
        within = tables.means(found.within.sel(given=TYPES), "type")
        yield tables.table(
            within,
            rows=("scale",),
            columns="model",
            error="error",
            names={"scale": "RKE of a type"},
        )
        known = tables.means(found.known.sel(given=TYPES, scale=self.bandwidths.shown), "type")
        yield tables.table(known, rows=("neighbour",), columns="model", error="error")

    @classmethod
    def figures(cls, runs):
        """The curves against the temperature, the types, and drawings, where they are shipped."""
        (run,) = runs
        drawn = {"sketch_temperature": _curves(run), "sketch_temperature_types": _of_types(run)}
        if run.study.shown:
            drawn["sketch_drawings"] = _drawings(run.study)
        return drawn


def rising(within: xr.DataArray) -> int:
    """How many types have more modes at the highest temperature than at the lowest."""
    return int((within.isel(model=-1) > within.isel(model=0)).sum())


def by_temperature(found: xr.Dataset) -> xr.Dataset:
    """With temperatures as numbers in the place of the names of models."""
    numbers = found.model.values.astype(float)
    found = found.drop_dims("other", errors="ignore")
    return found.rename(model="temperature").assign_coords(temperature=numbers)


def _curves(run: lab.Run) -> Figure:
    """Scores given the prompts above, given the types below, over those of the lowest."""
    found = by_temperature(run.found[["value", "error"]].sel(score=_SHOWN))
    lowest = found.value.isel(temperature=0)
    shown = found / lowest
    shown = shown.assign(error=1.96 * shown.error, score_itself=found.value)
    scale = run.study.bandwidths.shown

    def title(given, score):
        change = shown.value.sel(given=given, score=score, scale=scale)[-1].item() - 1
        words = f"{'rises' if change > 0 else 'falls'} by {abs(change):.0%}"
        return f"given the {given} (x {scale:g}):\n{score} {words}"

    drawn = figures.facets(
        shown, x="temperature", hue="scale", row="given", column="score", error="error",
        names={label: f"bandwidths x {label:g}" for label in found.scale.values.tolist()},
        title=title, y_label="score / that of the lowest", size=(2.9, 2.5), sharey=False,
        each=_last_scores,
    )  # fmt: skip
    bars = f"95%, over {run.study.groups} groups of prompts or types; numbers: the last scores"
    return _caption(drawn, run, bars)


def _last_scores(panel: Axes, part: xr.Dataset) -> None:
    """Writes the score at the highest temperature behind each curve."""
    last = part.isel(temperature=-1)
    ends = zip(last.value.values, last.score_itself.values, style.CYCLE, strict=False)
    for height, score, colour in ends:
        place = {"textcoords": "offset points", "va": "center", "fontsize": 6.5, "color": colour}
        panel.annotate(f"{score:.3g}", (last.temperature.item(), height), (5, 0), **place)
    panel.margins(x=0.12)


def _of_types(run: lab.Run) -> Figure:
    """Each type, what its outputs are taken for, and what is left of the rise in parts."""
    study = run.study
    found = run.found.sel(given=TYPES, scale=study.bandwidths.shown)
    x = np.array(study.temperatures, float)
    figure, axes = style.panels(4, columns=4, size=(3.0, 2.7))
    axes[0].plot(x, found.within.transpose("model", "type"), color=style.GREY, linewidth=0.6)
    _line(axes[0], x, tables.means(found.within, "type"), style.BLACK, "mean")
    words = f"RKE of each type: {rising(found.within)} of {len(study.types)} rise"
    axes[0].set(title=words, ylim=(0, None), ylabel="RKE")
    for neighbour, colour in zip(NEIGHBOURS, style.CYCLE, strict=False):
        known = tables.means(found.known.sel(neighbour=neighbour), "type")
        _line(axes[1], x, known, colour, neighbour)
    low, high = tables.means(found.known.sel(neighbour=OWN), "type").value.values[[0, -1]]
    axes[1].axhline(1 / len(study.types), color=style.GREY, linewidth=0.8, linestyle=":")
    axes[1].set(title=f"neighbour of the same type: {low:.0%} to {high:.0%}", ylim=(0, 1.05))
    axes[1].legend(loc="lower left")
    whole = found.sel(score="Conditional-RKE")
    of_parts = {WHOLE: whole[["value", "error"]]}
    for part in PARTS:
        one = found.sel(part=part)
        of_parts[part] = xr.Dataset({"value": one.of_part, "error": one.of_part_error})
    colours = (style.score_colour("Conditional-RKE"), style.GREEN, style.PINK)
    for (part, one), colour in zip(of_parts.items(), colours, strict=True):
        number = "" if part == WHOLE else f", {int(found.kept.sel(part=part)):,}"
        _line(axes[2], x, one / one.value[0], colour, f"{part}{number}")
    last = of_parts[PARTS[0]].value
    axes[2].set(ylabel="score / that of the lowest")
    axes[2].set_title(f"Conditional-RKE of recognised: x {(last[-1] / last[0]).item():.2g}")
    axes[2].margins(y=0.25)  # Room for the legend.
    axes[2].legend(loc="upper left", ncols=2)
    known = tables.means(found.known.sel(neighbour=OWN), "type").value
    axes[3].plot(whole.value, known, "-o", color=style.BLUE)
    for word, x_at, y_at in zip(study.temperatures, whole.value.values, known.values, strict=True):
        axes[3].annotate(word, (x_at, y_at), (4, 4), textcoords="offset points", fontsize=7)
    traded = whole.value[-1] > whole.value[0] and known[-1] < known[0]
    words = "more diverse, less like its type" if traded else "a point a temperature"
    axes[3].set(title=words, xlabel="Conditional-RKE given the types")
    axes[3].set_ylabel("share of the same type")
    for panel in axes[:3]:
        panel.set_xlabel("temperature")
    return _caption(figure, run, "95%, over types or groups of them; dotted: chance")


def _line(panel: Axes, x: np.ndarray, found: xr.Dataset, colour: str, label: str) -> None:
    panel.errorbar(x, found.value, 1.96 * found.error, marker="o", color=colour, label=label)


def _caption(figure: Figure, run: lab.Run, bars: str) -> Figure:
    n = f"{run.study.samples} outputs of each of {len(run.study.types)} types"
    return figures.caption(figure, run, n=n, bars=bars)


def _drawings(study: SketchTemperature) -> Figure:
    """The first drawing of every type at every temperature."""
    drawings = strokes.read(FOLDER / "drawings" / f"{DATA}.json")
    columns = 3
    rows = -(-len(study.types) // columns)
    wide = len(study.temperatures) + _NAME
    figure = Figure(figsize=(0.47 * wide * columns, 0.47 * (rows + 2)), layout="constrained")
    panel = figure.subplots()
    for index, kind in enumerate(study.types):
        column, row = divmod(index, rows)
        panel.text(
            column * wide + _NAME - 0.2, row + 0.5, kind, ha="right", va="center", fontsize=7.5
        )
        for place, word in enumerate(study.temperatures):
            left = column * wide + _NAME + place
            if row == 0:
                panel.text(left + 0.5, -0.2, word, ha="center", fontsize=7.5)
            for line in drawings[kind, word]:
                x, y = (0.08 + 0.84 * line).T
                panel.plot(left + x, row + y, color=style.BLACK, linewidth=0.6)
    panel.set(xlim=(0, columns * wide), ylim=(rows, -0.5), aspect="equal")
    panel.set_axis_off()
    style.caption(
        figure,
        "One drawing by Sketch-RNN (weights: github.com/hardmaru/sema-demo) of every class at "
        f"every temperature, the first that was drawn (seed {SEED}). "
        f"{study.description.rstrip('.')}.",
    )
    return figure


if __name__ == "__main__":
    lab.main(SketchTemperature)
