"""`condvendi compare` and `plan` as a user calls them, in process."""

import functools
import html
import itertools
import json
import pathlib
import sys

import fake_encoders
import numpy as np
import pytest
from processes import write_lines, written

import condvendi_jax as cv
from condvendi_jax.cli import __main__, inputs, verbs

N = 60
RNG = np.random.default_rng(0)
PROMPTS = np.repeat(RNG.normal(size=(20, 2)), 3, axis=0).astype(np.float32)
MODELS = {
    name: (PROMPTS + spread * RNG.normal(size=PROMPTS.shape)).astype(np.float32)
    for name, spread in {"few": 0.3, "some": 0.4, "many": 1.5}.items()
}
FILES = ("few.npy", "some.npy", "many.npy")
T = "--prompts=t.npy"
GIVEN = ("--output_bandwidth=2", "--prompt_bandwidth=1.5", "--order=2")
KERNELS = {"output_kernel": cv.Gaussian(2.0), "prompt_kernel": cv.Gaussian(1.5), "orders": [2]}
WEIGHTS = np.arange(N) % 5 + 0.5
TEXT = ("--text_encoder=fake_encoders:Means", "--cache=cache")


@pytest.fixture(scope="module")
def files_of_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, array in {**MODELS, "t": PROMPTS, "w": WEIGHTS}.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "all.npz", few=MODELS["few"], prompts=PROMPTS)
    (folder / "labels.txt").write_text("\n".join(f"group {k % 5}" for k in range(N)))
    for path, answers, more in (
        ("r/same.jsonl", ("a", "bb"), {"model": "inside"}),
        ("s/same.jsonl", ("c", "dd"), {}),
        ("r/x.jsonl", "ab", {"model": "x"}),
        ("r/y.jsonl", "cd", {"model": "y"}),
    ):
        said = ([answer * k for answer in answers] for k in range(1, 5))
        records = [{"prompt": f"p{k}", "answers": row, **more} for k, row in enumerate(said)]
        write_lines(folder / path, records)
    both = (folder / "r/x.jsonl").read_text() + (folder / "r/y.jsonl").read_text()
    (folder / "r/both.jsonl").write_text(both)
    return folder


@pytest.fixture
def folder(files_of_models, monkeypatch):
    monkeypatch.chdir(files_of_models)
    return files_of_models


@pytest.fixture
def compare(folder, run_command):
    return functools.partial(run_command, "compare")


COSINE = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine(), "level": 0.3}
CALLS = {  # Flags, and the call of `compare` that they stand for.
    "--seed=3": {**KERNELS, "seed": 3},
    "--weights=w.npy": {**KERNELS, "weights": WEIGHTS},
    "--kernel=cosine --order=1,inf --truncation=2 --x64 --level=0.3 --groups_file=labels.txt": {
        **COSINE,
        **{"orders": [1, np.inf], "truncation": 2, "groups": np.arange(N) % 5},
    },
}


@pytest.mark.parametrize("words", CALLS)
def test_flags_mean_arguments_of_the_call(compare, words):
    options = words.split() if "cosine" in words else [*words.split(), *GIVEN]
    report, out = compare(*FILES, T, *options)
    expected = cv.compare(MODELS, PROMPTS, **CALLS[words])
    assert written(expected).items() <= report.items()
    assert out == f"{expected.details()}\n"
    models = dict(zip(MODELS, FILES, strict=True))
    assert report["inputs"].items() >= {"models": models, "prompts": "t.npy"}.items()
    assert report["provenance"]["versions"]["condvendi_jax"] and report["seconds"] > 0


def test_flags_of_comparisons_reach_the_calls_of_the_library(folder, monkeypatch):
    calls = []
    for name in ("compare", "with_texts"):
        record = lambda *_, **settings: calls.append(settings)  # noqa: E731
        monkeypatch.setattr(verbs.comparisons, name, record)
    flags = {"level": 0.1, "equal_ratio": 1.3, "one_population": True}
    for given in (flags | {"profile": "p"}, {}):
        options = verbs.Compare(prompts="t.npy", order=(2.0,), **given)
        verbs.read_and_compare(["few.npy", "many.npy"], options)
    assert (flags | {"profile": True}).items() <= calls[0].items()
    assert calls[1] == {"one_population": True}
    assert calls[2]["profile"] is None and calls[3] == {"one_population": False}


def test_a_plan_is_printed_and_written(run_command, folder):
    flags = (*GIVEN, "--ratio=1.5", "--prompt_cost=2", "--most_prompts=10")
    report, out = run_command("plan", *FILES, T, *flags, "--level=0.1", "--equal_ratio=2")
    pilot = cv.compare(MODELS, PROMPTS, **KERNELS, level=0.1, equal_ratio=2)
    planned = cv.plan(pilot, ratio=1.5, prompt_cost=2, prompts=10)
    assert out.endswith(f"\n\n{planned}\n") and "equal within 2x" in out
    assert report["plan"] == written(planned)
    report, _ = run_command("plan", "few.npy", T, *GIVEN, "--budget=900", "--prompt_cost=6")
    assert report["plan"]["best"]["prompts"] == 100


def test_tables_and_a_figure_are_written(compare, folder):
    targets = ("--csv=scores.csv", "--csv_pairs=pairs.csv", "--profile=over.svg")
    report, _ = compare(*FILES, T, *GIVEN, *targets)
    expected = cv.compare(MODELS, PROMPTS, **KERNELS, profile=True)
    assert (folder / "scores.csv").read_text() == expected.comma_separated()
    assert (folder / "pairs.csv").read_text() == expected.comma_separated("pairs")
    assert report["profile"] == written(expected.profile)
    assert "<svg" in (folder / "over.svg").read_text()


def test_files_that_exist_are_kept(folder):
    options = (*FILES, "--output_bandwidth=2", "--order=2")
    for flag, end in {"csv": "csv", "latex": "tex", "profile": "png", "json": "json"}.items():
        name = f"a.{end}"
        (folder / name).write_text("mine")
        with pytest.raises(ValueError, match=rf"--{flag}: {name} exists"):
            __main__.main(["", "compare", *options, f"--{flag}={name}"])
        assert (folder / name).read_text() == "mine"
    (folder / "rec-many.json").write_text("mine")  # The record of one model.
    (folder / "rec-x.json").write_bytes((folder / "r/x.jsonl").read_bytes())
    read = ("rec-x.json", "r/y.jsonl", "--similarity=exact", "--overwrite")
    for words, message in {
        options: r"--record of many: rec-many.json exists",
        read: r"would replace rec-x.json, which the model rec-x.json reads",
    }.items():
        with pytest.raises(ValueError, match=message):
            __main__.main(["", "compare", *words, "--record=rec.json", "--csv=new.csv"])
        assert not (folder / "new.csv").exists()


def test_texts_are_compared_as_score_scores_them(compare, folder):
    questions, letters = ("one", "two more", "and three"), {"a": "xyz", "b": "pqr"}
    answers = {n: [x * (k + 1) for k, x in enumerate(of)] for n, of in letters.items()}
    for name, texts in answers.items():
        rows = zip(questions, texts, strict=True)
        write_lines(folder / f"{name}.jsonl", [{"question": q, "text": x} for q, x in rows])
    (folder / "questions.txt").write_text("\n".join(questions) + "\n")
    (folder / "b.txt").write_text("\n".join(answers["b"]) + "\n")
    options = (*TEXT, "--order=2", "--output_bandwidth=99", "--prompt_bandwidth=90")
    kernels = {"output_kernel": cv.Gaussian(99.0), "prompt_kernel": cv.Gaussian(90.0)}
    expected = cv.compare(
        answers, [*questions], encoder=fake_encoders.Means(), **kernels, orders=[2]
    )
    shared, out = compare("a.jsonl", "b.jsonl", "--prompts=questions.txt", *options)
    assert shared["rankings"] == written(expected)["rankings"]
    assert "texts (column 'text') embedded by means; prompts embedded by means\n" in out
    assert "outputs paired with prompts by order\n" in out
    own, _ = compare("a.jsonl", "b.jsonl", "--prompts=a.jsonl,b.jsonl", *options)
    assert own["rankings"] == shared["rankings"]
    paths = {"a": "a.jsonl", "b": "b.jsonl"}
    columns = {"text_column": "text", "prompt_column": "question", "paired_by": "order"}
    encoder = {"text_encoder": "means", "text_encoder_path": "fake_encoders:Means"}
    assert own["inputs"] == {"models": paths, "prompts": paths} | columns | encoder
    some, _ = compare("a.jsonl", "b.txt", "--prompts=questions.txt", *options)
    assert some["inputs"]["text_column"] == {"a": "text"}  # The other has no column.


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
        rows = zip(prompts, answers, strict=True)
        write_lines(tmp_path / f"{name}.jsonl", [{"prompt": p, "answers": a} for p, a in rows])
    options = {"encoder": fake_encoders.Ideas(), "output_kernel": cv.Gaussian(0.3), "orders": [2]}
    doubt = "80 of 320 repeat a text that answers many prompts, for example \"I'm sorry,"
    with pytest.warns(UserWarning, match="80 of 320 repeat a text"):
        found = cv.compare(models, prompts, **options, profile=False)
        alone = cv.evaluate(models["refuses"], prompts, **options)
    assert found.ranking("conditional", 2).values == pytest.approx(
        {"refuses": 28 / 3, "answers": 7.0}, rel=5e-3
    )
    (advice,) = found.advice
    ranked = "Without the 80 rows of 2 texts that answer many prompts: answers, refuses"
    ranked += " (no significant difference)"
    assert advice.evidence.startswith(f"refuses: {doubt}") and str(advice).endswith(f". {ranked}")
    assert str(advice) in str(found) and "Conditional-RKE: refuses" in str(found)
    assert cv.evaluate(models["answers"], prompts, **options).advice == ()
    assert alone.advice[0].evidence.startswith(doubt) and ranked not in str(alone)
    words = ("--text_encoder=fake_encoders:Ideas", "--output_bandwidth=0.3", "--order=2")
    with pytest.warns(UserWarning, match="may not be what a model said"):
        read, _ = run_command("compare", "answers.jsonl", "refuses.jsonl", *words)
        scored, _ = run_command("score", "refuses.jsonl", *words)
    assert read["advice"] == written(found)["advice"]
    assert scored["advice"] == written(alone)["advice"]
    cv.report.html(found, "t.html")
    assert str(advice) in html.unescape(pathlib.Path("t.html").read_text())
    assert ranked in cv.report.latex(found, long=True).paragraph


def test_pictures_of_prompts_are_paired_by_their_names_or_folders(folder, capfd):
    """Both models have four pictures a prompt, in other orders; the second lack one."""
    Image = pytest.importorskip("PIL.Image")
    for k, colour in enumerate(("red", "lime", "blue")):
        for j in range(4):
            for path in (f"flat/{k}_{j}.png", f"deep/p{k}/{j}.png"):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (4, 4), colour).save(folder / path)
    (folder / "deep/p1/3.png").unlink()
    (folder / "ids.csv").write_text("id,prompt\n2,c\n0,a\n1,b\n")
    words = ["flat", "deep", "--prompts=ids.csv", "--image_encoder=fake_encoders:Means", *TEXT]
    with pytest.raises(ValueError, match="disagree. If .* name it with --image_column"):
        __main__.main(["condvendi", "compare", *words])
    words += ["--image_column=id", "--order=2", "--output_bandwidth=30", "--json=paired.json"]
    __main__.main(["condvendi", "compare", *words])
    err, start = capfd.readouterr().err, "at the start of the names of"
    assert f"note: outputs paired with prompts by the column 'id' {start}" in err
    assert "of the pictures, 4 pictures a prompt (flat)" in err
    assert f"{start} the folders, 3 to 4 pictures a prompt (deep)" in err
    report = json.loads((folder / "paired.json").read_text())
    assert report["n"] == {"flat": 12, "deep": 11}
    (found,) = (ranking for ranking in report["rankings"] if ranking["score"] == "conditional")
    for value in found["plug_in"].values():  # One colour a prompt, whatever the order of the files.
        assert value == pytest.approx(1, abs=1e-3)


def test_folders_of_geneval_are_pictures_with_their_prompts(folder, run_command):
    Image = pytest.importorskip("PIL.Image")
    for model, (k, prompt) in itertools.product("mn", enumerate(("a bench", "a cow", "a cup"))):
        (place := folder / model / f"{k:05d}" / "samples").mkdir(parents=True)
        write_lines(place / "../metadata.jsonl", [{"tag": "counting", "prompt": prompt}])
        for j, colour in enumerate(("red", "lime", "blue")):
            Image.new("RGB", (4, 4), colour).save(place / f"{j:04d}.png")
    flags = ("--image_encoder=fake_encoders:Means", *TEXT, "--order=2", "--output_bandwidth=30")
    assert run_command("score", "m", *flags)[0]["distinct_prompts"] == 3
    assert run_command("compare", "m", "n", *flags)[0]["n"] == {"m": 9, "n": 9}


def _paths(*words):
    models = inputs.models_of(words, verbs.Compare())
    return {name: model.path for name, model in models.items()}


def test_models_have_the_names_that_are_given_or_those_of_their_files(compare, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    keys = ("--outputs_key=few", "--prompts_key=prompts")
    report, _ = compare("a=~/all.npz", "b=all.npz", "--prompts=~/all.npz", *keys, *GIVEN)
    assert report["inputs"]["models"] == {"a": "~/all.npz", "b": "all.npz"}
    assert {ranking["saturated"] for ranking in report["rankings"]} == {"equal"}
    (folder / "eq=al.npy").write_bytes((folder / "some.npy").read_bytes())
    (folder / "p,q.npy").write_bytes((folder / "t.npy").read_bytes())
    report, _ = compare("eq=al.npy", "few.npy", "--prompts=p,q.npy", *GIVEN)
    assert report["inputs"]["models"] == {"eq=al": "eq=al.npy", "few": "few.npy"}
    assert report["inputs"]["prompts"] == "p,q.npy"
    assert _paths("./eq=al.npy", "a=eq=al.npy") == {"eq=al": "./eq=al.npy", "a": "eq=al.npy"}
    paths = ("x.npy", "m1/emb.npy", "./m2/emb.npy")
    names = ("x.npy", "m1/emb.npy", "m2/emb.npy")  # Two files share a name.
    assert _paths(*paths) == dict(zip(names, paths, strict=True))


@pytest.mark.slow
def test_records_get_the_names_that_are_given_in_every_verb(compare, run_command, capfd):
    words = ("one=r/same.jsonl", "two=s/same.jsonl")
    options = ("--order=2", "--output_bandwidth=1", *TEXT)
    report, _ = compare(*words, *options)
    assert list(report["n"]) == ["one", "two"]
    __main__.main(["condvendi", "report", *words, "--output=named.html", *options])
    assert "one" in capfd.readouterr().out
    one, _ = run_command("score", words[0], *options)
    assert one["n"] == 8
    __main__.main(["condvendi", "compare", "r/same.jsonl", "s/same.jsonl", *options])
    note = "note: files share a name, so paths name models: for others write a=r/same.jsonl"
    assert note in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("z=r/both.jsonl", "r/x.jsonl", *TEXT), "holds answers of x, y, which are not all 'z'"),
        (("x=r/x.jsonl", "x=r/y.jsonl"), "'x' names both r/x.jsonl and r/y.jsonl"),
        (("r/x.jsonl", "labels.txt"), "labels.txt: is no file of records, as r/x.jsonl is: exp"),
        (("r/x.jsonl", "--prompts=labels.txt", *TEXT), "It holds prompts with their answers"),
        # Before anything is read.
        (
            ("labels.txt", "no.txt", "--prompts=no.csv", "--text_encoder=no:E"),
            "no:E: cannot be imp",
        ),
        (("r", "s", "--prompts=absent.csv"), "decoding pictures needs Pillow"),
    ],
)
def test_records_that_are_mixed_up_and_what_is_missing_are_named(
    folder, monkeypatch, words, message
):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError) as caught:
        __main__.main(["condvendi", "compare", *words])
    assert message in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
