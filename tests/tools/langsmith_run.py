from gifts import ask
from langsmith import evaluate

from condvendi_jax.integrations.langsmith import answer_diversity


def target(inputs):
    return {"answer": ask(inputs["question"])}


evaluators = [answer_diversity()]
results = evaluate(target, data="gifts", summary_evaluators=evaluators, num_repetitions=10)

scores = {one.key: one.score for one in results._summary_results["results"]}
