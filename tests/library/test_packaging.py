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
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert cited[1] == condvendi_jax.__version__
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{condvendi_jax.__version__}"' in source.read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] == condvendi_jax.__version__


def test_what_is_imported_later_is_there_and_was_not_before():
    lines = """
        import sys, condvendi_jax as cv
        later = {f"condvendi_jax.{name}" for name in cv._NAMES}
        assert not {*later, "jax", "numpy"} & {*sys.modules}
        from condvendi_jax import *
        assert later <= {*sys.modules}
        assert {name for names in cv._NAMES.values() for name in names} <= {*cv.__all__} <= {*dir()}
        assert {*cv.__all__} <= {*dir(cv)}
        assert cv.compare.__module__ == cv.inference._compare.__name__ == "condvendi_jax.comparison"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(lines)], check=True)
    modules = "import condvendi_jax as cv; cv.kernels.Gaussian, cv.entropies.log_scores"
    subprocess.run([sys.executable, "-c", modules], check=True)
    assert all(getattr(condvendi_jax, name) is not None for name in condvendi_jax.__all__)
    with pytest.raises(AttributeError, match="'condvendi_jax' has no attribute 'decomposed'"):
        condvendi_jax.decomposed  # noqa: B018 - asking for it is what is tested.


def test_type_checkers_see_the_public_names():
    tree = ast.parse(pathlib.Path(condvendi_jax.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in block.body for alias in node.names}
    assert seen == {*condvendi_jax.__all__}


def test_the_library_alone_is_packaged_with_its_types():
    build = PROJECT["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["condvendi_jax"]
    assert build["dev-mode-dirs"] == ["."]
    assert (ROOT / "condvendi_jax" / "py.typed").exists()


def test_a_wheel_holds_nothing_but_the_library(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel")
    (built,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = set(wheel.namelist())
    version = condvendi_jax.__version__
    assert {name.split("/")[0] for name in names} == {
        "condvendi_jax",
        f"condvendi_jax-{version}.dist-info",
    }
    assert {"condvendi_jax/py.typed", "condvendi_jax/__init__.py"} <= names
