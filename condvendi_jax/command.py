"""What every command line of the project shares: exit statuses, one-line errors, progress."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags, logging
from rich import console, progress

INTERRUPTED = 130
BAD_INPUT = 2


_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}


def run(main: Callable[[list[str]], Any], *, parse_flags: bool = True) -> None:
    """Runs `main` under absl: bad input ends in one clear line and a non-zero exit status.

    Exit statuses: what `main` returns, 0 where that is None, and for help; 2 for input that is
    refused, 1 for a malformed flag that absl itself parses and for a reader that left, 130 for an
    interrupt.

    Args:
      main: receives the arguments that are not flags, the program's name first.
      parse_flags: whether the global flags are parsed; if not, `main` receives all arguments.
    """

    def quiet_main(argv: list[str]) -> Any:
        # JAX logs each kind of device that it looked for and did not find.
        logging.set_verbosity(logging.WARNING)
        status = main(argv)
        sys.stdout.flush()  # Here, where it is known what to do about a reader that has gone.
        return status

    warnings.showwarning = _show_warning
    try:
        if parse_flags:
            app.run(quiet_main)
        else:
            app.run(quiet_main, flags_parser=_untouched)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: finalising the interpreter while XLA's threads still compute can crash.
        os._exit(INTERRUPTED)
    except BrokenPipeError:
        # Who reads our output has seen enough. Nothing is left to be said, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except SystemExit:
        # absl counts a wish for help among the errors.
        if parse_flags and _HELP & set(sys.argv[1:]):
            sys.exit(0)
        raise
    except (ValueError, TypeError, OSError, ArithmeticError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(BAD_INPUT)


def parse(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Parses flags of a program's own, and returns the words that are none, without the name.

    Raises:
      ValueError: a flag is unknown or malformed.
    """
    try:
        return values(list(argv))[1:]
    except flags.Error as error:
        raise ValueError(str(error)) from error


def no_words(words: Sequence[str]) -> None:
    """Raises ValueError where there are words on a command line that takes flags only."""
    if words:
        raise ValueError(f"unexpected argument {words[0]!r}; flags are written --name=value.")


def list_flags(values: flags.FlagValues, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """A line for each flag: its name, its help, what it is by default and what it may be.

    Args:
      values: the flags, which come in the order of their definition.
      notes: more to say of some of them.
    """
    lines = []
    for name in values:
        flag = values[name]
        if name == flag.short_name:
            continue
        words = list((notes or {}).get(name, ()))
        if flag.default is not None and name != "help":
            words.append(f"default {flag.serialize().partition('=')[2] or flag.default_as_str}")
        help_text = re.sub(r"^<[^>]*>: ", "", flag.help or "")  # absl repeats the choices there.
        choices = getattr(flag.parser, "enum_values", None) or getattr(flag.parser, "choices", ())
        if choices:
            words.append(f"of {', '.join(choices)}")
        lines.append(f"  --{name}: {help_text}" + (f" ({'; '.join(words)})" if words else ""))
    return "\n".join(lines)


def _untouched(argv: list[str]) -> list[str]:
    """All arguments, after absl's own flags took their defaults."""
    flags.FLAGS(argv[:1])
    return argv


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"warning: {message}\n")


def progress_bar() -> progress.Progress:
    """A progress bar on standard error that leaves nothing behind."""
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        console=console.Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
