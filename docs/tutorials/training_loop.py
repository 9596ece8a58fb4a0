# %% [markdown]
# # Scores in a training loop
#
# **Question.** The loss of my generator falls. Does the generator lose its diversity on the way?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import condvendi_jax as cv

# %% [markdown]
# ## 1. Data, a generator and two losses
#
# A prompt is one of four points of the plane. Its good outputs lie around it. The generator adds an
# offset, and noise that a matrix spreads.

# %%
POINTS = 6 * jnp.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])


def data(key, n):
    """Prompts and good outputs, `[n, 2]` each."""
    which, noise = jax.random.split(key)
    prompts = POINTS[jax.random.randint(which, n, 0, 4)]
    return prompts, prompts + jax.random.normal(noise, (n, 2))


def generate(params, key, prompts):
    """An output for each prompt, `[n, 2]`."""
    noise = jax.random.normal(key, prompts.shape)
    return prompts + params["offset"] + noise @ params["spread"]


# %% [markdown]
# The squared error compares an output with one good output; the energy distance compares all
# outputs of a batch with all good ones.


# %%
def squared_error(outputs, good):
    """The mean squared distance."""
    return jnp.mean(jnp.sum((outputs - good) ** 2, 1))


def energy_distance(outputs, good):
    """Zero if the outputs have the distribution of the good ones."""

    def mean(x, y):
        return jnp.mean(jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, -1) + 1e-6))

    return 2 * mean(outputs, good) - mean(outputs, outputs) - mean(good, good)


# %% [markdown]
# ## 2. The loop
#
# We keep the batches of an epoch, of any size, and score them together. Choose the bandwidths
# before the loop: scores of other bandwidths do not compare. `unbiased=True` takes the number of
# outputs out of the score.

# %%
kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Indicator()}
optimizer = optax.adam(0.01)


def train(loss, epochs=16):
    @jax.jit
    def step(params, state, key):
        key, draw = jax.random.split(key)
        prompts, good = data(key, 128)
        value, slopes = jax.value_and_grad(lambda p: loss(generate(p, draw, prompts), good))(params)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(params, updates), state, value

    params = {"offset": jnp.ones(2), "spread": 0.5 * jnp.eye(2)}
    state, keys = optimizer.init(params), jax.random.split(jax.random.key(0), (epochs, 20))
    history = []
    for epoch in range(epochs):
        for key in keys[epoch]:
            params, state, value = step(params, state, key)
        batches = []
        fresh = jax.random.fold_in(keys[epoch, 0], 1)  # Not those of the training.
        for key, noise in jax.random.split(fresh, (4, 2)):  # Four batches of 100 to score.
            prompts, _ = data(key, 100)
            batches.append((generate(params, noise, prompts), prompts))
        outputs, prompts = map(jnp.concatenate, zip(*batches, strict=True))
        score = float(cv.conditional_rke(outputs, prompts, **kernels, unbiased=True))
        history.append({"loss": float(value), "score": score})
    return history


runs = {"squared error": train(squared_error), "energy distance": train(energy_distance)}
for name, (first, *_, last) in runs.items():
    print(
        f"{name}: loss {first['loss']:.2f} to {last['loss']:.2f}, "
        f"Conditional-RKE {first['score']:.2f} to {last['score']:.2f}"
    )

# %%
prompts, good = data(jax.random.key(1), 400)
goal = float(cv.conditional_rke(good, prompts, **kernels, unbiased=True))
print(f"Conditional-RKE of the data: {goal:.2f}")

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
styles = {"squared error": ("#0072B2", "o-"), "energy distance": ("#D55E00", "s-")}
for name, (colour, mark) in styles.items():
    epochs = np.arange(1, len(runs[name]) + 1)
    for ax, what in zip(axes, ("loss", "score"), strict=True):
        ax.plot(epochs, [of[what] for of in runs[name]], mark, color=colour, label=name, ms=4)
axes[1].axhline(goal, color="black", ls="--", lw=1, label="data")
for ax, what in zip(axes, ("loss", "Conditional-RKE"), strict=True):
    ax.set(xlabel="epoch", ylabel=what)
_ = axes[1].legend()

# %% [markdown]
# **Both losses fall, and only the score shows the difference.** With the squared error, the
# generator gives the mean output to each prompt: its Conditional-RKE falls to 1. With the energy
# distance it comes near that of the data, whose true value is 5.
#
# `cv.decompose` gives all scores of any order, also inside a compiled step.
#
# Report the kernels, how many outputs you scored at which steps, and the score of as many real
# data.
#
# Next: [an alarm, W&B, TensorBoard, Trackio](../training_loops.md), [a reward for
# TRL](../integrations.md#trl-a-reward).
