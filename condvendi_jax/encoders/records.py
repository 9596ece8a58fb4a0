"""Records of language models: which fields hold the prompt, the answers and the model."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import pathlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from condvendi_jax.base import checks, files
from condvendi_jax.encoders import answers as texts
from condvendi_jax.encoders.answers import Unfit, assistant_text
from condvendi_jax.encoders.record_files import (
    RECORD_ENDINGS,
    known_fields,
    read_rows,
    record_files,
)

PROMPT_FIELDS = ("prompt", "question", "instruction", "input", "messages")
_GIVEN = (
    *("system", "system_prompt", "system_message", "history", "context", *PROMPT_FIELDS),
    *("choices", "options", "tools", "functions", "documents", "files", "images", "image"),
)
_TEXTS = ("history", "context", "choices", "options")
_REQUESTS = "resps"  # lm-evaluation-harness: for each request a list of answers.
_LISTS = ("generations", "responses", "completions", "outputs", "answers", "predictions", _REQUESTS)
ANSWER_FIELDS = (
    *_LISTS,
    *("generation", "response", "completion", "output", "answer", "prediction"),
    *("predicted_text", "generated_text", "model_output"),
)
MODEL_FIELD = "model"
_SHOWN = 10


class Skipped(NamedTuple):
    """A record or an answer that is left out: file, line (row, or sample) from 1, and reason."""

    path: pathlib.Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}."


@dataclasses.dataclass(frozen=True)
class Records:
    """The answers of models and the prompts that they answer, row by row, in the files' order.

    `answers[model][i]` answers `prompts[model][i]`; `fields` has the names of the fields that were
    read, of `prompts` and of `answers`; `skipped` is what was left out; `notes` are lines that say
    what else was decided.
    """

    answers: dict[str, list[str]]
    prompts: dict[str, list[str]]
    fields: dict[str, list[str]]
    skipped: list[Skipped]
    notes: list[str]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of answers, by model and prompt."""
        return {name: dict(collections.Counter(texts)) for name, texts in self.prompts.items()}


def read_records(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    prompt_field: str | None = None,
    answer_field: str | None = None,
    model_field: str | None = None,
    strip_thinking: bool = True,
    names: Mapping[str, str] = types.MappingProxyType({}),
) -> Records:
    r"""Reads the answers of one or several models, line by line.

    A file ends in .jsonl, .csv or .parquet, holds an array of records (.json), or is a log of
    Inspect (.eval, .json). A record is one answer, or one prompt with a list of answers, as plain
    texts or as chat messages; samples of lm-evaluation-harness have `resps`. Blank lines hold no
    record. The prompt is all that the model was given: a chat with its system message and earlier
    turns, and several fields, such as `instruction` and `input`, one after the other.

    Args:
      paths: files, or patterns such as `runs/*.jsonl` and `runs/**/answers.jsonl`.
      prompt_field: the only field of the prompt; if unset, all fields that the model was given.
      answer_field: the field of the answer or answers; if unset, the one of `ANSWER_FIELDS`.
      model_field: the field of the model's name. If unset, `model`, or else the file names it.
      names: the names of models by their path or pattern in `paths`, whatever their records say.
      strip_thinking: read the text after `<think>...</think>` as the answer, not all of the text.

    Returns:
      At least one answer of each file. Records and answers that do not fit are in `skipped`, and a
      warning counts them. Another counts answers that may be errors, lists or placeholders.

    Raises:
      ValueError: a file is missing, of another format, malformed as CSV, or nothing in it fits; two
        fields may be the answer; a file and a field name one model; or a package that reads a file
        is missing.

    Examples:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "small.jsonl")
      >>> _ = path.write_text('{"prompt": "Name a fruit.", "answers": ["a pear", "a fig"]}\n')
      >>> records = read_records(path)
      >>> records.answers, records.counts
      ({'small': ['a pear', 'a fig']}, {'small': {'Name a fruit.': 2}})
    """
    named = {"prompt": prompt_field, "answer": answer_field, "model": model_field}
    paths = record_files(paths)
    answers, prompts = collections.defaultdict(list), collections.defaultdict(list)
    given = {file: name for pattern, name in names.items() for file in record_files(pattern)}
    sources: dict[str, dict[pathlib.Path, tuple[bool, bool]]] = collections.defaultdict(dict)
    used: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    skipped: list[Skipped] = []
    others = [path for path in paths if path not in given]
    plain = dict(zip(others, files.names_of(list(map(str, others))), strict=True))
    for path in paths:
        rows, unfit = _read_file(path, named, strip_thinking, used)
        if not rows:
            why = f"no record fits. {unfit[0]}" if unfit else "holds no records."
            raise ValueError(f"{path}: {why}")
        skipped += unfit
        models = list(dict.fromkeys(model for _, model, *_ in rows if model))
        if path in given and len(models) > 1:
            raise ValueError(
                f"{path}: holds answers of {', '.join(models)}, which are not all "
                f"{given[path]!r}: leave this name out."
            )
        for _, named_model, prompt, answer in rows:
            model = given.get(path) or named_model or plain[path]
            sources[model][path] = path in given, named_model is not None
            answers[model].append(answer)
            prompts[model].append(prompt)
    notes = []
    for model, places in sources.items():
        if len({*places.values()}) > 1:
            raise ValueError(
                f"{' and '.join(map(str, places))} hold answers of {model!r}, which one of them "
                f"names in {model_field or MODEL_FIELD!r} and another does not: give each file a "
                f"name of its own, as other={next(reversed(places))}."
            )
        if len(places) > 1:
            notes.append(f"{model}: answers of {len(places):,} files")
    if used["unread"]:
        notes.append(f"not read as a part of the prompt: {', '.join(map(repr, used['unread']))}")
    doubts = [f"{m}: {line}" for m in answers for line in texts.doubts(answers[m], prompts[m])]
    if reasoning := used["reasoning"]:
        line = f"{sum(reasoning.values()):,} answers start with reasoning"
        if strip_thinking:
            notes.append(f"{line}, which is removed")
        else:
            doubts.append(f"{line}, for example {next(iter(reasoning))!r}")
    if skipped:
        lines = [f"records or answers that do not fit are left out ({len(skipped):,}):"]
        lines += [*map(str, skipped[:_SHOWN]), *["..."] * (len(skipped) > _SHOWN)]
        checks.warn("\n".join(lines))
    if doubts:
        checks.warn("\n".join(["some answers may not be what a model said:", *doubts]))
    fields = {role: list(used[role]) for role in ("answers", "prompts")}
    return Records(dict(answers), dict(prompts), fields, skipped, notes)


def holds_records(path: str | PathLike[str]) -> bool:
    """Whether the first row of a file has fields of a prompt and of an answer."""
    place = files.expanded(path)
    if place.suffix.lower() not in RECORD_ENDINGS or not place.is_file():
        return False
    _, row = next(iter(read_rows(place)), (1, {}))
    fields = () if isinstance(row, Unfit) else row
    asked = _REQUESTS in fields or bool(known_fields(fields, PROMPT_FIELDS))
    return asked and bool(known_fields(fields, ANSWER_FIELDS))


def _read_file(
    path: pathlib.Path,
    named: Mapping[str, str | None],
    strip: bool,
    used: Mapping[str, collections.Counter[str]],
) -> tuple[list[tuple[int, str | None, str, str]], list[Skipped]]:
    """Rows of line, model, prompt and answer, and what is left out; `used` counts the fields."""
    rows = []
    skipped: list[Skipped] = []
    filters: dict[str, Any] = {}
    for line, record in read_rows(path):
        try:
            if isinstance(record, Unfit):
                raise record
            if _is_repeated(record, filters):
                continue
            model = _model(record, named["model"])
            field = _answer_field(record, named["answer"], f"{path}, line {line}")
            answers = _answers(field, record[field])
            prompt, read, unread = _prompt(record, named["prompt"], field, answers)
            prompt = _checked(prompt, repr(read[-1]))
            for name, answer in answers.items():
                try:
                    text = assistant_text(answer, name)
                    rest = texts.without_reasoning(text)
                    if strip and texts.is_blank(rest) and not texts.is_blank(text):
                        raise Unfit(f"{name} holds reasoning without an answer")
                    answer = _checked(rest if strip else text, name)
                except Unfit as error:
                    skipped.append(Skipped(path, line, str(error)))
                    continue
                rows.append((line, model, prompt, answer))
                names = {"prompts": read, "answers": [field], "unread": unread}
                names["reasoning"] = [text[:80]] if rest != text else []
                for role, fields in names.items():
                    used[role].update(fields)
        except (Unfit, RecursionError) as error:
            why = str(error) if isinstance(error, Unfit) else "is nested too deeply"
            skipped.append(Skipped(path, line, why))
    if any(model for _, model, *_ in rows):
        nameless = dict.fromkeys(line for line, model, *_ in rows if not model)
        why = f"has no {MODEL_FIELD!r}, which other records of this file have"
        skipped = sorted([*skipped, *(Skipped(path, line, why) for line in nameless)])
        rows = [row for row in rows if row[1]]
    return rows, skipped


def _is_repeated(record: dict[Any, Any], filters: dict[str, Any]) -> bool:
    """Whether lm-evaluation-harness wrote this sample before, for the first of its filters."""
    if _REQUESTS not in record:
        return False
    key = texts.label([record.get(name) for name in ("doc_id", "doc", "arguments", _REQUESTS)])
    # Older versions do not name the filter.
    if key in filters and "filter" not in record and record.get("doc_id") is not None:
        raise Unfit("repeats a sample, as lm-evaluation-harness does for each filter")
    return filters.setdefault(key, record.get("filter")) != record.get("filter")


def _field(
    record: dict[Any, Any],
    named: str | None,
    names: Sequence[str],
    what: str,
    fits: Callable[[Any], bool] = lambda value: value not in (None, ""),
) -> Any:
    """The field that is named, or else the first of `names` whose value fits, or the first."""
    known = known_fields(record, names) if named is None else [named] * (named in record)
    if not known:
        wanted = repr(named) if named is not None else " or ".join(names)
        there = ", ".join(map(str, record))[:200] or "none"
        raise Unfit(f"has no {wanted} for its {what}; its fields are {there}")
    return next((field for field in known if fits(record[field])), known[0])


def _model(record: dict[Any, Any], named: str | None) -> str | None:
    """The name of the model; None where there is no such field, or it is null or blank."""
    if named is None and not known_fields(record, [MODEL_FIELD]):
        return None
    field = _field(record, named, [MODEL_FIELD], "model")
    value = record[field]
    if value is None or (isinstance(value, str) and texts.is_blank(value)):
        return None
    if not isinstance(value, str):
        raise Unfit(f"expected a text in {field!r}, received {texts.label(value)[:40]}")
    return _checked(value.strip(), repr(field))


def _answer_field(record: dict[Any, Any], named: str | None, place: str) -> Any:
    """The field that is named, or the only one that may hold answers; ValueError if two do."""
    if named is None and _REQUESTS in record:
        return _REQUESTS

    def holds_answers(value: Any) -> bool:
        return isinstance(value, (str, list, dict)) and bool(value) and not str(value).isspace()

    known = known_fields(record, ANSWER_FIELDS) if named is None else []
    filled = [field for field in known if holds_answers(record[field])]
    if any(record[field] != record[filled[0]] for field in filled):
        raise ValueError(
            f"{place}: {' and '.join(map(repr, filled))} may all be what the model said. Name the "
            f"right one: {' or '.join(f'--answer_field={field}' for field in filled)}."
        )
    return _field(record, named, ANSWER_FIELDS, "answer", holds_answers)


def _answers(field: str, value: Any) -> dict[str, Any]:
    """Return the answers of one record by their names for errors."""
    if field == _REQUESTS:
        if not isinstance(value, list) or len(value) != 1:
            raise Unfit(f"expected one list of answers in {field!r}")
        (value,) = value
    elif isinstance(value, str) and field.strip().casefold() in _LISTS:
        value = texts.listed(value)
    if not isinstance(value, list):
        return {repr(field): value}
    roles = [part.get("role") if isinstance(part, dict) else None for part in value]
    if None not in roles and not {*roles} <= {*texts.ASSISTANTS}:
        return {repr(field): value}  # One conversation. Messages of a model alone are answers.
    if not value:
        raise Unfit(f"{field!r} holds no answers")
    return {f"{field!r}[{k}]": answer for k, answer in enumerate(value)}


def _prompt(
    record: dict[Any, Any], named: str | None, answer_field: str, answers: Mapping[str, Any]
) -> tuple[str, list[str], list[str]]:
    """The text of all that a model was given, its fields, and the fields that are not read."""
    asked = _asked(record)
    if named is None and asked is not None:
        return texts.given_text(asked, "'arguments'"), ["arguments"], []
    if _REQUESTS in record and named not in record and isinstance(record.get("doc"), dict):
        record = record["doc"]
    field = _field(record, named, PROMPT_FIELDS, "prompt")
    value = record[field]
    if named is not None and type(value) is int:  # The number of a question.
        value = str(value)
    said: set[str] = set()
    for name, answer in answers.items():
        with contextlib.suppress(Unfit):
            said.add(assistant_text(answer, name).strip())
    parts = {field: _checked(texts.given_text(value, repr(field), said), repr(field))}
    known = [name for name in known_fields(record, _GIVEN) if record[name]]
    others = [name for name in known if name not in (field, answer_field)]
    if named is not None:
        return parts[field], [field], others
    for name in others:
        value = record[name]
        if name.casefold() in _TEXTS and not _holds_text(value):
            continue  # What services report: choices of answers, options of sampling, tokens.
        value = value if isinstance(value, str) or texts.messages_of(value) else texts.label(value)
        text = texts.given_text(value, repr(name), said)
        if text != parts[field] and not texts.is_blank(text):
            parts[name] = text
    read = [name for name in known if name in parts]
    return "\n\n".join(parts[name] for name in read), read, []


def _holds_text(value: Any) -> bool:
    """Return True for a text, chat messages, or a list of texts or of such lists."""
    if isinstance(value, list) and value and not texts.messages_of(value):
        return _holds_text(value[0])
    return isinstance(value, str) or bool(texts.messages_of(value))


def _asked(record: dict[Any, Any]) -> Any:
    """The prompt of a sample of lm-evaluation-harness, or None.

    `arguments` is {"gen_args_0": {"arg_0": prompt, ...}} or [[prompt, ...]]. A prompt may be a list
    of one text, which holds messages.
    """
    request = record.get("arguments") if _REQUESTS in record else None
    for _ in range(3):
        if isinstance(request, dict) and not texts.messages_of(request):
            request = [*request.values()]
        if isinstance(request, list) and not texts.messages_of(request):
            request = next(iter(request), None)
    return request if isinstance(request, (str, list, dict)) else None


def _checked(text: str, name: str) -> str:
    if texts.is_blank(text):
        raise Unfit(f"{name} is empty")
    if texts.SURROGATES.search(text):
        raise Unfit(f"{name} holds bytes that are not UTF-8, or half a surrogate pair")
    return text
