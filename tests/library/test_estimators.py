"""The spectral measure against exact spectra: agreement, honest intervals, adversarial cases."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array
from oracles import draw_pairs, renyi, shifted
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.spectra import _estimators as estimators
from condvendi_jax.spectra import _krylov as krylov
from condvendi_jax.spectra import _measures as measures
from condvendi_jax.spectra import _quadrature as quadrature
from condvendi_jax.spectra._estimators import Budget, spectral_measure

N = 400
SMALL = Budget(block=8, sweeps=8, probes=16, steps=12)
KEY = jax.random.key(3)


def with_spectrum(values, dtype=np.float64):
    """A Gram of the given eigenvalues: a random rotation; only its products are used."""
    generator = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(generator.normal(size=(len(values), len(values))))
    values = np.asarray(values) / np.sum(values)
    matrix = jnp.asarray(len(values) * (rotation * values) @ rotation.T, dtype)
    # Its diagonal is not one.
    return cv.grams.DenseGram.trusted(matrix), values


SPECTRA = {
    "flat": np.ones(N),
    "power law": 1.0 / np.arange(1, N + 1) ** 1.5,
    "slow power law": 1.0 / np.arange(1, N + 1) ** 0.7,
    "exponential": 0.97 ** np.arange(N),
    "clustered": np.repeat([50.0, 5.0, 0.5, 0.05], N // 4),
    "low rank": np.where(np.arange(N) < 9, 1.0, 0.0),
    "rank beyond the Krylov space": np.where(np.arange(N) < 90, 1.0 + np.arange(N) % 7, 0.0),
    "near identity": 1 + 0.01 * np.sin(np.arange(N)),
    "near constant": np.where(np.arange(N) == 0, 1.0, 1e-4 / N),
    "one outlier": np.where(np.arange(N) == 0, N, 1.0),
    "rank one": np.where(np.arange(N) == 0, 1.0, 0.0),
}
ENTROPIES = [
    *map(cv.renyi, (1, 0.5, 1.05, 2, 3.5, np.inf)),
    *map(cv.truncated, (1, 5, 40, 200, N)),
    *(cv.truncated(40, order=order) for order in (0.5, 2, np.inf)),
]


def exact(entropy, values):
    values = np.sort(values)[::-1]
    if entropy.truncation is not None:
        values = shifted(values, entropy.truncation)
    return float(renyi(values, entropy.order))


@pytest.mark.parametrize("name", SPECTRA)
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
    """200 keys. At a true coverage of 95% fewer than the limit come once in ten thousand runs."""
    gram, values = with_spectrum(SPECTRA["power law"])
    covered = dict.fromkeys((cv.von_neumann, cv.truncated(40), cv.renyi(3), cv.renyi(0.5)), 0)
    for seed in range(200):
        measure = spectral_measure(gram, key=jax.random.key(seed), budget=Budget(4, 6, 8, 12))
        for entropy in covered:
            low, high = measure.entropy(entropy).interval
            covered[entropy] += low <= exact(entropy, values) <= high
    limit = stats.binom(200, measures.CONFIDENCE).ppf(1e-4)
    assert min(covered.values()) >= limit, covered


@pytest.mark.parametrize("t", [1, 2, 7, 30, 60, 61, 100, 250, 399, 400])
@pytest.mark.parametrize("name", ["power law", "clustered", "slow power law"])
def test_truncation_at_every_t(name, t, x64):
    gram, values = with_spectrum(SPECTRA[name])
    found = spectral_measure(gram, key=KEY, budget=SMALL).entropy(cv.truncated(t))
    assert abs(found.value - exact(cv.truncated(t), values)) <= 1.5 * found.half_width + 1e-12
    assert found.half_width < 0.05


def test_moments_as_control_variates_beat_plain_quadrature(x64):
    """At no more products: without deflation and moments the error is over 25 times as large."""
    gram, values = with_spectrum(SPECTRA["power law"])
    truth = exact(cv.von_neumann, values)
    ours, plain = [], []
    for seed in range(10):
        measure = spectral_measure(gram, key=jax.random.key(seed), budget=SMALL)
        ours.append(measure.entropy().value - truth)
        start = jax.random.rademacher(jax.random.key(seed), (N, 21), jnp.float64)
        nothing = jnp.zeros((N, 0))
        state = krylov.start_lanczos(nothing, start, capacity=12)
        bounds = jnp.asarray(0), jnp.asarray(12)
        (((state,)),) = krylov.lanczos(gram, (nothing,), ((state,),), *bounds)
        nodes, weights = quadrature.gauss(np.asarray(state.alpha), np.asarray(state.beta)[:, :-1])
        entropies = -np.sum(weights * nodes * np.log(nodes), axis=1) * np.asarray(state.squares)
        plain.append(np.mean(entropies) - truth)
    assert SMALL.products >= 21 * 12
    assert np.sqrt(np.mean(np.square(plain))) > 25 * np.sqrt(np.mean(np.square(ours)))


def test_quadrature_is_exact_at_full_krylov_depth(x64):
    """Nine distinct eigenvalues: nine steps find every node, whatever the function."""
    gram, values = with_spectrum(np.repeat(np.arange(1.0, 10.0), 30))
    measure = spectral_measure(gram, key=KEY, budget=Budget(2, 1, 4, 12))
    nodes, weights = measure.sampled[0][0]
    np.testing.assert_allclose(
        np.unique(nodes[weights > 1e-6].round(9)), np.unique(values), atol=1e-8
    )
    np.testing.assert_allclose(weights.sum(axis=1), measure.moments[0], rtol=1e-10)
    for entropy in (cv.von_neumann, cv.renyi(0.5), cv.renyi(3)):
        assert measure.entropy(entropy).gap < 1e-9


def test_a_complete_krylov_space_is_exact(x64):
    """Deflation of everything: block quadrature alone, no probe has anything left."""
    gram, values = with_spectrum(1.0 / np.arange(1, 201) ** 0.5)
    padded = np.zeros((500, 500))
    padded[:200, :200] = gram.matrix * 500 / 200
    measure = spectral_measure(
        cv.grams.DenseGram.trusted(jnp.asarray(padded)), key=KEY, budget=Budget(60, 6, 4, 4)
    )
    assert measure.products > 0
    for entropy in (cv.von_neumann, cv.renyi(3), cv.truncated(30)):
        found = measure.entropy(entropy)
        assert abs(found.value - exact(entropy, values)) < 1e-9
        assert abs(found.value - exact(entropy, values)) <= found.half_width + 1e-10


@pytest.mark.parametrize(
    "n, dtype",
    [*(pytest.param(n, "float64", marks=pytest.mark.slow) for n in (1, 2, 40)), (5, "float32")],
    indirect=["dtype"],
)
def test_fewer_points_than_a_block_are_solved_entirely(n, dtype):
    points = draw_pairs(n, dtype=dtype)[0]
    measure = spectral_measure(cv.gram(cv.Gaussian(0.5), points), key=KEY)
    found = measure.entropy(cv.von_neumann)
    expected = float(jnp.log(cv.vendi(points, kernel=cv.Gaussian(0.5))))
    assert measure.products == 0
    assert found.standard_error == 0
    assert abs(found.value - expected) < 1e-5
    with pytest.raises(ValueError, match=rf"at most n = {n}, received {n + 1}"):
        measure.entropy(cv.truncated(n + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, dtype",
    [(cv.Gaussian(0.7), "float32"), (cv.Gaussian(0.7), "float64"), (cv.Cosine(), "float64")],
    ids=["gaussian-float32", "gaussian-float64", "cosine"],
    indirect=["dtype"],
)
def test_representations_give_the_same_measure(kernel, dtype):
    points = draw_pairs(N, dtype=dtype, d_x=6)[0]
    grams = (
        cv.grams.DenseGram.from_points(kernel, points),
        cv.grams.TiledGram.from_points(kernel, points, tile_size=128),
        cv.grams.TiledGram.from_points(kernel, points, tile_size=150).store(),
        cv.gram(kernel, points),
    )
    found = [spectral_measure(g, key=KEY, budget=Budget(8, 4, 8, 10)).entropy() for g in grams]
    reference = float(jnp.log(cv.vendi(points, kernel=kernel)))
    for one in found:
        assert abs(one.value - reference) <= 1.5 * one.half_width + 1e-5
        if isinstance(kernel, cv.Gaussian):
            assert abs(one.value - found[0].value) <= (1e-9 if dtype == np.float64 else 3e-4)


def test_features_are_solved_in_the_dual():
    points = draw_pairs(N, dtype=np.float32, d_x=6)[0]
    measure = spectral_measure(cv.gram(cv.Cosine(), points), key=KEY, budget=SMALL)
    assert measure.products == 0
    assert measure.deflated[0].nodes.size <= 6


def test_the_same_key_gives_the_same_numbers_and_another_key_others(x64):
    gram, _ = with_spectrum(SPECTRA["power law"])
    one, two, other = (
        spectral_measure(gram, key=key, budget=SMALL).entropy().value
        for key in (KEY, KEY, jax.random.key(4))
    )
    assert one == two != other


@pytest.mark.parametrize("part", ["block", "sweeps", "probes", "steps"])
def test_every_part_of_the_budget_changes_the_estimate(part, x64):
    gram, _ = with_spectrum(SPECTRA["power law"])
    small = Budget(6, 4, 4, 6)
    larger = dataclasses.replace(small, **{part: 2 * getattr(small, part)})
    one, two = (spectral_measure(gram, key=KEY, budget=b).entropy() for b in (small, larger))
    assert one.value != two.value
    assert larger.products > small.products
    with pytest.raises(ValueError, match=f"budget.{part}: expected an integer"):
        dataclasses.replace(small, **{part: 0})


@pytest.mark.slow
def test_more_steps_and_more_probes_continue_what_there_is(x64):
    """Deepening and widening give what the larger budget gives from the start."""
    gram, _ = with_spectrum(SPECTRA["power law"])
    grown = estimators.Samplers([gram], key=KEY, budget=Budget(4, 3, 8, 6), rtol=2e-3)
    grown.deepen([16])
    grown.widen(20)
    whole = spectral_measure(gram, key=KEY, budget=Budget(4, 3, 24, 16))
    continued = grown.of[0].measure()
    np.testing.assert_allclose(continued.alpha, whole.alpha, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(continued.squares, whole.squares)
    assert continued.products == whole.products


def test_grams_that_share_tiles_are_sampled_in_the_same_passes_as_alone(x64):
    """Also after batches of probes were deepened and others added."""
    outputs, prompts = draw_pairs(300)
    single = [
        cv.grams.TiledGram.from_points(cv.Gaussian(0.7), points, tile_size=112)
        for points in (outputs, prompts)
    ]
    grams = [*single, single[0] * single[1]]
    assert cv.grams.SharedTiles.of(single) is None

    def grown(grams):
        samplers = estimators.Samplers(grams, key=KEY, budget=Budget(4, 3, 4, 5), rtol=2e-3)
        samplers.widen(8)
        samplers.deepen([8] * len(grams))
        samplers.widen(16)
        return samplers

    together = grown(grams)
    assert together.even
    assert not grown(grams[:2]).even
    for gram, sampler in zip(grams, together.of, strict=True):
        found, alone = sampler.measure(), grown([gram]).of[0].measure()
        assert found.alpha.shape == (16, 8)
        for name in ("alpha", "beta", "squares", "moments", "squared_norm", "products"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(alone, name), rtol=1e-6, atol=1e-9
            )


def test_refinement_reaches_the_tolerance_or_says_that_it_did_not(x64, monkeypatch):
    gram, values = with_spectrum(0.98 ** np.arange(600))
    rough = spectral_measure(gram, key=KEY, budget=Budget())
    fine = spectral_measure(gram, key=KEY, rtol=1e-3)
    assert rough.entropy().half_width > 1e-3 >= fine.entropy().half_width
    assert abs(fine.entropy().value - exact(cv.von_neumann, values)) <= 1.5e-3
    assert fine.products > rough.products
    monkeypatch.setattr(estimators, "_MAX_PROBES", 32)
    monkeypatch.setattr(estimators, "_MAX_STEPS", 32)
    with pytest.warns(UserWarning, match="reached a relative error"):
        spectral_measure(gram, key=KEY, rtol=1e-9)


def test_many_points_and_a_tight_tolerance_begin_with_more_work(x64, monkeypatch):
    monkeypatch.setattr(estimators, "_MANY", 999)
    gram, _ = with_spectrum(0.5 ** np.arange(1000))
    measure = functools.partial(spectral_measure, gram, key=KEY)
    few, many = Budget().products, Budget(sweeps=12, steps=24).products
    assert few < many < gram.n
    assert measure(rtol=3e-3).products == few
    assert measure().products == many
    monkeypatch.setattr(estimators, "_MANY", 1000)
    assert measure().products == few


class Sampled:
    """A sampler and its measure, of which a plan asks what they have and how precise it is."""

    def __init__(self, *, noise, gap, half_gap, complete=False):
        self.steps, self.probes, self.batch, self.complete = 16, 16, 16, complete
        signs = np.resize([1.0, -1.0], 16)
        unit = estimators.Estimate(signs).noise
        self.estimates = [estimators.Estimate(signs * noise / unit, g) for g in (gap, half_gap)]

    def entropy(self, _):
        return self.estimates[0]

    def at_half_depth(self):
        return types.SimpleNamespace(entropy=lambda _: self.estimates[1])


def planned(*sampled, combine=list, even=False):
    return estimators._plan(sampled, sampled, [cv.von_neumann], combine, 1e-3, even=even)


@pytest.mark.parametrize(
    "noise, gap, half_gap, steps, probes",
    [
        # Aimed at 0.9e-3. Noise falls with the root of the probes: nearly twice 0.8e-3 takes four.
        (1.55e-3, 0.1e-3, 0.1e-3, 16, 64),
        # The gap fell to a quarter when the steps were doubled last, and does so again.
        (0.5e-3, 1.2e-3, 4.8e-3, 32, 16),
        # A gap that would take most probes away: deeper first, as long as that is cheaper.
        (1.2e-3, 0.6e-3, 6e-3, 32, 48),
        # Nothing is predicted to do: a gap need not fall evenly.
        (0.1e-3, 50e-3, 51e-3, 32, 16),
    ],
)
def test_a_plan_is_the_cheapest_that_is_predicted_to_do(noise, gap, half_gap, steps, probes):
    plan = planned(Sampled(noise=noise, gap=gap, half_gap=half_gap))
    assert plan == (steps * probes, (steps,), probes)


def test_a_plan_deepens_what_is_shallow_and_nothing_else():
    exact = Sampled(noise=0, gap=0, half_gap=0, complete=True)
    rough, fine = (Sampled(noise=0.3e-3, gap=g, half_gap=4 * g) for g in (1.6e-3, 0.01e-3))
    assert planned(rough, fine, exact).steps == (32, 16, 16)
    # A pass that serves all deepens all that are sampled.
    assert planned(rough, fine, exact, even=True).steps == (32, 32, 16)
    # What is asked of their difference alone is planned for it alone.
    together = planned(rough, rough, combine=lambda row: [row[0] - row[1]])
    assert together == (1024, (32, 32), 16)


def test_too_much_work_is_not_begun(x64):
    gram, _ = with_spectrum(0.98 ** np.arange(600))
    ask = functools.partial(estimators.refine, [gram], [cv.von_neumann], list, key=KEY, rtol=1e-3)
    measure = ask().samplers[0].measure()
    taken = measure.products - 32 * 8
    beyond = ask(limit=taken - 1)
    assert not beyond.within_limit
    assert beyond.samplers[0].measure().products == Budget().products < measure.products
    within = ask(limit=taken)
    assert within.within_limit
    assert within.estimates[0][0].value == measure.entropy().value


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
    loose = spectral_measure(gram, key=KEY, rtol=1e-4, entropies=[cv.renyi(3)])
    tight = spectral_measure(gram, key=KEY, rtol=1e-4, entropies=[cv.renyi(3), cv.truncated(150)])
    assert tight.products > loose.products
    assert loose.entropy(cv.truncated(150)).half_width > 1e-4
    assert tight.entropy(cv.truncated(150)).half_width <= 1e-4


def test_repeated_rows_count_once(x64):
    points = np.repeat(draw_pairs(100)[0], 4, axis=0)
    gram = cv.grams.DenseGram.from_points(cv.Gaussian(0.3), points)
    found = spectral_measure(gram, key=KEY, budget=SMALL).entropy()
    reference = float(jnp.log(cv.vendi(points[::4], kernel=cv.Gaussian(0.3))))
    assert abs(found.value - reference) <= 1.5 * found.half_width + 1e-10
    same = cv.gram(cv.Gaussian(1.0), np.ones((600, 2)), tile_size=128)
    assert spectral_measure(same, key=KEY).entropy().value == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rtol": 0.0}, "rtol: expected a number between 0 and 1, received 0.0"),
        ({"rtol": "small"}, "rtol: expected a number between 0 and 1"),
        ({"rtol": 1e-3, "budget": Budget()}, "at most one"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    gram, _ = with_spectrum(np.ones(30), np.float32)
    with pytest.raises(ValueError, match=message):
        spectral_measure(gram, key=KEY, **arguments)


def test_no_array_of_n_by_n_on_the_tiled_path():
    n, tile = 4000, 256
    points = np.zeros((n, 3), np.float32)
    gram = cv.grams.TiledGram.from_points(cv.Gaussian(1.0), points, tile_size=tile)
    start, basis = jnp.zeros((n, 8)), jnp.zeros((n, 32))
    state = krylov.start_lanczos(basis, start, capacity=4)
    left = jnp.zeros((n, 20))

    def everything(gram):
        space = krylov.krylov_spaces(gram, (start,), sweeps=4)
        bounds = jnp.asarray(0), jnp.asarray(4)
        recurrences = krylov.lanczos(gram, (basis,), ((state,),), *bounds)
        return space, recurrences, gram.squared_frobenius_norm()

    slope = jax.grad(lambda gram: gram.bilinear_slope(left, left), allow_int=True)
    limit = 2 * max(tile * tile, n * 64)
    assert largest_array(everything, gram) < limit < n * n / 4
    assert largest_array(slope, gram) < limit
    assert largest_array(lambda gram: gram.store(), gram) >= n * n


@pytest.mark.parametrize(
    "order", [1, *(pytest.param(order, marks=pytest.mark.slow) for order in (0.7, 3))]
)
def test_the_sensitivity_is_unbiased(order, x64):
    """Its mean over keys tends to h(A); a term left out would stay."""
    gram, values = with_spectrum(SPECTRA["power law"])
    entropy = cv.renyi(order)
    a = np.asarray(gram.matrix) / N
    nodes, vectors = np.linalg.eigh(a)
    p = np.maximum(nodes, 1e-300)
    slopes = -np.log(p) - 1
    if order != 1:
        slopes = order / (1 - order) * p ** (order - 1) / np.sum(p**order)
    truth = (vectors * slopes) @ vectors.T
    # Deflated, half deflated and sampled eigenvectors at once, and a trace of zero.
    one, other = (vectors[:, places].sum(axis=1) for places in ([-2, -21, -91], [-5, -41, -201]))
    direction = np.outer(one, one) - np.outer(other, other)
    found = []
    for seed in range(40):
        (sampler,), *_ = estimators.refine(
            [gram], [entropy], list, key=jax.random.key(seed), budget=Budget(8, 6, 8, 24)
        )
        left, right, square = sampler.sensitivity(entropy)
        change = np.einsum("ik,ij,jk->", left, direction, right)
        found.append(change + square * 2 * np.sum(a * direction))
    error = np.mean(found) - np.sum(truth * direction)
    assert abs(error) < 4 * np.std(found, ddof=1) / np.sqrt(40)
    assert np.std(found) < abs(np.sum(truth * direction))
