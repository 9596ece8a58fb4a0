"""Where the logs of each tool hold the prompt, the answers and the model: one row a format.

Plain names of fields, such as `prompt` and `answers`, need no row: `record` knows them. A path is
`a.b`: a key, then a key below it. `a[]` is every entry of a list, or the value where it is none,
`a[1]` the only entry, `a[message]` the list of its entries of this type, and `*` the first entry.
"""

from typing import NamedTuple


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

FORMATS = (  # Tool, marks, answers, prompt.
    Format("lmms-eval", ("resps", "input", "doc_id"), ("resps[1]",), ("input",), id="doc_id"),
    Format("lm-evaluation-harness", ("resps",), ("resps[1]",), ("arguments.*.*.*", "doc")),
    Format(
        "HELM",
        ("instance", "request", "result.completions"),
        ("result.completions[].text",),
        ("request.messages", "request.prompt"),
        model="request.model",
        request=True,
    ),
    Format(
        "OpenAI batch, vLLM run-batch",
        ("custom_id", "response"),
        (f"{_BATCH}.choices[].message", f"{_BATCH}.choices[].text", f"{_BATCH}.output[message]"),
        id="custom_id",
        model=f"{_BATCH}.model",
        request=True,
    ),
    Format(
        "Anthropic batch",
        ("custom_id", "result"),
        ("result.message.content",),
        id="custom_id",
        model="result.message.model",
    ),
    Format("evalplus", ("task_id", "solution"), ("solution",), id="task_id"),
    Format("HumanEval", ("task_id", "completion"), ("completion",), id="task_id"),
    Format("AlpacaEval", ("instruction", "output", "generator"), model="generator"),
)
"""A row for each tool."""
