"""The score of a finished run's answers: rows in, one result and flat numbers out."""

import importlib
import importlib.metadata
import logging
import math
import pathlib
import sys
import tomllib
import types

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram

from condvendi_jax.integrations import numbers, score_run
from condvendi_jax.integrations.langfuse import answer_diversity as langfuse_evaluator
from condvendi_jax.integrations.langsmith import answer_diversity as langsmith_evaluator
from condvendi_jax.integrations.runs import run_metric
from condvendi_jax.results.comparison import Comparison

ROOT = pathlib.Path(__file__).parents[2]
WIDTH = 60.0
TEXTS = {"q": ["a", "bb", "abcd", "ca"], 7: ["ccc", "ca", "ca", "cc"], "7": ["z", "z", "zz", "y"]}
TEXTS |= {'{"x": [1]}': ["b", "bb"], "r": ["ab", "bde"]}  # Fewer answers, which count as much.
ROWS = [{"prompt": name, "answer": text} for name, texts in TEXTS.items() for text in texts]


class Encoder(fake_encoders.Means):
    bandwidth = WIDTH


def score(rows, tmp_path=None, **options):
    return score_run(rows, **({"encoder": Encoder(), "cache": tmp_path} | options))


def squares(texts, width=WIDTH):
    return gaussian_gram(fake_encoders.Means().encode(texts), width) ** 2


def similarity(texts, apart=None, width=WIDTH):
    """The mean squared kernel of two different texts, of different batches."""
    pairs = ~np.eye(len(texts), dtype=bool) if apart is None else apart[:, None] != apart
    return squares(texts, width)[pairs].mean()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_each_prompt_counts_once_and_only_its_own_answers_are_compared():
    values = np.array([similarity(texts) for texts in TEXTS.values()])
    result = score(ROWS)
    flat = numbers(result)
    assert flat["answer_diversity"] == pytest.approx(1 / values.mean(), rel=1e-4)
    error = values.std(ddof=1) / np.sqrt(len(values)) / values.mean() ** 2
    assert flat["answer_diversity_stderr"] == pytest.approx(error, rel=1e-3)
    low, high = result.orders[0].population.errors.conditional.interval()
    assert (flat["answer_diversity_low"], flat["answer_diversity_high"]) == (low, high)
    assert 1 <= low < flat["answer_diversity"] < high < math.inf
    assert numbers(score(ROWS, order=1))["answer_diversity"] != flat["answer_diversity"]


def test_the_bandwidth_is_the_encoders_or_the_given_one():
    assert numbers(score(ROWS)) == numbers(score(ROWS, bandwidth=WIDTH))
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
    several = [texts for texts in TEXTS.values() if len(texts) == 4]
    values = [similarity(texts, batches) for texts in several]
    assert numbers(score(rows))["answer_diversity"] == pytest.approx(1 / np.mean(values), rel=1e-4)
    alone = numbers(score([row | {"batch": "0"} for row in ROWS]))
    assert all(map(math.isnan, alone.values()))


@pytest.mark.slow
def test_models_are_compared_and_named():
    other = [row | {"answer": row["answer"][:1]} for row in ROWS]
    rows = [row | {"model": "b"} for row in other] + [row | {"model": "a"} for row in ROWS]
    result = score(rows)
    assert isinstance(result, Comparison)
    flat = numbers(result)
    for model, of_model in (("a", ROWS), ("b", other)):
        alone = numbers(score(of_model))
        assert {name: flat[f"{model}/{name}"] for name in alone} == pytest.approx(
            alone, nan_ok=True
        )
    assert len(flat) == 8


def test_good_and_different_answers_are_counted():
    rows = [row | {"quality": len(row["answer"])} for row in ROWS if row["prompt"] in ("q", 7, "7")]
    flat = numbers(score(rows, at_least=2))
    assert flat["good_answers"] == score(rows, at_least=2).quality.number.value
    assert numbers(score(rows, at_least=3))["good_answers"] < flat["good_answers"] < 4
    assert "good_answers" not in numbers(score(rows))


def test_cleaned_answers_and_those_left_out():
    said = "<think>{0}{0}{0}</think>\n{0}"
    rows = [row | {"answer": said.format(row["answer"])} for row in ROWS]
    assert numbers(score(rows)) == numbers(score(ROWS))
    assert numbers(score(rows, clean=False)) != numbers(score(ROWS))
    more = [{"prompt": "q", "answer": None}, {"prompt": None, "answer": "x"}]
    more += [{"prompt": "q", "answer": "<think>cut"}]
    with pytest.warns(UserWarning, match="left out are 3 of 19 rows: no prompt or no answer"):
        assert numbers(score(ROWS + more)) == numbers(score(ROWS))


def test_answers_that_may_be_errors_are_told():
    rows = [{"prompt": p, "answer": a} for p in "qrs" for a in ("Error 429: slow down", "fine")]
    lines = []
    score(rows, tell=lines.append)
    assert "3 of 6 look like errors" in lines[0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"prompt": "q"}], r"rows\[0\]: expected 'prompt' and 'answer'"),
        (["q"], r"rows\[0\]: expected 'prompt' and 'answer', received 'q'"),
        ([*ROWS, {"prompt": "q", "answer": {"a": 1}}], r"rows\[16\]"),
        ([*ROWS[:-1], ROWS[-1] | {"model": "b"}], "rows.15.: expected a .model. in all rows"),
        ([*ROWS[:-1], ROWS[-1] | {"batch": "b"}], "rows.15.: expected a .batch. in all rows"),
        ([], "there are no answers"),
        (ROWS[::4], "no prompt has two answers"),
    ],
)
def test_bad_rows_are_refused(rows, words):
    with pytest.raises((TypeError, ValueError), match=words):
        score(rows)


def test_a_missing_quality_is_refused():
    with pytest.raises(ValueError, match="quality"):
        score([*ROWS[:-1], ROWS[-1] | {"quality": 1}], at_least=1)


@pytest.mark.parametrize("options", [{"bandwidth": 0}, {"order": -1}, {"clean": 1}, {"color": 1}])
def test_a_metric_refuses_bad_options_at_once(options):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        run_metric("more", encoder=Encoder(), **options)


def test_a_metric_reads_fields_and_logs_once(caplog):
    prompts = [row["prompt"] for row in ROWS]
    plain = numbers(score(ROWS))
    for field, output in {
        None: lambda text: {"only": text},
        "said": lambda text: {"said": text, "cost": 1},
        "text": lambda text: types.SimpleNamespace(text=text),
    }.items():
        measure = run_metric("trials=3", answer=field, encoder=Encoder())
        assert measure(prompts, [output(row["answer"]) for row in ROWS]) == plain
    assert not caplog.records
    with pytest.raises(ValueError, match=r"answer: expected a field of outputs, \['a', 'b'\]"):
        run_metric("", encoder=Encoder())(["q"], [{"a": "x", "b": "y"}])
    for _ in range(2):
        flat = measure(["q", "r"], [types.SimpleNamespace(text=text) for text in "ab"])
        assert all(map(math.isnan, flat.values())) and flat.keys() == plain.keys()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "NaN, since no prompt has two answers." in caplog.text and "trials=3" in caplog.text


def test_evaluators_of_plain_calls():
    """Of LangSmith and Langfuse, whose evaluators need no class."""
    named = {name: x if math.isfinite(x) else None for name, x in numbers(score(ROWS)).items()}
    known = types.SimpleNamespace
    runs = [known(outputs={"answer": row["answer"]}) for row in ROWS] + [known(outputs=None)]
    examples = [known(inputs={"q": row["prompt"]}) for row in ROWS] + [known(inputs={"q": "q"})]
    found = langsmith_evaluator(encoder=Encoder())(runs, examples)["results"]
    assert {one["key"]: one["score"] for one in found} == named
    items = [known(item={"input": row["prompt"]}, output=row["answer"]) for row in ROWS]
    items[0].item = known(input=ROWS[0]["prompt"])  # Of a data set on the server.
    found = langfuse_evaluator(encoder=Encoder())(item_results=items, unused=1)
    assert {one["name"]: one["value"] for one in found} == named


def test_lm_eval_finds_the_metric_by_its_entry_point(monkeypatch):
    """By its interface as published: the decorators run when the module is imported."""
    registered = {}

    def register(name, what):
        return lambda function: registered.update({name: (what, function)}) or function

    def register_metric(**options):
        return register("metric", options)

    def register_aggregation(name):
        return register("aggregation", name)

    registry = types.SimpleNamespace(
        register_metric=register_metric, register_aggregation=register_aggregation
    )
    for package in ("lm_eval", "lm_eval.api"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    monkeypatch.setitem(sys.modules, "lm_eval.api.registry", registry)
    monkeypatch.delitem(sys.modules, "condvendi_jax.integrations.lm_eval", raising=False)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = {}
    for kind in ("metrics", "aggregations"):
        ((name, value),) = project["entry-points"][f"lm_eval.{kind}"].items()
        points[kind] = importlib.metadata.EntryPoint(name, value, f"lm_eval.{kind}").load()
        assert name == "answer_diversity"
    options, metric = registered["metric"]
    assert metric is points["metrics"]
    assert registered["aggregation"] == ("answer_diversity", points["aggregations"])
    assert options["metric"] == options["aggregation"] == "answer_diversity"
    assert options["higher_is_better"] and options["output_type"] == "generate_until"
    given = {"bandwidth": WIDTH, "encoder": "fake_encoders:Means"}
    items = [metric(references=[""], predictions=[texts], **given) for texts in TEXTS.values()]
    found = points["aggregations"](items)
    assert found == pytest.approx(numbers(score(ROWS))["answer_diversity"], rel=1e-6)
    assert math.isnan(points["aggregations"]([metric([""], ["one"], **given)]))
    with pytest.raises(ValueError, match="one target for each document"):
        points["aggregations"]([1.0])


@pytest.mark.parametrize("tool", ["pydantic_evals", "weave", "lm_eval"])
def test_an_adapter_without_its_package_names_the_extra(tool, monkeypatch):
    monkeypatch.setitem(sys.modules, tool, None)
    monkeypatch.delitem(sys.modules, f"condvendi_jax.integrations.{tool}", raising=False)
    extra = tool.replace("_", "-")
    with pytest.raises(ValueError, match=rf"pip install -e '.\[{extra}\]'"):
        importlib.import_module(f"condvendi_jax.integrations.{tool}")
