"""The study of guided diffusion: its measures by hand, and a mixture whose answer is known."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import studies
import xarray as xr
from small import flags

import condvendi_jax as cv
from experiments.data import sets
from experiments.generators import benches, diffusion, mixture_diffusion
from experiments.guidance import guided_diffusion as guides
from experiments.guidance.guided_diffusion import NONE, OF_FEATURES, REAL, GuidedDiffusion

pytestmark = pytest.mark.slow


def small(folder, seed):
    """The exact diffusion of the mixture whose prompts share components."""
    words = flags(model="mixture", methods="Conditional-RKE", strengths=0.2, seed=seed)
    sizes = flags(seeds=2, samples=40, batch=20, steps=8, every=2, references=100)
    return [*words, *sizes, *flags(rule="median", scales=1)]


SMALL = (
    "--model=mixture --methods=Conditional-RKE --strengths=1e-6,0.3,20 --rule=median --scales=1 "
    "--seeds=3 --samples=90 --batch=30 --steps=10 --every=2 --scale=1 --references=400"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return studies.execute(GuidedDiffusion, tmp_path_factory.mktemp("guided"), *SMALL.split())


def test_the_kernel_distance_is_that_of_all_pairs_of_different_pictures():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)) + 1
    within = [((x @ x.T + 1) ** 3)[~np.eye(len(x), dtype=bool)].mean() for x in (one, other)]
    wanted = sum(within) - 2 * np.mean((one @ other.T + 1) ** 3)
    assert benches.kernel_distance(one, other) == pytest.approx(wanted)


def test_the_similarity_and_the_distance_are_within_kinds():
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
def test_a_guide_acts_every_so_many_steps_and_remembers_what_it_sees(run, method):
    bench = benches.load("mixture")
    study = dataclasses.replace(run.study, every=3)
    made: Any = study.guide_of(method, bench, 2.0)
    guide, remember = made
    latents = jax.random.normal(jax.random.key(0), (3, *bench.model.shape))
    prompts = jnp.asarray(bench.prompts[:1, 0]).repeat(3, axis=0)
    state = remember(guide.init(latents), latents, prompts)
    rows = optax.tree_utils.tree_get(state, "rows")
    seen = bench.features(bench.model.decode(latents)) if method == OF_FEATURES else latents
    np.testing.assert_allclose(rows[0][:3], np.reshape(seen, (3, -1)), rtol=1e-5)
    acted = []
    for _ in range(5):
        updates, state = guide.update(0 * latents, state, latents + 0.1, prompts=prompts)
        acted.append(bool(updates.any()))
    assert acted == [True, False, False, True, False]


@pytest.mark.parametrize("old", ["pictures with the digest", "parameters"])
def test_features_of_other_pictures_or_parameters_are_refused(old, tmp_path, monkeypatch):
    with np.load(sets.FOLDER / "emoji_features.npz") as stored:
        entries = dict(stored)
    lines = entries.pop("provenance").tolist()
    other = [line.replace(old, "other") for line in lines]
    np.savez(tmp_path / "emoji_features.npz", provenance=other, **entries)
    benches.load("emoji")
    monkeypatch.setattr(sets, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=f"(?s)expected features of {old}.*other"):
        benches.load("emoji")


def test_the_features_of_a_mixture_hold_the_points_and_the_judge_is_bayes():
    law = mixture_diffusion.MIXTURES["shared"]()._replace(spread=jnp.float32(0.6))
    bench = benches.mixture_bench(law)
    points = law.sample(jax.random.key(0), law.prompts[jnp.arange(50) % 6])
    features = bench.features(bench.model.decode(points))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    away = np.asarray(points)[:, None] - np.asarray(law.centres)[None]
    likely = np.exp(-np.square(away).sum(-1) / (2 * float(law.spread) ** 2)) @ law.weights.T
    posterior = jax.nn.softmax(bench.logits(features), axis=1)
    np.testing.assert_allclose(posterior, likely / likely.sum(1, keepdims=True), atol=2e-3)


def test_what_is_known_of_a_mixture_comes_out(run):
    """Prompts that prefer one of six components: Bayes finds the prompt of what is preferred."""
    values = run.found.value.sel(scale=1)
    real, plain = (values.sel(guide=guide, strength=0) for guide in (REAL, NONE))
    for of in (real, plain):  # As often as it is preferred.
        assert of.sel(measure="alignment").mean().item() == pytest.approx(80, abs=6)
        assert abs(of.sel(measure="kernel distance").mean()) < 6
    assert (run.found.skipped.sel(guide="Conditional-RKE").dropna("strength") == 0).all()
    gained = guides.gained(values).sel(guide="Conditional-RKE", strength=list(run.study.strengths))
    nearly, guided, broken = gained
    np.testing.assert_allclose(nearly.sel(measure=list(benches.SCORES)), 0, atol=2e-3)
    assert (guided.sel(measure="Conditional-Vendi") > 0).all()
    assert guided.sel(measure="similarity").mean() < 0
    assert broken.sel(measure="kernel distance").min() > 0
    assert broken.sel(measure="alignment").mean() < -20


def test_weights_move_a_sample_by_the_strength(run):
    """Half the strength is half the weight; the gradient at weight 1 gives the length."""
    settings = run.study
    weights = settings.weights["Conditional-RKE"]
    of_strengths = np.divide(settings.strengths, 1e-6)
    np.testing.assert_allclose(np.divide(weights, weights[0]), of_strengths, rtol=0.02)
    bench = benches.load("mixture")
    key = jax.random.fold_in(jax.random.key(0), guides.CALIBRATION)
    kinds, prompts = settings.asked(bench, key)
    draw = settings.sampler(NONE, bench)
    latents = draw(bench.model.denoise, key, jnp.asarray(prompts), jnp.zeros(()))[0]
    within = guides.distance_within(np.asarray(latents), kinds)
    assert settings.latents == pytest.approx(within, rel=0.01)

    def score(last):
        z = jnp.concatenate([latents[:-30], last])
        t = jnp.asarray(prompts)
        k_z, k_t = (
            jnp.exp(-jnp.sum(jnp.square(x[:, None] - x[None]), axis=-1) / width**2)
            for x, width in ((z, settings.latents), (t, settings.prompts))
        )
        return jnp.sum(k_t) / jnp.sum(k_z * k_t)

    slopes = jax.grad(score)(latents[-30:])
    norms = [np.sqrt(np.mean(np.sum(np.square(x), axis=1))) for x in (latents, slopes)]
    assert weights[1] == pytest.approx(0.3 * norms[0] / (5 * norms[1]), rel=0.02)


test_bad_flags_are_refused = studies.refuses(
    GuidedDiffusion,
    ("--samples=70", "--samples: expected a multiple of --batch=20, two batches at least, rec"),
    ("--references=3990", "--references: expected at most 3960 of 4000 real outputs"),
)
