"""`condvendi compare`: several models side by side, under one bandwidth."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from condvendi_jax import command, comparison, files
from condvendi_jax.cli import inputs, options

USAGE = """Which of several models is more diverse, and whether the difference is real.

usage: condvendi compare a.npy b.npy [name=c.npy ...] --prompts=t.npy [--flag=value ...]

A file may be given a name, name=path; else it is called by its own. All models share the rows of
one --prompts file, or each has its own: --prompts=a_prompts.npy,b_prompts.npy.
"""

# What else the tables are written as: flag, name, and how.
_TABLES = {
    "csv": ("CSV", comparison.Comparison.comma_separated),
    "markdown": ("Markdown", comparison.Comparison.markdown),
}


def define_flags() -> flags.FlagValues:
    """The flags of the verb."""
    values = flags.FlagValues()
    flags.DEFINE_list(
        "prompts",
        None,
        "Embeddings of the prompts [n, d_t]: one file for all models, or one for each; without "
        "them: Vendi and RKE alone.",
        flag_values=values,
    )
    flags.DEFINE_string("key", None, "Which array of the models' files.", flag_values=values)
    flags.DEFINE_string(
        "prompts_key", None, "Which array of the prompts' files.", flag_values=values
    )
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
    options.define(values)
    return values


def main(argv: Sequence[str]) -> None:
    """Reads, compares, prints, writes."""
    values = define_flags()
    words, given = options.parse(values, argv, USAGE)
    if given["help"]:
        return
    paths = _named(words)
    prompt_paths = _prompts(given, paths)
    if not prompt_paths and given["prompts_key"] is not None:
        raise ValueError("--prompts_key without --prompts: there is nothing to use it on.")
    options.check(given)
    for flag in (*_TABLES, "plot"):
        if given[flag]:
            files.check_writable(given[flag])
    _check_plot(given["plot"])
    options.configure(given)
    started = time.perf_counter()
    with command.progress_bar() as bar:
        task = bar.add_task("", total=None)
        models = {name: files.read_array(p, key=given["key"]) for name, p in paths.items()}
        prompts = {
            name: files.read_array(p, key=given["prompts_key"]) for name, p in prompt_paths.items()
        }
        for name, outputs in models.items() if prompts else ():
            own = prompts[name if name in prompts else ""]
            inputs.refuse_equal(f"outputs of {name}", outputs, own)
        found = comparison.compare(
            models,
            prompts.get("", prompts) if prompts else None,
            **options.settings(given, paired=bool(prompts)),
            level=given["level"],
            progress=lambda words: bar.update(task, description=words),
        )
    read = {"models": paths, "prompts": prompt_paths.get("", prompt_paths) or None}
    report = options.report(found, given, read, since=started)
    with options.printed_last(found, [given[flag] for flag in ("json", *_TABLES)]):
        _write(found, report, given)


def _write(found: comparison.Comparison, report: dict[str, Any], given: dict[str, Any]) -> None:
    """The files that were asked for."""
    if given["json"]:
        files.write_json(given["json"], report)
    for flag, (_, text) in _TABLES.items():
        if given[flag]:
            with files.atomic_writer(given[flag]) as stream:
                stream.write(text(found).encode())
    if given["plot"]:
        from condvendi_jax.cli import figure  # Imported where it is used: matplotlib is slow.

        figure.draw(found, given["plot"])


def _named(words: Sequence[str]) -> dict[str, str]:
    """The models' files by name."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals:
            name, path = pathlib.Path(word).stem, word
        if not name or not path:
            raise ValueError(f"{word!r}: expected a file, or name=file.")
        if name in found:
            raise ValueError(
                f"{name!r} names both {found[name]} and {path}; give names, as name=file."
            )
        found[name] = path
    if len(found) < 2:
        raise ValueError(
            f"expected the files of at least two models, received {len(found)}; --help has more."
        )
    return found


def _prompts(given: dict[str, Any], models: dict[str, str]) -> dict[str, str]:
    """The prompts' files by model; under '' where all models share one; none without prompts."""
    paths = given["prompts"]
    if paths is None:
        return {}
    if len(paths) == 1:
        return {"": paths[0]}
    if len(paths) != len(models):
        raise ValueError(
            f"--prompts: expected one file, or one for each of {len(models)} models, received "
            f"{len(paths)}."
        )
    return dict(zip(models, paths, strict=True))


def _check_plot(path: Any) -> None:
    if path and pathlib.Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(
            f"--plot: expected a file ending in .png, .pdf or .svg, received {path!r}."
        )
