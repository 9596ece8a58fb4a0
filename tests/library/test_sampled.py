"""Order 1 from samples of the rows: the identity behind it, its bounds, its intervals, refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw_pairs, entropy, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.grams._pairwise import Factor
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra import _novelty as novelty
from condvendi_jax.spectra._measures import Estimate

KEY = jax.random.key(4)
KERNELS = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(2.0)}
METHOD = cv.Sampled(KEY, rows=256, new_rows=16)
N = 1000


def truths(points):
    """H(X), H(T) and H(X, T) by all eigenvalues, in float64."""
    k_x, k_t = (gaussian_gram(p, s) for p, s in zip(points, (1.0, 2.0), strict=True))
    return [entropy(k) for k in (k_x, k_t, k_x * k_t)]


def log_of(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.log(values)) @ vectors.T


def novelty_of(gram, row, others):
    """1 - Tr S (log(S + psi psi^T) - log S) by the features of a positive Gram, on their span."""
    root = np.linalg.cholesky(gram + 1e-13 * np.eye(len(gram)))
    features, new = root[list(others)], root[row]
    basis = np.linalg.qr(np.vstack([features, new]).T)[0]
    features, new = features @ basis, basis.T @ new
    s = features.T @ features
    values, vectors = np.linalg.eigh(s)
    kept = values > 1e-10
    own = np.sum(values[kept] * np.log(values[kept]))
    # S is zero across psi's part outside of it, where the logarithm of the sum still counts.
    return 1 - (np.trace(s @ log_of(s + np.outer(new, new))) - own)


def test_an_entropy_grows_by_the_novelty_of_further_rows():
    """Over all subsets of 6 rows: G(k + 1) - G(k) = log((k + 1) / k) - (1 - v(k)) / k, v falls."""
    gram = gaussian_gram(np.random.default_rng(0).normal(size=(6, 2)), 1.0)
    sizes = range(1, 7)
    means = [
        np.mean([entropy(gram[np.ix_(s, s)]) for s in itertools.combinations(range(6), k)])
        for k in sizes
    ]
    novelties = [
        np.mean(
            [
                novelty_of(gram, row, others)
                for row in range(6)
                for others in itertools.combinations([i for i in range(6) if i != row], k)
            ]
        )
        for k in sizes[:-1]
    ]
    for k, v in zip(sizes, novelties, strict=False):
        np.testing.assert_allclose(
            means[k] - means[k - 1], np.log((k + 1) / k) - (1 - v) / k, atol=1e-9
        )
    assert (np.diff(novelties) < 0).all()
    assert 0 < novelties[-1] < novelties[0] < 1


def factors_of(points):
    return tuple(
        Factor(kernel, kernel.prepare(jnp.asarray(part)))
        for kernel, part in zip(KERNELS.values(), points, strict=True)
    )


def compressed(points, chosen, near, weight, steps):
    chosen = np.asarray(chosen)
    found = novelty.compressed(factors_of(points), chosen, weight, near=near, steps=steps)
    first, second = map(np.asarray, found)
    # In its own Krylov space the first sample, of the given weights, is tridiagonal.
    np.testing.assert_allclose(np.triu(first, 2), 0, atol=1e-7)
    return novelty.bracket(first, second)


def test_with_all_rows_the_bounds_meet(x64):
    """And at fewer steps the novelty lies between them."""
    points = draw_pairs(13)
    gram = gaussian_gram(points[0], 1.0) * gaussian_gram(points[1], 2.0)
    expected = novelty_of(gram, 0, range(1, 13))
    before = 1.0
    for steps in (2, 4, 8, 16):
        low, high = compressed(points, range(13), 12, 1.0, steps)
        assert low - 1e-9 <= expected <= high + 1e-9
        assert high - low <= before + 1e-9
        before = high - low
    np.testing.assert_allclose((low, high), expected, rtol=1e-6)


def test_samples_bound_the_novelty_in_the_mean(x64):
    """Of 60 other rows, 6 are in both samples and 9 of the others in either, of weight 6."""
    points, rng = draw_pairs(61), np.random.default_rng(1)
    gram = gaussian_gram(points[0], 1.0) * gaussian_gram(points[1], 2.0)
    nearest = 1 + np.argsort(-gram[0, 1:])
    found = []
    for _ in range(60):
        apart = rng.permutation(nearest[6:])[:18]
        found.append(compressed(points, [0, *nearest[:6], *apart], 6, 6.0, 20))
    expected = novelty_of(gram, 0, range(1, 61))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert mean[0] - 3 * error[0] < expected < mean[1] + 3 * error[1]
    assert mean[1] - mean[0] < 0.5


def test_intervals_hold_the_entropies_of_all_rows():
    points = draw_pairs(N, dtype=np.float32)
    expected = truths(points)
    misses = 0
    for seed in range(3):
        method = cv.Sampled(jax.random.key(seed), rows=256, new_rows=16)
        (found,) = methods.compute(Pairs(*points, **KERNELS), [cv.von_neumann], method)
        assert found.method == "sampled"
        for estimate, value, truth in zip(found.estimates, found.values, expected, strict=True):
            low, high = estimate.interval
            assert low < float(value) < high
            assert high - low < 1.0
            slack = 0.5 * estimate.noise
            misses += not low - slack <= truth <= high + slack
    assert misses == 0


def test_intervals_reach_over_both_bounds(monkeypatch):
    """Of known novelties: G(m) + log(n / m) - (1 - v) (1/m + ... + 1/(n-1)) at either end."""
    bounds = novelty.Bounds(0.1, 0.3)
    monkeypatch.setattr(novelty, "_novelties", lambda *_: [[bounds]])
    start = [Estimate(np.full(2, 2.0), gap=0.01)]
    points = Pairs(draw_pairs(300, dtype=np.float32)[0], output_kernel=cv.Gaussian(1.0))
    (found,) = novelty.estimates(
        points, [(0,)], lambda *_: start, key=KEY, rows=100, new_rows=novelty.REPLICATES
    )
    total = np.sum(1 / np.arange(100, 300))
    ends = [2 + np.log(3) - (1 - v) * total for v in bounds]
    slack = 0.01 + found.rounding
    np.testing.assert_allclose(found.interval, (ends[0] - slack, ends[1] + slack), rtol=1e-6)
    assert np.mean(ends) < found.value < ends[1]


def test_a_row_is_compared_with_the_rows_before_it(monkeypatch):
    """With the nearest, and with two samples of the others, which stand for all others."""
    calls = []

    def recorded(factors, chosen, weight, *, near, steps):
        calls.append((chosen, weight))
        return np.eye(2), np.eye(2)

    monkeypatch.setattr(novelty, "compressed", recorded)
    points, rng = draw_pairs(90), np.random.default_rng(0)
    order, place = rng.permutation(90), 70
    novelty._novelties(factors_of(points), [(0, 1)], order, np.array([place]), 64, rng)
    ((chosen, weight),) = calls
    assert weight == (70 - 16) / 24
    assert chosen[0] == order[place]
    assert len(set(chosen)) == 1 + 16 + 2 * 24
    assert set(chosen[1:]) <= set(order[:place])
    gram = gaussian_gram(points[0], 1.0) * gaussian_gram(points[1], 2.0)
    nearest = sorted(order[:place], key=lambda row: -gram[chosen[0], row])[:16]
    assert set(chosen[1:17]) == set(nearest)


def test_kernels_that_are_not_finite_are_refused(monkeypatch):
    points = draw_pairs(300, dtype=np.float32)
    monkeypatch.setattr(novelty, "_rows_with_all", lambda *_: np.full((2, 300), np.nan))
    with pytest.raises(ValueError, match="not finite"):
        cv.decompose(*points, **KERNELS, method=METHOD)


def test_scores_have_intervals_and_the_key_decides():
    points = draw_pairs(N, dtype=np.float32)
    found = cv.decompose(*points, **KERNELS, method=METHOD)
    again = cv.decompose(*points, **KERNELS, method=METHOD)
    assert found.vendi == again.vendi
    low, high = found.intervals.conditional
    assert low < found.conditional < high
    alone = cv.decompose(points[0], output_kernel=KERNELS["output_kernel"], method=METHOD)
    low, high = alone.intervals.vendi
    assert low < np.exp(truths(points)[0]) < high


def test_rows_that_repeat_are_not_new():
    """Of four different rows, 250 times each, every score of a sample is nearly that of all."""
    outputs = np.repeat(np.eye(4, dtype=np.float32) * 3, 250, axis=0)
    found = cv.decompose(outputs, output_kernel=cv.Gaussian(0.5), method=METHOD)
    low, high = found.intervals.vendi
    assert low < 4 < high < 4.4


def test_a_sample_of_all_rows_is_exact():
    points = draw_pairs(200, dtype=np.float32)
    found = cv.decompose(*points, **KERNELS, method=METHOD)
    np.testing.assert_allclose(found.vendi, np.exp(truths(points)[0]), rtol=1e-4)
    low, high = found.intervals.vendi
    assert found.estimation is None and low < found.vendi < high < low * 1.001


def test_what_it_cannot_do_is_refused():
    points = draw_pairs(300, dtype=np.float32)
    for refused in ({"rows": 255}, {"new_rows": 7}):
        with pytest.raises(ValueError, match=next(iter(refused))):
            cv.Sampled(KEY, **refused)
    for wanted in ({"order": 0.5}, {"truncation": 5}):
        with pytest.raises(ValueError, match="order 1 without truncation"):
            cv.decompose(*points, **KERNELS, method=METHOD, **wanted)
    with pytest.raises(ValueError, match="weights"):
        cv.decompose(*points, **KERNELS, method=METHOD, weights=np.arange(300) + 1.0)
    with pytest.raises(ValueError, match="no standard errors"):
        cv.evaluate(*points, **KERNELS, method=METHOD, orders=[1])
    with pytest.raises(ValueError, match="contributions"):
        cv.contributions(*points, **KERNELS, method=METHOD)
    with pytest.raises(TypeError, match="inside jit"):
        jax.jit(lambda x: cv.vendi(x, kernel=cv.Cosine(), method=METHOD))(points[0])
