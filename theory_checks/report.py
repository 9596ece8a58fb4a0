"""What comes out of a run: JSON, the terminal's pages, the generated parts of docs/theory.md."""

import collections
import hashlib
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import condvendi_jax
from condvendi_jax.cli import files
from theory_checks.claim import Kind, Outcome, Tried
from theory_checks.evidence import Verdict, plain
from theory_checks.roots import ROOTS
from theory_checks.statements import PAPERS

PARTS = ("counts", "roots", "corrections", "beyond", "table")
"""The generated parts of docs/theory.md."""

_COLOURS = {
    Verdict.HOLDS: "green",
    Verdict.VACUOUS: "yellow",
    Verdict.PREMISE_UNMET: "magenta",
    Verdict.FALSE: "red",
    Verdict.INCONCLUSIVE: "white on red",
}
_FEW = 8


# --- Numbers that a later reader needs ------------------------------------------------------------


def to_json(outcomes: Sequence[Outcome], *, seed: int, budget: str) -> dict[str, Any]:
    """Everything in plain numbers; what JSON cannot hold is null, with the reason beside."""
    return {
        "seed": seed,
        "budget": budget,
        "versions": {
            "python": platform.python_version(), "numpy": np.__version__, "jax": jax.__version__,
            "condvendi_jax": condvendi_jax.__version__,
        },
        "sources": sources_digest(),
        "counts": counts(outcomes),
        "claims": [claim_to_json(outcome) for outcome in outcomes],
    }  # fmt: skip


def sources_digest() -> str:
    """SHA-256 of the statements and of everything that their evidence is computed with."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    shown = {"__main__.py", "report.py"}
    for path in sorted([*folder.glob("*.py"), *folder.glob("statements/*.toml")]):
        if path.name not in shown:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def claim_to_json(outcome: Outcome) -> dict[str, Any]:
    """One claim: what it says, what came out, and the data behind its figure."""
    entry = outcome.claim
    record: dict[str, Any] = {
        "name": entry.name,
        "source": entry.source,
        "section": entry.section,
        "kind": entry.kind.value,
        "quote": entry.quote,
        "assumptions": entry.assumptions,
        "root": entry.root,
        "proof": entry.proof,
        "beyond": entry.beyond,
        "note": entry.note,
        "mutants": list(entry.mutants),
        "verdict": outcome.label,
        "stated": _form_to_json(outcome.stated),
    }
    if outcome.corrected is not None:
        record["corrected"] = _form_to_json(outcome.corrected)
    kept, lost = _representable(plain(record), "")
    if lost:
        kept["null_because"] = lost
    return kept


def _form_to_json(tried: Tried) -> dict[str, Any]:
    judgement = tried.judgement
    record = {
        "statement": tried.form.text,
        "relation": tried.evidence.relation,
        "verdict": judgement.verdict.value,
        "expected": tried.expected.value,
        "slack": judgement.slack,
        "looseness": judgement.looseness,
        "violations": judgement.violations,
        "trials": judgement.trials,
        "smallest": judgement.smallest,
        "clearest": judgement.clearest,
        "measured": dict(tried.evidence.measured),
        "detail": judgement.detail,
        "data": dict(tried.evidence.data),
    }
    return {key: value for key, value in record.items() if value not in (None, {})}


def _representable(value: Any, path: str) -> tuple[Any, dict[str, str]]:
    """JSON's own types; a number that JSON cannot hold becomes null, with the reason by path."""
    lost: dict[str, str] = {}
    if isinstance(value, Mapping):
        kept: dict[str, Any] = {}
        for key, part in value.items():
            kept[str(key)], reasons = _representable(part, f"{path}.{key}".lstrip("."))
            lost |= reasons
        return kept, lost
    if isinstance(value, list):
        parts = []
        for index, part in enumerate(value):
            found, reasons = _representable(part, f"{path}[{index}]")
            parts.append(found)
            lost |= reasons
        return parts, lost
    if isinstance(value, float) and not math.isfinite(value):
        reason = "not a number: no trial defines it" if math.isnan(value) else f"infinite ({value})"
        return None, {path: reason}
    return value, {}


def counts(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Number of statements by kind and verdict; a correction is a statement of ours."""
    tally: dict[str, collections.Counter[str]] = {
        kind.value: collections.Counter() for kind in Kind
    }
    for outcome in outcomes:
        tally[outcome.claim.kind.value][outcome.stated.judgement.verdict.value] += 1
        if outcome.corrected is not None:
            tally[Kind.OURS.value][outcome.corrected.judgement.verdict.value] += 1
    return {kind: dict(found) for kind, found in tally.items() if found}


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


def pages(outcomes: Sequence[Outcome], *, everything: bool) -> RenderableType:
    """Counts, then what is false by root error, then (on request) every claim."""
    parts: list[RenderableType] = [_counts_table(outcomes), *_false_pages(outcomes)]
    if everything:
        parts.append(_claims_table(outcomes))
    else:
        parts.append(Text("\nEvery claim, with what was measured: --all", style="dim"))
    return Group(*parts)


def _counts_table(outcomes: Sequence[Outcome]) -> Table:
    tally = counts(outcomes)
    verdicts = [
        verdict for verdict in Verdict if any(verdict.value in row for row in tally.values())
    ]
    table = Table(title=f"Claims: {len(outcomes)}", title_justify="left")
    table.add_column("whose statement")
    for verdict in verdicts:
        table.add_column(verdict.value, justify="right", style=_COLOURS[verdict])
    for kind, row in tally.items():
        words = "ours, corrections among them" if kind == Kind.OURS.value else kind
        table.add_row(words, *(str(row.get(verdict.value, 0)) for verdict in verdicts))
    return table


def _false_pages(outcomes: Sequence[Outcome]) -> Iterator[RenderableType]:
    roots = by_root(outcomes)
    if roots:
        title = f"\nRoot errors: {len(roots)}, each once, with its consequences"
        yield Text(title, style="bold")
    for number, (key, found) in enumerate(roots.items(), start=1):
        root, first = ROOTS[key], found[0].stated.judgement
        yield Text(f"\n{number}. {root.title} ({root.severity.value})", style="red")
        yield Text(f"   {root.meaning}")
        shown = {"smallest": first.smallest, "clearest": first.clearest}
        for word, example in shown.items():
            if example and not (word == "clearest" and example == first.smallest):
                yield Text(f"   {word}: {_example(example)}", style="dim")
        yield Text("   in: " + ", ".join(f"{o.claim.source} [{o.claim.name}]" for o in found))
    for outcome in outcomes:
        if outcome.stated.judgement.verdict is Verdict.FALSE and outcome.claim.root is None:
            yield Text(f"\n{outcome.claim.name}: FALSE, with no root error named", style="red")


def _claims_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="\nEvery claim", title_justify="left")
    for header in ("claim", "source", "verdict", "measured", "counterexample or note"):
        table.add_column(header, overflow="fold")
    for outcome in outcomes:
        for tried in outcome.tried:
            stated = tried is outcome.stated
            verdict = tried.judgement.verdict
            words = outcome.label if stated else verdict.value
            if not tried.as_expected:
                words += f" (expected {tried.expected.value})"
            table.add_row(
                Text(outcome.claim.name if stated else "  corrected"),
                Text(outcome.claim.source if stated else ""),
                Text(words, style=_COLOURS[verdict]),
                Text(_measured(tried)),
                Text(_example(_best(tried)) or (outcome.claim.note if stated else "")),
            )
    return table


def _best(tried: Tried) -> Mapping[str, Any]:
    return tried.judgement.smallest or tried.judgement.clearest or {}


def _measured(tried: Tried) -> str:
    judgement = tried.judgement
    words = [judgement.detail]
    if judgement.looseness is not None and judgement.verdict is not Verdict.FALSE:
        words.append(f"rhs at least {judgement.looseness:.3g} x lhs")
    return "; ".join([*words, _example(tried.evidence.measured)]).rstrip("; ")


def _example(example: Mapping[str, Any]) -> str:
    """Names and numbers; where the sides are there by name, their ratio need not be."""
    hidden = {"lhs", "rhs"} if "left side" in example else set()
    words = {"lhs": "left side", "rhs": "right side"}
    shown = {words.get(key, key): value for key, value in example.items() if key not in hidden}
    return "; ".join(f"{key} = {_short(value)}" for key, value in shown.items())


def _short(value: Any) -> str:
    """A few digits of a number, the first few entries of a list."""
    value = plain(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        shown = [_short(part) for part in value[:_FEW]] + (["..."] if len(value) > _FEW else [])
        return "[" + ", ".join(shown) + "]"
    return str(value)


# --- docs/theory.md -------------------------------------------------------------------------------


def documents(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The generated parts of docs/theory.md by their marks."""
    return {
        "counts": _counts_words(outcomes),
        "roots": _roots_markdown(outcomes),
        "corrections": _proved_markdown(outcomes, beyond=False),
        "beyond": _proved_markdown(outcomes, beyond=True),
        "table": _table_markdown(outcomes),
    }


def _counts_words(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for kind, row in counts(outcomes).items():
        words = ", ".join(f"{number} {verdict}" for verdict, number in row.items())
        whose = "ours (corrections, sharper forms, new results)" if kind == "ours" else kind
        rows.append(f"{whose}: {words}")
    mutants = sum(len(outcome.claim.mutants) for outcome in outcomes)
    number = len(by_root(outcomes))
    return (
        f"{len(outcomes)} claims, {number} root errors, {mutants} mutants of what holds. "
        + "; ".join(rows)
        + "."
    )


def _math(text: str) -> str:
    return f"$`{text}`$"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _row(*cells: str) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _roots_markdown(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| | root error | as printed, implied or read | corrected | smallest clear counterexample "
        "| what it means for users |",
        "|---|---|---|---|---|---|",
    ]
    for number, (key, found) in enumerate(by_root(outcomes).items(), start=1):
        root = ROOTS[key]
        places = ", ".join(outcome.claim.source for outcome in found)
        lines.append(
            _row(
                str(number),
                f"**{root.title}**<br>{root.severity.name.lower()}<br>{places}",
                f"{_math(root.printed)}<br>{found[0].claim.kind.value}",
                _math(root.corrected),
                _example(_best(found[0].stated)),
                root.meaning,
            )
        )
    return "\n".join(lines)


def anchor(heading: str) -> str:
    """What a heading is called in a link."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


def _proof_link(outcome: Outcome) -> str:
    proof = outcome.claim.proof
    return f"[proof](proofs.md#{anchor(proof)})" if proof else ""


def _proved_markdown(outcomes: Sequence[Outcome], *, beyond: bool) -> str:
    """The statements with a proof: corrected theorems, or results beyond the papers."""
    lines = []
    for outcome in outcomes:
        entry = outcome.claim
        if not entry.proof or entry.beyond is not beyond:
            continue
        if not beyond and outcome.corrected is None:
            continue
        tried = outcome.corrected or outcome.stated
        words = [f"- **{entry.source}** (`{entry.name}`): {_math(tried.form.text)}"]
        words += [entry.assumptions] if entry.assumptions else []
        words += [entry.note] if entry.note and beyond else []
        words += [_example(tried.evidence.measured)] if tried.evidence.measured else []
        lines.append(". ".join([*words, _proof_link(outcome)]))
    return "\n".join(lines)


def _table_markdown(outcomes: Sequence[Outcome]) -> str:
    lines: list[str] = []
    for key, title in PAPERS.items():
        rows = [outcome for outcome in outcomes if outcome.claim.paper == key]
        if rows:
            lines += [f"### {title}", "", "| | statement | verdict | what came out |"]
            lines += ["|---|---|---|---|", *map(_markdown_row, rows), ""]
    return "\n".join(lines).rstrip()


def _markdown_row(outcome: Outcome) -> str:
    entry, judgement = outcome.claim, outcome.stated.judgement
    statement = [_math(outcome.stated.form.text)]
    if entry.assumptions:
        statement.append(entry.assumptions)
    if entry.quote:
        statement.append(_quoted(entry.quote))
    if outcome.corrected is not None:
        statement.append(f"**Corrected:** {_math(outcome.corrected.form.text)}")
    if _proof_link(outcome):
        statement.append(_proof_link(outcome))
    verdict = [f"**{outcome.label}**", entry.kind.value]
    told = [entry.note] if entry.note else []
    if judgement.verdict is Verdict.FALSE:
        verdict.append(ROOTS[entry.root].severity.name.lower() if entry.root else "")
        told += [f"{word}: {_example(example)}" for word, example in _examples(outcome)]
    else:
        told.append(_measured(outcome.stated))
    if outcome.corrected is not None:
        told.append(f"Corrected: {_measured(outcome.corrected)}")
    return _row(
        f"{entry.source}<br>`{entry.name}`",
        "<br>".join(statement),
        "<br>".join(verdict),
        "<br>".join(told),
    )


def _quoted(text: str) -> str:
    """A paper's words; where they hold LaTeX, as it stands in the text."""
    return f"“{text}”" if not set("\\$_") & set(text) else f"`{text}`"


def _examples(outcome: Outcome) -> Iterator[tuple[str, Mapping[str, Any]]]:
    judgement = outcome.stated.judgement
    if judgement.smallest:
        yield "Smallest", judgement.smallest
    if judgement.clearest and judgement.clearest != judgement.smallest:
        yield "Clearest", judgement.clearest


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
