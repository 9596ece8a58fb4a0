"""`condvendi score`: the scores of one model's outputs, with errors."""

from __future__ import annotations

import time
from collections.abc import Sequence

from absl import flags

from condvendi_jax import command, evaluation, files
from condvendi_jax.cli import inputs, options

USAGE = """Scores of a model's outputs and, with prompts, how much of them is the model's own.

usage: condvendi score --outputs=x.npy --prompts=t.npy [--flag=value ...]
       condvendi score --images=DIR --prompts=prompts.csv [--flag=value ...]
"""


def define_flags() -> flags.FlagValues:
    """The flags of the verb."""
    values = flags.FlagValues()
    inputs.define(values)
    flags.DEFINE_enum(
        "errors",
        "auto",
        ["auto", "all", "none"],
        f"Standard errors: 'auto' leaves them out above n = {evaluation.ERRORS_UP_TO:,} where they "
        "take one decomposition a group (every order but 2).",
        flag_values=values,
    )
    options.define(values)
    return values


def main(argv: Sequence[str]) -> None:
    """Reads, scores, prints, writes."""
    values = define_flags()
    words, given = options.parse(values, argv, USAGE)
    if given["help"]:
        return
    command.no_words(words)
    options.check(given)
    inputs.check(given)
    if given["errors"] == "none":
        for flag in ("groups", "groups_file"):
            if given[flag] is not None:
                raise ValueError(f"--{flag}: with --errors=none there is no jackknife.")
    options.configure(given)
    started = time.perf_counter()
    with command.progress_bar() as bar:
        read = inputs.read(given, bar)
        task = bar.add_task("", total=None)
        found = evaluation.evaluate(
            **read.arrays,
            **options.settings(given, paired="prompts" in read.arrays),
            errors=given["errors"],
            progress=lambda words: bar.update(task, description=words),
        )
    report = options.report(found, given, read.described, since=started)
    table = "\n".join([str(found), *read.notes])
    with options.printed_last(table, [given["json"]]):
        if given["json"]:
            files.write_json(given["json"], report)
