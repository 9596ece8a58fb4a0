import asyncio

import weave
from gifts import ask, questions

from condvendi_jax.integrations.weave import AnswerDiversity

rows = [{"prompt": question} for question in questions]
evaluation = weave.Evaluation(dataset=rows, scorers=[AnswerDiversity()], trials=10)


@weave.op
def model(prompt):
    return ask(prompt)


scores = asyncio.run(evaluation.evaluate(model))["AnswerDiversity"]
