"""A diffusion whose score is known: mixtures of Gaussians in the plane, weighted by the prompt."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special
from scipy.spatial import distance

from experiments.generators import diffusion

# A point farther than this many standard deviations from every centre is off the support.
_FAR = 3.0


class PromptedMixture(NamedTuple):
    """Isotropic components `[k]` in the plane, and what m prompts make of them.

    A prompt's embedding is its row of the identity, `[m]`; one between them has the mixture of
    their laws, and the zero vector that of all prompts, equally likely.
    """

    centres: jax.Array  # [k, 2].
    spread: jax.Array  # The standard deviation of each coordinate within a component.
    weights: jax.Array  # Of each prompt's components, [m, k]; rows sum to 1.
    shape = (2,)  # Of one sample's latents, which are the outputs.

    def decode(self, latents: jax.Array) -> jax.Array:
        """The outputs of latents."""
        return latents

    @property
    def prompts(self) -> jax.Array:
        """The embeddings of the prompts, `[m, m]`."""
        return jnp.eye(self.weights.shape[0], dtype=self.weights.dtype)

    @property
    def denoise(self) -> jax.tree_util.Partial:
        """E[x | z_t, prompt] as a denoiser of `diffusion.sample`."""
        return jax.tree_util.Partial(clean_prediction, self)

    @property
    def unconditional(self) -> jax.Array:
        """The prompt that stands for none, `[m]`."""
        return jnp.zeros(self.weights.shape[0], self.weights.dtype)

    def weights_of(self, prompts: jax.Array) -> jax.Array:
        """The components' probabilities `[b, k]` under embeddings `[b, m]`."""
        every = jnp.mean(self.weights, axis=0, keepdims=True)
        of_prompts = jnp.matmul(prompts, self.weights - every, precision="highest")
        return jnp.maximum(every + of_prompts, 0)

    def sample(self, key: jax.Array, prompts: jax.Array) -> jax.Array:
        """A point `[b, 2]` of the true law of each prompt `[b, m]`."""
        key_component, key_noise = jax.random.split(key)
        chosen = jax.random.categorical(key_component, jnp.log(self.weights_of(prompts)))
        noise = jax.random.normal(key_noise, (prompts.shape[0], 2), self.centres.dtype)
        return self.centres[chosen] + self.spread * noise

    def shares(self, points: np.ndarray, prompt: int) -> np.ndarray:
        """What part of all points `[n, 2]` each component of a prompt has, `[k]`.

        A point is of the nearest component that the prompt has, if within 3 standard deviations;
        the parts sum to what is on the support.
        """
        owned = np.flatnonzero(np.asarray(self.weights[prompt]))
        away = distance.cdist(points, self.centres)[:, owned]
        near = np.min(away, axis=1) <= _FAR * float(self.spread)
        chosen = owned[np.argmin(away, axis=1)][near]
        return np.bincount(chosen, minlength=len(self.centres)) / len(points)

    def energy_distance(self, points: np.ndarray, prompt: int) -> float:
        """The squared energy distance of points to the true law of a prompt.

        2 E|x - Y| - E|x - x'| - E|Y - Y'| for x of the points and Y of the law: 0 where they agree,
        in the units of the plane. Expectations over Y are closed forms, and the mean over pairs of
        the points `[n, 2]` is over different ones, so that those of the law give 0 on average.
        """
        weights = np.asarray(self.weights[prompt], float)
        centres, spread = np.asarray(self.centres, float), float(self.spread)
        n = len(points)
        across = mean_length(distance.cdist(points, centres), spread) @ weights
        within = mean_length(distance.cdist(centres, centres), np.sqrt(2) * spread)
        among = 2 * distance.pdist(points).sum() / (n * (n - 1))
        return float(2 * across.mean() - among - weights @ within @ weights)


def mean_length(means: np.ndarray, spread: float) -> np.ndarray:
    """E|Z| of Gaussians in the plane, by the length of their means: the mean of Rice's law.

    spread sqrt(pi / 2) 1F1(-1/2; 1; -(mean / spread)^2 / 2), the spread of each coordinate.
    """
    squares = np.square(means / spread)
    return spread * np.sqrt(np.pi / 2) * special.hyp1f1(-0.5, 1, -squares / 2)


def clean_prediction(
    mixture: PromptedMixture, latents: jax.Array, time: jax.Array, prompts: jax.Array
) -> jax.Array:
    """The posterior mean E[x | z_t, prompt] of latents `[b, 2]` at t and embeddings `[b, m]`.

    A component's noisy law is N(alpha mu, v) with v = alpha^2 s^2 + sigma^2 in each coordinate, its
    own posterior mean mu + (alpha s^2 / v) (z - alpha mu); z says how likely each component is.
    """
    signal, noise = diffusion.alpha(time), diffusion.sigma(time)
    within = jnp.square(mixture.spread)
    variance = jnp.square(signal) * within + jnp.square(noise)
    away = latents[:, None] - signal * mixture.centres[None]
    likelihood = -jnp.sum(jnp.square(away), axis=-1) / (2 * variance)
    components = jax.nn.softmax(likelihood + jnp.log(mixture.weights_of(prompts)), axis=-1)
    means = mixture.centres[None] + signal * within / variance * away
    return jnp.sum(components[..., None] * means, axis=1)


def mixture(centres: np.ndarray, spread: float, weights: np.ndarray) -> PromptedMixture:
    """A mixture out of its numbers."""
    return PromptedMixture(*(jnp.asarray(of, float) for of in (centres, spread, weights)))


def ring(modes: int, radius: float) -> np.ndarray:
    """Points on a circle, `[modes, 2]`."""
    angle = 2 * np.pi * np.arange(modes) / modes
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


# By name: mixtures whose prompts prefer one component.
MIXTURES = {
    # All have all components, and each prefers another one. Together the prompts' samples are of
    # all equally, so that a score which does not know the prompts sees nothing missing.
    "shared": functools.partial(mixture, ring(6, 4.0), 0.4, 0.04 + 0.76 * np.eye(6)),
    # Each has four components of its own, far from the others'.
    "apart": functools.partial(
        mixture,
        (ring(6, 8.0)[:, None] + ring(4, 2.0)[None]).reshape(-1, 2),
        0.4,
        np.kron(np.eye(6), [0.85, 0.05, 0.05, 0.05]),
    ),
}
