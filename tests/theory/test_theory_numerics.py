"""Numerics behind the claims on identities, limits, guidance and MID, by hand and by quadrature."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import condvendi_jax as cv
from theory_checks import claim, guidance, identities, limits, mid, numerics
from theory_checks.evidence import Verdict


def test_scores_of_three_labels_by_hand():
    """Of outputs a a b and prompts r s r, both marginals (2/3, 1/3); of three unlike outputs."""
    k_x, k_t = identities._same("aab"), identities._same("rsr")
    by_hand = 2 * math.log(3 / 2) - math.log(3)
    assert numerics.information(k_x, k_t, math.inf) == pytest.approx(by_hand)
    assert by_hand < -0.28
    scores = [np.exp(numerics.conditional_entropy(np.eye(3), k_x, order)) for order in (1, 2)]
    np.testing.assert_allclose(scores, [2 ** (2 / 3), 5 / 3])


@pytest.mark.parametrize("order", [2, 3])
def test_the_library_gives_the_traces_of_powers(order):
    """`decompose` and `rke` against products of Grams."""
    outputs, prompts = identities._pairs(np.random.default_rng(order))
    grams = identities._grams(np.random.default_rng(order))
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(0.7)}
    with claim.double_precision():
        found = cv.decompose(outputs, prompts, **kernels, order=order)
        whole = cv.rke(outputs, kernel=cv.Gaussian(1.0)) if order == 2 else found.vendi
    expected = identities._trace_forms(order, *grams)
    np.testing.assert_allclose([found.conditional, found.information, whole], expected)


def _with_moments(mass, second, cap):
    """All triples in [0, cap] of this sum and sum of squares, on a fine grid of the circle."""
    radius = math.sqrt(max(second - mass**2 / 3, 0.0))
    first, other = np.array([1, -1, 0]) / math.sqrt(2), np.array([1, 1, -2]) / math.sqrt(6)
    angles = np.linspace(0, 2 * np.pi, 20001)[:, None]
    triples = mass / 3 + radius * (np.cos(angles) * first + np.sin(angles) * other)
    return triples[(triples >= -1e-12).all(1) & (triples <= cap + 1e-12).all(1)].clip(0)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 3.0])
def test_tails_are_extreme_among_all_triples(order):
    """Enumeration of a tail of three values, with and without a cap that binds."""
    tails = itertools.product((0.1, 0.5, 0.9), repeat=3)
    for top, tail in itertools.product(([0.4], [0.3, 0.25], [0.5, 0.2]), tails):
        rest = 1 - sum(top)
        p = np.array([*top, *(rest * np.array(tail) / sum(tail))])
        if p[len(top) :].max() > min(top):
            continue
        triples = _with_moments(rest, np.sum(p[len(top) :] ** 2), min(top))
        found = numerics.entropy(np.c_[np.tile(top, (len(triples), 1)), triples], order)
        ends = sorted(numerics.entropy(end, order) for end in identities._extremes(p, len(top)))
        np.testing.assert_allclose(ends, [found.min(), found.max()], atol=3e-4)


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


def test_truncated_entropy_and_its_printed_gradient_by_hand():
    """diag(1/2, 1/4, 1/4) at t = 2: shift 1/8, weights 5/8 and 3/8; at t = n no shift."""
    matrix, along = np.diag([0.5, 0.25, 0.25]), np.diag([0.0, 1.0, -1.0])
    value = guidance.truncated_entropy(matrix, 2)
    assert value == pytest.approx(-5 / 8 * math.log(5 / 8) - 3 / 8 * math.log(3 / 8))
    assert guidance.truncated_entropy(np.diag([0.5, 0.5]), 2) == pytest.approx(math.log(2))
    # diag(1/2, 1/3, 1/6): shift 1/12, weights +-log(7/5)/2 on the first two.
    gradient = guidance.printed_gradient(np.diag([1 / 2, 1 / 3, 1 / 6]), 2)
    half = 0.5 * math.log(7 / 5)
    np.testing.assert_allclose(gradient, np.diag([-half, half, 0.0]), atol=1e-12)
    # At a tie equation 24 fails: the slope is log(5/3) / 2.
    rise = guidance.truncated_entropy(matrix + 1e-6 * along, 2)
    assert (rise - value) / 1e-6 == pytest.approx(0.5 * math.log(5 / 3), abs=1e-5)
    printed = np.sum(guidance.printed_gradient(matrix, 2) * along)
    assert abs(printed) == pytest.approx(0.5 * math.log(5 / 3), abs=1e-5)
    assert guidance.difference(lambda h: h**4 + 3 * h + 1) == pytest.approx(3.0, abs=1e-10)


def test_slopes_of_latents_by_hand():
    """Repeated pairs: NaN for a slope. Two latents at distance h: score 2/(1 + e^(-h^2))."""
    # Eigenvalues of 0, 0, 1 with one prompt: 0 and (3 +- sqrt(1 + 8 k^2)) / 6, k = exp(-1/2).
    batch = guidance.Batch(np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1)))
    root = math.sqrt(1 + 8 * math.exp(-1))
    low, high = (3 - root) / 6, (3 + root) / 6
    slope = (math.log(high) - math.log(low)) * 8 * math.exp(-1) / (6 * root)
    assert np.isnan(guidance.printed_gradient(batch.product() / 3, 3)).any()
    assert batch.measured(batch.entropy(3))[0] == pytest.approx(slope)
    h = 0.8
    batch, near = guidance.Batch(np.array([[0.0], [h]]), np.zeros((2, 1))), math.exp(-(h**2))
    assert batch.conditional_rke() == pytest.approx(2 / (1 + near))
    expected = 4 * h * near / (1 + near) ** 2
    assert batch.measured(batch.conditional_rke)[0] == pytest.approx(expected)
    with claim.double_precision():
        assert batch.library()[0] == pytest.approx(expected)


def test_a_random_matrix_for_the_gradient_is_found_out(monkeypatch):
    """The check of -log A + beta I compares with differences, not with itself."""
    right = guidance.printed_gradient

    def wrong(matrix, *rest):
        return np.random.default_rng(0).normal(size=matrix.shape) * np.mean(right(matrix, *rest))

    monkeypatch.setattr(guidance, "printed_gradient", wrong)
    outcome = claim.try_claim(claim.registry()["cv-eq-24-singular"])
    assert outcome.stated.judgement.verdict is Verdict.FALSE


def _bias(n, d_x, d_y):
    form, *_ = claim.registry()["mid-real-pairs"].stated.argument
    return mid.plug_in_bias(form, n, d_x, d_y)


def test_divergence_and_canonical_correlations_by_hand():
    """N(0, 1) against N(1, 4); three pairs of correlation 1/2, which are exaggerated twofold."""
    sample = np.random.default_rng(0).normal(size=(9, 3))
    mean, cov = mid.moments(sample)
    np.testing.assert_allclose(cov, np.cov(sample.T, bias=True), rtol=1e-12)
    assert mid.divergence((mean, cov), (mean, cov)) == pytest.approx(0.0, abs=1e-12)
    value = mid.divergence((np.zeros(1), np.eye(1)), (np.ones(1), 4 * np.eye(1)))
    assert value == pytest.approx(0.5 * (0.25 - 1 + 0.25 + math.log(4)))
    rho, outwards = mid.canonical(mid.moments(mid.THREE)[1], 1)
    np.testing.assert_allclose([rho[0], outwards[0, 0]], [0.5, 2.0])


REAL = -0.5 * math.log(0.75)


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("mid-divergence", (REAL + 0.5, REAL)),
        ("mid-eq-7-any-pairs", (0.0, -0.5)),
        ("mid-eq-8", (0.75, 0.0)),
        ("mid-xmi", (REAL, -REAL)),
    ],
)
def test_counterexamples_of_mid_by_hand(name, sides):
    """Real pairs score -log(3/4)/2, exaggerated ones half a nat more."""
    found = claim.try_claim(claim.registry()[name]).stated.judgement.smallest
    assert found is not None
    assert (found["lhs"], found["rhs"]) == pytest.approx(sides, abs=1e-12)


def test_equality_needs_the_condition_given_the_output():
    """x_hat = 3x, uncorrelated: no loss, though the outputs given the conditions differ."""
    hat, of = mid.moments(mid.FOUR * [3.0, 1.0]), mid.moments(mid.FOUR)
    turned = [(m[::-1], c[::-1, ::-1]) for m, c in (hat, of)]
    assert mid.conditional_gap(hat, of, 1) == pytest.approx(0.0, abs=1e-12)
    assert mid.conditional_gap(turned[0], turned[1], 1) == pytest.approx(4 - math.log(3))
    assert mid.log_ratio(mid.FOUR * [3.0, 1.0], of, 1).mean() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("n", [5, 12, 100])
def test_bias_of_independent_coordinates_by_quadrature(n):
    """The sample correlation r of n independent pairs has density (1 - r^2)^((n-4)/2) / B."""
    norm = special.beta(0.5, (n - 2) / 2)
    power = (n - 4) / 2
    mean, _ = integrate.quad(lambda r: -0.5 * np.log1p(-r * r) * (1 - r * r) ** power, -1, 1)
    assert _bias(n, 1, 1) == pytest.approx(mean / norm, rel=1e-6)


def test_biases_are_symmetric_and_of_first_order():
    assert _bias(50, 3, 7) == pytest.approx(_bias(50, 7, 3))
    assert _bias(10**6, 3, 2) == pytest.approx(3e-6, rel=1e-3)
    _, loss, _ = claim.registry()["mid-real-pairs"].stated.argument
    assert loss({"n": 10**6, "d_x": 3, "d_y": 2}) == pytest.approx(6e-6, rel=1e-3)
