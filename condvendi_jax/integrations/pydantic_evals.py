"""For pydantic-evals: an evaluator of a report."""

import dataclasses
import importlib
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import known, run_metric

with extras.needed("pydantic-evals", package="pydantic-evals", purpose="a ReportEvaluator"):
    _TOOL: Any = importlib.import_module("pydantic_evals.evaluators")
    _REPORT: Any = importlib.import_module("pydantic_evals.reporting.analyses")


@dataclasses.dataclass(repr=False)
class AnswerDiversity(_TOOL.ReportEvaluator):
    """One of the `report_evaluators` of a dataset: the `numbers`; arguments of `run_metric`."""

    bandwidth: float | None = None
    order: float = 2
    encoder: Any = None
    answer: str | None = None
    clean: bool = True

    def __post_init__(self) -> None:
        self._measure = run_metric("repeat=10", **vars(self))

    def evaluate(self, ctx: Any) -> list[Any]:
        """The results of all cases; those that failed are left out, which is logged."""
        cases = [*ctx.report.cases, *ctx.report.failures]
        said = [getattr(case, "output", None) for case in cases]
        flat = known(self._measure([case.inputs for case in cases], said)).items()
        return [_REPORT.ScalarResult(title=name, value=x) for name, x in flat if x is not None]
