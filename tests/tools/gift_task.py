# gift_task.py
from gifts import questions
from inspect_ai import Task, task
from inspect_ai.dataset import Sample

from condvendi_jax.integrations.inspect_ai import answer_diversity_scorer


@task
def gifts():
    samples = [Sample(input=question) for question in questions]
    return Task(dataset=samples, scorer=answer_diversity_scorer())
