"""What an installation holds: one version, a command, the library alone."""

import ast
import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile

import pytest

import condvendi_jax

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_there_is_one_version():
    for name, pattern in (("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\S+)")):
        found = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        assert found and found[1] == condvendi_jax.__version__
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{condvendi_jax.__version__}"' in source.read_text()


def _python(program):
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_a_public_name_is_imported_when_it_is_used():
    _python("""
        import sys, condvendi_jax as cv
        assert not {"jax", "numpy", "condvendi_jax.data.kernels"} & {*sys.modules}
        assert {*cv.__all__} <= {*dir(cv)}
        assert cv.scores.vendi is cv.vendi
        assert not {"condvendi_jax.inference", "condvendi_jax.guidance"} & {*sys.modules}
        from condvendi_jax import *
        assert {*cv.__all__} <= {*dir()}
    """)
    with pytest.raises(AttributeError, match="No condvendi_jax attribute decomposed"):
        condvendi_jax.decomposed  # noqa: B018 - asking for it is what is tested.


def test_public_names_need_no_heavy_package():
    _python("""
        import sys, condvendi_jax as cv
        for name in cv.__all__:
            assert getattr(cv, name) is not None
        import condvendi_jax.records.items, condvendi_jax.encoders.embedding
        heavy = {"matplotlib", "sklearn", "scipy.stats", "rich", "safetensors", "PIL"}
        heavy |= {"tokenizers", "experiments"}
        assert not heavy & {*sys.modules}, heavy & {*sys.modules}
    """)


def test_the_stub_lists_the_public_names_once():
    tree = ast.parse((ROOT / "condvendi_jax" / "__init__.pyi").read_text())
    names = [a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert sorted(names) == condvendi_jax.__all__
    assert len(set(names)) == len(names)


def test_extras_that_errors_name_exist():
    extras = PROJECT["project"]["optional-dependencies"]
    for path in (ROOT / "condvendi_jax").rglob("*.py"):
        assert {*re.findall(r"extras\.needed\(\s*\"([\w-]+)", path.read_text())} <= {*extras}


def test_a_wheel_holds_nothing_but_the_library(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel")
    (built,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = set(wheel.namelist())
    metadata = f"condvendi_jax-{condvendi_jax.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"condvendi_jax", metadata}
    # The public names are read from the stub, at run time too.
    marks = ("py.typed", "__init__.py", "__init__.pyi")
    marks += tuple(f"report/page.{kind}" for kind in ("html", "css", "js"))
    assert {f"condvendi_jax/{name}" for name in marks} <= names
    (target,) = PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]
    assert target == "."  # An editable install reads the same folder.
