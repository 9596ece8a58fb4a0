"""Where a number comes from is never a reason to lose it."""

import importlib.metadata

import jax

import condvendi_jax
from condvendi_jax.cli import provenance


def test_without_metadata_the_modules_say_their_versions(monkeypatch):
    def fail(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", fail)
    versions = provenance.collect()["versions"]
    assert versions["condvendi_jax"] == condvendi_jax.__version__
    assert versions["jax"] == jax.__version__
    assert provenance.version("no_such_package") is None


def test_the_installed_version_comes_first(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} as installed")
    assert provenance.version("jax") == "jax as installed"
