"""Runs a study as its command does, for the tests of studies."""

import dataclasses

from experiments.lab import runner, store


def execute(study, folder, *flags):
    """Runs the study without its figures, and gives the run that it saved below `folder`.

    The figures are left out as they take most of the time; test_studies.py draws them. Of flags of
    one name the last counts: a test appends what it wants to differ.
    """
    quiet = dataclasses.replace(study, draw=None)
    last = {flag.partition("=")[0]: flag for flag in flags}
    runner.execute(quiet, [study.name, *last.values(), f"--output={folder / 'results'}"])
    (found,) = runner.run_folders(study, folder / "results")
    return store.read_run(found, study)
