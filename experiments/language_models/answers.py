"""The effective number of different answers of 24 models to a prompt, beside a benchmark's."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax.inference import profiles, saturation
from condvendi_jax.inference.designs import Common
from condvendi_jax.inference.errors import Units
from condvendi_jax.inference.evaluations import Keys
from experiments import lab
from experiments.lab import agreement, figures, scales, style, tables
from experiments.language_models import judged
from experiments.language_models.judged import CUT, WHOLE

CLASSES, UTILITY = "classes", "utility"
EMBEDDINGS = "embeddings"
SOURCES = EMBEDDINGS, CLASSES  # Of which answers are different, beside their rewards.
MEASURES = {
    f"{kind}{name}": order
    for name, order in (("Vendi", 1.0), ("RKE", 2.0))
    for kind in ("Conditional-", "Information-", "")
}
_ORDERS = list(judged.PAPERS.values())
_NAMES = {WHOLE: "whole answers", CUT: "cut to one length"}
_MULTIPLES = tuple(2.0 ** (k / 2) for k in range(-6, 7))  # Of the bandwidth, that are swept.
_PATIENCE = 0.8  # Of the benchmark's reader, who goes on to the next answer so often.


class Answers(lab.Study):
    """Which language models give different answers when they are asked again?"""

    control = "All models answer the same prompts as often; cut answers are a control of length."
    version = 4
    data = "answers"
    needs = ("models", "prompt")
    takes = ("classes", "rewards", "words", "families")
    further = ("truncated",)

    widths: judged.Widths = judged.Widths()
    resamples: int = lab.flag(
        2000, "Resamples of the families, and of the prompts, for the intervals.", at_least=2
    )
    at_least: float = lab.flag(6.0, "The reward from which an answer is good.")
    prompts: int = lab.resolved()
    of_each: int = lab.resolved()
    families: tuple[str, ...] = lab.resolved()
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
            families=judged.by_model(pairs, rows, "families"),
            texts=tuple(judged.texts_of(pairs)),
        )

    def axes(self):
        return {"text": self.texts, "scale": self.widths.axis}

    def compute(self, state, context, *, text, scale):
        """The scores of all models, and how every score agrees with the benchmark.

        What `judged.scored` gives; `words`, the mean length of the whole answers; over `judge` (the
        number of classes and the utility): `benchmark` with `benchmark_error` by model, and
        Spearman's correlations over the models with 95% intervals, over `end`: by `measure` (six
        scores) `over_models`, with families resampled; by `score` `over_prompts`, with prompts
        resampled. In what share of these a model is `highest`, and `lowest`. `within`, the
        correlation with the classes over the prompts, the mean over the models; `swept`, the one
        over models at multiples of the bandwidth. At the scale that is shown, for whole answers,
        what `_by_both` gives, and `usual`, the correlations over models with the classes under the
        variance rule, of prompts too.
        """
        pairs, rows = state
        outputs = judged.texts_of(pairs)[text][rows]
        names = list(judged.by_model(pairs, rows, "models"))
        found = judged.scored(outputs, names, scale)
        entropies = judged.entropies(outputs, scale.outputs)[:2]
        conditional = found.value.values[:2]
        kernel, flat = cv.Gaussian(scale.outputs), outputs.reshape(len(names), rows[0].size, -1)
        totals = [[float(cv.vendi(of, kernel=kernel, order=o)) for of in flat] for o in _ORDERS]
        # Prompts are equally frequent, so that the total is the product of the other two.
        values = np.stack([conditional, totals / conditional, totals], axis=1).reshape(6, -1)
        context.say("agreement")
        generator = np.random.default_rng(context.shared_seed)
        families = [*agreement.resampled(np.array(self.families), self.resamples, generator)]
        prompts = list(generator.integers(self.prompts, size=(self.resamples, self.prompts)))
        drawn = np.stack([judged.conditional(entropies[..., of]) for of in prompts], axis=-1)
        each = np.arange(len(names))[:, None]
        judges = benchmark_of(pairs, rows)
        benchmark = np.stack([*judges.values()])
        means, orders = benchmark.mean(axis=2), list(MEASURES.values())
        over_models = [agreement.correlate(values, of, families, orders) for of in means]

        def with_prompts(of_prompts: np.ndarray) -> np.ndarray:
            def statistic(taken: np.ndarray) -> np.ndarray:
                scores = judged.conditional(entropies[..., taken])
                return agreement.spearman(scores, of_prompts[:, taken].mean(axis=1), _ORDERS)

            return agreement.with_interval(statistic, prompts, self.prompts)

        classes = means[0]
        of_models = [zip(of, judges[CLASSES], strict=True) for of in entropies]
        within = [[agreement.spearman(own[None], of)[0] for own, of in pair] for pair in of_models]
        shown = scale.coordinate == self.widths.shown
        multiples = _MULTIPLES if shown else ()
        swept = [
            agreement.spearman(judged.conditional(of[:2]), classes, _ORDERS)
            for of in (judged.entropies(outputs, m * scale.outputs) for m in multiples)
        ]
        by_judge, by_model = ("judge", "model"), ("score", "model")
        errors = benchmark.std(axis=2, ddof=1) / np.sqrt(self.prompts)
        fields = {
            "words": ("model", judged.numbers(pairs, "words", rows).mean(axis=(1, 2))),
            "benchmark": (by_judge, means),
            "benchmark_error": (by_judge, errors),
            "over_models": (("judge", "measure", "end"), over_models),
            "over_prompts": (("judge", "score", "end"), list(map(with_prompts, benchmark))),
            "highest": (by_model, np.mean(drawn.argmax(axis=1)[:, None] == each, axis=-1)),
            "lowest": (by_model, np.mean(drawn.argmin(axis=1)[:, None] == each, axis=-1)),
            "within": ("score", np.mean(within, axis=1)),
            "swept": (("score", "multiple"), np.reshape(swept, (-1, 2)).T),
        }
        labels = {"judge": list(judges), "measure": list(MEASURES), "multiple": list(multiples)}
        labels |= {"score": list(judged.PAPERS), "model": names}
        others = xr.Dataset(fields, labels)
        if shown and text == WHOLE and CLASSES in pairs.labels and "rewards" in pairs.labels:
            context.say("good and different answers")
            others = others.merge(self._by_both(pairs, rows, names, scale))
        if shown and text == WHOLE and self.widths.described != "given":
            context.say("the variance rule")
            usual: Any = scales.by_rule(pairs, "variance", context.shared_seed).kernels
            answered = list(zip(flat, pairs.prompts[rows.reshape(len(names), -1)], strict=True))
            own = [
                [cv.decompose(*of, order=o, **usual).conditional for of in answered]
                for o in _ORDERS
            ]
            others["usual"] = "score", agreement.spearman(np.array(own), classes, _ORDERS)
        return found.merge(others, join="left")

    def _by_both(
        self, pairs: Any, rows: np.ndarray, names: Sequence[str], width: judged.Width
    ) -> xr.Dataset:
        """Models by their embeddings, and by the classes that the benchmark gives the answers.

        Over `source` and `model`: the number of `good` and different answers, with `good_error`;
        the `good_share` of answers. How many pairs of models are `apart` by unbiased
        Conditional-RKE; by both at once, how many have `one_order` or are `reversed`.
        """
        classes = judged.numbers(pairs, CLASSES, rows).astype(int)
        rewards = class_rewards(classes, judged.numbers(pairs, "rewards", rows))
        flat = rows.reshape(len(names), -1)
        embedded = cv.Gaussian(width.outputs), pairs.outputs[flat]
        by_class = cv.Indicator(), classes.reshape(flat.shape)
        quality = dict(zip(names, rewards.reshape(flat.shape), strict=True))
        options: Any = {"quality": quality, "at_least": self.at_least, "orders": [2]}
        options |= {"prompts": pairs.labels["prompt"][flat[0]], "profile": False}
        compared = [
            cv.compare(dict(zip(names, of, strict=True)), output_kernel=kernel, **options)
            for kernel, of in (embedded, by_class)
        ]
        good = [of.ranking("quality", 0) for of in compared]
        tested = [of.ranking("conditional", 2).differences for of in compared]
        signs, by = _joint_signs(compared), ("source", "model")
        fields = {
            "good": (by, [[of.values[m] for m in names] for of in good]),
            "good_error": (by, [[of.standard_errors[m] for m in names] for of in good]),
            "good_share": ("model", [compared[0].qualities[m].share.value for m in names]),
            "apart": ("source", [sum(d.adjusted < judged.LEVEL for d in of) for of in tested]),
            "one_order": np.sum(np.abs(signs.sum(axis=1)) == 2),
            "reversed": np.sum(signs.prod(axis=1) == -1),
        }
        return xr.Dataset(fields, {"source": list(SOURCES), "model": list(names)})

    def tables(self, run):
        """Scores beside the benchmark at the bandwidth shown; all correlations."""
        found = run.found
        base = found.sel(scale=self.widths.shown, text=WHOLE)
        yield _ranking(run)
        for name, column in {"over_models": "measure", "over_prompts": "score"}.items():
            rows, of = ("judge", "text", "scale"), tables.intervals(found[name])
            yield tables.table(of, rows=rows, columns=column)
        yield tables.table(base, rows=("model",), columns="score", value="half")
        yield tables.table(found, rows=("text", "scale"), columns="score", value="within")
        if "good" in base:
            yield tables.table(
                base, rows=("model",), columns="source", value="good", error="good_error"
            )

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        base = run.found.sel(scale=run.study.widths.shown, text=WHOLE)
        vendi, unbiased = base.sel(score="Conditional-Vendi"), base.sel(score=judged.UNBIASED)
        classes, utility = (base.benchmark.sel(judge=judge) for judge in (CLASSES, UTILITY))

        def rho(one: xr.DataArray, other: xr.DataArray) -> float:
            return agreement.spearman(one.values[None], other.values)[0]

        length = np.array([rho(of, base.words) for of in (vendi.value, classes)])
        ends = run.found.over_models.sel(judge=CLASSES).transpose("end", ...)
        correlations = judged.in_words("{:.2f} [{:.2f},{:.2f}]", *ends)
        return {
            "base": base,
            "vendi": vendi,
            "unbiased": unbiased,
            "classes": classes,
            "utility": utility,
            "good": base.good.sel(source=EMBEDDINGS),
            "rho": rho,
            "length": length,
            "place": lambda of, model: int((of > of.sel(model=model)).sum()) + 1,
            "ranking": _ranking(run),
            "correlations": tables.table(correlations, rows=("measure", "text"), columns="scale"),
        }

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, scale = run.study, run.study.widths.shown
        found = _ordered(run.found.sel(scale=scale))
        names = [short_name(model) for model in found.model.values]
        found = found.assign_coords(model=names, text=[_NAMES[text] for text in study.texts])
        shown = found.drop_vars("error").rename(interval="ends", side="end")
        shown = shown.sel(score=[*judged.SCORES[::2]])
        swept = found.swept.sel(score=[*judged.PAPERS])
        value, lost = shown.value[0, 0], 1 - shown.value[-1] / shown.value[0]
        most = lost.isel(model=lost.mean("score").argmax("model").item())
        look: dict[str, Any] = {"row": "model", "x_label": "different answers to a prompt"}
        drawn = {
            "answers": figures.dots(
                shown.isel(text=[0], score=[0]), hue="score", column="text", each=_classes,
                headline=f"{shown.score[0].item()}: {names[0]} gives {value[0]:.1f} different "
                f"answers to a prompt, {names[-1]} {value[-1]:.1f}", **look,
            ),
            "answers_length": figures.dots(
                shown, hue="text", column="score", headline="Cut to one length, answers of "
                f"{most.model.item()} lose most, {most.min():.0%} to {most.max():.0%}", **look,
            ),
            "answers_agreement": figures.facets(
                swept.to_dataset(), x="multiple", column="score", value="swept", hue="text",
                x_label="multiple of the bandwidth", y_label="rank correlation with classes",
                size=(3.5, 2.7), each=lambda panel, _: panel.semilogx(base=2),
            ),
        }  # fmt: skip
        spans = (f"{of.min():.2f} to {of.max():.2f} ({t})" for t, of in swept.groupby("text"))
        words = f"Rank correlation with the classes is {', '.join(spans)}"
        style.headline(drawn["answers_agreement"], words)
        if CUT not in study.texts:
            del drawn["answers_length"]
        return {k: figures.caption(of, run, bars="95%", scale=scale) for k, of in drawn.items()}


def _classes(panel: Axes, part: xr.Dataset) -> None:
    classes = part.benchmark.sel(judge=CLASSES).squeeze()
    panel.plot(classes, -np.arange(len(classes)), "D", c=style.GREY, label="benchmark's classes")


def benchmark_of(pairs: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The benchmark's number of classes and its utility, by model and prompt; NaN where unknown.

    The utility (Zhang et al. 2025, NoveltyBench, section 3.3) is the mean reward of a reader who
    goes on to the next answer with probability 0.8, and for whom an answer of a class that was
    there before is worth nothing.
    """
    classes = judged.numbers(pairs, "classes", rows)
    rewards = judged.numbers(pairs, "rewards", rows)
    equal = classes[..., :, None] == classes[..., None, :]
    new = ~np.tril(equal, -1).any(axis=3)
    number = np.where(np.isnan(classes).any(axis=2), np.nan, new.sum(axis=2))
    weights = _PATIENCE ** np.arange(rows.shape[2])
    return {CLASSES: number, UTILITY: np.sum(rewards * new * weights, axis=2) / weights.sum()}


def _joint_signs(compared: Sequence[cv.inference.Comparison]) -> np.ndarray:
    """The signs of all pairs of models under several encoders, `[pairs, encoders]`.

    With 95% confidence all are right at once: encoders take the place of bandwidths in a profile.
    """
    first, places = compared[0], [of.evaluations for of in compared]
    pairs = {name: rows.supported() for name, rows in first.pairs.items()}
    units = Units.of(pairs, None, Keys(0).groups)
    along: Any = {name: [of[name].order(2).population for of in places] for name in pairs}
    shares = Common.of(pairs).shares((scores[0] for scores in along.values()), unbiased=True)
    curves = {
        name: profiles.curve_of(along[name], rows, units.of_models[name], shares)
        for name, rows in pairs.items()
    }
    rounding = saturation.rounding(cv.Entropy(order=2), first.first.dtype)
    tested = profiles.Tested(curves, units.matched != "none", judged.LEVEL, 0, rounding)
    return np.array([pair.signs for pair in tested.of_score("conditional")[1]])


def class_rewards(classes: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """The reward of the class of each answer `[..., k]`; the benchmark gives 0 to later ones."""
    equal = classes[..., :, None] == classes[..., None, :]
    return np.max(np.where(equal, rewards[..., None, :], -np.inf), axis=-1)


def short_name(model: str) -> str:
    """A model's name without the date at its end."""
    return re.sub(r"[-@]\d[\d-]*$", "", model)


def _ranking(run: lab.Run) -> Table:
    """Models by Conditional-Vendi, the most diverse first, with what else is known of them."""
    found = run.found.sel(scale=run.study.widths.shown)
    base = _ordered(found).sel(text=WHOLE)
    vendi, plain, unbiased = (base.sel(score=score) for score in judged.SCORES)
    cut = _ordered(found).value.sel(score="Conditional-Vendi").isel(text=-1)
    good = base.good.sel(source=EMBEDDINGS) if "good" in base else np.nan * base.words
    fields = [
        *(vendi.value, vendi.error, vendi.letters, plain.value, unbiased.value),
        *(*unbiased.interval.T, unbiased.letters, cut, *base.benchmark, good),
    ]
    names = [short_name(m) for m in base.model.values]
    line = "{}|{:.2f}±{:.2f} {}|{:.2f}|{:.2f} [{:.2f},{:.2f}] {}" + 4 * "|{:.2f}"
    heads = ("Conditional-Vendi", "Conditional-RKE", "unbiased", "cut", CLASSES, UTILITY, "good")
    grid = Table("model", *heads)
    for row in zip(names, *(of.values for of in fields), strict=True):
        grid.add_row(*line.format(*row).split("|"))
    return grid


def _ordered(found: xr.Dataset) -> xr.Dataset:
    """With the models by Conditional-Vendi of whole answers, the most diverse first."""
    return found.sortby(-found.value.sel(text=WHOLE, score="Conditional-Vendi"))
