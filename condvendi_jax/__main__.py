"""The `condvendi` command, also `python -m condvendi_jax`: `score`, `compare` and `report`."""

from __future__ import annotations

import gc
import importlib
import os
import sys

from condvendi_jax import __version__

_VERBS = {
    "score": "the scores of one model's outputs, with errors",
    "compare": "several models side by side, and whether they differ",
    "report": "the same as a page of HTML, with the outputs behind the scores",
}


def main(argv: list[str]) -> int | None:
    """Hands the arguments to the verb."""
    from condvendi_jax.cli import command

    words = argv[1:]
    if not words:
        sys.stderr.write(f"{_help()}\n")
        return command.BAD_INPUT
    if words == ["--version"] or words[0] in ("-h", "--help", "help"):
        command.require_output()
        print(__version__ if words == ["--version"] else _help())
        return None
    # Flags alone are those of `score`.
    verb, rest = ("score", words) if words[0].startswith("-") else (words[0], words[1:])
    if verb not in _VERBS:
        raise ValueError(f"expected one of {', '.join(_VERBS)}, received {verb!r}.")
    # Each verb by itself: what the other needs is not imported.
    with command.importing():
        module = importlib.import_module(f"condvendi_jax.cli.{verb}")
    return module.main([f"condvendi {verb}", *rest])


def _help() -> str:
    lines = ["Prompt-aware diversity scores of generative models.", ""]
    lines += ["usage: condvendi VERB [--flag=value ...]", ""]
    lines += [f"  {verb:<9}{words}" for verb, words in _VERBS.items()]
    return "\n".join([*lines, "", "condvendi VERB --help lists the flags of each."])


def _import_numpy() -> None:
    """Imports NumPy with one thread for its matrices, which have some hundred rows here.

    OpenBLAS's threads wait for each other by spinning: for seconds, on cores that other programs
    use. It reads the variable once. JAX uses SciPy's OpenBLAS, which loads later. What a user sets
    counts.
    """
    name = "OPENBLAS_NUM_THREADS"
    unset = name not in os.environ
    if unset:
        os.environ[name] = "1"
    importlib.import_module("numpy")
    if unset:
        del os.environ[name]


def run() -> None:
    """The entry of the console command."""
    # Imports and traced programs are millions of objects that stay. To search them for garbage as
    # often as Python does by default takes a tenth of a short call.
    gc.set_threshold(50_000, 20, 100)
    try:
        _import_numpy()
        from condvendi_jax.cli import command
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        os._exit(130)
    command.run(main, parse_flags=False)


if __name__ == "__main__":
    run()
