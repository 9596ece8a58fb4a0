"""Where the logs of each tool hold the prompt, the answers and the model: one row a format.

Plain names of fields, such as `prompt` and `answers`, need no row: `records` knows them. A path is
`a.b`: a key, then a key below it. `a[]` is every entry of a list, or the value where it is none,
`a[1]` the only entry, `a[message]` the list of its entries of this type, and `*` the first entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from condvendi_jax.encoders.answers import Unfit, messages_of


class Format(NamedTuple):
    """The records of one tool.

    Attributes:
      marks: paths that every record of the tool has, and no record of another.
      answers: paths of the answers; the first that leads somewhere counts.
      prompt, model: theirs, in the same way. Where empty, the fields have plain names.
      id: the path of what stands for the prompt where the record has none, or beside it tells
        prompts of one text and other pictures apart.
      request: whether a record is one request, which may have several answers.
    """

    tool: str
    marks: tuple[str, ...]
    answers: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    id: str = ""
    model: str = ""
    request: bool = False


_BATCH = "response.body"

FORMATS = (
    Format(
        tool="lmms-eval",
        marks=("resps", "input", "doc_id"),
        answers=("resps[1]",),
        prompt=("input",),
        id="doc_id",
    ),
    Format(
        tool="lm-evaluation-harness",
        marks=("resps",),
        answers=("resps[1]",),
        prompt=("arguments.*.*.*", "doc"),
    ),
    Format(
        tool="HELM",
        marks=("instance", "request", "result.completions"),
        answers=("result.completions[].text",),
        prompt=("request.messages", "request.prompt"),
        model="request.model",
        request=True,
    ),
    Format(
        tool="OpenAI batch, vLLM run-batch",
        marks=("custom_id", "response"),
        answers=(
            f"{_BATCH}.choices[].message",
            f"{_BATCH}.choices[].text",
            f"{_BATCH}.output[message]",
        ),
        id="custom_id",
        model=f"{_BATCH}.model",
        request=True,
    ),
    Format(
        tool="Anthropic batch",
        marks=("custom_id", "result"),
        answers=("result.message.content",),
        id="custom_id",
        model="result.message.model",
    ),
    Format("evalplus", marks=("task_id", "solution"), answers=("solution",), id="task_id"),
    Format("HumanEval", marks=("task_id", "completion"), answers=("completion",), id="task_id"),
    Format(tool="AlpacaEval", marks=("instruction", "output", "generator"), model="generator"),
)
"""A row for each tool."""


def format_of(record: Mapping[Any, Any]) -> Format | None:
    """The first format whose marks a record has, if only with null."""
    return next((row for row in FORMATS if all(values(record, m) for m in row.marks)), None)


def values(record: Any, path: str) -> list[Any]:
    """What a path leads to in a record; [] where it leads nowhere.

    Raises:
      Unfit: it leads through a list of several entries that should have one.
    """
    found = [record]
    for step in path.split("."):
        key, *marks = step.replace("]", "").split("[")
        found = [value for of in found for value in _below(of, key)]
        for mark in marks:
            found = [value for of in found for value in _entries(of, mark, step)]
    return found


def first(record: Any, paths: tuple[str, ...]) -> tuple[str, list[Any]]:
    """The first of several paths that leads somewhere, and to what; the last one if none does."""
    found = [(path, values(record, path)) for path in paths]
    return next((one for one in found if one[1] not in ([], [None], [""], [[]])), found[-1])


def _below(value: Any, key: str) -> list[Any]:
    if key != "*":
        return [value[key]] if isinstance(value, dict) and key in value else []
    if not isinstance(value, (dict, list)) or messages_of(value):
        return [value]
    return [*(value.values() if isinstance(value, dict) else value)][:1]


def _entries(value: Any, mark: str, step: str) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    if mark == "1" and any(isinstance(entry, list) for entry in value):
        if len(value) != 1:
            raise Unfit(f"expected one list of answers in {step.partition('[')[0]!r}")
        return value[0]
    if mark in ("", "1"):
        return value
    return [[entry for entry in value if isinstance(entry, dict) and entry.get("type") == mark]]
