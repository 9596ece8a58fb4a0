"""`python -m condvendi_jax` as a user starts it."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from oracles import cosine_gram, draw_pairs, gaussian_gram, scores
from processes import Terminal, started
from safetensors.numpy import save_file

N = 60
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
COMMAND = (sys.executable, "-m", "condvendi_jax")
ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    np.save(folder / "x.npy", OUTPUTS)
    np.save(folder / "one.npy", OUTPUTS[:1])
    np.save(folder / "short.npy", PROMPTS[:-1])
    np.save(folder / "nan.npy", np.where(np.arange(N)[:, None] == 7, np.nan, OUTPUTS))
    np.save(folder / "object.npy", np.array([{}], dtype=object))
    np.savez(folder / "t.npz", prompts=PROMPTS, labels=np.arange(N))
    save_file({"prompts": PROMPTS}, folder / "t.safetensors")
    (folder / "corrupt.npz").write_bytes((folder / "t.npz").read_bytes()[:200])
    return folder


def _run(folder, *arguments):
    command = [*COMMAND, *arguments]
    found = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, env=ENVIRONMENT
    )
    return found.returncode, found.stdout, [x for x in found.stderr.splitlines() if x.strip()]


def _report(folder, *arguments, name="report.json"):
    status, out, err = _run(folder, *arguments, f"--json={name}")
    assert status == 0, err
    return json.loads((folder / name).read_text()), out, err


def test_pairs_with_given_bandwidths(folder):
    report, out, err = _report(
        folder,
        "--outputs=x.npy",
        "--prompts=t.npz",
        "--prompts_key=prompts",
        "--output_bandwidth=0.8",
        "--prompt_bandwidth=0.6",
        "--groups=4",
        name="given.json",
    )
    assert err == []
    assert (report["n"], report["dtype"], report["kernel"]) == (N, "float32", "gaussian")
    assert report["bandwidths"]["outputs"] == {"bandwidth": 0.8, "rule": "given"}
    assert report["bandwidths"]["prompts"] == {"bandwidth": 0.6, "rule": "given"}
    assert report["seed"] == 0
    assert report["provenance"]["versions"]["condvendi_jax"]
    assert set(report["provenance"]) >= {"device", "x64", "date", "platform", "python"}
    assert [row["order"] for row in report["scores"]] == [1, 2]
    for row in report["scores"]:
        expected = scores(
            gaussian_gram(OUTPUTS, 0.8), gaussian_gram(PROMPTS, 0.6), order=row["order"]
        )
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-5)
            assert f"{value:.3g}"[:3] in out
            assert row["standard_errors"][name] > 0
        assert row["groups"] == 4
        entropy = row["entropy_joint"] - row["entropy_prompts"]
        assert np.exp(entropy) == pytest.approx(row["conditional"], rel=1e-5)
    assert "±" in out


@pytest.fixture(scope="module")
def estimated(folder):
    outputs, prompts = draw_pairs(700, dtype=np.float32)
    np.savez(folder / "many.npz", x=outputs, t=prompts)
    arguments = ("--outputs=many.npz", "--outputs_key=x", "--output_bandwidth=0.3", "--order=1,2")
    paired = ("--prompts=many.npz", "--prompts_key=t", "--prompt_bandwidth=0.3")
    options = ("--errors=none", "--method=matrix-free")
    return (outputs, prompts), [
        _report(folder, *arguments, *more, *options, name=f"many{k}.json")
        for k, more in enumerate([paired, (), (*paired, "--rtol=1e-3")])
    ]


def test_estimated_scores_come_with_their_intervals(estimated):
    (outputs, prompts), ((pairs, out, err), (alone, alone_out, _), (tighter, _, _)) = estimated
    expected = scores(gaussian_gram(outputs, 0.3), gaussian_gram(prompts, 0.3))
    assert err == []
    first, second = pairs["scores"]
    assert (first["method"], second["method"]) == ("matrix-free", "frobenius")
    assert second["intervals"] is None
    for name, value in expected.items():
        low, high = first["intervals"][name]
        assert low - (high - low) / 4 < value < high + (high - low) / 4
        assert (high - low) / 2 <= 0.0021 * value
    assert f"[{first['intervals']['vendi'][0]:.4g}, " in out
    assert "order 1.0: estimated (matrix-free)" in out
    assert alone["scores"][0]["vendi"] == pytest.approx(first["vendi"], rel=4e-3)
    assert set(alone["scores"][0]["intervals"]) == {"vendi"}
    assert "estimated (matrix-free)" in alone_out
    low, high = tighter["scores"][0]["intervals"]["information"]
    assert (high - low) / 2 <= 0.00105 * expected["information"]


@pytest.fixture(scope="module")
def chosen_by_rule(folder):
    arguments = (
        "--outputs=x.npy",
        "--prompts=t.safetensors",
        "--prompt_bandwidth=0.6",
        "--order=2",
        "--groups=4",
    )
    return [
        _report(folder, *arguments, *more, name=f"rule{k}.json")
        for k, more in enumerate([(), ("--seed=1",), ("--rule=median",)])
    ]


def test_bandwidths_are_chosen_by_rule_where_not_given_and_it_says_so(chosen_by_rule):
    report, out, _ = chosen_by_rule[0]
    assert "variance < 0.01" in report["bandwidths"]["outputs"]["rule"]
    assert "variance < 0.01" in out
    assert report["bandwidths"]["prompts"]["rule"] == "given"
    median, out, _ = chosen_by_rule[2]
    assert "median distance" in median["bandwidths"]["outputs"]["rule"]
    assert "median distance" in out
    assert (
        median["bandwidths"]["outputs"]["bandwidth"] != report["bandwidths"]["outputs"]["bandwidth"]
    )


def test_the_seed_changes_the_subsets_and_the_groups(chosen_by_rule):
    first, second = (report for report, *_ in chosen_by_rule[:2])
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["scores"][0]["standard_errors"] != second["scores"][0]["standard_errors"]


def test_outputs_alone_give_vendi_and_rke(folder):
    report, out, _ = _report(
        folder,
        "--outputs=x.npy",
        "--kernel=cosine",
        "--x64",
        "--order=1,2,inf",
        "--truncation=2",
        "--errors=none",
        name="alone.json",
    )
    assert (report["dtype"], report["kernel"], report["truncation"]) == ("float64", "cosine", 2)
    assert [row["order"] for row in report["scores"]] == [1, 2, "inf"]
    for row, order in zip(report["scores"], (1, 2, np.inf), strict=True):
        expected = scores(*[cosine_gram(OUTPUTS)] * 2, order=order, truncation=2)["vendi"]
        assert row["vendi"] == pytest.approx(expected, rel=1e-10)
        assert "conditional" not in row
        assert row["standard_errors"] is None
    assert "no standard errors" in out


def test_one_row_has_no_standard_error_and_a_reason(folder):
    report, _, err = _report(folder, "--outputs=one.npy", "--order=1", name="one.json")
    (row,) = report["scores"]
    assert row["vendi"] == 1
    assert row["standard_errors"]["vendi"] is None
    assert "not a finite number" in row["standard_errors"]["vendi_reason"]
    assert any("NaN for n = 1" in line for line in err)


GIVEN = ("--output_bandwidth=1",)
BAD_INPUTS = {
    "missing file": (("--outputs=absent.npy",), "absent.npy: there is no such file"),
    "corrupt file": (("--outputs=x.npy", "--prompts=corrupt.npz"), "corrupt.npz: cannot be read"),
    "pickled object": (("--outputs=object.npy",), "object.npy: cannot be read"),
    "wrong key": (("--outputs=x.npy", "--prompts=t.npz", "--prompts_key=text"), "labels, prompts"),
    "lengths": (("--outputs=x.npy", "--prompts=short.npy"), "60 outputs and 59 prompts"),
    "not a number": (("--outputs=nan.npy",), "row 7"),
    "order": (("--outputs=x.npy", *GIVEN, "--order=1,none"), "received 'none'"),
    "no order": (("--outputs=x.npy", *GIVEN, "--order="), "--order"),
    "truncation": (("--outputs=x.npy", *GIVEN, "--truncation=0"), "truncation: expected"),
    "bandwidth": (("--outputs=x.npy", "--output_bandwidth=0"), "finite number above 0"),
    "bandwidth without a kernel for it": (
        ("--outputs=x.npy", *GIVEN, "--kernel=cosine"),
        "cosine kernel has no bandwidth",
    ),
    "bandwidth without prompts": (
        ("--outputs=x.npy", "--prompt_bandwidth=1"),
        "--prompt_bandwidth without --prompts",
    ),
    "groups": (("--outputs=x.npy", *GIVEN, "--groups=1"), "groups: expected"),
    "folder": (("--outputs=x.npy", *GIVEN, "--json=absent/report.json"), "absent"),
    "folder for a file": (("--outputs=x.npy", *GIVEN, "--json=."), "directory"),
    "no outputs": ((), "--outputs is required"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_gets_one_clear_line_and_a_status(folder, name):
    arguments, message = BAD_INPUTS[name]
    status, out, err = _run(folder, *arguments)
    assert status not in (0, None)
    assert out == ""
    (line,) = [line for line in err if not line.startswith("warning:")]
    assert message in line
    assert "Traceback" not in line


def test_help_lists_the_flags_and_ends_with_success(folder):
    status, out, _ = _run(folder, "--help")
    assert status == 0
    assert "--outputs" in out
    assert "--[no]x64" in out


def test_an_unknown_kernel_lists_the_valid_names(folder):
    status, _, err = _run(folder, "--outputs=x.npy", "--kernel=polynomial")
    assert status != 0
    assert "gaussian|cosine" in err[0]
    # The flag parser adds where to find help.
    assert len(err) <= 2


def test_an_interrupt_ends_with_130_and_leaves_no_file(folder):
    """In the middle of a jackknife of minutes, as its progress bar says."""
    np.save(folder / "large.npy", draw_pairs(1500, dtype=np.float32)[0])
    large = ("--outputs=large.npy", "--output_bandwidth=1", "--order=1", "--groups=1000")
    command = [*COMMAND, *large, "--json=interrupted.json"]
    with (
        Terminal() as terminal,
        started(command, cwd=folder, stderr=terminal.writing, env=ENVIRONMENT) as process,
    ):
        terminal.wait_for("2/1002", process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130, terminal.read()
        assert "Traceback" not in terminal.read()
    assert not list(folder.glob("*interrupted.json*"))
