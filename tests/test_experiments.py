"""The harness and the convergence study, as their users run them."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from oracles import entropy, gaussian_gram

from experiments import harness, plots

SMALL = ("--sizes=40,80", "--repeats=2", "--rules=median", "--truncation=scaled,10")


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """A mixture of ten modes whose prompts name the mode, as two files."""
    folder = tmp_path_factory.mktemp("own")
    generator = np.random.default_rng(0)
    mode = generator.integers(0, 10, 150)
    outputs = generator.normal(size=(10, 6))[mode] + 0.3 * generator.normal(size=(150, 6))
    np.save(folder / "x.npy", outputs.astype(np.float32))
    np.save(folder / "t.npy", generator.normal(size=(10, 4))[mode].astype(np.float32))
    return f"--outputs={folder / 'x.npy'}", f"--prompts={folder / 't.npy'}"


def study(*arguments, check=True):
    command = [sys.executable, "-m", "experiments.convergence", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert not check or result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def finished(own_files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    study(*own_files, *SMALL, f"--output={folder}")
    return folder / "convergence-gaussian"


def test_the_study_saves_what_the_oracle_computes(finished, own_files):
    run, cells = harness.load_run(finished)
    configuration = run["configuration"]
    assert set(cells) == {"median-0", "median-1"}
    assert configuration["truncations"] == [32, 10]
    assert configuration["seed"] == 0
    assert run["provenance"]["versions"]["jax"]
    outputs, prompts = (np.load(flag.partition("=")[2]).astype(np.float64) for flag in own_files)
    widths = configuration["bandwidths"]["median"]
    # At all pairs the random order does not matter, so the oracle needs no seed.
    last = cells["median-1"]["order2"][:, -1]
    grams = [gaussian_gram(outputs, widths["outputs"]), gaussian_gram(prompts, widths["prompts"])]
    expected = [entropy(g, order=2) for g in (*grams, grams[0] * grams[1])]
    assert cells["median-1"]["order_two_sizes"][-1] == 150
    np.testing.assert_allclose(last, expected, rtol=1e-5)


def test_repeats_and_truncations_differ(finished):
    _, cells = harness.load_run(finished)
    first, second = cells["median-0"], cells["median-1"]
    assert (first["order1"] != second["order1"]).any()
    assert (first["order1"] != first["order1-t32"]).any()
    assert (first["order1-t32"] != first["order1-t10"]).any()
    assert first["order1"].shape == (3, 2)


def test_estimated_curves_are_saved_with_their_intervals(tmp_path):
    """At all pairs the random order does not matter, so the two runs estimate the same."""
    generator = np.random.default_rng(1)
    for name, d in {"x": 6, "t": 4}.items():
        np.save(tmp_path / f"{name}.npy", generator.normal(size=(600, d)).astype(np.float32))
    files = [f"--{k}={tmp_path / f'{v}.npy'}" for k, v in {"outputs": "x", "prompts": "t"}.items()]
    widths = ("--output_bandwidth=0.7", "--prompt_bandwidth=0.7", "--repeats=1", "--truncation=40")
    found = {}
    for method in ("exact", "stored"):
        output = tmp_path / method
        study(*files, *widths, "--sizes=600", f"--method={method}", f"--output={output}")
        run, cells = harness.load_run(output / "convergence-gaussian")
        assert run["configuration"]["method"] == method
        found[method] = cells["given-0"]
    for name in ("order1", "order1-t40"):
        assert f"interval-{name}" not in found["exact"]
        low, high = found["stored"][f"interval-{name}"][1, :, 0]
        value = plots.score_values(found["exact"][name], "conditional")[0]
        assert low - (high - low) / 4 < value < high + (high - low) / 4
        assert 0 < (high - low) / 2 < 0.0021 * value


def test_figures_are_redrawn_from_the_results_alone(finished, tmp_path):
    paths = plots.draw_convergence([finished], tmp_path, scores=("conditional", "information"))
    assert [path.name for path in paths] == ["convergence.png", "convergence.pdf"]
    assert all(path.stat().st_size > 5000 for path in paths)
    first = [path.read_bytes() for path in paths]
    redrawn = plots.draw_convergence([finished], tmp_path, scores=("conditional", "information"))
    assert [path.read_bytes() for path in redrawn] == first
    others = plots.draw_convergence([finished], tmp_path, scores=("vendi",))
    assert others[0].read_bytes() != first[0]


def test_captions_say_data_n_bandwidth_rule_truncation_and_seed(finished):
    run, _ = harness.load_run(finished)
    caption = plots._caption(run["configuration"], ["median"])
    for part in ("150 pairs", "n = 150", "'median': median distance", "t = 32, 10", "seed 0"):
        assert part in caption
    assert "outputs " in plots._panel_title(run["configuration"], "median")


def test_a_score_is_read_off_its_three_entropies():
    entropies = np.log([[[8.0], [3.0], [12.0]]])
    assert plots.score_values(entropies, "vendi")[0, 0] == pytest.approx(8)
    assert plots.score_values(entropies, "conditional")[0, 0] == pytest.approx(4)
    assert plots.score_values(entropies, "information")[0, 0] == pytest.approx(2)


def test_the_study_reports_where_curves_settle_and_reads_keys(own_files, tmp_path):
    outputs, prompts = (np.load(flag.partition("=")[2]) for flag in own_files)
    np.savez(tmp_path / "both.npz", x=outputs, t=prompts)
    both = f"{tmp_path / 'both.npz'}"
    named = (f"--outputs={both}", f"--prompts={both}")
    keys = ("--outputs_key=x", "--prompts_key=t")
    result = study(*named, *keys, *SMALL, f"--output={tmp_path}")
    _, cells = harness.load_run(tmp_path / "convergence-gaussian")
    last = plots.score_values(cells["median-0"]["order2"], "conditional")[-1]
    assert "Conditional-RKE" in result.stdout
    assert f"{last:.4g}" in result.stdout
    refused = study(*named, "--outputs_key=x", f"--output={tmp_path}", check=False)
    assert refused.returncode == 2
    assert "keys found are t, x" in refused.stderr


def test_another_configuration_is_refused_with_both_shown(finished, own_files):
    result = study(*own_files, *SMALL, "--seed=1", f"--output={finished.parent}", check=False)
    assert result.returncode == 2
    assert "seed: 0 there, 1 asked for" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes=40,1000",), "between 2 and n = 150"),
        (("--rules=nearest",), "expected variance, std, median"),
        (("--output_bandwidth=0.5",), "give both"),
        (("--scores=fidelity",), "conditional, information, vendi"),
    ],
)
def test_bad_flags_end_in_one_line(own_files, tmp_path, arguments, message):
    result = study(*own_files, *arguments, f"--output={tmp_path}", check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_interrupted_study_keeps_its_cells_and_resumes(own_files, tmp_path):
    repeats = ("--sizes=40,80", "--repeats=60", "--rules=median", f"--output={tmp_path}")
    command = [sys.executable, "-m", "experiments.convergence", *own_files, *repeats]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    folder = tmp_path / "convergence-gaussian"
    deadline = time.monotonic() + 120
    while not list(folder.glob("*.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert 0 < len(kept) < 60
    assert not (folder / "convergence.png").exists()
    study(*own_files, *repeats)
    assert len(list(folder.glob("*.npz"))) == 60
    assert all(path.stat().st_mtime_ns == before for path, before in kept.items())
    assert (folder / "convergence.png").exists()


def test_two_runs_on_one_folder_do_not_mix(tmp_path):
    store = harness.Store(tmp_path, {"study": "a"})
    with pytest.raises(ValueError, match="another run is writing"):
        harness.Store(tmp_path, {"study": "a"})
    store.close()
    harness.Store(tmp_path, {"study": "a"}).close()


def test_a_half_written_cell_never_appears(tmp_path, monkeypatch):
    store = harness.Store(tmp_path, {"study": "a"})

    def disk_full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        store.save("cell", {"value": np.ones(3)})
    monkeypatch.undo()
    assert store.missing(["cell"]) == ["cell"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "run.json"]
    store.close()


def test_damaged_results_are_named(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"configuration": {}}))
    (tmp_path / "cell-0.npz").write_bytes(b"PK damaged")
    with pytest.raises(ValueError, match=r"cell-0\.npz: cannot be read"):
        harness.load_run(tmp_path)
    with pytest.raises(ValueError, match="no readable results"):
        harness.load_run(tmp_path / "elsewhere")
