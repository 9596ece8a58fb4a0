"""The builder of the sets of several answers, on repositories of a few models."""

import json

import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import answers

pytestmark = pytest.mark.slow

MODELS = {"anthropic/a": "Anthropic", "gemini/b": "Google"}
PROMPTS = {3: "third question", 10: "tenth question", 2: "second question"}


def answer(model, number, place):
    """Of a model, its answer to a prompt; those of model b are longer, the first two equal."""
    count = 3 + 4 * model.endswith("b")
    return " ".join([f"{model[-1]}{number}", *[f"word{max(place, 1)}"] * count])


def record(model, number):
    return {
        "id": f"curated-{number}",
        "prompt": PROMPTS[number],
        "model": model,
        "generations": [answer(model, number, place) for place in range(3)],
        "partition": [0, 0, number],
        "generation_scores": [number, 0, 1],
    }


def lines(records):
    return "\n".join(map(json.dumps, records)).encode()


def benchmark(**changes):
    """Two models, whose files are not in one order."""
    orders = {"anthropic/a": [3, 10, 2], "gemini/b": [2, 3, 10]}
    files = {
        f"eval/day/curated/{model}/scores.jsonl": lines(record(model, n) for n in orders[model])
        for model in MODELS
    }
    files["eval/day/wildchat/gemini/b/scores.jsonl"] = b"not read"
    return files | changes


def pair(model, number, places, similar, prompt=None):
    return {
        "model": model,
        "prompt": prompt or PROMPTS[number],
        "generation_0": answer(model, number, places[0]),
        "generation_1": answer(model, number, places[1]),
        "similar": similar,
    }


def test_the_answers_of_every_model_are_in_the_order_of_the_prompts(tmp_path):
    clone = repository(tmp_path / "clone", "o/r", benchmark())
    pairs, _, cut, _, texts = make(answers, tmp_path, clone, name="answers", PERCENTILE=0.0)
    numbers = [2, 3, 10]
    written = [answer(m, n, place) for m in MODELS for n in numbers for place in range(3)]
    assert pairs.labels["models"].tolist() == ["a"] * 9 + ["b"] * 9
    assert pairs.labels["vendors"].tolist() == ["Anthropic"] * 9 + ["Google"] * 9
    assert pairs.labels["prompt"].tolist() == np.repeat(numbers, 3).tolist() * 2
    assert pairs.labels["classes"].tolist() == [c for n in numbers for c in (0, 0, n)] * 2
    assert pairs.labels["rewards"].tolist() == [r for n in numbers for r in (n, 0, 1)] * 2
    assert pairs.labels["words"].tolist() == [4] * 9 + [8] * 9
    assert cut["truncated"] == {"words": 4, "percentile": 0.0}
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=answers.STEP)
    asked = texts.rows([PROMPTS[n] for n in numbers])
    np.testing.assert_allclose(pairs.prompts, np.tile(asked.repeat(3, axis=0), (2, 1)), atol=0.004)
    first = texts.rows([" ".join(text.split()[:4]) for text in written])
    np.testing.assert_allclose(pairs.further["truncated"], first, atol=answers.STEP)
    # Equal answers have equal embeddings: what is stored keeps the same apart from the different.
    assert np.array_equal(pairs.outputs[0], pairs.outputs[1])


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record("gemini/b", n) for n in (2, 3)], "the prompts are not those of"),
        (
            [record("gemini/b", n) | {"generations": ["x"]} for n in (2, 3, 10)],
            "not 3 answers to every prompt",
        ),
        (["text"], "not one JSON object a line"),
    ],
)
def test_models_with_other_prompts_or_answers_are_refused(tmp_path, records, message):
    files = benchmark(**{"eval/day/curated/gemini/b/scores.jsonl": lines(records)})
    clone = repository(tmp_path / "clone", "o/r", files)
    with pytest.raises(ValueError, match=rf"gemini/b/scores.jsonl: {message}"):
        make(answers, tmp_path, clone, name="answers")


def test_pairs_have_what_people_and_the_benchmark_say(tmp_path):
    parts = {
        "train": [
            pair("x/a", 3, (0, 2), 0),
            pair("x/b", 10, (0, 1), 1),
            pair("x/b", 10, (0, 1), 1, prompt="a question of nobody"),
        ],
        "val": [pair("x/b", 2, (1, 2), 0)],
    }
    folder = "evals/novelty-bench/src/data/classifier"
    files = {f"{folder}/{name}.jsonl": lines(records) for name, records in parts.items()}
    clones = (
        repository(tmp_path / "pairs", "o/p", files),
        repository(tmp_path / "clone", "o/r", benchmark()),
    )
    pairs, _, _, _, texts = make(answers, tmp_path, *clones, name="same_answers")
    records = [r for part in parts.values() for r in part]
    for role, table in (("generation_0", pairs.outputs), ("generation_1", pairs.further["second"])):
        rows = texts.rows([r[role] for r in records])
        np.testing.assert_allclose(table, rows, atol=answers.STEP)
    assert pairs.labels["same"].tolist() == [0, 1, 1, 0]
    assert pairs.labels["train"].tolist() == [1, 1, 1, 0]
    assert pairs.labels["equal"].tolist() == [0, 1, 1, 0]
    assert pairs.labels["classes"].tolist() == [0, 1, -1, 0]
    assert len(set(pairs.labels["prompt"].tolist())) == 4
