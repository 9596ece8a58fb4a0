"""What the library shows: names, types, examples that run."""

import doctest
import importlib
import inspect
import pkgutil

import jax
import pytest

import condvendi_jax as cv

MODULES = [
    module.name
    for module in pkgutil.walk_packages(cv.__path__, "condvendi_jax.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = doctest.testmod(module)
    assert found.failed == 0


def test_every_function_of_the_surface_has_an_example():
    without = [
        name
        for name in cv.__all__
        if inspect.isfunction(getattr(cv, name))
        and ">>>" not in (inspect.getdoc(getattr(cv, name)) or "")
    ]
    assert without == []


def test_the_surface_is_what_it_says():
    assert sorted(cv.__all__) == list(cv.__all__)
    assert len(set(cv.__all__)) == len(cv.__all__)
    for name in cv.__all__:
        assert inspect.getdoc(getattr(cv, name)), name


def test_every_type_that_a_call_returns_is_at_hand():
    """By the annotations of the functions of the surface."""
    here = {getattr(cv, name) for name in cv.__all__ if inspect.isclass(getattr(cv, name))}
    for name in cv.__all__:
        function = getattr(cv, name)
        if not inspect.isfunction(function):
            continue
        returned = inspect.get_annotations(function, eval_str=False)["return"]
        for word in returned.replace("[", " ").replace("]", " ").replace("|", " ").split():
            known = word in {"jax.Array", "float", "int", "None", "Any", "list", "tuple"}
            assert known or getattr(cv, word, None) in here, (name, word)
