"""The idea of the scores in one picture: two equally diverse models over the same prompts.

python -m experiments.idea    # writes figures/idea.png and figures/idea.pdf, in seconds
"""

import pathlib
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments.lab import runner, style

FIGURES = pathlib.Path(__file__).resolve().parents[2] / "figures"
_N, _SEED = 1000, 0
# One colour for each kind of prompt, none of which is the colour of a score below.
_KINDS = np.array([style.BLUE, style.PINK, style.GREEN, style.SKY])
_SCORES = {"vendi": "RKE", "conditional": "= Conditional-RKE", "information": "× Information-RKE"}
_SHOWN = 400  # Outputs; with more, they would cover each other.


def toy() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The kind of each prompt `[n]`, the prompts `[n, 2]`, and the outputs `[n, 2]` by model."""
    rng = np.random.default_rng(_SEED)
    corners = np.array([[-1, 1], [1, 1], [-1, -1], [1, -1]], np.float32)
    kinds = rng.integers(4, size=_N)
    prompts, first = corners[kinds] + 0.1 * rng.standard_normal((2, _N, 2), np.float32)
    second = rng.permutation(corners[kinds]) + 0.1 * rng.standard_normal((_N, 2), np.float32)
    return kinds, prompts, {"A": first, "B": second}


def draw() -> tuple[Figure, dict[str, cv.scores.Decomposition]]:
    """The picture, and the scores of each model; the rule chooses the bandwidths on model A."""
    kinds, prompts, models = toy()
    chosen = cv.evaluate(models["A"], prompts, orders=[2], errors=False).bandwidths
    of_x, of_t = (float(chosen[role].bandwidth or 0) for role in ("outputs", "prompts"))
    outer, inner = cv.Gaussian(of_x), cv.Gaussian(of_t)
    found = {
        name: cv.decompose(x, prompts, output_kernel=outer, prompt_kernel=inner, order=2)
        for name, x in models.items()
    }
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    _outputs(left, "Model A: the prompt decides", models["A"], kinds)
    _outputs(middle, "Model B: ignores the prompt", models["B"], kinds)
    labels = {}
    for top, (model, scores) in zip((0, 4.4), found.items(), strict=True):
        right.text(0.05, top - 0.75, f"Model {model}", va="center", fontweight="bold")
        for place, (field, name) in enumerate(_SCORES.items()):
            value, labels[top + place] = float(getattr(scores, field)), name
            right.barh(top + place, value, height=0.75, color=style.score_colour(name.split()[-1]))
            right.text(value + 0.08, top + place, f"{value:.2f}", va="center")
    right.set_yticks(list(labels), list(labels.values()))
    right.tick_params(axis="y", length=0)
    right.set(ylim=(7.0, -1.2), xlim=(0, 4.9), xticks=range(5), xlabel="effective number of modes")
    right.grid(visible=False, axis="y")
    handles = [left.scatter([], [], color=colour, s=18) for colour in _KINDS]
    words = [f"prompts of kind {kind + 1}" for kind in range(4)]
    figure.legend(handles, words, loc="outside upper left", ncols=4)
    finding = "RKE is the same, but only model B gives different outputs to one prompt"
    style.headline(figure, f"{finding}: Conditional-RKE counts them")
    style.caption(
        figure,
        f"A toy: {_N:,} prompts of four kinds, one output each. Each point is an output in the "
        f"colour of its prompt; {_SHOWN} are shown. Gaussian kernels, bandwidths {of_x:.2f} "
        f"(outputs) and {of_t:.2f} (prompts) from the default rule; seed {_SEED}.",
    )
    return figure, found


def _outputs(axes: Axes, title: str, outputs: np.ndarray, kinds: np.ndarray) -> None:
    """The first outputs, in the colours of their prompts and in their random order."""
    axes.scatter(*outputs[:_SHOWN].T, c=_KINDS[kinds[:_SHOWN]], s=11, linewidths=0, alpha=0.85)
    axes.set(title=title, aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=style.GREY)


def main(*_: Any) -> None:
    """Writes the picture into the folder of figures."""
    for path in style.save(draw()[0], FIGURES / "idea"):
        print(path)


if __name__ == "__main__":
    runner.run_program(main)
