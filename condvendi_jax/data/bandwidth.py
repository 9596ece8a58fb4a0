"""Choosing the bandwidth of a Gaussian kernel: the papers' rule, the median, the default."""

import functools
import itertools
import math
import re
import textwrap
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # Its modules are imported when they are used.
from jax.typing import ArrayLike

from condvendi_jax.base import checks, devices
from condvendi_jax.data.kernels import Gaussian, Indicator, Kernel

_SOURCES = {"std": "RKE section 6", "variance": "CV appendix E.1"}
# A choice: the sampling noise of a median of two million distances is far below that of scores.
_MEDIAN_SAMPLE = 2000
# Two embeddings of one text differ by their rounding: by up to so many eps in each coordinate.
_SAME = 4
_SUBSETS, THRESHOLD = 10, 0.01  # As in CV appendix E.1.
FEWEST_ROWS = 2 * _SUBSETS
ROWS = 100  # A choice: of a thousand rows, the subsets of the papers' rule have as many.
#: The default rule, `by_default`.
DEFAULT = f"the smallest bandwidth at which RKE of {ROWS} rows has a variance below {THRESHOLD:g}"
_CANDIDATES = 2.0 ** (np.arange(-24, 25) / 6)  # In median distances.
# How many pairs of rows a rule compares, within bounds on the partitions: a few seconds on two CPU
# cores. One partition leaves 4 to 7% of noise in a bandwidth, 64 leave 0.5 to 1%.
_PAIRS, _PARTITIONS = 2e7, (8, 400)
_LARGEST_SUBSET = 1000  # A choice, for the time: a subset takes the square of its rows.
#: How many rows the default rule compares, at most: a few seconds on two CPU cores.
MOST_ROWS = 3000
_FEWEST_PROMPTS = 6  # A mean over sets of four different ones is mostly noise below.
_TILE = 256  # Rows, about, whose kernel values are in memory at a time.
_NEARLY, _NOTHING = 0.9999, 1e-9  # Of the largest variance; a variance of rounding alone.
_FARTHEST = 1e100  # In units: its square is a number.
# How a bandwidth can be chosen from data: the papers' two criteria, and the usual heuristic.
RULES = ("variance", "std", "median")
#: The starts of the "rule" of `Similarities`, and of a kernel of your own.
WITHIN, GIVEN = "similarities", "given: "
#: The rule that suits the data: see `Pairs`.
AUTO = "auto"

_shuffled = jax.jit(jax.random.permutation, static_argnums=1)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _draw(keys: jax.Array, partitions: int, n: int, subsets: int, size: int) -> tuple[Any, Any]:
    """Disjoint subsets of n rows, `[partitions, subsets, size]`, and an order of all `[n]`."""
    key, other = keys

    def draw(index: jax.Array) -> jax.Array:
        # The first partition is the draw of the key itself, as with one partition.
        chosen = jax.lax.cond(index == 0, lambda: key, lambda: jax.random.fold_in(key, index))
        return jax.random.permutation(chosen, n)[: subsets * size].reshape(subsets, size)

    return jax.lax.map(draw, jnp.arange(partitions)), jax.random.permutation(other, n)


def _rke_of_subsets(points: jax.Array, rows: jax.Array, grid: np.ndarray) -> np.ndarray:
    """The RKE of subsets of rows `[p, s, m]` at ascending bandwidths `[g]`, `[p, s, g]`."""
    # The form of the kernel that is precise at the smallest bandwidth is so at all.
    unit = Gaussian(grid[0]).suited_to(points).unit
    swept = _sweep(points, rows.reshape(-1, rows.shape[-1]), np.asarray(grid, points.dtype), unit)
    return np.asarray(swept, np.float64).reshape(*rows.shape[:2], -1)


@functools.partial(jax.jit, static_argnums=3)
def _sweep(points: jax.Array, rows: jax.Array, sigmas: jax.Array, unit: float | None) -> jax.Array:
    """The RKE `[s, g]` of subsets of rows `[s, m]`."""
    size = rows.shape[1]
    pairs = np.triu_indices(size, 1)

    def sweep_subset(chosen: jax.Array) -> jax.Array:
        kernel = Gaussian(1.0, unit=unit)
        prepared = kernel.prepare(points[chosen])
        # As a nearly square matrix: sums over its rows, then of these, round less.
        geometry = kernel.geometry(prepared, prepared)[pairs].reshape(size - 1 + size % 2, -1)

        def rke(sigma: jax.Array) -> jax.Array:
            squares = jnp.square(Gaussian(sigma, unit=unit).profile(geometry))
            return size**2 / (size + 2 * jnp.sum(jnp.sum(squares, axis=1)))  # Each counts twice.

        return jax.vmap(rke)(sigmas)

    return jax.lax.map(sweep_subset, rows)


def _choose(grid: np.ndarray, most: float, spreads: np.ndarray, *, between: bool = False) -> float:
    """The smallest bandwidth of the upper branch, interpolated where `between`."""
    if not spreads[-1] < most:
        where = f"at a bandwidth of {grid[-1]:.3g}, 16 times the median distance"
        spread = f"the rule finds a spread of RKE of {spreads[-1]:.3g}, not below {most:g}"
        raise ValueError(f"{where}, {spread}: give the bandwidth, or take the rule 'median'.")
    refused = np.flatnonzero(~(spreads < most))
    first = int(refused[-1]) + 1 if refused.size else 0
    above = spreads[first]
    if not between or first == 0 or above <= 0:
        return grid[first]
    # The logarithm of a spread falls about linearly in that of the bandwidth.
    share = math.log(spreads[first - 1] / most) / math.log(spreads[first - 1] / above)
    return grid[first - 1] * (grid[first] / grid[first - 1]) ** share


def _relative_error(spreads: np.ndarray, choose: Callable[..., float], largest: float) -> float:
    """The standard error of the log bandwidth: a jackknife of spreads `[partition, candidate]`."""
    count = len(spreads)

    def without(one: np.ndarray) -> float:
        try:
            return choose((spreads.sum(axis=0) - one) / (count - 1), between=True)
        except ValueError:  # No candidate satisfies the rule: a larger one would.
            return largest

    return float(np.sqrt((count - 1) * np.var(np.log([without(one) for one in spreads]))))


class RuledBandwidth(NamedTuple):
    """A bandwidth in the units of the embeddings, if the kernel has one, and its rule in words.

    `relative_error` is its relative standard error over draws of the partitions, None without any.
    """

    bandwidth: float | None
    rule: str
    relative_error: float | None = None

    @property
    def within_prompts(self) -> bool:
        """Whether outputs of different prompts are not compared: scores are conditional alone."""
        return self.rule.startswith(WITHIN)

    def __str__(self) -> str:
        if self.bandwidth is None:
            return self.rule.replace(Indicator.words, "equal or different")
        rule = re.sub(r"smallest bandwidth with (\w+) .*\)", r"the \1 rule", self.rule)
        return f"{self.bandwidth:.4g}, {rule.replace(DEFAULT, 'the default rule')}"


@checks.outside_transformations
def bandwidth_by_rule(
    points: ArrayLike, rule: str, *, key: jax.Array, partitions: int | None = None
) -> RuledBandwidth:
    """A bandwidth by one of `RULES`, with the rule in words.

    Args:
      points: embeddings `[n, d]`.
      rule: the smallest bandwidth at which RKE has, over ten disjoint subsets of up to 1,000 rows,
        a 'variance' (CV appendix E.1) or 'std' (RKE section 6) below 0.01, as at all larger
        candidates: as the bandwidth goes to zero the spread vanishes again. There are 49 of ratio
        2^(1/6) from 1/16 to 16 times the median distance. Or 'median': the median distance of two
        rows that differ by more than rounding, of at most 2,000.
      key: draws the subsets, or the rows.
      partitions: how many times the rows are split; where None, 8 to 400, more for fewer rows.

    Raises:
      TypeError, ValueError: the rule or the points are not valid or too few, or no bandwidth fits.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.array([[0.0], [3.0]], np.float32)
      >>> cv.bandwidth_by_rule(points, "median", key=jax.random.key(0))
      RuledBandwidth(bandwidth=3.0, rule='median distance', relative_error=None)
    """
    check_rule(rule)
    checks.check_key(key)
    array = checks.as_array(points, name="points")
    checked = checks.check_embeddings(array, name="points", origin=checks.origin_of(array))
    return by_rule(checked, rule, key, "points", partitions)


def by_rule(
    points: jax.Array, rule: str, key: jax.Array, name: str, partitions: int | None = None
) -> RuledBandwidth:
    """`bandwidth_by_rule` of checked points, which errors call `name`."""
    if rule == "median":
        shuffled = _shuffled(key, points.shape[0])
        return RuledBandwidth(median_distance(points, shuffled, name), "median distance")
    if (n := points.shape[0]) < FEWEST_ROWS:
        mend = "give the bandwidth, or take the rule 'median'."
        raise ValueError(f"the rule {rule!r} needs {FEWEST_ROWS} rows, received {n}; {mend}")
    size = min(n // _SUBSETS, _LARGEST_SUBSET)
    if partitions is None:
        partitions = int(np.clip(_PAIRS / (_SUBSETS * size**2), *_PARTITIONS))
    partitions = checks.check_count(partitions, name="partitions", minimum=1)
    rows, shuffled = _draw(jax.random.split(key), partitions, n, _SUBSETS, size)
    grid = median_distance(points, shuffled, name) * _CANDIDATES
    spread = np.std if rule == "std" else np.var
    spreads = spread(_rke_of_subsets(points, rows, grid), axis=1, ddof=1)
    choose = functools.partial(_choose, grid, THRESHOLD)
    bandwidth = float(choose(spreads.mean(axis=0), between=partitions > 1))
    error = _relative_error(spreads, choose, grid[-1]) if partitions > 1 else None
    averaged = "" if partitions == 1 else f", mean of {partitions} partitions"
    words = f"smallest bandwidth with {rule} < {THRESHOLD:g} over {_SUBSETS} disjoint subsets of "
    return RuledBandwidth(bandwidth, f"{words}{size}{averaged} ({_SOURCES[rule]})", error)


@checks.outside_transformations
def bandwidth_from_pairs(
    first: ArrayLike, second: ArrayLike, same: ArrayLike, *, share: float | None = None
) -> float:
    """The bandwidth, in units of the embeddings, that best predicts what people call the same.

    The squared kernel k(x, y)^2 = exp(-|x - y|^2 / sigma^2) is read as the probability that x and y
    are the same, so that RKE, 1 over its mean, is the effective number of classes. The bandwidth
    maximizes the likelihood of the labels, in which the pairs that are the same weigh together as
    much as those that differ: it is concave in 1 / sigma^2. Where classes overlap RKE then counts
    too few. If you know the share of random pairs that are the same, give it: the mean of k^2 over
    random pairs becomes this share, so that RKE counts the classes of the labelled items.

    Args:
      first: embeddings `[m, d]`, one item of each pair.
      second: embeddings `[m, d]`, the other item of each pair.
      same: booleans `[m]`, True where people call the two items the same.
      share: the probability that two random items are the same, between 0 and 1: the mean of `same`
        where pairs were drawn at random. The bandwidth is the likeliest where None.

    Raises:
      TypeError, ValueError: an array is not valid; all pairs have one label; a pair that differs
        has two equal rows, or all pairs that are the same do, so that there is no maximum.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> first = np.zeros((4, 1), np.float32)
      >>> second = np.array([[0.5], [-0.5], [2.0], [-2.0]], np.float32)
      >>> same = np.array([True, True, False, False])
      >>> print(f"{cv.bandwidth_from_pairs(first, second, same):.2f}")
      1.19
    """
    arrays = checks.as_paired({"first": first, "second": second})
    for name, array in arrays.items():
        checks.check_finite(array, name=name)
    # Equal rows must not become different, nor different rows equal.
    differences = checks.minus(*map(np.asarray, arrays.values())).astype(np.float64)
    labels = np.asarray(checks.as_array(same, name="same"))
    if labels.dtype != bool or labels.shape != differences.shape[:1]:
        expected = f"expected {len(differences)} booleans, one for each pair"
        raise ValueError(f"same: {expected}, received shape {labels.shape} of {labels.dtype}.")
    if share is not None:
        share = checks.check_number(share, name="share", above=0, below=1)
    count = int(labels.sum())
    if count in (0, len(labels)):
        received = f"{len(labels)} that are all {bool(count)}"
        raise ValueError(f"same: expected pairs of both labels, received {received}.")
    largest = np.abs(differences).max() or 1.0
    squares = np.sum((differences / largest) ** 2, axis=1)
    if (equal := ~labels & (squares == 0)).any():
        raise ValueError(
            f"same: the pair in row {int(equal.argmax())} is said to differ, but first and second "
            "are equal there, which has probability 0 at every bandwidth; leave such pairs out."
        )
    if (mean := squares[labels].mean()) == 0:
        received = "all pairs that are the same have equal rows"
        why = "no bandwidth is too small for them; add pairs of different items of one class."
        raise ValueError(f"first, second: {received}, so that {why}")
    alike, ratios = squares[labels] / mean, squares[~labels] / mean

    # With s = mean / sigma^2: the derivative of the log likelihood, -s + mean log(1 - e^(-s r)). It
    # falls, as does the excess, and both change their sign between s = e^-200 and e^200.
    def slope(log_s: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.mean(ratios / np.expm1(math.exp(log_s) * ratios))) - 1

    def excess(log_s: float) -> float:
        assert share is not None
        alike_mean, other_mean = (np.mean(np.exp(-math.exp(log_s) * r)) for r in (alike, ratios))
        return float(share * alike_mean + (1 - share) * other_mean) - share

    log_s: Any = scipy.optimize.brentq(slope if share is None else excess, -200, 200, xtol=1e-12)
    return float(largest * math.sqrt(mean) * math.exp(-log_s / 2))


def check_rule(rule: str, *, auto: bool = False) -> None:
    """Raises ValueError where there is no such rule."""
    rules = (AUTO, *RULES) if auto else RULES
    if rule not in rules:
        raise ValueError(f"rule: expected one of {', '.join(rules)}, received {rule!r}.")


def arbitrary(points: Any) -> RuledBandwidth | None:
    """A bandwidth of points that are all equal, where every score is 1; or None."""
    if (n := points.shape[0]) == 1 or _identical(points):
        return RuledBandwidth(1.0, f"arbitrary: {'n = 1' if n == 1 else 'all rows are identical'}")
    return None


_identical = devices.where_it_lies(lambda _, points: (points == points[:1]).all())


def as_given(kernel: Kernel) -> RuledBandwidth:
    """The bandwidth of a kernel that the caller chose."""
    # Without addresses, which differ from run to run, and digits beyond six decimals.
    name = re.sub(r" at 0x[0-9a-f]+|(?<=\.\d{6})\d+", "", repr(kernel))
    words = kernel.words or GIVEN + textwrap.shorten(name, 120, placeholder=" ...")
    return RuledBandwidth(kernel.known_bandwidth, words)


def median_distance(points: Any, shuffled: Any, name: str) -> float:
    """The median distance of different rows, of the first of an order; `name` is for errors."""
    if points.shape[0] == 1:
        raise ValueError(f"{name}: one row has no distance to choose a bandwidth from; give one.")
    sample = devices.take(points, np.asarray(shuffled)[:_MEDIAN_SAMPLE])
    rows, eps = np.asarray(sample, np.float64), float(jnp.finfo(sample.dtype).eps)
    # A matrix product would round all distances by eps of the largest norm, that of a far row.
    with np.errstate(over="ignore"):
        centred = rows - np.median(rows, axis=0)  # No far row moves the median.
        sizes = np.abs(centred).max(axis=1)
        # A length near the distances, so that squares stay in range, but those of far rows.
        unit = np.median(sizes[sizes > 0]) if sizes.any() else 1.0
        distances = scipy.spatial.distance.pdist(centred / unit)
        rounding = _SAME * eps * math.sqrt(rows.shape[1]) * (sizes / unit)
    first, second = np.triu_indices(len(rows), 1)
    distances = unit * distances[distances > rounding[first] + rounding[second]]
    if distances.size == 0:
        raise ValueError(f"{name}: all rows are identical, so there is no distance to choose from.")
    return float(np.median(distances))


# The default rule: no draw, no order of the rows and no number of them decides it.
def to_compare(
    weights: np.ndarray, copies: np.ndarray | None, *, most: int, content: Any, prompts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Up to `most` rows of a weight above 0, labels of independent ones, weights of sum one."""
    # Of more than `most`, the bytes of `content` decide, and where equal those of all of a prompt.
    size, order = len(weights) if copies is None else int(copies.sum()), np.arange(len(weights))
    if copies is None and size <= most:
        rows = np.flatnonzero(weights)
        return rows, rows, weights[rows] / weights.sum()
    if size > most:
        size, sums = most, np.array([zlib.crc32(row.tobytes()) for row in devices.to_host(content)])
        order = np.lexsort((np.bincount(prompts, sums)[prompts], sums))
    reached = np.cumsum(weights[order])
    rows = order[np.searchsorted(reached, reached[-1] * (np.arange(size) + 0.5) / size)]
    return rows, rows if copies is None else np.arange(size), np.full(size, 1 / size)


def by_default(
    points: np.ndarray, prompts: Any, rows: Any, weights: Any, *, name: str, repeated: bool
) -> RuledBandwidth:
    """The default bandwidth of points `[n, d]` of `weights` `[n]`; half of it where `repeated`."""
    n = len(points)
    if (equal := arbitrary(points)) is not None:
        return equal
    # Points of one prompt are not compared; where prompts are few, those with one label in `rows`.
    if rows is not None and _effective_number(prompts, weights) < _FEWEST_PROMPTS:
        prompts = rows
    if _effective_number(prompts, weights) < _FEWEST_PROMPTS:  # One row or prompt is nearly all.
        weights = np.full(n, 1 / n)
    first = np.unique(prompts, return_index=True)[1]
    if n < FEWEST_ROWS or len(first) < _FEWEST_PROMPTS:
        order = np.arange(n) if n < FEWEST_ROWS else first
        return RuledBandwidth(median_distance(points, order, name), "median distance")
    width, words = _smallest(points, prompts, weights), f"half of {DEFAULT}, because prompts repeat"
    return RuledBandwidth(width / 2, words) if repeated else RuledBandwidth(width, DEFAULT)


def _effective_number(kinds: np.ndarray, weights: np.ndarray) -> float:
    """1 / sum W^2, W the weights of the kinds; of equal ones their number."""
    totals = np.bincount(np.unique(kinds, return_inverse=True)[1], weights)
    return float(np.round(1 / np.square(totals).sum(), 6))


def _smallest(points: np.ndarray, prompts: np.ndarray, weights: np.ndarray) -> float:
    """The bandwidth at which the variance reaches the threshold, or else its largest value."""
    # It is the first one, coming from above: below the largest value, RKE only counts rows.
    order = np.argsort(prompts, kind="stable")
    starts = np.flatnonzero(np.diff(prompts[order], prepend=-1))
    squares, typical = _squared_distances(points[order], starts)

    @functools.cache
    def variance(octave: float) -> float:
        return _variance(squares, weights[order], starts, 2.0**octave)

    octaves = [2.0]  # From four typical distances, or more, to a sixteenth.
    while variance(octaves[0]) > THRESHOLD:
        octaves = [octaves[0] + 1]
    while variance(octaves[-1]) <= THRESHOLD and octaves[-1] > -4:
        octaves.append(octaves[-1] - 0.5)
    if (level := min(THRESHOLD, _NEARLY * max(map(variance, octaves)))) <= _NOTHING:
        return typical * 2.0 ** octaves[-1]
    place = next(k for k, octave in enumerate(octaves) if variance(octave) >= level)
    octave = octaves[place]
    if place > 0:
        octave = _root(lambda o: variance(o) - level, octave, octaves[place - 1])
    return float(typical * 2.0**octave)


def _root(function: Callable[[float], float], first: float, last: float) -> float:
    """A zero between two points of different signs, to 1e-10, by the Illinois method."""
    # Here because to import `scipy.optimize` takes longer than the rule.
    (a, at_a), (b, at_b) = ((x, function(x)) for x in (first, last))
    for _ in range(100):
        c = (a * at_b - b * at_a) / (at_b - at_a)
        at_c = function(c)
        if not abs(c - b) >= 1e-10 or at_c == 0:
            return c
        a, at_a = (b, at_b) if at_b * at_c < 0 else (a, at_a / 2)
        b, at_b = c, at_c
    return b


def _squared_distances(points: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, float]:
    """Squared distances `[n, n]` in squares of a typical one, infinite within a prompt; and it."""
    centred = points.astype(np.float64) - np.median(points, axis=0)  # No far row moves it.
    sizes = np.abs(centred).max(axis=1)
    scaled = np.clip(centred / (unit := np.median(sizes[sizes > 0])), -_FARTHEST, _FARTHEST)
    norms = np.square(scaled).sum(axis=1)
    squares = norms[:, None] + norms - 2 * scaled @ scaled.T
    for first, last in itertools.pairwise([*starts, len(points)]):
        squares[first:last, first:last] = np.inf
    typical = 2 * np.median(norms[norms > 0])
    return np.maximum(squares / typical, 0), float(unit * math.sqrt(typical))


def _variance(squares: np.ndarray, weights: np.ndarray, starts: np.ndarray, width: float) -> float:
    """The variance of RKE of m = `ROWS` independent rows, 1 / (1/m + (1 - 1/m) U).

    U is the mean of h = k^2 over pairs of rows. By the delta method, and Hoeffding (1948), it is

        RKE^4 (1 - 1/m)^2 (4 (m - 2) (E h12 h13 - U^2) + 2 (E h12^2 - U^2)) / (m (m - 1)),

    here from unbiased means over sets of two, three and four prompts, each difference at least 0.
    Rows are sorted by prompt; `starts` are the first rows of each.
    """
    total = of_prompts = of_pairs = triples = h_square = 0.0
    ends, tiles = np.append(starts[1:], len(weights)), -(-len(weights) // _TILE)
    for some in np.array_split(np.arange(len(starts)), min(tiles, len(starts))):
        rows = slice(starts[some[0]], ends[some[-1]])
        h, of_rows = np.exp(-squares[rows] / width**2), weights[rows]
        h_square += of_rows @ (np.square(h) @ weights)
        h *= weights
        pairs = h * of_rows[:, None]
        if len(starts) < len(weights):
            h = np.add.reduceat(h, starts, axis=1)
            pairs = np.add.reduceat(h * of_rows[:, None], starts[some] - rows.start, axis=0)
        triples += of_rows @ (h.sum(axis=1) ** 2 - np.square(h).sum(axis=1))
        total += pairs.sum()
        of_prompts += np.square(pairs.sum(axis=1)).sum()
        of_pairs += np.square(pairs).sum()
    # Of the weights of all sets: h is 0 within a prompt, and a set has no prompt twice.
    p2, p3, p4 = (np.sum(np.add.reduceat(weights, starts) ** power) for power in (2, 3, 4))
    u, h_square, triple = total / (1 - p2), h_square / (1 - p2), triples / (1 - 3 * p2 + 2 * p3)
    fours = total**2 - 4 * of_prompts + 2 * of_pairs
    square = fours / (1 - 6 * p2 + 8 * p3 + 3 * p2**2 - 6 * p4)
    rke = 1 / (1 / ROWS + (1 - 1 / ROWS) * u)
    components = 4 * (ROWS - 2) * max(triple - square, 0) + 2 * (h_square - square)
    return rke**4 * (1 - 1 / ROWS) ** 2 * components / (ROWS * (ROWS - 1))
