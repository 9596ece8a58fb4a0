"""What people bring, what they type first, and which answers then belong to which prompts.

Each situation makes files or lists in a folder and returns what a person would type first, and what
is true of the data. The first call must give that, or say what to type, and then that must.
"""

import base64
import contextlib
import csv
import io
import json
import re
import unicodedata
import warnings
import zipfile
from collections import defaultdict
from typing import NamedTuple

import fake_encoders
import numpy as np
import pytest

import condvendi_jax as cv

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
    """What is typed first; what is true; what a message may ask for instead, with its words."""

    first: object
    truth: object
    words: tuple = ()  # All must be in the message that leads to `then`.
    then: object = None
    said: str = ""  # A pattern that some warning or line must have even if the first call is right.
    quiet: bool = False  # Whether there is nothing to say.


SITUATIONS = {}


def situation(*needs, fails=""):
    """Registers a builder; `needs` are packages, `fails` why it does not hold yet."""

    def register(build):
        marks = [pytest.mark.xfail(strict=True, reason=fails)] if fails else []
        SITUATIONS[build.__name__] = pytest.param(build, needs, marks=marks, id=build.__name__)
        return build

    return register


# What is true, in a form that does not depend on how prompts are written.


def belongs(models):
    """Of {model: {prompt: answers}}: the answers of all models to each prompt."""
    found = defaultdict(list)
    for name, prompts in models.items():
        for prompt, answers in prompts.items():
            found[prompt].append((name, tuple(sorted(text.strip() for text in answers))))
    return sorted(tuple(sorted(pairs)) for pairs in found.values())


def said(*models, rows=SAID):
    """The truth where every model answers all questions; (name, rows) or a name."""
    pairs = [(m, rows) if isinstance(m, str) else m for m in models]
    return belongs({name: dict(enumerate(of)) for name, of in pairs})


def read(*paths, **options):
    """Reads files; what belongs together, whatever the texts of prompts."""

    def call():
        records = cv.read_records(list(paths) if len(paths) > 1 else paths[0], **options)
        models = {}
        for name, answers in records.answers.items():
            models[name] = defaultdict(list)
            for prompt, text in zip(records.prompts[name], answers, strict=True):
                models[name][prompt].append(text)
        return belongs(models)

    return call


def same(one, other):
    return float(one == other)


def differ(printed):
    """(k, number) of 'Of k answers to a prompt, about so many differ'."""
    found = re.search(r"[Oo]f (\d+) [^,]*, about ([\d.]+)", str(printed))
    return (int(found[1]), float(found[2])) if found else str(printed)


def scored(outputs, prompts=None, **options):
    """How many answers to a prompt differ, where only equal ones are the same."""

    def call():
        options.setdefault("similarity", same)
        return differ(cv.evaluate(outputs, prompts, orders=[2], errors=False, **options))

    return call


def shown(pictures, prompts):
    """The same of pictures, by their mean colour."""
    options = {"similarity": None, "encoder": fake_encoders.Means()}
    return scored(pictures, prompts, output_kernel=cv.Gaussian(1.0), **options)


ENCODER = ("--image_encoder=fake_encoders:Means", "--text_encoder=fake_encoders:Means")
ENCODER += ("--output_bandwidth=1", "--errors=false")


def typed(folder, *arguments, take=differ):
    """What the command prints, run in this process; what it refuses is an error."""

    def call():
        from condvendi_jax.cli import __main__

        printed = io.StringIO()
        more = ("--order=2", "--cache=cache")
        try:
            with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
                __main__.main(["condvendi", *arguments, *more])
        except SystemExit as end:
            if end.code:
                raise ValueError(str(end.code)) from None
        print(printed.getvalue())
        return take(printed.getvalue())

    return call


def counted(printed):
    """(answers, prompts) of the line that says what was read, or what is printed without it."""
    found = re.search(r"Read: ([\d,]+) answers? .*?to ([\d,]+) prompts?", printed)
    return (int(found[1]), int(found[2])) if found else printed


def matched(folder, *files):
    """How many prompts two models share, of how many, by `condvendi compare`."""

    def take(printed):
        found = re.search(r"models matched .*?(\d+) of (\d+) prompts", printed)
        return (int(found[1]), int(found[2])) if found else printed

    return typed(folder, "compare", *files, "--similarity=test_situations:same", take=take)


def answered(path, **options):
    """How many answers to a prompt differ, of a file that is read and then scored."""

    def call():
        records = cv.read_records(path, **options)
        (name,) = records.answers
        return scored(records.answers[name], records.prompts[name])()

    return call


# What writes files.


def jsonl(path, rows, **options):
    options = {"encoding": "utf-8"} | options
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(lines, newline="", **options)
    return path


def table(path, header, rows, encoding="utf-8", **options):
    with open(path, "w", encoding=encoding, newline="") as stream:
        csv.writer(stream, **options).writerows([header, *rows])
    return path


def each(make):
    """A record of every answer."""
    return [make(i, k, question, text) for i, k, question, text in ROWS]


def plain(path, rows=SAID, questions=QUESTIONS, **more):
    records = [{"prompt": q, "responses": list(r)} for q, r in zip(questions, rows, strict=True)]
    return jsonl(path, [r | {k: v[i] for k, v in more.items()} for i, r in enumerate(records)])


# Fields of other names, gold answers and other texts beside the answers.


@situation()
def translations_with_source_and_reference(d):
    rows = each(lambda i, k, q, a: {"src": q, "ref": GOLD[i], "mt": a, "lp": "en-fr"})
    path = jsonl(d / "wmt.jsonl", rows)
    then = read(path, prompt_field="src", answer_field="mt")
    return Situation(read(path), said("wmt"), ("answer_field", "prompt_field"), then)


@situation()
def solutions_and_the_numbers_taken_from_them(d):
    full = [[f"First {k}, then {i}: so {i + k % 2}." for k in range(4)] for i in range(6)]
    rows = [
        {
            "question": f"How many apples has Ada on day {i}?",
            "answer": f"She has them all. #### {i}",
            "model_outputs": full[i],
            "extracted": [str(i + k % 2) for k in range(4)],
        }
        for i in range(6)
    ]
    path = jsonl(d / "math.jsonl", rows)
    then = read(path, answer_field="model_outputs")
    return Situation(read(path), said("math", rows=full), ("model_outputs",), then)


@situation()
def answers_beside_a_judge_and_its_reasons(d):
    rows = each(
        lambda i, k, q, a: {
            "instruction": q,
            "completion": a,
            "judge": "strict-judge",
            "judgement": f"Attempt {k} on {i}: it is {'too short' if k % 2 else 'fine'}.",
            "rating": k,
        }
    )
    path = jsonl(d / "judged.jsonl", rows)
    then = read(path, answer_field="completion")
    return Situation(read(path), said("judged"), ("completion",), then)


@situation()
def a_prediction_and_gold_once_each(d):
    rows = [
        {"question": q, "target": g, "model_said": r[0]}
        for q, g, r in zip(QUESTIONS, GOLD, SAID, strict=True)
    ]
    path = jsonl(d / "once.jsonl", rows)
    then = read(path, answer_field="model_said")
    truth = said("once", rows=[r[:1] for r in SAID])
    return Situation(read(path), truth, ("model_said",), then)


@situation()
def two_models_of_an_arena_in_a_row(d):
    header = ["id", "model_a", "model_b", "prompt", "response_a", "response_b", "winner"]
    rows = each(lambda i, k, q, a: [i * 4 + k, "ada", "bob", q, a, OTHER[i][k], "tie"])
    path = table(d / "arena.csv", header, rows)

    def then():
        a = read(path, answer_field="response_a", model_field="model_a")()
        b = read(path, answer_field="response_b", model_field="model_b")()
        return sorted(x + y for x, y in zip(a, b, strict=True))

    truth = said("ada", ("bob", OTHER))
    return Situation(read(path), truth, ("answer_field=response_a", "model_field"), then)


@situation()
def a_column_for_each_model(d):
    rows = each(lambda i, k, q, a: [q, a, OTHER[i][k]])
    path = table(d / "wide.csv", ["prompt", "gpt-4o", "mistral-large"], rows)

    fields = {"answer_field": "gpt-4o,mistral-large"}
    truth = said("gpt-4o", ("mistral-large", OTHER))
    return Situation(read(path), truth, ("models", *fields.values()), read(path, **fields))


@situation()
def the_model_stands_in_a_field_of_another_name(d):
    rows = each(lambda i, k, q, a: {"engine": "davinci", "prompt": q, "completion": a})
    rows += [r | {"engine": "curie", "completion": r["completion"] + "?"} for r in rows]
    path = jsonl(d / "runs.jsonl", rows)
    truth = said("davinci", ("curie", [[a + "?" for a in r] for r in SAID]))
    return Situation(read(path), truth, ("engine",), read(path, model_field="engine"))


# What stands around answers: templates, tokens, reasoning, the prompt.


@situation()
def ends_of_sentences_that_were_padded(d):
    end = "<｜end▁of▁sentence｜>"
    rows = each(lambda i, k, q, a: {"prompt": q, "output": a + end * (1 + (i + 3 * k) % 5)})
    return Situation(read(jsonl(d / "coder.jsonl", rows)), said("coder"))


@situation()
def the_template_of_llama_with_the_prompt_in_it(d):
    text = "<s> [INST] <<SYS>>\nYou are kind.\n<</SYS>>\n\n{} [/INST] {} </s>"
    rows = each(lambda i, k, q, a: {"prompt": q, "completion": text.format(q, a)})
    return Situation(read(jsonl(d / "llama2.jsonl", rows)), said("llama2"))


@situation()
def a_prompt_of_several_lines_comes_back_with_other_line_ends(d):
    ask = "Here are facts.\r\n- {}\r\n- be short\r\n"
    back = "Here are facts.\n- {}\n- be short\n{}"
    rows = each(lambda i, k, q, a: {"prompt": ask.format(q), "text": back.format(q, a)})
    return Situation(read(jsonl(d / "echo.jsonl", rows)), said("echo"))


@situation()
def thoughts_that_were_cut_off_are_no_answers(d):
    def text(i, k, a):
        thought = f"<think>Attempt {k}: let me see what {i} asks for."
        return thought if k == 3 else f"{thought}</think>\n{a}"

    rows = each(lambda i, k, q, a: {"prompt": q, "response": text(i, k, a)})
    truth = said("short", rows=[r[:3] for r in SAID])
    return Situation(read(jsonl(d / "short.jsonl", rows)), truth, said="(?i)reason|think|cut")


@situation()
def thoughts_between_marks_of_ones_own(d):
    text = "[BEGIN THOUGHTS]\nTry {k}, for question {i}, is easy.\n[END THOUGHTS]\n{a}"
    rows = each(lambda i, k, q, a: {"prompt": q, "response": text.format(i=i, k=k, a=a)})
    return Situation(read(jsonl(d / "marks.jsonl", rows)), said("marks"))


@situation()
def blocks_of_thinking_and_text(d):
    def blocks(i, k, a):
        thought = {"type": "thinking", "thinking": f"Hm, {k} of {i}.", "signature": "c2ln"}
        return [thought, {"type": "text", "text": a}]

    rows = each(lambda i, k, q, a: {"prompt": q, "response": blocks(i, k, a)})
    return Situation(read(jsonl(d / "claude.jsonl", rows)), said("claude"), quiet=True)


@situation()
def pages_of_html_keep_what_they_share(d):
    page = "<!DOCTYPE html>\n<html><body><p>{}</p></body></html>"
    rows = each(lambda i, k, q, a: {"prompt": q, "response": page.format(a)})
    pages = [[page.format(a) for a in r] for r in SAID]
    return Situation(read(jsonl(d / "site.jsonl", rows)), said("site", rows=pages))


@situation()
def queries_all_begin_with_one_word(d):
    ask = "SELECT name FROM boats WHERE berth = {} ORDER BY {}"
    texts = [[ask.format(i, c) for c in ("age", "name", "length", "price")] for i in range(6)]
    rows = each(lambda i, k, q, a: {"prompt": q, "response": texts[i][k]})
    return Situation(read(jsonl(d / "sql.jsonl", rows)), said("sql", rows=texts))


# Columns with numbers, fields within fields, chats.


@situation()
def columns_named_run_1_to_run_4(d):
    header = ["Question", "Run 1", "Run 2", "Run 3", "Run 4"]
    path = table(d / "sheet.csv", header, [[q, *r] for q, r in zip(QUESTIONS, SAID, strict=True)])
    then = read(path, prompt_field="Question", answer_field=["Run 1", "Run 2", "Run 3", "Run 4"])
    return Situation(read(path), said("sheet"), ("Question", "Run 1"), then)


@situation()
def a_batch_of_gemini(d):
    def record(i, r):
        found = [{"content": {"parts": [{"text": a}], "role": "model"}} for a in r]
        return {"key": f"request-{i}", "response": {"candidates": found, "modelVersion": "flash"}}

    path = jsonl(d / "gemini.jsonl", [record(i, r) for i, r in enumerate(SAID)])
    then = read(path, prompt_field="key", answer_field="response.candidates.content.parts.text")
    return Situation(read(path), said("gemini"), ("key", "response.candidates"), then)


@situation()
def a_batch_of_bedrock(d):
    def record(i, k, q, a):
        ask = {"role": "user", "content": [{"type": "text", "text": q}]}
        out = {"role": "assistant", "content": [{"type": "text", "text": a}]}
        return {
            "recordId": f"R{i:03}{k}ABCDEF",
            "modelInput": {"max_tokens": 100, "messages": [ask]},
            "modelOutput": {"id": f"msg_{i}{k}", **out, "stop_reason": "end_turn"},
        }

    path = jsonl(d / "batch.jsonl", each(record))
    fields = {"prompt_field": "modelInput.messages", "answer_field": "modelOutput.content"}
    return Situation(read(path), said("batch"), tuple(fields), read(path, **fields))


@situation()
def conversations_from_human_and_gpt(d):
    def record(i, k, q, a):
        turns = [("system", "Be brief."), ("human", q), ("gpt", a)]
        return {"id": f"{i}_{k}", "conversations": [{"from": f, "value": v} for f, v in turns]}

    path = jsonl(d / "sharegpt.jsonl", each(record))
    then = read(path, answer_field="conversations")
    return Situation(read(path), said("sharegpt"), ("conversations",), then)


@situation()
def one_question_about_several_pictures(d):
    def record(i, k, q, a):
        url = "data:image/png;base64," + base64.b64encode(f"picture {i}".encode()).decode()
        picture = {"type": "image_url", "image_url": {"url": url}}
        text = {"type": "text", "text": "What do you see?"}
        return {"messages": [{"role": "user", "content": [text, picture]}], "response": a}

    return Situation(read(jsonl(d / "vlm.jsonl", each(record))), said("vlm"))


# Ids, and models whose prompts do not agree as they are written.


@situation()
def ids_that_hold_the_number_of_the_sample(d):
    rows = each(lambda i, k, q, a: [f"geo_{i + 12:03}__rep{k}", a])
    path = table(d / "ids.csv", ["uid", "answer"], rows)
    then = answered(path, prompt_field="uid")
    return Situation(answered(path), (4, 4.0), ("uid", "prompt_field"), then)


@situation()
def answers_of_fastchat_know_their_question_by_number(d):
    def record(i, r):
        choices = [{"index": k, "turns": [a]} for k, a in enumerate(r)]
        return {"question_id": 81 + i, "model_id": "vicuna-7b", "choices": choices, "tstamp": 1.5}

    path = jsonl(d / "mt.jsonl", [record(i, r) for i, r in enumerate(SAID)])
    fields = {"prompt_field": "question_id", "answer_field": "choices.turns"}
    then = read(path, model_field="model_id", **fields)
    return Situation(read(path), said("vicuna-7b"), ("question_id", "choices"), then)


@situation()
def accents_and_blanks_are_written_in_two_ways(d):
    ask = [f"Où déjeuner, à l’été n° {i} ?" for i in range(6)]
    other = [
        unicodedata.normalize("NFD", q).replace(" ?", "\u00a0?").replace(" à", "  à") for q in ask
    ]
    plain(d / "paris.jsonl", questions=ask)
    plain(d / "lyon.jsonl", OTHER, other)
    plain(d / "alike.jsonl", OTHER, ask)
    then = matched(d, "paris.jsonl", "alike.jsonl")
    return Situation(matched(d, "paris.jsonl", "lyon.jsonl"), (6, 6), ("blanks",), then)


@situation()
def one_model_was_asked_in_german(d):
    ids = [40 + i for i in range(6)]
    ask = [f"Frage Nummer {i}: was nun?" for i in range(6)]
    plain(d / "english.jsonl", qid=ids)
    plain(d / "german.jsonl", OTHER, ask, qid=ids)
    files = ("english.jsonl", "german.jsonl")
    words = ("0 of its 6 prompts", "--prompt_field", "ids")
    return Situation(matched(d, *files), (6, 6), words, matched(d, *files, "--prompt_field=qid"))


@situation()
def one_file_is_a_copy_of_another(d):
    plain(d / "base.jsonl")
    plain(d / "tuned.jsonl")
    return Situation(matched(d, "base.jsonl", "tuned.jsonl"), (6, 6), said="same answers")


@situation()
def a_run_that_was_resumed_wrote_half_of_it_twice(d):
    rows = each(lambda i, k, q, a: {"prompt": q, "sample": k, "seed": 90 + k, "response": a})
    path = jsonl(d / "resumed.jsonl", rows + rows[:12])
    once = d / "once"
    once.mkdir()
    mended = read(jsonl(once / "resumed.jsonl", rows))
    return Situation(read(path), said("resumed"), ("twice",), mended)


@situation()
def a_first_line_that_names_the_separator(d):
    rows = each(lambda i, k, q, a: [q, a])
    path = table(d / "excel.csv", ["prompt", "response"], rows, delimiter=";")
    path.write_text("sep=;\n" + path.read_text())
    return Situation(read(path), said("excel"))


@situation()
def a_japanese_sheet(d):
    rows = each(lambda i, k, q, a: [f"質問{i}：どこへ行く？", f"答え{i}{'東西南北'[k]}です"])
    path = table(d / "sheet.csv", ["prompt", "answer"], rows, encoding="cp932")
    utf8 = d / "utf8"
    utf8.mkdir()
    mended = table(utf8 / "sheet.csv", ["prompt", "answer"], rows)
    truth = said("sheet", rows=[[f"答え{i}{c}です" for c in "東西南北"] for i in range(6)])
    return Situation(read(path), truth, ("UTF-8",), read(mended))


@situation("pandas")
def lists_that_pandas_wrote_into_cells(d):
    import pandas as pd

    frame = pd.DataFrame({"prompt": QUESTIONS, "answers": [list(r) for r in SAID]})
    frame.to_csv(d / "frame.csv")
    return Situation(read(d / "frame.csv"), said("frame"))


@situation()
def a_table_without_a_header(d):
    rows = each(lambda i, k, q, a: [q, a])
    path = table(d / "bare.tsv", rows[0], rows[1:], delimiter="\t")
    named = d / "named"
    named.mkdir()
    mended = table(named / "bare.tsv", ["prompt", "answer"], rows, delimiter="\t")
    return Situation(read(path), said("bare"), ("prompt", "answer"), read(mended))


@situation()
def a_cell_longer_than_the_csv_module_takes(d):
    long = "word " * 40_000
    rows = each(lambda i, k, q, a: [q, a + ("\n" + long.strip() if k == 0 else "")])
    path = table(d / "long.csv", ["prompt", "response"], rows)
    texts = [[r[0] + "\n" + long.strip(), *r[1:]] for r in SAID]
    return Situation(read(path), said("long", rows=texts))


@situation()
def a_download_as_zip(d):
    path = plain(d / "download.jsonl")
    with zipfile.ZipFile(d / "download.zip", "w") as packed:
        packed.write(path, "download.jsonl")
    return Situation(read(d / "download.zip"), said("download"), ("unzip",), read(path))


@situation()
def lines_with_separators_of_unicode_in_answers(d):
    texts = [[f"{a}\u2028and\u0085more\x0c" for a in r] for r in SAID]
    rows = each(lambda i, k, q, a: {"prompt": q, "response": texts[i][k]})
    return Situation(read(jsonl(d / "lines.jsonl", rows)), said("lines", rows=texts))


@situation()
def objects_over_several_lines(d):
    rows = each(lambda i, k, q, a: {"prompt": q, "response": a})
    path = d / "pretty.jsonl"
    path.write_text("\n".join(json.dumps(row, indent=2) for row in rows))
    flat = d / "flat"
    flat.mkdir()
    return Situation(
        read(path), said("pretty"), ("one record a line",), read(jsonl(flat / "pretty.jsonl", rows))
    )


# Arrow and Parquet.


@situation("pandas", "pyarrow")
def a_feather_file(d):
    import pandas as pd

    frame = pd.DataFrame(each(lambda i, k, q, a: {"prompt": q, "response": a}))
    frame.to_feather(d / "frame.feather")
    frame.to_parquet(d / "frame.parquet")
    return Situation(
        read(d / "frame.feather"), said("frame"), ("parquet",), read(d / "frame.parquet")
    )


@situation("pandas", "pyarrow")
def shards_of_one_dataset(d):
    import pandas as pd

    frame = pd.DataFrame(each(lambda i, k, q, a: {"prompt": q, "response": a}))
    folder = d / "zephyr"
    folder.mkdir()
    for k in range(2):
        frame[k * 12 : k * 12 + 12].to_parquet(folder / f"train-{k:05}-of-00002.parquet")
    shards = str(folder / "*.parquet")
    then = read(shards, names={shards: "zephyr"})
    return Situation(read(shards), said("zephyr"), ("names",), then)


# What tools write.


@situation()
def a_table_that_mlflow_logged(d):
    rows = each(lambda i, k, q, a: [q, GOLD[i], a, 12])
    columns = ["inputs", "ground_truth", "outputs", "token_count"]
    path = d / "eval_results_table.json"
    path.write_text(json.dumps({"columns": columns, "data": rows}))
    then = read(path, prompt_field="inputs")
    return Situation(read(path), said("eval_results_table"), ("inputs", "prompt_field"), then)


@situation()
def predictions_of_opencompass(d):
    def record(i, k, q, a):
        ask = [{"role": "HUMAN", "prompt": q}]
        return {"origin_prompt": ask, "prediction": a, "gold": GOLD[i]}

    path = d / "demo_gsm8k.json"
    path.write_text(json.dumps({str(n): row for n, row in enumerate(each(record))}))
    then = read(path, prompt_field="origin_prompt")
    return Situation(read(path), said("demo_gsm8k"), ("origin_prompt", "prompt_field"), then)


@situation()
def a_survey_with_dots_in_its_columns(d):
    header = ["answer.idea", "scenario.topic", "model.model", "prompt.idea_user_prompt"]
    header += ["iteration.iteration", "raw_model_response.idea"]
    raw = "{{'id': 'x{}{}', 'text': '...'}}"
    rows = each(lambda i, k, q, a: [a, f"topic {i}", "gpt-4o", q, k, raw.format(i, k)])
    path = table(d / "survey.csv", header, rows)
    fields = {"prompt_field": "prompt.idea_user_prompt", "answer_field": "answer.idea"}
    then = read(path, model_field="model.model", **fields)
    return Situation(read(path), said("gpt-4o"), (*fields, "model_field"), then)


@situation()
def generations_without_any_name(d):
    path = d / "generations.json"
    path.write_text(json.dumps([list(r) for r in SAID]))
    named = plain(d / "generations.jsonl")
    return Situation(read(path), said("generations"), ("prompt", "answers"), read(named))


@situation()
def a_chat_with_answers_that_were_drawn_again(d):
    def chat(i, q, r):
        ask = {"id": f"u{i}", "parentId": None, "role": "user", "content": q}
        ask["childrenIds"] = [f"a{i}{k}" for k in range(4)]
        nodes = {f"u{i}": ask}
        for k, text in enumerate(r):
            node = {"id": f"a{i}{k}", "parentId": f"u{i}", "childrenIds": [], "content": text}
            nodes[f"a{i}{k}"] = node | {"role": "assistant", "model": "llama3"}
        history = {"messages": nodes, "currentId": f"a{i}3"}
        return {"id": f"chat{i}", "title": "Chat", "chat": {"history": history}}

    path = d / "chat-export.json"
    rows = [chat(i, q, r) for i, (q, r) in enumerate(zip(QUESTIONS, SAID, strict=True))]
    path.write_text(json.dumps(rows))
    named = plain(d / "llama3.jsonl")
    return Situation(read(path), said("llama3"), ("prompt", "answers"), read(named))


@situation()
def one_object_with_a_list_for_each_model(d):
    both = {
        "ada": each(lambda i, k, q, a: {"prompt": q, "answer": a}),
        "bob": each(lambda i, k, q, a: {"prompt": q, "answer": OTHER[i][k]}),
    }
    path = d / "all.json"
    path.write_text(json.dumps(both))
    for name, rows in both.items():
        (d / f"{name}.json").write_text(json.dumps(rows))
    then = read(d / "ada.json", d / "bob.json")
    return Situation(read(path), said("ada", ("bob", OTHER)), ("'ada', 'bob'", "save it"), then)


# Folders, and names of files.


@situation()
def a_folder_for_each_model(d):
    for name, rows in (("ada", SAID), ("bob", OTHER)):
        (d / "results" / name).mkdir(parents=True)
        for part in range(2):
            half = slice(part * 3, part * 3 + 3)
            plain(d / "results" / name / f"part_{part}.jsonl", rows[half], QUESTIONS[half])
    names = {str(d / "results" / name / "*.jsonl"): name for name in ("ada", "bob")}
    then = read(*names, names=names)
    first = read(str(d / "results" / "*" / "*.jsonl"))
    return Situation(first, said("ada", ("bob", OTHER)), ("names",), then)


@situation()
def blanks_and_brackets_in_the_names(d):
    folder = d / "My results [final] (2)"
    folder.mkdir()
    path = plain(folder / "answers v2 – copy.jsonl")
    return Situation(read(str(path)), said("answers v2 – copy"))


@situation()
def what_comes_from_a_pipe(d):
    plain(d / "x.jsonl", [r[:2] * 2 for r in SAID])
    first = typed(d, "score", "-", "--similarity=exact")
    then = typed(d, "score", "x.jsonl", "--similarity=exact")
    return Situation(first, (4, 2.0), (".jsonl",), then)


# Answers that are none.


@situation()
def a_request_that_failed_has_an_error_beside_it(d):
    def record(i, k, q, a):
        if k == 2:
            error = {"type": "rate_limit", "message": "slow down"}
            return {"prompt": q, "response": None, "error": error}
        return {"prompt": q, "response": a, "error": None}

    path = jsonl(d / "errors.jsonl", each(record))
    truth = said("errors", rows=[[*r[:2], r[3]] for r in SAID])
    return Situation(read(path), truth, said=r"\b6\b")


@situation()
def refusals_in_french(d):
    no = "Je suis désolé, mais je ne peux pas vous aider avec cette demande."
    rows = each(lambda i, k, q, a: {"prompt": q, "response": no if k > 1 else a})
    truth = said("mistral", rows=[[*r[:2], no, no] for r in SAID])
    return Situation(read(jsonl(d / "mistral.jsonl", rows)), truth, said=r"\b12\b")


# Lists, tables and arrays in Python.


@situation("pandas")
def a_pivot_table_of_answers(d):
    import pandas as pd

    rows = [(f"q{i}", k, ("yes", "no", "yes")[k]) for i in range(8) for k in range(3)]
    frame = pd.DataFrame(rows, columns=["prompt", "sample", "answer"])
    wide = frame.pivot(index="prompt", columns="sample", values="answer")
    return Situation(
        scored(wide, wide.index),
        (3, 1.8),
        ("tolist",),
        scored(wide.to_numpy().tolist(), list(wide.index)),
    )


@situation()
def a_dictionary_of_lists(d):
    found = {f"q{i}": ["yes", "no", "yes"] for i in range(8)}
    then = scored(list(found.values()), list(found))
    return Situation(scored(found), (3, 1.8), ("values",), then)


@situation()
def one_prompt_given_as_a_text(d):
    answers = ["yes", "no", "yes", "perhaps"] * 3
    then = scored(answers, ["Do you?"] * 12)
    return Situation(scored(answers, "Do you?"), (12, 2.7), ("12",), then)


@situation()
def prompts_that_are_pairs_of_a_document_and_a_turn(d):
    prompts = [(f"doc{i // 2}", i % 2) for i in range(8) for _ in range(3)]
    labels = [f"{name} {turn}" for name, turn in prompts]
    then = scored(["yes", "no", "yes"] * 8, labels)
    return Situation(scored(["yes", "no", "yes"] * 8, prompts), (3, 1.8), ("label",), then)


@situation()
def clusters_with_noise_as_real_numbers(d):
    labels = np.array([0.0, 1.0, 0.0, np.nan] * 8)
    prompts = [f"q{i}" for i in range(8) for _ in range(4)]
    kept = ~np.isnan(labels)
    some = [p for p, ok in zip(prompts, kept, strict=True) if ok]
    then = scored(labels[kept].astype(int), some, similarity=None)
    words = ("nan", "int")
    return Situation(scored(labels, prompts, similarity=None), (3, 1.8), words, then)


@situation()
def tokens_in_place_of_texts(d):
    rows = [[12, 7, 9], [4, 4], [12, 7, 9]] * 8
    prompts = [f"q{i}" for i in range(8) for _ in range(3)]
    texts = [" ".join(map(str, row)) for row in rows]
    then = scored(texts, prompts)
    return Situation(scored(rows, prompts, similarity=None), (3, 1.8), ("text",), then)


# Pictures: of each prompt two of one colour and one of another.

SCENES = ("a red car", "a red boat", "an old house", "a wet dog")


def colours(i):
    first, other = (60 * i, 10, 200), (60 * i, 200, 10)
    return first, other, first


def draw(path, colour):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)
    return path


@situation("PIL")
def pictures_named_by_number_seed_and_prompt(d):
    for n, (k, i) in enumerate((k, i) for k in range(3) for i in range(4)):
        draw(d / "pics" / f"{n:05}-{7000 + 31 * n}-{SCENES[i]}.png", colours(i)[k])
    (d / "p.txt").write_text("\n".join(SCENES))
    return Situation(typed(d, "score", "pics", "--prompts=p.txt", *ENCODER), (3, 1.8))


@situation("PIL")
def pictures_with_the_start_of_a_prompt_and_a_hash(d):
    long = [f"{s} on a hill in the morning light, oil on canvas" for s in SCENES]
    for i, text in enumerate(long):
        for k in range(3):
            name = re.sub(r"\W+", "_", text)[:30]
            mark = f"{(i * 3 + k + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}"
            draw(d / "pics" / f"ada_{name}_{mark}_{k}.png", colours(i)[k])
    (d / "p.txt").write_text("\n".join(long))
    return Situation(typed(d, "score", "pics", "--prompts=p.txt", *ENCODER), (3, 1.8))


@situation("PIL")
def folders_named_by_slugs_with_seeds_in_them(d):
    for i, text in enumerate(SCENES):
        for k in range(3):
            draw(d / "pics" / text.replace(" ", "-") / f"seed{42 + k}.png", colours(i)[k])
    table(d / "p.csv", ["prompt", "category"], [[s, "x"] for s in reversed(SCENES)])
    return Situation(typed(d, "score", "pics", "--prompts=p.csv", *ENCODER), (3, 1.8))


@situation("PIL")
def a_folder_with_its_metadata(d):
    rows = []
    for n in range(12):
        draw(d / "pics" / f"{(7 * n) % 12:04}.png", colours(n % 4)[n // 4])
        rows.append({"file_name": f"{(7 * n) % 12:04}.png", "text": SCENES[n % 4]})
    jsonl(d / "pics" / "metadata.jsonl", rows)
    return Situation(typed(d, "score", "pics", "--prompts=pics/metadata.jsonl", *ENCODER), (3, 1.8))


@situation("PIL")
def names_of_pictures_with_backslashes(d):
    rows = []
    for n in range(12):
        draw(d / "pics" / f"{n}.png", colours(n % 4)[n // 4])
        rows.append([rf"C:\Users\ada\pics\{n}.png", SCENES[n % 4]])
    table(d / "p.csv", ["path", "prompt"], reversed(rows))
    return Situation(typed(d, "score", "pics", "--prompts=p.csv", *ENCODER), (3, 1.8))


@situation("PIL")
def pictures_in_memory_of_several_modes(d):
    from PIL import Image

    made = [[Image.new("RGB", (8, 8), c) for c in colours(i)] for i in range(4)]
    mixed = [[a.convert("RGBA"), b, c.quantize(2)] for a, b, c in made]
    return Situation(shown(mixed, list(SCENES)), (3, 1.8))


@situation("PIL")
def paths_of_pictures_in_a_column(d):
    pd = pytest.importorskip("pandas")
    rows = [
        (draw(d / f"{i}_{k}.png", c), SCENES[i]) for i in range(4) for k, c in enumerate(colours(i))
    ]
    frame = pd.DataFrame(rows, columns=["path", "prompt"]).sample(frac=1, random_state=3)
    return Situation(shown(frame["path"], frame["prompt"]), (3, 1.8))


@pytest.mark.parametrize(("build", "needs"), SITUATIONS.values())
def test_the_first_call_is_right_or_says_what_to_type(build, needs, tmp_path, capsys):
    for package in needs:
        pytest.importorskip(package)
    found = build(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            got = found.first()
        except (TypeError, ValueError) as error:
            got = error
    message = "\n".join([str(w.message) for w in caught] + [*capsys.readouterr()])
    if isinstance(got, Exception):
        message = f"{got}\n{message}"
    if got == found.truth:
        assert re.search(found.said, message), f"right, but not said: {message}"
        assert not (found.quiet and message.strip()), f"right, but said to be wrong: {message}"
        return
    assert found.then, f"{got}\n{message}"
    assert all(word in message for word in found.words), f"{got}\n{message}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.then() == found.truth, message


COMMANDS = [
    ("solutions_and_the_numbers_taken_from_them", "math.jsonl", (24, 6)),
    ("a_cell_longer_than_the_csv_module_takes", "long.csv", (24, 6)),
    ("conversations_from_human_and_gpt", "sharegpt.jsonl", (24, 6)),
    ("a_prediction_and_gold_once_each", "once.jsonl", (6, 6)),
    ("columns_named_run_1_to_run_4", "sheet.csv", (24, 6)),
    ("a_prompt_of_several_lines_comes_back_with_other_line_ends", "echo.jsonl", (24, 6)),
]


@pytest.mark.filterwarnings("ignore:prompts. under Indicator:UserWarning")
@pytest.mark.parametrize(("name", "file", "counts"), COMMANDS)
def test_the_command_reads_what_python_reads(name, file, counts, tmp_path):
    build, needs = SITUATIONS[name].values
    for package in needs:
        pytest.importorskip(package)
    build(tmp_path)
    flags = ("--similarity=exact", "--errors=false")
    assert typed(tmp_path, "score", file, *flags, take=counted)() == counts
