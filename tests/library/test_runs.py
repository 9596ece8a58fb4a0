"""The score of a finished run's answers: rows in, one result and flat numbers out."""

import logging
import math
import types

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram, weighted_entropy

from condvendi_jax.integrations import numbers, score_run
from condvendi_jax.integrations.runs import run_metric
from condvendi_jax.results.comparison import Comparison

WIDTH = 60.0
TEXTS = {"q": ["a", "bb", "abcd", "ca"], 7: ["ccc", "ca", "ca", "cc"], "7": ["z", "z", "zz", "y"]}
TEXTS |= {'{"x": [1]}': ["b", "bb"], "r": ["ab", "bde"]}  # Fewer answers, which count as much.
ROWS = [{"prompt": name, "answer": text} for name, texts in TEXTS.items() for text in texts]


class Encoder(fake_encoders.Means):
    bandwidth = WIDTH


def score(rows, **options):
    return score_run(rows, **({"encoder": Encoder()} | options))


def similarity(texts, apart=None, width=WIDTH):
    """The mean squared kernel of two different texts, of different batches."""
    pairs = ~np.eye(len(texts), dtype=bool) if apart is None else apart[:, None] != apart
    return (gaussian_gram(fake_encoders.Means().encode(texts), width) ** 2)[pairs].mean()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    return numbers(score(ROWS, cache=str(tmp_path_factory.mktemp("cache"))))


def test_each_prompt_counts_once_and_only_its_own_answers_are_compared(flat):
    """The error counts prompts as independent."""
    values = np.array([similarity(texts) for texts in TEXTS.values()])
    assert flat["answer_diversity"] == pytest.approx(1 / values.mean(), rel=1e-4)
    error = values.std(ddof=1) / np.sqrt(len(values)) / values.mean() ** 2
    assert flat["answer_diversity_stderr"] == pytest.approx(error, rel=1e-3)
    low, high = score(ROWS).orders[0].population.errors.conditional.interval()
    assert (flat["answer_diversity_low"], flat["answer_diversity_high"]) == (low, high)
    assert 1 <= low < flat["answer_diversity"] < high < math.inf
    entropies = [
        weighted_entropy(
            gaussian_gram(fake_encoders.Means().encode(texts), WIDTH), np.ones(len(texts))
        )
        for texts in TEXTS.values()
    ]
    of_order_1 = numbers(score(ROWS, order=1))["answer_diversity"]
    assert of_order_1 == pytest.approx(np.exp(np.mean(entropies)), rel=1e-4)


def test_the_bandwidth_is_the_encoders_or_the_given_one(flat):
    assert flat == numbers(score(ROWS, bandwidth=WIDTH))
    values = [similarity(texts, width=90.0) for texts in TEXTS.values()]
    wide = numbers(score(ROWS, bandwidth=90.0))
    assert wide["answer_diversity"] == pytest.approx(1 / np.mean(values), rel=1e-4)
    with pytest.raises(ValueError, match="bandwidth: expected .* for means, received none"):
        score(ROWS, encoder=fake_encoders.Means())


def test_prompts_are_any_values_and_answers_are_texts_or_messages():
    prompts = {"q": {"id": 1, "text": "?"}, 7: [7], "7": ("7",), "r": None}
    said = [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "zzz"}]
    rows = [row | {"prompt": prompts.get(row["prompt"], row["prompt"])} for row in ROWS]
    rows = [row for row in rows if row["prompt"] is not None]
    same = [row for row in ROWS if row["prompt"] != "r"]
    rows[0] = {"prompt": {"text": "?", "id": 1}, "answer": said}
    assert numbers(score(rows)) == pytest.approx(numbers(score(same)))


def test_answers_of_one_batch_are_not_compared():
    rows = [row | {"batch": f"{k // 2}"} for k, row in enumerate(ROWS)]
    batches = np.array([0, 0, 1, 1])
    values = [similarity(texts, batches) for texts in TEXTS.values() if len(texts) == 4]
    assert numbers(score(rows))["answer_diversity"] == pytest.approx(1 / np.mean(values), rel=1e-4)
    alone = numbers(score([row | {"batch": "0"} for row in ROWS]))
    assert all(map(math.isnan, alone.values()))


@pytest.mark.slow
def test_models_are_compared_and_named(flat):
    other = [row | {"answer": row["answer"][:1]} for row in ROWS]
    rows = [row | {"model": "b"} for row in other] + [row | {"model": "a"} for row in ROWS]
    result = score(rows)
    assert isinstance(result, Comparison)
    both = numbers(result)
    for model, alone in (("a", flat), ("b", numbers(score(other)))):
        found = {name: both[f"{model}/{name}"] for name in alone}
        assert found == pytest.approx(alone, nan_ok=True)
    assert len(both) == 8


def test_good_and_different_answers_are_counted(flat):
    rows = [row | {"quality": len(row["answer"])} for row in ROWS if row["prompt"] in ("q", 7, "7")]
    result = score(rows, at_least=2)
    good = numbers(result)["good_answers"]
    assert good == result.quality.number.value
    assert numbers(score(rows, at_least=3))["good_answers"] < good < 4
    assert "good_answers" not in flat


def test_cleaned_answers_and_those_left_out(flat):
    said = "<think>{0}{0}{0}</think>\n{0}"
    rows = [row | {"answer": said.format(row["answer"])} for row in ROWS]
    assert numbers(score(rows)) == flat != numbers(score(rows, clean=False))
    more = [("q", None), (None, "x"), ("q", "<think>cut"), ("q", " \u200b"), ("s", "")]
    more = [{"prompt": prompt, "answer": answer} for prompt, answer in more]
    with pytest.warns(UserWarning, match="left out are 5 of 21 rows: no prompt or no answer"):
        assert numbers(score(ROWS + more)) == flat


def test_answers_that_may_be_errors_are_told():
    rows = [{"prompt": p, "answer": a} for p in "qrs" for a in ("Error 429: slow down", "fine")]
    lines = []
    score(rows, tell=lines.append)
    assert "3 of 6 look like errors" in lines[0]


BEFORE, LAST = ROWS[:-1], ROWS[-1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"prompt": "q"}], r"rows\[0\]: expected 'prompt' and 'answer'"),
        (["q"], r"rows\[0\]: expected 'prompt' and 'answer', received 'q'"),
        ([*ROWS, {"prompt": "q", "answer": {"a": 1}}], r"rows\[16\]"),
        ([*BEFORE, LAST | {"model": "b"}], "rows.15.: expected a .model. in all rows"),
        ([*BEFORE, LAST | {"batch": "b"}], "rows.15.: expected a .batch. in all rows"),
        ([*BEFORE, LAST | {"quality": 1}], "quality"),
        ([], "there are no answers"),
        (ROWS[::4], "no prompt has two answers"),
    ],
)
def test_bad_rows_are_refused(rows, words):
    with pytest.raises((TypeError, ValueError), match=words):
        score(rows, at_least=1 if words == "quality" else None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"bandwidth": 0}, "bandwidth"), ({"order": -1}, "order"), ({"clean": 1}, "clean")),
        *(({"color": 1}, "color"), ({"encoder": "fake_encoders:Absent"}, "has no attribute")),
    ],
)
def test_a_metric_refuses_bad_options_at_once(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        run_metric("more", **{"encoder": Encoder()} | options)


def test_a_metric_reads_fields_and_logs_once_why_it_is_nan(caplog, flat):
    prompts = [row["prompt"] for row in ROWS]
    for field, output in {
        None: lambda text: {"only": text},
        "said": lambda text: {"said": text, "cost": 1},
        "text": lambda text: types.SimpleNamespace(text=text),
    }.items():
        measure = run_metric("trials=3", answer=field, encoder=Encoder())
        assert measure(prompts, [output(row["answer"]) for row in ROWS]) == flat
    assert not caplog.records
    with pytest.raises(ValueError, match=r"answer: expected a field of outputs, \['a', 'b'\]"):
        run_metric("", encoder=Encoder())(["q"], [{"a": "x", "b": "y"}])
    for _ in range(2):
        found = measure(["q", "r"], [types.SimpleNamespace(text=text) for text in "ab"])
        assert all(map(math.isnan, found.values())) and found.keys() == flat.keys()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "NaN, since no prompt has two answers. Ask for more answers" in caplog.text
    assert "to each prompt: trials=3" in caplog.text
    narrow = run_metric("", encoder=Encoder(), bandwidth=1e-3)
    assert math.isnan(narrow([*"qqqrrrsss"], ["a", "bb", "abcd"] * 3)["answer_diversity"])
    assert "NaN, since nearly all answers to a prompt differ" in caplog.text
