"""Encoders of small real pictures, trained here: what generated pictures are judged by.

A network of convolutions takes a picture to a direction, and one matrix takes the embeddings of
prompts there. It is trained to find the picture's prompt among those of all kinds (InfoNCE).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.generators import fitting, pictures
from experiments.generators.latent_diffusion import Residual, looped, to_depth
from experiments.lab import records

VERSION = 1
SEED = 0
_SHIFT = 2  # Pixels by which a training picture is moved at most.
_SCALES = 10.0, 100.0  # Of cosines as logits, at first and at most.


@dataclasses.dataclass(frozen=True)
class Training:
    """How large an encoder is, and how it is trained."""

    collection: str  # Of pictures, one of `pictures.COLLECTIONS`.
    channels: int  # Of the pictures.
    hidden: int  # Channels at 16 x 16 positions; at 8 x 8 it is twice as many.
    features: int  # Of the embedding, and channels at 4 x 4 positions.
    steps: int  # Updates.
    batch: int = 128  # Pictures an update.
    rate: float = 3e-3  # The largest of Adam.
    prompt: int = 384  # Entries of a prompt's embedding.


TRAININGS = {
    "fashion": Training("fashion", channels=1, hidden=16, features=64, steps=1_500),
    "emoji": Training("emoji", channels=3, hidden=24, features=80, steps=1_500),
}


class PictureEncoder(nnx.Module):
    """Pictures `[b, 32, 32, channels]` in [0, 1] and prompts `[k, p]` to unit rows `[., d]`."""

    def __init__(self, training: Training, *, rngs: nnx.Rngs):
        self.training = training
        widths = training.hidden, 2 * training.hidden, training.features
        depths = 4 * training.channels, 4 * widths[0], 4 * widths[1]
        self.narrow = nnx.List(
            nnx.Linear(*of, rngs=rngs) for of in zip(depths, widths, strict=True)
        )
        self.blocks = nnx.List(Residual(width, rngs=rngs) for width in widths)
        self.norm = nnx.LayerNorm(training.features, rngs=rngs)
        self.words = nnx.Linear(training.prompt, training.features, use_bias=False, rngs=rngs)
        self.scale = nnx.Param(jnp.log(_SCALES[0]))

    @jax.jit
    def __call__(self, pixels: jax.Array) -> jax.Array:
        """The directions of pictures; differentiable."""
        x = 2 * pixels - 1
        for narrow, block in zip(self.narrow, self.blocks, strict=True):
            x = block(narrow(to_depth(x, 2)))
        return unit(jnp.mean(self.norm(x), axis=(1, 2)))

    @jax.jit
    def logits(self, features: jax.Array, prompts: jax.Array) -> jax.Array:
        """How well pictures' directions go with prompts, `[b, k]`."""
        scale = jnp.minimum(jnp.exp(self.scale[...]), _SCALES[1])
        return scale * jnp.matmul(features, unit(self.words(prompts)).T)


def unit(rows: jax.Array) -> jax.Array:
    """Rows of norm one."""
    return rows * jax.lax.rsqrt(jnp.sum(jnp.square(rows), axis=-1, keepdims=True) + 1e-12)


def shifted(pixels: jax.Array, key: jax.Array) -> jax.Array:
    """Each picture moved by a few whole pixels; its edge is repeated."""
    moves = jax.random.randint(key, (len(pixels), 2, 1), 0, 2 * _SHIFT + 1) - _SHIFT
    end = pixels.shape[1] - 1
    rows, columns = jnp.clip(moves + jnp.arange(end + 1)[None, None], 0, end).swapaxes(0, 1)
    return jax.vmap(lambda x, i, j: x[i[:, None], j[None]])(pixels, rows, columns)


def _loss(model: PictureEncoder, arrays: Any, key: jax.Array, *, batch: int) -> jax.Array:
    """Cross-entropy of the right prompt among those of all kinds, in nats."""
    pixels, kinds, prompts = arrays
    rows, moves = jax.random.split(key)
    rows = jax.random.randint(rows, (batch,), 0, len(pixels))
    moved = shifted(pixels[rows], moves).astype(jnp.float32) / 255
    logs = jax.nn.log_softmax(model.logits(model(moved), prompts))
    return -jnp.mean(jnp.take_along_axis(logs, kinds[rows][:, None], axis=1))


def prompts_of(collection: str) -> jax.Array:
    """One prompt for each kind: the direction of the mean of its wordings, `[kinds, p]`."""
    mean = pictures.COLLECTIONS[collection].prompts().embeddings.mean(axis=1)
    return jnp.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True))


def identity(training: Training) -> records.Identity:
    """Whose the parameters are; the network and its loss are `VERSION`'s."""
    collection = pictures.COLLECTIONS[training.collection]
    settings = {
        **dataclasses.asdict(training),
        "pictures": collection.digest,
        "shift": _SHIFT,
        "scales": _SCALES,
        "average": fitting.AVERAGE,
    }
    name = f"picture_encoder-{training.collection}"
    arrays = {"prompts": collection.prompts().embeddings}
    return records.identify(name, VERSION, settings, arrays, SEED)


def provenance(training: Training) -> list[str]:
    """What a file of features says of them: whose pictures, and whose parameters."""
    return [
        f"pictures with the digest {pictures.COLLECTIONS[training.collection].digest}",
        f"parameters {fitting.file_name(identity(training))}",
    ]


def train(training: Training, places: fitting.Places) -> dict[str, Any]:
    """Trains on the pictures that are not held out, with a prompt for each kind."""
    pixels, kinds = places.seen(training.collection)
    encoder = fitting.fit(
        PictureEncoder(training, rngs=nnx.Rngs(SEED)),
        functools.partial(_loss, batch=training.batch),
        tuple(map(jnp.asarray, (pixels, kinds, prompts_of(training.collection)))),
        jax.random.key(SEED),
        identity(training),
        places,
        steps=training.steps,
        rate=training.rate,
    )
    return {"encoder": encoder}


def load(name: str, places: fitting.Places | None = None) -> PictureEncoder:
    """The encoder of a collection: the shipped one, that of the cache, or one trained now.

    ValueError where the collection is unknown, or where there are no pictures to train on.
    """
    if name not in TRAININGS:
        raise ValueError(f"encoder: expected one of {', '.join(TRAININGS)}, received {name!r}.")
    training, places = TRAININGS[name], places or fitting.Places()
    stored = places.trained(identity(training), lambda: train(training, places))
    return looped(fitting.restore(PictureEncoder, training, stored["encoder"]))


def found_among(logits: np.ndarray, kinds: np.ndarray, best: int) -> np.ndarray:
    """Whether logits `[n, kinds]` put the right kind `[n]` among the `best`; ties count against."""
    own = np.take_along_axis(logits, kinds[:, None], axis=1)
    return np.sum(logits >= own, axis=1) <= best


def main(name: str, places: fitting.Places) -> None:
    """Trains what is not there, and says what it is worth on held-out pictures."""
    encoder = load(name, places)
    count = sum(leaf.size for leaf in jax.tree.leaves(encoder))
    print(f"{name}: {count:,} parameters")
    if places.pictures is not None:
        pixels, kinds = pictures.COLLECTIONS[name].load(places.pictures).part(held_out=True)
        features = jnp.asarray(fitting.in_parts(encoder, pixels))
        logits = np.asarray(encoder.logits(features, prompts_of(name)))
        for best in (1, 5):
            share = np.mean(found_among(logits, kinds, best))
            words = f"the right one of {logits.shape[1]:,} prompts among the best {best}"
            print(f"{len(kinds):,} held-out pictures: {words} of {share:.1%}")


if __name__ == "__main__":
    fitting.run(main)
