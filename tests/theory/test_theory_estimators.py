"""The estimators of theory_checks.estimators, against loops over all samples and the library."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from condvendi_jax.statistics import shrinkage
from theory_checks import claim, estimators, numerics
from theory_checks.numerics import gaussian

CLAIMS = claim.registry()
SHARES = st.floats(0.05, 0.95)
FEW = settings(max_examples=25, derandomize=True, deadline=None)


def _law(first, second, weight, near_t, near_x):
    """Two prompts with two outputs each; squared kernels of both."""
    p = np.array([[first, 1 - first], [second, 1 - second]])
    k_t, k_x = (np.array([[1, k], [k, 1]]) for k in (near_t, near_x))
    return np.array([weight, 1 - weight]), p, k_t, k_x


@FEW
@given(st.tuples(*[SHARES] * 5), st.sampled_from([(2,), (2, 2), (3, 2), (4,)]))
def test_mean_and_variance_of_order_2_at_a_design(shares, counts):
    """The statement against a loop over prompts, answers and pairs of rows."""
    w, p, k_t, k_x = law = _law(*shares)
    first = second = norm = 0.0
    answers = [itertools.product(range(2), itertools.product((0, 1), repeat=k)) for k in counts]
    for sample in itertools.product(*answers):
        chance = np.prod([w[t] * np.prod(p[t, list(x)]) for t, x in sample])
        u = [np.mean([k_x[pair] for pair in itertools.combinations(x, 2)]) for _, x in sample]
        rows = [(t, each) for t, x in sample for each in x]
        pairs = [k_t[a[0], b[0]] * k_x[a[1], b[1]] for a in rows for b in rows]
        first, second = first + chance * np.mean(u), second + chance * np.mean(u) ** 2
        norm += chance * np.mean(pairs)
    names, k = estimators.moments(law), np.array(counts)
    names |= {"k_i": k, "w_i": k / k.sum(), "P": len(k), "n": k.sum()}
    expected, variance = (form(names) for form in CLAIMS["cv-order-2-designs"].stated.argument)
    np.testing.assert_allclose([first, second - first**2], [names["s_w"], variance], atol=1e-12)
    assert norm == pytest.approx(expected)


def test_the_library_estimates_the_components_without_bias():
    """Means over all samples of four answers: of U, zeta_1 and zeta_2 - 2 zeta_1."""
    law = _law(0.3, 0.3, 0.5, 1.0, 0.4)
    chances, h = estimators.samples(law, (4,))
    sums = [(k.sum(1) - 1, np.sum(k**2, axis=1) - 1) for k in np.moveaxis(h, -1, 0)]
    found = [shrinkage.of_sums(*of, np.ones(4), np.zeros(4, int), 1)[1:] for of in sums]
    names = estimators.moments(law)
    one, two = names[r"\zeta_1"], names[r"\zeta_2"]
    np.testing.assert_allclose(chances @ np.squeeze(found), [names["s_w"], one, two - 2 * one])


def test_cut_entropy_by_hand():
    """Two rows of kernel c: 1 - c^2 at depth 2; deep series are entropies."""
    kernels = np.array([[1, 0.6], [0.6, 1]])[..., None]
    np.testing.assert_allclose(estimators.cut(kernels, 2), 1 - 0.6**2)
    p, (_, series) = np.array([0.7, 0.3]), CLAIMS["cv-cut-series"].stated.argument
    deep = series({r"\lambda_i": p, "j": np.arange(1, 200)})
    assert deep == pytest.approx(numerics.entropy(p))


@FEW
@given(st.lists(st.tuples(*[st.floats(-3, 3)] * 2), min_size=2, max_size=4), SHARES, SHARES)
def test_log_scores_are_concave_in_the_inverse_square_of_the_bandwidth(points, weight, end):
    """Orders 1, 2, 3 and infinity: between two bandwidths, and from none of it."""
    x, t = np.transpose(points)[..., None]
    w = np.append(np.full(len(x) - 1, (1 - weight) / (len(x) - 1)), weight)
    for order in (1.0, 2.0, 3.0, np.inf):
        low, middle, high = (
            numerics.conditional_entropy(gaussian(x) ** u, gaussian(t), order, w)
            for u in (4 * end, 2 * end + 2, 4.0)
        )
        assert -1e-9 <= low <= middle + 1e-9 <= high + 2e-9
        assert middle >= (low + high) / 2 - 1e-9 and low >= end * high - 1e-9


@pytest.mark.parametrize(("cells", "letters", "n"), [(2, 2, 3), (3, 2, 2), (2, 3, 2)])
def test_laws_of_prompts_asked_once_by_loops(cells, letters, n):
    """Over all functions of the cell and all samples; half of the places prefer nothing."""
    shares, atoms = (1.0, 0.4, 0.0), list(itertools.product(range(cells), range(3), range(letters)))
    functions = list(itertools.product(range(letters), repeat=cells))
    even, total, chi, least = len(atoms) ** -n, 0.0, 0.0, 0.0
    given = [shares[k] + (1 - shares[k]) / letters for k in range(3)]
    rest = [(1 - shares[k]) / letters for k in range(3)]
    s = np.mean([given[k] ** 2 + (letters - 1) * rest[k] ** 2 for k in range(3)])
    for rows in itertools.product(atoms, repeat=n):
        chances = [
            np.prod([(given if f[j] == x else rest)[k] for j, k, x in rows]) for f in functions
        ]
        mixed = np.mean(chances) / (3 * cells) ** n
        total += abs(mixed - even) / 2
        chi += (mixed - even) ** 2 / even
        least += min(mixed, even) * (s - 1 / letters) / 2
    found = estimators.confused(shares, cells, letters, n)
    np.testing.assert_allclose(found[:3], [total, chi, least])
    np.testing.assert_allclose(found[3], [1 / letters, s])


def test_constant_outputs_cannot_be_told_faster_than_the_root_of_n():
    """The 1 / 14 of docs/proofs.md: two binomial laws, by their exact distance."""
    for n in (1, 2, 10, 1000):
        p = 0.75 + np.array([1, -1]) / (8 * np.sqrt(n))
        ends = stats.binom.pmf(np.arange(n + 1)[:, None], n, p)
        distance = np.abs(np.diff(ends, axis=1)).sum() / 2
        gap = np.ptp(p**2 + (1 - p) ** 2)
        assert gap / 2 * (1 - distance) >= 1 / (14 * np.sqrt(n))
