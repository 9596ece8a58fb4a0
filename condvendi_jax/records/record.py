"""A record of what a language model said: a row of a file, and where everything stands in it.

Answers stand in a field of a known name, or in one whose texts vary where the prompt does not.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from condvendi_jax.records import answers as texts
from condvendi_jax.records.answers import CALLS, FAILED, NO_CALL, Unfit, messages_of
from condvendi_jax.records.formats import FORMATS, MODEL_FIELDS, WEIGHT_FIELD, Format

PROMPT_FIELDS = ("prompt", "question", "instruction", "input", "messages", "task")
GIVEN = ("system", "system_prompt", "system_message", "instructions", "history", "context")
GIVEN += (*PROMPT_FIELDS[:-1], "choices", "options", "tools", "functions", "documents", "files")
GIVEN += ("images", "image")
_TEXTS = ("history", "context", "choices", "options")
_LISTS = ("generations", "responses", "completions", "outputs", "answers", "predictions")
LAST_TURN = "messages[-1]"
ANSWER_FIELDS = (*_LISTS, "generation", "response", "completion", "output", "answer", "prediction")
ANSWER_FIELDS += ("predicted_text", "generated_text", "model_output", LAST_TURN)
_BOTH = (
    "name both, --prompt_field=NAME --answer_field=NAME, or A.B for B within A, and "
    "--model_field=NAME if one has the model; or write records such as "
    '{"prompt": "...", "answers": ["...", "..."]}; the first line of a table has the names'
)
_NOTHING: Any = ([], [None], [""], [[]])
_PLAIN = Format(tool="", marks="")  # Of records whose fields have plain names.
_CHATS = ("messages", "conversations", "conversation")
_VARIES = 0.05  # The least share of prompts whose texts differ.
_DISTINCT = 0.25  # The share of prompts with texts of their own, from which a field may answer.
_DEEPEST, _SHOWN = 3, 4
_NOTES = re.compile(  # Fields that seldom hold answers: they are never chosen.
    r"reason|thought|thinking|rationale|explan|\bcot\b|critique|feedback|comment|judg|grad(e|ing)"
    r"|meta|categor|topic|subject|source|title|author|descr|finish|stop|status|error|warning|type"
    r"|role|lang|split|date|time|stamp|hash|uuid|url|path|file|version|config|param|log|usage|ideal"
    r"|option|choice|reference|gold|target|expected|truth|gts|label|correct|template|\bids?\b|_id"
    r"|(\b|_)(cls|class(es)?|clusters?|winner)\b|\bmodels?(_(name|[a-z]|\d+))?\s*$",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"(?=\S*\d)[\w.:/+#@-]{6,}|\W*|true|false|null|none|[-+]?(inf|infinity|nan)"
    r"|[-+]?(\d[\d_]*\.?\d*|\.\d+)(e[-+]?\d+)?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.*\D)(\d+)\s*")
_ENDED = re.compile(  # In JSON, why a text ended, or a list of this.
    r'(?i)"(?:finish|stop|done|incomplete)_?(?:reason|detail)s?": (?!null)(\[[^\]]*\]|[^,}]+)'
)
_CUT = re.compile(r"length|max\w*tokens", re.I)
_ERRORS = "result.error.error.message response.body.error.message error.message result.type"


class Fields(NamedTuple):
    """The fields that a user names; None where those that are known count. And what joins them."""

    prompt: str | None = None
    answer: str | None = None
    model: str | None = None
    batch: str | None = None
    beside: Sequence[str] = ()
    asked: Mapping[str, str] = types.MappingProxyType({})  # Prompts by the ids that records have.


class Prompt(NamedTuple):
    """All that a model was given as a text, its fields, and the fields that were not read."""

    text: str
    fields: list[str]
    unread: Sequence[str] = ()
    is_id: bool = False  # It stands for a prompt that the record does not have.
    turns: Sequence[str] = ()  # What the user said in a chat, where a field of the prompt is named.


class Answer(NamedTuple):
    """An answer as the record has it, its name for errors, and its number in the record."""

    value: Any
    name: str
    row: int = 0


class Row(NamedTuple):
    """An answer with its prompt."""

    model: str | None
    asked: Prompt
    answer: str
    field: str
    weight: float | None
    batch: str | None
    beside: dict[str, Any]
    is_cut: bool  # Whether the record says that a limit of tokens ended it.


class Record:
    """A row of a file with its format: it knows its answers, prompt, model, weights and batch.

    What does not fit raises `Unfit`, of the whole record or of one answer. `named` are the fields
    that the user names, and `place` are file and line, for errors and as the label of a request.
    """

    def __init__(self, row: dict[Any, Any], named: Fields | None = None, place: str = ""):
        self.named, self.place, self.row, self._read = named or Fields(), place, {**row}, row
        for path in (*self.named[:4], *self.named.beside):
            if path and path not in row and (held := values(row, path)):
                several = len(held) > 1 or re.search(r"\[(?!-?\d)", path)
                self.row[path] = held if several else held[0]
        forms = _forms_of(tuple(self.row))
        marked = (f for f in forms if all(values(self.row, path) for path in f.marks.split()))
        self.form = next(marked, _PLAIN)  # A path may lead to null.
        self.runs, places = self.named.answer == CALLS, re.split(r"[ \[]", self.form.answers)
        if self.form.answers and self.named.answer in (CALLS, *places):
            self.named = self.named._replace(answer=None)  # Its place in the field is known.
        said = [] if self.form.answers else known_fields(row, ANSWER_FIELDS)
        self.row |= {field: _inner(row[field]) for field in said}
        if (self.named.answer or bool(self.form.answers or said)) in (False, LAST_TURN, CALLS):
            for field in known_fields(row, _CHATS):
                chat = messages_of(row[field]) or [{}]  # The last turn answers those before.
                at = [k for k, turn in enumerate(chat) if turn.get("role") in texts.ASSISTANTS]
                if self.runs and at:
                    self.row |= {"messages": chat[: at[0]], CALLS: row.get(CALLS) or chat[at[0] :]}
                elif chat[1:] and at[-1:] == [len(chat) - 1]:
                    self.row |= {"messages": chat[:-1], LAST_TURN: chat[-1]}

    @property
    def is_complete(self) -> bool:
        """Whether it has fields of a prompt and of an answer, or is of a known format."""
        prompt = self.named.prompt in self.row or known_fields(self.row, PROMPT_FIELDS)
        answer = self.named.answer in self.row or known_fields(self.row, ANSWER_FIELDS)
        return bool(self.form.tool or (prompt and answer))

    @property
    def id(self) -> str:
        """The field whose id stands for the prompt, as the record has none; '' elsewhere."""
        if not self.form.id or self.form.prompt or self.named.prompt:
            return ""
        return "" if known_fields(self.row, PROMPT_FIELDS[:-1]) else self.form.id  # Task is a name.

    def given(self) -> dict[Any, Any]:
        """The field of the prompt that the user names, or all that may be a part of it."""
        known = known_fields(self.row, [*GIVEN, *PROMPT_FIELDS])
        fields = [self.named.prompt] if self.named.prompt else known
        return {f: value for f in fields if (value := self.row.get(f)) or value == 0}

    def repeats(self, filters: dict[str, Any]) -> bool:
        """Whether lm-evaluation-harness wrote this sample before, for the first of its filters."""
        if "resps" not in self.row:
            return False
        fields = ("doc_id", "doc", "arguments", "resps")
        key, name = texts.label([*map(self.row.get, fields)]), self.row.get("filter")
        # Older versions do not name the filter.
        if key in filters and "filter" not in self.row and self.row.get("doc_id") is not None:
            raise Unfit("repeats a sample, as lm-evaluation-harness does for each filter")
        return filters.setdefault(key, name) != name

    def rows(self) -> Iterator[Row | Unfit]:
        """A row for each answer, or why it does not fit."""
        answers, prompt = self.answers(), self.prompt()
        ends = ",".join(_ENDED.findall(json.dumps(self._read, default=repr))).split(",")
        cut = [_CUT.search(end) is not None for end in ends]
        for k, answer in enumerate(answers):
            try:
                about = self.weight(answer), self.batch(answer)
                beside = {field: self.beside(field, answer) for field in self.named.beside}
                run = "\n".join(texts.calls(*answer[:2])) or NO_CALL if self.runs else answer.value
                said = texts.checked(texts.assistant_text(_inner(run), answer.name), answer.name)
                is_cut = cut[k] if len(cut) == len(answers) else k < sum(cut)
                yield Row(self.model(answer), prompt, said, self._said[0], *about, beside, is_cut)
            except Unfit as error:
                yield error

    def model(self, answer: Answer | None = None) -> str | None:
        """The name of the model; None where there is no such field, or it is null or blank."""
        field, value = self.form.model, None
        if self.named.model is None and field:
            field, held = self._first(field)
            value = next(iter(held), None)
        elif self.named.model is not None or known_fields(self.row, MODEL_FIELDS):
            field = self._field("model", MODEL_FIELDS)
            value = self.row[field]
        value = self.beside(field, answer) if answer and isinstance(value, list) else value
        value = texts.label(value) if type(value) in (int, float) else value  # As a temperature.
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if not isinstance(value, str):
            raise Unfit(f"expected a text in {field!r}, received {texts.label(value)[:40]}")
        return texts.checked(value.strip(), repr(field))

    @functools.cached_property
    def _said(self) -> tuple[str, Any, bool]:
        """The field of the answers, what it holds, and whether this is a list of answers."""
        if self.named.answer is None and self.form.answers:
            path, held = self._first(self.form.answers)
            field = path.partition("[")[0]
            one = len(held) == 1 and path == field
            return field, _inner(held[0]) if one else held, not one
        field = self._answer_field()
        value = self.row[field]
        if isinstance(value, str) and field.strip().casefold() in (*_LISTS, CALLS):
            value = texts.listed(value)
        if self.runs or not isinstance(value, list):
            return field, value, isinstance(value, list) and {*map(type, value)} == {list}
        kinds = [str(part.get("type")) if isinstance(part, dict) else "" for part in value]
        thoughts = ("thinking", "reasoning")  # The blocks of a message that are no answer.
        value = [p for p, kind in zip(value, kinds, strict=True) if not kind.endswith(thoughts)]
        roles = [part.get("role") if isinstance(part, dict) else None for part in value]
        # A conversation is one answer; a model's messages are several.
        return field, value, None in roles or {*roles} <= {*texts.ASSISTANTS}

    def answers(self) -> list[Answer]:
        """The answers, at least one."""
        field, held, several = self._said
        if not several:
            return [Answer(held, repr(field))]
        if not held:
            failed = [f": {FAILED}, {w!s:.80}" for w in self._first(_ERRORS)[1] if w != "succeeded"]
            raise Unfit(f"{field!r} holds no answers{''.join(failed)}")
        return [Answer(value, f"{field!r}[{row}]", row) for row, value in enumerate(held)]

    def prompt(self) -> Prompt:
        """All that the model was given, or an id that stands for it."""
        prompt = self._by_id() if self.id else self._by_format()
        return prompt._replace(text=texts.checked(prompt.text, repr(prompt.fields[-1])))

    def _by_id(self) -> Prompt:
        if (text := str(next(iter(values(self.row, self.id)), ""))) in ("", "None"):
            raise Unfit(f"expected an id in {self.id!r}, as the record has no prompt")
        if self.named.asked and text not in self.named.asked:
            raise Unfit(f"no prompt was given with {text!r} as its {self.id!r}")
        return Prompt(self.named.asked.get(text, text), [self.id], is_id=not self.named.asked)

    def _by_format(self) -> Prompt:
        """The prompt where the format has it, or else that of plain fields."""
        path, held = self._first(self.form.prompt) if self.form.prompt else ("", [])
        row = self.row
        for value in held[:1]:
            if isinstance(value, dict) and not messages_of(value):
                row = row if self.named.prompt in row else value  # Its fields are plain.
            elif self.named.prompt is None:
                ids = values(row, self.form.id) if self.form.id and self.form.answers else []
                ids = [f"{self.form.id}: {value}" for value in ids]
                return Prompt("\n\n".join([texts.given_text(value, repr(path)), *ids]), [path])
        return self._by_fields(row)

    def _by_fields(self, row: dict[Any, Any]) -> Prompt:
        """The field of the prompt and, unless it is named, all others that the model was given."""
        if not (row is self.row or self.named.prompt or known_fields(row, PROMPT_FIELDS)):
            only = next(iter(row.values())) if len(row) == 1 else None
            every = json.dumps(row, sort_keys=True, default=repr)
            row = {"prompt": only if texts.holds_text(only) else every}
        field = self._field("prompt", PROMPT_FIELDS, row=row)
        value = row[field]
        if isinstance(value, dict) and not (self.named.prompt or messages_of(value)):
            value = self._by_fields(value).text
        if type(value) in (int, float):  # The number of a question.
            value = texts.label(value)
        elif isinstance(value, list) and value and all(isinstance(turn, str) for turn in value):
            value = "\n\n".join(value)
        elif isinstance(value, dict) and value.get("role") not in (None, *texts.ASSISTANTS):
            value = {**value, "role": "user"}  # A message alone: its text is the prompt.
        said: set[str] = set()
        for answer in self.answers():
            with contextlib.suppress(Unfit):
                said.add(texts.assistant_text(answer.value, answer.name).strip())
        text = texts.checked(texts.given_text(value, repr(field), said), repr(field))
        known, answer = known_fields(row, GIVEN), self._said[0]
        roots = field, answer, "" if answer == LAST_TURN else re.split(r"[.\[]", answer)[0]
        others = [name for name in known if row[name] and name not in roots]
        if self.named.prompt is not None:
            chat = messages_of(row.get("messages")) or []
            turns = [str(t.get("content")) for t in chat if t.get("role") in texts.USERS]
            return Prompt(text, [field], others, turns=tuple(turns))
        parts = {field: text}
        for name in others:
            value = row[name]
            if name.casefold() in _TEXTS and not texts.holds_text(value):
                continue  # Services report choices of answers, options of sampling, tokens.
            plain = isinstance(value, str) or messages_of(value)
            other = texts.given_text(value if plain else texts.label(value), repr(name), said)
            parts |= {} if other == text or texts.is_blank(other) else {name: other}
        read = [name for name in dict.fromkeys([*known, field]) if name in parts]
        return Prompt("\n\n".join(map(parts.__getitem__, read)), read)

    def weight(self, answer: Answer) -> float | None:
        """The probability of an answer; None without one."""
        value = answer.value.get(WEIGHT_FIELD) if isinstance(answer.value, dict) else None
        for field in (WEIGHT_FIELD, "probabilities"):
            if value is None and self.row.get(field) is not None:
                value = self.beside(field, answer._replace(value=None))
        if value is None:
            return None
        with contextlib.suppress(TypeError, ValueError):
            if 0 <= float(value) < float("inf"):
                return float(value)
        expected = f"expected a number from 0 as {WEIGHT_FIELD!r} of {answer.name}"
        raise Unfit(f"{expected}, received {value!r:.40}")

    def batch(self, answer: Answer) -> str | None:
        """The label of the request or batch of an answer; None where it is not known."""
        if self.named.batch:
            return str(self.beside(self.named.batch, answer, of_all=True))
        return self.place if self.form.request else None

    def beside(self, field: str, answer: Answer, *, of_all: bool = False) -> Any:
        """What a field holds of an answer: beside its text, or in a list of the record.

        What is no list is of a single answer or, with `of_all`, of all of the record.
        """
        value = answer.value.get(field) if isinstance(answer.value, dict) else None
        listed = self.row.get(field)
        if value is None and listed is not None:
            count = len(self.answers())
            if not isinstance(listed, list):
                listed = [listed] * (count if of_all else 1)
            if len(listed) != count:
                raise Unfit(f"expected {count} values in {field!r}, one for each answer")
            value = listed[answer.row]
        if value is None or value != value:
            flag = "batch_field" if of_all else "class_field=NAME or --quality_field"
            there = "" if field in self.row else _fields_of(self.row, flag)
            raise Unfit(f"has no {field!r} for {answer.name}{there}")
        return value

    def _first(self, paths: str) -> tuple[str, list[Any]]:
        """The first of several paths that leads somewhere, and to what; the last if none does."""
        held = [(path, values(self.row, path)) for path in paths.split()]
        return next((one for one in held if one[1] not in _NOTHING), held[-1])

    def _answer_field(self) -> Any:
        """The field that is named, or the only one that may hold answers; ValueError if two do."""
        names = [name for name in ANSWER_FIELDS if name != str(self.named.prompt).casefold()]
        known = known_fields(self.row, names) if self.named.answer is None else []
        held = {f: value for f in known if isinstance(value := self.row[f], (str, list, dict))}
        filled = [field for field, value in held.items() if value and not str(value).isspace()]
        if any(self.row[field] != self.row[filled[0]] for field in filled):
            raise unclear(self.place, filled)
        return filled[0] if filled else self._field("answer", names)

    def _field(self, what: str, names: Sequence[str], row: dict[Any, Any] | None = None) -> Any:
        """The field that is named, or else the first of `names` that is not empty, or the first."""
        row, named = self.row if row is None else row, getattr(self.named, what)
        known = known_fields(row, names) if named is None else [named] * (named in row)
        if not known:
            usual = known_fields(self.row, [*PROMPT_FIELDS, *ANSWER_FIELDS])
            if not (usual or self.named.prompt or self.named.answer):
                raise Unfit(f"has no prompt and no answer of usual names{_fields_of(row)}; {_BOTH}")
            known = [*names[:6], *["..."] * (len(names) > 6)]
            wanted = " or ".join(known) if named is None else repr(named)
            raise Unfit(f"has no {wanted} for its {what}" + _fields_of(row, f"{what}_field"))
        return next((field for field in known if row[field] not in (None, "")), known[0])


def _fields_of(row: dict[Any, Any], flag: str = "") -> str:
    """The end of an error: the fields that a row has, and the flag that names one."""
    inner = {key: list(v) if isinstance(v, dict) else [""] for key, v in row.items()}
    paths = [f"{key}.{name}".strip(".") for key, below in inner.items() for name in below]
    how = f"; --{flag}=NAME, or A.B for B within A, A[-1] for its last, chooses one" if flag else ""
    return f"; its fields are {', '.join(paths)[:300] or 'none'}{how}"


def unclear(place: str, fields: Sequence[str]) -> ValueError:
    """The error where several fields may hold the answers."""
    flags = " or ".join(f"--answer_field={field}" for field in fields)
    words = f"{' and '.join(map(repr, fields))} may all be what the model said"
    return ValueError(
        f"{place}: {words}. Name the right one: {flags}; if they are of different models, all of "
        f"them, --answer_field={','.join(fields)}, or with --model_field=NAME for that of a name."
    )


def known_fields(fields: Iterable[Any], names: Iterable[str]) -> list[Any]:
    """The fields among `names`, in the order of `names`, whatever their capitals."""
    plain = _plain(tuple(fields))
    return [plain[name] for name in names if name in plain]


@functools.lru_cache
def _forms_of(fields: tuple[Any, ...]) -> list[Format]:
    """The formats whose marks may be in a record with these fields."""
    return [form for form in FORMATS if {*re.findall(r"(?<!\S)[^.\[\s]+", form.marks)} <= {*fields}]


@functools.lru_cache
def _plain(fields: tuple[Any, ...]) -> dict[str, Any]:
    return {str(field).strip().casefold(): field for field in reversed(fields)}


def _inner(value: Any) -> Any:
    """The answer in an object: its field of answers, or its only one; other values as they are."""
    if not isinstance(value, dict) or messages_of(value):
        return value
    known = known_fields(value, ANSWER_FIELDS) or [key for key in value if key != "error"]
    return value[known[0]] if len(known) == 1 else value


def values(record: Any, path: str) -> list[Any]:
    """What a path, or the first of several with commas that leads to something, leads to.

    [] if nowhere; `Unfit` if to several in place of one.
    """
    if "," in path:
        every = [values(record, part) for part in path.split(",")]
        return next((held for held in every if held not in _NOTHING), [])
    held = [record]
    for step in path.split("."):
        key, *marks = step.replace("]", "").split("[")
        held = [value for one in held for value in _below(one, key)]
        for mark in marks:
            held = [value for one in held for value in _entries(one, mark, step)]
    return held


def _below(value: Any, key: str) -> list[Any]:
    if key != "*":
        inside = value if isinstance(value, list) else [value]
        return [part[key] for part in inside if isinstance(part, dict) and key in part]
    if not isinstance(value, (dict, list)) or messages_of(value):
        return [value]
    return [*(value.values() if isinstance(value, dict) else value)][:1]


def _entries(value: Any, mark: str, step: str) -> list[Any]:
    place = int(mark) if re.fullmatch(r"-?\d+", mark) else None
    if place is not None and isinstance(value, str):
        value = messages_of(value) or value
    if not isinstance(value, list):
        return [value]
    if place is not None:
        return value[place : place + 1 or None]
    if mark == "only" and any(isinstance(entry, list) for entry in value):
        if len(value) != 1:
            raise Unfit(f"expected one list of answers in {step.partition('[')[0]!r}")
        return value[0]
    if mark in ("", "only"):
        return value
    return [[entry for entry in value if isinstance(entry, dict) and entry.get("type") == mark]]


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
        first = [min(texts) for texts in self.said.values()]  # In whatever order files come.
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
    raise unclear(place, fields[: _SHOWN + len(known)])


def _candidates(rows: Sequence[dict[Any, Any]], named: Fields) -> list[Candidate]:
    """The fields of texts that are no part of the prompt, nor named for something else."""
    candidates: dict[str, Candidate] = {}
    for row in rows:
        of_row = Record(row, named)
        row, given = of_row.row, of_row.given()
        if not given:
            continue  # No prompt is known, so nothing can vary within one.
        names = {str(name) for name in known_fields(row, ANSWER_FIELDS)}
        prompt = texts.label([*given.values()])
        others = known_fields(row, [*GIVEN, *MODEL_FIELDS])
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
    """Whether texts are ids, times or numbers (unless `same`), a part of the prompt, or hold it."""
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
        if key in without or (nested and str(key).casefold() in ANSWER_FIELDS):
            continue
        if nested and field.count(".") < _DEEPEST:
            held |= _texts(value, (), f"{field}.")
            continue
        several = value if isinstance(value, list) else [value]
        values = [v.get("content", v.get("text")) if isinstance(v, dict) else v for v in several]
        if all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in values):
            held[field] = [text for v in values if (text := str(v).strip())]
    return {field: values for field, values in held.items() if values}
