"""The study of guided diffusion: its measures by hand, and a mixture whose answer is known."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from small import small_run
from studies import execute

import condvendi_jax as cv
from experiments import diffusion_guides as guides
from experiments import lab
from experiments import picture_judging as judging
from experiments.data import sets
from experiments.diffusion_guides import NONE, OF_FEATURES
from experiments.generators import benches, mixture_diffusion
from experiments.guided_diffusion import REAL, GuidedDiffusion
from experiments.lab import runner

pytestmark = pytest.mark.slow

SMALL = GuidedDiffusion(
    bandwidths=lab.Scales(rule="median", scales=(1.0,)),
    model="mixture",
    methods=("Conditional-RKE",),
    strengths=(1e-6, 0.3, 20.0),
    seeds=3,
    samples=90,
    batch=30,
    steps=10,
    every=2,
    scale=1.0,
    references=400,
)


def no_pairs():
    raise AssertionError("the study takes no pairs")


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# --- measures ----------------------------------------------------------------------------------


def test_the_kernel_distance_is_that_of_all_pairs_and_without_bias():
    rng = np.random.default_rng(0)
    one, other = unit(rng.normal(size=(5, 3))), unit(rng.normal(size=(4, 3)) + 1)
    same = [(a @ b + 1) ** 3 for i, a in enumerate(one) for j, b in enumerate(one) if i != j]
    rest = [(a @ b + 1) ** 3 for i, a in enumerate(other) for j, b in enumerate(other) if i != j]
    across = [(a @ b + 1) ** 3 for a in one for b in other]
    wanted = np.mean(same) + np.mean(rest) - 2 * np.mean(across)
    assert judging.kernel_distance(one, other) == pytest.approx(wanted)
    draws = [
        judging.kernel_distance(*(unit(rng.normal(size=(n, 3))) for n in (8, 12)))
        for _ in range(300)
    ]
    assert abs(np.mean(draws)) < 4 * np.std(draws) / np.sqrt(len(draws))


def test_the_similarity_and_the_distance_are_within_kinds():
    features = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])
    kinds = np.array([0, 0, 0, 1])
    assert judging.similarity(features, kinds) == pytest.approx((0 + 0.6 + 0.8) / 3)
    assert np.isnan(judging.similarity(features, np.arange(4)))
    lengths = np.sqrt([2.0, 0.8, 0.4])
    features[3] = 9  # Far away, and of another kind.
    assert guides.distance_within(features, kinds) == pytest.approx(np.median(lengths))


def test_a_mean_at_a_cost_by_hand():
    costs = np.array([[-0.5, -0.5], [-1.5, -2.5]])  # Means -0.5 and -2 at two strengths.
    gains = np.array([[1.0, 3.0], [3.0, 5.0]])  # Means 2 and 4.
    value, error = judging.at_cost(costs, gains, -1.0)
    assert value == pytest.approx(2 + 2 / 3)
    alone = [3 + (0.5 / 2.0) * 2, 1 + (0.5 / 1.0) * 2]  # Without the first, without the second.
    assert error == pytest.approx(abs(alone[0] - alone[1]) / 2)
    assert judging.at_cost(costs, gains, -0.25)[0] == pytest.approx(1.0)  # From none onwards.
    assert judging.at_cost(-costs, gains, 1.0)[0] == pytest.approx(value)
    gains = np.array([[1.0, 2.0, 6.0]])  # All cost as much: the error is that of the mean.
    error = judging.at_cost(np.ones((1, 3)), gains, 1.0)[1]
    assert error == pytest.approx(np.std(gains, ddof=1) / np.sqrt(3))


def test_what_never_costs_so_much_has_no_mean_there():
    costs, gains = np.array([[-0.5, -0.5], [-1.5, -2.5]]), np.array([[1.0, 3.0], [3.0, 5.0]])
    assert all(np.isnan(judging.at_cost(costs, gains, -3.0)))
    value, error = judging.at_cost(costs, gains, -1.9)
    assert np.isfinite(value) and np.isnan(error)  # One seed alone never costs so much.


def test_an_update_of_features_is_pulled_back_to_the_latents():
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)

    def features(latents):
        return jnp.tanh(latents @ matrix)

    inner = cv.guidance.vendi(output_kernel=cv.Gaussian(1.0), window=5)
    guide = guides.pulled_back(optax.chain(inner, optax.scale(0.5)), features)
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
def test_a_guide_acts_every_so_many_steps_and_remembers_what_it_sees(judged, method):
    bench = benches.load("mixture")
    sampling = dataclasses.replace(judged[0].sampling, every=3)
    guide = guides.guide_of(method, sampling, bench, 2.0)
    latents = jax.random.normal(jax.random.key(0), (3, *bench.model.shape))
    prompts = jnp.asarray(bench.prompts[:1, 0]).repeat(3, axis=0)
    state = guides.remember_of(method, bench)(guide.init(latents), latents, prompts)
    rows = optax.tree_utils.tree_get(state, "rows")
    seen = bench.features(bench.model.decode(latents)) if method == OF_FEATURES else latents
    np.testing.assert_allclose(rows[0][:3], np.reshape(seen, (3, -1)), rtol=1e-5)
    acted = []
    for _ in range(5):
        updates, state = guide.update(0 * latents, state, latents + 0.1, prompts=prompts)
        acted.append(bool(updates.any()))
    assert acted == [True, False, False, True, False]


# --- trained models ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [("pictures with the digest", "other pictures"), ("parameters", "other"), ("", None)],
    ids=["pictures", "parameters", "neither"],
)
def test_features_of_other_pictures_or_parameters_are_refused(old, new, tmp_path, monkeypatch):
    with np.load(sets.FOLDER / "emoji_features.npz") as stored:
        entries = dict(stored)
    path, lines = tmp_path / "emoji_features.npz", entries.pop("provenance").tolist()
    monkeypatch.setattr(sets, "FOLDER", tmp_path)
    np.savez(path, provenance=lines, **entries)
    found = benches.load("emoji").real
    np.testing.assert_allclose(found.outputs, entries["outputs"], atol=1e-3)

    kept = {} if new is None else {"provenance": [line.replace(old, new) for line in lines]}
    np.savez(path, **kept, **entries)
    with pytest.raises(ValueError, match="features emoji --pictures=DIR makes them") as error:
        benches.load("emoji")
    words = str(error.value)
    assert words.startswith(f"{path}: expected features of {old}") and "\n" not in words
    assert (new or "received none") in words


# --- the mixture -------------------------------------------------------------------------------


def test_the_features_of_a_mixture_hold_the_points_and_the_judge_is_bayes():
    bench = benches.load("mixture")
    law = mixture_diffusion.shared()
    points = law.sample(jax.random.key(0), law.prompts[jnp.arange(50) % 6])
    features = bench.features(bench.model.decode(points))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    found = np.asarray(bench.logits(features), np.float64)
    away = np.asarray(points)[:, None] - np.asarray(law.centres)[None]
    likely = np.exp(-np.square(away).sum(-1) / (2 * float(law.spread) ** 2))
    wanted = np.log(likely @ np.asarray(law.weights).T)
    posterior, other = (np.exp(v) / np.exp(v).sum(1, keepdims=True) for v in (found, wanted))
    np.testing.assert_allclose(posterior, other, atol=2e-3)


@pytest.fixture(scope="module")
def judged():
    """The study of a run, and the results of its cells."""
    setup = SMALL.prepare(no_pairs, 0)
    found = {}
    for cell in setup.study.cells():
        key = runner.cell_key(0, str(cell))
        context = lab.Context(key, jax.random.key(0), found, lambda words: None)
        found[cell] = setup.study.compute(setup.state, context, **cell.values)
    return setup.study, lab.gather(found)


def test_what_is_known_of_a_mixture_comes_out(judged):
    """Prompts that prefer one of six components: Bayes finds the prompt of what is preferred."""
    study, found = judged
    values = found.value.sel(scale=1)
    real, plain = (values.sel(guide=guide, strength=0) for guide in (REAL, NONE))
    for of in (real, plain):
        # As often as it is preferred.
        assert of.sel(measure="alignment").mean().item() == pytest.approx(80, abs=6)
        assert abs(of.sel(measure="kernel distance").mean()) < 6
    nearly, guided, broken = (
        values.sel(guide="Conditional-RKE", strength=s) for s in study.strengths
    )
    scores = list(judging.SCORES)
    np.testing.assert_allclose(nearly.sel(measure=scores), plain.sel(measure=scores), rtol=1e-3)
    away = nearly - plain
    np.testing.assert_allclose(away.sel(measure="kernel distance"), 0, atol=0.1)
    gained = guided - plain
    assert (gained.sel(measure="Conditional-Vendi") > 0).all()
    assert gained.sel(measure="similarity").mean() < 0
    far = broken.sel(measure="kernel distance")
    assert far.min() > plain.sel(measure="kernel distance").max()
    assert (broken - plain).sel(measure="alignment").mean() < -20
    drawn = found.sel(guide=["Conditional-RKE"], strength=list(study.strengths))
    assert (drawn.skipped == 0).all() and (drawn.seconds > 0).all()
    np.testing.assert_array_equal(
        judging.gained(values).sel(guide="Conditional-RKE", strength=0.3), gained
    )


def test_seeds_differ_and_a_cells_noise_does_not_hang_on_it(judged):
    plain = judged[1].value.sel(guide=NONE, strength=0, scale=1, measure="Conditional-Vendi")
    assert len(set(plain.values.tolist())) == SMALL.seeds
    bench = benches.load("mixture")
    kinds, prompts = guides.asked(50, 90, bench, jax.random.key(3))
    again, _ = guides.asked(50, 90, bench, jax.random.key(3))
    np.testing.assert_array_equal(kinds, again)
    assert np.bincount(kinds).tolist() == [15] * 6
    np.testing.assert_array_equal(prompts, bench.prompts[kinds, 0])
    assert (np.diff(kinds) != 0).any()
    assert len(np.unique(guides.asked(2, 90, bench, jax.random.key(3))[0])) == 2


def test_weights_move_a_sample_by_the_strength(judged):
    """Half the strength is half the weight; the gradient at weight 1 gives the length."""
    settings, _ = judged
    weights = settings.weights["Conditional-RKE"]
    np.testing.assert_allclose(
        np.array(weights) / weights[0], np.array(SMALL.strengths) / 1e-6, rtol=0.02
    )
    bench = benches.load("mixture")
    key = jax.random.fold_in(jax.random.key(0), guides.CALIBRATION)
    kinds, prompts = guides.asked(settings.kinds, settings.samples, bench, key)
    draw = guides.sampler(NONE, settings.sampling, bench)
    latents = draw(bench.model.denoise, key, jnp.asarray(prompts), jnp.zeros(()))[0]
    assert settings.latents == pytest.approx(
        guides.distance_within(np.asarray(latents), kinds), rel=0.01
    )

    def score(last):
        z = jnp.concatenate([latents[:-30], last])
        t = jnp.asarray(prompts)
        k_z, k_t = (
            jnp.exp(-jnp.sum(jnp.square(x[:, None] - x[None]), axis=-1) / width**2)
            for x, width in ((z, settings.latents), (t, settings.prompts))
        )
        return jnp.sum(k_t) / jnp.sum(k_z * k_t)

    slopes = np.asarray(jax.grad(score)(latents[-30:]))
    norms = [np.sqrt(np.mean(np.sum(np.square(x), axis=1))) for x in (latents, slopes)]
    assert weights[1] == pytest.approx(0.3 * norms[0] / (5 * norms[1]), rel=0.02)


def test_pictures_are_kept_of_the_first_samples_of_some_kinds():
    outputs = np.arange(40)[:, None, None, None] / 255 * np.ones((1, 2, 2, 1))
    kept = judging.pictures(outputs, np.arange(40) % 9, 6, 4)
    shown = kept.pictures.values
    assert shown.shape == (6, 4, 2, 2, 1) and shown.dtype == np.uint8
    np.testing.assert_array_equal(shown[:, :, 0, 0, 0], np.arange(6)[:, None] + 9 * np.arange(4))
    assert kept.kind.values.tolist() == [0, 1, 2, 3, 4, 5]
    every = judging.pictures(outputs, np.arange(40) % 9, 9, 4)
    assert every.kind.values.tolist() == list(range(9))
    few = judging.pictures(outputs, np.arange(40) % 20, 6, 4)
    assert few.pictures.shape == (6, 2, 2, 2, 1)
    assert not judging.pictures(np.ones((4, 2)), np.zeros(4, int), 6, 4)


# --- flags -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--seeds=1", "--seeds: expected a number at least 2, received 1"),
        ("--strengths=0", "--strengths: expected a number above 0, received 0.0"),
        ("--strengths=1,1", "--strengths: 1 is given twice"),
        ("--samples=70", "--samples: expected a multiple of --batch=20, received 70."),
        ("--samples=20", "--samples: expected at least two batches of 20, received 20."),
        ("--references=3990", "--references: expected at most 3960 of 4000 real outputs"),
        ("--scale=-1", "--scale: expected a number above 0"),
        ("--mixture=none.npz", "--mixture: none.npz cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(flag, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        execute(GuidedDiffusion, tmp_path, *small_run(GuidedDiffusion, tmp_path), flag)
    assert "\n" not in str(caught.value)


def test_the_mixture_of_a_file_is_read(tmp_path):
    given = small_run(GuidedDiffusion, tmp_path, seed=3)
    law = benches.read_mixture(tmp_path / "mixture.npz")
    assert f"--mixture={tmp_path / 'mixture.npz'}" in given
    np.testing.assert_allclose(law.centres, mixture_diffusion.apart(3, 3, radius=8.3).centres)


def test_guides_have_gaussian_prompts_where_scores_have_the_cosine_kernel(judged):
    """By the rule of the Gaussian kernel."""
    cosine = dataclasses.replace(SMALL, bandwidths=lab.Scales(kernel="cosine"))
    rule = dataclasses.replace(SMALL, bandwidths=lab.Scales())
    ready = [study.prepare(no_pairs, 0).study for study in (cosine, rule)]
    assert ready[0].prompts == ready[1].prompts > 0
    assert ready[0].weights == ready[1].weights


def test_gains_are_read_where_each_method_costs_as_much():
    values = np.zeros((2, 3, 2, 2))  # Guides, strengths, measures, seeds.
    values[1, 1:, 0] = [[-0.5, -0.5], [-1.5, -2.5]]
    values[1, 1:, 1] = [[1.0, 3.0], [3.0, 5.0]]
    labels = {"guide": [NONE, "Vendi"], "strength": [0.0, 0.1, 1.0]}
    found = xr.DataArray(values, labels | {"measure": ["alignment", "Vendi"], "seed": [0, 1]})
    kernel = found.sel(measure=["alignment"]).assign_coords(measure=["kernel distance"])
    minus = judging.gained(xr.concat([found, kernel], "measure"))
    assert minus["guide"].values.tolist() == ["Vendi"] and minus.sizes["strength"] == 2
    told = judging.at_costs(minus).sel(guide="Vendi")
    expected = judging.at_cost(values[1, 1:, 0], values[1, 1:, 1], -1.0)
    at = told.sel(cost="1 point of alignment", measure="Vendi")
    np.testing.assert_allclose([at.value, at.error], expected)
    never = told.sel(cost="kernel distance + 2", measure="Vendi")
    assert np.isnan(never.value)  # The distance only falls.
