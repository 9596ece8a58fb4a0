"""Files of language models' answers: formats, what does not fit, and the flags that read them."""

import csv
import json
import re
import sys
import tracemalloc
import types
import warnings

import fake_encoders
import pytest

import condvendi_jax as cv
from condvendi_jax import __main__

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "p"}, {"type": "image", "image": "x"}]},
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
    "messages": [{"prompt": CHAT[:2], "responses": [CHAT[2:], {"role": "assistant", "text": "b"}]}],
    "messages of one model": [
        {"messages": CHAT, "answers": [CHAT[2], {"role": "assistant", "content": "b"}]}
    ],
    "conversations": [
        {"prompt": "p", "answer": CHAT},
        {"prompt": "p", "answer": [{"role": "user", "content": "?"}, CHAT[2] | {"content": "b"}]},
    ],
    "arguments": [SAMPLE | {"arguments": [["p", {"until": []}]], "resps": [["a", "b"]]}],
    "named arguments": [
        SAMPLE | {"arguments": {"gen_args_0": {"arg_0": "p", "arg_1": {}}}, "resps": [["a", "b"]]}
    ],
    "two filters": [
        SAMPLE | {"doc": {"question": "p"}, "resps": [["a", "b"]]},
        SAMPLE | {"doc": {"question": "p"}, "resps": [["a", "b"]], "filter": "flexible"},
    ],
    "references beside answers": [
        {"prompt": "p", "responses": ["a", "b"], "answers": ["c"], "generations": None}
    ],
    "blank lines": [{"prompt": "p", "answers": ["a"]}, b"", b" ", {"prompt": "p", "answer": "b"}],
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_give_the_same_rows(write, name):
    for content in (lines(*FORMATS[name]), b"\xef\xbb\xbf" + lines(*FORMATS[name]) + b"\r\n"):
        assert read(write(content)) == ([("m", "p", "a"), ("m", "p", "b")], [])


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
    assert read(paths)[0] == [("y", "p", "a"), ("x", "p", "a")]
    assert read("**/run.jsonl")[0] == [("x", "p", "a"), ("y", "p", "a")]
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
    b'{"prompt": "p", "prompt": "q", "answer": "a"}': "the key 'prompt' stands twice",
    b"[" * 100_000: "is nested too deeply",
    b'{"prompt": "p", "answer": ' + b'{"content":[' * 440 + b"]}" * 440 + b"}": "nested too deeply",
    b"3": "expected an object",
    b'{"prompt": "p", "x": 1}': "has no generations or .* its fields are prompt, x",
    b'{"answer": "a"}': "has no prompt or ",
    b'{"prompt": " ", "answer": "a"}': "'prompt' is empty",
    b'{"prompt": null, "answer": "a"}': "expected a text in 'prompt', found null",
    b'{"prompt": "p", "answer": ""}': "'answer' is empty",
    b'{"prompt": "p", "answer": NaN}': "expected a text in 'answer', found nan",
    b'{"prompt": "p", "answer": 42}': "expected a text in 'answer', found 42",
    b'{"prompt": "p", "answer": true}': "expected a text in 'answer', found True",
    b'{"prompt": ["p"], "answer": "a"}': "expected a text in 'prompt', found a list",
    b'{"prompt": "p", "answers": []}': "'answers' holds no answers",
    b'{"prompt": "p", "answers": {"0": "a"}}': "expected a text in 'answers', found an object",
    b'{"prompt": "p", "answers": ["c", null]}': r"expected a text in 'answers'\[1\], found null",
    b'{"prompt": "p", "answers": [["b"], "c"]}': r"'answers'\[0\], found a list",
    b'{"prompt": "p", "answer": {"role": "user", "content": "a"}}': "'answer' is empty",
    b'{"prompt": "p", "resps": [[[-1.5, false]], [[-2.0, true]]]}': "one list of answers",
    b'{"prompt": "p", "resps": [[[-1.5, false], "c"]]}': r"'resps'\[0\], found a list",
    b'{"prompt": "p", "answer": "a", "model": null}': "expected a text in 'model', found null",
    b'{"prompt": "p", "answer": "a", "model": {"content": "m"}}': "'model', found an object",
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


def test_csv_goes_on_after_a_malformed_row(write):
    rows = [
        *(b"prompt,answer", b'p,"an ""a"""', b'p,"open', b"p,b", b'p,"two', b'lines"', b"p"),
        *(b"", b"p,\xe9", b"p," + b"c" * 200_000, b'p,"cut'),
    ]
    found, skipped = read(write(b"\r\n".join(rows), "m.csv"))
    assert [row[2] for row in found] == ['an "a"', "b", "two\r\nlines", "c" * 200_000]
    assert [line for line, _ in skipped] == [3, 7, 9, 11]
    assert csv.field_size_limit() == 131_072


def test_lines_are_read_one_at_a_time(write):
    """Also long ones: what is held beside the texts is one line."""
    path = write(b'{"prompt":"p","answer":"a","x":"%s"}\n' % (b"x" * 10**7) * 8)
    tracemalloc.start()
    try:
        assert read(path) == ([("m", "p", "a")] * 8, [])
        assert tracemalloc.get_traced_memory()[1] < 6 * 10**7
    finally:
        tracemalloc.stop()


REFUSED = {
    "empty.jsonl": (b"", "holds no records"),
    "blank.jsonl": (b"\n\n", "holds no records"),
    "bad.jsonl": (b"\n[\n", r"no record fits. .*bad\.jsonl, line 2: is not JSON"),
    "wide.jsonl": ('{"prompt": "p"}'.encode("utf-16"), "is UTF-16 or UTF-32; save it as"),
    "wider.jsonl": ('{"prompt": "p"}'.encode("utf-32"), "is UTF-16 or UTF-32; save it as"),
    "header.csv": (b"prompt,answer\n", "holds no records"),
    "twice.csv": (b"prompt,answer,answer\np,a,a\n", "names a column twice"),
    "open.csv": (b'prompt,"answer\np,a\n', "line 1: unexpected end of data"),
    "m.txt": (b"a", "expected a file ending in .jsonl, .csv"),
    "folder.jsonl/x": (b"", "folder.jsonl: expected a file ending in .jsonl"),
    "*.jsonl": (None, r"\*.jsonl: matches no file"),
    "absent.jsonl": (None, "absent.jsonl: there is no such file"),
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
    (path.parent / "link.jsonl").symlink_to(path)
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
    assert skipped == [(3, "expected a text in 'prompt', found null")]


@pytest.mark.parametrize("name", ["m.parquet", "m.eval"])
def test_a_package_that_is_missing_is_named(write, name, monkeypatch):
    for package in ("pyarrow.parquet", "inspect_ai.log"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"is not installed; .*condvendi_jax\[records\]"):
        cv.read_records(write(b"", name))


def test_epochs_of_inspect_are_answers(write, monkeypatch):
    """Through the calls that its documents describe: `read_eval_log`, `read_eval_log_samples`."""
    namespace = types.SimpleNamespace
    parts = [namespace(role="system", text="s"), namespace(role="user", text="p")]
    samples = [
        namespace(input=given, output=namespace(completion=answer))
        for given, answer in (("p", "a"), (parts, "b"), ("p", ""))
    ]
    header = namespace(eval=namespace(model="vendor/m"))
    log = types.ModuleType("inspect_ai.log")
    log.read_eval_log = lambda path, *, header_only: header
    log.read_eval_log_samples = lambda path, *, all_samples_required: iter(samples)
    monkeypatch.setitem(sys.modules, "inspect_ai", types.ModuleType("inspect_ai"))
    monkeypatch.setitem(sys.modules, "inspect_ai.log", log)
    rows, skipped = read(write(b"", "x.eval"))
    assert rows == [("vendor/m", "p", "a"), ("vendor/m", "p", "b")]
    assert skipped == [(3, "'answer' is empty")]


OPTIONS = (
    *("--text_encoder=fake_encoders:Means", "--cache=cache", "--order=2", "--json=o.json"),
    *("--output_bandwidth=99", "--prompt_bandwidth=90", "--overwrite"),
)


@pytest.fixture
def run(write, capfd):
    answers = {"x": ["a", "bb", "ccc"], "y": ["ba", "b", "x" * 4], "z": ["u", "aau", "vvvv"]}
    for name, texts in answers.items():
        records = [{"prompt": f"p{k}", "answers": [t + "a" * k for t in texts]} for k in range(4)]
        records.append({"prompt": "p0", "answer": "last"})
        write(lines(*records), f"{name}.jsonl")

    def run(*arguments):
        __main__.main(["condvendi", *arguments, *OPTIONS])
        with open("o.json") as stream:
            return json.load(stream), capfd.readouterr().out

    return run


def embedded(name):
    rows, _ = read(f"{name}.jsonl")
    return [
        fake_encoders.Means().encode(list(texts)) for texts in list(zip(*rows, strict=True))[1:]
    ]


KERNELS = {"output_kernel": cv.Gaussian(99.0), "prompt_kernel": cv.Gaussian(90.0)}


def test_records_of_one_model_are_scored(run):
    report, out = run("score", "--records=x.jsonl", "--by_prompt=by.csv")
    prompts, outputs = embedded("x")
    expected = cv.decompose(outputs, prompts, **KERNELS, order=2)
    assert report["scores"][0]["conditional"] == pytest.approx(
        float(expected.conditional), rel=1e-5
    )
    assert "x: 13 answers, 4 prompts, 3 to 4 answers a prompt" in out
    assert report["inputs"]["answers"] == {"x": {"n": 13, "prompts": 4, "least": 3, "most": 4}}
    assert report["inputs"]["fields"] == {"prompts": ["prompt"], "answers": ["answers", "answer"]}
    with open("by.csv") as stream:
        assert [row["prompt"] for row in csv.DictReader(stream)] == ["p0", "p1", "p2", "p3"]


def test_records_of_several_models_are_compared(run):
    with open("z.jsonl", "a") as stream:
        stream.write("\n{")
    with pytest.warns(UserWarning, match="z.jsonl, line 6: is not JSON"):
        report, out = run("compare", "--records=*.jsonl")
    assert [text.rpartition("z.jsonl, ")[2][:6] for text in report["inputs"]["skipped"]] == [
        "line 6"
    ]
    models = {name: embedded(name) for name in "xyz"}
    expected = cv.compare(
        {name: outputs for name, (_, outputs) in models.items()},
        {name: prompts for name, (prompts, _) in models.items()},
        **KERNELS,
        orders=[2],
    )
    for got, wanted in zip(report["rankings"], expected.rankings, strict=True):
        assert got["values"] == pytest.approx(dict(wanted.values), rel=1e-5)
    assert "z: 13 answers, 4 prompts, 3 to 4 answers a prompt" in out
    named = run("compare", "--records=x.jsonl,y.jsonl", "--prompt_field=prompt")[0]
    assert list(named["inputs"]["answers"]) == ["x", "y"]


def test_prompts_that_a_model_does_not_answer_are_counted(run, write):
    rows = [{"prompt": f"p{k}", "answers": ["a", "bb", "d" * k]} for k in range(1, 5)]
    write(lines(*rows, {"prompt": "p1", "answer": "e"}), "y.jsonl")
    words = "2 of 5 prompts are not answered by all models: for example, x has no answer to 'p4'"
    with pytest.warns(UserWarning, match=words):
        report, _ = run("compare", "--records=x.jsonl,y.jsonl")
    assert report["n"] == {"x": 13, "y": 13}
    assert report["untested"] is not None


BAD_INPUTS = {
    "score --records=x.jsonl,y.jsonl": "expected answers of one model, .* received those of x, y",
    "compare --records=x.jsonl": "at least two models, received those of x",
    "compare --records=x.jsonl y.jsonl": "unexpected argument 'y.jsonl'",
    "score --records=x.jsonl --prompts=t.npy": "--records and --prompts",
    "score --records=x.jsonl --prompts_key=a": "--prompts_key: there is nothing here",
    "score --records=x.jsonl --texts=y.jsonl": "--texts and --records: give one or the other",
    "score --texts=x.jsonl --model_field=a": "--model_field: there is nothing here",
    "score --records=x.jsonl --latex=x.jsonl": "would replace x.jsonl",
    "score --records=x.jsonl --answer_field=prompt": "answers of x and their prompts are equal",
}


@pytest.mark.parametrize("words", BAD_INPUTS)
def test_flags_of_records_that_contradict_are_refused(run, words):
    with pytest.raises(ValueError, match=BAD_INPUTS[words]):
        run(*words.split())
