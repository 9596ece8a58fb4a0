"""Figures of the drawings that are shipped to be looked at: by Sketch-RNN and by the VAE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.data import strokes
from experiments.data.sets import FOLDER, SEED
from experiments.lab import style

STROKES = FOLDER / "drawings" / "sketches.json"
PICTURES = FOLDER / "drawings" / "quickdraw.npz"
_COLUMNS = 3  # Types side by side.
_NAME = 2.2  # Drawings that the name of a type takes the room of.


def by_temperature(types: Sequence[str], temperatures: Sequence[str]) -> Figure:
    """The first drawing by Sketch-RNN of every type at every temperature."""
    drawings = strokes.read(STROKES)
    wide, rows = len(temperatures) + _NAME, -(-len(types) // _COLUMNS)
    figure = Figure(figsize=(0.47 * wide * _COLUMNS, 0.47 * (rows + 2)), layout="constrained")
    panel = figure.subplots()
    for index, kind in enumerate(types):
        column, row = divmod(index, rows)
        left = column * wide + _NAME
        panel.text(left - 0.2, row + 0.5, kind, ha="right", va="center", fontsize=7.5)
        for place, word in enumerate(temperatures):
            if row == 0:
                panel.text(left + place + 0.5, -0.2, word, ha="center", fontsize=7.5)
            for line in drawings[kind, word]:
                x, y = (0.08 + 0.84 * line).T
                panel.plot(left + place + x, row + y, color=style.BLACK, linewidth=0.6)
    panel.set(xlim=(0, _COLUMNS * wide), ylim=(rows, -0.5), aspect="equal")
    panel.set_axis_off()
    style.caption(
        figure,
        f"Drawings by Sketch-RNN (weights: github.com/hardmaru/sema-demo) of {len(types)} classes "
        f"at {len(temperatures)} temperatures: the first of each that was drawn, seed {SEED}.",
    )
    return figure


def by_psi() -> Figure:
    """Drawings by the VAE, a row a psi and a column a drawing: the same latents down a column."""
    with np.load(PICTURES, allow_pickle=False) as stored:
        ink, types, psi = stored["ink"], stored["types"], stored["models"]
    rows, classes, draws, *_ = ink.shape
    figure = Figure(figsize=(0.52 * classes * draws, 0.56 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, classes * draws, squeeze=False)
    for axes, one in zip(grid.flat, ink.reshape(-1, *ink.shape[3:]), strict=True):
        axes.imshow(255 - one, cmap="gray", vmin=0)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for axes, kind in zip(grid[0, ::draws], types, strict=True):
        axes.set_title(str(kind), loc="left", fontsize=7.5)
    for axes, value in zip(grid[:, 0], psi, strict=True):
        axes.set_ylabel(f"psi {value}", rotation=0, ha="right", va="center")
    style.caption(
        figure,
        f"Drawings by a conditional VAE (weights: ml5.js, trained on Quick, Draw!): {draws} of "
        f"each of {classes} classes, seed {SEED}. Down a column stand the same latents, times psi.",
    )
    return figure
