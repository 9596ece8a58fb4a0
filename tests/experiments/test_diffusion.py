"""Samplers of diffusion models: against maps that are known, and what a guide adds."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import condvendi_jax as cv
from experiments.generators import diffusion
from experiments.generators.diffusion import TIME_MAX, alpha, guided, sample, sample_batches, sigma

pytestmark = pytest.mark.slow

MEAN, SPREAD = 1.5, 0.5
KEY = jax.random.key(3)


def prompts(count, width=1):
    return jnp.arange(count * width, dtype=float).reshape(count, width) / (count * width)


def of_gaussian(latents, time, prompts):
    """E[x | z_t] where x ~ N(MEAN, SPREAD^2) in every coordinate."""
    signal, noise = alpha(time), sigma(time)
    gain = SPREAD**2 * signal / (signal**2 * SPREAD**2 + noise**2)
    return MEAN + gain * (latents - signal * MEAN)


def first_noise(shape):
    return jax.random.normal(KEY, shape, float)


def exact(noise):
    """Where the probability flow of the Gaussian ends: it keeps the standardised value."""
    signal, other = alpha(TIME_MAX), sigma(TIME_MAX)
    spread = jnp.sqrt(signal**2 * SPREAD**2 + other**2)
    return MEAN + SPREAD * (noise - signal * MEAN) / spread


def orders(solver, truth, denoise, counts, shape=(2,)):
    """Errors at these numbers of steps, and the observed orders between them."""
    given = prompts(64)
    errors = [
        float(
            jnp.abs(
                sample(denoise, KEY, given, shape=shape, steps=n, solver=solver)[0] - truth
            ).max()
        )
        for n in counts
    ]
    return np.array(errors), np.diff(-np.log(errors)) / np.diff(np.log(counts))


def test_ddim_is_of_first_order_on_a_gaussian(x64):
    errors, observed = orders("ddim", exact(first_noise((64, 2))), of_gaussian, (20, 40, 80, 160))
    np.testing.assert_allclose(observed, 1, atol=0.06)
    assert errors[-1] < 0.02


def test_dpm2_is_of_second_order_on_a_gaussian(x64):
    """Up to a logarithm: the last steps in time are not small in the log-SNR."""
    counts = np.array([160, 320, 640, 1280])
    truth = exact(first_noise((64, 2)))
    errors, observed = orders("dpm2", truth, of_gaussian, counts)
    assert np.all(np.diff(observed) > 0)
    assert np.all((observed > 1.6) & (observed < 2.1))
    of_ddim, _ = orders("ddim", truth, of_gaussian, counts[:1])
    assert errors[0] < of_ddim[0] / 8


@pytest.mark.parametrize("solver", diffusion.SOLVERS)
def test_a_point_mass_is_met_exactly(x64, solver):
    """A clean prediction that never changes is integrated without error, by any number of steps."""
    point = jnp.array([2.0, -1.0, 0.5])
    for steps in (1, 2, 3, 10):
        latents, _ = sample(
            lambda z, t, p: jnp.broadcast_to(point, z.shape),
            KEY,
            prompts(4),
            shape=(3,),
            steps=steps,
            solver=solver,
        )
        np.testing.assert_allclose(latents, np.tile(point, (4, 1)), rtol=1e-12)


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
    end = 1e-5
    found = integrate.solve_ivp(flow, (TIME_MAX, end), start, rtol=1e-9, atol=1e-11)
    truth = found.y[:, -1].reshape(5, 2)
    errors = {
        (solver, steps): np.abs(
            sample(of_two_bumps, KEY, given, shape=(2,), steps=steps, solver=solver)[0] - truth
        ).max()
        for solver in diffusion.SOLVERS
        for steps in (100, 400)
    }
    assert errors["ddim", 400] < errors["ddim", 100] / 3.5
    assert errors["dpm2", 400] < errors["dpm2", 100] / 8
    assert errors["dpm2", 400] < 1e-3


def test_classifier_free_guidance_is_its_formula():
    def denoise(latents, time, prompts):
        return latents * time + jnp.square(prompts)

    latents, given, nothing = jnp.ones((3, 2)), prompts(3, 2), jnp.array([0.3, -0.2])
    time = jnp.asarray(0.5)
    found = guided(denoise, nothing, 3.0)(latents, time, given)
    without = 0.5 + np.square([0.3, -0.2])
    expected = without + 3 * (0.5 + np.square(given) - without)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    as_rows = guided(denoise, jnp.tile(nothing, (3, 1)), 3.0)(latents, time, given)
    np.testing.assert_array_equal(as_rows, found)
    alone = guided(denoise, nothing, 1.0)(latents, time, given)
    np.testing.assert_allclose(alone, denoise(latents, time, given), rtol=1e-6)


def test_parameters_pass_through_jit_as_a_pytree():
    def predict(point, latents, time, prompts):
        return jnp.broadcast_to(point, latents.shape) + prompts

    @jax.jit
    def draw(denoise, key, given):
        return sample(denoise, key, given, shape=(1,), steps=4)[0]

    for point in (1.0, 2.0):
        model = jax.tree_util.Partial(predict, jnp.asarray(point))
        doubled = guided(model, jnp.zeros(1), 2.0)
        np.testing.assert_allclose(draw(model, KEY, prompts(3)), point + prompts(3), rtol=1e-6)
        np.testing.assert_allclose(
            draw(doubled, KEY, prompts(3)), point + 2 * prompts(3), rtol=1e-6
        )


def test_a_key_gives_its_sample_again_and_another_key_another():
    options = {"shape": (2, 3), "steps": 5}
    first, again, other = (
        sample(of_gaussian, jax.random.key(seed), prompts(4), **options)[0] for seed in (1, 1, 2)
    )
    assert first.shape == (4, 2, 3)
    np.testing.assert_array_equal(first, again)
    assert np.all(first != other)


MEMORY = cv.guidance.rke(output_kernel=cv.Gaussian(1.0), window=20)


class Shift(NamedTuple):
    """A guide that moves everything by `push` and by a part of where it is, and counts.

    Its state counts the steps, and beside them a true guide of RKE remembers.
    """

    push: float = 0.0
    part: float = 0.0

    def init(self, latents):
        return jnp.asarray(0), MEMORY.init(latents)

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
    found, state = sample(
        lambda z, t, p: z / 2,
        KEY,
        prompts(3),
        shape=(2,),
        steps=steps,
        solver=solver,
        guide=Shift(0.25, 0.1),
        at=at,
    )
    np.testing.assert_allclose(found, moved, rtol=1e-12)
    assert state[0] == steps
    assert state[1].filled.sum() == 3
    np.testing.assert_allclose(state[1].rows[0][:3], moved, rtol=1e-12)


def test_what_is_remembered_is_a_function_of_the_finished_latents():
    def remember(state, latents, prompts):
        return cv.guidance.remember(state[1], 2 * latents, prompts)

    options = {"shape": (2,), "steps": 7, "guide": Shift()}
    latents, state = sample(of_gaussian, KEY, prompts(3), remember=remember, **options)
    np.testing.assert_array_equal(state.rows[0][:3], 2 * latents)


@pytest.mark.parametrize("at", diffusion.PLACES)
def test_a_guide_that_adds_nothing_changes_nothing(at):
    options = {"shape": (2,), "steps": 6, "solver": "dpm2"}
    plain, none = sample(of_gaussian, KEY, prompts(3), **options)
    assert none is None
    still, _ = sample(of_gaussian, KEY, prompts(3), guide=Shift(), at=at, **options)
    np.testing.assert_array_equal(still, plain)


def test_batch_after_batch_is_a_loop_that_carries_the_memory():
    given = jnp.stack([prompts(3), 1 - prompts(3)])
    options = {"shape": (2,), "steps": 5, "guide": Shift(0.1)}
    latents, state = sample_batches(of_gaussian, KEY, given, **options)
    carried = None
    for key, batch, found in zip(jax.random.split(KEY, 2), given, latents, strict=True):
        alone, carried = sample(of_gaussian, key, batch, state=carried, **options)
        np.testing.assert_allclose(found, alone, rtol=1e-6)
    chex.assert_trees_all_close(state, carried, rtol=1e-6)
    assert state[0] == 5
    assert state[1].filled.sum() == 6
    _, onwards = sample_batches(of_gaussian, KEY, given, state=state, **options)
    assert onwards[1].filled.sum() == 12
    plain, none = sample_batches(of_gaussian, KEY, given, shape=(2,), steps=5)
    assert plain.shape == (2, 3, 2)
    assert none is None


def test_latents_have_the_dtype_of_the_prompts(dtype):
    latents, _ = sample(of_gaussian, KEY, prompts(3).astype(dtype), shape=(2,), steps=3)
    assert latents.dtype == dtype


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"solver": "euler"}, "solver: expected one of ddim, dpm2, received 'euler'"),
        ({"at": "end"}, "at: expected one of clean, noisy, received 'end'"),
        ({"steps": 0}, "steps"),
        ({"prompts": jnp.zeros(3)}, r"prompts: expected \[b, p\], received shape \(3,\)"),
        ({"state": 1}, "state: there is a state but no guide"),
    ],
)
def test_what_cannot_be_sampled_is_refused(change, words):
    options = {"prompts": prompts(3), "shape": (2,)} | change
    with pytest.raises(ValueError, match=words):
        sample(of_gaussian, KEY, options.pop("prompts"), **options)
