"""Kernels: values, blocks and numerical guards; bandwidths by the rules and from labelled pairs."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.spatial.distance
from canonical import named
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, renyi

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
from condvendi_jax.data.kernels import of_all

_gram = jax.jit(of_all)
KERNELS = {
    "gaussian": (lambda: cv.Gaussian(0.7), lambda p: gaussian_gram(p, 0.7)),
    "cosine": (cv.Cosine, cosine_gram),
}


@pytest.mark.parametrize("name", KERNELS)
def test_blocks_agree_with_pairs_and_with_the_oracle(name, dtype):
    kernel, oracle = KERNELS[name][0](), KERNELS[name][1]
    points = jnp.asarray(draw_pairs(20, dtype=dtype)[0])
    assert_close(_gram(kernel, points), oracle(points))
    blocks = jax.vmap(jax.vmap(kernel, in_axes=(None, 0)), in_axes=(0, None))
    pairwise = jax.jit(blocks)(points, points)
    assert_close(pairwise, oracle(points))
    assert pairwise.dtype == dtype


def test_kernels_are_pytrees_of_their_bandwidths_and_have_values_by_hand():
    """exp(-1 / (2 * 0.5^2)), the cosine of 45 degrees, and exp(-1 / (2 * 2^2))."""
    leaves, structure = jax.tree.flatten((cv.Gaussian(0.5), cv.Cosine(), cv.Gaussian(2.0)))
    assert [float(leaf) for leaf in leaves] == [0.5, 2.0]
    x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
    values = [kernel(x, y) for kernel in jax.tree.unflatten(structure, leaves)]
    assert_close(np.array(values), np.array([np.exp(-2), np.sqrt(0.5), np.exp(-1 / 8)]))


def test_repr_names_the_parameters_also_where_their_values_are_not_known():
    assert repr(cv.Gaussian(0.5)) == "Gaussian(bandwidth=0.5)"
    seen = []
    jax.vmap(lambda width: seen.append(repr(cv.Gaussian(width))))(jnp.ones(3))
    assert seen[0].startswith("Gaussian(bandwidth=")
    assert repr(jax.vmap(cv.Gaussian)(jnp.ones(3))) == "Gaussian(bandwidth=[1. 1. 1.])"


def test_no_kernel_value_exceeds_one_for_near_duplicates():
    """Without the clip, rounding makes the squared distance of near-duplicates negative."""
    rng = np.random.default_rng(0)
    points = jnp.asarray(30 * rng.normal(size=(1, 8)) + 1e-3 * rng.normal(size=(60, 8)), "float32")
    spread_out = jnp.concatenate([points, -points])
    (x, half), kernel = cv.Gaussian(0.1).prepare(spread_out), cv.Gaussian(0.1)
    unclipped = half[:, None] + half[None, :] - x @ x.T
    assert float(unclipped.min()) < 0
    assert float(_gram(kernel, spread_out).max()) <= 1


def test_uncentred_distances_fail_far_from_the_origin():
    points = draw_pairs(60, dtype=np.float32)[0] + np.float32(1e4)
    expected = gaussian_gram(points, 0.7)
    half = jnp.sum(jnp.square(points), axis=1) / 2
    naive = jnp.exp(-jnp.maximum(half[:, None] + half[None, :] - points @ points.T, 0) / 0.49)
    assert float(np.abs(naive - expected).max()) > 0.1
    # The float32 points differ from each other by whole multiples of 1e-3: so far they are exact.
    assert_close(_gram(cv.Gaussian(0.7), jnp.asarray(points)), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_cosine_takes_rows_whose_squares_leave_the_range(scale):
    points = draw_pairs(10, dtype=np.float32)[0]
    scaled = jnp.asarray(points * np.float32(scale))
    assert not bool(jnp.isfinite(1 / jnp.sum(jnp.square(scaled), axis=1)).all()) or scale > 1
    mixed = jnp.where(jnp.arange(10)[:, None] < 5, points / np.float32(scale), scaled)
    pull = jax.jit(lambda p: jax.vjp(lambda p: _gram(cv.Cosine(), p), p))
    for rows, wanted in ((scaled, cosine_gram(points)), (mixed, cosine_gram(mixed))):
        gram, slope = pull(rows)
        assert_close(gram, wanted)
        assert np.isfinite(slope(jnp.ones((10, 10)))[0]).all()


@pytest.mark.parametrize("order", [1, 2, 0.5])
def test_scores_under_the_indicator_are_those_of_counted_labels(order, x64):
    rng = np.random.default_rng(0)
    outputs, prompts = rng.integers(0, 4, (70, 2)), rng.integers(0, 3, (70, 1))
    found = cv.decompose(outputs, prompts, **named([cv.Indicator()] * 2), order=order)
    labels = outputs, prompts, np.hstack([outputs, prompts])
    counts = [np.unique(of, axis=0, return_counts=True)[1] for of in labels]
    expected = [renyi(count / 70, order) for count in counts]
    assert_close(jnp.stack(found.entropies), expected)
    tiled = cv.grams.TiledGram.from_points(cv.Indicator(), jnp.asarray(outputs, float))
    for gram in (cv.gram(cv.Indicator(), outputs), tiled):
        assert_close(cv.Entropy(order)(gram), expected[0])


@pytest.mark.parametrize("place", [np.asarray, jnp.asarray])
def test_labels_far_from_zero_are_told_apart(place):
    """In float32 each of these is 1e9."""
    labels = place(np.array([[1_000_000_000], [1_000_000_001], [1_000_000_001]], np.int32))
    assert_close(cv.rke(labels, kernel=cv.Indicator()), 9 / 5)
    for start in (2**53, 2**62, -(2**62)):  # In float64 each of these is one number.
        assert_close(cv.rke(start + np.array([[0], [1], [1]]), kernel=cv.Indicator()), 9 / 5)


def test_labels_that_the_cast_may_merge_are_refused():
    labels = np.array([[0], [0], [2**24 - 2], [2**24 - 1]])
    assert_close(cv.rke(labels, kernel=cv.Indicator()), 16 / 6)
    # Processors that flush what is below the smallest normal number would count two.
    tiny = np.array([[0], [1], [1e-40], [1e-39]], np.float32)
    for refused, words in (
        (labels + [[0], [0], [0], [1]], "below 16,777,216; .* in row 3. Number"),
        (tiny, "below 1e-38 from zero; .* in row 2. Number"),
    ):
        with pytest.raises(ValueError, match=f"outputs: .* {words}"):
            cv.rke(refused, kernel=cv.Indicator())


def test_the_indicator_compares_all_coordinates_and_has_no_slope():
    kernel, points = cv.Indicator(), jnp.array([[1.0, 2.0], [1.0, 0.0], [1.0, 2.0]])
    assert jax.tree.leaves(kernel) == []
    np.testing.assert_allclose(_gram(kernel, points), [[1, 0, 1], [0, 1, 0], [1, 0, 1]], atol=1e-6)
    slope = jax.grad(lambda p: cv.Indicator()(p, points[0]))(points[2])
    np.testing.assert_array_equal(slope, 0)


# Bandwidths by the rules of the papers, by the median distance, and from labelled pairs.

KEY = jax.random.key(0)
GRID = tuple(0.02 * 2.0 ** np.arange(12))


def median_of(points, key=KEY):
    return cv.bandwidth_by_rule(points, "median", key=key).bandwidth


@pytest.fixture(scope="module")
def points():
    return draw_pairs(100, dtype=np.float32)[0]


def values_of(points, partitions=1, subsets=10, grid=GRID):
    """The disjoint subsets of the rows that the key draws, and the RKE of each by bandwidth."""
    size = len(points) // subsets
    rows = bandwidth._draw(jax.random.split(KEY), partitions, len(points), subsets, size)[0]
    return rows, bandwidth._rke_of_subsets(jax.numpy.asarray(points), rows, np.asarray(grid))


@pytest.mark.parametrize(("partitions", "far"), [(2, 0), (30, 1e6)])
def test_spreads_are_those_of_rke_over_disjoint_subsets(points, partitions, far):
    """Of rows of which one is far, distances are computed by differences."""
    points = points + far * (np.arange(100) == 7)[:, None].astype(np.float32)
    rows, found = values_of(points, partitions, subsets=5)
    assert all(len(np.unique(own)) == 100 for own in rows)
    rke = np.array(
        [[[1 / np.mean(gaussian_gram(points[r], s) ** 2) for s in GRID] for r in p] for p in rows]
    )
    np.testing.assert_allclose(found, rke, rtol=1e-4)


@pytest.mark.parametrize("rule", ["variance", "std"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_rule_takes_its_spread_over_subsets_at_49_candidates(points, rule, partitions):
    """Ascending by the sixth root of 2, from 1/16 to 16 times the median distance."""
    chosen = cv.bandwidth_by_rule(points, rule, key=KEY, partitions=partitions)
    np.testing.assert_allclose(bandwidth._CANDIDATES, np.geomspace(1 / 16, 16, 49))
    grid = median_of(points) * bandwidth._CANDIDATES
    _, rke = values_of(points, partitions, grid=grid)
    spread = {"variance": np.var, "std": np.std}[rule](rke, axis=1, ddof=1).mean(axis=0)
    expected = bandwidth._choose(grid, 0.01, spread, between=partitions > 1)
    assert chosen.bandwidth == pytest.approx(expected, rel=1e-5)
    source = {"variance": "CV appendix E.1", "std": "RKE section 6"}[rule]
    averaged = ", mean of 2 partitions" if partitions == 2 else ""
    words = f"smallest bandwidth with {rule} < 0.01 over 10 disjoint subsets of 10"
    assert chosen.rule == f"{words}{averaged} ({source})"
    assert (chosen.relative_error is None) == (partitions == 1)


def test_every_argument_changes_the_selection(points):
    default = {"points": points, "rule": "variance", "key": KEY, "partitions": 2}
    changes = {"points": 3 * points, "key": jax.random.key(1), "rule": "std", "partitions": 3}
    reference = cv.bandwidth_by_rule(**default).bandwidth
    assert cv.bandwidth_by_rule(**default).bandwidth == reference
    for name, value in changes.items():
        found = cv.bandwidth_by_rule(**(default | {name: value})).bandwidth
        assert abs(found / reference - 1) > 1e-3, name


def test_more_partitions_are_drawn_of_fewer_rows(points):
    assert "mean of 400 partitions" in cv.bandwidth_by_rule(points, "variance", key=KEY).rule
    many = np.random.default_rng(0).normal(size=(2000, 1)).astype(np.float32)
    one = cv.bandwidth_by_rule(many, "variance", key=KEY, partitions=1)
    assert "10 disjoint subsets of 200 (" in one.rule
    with pytest.raises(ValueError, match="partitions: expected an integer of at least 1"):
        cv.bandwidth_by_rule(points, "variance", key=KEY, partitions=0)


def test_median_by_hand():
    """Distances 3, 4, 5 of a right triangle; duplicates have no distance."""
    triangle = np.array([[0, 0], [3, 0], [0, 4]], np.float32)
    for points in (triangle, np.concatenate([triangle, triangle])):
        assert median_of(points) == pytest.approx(4, rel=1e-6)
    with pytest.raises(ValueError, match="all rows are identical"):
        median_of(np.ones((5, 2), np.float32))


@pytest.mark.parametrize("far", [65504, np.finfo(np.float32).max])
def test_a_far_row_does_not_move_the_median(far):
    """A product rounds all distances to those of the far row. Equal rows have no distance."""
    points = np.random.default_rng(0).normal(size=(150, 7))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points[7] = far
    points = points.astype(np.float16 if far == 65504 else np.float32)
    expected = np.median(scipy.spatial.distance.pdist(points.astype(np.float64)))
    assert median_of(points) == pytest.approx(expected, rel=1e-6)
    again = points.astype(np.float32)
    again[8:] *= np.float32(1 + 1e-7)
    doubled = np.concatenate([points, again])
    assert median_of(doubled) == pytest.approx(expected, rel=1e-2)


def test_rows_that_differ_by_a_hundred_eps_have_a_distance():
    """Two of 10 distances are 1e-5; the median of all is 1.00001, of the others 1.5."""
    points = np.float32([[-1], [-1.00001], [0], [1], [1.00001]])
    assert median_of(points) == pytest.approx(1, rel=1e-3)


def test_median_of_a_thousand_rows_is_over_all():
    points = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)
    expected = np.median(scipy.spatial.distance.pdist(points.astype(np.float64)))
    assert median_of(points) == pytest.approx(expected, rel=1e-6)


def test_median_of_many_rows_is_over_a_sample_drawn_by_the_key():
    many = np.random.default_rng(0).normal(size=(2500, 1)).astype(np.float32)
    one, two = (median_of(many, jax.random.key(s)) for s in (0, 1))
    assert one != two
    assert abs(one / two - 1) < 0.1


def test_a_bandwidth_between_candidates_by_hand_or_none():
    """The spread falls by a factor of 100 between 1 and 4: to a tenth half way, at 2."""
    grid, spreads = np.array([0.25, 1.0, 4.0]), np.array([0.0, 1.0, 0.01])
    assert bandwidth._choose(grid, 0.1, spreads, between=True) == pytest.approx(2.0)
    assert bandwidth._choose(grid, 0.1, spreads) == 4.0
    assert bandwidth._choose(grid, 2.0, spreads, between=True) == 0.25
    with pytest.raises(ValueError, match="at a bandwidth of 4, .* spread of RKE of 0.01, not b"):
        bandwidth._choose(grid, 0.01, spreads)


def test_the_error_of_a_bandwidth_is_the_jackknife_over_partitions():
    """Where its logarithm is the mean over partitions, that is the standard error of a mean."""
    each = np.random.default_rng(0).normal(size=(7, 1))
    found = bandwidth._relative_error(each, lambda spreads, between: math.exp(spreads[0]), 2.0)
    assert found == pytest.approx(np.std(each, ddof=1) / math.sqrt(7))


def test_one_partition_beyond_the_threshold_refuses_nothing():
    """The mean of eight spreads is below 0.01; without the eighth it is not, at any candidate."""
    grid = np.array([1.0, 2.0])
    each = np.array([[0.1, 0.002], *[[0.1, 0.0105]] * 7])
    choose = functools.partial(bandwidth._choose, grid, 0.01)
    assert 1 < choose(each.mean(axis=0), between=True) < 2
    assert 0 < bandwidth._relative_error(each, choose, 2.0) < 1


# Pairs of which 40% are the same: these lie around one centre, others around two.
SAME = np.arange(300) % 5 < 2
CENTRES, NOISE = np.random.default_rng(0).normal(size=(2, 2, 300, 3))
FIRST, SECOND = np.where(SAME[:, None], CENTRES[0], CENTRES) + 0.4 * NOISE


def squared_kernel(sigma):
    """Of the pairs that are the same, and of those that differ, by the definition."""
    squared = np.exp(-np.sum((FIRST - SECOND) ** 2, axis=1) / sigma**2)
    return squared[SAME], squared[~SAME]


@pytest.mark.parametrize("scale", [1, 1e30])
def test_the_bandwidth_of_pairs_is_the_likeliest(scale):
    """Both classes weigh the same; the likelihood is concave in 1 / sigma^2."""
    chosen = cv.bandwidth_from_pairs(scale * FIRST, scale * SECOND, SAME) / scale
    around = map(squared_kernel, chosen * np.array([0.999, 1, 1.001]))
    assert np.argmax([np.log(a).mean() + np.log1p(-b).mean() for a, b in around]) == 1


@pytest.mark.parametrize("share", [0.01, 0.9])
def test_the_mean_squared_kernel_over_random_pairs_is_the_share(share):
    chosen = cv.bandwidth_from_pairs(FIRST, SECOND, SAME, share=share)
    same, others = map(np.mean, squared_kernel(chosen))
    assert share * same + (1 - share) * others == pytest.approx(share, rel=1e-8)


def test_the_bandwidth_of_pairs_by_hand():
    """All squared distances are 1: k^2 = 1/2 is likeliest, as both classes weigh the same."""
    for same in ([True, False], [True, False, False, False, False]):
        for first in (np.zeros((len(same), 1), np.int8), np.full((len(same), 1), 2**40)):
            chosen = cv.bandwidth_from_pairs(first, first + 1, np.array(same))
            assert chosen**2 == pytest.approx(1 / math.log(2), rel=1e-9)


def test_pairs_of_extreme_distances_have_a_bandwidth():
    """e^(-s) (1 - e^(-s far^2)) is largest where e^(s far^2) = 1 + far^2, s being 1 / sigma^2."""
    for far in (*np.geomspace(1e-9, 1e-3, 200), 1e20):
        first, second = np.zeros((2, 1)), np.array([[1.0], [far]])
        chosen = cv.bandwidth_from_pairs(first, second, np.array([True, False]))
        assert chosen**2 == pytest.approx(far**2 / math.log1p(far**2), rel=1e-7)


PAIR = {"first": [[0.0], [0.0]], "second": [[1.0], [2.0]], "same": [True, False], "share": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"same": [True, True]}, "same: expected pairs of both labels, received 2 that are all T"),
        ({"same": [False, False]}, "received 2 that are all False"),
        ({"same": [1, 0]}, r"same: expected 2 booleans, .* received shape \(2,\) of int"),
        ({"same": [True]}, r"same: expected 2 booleans, .* received shape \(1,\) of bool"),
        ({"second": [[1.0], [0.0]]}, "same: the pair in row 1 is said to differ, but first and"),
        ({"second": [[0.0], [2.0]]}, "all pairs that are the same have equal rows"),
        ({"share": 1.0}, "share: expected a number between 0 and 1, received 1.0"),
        ({"first": [[0.0], [np.nan]]}, "first: expected finite numbers, .* row 1"),
        ({"second": [[1.0]]}, "first and second must pair up row by row"),
    ],
)
def test_pairs_without_a_likeliest_bandwidth_are_refused(changes, message):
    *arrays, share = (PAIR | changes).values()
    with pytest.raises(ValueError, match=message):
        cv.bandwidth_from_pairs(*map(np.array, arrays), share=share)
