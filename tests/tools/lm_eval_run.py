"""Runs a task of lm-eval without a model; 0.4.13 finds the metric once its module is imported."""

import pathlib

import datasets
import lm_eval
import yaml
from gifts import ask, questions
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask

import condvendi_jax.integrations.lm_eval  # noqa: F401 - It registers the metric.


class Model(LM):
    loglikelihood = loglikelihood_rolling = None

    def generate_until(self, requests):
        return [ask(request.args[0]) for request in requests]


def load(**_):
    return {"test": datasets.Dataset.from_list([{"question": one} for one in questions])}


config = yaml.safe_load(pathlib.Path(__file__).with_name("diversity.yaml").read_text())
config |= {"task": "gifts", "custom_dataset": load, "test_split": "test", "doc_to_target": ""}
config |= {"output_type": "generate_until", "doc_to_text": "{{question}}"}
results = lm_eval.evaluate(Model(), {"gifts": ConfigurableTask(config=config)})
scores = {"answer_diversity": results["results"]["gifts"]["answer_diversity,all"]}
