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

from experiments import knobs, lab, recognition
from experiments.drawings import by_temperature
from experiments.lab import figures, style, tables
from experiments.recognition import NEIGHBOURS, OWN, PARTS

DATA = "sketches"
_SAMPLES = 30
_SHOWN = ["Conditional-Vendi", "Conditional-RKE", "Information-Vendi", "Information-RKE"]
PROMPTS, TYPES = GIVEN = ("prompts", "types")
_APART = 20.0  # Bandwidths between the rows of two types: their kernel is zero.


@dataclasses.dataclass(frozen=True)
class SketchTemperature(lab.Study):
    """Does a drawing model's temperature raise its diversity, given the prompt?"""

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
        """All scores and RKE within types as `knobs.compare`, with `recognition.measure`."""
        count, kinds = len(self.temperatures), len(self.types)
        types = np.arange(len(state) // count) * kinds * count // len(state)
        prompts = state.prompts
        if given == TYPES:
            apart = np.eye(kinds, dtype=np.float32) * _APART * (scale.prompts or 1.0)
            prompts = np.tile(apart[types], (count, 1))
        options = {"groups": self.groups, "context": context}
        of = self.temperatures, self.types, scale
        found = knobs.compare(state.outputs, prompts, *of, **options)
        context.say("neighbours")
        ended = state.labels.get("ended", np.zeros(len(state))) == 1
        outputs, prompts, ended = (
            np.stack(np.split(rows, count)) for rows in (state.outputs, prompts, ended)
        )
        return found.merge(recognition.measure(outputs, prompts, ended, types, scale, **options))

    def tables(self, run):
        """Every temperature at every multiple; steps say whether neighbours can be told apart."""
        found = run.found
        rows = ("scale", "given", "score")
        yield tables.table(found, rows=rows, columns="model", error="error", letters="letters")
        rows, error = ("scale", "given", "part"), "of_part_error"
        yield tables.table(found, rows=rows, columns="model", value="of_part", error=error)
        within = tables.means(found.within.sel(given=TYPES), "type")
        names = {"scale": "RKE of a type"}
        yield tables.table(within, rows=("scale",), columns="model", error="error", names=names)
        known = tables.means(found.known.sel(given=TYPES, scale=self.bandwidths.shown), "type")
        yield tables.table(known, rows=("neighbour",), columns="model", error="error")

    @classmethod
    def figures(cls, runs):
        """The curves against the temperature, the types, and drawings, where they are shipped."""
        (run,) = runs
        drawn = {"sketch_temperature": _curves(run), "sketch_temperature_types": _of_types(run)}
        if run.study.shown:
            study = run.study
            drawn["sketch_drawings"] = by_temperature(study.types, study.temperatures)
        return drawn


def rising(within: xr.DataArray) -> int:
    """How many types have more modes at the highest temperature than at the lowest."""
    return int((within.isel(model=-1) > within.isel(model=0)).sum())


def _curves(run: lab.Run) -> Figure:
    """Scores given the prompts above, given the types below, over those of the lowest."""
    numbers = [float(word) for word in run.study.temperatures]
    found = run.found[["value", "error"]].sel(score=_SHOWN).rename(model="temperature")
    found = found.assign_coords(temperature=numbers)
    shown = found / found.value.isel(temperature=0)
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
    whole = found[["value", "error"]].sel(score="Conditional-RKE")
    parts = found[["of_part", "of_part_error"]].rename(of_part="value", of_part_error="error")
    parts = parts / parts.value.isel(model=0)
    own = tables.means(found.known.sel(neighbour=OWN), "type").value
    x = np.array(study.temperatures, float)
    figure, axes = style.panels(4, columns=4, size=(3.0, 2.7))
    of_types, of_neighbours, of_parts, traded = axes
    of_types.plot(x, found.within.transpose("model", "type"), color=style.GREY, linewidth=0.6)
    _line(of_types, x, tables.means(found.within, "type"), style.BLACK, "mean")
    words = f"RKE of each type: {rising(found.within)} of {len(study.types)} rise"
    of_types.set(title=words, ylim=(0, None), ylabel="RKE")
    for neighbour, colour in zip(NEIGHBOURS, style.CYCLE, strict=False):
        known = tables.means(found.known.sel(neighbour=neighbour), "type")
        _line(of_neighbours, x, known, colour, neighbour)
    of_neighbours.axhline(1 / len(study.types), color=style.GREY, linewidth=0.8, linestyle=":")
    words = f"neighbour of the same type: {own[0].item():.0%} to {own[-1].item():.0%}"
    of_neighbours.set(title=words, ylim=(0, 1.05))
    of_neighbours.legend(loc="lower left")
    _line(of_parts, x, whole / whole.value[0], style.score_colour("Conditional-RKE"), "all")
    for part, colour in zip(PARTS, (style.GREEN, style.PINK), strict=True):
        label = f"{part}, {found.kept.sel(part=part).item():,}"
        _line(of_parts, x, parts.sel(part=part), colour, label)
    ratio = parts.value.sel(part=PARTS[0])[-1].item()
    of_parts.set_title(f"Conditional-RKE of {PARTS[0]}: x {ratio:.2g}")
    of_parts.set_ylabel("score / that of the lowest")
    of_parts.margins(y=0.25)  # Room for the legend.
    of_parts.legend(loc="upper left", ncols=2)
    traded.plot(whole.value, own, "-o", color=style.BLUE)
    for word, x_at, y_at in zip(study.temperatures, whole.value.values, own.values, strict=True):
        traded.annotate(word, (x_at, y_at), (4, 4), textcoords="offset points", fontsize=7)
    both = whole.value[-1] > whole.value[0] and own[-1] < own[0]
    words = "more diverse, less like its type" if both else "a point a temperature"
    traded.set(title=words, xlabel="Conditional-RKE given the types")
    traded.set_ylabel("share of the same type")
    for panel in axes[:3]:
        panel.set_xlabel("temperature")
    return _caption(figure, run, "95%, over types or groups of them; dotted: chance")


def _line(panel: Axes, x: np.ndarray, found: xr.Dataset, colour: str, label: str) -> None:
    panel.errorbar(x, found.value, 1.96 * found.error, marker="o", color=colour, label=label)


def _caption(figure: Figure, run: lab.Run, bars: str) -> Figure:
    n = f"{run.study.samples} outputs of each of {len(run.study.types)} types"
    return figures.caption(figure, run, n=n, bars=bars)


if __name__ == "__main__":
    lab.main(SketchTemperature)
