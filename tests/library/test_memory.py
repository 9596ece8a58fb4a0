"""Where memory ends: the device, the machine, the container, the process; and what is said then."""

import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.grams import _memory as memory

UNLIMITED_V1 = "9223372036854771712\n"


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"user/app/": "1000\n", "user/": "5000\n"}, 1000),
        ({"user/app/": "9000\n", "user/": "5000\n"}, 5000),
        ({"user/app/": "max\n", "user/": "max\n", "": "7000\n"}, 7000),
        ({"user/app/": "max\n"}, None),
        ({"user/app/": f"{2**62}\n"}, None),
        ({"other/": "1000\n"}, None),
        ({}, None),
    ],
)
def test_a_control_group_is_limited_by_all_above_it(tmp_path, limits, expected):
    files = {f"sys/fs/cgroup/{folder}memory.max": text for folder, text in limits.items()}
    root = tree(tmp_path, {"proc/self/cgroup": "0::/user/app\n"} | files)
    assert memory.container_limit(root) == expected


@pytest.mark.parametrize("group", ["/", "/../..", "/system.slice/docker-0123.scope"])
def test_inside_a_container_its_own_group_is_the_top(tmp_path, group):
    files = {"proc/self/cgroup": f"0::{group}\n", "sys/fs/cgroup/memory.max": "4096\n"}
    assert memory.container_limit(tree(tmp_path, files)) == 4096


@pytest.mark.parametrize(
    ("own", "top", "expected"),
    [
        ("3000\n", UNLIMITED_V1, 3000),
        (UNLIMITED_V1, UNLIMITED_V1, None),
        (None, "2000\n", 2000),
        ("3000\n", "2000\n", 2000),
    ],
)
def test_control_groups_of_version_one(tmp_path, own, top, expected):
    groups = "12:cpu,cpuacct:/elsewhere\n4:memory:/docker/0123\n1:name=systemd:/docker/0123\n0::/\n"
    files = {
        "proc/self/cgroup": groups,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": top,
        # The group of another controller says nothing of memory.
        "sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes": "10\n",
    }
    if own:
        files["sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes"] = own
    assert memory.container_limit(tree(tmp_path, files)) == expected


def test_a_system_without_control_groups_has_no_limit(tmp_path):
    assert memory.container_limit(tmp_path) is None
    assert memory.container_limit(tree(tmp_path, {"proc/self/cgroup": "\nnonsense\n"})) is None


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_limits_of_the_process_are_kept(name):
    pytest.importorskip("resource")
    program = f"""
import resource
import condvendi_jax as cv
from condvendi_jax.grams import _memory as memory
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
    assert memory.fits(100, np.float32)
    assert not memory.fits(101, np.float32)
    assert not memory.fits(100, np.float64)
    assert memory.fits(100, np.float64, share=0.5)
    memory.check(100, np.float32)
    with pytest.raises(ValueError, match=r"n = 100 points need about .* GiB of float64 and there"):
        memory.check(100, np.float64)
    memory.check_cross(100, 133, np.float32)
    with pytest.raises(ValueError, match=r"100 x 134 cross Gram need about .* GiB of float32"):
        memory.check_cross(100, 134, np.float32)


@pytest.mark.parametrize(
    ("size", "says"), [(40 * 2**30, "40 GiB"), (2**29, "0.5 GiB"), (3 * 2**29, "1.5 GiB")]
)
def test_sizes_are_said_in_gibibytes(monkeypatch, size, says):
    monkeypatch.setattr(memory, "limit", lambda: size)
    with pytest.raises(ValueError, match=f"there are {says}"):
        memory.check(10**6, np.float32)


@pytest.mark.parametrize(
    "error",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: while allocating 40000000000 bytes."),
        jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 40000000000 bytes."),
        MemoryError(),
    ],
)
def test_a_failed_allocation_is_explained(error):
    says = r"Memory ran out.*n = 50000 points need about 37 GiB of float32.*cv.Auto.*order 2"
    with pytest.raises(ValueError, match=says) as caught, memory.explained(50_000, np.float32):
        raise error
    assert caught.value.__cause__ is error


_REFUSED = (
    "INTERNAL: operation cusolverDnXsyevd_bufferSize(...) failed: cuSolver invalid value error"
)


def test_a_refusal_of_an_accelerators_eigensolver_is_explained():
    error = jax.errors.JaxRuntimeError(_REFUSED)
    says = r"cuSOLVER refused .* n = 25000.*method=cv.Auto\(key=...\)"
    with pytest.raises(ValueError, match=says) as caught, memory.explained(25_000, np.float32):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("text", ["INTERNAL: something else", _REFUSED])
def test_another_failure_is_left_alone(text):
    """A refusal of a matrix that is not large has another cause."""
    error = jax.errors.JaxRuntimeError(text)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught, memory.explained(10, np.float32):
        raise error
    assert caught.value is error
    with memory.explained(10, np.float32):
        pass


def test_random_features_that_do_not_fit_are_refused(monkeypatch):
    """With few points by their own n x n arrays, whatever the count; else by the covariances."""
    few, many = np.ones((10, 2), np.float32), np.ones((100, 2), np.float32)
    options = {"kernel": cv.Gaussian(1.0), "order": 1}
    method = cv.RandomFeatures(jax.random.key(0), count=64)
    monkeypatch.setattr(memory, "limit", lambda: 4 * 7 * 128**2)
    with pytest.raises(ValueError, match=r"count = 64 random .* n = 100 .* GiB .* and there are"):
        cv.vendi(many, **options, method=method)
    monkeypatch.setattr(memory, "limit", lambda: 4 * (12 * 10**2 + 64 * (10 + 2 * 2)))
    cv.vendi(few, **options, method=method)
    monkeypatch.setattr(memory, "limit", lambda: 4 * 12 * 10**2)
    with pytest.raises(ValueError, match="Give fewer frequencies, with count="):
        cv.vendi(few, **options, method=method)
