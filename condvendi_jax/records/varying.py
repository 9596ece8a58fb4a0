"""Which field of a file holds the answers: the one whose texts vary where the prompt does not."""

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from condvendi_jax.records import answers as texts
from condvendi_jax.records import record
from condvendi_jax.records.record import Fields, known_fields

_VARIES = 0.05  # The least share of prompts whose texts differ.
_DISTINCT = 0.25  # The share of prompts with texts of their own, from which a field may answer.
_DEEPEST, _SHOWN = 3, 4
# Fields that seldom hold answers: they are never chosen.
_NOTES = re.compile(
    r"reason|thought|thinking|rationale|explan|\bcot\b|critique|feedback|comment|judg|grad(e|ing)"
    r"|meta|categor|topic|subject|source|title|author|descr|finish|stop|status|error|warning|type"
    r"|role|lang|split|date|time|stamp|hash|uuid|url|path|file|version|config|param|log|usage|ideal"
    r"|option|choice|reference|gold|target|expected|truth|gts|label|correct|template|\bids?\b|_id",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"(?=\S*\d)[\w.:/+#@-]{6,}|\W*|true|false|null|none|[-+]?(inf|infinity|nan)"
    r"|[-+]?(\d[\d_]*\.?\d*|\.\d+)(e[-+]?\d+)?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.*\D)(\d+)\s*")


@dataclasses.dataclass
class Candidate:
    """A field that may hold answers, and the texts in it that answer each prompt."""

    field: str
    known: bool = False  # Whether its name is one of answers.
    rows: int = 0  # The records that have it.
    equals: int = 0  # Those where a field of a known name holds one of its texts, too.
    is_listed: bool = False  # Whether a record has several texts in it.
    said: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # By prompt.

    @property
    def varies(self) -> bool | None:
        """Whether texts that answer one prompt differ; None where no prompt has several."""
        repeated = [texts for texts in self.said.values() if len(texts) > 1]
        differ = sum(len({*texts}) > 1 for texts in repeated)
        return differ >= _VARIES * len(repeated) and differ > 0 if repeated else None

    @property
    def is_distinct(self) -> bool:
        """Whether many prompts have texts of their own."""
        first = [texts[0] for texts in self.said.values()]
        return len(first) > 1 and len({*first}) > _DISTINCT * len(first)


def with_lists(row: dict[Any, Any]) -> dict[Any, Any]:
    """The row with texts in numbered columns as one list: `answer_1`, `answer_2` -> `answer_*`."""
    lists: dict[str, dict[int, str]] = collections.defaultdict(dict)
    for field, value in row.items():
        if isinstance(value, dict) and (inner := with_lists(value)) is not value:
            row = row | {field: inner}
        if isinstance(value, str) and (hit := _NUMBERED.fullmatch(str(field))):
            lists[f"{hit[1]}*"][int(hit[2])] = value
    several = {name: cells for name, cells in lists.items() if len(cells) > 1}
    if not several:
        return row
    row = {key: v for key, v in row.items() if _NUMBERED.sub(r"\1*", str(key)) not in several}
    return row | {key: [v for _, v in sorted(c.items()) if v.strip()] for key, c in several.items()}


def answer_field(rows: Sequence[dict[Any, Any]], named: Fields, place: str) -> tuple[str, str]:
    """The field of the answers ('' if usual names tell), and why; ValueError if the rows cannot."""
    candidates = _candidates(rows, named)
    known = [c for c in candidates if c.known]
    fixed = [c for c in known if c.varies is False]
    varying = [c for c in known if c.varies]
    others = [c for c in candidates if not c.known and not _NOTES.search(c.field)]
    rivals = [c for c in others if not known or c.varies or c.is_distinct or c.equals]
    best, odd = [c for c in rivals if c.varies], []
    if not best and fixed and len(fixed) == len(known):  # As sure as the others, with odd names.
        odd = [c for c in candidates if c not in (*known, *others) and c.varies]
    singles = [c for c in rivals if c.equals and not c.is_listed]
    aliases = singles and any(c.is_listed for c in varying)
    once = not known and len(rivals) == 1 and rivals[0].varies is None
    chosen = best if len(best) == 1 else rivals if once else []
    if len(varying) == 1 and fixed and varying[0].rows == len(rows):
        chosen = varying
    elif (varying and not aliases) or not (rivals or odd):
        return "", ""
    if chosen:
        words, same = f"answers are read from {chosen[0].field!r}", [repr(c.field) for c in fixed]
        because = f", because {' and '.join(same)} is the same for all answers to a prompt"
        return chosen[0].field, words + because * bool(same)
    fields = [c.field for c in [*known, *(best or odd or rivals)]]
    raise record.unclear(place, fields[: _SHOWN + len(known)])


def _candidates(rows: Sequence[dict[Any, Any]], named: Fields) -> list[Candidate]:
    """The fields of texts that are no part of the prompt, nor named for something else."""
    candidates: dict[str, Candidate] = {}
    for row in rows:
        of_row = record.Record(row, named)
        row, given = of_row.row, of_row.given()
        if not given:
            continue  # No prompt is known, so nothing can vary within one.
        names = {str(name) for name in known_fields(row, record.ANSWER_FIELDS)}
        prompt = texts.label([*given.values()])
        others = known_fields(row, [*record.GIVEN, *record.MODEL_FIELDS])
        said = _texts(row, {*given, *others, *named[1:4], *named.beside})
        usual = {text.casefold() for name in names for text in said.get(name, ())}
        for field, values in said.items():
            same = bool(usual.intersection(map(str.casefold, values)))
            if field in names or not _is_beside(values, prompt, usual, same=same):
                candidate = candidates.setdefault(field, Candidate(field))
                candidate.known |= field in names
                candidate.rows += 1
                candidate.equals += same
                candidate.is_listed |= len(values) > 1
                candidate.said.setdefault(prompt, []).extend(values)
    return [*candidates.values()]


def _is_beside(values: Sequence[str], prompt: str, usual: Iterable[str], *, same: bool) -> bool:
    """Whether texts are ids, times or numbers, a part of the prompt, or prompt and answer in one.

    Numbers that a field of a known name has as well, `same`, may be answers.
    """
    asked = " ".join(prompt.split()).casefold()
    plain = [" ".join(text.split()).casefold() for text in values]
    part = any(len(text.split()) > 2 and text in asked for text in plain)
    whole = any(asked.strip('[]"') in text and any(u in text for u in usual) for text in plain)
    return part or whole or (not same and all(map(_MACHINE.fullmatch, values)))


def _texts(row: Mapping[Any, Any], without: Iterable[Any], path: str = "") -> dict[str, list[str]]:
    """The texts of every field that has some, by its path; a list of texts is one field."""
    held: dict[str, list[str]] = {}
    for key, value in row.items():
        field, nested = f"{path}{key}", isinstance(value, dict) and "role" not in value
        if key in without or (nested and str(key).casefold() in record.ANSWER_FIELDS):
            continue
        if nested and field.count(".") < _DEEPEST:
            held |= _texts(value, (), f"{field}.")
            continue
        several = value if isinstance(value, list) else [value]
        values = [v.get("content", v.get("text")) if isinstance(v, dict) else v for v in several]
        if all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in values):
            held[field] = [text for v in values if (text := str(v).strip())]
    return {field: values for field, values in held.items() if values}
