"""Scores of a photograph with a caption, against people's judgements and exchanged words."""

import dataclasses
import functools
import operator
import pathlib
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from rich.table import Table
from scipy import stats

import condvendi_jax as cv
from experiments import data, lab
from experiments.data import PairedEmbeddings, sets
from experiments.lab import agreement, figures, style, tables

TAUS = {"expert": "c", "crowd": "b"}  # The variants of Kendall's tau in MID tables 4 and 5.
_TITLES = {name: f"Kendall's tau-{variant}" for name, variant in TAUS.items()}
LOWEST = "lowest of three"
# What the paper prints: tables 4, 5 and 7 (four references), and 3 (both with CLIP ViT-B/32).
METHODS = {"MID": "MID", "cosine": "CLIP-S", "references": "BERT-S", "both": "RefCLIP-S"}
PRINTED = {
    "expert": {"MID": 0.549, "CLIP-S": 0.512, "BERT-S": 0.392, "RefCLIP-S": 0.530},
    "crowd": {"MID": 0.373, "CLIP-S": 0.344, "BERT-S": 0.228, "RefCLIP-S": 0.364},
    "object": {"MID": 0.905, "CLIP-S": 0.872, "BERT-S": 0.921, "RefCLIP-S": 0.926},
    f"object, {LOWEST}": {"MID": 0.792, "CLIP-S": 0.318},
    f"count, {LOWEST}": {"MID": 0.290, "CLIP-S": 0.026},
    f"color, {LOWEST}": {"MID": 0.332, "CLIP-S": 0.068},
    f"spatial, {LOWEST}": {"MID": 0.280, "CLIP-S": 0.025},
}


class CaptionsJudged(lab.Study):
    """Do scores of photographs and captions agree with people, and do they see a changed word?"""

    name = "captions_judged"
    control = "A linear map, fitted to other photographs, takes the place of a shared space."
    tolerance = 1e-2  # Rounding decides a few of the choices of the kernel score of order 2.
    data = "judged_captions"
    needs = ("task", "people", "photograph", "caption")
    takes = ("metric_reference",)
    drawings = ("captions_judged", "captions_judged_changes")

    bandwidths: lab.Scales = lab.Scales()
    references: str = lab.flag(
        "captions", "Photographs (outputs) and captions to fit to: a shipped set, or a file of one."
    )
    ridges: tuple[float, ...] = lab.flag(
        (5e-4, 1e-4, 2e-3), "Ridges of MID; the first is that of the linear map too.", above=0
    )
    resamples: int = lab.flag(200, "Resamples of the photographs for intervals.", at_least=2)
    fitted: int = lab.resolved(0)

    def prepare(self, load, seed):
        """Leave the judged photographs out of the references; choose the bandwidths on the rest."""
        pairs = load()
        shipped = data.SETS.get(self.references)
        fit = shipped.load() if shipped else sets.read_set(pathlib.Path(self.references))
        fit = fit.rows(~np.isin(fit.labels["photograph"], pairs.labels["photograph"]))
        fit = dataclasses.replace(fit, outputs=fit.prompts, prompts=fit.outputs)
        return self.ready(
            pairs,
            state=(pairs, fit),
            arrays={**pairs.arrays, "captions": fit.outputs, "photographs": fit.prompts},
            bandwidths=self.bandwidths.resolve(fit, seed),
            fitted=len(fit),
        )

    def axes(self):
        return {"fitted_to": [pathlib.Path(self.references).stem]}

    def compute(self, state, context, *, fitted_to):
        """By measure and score `value`, and `ahead` (MID's less it), over `end`; cases `n`."""
        pairs, fit = state
        # Every pair once: experts judge one three times.
        numbers = [pairs.labels[role] for role in ("photograph", "caption")]
        _, first, again = np.unique(numbers, axis=1, return_index=True, return_inverse=True)
        once = pairs.rows(first)
        gaussian = {"reference_outputs": fit.outputs, "reference_prompts": fit.prompts}
        mutual = functools.partial(cv.baselines.pointwise_mutual_information, **gaussian)
        scores = {}
        for ridge in self.ridges:
            context.say(f"ridge {ridge:g}")
            name = f"MID, ridge {ridge:g}" if scores else "MID"
            scores[name] = np.asarray(mutual(once.outputs, once.prompts, ridge=ridge))[again]
        scores["cosine"] = mapped_cosine(once, fit, self.ridges[0])[again]
        for scale in self.bandwidths.axis:
            scores[f"kernel, {scale}"] = kernel_information(once, fit, scale.kernels)[again]
        if "metric_reference" in pairs.labels:
            near = scores["references"] = pairs.labels["metric_reference"].astype(np.float64)
            scores["both"] = stats.hmean(np.maximum([scores["cosine"], near], 1e-9))
        judged = np.stack(list(scores.values()))
        generator = np.random.default_rng(np.asarray(jax.random.bits(context.key, (4,))))
        found = []
        for name, (measure, groups) in (measured := measures(judged, pairs)).items():
            context.say(name)
            draws = list(agreement.resampled(groups, self.resamples, generator))
            both = agreement.with_interval(
                lambda of, m=measure: np.concatenate([v := m(of), v[0] - v]), draws, len(groups)
            )
            found.append(both.reshape(2, len(judged), 3))
        axes = {"measure": list(measured), "score": list(scores), "end": ["value", "low", "high"]}
        value, ahead = (xr.DataArray(part, axes) for part in np.stack(found, axis=1))
        counts = "measure", [len(groups) for _, groups in measured.values()]
        return xr.Dataset({"value": value, "ahead": ahead, "n": counts})

    def tables(self, run):
        """Every measure with its interval and the printed number; how far MID is ahead."""
        found = run.found.isel(fitted_to=0, drop=True)
        ours, lead = (tables.intervals(found[name]).value for name in ("value", "ahead"))
        for shown in (slice(2), slice(2, None, 2), slice(3, None, 2)):
            yield beside_printed(ours.isel(measure=shown))
        yield tables.table(xr.Dataset({"value": lead}), rows=("score",), columns="measure")

    @classmethod
    def facts(cls, runs):
        found = runs[0].found.isel(fitted_to=0, drop=True)
        changed = found.value.isel(measure=slice(2, None)).sel(score=[*METHODS], end="value")
        words = xr.apply_ufunc("{:.2f}".format, changed, vectorize=True)
        people, *_ = runs[0].study.tables(runs[0])
        made = {"people": people, "changed": beside_printed(words), "value": found.value}
        return {**made, "lead": found.ahead, "n": found.n}

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        found = run.found.isel(fitted_to=0, drop=True)
        measures, scores = (found[axis].values.tolist() for axis in ("measure", "score"))
        value = found.value.sel(measure=[name for name in measures if LOWEST not in name])
        ends = value.sel(end=["low", "high"])
        shown = xr.Dataset({"value": value.sel(end="value", drop=True), "ends": ends})

        def printed(panel, part):
            of_paper = PRINTED.get(part.measure.item(), {})
            for score, method in METHODS.items():
                if method in of_paper and score in scores:
                    panel.plot(scores.index(score), of_paper[method], "x", color=style.PRINTED)

        drawn, best = {}, shown.value.idxmax("score")
        judged, bars = shown.measure.isin([*TAUS]), "95%; crosses: the paper's (references: BERT-S)"
        for name, part in zip(cls.drawings, (judged, ~judged), strict=True):
            drawn[name] = figures.facets(
                shown.sel(measure=part), x="score", column="measure", across=2, kind="points",
                error="ends", each=printed, size=(3.5, 2.5), sharey=False, x_label="",
                title=lambda _, name: f"{name}: {_TITLES.get(name, 'share right')}",
                y_label="agreement",
            )  # fmt: skip
            words = (f"{score} ({k})" for k, score in best.sel(measure=part).to_series().items())
            style.headline(drawn[name], f"The best scores: {', '.join(words)}")
            figures.caption(drawn[name], run, n=f"fitted to {run.study.fitted:,} others", bars=bars)
        return drawn


def beside_printed(words: xr.DataArray) -> Table:
    """A table of measures of our scores, and below them of the paper's methods."""
    names = words.measure.values.tolist()
    paper = [[str(PRINTED.get(m, {}).get(k, "-")) for m in names] for k in METHODS.values()]
    coordinates = {"score": [f"{k}, printed" for k in METHODS.values()], "measure": names}
    both = xr.concat([words, xr.DataArray(paper, coordinates)], "score").to_dataset(name="value")
    return tables.table(both, rows=("score",), columns="measure")


def mapped_cosine(pairs: PairedEmbeddings, fit: PairedEmbeddings, ridge: float) -> np.ndarray:
    """The cosine of a caption and its photograph's image by ridge regression, all centred."""
    t, x = (rows.astype(np.float64) for rows in (fit.prompts, fit.outputs))
    t_mean, x_mean = t.mean(axis=0), x.mean(axis=0)
    t, x = t - t_mean, x - x_mean
    linear = np.linalg.solve(t.T @ t / len(t) + ridge * np.eye(t.shape[1]), t.T @ x / len(t))
    mapped = pairs.prompts @ linear - t_mean @ linear
    captions = pairs.outputs - x_mean
    norms = np.linalg.norm(mapped, axis=1) * np.linalg.norm(captions, axis=1)
    return np.sum(mapped * captions, axis=1) / norms


def kernel_information(
    pairs: PairedEmbeddings, fit: PairedEmbeddings, kernels: Mapping[str, cv.Kernel]
) -> np.ndarray:
    """What each pair adds to Information-RKE of the others, `[n]`, in nats.

    log (m sum_j k(x, x_j)^2 k(t, t_j)^2 / (sum_j k(x, x_j)^2 sum_j k(t, t_j)^2)) over m pairs j.
    """
    squares, rows = [], []
    for role, number in (("prompt", "photograph"), ("output", "caption")):
        _, first, index = np.unique(pairs.labels[number], return_index=True, return_inverse=True)
        points, others = (getattr(of, f"{role}s") for of in (pairs, fit))
        kernel = kernels[f"{role}_kernel"]
        prepared = kernel.prepare(jnp.concatenate([others, points[first]]))
        parts = slice(len(others), None), slice(len(others))
        both = (jax.tree.map(operator.itemgetter(part), prepared) for part in parts)
        square = np.square(kernel.cross(*both))
        squares.append(square / square.mean(axis=1, keepdims=True))
        rows.append(index)
    return np.log(squares[0] @ squares[1].T / len(fit))[tuple(rows)]


def measures(judged: np.ndarray, pairs: PairedEmbeddings) -> dict[str, tuple[Callable, np.ndarray]]:
    """By name, a measure of the scores `[J, n]` as a function of rows, and the rows' photographs.

    It is Kendall's tau, or how often a changed caption (people: 0) scores less than its original
    (2), and less than both that and another caption (1).
    """
    found = {}
    task, people, photograph = (pairs.labels[k] for k in ("task", "people", "photograph"))
    for name in [*TAUS, *sorted(set(task) - set(TAUS))]:
        rows = np.flatnonzero(task == name)
        rows = rows[np.lexsort([people[rows], photograph[rows]])]
        scores, groups = judged[:, rows], photograph[rows]
        if name in TAUS:
            found[name] = functools.partial(taus, scores, people[rows], TAUS[name]), groups
            continue
        altered, other, original = (scores[:, place::3] for place in range(3))
        for words, rest in (("", original), (f", {LOWEST}", np.minimum(original, other))):
            right = altered < rest
            found[name + words] = (lambda of, r=right: r[:, of].mean(axis=1)), groups[::3]
    return found


def taus(scores: np.ndarray, people: np.ndarray, variant: str, rows: np.ndarray) -> np.ndarray:
    """Kendall's tau of each of some scores with people's judgements, on some rows."""
    return np.array([stats.kendalltau(of[rows], people[rows], variant=variant)[0] for of in scores])
