"""What the study of prompts that were asked once reports: by set, by family, by constants."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from condvendi_jax.statistics import asked_once as library
from experiments import lab
from experiments.calibration import asked_once_methods as methods

SCALES = (0.5, 1.0, 2.0)  # Of the default rule's bandwidth of single outputs.
STATES = ("known", "at most", "cannot be told")
BREAKING = "emoji"  # The family that breaks the premise.
# The library's constants, and those that are tried.
OWN = {
    "neighbours": library.NEIGHBOURS,
    "narrow": library.NARROW,
    "line": methods.DISTANCE,
    "errors": library.ERRORS,
    "widest": library.WIDEST,
    "seen": 0.0,
}
GRID: Mapping[str, Sequence[Any]] = {
    "neighbours": methods.NEIGHBOURS,
    "narrow": methods.NARROW,
    "line": methods.LINES,
    "errors": (1.0, 2.0, 3.0),
    "widest": (1.5, 2.0, 3.0),
    "seen": (0.0, 0.25, 0.4),
}
_HALVES = ("chosen on", "judged on")
# What constants must reach on the half that they are chosen on; the last in the worst set, and at
# each bandwidth.
_HELD, _OFF, _LEAST = 0.95, 0.12, 0.9
CHOSEN = "chosen"
_ROUNDING = 1e-5
_HEADS = ("bound holds, %", "/".join(STATES) + ", %", "interval holds, %", "estimate off by")


def family_of(name: str) -> str:
    """The family of a set."""
    return name.partition(":")[0]


def sets_where(found: xr.Dataset, keeps: bool = True) -> xr.Dataset:
    """The sets that keep the premise, or that break it."""
    return found.sel(set=[k for k in found.set.values if (family_of(k) != BREAKING) == keeps])


def judged(found: xr.Dataset) -> xr.Dataset:
    """What is said of each draw beside the truth.

    `held`: whether the bound is right; `inside`, whether the interval is, and `off`, |log| of the
    estimate over the truth, NaN without one; `over` and `ratio`: the bound and the papers' rule
    over the truth; `said_0` and so on: whether that state is said.
    """
    true, known = 1 / found.truth, found.told == 0
    inside = (found.low <= true * (1 + _ROUNDING)) & (true <= found.high * (1 + _ROUNDING))
    said = {f"said_{place}": found.told == place for place in range(len(STATES))}
    return found.assign(
        **said,
        true=true,
        held=found.at_most * (1 + _ROUNDING) >= true,
        inside=inside.where(known),
        off=abs(np.log(found.value / true)).where(known),
        over=found.at_most / true,
        ratio=found.papers / true,
    )


def percent(of: xr.DataArray) -> str:
    """A share; '-' without any."""
    return "-" if of.isnull().all() else f"{100 * of.mean().item():.0f}"


def middle(of: xr.DataArray, digits: int = 3) -> str:
    """The median, by significant digits; '-' without any."""
    return "-" if of.isnull().all() else f"{float(f'{of.median().item():.{digits}g}'):,.9g}"


def _cells(found: xr.Dataset) -> list[str]:
    said = "/".join(percent(found[f"said_{place}"]) for place in range(len(STATES)))
    return [
        percent(found.held),
        said,
        percent(found.inside),
        f"{found.off.median().item():.2f}".replace("nan", "-"),
    ]


def by_set(run: lab.Run) -> list[list[str]]:
    """By set and bandwidth; the bound and the papers' rule are medians over draws."""
    found = judged(run.found)
    rows = [["set", "prompts", "scale", "truth", "at most", *_HEADS, "papers' rule"]]
    for name, scale in itertools.product(run.found.set.values.tolist(), SCALES):
        one = found.sel(set=name, scale=scale)
        start = [name, f"{run.study.sets[name]:,}", f"{scale:g}", f"{one.true.item():.3g}"]
        rows.append([*start, middle(one.at_most), *_cells(one), middle(one.papers)])
    return rows


def by_family(run: lab.Run) -> list[list[str]]:
    """By family and bandwidth; in brackets the least of the sets; ratios are medians."""
    found = judged(run.found)
    groups = {}
    for name in found.set.values.tolist():
        groups.setdefault(family_of(name), []).append(name)
    groups[f"all but {BREAKING}"] = sets_where(found).set.values.tolist()
    heads = ("family", "sets", "scale", "truth", *_HEADS, "bound/truth", "papers/truth")
    rows = [[*heads]]
    for (family, names), scale in itertools.product(groups.items(), SCALES):
        of = found.sel(set=names, scale=scale)
        if names:
            held, *others = _cells(of)
            held += f" ({100 * of.held.mean('draw').min().item():.0f})"
            true = f"{of.true.min().item():.3g} to {of.true.max().item():.3g}"
            ratios = [middle(of[name]) for name in ("over", "ratio")]
            rows.append([family, f"{len(names)}", f"{scale:g}", true, held, *others, *ratios])
    return rows


def halves(found: xr.Dataset) -> list[xr.Dataset]:
    """The sets that keep the premise in two halves: alternately of each family, by name."""
    names = sorted(sets_where(found).set.values.tolist())
    by = itertools.groupby(names, family_of)
    parts = [list(of) for _, of in by]
    return [found.sel(set=[k for of in parts for k in of[half::2]]).load() for half in (0, 1)]


class Reached(NamedTuple):
    """What estimates by some constants reach; NaN without any.

    Attributes:
      given: the share of draws with an estimate.
      holds: how often its interval does.
      least: that of the worst set and bandwidth where half of the draws or more have one.
      off: the median |log| of the estimate over the truth.
    """

    given: float
    holds: float = math.nan
    least: float = math.nan
    off: float = math.nan


def reached(found: xr.Dataset, choice: Mapping[str, Any]) -> Reached:
    """What constants reach in some sets."""
    low, high, given = methods.decided(found, choice)
    if not given.any():
        return Reached(0.0)
    truth = np.broadcast_to(found.truth.values[..., None], given.shape)
    inside = (low <= truth * (1 + _ROUNDING)) & (truth <= high * (1 + _ROUNDING)) & given
    most = given.mean(axis=-1) >= 0.5
    least = np.min(inside.sum(axis=-1)[most] / given.sum(axis=-1)[most], initial=1.0)
    off = np.abs(np.log(np.sqrt(low[given] * high[given]) / truth[given]))
    numbers = given.mean(), inside.sum() / given.sum(), least, np.median(off)
    return Reached(*map(float, numbers))


def best_choice(half: xr.Dataset) -> dict[str, Any]:
    """The constants with most estimates that reach what is wanted; else the library's."""
    best, most = dict(OWN), -1.0
    for values in itertools.product(*GRID.values()):
        choice = dict(zip(GRID, values, strict=True))
        found = reached(half, choice)
        if not (found.holds >= _HELD and found.least >= _LEAST and found.off <= _OFF):
            continue
        at = [reached(half.isel(scale=[place]), choice) for place in range(half.sizes["scale"])]
        if found.given > most and not any(of.holds < _LEAST for of in at):
            best, most = choice, found.given
    return best


def choices_of(found: xr.Dataset) -> dict[str, dict[str, Any]]:
    """The library's constants, and those chosen on the first half of the sets."""
    return {"the library's": dict(OWN), CHOSEN: best_choice(halves(found)[0])}


def by_constants(run: lab.Run) -> list[list[str]]:
    """By half: the library's constants, those chosen, and others that differ in one."""
    both = halves(run.found)
    choices = [*choices_of(run.found).items()]
    for name, values in GRID.items():
        others = [value for value in values if value != OWN[name]]
        choices += [("one differs", {**OWN, name: value}) for value in others]
    rows = [["constants", *GRID, *(f"{of}: given/holds (worst)/off by" for of in _HALVES)]]
    for name, choice in choices:
        numbers = [reached(half, choice) for half in both]
        cells = [
            f"{100 * x.given:.1f}%/{100 * x.holds:.1f}% ({100 * x.least:.0f}%)/{x.off:.2f}"
            for x in numbers
        ]
        words = [v if isinstance(v, str) else f"{v:g}" for v in choice.values()]
        rows.append([name, *words, *(cell.replace("nan% (nan%)/nan", "-") for cell in cells)])
    return rows


def by_method(run: lab.Run) -> list[list[str]]:
    """By family, the median |log| of other estimates, with no interval asked; and their bias."""
    found = sets_where(run.found).sel(scale=1.0)
    own = found.sel({name: OWN[name] for name in ("neighbours", "narrow")})
    low, high, _ = methods.decided(found, OWN)
    middles = own.near.copy(data=np.sqrt(low * high))
    ways = {"the library's middle": middles, "near prompts": own.near}
    ways |= {f"line in the {line}": own.zero.sel(line=line) for line in methods.LINES}
    ways |= {name: found.read_out.sel({"method": name}) for name in methods.READ_OUTS}
    ways["papers' rule"] = 1 / found.papers
    families = [family_of(name) for name in found.set.values.tolist()]
    rows = [["method", *dict.fromkeys(families), "all", "too many in, %"]]
    for name, similar in ways.items():
        logs = np.log(found.truth / similar.clip(1e-6, 1))
        parts = [logs.isel(set=np.flatnonzero(np.equal(families, f))) for f in rows[0][1:-2]]
        more = percent((logs > 0).where(logs.notnull()))
        rows.append([name, *(f"{abs(of).median().item():.2f}" for of in [*parts, logs]), more])
    return rows
