"""Pages of documents whose generated parts, tables and numbers are written from committed results.

    6.57<!--found.value.sel(n=1000):.2f-->     a token, and behind it where it comes from
    <!--table:EXPRESSION-->                     and, below the rows, <!--/table-->
    <!--given 0.5;1,000-->                      the numbers of the page that are no results

An expression sees the facts of the page's own study (`facts_of`), and other studies by name.
"""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr
from rich.table import Table

from experiments.lab import papers, registry, runner, store

PROJECT = pathlib.Path(__file__).parents[2]
STUDIES = PROJECT / "docs" / "studies"
# Other documents with numbers from results.
OTHERS = (PROJECT / "README.md", PROJECT / "docs" / "how_fast.md")
_MARK = re.compile(r"(?P<token>[^\s|(\[*<>]+)<!--(?P<of>(?:(?!-->)\S)+):(?P<spec>[^\s:>]+)-->")
_TABLE = re.compile(r"<!--table:(?P<of>\S+)-->\n(?:.*\n)*?<!--/table-->\n")
_GENERATED = re.compile(r"<!--(?P<part>generated|papers)-->\n(?:.*\n)*?<!--/(?P=part)-->\n")
_FIGURE = re.compile(r"!\[.*\]\((\S+\.png)\)")
_GIVEN = re.compile(r"<!--given (?P<words>[^>]*)-->")
# What is no number of a result: code, targets of links, other comments, citations of the papers.
_CITED = (
    r"(?:(?:CV-early|CV|RKE|MID)(?:'s)?,? )?\b(?:figs?\.?|figures?|[Tt]ables?|[Ss]ections?|eqs?\.?"
    r"|Theorems?|Appendix)(?:[ ,;]*(?:and |to )?\(?[A-Z]?\d+(?:\.\d+)*(?:-\d+)?\)?)+"
)
_SKIPPED = re.compile(
    r"```.*?```|arXiv[: ]\d+\.\d+|`[^`]*`|\]\([^)]*\)|<!--.*?-->|<[^>]*>|"
    rf"{_CITED}|\border[ -](?:\d+(?!\d|\.\d)|infinity)|\b(?:19|20)\d\d\b",
    re.DOTALL,
)
_NUMBER = re.compile(
    r"(?<![\w.,^-])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?%?(?![\w])(?!-[A-Za-z])"
)
_FREE = {"0", "1", "2", "95%", "0.05"}


def written() -> dict[pathlib.Path, str]:
    """Every page with its generated parts, tables and numbers anew, by path."""
    found, cards = {}, ["|figure|study|", "|---|---|"]
    for study in map(registry.load, registry.NAMES):
        start = f"python -m experiments.{study.name}"
        commands = [" ".join([start, *given]) for given in study.runs or ((),)]
        repeated = papers.repeats(study.name)
        source = "" if repeated == "-" else f" Repeats {repeated}."
        path = STUDIES / f"{study.name}.md"
        said = f"{study.question()}{source}{_took(study.name)}"
        lines = [said, "", f"**Control.** {study.control}"]
        if commands != [start]:  # The list of studies has the command without flags.
            lines += ["", "```bash", *commands, "```"]
        text = _generated(path, generated=lines)
        found[path] = filled(text, study.name)
        # The figure that has the study's name, or else the first of its page.
        shown = sorted(
            _FIGURE.findall(text), key=lambda file: not file.endswith(f"/{study.name}.png")
        )
        picture = f'[<img src="{shown[0]}" width="300" alt="">]({path.name})' if shown else ""
        cards.append(f"|{picture}|**[{study.name}]({path.name})**: {study.question()}|")
    path = STUDIES / "index.md"
    found[path] = filled(_generated(path, papers=papers.lines(), generated=cards))
    return found | {path: filled(path.read_text(encoding="utf-8")) for path in OTHERS}


def _took(name: str) -> str:
    """How long the committed results of a study took to compute; nothing where it has none."""
    found = facts_of(name).runs.values()
    seconds = sum(origin["seconds"] for run in found for origin in run.provenance.values())
    if not seconds:
        return ""
    words = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    return f" Computed in {words}."


def _generated(path: pathlib.Path, **parts: Sequence[str]) -> str:
    """The text of a file with these lines in its generated parts, by their names."""
    text = path.read_text(encoding="utf-8")
    there = [mark["part"] for mark in _GENERATED.finditer(text)]
    if sorted(there) != sorted(parts):
        raise ValueError(f"{path}: expected the generated parts {[*parts]}, found {there}.")

    def anew(mark: re.Match) -> str:
        part = mark["part"]
        return "\n".join([f"<!--{part}-->", *parts[part], f"<!--/{part}-->", ""])

    return _GENERATED.sub(anew, text)


def filled(text: str, study: str | None = None) -> str:
    """The text of a page with its marked tokens and tables anew.

    The facts of the study that is named have no prefix on it. ValueError where an expression cannot
    be computed, with the expression.
    """
    facts = facts_of(study) if study else None

    def value(expression: str, convert: Callable[[Any], Any]) -> Any:
        named = {*re.findall(r"(?<![.\w])\w+", expression)}
        names = {"np": np, "xr": xr} | {of: facts_of(of) for of in named & {*registry.NAMES}}
        names |= {of: getattr(facts, of) for of in named & {*dir(facts)}}
        try:  # The project's own pages say what is evaluated.
            return convert(eval(expression, names))
        except Exception as error:
            where = f"{study or 'a document'}: {expression}"
            raise ValueError(f"{where}: {type(error).__name__}: {error}") from error

    def token(mark: re.Match) -> str:
        of, spec = mark["of"], mark["spec"]
        shown = value(of, lambda found: format(np.asarray(found).item(), spec))
        return f"{shown}<!--{of}:{spec}-->"

    def table(mark: re.Match) -> str:
        lines = value(mark["of"], markdown)
        return "\n".join([f"<!--table:{mark['of']}-->", *lines, "<!--/table-->", ""])

    return _MARK.sub(token, _TABLE.sub(table, text))


class Facts(SimpleNamespace):
    """What is known of a study's committed results: `runs` by folder, and the study's facts."""

    @property
    def found(self) -> xr.Dataset:
        """The results of its first run."""
        return next(iter(self.runs.values())).found


@functools.cache
def facts_of(name: str) -> Facts:
    """The facts of a study's committed results."""
    study = registry.load(name)
    folders = runner.run_folders(study, runner.COMMITTED)
    runs = {folder.name: store.read_run(folder, study) for folder in folders}
    return Facts(runs=runs, **study.facts(list(runs.values())))


def markdown(shown: Table | Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, a line a row; of rows, the first is the head."""
    if isinstance(shown, Table):
        columns = [[column.header, *column.cells] for column in shown.columns]
        shown = [[str(cell) for cell in row] for row in zip(*columns, strict=True)]
    head, *rows = shown
    return [f"|{'|'.join(row)}|" for row in (head, ["---"] * len(head), *rows)]


def unbound(text: str) -> tuple[list[str], list[str]]:
    """Numbers of a page without a mark that it does not list as given, and given ones it lacks."""
    given = {word for mark in _GIVEN.finditer(text) for word in mark["words"].split(";")}
    for part in (_GENERATED, _TABLE, _MARK, _SKIPPED):
        text = part.sub(" ", text)
    there = set(_NUMBER.findall(text.replace("±", " ")))
    return sorted(there - given - _FREE), sorted(given - there)
