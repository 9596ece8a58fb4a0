"""Generators with what they are judged by, for studies of guidance."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data import PairedEmbeddings, sets
from experiments.generators import latent_diffusion, mixture_diffusion, picture_encoder, pictures

MIXTURE = "mixture"
NAMES = (*latent_diffusion.TRAININGS, MIXTURE)


@dataclasses.dataclass(frozen=True)
class Bench:
    """A generator and what it is judged by."""

    model: latent_diffusion.Model | mixture_diffusion.PromptedMixture
    prompts: np.ndarray  # Wordings of every kind of thing, unit rows [kinds, wordings, p].
    names: np.ndarray  # Of the kinds.
    features: Callable[[jax.Array], jax.Array]  # Of outputs, unit rows [b, d]; differentiable.
    logits: Callable[[jax.Array], jax.Array]  # Of features with every kind, [b, kinds].
    real: PairedEmbeddings  # Real outputs and prompts; their kinds are the labels `kind`.
    best: int  # An output is aligned if its kind is among so many of the judge's.
    judged: str  # What that is, in words.
    params: Mapping[str, Any]  # Of all that was trained, for the identity of results.
    words: str  # For captions.


def load(name: str) -> Bench:
    """The bench of a name: a model of real pictures, an encoder of them, and held-out ones.

    Raises:
      ValueError: the features of a collection's held-out pictures are of another encoder or of
        other pictures.
    """
    if name == MIXTURE:
        return mixture_bench(mixture_diffusion.shared())
    model, judge = latent_diffusion.load(name), picture_encoder.load(name)
    path = sets.FOLDER / f"{name}_features.npz"
    with np.load(path, allow_pickle=False) as stored:
        found = stored["provenance"].tolist() if "provenance" in stored.files else []
    for line in picture_encoder.provenance(judge.training):
        if line not in found:
            raise ValueError(
                f"{path}: expected features of {line}, received {', '.join(found) or 'none'}; "
                f"python -m experiments.builders.features {name} --pictures=DIR makes them anew."
            )
    few = len(model.prompts.names) <= len(pictures.FASHION)
    return Bench(
        model,
        model.prompts.embeddings,
        model.prompts.names,
        judge,
        functools.partial(judge.logits, prompts=picture_encoder.prompts_of(name)),
        sets.read_set(path),
        best=1 if few else 5,
        judged="accuracy of a classifier" if few else "retrieval among the best 5 prompts",
        params={"denoiser": model.denoiser, "autoencoder": model.coder, "judge": judge},
        words=f"Latent diffusion of {name}, trained here",
    )


def mixture_bench(law: mixture_diffusion.PromptedMixture) -> Bench:
    """A mixture in the plane, whose points x have the features (1, x) scaled to norm one.

    The judge is Bayes' own: the likelihood of a point under every prompt.
    """
    reach = jnp.sqrt(jnp.mean(jnp.sum(jnp.square(law.centres), axis=1)))

    def features(points: jax.Array) -> jax.Array:
        return picture_encoder.unit(jnp.pad(points / reach, ((0, 0), (1, 0)), constant_values=1))

    def logits(found: jax.Array) -> jax.Array:
        points = reach * found[:, 1:] / found[:, :1]
        away = jnp.sum(jnp.square(points[:, None] - law.centres[None]), axis=-1)
        likely = -away[:, None] / (2 * jnp.square(law.spread))
        return jax.nn.logsumexp(likely + jnp.log(law.weights)[None], axis=-1)

    kinds = np.arange(4000) % len(law.prompts)
    points = jax.jit(law.sample)(jax.random.key(sets.SEED), law.prompts[kinds])
    real = PairedEmbeddings(
        MIXTURE,
        np.asarray(features(points)),
        np.asarray(law.prompts[kinds]),
        "the mixture itself",
        {"kind": kinds},
    )
    return Bench(
        law,
        np.asarray(law.prompts)[:, None],
        np.array([f"prompt {row}" for row in range(len(law.prompts))]),
        features,
        logits,
        real,
        best=1,
        judged="accuracy of Bayes' classifier",
        params={"law": law._asdict()},
        words="Exact diffusion of a mixture of Gaussians",
    )
