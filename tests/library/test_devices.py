"""Where memory ends, and what is said then; where points lie on a mesh: blocks and padding."""

import re
import types

import jax
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.base import devices, memory
from condvendi_jax.base.devices import Layout, layout_of, mesh_of


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        # A group is limited by all above it.
        ("0::/user/app\n", {"user/app/memory.max": "1000\n", "user/memory.max": "5000"}, 1000),
        ("0::/user/app\n", {"user/app/memory.max": "max\n", "memory.max": "7000"}, 7000),
        ("0::/user/app\n", {"user/app/memory.max": f"{2**62}\n"}, None),
        # Inside a container its own group is the top.
        ("0::/../..\n", {"memory.max": "4096\n"}, 4096),
        ("4:memory:/docker\n0::/docker\n", {"docker/memory.max": "3000\n"}, 3000),
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


def test_the_least_limit_of_process_container_and_machine_counts(monkeypatch):
    """Unless a device reports its memory, which is believed."""
    limits = {"AS": (5000, -1), "DATA": (3000, -1)}
    known = types.SimpleNamespace(getrlimit=limits.get, RLIMIT_AS="AS", RLIMIT_DATA="DATA")
    monkeypatch.setattr(memory, "resource", known)
    assert memory.process_limit() == 3000
    limits["DATA"] = (-1, -1)  # No limit.
    assert memory.process_limit() == 5000
    device = types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": 123})
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert memory.limit() == 123
    device.memory_stats = lambda: {"bytes_in_use": 123}
    names = ("machine_memory", "container_limit", "process_limit")
    for least in names:
        for name in names:
            monkeypatch.setattr(memory, name, lambda value=500 if name == least else 600: value)
        assert memory.limit() == 500
        monkeypatch.setattr(memory, least, lambda: None)
        assert memory.limit() == 600


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
    monkeypatch.setattr(memory, "limit", lambda: 3 * 2**29)
    with pytest.raises(ValueError, match="there are 1.5 GiB"):
        memory.check(10**6, np.float32)


OTHER = "INTERNAL: something else"
EXHAUSTED = r"Memory ran out.*n = {n} points need about .* GiB of float32.*cv.Auto.*order 2"
REFUSED = r"cuSOLVER refused .* n = {n} .*method=cv.Auto\(key=...\)"
SOLVER = "INTERNAL: operation cusolverDnXsyevd_bufferSize(...) failed: cuSolver invalid value error"


@pytest.mark.parametrize(
    ("n", "error", "says"),
    [
        (50_000, "RESOURCE_EXHAUSTED: while allocating 40000000000 bytes.", EXHAUSTED),
        (50_000, MemoryError(), EXHAUSTED),
        (25_000, SOLVER, REFUSED),
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


# Layouts: blocks of any number on one device; test_sharding.py has several devices.


@pytest.fixture
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))


def of_blocks(mesh, n, count):
    """A layout of as many blocks as are asked for, on one device."""
    return type("Blocks", (Layout,), {"blocks": count})(mesh, "rows", n)


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 24, 25])
def test_every_point_is_inside_exactly_one_block(mesh, n, count):
    layout = of_blocks(mesh, n, count)
    assert layout.rows == layout.blocks * layout.block_rows
    assert n <= layout.rows < n + count
    # Seen in a longer block, as tiles pad it.
    inside = np.array([layout.inside(k, layout.block_rows + 3) for k in range(count)])
    assert not inside[:, layout.block_rows :].any()
    flat = inside[:, : layout.block_rows].ravel()
    assert flat[:n].all()
    assert not flat[n:].any()


def test_points_are_padded_with_the_first_and_vectors_with_zeros(mesh):
    layout = of_blocks(mesh, 5, 4)
    points = np.arange(10, dtype=np.float32).reshape(5, 2) + 1
    sharded, placed = np.asarray(layout.shard(points)), np.asarray(layout.place(points))
    assert sharded.shape == placed.shape == (8, 2)
    np.testing.assert_array_equal(sharded[:5], points)
    np.testing.assert_array_equal(sharded[5:], np.tile(points[:1], (3, 1)))
    np.testing.assert_array_equal(placed[:5], points)
    assert not placed[5:].any()
    np.testing.assert_array_equal(layout.place(points[:, 0]), placed[:, 0])
    for n in (3, 6):
        says = f"layout's n = 5, received shape ({n}, 2)"
        with pytest.raises(ValueError, match=re.escape(says)):
            layout.shard(np.ones((n, 2), np.float32))
    traced = jax.jit(layout.shard)(points)
    np.testing.assert_array_equal(traced, sharded)


def test_arrays_that_are_not_sharded_have_no_mesh(mesh):
    points = jax.numpy.ones((4, 2))
    one = jax.device_put(points, Layout(mesh, "rows", 4).sharding)
    for array in (points, np.ones((4, 2)), one):
        assert mesh_of(array) is None
    assert layout_of(points) is None
    seen = []
    jax.jit(lambda array: seen.append(mesh_of(array)))(points)
    assert seen == [None]


def test_layouts_are_equal_where_the_devices_and_axes_are(mesh):
    types_of_axes = (jax.sharding.AxisType.Explicit,)
    explicit = jax.make_mesh((1,), ("rows",), axis_types=types_of_axes)
    assert layout_of(np.ones((4, 2)), mesh=explicit) == Layout(mesh, ("rows",), 4)
    assert Layout(mesh, "rows", 5) != Layout(mesh, "rows", 4)
    assert hash(Layout(mesh, "rows", 4)) == hash(layout_of(np.ones((4, 2)), mesh=mesh))


def test_what_is_no_layout_or_mesh_is_refused(mesh):
    points = np.ones((4, 2), np.float32)
    with pytest.raises(ValueError, match="expected one or more of the mesh's axes"):
        Layout(mesh, "columns", 4)
    for made in (lambda: Layout(mesh, "rows", 0), lambda: layout_of(3.0, mesh=mesh)):
        with pytest.raises(ValueError, match="at least one point, received 0"):
            made()
    for wrong in ("rows", mesh.abstract_mesh):
        says = "^mesh: expected a jax.sharding.Mesh.*received " + re.escape(repr(wrong))
        with pytest.raises(TypeError, match=says):
            Layout(wrong, "rows", 4)
        with pytest.raises(TypeError, match=says):
            cv.vendi(points, kernel=cv.Gaussian(1.0), mesh=wrong)


def test_several_cpu_devices_run_no_program_of_a_cache():
    """What they read back from it gave wrong numbers."""
    cpus, others = (
        types.SimpleNamespace(devices=np.array([types.SimpleNamespace(platform=name)] * 2))
        for name in ("cpu", "tpu")
    )
    assert jax.config.jax_compilation_cache_dir  # The tests have one.
    with pytest.raises(ValueError, match="JAX_ENABLE_COMPILATION_CACHE=false"):
        devices._check_no_cache(cpus)
    devices._check_no_cache(others)
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        devices._check_no_cache(cpus)
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
