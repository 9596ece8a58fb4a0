"""For lm-eval: a metric and its aggregation, found by their entry points."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from condvendi_jax.integrations.runs import NAME, run_metric


def over_documents(items: Sequence[Any]) -> float:
    """The aggregation: the score of the answers to all documents, each a prompt of its own."""
    if not all(isinstance(item, list) for item in items):
        raise ValueError(f"{NAME}: expected one target for each document, received several.")
    options = items[0][1] if items else {}
    rows = [(k, text) for k, (answers, _) in enumerate(items) for text in answers]
    measure = run_metric("repeats: 10, and the filter take_first_k", **options)
    return measure([k for k, _ in rows], [text for _, text in rows])[NAME]


def answer_diversity(references: Any, predictions: Any, **options: Any) -> list[Any]:
    """The metric: the answers to a document and the options of `run_metric`, to aggregate."""
    (answers,) = predictions
    return [[answers] if isinstance(answers, str) else [*answers], options]


if importlib.util.find_spec("lm_eval"):
    _registry = importlib.import_module("lm_eval.api.registry")
    _registry.register_aggregation(NAME)(over_documents)
    _how = {"higher_is_better": True, "output_type": "generate_until", "aggregation": NAME}
    _registry.register_metric(metric=NAME, **_how)(answer_diversity)
