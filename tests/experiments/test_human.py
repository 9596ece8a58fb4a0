"""Agreement with people: known answers, independent oracles, and no look at what is judged."""

import dataclasses
import itertools

import numpy as np
import oracles
import pytest
import studies
from scipy import stats
from small import flags, widths, write
from studies import computed

import condvendi_jax as cv
from experiments import lab
from experiments.calibration import human, judgements
from experiments.calibration.human import Human
from experiments.calibration.judgements import Responses
from experiments.data import PairedEmbeddings
from experiments.lab import agreement

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Writes sets of six responses with one to six modes, the people's scores being the modes.

    Two tasks of 24 contexts each, two sets a context; outputs lie far apart but within a mode.
    Gives the flags that read them.
    """
    generator = np.random.default_rng(seed)
    contexts, size = 48, 6
    context = np.repeat(np.arange(contexts), 2)
    modes = 1 + generator.permutation(np.arange(2 * contexts) % size)
    spots = 5 * generator.normal(size=(2 * contexts, size, 4))
    picked = np.arange(size) % modes[:, None]
    outputs = spots[np.arange(2 * contexts)[:, None], picked].reshape(-1, 4)
    prompts = 5 * generator.normal(size=(contexts, 4))[np.repeat(context, size)]
    files = write(
        folder,
        outputs=outputs,
        prompts=prompts,
        task=[f"task {c % 2}" for c in np.repeat(context, size)],
        sets=np.repeat(np.arange(2 * contexts), size),
        people=np.repeat(modes.astype(np.float64), size),
    )
    counts = flags(folds=2, resamples=20, contexts="1,2", draws=8)
    return [*files, *counts, *widths(0.5)]


finished = studies.finished(Human)


def unit_rows(generator, count):
    rows = generator.normal(size=(count, 3)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def judged_sets(seed=0, sets=20, size=4, tasks=1):
    """Unit-norm random responses: nothing to find, everything to check."""
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator, sets * size)
    prompts = np.repeat(unit_rows(generator, sets), size, axis=0)
    number = np.repeat(np.arange(sets), size)
    people = generator.normal(size=sets)[number]
    task = np.array([f"task {s % tasks}" for s in number])
    labels = {"sets": number, "people": people, "task": task}
    return PairedEmbeddings("judged", rows, prompts, "judged sets", labels)


def test_people_who_count_modes_agree_with_every_score(finished):
    assert set(finished.study.sets.values()) == {48}
    plain = [f"RKE, bandwidth x {scale}" for scale in ("0.5", "1", "2")]
    judges = [human.CHOSEN, human.ELSEWHERE, *plain, human.HINDSIGHT]
    assert finished.found.judge.values.tolist() == judges
    np.testing.assert_allclose(finished.found.people, 1, atol=0.02)
    for name in ("ahead", "temperature", "accuracy"):  # There is nothing of the kind.
        assert np.isnan(finished.found[name]).all()
    # Conditional scores tell pools whose contexts mislead the others.
    same, twice = finished.found.right.sel(scale=1).mean("task").transpose("design", ...)
    np.testing.assert_allclose(same, 1)
    twice = twice.sel(contexts=1)
    assert (twice.sel(score=["Conditional-RKE", "Conditional-Vendi"]) == 1).all()
    assert (twice.sel(score=["RKE", "Vendi"]) < 0.95).all()


def test_entropies_of_sets_are_those_of_numpy_at_every_order():
    pairs = dataclasses.replace(judged_sets(), outputs=1.3 * judged_sets().outputs)
    tried = {"encoder": ["first"], "less": [0.0, 0.5], "multiple": [0.5, 1.0]}
    tried["order"], members = [1.0, 2.0, np.inf], Responses.of(pairs).members
    scores = judgements.scores_of_sets(pairs, members, tried, {"first": 0.7})
    outputs, prompts = (rows.astype(np.float64) for rows in (pairs.outputs, pairs.prompts))
    for of, found in zip(itertools.product(*tried.values()), scores, strict=True):
        _, less, multiple, order = of
        x = outputs - less * prompts
        x = (1.3 * x / np.linalg.norm(x, axis=1, keepdims=True)).reshape(20, 4, 3)
        squares = np.sum((x[:, :, None] - x[:, None]) ** 2, axis=-1)
        gram = np.exp(-squares / (2 * (0.7 * multiple) ** 2)) / 4
        wanted = [oracles.entropy(4 * of_set, order=order) for of_set in gram]
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_both_encoders_are_the_product_of_their_kernels():
    first, second = judged_sets(0), judged_sets(1)
    pairs = dataclasses.replace(first, further={"second_outputs": second.outputs * 3})
    units = {"first": 0.7, "second": 1.9}
    both = judgements.representation(pairs, units, "both", 0.0).astype(np.float64)
    squares = [np.sum((x[:1] - x) ** 2, axis=1) for x in (first.outputs, 3 * second.outputs)]
    wanted = np.exp(-squares[0] / (2 * 0.7**2)) * np.exp(-squares[1] / (2 * 1.9**2))
    found = np.exp(-np.sum((both[:1] - both) ** 2, axis=1) / 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    # Contexts of another length, or none, are not subtracted.
    assert judgements.shares_of(first) == (0.0, 0.25, 0.5, 0.75)
    shorter = dataclasses.replace(first, prompts=first.prompts[:, :2])
    assert judgements.shares_of(shorter) == judgements.shares_of(pairs) == (0.0,)


def test_pools_are_scored_as_the_library_scores_them():
    pairs = judged_sets(sets=12)
    sets = Responses.of(pairs)
    widths = [lab.Bandwidths(1.0, 0.7, 0.7, "given")]
    above, below = halves = judgements.draw_pools(sets, 40, np.random.default_rng(3))
    right = judgements.tell_pools(pairs, sets.members, halves, widths, (2, 4, 8)).values

    def scores(pool):
        rows = np.concatenate([sets.members[s] for s in pool])
        points = cv.Pairs(pairs.outputs[rows], pairs.prompts[rows], **widths[0].kernels)
        orders = ((2, False), (1, False), (2, True))
        found = [cv.decompose(points, order=o, unbiased=u) for o, u in orders]
        return np.array([float(x) for one in found for x in (one.conditional, one.vendi)])

    for design, factor in enumerate(judgements.DESIGNS.values()):
        gains = [scores(a[:2]) > scores(b[: 2 * factor]) for a, b in zip(above, below, strict=True)]
        np.testing.assert_allclose(right[design, 0, :, 0], np.mean(gains, axis=0))
        assert 0 < right[design, 0, 0, 0] < 1
    # There are six contexts in a pool, one set of each: no eight, and no twice four.
    assert all(len({*sets.context[pool]}) == len(pool) == 6 for pool in (*above, *below))
    assert np.isfinite(right[0, ..., 1]).all()
    assert np.isnan(right[1, ..., 1]).all() and np.isnan(right[..., 2]).all()


def test_rank_correlation_is_that_of_scipy():
    generator = np.random.default_rng(0)
    scores, people = generator.integers(0, 6, (5, 40)), generator.integers(0, 9, 40)
    found = agreement.spearman(scores, people)
    wanted = np.array([stats.spearmanr(row, people)[0] for row in scores])
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    # No rank is given by rounding: neither where all values are equal, nor where some are.
    rounded = scores * (1 + 1e-6 * generator.uniform(-1, 1, scores.shape))
    np.testing.assert_allclose(agreement.spearman(rounded, people), wanted, atol=1e-12)
    noise = 3 * (1 + 1e-6 * generator.uniform(-1, 1, (2, 40)))
    assert np.isnan(agreement.spearman(noise, people)).all()
    # Order 2 is rounded less; NaN is the last.
    ladder = 1 + 1e-5 * np.arange(4)
    np.testing.assert_array_equal(agreement.ranks(ladder), np.full(4, 2.5))
    np.testing.assert_array_equal(agreement.ranks(ladder, order=2), np.arange(1, 5))
    found = agreement.ranks(np.array([np.nan, 2, 0, -1, np.nan]))
    np.testing.assert_array_equal(found, [4.5, 3, 2, 1, 4.5])


def test_accuracy_is_that_of_the_best_of_all_thresholds():
    generator = np.random.default_rng(1)
    scores, labels = generator.integers(0, 9, (6, 31)), generator.integers(0, 2, 31)
    scores[0] = -labels  # Told by the other side of the threshold.
    noise = 3 * (1 + 1e-6 * labels)[None]  # Rounding tells no label.
    found = agreement.best_accuracy(np.concatenate([scores, noise]), labels)
    for row, accuracy in zip([*scores, 0 * labels], found, strict=True):
        shares = [np.mean((row > t) == labels) for t in np.arange(-2, 10) + 0.5]
        assert accuracy == pytest.approx(max(max(shares), 1 - min(shares)))
    assert found[0] == 1


def test_intervals_resample_whole_contexts_and_are_undefined_where_the_statistic_is():
    draws = list(agreement.resampled(np.array([5, 7, 5, 9]), 200, np.random.default_rng(0)))
    for rows in draws:
        assert np.sum(rows == 0) == np.sum(rows == 2)
    assert {len(rows) for rows in draws} == {3, 4, 5, 6}
    values = np.stack([np.arange(4.0), np.full(4, np.nan)])
    found = agreement.with_interval(lambda rows: values[:, rows].mean(axis=1), draws, 4)
    means = [rows.mean() for rows in draws]
    np.testing.assert_allclose(found[0], [1.5, *np.percentile(means, [2.5, 97.5])])
    assert np.isnan(found[1]).all()


def test_the_choice_does_not_see_what_it_is_judged_on():
    generator = np.random.default_rng(2)
    scores, people = generator.normal(size=(30, 60)), generator.normal(size=60)
    fold = np.arange(60) % 5
    chosen = judgements.choose_elsewhere(scores, people, fold, [1.0] * len(scores))
    assert len(set(chosen)) > 1
    for part in range(5):
        changed = np.where(fold == part, -9 * generator.permutation(people), people)
        again = judgements.choose_elsewhere(scores, changed, fold, [1.0] * len(scores))
        assert again[part] == chosen[part]
        assert np.any(again != chosen)
        wanted = [stats.spearmanr(s[fold != part], people[fold != part])[0] for s in scores]
        assert chosen[part] == np.argmax(np.array(wanted))


def test_the_choice_on_other_tasks_leaves_out_their_common_contexts():
    pairs = judged_sets(sets=40, tasks=2)
    prompts = pairs.prompts.copy()
    prompts[:80] = np.repeat(prompts[:80:8], 8, axis=0)  # The first ten contexts, in both tasks.
    responses = Responses.of(dataclasses.replace(pairs, prompts=prompts))
    generator, number = np.random.default_rng(0), np.arange(40)
    scores = generator.normal(size=(30, 40))

    def choose(sets=number, redrawn=number < 0):
        people = np.where(redrawn, generator.normal(size=40), responses.labels["people"])
        own = responses._replace(labels={"people": people}).some(sets)
        return judgements.choose_on_other_tasks([1.0] * 30, own, scores[:, sets], "task 0")

    for unseen in (number % 2 == 0, number < 20):
        assert {choose(redrawn=unseen) for _ in range(5)} == {choose()}
    seen = (number % 2 == 1) & (number >= 20)
    assert any(choose(redrawn=seen) != choose() for _ in range(5))
    assert choose(number[::2]) is None


def test_published_metrics_labels_and_temperatures_are_beside():
    """A metric that is the people's scores is the best, and nothing is ahead of it."""
    pairs = judged_sets(sets=24)
    number, people = pairs.labels["sets"], pairs.labels["people"]
    labels = {"metric_same": people, "metric_other": np.sin(number * 7.0), "temperature": people**3}
    labels["label"] = (people > np.median(people)).astype(float)
    pairs = dataclasses.replace(pairs, labels={**pairs.labels, **labels})
    widths = lab.Scales(output_bandwidth=0.7, prompt_bandwidth=0.7)
    study = Human(bandwidths=widths, folds=2, resamples=50, draws=2, contexts=(1,))
    found = computed(study, pairs)[1]
    same = found.sel(judge="metric_same")
    for judged in (same.people, same.accuracy, same.temperature, same.ahead + 1):
        np.testing.assert_allclose(judged, 1)
    values = found.sel(end="value")
    np.testing.assert_allclose(values.ahead, values.people - 1, atol=1e-12)
    value, low, high = found.people.sel(judge="metric_other").values
    assert low < value < high < 1
    assert found.elsewhere == -1 and human.ELSEWHERE not in found.judge
    assert values.people.sel(judge=human.HINDSIGHT) == pytest.approx(found.grid.max().item())


test_bad_flags_are_refused = studies.refuses(
    Human,
    ("--folds=20", "expected 40 contexts or more in each task, received 24 in task 0"),
    ("--orders=0", "order"),
)
