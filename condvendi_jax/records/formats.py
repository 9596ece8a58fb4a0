"""Where the logs of each tool hold the prompt, the answers and the model: one row a format.

Plain names of fields, such as `prompt` and `answers`, need no row: `record` knows them. A path is
`a.b`: a key, then a key below it. `a[]` is every entry of a list, or the value where it is none,
`a[only]` the only entry, `a[message]` the list of its entries of this type, and `*` the first
entry, as of the turns of MT-bench: the first answers the prompt alone. `a[0]` and `a[-1]` are the
first and the last entry.
"""

import csv
import pathlib
from typing import NamedTuple


class Format(NamedTuple):
    """The records of one tool; blanks separate paths.

    Attributes:
      marks: paths that every record of the tool has, and no record of another.
      answers: paths of the answers; the first that leads somewhere counts.
      prompt, model: theirs, in the same way. Where empty, the fields have plain names.
      id: the path of what stands for the prompt, or tells prompts of one text apart.
      request: whether a record is one request, which may have several answers.
    """

    tool: str
    marks: str
    answers: str = ""
    prompt: str = ""
    id: str = ""
    model: str = ""
    request: bool = False


with pathlib.Path(__file__).with_name("formats.csv").open(encoding="utf-8", newline="") as _rows:
    FORMATS = tuple(Format(*row[:-1], request=bool(row[-1])) for row in [*csv.reader(_rows)][1:])
"""The rows of formats.csv, one for each tool."""

MODEL_FIELDS = ("model", "model_name", "model_id", "engine", "llm")
WEIGHT_FIELD = "probability"
# Of a batch, of HELM, of MT-bench, of code, of HELM's instances.
QUESTIONS = {"custom_id": "body params", "instance_id": "request.messages request.prompt"}
QUESTIONS |= {"question_id": "turns.*", "task_id": "prompt", "id": "input.text"}
"""The ids in a file of prompts, and the paths of their prompts."""

BESIDE = ("display_requests.json", "instances.json")
"""The files of prompts beside HELM's display_predictions.json."""
