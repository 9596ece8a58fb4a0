"""Which field holds the answers, in formats that a generator makes up."""

import collections
import json
import random

import pytest

import condvendi_jax as cv
from condvendi_jax.records.record import Candidate, _texts

POOL = ["pear", "fig", "plum", "apple", "It rains.", "My brother plays the guitar.", "42", "yes"]
GOLD_FIRST = {"question": "Q{i}?", "answer": "gold {i}"}


def word(rng):
    return "".join(rng.choice("bcdfglmnprstv") + rng.choice("aeiou") for _ in range(3))


def put(row, path, value):
    *above, last = path.split(".")
    for key in above:
        row = row.setdefault(key, {})
    row[last] = value


def made_up(seed):
    """Records of an unknown tool, with the pairs of prompt and answer that are in them."""
    rng = random.Random(seed)
    names = [word(rng), "pred", "text", "samples", f"{word(rng)}.text", "answer", "response"]
    field, asked_in = rng.choice(names), rng.choice(["prompt", "question", "instruction", "input"])
    gold = rng.choice([None, "answer", "reference", "output", "completion"])
    k = rng.choice([1, 4, 4])
    layout = rng.choice(["rows", "list", "columns"]) if k > 1 else "rows"
    beside = {
        "id": lambda i, j: f"{i}-{j}",
        "score": lambda i, j: rng.random(),
        "seed": lambda i, j: j,
        "finish_reason": lambda i, j: rng.choice(["stop", "length"]),
        "category": lambda i, j: rng.choice(["a b", "c d"]),
        "timestamp": lambda i, j: f"2026-01-{1 + i:02d}T00:00:{j:02d}",
        "digest": lambda i, j: f"{rng.getrandbits(64):016x}",
    }
    beside = {name: beside[name] for name in beside if rng.random() < 0.4}
    rows, pairs = [], []
    for i in range(12):
        prompt, said = f"Tell me of thing number {i}.", [rng.choice(POOL) for _ in range(k)]
        base = {asked_in: prompt}
        if gold not in (None, field):
            base[gold] = rng.choice([f"gold {i}", said[0]])
        pairs += [(prompt, answer) for answer in said]
        for j, answer in enumerate(said if layout == "rows" else [said]):
            row = {**base, **{name: make(i, j) for name, make in beside.items()}}
            if layout == "columns":
                for number, one in enumerate(answer):
                    put(row, f"{field}_{number + 1}", one)
            else:
                put(row, field, answer)
            rows.append(row)
    rng.shuffle(rows)
    return rows, sorted(pairs)


@pytest.mark.filterwarnings("ignore:some answers may not be what")  # Some ended at a limit.
def test_no_format_is_read_wrongly_and_few_are_refused(tmp_path):
    ends = collections.Counter()
    for seed in range(150):
        rows, pairs = made_up(seed)
        path = tmp_path / f"{seed}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        try:
            records = cv.read_records(path)
        except ValueError as error:
            assert "may all be what the model said. Name the right one: --answer_f" in str(error)
            ends["refused"] += 1
            continue
        ((name, answers),) = records.answers.items()
        assert sorted(zip(records.prompts[name], answers, strict=True)) == pairs, (seed, rows[:2])
        ends["right"] += 1
    assert ends["refused"] < 40


@pytest.mark.parametrize("field", ["pred", "model_answer", "decoded", "raw_output", "code", "x"])
def test_gold_answers_are_never_scored(tmp_path, field):
    path = tmp_path / "m.jsonl"
    rows = [{"question": f"Q{i}?", "answer": f"gold {i}", field: POOL[(i + k) % 8]}
            for i in range(5) for k in range(8)]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    records = cv.read_records(path)
    assert sorted(records.answers["m"]) == sorted(POOL * 5)
    assert f"read from {field!r}, because 'answer' is the same for all answers" in records.notes[0]
    assert records.summary == f"40 answers (field {field!r}) to 5 prompts (field 'question')"
    once = tmp_path / "once.jsonl"  # Nothing varies within a prompt.
    once.write_text("\n".join(map(json.dumps, rows[::8])))
    with pytest.raises(ValueError, match=f"'answer' and '{field}' may all be .*_field={field}"):
        cv.read_records(once)
    assert cv.read_records(once, answer_field=field).answers["once"] == POOL[:5]


def test_files_of_like_fields_are_read_alike(tmp_path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, said in zip(paths, (POOL[:4], POOL[:1] * 4), strict=True):  # b is certain.
        asked = [{"prompt": f"p{i}", "answer": f"gold {i}"} for i in range(3)]
        rows = [row | {"said": text} for row in asked for text in said]
        path.write_text("\n".join(map(json.dumps, rows)))
    records = cv.read_records(paths)
    assert {*records.answers["b"]} == {POOL[0]} and {*records.answers["a"]} == {*POOL[:4]}


@pytest.mark.parametrize(("one", "other"), [("one", "other"), ("answer", "description")])
def test_two_fields_that_may_be_right_are_refused_by_name(tmp_path, one, other):
    """Texts that vary both; and gold answers beside a field that seldom holds answers."""
    path, rows = tmp_path / "m.jsonl", []
    for i in range(3):
        for k in range(3):
            texts = {one: f"a {i} {k}" if one == "one" else f"gold {i}", other: f"b {i} {k}"}
            rows.append({"prompt": f"p{i}"} | texts)
    path.write_text("\n".join(map(json.dumps, rows)))
    words = f"'{one}' and '{other}' may all be .*={one} or --answer_field={other}; .*={one},{other}"
    with pytest.raises(ValueError, match=words):
        cv.read_records(path)
    assert cv.read_records(path, answer_field=other).answers["m"][0] == "b 0 0"
    models = cv.read_records(path, answer_field=f"{one},{other}").answers
    assert {name: len(said) for name, said in models.items()} == {one: 9, other: 9}


def test_the_least_shares_of_prompts_that_vary_and_that_have_texts_of_their_own():
    for count, varies in ((10, True), (21, False)):
        said = {f"p{k}": ["a", "a" if k else "b"] for k in range(count)}
        assert Candidate("x", said=said).varies == varies
    for kinds, distinct in ((5, True), (2, False)):
        said = {f"p{k}": [f"a{k % kinds}"] for k in range(10)}
        assert Candidate("x", said=said).is_distinct == distinct


def test_texts_are_looked_for_in_three_objects():
    deep = {"b": {"c": {"d": "text"}}}
    assert _texts({"a": deep}, ()) == {"a.b.c.d": ["text"]}
    assert _texts({"o": {"a": deep}}, ()) == {}


def test_names_of_classes_and_models_are_no_answers(tmp_path):
    """Also where each prompt has one answer, and in whatever order the files come."""
    for order in ("ab", "ba"):
        assert not Candidate("x", said=dict.fromkeys("pqrs", ["a"]) | {"t": [*order]}).is_distinct
    path, keys = tmp_path / "m.jsonl", ["model_a", "model_b", "response_a", "response_b"]
    rows = [{"prompt": f"p{i}", "answer": f"a {i}", "cls": POOL[i]} for i in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert cv.read_records(path).answers["m"] == [row["answer"] for row in rows]
    arena = [{"prompt": f"p{i}"} | {k: f"{k[-1]} {POOL[i]}" for k in keys} for i in range(6)]
    path.write_text("\n".join(map(json.dumps, arena)))
    with pytest.raises(ValueError, match="all of them, --answer_field=response_a,response_b, or"):
        cv.read_records(path)


def test_numbers_are_answers_and_names_of_models(tmp_path):
    path = tmp_path / "m.jsonl"
    rows = [{"prompt": "p", "answer": value, "heat": 0.7} for value in (4, 4.5, True, "4")]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert cv.read_records(path).answers["m"] == ["4", "4.5", "true", "4"]
    assert [*cv.read_records(path, model_field="heat").answers] == ["0.7"]  # As of a CSV.


def test_a_dialogue_of_texts_is_a_prompt_that_a_message_leads_to(tmp_path):
    path = tmp_path / "m.jsonl"
    rows = [{"context": ["Hi.", f"Q{i}?"], "response": f"gold {i}", "hyps": POOL[i : i + 3]}
            for i in range(4)]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="fields are context, response, hyps; --prompt_field"):
        cv.read_records(path)
    records = cv.read_records(path, prompt_field="context")
    assert records.answers["m"][:3] == POOL[:3] and records.prompts["m"][0] == "Hi.\n\nQ0?"
