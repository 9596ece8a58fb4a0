"""What every test runs under: strict promotion, one compilation cache, bounded memory."""

import ctypes
import gc
import json
import os
import pathlib
import shutil
import signal
import threading
from importlib import metadata

# Started with SIGINT ignored (nohup, `&` in a script), Python would leave it so, and what the tests
# start would inherit that: nothing could be interrupted.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling takes most of the time of small tests. It leaves out the optimisations that make large
# programs fast. JAX_DISABLE_MOST_OPTIMIZATIONS=0 with XLA_FLAGS= tests the programs that users run.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Every core has a worker: compiling in parts, for several threads, is work for nothing. XLA's older
# way to write loops for CPUs compiles twice as fast. XLA refuses flags that it does not know, and
# versions to come may not know these.
if metadata.version("jaxlib").startswith(("0.8.", "0.9.", "0.10.")):
    flags = "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", flags)
# A program need not say which lines of Python each of its operations came from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# All workers, the commands that they start and later runs share what one of them compiled. Set
# before JAX is imported.
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_CACHE_LIMIT = 2**30
_folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
_OWN_CACHE = _folder / "condvendi_jax" / "compiled-by-tests"
if _CACHE not in os.environ:
    os.environ[_CACHE] = str(_OWN_CACHE)
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

# Tracing makes many small objects that live on: look through them for cycles less often.
gc.freeze()
gc.set_threshold(50_000, 10, 10)

# Compiled programs are never forgotten by themselves, and a worker grows to gigabytes with them. It
# may take this much, and all workers together half of the memory.
_RESIDENT_LIMIT = 5000 * 2**20
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_STATM = "/proc/self/statm"


def pytest_configure(config):
    """Bounds the tests' own cache of programs; the process that started a worker has done so."""
    size = sum(path.stat().st_size for path in _OWN_CACHE.glob("*"))
    if not hasattr(config, "workerinput") and size > _CACHE_LIMIT:
        shutil.rmtree(_OWN_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def bounded_memory():
    """Forgets compiled programs after a test that left the process large, where that is known."""
    yield
    if not os.path.exists(_STATM):
        return
    with open(_STATM) as stream:
        resident = int(stream.read().split()[1])
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    if resident > min(_RESIDENT_LIMIT / page, pages / 2 / _WORKERS):
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


@pytest.fixture
def run_command(capfd):
    """Runs a command in this process; gives its report, and what it printed."""
    from condvendi_jax.cli import __main__

    before = jax.config.jax_enable_x64

    def run(*arguments):
        __main__.main(["condvendi", *arguments, "--verbose", "--json=report.json", "--overwrite"])
        out, err = capfd.readouterr()
        progress = (" so far", " left")  # Of a slow machine.
        lines = [line for line in err.splitlines() if not line.endswith(progress)]
        assert all(line.startswith("WARNING: ") for line in lines), err
        return json.loads(pathlib.Path("report.json").read_text()), out

    yield run
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def optax_promotes():
    """Standard promotion, for a training: Adam takes a power of the float b1 and a whole number."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def module_in_x64():
    """A whole module in float64: hypothesis calls one test many times."""
    with precision.x64(True):
        yield


@pytest.fixture(params=["float32", pytest.param("float64", marks=pytest.mark.slow)])
def dtype(request):
    """A test in both precisions, the second of them slow; gives the dtype its data should have."""
    with precision.x64(request.param == "float64"):
        yield np.dtype(request.param)
