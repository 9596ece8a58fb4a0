"""What every test runs under: strict promotion, a choice of precision, one compilation cache."""

import os
import shutil
import tempfile

# Compiling takes most of the time of small tests: the workers and the commands they start share
# what one of them compiled. Set before JAX is imported, in the process that starts the workers.
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_OWNED_CACHE = None if _CACHE in os.environ else tempfile.mkdtemp(prefix="compiled-")
if _OWNED_CACHE:
    os.environ[_CACHE] = _OWNED_CACHE
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import jax  # noqa: E402 - after the cache's folder is set.
import numpy as np  # noqa: E402 - after the cache's folder is set.
import precision  # noqa: E402 - after the cache's folder is set.
import pytest  # noqa: E402 - after the cache's folder is set.

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_unconfigure():
    """Removes the compilation cache, at the end of the process that made it."""
    if _OWNED_CACHE:
        shutil.rmtree(_OWNED_CACHE, ignore_errors=True)


@pytest.fixture
def x64():
    """One test in float64."""
    with precision.x64(True):
        yield


@pytest.fixture(scope="module")
def module_in_x64():
    """A whole module in float64: hypothesis calls one test many times."""
    with precision.x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """A test in both precisions; gives the dtype its data should have."""
    with precision.x64(request.param == "float64"):
        yield np.dtype(request.param)
