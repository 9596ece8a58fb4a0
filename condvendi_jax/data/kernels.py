"""Positive semidefinite kernels with unit diagonal: k(x, y) of two points.

A sweep over bandwidths computes `prepare` of points and `geometry` of pairs once, `profile` often.
"""

import abc
import dataclasses
import functools
import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from condvendi_jax.base import checks
from condvendi_jax.base.devices import fixed, host_view, namespace, placed, where_it_lies

# Inner products take full precision: the default of accelerators moves k(x, x) off 1 by 1e-3.
PRECISION = lax.Precision.HIGHEST
# A distance from three rounded numbers: below this many eps of the squared norms it is rounding.
_ROUNDING = 8
# The rounding of a squared distance, in squared bandwidths, above which distances come from
# differences. It moves a kernel value by the same amount, relatively: four digits are kept.
_MOVED = 1e-4
_ROWS = 4096  # Of points that NumPy looks at together.
_COLUMNS = 8  # Of points whose differences are squared in one fused loop.
_UNIT_STEP = 8  # Units of length are powers of 2^8: each one is a program to compile.


class Kernel(abc.ABC):
    """A normalised kernel, k(x, x) = 1, as a pytree whose leaves are its parameters.

    To write one, implement `__call__` and register the class as a pytree, with
    `jax.tree_util.register_static` where it has no parameters to trace. Results and `profile` use a
    number `bandwidth` if the class has one and is a dataclass, or implements `with_bandwidth`.

    Examples:
      The Tanimoto kernel of sets, the share of the elements of either set that are in both:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> import condvendi_jax as cv
      >>> @jax.tree_util.register_static
      ... class Tanimoto(cv.Kernel):
      ...     def __call__(self, x, y):
      ...         return jnp.vdot(x, y) / jnp.sum(x + y - x * y)
      >>> sets = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]  # The first two share 2 of 3 elements.
      >>> print(f"{cv.rke(sets, kernel=Tanimoto()):.3f}")  # 9 / (3 + 2 * (2 / 3) ** 2)
      2.314

      The Laplacian kernel, which has a bandwidth:

      >>> import dataclasses
      >>> @jax.tree_util.register_dataclass
      ... @dataclasses.dataclass(frozen=True)
      ... class Laplacian(cv.Kernel):
      ...     bandwidth: float
      ...     def __call__(self, x, y):
      ...         return jnp.exp(-jnp.sum(jnp.abs(x - y)) / self.bandwidth)
      >>> profile = cv.profile([[0], [1], [9]], output_kernel=Laplacian(2.0), multiples=[0.5, 1, 2])
      >>> print(profile.values.vendi.round(2))  # At 2: 3 / (exp(-1) + exp(-8) + exp(-9))
      [[22.17  8.14  4.72]]
    """

    #: Whether k(x + c, y + c) = k(x, y), so that points may be moved before they are cast.
    shift_invariant: ClassVar[bool] = False
    #: Whether k(x, y) is 1 where x and y are equal, and else 0.
    compares_equality: ClassVar[bool] = False
    #: What results say beside the bandwidth; where empty, that the kernel was given, and its repr.
    words: ClassVar[str] = ""

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({parameters})"

    @abc.abstractmethod
    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """k(x, y) of two points `[d]`, a scalar in [-1, 1]."""

    def prepare(self, points: jax.Array) -> Any:
        """Computes what depends on one point only, as a pytree of arrays with leading axis n."""
        return points

    @jax.jit
    def geometry(self, left: Any, right: Any) -> Any:
        """Computes what depends on pairs of points but not on the parameters, arrays `[m, n]`."""
        return jax.vmap(jax.vmap(self, in_axes=(None, 0)), in_axes=(0, None))(left, right)

    def profile(self, geometry: Any) -> jax.Array:
        """k of all pairs, `[m, n]`, from their geometry."""
        return geometry

    def cross(self, left: Any, right: Any) -> jax.Array:
        """k of all pairs of two blocks of prepared points, `[m, n]`."""
        return self.profile(self.geometry(left, right))

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError where the kernel is not defined on concrete `points` `[n, d]`."""

    @property
    def known_bandwidth(self) -> float | None:
        """Its `bandwidth`, where that is a number and known."""
        try:
            return float(getattr(self, "bandwidth", None))  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError):
            return None

    def with_bandwidth(self, bandwidth: Any) -> Any:
        """The same kernel with another bandwidth, which may be traced."""
        if not dataclasses.is_dataclass(self):
            expected = "expected a dataclass, or a class with `with_bandwidth(self, bandwidth)`"
            raise ValueError(f"kernel: {expected}, received {self!r}.")
        return dataclasses.replace(self, bandwidth=bandwidth)

    def suited_to(self, points: jax.Array) -> "Kernel":
        """The same kernel in the form that is precise on concrete `points` `[n, d]`."""
        return self

    def rounding(self, points: np.ndarray) -> float:
        """How far values of k for some points `[m, d]` may be off, relatively, in eps."""
        return _ROUNDING


def inner_products(left: jax.Array, right: jax.Array) -> jax.Array:
    """Inner products of the rows of `[m, d]` and `[n, d]`, `[m, n]`, at full precision."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left @ right.swapaxes(-1, -2)
    return lax.dot_general(left, right, (((1,), (1,)), ((), ())), precision=PRECISION)


@where_it_lies
def _reach(xp: Any, points: Any) -> tuple[Any, Any]:
    """The largest difference e of an entry from the first point's, and max |x - mean|^2 / e^2."""
    # NumPy in parts, for which it needs little memory.
    parts = [points] if xp is jnp else np.array_split(points, -(-len(points) // _ROWS))
    extent = xp.max(xp.stack([xp.max(xp.abs(part - points[:1])) for part in parts]))
    # Divided by eight where it is large: the inverse of float32's largest numbers counts as zero.
    within = xp.where(extent > 1, points.dtype.type(1 / 8), points.dtype.type(1))
    scale = xp.where((extent > 0) & xp.isfinite(extent), within * extent, 1)

    def scaled(part: Any) -> Any:
        return within * (part - points[:1]) / scale

    sums = xp.stack([xp.sum(scaled(part), axis=0, keepdims=True) for part in parts])
    mean = xp.sum(sums, axis=0) / points.dtype.type(len(points))
    squares = [xp.max(xp.sum(xp.square(scaled(part) - mean), axis=1)) for part in parts]
    return extent, xp.max(xp.stack(squares))


@where_it_lies
def _without_direction(xp: Any, points: Any) -> Any:
    """Whether each point is zero, as all numbers are that are too small to be normalised."""
    return (xp.abs(points) < jnp.finfo(points.dtype).tiny).all(axis=1)


@where_it_lies
def _bad_labels(xp: Any, points: Any) -> tuple[Any, Any]:
    """Whether each point has a number that may count as zero, and one too large to be exact."""
    limits = jnp.finfo(points.dtype)
    bits = xp.abs(points).view(f"uint{limits.bits}")  # JAX compares these numbers as zeros.
    tiny = (bits > 0) & (bits < limits.tiny.view(bits.dtype))
    return tiny.any(axis=1), (xp.abs(points) >= 2 ** (limits.nmant + 1)).any(axis=1)


@functools.partial(jax.jit, static_argnums=2)
def _half_squares(left: jax.Array, right: jax.Array, unit: float) -> jax.Array:
    """Half the squared distances of all pairs of rows, in squares of `unit`, `[m, n]`."""
    # By differences, right to a few ulps, but twenty times slower than a matrix product.
    inverse, x, y = jnp.asarray(1 / unit, left.dtype), _chunks(left), _chunks(right)
    largest = math.sqrt(jnp.finfo(left.dtype).max)

    # For the slope the differences are computed again: those of all columns need much memory.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def squares(chunk: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        total = jnp.zeros((), x.dtype)
        for k in range(_COLUMNS):
            scaled = (x[chunk, k][:, None] - y[chunk, k][None, :]) * inverse
            # Points that are infinitely far have no slope: 0 * inf would be NaN.
            total += jnp.square(jnp.clip(scaled, -largest, largest))
        return total

    zero = jnp.zeros((left.shape[0], right.shape[0]), left.dtype)
    return lax.fori_loop(0, len(x), lambda k, sums: sums + squares(k, x, y), zero) / 2


def _chunks(points: jax.Array) -> jax.Array:
    """Points `[n, d]` by columns, a few at a time, `[chunks, columns, n]`; zeros fill the last."""
    columns = -points.shape[1] % _COLUMNS
    return jnp.pad(points, ((0, 0), (0, columns))).T.reshape(-1, _COLUMNS, points.shape[0])


@jax.tree_util.register_pytree_node_class
class Gaussian(Kernel):
    """The Gaussian kernel k(x, y) = exp(-|x - y|^2 / (2 bandwidth^2)) (CV section 3.2).

    Distances come from one matrix product, which rounds by a few eps of the squared norms. Where
    the bandwidth is not well above that (a cluster much narrower than its distance from another, or
    one row far away) the scores switch to the form with a `unit`, which subtracts points. They
    decide this from concrete points and bandwidths; under `jax.jit` pass the unit yourself.

    Args:
      bandwidth: the length scale sigma > 0, in the units of the embeddings. It may be traced, so
        that scores can be vmapped over bandwidths and differentiated in them.
      unit: None for distances by a matrix product; for differences, a length near the bandwidth.

    Raises:
      TypeError, ValueError: a concrete bandwidth or unit is not a finite number above 0.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> kernel = cv.Gaussian(2.0)
      >>> print(f"{kernel(np.zeros(3, np.float32), np.ones(3, np.float32)):.4f}")  # exp(-3 / 8)
      0.6873
    """

    shift_invariant: ClassVar[bool] = True
    words: ClassVar[str] = "given"

    def __init__(self, bandwidth: float | jax.Array, *, unit: float | None = None):
        self.bandwidth = check_bandwidth(bandwidth)
        self.unit = None if unit is None else checks.check_number(unit, name="unit", above=0)

    def __repr__(self) -> str:
        unit = "" if self.unit is None else f", unit={self.unit:g}"
        known = checks.is_concrete(self.bandwidth) and jnp.ndim(self.bandwidth) == 0
        bandwidth = f"{float(self.bandwidth):.7g}" if known else self.bandwidth
        return f"Gaussian(bandwidth={bandwidth}{unit})"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        apart = jnp.subtract(x, y)
        # Scaled first: the square of a distance may leave the range of the dtype.
        return jnp.exp(-jnp.sum(jnp.square(apart / self.bandwidth.astype(apart.dtype))) / 2)

    def with_bandwidth(self, bandwidth: float | jax.Array) -> "Gaussian":
        return Gaussian(bandwidth, unit=self.unit)

    def suited_to(self, points: jax.Array) -> "Gaussian":
        """The kernel, with a unit where a matrix product would round distances away."""
        if self.unit is not None:
            return self
        sigma, limits = float(self.bandwidth), jnp.finfo(points.dtype)

        def is_precise(reach: float) -> bool:
            in_range = reach < float(limits.max) / 16 and sigma**2 > float(limits.tiny / limits.eps)
            return float(limits.eps) * reach <= _MOVED * sigma**2 and in_range

        if (near := host_view(points)) is not None:  # A bound that one pass gives often suffices.
            largest = max(float(near.max()), -float(near.min()))
            if is_precise(4 * points.shape[1] * largest * largest):
                return self
        extent, norm = map(float, _reach(points))
        if is_precise(norm * extent * extent) or extent == 0:
            return self
        exponent = _UNIT_STEP * round(math.log2(sigma) / _UNIT_STEP)
        return Gaussian(self.bandwidth, unit=2.0**exponent)

    def rounding(self, points: np.ndarray) -> float:
        """The rounding of distances, in squared bandwidths: 8 eps of |x|^2 by a matrix product."""
        if self.unit is not None:
            return _ROUNDING
        # The fourth mean of |x| is near the mean over the pairs where k is not small.
        squares = np.square(points.astype(float) - points.mean(axis=0, dtype=float)).sum(axis=1)
        return _ROUNDING * (1 + float(np.mean(squares**4) ** 0.25) / float(self.bandwidth) ** 2)

    def prepare(self, points: jax.Array) -> Any:
        """Centred points `[n, d]` and half their squared norms `[n]`; with a unit, the points.

        The matrix product subtracts numbers of the size of |x|^2, so that float32 distances far
        from the origin need centring, by a mean relative to the first row. Differences do not.
        """
        if self.unit is not None:
            return points
        xp = namespace(points)
        shifted = points - fixed(points[..., :1, :])
        centred = shifted - fixed(xp.mean(shifted, axis=-2, keepdims=True))
        return centred, xp.sum(xp.square(centred), axis=-1) / 2

    def geometry(self, left: Any, right: Any) -> Any:
        """Half the squared distances of all pairs, `[m, n]`, in squares of the unit if any."""
        if self.unit is not None:
            half = _half_squares(left, right, self.unit)
            return np.asarray(half) if isinstance(left, np.ndarray) else half
        (x, half_x), (y, half_y) = left, right
        norms = half_x[..., :, None] + half_y[..., None, :]
        half = norms - inner_products(x, y)
        # A remainder of the size of rounding is no distance: duplicates are at zero whatever the
        # bandwidth, and no kernel value exceeds 1. A NaN fails the comparison and stays.
        norms *= _ROUNDING * jnp.finfo(half.dtype).eps
        return namespace(half).where(half <= norms, 0, half)

    def profile(self, geometry: jax.Array) -> jax.Array:
        """exp(-geometry / bandwidth^2), where geometry is half a squared distance."""
        # The square of the bandwidth may leave the range of float32.
        inverse = (self.unit or 1) / self.bandwidth.astype(geometry.dtype)
        return namespace(geometry).exp(-(geometry * inverse) * inverse)

    def tree_flatten(self) -> tuple[tuple[Any], float | None]:
        """The bandwidth is the only leaf; the unit is static."""
        return (self.bandwidth,), self.unit

    @classmethod
    def tree_unflatten(cls, unit: float | None, leaves: tuple[Any]) -> Self:
        """Rebuilds the kernel without checks: leaves may be placeholders."""
        kernel = object.__new__(cls)
        (kernel.bandwidth,), kernel.unit = leaves, unit
        return kernel


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Cosine(Kernel):
    """The cosine kernel k(x, y) = <x, y> / (|x| |y|), the papers' normalised linear kernel.

    Its features have the dimension d of the embeddings, so that n > d points have at most d
    non-zero eigenvalues. Embeddings are not centred: it is not invariant to translation.
    """

    words: ClassVar[str] = "none: the cosine kernel has no bandwidth"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.vdot(self.prepare(x), self.prepare(y), precision=PRECISION)

    def prepare(self, points: jax.Array) -> jax.Array:
        """Points scaled to unit norm, `[n, d]`."""
        # By the largest entry first: squares beyond 1e38 or below 1e-46 leave float32's range.
        xp = namespace(points)
        scaled = points / fixed(xp.max(xp.abs(points), axis=-1, keepdims=True))
        return scaled / xp.linalg.norm(scaled, axis=-1, keepdims=True)

    def geometry(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """Inner products of all pairs, `[m, n]`: the kernel itself."""
        return inner_products(left, right)

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError where a row is zero: it has no direction."""
        if (zero := _without_direction(points)).any():
            raise ValueError(
                f"{name}: the cosine kernel is not defined for a zero row (all entries below "
                f"{float(jnp.finfo(points.dtype).tiny):.0e} count as zero), received "
                f"{int(zero.sum())} of them, the first of them row {int(zero.argmax())}."
            )


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Indicator(Kernel):
    """The kernel of labels: k(x, y) = 1 where all coordinates of x and y are equal, and else 0.

    Labels are whole numbers `[n, 1]`, or `[n, d]` where d of them make a label. Their Vendi score
    is then the exponential of their Shannon entropy. Its gradient in the points is zero.

    Examples:
      >>> import condvendi_jax as cv
      >>> print(f"{cv.vendi([[0], [0], [5], [5]], kernel=cv.Indicator()):.2f}")
      2.00
    """

    #: Labels far from zero are moved there before they are cast, which keeps them.
    shift_invariant: ClassVar[bool] = True
    compares_equality: ClassVar[bool] = True
    words: ClassVar[str] = "none: one where rows are equal, else zero"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.all(x == y).astype(jnp.result_type(x))

    def geometry(self, left: jax.Array, right: jax.Array) -> jax.Array:
        if left.shape[-1] > 1:
            return super().geometry(left, right)
        return (left == right.swapaxes(-1, -2)).astype(left.dtype)

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError where different labels may count as one."""
        limits = jnp.finfo(points.dtype)
        tiny, beyond = _bad_labels(points)
        if tiny.any():
            small = f"numbers below {float(limits.tiny):.0e} from zero"
            received = f"received one in row {int(tiny.argmax())}. Number the labels from 0."
            raise ValueError(f"{name}: cv.Indicator cannot tell {small}; {received}")
        if beyond.any():
            raise ValueError(
                f"{name}: cv.Indicator compares labels in {points.dtype}, which tells whole "
                f"numbers apart below {2 ** (limits.nmant + 1):,}; received one beyond in row "
                f"{int(beyond.argmax())}. Number the labels from 0, or enable x64."
            )


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class WithinPrompts(Kernel):
    """Inner products of unit vectors within a prompt, 0 elsewhere: the kernel of `Similarities`.

    A row `[1 + d]` is the number of its prompt and its vector. `across`: models may be compared.
    """

    words: str
    across: bool = dataclasses.field(default=True, repr=False)

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(x[0] == y[0], jnp.vdot(x[1:], y[1:], precision=PRECISION), 0)

    def geometry(self, left: jax.Array, right: jax.Array) -> jax.Array:
        equal = left[..., :1] == right[..., :1].swapaxes(-1, -2)
        return namespace(left).where(equal, inner_products(left[..., 1:], right[..., 1:]), 0)


def of_all(kernel: Kernel, points: Any) -> Any:
    """k of all pairs of points `[n, d]`, `[n, n]`."""
    prepared = kernel.prepare(points)
    return kernel.cross(prepared, prepared)


def takes_stacks(kernel: Kernel) -> bool:
    """Whether NumPy computes the kernel of stacks of points, `[..., n, d]`, without a program."""
    exact = type(kernel) in (Cosine, Indicator, WithinPrompts)
    return exact or (type(kernel) is Gaussian and kernel.unit is None)


def is_equality(kernel: Any) -> bool:
    """Whether rows are compared by equality: by `Indicator`, or by the rule for None."""
    return kernel is None or getattr(kernel, "compares_equality", False)


def check_kernel(kernel: Any, *, name: str) -> Kernel:
    """Returns `kernel`, or raises TypeError where it is not a kernel."""
    if not isinstance(kernel, Kernel):
        expected = "expected a kernel such as Gaussian(bandwidth) or Cosine()"
        raise TypeError(f"{name}: {expected}, received {kernel!r}.")
    return kernel


def check_bandwidth(bandwidth: Any) -> jax.Array:
    """Returns the bandwidth, a scalar above 0 that may be traced, in the compute dtype."""
    try:
        kind = bool if isinstance(bandwidth, bool) else getattr(bandwidth, "dtype", None)
        if isinstance(bandwidth, (str, bytes, type(None))) or kind == np.dtype(bool):
            raise TypeError("no number")
        with np.errstate(over="ignore"):
            traced = isinstance(bandwidth, Tracer)
            value = placed((jnp if traced else np).asarray(bandwidth, dtype=checks.compute_dtype()))
    except (TypeError, ValueError, OverflowError) as error:
        expected = "expected a positive number"
        raise TypeError(f"bandwidth: {expected}, received {bandwidth!r}.") from error
    if traced:
        return value
    if value.ndim != 0:
        raise ValueError(f"bandwidth: expected a scalar, received shape {value.shape}.")
    # In float64: the cast may have made it zero or infinite.
    wide = float(np.asarray(bandwidth, np.float64))
    number = checks.check_number(wide, name="bandwidth", above=0)
    smallest = float(jnp.finfo(value.dtype).tiny)
    # The kernel divides by it: its inverse must be a number too.
    if not smallest <= number <= 1 / smallest:
        ends = f"{smallest:.1e} to {1 / smallest:.1e}"
        beyond = f"{number:g} is beyond what {value.dtype} resolves, {ends}"
        raise ValueError(f"bandwidth: {beyond}: rescale the embeddings and it, or enable x64.")
    return value
