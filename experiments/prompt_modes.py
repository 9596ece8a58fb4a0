"""The modes of the prompts and the diversity of the outputs in each: CV figures 6, 13-15 and 24.

The leading eigendirections v of the prompts' Gram, the prompts that carry each, and the scores of
the outputs that it weights, K_X o v v^T, with errors over prompts; for bandwidths by rule, half and
double. Where the pictures are at hand, one of each of these prompts is shown.

    python -m experiments.prompt_modes --data=emoji
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.linalg
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import validation
from condvendi_jax.encoders.items import decode_image, list_images
from experiments import lab
from experiments.data import SETS, PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option

_SHOWN = 6
_SIDE = 40  # Pixels of a picture in the figure.
_LETTERS = 30
# Scores further apart than so many times are drawn on a logarithmic axis.
_WIDE = 30


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    modes: int = option(4, "How many prompt modes.")
    directions: int = option(3, "How many output modes of each.")
    largest: int = option(1500, "Whole prompts are drawn up to so many pairs.")
    pictures: str | None = option(
        None, "A folder of the outputs as pictures, one a row in the order of their names."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the modes depend on; names are those of the prompts by their number.

    `credit` says under what licences the pictures are, where any are shown.
    """

    data: str
    n: int
    prompts: int
    modes: int
    directions: int
    names: tuple[str, ...]
    credit: str | None
    bandwidths: dict[str, choices.Bandwidths]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One multiple of the bandwidths."""

    scale: str


@dataclasses.dataclass(frozen=True)
class Modes:
    """The modes by falling eigenvalue.

    Attributes:
      share: the eigenvalues, `[modes]`.
      size: how many pairs carry each, effectively, `[modes]`.
      scores: Vendi and RKE of the outputs that each weights, `[2, modes]`.
      covariance: of the scores' logarithms between modes, `[2, modes, modes]`.
      prompts: the numbers of the prompts that carry each most, `[modes, shown]`.
      output_shares: the leading eigenvalues of K_X o v v^T, `[modes, directions]`.
      output_prompts: the prompts of the pair that carries each output mode most, `[modes,
        directions]`.
      pictures: an output of each of those prompts that carry a mode, uint8 `[modes, shown, side,
        side, 3]`; of no size where there are no pictures.
    """

    share: np.ndarray
    size: np.ndarray
    scores: np.ndarray
    covariance: np.ndarray
    prompts: np.ndarray
    output_shares: np.ndarray
    output_prompts: np.ndarray
    pictures: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, and draws prompts with all of their outputs."""
    for name in ("modes", "directions"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=1)
    validation.check_count(options.largest, name="--largest", minimum=20)
    pairs = load()
    rows = _rows(pairs.prompts, options.largest, seed)
    chosen = pairs.rows(rows)
    kinds, kind = validation.distinct_rows(chosen.prompts)
    if options.modes > kinds or options.directions > len(rows):
        raise ValueError(
            f"--modes and --directions: expected at most the {kinds} prompts and {len(rows)} "
            f"pairs, received {options.modes} and {options.directions}."
        )
    first = np.unique(kind, return_index=True)[1]
    pictures = _read_pictures(options.pictures, len(pairs), rows)
    source = SETS.get(pairs.name)
    settings = Settings(
        data=pairs.description,
        n=len(rows),
        prompts=kinds,
        modes=options.modes,
        directions=options.directions,
        names=_names(chosen, first),
        credit=source.licence if source and len(pictures) else None,
        bandwidths=choices.choose_scaled(pairs, options, seed),
    )
    arrays = {"outputs": pairs.outputs, "prompts": pairs.prompts, "pictures": pictures}
    return lab.Setup(settings, arrays, state=(chosen, pictures))


def _read_pictures(folder: str | None, n: int, rows: np.ndarray) -> np.ndarray:
    """The pictures of some rows, uint8 `[rows, side, side, 3]`; of no size where there are none.

    Raises:
      ValueError: the folder has not one picture for each of the n outputs, or one is damaged.
    """
    if folder is None:
        return np.zeros((0, _SIDE, _SIDE, 3), np.uint8)
    paths = list_images(folder)
    if len(paths) != n:
        raise ValueError(
            f"--pictures: expected one for each of {n:,} outputs, found {len(paths):,}."
        )
    chosen = [paths[row] for row in rows]
    return np.stack([decode_image(p.read_bytes(), name=str(p), side=_SIDE) for p in chosen])


def _rows(prompts: np.ndarray, largest: int, seed: int) -> np.ndarray:
    """The rows of prompts drawn at random until the next one would be too many."""
    _, kind = validation.distinct_rows(prompts)
    often = np.bincount(kind)
    order = np.random.default_rng(seed).permutation(len(often))
    drawn = order[np.cumsum(often[order]) <= largest]
    return np.flatnonzero(np.isin(kind, drawn))


def _names(pairs: PairedEmbeddings, first: np.ndarray) -> tuple[str, ...]:
    """What the prompts of some rows are called: their words or number in the set, if it knows."""
    for role, form in {"prompt_texts": "{}", "prompt": "prompt {}"}.items():
        if role in pairs.labels:
            return tuple(form.format(name) for name in pairs.labels[role][first].tolist())
    return tuple(f"prompt {number}" for number in range(len(first)))


def cells(settings: Settings) -> list[Cell]:
    """Every bandwidth."""
    return [Cell(scale) for scale in settings.bandwidths]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Modes:
    """The modes at one bandwidth, their scores and the errors of these over prompts."""
    del context
    settings, (pairs, pictures) = setup.settings, setup.state
    kernels = settings.bandwidths[cell.scale].kernels()
    modes = cv.clusters.prompt_modes(
        pairs.outputs,
        pairs.prompts,
        **kernels,
        count=settings.modes,
        directions=settings.directions,
    )
    _, kind = validation.distinct_rows(pairs.prompts)
    gram = np.asarray(cv.gram(kernels["output_kernel"], pairs.outputs).dense().matrix)
    effects = np.array([influences(gram, mode.weights, kind) for mode in modes])
    count = effects.shape[2]
    of_prompt = np.array([np.bincount(kind, mode.weights) for mode in modes])
    most = np.array([mode.output_pairs(1)[:, 0] for mode in modes])
    prompts = np.argsort(-of_prompt, axis=1, kind="stable")[:, :_SHOWN]
    return Modes(
        share=np.array([mode.share for mode in modes]),
        size=np.array([mode.size for mode in modes]),
        scores=np.array([[m.vendi for m in modes], [m.rke for m in modes]]),
        covariance=np.einsum("aop,bop->oab", effects, effects) * count / (count - 1),
        prompts=prompts,
        output_shares=np.array([mode.output_shares for mode in modes]),
        output_prompts=kind[most],
        pictures=pictures[_one_of_each(prompts, kind)] if len(pictures) else pictures,
    )


def _one_of_each(prompts: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """A row of each prompt, in turn the first, second, ... of those that it has."""
    rows = [[np.flatnonzero(kind == p) for p in of_mode] for of_mode in prompts]
    return np.array([[r[j % len(r)] for j, r in enumerate(of_mode)] for of_mode in rows])


def influences(gram: np.ndarray, weights: np.ndarray, units: np.ndarray) -> np.ndarray:
    """How the entropies of orders 1 and 2 of weighted points move with the weight of each unit.

    d H / d log w summed over the points of a unit, at weights that are scaled to one again: the
    infinitesimal jackknife, of one spectrum. The sum of its squares is the variance of H where
    units are drawn at random.

    Args:
      gram: K, `[n, n]`.
      weights: w, `[n]`, of sum one.
      units: the unit of each point, `[n]`, from 0.

    Returns:
      `[2, units]`.
    """
    root = np.sqrt(weights)
    values, vectors = scipy.linalg.eigh(gram * np.outer(root, root))
    values = np.maximum(values, 0)
    logs = np.log(np.where(values > 0, values, 1))
    of_points = np.square(vectors) * values  # Of sum w_i over the eigenvalues.
    entropy, purity = -values @ logs, values @ values
    one = -(of_points @ logs) - weights * entropy
    two = 2 * weights - 2 * (of_points @ values) / purity
    return np.array([np.bincount(units, effect) for effect in (one, two)])


def table(run: lab.Run) -> Table:
    """Each mode: its share, size, scores with errors, and nearest prompts."""
    grid = Table("bandwidths", "mode", "share", "size", "Vendi", "RKE", "prompts")
    for cell, found in run.results.items():
        errors = standard_errors(found)
        for mode in range(run.settings.modes):
            words = [
                f"{_short(score[mode], 4)} +- {_short(error[mode], 2)}"
                for score, error in zip(found.scores, errors, strict=True)
            ]
            names = ", ".join(named(run.settings, found.prompts[mode]))
            shown = (f"{found.share[mode]:.3f}", f"{found.size[mode]:.0f}")
            grid.add_row(cell.scale, str(mode + 1), *shown, *words, names)
    return grid


def standard_errors(found: Modes) -> np.ndarray:
    """Of the scores, `[2, modes]`."""
    return found.scores * np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))


def differences(found: Modes) -> np.ndarray:
    """The ratio of two modes' scores in their standard errors, `[2, modes, modes]`."""
    logs = np.log(found.scores)
    variance = np.diagonal(found.covariance, axis1=1, axis2=2)
    between = variance[:, :, None] + variance[:, None, :] - 2 * found.covariance
    distinct = ~np.eye(logs.shape[1], dtype=bool)
    error = np.sqrt(np.where(distinct, between, 1))
    return np.where(distinct, (logs[:, :, None] - logs[:, None, :]) / error, 0)


def named(settings: Settings, prompts: np.ndarray) -> list[str]:
    """The names of prompts by their numbers."""
    return [settings.names[p] for p in prompts.tolist()]


def _short(value: float, digits: int) -> str:
    """A number to some digits, never in powers of ten."""
    return f"{float(f'{value:.{digits}g}'):g}"


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """A figure a data set: modes with their prompts, and their scores."""
    return {run.folder.name.replace("-", "_"): _figure(run) for run in runs}


def _figure(run: lab.Run) -> Figure:
    """A row a bandwidth: the prompts of each mode, a column each, and the scores of them all."""
    settings = run.settings
    columns = settings.modes + 1
    count = columns * len(settings.bandwidths)
    height = 2.1 if settings.credit is None else 2.6
    figure, axes = style.panels(count, columns=columns, size=(2.0, height))
    for row, scale in enumerate(settings.bandwidths):
        found = run.results[Cell(scale)]
        errors = standard_errors(found)
        for mode, axis in enumerate(axes[row * columns : row * columns + settings.modes]):
            _words(axis, settings, found, errors, mode)
        last = axes[row * columns + settings.modes]
        for order, name in enumerate(("Vendi", "RKE")):
            last.errorbar(
                np.arange(1, settings.modes + 1) + 0.15 * (order - 0.5),
                found.scores[order],
                1.96 * errors[order],
                color=style.score_colour(name),
                label=name,
                linestyle="",
                marker=style.MARKERS[order],
                capsize=2,
            )
        last.set_xticks(range(1, settings.modes + 1))
        if found.scores.max() > _WIDE * found.scores.min():
            last.set_yscale("log")
            style.log_numbers(last.yaxis)
        else:
            last.set_ylim(0, None)
        last.set(xlabel="prompt mode", title="score of the outputs")
        axes[row * columns].set_ylabel(f"bandwidths x {scale}" if scale != "cosine" else scale)
    style.legend_above(figure, axes[settings.modes])
    style.caption(figure, _caption(run))
    return figure


def _words(axis: Any, settings: Settings, found: Modes, errors: np.ndarray, mode: int) -> None:
    """A panel of one mode: its scores, and the prompts that carry it."""
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_title(f"mode {mode + 1}: share {found.share[mode]:.2f}")
    lines = [
        f"{name} {_short(found.scores[order, mode], 3)} ± {_short(errors[order, mode], 2)}"
        for order, name in enumerate(("Vendi", "RKE"))
    ]
    lines += [f"{found.size[mode]:.0f} pairs carry it", ""]
    lines += [word[:_LETTERS] for word in named(settings, found.prompts[mode])]
    axis.text(0.03, 0.97, "\n".join(lines), fontsize=6.5, va="top", transform=axis.transAxes)
    for index, picture in enumerate(found.pictures[mode] if found.pictures.size else ()):
        inset = axis.inset_axes((0.02 + index / _SHOWN, 0.02, 0.9 / _SHOWN, 0.2))
        inset.imshow(picture)
        inset.set_axis_off()


def _caption(run: lab.Run) -> str:
    settings = run.settings
    words = (
        f"{settings.data.rstrip('.')}; {settings.n:,} pairs of {settings.prompts:,} prompts, seed "
        f"{run.seed}. Each mode is an eigendirection v of the prompts' Gram, named by the prompts "
        "that carry it most; scores of the outputs weighted by v^2, with standard errors over "
        "prompts for a given v (infinitesimal jackknife), and at the right 95% intervals."
    )
    at_one = settings.bandwidths.get("1")
    if at_one is not None and at_one.outputs is not None:
        widths = f"{at_one.outputs:.3g} (outputs) and {at_one.prompts:.3g} (prompts)"
        words += f" Bandwidths at 1: {widths}, {at_one.rule}."
    if settings.credit is not None:
        words += f" A picture of each prompt that is named; licences: {settings.credit}."
    return words


STUDY = lab.StudyRecord(
    name="prompt_modes",
    version=2,
    question="What are the modes of the prompts, and how diverse are the outputs in each?",
    reproduces="CV figs 6, 13-15, 24",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Modes,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=(("--pictures=emoji-pictures",), ("--data=captions",), ("--data=gallery",)),
    figures=("prompt_modes", "prompt_modes_captions", "prompt_modes_gallery"),
)


if __name__ == "__main__":
    lab.main(STUDY)
