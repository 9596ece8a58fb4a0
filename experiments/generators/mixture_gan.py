"""Generative adversarial networks on mixtures of Gaussians in the plane, as in RKE figure 1.

`python -m experiments.generators.mixture_gan` trains what the shipped parameters lack.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from scipy import optimize
from scipy.spatial import distance

import condvendi_jax as cv
from experiments.generators import fitting, mixture_diffusion
from experiments.lab import records

VERSION = 1
SEED = 0  # Of the trainings; networks side by side have keys of their own.
NOISE = 2
# A sample is good within so many standard deviations of a centre (in the plane, 98.9% of the
# mixture's own samples are), and a mode is captured if it has this part of its due, n / k good
# samples. A generator that draws a line through all centres captures none of them.
RADIUS, LEAST = 3.0, 0.1
TRACES = ("rke", "captured", "good")
_TRACED = 1000  # Samples a point of a trace.
_HIGHEST = lax.Precision.HIGHEST
Layers = Mapping[int, Mapping[str, jax.Array]]  # By their place: "kernel" [n, m] and "bias" [m].
Directions = Mapping[int, jax.Array]  # Estimates of the kernels' first right singular vectors.


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """Equally likely Gaussians in the plane with one standard deviation."""

    centres: np.ndarray  # [k, 2].
    scale: float  # Standard deviation of each coordinate within a component.
    description: str

    def sample(self, key: jax.Array, n: int, weights: Any = None) -> jax.Array:
        """Draws n points `[n, 2]`, of all components equally or by weights `[k]`."""
        mode_key, noise_key = jax.random.split(key)
        if weights is None:
            mode = jax.random.randint(mode_key, (n,), 0, len(self.centres))
        else:
            mode = jax.random.choice(mode_key, len(self.centres), (n,), p=weights)
        return jnp.asarray(self.centres)[mode] + self.scale * jax.random.normal(noise_key, (n, 2))

    def good_shares(self, samples: np.ndarray) -> np.ndarray:
        """The share of samples `[..., n, 2]` that are good ones of each component, `[..., k]`."""
        distances = np.linalg.norm(samples[..., None, :] - self.centres, axis=-1)
        nearest = distances.argmin(-1)[..., None] == np.arange(len(self.centres))
        return np.mean(nearest & (distances <= RADIUS * self.scale), axis=-2)

    def captured(self, shares: np.ndarray) -> np.ndarray:
        """How many modes good shares `[..., k]` make captured ones, `[...]`."""
        return np.sum(shares >= LEAST / len(self.centres), axis=-1)

    def rke(self, bandwidth: float) -> float:
        """RKE-MC of the mixture itself, 1 / E[k(X, X')^2]: a mean of Gaussian integrals."""
        squares = distance.cdist(self.centres, self.centres, "sqeuclidean") / bandwidth**2
        wider = 1 + 4 * (self.scale / bandwidth) ** 2
        return float(wider / np.mean(np.exp(-squares / wider)))

    def counting_bandwidth(self) -> float:
        """The bandwidth at which RKE-MC of the mixture itself is its number of components.

        The score falls as the bandwidth grows (RKE Theorem 1).
        """
        modes, ends = len(self.centres), (self.scale, 10.0)
        found: Any = optimize.brentq(lambda width: self.rke(width) - modes, *ends, xtol=1e-5)
        return float(found)


_SIDE = 2 * np.arange(-2, 3) / 2.828
# Those of Gulrajani et al. (2017): a radius of 2 and a deviation of 0.02, divided by 1.414; a
# spacing of 2 and a deviation of 0.05, divided by 2.828. Their coordinates have variance 1.
MIXTURES = {
    "ring": Mixture(
        mixture_diffusion.ring(8, 2) / 1.414, 0.02 / 1.414, "ring of 8 (radius 1.414, sd 0.0141)"
    ),
    "grid": Mixture(
        np.stack(np.meshgrid(_SIDE, _SIDE), axis=-1).reshape(-1, 2),
        0.05 / 2.828,
        "grid of 25 (spacing 0.707, sd 0.0177)",
    ),
}


def perceptron(sizes: Sequence[int], rngs: nnx.Rngs) -> Layers:
    """Layers of these units, that of the input first, with the weights of He et al. (2015)."""
    start = nnx.initializers.he_normal()
    layers = [nnx.Linear(*of, kernel_init=start, rngs=rngs) for of in itertools.pairwise(sizes)]
    return {i: nnx.to_pure_dict(nnx.state(layer)) for i, layer in enumerate(layers)}


def apply(layers: Layers, points: jax.Array) -> jax.Array:
    """`[n, units in]` to `[n, units out]`, with ReLU between the layers."""
    for index in range(len(layers)):
        points = jax.nn.relu(points) if index else points
        points = jnp.dot(points, layers[index]["kernel"], precision=_HIGHEST)
        points += layers[index]["bias"][None, :]
    return points


def normalised(layers: Layers, directions: Directions) -> Layers:
    """The layers, with kernels that have directions divided by their largest singular values.

    Differentiable in the kernels, with their singular vectors held fixed.
    """
    found = dict(layers)
    for i, right in lax.stop_gradient(directions).items():
        kernel = layers[i]["kernel"]
        left = lax.stop_gradient(_unit(kernel @ right))
        found[i] = {**layers[i], "kernel": kernel / (left @ kernel @ right)}
    return found


def iterated(layers: Layers, directions: Directions) -> Directions:
    """The directions after one more power iteration."""
    kernels = {i: layers[i]["kernel"] for i in directions}
    return {i: _unit(kernels[i].T @ _unit(kernels[i] @ v)) for i, v in directions.items()}


def _unit(vector: jax.Array) -> jax.Array:
    return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-12)


def gradient_penalty(
    critic: Callable[[jax.Array], jax.Array], real: jax.Array, fake: jax.Array, key: jax.Array
) -> jax.Array:
    """Mean of (|gradient| - 1)^2 between real and fake points (Gulrajani et al. 2017, eq. 3)."""
    weight = jax.random.uniform(key, (len(real), 1))
    slopes = jax.grad(lambda points: jnp.sum(critic(points)))(weight * real + (1 - weight) * fake)
    # The gradient of a norm is not finite at zero.
    norms = jnp.sqrt(jnp.sum(jnp.square(slopes), axis=-1) + 1e-12)
    return jnp.mean(jnp.square(norms - 1))


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of GAN: losses, optimisers and penalties as its authors published them.

    All learn at LSGAN's published rate, and weights are clipped at 0.1: with what the others
    published, which is for many times the updates or for pictures, few modes of the grid were
    captured in trials, and none by clipping at 0.01. The rate is constant in the
    first half of a training and then falls linearly to zero.
    """

    label: str
    # Of the critic's outputs on real and on generated points, [n] each; of those on generated ones.
    critic_loss: Callable[[jax.Array, jax.Array], jax.Array]
    generator_loss: Callable[[jax.Array], jax.Array]
    optimizer: Callable[[Any], optax.GradientTransformation]  # Of both networks, by the rate.
    steps: int = 12_000  # Updates of the generator.
    critic_steps: int = 5  # Updates of the critic before each.
    rate: float = 1e-3
    clip: float | None = None  # Bound of the critic's weights after each update.
    penalty: float = 0.0  # Weight of the gradient penalty.
    spectral: bool = False  # Whether the critic is spectrally normalised (Miyato et al. 2018).


# Losses of the critic and of the generator by Arjovsky et al. (2017).
_DIFFERENCE = lambda real, fake: jnp.mean(fake) - jnp.mean(real), lambda fake: -jnp.mean(fake)

# An update of each network in turn, by Adam as Radford et al. (2016) set it.
_in_turn = functools.partial(
    Kind, optimizer=functools.partial(optax.adam, b1=0.5), steps=15_000, critic_steps=1
)

KINDS = {
    # Goodfellow et al. (2014), the generator's loss that does not saturate.
    "vanilla": _in_turn(
        "GAN",
        lambda real, fake: jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(fake)),
        lambda fake: jnp.mean(jax.nn.softplus(-fake)),
    ),
    # Mao et al. (2017), targets 1, 0 and 1.
    "lsgan": _in_turn(
        "LSGAN",
        lambda real, fake: (jnp.mean(jnp.square(real - 1)) + jnp.mean(jnp.square(fake))) / 2,
        lambda fake: jnp.mean(jnp.square(fake - 1)) / 2,
    ),
    # Arjovsky, Chintala and Bottou (2017), algorithm 1.
    "wgan_wc": Kind(
        "WGAN-WC", *_DIFFERENCE, functools.partial(optax.rmsprop, decay=0.99), clip=0.1
    ),
    # Gulrajani et al. (2017); the penalty's weight is that of their code for toy data.
    "wgan_gp": Kind(
        "WGAN-GP", *_DIFFERENCE, functools.partial(optax.adam, b1=0.5, b2=0.9), penalty=0.1
    ),
    # Miyato et al. (2018), hinge loss.
    "sngan": Kind(
        "SNGAN",
        lambda real, fake: jnp.mean(jax.nn.relu(1 - real)) + jnp.mean(jax.nn.relu(1 + fake)),
        _DIFFERENCE[1],
        functools.partial(optax.adam, b1=0.0, b2=0.9),
        spectral=True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Training:
    """What a training depends on beside its seed."""

    mixture: str
    kind: str
    steps: int  # Updates of the generator.
    seeds: int = 5  # How many networks are trained side by side, each with a key of its own.
    width: int = 64  # Units of each of the three hidden layers of both networks.
    batch: int = 128  # Points of each update.
    points: int = 40  # Of the trace.


class Networks(NamedTuple):
    """Two networks and their optimisers, in the middle of a training."""

    generator: Mapping[str, Layers]  # "layers", as they are kept.
    critic: Layers
    directions: Directions  # Of the critic; empty where it is not spectrally normalised.
    generator_moments: Any
    critic_moments: Any


class Trainer:
    """The pure functions of a training of one seed: `start`, and `step`."""

    def __init__(self, kind: Kind, mixture: Mixture, training: Training):
        self.kind, self.mixture, self.batch = kind, mixture, training.batch
        updates = training.steps, training.steps * kind.critic_steps
        self.of_generator, self.of_critic = (
            kind.optimizer(optax.linear_schedule(kind.rate, 0.0, max(1, n - n // 2), n // 2))
            for n in updates
        )
        self._hidden = (training.width,) * 3

    def start(self, key: jax.Array) -> Networks:
        """Networks before the first update."""
        of_generator, of_critic = map(nnx.Rngs, jax.random.split(key))
        generator = {"layers": perceptron((NOISE, *self._hidden, 2), of_generator)}
        critic, directions = perceptron((2, *self._hidden, 1), of_critic), {}
        for index, layer in critic.items() if self.kind.spectral else ():
            start = jax.random.normal(of_critic.params(), layer["bias"].shape)
            directions[index] = _unit(start)
        moments = self.of_generator.init(generator), self.of_critic.init(critic)
        return Networks(generator, critic, directions, *moments)

    def criticise(self, critic: Layers, directions: Directions, points: jax.Array) -> jax.Array:
        """The critic's outputs, `[n]`."""
        return apply(normalised(critic, directions), points)[:, 0]

    def critic_step(self, networks: Networks, key: jax.Array) -> tuple[Networks, jax.Array]:
        """One update of the critic, and its loss before it."""
        real_key, noise_key, between_key = jax.random.split(key, 3)
        real = self.mixture.sample(real_key, self.batch)
        fake = sample(networks.generator, noise_key, self.batch)
        directions = iterated(networks.critic, networks.directions)

        def loss(critic: Layers) -> jax.Array:
            judge = functools.partial(self.criticise, critic, directions)
            value = self.kind.critic_loss(judge(real), judge(fake))
            if self.kind.penalty:
                value += self.kind.penalty * gradient_penalty(judge, real, fake, between_key)
            return value

        value, slopes = jax.value_and_grad(loss)(networks.critic)
        updates, moments = self.of_critic.update(slopes, networks.critic_moments)
        critic = optax.apply_updates(networks.critic, updates)
        if (bound := self.kind.clip) is not None:
            critic = jax.tree.map(lambda weight: jnp.clip(weight, -bound, bound), critic)
        found = networks._replace(critic=critic, directions=directions, critic_moments=moments)
        return found, value

    def generator_step(self, networks: Networks, key: jax.Array) -> tuple[Networks, jax.Array]:
        """One update of the generator, and its loss before it."""

        def loss(generator: Mapping[str, Layers]) -> jax.Array:
            fake = sample(generator, key, self.batch)
            outputs = self.criticise(networks.critic, networks.directions, fake)
            return self.kind.generator_loss(outputs)

        value, slopes = jax.value_and_grad(loss)(networks.generator)
        updates, moments = self.of_generator.update(slopes, networks.generator_moments)
        generator = optax.apply_updates(networks.generator, updates)
        return networks._replace(generator=generator, generator_moments=moments), value

    def step(self, networks: Networks, key: jax.Array) -> tuple[Networks, jax.Array]:
        """The critic's updates, then one of the generator, and its loss before it."""
        *critic_keys, generator_key = jax.random.split(key, self.kind.critic_steps + 1)
        networks, _ = lax.scan(self.critic_step, networks, jnp.stack(critic_keys))
        return self.generator_step(networks, generator_key)


def train(training: Training, say: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """Trains the networks of all seeds together; network i depends on `SEED` and on i alone.

    Returns:
      `generator`, parameters of all seeds on a leading axis; `trace`, of `[points]` the `step` and
      of `[seeds, points]` `rke` at the bandwidth that counts the mixture's modes, `captured` modes
      and the share of `good` samples; `seconds`.
    """
    mixture, kind = MIXTURES[training.mixture], KINDS[training.kind]
    trainer = Trainer(kind, mixture, training)
    kernel = cv.Gaussian(mixture.counting_bandwidth())
    folded = jax.vmap(jax.random.fold_in, (None, 0))

    @functools.partial(jax.jit, donate_argnums=0)
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def advance(networks: Networks, key: jax.Array, indices: jax.Array) -> Networks:
        return lax.scan(trainer.step, networks, folded(key, indices))[0]

    keys = folded(jax.random.key(SEED), jnp.arange(training.seeds))
    start_keys, step_keys, trace_keys = jax.vmap(lambda k: jax.random.split(k, 3))(keys).T
    started = time.perf_counter()
    networks = jax.vmap(trainer.start)(start_keys)
    ends = np.linspace(0, training.steps, training.points + 1).round().astype(int)
    trace = []
    for first, last in zip(ends, ends[1:], strict=False):
        networks = advance(networks, step_keys, jnp.arange(first, last))
        params = jax.tree.map(np.asarray, networks.generator)
        drawn = np.stack([sample(one(params, i), k, _TRACED) for i, k in enumerate(trace_keys)])
        shares = mixture.good_shares(drawn)
        found = [float(cv.rke(points, kernel=kernel)) for points in drawn]
        trace.append([found, mixture.captured(shares), shares.sum(-1)])
        say(f"{training.mixture} {training.kind} {last}: {np.mean(trace[-1], axis=1).round(2)}")
    rke, captured, good = np.moveaxis(np.array(trace, np.float32), 0, -1)
    return {
        "generator": params,
        "trace": {"step": ends[1:], "rke": rke, "captured": captured, "good": good},
        "seconds": np.array(time.perf_counter() - started),
    }


def one(params: Mapping[Any, Any], index: int) -> Any:
    """The parameters of one of the networks that were trained side by side."""
    return jax.tree.map(lambda leaf: leaf[index], params)


@functools.partial(jax.jit, static_argnames="n")
def sample(params: Any, key: jax.Array, n: int) -> jax.Array:
    """Draws n points `[n, 2]` of one generator."""
    return apply(params["layers"], jax.random.normal(key, (n, NOISE)))


def settled(values: np.ndarray) -> float:
    """How far a trace `[seeds, points]` still moves between its last two tenths.

    The absolute change of the mean over seeds, in standard deviations over the seeds of their means
    over the last fifth; the training has stopped moving where it is below 1. Where the seeds agree
    to rounding: 0 without a change.
    """
    tenth = max(1, values.shape[1] // 10)
    before, last = values[:, -2 * tenth : -tenth].mean(1), values[:, -tenth:].mean(1)
    change = abs(float(np.mean(last - before)))
    spread = float(np.std((before + last) / 2, ddof=1)) if len(values) > 1 else 0.0
    return 0.0 if change == 0 else change / spread if spread > 0 else np.inf


def identity(training: Training) -> records.Identity:
    """Whose the parameters of a training are: `Training`, and the numbers of its kind and data.

    The losses and the optimiser are functions: `VERSION` is raised where they change.
    """
    kind, mixture = KINDS[training.kind], MIXTURES[training.mixture]
    names = "rate", "critic_steps", "clip", "penalty", "spectral"
    numbers = {name: getattr(kind, name) for name in names}
    return records.identify(
        f"mixture_gan-{training.mixture}-{training.kind}",
        VERSION,
        {**dataclasses.asdict(training), "method": numbers, "scale": mixture.scale},
        {"centres": mixture.centres},
        SEED,
    )


def trained(training: Training, places: fitting.Places) -> dict[Any, Any]:
    """What `train` gives, read where it is there."""
    return places.trained(identity(training), lambda: train(training, places.say))


def main(_: str, places: fitting.Places) -> None:
    """Trains what the folder does not have."""
    for (kind, of), mixture in itertools.product(KINDS.items(), MIXTURES):
        found = trained(Training(mixture, kind, of.steps), places)
        moves = {name: settled(found["trace"][name]) for name in TRACES}
        words = ", ".join(f"{name} {move:.2f}" for name, move in moves.items())
        print(f"{mixture} {kind}: {found['seconds']:.0f} s; still moves by {words}")


if __name__ == "__main__":
    fitting.run(main)
