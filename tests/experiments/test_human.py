"""Agreement with people: known answers, independent oracles, and no look at what is judged."""

import dataclasses
import itertools

import numpy as np
import oracles
import pytest
import studies
from scipy import stats
from studies import computed

import condvendi_jax as cv
from experiments import human, judgements, lab
from experiments.data import PairedEmbeddings
from experiments.human import Human
from experiments.judgements import Responses
from experiments.lab import agreement

pytestmark = pytest.mark.slow


TRIED = {"encoder": ["first"], "less": [0.0], "multiple": [1.0], "tried_order": [2.0]}

finished = studies.finished(Human)


def judged_sets(seed=0, sets=20, size=4, tasks=1):
    """Unit-norm random responses: nothing to find, everything to check."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(sets * size, 3)).astype(np.float32)
    prompts = np.repeat(generator.normal(size=(sets, 3)), size, axis=0).astype(np.float32)
    number = np.repeat(np.arange(sets), size)
    labels = {
        "sets": number,
        "people": generator.normal(size=sets)[number],
        "task": np.array([f"task {s % tasks}" for s in number]),
    }
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    return PairedEmbeddings("judged", rows, prompts, "judged sets", labels)


def study(kernel="gaussian", scales=None, **options):
    width = None if kernel == "cosine" else 0.7
    scales = lab.Scales(kernel, output_bandwidth=width, prompt_bandwidth=width, scales=scales)
    return Human(**{"bandwidths": scales, "folds": 2} | options)


def scores_of(pairs, units=None, **options):
    """The scores of the sets in configurations that are tried beside `TRIED`."""
    members = Responses.of(pairs).members
    cosine = options.pop("cosine", False)
    tried = TRIED | options
    return judgements.scores_of_sets(pairs, members, tried, units or {"first": 0.7}, cosine)


def tell_pools(pairs, contexts, draws, generator):
    widths = [lab.Bandwidths(1.0, 0.7, 0.7, "given")]
    say = lambda words: None  # noqa: E731
    sets = Responses.of(pairs)
    return judgements.tell_pools(pairs, sets, widths, contexts, draws, generator, say)


# --- known answers -------------------------------------------------------------------------------


def test_people_who_count_modes_agree_with_every_score(finished):
    assert set(finished.study.sets.values()) == {48}
    assert finished.found.judge.values.tolist() == [
        human.CHOSEN,
        human.ELSEWHERE,
        "RKE, bandwidth x 0.5",
        "RKE, bandwidth x 1",
        "RKE, bandwidth x 2",
        human.HINDSIGHT,
    ]
    np.testing.assert_allclose(finished.found.people, 1, atol=0.02)
    for name in ("ahead", "temperature", "accuracy"):  # There is nothing of the kind.
        assert np.isnan(finished.found[name]).all()


def test_conditional_scores_tell_pools_whose_contexts_mislead_the_others(finished):
    same, twice = finished.found.right.sel(scale=1).mean("task").transpose("design", ...)
    np.testing.assert_allclose(same, 1)
    twice = twice.sel(contexts=1)
    assert (twice.sel(score=["Conditional-RKE", "Conditional-Vendi"]) == 1).all()
    assert (twice.sel(score=["RKE", "Vendi"]) < 0.95).all()


def test_responses_that_repeat_their_context_differ_once_it_is_subtracted():
    """Two modes of rests, under a context that outweighs them."""
    pairs = judged_sets()
    rest = np.array([[1, -1, 0], [1, -1, 0], [0, 1, -1], [0, 1, -1]], np.float32)
    outputs = 0.75 * pairs.prompts + np.tile(0.01 * rest, (20, 1))
    plain, less = np.exp(scores_of(dataclasses.replace(pairs, outputs=outputs), less=[0.0, 0.75]))
    np.testing.assert_allclose(plain, 1, atol=0.01)
    assert np.all(less > 1.4)


# --- independent oracles -------------------------------------------------------------------------


def test_entropies_of_sets_are_those_of_numpy_at_every_order():
    pairs = judged_sets()
    tried = {"less": [0.0, 0.5], "multiple": [0.5, 1.0], "tried_order": [1.0, 2.0, np.inf]}
    outputs, prompts = (rows.astype(np.float64) for rows in (pairs.outputs, pairs.prompts))
    configurations = itertools.product(*tried.values())
    for c, found in zip(configurations, scores_of(pairs, **tried), strict=True):
        less, multiple, order = c
        x = outputs - less * prompts
        x = (x / np.linalg.norm(x, axis=1, keepdims=True)).reshape(20, 4, 3)
        squares = np.sum((x[:, :, None] - x[:, None]) ** 2, axis=-1)
        gram = np.exp(-squares / (2 * (0.7 * multiple) ** 2)) / 4
        wanted = [oracles.entropy(4 * of_set, order=order) for of_set in gram]
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_cosine_kernel_has_no_bandwidth():
    pairs = judged_sets()
    setup = study("cosine", orders=(1.0,)).prepare(lambda: pairs, 0)
    assert list(setup.study.plain) == ["Vendi, cosine"] and setup.study.tried["multiple"] == [1.0]
    grams = [x @ x.T for x in pairs.outputs.astype(np.float64).reshape(20, 4, 3)]
    wanted = [oracles.entropy(gram, order=1) for gram in grams]
    np.testing.assert_allclose(setup.state[2]()[0], wanted, atol=1e-4)


def test_both_encoders_are_the_product_of_their_kernels():
    first, second = judged_sets(0), judged_sets(1)
    pairs = dataclasses.replace(first, further={"second_outputs": second.outputs * 3})
    units = {"first": 0.7, "second": 1.9}
    both = judgements.representation(pairs, units, "both", 0.0).astype(np.float64)
    squares = [np.sum((x[:1] - x) ** 2, axis=1) for x in (first.outputs, 3 * second.outputs)]
    wanted = np.exp(-squares[0] / (2 * 0.7**2)) * np.exp(-squares[1] / (2 * 1.9**2))
    found = np.exp(-np.sum((both[:1] - both) ** 2, axis=1) / 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_what_is_subtracted_leaves_the_norm_as_it_was():
    pairs = judged_sets()
    pairs = dataclasses.replace(pairs, outputs=5 * pairs.outputs, prompts=2 * pairs.prompts)
    found = judgements.representation(pairs, {"first": 2.0}, "first", 0.5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2.5, rtol=1e-5)


def test_pools_are_scored_as_the_library_scores_them():
    pairs = judged_sets(sets=12)
    sets = Responses.of(pairs)
    right = tell_pools(pairs, (2, 4), 40, np.random.default_rng(3))
    generator = np.random.default_rng(3)
    people = sets.labels["people"]
    above, below = (
        judgements.draw_pools(np.flatnonzero(part), sets.context, 40, generator)
        for part in (people > np.median(people), people < np.median(people))
    )
    kernels = {"output_kernel": cv.Gaussian(0.7), "prompt_kernel": cv.Gaussian(0.7)}

    def scores(pool):
        rows = np.concatenate([sets.members[s] for s in pool])
        found = [
            cv.decompose(pairs.outputs[rows], pairs.prompts[rows], order=order, **kernels)
            for order in (2, 1)
        ]
        return np.array([float(x) for one in found for x in (one.conditional, one.vendi)])

    for design, factor in enumerate(judgements.DESIGNS.values()):
        gains = [scores(a[:2]) > scores(b[: 2 * factor]) for a, b in zip(above, below, strict=True)]
        np.testing.assert_allclose(right[design, 0, :, 0], np.mean(gains, axis=0))
        assert 0 < right[design, 0, 0, 0] < 1


def test_pools_of_more_contexts_than_there_are_say_so():
    right = tell_pools(judged_sets(sets=12), (4, 8), 3, np.random.default_rng(0))
    assert np.isfinite(right[0, ..., 0]).all() and np.isnan(right[0, ..., 1]).all()
    # Twice four are more than there are, twice eight not asked for.
    assert np.isnan(right[1]).all()


def test_a_pool_has_one_set_of_each_context():
    context = np.array([0, 0, 1, 2, 2, 2])
    for pool in judgements.draw_pools(np.arange(6), context, 20, np.random.default_rng(0)):
        assert sorted(context[pool]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("right", "wanted"),
    [
        ([0.9, 0.96, 0.99], 2),
        ([1, 0.9, 0.95], 4),
        ([1, 1, 0.9], None),
        ([0.95, np.nan, np.nan], 1),
        ([np.nan] * 3, None),
    ],
)
def test_enough_contexts_are_those_from_which_on_the_order_is_right(right, wanted):
    assert judgements.enough(np.array(right), (1, 2, 4)) == wanted


# --- agreement -----------------------------------------------------------------------------------


def test_rank_correlation_is_that_of_scipy():
    generator = np.random.default_rng(0)
    scores, people = generator.integers(0, 6, (5, 40)), generator.integers(0, 9, 40)
    found = agreement.spearman(scores, people)
    wanted = [stats.spearmanr(row, people).statistic for row in scores]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    # No rank is given by rounding: neither where all values are equal, nor where some are.
    rounded = scores * (1 + 1e-6 * generator.uniform(-1, 1, scores.shape))
    np.testing.assert_allclose(agreement.spearman(rounded, people), wanted, atol=1e-12)
    noise = 3 * (1 + 1e-6 * generator.uniform(-1, 1, (2, 40)))
    assert np.isnan(agreement.spearman(noise, people)).all()
    # Nor do neighbours carry a level beyond what rounding reaches; NaN is the last.
    ladder = 1 + 2e-5 * np.arange(6)
    np.testing.assert_array_equal(agreement.levels(ladder), [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(agreement.levels(ladder, order=2), np.arange(6))
    np.testing.assert_array_equal(agreement.levels(np.array([np.nan, 2, 1, np.nan])), [2, 1, 0, 2])
    missing = np.where(np.arange(40) == 3, np.nan, scores)
    assert np.array_equal(agreement.levels(missing[0])[:3], agreement.levels(scores[0])[:3])


def test_intervals_are_undefined_where_the_statistic_is():
    generator = np.random.default_rng(0)
    people = generator.normal(size=40)
    scores = np.stack([people + generator.normal(size=40), np.ones(40)])
    draws = list(agreement.resampled(np.arange(40), 50, generator))
    found = agreement.with_interval(
        lambda rows: agreement.spearman(scores[:, rows], people[rows]), draws, 40
    )
    assert found[0, 1] < found[0, 0] < found[0, 2]
    assert np.isnan(found[1]).all()


def test_accuracy_is_that_of_the_best_of_all_thresholds():
    generator = np.random.default_rng(1)
    scores, labels = generator.integers(0, 9, (6, 31)), generator.integers(0, 2, 31)
    scores[0] = -labels  # Told by the other side of the threshold.
    for row, found in zip(scores, agreement.best_accuracy(scores, labels), strict=True):
        shares = [np.mean((row > t) == labels) for t in np.arange(-2, 10) + 0.5]
        assert found == pytest.approx(max(max(shares), 1 - min(shares)))
    assert agreement.best_accuracy(scores, labels)[0] == 1
    noise = 3 * (1 + 1e-6 * labels)[None]  # Rounding tells no label.
    most = max(np.mean(labels), 1 - np.mean(labels))
    assert agreement.best_accuracy(noise, labels)[0] == pytest.approx(most)


def test_intervals_resample_whole_contexts():
    groups = np.array([5, 7, 5, 9])
    draws = list(agreement.resampled(groups, 200, np.random.default_rng(0)))
    for rows in draws:
        assert np.sum(rows == 0) == np.sum(rows == 2)
    assert {len(rows) for rows in draws} == {3, 4, 5, 6}
    values = np.arange(4.0)
    found = agreement.with_interval(lambda rows: values[None, rows].mean(axis=1), draws, 4)
    means = [values[rows].mean() for rows in draws]
    np.testing.assert_allclose(found, [[1.5, *np.percentile(means, [2.5, 97.5])]])


def test_the_choice_does_not_see_what_it_is_judged_on():
    generator = np.random.default_rng(2)
    scores, people = generator.normal(size=(30, 60)), generator.normal(size=60)
    fold = np.arange(60) % 5
    chosen = judgements.choose_elsewhere(scores, people, fold, [1.0] * len(scores))
    assert len(set(chosen)) > 1
    for part in range(5):
        changed = people.copy()
        changed[fold == part] = generator.permutation(people[fold == part])
        changed[fold == part] *= -9
        again = judgements.choose_elsewhere(scores, changed, fold, [1.0] * len(scores))
        assert again[part] == chosen[part]
        assert np.any(again != chosen)
        wanted = [stats.spearmanr(s[fold != part], people[fold != part])[0] for s in scores]
        assert chosen[part] == np.argmax(wanted)


def test_the_choice_on_other_tasks_leaves_out_their_common_contexts():
    pairs = judged_sets(sets=40, tasks=2)
    prompts = pairs.prompts.copy()
    prompts[:80] = np.repeat(prompts[:80:8], 8, axis=0)  # The first ten contexts, in both tasks.
    responses = Responses.of(dataclasses.replace(pairs, prompts=prompts))
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(30, 40))

    def choose(responses, scores=scores):
        return judgements.choose_on_other_tasks([1.0] * 30, responses, scores, "task 0")

    def with_people(sets):
        people = responses.labels["people"].copy()
        people[sets] = generator.normal(size=len(people))[sets]
        return responses._replace(labels={"people": people})

    chosen, number = choose(responses), np.arange(40)
    for unseen in (number % 2 == 0, number < 20):
        assert {choose(with_people(unseen)) for _ in range(5)} == {chosen}
    assert any(choose(with_people((number % 2 == 1) & (number >= 20))) != chosen for _ in range(5))
    assert choose(responses.some(number[::2]), scores[:, ::2]) is None


def test_published_metrics_labels_and_temperatures_are_beside(tmp_path):
    """A metric that is the people's scores is the best, and nothing is ahead of it."""
    pairs = judged_sets(sets=24)
    number, people = pairs.labels["sets"], pairs.labels["people"]
    labels = {
        **pairs.labels,
        "metric_same": people,
        "metric_other": np.sin(number * 7.0),
        "label": (people > np.median(people)).astype(float),
        "temperature": people**3,
    }
    pairs = dataclasses.replace(pairs, labels=labels)
    found = computed(study(resamples=50, draws=2, contexts=(1,)), pairs)[1]
    same = found.sel(judge="metric_same")
    for judged in (same.people, same.accuracy, same.temperature, same.ahead + 1):
        np.testing.assert_allclose(judged, 1)
    values = found.sel(end="value")
    np.testing.assert_allclose(values.ahead, values.people - 1, atol=1e-12)
    value, low, high = found.people.sel(judge="metric_other").values
    assert low < value < high < 1
    assert found.elsewhere == -1 and human.ELSEWHERE not in found.judge
    assert values.people.sel(judge=human.HINDSIGHT) == pytest.approx(found.grid.max().item())


# --- what is refused -----------------------------------------------------------------------------


test_bad_flags_are_refused = studies.refuses(
    Human,
    ("--folds=1", "--folds"),
    ("--folds=20", "expected 40 contexts or more in each task, received 24 in task 0"),
    ("--contexts=0", "--contexts: expected a number at least 1"),
    ("--orders=0", "order"),
    ("--draws=0", "--draws"),
    ("--resamples=1", "--resamples"),
)


@pytest.mark.parametrize(
    ("role", "row", "value", "message"),
    [
        ("people", 5, 99.0, "people: expected one value a set, row [45] differs"),
        ("people", slice(4, 8), np.nan, "people: expected finite numbers"),
        ("sets", 79, 99, "sets: expected two responses or more in each, received 1"),
    ],
)
def test_what_differs_within_a_set_is_refused(role, row, value, message):
    pairs = judged_sets()
    values = pairs.labels[role].copy()
    values[row] = value
    labels = {**pairs.labels, role: values}
    if role == "sets":
        labels["people"] = np.where(values == 99, 0.0, labels["people"])
    with pytest.raises(ValueError, match=message):
        Responses.of(dataclasses.replace(pairs, labels=labels))


def test_contexts_of_another_length_are_not_subtracted():
    pairs = judged_sets()
    assert judgements.shares_of(pairs) == (0.0, 0.25, 0.5, 0.75)
    shorter = dataclasses.replace(pairs, prompts=pairs.prompts[:, :2])
    without = dataclasses.replace(pairs, further={"second_outputs": pairs.outputs})
    assert judgements.shares_of(shorter) == judgements.shares_of(without) == (0.0,)
