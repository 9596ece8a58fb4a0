"""For Weave: a scorer of all rows of an evaluation."""

import importlib.util
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import known, run_metric

_TOOL: Any = importlib.import_module("weave") if importlib.util.find_spec("weave") else None
_BASE: Any = _TOOL.Scorer if _TOOL else object
_OP: Any = _TOOL.op if _TOOL else staticmethod


class AnswerDiversity(_BASE):
    """One of the `scorers` of an `Evaluation`: the `numbers`; arguments of `run_metric`.

    Rows of equal `prompt` belong together; `column_map={"prompt": ...}` names another column.
    """

    bandwidth: float | None = None
    order: float = 2
    encoder: Any = None
    answer: str | None = None
    clean: bool = True

    def __init__(self, **options: Any) -> None:
        extras.check("weave", package="weave", purpose="AnswerDiversity")
        super().__init__(**options)
        self._metric()  # Refuses what is not valid.

    def _metric(self) -> Any:
        names = AnswerDiversity.__annotations__
        return run_metric("trials=10", **{name: getattr(self, name) for name in names})

    @_OP
    def score(self, *, output: Any, prompt: Any) -> dict[str, Any]:
        """What `summarize` needs of a row."""
        return {"prompt": prompt, "output": output}

    @_OP
    def summarize(self, score_rows: list[Any]) -> dict[str, float | None]:
        """The `numbers` of all rows; those that failed are left out, which is logged."""
        rows = [row or {"prompt": None, "output": None} for row in score_rows]
        return known(self._metric()(*([row[n] for row in rows] for n in ("prompt", "output"))))
