"""Files as they come: packed, in other encodings, in folders, and the line that converts others."""

import gzip
import json
import pathlib
import re

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.base import files
from condvendi_jax.cli import inputs, verbs
from condvendi_jax.records import items

ROWS = [{"prompt": "p", "answer": text} for text in "abä"]
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
    path = pathlib.Path(name + suffix)
    path.write_bytes(encode(CONTENTS[name]))
    read = cv.read_records(path)
    assert [*read.answers.values()] == [["a", "b", "ä"]]
    assert not read.skipped
    assert items.read_texts(path).texts == ["a", "b", "ä"]
    lines = pathlib.Path(f"p.txt{suffix}")
    lines.write_bytes(encode("a\r\nä\n"))
    assert items.read_texts(lines).texts == ["a", "ä"]


def test_a_model_of_a_packed_file_has_the_name_before_both_endings():
    pathlib.Path("llama.jsonl.gz").write_bytes(gzip.compress(CONTENTS["m.jsonl"].encode()))
    assert [*cv.read_records("llama.jsonl.gz").answers] == ["llama"]


@pytest.mark.parametrize("mark", ";\t")
def test_the_separator_of_a_table_is_that_of_its_header(mark):
    content = f'prompt{mark}answer\np{mark}"a{mark} b"\np{mark}a, b'
    pathlib.Path("m.csv").write_text(content)
    assert cv.read_records("m.csv").answers == {"m": [f"a{mark} b", "a, b"]}


@pytest.mark.parametrize("cell", ["NA", "NaN", "nan", "<NA>"])
def test_cells_that_pandas_leaves_empty_hold_no_answer(cell):
    pathlib.Path("m.csv").write_text(f"{TABLE}\np,{cell}")
    with pytest.warns(UserWarning, match="line 5: 'answer' is empty"):
        assert cv.read_records("m.csv").answers == {"m": ["a", "b", "ä"]}


def test_a_missing_number_is_no_part_of_a_prompt():
    rows = [{"context": float("nan"), **row} for row in ROWS]
    pathlib.Path("m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert cv.read_records("m.jsonl").prompts == {"m": ["p"] * 3}


def _write_arrow(path, rows, *, as_file=False):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(rows)
    make = pyarrow.ipc.new_file if as_file else pyarrow.ipc.new_stream
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("wb") as stream, make(stream, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("as_file", [True, False])
def test_arrow_is_read_as_a_file_and_as_a_stream(folder, as_file):
    _write_arrow(folder / "m.arrow", ROWS, as_file=as_file)
    assert cv.read_records("m.arrow").answers == {"m": ["a", "b", "ä"]}
    assert items.read_texts("m.arrow").texts == ["a", "b", "ä"]
    (folder / "m.arrow").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="m.arrow: cannot be read as Arrow"):
        cv.read_records("m.arrow")


def test_a_data_set_of_hugging_face_is_one_model(folder):
    for k in range(2):
        _write_arrow(folder / f"set/data-{k:05}-of-00002.arrow", ROWS[k : k + 1])
    _write_arrow(folder / "set/cache-1.arrow", ROWS)
    for name in ("dataset_info", "state"):
        (folder / f"set/{name}.json").write_text("{}")
    assert cv.read_records("set").answers == {"set": ["a", "b"]}


CONVERSIONS = {  # An ending, what writes such a file, and the module that this needs.
    ".pt": ("torch", lambda torch, path, rows: torch.save(torch.tensor(rows), path)),
    ".h5": ("h5py", lambda h5py, path, rows: h5py.File(path, "w").create_dataset("x", data=rows)),
    ".mat": ("scipy.io", lambda scipy, path, rows: scipy.savemat(path, {"x": rows})),
    ".pkl": ("pickle", lambda pickle, path, rows: path.write_bytes(pickle.dumps(rows.tolist()))),
}


@pytest.mark.parametrize("ending", CONVERSIONS)
def test_the_error_of_another_file_gives_the_line_that_converts_it(folder, ending):
    module, write = CONVERSIONS[ending]
    rows, path = np.arange(6.0).reshape(3, 2), folder / f"x{ending}"
    write(pytest.importorskip(module), path, rows)
    for read in (files.read_array, items.read_texts, cv.read_records):
        with pytest.raises(ValueError, match="expected a file ending in .*Convert it: import") as e:
            read(path)
    exec(str(e.value).partition("Convert it: ")[2].partition("; this can run")[0])  # noqa: S102
    np.testing.assert_array_equal(files.read_array(folder / "x.npy"), rows)


def test_the_error_of_a_sheet_gives_the_line_that_converts_it(folder):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    pandas.DataFrame(ROWS).to_excel("m.xlsx", index=False)
    for read in (files.read_array, cv.read_records):
        with pytest.raises(ValueError, match="m.xlsx: expected .*Convert it: import") as e:
            read("m.xlsx")
    exec(str(e.value).partition("Convert it: ")[2])  # noqa: S102
    assert cv.read_records("m.csv").answers == {"m": ["a", "b", "ä"]}


@pytest.mark.parametrize("column", [None, "vector"])
def test_embeddings_in_parquet_are_saved_by_the_line_of_the_error(folder, column):
    pytest.importorskip("pyarrow.parquet")
    pandas = pytest.importorskip("pandas")
    vectors = np.arange(6.0).reshape(3, 2)
    pandas.DataFrame({"id": [0, 1, 2], "vector": list(vectors)}).to_parquet("m.parquet")
    with pytest.raises(ValueError, match="'vector' holds embeddings, save them as an array") as e:
        items.read_texts("m.parquet", column=column)
    exec(str(e.value).partition("as an array: ")[2])  # noqa: S102
    np.testing.assert_array_equal(np.load("x.npy"), vectors)


def _harness(task, k, model="x"):
    asked = {"arguments": {"gen_args_0": {"arg_0": f"{task} {k}", "arg_1": {}}}}
    return {"doc_id": k, "doc": {"q": "?"}, "resps": [[f"{model}{i}" for i in range(2)]]} | asked


def _results(folder, *models, tasks=("a", "b")):
    for model in models:
        for task in tasks:
            path = folder / model / f"samples_{task}_2025-01-01T10-00-00.123.jsonl"
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text("\n".join(json.dumps(_harness(task, k, model)) for k in range(3)))
        (folder / model / "results_1.json").write_text(json.dumps({"results": {"a": {"x": 1}}}))


WAYS = {
    "a folder of folders": ("results", {}),
    "folders": (["results/llama", "results/mistral"], {}),
    "a pattern of folders": ("results/*", {}),
    "patterns": (
        ["results/llama/samples_*", "results/mistral/samples_*"],
        {"names": {f"results/{m}/samples_*": m for m in ("llama", "mistral")}},
    ),
}


@pytest.mark.filterwarnings("ignore:. files hold no records")
@pytest.mark.parametrize("name", WAYS)
def test_results_of_models_and_tasks_are_read_in_one_call(folder, name):
    paths, more = WAYS[name]
    _results(folder / "results", "llama", "mistral")
    read = cv.read_records(paths, **more)
    assert {model: len(said) for model, said in read.answers.items()} == {
        "llama": 12,
        "mistral": 12,
    }
    counts = {task: (len(p), len({*p})) for task, p in read.by_task["mistral"].items()}
    assert counts == dict.fromkeys("ab", (6, 3))
    assert read.tasks["llama"] == ["a"] * 6 + ["b"] * 6
    counted = "a (6 answers, 3 prompts), b (6 answers, 3 prompts)"
    assert f"llama: answers of 2 files: {counted}" in read.notes


def test_files_of_a_folder_that_hold_no_records_are_named(folder):
    _results(folder / "results", "llama")
    (folder / "results/llama/.hidden.jsonl").write_text("{}")
    with pytest.warns(
        UserWarning, match="1 files hold no records, for example .*results_1.json: h"
    ):
        assert [*cv.read_records("results/llama").answers] == ["llama"]


def test_a_file_beside_a_folder_is_another_model(folder):
    _results(folder, "llama")
    (folder / "other").mkdir()
    (folder / "other/llama.jsonl").write_text(json.dumps(ROWS[0]))
    with pytest.warns(UserWarning, match="hold no records"):
        models = [*cv.read_records(["llama", "other/llama.jsonl"]).answers]
    assert models == ["llama", "other/llama.jsonl"]


@pytest.mark.parametrize("place", [".", "runs"])
def test_files_of_one_folder_that_answer_the_same_prompts_are_models_or_one(folder, place):
    (folder / place / "m").mkdir(exist_ok=True, parents=True)
    for name in ("one", "two"):
        rows = [{"prompt": f"p{k}", "answer": name} for k in range(2)]
        (folder / f"{place}/m/{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = pathlib.Path(place, "m")
    words = rf"{path}: its files one and two answer the same prompts.* {path}/\*.* m={path} or, in"
    for given in {path, pathlib.Path("m" if place == "." else place)}:
        with pytest.raises(ValueError, match=words):
            cv.read_records(given)
        read = cv.read_records(given, names={str(path): "m"})
        assert read.answers == {"m": ["one", "one", "two", "two"]}
    assert [*cv.read_records(f"{path}/*").answers] == ["one", "two"]


@pytest.mark.filterwarnings("ignore:. files hold no records")
def test_the_numbers_of_tasks_are_in_the_json(folder):
    _results(folder / "results", "llama", "mistral")
    given = verbs.Compare()
    _, described, _ = inputs._read_records(given, inputs.models_of(["results"], given))
    tasks = {task: {"n": 6, "prompts": 3} for task in "ab"}
    assert {name: of["tasks"] for name, of in described["answers"].items()} == {
        "llama": tasks,
        "mistral": tasks,
    }


def _models(*words, verb=verbs.Compare, **flags):
    return inputs.models_of(words, verb(**flags))


@pytest.mark.filterwarnings("ignore:. files hold no records")
def test_the_command_takes_patterns_folders_and_the_fields_in_them(folder):
    _results(folder / "results", "llama", "mistral")
    words = [f"{model}=results/{model}/samples_*.jsonl" for model in ("llama", "mistral")]
    assert {model.kind for model in _models(*words).values()} == {"records"}
    assert [model.kind for model in _models("results").values()] == ["records"]
    assert _models("results", answer_field="resps")["results"].kind == "records"
    (folder / "odd").mkdir()
    (folder / "odd/m.jsonl").write_text(json.dumps({"prompt": "p", "mine": 1}))
    assert _models("odd", answer_field="mine")["odd"].kind == "records"


BLAMED = {
    "fields.jsonl": (json.dumps({"prompt": "p", "mine": 1}), "has no generations .*--answer_fie"),
    "empty.jsonl": ("", "has no prompt and no answer"),
    "labels.txt": ("a\nb", "expected a file ending in .jsonl"),
    "absent.jsonl": (None, "there is no such file"),
    "broken.json": ("[", "cannot be read as JSON"),
    "*.parquet": (None, "matches no file"),
}


@pytest.mark.parametrize("name", BLAMED)
@pytest.mark.parametrize("first", [True, False])
def test_the_file_that_is_not_of_records_is_blamed(name, first):
    content, words = BLAMED[name]
    pathlib.Path("good.jsonl").write_text(CONTENTS["m.jsonl"])
    if content is not None:
        pathlib.Path(name).write_text(content)
    blamed = f"^{re.escape(name)}: is no file of records, as good.jsonl is: .*{words}"
    with pytest.raises(ValueError, match=blamed):
        _models(*(["good.jsonl", name] if first else [name, "good.jsonl"]))


def test_outputs_without_prompts_need_no_encoder_of_texts(folder):
    np.save("x.npy", np.eye(3))
    given = verbs.Score()
    models = inputs.models_of(["x.npy"], given)
    assert inputs._load_encoders(given, models, "embeddings") == {}


def test_a_file_of_texts_says_why_it_is_none_of_records():
    pathlib.Path("m.jsonl").write_text(json.dumps({"prompt": "p", "mine": 1}))
    table = inputs.Model("texts", "m.jsonl")
    with pytest.raises(ValueError, match="has no .*--answer_field") as error:
        inputs._read_outputs(verbs.Score(), table, None)
    assert error.value.__notes__[0].startswith("As texts without prompts: has no column output")


def test_prompts_of_records_that_have_ids_are_a_file_of_the_command(folder):
    for name, rows in (
        ("m.jsonl", [{"task_id": "q", "completion": "a"}]),
        ("p.jsonl", [{"task_id": "q", "prompt": "p"}]),
    ):
        (folder / name).write_text("\n".join(map(json.dumps, rows)))
    given = verbs.Score(prompts="p.jsonl")
    held, described, _ = inputs._read_records(given, inputs.models_of(["m.jsonl"], given))
    assert held.prompts == {"m": ["p"]} and described["answers"]["m"]["n"] == 1
