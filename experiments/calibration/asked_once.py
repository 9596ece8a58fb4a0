"""What one output to each prompt says of the outputs to one prompt, where all outputs are known."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.inference import asked_once
from experiments import lab
from experiments.calibration import asked_once_methods as methods
from experiments.calibration.asked_once_methods import GRID, OWN, Outputs
from experiments.lab import figures, style, tables

SCALES = (0.5, 1.0, 2.0)  # Of the default rule's bandwidth of single outputs.
STATES = ("known", "at most", "cannot be told")
BREAKING = "emoji"  # The family that breaks the premise.
# What constants must reach on the half that they are chosen on; the last in the worst set, and at
# each bandwidth.
_HELD, _OFF, _LEAST = 0.95, 0.12, 0.9
_ROUNDING = 1e-5
_HEADS = ("bound holds, %", "/".join(STATES) + ", %", "interval holds, %", "estimate off by")
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


class AskedOnce(lab.Study):
    """What can one output to each prompt say of the number of different outputs to one prompt?"""

    control = "The truth is known from the outputs that are left out; sets differ in size."
    grows = ("set",)
    data = None
    tolerance = 0.02  # Rounding may decide on a draw.

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

        By `scale` and `draw`: `told`, a number of STATES, and `value`, `low`, `high`, `at_most`,
        `total`; `papers`, of the first draws; `read_out`, of the first at the rule's bandwidth; and
        what `methods.tried` gives of these, where the premise holds.
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
        told = [[said(outputs, rows, width) for rows in drawn] for width in widths]
        names = {"number": ["told", "value", "low", "high", "at_most", "total"]}
        numbers = xr.DataArray(told, names, ("scale", "draw", "number")).astype(np.float32)
        found = numbers.to_dataset("number")
        found["truth"] = "scale", outputs.similarity(widths)
        found["papers"] = ("scale", "scored"), papers
        found["bandwidth"] = usual
        if not set.startswith(BREAKING):
            context.say("other constants")
            some = drawn[: self.tried]
            read = np.array(methods.read_outs(outputs, some, usual), np.float32)
            found = found.merge(methods.tried(outputs, some, widths))
            found["read_out"] = ("tried", "method"), read
        return found.assign_coords(scale=list(SCALES), method=list(methods.READ_OUTS))

    def costs(self, *, set):
        return [1, 1, 3 * self.draws, 5 * self.tried]

    def tables(self, run):
        """By set and bandwidth; by family; other constants; other read-outs."""
        for rows in by_family(run), by_method(run), by_constants(run), by_family(run, "set"):
            yield tables.grid_of(rows)

    @classmethod
    def figures(cls, runs):
        run, found = runs[-1], judged(runs[-1].found).sel(scale=1.0)
        figure, panels = style.panels(4, size=(4.1, 4.0), sharex=True)
        told = found.known & (found.known.mean("draw") > 0.5)  # In most draws.
        ends = found[["low", "high"]].where(told).median("draw").to_dataarray()
        marks = ends, found.at_most.median("draw"), found.papers.median("scored"), found.true
        for panel, families in zip(panels, _PANELS, strict=True):
            labels: list[str] = []
            for family in families:
                look: Any = {"fontsize": 7.5, "weight": "bold", "va": "center"}
                panel.text(1.02, -len(labels), family.replace("_", " "), **look)
                names = found.isel(set=found.family == family).sortby("true").set.values.tolist()
                for mark, look in zip(marks, _LOOKS.values(), strict=True):
                    places = np.atleast_2d(mark.sel(set=names))
                    heights = -len(labels) - np.arange(1, len(names) + 1)
                    panel.plot(places, np.broadcast_to(heights, places.shape), **look)
                labels += ["", *(name.partition(": ")[2] or "all names" for name in names)]
            panel.set_yticks(-np.arange(len(labels)), labels, fontsize=6.5)
            panel.tick_params(axis="y", length=0)
            style.log_counts(panel, (1, 2, 5, 10))
            panel.set(xlim=(0.95, 15), ylim=(0.2 - len(labels), 0.8))
            panel.grid(axis="y", visible=False)
            shown = found.isel(set=found.family.isin(families))
            panel.set_title(
                f"bound: {shown.over.median().item():.1f} times the truth,\n"
                f"papers' rule: {shown.ratio.median().item():.1f} times"
            )
        for panel in panels[-2:]:
            panel.set_xlabel("different outputs to one prompt")
        lines: list[Any] = [panels[0].plot([], [], **look)[0] for look in _LOOKS.values()]
        figure.legend(lines, list(_LOOKS), loc="outside upper center", ncols=4)
        holds = f"The bound holds in {percent(found.held)}% of draws"
        style.headline(figure, f"{holds} of the {found.sizes['set']} sets")
        both = {"bound": found.over.median("draw"), "papers' rule": found.ratio.median("scored")}
        by = xr.Dataset(both).to_dataarray("by")
        by = by.assign_coords(family=by.family.str.replace("_", " ")).groupby("family")
        of = xr.Dataset({"value": by.median(), "ends": xr.concat([by.min(), by.max()], "end")})
        fine = sets_where(found)
        middle = [f"{of.median().item():.1f}" for of in (fine.over, fine.ratio)]
        of = of.sortby(-of.value.sel(by="papers' rule"))
        first = figures.dots(
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
        found = judged(run.found)
        fine = sets_where(found)
        both = [reached(half) for half in halves(run.found)]
        return {
            "by_family": by_family(run),
            "by_method": by_method(run),
            "fine": fine,
            "broken": sets_where(found, keeps=False),
            "own": [half.sel(OWN) for half in both],
            "squared": [half.sel({**OWN, "line": methods.SQUARED}) for half in both],
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
        width: Any = one.bandwidths["prompts"].bandwidth
        rule = {"prompt_kernel": cv.Gaussian(width)}  # Of prompts, which are those of all draws.
        found.append(one.order(2).population.values.conditional)
    return np.reshape(found, (len(bandwidths), -1)).tolist()


def sets_where(found: xr.Dataset, keeps: bool = True) -> xr.Dataset:
    """The sets that keep the premise, or that break it."""
    return found.isel(set=found.set.str.startswith(BREAKING) != keeps)


def judged(found: xr.Dataset) -> xr.Dataset:
    """What is said of each draw beside the truth.

    `known`: whether an estimate is given; `inside`, whether its interval is right, and `off`, |log|
    of it over the truth, NaN without one; `held`: whether the bound is right; `over` and `ratio`:
    the bound and the papers' rule over the truth. Sets have their `family`.
    """
    true, known = 1 / found.truth, found.told == 0
    inside = (found.low <= true * (1 + _ROUNDING)) & (true <= found.high * (1 + _ROUNDING))
    families = found.set.str.partition("part", ":").isel(part=0)
    return found.assign_coords(family=families).assign(
        true=true,
        known=known,
        held=found.at_most * (1 + _ROUNDING) >= true,
        inside=inside.where(known),
        off=abs(np.log(found.value / true)).where(known),
        over=found.at_most / true,
        ratio=found.papers / true,
    )


def percent(of: xr.DataArray) -> str:
    """A share; '-' without any."""
    return "-" if of.isnull().all() else f"{100 * of.mean().item():.0f}"


def middle(of: xr.DataArray) -> str:
    """The median by three digits; '-' without any."""
    return "-" if of.isnull().all() else f"{float(f'{of.median().item():.3g}'):,.9g}"


def by_family(run: lab.Run, role: str = "family") -> list[list[str]]:
    """By family, or `set`, and bandwidth; in brackets the least of the sets; ratios are medians."""
    found = judged(run.found)
    parts = {k: found.isel(set=found[role] == k) for k in dict.fromkeys(found[role].values)}
    fine = sets_where(found)
    if role == "family" and fine.sizes["set"]:
        parts[f"all but {BREAKING}"] = fine
    rows = [["family", "sets", "scale", "truth", *_HEADS, "bound/truth", "papers/truth"]]
    for (family, part), scale in itertools.product(parts.items(), SCALES):
        of = part.sel(scale=scale)
        told = "/".join(percent(of.told == place) for place in range(len(STATES)))
        off = f"{of.off.median().item():.2f}".replace("nan", "-")
        held = f"{percent(of.held)} ({100 * of.held.mean('draw').min().item():.0f})"
        ends = (f"{end(of.true.values):.3g}" for end in (np.min, np.max))
        true = "-".join(dict.fromkeys(ends))
        ratios = [middle(of[name]) for name in ("over", "ratio")]
        row = [family, str(of.sizes["set"]), f"{scale:g}", true, held, told]
        rows.append([*row, percent(of.inside), off, *ratios])
    return rows


def halves(found: xr.Dataset) -> list[xr.Dataset]:
    """The sets that keep the premise in two halves: alternately of each family, by name."""
    names = pd.Series(sorted(sets_where(found).set.values))
    half = names.groupby(names.str.partition(":")[0]).cumcount() % 2
    return [found.sel(set=list(names[half == number])).load() for number in (0, 1)]


def reached(found: xr.Dataset) -> xr.Dataset:
    """What estimates reach in some sets, by the constants of GRID; NaN without any.

    `given`: the share of draws with an estimate; `holds`: how often its interval does, `least` of
    these in a set at a bandwidth where half of the draws have one, and `lowest` at a bandwidth;
    `off`: the median |log| of the estimate over the truth.
    """
    of, draws = methods.decided(found), ("set", "scale", "tried")
    right = (of.low <= found.truth * (1 + _ROUNDING)) & (found.truth <= of.high * (1 + _ROUNDING))
    off = abs(np.log(np.sqrt((of.low * of.high).where(of.given)) / found.truth))

    def holds(*over: str) -> xr.DataArray:
        return (right & of.given).sum(over) / of.given.sum(over)

    least = holds("tried").where(of.given.mean("tried") >= 0.5).min(("set", "scale")).fillna(1.0)
    numbers = {"given": of.given.mean(draws), "holds": holds(*draws), "off": off.median(draws)}
    return xr.Dataset(numbers | {"least": least, "lowest": holds("set", "tried").min("scale")})


def best_choice(of: xr.Dataset) -> dict[str, Any]:
    """The constants with most estimates that reach what is wanted; else the library's."""
    good = (of.holds >= _HELD) & (of.least >= _LEAST) & (of.off <= _OFF) & (of.lowest >= _LEAST)
    if not good.any():
        return OWN
    places = of.given.where(good).transpose(*GRID).argmax(...)
    return {name: GRID[name][place.item()] for name, place in places.items()}


def by_constants(run: lab.Run) -> list[list[str]]:
    """By half: the library's constants, those chosen, and others that differ in one."""
    both = [reached(half) for half in halves(run.found)]
    choices = [("the library's", OWN), ("chosen", best_choice(both[0]))]
    for name, values in GRID.items():
        others = [value for value in values if value != OWN[name]]
        choices += [("one differs", {**OWN, name: value}) for value in others]
    heads = [f"{of} on: given/holds (worst)/off by" for of in ("chosen", "judged")]
    rows = [["constants", *GRID, *heads]]
    for name, choice in choices:
        cells = [
            f"{100 * x.given:.1f}%/{100 * x.holds:.1f}% ({100 * x.least:.0f}%)/{x.off:.2f}"
            for x in (half.sel(choice) for half in both)
        ]
        words = [v if isinstance(v, str) else f"{v:g}" for v in choice.values()]
        rows.append([name, *words, *(cell.replace("nan% (100%)/nan", "-") for cell in cells)])
    return rows


def by_method(run: lab.Run) -> list[list[str]]:
    """By family, the median |log| of other estimates, with no interval asked; and their bias."""
    found = sets_where(judged(run.found)).sel(scale=1.0)
    own = found.sel({name: OWN[name] for name in ("neighbours", "narrow")})
    chosen = methods.decided(found).sel(OWN)
    ways = {"the library's middle": np.sqrt(chosen.low * chosen.high), "near prompts": own.near}
    ways |= {f"line in the {line}": own.zero.sel(line=line) for line in methods.LINES}
    ways |= {name: found.read_out.sel({"method": name}) for name in methods.READ_OUTS}
    ways["papers' rule"] = 1 / found.papers
    families = [*dict.fromkeys(found.family.values)]
    rows = [["method", *families, "all", "too many in, %"]]
    for name, similar in ways.items():
        logs = np.log(found.truth / similar.clip(1e-6, 1))
        by_family = abs(logs).groupby("family").median(...).sel(family=families)
        cells = [f"{off:.2f}" for off in [*by_family.values, abs(logs).median().item()]]
        rows.append([name, *cells, percent((logs > 0).where(logs.notnull()))])
    return rows
