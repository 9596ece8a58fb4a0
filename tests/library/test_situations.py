"""What people bring, what they type first, and which answers then belong to which prompts.

Each situation makes a file in a folder. The first call must give what is true of the data, or say
what to type, and then that must.
"""

import csv
import json
import re
import warnings
from collections import defaultdict
from typing import NamedTuple

import pytest

import condvendi_jax as cv
from condvendi_jax.records.files import misfit

QUESTIONS = (
    "What should I cook tonight?",
    "Which river should we row down?",
    "How do I calm a crying baby?",
    "Give my boat a name.",
    "Write a line about rain.",
    "What loosens a rusty bolt?",
)
SAID = (
    ("lentil soup with cumin", "a mushroom omelette", "fried rice", "leftover pizza, warmed"),
    ("the Loire, in May", "the Tisza", "the Dordogne below Beynac", "a canal is calmer"),
    ("rock it slowly", "sing something low", "check the nappy first", "walk outside with it"),
    ("Second Wind", "Margarethe", "The Unpaid Bill", "Gannet"),
    ("It rains on the tin roof.", "Grey again.", "Rain, the old clerk, types.", "Wet cuffs."),
    ("penetrating oil overnight", "heat it with a torch", "a longer spanner", "cola, they say"),
)
GOLD = ("pasta", "the Danube", "swaddle it", "Titania", "Rain falls.", "oil")
OTHER = tuple(tuple(f"{text}, or so I heard" for text in row) for row in SAID)
ROWS = [(i, k, q, SAID[i][k]) for i, q in enumerate(QUESTIONS) for k in range(4)]


class Situation(NamedTuple):
    """A file, what is true, what the message asks to type in place, and words of the message."""

    path: object
    truth: object
    typed: tuple = ()  # The fields of one call or more; none where the first call is right.
    words: tuple = ()  # All must be in the message.


SITUATIONS = {}


def situation(build):
    SITUATIONS[build.__name__] = build
    return build


def belongs(models):
    """Of {model: {prompt: answers}}: the answers of all models to each prompt, however written."""
    found = defaultdict(list)
    for name, prompts in models.items():
        for prompt, answers in prompts.items():
            found[prompt].append((name, tuple(sorted(text.strip() for text in answers))))
    return sorted(tuple(sorted(pairs)) for pairs in found.values())


def said(**models):
    """The truth where every model answers all questions."""
    return belongs({name: dict(enumerate(rows)) for name, rows in models.items()})


def read(path, *calls):
    models = {}
    for fields in calls:
        records = cv.read_records(path, **fields)
        for name, answers in records.answers.items():
            models[name] = defaultdict(list)
            for prompt, text in zip(records.prompts[name], answers, strict=True):
                models[name][prompt].append(text)
    return belongs(models)


def jsonl(path, rows):
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8", newline="")
    return path


def table(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([rows[0], *map(dict.values, rows)])
    return path


def content(path, value):
    path.write_text(json.dumps(value))
    return path


def each(make):
    """A record of every answer."""
    return [make(i, k, question, text) for i, k, question, text in ROWS]


# Fields of other names, gold answers and other texts beside the answers.


@situation
def translations_with_source_and_reference(d):
    rows = each(lambda i, k, q, a: {"src": q, "ref": GOLD[i], "mt": a, "lp": "en-fr"})
    fields = {"prompt_field": "src", "answer_field": "mt"}
    return Situation(jsonl(d / "wmt.jsonl", rows), said(wmt=SAID), (fields,), tuple(fields))


@situation
def solutions_and_the_numbers_taken_from_them(d):
    full = [[f"First {k}, then {i}: so {i + k % 2}." for k in range(4)] for i in range(6)]
    rows = [
        {
            **{"question": f"How many apples has Ada on day {i}?", "model_outputs": full[i]},
            "answer": f"She has them all. #### {i}",
            "extracted": [str(i + k % 2) for k in range(4)],
        }
        for i in range(6)
    ]
    return Situation(jsonl(d / "math.jsonl", rows), said(math=full))


@situation
def answers_beside_a_judge_and_its_reasons(d):
    def record(i, k, q, a):
        reasons = f"Attempt {k} on {i}: it is {'too short' if k % 2 else 'fine'}."
        judged = {"judge": "strict-judge", "judgement": reasons, "rating": k}
        return {"instruction": q, "completion": a} | judged

    return Situation(jsonl(d / "judged.jsonl", each(record)), said(judged=SAID))


@situation
def a_prediction_and_gold_once_each(d):
    rows = zip(QUESTIONS, GOLD, SAID, strict=True)
    rows = [{"question": q, "target": g, "model_said": r[0]} for q, g, r in rows]
    return Situation(jsonl(d / "once.jsonl", rows), said(once=[r[:1] for r in SAID]))


@situation
def gold_answers_in_a_field_of_a_known_name(d):
    rows = each(lambda i, k, q, a: {"question": q, "answer": GOLD[i], "response": a})
    return Situation(jsonl(d / "gold.jsonl", rows), said(gold=SAID))


@situation
def two_models_of_an_arena_in_a_row(d):
    def record(i, k, q, a):
        both = {"model_a": "ada", "model_b": "bob", "prompt": q, "response_a": a}
        return {"id": i * 4 + k, **both, "response_b": OTHER[i][k], "winner": "tie"}

    typed = [{"answer_field": f"response_{m}", "model_field": f"model_{m}"} for m in "ab"]
    words = ("answer_field=response_a", "model_field")
    path = table(d / "arena.csv", each(record))
    return Situation(path, said(ada=SAID, bob=OTHER), typed, words)


@situation
def a_column_for_each_model(d):
    rows = each(lambda i, k, q, a: {"prompt": q, "gpt-4o": a, "mistral": OTHER[i][k]})
    fields, truth = {"answer_field": "gpt-4o,mistral"}, said(**{"gpt-4o": SAID}, mistral=OTHER)
    return Situation(table(d / "w.csv", rows), truth, (fields,), ("models", *fields.values()))


@situation
def the_model_stands_in_a_field_of_another_name(d):
    rows = each(lambda i, k, q, a: {"engine": "davinci", "prompt": q, "completion": a})
    return Situation(jsonl(d / "runs.jsonl", rows), said(davinci=SAID))


@situation
def a_table_that_mlflow_logged(d):
    columns = ["inputs", "ground_truth", "outputs", "token_count"]
    rows = each(lambda i, k, q, a: [q, GOLD[i], a, 12])
    path = content(d / "t.json", {"columns": columns, "data": rows})
    return Situation(path, said(t=SAID), ({"prompt_field": "inputs"},), ("prompt_field", "inputs"))


@situation
def predictions_of_opencompass(d):
    def record(i, k, q, a):
        ask = [{"role": "HUMAN", "prompt": q}]
        return {"origin_prompt": ask, "prediction": a, "gold": GOLD[i]}

    path = content(d / "demo.json", {str(n): row for n, row in enumerate(each(record))})
    fields = {"prompt_field": "origin_prompt"}
    return Situation(path, said(demo=SAID), (fields,), ("prompt_field", "origin_prompt"))


@situation
def a_survey_with_dots_in_its_columns(d):
    def record(i, k, q, a):
        asked = {"answer.idea": a, "scenario.topic": f"topic {i}", "model.model": "gpt-4o"}
        more = {"raw_model_response.idea": f"{{'id': 'x{i}{k}', 'text': '...'}}"}
        return asked | {"prompt.idea_user_prompt": q, "iteration.iteration": k} | more

    fields = {"prompt_field": "prompt.idea_user_prompt", "answer_field": "answer.idea"}
    fields["model_field"] = "model.model"
    path = table(d / "survey.csv", each(record))
    return Situation(path, said(**{"gpt-4o": SAID}), (fields,), tuple(fields))


# Columns with numbers, fields within fields.


@situation
def columns_named_run_1_to_run_4(d):
    runs, both = [f"Run {k + 1}" for k in range(4)], zip(QUESTIONS, SAID, strict=True)
    rows = [{"Question": q, **dict(zip(runs, r, strict=True))} for q, r in both]
    return Situation(table(d / "sheet.csv", rows), said(sheet=SAID))


@situation
def a_batch_of_gemini(d):
    def record(i, r):
        found = [{"content": {"parts": [{"text": a}], "role": "model"}} for a in r]
        return {"key": f"request-{i}", "response": {"candidates": found, "modelVersion": "flash"}}

    path = jsonl(d / "gemini.jsonl", [record(i, r) for i, r in enumerate(SAID)])
    fields = {"prompt_field": "key", "answer_field": "response.candidates.content.parts.text"}
    return Situation(path, said(gemini=SAID), (fields,), ("key", "response.candidates"))


@situation
def a_batch_of_bedrock(d):
    def record(i, k, q, a):
        ask = {"role": "user", "content": [{"type": "text", "text": q}]}
        out = {"role": "assistant", "content": [{"type": "text", "text": a}]}
        return {
            "recordId": f"R{i:03}{k}ABCDEF",
            "modelInput": {"max_tokens": 100, "messages": [ask]},
            "modelOutput": {"id": f"msg_{i}{k}", **out, "stop_reason": "end_turn"},
        }

    fields = {"prompt_field": "modelInput.messages", "answer_field": "modelOutput.content"}
    path = jsonl(d / "batch.jsonl", each(record))
    return Situation(path, said(batch=SAID), (fields,), tuple(fields))


# Answers that are none, that are long, and that stand twice.


@situation
def thoughts_that_were_cut_off_are_no_answers(d):
    def text(i, k, a):
        thought = f"<think>Attempt {k}: let me see what {i} asks for."
        return thought if k == 3 else f"{thought}</think>\n{a}"

    path = jsonl(d / "s.jsonl", each(lambda i, k, q, a: {"prompt": q, "response": text(i, k, a)}))
    return Situation(path, said(s=[r[:3] for r in SAID]), words=("reasoning",))


@situation
def a_request_that_failed_has_an_error_beside_it(d):
    failed = {"response": None, "error": {"type": "rate_limit", "message": "slow down"}}
    rows = each(lambda i, k, q, a: {"prompt": q, "response": a, "error": None})
    rows = [row | failed if n % 4 == 2 else row for n, row in enumerate(rows)]
    path = jsonl(d / "errors.jsonl", rows)
    return Situation(path, said(errors=[[*r[:2], r[3]] for r in SAID]), words=("(6)",))


@situation
def a_run_that_was_resumed_wrote_half_of_it_twice(d):
    rows = each(lambda i, k, q, a: {"prompt": q, "sample": k, "seed": 90 + k, "response": a})
    return Situation(jsonl(d / "r.jsonl", rows + rows[:12]), said(r=SAID), words=("twice",))


@situation
def a_prompt_of_several_lines_comes_back_with_other_line_ends(d):
    ask = "Here are facts.\r\n- {}\r\n- be short\r\n"
    back = "Here are facts.\n- {}\n- be short\n{}"
    rows = each(lambda i, k, q, a: {"prompt": ask.format(q), "text": back.format(q, a)})
    return Situation(jsonl(d / "echo.jsonl", rows), said(echo=SAID))


@situation
def a_cell_longer_than_the_csv_module_takes(d):
    long = "\n" + "word " * 40_000 + "end"
    rows = each(lambda i, k, q, a: {"prompt": q, "response": a + long * (k == 0)})
    truth = said(long=[[r[0] + long, *r[1:]] for r in SAID])
    return Situation(table(d / "long.csv", rows), truth)


@situation
def lines_with_separators_of_unicode_in_answers(d):
    texts = [[f"{a}\u2028and\u0085more" for a in r] for r in SAID]
    rows = each(lambda i, k, q, a: {"prompt": q, "response": texts[i][k]})
    path = d / "My results [final] (2) – copy.jsonl"
    (name,) = cv.read_records(jsonl(path, rows)).answers
    return Situation(path, belongs({name: dict(enumerate(texts))}))


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_first_call_is_right_or_says_what_to_type(name, tmp_path):
    """What is right at first is also known as a file of records to the command."""
    found = SITUATIONS[name](tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            got = read(found.path, {})
        except (TypeError, ValueError) as error:
            got = error
    message = "\n".join([str(got), *(str(warning.message) for warning in caught)])
    assert (got == found.truth) == (not found.typed), message
    assert all(word in message for word in found.words), message
    if found.typed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert read(found.path, *found.typed) == found.truth, message
    else:
        assert misfit(found.path) == ""


def test_the_command_reads_what_python_reads(tmp_path, run_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns_named_run_1_to_run_4(tmp_path)
    report, _ = run_command("score", "sheet.csv", "--similarity=exact", "--errors=false")
    assert re.search(r"^24 answers .* to 6 prompts", report["read"])
