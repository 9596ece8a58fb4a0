"""Where the logs of each tool hold the prompt, the answers and the model: one row a format.

Plain names of fields, such as `prompt` and `answers`, need no row: `record` knows them. A path is
`a.b`: a key, then a key below it. `a[]` is every entry of a list, or the value where it is none,
`a[only]` the only entry, `a[message]` the list of its entries of this type, and `*` the first
entry. `a[0]` and `a[-1]` are the first and the last entry.
"""

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


_BODY, _BODY_MODEL = "response.body", "response.body.model"
_BATCH = f"{_BODY}.choices[].message {_BODY}.choices[].text {_BODY}.output[message]"
_STATE, _SHOWN = "instance request result.completions", "predicted_text"
_ASKED = "request.messages request.prompt"
_CHOICES = "choices[].message choices[].text"
_MESSAGE, _MODEL, _RAW = "result.message.content", "result.message.model", "output.raw[] messages"
_RESPONSE = "response.choices[].message response.choices[].text"
_OUTPUTS = "outputs.generations[only] outputs"
_PROVIDER = "provider.label provider.id provider"
_ITEM = "sample.input datasource_item"

FORMATS = (  # Tool, marks, answers, prompt, id, model, request.
    Format("lmms-eval", "resps input doc_id", "resps[only]", "input", "doc_id"),
    Format("lm-evaluation-harness", "resps", "resps[only]", "arguments.*.*.* doc"),
    Format("HELM", _STATE, "result.completions[].text", _ASKED, "", "request.model", True),
    Format("HELM, displayed", "instance_id predicted_text", _SHOWN, "", "instance_id"),
    Format("batch of OpenAI", "custom_id response", _BATCH, "", "custom_id", _BODY_MODEL, True),
    Format("batch of Anthropic", "custom_id result", _MESSAGE, "", "custom_id", _MODEL),
    Format("OpenAI, vLLM: chat", "choices[].message", _CHOICES, request=True),
    Format("OpenAI, vLLM: texts", "choices[].finish_reason", _CHOICES, request=True),
    Format("OpenAI calls", "response.choices[]", _RESPONSE, "request", "", "response.model", True),
    Format("Ollama", "message.content done", "message", model="model"),
    # The first turn: it answers the prompt alone.
    Format("MT-bench", "choices[].turns", "choices[].turns.*", "", "question_id", "model_id"),
    Format("evalplus", "task_id solution", "solution", "", "task_id"),
    Format("HumanEval", "task_id completion", "completion", "", "task_id"),
    Format("AlpacaEval", "instruction output generator", model="generator"),
    Format("lighteval", "full_prompt predictions", "", "full_prompt example"),
    Format("lighteval, new", "doc.query model_response", "model_response.text[]", "doc.query"),
    Format("promptfoo", "prompt.raw vars", "response.output", "prompt.raw", "", _PROVIDER),
    Format("LangSmith", "run_type inputs outputs", _OUTPUTS, "inputs"),
    Format("pydantic-evals", "inputs output scores", "output", "inputs"),
    Format("OpenAI evals", "datasource_item", "sample.output", _ITEM, "", "sample.model"),
    Format("Every Eval Ever", "evaluation_id input.raw", _RAW, "input.raw", "", "model_id"),
)
"""A row for each tool."""

# Of a batch, of HELM, of MT-bench, of code, of HELM's instances.
QUESTIONS = {"custom_id": "body params", "instance_id": _ASKED, "question_id": "turns.*"}
QUESTIONS |= {"task_id": "prompt", "id": "input.text"}
"""The ids in a file of prompts, and the paths of their prompts."""

BESIDE = ("display_requests.json", "instances.json")
"""The files of prompts beside HELM's display_predictions.json."""
