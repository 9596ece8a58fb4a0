"""Where a number comes from is never a reason to lose it."""

import importlib.metadata
import json

import jax
import pytest

import condvendi_jax
from condvendi_jax import files
from condvendi_jax.cli import provenance


@pytest.mark.parametrize("error", [importlib.metadata.PackageNotFoundError("x"), KeyError("x")])
def test_without_metadata_the_modules_say_their_versions(monkeypatch, tmp_path, error):
    def fail(name):
        raise error

    monkeypatch.setattr(importlib.metadata, "version", fail)
    found = provenance.collect()["versions"]
    assert found["condvendi_jax"] == condvendi_jax.__version__
    assert found["jax"] == jax.__version__
    assert provenance.version("no_such_package") is None
    monkeypatch.delattr(condvendi_jax, "__version__")
    record = provenance.collect()
    assert record["versions"]["condvendi_jax"] is None
    files.write_json(tmp_path / "x.json", record)
    assert json.loads((tmp_path / "x.json").read_text())["versions"]["jax"] == jax.__version__


def test_what_was_installed_comes_first_but_metadata_without_a_version_is_none(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: None)
    assert provenance.version("condvendi_jax") == condvendi_jax.__version__
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} as installed")
    assert provenance.version("jax") == "jax as installed"
