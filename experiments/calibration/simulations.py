"""How often intervals, bands, tests, plans and alarms are right, in samples of known populations.

    python -m experiments.simulations intervals --n=200 --draws=100
    python -m experiments.simulations ends|bands|plans|alarms --draws=100

Prints each cell of the tables of docs/errors.md (intervals), docs/contributions.md (ends),
docs/bandwidths.md (bands), docs/decisions.md (plans) or docs/training_loops.md (alarms) as JSON.
"""

import dataclasses
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.cli.flags import flag
from condvendi_jax.statistics import shrinkage
from condvendi_jax.statistics.sequential import EProcess, upper_end
from experiments.data import PairedEmbeddings, load
from experiments.lab import runner, scales

SCORES = ("vendi", "conditional", "information")
KINDS = ("mild", "heavy", "bimodal")
EACH = 8  # Answers to a prompt, where rows depend on each other.
EXACT: dict[str, Any] = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
LEVEL = 0.05
_ROUNDING = 1e-6


@functools.cache
def answers_of(kind: str) -> np.ndarray:
    """The probabilities of 40 answers to each of 400 equally likely prompts, `[400, 40]`.

    Mild prompts have six answers. Heavy ones prefer one answer, with a log-normal probability that
    two answers agree. Of bimodal ones, a tenth has one answer and the others have twenty.
    """
    rng, shares = np.random.default_rng(7), np.zeros((400, 40))
    if kind == "heavy":
        agreeing = np.exp(np.log(0.05) + stats.norm.ppf((np.arange(400) + 0.5) / 400))
        most = np.sqrt(np.minimum(agreeing, 0.95))[:, None]
        return np.where(np.arange(40) == rng.integers(40, size=(400, 1)), most, (1 - most) / 39)
    for prompt, row in enumerate(shares):
        count = 6 if kind == "mild" else 1 if prompt < 40 else 20
        row[rng.choice(40, count, replace=False)] = rng.dirichlet(np.ones(count))
    return shares


def numbers(rng: Any, count: int, k: int, unequal: bool) -> Any:
    """How many answers each of some prompts has: k, or 2 to 2k."""
    return rng.permutation(np.resize(np.arange(2, 2 * k + 1), count)) if unequal else k


def draw_answers(rng: Any, kind: str, prompts: np.ndarray, counts: Any) -> tuple[Any, Any]:
    """`counts` answers to each of some prompts; a prompt that is drawn twice is two prompts."""
    copies = rng.multinomial(counts, answers_of(kind)[prompts])
    prompt, answer = np.nonzero(copies)
    rows = np.repeat(np.stack([answer, prompt], axis=1), copies[prompt, answer], axis=0)
    return np.float32(rows[:, :1]), np.float32(rows[:, 1:])


def parts_of(copies: np.ndarray, square: np.ndarray) -> shrinkage.Components:
    """Of prompts, by how often each answer was given `[P, 40]` and their squared kernel."""
    prompt, answer = np.nonzero(copies)
    sums, squares = ((copies @ of)[prompt, answer] - 1 for of in (square, square**2))
    return shrinkage.of_sums(sums, squares, copies[prompt, answer], prompt, len(copies))


def holds(sample: Sequence[np.ndarray], within: float, between: float) -> np.ndarray:
    """Whether 95% intervals of order 2 hold each score of all prompts, `[3]`.

    `within` and `between`: how often two answers to a prompt, or to two prompts, are the same.
    """
    found = cv.evaluate(*sample, orders=[2], **EXACT).order(2).population
    similar = found.of_prompts * within + (1 - found.of_prompts) * between
    truth, (low, high) = [1 / similar, 1 / within, within / similar], np.transpose(found.intervals)
    low, high = low / (1 + _ROUNDING), high * (1 + _ROUNDING)
    return (low <= truth) & (truth <= high)


# Intervals of scores


@dataclasses.dataclass(frozen=True)
class Case:
    """Values of an output and a prompt, with weights and their prompts' numbers."""

    outputs: np.ndarray
    prompts: np.ndarray
    kinds: np.ndarray
    weights: np.ndarray
    kernels: dict[str, Any]
    truncation: int = 5

    def draw(self, rng: Any, n: int, dependent: bool = False) -> tuple[np.ndarray, ...]:
        """n independent rows, or `EACH` answers to each of n / EACH prompts."""
        if dependent:
            of_kinds = np.bincount(self.kinds, self.weights)
            shares = self.weights / of_kinds[self.kinds]
            chosen = rng.choice(len(of_kinds), n // EACH, p=of_kinds)
            own = (np.where(self.kinds == kind, shares, 0) for kind in chosen)
            rows = np.concatenate([rng.choice(len(shares), EACH, p=of) for of in own])
        else:
            rows = rng.choice(len(self.kinds), n, p=self.weights)
        return tuple(of[rows].astype(np.float32) for of in (self.outputs, self.prompts))


def values_60() -> Case:
    """60 outputs that overlap, 5 near each of 12 prompts, of unequal weights."""
    rng = np.random.default_rng(5)
    prompts, kinds = 2 * rng.normal(size=(12, 2)), np.repeat(np.arange(12), 5)
    outputs = 0.6 * prompts[kinds] + 1.2 * rng.normal(size=(60, 2))
    weights = np.repeat(rng.dirichlet(np.full(12, 3.0)), 5)
    weights *= np.concatenate([rng.dirichlet(np.full(5, 1.5)) for _ in range(12)])
    kernels = dict.fromkeys(EXACT, cv.Gaussian(0.8))
    return Case(outputs, prompts[kinds], kinds, weights / weights.sum(), kernels)


def separate_modes() -> Case:
    """15 outputs far apart, of unequal weights, and 3 prompts far apart, each with 5 outputs."""
    weights = np.array([0.25, 0.2, 0.15, 0.12, 0.1, *[0.018] * 10])
    outputs, kinds = np.arange(15)[:, None], np.arange(15) % 3
    kernels = dict.fromkeys(EXACT, cv.Gaussian(0.1))
    return Case(outputs, kinds[:, None], kinds, weights / weights.sum(), kernels)


def equal_modes() -> Case:
    """4 outputs and 4 prompts, far apart and independent: 16 pairs of equal weight."""
    outputs, kinds = np.repeat(np.arange(4), 4)[:, None], np.tile(np.arange(4), 4)
    kernels = dict.fromkeys(EXACT, cv.Gaussian(0.1))
    return Case(outputs, kinds[:, None], kinds, np.full(16, 1 / 16), kernels, 8)


def gallery() -> Case:
    """Nine pictures by latent diffusion for each of 41 prompts."""
    pairs = load("gallery")
    return _of_data(pairs.rows(pairs.labels["models"] == "latent diffusion"))


def emoji() -> Case:
    """Drawings of activities by four designers, under the names of the emoji."""
    pairs = load("emoji")
    designers = np.isin(pairs.labels["models"], ["Fluent", "Noto", "OpenMoji", "Twemoji"])
    return _of_data(pairs.rows(designers & (pairs.labels["types"] == "activities")))


def _of_data(pairs: PairedEmbeddings) -> Case:
    _, kinds = np.unique(pairs.labels["prompt"], return_inverse=True)
    weights, kernels = np.full(len(kinds), 1 / len(kinds)), scales.by_rule(pairs, "median", 0)
    return Case(pairs.outputs, pairs.prompts, kinds, weights, kernels.kernels, 20)


def cover_prompts(
    kind: str, prompts: int, answers: int, unequal: bool, draws: int = 400
) -> dict[str, float]:
    """How often intervals of order 2 hold the score of all prompts, of k or 2 to 2k answers."""
    rng, held = np.random.default_rng([prompts, answers, unequal]), []
    shares = answers_of(kind)
    within = float(np.mean(np.sum(shares**2, axis=1)))
    between = float(np.sum(shares.mean(axis=0) ** 2))
    for _ in range(draws):
        counts = numbers(rng, prompts, answers, unequal)
        sample = draw_answers(rng, kind, rng.integers(400, size=prompts), counts)
        held.append(holds(sample, within, between))
    return dict(zip(SCORES, np.mean(held, axis=0).tolist(), strict=True))


def cover_mean(
    case: Callable[[], Case], n: int, dependent: bool, order_cut: tuple[int, bool], draws: int = 400
) -> dict[str, Any]:
    """By score: how often intervals hold the mean score, and the error over the deviation."""
    population, rng, (order, cut) = case(), np.random.default_rng([0, n, dependent]), order_cut
    groups, found = np.arange(n) // (EACH if dependent else 1), []
    options: dict[str, Any] = {"orders": [order], "groups": groups, **population.kernels}
    for _ in range(draws):
        sample, kept = population.draw(rng, n, dependent), population.truncation if cut else None
        found += cv.evaluate(*sample, truncation=kept, **options).orders
    width = stats.t.ppf(0.975, groups[-1])
    values = np.array([of.decomposition.scores for of in found], np.float64)
    errors = np.array([of.standard_errors for of in found], np.float64)
    errors = np.maximum(errors, 1e-5 * values)  # No interval covers rounding.
    held = np.mean(np.abs(values - values.mean(axis=0)) < width * errors, axis=0)
    ratio = np.sqrt(np.mean(errors**2, axis=0)) / np.maximum(values.std(axis=0), 1e-9)
    return pd.DataFrame({"coverage": held, "error / deviation": ratio}, SCORES).to_dict("index")


# The most and the least diverse prompt
ENDS = ("most diverse", "least diverse", "all")


@functools.cache
def population(kind: str, overlapping: bool) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of 40 answers to 400 prompts, `[400, 40]`, and their squared kernel.

    Answers are the same or different or, where they overlap, points in space under a Gaussian.
    Of 'wide' prompts, a tenth has 40 equally likely answers, and the others 4; of 'halves', half
    nearly always have the same answer, and the others 40.
    """
    rng, square, equal = np.random.default_rng(3), np.eye(40), np.full((400, 40), 1 / 40)
    prompt, few = np.arange(400)[:, None], (np.arange(40) < 4) / 4
    if overlapping:
        points = rng.normal(size=(40, 3))
        square = np.exp(-np.sum((points[:, None] - points) ** 2, axis=2) / 0.6**2)
    if kind == "equal":
        return equal if overlapping else np.tile(few, (400, 1)), square
    if kind == "wide":
        return np.where(prompt % 10, few, equal), square
    if kind == "halves":
        return np.where(prompt % 2, [0.97, *[0.03 / 39] * 39], equal), square
    if not overlapping:
        shares = answers_of(kind if kind in KINDS else "mild")
    elif kind == "bimodal":  # 85% prefer one answer.
        shares = np.where(prompt < 340, 0.1, 1) * equal
        shares[np.arange(340), rng.integers(40, size=340)] += 0.9
    else:
        sizes = np.exp(rng.normal(np.log(0.15), 1, 400)) if kind == "heavy" else np.full(400, 0.3)
        shares = np.stack([rng.dirichlet(np.full(40, size)) for size in sizes])
    if kind == "identical":
        shares = np.tile(shares[0 if overlapping else 5], (400, 1))
    return shares, square


def cover_ends(
    kind: str, overlapping: bool, prompts: int, answers: Sequence[int], draws: int = 200
) -> dict[str, Any]:
    """Coverage and mean length at both ends and of all, of intervals and of two errors; the test.

    Two errors are those of a prompt by itself, of the table that is sorted by plain similarities.
    """
    counts = np.resize(answers, prompts).tolist()
    rng, held, tests = np.random.default_rng([len(counts), *counts[:2]]), [], []
    of_all, square = population(kind, overlapping)
    for _ in range(draws):
        counts_of, shares = rng.permutation(counts), of_all[rng.integers(400, size=len(counts))]
        copies = rng.multinomial(counts_of, shares)
        truth = np.einsum("pa,ab,pb->p", shares, square, shares)  # Similarities.
        parts = parts_of(copies, square)
        found = shrinkage.shrink(parts)
        if isinstance(found, str):
            continue
        (p_value, _, reliability, _), (value, *ends) = found
        plain, error = parts.similarity, 2 * np.sqrt(np.maximum(parts.within(), 0))
        table = []
        for by, (low, high) in ((value, ends), (plain, (plain - error, plain + error))):
            covered = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
            order = np.lexsort([rng.random(by.size), by])[[0, -1]]  # Ties at random.
            table += [[*of[order], of.mean()] for of in (covered, high - low)]
        held.append(table)
        tests.append([p_value < 0.05, reliability])
    names = ("coverage", "length", "coverage of two errors", "length of two errors")
    cells = pd.DataFrame(np.mean(held, axis=0).round(3), names, ENDS).to_dict("index")
    rejected, reliability = np.round(np.mean(tests, axis=0), 3).tolist()
    return {**cells, "rejected": rejected, "reliability": reliability, "tables": len(held)}


# Bands and signs over a ladder of bandwidths
Profiles = list[cv.inference.Profile]
PLACES = np.random.default_rng(11).normal(size=(40, 3)).astype(np.float32)
_CENTRES = 2 * np.random.default_rng(3).normal(size=(12, 2))
_FEW = ((5, 10), (8, 5), (8, 10), (12, 10), (20, 10))  # Prompts, and answers to each.
# Answers of models are on a circle around the prompt: the number of places, its radius, and the
# noise around each place. Models of one distribution; some of one distribution beside another; and
# two whose order turns: many answers near each other, and a few far apart.
PLACED = {
    "same": ((5, 1.0, 0.3),) * 3,
    "partly": ((5, 1.0, 0.3), (5, 1.0, 0.3), (5, 1.2, 0.3)),
    "turning": ((12, 0.8, 0.02), (3, 2.5, 0.02)),
}
SAME = {"same": "012", "partly": "01", "turning": ""}  # Names of models of one distribution.


def profiles(name: str, n: int, each: int, draws: int) -> Profiles:
    """The profiles of many draws of the models of a case; `each` rows have one prompt."""
    rng, found = np.random.default_rng([n, each, len(name)]), []
    kernels: dict[str, Any] = dict.fromkeys(EXACT, cv.Gaussian(1.0))
    for _ in range(draws):
        prompts = _CENTRES[rng.choice(12, n // each)] + 0.3 * rng.normal(size=(n // each, 2))
        prompts, outputs = np.repeat(prompts, each, axis=0), {}
        for number, (modes, radius, noise) in enumerate(PLACED[name]):
            angles = 2 * np.pi * rng.integers(modes, size=n) / modes
            places = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            outputs[f"{number}"] = np.float32(prompts + places + noise * rng.normal(size=(n, 2)))
        found.append(cv.profile(outputs, np.float32(prompts), **kernels))
    return found


def few_prompts(
    kind: str, size: tuple[int, int], unequal: bool, matched: bool, draws: int
) -> Profiles:
    """The profiles of equal models, of k or 2 to 2k answers to each of a few skewed prompts.

    The answers are 40 places of overlapping embeddings; prompts are equal or different.
    """
    rng, drawn, (count, k) = np.random.default_rng([*size, unequal, matched, 3]), [], size
    for _ in range(draws):
        outputs, asked, prompts = {}, {}, rng.integers(400, size=count)
        for model in range(3):
            counts = numbers(rng, count, k, unequal)
            of = prompts if matched else rng.integers(400, size=count)
            rows, ids = draw_answers(rng, kind, of, counts)
            outputs[f"{model}"] = PLACES[rows[:, 0].astype(int)]
            asked[f"{model}"] = ids if matched else ids + count * model
        drawn.append(cv.profile(outputs, asked, output_kernel=cv.Gaussian(1.0)))
    return drawn


def bands_held(drawn: Profiles, kind: str) -> float:
    """The share of bands that hold Conditional-RKE of all 400 prompts at all bandwidths."""
    shares, squares = answers_of(kind), np.sum((PLACES[:, None] - PLACES) ** 2, axis=2)
    alike = np.exp(-squares / drawn[0].bandwidths[:, None, None] ** 2)
    truth = 1 / np.mean(np.einsum("pi,bij,pj->bp", shares, alike, shares, optimize=True), axis=1)
    return _inside(np.array([of.bands.conditional for of in drawn]), truth)


def bands(drawn: Profiles) -> dict[str, float]:
    """By score the share of bands that cover the mean score at all bandwidths, of all models."""
    values, ends = np.log([of.values for of in drawn]), np.log([of.bands for of in drawn])
    return dict(zip(SCORES, _inside(ends, values.mean(axis=0)), strict=True))


def _inside(ends: np.ndarray, truth: np.ndarray) -> Any:
    """How often bands `[draws, ..., models, bandwidths, 2]` hold the truth at all bandwidths."""
    low, high = np.moveaxis(ends, -1, 0)
    held = ((low <= truth) & (truth <= high) | np.isnan(low)).all(axis=-1)
    return np.mean(held, axis=(0, -1)).tolist()


def false_statements(drawn: Profiles, same: str) -> dict[str, float]:
    """By score the share of draws in which any sign of any pair is false.

    The models that `same` names have no sign. Of others it is that of the mean difference, where
    that is clear of the draws' noise.
    """
    shares = {}
    for score in SCORES:
        wrong, values = False, np.log([getattr(of.values, score) for of in drawn])
        for (k, one), (m, two) in itertools.combinations(enumerate(drawn[0].models), 2):
            signs = np.array([of.pair(one, two, score).signs for of in drawn])
            differences = values[:, k] - values[:, m]
            mean, error = differences.mean(axis=0), stats.sem(differences)
            other = signs * np.where(np.abs(mean) > 4 * error, np.sign(mean), 0) < 0
            false = signs != 0 if one in same and two in same else other
            wrong = wrong | false.any(axis=1)
        shares[score] = float(np.mean(wrong))
    return shares


def few_cell(draws: int = 500, **cell: Any) -> dict[str, Any]:
    """What holds of few prompts."""
    drawn = few_prompts(draws=draws, **cell)
    return {"bands": bands_held(drawn, cell["kind"]), "false": false_statements(drawn, "012")}


def profile_cell(case: str, n: int, each: int, draws: int = 500) -> dict[str, Any]:
    """What holds of independent rows, or of `each` answers to a prompt."""
    drawn = profiles(case, n, each, draws)
    return {"bands": bands(drawn), "false": false_statements(drawn, SAME[case])}


# Planned studies, and models that are stated to be equal
PILOT, RATIO, _TEN = 30, 1.2, 10  # Prompts, of scores, answers to a prompt.


def achieved(split: int) -> dict[str, Any]:
    """The power on other prompts of studies that 30 prompts planned for each pair of models."""
    pairs, rng = load("answers"), np.random.default_rng(split)
    prompt, model = pairs.labels["prompt"], pairs.labels["models"]
    chosen = np.isin(prompt, rng.permutation(np.unique(prompt))[:PILOT])
    kernels = {"output_kernel": cv.Gaussian(0.504), "prompt_kernel": cv.Indicator()}

    def compared(rows: np.ndarray) -> cv.inference.Comparison:
        of = {name: rows & (model == name) for name in np.unique(model).tolist()}
        both = ({k: whole[of[k]] for k in of} for whole in (pairs.outputs, prompt))
        return cv.compare(*both, **kernels, orders=[2], profile=False)

    pilot, others, found = compared(chosen), compared(~chosen), []
    for two in itertools.combinations(pilot.models, 2):
        planned = cv.plan(pilot, models=two, ratio=RATIO, level=LEVEL)
        there, (prompts, k, *_) = cv.plan(others, models=two).spread, planned.best
        power = there.power(k, prompts, there.effect(RATIO), 0.05, at=0.0)
        low, high = planned.open_power
        found.append((power, low <= power <= high, prompts, k))
    power, inside, prompts, k = np.array(found).T
    ends = np.quantile(power, [0.05, 0.95]).tolist()
    shown = {"power": float(power.mean()), "5% and 95%": ends, "in the range": inside.mean()}
    return shown | {"median prompts": np.median(prompts), "median answers": np.median(k)}


def stated(kind: str, prompts: int, draws: int = 400) -> dict[str, Any]:
    """How often two models are stated to be equal: at the margin, where 5% may be, and if equal."""
    rng, shares = np.random.default_rng([prompts, _TEN]), answers_of(kind)
    # A tenth of its answers is always the likeliest one.
    narrower = 0.9 * shares + 0.1 * np.eye(40)[shares.argmax(axis=1)]
    similar = [float(np.mean(np.sum(of**2, axis=1))) for of in (shares, narrower)]
    margin, rates = similar[1] / similar[0], []
    options: dict[str, Any] = {"orders": [2], "profile": False, "equal_ratio": margin}
    for _ in range(draws):
        drawn, models = rng.integers(400, size=prompts), {}
        for name, of in (("one", shares), ("narrower", narrower), ("twin", shares)):
            answers = [rng.choice(40, _TEN, p=of[prompt]) for prompt in drawn]
            models[name] = np.float32(np.ravel(answers)[:, None])
        for other in ("narrower", "twin"):
            two = {name: models[name] for name in ("one", other)}
            tested = cv.compare(two, np.repeat(range(prompts), _TEN), **options, **EXACT)
            rates.append(tested.ranking("conditional", 2).differences[0].equal_p_value <= 0.05)
    at_margin, twins = np.mean(np.reshape(rates, (draws, 2)), axis=0).tolist()
    return {"margin": margin, "false": at_margin, "of twins": twins}


# Monitors
FALL = 4 / 3  # Of the similarity, for a score that falls by a quarter.
_AT_ONCE = 100  # Runs.


def similarities(counts: np.ndarray) -> np.ndarray:
    """Of prompts, from how often each answer was given, `[..., P, answers]`."""
    k = counts.sum(axis=-1)
    return np.sum(counts * (counts - 1), axis=-1) / (k * (k - 1))


def collapsed(shares: np.ndarray, times: float) -> np.ndarray:
    """Answers `[runs, P, answers]` that move to the favourite of each prompt.

    The same part of them moves for all prompts of a run: so many that their mean similarity is
    `times` what it was.
    """
    favourite = np.eye(shares.shape[-1])[shares.argmax(axis=-1)]
    similar = np.mean(np.sum(shares**2, axis=-1), axis=-1)
    most = np.mean(shares.max(axis=-1), axis=-1)
    # (1 - b)^2 s + 2 b (1 - b) m + b^2 = times s.
    square, linear, rest = similar - 2 * most + 1, most - similar, -(times - 1) * similar
    moved = (np.sqrt(linear**2 - square * rest) - linear) / square
    moved = np.minimum(moved, 1)[:, None, None]
    return (1 - moved) * shares + moved * favourite


def first_alarms(
    kind: str, prompts: int, baseline: int, k: int, looks: int, runs: int, change: int = 0
) -> dict[str, np.ndarray]:
    """The look of the first alarm of each run, 0 without one: of the monitor and of two z tests.

    A run has `baseline` answers to each prompt in the baseline and k in each look. From the look
    `change` on, where there is one, the score is lower by a quarter. One test takes the baseline as
    if it had no error, the other the look before.
    """
    rng, found = np.random.default_rng([0, prompts, baseline, k]), []
    for _ in range(0, runs, _AT_ONCE):
        drawn = rng.integers(400, size=(min(runs, _AT_ONCE), prompts))
        before = answers_of(kind)[drawn]
        after = collapsed(before, FALL)
        counts = rng.multinomial(baseline, before)
        start, shares = similarities(counts), np.full(prompts, 1 / prompts)
        error = np.array([parts_of(of_run, np.eye(40)).error(shares) for of_run in counts])
        bound = upper_end(start.mean(axis=-1), prompts * (baseline // 2), LEVEL / 2)
        process, last = EProcess(start, error, bound), start
        alarms = np.zeros((3, len(before)), int)
        for look in range(1, looks + 1):
            now = similarities(rng.multinomial(k, after if 0 < change <= look else before))
            evident = process.update(now) >= np.log(2 / LEVEL)
            rings = np.array([evident, _rose(now - start), _rose(now - last)])
            alarms, last = np.where((alarms == 0) & rings, look, alarms), now
        found.append(alarms)
    return dict(zip(("monitor", "fixed", "previous"), np.concatenate(found, axis=1), strict=True))


def _rose(change: np.ndarray) -> np.ndarray:
    """Whether the mean over prompts `[..., P]` is above 0 by a one-sided z test at the level."""
    return change.mean(axis=-1) > stats.norm.isf(LEVEL) * stats.sem(change, axis=-1)


def false_alarms(kind: str, prompts: int, k: int, draws: int = 1000) -> dict[str, Any]:
    """In how many runs of 200 looks without a change there is an alarm."""
    alarms = first_alarms(kind, prompts, k, k, 200, draws)
    return {"false": {name: float(np.mean(of > 0)) for name, of in alarms.items()}}


def delays(kind: str, size: tuple[int, int], change: int, draws: int = 1000) -> dict[str, Any]:
    """How many looks a change takes to be seen at 50 prompts, and the share of runs in which it is.

    Quantiles are of the runs without an alarm before the change; None where most or a tenth of them
    have none.
    """
    alarms = first_alarms(kind, 50, *size, change + 59, draws, change)["monitor"]
    there = alarms[(alarms == 0) | (alarms >= change)]
    waited = np.where(there == 0, np.inf, there - change + 1.0)
    ends = np.quantile(waited, [0.5, 0.9], method="higher").tolist()
    median, most = (int(end) if np.isfinite(end) else None for end in ends)
    return {"median": median, "90%": most, "found": float(np.mean(there > 0))}


CASES = (values_60, separate_modes, equal_modes, gallery, emoji)
_BOTH = (False, True)
_ORDERS = (1, False), (1, True), (2, True)  # And whether eigenvalues are cut.
_ANSWERS, _MIXED = (2, 5, 10, 50), ([4], [5], [10], [50], [4, 5, 10, 30])
_PROMPTS = ("identical", "equal", "wide", "halves", *KINDS)
_STARTS = (5, 5), (10, 10), (20, 10), (40, 10)  # Answers in the baseline and in each look.
# By word, what is computed of the cells, and the values of each parameter.
CELLS: Mapping[str, Sequence[tuple[Callable[..., dict[str, Any]], dict[str, Sequence[Any]]]]] = {
    "intervals": [
        (cover_prompts, dict(kind=KINDS, prompts=(20, 50, 200), answers=_ANSWERS, unequal=_BOTH)),
        (cover_mean, dict(case=CASES, n=(200, 1000, 4000), dependent=_BOTH, order_cut=_ORDERS)),
    ],
    "ends": [
        (cover_ends, dict(prompts=(8, 20, 100), answers=_MIXED, kind=_PROMPTS, overlapping=_BOTH))
    ],
    "bands": [
        (few_cell, dict(kind=KINDS, size=_FEW, unequal=_BOTH, matched=_BOTH)),
        (profile_cell, dict(case=tuple(PLACED), n=(200, 400, 1000), each=(1, EACH))),
    ],
    "plans": [
        (achieved, dict(split=range(5))),
        (stated, dict(kind=KINDS, prompts=(10, 20, 50, 100))),
    ],
    "alarms": [
        (false_alarms, dict(kind=KINDS, prompts=(20, 50), k=(5, 10))),
        (delays, dict(kind=KINDS, size=_STARTS, change=(1, 30))),
    ],
}


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of the command."""

    draws: int | None = flag(None, "Samples of each cell, if not the documents'.", at_least=2)
    n: tuple[int, ...] | None = flag(None, "Numbers of rows, where they are an axis.", at_least=8)


def main(words: list[str], given: Any) -> None:
    """Prints the cells that the word names."""
    name = "".join(words)
    if name not in CELLS:
        raise ValueError(f"expected one of {', '.join(CELLS)}, received {name!r}.")
    for function, axes in CELLS[name]:
        has_draws = "draws" in inspect.signature(function).parameters
        options = {"draws": given.draws} if given.draws and has_draws else {}
        axes = {**axes, **({"n": given.n} if given.n and "n" in axes else {})}
        for values in itertools.product(*axes.values()):
            cell = dict(zip(axes, values, strict=True))
            shown = {axis: getattr(value, "__name__", value) for axis, value in cell.items()}
            print(json.dumps(shown | function(**cell, **options)), flush=True)


if __name__ == "__main__":
    runner.run_program(main, Flags, 1)
