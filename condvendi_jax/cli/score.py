"""`condvendi score`: the scores of one model's outputs, with errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from condvendi_jax.cli import command, files, inputs, options
from condvendi_jax.inference import _evaluate as evaluation

# What a flag that names outputs says they are.
_SOURCES = {"outputs": "embeddings", "images": "images", "texts": "texts"}

USAGE = """Scores of a model's outputs and, with prompts, how much of them is the model's own.

usage: condvendi score --outputs=x.npy --prompts=t.npy [--flag=value ...]
       condvendi score --images=DIR --prompts=prompts.csv [--flag=value ...]
"""


def define_flags() -> flags.FlagValues:
    """The flags of the verb."""
    values = flags.FlagValues()
    words = {
        "outputs": "Embeddings of the outputs [n, d_x]: a .npy, .npz or .safetensors file.",
        "images": "Instead of --outputs: a folder of pictures, which are embedded.",
        "texts": "Instead of --outputs: a .txt, .csv or .jsonl file of texts, which are embedded.",
        "prompts": "Their prompts: embeddings [n, d_t] in an array file, or texts in a .txt file "
        "of one prompt a line, a .csv or a .jsonl file. Without prompts: Vendi and RKE only.",
    }
    for name, word in words.items():
        flags.DEFINE_string(name, None, word, flag_values=values)
    inputs.define(values)
    flags.DEFINE_bool("errors", True, "Compute standard errors.", flag_values=values)
    options.define(values)
    return values


def main(argv: Sequence[str]) -> None:
    """Reads, scores, prints, writes."""
    values = define_flags()
    words, given = options.parse(values, argv, USAGE)
    if given["help"]:
        return
    command.no_words(words)
    models = {"": _model(given)}
    options.check(given)
    inputs.check(given, models)
    if not given["errors"]:
        for flag in ("groups", "groups_file"):
            if given[flag] is not None:
                raise ValueError(f"--{flag}={given[flag]} has no effect with --noerrors.")
    options.prepare(given, inputs.sources(given, models))
    started = time.perf_counter()
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar)
        (outputs,) = read.outputs.values()
        task = bar.add_task("", total=None)
        found = evaluation.evaluate(
            outputs,
            next(iter(read.prompts.values()), None),
            **options.settings(given, paired=bool(read.prompts)),
            errors=given["errors"],
            progress=lambda words: bar.update(task, description=words),
        )
    names = (*_SOURCES, "prompts", "outputs_key", "prompts_key", "weights")
    described = {name: given[name] for name in names if given[name] is not None}
    report = options.report(found, given, described | read.described, since=started)
    table = "\n".join([str(found), *read.notes])
    with options.printed_last(table, [given["json"]]):
        if given["json"]:
            files.write_report(given["json"], report)


def _model(given: dict[str, Any]) -> inputs.Model:
    """The outputs and the prompts that the flags name."""
    named = [name for name in _SOURCES if given[name] is not None]
    if not named:
        raise ValueError("--outputs, --images or --texts is required; --help lists all flags.")
    if len(named) > 1:
        raise ValueError(f"--{named[0]} and --{named[1]}: give one or the other.")
    return inputs.Model(_SOURCES[named[0]], given[named[0]], given["prompts"])
