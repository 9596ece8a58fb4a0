"""Records of language models' answers: what is read of each, what does not fit, what is doubted."""

import csv
import json
import re
import warnings

import numpy as np
import pytest
from answer_files import read, write

import condvendi_jax as cv
from condvendi_jax.records.answers import Unfit
from condvendi_jax.records.record import Fields, Prompt, Record, known_fields

USER = {"role": "user", "content": [{"type": "text", "text": "p"}]}
SYSTEM, SAID = {"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}
SAMPLE = {"doc": {"question": "q"}, "filter": "strict"}
PLAIN = {"prompt": "p", "answer": "a"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


FORMATS = {  # Records of the answers "a" and "b" to the prompt "p".
    "an answer each": [{"Question": "p", "Answer": "a"}, {"prompt": "p", "output": "b"}],
    "messages": [{"prompt": [USER], "responses": [[USER, SAID][1:], SAID | {"content": "b"}]}],
    "conversations": [
        {"prompt": "p", "answer": [USER, SAID]},
        {"prompt": "p", "answer": [{"role": "user", "content": "?"}, SAID | {"content": "b"}]},
    ],
    "arguments": [SAMPLE | {"arguments": [["p", {"until": []}]], "resps": [["a", "b"]]}],
    "two filters": [
        SAMPLE | {"doc": {"question": "p"}, "resps": [["a", "b"]]},
        SAMPLE | {"doc": {"question": "p"}, "resps": [["a", "b"]], "filter": "flexible"},
    ],
    "arguments of a chat": [
        SAMPLE | {"arguments": {"gen": {"arg_0": [json.dumps([USER])]}}, "resps": [["a", "b"]]}
    ],
    "answers that are null or equal": [
        {"prompt": "p", "responses": ["a", "b"], "answers": ["a", "b"], "generations": None}
    ],
    "blank lines": [{"prompt": "p", "answers": ["a"]}, b"", b" ", PLAIN | {"answer": "b"}],
    "blocks of thinking": [
        {"prompt": "p", "response": [{"type": "thinking", "thinking": "b"}, {"text": text}]}
        for text in "ab"
    ],
    "numbered fields in another": [{"prompt": "p", "out": {"try_1": "a", "try_2": "b"}}],
    "a missing number": [{"context": float("nan"), **PLAIN}, PLAIN | {"answer": "b"}],
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_give_the_same_rows(name):
    array = [record for record in FORMATS[name] if isinstance(record, dict)]
    marked = write("m.jsonl", b"\xef\xbb\xbf" + write("x", *FORMATS[name]).read_bytes() + b"\r\n")
    for path in (marked, write("m.json", b"", b" " + json.dumps(array).encode())):
        assert read(path) == ([("m", "p", "a"), ("m", "p", "b")], [])


EARLIER = [SYSTEM, USER, SAID, {"role": "user", "content": [{"type": "image", "image": "x"}]}]
SHOWN = 'system: s\n\nuser: p\n\nassistant: a\n\nuser: {"image": "x", "type": "image"}'
TURNS = [SYSTEM, USER | {"content": "q"}]
NAMED = {"prompt": "x", "answer": "y", "model": "z", "p": "p", "a": ["a"], "m": "other"}
INNER = {"run_type": "chain", "inputs": {"q": "p", "k": 3}, "outputs": {"why": "w", "end": "a"}}
REPORT = {"choices": [{"message": SAID}], "options": {"seed": 1}, "context": [7]}
BATCH = {"custom_id": "q1", "response": {"body": {"choices": [{"text": "a"}]}}}
PATHS = {"ask": {"text": 7}, "said": [{"out": "a"}], "system": "s"}
PROMPTS = {  # A record with the answer "a", its prompt, and the fields that are named.
    "Alpaca": ({"instruction": "p", "input": "t", "output": "a"}, "p\n\nt"),
    "no input": ({"instruction": "p", "input": "", "output": "a"}, "p"),
    "a blank field": ({"prompt": "", "question": "q", "context": "c", "answer": "a"}, "c\n\nq"),
    "choices": ({"question": "q", "choices": ["c", "d"], "response": "a"}, 'q\n\n["c", "d"]'),
    "a report of a service": (PLAIN | REPORT, "p"),
    "a list of texts": (PLAIN | {"prompt": ["q", "p"]}, "q\n\np"),
    "pairs": (PLAIN | {"history": [["u", "v"]]}, '[["u", "v"]]\n\np'),
    "system": (PLAIN | {"System": "s"}, "s\n\np"),
    "earlier turns": ({"messages": EARLIER, "answer": "a"}, SHOWN),
    "earlier turns as JSON": ({"messages": json.dumps(EARLIER), "answer": "a"}, SHOWN),
    "a call of a tool": (
        {"prompt": [USER, SAID | {"tool_calls": ["f"]}, USER], "answer": "a"},
        'user: p\n\nassistant: a\n\n["f"]\n\nuser: p',
    ),
    "tools": (PLAIN | {"tools": [{"name": "f"}], "documents": []}, 'p\n\n[{"name": "f"}]'),
    "a document": ({"doc": {"question": "q", "choices": ["c"]}, "resps": [["a"]]}, 'q\n\n["c"]'),
    "a chat": (
        {"messages": [*TURNS, SAID | {"content": "x"}, USER, SAID]},
        "system: s\n\nuser: q\n\nassistant: x\n\nuser: p",
    ),
    "a chat in a cell": ({"messages": json.dumps([USER, SAID])}, "p"),
    "a chat beside tools": ({"messages": [USER, SAID], "tools": ["t"]}, 'p\n\n["t"]'),
    "a chat beside its prompt": ({"prompt": "p", "messages": [USER, SAID]}, "p"),
    "usual fields": (NAMED | {"answer": "a", "a": ["y"]}, "x"),
    "fields that are named": (NAMED, "p", "p", "a", "m"),
    "a number": ({"question_id": 81, "turn": "t", "output": "a"}, "81", "question_id"),
    "a plain number": (PLAIN | {"prompt": 0}, "0"),
    "a field of a document": ({"doc": {"problem": "p"}, "resps": [["a"]]}, "p", "problem"),
    "the field of a format": ({"doc": {"question": "p"}, "resps": [["a"]]}, "p", None, "resps"),
    "an object of several fields": (INNER, '{"k": 3, "q": "p"}', None, "outputs.end"),
    "a field of choices": (
        {"prompt": "p", "choices": [{"text": "a"}]},
        "p",
        None,
        "choices[].text",
    ),
    "a last turn beside an answer": (
        *({"messages": [USER, SAID], "generated": "b"}, "p", None, "messages[-1]"),
    ),
    "the last entry": ({"messages": TURNS, "answer": "a"}, "q", "messages[-1]"),
    "the first entry": ({"messages": TURNS, "answer": "a"}, "s", "messages[0]"),
    "the text of an entry": ({"messages": TURNS, "answer": "a"}, "q", "messages[1].content"),
    "an entry of JSON": ({"messages": json.dumps(TURNS), "answer": "a"}, "q", "messages[-1]"),
    "paths": (PATHS, "7", "ask.text", "said[].out"),
    "a field of answers": ({"response": "p", "output": "a"}, "p", "response"),
    "a task beside a context": ({"task": "t", "context": "c", "output": "a"}, "c\n\nt"),
    "a prompt beside an id": (BATCH | {"prompt": "p"}, "p"),
    "an entry of a text": (PLAIN, "p", "prompt[-1]"),
    "the first path there is": (PLAIN | {"messages": None}, "p", "messages[-1],prompt"),
    "entries of a chat": ({"messages": [*TURNS, SAID]}, "q", "messages[1]", "messages[-1]"),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_prompt_is_all_that_the_model_was_given_or_the_field_that_is_named(name):
    record, prompt, *named = PROMPTS[name]
    fields = dict(zip(("prompt_field", "answer_field", "model_field"), named, strict=False))
    ((model, *row),), skipped = read(write("m.jsonl", record), **fields)
    assert (row, skipped) == ([prompt, "a"], [])
    assert model == {"usual fields": "z", "fields that are named": "other"}.get(name, "m")


def test_long_attachments_are_told_apart_by_their_content():
    given = (("0", "a"), ("1", "b"), ("0", "c"))
    records = [{"prompt": "p", "images": ["x" * 2000 + end], "answer": a} for end, a in given]
    (first, second, third), _ = read(write("m.jsonl", *records))
    assert first[1] == third[1] != second[1] and len(first[1]) < 30


def test_what_a_record_says_beside_its_texts():
    """Of each answer its weight and batch; what is read does not change the row."""
    two = [{"text": "a", "probability": "0.5", "call": 1}, {"text": "b", "call": 2}]
    row = {"prompt": "p", "answers": two, "model": " m ", "probabilities": [0.1, 0.25], "run": 5}
    before = json.dumps(row)
    for field, batches in (("call", ["1", "2"]), ("run", ["5", "5"]), (None, [None, None])):
        record = Record(row, Fields(batch=field), "here")
        assert [*map(record.batch, record.answers())] == batches
    assert [*map(record.weight, record.answers())] == [0.5, 0.25]
    assert (record.model(), json.dumps(row)) == ("m", before)
    batch = Record(BATCH, place="here")  # A request, whose prompt is known by an id.
    assert [*map(batch.batch, batch.answers())] == ["here"]
    assert (batch.id, batch.prompt()) == ("custom_id", Prompt("q1", ["custom_id"], is_id=True))


def test_first_of_fields_that_differ_in_capitals_counts():
    fields = ["Answer", "answer", " PROMPT "]
    assert known_fields(fields, ["prompt", "answer"]) == [" PROMPT ", "Answer"]


def test_fields_are_those_of_the_answers_that_were_kept_and_others_are_named():
    """An id that names a prompt without an answer does not make all prompts known by ids."""
    with pytest.warns(UserWarning, match="'completion' is empty"):
        found = cv.read_records(write("m.jsonl", PLAIN, {"task_id": "t", "completion": " "}))
    assert found.fields == {"answers": ["answer"], "prompts": ["prompt"]}
    assert not found.by_id and not found.notes
    path = write("m.jsonl", PLAIN | {"system": "s"})
    notes = cv.read_records(path, prompt_field="prompt").notes
    assert notes == ["not read as a part of the prompt: 'system'"]


AMBIGUOUS = [
    {"answers": ["gold"], "response": "a"},
    {"answer": "gold", "prediction": "a"},
    {"output": "a", "completion": SAID},
]


@pytest.mark.parametrize("record", AMBIGUOUS)
def test_two_fields_of_answers_are_refused(record):
    path = write("m.jsonl", PLAIN, {"prompt": "p"} | record)
    with pytest.raises(ValueError, match="line 2: .* may all be what the model said") as caught:
        cv.read_records(path)
    assert all(f"--answer_field={field}" in str(caught.value) for field in record)
    rows, _ = read(write("m.jsonl", {"prompt": "p"} | record), answer_field=[*record][1])
    assert rows == [("m", "p", "a")]


def test_lists_in_cells_are_answers():
    cells = ["['a', \"b's\"]", '["c", "d"]', "['e' 'f']", "[1, 2]", "g", "[]", r"['\d']"]
    with open("m.csv", "w", newline="") as stream:
        rows = [["", "prompt", "responses"], *(["0", "p", cell] for cell in cells)]  # Of pandas.
        csv.writer(stream).writerows(rows)
    rows, skipped = read("m.csv")
    assert [row[2] for row in rows] == ["a", "b's", "c", "d", "[1, 2]", "g", r"\d"]
    assert skipped == [
        (4, "holds a list that is neither JSON nor Python; save it as JSON"),
        (7, "'responses' holds no answers"),
    ]


def test_samples_that_an_older_harness_repeats_are_left_out():
    """They are equal but for the results of the filter, which has no name."""
    sample = {"doc_id": 0, "doc": {"question": "p"}, "resps": [["a"]]}
    other = sample | {"doc_id": 1, "resps": [["b"]]}
    rows, skipped = read(write("m.jsonl", sample, sample | {"exact_match": 1}, other))
    assert [row[2] for row in rows] == ["a", "b"]
    assert skipped == [(2, "repeats a sample, as lm-evaluation-harness does for each filter")]
    # Tasks in one file may have other filters, and runs may repeat all.
    named = [sample | {"filter": "x"}, other | {"filter": "y"}, other | {"filter": "z"}]
    assert [row[2] for row in read(write("m.jsonl", *named * 3))[0]] == ["a", "b"] * 3


LIKELY = [("a", 0.6), ("b", "0.3"), ("c", 0.3)]
BESIDE = [{"prompt": "p", "answer": a, "probability": w} for a, w in LIKELY]
WITHIN = {"prompt": "p", "responses": [{"text": a, "probability": w} for a, w in LIKELY]}
WEIGHTS = {
    "of records": (BESIDE, [0.5, 0.25, 0.25]),
    "of two prompts": ([*BESIDE, BESIDE[1] | {"prompt": "q"}], [0.5, 0.25, 0.25, 1]),
    "of answers": ([WITHIN], [0.5, 0.25, 0.25]),
    "in a list": (
        [{"prompt": "p", "answers": ["a", "b"], "probability": [0.6, 0.2]}],
        [0.75, 0.25],
    ),
    "plural": ([{"prompt": "p", "answers": ["a", "b"], "probabilities": [0.6, 0.2]}], [0.75, 0.25]),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_probabilities_of_answers_are_weights_of_sum_one_for_each_prompt(name):
    """As of verbalized sampling."""
    records, expected = WEIGHTS[name]
    found = cv.read_records(write("m.jsonl", *records))
    np.testing.assert_allclose(found.weights["m"], expected)


@pytest.mark.parametrize("weight", [-1e-9, float("inf"), "many", [1]])
def test_a_weight_is_a_finite_number_from_0(weight):
    record = Record({"prompt": "p", "answer": {"text": "a", "probability": weight}})
    with pytest.raises(Unfit, match="expected a number from 0 as 'probability' of 'answer'"):
        record.weight(record.answers()[0])
    zero = Record({"prompt": "p", "answer": {"text": "a", "probability": 0}})
    assert zero.weight(zero.answers()[0]) == 0


def test_reasoning_is_cut_and_counted_unless_it_is_kept():
    said = ["<think>long\nstory</think>\n\na", "<think>cut", "a < b"]
    path = write("m.jsonl", *({"prompt": f"p{k}", "answer": text} for k, text in enumerate(said)))
    rows, skipped = read(path)
    assert [row[2] for row in rows] == ["a", "a < b"]
    assert skipped == [(2, "'answer' holds reasoning, or its prompt, without an answer")]
    with pytest.warns(UserWarning, match="without an answer"):
        assert cv.read_records(path).summary.endswith("; cut: reasoning from 2 answers")
    with pytest.warns(UserWarning, match="kept, since clean is false: reasoning from 2 answers"):
        assert cv.read_records(path, clean=False).answers == {"m": said}


def several(*answers):
    """Answers of ten prompts, one each, or the same for all."""
    return [(f"p{k}", answers[k % len(answers)]) for k in range(10)]


def stories(count):
    return [(f"p{k}", f"a story of {k} animals") for k in range(count)]


UNIQUE = stories(10)
IDEAS = [(f"p{k}", f"idea number {(k + j) % 20}") for k in range(40) for j in (0, 3)]
REMARKS = [("very likely", "rather unlikely", f"remark {k // 2}") for k in range(40)]
DOUBTFUL = {
    "errors": ([*UNIQUE, *several("Error: rate limit")], "10 of 20 look like errors"),
    "nulls": (UNIQUE + several("None")[:3], "3 of 13 look like errors.* 'None'"),
    "log-likelihoods": (several("-107.25", "(-3.50, False)"), "10 of 10 look like errors, place"),
    "lists": (several("['a', 'b']", "['c', 'd']"), r"10 of 10 look like lists"),
    "recurring": (UNIQUE + several("keine Antwort")[:5], "5 of 15 repeat a text .* 'keine A"),
    "refusals beside texts that recur": (
        IDEAS + [(f"p{k}", "I cannot help with that.") for k in range(40)],
        "40 of 120 repeat a text .* 'I cannot",
    ),
    "constant": (several("keine Antwort"), "10 of 10 repeat a text"),
    "labels": (several("very likely", "very likely", "rather unlikely"), None),
    "labels with remarks": ([(f"p{k}", t) for k, of_k in enumerate(REMARKS) for t in of_k], None),
    "choices": (several("A", "B", "C"), None),
    "sentences": (several("The answer is 1.", "The answer is 2.", "I am not sure."), None),
    "one error": ([*UNIQUE, ("p0", "NameError: name 'x' is not defined")], None),
    "a fifth": (stories(20) + several("I cannot help you.")[:6], "6 of 26 repeat .* 'I cannot h"),
    "eight letters": (UNIQUE + several("No reply")[:5], "5 of 15 repeat a text .* 'No reply'"),
    "a twentieth": (stories(40) + several("None")[:3], "3 of 43 look like errors"),
    "a refusal": (UNIQUE + several("I cannot help.")[:2], None),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_answers_that_may_be_something_else_are_counted(name):
    rows, words = DOUBTFUL[name]
    path = write("m.jsonl", *({"prompt": prompt, "answer": answer} for prompt, answer in rows))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(cv.read_records(path).answers["m"]) == len(rows)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == (words is not None)
    assert words is None or re.search(f"m: {words}", messages[0])


CHATS = [{"messages": [USER | {"content": text}, SAID, USER, SAID]} for text in "abcd"]
CALL = SAID | {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
AGENT = [{"messages": [USER, CALL, USER | {"role": "tool"}, SAID]}]
OF_TWO = [{"model": "m", "response": "a"}, {"model": "n", "response": "b"}]
ENDS = [{"finish_reason": "length"}, {"stopReason": "max_tokens"}, {"finishReason": "MAX_TOKENS"}]
ENDS += [{"body": {"incomplete_details": {"reason": "max_output_tokens"}}}]
CHOICES = [{"text": text, "finish_reason": end} for text, end in (("a", "stop"), ("b", "length"))]
TOLD = {  # Records, the fields that are named, and words of the warning.
    **{f"cut {k}": ([PLAIN, PLAIN | end], {}, "m: 1 of 2 were cut") for k, end in enumerate(ENDS)},
    "a choice that is cut": ([{"prompt": "p", "choices": CHOICES}], {}, "1 of 2 were .* 'b'"),
    "copies": ([PLAIN, {"prompt": "q", "answer": "b"}] * 2, {}, "m: every answer stands .* twice"),
    "merged chats": (CHATS, {"prompt_field": "messages[-2]"}, "m: .* 1 diff.* 'p', .* 4 ways"),
    "sessions": ([PLAIN | {"session_name": x} for x in "ababa"], {}, "'session_name' .* a and b: "),
    "models": ([{"prompt": p, "completions": OF_TWO} for p in "pqr"], {}, "'completions.model' "),
    "tool calls": (AGENT, {}, "runs hold tool calls, which --answer_field=tool_calls compares"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_may_be_read_otherwise_is_told(name):
    records, named, words = TOLD[name]
    path = write("m.jsonl", *records)
    with pytest.warns(UserWarning, match=f"(?s){words}") as caught:
        cv.read_records(path, **named)
    assert len(caught) == 1
    if field := re.findall("--model_field=(\\S+)", str(caught[0].message)):
        assert len(cv.read_records(path, model_field=field[0]).answers) == 2


UNFIT = {
    b'{"prompt": "p", "answer": "a': "is not JSON",
    b'{"prompt": "p", "answer": "\xe9"}': "'answer' holds bytes that are not UTF-8",
    b'{"prompt": "p", "answer": "\\ud800"}': "half a surrogate pair",
    b"[" * 100_000: "is nested too deeply",
    b'{"prompt": "p", "answer": ' + b'{"content":[' * 5000 + b"]}" * 5000 + b"}": "too deeply",
    b'{"prompt": "p", "x": 1}': "has no generations or .* its fields are prompt, x",
    b'{"prompt": " ", "answer": "a"}': "'prompt' is empty",
    b'{"prompt": "p", "answer": "\\u200b \\ufeff"}': "'answer' is empty",
    b'{"prompt": {"role": "assistant", "content": "b"}, "answer": "a"}': "is not the answer",
    b'{"prompt": "p", "answer": NaN}': "expected a text in 'answer', received null",
    b'{"prompt": "p", "answers": []}': "'answers' holds no answers",
    b'{"prompt": "p", "answers": {"0": "a", "1": "b"}}': "'answers', received an object; name",
    b'{"prompt": "p", "response": {"error": "rate limit"}}': "'response', received an object",
    b'{"prompt": "p", "answers": ["c", null]}': r"expected a text in 'answers'\[1\], received null",
    b'{"prompt": "p", "answer": {"role": "user", "content": "a"}}': "'answer' is empty",
    b'{"prompt": "p", "answer": {"b": 1, "b": 2}}': "has the key 'b' twice; leave one out",
    b'{"prompt": "p", "resps": [[[-1.5, false]], [[-2.0, true]]]}': "one list of answers",
    b'{"prompt": "p", "resps": [[["-1.5", "False"], "c"]]}': r"'resps'\[0\], received a list",
    b'{"prompt": "p", "answer": "a", "model": {"content": "m"}}': "text in 'model', received {",
    b'{"task_id": "", "completion": "b"}': "expected an id in 'task_id'",
    b'{"task_id": null, "completion": "b"}': "expected an id in 'task_id'",
}


@pytest.mark.parametrize("place", UNFIT)
def test_what_does_not_fit_is_named_and_nothing_else_is_lost(place):
    fit = {"prompt": "p", "answer": "kept"}
    rows, ((line, reason),) = read(write("m.jsonl", fit, place, fit))
    assert (line, [row[2] for row in rows]) == (2, ["kept", *["c"] * place.count(b'"c"'), "kept"])
    assert re.search(UNFIT[place], reason)


TWO = [PLAIN | {"answer": answer} for answer in "ab"]
REFUSED = {  # Records, the fields that are named, and words of the error.
    "a prompt that is not there": (
        [NAMED],
        {"prompt_field": "absent"},
        "has no 'absent' for its p",
    ),
    "an answer": ([NAMED], {"answer_field": "absent"}, "line 1: has no 'absent' for its answer"),
    "a model": ([NAMED], {"model_field": "absent"}, "line 1: has no 'absent' for its model"),
    **{
        f"an entry {path}": ([{"messages": TURNS, "answer": "a"}], {"prompt_field": path}, words)
        for words in [r"has no .* A\[-1\] for its last"]
        for path in ("messages[-3]", "messages[2]", "system,messages[5]")
    },
    "a value for each answer": ([*TWO, PLAIN], {"beside": ["kind"]}, "has no 'kind' for 'answer'"),
    "a batch": ([PLAIN], {"batch_field": "x"}, "no 'x' .*are prompt, answer; --batch_field=NAME"),
    "a class": ([PLAIN], {"beside": ["x"]}, "no 'x' .*are prompt, answer; --class_field=NAME or"),
    "a value that is NaN": (
        *([PLAIN | {"kind": float("nan")}], {"beside": ["kind"]}, "has no 'kind' for"),
    ),
    "a value of two answers": (
        [{"prompt": "p", "answers": ["a", "b"], "kind": "x"}],
        *({"beside": ["kind"]}, "expected 2 values in 'kind', one for each answer"),
    ),
    "fields of other names": ([PATHS], {}, r"its fields are ask.text, said, sys.*NAME, or A\.B"),
    "a chat without an answer": (
        *([{"messages": [USER]}], {}, "has no generations .* fields are messages; --answer_fie"),
    ),
    "a last turn that is gold": (
        [{"messages": [USER, SAID], "generated": text} for text in "bc"],
        *({}, "ends with a message of the assistant that is not the an"),
    ),
    "two fields": ([INNER], {}, "'outputs', received an object; name a field in it as A"),
    "a weight of two answers": (
        [{"prompt": "p", "answers": ["a", "b"], "probability": 0.5}],
        *({}, "expected 2 values in 'probability'"),
    ),
    "an answer without its weight": (
        *([*BESIDE, PLAIN], {}, "m: an answer to 'p' has no 'probability'"),
    ),
    "a model without weights": (
        [*(row | {"model": "m"} for row in BESIDE), PLAIN | {"model": "n"}],
        *({}, "n: an answer to 'p' has no 'probability'"),
    ),
    "weights of 0": ([PLAIN | {"probability": 0}], {}, "all answers to 'p' have the probability 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_records_of_which_none_fits_are_refused(name):
    records, named, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        cv.read_records(write("m.jsonl", *records), **named)
