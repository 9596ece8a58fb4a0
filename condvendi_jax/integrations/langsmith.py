"""For LangSmith: an evaluator of all runs of an experiment."""

from collections.abc import Callable, Sequence
from typing import Any

from condvendi_jax.integrations.runs import known, run_metric


def answer_diversity(**options: Any) -> Callable[..., Any]:
    """One of the `summary_evaluators` of `evaluate`: the `numbers`; options of `run_metric`."""
    measure = run_metric("num_repetitions=10", **options)

    def answer_diversity(runs: Sequence[Any], examples: Sequence[Any]) -> dict[str, Any]:
        flat = measure([one.inputs for one in examples], [run.outputs for run in runs])
        return {"results": [{"key": name, "score": x} for name, x in known(flat).items()]}

    return answer_diversity
