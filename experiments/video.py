"""Which text-to-video model is more diverse: CV figures 8 and 22, CV-early figures 6 and 24.

The papers set the models side by side as columns over their Conditional- and Information-Vendi. So
does this study, on clips of the same prompts, with the RKE scores, errors and paired differences.
A clip is the mean and the spread of its frames' features; what the motion adds is seen against the
mean alone and against one frame that stands still. Sources whose models have several clips a prompt
are scored with one of them, two and so on as well.

    python -m experiments.video --groups=10
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from condvendi_jax import report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, models, style
from experiments.lab.study import option

CLIPS = "clips"
_NAMES = {CLIPS: "mean and spread", "means": "mean only", "stills": "one frame, standing still"}
_COLOURS = dict(zip(_NAMES, (style.BLUE, style.ORANGE, style.GREEN), strict=True))
_EVERYTHING = "all"
# The papers' two scores, at both orders.
_SHOWN = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")

_BARS = (
    "Bars: 95% intervals, jackknife over groups of prompts. Models that share a letter cannot be "
    f"told apart at {models.LEVEL:g} (Holm)."
)


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    groups: int = option(20, "Groups of prompts that the jackknife leaves out, one at a time.")


@dataclasses.dataclass(frozen=True)
class Part:
    """What is compared with each other: the clips of one source.

    Attributes:
      models: in the order in which they occur.
      prompts: how many different prompts they have.
      clips: the least number of clips of a prompt that a model has.
      bandwidths: by the scale, chosen on all clips of the source together.
    """

    models: tuple[str, ...]
    prompts: int
    clips: int
    bandwidths: dict[str, choices.Bandwidths]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on."""

    data: str
    parts: dict[str, Part]
    embeddings: tuple[str, ...]
    groups: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """One source, one embedding of its clips, the bandwidths of one scale."""

    source: str
    embedding: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Result(models.ModelScores):
    """The scores of a source's models.

    Attributes:
      by_clips: with k = 1, 2 ... K clips of each prompt, `[scores, m, K, K]`: the last axis is
        which of a prompt's clips are taken, k in a row from each on.
    """

    by_clips: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, and chooses the bandwidths of every source."""
    validation.check_count(options.groups, name="--groups", minimum=2)
    pairs = load()
    parts = {name: _part(own, options, seed) for name, own in by_source(pairs)}
    embeddings = (CLIPS, *(role for role in _NAMES if role in pairs.further))
    settings = Settings(pairs.description, parts, embeddings, options.groups)
    return lab.Setup(settings, pairs.arrays, state=dict(by_source(pairs)))


def by_source(pairs: PairedEmbeddings) -> Iterator[tuple[str, PairedEmbeddings]]:
    """The clips of each source, in their order; of one called 'all' where there is no label."""
    if "source" not in pairs.labels:
        yield _EVERYTHING, pairs
        return
    for name, rows in models.rows_by_model(pairs.labels["source"]).items():
        yield name, pairs.rows(rows)


def _part(pairs: PairedEmbeddings, options: Options, seed: int) -> Part:
    """What the clips of a source have in common.

    Raises:
      ValueError: its models have other numbers of clips, or no three prompts.
    """
    rows = models.rows_by_model(pairs.labels["models"])
    numbers = {name: len(found) for name, found in rows.items()}
    if len(set(numbers.values())) > 1:
        raise ValueError(f"--models: expected as many clips of each, received {numbers}.")
    prompts = len(np.unique(pairs.prompts, axis=0))
    if prompts < 3:
        raise ValueError(f"--prompts: expected at least 3 different prompts, received {prompts}.")
    clips = min(len(taken) for found in rows.values() for taken in _by_prompt(pairs.prompts[found]))
    bandwidths = choices.choose_scaled(pairs, options, seed)
    return Part(tuple(rows), prompts, clips, bandwidths)


def _by_prompt(prompts: np.ndarray) -> list[np.ndarray]:
    """The row numbers of each distinct prompt."""
    _, which = np.unique(prompts, axis=0, return_inverse=True)
    return [np.flatnonzero(which == number) for number in range(which.max() + 1)]


def cells(settings: Settings) -> list[Cell]:
    """Every source, by every embedding, at every scale."""
    return [
        Cell(source, embedding, scale)
        for source, part in settings.parts.items()
        for embedding in settings.embeddings
        for scale in part.bandwidths
    ]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Result:
    """The models' scores with errors, and those with fewer clips a prompt."""
    part, pairs = setup.settings.parts[cell.source], setup.state[cell.source]
    bandwidths = part.bandwidths[cell.scale]
    clips = pairs.outputs if cell.embedding == CLIPS else pairs.further[cell.embedding]
    rows = models.rows_by_model(pairs.labels["models"])
    outputs = {name: clips[found] for name, found in rows.items()}
    prompts = {name: pairs.prompts[found] for name, found in rows.items()}
    groups = min(setup.settings.groups, part.prompts)
    seed = int(jax.random.randint(context.shared_key, (), 0, 2**31 - 1))
    scores = models.score_models(
        outputs, prompts, bandwidths, groups=groups, seed=seed, say=context.say
    )
    return Result(
        **{f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)},
        by_clips=np.stack(
            [fewer_clips(outputs[name], prompts[name], part.clips, bandwidths) for name in rows],
            axis=1,
        ),
    )


def fewer_clips(
    outputs: np.ndarray, prompts: np.ndarray, clips: int, bandwidths: choices.Bandwidths
) -> np.ndarray:
    """All scores with k of the first K clips of every prompt, `[scores, K, K]`.

    Args:
      outputs: of one model `[n, d_x]`.
      prompts: `[n, d_t]`, equal for the clips of a prompt.
      clips: K.
      bandwidths: of the kernels.

    Returns:
      By score, k = 1 ... K, and with which of the K clips the k begin.
    """
    of_prompt = [found[:clips] for found in _by_prompt(prompts)]
    found = np.zeros((len(models.SCORES), clips, clips))
    for count in range(1, clips + 1):
        for start in range(clips if count < clips else 1):
            taken = np.concatenate([np.roll(rows, -start)[:count] for rows in of_prompt])
            scores = models.six_scores(outputs[taken], prompts[taken], bandwidths)
            # All of a prompt's clips are the same wherever they begin.
            places = start if count < clips else slice(None)
            found[:, count - 1, places] = scores if count < clips else scores[:, None]
    return found


def table(run: lab.Run) -> Table:
    """Every model by every score, embedding and scale; a letter in common: not told apart."""
    grid = Table("source", "embedding", "scale", "model", "n", *models.NAMES)
    for cell, found in run.results.items():
        for place, name in enumerate(found.models):
            scores = [
                f"{report.with_error(value, error)} {letters[place]}"
                for value, error, letters in zip(
                    found.values[:, place], found.errors[:, place], found.letters, strict=True
                )
            ]
            own = (cell.source, cell.embedding, cell.scale)
            grid.add_row(*own, name, str(found.n[place]), *scores)
    return grid


def _base(part: Part) -> str:
    return choices.shown(part.bandwidths)


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The models as the papers' columns, and what hangs on bandwidths and clips a prompt."""
    (run,) = runs
    parts = run.settings.parts
    compared = {name: part for name, part in parts.items() if len(part.models) > 1}
    several = {name: part for name, part in parts.items() if part.clips > 1}
    figures = {}
    if compared:
        figures["video"] = _columns(run, compared)
        figures["video_bandwidth"] = _scales(run, compared)
    if several:
        figures["video_clips"] = _clips(run, several)
    return figures


def _columns(run: lab.Run, parts: Mapping[str, Part]) -> Figure:
    """A column a model, as in the papers; a row of panels a source, a panel a score."""
    figure, axes = style.panels(len(_SHOWN) * len(parts), columns=2, size=(4.0, 2.6))
    places = iter(axes)
    for source, part in parts.items():
        for name in _SHOWN:
            panel = next(places)
            for number, embedding in enumerate(run.settings.embeddings):
                found = run.results[Cell(source, embedding, _base(part))]
                offset = 0.22 * (number - (len(run.settings.embeddings) - 1) / 2)
                _points(panel, found, name, offset, _COLOURS[embedding], _NAMES[embedding])
            whole = run.results[Cell(source, CLIPS, _base(part))]
            _letters(panel, whole, name)
            panel.set_title(name if len(parts) == 1 else f"{source}: {name}")
            panel.set_ylabel("effective number")
    style.legend_above(figure, axes[0])
    style.caption(figure, f"{_caption(run, parts)} {_BARS} Letters are of {_NAMES[CLIPS]}.")
    return figure


def _points(panel: Axes, found: Result, name: str, offset: float, colour: str, label: str) -> None:
    """A score of every model with its 95% interval."""
    index = models.NAMES.index(name)
    panel.errorbar(
        np.arange(len(found.models)) + offset,
        found.values[index],
        1.96 * found.errors[index],
        fmt="o",
        color=colour,
        elinewidth=1,
        label=label,
    )
    names = [name.replace("-", "-\n") for name in found.models]
    panel.set_xticks(range(len(names)), names, fontsize=7)


def _letters(panel: Axes, found: Result, name: str) -> None:
    """The letters of every model along the upper edge."""
    for place, letters in enumerate(found.letters[models.NAMES.index(name)]):
        panel.text(
            place,
            0.99,
            letters,
            transform=panel.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=7,
        )
    low, high = panel.get_ylim()
    panel.set_ylim(low, high + 0.12 * (high - low))


def _scales(run: lab.Run, parts: Mapping[str, Part]) -> Figure:
    """A row of panels a score, a panel a scale of the bandwidths."""
    shown = [(source, scale) for source, part in parts.items() for scale in part.bandwidths]
    figure, axes = style.panels(2 * len(shown), columns=len(shown), size=(3.0, 2.5))
    for panel, (name, (source, scale)) in zip(
        axes, [(name, s) for name in _SHOWN[:2] for s in shown], strict=True
    ):
        found = run.results[Cell(source, CLIPS, scale)]
        _points(panel, found, name, 0, style.score_colour(name), "")
        _letters(panel, found, name)
        panel.set_title(name if scale == "cosine" else f"bandwidths x {scale}")
        panel.tick_params(axis="x", labelsize=5.5)
        panel.set_ylabel(name)
    style.caption(figure, f"{_caption(run, parts)} {_BARS}")
    return figure


def _clips(run: lab.Run, parts: Mapping[str, Part]) -> Figure:
    """Scores against the clips of each prompt, at every scale; a dashed line where they are k."""
    figure, axes = style.panels(
        sum(len(part.bandwidths) for part in parts.values()), size=(3.0, 2.8)
    )
    shown = [(s, part, scale) for s, part in parts.items() for scale in part.bandwidths]
    for panel, (source, part, scale) in zip(axes, shown, strict=True):
        found = run.results[Cell(source, CLIPS, scale)]
        counts = np.arange(1, part.clips + 1)
        for name in ("Conditional-Vendi", "Conditional-RKE"):
            values = found.by_clips[models.NAMES.index(name)]
            for number, model in enumerate(found.models):
                panel.errorbar(
                    counts,
                    values[number].mean(axis=-1),
                    values[number].std(axis=-1),
                    color=style.score_colour(name),
                    marker=style.MARKERS[number % len(style.MARKERS)],
                    label=name if len(found.models) == 1 else f"{model}, {name}",
                )
        panel.plot(counts, counts, "--", color=style.GREY, label="as many as the clips")
        panel.set(xlabel="clips of each prompt", ylabel="effective number")
        panel.set_xticks(counts)
        panel.set_title(source if scale == "cosine" else f"{source}, bandwidths x {scale}")
    style.legend_above(figure, axes[0])
    style.caption(
        figure,
        f"{_caption(run, parts)} Bars: the standard deviation over which of the clips are taken.",
    )
    return figure


def _caption(run: lab.Run, parts: Mapping[str, Part]) -> str:
    """What data, n, bandwidths, rule and seed are shown."""
    sentences = [f"{run.settings.data.rstrip('.')}; seed {run.seed}"]
    for source, part in parts.items():
        clips = "one clip" if part.clips == 1 else f"{part.clips} clips"
        words = f"{source}: {part.prompts} prompts, {clips} of each a model"
        base = part.bandwidths[_base(part)]
        if base.outputs is not None:
            widths = f"{base.outputs:.3g} (clips) and {base.prompts:.3g} (prompts)"
            words += f"; bandwidths {widths}: {base.rule}"
        sentences.append(words)
    return ". ".join(sentences) + "."


STUDY = lab.StudyRecord(
    name="video",
    version=1,
    question="Which text-to-video model is more diverse, and what does motion add?",
    reproduces="CV figs 8, 22; CV-early figs 6, 24",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Result,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("video", "video_bandwidth", "video_clips"),
    data="video",
    labels=("models",),
    more_labels=("source",),
    further=("means", "stills"),
)

if __name__ == "__main__":
    lab.main(STUDY)
