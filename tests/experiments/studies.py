"""Runs a study as its command does, for the tests of studies."""

import dataclasses

import jax

from experiments.lab import Context, record, runner, store


def execute(study, folder, *flags):
    """Runs the study without its figures, and gives the run that it saved below `folder`.

    The figures are left out as they take most of the time; test_studies.py draws them. Of flags of
    one name the last counts: a test appends what it wants to differ.
    """
    study = record(study) if isinstance(study, type) else study
    quiet = dataclasses.replace(study, draw=None)
    last = {flag.partition("=")[0]: flag for flag in flags}
    runner.execute(quiet, [study.name, *last.values(), f"--output={folder / 'results'}"])
    (found,) = runner.run_folders(study, folder / "results")
    return store.read_run(found, study)


def computed(study, pairs, seed=0):
    """The study made ready for these pairs, and the result of its first cell."""
    setup = study.prepare(lambda: pairs, seed)
    (cell, *_) = setup.settings.cells()
    context = Context(jax.random.key(0), jax.random.key(seed), {}, lambda *words: None)
    return setup, setup.settings.compute(setup.state, context, **cell.values)
