"""Runs a study as its command does, for the tests of studies."""

from typing import Any

import jax
import pytest

from experiments.lab import Context, runner, sizes, store


def changed(study, **attributes):
    """The study with other attributes; functions take no `self`."""
    functions = {k: staticmethod(v) if callable(v) else v for k, v in attributes.items()}
    return type(study.__name__, (study,), {"__doc__": study.__doc__, **functions})


def execute(study, folder, *flags):
    """Runs the study without its figures, and gives the run that it saved below `folder`.

    The figures are left out as they take most of the time; test_studies.py draws them. Of flags of
    one name the last counts: a test appends what it wants to differ.
    """
    last = {flag.partition("=")[0]: flag for flag in flags}
    undrawn = changed(study, figures=lambda runs: {})
    runner.execute(undrawn, [study.name, *last.values(), f"--output={folder / 'results'}"])
    (found,) = runner.run_folders(study, folder / "results")
    return store.read_run(found, study)


def computed(study, pairs, seed=0) -> tuple[Any, Any]:
    """The study made ready for these pairs, and the result of its first cell."""
    setup = study.prepare(lambda: pairs, seed)
    (cell, *_) = setup.study.cells()
    context = Context(jax.random.key(0), jax.random.key(seed), lambda *words: None)
    return setup, setup.study.compute(setup.state, context, **cell.values)


def flags_of(small, folder):
    """The flags of a run of seconds: a list, or what a function writes into a folder."""
    return small(folder) if callable(small) else small


def finished(study, small):
    """A fixture for a test module: a small run of the study, computed once.

    It says along which axes the number of rows behind a value changes. `small` is as in `flags_of`.
    """

    @pytest.fixture(scope="module")
    def run(tmp_path_factory):
        folder = tmp_path_factory.mktemp(study.name)
        found = execute(study, folder, *flags_of(small, folder))
        sizes.refuse_unsaid(found)
        return found

    return run


def refuses(*cases):
    """A test that small runs are refused with other flags.

    Args:
      *cases: the study, its small run as in `flags_of`, the flags, separated by spaces, and a
        pattern that the error matches.
    """

    @pytest.mark.parametrize(("study", "small", "flags", "message"), cases)
    def test(tmp_path, study, small, flags, message):
        with pytest.raises(ValueError, match=message):
            execute(study, tmp_path, *flags_of(small, tmp_path), *flags.split())

    return test
