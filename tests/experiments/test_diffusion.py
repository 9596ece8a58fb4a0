"""Samplers of diffusion models: against maps that are known, and what a guide adds."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import condvendi_jax as cv
from experiments.generators import diffusion
from experiments.generators.diffusion import TIME_MAX, guided, sample, sample_batches

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
    time = jnp.asarray(0.5)
    found = guided(denoise, nothing, 3.0)(latents, time, given)
    without = 0.5 + np.square([0.3, -0.2])
    expected = without + 3 * (0.5 + np.square(given) - without)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    alone = guided(denoise, nothing, 1.0)(latents, time, given)
    np.testing.assert_allclose(alone, denoise(latents, time, given), rtol=1e-6)


MEMORY = cv.guidance.rke(output_kernel=cv.Gaussian(1.0), window=20)


class Shift(NamedTuple):
    """Moves by `push` and a part of where it is; counts its steps beside what a guide remembers."""

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
    assert state[0] == 5
    assert state[1].filled.sum() == 6
    plain, none = sample_batches(half, KEY, given, shape=(2,), steps=5)
    assert plain.shape == (2, 3, 2)
    assert none is None


def test_what_cannot_be_sampled_is_refused():
    cases: Any = (
        (prompts(3), {"solver": "euler"}, "solver: expected one of ddim, dpm2, received 'euler'"),
        (prompts(3), {"at": "end"}, "at: expected one of clean, noisy, received 'end'"),
        (prompts(3), {"steps": 0}, "steps"),
        (jnp.zeros(3), {}, r"prompts: expected \[b, p\], received shape \(3,\)"),
    )
    for given, options, words in cases:
        with pytest.raises(ValueError, match=words):
            sample(half, KEY, given, shape=(2,), **options)
