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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import bandwidth, spectra, validation
from condvendi_jax.entropies import log_scores
from condvendi_jax.pairs import Pairs
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, choices, style
from experiments.lab.study import option, positive

_METRIC = "metric_"
# Multiples of the rule's bandwidth, and of the context's embedding, that are tried.
_CANDIDATES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
_LESS = (0.0, 0.25, 0.5, 0.75)
_KEY = 0x4D0DE5  # Of the second encoder's bandwidth.
# What is judged beside single configurations and published metrics; the first is the answer.
CHOSEN, ELSEWHERE, HINDSIGHT = "chosen on other folds", "chosen on other tasks", "best in hindsight"
SCORES = ("Conditional-RKE", "RKE", "Conditional-Vendi", "Vendi")
_POOLED = (cv.Entropy(order=2), cv.Entropy(order=1))
# Contexts of the less diverse pool, as a multiple of those of the more diverse one.
DESIGNS = {"as many contexts in both": 1, "twice the contexts in the less diverse": 2}
_ENOUGH = 0.95


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    candidates: tuple[float, ...] | None = option(
        None,
        "Multiples of the rule's bandwidth that are tried beside those of --scales; 0.35 to 2 if "
        "unset.",
        needs={"kernel": "gaussian"},
    )
    less: tuple[float, ...] | None = option(
        None,
        "How much of its context's embedding is subtracted from a response; 0, 0.25, 0.5 and 0.75 "
        "if unset, and 0 alone where the two are not of one length.",
    )
    orders: tuple[float, ...] = option((1.0, 2.0, math.inf), "Renyi orders that are tried.")
    tasks: tuple[str, ...] | None = option(None, "Some of the tasks; all if unset.")
    folds: int = option(5, "Parts of the contexts; each is judged by a choice on the others.")
    resamples: int = option(1000, "Times that contexts are resampled for the intervals.")
    contexts: tuple[int, ...] = option((1, 2, 4, 8, 16), "Contexts in a pool.")
    draws: int = option(100, "Pairs of pools that are drawn.")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A way of scoring a set.

    Attributes:
      encoder: first, second or both.
      less: how much of the context's embedding is subtracted from each response.
      scale: the multiple of the rule's bandwidth; None for the cosine kernel.
      order: of the entropy.
    """

    encoder: str
    less: float
    scale: float | None
    order: float


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the numbers depend on."""

    data: str
    tasks: dict[str, int]
    kernel: str
    bandwidths: dict[str, choices.Bandwidths]
    units: dict[str, float]
    configurations: tuple[Configuration, ...]
    plain: dict[str, int]
    metrics: tuple[str, ...]
    folds: int
    resamples: int
    contexts: tuple[int, ...]
    draws: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """One task."""

    task: str


@dataclasses.dataclass(frozen=True)
class Judged:
    """The scores of one task against people.

    Attributes:
      names: of what is judged, `[r]`: choices, single configurations, then the published metrics.
      people: Spearman correlations with people, `[r, 3]`: of all sets, and the 95% interval.
      differences: the same less that of the best published metric, `[r, 3]`; NaN without metrics.
      temperature: as `people`, with the temperature; NaN where there is none.
      accuracy: as `people`, of the best threshold for the labels; NaN where there are none.
      chosen: the configuration of each fold, by its number among the settings'.
      elsewhere: that which is chosen on the other tasks; None where there is one task.
      hindsight: the best on all sets.
      grid: the correlation of every configuration with people on all sets, `[C]`.
      right: how often the more diverse pool scores higher, `[designs, scales, SCORES, contexts]`;
        NaN where there are too few contexts, or their number in the less diverse pool is none of
        those asked for.
    """

    names: tuple[str, ...]
    people: np.ndarray
    differences: np.ndarray
    temperature: np.ndarray
    accuracy: np.ndarray
    chosen: tuple[int, ...]
    elsewhere: int | None
    hindsight: int
    grid: np.ndarray
    right: np.ndarray


class Responses(NamedTuple):
    """The sets, in the order of their numbers, and the rows of the pairs that each has.

    Attributes:
      members: the rows of each set.
      task: `[S]`.
      context: `[S]`, equal for the sets of one context.
      labels: by role, `[S]`: people, label, temperature and the published metrics.
    """

    members: list[np.ndarray]
    task: np.ndarray
    context: np.ndarray
    labels: dict[str, np.ndarray]

    @classmethod
    def of(cls, pairs: PairedEmbeddings) -> Responses:
        """The sets of some pairs.

        Raises:
          ValueError: a label or the prompt differs within a set, or a set has one response.
        """
        _, first, index = np.unique(pairs.labels["sets"], return_index=True, return_inverse=True)
        members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
        context = np.unique(pairs.prompts, axis=0, return_inverse=True)[1].reshape(-1)
        known = {"prompts": context, **pairs.labels}
        for role, values in known.items():
            same = values == values[first][index]
            if values.dtype.kind == "f":
                same |= np.isnan(values) & np.isnan(values[first][index])
            if not np.all(same):
                at = int(np.argmin(same))
                raise ValueError(f"{role}: expected one value a set, row {at} differs in its set.")
        if (fewest := min(map(len, members))) < 2:
            raise ValueError(f"sets: expected two responses or more in each, received {fewest}.")
        people = pairs.labels["people"]
        if people.dtype.kind not in "iuf" or not np.all(np.isfinite(people)):
            raise ValueError("people: expected finite numbers, one for each row.")
        numbers = {
            role: values[first].astype(np.float64)
            for role, values in pairs.labels.items()
            if role in ("people", "label", "temperature") or role.startswith(_METRIC)
        }
        task = known.get("task", np.full(len(people), pairs.name)).astype(str)
        return cls(members, task[first], context[first], numbers)

    def some(self, chosen: np.ndarray) -> Responses:
        """Some of the sets, by their numbers."""
        return Responses(
            [self.members[s] for s in chosen],
            self.task[chosen],
            self.context[chosen],
            {role: values[chosen] for role, values in self.labels.items()},
        )


@functools.partial(jax.jit, static_argnames="orders")
def _entropies_of_sets(
    rows: jax.Array, kernel: cv.Kernel, *, orders: tuple[float, ...]
) -> jax.Array:
    """H(X) in nats of each of some sets `[S, k, d]` at each order, `[orders, S]`."""

    def of_one(outputs: jax.Array) -> jax.Array:
        points = Pairs(outputs, output_kernel=kernel)
        wanted = [cv.Entropy(order=order) for order in orders]
        found = spectra.compute(points, wanted, spectra.Exact())
        return jnp.stack([computed.values.outputs for computed in found])

    return jax.vmap(of_one, out_axes=1)(rows)


class State:
    """What the cells share: the pairs, their sets, and every set's score in every configuration."""

    def __init__(self, settings: Settings, pairs: PairedEmbeddings, responses: Responses):
        self.settings, self.pairs, self.responses = settings, pairs, responses

    @functools.cached_property
    def scores(self) -> np.ndarray:
        """H(X) of each set in nats, in every configuration, `[C, S]`."""
        settings, members = self.settings, self.responses.members
        size = np.array(list(map(len, members)))
        found = np.zeros((len(settings.configurations), len(members)), np.float32)
        # Those that differ in their orders alone stand together, and are one call.
        for (encoder, less, scale), group in itertools.groupby(
            enumerate(settings.configurations),
            key=lambda item: (item[1].encoder, item[1].less, item[1].scale),
        ):
            numbers, same = zip(*group, strict=True)
            outputs = representation(self.pairs, settings.units, encoder, less)
            for k in np.unique(size):
                sets = np.flatnonzero(size == k)
                rows = outputs[np.stack([members[s] for s in sets])]
                kernel = cv.Cosine() if scale is None else cv.Gaussian(scale)
                orders = tuple(configuration.order for configuration in same)
                found[np.ix_(numbers, sets)] = _entropies_of_sets(rows, kernel, orders=orders)
        return found


def representation(
    pairs: PairedEmbeddings, units: Mapping[str, float], encoder: str, less: float
) -> np.ndarray:
    """The outputs as one or both encoders have them, less a part of what the context says.

    A multiple of the prompt's embedding is subtracted, and the row scaled to its norm again. Rows
    are in units of their encoder's bandwidth; both stand side by side, so that the Gaussian kernel
    of both is the product of the two.

    Args:
      pairs: the responses and their contexts.
      units: the bandwidth of each encoder that there is.
      encoder: first, second or both.
      less: the multiple.
    """
    found = []
    for name in units if encoder == "both" else (encoder,):
        outputs, prompts = (
            (pairs.outputs, pairs.prompts)
            if name == "first"
            else (pairs.further["second_outputs"], pairs.further.get("second_prompts"))
        )
        if less:
            assert prompts is not None
            rest = outputs - np.float32(less) * prompts
            norms, wanted = (np.linalg.norm(x, axis=1, keepdims=True) for x in (rest, outputs))
            outputs = rest * (wanted / np.maximum(norms, np.finfo(np.float32).tiny))
        found.append(outputs / np.float32(units[name]))
    return np.concatenate(found, axis=1)


def choose_elsewhere(
    scores: np.ndarray, people: np.ndarray, fold: np.ndarray, orders: Sequence[float]
) -> np.ndarray:
    """What each fold is judged by: the configuration that is best on the other folds.

    Args:
      scores: of each set in every configuration, `[C, n]`.
      people: their scores, `[n]`; those of a fold have no part in its choice.
      fold: of each set, from 0.
      orders: the Renyi order of each configuration.

    Returns:
      The number of the configuration of each fold, `[folds]`.
    """
    return np.array(
        [
            np.nanargmax(agreement.spearman(scores[:, fold != part], people[fold != part], orders))
            for part in range(fold.max() + 1)
        ]
    )


def placed(scores: np.ndarray, configuration: np.ndarray, orders: Sequence[float]) -> np.ndarray:
    """Each set's rank among all sets in its own configuration, `[n]`, on one scale for all.

    Args:
      scores: `[C, n]`.
      configuration: of each set, `[n]`.
      orders: the Renyi order of each configuration.
    """
    found = np.zeros(scores.shape[1])
    for c in np.unique(configuration):
        found[configuration == c] = agreement.ranks(scores[c], orders[c])[configuration == c]
    return found


def draw_pools(
    sets: np.ndarray, context: np.ndarray, count: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """`count` times the sets `[h]` in a random order, one of each context that there is."""
    found = []
    for _ in range(count):
        order = generator.permutation(sets)
        found.append(order[np.sort(np.unique(context[order], return_index=True)[1])])
    return found


@jax.jit
def _entropies_of_pools(
    outputs: jax.Array, prompts: jax.Array, rows: jax.Array, kernels: Mapping[str, Any]
) -> jax.Array:
    """H(X), H(T) and H(X, T) of some pools `[p, n]` of rows, `[p, orders, 3]`."""

    def of_one(chosen: jax.Array) -> jax.Array:
        points = Pairs(outputs[chosen], prompts[chosen], **kernels)
        found = spectra.compute(points, _POOLED, spectra.Exact())
        return jnp.stack([jnp.stack(computed.values) for computed in found])

    return jax.lax.map(of_one, rows)


def tell_pools(
    pairs: PairedEmbeddings,
    sets: Responses,
    settings: Settings,
    generator: np.random.Generator,
    say: Callable[[str], None] = lambda words: None,
) -> np.ndarray:
    """How often the more diverse of two pools of one task scores higher; `Judged.right`.

    The pools are of the sets above and below the median of the people's scores, one set a context.
    """
    people, size = sets.labels["people"], min(map(len, sets.members))
    rows = np.stack([members[:size] for members in sets.members])
    middle = np.median(people)
    above, below = (
        draw_pools(np.flatnonzero(part), sets.context, settings.draws, generator)
        for part in (people > middle, people < middle)
    )
    outputs, prompts = jnp.asarray(pairs.outputs), jnp.asarray(pairs.prompts)

    def scores(pools: list[np.ndarray], count: int, kernels: Mapping[str, Any]) -> np.ndarray:
        """`[draws, SCORES]` of the first `count` contexts; NaN where there are fewer."""
        if not pools or min(map(len, pools)) < count:
            return np.full((settings.draws, len(SCORES)), np.nan)
        chosen = np.stack([rows[pool[:count]].reshape(-1) for pool in pools])
        found = np.asarray(_entropies_of_pools(outputs, prompts, chosen, kernels), np.float64)
        logs = log_scores(*np.moveaxis(found, -1, 0))
        return np.stack([logs.conditional, logs.vendi], axis=-1).reshape(len(pools), -1)

    shape = len(DESIGNS), len(settings.bandwidths), len(SCORES), len(settings.contexts)
    right = np.full(shape, np.nan)
    for b, (name, bandwidths) in enumerate(settings.bandwidths.items()):
        kernels = bandwidths.kernels()
        say(f"pools, bandwidth {name}")
        more, less = (
            {count: scores(pools, count, kernels) for count in settings.contexts}
            for pools in (above, below)
        )
        for (d, factor), (p, m) in itertools.product(
            enumerate(DESIGNS.values()), enumerate(settings.contexts)
        ):
            if factor * m in less:
                gain = more[m] - less[factor * m]
                shares = np.where(np.isnan(gain), np.nan, (np.sign(gain) + 1) / 2)
                right[d, b, :, p] = shares.mean(axis=0)
    return right


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options against the pairs, chooses the bandwidths, lists the configurations."""
    orders = tuple(sorted(set(map(validation.check_order, options.orders))))
    for name, least in (("folds", 2), ("resamples", 2), ("draws", 1)):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=least)
    if min(options.contexts) < 1:
        raise ValueError(f"--contexts: expected positive numbers, received {options.contexts}.")
    pairs = load()
    responses = Responses.of(pairs)
    tasks = dict(collections.Counter(responses.task.tolist()))
    for task in options.tasks or ():
        if task not in tasks:
            raise ValueError(f"--tasks: expected some of {', '.join(tasks)}, received {task!r}.")
    tasks = {task: n for task, n in tasks.items() if not options.tasks or task in options.tasks}
    for task in tasks:
        contexts = len(np.unique(responses.context[responses.task == task]))
        if contexts < 2 * options.folds:
            raise ValueError(
                f"--folds={options.folds}: expected {2 * options.folds} contexts or more in each "
                f"task, received {contexts} in {task}."
            )
    bandwidths = choices.choose_scaled(pairs, options, seed)
    units = _units(pairs, bandwidths, options.rule, seed)
    scales: Sequence[float | None] = (None,)
    if options.kernel == "gaussian":
        tried = {positive(s, name="candidates") for s in options.candidates or _CANDIDATES}
        scales = sorted(tried | {float(word) for word in bandwidths})
    encoders = [*units, "both"] if len(units) > 1 else list(units)
    configurations = tuple(
        itertools.starmap(
            Configuration, itertools.product(encoders, _less(options, pairs), scales, orders)
        )
    )
    order = 2.0 if 2 in orders else orders[0]
    name = {1.0: "Vendi", 2.0: "RKE"}.get(order, f"order {order:g}")
    settings = Settings(
        data=pairs.description,
        tasks=tasks,
        kernel=options.kernel,
        bandwidths=bandwidths,
        units=units,
        configurations=configurations,
        plain={
            f"{name}, {word if scale is None else f'bandwidth x {word}'}": configurations.index(
                Configuration("first", configurations[0].less, scale, order)
            )
            for word in bandwidths
            for scale in [None if options.kernel == "cosine" else float(word)]
        },
        metrics=tuple(role for role in responses.labels if role.startswith(_METRIC)),
        folds=options.folds,
        resamples=options.resamples,
        contexts=tuple(sorted(set(options.contexts))),
        draws=options.draws,
    )
    return lab.Setup(settings, pairs.arrays, state=State(settings, pairs, responses))


def _units(
    pairs: PairedEmbeddings, bandwidths: Mapping[str, choices.Bandwidths], rule: str, seed: int
) -> dict[str, float]:
    """The bandwidth of each encoder, of which the scales are multiples; 1 for the cosine kernel."""
    word, found = next(iter(bandwidths.items()))
    units = {"first": 1.0 if found.outputs is None else found.outputs / float(word)}
    if "second_outputs" in pairs.further:
        key = jax.random.fold_in(jax.random.key(seed), _KEY)
        second = pairs.further["second_outputs"]
        ruled = bandwidth.bandwidth_by_rule(second, rule, key=key, partitions=1).bandwidth
        units["second"] = 1.0 if found.outputs is None or ruled is None else ruled
    return units


def _less(options: Options, pairs: PairedEmbeddings) -> tuple[float, ...]:
    """How much of the context is subtracted, ascending."""
    widths = {"prompts": (pairs.outputs.shape[1], pairs.prompts.shape[1])}
    if "second_outputs" in pairs.further:
        second = pairs.further.get("second_prompts", pairs.prompts[:, :0])
        widths["second_prompts"] = (pairs.further["second_outputs"].shape[1], second.shape[1])
    differ = [role for role, (of_x, of_t) in widths.items() if of_x != of_t]
    found = options.less or (_LESS if not differ else (0.0,))
    if not all(0 <= value < 1 for value in found):
        raise ValueError(f"--less: expected numbers from 0 to below 1, received {found}.")
    if differ and any(found):
        of_x, of_t = widths[differ[0]]
        raise ValueError(
            f"--less: {differ[0]} must be as long as the outputs that they are subtracted from, "
            f"received {of_t} and {of_x}."
        )
    return tuple(sorted(set(found)))


def cells(settings: Settings) -> list[Cell]:
    """Every task."""
    return list(map(Cell, settings.tasks))


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Judged:
    """Everything that is judged of one task."""
    settings, state = setup.settings, setup.state
    generator = np.random.default_rng(np.asarray(jax.random.key_data(context.key)))
    context.say("scores of all sets")
    everything = state.scores
    chosen = np.flatnonzero(state.responses.task == cell.task)
    sets, scores = state.responses.some(chosen), everything[:, chosen]
    people = sets.labels["people"]
    _, index = np.unique(sets.context, return_inverse=True)
    fold = generator.permutation(np.arange(index.max() + 1) % settings.folds)[index]
    orders = [configuration.order for configuration in settings.configurations]
    of_folds = choose_elsewhere(scores, people, fold, orders)
    grid = agreement.spearman(scores, people, orders)
    hindsight = int(np.nanargmax(grid))
    judged_by = dict(settings.plain)
    elsewhere = _choice_of_other_tasks(settings, state.responses, everything, cell.task)
    if elsewhere is not None:
        judged_by = {ELSEWHERE: elsewhere, **judged_by}
    judged_by[HINDSIGHT] = hindsight
    # Ranks stand for the scores: they are all that is judged, and rounding gives none.
    rows = {CHOSEN: placed(scores, of_folds[fold], orders)}
    rows |= {name: agreement.ranks(scores[c], orders[c]) for name, c in judged_by.items()}
    judged = np.stack([*rows.values(), *(sets.labels[name] for name in settings.metrics)])
    published = judged[len(rows) :]
    best = (
        len(rows) + int(np.argmax(agreement.spearman(published, people))) if len(published) else 0
    )

    context.say("intervals")
    draws = list(agreement.resampled(sets.context, settings.resamples, generator))

    def interval(
        role: str, statistic: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        wanted = sets.labels.get(role)
        if wanted is None or not np.all(np.isfinite(wanted)) or np.ptp(wanted) == 0:
            return np.full((len(judged), 3), np.nan)
        return agreement.with_interval(
            lambda s: statistic(judged[:, s], wanted[s]), draws, len(people)
        )

    def ahead(scores: np.ndarray, people: np.ndarray) -> np.ndarray:
        found = agreement.spearman(scores, people)
        return found - found[best]

    return Judged(
        names=(*rows, *settings.metrics),
        people=interval("people", agreement.spearman),
        differences=interval("people" if settings.metrics else "", ahead),
        temperature=interval("temperature", agreement.spearman),
        accuracy=interval("label", agreement.best_accuracy),
        chosen=tuple(map(int, of_folds)),
        elsewhere=elsewhere,
        hindsight=hindsight,
        grid=grid,
        right=tell_pools(state.pairs, sets, settings, generator, context.say),
    )


def _choice_of_other_tasks(
    settings: Settings, responses: Responses, scores: np.ndarray, task: str
) -> int | None:
    """The configuration that is best on the other tasks, where they have other contexts."""
    own = np.unique(responses.context[responses.task == task])
    means = []
    orders = [configuration.order for configuration in settings.configurations]
    for other in settings.tasks:
        sets = (responses.task == other) & ~np.isin(responses.context, own)
        if other != task and np.sum(sets) > 2:
            people = responses.labels["people"][sets]
            means.append(agreement.spearman(scores[:, sets], people, orders))
    return int(np.nanargmax(np.mean(means, axis=0))) if means else None


def enough(right: np.ndarray, contexts: Sequence[int]) -> int | None:
    """From how many contexts on the more diverse pool scores higher 95 times in 100.

    Args:
      right: how often, `[contexts]`; NaN where there are too few.
      contexts: the numbers of contexts, ascending.
    """
    known = [(m, share) for m, share in zip(contexts, right, strict=True) if share == share]
    below = [i for i, (_, share) in enumerate(known) if share < _ENOUGH]
    first = below[-1] + 1 if below else 0
    return known[first][0] if first < len(known) else None


def table(run: lab.Run) -> Table:
    """Each task: the best published metric, the scores, how far they are ahead, and the pools."""
    settings = run.settings
    (plain, *_) = [name for name in settings.plain if name.endswith(" 1")] or settings.plain
    grid = Table("task", "sets", "best published", plain, CHOSEN, "ahead by", HINDSIGHT)
    for score in SCORES[:2]:
        grid.add_column(f"contexts, {score}")
    scale = _middle(settings)
    for cell, found in run.results.items():
        at = dict(zip(found.names, range(len(found.names)), strict=True))
        value = {name: f"{found.people[i, 0]:.2f}" for name, i in at.items()}
        best = max(settings.metrics, key=lambda name: found.people[at[name], 0], default=None)
        ahead, low, high = found.differences[at[CHOSEN]]
        counts = [enough(row, settings.contexts) for row in found.right[0, scale, :2]]
        grid.add_row(
            cell.task,
            str(settings.tasks[cell.task]),
            f"{best.removeprefix(_METRIC)} {value[best]}" if best else "-",
            value[plain],
            value[CHOSEN],
            f"{ahead:+.2f} [{low:+.2f}, {high:+.2f}]" if best else "-",
            value[HINDSIGHT],
            *(str(count or "more") for count in counts),
        )
    return grid


def _middle(settings: Settings) -> int:
    """Which of the bandwidths is the rule's own."""
    words = list(settings.bandwidths)
    return words.index("1") if "1" in words else 0


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Correlations beside the published metrics, over configurations, and the pools."""
    run = runs[0]
    return {
        "human": _correlations(run),
        "human_bandwidths": _configurations(run),
        "human_pools": _pools(run),
    }


def _rule(settings: Settings) -> str:
    """The bandwidths in words; nothing for the cosine kernel."""
    word, found = list(settings.bandwidths.items())[_middle(settings)]
    if found.prompts is None:
        return "Cosine kernel"
    units = ", ".join(f"{unit:.3g} ({name} encoder)" for name, unit in settings.units.items())
    return f"Bandwidths x 1: {units}, {found.prompts / float(word):.3g} (prompts); {found.rule}"


def _published(found: Judged) -> np.ndarray:
    """The correlations of the published metrics with people."""
    return found.people[[name.startswith(_METRIC) for name in found.names], 0]


def _correlations(run: lab.Run) -> Figure:
    """A panel a task: every correlation with its interval, published metrics in grey."""
    settings, results = run.settings, run.results
    rows = list(dict.fromkeys(name for found in results.values() for name in found.names))
    columns = min(3, len(results))
    size = (3.0, 0.13 * len(rows) + 1.0)
    figure, panels = style.panels(
        len(results), columns=columns, size=size, sharex=True, sharey=True
    )
    for axes, (cell, found) in zip(panels, results.items(), strict=True):
        for name, (value, low, high) in zip(found.names, found.people, strict=True):
            own = {CHOSEN: style.VERMILION, HINDSIGHT: style.SKY}.get(name, style.BLUE)
            colour = style.GREY if name.startswith(_METRIC) else own
            y = -rows.index(name)
            axes.plot([low, high], [y, y], color=colour, linewidth=1.2)
            axes.plot(value, y, "s" if name.startswith(_METRIC) else "o", color=colour)
        if settings.metrics:
            axes.axvline(_published(found).max(), color=style.GREY, linewidth=0.8, linestyle="--")
        axes.set_title(f"{cell.task}, {settings.tasks[cell.task]} sets")
        words = [name.removeprefix(_METRIC) for name in rows]
        axes.set_yticks([-i for i in range(len(rows))], words, fontsize=6.5)
    for axes in panels[-columns:]:
        axes.set_xlabel("Spearman correlation with people")
    style.caption(
        figure,
        f"{settings.data}. Bars: 95% intervals of {settings.resamples:,} resamplings of contexts. "
        "Squares: published metrics, dashed the best of them. "
        f"{len(settings.configurations)} configurations were tried: '{CHOSEN}' judges each of "
        f"{settings.folds} folds of contexts by the one that is best on the others, '{ELSEWHERE}' "
        f"each task by the one that is best on the other tasks; '{HINDSIGHT}' is no estimate. "
        f"{_rule(settings)}; seed {run.seed}.",
    )
    return figure


def _configurations(run: lab.Run) -> Figure:
    """A panel a task: the correlation over the bandwidth, by encoder and share of the context."""
    settings = run.settings
    order = settings.configurations[next(iter(settings.plain.values()))].order
    tried = [(i, c) for i, c in enumerate(settings.configurations) if c.order == order]
    dashes = dict(zip(dict.fromkeys(c.encoder for _, c in tried), ("-", "--", ":"), strict=False))
    colours = dict(zip(dict.fromkeys(c.less for _, c in tried), itertools.cycle(style.CYCLE)))
    columns = min(3, len(run.results))
    figure, panels = style.panels(
        len(run.results), columns=columns, size=(3.0, 2.4), sharex=True, sharey=True
    )
    for axes, (cell, found) in zip(panels, run.results.items(), strict=True):
        for (encoder, less), group in itertools.groupby(tried, lambda x: (x[1].encoder, x[1].less)):
            points = [(c.scale or 1.0, found.grid[i]) for i, c in group]
            axes.plot(
                *np.array(points).T,
                color=colours[less],
                linestyle=dashes[encoder],
                marker="." if len(points) == 1 else "",
                linewidth=1.2,
                label=f"{encoder}, less {less:g}",
            )
        if settings.metrics:
            axes.axhline(_published(found).max(), color=style.GREY, linewidth=0.8, linestyle="--")
        axes.set_title(cell.task)
        style.log_counts(axes, ())
        axes.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
    for axes in panels[-columns:]:
        axes.set_xlabel("multiple of the rule's bandwidth")
    for axes in panels[::columns]:
        axes.set_ylabel("rank correlation")
    style.legend_above(figure, panels[0], columns=len(dashes))
    style.caption(
        figure,
        f"{settings.data}. Scores of order {order:g} on all sets, by the first encoder, the second "
        "or both; the best is no estimate. 'less': the share of its context's embedding that is "
        "subtracted from each response. Dashed grey: the best published metric. "
        f"{_rule(settings)}; seed {run.seed}.",
    )
    return figure


def _pools(run: lab.Run) -> Figure:
    """Columns are bandwidths, rows designs: how often a score tells the pools, mean over tasks."""
    settings = run.settings
    right = np.stack([found.right for found in run.results.values()])
    words = list(settings.bandwidths)
    figure, panels = style.panels(
        right.shape[1] * len(words), columns=len(words), size=(3.2, 2.5), sharex=True, sharey=True
    )
    for axes, (d, b) in zip(
        panels, itertools.product(range(right.shape[1]), range(len(words))), strict=True
    ):
        for s, score in enumerate(SCORES):
            shares = right[:, d, b, s]
            known = np.isfinite(shares).all(axis=0)
            mean = shares.mean(axis=0)[known]
            error = (
                shares.std(axis=0, ddof=1)[known] / math.sqrt(len(shares)) if len(shares) > 1 else 0
            )
            axes.errorbar(
                np.array(settings.contexts)[known] * 1.03 ** (s - 1.5),
                mean,
                yerr=error,
                color=style.score_colour(score),
                marker=style.MARKERS[s],
                capsize=2,
                label=score,
            )
        axes.set_ylim(-0.05, 1.05)
        axes.axhline(0.5, color=style.GREY, linewidth=0.8)
        axes.axhline(_ENOUGH, color=style.GREY, linewidth=0.8, linestyle="--")
        style.log_counts(axes, settings.contexts)
        if d == 0:
            axes.set_title(words[b] if words[b] == "cosine" else f"bandwidths x {words[b]}")
    for axes in panels[-len(words) :]:
        axes.set_xlabel("contexts in the more diverse pool")
    for axes, design in zip(panels[:: len(words)], DESIGNS, strict=True):
        axes.set_ylabel(f"right order of the pools,\n{design}", fontsize=7.5)
    style.legend_above(figure, panels[0])
    style.caption(
        figure,
        f"{settings.data}. Pools of sets that people found more and less diverse than the task's "
        f"median, one set a context; {settings.draws} pairs of pools a point. Mean over "
        f"{len(right)} tasks and its standard error; grey: chance, dashed: 95%. "
        f"{_rule(settings)}; seed {run.seed}.",
    )
    return figure


STUDY = lab.StudyRecord(
    name="human",
    version=2,
    question="Do the scores agree with people's judgement of diversity?",
    reproduces="-",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Judged,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("human", "human_bandwidths", "human_pools"),
    data="human",
    labels=("sets", "people"),
    more_labels=("task", "label", "temperature"),
    further=("second_outputs", "second_prompts"),
)

if __name__ == "__main__":
    lab.main(STUDY)
