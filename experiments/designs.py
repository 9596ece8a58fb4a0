"""How many designs a prompt has: the conditional scores where the answer is known.

Of every prompt k = 1, 2, ... different outputs are kept. A score that counts what the model adds
should say k, or as much of k as the outputs of one prompt differ. Two prompt bandwidths are tried:
the rule's, under which prompts blend, and one so small that no two prompts do.

    python -m experiments.designs --most=5
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from scipy import special
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax import inference, spectra, validation
from condvendi_jax.pairs import Pairs
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option

ORDERS = (1.0, 2.0, math.inf)
NAMES = ("Conditional-Vendi", "Conditional-RKE", "Conditional-Vendi, order inf")
BLENDED, APART = "rule", "apart"
_WORDS = {BLENDED: "prompts by the rule", APART: "prompts told apart"}
# Prompts that enough of make a score of.
_ENOUGH = 100
# The nearest two prompts are so many bandwidths apart: their kernel value is exp(-18).
_DISTANCE = 6.0


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    most: int | None = option(
        None,
        "The largest number of outputs a prompt; prompts that have fewer take no part. As many as "
        f"{_ENOUGH} prompts have if unset.",
    )
    draws: int = option(5, "Random choices of the models (or outputs) and of the prompts.")
    rows: int | None = option(
        None,
        "Pairs, the same whatever the number of outputs a prompt; as many as prompts if unset.",
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the curves depend on."""

    data: str
    prompts: int
    most: int
    draws: int
    rows: int
    bandwidths: dict[str, choices.Bandwidths]
    apart: float | None
    models: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A scale of the bandwidths, which prompt bandwidth, and one random choice."""

    scale: str
    prompts: str
    draw: int


@dataclasses.dataclass(frozen=True)
class Counts:
    """The scores of k = 1 ... most outputs a prompt.

    Attributes:
      sizes: `[k]`, the pairs of the scores of one n.
      conditional: `[orders, k]`, at one n: the more outputs a prompt, the fewer prompts.
      errors: `[k]`, of the second order there, by the jackknife over prompts.
      all_prompts: `[k]`, order 2 on all prompts, whose n grows with k; in the first draw only.
      all_errors: `[k]`, of these by the jackknife.
      mean_within: `[2, k]`, the mean over all prompts of the Vendi and the RKE of a prompt's own
        outputs.
      alike: `[models, models]`, the mean over all prompts of the squared kernel of two models'
        outputs; of no size where it is not one output of each.
    """

    sizes: np.ndarray
    conditional: np.ndarray
    errors: np.ndarray
    all_prompts: np.ndarray
    all_errors: np.ndarray
    mean_within: np.ndarray
    alike: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Takes the prompts with enough outputs, and chooses the bandwidths on their pairs."""
    validation.check_count(options.draws, name="--draws", minimum=1)
    loaded = load()
    prompt = _prompts(loaded)
    counts = np.bincount(prompt)
    most = _most(counts) if options.most is None else options.most
    validation.check_count(most, name="--most", minimum=2)
    kept = np.flatnonzero(counts >= most)
    if len(kept) < most:
        raise ValueError(
            f"--most={most}: {len(kept)} prompts have so many outputs, expected at least {most}."
        )
    rows = len(kept) if options.rows is None else options.rows
    if not most * 2 <= rows <= len(kept):
        raise ValueError(
            f"--rows: expected a number between {2 * most} (two prompts of --most) and the "
            f"{len(kept)} prompts that have {most} outputs, received {rows}."
        )
    chosen = np.isin(prompt, kept)
    pairs = loaded.rows(chosen)
    prompt = np.searchsorted(kept, prompt[chosen])
    bandwidths = choices.choose_scaled(pairs, options, seed)
    settings = Settings(
        data=loaded.description,
        prompts=len(kept),
        most=most,
        draws=options.draws,
        rows=rows,
        bandwidths=bandwidths,
        apart=None if "cosine" in bandwidths else _apart(pairs.prompts),
        models=_models(pairs, prompt),
    )
    return lab.Setup(settings, loaded.arrays, state=(pairs, prompt))


def _prompts(pairs: PairedEmbeddings) -> np.ndarray:
    """The number of every pair's prompt, `[n]`.

    Raises:
      ValueError: labels and embeddings do not agree on which pairs have one prompt.
    """
    label = np.unique(pairs.labels["prompt"], return_inverse=True)[1]
    count, embedded = validation.distinct_rows(pairs.prompts)
    together = len(np.unique(np.stack([label, embedded]), axis=1).T)
    if not together == count == label.max() + 1:
        raise ValueError(
            f"--prompt: {label.max() + 1} labels for {count} different rows of the prompts; pairs "
            "of one prompt have one label and identical rows."
        )
    return label


def _most(counts: np.ndarray) -> int:
    """The largest number of outputs that enough prompts have, or half of them where few are."""
    needed = min(_ENOUGH, -(-len(counts) // 2))
    return int(np.sort(counts)[::-1][needed - 1])


def _apart(prompts: np.ndarray) -> float:
    """The prompt bandwidth under which the nearest two prompts have nothing in common."""
    distinct = np.unique(prompts, axis=0).astype(np.float64)
    return float(distance.pdist(distinct).min()) / _DISTANCE


def _models(pairs: PairedEmbeddings, prompt: np.ndarray) -> tuple[str, ...]:
    """The models, where each of them has one output of every prompt; none otherwise."""
    if "models" not in pairs.labels:
        return ()
    names, model = np.unique(pairs.labels["models"], return_inverse=True)
    counts = np.zeros((prompt.max() + 1, len(names)), int)
    np.add.at(counts, (prompt, model), 1)
    return tuple(map(str, names)) if np.all(counts == 1) else ()


def cells(settings: Settings) -> list[Cell]:
    """Every scale, with prompts blended and apart, and every draw."""
    kinds = (BLENDED,) if settings.apart is None else (BLENDED, APART)
    return [
        Cell(scale, kind, draw)
        for scale in settings.bandwidths
        for kind in kinds
        for draw in range(settings.draws)
    ]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Counts:
    """The scores of every number of outputs a prompt."""
    settings: Settings = setup.settings
    pairs, prompt = setup.state
    draw = np.random.default_rng((int(jax.random.bits(context.shared_key)), cell.draw))
    designs = in_random_order(pairs, prompt, draw)[:, : settings.most]
    bandwidths = settings.bandwidths[cell.scale]
    if cell.prompts == APART:
        bandwidths = dataclasses.replace(bandwidths, prompts=settings.apart)
    found: dict[str, list] = {f.name: [] for f in dataclasses.fields(Counts)}
    for k in range(1, settings.most + 1):
        context.say(f"{k} outputs a prompt")
        few, every = designs[: settings.rows // k, :k], designs[:, :k]
        points = _points(pairs, few, bandwidths)
        computed = spectra.compute(points, [cv.Entropy(order=o) for o in ORDERS], cv.Exact())
        found["sizes"].append(points.n)
        found["conditional"].append([math.exp(c.values.joint - c.values.prompts) for c in computed])
        found["errors"].append(_order_two(points, few, context.shared_key)[1])
        if cell.draw == 0:
            points = _points(pairs, every, bandwidths)
            whole, error = _order_two(points, every, context.shared_key)
            found["all_prompts"].append(whole)
            found["all_errors"].append(error)
    by_k = {name: np.array(values, float).T for name, values in found.items()}
    grams = _grams(jnp.asarray(pairs.outputs[designs]), bandwidths.kernels()["output_kernel"])
    within = [_means_within(grams[:, :k, :k]) for k in range(1, settings.most + 1)]
    alike = np.zeros((0, 0))
    if settings.models:
        in_order = np.argsort(pairs.labels["models"][designs[0]])
        alike = np.mean(grams**2, axis=0)[np.ix_(in_order, in_order)]
    by_k.update(sizes=by_k["sizes"].astype(int), mean_within=np.array(within).T, alike=alike)
    return Counts(**by_k)


def in_random_order(
    pairs: PairedEmbeddings, prompt: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """The rows of every prompt, prompts and models in random orders, `[prompts, least count]`.

    Where outputs have models, their order is the same for every prompt.
    """
    order = generator.permutation(prompt.max() + 1)
    names, model = np.unique(pairs.labels.get("models", np.zeros(len(pairs))), return_inverse=True)
    rank = generator.permutation(len(names))[model] + generator.uniform(size=len(pairs))
    least = np.bincount(prompt).min()
    by_prompt = np.split(np.lexsort((rank, prompt)), np.cumsum(np.bincount(prompt))[:-1])
    return np.stack([by_prompt[p][:least] for p in order])


def _points(pairs: PairedEmbeddings, designs: np.ndarray, bandwidths: choices.Bandwidths) -> Pairs:
    """The pairs of some designs `[prompts, k]`, prompt by prompt."""
    arrays = [jnp.asarray(a[designs.ravel()]) for a in (pairs.outputs, pairs.prompts)]
    suited = [
        kernel.suited_to(array)
        for kernel, array in zip(bandwidths.kernels().values(), arrays, strict=True)
    ]
    return Pairs.trusted(tuple(arrays), tuple(suited), n=designs.size)


def _order_two(points: Pairs, designs: np.ndarray, key: jax.Array) -> tuple[float, float]:
    """Conditional-RKE and its error by the jackknife over at most 20 groups of prompts."""
    prompts, k = designs.shape
    membership = np.repeat(np.asarray(jax.random.permutation(key, prompts)) % min(20, prompts), k)
    groups = inference.group_rows(points.n, membership)
    found = inference.delete_groups(points, cv.renyi(2), groups)
    return float(found.decomposition.conditional), float(found.errors().conditional)


def _grams(designs: jax.Array, kernel: cv.Kernel) -> np.ndarray:
    """The kernel among the outputs of each prompt `[prompts, k, d]`, `[prompts, k, k]`."""
    pairwise = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))
    return np.asarray(jax.lax.map(lambda own: pairwise(own, own), designs), np.float64)


def _means_within(grams: np.ndarray) -> tuple[float, float]:
    """The means over prompts of the Vendi and the RKE of Grams `[prompts, k, k]`."""
    values = np.linalg.eigvalsh(grams / grams.shape[1])
    vendi = np.exp(np.sum(special.entr(np.maximum(values, 0)), axis=1))
    return float(vendi.mean()), float(np.mean(1 / np.sum(values**2, axis=1)))


def curves(run: lab.Run, scale: str, prompts: str) -> list[Counts]:
    """What every draw gave."""
    wanted = (scale, prompts)
    return [found for cell, found in run.results.items() if (cell.scale, cell.prompts) == wanted]


def kinds(run: lab.Run) -> list[str]:
    """The prompt bandwidths of a run."""
    return list(dict.fromkeys(cell.prompts for cell in run.results))


def spread(values: np.ndarray) -> np.ndarray:
    """The standard deviation over the draws, the first axis; NaN of one."""
    return np.std(values, axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)


def table(run: lab.Run) -> Table:
    """How much of the largest known count each score finds, and the errors."""
    most = run.settings.most
    grid = Table(
        "scale", "prompts", "score", "of 2", f"of {most}", "draws", "prompts' error", "share"
    )
    for scale in run.settings.bandwidths:
        for prompts in kinds(run):
            found = curves(run, scale, prompts)
            conditional = np.stack([f.conditional for f in found])
            means, sds = conditional.mean(axis=0), spread(conditional)
            error = np.sqrt(np.mean([f.errors[-1] ** 2 for f in found]))
            for index, name in enumerate(NAMES):
                shown = [f"{means[index, 1]:.3f}", f"{means[index, -1]:.3f}"]
                jackknife = f"{error:.2g}" if index == 1 else ""
                share = f"{means[index, -1] / most:.0%}"
                grid.add_row(
                    scale, prompts, name, *shown, f"{sds[index, -1]:.2g}", jackknife, share
                )
            for name, values in (
                ("Conditional-RKE, all prompts", [found[0].all_prompts]),
                ("mean Vendi of a prompt", [f.mean_within[0] for f in found]),
                ("mean RKE of a prompt", [f.mean_within[1] for f in found]),
            ):
                mean, sd = np.mean(values, axis=0), spread(np.array(values))
                row = [
                    f"{mean[1]:.3f}",
                    f"{mean[-1]:.3f}",
                    f"{sd[-1]:.2g}",
                    "",
                    f"{mean[-1] / most:.0%}",
                ]
                grid.add_row(scale, prompts, name, *row)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The scores against the known count, and which models' outputs are alike."""
    figures = {}
    for run in runs:
        figures[run.folder.name] = _figure(run)
        if run.settings.models:
            figures[f"{run.folder.name}_pairs"] = _pairs(run)
    return figures


def _figure(run: lab.Run) -> Figure:
    """Prompt bandwidths in rows, scales in columns."""
    scales = list(run.settings.bandwidths)
    rows = kinds(run)
    figure, axes = style.panels(
        len(scales) * len(rows), columns=len(scales), size=(3.4, 3.0), sharex=True, sharey=True
    )
    panels = np.array(axes, object).reshape(len(rows), -1)
    for prompts, row in zip(rows, panels, strict=True):
        for scale, panel in zip(scales, row, strict=True):
            _panel(panel, run, scale, prompts)
    for panel in panels[-1]:
        panel.set_xlabel("known count: outputs a prompt")
    for panel in panels[:, 0]:
        panel.set_ylabel("effective number of modes")
    style.legend_above(figure, panels[0, 0], columns=3)
    style.caption(figure, _caption(run))
    return figure


def _panel(panel: Axes, run: lab.Run, scale: str, prompts: str) -> None:
    found = curves(run, scale, prompts)
    k = np.arange(1, run.settings.most + 1)
    panel.plot(k, k, color=style.GREY, linewidth=0.8, label="score = known count")
    conditional = np.stack([f.conditional for f in found])
    colours = (style.BLUE, style.VERMILION, style.GREEN)
    for index, (name, colour) in enumerate(zip(NAMES, colours, strict=True)):
        mean, sd = conditional[:, index].mean(axis=0), np.nan_to_num(spread(conditional[:, index]))
        panel.errorbar(
            k, mean, sd, color=colour, marker=style.MARKERS[index], capsize=2, label=name
        )
    whole, error = found[0].all_prompts, found[0].all_errors
    panel.plot(
        k, whole, color=style.VERMILION, linestyle=(0, (1, 1.2)), label=f"{NAMES[1]}, all prompts"
    )
    panel.fill_between(k, whole - error, whole + error, color=style.VERMILION, alpha=0.25)
    within = np.mean([f.mean_within[1] for f in found], axis=0)
    panel.plot(
        k,
        within,
        color=style.BLACK,
        linestyle=(0, (4, 1.5)),
        label="mean RKE of a prompt's outputs",
    )
    bandwidths = run.settings.bandwidths[scale]
    title = "cosine kernel"
    if bandwidths.outputs is not None:
        width = bandwidths.prompts if prompts == BLENDED else run.settings.apart
        title = (
            f"{_WORDS[prompts]} ({width:.2g}),\noutputs at {scale} of it ({bandwidths.outputs:.2g})"
        )
    panel.set(title=title, xticks=k)


def _pairs(run: lab.Run) -> Figure:
    """What two models' outputs of one prompt count for, where prompts are told apart."""
    models = run.settings.models
    scales = list(run.settings.bandwidths)
    figure, axes = style.panels(len(scales), columns=len(scales), size=(4.6, 4.2), sharey=True)
    for panel, scale in zip(axes, scales, strict=True):
        score = 2 / (1 + curves(run, scale, kinds(run)[-1])[0].alike)
        panel.imshow(score, vmin=1, vmax=2, cmap="viridis")
        for i, j in np.ndindex(score.shape):
            colour = "white" if score[i, j] < 1.6 else "black"
            panel.text(
                j, i, f"{score[i, j]:.2f}", ha="center", va="center", fontsize=6, color=colour
            )
        panel.set_xticks(range(len(models)), models, rotation=60, ha="right")
        panel.set_yticks(range(len(models)), models)
        panel.grid(False)
        panel.set_title(f"outputs at {scale} of the rule's")
    style.caption(
        figure,
        f"{run.settings.data.rstrip('.')}; {run.settings.prompts:,} prompts that all models "
        f"answer, told apart. Conditional-RKE of the outputs of two models: 1 where they are the "
        f"same, 2 where they have nothing in common. {choices.describe(run.settings.bandwidths)}.",
    )
    return figure


def _caption(run: lab.Run) -> str:
    settings = run.settings
    parts = [
        f"{settings.data.rstrip('.')}; the {settings.prompts:,} prompts with {settings.most} "
        f"outputs or more, n = {settings.rows:,} at every count but where all prompts are taken, "
        f"seed {run.seed}",
        f"Error bars: one standard deviation over {settings.draws} random choices of models and "
        "prompts; band: jackknife over prompts",
        choices.describe(settings.bandwidths),
    ]
    if settings.apart is not None:
        parts.append(f"Told apart: the nearest two prompts are {_DISTANCE:g} bandwidths apart")
    return ". ".join(filter(None, parts)) + "."


STUDY = lab.StudyRecord(
    name="designs",
    version=1,
    question="Do the conditional scores count the designs of a prompt?",
    reproduces="-",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Counts,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("designs", "designs_pairs"),
    labels=("prompt",),
    more_labels=("models",),
)


if __name__ == "__main__":
    lab.main(STUDY)
