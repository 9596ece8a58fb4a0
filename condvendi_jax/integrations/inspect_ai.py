"""For Inspect: a metric of what a scorer keeps, and a scorer found by its entry point."""

import functools
import importlib
import json
from collections.abc import Callable
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import NAME, run_metric
from condvendi_jax.records.answers import is_blank


def answer_diversity(**options: Any) -> Any:
    """A metric of Inspect: the `numbers` of `score.answer` of all epochs; options of `run_metric`.

    Each sample is a prompt of its own. `answer_diversity_scorer` is a scorer that has it.
    """
    return _inspect().metric(name=NAME, scores="unreduced")(_metric)(**options)


def _inspect() -> Any:
    with extras.needed("records", package="inspect_ai", purpose="a metric or scorer of Inspect"):
        return importlib.import_module("inspect_ai.scorer")


def _metric(**options: Any) -> Callable[[list[Any]], dict[str, float]]:
    """The metric, with the options that the scorer keeps in the metadata of its scores."""
    make = functools.cache(lambda kept: run_metric("epochs=10", **options, **json.loads(kept)))
    if options:
        make("{}")  # Refuses what is not valid.

    def compute(scores: list[Any]) -> dict[str, float]:
        kept = [(one.score.metadata or {}).get(NAME, {}) for one in scores[:1]] or [{}]
        samples = [None if one.sample_id is None else [one.sample_id] for one in scores]
        return make(json.dumps(kept[0]))(samples, [one.score.answer for one in scores])

    return compute


def _scorer(**options: Any) -> Any:
    """A scorer: 1 for a sample with an answer, else 0; options are texts and numbers."""
    run_metric("", **json.loads(json.dumps(options)))  # Refuses what is not valid.

    async def score(state: Any, target: Any) -> Any:
        text, kept = state.output.completion, {NAME: options} if options else None
        return _inspect().Score(value=float(not is_blank(text)), answer=text, metadata=kept)

    return score


def __getattr__(name: str) -> Any:
    """The scorer `answer_diversity_scorer`, which importing it or its entry point registers."""
    if name != "answer_diversity_scorer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    metric = _inspect().metric(name=NAME, scores="unreduced")(_metric)()
    return _inspect().scorer(metrics=[metric], name=NAME)(_scorer)
