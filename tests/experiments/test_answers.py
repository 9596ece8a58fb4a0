"""The study of several answers a prompt, on models whose numbers of answers are known."""

import numpy as np
import pytest
import studies
from small import flags, write, write_answers
from studies import execute

import condvendi_jax as cv
from experiments import data
from experiments.language_models import judged
from experiments.language_models.answers import Answers, benchmark_of, class_rewards

pytestmark = pytest.mark.slow


def small(folder, seed):
    files = write_answers(folder, seed, {"few": 1, "some": 2, "many": 4})
    return [*files, *flags(bandwidth=1, scales="1,2", resamples=20)]


KNOWN = {"few": 1, "some": 2, "many": 4}

finished = studies.finished(Answers)


@pytest.fixture(scope="module")
def whole(finished):
    return finished.found.sel(text="whole", scale=1)


def test_conditional_scores_are_the_known_numbers_of_each_text(finished):
    for text, numbers in (("whole", [1, 2, 4]), ("cut", [4, 2, 1])):
        found = finished.found.sel(text=text, scale=1, model=list(KNOWN))
        for score in ("Conditional-Vendi", "Conditional-RKE"):
            np.testing.assert_allclose(found.value.sel(score=score), numbers, rtol=1e-4)
    assert (finished.study.prompts, finished.study.of_each) == (6, 4)


def test_the_benchmark_is_that_of_the_labels(whole):
    numbers = np.array([KNOWN[m] for m in whole.model.values.tolist()])
    np.testing.assert_allclose(whole.benchmark.sel(judge="classes"), numbers)
    np.testing.assert_allclose(whole.words, 10 * numbers)
    # The first of one class, and all answers of four, are worth their reward of 2.
    found = whole.benchmark.sel(judge="utility", model=["few", "many"])
    np.testing.assert_allclose(found, [2 / (1 + 0.8 + 0.64 + 0.512), 2])


def test_scores_agree_with_the_classes_and_reversed_where_they_are_cut(finished):
    for text, sign in (("whole", 1), ("cut", -1)):
        found = finished.found.sel(text=text, scale=1, judge="classes")
        scores = list(judged.PAPERS)
        np.testing.assert_allclose(found.sel(measure=scores).over_models, sign)
        np.testing.assert_allclose(found.sel(score=scores).over_prompts, sign)
        np.testing.assert_allclose(found.sel(score=scores).swept.sel(multiple=1), sign)
        information = finished.found.over_models.sel(text=text, scale=2, measure="Information-RKE")
        np.testing.assert_allclose(information.sel(judge="classes"), -sign)
        first, last = ("many", "few") if sign > 0 else ("few", "many")
        assert found.highest.sel(score=scores, model=first).min() == 1
        assert found.lowest.sel(score=scores, model=last).min() == 1


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
        own = found.sel(score=score)
        values, errors, letters = (
            [of[name] for name in names]
            for of in (ranking.values, ranking.standard_errors, ranking.letters)
        )
        np.testing.assert_allclose(own.value, values, rtol=1e-4)
        np.testing.assert_allclose(own.error, errors, rtol=0.05)
        assert own.letters.values.tolist() == letters
        for d in ranking.differences:
            one = own.sel(model=d.first, other=d.second)
            np.testing.assert_allclose(one.difference_error, d.standard_error, rtol=0.05)
            np.testing.assert_allclose(
                [one.difference, one.p_value], [d.value, d.adjusted], 0, 0.05
            )
    ends = [compared[2].intervals[name] for name in names]
    np.testing.assert_allclose(found.interval.sel(score=judged.UNBIASED), ends, rtol=1e-5)


def test_the_order_of_models_turns_where_the_bandwidth_is_swept(tmp_path):
    """Two answers that are far apart are more than four that are near, at wide bandwidths."""
    near, far = 5 / np.sqrt(2) * np.eye(4), 40 * np.eye(4)[[0, 0, 1, 1]]
    outputs = np.concatenate([np.tile(near, (6, 1)), np.tile(far, (6, 1))]).astype(np.float32)
    labels = {
        "models": np.repeat(["near", "far"], 24),
        "prompt": np.tile(np.repeat(np.arange(6), 4), 2),
        "classes": np.concatenate([np.tile(np.arange(4), 6), np.tile([0, 0, 1, 1], 6)]),
    }
    pairs = data.PairedEmbeddings("", outputs, np.zeros((48, 2)), "", labels)
    study = Answers(widths=judged.Widths(bandwidth=1.0, scales=(1.0,)), resamples=2)
    found = studies.computed(study, pairs)[1].swept.sel(score=list(judged.PAPERS))
    np.testing.assert_allclose(found.sel(multiple=[1, 2, 2**1.5]), 1)
    np.testing.assert_allclose(found.sel(multiple=8), -1)


def test_a_class_that_was_there_before_is_worth_nothing():
    labels = {
        "models": np.repeat("m", 4),
        "prompt": np.zeros(4, int),
        "classes": np.array([1, 1, 0, 1]),
        "rewards": np.array([10, 10, 5, 10]),
    }
    pairs = data.PairedEmbeddings("", np.zeros((4, 1)), np.zeros((4, 1)), "", labels)
    found = benchmark_of(pairs, np.arange(4).reshape(1, 1, 4))
    assert found["classes"].item() == 2
    expected = (10 + 0.64 * 5) / (1 + 0.8 + 0.64 + 0.512)
    assert found["utility"].item() == pytest.approx(expected)
    # The benchmark gives a later answer of a class 0: all have the reward of the first.
    rewards = class_rewards(np.array([1, 1, 0, 1]), np.array([7.0, 0.0, 3.0, 0.0]))
    assert rewards.tolist() == [7, 7, 3, 7]


def test_good_and_different_answers_are_counted_by_classes_and_by_embeddings(tmp_path):
    """All rewards of `small_run` are 2: with a lower bar the number is that of the classes."""
    run = execute(Answers, tmp_path, *small(tmp_path, 0), "--at_least=2")
    found = run.found.sel(text="whole", scale=1)
    numbers = np.array([KNOWN[m] for m in found.model.values.tolist()])
    np.testing.assert_allclose(found.good.transpose("source", "model"), [numbers, numbers], 1e-4)
    np.testing.assert_allclose(found.good_share, 1)
    assert found.reversed == 0 and found.one_order <= found.apart.min()


def test_models_of_one_family_are_resampled_together(finished, tmp_path):
    flags = small(tmp_path, 0)
    write(tmp_path, families=np.repeat("x", 72))
    one = execute(Answers, tmp_path, *flags, f"--families={tmp_path / 'families.txt'}")
    of_one, of_each = (run.found.over_models.sel(scale=2, text="whole") for run in (one, finished))
    value, low, high = of_one.sel(measure="Vendi", judge="classes").values
    assert value == low == high
    names = "claude-3-5-haiku@20241022", "gemma-2-2b-it", "Llama-3.3-70B-Instruct", "mine"
    families = ["Claude 3", "Gemma 2", "Llama 3", "mine"]
    assert [judged.family_of(name) for name in names] == families
    assert one.study.families == ("x",) * 3 and set(finished.study.families) == set(KNOWN)
    np.testing.assert_allclose(of_one.isel(end=0), of_each.isel(end=0))
