"""For Weave: a scorer of all rows of an evaluation."""

import importlib.util
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import known, run_metric

_TOOL: Any = importlib.import_module("weave") if importlib.util.find_spec("weave") else None
_BASE: Any = _TOOL.Scorer if _TOOL else object
_OP: Any = _TOOL.op if _TOOL else staticmethod


class AnswerDiversity(_BASE):
    """A scorer of an `Evaluation`: the `numbers` by the column `prompt`; options: `run_metric`."""

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
    def score(self, *, output: Any, prompt: Any) -> list[Any]:
        """What `summarize` needs of a row."""
        return [prompt, output]

    @_OP
    def summarize(self, score_rows: list[Any]) -> dict[str, float | None]:
        """The `numbers` of all rows; those that failed are left out, which is logged."""
        rows = [row or (None, None) for row in score_rows]
        return known(self._metric()([prompt for prompt, _ in rows], [said for _, said in rows]))
