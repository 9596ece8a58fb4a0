"""Logs of each tool, in files of its schema: the same prompts and answers come out of all."""

import json
import re

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.records.formats import FORMATS

ANSWERS = [["a pear", "a fig"], ["a cat", "a dog"]]
PROMPTS = ["Name a fruit.", "Name an animal."]
IDS = [("q0", "q1"), ("0", "1")]
CHAT = [[{"role": "user", "content": text}] for text in PROMPTS]


def each(make):
    return [make(k, PROMPTS[k], ANSWERS[k]) for k in range(2)]


def one_each(make):
    return [make(k, PROMPTS[k], a, i) for k in range(2) for i, a in enumerate(ANSWERS[k])]


def jsonl(records):
    return "\n".join(map(json.dumps, records))


def said(text):
    return {"role": "assistant", "content": text}


def batch(k, i, body, **more):
    response = {"status_code": 200, "request_id": "r", "body": {"model": "m"} | body}
    return {"id": "b", "custom_id": f"q{k}", "response": response, "error": None} | more


def helm(k, prompt, answers):
    instance = {
        "input": {"text": "without the examples"},
        "references": [],
        "split": "test",
        "id": f"q{k}",
    }
    found = [{"text": text, "logprob": -1.0, "tokens": []} for text in answers]
    request = {"model": "m", "prompt": prompt, "num_completions": 2, "max_tokens": 9}
    result = {"success": True, "cached": False, "completions": found}
    return {"instance": instance, "request": request, "result": result}


LOGS = {  # A name of the file, its content, and whether prompts are known by ids.
    "AlpacaEval": (
        "outputs.json",
        json.dumps(one_each(lambda k, p, a, _: {"dataset": "d", "instruction": p, "output": a}
                            | {"generator": "m"})),
        False,
    ),
    "HELM": (
        "scenario_state.json",
        json.dumps({"adapter_spec": {"model": "m"}, "request_states": each(helm)}),
        False,
    ),
    "OpenAI batch, vLLM run-batch": (
        "batch.jsonl",
        jsonl(each(lambda k, _, answers: batch(
            k, 0, {"choices": [{"index": i, "message": said(a)} for i, a in enumerate(answers)]}
        ))),
        True,
    ),
    "OpenAI batch of completions": (
        "batch.jsonl",
        jsonl(one_each(lambda k, _, a, i: batch(k, i, {"choices": [{"index": 0, "text": a}]}))),
        True,
    ),
    "OpenAI batch of responses": (
        "batch.jsonl",
        jsonl(one_each(lambda k, _, a, i: batch(k, i, {"output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "why"}]},
            {"type": "message", "content": [{"type": "output_text", "text": a}]},
        ]}))),
        True,
    ),
    "Anthropic batch": (
        "batch.jsonl",
        jsonl(one_each(lambda k, _, a, i: {"custom_id": f"q{k}", "result": {
            "type": "succeeded",
            "message": {"model": "m", "content": [{"type": "text", "text": a}]},
        }})),
        True,
    ),
    "vLLM, outputs of a request": (
        "m.jsonl",
        jsonl(each(lambda k, p, answers: {"request_id": str(k), "prompt": p, "finished": True}
                   | {"outputs": [{"index": i, "text": a} for i, a in enumerate(answers)]})),
        False,
    ),
    "verl, rollouts": (
        "m.jsonl",
        jsonl(one_each(lambda k, p, a, _: {"input": p, "output": a, "gts": "gold", "score": 1.0}
                       | {"step": 7})),
        False,
    ),
    "lm-evaluation-harness": (
        "m.jsonl",
        jsonl(each(lambda k, p, answers: {"doc_id": k, "doc": {"question": "?"}, "target": "t"}
                   | {"arguments": {"gen_args_0": {"arg_0": p, "arg_1": {"until": []}}}}
                   | {"resps": [answers], "filtered_resps": answers[:1]})),
        False,
    ),
    "evalplus": (
        "m.jsonl", jsonl(one_each(lambda k, _, a, __: {"task_id": f"q{k}", "solution": a})), True,
    ),
    "HumanEval": (
        "m.jsonl",
        jsonl(one_each(lambda k, _, a, __: {"task": "t", "task_id": f"q{k}", "completion": a})),
        True,
    ),
    "tasks with outputs": (
        "m.jsonl", jsonl(each(lambda _, p, answers: {"task": p, "outputs": answers})), False,
    ),
    "a record a line in .json": (
        "m.json", jsonl(each(lambda _, p, answers: {"prompt": p, "answers": answers})), False,
    ),
    "TSV": (
        "m.tsv",
        "\n".join(["prompt\tanswer", *one_each(lambda _, p, a, __: f"{p}\t{a}")]),
        False,
    ),
}  # fmt: skip


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


@pytest.mark.parametrize("tool", LOGS)
def test_the_log_of_each_tool_is_read(write, tool):
    name, content, by_id = LOGS[tool]
    path = write(name, content)
    read = cv.read_records(path, names={str(path): "m"})
    assert read.answers == {"m": sum(ANSWERS, [])}
    assert not read.skipped
    assert read.by_id == by_id
    assert any(read.prompts["m"] == list(np.repeat(of, 2)) for of in (IDS if by_id else [PROMPTS]))


def test_every_row_of_the_table_has_a_log_and_the_name_of_its_model(write):
    assert {row.tool for row in FORMATS} - LOGS.keys() == {"lmms-eval"}
    for row in FORMATS:
        if row.model:
            name, content, _ = LOGS[row.tool]
            assert list(cv.read_records(write(f"x{name}", content)).answers) == ["m"]


def test_questions_of_one_text_about_other_pictures_are_other_prompts(write):
    sample = {"input": "What is it?", "target": "t", "filtered_resps": []}
    records = [
        sample | {"doc_id": k, "resps": resps} for k, resps in enumerate((["a", "b"], [["c"]]))
    ]
    read = cv.read_records(write("m.jsonl", jsonl(records)))
    assert read.answers == {"m": ["a", "b", "c"]}
    assert len({*read.prompts["m"]}) == 2


def test_a_request_that_failed_is_left_out_and_named(write):
    failed = batch(1, 0, {}, response=None, error={"message": "rate limit"})
    good = batch(0, 0, {"choices": [{"message": said("a")}]})
    with pytest.warns(UserWarning, match="response.body.output' holds no answers"):
        read = cv.read_records(write("b.jsonl", jsonl([good, failed])), names={"b.jsonl": "m"})
    assert read.answers == {"m": ["a"]}


def test_probabilities_of_answers_are_weights_of_sum_one_for_each_prompt(write):
    """Verbalized sampling; as fields of answers, or of records of one answer."""
    likely = [("a", 0.6), ("b", "0.3"), ("c", 0.3)]
    within = [{"prompt": "p", "responses": [{"text": a, "probability": w} for a, w in likely]}]
    beside = [{"prompt": "p", "answer": a, "probability": w} for a, w in likely]
    for records in (within, beside):
        read = cv.read_records(
            write("m.jsonl", jsonl([*records, {"prompt": "q"} | beside[0] | {"prompt": "q"}]))
        )
        np.testing.assert_allclose(read.weights["m"], [0.5, 0.25, 0.25, 1])
    listed = {"prompt": "p", "answers": ["a", "b"], "probability": [0.6, 0.2]}
    for field in ("probability", "probabilities"):
        records = [{"prompt": "p", "answers": ["a", "b"], field: [0.6, 0.2]}]
        weights = cv.read_records(write("m.jsonl", jsonl(records))).weights
        np.testing.assert_allclose(weights["m"], [0.75, 0.25])
    with pytest.raises(ValueError, match="expected 2 values in 'probability'"):
        cv.read_records(write("m.jsonl", jsonl([listed | {"probability": 0.5}])))
    odd = {"prompt": "p", "answer": "d", "probability": -1}
    with pytest.warns(UserWarning, match="expected a number from 0 as 'probability'"):
        read = cv.read_records(write("m.jsonl", jsonl([*beside, odd])))
    assert read.answers == {"m": ["a", "b", "c"]}
    for model in ("m", "n"):
        without = {"prompt": "p", "answer": "a", "model": model}
        with pytest.raises(ValueError, match=f"{model}: an answer to 'p' has no 'probability'"):
            cv.read_records(
                write("m.jsonl", jsonl([*[b | {"model": "m"} for b in beside], without]))
            )
    with pytest.raises(ValueError, match="all answers to 'p' have the probability 0"):
        cv.read_records(write("m.jsonl", jsonl([beside[0] | {"probability": 0}])))


FLAGS = ("--text_encoder=fake_encoders:Means", "--cache=cache", "--output_bandwidth=1")


def test_stated_probabilities_are_scored_as_a_distribution(write, run_command):
    """Equal to one over the sum of squares, which the correction for samples would exceed."""
    shares = (0.4, 0.3, 0.2, 0.1)
    texts = [{"text": t, "probability": w} for t, w in zip("afmz", shares, strict=True)]
    write("m.jsonl", jsonl([{"prompt": p, "responses": texts} for p in "pqr"]))
    report, out = run_command("score", "m.jsonl", *FLAGS, "--order=2")
    scores = report["scores"][0]
    assert "answers are weighed by their 'probability'" in out
    assert "unbiased" not in out
    assert scores["conditional"] == pytest.approx(1 / np.square(shares).sum(), rel=1e-4)


@pytest.mark.slow
def test_prompts_that_are_known_by_ids_are_equal_or_different(write, run_command):
    """Embedded ids would have a meaning that they do not have."""
    answers = [[letter + "x" * k for letter in "ab"] for k in range(8)]
    rows = [{"task_id": k, "solution": a} for k, of in enumerate(answers) for a in of]
    write("m.jsonl", jsonl(rows))
    report, out = run_command("score", "m.jsonl", *FLAGS, "--order=2")
    assert "prompts are known by 'task_id' alone" in out
    assert report["bandwidths"]["prompts"]["bandwidth"] is None
    write("p.txt", "\n".join(f"prompt {k}" for k in range(8)))
    with pytest.raises(ValueError, match="--prompts=p.txt: has no effect"):
        run_command("score", "m.jsonl", "--prompts=p.txt", *FLAGS, "--order=2")
    with pytest.raises(ValueError, match="expected embeddings for similar_prompts"):
        run_command("score", "m.jsonl", *FLAGS, "--similar_prompts")


def test_fields_within_fields_are_named_by_their_path(write):
    record = {"ask": {"text": "p"}, "said": [{"out": "a"}, {"out": "b"}]}
    path = write("m.jsonl", jsonl([record]))
    with pytest.raises(ValueError, match=r"its fields are ask, said; .*_field=NAME, or A\.B"):
        cv.read_records(path)
    read = cv.read_records(path, prompt_field="ask.text", answer_field="said[].out")
    assert (read.prompts, read.answers) == ({"m": ["p", "p"]}, {"m": ["a", "b"]})


def test_json_of_another_form_is_refused_with_what_was_seen(write):
    table = {"columns": ["prompt", "answer"], "data": [["p", "a"]]}
    for content, words in (
        ({"runs": []}, "received the keys 'runs'"),
        (3, "received 3"),
        (table, "its fields are columns, data"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            cv.read_records(write("m.json", json.dumps(content)))


def test_a_response_of_several_messages_is_one_answer(write):
    parts = [{"type": "message", "content": [{"type": "output_text", "text": t}]} for t in "ab"]
    read = cv.read_records(write("b.jsonl", jsonl([batch(0, 0, {"output": ["x", *parts]})])))
    assert read.answers == {"m": ["a\n\nb"]}


def test_fields_that_hold_the_answers_are_no_part_of_the_prompt(write):
    record = {"prompt": "p", "choices": [{"text": "a"}, {"text": "b"}]}
    read = cv.read_records(write("m.jsonl", jsonl([record])), answer_field="choices[].text")
    assert (read.prompts, read.answers) == ({"m": ["p", "p"]}, {"m": ["a", "b"]})


@pytest.mark.parametrize("name", [None, ""])
def test_a_record_with_neither_prompt_nor_id_is_left_out(write, name):
    rows = [{"task_id": "q", "completion": "a"}, {"task_id": name, "completion": "b"}]
    with pytest.warns(UserWarning, match="expected an id in 'task_id'"):
        read = cv.read_records(write("m.jsonl", jsonl(rows)))
    assert read.answers == {"m": ["a"]}


def test_requests_are_batches_where_prompts_were_asked_again(tmp_path):
    """Elsewhere no pair would be left, and a note says that answers count as independent."""
    path, twice = tmp_path / "a.jsonl", [*range(2)] * 2
    path.write_text(jsonl(helm(k, PROMPTS[k], ANSWERS[k]) for k in twice))
    read = cv.read_records(path)
    assert [of == read.batches["m"][0] for of in read.batches["m"]] == [True] * 2 + [False] * 6
    assert len({*read.batches["m"]}) == 4
    path.write_text(jsonl(helm(k, PROMPTS[k], ANSWERS[k]) for k in range(2)))
    read = cv.read_records(path)
    assert read.batches is None and any("one request count as indep" in of for of in read.notes)
    rows = [{"prompt": PROMPTS[k], "answers": ANSWERS[k], "call": i} for i, k in enumerate(twice)]
    path.write_text(jsonl(rows))
    assert cv.read_records(path).batches is None
    read = cv.read_records(path, batch_field="call")
    assert read.batches["a"] == [f" {i}" for i in range(4) for _ in range(2)]
