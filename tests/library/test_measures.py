"""Entropies of a discrete measure whose spectrum is known, with nothing left to sample or much."""

import dataclasses
import math

import numpy as np
import pytest
from oracles import renyi, shifted
from scipy.stats import t as student

import condvendi_jax as cv
from condvendi_jax.spectra import measures
from condvendi_jax.spectra.measures import Estimate, Rule, SpectralMeasure

N, DEFLATED = 60, 6
EPS = float(np.finfo(np.float64).eps)


def spectrum(rate=0.9):
    values = rate ** np.arange(N)
    return values / values.sum()


def measured(values, *, probes=4, steps=4, deflated=DEFLATED, seed=0):
    """A measure of a diagonal matrix, its leading eigenvalues deflated exactly."""
    rest = values[deflated:]
    generator = np.random.default_rng(seed)
    # Normal: of signs, every probe of a diagonal matrix is exact.
    vectors = generator.normal(size=(probes, rest.size))
    alpha, beta = np.zeros((probes, steps)), np.zeros((probes, steps))
    for k, start in enumerate(vectors):
        basis = [start / np.linalg.norm(start)]
        for step in range(steps):
            image = rest * basis[-1]
            alpha[k, step] = image @ basis[-1]
            for _ in range(2):
                image = image - sum((image @ q) * q for q in basis)
            beta[k, step] = np.linalg.norm(image)
            basis.append(image / (beta[k, step] or 1.0))
    head = Rule(values[:deflated], np.ones(deflated))
    moments = np.array([rest.size, rest.sum(), np.sum(rest**2)])
    known = SpectralMeasure.of_eigenvalues(values, n=N, eps=EPS, probes=probes)
    return dataclasses.replace(
        known,
        deflated=(head, head),
        alpha=alpha,
        beta=beta,
        squares=np.sum(vectors**2, axis=1),
        moments=moments,
        projected=(values[:deflated], np.zeros(deflated)),
        products=probes * steps,
    )


ENTROPIES = [*((order, None) for order in (1, 2, 3, 2_000, 0.7, math.inf)), (1, 5), (2, 5), (1, 20)]


def exact_entropy(values, order, truncation):
    return float(renyi(values if truncation is None else shifted(values, truncation), order))


def test_moments_are_exact_control_variates():
    """A trace of a quadratic is known whatever the probes: their values have no part in it."""
    values = spectrum()
    measure = measured(values, seed=1)
    trace = measure.trace(lambda x: 3 + 2 * x - 5 * x**2)
    assert trace.per_probe == pytest.approx([3 * N + 2 - 5 * np.sum(values**2)] * 4, rel=1e-10)
    assert trace.gap < 1e-9


def test_eigenvalues_that_pile_up_are_not_spread():
    """Of 40 that are equal the threshold is their value; between the nodes beside it is not."""
    values = np.concatenate([spectrum()[:20], np.full(40, 1e-9)])
    measure = measured(values, probes=16, steps=10, seed=3)
    for t in (35, 45):
        apart, piled = measure.at_rank(t - 0.5)
        assert apart > 2 * piled > 1e-9 > piled / 2
        assert measures._Top(measure, t).tau == piled


def test_a_kink_is_within_what_its_cell_may_add():
    """A hinge over even eigenvalues, by the trapezoids of two nodes: at worst m d / 8."""
    values = np.linspace(1, 0.5, N)
    measure = measured(values / values.sum(), deflated=0, steps=2, seed=1)
    low, high = measure.sampled[0][0].nodes[0]
    count = measure.sampled[0][0].weights.mean(axis=1)
    alone = dataclasses.replace(
        measure, alpha=measure.alpha[:1], beta=measure.beta[:1], squares=measure.squares[:1]
    )
    at = low + (high - low) / 2
    found = alone._within_cell(at, lambda x: 3 * x)
    assert found == pytest.approx(count[0] * 3 * (high - low) / 8)
    even = np.linspace(low, high, 10_001)
    missed = abs(1.5 * (high - at) - np.mean(3 * np.maximum(even - at, 0)))
    assert found == pytest.approx(count[0] * missed, rel=1e-3)
    steep = at, lambda x: 1e3 * x
    assert measure.trace(lambda x: x, steep).gap == measure._within_cell(*steep)
    assert alone._within_cell(2 * high, lambda x: 3 * x) == 0
    whole = alone.sampled[0][0].weights[0, 0] * 3 * low
    assert alone._within_cell(low / 2, lambda x: 3 * x) == pytest.approx(whole)
    assert alone._within_cell(1e-18, lambda x: 3 * x) == 0


def test_truncated_entropies_keep_their_intervals_wherever_the_kink_lies():
    """Hundreds of eigenvalues lie between nodes; without the cell one interval in ten misses."""
    n = 1500
    values = (1 + np.arange(n)) ** -2.0
    values /= values.sum()
    errors = []
    for seed in range(3):
        measure = measured(values, probes=8, steps=10, deflated=20, seed=seed)
        measure = dataclasses.replace(measure, n=n)
        for t in (60, 150, 300, 450, 600, 750, 900):
            estimate = measure.entropy(cv.Entropy(truncation=t))
            missed = estimate.value - exact_entropy(values, 1, t)
            errors.append(missed / estimate.half_width)
    assert np.mean(np.abs(errors) <= 1) >= 0.97
    # Nor are they wide beyond need.
    assert np.sqrt(np.mean(np.square(errors))) > 0.1


@pytest.mark.parametrize(("order", "truncation"), [*ENTROPIES, (0.5, None), (0.5, 50)])
def test_rounding_bounds_what_moved_eigenvalues_do(order, truncation):
    """Moved towards one, all or some others, by up to `off` in the Euclidean norm."""
    towards = [np.eye(N)[0], np.full(N, 1 / N), np.random.default_rng(0).dirichlet(np.ones(N))]
    for values in (spectrum(), spectrum(0.6), np.repeat([1 / 6, 0], [6, N - 6])):
        measure = SpectralMeasure.of_eigenvalues(values, n=N, eps=EPS)
        for off in (1e-7, 1e-4):
            moved = []
            for other in towards:
                step = min(1, off / np.linalg.norm(other - values)) * (other - values)
                found = exact_entropy(np.sort(values + step)[::-1], order, truncation)
                moved.append(abs(found - exact_entropy(values, order, truncation)))
            relative = off / np.linalg.norm(values)
            bound = measure.rounding(cv.Entropy(order=order, truncation=truncation), relative)
            assert max(moved) <= bound <= 0.01 + 1e4 * off or order < 1
            assert max(moved) <= bound


def test_an_interval_is_students_and_what_is_systematic():
    values = np.array([1.0, 1.2, 0.9, 1.1])
    estimate = Estimate(values, gap=0.1, coupling=0.02, rounding=0.003)
    error = np.std(values, ddof=1) / 2
    assert estimate.standard_error == pytest.approx(error)
    assert estimate.noise == pytest.approx(student.ppf(0.975, 3) * error)
    assert estimate.systematic == pytest.approx(0.123)
    low, high = estimate.interval
    assert (low + high) / 2 == pytest.approx(1.05)
    assert (high - low) / 2 == pytest.approx(estimate.noise + 0.123)


def test_a_difference_is_paired_and_its_errors_add():
    one = Estimate(np.array([1.0, 2.0, 3.0]), gap=0.1, rounding=0.01)
    other = Estimate(np.array([0.5, 1.5, 2.5]), gap=0.2, coupling=0.03)
    difference, total = one - other, one + other
    assert difference.noise == pytest.approx(0, abs=1e-12)
    assert difference.value == pytest.approx(0.5)
    assert total.value == pytest.approx(3.5)
    for found in (difference, total):
        assert found.gap == pytest.approx(0.3)
        assert (found.coupling, found.rounding) == (0.03, 0.01)


def test_residuals_of_what_is_projected_off_widen_the_interval():
    values = spectrum()
    clean = measured(values)
    loose, half = (
        dataclasses.replace(clean, projected=(values[:DEFLATED], np.full(DEFLATED, residual)))
        for residual in (1e-2, 5e-3)
    )
    assert clean.entropy().coupling == 0 < half.entropy().coupling
    # To second order in the residuals.
    assert loose.entropy().coupling / half.entropy().coupling == pytest.approx(4)
