"""Files as they come: packed, in other encodings, in folders, logs of Inspect; and their models."""

import csv
import gzip
import json
import os
import pathlib
import re
import sys
import types

import numpy as np
import pytest
from answer_files import read, write

import condvendi_jax as cv
from condvendi_jax.base import files
from condvendi_jax.cli import inputs, verbs
from condvendi_jax.records import files as record_files
from condvendi_jax.records import items
from condvendi_jax.records.files import misfit
from condvendi_jax.records.reading import known_by

ROWS = [{"prompt": "p", "answer": text} for text in "abä"]
READ = [("m", "p", text) for text in "abä"]
TABLE = "\n".join(["prompt,answer", *(f"p,{row['answer']}" for row in ROWS)])
CONTENTS = {
    "m.jsonl": "\n".join(map(json.dumps, ROWS)),
    "m.json": json.dumps(ROWS, ensure_ascii=False),
    "m.csv": TABLE,
    "m.tsv": TABLE.replace(",", "\t"),
}
FORMS = {
    "UTF-16": ("", lambda text: text.encode("utf-16")),
    "UTF-16, the other order": ("", lambda text: b"\xfe\xff" + text.encode("utf-16-be")),
    "packed": (".gz", lambda text: gzip.compress(text.encode())),
    "packed UTF-16": (".GZ", lambda text: gzip.compress(text.encode("utf-16"))),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONTENTS)
def test_packed_files_and_utf_16_are_read(name, form):
    suffix, encode = FORMS[form]
    path = write(name + suffix, encode(CONTENTS[name]))
    assert read(path) == ([(pathlib.Path(name).stem, *row[1:]) for row in READ], [])
    assert items.read_texts(path).texts == ["a", "b", "ä"]
    assert items.read_texts(write(f"p.txt{suffix}", encode("a\r\nä\n"))).texts == ["a", "ä"]


@pytest.mark.parametrize("first", ["", "sep={}\n"])
@pytest.mark.parametrize("mark", ";\t")
def test_the_separator_of_a_table_is_that_of_its_header(mark, first):
    table = f'prompt{mark}answer\np{mark}"a{mark} b"\np{mark}a, b'
    write("m.csv", first.format(mark) + table)
    assert read("m.csv")[0] == [("m", "p", f"a{mark} b"), ("m", "p", "a, b")]


def test_rows_of_a_table_that_do_not_fit_are_left_out():
    rows = [b"prompt,answer", b'p,"an ""a"""', b"p,b", b'p,"two', b'lines"', b"p", b"", b"p,\xe9"]
    empty = [f"p,{cell}".encode() for cell in ("NA", "NaN", "nan", "<NA>")]  # As pandas writes it.
    found, skipped = read(write("m.csv", b"\r\n".join(rows + empty)))
    assert [row[2] for row in found] == ['an "a"', "b", "two\r\nlines"]
    assert skipped == [
        (6, "holds 1 cells, the header 2"),
        (8, "'answer' holds bytes that are not UTF-8, or half a surrogate pair"),
        *((line, "'answer' is empty") for line in range(9, 13)),
    ]
    assert csv.field_size_limit() == 131_072


def test_a_long_list_of_what_does_not_fit_is_cut_in_the_warning():
    path = write("m.jsonl", *["{"] * 1200, ROWS[0])
    with pytest.warns(UserWarning, match=r"\(1,200\)(.*\n){11}\.\.\.$"):
        assert len(cv.read_records(path).skipped) == 1200


LISTS = {"runs": [{"a": 1}], "others": [{"b": 1}]}
CELLS = {"columns": ["prompt", "answer"], "data": [["p"]]}
REFUSED = {  # A file, its content, and words of the error.
    "empty.jsonl": (b"", "holds no records"),
    "bad.jsonl": (b"\n[\n", r"no record fits. .*bad\.jsonl, line 2: is not JSON .* one record a l"),
    "cut.jsonl": ('{"prompt": "p"}'.encode("utf-16")[:-1], "cut.jsonl: cannot be read: .* trunc"),
    "cut.csv.gz": (gzip.compress(b"prompt,answer\np,a")[:-9], "cut.csv.gz: cannot be read: Comp"),
    "other.jsonl.gz": (b"{}", "other.jsonl.gz: cannot be read: Not a gzipped file"),
    "twice.csv": (b"prompt,answer,answer\np,a,a\n", "names a column twice"),
    "open.csv": (b'prompt,answer\np,a\np,"b\np,c', "from line 3 on .unexpected end of data"),
    "m.txt": (b"a", "expected a file ending in .jsonl, .csv, .tsv, .parquet"),
    "m.zip": (b"a", "Unpack it first: unzip m.zip"),
    "empty/x": (b"", "empty: holds no files of records .*.jsonl, .csv"),
    "odd/x.jsonl": (b'{"a": 1}', "odd: holds no files .*x.jsonl: has no prompt and no answer"),
    "*.jsonl": (None, r"\*.jsonl: matches no file"),
    "lists.json": (json.dumps(LISTS), "received the keys 'runs', 'others'.* save it: json"),
    "none.json": ('{"runs": []}', "its fields are runs"),
    "number.json": ("3", "expected an object"),
    "names.json": ('[["a", "b"]]', 'expected an object such as {"prompt": "...", "answers"'),
    "cells.json": (json.dumps(CELLS), "not hold a cell for each column"),
    "key.json": ('[{"prompt": "p", "answer": {"b": 1, "b": 2}}]', "key.json: .* the key 'b' tw"),
    "m.arrow": (b"damaged", "m.arrow: cannot be read as Arrow"),
    "m.parquet": (b"damaged", "cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_in_which_nothing_fits_is_an_error(name):
    if name.endswith(("arrow", "parquet")):
        pytest.importorskip("pyarrow")
    content, words = REFUSED[name]
    if content is not None:
        write(name, content)
    with pytest.raises(ValueError, match=words):
        cv.read_records(name.partition("/")[0])


@pytest.mark.parametrize("as_file", [True, False])
def test_arrow_is_read_as_a_file_and_as_a_stream(folder, as_file):
    write_arrow(folder / "m.arrow", ROWS, as_file=as_file)
    assert read("m.arrow") == (READ, [])
    assert items.read_texts("m.arrow").texts == ["a", "b", "ä"]


def write_arrow(path, rows, *, as_file=False):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(rows)
    make = pyarrow.ipc.new_file if as_file else pyarrow.ipc.new_stream
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("wb") as stream, make(stream, table.schema) as writer:
        writer.write_table(table)


def test_parquet_is_read_and_saved_as_an_array_by_the_line_of_an_error():
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame({"prompt": ["p", "p", None], "answers": [["a"], ["b"], ["c"]]})
    frame.to_parquet("m.parquet")
    unfit = [(3, "expected a text in 'prompt', received null")]
    assert read("m.parquet") == ([("m", "p", "a"), ("m", "p", "b")], unfit)
    vectors = np.arange(6.0).reshape(3, 2)
    pandas.DataFrame({"id": [0, 1, 2], "vector": list(vectors)}).to_parquet("v.parquet")
    for column in (None, "vector"):
        words = "'vector' holds embeddings, save them as an array"
        with pytest.raises(ValueError, match=words) as error:
            items.read_texts("v.parquet", column=column)
        exec(str(error.value).partition("as an array: ")[2])  # noqa: S102
        np.testing.assert_array_equal(np.load("x.npy"), vectors)


@pytest.mark.parametrize("name", ["m.parquet", "m.eval"])
def test_a_package_that_is_missing_is_named(name, monkeypatch):
    for package in ("pyarrow.parquet", "inspect_ai.log"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"in a clone of .*: pip install -e '\.\[records\]'"):
        cv.read_records(write(name))


CONVERSIONS = {  # An ending, what writes such a file, and the module that this needs.
    ".pt": ("torch", lambda torch, path, rows: torch.save(torch.tensor(rows), path)),
    ".h5": ("h5py", lambda h5py, path, rows: h5py.File(path, "w").create_dataset("x", data=rows)),
    ".mat": ("scipy.io", lambda scipy, path, rows: scipy.savemat(path, {"x": rows})),
    ".pkl": ("pickle", lambda pickle, path, rows: path.write_bytes(pickle.dumps(rows.tolist()))),
    ".xlsx": ("openpyxl", lambda _, path, rows: pandas_table().to_excel(path, index=False)),
}


def pandas_table():
    return pytest.importorskip("pandas").DataFrame(ROWS)


@pytest.mark.parametrize("ending", CONVERSIONS)
def test_the_error_of_another_file_gives_the_line_that_converts_it(folder, ending):
    module, convert = CONVERSIONS[ending]
    rows, path = np.arange(6.0).reshape(3, 2), folder / f"m{ending}"
    convert(pytest.importorskip(module), path, rows)
    for reader in (files.read_array, items.read_texts, cv.read_records):
        with pytest.raises(ValueError, match="expected a file ending in .*Convert it: import") as e:
            reader(path)
    exec(str(e.value).partition("Convert it: ")[2].partition("; this can run")[0])  # noqa: S102
    if ending == ".xlsx":
        assert read("m.csv") == (READ, [])
    else:
        np.testing.assert_array_equal(files.read_array("m.npy"), rows)


# Logs of Inspect, through the call that its documents describe, `read_eval_log`.


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


@pytest.fixture
def inspect_log(monkeypatch):
    def make(samples, metrics=()):
        space = types.SimpleNamespace
        scored = space(scores=[space(name="said", metrics=dict.fromkeys(metrics))])
        made = space(eval=space(model="vendor/m"), results=scored, samples=samples)
        log = types.ModuleType("inspect_ai.log")
        log.paths = []
        log.read_eval_log = lambda path, *, resolve_attachments: log.paths.append(path) or made
        monkeypatch.setitem(sys.modules, "inspect_ai", types.ModuleType("inspect_ai"))
        monkeypatch.setitem(sys.modules, "inspect_ai.log", log)
        return log

    return make


@pytest.mark.parametrize("name", ["x.eval", "x.json"])
def test_samples_of_inspect_are_prompts_and_epochs_are_answers(inspect_log, name):
    """Samples of one text are told apart."""
    system, parts = message("system", "s"), [{"type": "text", "text": "q"}]
    chat = [system, message("user", "p"), message("assistant", "e"), message("user", parts)]
    log = inspect_log([
        *(sample(1, "p", "a"), sample(1, "p", "b"), sample("x", "p", "c", system)),
        *(sample(2, chat, "d"), sample(3, "p", "e"), sample(3, "p", "")),
    ])  # fmt: skip
    path = write(name, '{"eval": {}, "version": 2}')
    assert not misfit(path)
    rows, skipped = read(path)
    assert log.paths == [str(path)]  # Each log is parsed once.
    last = "system: s\n\nuser: p\n\nassistant: e\n\nuser: q"
    prompts = ["p", "p", "system: s\n\nuser: p", last, "p\n\nsample: 3"]
    assert rows == [("vendor/m", *pair) for pair in zip(prompts, "abcde", strict=True)]
    assert skipped == [(6, "'completion' is empty")]


def test_answers_of_the_metric_are_those_of_its_scorer(inspect_log):
    space = types.SimpleNamespace
    given = [("A", 1), ("B", {"x": 1}), (None, 0), ("C", float("nan"))]
    scores = [space(answer=answer, value=value) for answer, value in given]
    samples = [sample(1, "p", f"ANSWER: {k}", said=score) for k, score in enumerate(scores)]
    inspect_log(samples, metrics=["answer_diversity"])
    rows, skipped = read(write("x.eval"))
    assert [row[2] for row in rows] == ["A", "B"]
    assert [line for line, _ in skipped] == [3, 4]
    ends = {"x": "stop", "y": "max_tokens"}  # Both answers count.
    choices = [space(message=space(text=text), stop_reason=end) for text, end in ends.items()]
    samples[0].output.choices = choices
    inspect_log(samples)
    with pytest.warns(UserWarning, match="1 of 5 were cut off .* 'y'"):
        found = cv.read_records("x.eval")
    assert [*found.answers.values()] == [["x", "y", "1", "2", "3"]]  # Of "ANSWER: 1".
    inspect_log([None])
    with pytest.raises(ValueError, match="x.eval: is not a log of Inspect"):
        read("x.eval")


# Files that are parsed once.

HELM = {"instance": 0, "request": {"prompt": "p", "model": "m"}}
LOOKED_AT = {
    "array": ROWS[:2],
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


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_file_whose_first_row_was_looked_at_is_parsed_once(name, parsed):
    path = write("m.json", LOOKED_AT[name])
    assert not misfit(path)
    assert read(path)[0] == READ[:2]
    assert parsed == ["m.json"]
    # It is parsed again for the next reader, and where it has changed.
    assert read(path)[0] == READ[:2]
    assert not known_by(path)
    assert read(write("m.json", ROWS))[0] == READ
    assert parsed == ["m.json"] * 4


def test_what_is_kept_of_files_that_were_looked_at_is_bounded(parsed, monkeypatch):
    paths = [write(f"{k}.json", ROWS) for k in range(3)]
    monkeypatch.setattr(record_files, "_KEPT_BYTES", 2 * paths[0].stat().st_size)
    assert not any(map(misfit, paths))
    for path in paths:
        read(path)
    assert parsed == ["0.json", "1.json", "2.json", "0.json", "1.json"]


# Which files are of which model.


def test_a_file_is_given_once():
    path = write("m.jsonl", ROWS[0])
    (path.parent / "link.jsonl").symlink_to(path)
    os.link(path, "hard.jsonl")
    for paths, words in (
        ([path, "link.jsonl"], "given twice, also as .*m.jsonl"),
        ([path, "hard.jsonl"], "given twice, also as .*m.jsonl"),
        ([path, "m*.jsonl"], "given twice"),
        ([], "at least one file"),
    ):
        with pytest.raises(ValueError, match=words):
            cv.read_records(paths)


def test_models_are_named_by_field_or_by_file():
    paths = [write(f"some/{name}/run.jsonl", ROWS[0]) for name in "yx"]
    assert read(paths)[0] == [(f"{name}/run.jsonl", "p", "a") for name in "yx"]
    assert read("**/run.jsonl")[0] == [(f"{name}/run.jsonl", "p", "a") for name in "xy"]
    named = write("both.jsonl", ROWS[1] | {"Model": "x"}, ROWS[1])
    rows, skipped = read([paths[1], named])
    assert rows == [("run", "p", "a"), ("x", "p", "b")]
    assert skipped == [(2, "has no 'model', which other records of this file have")]


def test_a_model_of_several_files_is_named_alike_in_all_of_them():
    named = write("o.jsonl", ROWS[0] | {"model": "m"})
    more = write("more.jsonl", ROWS[0] | {"model": "m", "prompt": "q"})
    assert read([named, more])[0] == [("m", "p", "a"), ("m", "q", "a")]
    note = "m: answers of 2 files: o (1 answers, 1 prompts), more (1 answers, 1 prompts)"
    assert cv.read_records([named, more]).notes == [note]
    with pytest.raises(ValueError, match=r"m\.jsonl and .*o\.jsonl hold answers of 'm'"):
        cv.read_records([write("m.jsonl", ROWS[0]), named])
    both = write("both.jsonl", *(ROWS[0] | {"model": model} for model in "mn"))
    with pytest.raises(ValueError, match="holds answers of m, n, which are not all 'one': leave"):
        cv.read_records(both, names={str(both): "one"})


def test_a_data_set_of_hugging_face_is_one_model(folder):
    for k in range(2):
        write_arrow(folder / f"set/data-{k:05}-of-00002.arrow", ROWS[k : k + 1])
    write_arrow(folder / "set/cache-1.arrow", ROWS)
    for name in ("dataset_info", "state"):
        write(f"set/{name}.json", {})
    for path in ("set", "set/data-*.arrow"):
        assert read(path)[0] == [("set", "p", "a"), ("set", "p", "b")]


def write_results(folder, *models):
    for model in models:
        for task in "ab":
            rows = [
                {"doc_id": k, "doc": {"q": "?"}, "resps": [[f"{model}{i}" for i in range(2)]]}
                | {"arguments": {"gen_args_0": {"arg_0": f"{task} {k}", "arg_1": {}}}}
                for k in range(3)
            ]
            write(f"{folder}/{model}/samples_{task}_2025-01-01T10-00-00.123.jsonl", *rows)
        write(f"{folder}/{model}/results_1.json", {"results": {"a": {"x": 1}}})


SAMPLES = [f"results/{model}/samples_*" for model in ("llama", "mistral")]
WAYS = {
    "a folder of folders": ("results", {}),
    "folders": (["results/llama", "results/mistral"], {}),
    "a pattern of folders": ("results/*", {}),
    "a pattern of files in folders": ("results/*/samples_*", {}),
    "patterns": (SAMPLES, {"names": dict(zip(SAMPLES, ("llama", "mistral"), strict=True))}),
}


@pytest.mark.filterwarnings("ignore:. files hold no records")
@pytest.mark.parametrize("name", WAYS)
def test_results_of_models_and_tasks_are_read_in_one_call(name):
    paths, more = WAYS[name]
    write_results("results", "llama", "mistral")
    found = cv.read_records(paths, **more)
    assert {m: len(said) for m, said in found.answers.items()} == {"llama": 12, "mistral": 12}
    counts = {task: (len(p), len({*p})) for task, p in found.by_task["mistral"].items()}
    assert counts == dict.fromkeys("ab", (6, 3))
    assert found.tasks["llama"] == ["a"] * 6 + ["b"] * 6
    counted = "a (6 answers, 3 prompts), b (6 answers, 3 prompts)"
    assert f"llama: answers of 2 files: {counted}" in found.notes


def test_files_of_a_folder_that_hold_no_records_are_named_and_others_are_models():
    write_results(".", "llama")
    write("llama/.hidden.jsonl", {})
    other = write("other/llama.jsonl", ROWS[0])
    words = "1 files hold no records, for example .*results_1.json: h"
    with pytest.warns(UserWarning, match=words):
        assert [*cv.read_records(["llama", other]).answers] == ["llama", "other/llama.jsonl"]


@pytest.mark.parametrize("place", [".", "runs"])
def test_files_of_one_folder_that_answer_the_same_prompts_are_models_or_one(place):
    for name in ("one", "two"):
        write(f"{place}/m/{name}.jsonl", *({"prompt": f"p{k}", "answer": name} for k in range(2)))
    path = pathlib.Path(place, "m")
    words = rf"{path}: its files one and two answer the same prompts.* {path}/\*.* m={path} or, in"
    for given in {path, pathlib.Path("m" if place == "." else place)}:
        with pytest.raises(ValueError, match=words):
            cv.read_records(given)
        found = cv.read_records(given, names={str(path): "m"})
        assert found.answers == {"m": ["one", "one", "two", "two"]}
    assert [*cv.read_records(f"{path}/*").answers] == ["one", "two"]


# The command.


def models_of(*words, verb=verbs.Compare, **flags):
    return inputs.models_of(words, verb(**flags))


@pytest.mark.filterwarnings("ignore:. files hold no records")
def test_the_command_takes_patterns_folders_and_the_fields_in_them():
    write_results("results", "llama", "mistral")
    write("odd/m.jsonl", {"prompt": "p", "mine": 1})
    patterns = [f"{model}=results/{model}/samples_*.jsonl" for model in ("llama", "mistral")]
    assert {model.kind for model in models_of(*patterns).values()} == {"records"}
    for name, fields in (("results", {}), ("results", {"answer_field": "resps"})):
        assert models_of(name, **fields)[name].kind == "records"
    assert models_of("odd", answer_field="mine")["odd"].kind == "records"
    _, described, _ = inputs._read_records(verbs.Compare(), models_of("results"))
    tasks = {task: {"n": 6, "prompts": 3} for task in "ab"}
    for model in ("llama", "mistral"):  # As the JSON has them.
        assert described["answers"][model]["tasks"] == tasks


BLAMED = {
    "fields.jsonl": ('{"prompt": "p", "mine": 1}', "has no generations .*--answer_fie"),
    "empty.jsonl": ("", "line 1: the file is empty"),
    "lines.jsonl": ("a\nb", "line 1: is not JSON"),
    "labels.txt": ("a\nb", "expected a file ending in .jsonl"),
    "absent.jsonl": (None, "there is no such file"),
    "broken.json": ("[", "cannot be read as JSON"),
    "*.parquet": (None, "matches no file"),
}


@pytest.mark.parametrize("name", BLAMED)
@pytest.mark.parametrize("first", [True, False])
def test_the_file_that_is_not_of_records_is_blamed(name, first):
    content, words = BLAMED[name]
    write("good.jsonl", CONTENTS["m.jsonl"])
    if content is not None:
        write(name, content)
    blamed = f"^{re.escape(name)}: is no file of records, as good.jsonl is: .*{words}"
    with pytest.raises(ValueError, match=blamed):
        models_of(*(["good.jsonl", name] if first else [name, "good.jsonl"]))


def test_the_file_of_a_pattern_that_is_not_of_records_is_named():
    for name, content in (("a", CONTENTS["m.jsonl"]), ("odd", '{"id": 1}')):
        write(f"{name}.jsonl", content)
    assert misfit("*.jsonl").startswith("odd.jsonl: has no prompt and no answer of usual names")
    for missing in ("absent.jsonl", "x*.jsonl"):
        with pytest.raises(ValueError, match="there is no such file|matches no file") as error:
            inputs._read_outputs(verbs.Score(), inputs.Model("texts", missing), None)
        assert not hasattr(error.value, "__notes__")
    write("a.jsonl", "broken\n" + CONTENTS["m.jsonl"])
    assert not misfit("a.jsonl")
    with pytest.raises(TypeError, match=r"expected files, received dict\. Try cv\.evaluate\("):
        cv.read_records([{"prompt": "p", "answer": "a"}])


def test_a_file_of_texts_says_why_it_is_none_of_records():
    write("m.jsonl", {"prompt": "p", "mine": 1})
    with pytest.raises(ValueError, match="has no .*--answer_field") as error:
        inputs._read_outputs(verbs.Score(), inputs.Model("texts", "m.jsonl"), None)
    assert error.value.__notes__[0].startswith("As texts without prompts: has no column output")


def test_outputs_without_prompts_need_no_encoder_of_texts():
    np.save("x.npy", np.eye(3))
    models = models_of("x.npy", verb=verbs.Score)
    assert inputs._load_encoders(verbs.Score(), models, "embeddings") == {}


def test_prompts_of_records_that_have_ids_are_a_file_of_the_command():
    write("m.jsonl", {"task_id": "q", "completion": "a"})
    write("p.jsonl", {"task_id": "q", "prompt": "p"})
    given = verbs.Score(prompts="p.jsonl")
    held, described, _ = inputs._read_records(given, inputs.models_of(["m.jsonl"], given))
    assert held.prompts == {"m": ["p"]} and described["answers"]["m"]["n"] == 1
