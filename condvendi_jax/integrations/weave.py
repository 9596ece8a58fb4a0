"""For Weave: a scorer of all rows of an evaluation."""

import importlib
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import known, run_metric

with extras.needed("weave", package="weave", purpose="a scorer of Weave"):
    _TOOL: Any = importlib.import_module("weave")


class AnswerDiversity(_TOOL.Scorer):
    """A scorer of an `Evaluation`: the `numbers` by the column `prompt`; options: `run_metric`."""

    bandwidth: float | None = None
    order: float = 2
    encoder: Any = None
    answer: str | None = None
    clean: bool = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._metric()  # Refuses what is not valid.

    def _metric(self) -> Any:
        fields = {name: getattr(self, name) for name in AnswerDiversity.__annotations__}
        return run_metric("trials=10", **fields)

    @_TOOL.op
    def score(self, *, output: Any, prompt: Any) -> list[Any]:
        """What `summarize` needs of a row."""
        return [prompt, output]

    @_TOOL.op
    def summarize(self, score_rows: list[Any]) -> dict[str, float | None]:
        """The `numbers` of all rows; those that failed are left out, which is logged."""
        rows = [row or (None, None) for row in score_rows]
        return known(self._metric()([prompt for prompt, _ in rows], [said for _, said in rows]))
