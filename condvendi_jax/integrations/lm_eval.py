"""For lm-eval: a metric and its aggregation, found by their entry points."""

import importlib
from collections.abc import Sequence
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import NAME, run_metric

with extras.needed("lm-eval", package="lm-eval", purpose="a metric of lm-eval"):
    _TOOL: Any = importlib.import_module("lm_eval.api.registry")
_HOW = {"higher_is_better": True, "output_type": "generate_until", "aggregation": NAME}


@_TOOL.register_aggregation(NAME)
def over_documents(items: Sequence[Any]) -> float:
    """The aggregation: the score of the answers to all documents, each a prompt of its own."""
    if not all(isinstance(item, list) for item in items):
        raise ValueError(f"{NAME}: expected one target for each document, received several.")
    options = items[0][1] if items else {}
    rows = [(k, text) for k, (answers, _) in enumerate(items) for text in answers]
    measure = run_metric("repeats: 10, and the filter take_first_k", **options)
    return measure([k for k, _ in rows], [text for _, text in rows])[NAME]


@_TOOL.register_metric(metric=NAME, **_HOW)
def answer_diversity(references: Any, predictions: Any, **options: Any) -> list[Any]:
    """The metric: the answers to a document and the options of `run_metric`, to aggregate."""
    (answers,) = predictions
    return [[answers] if isinstance(answers, str) else [*answers], options]
