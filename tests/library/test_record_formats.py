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


def state(k, prompt):
    return {"instance_id": f"q{k}", "request": {"prompt": prompt, "model": "m"}}


def every_eval_ever(k, prompt, answers):
    about = {"schema_version": "0.3.0", "evaluation_id": "e", "model_id": "m", "sample_id": str(k)}
    return about | {"input": {"raw": prompt, "reference": ["gold"]}, "output": {"raw": answers}}


def promptfoo(k, prompt, answer, i):
    about = {"promptIdx": 0, "testIdx": k, "vars": {"w": prompt}, "provider": {"id": "m"}}
    return about | {"prompt": {"raw": prompt, "label": "l"}, "response": {"output": answer}}


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
    "batch of OpenAI": (
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
    "batch of Anthropic": (
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
    "HELM, displayed": (
        "display_predictions.json",
        json.dumps(one_each(lambda k, _, a, __: {"instance_id": f"q{k}", "predicted_text": a}
                            | {"train_trial_index": 0, "stats": {"n": 1.0}})),
        True,
    ),
    "OpenAI, vLLM: chat": (
        "m.jsonl",
        jsonl(each(lambda k, p, answers: {"messages": CHAT[k], "object": "chat.completion"}
                   | {"choices": [{"message": said(a), "index": 0} for a in answers]})),
        False,
    ),
    "OpenAI, vLLM: texts": (
        "m.jsonl",
        jsonl(each(lambda k, p, answers: {"prompt": p, "object": "text_completion", "choices": [
            {"index": i, "text": a, "finish_reason": "stop"} for i, a in enumerate(answers)
        ]})),
        False,
    ),
    "OpenAI calls": (
        "m.jsonl",
        jsonl(one_each(lambda k, p, a, _: {
            "request": {"model": "x", "messages": CHAT[k], "temperature": 1},
            "response": {"model": "m", "choices": [{"message": said(a)}]},
        })),
        False,
    ),
    "Ollama": (
        "m.jsonl",
        jsonl(one_each(lambda k, p, a, _: {"model": "m", "messages": CHAT[k], "message": said(a)}
                       | {"done": True, "total_duration": 5})),
        False,
    ),
    "Ollama, generated": (
        "m.jsonl",
        jsonl(one_each(lambda _, p, a, __: {"model": "m", "prompt": p, "response": a, "done": True}
                       | {"context": [1, 2]})),
        False,
    ),
    "MT-bench": (
        "m.jsonl",
        jsonl(each(lambda k, _, answers: {"question_id": f"q{k}", "answer_id": "x", "model_id": "m"}
                   | {"choices": [{"index": 0, "turns": [a, "2"]} for a in answers]})),
        True,
    ),
    "lighteval": (
        "details.json",
        json.dumps(each(lambda _, p, answers: {"full_prompt": p, "example": "e", "gold": ["x"]}
                        | {"predictions": answers, "metrics": {"em": 0}})),
        False,
    ),
    "lighteval, a list in a cell": (
        "details.jsonl",
        jsonl(each(lambda _, p, answers: {"full_prompt": p, "predictions": str(answers)})),
        False,
    ),
    "lighteval, new": (
        "details.jsonl",
        jsonl(each(lambda _, p, answers: {"doc": {"query": p, "choices": ["x"], "gold_index": 0}}
                   | {"model_response": {"text": answers, "input": p}, "metric": {"em": 0}})),
        False,
    ),
    "promptfoo": (
        "output.json",
        json.dumps({"evalId": "e", "config": {"tests": [{}]}, "results": {
            "version": 3, "prompts": [{"raw": "r", "label": "l", "provider": "m"}],
            "results": one_each(promptfoo),
        }}),
        False,
    ),
    "promptfoo, lines": ("output.jsonl", jsonl(one_each(promptfoo)), False),
    "LangSmith": (
        "runs.jsonl",
        jsonl(one_each(lambda k, p, a, _: {"id": "r", "name": "chain", "run_type": "chain"}
                       | {"inputs": {"question": p}, "outputs": {"output": a}})),
        False,
    ),
    "LangSmith, calls": (
        "runs.jsonl",
        jsonl(each(lambda k, p, answers: {"run_type": "llm", "inputs": {"messages": CHAT[k]}}
                   | {"outputs": {"generations": [[{"text": a} for a in answers]], "run": None}})),
        False,
    ),
    "Langfuse": (
        "traces.jsonl",
        jsonl(one_each(lambda _, p, a, __: {"id": "t", "name": "n", "input": {"topic": p}}
                       | {"output": {"answer": a, "tokens": 3}, "metadata": {}})),
        False,
    ),
    "pydantic-evals": (
        "report.json",
        json.dumps({"name": "r", "failures": [{"name": "c", "inputs": "x", "error_message": "e"}],
                    "cases": one_each(lambda k, p, a, i: {
                        "name": f"c{k} [{i + 1}/2]", "source_case_name": f"c{k}", "inputs": p,
                        "expected_output": "gold", "output": a, "scores": {}})}),
        False,
    ),
    "OpenAI evals": (
        "items.json",
        json.dumps({"object": "list", "has_more": False, "data": one_each(lambda k, p, a, _: {
            "object": "eval.run.output_item", "datasource_item": {"question": "?"},
            "results": [{"name": "grader", "passed": True}],
            "sample": {"input": CHAT[k], "output": [said(a)], "model": "m"},
        })}),
        False,
    ),
    "Every Eval Ever": ("samples.jsonl", jsonl(each(every_eval_ever)), False),
    "Every Eval Ever, a line an answer": (
        "samples.jsonl", jsonl(one_each(lambda k, p, a, _: every_eval_ever(k, p, [a]))), False,
    ),
    "Every Eval Ever, turns": (
        "samples.jsonl",
        jsonl(one_each(lambda k, p, a, _: every_eval_ever(k, p, []) | {"output": None}
                       | {"messages": [*CHAT[k], said(a)], "interaction_type": "multi_turn"})),
        False,
    ),
    "Weights & Biases, a table": (
        "table.json",
        json.dumps({"columns": ["prompt", "answer"],
                    "data": one_each(lambda _, p, a, __: [p, a]), "ncols": 2}),
        False,
    ),
    "messages alone": (
        "m.jsonl", jsonl(one_each(lambda k, _, a, __: {"messages": [*CHAT[k], said(a)]})), False,
    ),
    "ShareGPT": (
        "m.json",
        json.dumps(one_each(lambda _, p, a, __: {"id": "i", "conversations": [
            {"from": "human", "value": p}, {"from": "gpt", "value": a}
        ]})),
        False,
    ),
    "records by their ids": (
        "m.json",
        json.dumps({f"q{k}": r for k, r in enumerate(
            each(lambda _, p, a: {"prompt": p, "answers": a}))}),
        False,
    ),
    "columns of pandas": (
        "m.json",
        json.dumps({name: {str(k): r[name] for k, r in enumerate(
            one_each(lambda _, p, a, __: {"prompt": p, "answer": a})
        )} for name in ("prompt", "answer")}),
        False,
    ),
    "a list of objects under a key": (
        "m.json",
        json.dumps({"date": "d", "runs": each(lambda _, p, a: {"prompt": p, "answers": a})}),
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
    with pytest.raises(ValueError, match="p.txt: expected a file ending in .jsonl"):
        run_command("score", "m.jsonl", "--prompts=p.txt", *FLAGS, "--order=2")
    with pytest.raises(ValueError, match="expected embeddings for similar_prompts"):
        run_command("score", "m.jsonl", *FLAGS, "--similar_prompts")


def test_fields_within_fields_are_named_by_their_path(write):
    record = {"ask": {"text": "p"}, "said": [{"out": "a"}, {"out": "b"}]}
    path = write("m.jsonl", jsonl([record]))
    with pytest.raises(ValueError, match=r"its fields are ask.text, said; .*NAME, or A\.B"):
        cv.read_records(path)
    read = cv.read_records(path, prompt_field="ask.text", answer_field="said[].out")
    assert (read.prompts, read.answers) == ({"m": ["p", "p"]}, {"m": ["a", "b"]})


def test_json_of_another_form_is_refused_with_what_was_seen(write):
    lists = {"runs": [{"a": 1}], "others": [{"b": 1}]}
    for content, words in (
        (lists, "received the keys 'runs', 'others'"),
        ({"runs": []}, "its fields are runs"),
        (3, "expected an object"),
        ({"columns": ["prompt", "answer"], "data": [["p"]]}, "not hold a cell for each column"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            cv.read_records(write("m.json", json.dumps(content)))


QUESTIONS = {  # A log whose prompts are known by ids, and a file that holds them.
    "OpenAI batch": (
        "batch of OpenAI",
        lambda k, p: {"custom_id": f"q{k}", "method": "POST", "body": {"messages": CHAT[k]}},
    ),
    "responses": (
        "OpenAI batch of responses",
        lambda k, p: {"custom_id": f"q{k}", "body": {"model": "m", "input": p}},
    ),
    "Anthropic": (
        "batch of Anthropic",
        lambda k, p: {"custom_id": f"q{k}", "params": {"model": "m", "messages": CHAT[k]}},
    ),
    "MT-bench": ("MT-bench", lambda k, p: {"question_id": f"q{k}", "turns": [p, "And now?"]}),
    "evalplus": ("evalplus", lambda k, p: {"task_id": f"q{k}", "prompt": p, "entry_point": "f"}),
    "HELM": ("HELM, displayed", state),
    "HELM's instances": (
        "HELM, displayed",
        lambda k, p: {"id": f"q{k}", "input": {"text": p}, "references": []},
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_prompts_are_joined_by_their_ids(write, name):
    tool, make = QUESTIONS[name]
    path = write("m.json" if tool.startswith("HELM") else "m.jsonl", LOGS[tool][1])
    asked = write("asked.jsonl", jsonl([make(k, p) for k, p in enumerate(PROMPTS)]))
    read = cv.read_records(path, names={str(path): "m"}, prompts_by_id=asked)
    assert read.prompts == {"m": list(np.repeat(PROMPTS, 2))}
    assert not read.by_id and not read.skipped


def test_ids_of_one_prompt_are_one_prompt_and_what_does_not_join_is_named(write):
    rows = [{"task_id": f"q{k}", "completion": a} for k, a in enumerate("abc")]
    path = write("m.jsonl", jsonl(rows))
    asked = [{"task_id": f"q{k}", "prompt": p} for k, p in enumerate("pp")]
    with pytest.warns(UserWarning, match="no prompt was given with 'q2' as its 'task_id'"):
        read = cv.read_records(path, prompts_by_id=[write("p.jsonl", jsonl(asked))])
    assert read.counts == {"m": {"p": 2}}
    for name, content, words in (
        ("p.jsonl", [*asked, {"task_id": "q1", "prompt": "r"}], "'q1' has a second prompt"),
        ("p.jsonl", [{"prompt": "p"}], "line 1: expected a prompt with its custom_id or"),
        ("p.jsonl", rows, "line 1: has no prompt or question"),
    ):
        with pytest.raises(ValueError, match=words):
            cv.read_records(path, prompts_by_id=write(name, jsonl(content)))
    plain = write("plain.jsonl", jsonl([{"prompt": "p", "answer": "a"}]))
    with pytest.raises(ValueError, match="p.jsonl: has no effect, as .*plain.jsonl has prompts"):
        cv.read_records(plain, prompts_by_id=write("p.jsonl", jsonl(asked)))


def test_prompts_beside_the_display_files_of_helm_are_joined(write):
    path = write("display_predictions.json", LOGS["HELM, displayed"][1])
    write("display_requests.json", json.dumps([state(k, p) for k, p in enumerate(PROMPTS)]))
    read = cv.read_records(path)
    assert list(read.prompts.values()) == [list(np.repeat(PROMPTS, 2))]
    assert read.notes[0].endswith("display_requests.json")
    assert cv.read_records(path.parent).prompts == {path.parent.name: [*read.prompts.values()][0]}
    write("scenario_state.json", LOGS["HELM"][1])
    assert cv.read_records(path.parent).answers == {"m": sum(ANSWERS, [])}


CHATS = {
    "a system message and an earlier turn": (
        {"messages": [{"role": "system", "content": "s"}, *CHAT[0]]
                     + [said("x"), *CHAT[1], said("a")]},
        "system: s\n\nuser: Name a fruit.\n\nassistant: x\n\nuser: Name an animal.",
    ),
    "tools beside": (
        {"messages": [*CHAT[0], said("a")], "tools": ["t"]}, 'Name a fruit.\n\n["t"]',
    ),
    "the first prompt beside": (
        {"prompt": PROMPTS[0], "messages": [*CHAT[0], said("a")]}, PROMPTS[0],
    ),
    "a chat in a cell": ({"messages": json.dumps([*CHAT[0], said("a")])}, PROMPTS[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHATS)
def test_the_last_turn_of_a_chat_answers_those_before(write, name):
    record, prompt = CHATS[name]
    read = cv.read_records(write("m.jsonl", jsonl([record])))
    assert (read.answers, read.prompts) == ({"m": ["a"]}, {"m": [prompt]})
    open_chat = {"messages": [*CHAT[0]]}
    with pytest.raises(ValueError, match="has no generations .* fields are messages; --answer_fie"):
        cv.read_records(write("m.jsonl", jsonl([open_chat])))


def test_the_last_turn_may_be_gold_beside_what_a_model_said(write):
    gold = one_each(lambda k, p, a, i: {"messages": [*CHAT[k], said("gold")], "generated": a})
    path = write("m.jsonl", jsonl(gold))
    with pytest.raises(ValueError, match="ends with a message of the assistant that is not the an"):
        cv.read_records(path)
    read = cv.read_records(path, answer_field="messages[-1]")
    assert (read.answers, read.counts["m"]) == ({"m": ["gold"] * 4}, dict.fromkeys(PROMPTS, 2))


def test_an_object_with_several_fields_asks_for_one(write):
    failed = {"prompt": "p", "response": {"error": "rate limit"}}
    with pytest.raises(ValueError, match="'response', received an object"):
        cv.read_records(write("m.jsonl", jsonl([failed])))
    run = {"run_type": "chain", "inputs": {"q": "p", "k": 3}, "outputs": {"why": "w", "end": "a"}}
    path = write("m.jsonl", jsonl([run]))
    with pytest.raises(ValueError, match="'outputs', received an object; name a field in it as A"):
        cv.read_records(path)
    read = cv.read_records(path, answer_field="outputs.end")
    assert (read.answers, read.prompts) == ({"m": ["a"]}, {"m": ['{"k": 3, "q": "p"}']})


def test_the_field_of_a_format_may_be_named(write):
    path = write("m.jsonl", LOGS["lm-evaluation-harness"][1])
    assert cv.read_records(path, answer_field="resps").answers == {"m": sum(ANSWERS, [])}


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
