"""The builder of the language set, on a repository of a few systems and answers."""

import json

import numpy as np
import pytest
from small_repositories import WordCounts, repository

from experiments.builders import common, language
from experiments.data import sets

pytestmark = pytest.mark.slow

SYSTEMS = (
    "b",
    "b_concise",
    "b_verbose",
    "Qwen1.5-1.8B-Chat",
    "Qwen1.5-14B-Chat",
    "lone",
    "a_verbose",
)
INSTRUCTIONS = [f"{chr(97 + number)} question {'e' * number}" for number in range(17)]


def answer(system, number):
    count = 2 + number % 5 + 10 * ("verbose" in system)
    return " \n ".join([chr(65 + number), *[system[0] + "e" * number] * count])


def files(missing=("b_concise", 3)):
    return {
        f"results/{system}/model_outputs.json": json.dumps(
            [
                {"instruction": text, "output": answer(system, number), "generator": system}
                for number, text in enumerate(INSTRUCTIONS)
                if (system, number) != missing
            ]
        ).encode()
        for system in SYSTEMS
    }


def build(tmp_path, found, encoder, **changes):
    given = {
        "systems": language.default_systems(SYSTEMS),
        "every": 2,
        "percentile": 50.0,
        "whole": ["b"],
        "cache": tmp_path / "cache",
        "output": tmp_path / "language.npz",
    }
    language.build(found, encoder, **(given | changes))
    with np.load(tmp_path / "language.npz") as stored:
        return (
            sets.read_set(tmp_path / "language.npz"),
            json.loads(str(stored["cut"])),
            stored.files,
        )


def test_systems_are_chosen_by_their_variants_and_sizes_alone():
    chosen = language.default_systems(sorted(SYSTEMS))
    assert chosen == ["b", "b_concise", "b_verbose", "Qwen1.5-1.8B-Chat", "Qwen1.5-14B-Chat"]


def test_a_text_is_cut_to_words_and_a_shorter_one_stays():
    assert language.first_words("one  two\nthree", 2) == "one two"
    assert language.first_words("one  two", 5) == "one two"
    assert language.equal_length(np.array([1, 2, 9, 10]), 50) == 5
    assert language.equal_length(np.array([0, 0]), 50) == 1


def test_the_set_holds_the_shared_instructions_of_every_system(tmp_path):
    encoder = WordCounts()
    pairs, cut, entries = build(tmp_path, repository(tmp_path / "r", "o/r", files()), encoder)
    # Of 16 that all answered (number 3 is missing), every second.
    numbers = [n for n in range(17) if n != 3][::2]
    assert cut["instructions"] == {"of": 16, "every": 2, "kept": 8}
    assert len(pairs) == 5 * 8
    assert pairs.labels["prompt"].tolist() == list(range(0, 16, 2)) * 5
    assert list(dict.fromkeys(pairs.labels["models"])) == language.default_systems(SYSTEMS)
    texts = [answer(m, n) for m in dict.fromkeys(pairs.labels["models"]) for n in numbers]
    assert pairs.labels["words"].tolist() == [len(text.split()) for text in texts]
    rows = common.unit_rows(encoder.encode(texts))
    np.testing.assert_allclose(pairs.outputs, rows, atol=1e-3)
    asked = common.unit_rows(encoder.encode([INSTRUCTIONS[n] for n in numbers]))
    np.testing.assert_allclose(pairs.prompts[:8], asked, atol=1e-3)
    np.testing.assert_array_equal(pairs.prompts[:8], pairs.prompts[8:16])
    # Nothing of the texts: words are those of names and of what is said about the file.
    assert {name for name in entries if name.startswith(("label", "further"))} == {
        "label_models",
        "label_models_index",
        "label_prompt",
        "label_words",
        "further_truncated",
    }


def test_cut_answers_have_the_percentile_of_the_lengths(tmp_path):
    found = repository(tmp_path / "r", "o/r", files())
    encoder = WordCounts()
    pairs, cut, _ = build(tmp_path, found, encoder)
    length = int(np.median(pairs.labels["words"]))
    assert cut["truncated"] == {"words": length, "percentile": 50.0}
    longer = pairs.labels["words"] > length
    assert longer.any()
    same = np.all(pairs.outputs == pairs.further["truncated"], axis=1)
    np.testing.assert_array_equal(same, ~longer)
    _, other, _ = build(tmp_path, found, encoder, percentile=90.0)
    assert other["truncated"]["words"] > length


def test_what_is_left_out_has_its_cost_in_the_file(tmp_path):
    found = repository(tmp_path / "r", "o/r", files())
    _, cut, _ = build(tmp_path, found, WordCounts())
    assert list(cut["cost"]) == ["b"]
    assert cut["cost"]["b"]["conditional"]["change"] != 0
    _, cut, _ = build(tmp_path, found, WordCounts(), every=1, whole=["b_verbose"])
    # All instructions are kept: what remains is the rounding to half precision.
    assert abs(cut["cost"]["b_verbose"]["conditional"]["change"]) < 1e-3
    assert cut["instructions"]["kept"] == 16


def test_answers_are_embedded_once(tmp_path):
    found = repository(tmp_path / "r", "o/r", files())
    build(tmp_path, found, WordCounts())
    again = WordCounts()
    build(tmp_path, found, again)
    assert again.given == []


def test_what_cannot_be_read_is_named(tmp_path):
    broken = files() | {"results/b/model_outputs.json": b'[{"instruction": "x"}]'}
    found = repository(tmp_path / "r", "o/r", broken)
    with pytest.raises(ValueError, match=r"results/b/model_outputs\.json: no list of instructions"):
        build(tmp_path, found, WordCounts())
    with pytest.raises(ValueError, match="results/nobody/"):
        build(tmp_path, found, WordCounts(), systems=["nobody"])
    other = files() | {"results/b/model_outputs.json": b'[{"instruction": "x", "output": "y"}]'}
    found = repository(tmp_path / "s", "o/r", other)
    with pytest.raises(ValueError, match="no instruction is answered by all"):
        build(tmp_path, found, WordCounts())
