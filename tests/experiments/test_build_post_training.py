"""The builder of the stages of training, on a repository of a few answers."""

import json

import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import answers

pytestmark = pytest.mark.slow

FOLDER = "results/rlhf_experiment"
PROMPTS = {"nbcurated": ["curated-1", "curated-0"], "alpacaeval": ["alpacaeval-000"]}


def text(stage, prompt, place, cut=False):
    """Of a stage, its answer to a prompt: longer later; the first of base is empty."""
    words = [f"{prompt} by {stage}", *["word"] * (place + len(stage))]
    return "" if (stage, place) == ("base", 0) else " ".join(words[:1] if cut else words)


def lines(records):
    return "\n".join(map(json.dumps, records)).encode()


def files():
    """Every file in the reverse of the order of the set; one prompt alone is matched."""
    found = {}
    for kind, cut in (("generations", False), ("generations_length_matched", True)):
        for stage in answers.STAGE_NAMES:
            for short, prompts in PROMPTS.items():
                records = [
                    {
                        "prompt_id": prompt,
                        "prompt": f"question {prompt}",
                        "sample_idx": place,
                        "response": text(stage, prompt, place, cut),
                    }
                    for prompt in (prompts[:1] if cut else prompts)
                    for place in (1, 0)
                ]
                found[f"{FOLDER}/{kind}/{stage}_{short}.jsonl"] = lines(records)
    metrics = [
        {"stage": stage, "prompt_id": prompt, "ead": len(stage) + len(prompt) / 100}
        for stage in answers.STAGE_NAMES
        for prompts in PROMPTS.values()
        for prompt in prompts
    ]
    return found | {f"{FOLDER}/baseline_metrics.jsonl": lines(metrics)}


def test_the_stages_are_in_order_whole_and_then_matched(tmp_path):
    clone = repository(tmp_path / "clone", "o/r", files())
    pairs, _, _, _, texts = make(answers, tmp_path, clone, name="post_training")
    # By set of prompts, stage and prompt, whose numbers stay those of the whole answers.
    wanted = [
        (stage, short, prompt, cut, place)
        for cut in (False, True)
        for short, prompts in PROMPTS.items()
        for stage in answers.STAGE_NAMES
        for prompt in (prompts[:1] if cut else sorted(prompts))
        for place in (0, 1)
    ]
    written = [text(stage, prompt, place, cut) for stage, _, prompt, cut, place in wanted]
    numbers = {"curated-0": 0, "curated-1": 1, "alpacaeval-000": 2}
    labels = pairs.labels
    assert labels["models"].tolist() == [answers.STAGE_NAMES[stage] for stage, *_ in wanted]
    assert labels["benchmark"].tolist() == [answers.PROMPT_SETS[of] for _, of, *_ in wanted]
    assert labels["prompt"].tolist() == [numbers[prompt] for _, _, prompt, *_ in wanted]
    assert labels["matched"].tolist() == [int(cut) for *_, cut, _ in wanted]
    assert labels["words"].tolist() == [len(of.split()) for of in written]
    distinct = [
        np.nan if cut else len(stage) + len(prompt) / 100 for stage, _, prompt, cut, _ in wanted
    ]
    np.testing.assert_allclose(labels["distinct"], distinct, rtol=1e-6)
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=answers.STEP)
    asked = texts.rows([f"question {prompt}" for _, _, prompt, *_ in wanted])
    np.testing.assert_allclose(pairs.prompts, asked, atol=answers.STEP)
    assert labels["words"].min() == 0 and "" in texts.given  # An empty answer stays.


def test_a_file_that_is_no_list_of_records_is_refused(tmp_path):
    path = f"{FOLDER}/generations/dpo_nbcurated.jsonl"
    clone = repository(tmp_path / "clone", "o/r", files() | {path: b"[1]"})
    with pytest.raises(ValueError, match=r"dpo_nbcurated\.jsonl: not one JSON object a line"):
        make(answers, tmp_path, clone, name="post_training")
