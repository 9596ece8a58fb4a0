"""Rewards for TRL and verl: what each completion adds to its group, by their documented calls."""

import functools
import types

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram, weighted_entropy

from condvendi_jax.integrations import DiversityReward

WIDTH = 60.0  # Of `fake_encoders.Means`, which also adds up the codes of all letters.
ANSWERS = {"q": ["a", "bb", "abcd"], 7: ["ccc", "ca", "ca"], "r": ["z", "z", "zz"]}
ROWS = [(name, answers[k]) for k in range(3) for name, answers in ANSWERS.items()]


def number(texts, order=2, width=WIDTH, weights=None):
    """The effective number of texts, from eigenvalues in float64."""
    weights = np.ones(len(texts)) if weights is None else weights
    gram = gaussian_gram(fake_encoders.Means().encode(texts), width)
    return np.exp(float(weighted_entropy(gram, weights, order)))


CHOSEN = list(ANSWERS.values())[:2]


def reward(size=3, **options):
    options = {"bandwidth": WIDTH, "encoder": fake_encoders.Means()} | options
    return DiversityReward(num_generations=size, **options)


def call(function, prompts, completions, **more):
    """As `GRPOTrainer` calls it."""
    columns = {"completion_ids": [[0]] * len(prompts), "trainer_state": None, "log_extra": None}
    return function(prompts=prompts, completions=completions, **columns, **more)


def influences(texts, **options):
    """The derivative of the effective number in the weight of a row, by central differences."""
    n, step = len(texts), 1e-5

    def score(row, by):
        weights = np.full(n, (1 - by) / n)
        weights[row] += by
        return number(texts, weights=weights, **options)

    return [(score(row, step) - score(row, -step)) / (2 * step) for row in range(n)]


def test_rewards_are_influences_within_each_group():
    groups = list(ANSWERS.values())
    logged = []
    prompts, texts = zip(*ROWS, strict=True)
    found = call(reward(), prompts, texts, log_metric=lambda *pair: logged.append(pair))
    assert all(type(value) is float for value in found)
    for k, texts_of_k in enumerate(groups):
        assert found[k::3] == pytest.approx(influences(texts_of_k), rel=1e-3, abs=1e-4)
        assert sum(found[k::3]) == pytest.approx(0, abs=1e-5)
    assert logged == [("different_completions", pytest.approx(number(t), rel=1e-4)) for t in groups]


@pytest.mark.parametrize(("order", "width"), [(1, WIDTH), (2, 150.0)])
def test_order_and_bandwidth_of_the_reward(order, width):
    texts = ANSWERS["q"]
    found = call(reward(order=order, bandwidth=width), ["q"] * 3, texts)
    assert found == pytest.approx(influences(texts, order=order, width=width), rel=2e-3, abs=2e-4)
    assert max(found) > 0.01


def test_conversations_are_what_the_assistant_says():
    prompt = [{"role": "user", "content": "q"}]
    said = ({"role": "assistant", "content": text} for text in ANSWERS["q"])
    completions = [[one, {"role": "tool", "content": "x" * k}] for k, one in enumerate(said)]
    found = call(reward(), [prompt] * 3, completions)
    assert found == call(reward(), ["q"] * 3, ANSWERS["q"])
    assert reward().__name__ == "DiversityReward"  # TRL names its logs by it.


@pytest.mark.parametrize("column", [None, "image", "images"])
def test_prompts_are_told_apart_by_the_pictures_in_them(column):
    """TRL makes a copy of a picture for each generation."""
    image = pytest.importorskip("PIL.Image")

    def picture(level):
        return image.new("RGB", (2, 2), (level, 0, 0))

    levels, texts = [10, 20] * 3, [text for pair in zip(*CHOSEN, strict=True) for text in pair]
    parts = [{"type": "text", "text": "What is this?"}]
    prompts, more = [[{"role": "user", "content": list(parts)}] for _ in levels], {}
    if column is None:
        for prompt, level in zip(prompts, levels, strict=True):
            prompt[0]["content"].append({"type": "image", "image": picture(level)})
    else:
        made = [picture(level) for level in levels]
        more = {column: made if column == "image" else [[one] for one in made]}
    found = call(reward(), prompts, texts, **more)
    for k, texts_of_k in enumerate(CHOSEN):
        assert found[k::2] == call(reward(), ["q"] * 3, texts_of_k)
    assert np.ptp(found[::2]) > 0.01


@pytest.mark.filterwarnings("ignore:a prompt has")
def test_completions_without_text_or_company_have_no_reward():
    found = call(reward(), ["q"] * 4 + ["r"] * 2 + ["s"], ["a", " ", "bb", "abcd", "z", "", None])
    assert [value is None for value in found] == [False, True, False, False, True, True, True]
    assert [of for of in found if of is not None] == call(reward(), ["q"] * 3, ANSWERS["q"])
    assert call(reward(), ["q"] * 3, ["", " ", "\n"]) == [None] * 3


def test_equal_completions_have_no_reward_and_are_encoded_once():
    encoder = fake_encoders.Means()
    assert call(reward(encoder=encoder), ["q", "r"] * 3, ["a"] * 6) == [0] * 6
    assert encoder.seen == [["a"]]


def test_a_split_group_warns_once():
    function = reward(4)
    with pytest.warns(UserWarning, match=r"3 completions in this process.*per_device_train_batch"):
        call(function, ["q"] * 3, ANSWERS["q"])
    call(function, ["q"] * 3, ANSWERS["q"])  # Warnings are errors here.
    with pytest.warns(UserWarning, match="has 12 completions"):
        call(reward(8), ["q"] * 12, ANSWERS["q"] * 4)
    call(reward(3), ["q"] * 6, ANSWERS["q"] * 2)  # The prompt was drawn twice.


def test_rewards_in_the_form_of_verl():
    """A batch in any order, with keyword arguments alone; indices count within a data source."""
    rows = [("a", 0, "q"), ("b", 0, 7), ("a", 1, "r")]
    order = np.random.default_rng(0).permutation(9)
    batch = [(source, index, text) for source, index, of in rows for text in ANSWERS[of]]
    batch = [batch[k] for k in order] + [("c", 0, "alone"), ("c", 1, " ")]
    function = functools.partial(reward().compute_score, weight=0.1)  # verl's reward_kwargs.
    with pytest.warns(UserWarning, match="a prompt has 1 completions"):
        found = function(
            data_sources=np.array([source for source, *_ in batch], object),
            solution_strs=[text for *_, text in batch],
            ground_truths=[None] * len(batch),
            extra_infos=np.array([{"index": np.int64(k), "split": "x"} for _, k, _ in batch]),
        )
    assert all(type(value) is float for value in found) and found[9:] == [0, 0]
    by_place = np.empty(9)
    by_place[order] = found[:9]
    for k, (*_, name) in enumerate(rows):
        alone = call(reward(), ["q"] * 3, ANSWERS[name])
        assert by_place[3 * k : 3 * k + 3] == pytest.approx(alone, abs=1e-6)
    assert np.ptp(by_place) > 0.01
    with pytest.raises(ValueError, match="extra_infos: expected an 'index'"):
        function(data_sources=["a"], solution_strs=["x"], ground_truths=[1], extra_infos=[{}])


def test_an_encoder_that_loses_rows_and_groups_of_one_are_refused():
    encoder = types.SimpleNamespace(encode=lambda texts: np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match="zip"):
        call(reward(encoder=encoder), ["q"] * 3, ANSWERS["q"])
    with pytest.raises(ValueError, match="num_generations"):
        reward(1)
