"""The checks of theory_checks.concentration can fail, and its populations are what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theory_checks import claim, concentration, oracle
from theory_checks.claim import Verdict, try_claim

CLAIMS = claim.registry()


def _verdict(name):
    return try_claim(CLAIMS[name]).judgement.verdict


@pytest.mark.parametrize("name", ["cv-lemma-4", "cv-theorem-4"])
def test_a_bound_eight_times_smaller_fails(monkeypatch, name):
    """The printed constant is loose, but by less than a factor 8."""
    epsilon = concentration._epsilon
    monkeypatch.setattr(concentration, "_epsilon", lambda n, delta: epsilon(n, delta) / 8)
    assert _verdict(name) is Verdict.FALSE


@pytest.mark.parametrize(
    ("name", "attribute", "factor"),
    [
        ("cv-lemma-4-sharp", "_sharp_epsilon", 0.5),
        ("cv-theorem-1-sharp", "_theorem_1_sharp", 0.1),
        ("cv-theorem-2-sharp", "_theorem_2_sharp", 0.02),
        ("cv-theorem-3-sharp", "_theorem_3_interval", 0.05),
        ("cv-theorem-3-appendix", "_theorem_3_bound", 1e-3),
    ],
)
def test_a_shrunken_bound_fails(monkeypatch, name, attribute, factor):
    """Each Monte Carlo check goes red once its bound is small enough."""
    bound = getattr(concentration, attribute)
    monkeypatch.setattr(concentration, attribute, lambda *a: factor * bound(*a))
    assert _verdict(name) is Verdict.FALSE


def test_a_wrong_shift_fails(monkeypatch):
    """Lemmas A and B are about the shift: rescaling breaks them."""

    def rescale(v, t):
        out = np.zeros_like(v)
        out[:t] = v[:t] / max(v[:t].sum(), 1e-12)
        return out

    monkeypatch.setattr(concentration, "_shift_first", rescale)
    assert _verdict("cv-lemma-a") is Verdict.FALSE
    assert _verdict("cv-lemma-b") is Verdict.FALSE


def test_wider_premises_fail():
    """Lemmas 2 and 3 fail outside the ranges that are claimed."""
    a, b = 0.3, 1.0
    difference = abs(a * np.log(1 / a) - b * np.log(1 / b))
    assert difference > (b - a) * np.log(1 / (b - a))
    u = np.array([1 / np.e])
    assert np.sum(u * np.log(1 / u)) > 0.5 * np.log(1 / 0.5)


def test_collapse_against_enumeration():
    """The counterexample to Theorem 3 in small: its chance and its deviation, counted."""
    n, rare, images = 3, 0.4, 5
    case = concentration._collapse(n, rare, images)
    chance = rare**3 * (4 / 5) * (3 / 5)
    assert np.isclose(10 ** case["log10_delta"], chance)
    weights = np.array([1 - rare, *np.full(images, rare / images)])
    prompts = np.array([0, *np.ones(images)])
    gram_t = (prompts[:, None] == prompts[None, :]).astype(float)
    population = concentration.Population("collapse", np.eye(6), gram_t, weights)
    sample = np.array([0, 1, 1, 1, 0, 0]) / 3
    deviation = population.conditional_rke(sample) - population.conditional_rke(weights)
    assert np.isclose(case["deviation"], deviation)
    joint, t = (float(v) for v in population.norms(weights))
    bound = concentration._theorem_3_norms(joint, t, n, np.log(4 / chance))
    assert np.isclose(case["bound"], bound)


@pytest.mark.parametrize("population", concentration.populations(), ids=lambda p: p.name)
def test_frequencies_stand_for_samples(population):
    """Scores from frequencies equal scores from the Grams of the sample itself."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(12, population.weights / population.weights.sum())
    index = np.repeat(np.arange(len(counts)), counts)
    k_x, k_t = (g[np.ix_(index, index)] for g in (population.gram_x, population.gram_t))
    exact = oracle.conditional_entropy(k_x, k_t)
    np.testing.assert_allclose(population.conditional_entropy(counts / 12), exact, atol=1e-10)
    rke = np.sum(k_t**2) / np.sum((k_x * k_t) ** 2)
    np.testing.assert_allclose(population.conditional_rke(counts / 12), rke)


_UNIT = st.floats(0, 1)


@given(_UNIT, st.floats(0, 0.5))
def test_lemma_2_property(low, gap):
    """|a log 1/a - b log 1/b| <= |b - a| log 1/|b - a| up to a gap of 1/2."""
    a = low * (1 - gap)
    b = a + gap
    left = np.abs(np.diff(concentration._entropy_terms(np.array([a, b]))))[0]
    # b - a as it is after rounding, not the gap that was asked for.
    assert left <= concentration._entropy_terms(np.array([b - a]))[0] + 1e-12


@given(hnp.arrays(float, st.integers(1, 8), elements=_UNIT), _UNIT)
def test_lemma_3_property(u, share):
    """The entropy terms of a short vector, up to the length sqrt(d) / e."""
    d = len(u)
    length = np.linalg.norm(u)
    epsilon = max(share * np.sqrt(d) / np.e, 1e-9)
    u = u * min(1.0, epsilon / length) if length > 0 else u
    bound = epsilon * np.sqrt(d) * np.log(np.sqrt(d) / epsilon)
    assert np.sum(concentration._entropy_terms(u)) <= bound + 1e-12


@given(
    st.integers(1, 6).flatmap(
        lambda d: st.tuples(
            hnp.arrays(float, d, elements=st.floats(1e-3, 1)),
            hnp.arrays(float, d, elements=st.floats(1e-3, 1)),
            st.integers(1, d),
        )
    )
)
def test_lemma_b_property(case):
    """The shift is nonexpansive, by index and on sorted spectra."""
    u, v, t = case
    u, v = u / u.sum(), v / v.sum()
    distance = np.linalg.norm(u - v) + 1e-12
    by_index = concentration._shift_first(u, t) - concentration._shift_first(v, t)
    assert np.linalg.norm(by_index) <= distance
    assert np.linalg.norm(oracle.truncate(u, t) - oracle.truncate(v, t)) <= distance
