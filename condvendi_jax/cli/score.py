"""`condvendi score`: the scores of one model's outputs, with errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from condvendi_jax import files
from condvendi_jax.cli import command, inputs, options
from condvendi_jax.inference import _evaluate as evaluation
from condvendi_jax.inference import _profile as profiles
from condvendi_jax.inference import _prompt_table as prompt_table
from condvendi_jax.inference._results import Evaluation
from condvendi_jax.kernels import Gaussian
from condvendi_jax.pairs import Pairs
from condvendi_jax.report import _render as render

# What a flag that names outputs says they are.
_SOURCES = {"outputs": "embeddings", "images": "images", "texts": "texts", "records": "records"}

_BY_PROMPT = (
    "Also write a CSV file with a line for each prompt and order: the prompt, if it was read as "
    "text; its first row, from 0; its number of outputs, n; their share of all rows; their score "
    "by themselves and its standard error, in effective numbers; their similarity, from 0 to 1; "
    "and their contributions to the scores of all rows, in effective numbers."
)
_CHECKPOINT = (
    "A file from which an interrupted call goes on; with --order=2 --noerrors, for so many rows "
    "that they take hours. It is kept at the end; other data, kernels and versions are refused."
)

USAGE = """Scores of a model's outputs and, with prompts, how much of them is the model's own.

usage: condvendi score --outputs=x.npy --prompts=t.npy [--flag=value ...]
       condvendi score --images=DIR --prompts=prompts.csv [--flag=value ...]
       condvendi score --records=answers.jsonl [--flag=value ...]
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
    flags.DEFINE_string("checkpoint", None, _CHECKPOINT, flag_values=values)
    flags.DEFINE_string("by_prompt", None, _BY_PROMPT, flag_values=values)
    flags.DEFINE_string("profile", None, options.PROFILE, flag_values=values)
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
    if given["checkpoint"]:
        alone = options.orders(given) == [2.0] and given["truncation"] is None
        if given["errors"] or not alone or given["method"]:
            raise ValueError(
                "--checkpoint: expected --order=2 --noerrors, without --truncation and --method."
            )
    if given["by_prompt"] and not (given["prompts"] or given["records"]):
        raise ValueError(f"--by_prompt={given['by_prompt']} needs --prompts: there are none.")
    chosen = options.method(given)
    if given["errors"] and not chosen.gives_errors:
        raise ValueError(f"--method={chosen.name} gives no standard errors: add --noerrors.")
    if given["by_prompt"] and not chosen.gives_errors:
        raise ValueError(
            f"--by_prompt: --method={given['method']} does not compute what a prompt contributes; "
            "expected another method, or none."
        )
    options.check_figures(given)
    options.prepare(given, inputs.sources(given, models))
    started = time.perf_counter()
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar)
        (outputs,) = read.outputs.values()
        task = bar.add_task("", total=None)

        def show(words: str) -> None:
            bar.update(task, description=words)

        settings = options.settings(given, read)
        settings["prompt_ids"] = next(iter(read.texts.values()), None)
        found = evaluation.evaluate(
            outputs,
            next(iter(read.prompts.values()), None),
            **settings,
            errors=given["errors"],
            checkpoint=given["checkpoint"],
            progress=show,
        )
        tables, over = [], None
        if given["by_prompt"]:
            tables = _tables(settings, found, read, show)
        if given["profile"]:
            over = _profile(settings, found, read, show)
    names = (*_SOURCES, "prompts", "outputs_key", "prompts_key", "weights")
    described = {name: given[name] for name in names if given[name] is not None}
    report = options.report(found, given, described | read.described, since=started)
    table = "\n".join([str(found), *read.notes])
    if tables:
        table += "\n\n" + render.prompts(tables)
    if over:
        table += f"\n\n{over}"
        report["profile"] = over.as_dict()
    targets = ("json", "latex", "by_prompt", "profile")
    with options.printed_last(table, [given[flag] for flag in targets]):
        if given["json"]:
            files.write_report(given["json"], report)
        options.write_latex(given, found, read.described)
        if tables:
            with files.atomic_writer(given["by_prompt"]) as stream:
                stream.write(render.prompts_in_csv(tables).encode())
        if over:
            from condvendi_jax.cli import figure  # Imported where it is used: matplotlib is slow.

            figure.save(over.figure(), given["profile"])


def _tables(
    settings: dict[str, Any], found: Evaluation, read: inputs.Inputs, progress: Callable[[str], Any]
) -> list[prompt_table.PromptTable]:
    """The prompts by themselves, of each order, under the bandwidths of the scores."""
    (outputs,), ((path, prompts),) = read.outputs.values(), read.prompts.items()
    given = {name: settings[name] for name in ("prompt_ids", "weights")}
    pairs = Pairs(outputs, prompts, **_kernels(settings, found), **given)
    chosen = {name: settings[name] for name in ("truncation", "method", "unbiased")}
    tables = []
    for order in settings["orders"]:
        progress(f"prompts, order {order:g}")
        labels = read.texts.get(path)
        tables.append(prompt_table.prompt_table(pairs, order=order, labels=labels, **chosen))
    return tables


def _profile(
    settings: dict[str, Any], found: Evaluation, read: inputs.Inputs, progress: Callable[[str], Any]
) -> profiles.Profile:
    """The scores of order 2 around the bandwidths of the scores."""
    (outputs,), prompts = read.outputs.values(), next(iter(read.prompts.values()), None)
    given = _kernels(settings, found) | {
        name: settings[name] for name in ("prompt_ids", "groups", "weights", "seed", "unbiased")
    }
    return profiles.profile(outputs, prompts, **given, progress=progress)


def _kernels(settings: dict[str, Any], found: Evaluation) -> dict[str, Any]:
    """The kernels of the scores: those that were given, and those of the chosen bandwidths."""
    chosen = {}
    for role, own in found.bandwidths.items():
        name = f"{role.removesuffix('s')}_kernel"
        chosen[name] = settings[name]
        if settings[name] is None:
            assert own.bandwidth is not None  # A rule chose it.
            chosen[name] = Gaussian(own.bandwidth)
    return chosen


def _model(given: dict[str, Any]) -> inputs.Model:
    """The outputs and the prompts that the flags name."""
    named = [name for name in _SOURCES if given[name] is not None]
    if not named:
        raise ValueError(
            "--outputs, --images, --texts or --records is required; --help lists all flags."
        )
    if len(named) > 1:
        raise ValueError(f"--{named[0]} and --{named[1]}: give one or the other.")
    if given["records"] is not None:
        return inputs.model_of_records(given)
    return inputs.Model(_SOURCES[named[0]], given[named[0]], given["prompts"])
