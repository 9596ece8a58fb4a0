"""`condvendi report`: several models side by side, with their outputs, as one page of HTML."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from condvendi_jax.base import files
from condvendi_jax.cli import compare, inputs, options
from condvendi_jax.cli.options import Source, Target, option
from condvendi_jax.encoders import items
from condvendi_jax.encoders.record_files import RECORD_ENDINGS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(compare.Options):
    r"""Several models side by side as one page of HTML, with the outputs behind the scores.

    usage: condvendi report a.jsonl b.jsonl --output=report.html [--flag=value ...]
           condvendi report --records='runs/*.jsonl' --output=report.html [--flag=value ...]
           condvendi report folder_a folder_b --prompts=prompts.csv --output=report.html
           condvendi report a.npy b.npy --prompts=t.npy --output_texts=a.txt,b.txt \
               --prompt_texts=prompts.txt --output=report.html

    Without --prompts, files of records are read as --records reads them. All else is as in
    `condvendi compare`, and so is what is printed.
    """

    output: Target | None = option(
        None, "The file of the page, which ends in .html.", endings=(".html", ".htm")
    )
    output_texts: Source | None = option(
        None,
        "Beside arrays of outputs: their texts (.txt, .csv, .jsonl) or a folder of their pictures, "
        "one for each model, separated by commas, in the order of the rows.",
    )
    prompt_texts: Source | None = option(
        None,
        "Beside arrays of prompts: their texts, one file for all models, or one for each, in the "
        "order of the rows.",
    )


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    words, given = options.parse(Options, argv)
    if given.output is None:
        raise ValueError("--output: expected the file of the page, such as --output=report.html.")
    endings = {pathlib.Path(word).suffix.lower() for word in words}
    if words and given.prompts is None and endings <= {*RECORD_ENDINGS}:
        if given.records is not None:
            raise ValueError(f"--records={given.records} and {words[0]}: give one or the other.")
        words, given = [], dataclasses.replace(given, records=Source(",".join(words)))

    def shown(read: inputs.Inputs) -> dict[str, Any]:
        names = [read.described.get(f"{medium}_encoder") for medium in ("image", "text")]
        return {
            "outputs": _outputs(given, read),
            "prompts": _prompts(given, read),
            "encoder": " and ".join(name for name in names if name) or None,
            "command": shlex.join(["condvendi", "report", *argv]),
        }

    compare.run(words, given, shown)


def _outputs(given: Options, read: inputs.Inputs) -> Any:
    """The texts or pictures of the outputs of each model, or None."""
    if given.output_texts is None:
        return read.items or None
    if read.items:
        raise ValueError("--output_texts: the outputs are texts or pictures themselves.")
    return _of_each("output_texts", given, read)


def _prompts(given: Options, read: inputs.Inputs) -> Any:
    """The texts of the prompts of each model, or None."""
    if given.prompt_texts is not None:
        if read.texts:
            raise ValueError("--prompt_texts: the prompts are texts themselves.")
        return _of_each("prompt_texts", given, read)
    return read.texts or None


def _of_each(flag: str, given: Options, read: inputs.Inputs) -> dict[str, Any]:
    """The texts or pictures of each model, from the files that a flag names."""
    paths, shared = given.by_model(flag, list(read.outputs)), getattr(given, flag)
    shown: dict[str, Any] = {}
    for name, rows in read.outputs.items():
        path = paths.get(name) or shared
        if flag == "prompt_texts":
            shown[name] = items.read_prompts(path).texts
        elif files.expanded(path).is_dir():
            shown[name] = items.list_images(path)
        else:
            shown[name] = items.read_texts(path).texts
        if len(shown[name]) != len(rows):
            raise ValueError(
                f"--{flag}: {path} holds {len(shown[name]):,} for the {len(rows):,} outputs of "
                f"{name}; expected one for each row, in the order of the rows."
            )
    return shown
