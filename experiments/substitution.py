"""What outputs of other prompts do to scores of relevance: CV figure 12, MID figure 1.

A growing share of the outputs is replaced, (a) by other outputs of the same prompts, (b) by outputs
of other prompts. Information-Vendi and -RKE should stay under (a) and fall under (b); beside them
stand MID and the cosine of prompts with what a linear map makes of the outputs.

    python -m experiments.substitution --data=emoji
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

import condvendi_jax as cv
from experiments import exchanged_outputs, lab
from experiments.exchanged_outputs import OTHER, SAME, SATURATED
from experiments.lab import figures, style, tables

INFORMATION, FITTED = ("Information-Vendi", "Information-RKE"), ("MID", "cosine")
METRICS = (*INFORMATION, *FITTED)
_COLOURS = {"MID": style.SKY, "cosine": style.GREY}
# Of every dimension of a fitted Gaussian or map, so many prompts at least.
_PROMPTS_A_DIMENSION = 4
_FEWEST_PROMPTS = 8


@dataclasses.dataclass(frozen=True)
class Substitution(lab.Study):
    """Which scores fall when outputs are replaced by those of other prompts, and how fast?"""

    name = "substitution"
    reproduces = "CV fig 12; CV-early fig 8; MID fig 1"
    duration = "1 minute"
    takes = ("prompt",)
    runs = ((), ("--data=gallery",))
    drawings = ("substitution",)

    bandwidths: lab.Scales = lab.Scales()
    pairs: int = lab.flag(300, "Pairs that are scored, at most.", at_least=4)
    steps: int = lab.flag(10, "Steps from no output replaced to all of them.", at_least=1)
    dimensions: int = lab.flag(
        32,
        "Leading directions that MID and the map see; at most a quarter of the prompts fitted to.",
        at_least=1,
    )
    repeats: int = lab.flag(5, "Draws of prompts, outputs and replacements.", at_least=2)
    data_name: str = lab.resolved("")
    scored: int = lab.resolved(0)

    def prepare(self, load, seed):
        """Counts the prompts of several outputs, and chooses the bandwidths."""
        pairs = load()
        prompt = pairs.prompt_numbers
        counts = np.bincount(prompt)
        several = np.sort(counts[counts > 1])
        if len(several) < _FEWEST_PROMPTS:
            raise ValueError(
                f"--prompt: expected at least {_FEWEST_PROMPTS} prompts of several outputs each, "
                f"received {len(several)}."
            )
        half = len(several) // 2
        most = (len(several) - half) // _PROMPTS_A_DIMENSION
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "prompt": prompt},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            dimensions=min(self.dimensions, most, pairs.outputs.shape[1], pairs.prompts.shape[1]),
            data_name=pairs.name,
            # As many whichever prompts are drawn.
            scored=min(self.pairs, int(np.sum(several[:half] // 2))),
        )

    def axes(self):
        """Every multiple of the bandwidths in every draw; all have the same draws."""
        return {"scale": self.bandwidths.axis, "repeat": range(self.repeats)}

    def compute(self, state, context, *, scale, repeat):
        """The metrics of one draw against the share that is replaced, by SAME and by OTHER."""
        prompt = state.prompt_numbers
        key = jax.random.fold_in(context.shared_key, repeat)
        generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        drawn = exchanged_outputs.draw_rows(prompt, self.scored, generator)
        fitted = exchanged_outputs.alignment(state, drawn, self.dimensions)
        kernels = {"method": cv.Exact(), **scale.kernels}

        def measure(rows):
            outputs, prompts = state.outputs[rows], state.prompts[drawn.rows]
            found = [cv.decompose(outputs, prompts, order=k, **kernels) for k in (1, 2)]
            return [*(float(of.information) for of in found), *fitted(outputs)]

        shares, values = [step / self.steps for step in range(self.steps + 1)], []
        for share in shares:
            replaced = round(share * self.scored)
            context.say(f"{replaced:,} of {self.scored:,} replaced")
            same = measure(exchanged_outputs.by_partners(drawn, replaced))
            rows = exchanged_outputs.by_others(drawn, prompt, replaced, generator)
            values.append([same, measure(rows) if replaced else same])
        axes = {"share": shares, "replaced": [SAME, OTHER], "metric": list(METRICS)}
        return xr.Dataset({"value": (tuple(axes), values)}, axes)

    def tables(self, run):
        """Each metric at both ends; how much of its range SAME takes, and where it saturates."""
        ends = tables.spreads(run.found.value.sel(share=[0, 1]), "repeat")
        rows = ("scale", "metric", "share")
        yield tables.table(ends, rows=rows, columns="replaced", error="error")
        curves = exchanged_outputs.left(run.found)
        lost = 1 - curves.sel(replaced=SAME, share=1, drop=True)
        reached = exchanged_outputs.saturates(curves.sel(replaced=OTHER, drop=True))
        names = [f"{SAME}, of the range", f"{SATURATED:.0%} changed from"]
        both = xr.concat([lost, reached], "of").assign_coords(of=names)
        both = tables.spreads(both, "repeat")
        yield tables.table(both, rows=("scale", "metric"), columns="of", error="error")

    @classmethod
    def figures(cls, runs):
        """A row a data set: Information-Vendi as in CV fig 12, then all metrics on one scale."""
        columns = 1 + max(run.found.sizes["scale"] for run in runs)
        figure, axes = style.panels(columns * len(runs), columns=columns, size=(2.9, 3.0))
        for place, run in enumerate(runs):
            first, *row = axes[place * columns : (place + 1) * columns]
            _raw(first, run)
            curves = exchanged_outputs.left(run.found)
            for panel, scale in zip(row, curves.scale.values, strict=False):
                _scaled(panel, curves.sel(scale=scale), f"bandwidths x {scale:g}")
            row[0].set_ylabel("share of the range left")
        for panel in axes[-columns:]:
            panel.set_xlabel("share replaced, %")
        style.legend_above(figure, axes[1], columns=6)
        scored = " and ".join(str(run.study.scored) for run in runs)
        repeats = runs[0].study.repeats
        n = f"{scored} pairs, replaced by outputs of {OTHER} or, dashed, of the {SAME}"
        bars = f"one standard deviation of {repeats} draws"
        return {"substitution": figures.caption(figure, runs, n=n, bars=bars)}


def _raw(panel: Axes, run: lab.Run) -> None:
    """Information-Vendi and -RKE of a run themselves."""
    values = run.found.value.sel(scale=run.study.bandwidths.shown, metric=list(INFORMATION))
    _lines(panel, values)
    ends = values.sel(metric=INFORMATION[0], replaced=OTHER).mean("repeat")
    falls = f"falls from {ends.sel(share=0):.3g} to {ends.sel(share=1):.3g}"
    panel.set_title(f"{run.study.data_name}: Information-Vendi\n{falls}")
    panel.set_ylabel("effective number of modes")
    panel.set_ylim(bottom=0)


def _scaled(panel: Axes, curves: xr.DataArray, words: str) -> None:
    """What is left of the range of each metric that moves."""
    _lines(panel, curves.dropna("metric", how="all"))
    panel.axhline(1 - SATURATED, color=style.BLACK, linewidth=0.6, linestyle=":")
    panel.set_ylim(-0.25, 1.6)
    vendi = curves.sel(metric=INFORMATION[0], replaced=OTHER)
    if vendi.notnull().any():
        reached = exchanged_outputs.saturates(vendi).mean()
        words = f"{words}: Information-Vendi\nhas fallen by {SATURATED:.0%} at {reached:.0%}"
    panel.set_title(words)


def _lines(panel: Axes, values: xr.DataArray) -> None:
    """Means and deviations of metrics: whole lines by OTHER, dashed by SAME."""
    x = 100 * values.share
    for metric in values.metric.values.tolist():
        colour = _COLOURS.get(metric) or style.score_colour(metric)
        # MID is wide, so that it is seen where the cosine lies on it.
        width = 3.5 if metric == "MID" else 1.5
        for replaced, dashes, label in ((OTHER, "-", metric), (SAME, "--", None)):
            found = tables.spreads(values.sel(metric=metric, replaced=replaced), "repeat")
            panel.plot(x, found.value, dashes, color=colour, linewidth=width, label=label)
            low, high = found.value - found.error, found.value + found.error
            panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


if __name__ == "__main__":
    lab.main(Substitution)
