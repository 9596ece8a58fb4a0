"""Entropies out of finite features: what is extrapolated, what is certain, what is covered."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, draw_pairs, entropy, gaussian_gram, renyi, shifted

import condvendi_jax as cv
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _approximations as approximations
from condvendi_jax.spectra import _methods as methods

KEY = jax.random.key(2)
KERNELS = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(2.0)}
N = 120
# Of every kind: below 1, Shannon's, a norm, the largest eigenvalue, and truncated ones.
WANTED = [*map(cv.renyi, (0.5, 1, 2, np.inf)), cv.truncated(10), cv.truncated(30, order=2)]


def truths(points, wanted=WANTED):
    """The entropies of outputs, prompts and pairs by all eigenvalues, `[wanted, 3]`."""
    k_x, k_t = (gaussian_gram(p, s) for p, s in zip(points.arrays, (1.0, 2.0), strict=True))
    return [
        [entropy(k, order=e.order, truncation=e.truncation) for k in (k_x, k_t, k_x * k_t)]
        for e in wanted
    ]


def sub_covariance(matrix, subset):
    """Of some groups of features, of trace one."""
    width = matrix.shape[0] // approximations.GROUPS
    rows = np.concatenate([np.arange(g * width, (g + 1) * width) for g in subset])
    part = matrix[np.ix_(rows, rows)]
    return part / np.trace(part)


def test_a_power_law_is_carried_to_its_end():
    """H_D = 3 - c D^-s: the estimate is a third of the way from the jackknife, the gap the rest."""
    for s, c in ((0.3, 1.0), (0.5, 0.7), (1.0, 0.4), (2.0, 0.3)):
        sizes = np.array([len(s) for s in approximations._SUBSETS]) / approximations.GROUPS
        found = approximations._extrapolated(3 - c * sizes**-s, 4.0)
        jackknife = 8 * (3 - c) - 7 * (3 - c * (7 / 8) ** -s)
        np.testing.assert_allclose(found.value, jackknife + (3 - jackknife) / 3, atol=1e-9)
        np.testing.assert_allclose(found.gap, abs(3 - jackknife) * 2 / 3, atol=1e-9)
        low, high = found.interval
        assert low - 1e-9 <= 3 <= high + 1e-9


def test_what_has_no_limit_goes_to_the_bound():
    """H_D = log D: nothing says where it ends, but log n does; and below order 1 it goes back."""
    sizes = 64 * np.array([len(s) for s in approximations._SUBSETS])
    found = approximations._extrapolated(np.log(sizes), np.log(5000))
    np.testing.assert_allclose(found.interval[1], np.log(5000))
    assert found.interval[0] < found.value < found.interval[1]
    below = approximations._extrapolated(np.log(sizes), np.log(5000), below_one=True)
    assert below.interval[0] <= np.log(512) + 1e-9


def test_the_order_two_is_unbiased_whatever_the_frequencies(x64):
    """||C||^2 = P + c / D exactly: the mean over draws of e^-H is the kernel's norm."""
    points = Pairs(*draw_pairs(N), **KERNELS)
    truth = np.exp(-np.array(truths(points, [cv.renyi(2)])[0]))
    found = []
    for k in range(60):
        method = cv.RandomFeatures(jax.random.key(k), count=16)
        (computed,) = methods.compute(points, [cv.renyi(2)], method)
        found.append([np.exp(-estimate.value) for estimate in computed.estimates])
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - truth) < 4 * error).all()
    features = functools.partial(cv.spectra.fourier_features, *points.arrays, **KERNELS, count=16)
    keys = jax.random.split(KEY, 60)
    plain = [np.exp(-cv.renyi(2)(features(key=key).outputs)) for key in keys]
    assert np.mean(plain) - truth[0] > 4 * error[0]


def test_subsets_are_those_of_fewer_frequencies(x64):
    rows = np.random.default_rng(0).normal(size=(50, 32))
    matrix = rows.T @ rows
    matrix = jnp.asarray(matrix / np.trace(matrix))
    norms = approximations._norms_of_subsets(matrix)
    spectra = [values for part in approximations._spectra_of_subsets(matrix) for values in part]
    for subset, norm, values in zip(approximations._SUBSETS, norms, spectra, strict=True):
        expected = np.linalg.eigvalsh(sub_covariance(np.asarray(matrix), subset))[::-1]
        np.testing.assert_allclose(values, expected, atol=1e-12)
        np.testing.assert_allclose(norm, np.sum(expected**2))


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 60, 90])
def test_few_points_give_the_same_estimates_by_their_own_matrices(n, monkeypatch, x64):
    """Of 128 features; at n = 90 a half of them has rank 64, less than n."""
    points = Pairs(*draw_pairs(n), **KERNELS)
    method = cv.RandomFeatures(KEY, count=64)
    wanted = [entropy.fitted(n) for entropy in WANTED]
    dual = methods.compute(points, wanted, method)
    monkeypatch.setattr(cv.RandomFeatures, "_dual", lambda *_: False)
    orders = [each.order for each in wanted]
    primal = methods.compute(points, wanted, method)
    for order, found, expected in zip(orders, dual, primal, strict=True):
        # Below order 1 the root of what rounding leaves of a zero eigenvalue counts.
        close = {"rtol": 0, "atol": 1e-5 if order < 1 else 1e-9}
        for one, other in zip(found.estimates, expected.estimates, strict=True):
            np.testing.assert_allclose(one.per_probe, other.per_probe, **close)
            np.testing.assert_allclose(one.interval, other.interval, **close)


def test_few_points_need_no_matrices_of_all_features(monkeypatch):
    """2 count x 2 count of them would be 4 GiB, and hours of eigenvalues."""

    def refused(*_):
        raise AssertionError("a matrix of all features")

    monkeypatch.setattr("condvendi_jax.spectra._feature_maps.covariances", refused)
    points = Pairs(*draw_pairs(12, dtype=np.float32), **KERNELS)
    method = cv.RandomFeatures(KEY, count=2**14)
    only_joint = ("joint",)
    (everything,) = methods.compute(points, [cv.von_neumann], method)
    (joint,) = methods.compute(points, [cv.von_neumann], method, only_joint)
    truth = truths(points, [cv.von_neumann])[0]
    np.testing.assert_allclose(everything.values, truth, atol=0.02)
    assert joint.values.outputs is None
    np.testing.assert_allclose(joint.values.joint, everything.values.joint)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [cv.RandomFeatures(KEY, count=64), cv.Nystroem(KEY, landmarks=40)]
)
def test_intervals_hold_the_truth_of_every_order(method, x64):
    points = Pairs(*draw_pairs(N), **KERNELS)
    found = methods.compute(points, WANTED, method)
    for each, expected in zip(found, truths(points), strict=True):
        assert each.method == method.name
        for estimate, truth in zip(each.estimates, expected, strict=True):
            low, high = estimate.interval
            slack = 0.5 * estimate.noise + 1e-9
            assert low - slack <= truth <= high + slack
            assert low <= estimate.value <= high


def test_the_ends_of_nystroem_are_the_extremes_of_what_is_possible(x64):
    """Over spectra v + e with e >= 0 of a sum and a bounded norm: none has an entropy outside."""
    rng = np.random.default_rng(1)
    values = np.array([0.3, 0.15, 0.1, 0.09, 0.06] + [0.0] * 7)
    missing = 0.3
    for most in (missing**2, missing**2 / 6):
        for wanted in WANTED[:4] + [cv.truncated(4), cv.truncated(4, order=2)]:
            found = approximations._between(wanted, values, missing, (most, most), 1e-16)
            low, high = found.interval
            t = wanted.truncation
            for trial in range(300):
                added = rng.dirichlet(np.full(12, 10.0 ** (trial % 5 - 3))) * missing
                if trial == 0:
                    # All that one of those kept may gain, and nothing for the others kept.
                    added = np.array([0.098] + [0.0] * 3 + [0.202 / 8] * 8)
                if np.sum(added**2) > most:
                    continue
                spectrum = np.sort(values + added)[::-1]
                kept = spectrum if t is None else shifted(spectrum, t)
                assert low - 1e-12 <= renyi(kept, wanted.order) <= high + 1e-12


def test_what_the_landmarks_leave_counts_as_equal_eigenvalues(x64):
    """Three of 0.1: the squares of a sample sum to 0.045, and the jackknife takes off 0.015."""
    values = np.array([0.5, 0.2])
    groups = approximations.GROUPS
    without = (groups * 0.045 - 0.03) / (groups - 1)
    residual = np.array([0.045, *[without] * groups])
    wanted = (cv.von_neumann, cv.renyi(2), cv.renyi(0.5), cv.truncated(4))
    found = approximations.nystroem_estimates(jnp.diag(values), residual, wanted, 12)
    spectrum = np.array([0.5, 0.2, 0.1, 0.1, 0.1])
    for each, estimate in zip(wanted, found, strict=True):
        kept = shifted(spectrum, each.truncation or spectrum.size)
        assert_close(estimate.value, renyi(kept, each.order))


def test_below_order_one_what_rounding_leaves_of_zeros_is_not_counted():
    spectrum = np.array([0.5, 0.5] + [1e-9] * 1000)
    found = approximations._host_entropy(0.5, spectrum, np.finfo(np.float32).eps)
    assert found == pytest.approx(math.log(2), abs=1e-5)


def test_levelling_is_that_of_water():
    found = approximations._levelled(np.array([0.5, 0.2, 0.1, 0.0]), 0.15)
    np.testing.assert_allclose(found, [0.5, 0.2, 0.125, 0.125])
    np.testing.assert_allclose(approximations._levelled(np.array([0.3, 0.1]), 0.6), [0.5, 0.5])


def test_the_norm_of_what_is_left_is_that_of_all_pairs_on_average():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(64, 3)) / 3
    squares = (root @ root.T) ** 2
    exact = approximations.residual_norms(squares, 64)
    np.testing.assert_allclose(exact, [np.sum(squares) / 64**2])
    found = []
    for _ in range(400):
        rows = rng.permutation(64)[:34]
        sample = approximations.residual_norms(squares[np.ix_(rows, rows)], 64)
        assert sample.shape == (9,)
        found.append(sample[[0, 3]])
    spread = np.std(found, axis=0) / 20
    np.testing.assert_array_less(np.abs(np.mean(found, axis=0) - exact[0]), 4 * spread)


@pytest.mark.slow
def test_all_points_as_landmarks_are_exact(x64):
    points = Pairs(*draw_pairs(N), **KERNELS)
    found = methods.compute(points, WANTED[1:], cv.Nystroem(KEY, landmarks=2 * N))
    for each, expected in zip(found, truths(points)[1:], strict=True):
        np.testing.assert_allclose(each.values, expected, atol=1e-6)
        assert max(e.half_width for e in each.estimates) < 1e-5
    # Of a finite number of kinds as many landmarks as that are enough, and cosines will do.
    repeated = np.tile(np.eye(4), (30, 1))
    few = cv.decompose(repeated, output_kernel=cv.Cosine(), method=cv.Nystroem(KEY, landmarks=60))
    assert_close(few.vendi, 4.0, loosened=1e4)


@pytest.mark.slow
def test_more_features_narrow_the_intervals():
    outputs = draw_pairs(400, dtype=np.float32)[0]
    for methods_of_size in (
        [cv.RandomFeatures(KEY, count=size) for size in (16, 256)],
        [cv.Nystroem(KEY, landmarks=size) for size in (16, 128)],
    ):
        found = (
            cv.decompose(outputs, output_kernel=cv.Gaussian(1.0), method=method)
            for method in methods_of_size
        )
        wide, narrow = (np.ptp(np.log(each.intervals.vendi)) for each in found)
        assert narrow < wide / 2


def test_scores_pair_up_by_frequencies(x64):
    """One draw for all: part of what it does to pairs it does to their prompts."""
    (found,) = methods.compute(
        Pairs(*draw_pairs(N), **KERNELS), [cv.renyi(2)], cv.RandomFeatures(KEY, count=64)
    )
    joint, prompts = found.estimates.joint, found.estimates.prompts
    assert (joint - prompts).standard_error < np.hypot(joint.standard_error, prompts.standard_error)


def test_what_is_not_possible_is_refused():
    outputs = draw_pairs(20, dtype=np.float32)[0]
    gaussian = {"output_kernel": cv.Gaussian(1.0)}
    with pytest.raises(ValueError, match="count: expected a multiple of 8, received 12"):
        cv.RandomFeatures(KEY, count=12)
    with pytest.raises(ValueError, match="landmarks: expected an integer of at least 1"):
        cv.Nystroem(KEY, landmarks=0)
    for method in (cv.RandomFeatures, cv.Nystroem):
        with pytest.raises(ValueError, match="key: expected a random key"):
            method(None)
        with pytest.raises(TypeError, match="inside jit or vmap nor differentiated"):
            jax.jit(lambda x, m=method: cv.vendi(x, kernel=cv.Gaussian(1.0), method=m(KEY)))(
                outputs
            )
        with pytest.raises(TypeError, match="is of points, and here"):
            cv.clusters.prompt_modes(
                outputs, outputs, **gaussian, prompt_kernel=cv.Cosine(), method=method(KEY)
            )
        mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
        with pytest.raises(ValueError, match="of points on one device"):
            cv.decompose(outputs, **gaussian, method=method(KEY), mesh=mesh)
    with pytest.raises(TypeError, match="of Gaussian kernels and their products"):
        cv.decompose(outputs, output_kernel=cv.Cosine(), method=cv.RandomFeatures(KEY, count=8))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [cv.RandomFeatures(KEY, count=64), cv.Nystroem(KEY, landmarks=60)]
)
def test_errors_and_curves_are_of_the_method_at_order_two_too(method, x64):
    """One draw for all deletions: the error is near that of the kernel, and not the same."""
    outputs, prompts = draw_pairs(N)
    options = KERNELS | {"order": 2, "key": KEY, "groups": 5}
    exact = cv.decomposition_errors(outputs, prompts, **options)
    found = cv.decomposition_errors(outputs, prompts, **options, method=method)
    np.testing.assert_allclose(found, exact, rtol=0.5)
    assert abs(found.vendi / exact.vendi - 1) > 1e-6
    (curve,) = cv.convergence_curve(
        outputs, prompts, [60, N], **KERNELS, entropies=[cv.renyi(2)], method=method
    )
    assert curve.methods == (method.name,) * 2
    whole = cv.decompose(outputs, prompts, **KERNELS, order=2, method=method)
    np.testing.assert_allclose(curve.vendi[1], whole.vendi)


@pytest.mark.parametrize("entropy", [cv.von_neumann, cv.renyi(2)], ids=str)
def test_slopes_of_features_approach_those_of_the_kernel(entropy, x64, monkeypatch):
    """In the weights of rows and in both bandwidths; weighted, with a row of weight zero."""
    weights = np.random.default_rng(0).gamma(2.0, size=N) * (np.arange(N) != 7)
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(2.0)}
    points = Pairs(*draw_pairs(N), **kernels, weights=weights)

    monkeypatch.setattr(methods, "_drawn", lambda _: (0, 1))

    def sloped(method):
        found = method.sloped(points, entropy, methods.ALL_TERMS, None)
        of_rows = np.stack([of.mean(axis=0) for of in found.of_rows])
        np.testing.assert_array_equal(np.isnan(of_rows[0]), weights == 0)
        bandwidths = np.array([found.of_bandwidths[0], found.of_bandwidths[1]], np.float64)
        return np.nan_to_num(of_rows) * points.shares, bandwidths

    of_rows, of_bandwidths = sloped(cv.Exact())
    found, moved = sloped(cv.Nystroem(KEY))  # Every point is a landmark.
    np.testing.assert_allclose(found, of_rows, atol=1e-6)
    np.testing.assert_allclose(moved, of_bandwidths, rtol=0.01, atol=1e-9)
    found, moved = sloped(cv.RandomFeatures(KEY, count=512))
    assert np.linalg.norm(found - of_rows) < 0.25 * np.linalg.norm(of_rows)
    np.testing.assert_allclose(moved, of_bandwidths, rtol=0.25, atol=1e-9)
    # By the rows' own Grams, and by their features.
    by_way = []
    for dual in (True, False):
        monkeypatch.setattr(cv.RandomFeatures, "_dual", lambda *_, dual=dual: dual)
        by_way.append(sloped(cv.RandomFeatures(KEY, count=64))[0])
    np.testing.assert_allclose(*by_way, atol=1e-9)
