"""What every test runs under: strict promotion, one compilation cache, bounded memory."""

import ctypes
import gc
import os
import shutil
import signal
import tempfile
import threading

# Started with SIGINT ignored (nohup, `&` in a script), Python would leave it so, and what the tests
# start would inherit that: nothing could be interrupted.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling takes most of the time of small tests: the workers and the commands they start share
# what one of them compiled. Set before JAX is imported, in the process that starts the workers.
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_OWNED_CACHE = None if _CACHE in os.environ else tempfile.mkdtemp(prefix="compiled-")
if _OWNED_CACHE:
    os.environ[_CACHE] = _OWNED_CACHE
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"

# There is a worker a core: libraries that start a thread a core in each wait for each other.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import jax  # noqa: E402 - after the cache's folder is set.
import numpy as np  # noqa: E402 - after the cache's folder is set.
import precision  # noqa: E402 - after the cache's folder is set.
import pytest  # noqa: E402 - after the cache's folder is set.

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compiled programs are never forgotten by themselves, and a worker grows to gigabytes with them.
_RESIDENT_LIMIT = 1000 * 2**20
_STATM = "/proc/self/statm"


def pytest_unconfigure():
    """Removes the compilation cache, at the end of the process that made it."""
    if _OWNED_CACHE:
        shutil.rmtree(_OWNED_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def bounded_memory():
    """Forgets compiled programs after a test that left the process large, where that is known."""
    yield
    if not os.path.exists(_STATM):
        return
    with open(_STATM) as stream:
        resident = int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resident > _RESIDENT_LIMIT:
        jax.clear_caches()
        gc.collect()
        # glibc keeps what was freed unless it is asked; other libraries have no such call.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim:
            trim(0)


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
