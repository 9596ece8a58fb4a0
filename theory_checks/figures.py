"""Saved report -> figures/theory_*.png; nothing is tried again.

python -m theory_checks --output=docs/theory.json
python -m theory_checks.figures --report=docs/theory.json --figures=figures
"""

import json
import pathlib
import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from condvendi_jax import command

_REPORT = flags.DEFINE_string("report", "docs/theory.json", "Report written by --output.")
_FIGURES = flags.DEFINE_string("figures", "figures", "Folder that the figures go to.")

_MEASURED, _PRINTED, _SHARP = "#0072B2", "#D55E00", "#009E73"


def _array(values: Any) -> np.ndarray:
    """Numbers of a report; null, an infinite bound say, is not drawn."""
    return np.array(values, dtype=float)


def _log_axes(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set(xscale="log", yscale="log", title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3, which="both", linewidth=0.4)


def _theorem_panel(axes: Axes, data: dict[str, Any], title: str) -> None:
    """95% quantiles of the error, the printed bound and the proved one, per population."""
    n = _array(data["n"])
    for kind, colour, label in (
        ("bound", _PRINTED, "bound as printed"),
        ("sharp", _SHARP, "sharper bound, proved here"),
        ("quantile", _MEASURED, "measured 95% quantile"),
    ):
        for index, row in enumerate(data[kind]):
            axes.plot(n, _array(row), color=colour, alpha=0.7, label=label if index == 0 else None)
    reference = np.nanmin(_array(data["quantile"])[:, 0]) * np.sqrt(n[0] / n)
    axes.plot(n, reference / 2, "k:", linewidth=1, label="slope -1/2")
    _log_axes(axes, title, "n", "error")


def _rke_panel(axes: Axes, data: dict[str, Any]) -> None:
    n = _array(data["n"])
    for index, row in enumerate(data["error"]):
        label = "measured, root mean square" if index == 0 else None
        axes.plot(n, _array(row), color=_MEASURED, label=label)
    axes.plot(n, _array(data["printed"]), color=_PRINTED, label="bound as printed")
    axes.plot(n, _array(data["sharper"]), color=_SHARP, label="sharper bound, proved here")
    _log_axes(axes, "RKE Theorem 6", "n", "error of exp(-H2)")


def rates(claims: dict[str, dict[str, Any]]) -> Figure:
    """Measured errors against the bounds of CV Theorems 1-3 and RKE Theorem 6."""
    figure, panels = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    titles = ("Conditional-Vendi", "truncated Conditional-Vendi, t = 3", "Conditional-RKE")
    for number, (axes, title) in enumerate(zip(panels.flat[:3], titles, strict=True), start=1):
        data = claims[f"cv-theorem-{number}-rate"]["data"]
        _theorem_panel(axes, data, f"CV Theorem {number}: {title}")
    _rke_panel(panels[1, 1], claims["rke-theorem-6-rate"]["data"])
    for axes in panels.flat:
        axes.legend(fontsize=7)
    figure.suptitle("Measured errors and the theorems' bounds at failure probability 0.05")
    return figure


def aggregation(claims: dict[str, dict[str, Any]]) -> Figure:
    """Both sides of the aggregation theorem at order 2 as the prompt modes separate."""
    data = claims["cv-theorem-6-corrected-point-prompts"]["data"]
    separation = _array(data["separation"])
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    titles = {"ordinary": "three modes, weights 1/2, 3/10, 1/5", "rare": "a rare, diverse mode"}
    for axes, (case, title) in zip(panels, titles.items(), strict=True):
        # The corrected bound can coincide with what it bounds: the dashes keep both visible.
        for kind, colour, style, label in (
            ("printed", _PRINTED, "-", "bound as printed (undefined further left)"),
            ("corrected", _SHARP, "-", "corrected bound"),
            ("gap", _MEASURED, "--", "distance of the two sides"),
        ):
            values = _array(data[f"{case}_{kind}"])
            positive = np.where(values > 0, values, np.nan)
            axes.plot(separation, positive, style, color=colour, linewidth=2, label=label)
        axes.set(yscale="log", title=title, xlabel="separation / bandwidth", ylim=(1e-14, 30))
        axes.grid(alpha=0.3, linewidth=0.4)
    panels[0].set_ylabel("nats")
    panels[0].legend(fontsize=7)
    figure.suptitle("CV Theorem 5: Conditional-RKE against the aggregate of the modes' RKE")
    return figure


def differential_entropy(claims: dict[str, dict[str, Any]]) -> Figure:
    """Distance of the two sides of RKE Theorem 3 as the bandwidth shrinks."""
    claim = claims["rke-theorem-3"]
    sigma, gaps = _array(claim["data"]["sigma"]), _array(claim["data"]["gap"])
    names = claim["parameters"]["densities"].replace(", d =", " d =").split(", ")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, row in zip(names, gaps, strict=True):
        # Below 1e-13 only rounding is left.
        distance = np.abs(row)
        axes.plot(sigma, np.where(distance > 1e-13, distance, np.nan), marker=".", label=name)
    _log_axes(axes, "RKE Theorem 3: the differential-entropy limit", "bandwidth", "distance, nats")
    axes.legend(fontsize=7)
    return figure


FIGURES = {
    "theory_rates": rates,
    "theory_aggregation": aggregation,
    "theory_differential_entropy": differential_entropy,
}


_CAPTIONS = {
    "theory_rates": (
        "Populations of at most nine atoms with exact scores, one line each: orthogonal atoms, "
        "atoms in a low dimension, and normal draws under a Gaussian kernel of bandwidth 1. "
        "Samples of size n are drawn anew at every n, as frequencies of the atoms."
    ),
    "theory_aggregation": (
        "Exact spectra of populations with one prompt a mode, no sampling (n infinite); prompts on "
        "a line at multiples of the separation, in units of the prompt bandwidth."
    ),
    "theory_differential_entropy": (
        "Exact or quadrature values of both sides for densities of unit scale, no sampling "
        "(n infinite); the bandwidth is the axis."
    ),
}


def _caption(figure: Figure, text: str) -> None:
    """What data, n, bandwidth and seed a figure shows, in a line below it."""
    width = int(figure.get_size_inches()[0] * 18)
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), fontsize=7, x=0.01, ha="left")


def main(argv: list[str]) -> None:
    """Draws every figure from one report."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}; flags are written --name=value.")
    report = json.loads(pathlib.Path(_REPORT.value).read_text(encoding="utf-8"))
    claims = {entry["name"]: entry for entry in report["claims"]}
    folder = pathlib.Path(_FIGURES.value)
    folder.mkdir(parents=True, exist_ok=True)
    plt.switch_backend("Agg")
    for name, draw in FIGURES.items():
        figure = draw(claims)
        _caption(figure, f"{_CAPTIONS[name]} Budget '{report['budget']}', seed {report['seed']}.")
        # Without the metadata, the same report gives the same bytes.
        figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    command.run(main)
