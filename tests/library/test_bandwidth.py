"""The bandwidth rules of the papers and the median heuristic."""

import functools
import math
from typing import Any

import jax
import numpy as np
import pytest
import scipy.spatial.distance
from oracles import draw_pairs, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.data import bandwidth

KEY = jax.random.key(0)
GRID = tuple(0.02 * 2.0 ** np.arange(12))


def median_of(points):
    return cv.bandwidth_by_rule(points, "median", key=KEY).bandwidth


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
    with pytest.raises(ValueError, match="partitions: expected an integer of at least 1"):
        cv.bandwidth_by_rule(points, "variance", key=KEY, partitions=0)


def test_a_rule_without_a_bandwidth_says_so():
    grid = np.array([0.2, 16.0])
    with pytest.raises(ValueError, match="at a bandwidth of 16, .* a spread of RKE of 0.02, not b"):
        bandwidth._choose(grid, 0.01, np.array([0.001, 0.02]))


def test_median_by_hand():
    """Distances 3, 4, 5 of a right triangle; duplicates have no distance."""
    triangle = np.array([[0, 0], [3, 0], [0, 4]], np.float32)
    assert median_of(triangle) == pytest.approx(4, rel=1e-6)
    doubled = np.concatenate([triangle, triangle])
    assert median_of(doubled) == pytest.approx(4, rel=1e-6)


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


def test_median_of_many_rows_is_over_a_sample_drawn_by_the_key():
    many = np.random.default_rng(0).normal(size=(2500, 1)).astype(np.float32)
    one, two = (
        cv.bandwidth_by_rule(many, "median", key=jax.random.key(s)).bandwidth for s in (0, 1)
    )
    assert one != two
    assert abs(one / two - 1) < 0.1
    with pytest.raises(ValueError, match="all rows are identical"):
        median_of(np.ones((5, 2), np.float32))


def test_a_bandwidth_between_candidates_by_hand():
    """The spread falls by a factor of 100 between 1 and 4: to a tenth half way, at 2."""
    grid, spreads = np.array([0.25, 1.0, 4.0]), np.array([0.0, 1.0, 0.01])
    assert bandwidth._choose(grid, 0.1, spreads, between=True) == pytest.approx(2.0)
    assert bandwidth._choose(grid, 0.1, spreads) == 4.0
    assert bandwidth._choose(grid, 2.0, spreads, between=True) == 0.25


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


def draw_labelled(seed, m=300, d=3):
    """Pairs within and between classes, `first`, `second`, `same`: 40% are the same."""
    generator = np.random.default_rng(seed)
    same = np.arange(m) % 5 < 2
    centres = generator.normal(size=(2, m, d))
    first, second = centres + 0.4 * generator.normal(size=(2, m, d))
    second[same] = (centres[0] + 0.4 * generator.normal(size=(m, d)))[same]
    return {"first": first, "second": second, "same": same}


def log_likelihood(sigma, first, second, same):
    """Of the labels, both classes weighing the same, by the definition in float64."""
    squared = np.exp(-np.sum((first.astype(float) - second.astype(float)) ** 2, axis=1) / sigma**2)
    return np.mean(np.log(squared[same])) + np.mean(np.log1p(-squared[~same]))


@pytest.mark.parametrize("scale", [1, 1e30])
def test_the_bandwidth_of_pairs_is_the_likeliest_of_a_grid(scale):
    pairs = draw_labelled(0)
    first, second = scale * pairs["first"], scale * pairs["second"]
    chosen = cv.bandwidth_from_pairs(first, second, pairs["same"])
    grid = np.geomspace(0.1, 30, 20001)
    best = grid[np.argmax([log_likelihood(sigma, **pairs) for sigma in grid])]
    assert chosen / scale == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("share", [0.01, 0.9])
def test_the_mean_squared_kernel_over_random_pairs_is_the_share(share):
    pairs = draw_labelled(1)
    chosen = cv.bandwidth_from_pairs(**pairs, share=share)
    squared = np.exp(-np.sum((pairs["first"] - pairs["second"]) ** 2, axis=1) / chosen**2)
    of_same, of_others = squared[pairs["same"]].mean(), squared[~pairs["same"]].mean()
    assert share * of_same + (1 - share) * of_others == pytest.approx(share, rel=1e-8)


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


PAIR: dict[str, Any] = {"first": [[0.0], [0.0]], "second": [[1.0], [2.0]], "same": [True, False]}


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
    given = PAIR | changes
    arrays = {name: np.array(values) for name, values in given.items() if name != "share"}
    with pytest.raises(ValueError, match=message):
        cv.bandwidth_from_pairs(**arrays, share=given.get("share"))
