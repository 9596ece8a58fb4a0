"""The mixture theorems' populations against explicit operators; counterexamples by hand."""

import dataclasses

import numpy as np
import pytest
from scipy import linalg

import condvendi_jax as cv
from theory_checks import claim, mixtures, numerics, populations


def features_of(gram):
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def entries(spectrum):
    """All of them in decreasing order."""
    return np.sort(np.repeat(spectrum.values, spectrum.copies.astype(int)))[::-1]


def small_mixtures():
    rng = np.random.default_rng(5)
    for shape in populations.SHAPES:
        mixture = populations.decode(rng.standard_normal(shape.dimension), shape)
        blocks = tuple(dataclasses.replace(b, copies=min(b.copies, 2.0)) for b in mixture.blocks)
        yield dataclasses.replace(mixture, blocks=blocks)
    yield populations.typical(2.0, 0.3)


def explicit(mixture):
    """Joint features, prompts and weights, one row for every pair."""
    rows = [
        (features_of(b.gram * np.ones((len(b.weights),) * 2)), b, c)
        for b in mixture.blocks
        for c in range(int(b.copies))
    ]
    outputs = linalg.block_diag(*[features for features, _, _ in rows])
    prompts = np.concatenate([b.prompts for _, b, _ in rows])
    weights = np.concatenate([b.weights / b.copies for _, b, _ in rows])
    return outputs, prompts, weights


def test_spectra_and_pair_averages_match_explicit_operators():
    for mixture in small_mixtures():
        x, index, w = explicit(mixture)
        t = features_of(mixture.prompt_gram)[index]
        pairs = np.einsum("ia,ib->iab", x, t).reshape(len(w), -1)
        found = entries(mixture.joint)
        expected = linalg.svdvals(np.sqrt(w)[:, None] * pairs)[: len(found)] ** 2
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-12)
        one_hot = np.eye(mixture.modes)[mixture.component[index]] * w[:, None]
        kernels = (t @ t.T) ** 2, (t @ t.T * (x @ x.T)) ** 2, (x @ x.T) ** 2
        for matrix, kernel in zip(mixture.pairs, kernels, strict=True):
            np.testing.assert_allclose(matrix, one_hot.T @ kernel @ one_hot, atol=1e-12)


def test_truncation_and_distance_with_multiplicities():
    rng = np.random.default_rng(0)
    for t in (1, 2, 5, 9, 30):
        copies = rng.integers(1, 5, (2, 4)).astype(float)
        values = rng.exponential(size=(2, 4))
        spectra = [
            populations.Spectrum(v / (c @ v), c) for v, c in zip(values, copies, strict=True)
        ]
        padded = [np.pad(entries(s), (0, 50 - int(s.copies.sum()))) for s in spectra]
        for spectrum, plain in zip(spectra, padded, strict=True):
            found = entries(spectrum.truncated(t))
            np.testing.assert_allclose(found, numerics.truncate(plain, t)[: len(found)], atol=1e-12)
        for order in (1.0, 2.0, 3.0):
            expected = linalg.norm(padded[0] - padded[1], order)
            assert populations.distance(*spectra, order) == pytest.approx(expected)


def test_counterexamples_by_hand():
    """Theorem 5: p = q = 1e-3, one bandwidth apart; Theorem 6: two images; Theorem 7: four."""
    p, q, copies, overlap = 1e-3, 1e-3, 1e8, np.exp(-1.0)
    first, mass = q**2 + (1 - q) ** 2 / copies, (1 - p) ** 2 + p**2
    joint = (1 - p) ** 2 * first + p**2
    gap = np.log1p(2 * p * (1 - p) * overlap / mass)
    gap -= np.log1p(2 * p * (1 - p) * overlap * q / joint)
    rare = populations.rare_mode(p, q, 1.0, copies)
    assert rare.gap(2.0) == pytest.approx(gap, rel=1e-9)
    bound = 4 * np.log(1 / (1 - 32 * p * overlap / np.sqrt(mass)))
    printed = claim.registry()["cv-theorem-5"].stated.argument
    assert mixtures.printed_bound(printed, rare, 2.0)[0] == pytest.approx(bound)
    assert bound < abs(gap) / 5
    k, order = 0.005, 1000.0
    gap = np.log(((1 + k) ** order + (1 - k) ** order) / 2) / (order - 1)
    assert populations.two_prompts(k).gap(order) == pytest.approx(gap, rel=1e-9)
    cut = populations.square(2)
    assert entries(cut.joint) == pytest.approx([0.25] * 4)
    assert entries(cut.joint.truncated(2)) == pytest.approx([0.5, 0.5])


def test_overlap_bound_is_nearly_attained():
    """A mode that with probability 1e-5 is where the other is, 40 bandwidths off: Cantelli."""
    form = claim.registry()["cv-theorem-5"].holding.argument[2]
    mixture = populations.straggler(1e-5, 40.0, 1.0)
    exact = mixture.pairs[0][0, 1] / np.prod(mixture.weights)
    bound = mixtures.kappa(form, mixture, np.ones(2))[0, 1]
    assert exact <= bound < 1.4 * exact
    near = populations.typical(1.0)
    exact = near.pairs[0] / np.outer(near.weights, near.weights)
    np.testing.assert_allclose(mixtures.kappa(form, near, np.ones(3)), exact)


def test_gram_schmidt_and_the_distance_of_eq_18_on_features():
    gram = numerics.gaussian(np.array([[0.0], [1.0], [-1.0], [2.5]]))
    phi = np.linalg.cholesky(gram)
    np.testing.assert_allclose(mixtures.orthonormal(gram) @ phi, np.eye(4), atol=1e-12)
    mixture = populations.typical(1.0, 0.3)
    x, index, w = explicit(mixture)
    phi = features_of(numerics.gaussian(np.concatenate([mixture.location, mixture.means])))
    u = (mixtures.orthonormal(mixture.mean_gram) @ phi[-3:])[mixture.component]
    pairs = [np.einsum("ia,ib->iab", x, t[index]).reshape(len(w), -1) for t in (phi[:-3], u)]
    distance = linalg.norm(np.subtract(*((part.T * w) @ part for part in pairs))) ** 2
    form = claim.registry()["cv-eq-18"].stated.argument
    assert mixtures.eq_18(form, mixture, 2.0)[0] == pytest.approx(distance)


@pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
def test_alignment_is_the_matrix_power(order):
    mixture = populations.typical(1.0)
    expected = np.diag(linalg.fractional_matrix_power(mixture.mean_gram, order))
    np.testing.assert_allclose(mixtures.alignment(mixture, order), expected, rtol=1e-9)


def test_mean_of_the_library():
    """Clusters of five and two: at order 2 the harmonic mean, weights proportional to squares."""
    outputs, prompts = (
        np.array([0, 1, 2, 3, 3, 9, 9], np.float32)[:, None],
        np.array([0] * 5 + [1] * 2),
    )
    kernels = {"output_kernel": cv.Gaussian(0.05), "prompt_kernel": cv.Indicator()}
    found = cv.conditional_rke(outputs, prompts, **kernels)
    forms = claim.registry()["cv-theorem-6-aggregate"].stated.argument
    names = {r"\omega_i": np.array([5 / 7, 2 / 7]), "S_i": np.array([25 / 7, 1.0]), r"\alpha": 2}
    for form in forms:
        assert float(found) == pytest.approx(np.exp(form(names)), rel=1e-5)
