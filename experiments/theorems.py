"""What the theorems' bounds are worth: CV Theorems 1-3 and 5, RKE Theorems 3 and 6, in figures.

The numbers are those of a report of `python -m theory_checks --output=docs/theory.json`; nothing is
tried again here.

    python -m experiments.theorems
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import style
from experiments.lab.study import option

_CLAIMS = (
    "cv-theorem-1-rate",
    "cv-theorem-2-rate",
    "cv-theorem-3-rate",
    "rke-theorem-6-rate",
    "cv-theorem-6-corrected-point-prompts",
    "rke-theorem-3",
)
_REPORT = pathlib.Path(__file__).parents[1] / "docs" / "theory.json"
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)), (0, (8, 2)))
# Below this only the rounding of float64 is left of a distance.
_ROUNDING = 1e-13


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    report: str | None = option(
        None, "A report that `python -m theory_checks --output=FILE` wrote; the committed if unset."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the report says of itself."""

    budget: str
    trial_seed: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """A claim, by its name."""

    claim: str


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What was tried of a claim.

    Attributes:
      source: the statement's place in its paper.
      verdict: what came of it.
      detail: the fitted rate, or the least slack.
      curves: what is drawn: arrays as lists, names as words; null where a side is not defined or
        the premise of a bound is not met.
    """

    source: str
    verdict: str
    detail: str
    curves: dict[str, Any]


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Reads the report."""
    path = _REPORT if options.report is None else pathlib.Path(options.report)
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        claims = {entry["name"]: entry for entry in report["claims"]}
        evidence = {
            name: {"source": claims[name]["source"], **claims[name]["stated"]} for name in _CLAIMS
        }
        settings = Settings(report["budget"], report["seed"])
    except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"--report: {path.name} is no whole report of `python -m theory_checks`: {error!r}"
        ) from error
    digest = hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).digest()
    return lab.Setup(settings, {"report": np.frombuffer(digest, np.uint8)}, state=evidence)


def cells(settings: Settings) -> list[Cell]:
    """The claims that are drawn."""
    return [Cell(name) for name in _CLAIMS]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Evidence:
    """Takes the evidence of one claim out of the report."""
    entry = setup.state[cell.claim]
    return Evidence(entry["source"], entry["verdict"], entry["detail"], entry["data"])


def table(run: lab.Run) -> Table:
    """The claims with their verdicts."""
    grid = Table("claim", "source", "verdict", "evidence")
    for cell, found in run.results.items():
        grid.add_row(cell.claim, found.source, found.verdict, found.detail)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Rates, the aggregation theorem, and the differential-entropy limit, of the last run."""
    run = runs[-1]
    curves = {cell.claim: found.curves for cell, found in run.results.items()}
    figures = {
        "theory_rates": (_rates, "Populations of at most nine atoms with exact scores, a line "
            "each, dashed like the bound that is proved of it; the printed bound as its range over "
            "those whose n meets its condition; samples of n pairs, drawn anew at every n as "
            "frequencies of the atoms; Gaussian kernel of bandwidth 1, or orthogonal atoms"),
        "theory_aggregation": (_aggregation, "Populations with one prompt a mode, exact spectra "
            "(n infinite); prompts at multiples of the separation, in prompt bandwidths"),
        "theory_differential_entropy": (_differential_entropy, "Densities of unit scale, both "
            "sides exact or by quadrature (n infinite); the bandwidth is the axis"),
    }  # fmt: skip
    found = {}
    for name, (make, words) in figures.items():
        found[name] = make(curves)
        of = f"budget '{run.settings.budget}', seed {run.settings.trial_seed}"
        style.caption(found[name], f"{words}. Report of theory_checks, {of}.")
    return found


def _array(values: Any) -> np.ndarray:
    """Numbers of a report; null, an infinite bound say, is not drawn."""
    return np.array(values, dtype=float)


def _rates(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Measured errors against the bounds of CV Theorems 1-3 and RKE Theorem 6."""
    figure, panels = style.panels(4, size=(5.0, 3.4))
    for number, (axes, title, unit) in enumerate(
        zip(
            panels[:3],
            ("Conditional-Vendi", "truncated Conditional-Vendi, t = 3", "Conditional-RKE"),
            ("error of log score, nats", "error of log score, nats", "error of score, modes"),
            strict=True,
        ),
        start=1,
    ):
        data = curves[f"cv-theorem-{number}-rate"]
        _rate_panel(axes, data, {"printed": data["bound"], "proved": data["sharp"]}, "quantile")
        axes.set(title=f"CV Theorem {number}: {title}", ylabel=f"{unit} (95% quantile)")
    data = curves["rke-theorem-6-rate"]
    bounds = {"printed": [data["printed"]], "proved": [data["sharper"]]}
    _rate_panel(panels[3], data, bounds, "error")
    panels[3].set(title="RKE Theorem 6: RKE", ylabel="error of exp(-H), rms")
    for axes in panels:
        axes.set_xlabel("sample size n")
    style.label_lines(*panels)
    figure.suptitle("Measured errors and the theorems' bounds at failure probability 0.05")
    return figure


def _rate_panel(
    axes: Axes, data: Mapping[str, Any], bounds: Mapping[str, Any], measured: str
) -> None:
    """A line a population, dashed alike with the bound that is proved of it.

    The printed bound is the range over those populations whose samples meet its premise.
    """
    n = _array(data["n"])
    printed = np.ma.masked_invalid(_array(bounds["printed"]))
    low, high = (np.ma.filled(end, np.nan) for end in (printed.min(axis=0), printed.max(axis=0)))
    axes.fill_between(n, low, high, color=style.PRINTED, alpha=0.3, linewidth=0)
    axes.plot(n, np.sqrt(low * high), color=style.PRINTED, label="bound as printed")
    for row, dashes in zip(_array(bounds["proved"]), _DASHES, strict=False):
        (line,) = axes.plot(n, row, color=style.PROVED, linestyle=dashes, linewidth=1.0)
    line.set_label("proved here")
    for name, row, dashes in zip(data["population"], data[measured], _DASHES, strict=False):
        axes.plot(n, _array(row), color=style.MEASURED, linestyle=dashes, label=name)
    reference = _array(data[measured])[0, 0] * np.sqrt(n[0] / n)
    axes.plot(n, reference / 4, ":", color=style.GREY, label="slope -1/2")
    axes.set(xscale="log", yscale="log")


def _aggregation(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Both sides of the aggregation theorem at order 2 as the prompt modes separate."""
    data = curves["cv-theorem-6-corrected-point-prompts"]
    separation = _array(data["separation"])
    figure, panels = style.panels(2, size=(5.2, 3.6), sharex=True, sharey=True)
    titles = {
        "ordinary": "three modes of weights 1/2, 3/10, 1/5:\nthe printed bound holds",
        "rare": "a rare prompt shows one image, the frequent one is diverse:\n"
        "the printed bound is violated",
    }
    for axes, (case, title) in zip(panels, titles.items(), strict=True):
        printed, gap = (_positive(data[f"{case}_{kind}"]) for kind in ("printed", "gap"))
        # The corrected bound can coincide with what it bounds: broad under narrow, both are seen.
        axes.plot(
            separation,
            _positive(data[f"{case}_corrected"]),
            color=style.PROVED,
            linewidth=5,
            alpha=0.4,
            label="corrected bound",
        )
        axes.plot(separation, gap, color=style.MEASURED, label="distance of the two sides")
        axes.plot(separation, printed, "--", color=style.PRINTED, label="bound as printed")
        violated = np.nan_to_num(printed, nan=np.inf) < gap
        axes.fill_between(separation, printed, gap, where=violated, color=style.PRINTED, alpha=0.2)
        axes.set(yscale="log", title=title, xlabel="separation / prompt bandwidth")
        axes.set_ylim(1e-14, 30)
    panels[0].set_ylabel("nats")
    look = {"color": style.PRINTED, "fontsize": 7.5, "va": "center"}
    panels[0].annotate("undefined further left", (1.9, 8.0), ha="right", **look)
    panels[1].annotate(
        "the bound lies below\nwhat it should bound",
        xy=(3.0, 4e-5),
        xytext=(0.4, 1e-8),
        arrowprops={"arrowstyle": "->", "color": style.PRINTED},
        **look,
    )
    panels[0].legend(loc="lower left")
    figure.suptitle("CV Theorem 5: Conditional-RKE against the aggregate of the modes' RKE")
    return figure


def _positive(values: Any) -> np.ndarray:
    """The values that a logarithmic axis has."""
    found = _array(values)
    return np.where(found > 0, found, np.nan)


def _differential_entropy(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Distance of the two sides of RKE Theorem 3 as the bandwidth shrinks."""
    data = curves["rke-theorem-3"]
    sigma = _array(data["sigma"])
    figure, (axes,) = style.panels(1, size=(6.0, 3.8))
    looks = zip(style.CYCLE, style.MARKERS, strict=True)
    for index, (name, row, (colour, marker)) in enumerate(
        zip(data["density"], data["gap"], looks, strict=False)
    ):
        distance = np.abs(_array(row))
        # Two of them nearly coincide: markers at other places, open and filled, keep both visible.
        axes.plot(
            sigma,
            np.where(distance > _ROUNDING, distance, np.nan),
            color=colour,
            marker=marker,
            markevery=(index % 2, 2),
            linestyle=_DASHES[index % 2],
            markerfacecolor=colour if index % 2 else "white",
            label=name,
        )
    axes.set(xscale="log", yscale="log", xlabel="bandwidth (unit-scale densities)")
    axes.set(ylabel="distance of the two sides, nats")
    axes.invert_xaxis()
    style.label_lines(axes)
    figure.suptitle("RKE Theorem 3: the differential-entropy limit")
    return figure


STUDY = lab.StudyRecord(
    name="theorems",
    version=2,
    question="What are the theorems' bounds worth at the sample sizes in use?",
    reproduces="CV Theorems 1-3, 5; RKE Theorems 3, 6",
    duration="seconds, from docs/theory.json",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Evidence,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("theory_rates", "theory_aggregation", "theory_differential_entropy"),
    data=None,
    random=False,
)


if __name__ == "__main__":
    lab.main(STUDY)
