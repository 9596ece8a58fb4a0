"""What the theorems' bounds are worth: CV Theorems 1-3 and 5, RKE Theorems 3 and 6, in figures.

The numbers come from a report of `python -m theory_checks`.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from experiments import lab
from experiments.lab import style

CLAIMS = (
    "cv-theorem-1-sharp",
    "cv-theorem-2-sharp",
    "cv-theorem-3-sharp",
    "rke-theorem-6-sharper",
    "cv-theorem-6-corrected-point-prompts",
    "rke-theorem-3",
)
REPORT = pathlib.Path(__file__).parents[2] / "docs" / "theory.json"
# Below this only the rounding of float64 is left of a distance.
_ROUNDING = 1e-13
_TOLD = ("source", "verdict", "detail")
# The axes that the arrays of a report have: what is tried, and against what it is drawn.
_AXES = ("population", "density", "n", "separation", "sigma")


class Theorems(lab.Study):
    """How tight are the theorems' bounds at the sample sizes in use?"""

    name = "theorems"
    version = 3
    reproduces = "CV Theorems 1-3, 5; RKE Theorems 3, 6"
    duration = "seconds, from docs/theory.json"
    data = None
    random = False
    drawings = ("theory_rates", "theory_aggregation", "theory_differential_entropy")

    report: str | None = lab.flag(
        None, "A report that `python -m theory_checks --output=FILE` wrote; the committed if unset."
    )
    budget: str = lab.resolved("")
    trial_seed: int = lab.resolved(0)

    def prepare(self, load, seed):
        path = REPORT if self.report is None else pathlib.Path(self.report)
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            claims = {entry["name"]: entry for entry in report["claims"]}
            evidence = {n: claims[n] for n in CLAIMS}
            trials = {"budget": report["budget"], "trial_seed": report["seed"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"--report: {path.name} is no whole report of `python -m theory_checks`: {error!r}"
            ) from error
        digest = hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).digest()
        arrays = {"report": np.frombuffer(digest, np.uint8)}
        # The report is known by its contents, wherever it stands.
        return self.ready(state=evidence, arrays=arrays, report=None, **trials)

    def axes(self):
        return {"claim": CLAIMS}

    def compute(self, state, context, *, claim):
        """Takes the evidence of one claim out of the report; null becomes NaN."""
        entry = state[claim]
        data, words = entry["data"], {k: entry[k] for k in _TOLD}
        labels = {k: data[k] for k in _AXES if k in data}
        arrays = {k: np.array(v, float) for k, v in data.items() if k not in labels}
        last = {k: list(labels)[len(labels) - array.ndim :] for k, array in arrays.items()}
        return xr.Dataset({k: (last[k], array) for k, array in arrays.items()} | words, labels)

    def tables(self, run):
        """The claims with their verdicts."""
        grid = Table("claim", "source", "verdict", "evidence")
        for cell, one in run.results.items():
            grid.add_row(cell.values["claim"], *(one[k].item() for k in _TOLD))
        yield grid

    @classmethod
    def figures(cls, runs):
        run = runs[-1]
        evidence = {cell.values["claim"]: found for cell, found in run.results.items()}
        of = f"budget '{run.study.budget}', seed {run.study.trial_seed}"
        drawn = {}
        for name, make in zip(cls.drawings, (_rates, _aggregation, _entropy_limit), strict=True):
            drawn[name], words = make(evidence)
            style.caption(drawn[name], f"{words}. Report of theory_checks, {of}.")
        return drawn


def _rates(evidence: Mapping[str, xr.Dataset]) -> tuple[Figure, str]:
    """Measured errors against the bounds of CV Theorems 1-3 and RKE Theorem 6."""
    figure, panels = style.panels(4, size=(5.0, 3.4))
    shown = (
        ("CV Theorem 1", "cv-theorem-1-sharp", "error of log Conditional-Vendi, nats"),
        ("CV Theorem 2", "cv-theorem-2-sharp", "error of log score, t = 3, nats"),
        ("CV Theorem 3", "cv-theorem-3-sharp", "error of Conditional-RKE, modes"),
        ("RKE Theorem 6", "rke-theorem-6-sharper", "error of exp(-H), rms"),
    )
    for axes, (theorem, claim, y_label) in zip(panels, shown, strict=True):
        data = evidence[claim]
        if claim.startswith("rke"):
            data = data.rename(error="quantile", sharper="sharp", printed="bound")
        _rate_panel(axes, data.transpose("population", "n"))
        times = float((data.bound / data["quantile"]).isel(n=-1).min())
        axes.set_title(f"{theorem}: the printed bound is {times:,.0f} times the error or more")
        axes.set(xlabel="sample size n", ylabel=y_label)
    style.label_lines(*panels)
    figure.suptitle("Measured errors and the theorems' bounds at failure probability 0.05")
    return figure, (
        "Samples of populations of at most nine atoms with exact scores; blue: 95% quantiles of "
        "the error (Theorem 6: root mean squares); red: the range over the populations whose n "
        "meets the condition"
    )


def _rate_panel(axes: Axes, data: xr.Dataset) -> None:
    """A line a population with its proved bound, and the range of the printed bound over them."""
    n = data.n.values
    low, high = (end.reduce(np.atleast_2d(data.bound)) for end in (np.fmin, np.fmax))
    axes.fill_between(n, low, high, color=style.PRINTED, alpha=0.3, linewidth=0)
    axes.plot(n, np.sqrt(low * high), color=style.PRINTED, label="bound as printed")
    for row, dashes in zip(np.atleast_2d(data.sharp), style.DASHES, strict=False):
        (line,) = axes.plot(n, row, color=style.PROVED, linestyle=dashes, linewidth=1.0)
    line.set_label("proved here")
    measured = data["quantile"].values
    for name, row, dashes in zip(data.population.values, measured, style.DASHES, strict=False):
        axes.plot(n, row, color=style.MEASURED, linestyle=dashes, label=name)
    axes.plot(n, measured[0, 0] * np.sqrt(n[0] / n) / 4, ":", color=style.GREY, label="slope -1/2")
    axes.set(xscale="log", yscale="log")


def _aggregation(evidence: Mapping[str, xr.Dataset]) -> tuple[Figure, str]:
    """Both sides of the aggregation theorem at order 2 as the prompt modes separate."""
    data = evidence["cv-theorem-6-corrected-point-prompts"]
    separation = data["separation"].values
    figure, panels = style.panels(2, size=(5.2, 3.6), sharex=True, sharey=True)
    rare = "a rare prompt shows one image, the frequent one is diverse"
    titles = {
        "ordinary": "three modes of weights 1/2, 3/10, 1/5:\nthe printed bound holds",
        "rare": f"{rare}:\nthe printed bound is violated",
    }
    for axes, (case, title) in zip(panels, titles.items(), strict=True):
        found = (data[f"{case}_{kind}"] for kind in ("printed", "gap", "corrected"))
        printed, gap, corrected = (of.where(of > 0).values for of in found)
        # The corrected bound can coincide with what it bounds: broad under narrow, both are seen.
        broad = {"linewidth": 5, "alpha": 0.4}
        axes.plot(separation, corrected, c=style.PROVED, label="corrected bound", **broad)
        axes.plot(separation, gap, color=style.MEASURED, label="distance of the two sides")
        axes.plot(separation, printed, "--", color=style.PRINTED, label="bound as printed")
        violated = np.nan_to_num(printed, nan=np.inf) < gap
        axes.fill_between(separation, printed, gap, where=violated, color=style.PRINTED, alpha=0.2)
        axes.set(yscale="log", ylim=(1e-14, 30), title=title)
        axes.set_xlabel("separation / prompt bandwidth")
    panels[0].set_ylabel("nats")
    look = {"color": style.PRINTED, "fontsize": 7.5, "va": "center"}
    arrow = {"arrowstyle": "->", "color": style.PRINTED}
    words = "the bound lies below\nwhat it should bound"
    panels[0].annotate("undefined further left", (1.9, 8.0), ha="right", **look)
    panels[1].annotate(words, (3.0, 4e-5), (0.4, 1e-8), arrowprops=arrow, **look)
    panels[0].legend(loc="lower left")
    figure.suptitle("CV Theorem 5: Conditional-RKE against the aggregate of the modes' RKE")
    return figure, (
        "Populations with one prompt a mode, exact spectra (n infinite); prompts at multiples of "
        "the separation"
    )


def _entropy_limit(evidence: Mapping[str, xr.Dataset]) -> tuple[Figure, str]:
    """Distance of the two sides of RKE Theorem 3 as the bandwidth shrinks."""
    distances = np.abs(evidence["rke-theorem-3"].gap)
    figure, (axes,) = style.panels(1, size=(6.0, 3.8))
    for index, row in enumerate(distances):
        colour = style.CYCLE[index]
        # Two of them nearly coincide: markers at other places, open and filled, keep both visible.
        axes.plot(
            row.sigma,
            row.where(row > _ROUNDING),
            color=colour,
            marker=style.MARKERS[index],
            markevery=(index % 2, 2),
            linestyle=style.DASHES[index % 2],
            markerfacecolor=colour if index % 2 else "white",
            label=row.density.item(),
        )
    axes.set(xscale="log", yscale="log", ylabel="distance of the two sides, nats")
    axes.set_xlabel("bandwidth (unit-scale densities)")
    axes.invert_xaxis()
    style.label_lines(axes)
    sigma, last = distances.sigma.values[-1], distances.values[:, -1].max()
    axes.set_title(f"RKE Theorem 3: at bandwidth {sigma:.0g}, the sides differ by {last:.0g}")
    return figure, "Densities of unit scale, both sides exact or by quadrature (n infinite)"
