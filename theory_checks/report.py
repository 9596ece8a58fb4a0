"""What comes out of a run: JSON, the terminal's table, and the markdown of docs/theory.md."""

import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

from condvendi_jax import files
from theory_checks.claim import Claim, Outcome, Verdict, corrections

PAPERS = {
    "cv": "Conditional Vendi Score (AISTATS 2026)",
    "cv-early": "Conditional-Vendi, the earlier version",
    "rke": "Renyi Kernel Entropy (NeurIPS 2023)",
    "mid": "Mutual Information Divergence (NeurIPS 2022)",
}
_COLOURS = {
    Verdict.HOLDS: "green",
    Verdict.VACUOUS: "yellow",
    Verdict.PREMISE_UNMET: "magenta",
    Verdict.FALSE: "red",
    Verdict.INCONCLUSIVE: "white on red",
}


def paper_of(entry: Claim) -> str:
    """Key into `PAPERS`: the paper that the claim's source names first, else its slug.

    Raises:
        ValueError: neither names a paper.
    """
    found = re.search("CV-early|CV|RKE|MID", entry.source)
    found = found or re.match("cv-early|cv|rke|mid", entry.name)
    if found is None:
        raise ValueError(f"claim {entry.name!r}: its source {entry.source!r} names no paper.")
    return found.group().lower()


def to_json(outcomes: Sequence[Outcome], *, seed: int, budget: str) -> dict[str, Any]:
    """Everything a later reader needs, in plain numbers."""
    return {
        "seed": seed,
        "budget": budget,
        "versions": {
            "python": platform.python_version(), "numpy": np.__version__, "jax": jax.__version__
        },
        "seconds": sum(outcome.seconds for outcome in outcomes),
        "counts": counts(outcomes),
        "claims": [claim_to_json(outcome) for outcome in outcomes],
    }  # fmt: skip


def claim_to_json(outcome: Outcome) -> dict[str, Any]:
    """One claim: what it says, what came out, and the data behind its figure."""
    entry, judgement = outcome.claim, outcome.judgement
    record: dict[str, Any] = {
        "name": entry.name,
        "source": entry.source,
        "statement": entry.statement,
        "assumptions": entry.assumptions,
        "parameters": dict(entry.parameters),
        "relation": outcome.evidence.relation,
        "verdict": judgement.verdict.value,
        "expected": entry.expected.value,
        "as_expected": outcome.as_expected,
        "slack": judgement.slack,
        "looseness": judgement.looseness,
        "violations": judgement.violations,
        "trials": judgement.trials,
        "counterexample": judgement.counterexample,
        "detail": judgement.detail,
        "note": entry.note,
        "corrects": entry.corrects,
        "corrected_by": corrections(entry.name),
        "seconds": round(outcome.seconds, 3),
        "data": outcome.evidence.data,
    }
    plain, lost = _plain(record, "")
    plain["null_because"] = lost
    return plain


def _plain(value: Any, path: str) -> tuple[Any, dict[str, str]]:
    """JSON's own types; a number that JSON cannot hold becomes null, with the reason by path."""
    if isinstance(value, Mapping):
        pairs = {str(key): _plain(part, f"{path}.{key}".lstrip(".")) for key, part in value.items()}
        return {key: part for key, (part, _) in pairs.items()}, _merge(
            lost for _, lost in pairs.values()
        )
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        parts = [_plain(part, f"{path}[{index}]") for index, part in enumerate(value)]
        return [part for part, _ in parts], _merge(lost for _, lost in parts)
    if isinstance(value, float) and not math.isfinite(value):
        reason = "not a number: no trial defines it" if math.isnan(value) else f"infinite ({value})"
        return None, {path: reason}
    return value, {}


def _merge(parts: Any) -> dict[str, str]:
    merged: dict[str, str] = {}
    for part in parts:
        merged |= part
    return merged


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Number of claims by verdict."""
    verdicts = [outcome.judgement.verdict for outcome in outcomes]
    return {verdict.value: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}


def terminal_table(outcomes: Sequence[Outcome]) -> Table:
    """One line a claim."""
    table = Table(title="What the papers' statements are worth", title_justify="left")
    for header in ("claim", "source", "verdict", "measured", "counterexample or note"):
        table.add_column(header, overflow="fold")
    for outcome in outcomes:
        verdict = outcome.judgement.verdict
        mark = "" if outcome.as_expected else f"  (expected {outcome.claim.expected.value})"
        table.add_row(
            outcome.claim.name,
            outcome.claim.source,
            f"[{_COLOURS[verdict]}]{verdict.value}{mark}[/]",
            _measured(outcome),
            _example(outcome) or outcome.claim.note,
        )
    return table


def _measured(outcome: Outcome) -> str:
    judgement = outcome.judgement
    if judgement.looseness is not None and judgement.verdict is not Verdict.FALSE:
        return f"{judgement.detail}; at least {judgement.looseness:.3g} x loose"
    return judgement.detail


def _example(outcome: Outcome) -> str:
    example = outcome.judgement.counterexample
    if not example:
        return ""
    return ", ".join(f"{key} = {_short(value)}" for key, value in example.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        shown = [_short(part) for part in value[:8]] + (["..."] if len(value) > 8 else [])
        return "[" + ", ".join(shown) + "]"
    return str(value)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table of docs/theory.md: one section a paper, one line a statement."""
    lines = [_summary(outcomes), ""]
    for key, title in PAPERS.items():
        rows = [outcome for outcome in outcomes if paper_of(outcome.claim) == key]
        if not rows:
            continue
        lines += [f"### {title}", "", "| statement | verdict | what came out |", "|---|---|---|"]
        lines += [_markdown_row(outcome) for outcome in rows]
        lines.append("")
    return "\n".join(lines)


def _summary(outcomes: Sequence[Outcome]) -> str:
    tally = ", ".join(f"{number} {verdict}" for verdict, number in counts(outcomes).items())
    return f"{len(outcomes)} claims: {tally}."


def _markdown_row(outcome: Outcome) -> str:
    entry, judgement = outcome.claim, outcome.judgement
    parts = [entry.note.rstrip(".")] if entry.note else []
    if judgement.verdict is Verdict.FALSE:
        parts.append(f"Counterexample: {_example(outcome)}")
    if judgement.verdict is Verdict.VACUOUS and judgement.looseness is not None:
        parts.append(f"At least {judgement.looseness:.0f} times too large")
    if entry.corrects:
        parts.append(f"Corrects `{entry.corrects}`")
    corrected = corrections(entry.name)
    if corrected:
        parts.append("Corrected: " + ", ".join(f"`{name}`" for name in corrected))
    parts = parts or [judgement.detail]
    source = entry.source.replace("|", "\\|")
    told = ". ".join(parts).replace("|", "\\|")
    return f"| {source}<br>`{entry.name}` | {judgement.verdict.value} | {told} |"


TABLE_START = "<!-- table: python -m theory_checks --table=docs/theory.md -->"
TABLE_END = "<!-- end of table -->"


def insert_table(path: str | os.PathLike[str], table: str) -> None:
    """Puts the table between the two marks of an existing file, or starts a file with it."""
    target = Path(path)
    text = (
        target.read_text(encoding="utf-8") if target.exists() else f"{TABLE_START}\n{TABLE_END}\n"
    )
    before, start, rest = text.partition(TABLE_START)
    _, end, after = rest.partition(TABLE_END)
    if not (start and end):
        raise ValueError(f"{target}: expected the marks {TABLE_START!r} and {TABLE_END!r}.")
    with files.atomic_writer(target) as stream:
        stream.write(f"{before}{start}\n{table}\n{end}{after}".encode())
