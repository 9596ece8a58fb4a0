"""`condvendi compare`: several models side by side, under one bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from condvendi_jax import files
from condvendi_jax.cli import command, inputs, options
from condvendi_jax.inference import _compare as comparison

USAGE = """Which of several models is more diverse, and whether the difference is real.

usage: condvendi compare a.npy b.npy [name=c.npy ...] --prompts=t.npy [--flag=value ...]
       condvendi compare folder_a folder_b --prompts=prompts.csv [--flag=value ...]
       condvendi compare --records='runs/*.jsonl' [--flag=value ...]

A model is a file of embeddings (.npy, .npz, .safetensors), a folder of pictures, or a file of texts
(.txt, .csv, .jsonl); all models are of one kind. Pictures and texts are embedded. A model may be
given a name, name=path. Otherwise its name is that of its file or, where several files have one
name, the part of the path that differs. All models share the rows of one --prompts file, or each
has its own: --prompts=a_prompts.npy,b_prompts.npy.
"""

# What else the tables are written as: flag, name, and how.
_TABLES = {
    "csv": ("CSV", comparison.Comparison.comma_separated),
    "markdown": ("Markdown", lambda found: files.marked(found.markdown())),
}


def define_flags() -> flags.FlagValues:
    """The flags of the verb."""
    values = flags.FlagValues()
    flags.DEFINE_string(
        "prompts",
        None,
        "The prompts: embeddings [n, d_t], or texts in a .txt, .csv or .jsonl file. One file for "
        "all models, or one for each, separated by commas. Without prompts: Vendi and RKE only.",
        flag_values=values,
    )
    inputs.define(values)
    flags.DEFINE_float(
        "level", 0.05, "The rate of false differences that the letters allow.", flag_values=values
    )
    for name, (kind, _) in _TABLES.items():
        flags.DEFINE_string(
            name, None, f"Also write the table to this file as {kind}.", flag_values=values
        )
    flags.DEFINE_string(
        "plot", None, "Also draw the scores to this file (.png, .pdf, .svg).", flag_values=values
    )
    flags.DEFINE_string("profile", None, options.PROFILE, flag_values=values)
    options.define(values)
    return values


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    words, given = options.parse(define_flags(), argv, USAGE)
    if not given["help"]:
        run(words, given)


def run(
    words: Sequence[str],
    given: dict[str, Any],
    shown: Callable[[inputs.Inputs], dict[str, Any]] | None = None,
) -> None:
    """Compares the models of a command line.

    `shown` gives the arguments of `Comparison.html` from what was read, for a page in --output.
    """
    if given["records"] is not None:
        command.no_words(words)
        paths, prompt_paths = {}, {}
        models = {"": inputs.model_of_records(given)}
    else:
        paths = _named(words)
        prompt_paths = options.of_models("prompts", given["prompts"], list(paths))
        models = {
            name: inputs.Model(inputs.kind_of(path), path, prompt_paths.get(name, given["prompts"]))
            for name, path in paths.items()
        }
    options.check(given)
    if not 0 < given["level"] < 1:
        raise ValueError(f"--level: expected a number between 0 and 1, received {given['level']}.")
    inputs.check(given, models)
    options.check_figures(given)
    options.prepare(given, inputs.sources(given, models))
    started = time.perf_counter()
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar, several=True)
        beside = shown(read) if shown else {}
        task = bar.add_task("", total=None)

        def of_models(by_path: dict[str, Any]) -> Any:
            """What was read of prompts: of all models, or of each by its name."""
            if given["records"] is not None:
                return by_path
            own = {name: by_path.get(path) for name, path in prompt_paths.items()}
            return own or by_path.get(given["prompts"])

        prompts, texts = of_models(read.prompts), of_models(read.texts) if read.texts else None
        if texts is None and prompts is not None:
            texts = beside.get("prompts")
        found = comparison.compare(
            read.outputs,
            prompts,
            prompt_ids=texts,
            **options.settings(given, read, list(read.outputs)),
            level=given["level"],
            profile=True if given["profile"] else None,
            progress=lambda words: bar.update(task, description=words),
        )
        bar.update(task, description="page")
        page = found.html(**beside) if shown else ""
    names = ("outputs_key", "prompts_key", "weights")
    keys = {name: given[name] for name in names if given[name] is not None}
    described = {"models": paths, "prompts": prompt_paths or given["prompts"], **keys}
    if given["records"] is not None:
        described = {"records": given["records"], **keys}
    report = options.report(found, given, described | read.described, since=started)
    table = "\n".join([str(found), *read.notes])
    targets = [given.get(flag) for flag in ("json", "latex", "output", *_TABLES)]
    with options.printed_last(table, targets):
        _write(found, report, given)
        if page:
            with files.atomic_writer(given["output"]) as stream:
                stream.write(files.marked(page).encode())


def _write(found: comparison.Comparison, report: dict[str, Any], given: dict[str, Any]) -> None:
    """The files that were asked for."""
    if given["json"]:
        files.write_report(given["json"], report)
    options.write_latex(given, found, report["inputs"])
    for flag, (_, text) in _TABLES.items():
        if given[flag]:
            with files.atomic_writer(given[flag]) as stream:
                stream.write(text(found).encode())
    if given["plot"] or given["profile"]:
        from condvendi_jax.cli import figure  # Imported where it is used: matplotlib is slow.

        if given["plot"]:
            figure.save(figure.draw(found), given["plot"])
        if given["profile"]:
            assert found.profile is not None  # It was asked for.
            figure.save(found.profile.figure(), given["profile"])


def _named(words: Sequence[str]) -> dict[str, str]:
    """The models' paths by name."""
    named = [_split(word) for word in words]
    short = iter(files.names_of([path for name, path in named if name is None]))
    found: dict[str, str] = {}
    for given, path in named:
        name = next(short) if given is None else given
        if name in found:
            raise ValueError(
                f"{name!r} names both {found[name]} and {path}; give names, as name=path."
            )
        found[name] = path
    if len(found) < 2:
        raise ValueError(
            f"expected the files of at least two models, received {len(found)}; --help has more."
        )
    return found


def _split(word: str) -> tuple[str | None, str]:
    """The name that a word gives to a model, None if it gives none, and the path."""
    name, equals, path = word.partition("=")
    is_path = files.expanded(word).exists()
    if equals and is_path and name and path and "/" not in name and files.expanded(path).exists():
        raise ValueError(
            f"{word!r}: could be the file of this name, or the file {path} with the name {name}; "
            f"write ./{word} or {name}=./{path}."
        )
    if is_path or not equals or "/" in name:
        name, path = None, word
    if name == "" or not path:
        raise ValueError(f"{word!r}: expected a path, or name=path.")
    return name, path
