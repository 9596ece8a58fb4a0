"""Spectral measures and influences of rows against exact spectra: agreement, honest intervals."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import N_LARGE as N
from canonical import slow
from oracles import (
    assert_close,
    cosine_gram,
    draw_pairs,
    eigenvalues,
    gaussian_gram,
    renyi,
    shifted,
)
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.grams.operators import DenseGram
from condvendi_jax.spectra import estimators, measures, refinement
from condvendi_jax.spectra.estimators import Budget
from condvendi_jax.spectra.refinement import spectral_measure

SMALL = Budget(block=8, sweeps=8, probes=16, steps=12)
KEY = jax.random.key(3)


def with_spectrum(values, dtype=np.float64):
    """A Gram of the given eigenvalues: a random rotation; only its products are used."""
    generator = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(generator.normal(size=(len(values), len(values))))
    values = np.asarray(values) / np.sum(values)
    return DenseGram(jnp.asarray(len(values) * (rotation * values) @ rotation.T, dtype)), values


SPECTRA = {
    "flat": np.ones(N),
    "power law": 1.0 / np.arange(1, N + 1) ** 1.5,
    "exponential": 0.97 ** np.arange(N),
    "clustered": np.repeat([50.0, 5.0, 0.5, 0.05], N // 4),
    "low rank": np.where(np.arange(N) < 9, 1.0, 0.0),
    "rank beyond the Krylov space": np.where(np.arange(N) < 90, 1.0 + np.arange(N) % 7, 0.0),
    "near constant": np.where(np.arange(N) == 0, 1.0, 1e-4 / N),
    "one outlier": np.where(np.arange(N) == 0, N, 1.0),
    "rank one": np.where(np.arange(N) == 0, 1.0, 0.0),
}
ENTROPIES = [
    *map(cv.Entropy, (1, 0.5, 1.05, 2, 3.5, np.inf)),
    *(cv.Entropy(truncation=t) for t in (1, 5, 40, 200, N)),
    *(cv.Entropy(truncation=40, order=order) for order in (0.5, 2, np.inf)),
]


def exact(entropy, values):
    values = np.sort(values)[::-1]
    if entropy.truncation is not None:
        values = shifted(values, entropy.truncation)
    return float(renyi(values, entropy.order))


FEW = ("power law", "clustered", "low rank", "near constant", "one outlier")


@pytest.mark.parametrize("name", [name if name in FEW else slow(name) for name in SPECTRA])
def test_every_entropy_lies_in_its_interval_widened_by_half(name, dtype):
    """One draw: the 95% interval itself is tested over many draws below."""
    gram, values = with_spectrum(SPECTRA[name], dtype)
    measure = spectral_measure(gram, key=KEY, budget=SMALL)
    for entropy in ENTROPIES:
        found = measure.entropy(entropy)
        assert abs(found.value - exact(entropy, values)) <= 1.5 * found.half_width + 1e-12, entropy
    # Nor are the intervals wide beyond need.
    if name not in ("rank beyond the Krylov space", "exponential"):
        found = measure.entropy()
        assert abs(found.value - exact(cv.von_neumann, values)) < 2e-3
        assert found.half_width < 5e-3


@pytest.mark.slow
def test_intervals_cover_over_draws(x64):
    """100 keys. At a true coverage of 95% fewer than the limit come once in ten thousand runs."""
    gram, values = with_spectrum(SPECTRA["power law"])
    covered = dict.fromkeys(
        (cv.von_neumann, cv.Entropy(truncation=40), cv.Entropy(3), cv.Entropy(0.5)), 0
    )
    for seed in range(100):
        measure = spectral_measure(gram, key=jax.random.key(seed), budget=Budget(4, 6, 8, 12))
        for entropy in covered:
            low, high = measure.entropy(entropy).interval
            covered[entropy] += low <= exact(entropy, values) <= high
    limit = stats.binom(100, 0.95).ppf(1e-4)
    assert min(covered.values()) >= limit, covered


def test_quadrature_is_exact_at_full_krylov_depth(x64):
    """Nine distinct eigenvalues: nine steps find every node, whatever the function."""
    gram, values = with_spectrum(np.repeat(np.arange(1.0, 10.0), 30))
    measure = spectral_measure(gram, key=KEY, budget=Budget(2, 1, 4, 12))
    nodes, weights = measure.sampled[0][0]
    distinct = np.unique(nodes[weights > 1e-6].round(9))
    np.testing.assert_allclose(distinct, np.unique(values), atol=1e-8)
    np.testing.assert_allclose(weights.sum(axis=1), measure.moments[0], rtol=1e-10)
    for entropy in (cv.von_neumann, cv.Entropy(0.5), cv.Entropy(3)):
        assert measure.entropy(entropy).gap < 1e-9


def test_a_complete_krylov_space_is_exact(x64):
    """Deflation of everything: block quadrature alone, no probe has anything left."""
    gram, values = with_spectrum(np.where(np.arange(N) < 40, 1.0 / (1 + np.arange(N)) ** 0.5, 0))
    measure = spectral_measure(gram, key=KEY, budget=SMALL)
    assert measure.products > 0
    for entropy in (cv.von_neumann, cv.Entropy(3), cv.Entropy(truncation=30)):
        found = measure.entropy(entropy)
        assert abs(found.value - exact(entropy, values)) < 1e-9
        assert abs(found.value - exact(entropy, values)) <= found.half_width + 1e-10


@pytest.mark.parametrize("n", [1, 5])
def test_fewer_points_than_a_block_are_solved_entirely(n):
    points = draw_pairs(n, dtype=np.float32)[0]
    measure = spectral_measure(cv.gram(cv.Gaussian(0.5), points), key=KEY)
    found = measure.entropy(cv.von_neumann)
    expected = renyi(eigenvalues(gaussian_gram(points, 0.5)), 1)
    assert measure.products == 0
    assert found.standard_error == 0
    assert abs(found.value - expected) < 1e-5
    with pytest.raises(ValueError, match=f"at most n = {n}, received {n + 1}"):
        measure.entropy(cv.Entropy(truncation=n + 1))


def test_the_key_and_every_part_of_the_budget_change_the_estimate(x64):
    gram, _ = with_spectrum(SPECTRA["power law"])
    small = Budget(6, 4, 4, 6)

    def value(budget, key=KEY):
        return spectral_measure(gram, key=key, budget=budget).entropy().value

    first = value(small)
    assert first == value(small) != value(small, jax.random.key(4))
    for part in ("block", "sweeps", "probes", "steps"):
        larger = dataclasses.replace(small, **{part: 2 * getattr(small, part)})
        assert value(larger) != first
        assert larger.products > small.products
        with pytest.raises(ValueError, match=f"budget.{part}: expected an integer"):
            dataclasses.replace(small, **{part: 0})


@pytest.mark.slow
def test_grams_that_share_tiles_are_sampled_in_the_same_passes_as_alone(x64):
    """Also after batches of probes were deepened and others added."""
    outputs, prompts = draw_pairs(300)
    tiled = functools.partial(cv.grams.TiledGram.from_points, cv.Gaussian(0.7))
    single = [tiled(outputs), tiled(prompts)]
    grams = [*single, single[0] * single[1]]

    def grown(grams):
        samplers = estimators.Samplers(grams, key=KEY, budget=Budget(4, 3, 4, 5), rtol=2e-3)
        samplers.widen(8)
        samplers.deepen(8)
        samplers.widen(16)
        return samplers

    for gram, sampler in zip(grams, grown(grams).members, strict=True):
        found, alone = sampler.measure(), grown([gram]).members[0].measure()
        assert found.alpha.shape == (16, 8)
        for name in ("alpha", "beta", "squares", "moments", "squared_norm", "products"):
            both = getattr(found, name), getattr(alone, name)
            np.testing.assert_allclose(*both, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_refinement_reaches_the_tolerance_or_says_that_it_did_not(x64, monkeypatch):
    gram, values = with_spectrum(0.98 ** np.arange(600))
    rough = spectral_measure(gram, key=KEY, budget=Budget())
    fine = spectral_measure(gram, key=KEY, rtol=1e-3)
    assert rough.entropy().half_width > 1e-3 >= fine.entropy().half_width
    assert abs(fine.entropy().value - exact(cv.von_neumann, values)) <= 1.5e-3
    assert fine.products > rough.products
    monkeypatch.setattr(refinement, "_MAX_PROBES", 32)
    monkeypatch.setattr(estimators, "MAX_STEPS", 32)
    with pytest.warns(UserWarning, match="reached a relative error"):
        spectral_measure(gram, key=KEY, rtol=1e-9)


def sampled(noise, gap, half_gap, complete=False):
    """A sampler and its estimates, at its steps and at half of them."""
    signs = np.resize([1.0, -1.0], 16)
    per_probe = signs * noise / measures.Estimate(signs).noise
    estimates = [measures.Estimate(per_probe, g) for g in (gap, half_gap)]
    sampler = types.SimpleNamespace(steps=16, probes=16, batch=16, complete=complete)
    return sampler, *estimates


def planned(*every, combine=list):
    samplers, now, half = zip(*every, strict=True)
    return refinement._plan(samplers, [list(now)], [list(half)], combine, 1e-3)


ROUGH = (1.55e-3, 0.1e-3, 0.1e-3)


@pytest.mark.parametrize(
    "sizes, steps, probes",
    [
        # Aimed at 0.9e-3. Noise falls with the root of the probes: nearly twice 0.8e-3 takes four.
        (ROUGH, 16, 64),
        # The gap fell to a quarter when the steps were doubled last, and does so again.
        ((0.5e-3, 1.2e-3, 4.8e-3), 32, 16),
        # A gap that would take most probes away: deeper first, as long as that is cheaper.
        ((1.2e-3, 0.6e-3, 6e-3), 32, 48),
        # Nothing is predicted to do: a gap need not fall evenly.
        ((0.1e-3, 50e-3, 51e-3), 32, 16),
    ],
)
def test_a_plan_is_the_cheapest_that_is_predicted_to_do(sizes, steps, probes):
    assert planned(sampled(*sizes)) == (steps * probes, steps, probes)


def test_what_is_asked_of_a_difference_is_planned_for_it_alone():
    exact, rough = sampled(0, 0, 0, complete=True), sampled(*ROUGH)
    assert planned(exact) is None
    assert planned(exact, rough)[2] == 64
    assert planned(rough, rough, combine=lambda row: [row[0] - row[1]])[2] == 16


def test_what_deflation_leaves_has_a_square_to_all_digits():
    """A difference of norms would keep none: 1e-7 of a norm near one, in float32."""
    spectrum = np.concatenate([[0.9], np.full(599, 0.1 / 599)])
    gram, values = with_spectrum(spectrum, np.float32)
    measure = spectral_measure(gram, key=KEY, budget=Budget())
    count, error = round(float(600 - measure.moments[0])), measure.moment_errors[2]
    expected = np.sum(np.sort(values)[: 600 - count] ** 2)
    assert abs(measure.moments[2] - expected) <= error < 0.01 * expected
    assert 600 - count > 300


def test_the_tolerance_is_about_the_entropies_that_are_asked_for(x64):
    gram, _ = with_spectrum(1 / np.arange(1, 601) ** 0.7)
    smooth, cut = cv.Entropy(3), cv.Entropy(truncation=150)
    loose, tight = (
        spectral_measure(gram, key=KEY, rtol=1e-4, entropies=entropies)
        for entropies in ([smooth], [smooth, cut])
    )
    assert tight.products > loose.products
    assert loose.entropy(cut).half_width > 1e-4 >= tight.entropy(cut).half_width


def test_bad_requests_are_refused():
    for arguments, message in (
        ({"rtol": 0.0}, "rtol: expected a number between 0 and 1, received 0.0"),
        ({"rtol": 1e-3, "budget": SMALL}, "at most one"),
    ):
        with pytest.raises(ValueError, match=message):
            spectral_measure(DenseGram(jnp.eye(30)), key=KEY, **arguments)


# Influences of rows on estimated entropies, against eigenvectors in NumPy.

FEW_ROWS = 300
FEWER = Budget(block=8, sweeps=4, probes=8, steps=12)
KERNELS = {"gaussian": cv.Gaussian(0.5), "cosine": cv.Cosine()}
OF_ROWS = [
    *map(cv.Entropy, (1, 0.5, 3, np.inf)),
    *(cv.Entropy(truncation=t, order=order) for t, order in ((5, 1), (5, np.inf), (60, 2))),
]


def drawn(kernel="gaussian", *, weighted=False):
    """A Gram, its matrix in NumPy, and the shares of the weight, of which two rows have none."""
    points, p = draw_pairs(FEW_ROWS)[0], np.full(FEW_ROWS, 1 / FEW_ROWS)
    gram = cv.gram(KERNELS[kernel], points)
    if weighted:
        p = np.random.default_rng(1).gamma(2.0, size=FEW_ROWS) * (np.arange(FEW_ROWS) % 150 != 3)
        p = p / p.sum()
        gram = gram.weighted(p)
    matrix = gaussian_gram(points, 0.5) if kernel == "gaussian" else cosine_gram(points)
    return gram, matrix, p


def influences_of(matrix, p, entropy):
    """phi_i^T h(C) phi_i less its mean, by all eigenvectors of diag(p)^(1/2) K diag(p)^(1/2)."""
    t, order = entropy.truncation or FEW_ROWS, entropy.order
    values, vectors = np.linalg.eigh(np.sqrt(p)[:, None] * matrix * np.sqrt(p))
    values, vectors = np.maximum(values[::-1][:t], 0), vectors[:, ::-1][:, :t]
    q = values + (1 - values.sum()) / t
    q = np.where(q > 16 * np.finfo(float).eps * q[0], q, np.nan)  # Zeros change nothing.
    if order == 1:
        slopes = -np.log(q) - 1
    elif np.isinf(order):
        slopes = np.where(np.arange(t) == 0, -1 / q[0], 0)
    else:
        slopes = order / (1 - order) * q ** (order - 1) / np.nansum(q**order)
    slopes = np.nan_to_num(slopes)
    if entropy.truncation:
        slopes = slopes - slopes.mean()
    of_rows = np.square(vectors) @ (values * slopes)
    return np.where(p > 0, of_rows / np.where(p > 0, p, 1) - of_rows.sum(), np.nan)


def sampler_of(gram, seed=0, budget=FEWER, steps=0, probes=0):
    """A sampler, deepened and widened."""
    key = jax.random.key(seed)
    samplers = estimators.Samplers([gram], key=key, budget=budget, rtol=2e-3)
    if steps:
        samplers.deepen(steps)
        samplers.widen(probes)
    return samplers.members[0]


@functools.cache
def samplers_in_x64(*, weighted):
    """For six seeds, of the same rows; with their matrix and shares."""
    gram, matrix, p = drawn(weighted=weighted)
    return [sampler_of(gram, seed, steps=32, probes=16) for seed in range(6)], matrix, p


@pytest.mark.parametrize(
    ("entropy", "weighted"),
    [
        (OF_ROWS[0], False),
        (OF_ROWS[0], True),
        (OF_ROWS[-2], True),
        *(slow(each, True) for each in (*OF_ROWS[1:-2], OF_ROWS[-1])),
    ],
    ids=str,
)
def test_replicates_are_unbiased_estimates_of_every_influence(entropy, weighted, x64):
    samplers, matrix, p = samplers_in_x64(weighted=weighted)
    truth = influences_of(matrix, p, entropy)
    found = [sampler.influences(entropy, p) for sampler in samplers]
    assert found[0].shape == (16, FEW_ROWS)
    np.testing.assert_allclose(np.nansum(found[0] * p, axis=1), 0, atol=1e-12)

    def size(of_rows):
        """As in a variance, where a row counts by its share."""
        return np.sqrt(np.nansum(np.square(p * of_rows)))

    noise = size(np.std(found, axis=1, ddof=1).mean(axis=0))
    assert noise < size(truth)  # One probe tells something.
    error = np.mean(found, axis=(0, 1)) - truth
    assert size(error) < 1.5 * noise / np.sqrt(6 * 16) + 0.005 * size(truth)
    np.testing.assert_array_equal(np.isnan(error), p == 0)


def test_order_two_takes_no_probe(x64):
    (sampler, *_), matrix, p = samplers_in_x64(weighted=False)
    expected = influences_of(matrix, p, cv.Entropy(2))
    for found in sampler.influences(cv.Entropy(2), p):
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_known_eigenvalues_give_one_exact_replicate(kernel, weighted, x64):
    """Few points, or fewer features than points."""
    gram, matrix, p = drawn(kernel, weighted=weighted)
    sampler = sampler_of(gram, budget=Budget())
    for entropy in OF_ROWS:
        (found,) = sampler.influences(entropy, p)
        # Divided by small eigenvalues and small shares.
        assert_close(found, influences_of(matrix, p, entropy), loosened=1e4)


def test_equal_rows_have_no_influence_at_any_n():
    gram = cv.grams.TiledGram.from_points(cv.Gaussian(1.0), jnp.ones((700, 2)))
    found = sampler_of(gram).influences(cv.von_neumann, np.full(700, 1 / 700))
    np.testing.assert_array_equal(found, np.zeros((1, 700)))
