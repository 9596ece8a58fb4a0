"""Evaluates the task without a model, and keeps the log in the current folder."""

from gift_task import gifts
from gifts import ask
from inspect_ai import eval
from inspect_ai.model import ModelOutput
from inspect_ai.solver import solver


@solver
def answer():
    async def solve(state, generate):
        state.output = ModelOutput.from_content("none", ask(state.input_text))
        return state

    return solve


options = {"model": "mockllm/model", "display": "none", "log_dir": "."}
(log,) = eval(gifts(), solver=answer(), epochs=10, **options)
metrics = log.results.scores[0].metrics
scores = {name: metric.value for name, metric in metrics.items()}
