"""The metric for Inspect and the reward for TRL: by their documented calls, and on Inspect."""

import functools
import gc
import importlib
import itertools
import logging
import math
import sys
import types

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram, weighted_entropy

import condvendi_jax as cv
from condvendi_jax.integrations import DiversityReward

NAMES = ["answer_diversity" + end for end in ("", "_stderr", "_low", "_high")]
ADAPTER = "condvendi_jax.integrations.inspect_ai"
WIDTH = 60.0  # Of `fake_encoders.Means`, which also adds up the codes of all letters.


def adapter():
    return importlib.import_module(ADAPTER)


def squares(texts, width=WIDTH):
    """The squared kernel of all pairs of texts, `[n, n]`."""
    return gaussian_gram(fake_encoders.Means().encode(texts), width) ** 2


def own(texts, order=2, width=WIDTH, weights=None):
    """The effective number of texts, from eigenvalues in float64."""
    weights = np.ones(len(texts)) if weights is None else weights
    return np.exp(float(weighted_entropy(np.sqrt(squares(texts, width)), weights, order)))


def similarity(texts, width=WIDTH):
    """The mean squared kernel of two different texts."""
    k = len(texts)
    return (squares(texts, width).sum() - k) / (k * (k - 1))


@pytest.fixture
def inspect_ai(monkeypatch):
    """What its documents say of `@metric(scores=...)`: it passes all parameters on."""
    seen = []

    def metric(*, name, scores):
        assert (name, scores) == ("answer_diversity", "unreduced")
        return lambda make: lambda **given: seen.append(given) or make(**given)

    scorer = types.SimpleNamespace(metric=metric, scorer=lambda **_: lambda make: make)
    monkeypatch.setitem(sys.modules, "inspect_ai", types.ModuleType("inspect_ai"))
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", scorer)
    sys.modules.pop(ADAPTER, None)
    yield seen
    sys.modules.pop(ADAPTER, None)


def scores(*answers):
    """Of (sample, answer)."""
    score = types.SimpleNamespace
    return [
        score(sample_id=name, score=score(answer=answer, metadata=None)) for name, answer in answers
    ]


@pytest.fixture
def measure(inspect_ai, tmp_path):
    def measure(answers, encoder="fake_encoders:Means", times=1, **options):
        options = {"bandwidth": WIDTH, "cache": str(tmp_path), "encoder": encoder} | options
        metric = adapter().answer_diversity(**options)
        for _ in range(times):  # Inspect also calls it while samples come in.
            found = metric(scores(*answers))
        assert list(found) == NAMES
        return tuple(found.values())[:2]

    return measure


ANSWERS = {"q": ["a", "bb", "abcd"], 7: ["ccc", "ca", "ca"], "r": ["z", "z", "zz"]}
# The sample "7" is not the sample 7.
ROWS = [({"r": "7"}.get(name, name), of[k]) for k in range(3) for name, of in ANSWERS.items()]


def test_conditional_score_is_a_mean_over_the_samples(measure):
    harmonic = 1 / np.mean([similarity(texts) for texts in ANSWERS.values()])
    geometric = np.exp(np.mean([np.log(own(texts, 1)) for texts in ANSWERS.values()]))
    assert measure(ROWS)[0] == pytest.approx(harmonic, rel=1e-4)
    assert measure(ROWS, order=1)[0] == pytest.approx(geometric, rel=1e-4)
    assert measure(ROWS, bandwidth=9.0)[0] == pytest.approx(
        1 / np.mean([similarity(texts, 9.0) for texts in ANSWERS.values()]), rel=1e-4
    )


def test_the_error_counts_samples_as_independent(measure):
    """A jackknife over the samples: each leaves with all of its answers."""
    found = np.array([similarity(texts) for texts in ANSWERS.values()])
    without = (found.sum() - found) / 2
    error = np.sqrt(2 / 3 * np.sum((without - without.mean()) ** 2))
    assert measure(ROWS)[1] == pytest.approx(error / found.mean() ** 2, rel=1e-3)


def test_where_all_answers_differ_it_is_nan_and_says_so(measure, caplog):
    rows = [(name, text) for name in "qrs" for text in ("a", "bb", "abcd")]
    assert math.isnan(measure(rows, bandwidth=1e-3)[0])
    assert "NaN, since nearly all answers to a prompt differ" in caplog.text


def test_scores_that_hold_no_answer_are_left_out_and_logged(measure, caplog):
    rows = [*ROWS, ("q", None), ("q", " \u200b"), (None, "lost"), ("s", ""), ("q", "<think>cut")]
    assert measure(rows, times=2) == measure(ROWS)
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "left out are 5 of 14 rows: no prompt or no answer" in caplog.text


def test_reasoning_is_removed_unless_it_is_kept(measure):
    rows = [(name, f"<think>{text * 9}</think>\n{text}") for name, text in ROWS]
    assert measure(rows) == measure(ROWS)
    assert measure(rows, clean=False)[0] > measure(ROWS)[0] + 0.01


@pytest.mark.parametrize("rows", [[("q", "a"), ("r", "b")], [("q", None)]])
def test_without_two_answers_to_a_sample_it_is_nan(measure, rows, caplog):
    assert all(map(math.isnan, measure(rows)))
    assert (
        "no prompt has two answers. Ask for more answers to each prompt: epochs=10" in caplog.text
    )


def test_bad_arguments_are_refused_at_once(measure):
    for options, words in (
        ({"bandwidth": 0}, "bandwidth"),
        ({"order": -1}, "order"),
        ({"encoder": "fake_encoders:Absent"}, "has no attribute"),
    ):
        with pytest.raises(ValueError, match=words):
            measure(ROWS, **options)


def test_inspect_keeps_the_parameters(inspect_ai):
    options = {"bandwidth": 1.0, "order": 3, "encoder": "fake_encoders:Means", "cache": "folder"}
    adapter().answer_diversity(**options)
    assert inspect_ai[1:] == [options]  # The first is the scorer's.


def test_inspect_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", None)
    sys.modules.pop(ADAPTER, None)
    with pytest.raises(ValueError, match=r"pip install -e '.\[records\]'"):
        adapter().answer_diversity(bandwidth=1.0)


@pytest.mark.filterwarnings("ignore")  # Those of Inspect's own dependencies.
@pytest.mark.parametrize("epochs", [1, 3])
def test_inspect_evaluates_it(tmp_path, epochs):
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    from inspect_ai import dataset, model, scorer

    diversity = adapter().answer_diversity
    metric = diversity(bandwidth=WIDTH, encoder="fake_encoders:Means", cache=str(tmp_path))

    @scorer.scorer(metrics=[scorer.mean(), metric])
    def said():
        async def score(state, target):
            return scorer.Score(value=1, answer=state.output.completion)

        return score

    def outputs():
        for _, text in itertools.cycle(ROWS):
            output = model.ModelOutput.from_content("mockllm/model", text)
            output.usage = model.ModelUsage()
            yield output

    def given(persona):
        return [model.ChatMessageSystem(content=persona), model.ChatMessageUser(content="q?")]

    # The second and the third sample have one input.
    samples = [dataset.Sample(input=given("be"), id="q")]
    samples += [dataset.Sample(input=given("act"), id=name) for name in ("7", "r")]
    task = inspect_ai.Task(dataset=samples, scorer=said())
    (log,) = inspect_ai.eval(
        task,
        model=model.get_model("mockllm/model", custom_outputs=outputs()),
        **{"epochs": epochs, "max_samples": 1, "display": "none", "log_dir": str(tmp_path)},
    )
    gc.collect()  # What it left open warns here, where that is ignored.
    assert log.status == "success"
    found = log.results.scores[-1].metrics["answer_diversity"]
    assert found.params["bandwidth"] == WIDTH
    if epochs == 1:
        assert math.isnan(found.value)
        return
    answers = {}
    for sample in log.samples:
        answers.setdefault(sample.id, []).append(sample.output.completion)
    harmonic = 1 / np.mean([similarity(texts) for texts in answers.values()])
    assert found.value == pytest.approx(harmonic, rel=1e-4)
    # The reader of logs sees the same prompts and answers, also in a log written as JSON.
    inspect_ai.log.write_eval_log(log, str(tmp_path / "log.json"))
    for path in (log.location, tmp_path / "log.json"):
        records = cv.read_records(path)
        ((prompts, texts),) = zip(records.prompts.values(), records.answers.values(), strict=True)
        assert "system: be\n\nuser: q?" in prompts
        rows = np.unique(prompts, return_inverse=True)[1][:, None]
        outputs = fake_encoders.Means().encode(texts)
        kernels = {"output_kernel": cv.Gaussian(WIDTH), "prompt_kernel": cv.Indicator()}
        read = cv.conditional_rke(outputs, rows, **kernels, unbiased=True)
        assert read == pytest.approx(found.value, rel=1e-6)


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
        return own(texts, weights=weights, **options)

    return [(score(row, step) - score(row, -step)) / (2 * step) for row in range(n)]


def test_rewards_are_influences_within_each_group():
    groups = list(ANSWERS.values())
    logged = []
    prompts, texts = zip(*ROWS, strict=True)
    found = call(reward(), prompts, texts, log_metric=lambda *pair: logged.append(pair))
    assert all(type(value) is float for value in found)
    for k, own_texts in enumerate(groups):
        assert found[k::3] == pytest.approx(influences(own_texts), rel=1e-3, abs=1e-4)
        assert sum(found[k::3]) == pytest.approx(0, abs=1e-5)
    assert logged == [("answer_diversity", pytest.approx(own(t), rel=1e-4)) for t in groups]


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
    for k, own_texts in enumerate(CHOSEN):
        assert found[k::2] == call(reward(), ["q"] * 3, own_texts)
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
        own_rewards = call(reward(), ["q"] * 3, ANSWERS[name])
        assert by_place[3 * k : 3 * k + 3] == pytest.approx(own_rewards, abs=1e-6)
    assert np.ptp(by_place) > 0.01
    with pytest.raises(ValueError, match="extra_infos: expected an 'index'"):
        function(data_sources=["a"], solution_strs=["x"], ground_truths=[1], extra_infos=[{}])


def test_an_encoder_that_loses_rows_and_groups_of_one_are_refused():
    encoder = types.SimpleNamespace(encode=lambda texts: np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match="zip"):
        call(reward(encoder=encoder), ["q"] * 3, ANSWERS["q"])
    with pytest.raises(ValueError, match="num_generations"):
        reward(1)
