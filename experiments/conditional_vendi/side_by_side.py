"""Models side by side, on the prompts that they share: pictures, clips and answers."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, figures, models, style, tables

_FEWEST, _MOST = 3, 300  # Prompts of a comparison.
ALL, OUTPUTS = "all", "outputs"  # The only source where none is named; the embeddings as given.
TOGETHER, PAIRS = "together", "pairs"
_NAMES = {OUTPUTS: "whole", "means": "mean frame", "stills": "one frame", "truncated": "cut"}
_SHOWN = [0, 1, 6, 7]  # Conditional- and Information-Vendi, and -RKE, unbiased.
_RESAMPLES = 2000  # Of the models.
_LETTERED = 10  # The most models that have letters in a figure.


@dataclasses.dataclass(frozen=True)
class Design:
    """What some models are compared on: how many shared prompts, how many samples of each."""

    models: tuple[str, ...]
    prompts: int
    samples: int


@dataclasses.dataclass(frozen=True)
class Part:
    """The comparisons of one source, and the bandwidths chosen on all its outputs.

    `couples` are every two models on all that they share; none where `together` has all outputs.
    """

    together: Design
    couples: tuple[Design, ...]
    bandwidths: lab.Scales


def match(names: Sequence[str], counts: np.ndarray) -> Design:
    """The most rows that models share, of `counts` outputs a prompt, `[models, prompts]`."""
    fewest = counts.min(axis=0)
    shared = {k: min(int(np.sum(fewest >= k)), _MOST) for k in range(1, max(fewest.max(), 1) + 1)}
    samples = max(shared, key=lambda k: (k * shared[k], -k))
    return Design(tuple(names), shared[samples], samples)


def share(names: Sequence[str], counts: np.ndarray, least: int) -> Design:
    """The comparison of as many models as share `least` prompts; the others are as in `match`."""
    design = match(names, counts)
    if design.prompts < least and len(names) > 2:
        fewest = min(range(len(names)), key=lambda row: (np.sum(counts[row] > 0), -row))
        return share(np.delete(names, fewest).tolist(), np.delete(counts, fewest, axis=0), least)
    if design.prompts < _FEWEST:
        who = f"{' and '.join(names)} share {design.prompts}"
        raise ValueError(f"--prompts: expected {_FEWEST} or more that the models share; {who}.")
    return design


def by_samples(outputs: np.ndarray, prompts: np.ndarray, bandwidths: lab.Bandwidths) -> np.ndarray:
    """`models.SCORES` with k of a prompt's K samples, `[K, scores]`; means over where k begin."""
    every = range(outputs.shape[1])
    found = np.zeros((len(every), len(models.SCORES)))
    for last, start in itertools.product(every, every):
        taken = np.concatenate(np.roll(outputs, -start, axis=1)[:, : last + 1])
        pairs = taken, np.repeat(prompts, last + 1, axis=0)
        of = {o: cv.decompose(*pairs, order=o, **bandwidths.kernels).scores for o in (1.0, 2.0)}
        found[last] += [float(getattr(of[o], name)) / len(every) for name, o in models.SCORES]
    return found


def told_apart(found: xr.Dataset) -> xr.Dataset:
    """How many pairs a test tells apart, and how many it orders otherwise at another scale."""
    pair, sign = ("model", "other"), np.sign(found.difference).where(found.p_value <= models.LEVEL)
    turned = ((sign > 0).any("scale") & (sign < 0).any("scale")).sum(pair) // 2
    there = found.difference.notnull().any((*pair, "score"))
    return xr.Dataset({"value": (sign > 0).sum(pair).where(there), "turned": turned})


class SideBySide(lab.Study):
    """Which of several models is more diverse, given the prompts and without them?"""

    grows = ("comparison", "other")
    tolerance = 0.05  # Ranks of saturated scores, at half the bandwidths, rest on rounding.
    data = "gallery"
    needs = ("models",)
    takes = ("prompt", "source", "words")
    further = ("means", "stills", "truncated")
    control = "Models are compared on the prompts that they share, equally often each."
    runs = ((), *((f"--data={data}",) for data in ("video", "language", "t2i", "t2i_second")))
    _parts = ("", "_video_FETV", "_language", "_t2i", "_t2i_second")

    bandwidths: lab.Scales = lab.Scales()
    least_prompts: int = lab.flag(
        20,
        "Models are left out, those of the fewest prompts first, until the others share so many.",
        at_least=_FEWEST,
    )
    groups: int = lab.flag(20, "Groups of prompts of the jackknife, at most.", at_least=3)
    parts: dict[str, Part] = lab.resolved()
    embeddings: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        if (words := pairs.labels.get("words", np.zeros(1))).dtype.kind not in "iuf":
            raise ValueError(f"--words: expected a number for each output, received {words.dtype}.")
        sources = models.rows_by_model(pairs.labels.get("source", np.full(len(pairs), ALL)))
        state = {source: pairs.rows(rows) for source, rows in sources.items()}
        return self.ready(
            pairs,
            state=state,
            parts={source: self._part(own, seed) for source, own in state.items()},
            embeddings=(OUTPUTS, *(role for role in _NAMES if role in pairs.further)),
        )

    def _part(self, pairs: PairedEmbeddings, seed: int) -> Part:
        """What the models of one source are compared on."""
        names, counts = models.count_rows(pairs, least=1)
        together = share(names, counts, self.least_prompts)
        whole = len(together.models) * together.prompts * together.samples == len(pairs)
        every_two = () if whole else itertools.combinations(range(len(names)), 2)
        couples = [match([names[i], names[j]], counts[[i, j]]) for i, j in every_two]
        kept = [m for m in models.rows_by_model(pairs.labels["models"]) if m in together.models]
        return Part(
            dataclasses.replace(together, models=tuple(kept)),
            tuple(design for design in couples if design.prompts >= _FEWEST),
            self.bandwidths.resolve(pairs, seed),
        )

    def cells(self):
        """All models of a source by every embedding at every scale; every two, by the first."""
        return [
            lab.Cell((("source", s), ("comparison", c), ("embedding", e), ("scale", scale)))
            for s, part in self.parts.items()
            for c, embeddings in ((TOGETHER, self.embeddings), (PAIRS, (OUTPUTS,)))
            for e in (embeddings if c == TOGETHER or part.couples else ())
            for scale in part.bandwidths.axis
        ]

    def compute(self, state, context, *, source, comparison, embedding, scale):
        """The scores, those of order 2 also unbiased, with paired differences.

        Of all models together as `models.compare`, with the mean length in `words` and each score's
        `correlation` with it; of a source of one model `by_samples`. Of pairs as `models.of_pairs`.
        """
        pairs, part, seed = state[source], self.parts[source], context.shared_seed
        outputs = pairs.outputs if embedding == OUTPUTS else pairs.further[embedding]

        def compare(index, plan):
            # Where all models have the same prompts as often, nothing is drawn.
            key = jax.random.fold_in(context.shared_key, index) if part.couples else None
            rows = models.shared_rows(pairs, plan.models, plan.samples, key)[:, : plan.prompts]
            groups = min(self.groups, plan.prompts)
            if part.couples:
                groups = np.repeat(np.arange(plan.prompts) % groups, plan.samples)
            x = {m: outputs[of.ravel()] for m, of in zip(plan.models, rows, strict=True)}
            t = pairs.prompts[rows[0].ravel()]
            options = {"groups": groups, "seed": seed, "method": cv.Exact(), "say": context.say}
            found = models.compare(x, t, scale, unbiased=False, **options)
            unbiased = models.compare(x, t, scale, orders=[2], **options)
            unbiased["score"] = [f"{score}, unbiased" for score in unbiased.score.values]
            found = xr.concat([found, unbiased], "score", data_vars="minimal", coords="minimal")
            return found, rows

        if comparison == PAIRS:
            return models.of_pairs([compare(*of)[0] for of in enumerate(part.couples)])
        found, rows = compare(0, part.together)
        words = pairs.labels.get("words", np.full(len(pairs), np.nan))[rows].mean(axis=(1, 2))
        orders = [order for _, order in models.SCORES] + [2.0] * 3
        every, generator = np.arange(len(words)), np.random.default_rng(seed)
        draws = list(agreement.resampled(every, _RESAMPLES, generator))
        of_length = agreement.correlate(found.value.values, words, draws, orders)
        prompts, kernel = pairs.prompts[rows[0]], scale.kernels["prompt_kernel"]
        found = found.assign(
            words=("model", words),
            correlation=(("score", "end"), of_length),
            prompt_modes=float(cv.rke(np.concatenate(prompts), kernel=kernel)),
        )
        if len(rows) == 1:
            fewer = by_samples(outputs[rows[0]], prompts[:, 0], scale)
            labels = {"samples": 1 + np.arange(len(fewer)), "score": found.score.values[:6]}
            found["by_samples"] = xr.DataArray(fewer, labels, list(labels))
        return found

    def tables(self, run):
        """The scores; how many pairs tests tell apart; the correlations with length."""
        found, together = run.found, run.found.sel(comparison=TOGETHER)
        rows = ("source", "embedding", "scale", "model")
        yield tables.table(together, rows=rows, columns="score", error="error", letters="letters")
        told = told_apart(found)
        yield tables.table(told, rows=(*rows[:3], "comparison"), columns="score")
        turned = told.turned.isel(embedding=0).to_dataset(name="value")
        yield tables.table(turned, rows=("source", "comparison"), columns="score")
        if together.words.notnull().any():
            correlations = tables.intervals(together.correlation)
            yield tables.table(correlations, rows=rows[:3], columns="score")
        if "by_samples" in found:
            rows = (*rows[:3], "samples")
            yield tables.table(together, rows=rows, columns="score", value="by_samples")

    @classmethod
    def facts(cls, runs):
        short = {"score": ["CV", "IV", "V", "CR", "IR", "R", "uCR", "uIR", "uR"]}
        together = (run.found.sel(comparison=TOGETHER) for run in runs)
        every = (runs[0].found.sel(comparison=PAIRS), *together)
        every = (of.assign_coords(short).squeeze() for of in every)
        couples, pictures, answers, t2i, second, clips = every
        plain = [n for n in answers.model.values.tolist() if f"{n}_concise" in answers.model]
        two = [{"model": f"{n}_verbose", "other": f"{n}_concise"} for n in plain]
        known = {"verbose": xr.concat([answers.sel(pair, drop=True) for pair in two], "pair")}
        known |= {"couples": couples, "pictures": pictures, "clips": clips.sel(source="FETV")}
        alike = second.p_value.where(t2i.difference * second.difference > 0, 1)
        both = told_apart(t2i.assign(p_value=np.maximum(t2i.p_value, alike))).value
        known |= {"t2i": t2i, "second": second, "both": both, "tau": stats.kendalltau}
        return known | {"answers": answers, "tables": tables, "told_apart": told_apart}

    @classmethod
    def figures(cls, runs):
        drawn: dict[str, Figure] = {}
        for run, source in [(r, s) for r in runs for s in r.study.parts]:
            if len(run.study.parts[source].together.models) > 1:
                name = filter(None, (cls.name, run.data, source if source != ALL else ""))
                drawn["_".join(name)] = _models(run, source)
        return drawn


def _models(run: lab.Run, source: str) -> Figure:
    """A point a model and embedding, by length or else by score; a panel a score."""
    part = run.study.parts[source]
    plan, scale, names = part.together, part.bandwidths.shown, list(part.together.models)
    found = run.found.sel(source=source, comparison=TOGETHER, model=names, other=names)
    told = told_apart(found).value.sel(scale=scale)
    found = found.sel(scale=scale).isel(score=_SHOWN)
    order = found.words[0] if found.words.notnull().all() else found.value[0, 0]
    found = found.isel(model=np.argsort(order.values, kind="stable"))
    few, pairs = len(names) <= _LETTERED, math.comb(len(names), 2)

    def title(_: None, score: str) -> str:
        apart = told.sel(score=score).to_series()
        names = (f"{n:g} {_NAMES[e]}" if len(apart) > 1 else f"{n:g}" for e, n in apart.items())
        return f"{score}:\n{', '.join(names)} told apart"

    letters = found.letters.where((found.embedding == OUTPUTS) & few, "")
    interval = stats.t.ppf(0.975, found.groups.max() - 1) * found.error
    found = found.assign(interval=interval, letters=letters)
    drawn = figures.facets(
        found, x="model", hue="embedding", column="score", across=2 if few else 1, kind="points",
        error="interval", letters="letters", names=_NAMES, title=title,
        size=(3.5, 2.1) if few else (7, 1.6), sharey="none", y_label="modes",
        x_label="" if few else "shortest outputs first",
    )  # fmt: skip
    most = told.sel(score=found.score).max()
    style.headline(drawn, f"Up to {most:g} of {pairs} pairs of models are told apart")
    # The kernels in the caption are those of the source.
    run = dataclasses.replace(run, study=dataclasses.replace(run.study, bandwidths=part.bandwidths))
    bars = "95%; a letter in common: not told apart" if few else "95%"
    n = f"{plan.samples} of each of {plan.prompts} prompts a model"
    return figures.caption(drawn, run, n=n, scale=scale, bars=bars)
