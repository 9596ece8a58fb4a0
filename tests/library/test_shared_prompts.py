"""Models are compared on the prompts that they share; each prompt counts once in every call."""

import itertools

import numpy as np
import pytest
from oracles import difference_p_value
from rates import is_at_most

import condvendi_jax as cv
from condvendi_jax import inference

LABELS = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator(), "orders": [2]}
OPTIONS = LABELS | {"profile": False}


def drawn(rng, prompts, k=6):
    """Answers to prompts: the first 12 have two kinds of answers, the others 30."""
    asked = np.repeat(prompts, k)
    return rng.integers(np.where(asked < 12, 2, 30)), asked


def similarity(answers):
    """U of the answers to one prompt."""
    counts = np.unique(answers, return_counts=True)[1]
    return np.sum(counts * (counts - 1)) / len(answers) / (len(answers) - 1)


def by_prompt(outputs, prompts):
    return {p: similarity(outputs[prompts == p]) for p in np.unique(prompts).tolist()}


def p_value(one, two):
    """Over the prompts that two models share."""
    shared = sorted(one.keys() & two.keys())
    return difference_p_value([one[p] for p in shared], [two[p] for p in shared])


def sample(rng, sets):
    rows = {name: drawn(rng, np.asarray(prompts)) for name, prompts in sets.items()}
    outputs, prompts = ({name: of[k] for name, of in rows.items()} for k in (0, 1))
    return outputs, prompts, {name: by_prompt(*of) for name, of in rows.items()}


def test_two_models_are_scored_and_tested_on_the_prompts_that_both_have():
    sets = {"a": np.arange(20), "b": np.arange(10, 30)}
    outputs, prompts, by_hand = sample(np.random.default_rng(0), sets)
    found = cv.compare(outputs, prompts, **OPTIONS)
    ranking = found.ranking("conditional", 2)
    for name in "ab":
        values = [by_hand[name][p] for p in range(10, 20)]
        np.testing.assert_allclose(ranking.values[name], 1 / np.mean(values), rtol=1e-5)
    expected = p_value(by_hand["a"], by_hand["b"])
    assert ranking.differences[0].p_value == pytest.approx(expected, rel=1e-3)
    assert found.n == {"a": 60, "b": 60} and found.reason is None
    points = {name: of[:, None].astype(np.float32) for name, of in outputs.items()}
    along = cv.profile(points, prompts, output_kernel=cv.Gaussian(0.1), multiples=[1.0])
    for value, name in zip(along.values.conditional[:, 0], "ab", strict=True):
        assert value == pytest.approx(ranking.values[name], rel=1e-5)
    assert found.shared_prompts == ({"a": 20, "b": 20}, 10, {("a", "b"): 10})
    words = "On the 10 prompts that all models answer; other prompts left out: 10 (a) and 10 (b)."
    assert words in str(found) and words in cv.report.latex(found, long=True).paragraph
    assert found.as_dict()["shared_prompts"]["pairs"] == [["a", "b", 10]]


def test_three_models_are_tested_two_by_two_on_what_each_two_share():
    sets = {"a": np.arange(20), "b": np.arange(10, 30), "c": np.r_[0:10, 20:30]}
    outputs, prompts, by_hand = sample(np.random.default_rng(6), sets)
    found = cv.compare(outputs, prompts, **LABELS)
    ranking = found.ranking("conditional", 2)
    alone = []
    for one, two in itertools.combinations("abc", 2):
        difference = ranking.difference(one, two)
        alone.append(p_value(by_hand[one], by_hand[two]))
        assert difference.p_value == pytest.approx(alone[-1], rel=1e-3)
    smallest = min(d.adjusted for d in ranking.differences)  # By Holm, of three.
    assert smallest == pytest.approx(min(3 * min(alone), 1), rel=1e-3)
    for name in "abc":  # Scores are of the model's own prompts, and the text says so.
        own = 1 / np.mean([*by_hand[name].values()])
        np.testing.assert_allclose(ranking.values[name], own, rtol=1e-5)
    words = "Prompts differ: scores are of each model's own, 20 (a), 20 (b) and 20 (c)"
    assert words in str(found)
    points = {name: of[:, None].astype(np.float32) for name, of in outputs.items()}
    along = cv.compare(points, prompts, output_kernel=cv.Gaussian(0.1), orders=[2]).profile
    assert along.reason == "all models together share 0 prompts"


def test_models_without_a_shared_prompt_have_no_winner():
    """Unless their prompts are samples of one population."""
    sets = {"a": np.arange(12), "b": np.arange(12, 24)}
    outputs, prompts, _ = sample(np.random.default_rng(2), sets)
    found = cv.compare(outputs, prompts, **OPTIONS)
    for ranking in found.rankings:
        assert not ranking.tested and np.isnan(ranking.differences[0].p_value)
    assert "Prompts differ, so scores do not show which model is more diverse" in str(found)
    assert "one_population=True" in found.reason and " > " not in str(found)
    points = {name: of[:, None].astype(np.float32) for name, of in outputs.items()}
    along = cv.profile(points, prompts, output_kernel=cv.Gaussian(0.5), multiples=[1.0])
    assert along.reason == found.reason
    found = cv.compare(outputs, prompts, **OPTIONS, one_population=True)
    assert found.ranking("conditional", 2).letters == {"b": "a", "a": "b"}
    assert found.shared_prompts is None
    with pytest.raises(ValueError, match="one_population: expected True or False"):
        cv.compare(outputs, prompts, **OPTIONS, one_population="yes")


def test_a_prompt_with_one_answer_of_a_model_counts_in_no_model():
    rng = np.random.default_rng(3)
    outputs, prompts, by_hand = sample(rng, {"a": np.arange(12), "b": np.arange(12)})
    place = np.arange(72) % 6  # Of prompt 3 one answer is left, of prompt 4 two.
    lost = (prompts["b"] == 3) & (place > 0) | (prompts["b"] == 4) & (place > 1)
    outputs["b"], prompts["b"] = outputs["b"][~lost], prompts["b"][~lost]
    ranking = cv.compare(outputs, prompts, **OPTIONS).ranking("conditional", 2)
    rest = [of for p, of in by_hand["a"].items() if p != 3]
    np.testing.assert_allclose(ranking.values["a"], 1 / np.mean(rest), rtol=1e-5)


@pytest.mark.parametrize("lost", [pytest.param("prompts", marks=pytest.mark.slow), "answers"])
def test_a_model_does_not_differ_from_itself(lost):
    """At the level 5%; the mean over answers, not prompts, differs in nearly all draws."""
    rng, different = np.random.default_rng(4), 0
    for _ in range(30):
        all_prompts, most = np.arange(24), np.arange(144) % 6 > 2
        sets = {"a": all_prompts, "b": all_prompts + 8 * (lost == "prompts")}
        outputs, prompts, _ = sample(rng, sets)
        if lost == "answers":  # Half of those to wide prompts, or to narrow ones.
            kept = {"a": most | (prompts["a"] >= 12), "b": most | (prompts["b"] < 12)}
            outputs = {name: of[kept[name]] for name, of in outputs.items()}
            prompts = {name: of[kept[name]] for name, of in prompts.items()}
        found = cv.compare(outputs, prompts, **OPTIONS).ranking("conditional", 2)
        different += found.differences[0].adjusted < 0.05
    assert is_at_most(different / 30, 30, 0.05)


@pytest.mark.slow
def test_swapped_numbers_of_answers_are_brought_to_one_design_at_order_1():
    """Six and four answers, and four and six: sorted they are the same, by prompt they are not."""
    rng = np.random.default_rng(5)
    numbers = {"a": np.repeat([6, 4], 8), "b": np.repeat([4, 6], 8)}
    prompts = {name: np.repeat(np.arange(16), of) for name, of in numbers.items()}
    outputs = {name: rng.integers(np.where(of < 8, 2, 30)) for name, of in prompts.items()}
    found = cv.compare(outputs, prompts, **OPTIONS | {"orders": [1]})
    assert found.at == (16, 4)
    same = cv.compare(outputs, dict.fromkeys("ab", prompts["a"]), **OPTIONS | {"orders": [1]})
    assert same.at is None


@pytest.mark.slow
def test_order_1_of_prompts_with_one_answer_each_counts_the_prompts():
    """Whatever their numbers: 12, and so for random halves of the answers."""
    prompts = np.repeat(np.arange(12), np.r_[2:14])
    found = cv.evaluate(prompts, prompts, orders=[1], errors=False).order(1)
    assert float(found.decomposition.vendi) == pytest.approx(12, rel=1e-4)
    assert found.slope.vendi == pytest.approx(0, abs=1e-2)


def test_all_calls_that_ask_for_different_answers_to_a_prompt_agree():
    """One over the mean over prompts of U, whatever the numbers of answers."""
    rng = np.random.default_rng(0)
    numbers = rng.permutation(np.repeat([4, 6, 9], 4))
    prompts = np.repeat(np.arange(12), numbers)
    outputs = rng.integers(np.where(prompts % 2, 3, 12))[:, None].astype(np.float32)
    expected = 1 / np.mean([*by_prompt(outputs[:, 0], prompts).values()])
    kernels = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Indicator()}
    pairs, wide = cv.Pairs(outputs, prompts, **kernels), kernels["output_kernel"]
    good = {"quality": np.ones(prompts.size), "at_least": 0.5, "draws": 2}
    evaluated = cv.evaluate(outputs, prompts, **kernels, orders=[2], **good)
    table = [of.similarity for of in cv.prompt_table(pairs, order=2).prompts]
    along = cv.profile(outputs, prompts, output_kernel=wide, multiples=[1.0])
    monitor = cv.monitor(outputs, prompts, output_kernel=wide)
    models, options = {"a": outputs, "b": outputs}, {"orders": [2], "profile": False}
    compared = cv.compare(models, prompts, **kernels, **options)
    answers = {
        "evaluate": evaluated.order(2).unbiased.conditional,
        "decompose": cv.decompose(pairs, order=2, unbiased=True).conditional,
        "prompt_table": 1 / np.mean(table),
        "finite_sample_interval": inference.finite_sample_interval(pairs).score,
        "quality": evaluated.quality.diversity.value,
        "profile": along.values.conditional[0, 0],
        "plan": 1 / cv.plan(evaluated).spread.similarity,
        "monitor": monitor.look(outputs).looks[0].score,
        "compare": compared.ranking("conditional", 2).values["a"],
    }
    for name, value in answers.items():
        assert value == pytest.approx(expected, rel=1e-5), name
    given = 1 / np.mean([1 / k + (1 - 1 / k) * u for k, u in zip(numbers, table, strict=True)])
    assert evaluated.order(2).given.value == pytest.approx(given, rel=1e-5)
    papers = np.sum(numbers**2) / np.sum(numbers * (1 + (numbers - 1) * np.array(table)))
    assert evaluated.order(2).decomposition.conditional == pytest.approx(papers, rel=1e-5)


@pytest.mark.filterwarnings("ignore:(prompts|the standard error)")
@pytest.mark.parametrize("asked", [None, True])
def test_two_shared_rows_have_no_profile(asked):
    """One model answers two prompts, the other one six: without a third row there are no errors."""
    rng, prompts = np.random.default_rng(0), {"a": np.array([0, 0, 1, 1]), "b": np.arange(6)}
    models = {name: rng.normal(size=(len(of), 2)).astype("f4") for name, of in prompts.items()}
    kernel = cv.Gaussian(1.0)
    found = cv.compare(models, prompts, output_kernel=kernel, orders=[2], profile=asked)
    assert found.shared_prompts.one_set and found.n == {"a": 4, "b": 2}
    assert found.profile is None and not found.failed
