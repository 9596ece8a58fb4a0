"""Do the scores agree with people? Sets of responses to a context, judged by people for diversity.

Each set's Vendi score at several orders and bandwidths, under one or two encoders, against the
people's judgements, beside the published metrics where the data have them: Spearman correlation,
with a temperature too, and accuracy on labels. A configuration is chosen by the people's scores of
other contexts than those that it is judged on. Then sets of many contexts are pooled: how many
contexts it takes until a score tells the more diverse pool, with and without knowing the prompts.

    python -m experiments.human
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import textwrap

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

from condvendi_jax import bandwidth, validation
from experiments import judgements, lab
from experiments.data import PairedEmbeddings
from experiments.judgements import DESIGNS, METRIC, SCORES, Configuration, Responses
from experiments.lab import agreement, figures, style

# Multiples of the rule's bandwidth, and of the context's embedding, that are tried.
_CANDIDATES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
_LESS = (0.0, 0.25, 0.5, 0.75)
_KEY = 0x4D0DE5  # Of the second encoder's bandwidth.
# What is judged beside single configurations and published metrics; the first is the answer.
CHOSEN, ELSEWHERE, HINDSIGHT = "chosen on other folds", "chosen on other tasks", "best in hindsight"
_ENDS = ("value", "low", "high")


@dataclasses.dataclass(frozen=True)
class Human(lab.Study):
    """Do the scores agree with people's judgement of diversity?"""

    name = "human"
    version = 2
    duration = "1 minute"
    data = "human"
    needs = ("sets", "people")
    takes = ("task", "label", "temperature")
    further = ("second_outputs", "second_prompts")
    runs = ((),)
    drawings = ("human", "human_bandwidths", "human_pools")

    bandwidths: lab.Scales = lab.Scales()
    candidates: tuple[float, ...] | None = lab.flag(
        None,
        "Multiples of the rule's bandwidth that are tried beside those of --scales; 0.35 to 2 if "
        "unset.",
        above=0,
    )
    less: tuple[float, ...] | None = lab.flag(
        None,
        "How much of its context's embedding is subtracted from a response; 0, 0.25, 0.5 and 0.75 "
        "if unset, and 0 alone where the two are not of one length.",
        at_least=0,
        below=1,
    )
    orders: tuple[float, ...] = lab.flag((1.0, 2.0, math.inf), "Renyi orders that are tried.")
    tasks: tuple[str, ...] | None = lab.flag(None, "Some of the tasks; all if unset.")
    folds: int = lab.flag(
        5, "Parts of the contexts; each is judged by a choice on the others.", at_least=2
    )
    resamples: int = lab.flag(
        1000, "Times that contexts are resampled for the intervals.", at_least=2
    )
    contexts: tuple[int, ...] = lab.flag((1, 2, 4, 8, 16), "Contexts in a pool.", at_least=1)
    draws: int = lab.flag(100, "Pairs of pools that are drawn.", at_least=1)
    sets: dict[str, int] = lab.resolved()
    units: dict[str, float] = lab.resolved()
    metrics: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Reads the sets, chooses the bandwidths, and lists what is tried."""
        orders = tuple(sorted(set(map(validation.check_order, self.orders))))
        cosine = self.bandwidths.kernel == "cosine"
        if cosine and self.candidates is not None:
            raise ValueError("--candidates means nothing with --kernel=cosine.")
        pairs = load()
        responses = Responses.of(pairs)
        sets = dict(collections.Counter(responses.task.tolist()))
        for task in self.tasks or ():
            if task not in sets:
                raise ValueError(f"--tasks: expected some of {', '.join(sets)}, received {task!r}.")
        sets = {task: n for task, n in sets.items() if not self.tasks or task in self.tasks}
        for task in sets:
            contexts = len(np.unique(responses.context[responses.task == task]))
            if contexts < 2 * self.folds:
                raise ValueError(
                    f"--folds={self.folds}: expected {2 * self.folds} contexts or more in each "
                    f"task, received {contexts} in {task}."
                )
        bandwidths = self.bandwidths.resolve(pairs, seed)
        tried = {*(self.candidates or _CANDIDATES), *(bandwidths.scales or ())}
        ready = dataclasses.replace(
            self,
            bandwidths=bandwidths,
            candidates=None if cosine else tuple(sorted(tried)),
            less=_less(self.less, pairs),
            orders=orders,
            units=_units(pairs, bandwidths, seed),
        )
        # Every set's score in every configuration, which all cells share.
        given = (pairs, responses.members, ready.configurations, ready.units)
        scores = functools.cache(lambda: judgements.scores_of_sets(*given))
        return ready.ready(
            pairs,
            state=(pairs, responses, scores),
            tasks=tuple(sets),
            contexts=tuple(sorted(set(self.contexts))),
            sets=sets,
            metrics=tuple(role for role in responses.labels if role.startswith(METRIC)),
        )

    @property
    def tried(self) -> dict[str, list]:
        """What is tried, by its name: the axes of the configurations."""
        encoders = [*self.units, "both"] if len(self.units) > 1 else list(self.units)
        return {
            "encoder": encoders,
            "less": list(self.less or ()),
            "multiple": [None] if self.candidates is None else list(self.candidates),
            "tried_order": list(self.orders),
        }

    @property
    def configurations(self) -> list[Configuration]:
        """All combinations of what is tried, those of several orders side by side."""
        return list(itertools.starmap(Configuration, itertools.product(*self.tried.values())))

    @property
    def order(self) -> float:
        """The order that is shown where it is one."""
        return 2.0 if 2 in self.orders else self.orders[0]

    @property
    def plain(self) -> dict[str, int]:
        """The first encoder's score at each scale, by its name: the number of its configuration."""
        name = {1.0: "Vendi", 2.0: "RKE"}.get(self.order, f"order {self.order:g}")
        less = (self.less or (0.0,))[0]
        if self.candidates is None:
            cosine = Configuration("first", less, None, self.order)
            return {f"{name}, cosine": self.configurations.index(cosine)}
        return {
            f"{name}, bandwidth x {scale:g}": self.configurations.index(
                Configuration("first", less, scale, self.order)
            )
            for scale in self.bandwidths.scales or ()
        }

    def axes(self):
        """Every task."""
        return {"task": self.tasks}

    def compute(self, state, context, *, task):
        """Everything that is judged of one task.

        Returns:
          Over `judge` (choices, single configurations, published metrics) and `end` (the value and
          the ends of its 95% interval): `people`, Spearman correlations with people; `ahead`, the
          same less that of the best published metric; `temperature`; `accuracy` of the best
          threshold for the labels; NaN where there is nothing to compare with. `chosen`, the number
          of the configuration of each fold; `elsewhere`, that chosen on the other tasks, -1 where
          there is none; `hindsight`, the best on all sets; `grid`, the correlation of every
          configuration; `right`, as `judgements.tell_pools`.
        """
        pairs, responses, scores_of_all = state
        everything = scores_of_all()
        generator = np.random.default_rng(np.asarray(jax.random.key_data(context.key)))
        chosen = np.flatnonzero(responses.task == task)
        sets, scores = responses.some(chosen), everything[:, chosen]
        people = sets.labels["people"]
        _, index = np.unique(sets.context, return_inverse=True)
        fold = generator.permutation(np.arange(index.max() + 1) % self.folds)[index]
        orders = [configuration.order for configuration in self.configurations]
        of_folds = judgements.choose_elsewhere(scores, people, fold, orders)
        grid = agreement.spearman(scores, people, orders)
        elsewhere = judgements.choose_on_other_tasks(self.sets, orders, responses, everything, task)
        judged_by = {} if elsewhere is None else {ELSEWHERE: elsewhere}
        judged_by |= {**self.plain, HINDSIGHT: int(np.nanargmax(grid))}
        # Ranks stand for the scores: they are all that is judged, and rounding gives none.
        rows = {CHOSEN: judgements.placed(scores, of_folds[fold], orders)}
        rows |= {name: agreement.ranks(scores[c], orders[c]) for name, c in judged_by.items()}
        judged = np.stack([*rows.values(), *(sets.labels[name] for name in self.metrics)])
        of_metrics = agreement.spearman(judged[len(rows) :], people) if self.metrics else []
        best = len(rows) + int(np.argmax(of_metrics)) if self.metrics else 0

        context.say("intervals")
        draws = list(agreement.resampled(sets.context, self.resamples, generator))

        def interval(role, statistic):
            wanted = sets.labels.get(role)
            if wanted is None or not np.all(np.isfinite(wanted)) or np.ptp(wanted) == 0:
                return np.full((len(judged), len(_ENDS)), np.nan)
            return agreement.with_interval(
                lambda s: statistic(judged[:, s], wanted[s]), draws, len(people)
            )

        def ahead(scores, people):
            found = agreement.spearman(scores, people)
            return found - found[best]

        return self.labelled(
            names=[*rows, *self.metrics],
            people=interval("people", agreement.spearman),
            ahead=interval("people" if self.metrics else "", ahead),
            temperature=interval("temperature", agreement.spearman),
            accuracy=interval("label", agreement.best_accuracy),
            chosen=of_folds,
            elsewhere=-1 if elsewhere is None else elsewhere,
            hindsight=judged_by[HINDSIGHT],
            grid=grid,
            right=judgements.tell_pools(
                pairs, sets, self.bandwidths.axis, self.contexts, self.draws, generator, context.say
            ),
        )

    def labelled(self, names, chosen, elsewhere, hindsight, grid, right, **judged) -> xr.Dataset:
        """What is judged of a task, with its axes."""
        tried = self.tried | {"multiple": list(self.candidates or (1.0,))}
        of_pools = {
            "design": list(DESIGNS),
            "scale": list(self.bandwidths.scales or ()),
            "score": list(SCORES),
            "contexts": list(self.contexts),
        }
        grid = np.reshape(grid, [len(values) for values in tried.values()])
        return xr.Dataset(
            {
                **{name: (("judge", "end"), values) for name, values in judged.items()},
                "chosen": ("fold", np.asarray(chosen)),
                "elsewhere": elsewhere,
                "hindsight": hindsight,
                "grid": (tuple(tried), grid),
                "right": (tuple(of_pools), right),
            },
            {"judge": list(names), "end": list(_ENDS), **tried, **of_pools},
        )

    def tables(self, run):
        """Each task: the best published metric, the scores, how far they are ahead, the pools."""
        found = run.found
        plain = f"{next(iter(self.plain)).rpartition(' ')[0]} {self.bandwidths.shown:g}"
        plain = plain if plain in self.plain else next(iter(self.plain))
        grid = Table("task", "sets", "best published", plain, CHOSEN, "ahead by", HINDSIGHT)
        for score in SCORES[:2]:
            grid.add_column(f"contexts, {score}")
        for task, count in self.sets.items():
            one = found.sel(task=task)
            value = one.people.sel(end="value").to_series().to_dict()
            best = max(self.metrics, key=value.__getitem__, default=None)
            ahead, low, high = one.ahead.sel(judge=CHOSEN).values
            pools = one.right.isel(design=0).sel(scale=self.bandwidths.shown)
            counts = [
                judgements.enough(pools.sel(score=s).values, self.contexts) for s in SCORES[:2]
            ]
            grid.add_row(
                task,
                str(count),
                f"{best.removeprefix(METRIC)} {value[best]:.2f}" if best else "-",
                f"{value[plain]:.2f}",
                f"{value[CHOSEN]:.2f}",
                f"{ahead:+.2f} [{low:+.2f}, {high:+.2f}]" if best else "-",
                f"{value[HINDSIGHT]:.2f}",
                *(str(count or "more") for count in counts),
            )
        yield grid

    @classmethod
    def figures(cls, runs):
        """Correlations beside the published metrics, over configurations, and the pools."""
        run = runs[0]
        return {
            "human": _correlations(run),
            "human_bandwidths": _configurations(run),
            "human_pools": _pools(run),
        }


def _units(pairs: PairedEmbeddings, bandwidths: lab.Scales, seed: int) -> dict[str, float]:
    """The bandwidth of each encoder, of which the scales are multiples; 1 for the cosine kernel."""
    own = bandwidths.output_bandwidth
    units = {"first": 1.0 if own is None else own}
    if "second_outputs" in pairs.further:
        key = jax.random.fold_in(jax.random.key(seed), _KEY)
        second = pairs.further["second_outputs"]
        ruled = bandwidth.bandwidth_by_rule(
            second, bandwidths.rule, key=key, partitions=1
        ).bandwidth
        units["second"] = 1.0 if own is None or ruled is None else ruled
    return units


def _less(given: tuple[float, ...] | None, pairs: PairedEmbeddings) -> tuple[float, ...]:
    """How much of the context is subtracted, ascending."""
    widths = {"prompts": (pairs.outputs.shape[1], pairs.prompts.shape[1])}
    if "second_outputs" in pairs.further:
        second = pairs.further.get("second_prompts", pairs.prompts[:, :0])
        widths["second_prompts"] = (pairs.further["second_outputs"].shape[1], second.shape[1])
    differ = [role for role, (of_x, of_t) in widths.items() if of_x != of_t]
    found = given or (_LESS if not differ else (0.0,))
    if differ and any(found):
        of_x, of_t = widths[differ[0]]
        raise ValueError(
            f"--less: {differ[0]} must be as long as the outputs that they are subtracted from, "
            f"received {of_t} and {of_x}."
        )
    return tuple(sorted(set(found)))


def _best_published(found: xr.Dataset) -> float:
    """The largest correlation of a published metric with people."""
    is_metric = found.judge.str.startswith(METRIC)
    return found.people.sel(end="value").where(is_metric).max().item()


def _correlations(run: lab.Run) -> Figure:
    """A panel a task: every correlation with its interval, published metrics in grey."""
    study, judges = run.study, run.found.judge.values.tolist()
    columns = min(3, len(study.sets))
    size = (3.0, 0.13 * len(judges) + 1.0)
    figure, panels = style.panels(
        len(study.sets), columns=columns, size=size, sharex=True, sharey=True
    )
    for axes, task in zip(panels, study.sets, strict=True):
        found = run.found.sel(task=task)
        for row, judge in enumerate(judges):
            own = {CHOSEN: style.VERMILION, HINDSIGHT: style.SKY}.get(judge, style.BLUE)
            published = judge.startswith(METRIC)
            colour = style.GREY if published else own
            value, low, high = found.people.sel(judge=judge).values
            axes.plot([low, high], [-row, -row], color=colour, linewidth=1.2)
            axes.plot(value, -row, "s" if published else "o", color=colour)
        chosen = found.people.sel(judge=CHOSEN, end="value").item()
        words = f"{task}:\n{chosen:.2f}"
        if study.metrics:
            best = _best_published(found)
            axes.axvline(best, color=style.GREY, linewidth=0.8, linestyle="--")
            words += f" beside {best:.2f} of the best published"
        axes.set_title(words)
        names = [judge.removeprefix(METRIC) for judge in judges]
        axes.set_yticks([-i for i in range(len(judges))], names, fontsize=6.5)
    for axes in panels[-columns:]:
        axes.set_xlabel("Spearman correlation with people")
    bars = "95%; dashed: best published"
    return figures.caption(figure, run, bars=bars, scale=study.bandwidths.shown)


def _configurations(run: lab.Run) -> Figure:
    """A panel a task: the correlation over the bandwidth, by how much context is subtracted.

    Of the first encoder, and of both where there are two.
    """
    study = run.study
    grid = run.found.grid.sel(tried_order=study.order)
    encoders = [name for name in ("first", "both") if name in grid.encoder]
    shown = grid.sel(encoder=encoders).stack(line=("less", "encoder"))
    lines = [f"{encoder}, less {less:g}" for less, encoder in shown.line.values]
    shown = shown.drop_vars(("line", "less", "encoder")).assign_coords(line=lines)
    colours = {
        line: style.CYCLE[place // len(encoders) % len(style.CYCLE)]
        for place, line in enumerate(lines)
    }

    def title(_, task):
        best = shown.sel(task=task).max()
        return f"{task}: up to {best.item():.2f}"

    def published(panel, part):
        if study.metrics:
            best = _best_published(run.found.sel(task=part.task.item()))
            panel.axhline(best, color=style.GREY, linewidth=0.8, linestyle="--")
        panel.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])

    drawn = figures.facets(
        xr.Dataset({"value": shown}), x="multiple", hue="line", column="task",
        across=min(3, len(study.sets)), colours=colours, title=title, each=published,
        x_label="multiple of the rule's bandwidth", y_label="rank correlation",
        size=(3.0, 2.4), sharey=True,
    )  # fmt: skip
    n = f"order {study.order:g}; dashed: best published"
    return figures.caption(drawn, run, n=n, scale=study.bandwidths.shown)


def _pools(run: lab.Run) -> Figure:
    """Columns are bandwidths, rows designs: how often a score tells the pools, mean over tasks."""
    study, right = run.study, run.found.right
    whole = np.isfinite(right).all("task")
    count = right.sizes["task"]
    error = right.std("task", ddof=min(1, count - 1)) / math.sqrt(count)
    shown = xr.Dataset({"value": right.mean("task"), "error": error}).where(whole)

    def title(design, scale):
        at = shown.value.sel(design=design, scale=scale, score=SCORES[0]).dropna("contexts")
        words = f"{at.values[-1]:.0%} right at {at.contexts.values[-1]}" if at.size else "too few"
        return f"bandwidths x {scale:g}: Conditional-RKE\n{words} contexts"

    def chance(panel, part):
        panel.axhline(0.5, color=style.GREY, linewidth=0.8)
        panel.set_ylim(-0.05, 1.05)
        style.log_counts(panel, study.contexts)

    drawn = figures.facets(
        shown, x="contexts", hue="score", row="design", column="scale", error="error", title=title,
        each=chance, x_label="contexts in the more diverse pool", size=(3.2, 2.5), sharey=True,
        y_label=lambda design: f"right order,\n{textwrap.fill(design, 22)}",
    )  # fmt: skip
    n = f"{study.draws} pairs a point"
    bars = f"one error over {count} tasks"
    return figures.caption(drawn, run, n=n, bars=bars)


if __name__ == "__main__":
    lab.main(Human)
