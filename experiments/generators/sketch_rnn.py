"""Sketch-RNN (Ha and Eck 2017, arXiv 1704.03477): drawings, stroke by stroke, at a temperature.

One recurrent network a class, without latents. The weights are read from a clone of a public
repository.
"""

import base64
import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from experiments.data.repository import Repository

REPOSITORY = ("hardmaru/sema-demo", "09ceb6579d01e57db3f792d0e631284c331538dd")
# The point after which a drawing is finished: no offset, and the pen's third state.
END = (0.0, 0.0, 0.0, 0.0, 1.0)
_POINT = 5  # Two offsets, and the pen down, up, or at the end.
_PENS = 3
_MIXTURE = 6  # Parameters of a component: weight, two means, two deviations, correlation.
_LARGEST, _STEPS = 10.0, 32767  # Weights are stored as so many steps to the largest one.
_dot = functools.partial(jnp.dot, precision=jax.lax.Precision.HIGHEST)

State = tuple[jax.Array, jax.Array]


class Mixture(NamedTuple):
    """What the next point is drawn from; m components, offsets in units of the model."""

    logits: jax.Array  # Of the components, [..., m].
    means: jax.Array  # [..., m, 2].
    deviations: jax.Array  # [..., m, 2], positive.
    correlations: jax.Array  # Of the two offsets of a component, [..., m].
    pens: jax.Array  # Logits of the pen's next state, down, up or end, [..., 3].


class Params(NamedTuple):
    """Of an LSTM with gates in the order i, g, f, o, in the order of its file."""

    readout: jax.Array  # [units, 3 + 6 m].
    readout_bias: jax.Array  # [3 + 6 m].
    inputs: jax.Array  # [5, 4 units].
    recurrent: jax.Array  # [units, 4 units].
    bias: jax.Array  # [4 units].


class Published(NamedTuple):
    """The generators of several classes."""

    names: tuple[str, ...]
    params: Params  # Of all of them, each array [classes, ...].
    scales: np.ndarray  # Pixels a unit of the offsets, [classes].
    lengths: np.ndarray  # Points of the longest drawing that each was trained on, [classes].


def advance(params: Params, state: State, points: jax.Array) -> tuple[State, Mixture]:
    """From the state `[b, units]` twice and the last points `[b, 5]` to the next ones."""
    hidden, cell = state
    gates = _dot(points, params.inputs) + params.bias[None] + _dot(hidden, params.recurrent)
    i, g, f, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
    read = _dot(hidden, params.readout) + params.readout_bias[None]
    pens, rest = jnp.split(read, [_PENS], axis=-1)
    logits, x, y, log_x, log_y, correlations = jnp.split(rest, _MIXTURE, axis=-1)
    means, logs = jnp.stack([x, y], axis=-1), jnp.stack([log_x, log_y], axis=-1)
    return (hidden, cell), Mixture(logits, means, jnp.exp(logs), jnp.tanh(correlations), pens)


@functools.partial(jax.jit, static_argnames=("draws", "max_steps"))
def sample(
    params: Params,
    key: jax.Array,
    prompts: ArrayLike,
    *,
    draws: int,
    temperature: ArrayLike,
    max_steps: int,
) -> jax.Array:
    """Drawings of some classes.

    Logits of components and pens are divided by the temperature, and the deviations multiplied by
    its root (Ha and Eck, eq. 8); at 0 every step is the most likely component's mean. The classes
    are whole numbers `[k]`, and their parameters those of a `Published`.

    Returns:
      `[k, draws, max_steps, 5]`: the offset from the last point in the model's units, and the
      pen's state after it as a one-hot of down, up, end. After its end a drawing repeats `END`.
    """

    def of_class(own: Params, key: jax.Array) -> jax.Array:
        rest = jnp.zeros((draws, len(own.recurrent)))

        def step(carry: tuple[State, jax.Array], key: jax.Array) -> tuple[Any, jax.Array]:
            state, last = carry
            state, mixture = advance(own, state, last)
            point = _draw(mixture, key, temperature)
            ended = (last[:, -1] == 1) | (point[:, -1] == 1)
            point = jnp.where(ended[:, None], jnp.asarray(END), point)
            return (state, point), point

        start = ((rest, rest), jnp.zeros((draws, _POINT)))
        _, points = jax.lax.scan(step, start, jax.random.split(key, max_steps))
        return points.swapaxes(0, 1)

    prompts = jnp.asarray(prompts)
    chosen = jax.tree.map(lambda array: array[prompts], params)
    return jax.vmap(of_class)(chosen, jax.random.split(key, len(prompts)))


def _draw(mixture: Mixture, key: jax.Array, temperature: ArrayLike) -> jax.Array:
    """A point of each drawing, `[draws, 5]`."""
    keys = jax.random.split(key, 3)

    def choose(key: jax.Array, logits: jax.Array) -> jax.Array:
        # The largest of logits and noise is a draw from their softmax, at 0 the most likely.
        return jnp.argmax(logits + temperature * jax.random.gumbel(key, logits.shape), -1)

    component, pen = choose(keys[0], mixture.logits), choose(keys[1], mixture.pens)
    chosen = jnp.arange(len(component)), component
    mean, spread, correlation = (
        of[chosen] for of in (mixture.means, mixture.deviations, mixture.correlations)
    )
    first, second = jax.random.normal(keys[2], (2, len(mean)))
    second = correlation * first + jnp.sqrt(1 - correlation**2) * second
    spread *= jnp.sqrt(jnp.asarray(temperature, jnp.float32))
    offset = mean + spread * jnp.stack([first, second], axis=-1)
    return jnp.concatenate([offset, jax.nn.one_hot(pen, _PENS)], axis=-1)


def load(repository: Repository, names: Sequence[str]) -> Published:
    """The generators of some classes, as in `models/NAME.gen.json`, from a clone at its commit.

    A file is JSON: a dictionary, the shapes of the arrays, and each as the base64 form of whole
    numbers of 16 bits, little end first, 32,767 of which are a weight of 10.

    Raises:
      ValueError: a file is not there, with its name.
    """
    infos, arrays = [], []
    for content in repository.read([f"models/{name}.gen.json" for name in names]):
        info, shapes, encoded = json.loads(content)
        whole = (np.frombuffer(base64.b64decode(text), "<i2") for text in encoded)
        infos.append(info)
        arrays.append([of.reshape(shape) for of, shape in zip(whole, shapes, strict=True)])
    stacked = (np.stack(of) * (_LARGEST / _STEPS) for of in zip(*arrays, strict=True))
    return Published(
        tuple(names),
        Params(*(jnp.asarray(of, jnp.float32) for of in stacked)),
        scales=np.array([float(info["scale_factor"]) for info in infos]),
        lengths=np.array([info["max_seq_len"] for info in infos]),
    )
