# %% [markdown]
# # Guide a sampler towards diversity
#
# **Question.** My diffusion model nearly always gives the most common answer. Can I make its
# samples more diverse without training it again, and how strongly may I push?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import condvendi_jax as cv

# %% [markdown]
# ## 1. A sampler
#
# A prompt is a point of the plane. It has two good answers, one above it and a rare one, one in
# ten, below it. `denoise` predicts the clean sample from a noisy one, as a network does.

# %%
CHANCES, SPREAD = jnp.array([0.9, 0.1]), 0.2
OFFSETS = jnp.array([[0.0, 1.0], [0.0, -1.0]])


def denoise(latents, alpha, sigma, prompts):
    """The expected clean latents `[b, 2]` of noisy ones, given prompts `[b, 2]`."""
    means = prompts[:, None, :] + OFFSETS[None, :, :]
    variance = (alpha * SPREAD) ** 2 + sigma**2
    away = latents[:, None, :] - alpha * means
    chances = jax.nn.softmax(jnp.log(CHANCES)[None] - jnp.sum(away**2, -1) / (2 * variance))
    return jnp.sum(chances[:, :, None] * (means + alpha * SPREAD**2 / variance * away), 1)


# %% [markdown]
# ## 2. Add the guide
#
# The guide is a transformation of optax. At every step, `update` returns the gradient of
# Conditional-RKE in the latents, and the sampler adds it to the clean sample. After a batch,
# `remember` keeps the finished samples: the next batch is pushed away from them.


# %%
def sample(key, prompts, guide, state):
    """A batch of samples by 40 DDIM steps, guided, then remembered."""
    times = jnp.linspace(0.98, 0.0, 41)

    def step(carry, time):
        latents, state = carry
        (alpha, sigma), (next_alpha, next_sigma) = (
            (jnp.cos(jnp.pi * t / 2), jnp.sin(jnp.pi * t / 2)) for t in time
        )
        clean = denoise(latents, alpha, sigma, prompts)
        noise = (latents - alpha * clean) / sigma
        updates, state = guide.update(jnp.zeros_like(clean), state, clean, prompts=prompts)
        return (next_alpha * (clean + updates) + next_sigma * noise, state), None

    first = jax.random.normal(key, prompts.shape)
    (latents, state), _ = jax.lax.scan(step, (first, state), (times[:-1], times[1:]))
    return cv.guidance.remember(state, latents, prompts), latents


kernels = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.3)}
score = cv.guidance.conditional_rke(**kernels, prompt_size=2, window=100)
keys = jax.random.split(jax.random.key(0), 20)  # One for each batch of 16 samples.
prompts = 4 * jax.random.bernoulli(jax.random.key(1), shape=(20, 16, 2)).astype(jnp.float32)


@jax.jit
def batches(weight):
    """Samples `[20, 16, 2]`; the guide remembers the last 100 of them."""
    guide = optax.chain(score, optax.scale(weight))
    state = guide.init(jnp.zeros((16, 2)))
    return jax.lax.scan(lambda s, b: sample(*b, guide, s), state, (keys, prompts))[1]


# %% [markdown]
# ## 3. Try several weights
#
# **A score that guided the sampler no longer measures the model.** So we also look at something
# that the guide does not see: the distance of a sample to the nearer good answer. For your model,
# take the distance to real data, or how well samples fit their prompts.

# %%
WEIGHTS = [0.0, 0.1, 0.3, 1.0]
samples, scores, rare, off = {}, {}, {}, {}
for weight in WEIGHTS:
    samples[weight] = batches(weight).reshape(-1, 2)
    scores[weight] = float(cv.conditional_rke(samples[weight], prompts.reshape(-1, 2), **kernels))
    away = np.asarray(samples[weight] - prompts.reshape(-1, 2))
    rare[weight] = np.mean(away[:, 1] < 0)
    off[weight] = np.mean(np.hypot(away[:, 0], abs(away[:, 1]) - 1))
    print(
        f"weight {weight}: Conditional-RKE {scores[weight]:.2f}, "
        f"rare answer {rare[weight]:.0%}, distance to an answer {off[weight]:.2f}"
    )

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained")
answers = (np.unique(prompts.reshape(-1, 2), axis=0)[:, None] + np.asarray(OFFSETS)).reshape(-1, 2)
for ax, weight in zip(axes, (0.0, 0.3, 1.0), strict=True):
    ax.scatter(*samples[weight].T, s=8, color="#0072B2", alpha=0.6, label="samples")
    ax.scatter(*answers.T, s=70, marker="x", color="#D55E00", label="good answers")
    ax.set_title(f"weight {weight}")
_ = axes[0].legend(fontsize=7, loc="center")

# %% [markdown]
# A weight of 0.3 gives the rare answer more often, and samples stay near the answers. A weight of 1
# has by far the largest score, and its samples are far from any answer.
#
# ## 4. Choose the weight
#
# Say beforehand how much quality you may lose. Here the distance may grow by half:

# %%
chosen = max(weight for weight in WEIGHTS if off[weight] <= 1.5 * off[0.0])
print(f"weight {chosen}: rare answer {rare[chosen]:.0%} in the place of {rare[0.0]:.0%}")

# %% [markdown]
# Report the guiding score and its kernels, the weight, the schedule, the window, the time of a step
# with and without the guide, and a measure of quality that the guide did not see.
#
# Next: [guidance](../guidance.md) has schedules, other scores and costs.
