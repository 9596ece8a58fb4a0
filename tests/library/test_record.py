"""What a record knows: its answers, prompt, model, weights and batch, and what does not fit."""

import json

import pytest

import condvendi_jax as cv
from condvendi_jax.records import files
from condvendi_jax.records.answers import Unfit
from condvendi_jax.records.files import misfit
from condvendi_jax.records.reading import known_by
from condvendi_jax.records.record import Fields, Prompt, Record, known_fields

PLAIN = {"prompt": "p", "answers": ["a", "b"], "model": " m ", "probability": [0.5, 0.25]}
BATCH = {"custom_id": "q1", "response": {"body": {"model": "m", "choices": [{"text": "a"}]}}}
HARNESS = {"resps": [["a", "b"]], "doc": {"question": "q", "choices": ["c", "d"]}, "doc_id": 3}
LMMS = {"resps": ["a"], "input": "what?", "doc_id": 3}
CALLS = {"prompt": "p", "answers": [{"text": "a", "call": 1}, {"text": "b", "call": 2}]}
INNER = {"ask": {"text": 7}, "said": [{"out": "a"}, {"out": "b"}], "system": "s"}

RECORDS = {  # The record, the fields that are named, and what its methods give.
    "plain": (PLAIN, Fields(), ["a", "b"], Prompt("p", ["prompt"]), "m", [0.5, 0.25], [None] * 2),
    "batch": (
        *(BATCH, Fields(), ["a"]),
        Prompt("q1", ["custom_id"], is_id=True),
        *("m", [None], ["here"]),
    ),
    "batch with a prompt": (
        *(BATCH | {"prompt": "p"}, Fields(), ["a"]),
        *(Prompt("p", ["prompt"]), "m", [None], ["here"]),
    ),
    "nested document": (
        *(HARNESS, Fields(), ["a", "b"]),
        Prompt('q\n\n["c", "d"]', ["question", "choices"]),
        *(None, [None] * 2, [None] * 2),
    ),
    "id beside the prompt": (
        *(LMMS, Fields(), ["a"]),
        Prompt("what?\n\ndoc_id: 3", ["input"]),
        *(None, [None], [None]),
    ),
    "batches of answers": (
        *(CALLS, Fields(batch="call"), CALLS["answers"]),
        *(Prompt("p", ["prompt"]), None, [None] * 2, ["1", "2"]),
    ),
    "one batch": (
        *({"prompt": "p", "answers": ["a", "b"], "call": 5}, Fields(batch="call"), ["a", "b"]),
        *(Prompt("p", ["prompt"]), None, [None] * 2, ["5", "5"]),
    ),
    "paths": (
        *(INNER, Fields(prompt="ask.text", answer="said[].out"), ["a", "b"]),
        *(Prompt("7", ["ask.text"], ["system"]), None, [None] * 2, [None] * 2),
    ),
    "a prompt in a field of answers": (
        *({"response": "p", "output": "a"}, Fields(prompt="response"), ["a"]),
        *(Prompt("p", ["response"]), None, [None], [None]),
    ),
    "a task beside a context": (
        *({"task": "t", "context": "c", "output": "a"}, Fields(), ["a"]),
        *(Prompt("c\n\nt", ["context", "task"]), None, [None], [None]),
    ),
    "a weight beside the text": (
        *({"prompt": "p", "answer": {"text": "a", "probability": "0.5"}}, Fields()),
        *([{"text": "a", "probability": "0.5"}], Prompt("p", ["prompt"]), None, [0.5], [None]),
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_knows_its_answers_prompt_model_weights_and_batches(name):
    row, named, answers, prompt, model, weights, batches = RECORDS[name]
    given = json.dumps(row)
    record = Record(row, named, "here")
    found = record.answers()
    assert [answer.value for answer in found] == answers
    assert [*map(list, record.prompt()[1:3])] == [*map(list, prompt[1:3])]
    assert (record.prompt().text, record.prompt().is_id) == (prompt.text, prompt.is_id)
    assert record.model() == model
    assert [*map(record.weight, found)] == weights
    assert [*map(record.batch, found)] == batches
    assert json.dumps(row) == given  # What is read of a row does not change it.


UNFIT = {
    "beside": ({"prompt": "p", "answers": ["a", "b"], "kind": "x"}, "expected 2 values in 'kind'"),
    "missing": ({"prompt": "p", "answer": "a"}, "has no 'kind' for 'answer'"),
    "not a number": ({"prompt": "p", "answer": "a", "kind": float("nan")}, "has no 'kind' for"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_field_holds_a_value_of_each_answer(name):
    row, words = UNFIT[name]
    record = Record(row)
    with pytest.raises(Unfit, match=words):
        record.beside("kind", record.answers()[0])


@pytest.mark.parametrize("weight", [-1e-9, float("inf"), "many", [1]])
def test_a_weight_is_a_finite_number_from_0(weight):
    record = Record({"prompt": "p", "answer": {"text": "a", "probability": weight}})
    with pytest.raises(Unfit, match="expected a number from 0 as 'probability' of 'answer'"):
        record.weight(record.answers()[0])
    zero = Record({"prompt": "p", "answer": {"text": "a", "probability": 0}})
    assert zero.weight(zero.answers()[0]) == 0


def test_fields_are_those_of_the_answers_that_were_kept(tmp_path):
    """An id that names a prompt without an answer does not make all prompts known by ids."""
    rows = [{"prompt": "p", "answer": "a"}, {"task_id": "t", "completion": " "}]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.warns(UserWarning, match="'completion' is empty"):
        read = cv.read_records(tmp_path / "m.jsonl")
    assert read.fields == {"answers": ["answer"], "prompts": ["prompt"]}
    assert not read.by_id and not read.notes


ROWS = [{"prompt": "p", "answer": "a"}, {"prompt": "p", "answer": "b"}]
HELM = {"instance": 0, "request": {"prompt": "p", "model": "m"}}
CONTENTS = {
    "array": ROWS,
    "HELM": {"request_states": [HELM | {"result": {"completions": [{"text": t}]}} for t in "ab"]},
}


@pytest.fixture
def parsed(monkeypatch):
    """The names of the files that were parsed as JSON."""
    names, load = [], json.load

    def counting(stream, **options):
        names.append(stream.name.rpartition("/")[2])
        return load(stream, **options)

    monkeypatch.setattr(json, "load", counting)
    return names


def test_first_of_fields_that_differ_in_capitals_counts():
    assert known_fields(["Answer", "answer", " PROMPT "], ["prompt", "answer"]) == [
        " PROMPT ",
        "Answer",
    ]


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_whose_first_row_was_looked_at_is_parsed_once(name, tmp_path, parsed):
    path = tmp_path / "m.json"
    path.write_text(json.dumps(CONTENTS[name]))
    assert not misfit(path)
    assert [*cv.read_records(path).answers.values()] == [["a", "b"]]
    assert parsed == ["m.json"]
    # It is parsed again for the next reader, and where it has changed.
    assert [*cv.read_records(path).answers.values()] == [["a", "b"]]
    assert not known_by(path)
    path.write_text(json.dumps([*ROWS, {"prompt": "p", "answer": "c"}]))
    assert [*cv.read_records(path).answers.values()] == [["a", "b", "c"]]
    assert parsed == ["m.json"] * 4


def test_what_is_kept_of_files_that_were_looked_at_is_bounded(tmp_path, parsed, monkeypatch):
    paths = [tmp_path / f"{k}.json" for k in range(3)]
    for path in paths:
        path.write_text(json.dumps(ROWS))
    monkeypatch.setattr(files, "_KEPT_BYTES", 2 * paths[0].stat().st_size)
    assert not any(map(misfit, paths))
    for path in paths:
        cv.read_records(path)
    assert parsed == ["0.json", "1.json", "2.json", "0.json", "1.json"]


@pytest.mark.parametrize(("suffix", "between"), [("jsonl", "\n"), ("json", "\n"), ("json", ",")])
def test_a_key_that_stands_twice_is_refused_by_its_name(tmp_path, suffix, between):
    rows = ['{"prompt": "p", "answer": "a"}', '{"prompt": "p", "answer": {"b": 1, "b": 2}}']
    path = tmp_path / f"x.{suffix}"
    path.write_text(f"[{between.join(rows)}]" if between == "," else "\n".join(rows))
    if between == ",":
        with pytest.raises(ValueError, match=r"x\.json: .* has the key 'b' twice"):
            list(files.read_rows(path))
    else:
        (_, first), (line, second) = files.read_rows(path)
        assert first["answer"] == "a"
        assert (line, str(second)) == (2, "has the key 'b' twice; leave one out")
