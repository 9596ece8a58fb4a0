"""Adapters of evaluation tools: by their documented calls, with their packages, and on the page."""

import gc
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import types

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram

import condvendi_jax as cv
from condvendi_jax.integrations import numbers, score_run
from condvendi_jax.integrations.langfuse import answer_diversity as langfuse_evaluator
from condvendi_jax.integrations.langsmith import answer_diversity as langsmith_evaluator

TESTS = pathlib.Path(__file__).parents[1]
TOOLS = TESTS / "tools"
PACKAGES = ("inspect_ai", "pydantic_evals", "langsmith", "langfuse", "weave", "lm_eval")
SCORER = "condvendi_jax/answer_diversity"
INSPECT = "condvendi_jax.integrations.inspect_ai"
WIDTH = 60.0  # Of `fake_encoders.Means`, which also adds up the codes of all letters.
OPTIONS = {"bandwidth": WIDTH, "encoder": "fake_encoders:Means"}
ANSWERS = {"q": ["a", "bb", "abcd"], 7: ["ccc", "ca", "ca"], "7": ["z", "z", "zz"]}
ROWS = [(name, answers[k]) for k in range(3) for name, answers in ANSWERS.items()]


def harmonic(answers, width=WIDTH):
    """One over the mean squared kernel of two different answers to a prompt, in float64."""
    grams = [gaussian_gram(fake_encoders.Means().encode(texts), width) ** 2 for texts in answers]
    return 1 / np.mean([(gram.sum() - len(gram)) / (gram.size - len(gram)) for gram in grams])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def flat():
    return numbers(score_run([{"prompt": p, "answer": a} for p, a in ROWS], **OPTIONS))


@pytest.fixture
def fresh():
    """Modules that are imported again, as their packages may be replaced."""
    names = [f"condvendi_jax.integrations.{package}" for package in PACKAGES]
    before = {name: sys.modules.pop(name, None) for name in names}
    yield
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module:
            sys.modules[name] = module


def test_inspect_has_the_numbers_of_samples_and_keeps_the_parameters(
    fresh, flat, monkeypatch, caplog
):
    """As its documents say of `@metric(scores=...)`: it passes all parameters on."""
    seen = []

    def metric(*, name, scores):
        assert (name, scores) == ("answer_diversity", "unreduced")
        return lambda make: lambda **given: seen.append(given) or make(**given)

    scorer = types.SimpleNamespace(metric=metric, scorer=lambda **_: lambda make: make)
    monkeypatch.setitem(sys.modules, "inspect_ai", types.ModuleType("inspect_ai"))
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", scorer)
    measure = importlib.import_module(INSPECT).answer_diversity(**OPTIONS, order=2)
    assert seen[1:] == [OPTIONS | {"order": 2}]  # The first is the scorer's.
    space = types.SimpleNamespace
    scores = [
        space(sample_id=name, score=space(answer=answer, metadata=None))
        for name, answer in [*ROWS, ("q", None), (None, "lost")]
    ]
    assert measure(scores) == measure(scores) == flat  # It is called while samples come in.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "left out are 2 of 11 rows: no prompt or no answer" in caplog.text
    assert all(map(math.isnan, measure(scores[:1]).values()))
    assert "Ask for more answers to each prompt: epochs=10" in caplog.text
    with pytest.raises(ValueError, match="bandwidth"):
        importlib.import_module(INSPECT).answer_diversity(**OPTIONS | {"bandwidth": 0})


@pytest.mark.filterwarnings("ignore")  # Those of Inspect's own dependencies.
@pytest.mark.parametrize("epochs", [1, 3])
def test_inspect_evaluates_it(tmp_path, epochs):
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    from inspect_ai import dataset, model, scorer

    metric = importlib.import_module(INSPECT).answer_diversity(**OPTIONS)

    @scorer.scorer(metrics=[scorer.mean(), metric])
    def said():
        async def score(state, target):
            return scorer.Score(value=1, answer=state.output.completion)

        return score

    def outputs():
        for _, text in itertools.cycle(ROWS):
            output = model.ModelOutput.from_content("mockllm/model", text)
            output.usage = model.ModelUsage()
            yield output

    def given(persona):
        return [model.ChatMessageSystem(content=persona), model.ChatMessageUser(content="q?")]

    # The second and the third sample have one input.
    samples = [dataset.Sample(input=given("be"), id="q")]
    samples += [dataset.Sample(input=given("act"), id=name) for name in ("7", "r")]
    task = inspect_ai.Task(dataset=samples, scorer=said())
    (log,) = inspect_ai.eval(
        task,
        model=model.get_model("mockllm/model", custom_outputs=outputs()),
        **{"epochs": epochs, "max_samples": 1, "display": "none", "log_dir": str(tmp_path)},
    )
    gc.collect()  # What it left open warns here, where that is ignored.
    assert log.status == "success"
    found = log.results.scores[-1].metrics["answer_diversity"]
    assert found.params["bandwidth"] == WIDTH
    if epochs == 1:
        assert math.isnan(found.value)
        return
    answers = {}
    for sample in log.samples:
        answers.setdefault(sample.id, []).append(sample.output.completion)
    assert found.value == pytest.approx(harmonic(answers.values()), rel=1e-4)
    # The reader of logs sees the same prompts and answers, also in a log written as JSON.
    inspect_ai.log.write_eval_log(log, str(tmp_path / "log.json"))
    for path in (log.location, tmp_path / "log.json"):
        records = cv.read_records(path)
        ((prompts, texts),) = zip(records.prompts.values(), records.answers.values(), strict=True)
        assert "system: be\n\nuser: q?" in prompts
        by_prompt = {prompt: [] for prompt in prompts}
        for prompt, text in zip(prompts, texts, strict=True):
            by_prompt[prompt].append(text)
        assert harmonic(by_prompt.values()) == pytest.approx(found.value, rel=1e-4)


def test_evaluators_of_plain_calls(flat):
    """Of LangSmith and Langfuse, whose evaluators need no class."""
    named = {name: x if math.isfinite(x) else None for name, x in flat.items()}
    known = types.SimpleNamespace
    runs = [known(outputs={"answer": answer}) for _, answer in ROWS] + [known(outputs=None)]
    examples = [known(inputs={"q": prompt}) for prompt, _ in ROWS] + [known(inputs={"q": "q"})]
    found = langsmith_evaluator(**OPTIONS)(runs, examples)["results"]
    assert {one["key"]: one["score"] for one in found} == named
    items = [known(item={"input": prompt}, output=answer) for prompt, answer in ROWS]
    items[0].item = known(input=ROWS[0][0])  # Of a data set on the server.
    found = langfuse_evaluator(**OPTIONS)(item_results=items, unused=1)
    assert named["answer_diversity_high"] is None  # Langfuse takes numbers alone.
    del named["answer_diversity_high"]
    assert {one["name"]: one["value"] for one in found} == named


def test_lm_eval_finds_the_metric_by_its_entry_point(fresh, flat, monkeypatch):
    """By its interface as published: the decorators run when the module is imported."""
    registered = {}

    def register(name, what):
        return lambda function: registered.update({name: (what, function)}) or function

    registry = types.SimpleNamespace(
        register_metric=lambda **options: register("metric", options),
        register_aggregation=lambda name: register("aggregation", name),
    )
    for package in ("lm_eval", "lm_eval.api"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    monkeypatch.setitem(sys.modules, "lm_eval.api.registry", registry)
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    points = {}
    for kind in ("metrics", "aggregations"):
        ((name, value),) = project["entry-points"][f"lm_eval.{kind}"].items()
        points[kind] = importlib.metadata.EntryPoint(name, value, f"lm_eval.{kind}").load()
        assert name == "answer_diversity"
    options, metric = registered["metric"]
    assert metric is points["metrics"]
    assert registered["aggregation"] == ("answer_diversity", points["aggregations"])
    assert options["metric"] == options["aggregation"] == "answer_diversity"
    assert options["higher_is_better"] and options["output_type"] == "generate_until"
    items = [metric(references=[""], predictions=[texts], **OPTIONS) for texts in ANSWERS.values()]
    found = points["aggregations"](items)
    assert found == pytest.approx(flat["answer_diversity"], rel=1e-6)
    assert math.isnan(points["aggregations"]([metric([""], ["one"], **OPTIONS)]))
    with pytest.raises(ValueError, match="one target for each document"):
        points["aggregations"]([1.0])


@pytest.mark.parametrize("tool", ["inspect_ai", "pydantic_evals", "weave", "lm_eval"])
def test_an_adapter_without_its_package_names_the_extra(fresh, tool, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer" if tool == "inspect_ai" else tool, None)
    extra = "records" if tool == "inspect_ai" else tool.replace("_", "-")
    with pytest.raises(ValueError, match=rf"pip install -e '.\[{extra}\]'"):
        importlib.import_module(f"condvendi_jax.integrations.{tool}")


def test_the_page_shows_what_the_files_run():
    page = (TESTS.parent / "docs/integrations.md").read_text().partition("## TRL")[0]
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    run_there = ("# your_scorer.py", "score_run(")  # By tests/test_documentation.py.
    shown = [block for block in shown if not any(words in block for words in run_there)]
    files = [path.read_text() for path in TOOLS.glob("*.py")]
    assert len(shown) == len(PACKAGES)
    assert [block for block in shown if not any(block in text for text in files)] == []
    lines = (TOOLS / "diversity.yaml").read_text().splitlines(keepends=True)
    assert "\n\n" + "".join(f"    {line}" for line in lines) + "\n" in page


def run(*arguments, folder):
    paths = [str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(folder)}
    options = {"cwd": folder, "env": os.environ | environment, "capture_output": True, "text": True}
    result = subprocess.run([sys.executable, *arguments], timeout=600, **options)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def expected(width):
    """The score of ten answers to each question."""
    spec = importlib.util.spec_from_file_location("gifts", TOOLS / "gifts.py")
    gifts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gifts)
    answers = [[gifts.ask(question) for _ in range(10)] for question in gifts.questions]
    return harmonic(answers, width)


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_each_tool_has_the_score_of_all_answers(package, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    name = "inspect_run.py" if package == "inspect_ai" else f"{package}_run.py"
    scores = json.loads(run(TOOLS / "offline.py", name, folder=tmp_path).splitlines()[-1])
    value = scores["answer_diversity"]
    assert value == pytest.approx(expected(60.0), rel=1e-4)
    if package != "lm_eval":  # Of which a metric is one number.
        assert scores["answer_diversity_stderr"] > 0
        assert 1 <= scores["answer_diversity_low"] < value < scores["answer_diversity_high"]
    if package == "inspect_ai" and list(importlib.metadata.entry_points(group="inspect_ai")):
        (log,) = tmp_path.glob("*.eval")
        options = ["-S", "bandwidth=40", "-S", "encoder=fake_encoders:Means"]
        options += ["--scorer", SCORER, "--action=append", "--output-file=scored.eval"]
        run("-m", "inspect_ai", "score", log, *options, folder=tmp_path)
        dumped = run("-m", "inspect_ai", "log", "dump", "scored.eval", folder=tmp_path)
        both = json.loads(dumped)["results"]["scores"]
        found = [one["metrics"]["answer_diversity"]["value"] for one in both]
        assert found == pytest.approx([expected(60.0), expected(40.0)], rel=1e-4)
