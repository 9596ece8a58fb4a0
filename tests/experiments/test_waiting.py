"""What a user waits for: what is run, with which caches, and what the table says."""

import subprocess

import numpy as np
import pytest
import studies

from experiments.cost import waiting
from experiments.cost.waiting import COMMANDS, Waiting


@pytest.fixture
def asked(monkeypatch):
    """The commands that would be run, each with its environment; no data are written."""
    found = []
    monkeypatch.setattr(waiting, "write_data", lambda folder: np.save(folder / "x.npy", [1.0]))
    monkeypatch.setattr(subprocess, "run", lambda call, **given: found.append((call[1:], given)))
    return found


def test_each_round_has_a_cache_of_its_own_that_the_next_call_finds(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/kept")
    run = studies.execute(Waiting, tmp_path, "--commands=rke,texts")
    assert run.found.seconds.sizes == {"command": 2, "round": 3, "call": 2}
    caches = [given["env"]["XDG_CACHE_HOME"] for _, given in asked]
    assert caches[::2] == caches[1::2]
    assert len(set(caches)) == 6
    assert all("JAX_COMPILATION_CACHE_DIR" not in given["env"] for _, given in asked)
    words = [call for call, _ in asked]
    assert words[0] == ["-m", "condvendi_jax.cli", *COMMANDS["rke"][1].split(), "--overwrite"]
    # Texts are embedded anew in each call.
    assert len({call[-2] for call in words[6:]}) == 6
    assert words[6][-2].startswith("--cache=")


def test_two_rounds_are_refused_and_the_table_has_a_spread(asked, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="--repeats: expected a number at least 3, received 2"):
        studies.execute(Waiting, tmp_path, "--repeats=2")
    spent = iter([9.0, 1.0, 8.0, 2.0, 4.0, 3.0])
    monkeypatch.setattr(waiting, "seconds", lambda *given: next(spent))
    run = studies.execute(Waiting, tmp_path, "--commands=vendi")
    facts = Waiting.facts([run])
    shown = [[*column.cells] for column in facts["table"].columns]
    assert shown == [["score, 1,000 pairs"], ["8 (4-9)"], ["2 (1-3)"]]
    assert (facts["seconds"]("vendi"), facts["seconds"]("vendi", "first")) == (2.0, 8.0)


@pytest.mark.slow
def test_the_files_of_all_commands_are_there(tmp_path):
    assert waiting.seconds("imports", tmp_path, str(tmp_path)) > 0
    waiting.write_data(tmp_path)
    words = [word for name in COMMANDS for word in waiting.arguments(name, "f")]
    files = {w.partition("=")[2] or w for w in words if w.endswith((".npy", ".txt"))}
    assert {f"m{k}.npy" for k in range(5)} < files
    assert all((tmp_path / file).exists() for file in files)
