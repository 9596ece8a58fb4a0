"""Results as figures."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from condvendi_jax.inference.results import Profile
from condvendi_jax.inference.results.evaluation import score_name

_PANEL_IN = (3.6, 3.2)
# Okabe and Ito's colours, which colour-blind readers can tell apart; further models are dashed.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)))
_SHADE = "0.9"
# The ticks of a logarithmic axis of many decades, and of one at most.
_FEW, _MANY = (1,), (1, 1.5, 2, 3, 4, 5, 7)


def figure(profile: Profile) -> Figure:
    """The scores against the bandwidth, with a panel for each score, as a figure of matplotlib.

    Each model has a curve and a band; bandwidths at which all models are at a limit are shaded.

    Args:
      profile: the result of `profile`, or the `profile` of a comparison.
    """
    names, widths = profile.names, profile.bandwidths
    size = (_PANEL_IN[0] * max(len(names), 2), _PANEL_IN[1] + 0.2 * (1 + len(profile.models) // 6))
    drawn = Figure(figsize=size, layout="constrained")
    panels = drawn.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        values, bands, saturated = profile.curves(name)
        for index, model in enumerate(profile.models):
            look = {"color": _COLOURS[index % len(_COLOURS)]}
            dash = _DASHES[index // len(_COLOURS) % len(_DASHES)]
            label = model.replace("$", r"\$").lstrip("_") or None
            panel.plot(widths, values[index], linestyle=dash, linewidth=1.3, label=label, **look)
            panel.fill_between(widths, *bands[index].T, alpha=0.25, linewidth=0, **look)
        for low, high in _runs(saturated.all(axis=0), widths):
            panel.axvspan(low, high, color=_SHADE, linewidth=0, zorder=0)
        if widths[0] <= widths[0] / profile.multiples[0] <= widths[-1]:
            panel.axvline(
                widths[0] / profile.multiples[0], color="0.4", linewidth=0.9, dashes=(4, 3)
            )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.margins(x=0)
        low, high = panel.get_ylim()
        panel.yaxis.set_major_locator(LogLocator(subs=_FEW if high > 30 * low else _MANY))
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter("{x:.3g}")
            axis.set_minor_formatter("")
        panel.set_title(score_name(name, profile.order, None), fontsize=10)
        panel.set_xlabel(f"bandwidth of the {profile.axis}", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("effective number of modes", fontsize=8)
    if any(profile.models):
        drawn.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=8
        )
    drawn.supxlabel(_caption(profile), fontsize=7)
    return drawn


def _runs(marked: np.ndarray, widths: np.ndarray) -> list[tuple[float, float]]:
    """The ranges of bandwidths that are marked, each up to half way to the next one."""
    middles = np.sqrt(widths[1:] * widths[:-1])
    ends = np.concatenate([widths[:1], middles, widths[-1:]])
    return [(ends[k], ends[k + 1]) for k in np.flatnonzero(marked).tolist()]


def _caption(profile: Profile) -> str:
    """The number of rows, whose bandwidth moves, and the coverage of the bands."""
    several, multiples = len(profile.names) > 1, profile.multiples
    moves = "both bandwidths" if profile.over == "both" and several else "the bandwidth"
    if profile.over != "both" and several:
        moves += f" of {profile.over} alone"
    bands = f"bands: {1 - profile.level:.0%}, of a model at all bandwidths at once"
    if np.isnan(profile.bands.vendi).all() and profile.untested is not None:
        bands = f"without bands: {profile.untested}"
    n = sorted(set(profile.n))
    numbers = f"n = {n[0]:,}" if len(n) == 1 else f"n = {n[0]:,} to {n[-1]:,}"
    rule = profile.chosen[profile.axis].rule
    return (
        f"{numbers}; {moves} times {multiples[0]:.3g} to {multiples[-1]:.3g}; {bands}; "
        f"seed {profile.seed}.\nDashed: the chosen bandwidth ({rule}). "
        "Grey: all models are at a limit."
    )
