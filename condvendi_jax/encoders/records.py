"""Files of language models' answers to prompts: JSONL, CSV, Parquet and evaluation logs."""

from __future__ import annotations

import collections
import csv
import dataclasses
import glob
import importlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from condvendi_jax import _extras, files, validation
from condvendi_jax.encoders import items

PROMPT_FIELDS = ("prompt", "question", "instruction", "input", "messages")
ANSWER_FIELDS = (
    *("generations", "responses", "completions", "outputs", "answers", "resps"),
    *("generation", "response", "completion", "output", "answer"),
)
MODEL_FIELD = "model"
_REQUESTS = "resps"  # lm-evaluation-harness: for each request a list of answers.
_PROMPT_ROLES = ("user", "human")
_ANSWER_ROLES = ("assistant", "model")
_PARTS = {"role", "content", "text", "type"}  # One of them is in every message, and in its parts.
_LONGEST = 2**31 - 1  # Characters of a CSV cell; Python's own limit is 131,072.
_SHOWN = 10


class Skipped(NamedTuple):
    """What was left out: the file, the line (or the row, or the sample) from 1, and the reason."""

    path: pathlib.Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}."


@dataclasses.dataclass(frozen=True)
class Records:
    """The answers of models and the prompts that they answer, row by row, in the files' order.

    `answers[model][i]` answers `prompts[model][i]`; `fields` has the names of the fields that were
    read, of `prompts` and of `answers`; `skipped` is what was left out.
    """

    answers: dict[str, list[str]]
    prompts: dict[str, list[str]]
    fields: dict[str, list[str]]
    skipped: list[Skipped]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many answers each prompt has, by model and prompt."""
        counted = {name: collections.Counter(texts) for name, texts in self.prompts.items()}
        return {name: dict(counter) for name, counter in counted.items()}


class _Unfit(ValueError):
    """Why a record, or one of its answers, does not fit."""


class _Fields(NamedTuple):
    """The fields that the user named."""

    prompt: str | None
    answer: str | None
    model: str | None


class _Row(NamedTuple):
    line: int
    model: str | None
    prompt: str
    answer: str


def read_records(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    prompt_field: str | None = None,
    answer_field: str | None = None,
    model_field: str | None = None,
) -> Records:
    r"""Reads the answers of one or several models, line by line.

    A file ends in .jsonl, .csv or .parquet, or is a log of Inspect (.eval, .json). A record is one
    answer, or one prompt with a list of answers, as plain texts or as chat messages; samples of
    lm-evaluation-harness have `resps`. Blank lines hold no record.

    Args:
      paths: files, or patterns such as `runs/*.jsonl` and `runs/**/answers.jsonl`.
      prompt_field: the field of the prompt; if unset, the first of `PROMPT_FIELDS` in the record.
      answer_field: the field of the answer or answers; if unset, the first of `ANSWER_FIELDS`.
      model_field: the field of the model's name. If unset, `model`, or else the file names it.

    Returns:
      At least one answer of each file. Records and answers that do not fit are in `skipped`, and a
      warning counts them.

    Raises:
      ValueError: a file is missing, of another format, or nothing in it fits; or a package that
        reads it is not installed.

    Examples:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "small.jsonl")
      >>> _ = path.write_text('{"prompt": "Name a fruit.", "answers": ["a pear", "a fig"]}\n')
      >>> records = read_records(path)
      >>> records.answers, records.counts
      ({'small': ['a pear', 'a fig']}, {'small': {'Name a fruit.': 2}})
    """
    fields = _Fields(prompt_field, answer_field, model_field)
    found = record_files(paths)
    answers, prompts = collections.defaultdict(list), collections.defaultdict(list)
    used, skipped = {"prompts": {}, "answers": {}}, []
    for path, name in zip(found, files.names_of(list(map(str, found))), strict=True):
        rows, unfit = _read_file(path, fields, used)
        if not rows:
            why = f"no record fits. {unfit[0]}" if unfit else "holds no records."
            raise ValueError(f"{path}: {why}")
        skipped += unfit
        for row in rows:
            answers[row.model or name].append(row.answer)
            prompts[row.model or name].append(row.prompt)
    if skipped:
        lines = [f"records or answers that do not fit are left out ({len(skipped):,}):"]
        lines += [*map(str, skipped[:_SHOWN]), *["..."] * (len(skipped) > _SHOWN)]
        validation.warn("\n".join(lines))
    return Records(dict(answers), dict(prompts), {k: list(v) for k, v in used.items()}, skipped)


def record_files(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[pathlib.Path]:
    """The files that paths and patterns name, each once.

    Raises:
      ValueError: one is missing, a directory, of another format, or given twice.
    """
    found = []
    for given in [paths] if isinstance(paths, (str, PathLike)) else paths:
        path = files.expanded(given)
        matches = [path]
        if glob.has_magic(str(path)) and not path.exists():
            matches = sorted(map(pathlib.Path, glob.glob(str(path), recursive=True)))
        if not matches:
            raise ValueError(f"{path}: matches no file.")
        found += matches
    if not found:
        raise ValueError("expected at least one file of records, received none.")
    for path in found:
        if path.suffix.lower() not in _READERS or path.is_dir():
            raise ValueError(f"{path}: expected a file ending in {', '.join(_READERS)}.")
        if not path.exists():
            raise ValueError(f"{path}: there is no such file.")
    real = [os.path.realpath(path) for path in found]
    for k, path in enumerate(found):
        if real[k] in real[:k]:
            raise ValueError(f"{path}: is given twice.")
    return found


def _read_file(
    path: pathlib.Path, fields: _Fields, used: Mapping[str, dict[str, None]]
) -> tuple[list[_Row], list[Skipped]]:
    """The rows of one file and what was left out, in the order of lines; adds to `used`."""
    rows: list[_Row] = []
    skipped: list[Skipped] = []
    first_filter = None
    for line, record in _READERS[path.suffix.lower()](path):
        if isinstance(record, dict) and _REQUESTS in record and "filter" in record:
            # lm-evaluation-harness repeats all samples, with equal answers, for each filter.
            first_filter = first_filter or record["filter"]
            if record["filter"] != first_filter:
                continue
        try:
            if isinstance(record, _Unfit):
                raise record
            if not isinstance(record, dict):
                raise _Unfit("expected an object {...}")
            model = _model(record, fields.model)
            prompt_field, prompt = _prompt(record, fields.prompt)
            prompt = _text(prompt, _PROMPT_ROLES, repr(prompt_field))
            answer_field, value = _value(record, fields.answer, ANSWER_FIELDS, "answer")
            for name, answer in _answers(answer_field, value):
                try:
                    row = _Row(line, model, prompt, _text(answer, _ANSWER_ROLES, name))
                except _Unfit as error:
                    skipped.append(Skipped(path, line, str(error)))
                else:
                    rows.append(row)
                    used["prompts"][prompt_field] = used["answers"][answer_field] = None
        except _Unfit as error:
            skipped.append(Skipped(path, line, str(error)))
        except RecursionError:
            skipped.append(Skipped(path, line, "is nested too deeply"))
    if any(row.model for row in rows):
        nameless = dict.fromkeys(row.line for row in rows if not row.model)
        why = f"has no {MODEL_FIELD!r}, which other records of this file have"
        skipped = sorted([*skipped, *(Skipped(path, line, why) for line in nameless)])
        rows = [row for row in rows if row.model]
    return rows, skipped


def _value(
    record: dict[Any, Any], named: str | None, names: Sequence[str], what: str
) -> tuple[str, Any]:
    """The field that is named, or else the first of `names` that is there, and its value."""
    if named is not None:
        found = [named] if named in record else []
    else:
        plain = _plain(record)
        found = [plain[name] for name in names if name in plain]
    if not found:
        wanted = repr(named) if named is not None else " or ".join(names)
        there = ", ".join(map(str, record))[:200] or "none"
        raise _Unfit(f"has no {wanted} for its {what}; its fields are {there}")
    field = next((field for field in found if record[field] is not None), found[0])
    return field, record[field]


def _plain(record: dict[Any, Any]) -> dict[str, Any]:
    """The fields by their names without capitals."""
    return {str(key).strip().casefold(): key for key in reversed(record)}


def _model(record: dict[Any, Any], named: str | None) -> str | None:
    if named is None and MODEL_FIELD not in _plain(record):
        return None
    field, value = _value(record, named, [MODEL_FIELD], "model")
    return _text(value, (), repr(field)).strip()


def _prompt(record: dict[Any, Any], named: str | None) -> tuple[str, Any]:
    """The prompt; of a sample of lm-evaluation-harness what the model was given, or else `doc`."""
    if named is None and _REQUESTS in record:
        requests = record.get("arguments")
        for _ in range(2):  # {"gen_args_0": {"arg_0": prompt, ...}}, or [[prompt, ...]].
            parts = requests.values() if isinstance(requests, dict) else requests
            requests = next(iter(parts), None) if isinstance(parts, Iterable) else None
        if isinstance(requests, str):
            return "arguments", requests
        if isinstance(record.get("doc"), dict):
            record = record["doc"]
    return _value(record, named, PROMPT_FIELDS, "prompt")


def _answers(field: str, value: Any) -> list[tuple[str, Any]]:
    """The answers of one record, each with its name for errors."""
    if field == _REQUESTS:
        if not isinstance(value, list) or len(value) != 1:
            raise _Unfit(f"expected one list of answers in {field!r}")
        (value,) = value
    if not isinstance(value, list):
        return [(repr(field), value)]
    roles = [part.get("role") if isinstance(part, dict) else None for part in value]
    if None not in roles and not {*roles} <= {*_ANSWER_ROLES}:
        return [(repr(field), value)]  # One conversation. Messages of a model alone are answers.
    if not value:
        raise _Unfit(f"{field!r} holds no answers")
    return [(f"{field!r}[{k}]", answer) for k, answer in enumerate(value)]


def _text(value: Any, roles: Sequence[str], name: str) -> str:
    """A text, or what those roles say in chat messages, in one text that is not blank."""
    text = _said(value, roles, name)
    if not text.strip():
        raise _Unfit(f"{name} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Unfit(f"{name} holds bytes that are not UTF-8, or half a surrogate pair") from None
    return text


def assistant_text(completion: Any) -> str:
    """What the assistant says in a completion, a text or chat messages; may be empty.

    Raises:
      ValueError: it is neither.
    """
    return _said(completion, _ANSWER_ROLES, "completion")


def _said(value: Any, roles: Sequence[str], name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and roles and value.keys() & _PARTS:
        if value.get("role", roles[0]) not in roles:
            return ""
        content = value.get("content", value.get("text"))
        return "" if content is None else _said(content, roles, name)
    if isinstance(value, list) and roles and all(isinstance(part, dict) for part in value):
        return "\n\n".join(filter(None, (_said(part, roles, name) for part in value)))
    kinds = {dict: "an object", list: "a list", type(None): "null"}
    raise _Unfit(f"expected a text in {name}, found {kinds.get(type(value)) or repr(value)[:40]}")


def _opened(path: pathlib.Path, newline: str) -> Any:
    """A stream of lines; bytes that are not UTF-8 become halves of surrogate pairs."""
    with open(path, "rb") as stream:
        if stream.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"{path}: is UTF-16 or UTF-32; save it as UTF-8.")
    return open(path, encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _read_jsonl(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    with _opened(path, "\n") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line, object_pairs_hook=items.unique_keys)
            except ValueError as error:
                record = _Unfit(f"is not JSON ({getattr(error, 'msg', error)})")
            except RecursionError:
                record = _Unfit("is nested too deeply")
            yield number, record


def _read_csv(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """Rows by their header. After a row that is malformed, reading goes on with the next line."""
    limit = csv.field_size_limit(_LONGEST)
    try:
        with _opened(path, "") as stream:
            ahead: collections.deque[str] = collections.deque()
            taken: list[str] = []

            def take() -> str:
                line = ahead.popleft() if ahead else stream.readline()
                taken.append(line)
                return line

            columns: list[str] = []
            line = 1
            while True:
                taken.clear()
                record: Any
                try:
                    cells = next(csv.reader(iter(take, ""), strict=True), None)
                except csv.Error as error:
                    if not columns:
                        raise ValueError(f"{path}, line {line}: {error}.") from error
                    ahead.extendleft(reversed(taken[1:]))
                    del taken[1:]
                    cells, record = [], _Unfit(f"is not CSV ({error})")
                    yield line, record
                if cells is None:
                    return
                if cells and not columns:
                    columns = cells
                    if len({*columns}) < len(columns):
                        raise ValueError(f"{path}, line {line}: names a column twice.")
                elif cells:
                    record = dict(zip(columns, cells, strict=False))
                    if len(cells) != len(columns):
                        counts = f"{len(cells)} cells, the header {len(columns)}"
                        record = _Unfit(f"holds {counts}")
                    yield line, record
                line += len(taken)
    finally:
        csv.field_size_limit(limit)


def _read_parquet(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    with _extras.needed("records", package="pyarrow", purpose="reading Parquet"):
        parquet = importlib.import_module("pyarrow.parquet")
    try:
        batches = parquet.ParquetFile(path).iter_batches()
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(rows, 1)
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: cannot be read as Parquet: {error}") from error


def _read_inspect(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    with _extras.needed("records", package="inspect_ai", purpose="reading logs of Inspect"):
        log = importlib.import_module("inspect_ai.log")
    try:
        model = log.read_eval_log(str(path), header_only=True).eval.model
        samples = log.read_eval_log_samples(str(path), all_samples_required=False)
        for number, sample in enumerate(samples, 1):
            prompt = sample.input
            if not isinstance(prompt, str):
                prompt = [{"role": part.role, "content": part.text} for part in prompt]
            yield number, {"model": model, "prompt": prompt, "answer": sample.output.completion}
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: cannot be read as a log of Inspect: {error}") from error


_READERS = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".eval": _read_inspect,
    ".json": _read_inspect,
}
RECORD_ENDINGS = tuple(_READERS)
