"""Which field of a file holds the answers: the one whose texts vary where the prompt does not."""

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from condvendi_jax.records import answers as texts
from condvendi_jax.records.record import (
    ANSWER_FIELDS,
    GIVEN,
    MODEL_FIELD,
    Fields,
    Record,
    known_fields,
)

_VARIES = 0.05  # The least share of prompts whose texts differ.
_DISTINCT = 0.25  # The share of prompts with texts of their own, from which a field may answer.
_DEEPEST = 3
_SHOWN = 4
# What varies beside answers, or is no answer at all: it only ever stops us from refusing.
_NOTES = re.compile(
    r"reason|thought|thinking|rationale|explan|\bcot\b|critique|feedback|comment|judg|grad(e|ing)"
    r"|meta|categor|topic|subject|source|title|author|descr|finish|stop|status|error|warning|type"
    r"|role|lang|split|date|time|stamp|hash|uuid|url|path|file|version|config|param|log|usage"
    r"|option|choice|reference|gold|target|expected|truth|gts|label|ideal|correct|template|\bids?\b|_id",
    re.IGNORECASE,
)
_MACHINE = re.compile(r"(?=\S*\d)[\w.:/+#@-]{6,}|\W*|true|false|null|none", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*\D)(\d+)\s*")


class Candidate(NamedTuple):
    """A field that may hold answers.

    `records` is the number that have it, `listed` says whether one has several texts in it,
    `varies` is the share of repeated prompts whose texts in it differ (None where none repeats),
    `distinct` the share of prompts whose first text differs from others, and `equals` how many
    records have in it what a field of a known name holds, too.
    """

    field: str
    known: bool
    records: int
    listed: bool
    varies: float | None
    distinct: float
    equals: int

    @property
    def is_fixed(self) -> bool:
        """Whether its texts are the same wherever the prompt is."""
        return self.varies is not None and self.varies < _VARIES


def with_lists(row: dict[Any, Any]) -> dict[Any, Any]:
    """The row with texts in numbered columns as one list: `answer_1`, `answer_2` -> `answer_*`."""
    columns: dict[str, dict[int, Any]] = collections.defaultdict(dict)
    for field, value in row.items():
        if isinstance(value, dict) and (inner := with_lists(value)) is not value:
            row = row | {field: inner}
        if isinstance(value, str) and (hit := _NUMBERED.fullmatch(str(field))):
            columns[hit[1]][int(hit[2])] = value
    lists = {f"{stem}*": cells for stem, cells in columns.items() if len(cells) > 1}
    if not lists:
        return row
    row = {key: value for key, value in row.items() if f"{_stem(key)}*" not in lists}
    return row | {key: [v for _, v in sorted(c.items()) if v.strip()] for key, c in lists.items()}


def _stem(field: Any) -> str:
    hit = _NUMBERED.fullmatch(str(field))
    return hit[1] if hit else ""


def answer_field(rows: Sequence[dict[Any, Any]], named: Fields, place: str) -> tuple[str, str]:
    """The field of the answers, '' where names tell, and why, in words.

    `ValueError` with the fields where the rows cannot tell.
    """
    candidates = _candidates(rows, named)
    known = [c for c in candidates if c.known]
    others = [c for c in candidates if not c.known]
    varying = [c for c in known if c.varies and not c.is_fixed]
    if len(varying) == 1 and any(c.is_fixed for c in known) and varying[0].records == len(rows):
        return varying[0].field, _because(known, varying[0])
    rivals = [c for c in others if _is_rival(c, known)]
    aliases = any(c.listed for c in varying) and any(c.equals and not c.listed for c in rivals)
    if not rivals or (varying and not aliases):
        return "", ""
    best = [c for c in rivals if c.varies and not c.is_fixed]
    asked_once = all(c.varies is None for c in rivals)
    if len(best) == 1 or (not known and len(rivals) == 1 and asked_once):
        chosen = (best or rivals)[0]
        return chosen.field, _because(known, chosen)
    fields = [c.field for c in [*known, *(best or rivals)]][: _SHOWN + len(known)]
    flags = " or ".join(f"--answer_field={field}" for field in fields)
    raise ValueError(
        f"{place}: {' and '.join(map(repr, fields))} may all be what the model said. "
        f"Name the right one: {flags}."
    )


def _because(known: Iterable[Candidate], chosen: Candidate) -> str:
    fixed = [repr(c.field) for c in known if c.is_fixed and c != chosen]
    if not fixed:
        return f"answers are read from {chosen.field!r}"
    return (
        f"answers are read from {chosen.field!r}, because {' and '.join(fixed)} is the same for "
        "all answers to a prompt"
    )


def _is_rival(candidate: Candidate, known: Sequence[Candidate]) -> bool:
    """Whether a field of an unknown name may hold answers as well as those of known names."""
    varies = candidate.varies is not None and not candidate.is_fixed
    return not known or varies or candidate.distinct > _DISTINCT or candidate.equals > 0


def _candidates(rows: Sequence[dict[Any, Any]], named: Fields) -> list[Candidate]:
    """The fields of texts that are neither a part of the prompt nor named for something else."""
    by_field: dict[str, dict[str, list[list[str]]]] = {}
    equal, counts = collections.Counter[str](), collections.Counter[str]()
    known, listed = set[str](), set[str]()
    for row in rows:
        record = Record(row, named)
        given, asked_in = record.given(), known_fields(row, GIVEN)
        if not given:
            continue  # No prompt is known, so nothing can vary within one.
        names = {str(name) for name in known_fields(row, ANSWER_FIELDS)}
        prompt, asked = texts.label([*given.values()]), _plain(texts.label([*given.values()]))
        held = _texts(row, {*given, *asked_in, *named[1:4], *named.beside, MODEL_FIELD})
        usual = {text.casefold() for name in names for text in held.get(name, ())}
        for field, values in held.items():
            same = bool(usual.intersection(map(str.casefold, values)))
            if field not in names and (
                _NOTES.search(field)
                or (_is_machine(values) and not same)
                or any(_repeats(_plain(text), asked, usual) for text in values)
            ):
                continue
            known |= {field} & names
            listed |= {field} if len(values) > 1 else set()
            equal[field] += same
            counts[field] += 1
            by_field.setdefault(field, {}).setdefault(prompt, []).append(values)
    return [
        Candidate(
            field,
            field in known,
            counts[field],
            field in listed,
            *_variation(by_prompt),
            equal[field],
        )
        for field, by_prompt in by_field.items()
    ]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _repeats(text: str, asked: str, usual: Iterable[str]) -> bool:
    """Whether a text is a part of the prompt, or prompt and answer in one."""
    if len(text.split()) > 2 and text in asked:
        return True
    return asked.strip('[]"') in text and any(answer in text for answer in usual)


def _variation(by_prompt: Mapping[str, list[list[str]]]) -> tuple[float | None, float]:
    """The share of repeated prompts whose texts differ, None without any, and of unlike texts."""
    flat = [[text for values in said for text in values] for said in by_prompt.values()]
    repeated = [said for said in flat if len(said) > 1]
    distinct = len({said[0] for said in flat}) / len(flat) if len(flat) > 1 else 0.0
    if not repeated:
        return None, distinct
    return sum(len({*said}) > 1 for said in repeated) / len(repeated), distinct


def _texts(row: Mapping[Any, Any], without: Iterable[Any], path: str = "") -> dict[str, list[str]]:
    """The texts of every field that has some, by its path; a list of texts is one field."""
    held: dict[str, list[str]] = {}
    for key, value in row.items():
        field, nested = f"{path}{key}", isinstance(value, dict) and "role" not in value
        if key in without or (nested and str(key).casefold() in ANSWER_FIELDS):
            continue
        if nested and field.count(".") < _DEEPEST:
            held |= _texts(value, (), f"{field}.")
            continue
        values = [
            v.get("content", v.get("text")) if isinstance(v, dict) else v
            for v in (value if isinstance(value, list) else [value])
        ]
        if all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in values):
            held[field] = [text for v in values if (text := str(v).strip())]
    return {field: values for field, values in held.items() if values}


def _is_machine(values: Sequence[str]) -> bool:
    """Whether texts are ids, times, digests, numbers or flags."""
    return all(_MACHINE.fullmatch(value) or _is_number(value) for value in values)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
