"""`condvendi score` as a user calls it: in process, and as a command where the process matters."""

import contextlib
import functools
import json
import os
import subprocess
import sys

import fake_encoders
import jax
import numpy as np
import pytest
from oracles import draw_pairs
from processes import HANG_S, write_lines, written
from safetensors.numpy import save_file

import condvendi_jax as cv
from condvendi_jax import encoders
from condvendi_jax.base import programs
from condvendi_jax.base.result import comma_separated
from condvendi_jax.cli import __main__, command, flags, options
from condvendi_jax.cli.verbs import Score
from condvendi_jax.inference.evaluations import Keys

N = 60
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
PROMPTS = np.repeat(PROMPTS[::2], 2, axis=0)
COMMAND = (sys.executable, "-m", "condvendi_jax.cli")
ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # Where output is buffered, errors come late.
X, T = "x.npy", "--prompts=t.npy"
GIVEN = ("--output_bandwidth=0.8", "--prompt_bandwidth=0.6")
RULED = ("--order=2", "--rule=median")
WIDTH = "--output_bandwidth=1"


@pytest.fixture(scope="module")
def files_of_embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    np.save(folder / "x.npy", OUTPUTS)
    np.save(folder / "t.npy", PROMPTS)
    np.save(folder / "labels.npy", np.arange(N)[:, None] % 5)
    np.save(folder / "halves.npy", np.arange(N) % 4 / 2)
    (folder / "labels.txt").write_text("\n".join(f"group {k % 5}" for k in range(N)) + "\n")
    np.savez(folder / "t.npz", prompts=PROMPTS, labels=np.arange(N))
    save_file({"prompts": PROMPTS}, folder / "t.safetensors")
    (folder / "prompts.txt").write_text("a cat\na dog\nat last\n")
    (folder / "answers.txt").write_text("banana\nbread\nanother apple\n")
    (folder / "repeated.txt").write_text("a\nb\n" * (N // 2))
    (folder / "blank.txt").write_text("a\n\nb\n")
    weights = {"weights": [f"{k % 4}" for k in range(N)], "negative": ["1", "-0.5"]}
    weights |= {"words": ["1", "two"]}
    for name, lines in weights.items():
        (folder / f"{name}.txt").write_text("\n".join(lines))
    texts = zip("abc", ("banana", "bread", "another apple"), strict=True)
    write_lines(folder / "qa.jsonl", [{"question": q, "text": text} for q, text in texts])
    return folder


@pytest.fixture
def folder(files_of_embeddings, monkeypatch):
    monkeypatch.chdir(files_of_embeddings)
    return files_of_embeddings


@pytest.fixture
def score(folder, run_command):
    return functools.partial(run_command, "score")


def _started(folder, *arguments, command=COMMAND, **options):
    """Runs the command, or another one, as a separate process."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    options |= {"text": True, "timeout": HANG_S, "env": ENVIRONMENT}
    ended = subprocess.run([*command, *arguments], cwd=folder, **options)
    return ended.returncode, ended.stdout, [x for x in ended.stderr.splitlines() if x.strip()]


KERNELS = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.6)}
WEIGHTS = np.arange(N) % 4
PAIRED = {"prompts": PROMPTS, **KERNELS}
GROUPED = {**PAIRED, "groups": np.arange(N) % 5, "method": cv.Exact(), "truncation": 9}
WEIGHTED = {**PAIRED, "similar_prompts": True, "weights": WEIGHTS}
COSINE = {"output_kernel": cv.Cosine(), "orders": [1, 2, np.inf], "truncation": 2, "errors": False}
CALLS = {  # Words after `condvendi score x.npy`, and the call of `evaluate` that they stand for.
    "--prompts=t.npz --prompts_key=prompts": {**PAIRED, "orders": [2, 1]},
    f"{T} --groups_file=labels.npy --method=exact --truncation=9 --order=2": GROUPED,
    "--prompts=t.safetensors --similar_prompts --weights=weights.txt --order=2": WEIGHTED,
    "--weights=halves.npy --order=2": {"weights": WEIGHTS / 2},
    "--rule=std --seed=1 --order=2": {"rule": "std", "seed": 1},
    "--kernel=cosine --x64 --order=1,2,inf --truncation=2 --noerrors": COSINE,
}


@pytest.mark.parametrize("words", CALLS)
def test_flags_mean_arguments_of_the_call_and_a_report_names_its_inputs(score, words):
    report, out = score(X, *GIVEN * ("--prompts" in words), *words.split())
    expected = cv.evaluate(OUTPUTS, **{"orders": [2], **CALLS[words]})
    assert written(expected).items() <= report.items()
    assert out == f"{expected.details()}\n"
    given = dict(word.removeprefix("--").split("=") for word in words.split() if "=" in word)
    named = {name: given[name] for name in ("prompts", "prompts_key", "weights") if name in given}
    assert report["inputs"] == {"outputs": X} | named
    assert report["kernel"] == given.get("kernel", "gaussian")
    assert report["provenance"]["versions"]["condvendi_jax"] and report["seconds"] > 0
    assert set(report["provenance"]) >= {"device", "x64", "date", "platform", "python"}


def test_equal_prompts_are_equal_texts(score, folder):
    """The encoder gives both prompts one embedding; each has one answer, which it gives twice."""
    (folder / "anagrams.txt").write_text("no\nno\non\non\n")
    (folder / "repeated.txt").write_text("1\n1\n22\n22\n")
    words = ("repeated.txt", "--prompts=anagrams.txt", "--cache=cache", "--noerrors")
    words += ("--text_encoder=fake_encoders:Means", "--output_bandwidth=0.1", "--order=2")
    report, out = score(*words, "--equal_prompts")
    assert report["distinct_prompts"] == 2
    assert "bandwidth of prompts: none: one where rows are equal, else zero" in out
    assert report["scores"][0]["conditional"] == pytest.approx(1)
    assert report["scores"][0]["information"] == pytest.approx(2)


def test_tables_of_prompts_are_written_and_shown(score, folder):
    options = (X, T, *GIVEN, "--order=1,2", "--truncation=9", "--method=exact", "--noerrors")
    _, out = score(*options, "--weights=weights.txt", "--by_prompt=by_prompt.csv")
    pairs = cv.Pairs(OUTPUTS, PROMPTS, **KERNELS, weights=WEIGHTS)
    tables = [cv.prompt_table(pairs, order=order, truncation=9) for order in (1, 2)]
    lines = [line for table in tables for line in table.lines()]
    assert (folder / "by_prompt.csv").read_text() == comma_separated(lines)
    assert out.endswith(f"\n{tables[0]}\n\n{tables[1]}\n")


@pytest.mark.slow
def test_a_profile_is_drawn_printed_and_written(score, folder):
    options = (X, T, *GIVEN, "--order=2", "--noerrors", "--seed=3")
    report, out = score(*options, "--weights=weights.txt", "--profile=over.svg")
    over = cv.profile(OUTPUTS, PROMPTS, **KERNELS, weights=WEIGHTS, seed=3)
    assert out.endswith(f"\n\n{over}\n")
    assert report["profile"] == written(over)
    assert "<svg" in (folder / "over.svg").read_text()


def test_pictures_are_embedded_and_paired_by_name_or_by_order(score, folder):
    from PIL import Image

    (folder / "pictures").mkdir()
    for name, colour in {"1": "red", "2": "lime", "10": "blue"}.items():
        Image.new("RGB", (4, 4), colour).save(folder / "pictures" / f"{name}.png")
    words = ("pictures", "--image_encoder=fake_encoders:Means", "--cache=cache", *RULED)
    words += ("--text_encoder=fake_encoders:Means", "--prompts=named.csv")
    paired = {"image": "image column 'image'", "other": "order, 2.png before 10.png"}
    for column, names in {"image": ("10.png", "1", "./2.png"), "other": "xyz"}.items():
        rows = zip(names, ("sky", "a rose", "grass"), strict=True)
        content = f"{column},prompt\n" + "".join(f"{name},{text}\n" for name, text in rows)
        (folder / "named.csv").write_text(content)
        report, out = score(*words)
        assert report["scores"][0]["vendi"] == pytest.approx(3 / (1 + 2 / np.e), rel=1e-5)
        assert f"outputs paired with prompts by {paired[column]}\n" in out
        named = {"image_column": column} if column == "image" else {}
        paths = {"outputs": "pictures", "prompts": "named.csv", "prompt_column": "prompt"}
        names = {f"{kind}_encoder": "means" for kind in ("image", "text")}
        names |= {f"{kind}_encoder_path": "fake_encoders:Means" for kind in ("image", "text")}
        assert report["inputs"] == paths | named | names | {"paired_by": paired[column]}
    (folder / "pictures" / "metadata.csv").write_text("file_name,text\n1.png,sky\n")
    with pytest.warns(UserWarning, match=r"metadata.csv is not read; .* --prompts=pictures/meta"):
        score(*words[:3], *RULED)
    rows = "\n".join(f"{name}.png,a {name}" for name in (10, 1, 2))
    (folder / "pictures" / "metadata.csv").write_text(f"file_name,text\n{rows}")
    report, out = score(*words[:-1])
    assert "outputs paired with prompts by image column 'image'" in out
    assert report["inputs"]["prompt_column"] == "text"


def test_columns_and_the_default_encoder_are_named_and_told_of_long_texts(score, monkeypatch):
    monkeypatch.setattr(encoders, "load_minilm", fake_encoders.Others, raising=False)
    monkeypatch.setattr(fake_encoders.Others, "made_with", received := [])
    words = ("qa.jsonl", "--prompts=qa.jsonl", "--cache=cache", *RULED)
    for way in ((), ("--long_texts=chunks",), ("--long_texts=cut",)):
        report, out = score(*words, *way)
    assert received == [{}, {"long_texts": "chunks"}, {"long_texts": "cut"}]
    encoder = {"text_encoder": "others", "text_encoder_path": "fake_encoders:Others"}
    columns = {"prompt_column": "question", "text_column": "text", "paired_by": "order"}
    assert report["inputs"] == {"outputs": "qa.jsonl", "prompts": "qa.jsonl"} | columns | encoder
    assert "texts (column 'text') embedded by others; prompts (column 'question') embedded" in out
    with pytest.raises(ValueError, match="--long_texts=cut: has no effect, as prompts repeat"):
        score(X, "--prompts=repeated.txt", "--long_texts=cut", *RULED)


MINE = """
import imported_by_mine

class E(imported_by_mine.Means):
    def __call__(self, one, other):
        return 0.0
"""
READ = [
    f"{X} --json=x.npy",
    f"{X} {WIDTH} --groups_file=labels.txt --json=labels.txt",
    f"{X} --prompts=prompts.txt --json=./prompts.txt",
    "answers.txt --cache=kept --json=kept/rows.npz",
    "photos --json=photos/1.PNG",
    "answers.txt --text_encoder=mine:E --json=mine.py",
    "answers.txt --similarity=mine:E --json=imported_by_mine.py",
    "answers.txt --text_encoder=st:photos --json=photos/1.PNG",
    "answers.txt --text_encoder=open_clip:ViT-B-32/kept/rows.npz --json=kept/rows.npz",
    "helm/display_predictions.json --json=helm/display_requests.json",
]


def test_a_file_that_is_read_is_never_replaced(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    said = '[{"instance_id": "id1", "predicted_text": "a"}]'
    contents = {"kept/rows.npz": "kept", "photos/1.PNG": "kept", "mine.py": MINE}
    contents |= {"imported_by_mine.py": "from fake_encoders import Means"}
    contents |= {"helm/display_predictions.json": said, "helm/display_requests.json": "[]"}
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for words in READ:
        with pytest.raises(ValueError, match=r"--json=.* would replace .* reads; choose"):
            __main__.main(["", "score", *words.split(), "--overwrite"])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_traceback_of_the_users_own_encoder_follows_its_line(folder):
    (folder / "raising.py").write_text(
        "class E:\n    def encode(self, items):\n        return self.weights[items]\n"
    )
    words = ("answers.txt", "--text_encoder=raising:E")
    status, out, err = _started(folder, "score", *words)
    assert (status, out) == (2, "")
    assert "raising:E failed on a batch of 3 that starts with 'banana': AttributeError: " in err[0]
    assert err[1].startswith("Traceback")
    assert "return self.weights[items]" in "".join(err)


def test_json_to_standard_output_is_alone_there_whatever_an_encoder_prints(folder, capfd):
    (folder / "loud.py").write_text(
        "import fake_encoders\nprint('imported')\nclass E(fake_encoders.Means):\n"
        "    name = 'loud'\n"
        "    def encode(self, items):\n        print('encoding')\n"
        "        return super().encode(items)\n"
    )
    words = ("answers.txt", "--text_encoder=loud:E", "--cache=cache", "--json=/dev/stdout")
    __main__.main(["", "score", *words, *RULED])
    out, err = capfd.readouterr()
    assert json.loads(out)["n"] == 3
    assert "imported" in err and "encoding" in err and "Different answers: about" in err
    __main__.main(["", "score", X, T, *GIVEN, "--order=2", "--json=/dev/stdout"])
    out, err = capfd.readouterr()
    assert json.loads(out)["n"] == N and err.count("WARNING: different prompts count as") == 1


NO_EFFECT = "has no effect"
FAKE = "--text_encoder=fake_encoders:Means"
MODELS = "x.npy halves.npy"
BAD_INPUTS = {
    "score x.npy --orders=2": "unknown flag --orders; did you mean --order? --help lists all",
    "rank": "expected one of score, compare, plan, report, enough, received 'rank'",
    # Values of flags.
    f"score {X} {WIDTH} --order=1,0": "entropy and inf the min-entropy, received 0.0",
    f"score {X} {WIDTH} --truncation=0": "--truncation: expected",
    "score --kernel=polynomial": "--kernel: expected one of gaussian, cosine, received 'polyn",
    "score --output_bandwidth=0": "--output_bandwidth: expected a finite number above 0",
    "score --prompt_bandwidth=0": "--prompt_bandwidth: expected a finite number above 0",
    "score --seed=-1": "--seed: expected an integer of at least 0, received -1",
    "compare --level=0": "--level: expected a number above 0 and below 1, received 0.0.",
    "compare --level=1": "--level: expected a number above 0 and below 1, received 1.0.",
    "compare --equal_ratio=1": "--equal_ratio: expected a number above 1, received 1.0.",
    "compare --rule=mean": "--rule: expected one of variance, std, median, auto, received 'mean'.",
    "compare --profile=over.txt": "--profile: expected a file ending in .png, .pdf, .svg, received",
    "compare --record=r.txt": "--record: expected a file ending in .json",
    "plan --most_prompts=6": "--most_prompts: expected a number at least 7, received 6.",
    "plan --order=0": "--order: expected a number above 0",
    "report --output=a.pdf": "--output: expected a file ending in .html, .htm, received 'a.pdf'.",
    f"report {MODELS}": "--output: expected the file of the page",
    # Files and arrays.
    f"score {X} {T} --by_prompt=x.npy": "--by_prompt=x.npy would replace x.npy, which",
    f"score {X} {WIDTH} --json=/dev/null/x": "--json: /dev/null/x cannot be written",
    f"score {X} {WIDTH} --groups_file=blank.txt": "--groups_file: blank.txt, line 2: is blank",
    f"score {X} {WIDTH} --weights=words.txt": "words.txt: expected numbers: could not convert",
    f"score {X} {WIDTH} --weights=negative.txt": (
        "--weights: negative.txt: expected non-negative numbers, received -0.5 in row 1"
    ),
    f"score {X} {WIDTH} --weights=t.npy": "t.npy: expected one weight a row [n], received float32",
    f"score {X} --prompts=t.npz --prompts_key=text": "labels, prompts",
    f"score {X} --prompts=t.npz": "labels, prompts. Name one, --prompts_key=NAME.",
    f"score t.npz {WIDTH}": "labels, prompts. Name one, --outputs_key=NAME.",
    f"score {X} --prompts=./x.npy": "outputs and their prompts are equal in every row",
    f"score answers.txt {T} {FAKE}": f"row by row: received 3 outputs and {N} prompts.",
    f"score answers.txt --prompts=answers.txt {FAKE}": "answers.txt: is both the texts and their",
    f"compare {MODELS} x.npz --prompts=t.npy,x.npy": (
        "--prompts: expected one file, or one for each of 3 models, received 't.npy,x.npy'"
    ),
    f"compare {X} labels.txt": (
        "expected outputs of one kind, received embeddings of x (x.npy) and texts of labels"
    ),
    f"compare {MODELS} --prompts=t.npy,labels.txt": (
        "--prompts: expected texts for all models, or embeddings for all"
    ),
    # Models.
    "score": "expected one model, each a file or the folder of its pictures, received 0",
    "score x.npy t.npy": "expected one model, each a file or the folder of its pictures, receive",
    "compare": "expected models, each a file or",
    "compare x.npy x.npy": "x.npy: is given twice; leave one out.",
    "compare qa.jsonl qa.jsonl --prompt_field=question --answer_field=text": "qa.jsonl: is given t",
    "compare m=x.npy m=t.npy": "'m' names both x.npy and t.npy; give names, as name=path",
    f"score {X} {WIDTH} --json=a.json --json=b.json": "--json: is given 2 times; give it once",
    "compare x= t.npy": "'x=': expected a path, or name=path",
    "compare absent x.npy": "absent: there is no such file or folder",
    # Flags that contradict one another, or do nothing.
    f"score {X} {WIDTH} --by_prompt=t.csv": "--by_prompt=t.csv needs --prompts",
    f"score {X} {WIDTH} --noerrors --groups_file=labels.txt": "--errors and --groups_file: give",
    f"score {X} {T} --prompt_bandwidth=1 --equal_prompts": "--prompt_bandwidth and --equal_prompts",
    "score --similarity=a --class_field=b": "--similarity and --class_field: give one or",
    "score --class_field=a --cache=b": "--class_field and --cache: give one or the other.",
    "score --class_field=a --text_encoder=b": "--class_field and --text_encoder: give one",
    "score --long_texts=cut --text_encoder=b": "--long_texts and --text_encoder: give one",
    "score --equal_prompts --similar_prompts": "--equal_prompts and --similar_prompts: give",
    "plan x.npy --quality_field=a --at_least=1": f"--quality_field: {NO_EFFECT} on a plan",
    f"score {X} {WIDTH} --kernel=cosine": f"--output_bandwidth=1.0: {NO_EFFECT}",
    f"score {X} --equal_prompts": f"--equal_prompts=True: {NO_EFFECT}",
    f"score {X} {WIDTH} {T} --equal_prompts --rule=std": f"--rule=std: {NO_EFFECT}",
    f"score {X} {WIDTH} {T} --rule=std": f"--rule=std: {NO_EFFECT}, as prompts repeat",
    "score answers.txt --similarity=calls": "name the field of calls: --answer_field=tool_calls",
    f"score {X} {WIDTH} --order=2 --method=exact": f"--method=exact: {NO_EFFECT}",
    f"score {X} {T} --long_texts=chunks": f"--long_texts=chunks: {NO_EFFECT}",
    "score answers.txt --image_encoder=a": f"--image_encoder=a: {NO_EFFECT}",
    f"score {X} --text_column=a": f"--text_column=a: {NO_EFFECT}",
    f"score {X} {T} --cache=a": f"--cache=a: {NO_EFFECT}",
    f"score {X} --kernel=cosine --profile=over.png": f"--profile=over.png: {NO_EFFECT}",
    f"score answers.txt {FAKE} --cache=qa.jsonl": "--cache=qa.jsonl: is a file; expected a folder",
    f"score answers.txt {FAKE} --encoder_device=cpu": f"--encoder_device=cpu: {NO_EFFECT}",
    f"score answers.txt {FAKE} --encoder_batch_size=8": f"--encoder_batch_size=8: {NO_EFFECT}",
}


@pytest.mark.parametrize("words", BAD_INPUTS)
def test_bad_input_gets_one_clear_line_before_anything_is_computed(folder, capfd, words):
    with pytest.raises((ValueError, OSError)) as error:
        __main__.main(["condvendi", *words.split()])
    assert BAD_INPUTS[words] in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_paths_of_flags_are_those_that_are_given():
    words, given = flags.parse(Score, [X, "--prompts", "t.npy", "--json=o", "--noerrors", "word"])
    assert words == ["x.npy", "word"] and not given.errors
    assert given.paths(options.Source) == {"--prompts": "t.npy"}
    assert given.paths(options.Target) == {"--json": "o"}


def test_a_method_has_its_key_of_the_seed():
    def chosen(**flags):
        return Score(seed=3, **flags).chosen_method()

    assert chosen(method="exact") == cv.Exact()
    assert isinstance(chosen(), cv.Auto)
    key = chosen(method="matrix-free").key
    assert (jax.random.key_data(key) == jax.random.key_data(Keys(3).probes)).all()


@pytest.mark.parametrize("given, expected", [(None, ["1", "1", None]), ("2", ["2", "2", "2"])])
def test_few_rows_take_one_thread_unless_the_user_says_otherwise(monkeypatch, given, expected):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    command.use_one_thread()
    threads = [os.environ["OPENBLAS_NUM_THREADS"]]
    for n in (1_500, 1_501):
        command.use_threads(n)
        threads.append(os.environ.get("OPENBLAS_NUM_THREADS"))
    assert threads == expected
    monkeypatch.setattr(command, "_one_thread", False)


CACHED = """
import jax
import condvendi_jax as cv
cv.Pairs([[0], [1]], output_kernel=cv.Gaussian(1))  # From here on JAX keeps programs.
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
print(float(jax.jit(lambda x: 2 * x + 1)(3.0)), sum("cache_hits" in name for name in hits))
"""


def _cached(folder, **others):
    """The number of programs that came from the cache below a folder; the result is right."""
    kept = {name: of for name, of in ENVIRONMENT.items() if not name.startswith("JAX_")}
    environment = kept | {"XDG_CACHE_HOME": str(folder), "JAX_PLATFORMS": "cpu"} | others
    command = [sys.executable, "-c", CACHED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result, hits = done.stdout.split()
    assert (result, done.stderr) == ("7.0", "")
    return int(hits)


@pytest.mark.slow
def test_the_next_call_takes_the_programs_of_the_first(tmp_path):
    assert not _cached(tmp_path)
    assert _cached(tmp_path)
    for path in tmp_path.rglob("*-cache"):
        path.write_bytes(path.read_bytes()[:50])  # As another call would truncate it.
    assert not _cached(tmp_path)
    (large,) = {path.with_name("large-cache") for path in tmp_path.rglob("*-cache")}
    with open(large, "wb") as stream:
        stream.truncate(programs._KEPT_BYTES)
    assert not _cached(tmp_path)
    assert not large.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=2"),
        ("JAX_COMPILATION_CACHE_DIR", "{}/own"),
        ("JAX_ENABLE_COMPILATION_CACHE", "false"),
    ],
)
def test_programs_are_not_kept_where_jax_says_so_or_they_would_be_wrong(tmp_path, name, value):
    assert not _cached(tmp_path, **{name: value.format(tmp_path)})
    assert not (tmp_path / "condvendi_jax").exists()


def test_exit_statuses(folder):
    found = _started(folder, "score", "absent.npy", "--json=absent.json")
    assert found == (2, "", ["error: absent.npy: there is no such file."])
    status, out, err = _started(folder, "score", X, T, *GIVEN, "--order=2")
    assert status == 0 and out.startswith("\n".join(err) + "\nDifferent outputs to one prompt")
    assert err[0].startswith("WARNING: different prompts count as alike (RKE 6.4 of 30")


def test_help_and_version(capfd):
    for arguments, words in {
        "--help": "usage: condvendi VERB",
        "--version": cv.__version__,
        "score --help": "--x64",
        "compare -h": "--csv",
    }.items():
        with contextlib.suppress(SystemExit):
            assert __main__.main(["condvendi", *arguments.split()]) is None
        out, err = capfd.readouterr()
        assert words in out and err == ""
    assert __main__.main(["condvendi"]) == 2  # Without a verb the help answers a mistake.
    out, err = capfd.readouterr()
    assert out == "" and "usage: condvendi VERB" in err


@pytest.mark.slow
def test_files_are_written_where_nobody_reads_standard_output_or_it_is_closed(folder):
    """As in `condvendi score ... | head -1`; what is printed goes into no file."""
    words = ("score", X, "--order=2", WIDTH)
    reading, writing = os.pipe()
    os.close(reading)
    assert _started(folder, *words, "--json=seen.json", stdout=writing) == (1, None, [])
    os.close(writing)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]
    assert _started(folder, *words, "--json=kept.json", command=shell) == (0, "", [])
    for name in ("seen.json", "kept.json"):
        assert json.loads((folder / name).read_text())["n"] == N


def test_the_table_is_printed_where_a_file_cannot_be_written(folder, capfd, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("condvendi_jax.base.files.write_json", full)
    with pytest.raises(OSError, match="no space left"):
        __main__.main(["", "score", X, "--order=2", WIDTH, "--json=full.json"])
    assert "Different outputs: about" in capfd.readouterr().out


def test_a_full_disk_behind_standard_output_is_one_line(folder):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        status, _, err = _started(folder, "--help", stdout=full)
    assert (status, len(err)) == (2, 1)
    assert "No space left" in err[0]


def _interrupted(tmp_path, before, lines):
    """Runs a program that interrupts itself, so that no timing matters."""
    program = f"import signal, time\nfrom condvendi_jax.cli import command\n{before}\n"
    program += "def main(_):\n" + "".join(f"    {line}\n" for line in lines.strip().splitlines())
    program += "command.run(main)\n"
    return _started(tmp_path, program, command=(sys.executable, "-c"))


SELF_INTERRUPTED = {
    "importing": """
try:
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)
except BaseException:
    raise ImportError("no extension module")
""",
    # Eigenvalues that take minutes; Python's handler would run when they are there.
    "in compiled code, while a file is written": """
import threading, jax, jax.numpy as jnp, numpy as np
from condvendi_jax.base import files
matrix = jax.block_until_ready(jax.random.normal(jax.random.key(0), (6_000, 6_000)))
threading.Timer(3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
with files.atomic_writer("values.npy"):
    np.asarray(jax.jit(jnp.linalg.eigvalsh)(matrix))  # Some JAX calls see signals; not this.
""",
}


@pytest.mark.parametrize(
    "name", ["importing", pytest.param([*SELF_INTERRUPTED][1], marks=pytest.mark.slow)]
)
def test_an_interrupt_is_one_word_wherever_it_arrives(name, tmp_path):
    found = _interrupted(tmp_path, "", SELF_INTERRUPTED[name])
    assert found == (130, "", ["interrupted"])
    assert not list(tmp_path.iterdir())


def test_an_interrupt_that_the_parent_ignores_stays_ignored(tmp_path):
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    assert _interrupted(tmp_path, ignored, "signal.raise_signal(signal.SIGINT)") == (0, "", [])
