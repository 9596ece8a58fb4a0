"""The numerics behind theory_checks.concentration, against enumeration and closed forms."""

import itertools

import numpy as np
import pytest
from scipy import optimize, stats

from theory_checks import concentration, numerics
from theory_checks.populations import Population, finite_populations, product

POPULATIONS = finite_populations()


def _three_atoms(seed=0):
    rng = np.random.default_rng(seed)
    x, t = (numerics.unit_features(rng, 3, 2) for _ in range(2))
    return Population("three", x @ x.T, t @ t.T, rng.dirichlet(np.full(3, 3.0)))


def _all_samples(p, n):
    """Chance and frequencies of every sample of size n."""
    draws = np.array(list(itertools.product(range(len(p.weights)), repeat=n)))
    frequencies = np.stack([(draws == atom).mean(axis=1) for atom in range(len(p.weights))], axis=1)
    return np.prod(p.weights[draws], axis=1), frequencies


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda p: p.name)
def test_frequencies_stand_for_samples(population):
    """Scores from frequencies equal scores from the Grams of the sample itself."""
    counts = population.frequencies(np.random.default_rng(0), 12, 1)[0] * 12
    index = np.repeat(np.arange(len(counts)), np.round(counts).astype(int))
    k_x, k_t = (g[np.ix_(index, index)] for g in (population.gram_x, population.gram_t))
    exact = numerics.conditional_entropy(k_x, k_t)
    np.testing.assert_allclose(population.conditional_entropy(counts / 12), exact, atol=1e-10)
    rke = np.sum(k_t**2) / np.sum((k_x * k_t) ** 2)
    np.testing.assert_allclose(population.conditional_rke(counts / 12), rke)


def test_orthogonal_outputs_are_their_spectrum():
    """Without a Gram as with one: scores and norms, truncated or not."""
    weights = [0.4, 0.3, 0.2, 0.1]
    many, small = concentration.Orthogonal(np.array(weights)), product("four", weights, [1.0])
    f = many.frequencies(np.random.default_rng(0), 7, 3)
    for t in (None, 2, 4):
        np.testing.assert_allclose(
            concentration._entropy_error(many, f, t), concentration._entropy_error(small, f, t)
        )
    np.testing.assert_allclose(many.norms(f), small.norms(f))
    np.testing.assert_allclose(many.joint, small.joint)
    np.testing.assert_allclose(many.gram_t, small.gram_t)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_moments_by_enumeration(n):
    """Lemma 4's mean, chi^2's mean and variance, and Hoeffding's variance, over all samples."""
    p = _three_atoms(n)
    chances, f = _all_samples(p, n)
    joint = p.norms(p.weights)[0]
    np.testing.assert_allclose(
        chances @ concentration._operator_error(p, f) ** 2, (1 - joint**2) / n
    )
    eigenvalues, features = concentration._operator(p.joint, p.weights)
    off = np.einsum("sk,ki,kj->sij", f - p.weights, features, features)
    chi = np.einsum("sij,i->s", off**2, 1 / eigenvalues)
    mean = chances @ chi
    expected = mean, chances @ (chi - mean) ** 2
    np.testing.assert_allclose(concentration._chi_square(p.joint, p.weights, n), expected)
    mean, first, rest = concentration._hoeffding(p, 0.4)
    v = np.einsum("si,ij,sj->s", f, p.joint**2 - 0.4 * p.gram_t**2, f)
    u = (v - 0.6 / n) * n / (n - 1)
    np.testing.assert_allclose(chances @ u, mean)
    variance = 4 * (p.weights @ first**2) / n + 2 * rest / (n * (n - 1))
    np.testing.assert_allclose(chances @ (u - mean) ** 2, variance)


def test_tails_solve_their_equations():
    """Bernstein's and Cantelli's inequalities, put back."""
    x = concentration._bernstein(0.3, 2.0, 50, 4.0)
    assert np.isclose(50 * x**2 / (2 * (0.3 + 2.0 * x / 3)), 4.0)
    y = concentration._cantelli(0.3, 0.01)
    assert np.isclose(0.3 / (0.3 + y**2), 0.01)


@pytest.mark.parametrize("n", [20, 200, 2000])
@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-3, 1e-6])
def test_sharper_bounds_by_exact_probabilities(n, delta):
    """Two outputs of one prompt: the binomial says how often each bound fails."""
    p = product("two", [0.8, 0.2], [1.0])
    counts = np.arange(n + 1)
    f = np.stack([1 - counts / n, counts / n], axis=1)
    chances = stats.binom.pmf(counts, n, 0.2)
    for error, interval in (
        (concentration._rke_error, concentration._rke_interval),
        (concentration._entropy_error, concentration._entropy_interval),
        (concentration._operator_error, concentration._lemma_4_sharp),
    ):
        low, high = np.broadcast_to(interval(p, n, delta), 2)
        off = error(p, f)
        assert chances[(off > high) | (-off > low)].sum() <= delta


@pytest.mark.parametrize(("distance", "t"), [(0.1, 3), (0.4, 3), (0.9, 3), (0.3, 2)])
def test_fannes_against_search(distance, t):
    """No pair at this distance does worse, and a point mass does as badly."""
    rng = np.random.default_rng(0)
    u, v = rng.dirichlet(np.full(t, 0.3), 4000), rng.dirichlet(np.full(t, 0.3), 4000)
    near = np.abs(u - v).sum(axis=1) / 2 <= distance
    most = np.abs(numerics.entropy(u) - numerics.entropy(v))[near].max()
    spread = min(distance, 1 - 1 / t)
    worst = numerics.entropy(np.array([1 - spread, *np.full(t - 1, spread / (t - 1))]))
    assert most <= concentration._fannes(distance, t) + 1e-12
    assert np.isclose(concentration._fannes(distance, t), worst)


def test_the_missing_root_ends_where_it_is_said_to():
    """The last inequality of Theorem 2 turns at delta = 4 exp(-1 / (7 - 2 sqrt 10))."""

    def gap(delta):
        return 2 * concentration._c(delta) - np.sqrt(20 * np.log(4 / delta))

    assert np.isclose(optimize.brentq(gap, 0.5, 0.99), 4 * np.exp(-1 / (7 - 2 * np.sqrt(10))))
