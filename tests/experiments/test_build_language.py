"""The builder of the language set, on a repository of a few systems and answers."""

import json

import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import answers

pytestmark = pytest.mark.slow

SYSTEMS = ["b", "b_concise", "b_verbose", "lone", "a_verbose"]
SYSTEMS += [f"Qwen1.5-{size}B-Chat" for size in ("1.8", "14")]
INSTRUCTIONS = [f"{chr(97 + number)} question {'e' * number}" for number in range(17)]


def answer(system, number):
    count = 2 + number % 5 + 10 * ("verbose" in system)
    return " \n ".join([chr(65 + number), *[system[0] + "e" * number] * count])


@pytest.fixture
def clone(tmp_path):
    """Every system answers all but one instruction of one."""
    files = {}
    for system in SYSTEMS:
        records = [
            {"instruction": text, "output": answer(system, number), "generator": system}
            for number, text in enumerate(INSTRUCTIONS)
            if (system, number) != ("b_concise", 3)
        ]
        files[f"results/{system}/model_outputs.json"] = json.dumps(records).encode()
    return repository(tmp_path / "clone", "o/r", files)


def test_systems_are_chosen_by_their_variants_and_sizes_alone():
    chosen = answers.chosen_systems(sorted(SYSTEMS))
    assert chosen == ["b", "b_concise", "b_verbose", "Qwen1.5-1.8B-Chat", "Qwen1.5-14B-Chat"]


def test_the_set_holds_the_shared_instructions_of_every_system(tmp_path, clone):
    pairs, _, cut, _, texts = make(
        answers, tmp_path, clone, name="language", EVERY=2, PERCENTILE=50.0
    )
    # Of 16 that all answered (number 3 is missing), every second.
    numbers = [n for n in range(17) if n != 3][::2]
    assert cut["instructions"] == {"of": 16, "every": 2, "kept": 8}
    assert pairs.labels["prompt"].tolist() == list(range(0, 16, 2)) * 5
    systems = answers.chosen_systems(SYSTEMS)
    assert pairs.labels["models"].tolist() == np.repeat(systems, 8).tolist()
    written = [answer(system, number) for system in systems for number in numbers]
    assert pairs.labels["words"].tolist() == [len(text.split()) for text in written]
    np.testing.assert_allclose(pairs.outputs, texts.rows(written), atol=1e-3)
    asked = texts.rows([INSTRUCTIONS[n] for n in numbers])
    np.testing.assert_allclose(pairs.prompts, np.tile(asked, (5, 1)), atol=1e-3)
    length = int(np.median(pairs.labels["words"]))
    assert cut["truncated"] == {"words": length, "percentile": 50.0}
    shorter = texts.rows([" ".join(text.split()[:length]) for text in written])
    np.testing.assert_allclose(pairs.further["truncated"], shorter, atol=1e-3)
