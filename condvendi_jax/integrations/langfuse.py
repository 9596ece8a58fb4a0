"""For Langfuse: an evaluator of all items of an experiment."""

from collections.abc import Callable, Sequence
from typing import Any

from condvendi_jax.integrations.runs import known, run_metric


def answer_diversity(**options: Any) -> Callable[..., Any]:
    """One of the `run_evaluators` of `run_experiment`: the `numbers`; options of `run_metric`."""
    measure = run_metric("data=10 * data", **options)

    def answer_diversity(*, item_results: Sequence[Any], **_: Any) -> list[dict[str, Any]]:
        items = [one.item for one in item_results]
        asked = [item["input"] if isinstance(item, dict) else item.input for item in items]
        flat = known(measure(asked, [one.output for one in item_results]))
        return [{"name": name, "value": x} for name, x in flat.items() if x is not None]

    return answer_diversity
