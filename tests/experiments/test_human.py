"""Agreement with people: known answers, independent oracles, and no look at what is judged."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from small import small_run
from studies import computed, execute

from experiments import human, judgements, lab
from experiments.data import PairedEmbeddings
from experiments.human import Human
from experiments.judgements import Configuration, Responses
from experiments.lab import agreement

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("human")
    flags = small_run(Human, folder, 0)
    return execute(Human, folder / "results", *flags), flags


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


def prepared(pairs, **options):
    return study(**options).prepare(lambda: pairs, 0)


def scores_of(setup):
    return setup.state[2]()


def tell_pools(pairs, setup, generator):
    chosen = setup.study
    scales = chosen.bandwidths.axis
    sets = Responses.of(pairs)
    return judgements.tell_pools(pairs, sets, scales, chosen.contexts, chosen.draws, generator)


# --- known answers -------------------------------------------------------------------------------


def test_people_who_count_modes_agree_with_every_score(finished):
    run, _ = finished
    assert set(run.study.sets.values()) == {48}
    assert run.found.judge.values.tolist() == [
        human.CHOSEN,
        human.ELSEWHERE,
        "RKE, bandwidth x 0.5",
        "RKE, bandwidth x 1",
        "RKE, bandwidth x 2",
        human.HINDSIGHT,
    ]
    np.testing.assert_allclose(run.found.people, 1, atol=0.02)
    for name in ("ahead", "temperature", "accuracy"):  # There is nothing of the kind.
        assert np.isnan(run.found[name]).all()


def test_conditional_scores_tell_pools_whose_contexts_mislead_the_others(finished):
    run, _ = finished
    same, twice = run.found.right.sel(scale=1).mean("task").transpose("design", ...)
    np.testing.assert_allclose(same, 1)
    twice = twice.sel(contexts=1)
    assert (twice.sel(score=["Conditional-RKE", "Conditional-Vendi"]) == 1).all()
    assert (twice.sel(score=["RKE", "Vendi"]) < 0.95).all()


def test_responses_that_repeat_their_context_differ_once_it_is_subtracted():
    """Two modes of rests, under a context that outweighs them."""
    pairs = judged_sets()
    context = pairs.prompts
    rest = np.array([[1, -1, 0], [1, -1, 0], [0, 1, -1], [0, 1, -1]], np.float32)
    outputs = 0.75 * context + np.tile(0.01 * rest, (20, 1))
    pairs = dataclasses.replace(pairs, outputs=outputs)
    scores = {}
    for less in (0.0, 0.75):
        setup = prepared(pairs, less=(less,), candidates=(1.0,), orders=(2.0,))
        at = setup.study.configurations.index(Configuration("first", less, 1.0, 2.0))
        scores[less] = np.exp(scores_of(setup)[at])
    np.testing.assert_allclose(scores[0.0], 1, atol=0.01)
    assert np.all(scores[0.75] > 1.4)


# --- independent oracles -------------------------------------------------------------------------


def test_entropies_of_sets_are_those_of_numpy_at_every_order():
    pairs = judged_sets()
    setup = prepared(pairs, less=(0.0, 0.5), candidates=(0.5,), scales=(1.0,))
    assert len(setup.study.configurations) == 2 * 2 * 3
    outputs, prompts = (rows.astype(np.float64) for rows in (pairs.outputs, pairs.prompts))
    for c, found in zip(setup.study.configurations, scores_of(setup), strict=True):
        x = outputs - c.less * prompts
        x = (x / np.linalg.norm(x, axis=1, keepdims=True)).reshape(20, 4, 3)
        squares = np.sum((x[:, :, None] - x[:, None]) ** 2, axis=-1)
        gram = np.exp(-squares / (2 * (0.7 * c.scale) ** 2)) / 4
        if c.order == 2:
            wanted = -np.log(np.sum(gram**2, axis=(1, 2)))
        else:
            spectrum = np.linalg.eigvalsh(gram)
            wanted = (
                -np.sum(spectrum * np.log(spectrum), axis=1)
                if c.order == 1
                else -np.log(spectrum[:, -1])
            )
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


def test_what_is_subtracted_leaves_the_norm_as_it_was():
    pairs = judged_sets()
    pairs = dataclasses.replace(pairs, outputs=5 * pairs.outputs, prompts=2 * pairs.prompts)
    found = judgements.representation(pairs, {"first": 2.0}, "first", 0.5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2.5, rtol=1e-5)


def test_pools_are_scored_as_the_library_scores_them():
    import condvendi_jax as cv

    pairs = judged_sets(sets=12)
    setup = prepared(pairs, draws=40, contexts=(2, 4), scales=(1.0,), candidates=(1.0,))
    sets = Responses.of(pairs)
    right = tell_pools(pairs, setup, np.random.default_rng(3))
    generator = np.random.default_rng(3)
    people = sets.labels["people"]
    above, below = (
        judgements.draw_pools(np.flatnonzero(part), sets.context, 40, generator)
        for part in (people > np.median(people), people < np.median(people))
    )
    kernels = setup.study.bandwidths.axis[0].kernels

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
    pairs = judged_sets(sets=12)
    setup = prepared(pairs, draws=3, contexts=(4, 8), scales=(1.0,), candidates=(1.0,))
    right = tell_pools(pairs, setup, np.random.default_rng(0))
    assert np.isfinite(right[0, ..., 0]).all() and np.isnan(right[0, ..., 1]).all()
    assert np.isnan(
        right[1]
    ).all()  # Twice four are more than there are, twice eight not asked for.


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


def test_what_folds_are_judged_by_is_on_one_scale():
    scores = np.array([[1.0, 3.0, 2.0, 4.0], [-8.0, -6.0, -7.0, -9.0]])
    np.testing.assert_array_equal(
        judgements.placed(scores, np.array([0, 1, 1, 0]), [1.0, 1.0]), [1, 4, 3, 4]
    )


def test_the_choice_on_other_tasks_leaves_out_their_common_contexts():
    pairs = judged_sets(sets=40, tasks=2)
    prompts = pairs.prompts.copy()
    prompts[:80] = np.repeat(prompts[:80:8], 8, axis=0)  # The first ten contexts, in both tasks.
    pairs = dataclasses.replace(pairs, prompts=prompts)
    setup = prepared(pairs, tasks=("task 0", "task 1"))
    responses = Responses.of(pairs)
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(len(setup.study.configurations), 40))

    orders = [configuration.order for configuration in setup.study.configurations]

    def choose(responses, tasks=("task 0", "task 1")):
        return judgements.choose_on_other_tasks(tasks, orders, responses, scores, "task 0")

    chosen = choose(responses)

    def with_people(sets):
        people = responses.labels["people"].copy()
        people[sets] = generator.normal(size=len(people))[sets]
        return responses._replace(labels={"people": people})

    number = np.arange(40)
    for unseen in (number % 2 == 0, number < 20):
        assert {choose(with_people(unseen)) for _ in range(5)} == {chosen}
    assert any(choose(with_people((number % 2 == 1) & (number >= 20))) != chosen for _ in range(5))
    assert choose(responses, ("task 0",)) is None


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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--folds=1",), "--folds"),
        (("--folds=20",), "expected 40 contexts or more in each task, received 24 in task 0"),
        (("--tasks=task 9",), "--tasks: expected some of task 0, task 1, received 'task 9'"),
        (("--less=1",), "--less: expected a number at least 0 and below 1"),
        (("--candidates=0",), "--candidates: expected a number above 0"),
        (("--kernel=cosine", "--candidates=1"), "--candidates means nothing with --kernel=cosine"),
        (("--contexts=0",), "--contexts: expected a number at least 1"),
        (("--orders=0",), "order"),
        (("--draws=0",), "--draws"),
        (("--resamples=1",), "--resamples"),
    ],
)
def test_bad_flags_are_refused(finished, tmp_path, flags, message):
    _, own = finished
    kept = [f for f in own if "bandwidth" not in f] if "--kernel=cosine" in flags else own
    with pytest.raises(ValueError, match=message):
        execute(Human, tmp_path, *kept, *flags)


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


def test_contexts_of_another_length_cannot_be_subtracted():
    pairs = judged_sets()
    pairs = dataclasses.replace(pairs, prompts=pairs.prompts[:, :2])
    assert {c.less for c in prepared(pairs).study.configurations} == {0}
    with pytest.raises(ValueError, match="as long as the outputs .* received 2 and 3"):
        prepared(pairs, less=(0.5,))


def test_kernels_and_orders_are_what_was_asked_for():
    setup = prepared(judged_sets(), kernel="cosine", orders=(1.0,))
    assert {(c.scale, c.order) for c in setup.study.configurations} == {(None, 1.0)}
    assert list(setup.study.plain) == ["Vendi, cosine"]
    outputs = judged_sets().outputs.astype(np.float64).reshape(20, 4, 3)
    spectrum = np.linalg.eigvalsh(np.einsum("sid,sjd->sij", outputs, outputs) / 4)
    wanted = -np.sum(spectrum * np.log(np.maximum(spectrum, 1e-12)), axis=1)
    np.testing.assert_allclose(scores_of(setup)[0], wanted, atol=1e-4)
