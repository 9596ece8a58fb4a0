"""The studies of language models, on models whose numbers of answers are known."""

import itertools
import json

import numpy as np
import pytest
import studies
from scipy import stats
from small import flags, write, write_answers

import condvendi_jax as cv
from condvendi_jax import inference
from experiments.data import PairedEmbeddings
from experiments.language_models import answers, judged, leaderboard, same_answers
from experiments.language_models.hivemind import Hivemind
from experiments.language_models.post_training import PostTraining

pytestmark = pytest.mark.slow

NARROW = flags(bandwidth=1, scales="1,2", resamples=20)  # Different answers lie 5 apart.
KNOWN = {"few": 1, "some": 2, "many": 4}
PAPERS = list(judged.PAPERS)


def widths_of(bandwidth):
    return judged.Widths(bandwidth=bandwidth, scales=(1.0,))


def pairs_of(outputs, models, **labels):
    """Pairs of outputs `[m, prompts, n, d]`; the labels of models and others are by model."""
    m, prompts, n, d = outputs.shape
    prompt = np.tile(np.repeat(np.arange(prompts), n), m)
    of_models = {k: np.repeat(v, prompts * n) for k, v in {"models": models, **labels}.items()}
    arrays = outputs.reshape(-1, d).astype(np.float32), prompt[:, None].astype(np.float32)
    return PairedEmbeddings("", *arrays, "", {"prompt": prompt, **of_models})


def small_answers(folder):
    return [*write_answers(folder, KNOWN), *NARROW]


answers_run = studies.finished(answers.Answers, small_answers)


def test_scores_count_different_answers_and_agree_with_the_benchmark(answers_run):
    """To `cut` answers the numbers are reversed: there they disagree with the classes."""
    study = answers_run.study
    assert (study.prompts, study.of_each) == (6, 4) and set(study.families) == set(KNOWN)
    for text, sign in (("whole", 1), ("cut", -1)):
        found = answers_run.found.sel(text=text, scale=1, judge="classes", model=list(KNOWN))
        for score in ("Conditional-Vendi", "Conditional-RKE"):
            expected = [1, 2, 4][::sign]
            np.testing.assert_allclose(found.value.sel(score=score), expected, rtol=1e-4)
        np.testing.assert_allclose(found.sel(measure=PAPERS).over_models, sign)
        np.testing.assert_allclose(found.sel(score=PAPERS).over_prompts, sign)
        np.testing.assert_allclose(found.sel(score=PAPERS).swept.sel(multiple=1), sign)
        information = answers_run.found.over_models.sel(measure="Information-RKE", judge="classes")
        np.testing.assert_allclose(information.sel(text=text, scale=2), -sign)
        first, last = ("many", "few")[::sign]
        assert found.highest.sel(score=PAPERS, model=first).min() == 1
        assert found.lowest.sel(score=PAPERS, model=last).min() == 1
    whole = answers_run.found.sel(text="whole", scale=1, model=list(KNOWN))
    np.testing.assert_allclose(whole.benchmark.sel(judge="classes"), [1, 2, 4])
    np.testing.assert_allclose(whole.words, [10, 20, 40])
    # The first of one class, and all answers of four, are worth their reward of 2.
    found = whole.benchmark.sel(judge="utility", model=["few", "many"])
    np.testing.assert_allclose(found, [2 / (1 + 0.8 + 0.64 + 0.512), 2])


def test_models_are_told_apart_as_the_library_does():
    """Scores, errors, intervals, p-values and letters are those of `compare`, prompts equal."""
    generator = np.random.default_rng(1)
    spread = np.array([1.0, 0.97, 0.5])[:, None, None, None]
    rows = (spread * generator.normal(size=(3, 60, 4, 2))).astype(np.float32)
    names, width = ["a", "b", "c"], judged.Width(1.0, 1.0, None, "given")
    found = judged.scored(rows, names, width)
    prompts = np.repeat(np.arange(60, dtype=np.float32), 4)[:, None]
    models = dict(zip(names, rows.reshape(3, 240, 2), strict=True))
    options = {"profile": False, **width.kernels}
    plain = cv.compare(models, prompts, **options, unbiased=False)
    compared: list = [*(plain.ranking("conditional", order) for order in (1, 2))]
    compared.append(cv.compare(models, prompts, **options, orders=[2]).ranking("conditional", 2))
    for score, ranking in zip(judged.SCORES, compared, strict=True):
        own, names_of = found.sel(score=score), (ranking.values, ranking.standard_errors)
        values, errors = ([of[name] for name in names] for of in names_of)
        np.testing.assert_allclose(own.value, values, rtol=1e-4)
        np.testing.assert_allclose(own.error, errors, rtol=0.05)
        assert own.letters.values.tolist() == [ranking.letters[name] for name in names]
        for d in ranking.differences:
            one = own.sel(model=d.first, other=d.second)
            np.testing.assert_allclose(one.difference_error, d.standard_error, rtol=0.05)
            both = [one.difference, one.p_value], [d.value, d.adjusted]
            np.testing.assert_allclose(*both, 0, 0.05)
    ends = [compared[2].intervals[name] for name in names]
    np.testing.assert_allclose(found.interval.sel(score=judged.UNBIASED), ends, rtol=1e-5)


def test_the_order_of_models_turns_where_the_bandwidth_is_swept():
    """Two answers that are far apart are more than four that are near, at wide bandwidths."""
    near, far = 5 / np.sqrt(2) * np.eye(4), 40 * np.eye(4)[[0, 0, 1, 1]]
    pairs = pairs_of(np.stack([[near] * 6, [far] * 6]), ["near", "far"])
    pairs.labels["classes"] = np.concatenate([np.tile(range(4), 6), np.tile([0, 0, 1, 1], 6)])
    study = answers.Answers(widths=widths_of(1.0), resamples=2)
    found = studies.computed(study, pairs)[1].swept.sel(score=PAPERS)
    np.testing.assert_allclose(found.sel(multiple=[1, 2, 2**1.5]), 1)
    np.testing.assert_allclose(found.sel(multiple=8), -1)


def test_a_class_that_was_there_before_is_worth_nothing():
    pairs = pairs_of(np.zeros((1, 1, 4, 1)), ["m"])
    pairs.labels.update(classes=np.array([1, 1, 0, 1]), rewards=np.array([10, 10, 5, 10]))
    found = answers.benchmark_of(pairs, np.arange(4).reshape(1, 1, 4))
    assert found["classes"].item() == 2
    expected = (10 + 0.64 * 5) / (1 + 0.8 + 0.64 + 0.512)
    assert found["utility"].item() == pytest.approx(expected)
    # The benchmark gives a later answer of a class 0: all have the reward of the first.
    rewards = answers.class_rewards(np.array([1, 1, 0, 1]), np.array([7.0, 0.0, 3.0, 0.0]))
    assert rewards.tolist() == [7, 7, 3, 7]


def test_good_answers_are_counted_and_models_of_one_family_are_resampled_together(
    answers_run, tmp_path
):
    """All rewards of the small run are 2: with a lower bar the number is that of the classes."""
    files = small_answers(tmp_path)
    write(tmp_path, families=np.repeat("x", 72))
    more = flags(families=tmp_path / "families.txt", at_least=2)
    run = studies.execute(answers.Answers, tmp_path, *files, *more)
    found = run.found.sel(text="whole", scale=1, model=list(KNOWN))
    np.testing.assert_allclose(found.good.transpose("source", "model"), [[1, 2, 4]] * 2, 1e-4)
    np.testing.assert_allclose(found.good_share, 1)
    assert found.reversed == 0 and found.one_order <= found.apart.min()
    together, apart = (r.found.over_models.sel(scale=2, text="whole") for r in (run, answers_run))
    value, low, high = together.sel(measure="Vendi", judge="classes").values
    assert value == low == high and run.study.families == ("x",) * 3
    np.testing.assert_allclose(together.isel(end=0), apart.isel(end=0))
    names = "claude-3-5-haiku@20241022", "gemma-2-2b-it", "Llama-3.3-70B-Instruct", "mine"
    families = ["Claude 3", "Gemma 2", "Llama 3", "mine"]
    assert [judged.family_of(name) for name in names] == families


def small_hivemind(folder):
    """Five models of three families and two vendors."""
    numbers = {"gemma-2-2b": 2, "gemma-2-9b": 2, "gemini-x": 4, "gpt-4o": 4, "gpt-4o-mini": 1}
    files = write_answers(folder, numbers)
    files = [file for file in files if not file.startswith(("--classes", "--rewards", "--words"))]
    models = (folder / "models.txt").read_text().split()
    vendors = ["OpenAI" if name.startswith("gpt") else "Google" for name in models]
    return [*files, *write(folder, vendors=np.array(vendors)), *NARROW]


hivemind_run = studies.finished(Hivemind, small_hivemind)


def hivemind_of(outputs, **labels):
    models = ("gemma-2-a", "gemma-2-b", "gemini-c", "claude-3-d")[: len(outputs)]
    labels = {"vendors": ("Google", "Google", "Google", "Anthropic")[: len(outputs)]} | labels
    study = Hivemind(widths=widths_of(1.0), resamples=20)
    return studies.computed(study, pairs_of(outputs, models, **labels))[1]


def same(outputs, a, b, prompts=slice(None)):
    """The mean squared kernel of an answer of `a` and another one of `b`."""
    one, two = (outputs[m, prompts].astype(np.float32).astype(float) for m in (a, b))
    squares = np.exp(-np.sum((one[:, :, None] - two[:, None]) ** 2, axis=-1))
    return squares[:, ~np.eye(squares.shape[1], dtype=bool) | (a != b)].mean()


def counts(outputs, prompts=slice(None)):
    """Different models, answers of one and of all, out of mean squared kernels."""
    m = range(len(outputs))
    one = np.mean([same(outputs, a, a, prompts) for a in m])
    every = np.mean([same(outputs, a, b, prompts) for a in m for b in m])
    return np.array([one / every, 1 / one, 1 / every])


def test_counts_and_overlaps_are_sums_over_different_answers(hivemind_run):
    """Over all prompts, with errors over prompts; and of each prompt, with errors over answers."""
    assert not hivemind_run.missing
    generator = np.random.default_rng(0)
    places = 0.8 * generator.normal(size=(4, 1, 1, 3)) + generator.normal(size=(1, 6, 1, 3))
    outputs = places + 0.5 * generator.normal(size=(4, 6, 5, 3))
    found, expected = hivemind_of(outputs), counts(outputs)
    np.testing.assert_allclose(found.counts.sel(set="all"), expected, rtol=1e-5)
    left = [counts(np.delete(outputs, p, 1)) for p in range(6)]
    error = np.sqrt(5 * np.var(left, axis=0))
    np.testing.assert_allclose(found.counts_error.sel(set="all"), error, rtol=0.02)
    shared = np.array([[same(outputs, a, b) for b in range(4)] for a in range(4)])
    own, off = np.diag(shared), ~np.eye(4, dtype=bool)
    overlap = 2 * shared / (own[:, None] + own)
    np.testing.assert_allclose(found.overlap.values[off], overlap[off], rtol=1e-5)
    beside = 0.2 + 0.8 * np.mean(own)  # With an answer beside itself, one of five.
    of_all = 1 / expected[2] + (beside - np.mean(own)) / 4
    plain = [beside / of_all, 1 / beside, 1 / of_all]
    np.testing.assert_allclose(found.plug_in.sel(set="all"), plain, rtol=1e-5)
    google, other = (overlap[0, 2] + overlap[1, 2]) / 2, overlap[:3, 3].mean()
    np.testing.assert_allclose(found.of_kind, [overlap[0, 1], google, other], rtol=1e-5)
    assert found.family_effect.item() == pytest.approx(overlap[0, 1] - other, rel=1e-5)
    inside = np.mean([overlap[0, 1], overlap[0, 2], overlap[1, 2]])
    np.testing.assert_allclose(found.of_vendors, [[np.nan, other], [other, inside]], rtol=1e-5)

    for p in range(6):
        of, only = found.isel(prompt=p), slice(p, p + 1)
        models, number, _ = counts(outputs, only).tolist()
        between = np.mean([same(outputs, *m, only) for m in itertools.combinations(range(4), 2)])
        left = [counts(np.delete(outputs, k, 2), only) for k in range(5)]
        error = np.sqrt(4 * np.var(left, axis=0))[0].item()
        told = (
            of.different_models,
            of.different_answers,
            of.shared_answers,
            of.different_models_error,
        )
        assert [x.item() for x in told] == pytest.approx([models, number, between, error], rel=1e-5)
    expected = stats.spearmanr(found.different_models, found.different_answers)[0]
    value, low, high = found.correlation.sel(agreement="different models").values
    assert value == pytest.approx(expected) and low <= value <= high


def classes(seed, prompts, *sets):
    """Models that draw ten answers from sets of classes, which lie far apart."""
    generator = np.random.default_rng(seed)
    return np.stack([10 * np.eye(4)[generator.choice(of, size=(prompts, 10))] for of in sets])


def test_models_of_known_overlap_are_counted_without_bias_and_families_tested_by_relabelling():
    found = hivemind_of(classes(3, 200, [0, 1], [0, 1], [1, 2]))
    for (a, b), expected in {(0, 1): 1, (0, 2): 0.5, (1, 2): 0.5}.items():
        gap = abs(found.overlap.values[a, b] - expected)
        assert gap < 4 * found.overlap_error.values[a, b] < 0.1
    # Of the pairs of one model 0.5 are the same; of those of two 0.5, 0.25 and 0.25.
    different = found.sel(set="all", part="different models")
    assert abs(different.counts - 9 / 7) < 4 * different.counts_error
    # Two families of two models: a third of all orders of the models keep them together.
    outputs = classes(4, 20, [0, 1], [0, 1], [1, 2], [1, 2])
    labels = {"families": ("one", "one", "two", "two"), "vendors": ("1", "1", "2", "2")}
    found = hivemind_of(outputs, **labels)
    assert found.family_effect > 0.3
    assert found.family_p_value.item() == pytest.approx(1 / 3, abs=0.06)


def small_post_training(folder):
    """Three stages with 4, 2 and 1 different answers to each of eight prompts; the flags.

    The first prompt has four in every stage. The prompts are of two sets of four; to the first
    three of each there are matched answers also, of which 4, 1 and 2 are different. Different
    answers lie 5 apart, so that at a bandwidth of 1 Conditional-* is their number; one is the
    prompt itself.
    `distinct` is the number of whole answers to the prompts of a stage, and largest for the first.
    """
    size = 4
    places = 3.5 * np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))[0]
    places = places.reshape(8, size, 32)
    whole, matched = {"base": 4, "SFT": 2, "Instruct": 1}, {"base": 4, "SFT": 1, "Instruct": 2}
    rows = [
        (stage, cut, prompt, place % (numbers[stage] if prompt else size), numbers[stage])
        for cut, numbers in enumerate((whole, matched))
        for stage in numbers
        for prompt in ((0, 1, 2, 4, 5, 6) if cut else range(8))
        for place in range(size)
    ]
    stage, cut, prompt, place, count = map(np.array, zip(*rows, strict=True))
    files = write(
        folder,
        outputs=places[prompt, place],
        prompts=places[prompt, 0],
        models=stage,
        prompt=prompt,
        benchmark=np.array(["one", "two"])[prompt // 4],
        matched=cut,
        words=10 * count,
        distinct=np.where(cut == 1, np.nan, np.where(prompt == 0, 9.0, count)),
    )
    return [*files, *NARROW]


post_training_run = studies.finished(PostTraining, small_post_training)

# The numbers of different answers after each stage, to the first prompt and to the others.
WHOLE, MATCHED = np.array([[4, 4, 4], [4, 2, 1]]), np.array([[4, 4, 4], [4, 1, 2]])


def of_prompts(numbers, prompts):
    """Conditional-Vendi and -RKE of one prompt of the first kind and some of the second."""
    each = np.repeat(numbers, [1, prompts - 1], axis=0)
    return [np.exp(np.log(each).mean(axis=0)), 1 / np.mean(1 / each, axis=0)]


@pytest.mark.parametrize(
    ("benchmark", "text", "expected"),
    [
        ("one", "whole", of_prompts(WHOLE, 4)),
        ("two", "whole", [[4, 2, 1]] * 2),
        ("both", "whole", of_prompts(WHOLE, 8)),
        ("one", "matched", of_prompts(MATCHED, 3)),
        ("both", "matched", of_prompts(MATCHED, 6)),
    ],
)
def test_the_scores_of_every_part_are_the_known_ones(post_training_run, benchmark, text, expected):
    found = post_training_run.found.sel(benchmark=benchmark, text=text, scale=1, score=PAPERS)
    np.testing.assert_allclose(found.value, expected, rtol=1e-4)
    assert found.model.values.tolist() == ["base", "SFT", "Instruct"]
    one, two, three = np.transpose(expected)
    steps = np.stack([two - one, three - two, three - one], axis=1)
    changes = post_training_run.study.changes(found)
    np.testing.assert_allclose(changes.difference, steps, atol=1e-3)
    assert found.step.values.tolist() == ["base to SFT", "SFT to Instruct", "base to Instruct"]


def test_prompts_that_narrow_lengths_cosines_and_correlations_are_those_of_answers(
    post_training_run,
):
    found = post_training_run.found.sel(scale=1)
    narrower = found.narrower.sel(score="Conditional-Vendi")  # Ties count half.
    np.testing.assert_allclose(narrower.sel(benchmark="two", text="whole"), 1)
    both = narrower.sel(benchmark="both")
    np.testing.assert_allclose(both.sel(text="whole"), (0.5 + 7) / 8)
    np.testing.assert_allclose(both.sel(text="matched"), [5.5 / 6, 0.5 / 6, 5.5 / 6])
    two = found.sel(benchmark="two", text="whole")
    np.testing.assert_allclose(two.words, [40, 20, 10])
    # Different answers are orthogonal: of 12 ordered pairs 0, 4 and 12 are equal.
    np.testing.assert_allclose(two.unlike, [1, 2 / 3, 0], atol=1e-6)
    # One of the different answers is as the prompt.
    np.testing.assert_allclose(two.near, [1 / 4, 1 / 2, 1], rtol=1e-6)
    correlation = found.correlation.sel(benchmark="one", score="Conditional-RKE")
    whole = correlation.sel(text="whole")
    assert whole.sel(model="base").isnull().all()  # All prompts have four answers.
    np.testing.assert_allclose(whole.isel(end=0).sel(model=["SFT", "Instruct"]), 1)
    assert correlation.sel(text="matched").isnull().all()


def test_reweighting_moves_a_rare_answer_as_far_as_the_distance():
    """One answer differs from three equal ones, so that the MMD is sqrt 2 times its gain."""
    kinds = np.repeat([[[0, 1, 1, 1]], [[0, 1, 2, 3]]], 3, axis=1)  # By model and prompt.
    distances = (0.05, 0.1)
    study = PostTraining(widths=widths_of(0.5), distances=distances)
    found = studies.computed(study, pairs_of(5 * np.eye(4)[kinds], ["a", "b"]))[1]
    found = found.reweighted.sel(score=PAPERS)
    share = 1 / 4 + np.array(distances) / np.sqrt(2)
    law = np.stack([share, 1 - share])
    expected = [np.exp(-np.sum(law * np.log(law), axis=0)), 1 / np.sum(law**2, axis=0)]
    np.testing.assert_allclose(found.sel(model="a"), expected, rtol=1e-3)
    np.testing.assert_allclose(found.sel(model="b"), 4, rtol=1e-3)  # No gain.


def test_effects_and_shares_are_those_of_the_prompts_numbers():
    """At order 2 a prompt's number is 1 over the mean of its squared kernel.

    The answers of three stages move further apart, and closer; one of prompt 3 is empty.
    """
    generator = np.random.default_rng(0)
    spread = np.multiply.outer([1.0, 0.7, 0.72], generator.uniform(0.5, 1.5, size=(40, 1, 1)))
    rows = (spread * generator.normal(size=(3, 40, 4, 3))).astype(np.float32).astype(float)
    pairs = pairs_of(rows, ["a", "b", "c"])
    pairs.labels["words"] = np.where(np.arange(480) == 13, 0, 5)
    squares = np.sum((rows[:, :, :, None] - rows[:, :, None]) ** 2, axis=-1)
    squares = np.exp(-squares / 1.2**2)
    numbers = 1 / np.mean(squares, axis=(2, 3))
    setup, found = studies.computed(PostTraining(widths=widths_of(1.2)), pairs)
    assert isinstance(setup.study, PostTraining) and setup.study.counts == {"all": {"whole": 40}}
    unbiased, found = found.sel(score=judged.UNBIASED), found.sel(score="Conditional-RKE")
    for n, values in ((4, unbiased.value), (2, unbiased.half)):
        alike = squares[..., :n, :n][..., ~np.eye(n, dtype=bool)]  # Of two different answers.
        np.testing.assert_allclose(values, 1 / alike.mean(axis=(1, 2)), rtol=1e-4)
    changed = setup.study.changes(found)
    for step, (before, after) in enumerate(((0, 1), (1, 2), (0, 2))):
        changes = numbers[after] - numbers[before]
        np.testing.assert_allclose(found.effect[step], changes.mean() / np.std(changes, ddof=1))
        np.testing.assert_allclose(found.narrower[step], np.mean(changes < 0))
        assert changed.difference[step] == found.value[after] - found.value[before]
        assert changed.p_value[step] == found.p_value[before, after]
    assert found.empty.values.tolist() == [1, 0, 0]
    full = 1 / np.mean(1 / np.delete(numbers, 3, axis=1), axis=1)
    np.testing.assert_allclose(found.full, full)


# Pairs that are the same lie 0.2 to 0.4 apart, those that differ 0.6 to 1.2; one of them, 0.3.
SAME = np.arange(40) % 2 == 1
APART = np.where(SAME, np.linspace(0.2, 0.4, 40), np.linspace(0.6, 1.2, 40))
APART[38] = 0.3


def small_same_answers(folder):
    """Writes 40 pairs of answers, half of them for training; gives the flags."""
    first, towards = np.random.default_rng(0).normal(size=(2, 40, 5))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    files = write(
        folder,
        outputs=first,
        second=first + APART[:, None] * towards,
        same=SAME.astype(int),
        train=(np.arange(40) < 20).astype(int),
        classes=np.where(np.arange(40) < 8, SAME, -1),
    )
    return [*files, *flags(resamples=20)]


same_answers_run = studies.finished(same_answers.SameAnswers, small_same_answers)


@pytest.mark.parametrize("part", ["training", "validation"])
def test_what_is_counted_and_how_far_it_agrees_are_those_of_the_distances(same_answers_run, part):
    rows = slice(0, 20) if part == "training" else slice(20, 40)
    apart, same, bandwidths = APART[rows], SAME[rows], same_answers_run.study.bandwidths
    found = same_answers_run.found.sel(part=part)
    for name, width in bandwidths.items():
        squares = np.exp(-((apart / width) ** 2))
        of = found.sel(width=name)
        expected = [np.mean(2 / (1 + squares[same])), np.mean(2 / (1 + squares[~same]))]
        np.testing.assert_allclose(of.number, expected, rtol=1e-4)
        assert of.counted.item() == pytest.approx(1 / squares.mean(), rel=1e-4)
    above = np.mean(apart[same][:, None] < apart[~same])
    value, low, high = found.auc.sel(judge="effective number").values
    assert value == pytest.approx(above) and low <= value <= high
    assert found.judged.values.tolist() == [20, 20, 20, 20, 8 if part == "training" else 0]
    own = np.exp(-((apart / bandwidths["people"]) ** 2))
    if part == "training":
        assert np.mean(own) == pytest.approx(0.5, rel=1e-4)
        likeliest = cv.bandwidth_from_pairs(np.zeros((20, 1)), apart[:, None], same)
        assert bandwidths["likeliest"] == pytest.approx(likeliest, rel=1e-4)
        assert (found.auc.sel(judge="effective number below 1.5") == 1).all()
        assert found.auc.sel(judge="the benchmark's class", end=0) == 1
        assert found.auc.sel(judge="cosine above the best threshold", end=0) > 0.5
    assert found.auc.sel(judge="equal texts", end=0) == 0.5
    assert found.share.values[0] == found.share_error.values[0] == 0
    assert found.alike.values[-1] == pytest.approx(np.sort(own)[-2:].mean(), rel=1e-4)


def test_areas_thresholds_and_bandwidths_of_a_few_numbers():
    same = np.array([True, False, True, False])
    assert same_answers.area(np.array([3.0, 1.0, 2.0, 2.0]), same) == pytest.approx(3.5 / 4)
    assert np.isnan(same_answers.area(np.array([1.0, 2.0]), np.array([True, True])))
    assert same_answers.best_threshold(np.array([3.0, 1.0, 2.0, 1.5]), same) == 1.75
    # Equal answers that people call different have no part in the bandwidth.
    first, second = np.zeros((6, 1)), np.array([[0.5], [0.7], [2.0], [3.0], [0.0], [9.0]])
    labels = {"same": np.array([1, 1, 0, 0, 0, 1]), "train": np.array([1, 1, 1, 1, 1, 0])}
    pairs = PairedEmbeddings("", first, first, "", labels, {"second": second})
    found, same = judged.bandwidth_of(judged.labelled(pairs)), labels["same"][:4] == 1
    assert found == cv.bandwidth_from_pairs(first[:4], second[:4], same, share=0.5)


@pytest.fixture(scope="module")
def board():
    return leaderboard.board()


def test_the_page_of_the_leaderboard_is_written_from_the_records(board):
    text = leaderboard.PAGE.read_text(encoding="utf-8")
    assert leaderboard.page(text, board) == text
    assert all(f"|{model}|" in text for model in board.models) and len(board.models) >= 28


def test_a_record_that_breaks_the_protocol_is_named(tmp_path):
    path = next(leaderboard.FOLDER.glob("*.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    (result,) = (r for r in record["evaluation_results"] if "details" in r["score_details"])
    details = result["score_details"]["details"]
    (name, rows), *_ = details.items()
    whole = json.loads(rows)
    first = next(iter(whole))
    few = whole | {first: [4, whole[first][1]]}
    for changed in (few, {k: v for k, v in whole.items() if k != first}):
        details[name] = json.dumps(changed)
        (tmp_path / path.name).write_text(json.dumps(record))
        with pytest.raises(ValueError, match=f"{path.name}: .* does not follow novelty-100"):
            leaderboard.board(tmp_path)
    for twice in (path.name, "again.json"):
        (tmp_path / twice).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="is there twice"):
        leaderboard.board(tmp_path)


def test_records_of_shipped_models_are_computed_again(board):
    """Also from half of the answers: each score lies in the interval of the other."""
    whole, half = leaderboard.records(), leaderboard.records(5)
    for model, record in whole.items():
        path = leaderboard.FOLDER / f"{model.replace('/', '--')}.json"
        committed = json.loads(path.read_text(encoding="utf-8"))
        both = zip(record["evaluation_results"], committed["evaluation_results"], strict=True)
        for one, other in both:
            assert one["evaluation_name"] == f"{leaderboard.PROTOCOL}, version 1"
            scores = (r["score_details"]["score"] for r in (one, other))
            assert next(scores) == pytest.approx(next(scores), rel=1e-4)
    ten, five = (b.ranking("conditional", 2) for b in (board, inference.leaderboard(half)))
    for model in whole:
        for one, two in ((five, ten), (ten, five)):
            low, high = one.intervals[model]
            assert low <= two.values[model] <= high
