"""`condvendi report`: several models side by side, with their outputs, as one page of HTML."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from absl import flags

from condvendi_jax import files
from condvendi_jax.cli import compare, inputs, options
from condvendi_jax.encoders import items
from condvendi_jax.encoders.record_files import RECORD_ENDINGS

USAGE = """Several models side by side as one page of HTML, with the outputs behind the scores.

usage: condvendi report a.jsonl b.jsonl --output=report.html [--flag=value ...]
       condvendi report --records='runs/*.jsonl' --output=report.html [--flag=value ...]
       condvendi report folder_a folder_b --prompts=prompts.csv --output=report.html
       condvendi report a.npy b.npy --prompts=t.npy --output_texts=a.txt,b.txt \\
           --prompt_texts=prompts.txt --output=report.html

Without --prompts, files of records are read as --records reads them. All else is as in
`condvendi compare`, and so is what is printed.
"""


def define_flags() -> flags.FlagValues:
    """The flags of the verb."""
    values = compare.define_flags()
    words = {
        "output": "The file of the page, which ends in .html.",
        "output_texts": "Beside arrays of outputs: their texts (.txt, .csv, .jsonl) or a folder of "
        "their pictures, one for each model, separated by commas, in the order of the rows.",
        "prompt_texts": "Beside arrays of prompts: their texts, one file for all models, or one "
        "for each, in the order of the rows.",
    }
    for name, word in words.items():
        flags.DEFINE_string(name, None, word, flag_values=values)
    return values


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    words, given = options.parse(define_flags(), argv, USAGE)
    if given["help"]:
        return
    if given["output"] is None:
        raise ValueError("--output: expected the file of the page, such as --output=report.html.")
    if pathlib.Path(given["output"]).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--output: expected a file ending in .html, received {given['output']}.")
    command = shlex.join(["condvendi", "report", *argv[1:]])
    endings = {pathlib.Path(word).suffix.lower() for word in words}
    if words and given["prompts"] is None and endings <= {*RECORD_ENDINGS}:
        if given["records"] is not None:
            raise ValueError(f"--records={given['records']} and {words[0]}: give one or the other.")
        words, given["records"] = [], ",".join(words)

    def shown(read: inputs.Inputs) -> dict[str, Any]:
        names = [read.described.get(f"{medium}_encoder") for medium in ("image", "text")]
        return {
            "outputs": _outputs(given, read),
            "prompts": _prompts(given, read),
            "encoder": " and ".join(name for name in names if name) or None,
            "command": command,
        }

    compare.run(words, given, shown)


def _outputs(given: dict[str, Any], read: inputs.Inputs) -> Any:
    """The texts or pictures of the outputs of each model, or None."""
    if given["output_texts"] is None:
        return read.items or None
    if read.items:
        raise ValueError("--output_texts: the outputs are texts or pictures themselves.")
    found = {}
    for name, path in _of_each("output_texts", given, read).items():
        is_folder = files.expanded(path).is_dir()
        found[name] = items.list_images(path) if is_folder else items.read_texts(path).texts
        _check_number("output_texts", path, found[name], read, name)
    return found


def _prompts(given: dict[str, Any], read: inputs.Inputs) -> Any:
    """The texts of the prompts of each model, or None."""
    if given["prompt_texts"] is not None:
        if read.texts:
            raise ValueError("--prompt_texts: the prompts are texts themselves.")
        found = {}
        for name, path in _of_each("prompt_texts", given, read).items():
            found[name] = items.read_prompts(path).texts
            _check_number("prompt_texts", path, found[name], read, name)
        return found
    if not read.texts or given["records"] is not None:
        return read.texts or None
    paths = options.of_models("prompts", given["prompts"], list(read.outputs))
    return {name: read.texts[paths.get(name) or given["prompts"]] for name in read.outputs}


def _of_each(flag: str, given: dict[str, Any], read: inputs.Inputs) -> dict[str, str]:
    """The file of each model that a flag names."""
    paths = options.of_models(flag, given[flag], list(read.outputs))
    return {name: paths.get(name) or given[flag] for name in read.outputs}


def _check_number(
    flag: str, path: str, found: Sequence[Any], read: inputs.Inputs, name: str
) -> None:
    if len(found) != len(read.outputs[name]):
        raise ValueError(
            f"--{flag}: {path} holds {len(found):,} for the {len(read.outputs[name]):,} outputs of "
            f"{name}; expected one for each row, in the order of the rows."
        )
