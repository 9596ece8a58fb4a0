"""Evaluation tools: the files of tests/tools run with their packages, and the page shows them."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from importlib import metadata

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram

TESTS = pathlib.Path(__file__).parents[1]
TOOLS = TESTS / "tools"
PACKAGES = ("inspect_ai", "pydantic_evals", "langsmith", "langfuse", "weave", "lm_eval")
SCORER = "condvendi_jax/answer_diversity"


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
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "XDG_CACHE_HOME": str(folder),
    }
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    result = subprocess.run([sys.executable, *arguments], timeout=600, **options)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def expected(width):
    """The harmonic mean of the effective numbers of ten answers to each question, in float64."""
    spec = importlib.util.spec_from_file_location("gifts", TOOLS / "gifts.py")
    gifts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gifts)
    values = []
    for question in gifts.questions:
        rows = fake_encoders.Means().encode([gifts.ask(question) for _ in range(10)])
        squares = gaussian_gram(rows, width) ** 2
        values.append((squares.sum() - 10) / 90)
    return 1 / np.mean(values)


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
    if package == "inspect_ai" and list(metadata.entry_points(group="inspect_ai")):
        (log,) = tmp_path.glob("*.eval")
        options = ["-S", "bandwidth=40", "-S", "encoder=fake_encoders:Means"]
        options += ["--scorer", SCORER, "--action=append", "--output-file=scored.eval"]
        run("-m", "inspect_ai", "score", log, *options, folder=tmp_path)
        dumped = run("-m", "inspect_ai", "log", "dump", "scored.eval", folder=tmp_path)
        both = json.loads(dumped)["results"]["scores"]
        found = [one["metrics"]["answer_diversity"]["value"] for one in both]
        assert found == pytest.approx([expected(60.0), expected(40.0)], rel=1e-4)
