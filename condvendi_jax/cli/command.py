"""What every command line of the project shares: exit statuses, one-line errors, progress."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags, logging
from rich import console, progress, text

from condvendi_jax import interrupts
from condvendi_jax.interrupts import INTERRUPTED as INTERRUPTED
from condvendi_jax.interrupts import importing as importing

BAD_INPUT = 2

_KNOWN_JAXLIB = (0, 11)  # The latest version whose flags are known.
_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}
_output_closed = False


def run(main: Callable[[list[str]], Any], *, parse_flags: bool = True) -> None:
    """Runs `main` under absl: bad input ends in one clear line and a non-zero exit status.

    Exit statuses: what `main` returns, 0 where that is None, and for help; 2 for input that is
    refused, 1 for a malformed flag that absl itself parses and for a reader that left, 130 for an
    interrupt (see `interrupts`).

    Args:
      main: receives the arguments that are not flags, the program's name first.
      parse_flags: whether the global flags are parsed; if not, `main` receives all arguments.
    """

    def quiet_main(argv: list[str]) -> Any:
        # JAX logs each kind of device that it looked for and did not find.
        logging.set_verbosity(logging.WARNING)
        try:
            status = main(argv)
            sys.stdout.flush()  # Here, where it is known what to do about a reader that has gone.
            return status
        except Exception as error:
            if interrupts.happened():  # Extension modules turn it into an ImportError.
                raise KeyboardInterrupt from error
            raise

    def untouched(argv: list[str]) -> list[str]:
        flags.FLAGS(argv[:1])  # absl's own flags take their defaults.
        return argv

    _replace_closed_streams()
    _compile_quickly()
    interrupts.handle()
    warnings.showwarning = _show_warning
    try:
        if _HELP & set(sys.argv[1:]):
            require_output()
        parser = app.parse_flags_with_usage if parse_flags else untouched
        app.run(quiet_main, flags_parser=parser)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        interrupts.leave()
    except BrokenPipeError:
        # Who reads our output has seen enough. Nothing is left to be said, and nowhere to say it.
        _discard_output()
        sys.exit(1)
    except SystemExit:
        # absl counts a wish for help among the errors.
        if parse_flags and _HELP & set(sys.argv[1:]):
            sys.exit(0)
        raise
    except (ValueError, TypeError, OSError, FloatingPointError) as error:
        words: object = error
        if isinstance(error, OSError) and error.strerror and error.filename:
            words = f"{error.filename}: {error.strerror}."  # Without the error's number.
        lines = [f"error: {words}", *getattr(error, "__notes__", ())]
        sys.stderr.write("".join(f"{escaped(line)}\n" for line in lines))
        if getattr(error, "caused_by_users_code", False):
            traceback.print_exception(error.__cause__)
        try:
            sys.stdout.flush()
        except OSError:  # The disk is full, say. Python would try again, and complain.
            _discard_output()
        sys.exit(BAD_INPUT)
    finally:
        # The work is done. While the interpreter ends, an interrupt would only print a traceback.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def require_output() -> None:
    """Raises OSError where standard output is closed, for a command that writes nothing else."""
    if _output_closed:
        why = "and the result would be written nowhere else; keep it open, or ask for a file."
        raise OSError(f"standard output is closed, {why}")


def _replace_closed_streams() -> None:
    """Lets standard streams that are closed read from and write to the null device.

    The next file to be opened would take the descriptor of a closed stream, and what is printed
    would be written into that file.
    """
    global _output_closed
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It takes the lowest free number, which is this one.
    _output_closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we run.


def _discard_output() -> None:
    """Sends what is still to be written to standard output to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _compile_quickly() -> None:
    """Spares NVIDIA GPUs a search that takes a minute, before JAX starts.

    For each matrix product XLA compiles dozens of Triton kernels and times them beside those of
    NVIDIA's library. On an H100, order 2 then takes 19 to 61 seconds to compile instead of 0.5, and
    runs no faster. XLA ends a process for flags that it does not know, so that this is done for
    known versions only.
    """
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    given, flag = os.environ.get("XLA_FLAGS", ""), "--xla_gpu_enable_triton_gemm"
    if flag in given or not any(map(importlib.util.find_spec, plugins)):
        return
    major, minor = map(int, importlib.metadata.version("jaxlib").split(".")[:2])
    if (major, minor) <= _KNOWN_JAXLIB:
        os.environ["XLA_FLAGS"] = f"{given} {flag}=false".strip()


def parse(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Parses flags of a program's own, and returns the words that are none, without the name.

    Raises:
      ValueError: a flag is unknown or malformed, or is given twice although it has one value.
    """
    for word in argv[1:]:
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("-") and name in ("flagfile", "undefok"):
            raise ValueError(f"unknown flag --{name}; --help lists all flags.")
    try:
        words = values(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        raise ValueError(f"{error}; --help lists all flags.") from error
    except flags.Error as error:
        raise ValueError(_malformed(values, str(error))) from error
    for name in values:
        if values[name].present > 1 and not isinstance(values[name], flags.MultiFlag):
            raise ValueError(f"--{name}: is given {values[name].present} times; give it once.")
    return words


def _malformed(values: flags.FlagValues, message: str) -> str:
    """absl's words on a malformed flag, in ours where they are Python's."""
    found = re.fullmatch(r"flag --(?P<name>\w+)=(?P<value>.*?): (?P<why>.*)", message, re.DOTALL)
    if not found:
        return message
    name, value, why = found.groups()
    flag = values[name]
    expected = {"float": "a number", "int": "a whole number", "bool": "true or false"}
    wanted = expected.get(flag.flag_type(), "")
    if choices := getattr(flag.parser, "enum_values", None):
        wanted = f"one of {', '.join(choices)}"
    if "bound" in why or "number" in why or not wanted:
        return f"--{name}: {why}, received {value!r}."
    return f"--{name}: expected {wanted}, received {value!r}."


def no_words(words: Sequence[str]) -> None:
    """Raises ValueError where there are words on a command line that takes flags only."""
    if words:
        raise ValueError(f"unexpected argument {words[0]!r}; flags are written --name=value.")


def list_flags(values: flags.FlagValues, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """A line for each flag: its name, help, default and choices; `notes` add to some of them."""
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


def escaped(words: object) -> str:
    """Words with control characters as Python writes them: a terminal would obey them."""
    controls = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e]"
    return re.sub(controls, lambda found: repr(found[0])[1:-1], str(words))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"warning: {escaped(message)}\n")


class _TimeLeft(progress.TimeRemainingColumn):
    """How long the rest will take, from the second step on."""

    def render(self, task: progress.Task) -> text.Text:
        return super().render(task) + " left" if task.time_remaining else text.Text()


def progress_bar() -> progress.Progress:
    """A progress bar on standard error, with the time left, that leaves nothing behind."""
    columns = ("{task.description}", progress.BarColumn(), progress.MofNCompleteColumn())
    return progress.Progress(
        *(*columns, progress.TimeElapsedColumn(), _TimeLeft()),
        console=console.Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        speed_estimate_period=3600,  # Seconds. A batch of a large encoder takes minutes.
    )
