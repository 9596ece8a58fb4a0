"""Influences of rows on estimated entropies, against eigenvectors in NumPy float64."""

import jax
import numpy as np
import pytest
from canonical import slow
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.spectra.estimators import Budget, Samplers

N = 300
SMALL = Budget(block=8, sweeps=4, probes=8, steps=12)
KERNELS = {"gaussian": cv.Gaussian(0.5), "cosine": cv.Cosine()}
ENTROPIES = [
    *map(cv.renyi, (1, 0.5, 3, np.inf)),
    *(cv.truncated(t, order=order) for t, order in ((5, 1), (5, np.inf), (60, 2))),
]


def drawn(kernel="gaussian", *, weighted=False):
    """A Gram, its matrix in NumPy, and the shares of the weight, of which two rows have none."""
    points, p = draw_pairs(N)[0], np.full(N, 1 / N)
    gram = cv.gram(KERNELS[kernel], points)
    if weighted:
        p = np.random.default_rng(1).gamma(2.0, size=N) * (np.arange(N) % 150 != 3)
        p = p / p.sum()
        gram = gram.weighted(p)
    matrix = gaussian_gram(points, 0.5) if kernel == "gaussian" else cosine_gram(points)
    return gram, matrix, p


def exact(matrix, p, entropy):
    """phi_i^T h(C) phi_i less its mean, by all eigenvectors of diag(p)^(1/2) K diag(p)^(1/2)."""
    t, order = entropy.truncation or N, entropy.order
    values, vectors = np.linalg.eigh(np.sqrt(p)[:, None] * matrix * np.sqrt(p))
    values, vectors = np.maximum(values[::-1][:t], 0), vectors[:, ::-1][:, :t]
    q = values + (1 - values.sum()) / t
    q = np.where(q > 16 * np.finfo(float).eps * q[0], q, np.nan)  # Zeros change nothing.
    if order == 1:
        slopes = -np.log(q) - 1
    elif np.isinf(order):
        slopes = np.where(np.arange(t) == 0, -1 / q[0], 0)
    else:
        slopes = order / (1 - order) * q ** (order - 1) / np.nansum(q**order)
    slopes = np.nan_to_num(slopes)
    if entropy.truncation:
        slopes = slopes - slopes.mean()
    of_rows = np.square(vectors) @ (values * slopes)
    return np.where(p > 0, of_rows / np.where(p > 0, p, 1) - of_rows.sum(), np.nan)


def samplers_of(gram, seed=0, budget=SMALL):
    return Samplers([gram], key=jax.random.key(seed), budget=budget, rtol=2e-3)


def sampler_of(gram, seed=0, budget=SMALL):
    return samplers_of(gram, seed, budget).of[0]


def replicates(gram, entropy, p, seed):
    """Of a sampler that was deepened and widened."""
    samplers = samplers_of(gram, seed)
    (sampler,) = samplers.of
    assert not sampler.complete
    samplers.deepen([32])
    samplers.widen(16)
    return sampler.influences(entropy, np.full(gram.n, 1 / gram.n) if p is None else p)


@pytest.mark.parametrize(
    ("entropy", "weighted"),
    [
        (ENTROPIES[0], False),
        (ENTROPIES[0], True),
        (ENTROPIES[-2], True),
        *(slow(each, True) for each in (*ENTROPIES[1:-2], ENTROPIES[-1])),
    ],
    ids=str,
)
def test_replicates_are_unbiased_estimates_of_every_influence(entropy, weighted, x64):
    gram, matrix, p = drawn(weighted=weighted)
    truth = exact(matrix, p, entropy)
    found = [replicates(gram, entropy, p if weighted else None, seed) for seed in range(6)]
    assert found[0].shape == (16, N)
    np.testing.assert_allclose(np.nansum(found[0] * p, axis=1), 0, atol=1e-12)

    def size(of_rows):
        """As in a variance, where a row counts by its share."""
        return np.sqrt(np.nansum(np.square(p * of_rows)))

    noise = size(np.std(found, axis=1, ddof=1).mean(axis=0))
    assert noise < size(truth)  # One probe tells something.
    error = np.mean(found, axis=(0, 1)) - truth
    assert size(error) < 1.5 * noise / np.sqrt(6 * 16) + 0.005 * size(truth)
    np.testing.assert_array_equal(np.isnan(error), p == 0)


@pytest.mark.slow
def test_products_of_replicates_estimate_squared_sums_of_groups(x64):
    gram, matrix, p = drawn()
    groups = np.arange(N) // 3 == np.arange(N // 3)[:, None]
    by_products, by_means = [], []
    for seed in range(24):
        sums = replicates(gram, cv.von_neumann, None, seed) @ groups.T
        total, count = sums.sum(axis=0), len(sums)
        by_products.append((np.sum(total**2) - np.sum(sums**2)) / (count * (count - 1)))
        by_means.append(np.sum((total / count) ** 2))
    expected = np.sum((groups @ exact(matrix, p, cv.von_neumann)) ** 2)
    error = np.std(by_products, ddof=1) / np.sqrt(24)
    assert abs(np.mean(by_products) - expected) < 3 * error < 0.015 * expected
    assert np.mean(by_means) - expected > 3 * error  # The noise of the mean counts as influence.


def test_order_two_takes_no_probe(x64):
    gram, matrix, p = drawn()
    found = replicates(gram, cv.renyi(2), None, seed=0)
    np.testing.assert_allclose(found, np.tile(exact(matrix, p, cv.renyi(2)), (16, 1)), atol=1e-9)


@pytest.mark.parametrize("entropy", ENTROPIES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_known_eigenvalues_give_one_exact_replicate(kernel, entropy, x64):
    """Few points, or fewer features than points."""
    for weighted in (False, True):
        gram, matrix, p = drawn(kernel, weighted=weighted)
        (found,) = sampler_of(gram, budget=Budget()).influences(entropy, p)
        # Divided by small eigenvalues and small shares.
        assert_close(found, exact(matrix, p, entropy), loosened=1e4)


def test_equal_rows_have_no_influence_at_any_n():
    gram = cv.gram(cv.Gaussian(1.0), np.ones((700, 2), np.float32), tile_size=128)
    found = sampler_of(gram).influences(cv.von_neumann, np.full(700, 1 / 700))
    np.testing.assert_array_equal(found, np.zeros((1, 700)))
