"""The effective number of answers to a prompt after each stage of a language model's training."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax.base import checks
from condvendi_jax.entropies.eigenvalues import matmul
from condvendi_jax.spectra.methods import unweighted_grams
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, figures, models, style, tables
from experiments.language_models import judged
from experiments.language_models.judged import WHOLE

SAME, MATCHED = "same prompts", "matched"
BOTH, ALL = "both", "all"
_ORDERS = list(judged.PAPERS.values())
_DRAWN = 1e5  # Larger scores say that no two answers are alike.
_COLOURS = {WHOLE: style.BLUE, SAME: style.SKY, MATCHED: style.ORANGE}
_NAMES = {
    WHOLE: "whole answers",
    SAME: "whole, some prompts",
    MATCHED: "same prompts, cut\nto equal length",
}


class PostTraining(lab.Study):
    """Does each stage of a language model's training narrow its answers?"""

    control = "All stages answer the same prompts as often; some at equal length, as a control."
    grows = ("benchmark", "text")
    version = 5
    data = "post_training"
    needs = ("models", "prompt")
    takes = ("benchmark", "matched", "words", "distinct")

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
        pairs, state, counts = load(), {}, {}
        stages = tuple(models.rows_by_model(pairs.labels["models"]))
        for name, of in _by_benchmark(pairs).items():
            for text, part in _texts(of).items():
                rows, _ = judged.by_prompt(part)
                state[name, text] = part, rows
                counts.setdefault(name, {})[text] = rows.shape[1]
                if (found := judged.by_model(part, rows, "models")) != stages:
                    raise ValueError(
                        f"--models: expected {', '.join(stages)}, in this order, for every "
                        f"benchmark, whole and matched; received {', '.join(found)}."
                    )
        (_, first), *_ = state.values()
        return self.ready(
            pairs,
            state=state,
            widths=self.widths.resolve(pairs),
            stages=stages,
            of_each=first.shape[2],
            counts=counts,
        )

    def axes(self):
        texts = {text: None for of in self.counts.values() for text in of}
        return {"benchmark": tuple(self.counts), "text": tuple(texts), "scale": self.widths.axis}

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The stages before and after each step, and the first and the last."""
        count = len(self.stages)
        return list(dict.fromkeys([*itertools.pairwise(range(count)), (0, count - 1)]))

    def compute(self, state, context, *, benchmark, text, scale):
        """The scores after every stage, and what every step changes.

        What `judged.scored` gives of the stages as models, and `full`, the scores of the prompts
        without an empty answer. Over `score` and `step`: `effect`, the mean change of a prompt's
        effective number over its standard deviation; `narrower`, the share of prompts whose
        effective number falls, ties counting half. Over `model`: `words`, the mean length; `empty`,
        how many answers have no word; `unlike`, 1 less the mean cosine of two answers to a prompt;
        `near`, the mean cosine of an answer and its prompt. `correlation` over `score`, `model` and
        `end`: Spearman's, of the prompts' effective numbers with `distinct`, with a 95% interval
        over the prompts. `reweighted` over `score`, `distance` and `model`: the papers' score at
        the weights of `reweight`, for the last benchmark's whole answers at the scale shown.
        """
        part, rows = state[benchmark, text]
        outputs, count = part.outputs[rows], rows.shape[1]
        found = judged.scored(outputs, self.stages, scale)
        words = judged.numbers(part, "words", rows)
        by_prompt, full = judged.entropies(outputs, scale.outputs), (words != 0).all(axis=(0, 2))
        found["full"] = ("score", "model"), judged.conditional(by_prompt[..., full])
        entropies = by_prompt[:2]
        before, after = np.array(self.steps).T
        changes = np.exp(entropies[:, after]) - np.exp(entropies[:, before])
        spread = changes.std(axis=2, ddof=1)
        falls = [  # A change by rounding alone counts half.
            np.where(np.abs(of) <= agreement.rounding(order), 0.5, of < 0)
            for of, order in zip(changes, _ORDERS, strict=True)
        ]
        distinct = judged.numbers(part, "distinct", rows[..., 0])
        generator = np.random.default_rng(context.shared_seed)
        draws = list(generator.integers(count, size=(self.resamples, count)))
        correlation = [
            agreement.correlate(np.exp(entropies[:, stage]), wanted, draws, _ORDERS)
            for stage, wanted in enumerate(distinct)
        ]
        unit, asked = _unit(outputs), _unit(part.prompts[rows])
        rest = unit.sum(axis=2, keepdims=True) - unit
        alike = np.sum(unit * rest, axis=3) / (rows.shape[2] - 1)
        one_kind = unit.shape == asked.shape
        near = np.sum(unit * asked, axis=3) if one_kind else np.full(rows.shape, np.nan)
        of_steps = ("score", "step")
        fields = {
            "effect": (of_steps, changes.mean(axis=2) / np.where(spread > 0, spread, np.nan)),
            "narrower": (of_steps, np.mean(falls, axis=2)),
            "words": ("model", words.mean(axis=(1, 2))),
            "empty": ("model", np.sum(words == 0, axis=(1, 2))),
            "unlike": ("model", 1 - alike.mean(axis=(1, 2))),
            "near": ("model", near.mean(axis=(1, 2))),
            "correlation": (("score", "model", "end"), np.stack(correlation, axis=1)),
        }
        steps = [f"{self.stages[b]} to {self.stages[a]}" for b, a in self.steps]
        labels = {"score": list(judged.PAPERS), "model": list(self.stages), "step": steps}
        others = xr.Dataset(fields, labels)
        last = list(self.counts)[-1], WHOLE, self.widths.shown
        if (benchmark, text, scale.coordinate) == last:  # It takes minutes.
            context.say("reweighted")
            others["reweighted"] = ("score", "distance", "model"), self._reweighted(outputs, scale)
            others = others.assign_coords(distance=list(self.distances))
        return found.merge(others, join="left")

    def _reweighted(self, outputs: np.ndarray, width: judged.Width) -> np.ndarray:
        """The papers' scores `[scores, distances, models]` at the weights of `reweight`.

        An MMD within each of P prompts is root P times the one of all answers.
        """
        prompt = np.repeat(np.arange(outputs.shape[1], dtype=np.float32), outputs.shape[2])[:, None]
        values = []
        for answers in outputs.reshape(len(outputs), len(prompt), -1):
            equal = cv.Pairs(answers, prompt, **width.kernels)
            for within in self.distances:
                weights = reweight(equal, distance=within / outputs.shape[1] ** 0.5)
                pairs = cv.Pairs(answers, prompt, weights=weights, **width.kernels)
                values.append([cv.decompose(pairs, order=order).conditional for order in _ORDERS])
        return np.reshape(values, (len(outputs), -1, len(_ORDERS))).T

    def changes(self, found: xr.Dataset) -> xr.Dataset:
        """What each step changes, over `step`; errors and p-values are of paired tests."""
        names = np.array(self.stages)[np.array(self.steps)].T
        other, model = (xr.DataArray(of, dims="step") for of in names)
        of_two = found[["difference", "difference_error", "p_value"]].sel(model=model, other=other)
        return of_two.drop_vars(["model", "other"]).merge(found[["effect", "narrower"]])

    def tables(self, run):
        """Scores by stage; what each step changes, with the share of prompts that narrow; more."""
        found, base = run.found, run.found.sel(scale=self.widths.shown)
        rows = ("benchmark", "text", "scale")
        for score in found.score.values:
            one = found.sel(score=score)
            yield tables.table(one, rows=rows, columns="model", error="error", letters="letters")
        yield tables.table(base, rows=(*rows[:2], "score"), columns="model", value="half")
        for value in ("words", "empty", "unlike", "near"):
            yield tables.table(base, rows=rows[:2], columns="model", value=value)
        found, base = (of.sel(score=list(judged.PAPERS)) for of in (found, base))
        yield _in_words(self.changes(found), (*rows, "score"))
        words = tables.intervals(found.correlation)
        yield tables.table(words, rows=(*rows, "score"), columns="model")
        one = base.sel(text=WHOLE, benchmark=list(self.counts)[-1])
        yield tables.table(one, rows=("score", "distance"), columns="model", value="reweighted")

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        found, vendi, rows = run.found, "Conditional-Vendi", ("benchmark", "text")
        base = found.sel(scale=1)
        words = judged.in_words("{:.3g}±{:.2g}", base.value, base.error)

        def of(score: int, benchmark: str = BOTH, text: int = 0, scale: float = 1) -> xr.Dataset:
            return found.isel(score=score, text=text).sel(benchmark=benchmark, scale=scale)

        def table(score: str) -> Table:
            return tables.table(words.sel(score=score), rows=rows, columns="model")

        return {
            "of": of,
            "steps": run.study.changes,
            "of_unbiased": table(judged.UNBIASED),
            "of_vendi": table(vendi),
            "of_steps": _in_words(run.study.changes(base.sel(score=vendi)), rows),
        }

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        study, found, shown = run.study, run.found, run.study.widths.shown
        base, vendi = found.sel(scale=shown), found.sel(score="Conditional-Vendi")
        counts, limit = {name: of[WHOLE] for name, of in study.counts.items()}, study.of_each

        def bounded(panel: Axes, part: xr.Dataset) -> None:
            if judged.UNBIASED in part.score:  # It has no limit.
                style.log_axis(panel)
            if part.score.ndim:
                style.known(panel, limit, f"limit of the papers' scores: {limit} answers")

        def stages(of: xr.Dataset, words: str, **look: Any) -> Figure:
            of = of[["value", "interval"]].rename(side="end")
            figure = figures.facets(
                of.where(of < _DRAWN), x="model", error="interval", x_label="stage of training",
                column="benchmark", title=lambda _, of: f"{of}: {counts[of]} prompts",
                each=bounded, **look,
            )  # fmt: skip
            return style.headline(figure, words)

        def most(of: xr.Dataset) -> str:
            first = abs(of.value.diff("model")).argmax("model") == 0
            lines = f"{first.sum().item()} of {first.size} lines"
            return f"{study.stages[1]} narrows the answers most in {lines}"

        texts: dict[str, Any] = dict(hue="text", colours=_COLOURS, names=_NAMES, size=(2.5, 2.1))
        last = base.isel(benchmark=[-1]).sel(text=WHOLE)
        many, left = last.interval[..., 0].values[0, -1, 0], last.value.values[0, -1, 1]
        leaves = f"{study.stages[1]} leaves {left:.0f} of more than {many:.0f} different answers"
        drawn = {
            "post_training": stages(
                last, leaves, hue="score", y_label="different answers to a prompt", size=(7.0, 3.0)
            ),
            "post_training_prompts": stages(
                base, most(base), row="score", y_label=lambda s: s.replace(", ", ",\n"), **texts
            ),
            "post_training_bandwidth": stages(
                vendi, most(vendi), row="scale",
                y_label=lambda x: f"Conditional-Vendi\nbandwidth x {x:g}", **texts,
            ),
        }  # fmt: skip
        return {k: figures.caption(of, run, bars="95%", scale=shown) for k, of in drawn.items()}


def _in_words(changes: xr.Dataset, rows: Sequence[str]) -> Table:
    """What each step changes, and in brackets the share of prompts that narrow."""
    fields = changes.difference, changes.difference_error, changes.narrower
    words = judged.in_words("{:.2f}±{:.2f} ({:.0%})", *fields)
    return tables.table(words, rows=rows, columns="step")


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


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows of norm 1 in float64; zero stays."""
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows.astype(np.float64) / np.where(norms > 0, norms, 1)


def reweight(pairs: cv.Pairs, *, distance: float) -> np.ndarray:
    """The weights `[n]` of largest H(X|T), or H(X), within a distance of equal weights u.

    They keep the share of each prompt, and the weight of a single output to one, and
    (q - u)' K (q - u) <= distance^2, the squared MMD for the product K of both kernels (Wu and
    Farnia, arXiv 2609.02275, eq. 1); within one of P `Indicator` prompts the MMD may be sqrt(P)
    times as large. Right to 2e-4 nats, or with a warning. Minutes at n = 400, seconds under
    `Indicator`. A score of q is one of another law.
    """
    limit = checks.check_number(distance, name="distance", above=0) ** 2
    near, kinds = pairs.gathered(), pairs.prompt_kinds[1]
    blocks = kinds if isinstance(near.kernels[-1], cv.Indicator) else 0 * kinds  # Or one block.
    sizes, multiplier = np.bincount(blocks), jnp.zeros((), near.dtype)
    rows = np.split(np.argsort(blocks, kind="stable"), np.cumsum(sizes)[:-1])
    rows = np.stack([np.resize(block, sizes.max()) for block in rows])  # Copies fill up a block.
    matrix = [*unweighted_grams(near).values()][-1].dense().matrix[rows[:, :, None], rows[:, None]]
    shares = ((np.arange(sizes.max()) < sizes[:, None]) / near.n).astype(near.dtype)
    for _ in range(50):
        q, (squared, gain, gap) = _solve(matrix, shares, kinds[rows], multiplier)
        inward = (limit / max(squared, limit)) ** 0.5
        loss = gap + multiplier * (limit - squared) + (1 - inward) * gain  # At most, by duality.
        if loss <= 2e-4:
            break
        multiplier = multiplier * (squared / limit) ** 0.75 or (loss + gain) / (2 * limit)
    else:
        checks.warn(f"reweight: the entropy may be {loss:.1g} nats below the largest one.")
    return (1 + float(inward) * (near.n * np.bincount(rows.ravel(), np.ravel(q)) - 1)) / near.n


@jax.jit
def _solve(kernel, shares, kinds, multiplier):
    """Mirror descent on multiplier x squared MMD - entropy: q; squared MMD, entropy gained, gap."""
    same = (kinds[:, :, None] == kinds[:, None]).astype(shares.dtype)

    def evaluate(q, steps):
        roots = jnp.sqrt(q)[:, None, :]
        values, vectors = jnp.linalg.eigh(kernel * roots * roots.mT)
        values = jnp.maximum(values, jnp.finfo(q.dtype).eps * jnp.max(values))[:, None, :]
        logs = jnp.sum(matmul(kernel * roots, vectors) ** 2 / values * jnp.log(values), axis=-1)
        moved = matmul(kernel, (q - shares)[:, :, None])[:, :, 0]
        slopes = 2 * multiplier * moved + logs
        above = slopes - jnp.min(jnp.where(same > 0, slopes[:, None], jnp.inf), axis=-1)
        found = jnp.abs(jnp.sum((q - shares) * moved)), -jnp.sum(q * logs), jnp.sum(q * above)
        return q, above, jnp.stack(found), steps

    def step(s):  # So short that the objective falls (docs/proofs.md).
        q = s[0] * jnp.exp(-s[1] / (1 + multiplier * shares.sum(1).max() * (1 - kernel.min())))
        sums = matmul(same, jnp.stack([shares, q], axis=-1))
        return evaluate(q * sums[..., 0] / sums[..., 1], s[3] + 1)

    start = evaluate(shares, 0)
    q, _, found, _ = jax.lax.while_loop(lambda s: (s[2][2] > 1e-4) & (s[3] < 5000), step, start)
    return q, found.at[1].add(-start[2][1])
