"""The builder of the set of cures, on repositories of a few answers."""

import json

import numpy as np
from small_repositories import make, repository

from experiments.builders import answers


def record(cure, number):
    """Two answers of one class and one of another, whose rewards are the number and 9."""
    return {
        "id": f"curated-{number}",
        "prompt": f"question {number}",
        "generations": [f"{cure} {number}" + " word" * (place + 2) for place in range(3)],
        "partition": [1, 0, 1],
        "partition_scores": [number, 9],
    }


def lines(cure, numbers):
    return "\n".join(json.dumps(record(cure, number)) for number in numbers).encode()


def stories(model):
    samples = [
        {"prompt": prompt, "sampler_name": sampler, "repetition": repetition}
        | {"generated_text": f"{model} {sampler} {prompt} {repetition}" + repetition * " word"}
        | {"judgment": {"overall_score": repetition + 0.5}}
        for repetition in (2, 1)  # The first story is short.
        for sampler in reversed(answers.SAMPLED)
        for prompt in ("b", "a")
    ]
    return json.dumps({"model_name": model, "samples": samples}).encode()


def test_answers_are_by_cure_and_prompt_with_the_reward_of_their_class(tmp_path):
    files = [{}, {}, {}]
    for cure, (_, place, path) in answers.FILES.items():
        files[place][path] = lines(cure, (2, 10) if place == 1 else (10, 2))
    files.append({f"results/{model}_judged_1.json": stories(model) for model in "mn"})
    files[-1] |= {
        "results/mmlu/m_judged_1.json": b"not read",
        "results/m_bench_1.json": b"nor this",
    }
    clones = [repository(tmp_path / str(n), f"o/{n}", of) for n, of in enumerate(files)]
    pairs, _, cut, _, texts = make(answers, tmp_path, *clones, name="interventions", LEAST=6)
    labels = pairs.labels
    each = [(arm, 6) for arm in answers.FILES] + [(arm, 8) for arm in answers.SAMPLED.values()]
    assert labels["models"].tolist() == [arm for arm, count in each for _ in range(count)]
    assert labels["source"].tolist() == ["prompts"] * 24 + ["training"] * 12 + ["samplers"] * 40
    assert labels["quality"].tolist() == [9, 2, 9, 9, 10, 9] * 6 + [0, 2.5] * 20
    # The prompts of two sources differ, and so do those of two models.
    prompt = labels["prompt"]
    assert len(np.unique(prompt)) == 2 + 2 + 4
    assert prompt[:6].tolist() == prompt[18:24].tolist() and prompt[0] == prompt[2] != prompt[3]
    whole = [t for n in (2, 10) for t in record("asked again", n)["generations"]]
    np.testing.assert_allclose(pairs.outputs[:6], texts.rows(whole), atol=answers.STEP)
    asked = texts.rows(["question 2", "question 10"])
    np.testing.assert_allclose(pairs.prompts[[24, 27]], asked, atol=1e-3)
    length = cut["truncated"]["training"]
    first = [" ".join(t.split()[:length]) for t in record("Llama 3.1 8B", 2)["generations"]]
    np.testing.assert_allclose(
        pairs.further["truncated"][24:27], texts.rows(first), atol=answers.STEP
    )
