"""Records of language models: which fields hold the prompt, the answers and the model."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import pathlib
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from condvendi_jax.base import checks, files
from condvendi_jax.encoders import answers as texts
from condvendi_jax.encoders.answers import Unfit, assistant_text
from condvendi_jax.encoders.record_files import (
    RECORD_ENDINGS,
    ending,
    known_fields,
    read_rows,
    record_files,
)
from condvendi_jax.encoders.record_formats import Format, first, format_of, values

PROMPT_FIELDS = ("prompt", "question", "instruction", "input", "messages", "task")
_GIVEN = (
    *("system", "system_prompt", "system_message", "instructions", "history", "context"),
    *(*PROMPT_FIELDS[:-1], "choices", "options", "tools", "functions", "documents", "files"),
    *("images", "image"),
)
_TEXTS = ("history", "context", "choices", "options")
_LISTS = ("generations", "responses", "completions", "outputs", "answers", "predictions")
ANSWER_FIELDS = (
    *_LISTS,
    *("generation", "response", "completion", "output", "answer", "prediction"),
    *("predicted_text", "generated_text", "model_output"),
)
MODEL_FIELD = "model"
WEIGHT_FIELD = "probability"
#: A note on answers whose own pairs cannot be left out.
ASKED_ONCE = "the answers of one request count as independent, as most prompts have one request"
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
    what else was decided. `weights` are the probabilities that the answers of a prompt have, of
    sum one for each prompt, or None without any. `by_id` says whether ids stand for prompts.
    `beside[field][model][i]` is what a field holds for that answer. `batches[model][i]` is a label
    of its request, where most prompts were asked several times with several answers each.
    """

    answers: dict[str, list[str]]
    prompts: dict[str, list[str]]
    fields: dict[str, list[str]]
    skipped: list[Skipped]
    notes: list[str]
    weights: dict[str, list[float]] | None = None
    by_id: bool = False
    beside: dict[str, dict[str, list[Any]]] = dataclasses.field(default_factory=dict)
    batches: dict[str, list[str]] | None = None

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
    beside: Sequence[str] = (),
    batch_field: str | None = None,
) -> Records:
    r"""Reads the answers of one or several models, line by line.

    A file ends in .jsonl, .csv, .tsv or .parquet, holds an array of records (.json), or is a log of
    Inspect (.eval, .json). A record is one answer, or one prompt with a list of answers, as plain
    texts or as chat messages, or a record of a tool in `record_formats`. The prompt is all that the
    model was given: a chat with its system message and earlier turns, and several fields, such as
    `instruction` and `input`, one after the other.

    Args:
      paths: files, or patterns such as `runs/*.jsonl` and `runs/**/answers.jsonl`.
      prompt_field: the only field of the prompt; if unset, all fields that the model was given.
        Fields within fields are `a.b`.
      answer_field: the field of the answer or answers; if unset, the one of `ANSWER_FIELDS`.
      model_field: the field of the model's name. If unset, `model`, or else the file names it.
      names: the names of models by their path or pattern in `paths`, whatever their records say.
      strip_thinking: read the text after `<think>...</think>` as the answer, not all of the text.
      beside: fields with something of each answer, such as its class: a list in the order of the
        answers, or a value of one answer. Answers without it are left out.
      batch_field: the field with the request or batch that an answer comes from. If unset, a record
        is a request in formats where it is one.

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
    given = {file: name for pattern, name in names.items() for file in record_files(pattern)}
    others = [path for path in paths if path not in given]
    plain = dict(zip(others, files.names_of(list(map(str, others))), strict=True))
    rows_of: dict[str, list[_Row]] = collections.defaultdict(list)
    sources: dict[str, dict[pathlib.Path, tuple[bool, bool]]] = collections.defaultdict(dict)
    used: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    skipped: list[Skipped] = []
    for path in paths:
        rows, unfit = _read_file(path, named, strip_thinking, used, beside, batch_field)
        if not rows:
            why = f"no record fits. {unfit[0]}" if unfit else "holds no records."
            raise ValueError(f"{path}: {why}")
        skipped += unfit
        models = list(dict.fromkeys(row.model for row in rows if row.model))
        if path in given and len(models) > 1:
            raise ValueError(
                f"{path}: holds answers of {', '.join(models)}, which are not all "
                f"{given[path]!r}: leave this name out."
            )
        for row in rows:
            model = given.get(path) or row.model or plain[path]
            sources[model][path] = path in given, row.model is not None
            rows_of[model].append(row)
    answers = {model: [row.answer for row in rows] for model, rows in rows_of.items()}
    prompts_of = {model: [row.prompt for row in rows] for model, rows in rows_of.items()}
    for model, places in sources.items():
        if len({*places.values()}) > 1:
            raise ValueError(
                f"{' and '.join(map(str, places))} hold answers of {model!r}, which not all of "
                "them name alike: give each file a name of its own, as "
                f"other={next(reversed(places))}."
            )
    notes = [f"{m}: answers of {len(of):,} files" for m, of in sources.items() if len(of) > 1]
    if used["unread"]:
        notes.append(f"not read as a part of the prompt: {', '.join(map(repr, used['unread']))}")
    if ids := used["ids"]:
        notes.append(f"prompts are known by {', '.join(map(repr, ids))} alone, not by their texts")
    if shares := _shares(rows_of):
        notes.append(
            f"answers are weighed by their {WEIGHT_FIELD!r}, of sum one for each prompt: as a "
            "distribution, not a sample of one, so that order 2 is not corrected for the sample"
        )
    batches, asked_once = _batches(rows_of)
    if batches:
        notes.append("pairs of answers of one request or batch are left out at order 2")
    if asked_once:
        notes.append(ASKED_ONCE)
    doubts = [f"{m}: {line}" for m in answers for line in texts.doubts(answers[m], prompts_of[m])]
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
    of_fields = {
        field: {model: [row.beside[field] for row in rows] for model, rows in rows_of.items()}
        for field in beside
    }
    read = answers, prompts_of, fields, skipped, notes, shares, bool(ids), of_fields, batches
    return Records(*read)


def holds_records(path: str | PathLike[str]) -> bool:
    """Whether the first row of a file has fields of a prompt, or its id, and of an answer."""
    row = _first_row(path)
    asked = bool(known_fields(row, PROMPT_FIELDS)) and bool(known_fields(row, ANSWER_FIELDS))
    return asked or format_of(row) is not None


def known_by(path: str | PathLike[str]) -> str:
    """The field whose id stands for the prompt in the first row of a file; '' if none does."""
    row = _first_row(path)
    form = format_of(row)
    return "" if form is None or _asks(row, form) else form.id


def _first_row(path: str | PathLike[str]) -> dict[Any, Any]:
    place = files.expanded(path)
    if ending(place) not in RECORD_ENDINGS or not place.is_file():
        return {}
    _, row = next(iter(read_rows(place)), (1, {}))
    return {} if isinstance(row, Unfit) else row


class _Row(NamedTuple):
    line: int
    model: str | None
    prompt: str
    answer: str
    weight: float | None
    batch: str | None
    beside: dict[str, Any]


def _read_file(
    path: pathlib.Path,
    named: Mapping[str, str | None],
    strip: bool,
    used: Mapping[str, collections.Counter[str]],
    beside: Sequence[str],
    batch_field: str | None,
) -> tuple[list[_Row], list[Skipped]]:
    """The answers, and what is left out; `used` counts the fields."""
    rows: list[_Row] = []
    skipped: list[Skipped] = []
    filters: dict[str, Any] = {}
    for line, record in read_rows(path):
        try:
            if isinstance(record, Unfit):
                raise record
            if _is_repeated(record, filters):
                continue
            record |= _inner(record, [*named.values(), *beside, batch_field])
            form = format_of(record)
            model = _model(record, named["model"], form)
            field, answers = _answers(record, named["answer"], form, f"{path}, line {line}")
            if form and form.id and named["prompt"] is None and not _asks(record, form):
                prompt, read, unread = str(next(iter(values(record, form.id)), "")), [form.id], []
                if prompt in ("", "None"):
                    raise Unfit(f"expected an id in {form.id!r}, as the record has no prompt")
                used["ids"][form.id] += 1
            else:
                prompt, read, unread = _prompt(record, named["prompt"], form, field, answers)
            prompt = _checked(prompt, repr(read[-1]))
            batch = f"{path}:{line}" if form and form.request else None
            for row, (name, answer) in enumerate(answers.items()):
                try:
                    place = answer, name, row, len(answers)
                    weight = _weight(record, *place)
                    if batch_field:
                        batch = str(_beside(record, batch_field, *place, of_all=True))
                    more = {field: _beside(record, field, *place) for field in beside}
                    text = assistant_text(answer, name)
                    rest = texts.without_reasoning(text)
                    if strip and texts.is_blank(rest) and not texts.is_blank(text):
                        raise Unfit(f"{name} holds reasoning without an answer")
                    answer = _checked(rest if strip else text, name)
                except Unfit as error:
                    skipped.append(Skipped(path, line, str(error)))
                    continue
                rows.append(_Row(line, model, prompt, answer, weight, batch, more))
                names = {"prompts": read, "answers": [field], "unread": unread}
                names["reasoning"] = [text[:80]] if rest != text else []
                for role, fields in names.items():
                    used[role].update(fields)
        except (Unfit, RecursionError) as error:
            why = str(error) if isinstance(error, Unfit) else "is nested too deeply"
            skipped.append(Skipped(path, line, why))
    of_models = any(row.model for row in rows)
    lacking = {row.line for row in rows if row.model is None} if of_models else set()
    why = f"has no {MODEL_FIELD!r}, which other records of this file have"
    skipped += [Skipped(path, line, why) for line in lacking]
    rows = [row for row in rows if row.line not in lacking]
    return rows, sorted(skipped, key=lambda of: of.line)


def _inner(record: Mapping[Any, Any], named: Iterable[str | None]) -> dict[str, Any]:
    """What the flags name within fields, by their paths."""
    paths = [path for path in named if path and path not in record]
    found = {path: values(record, path) for path in paths}
    return {path: of if "[" in path else of[0] for path, of in found.items() if of}


def _beside(
    record: Mapping[Any, Any],
    field: str,
    answer: Any,
    name: str,
    row: int,
    count: int,
    of_all: bool = False,
) -> Any:
    """What a field holds of an answer: beside its text, or in a list of the record.

    What is no list is of a single answer or, with `of_all`, of all of the record.
    """
    value = answer.get(field) if isinstance(answer, dict) else None
    of_record = record.get(field)
    if value is None and of_record is not None:
        listed = (
            of_record if isinstance(of_record, list) else [of_record] * (count if of_all else 1)
        )
        if len(listed) != count:
            raise Unfit(f"expected {count} values in {field!r}, one for each answer")
        value = listed[row]
    if value is None or value != value:
        raise Unfit(f"has no {field!r} for {name}")
    return value


def _batches(rows_of: Mapping[str, Sequence[_Row]]) -> tuple[dict[str, list[str]] | None, bool]:
    """The batch of each row by model, and whether batches of several answers are not known apart.

    None unless a batch has several answers, and most answers of each model are to prompts of
    several batches: elsewhere nothing would be left of the others.
    """
    labels = {
        model: [f"{k}" if row.batch is None else f" {row.batch}" for k, row in enumerate(rows)]
        for model, rows in rows_of.items()
    }
    if all(len({*of}) == len(of) for of in labels.values()):
        return None, False
    for model, rows in rows_of.items():
        asked = {(row.prompt, label) for row, label in zip(rows, labels[model], strict=True)}
        times = collections.Counter(prompt for prompt, _ in asked)
        if sum(times[row.prompt] > 1 for row in rows) < len(rows) / 2:
            return None, True
    return labels, False


def _weight(
    record: Mapping[Any, Any], answer: Any, name: str, row: int, count: int
) -> float | None:
    """The probability of an answer; None without one."""
    value = answer.get(WEIGHT_FIELD) if isinstance(answer, dict) else None
    for field in (WEIGHT_FIELD, "probabilities"):
        if value is None and record.get(field) is not None:
            value = _beside(record, field, None, name, row, count)
    if value is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        if 0 <= float(value) < float("inf"):
            return float(value)
    raise Unfit(f"expected a number from 0 as {WEIGHT_FIELD!r} of {name}, received {value!r:.40}")


def _shares(rows_of: Mapping[str, Sequence[_Row]]) -> dict[str, list[float]] | None:
    """The weights of rows by model, of sum one for each prompt; None without weights."""
    if all(row.weight is None for rows in rows_of.values() for row in rows):
        return None
    shares = {}
    for model, rows in rows_of.items():
        totals: dict[str, float] = collections.defaultdict(float)
        for row in rows:
            if row.weight is None:
                raise ValueError(
                    f"{model}: an answer to {row.prompt[:80]!r} has no {WEIGHT_FIELD!r}, which "
                    "others have. Answers with probabilities are a distribution, and others a "
                    "sample: score them one by one."
                )
            totals[row.prompt] += row.weight
        if not all(totals.values()):
            prompt = min(totals, key=totals.__getitem__)
            raise ValueError(f"all answers to {prompt[:80]!r} have the {WEIGHT_FIELD} 0.")
        shares[model] = [(row.weight or 0.0) / totals[row.prompt] for row in rows]
    return shares


def _asks(record: Mapping[Any, Any], form: Format) -> bool:
    """Whether a record of a tool holds its prompt."""
    return bool(form.prompt) or bool(known_fields(record, PROMPT_FIELDS[:-1]))  # Task is a name.


def _is_repeated(record: dict[Any, Any], filters: dict[str, Any]) -> bool:
    """Whether lm-evaluation-harness wrote this sample before, for the first of its filters."""
    if "resps" not in record:
        return False
    key = texts.label([record.get(name) for name in ("doc_id", "doc", "arguments", "resps")])
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
        flag = f"--{what}_field=NAME, or A.B for B within A, chooses one"
        raise Unfit(f"has no {wanted} for its {what}; its fields are {there}; {flag}")
    return next((field for field in known if fits(record[field])), known[0])


def _model(record: dict[Any, Any], named: str | None, form: Format | None) -> str | None:
    """The name of the model; None where there is no such field, or it is null or blank."""
    field, value = "", None
    if named is None and form and form.model:
        field, value = form.model, next(iter(values(record, form.model)), None)
    elif named is not None or known_fields(record, [MODEL_FIELD]):
        field = _field(record, named, [MODEL_FIELD], "model")
        value = record[field]
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        raise Unfit(f"expected a text in {field!r}, received {texts.label(value)[:40]}")
    return _checked(value.strip(), repr(field))


def _answer_field(record: dict[Any, Any], named: str | None, place: str) -> Any:
    """The field that is named, or the only one that may hold answers; ValueError if two do."""

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


def _answers(
    record: dict[Any, Any], named: str | None, form: Format | None, place: str
) -> tuple[str, dict[str, Any]]:
    """The field of the answers of a record, and each answer by its name for errors."""
    if named is None and form and form.answers:
        path, value = first(record, form.answers)
        field = path.partition("[")[0]
        if len(value) == 1 and path == field:
            return field, {repr(field): value[0]}
    else:
        field = _answer_field(record, named, place)
        value = record[field]
        if isinstance(value, str) and field.strip().casefold() in _LISTS:
            value = texts.listed(value)
        if not isinstance(value, list):
            return field, {repr(field): value}
        roles = [part.get("role") if isinstance(part, dict) else None for part in value]
        if None not in roles and not {*roles} <= {*texts.ASSISTANTS}:
            return field, {repr(field): value}  # A conversation; a model's messages are answers.
    if not value:
        raise Unfit(f"{field!r} holds no answers")
    return field, {f"{field!r}[{k}]": answer for k, answer in enumerate(value)}


def _prompt(
    record: dict[Any, Any],
    named: str | None,
    form: Format | None,
    answer_field: str,
    answers: Mapping[str, Any],
) -> tuple[str, list[str], list[str]]:
    """The text of all that a model was given, its fields, and the fields that are not read."""
    path, found = first(record, form.prompt) if form and form.prompt else ("", [])
    for value in found[:1]:
        if isinstance(value, dict) and not texts.messages_of(value):
            record = record if named in record else value  # Its fields are plain.
        elif named is None:
            assert form
            text, name = texts.given_text(value, repr(path)), values(record, form.id or "-")
            return text + "".join(f"\n\n{form.id}: {of}" for of in name), [path], []
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
    roots = (field, answer_field, re.split(r"[.\[]", answer_field)[0])
    others = [name for name in known if name not in roots]
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
    return "\n\n".join(parts[name] for name in read or [field]), read or [field], []


def _holds_text(value: Any) -> bool:
    """Return True for a text, chat messages, or a list of texts or of such lists."""
    if isinstance(value, list) and value and not texts.messages_of(value):
        return _holds_text(value[0])
    return isinstance(value, str) or bool(texts.messages_of(value))


def _checked(text: str, name: str) -> str:
    if texts.SURROGATES.search(text):
        raise Unfit(f"{name} holds bytes that are not UTF-8, or half a surrogate pair")
    if texts.is_blank(text):
        raise Unfit(f"{name} is empty")
    return text
