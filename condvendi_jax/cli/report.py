"""`condvendi report`: several models side by side, with their outputs, as one page of HTML."""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from condvendi_jax import report as reports
from condvendi_jax.cli import compare, flags, options
from condvendi_jax.cli.flags import flag
from condvendi_jax.cli.options import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(compare.Options):
    """Several models side by side as one page of HTML, with the outputs behind the scores.

    usage: condvendi report a.jsonl b.jsonl --output=report.html [--flag=value ...]
           condvendi report folder_a folder_b --prompts=prompts.csv --output=report.html

    All else is as in `condvendi compare`, and so is what is printed. Outputs of arrays are shown by
    their row; `condvendi_jax.report.html` shows the texts or pictures that you give it.
    """

    output: Target | None = flag(
        None, "The file of the page, which ends in .html.", endings=(".html", ".htm")
    )


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    words, given = flags.parse(Options, argv)
    if given.output is None:
        raise ValueError("--output: expected the file of the page, such as --output=report.html.")
    read, compared = compare.read_and_compare(words, given)
    shown: dict[str, Any] = {"outputs": read.items or None, "prompts": read.dataset.prompt_texts}
    shown |= {"encoder": read.encoders(), "command": shlex.join(["condvendi", "report", *argv])}
    further = {"output": lambda path: reports.html(compared, path, **shown)}
    options.write(given, compared, read, further)
