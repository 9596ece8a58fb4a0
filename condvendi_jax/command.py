"""What every command line of the project shares: exit statuses, one-line errors, progress."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from absl import app, flags, logging
from rich import console, progress

INTERRUPTED = 130
BAD_INPUT = 2


_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}


def run(main: Callable[[list[str]], Any], *, parse_flags: bool = True) -> None:
    """Runs `main` under absl: bad input ends in one clear line and a non-zero exit status.

    Exit statuses: what `main` returns, 0 where that is None, and for help; 1 for a malformed flag,
    2 for input that is refused, 130 for an interrupt.

    Args:
      main: receives the arguments that are not flags, the program's name first.
      parse_flags: whether the global flags are parsed; if not, `main` receives all arguments.
    """

    def quiet_main(argv: list[str]) -> Any:
        # JAX logs each kind of device that it looked for and did not find.
        logging.set_verbosity(logging.WARNING)
        return main(argv)

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
    except SystemExit:
        # absl counts a wish for help among the errors.
        if parse_flags and _HELP & set(sys.argv[1:]):
            sys.exit(0)
        raise
    except (ValueError, TypeError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(BAD_INPUT)


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
    )
