"""The effective number of different answers of 24 models to a prompt, beside a benchmark's."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.lab import agreement, figures, scales, style, tables
from experiments.language_models import judged

WHOLE, CUT = "whole", "cut"
CLASSES, UTILITY = "classes", "utility"
SOURCES = CLASSES, "embeddings"  # Of which answers are different, beside their rewards.
_COLOURS = {WHOLE: style.BLUE, CUT: style.ORANGE}
_NAMES = {WHOLE: "whole answers", CUT: "answers cut to one length"}
_ORDERS = (1.0, 2.0)
MEASURES = [
    f"{kind}{name}" for name in ("Vendi", "RKE") for kind in ("Conditional-", "Information-", "")
]
_MULTIPLES = tuple(2.0 ** (k / 2) for k in range(-6, 7))  # Of the bandwidth, that are swept.
_PATIENCE = 0.8  # Of the benchmark's reader, who goes on to the next answer so often.
_SIZE = re.compile(r"(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)


class Answers(lab.Study):
    """Which language models give different answers when they are asked again?"""

    name = "answers"
    version = 3
    duration = "4 minutes"
    data = "answers"
    needs = ("models", "prompt")
    takes = ("classes", "rewards", "words")
    further = ("truncated",)
    drawings = ("answers", "answers_agreement", "answers_sizes")

    widths: judged.Widths = judged.Widths()
    resamples: int = lab.flag(
        2000, "Resamples of the models, and of the prompts, for the intervals.", at_least=2
    )
    at_least: float = lab.flag(6.0, "The reward from which an answer is good.")
    prompts: int = lab.resolved()
    of_each: int = lab.resolved()
    texts: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        rows, prompts = judged.by_prompt(pairs)
        return self.ready(
            pairs,
            state=(pairs, rows),
            widths=self.widths.resolve(pairs),
            prompts=len(prompts),
            of_each=rows.shape[2],
            texts=(WHOLE, CUT) if "truncated" in pairs.further else (WHOLE,),
        )

    def axes(self):
        return {"text": self.texts, "scale": self.widths.axis}

    def compute(self, state, context, *, text, scale):
        """The conditional scores of all models, and how every score agrees with the benchmark.

        Returns:
          What `judged.ranked` gives; `words`, the mean length of the whole answers; over `judge`
          (the number of classes and the utility): `benchmark` with `benchmark_error` by model; and
          over `judge`, `measure` (six scores, whose values are `of_all`) and `end` (the value and
          its 95% interval) Spearman's correlation over the models, with an interval `over_models`;
          `given_length`, the partial correlation given `words`; over `judge` and `score`,
          `over_prompts`, with an interval over resampled prompts. `of_prompt`, the effective number
          of answers by score, model and prompt, and `within`, its correlation with the number of
          classes over the prompts, the mean over the models. `swept`, the correlation of both
          conditional scores with the classes at multiples of the bandwidth. At the scale that is
          shown, of whole answers: `usual_correlation`, that of all six with the classes by the
          library's default bandwidths; and over `kind`, Conditional-RKE of the last half of the
          answers beside all, `fewer`. `unbiased` Conditional-RKE, with `unbiased_letters`. There,
          too, what `_good` gives, and over `source` and `against` its `good_correlation`.
        """
        pairs, rows = state
        texts = pairs.outputs if text == WHOLE else pairs.further["truncated"]
        names = pairs.labels["models"][rows[:, 0, 0]].astype(str).tolist()
        outputs = dict(zip(names, texts[rows.reshape(len(names), -1)], strict=True))
        entropies = judged.entropies(texts[rows], scale.outputs)
        found = judged.ranked(entropies, names)
        conditional = found.value.values
        kernel, each = cv.Gaussian(scale.outputs), outputs.values()
        totals = [[float(cv.vendi(of, kernel=kernel, order=o)) for of in each] for o in _ORDERS]
        # Prompts are equally frequent, so that the total is the product of the other two.
        values = np.stack([conditional, totals / conditional, totals], axis=1).reshape(6, -1)
        context.say("agreement")
        drawn = _Draws(len(names), self.prompts, self.resamples, context.shared_seed)
        benchmark = benchmark_of(pairs, rows)
        words = _of_answers(pairs, "words", rows).mean(axis=(1, 2))
        length = np.log(np.maximum(words, 1))
        classes = benchmark[CLASSES]
        over_models, over_prompts, given = [], [], []
        for of_prompts in benchmark.values():
            of_models = of_prompts.mean(axis=1)
            over_models.append(drawn.over_models(values, of_models))
            over_prompts.append(drawn.over_prompts(entropies, of_prompts))
            given.append(drawn.over_models(values, of_models, length))
        within = [
            [agreement.spearman(of[None], c)[0] for of, c in zip(entropy, classes, strict=True)]
            for entropy in entropies
        ]
        shown = scale.coordinate == self.widths.shown
        multiples = _MULTIPLES if shown else ()
        swept = [
            agreement.spearman(judged.conditional(of), classes.mean(axis=1), [1.0, 2.0])
            for of in (judged.entropies(texts[rows], m * scale.outputs) for m in multiples)
        ]
        unbiased = _unbiased(texts, dict(zip(names, rows, strict=True)), scale)
        ends = [(unbiased.values[m], *unbiased.population[m]) for m in names]
        usual, fewer = np.full(len(MEASURES), np.nan), np.full((3, len(names)), np.nan)
        if shown and text == WHOLE and self.widths.described != "given":
            context.say("the default bandwidths")
            own = _usual(pairs, outputs, rows, context.shared_seed)
            usual = agreement.spearman(
                own, classes.mean(axis=1), [order for order in _ORDERS for _ in range(3)]
            )
        if shown and text == WHOLE:
            for m, of in enumerate(rows):
                last = _unbiased(texts, {"all": of, "last": of[:, of.shape[1] // 2 :]}, scale)
                fewer[:, m] = last.plug_in["last"], last.values["last"], last.differences[0].p_value
        good = _good(texts, rows, names, pairs, scale, self.at_least, shown and text == WHOLE)
        others = [*(of.mean(axis=1) for of in benchmark.values()), unbiased_of(unbiased, names)]
        agree = [
            [agreement.spearman(of[None], wanted)[0] for wanted in others] for of in good.value
        ]
        of_judge = ("judge", "measure", "end")
        errors = [of.std(axis=1, ddof=1) / np.sqrt(self.prompts) for of in benchmark.values()]
        return found.assign(
            of_all=(("measure", "model"), values),
            words=("model", words),
            benchmark=(("judge", "model"), [of.mean(axis=1) for of in benchmark.values()]),
            benchmark_error=(("judge", "model"), errors),
            over_models=(of_judge, over_models),
            given_length=(of_judge, given),
            over_prompts=(("judge", "score", "end"), over_prompts),
            of_prompt=(("score", "model", "prompt"), np.exp(entropies)),
            within=xr.DataArray(within, dims=("score", "model")).mean("model"),
            swept=(("score", "multiple"), np.reshape(swept, (len(multiples), 2)).T),
            usual_correlation=("measure", usual),
            unbiased=(("model", "end"), ends),
            unbiased_letters=("model", [unbiased.letters[m] for m in names]),
            fewer=(("kind", "model"), fewer),
            kind=["papers' score", "unbiased", "p-value"],
            good=(("source", "model"), good.value),
            good_error=(("source", "model"), good.error),
            good_letters=(("source", "model"), good.letters),
            good_share=("model", good.share),
            good_correlation=(("source", "against"), agree),
            against=[*benchmark, "Conditional-RKE, unbiased"],
        ).assign_coords(
            judge=list(benchmark), measure=MEASURES, multiple=list(multiples), source=list(SOURCES)
        )

    def tables(self, run):
        """Scores beside the benchmark at the bandwidth shown; all correlations."""
        found, shown = run.found, self.widths.shown
        base = found.sel(scale=shown, text=WHOLE)
        yield tables.table(base, rows=("model",), columns="score", error="error", letters="letters")
        yield tables.table(
            base, rows=("model",), columns="judge", value="benchmark", error="benchmark_error"
        )
        rows = ("judge", "text", "scale")
        for name in ("over_models", "given_length", "over_prompts"):
            column = "score" if name == "over_prompts" else "measure"
            yield tables.table(tables.intervals(found[name]), rows=rows, columns=column)
        yield tables.table(found, rows=("text", "scale"), columns="score", value="within")
        unbiased = tables.intervals(base.unbiased).assign(letters=base.unbiased_letters)
        yield tables.table(unbiased, rows=("model",), letters="letters")
        yield tables.table(base, rows=("model",), columns="kind", value="fewer")
        yield tables.table(base, rows=("measure",), value="usual_correlation")
        of_good = base.assign(letters=base.good_letters)
        rows, letters = ("model",), "letters"
        yield tables.table(
            of_good, rows=rows, columns="source", value="good", error="good_error", letters=letters
        )
        yield tables.table(base, rows=("model",), value="good_share")
        yield tables.table(base, rows=("source",), columns="against", value="good_correlation")

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, scale = run.study, run.study.widths.shown
        found = run.found.sel(scale=scale)
        n = f"n = {study.prompts * study.of_each} of each model"
        over = f"over the {study.prompts} prompts"
        return {
            "answers": figures.caption(
                _ranked(found, study), run, n=n, bars=f"95% intervals {over}", scale=scale
            ),
            "answers_agreement": figures.caption(
                _agreement(run.found, scale), run, n=n,
                bars="one standard error; of correlations, 95% over resampled models",
            ),
            "answers_sizes": figures.caption(
                _sizes(found), run, n=n, bars=f"95% intervals {over}", scale=scale
            ),
        }  # fmt: skip


class _Draws:
    """Resamples of models and of prompts, the same for everything that is correlated."""

    def __init__(self, models: int, prompts: int, times: int, seed: int):
        generator = np.random.default_rng(seed)
        self.models = list(generator.integers(models, size=(times, models)))
        self.prompts = list(generator.integers(prompts, size=(times, prompts)))

    def over_models(
        self, values: np.ndarray, wanted: np.ndarray, given: np.ndarray | None = None
    ) -> np.ndarray:
        """Correlations of scores `[scores, m]` with `wanted`, and 95% intervals, `[scores, 3]`.

        Partial ones where `given` is what is held constant.
        """
        orders = [order for order in _ORDERS for _ in range(3)]

        def statistic(taken: np.ndarray) -> np.ndarray:
            of = agreement.spearman(values[:, taken], wanted[taken], orders)
            if given is None:
                return of
            with_given = agreement.spearman(values[:, taken], given[taken], orders)
            return partial(of, with_given, agreement.spearman(wanted[None, taken], given[taken])[0])

        return agreement.with_interval(statistic, self.models, len(wanted))

    def over_prompts(self, entropies: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Correlations of Conditional-* over the models, prompts resampled, `[orders, 3]`.

        Args:
          entropies: `[2, models, prompts]`.
          wanted: `[models, prompts]`.
        """

        def statistic(taken: np.ndarray) -> np.ndarray:
            scores = judged.conditional(entropies[..., taken])
            return agreement.spearman(scores, wanted[:, taken].mean(axis=1), [1.0, 2.0])

        return agreement.with_interval(statistic, self.prompts, wanted.shape[1])


def partial(of: np.ndarray, one: np.ndarray, other: float) -> np.ndarray:
    """The partial correlation of two variables from theirs, and those of each with the third."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (of - one * other) / np.sqrt((1 - one**2) * (1 - other**2))


def benchmark_of(pairs: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The benchmark's number of classes and its utility, by model and prompt; NaN where unknown.

    The utility (Zhang et al. 2025, NoveltyBench, section 3.3) is the mean reward of a reader who
    goes on to the next answer with probability 0.8, and for whom an answer of a class that was
    there before is worth nothing.
    """
    classes = _of_answers(pairs, "classes", rows)
    rewards = _of_answers(pairs, "rewards", rows)
    order = np.sort(classes, axis=2)
    number = 1 + np.sum(np.diff(order, axis=2) != 0, axis=2)
    number = np.where(np.isnan(classes).any(axis=2), np.nan, number)
    equal = classes[..., :, None] == classes[..., None, :]
    new = ~np.tril(equal, -1).any(axis=3)
    weights = _PATIENCE ** np.arange(rows.shape[2])
    return {CLASSES: number, UTILITY: np.sum(rewards * new * weights, axis=2) / weights.sum()}


class Good(NamedTuple):
    """The good and different answers by source and model, and the share of good ones by model."""

    value: np.ndarray
    error: np.ndarray
    letters: np.ndarray
    share: np.ndarray


def class_rewards(classes: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """The reward of the class of each answer `[..., k]`; the benchmark gives 0 to later ones."""
    equal = classes[..., :, None] == classes[..., None, :]
    return np.max(np.where(equal, rewards[..., None, :], -np.inf), axis=-1)


def _good(
    texts: np.ndarray,
    rows: np.ndarray,
    names: Sequence[str],
    pairs: Any,
    width: judged.Width,
    at_least: float,
    wanted: bool,
) -> Good:
    """By the benchmark's classes, and by embeddings; NaN where not `wanted` or not known."""
    classes = _of_answers(pairs, "classes", rows)
    rewards = class_rewards(classes, _of_answers(pairs, "rewards", rows))
    shape = len(SOURCES), len(names)
    value, error, letters = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, "")
    share = np.full(len(names), np.nan)
    if not (wanted and np.isfinite(rewards).all()):
        return Good(value, error, letters, share)
    letters = letters.astype(object)
    prompts = np.indices(rows.shape[1:])[0].reshape(-1, 1)
    for place, source in enumerate(SOURCES):
        items = texts[rows] if source != CLASSES else classes.astype(int)
        kernels: Any = width.kernels | (
            {"output_kernel": cv.Indicator()} if source == CLASSES else {}
        )
        compared = cv.compare(
            {name: of.reshape(-1, *of.shape[2:]) for name, of in zip(names, items, strict=True)},
            prompts,
            **kernels,
            orders=[2],
            profile=False,
            quality={name: of.ravel() for name, of in zip(names, rewards, strict=True)},
            at_least=at_least,
        )
        ranking = compared.ranking("quality", 0)
        value[place] = [ranking.values[name] for name in names]
        error[place] = [ranking.standard_errors[name] for name in names]
        letters[place] = [ranking.letters[name] for name in names]
        share = np.array([compared.qualities[name].share.value for name in names])
    return Good(value, error, letters.astype(str), share)


def unbiased_of(ranking: Any, names: Sequence[str]) -> np.ndarray:
    """The values of a ranking in the order of the names."""
    return np.array([ranking.values[name] for name in names])


def size_of(model: str) -> tuple[str, float] | None:
    """The family and the size in billions that a model's name states; None where it states none."""
    found = _SIZE.search(model)
    if found is None:
        return None
    family = re.sub(r"\.\d+$", "", model[: found.start()].rstrip("-"))
    return family, float(found[1])


def short_name(model: str) -> str:
    """A model's name without the date at its end."""
    return re.sub(r"[-@]\d[\d-]*$", "", model)


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """By family, its models from small to large, of those families that have several sizes."""
    sizes = {name: size for name in names if (size := size_of(name))}
    found: dict[str, list[str]] = {}
    for name in sorted(sizes, key=lambda name: sizes[name][1]):
        found.setdefault(sizes[name][0], []).append(name)
    return {family: of for family, of in found.items() if len(of) > 1}


def _of_answers(pairs: Any, role: str, rows: np.ndarray) -> np.ndarray:
    """A label of every answer as a number; NaN where there is no such label."""
    values = pairs.labels.get(role)
    return np.full(rows.shape, np.nan) if values is None else values[rows].astype(float)


def _unbiased(texts: np.ndarray, rows: Mapping[str, np.ndarray], width: judged.Width) -> Any:
    """Models of the rows `[prompts, answers]`, ranked by unbiased Conditional-RKE."""
    numbers = {name: np.indices(of.shape)[0].reshape(-1, 1) for name, of in rows.items()}
    outputs = {name: texts[of.ravel()] for name, of in rows.items()}
    compared = cv.compare(outputs, numbers, **width.kernels, orders=[2], profile=False)
    return compared.ranking("conditional", 2)


def consensus(pairs: Any, bandwidth: float) -> cv.inference.Consensus:
    """Unbiased Conditional-RKE of all models by embeddings, and by the benchmark's classes."""
    models, prompts = pairs.labels["models"].astype(str), pairs.labels["prompt"]
    rows = {name: models == name for name in dict.fromkeys(models.tolist())}
    given = {"MiniLM": pairs.outputs, CLASSES: pairs.labels["classes"].astype(int)}
    kernels: Any = {"MiniLM": cv.Gaussian(bandwidth), CLASSES: cv.Indicator()}
    found: Any = cv.compare(
        {encoder: {name: x[of] for name, of in rows.items()} for encoder, x in given.items()},
        {name: prompts[of] for name, of in rows.items()},
        output_kernel=kernels,
        orders=[2],
        profile=False,
    )
    return found


def _usual(pairs: Any, outputs: Any, rows: np.ndarray, seed: int) -> np.ndarray:
    """The scores under the variance rule on all pairs, of prompts too, `[6, models]`."""
    kernels: Any = scales.by_rule(pairs, "variance", seed).kernels
    found = np.empty((2, 3, len(outputs)))
    for m, of in enumerate(outputs.values()):
        for place, order in enumerate(_ORDERS):
            own = cv.decompose(of, pairs.prompts[rows[m].ravel()], **kernels, order=order)
            found[place, :, m] = own.conditional, own.information, own.vendi
    return found.reshape(6, -1)


def _ranked(found: xr.Dataset, study: Answers) -> Figure:
    """A line a model, the most diverse above: Conditional-*, classes and utility."""
    first = found.sel(text=WHOLE)
    order = np.argsort(-first.value.sel(score=judged.SCORES[0]).values, kind="stable")
    found, first = found.isel(model=order), first.isel(model=order)
    places = -np.arange(len(order))
    size = 2.7, 0.7 + 0.2 * len(order)
    figure, panels = style.panels(5, columns=5, size=size, sharey=True)
    for panel, score in zip(panels, judged.SCORES, strict=False):
        one, letters, ending = found.sel(score=score), first.letters.sel(score=score), "of answers"
        ends = xr.concat([one.value + side * one.error for side in (0, -1.96, 1.96)], "end")
        if score == judged.SCORES[1]:
            panel.plot(first.value.sel(score=score), places, "x", markersize=3.5, color=style.GREY)
            score, ending = f"{score}, unbiased", f"(x: of {study.of_each})"
            ends, letters = found.unbiased, first.unbiased_letters
        for offset, text in zip((0.15, -0.15), study.texts, strict=False):
            value, low, high = ends.sel(text=text).transpose("end", "model").values
            panel.errorbar(
                value, places + offset, xerr=np.nan_to_num([value - low, high - value]), fmt="o",
                markersize=3.5, elinewidth=0.8, color=_COLOURS[text], label=_NAMES[text],
            )  # fmt: skip
        apart = [not set(a) & set(b) for a, b in itertools.combinations(letters.values, 2)]
        panel.set_title(f"{score}:\n{sum(apart)} of {len(apart)} pairs told apart")
        panel.set(xlabel=f"effective number {ending}")
    for panel, judge in zip(panels[2:4], (CLASSES, UTILITY), strict=True):
        one = first.sel(judge=judge)
        panel.errorbar(
            one.benchmark, places, xerr=1.96 * one.benchmark_error, fmt="s", markersize=3.5,
            elinewidth=0.8, color=style.BLACK,
        )  # fmt: skip
        agrees = one.over_models.sel(measure=judged.SCORES[0])
        words = tables.interval(*agrees.values)
        panel.set_title(f"the benchmark's {judge}:\nrank correlation {words}")
        panel.set(xlabel=f"{judge} of a prompt, mean")
    good = first.sel(source=SOURCES[1])
    panels[4].errorbar(
        good.good, places, xerr=1.96 * np.nan_to_num(good.good_error), fmt="o", markersize=3.5,
        elinewidth=0.8, color=style.BLUE,
    )  # fmt: skip
    panels[4].plot(first.good.sel(source=CLASSES), places, "x", markersize=3.5, color=style.GREY)
    panels[4].set_title(f"good (reward {study.at_least:g} or more)\nand different, x: by classes")
    panels[4].set(xlabel=f"answers of {study.of_each}")
    names = [
        f"{short_name(m)} ({w:.0f} words)"
        for m, w in zip(first.model.values, first.words.values, strict=True)
    ]
    panels[0].set_yticks(places, names, fontsize=7.5)
    panels[0].set_ylim(places[-1] - 0.7, 0.7)
    style.legend_above(figure, panels[0])
    return figure


def _agreement(found: xr.Dataset, scale: float) -> Figure:
    """Score against classes; correlations of every score; Conditional-* over the bandwidths."""
    figure, panels = style.panels(3, size=(4.0, 3.2))
    shown = found.sel(scale=scale)
    for text in found.text.values:
        one = shown.sel(text=text, score=judged.SCORES[0])
        panels[0].errorbar(
            one.benchmark.sel(judge=CLASSES), one.value, one.error,
            one.benchmark_error.sel(judge=CLASSES), fmt="o", markersize=3.5, elinewidth=0.7,
            color=_COLOURS[text], label=_NAMES[text],
        )  # fmt: skip
    panels[0].set_title("A point a model, at the bandwidth\nfrom people's judgements")
    panels[0].set(xlabel="the benchmark's classes a prompt", ylabel=judged.SCORES[0])
    scores = found.measure.values.tolist()
    shifts = np.linspace(-0.3, 0.3, found.sizes["text"] * found.sizes["scale"])
    cells = itertools.product(found.text.values, found.scale.values)
    for shift, (text, times) in zip(shifts, cells, strict=True):
        one = found.over_models.sel(text=text, scale=times, judge=CLASSES)
        value, low, high = one.transpose("end", "measure").values
        marker = style.MARKERS[found.scale.values.tolist().index(times) % len(style.MARKERS)]
        panels[1].errorbar(
            np.arange(len(scores)) + shift, value, np.nan_to_num([value - low, high - value]),
            fmt=marker, markersize=3.5, elinewidth=0.7, color=_COLOURS[text],
            label=f"{text}, bandwidth x {times:g}",
        )  # fmt: skip
    panels[1].set_xticks(range(len(scores)), scores, rotation=25, ha="right")
    panels[1].axhline(0, color=style.GREY, lw=0.8)
    panels[1].set_title("Rank correlation of each score\nwith the number of classes")
    panels[1].legend(fontsize=6)
    _swept(panels[2], shown)
    return figure


def _swept(panel: Axes, found: xr.Dataset) -> None:
    looks = zip(judged.SCORES, ("-", ":"), ("o", "s"), strict=True)
    for (text, colour), (score, dash, marker) in itertools.product(_COLOURS.items(), looks):
        if text in found.text.values:
            one = found.swept.sel(text=text, score=score)
            panel.plot(
                one.multiple, one, dash, marker=marker, markersize=3, color=colour,
                label=f"{score}, {text}",
            )  # fmt: skip
    panel.set_xscale("log", base=2)
    style.log_numbers(panel.xaxis)
    panel.set_title("Rank correlation with the number of classes\nat other bandwidths")
    panel.set(xlabel="multiple of the bandwidth from people's judgements")
    panel.legend(fontsize=7)


def _sizes(found: xr.Dataset) -> Figure:
    """Conditional-Vendi of whole and cut answers, and classes, by size; a line a family."""
    names = found.model.values.tolist()
    texts = found.text.values.tolist()
    figure, panels = style.panels(len(texts) + 1, size=(3.8, 3.0))
    for number, (family, of) in enumerate(families(names).items()):
        sizes = [size_of(name) for name in of]
        x = [size[1] for size in sizes if size]
        look: dict[str, Any] = {
            "fmt": f"-{style.MARKERS[number % len(style.MARKERS)]}",
            "color": style.CYCLE[number % len(style.CYCLE)],
            "label": family,
        }
        for panel, text in zip(panels, texts, strict=False):
            one = found.sel(text=text, model=of, score=judged.SCORES[0])
            panel.errorbar(x, one.value, 1.96 * one.error, **look)
            panel.set_title(f"{judged.SCORES[0]}, {_NAMES[text]}")
            panel.set(ylabel="effective number of answers")
        one = found.isel(text=0).sel(model=of, judge=CLASSES)
        panels[-1].errorbar(x, one.benchmark, 1.96 * one.benchmark_error, **look)
    panels[-1].set_title("The benchmark's number of classes")
    for panel in panels:
        panel.set_xscale("log")
        style.log_numbers(panel.xaxis)
        panel.set(xlabel="parameters, billions")
    style.legend_above(figure, panels[0])
    return figure
