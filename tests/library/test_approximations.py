"""Entropies out of finite features: what is extrapolated, what is certain, what is covered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import errors_at
from oracles import draw_pairs, entropy, gaussian_grams

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.spectra import approximate, computation, feature_errors
from experiments.lab import curves

KEY = jax.random.key(2)
KERNELS = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(2.0)}
N = 120
# Of every kind: below 1, Shannon's, a norm, the largest eigenvalue, and truncated ones.
WANTED = [*map(cv.renyi, (0.5, 1, 2, np.inf)), cv.truncated(10), cv.truncated(30, order=2)]


def truths(points, wanted=WANTED):
    """The entropies of outputs, prompts and pairs by all eigenvalues, `[wanted, 3]`."""
    k_x, k_t = gaussian_grams(points.arrays, (1.0, 2.0))
    grams = (k_x, k_t, k_x * k_t)
    return [[entropy(k, order=e.order, truncation=e.truncation) for k in grams] for e in wanted]


def sub_covariance(matrix, subset):
    """Of some groups of features, of trace one."""
    width = matrix.shape[0] // feature_errors.GROUPS
    rows = np.concatenate([np.arange(g * width, (g + 1) * width) for g in subset])
    part = matrix[np.ix_(rows, rows)]
    return part / np.trace(part)


def test_a_power_law_is_carried_to_its_end():
    """H_D = 3 - c D^-s: the estimate is a third of the way from the jackknife, the gap the rest."""
    for s, c in ((0.3, 1.0), (0.5, 0.7), (1.0, 0.4), (2.0, 0.3)):
        sizes = np.array([len(s) for s in feature_errors._SUBSETS]) / feature_errors.GROUPS
        found = feature_errors._extrapolated(3 - c * sizes**-s, 4.0)
        jackknife = 8 * (3 - c) - 7 * (3 - c * (7 / 8) ** -s)
        np.testing.assert_allclose(found.value, jackknife + (3 - jackknife) / 3, atol=1e-9)
        np.testing.assert_allclose(found.gap, abs(3 - jackknife) * 2 / 3, atol=1e-9)
        low, high = found.interval
        assert low - 1e-9 <= 3 <= high + 1e-9


def test_what_has_no_limit_goes_to_the_bound():
    """H_D = log D: nothing says where it ends, but log n does; and below order 1 it goes back."""
    sizes = 64 * np.array([len(s) for s in feature_errors._SUBSETS])
    found = feature_errors._extrapolated(np.log(sizes), np.log(5000))
    np.testing.assert_allclose(found.interval[1], np.log(5000))
    assert found.interval[0] < found.value < found.interval[1]
    below = feature_errors._extrapolated(np.log(sizes), np.log(5000), below_one=True)
    assert below.interval[0] <= np.log(512) + 1e-9


def test_the_order_two_is_unbiased_whatever_the_frequencies(x64):
    """||C||^2 = P + c / D exactly: the mean over draws of e^-H is the kernel's norm."""
    points = Pairs(*draw_pairs(N), **KERNELS)
    truth = np.exp(-np.array(truths(points, [cv.renyi(2)])[0]))
    found = []
    for k in range(60):
        method = cv.RandomFeatures(jax.random.key(k), count=16)
        (computed,) = computation.compute(points, [cv.renyi(2)], method)
        found.append([np.exp(-estimate.value) for estimate in computed.estimates])
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - truth) < 4 * error).all()
    plain = []  # Without the correction.
    for k in range(60):
        drawn = approximate.draw_frequencies(points, key=jax.random.key(k), count=16)
        (covariance,) = approximate.covariances(points, drawn, ("outputs",))
        plain.append(np.sum(np.square(covariance)))
    assert np.mean(plain) - truth[0] > 4 * error[0]


def test_subsets_are_those_of_fewer_frequencies(x64):
    rows = np.random.default_rng(0).normal(size=(50, 32))
    matrix = rows.T @ rows
    matrix = jnp.asarray(matrix / np.trace(matrix))
    norms = feature_errors._norms_of_subsets(matrix)
    spectra = [values for part in feature_errors._spectra_of_subsets(matrix) for values in part]
    for subset, norm, values in zip(feature_errors._SUBSETS, norms, spectra, strict=True):
        expected = np.linalg.eigvalsh(sub_covariance(np.asarray(matrix), subset))[::-1]
        np.testing.assert_allclose(values, expected, atol=1e-12)
        np.testing.assert_allclose(norm, np.sum(expected**2))


@pytest.mark.slow
def test_intervals_hold_the_truth_of_every_order(x64):
    method = cv.RandomFeatures(KEY, count=64)
    points = Pairs(*draw_pairs(N), **KERNELS)
    found = computation.compute(points, WANTED, method)
    for each, expected in zip(found, truths(points), strict=True):
        assert each.method == method.name
        for estimate, truth in zip(each.estimates, expected, strict=True):
            low, high = estimate.interval
            slack = 0.5 * estimate.noise + 1e-9
            assert low - slack <= truth <= high + slack
            assert low <= estimate.value <= high


def test_scores_pair_up_by_frequencies(x64):
    """One draw for all: part of what it does to pairs it does to their prompts."""
    (found,) = computation.compute(
        Pairs(*draw_pairs(N), **KERNELS), [cv.renyi(2)], cv.RandomFeatures(KEY, count=64)
    )
    joint, prompts = found.estimates.joint, found.estimates.prompts
    assert (joint - prompts).standard_error < np.hypot(joint.standard_error, prompts.standard_error)


def test_what_is_not_possible_is_refused():
    outputs = draw_pairs(20, dtype=np.float32)[0]
    gaussian = {"output_kernel": cv.Gaussian(1.0)}
    with pytest.raises(ValueError, match="count: expected a multiple of 8, received 12"):
        cv.RandomFeatures(KEY, count=12)
    with pytest.raises(ValueError, match="key: expected a random key"):
        cv.RandomFeatures(None)
    method = cv.RandomFeatures(KEY, count=8)
    with pytest.raises(TypeError, match="inside jit or vmap nor differentiated"):
        jax.jit(lambda x: cv.vendi(x, kernel=cv.Gaussian(1.0), method=method))(outputs)
    with pytest.raises(TypeError, match="needs points, and there are only their Gram matrices"):
        cv.clusters.prompt_modes(
            outputs, outputs, **gaussian, prompt_kernel=cv.Cosine(), method=method
        )
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(ValueError, match="needs points on one device"):
        cv.decompose(outputs, **gaussian, method=method, mesh=mesh)
    with pytest.raises(TypeError, match="of Gaussian kernels, received"):
        cv.decompose(outputs, output_kernel=cv.Cosine(), method=method)


@pytest.mark.slow
def test_curves_are_of_the_method_at_order_two_too_and_there_are_no_errors(x64):
    method = cv.RandomFeatures(KEY, count=64)
    outputs, prompts = draw_pairs(N)
    with pytest.raises(ValueError, match="random-features gives no standard errors"):
        errors_at(outputs, prompts, **KERNELS, order=2, method=method)
    (curve,) = curves.convergence_curve(
        outputs, prompts, [60, N], **KERNELS, entropies=[cv.renyi(2)], method=method
    )
    assert curve.methods == (method.name,) * 2
    whole = cv.decompose(outputs, prompts, **KERNELS, order=2, method=method)
    np.testing.assert_allclose(curve.vendi[1], whole.vendi)


def test_few_rows_of_features_give_what_their_covariance_gives(x64):
    features = np.random.default_rng(0).normal(size=(30, 64))
    features = jnp.asarray(features / np.linalg.norm(features))
    wanted = [cv.von_neumann, cv.renyi(2), cv.renyi(0.5), cv.truncated(5)]
    matrices = features, features.T @ features
    each = (feature_errors.fourier_estimates(matrix, wanted, 30) for matrix in matrices)
    for few, covariance in zip(*each, strict=True):
        np.testing.assert_allclose(few.per_probe, covariance.per_probe, rtol=1e-9)
        np.testing.assert_allclose(few.gap, covariance.gap, atol=1e-9)
