"""The formats of records: which files there are, and what each line, row or sample holds."""

from __future__ import annotations

import collections
import csv
import glob
import importlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

from condvendi_jax import _extras, files
from condvendi_jax.encoders import answers, items

_LONGEST = 2**31 - 1  # Characters of a CSV cell; Python's own limit is 131,072.
INSPECT_METRIC = "answer_diversity"


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
        if path.suffix.lower() not in READERS or path.is_dir():
            raise ValueError(f"{path}: expected a file ending in {', '.join(READERS)}.")
        if not path.exists():
            raise ValueError(f"{path}: there is no such file.")
    for k, path in enumerate(found):
        for other in found[:k]:
            if os.path.samefile(path, other):
                raise ValueError(f"{path}: is given twice, also as {other}.")
    return found


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
                record = answers.Unfit(f"is not JSON ({getattr(error, 'msg', error)})")
            except RecursionError:
                record = answers.Unfit("is nested too deeply")
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
                    cells, record = [], answers.Unfit(f"is not CSV ({error})")
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
                        record = answers.Unfit(f"holds {counts}")
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


def _read_json(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """An array of records, or a log of Inspect."""
    with _opened(path, "\n") as stream:
        is_array = next((line for line in stream if line.strip()), "").lstrip().startswith("[")
        stream.seek(0)
        try:
            records = json.load(stream, object_pairs_hook=items.unique_keys) if is_array else []
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: is not an array of records in JSON: {error}") from error
    yield from enumerate(records, 1) if is_array else _read_inspect(path)


def _read_inspect(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """The samples of a log; as for the metric, each sample is a prompt, and an epoch an answer.

    The prompt is what the model was given in the first epoch. If several samples were given the
    same text, for example beside different files, their names are added. The answer is that of the
    scorer that has the metric `answer_diversity`, or else the completion.
    """
    with _extras.needed("records", package="inspect_ai", purpose="reading logs of Inspect"):
        log = importlib.import_module("inspect_ai.log")
    try:
        header = log.read_eval_log(str(path), header_only=True)
        scores = header.results.scores if header.results else []
        scorer = next((score.name for score in scores if INSPECT_METRIC in score.metrics), None)
        if header.eval.dataset.sample_ids is None or path.suffix.lower() == ".json":
            samples = log.read_eval_log(str(path), resolve_attachments=True).samples or []
        else:
            samples = log.read_eval_log_samples(
                str(path), all_samples_required=False, resolve_attachments=True
            )
        prompts: dict[Any, str] = {}
        texts: set[str] = set()
        for number, sample in enumerate(samples, 1):
            if sample.id not in prompts:
                turns = itertools.takewhile(_is_given, sample.messages)
                given = [turn.model_dump() for turn in turns] or str(sample.input)
                text = answers.given_text(given, "'input'")
                prompts[sample.id] = f"{text}\n\nsample: {sample.id}" if text in texts else text
                texts.add(text)
            record = {"model": header.eval.model, "prompt": prompts[sample.id]}
            if scorer is None:
                yield number, record | {"completion": sample.output.completion}
            else:
                score = (sample.scores or {}).get(scorer)
                answer = None if score is None or score.value != score.value else score.answer
                yield number, record | {"answer": answer}  # Inspect leaves out NaN too.
    except Exception as error:  # Damaged files fail in any of the reader's ways.
        raise ValueError(f"{path}: is not a log of Inspect: {error}") from error


def _is_given(message: Any) -> bool:
    """Whether a message is not one of the model's; solvers may add some to the sample's input."""
    return message.role != "assistant" or message.source == "input"


READERS = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".eval": _read_inspect,
    ".json": _read_json,
}
RECORD_ENDINGS = tuple(READERS)
