"""The study of several answers a prompt, on models whose numbers of answers are known."""

import numpy as np
import pytest
import studies
from small import small_run, write, write_answers
from studies import execute

import condvendi_jax as cv
from experiments import data
from experiments.language_models import judged
from experiments.language_models.answers import (
    Answers,
    benchmark_of,
    class_rewards,
    families,
    partial,
    size_of,
)

pytestmark = pytest.mark.slow

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
        np.testing.assert_allclose(found.of_all.sel(measure="Information-RKE"), 6, rtol=1e-3)
        np.testing.assert_allclose(found.of_prompt, np.tile(np.array(numbers)[:, None], (2, 1, 6)))
    assert (finished.study.prompts, finished.study.of_each) == (6, 4)


def test_unbiased_scores_are_one_over_the_share_of_equal_pairs_and_few_answers_have_them(whole):
    """Of four answers, of which two and two are equal, a third of the pairs are."""
    found = whole.sel(model=list(KNOWN))
    np.testing.assert_allclose(1 / found.unbiased.isel(end=0), [1, 1 / 3, 0], atol=1e-6)
    few = found.fewer.sel(model="few", kind=["papers' score", "unbiased"])
    np.testing.assert_allclose(few, 1)
    assert found.fewer.sel(model="many", kind="papers' score").item() == pytest.approx(2)


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
        np.testing.assert_allclose(found.sel(measure=list(judged.SCORES)).over_models, sign)
        np.testing.assert_allclose(found.over_prompts, sign)
        np.testing.assert_allclose(found.swept.sel(multiple=1), sign)
    # The length says the same as the classes, so that nothing is left.
    assert finished.found.given_length.sel(measure="Conditional-RKE").isnull().all()


def oracle(rows, width):
    """Conditional-Vendi and -RKE of `[prompts, answers, d]` by whole matrices, in float64."""
    flat = rows.reshape(-1, rows.shape[-1]).astype(float)
    prompt = np.repeat(np.arange(len(rows)), rows.shape[1])
    gram_x = np.exp(-np.sum((flat[:, None] - flat) ** 2, axis=2) / (2 * width**2))
    gram_t = (prompt[:, None] == prompt).astype(float)
    found = []
    for order in (1, 2):
        entropy = []
        for gram in (gram_x * gram_t, gram_t):
            p = np.linalg.eigvalsh(gram / len(flat))
            p = p[p > 1e-15]
            entropy.append(-np.log(np.sum(p**2)) if order == 2 else -np.sum(p * np.log(p)))
        found.append(np.exp(entropy[0] - entropy[1]))
    return found


def test_entropies_of_prompts_give_the_conditional_scores_of_all():
    rows = np.random.default_rng(0).normal(size=(2, 5, 4, 3))
    found = judged.conditional(judged.entropies(rows, 1.3))
    np.testing.assert_allclose(found.T, [oracle(of, 1.3) for of in rows], rtol=1e-9)


def test_models_are_told_apart_as_the_library_does():
    """Scores, errors, p-values and letters are those of `compare` under equal prompts."""
    generator = np.random.default_rng(1)
    spread = np.array([1.0, 0.97, 0.5])[:, None, None, None]
    rows = (spread * generator.normal(size=(3, 60, 4, 2))).astype(np.float32)
    names = ["a", "b", "c"]
    found = judged.ranked(judged.entropies(rows, 1.0), names)
    prompts = np.repeat(np.arange(60, dtype=np.float32), 4)[:, None]
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Indicator()}
    models = dict(zip(names, rows.reshape(3, 240, 2), strict=True))
    compared = cv.compare(models, prompts, **kernels, profile=False, unbiased=False)
    for score, order in zip(judged.SCORES, (1, 2), strict=True):
        ranking, own = compared.ranking("conditional", order), found.sel(score=score)
        for name in names:
            one = own.sel(model=name)
            assert one.value.item() == pytest.approx(ranking.values[name], rel=1e-4)
            assert one.error.item() == pytest.approx(ranking.standard_errors[name], rel=0.05)
            assert one.letters.item() == ranking.letters[name]
        for d in ranking.differences:
            one = own.sel(model=d.first, other=d.second)
            assert one.difference.item() == pytest.approx(d.value, abs=1e-3)
            assert one.difference_error.item() == pytest.approx(d.standard_error, rel=0.05)
            assert one.p_value.item() == pytest.approx(d.adjusted, abs=0.05)
    assert (found.p_value.sel(model="a", other="c") < 1e-3).all()


def test_the_correlation_over_prompts_is_that_of_resampled_scores(finished, tmp_path):
    """Where models differ in some prompts alone, its interval has a width."""
    flags = small_run(Answers, tmp_path, 0)
    classes = np.load(tmp_path / "classes.npy")
    prompt, model = np.load(tmp_path / "prompt.npy"), (tmp_path / "models.txt").read_text().split()
    # To one prompt, "few" gives four classes and "many" one: its score and classes disagree there.
    odd = prompt == 0
    classes[odd & (np.array(model) == "many")] = 0
    classes[odd & (np.array(model) == "few")] = np.arange(4)
    np.save(tmp_path / "classes.npy", classes)
    run = execute(Answers, tmp_path, *flags, "--scales=1", "--resamples=200")
    found = run.found.sel(text="whole", judge="classes")
    value, low, high = found.over_prompts.isel(score=0, scale=0).values
    assert low < value <= high
    assert set(Answers.figures([run])) == set(Answers.drawings)


def test_the_order_of_models_turns_where_the_bandwidth_is_swept(tmp_path):
    """Two answers that are far apart are more than four that are near, at wide bandwidths."""
    near, far = 5 / np.sqrt(2) * np.eye(4), 40 * np.eye(4)[[0, 0, 1, 1]]
    of_both = np.concatenate([np.tile(near, (6, 1)), np.tile(far, (6, 1))])
    flags = write(
        tmp_path,
        outputs=of_both,
        prompts=np.zeros((48, 2)),
        models=np.repeat(["near", "far"], 24),
        prompt=np.tile(np.repeat(np.arange(6), 4), 2),
        classes=np.concatenate([np.tile(np.arange(4), 6), np.tile([0, 0, 1, 1], 6)]),
    )
    run = execute(Answers, tmp_path, *flags, "--bandwidth=1", "--scales=1", "--resamples=2")
    found = run.found.swept.squeeze()
    np.testing.assert_allclose(found.sel(multiple=[1, 2, 2**1.5]), 1)
    np.testing.assert_allclose(found.sel(multiple=8), -1)


def test_answers_are_ordered_by_model_and_prompt():
    prompt = np.array([7, 2, 2, 7, 2, 7, 7, 2])
    labels = {"models": np.repeat(["b", "a"], 4), "prompt": prompt}
    pairs = data.PairedEmbeddings("", np.zeros((8, 1)), np.zeros((8, 1)), "", labels)
    rows, prompts = judged.by_prompt(pairs)
    assert rows.tolist() == [[[1, 2], [0, 3]], [[4, 7], [5, 6]]]
    assert prompts.tolist() == [2, 7]


def test_partial_correlations_of_three_normal_variables():
    generator = np.random.default_rng(0)
    z, a, b = generator.normal(size=(3, 1000))
    x, y = z + a, z + b - 0.5 * a
    r = np.corrcoef([x, y, z])
    residual = [v - z * (v @ z) / (z @ z) for v in (x - x.mean(), y - y.mean())]
    expected = np.corrcoef(residual)[0, 1]
    found = partial(r[0, 1], r[0, 2], r[1, 2])
    assert found == pytest.approx(expected, abs=5e-3)


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


def test_all_answers_of_a_class_have_the_reward_of_its_first():
    found = class_rewards(np.array([[1, 1, 0, 1]]), np.array([[7.0, 0.0, 3.0, 0.0]]))
    assert found.tolist() == [[7, 7, 3, 7]]


def test_good_and_different_answers_are_counted_by_classes_and_by_embeddings(tmp_path):
    """All rewards of `small_run` are 2: with a lower bar the number is that of the classes."""
    run = execute(Answers, tmp_path, *small_run(Answers, tmp_path, 0), "--at_least=2")
    found = run.found.sel(text="whole", scale=1)
    numbers = np.array([KNOWN[m] for m in found.model.values.tolist()])
    np.testing.assert_allclose(found.good.transpose("source", "model"), [numbers, numbers], 1e-4)
    np.testing.assert_allclose(found.good_share, 1)
    np.testing.assert_allclose(found.good_correlation.sel(against="classes"), 1)


def test_sizes_and_families_are_read_from_names():
    assert size_of("Llama-3.2-1B-Instruct") == ("Llama-3", 1)
    assert size_of("command-r7b-12-2024") == ("command-r", 7)
    assert size_of("gpt-4o-2024-11-20") is None and size_of("x-2bit") is None
    names = ["gemma-2-27b-it", "gemma-2-2b-it", "gemma-3-1b-it", "Llama-3.3-70B", "Llama-3.1-8B"]
    assert families(names) == {
        "gemma-2": ["gemma-2-2b-it", "gemma-2-27b-it"],
        "Llama-3": ["Llama-3.1-8B", "Llama-3.3-70B"],
    }


def test_ones_own_answers_need_a_bandwidth_and_as_many_to_every_prompt(tmp_path):
    flags = small_run(Answers, tmp_path, 0)
    with pytest.raises(ValueError, match="--bandwidth: your own embeddings need one"):
        execute(Answers, tmp_path, *[flag for flag in flags if "--bandwidth" not in flag])
    prompt = np.load(tmp_path / "prompt.npy")
    np.save(tmp_path / "prompt.npy", np.where(prompt == 1, 0, prompt))
    with pytest.raises(ValueError, match="--prompt: expected at least two answers of each model"):
        execute(Answers, tmp_path, *flags)


def test_without_labels_of_a_benchmark_the_scores_remain(tmp_path):
    names = ("classes", "rewards", "words", "truncated")
    write_answers(tmp_path, 0, KNOWN)
    flags = [f for f in small_run(Answers, tmp_path, 0) if not any(f"--{n}=" in f for n in names)]
    run = execute(Answers, tmp_path, *flags)
    assert run.study.texts == ("whole",) and run.found.value.notnull().all()
    assert run.found.over_models.isnull().all()
    assert set(Answers.figures([run])) == set(Answers.drawings)
