"""What comes out of a run: the terminal's pages, the generated parts of docs/theory.md."""

import collections
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from condvendi_jax.base import files
from theory_checks import latex
from theory_checks.claim import STEP, Claim, Kind, Outcome, Tried
from theory_checks.evidence import Verdict, plain
from theory_checks.roots import ROOTS, Severity
from theory_checks.statements import NOTATION, PAPERS

PARTS = ("counts", "results", "others", "register")
"""The generated parts of docs/theory.md."""


def by_root(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The false claims under each root error, the one that shows it best first."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.claim.root is not None:
            found.setdefault(outcome.claim.root, []).append(outcome)
    return {
        key: sorted(found[key], key=lambda outcome: outcome.claim.name != root.shown_by)
        for key, root in ROOTS.items()
        if key in found
    }


# --- The terminal ---------------------------------------------------------------------------------


def pages(
    outcomes: Sequence[Outcome],
    *,
    everything: bool,
    unexpected: Sequence[str] = (),
    wrong_versions: int | None = None,
) -> RenderableType:
    """What is false by root error, on request the entry of every claim, then three lines.

    Args:
        outcomes: of the claims that were tried.
        everything: whether every claim is shown.
        unexpected: a line for every verdict that is not the expected one.
        wrong_versions: how many were tried, where any were.
    """
    parts = [*_false_pages(outcomes)]
    if everything:
        parts += [Text("\n" + "\n\n".join(_section(outcome))) for outcome in outcomes]
    else:
        parts.append(Text("\nEvery statement, with what was measured: --all", style="dim"))
    return Group(*parts, Text("\n" + "\n".join(_ending(outcomes, unexpected, wrong_versions))))


def _false_pages(outcomes: Sequence[Outcome]) -> Iterator[Text]:
    """The root errors under their severities, each once, with the statements that repeat it."""
    roots, number = by_root(outcomes), 0
    for severity in Severity:
        shown = {key: found for key, found in roots.items() if ROOTS[key].severity is severity}
        if shown:
            yield Text(f"\n{severity.value}", style="bold")
        for key, found in shown.items():
            root, number = ROOTS[key], number + 1
            first = found[0].stated
            yield Text(f"\n{number}. {root.title}", style="red")
            yield Text(f"   {root.example.format(**_best(first))} {root.meaning}")
            yield Text("   --only: " + ", ".join(outcome.claim.name for outcome in found))


def _ending(
    outcomes: Sequence[Outcome], unexpected: Sequence[str], wrong_versions: int | None
) -> Iterator[str]:
    """How many statements hold and how many fail; what was not expected."""
    verdicts = [outcome.stated.judgement.verdict for outcome in outcomes]
    false = verdicts.count(Verdict.FALSE)
    corrections = [outcome.tried["corrected"] for outcome in outcomes if len(outcome.tried) > 1]
    corrected = sum(each.judgement.verdict is not Verdict.FALSE for each in corrections)
    errors, readings = _errors_and_readings(by_root(outcomes))
    held = len(verdicts) - false
    yield f"Held: {held} of {len(verdicts)} statements, and {corrected} corrections."
    yield f"Failed: {false} statements, as papers print or imply them or as we read them." + (
        f" They go back to the {errors} errors and {readings} readings above." * (false > 0)
    )
    if wrong_versions is not None:
        yield f"Rejected: {wrong_versions} wrong versions of what holds."
    yield f"Unexpected: {len(unexpected) or 'nothing'}."


def _errors_and_readings(roots: Iterable[str]) -> tuple[int, int]:
    readings = [ROOTS[key].severity is Severity.READING for key in roots]
    return readings.count(False), readings.count(True)


def _best(tried: Tried) -> Mapping[str, Any]:
    return tried.judgement.smallest or tried.judgement.clearest or {}


def _checked(entry: Claim, tried: Tried) -> str:
    """How often it was tried, and how much of it the check can tell; margins: `--all`."""
    judgement, shown = tried.judgement, tried.evidence.measured
    words = [judgement.detail.partition(",")[0]]
    if (judgement.looseness or 0) > 1.005:
        words.append(f"looseness {judgement.looseness:.3g}")
    words += [_example(shown() if callable(shown) else shown), _constants_words(entry)]
    return f"{'; '.join(filter(None, words))}."


def _example(example: Mapping[str, Any]) -> str:
    """Names and numbers; where the sides are there by name, their ratio need not be."""
    hidden = {"lhs", "rhs"} if "left side" in example else set()
    words = {"lhs": "left side", "rhs": "right side"}
    shown = {words.get(key, key): value for key, value in example.items() if key not in hidden}
    return "; ".join(f"{key} = {_short(value)}" for key, value in shown.items())


def _short(value: Any) -> str:
    """A few digits of a number, or of each in a list."""
    value = plain(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return str(value)


# --- docs/theory.md -------------------------------------------------------------------------------


def documents(outcomes: Sequence[Outcome], *, wrong_versions: int | None = None) -> dict[str, str]:
    """The generated parts of docs/theory.md by their marks."""
    return {
        "counts": _counts_words(outcomes, wrong_versions),
        "results": _roots_markdown(outcomes, first=True),
        "others": _roots_markdown(outcomes, first=False),
        "register": "\n\n".join(_register(outcomes)),
    }


def _counts_words(outcomes: Sequence[Outcome], wrong_versions: int | None) -> str:
    found = by_root(outcomes)
    severities = collections.Counter(ROOTS[key].severity for key in found)
    claims = [outcome.claim for outcome in outcomes]
    ours = sum(entry.kind is Kind.OURS or entry.corrected is not None for entry in claims)
    result, bound, slip, _ = (severities[each] for each in Severity)
    errors, readings = _errors_and_readings(found)
    words = (
        f"We found {errors} errors, each counted once: {result} results, {bound} constants or "
        f"conditions and {slip} slips of a display. {readings} more entries are readings that the "
        f"papers do not state. {ours} statements are ours."
    )
    if wrong_versions is not None:
        words += f" The checks reject {wrong_versions} wrong versions of what holds."
    return words


def _roots_markdown(outcomes: Sequence[Outcome], *, first: bool) -> str:
    """A short paragraph a root error: those of the first page, or all of them by severity."""
    lines, found = [], by_root(outcomes)
    by_name = {outcome.claim.name: outcome.claim for outcome in outcomes}
    for severity in (None,) if first else tuple(Severity):
        shown = []
        for key, claims in found.items():
            root = ROOTS[key]
            if not root.corrected if first else root.severity is not severity:
                continue
            example = root.example.format(**_best(claims[0].stated))
            words = root.corrected if first else f"{example} {root.meaning}"
            shown.append(f"**[{root.title}](#{root.shown_by}).** {words}")
            if first and words.endswith(":"):
                form = by_name[root.corrected_by or root.shown_by].holding
                shown.append(f"$${form.text}$$")
        lines += [f"### {severity.value}", *shown] if severity and shown else shown
    return "\n\n".join(lines)


def anchor(heading: str) -> str:
    """What a heading is called in a link."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


def _register(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for key, title in PAPERS.items():
        yield f"## {title}"
        for part, words in NOTATION.items():
            if part.split(",")[0] == key:
                yield words.strip()
        for outcome in outcomes:
            if outcome.claim.paper == key:
                yield "\n\n".join(_section(outcome))


def _section(outcome: Outcome) -> Iterator[str]:
    """The entry of one claim."""
    entry, judgement = outcome.claim, outcome.stated.judgement
    words = "ours" if entry.kind is Kind.OURS else outcome.label.lower()
    yield f"### {entry.name}"
    told = any(root.shown_by == entry.name for root in ROOTS.values())
    words = f"[{words}](#each-error-in-a-few-words)" if told else words
    yield f"**{entry.source}**: {words}."
    yield f"$$\n{outcome.stated.form.text}\n$$"
    if outcome.last is not outcome.stated:
        yield f"Corrected:\n\n$$\n{outcome.last.form.text}\n$$"
    assumed = latex.shown(entry.assumptions)
    if assumed:
        # A word gets a capital letter, a symbol does not.
        yield re.sub("^[a-z](?=[a-z])", lambda first: first[0].upper(), assumed) + "."
    lines = [entry.note] if entry.note else []
    if judgement.verdict is Verdict.FALSE:
        # LaTeX in a paper's words stands as it is in the text.
        mark = "`{}`" if set("\\$_") & set(entry.quote) else "“{}”"
        lines += [f"Paper: {mark.format(entry.quote)}."] if entry.quote else []
        if not told:
            lines.append(f"Counterexample: {_example(_best(outcome.stated))}.")
    held = outcome.last.judgement.verdict is not Verdict.FALSE
    proof = f"[Proof](proofs.md#{anchor(entry.proof)})." if entry.proof else ""
    lines.append(f"{_checked(entry, outcome.last) if held else ''} {proof}".strip())
    yield "\n".join(f"- {line}" for line in lines if line)


def _constants_words(entry: Claim) -> str:
    """Whether the text itself is evaluated, and how many of its constants the check knows."""
    if "⟦" not in entry.holding.latex:
        return "by code"
    constants = len([*latex.changed(entry.holding.latex, 1.0)])
    seen = constants - sum(factor > STEP for factor in entry.loose[:constants])
    return "" if seen == constants else f"constants seen: {seen}/{constants}"


def check_marks(path: str | os.PathLike[str], names: Iterable[str] = PARTS) -> None:
    """Raises ValueError where a document, or a mark of a generated part in it, is missing."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file.")
    text = Path(path).read_text(encoding="utf-8")
    for name in names:
        start, end = _marks(name)
        if not (0 <= text.find(start) < text.find(end)):
            raise ValueError(f"{path}: expected the marks {start!r} and {end!r}.")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: generated -->", f"<!-- end of {name} -->"


def insert(path: str | os.PathLike[str], parts: Mapping[str, str]) -> None:
    """Puts each part between its marks in an existing document.

    Raises:
        ValueError: a mark is missing.
    """
    check_marks(path, parts)
    target = Path(path)
    text = target.read_text(encoding="utf-8")
    for name, content in parts.items():
        start, end = _marks(name)
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = f"{before}{start}\n{content}\n{end}{after}"
    with files.atomic_writer(target) as stream:
        stream.write(text.encode())
