"""The effective number of answers to a prompt after each stage of a language model's training."""

import itertools
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax import inference
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, figures, models, style, tables
from experiments.language_models import judged

WHOLE, SAME, MATCHED = "whole", "same prompts", "matched"
BOTH, ALL = "both", "all"
SCORES = {"Conditional-Vendi": 1.0, "Conditional-RKE": 2.0}
UNBIASED = "Conditional-RKE, unbiased"
_COLOURS = {WHOLE: style.BLUE, SAME: style.SKY, MATCHED: style.ORANGE}
_NAMES = {
    WHOLE: "whole answers, all prompts",
    SAME: "whole answers, the prompts that can be matched",
    MATCHED: "the same prompts, answers cut to equal length",
}


class PostTraining(lab.Study):
    """Does each stage of a language model's training narrow its answers?"""

    name = "post_training"
    version = 3
    duration = "5 minutes"
    data = "post_training"
    needs = ("models", "prompt")
    takes = ("benchmark", "matched", "words", "distinct")
    drawings = ("post_training", "post_training_steps", "post_training_bandwidth")

    widths: judged.Widths = judged.Widths()
    resamples: int = lab.flag(1000, "Resamples of the prompts, for the correlations.", at_least=2)
    distances: tuple[float, ...] = lab.flag(
        (0.02, 0.05, 0.1), "MMD within each prompt that reweighting may move the answers.", above=0
    )
    stages: tuple[str, ...] = lab.resolved()
    of_each: int = lab.resolved()
    counts: dict[str, dict[str, int]] = lab.resolved()

    def prepare(self, load, seed):
        """Parts the answers by set of prompts and text, and chooses the bandwidth."""
        pairs = load()
        parts = {name: _texts(of) for name, of in _by_benchmark(pairs).items()}
        rows = {
            name: {text: judged.by_prompt(part)[0] for text, part in of.items()}
            for name, of in parts.items()
        }
        stages = list(models.rows_by_model(pairs.labels["models"]))
        for name, of in parts.items():
            for text, part in of.items():
                if (found := list(models.rows_by_model(part.labels["models"]))) != stages:
                    raise ValueError(
                        f"--models: expected {', '.join(stages)}, in this order, in every part; "
                        f"the {text} answers of {name} have {', '.join(found)}."
                    )
        first = next(iter(rows.values()))[WHOLE]
        return self.ready(
            pairs,
            state=(parts, rows),
            widths=self.widths.resolve(pairs),
            stages=tuple(stages),
            of_each=first.shape[2],
            counts={name: {t: r.shape[1] for t, r in of.items()} for name, of in rows.items()},
        )

    def axes(self):
        texts = {text: None for of in self.counts.values() for text in of}
        return {"benchmark": tuple(self.counts), "text": tuple(texts), "scale": self.widths.axis}

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The stages before and after each step, and the first and the last."""
        last = len(self.stages) - 1
        found = list(itertools.pairwise(range(last + 1)))
        return found if last == 1 else [*found, (0, last)]

    def compute(self, state, context, *, benchmark, text, scale):
        """Conditional-* after every stage, and what every step changes.

        Returns:
          Over `score` and `model` (the stages): `value` with its `error` over the prompts and its
          95% `interval` over `side`, and the value of the `first` half of the answers. Over `score`
          and `step`: `difference` (the later stage less the earlier one) with `difference_error`,
          both paired by prompt; `p_value`, adjusted by Holm over the steps. The last score is the
          unbiased one; of the others, `effect`, the mean change of a prompt's effective number over
          its standard deviation; `narrower`, the share of prompts whose effective number falls,
          ties counting half, with `narrower_ends`, its 95% interval over `side`. Over `model`:
          `words`, the mean length; `empty`, how many answers have no word; `unlike`, 1 less the
          mean cosine of two answers to a prompt; `near`, the mean cosine of an answer and its
          prompt. `correlation` over `score`, `model` and `end` is Spearman's correlation of the
          prompts' effective numbers with `distinct`, with a 95% interval over the prompts.
          `reweighted` over `score`, `distance` and `model` is the papers' score at the weights of
          `cv.reweight`, for the last benchmark's whole answers at the scale shown; else NaN.
        """
        parts, rows = state
        part, rows = parts[benchmark][text], rows[benchmark][text]
        half = rows[..., : max(2, self.of_each // 2)]
        entropies = judged.entropies(part.outputs[rows], scale.outputs)
        values, influences = judged.scores_of(entropies)
        before, after = np.array(self.steps).T
        changes = np.exp(entropies[:, after]) - np.exp(entropies[:, before])
        spread = changes.std(axis=2, ddof=1)
        difference = values[:, after] - values[:, before]
        moved = judged.error_of(influences[:, after] - influences[:, before])
        falls = [_falls(of, order) for of, order in zip(changes, SCORES.values(), strict=True)]
        share = np.mean(falls, axis=2)
        error = judged.error_of(influences)
        ends = np.stack([values - 1.96 * error, values + 1.96 * error], axis=-1)
        first = judged.conditional(judged.entropies(part.outputs[half], scale.outputs))
        plain = {
            "value": (("score", "model"), values),
            "error": (("score", "model"), error),
            "interval": (("score", "model", "side"), ends),
            "first": (("score", "model"), first),
            "difference": (("score", "step"), difference),
            "difference_error": (("score", "step"), moved),
            "p_value": (("score", "step"), judged.p_values(difference, moved, rows.shape[1])),
        }
        context.say("unbiased")
        unbiased = self._unbiased(part.outputs, rows, half, scale)
        found = xr.concat([xr.Dataset(plain, {"score": list(SCORES)}), unbiased], "score")
        words = part.labels.get("words", np.full(len(part), np.nan))[rows]
        reweighted = np.full((len(SCORES), len(self.distances), len(rows)), np.nan)
        if (benchmark, text, scale.coordinate) == tuple(self._reweighted_cell.values()):
            context.say("reweighted")
            reweighted = self._reweighted(part.outputs[rows], scale)
        others = xr.Dataset(
            {
                "effect": (
                    ("score", "step"),
                    changes.mean(axis=2) / np.where(spread > 0, spread, np.nan),
                ),
                "narrower": (("score", "step"), share),
                "narrower_ends": (("side", "score", "step"), wilson(share, rows.shape[1])),
                "words": ("model", words.mean(axis=(1, 2))),
                "empty": ("model", np.sum(words == 0, axis=(1, 2))),
                "unlike": ("model", 1 - _cosines(part.outputs[rows]).mean(axis=1)),
                "near": ("model", _near(part.outputs[rows], part.prompts[rows])),
                "correlation": (
                    ("score", "model", "end"),
                    self._correlations(part, rows, entropies, context.shared_seed),
                ),
                "reweighted": (("score", "distance", "model"), reweighted),
            },
            {
                "score": list(SCORES),
                "distance": list(self.distances),
                "model": list(self.stages),
                "step": [f"{self.stages[b]} to {self.stages[a]}" for b, a in self.steps],
            },
        )
        return found.merge(others, join="left")

    def _unbiased(
        self, outputs: np.ndarray, rows: np.ndarray, half: np.ndarray, width: judged.Width
    ) -> xr.Dataset:
        """The unbiased score of answers `[models, prompts, n]`, and of the first half of them."""

        def ranking(chosen: np.ndarray) -> inference.Ranking:
            prompt = np.repeat(np.arange(chosen.shape[1], dtype=np.float32), chosen.shape[2])
            of_stages = zip(self.stages, outputs[chosen.reshape(len(chosen), -1)], strict=True)
            options: dict[str, Any] = {"orders": [2], "profile": False, **width.kernels}
            return cv.compare(dict(of_stages), prompt[:, None], **options).ranking("conditional", 2)

        found, first = ranking(rows), ranking(half)
        steps = [found.difference(self.stages[a], self.stages[b]) for b, a in self.steps]
        by_stage = (found.values, found.standard_errors, found.population or {}, first.values)
        value, error, interval, first = (
            [of.get(stage, (np.nan, np.nan)) for stage in self.stages] for of in by_stage
        )
        return xr.Dataset(
            {
                "value": ("model", value),
                "error": ("model", error),
                "interval": (("model", "side"), interval),
                "first": ("model", first),
                "difference": ("step", [of.value for of in steps]),
                "difference_error": ("step", [of.standard_error for of in steps]),
                "p_value": ("step", inference.holm([of.p_value for of in steps])),
            }
        ).expand_dims(score=[UNBIASED])

    @property
    def _reweighted_cell(self) -> dict[str, Any]:
        """The only cell that is reweighted, because that takes minutes."""
        return {"benchmark": list(self.counts)[-1], "text": WHOLE, "scale": self.widths.shown}

    def _reweighted(self, outputs: np.ndarray, width: judged.Width) -> np.ndarray:
        """The papers' scores `[scores, distances, models]` at the weights of `cv.reweight`.

        An MMD within each of P prompts is root P times the one of all answers.
        """
        prompt = np.repeat(np.arange(outputs.shape[1], dtype=np.float32), outputs.shape[2])[:, None]
        values = np.empty((len(SCORES), len(self.distances), len(outputs)))
        for stage, answers in enumerate(outputs.reshape(len(outputs), len(prompt), -1)):
            for place, within in enumerate(self.distances):
                distance = within / outputs.shape[1] ** 0.5
                weights = cv.reweight(answers, prompt, distance=distance, **width.kernels)
                pairs = cv.Pairs(answers, prompt, weights=weights, **width.kernels)
                for score, order in enumerate(SCORES.values()):
                    values[score, place, stage] = cv.decompose(pairs, order=order).conditional
        return values

    def _correlations(
        self, part: PairedEmbeddings, rows: np.ndarray, entropies: np.ndarray, seed: int
    ) -> np.ndarray:
        """Of the prompts' effective numbers with `distinct`, `[scores, models, 3]`."""
        distinct = part.labels.get("distinct", np.full(len(part), np.nan))[rows[..., 0]]
        generator = np.random.default_rng(seed)
        n = rows.shape[1]
        draws = list(generator.integers(n, size=(self.resamples, n)))
        orders = list(SCORES.values())
        found = [
            agreement.correlate(np.exp(entropies[:, stage]), wanted, draws, orders)
            for stage, wanted in enumerate(distinct)
        ]
        return np.stack(found, axis=1)

    def tables(self, run):
        """Scores by stage; what each step changes, with the share of prompts that narrow; more."""
        found = run.found
        base = found.sel(scale=self.widths.shown)
        rows = ("benchmark", "text", "scale")
        for score in (*SCORES, UNBIASED):
            one = found.sel(score=score)
            yield tables.table(one, rows=rows, columns="model", error="error")
            fields = (one.difference, one.difference_error, one.p_value, one.effect, one.narrower)
            words = xr.apply_ufunc(_in_words, *fields, vectorize=True)
            yield tables.table(xr.Dataset({"value": words}), rows=rows, columns="step")
        one = found.sel(score=UNBIASED)
        ends: list[xr.DataArray] = [one.value, one.interval.rename(side="end")]
        yield tables.table(tables.intervals(xr.concat(ends, "end")), rows=rows, columns="model")
        yield tables.table(base, rows=(*rows[:2], "score"), columns="model", value="first")
        for value in ("words", "empty", "unlike", "near"):
            yield tables.table(base, rows=rows[:2], columns="model", value=value)
        words = tables.intervals(found.correlation.sel(score=list(SCORES)))
        yield tables.table(words, rows=(*rows, "score"), columns="model")
        one = found.sel(self._reweighted_cell | {"score": list(SCORES)})
        axes = ("score", "distance")
        yield tables.table(one, rows=axes, columns="model", value="reweighted")

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, found = run.study, run.found
        shown = study.widths.shown
        base = found.sel(scale=shown)
        of_each = f"{study.of_each} answers to a prompt after each stage"
        bars = "95% intervals over the prompts"
        look: dict[str, Any] = {"n": of_each, "bars": bars}

        def title(_: Any, benchmark: str) -> str:
            number = study.counts[benchmark]
            words = f"{benchmark}: {number[WHOLE]} prompts"
            return words + (f", {number[MATCHED]} matched" if MATCHED in number else "")

        def stages(of: xr.Dataset, row: str, label: Any) -> Figure:
            return figures.facets(
                of[["value", "interval"]].rename(side="end"), x="model", hue="text", row=row,
                column="benchmark", error="interval", colours=_COLOURS, names=_NAMES, title=title,
                x_label="stage of training", y_label=label, size=(3.4, 2.5), each=_logarithmic,
            )  # fmt: skip

        wide = found.sel(score="Conditional-Vendi")
        return {
            "post_training": figures.caption(
                stages(base, "score", lambda s: f"{s}\neffective number of answers"),
                run, scale=shown, **look,
            ),
            "post_training_steps": figures.caption(_steps(base, title), run, scale=shown, **look),
            "post_training_bandwidth": figures.caption(
                stages(wide, "scale", lambda x: f"Conditional-Vendi\nbandwidth x {x:g}"),
                run, **look,
            ),
        }  # fmt: skip


def _logarithmic(panel: Axes, part: xr.Dataset) -> None:
    if part.score.item() == UNBIASED:  # It has no limit.
        style.log_axis(panel)


def _in_words(change: float, error: float, p: float, effect: float, narrower: float) -> str:
    ending = "" if np.isnan(narrower) else f", d {effect:.2f}, {narrower:.0%} narrow"
    return f"{change:.2f} ± {error:.2f}, p {p:.1g}{ending}"


def _by_benchmark(pairs: PairedEmbeddings) -> dict[str, PairedEmbeddings]:
    """The rows of each set of prompts, and of all of them where there are several."""
    labels = pairs.labels.get("benchmark")
    if labels is None or len(names := dict.fromkeys(labels.astype(str).tolist())) == 1:
        return {ALL: pairs}
    parts = {name: pairs.rows(labels.astype(str) == name) for name in names}
    return {**parts, BOTH if len(parts) == 2 else ALL: pairs}


def _texts(pairs: PairedEmbeddings) -> dict[str, PairedEmbeddings]:
    """The whole answers, those to the prompts that have matched ones, and the matched ones."""
    matched = pairs.labels.get("matched", np.zeros(len(pairs), int))
    if not set(np.unique(matched)) <= {0, 1}:
        raise ValueError("--matched: expected 0 and 1, received other labels.")
    whole, cut = pairs.rows(matched == 0), pairs.rows(matched == 1)
    if not len(cut):
        return {WHOLE: whole}
    prompts = cut.labels["prompt"]
    if missing := set(prompts.tolist()) - set(whole.labels["prompt"].tolist()):
        raise ValueError(f"--matched: prompt {min(missing)} has matched answers and no whole ones.")
    same = whole.rows(np.isin(whole.labels["prompt"], prompts))
    return {WHOLE: whole, SAME: same, MATCHED: cut}


def wilson(share: np.ndarray, n: int) -> np.ndarray:
    """Wilson's 95% intervals of shares of n, the lower and the upper ends `[2, ...]`."""
    squared = 1.96**2 / n
    middle = (share + squared / 2) / (1 + squared)
    half = np.sqrt(squared * share * (1 - share) + squared**2 / 4) / (1 + squared)
    return np.stack([middle - half, middle + half])


def _falls(changes: np.ndarray, order: float) -> np.ndarray:
    """1 where a prompt's effective number falls, 1/2 where it changes by rounding alone, else 0."""
    return np.where(np.abs(changes) <= agreement.rounding(order), 0.5, changes < 0)


def _cosines(outputs: np.ndarray) -> np.ndarray:
    """The mean cosine of two different answers, `[models, prompts]`."""
    n, rows = outputs.shape[2], _unit(outputs)
    own = np.sum(rows**2, axis=(2, 3))
    return (np.sum(rows.sum(axis=2) ** 2, axis=2) - own) / (n * (n - 1))


def _near(outputs: np.ndarray, prompts: np.ndarray) -> np.ndarray:
    """The mean cosine of an answer and its prompt, `[models]`; NaN where they are of two kinds."""
    if outputs.shape[-1] != prompts.shape[-1]:
        return np.full(len(outputs), np.nan)
    return np.sum(_unit(outputs) * _unit(prompts), axis=3).mean(axis=(1, 2))


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows of norm 1 in float64; zero stays."""
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows.astype(np.float64) / np.where(norms > 0, norms, 1)


def _steps(found: xr.Dataset, title: Any) -> Figure:
    """What each step changes in Conditional-Vendi, and the share of prompts that narrow."""
    one = found.sel(score="Conditional-Vendi")
    names = one.benchmark.values.tolist()
    figure, panels = style.panels(2 * len(names), columns=len(names), size=(3.4, 2.5), sharey="row")
    places = np.arange(one.sizes["step"])
    for column, name in enumerate(names):
        top, low = panels[column], panels[column + len(names)]
        for number, text in enumerate(one.text.values.tolist()):
            of = one.sel(benchmark=name, text=text)
            shift = 0.2 * (number - (one.sizes["text"] - 1) / 2)
            look: dict[str, Any] = {
                "fmt": style.MARKERS[number],
                "elinewidth": 0.8,
                "color": _COLOURS[text],
                "label": _NAMES[text],
            }
            top.errorbar(places + shift, of.difference, 1.96 * of.difference_error, **look)
            ends = np.abs(of.narrower_ends.transpose("side", "step") - of.narrower)
            low.errorbar(places + shift, of.narrower, ends, **look)
        for panel, null in ((top, 0), (low, 0.5)):
            panel.axhline(null, color=style.GREY, lw=0.8)
            panel.set_xticks(places, [s.replace(" to ", "\nto ") for s in one.step.values.tolist()])
            panel.grid(axis="x", visible=False)
        top.set_title(title(None, name))
    panels[0].set_ylabel("change of Conditional-Vendi")
    panels[len(names)].set_ylabel("share of prompts that narrow")
    style.legend_above(figure, panels[0])
    return figure
