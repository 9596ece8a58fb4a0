"""The builder of the sets of several answers, on repositories of a few models."""

import itertools
import json

import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import answers

pytestmark = pytest.mark.slow

MODELS = "anthropic/a", "gemini/b"
PROMPTS = {3: "third question", 10: "tenth question", 2: "second question", 4: "of nobody"}


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


def benchmark():
    """Two models, whose files are not in one order."""
    files = {
        "anthropic/a": lines(record("anthropic/a", n) for n in (3, 10, 2)),
        "gemini/b": lines(record("gemini/b", n) for n in (2, 3, 10)),
    }
    files = {f"eval/day/curated/{model}/scores.jsonl": of for model, of in files.items()}
    return files | {"eval/day/wildchat/gemini/b/scores.jsonl": b"not read"}


def pair(model, number, places, similar):
    one, two = (answer(model, number, place) for place in places)
    record = {"model": model, "prompt": PROMPTS[number], "similar": similar}
    return record | {"generation_0": one, "generation_1": two}


def test_the_answers_of_every_model_are_in_the_order_of_the_prompts(tmp_path):
    clone = repository(tmp_path / "clone", "o/r", benchmark())
    pairs, _, cut, _, texts = make(answers, tmp_path, clone, PERCENTILE=0.0)
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


def test_pairs_have_what_people_and_the_benchmark_say(tmp_path):
    parts = {
        "train": [pair("x/a", 3, (0, 2), 0), pair("x/b", 10, (0, 1), 1), pair("x/b", 4, (0, 1), 1)],
        "val": [pair("x/b", 2, (1, 2), 0)],
    }
    folder = "evals/novelty-bench/src/data/classifier"
    files = {f"{folder}/{name}.jsonl": lines(records) for name, records in parts.items()}
    given = {"o/p": files, "o/r": benchmark()}
    clones = [repository(tmp_path / name, name, of) for name, of in given.items()]
    pairs, _, _, _, texts = make(answers, tmp_path, *clones, name="same_answers")
    records = [r for part in parts.values() for r in part]
    for place, table in enumerate((pairs.outputs, pairs.further["second"])):
        rows = texts.rows([record[f"generation_{place}"] for record in records])
        np.testing.assert_allclose(table, rows, atol=answers.STEP)
    assert pairs.labels["same"].tolist() == [0, 1, 1, 0]
    assert pairs.labels["train"].tolist() == [1, 1, 1, 0]
    assert pairs.labels["equal"].tolist() == [0, 1, 1, 0]
    assert pairs.labels["classes"].tolist() == [0, 1, -1, 0]
    assert len(set(pairs.labels["prompt"].tolist())) == 4


STAGES = "results/rlhf_experiment"
ASKED = {"nbcurated": ["curated-1", "curated-0"], "alpacaeval": ["alpacaeval-000"]}


def told(stage, prompt, place, cut=False):
    """Of a stage, its answer to a prompt: longer later; the first of base is empty."""
    words = [f"{prompt} by {stage}", *["word"] * (place + len(stage))]
    return "" if (stage, place) == ("base", 0) else " ".join(words[:1] if cut else words)


def stages():
    """Every file in the reverse of the order of the set; one prompt alone is matched."""
    found = {}
    for kind, stage, short in itertools.product(
        ("generations", "generations_length_matched"), answers.STAGE_NAMES, ASKED
    ):
        cut = kind != "generations"
        records = [
            {"prompt_id": prompt, "prompt": f"question {prompt}", "sample_idx": place}
            | {"response": told(stage, prompt, place, cut)}
            for prompt in (ASKED[short][:1] if cut else ASKED[short])
            for place in (1, 0)
        ]
        found[f"{STAGES}/{kind}/{stage}_{short}.jsonl"] = lines(records)
    metrics = [
        {"stage": stage, "prompt_id": prompt, "ead": len(stage) + len(prompt) / 100}
        for stage in answers.STAGE_NAMES
        for prompt in itertools.chain(*ASKED.values())
    ]
    return found | {f"{STAGES}/baseline_metrics.jsonl": lines(metrics)}


def test_the_stages_are_in_order_whole_and_then_matched(tmp_path):
    clone = repository(tmp_path / "clone", "o/r", stages())
    pairs, _, _, _, texts = make(answers, tmp_path, clone, name="post_training")
    # By set of prompts, stage and prompt, whose numbers stay those of the whole answers.
    wanted = [
        (stage, short, prompt, cut, place)
        for cut in (False, True)
        for short, prompts in ASKED.items()
        for stage in answers.STAGE_NAMES
        for prompt in (prompts[:1] if cut else sorted(prompts))
        for place in (0, 1)
    ]
    written = [told(stage, prompt, place, cut) for stage, _, prompt, cut, place in wanted]
    numbers = {"curated-0": 0, "curated-1": 1, "alpacaeval-000": 2}
    labels = pairs.labels
    assert labels["models"].tolist() == [answers.STAGE_NAMES[stage] for stage, *_ in wanted]
    assert labels["benchmark"].tolist() == [answers.PROMPT_SETS[of] for _, of, *_ in wanted]
    assert labels["prompt"].tolist() == [numbers[prompt] for _, _, prompt, *_ in wanted]
    assert labels["matched"].tolist() == [int(cut) for *_, cut, _ in wanted]
    assert labels["words"].tolist() == [len(of.split()) for of in written]
    distinct = [np.nan if cut else len(of) + len(p) / 100 for of, _, p, cut, _ in wanted]
    np.testing.assert_allclose(labels["distinct"], distinct, rtol=1e-6)
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=answers.STEP)
    asked = texts.rows([f"question {prompt}" for _, _, prompt, *_ in wanted])
    np.testing.assert_allclose(pairs.prompts, asked, atol=answers.STEP)
    assert labels["words"].min() == 0 and "" in texts.given  # An empty answer stays.
