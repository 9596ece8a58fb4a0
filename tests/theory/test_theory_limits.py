"""The laws of theory_checks.limits, against loops over all rows and against other quadrature."""

import itertools

import numpy as np
from scipy import integrate, stats

from theory_checks import limits


def test_repeats_are_the_counts_of_all_samples():
    """Rows: another prompt, the prompt with a new answer, the prompt with its one answer."""
    n, mass, rate = 4, 0.6, 0.3
    chances = np.array([1 - mass, mass * (1 - rate), mass * rate])
    expected = np.zeros((n + 1, n + 1))
    for sample in itertools.product(range(3), repeat=n):
        rows, answers = sum(row > 0 for row in sample), sample.count(2)
        expected[rows, answers] += chances[list(sample)].prod()
    rows, answers, logs = limits.repeats(n, mass, rate)
    np.testing.assert_allclose(np.exp(logs), expected[rows, answers], atol=1e-15)
    np.testing.assert_allclose(np.exp(logs).sum(), 1)


def test_the_mean_of_a_noisy_kernel_is_an_integral():
    points, tau, width = np.array([[0.2, 0.5], [1.3, -0.4]]), 0.4, 0.9

    def integrand(y, gap):
        return np.exp(-((y / width) ** 2)) * stats.norm.pdf(y, gap, np.sqrt(2) * tau)

    gaps = points[0] - points[1]
    expected = np.prod([integrate.quad(integrand, -10, 10, args=(gap,))[0] for gap in gaps])
    means = limits.noisy_squares(points, width, tau)
    np.testing.assert_allclose(means[[0, 1], [1, 0]], expected, rtol=1e-7)
    np.testing.assert_allclose(np.diag(means), 1 / (1 + 4 * tau**2 / width**2))
