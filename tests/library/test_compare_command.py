"""`condvendi compare` as a user calls it, in process."""

import csv
import functools
import html
import json
import pathlib
import sys

import fake_encoders
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.cli import __main__, inputs, verbs

N = 60
RNG = np.random.default_rng(0)
PROMPTS = np.repeat(RNG.normal(size=(20, 2)), 3, axis=0).astype(np.float32)
MODELS = {
    name: (PROMPTS + spread * RNG.normal(size=PROMPTS.shape)).astype(np.float32)
    for name, spread in {"few": 0.3, "some": 0.4, "many": 1.5}.items()
}
GIVEN = ("--output_bandwidth=2", "--prompt_bandwidth=1.5", "--order=2")
KERNELS = {"output_kernel": cv.Gaussian(2.0), "prompt_kernel": cv.Gaussian(1.5)}
FILES = ("few.npy", "some.npy", "many.npy")


@pytest.fixture(scope="module")
def files_of_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, outputs in MODELS.items():
        np.save(folder / f"{name}.npy", outputs)
    np.save(folder / "t.npy", PROMPTS)
    np.save(folder / "five.npy", PROMPTS[:5])
    np.savez(folder / "all.npz", few=MODELS["few"], prompts=PROMPTS)
    (folder / "labels.txt").write_text("\n".join(f"group {k % 5}" for k in range(N)))
    return folder


@pytest.fixture
def folder(files_of_models, monkeypatch):
    monkeypatch.chdir(files_of_models)
    return files_of_models


@pytest.fixture
def compare(folder, run_command):
    return functools.partial(run_command, "compare")


def _same(rankings, expected):
    for got, wanted in zip(rankings, expected.rankings, strict=True):
        assert (got["score"], got["letters"]) == (wanted.score, wanted.letters)
        assert got["values"] == pytest.approx(wanted.values, rel=1e-6)
        assert got["standard_errors"] == pytest.approx(wanted.standard_errors, rel=1e-4)


def test_models_of_shared_prompts(compare):
    report, out = compare(*FILES, "--prompts=t.npy", *GIVEN, "--seed=3")
    expected = cv.compare(MODELS, PROMPTS, **KERNELS, orders=[2], seed=3)
    _same(report["rankings"], expected)
    assert out == f"{expected.details()}\n"
    assert (report["matched"], report["seed"]) == ("rows", 3)
    models = dict(zip(MODELS, FILES, strict=True))
    assert report["inputs"] == {"models": models, "prompts": "t.npy"}
    assert report["kernel"] == "gaussian"
    assert report["provenance"]["versions"]["condvendi_jax"]
    assert report["seconds"] > 0


def test_a_plan_is_printed_and_written(folder, run_command):
    flags = ("--prompts=t.npy", *GIVEN, "--ratio=1.5", "--prompt_cost=2")
    flags += ("--most_prompts=50", "--level=0.1", "--equal_ratio=2")
    report, out = run_command("plan", *FILES, *flags)
    options = {"orders": [2], "level": 0.1, "equal_ratio": 2}
    pilot = cv.compare(MODELS, PROMPTS, **KERNELS, **options)
    planned = cv.plan(pilot, ratio=1.5, prompt_cost=2, prompts=50)
    assert out.endswith(f"\n\n{planned}\n") and "equal within 2x" in out
    assert report["plan"]["best"] == pytest.approx(planned.best._asdict())
    with pytest.raises(ValueError, match="quality_field: has no effect on a plan"):
        __main__.main(["", "plan", *FILES, "--quality_field=a", "--at_least=1"])
    flags = ("--budget=900", "--prompt_cost=6")
    report, _ = run_command("plan", "few.npy", "--prompts=t.npy", *GIVEN, *flags)
    assert report["plan"]["best"]["prompts"] == 100


def test_weights_of_all_models(compare, folder):
    weights = np.arange(N) % 5 + 0.5
    np.save(folder / "w.npy", weights)
    report, _ = compare("few.npy", "many.npy", "--prompts=t.npy", *GIVEN, "--weights=w.npy")
    models = {name: MODELS[name] for name in ("few", "many")}
    _same(report["rankings"], cv.compare(models, PROMPTS, **KERNELS, orders=[2], weights=weights))


def test_names_keys_and_the_home_folder(compare, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    keys = ("--outputs_key=few", "--prompts_key=prompts")
    report, _ = compare("a=~/all.npz", "b=all.npz", "--prompts=~/all.npz", *keys, *GIVEN)
    assert report["inputs"]["models"] == {"a": "~/all.npz", "b": "all.npz"}
    for ranking in report["rankings"]:
        assert ranking["values"]["a"] == ranking["values"]["b"]
        assert ranking["saturated"] == "equal"


def test_what_the_flags_mean_to_the_library(compare):
    options = ["--kernel=cosine", "--order=1,inf", "--truncation=2", "--x64", "--level=0.3"]
    report, out = compare(*FILES, "--prompts=t.npy", *options, "--groups_file=labels.txt")
    assert (report["dtype"], report["level"]) == ("float64", 0.3)
    assert [(by["groups"], by["units"]) for by in report["errors_by"]] == [(5, "given labels")] * 2
    assert report["matched"] == "labels" and "matched by the labels of their groups" in out
    cosine = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine()}
    wanted = {"orders": [1, np.inf], "truncation": 2, "groups": np.arange(N) % 5, "level": 0.3}
    expected = cv.compare(MODELS, PROMPTS, **cosine, **wanted)
    _same(report["rankings"], expected)
    assert report["rankings"][0]["truncation"] == 2
    assert report["rankings"][-1]["order"] == "inf"


def test_tables_and_a_figure_are_written(compare, folder):
    targets = ("--csv=scores.csv", "--csv_pairs=pairs.csv", "--profile=over.svg")
    report, out = compare(*FILES, "--prompts=t.npy", *GIVEN, *targets)
    rows, pairs = (
        list(csv.DictReader((folder / name).read_text().splitlines()))
        for name in ("scores.csv", "pairs.csv")
    )
    found = {(row["score"], row["model"]): float(row["value"]) for row in rows}
    assert {"overlap", "conditional"} <= {row["score"] for row in pairs}
    for ranking in report["rankings"]:
        for model, value in ranking["values"].items():
            assert found[ranking["score"], model] == value
    over = cv.profile(MODELS, PROMPTS, **KERNELS)
    assert report["profile"]["curves"]["vendi"].keys() == MODELS.keys()
    signs = [pair["signs"] for pair in report["profile"]["pairs"]]
    assert signs == [pair.signs.tolist() for pair in over.pairs]
    assert "is more diverse than few at bandwidths from" in out
    assert "<svg" in (folder / "over.svg").read_text()


def test_files_that_exist_are_kept(folder):
    options = (*FILES, "--output_bandwidth=2", "--order=2")
    for flag, end in {"csv": "csv", "latex": "tex", "profile": "png", "json": "json"}.items():
        name = f"a.{end}"
        (folder / name).write_text("mine")
        with pytest.raises(ValueError, match=rf"--{flag}: {name} exists"):
            __main__.main(["", "compare", *options, f"--{flag}={name}"])
        assert (folder / name).read_text() == "mine"


TEXT = ("--text_encoder=fake_encoders:Means", "--cache=cache")


def test_texts_are_compared_as_score_scores_them(compare, folder):
    questions, letters = ("one", "two more", "and three"), {"a": "xyz", "b": "pqr"}
    answers = {n: [letter * (k + 1) for k, letter in enumerate(of)] for n, of in letters.items()}
    for name, texts in answers.items():
        lines = [{"question": q, "text": x} for q, x in zip(questions, texts, strict=True)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "questions.txt").write_text("\n".join(questions) + "\n")
    embeddings = {name: fake_encoders.Means().encode(rows) for name, rows in answers.items()}
    prompts = fake_encoders.Means().encode(questions)
    options = (*TEXT, "--order=2", "--output_bandwidth=99", "--prompt_bandwidth=90")
    kernels = {"output_kernel": cv.Gaussian(99.0), "prompt_kernel": cv.Gaussian(90.0)}
    expected = cv.compare(embeddings, prompts, **kernels, orders=[2])
    shared, out = compare("a.jsonl", "b.jsonl", "--prompts=questions.txt", *options)
    _same(shared["rankings"], expected)
    assert "texts (column 'text') embedded by means; prompts embedded by means\n" in out
    assert "outputs paired with prompts by order\n" in out
    own, _ = compare("a.jsonl", "b.jsonl", "--prompts=a.jsonl,b.jsonl", *options)
    for got, wanted in zip(own["rankings"], shared["rankings"], strict=True):
        assert got["values"] == pytest.approx(wanted["values"], rel=1e-6)
    paths = {"a": "a.jsonl", "b": "b.jsonl"}
    columns = {"text_column": "text", "prompt_column": "question", "paired_by": "order"}
    encoder = {"text_encoder": "means", "text_encoder_path": "fake_encoders:Means"}
    assert own["inputs"] == {"models": paths, "prompts": paths} | columns | encoder
    (folder / "b.txt").write_text("\n".join(answers["b"]) + "\n")
    some, _ = compare("a.jsonl", "b.txt", "--prompts=questions.txt", *options)
    assert some["inputs"]["text_column"] == {"a": "text"}  # The other has no column.


def test_flags_of_comparisons_reach_the_calls_of_the_library(folder, monkeypatch):
    calls = []
    for name in ("compare", "with_texts"):
        record = lambda *_, **settings: calls.append(settings)  # noqa: E731
        monkeypatch.setattr(verbs.comparisons, name, record)
    given = verbs.Compare(
        prompts="t.npy", order=(2.0,), level=0.1, equal_ratio=1.3, one_population=True, profile="p"
    )
    verbs.read_and_compare(["few.npy", "many.npy"], given)
    flags = {"level": 0.1, "equal_ratio": 1.3, "one_population": True, "profile": True}
    assert flags.items() <= calls[0].items()
    assert calls[1] == {"one_population": True}
    verbs.read_and_compare(["few.npy", "many.npy"], verbs.Compare(prompts="t.npy", order=(2.0,)))
    assert calls[2]["profile"] is None and calls[3] == {"one_population": False}


REFUSALS = ["I'm sorry, but I cannot help with that.", "As an AI model, I have no opinions."]


@pytest.mark.slow
def test_refusals_are_said_and_without_them_another_model_leads(run_command, tmp_path, monkeypatch):
    """Of 28 pairs of answers, of four ideas twice 4 are alike; of three and two refusals 3.

    So 28 / 4 = 7 and 28 / 3; without the refusals 15 / 3 = 5.
    """
    monkeypatch.chdir(tmp_path)
    prompts = [f"a gift for {who}" for who in range(40)]
    models = {
        name: [[f"{idea} {p[2:]} {j}" for idea in ideas for j in (1, 2)] + more for p in prompts]
        for name, ideas, more in (("answers", "abcd", []), ("refuses", "abc", REFUSALS))
    }
    for name, answers in models.items():
        lines = [{"prompt": p, "answers": of} for p, of in zip(prompts, answers, strict=True)]
        pathlib.Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = {"encoder": fake_encoders.Ideas(), "output_kernel": cv.Gaussian(0.3), "orders": [2]}
    with pytest.warns(UserWarning, match="refuses: 80 of 320 repeat a text"):
        found = cv.compare(models, prompts, **options, profile=False)
    values = {"refuses": 28 / 3, "answers": 7.0}
    assert found.ranking("conditional", 2).values == pytest.approx(values, rel=5e-3)
    flat = {name: [text for of in answers for text in of] for name, answers in models.items()}
    of_rows = [prompt for prompt in prompts for _ in range(8)]
    with pytest.warns(UserWarning, match="refuses: 80 of 320 repeat a text"):
        assert cv.compare(flat, of_rows, **options, profile=False).advice == found.advice
    (advice,) = found.advice
    doubt = "80 of 320 repeat a text that answers many prompts, for example \"I'm sorry,"
    ranked = "Without the 80 rows of 2 texts that answer many prompts: answers, refuses"
    ranked += " (no significant difference)"
    assert advice.evidence.startswith(f"refuses: {doubt}") and str(advice).endswith(f". {ranked}")
    assert str(advice) in str(found) and "Conditional-RKE: refuses" in str(found)
    assert cv.evaluate(models["answers"], prompts, **options).advice == ()
    with pytest.warns(UserWarning, match="80 of 320 repeat a text"):
        alone = cv.evaluate(models["refuses"], prompts, **options)
    assert alone.advice[0].evidence.startswith(doubt) and ranked not in str(alone)
    words = ("--text_encoder=fake_encoders:Ideas", "--output_bandwidth=0.3", "--order=2")
    files = ("answers.jsonl", "refuses.jsonl")
    with pytest.warns(UserWarning, match="may not be what a model said"):
        read, _ = run_command("compare", *files, *words)
        scored, _ = run_command("score", files[1], *words)
    assert read["advice"] == found.as_dict()["advice"]
    cv.report.html(found, "t.html")
    assert str(advice) in html.unescape(pathlib.Path("t.html").read_text())
    assert ranked in cv.report.latex(found, long=True).paragraph
    assert scored["advice"] == alone.as_dict()["advice"]


def test_pictures_of_prompts_are_paired_by_their_names_or_folders(folder, capfd, monkeypatch):
    """Both models have four pictures a prompt, in other orders; the second lack one."""
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(folder)
    colours = {"0": "red", "1": "lime", "2": "blue"}
    for model, name in (("flat", "{k}_{j}.png"), ("deep", "p{k}/{j}.png")):
        for k, colour in colours.items():
            for j in range(4 if model == "flat" or k != "1" else 3):
                path = folder / model / name.format(k=k, j=j)
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (4, 4), colour).save(path)
    (folder / "ids.csv").write_text("id,prompt\n2,c\n0,a\n1,b\n")
    words = ("flat", "deep", "--prompts=ids.csv", "--image_encoder=fake_encoders:Means", *TEXT)
    with pytest.raises(ValueError, match="disagree. If .* name it with --image_column"):
        __main__.main(["condvendi", "compare", *words])
    words += ("--image_column=id",)
    words += ("--order=2", "--output_bandwidth=30", "--cache=cache")
    __main__.main(["condvendi", "compare", *words, "--json=paired.json", "--overwrite"])
    err = capfd.readouterr().err
    assert (
        "note: outputs paired with prompts by the column 'id' at the start of the names of" in err
    )
    assert "of the pictures, 4 pictures a prompt (flat)" in err
    assert "at the start of the names of the folders, 3 to 4 pictures a prompt (deep)" in err
    report = json.loads((folder / "paired.json").read_text())
    assert report["n"] == {"flat": 12, "deep": 11}
    (found,) = (ranking for ranking in report["rankings"] if ranking["score"] == "conditional")
    for value in found["plug_in"].values():  # One colour a prompt, whatever the order of the files.
        assert value == pytest.approx(1, abs=1e-3)


def _paths(*words):
    models = inputs.models_of(words, verbs.Compare())
    return {name: model.path for name, model in models.items()}


def test_models_whose_files_share_a_name_are_called_by_their_paths():
    paths = ("x.npy", "m1/emb.npy", "./m2/emb.npy")
    names = ("x.npy", "m1/emb.npy", "m2/emb.npy")
    assert _paths(*paths) == dict(zip(names, paths, strict=True))


def test_a_file_that_exists_is_no_name(folder, compare):
    (folder / "eq=al.npy").write_bytes((folder / "some.npy").read_bytes())
    (folder / "p,q.npy").write_bytes((folder / "t.npy").read_bytes())
    report, _ = compare("eq=al.npy", "few.npy", "--prompts=p,q.npy", *GIVEN)
    assert report["inputs"]["models"] == {"eq=al": "eq=al.npy", "few": "few.npy"}
    assert report["inputs"]["prompts"] == "p,q.npy"
    assert _paths("./eq=al.npy", "a=eq=al.npy") == {"eq=al": "./eq=al.npy", "a": "eq=al.npy"}


def _write_records(folder, path, answers, **more):
    records = [
        {"prompt": f"p{k}", "answers": [answer * (k + 1) for answer in answers], **more}
        for k in range(4)
    ]
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text("".join(f"{json.dumps(record)}\n" for record in records))


@pytest.mark.slow
def test_records_get_the_names_that_are_given_in_every_verb(folder, compare, run_command, capfd):
    _write_records(folder, "r/same.jsonl", ("a", "bb"), model="inside")
    _write_records(folder, "s/same.jsonl", ("c", "c"))
    words = ("one=r/same.jsonl", "two=s/same.jsonl")
    options = ("--order=2", "--output_bandwidth=1", "--cache=cache", *TEXT)
    report, _ = compare(*words, *options)
    assert list(report["n"]) == ["one", "two"]
    page = ("--output=named.html", "--overwrite")
    __main__.main(["condvendi", "report", *words, *page, *options])
    assert "one" in capfd.readouterr().out
    one, _ = run_command("score", words[0], *options)
    assert one["n"] == 8
    __main__.main(["condvendi", "compare", "r/same.jsonl", "s/same.jsonl", *options])
    assert "note: files share a name, so paths name models: for others write a=r/same.jsonl" in (
        capfd.readouterr().err
    )


def test_names_of_records_are_not_mixed_up(folder):
    _write_records(folder, "r/x.jsonl", "ab", model="x")
    _write_records(folder, "r/y.jsonl", "cd", model="y")
    both = (folder / "r/x.jsonl").read_text() + (folder / "r/y.jsonl").read_text()
    (folder / "r/both.jsonl").write_text(both)
    for words, message in (
        (("z=r/both.jsonl", "r/x.jsonl", *TEXT), "holds answers of x, y, which are not all 'z'"),
        (("x=r/x.jsonl", "x=r/y.jsonl"), "'x' names both r/x.jsonl and r/y.jsonl"),
        (("r/x.jsonl", "labels.txt"), "labels.txt: is no file of records, as r/x.jsonl is: exp"),
        (("r/x.jsonl", "--prompts=labels.txt", *TEXT), "It holds prompts with their answers"),
        (("absent", "few.npy"), "absent: there is no such file or folder"),
    ):
        with pytest.raises(ValueError) as caught:
            __main__.main(["condvendi", "compare", *words])
        assert message in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_what_is_missing_is_named_before_anything_is_read(folder, monkeypatch):
    words = ("labels.txt", "absent.txt", "--prompts=absent.csv", "--text_encoder=no_such:Encoder")
    with pytest.raises(ValueError, match="no_such:Encoder: cannot be imported"):
        __main__.main(["condvendi", "compare", *words])
    for name in ("one", "two"):
        (folder / name).mkdir()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match="decoding pictures needs Pillow"):
        __main__.main(["condvendi", "compare", "one", "two", "--prompts=absent.csv"])


BAD_INPUTS = {
    "prompts of too few models": (
        (*FILES, "--prompts=t.npy,five.npy"),
        "--prompts: expected one file, or one for each of 3 models, received 't.npy,five.npy'",
    ),
    "outputs of two kinds": (
        ("few.npy", "labels.txt"),
        "expected outputs of one kind, received embeddings of few (few.npy) and texts of labels",
    ),
    "prompts of two kinds": (
        (*FILES[:2], "--prompts=t.npy,labels.txt"),
        "--prompts: expected texts for all models, or embeddings for all",
    ),
    "no model": ((), "expected models, each a file or"),
    "one stem twice": (("few.npy",) * 2, "'few.npy' names both few.npy and few.npy; give names"),
    "no path": (("few=", "some.npy"), "'few=': expected a path, or name=path"),
    "level": ((*FILES, "--output_bandwidth=1", "--level=1.5"), "--level: expected a number"),
    "a profile of words": ((*FILES, "--profile=over.txt"), "--profile: expected a file ending in"),
    "a flag of score": ((*FILES, "--errors=all"), "errors"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_gets_one_clear_line(folder, capfd, name):
    arguments, message = BAD_INPUTS[name]
    with pytest.raises((ValueError, OSError)) as error:
        __main__.main(["condvendi", "compare", *arguments])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_models_that_no_two_outputs_tell_apart_are_not_tested():
    """Three different answers to each of eight prompts: no two count as the same."""
    outputs, prompts = np.arange(24)[:, None], np.repeat(np.arange(8), 3)[:, None]
    exact = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    with pytest.warns(UserWarning, match="numerically the identity"):
        found = cv.compare({"a": outputs, "b": outputs + 50}, prompts, **exact, orders=[2])
    assert [r.saturated for r in found.rankings] == ["largest", "largest", None]
    assert found.reason is None and found.rankings[2].reasons
    assert "3 outputs cannot tell a and b apart" in str(found)
    assert np.isnan([d.p_value for r in found.rankings for d in r.differences]).all()
