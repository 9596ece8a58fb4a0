"""The shares in which to ask models: brute force in NumPy, limits, and rates by simulation."""

import itertools
import json
import math

import numpy as np
import pytest
import scipy.stats
from oracles import assert_close, gaussian_gram

import condvendi_jax as cv

WIDTH, P, K = 0.8, 12, 3  # Prompts, and answers of each model to each.
KINDS, COSTS = np.repeat(np.arange(P), K), {"a": 1.0, "b": 3.0, "c": 2.5}
GRID = np.array([w for w in itertools.product(range(101), repeat=3) if sum(w) == 100]) / 100
RNG = np.random.default_rng(0)
SCALES = {"a": 1, "b": 1.2, "c": 0.6}
MODELS = {m: np.float32(RNG.normal(size=(P * K, 2)) * s) for m, s in SCALES.items()}
QUALITY = {name: k + RNG.normal(size=P * K) for k, name in enumerate("abc")}
ONCE = np.float32(RNG.normal(size=(P * K, 1)))


def run(models=MODELS, prompts=KINDS, **options):
    return cv.mix(models, prompts, **{"output_kernel": cv.Gaussian(WIDTH)} | options)


def some(values, rows):
    return {name: part[rows] for name, part in values.items()}


def mean_squares(models, weights):
    """J, means by weights of pairs `[n, n]`; of one model without pairs of a row and itself."""
    n = len(weights)
    squares = gaussian_gram(np.concatenate([*models.values()]), WIDTH) ** 2
    masks = np.tile(weights, (3, 3)).astype(float) - np.diag(np.tile(np.diag(weights), 3))
    sums = [(x.reshape(3, n, 3, n)).sum(axis=(1, 3)) for x in (squares * masks, masks)]
    return sums[0] / sums[1]


@pytest.mark.parametrize("how", ["several", "once", "none", "quality", "both"])
def test_no_shares_on_a_grid_are_better(how, x64):
    floor, price = {"quality": (1.5, 9), "both": (0.9, 2.2)}.get(how, (-9, 9))
    options = {"quality": QUALITY, "least_quality": floor} if floor > -9 else {}
    options |= {"costs": COSTS, "most_cost": price} if price < 9 else {}
    prompts, weights = KINDS, KINDS[:, None] == KINDS
    if how == "once":
        prompts, weights = ONCE, gaussian_gram(ONCE, 0.9) ** 2 - np.eye(P * K)
        options["prompt_kernel"] = cv.Gaussian(0.9)
    elif how == "none":
        prompts, weights = None, np.ones((P * K, P * K))
    result = run(MODELS, prompts, **options)
    same, w = mean_squares(MODELS, weights), np.array([*result.shares.values()])
    assert_close(result.fitted, 1 / (w @ same @ w))
    assert_close([score for score, _ in result.alone.values()], 1 / np.diag(same))
    values, vectors = np.linalg.eigh(same)
    convex = vectors * np.maximum(values, 0) @ vectors.T  # Of so few answers J is not.
    means, prices = np.array([q.mean() for q in QUALITY.values()]), np.array([*COSTS.values()])
    fits = (GRID @ means >= floor) & (GRID @ prices <= price)
    least = np.einsum("wa,ab,wb->w", GRID, convex, GRID)[fits].min()
    assert least * 0.98 < w @ convex @ w < least * (1 + 1e-6) and abs(w.sum() - 1) < 1e-12
    assert w.min() >= 0 and w @ means > floor - 1e-6 and w @ prices < price + 1e-6
    assert result.cost == (None if price == 9 else pytest.approx(w @ prices))
    within = (means >= floor) & (prices <= price)
    assert result.best == "abc"[np.where(within | ~within.any(), np.diag(same), 9).argmin()]
    for scale in (1e-8, 1e12) if how == "both" else ():
        scaled = {"quality": {m: q * scale for m, q in QUALITY.items()}}
        scaled |= {"costs": {m: x * scale for m, x in COSTS.items()}, "most_cost": price * scale}
        again = run(MODELS, prompts, least_quality=floor * scale, **scaled)
        assert_close([*again.shares.values()], w, loosened=1e6)
    assert json.dumps(result.as_dict()) and len(result.lines()) == 3


def test_scores_are_those_of_groups_by_the_shares_of_others(x64):
    limits, parts = {"quality": QUALITY, "least_quality": -1.0}, []
    labels = np.digitize(KINDS, [3, 7])  # Of 3, 4 and 5 prompts.
    sizes = np.bincount(labels)[:, None] / (labels.size / 3)
    result = run(groups=labels, **limits)
    for rows in (labels != group for group in range(3)):
        fitted = limits | {"quality": some(QUALITY, rows)}
        others = run(some(MODELS, rows), KINDS[rows], **fitted).shares
        same = mean_squares(some(MODELS, ~rows), KINDS[~rows][:, None] == KINDS[~rows])
        means = np.array([q[~rows].mean() for q in QUALITY.values()])
        w = [*others.values()]
        parts.append([w @ same @ w, w @ means, *np.diag(same)])
    values, t = np.mean(sizes * parts, axis=0), scipy.stats.t.isf([0.025, 0.025 / 3], 2)
    moves = sizes * (np.array(parts) - values) / np.sqrt(6)
    near = {"loosened": 1e5}  # Optima to 1e-6.
    errors, ends, gains = np.linalg.norm(moves, axis=0), np.array([-1, 1]), values[2:] / values[0]
    ratio = np.exp(t[0] * errors[0] / values[0] * ends)
    assert_close([result.score.value, *result.score.ends], [1, *ratio] / values[0], **near)
    assert_close(result.quality.ends, values[1] + t[0] * errors[1] * ends, **near)
    logs = np.linalg.norm(moves[:, 2:] / values[2:] - moves[:, :1] / values[0], axis=0)
    best = "abc".index(result.best)  # Any of three may have been the best, so that `t` grows.
    factors = np.array([1, *np.exp(t * logs[best] * ends)])
    assert_close([result.gain.value, *result.gain.ends], gains[best] * factors, **near)


def test_frontier_goes_from_the_most_diverse_shares_to_the_best_model():
    result, free = run(quality=QUALITY, least_quality=-1.0), run()
    first, *_, last = result.frontier
    assert first.shares == pytest.approx(free.shares, abs=1e-3) and len(result.frontier) == 7
    assert last.shares == pytest.approx({"a": 0, "b": 0, "c": 1}, abs=1e-6)
    assert last.least_quality == pytest.approx(QUALITY["c"].mean())
    assert result.plot().axes[0].get_xlabel() == "mean quality"
    with pytest.raises(ValueError, match="plot: expected shares with a quality"):
        free.plot()


def test_prompts_that_not_all_models_answer_are_left_out():
    more = MODELS | {"a": np.concatenate([MODELS["a"], 9 + MODELS["a"][:K]])}
    prompts = dict.fromkeys(MODELS, KINDS) | {"a": np.append(KINDS, [99] * K)}
    quality = QUALITY | {"a": np.append(QUALITY["a"], [1e6] * K)}
    whole = run(quality=QUALITY, least_quality=1.0)
    fewer, words = run(more, prompts, quality=quality, least_quality=1.0), "1 prompts that not all"
    assert fewer.shares == pytest.approx(whole.shares, abs=1e-4)
    assert words in str(fewer) and words not in str(whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {"a": MODELS["a"]}}, "models: expected at least two"),
        ({"least_quality": 1.0}, "quality and least_quality, costs .* expected both or none"),
        ({"costs": COSTS | {"b": -1}, "most_cost": 1.0}, "costs: b: expected .* at least 0"),
        ({"costs": COSTS, "most_cost": 0.5}, "most_cost: expected at least 1, the price"),
        ({"quality": [math.nan] * P * K, "least_quality": 1.0}, "a: quality: expected finite"),
        ({"quality": [1.0] * P * K, "least_quality": 1.5}, "least_quality: expected at most 1, "),
        ({"prompts": KINDS % 6}, "prompts: expected 7 or more that all models answer, received 6"),
        ({"groups": np.arange(P * K) % 2}, "groups: expected a label for each prompt"),
        ({"weights": np.ones(P * K)}, "weights: received some, and shares of models have none"),
    ],
)
def test_what_has_no_shares_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        run(**change)


def test_no_gain_is_shown_of_equal_models_and_nothing_where_all_answers_differ():
    exact, (a, b) = {"output_kernel": cv.Indicator()}, RNG.integers(3, size=(2, P * K, 1))
    assert ": no gain over it alone is shown" in str(run({"a": a, "b": b}, **exact))
    with pytest.raises(ValueError, match="a and b have the same outputs"):
        run({"a": a, "b": a}, **exact)
    apart = {m: np.arange(P * K)[:, None] // 2 + 99 * k for k, m in enumerate("abc")}
    result = run(apart, np.arange(P * K) % P, **exact)
    assert math.isinf(result.fitted) and "unknown" in str(result) and "no gain" in str(result)


@pytest.mark.slow
def test_scores_of_groups_are_unbiased_and_intervals_cover():
    """40 prompts, 4 models with probabilities of 12 classes; the truth is of the shares of all."""
    rng, errors, covers = np.random.default_rng(3), [], []
    alphas = np.maximum(np.random.default_rng(1).dirichlet(np.full(12, 0.6), size=4) * 6, 0.05)
    sums, kinds = alphas.sum(axis=1, keepdims=True), np.repeat(np.arange(40), 5)
    truth = (alphas / sums) @ (alphas / sums).T
    np.fill_diagonal(truth, np.sum(alphas * (alphas + 1) / (sums * (sums + 1)), axis=1))
    for seed in range(400):
        levels = [rng.dirichlet(alpha, size=40).cumsum(axis=1)[kinds] for alpha in alphas]
        answers = [(rng.random((200, 1)) > level).sum(axis=1)[:, None] for level in levels]
        models = dict(zip("abcd", answers, strict=True))
        result = run(models, kinds, output_kernel=cv.Indicator(), seed=seed)
        w, best = np.array([*result.shares.values()]), "abcd".index(result.best)
        same, alone = w @ truth @ w, truth.diagonal()
        errors.append([1 / result.fitted - same, 1 / result.score.value - same])
        gains = [(result.gain, x / same) for x in (alone[best], alone.min())]
        inside = [(result.score, 1 / same), *gains]
        covers.append([e.ends[0] <= value <= e.ends[1] for e, value in inside])
    naive, held_out = np.mean(errors, axis=0) / (np.std(errors, axis=0) / 20)
    assert naive < -4 and abs(held_out) < 3.3
    assert np.mean(covers, axis=0).min() >= 0.92
