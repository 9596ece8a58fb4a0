"""What the library shows: names, types, examples that run."""

import doctest
import importlib
import inspect
import itertools
import pkgutil
import typing

import jax
import pytest

import condvendi_jax as cv

NAMES = [module.name for module in pkgutil.walk_packages(cv.__path__, "condvendi_jax.")]
MODULES = [name for name in NAMES if not name.endswith("__main__")]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = pytest.importorskip(name, reason=f"{name}: a package is not installed")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = doctest.testmod(module)
    assert found.failed == 0


NAMESPACES = [cv, *(value for name in cv.__all__ if inspect.ismodule(value := getattr(cv, name)))]


def _exported(package):
    """Without `__all__`, what a module defines under a name without an underscore."""
    own = [
        name
        for name, value in vars(package).items()
        if name[0] != "_" and getattr(value, "__module__", None) == package.__name__
    ]
    return getattr(package, "__all__", own)


def _home(value):
    """The public module of what a private one defines."""
    parts = (getattr(value, "__module__", None) or "").split(".")
    return ".".join(itertools.takewhile(lambda part: not part.startswith("_"), parts))


FUNCTIONS = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in NAMESPACES
    for name in _exported(package)
    if inspect.isfunction(getattr(package, name))
}


def test_every_function_of_the_surface_has_an_example():
    assert sorted(set(cv.__all__)) == list(cv.__all__)
    for name in {f"{cv.__name__}.{name}" for name in cv.__all__} & set(FUNCTIONS):
        assert ">>>" in (inspect.getdoc(FUNCTIONS[name]) or ""), name


@pytest.mark.parametrize("package", NAMESPACES, ids=lambda package: package.__name__)
def test_names_stand_once_and_are_documented(package):
    names = list(_exported(package))
    assert len(set(names)) == len(names)
    for value in (getattr(package, name) for name in names):
        if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value):
            assert inspect.getdoc(value), value


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
            homes = {name.rpartition(".")[0], _home(function), _home(returned)}
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
