"""Tables of records: JSONL, CSV, TSV, Parquet, Arrow, JSON and logs of Inspect, row by row."""

import collections
import csv
import glob
import importlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from condvendi_jax.base import checks, extras, files
from condvendi_jax.records import answers
from condvendi_jax.records.record import Fields, Record, answer_field, with_lists

_LONGEST = 2**31 - 1  # Characters of a CSV cell; Python's limit is 131,072.
LOOKED_AT = 2_000  # Records of a file that say which field has the answers.
_EMPTY = {"NA", "NaN", "nan", "<NA>"}  # How pandas writes a missing cell.
_PARSED_WHOLE = (".json", ".eval")
_BESIDES = re.compile(  # What folders hold beside records: hidden, of Hugging Face and of HELM.
    r"/\.|/(dataset_info|dataset_dict|state|display_requests|instances)\.json$|/cache-[^/]*\.arrow$"
)
_SHARD = re.compile(r"\d-of-\d+\.")
_COPY, _WHOLE = "display_predictions.json", "scenario_state.json"  # Of HELM.
_KEPT_BYTES = 2**28  # Of files that are parsed.
INSPECT_METRIC = "answer_diversity"
_PACKAGES = {
    ".parquet": ("pyarrow", "pyarrow.parquet", "reading Parquet"),
    ".arrow": ("pyarrow", "pyarrow.ipc", "reading Arrow"),
    ".eval": ("inspect_ai", "inspect_ai.log", "reading logs of Inspect"),
}


def record_files(
    paths: files.StrPath | Iterable[files.StrPath], named: Fields | None = None
) -> dict[pathlib.Path, pathlib.Path | None]:
    """The files that paths, patterns and folders name, each once, and the folder that is its model.

    A folder is a model, with all files of records in it and below; one that is given alone and has
    folders alone is a model for each. ValueError for a file that cannot be read.
    """
    given, folders = list[pathlib.Path](), dict[pathlib.Path, pathlib.Path]()
    for name in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        if not isinstance(name, (str, os.PathLike)):
            call = "cv.evaluate([row['answer'] for row in rows], [row['prompt'] for row in rows])"
            raise TypeError(f"paths: expected files, received {type(name).__name__}. Try {call}.")
        matches = [path := files.expanded(name)]
        if glob.has_magic(str(path)) and not path.exists():
            matches = sorted(map(pathlib.Path, glob.glob(str(path), recursive=True)))
        if not matches:
            raise ValueError(f"{path}: matches no file.")
        given += matches
        counts = collections.Counter(match.parent for match in matches)
        apart = len(counts) > 1 and min(counts.values()) > 1  # Files of several folders.
        shards = {match: match.parent for match in matches if apart or _SHARD.search(match.name)}
        folders |= shards if path not in matches else {}
    if not given:
        raise ValueError("expected at least one file of records, received none.")
    for kind in set(map(ending, given)) & {*_PACKAGES}:
        _package(kind)  # Before anything is read.
    models, seen = dict[pathlib.Path, pathlib.Path | None](), dict[Any, pathlib.Path]()
    for path in given:
        inside = _below(path, named) if path.is_dir() else [path]
        several = len(given) == 1 and not {path, path.parent} & {file.parent for file in inside}
        for file in inside:
            if ending(file) not in _READERS:
                raise files.unread(file, _READERS)
            if not file.exists():
                raise ValueError(f"{file}: there is no such file.")
            other = seen.setdefault((file.stat().st_dev, file.stat().st_ino), file)
            if other is not file:
                raise ValueError(f"{file}: is given twice, also as {other}.")
            folder = path if path.is_dir() else folders.get(path)
            models[file] = path / file.relative_to(path).parts[0] if several else folder
    return models


def _below(folder: pathlib.Path, named: Fields | None) -> list[pathlib.Path]:
    """The files of records in a folder and those below; a warning names the others."""
    why = {
        path: misfit(path, named)
        for path in sorted(folder.rglob("*"))
        if ending(path) in _READERS and path.is_file()
        if not _BESIDES.search(f"/{path.relative_to(folder).as_posix()}")
        if not (path.name == _COPY and path.with_name(_WHOLE).exists())
    }
    others = [f"{path}: {reason}" for path, reason in why.items() if reason]
    if len(others) == len(why):
        others.insert(0, f"{folder}: holds no files of records ({', '.join(_READERS)}).")
        raise ValueError(" ".join(others[:2]))
    if others:
        checks.warn(f"{len(others):,} files hold no records, for example {others[0]}")
    return [path for path, reason in why.items() if not reason]


def misfit(path: files.StrPath, named: Fields | None = None) -> str:
    """Why a file, or one that a pattern or a folder names, is none of records; '' if all are."""
    file = path
    try:
        for file in record_files(path, named):
            if not (first := first_rows(file)):
                line, why = next(read_rows(file), (1, "the file is empty; leave it out"))
                raise ValueError(f"line {line}: {why}.")
            if (record := Record(first[0], named)).is_complete:
                continue
            rows = list(map(with_lists, first_rows(file, LOOKED_AT)))
            if not answer_field(rows, named or Fields(), str(file))[0]:
                record.answers()
                record.prompt()
    except ValueError as error:
        why = str(error).removeprefix(f"{file}: ")
        return why if files.expanded(path) == files.expanded(file) else f"{file}: {why}"
    return ""


def ending(path: pathlib.Path) -> str:
    """The ending of a file's name in small letters, that of a packed file without its .gz."""
    return pathlib.PurePath(path.name.lower().removesuffix(".gz")).suffix


def _package(kind: str) -> Any:
    package, module, purpose = _PACKAGES[kind]
    with extras.needed("records", package=package, purpose=purpose):
        return importlib.import_module(module)


def read_rows(path: pathlib.Path) -> Iterator[tuple[int, dict[Any, Any] | answers.Unfit]]:
    """The records of a file, each with its line, row or sample from 1; or why it is none.

    Blank lines hold no record. Bytes that are not UTF-8 become halves of surrogate pairs.
    """
    for line, record in _parsed.pop(_version(path), None) or _READERS[ending(path)](path):
        if isinstance(record, dict):  # NaN is how pandas marks an empty cell.
            record = {key: None if cell != cell else cell for key, cell in record.items()}
        elif not isinstance(record, answers.Unfit):
            words = 'expected an object such as {"prompt": "...", "answers": ["...", "..."]}'
            record = answers.Unfit(words)
        yield line, record


def first_rows(path: files.StrPath, count: int = 1) -> list[dict[Any, Any]]:
    """The first records of a file; none where the file is not of records.

    What is parsed whole for it is kept for `read_rows`, which then does not parse it again.
    """
    if ending(path := files.expanded(path)) not in _READERS or not path.is_file():
        return []
    rows: Any = read_rows(path)
    if ending(path) in _PARSED_WHOLE:
        rows = _parsed[_version(path)] = _parsed.get(_version(path)) or list(rows)
        while sum(size for *_, size in _parsed) > _KEPT_BYTES:
            del _parsed[next(iter(_parsed))]
    return [*itertools.islice((row for _, row in rows if isinstance(row, dict)), count)]


def _version(path: pathlib.Path) -> tuple[pathlib.Path, int, int]:
    return path, path.stat().st_mtime_ns, path.stat().st_size


def _keyed_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; `Unfit` if it has a key twice, of which Python would take the last."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise answers.Unfit(f"has the key {max(names, key=names.count)!r} twice; leave one out")
    return content


_DECODER = json.JSONDecoder(object_pairs_hook=_keyed_once)


def _read_jsonl(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    with files.open_text(path, "\n") as stream:
        for number, line in enumerate(stream, 1):
            if line.isspace():
                continue
            try:
                record = _DECODER.decode(line)
            except ValueError as error:
                words = f"is not JSON ({getattr(error, 'msg', error)}); write one record a line"
                record = error if isinstance(error, answers.Unfit) else answers.Unfit(words)
            except RecursionError:
                record = answers.Unfit("is nested too deeply")
            yield number, record


def _read_csv(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    limit, line, columns = csv.field_size_limit(_LONGEST), 1, list[str]()
    try:
        with files.open_text(path, "") as stream:
            head = next(stream, "")
            marks = "\t" if ending(path) == ".tsv" else ",;\t"
            between = next((mark for mark in marks if mark in head), marks[0])
            lines = stream if head.startswith("sep=") else itertools.chain([head], stream)
            reader = csv.reader(lines, strict=True, delimiter=between)
            for cells in reader:
                if cells and not columns:
                    columns = cells
                    if len({*columns}) < len(columns):
                        raise ValueError(f"{path}, line {line}: names a column twice.")
                elif cells and len(cells) == len(columns):
                    cells = ["" if cell in _EMPTY else cell for cell in cells]
                    yield line, dict(zip(columns, cells, strict=True))
                elif cells:
                    why = f"holds {len(cells)} cells, the header {len(columns)}"
                    yield line, answers.Unfit(why)
                line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}: is not CSV from line {line} on ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def _read_columns(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    package = _package(kind := ending(path))
    try:
        with open(path, "rb") as stream:
            if kind == ".parquet":
                batches = package.ParquetFile(stream).iter_batches()
            else:
                read = package.open_file if stream.peek(6)[:6] == b"ARROW1" else package.open_stream
                batches = read(stream).read_all().to_batches()
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: cannot be read as {kind[1:].title()}: {error}") from error


def _read_json(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """An array of records, an object that holds one, a record a line, or a log of Inspect."""
    with files.open_text(path, "\n") as stream:
        try:
            content = json.load(stream, object_pairs_hook=_keyed_once)
        except (ValueError, RecursionError) as error:
            if getattr(error, "msg", "") != "Extra data":
                raise ValueError(f"{path}: cannot be read as JSON: {error}") from error
            content = None  # A record a line.
    keyed = isinstance(content, dict)
    if content is None:
        yield from _read_jsonl(path)
    elif keyed and {"eval", "version"} <= content.keys():
        yield from _read_inspect(path)
    elif rows := _listed(content) if keyed else content if isinstance(content, list) else [content]:
        yield from enumerate(rows, 1)
    elif not isinstance(content, list):
        raise ValueError(
            f"{path}: expected an array of records, an object with one list of them, or a log of "
            f"Inspect, received the keys {', '.join(map(repr, content))!s:.200}. If one key holds "
            "the records, save it: json.dump(json.load(open(OLD))[KEY], open(NEW, 'w'))."
        )


def _listed(content: dict[Any, Any]) -> list[Any]:
    """The records in an object: itself, a table of W&B, or its only list of them; [] if several."""
    if {"columns", "data"} <= content.keys():
        keys, wrong = content["columns"], answers.Unfit("does not hold a cell for each column")
        rows = (dict(zip(keys, row, strict=False)) for row in content["data"])
        return [row if len(row) == len(keys) else wrong for row in rows]
    inside = [part for part in (content, *content.values()) if isinstance(part, dict)]
    numbered = all(str(key).isdecimal() for key in content)
    if len(inside) == len(content) + 1 and (numbered or Record(inside[-1]).is_complete):
        return inside[1:]  # Records by their ids.
    if len(inside) == len(content) + 1 and "0" in inside[-1]:  # Columns, as pandas writes them.
        return [{key: column.get(row) for key, column in content.items()} for row in inside[-1]]
    lists = [held for part in inside for held in part.values() if isinstance(held, list)]
    lists = [held for held in lists if {*map(type, held)} == {dict}]
    if not lists or Record(content).is_complete:
        return [content]
    lists = [rows for rows in lists if any(Record(row).is_complete for row in rows)] or lists
    return lists[0] if len(lists) == 1 else []


def _read_inspect(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """The samples, each a prompt; an answer is of the scorer of the metric, or the completion."""
    read_eval_log = _package(".eval").read_eval_log
    try:
        log = read_eval_log(str(path), resolve_attachments=True)
        scores = log.results.scores if log.results else []
        scorer = next((score.name for score in scores if INSPECT_METRIC in score.metrics), None)
        prompts, texts = dict[Any, str](), set[str]()
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
            field, answer = "completion", [choice.message.text for choice in sample.output.choices]
            if len(answer) < 2:
                answer = sample.output.completion
            if scorer is not None:
                field, score = "answer", (sample.scores or {}).get(scorer)
                # Inspect leaves out NaN too.
                answer = None if score is None or score.value != score.value else score.answer
            later = (turn for turn in sample.messages if turn.source != "input")
            run = [vars(one) for turn in later for one in getattr(turn, answers.CALLS, None) or ()]
            row = {"model": log.eval.model, "prompt": prompts[sample.id], field: answer}
            row["stop_reasons"] = [choice.stop_reason for choice in sample.output.choices]
            yield number, row | {answers.CALLS: run if run or answer else None}
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: is not a log of Inspect: {error}") from error


_parsed: dict[Any, list[tuple[int, Any]]] = {}
_READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".tsv": _read_csv, ".parquet": _read_columns}
_READERS |= {".arrow": _read_columns, ".eval": _read_inspect, ".json": _read_json}
RECORD_ENDINGS = tuple(_READERS)
