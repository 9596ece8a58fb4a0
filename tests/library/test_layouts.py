"""Where points lie on a mesh: blocks, padding, what arrays say of themselves.

Several devices are tried in test_sharding.py; the arithmetic of any number of blocks, here.
"""

import contextlib
import re
import types

import jax
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.base import devices as layouts
from condvendi_jax.base.devices import Layout, layout_of, mesh_of


@pytest.fixture
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))


def of_blocks(mesh, n, count):
    """A layout of as many blocks as are asked for, on one device."""
    return type("Blocks", (Layout,), {"blocks": count})(mesh, "rows", n)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 7, 8, 24, 25])
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
    for n in (3, 6):
        says = f"layout's n = 5, received shape ({n}, 2)"
        with pytest.raises(ValueError, match=re.escape(says)):
            layout.shard(np.ones((n, 2), np.float32))
    traced = jax.jit(layout.shard)(points)
    np.testing.assert_array_equal(traced, sharded)


def test_what_is_no_layout_is_refused(mesh):
    with pytest.raises(ValueError, match="expected one or more of the mesh's axes"):
        Layout(mesh, "columns", 4)
    for made in (lambda: Layout(mesh, "rows", 0), lambda: layout_of(3.0, mesh=mesh)):
        with pytest.raises(ValueError, match="at least one point, received 0"):
            made()


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


@pytest.mark.parametrize("wrong", ["rows", ("rows",), 8, "devices", "abstract"])
def test_what_is_no_mesh_is_refused(mesh, wrong):
    made = {"devices": jax.devices(), "abstract": mesh.abstract_mesh}
    wrong = made.get(wrong, wrong) if isinstance(wrong, str) else wrong
    points = np.ones((4, 2), np.float32)
    says = r"^mesh: expected a jax.sharding.Mesh.*received " + re.escape(repr(wrong))
    for refused in (
        lambda: Layout(wrong, "rows", 4),
        lambda: layout_of(points, mesh=wrong),
        lambda: cv.vendi(points, kernel=cv.Gaussian(1.0), mesh=wrong),
    ):
        with pytest.raises(TypeError, match=says):
            refused()


@pytest.mark.parametrize(
    "case", [(2, "cpu", True), (2, "cpu", False), (1, "cpu", True), (2, "tpu", True)]
)
def test_several_cpu_devices_run_no_program_of_a_cache(case):
    """What they read back from it gave wrong numbers."""
    count, platform, enabled = case
    devices = np.array([types.SimpleNamespace(platform=platform)] * count)
    refusal = pytest.raises(ValueError, match="JAX_ENABLE_COMPILATION_CACHE=false")
    before = jax.config.jax_enable_compilation_cache
    assert jax.config.jax_compilation_cache_dir  # The tests have one.
    jax.config.update("jax_enable_compilation_cache", enabled)
    try:
        with refusal if case == (2, "cpu", True) else contextlib.nullcontext():
            layouts._check_no_cache(types.SimpleNamespace(devices=devices))
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
