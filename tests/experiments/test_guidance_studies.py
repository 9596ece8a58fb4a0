"""Guided sampling: samplers, exact diffusions of mixtures, and the studies of guides."""

import dataclasses
import types
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import studies
import xarray as xr
from oracles import entropy, gaussian_gram
from scipy import integrate, stats
from small import flags, mean_squared_kernels, widths

import condvendi_jax as cv
from experiments.data import sets
from experiments.generators import benches, diffusion, mixture_diffusion
from experiments.generators.diffusion import TIME_MAX, guided, sample, sample_batches
from experiments.generators.mixture_diffusion import MIXTURES
from experiments.guidance import guided_diffusion as guides
from experiments.guidance import guided_mixture
from experiments.guidance.guided_diffusion import NONE, OF_FEATURES, GuidedDiffusion
from experiments.guidance.guided_mixture import KINDS, LAW, PLAIN, SCORES, GuidedMixture
from experiments.lab import runner, store, tables

pytestmark = pytest.mark.slow

KEY = jax.random.key(3)


def prompts(count, width=1):
    return jnp.arange(count * width, dtype=float).reshape(count, width) / (count * width)


def half(latents, time, prompts):
    return latents / 2


def of_two_bumps(latents, time, prompts, *, xp=jnp):
    """E[x | z_t] where each coordinate is N(1, 1/4) or N(-1, 1/4), shifted by the prompt."""
    signal, noise = xp.cos(xp.pi / 2 * time), xp.sin(xp.pi / 2 * time)
    variance = signal**2 / 4 + noise**2
    shifted = latents - signal * prompts[:, :1]
    side = xp.tanh(signal * shifted / variance)
    return prompts[:, :1] + side + signal / (4 * variance) * (shifted - signal * side)


def test_both_solvers_follow_the_probability_flow_of_a_nonlinear_model(x64):
    """Against scipy on dz/dt = alpha' x + sigma' e, where e = (z - alpha x) / sigma."""
    given = prompts(5)

    def flow(time, z):
        latents = z.reshape(5, 2)
        clean = of_two_bumps(latents, time, np.asarray(given), xp=np)
        signal, noise = np.cos(np.pi / 2 * time), np.sin(np.pi / 2 * time)
        implied = (latents - signal * clean) / noise
        return (np.pi / 2 * (signal * implied - noise * clean)).ravel()

    start = np.asarray(jax.random.normal(KEY, (5, 2), float)).ravel()
    found = integrate.solve_ivp(flow, (TIME_MAX, 1e-5), start, rtol=1e-9, atol=1e-11)
    truth, errors = found.y[:, -1].reshape(5, 2), {}
    for solver in diffusion.SOLVERS:
        for steps in (100, 400):
            options = {"shape": (2,), "steps": steps, "solver": solver}
            drawn, _ = sample(of_two_bumps, KEY, given, **options)
            errors[solver, steps] = np.abs(drawn - truth).max()
    assert 3.5 < errors["ddim", 100] / errors["ddim", 400] < 4.5
    assert errors["dpm2", 400] < errors["dpm2", 100] / 8
    assert errors["dpm2", 400] < 1e-3
    # The second order extrapolates by half the ratio of two steps of the log-SNR.
    h = np.diff(-np.log(np.tan(np.pi / 2 * np.linspace(TIME_MAX, 0, 6)[:-1])))
    extrapolated = diffusion._steps(5, "dpm2")["extrapolated"]
    np.testing.assert_allclose(extrapolated, [0, *h[1:] / (2 * h[:-1]), 0])


def test_classifier_free_guidance_is_its_formula():
    def denoise(latents, time, prompts):
        return latents * time + jnp.square(prompts)

    latents, given, nothing = jnp.ones((3, 2)), prompts(3, 2), jnp.array([0.3, -0.2])
    without, within = 0.5 + np.square([0.3, -0.2]), 0.5 + np.square(given)
    for scale in (1.0, 3.0):
        found = guided(denoise, nothing, scale)(latents, jnp.asarray(0.5), given)
        np.testing.assert_allclose(found, without + scale * (within - without), rtol=1e-6)


class Shift(NamedTuple):
    """Moves by `push` and a part of where it is; counts its steps beside what a guide remembers."""

    push: float = 0.0
    part: float = 0.0
    memory = cv.guidance.rke(output_kernel=cv.Gaussian(1.0), window=20)

    def init(self, latents):
        return jnp.asarray(0), self.memory.init(latents)

    def update(self, updates, state, latents, *, prompts):
        assert prompts.shape[0] == latents.shape[0]
        return jnp.full_like(latents, self.push) + self.part * latents, (state[0] + 1, state[1])


@pytest.mark.parametrize("at", diffusion.PLACES)
@pytest.mark.parametrize(("solver", "steps"), [("ddim", 4), ("dpm2", 2)])
def test_the_update_enters_as_printed_or_at_the_clean_latents(x64, solver, steps, at):
    """By hand, for a model that predicts half of z; the first and last step are of first order."""
    times = np.linspace(TIME_MAX, 0, steps + 1)
    noises, signals = np.sin(np.pi / 2 * times), np.cos(np.pi / 2 * times)
    moved = np.asarray(jax.random.normal(KEY, (3, 2), float))
    for step in range(steps):
        clean = moved / 2
        implied = (moved - signals[step] * clean) / noises[step]
        added = 0.25 + 0.1 * (clean if at == "clean" else moved)
        target = clean + added if at == "clean" else clean
        moved = signals[step + 1] * target + noises[step + 1] * implied
        if at == "noisy":
            moved = moved + added
    options = {"shape": (2,), "steps": steps, "solver": solver, "guide": Shift(0.25, 0.1)}
    options["remember"] = lambda state, z, p: (state[0], cv.guidance.remember(state[1], 2 * z, p))
    found, state = sample(half, KEY, prompts(3), at=at, **options)
    np.testing.assert_allclose(found, moved, rtol=1e-12)
    assert state[0] == steps and state[1].filled.sum() == 3
    np.testing.assert_allclose(state[1].rows[0][:3], 2 * moved, rtol=1e-12)


def test_batch_after_batch_is_a_loop_that_carries_the_memory():
    given = jnp.stack([prompts(3), 1 - prompts(3)])
    options = {"shape": (2,), "steps": 5, "guide": Shift(0.1)}
    latents, state = sample_batches(half, KEY, given, **options)
    carried = None
    for key, batch, found in zip(jax.random.split(KEY, 2), given, latents, strict=True):
        alone, carried = sample(half, key, batch, state=carried, **options)
        np.testing.assert_allclose(found, alone, rtol=1e-6)
    chex.assert_trees_all_close(state, carried, rtol=1e-6)
    assert state[0] == 5 and state[1].filled.sum() == 6
    plain, none = sample_batches(half, KEY, given, shape=(2,), steps=5)
    assert plain.shape == (2, 3, 2) and none is None


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (prompts(3), {"solver": "euler"}, "solver: expected one of ddim, dpm2, received 'euler'"),
        (prompts(3), {"at": "end"}, "at: expected one of clean, noisy, received 'end'"),
        (prompts(3), {"steps": 0}, "steps"),
        (jnp.zeros(3), {}, r"prompts: expected \[b, p\], received shape \(3,\)"),
    ],
)
def test_what_cannot_be_sampled_is_refused(given, options, words):
    with pytest.raises(ValueError, match=words):
        sample(half, KEY, given, shape=(2,), **options)


CENTRES = np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.5]])
WEIGHTS = np.array([[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]])
SPREAD = 0.5


def three_components():
    return mixture_diffusion.mixture(CENTRES, SPREAD, WEIGHTS)


def test_the_clean_prediction_is_the_posterior_mean_by_integration(x64):
    """E[x | z] as the ratio of two integrals over a fine grid of x."""
    axis = np.linspace(-5, 7, 601)
    x = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    latents = np.array([[0.3, -0.4], [1.2, 1.0], [-2.0, 2.0]])
    normal: Any = stats.multivariate_normal
    of_components = np.stack([normal(centre, SPREAD**2).pdf(x) for centre in CENTRES])
    for time in (0.05, 0.4, 0.9):
        signal, noise = np.cos(np.pi / 2 * time), np.sin(np.pi / 2 * time)
        for prompt, weights in zip(np.eye(2), WEIGHTS, strict=True):
            given = jnp.asarray(latents), jnp.asarray(time), jnp.tile(prompt, (3, 1))
            found = mixture_diffusion.clean_prediction(three_components(), *given)
            for z, value in zip(latents, found, strict=True):
                likelihood = np.exp(-np.sum((z - signal * x) ** 2, axis=1) / (2 * noise**2))
                posterior = weights @ of_components * likelihood
                np.testing.assert_allclose(value, posterior @ x / posterior.sum(), rtol=1e-6)


def test_weights_shares_and_lengths_by_hand():
    """No prompt is all prompts equally; the mean length is that of Rice's law."""
    of = three_components()
    rows = jnp.stack([of.unconditional, of.prompts[1], jnp.array([0.5, 0.5])])
    expected = np.stack([WEIGHTS.mean(0), WEIGHTS[1], WEIGHTS.mean(0)])
    np.testing.assert_allclose(of.weights_of(rows), expected, atol=1e-6)
    # The third component is of the second prompt alone: for the first its points are nowhere.
    points = np.array([[0.0, 1.4], [0.0, -1.6], [2.0, 1.0], [-1.0, 2.5], [9.0, 9.0]])
    for prompt, shares in enumerate(([0.2, 0.2, 0], [0.2, 0.2, 0.2])):
        np.testing.assert_allclose(of.shares(points, prompt), shares)
    found = mixture_diffusion.mean_length(np.array([0.0, 0.7, 3.0, 200.0]), 0.8)
    between = stats.rice([0.7 / 0.8, 3 / 0.8], scale=0.8).mean()
    expected = [0.8 * np.sqrt(np.pi / 2), *between, 200 + 0.8**2 / 400]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    shared, apart = MIXTURES["shared"](), MIXTURES["apart"]()
    np.testing.assert_allclose(shared.weights.mean(axis=0), 1 / 6, rtol=1e-6)
    np.testing.assert_array_equal(np.argmax(shared.weights, axis=1), np.arange(6))
    assert np.all(np.count_nonzero(apart.weights, axis=0) == 1)
    assert np.all(np.count_nonzero(apart.weights, axis=1) == 4)


@pytest.mark.parametrize("name", MIXTURES)
def test_exact_samples_are_of_the_law(name):
    mixture = MIXTURES[name]()
    asked = jnp.repeat(mixture.prompts, 3000, axis=0)
    drawn = np.asarray(mixture.sample(jax.random.key(1), asked)).reshape(-1, 3000, 2)
    for prompt, points in enumerate(drawn):
        weights = np.asarray(mixture.weights[prompt])
        band = 4 * np.sqrt(weights * (1 - weights) / 3000) + 1e-3
        shares = mixture.shares(points, prompt)
        assert np.all(np.abs(shares - weights) <= band + 0.02 * weights)
        # Rayleigh's law beyond 3.
        assert 0.5 * np.exp(-4.5) < 1 - shares.sum() < 2 * np.exp(-4.5)
        # On average the distance of the law to itself is nought.
        values = [mixture.energy_distance(batch, prompt) for batch in points.reshape(100, 30, 2)]
        assert abs(np.mean(values)) < 4 * np.std(values, ddof=1) / 10


# The exact diffusion of the mixture whose prompts share components.
SHARED = flags(model="mixture", methods="Conditional-RKE", rule="median", scales=1, every=2)
SMALL = [*SHARED, *flags(strengths=0.2, seeds=2, samples=40, batch=20, steps=8, references=100)]


@pytest.fixture(scope="module")
def guided_diffusion_run(tmp_path_factory):
    sizes = flags(seeds=3, samples=90, batch=30, steps=10, scale=1, references=400)
    more = [*SHARED, "--strengths=1e-6,0.3,20", *sizes]
    return studies.execute(GuidedDiffusion, tmp_path_factory.mktemp("guided"), *more)


def test_distances_and_similarities_are_those_of_all_pairs_of_different_pictures():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)) + 1
    within = [((x @ x.T + 1) ** 3)[~np.eye(len(x), dtype=bool)].mean() for x in (one, other)]
    wanted = sum(within) - 2 * np.mean((one @ other.T + 1) ** 3)
    assert benches.kernel_distance(one, other) == pytest.approx(wanted)
    # Within kinds.
    features = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])
    kinds = np.array([0, 0, 0, 1])
    assert benches.similarity(features, kinds) == pytest.approx((0 + 0.6 + 0.8) / 3)
    assert np.isnan(benches.similarity(features, np.arange(4)))
    features[3] = 9
    assert guides.distance_within(features, kinds) == pytest.approx(np.sqrt(0.8))


def test_a_gain_at_a_cost_by_hand():
    costs = np.array([[0, 0], [0.5, 0.5], [1.5, 2.5]])  # Means 0, 0.5 and 2 at the strengths.
    gains = np.array([[0, 0], [1.0, 3.0], [3.0, 5.0]])  # Means 0, 2 and 4.
    value, error = guides.at_cost(costs, gains)
    assert value == pytest.approx(2 + 2 / 3)
    alone = [3 + (0.5 / 2.0) * 2, 1 + (0.5 / 1.0) * 2]  # Without the first, without the second.
    assert error == pytest.approx(abs(alone[0] - alone[1]) / 2)
    assert guides.at_cost(costs / 0.25, gains)[0] == pytest.approx(1.0)  # From none onwards.
    # It never costs so much, and one seed alone never does.
    assert all(np.isnan(guides.at_cost(costs / 3, costs)))
    assert np.isnan(guides.at_cost(costs / 1.9, costs)).tolist() == [False, True]
    words = ["alignment", "kernel distance"]
    labels = {"guide": [NONE, "Vendi"], "strength": [0.0, 0.1, 1.0], "measure": ["x", *words]}
    values = xr.DataArray(0.0, labels | {"seed": [0, 1]}, [*labels, "seed"])
    values.loc["Vendi", :, "x"], values.loc["Vendi", :, words] = gains, -2 * costs[:, None]
    told = guides.at_costs(guides.gained(values)).sel(guide="Vendi", measure="x")
    at = told.sel(cost="2 points of alignment")
    assert (at.value, at.error) == pytest.approx(guides.at_cost(costs, gains))
    assert np.isnan(told.sel(cost="kernel distance + 2").value)  # The distance only falls.


def test_an_update_of_features_is_pulled_back_to_the_latents():
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)

    def features(latents):
        return jnp.tanh(latents @ matrix)

    inner = cv.guidance.vendi(output_kernel=cv.Gaussian(1.0), window=5)
    guide: Any = diffusion.pulled_back(optax.chain(inner, optax.scale(0.5)), features)
    latents, before = jax.random.normal(jax.random.key(0), (2, 3, 4))
    state = cv.guidance.remember(guide.init(latents), features(before))

    def score(latents):
        whole = jnp.concatenate([features(latents), features(before)])
        gram = jnp.exp(-jnp.sum(jnp.square(whole[:, None] - whole[None]), axis=-1) / 2) / 6
        values = jnp.linalg.eigvalsh(gram)
        return jnp.exp(-jnp.sum(values * jnp.log(values)))

    updates, _ = guide.update(jnp.zeros_like(latents), state, latents, prompts=None)
    np.testing.assert_allclose(updates, 0.5 * jax.grad(score)(latents), atol=2e-4)


@pytest.mark.parametrize("method", guides.METHODS)
def test_a_guide_acts_every_so_many_steps_and_remembers_what_it_sees(guided_diffusion_run, method):
    bench = benches.load("mixture")
    study = dataclasses.replace(guided_diffusion_run.study, every=3)
    made: Any = study.guide_of(method, bench, 2.0)
    guide, remember = made
    latents = jax.random.normal(jax.random.key(0), (3, *bench.model.shape))
    asked = jnp.asarray(bench.prompts[:1, 0]).repeat(3, axis=0)
    state = remember(guide.init(latents), latents, asked)
    rows = optax.tree_utils.tree_get(state, "rows")
    seen = bench.features(bench.model.decode(latents)) if method == OF_FEATURES else latents
    np.testing.assert_allclose(rows[0][:3], np.reshape(seen, (3, -1)), rtol=1e-5)
    acted = []
    for _ in range(5):
        updates, state = guide.update(0 * latents, state, latents + 0.1, prompts=asked)
        acted.append(bool(updates.any()))
    assert acted == [True, False, False, True, False]


@pytest.mark.parametrize("old", ["pictures with the digest", "parameters"])
def test_features_of_other_pictures_or_parameters_are_refused(old, tmp_path, monkeypatch):
    with np.load(sets.FOLDER / "emoji_features.npz") as stored:
        entries = dict(stored)
    other = [line.replace(old, "other") for line in entries.pop("provenance").tolist()]
    np.savez(tmp_path / "emoji_features.npz", provenance=other, **entries)
    benches.load("emoji")
    monkeypatch.setattr(sets, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=f"(?s)expected features of {old}.*other"):
        benches.load("emoji")


def test_the_features_of_a_mixture_hold_the_points_and_the_judge_is_bayes():
    law = MIXTURES["shared"]()._replace(spread=jnp.float32(0.6))
    bench = benches.mixture_bench(law)
    points = law.sample(jax.random.key(0), law.prompts[jnp.arange(50) % 6])
    features = bench.features(bench.model.decode(points))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    away = np.asarray(points)[:, None] - np.asarray(law.centres)[None]
    likely = np.exp(-np.square(away).sum(-1) / (2 * float(law.spread) ** 2)) @ law.weights.T
    posterior = jax.nn.softmax(bench.logits(features), axis=1)
    np.testing.assert_allclose(posterior, likely / likely.sum(1, keepdims=True), atol=2e-3)


def test_what_is_known_of_a_mixture_comes_out(guided_diffusion_run):
    """Prompts that prefer one of six components: Bayes finds the prompt of what is preferred."""
    found, study = guided_diffusion_run.found, guided_diffusion_run.study
    values = found.value.sel(scale=1)
    for guide in (guides.REAL, NONE):  # As often as it is preferred.
        of = values.sel(guide=guide, strength=0)
        assert of.sel(measure="alignment").mean().item() == pytest.approx(80, abs=6)
        assert abs(of.sel(measure="kernel distance").mean()) < 6
    assert (found.skipped.sel(guide="Conditional-RKE").dropna("strength") == 0).all()
    gained = guides.gained(values).sel(guide="Conditional-RKE", strength=list(study.strengths))
    nearly, moved, broken = gained
    np.testing.assert_allclose(nearly.sel(measure=list(benches.SCORES)), 0, atol=2e-3)
    assert (moved.sel(measure="Conditional-Vendi") > 0).all()
    assert moved.sel(measure="similarity").mean() < 0
    assert broken.sel(measure="kernel distance").min() > 0
    assert broken.sel(measure="alignment").mean() < -20


def test_weights_move_a_sample_by_the_strength(guided_diffusion_run):
    """Half the strength is half the weight; the gradient at weight 1 gives the length."""
    settings = guided_diffusion_run.study
    weights = settings.weights["Conditional-RKE"]
    of_strengths = np.divide(settings.strengths, 1e-6)
    np.testing.assert_allclose(np.divide(weights, weights[0]), of_strengths, rtol=0.02)
    bench = benches.load("mixture")
    key = jax.random.fold_in(jax.random.key(0), guides.CALIBRATION)
    kinds, asked = settings.asked(bench, key)
    t, draw = jnp.asarray(asked), settings.sampler(NONE, bench)
    latents = draw(bench.model.denoise, key, t, jnp.zeros(()))[0]
    within = guides.distance_within(np.asarray(latents), kinds)
    assert settings.latents == pytest.approx(within, rel=0.01)

    def score(last):
        rows = (jnp.concatenate([latents[:-30], last]), settings.latents), (t, settings.prompts)
        gaps = [jnp.sum(jnp.square(x[:, None] - x[None]), axis=-1) / width**2 for x, width in rows]
        return jnp.sum(jnp.exp(-gaps[1])) / jnp.sum(jnp.exp(-gaps[0] - gaps[1]))

    slopes = jax.grad(score)(latents[-30:])
    norms = [np.sqrt(np.mean(np.sum(np.square(x), axis=1))) for x in (latents, slopes)]
    assert weights[1] == pytest.approx(0.3 * norms[0] / (5 * norms[1]), rel=0.02)


# Prompts with components of their own, far apart.
APART = [
    *flags(mixtures="apart", kinds="rke,conditional_rke", scales=1, weights="1,30", until=0.5),
    *flags(seeds=2, batches=4, window=16, steps=8),
    *widths(3, 0.5),
]


@pytest.fixture(scope="module")
def guided_mixture_run(tmp_path_factory):
    """All prompts share six components; five seeds."""
    more = flags(mixtures="shared", kinds="conditional_vendi,rke,conditional_rke", scales=1)
    more += flags(weights="1,3,10,30", until=0.5, batches=8)
    return studies.execute(GuidedMixture, tmp_path_factory.mktemp("guided"), *more)


def score_of(run, kind, name, weight=300.0):
    """A score of every seed, of a guide at the largest weight up to the given one."""
    place = {"kind": kind, "until": 0.5 if kind in KINDS else 0.0}
    found = run.found.value.sel(mixture="shared", scale=1, score=name).sel(place)
    return found.dropna("weight").sel(weight=slice(0, weight)).isel(weight=-1).values


def is_greater(first, second):
    """Whether paired differences are above 0 beyond their error."""
    return stats.ttest_rel(first, second, alternative="greater").pvalue < 0.01


def test_conditional_guidance_raises_the_true_conditional_diversity(guided_mixture_run):
    for kind in ("conditional_rke", "conditional_vendi"):
        for name in ("modes", "conditional_rke", "conditional_vendi"):
            found = score_of(guided_mixture_run, kind, name)
            assert is_greater(found, score_of(guided_mixture_run, PLAIN, name)), (kind, name)
            assert is_greater(found, score_of(guided_mixture_run, kind, name, weight=1))
            # Above the law itself: what is gained is not what the sampler had lost.
            assert is_greater(found, score_of(guided_mixture_run, LAW, name))


@pytest.mark.parametrize("mixture, gains", [("shared", True), ("apart", False)])
def test_conditional_guides_of_the_committed_run_gain_where_prompts_share(mixture, gains):
    """Other prompts' samples fill the components already: a marginal score sees nothing missing."""
    committed = store.read_run(runner.COMMITTED / "guided_mixture", GuidedMixture)
    reached = committed.study.reached(committed).sel(scale=1, until=0.5, mixture=mixture)
    found = guided_mixture.differences(reached).sel(score="modes")
    for pair in ("Conditional-Vendi less Vendi", "Conditional-RKE less RKE"):
        assert is_greater(found.sel(pair=pair), np.full(5, 0.5)) == gains


def test_guidance_moves_the_law_and_samples_of_the_law_have_its_closed_form(guided_mixture_run):
    run = guided_mixture_run
    for kind in run.study.kinds:
        for name in ("energy", "variation", "off"):  # More so at a larger weight.
            assert is_greater(score_of(run, kind, name), score_of(run, kind, name, weight=1))
    # Without it the sampler cannot be told from the law.
    differences = score_of(run, PLAIN, "energy") - score_of(run, LAW, "energy")
    assert abs(differences.mean()) < 4 * differences.std(ddof=1) / np.sqrt(5) + 0.01
    law, kernels = MIXTURES["shared"](), run.study.of_mixtures["shared"].axis[0].kernels
    modes = 1 / jnp.mean(jnp.sum(jnp.square(law.weights), axis=1))
    of_x = mean_squared_kernels(law.centres, law.spread, kernels["output_kernel"].bandwidth)
    of_t = mean_squared_kernels(law.prompts, 0, kernels["prompt_kernel"].bandwidth)
    rke = np.mean(of_t) / np.mean(of_t * (law.weights @ of_x @ law.weights.T))
    for name, value in (("modes", modes), ("conditional_rke", rke)):
        found = score_of(run, LAW, name)
        assert abs(found.mean() - float(value)) < 4 * found.std(ddof=1) / np.sqrt(found.size)


def test_measures_by_hand():
    """Two prompts: one with three samples on one component and one off it, one with two and two."""
    kernels = {"output_kernel": cv.Gaussian(1.5), "prompt_kernel": cv.Gaussian(0.7)}
    centres, weights = np.array([[0, 0], [10, 0], [0, 30]]), np.array([[0.5, 0.5, 0]] * 2)
    first, second = [[0, 0], [0, 1], [1, 0], [0, 30]], [[0, 0], [10, 0], [0, 1], [10, 1]]
    points = np.array([first, second], np.float32)
    law = mixture_diffusion.mixture(centres, 1.0, weights)
    found = dict(zip(SCORES, guided_mixture.measured(law, points, kernels), strict=True))
    of_x = gaussian_gram(points.reshape(-1, 2), 1.5)
    of_t = gaussian_gram(np.repeat(np.eye(2), 4, axis=0), 0.7)
    # Squares of pairs of different samples: 12 of each prompt, 16 across.
    squares = of_x**2 - np.eye(8)
    within = (squares[:4, :4].sum() + squares[4:, 4:].sum()) / 12
    across, alike = 2 * squares[:4, 4:].mean(), of_t[0, 4] ** 2
    expected = {
        "modes": (6 + 12) / (6 + 4),
        "off": 1 / 8,
        # Shares (3/4, 0) and 1/4 off; shares (1/2, 1/2).
        "variation": np.mean([(0.25 + 0.5 + 0.25) / 2, 0]),
        "vendi": np.exp(entropy(of_x)),
        "conditional_vendi": np.exp(entropy(of_x * of_t) - entropy(of_t)),
        "rke": 4 / (within + across),
        "conditional_rke": 2 * (1 + alike) / (within + alike * across),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("off", "weight"),
    [((0.01, 0.02, 0.08), 1), ((0.01, 0.02, 0.04), 30), ((0.01, 0.06, 0.07), 0), ((0.5,) * 3, 0)],
)
def test_guides_are_compared_at_the_largest_weight_within_the_limit(off, weight):
    """On the mean over the seeds; without a guide where none is within it."""
    labels = {"kind": [PLAIN, "rke"], "until": [0.0, 0.5], "weight": [0.0, 1.0, 30.0]}
    labels |= {"seed": [0, 1], "score": ["off", "modes"]}
    values = xr.DataArray(np.nan, labels, list(labels))
    shares = np.add.outer(off, [-0.02, 0.02])
    for place, (kind, until) in enumerate([(PLAIN, 0.0), ("rke", 0.5), ("rke", 0.5)]):
        at = {"kind": kind, "until": until, "weight": labels["weight"][place]}
        values.loc[at] = np.stack([shares[place], [place, place]], axis=1)
    run = types.SimpleNamespace(found=xr.Dataset({"value": values}))
    found = GuidedMixture(limit=0.05).reached(run).sel(kind="RKE", until=0.5)
    np.testing.assert_allclose(found.sel(score="weight"), weight)
    np.testing.assert_allclose(found.sel(score="modes"), labels["weight"].index(weight))


def test_means_over_seeds_have_intervals_by_student():
    """No number where a seed has none."""
    values = xr.DataArray([[1.0, 2.0, 6.0], [1.0, np.nan, 2.0]], dims=("row", "seed"))
    found = tables.t_intervals(values, "seed")
    half_width = stats.t(2, 0, np.sqrt(7 / 3)).interval(0.95)[1]
    expected = [[3, np.nan], [half_width, np.nan]]
    np.testing.assert_allclose([found.value, found.error], expected)


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (GuidedDiffusion, SMALL, "--samples=70", "a multiple of --batch=20, two batches at least"),
    (GuidedDiffusion, SMALL, "--references=3990", "--references: expected at most 3960 of 4000"),
    (GuidedMixture, APART, "--until=0.5,2", "--until: expected parts up to 1, received 2"),
)
