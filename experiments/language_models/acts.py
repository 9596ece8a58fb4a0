"""Stop, mix and choose by the scores, each judged on prompts that did not tune it."""

from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

import condvendi_jax as cv
from experiments import data, lab
from experiments.calibration import judgements
from experiments.lab import agreement, figures, style, tables
from experiments.language_models import answers, judged

FIXED, CLASSES, CONTROL = "a fixed number", "by true classes", "control: another prompt"
BEST, EVEN, SINGLE = "best shares", "all models equally", "the most diverse model"
OURS = {"stop": ("cv.enough", FIXED), "mix": (BEST, SINGLE)}  # And what is used without it.
OURS["choose"] = "cv.select", "the first answers"
MEASURES = {
    "stop": ("net value", "asked", "lost", "lost by a fixed number", "net at until = price"),
    "people": ("asked", "correlation", "of a fixed number"),
    "mix": ("different answers", "reward", "models"),
    "choose": ("utility", "classes", "reward"),
}
PRICES = 0.2, 0.1, 0.3  # Of an answer, where a new class is worth 1.
FLOORS, _RESAMPLES = (8.2, 8.6), 500  # Least mean rewards of a mixture; draws of people's sets.
CHOSEN, GOOD = 4, 6.0  # How many answers are chosen; the reward from which one is good.
_AFTER, _UNTIL = (3, 5, 8), np.linspace(-0.01, 1, 102)  # The first `until` never stops.
_TRADES = 0.05, 0.1, 0.2, 0.3, 0.5  # Similarity for the range of all rewards.
_LAMBDAS, _WEIGHTS = np.linspace(0, 1, 11), (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # MMR; DPP.


class Acts(lab.Study):
    """Do stopping, mixing and choosing by these scores pay on prompts that were not used?"""

    data = "answers"
    needs = ("models", "prompt", "classes", "rewards")
    control = "Answers to another prompt stop and choose; shares are dealt to models at random."
    grows = ("act",)

    bandwidth: float = lab.flag(0.5, "The bandwidth of the answers.", above=0)
    halves: int = lab.flag(5, "Random halves of the prompts.", at_least=1)

    def prepare(self, load, seed):
        pairs, people = load(), data.load("human")
        rows, _ = judged.by_prompt(pairs)
        classes, rewards = (judged.numbers(pairs, of, rows) for of in ("classes", "rewards"))
        arrays = {**pairs.arrays, **{f"human {k}": v for k, v in people.arrays.items()}}
        state = people, pairs.outputs[rows], classes, answers.class_rewards(classes, rewards)
        return self.ready(pairs, state=state, arrays=arrays)

    def axes(self):
        return {"act": (*(f"stop at {price:g}" for price in PRICES), *list(MEASURES)[1:])}

    def compute(self, state, context, *, act):
        """What rules reach on prompts that did not tune them, and how far the first is `ahead`."""
        generator, count = np.random.default_rng(context.shared_seed), state[-1].shape[1]
        pairs = [np.array_split(generator.permutation(count), 2) for _ in range(self.halves)]
        halves = [*pairs, *(pair[::-1] for pair in pairs)]
        name, *price = act.split(" at ")
        taken = {"stop": _stop, "people": _people, "mix": _mix, "choose": _choose}[name]
        return taken(state, cv.Gaussian(self.bandwidth), halves, generator, *map(float, price))

    def tables(self, run):
        return [_table(found) for found in run.results.values()]

    @classmethod
    def facts(cls, runs):
        parts = {str(c).removesuffix(f"_at_{PRICES[0]:g}"): of for c, of in runs[0].results.items()}
        return {"parts": parts, "table": lambda of, n=9: _table(of.isel(measure=slice(n)))}

    @classmethod
    def figures(cls, runs):
        parts = cls.facts(runs)["parts"]
        (figure, panels), told = style.panels(3, columns=1, size=(4.2, 1.9)), []
        for panel, (act, (ours, rival)) in zip(panels, OURS.items(), strict=True):
            value = parts[act].value[:, 0]
            less = -parts[act].ahead.sortby(value).drop_sel(rule=ours)
            rows, ends = range(len(less)), abs(less[:, 1:].T - less[:, 0])
            panel.errorbar(less[:, 0], rows, xerr=ends, fmt="o", color=style.BLUE)
            panel.axvline(0, color=style.GREY)
            panel.set(title=act, yticks=rows, yticklabels=less.rule.values)
            panel.set_xlabel(f"{MEASURES[act][0]}, less that of {ours}")
            times = value.sel(rule=ours) / value.sel(rule=rival)
            told.append(f"{act} {times:.1f} times {rival}")
        style.headline(figure, f"On unused prompts: {', '.join(told)}")
        wide = f"bandwidth {runs[0].study.bandwidth:g}"
        return {"acts": figures.caption(figure, runs, n=wide, bars="95% over prompts")}


def _stop(state: Any, kernel: Any, halves: Any, _: Any, price: float) -> xr.Dataset:
    """Also `rates`: the mean estimate after some answers, and how often the next is new."""
    _, outputs, classes, rewards = state
    first, count, same = _first(classes), classes.shape[2], _same(outputs, kernel)
    news, found = _news(outputs, kernel), first.cumsum(axis=2)
    others = same * ~np.eye(count, dtype=bool)
    largest = [1 - others[..., :n, :n].max(-1).mean(-1) for n in range(1, count + 1)]
    rules = {
        "cv.enough": news,
        "largest similarity": np.stack(largest, axis=-1),
        "last answer repeats": 1 - np.tril(same, -1).max(axis=-1),
        FIXED: np.broadcast_to(np.roll(first.mean(axis=(0, 1)), -1), news.shape),
        CONTROL: np.roll(news, 1, axis=1),
        CLASSES: _news(classes[..., None].astype(np.float32), cv.Indicator()),
    }

    def outcomes(estimate: np.ndarray, until: Any) -> np.ndarray:
        asked = _stops(estimate, until)
        there = np.take_along_axis(found[None], asked[..., None] - 1, axis=-1)[..., 0]
        of = [there - price * asked, asked, (found[..., -1] - there) / found[..., -1].mean()]
        return np.stack(of, axis=-1).mean(axis=1)

    reached = held_out({name: outcomes(of, _UNTIL) for name, of in rules.items()}, halves)
    fixed = 1 - found.mean(axis=(0, 1)) / found[..., -1].mean()
    for name, of in reached.items():
        priced = outcomes(rules[name], [price])[0, :, 0]
        lost = np.interp(0 * priced + of[:, 1].mean(), np.arange(count) + 1, fixed)
        reached[name] = np.column_stack([of, lost, priced])
    told = {name: (rules[name], first) for name in ("cv.enough", CLASSES)}
    told["new and good"] = _news(outputs, kernel, rewards), first & (rewards >= GOOD)
    rates = [[(x[..., n - 1].mean(), y[..., n].mean()) for n in _AFTER] for x, y in told.values()]
    result = _compared(reached, "stop").assign_coords(estimate=[*told], after=[*_AFTER])
    return result.assign(rates=(("estimate", "after", "side"), rates))


def _people(state: Any, kernel: Any, _: Any, generator: Any) -> xr.Dataset:
    """By task: the agreement of people with the different answers up to the stop, of ten."""
    sets = judgements.Responses.of(state[0])
    sets = sets.some(np.flatnonzero([len(of) == 10 for of in sets.members]))
    outputs, people = state[0].outputs[np.stack(sets.members)], sets.labels["people"]
    asked = _stops(_news(outputs[None], kernel), PRICES[:1])[0, 0]
    different = np.cumsum(np.prod(1 - np.tril(_same(outputs, kernel), -1), axis=-1), axis=-1)
    stopped = np.take_along_axis(different, asked[:, None] - 1, axis=1)
    scores, found = np.hstack([different[:, 1:], stopped]).T, {}
    for task in dict.fromkeys(sets.task.tolist()):
        of = np.flatnonzero(sets.task == task)
        cost, x, y = asked[of].mean(), scores[:, of], people[of]
        draws = [np.arange(len(of)), *agreement.resampled(sets.context[of], _RESAMPLES, generator)]
        rho = np.array([agreement.spearman(x[:, draw], y[draw]) for draw in draws])
        fixed = [np.interp(cost, range(2, 11), row) for row in rho[:, :-1]]
        more = rho[:, -1] - fixed
        found[task] = cost, rho[0, -1], fixed[0], more[0], *np.percentile(more[1:], [2.5, 97.5])
    values, ahead = np.split(np.array([*found.values()]), 2, axis=1)
    fields = {"value": (("rule", "measure"), values), "ahead": (("rule", "end"), ahead)}
    return xr.Dataset(fields, {"rule": [*found], "measure": [*MEASURES["people"]]})


def _mix(state: Any, kernel: Any, halves: Any, deal: Any) -> xr.Dataset:
    """Also `told`: the score fitted, corrected, and on the other half, and how often inside."""
    _, outputs, _, rewards = state
    (m, p, k, d), reward = outputs.shape, rewards.mean(axis=2)
    same = _same(outputs.swapaxes(0, 1).reshape(p, m * k, d), kernel).reshape(p, m, k, m, k)
    sums, one = same.sum(axis=(2, 4)), np.eye(m)  # No answer with itself.
    own = (sums.diagonal(axis1=1, axis2=2) - k) / (k * (k - 1))
    similarity, names = np.where(one, own[:, None], sums / k**2), [*map(str, range(m))]
    reached, told = {}, []
    for used, other in halves:
        models = dict(zip(names, outputs[:, used].reshape(m, -1, d), strict=True))
        quality = dict(zip(names, rewards[:, used].reshape(m, -1), strict=True))
        given: Any = {"prompts": np.repeat(used, k), "output_kernel": kernel}
        rules: Any = {f"reward >= {x:g}": {"quality": quality, "least_quality": x} for x in FLOORS}
        mixes = {name: cv.mix(models, **given, **x) for name, x in ({BEST: {}} | rules).items()}
        shares = {name: np.array([of.shares[n] for n in names]) for name, of in mixes.items()}
        free, shares[EVEN] = shares[BEST], np.full(m, 1 / m)
        shares[SINGLE] = one[similarity[used].mean(axis=0).diagonal().argmin()]
        shares["best model by reward"] = one[reward[:, used].mean(axis=1).argmax()]
        shares["control: dealt at random"] = deal.permutation(free)
        for name, w in shares.items():
            alike = np.einsum("a,pab,b->p", w, similarity[other], w)
            row = [alike, w @ reward[:, other], np.full(len(other), np.sum(w > 0.01))]
            table = reached.setdefault(name, np.zeros((p, 3)))
            table[other] += np.stack(row, axis=1) / (len(halves) / 2)
        score, there = mixes[BEST].score, 1 / (free @ similarity[other].mean(axis=0) @ free)
        low, high = score.ends or (np.nan, np.nan)
        told.append([mixes[BEST].fitted, score.value, there, low <= there <= high])
    for table in reached.values():  # The mean of these values is 1 / the mean similarity.
        mean = table[:, 0].mean()
        table[:, 0] = 1 / mean - (table[:, 0] - mean) / mean**2
    return _compared(reached, "mix").assign(told=("sight", np.mean(told, axis=0)))


def _choose(state: Any, kernel: Any, halves: Any, _: Any) -> xr.Dataset:
    """Of each rule's four answers to a prompt: the rewards of the different classes."""
    m, p, n, _ = state[1].shape
    sets, classes, r = (of.reshape(m * p, n, *of.shape[3:]) for of in state[1:])
    q, unit = (r - r.min()) / np.ptp(r), sets / np.linalg.norm(sets, axis=2, keepdims=True)
    cosine, qs = unit @ unit.swapaxes(1, 2), [*zip(sets, q, strict=True)]
    k: Any = {"k": CHOSEN, "kernel": kernel}
    ours = [np.array([cv.select(x, quality=w, trade=t, **k).rows for x, w in qs]) for t in _TRADES]
    picks = {
        "cv.select": ours,
        "the first answers": [np.tile(np.arange(CHOSEN), (m * p, 1))],
        "reward alone": [greedy(cosine, q, 1, dpp=False)],
        "cv.select, no reward": [np.stack([cv.select(x, **k).rows for x in sets])],
        "MMR": [greedy(cosine, q, weight, dpp=False) for weight in _LAMBDAS],
        "greedy DPP": [greedy(cosine, q, weight, dpp=True) for weight in _WEIGHTS],
        CONTROL: [np.roll(of.reshape(m, p, -1), 1, axis=1).reshape(m * p, -1) for of in ours],
        "possible": [greedy(cosine, r * _first(classes), 1, dpp=False)],
    }

    def outcomes(chosen: np.ndarray) -> np.ndarray:
        rows = np.arange(len(r))[:, None]
        new, worth = _first(classes[rows, chosen]), r[rows, chosen]
        found = [(worth * new).sum(axis=1), new.sum(axis=1), worth.mean(axis=1)]
        return np.stack(found, axis=1).reshape(m, p, 3).mean(axis=0)

    tried = {name: np.stack([*map(outcomes, of)]) for name, of in picks.items()}
    return _compared(held_out(tried, halves), "choose")


def _table(found: xr.Dataset) -> Any:
    """Every rule with its measures, and by how much the first rule exceeds it."""
    words = ["{:.1%}" if name.startswith("lost") else "{:.2f}" for name in found.measure.values]
    rows, parts = [["rule", *found.measure.values, "ahead by"]], ("rule", "value", "ahead")
    for rule, value, ahead in zip(*(found[name].values for name in parts), strict=True):
        rows.append([rule, *map(str.format, words, value), tables.interval(*ahead)])
    return tables.grid_of(rows)


def held_out(options: dict[str, np.ndarray], halves: Any) -> dict[str, np.ndarray]:
    """`[prompts, measures]` by rule: of its options `[option, ...]` the best of the other half."""
    reached = {name: np.zeros(of.shape[1:]) for name, of in options.items()}
    for name, of in options.items():
        for used, other in halves:
            reached[name][other] += 2 / len(halves) * of[of[:, used, 0].mean(1).argmax(), other]
    return reached


def _compared(reached: dict[str, np.ndarray], act: str) -> xr.Dataset:
    """Means over prompts, and by how much the first rule is `ahead`."""
    values = np.stack([*reached.values()])
    ahead = values[0, :, 0] - values[..., 0]
    half = stats.t.ppf(0.975, ahead.shape[1] - 1) * stats.sem(ahead, axis=1)
    ends = ahead.mean(axis=1)[:, None] + np.outer(half, [0, -1, 1])
    fields = {"value": (("rule", "measure"), values.mean(axis=1)), "ahead": (("rule", "end"), ends)}
    return xr.Dataset(fields, {"rule": [*reached], "measure": [*MEASURES[act]]})


def _same(outputs: np.ndarray, kernel: Any) -> np.ndarray:
    """The squared kernel of answers `[..., k, d]`, `[..., k, k]`."""
    rows = outputs.astype(np.float64)
    norms, inner = np.sum(rows**2, axis=-1), rows @ rows.swapaxes(-1, -2)
    squares = np.maximum(norms[..., :, None] + norms[..., None, :] - 2 * inner, 0)
    return np.exp(-squares / float(kernel.bandwidth) ** 2)


def _first(classes: np.ndarray) -> np.ndarray:
    """Whether no earlier answer has the class, `[..., k]`."""
    return ~np.tril(classes[..., :, None] == classes[..., None, :], -1).any(axis=-1)


def _news(outputs: np.ndarray, kernel: Any, rewards: Any = None) -> np.ndarray:
    """What `cv.enough` estimates after each answer, `[models, prompts, answers]`."""
    prompts, found = np.repeat(np.arange(outputs.shape[1]), outputs.shape[2]), []
    for model, of in enumerate(outputs):
        rated = {} if rewards is None else {"quality": rewards[model].ravel(), "at_least": GOOD}
        rows = of.reshape(len(prompts), -1)
        told = cv.enough(rows, prompts, output_kernel=kernel, **rated).prompts
        found.append([prompt.news for prompt in told])
    return np.array(found)


def _stops(estimate: np.ndarray, until: Any) -> np.ndarray:
    """After how many answers, two or more, an estimate `[..., k]` stops, `[until, ...]`."""
    stops = np.stack([estimate <= most for most in until])
    stops[..., 0], stops[..., -1] = False, True
    return stops.argmax(axis=-1) + 1


def greedy(similarity: np.ndarray, quality: np.ndarray, weight: float, *, dpp: bool) -> np.ndarray:
    """Rows of each set by maximal marginal relevance, or the greedy mode of a DPP of e^(w q) S."""
    sets, rows = np.arange(len(quality))[:, None, None], np.empty((len(quality), 0), int)
    for _ in range(CHOSEN):
        near = similarity[sets[..., 0], rows]
        inner = similarity[sets, rows[:, :, None], rows[:, None]] + 1e-9 * np.eye(rows.shape[1])
        left = np.log(np.maximum(1 - np.sum(near * np.linalg.solve(inner, near), axis=1), 1e-9))
        worth = weight * quality + (left if dpp else (weight - 1) * near.max(axis=1, initial=-1))
        np.put_along_axis(worth, rows, -np.inf, axis=1)
        rows = np.column_stack([rows, worth.argmax(axis=1)])
    return rows
