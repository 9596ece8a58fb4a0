"""The `condvendi` command, also `python -m condvendi_jax`: `score` and `compare`."""

from __future__ import annotations

import importlib
import sys

from condvendi_jax import __version__, command

_VERBS = {
    "score": "the scores of one model's outputs, with errors",
    "compare": "several models side by side, and whether they differ",
}


def main(argv: list[str]) -> None:
    """Hands the arguments to the verb."""
    words = argv[1:]
    if words == ["--version"]:
        print(__version__)
        return
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return
    # Flags alone are those of `score`.
    verb, rest = ("score", words) if words[0].startswith("-") else (words[0], words[1:])
    if verb not in _VERBS:
        raise ValueError(f"expected one of {', '.join(_VERBS)}, received {verb!r}.")
    # Each verb by itself: what the other needs is not imported.
    importlib.import_module(f"condvendi_jax.cli.{verb}").main([f"condvendi {verb}", *rest])


def _help() -> str:
    lines = ["Prompt-aware diversity scores of generative models.", ""]
    lines += ["usage: condvendi VERB [--flag=value ...]", ""]
    lines += [f"  {verb:<9}{words}" for verb, words in _VERBS.items()]
    return "\n".join([*lines, "", "condvendi VERB --help lists the flags of each."])


def run() -> None:
    """The entry of the console command."""
    if not sys.argv[1:]:
        sys.stderr.write(f"{_help()}\n")
        sys.exit(command.BAD_INPUT)
    command.run(main, parse_flags=False)


if __name__ == "__main__":
    run()
