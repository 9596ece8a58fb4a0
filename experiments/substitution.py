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
    """Which scores notice that outputs belong to other prompts, and from which share on?"""

    name = "substitution"
    reproduces = "CV fig 12; CV-early fig 8; MID fig 1"
    duration = "1 minute"
    takes = ("prompt",)
    runs = ((), ("--data=gallery",))
    drawings = ("substitution",)

    bandwidths: lab.Scales = lab.Scales()
    pairs: int = lab.flag(300, "Pairs that are scored, at most.", at_least=4)
    shares: tuple[float, ...] = lab.flag(
        tuple(k / 10 for k in range(11)), "Shares of the outputs that are replaced, from 0 to 1."
    )
    dimensions: int = lab.flag(
        32,
        "Leading directions of outputs and of prompts that MID and the linear map see; at most a "
        "quarter of the prompts that they are fitted to.",
        at_least=1,
    )
    repeats: int = lab.flag(5, "Draws of prompts, outputs and replacements.", at_least=2)
    data_name: str = lab.resolved("")
    prompts: int = lab.resolved(0)
    scored: int = lab.resolved(0)

    def prepare(self, load, seed):
        """Counts the prompts of several outputs, and chooses the bandwidths."""
        shares = tuple(sorted(set(self.shares)))
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise ValueError(
                f"--shares: expected numbers from 0 to 1, both among them, received {self.shares}."
            )
        pairs = load()
        prompt = pairs.prompt_numbers
        several = np.sort((count := np.bincount(prompt))[count > 1])
        if len(several) < _FEWEST_PROMPTS:
            raise ValueError(
                f"--prompt: expected at least {_FEWEST_PROMPTS} prompts of several outputs each, "
                f"received {len(several)}."
            )
        half = len(several) // 2
        most = max(1, (len(several) - half) // _PROMPTS_A_DIMENSION)
        widths = (pairs.outputs.shape[1], pairs.prompts.shape[1])
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "prompt": prompt},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            shares=shares,
            dimensions=min(self.dimensions, most, *widths),
            data_name=pairs.name,
            prompts=len(several),
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

        def measure(rows):
            outputs, prompts = state.outputs[rows], state.prompts[drawn.rows]
            informed = exchanged_outputs.information(prompts, scale.kernels, outputs)
            return [*informed, *fitted(outputs)]

        values = []
        for share in self.shares:
            replaced = round(share * self.scored)
            context.say(f"{replaced:,} of {self.scored:,} replaced")
            same = measure(exchanged_outputs.by_partners(drawn, replaced))
            rows = exchanged_outputs.by_others(drawn, prompt, replaced, generator)
            values.append([same, measure(rows) if replaced else same])
        axes = {"share": list(self.shares), "replaced": [SAME, OTHER], "metric": list(METRICS)}
        return xr.Dataset({"value": (tuple(axes), values)}, axes)

    def tables(self, run):
        """Each metric at both ends; how much of its range SAME takes, and where it saturates."""
        found = run.found
        rows, none = ("scale", "metric"), found.value.sel(share=0, replaced=OTHER, drop=True)
        full = [found.value.sel(share=1, replaced=r, drop=True) for r in (SAME, OTHER)]
        ends = xr.concat([none, *full], "at")
        ends = ends.assign_coords(at=["none replaced", f"all, {SAME}", f"all, {OTHER}"])
        yield tables.table(over_draws(ends), rows=rows, columns="at", error="error")
        curves = exchanged_outputs.scaled(found).where(exchanged_outputs.moves(found))
        lost = 1 - curves.sel(replaced=SAME, share=1, drop=True)
        both = xr.concat(
            [lost, exchanged_outputs.saturates(curves.sel(replaced=OTHER, drop=True))], "of"
        )
        both = both.assign_coords(of=[f"{SAME}, of the range", f"{SATURATED:.0%} changed from"])
        yield tables.table(over_draws(both), rows=rows, columns="of", error="error")

    @classmethod
    def figures(cls, runs):
        """A row a data set: Information-Vendi as in CV fig 12, then all metrics on one scale."""
        runs = sorted(runs, key=lambda run: run.study.data_name != cls.data)
        columns = 1 + max(len(run.study.bandwidths.axis) for run in runs)
        figure, axes = style.panels(columns * len(runs), columns=columns, size=(2.9, 3.0))
        for place, run in enumerate(runs):
            first, *row = axes[place * columns : (place + 1) * columns]
            study, found = run.study, run.found
            _raw(first, found.sel(scale=study.bandwidths.shown), study.data_name)
            for panel, scale in zip(row, found.scale.values, strict=False):
                _scaled(panel, found.sel(scale=scale), f"bandwidths x {scale:g}")
            row[0].set_ylabel("share of the range left")
            for panel in row[found.sizes["scale"] :]:
                panel.remove()
        for panel in axes[-columns:]:
            panel.set_xlabel("share replaced, %")
        style.legend_above(figure, axes[1], columns=6)
        scored = " and ".join(str(run.study.scored) for run in runs)
        repeats = runs[0].study.repeats
        n = f"{scored} pairs, replaced by outputs of {OTHER} or, dashed, of the {SAME}"
        bars = f"one standard deviation of {repeats} draws"
        return {"substitution": figures.caption(figure, runs, n=n, bars=bars)}


def over_draws(values: xr.DataArray) -> xr.Dataset:
    """Means over the draws, and their standard deviations."""
    return xr.Dataset({"value": values.mean("repeat"), "error": values.std("repeat", ddof=1)})


def _raw(panel: Axes, found: xr.Dataset, name: str) -> None:
    for metric in INFORMATION:
        _lines(panel, found.value.sel(metric=metric), metric)
    left = over_draws(found.value).value.sel(metric=INFORMATION[0], replaced=OTHER)
    low, high = left.sel(share=1).item(), left.sel(share=0).item()
    panel.set_ylabel("effective number of modes")
    panel.set_title(f"{name}: Information-Vendi\nfalls from {high:.3g} to {low:.3g}")
    panel.set_ylim(bottom=0)


def _scaled(panel: Axes, found: xr.Dataset, words: str) -> None:
    shown = exchanged_outputs.scaled(found)
    for metric in METRICS:
        if exchanged_outputs.moves(found).sel(metric=metric):
            _lines(panel, shown.sel(metric=metric), metric)
    panel.axhline(1 - SATURATED, color=style.BLACK, linewidth=0.6, linestyle=":")
    panel.set_ylim(-0.25, 1.6)
    if exchanged_outputs.moves(found).sel(metric=INFORMATION[0]):
        reached = (
            exchanged_outputs.saturates(shown.sel(metric=INFORMATION[0], replaced=OTHER))
            .mean()
            .item()
        )
        words = f"{words}: Information-Vendi\nhas fallen by {SATURATED:.0%} at {reached:.0%}"
    panel.set_title(words)


def _lines(panel: Axes, values: xr.DataArray, metric: str) -> None:
    """Means and deviations of one metric: whole lines by OTHER, dashed by SAME."""
    colour = _COLOURS.get(metric) or style.score_colour(metric)
    # MID is wide, so that it is seen where the cosine lies on it.
    width = 3.5 if metric == "MID" else 1.5
    for replaced, dashes, label in ((OTHER, "-", metric), (SAME, "--", None)):
        found, x = over_draws(values.sel(replaced=replaced)), 100 * values.share
        panel.plot(x, found.value, dashes, color=colour, linewidth=width, label=label)
        low, high = found.value - found.error, found.value + found.error
        panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


if __name__ == "__main__":
    lab.main(Substitution)
