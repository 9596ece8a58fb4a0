"""What the library shows and installs: names, types, examples that run, one version."""

import ast
import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
import typing
import zipfile

import jax
import pytest

import condvendi_jax as cv

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = [module.name for module in pkgutil.walk_packages(cv.__path__, "condvendi_jax.")]
NAMESPACES = [cv, *(value for name in cv.__all__ if inspect.ismodule(value := getattr(cv, name)))]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("__main__")])
def test_examples_in_docstrings_run(name):
    module = pytest.importorskip(name, reason=f"{name}: a package is not installed")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = doctest.testmod(module)
    assert found.failed == 0


def _exported(package):
    """Without `__all__`, what a module defines under a name without an underscore."""
    own = [
        name
        for name, value in vars(package).items()
        if name[0] != "_" and getattr(value, "__module__", None) == package.__name__
    ]
    return getattr(package, "__all__", own)


FUNCTIONS = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in NAMESPACES
    for name in _exported(package)
    if inspect.isfunction(getattr(package, name))
}


def test_public_names_stand_once_and_are_documented_with_an_example():
    for package in NAMESPACES:
        names = list(_exported(package))
        assert len(set(names)) == len(names)
        for value in (getattr(package, name) for name in names):
            if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value):
                assert inspect.getdoc(value), value
    for name in {f"condvendi_jax.{name}" for name in cv.__all__} & set(FUNCTIONS):
        assert ">>>" in (inspect.getdoc(FUNCTIONS[name]) or ""), name
    tree = ast.parse((ROOT / "condvendi_jax" / "__init__.pyi").read_text())
    listed = [a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert sorted(listed) == list(cv.__all__)


def _classes(annotation):
    if inspect.isclass(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _classes(argument)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_that_a_call_returns_are_exported(name):
    """Beside the function, by the package that defines it, or by the one that defines the type."""
    function = FUNCTIONS[name]
    for returned in _classes(typing.get_type_hints(function)["return"]):
        if returned.__module__.split(".")[0] == "condvendi_jax":
            homes = {name.rpartition(".")[0], function.__module__, returned.__module__}
            exported = {word for home in homes for word in _exported(importlib.import_module(home))}
            assert returned.__name__ in exported, returned


ARRAYS = ("outputs", "prompts", "output_kernel", "prompt_kernel", "prompt_ids", "weights")
OF_PAIRS = {  # Deletions need `Pairs`.
    name: own
    for name, function in FUNCTIONS.items()
    if not name.endswith("delete_groups")
    and [*(own := inspect.signature(inspect.unwrap(function)).parameters)][:1] == ["pairs"]
}


@pytest.mark.parametrize("name", OF_PAIRS)
def test_signatures_show_what_makes_pairs(name):
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    assert [*parameters][:2] == ["outputs", "prompts"]
    assert {*ARRAYS, "mesh", "kernel"} <= {*parameters} and "pairs" not in parameters
    assert {*OF_PAIRS[name]} - {"pairs"} <= {*parameters}


def test_there_is_one_version():
    for name, pattern in (("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\S+)")):
        found = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        assert found and found[1] == cv.__version__
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{cv.__version__}"' in source.read_text()


def test_a_public_name_is_imported_when_it_is_used_and_needs_no_heavy_package():
    program = """
        import sys, condvendi_jax as cv
        assert not {"jax", "numpy", "condvendi_jax.data.kernels"} & {*sys.modules}
        assert {*cv.__all__} <= {*dir(cv)}
        assert cv.scores.vendi is cv.vendi
        assert not {"condvendi_jax.inference", "condvendi_jax.guidance"} & {*sys.modules}
        from condvendi_jax import *
        assert {*cv.__all__} <= {*dir()}
        import condvendi_jax.records.items, condvendi_jax.encoders.embedding
        heavy = {"matplotlib", "sklearn", "scipy.stats", "rich", "safetensors", "PIL"}
        heavy |= {"tokenizers", "experiments"}
        assert not heavy & {*sys.modules}, heavy & {*sys.modules}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
    with pytest.raises(AttributeError, match="No condvendi_jax attribute decomposed"):
        cv.decomposed  # noqa: B018 - asking for it is what is tested.


def test_extras_that_errors_name_exist():
    extras = PROJECT["project"]["optional-dependencies"]
    for path in (ROOT / "condvendi_jax").rglob("*.py"):
        assert {*re.findall(r"extras\.needed\(\s*\"([\w-]+)", path.read_text())} <= {*extras}


def test_a_wheel_holds_nothing_but_the_library(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel")
    (built,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = set(wheel.namelist())
    metadata = f"condvendi_jax-{cv.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"condvendi_jax", metadata}
    # The public names are read from the stub, at run time too.
    marks = ("py.typed", "__init__.py", "__init__.pyi")
    marks += tuple(f"report/page.{kind}" for kind in ("html", "css", "js"))
    assert {f"condvendi_jax/{name}" for name in marks} <= names
    (target,) = PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]
    assert target == "."  # An editable install reads the same folder.
