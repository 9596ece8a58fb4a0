"""For Inspect: a metric of what a scorer keeps, and a scorer found by its entry point."""

import functools
import importlib
from typing import Any

from condvendi_jax.base import extras
from condvendi_jax.integrations.runs import NAME, run_metric

with extras.needed("records", package="inspect_ai", purpose="a metric or scorer of Inspect"):
    _TOOL: Any = importlib.import_module("inspect_ai.scorer")


@_TOOL.metric(name=NAME, scores="unreduced")
def answer_diversity(**options: Any) -> Any:
    """A metric: the `numbers` of all epochs, each sample a prompt; options of `run_metric`."""
    made = functools.cache(lambda *kept: run_metric("epochs=10", **{**options, **dict(kept)}))
    if options:
        made()  # Refuses what is not valid.

    def compute(scores: list[Any]) -> dict[str, float]:
        kept = ((one.score.metadata or {}).get(NAME, {}) for one in scores[:1])
        samples = [None if one.sample_id is None else [one.sample_id] for one in scores]
        return made(*dict(*kept).items())(samples, [one.score.answer for one in scores])

    return compute


@_TOOL.scorer(metrics=[answer_diversity()], name=NAME)
def answer_diversity_scorer(**options: Any) -> Any:
    """A scorer that has the metric: 1 if there is a completion, else 0; the same options."""
    run_metric("", **options)  # Refuses what is not valid.

    async def score(state: Any, target: Any) -> Any:
        said = state.output.completion
        return _TOOL.Score(value=float(said != ""), answer=said, metadata={NAME: options})

    return score
