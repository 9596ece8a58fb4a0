"""What comes out of a run: the terminal's pages, the generated parts of docs/theory.md."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from condvendi_jax.base import files
from condvendi_jax.base.result import plain
from theory_checks import latex
from theory_checks.claim import STEP, Claim, Kind, Outcome, Tried
from theory_checks.evidence import Verdict
from theory_checks.roots import ROOTS, Root, Severity
from theory_checks.statements import NOTATION, PAPERS

PARTS = ("counts", "results", "others", "register")
"""The generated parts of docs/theory.md."""
_SHOWN = {root.shown_by for root in ROOTS.values()}


def by_root(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The false claims under each root error, the one that shows it best first."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.claim.name not in _SHOWN)
    found = {key: [each for each in ordered if each.claim.root == key] for key in ROOTS}
    return {key: shown for key, shown in found.items() if shown}


def page(
    outcomes: Sequence[Outcome],
    *,
    everything: bool,
    unexpected: Sequence[str] = (),
    wrong_versions: int | None = None,
) -> str:
    """What the terminal shows: the root errors, on request every claim, then how many hold.

    Args:
        outcomes: of the claims that were tried.
        everything: whether every claim is shown.
        unexpected: a line for every verdict that is not the expected one.
        wrong_versions: how many were tried, where any were.
    """
    parts = [*_roots(outcomes, names=True), "Every statement, with what was measured: --all"]
    if everything:
        parts[-1:] = map(_section, outcomes)
    ending = "\n".join(_ending(outcomes, unexpected, wrong_versions))
    return "\n" + "\n\n".join([*parts, ending])


def _ending(
    outcomes: Sequence[Outcome], unexpected: Sequence[str], wrong_versions: int | None
) -> Iterator[str]:
    """How many statements hold and how many fail; what was not expected."""
    verdicts = [outcome.stated.judgement.verdict for outcome in outcomes]
    false = verdicts.count(Verdict.FALSE)
    corrections = [outcome.tried["corrected"] for outcome in outcomes if len(outcome.tried) > 1]
    corrected = sum(each.judgement.verdict is not Verdict.FALSE for each in corrections)
    *errors, readings = _by_severity(outcomes)
    held = len(verdicts) - false
    yield f"Held: {held} of {len(verdicts)} statements, and {corrected} corrections."
    yield f"Failed: {false} statements, as papers print or imply them or as we read them." + (
        f" They go back to the {sum(errors)} errors and {readings} readings above." * (false > 0)
    )
    if wrong_versions is not None:
        yield f"Rejected: {wrong_versions} wrong versions of what holds."
    yield f"Unexpected: {len(unexpected) or 'nothing'}."


def _by_severity(outcomes: Sequence[Outcome]) -> list[int]:
    """How many root errors are of each severity; the last are no errors but readings."""
    found = [ROOTS[key].severity for key in by_root(outcomes)]
    return [found.count(severity) for severity in Severity]


def _best(tried: Tried) -> Mapping[str, Any]:
    return tried.judgement.smallest or tried.judgement.clearest or {}


def _checked(entry: Claim, tried: Tried, *, constants: bool) -> str:
    """What was measured; with `constants`, also how many of those the check can tell."""
    judgement, shown = tried.judgement, tried.evidence.measured
    words = [judgement.detail.partition(",")[0]]
    if (judgement.looseness or 0) > 1.005:
        words.append(f"looseness {judgement.looseness:.3g}")
    words += [_example(shown() if callable(shown) else shown)]
    words = [*filter(None, [*words, _constants_words(entry, constants=constants)])]
    # The number of trials alone says little on the page.
    return f"{'; '.join(words)}." if constants or len(words) > 1 else ""


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


def documents(outcomes: Sequence[Outcome], *, wrong_versions: int | None = None) -> dict[str, str]:
    """The generated parts of docs/theory.md by their marks."""
    parts = _counts_words(outcomes, wrong_versions), _results(outcomes), _roots(outcomes)
    texts = ("\n\n".join(part) for part in (*parts, _register(outcomes)))
    return dict(zip(PARTS, texts, strict=True))


def _counts_words(outcomes: Sequence[Outcome], wrong_versions: int | None) -> Iterator[str]:
    result, bound, slip, readings = _by_severity(outcomes)
    claims = [outcome.claim for outcome in outcomes]
    ours = sum(entry.kind is Kind.OURS or entry.corrected is not None for entry in claims)
    words = (
        f"We found {result + bound + slip} errors, each counted once: {result} results, {bound} "
        f"constants or conditions, {slip} slips of a display; and {readings} readings that no "
        f"paper states. {ours} statements are ours."
    )
    if wrong_versions is not None:
        words += f" {wrong_versions} wrong versions of what holds are rejected."
    yield words


def _results(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The root errors of the first page, each with what replaces it."""
    for root in (ROOTS[key] for key in by_root(outcomes)):
        if root.corrected:
            yield f"- **{root.title}**: {root.corrected}"


def _roots(outcomes: Sequence[Outcome], *, names: bool = False) -> Iterator[str]:
    """A short paragraph a root error, by severity; with the names of its statements for --only."""
    found = by_root(outcomes)
    for severity in Severity:
        shown = {key: found[key] for key in found if ROOTS[key].severity is severity}
        if shown:
            yield f"### {severity.value}"
        for key, false in shown.items():
            example = ROOTS[key].example.format(**_best(false[0].stated))
            repeated = "\n--only: " + ", ".join(outcome.claim.name for outcome in false)
            yield f"{_title(ROOTS[key])} {example} {ROOTS[key].meaning}" + repeated * names


def _title(root: Root) -> str:
    return f"**[{root.title}](#{root.shown_by}).**"


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
                yield _section(outcome, constants=False)


def _section(outcome: Outcome, *, constants: bool = True) -> str:
    """The entry of one claim; the terminal also says how many of its constants the check knows."""
    entry, stated, last = outcome.claim, outcome.stated, outcome.last
    words, told = outcome.label.lower(), entry.name in _SHOWN
    words = "ours" if entry.kind is Kind.OURS else words
    words = f"[{words}](#each-error-in-a-few-words)" if told else words
    parts = [f"### {entry.name}", f"**{entry.source}**: {words}.", f"$${stated.form.text}$$"]
    if last is not stated:
        parts.append(f"Corrected:\n\n$${last.form.text}$$")
    if entry.assumptions:
        # A word gets a capital letter, a symbol does not.
        assumed = latex.shown(entry.assumptions)
        parts.append(re.sub("^[a-z](?=[a-z])", lambda first: first[0].upper(), assumed) + ".")
    said, lines = [entry.note], []
    if stated.judgement.verdict is Verdict.FALSE:
        if not set("\\$_") & set(entry.quote):  # LaTeX in a paper's words is the formula above.
            said.append(entry.quote and f"Paper: “{entry.quote}”.")
        lines.append("" if told else f"Counterexample: {_example(_best(stated))}.")
    holds = last.judgement.verdict is not Verdict.FALSE
    checked = _checked(entry, last, constants=constants) if holds else ""
    proof = f"[Proof](proofs.md#{anchor(entry.proof)})." if entry.proof else ""
    lines.append(f"{checked} {proof}".strip())
    parts.append("\n".join(filter(None, said)))
    lines = [*filter(None, lines)]
    parts.append("\n".join(f"- {line}" for line in lines) if len(lines) > 1 else "".join(lines))
    return "\n\n".join(filter(None, parts))


def _constants_words(entry: Claim, *, constants: bool) -> str:
    """Whether the text itself is evaluated, and, if asked, how many constants the check knows."""
    if "⟦" not in entry.holding.latex:
        return "by code"
    if not constants:
        return ""
    count = len([*latex.changed(entry.holding.latex)])
    seen = count - sum(factor > STEP for factor in entry.loose[:count])
    return "" if seen == count else f"constants seen: {seen}/{count}"


def renewed(path: str | os.PathLike[str], parts: Mapping[str, str]) -> str:
    """An existing document with each part between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    text = Path(path).read_text(encoding="utf-8")
    for name, content in parts.items():
        start, end = f"<!--{name}-->", f"<!--/{name}-->"
        if not (0 <= text.find(start) < text.find(end)):
            raise ValueError(f"{path}: expected the marks {start!r} and {end!r}.")
        before, rest = text.split(start, 1)
        text = f"{before}{start}\n{content}\n{end}{rest.split(end, 1)[1]}"
    return text


def insert(path: str | os.PathLike[str], parts: Mapping[str, str]) -> None:
    """Writes the document that `renewed` returns."""
    files.write_text(path, renewed(path, parts))
