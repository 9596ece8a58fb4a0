"""`condvendi score` as a user calls it: in process, and as a command where the process matters."""

import json
import os
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from oracles import cosine_gram, draw_pairs, gaussian_gram, scores
from processes import Terminal, started
from safetensors.numpy import save_file

import condvendi_jax as cv
from condvendi_jax import __main__
from condvendi_jax.cli import options
from condvendi_jax.evaluation import Keys

N = 60
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
PROMPTS = np.repeat(PROMPTS[::2], 2, axis=0)
COMMAND = (sys.executable, "-m", "condvendi_jax")
ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # Where output is buffered, errors come late.
X, T = "--outputs=x.npy", "--prompts=t.npy"
GIVEN = ("--output_bandwidth=0.8", "--prompt_bandwidth=0.6")
RULED = ("--order=2", "--rule=median")


@pytest.fixture(scope="module")
def files_of_embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    np.save(folder / "x.npy", OUTPUTS)
    np.save(folder / "t.npy", PROMPTS)
    np.save(folder / "one.npy", OUTPUTS[:1])
    np.save(folder / "short.npy", PROMPTS[:-1])
    np.save(folder / "nan.npy", np.where(np.arange(N)[:, None] == 7, np.nan, OUTPUTS))
    np.save(folder / "object.npy", np.array([{}], dtype=object))
    np.save(folder / "labels.npy", np.arange(N)[:, None] % 5)
    (folder / "labels.txt").write_text("\n".join(f"group {k % 5}" for k in range(N)) + "\n")
    np.savez(folder / "t.npz", prompts=PROMPTS, labels=np.arange(N))
    save_file({"prompts": PROMPTS}, folder / "t.safetensors")
    (folder / "corrupt.npz").write_bytes((folder / "t.npz").read_bytes()[:200])
    (folder / "bandwidths.json").write_text(
        json.dumps({"bandwidths": {"outputs": {"bandwidth": 0.8}, "prompts": {"bandwidth": 0.6}}})
    )
    (folder / "none.json").write_text(
        json.dumps({"bandwidths": {"outputs": {"bandwidth": None}, "prompts": {"bandwidth": None}}})
    )
    (folder / "prompts.txt").write_text("a cat\na dog\nat last\n")
    (folder / "answers.txt").write_text("banana\nbread\nanother apple\n")
    return folder


@pytest.fixture
def folder(files_of_embeddings, monkeypatch):
    """Where the files are, which is where the command runs; the precision is as before, after."""
    before = jax.config.jax_enable_x64
    monkeypatch.chdir(files_of_embeddings)
    yield files_of_embeddings
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def score(folder, capfd):
    """Runs `condvendi score` in this process; gives the report, and what was printed."""

    def run(*arguments, name="report.json"):
        __main__.main(["condvendi", "score", *arguments, f"--json={name}"])
        out, err = capfd.readouterr()
        assert err == ""
        return json.loads((folder / name).read_text()), out

    return run


def _started(folder, *arguments, **options):
    """Runs the command as a process of its own."""
    command = [*COMMAND, *arguments]
    options = {"capture_output": True, "text": True, "timeout": 120, "env": ENVIRONMENT} | options
    found = subprocess.run(command, cwd=folder, **options)
    return found.returncode, found.stdout, [x for x in found.stderr.splitlines() if x.strip()]


def test_pairs_with_given_bandwidths(score):
    report, out = score(X, "--prompts=t.npz", "--prompts_key=prompts", *GIVEN, "--groups=4")
    assert (report["n"], report["dtype"], report["kernel"]) == (N, "float32", "gaussian")
    assert report["bandwidths"]["outputs"] == {"bandwidth": pytest.approx(0.8), "rule": "given"}
    assert report["bandwidths"]["prompts"] == {"bandwidth": pytest.approx(0.6), "rule": "given"}
    assert report["inputs"] == {
        "outputs": "x.npy",
        "prompts": "t.npz",
        "prompts_key": "prompts",
    }
    assert (report["seed"], report["groups"]) == (0, 4)
    assert report["groups_of"] == "rows of one prompt"
    assert report["provenance"]["versions"]["condvendi_jax"]
    assert set(report["provenance"]) >= {"device", "x64", "date", "platform", "python"}
    assert [row["order"] for row in report["scores"]] == [1, 2]
    for row in report["scores"]:
        grams = gaussian_gram(OUTPUTS, 0.8), gaussian_gram(PROMPTS, 0.6)
        for name, value in scores(*grams, order=row["order"]).items():
            assert row[name] == pytest.approx(value, rel=1e-5)
            assert f"{value:.3g}"[:3] in out
            assert row["standard_errors"][name] > 0
        entropy = row["entropy_joint"] - row["entropy_prompts"]
        assert np.exp(entropy) == pytest.approx(row["conditional"], rel=1e-5)
    assert "±" in out


def test_flags_alone_are_those_of_score(folder, capfd):
    __main__.main(["condvendi", X, "--order=2", "--output_bandwidth=1"])
    assert "60 outputs, float32" in capfd.readouterr().out


def test_estimated_scores_come_with_their_intervals(score):
    options = (X, T, *GIVEN, "--order=1,2", "--errors=none", "--method=matrix-free")
    (wide, out), (narrow, _) = score(*options, "--rtol=2e-2"), score(*options, "--rtol=5e-3")
    expected = scores(gaussian_gram(OUTPUTS, 0.8), gaussian_gram(PROMPTS, 0.6))
    for report, rtol in ((wide, 2e-2), (narrow, 5e-3)):
        first, second = report["scores"]
        assert (first["method"], second["method"]) == ("matrix-free", "frobenius")
        assert second["intervals"] is None
        for name, value in expected.items():
            low, high = first["intervals"][name]
            assert low - (high - low) / 4 < value < high + (high - low) / 4
            assert (high - low) / 2 <= 1.05 * rtol * value
    assert f"[{wide['scores'][0]['intervals']['vendi'][0]:.4g}, " in out
    assert "estimated (matrix-free)" in out


def test_bandwidths_are_chosen_by_rule_where_not_given_and_it_says_so(score):
    options = (X, "--prompts=t.safetensors", "--prompt_bandwidth=0.6", "--order=2", "--groups=4")
    report, out = score(*options)
    assert "variance < 0.01" in report["bandwidths"]["outputs"]["rule"]
    assert "variance < 0.01" in out
    assert report["bandwidths"]["prompts"]["rule"] == "given"
    median, out = score(*options, "--rule=median")
    assert median["bandwidths"]["outputs"]["rule"] == "median distance"
    assert median["bandwidths"]["outputs"] != report["bandwidths"]["outputs"]
    other, _ = score(*options, "--seed=1")
    assert (report["seed"], other["seed"]) == (0, 1)
    assert other["scores"][0]["standard_errors"] != report["scores"][0]["standard_errors"]
    assert report["scores"][0]["bandwidth_errors"] is None
    noise, out = score(*options, "--bandwidth_repeats=3")
    assert noise["scores"][0]["bandwidth_errors"]["vendi"] > 0
    assert "over other draws of the rule's subsets" in out


def test_bandwidths_of_an_earlier_call(score):
    first, _ = score(X, T, *RULED, name="first.json")
    second, _ = score(X, T, "--order=2", "--bandwidths_from=first.json", "--seed=5")
    for role in ("outputs", "prompts"):
        one, two = (report["bandwidths"][role]["bandwidth"] for report in (first, second))
        assert one == pytest.approx(two, rel=1e-6)
    assert second["bandwidths"]["outputs"]["rule"] == "given"
    assert second["scores"][0]["vendi"] == pytest.approx(first["scores"][0]["vendi"], rel=1e-5)


def test_groups_of_a_file(score):
    found = [
        score(X, T, *GIVEN, "--order=2", *more)[0]
        for more in ((), ("--groups_file=labels.npy",), ("--groups_file=labels.txt",))
    ]
    assert [report["groups"] for report in found] == [20, 5, 5]
    assert found[1]["groups_of"] == "given labels"
    errors = [report["scores"][0]["standard_errors"] for report in found]
    assert errors[1] == pytest.approx(errors[2])
    assert errors[0]["vendi"] != pytest.approx(errors[1]["vendi"], rel=1e-3)


def test_outputs_alone_give_vendi_and_rke(score):
    options = ("--kernel=cosine", "--x64", "--order=1,2,inf", "--truncation=2", "--errors=none")
    report, out = score(X, *options)
    assert (report["dtype"], report["kernel"]) == ("float64", "cosine")
    assert [row["order"] for row in report["scores"]] == [1, 2, "inf"]
    for row, order in zip(report["scores"], (1, 2, np.inf), strict=True):
        expected = scores(*[cosine_gram(OUTPUTS)] * 2, order=order, truncation=2)["vendi"]
        assert row["vendi"] == pytest.approx(expected, rel=1e-10)
        assert row["truncation"] == 2
        assert "conditional" not in row
        assert row["standard_errors"] is None
    assert "no standard errors" in out


def test_a_truncation_above_n_is_reported_as_used(score):
    with pytest.warns(UserWarning, match="truncation 61 exceeds n = 60"):
        report, out = score(X, "--output_bandwidth=1", "--truncation=61", "--order=2", "--groups=2")
    assert report["scores"][0]["truncation"] == 60
    assert "2 (RKE), t = 60" in out


def test_one_row_has_no_standard_error_and_a_reason(score):
    with pytest.warns(UserWarning, match="at least three rows"):
        report, _ = score("--outputs=one.npy", "--order=1")
    (row,) = report["scores"]
    assert row["vendi"] == 1
    assert row["standard_errors"]["vendi"] is None
    assert "not a finite number" in row["standard_errors"]["vendi_reason"]


def test_texts_and_their_prompts_are_embedded(score, monkeypatch):
    """Lengths, letters a, sums of codes and ones, as the encoder of the tests has them."""
    report, out = score(
        "--texts=answers.txt",
        "--prompts=prompts.txt",
        "--text_encoder=fake_encoders:Means",
        "--cache=cache",
        *RULED,
    )
    assert report["n"] == 3
    assert report["inputs"] == {
        "texts": "answers.txt",
        "prompts": "prompts.txt",
        "text_encoder": "fake_encoders:Means",
    }
    sums = np.array([sum(map(ord, text)) for text in ("banana", "bread", "another apple")])
    between = np.abs(sums[:, None] - sums)[np.triu_indices(3, 1)]
    assert report["bandwidths"]["outputs"]["bandwidth"] == pytest.approx(np.median(between), 1e-2)
    assert "3 pairs" in out


def test_pictures_are_embedded(score, folder):
    from PIL import Image

    (folder / "pictures").mkdir()
    for name, colour in {"1": "red", "2": "lime", "3": "blue"}.items():
        Image.new("RGB", (4, 4), colour).save(folder / "pictures" / f"{name}.png")
    encoder = ("--image_encoder=fake_encoders:Means", "--cache=cache")
    report, _ = score("--images=pictures", *encoder, *RULED)
    assert report["n"] == 3
    assert report["scores"][0]["vendi"] == pytest.approx(3 / (1 + 2 / np.e), rel=1e-5)
    (folder / "named.csv").write_text("image,prompt\n3.png,sky\n1.png,a rose\n2.png,grass\n")
    texts = ("--prompts=named.csv", "--text_encoder=fake_encoders:Means")
    report, _ = score("--images=pictures", *encoder, *texts, *RULED)
    assert report["scores"][0]["vendi"] == pytest.approx(3 / (1 + 2 / np.e), rel=1e-5)
    assert report["inputs"]["images"] == "pictures"


def test_json_through_a_link_and_a_home_folder(score, folder, monkeypatch):
    (folder / "target.json").write_text("old")
    (folder / "link.json").symlink_to("target.json")
    options = (X, "--order=2", "--output_bandwidth=1")
    score(*options, name="link.json")
    assert (folder / "link.json").is_symlink()
    assert json.loads((folder / "target.json").read_text())["n"] == N
    monkeypatch.setenv("HOME", str(folder))
    __main__.main(["", "score", "--outputs=~/x.npy", *options[1:], "--json=~/home.json"])
    assert json.loads((folder / "home.json").read_text())["n"] == N


def test_json_to_a_pipe(folder, capfd):
    os.mkfifo(folder / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((folder / "pipe").read_text()))
    reader.start()
    __main__.main(["", "score", X, "--order=2", "--output_bandwidth=1", "--json=pipe"])
    reader.join(timeout=60)
    assert json.loads(received[0])["n"] == N
    assert "60 outputs" in capfd.readouterr().out


def test_json_to_standard_output_is_alone_there(folder, capfd):
    __main__.main(["", "score", X, "--order=2", "--output_bandwidth=1", "--json=/dev/stdout"])
    out, err = capfd.readouterr()
    assert json.loads(out)["n"] == N
    assert "60 outputs" in err


WIDTH = "--output_bandwidth=1"
BAD_INPUTS = {
    "missing file": (("--outputs=absent.npy",), "absent.npy: there is no such file"),
    "corrupt file": ((X, "--prompts=corrupt.npz"), "corrupt.npz: cannot be read"),
    "pickled object": (("--outputs=object.npy",), "object.npy: cannot be read"),
    "wrong key": ((X, "--prompts=t.npz", "--prompts_key=text"), "labels, prompts"),
    "lengths": ((X, "--prompts=short.npy"), "60 outputs and 59 prompts"),
    "not a number": (("--outputs=nan.npy",), "row 7"),
    "order": ((X, WIDTH, "--order=1,none"), "received 'none'"),
    "no order": ((X, WIDTH, "--order="), "--order"),
    "order twice": ((X, WIDTH, "--order=1,1.0"), "--order: expected different"),
    "truncation": ((X, WIDTH, "--truncation=0"), "truncation: expected"),
    "bandwidth": ((X, "--output_bandwidth=0"), "finite number above 0"),
    "groups": ((X, WIDTH, "--groups=1"), "--groups: expected"),
    "seed": ((X, WIDTH, f"--seed={2**31}"), r"--seed: expected an integer below 2^31"),
    "negative seed": ((X, WIDTH, "--seed=-1"), "--seed: expected"),
    "rtol": ((X, WIDTH, "--rtol=-0.1"), "--rtol: expected a number between 0 and 1, received -0.1"),
    "kernel": ((X, "--kernel=polynomial"), "gaussian|cosine"),
    "method": ((X, "--method=fast"), "auto|exact|stored|matrix-free"),
    "unknown flag": ((X, "--bandwith=1"), "bandwith"),
    "a word": ((X, "t.npy"), "unexpected argument 't.npy'"),
    "a verb": (("rank",), "expected one of score, compare, received 'rank'"),
    "folder": ((X, WIDTH, "--json=absent/report.json"), "absent"),
    "folder for a file": ((X, WIDTH, "--json=."), "directory"),
    "no outputs": ((), "--outputs, --images or --texts is required"),
    "outputs twice": ((X, "--texts=answers.txt"), "--outputs and --texts: give one or the other"),
    "groups twice": (
        (X, WIDTH, "--groups=3", "--groups_file=labels.txt"),
        "--groups and --groups_file: give one or the other",
    ),
    "no labels": ((X, WIDTH, "--groups_file=absent.txt"), "--groups_file: "),
    "bandwidth of cosine": ((X, WIDTH, "--kernel=cosine"), "cosine kernel has no bandwidth"),
    "bandwidths of cosine": (
        (X, T, "--kernel=cosine", "--bandwidths_from=bandwidths.json"),
        "--bandwidths_from: the cosine kernel has no bandwidth",
    ),
    "bandwidth without prompts": (
        (X, "--prompt_bandwidth=1"),
        "--prompt_bandwidth without --prompts",
    ),
    "bandwidths twice": (
        (X, WIDTH, "--bandwidths_from=bandwidths.json"),
        "--output_bandwidth and --bandwidths_from",
    ),
    "no bandwidths": (
        (X, "--bandwidths_from=none.json"),
        "holds no Gaussian bandwidths of outputs",
    ),
    "no such bandwidths": ((X, "--bandwidths_from=absent.json"), "--bandwidths_from: "),
    "rule without use": ((X, WIDTH, "--rule=std"), "--rule: no bandwidth is left to choose"),
    "rule of cosine": ((X, "--kernel=cosine", "--rule=variance"), "--rule: no bandwidth"),
    "repeats without use": (
        (X, WIDTH, "--bandwidth_repeats=3"),
        "bandwidth_repeats: no bandwidth is chosen by a rule",
    ),
    "rtol of exact": ((X, WIDTH, "--method=exact", "--rtol=0.1"), "--rtol means nothing"),
    "groups of no error": (
        (X, WIDTH, "--errors=none", "--groups=5"),
        "--groups: with --errors=none there is no jackknife",
    ),
    "labels of no error": (
        (X, WIDTH, "--errors=none", "--groups_file=labels.txt"),
        "--groups_file: with --errors=none",
    ),
}
NOTHING_TO_ACT_ON = {
    "outputs_key": ("--texts=answers.txt",),
    "prompts_key": (X,),
    "prompt_column": (X, T),
    "image_column": (X, "--prompts=prompts.txt"),
    "text_column": (X,),
    "image_encoder": ("--texts=answers.txt",),
    "text_encoder": (X, T),
    "cache": (X, T),
}
BAD_INPUTS |= {
    name: ((*arguments, f"--{name}=a"), f"--{name}: there is nothing here that it would act on")
    for name, arguments in NOTHING_TO_ACT_ON.items()
}


@pytest.mark.parametrize(
    ("name", "kind"), [("auto", cv.Auto), ("stored", cv.Stored), ("matrix-free", cv.MatrixFree)]
)
def test_an_estimate_has_its_key_of_the_seed_and_its_tolerance(name, kind):
    given = {"method": name, "seed": 3, "rtol": None, "features": None}
    found = options.method(given | {"rtol": 0.01})
    assert type(found) is kind
    assert found.rtol == 0.01
    assert (jax.random.key_data(found.key) == jax.random.key_data(Keys(3).probes)).all()
    assert options.method(given).rtol == 0.002
    assert options.method(given | {"method": "exact"}) == cv.Exact()


def test_finite_features_are_drawn_of_the_seed():
    given = {"method": "random-features", "seed": 3, "rtol": None, "features": 64}
    found = options.method(given)
    assert (type(found), found.count) == (cv.RandomFeatures, 64)
    assert (jax.random.key_data(found.key) == jax.random.key_data(Keys(3).probes)).all()
    found = options.method(given | {"method": "nystroem"})
    assert (type(found), found.landmarks) == (cv.Nystroem, 64)
    with pytest.raises(ValueError, match="--features: expected a multiple of 8, received 63"):
        options.method(given | {"features": 63})


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_gets_one_clear_line(folder, capfd, name):
    arguments, message = BAD_INPUTS[name]
    verb = () if name == "a verb" else ("score",)
    with pytest.raises((ValueError, OSError)) as error:
        __main__.main(["condvendi", *verb, *arguments])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_a_process_ends_bad_input_with_status_2_and_one_line(folder):
    status, out, err = _started(folder, "score", "--outputs=absent.npy", "--json=report.json")
    assert (status, out) == (2, "")
    assert err == ["error: absent.npy: there is no such file."]


def test_a_process_that_scores_ends_with_success(folder):
    status, out, err = _started(folder, "score", X, T, *GIVEN, "--order=2")
    assert (status, err) == (0, [])
    assert "60 pairs, float32" in out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "usage: condvendi VERB"),
        (("--help",), 0, "usage: condvendi VERB"),
        (("--version",), 0, "0.1.0"),
        (("score", "--help"), 0, "--[no]x64"),
        (("compare", "-h"), 0, "--markdown"),
    ],
)
def test_help_and_version(folder, arguments, status, words):
    found, out, err = _started(folder, *arguments)
    assert found == status
    # Without a verb the help is an answer to a mistake, and no output.
    shown, other = ("\n".join(err), out) if status else (out, "\n".join(err))
    assert other == ""
    assert words in shown.replace("--x64", "--[no]x64")


@pytest.mark.parametrize(
    "arguments", [("--help",), (X, "--order=2", "--output_bandwidth=1", "--json=seen.json")]
)
def test_a_reader_that_has_seen_enough_is_no_error_to_talk_about(folder, arguments):
    """As in `condvendi score ... | head -1`, with a pipe that nobody reads; files are written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "score", *arguments]
    found = subprocess.run(
        command, cwd=folder, stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=120
    )
    os.close(writing)
    assert (found.returncode, found.stderr) == (1, b"")
    assert arguments == ("--help",) or json.loads((folder / "seen.json").read_text())["n"] == N


def test_the_table_is_printed_where_a_file_cannot_be_written(folder, capfd, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("condvendi_jax.files.write_json", full)
    with pytest.raises(OSError, match="no space left"):
        __main__.main(["", "score", X, "--order=2", WIDTH, "--json=full.json"])
    assert "60 outputs" in capfd.readouterr().out


def test_an_interrupt_ends_with_130_and_leaves_no_file(folder):
    """In the middle of a jackknife of minutes, as its progress bar says."""
    np.save(folder / "large.npy", draw_pairs(700, dtype=np.float32)[0])
    large = ("--outputs=large.npy", WIDTH, "--order=1", "--groups=600")
    command = [*COMMAND, "score", *large, "--json=interrupted.json"]
    with (
        Terminal() as terminal,
        started(command, cwd=folder, stderr=terminal.writing, env=ENVIRONMENT) as process,
    ):
        terminal.wait_for("errors of order 1: ", process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130, terminal.read()
        assert "Traceback" not in terminal.read()
    assert not list(folder.glob("*interrupted.json*"))
