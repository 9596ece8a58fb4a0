"""The studies of people's judgements, and of the count of designs a prompt."""

import dataclasses
import functools
import itertools

import numpy as np
import oracles
import pytest
import studies
from oracles import gaussian_gram
from scipy import stats
from small import flags, widths, write, write_line

import condvendi_jax as cv
from experiments import lab
from experiments.calibration import captions_judged, designs, human, judgements
from experiments.calibration.designs import APART, BLENDED, NAMES, RKE, UNBIASED, VENDI, WHOLE
from experiments.calibration.human import Human
from experiments.calibration.judgements import Responses
from experiments.data import PairedEmbeddings
from experiments.lab import agreement

pytestmark = pytest.mark.slow


def small_human(folder):
    """Writes sets of six responses with one to six modes, the people's scores being the modes.

    Two tasks of 24 contexts each, two sets a context; outputs lie far apart but within a mode.
    Gives the flags that read them.
    """
    generator, size = np.random.default_rng(0), 6
    context = np.repeat(np.arange(48), 2)
    modes = 1 + generator.permutation(np.arange(96) % size)
    spots = 5 * generator.normal(size=(96, size, 4))
    picked = np.arange(size) % modes[:, None]
    files = write(
        folder,
        outputs=spots[np.arange(96)[:, None], picked].reshape(-1, 4),
        prompts=5 * generator.normal(size=(48, 4))[np.repeat(context, size)],
        task=[f"task {c % 2}" for c in np.repeat(context, size)],
        sets=np.repeat(np.arange(96), size),
        people=np.repeat(modes.astype(np.float64), size),
    )
    counts = flags(folds=2, resamples=20, contexts="1,2", draws=8)
    return [*files, *counts, *widths(0.5)]


human_run = studies.finished(Human, small_human)


def judged_sets(seed=0, sets=20, size=4, tasks=1):
    """Unit-norm random responses: nothing to find, everything to check."""
    generator = np.random.default_rng(seed)
    rows, prompts = (generator.normal(size=(n, 3)).astype("f4") for n in (sets * size, sets))
    rows, prompts = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, prompts))
    number = np.repeat(np.arange(sets), size)
    task = np.array([f"task {s % tasks}" for s in number])
    labels = {"sets": number, "people": generator.normal(size=sets)[number], "task": task}
    return PairedEmbeddings("judged", rows, prompts[number], "judged sets", labels)


def test_people_who_count_modes_agree_with_every_score(human_run):
    study, found = human_run.study, human_run.found
    assert set(study.sets.values()) == {48}
    plain = [f"RKE, bandwidth x {scale}" for scale in ("0.5", "1", "2")]
    judges = [human.CHOSEN, human.ELSEWHERE, *plain, human.HINDSIGHT]
    assert found.judge.values.tolist() == judges
    np.testing.assert_allclose(found.people, 1, atol=0.02)
    for name in ("ahead", "temperature", "accuracy"):  # There is nothing of the kind.
        assert np.isnan(found[name]).all()
    # Conditional scores tell pools whose contexts mislead the others.
    same, twice = found.right.sel(scale=1).mean("task").transpose("design", ...)
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
    for (_, less, multiple, order), found in zip(
        itertools.product(*tried.values()), scores, strict=True
    ):
        x = outputs - less * prompts
        x = (1.3 * x / np.linalg.norm(x, axis=1, keepdims=True)).reshape(20, 4, 3)
        wanted = [oracles.entropy(gaussian_gram(x, 0.7 * multiple), order=order) for x in x]
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_both_encoders_are_the_product_of_their_kernels():
    first, second = judged_sets(0), judged_sets(1)
    pairs = dataclasses.replace(first, further={"second_outputs": second.outputs * 3})
    both = judgements.representation(pairs, {"first": 0.7, "second": 1.9}, "both", 0.0)
    wanted = gaussian_gram(first.outputs, 0.7) * gaussian_gram(3 * second.outputs, 1.9)
    np.testing.assert_allclose(gaussian_gram(both, 1), wanted, rtol=1e-5)
    # Contexts of another length, or none, are not subtracted.
    assert judgements.shares_of(first) == (0.0, 0.25, 0.5, 0.75)
    shorter = dataclasses.replace(first, prompts=first.prompts[:, :2])
    assert judgements.shares_of(shorter) == judgements.shares_of(pairs) == (0.0,)


def test_pools_are_scored_as_the_library_scores_them():
    pairs = judged_sets(sets=12)
    sets = Responses.of(pairs)
    bandwidths = [lab.Bandwidths(1.0, 0.7, 0.7, "given")]
    above, below = halves = judgements.draw_pools(sets, 40, np.random.default_rng(3))
    right = judgements.tell_pools(pairs, sets.members, halves, bandwidths, (2, 4, 8)).values

    def scores(pool):
        rows = np.concatenate([sets.members[s] for s in pool])
        points = cv.Pairs(pairs.outputs[rows], pairs.prompts[rows], **bandwidths[0].kernels)
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


def test_rank_correlation_is_that_of_scipy_and_accuracy_that_of_the_best_threshold():
    generator = np.random.default_rng(0)
    scores, people = generator.integers(0, 6, (5, 40)), generator.integers(0, 9, 40)
    wanted = np.array([stats.spearmanr(row, people)[0] for row in scores])
    # No rank is given by rounding: neither where all values are equal, nor where some are.
    rounded = scores * (1 + 1e-6 * generator.uniform(-1, 1, scores.shape))
    for of in (scores, rounded):
        np.testing.assert_allclose(agreement.spearman(of, people), wanted, atol=1e-12)
    noise = 3 * (1 + 1e-6 * generator.uniform(-1, 1, (2, 40)))
    assert np.isnan(agreement.spearman(noise, people)).all()
    # Order 2 is rounded less; NaN is the last.
    ladder = 1 + 1e-5 * np.arange(4)
    np.testing.assert_array_equal(agreement.ranks(ladder), np.full(4, 2.5))
    np.testing.assert_array_equal(agreement.ranks(ladder, order=2), np.arange(1, 5))
    found = agreement.ranks(np.array([np.nan, 2, 0, -1, np.nan]))
    np.testing.assert_array_equal(found, [4.5, 3, 2, 1, 4.5])

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
    assert all(np.sum(rows == 0) == np.sum(rows == 2) for rows in draws)
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
        assert again[part] == chosen[part] and np.any(again != chosen)
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
    bandwidths = lab.Scales(output_bandwidth=0.7, prompt_bandwidth=0.7)
    study = Human(bandwidths=bandwidths, folds=2, resamples=50, draws=2, contexts=(1,))
    found = studies.computed(study, pairs)[1]
    same = found.sel(judge="metric_same")
    for judged in (same.people, same.accuracy, same.temperature, same.ahead + 1):
        np.testing.assert_allclose(judged, 1)
    values = found.sel(end="value")
    np.testing.assert_allclose(values.ahead, values.people - 1, atol=1e-12)
    value, low, high = found.people.sel(judge="metric_other").values
    assert low < value < high < 1
    assert found.elsewhere == -1 and human.ELSEWHERE not in found.judge
    assert values.people.sel(judge=human.HINDSIGHT) == pytest.approx(found.grid.max().item())


def small_captions_judged(folder):
    """Ten photographs whose judged captions are near them, and changed captions far off."""
    generator = np.random.default_rng(0)
    photographs = generator.normal(size=(60, 4))
    captions = photographs @ generator.normal(size=(4, 3)) + 0.1 * generator.normal(size=(60, 3))
    path, pairs = folder / "references.npz", folder / "pairs.npz"
    embedded = {"outputs": photographs, "prompts": captions, "description": "d"}
    np.savez(path, **embedded, label_photograph=np.arange(60))
    # Pairs of which people choose the longer, and the other one is nearer to references.
    names = ["task", "people", "photograph", "metric_length", "metric_cider", "metric_reference"]
    labels = [["HC"] * 8, *np.tile([[3, 1], [0, 0], [5, 2], [1, 1], [0, 1]], 4)]
    labels[2] = np.arange(8) // 2
    of = {f"label_{name}": values for name, values in zip(names, labels, strict=True)}
    np.savez(pairs, outputs=np.eye(8), prompts=np.eye(8), description="d", **of)
    # Of each task three captions a photograph: its own, nearly its own, and another's.
    photograph, rank = (np.tile(of, 3) for of in np.divmod(np.arange(30), 3))
    whose = np.where(rank == 0, (photograph + 5) % 10, photograph)
    outputs = captions[whose] + 0.02 * (rank == 1)[:, None]
    task = np.repeat(["expert", "crowd", "color"], 30)
    numbers = {"people": rank.astype(float), "photograph": photograph, "caption": 3 * whose + rank}
    files = write(folder, outputs=outputs, prompts=photographs[photograph], task=task, **numbers)
    return [*files, *widths(1), *flags(references=path, pairs=pairs, ridges="1e-4,1e-2")]


captions_judged_run = studies.finished(captions_judged.CaptionsJudged, small_captions_judged)


def test_judged_photographs_are_not_fitted_to(captions_judged_run):
    assert captions_judged_run.study.fitted == 50
    found = captions_judged_run.found.squeeze("fitted_to")
    value = found.value.sel(end="value")
    assert found.n.sel(measure=["expert", "color"]).values.tolist() == [30, 10]
    assert (value.sel(score="MID") != value.sel(score="MID, ridge 0.01"))[0]
    np.testing.assert_allclose(found.ahead.sel(end="value"), value.sel(score="MID") - value)
    # Fewer references, another fit; and its draws widen the intervals.
    assert found.fewer.sizes["share"] == 4
    chosen = found.chosen.sel(category="HC", end="value").to_series().to_dict()
    assert chosen == {"length": 1, "cider": 0.5, "reference": 0}


def test_scores_are_mid_a_ridge_regression_s_cosine_and_what_a_pair_adds_to_information():
    def pairs_of(n, seed, **labels):
        rng = np.random.default_rng(seed)
        x, t = (rng.normal(size=(n, d)).astype("f4") for d in (3, 2))
        return PairedEmbeddings("own", x, t, "", labels)

    numbers = np.arange(6)
    pairs, fit = pairs_of(6, 0, photograph=numbers, caption=numbers[::-1]), pairs_of(40, 1)
    judged = captions_judged.Judged.of_pairs(pairs)
    (t, x), (t_new, x_new) = ((of.prompts.astype(float), of.outputs) for of in (fit, pairs))
    rows = np.concatenate([t - t.mean(0), np.sqrt(40 * 0.3) * np.eye(2)])
    linear = np.linalg.lstsq(rows, np.concatenate([x - x.mean(0), np.zeros((2, 3))]))[0]
    one, other = (t_new - t.mean(0)) @ linear, x_new - x.mean(0)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    mid, found = captions_judged.gaussian_scores(judged, fit.prompts, fit.outputs, 0.3)
    np.testing.assert_allclose(found, np.sum(one * other, axis=1) / norms, rtol=1e-4)
    references = {"reference_outputs": fit.outputs, "reference_prompts": fit.prompts}
    expected = cv.baselines.pointwise_mutual_information(
        pairs.outputs, pairs.prompts, ridge=0.3, **references
    )
    np.testing.assert_allclose(mid, expected, rtol=1e-3, atol=1e-5)
    kernels = {"output_kernel": cv.Gaussian(1.5), "prompt_kernel": cv.Gaussian(0.8)}
    both = (np.concatenate([x_new, x]), 1.5), (np.concatenate([t_new, t]), 0.8)
    k_x, k_t = (gaussian_gram(of, width)[:6, 6:] ** 2 for of, width in both)
    expected = np.log(np.mean(k_x * k_t, 1) / np.mean(k_x, 1) / np.mean(k_t, 1))
    found = captions_judged.kernel_information(judged, fit, kernels)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_measures_are_tau_and_how_often_a_changed_caption_scores_less():
    labels = {
        "people": [1, 2, 2, 3, 1, 2, 0, 1, 2, 0],
        "photograph": [0, 0, 1, 1, 5, 5, 5, 4, 4, 4],
        "task": ["expert"] * 4 + ["color"] * 6,
    }
    labels = {role: np.array(values) for role, values in labels.items()}
    scores = np.array([[4.0, 3, 2, 1, 2, 3, 1, 1, 3, 2], [1, 3, 1, 2, 9, 1, 5, 9, 9, 9]])
    found = captions_judged.measures([*scores], labels)
    # Of six pairs people tie one. Five are discordant; or three concordant, one not, and one tied.
    np.testing.assert_allclose(found["expert"][0], 2 * 3 * np.array([-5, 3 - 1]) / (16 * 2))
    (pair, influence), (lowest, _) = (found[name] for name in ("color", "color, lowest of three"))
    assert pair.tolist() == [1, 0] and lowest.tolist() == [0.5, 0] and influence.shape == (2, 2)
    # The jackknife of a share: sqrt(p (1 - p) / (n - 1)).
    value, low, high = captions_judged.interval(*found["color, lowest of three"])[0]
    assert (high - low) / 2 == pytest.approx(1.96 * 0.5, rel=1e-3) and value == 0.5


@pytest.mark.parametrize("variant", ["b", "c"])
def test_tau_is_scipy_s_and_its_influences_are_those_of_photographs_left_out(variant):
    rng = np.random.default_rng(0)
    people, groups = rng.integers(0, 4, 400), rng.integers(0, 80, 400)
    scores = np.round(people + 2 * rng.normal(size=(2, 400)), 1)
    values, influences = captions_judged.taus(scores, people, groups, variant)
    known = functools.partial(stats.kendalltau, variant=variant)
    for score, value, influence in zip(scores, values, influences, strict=True):
        assert value == pytest.approx(known(score, people)[0])
        left = [known(score[groups != g], people[groups != g])[0] for g in np.unique(groups)]
        np.testing.assert_allclose(-influence, left - value, atol=1e-3)
        assert np.corrcoef(influence, left)[0, 1] < -0.999


def small_designs(folder):
    """Twelve prompts of four outputs that have nothing in common, under a narrow bandwidth."""
    models = [f"model {m}" for m in np.tile(np.arange(4), 12)]
    outputs = np.random.default_rng(0).permutation(48)
    files = write_line(folder, outputs, np.repeat(np.arange(12), 4), models)
    return [*files, *widths(0.24, 2.4), *flags(draws=2, scales="0.9,1")]


designs_run = studies.finished(designs.Designs, small_designs)


def test_outputs_that_have_nothing_in_common_are_counted(designs_run):
    study, found = designs_run.study, designs_run.found
    assert study.most == 4 and study.apart == pytest.approx(10 / 6)
    for curve in (*NAMES, VENDI, RKE):
        np.testing.assert_allclose(found.value.sel(curve=curve) / found.k, 1, rtol=2e-3)
    assert (found.n == 12).all()
    np.testing.assert_allclose(found.alike - np.eye(4), 0, atol=1e-3)
    # Unlike outputs are any number; a single one of each prompt says nothing.
    unbiased = found.value.sel(curve=UNBIASED, prompts=APART)
    assert unbiased.sel(k=1).isnull().all() and (unbiased.sel(k=[2, 3, 4]) > 100).all()


def test_blended_the_score_is_the_oracles_and_told_apart_a_mean_over_prompts(tmp_path):
    """Twelve prompts, some of them near each other, of three outputs that are partly alike.

    Told apart: geometric at order 1 and harmonic at order 2, below the mean that is their limit.
    """
    generator = np.random.default_rng(5)
    outputs, prompts = (generator.normal(size=(n, 2)).astype(np.float32) for n in (36, 12))
    prompt = np.repeat(np.arange(12), 3)
    files = write(tmp_path, outputs=outputs, prompts=prompts[prompt], prompt=prompt)
    more = [*widths(0.8, 0.7), *flags(scales=1, draws=2)]
    found = studies.execute(designs.Designs, tmp_path, *files, *more).found
    grams = gaussian_gram(outputs, 0.8), gaussian_gram(prompts[prompt], 0.7)
    expected = oracles.scores(*grams, order=2)["conditional"]
    whole = found.value.sel(prompts=BLENDED, curve=WHOLE, k=3).values[0]
    assert whole[0] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(whole[1])  # In the first draw only.
    assert (found.n == 12).all()  # Fewer prompts at more outputs a prompt.
    drawn = found.sel(curve=NAMES[0], prompts=APART, k=[2, 3]).value
    assert (drawn.sel(draw=0) != drawn.sel(draw=1)).any()
    assert (found.error.sel(curve=NAMES[1], k=[2, 3]) > 0).all()

    each, alike = [gaussian_gram(x, 0.8) for x in outputs.reshape(12, 3, 2)], np.ones((3, 3))
    of_orders = [[oracles.scores(g, alike, order=o)["vendi"] for g in each] for o in (1, 2)]
    vendi, rke = np.array(of_orders)
    told = found.value.sel(scale=1, prompts=APART, draw=0, k=3, curve=[WHOLE, VENDI, RKE])
    expected = [12 / np.sum(1 / rke), vendi.mean(), rke.mean()]
    np.testing.assert_allclose(told, expected, rtol=1e-5)
    assert expected[0] < expected[2]
    plain, unbiased = found.value.sel(prompts=APART, k=3, curve=[NAMES[1], UNBIASED]).T
    np.testing.assert_allclose(1 / plain, 1 / 3 + 2 / 3 / unbiased, rtol=1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_models_come_in_one_order_for_all_prompts_where_they_are_known(known):
    prompt, models = np.tile(np.arange(6), 3), np.repeat(["a", "b", "c"], 6)
    labels = {"prompt": prompt} | ({"models": models} if known else {})
    pairs = PairedEmbeddings("own", prompt[:, None], prompt[:, None], "", labels)
    chosen = designs.in_random_order(pairs, np.random.default_rng(0))
    assert sorted(prompt[chosen][:, 0].tolist()) == [0, 1, 2, 3, 4, 5]
    assert all(len(set(column)) == 1 for column in models[chosen].T) == known


@pytest.mark.parametrize(
    ("counts", "most"), [([9] * 100 + [5] * 900, 9), ([9] * 99 + [5] * 901, 5), ([4, 4, 2, 1], 4)]
)
def test_the_number_of_outputs_is_what_enough_prompts_have(counts, most):
    assert designs.most_of(np.array(counts)) == most


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (Human, small_human, "--folds=20", "expected 40 contexts or more in each task, received 24"),
    (Human, small_human, "--orders=0", "order"),
    (designs.Designs, small_designs, "--most=5", "0 prompts have so many outputs, expected at le"),
)
