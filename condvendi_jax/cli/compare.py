"""`condvendi compare`: several models side by side, under one bandwidth."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from condvendi_jax import report as reports
from condvendi_jax.base import checks, files
from condvendi_jax.cli import command, inputs, options
from condvendi_jax.cli.options import Target, option
from condvendi_jax.inference import comparisons


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(options.Options):
    """Which of several models is more diverse, and whether the difference is real.

    usage: condvendi compare a.jsonl b.jsonl [--flag=value ...]
           condvendi compare a.npy b.npy [name=c.npy ...] --prompts=t.npy [--flag=value ...]
           condvendi compare folder_a folder_b --prompts=prompts.csv [--flag=value ...]

    A model is a file of records, which hold answers with their prompts (.jsonl, .json, .csv,
    .parquet, .eval), of embeddings (.npy, .npz, .safetensors), of texts (.txt, .csv, .jsonl), or a
    folder of pictures; all models are of one kind. Pictures and texts are embedded. A model
    may be given a name, name=path. Otherwise it has the name of its file or, where two files have
    one name, its path. All models share the rows of one --prompts file, or each has its own:
    --prompts=a_prompts.npy,b_prompts.npy.
    """

    level: float = option(
        0.05,
        "The rate of false differences that the letters allow.",
        check=functools.partial(checks.check_number, name="level", above=0, below=1),
    )
    csv: Target | None = option(None, "Also write the table to this file as CSV.")
    markdown: Target | None = option(None, "Also write the table to this file as Markdown.")


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    run(*options.parse(Options, argv))


def run(words: Sequence[str], given: Options, called: str | None = None) -> None:
    """Compares the models of a command line; `called` is the command that a page shows."""
    words, given = inputs.as_records(words, given)
    if given.records is not None:
        paths, prompt_paths = {}, {}
        models = {"": inputs.Model("records", given.records, given.records)}
    else:
        paths = _named(words)
        prompt_paths = given.by_model("prompts", list(paths))
        models = {
            name: inputs.Model(inputs.kind_of(path), path, prompt_paths.get(name, given.prompts))
            for name, path in paths.items()
        }
    inputs.check(given, models)
    started = time.perf_counter()
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar, several=True)
        task = bar.add_task("", total=None)
        prompts: Any = read.prompts or None
        texts: Any = read.texts or None
        if given.records is None and not prompt_paths:  # All models share the rows of one file.
            prompts = next(iter(read.prompts.values()), None)
            texts = next(iter(read.texts.values()), texts)
        compared = comparisons.compare(
            read.outputs,
            prompts,
            prompt_ids=texts,
            **read.settings(given, list(read.outputs)),
            level=given.level,
            profile=True if given.profile else None,
            progress=lambda words: bar.update(task, description=words),
        )
    names = ("outputs_key", "prompts_key", "weights")
    described = {name: getattr(given, name) for name in names if given.is_set(name)}
    if given.records is not None:
        described |= {"records": given.records}
    else:
        described |= {"models": paths, "prompts": prompt_paths or given.prompts}

    further: dict[str, Callable[[str], Any]] = {
        "csv": lambda path: files.write_text(path, compared.comma_separated()),
        "markdown": lambda path: files.write_text(path, compared.markdown() + "\n"),
    }
    if called is not None:
        encoders = [read.described.get(f"{medium}_encoder") for medium in ("image", "text")]
        further["output"] = lambda path: reports.html(
            compared,
            path,
            outputs=read.items or None,
            prompts=read.texts or None,
            encoder=" and ".join(filter(None, encoders)) or None,
            command=called,
        )
    options.write(
        given,
        compared,
        described | read.described,
        read.notes,
        (),
        further,
        profile=compared.profile,
        since=started,
    )


def _named(words: Sequence[str]) -> dict[str, str]:
    """The models' paths by name."""
    named = [_split(word) for word in words]
    short = iter(files.names_of([path for name, path in named if name is None]))
    paths: dict[str, str] = {}
    for given, path in named:
        name = next(short) if given is None else given
        if name in paths:
            raise ValueError(
                f"{name!r} names both {paths[name]} and {path}; give names, as name=path."
            )
        paths[name] = path
    if len(paths) < 2:
        raise ValueError(
            f"expected the files of at least two models, received {len(paths)}; --help has more."
        )
    return paths


def _split(word: str) -> tuple[str | None, str]:
    """The name that a word gives to a model, None if it gives none, and the path."""
    name, equals, path = word.partition("=")
    if files.expanded(word).exists() or not equals or "/" in name:
        name, path = None, word
    if name == "" or not path:
        raise ValueError(f"{word!r}: expected a path, or name=path.")
    return name, path
