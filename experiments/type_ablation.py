"""Does the score see what the prompt leaves open? CV figures 5 and 16-18, CV-early 2, 3 and 12-23.

Photographs of j = 1, 2, ... types play the outputs of a model, once with prompts that name the type
and once with the same wordings that do not. Where the prompt leaves the type open, every type more
is diversity that the model adds, and the conditional scores should grow with j; where it is named,
they should not. Beside them are the scores without prompts and the averages over clusters of
prompts that CV G.1 compares with, clusters by the type that the prompt names and by K-means.

    python -m experiments.type_ablation --data=dogs
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import _extras, validation
from condvendi_jax.pairs import Pairs
from condvendi_jax.scores import clusters
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, choices, style
from experiments.lab.study import option

# So many photographs of a type, if there are: ten types take seconds a draw.
_PER_TYPE = 50
_PROMPTS = {
    "first": ("prompts", "typed_prompts"),
    "second": ("second_prompts", "second_typed_prompts"),
}
PROMPTINGS = ("type unspecified", "type specified")
FAMILIES = ("Vendi", "RKE")
ORDERS = (1, 2)
KINDS = ("Conditional-{}", "{}", "Cluster-{}", "K-means Cluster-{}")
SCORES = tuple(kind.format(family) for family in FAMILIES for kind in KINDS)
_RESAMPLES = 2000
_MARKED = (2, 5, 20, 50, 200, 500)  # On logarithmic axes, between the decades.


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    repeats: int = option(
        5, "Draws: the order of the types, the photographs of each, and the wording of each."
    )
    per_type: int | None = option(
        None,
        f"Outputs of each type in a draw; as many as the rarest type has, up to {_PER_TYPE}, if "
        "unset.",
    )
    prompts_by: str = option(
        "first",
        "Which embeddings of the prompts are taken: those of --prompts and --typed_prompts, or of "
        "--second_prompts and --second_typed_prompts.",
        choices=tuple(_PROMPTS),
    )
    restarts: int = option(10, "Starts of K-means, of which the best is taken.")
    model: str | None = option(
        None,
        "The outputs of one model alone, of those in --models; bandwidths are those of all of "
        "them. All outputs if unset.",
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on; `exchanged` says whether wordings are drawn anew.

    The name is that of the set and, after a comma, of the model where one is taken alone.
    """

    name: str
    data: str
    n: int
    types: tuple[str, ...]
    per_type: int
    exchanged: bool
    prompts_by: str
    repeats: int
    restarts: int
    bandwidths: dict[str, choices.Bandwidths]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One draw."""

    repeat: int


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of j = 1, 2, ... types, effective numbers of modes.

    Attributes:
      values: `[scales, promptings, scores, j]`, in the order of the settings' bandwidths, of
        `PROMPTINGS` and of `SCORES`.
      agreement: `[promptings]`: the adjusted Rand index between the best K-means clusters of all
        types and the types; 1 where they are the same, 0 at chance.
      stability: `[promptings]`: the mean of that index between the best start of K-means and the
        other ones, for all types.
    """

    values: np.ndarray
    agreement: np.ndarray
    stability: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the types and prompts, and chooses bandwidths that hold for both promptings."""
    for name in ("repeats", "restarts"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=1)
    pairs = load()
    given = {"prompts": pairs.prompts, **pairs.further}
    for role in _PROMPTS[options.prompts_by]:
        if role not in given:
            raise ValueError(
                f"--{role}: the study needs the prompts twice, with the type unspecified and with "
                f"the type named, by one encoder; {pairs.name} has {', '.join(given)}."
            )
    prompts = [given[role] for role in _PROMPTS[options.prompts_by]]
    if prompts[0].shape != prompts[1].shape:
        raise ValueError(
            f"{' and '.join(_PROMPTS[options.prompts_by])} must be of one encoder, received shapes "
            f"{prompts[0].shape} and {prompts[1].shape}."
        )
    if options.kernel == "cosine":  # Where a row may be refused, it is named as in its file.
        for rows in prompts:
            Pairs(pairs.outputs, rows, output_kernel=cv.Cosine(), prompt_kernel=cv.Cosine())
    pooled = PairedEmbeddings(
        pairs.name,
        outputs=np.concatenate([pairs.outputs] * 2),
        prompts=np.concatenate(prompts),
        description=pairs.description,
    )
    bandwidths = choices.choose_scaled(pooled, options, seed)
    if options.model is not None:
        kept = _rows_of(options.model, pairs)
        pairs, prompts = pairs.rows(kept), [embeddings[kept] for embeddings in prompts]
    types, counts = np.unique(pairs.labels["types"], return_counts=True)
    if len(types) < 2:
        raise ValueError(f"--types: expected at least two types, received {len(types)}.")
    per_type = min(int(counts.min()), _PER_TYPE) if options.per_type is None else options.per_type
    validation.check_count(per_type, name="--per_type", minimum=1)
    if per_type > counts.min():
        raise ValueError(
            f"--per_type: received {per_type}, but there are {counts.min()} of the type "
            f"{types[counts.argmin()]}."
        )
    one = options.model
    settings = Settings(
        name=pairs.name if one is None else f"{pairs.name}, {one}",
        data=pairs.description
        if one is None
        else f"{pairs.description.rstrip('.')}; the {len(pairs):,} of {one}",
        n=len(pairs),
        types=tuple(map(str, types)),
        per_type=per_type,
        exchanged="wording" in pairs.labels,
        prompts_by=options.prompts_by,
        repeats=options.repeats,
        restarts=options.restarts,
        bandwidths=bandwidths,
    )
    labels = {role: pairs.labels[role] for role in ("types", "wording") if role in pairs.labels}
    arrays = {"outputs": pairs.outputs, "prompts": prompts[0], "typed_prompts": prompts[1]}
    return lab.Setup(settings, {**arrays, **labels}, state=(pairs, prompts))


def _rows_of(model: str, pairs: PairedEmbeddings) -> np.ndarray:
    """Which pairs are of a model, booleans `[n]`.

    Raises:
      ValueError: none are, with the models that there are.
    """
    if "models" not in pairs.labels:
        raise ValueError(f"--model: {pairs.name} has no models; --models says whose outputs are.")
    models = pairs.labels["models"].astype(str)
    if model not in models:
        raise ValueError(f"--model: unknown {model!r}; known: {', '.join(np.unique(models))}.")
    return models == model


def cells(settings: Settings) -> list[Cell]:
    """Every draw."""
    return [Cell(repeat) for repeat in range(settings.repeats)]


def draw_rows(
    types: np.ndarray, per_type: int, *, exchanged: bool, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of outputs and of prompts of one draw, type after type in a random order.

    Args:
      types: of each pair, `[n]`.
      per_type: how many pairs of each type.
      exchanged: whether prompts are exchanged at random between the pairs of a type.
      seed: of the draw.

    Returns:
      Row numbers `[types * per_type]` of the outputs, and of the prompts that they get.
    """
    generator = np.random.default_rng(seed)
    outputs, prompts = [], []
    for name in generator.permutation(np.unique(types)):
        rows = np.flatnonzero(types == name)
        outputs.append(generator.permutation(rows)[:per_type])
        prompts.append(generator.permutation(rows)[:per_type] if exchanged else outputs[-1])
    return np.concatenate(outputs), np.concatenate(prompts)


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scores:
    """Every score of every number of types, for one draw at every multiple of the bandwidths."""
    settings: Settings = setup.settings
    pairs, prompts = setup.state
    rows, prompt_rows = draw_rows(
        pairs.labels["types"],
        settings.per_type,
        exchanged=settings.exchanged,
        seed=np.asarray(jax.random.key_data(context.key)).tolist(),
    )
    outputs, texts = pairs.outputs[rows], [embeddings[prompt_rows] for embeddings in prompts]
    types = np.repeat(range(len(settings.types)), settings.per_type)
    sizes = settings.per_type * np.arange(1, len(settings.types) + 1)
    with _extras.needed("clusters", package="scikit-learn", purpose="this study"):
        from sklearn.metrics import adjusted_rand_score
    context.say("K-means")
    means = [
        [by_k_means(t[:n], j, settings.restarts, context.key) for j, n in enumerate(sizes, start=1)]
        for t in texts
    ]
    values = [
        _values(outputs, texts, types, sizes, [[best for best, *_ in m] for m in means], kernels)
        for kernels in (widths.kernels() for widths in settings.bandwidths.values())
    ]
    return Scores(
        np.stack(values),
        agreement=np.array([adjusted_rand_score(types, m[-1][0]) for m in means]),
        stability=np.array(
            [np.mean([adjusted_rand_score(m[-1][0], o) for o in m[-1][1:]] or [1]) for m in means]
        ),
    )


def _values(
    outputs: np.ndarray,
    texts: Sequence[np.ndarray],
    types: np.ndarray,
    sizes: np.ndarray,
    means: Sequence[Sequence[np.ndarray]],
    kernels: dict[str, Any],
) -> np.ndarray:
    """`[promptings, scores, j]`."""
    by_types, *by_means = np.split(
        cluster_scores(
            outputs, [*(types[:n] for n in sizes), *means[0], *means[1]], kernels["output_kernel"]
        ),
        1 + len(texts),
        axis=1,
    )
    found = []
    for p, text in enumerate(texts):
        for f, curve in enumerate(cv.convergence_curve(outputs, text, sizes.tolist(), **kernels)):
            # A prompt that names no type names one category: one cluster, whose score is Vendi.
            named = by_types[f] if p else curve.vendi
            found += [curve.conditional, curve.vendi, named, by_means[p][f]]
    return np.reshape(found, (len(PROMPTINGS), len(SCORES), len(sizes)))


def cluster_scores(
    outputs: np.ndarray, labelings: Sequence[np.ndarray], kernel: cv.Kernel
) -> np.ndarray:
    """Cluster-Vendi and Cluster-RKE (CV G.1, the arithmetic mean) of several clusterings at once.

    Args:
      outputs: `[n, d]`.
      labelings: the clusters of the first outputs, each of integers from 0 on.
      kernel: of the outputs.

    Returns:
      `[families, labelings]`, effective numbers of modes.
    """
    lengths = np.array([len(labels) for labels in labelings])
    rows = np.concatenate([np.arange(n) for n in lengths])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    labels = owner * len(outputs) + np.concatenate(labelings)
    found = [
        clusters.scores_by_cluster(outputs[rows], labels, kernel=kernel, order=order)
        for order in ORDERS
    ]
    return np.stack(
        [
            np.bincount(f.names // len(outputs), f.sizes * np.asarray(f.scores)) / lengths
            for f in found
        ]
    )


def by_k_means(points: np.ndarray, k: int, restarts: int, key: jax.Array) -> np.ndarray:
    """The clusters of each start of K-means `[restarts, n]`, the best first.

    There are k, or fewer where there are fewer distinct points.
    """
    distinct = len(np.unique(points, axis=0))
    return cv.clusters.k_means(points, min(k, distinct), key=key, restarts=restarts).alternatives


def values(run: lab.Run, scale: str) -> np.ndarray:
    """The scores at one multiple of the bandwidths, `[draws, promptings, scores, j]`."""
    index = list(run.settings.bandwidths).index(scale)
    return np.stack([found.values[index] for found in run.results.values()])


def spread(draws: np.ndarray) -> np.ndarray:
    """The standard deviation over draws `[draws, ...]`; NaN where there is one draw."""
    return np.std(draws, axis=0, ddof=1) if len(draws) > 1 else np.full(draws.shape[1:], np.nan)


def growth(draws: np.ndarray, score: str) -> tuple[np.ndarray, np.ndarray]:
    """How many times the score of all types is that of one: mean and spread, `[promptings]`."""
    of = draws[:, :, SCORES.index(score)]
    ratio = of[:, :, -1] / of[:, :, 0].mean(axis=0)
    return ratio.mean(axis=0), spread(ratio)


def correlation(
    draws: np.ndarray, family: str, clusters: str, prompting: str | None, seed: int
) -> tuple[float, float, float]:
    """Pearson's correlation over j of the conditional score with the one by clusters.

    Args:
      draws: `[draws, promptings, scores, j]`.
      family: of `FAMILIES`.
      clusters: 'Cluster' or 'K-means Cluster'.
      prompting: of `PROMPTINGS`; None takes the models of both together.
      seed: of the bootstrap.

    Returns:
      The mean over the draws of the correlation within a draw, and its 95% interval by a bootstrap
      over draws; NaN where a score does not change beyond rounding.
    """
    taken = slice(None) if prompting is None else [PROMPTINGS.index(prompting)]
    x, y = (
        draws[:, taken, SCORES.index(name)].reshape(len(draws), -1)
        for name in (f"{clusters}-{family}", f"Conditional-{family}")
    )
    if any(agreement.levels(row).max() == 0 for row in (*x, *y)):
        return np.nan, np.nan, np.nan
    x, y = (v - v.mean(axis=1, keepdims=True) for v in (x, y))
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    within = np.sum(x * y, axis=1) / norms
    resampled = np.random.default_rng(seed).integers(len(draws), size=(_RESAMPLES, len(draws)))
    low, high = np.quantile(within[resampled].mean(axis=1), (0.025, 0.975))
    return float(within.mean()), float(low), float(high)


def table(run: lab.Run) -> Table:
    """The scores of one and of all types, and the correlations, at every multiple."""
    last = len(run.settings.types)
    grid = Table("bandwidths", "", *PROMPTINGS)
    for scale in run.settings.bandwidths:
        draws = values(run, scale)
        mean, error = draws.mean(axis=0), spread(draws)
        for index, score in enumerate(SCORES):
            cells = (
                f"{mean[p, index, 0]:.3g} -> {mean[p, index, -1]:.3g} ± {error[p, index, -1]:.2g}"
                for p in range(len(PROMPTINGS))
            )
            grid.add_row(scale, f"{score}, 1 -> {last} types", *cells)
        for family in FAMILIES:
            for kind in ("Cluster", "K-means Cluster"):
                found = (
                    "{:.3f} ({:.3f}, {:.3f})".format(
                        *correlation(draws, family, kind, prompting, run.seed)
                    )
                    for prompting in PROMPTINGS
                )
                grid.add_row(scale, f"correlation with {kind}-{family}", *found)
    for field, words in (
        ("agreement", "adjusted Rand index of K-means clusters and types"),
        ("stability", "the same, of one start of K-means and another"),
    ):
        found = np.mean([getattr(result, field) for result in run.results.values()], axis=0)
        grid.add_row("-", words, *(f"{value:.2f}" for value in found))
    return grid


def _shown(run: lab.Run) -> str:
    return choices.shown(run.settings.bandwidths)


def _used(run: lab.Run) -> choices.Bandwidths:
    return run.settings.bandwidths[_shown(run)]


def _label(run: lab.Run) -> str:
    return _with_encoder(run, " (second encoder)")


def _with_encoder(run: lab.Run, words: str) -> str:
    """The name of a run's data, and some words where the prompts are by the second encoder."""
    return run.settings.name + (words if run.settings.prompts_by == "second" else "")


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """A figure of each data set, the growth and correlations of all, and models side by side."""
    named = {_with_encoder(run, "_second").replace(", ", "_"): run for run in runs}
    figures = {f"type_ablation_{name}": _scores_figure(run) for name, run in named.items()}
    whole = [run for run in runs if not _set_and_model(run)[1]]
    if whole:
        figures["type_ablation_bandwidths"] = _growth_figure(whole)
        figures["type_ablation_correlation"] = _correlation_figure(whole)
    for name in dict.fromkeys(_set_and_model(run)[0] for run in runs if run not in whole):
        of_set = [run for run in runs if run not in whole and _set_and_model(run)[0] == name]
        figures[f"type_ablation_{name}"] = _models_figure(of_set)
    return figures


def _set_and_model(run: lab.Run) -> tuple[str, str]:
    """The set, and the model of it that is taken alone; '' where none is."""
    name, _, model = run.settings.name.partition(", ")
    return name, model


def _scores_figure(run: lab.Run) -> Figure:
    """Type unspecified above, specified below; a column a score (CV figs 5 and 16-18)."""
    draws = values(run, _shown(run))
    mean, error = draws.mean(axis=0), spread(draws)
    j = np.arange(1, mean.shape[-1] + 1)
    columns = [(family, kind) for family in FAMILIES for kind in KINDS[:3]]
    figure, axes = style.panels(
        2 * len(columns), columns=len(columns), size=(2.0, 2.2), sharex=True, sharey="col"
    )
    for index, panel in enumerate(axes):
        row, column = divmod(index, len(columns))
        family, kind = columns[column]
        names = [kind.format(family)]
        if kind == KINDS[2]:
            names.append(KINDS[3].format(family))
        for name in names:
            score = SCORES.index(name)
            look: dict[str, Any] = {"color": style.score_colour(name)}
            panel.plot(j, mean[row, score], "--" if "K-means" in name else "-", **look)
            ends = (mean[row, score] + sign * error[row, score] for sign in (-1, 1))
            panel.fill_between(j, *ends, alpha=0.3, linewidth=0, **look)
        if row == 0:
            panel.set_title(names[0])
        else:
            panel.set_xlabel("number of types j")
        if column == 0:
            panel.set_ylabel(PROMPTINGS[row])
    for panel in axes:
        panel.set_ylim(0, None)
        panel.set_xticks(_ticks(len(j)))
    settings = run.settings
    style.caption(
        figure,
        f"{settings.data.rstrip('.')}. {_second(settings)}{_draws_in_words(run)}: means, and one "
        f"standard deviation as a band. Clusters: by the type that the prompt names (solid; one "
        f"cluster where it names none) and by K-means of the prompts' embeddings with k = j "
        f"(dashed). {_kernels_in_words(run)}.",
    )
    return figure


def _kernels_in_words(run: lab.Run) -> str:
    used = _used(run)
    if used.outputs is None:
        return "cosine kernel"
    widths = f"Gaussian bandwidths {used.outputs:.3g} (outputs) and {used.prompts:.3g} (prompts)"
    return f"{widths}. {choices.describe({'': used})}"


def _models_figure(runs: Sequence[lab.Run]) -> Figure:
    """A column a model, a row a score: prompts that leave the type open, and that name it."""
    names = [kind.format(family) for family in FAMILIES for kind in KINDS[:2]]
    figure, axes = style.panels(
        len(names) * len(runs), columns=len(runs), size=(2.9, 1.9), sharex=True, sharey="row"
    )
    for index, panel in enumerate(axes):
        row, column = divmod(index, len(runs))
        run, name = runs[column], names[row]
        draws = values(run, _shown(run))[:, :, SCORES.index(name)]
        mean, error = draws.mean(axis=0), spread(draws)
        j = np.arange(1, mean.shape[-1] + 1)
        colour = style.score_colour(name)
        for p, line in enumerate(("-", "--")):
            panel.plot(j, mean[p], line, color=colour, label=PROMPTINGS[p])
            ends = (mean[p] + sign * error[p] for sign in (-1, 1))
            panel.fill_between(j, *ends, alpha=0.3, linewidth=0, color=colour)
        panel.set_ylim(0, None)
        panel.set_xticks(_ticks(len(j)))
        if row == 0:
            panel.set_title(_set_and_model(run)[1])
        if row == len(names) - 1:
            panel.set_xlabel("number of types j")
        if column == 0:
            panel.set_ylabel(name)
    axes[0].legend()
    first = runs[0].settings
    style.caption(
        figure,
        f"{first.data.rpartition('; the ')[0]}. A column a model. {_second(first)}"
        f"{_draws_in_words(runs[0])}: means, and one standard deviation as a band. Without prompts "
        f"both are the same outputs. {_kernels_in_words(runs[0])}, on all models together.",
    )
    return figure


def _ticks(count: int) -> list[int]:
    step = max(1, -(-count // 5))
    return list(range(step, count + 1, step))


def _second(settings: Settings) -> str:
    return "Prompts by the second encoder. " if settings.prompts_by == "second" else ""


def _draws_in_words(run: lab.Run) -> str:
    settings: Settings = run.settings
    what = "the order of types, outputs" + (" and wordings" if settings.exchanged else "")
    return f"{settings.repeats} draws (seed {run.seed}) of {what}, {settings.per_type} a type"


def _growth_figure(runs: Sequence[lab.Run]) -> Figure:
    """How many times the score of all types is that of one, against the bandwidths."""
    names = [kind.format(family) for family in FAMILIES for kind in KINDS[:2]]
    figure, axes = style.panels(len(names), columns=4, size=(2.7, 3.0), sharex=True, sharey=True)
    for panel, name in zip(axes, names, strict=True):
        for run, colour in zip(runs, _colours(runs), strict=True):
            scales = list(run.settings.bandwidths)
            found = [growth(values(run, scale), name) for scale in scales]
            mean, error = (np.stack(part) for part in zip(*found, strict=True))
            for p, (line, face) in enumerate((("-", colour), ("--", "white"))):
                panel.errorbar(
                    scales,
                    mean[:, p],
                    error[:, p],
                    color=colour,
                    linestyle=line,
                    marker="o",
                    markerfacecolor=face,
                    label=f"{_label(run)}, {PROMPTINGS[p]}",
                )
        panel.set(title=name, xlabel="multiple of the bandwidths", yscale="log")
        style.log_numbers(panel.yaxis)
        panel.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if value in _MARKED else "")
    axes[0].set_ylabel("score of all types / score of one")
    style.legend_above(figure, axes[0], columns=3)
    style.caption(
        figure,
        f"{_names(runs)}; {_draws_in_words(runs[0])}: means, and one standard deviation. "
        f"{_widths(runs)}.",
    )
    return figure


def _correlation_figure(runs: Sequence[lab.Run]) -> Figure:
    """Conditional- against Cluster-scores, a point a number of types (CV-early figs 22 and 23)."""
    figure, axes = style.panels(4, columns=2, size=(4.4, 3.6))
    columns = [(family, kind) for family in FAMILIES for kind in ("Cluster", "K-means Cluster")]
    for panel, (family, kind) in zip(axes, columns, strict=True):
        names = f"{kind}-{family}", f"Conditional-{family}"
        for row, (run, colour) in enumerate(zip(runs, _colours(runs), strict=True)):
            draws = values(run, _shown(run))
            x, y = (draws.mean(axis=0)[:, SCORES.index(name)] for name in names)
            for p, face in enumerate((colour, "white")):
                look: dict[str, Any] = {"color": colour, "markerfacecolor": face}
                panel.plot(x[p], y[p], "o", label=f"{_label(run)}, {PROMPTINGS[p]}", **look)
            found = [correlation(draws, family, kind, p, run.seed) for p in (*PROMPTINGS, None)]
            words = ", ".join(f"{r:.2f}" for r, _, _ in found)
            panel.text(
                0.98,
                0.03 + 0.06 * (len(runs) - 1 - row),
                "r = {}  ({:.2f} to {:.2f})".format(words, *found[-1][1:]),
                transform=panel.transAxes,
                color=colour,
                fontsize=7.5,
                ha="right",
            )
        panel.set(xlabel=names[0], ylabel=names[1], xscale="log", yscale="log")
        low, high = panel.get_ylim()
        panel.set_ylim(low * (low / high) ** (0.07 * len(runs)), high)  # Room for the words.
        for axis in (panel.xaxis, panel.yaxis):
            style.log_numbers(axis)
            axis.set_minor_formatter(lambda value, _: f"{value:g}" if value in _MARKED else "")
    style.legend_above(figure, axes[0], columns=3)
    style.caption(
        figure,
        f"{_names(runs)}; j = 1, 2, ... types. r: Pearson's correlation over j within a draw, the "
        "mean of the draws, of the prompts that leave the type open, of those that name it, and "
        "of both together, this with its 95% interval by a bootstrap over draws. "
        f"{_draws_in_words(runs[0])}. {_widths(runs)}.",
    )
    return figure


def _colours(runs: Sequence[lab.Run]) -> list[str]:
    return [style.CYCLE[index % len(style.CYCLE)] for index in range(len(runs))]


def _names(runs: Sequence[lab.Run]) -> str:
    if len(runs) == 1:
        return runs[0].settings.data.rstrip(".")
    return ", ".join(f"{_label(r)} (n = {r.settings.n:,})" for r in runs)


def _widths(runs: Sequence[lab.Run]) -> str:
    """The bandwidths of each run where they are drawn in full, and how they were chosen."""
    known = [(run, _used(run)) for run in runs]
    found = [(_label(run), used) for run, used in known if used.outputs is not None]
    if not found:
        return "Cosine kernel"
    each = ", ".join(f"{label} {b.outputs:.3g} / {b.prompts:.3g}" for label, b in found)
    rules = dict.fromkeys(used.rule.partition(" of ")[0] for _, used in found)
    return f"Bandwidths: {'; '.join(rules)} (outputs / prompts): {each}"


def variant(options: Options) -> str:
    """The model that is taken alone, and 'second' for the second encoder of prompts."""
    model = re.sub(r"[^\w.+]+", "_", options.model or "")
    second = "second" if options.prompts_by == "second" else ""
    return "-".join(filter(None, (model, second)))


STUDY = lab.StudyRecord(
    name="type_ablation",
    version=1,
    question="Do conditional scores see the diversity that prompts leave open, and only that?",
    reproduces="CV figs 5, 16-18; CV-early figs 2, 3, 12-23",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Scores,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    variant=variant,
    data="dogs",
    labels=("types",),
    more_labels=("wording", "models"),
    further=("typed_prompts", "second_prompts", "second_typed_prompts"),
    committed=(
        (),
        ("--data=fruits",),
        ("--data=clothing",),
        ("--data=animals",),
        ("--data=objects",),
        ("--prompts_by=second",),
        *(("--data=sketched_animals", f"--model={model}") for model in ("0.1", "0.55", "1")),
    ),
    figures=(
        *(f"type_ablation_{name}" for name in ("dogs", "fruits", "clothing", "animals", "objects")),
        "type_ablation_dogs_second",
        "type_ablation_sketched_animals",
        *(f"type_ablation_sketched_animals_{model}" for model in ("0.1", "0.55", "1")),
        "type_ablation_bandwidths",
        "type_ablation_correlation",
    ),
)


if __name__ == "__main__":
    lab.main(STUDY)
