"""Logs of each tool, in files of its schema: the same prompts and answers come out of all."""

import json
import re

import numpy as np
import pytest
from answer_files import read, write

import condvendi_jax as cv
from condvendi_jax.records.formats import FORMATS

ANSWERS = [["a pear", "a fig"], ["a cat", "a dog"]]
PROMPTS = ["Name a fruit.", "Name an animal."]
CHAT = [[{"role": "user", "content": text}] for text in PROMPTS]
# The tool, the file, whether a record has one answer or all of a prompt, and the record, in which
# P is the prompt, ASKED its message, Q its id and A an answer; then what is around the ROWS.
LOGS = """
AlpacaEval | .json | one | {"instruction": "P", "output": "A", "generator": "m", "dataset": "d"}
HELM | .json | all | {"instance": {"input": {"text": "without the examples"}, "references": [],
    "split": "test", "id": "Q"}, "request": {"model": "m", "prompt": "P", "num_completions": 2},
    "result": {"success": true, "completions": [{"text": "A", "logprob": -1.0, "tokens": []}]}}
    | {"adapter_spec": {"model": "m"}, "request_states": "ROWS"}
HELM, displayed | .json | one | {"instance_id": "Q", "predicted_text": "A", "stats": {"n": 1.0}}
batch of OpenAI | .jsonl | all | {"custom_id": "Q", "error": null, "response": {"status_code": 200,
    "body": {"model": "m", "choices": [{"index": 0, "message": "SAID"}]}}}
OpenAI batch of completions | .jsonl | one | {"custom_id": "Q", "response": {"request_id": "r",
    "body": {"model": "m", "choices": [{"index": 0, "text": "A"}]}}}
OpenAI batch of responses | .jsonl | one | {"custom_id": "Q", "response": {"body": {"output": [
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "why"}]},
    {"type": "message", "content": [{"type": "output_text", "text": "A"}]}]}}}
batch of Anthropic | .jsonl | one | {"custom_id": "Q", "result": {"type": "succeeded",
    "message": {"model": "m", "content": [{"type": "text", "text": "A"}]}}}
vLLM, outputs of a request | .jsonl | all | {"request_id": "0", "prompt": "P", "finished": true,
    "outputs": [{"index": 0, "text": "A"}]}
verl, rollouts | .jsonl | one | {"input": "P", "output": "A", "gts": "gold", "score": 1.0}
lm-evaluation-harness | .jsonl | all | {"doc_id": 0, "doc": {"question": "?"}, "target": "t",
    "arguments": {"gen_args_0": {"arg_0": "P", "arg_1": {"until": []}}}, "resps": [["A"]],
    "filtered_resps": []}
evalplus | .jsonl | one | {"task_id": "Q", "solution": "A"}
HumanEval | .jsonl | one | {"task": "t", "task_id": "Q", "completion": "A"}
tasks with outputs | .jsonl | all | {"task": "P", "outputs": ["A"]}
a record a line in .json | .json | all | {"prompt": "P", "answers": ["A"]} | LINES
OpenAI, vLLM: chat | .jsonl | all | {"messages": ["ASKED"], "object": "chat.completion",
    "choices": [{"message": "SAID", "index": 0}]}
OpenAI, vLLM: texts | .jsonl | all | {"prompt": "P", "object": "text_completion",
    "choices": [{"index": 0, "text": "A", "finish_reason": "stop"}]}
OpenAI calls | .jsonl | one | {"request": {"model": "x", "messages": ["ASKED"], "temperature": 1},
    "response": {"model": "m", "choices": [{"message": "SAID"}]}}
Ollama | .jsonl | one | {"model": "m", "messages": ["ASKED"], "message": "SAID", "done": true}
Ollama, generated | .jsonl | one | {"model": "m", "prompt": "P", "response": "A", "done": true,
    "context": [1, 2]}
MT-bench | .jsonl | all | {"question_id": "Q", "answer_id": "x", "model_id": "m",
    "choices": [{"index": 0, "turns": ["A", "2"]}]}
lighteval | .json | all | {"full_prompt": "P", "example": "e", "gold": ["x"], "predictions": ["A"]}
lighteval, a list in a cell | .jsonl | all | {"full_prompt": "P", "predictions": "PRINTED"}
lighteval, new | .jsonl | all | {"doc": {"query": "P", "choices": ["x"], "gold_index": 0},
    "model_response": {"text": ["A"], "input": "P"}, "metric": {"em": 0}}
promptfoo | .json | one | {"promptIdx": 0, "vars": {"w": "P"}, "provider": {"id": "m"},
    "prompt": {"raw": "P", "label": "l"}, "response": {"output": "A"}}
    | {"evalId": "e", "config": {"tests": [{}]}, "results": {"version": 3,
    "prompts": [{"raw": "r", "label": "l", "provider": "m"}], "results": "ROWS"}}
promptfoo, lines | .jsonl | one | {"promptIdx": 0, "vars": {"w": "P"}, "provider": {"id": "m"},
    "prompt": {"raw": "P", "label": "l"}, "response": {"output": "A"}}
LangSmith | .jsonl | one | {"id": "r", "name": "chain", "run_type": "chain",
    "inputs": {"question": "P"}, "outputs": {"output": "A"}}
LangSmith, calls | .jsonl | all | {"run_type": "llm", "inputs": {"messages": ["ASKED"]},
    "outputs": {"generations": [[{"text": "A"}]], "run": null}}
Langfuse | .jsonl | one | {"id": "t", "name": "n", "input": {"topic": "P"},
    "output": {"answer": "A", "tokens": 3}, "metadata": {}}
pydantic-evals | .json | one | {"name": "c [1/2]", "source_case_name": "c", "inputs": "P",
    "expected_output": "gold", "output": "A", "scores": {}}
    | {"failures": [{"name": "c", "inputs": "x", "error_message": "e"}], "cases": "ROWS"}
OpenAI evals | .json | one | {"datasource_item": {"question": "?"}, "results": [{"name": "grader"}],
    "sample": {"input": ["ASKED"], "output": ["SAID"], "model": "m"}}
    | {"object": "list", "has_more": false, "data": "ROWS"}
Every Eval Ever | .jsonl | all | {"schema_version": "0.3.0", "evaluation_id": "e", "model_id": "m",
    "sample_id": "0", "input": {"raw": "P", "reference": ["gold"]}, "output": {"raw": ["A"]}}
Every Eval Ever, a line an answer | .jsonl | one | {"evaluation_id": "e", "model_id": "m",
    "input": {"raw": "P", "reference": ["gold"]}, "output": {"raw": ["A"]}}
Every Eval Ever, turns | .jsonl | one | {"evaluation_id": "e", "model_id": "m", "output": null,
    "input": {"raw": "P"}, "messages": ["ASKED", "SAID"], "interaction_type": "multi_turn"}
Weights & Biases, a table | .json | one | ["P", "A"] | {"columns": ["prompt", "answer"],
    "data": "ROWS", "ncols": 2}
messages alone | .jsonl | one | {"messages": ["ASKED", "SAID"]}
ShareGPT | .json | one | {"id": "i", "conversations": [{"from": "human", "value": "P"},
    {"from": "gpt", "value": "A"}]}
a list of objects under a key | .json | all | {"prompt": "P", "answers": ["A"]}
    | {"date": "d", "runs": "ROWS"}
records by their ids | .json | all | {"prompt": "P", "answers": ["A"]} | BY ID
columns of pandas | .json | one | {"prompt": "P", "answer": "A"} | COLUMNS
TSV | .tsv | one | {"prompt": "P", "answer": "A"} | CELLS
"""
TOOLS = {entry.partition(" | ")[0]: entry for entry in re.split(r"\n(?!\s)", LOGS.strip())}


def filled(part, k, answers):
    """A part of a record with the words of the table replaced; a list has an entry an answer."""
    if isinstance(part, dict):
        return {key: filled(value, k, answers) for key, value in part.items()}
    if isinstance(part, list):
        entries = []
        for entry in part:
            several = not isinstance(entry, list) and re.search('"(A|SAID)"', json.dumps(entry))
            entries += (
                [filled(entry, k, [a]) for a in answers] if several else [filled(entry, k, answers)]
            )
        return entries
    words = {"P": PROMPTS[k], "ASKED": CHAT[k][0], "Q": f"q{k}", "PRINTED": str(answers)}
    words |= {"A": answers[0], "SAID": {"role": "assistant", "content": answers[0]}}
    return words.get(part, part) if isinstance(part, str) else part


def log_of(tool, start="m"):
    """Writes the log of a tool; its path, and whether it has ids in place of prompts."""
    _, ending, mode, record, *around = [part.strip() for part in TOOLS[tool].split(" | ")]
    template, around = json.loads(record), "".join(around)
    rows = []
    for k, answers in enumerate(ANSWERS):
        several = [answers] if mode == "all" else [[text] for text in answers]
        rows += [filled(template, k, some) for some in several]
    if around == "COLUMNS":
        rows = [{name: {str(k): row[name] for k, row in enumerate(rows)} for name in template}]
    elif around == "CELLS":
        rows = ["\t".join(row) for row in [template, *map(dict.values, rows)]]
    elif "ROWS" in around:
        rows = [around.replace('"ROWS"', json.dumps(rows))]
    elif around == "BY ID":
        rows = [{f"q{k}": row for k, row in enumerate(rows)}]
    elif ending == ".json" and around != "LINES":
        rows = [rows]
    return write(start + ending, *rows), '"Q"' in record and not re.search('"(P|ASKED)"', record)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_log_of_each_tool_is_read(tool):
    path, by_id = log_of(tool)
    found = cv.read_records(path, names={str(path): "m"})
    assert found.answers == {"m": sum(ANSWERS, [])}
    assert found.prompts == {"m": list(np.repeat(["q0", "q1"] if by_id else PROMPTS, 2))}
    assert (found.by_id, found.skipped) == (by_id, [])


def test_every_row_of_the_table_has_a_log_and_the_name_of_its_model():
    assert {row.tool for row in FORMATS} - TOOLS.keys() == {"lmms-eval"}
    for row in FORMATS:
        if row.model:
            assert list(cv.read_records(log_of(row.tool, "x")[0]).answers) == ["m"]


def request(k, body, **more):
    return {"custom_id": f"q{k}", "response": {"body": body}} | more


def test_answers_of_one_request():
    """Messages are one answer; a request that failed is left out, with the place of its answers."""
    parts = [{"type": "message", "content": [{"type": "output_text", "text": t}]} for t in "ab"]
    failed = request(1, {}, response=None, error={"message": "rate limit"})
    rows, skipped = read(write("m.jsonl", request(0, {"output": ["x", *parts]}), failed))
    assert rows == [("m", "q0", "a\n\nb")]
    words = "holds no answers: the request failed, "
    assert skipped == [(2, f"'response.body.output' {words}rate limit")]
    results = ({"type": "errored", "error": {"error": {"message": "Busy"}}}, {"type": "expired"})
    ours = [{"custom_id": "q1", "result": result} for result in results]
    path = write("n.jsonl", request(0, {"output": parts}), *ours)
    words = f"of which 2 requests failed(.|\n)*{words}Busy(.|\n)*{words}expired"
    with pytest.warns(UserWarning, match=words):
        cv.read_records(path)


def test_questions_of_one_text_about_other_pictures_are_other_prompts():
    sample = {"input": "What is it?", "target": "t", "filtered_resps": []}
    several = (["a", "b"], [["c"]])
    records = [sample | {"doc_id": k, "resps": resps} for k, resps in enumerate(several)]
    rows, _ = read(write("m.jsonl", *records))
    asked = [f"What is it?\n\ndoc_id: {k}" for k in (0, 0, 1)]
    assert rows == [("m", prompt, answer) for prompt, answer in zip(asked, "abc", strict=True)]


QUESTIONS = {  # A log whose prompts are known by ids, and a record of the file that holds them.
    "OpenAI batch": ("batch of OpenAI", {"custom_id": "Q", "body": {"messages": ["ASKED"]}}),
    "responses": ("OpenAI batch of responses", {"custom_id": "Q", "body": {"input": "P"}}),
    "Anthropic": ("batch of Anthropic", {"custom_id": "Q", "params": {"messages": ["ASKED"]}}),
    "MT-bench": ("MT-bench", {"question_id": "Q", "turns": ["P", "And now?"]}),
    "evalplus": ("evalplus", {"task_id": "Q", "prompt": "P", "entry_point": "f"}),
    "HELM": ("HELM, displayed", {"instance_id": "Q", "request": {"prompt": "P", "model": "m"}}),
    "instances": ("HELM, displayed", {"id": "Q", "input": {"text": "P"}, "references": []}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_prompts_are_joined_by_their_ids(name):
    tool, asked = QUESTIONS[name]
    path = write("asked.jsonl", *(filled(asked, k, [""]) for k in range(2)))
    found = cv.read_records(log_of(tool)[0], prompts_by_id=path)
    assert list(found.prompts.values()) == [list(np.repeat(PROMPTS, 2))]
    assert not found.by_id and not found.skipped


def test_ids_of_one_prompt_are_one_prompt_and_what_does_not_join_is_named():
    rows = [{"task_id": f"q{k}", "completion": a} for k, a in enumerate("abc")]
    path, plain = write("m.jsonl", *rows), write("plain.jsonl", {"prompt": "p", "answer": "a"})
    asked = [{"task_id": f"q{k}", "prompt": p} for k, p in enumerate("pp")]
    with pytest.warns(UserWarning, match="no prompt was given with 'q2' as its 'task_id'"):
        found = cv.read_records(path, prompts_by_id=[write("p.jsonl", *asked)])
    assert found.counts == {"m": {"p": 2}}
    for records, content, words in (
        (path, [*asked, {"task_id": "q1", "prompt": "r"}], "'q1' has a second prompt"),
        (path, [{"prompt": "p"}], "line 1: expected a prompt with its custom_id or"),
        (path, rows, "line 1: has no prompt or question"),
        (plain, asked, "p.jsonl: has no effect, as .*plain.jsonl has prompts"),
    ):
        with pytest.raises(ValueError, match=words):
            cv.read_records(records, prompts_by_id=write("p.jsonl", *content))


def test_prompts_beside_the_display_files_of_helm_are_joined(tmp_path):
    asked = [filled(QUESTIONS["HELM"][1], k, [""]) for k in range(2)]
    write("display_requests.json", asked)
    path, _ = log_of("HELM, displayed", "display_predictions")
    found = cv.read_records(path)
    assert list(found.prompts.values()) == [list(np.repeat(PROMPTS, 2))]
    assert found.notes[0].endswith("display_requests.json")
    assert list(cv.read_records(tmp_path).prompts.items()) == [
        (tmp_path.name, *found.prompts.values())
    ]
    log_of("HELM", "scenario_state")  # Of which the other is a copy.
    assert cv.read_records(tmp_path).answers == {"m": sum(ANSWERS, [])}


@pytest.mark.filterwarnings("ignore:m. every answer stands exactly twice")
def test_requests_are_batches_where_prompts_were_asked_again():
    """Elsewhere no pair would be left, and a note says that answers count as independent."""
    path = write("m.jsonl", *2 * json.loads(log_of("HELM")[0].read_text())["request_states"])
    batches = cv.read_records(path).batches["m"]
    assert [label == batches[0] for label in batches] == [True] * 2 + [False] * 6
    assert len({*batches}) == 4
    once = cv.read_records(log_of("HELM")[0])
    assert once.batches is None and any("one request count as indep" in n for n in once.notes)
    asked = [(i, k) for i, k in enumerate([*range(2)] * 2)]
    rows = [{"prompt": PROMPTS[k], "answers": ANSWERS[k], "call": i} for i, k in asked]
    assert cv.read_records(path := write("m.jsonl", *rows)).batches is None
    found = cv.read_records(path, batch_field="call")
    assert found.batches["m"] == [f" {i}" for i in range(4) for _ in range(2)]
