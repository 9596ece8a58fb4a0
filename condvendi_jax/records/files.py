"""Tables of records: JSONL, CSV, TSV, Parquet, JSON and logs of Inspect, row by row."""

import csv
import glob
import importlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from condvendi_jax.base import extras, files
from condvendi_jax.records import answers

_LONGEST = 2**31 - 1  # Characters of a CSV cell; Python's limit is 131,072.
_HELM = "request_states"  # The key of the records in a scenario_state.json.
_PARSED_WHOLE = (".json", ".eval")
_KEPT_BYTES = 2**28  # Of files that are parsed.
INSPECT_METRIC = "answer_diversity"
_PACKAGES = {
    ".parquet": ("pyarrow", "pyarrow.parquet", "reading Parquet"),
    ".eval": ("inspect_ai", "inspect_ai.log", "reading logs of Inspect"),
}


def record_files(paths: files.StrPath | Iterable[files.StrPath]) -> list[pathlib.Path]:
    """The files that paths and patterns name, each once; ValueError for one that cannot be read."""
    named: list[pathlib.Path] = []
    for given in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        path = files.expanded(given)
        matches = [path]
        if glob.has_magic(str(path)) and not path.exists():
            matches = sorted(map(pathlib.Path, glob.glob(str(path), recursive=True)))
        if not matches:
            raise ValueError(f"{path}: matches no file.")
        named += matches
    if not named:
        raise ValueError("expected at least one file of records, received none.")
    for kind in set(map(ending, named)) & {*_PACKAGES}:
        _package(kind)  # Before anything is read.
    for k, path in enumerate(named):
        if ending(path) not in _READERS or path.is_dir():
            raise ValueError(f"{path}: expected a file ending in {', '.join(_READERS)}.")
        if not path.exists():
            raise ValueError(f"{path}: there is no such file.")
        for other in named[:k]:
            if os.path.samefile(path, other):
                raise ValueError(f"{path}: is given twice, also as {other}.")
    return named


def ending(path: pathlib.Path) -> str:
    """The ending of a file's name in small letters."""
    return path.suffix.lower()


def _package(kind: str) -> Any:
    package, module, purpose = _PACKAGES[kind]
    with extras.needed("records", package=package, purpose=purpose):
        return importlib.import_module(module)


def read_rows(path: pathlib.Path) -> Iterator[tuple[int, dict[Any, Any] | answers.Unfit]]:
    """The records of a file, each with its line, row or sample from 1; or why it is none.

    Blank lines hold no record. Bytes that are not UTF-8 become halves of surrogate pairs.
    """
    for line, record in _parsed.pop(_version(path), None) or _READERS[ending(path)](path):
        if not isinstance(record, (dict, answers.Unfit)):
            record = answers.Unfit("expected an object {...}")
        yield line, record


def first_rows(path: files.StrPath, count: int = 1) -> list[dict[Any, Any]]:
    """The first records of a file; none where the file is not of records.

    What is parsed whole for it is kept for `read_rows`, which then does not parse it again.
    """
    path = files.expanded(path)
    if ending(path) not in _READERS or not path.is_file():
        return []
    if ending(path) in _PARSED_WHOLE:
        if (rows := _parsed.get(_version(path))) is None:
            rows = _parsed[_version(path)] = list(read_rows(path))
        while sum(size for *_, size in _parsed) > _KEPT_BYTES:
            del _parsed[next(iter(_parsed))]
    else:
        rows = read_rows(path)
    first = itertools.islice(rows, count)
    return [row for _, row in first if isinstance(row, dict)]


def _version(path: pathlib.Path) -> tuple[pathlib.Path, int, int]:
    return path, path.stat().st_mtime_ns, path.stat().st_size


def _opened(path: pathlib.Path, newline: str) -> Any:
    return open(path, encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _keyed_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; `Unfit` if it has a key twice, of which Python would take the last."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise answers.Unfit(f"has the key {max(names, key=names.count)!r} twice; leave one out")
    return content


def _read_jsonl(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    with _opened(path, "\n") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line, object_pairs_hook=_keyed_once)
            except answers.Unfit as error:
                record = error
            except ValueError as error:
                record = answers.Unfit(f"is not JSON ({getattr(error, 'msg', error)})")
            except RecursionError:
                record = answers.Unfit("is nested too deeply")
            yield number, record


def _read_csv(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    limit, line = csv.field_size_limit(_LONGEST), 1
    columns: list[str] = []
    try:
        with _opened(path, "") as stream:
            between = "\t" if ending(path) == ".tsv" else ","
            reader = csv.reader(stream, strict=True, delimiter=between)
            for cells in reader:
                if cells and not columns:
                    columns = cells
                    if len({*columns}) < len(columns):
                        raise ValueError(f"{path}, line {line}: names a column twice.")
                elif cells and len(cells) == len(columns):
                    yield line, dict(zip(columns, cells, strict=True))
                elif cells:
                    counts = f"{len(cells)} cells, the header {len(columns)}"
                    yield line, answers.Unfit(f"holds {counts}")
                line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}: is not CSV from line {line} on ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def _read_parquet(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    parquet = _package(".parquet")
    try:
        batches = parquet.ParquetFile(path).iter_batches()
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: cannot be read as Parquet: {error}") from error


def _read_json(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """An array of records, an object that holds one, a record a line, or a log of Inspect."""
    with _opened(path, "\n") as stream:
        try:
            content = json.load(stream, object_pairs_hook=_keyed_once)
        except (ValueError, RecursionError) as error:
            if getattr(error, "msg", "") != "Extra data":
                raise ValueError(f"{path}: cannot be read as JSON: {error}") from error
            content = None  # A record a line.
    keyed = isinstance(content, dict)
    rows = content.get(_HELM) if keyed else content
    if content is None:
        yield from _read_jsonl(path)
    elif isinstance(rows, list):
        yield from enumerate(rows, 1)
    elif keyed and {"eval", "version"} <= content.keys():
        yield from _read_inspect(path)
    elif keyed and not any(
        isinstance(held, list) and {*map(type, held)} <= {dict} for held in content.values()
    ):
        yield 1, content
    else:
        seen = f"the keys {', '.join(map(repr, content))}" if keyed else content
        raise ValueError(
            f"{path}: expected an array of records, an object with {_HELM!r}, or a log of Inspect, "
            f"received {seen!s:.200}. If one key holds the "
            "records, save what it holds: json.dump(json.load(open(OLD))[KEY], open(NEW, 'w'))."
        )


def _read_inspect(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """The samples of a log: each is a prompt, as it was in the first epoch, and an epoch an answer.

    The answer is that of the scorer that has the metric `answer_diversity`, or else the completion.
    """
    read_eval_log = _package(".eval").read_eval_log
    try:
        log = read_eval_log(str(path), resolve_attachments=True)
        scores = log.results.scores if log.results else []
        scorer = next((score.name for score in scores if INSPECT_METRIC in score.metrics), None)
        prompts: dict[Any, str] = {}
        texts: set[str] = set()
        for number, sample in enumerate(log.samples or [], 1):
            if sample.id not in prompts:
                turns = itertools.takewhile(  # Solvers may add messages to the input.
                    lambda turn: turn.role != "assistant" or turn.source == "input", sample.messages
                )
                given = [turn.model_dump() for turn in turns] or str(sample.input)
                text = answers.given_text(given, "'input'")
                # Samples may share a text beside different files.
                prompts[sample.id] = f"{text}\n\nsample: {sample.id}" if text in texts else text
                texts.add(text)
            answer = sample.output.completion
            several = sample.output.choices
            if len(several) > 1:
                answer = [choice.message.text for choice in several]
            if scorer is not None:
                score = (sample.scores or {}).get(scorer)  # Inspect leaves out NaN too.
                answer = None if score is None or score.value != score.value else score.answer
            field = "completion" if scorer is None else "answer"
            yield number, {"model": log.eval.model, "prompt": prompts[sample.id], field: answer}
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: is not a log of Inspect: {error}") from error


_parsed: dict[Any, list[tuple[int, Any]]] = {}
_READERS = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".eval": _read_inspect,
    ".json": _read_json,
}
RECORD_ENDINGS = tuple(_READERS)
