"""The studies of the project: what there is, running them, drawing their figures.

    python -m experiments                              # the studies and where they stand
    python -m experiments run NAME...|all [--flags]    # each in a process of its own
    python -m experiments NAME... [--flags]            # the same
    python -m experiments draw NAME...|all             # saved results into figures/
    python -m experiments check NAME...|all            # computed again, against the committed ones
    python -m experiments pages                        # what documents have from results, anew

The flags of `run` go to every study that is named. `check` computes all cells, or with --cells=1
the first of each run; it ends with 1 where one differs, and resumes in --output=FOLDER.
`draw` reads --results=experiments/results and writes --figures=figures. It replaces the project's
own figures/; in another folder it needs --overwrite to replace a figure.
"""

import dataclasses
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from rich.table import Table

from condvendi_jax.cli import command
from condvendi_jax.cli.flags import flag
from experiments import lab
from experiments.lab import papers, printing, registry

VERBS = ("list", "run", "check", "draw", "pages")
_OWN = pathlib.Path("results")
_COMMITTED_FIGURES = pathlib.Path(__file__).resolve().parents[1] / "figures"


@dataclasses.dataclass(frozen=True)
class _CheckFlags:
    output: str | None = flag(
        None, "Folder that keeps the cells, so that an unfinished check resumes; none if unset."
    )
    cells: int | None = flag(
        None, "How many cells of each run are computed, the first ones; all if unset.", at_least=1
    )


@dataclasses.dataclass(frozen=True)
class _DrawFlags:
    results: str = flag("experiments/results", "Folder of the saved results.")
    figures: str = flag("figures", "Folder that the figures are written to.")
    overwrite: bool = flag(False, "Replace figures that exist.")


def main(argv: list[str]) -> int | None:
    """Lists, runs, draws."""
    words = [argument for argument in argv[1:] if not argument.startswith("-")]
    rest = [argument for argument in argv[1:] if argument.startswith("-")]
    if words and words[0] in registry.NAMES:
        words = ["run", *words]
    if {"--help", "-h"} & set(rest) and (words[:1] != ["run"] or len(words) == 1):
        print(__doc__)
        return None
    verb, *names = words or ["list"]
    if verb not in VERBS:
        raise ValueError(f"expected one of {', '.join(VERBS)}, received {verb!r}.")
    if verb in ("run", "check", "draw"):
        studies = [registry.entry(name) for name in _names(names)]
        return {"run": _run, "check": _check, "draw": _draw}[verb](studies, rest)
    if names or rest:
        raise ValueError(f"unexpected argument {(names + rest)[0]!r}.")
    if verb == "pages":
        for path, text in lab.pages.written().items():
            path.write_text(text, encoding="utf-8")
    else:
        printing.print_table(_overview())
    return None


def _names(names: Sequence[str]) -> Sequence[str]:
    if not names:
        raise ValueError(f"which study? One or more of {', '.join(registry.NAMES)}, or all.")
    return registry.NAMES if list(names) == ["all"] else names


def _run(studies: Sequence[registry.Entry], rest: Sequence[str]) -> int:
    """Runs each study in a process of its own; ends with the first status that is not 0."""
    for study in studies:
        print(f"{study.name}: {study.question}", flush=True)
        if status := _process([f"experiments.{study.name}", *rest]):
            return status
    return 0


def _process(arguments: Sequence[str]) -> int:
    """Runs a module as a command; an interrupt reaches it. Returns its status."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.set_wakeup_fd(-1)  # An interrupt raises, so that it reaches the study too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([sys.executable, "-m", *arguments])
    try:
        return process.wait()
    except KeyboardInterrupt:
        # Where the terminal has not told it already. It says that it was interrupted.
        process.send_signal(signal.SIGINT)
        process.wait()
        return command.INTERRUPTED


def _check(studies: Sequence[registry.Entry], rest: Sequence[str]) -> int:
    """Computes committed results again; of several studies, each in a process of its own.

    Returns 1 where results differ, or the first status above it that a process ended with.
    """
    if len(studies) > 1:
        worst = 0
        for study in studies:
            if not registry.run_folders(study, registry.COMMITTED):
                print(f"{study.name}: has no committed results.")
                continue
            worst = max(worst, _process(["experiments", "check", study.name, *rest]))
            if worst > 1:
                break
        return worst
    given, (study,) = lab.runner.parse_once(_CheckFlags, rest)[1], studies
    # By default nothing is left that a later check, of other code, could take for its own.
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(given.output or scratch)
        grid, agree = lab.checking.check(registry.load(study.name), folder, given.cells)
    printing.print_table(grid)
    return 0 if agree else 1


def _draw(entries: Sequence[registry.Entry], rest: Sequence[str]) -> None:
    """Draws what is saved, and computes nothing."""
    studies = [registry.load(entry.name) for entry in entries]
    given = lab.runner.parse_once(_DrawFlags, rest)[1]
    results, figures = pathlib.Path(given.results), pathlib.Path(given.figures)
    found = {
        study: [lab.store.read_run(f, study) for f in registry.run_folders(study, results)]
        for study in studies
    }
    if not any(found.values()):
        where = f"your own runs save theirs in {_OWN} by default: --results={_OWN}."
        raise ValueError(f"{results}: there are no results to draw; {where}")
    # The project's own figures are made to be drawn again.
    overwrite = given.overwrite or figures.resolve() == _COMMITTED_FIGURES
    for study, runs in found.items():
        for path in lab.runner.draw(study, runs, figures, overwrite=overwrite) if runs else ():
            print(path)


def _overview() -> Table:
    """The studies, which figures and tables they repeat, and which results exist."""
    names = ("study", "repeats", "committed", "yours")
    caption = f"committed: below experiments/results; yours: below {_OWN} in this folder"
    grid = Table(*names, show_lines=True, caption=caption)
    for study in map(registry.entry, registry.NAMES):
        states = [_states(study, results) for results in (registry.COMMITTED, _OWN)]
        name = f"[bold]{study.name}[/bold]\n{study.question}"
        grid.add_row(name, papers.repeats(study.name), *states)
    return grid


def _states(study: registry.Entry, results: pathlib.Path) -> str:
    """Which runs are there, and whether they are whole."""
    lines = []
    for folder in registry.run_folders(study, results):
        variant = folder.name.removeprefix(study.name).lstrip("-")
        lines.append(": ".join(filter(None, (variant, registry.state(study, folder)))))
    return "\n".join(lines) or "-"


if __name__ == "__main__":
    command.run(main)
