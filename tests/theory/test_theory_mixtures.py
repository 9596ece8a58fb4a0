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


def test_the_library_obeys_the_identity_of_order_2():
    """Five rows of three prompts: what is borrowed from neighbours, by loops over their answers."""
    prompts, outputs = np.array([0, 0, 1, 1, 3], np.float32)[:, None], np.array([0, 1, 0, 0, 2])
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Gaussian(0.8)}
    score = float(cv.conditional_rke(outputs, prompts, **kernels))
    answers = {0.0: [0.5, 0.5, 0], 1.0: [1, 0, 0], 3.0: [0, 0, 1]}
    shares = {0.0: 2 / 5, 1.0: 2 / 5, 3.0: 1 / 5}
    weights = {
        (t, u): shares[t] * shares[u] * np.exp(-((t - u) ** 2) / 0.8**2)
        for t in shares
        for u in shares
    }
    one_prompt = borrowed = 0.0
    for (t, u), weight in weights.items():
        one_prompt += weight * np.sum(np.square(answers[t]))
        borrowed += weight * np.sum(np.subtract(answers[t], answers[u]) ** 2) / 2
    total = sum(weights.values())
    assert 1 / score == pytest.approx((one_prompt - borrowed) / total, rel=1e-5)
    assert 1 / score < one_prompt / total - 0.02


def test_smooth_outputs_beside_cv_theorem_5():
    """Forty prompts on a circle, and two far ones: each bound has its place (docs/proofs.md)."""
    claims, angles = claim.registry(), 2 * np.pi * np.arange(40) / 40
    first, place = 0.5 + 0.4 * np.sin(angles), np.stack([np.cos(angles), np.sin(angles)], axis=1)
    circle = populations.listed(place / 0.25, np.stack([first, 1 - first], axis=1) / 40)
    far = populations.two_prompts(np.exp(-(3.0**2) / 2))
    printed, corrected = claims["cv-theorem-5"].stated, claims["cv-theorem-5"].holding
    smooth = claims["cv-order-2-smooth"].stated.argument
    one_prompt = np.mean(first**2 + (1 - first) ** 2)
    (_, excess), (_, most) = mixtures.smooth(smooth, circle, 2.0)
    steepest = 0.5 * 2 * 0.4**2 * 0.25**2 * np.log(circle.prompts.norm(2) ** -2)
    assert most == pytest.approx(steepest, rel=5e-3)  # Neighbours change least, by a chord.
    factors = [one_prompt / (one_prompt - part) for part in (excess, most)]
    np.testing.assert_allclose(factors, [1.004, 1.042], atol=5e-4)
    assert mixtures.gamma(circle) == pytest.approx(608, abs=1)
    assert circle.mode_spectrum.norm(2) == pytest.approx(40**-0.5)
    assert np.isnan(mixtures.printed_bound(printed.argument, circle, 2.0)).all()
    ends = mixtures.moment_ends(corrected.argument, circle, np.ones(40))
    assert ends[1] / ends[0] == pytest.approx(2.85, abs=0.01)
    (_, excess), (_, most) = mixtures.smooth(smooth, far, 2.0)
    bound = np.exp(mixtures.printed_bound(printed.argument, far, 2.0)[1])
    found = [1 / (1 - excess), bound, 1 / (1 - most)]
    np.testing.assert_allclose(found, [1.0001, 1.011, 1.083], atol=5e-4)
