"""Files of language models' answers: formats, what does not fit, and the flags that read them."""

import contextlib
import csv
import gzip
import json
import os
import re
import sys
import types
import warnings

import fake_encoders
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.cli import inputs, verbs
from condvendi_jax.records.files import misfit

CHAT = [
    {"role": "user", "content": [{"type": "text", "text": "p"}]},
    {"role": "assistant", "content": "a"},
]
SAMPLE = {"doc": {"question": "q"}, "filter": "strict"}


def lines(*records):
    """As JSONL; bytes are lines as they are."""
    whole = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    return b"\n".join(whole)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(content, name="m.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
        return path

    return write


def read(path, **fields):
    """Rows as (model, prompt, answer), and what was skipped as (line, reason)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cv.read_records(path, **fields)
    assert len(caught) == bool(found.skipped)
    for skipped in found.skipped[:10]:
        assert str(skipped) in str(caught[0].message)
    rows = [
        (model, *row)
        for model, answers in found.answers.items()
        for row in zip(found.prompts[model], answers, strict=True)
    ]
    return rows, [(skipped.line, skipped.reason) for skipped in found.skipped]


FORMATS = {
    "answers of a prompt": [{"prompt": "p", "generations": ["a", "b"]}],
    "an answer each": [{"Question": "p", "Answer": "a"}, {"prompt": "p", "output": "b"}],
    "messages": [{"prompt": CHAT[:1], "responses": [CHAT[1:], {"role": "assistant", "text": "b"}]}],
    "conversations": [
        {"prompt": "p", "answer": CHAT},
        {"prompt": "p", "answer": [{"role": "user", "content": "?"}, CHAT[1] | {"content": "b"}]},
    ],
    "arguments": [SAMPLE | {"arguments": [["p", {"until": []}]], "resps": [["a", "b"]]}],
    "two filters": [
        SAMPLE | {"doc": {"question": "p"}, "resps": [["a", "b"]]},
        SAMPLE | {"doc": {"question": "p"}, "resps": [["a", "b"]], "filter": "flexible"},
    ],
    "arguments of a chat": [
        SAMPLE
        | {
            "arguments": {"gen_args_0": {"arg_0": [json.dumps(CHAT[:1])], "arg_1": {}}},
            "resps": [["a", "b"]],
        }
    ],
    "answers that are null or equal": [
        {"prompt": "p", "responses": ["a", "b"], "answers": ["a", "b"], "generations": None}
    ],
    "blank lines": [{"prompt": "p", "answers": ["a"]}, b"", b" ", {"prompt": "p", "answer": "b"}],
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_give_the_same_rows(write, name):
    array = json.dumps([r for r in FORMATS[name] if isinstance(r, dict)]).encode()
    with_mark = b"\xef\xbb\xbf" + lines(*FORMATS[name]) + b"\r\n"
    for content, file in ((with_mark, "m.jsonl"), (b"\n " + array, "m.json")):
        assert read(write(content, file)) == ([("m", "p", "a"), ("m", "p", "b")], [])


SYSTEM = {"role": "system", "content": "s"}
EARLIER = [SYSTEM, *CHAT, {"role": "user", "content": [{"type": "image", "image": "x"}]}]
SHOWN = 'system: s\n\nuser: p\n\nassistant: a\n\nuser: {"image": "x", "type": "image"}'
PROMPTS = {
    "Alpaca": ({"instruction": "p", "input": "t", "output": "a"}, "p\n\nt"),
    "no input": ({"instruction": "p", "input": "", "output": "a"}, "p"),
    "a blank field": ({"prompt": "", "question": "q", "context": "c", "answer": "a"}, "c\n\nq"),
    "choices": ({"question": "q", "choices": ["c", "d"], "response": "a"}, 'q\n\n["c", "d"]'),
    "a report of a service": (
        {"prompt": "p", "choices": [{"message": CHAT[1]}], "options": {"seed": 1}, "context": [7]}
        | {"response": "a"},
        "p",
    ),
    "pairs": ({"history": [["u", "v"]], "prompt": "p", "answer": "a"}, '[["u", "v"]]\n\np'),
    "system": ({"prompt": "p", "System": "s", "answer": "a"}, "s\n\np"),
    "earlier turns": ({"messages": EARLIER, "answer": "a"}, SHOWN),
    "earlier turns as JSON": ({"messages": json.dumps(EARLIER), "answer": "a"}, SHOWN),
    "a call of a tool": (
        {"prompt": [CHAT[0], CHAT[1] | {"tool_calls": ["f"]}, CHAT[0]], "answer": "b"},
        'user: p\n\nassistant: a\n\n["f"]\n\nuser: p',
    ),
    "tools": (
        {"prompt": "p", "tools": [{"name": "f"}], "documents": [], "answer": "a"},
        'p\n\n[{"name": "f"}]',
    ),
    "document": (
        {"doc": {"question": "q", "choices": ["c"], "answer": 0}, "resps": [["a"]]},
        'q\n\n["c"]',
    ),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_prompt_is_all_that_the_model_was_given(write, name):
    record, prompt = PROMPTS[name]
    ((_, found, _),), skipped = read(write(lines(record)))
    assert (found, skipped) == (prompt, [])


def test_long_attachments_are_told_apart_by_their_content(write):
    given = (("0", "a"), ("1", "b"), ("0", "c"))
    records = [{"prompt": "p", "images": ["x" * 2000 + end], "answer": a} for end, a in given]
    (first, second, third), _ = read(write(lines(*records)))
    assert first[1] == third[1] != second[1] and len(first[1]) < 30


def test_a_prompt_field_that_is_named_is_the_only_one(write):
    path = write(lines({"question_id": 81, "system": "s", "turn": "t", "output": "a"}))
    for field, prompt in (("question_id", "81"), ("turn", "t")):
        found = cv.read_records(path, prompt_field=field)
        assert found.prompts == {"m": [prompt]}
        assert found.notes == ["not read as a part of the prompt: 'system'"]
    doc = {"doc": {"problem": "p"}, "resps": [["a"]]}
    assert read(write(lines(doc)), prompt_field="problem")[0] == [("m", "p", "a")]


AMBIGUOUS = [
    {"answers": ["gold"], "response": "a"},
    {"answer": "gold", "prediction": "a"},
    {"output": "a", "completion": CHAT[1]},
]


@pytest.mark.parametrize("record", AMBIGUOUS)
def test_two_fields_of_answers_are_refused(write, record):
    path = write(lines({"prompt": "p", "answer": "a"}, {"prompt": "p"} | record))
    flags = " or ".join(sorted(f"--answer_field={field}" for field in record))
    with pytest.raises(ValueError, match="line 2: .* may all be what the model said") as caught:
        cv.read_records(path)
    assert all(flag in str(caught.value) for flag in flags.split(" or "))
    field = [*record][1]
    ((_, _, answer),), _ = read(write(lines({"prompt": "p"} | record)), answer_field=field)
    assert answer == "a"


def test_lists_in_cells_are_answers(write):
    cells = ["['a', \"b's\"]", '["c", "d"]', "['e' 'f']", "[1, 2]", "g", "[]", r"['\d']"]
    with open(write(b"", "m.csv"), "w", newline="") as stream:
        csv.writer(stream).writerows([["prompt", "responses"], *(["p", cell] for cell in cells)])
    rows, skipped = read("m.csv")
    assert [row[2] for row in rows] == ["a", "b's", "c", "d", "[1, 2]", "g", r"\d"]
    assert skipped == [
        (4, "holds a list that is neither JSON nor Python; save it as JSON"),
        (7, "'responses' holds no answers"),
    ]


def test_samples_that_an_older_harness_repeats_are_left_out(write):
    """They are equal but for the results of the filter, which has no name."""
    sample = {"doc_id": 0, "doc": {"question": "p"}, "resps": [["a"]]}
    other = sample | {"doc_id": 1, "resps": [["b"]]}
    rows, skipped = read(write(lines(sample, sample | {"exact_match": 1}, other)))
    assert [row[2] for row in rows] == ["a", "b"]
    assert skipped == [(2, "repeats a sample, as lm-evaluation-harness does for each filter")]
    # Tasks in one file may have other filters, and runs may repeat all.
    named = [sample | {"filter": "x"}, other | {"filter": "y"}, other | {"filter": "z"}]
    assert [row[2] for row in read(write(lines(*named, *named)))[0]] == ["a", "b", "a", "b"]


THOUGHTS = {
    "<think>long\nstory</think>\n\na": "a",
    "<think></think><think>b</think> a": "a",
    "<Reasoning>b</reasoning>a": "a",
    "so b\n</think>\na": "a",
    "so b.</think>\na": "a",
    "<think>cut": "",
    "so <think> and </think> are tags": "so <think> and </think> are tags",
    "a < b": "a < b",
}


def test_the_answer_is_the_text_after_the_reasoning(write):
    records = [{"prompt": f"p{k}", "answer": text} for k, text in enumerate(THOUGHTS)]
    path = write(lines(*records))
    rows, skipped = read(path)
    assert [row[2] for row in rows] == [text for text in THOUGHTS.values() if text]
    assert skipped == [(6, "'answer' holds reasoning, or its prompt, without an answer")]
    with pytest.warns(UserWarning, match="without an answer"):
        assert cv.read_records(path).summary.endswith("; cut: reasoning from 6 answers")
    with pytest.warns(UserWarning, match="kept, since clean is false: reasoning from 6 answers"):
        found = cv.read_records(path, clean=False)
    assert found.answers == {"m": list(THOUGHTS)}


def several(*answers):
    """Answers of ten prompts, one each, or the same for all."""
    return [(f"p{k}", answers[k % len(answers)]) for k in range(10)]


UNIQUE = [(f"p{k}", f"a story of {k} animals") for k in range(10)]
DOUBTFUL = {
    "errors": ([*UNIQUE, *several("Error: rate limit")], "10 of 20 look like errors"),
    "nulls": (UNIQUE + several("None")[:3], "3 of 13 look like errors.* 'None'"),
    "log-likelihoods": (several("-107.25", "(-3.50, False)"), "10 of 10 look like errors, place"),
    "lists": (several("['a', 'b']", "['c', 'd']"), r"10 of 10 look like lists"),
    "recurring": (UNIQUE + several("keine Antwort")[:5], "5 of 15 repeat a text .* 'keine A"),
    "refusals beside texts that recur": (
        [(f"p{k}", f"idea number {(k + j) % 20}") for k in range(40) for j in (0, 3)]
        + [(f"p{k}", "I cannot help with that.") for k in range(40)],
        "40 of 120 repeat a text .* 'I cannot",
    ),
    "constant": (several("keine Antwort"), "10 of 10 repeat a text"),
}
HONEST = {
    "labels": several("very likely", "very likely", "rather unlikely"),
    "labels with remarks": [
        (f"p{k}", text)
        for k in range(40)
        for text in ("very likely", "rather unlikely", f"remark {k // 2}")
    ],
    "choices": several("A", "B", "C"),
    "sentences": several("The answer is 1.", "The answer is 2.", "I am not sure."),
    "one error": [*UNIQUE, ("p0", "NameError: name 'x' is not defined")],
    "a refusal": UNIQUE + several("I cannot help.")[:2],
}


@pytest.mark.parametrize("name", [*DOUBTFUL, *HONEST])
def test_answers_that_may_be_something_else_are_counted(write, name):
    rows, words = DOUBTFUL.get(name) or (HONEST[name], None)
    path = write(lines(*({"prompt": prompt, "answer": answer} for prompt, answer in rows)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(cv.read_records(path).answers["m"]) == len(rows)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == (words is not None)
    assert words is None or re.search(f"m: {words}", messages[0])


def test_a_file_and_a_field_of_one_name_are_refused(write):
    record = {"prompt": "p", "answer": "a"}
    plain, named = write(lines(record)), write(lines(record | {"model": "m"}), "o.jsonl")
    with pytest.raises(ValueError, match=r"m\.jsonl and .*o\.jsonl hold answers of 'm'"):
        cv.read_records([plain, named])
    more = write(lines(record | {"model": "m", "prompt": "q"}), "more.jsonl")
    assert cv.read_records([named, more]).notes == [
        "m: answers of 2 files: o (1 answers, 1 prompts), more (1 answers, 1 prompts)"
    ]


def test_fields_that_are_named_win(write):
    record = {"prompt": "x", "answer": "y", "model": "z", "p": "p", "a": ["a"], "m": "other"}
    path = write(lines(record))
    assert read(path)[0] == [("z", "x", "y")]
    named = {"prompt_field": "p", "answer_field": "a", "model_field": "m"}
    assert read(path, **named)[0] == [("other", "p", "a")]
    for field in named:
        with pytest.raises(ValueError, match="line 1: has no 'absent' for its"):
            cv.read_records(path, **{field: "absent"})


def test_models_are_named_by_field_or_by_file(write):
    one = lines({"prompt": "p", "answer": "a"})
    paths = [write(one, f"some/{name}/run.jsonl") for name in ("y", "x")]
    assert read(paths)[0] == [(f"{name}/run.jsonl", "p", "a") for name in "yx"]
    assert read("**/run.jsonl")[0] == [(f"{name}/run.jsonl", "p", "a") for name in "xy"]
    both = lines({"prompt": "p", "answer": "b", "Model": "x"}, {"prompt": "p", "answer": "c"})
    named = write(both, "both.jsonl")
    rows, skipped = read([paths[1], named])
    assert rows == [("run", "p", "a"), ("x", "p", "b")]
    assert skipped == [(2, "has no 'model', which other records of this file have")]
    # A model may have several files.
    more = write(lines({"prompt": "q", "answer": "d", "model": "x"}), "more.jsonl")
    assert read([named, more])[0] == [("x", "p", "b"), ("x", "q", "d")]


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
    b'{"prompt": "p", "answers": ["c", null]}': r"expected a text in 'answers'\[1\], received null",
    b'{"prompt": "p", "answer": {"role": "user", "content": "a"}}': "'answer' is empty",
    b'{"prompt": "p", "resps": [[[-1.5, false]], [[-2.0, true]]]}': "one list of answers",
    b'{"prompt": "p", "resps": [[["-1.5", "False"], "c"]]}': r"'resps'\[0\], received a list",
    b'{"prompt": "p", "answer": "a", "model": {"content": "m"}}': "text in 'model', received {",
}


@pytest.mark.parametrize("place", UNFIT)
def test_what_does_not_fit_is_named_and_nothing_else_is_lost(write, place):
    fit = {"prompt": "p", "answer": "kept"}
    rows, ((line, reason),) = read(write(lines(fit, place, fit)))
    assert (line, [row[2] for row in rows]) == (2, ["kept", *["c"] * place.count(b'"c"'), "kept"])
    assert re.search(UNFIT[place], reason)


def test_a_long_list_of_what_does_not_fit_is_cut_in_the_warning(write):
    path = write(lines(*[b"{"] * 1200, {"prompt": "p", "answer": "a"}))
    with pytest.warns(UserWarning, match=r"\(1,200\)(.*\n){11}\.\.\.$"):
        assert len(cv.read_records(path).skipped) == 1200


def test_rows_of_csv_that_do_not_fit_are_left_out_and_long_cells_are_read(write):
    rows = [
        *(b"prompt,answer", b'p,"an ""a"""', b"p,b", b'p,"two', b'lines"', b"p"),
        *(b"", b"p,\xe9", b"p," + b"c" * 200_000),
    ]
    found, skipped = read(write(b"\r\n".join(rows), "m.csv"))
    assert [row[2] for row in found] == ['an "a"', "b", "two\r\nlines", "c" * 200_000]
    assert skipped == [
        (6, "holds 1 cells, the header 2"),
        (8, "'answer' holds bytes that are not UTF-8, or half a surrogate pair"),
    ]
    assert csv.field_size_limit() == 131_072


REFUSED = {
    "empty.jsonl": (b"", "holds no records"),
    "bad.jsonl": (b"\n[\n", r"no record fits. .*bad\.jsonl, line 2: is not JSON"),
    "cut.jsonl": ('{"prompt": "p"}'.encode("utf-16")[:-1], "cut.jsonl: cannot be read: .* trunc"),
    "cut.csv.gz": (gzip.compress(b"prompt,answer\np,a")[:-9], "cut.csv.gz: cannot be read: Comp"),
    "other.jsonl.gz": (b"{}", "other.jsonl.gz: cannot be read: Not a gzipped file"),
    "twice.csv": (b"prompt,answer,answer\np,a,a\n", "names a column twice"),
    "open.csv": (b'prompt,answer\np,a\np,"b\np,c', "from line 3 on .unexpected end of data"),
    "m.txt": (b"a", "expected a file ending in .jsonl, .csv"),
    "empty/x": (b"", "empty: holds no files of records .*.jsonl, .csv"),
    "odd/x.jsonl": (
        b'{"a": 1}',
        "odd: holds no files of records .*x.jsonl: has no prompt and no answer",
    ),
    "*.jsonl": (None, r"\*.jsonl: matches no file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_in_which_nothing_fits_is_an_error(write, name):
    content, words = REFUSED[name]
    if content is not None:
        write(content, name)
    with pytest.raises(ValueError, match=words):
        cv.read_records(name.partition("/")[0])


def test_a_file_is_given_once(write):
    path = write(lines({"prompt": "p", "answer": "a"}))
    for link in ("link.jsonl", "hard.jsonl"):
        (path.parent / link).symlink_to(path) if link == "link.jsonl" else os.link(path, link)
        with pytest.raises(ValueError, match="given twice, also as .*m.jsonl"):
            cv.read_records([path, link])
    for paths, words in (([path, "*.jsonl"], "given twice"), ([], "at least one file")):
        with pytest.raises(ValueError, match=words):
            cv.read_records(paths)


def test_parquet_is_read_where_pyarrow_is_installed(write):
    pyarrow = pytest.importorskip("pyarrow")
    path = write(b"damaged", "m.parquet")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        cv.read_records(path)
    table = pyarrow.table({"prompt": ["p", "p", None], "answers": [["a"], ["b"], ["c"]]})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    rows, skipped = read(path)
    assert rows == [("m", "p", "a"), ("m", "p", "b")]
    assert skipped == [(3, "expected a text in 'prompt', received null")]


@pytest.mark.parametrize("name", ["m.parquet", "m.eval"])
def test_a_package_that_is_missing_is_named(write, name, monkeypatch):
    for package in ("pyarrow.parquet", "inspect_ai.log"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"in a clone of .*: pip install -e '\.\[records\]'"):
        cv.read_records(write(b"", name))


def message(role, content, source="input"):
    dumped = {"id": "x", "role": role, "content": content}
    return types.SimpleNamespace(role=role, source=source, model_dump=lambda: dumped)


def sample(name, given, answer, *earlier, **scores):
    turns = [message("user", given)] if isinstance(given, str) else given
    return types.SimpleNamespace(
        id=name,
        input=given,
        messages=[*earlier, *turns, message("assistant", answer, "generate")],
        output=types.SimpleNamespace(completion=answer, choices=[]),
        scores=scores,
    )


CHATTED = [
    *(message("system", "s"), message("user", "p"), message("assistant", "e")),
    message("user", [{"type": "text", "text": "q"}]),
]
SAMPLES = [
    *(sample(1, "p", "a"), sample(1, "p", "b"), sample("x", "p", "c", message("system", "s"))),
    *(sample(2, CHATTED, "d"), sample(3, "p", "e"), sample(3, "p", "")),
]
GIVEN = ["p", "p", "system: s\n\nuser: p", "system: s\n\nuser: p\n\nassistant: e\n\nuser: q"]


@pytest.fixture
def inspect_log(monkeypatch):
    """Through the call that its documents describe, `read_eval_log`."""

    def make(samples, metrics=()):
        namespace = types.SimpleNamespace
        scores = [namespace(name="said", metrics=dict.fromkeys(metrics))]
        eval_log = namespace(
            eval=namespace(model="vendor/m"), results=namespace(scores=scores), samples=samples
        )
        log = types.ModuleType("inspect_ai.log")
        log.paths = []
        log.read_eval_log = lambda path, *, resolve_attachments: log.paths.append(path) or eval_log
        monkeypatch.setitem(sys.modules, "inspect_ai", types.ModuleType("inspect_ai"))
        monkeypatch.setitem(sys.modules, "inspect_ai.log", log)
        return log

    return make


@pytest.mark.parametrize("name", ["x.eval", "x.json"])
def test_samples_of_inspect_are_prompts_and_epochs_are_answers(write, inspect_log, name):
    """Samples of one text are told apart."""
    log = inspect_log(SAMPLES)
    path = write(b'{"eval": {}, "version": 2}', name)
    assert not misfit(path)
    rows, skipped = read(path)
    assert log.paths == [str(path)]  # Each log is parsed once.
    assert [row[0] for row in rows] == ["vendor/m"] * 5
    assert [row[1] for row in rows] == [*GIVEN, "p\n\nsample: 3"]
    assert [row[2] for row in rows] == list("abcde")
    assert skipped == [(6, "'completion' is empty")]


def test_answers_of_the_metric_are_those_of_its_scorer(write, inspect_log):
    score = types.SimpleNamespace
    given = [("A", 1), ("B", {"x": 1}), (None, 0), ("C", float("nan"))]
    scores = [score(answer=answer, value=value) for answer, value in given]
    samples = [sample(1, "p", f"ANSWER: {k}", said=score) for k, score in enumerate(scores)]
    inspect_log(samples, metrics=["answer_diversity"])
    rows, skipped = read(write(b"", "x.eval"))
    assert [row[2] for row in rows] == ["A", "B"]
    assert [line for line, _ in skipped] == [3, 4]
    texts = [types.SimpleNamespace(message=types.SimpleNamespace(text=text)) for text in "xy"]
    samples[0].output.choices = texts  # All are answers.
    inspect_log(samples)
    assert [row[2] for row in read("x.eval")[0]] == ["x", "y", "1", "2", "3"]  # Of "ANSWER: 1".


OPTIONS = ("--text_encoder=fake_encoders:Means", "--cache=cache", "--order=2")
OPTIONS += ("--output_bandwidth=99", "--prompt_bandwidth=90")


@pytest.fixture
def run(write, run_command):
    answers = {"x": ["a", "bb", "ccc"], "y": ["ba", "b", "x" * 4], "z": ["u", "aau", "vvvv"]}
    for name, texts in answers.items():
        records = [{"prompt": f"p{k}", "answers": [t + "a" * k for t in texts]} for k in range(4)]
        records.append({"prompt": "p0", "answer": "<think>why</think>last"})
        write(lines(*records), f"{name}.jsonl")
    return lambda *arguments: run_command(*arguments, *OPTIONS)


def embedded(name):
    rows, _ = read(f"{name}.jsonl")
    return [
        fake_encoders.Means().encode(list(texts)) for texts in list(zip(*rows, strict=True))[1:]
    ]


KERNELS = {"output_kernel": cv.Gaussian(99.0), "prompt_kernel": cv.Gaussian(90.0)}


def test_records_of_one_model_are_scored(run):
    report, out = run("score", "x.jsonl", "--by_prompt=by.csv")
    prompts, outputs = embedded("x")
    expected = cv.decompose(outputs, prompts, **KERNELS, order=2)
    score = report["scores"][0]["conditional"]
    assert score == pytest.approx(float(expected.conditional), rel=1e-5)
    assert "x: 13 answers, 4 prompts, 3 to 4 answers a prompt" in out
    cut = "cut: reasoning from 1 answers"
    assert f"13 answers (fields 'answers' and 'answer') to 4 prompts (field 'prompt'); {cut}" in out
    assert report["inputs"]["answers"] == {"x": {"n": 13, "prompts": 4, "least": 3, "most": 4}}
    assert report["inputs"]["fields"] == {"prompts": ["prompt"], "answers": ["answers", "answer"]}
    with open("by.csv") as stream:
        assert [row["prompt"] for row in csv.DictReader(stream)] == ["p0", "p1", "p2", "p3"]
    with pytest.warns(UserWarning, match="kept, since clean is false: reasoning from 1"):
        kept, _ = run("score", "x.jsonl", "--noclean")
    assert kept["scores"][0]["conditional"] != score


class Starts:
    """The first letters of texts: prompts that begin alike have one embedding."""

    name = "starts"

    def __init__(self):
        self.seen = []

    def encode(self, items):
        self.seen += items
        return np.array([[ord(letter) for letter in f"{x:16}"[:16]] for x in items], np.float32)


@pytest.mark.parametrize(
    ("flags", "answers", "embedded"), [((), 4, False), (("--prompt_bandwidth=9",), 4, True)]
)
def test_prompts_that_are_equal_or_different_are_not_embedded(
    write, run_command, monkeypatch, flags, answers, embedded
):
    """Encoders cut long prompts: those that begin alike would have one embedding."""
    encoder = Starts()
    monkeypatch.setattr(fake_encoders, "STARTS", encoder, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.getcwd())
    said = [[f"{k**2 % 7} {p}" for k in range(answers)] for p in range(8)]
    prompts = [f"You are a helpful assistant. Question {p}" for p in range(8)]
    rows = [{"prompt": p, "answers": of} for p, of in zip(prompts, said, strict=True)]
    write(lines(*rows))
    words = ("score", "m.jsonl", "--text_encoder=fake_encoders:STARTS", "--order=2", *flags)
    same = "different texts have the embedding of another"
    caught = pytest.warns(UserWarning, match=same) if embedded else contextlib.nullcontext()
    with caught, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* the Gram is numerically")
        report, out = run_command(*words, "--cache=cache", "--output_bandwidth=3")
    assert bool({*prompts} & {*encoder.seen}) == embedded
    assert ("prompts (field 'prompt') embedded by starts" in out) == embedded
    repeat = answers > 1 and not embedded
    assert report["bandwidths"]["prompts"]["rule"].endswith("because prompts repeat") == repeat
    if repeat:
        flat = [text for of in said for text in of], [p for p in prompts for _ in range(answers)]
        kernel = cv.Gaussian(3.0)
        expected = cv.evaluate(*flat, encoder=encoder, output_kernel=kernel, orders=[2])
        score = report["scores"][0]["unbiased"]["conditional"]
        assert score == pytest.approx(expected.order(2).unbiased.conditional, rel=1e-6)


def _read(*words, **flags):
    bar = types.SimpleNamespace(add_task=lambda *_, **__: 0, update=lambda *_, **__: None)
    given = verbs.Score(text_encoder="fake_encoders:STARTS", cache="cache", **flags)
    return inputs.read(given, inputs.models_of(words, given), bar)


@pytest.mark.filterwarnings("ignore:.* the Gram is numerically the identity")
def test_only_texts_that_are_compared_meet_the_encoder_and_are_told(write, monkeypatch):
    encoder = Starts()
    monkeypatch.setattr(fake_encoders, "STARTS", encoder, raising=False)
    write(lines(*({"task_id": f"id {k}", "completion": f"a{k}"} for k in range(4))))
    ids = _read("m.jsonl")
    pairs = ids.pairs()[""]
    assert encoder.seen == [f"a{k}" for k in range(4)] and pairs.prompt_kinds[0] == 4
    with pytest.raises(ValueError, match="expected embeddings for similar_prompts"):
        _read("m.jsonl", similar_prompts=True).pairs()
    np.save("x.npy", np.arange(8.0).reshape(4, 2))
    for prompts, told in (("p\np\nq\nq", {}), ("p\nq\nr\ns", {"text_encoder": "starts"})):
        write(prompts.encode(), "p.txt")
        read = _read("x.npy", prompts="p.txt")
        assert {k: v for k, v in read.described.items() if k == "text_encoder"} == told
        assert read.encoders() == ("starts (texts)" if told else None)
        assert ("prompts embedded by starts" in read.notes) == bool(told)


def test_pairs_of_one_batch_are_left_out_of_the_score_of_one_model(write, run):
    answers, batches = ["a", "bb", "ccc", "dd"] * 3, [k // 2 for k in range(12)]
    records = [
        {"prompt": f"p{k // 4}", "answer": text, "call": str(batch)}
        for k, (text, batch) in enumerate(zip(answers, batches, strict=True))
    ]
    write(lines(*records), "calls.jsonl")
    report, _ = run("score", "calls.jsonl", "--batch_field=call")
    prompts, outputs = embedded("calls")
    expected = cv.evaluate(outputs, prompts, **KERNELS, orders=[2], batches=batches)
    score = report["scores"][0]["unbiased"]["conditional"]
    assert score == pytest.approx(expected.order(2).unbiased.conditional, rel=1e-5)
    alone = cv.evaluate(outputs, prompts, **KERNELS, orders=[2])
    assert score != pytest.approx(alone.order(2).unbiased.conditional, rel=1e-3)


@pytest.mark.filterwarnings("ignore:means.* have the embedding of another")
def test_records_of_several_models_are_compared(run):
    with open("z.jsonl", "a") as stream:
        stream.write("\n{")
    with pytest.warns(UserWarning, match="z.jsonl, line 6: is not JSON"):
        report, out = run("compare", "x.jsonl", "y.jsonl", "z.jsonl")
    (skipped,) = report["inputs"]["skipped"]
    assert skipped.rpartition("z.jsonl, ")[2].startswith("line 6")
    models = {name: embedded(name) for name in "xyz"}
    prompts, outputs = ({name: pair[k] for name, pair in models.items()} for k in range(2))
    expected = cv.compare(outputs, prompts, **KERNELS, orders=[2])
    for got, wanted in zip(report["rankings"], expected.rankings, strict=True):
        assert got["values"] == pytest.approx(dict(wanted.values), rel=1e-5)
    assert "z: 13 answers, 4 prompts, 3 to 4 answers a prompt" in out
    named = run("compare", "x.jsonl", "y.jsonl", "--prompt_field=prompt")[0]
    assert list(named["inputs"]["answers"]) == ["x", "y"]
    assert named["inputs"]["records"] == "x.jsonl,y.jsonl"


BAD_INPUTS = {
    "score x.jsonl y.jsonl": "expected answers of one model, .* received those of x, y",
    "score x.jsonl --prompts_key=a": "--prompts_key=a: has no effect",
    "score x.txt --model_field=a": "--model_field=a: has no effect",
    "score x.txt --noclean": "--clean=False: has no effect",
    "score x.jsonl --latex=x.jsonl": "would replace x.jsonl",
    "score x.jsonl --answer_field=prompt": "outputs of x and their prompts are equal",
}


@pytest.mark.parametrize("words", BAD_INPUTS)
def test_flags_of_records_that_contradict_are_refused(run, words):
    with pytest.raises(ValueError, match=BAD_INPUTS[words]):
        run(*words.split())
