"""Where arrays lie: on the host or a device, or by blocks of rows on the devices of a mesh.

Points on many devices, of one host or several, are one array with a row `NamedSharding`. A `Layout`
pads them with copies of the first (a kernel may be undefined at zero) to a multiple of the devices;
sums and products leave the padding out. A mesh may have axes of either type. A `Layout` has Auto
axes, so that the partitioner places the rest; nothing works inside `jax.set_mesh` of Explicit axes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike


@dataclasses.dataclass(frozen=True)
class Layout:
    """How n points lie on a mesh: in equal blocks of rows, the last padded; hashable."""

    mesh: Mesh  # Of any axis types, kept with Auto axes.
    axis: Any  # The mesh axis, or axes, that the rows are sharded over; all where None.
    n: int  # The number of points, without the padding.

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mesh):
            example = "jax.make_mesh((jax.device_count(),), ('rows',))"
            expected = f"expected a jax.sharding.Mesh, such as {example}"
            raise TypeError(f"mesh: {expected}, received {self.mesh!r}.")
        _check_no_cache(self.mesh)
        axis = self.mesh.axis_names if self.axis is None else self.axis
        axes = (axis,) if isinstance(axis, str) else tuple(axis)
        if not axes or not set(axes) <= set(self.mesh.axis_names):
            expected = f"expected one or more of the mesh's axes {self.mesh.axis_names}"
            raise ValueError(f"axis: {expected}, received {self.axis!r}.")
        if self.n < 1:
            raise ValueError(f"n: expected at least one point, received {self.n}.")
        auto = (AxisType.Auto,) * len(self.mesh.axis_names)
        mesh = Mesh(self.mesh.devices, self.mesh.axis_names, axis_types=auto)
        vars(self).update(mesh=mesh, axis=axes)

    @property
    def blocks(self) -> int:
        """The number of blocks, P: one a device, unless the mesh has further axes."""
        return math.prod(self.mesh.shape[name] for name in self.axis)

    @property
    def block_rows(self) -> int:
        """The rows of each block."""
        return -(-self.n // self.blocks)

    @property
    def rows(self) -> int:
        """The rows of all blocks: n, and the padding."""
        return self.blocks * self.block_rows

    @property
    def spec(self) -> PartitionSpec:
        """The partition of the rows."""
        return PartitionSpec(self.axis)

    @property
    def sharding(self) -> NamedSharding:
        """The sharding of the rows."""
        return NamedSharding(self.mesh, self.spec)

    @property
    def stored_share(self) -> float:
        """The part of a stored n x n matrix, padding included, that one memory holds."""
        here = self.mesh.local_devices  # The devices of a CPU are virtual and share its memory.
        sharing = len(here) if here[0].platform == "cpu" else 1
        return sharing / self.blocks * (self.rows / self.n) ** 2

    def shard(self, points: np.ndarray | jax.Array) -> jax.Array:
        """Points `[n, d]` as a global array `[rows, d]`, padded with copies of the first.

        Points that lie as the layout says stay where they are. All processes must pass the same.
        """
        known = mesh_of(points)
        lies_here = known is not None and Layout(*known, self.n) == self
        if isinstance(points, jax.Array) and lies_here and points.shape[0] == self.rows:
            # The same buffers, under the mesh of Auto axes.
            buffers = [shard.data for shard in points.addressable_shards]
            return jax.make_array_from_single_device_arrays(points.shape, self.sharding, buffers)
        if points.ndim != 2 or points.shape[0] != self.n:
            expected = f"expected [n, d] with the layout's n = {self.n}"
            raise ValueError(f"points: {expected}, received shape {points.shape}.")
        return self._distribute(points, lambda array: array[:1])

    def place(self, vectors: ArrayLike) -> jax.Array:
        """Vectors `[n]` or `[n, m]` as a global array `[rows, ...]`, zero in the padding."""
        return self._distribute(vectors, lambda array: 0 * array[:1])

    def constrain(self, tree: Any) -> Any:
        """Constrains the partitioner to shard arrays `[rows, ...]` by this layout."""
        return jax.lax.with_sharding_constraint(tree, self.sharding)

    def _distribute(self, array: Any, fill: Callable[[Any], Any]) -> jax.Array:
        """Pads to all rows and shards; `fill` makes the row that the padding repeats."""
        missing = self.rows - array.shape[0]
        if not is_here(array):
            padding = jnp.broadcast_to(fill(array), (missing, *array.shape[1:]))
            return self.constrain(jnp.concatenate([array, padding]))
        host = np.asarray(array)
        host = np.concatenate([host, np.repeat(fill(host), missing, axis=0)])
        host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype))
        return jax.make_array_from_callback(host.shape, self.sharding, host.__getitem__)

    def inside(self, block: Any, length: int) -> jax.Array:
        """True for those of the first `length` rows of a block that are points, `[length]`."""
        return jnp.arange(length) < jnp.minimum(self.block_rows, self.n - block * self.block_rows)


def mesh_of(array: object) -> tuple[Mesh, str | tuple[str, ...]] | None:
    """The mesh, and its axis or axes, that the rows of an array are sharded over.

    None for single-device, replicated and NumPy arrays, and tracers, whose sharding is not known.
    """
    if not isinstance(array, jax.Array) or isinstance(array, Tracer) or array.ndim == 0:
        return None
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    axis = (*sharding.spec, None)[0]
    axes = axis if isinstance(axis, tuple) else (axis,)
    others = any(entry is not None for entry in sharding.spec[1:])
    if axis is None or others or math.prod(sharding.mesh.shape[name] for name in axes) == 1:
        return None
    return sharding.mesh, axis


def layout_of(points: np.ndarray | jax.Array, *, mesh: Mesh | None = None) -> Layout | None:
    """The layout that points `[n, d]` have, or rows over all axes of `mesh`; None without both."""
    if (known := mesh_of(points)) is None:
        return None if mesh is None else Layout(mesh, None, sum(np.shape(points)[:1]))
    layout = Layout(*known, points.shape[0])
    if mesh is not None and Layout(mesh, None, 1).mesh != layout.mesh:
        sharded = f"the points are sharded over {known[0]} already"
        raise ValueError(f"mesh: {sharded}, received {mesh}: leave it out.")
    return layout


def _check_no_cache(mesh: Mesh) -> None:
    """Refuses programs for several devices of a CPU that JAX may read from its cache.

    Seen with JAX 0.7, 0.10 and 0.12: scores were wrong by up to a fifth, or the process ended.
    """
    on_cpus = mesh.devices.size > 1 and mesh.devices.flat[0].platform == "cpu"
    settings = ("jax_enable_compilation_cache", "jax_compilation_cache_dir")
    if on_cpus and all(getattr(jax.config, name) for name in settings):
        raise ValueError(
            "mesh: on several CPU devices, programs from JAX's compilation cache give wrong "
            "numbers. Switch it off, by JAX_ENABLE_COMPILATION_CACHE=false in the environment."
        )


def to_host(tree: Any) -> Any:
    """The tree in NumPy; arrays that lie on several hosts are gathered on every host.

    A collective operation where something is spread over hosts: all processes must call it.
    """

    def fetch(leaf: Any) -> np.ndarray:
        remote = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
        if remote and not leaf.is_fully_replicated:
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        return np.asarray(leaf)

    return jax.tree.map(fetch, tree)


def is_here(array: Any) -> bool:
    """Whether this process knows all numbers of an array: it is not traced, nor on other hosts."""
    return not isinstance(array, Tracer) and getattr(array, "is_fully_addressable", True)


def host_view(array: Any) -> np.ndarray | None:
    """An array for NumPy where that copies nothing; None where it is traced or on a device."""
    if isinstance(array, np.ndarray):
        return array
    if not is_here(array):
        return None
    devices = array.devices()
    near = len(devices) == 1 and all(device.platform == "cpu" for device in devices)
    return np.asarray(array) if near else None


def placed(array: np.ndarray | jax.Array) -> jax.Array:
    """An array of JAX. Unlike `jnp.asarray`, it compiles no program for the shape of the array."""
    return array if isinstance(array, jax.Array) else jax.device_put(array)


def take(array: jax.Array, rows: Any) -> jax.Array:
    """Some rows of an array. On the host NumPy gathers them, for which no program is compiled."""
    near = host_view(array)
    return array[rows] if near is None else placed(near[rows])


def namespace(array: Any) -> Any:
    """NumPy for an array of NumPy, and `jax.numpy` for others."""
    return np if isinstance(array, (np.ndarray, np.generic)) else jnp


def fixed(value: Any) -> Any:
    """The value, whose derivative counts as zero."""
    return value if isinstance(value, (np.ndarray, np.generic)) else jax.lax.stop_gradient(value)


def on_host(tree: Any) -> Any:
    """The tree with its arrays for NumPy, if that copies nothing; None where one is elsewhere."""
    leaves, structure = jax.tree.flatten(tree)
    near = [host_view(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    return None if any(leaf is None for leaf in near) else structure.unflatten(near)


def compiled_elsewhere(
    function: Callable[..., Any], *, static_argnums: int | None = None, of_jax: bool = False
) -> Callable[..., Any]:
    """Runs a function of trees, of either `namespace`, in NumPy on the host, else compiled.

    Results are as they are computed or, if `of_jax`, always arrays of JAX.
    """
    compiled = jax.jit(function, static_argnums=static_argnums)

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        if (near := on_host(args)) is None:
            return compiled(*args)
        with np.errstate(all="ignore"):  # As compiled programs do.
            result = function(*near)
        return jax.tree.map(placed, result) if of_jax else result

    return run


def where_it_lies(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Runs `function(numpy, array)` on the host, and `function(jax.numpy, array)` elsewhere."""
    compiled = compiled_elsewhere(lambda array: function(namespace(array), array))

    @functools.wraps(function)
    def run(array: np.ndarray | jax.Array) -> Any:
        with jax.ensure_compile_time_eval():  # At once, also for a constant inside jit.
            return jax.tree.map(np.asarray, compiled(array))

    return run
