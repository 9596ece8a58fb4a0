"""For pydantic-evals: an evaluator of a report."""

import dataclasses
import importlib.util
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import known, run_metric

_HERE = importlib.util.find_spec("pydantic_evals")
_TOOL: Any = importlib.import_module("pydantic_evals.evaluators") if _HERE else None
_BASE: Any = _TOOL.ReportEvaluator if _TOOL else object


@dataclasses.dataclass(repr=False)
class AnswerDiversity(_BASE):
    """One of the `report_evaluators` of a dataset: the `numbers`; arguments of `run_metric`."""

    bandwidth: float | None = None
    order: float = 2
    encoder: Any = None
    answer: str | None = None
    clean: bool = True

    def __post_init__(self) -> None:
        extras.check("pydantic-evals", package="pydantic-evals", purpose="AnswerDiversity")
        self._measure = run_metric("repeat=10", **vars(self))

    def evaluate(self, ctx: Any) -> list[Any]:
        """The results of all cases; those that failed are left out, which is logged."""
        scalar = importlib.import_module("pydantic_evals.reporting.analyses").ScalarResult
        cases = [*ctx.report.cases, *ctx.report.failures]
        said = [getattr(case, "output", None) for case in cases]
        flat = known(self._measure([case.inputs for case in cases], said))
        return [scalar(title=name, value=x) for name, x in flat.items() if x is not None]
