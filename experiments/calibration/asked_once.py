"""What one output to each prompt says of the outputs to one prompt, where all outputs are known."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.inference import asked_once
from experiments import lab
from experiments.calibration import asked_once_methods as methods
from experiments.calibration import asked_once_tables as reports
from experiments.calibration.asked_once_methods import Outputs
from experiments.calibration.asked_once_tables import BREAKING, SCALES, STATES
from experiments.lab import dots, figures, style, tables

_PANELS = (  # Families of the figure.
    ("captioning", "human", "post_training"),
    ("answers",),
    ("gallery", "video", "stories", "sketched_animals"),
    ("sketches", "quickdraw", BREAKING),
)
_LOOKS: dict[str, dict[str, Any]] = {
    "interval, where known": {"color": style.SKY, "linewidth": 4, "solid_capstyle": "butt"},
    "at most": {"color": style.BLUE, "marker": "<", "linestyle": "", "markersize": 4},
    "papers' rule": {"color": style.VERMILION, "marker": "x", "linestyle": "", "markersize": 4},
    "truth": {"color": style.BLACK, "marker": "|", "linestyle": "", "markersize": 8},
}
_TABLES = ("by_family", "by_method", "by_constants", "by_set")


class AskedOnce(lab.Study):
    """What can one output to each prompt say of the number of different outputs to one prompt?"""

    name = "asked_once"
    control = "The truth is known from the outputs that are left out; sets differ in size."
    grows = ("set",)
    data = None
    tolerance = 0.02  # Rounding may decide on a draw.
    drawings = ("asked_once", "asked_once_sets")

    families: tuple[str, ...] = lab.flag(
        tuple(methods.FAMILIES), "Shipped sets.", choices=tuple(methods.FAMILIES)
    )
    draws: int = lab.flag(20, "Draws of one output to each prompt.", at_least=2)
    tried: int = lab.flag(10, "Those of them that other constants are tried on.", at_least=1)
    scored: int = lab.flag(3, "Those of them that the papers' rule scores.", at_least=1)
    sets: dict[str, int] = lab.resolved()

    def prepare(self, load, seed):
        state = {k: of for family in self.families for k, of in methods.sets_of(family).items()}
        if not state:
            raise ValueError(f"--families: none of {self.families} has repeated prompts.")
        arrays = {
            f"{name}, {role}": getattr(of, role)
            for name, of in state.items()
            for role in ("outputs", "prompts", "starts")
        }
        return self.ready(
            state=state,
            arrays=arrays,
            description=f"{len(state)} shipped sets with several outputs to each prompt",
            sets={name: len(of.prompts) for name, of in state.items()},
        )

    def axes(self):
        return {"set": tuple(self.sets)}

    def compute(self, state, context, *, set):
        """What is said of each draw; the truth of all outputs, as a similarity.

        Returns:
          By `scale` and `draw`: `told`, a number of STATES, and `value`, `low`, `high`, `at_most`,
          `total`; `papers`, of the first draws; `read_out`, of the first at the rule's bandwidth;
          and what `methods.tried` gives of these, where the premise holds.
        """
        outputs = state[set]
        drawn = outputs.drawn(np.random.default_rng(int(jax.random.bits(context.key))), self.draws)
        context.say("bandwidth")
        first = cv.evaluate(outputs.outputs[drawn[0]], outputs.prompts, orders=[2], errors=False)
        usual: Any = first.bandwidths["outputs"].bandwidth
        widths = [scale * usual for scale in SCALES]
        context.say("papers' rule")
        papers = papers_scores(outputs, drawn[: self.scored], widths)
        context.say("one output")
        told = np.array([[said(outputs, rows, width) for rows in drawn] for width in widths])
        names = ("told", "value", "low", "high", "at_most", "total")
        variables: dict[str, Any] = {
            name: (("scale", "draw"), np.float32(told[..., place]))
            for place, name in enumerate(names)
        }
        variables["truth"] = "scale", outputs.similarity(widths)
        variables["papers"] = ("scale", "scored"), papers
        variables["bandwidth"] = usual
        if not set.startswith(BREAKING):
            context.say("other constants")
            some = drawn[: self.tried]
            read = np.asarray(methods.read_outs(outputs, some, usual), np.float32)
            found: Any = methods.tried(outputs, some, widths).variables
            variables |= found
            variables["read_out"] = ("tried", "method"), read
        return xr.Dataset(variables, {"scale": list(SCALES), "method": list(methods.READ_OUTS)})

    def costs(self, *, set):
        return [1, 1, 3 * self.draws, 5 * self.tried]

    def tables(self, run):
        """By set and bandwidth; by family; other constants; other read-outs."""
        for name in _TABLES:
            yield tables.grid_of(getattr(reports, name)(run))

    @classmethod
    def figures(cls, runs):
        run, found = runs[-1], reports.judged(runs[-1].found).sel(scale=1.0)
        figure, panels = style.panels(4, size=(4.1, 4.0), sharex=True)
        for panel, families in zip(panels, _PANELS, strict=True):
            labels: list[str] = []
            for family in families:
                look: Any = {"fontsize": 7.5, "weight": "bold", "va": "center"}
                panel.text(1.02, -len(labels), family.replace("_", " "), **look)
                labels.append("")
                names = [k for k in found.set.values if reports.family_of(k) == family]
                for name in found.sel(set=names).sortby("true").set.values.tolist():
                    _line(panel, found.sel(set=name), -len(labels))
                    labels.append(name.partition(": ")[2] or "all names")
            panel.set_yticks(-np.arange(len(labels)), labels, fontsize=6.5)
            panel.set_ylim(-len(labels) + 0.2, 0.8)
            panel.tick_params(axis="y", length=0)
            panel.set_xscale("log")
            panel.set_xlim(0.95, 15)
            panel.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
            panel.minorticks_off()
            panel.grid(axis="y", visible=False)
            shown = found.sel(set=[k for k in found.set.values if reports.family_of(k) in families])
            panel.set_title(
                f"bound: {shown.over.median().item():.1f} times the truth,\n"
                f"papers' rule: {shown.ratio.median().item():.1f} times"
            )
        for panel in panels[-2:]:
            panel.set_xlabel("different outputs to one prompt")
        lines: list[Any] = [panels[0].plot([], [], **look)[0] for look in _LOOKS.values()]
        figure.legend(lines, list(_LOOKS), loc="outside upper center", ncols=4)
        holds = f"The bound holds in {reports.percent(found.held)}% of draws"
        style.headline(figure, f"{holds} of the {found.sizes['set']} sets")
        both = {"bound": found.over.median("draw"), "papers' rule": found.ratio.median("scored")}
        by = xr.concat(list(both.values()), xr.IndexVariable("by", [*both]))
        names = [reports.family_of(name).replace("_", " ") for name in found.set.values]
        by = by.assign_coords(family=("set", names)).groupby("family")
        of = xr.Dataset({"value": by.median(), "ends": xr.concat([by.min(), by.max()], "end")})
        fine = reports.sets_where(found)
        middle = [f"{of.median().item():.1f}" for of in (fine.over, fine.ratio)]
        of = of.sortby(-of.value.sel(by="papers' rule"))
        first = dots.facets(
            of.expand_dims("panel"), row="family", hue="by", column="panel",
            x_label="times the true number of different outputs to one prompt",
            headline=f"{holds}, at {middle[0]} times the truth; the papers' rule gives {middle[1]}",
            each=lambda panel, _: panel.axvline(1, color=style.BLACK, linestyle=":"),
        )  # fmt: skip
        words = f"of {run.study.draws} draws, the median; outputs at the default rule's bandwidth"
        first = figures.caption(first, run, n=words, bars="all sets of a family")
        return {"asked_once": first, "asked_once_sets": figures.caption(figure, run, n=words)}

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        found = reports.judged(run.found)
        fine, both = reports.sets_where(found), reports.halves(run.found)
        shown = {name: getattr(reports, name)(run) for name in _TABLES[:2]}
        choices = reports.choices_of(run.found)
        choices["squared"] = {**reports.OWN, "line": methods.SQUARED}
        reached = ([reports.reached(of, c) for of in both] for c in choices.values())
        return {
            **shown,
            "fine": fine,
            "broken": reports.sets_where(found, keeps=False),
            **dict(zip(("own", "chosen", "squared"), reached, strict=True)),
            "labelled": f"{BREAKING}: {methods.LABELLED}",
        }


def said(outputs: Outputs, rows: np.ndarray, bandwidth: float) -> list[float]:
    """What the library says of one output to each prompt: the number of the state, and numbers."""
    groups = None if outputs.groups is None else outputs.groups[rows]
    kernels: Any = {"output_kernel": cv.Gaussian(bandwidth), "prompt_kernel": cv.Gaussian(1.0)}
    pairs = cv.Pairs(outputs.outputs[rows], outputs.prompts, groups=groups, **kernels)
    found = asked_once.of_pairs(pairs)
    numbers = found.value, found.low, found.high, found.at_most, found.total
    return [STATES.index(found.state), *numbers]


def papers_scores(
    outputs: Outputs, drawn: np.ndarray, bandwidths: Sequence[float]
) -> list[list[float]]:
    """Unbiased Conditional-RKE of draws, with prompts' kernel by the papers' rule, by bandwidth."""
    rule: dict[str, Any] = {"rule": "variance", "similar_prompts": True}
    options: dict[str, Any] = {"orders": [2], "errors": False}
    found = []
    for bandwidth, rows in itertools.product(bandwidths, drawn):
        pair = outputs.outputs[rows], outputs.prompts
        one = cv.evaluate(*pair, output_kernel=cv.Gaussian(bandwidth), **rule, **options)
        width: Any = one.bandwidths[
            "prompts"
        ].bandwidth  # Of prompts, which are those of all draws.
        rule = {"prompt_kernel": cv.Gaussian(width)}
        found.append(one.order(2).population.values.conditional)
    return np.reshape(found, (len(bandwidths), -1)).tolist()


def _line(panel: Any, one: xr.Dataset, height: int) -> None:
    """The truth of a set, the bound, the interval where most draws give one, the papers' rule."""
    known = one.told == 0
    ends = [one[name].where(known).median().item() for name in ("low", "high")]
    if known.mean() <= 0.5:
        ends = [np.nan] * 2
    places = ends, one.at_most.median(), one.papers.median(), one.true
    for place, look in zip(places, _LOOKS.values(), strict=True):
        panel.plot(np.atleast_1d(place), np.full(np.size(place), height), **look)
