from gifts import ask, questions
from langfuse import get_client

from condvendi_jax.integrations.langfuse import answer_diversity

result = get_client().run_experiment(
    name="gifts",
    data=10 * [{"input": question} for question in questions],
    task=lambda *, item, **_: ask(item["input"]),
    run_evaluators=[answer_diversity()],
)

scores = {one.name: one.value for one in result.run_evaluations}
