from gifts import ask, questions
from pydantic_evals import Case, Dataset

from condvendi_jax.integrations.pydantic_evals import AnswerDiversity

cases = [Case(inputs=question) for question in questions]
dataset = Dataset(name="gifts", cases=cases, report_evaluators=[AnswerDiversity()])
report = dataset.evaluate_sync(ask, repeat=10)

assert not report.report_evaluator_failures, report.report_evaluator_failures
scores = {result.title: result.value for result in report.analyses}
