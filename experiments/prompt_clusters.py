"""Prompts in ever finer clusters, answered by their centres: CV figures 4 and 23.

Prompts are clustered into k groups, and every prompt is paired with the output of its group's
medoid: a model that tells k prompts apart. The scores of such models against k, a line a model, for
bandwidths by rule, half and double.

    python -m experiments.prompt_clusters --data=emoji
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option

# Sizes of equal ratio, from a cluster of so many prompts on down to single ones.
_POINTS, _COARSEST = 6, 40
_SHARE = 0.5
_ALL = "all outputs"
_ORDERS = (1.0, 2.0)
# In the order of the panels of CV fig 4, and the number of the score among those of an entropy.
_PANELS = {
    "Conditional-Vendi": (0, 1),
    "Information-Vendi": (0, 2),
    "Conditional-RKE": (1, 1),
    "Information-RKE": (1, 2),
}


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    counts: tuple[int, ...] | None = option(
        None,
        "Numbers of clusters k; by default six, from a fortieth of the prompts to all of them.",
    )
    largest: int = option(400, "So many prompts are drawn where there are more.")
    repeats: int = option(3, "Starts of K-means, each with outputs of its own draw.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the curves depend on."""

    data: str
    prompts: int
    models: tuple[str, ...]
    left_out: tuple[str, ...]
    counts: tuple[int, ...]
    repeats: int
    bandwidths: dict[str, choices.Bandwidths]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One model, under one multiple of the bandwidths."""

    model: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Curves:
    """The scores of the pairs against k.

    Attributes:
      scores: `[orders, 3, counts, repeats]`: Vendi, Conditional and Information, orders 1 and 2.
      agreement: the mean adjusted Rand index of two starts, `[counts]`.
    """

    scores: np.ndarray
    agreement: np.ndarray


@dataclasses.dataclass(frozen=True)
class State:
    """What the cells share.

    Attributes:
      pairs: all of them.
      rows: the rows of each model's outputs of each prompt, `[prompts]` lists.
      first: a row of each prompt, `[prompts]`.
      clusterings: by k.
    """

    pairs: PairedEmbeddings
    rows: Mapping[str, Sequence[np.ndarray]]
    first: np.ndarray
    clusterings: Mapping[int, cv.clusters.Clustering]


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, finds the prompts that the models share, and clusters them."""
    for name in ("largest", "repeats"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=2)
    pairs = load()
    kinds, kind = validation.distinct_rows(pairs.prompts)
    models = np.asarray(pairs.labels.get("models", np.full(len(pairs), _ALL))).astype(str)
    having = {m: np.unique(kind[models == m]) for m in np.unique(models).tolist()}
    kept = {m: found for m, found in having.items() if len(found) >= _SHARE * kinds}
    every = [set(found.tolist()) for found in kept.values()] or [set()]
    shared = np.array(sorted(set.intersection(*every)))
    if len(shared) < 4:
        raise ValueError(f"the models have {len(shared)} prompts in common; at least 4 are needed.")
    generator = np.random.default_rng(seed)
    if len(shared) > options.largest:
        shared = np.sort(generator.choice(shared, options.largest, replace=False))
    counts = _counts(options.counts, len(shared))
    rows = {m: [np.flatnonzero((kind == p) & (models == m)) for p in shared.tolist()] for m in kept}
    first = np.array([of_prompt[0] for of_prompt in next(iter(rows.values()))])
    settings = Settings(
        data=pairs.description,
        prompts=len(shared),
        models=tuple(kept),
        left_out=tuple(m for m in having if m not in kept),
        counts=counts,
        repeats=options.repeats,
        bandwidths=choices.choose_scaled(pairs, options, seed),
    )
    keys = jax.random.split(jax.random.key(seed), len(counts))
    clusterings = {
        count: cv.clusters.k_means(pairs.prompts[first], count, key=key, restarts=options.repeats)
        for count, key in zip(counts, keys, strict=True)
    }
    arrays = {"outputs": pairs.outputs, "prompts": pairs.prompts, "models": models}
    return lab.Setup(settings, arrays, state=State(pairs, rows, first, clusterings))


def _counts(given: tuple[int, ...] | None, prompts: int) -> tuple[int, ...]:
    if given is None:
        spaced = np.geomspace(max(2, prompts / _COARSEST), prompts, _POINTS)
        return tuple(sorted(set(spaced.round().astype(int).tolist())))
    counts = tuple(sorted(set(given)))
    if counts[0] < 1 or counts[-1] > prompts:
        raise ValueError(
            f"--counts: expected numbers between 1 and the {prompts} prompts, received {counts}."
        )
    return counts


def cells(settings: Settings) -> list[Cell]:
    """Every model under every bandwidth."""
    return [Cell(m, scale) for scale in settings.bandwidths for m in settings.models]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Curves:
    """The scores of one model at every k, for every start of K-means."""
    settings, state = setup.settings, setup.state
    generator = np.random.default_rng(np.asarray(jax.random.key_data(context.shared_key)))
    kernels = settings.bandwidths[cell.scale].kernels()
    prompts = state.pairs.prompts[state.first]
    scores = np.empty((len(_ORDERS), 3, len(settings.counts), settings.repeats))
    for repeat in range(settings.repeats):
        drawn = np.array([generator.choice(rows) for rows in state.rows[cell.model]])
        outputs = state.pairs.outputs[drawn]
        for index, count in enumerate(settings.counts):
            answered = answers(prompts, state.clusterings[count].alternatives[repeat])
            decompose = functools.partial(cv.decompose, outputs[answered], prompts, **kernels)
            for order, value in enumerate(_ORDERS):
                scores[order, :, index, repeat] = decompose(order=value).scores
    agreement = [state.clusterings[count].agreement for count in settings.counts]
    return Curves(scores, np.array(agreement))


def answers(prompts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For each prompt the number of its cluster's medoid, whose output it gets, `[n]`.

    Args:
      prompts: `[n, d]`.
      labels: the cluster of each, `[n]`.
    """
    medoid = np.empty(len(prompts), int)
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        centre = prompts[members].mean(axis=0)
        nearest = np.argmin(np.sum((prompts[members] - centre) ** 2, axis=1))
        medoid[members] = members[nearest]
    return medoid


def table(run: lab.Run) -> Table:
    """Each score at the least and at the largest k, with its spread over the starts."""
    grid = Table("bandwidths", "model", "score", *map("k = {:,}".format, run.settings.counts))
    for cell, found in run.results.items():
        for name, (order, score) in _PANELS.items():
            values = found.scores[order, score]
            words = [f"{v.mean():.4g} +- {v.std(ddof=1):.2g}" for v in values]
            grid.add_row(cell.scale, cell.model, name, *words)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """A figure a data set: scores against k, a line a model, a row of panels a bandwidth."""
    return {_name(run): _figure(run) for run in runs}


def _name(run: lab.Run) -> str:
    """Of the figure: by the folder of the run, which names the data."""
    return run.folder.name.replace("-", "_")


def _figure(run: lab.Run) -> Figure:
    settings = run.settings
    figure, axes = style.panels(
        4 * len(settings.bandwidths), columns=4, size=(2.9, 2.5), sharex=True
    )
    for row, (scale, widths) in enumerate(settings.bandwidths.items()):
        for axis, (name, (order, score)) in zip(axes[4 * row :], _PANELS.items(), strict=False):
            for index, model in enumerate(settings.models):
                values = run.results[Cell(model, scale)].scores[order, score]
                axis.errorbar(
                    settings.counts,
                    values.mean(axis=1),
                    values.std(axis=1, ddof=1),
                    color=style.CYCLE[index % len(style.CYCLE)],
                    linestyle="-" if index < len(style.CYCLE) else "--",
                    marker=style.MARKERS[index % len(style.MARKERS)],
                    label=model,
                    linewidth=1,
                    markersize=3,
                )
            if row == 0:
                axis.set_title(name)
            if row == len(settings.bandwidths) - 1:
                axis.set_xlabel("clusters of prompts, k")
            style.log_counts(axis, settings.counts)
        named = f"bandwidths x {scale}" if widths.outputs is not None else "cosine kernel"
        axes[4 * row].set_ylabel(f"{named}\neffective number of modes")
    if len(settings.models) > 1:
        style.legend_above(figure, axes[0], columns=9)
    style.caption(figure, _caption(run))
    return figure


def _caption(run: lab.Run) -> str:
    settings = run.settings
    shared = " that every model has" if len(settings.models) > 1 else ""
    words = (
        f"{settings.data.rstrip('.')}. {settings.prompts:,} prompts{shared}, clustered by K-means; "
        "each is paired with one output of its cluster's medoid. Means, and one standard deviation "
        f"over {settings.repeats} starts and draws, seed {run.seed}."
    )
    if settings.left_out:
        words += f" Left out, with fewer than half of the prompts: {', '.join(settings.left_out)}."
    at_one = settings.bandwidths.get("1")
    if at_one is not None and at_one.outputs is not None:
        widths = f"{at_one.outputs:.3g} (outputs) and {at_one.prompts:.3g} (prompts)"
        words += f" Bandwidths at 1: {widths}, {at_one.rule}."
    return words


STUDY = lab.StudyRecord(
    name="prompt_clusters",
    version=1,
    question="What do finer clusters of prompts, each answered by one output, do to the scores?",
    reproduces="CV figs 4, 23; CV-early fig 4",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Curves,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((), ("--data=captions",), ("--data=gallery",)),
    figures=("prompt_clusters", "prompt_clusters_captions", "prompt_clusters_gallery"),
    more_labels=("models",),
)


if __name__ == "__main__":
    lab.main(STUDY)
