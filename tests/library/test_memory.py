"""Where memory ends: the device, the machine, the container, the process; and what is said then."""

import contextlib
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.base import memory


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        # A group is limited by all above it.
        ("0::/user/app\n", {"user/app/memory.max": "1000\n", "user/memory.max": "5000"}, 1000),
        ("0::/user/app\n", {"user/app/memory.max": "9000\n", "user/memory.max": "5000"}, 5000),
        ("0::/user/app\n", {"user/app/memory.max": "max\n", "memory.max": "7000"}, 7000),
        ("0::/user/app\n", {"user/app/memory.max": "max\n"}, None),
        ("0::/user/app\n", {"user/app/memory.max": f"{2**62}\n"}, None),
        ("0::/user/app\n", {"other/memory.max": "1000\n"}, None),
        # Inside a container its own group is the top.
        ("0::/\n", {"memory.max": "4096\n"}, 4096),
        ("0::/../..\n", {"memory.max": "4096\n"}, 4096),
        ("0::/system.slice/docker-0123.scope\n", {"memory.max": "4096\n"}, 4096),
        ("4:memory:/docker\n0::/docker\n", {"docker/memory.max": "3000\n"}, 3000),
        ("\nnonsense\n", {}, None),
        (None, {}, None),
    ],
)
def test_the_least_limit_of_the_control_groups_is_found(tmp_path, groups, limits, expected):
    files = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in ({"proc/self/cgroup": groups} | files).items():
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    assert memory.container_limit(tmp_path) == expected


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_limits_of_the_process_are_kept(name):
    pytest.importorskip("resource")
    program = f"""
import resource
import condvendi_jax as cv
from condvendi_jax.base import memory
before = memory.limit()
_, hard = resource.getrlimit(resource.{name})
resource.setrlimit(resource.{name}, (before - 4096, hard))
assert memory.process_limit() == before - 4096, memory.process_limit()
print(before - memory.limit())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "4096\n"), done.stderr


@pytest.mark.parametrize("least", ["machine_memory", "container_limit", "process_limit"])
def test_the_least_limit_counts(monkeypatch, least):
    for name in ("machine_memory", "container_limit", "process_limit"):
        monkeypatch.setattr(memory, name, lambda value=500 if name == least else 600: value)
    assert memory.limit() == 500
    monkeypatch.setattr(memory, least, lambda: None)
    assert memory.limit() == 600


def test_a_device_that_reports_its_memory_is_believed(monkeypatch):
    device = types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": 123})
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert memory.limit() == 123
    device.memory_stats = lambda: {"bytes_in_use": 123}
    assert memory.limit() > 1000


def test_what_fits_is_a_matter_of_bytes(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: 4 * 100 * 100 * 4)
    assert not memory.fits(101, np.float32)
    assert memory.fits(100, np.float64, share=0.5)
    memory.check(100, np.float32)
    with pytest.raises(ValueError, match=r"n = 100 points need about .* GiB of float64 and there"):
        memory.check(100, np.float64)
    memory.check_cross(100, 133, np.float32)
    with pytest.raises(ValueError, match=r"100 x 134 cross Gram need about .* GiB of float32"):
        memory.check_cross(100, 134, np.float32)
    for size, says in ((40 * 2**30, "40 GiB"), (2**29, "0.5 GiB"), (3 * 2**29, "1.5 GiB")):
        monkeypatch.setattr(memory, "limit", lambda size=size: size)
        with pytest.raises(ValueError, match=f"there are {says}"):
            memory.check(10**6, np.float32)


OTHER = "INTERNAL: something else"
EXHAUSTED = r"Memory ran out.*n = {n} points need about .* GiB of float32.*cv.Auto.*order 2"
SOLVER = "INTERNAL: operation cusolverDnXsyevd_bufferSize(...) failed: cuSolver invalid value error"


@pytest.mark.parametrize(
    ("n", "error", "says"),
    [
        (50_000, "RESOURCE_EXHAUSTED: while allocating 40000000000 bytes.", EXHAUSTED),
        (50_000, "INTERNAL: Out of memory allocating 40000000000 bytes.", EXHAUSTED),
        (50_000, MemoryError(), EXHAUSTED),
        (25_000, SOLVER, r"cuSOLVER refused .* n = {n}.*method=cv.Auto\(key=...\)"),
        # A refusal of a matrix that is not large has another cause.
        (10, SOLVER, None),
        (10, OTHER, None),
    ],
)
def test_a_failure_of_large_arrays_is_explained_and_another_left_alone(n, error, says):
    error = jax.errors.JaxRuntimeError(error) if isinstance(error, str) else error
    expected, says = (ValueError, says.format(n=n)) if says else (type(error), None)
    with pytest.raises(expected, match=says) as caught, memory.explained(n, np.float32):
        raise error
    assert error in (caught.value, caught.value.__cause__)


def test_random_features_that_do_not_fit_are_refused(monkeypatch):
    """By their covariances, whatever the number of points."""
    points, method = np.ones((10, 2), np.float32), cv.RandomFeatures(jax.random.key(0), count=64)
    options = {"kernel": cv.Gaussian(1.0), "order": 1, "method": method}
    for entries, refused in ((7 * 128**2, True), (9 * 128**2, False)):
        monkeypatch.setattr(memory, "limit", lambda entries=entries: 4 * entries)
        says = r"count = 64 random .* n = 10 .* GiB .* there are .* fewer frequencies, with count="
        with pytest.raises(ValueError, match=says) if refused else contextlib.nullcontext():
            cv.vendi(points, **options)
