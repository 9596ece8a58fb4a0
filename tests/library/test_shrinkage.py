"""Similarities of prompts shrunken to those of all: an independent program, and every threshold."""

import math

import numpy as np
import pytest
import scipy.stats

from condvendi_jax.statistics import shrinkage
from condvendi_jax.statistics.shrinkage import Components


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def parts_of(similarity, answers, of_answers, of_pairs):
    count = len(similarity)
    numbers = (np.broadcast_to(of, count) for of in (answers, of_answers, of_pairs))
    answers, zeta, delta = (np.array(of) for of in numbers)
    return Components(answers, np.array(similarity, float), zeta, delta)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (parts_of([0.1, 0.2, 0.3, 0.4], 4, 0.0, 0.2), "expected 5 prompts"),
        (parts_of([0.1, 0.2, 0.3, 0.4, 0.5], [4, 4, 4, 4, 3], 0.0, 0.2), "received 4"),
        (parts_of([0.1, 0.2, 0.3, 0.4, 0.5], 4, 0.0, 0.2), None),
        (parts_of([0.1, 0.2, 0.3, 0.4, 0.5], 4, 0.0, 1.01e-6), None),
        (parts_of([0.1, 0.2, 0.3, 0.4, 0.5], 4, 0.0, 0.99e-6), "all outputs of a prompt"),
        (parts_of([0.1, 0.2, 0.3, 0.4, 0.5], 4, 0.3e-6, 0.39e-6), "all outputs of a prompt"),
        (parts_of([0.1, 0.2, 0.3, 0.4, 0.5], 4, 0.3e-6, 0.41e-6), None),
    ],
)
def test_five_prompts_of_four_outputs_that_differ_are_tested(parts, words):
    found = shrinkage.shrink(parts)
    assert isinstance(found, str) == (words is not None)
    assert words is None or words in found


def test_the_number_of_outputs_needed_solves_its_equation():
    """Where w = between / 4, needed n: 4 zeta / n + 2 delta / (n (n - 1)) = w."""
    similarity = np.linspace(0.1, 0.9, 9)
    spread, _ = shrinkage.shrink(parts_of(similarity, 6, 0.01, 0.1))
    total = similarity.var(ddof=1)
    noise = max(4 * 0.01 / 6 + 0.2 / 30, 2 * 0.12 / 30)
    same(spread.deviation, math.sqrt(total - noise))
    same(spread.reliability, 1 - noise / total)
    n = spread.outputs_needed
    same(4 * 0.01 / n + 2 * 0.1 / (n * (n - 1)), (total - noise) / 4)
    # Of zeta_1 below 0 the noise is at least that of equal answers, and zeta_1 counts as 0.
    spread, _ = shrinkage.shrink(parts_of(similarity, 6, -0.01, 0.1))
    noise = 2 * 0.08 / 30
    same(spread.deviation, math.sqrt(total - noise))
    n = spread.outputs_needed
    same(2 * 0.08 / (n * (n - 1)), (total - noise) / 4)
    spread, _ = shrinkage.shrink(parts_of(np.full(9, 0.5), 6, 0.01, 0.1))
    assert (spread.deviation, spread.reliability, spread.outputs_needed) == (0, 0, math.inf)
    parts = parts_of([0.1] * 7 + [0.5, 0.9], 6, 0.01, 0.1)
    z = 9 / 8 * (parts.similarity - parts.similarity.mean()) ** 2 - parts.within()
    t, a = z.mean() / scipy.stats.sem(z), scipy.stats.skew(z) / 3
    t += a * t**2 / 3 + a**2 * t**3 / 27 + a / 6
    same(shrinkage.shrink(parts)[0].p_value, scipy.stats.t.sf(t, 8))


def by_integration(parts, of_answers, of_pair, noise):
    """The posterior means and ends on the same grid of similarities, with loops over priors."""
    edges = np.sin(np.linspace(0, np.pi / 2, 241)) ** 2
    s, steps = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    u, largest, count = parts.similarity, s**1.5 - s**2, len(parts.similarity)

    def zetas(density):
        rising, most = density @ (s * largest), density @ largest
        if of_answers <= rising:
            zeta_1 = max(of_answers / rising, 0.02) * s * largest
        else:
            part = min((of_answers - rising) / (most - rising), 1)
            zeta_1 = s * largest + part * (1 - s) * largest
        binary = s * (1 - s)
        return zeta_1, min(max(of_pair / (density @ binary), 1e-3), 1) * binary

    def likelihoods(zeta_1, zeta_2):
        rows = []
        for value, k in zip(u, parts.answers, strict=True):
            variance = 4 * zeta_1 / k + 2 * np.maximum(zeta_2 - 2 * zeta_1, 0) / (k * (k - 1))
            slope = steps * (value - s) / variance
            log = np.cumsum(slope) - slope / 2
            rows.append(np.exp(log - log.max()))
        return np.array(rows)

    mean = u.mean()
    pairs = mean * (1 - mean) / noise
    error = max(u.std(), math.sqrt(noise)) / math.sqrt(count) / (mean * (1 - mean))
    priors, weights = [], []
    for logit in np.log(mean / (1 - mean)) + np.linspace(-3.5, 3.5, 13) * min(error, 1):
        at = 1 / (1 + math.exp(-logit))
        for share in (np.arange(16) + 0.5) / 16:
            a = at * pairs * share / (1 - share)
            narrow = np.diff(scipy.stats.beta.cdf(edges, a, a * (1 - at) / at))
            for part in (0, 0.03, 0.1, 0.25):
                wide = np.diff(scipy.stats.beta.cdf(edges, 0.5, 0.5))
                priors.append((1 - part) * narrow + part * wide)
                weights.append(at * (1 - at))
    zeta = zetas(np.histogram(u, edges)[0] / count)
    for _ in range(3):
        likely = likelihoods(*zeta)
        fits = np.log(weights) + np.log(likely @ np.array(priors).T).sum(axis=0)
        start = np.exp(fits - fits.max()) @ np.array(priors)
        start /= start.sum()
        free = start
        for _ in range(10):
            free = np.mean(likely * free / (likely @ free)[:, None], axis=0)
            free = np.convolve(np.r_[free[0], free, free[-1]], [0.25, 0.5, 0.25], "valid")
        every = np.array([*priors, 0.2 * start + 0.8 * free])
        fits = np.r_[fits, np.log(likely @ every[-1]).sum() - 4]
        prior = np.exp(fits - fits.max()) @ every
        posterior = likely * prior / (likely @ prior)[:, None]
        zeta = zetas(posterior.mean(axis=0))
    wide = likelihoods(np.clip(1.5 * zeta[0], s * largest, largest), zeta[1]) * prior
    sums = np.cumsum(wide / wide.sum(axis=1, keepdims=True), axis=1)
    low = [edges[np.flatnonzero(row > 0.005)[0]] for row in sums]
    high = [edges[np.flatnonzero(row > 0.995)[0] + 1] for row in sums]
    return posterior @ s, np.where(u == 0, 0, low), np.where(u == 1, 1, high)


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("of_answers", [0.0001, 0.004, 0.03])
def test_posteriors_are_those_of_an_independent_program(of_answers, kinds):
    """Of many similarities, or of two, for which the prior without a form fits best."""
    rng = np.random.default_rng(3)
    similarity = np.r_[0, 1, rng.beta(2, 5, 28)]
    if kinds:
        similarity = np.repeat([0.02, 0.9], 15)
    parts = parts_of(similarity, np.r_[np.full(15, 5), np.full(15, 12)], of_answers, 0.1)
    of_pair = 2 * of_answers + 0.1
    noise = np.mean(parts.within())
    expected = by_integration(parts, of_answers, of_pair, noise)
    np.testing.assert_allclose(shrinkage.shrink(parts)[1], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("of_answers", [0.002, 0.02, 1.0])
def test_components_at_each_similarity_have_the_means_of_the_prompts(of_answers):
    density = np.random.default_rng(0).dirichlet(np.ones(240))
    zeta_1, zeta_2 = shrinkage._components(density, of_answers, 0.1)
    largest = density @ shrinkage._LARGEST
    assert density @ zeta_1 == pytest.approx(min(of_answers, largest))
    assert density @ zeta_2 == pytest.approx(0.1)
    assert np.all(zeta_1 <= shrinkage._LARGEST + 1e-12)
