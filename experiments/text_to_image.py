"""Which text-to-image model is more diverse, and which follows its prompts: CV-early figure 4.

Models that answered different prompts, with different numbers of pictures, are compared on what
they share: the same prompts and as many samples of each. First as many models as share enough
prompts, together; then every two models on all that the two share. Differences are paired, prompt
by prompt, and tested; a pair that no test tells apart is said to be equal.

    python -m experiments.text_to_image --data=gallery
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import inference, report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option

_TOGETHER, _PAIRS = "together", "pairs"
# Below this no error is worth its name.
_FEWEST_PROMPTS = 3
_SCORES = ("conditional", "information", "vendi")


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    orders: tuple[float, ...] = option((1.0, 2.0), "Renyi orders: 1 is Vendi, 2 is RKE.")
    samples: int | None = option(
        None,
        "Samples a prompt, of every model; if unset, as many as leave the most rows to compare.",
    )
    least_prompts: int = option(
        20,
        "Models are left out of the comparison of all, that of the fewest prompts first, until the "
        "others share so many.",
    )
    most_prompts: int = option(
        200, "Prompts of a comparison, drawn at random where the models share more."
    )
    groups: int = option(20, "Groups of prompts of the jackknife, at most.")
    level: float = option(0.05, "Family-wise rate of false differences, of each score.")


@dataclasses.dataclass(frozen=True)
class Design:
    """What some models are compared on: how many shared prompts, how many samples of each."""

    models: tuple[str, ...]
    prompts: int
    samples: int


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the comparisons depend on."""

    name: str
    data: str
    n: int
    orders: tuple[float, ...]
    groups: int
    level: float
    bandwidths: dict[str, choices.Bandwidths]
    together: Design
    pairs: tuple[Design, ...]
    left_out: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Cell:
    """All models together or every two, at one multiple of the bandwidths."""

    comparison: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """Of two models in one score, with its jackknife error; `adjusted` is Holm's p-value."""

    first: str
    second: str
    value: float
    error: float
    adjusted: float


@dataclasses.dataclass(frozen=True)
class Scored:
    """One score of the models of a design, the largest first; in effective numbers of modes."""

    score: str
    values: dict[str, float]
    errors: dict[str, float]
    letters: dict[str, str]
    differences: tuple[Difference, ...]


@dataclasses.dataclass(frozen=True)
class Compared:
    """The scores of each design of a cell."""

    designs: tuple[tuple[Scored, ...], ...]


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, finds what the models share and chooses the bandwidths."""
    orders = tuple(map(validation.check_order, options.orders))
    for name in ("samples", "least_prompts", "most_prompts", "groups"):
        value = getattr(options, name)
        if value is not None:
            validation.check_count(value, name=f"--{name}", minimum=1 if name == "samples" else 3)
    if not 0 < options.level < 1:
        raise ValueError(f"--level: expected a number between 0 and 1, received {options.level}.")
    pairs = load()
    names, counts = count_rows(pairs)
    together, left_out = share(names, counts, options)
    couples = [
        design
        for rows in itertools.combinations(range(len(names)), 2)
        if (design := match(names, counts, rows, options)).prompts >= _FEWEST_PROMPTS
    ]
    settings = Settings(
        name=pairs.name,
        data=pairs.description,
        n=len(pairs),
        orders=orders,
        groups=options.groups,
        level=options.level,
        bandwidths=choices.choose_scaled(pairs, options, seed),
        together=together,
        pairs=tuple(couples),
        left_out=left_out,
    )
    return lab.Setup(settings, _arrays(pairs), state=pairs)


def _arrays(pairs: PairedEmbeddings) -> dict[str, np.ndarray]:
    return {
        "outputs": pairs.outputs,
        "prompts": pairs.prompts,
        "models": pairs.labels["models"],
        "prompt": pairs.prompt_numbers,
    }


def count_rows(pairs: PairedEmbeddings) -> tuple[list[str], np.ndarray]:
    """The models, and how many pairs each has of every prompt, `[models, prompts]`.

    Raises:
      ValueError: there are fewer than two models.
    """
    names, model = np.unique(pairs.labels["models"].astype(str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"--models: expected at least two models, received {', '.join(names)}.")
    prompt = pairs.prompt_numbers
    counts = np.zeros((len(names), prompt.max() + 1), int)
    np.add.at(counts, (model, prompt), 1)
    return names.tolist(), counts


def match(
    names: Sequence[str], counts: np.ndarray, rows: Sequence[int], options: Options
) -> Design:
    """Prompts and samples that some models share: as many rows as possible, then prompts."""
    fewest = counts[list(rows)].min(axis=0)
    tried = range(1, max(fewest.max(), 1) + 1) if options.samples is None else [options.samples]
    shared = {k: min(int(np.sum(fewest >= k)), options.most_prompts) for k in tried}
    samples = max(tried, key=lambda k: (k * shared[k], -k))
    return Design(tuple(names[row] for row in rows), shared[samples], samples)


def share(
    names: Sequence[str], counts: np.ndarray, options: Options
) -> tuple[Design, tuple[str, ...]]:
    """The comparison of as many models as share enough prompts, and who is left out of it.

    Raises:
      ValueError: the last two share fewer than three.
    """
    rows, left_out = list(range(len(names))), []
    wanted = min(options.least_prompts, options.most_prompts)
    while (design := match(names, counts, rows, options)).prompts < wanted and len(rows) > 2:
        least = min(rows, key=lambda row: (np.sum(counts[row] > 0), -row))
        rows.remove(least)
        left_out.append(names[least])
    if design.prompts < _FEWEST_PROMPTS:
        several = "" if options.samples is None else f" with {options.samples} samples each"
        raise ValueError(
            f"--prompt: the models must share at least {_FEWEST_PROMPTS} prompts{several}; "
            f"{' and '.join(design.models)} share {design.prompts}."
        )
    return design, tuple(left_out)


def cells(settings: Settings) -> list[Cell]:
    """Both comparisons at every multiple of the bandwidths."""
    return [Cell(kind, scale) for scale in settings.bandwidths for kind in (_TOGETHER, _PAIRS)]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Compared:
    """Scores, paired differences and their p-values, on the same rows at every bandwidth."""
    settings, pairs = setup.settings, setup.state
    kernels = settings.bandwidths[cell.scale].kernels()
    designs = [settings.together] if cell.comparison == _TOGETHER else settings.pairs
    found = []
    for index, design in enumerate(designs):
        context.say(" and ".join(design.models))
        key = jax.random.fold_in(context.shared_key, index)
        rows = draw_rows(pairs, design, key)
        groups = np.arange(design.prompts) % min(settings.groups, design.prompts)
        compared = cv.compare(
            {m: pairs.outputs[r.ravel()] for m, r in zip(design.models, rows, strict=True)},
            pairs.prompts[rows[0].ravel()],
            orders=settings.orders,
            groups=np.repeat(groups, design.samples),
            level=settings.level,
            **kernels,
        )
        found.append(tuple(_scored(ranking) for ranking in compared.rankings))
    return Compared(tuple(found if cell.comparison == _TOGETHER else adjust(found)))


def draw_rows(pairs: PairedEmbeddings, design: Design, key: jax.Array) -> np.ndarray:
    """Rows of the pairs, `[models, prompts, samples]`: the same prompts of every model."""
    generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
    prompt, model = pairs.prompt_numbers.tolist(), pairs.labels["models"].astype(str).tolist()
    order = generator.permutation(len(pairs))
    of_cell: dict[tuple[str, int], list[int]] = {}
    for row in order.tolist():
        of_cell.setdefault((model[row], prompt[row]), []).append(row)
    shared = [
        p
        for p in generator.permutation(max(prompt) + 1).tolist()
        if all(len(of_cell.get((m, p), ())) >= design.samples for m in design.models)
    ]
    return np.array(
        [[of_cell[m, p][: design.samples] for p in shared[: design.prompts]] for m in design.models]
    )


def _scored(ranking: cv.inference.Ranking) -> Scored:
    differences = (
        Difference(d.first, d.second, d.value, d.standard_error, d.adjusted)
        for d in ranking.differences
    )
    errors, letters = ranking.standard_errors, ranking.letters
    return Scored(ranking.name, ranking.values, errors, letters, tuple(differences))


def adjust(designs: Sequence[tuple[Scored, ...]]) -> list[tuple[Scored, ...]]:
    """Comparisons of two models each, with the p-values of each score adjusted for all of them."""
    adjusted = [
        inference.holm([scored.differences[0].adjusted for scored in of_score])
        for of_score in zip(*designs, strict=True)
    ]
    return [
        tuple(
            dataclasses.replace(
                scored, differences=(dataclasses.replace(scored.differences[0], adjusted=p[index]),)
            )
            for scored, p in zip(design, adjusted, strict=True)
        )
        for index, design in enumerate(designs)
    ]


def verdicts(run: lab.Run, kind: str, scale: str, score: str) -> dict[tuple[str, str], float]:
    """By (first, second), where a test tells two models apart: first over second, less 1.

    Pairs that cannot be told apart have NaN.
    """
    found = {}
    for scored in scored_of(run, kind, scale, score):
        for d in scored.differences:
            apart = d.adjusted <= run.settings.level
            ratio = scored.values[d.first] / scored.values[d.second] - 1 if apart else np.nan
            back = scored.values[d.second] / scored.values[d.first] - 1 if apart else np.nan
            found |= {(d.first, d.second): ratio, (d.second, d.first): back}
    return found


def scored_of(run: lab.Run, kind: str, scale: str, score: str) -> Iterator[Scored]:
    """One score of every design of a cell."""
    for design in run.results[Cell(kind, scale)].designs:
        yield from (scored for scored in design if scored.score == score)


def scores_of(run: lab.Run) -> list[str]:
    """The names of the scores, in the order in which they were computed."""
    first = run.results[Cell(_TOGETHER, next(iter(run.settings.bandwidths)))]
    return [scored.score for scored in first.designs[0]]


def flips(run: lab.Run, kind: str, score: str) -> list[tuple[str, str]]:
    """Models that tests order one way at one bandwidth and the other way at another."""
    found = [verdicts(run, kind, scale, score) for scale in run.settings.bandwidths]
    return [
        (one, two)
        for one, two in found[0]
        if any(v[one, two] > 0 for v in found) and any(v[two, one] > 0 for v in found)
        if one < two
    ]


def table(run: lab.Run) -> Table:
    """The models in order, by each score and bandwidth; letters say who cannot be told apart."""
    grid = Table("bandwidths", "score", "together", "pairs told apart", "order turns")
    for score in scores_of(run):
        turned = {kind: flips(run, kind, score) for kind in (_TOGETHER, _PAIRS)}
        words = ", ".join(f"{a} / {b}" for a, b in dict.fromkeys(itertools.chain(*turned.values())))
        for scale in run.settings.bandwidths:
            (scored,) = scored_of(run, _TOGETHER, scale, score)
            order = ", ".join(
                f"{model} {report.with_error(value, scored.errors[model])} {scored.letters[model]}"
                for model, value in scored.values.items()
            )
            apart = [v for v in verdicts(run, _PAIRS, scale, score).values() if v > 0]
            count = f"{len(apart)} of {len(run.settings.pairs)}"
            grid.add_row(scale, score, order, count, words or "none")
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The models together, and every two: two figures a run."""
    figures = {}
    for run in runs:
        suffix = "" if run.settings.name == STUDY.data else f"_{run.settings.name}"
        figures[f"text_to_image{suffix}"] = _figure_together(run)
        figures[f"text_to_image_pairs{suffix}"] = _figure_pairs(run)
    return figures


def _panels(run: lab.Run, size: tuple[float, float]) -> tuple[Figure, list[tuple[str, Axes]]]:
    """A row an order, and a column a score."""
    scores = scores_of(run)
    figure, axes = style.panels(len(scores), columns=len(_SCORES), size=size)
    # compare gives vendi first; the paper's figure has Conditional- first.
    rows = [scores[start : start + len(_SCORES)] for start in range(0, len(scores), len(_SCORES))]
    ordered = [name for row in rows for name in sorted(row, key=_place)]
    return figure, list(zip(ordered, axes, strict=True))


def _place(score: str) -> int:
    return 0 if score.startswith("Conditional") else 1 if score.startswith("Information") else 2


def _figure_together(run: lab.Run) -> Figure:
    design, scales = run.settings.together, list(run.settings.bandwidths)
    middle = scales[len(scales) // 2]
    figure, panels = _panels(run, (3.6, 0.7 + 0.26 * len(design.models)))
    (first,) = scored_of(run, _TOGETHER, middle, panels[0][0])
    places = {model: -place for place, model in enumerate(first.values)}
    for index, (score, axes) in enumerate(panels):
        for place, scale in enumerate(scales):
            (scored,) = scored_of(run, _TOGETHER, scale, score)
            shift = 0.24 * (len(scales) - 1 - 2 * place) / max(len(scales) - 1, 1)
            y = [places[model] + shift for model in scored.values]
            mean = float(np.mean(list(scored.values.values())))
            values = 100 * (np.array(list(scored.values.values())) / mean - 1)
            errors = 100 * np.array(list(scored.errors.values())) / mean
            colour = style.score_colour(score) if scale == middle else style.GREY
            marker = style.MARKERS[place % len(style.MARKERS)]
            look: dict[str, Any] = {"fmt": marker, "color": colour, "capsize": 2, "linewidth": 1}
            label = f"{scale} of the rule's bandwidths" if len(scales) > 1 else scale
            axes.errorbar(values, y, xerr=errors, label=label, **look)
            for model, end, height in zip(scored.values, values + errors, y, strict=True):
                letters = f" {scored.letters[model]}"
                axes.annotate(letters, (end, height), fontsize=6, va="center", color=colour)
            if scale == middle:
                axes.set_title(f"{score} (mean {mean:.3g})")
        axes.margins(x=0.12)
        axes.set_xlabel("% from the mean of the models")
        axes.set_yticks(list(places.values()), list(places) if index % len(_SCORES) == 0 else [])
    style.legend_above(figure, panels[0][1])
    one = _one_a_prompt(design.samples)
    left = f"; left out, for want of shared prompts: {', '.join(run.settings.left_out)}"
    style.caption(
        figure,
        f"{_shown(run)}: {design.prompts} prompts that the models share, {design.samples} of each "
        f"a prompt{left if run.settings.left_out else ''}. Bars: one standard error by a jackknife "
        "over prompts; the mean in each title is that of the coloured marks. Models that share a "
        f"letter cannot be told apart at {run.settings.level:g} (paired differences, Holm)."
        f"{one} {_bandwidths(run)}",
    )
    return figure


def _figure_pairs(run: lab.Run) -> Figure:
    """Every two models: by how much the row's exceeds the column's."""
    names = list(dict.fromkeys(model for design in run.settings.pairs for model in design.models))
    scales = list(run.settings.bandwidths)
    middle = scales[len(scales) // 2]
    figure, panels = _panels(run, (1.2 + 0.4 * len(names), 1.0 + 0.3 * len(names)))
    for index, (score, axes) in enumerate(panels):
        found = [verdicts(run, _PAIRS, scale, score) for scale in scales]
        shown = verdicts(run, _PAIRS, middle, score)
        colours = np.full((len(names), len(names)), np.nan)
        for (row, one), (column, two) in itertools.product(enumerate(names), repeat=2):
            if row <= column or (one, two) not in shown:
                continue
            ratio = shown[one, two]
            colours[row, column] = 0 if np.isnan(ratio) else np.log1p(ratio)
            same = [v[one, two] for v in found if np.sign(v[one, two]) == np.sign(ratio)]
            told = sum(not np.isnan(v[one, two]) for v in found)
            words = f"=\n{told}/{len(scales)}"
            if not np.isnan(ratio):
                words = f"{100 * ratio:+.0f}\n{len(same)}/{len(scales)}"
            axes.text(column, row, words, fontsize=5, ha="center", va="center")
        limit = max(np.nanmax(np.abs(colours), initial=0), 1e-3)
        axes.imshow(colours, aspect="auto", cmap="PuOr", vmin=-1.6 * limit, vmax=1.6 * limit)
        axes.grid(visible=False)
        axes.set_title(score)
        axes.set_xticks(range(len(names) - 1), names[:-1], rotation=90, fontsize=6)
        left = index % len(_SCORES) == 0
        axes.set_yticks(range(1, len(names)), names[1:] if left else [], fontsize=6)
        axes.set(xlim=(-0.5, len(names) - 1.5), ylim=(len(names) - 0.5, 0.5))
    prompts = sorted(design.prompts for design in run.settings.pairs)
    samples = sorted({design.samples for design in run.settings.pairs})
    style.caption(
        figure,
        f"{_shown(run)}, every two on the prompts and samples that both have ({prompts[0]} to "
        f"{prompts[-1]} prompts, {samples[0]} to {samples[-1]} samples each). Numbers: how much "
        "the row's score exceeds the column's, in per cent; '=': not told apart at "
        f"{run.settings.level:g} (paired by prompts, jackknife, Holm over all pairs). Below: at "
        f"how many of {len(scales)} bandwidths a test says the same, or where it is '=', anything. "
        f"{_one_a_prompt(samples[0])}{_bandwidths(run)}",
    )
    return figure


def _one_a_prompt(samples: int) -> str:
    if samples > 1:
        return ""
    return " With one output a prompt, Conditional-* sees how outputs of like prompts differ. "


def _shown(run: lab.Run) -> str:
    return run.settings.data.rstrip(".")


def _bandwidths(run: lab.Run) -> str:
    widths = [
        f"{scale}: {b.outputs:.3g} (outputs), {b.prompts:.3g} (prompts)"
        for scale, b in run.settings.bandwidths.items()
        if b.outputs is not None
    ]
    first = next(iter(run.settings.bandwidths.values()))
    rule = choices.describe({"": run.settings.bandwidths.get("1", first)})
    return f"{rule}; {'; '.join(widths)}. Seed {run.seed}."


STUDY = lab.StudyRecord(
    name="text_to_image",
    version=1,
    question="Which text-to-image model is more diverse, given the prompts and without them?",
    reproduces="CV-early fig 4",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Compared,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("text_to_image", "text_to_image_pairs"),
    data="gallery",
    labels=("models",),
    more_labels=("prompt",),
)


if __name__ == "__main__":
    lab.main(STUDY)
