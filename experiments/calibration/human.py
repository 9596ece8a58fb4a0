"""Scores of sets of responses to a context, against people's judgements of their diversity."""

import collections
import dataclasses
import functools
import itertools
from typing import Any

import jax
import numpy as np
import xarray as xr
from rich.table import Table

from condvendi_jax.base import checks
from experiments import lab
from experiments.calibration import judgements
from experiments.lab import agreement, figures, style, tables

_MULTIPLES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # Of the rule's bandwidth, that are tried.
# What is judged beside single configurations and published metrics; the first is the answer.
CHOSEN, ELSEWHERE, HINDSIGHT = "chosen on other folds", "chosen on other tasks", "best in hindsight"


class Human(lab.Study):
    """Do the scores agree with people's judgement of diversity?"""

    tolerance = 0.05  # Ranks of saturated scores, at narrow bandwidths, rest on rounding.
    version = 5
    data = "human"
    needs = ("sets", "people")
    takes = ("task", "label", "temperature")
    further = ("second_outputs", "second_prompts")
    control = "A configuration is chosen on other contexts, or other tasks, than it is judged on."
    grows = ("task", "contexts")

    bandwidths: lab.Scales = lab.Scales()
    orders: tuple[float, ...] = lab.flag((1.0, 2.0, float("inf")), "Renyi orders that are tried.")
    folds: int = lab.flag(5, "Parts of the contexts, each judged by the others' best.", at_least=2)
    resamples: int = lab.flag(1000, "Resamples of the contexts for the intervals.", at_least=2)
    contexts: tuple[int, ...] = lab.flag((1, 2, 4, 8, 16), "Contexts in a pool.", at_least=1)
    draws: int = lab.flag(100, "Number of pairs of pools.", at_least=1)
    less: tuple[float, ...] = lab.resolved(())
    sets: dict[str, int] = lab.resolved()
    units: dict[str, float] = lab.resolved()
    metrics: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        orders = tuple(sorted(map(checks.check_order, self.orders)))
        pairs = load()
        responses = judgements.Responses.of(pairs)
        sets = dict(collections.Counter(responses.task.tolist()))
        for task in sets:
            contexts = len(np.unique(responses.context[responses.task == task]))
            if contexts < 2 * self.folds:
                raise ValueError(
                    f"--folds={self.folds}: expected {2 * self.folds} contexts or more in each "
                    f"task, received {contexts} in {task}."
                )
        bandwidths = self.bandwidths.resolve(pairs, seed)
        study = dataclasses.replace(
            self,
            bandwidths=bandwidths,
            orders=orders,
            contexts=tuple(sorted(self.contexts)),
            less=judgements.shares_of(pairs),
            sets=sets,
            units=judgements.units_of(pairs, bandwidths, seed),
            metrics=tuple(role for role in responses.labels if role.startswith(judgements.METRIC)),
        )
        # Every set's score in every configuration, which all cells share.
        given = (study.tried, study.units, bandwidths.kernel == "cosine")
        of_sets = functools.partial(judgements.scores_of_sets, pairs, responses.members, *given)
        return study.ready(pairs, state=(pairs, responses, functools.cache(of_sets)))

    @property
    def tried(self) -> dict[str, list]:
        """What is tried, by its name: the axes of the configurations."""
        scales, cosine = self.bandwidths.scales or (), self.bandwidths.kernel == "cosine"
        return {
            "encoder": [*self.units, "both"] if len(self.units) > 1 else list(self.units),
            "less": list(self.less),
            "multiple": list(scales) if cosine else sorted({*_MULTIPLES, *scales}),
            "tried_order": list(self.orders),
        }

    @property
    def configurations(self) -> list[tuple]:
        """All combinations of what is tried."""
        return list(itertools.product(*self.tried.values()))

    @property
    def plain(self) -> dict[str, int]:
        """The first encoder's score at each scale, by its name: the number of its configuration."""
        order = 2.0 if 2 in self.orders else self.orders[0]
        name = {1.0: "Vendi", 2.0: "RKE"}.get(order, f"order {order:g}")
        words = "cosine" if self.bandwidths.kernel == "cosine" else "bandwidth x {:g}"
        number, scales = self.configurations.index, self.bandwidths.scales or ()
        return {f"{name}, {words.format(x)}": number(("first", 0.0, x, order)) for x in scales}

    def axes(self):
        return {"task": tuple(self.sets)}

    def compute(self, state, context, *, task):
        """What is judged of one task, by `judge` and `end`, NaN where there is nothing.

        `ahead` is a correlation with `people` less that of the best published metric; `accuracy`,
        of the best threshold for the labels; `chosen` for each fold and `elsewhere`, numbers of
        configurations (-1: none); `right`, of pools.
        """
        pairs, responses, scores_of_all = state
        everything, chosen = scores_of_all(), np.flatnonzero(responses.task == task)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(context.key)))
        sets, scores = responses.some(chosen), everything[:, chosen]
        people, orders = sets.labels["people"], [order for *_, order in self.configurations]
        _, index = np.unique(sets.context, return_inverse=True)
        fold = generator.permutation(np.arange(index.max() + 1) % self.folds)[index]
        of_folds = judgements.choose_elsewhere(scores, people, fold, orders)
        grid = agreement.spearman(scores, people, orders)
        elsewhere = judgements.choose_on_other_tasks(orders, responses, everything, task)
        # Ranks stand for the scores: they are all that is judged, and rounding gives none.
        ranked = np.stack(list(map(agreement.ranks, scores, orders)))
        numbers = {ELSEWHERE: elsewhere, **self.plain, HINDSIGHT: np.nanargmax(grid)}
        rows = {CHOSEN: ranked[of_folds[fold], np.arange(len(people))]}
        rows |= {name: ranked[c] for name, c in numbers.items() if c is not None}
        rows |= {name: sets.labels[name] for name in self.metrics}
        judged = np.stack(list(rows.values()))
        published = [name in self.metrics for name in rows]
        context.say("intervals")
        draws = list(agreement.resampled(sets.context, self.resamples, generator))

        best = np.argmax(np.where(published, agreement.spearman(judged, people), -np.inf))

        def ahead(scores, people):
            found = agreement.spearman(scores, people)
            return found - (found[best] if self.metrics else np.nan)

        def interval(role, statistic):
            wanted = sets.labels.get(role, np.zeros(len(people)))
            found = np.full((len(judged), 3), np.nan)
            if np.ptp(wanted) > 0:  # False of NaN.
                found = agreement.with_interval(
                    lambda s: statistic(judged[:, s], wanted[s]), draws, len(people)
                )
            return ("judge", "end"), found

        context.say("pools")
        halves = judgements.draw_pools(sets, self.draws, generator)
        scales, tried = self.bandwidths.axis, self.tried
        axes = {"judge": list(rows), "end": ["value", "low", "high"]}
        return xr.Dataset(
            {
                "people": interval("people", agreement.spearman),
                "ahead": interval("people", ahead),
                "temperature": interval("temperature", agreement.spearman),
                "accuracy": interval("label", agreement.best_accuracy),
                "chosen": ("fold", of_folds),
                "elsewhere": -1 if elsewhere is None else elsewhere,
                "grid": (tuple(tried), grid.reshape(list(map(len, tried.values())))),
                "right": judgements.tell_pools(pairs, sets.members, halves, scales, self.contexts),
            },
            {**axes, **tried},
        )

    def tables(self, run):
        """Every correlation by task; then what is chosen."""
        value = run.found.people.sel(end="value").to_dataset(name="value")
        yield tables.table(value, rows=("judge",), columns="task", digits=2)
        scales = ", ".join(f"{scale:g}" for scale in run.study.bandwidths.scales or ())
        heads = ("sets", "best published", f"plain, x {scales}", CHOSEN, "ahead by")
        grid = Table("task", *heads, ELSEWHERE, "ahead by", HINDSIGHT)
        for task, count in run.study.sets.items():
            found = run.found.sel(task=task)
            best, name = _best_published(found)
            plain = found.people.sel(judge=list(run.study.plain), end="value").values
            cells = [f"{name} {best:.2f}", ", ".join(f"{value:.2f}" for value in plain)]
            for judge in (CHOSEN, ELSEWHERE):
                one = found.reindex(judge=[judge]).isel(judge=0)  # NaN where there is none.
                cells += [f"{one.people[0].item():.2f}", tables.interval(*one.ahead.values)]
            last = found.people.sel(judge=HINDSIGHT, end="value").item()
            grid.add_row(task, str(count), *cells, f"{last:.2f}")
        yield grid

    @classmethod
    def figures(cls, runs):
        """Correlations of the chosen score and of a plain one; how often scores tell pools."""
        (run,) = runs
        found, tasks, plain = run.found, list(run.study.sets), list(run.study.plain)
        shown = judgements.with_ends(found.people)
        best = shown.value.where(found.judge.str.startswith(judgements.METRIC)).max("judge")

        def published(panel, part):
            look: Any = {"linestyle": "", "marker": "|", "markersize": 12, "color": style.BLACK}
            panel.plot(best, -np.arange(len(tasks)), **look, label="best published metric")

        ahead = found.ahead.sel(judge=CHOSEN)
        more, less = (ahead.sel(end="low") > 0).sum(), (ahead.sel(end="high") < 0).sum()
        first = figures.dots(
            shown.sel(judge=[CHOSEN, plain[len(plain) // 2]]).expand_dims("panel"), row="task",
            hue="judge", column="panel", x_label="correlation with people", each=published,
            headline="Chosen on other contexts, our score leads the best published metric in "
            f"{more:d} of {len(tasks)} tasks, lags in {less:d}",
        )  # fmt: skip
        scale = run.study.bandwidths.shown
        right = found.right.sel(scale=scale)

        def chance(panel, part):
            panel.axhline(0.5, color=style.GREY, linewidth=0.8)
            panel.set_ylim(-0.05, 1.1)
            style.log_counts(panel, run.study.contexts)

        pools = figures.facets(
            tables.t_intervals(right, "task"), x="contexts", hue="score", column="design",
            error="error", each=chance, x_label="contexts in the more diverse pool",
            y_label="share of pairs in the right order", size=(3.45, 2.6), sharey=True,
        )  # fmt: skip
        least = right.mean("task").min(("design", "contexts"))
        (second, _), (most, name) = sorted(zip(least.values, least.score.values, strict=True))[-2:]
        words = f"{name}, is right in {most:.0%} of pairs or more, every other score falls to"
        style.headline(pools, f"{words} {second:.0%} or less")
        return {
            "human": figures.caption(first, run, scale=scale, bars="95%"),
            "human_pools": figures.caption(pools, run, scale=scale, bars="95%, over tasks"),
        }

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        found, plain, (_, choices) = run.found, list(run.study.plain), run.study.tables(run)
        grid = found.grid.sel(tried_order=2, multiple=1, encoder=["first", "second"], less=[0, 0.5])
        judged = [["task", "agreement with", CHOSEN, "best published"]]
        for task, what in itertools.product(run.study.sets, ("accuracy", "temperature")):
            best, name = _best_published(found.sel(task=task), what)
            own = tables.interval(*found[what].sel(task=task, judge=CHOSEN).values)
            judged += [] if np.isnan(best) else [[task, what, own, f"{name} {best:.2f}"]]
        pools = tables.means(found.right.rename(scale="bandwidths"), "task")
        names = {"pools": ["8/8", "16/16", "8/16"]}
        design, contexts = (xr.DataArray(of, names) for of in ([0, 0, 1], [8, 16, 8]))
        shown = pools.isel(design=design).sel(contexts=contexts)
        right = xr.apply_ufunc("{:.2f}±{:.2f}".format, shown.value, shown.error, vectorize=True)
        ends = found.ahead.sel(judge=[plain[1], CHOSEN, ELSEWHERE])
        ends = ends.assign_coords(judge=["plain", "chosen", "elsewhere"])
        encoders, pooled = (of.to_dataset(name="value") for of in (grid, right))
        rows = "pools", "bandwidths"
        return {
            "choices": choices,
            "encoders": tables.table(encoders, rows=("task", "encoder"), columns="less", digits=2),
            "judged": judged,
            "pools": tables.table(pooled, rows=rows, columns="score", names={"pools": "contexts"}),
            "right": pools.value.sel(bandwidths=1, contexts=8, score=judgements.SCORES[4])[1],
            "leads": lambda end, judge: (ends.sel(judge=judge, end=end) > 0).sum(),
            "lags": lambda end, judge: (ends.sel(judge=judge, end=end) < 0).sum(),
            "configurations": len(run.study.configurations),
        }


def _best_published(found: xr.Dataset, what: str = "people") -> tuple[float, str]:
    """The largest correlation (or accuracy) of a published metric in a task, and its name."""
    values = found[what].sel(end="value").where(found.judge.str.startswith(judgements.METRIC))
    best = found.judge[values.fillna(-2).argmax("judge")].item()
    return values.max().item(), best.removeprefix(judgements.METRIC)
