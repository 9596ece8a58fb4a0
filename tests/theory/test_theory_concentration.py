"""The numerics behind theory_checks.concentration, against enumeration and closed forms."""

import dataclasses
import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

from condvendi_jax.entropies import eigenvalues
from theory_checks import claim, concentration, evidence, numerics
from theory_checks.populations import Population, finite_populations

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
    """Scores and norms, truncated or not, are those of the frequencies."""
    p = concentration.orthogonal(0.4, 0.3, 0.2, 0.1)
    f = p.frequencies(np.random.default_rng(0), 7, 3)
    np.testing.assert_allclose(p.conditional_entropy(f), numerics.entropy(f), atol=1e-12)
    np.testing.assert_allclose(
        p.conditional_entropy(f, 2), numerics.entropy(numerics.truncate(f, 2)), atol=1e-12
    )
    np.testing.assert_allclose(p.norms(f), [np.linalg.norm(f, axis=1), np.ones(3)])


@pytest.mark.parametrize("n", [2, 3, 4])
def test_moments_by_enumeration(n):
    """Lemma 4's mean, chi^2's mean and variance, and Hoeffding's variance, over all samples."""
    p = _three_atoms(n)
    chances, f = _all_samples(p, n)
    square = chances @ concentration.operator_error(p, f) ** 2
    np.testing.assert_allclose(square, (1 - p.norms(p.weights)[0] ** 2) / n)
    eigenvalues, features = concentration.operator(p.joint, p.weights)
    off = np.einsum("sk,ki,kj->sij", f - p.weights, features, features)
    chi = np.einsum("sij,i->s", off**2, 1 / eigenvalues)
    mean = chances @ chi
    expected = mean, chances @ (chi - mean) ** 2
    np.testing.assert_allclose(concentration.chi_square(p.joint, p.weights, n), expected)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_cells_enumerate_all_samples(n):
    """Chances and errors, against every sequence of draws; two atoms against the binomial."""
    p = _three_atoms(n)
    (chances, f), (frequencies, logs) = _all_samples(p, n), concentration.Cell(p, n).outcomes
    expected = chances @ concentration.entropy_error(p, f)
    assert np.exp(logs).sum() == pytest.approx(1)
    assert np.exp(logs) @ concentration.entropy_error(p, frequencies) == pytest.approx(expected)
    two = concentration.orthogonal(0.8, 0.2)
    frequencies, logs = concentration.Cell(two, n).outcomes
    expected = stats.binom.pmf(np.round(n * frequencies[:, 1]), n, 0.2)
    np.testing.assert_allclose(np.exp(logs), expected)


@pytest.mark.parametrize(("distance", "t"), [(0.1, 3), (0.4, 3), (0.9, 3), (0.3, 2)])
def test_fannes_against_search(distance, t):
    """No pair at this distance does worse, and a point mass does as badly."""
    rng = np.random.default_rng(0)
    u, v = rng.dirichlet(np.full(t, 0.3), 4000), rng.dirichlet(np.full(t, 0.3), 4000)
    near = np.abs(u - v).sum(axis=1) / 2 <= distance
    most = np.abs(numerics.entropy(u) - numerics.entropy(v))[near].max()
    spread = min(distance, 1 - 1 / t)
    worst = numerics.entropy(np.array([1 - spread, *np.full(t - 1, spread / (t - 1))]))
    change = claim.registry()["cv-theorem-2-sharp"].stated.argument[1]
    bound = change(concentration.fannes_names(distance, t))
    assert most <= bound + 1e-12 and np.isclose(bound, worst)


def test_the_missing_root_ends_where_it_is_said_to():
    """The last inequality of Theorem 2 turns at delta = 4 exp(-1 / (7 - 2 sqrt 10))."""
    _, *sides, _ = claim.registry()["cv-theorem-2-second-inequality"].stated.argument
    end = 4 * np.exp(-1 / (7 - 2 * np.sqrt(10)))
    np.testing.assert_allclose(*(side({r"\delta": end}) for side in sides))


@pytest.mark.parametrize("t", [1, 2, 5])
def test_the_library_truncates_by_projection(t):
    """`truncate` against the threshold of the projection onto the simplex."""
    p = np.sort(np.random.default_rng(t).dirichlet(np.ones(7)))[::-1]
    with claim.double_precision():
        found = eigenvalues.truncate(jnp.asarray(p), t)
    np.testing.assert_allclose(found, concentration.projected(p, t))


def test_means_over_pairs_of_rows_by_enumeration():
    """Every pair of three rows, of a population with two prompts that are half alike."""
    p = concentration._HALF
    frequencies, _ = concentration.Cell(p, 3).outcomes
    h = p.gram_t**2 * (p.gram_x**2 - 1 / p.conditional_rke(p.weights))
    found = concentration.h_means(p, frequencies, 3, own=False)
    for row, f in enumerate(frequencies):
        rows = np.repeat([0, 1], np.rint(3 * f).astype(int))
        values = np.array([h[i, j] for i, j in itertools.permutations(rows, 2)])
        assert np.isclose(found[0][row], values.mean())
        assert np.isclose(found[1][row], np.mean(values**2))
    mean, square, logs = concentration.answer_means(0.2, 5, own=False)
    assert np.isclose(np.exp(logs) @ mean, 0) and np.isclose(np.exp(logs) @ square, 0.16)


def test_the_hardest_delta_is_the_chance_of_what_is_rejected_before():
    """Gaps of 3, 2 and 1, each of chance 1 / 4, against a bound of -log delta."""
    gaps, logs = np.array([1.0, 3.0, 0.0, 2.0]), np.log(np.full(4, 1 / 4))
    kept, chances = concentration.hardest(gaps, lambda delta, i: -np.log(delta) + 0 * gaps[i], logs)
    assert kept.tolist() == [1, 3, 0]
    np.testing.assert_allclose(chances, [0.25, 0.5, 0.75], rtol=1e-8)


def test_answers_that_never_repeat_have_the_norms_of_their_grams():
    """A sample's rows of the first prompt are orthogonal; in the population they never meet."""
    p = concentration.Unrepeated("never", np.diag([0.0, 1]), np.eye(2), np.array([0.3, 0.7]), 5)
    grams = [linalg.block_diag(first, np.ones((3, 3))) for first in (np.eye(2), np.ones((2, 2)))]
    norms = p.norms(np.array([[0.4, 0.6]]))
    np.testing.assert_allclose(norms, [[np.linalg.norm(gram) / 5] for gram in grams])
    assert p.conditional_rke(p.weights) == pytest.approx(0.58 / 0.49)


def test_levels_between_the_ends_matter(monkeypatch):
    """A bound that is too small at ordinary delta alone, which three levels do not notice."""
    tail, formula = claim.registry()["cv-lemma-4-sharp"].holding.argument
    exceedances, rng = numerics.exceedances, np.random.default_rng(0)

    def bound(p, n, delta, *others):
        return np.where((delta > 1e-6) & (delta < 0.4), 0.5, 1) * tail.bound(p, n, delta, *others)

    for most, verdict in (({}, evidence.Verdict.FALSE), ({"most": 3}, evidence.Verdict.HOLDS)):
        monkeypatch.setattr(numerics, "exceedances", functools.partial(exceedances, **most))
        cells = [concentration.Cell(concentration.orthogonal(0.5, 0.5), 100)]
        wrong = dataclasses.replace(tail, bound=bound, cells=cells), formula
        assert evidence.judge(concentration.tails(rng, evidence.QUICK, wrong)).verdict is verdict
