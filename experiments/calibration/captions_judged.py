"""Scores of a photograph with a caption, against people's judgements and exchanged words."""

import dataclasses
import operator
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from rich.table import Table
from scipy import linalg, stats

import condvendi_jax as cv
from experiments import data, lab
from experiments.calibration.judgements import with_ends
from experiments.data import PairedEmbeddings, sets
from experiments.lab import figures, style, tables

TAUS = {"expert": "c", "crowd": "b"}  # The variants of Kendall's tau in MID tables 4 and 5.
_TITLES = {name: f"Kendall's tau-{variant}" for name, variant in TAUS.items()}
LOWEST = "lowest of three"
# What the paper prints: tables 4, 5 and 7 (four references), 3 (CLIP ViT-B/32) and 6.
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
PASCAL = {"length": "length", "cider": "CIDEr", "reference": "BERT-S"}
PRINTED_PASCAL = {
    "HC": {"length": 0.517, "CIDEr": 0.651, "BERT-S": 0.654, "CLIP-S": 0.565, "MID": 0.670},
    "HI": {"length": 0.523, "CIDEr": 0.981, "BERT-S": 0.962, "CLIP-S": 0.993, "MID": 0.997},
    "HM": {"length": 0.636, "CIDEr": 0.905, "BERT-S": 0.933, "CLIP-S": 0.964, "MID": 0.974},
    "MM": {"length": 0.496, "CIDEr": 0.648, "BERT-S": 0.614, "CLIP-S": 0.704, "MID": 0.768},
}
_SHOWN = {"MID": "MID", "cosine": "cosine\n(CLIP-S)", "kernel, 1": "kernel"}
_SHOWN |= {"references": "references\n(BERT-S)", "both": "both\n(RefCLIP-S)"}
_NORMAL = stats.norm.ppf(0.975)


class Judged(NamedTuple):
    """Photographs and captions, each once, and the row of each for every judgement."""

    photographs: np.ndarray
    captions: np.ndarray
    photograph: np.ndarray
    caption: np.ndarray

    @classmethod
    def of_pairs(cls, pairs: PairedEmbeddings) -> "Judged":
        """Those of pairs, by their labels."""
        p, c = (
            np.unique(pairs.labels[number], return_index=True, return_inverse=True)[1:]
            for number in ("photograph", "caption")
        )
        return cls(pairs.prompts[p[0]], pairs.outputs[c[0]], p[1], c[1])


class CaptionsJudged(lab.Study):
    """Do scores of photographs and captions agree with people, and do they see a changed word?"""

    version = 2
    tolerance = 1e-2  # Rounding decides a few of the choices of the kernel score of order 2.
    data = "judged_captions"
    needs = ("task", "people", "photograph", "caption")
    takes = ("metric_reference",)
    control = "Every score judges the same pairs; none of them is fitted to the judged photographs."

    bandwidths: lab.Scales = lab.Scales()
    references: str = lab.flag(
        "captions", "Photographs (outputs) and captions to fit to: a shipped set, or a file of one."
    )
    pairs: str = lab.flag(
        "judged_pairs", "Two captions each that people chose from, without a photograph: the same."
    )
    ridges: tuple[float, ...] = lab.flag(
        (5e-4, 1e-4, 2e-3), "Ridges of MID; the first is that of the linear map too.", above=0
    )
    shares: tuple[float, ...] = lab.flag(
        (0.5, 0.3, 0.1, 0.05), "Shares of the references that MID is fitted to as well.", above=0
    )
    draws: int = lab.flag(3, "Random draws of each share.", at_least=2)
    fitted: int = lab.resolved(0)

    def prepare(self, load, seed):
        """Leave the judged photographs out of the references; choose the bandwidths on the rest."""
        pairs = load()
        once, labels, description = Judged.of_pairs(pairs), pairs.labels, pairs.description
        del pairs  # Half a gigabyte.
        fit, chosen = _set(self.references), _set(self.pairs)
        fit = fit.rows(~np.isin(fit.labels["photograph"], labels["photograph"]))
        fit = PairedEmbeddings(fit.name, fit.prompts, fit.outputs, fit.description)
        arrays = once._asdict() | labels | {"references": fit.outputs, "shown": fit.prompts}
        return self.ready(
            state=(once, labels, fit, chosen.labels),
            arrays=arrays | {f"pair {role}": of for role, of in chosen.labels.items()},
            description=description,
            bandwidths=self.bandwidths.resolve(fit, seed),
            fitted=len(fit),
        )

    def axes(self):
        return {"fitted_to": [pathlib.Path(self.references).stem]}

    def compute(self, state, context, *, fitted_to):
        """By measure and score `value`, and `ahead` (MID's less it), over `end`; cases `n`.

        `fewer` is MID's by share of the references; `chosen` how often scores agree with people
        on which of two captions is better, by `category`.
        """
        judged, labels, fit, pairs = state
        rng = np.random.default_rng(np.asarray(jax.random.bits(context.key, (4,))))
        scores = {}
        for ridge in self.ridges:
            context.say(f"ridge {ridge:g}")
            name = f"MID, ridge {ridge:g}" if scores else "MID"
            scores[name], cosine = gaussian_scores(judged, fit.prompts, fit.outputs, ridge)
            scores.setdefault("cosine", cosine)
        for scale in self.bandwidths.axis:
            context.say(f"kernel, {scale}")
            scores[f"kernel, {scale}"] = kernel_information(judged, fit, scale.kernels)
        if "metric_reference" in labels:
            near = scores["references"] = labels["metric_reference"].astype(np.float64)
            scores["both"] = stats.hmean(np.maximum([scores["cosine"], near], 1e-9))
        fewer = []
        for share in np.repeat(self.shares, self.draws):
            context.say(f"share {share:g}")
            rows = rng.permutation(len(fit))[: round(share * len(fit))]
            part = fit.prompts[rows], fit.outputs[rows]
            fewer.append(gaussian_scores(judged, *part, self.ridges[0])[0])
        names, drawn = [*scores], len(scores)
        found: dict[str, list] = {"value": [], "ahead": [], "fewer": [], "n": []}
        measured = measures([*scores.values(), *fewer], labels)
        for name, (value, influence) in measured.items():
            found["value"].append(interval(value, influence)[:drawn])
            found["ahead"].append(interval(value[0] - value, influence[0] - influence)[:drawn])
            by_share = value[drawn:].reshape(-1, self.draws)
            own = influence[drawn:].reshape(*by_share.shape, -1).mean(axis=1)
            draw = by_share.var(axis=1, ddof=1) / self.draws
            found["fewer"].append(interval(by_share.mean(axis=1), own, draw))
            rows = np.sum(labels["task"] == name.partition(",")[0])
            found["n"].append(rows if name in TAUS else rows // 3)
        kinds = [name for name in PRINTED_PASCAL if name in pairs["task"]]
        chosen = [[interval(*chosen_right(pairs, kind, of)) for of in PASCAL] for kind in kinds]
        axes = {"measure": [*measured], "score": names, "end": ["value", "low", "high"]}
        axes |= {"share": [*self.shares], "category": kinds, "rule": [*PASCAL]}
        dims = {"value": "measure score end", "ahead": "measure score end", "n": "measure"}
        dims |= {"fewer": "measure share end", "chosen": "category rule end"}
        found["chosen"] = chosen
        return xr.Dataset({k: (of.split(), found[k]) for k, of in dims.items()}, axes)

    def tables(self, run):
        """Every measure with its interval and the printed number; how far MID is ahead."""
        found = run.found.isel(fitted_to=0, drop=True)
        ours, lead, fewer = (tables.intervals(found[k]).value for k in ("value", "ahead", "fewer"))
        for shown in (slice(2), slice(2, None, 2), slice(3, None, 2)):
            yield beside_printed(ours.isel(measure=shown), METHODS, PRINTED)
        yield tables.table(xr.Dataset({"value": lead}), rows=("score",), columns="measure")
        yield tables.table(fewer.to_dataset(name="value"), rows=("share",), columns="measure")
        chosen = tables.intervals(found.chosen).value.rename(category="measure", rule="score")
        yield beside_printed(chosen, PASCAL | {"MID": "MID"}, PRINTED_PASCAL)

    @classmethod
    def facts(cls, runs):
        found = runs[0].found.isel(fitted_to=0, drop=True)
        values = found.value.isel(measure=slice(2, None)).sel(score=[*METHODS], end="value")
        words = xr.apply_ufunc("{:.2f}".format, values, vectorize=True)
        people, *_, pairs = runs[0].study.tables(runs[0])
        made = {"people": people, "pairs": pairs, "share": found.fewer, "value": found.value}
        changed = beside_printed(words, METHODS, PRINTED)
        return {**made, "changed": changed, "lead": found.ahead, "n": found.n}

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        found = run.found.isel(fitted_to=0, drop=True)
        shown = [score for score in _SHOWN if score in found.score.values]
        lowest = found.measure.str.contains(LOWEST)
        first = found.measure.isin([*TAUS, "object"])
        drawn = {}

        def printed(panel, part):
            of_paper = PRINTED.get(part.measure.item(), {})
            for place, score in enumerate(shown):
                if (method := METHODS.get(score)) in of_paper:
                    panel.plot(place, of_paper[method], "x", color=style.PRINTED)
            if LOWEST in part.measure.item():
                style.known(panel, 1 / 3, "chance")

        def draw(part, **options):
            return figures.facets(
                with_ends(part), column="measure", error="ends", sharey=False, **options,
                title=lambda _, name: f"{name}: {_TITLES.get(name, 'share right')}",
                y_label="agreement",
            )  # fmt: skip

        panels = {"captions_judged": (first, 3), "captions_judged_changes": (lowest, 2)}
        for name, (part, across) in panels.items():
            of = found.value.sel(measure=part, score=shown)
            size = 3.4, 2.9
            drawn[name] = draw(of, x="score", kind="points", each=printed, across=across, size=size,
                               names=_SHOWN, x_label="")  # fmt: skip
            ahead = found.ahead.sel(measure=part, score=shown, end="high").to_pandas() < 0
            better = [(of.index[of], measure) for measure, of in ahead.iterrows() if of.any()]
            words = [f"{', '.join(of)} ({measure.partition(',')[0]})" for of, measure in better]
            style.headline(drawn[name], f"Ahead of MID: {'; '.join(words) or 'no score'}")
        whole = found.value.sel(score="MID", drop=True).expand_dims(share=[1.0])
        fewer = xr.concat([whole, found.fewer], "share").sortby("share").sel(measure=first)
        third, name = float(fewer.share.sel(share=1 / 3, method="nearest")), "captions_judged_fewer"
        drawn[name] = draw(fewer, x="share", log_x=True, size=(2.6, 2.5),
                           x_label="share of the references")  # fmt: skip
        kept = (fewer.sel(share=third) / fewer.sel(share=1.0)).sel(end="value").to_series()
        words = " and ".join(f"{kept[m]:.0%} ({m})" for m in TAUS if m in kept)
        style.headline(drawn[name], f"With {third:.0%} of the references MID keeps {words} of tau")
        bars = ("95%; crosses: printed for the method in brackets",) * 2 + ("95%",)
        no_kernel = dataclasses.replace(run, study=dataclasses.replace(run.study, bandwidths=None))
        others = {"n": f"fitted to {run.study.fitted:,} others", "scale": 1.0}  # The scale shown.
        for figure, of, words in zip(drawn.values(), (run, run, no_kernel), bars, strict=True):
            figures.caption(figure, of, bars=words, **others)
        return drawn


def _set(name: str) -> PairedEmbeddings:
    """A shipped set, or that of a file."""
    shipped = data.SETS.get(name)
    return shipped.load() if shipped else sets.read_set(pathlib.Path(name))


def beside_printed(
    words: xr.DataArray, methods: Mapping[str, str], printed: Mapping[str, Mapping[str, float]]
) -> Table:
    """A table of measures of our scores, and below them of the paper's methods."""
    paper = pd.DataFrame(printed).reindex([*methods.values()], columns=words.measure.values)
    paper = paper.rename("{}, printed".format).astype(object).fillna("-").astype(str)
    below = xr.DataArray(paper, dims=("score", "measure"))
    both = xr.concat([words.transpose("score", ...), below], "score").to_dataset(name="value")
    return tables.table(both, rows=("score",), columns="measure")


def gaussian_scores(
    judged: Judged, shown: np.ndarray, said: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """MID of every judgement, in nats, and the cosine of its caption and mapped photograph, `[n]`.

    Both rest on the ridge regression of captions `said` on photographs `shown`, all centred. MID is
    log p(caption | photograph) / p(caption), as `cv.baselines.pointwise_mutual_information`.
    """
    t_mean, x_mean = shown.mean(axis=0, dtype=np.float64), said.mean(axis=0, dtype=np.float64)
    t, x = (shown - t_mean).astype(np.float32), (said - x_mean).astype(np.float32)
    spread = t.T @ t / len(t) + ridge * np.eye(t.shape[1])
    between = (t.T @ x / len(t)).astype(np.float64)
    linear = linalg.solve(spread, between, assume_a="pos")
    alone = x.T @ x / len(x) + ridge * np.eye(x.shape[1])
    given = alone - between.T @ linear
    mapped, captions = (judged.photographs - t_mean) @ linear, judged.captions - x_mean
    p, c = judged.photograph, judged.caption
    norms = np.linalg.norm(mapped, axis=1)[p] * np.linalg.norm(captions, axis=1)[c]
    cosine = (mapped @ captions.T)[p, c] / norms

    def whitened(covariance: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return linalg.solve_triangular(np.linalg.cholesky(covariance), rows.T, lower=True)

    one, other, prior = (
        whitened(*of) for of in ((given, captions), (given, mapped), (alone, captions))
    )
    far = np.sum(one**2, axis=0)[c] + np.sum(other**2, axis=0)[p] - 2 * (other.T @ one)[p, c]
    logs = np.linalg.slogdet(alone).logabsdet - np.linalg.slogdet(given).logabsdet
    return (np.sum(prior**2, axis=0)[c] - far + logs) / 2, cosine


def kernel_information(
    judged: Judged, fit: PairedEmbeddings, kernels: Mapping[str, cv.Kernel]
) -> np.ndarray:
    """What each pair adds to Information-RKE of the others, `[n]`, in nats.

    log (m sum_j k(x, x_j)^2 k(t, t_j)^2 / (sum_j k(x, x_j)^2 sum_j k(t, t_j)^2)) over m pairs j.
    """
    squares = []
    for role, points in (("prompt", judged.photographs), ("output", judged.captions)):
        kernel, others = kernels[f"{role}_kernel"], getattr(fit, f"{role}s")
        rows = kernel.prepare(jnp.concatenate([points, others]))
        parts = slice(len(points)), slice(len(points), None)
        both = (jax.tree.map(operator.itemgetter(part), rows) for part in parts)
        squares.append(np.square(kernel.cross(*both)))
    (of_t, of_x), p, c = squares, judged.photograph, judged.caption
    joint = (of_t @ of_x.T)[p, c].astype(np.float64)
    return np.log(len(fit) * joint / of_t.sum(axis=1)[p] / of_x.sum(axis=1)[c])


Measured = tuple[np.ndarray, np.ndarray]
"""Values of some scores `[J]`, and by how much each of G groups changes them, `[J, G]`."""


def interval(value: np.ndarray, influence: np.ndarray, further: Any = 0.0) -> np.ndarray:
    """Values and the ends of their 95% intervals, `[..., 3]`, by the infinitesimal jackknife.

    `further` is a variance beside that of the groups.
    """
    count = influence.shape[-1]
    error = np.sqrt(count / (count - 1) * np.sum(influence**2, axis=-1) + further)
    return np.stack([value, value - _NORMAL * error, value + _NORMAL * error], axis=-1)


def measures(judged: Sequence[np.ndarray], labels: Mapping[str, Any]) -> dict[str, Measured]:
    """By name, Kendall's tau with people of each of J scores; or how often they see a word.

    That is: a changed caption (people: 0) scores less than its original (2), or less than both that
    and another caption (1).
    """
    found, tasks = {}, {*labels["task"].tolist()}
    order = np.lexsort([labels["people"], labels["photograph"]])
    for name in [*filter(tasks.__contains__, TAUS), *sorted(tasks.difference(TAUS))]:
        rows = order[labels["task"][order] == name]
        people, groups = labels["people"][rows], labels["photograph"][rows]
        scores = np.stack([of[rows] for of in judged])
        if name in TAUS:
            found[name] = taus(scores, people, groups, TAUS[name])
            continue
        altered, other, original = (scores[:, place::3] for place in range(3))
        for words, rest in (("", original), (f", {LOWEST}", np.minimum(original, other))):
            found[name + words] = share(altered < rest, groups[::3])
    return found


def share(right: np.ndarray, groups: np.ndarray) -> Measured:
    """How often something is right, of cases `[..., n]` in groups."""
    mean = right.mean(axis=-1)
    return mean, summed(right - mean[..., None], groups) / right.shape[-1]


def chosen_right(labels: Mapping[str, np.ndarray], category: str, score: str) -> Measured:
    """How often a score prefers the caption that most people do, of pairs; ties count half."""
    rows = labels["task"] == category
    people, scores = (labels[k][rows].astype(float) for k in ("people", f"metric_{score}"))
    agree = np.sign(people[::2] - people[1::2]) * np.sign(scores[::2] - scores[1::2])
    return share((1 + agree) / 2, labels["photograph"][rows][::2])


def summed(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Sums over the items of each group, `[..., G]` of `[..., n]`."""
    _, index = np.unique(groups, return_inverse=True)
    return np.apply_along_axis(lambda of: np.bincount(index, of), -1, values)


def taus(scores: np.ndarray, people: np.ndarray, groups: np.ndarray, variant: str) -> Measured:
    """Kendall's tau of each of J scores `[J, n]` with people's judgements of few levels."""
    levels, level = np.unique(people, return_inverse=True)
    signs = np.sign(level - np.arange(len(levels))[:, None])
    ranked = len(level) - np.bincount(level)[level]
    values, influences = [], []
    for score in scores:
        parts = [np.sort(score[level == number]) for number in range(len(levels))]
        less = np.stack([np.searchsorted(part, score) for part in parts])
        more = np.stack([len(part) - np.searchsorted(part, score, "right") for part in parts])
        agree = np.sum((less - more) * signs, axis=0)
        if variant == "b":
            sides = np.sum(less + more, axis=0), ranked
        else:
            sides = (np.full(len(level), len(level) * (1 - 1 / len(levels))),) * 2
        of_sides = [(summed(side, groups), side.sum()) for side in sides]
        size = np.sqrt(np.prod([float(total) for _, total in of_sides]))
        value = agree.sum() / size
        rest = sum(part / total for part, total in of_sides)
        values.append(value)
        influences.append(2 * summed(agree, groups) / size - value * rest)
    return np.array(values), np.array(influences)
