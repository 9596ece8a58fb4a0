"""`condvendi compare`: several models side by side, under one bandwidth."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from condvendi_jax.cli import command, flags, inputs, options
from condvendi_jax.cli.flags import flag
from condvendi_jax.cli.options import Target
from condvendi_jax.inference import comparisons
from condvendi_jax.results.comparison import Comparison


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(options.Options):
    """Which of several models is more diverse, and whether the difference is real.

    usage: condvendi compare a.jsonl b.jsonl [--flag=value ...]
           condvendi compare a.npy b.npy [name=c.npy ...] --prompts=t.npy [--flag=value ...]
           condvendi compare folder_a folder_b --prompts=prompts.csv [--flag=value ...]

    A model is a file of records, which hold answers with their prompts (.jsonl, .json, .csv, .tsv,
    .parquet, .eval), of embeddings (.npy, .npz, .safetensors), of texts (.txt, .csv, .jsonl), or a
    folder of pictures; all models are of one kind. Pictures and texts are embedded. A model
    may be given a name, name=path; else it has that of its file or, if two share it, its path. All
    models share the rows of one --prompts file, or each has its own: --prompts=a.npy,b.npy.
    """

    several = True
    level: float = flag(
        0.05, "The rate of false differences, over all pairs of models.", above=0, below=1
    )
    equal_ratio: float = flag(
        1.1,
        "Models are said to be equal where the ratio of their scores is shown to be smaller.",
        above=1,
    )
    one_population: bool = flag(
        False,
        "Compare models on all of their prompts, as samples of one population of prompts, also on "
        "those that only some models answer.",
    )
    csv: Target | None = flag(None, "Also write the table to this file as CSV.")


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    words, given = flags.parse(Options, argv)
    read, compared = read_and_compare(words, given)
    options.write(given, compared, read)


def read_and_compare(words: Sequence[str], given: Options) -> tuple[inputs.Inputs, Comparison]:
    """What a command line names, read and compared."""
    options.keep_programs()
    models, one = inputs.models_of(words, given), {"one_population": given.one_population}
    chosen = one | {"level": given.level, "equal_ratio": given.equal_ratio}
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar)
        settings: Any = read.settings | chosen | {"profile": True if given.profile else None}
        compared = comparisons.compare(read.pairs(), **settings)
        return read, comparisons.with_texts(compared, read.items, **one)
