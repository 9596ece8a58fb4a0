"""The `condvendi` command, also `python -m condvendi_jax.cli`, and its verbs."""

import gc
import sys

from condvendi_jax import __version__
from condvendi_jax.cli import command

_VERBS = {
    "score": "score one model's outputs, with 95% intervals",
    "compare": "compare several models, and test whether they differ",
    "plan": "how many prompts and answers you need to find a difference",
    "report": "compare models as a page of HTML, with their answers or pictures",
    "enough": "after each answer, whether to ask the model again",
}


def main(argv: list[str]) -> int | None:
    """Hands the arguments to the verb."""
    if not argv[1:]:
        sys.stderr.write(f"{_help()}\n")
        return command.BAD_INPUT
    verb, *rest = argv[1:]
    if argv[1:] == ["--version"] or verb in ("-h", "--help", "help"):
        print(__version__ if verb == "--version" else _help())
        return None
    if verb not in _VERBS:
        raise ValueError(f"expected one of {', '.join(_VERBS)}, received {verb!r}.")
    command.use_one_thread()
    from condvendi_jax.cli import verbs  # After this, as it imports NumPy.

    return getattr(verbs, verb)(rest)


def _help() -> str:
    lines = ["How diverse are the answers of generative models to one prompt?", ""]
    lines += ["usage: condvendi VERB [--flag=value ...]"]
    lines += ["       condvendi compare a.jsonl b.jsonl", "       condvendi --version", ""]
    lines += [f"  {verb:<9}{words}" for verb, words in _VERBS.items()]
    return "\n".join([*lines, "", "condvendi VERB --help lists the flags of each."])


def run() -> None:
    """The entry of the console command."""
    # Imports and traced programs are millions of objects that stay. To search them for garbage as
    # often as Python does by default takes a tenth of a short call.
    gc.set_threshold(50_000, 20, 100)
    try:
        command.run(main)
    finally:
        gc.freeze()  # As the process ends, they are not searched again, which takes 0.3 CPU s.


if __name__ == "__main__":
    run()
