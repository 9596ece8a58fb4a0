"""Scores of diversity of every kind, beside people's judgements of the same sets of responses."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from rich.table import Table
from scipy import stats
from scipy.sparse import csgraph
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax.encoders import load_minilm
from experiments import lab
from experiments.builders import similarities
from experiments.calibration import judgements
from experiments.calibration.judgements import METRIC, Responses
from experiments.data.sets import TEXT
from experiments.lab import agreement, figures, tables

VENDI, RKE, SECOND, CLUSTERS = "Vendi", "RKE", "Vendi, second encoder", "clusters"
COSINE, PUBLISHED = "mean cosine distance", "{} (published)"
_SIMILAR = "Vendi, {}"
# Texts that costs are measured on: of five responses of eight words, the sets' medians.
_TIMED, _RESPONSES, _WORDS = 40, 5, 8
_VOCABULARY = ["a", "dog", "runs", "over", "the", "green", "hill", "and", "sees", "two", "people"]


class Validity(lab.Study):
    """Which scores of diversity agree with people, and what do they cost?"""

    data = "human"
    needs = ("sets", "people")
    takes = ("task",)
    further = ("second_outputs", *judgements.SIMILARITIES)
    unrepeated = ("cost",)
    tolerance = 0.01
    control = "Every score sees the same responses, and sets of one task have equally many."

    bandwidths: lab.Scales = lab.Scales(scales=(1.0,))
    resamples: int = lab.flag(1000, "Resamples of the contexts for the intervals.", at_least=2)
    sets: dict[str, int] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        sets = Responses.of(pairs)
        for task, sizes in pd.Series(list(map(len, sets.members))).groupby(sets.task):
            if sizes.nunique() > 1:
                ends = f"from {sizes.min()} to {sizes.max()}"
                words = f"expected equally many responses in {task}, received {ends}."
                raise ValueError(f"sets: {words}")
        return self.ready(
            pairs,
            state=(pairs, sets),
            bandwidths=self.bandwidths.resolve(pairs, seed),
            sets=dict(Counter(sets.task.tolist())),
        )

    def compute(self, state, context):
        """Rank correlations with people, by score: `value` in each task and `mean` over the tasks.

        Both have an `end`, and so has `difference`, of the means, from the best score `against`
        hindsight and from Vendi, whose `p_value` is adjusted by Holm over all other scores.
        `cost` is in milliseconds of CPU for a set of five responses, embedding included.
        """
        pairs, sets = state
        scores, people, tasks = self.scores(pairs, sets), sets.labels["people"], list(self.sets)
        judged, names = np.stack(list(scores.values())), list(scores)
        orders = [2.0 if name == RKE else 1.0 for name in names]

        def correlations(rows: np.ndarray) -> np.ndarray:
            parts = [rows[sets.task[rows] == task] for task in tasks]
            return np.stack([agreement.spearman(judged[:, r], people[r], orders) for r in parts], 1)

        best = int(np.nanargmax(correlations(np.arange(len(people))).mean(axis=1)))
        against = [best, names.index(VENDI)]

        def statistics(rows: np.ndarray) -> np.ndarray:
            found = correlations(rows)
            mean = found.mean(axis=1, keepdims=True)
            return np.concatenate([found, mean, mean - mean[against, 0]], axis=1).ravel()

        context.say("intervals")
        generator = np.random.default_rng(np.asarray(jax.random.key_data(context.key)))
        draws = list(agreement.resampled(sets.context, self.resamples, generator))
        found = agreement.with_interval(statistics, draws, len(people))
        found = found.reshape(len(names), len(tasks) + 3, 3)
        value, mean, difference = np.split(found, [len(tasks), len(tasks) + 1], axis=1)
        context.say("costs")
        costs = self.costs_of(pairs, sets)
        found = xr.Dataset(
            {
                "value": (("judge", "task", "end"), value),
                "mean": (("judge", "end"), mean[:, 0]),
                "difference": (("judge", "against", "end"), difference),
                "p_value": (("judge", "against"), _adjusted(difference, against)),
                "cost": ("judge", [costs.get(name, np.nan) for name in names]),
            },
            {"judge": names, "task": tasks, "end": ["value", "low", "high"]}
            | {"against": ["best", VENDI]},
        )
        return found.isel(judge=np.argsort(-mean[:, 0, 0]))

    def scores(self, pairs, sets: Responses) -> dict[str, np.ndarray]:
        """Every score of every set, larger where more diverse, by its name."""
        width = self.bandwidths.output_bandwidth
        kernel = cv.Gaussian(width) if width else cv.Cosine()
        found = dict[str, np.ndarray]()
        found[VENDI], found[RKE] = judgements.entropies(pairs.outputs, sets.members, kernel, (1, 2))
        if "second_outputs" in pairs.further:
            units = judgements.units_of(pairs, self.bandwidths, seed=0)
            kernel = cv.Gaussian(units["second"]) if width else cv.Cosine()
            second = pairs.further["second_outputs"]
            found[SECOND], _ = judgements.entropies(second, sets.members, kernel, (1, 2))
        found[COSINE] = of_sets(mean_distance, pairs.outputs, sets)
        if width:
            found[CLUSTERS] = of_sets(lambda rows: clusters(rows, width), pairs.outputs, sets)
        similar = judgements.scores_of_similarities(pairs, sets.members)
        found |= {_SIMILAR.format(name): score for name, score in similar.items()}
        texts = (role for role in sets.labels if role.startswith(TEXT))
        found |= {role.removeprefix(TEXT): sets.labels[role] for role in texts}
        metrics = (r for r in sets.labels if r.startswith(METRIC) and not r.endswith("_norm"))
        return found | {PUBLISHED.format(r.removeprefix(METRIC)): sets.labels[r] for r in metrics}

    def costs_of(self, pairs, sets: Responses) -> dict[str, float]:
        """Milliseconds of CPU of a set of texts; fewer costs where an encoder's weights lack."""
        words = np.random.default_rng(0).choice(_VOCABULARY, (_TIMED, _RESPONSES, _WORDS)).tolist()
        texts = [[" ".join(text) for text in of_set] for of_set in words]
        works: dict[str, Callable[..., Any]] = {
            **similarities.OF_TEXTS,
            _SIMILAR.format("trigram similarity"): similarities.trigrams,
            _SIMILAR.format("edit similarity"): similarities.edits,
        }
        costs = {
            name: timed(lambda work=work: list(map(work, texts))) for name, work in works.items()
        }
        with contextlib.suppress(ModuleNotFoundError):
            encoder, some = load_minilm(), sets.some(np.arange(min(_TIMED, len(sets.members))))
            embedding = timed(lambda: encoder.encode([text for of in texts for text in of]))
            given = pairs.outputs, some.members, cv.Cosine(), (1, 2)
            spectra = timed(lambda: judgements.entropies(*given))
            pdist = timed(lambda: of_sets(mean_distance, pairs.outputs, some))
            vendi = VENDI, RKE, _SIMILAR.format("cosine similarity")
            costs |= dict.fromkeys(vendi, embedding + spectra)
            costs |= dict.fromkeys((COSINE, CLUSTERS), embedding + pdist)
            costs[_SIMILAR.format("token similarity")] = timed(
                lambda: [similarities.matched_tokens(of, encoder) for of in texts]
            )
        return costs

    def tables(self, run):
        """The scores, the best first, with differences and costs."""
        found = run.found
        grid = Table("score", "mean of tasks", "less the best", "p", f"less {VENDI}", "p", "CPU ms")
        for judge in found.judge.values.tolist():
            row = found.sel(judge=judge)
            cells = [tables.interval(*row["mean"].values)]
            for against in found.against.values:
                p_value = row.p_value.sel(against=against).item()
                cells += [tables.interval(*row.difference.sel(against=against).values)]
                cells += [f"{p_value:.2g}" if p_value >= 0.001 else "< 0.001"]
            grid.add_row(judge, *cells, tables.number(row.cost.item(), digits=2))
        yield grid

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        found = run.found
        family, _, kind = found.task.str.rpartition("part", " ").transpose("part", ...)
        value = found.value.assign_coords(family=family, kind=kind)
        value = value.set_index(task=["family", "kind"]).unstack("task")
        value = value.sel(family=pd.unique(family.values), kind=pd.unique(kind.values))
        means = found["mean"].sel(end="value")
        best, *_ = found.judge.values.tolist()
        said = [name for name in (VENDI, COSINE, similarities.SELF_BLEU) if name in found.judge]
        others, first = (value.sel(judge=of, end="value") for of in (said, best))
        behind = [of for of in value.family.values if (first < others).sel(family=of).all()]
        words = [f"{best} agrees most with people on average: {means[0]:.2f}"]
        words += [f"{name} {means.sel(judge=name):.2f}" for name in said]
        words[-1] += f", which all exceed it in {' and '.join(behind)}" if behind else ""
        figure = figures.dots(
            judgements.with_ends(value), row="judge", hue="kind", column="family",
            x_label="Spearman correlation", headline=", ".join(words),
        )  # fmt: skip
        scale = run.study.bandwidths.shown
        return {"validity": figures.caption(figure, run, bars="95%", scale=scale)}

    @classmethod
    def facts(cls, runs):
        (scores,) = runs[0].study.tables(runs[0])
        return {"scores": scores}


def mean_distance(rows: np.ndarray) -> float:
    """The mean cosine distance of two of some rows."""
    return float(np.mean(distance.pdist(rows, "cosine")))


def clusters(rows: np.ndarray, width: float) -> int:
    """How many parts are connected by distances of at most one bandwidth."""
    near = distance.squareform(distance.pdist(rows) <= width)
    return csgraph.connected_components(near, directed=False)[0]


def of_sets(score: Callable[[np.ndarray], float], rows: np.ndarray, sets: Responses) -> np.ndarray:
    """A score of the rows of every set, `[S]`."""
    return np.array([score(rows[members]) for members in sets.members], float)


def timed(work: Callable[[], Any]) -> float:
    """The milliseconds of CPU of a set, when the work of all is done the second time."""
    jax.block_until_ready(work())
    start = time.process_time()
    jax.block_until_ready(work())
    return 1e3 * (time.process_time() - start) / _TIMED


def _adjusted(difference: np.ndarray, against: list[int]) -> np.ndarray:
    """Two-sided p-values by the normal law of differences with intervals, adjusted by Holm."""
    value, low, high = np.moveaxis(difference, 2, 0)
    errors = np.maximum((high - low) / (2 * stats.norm.ppf(0.975)), np.finfo(float).tiny)
    p_values, found = 2 * stats.norm.sf(np.abs(value) / errors), np.ones(value.shape)
    for column, other in enumerate(against):
        tested = np.flatnonzero((np.arange(len(value)) != other) & np.isfinite(value[:, column]))
        found[tested, column] = cv.inference.holm(p_values[tested, column].tolist())
    return found
