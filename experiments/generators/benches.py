"""Generators with what they are judged by, as studies of guidance take them.

A bench is a model of real pictures that was trained here, with an encoder of them and held-out
real pictures; or a mixture in closed form, with its own law.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data import PairedEmbeddings, pictures, sets
from experiments.generators import diffusion, latent_diffusion, mixture_diffusion, picture_encoder

MIXTURE = "mixture"
NAMES = (*latent_diffusion.TRAININGS, MIXTURE)


class Model(Protocol):
    """What a study of guidance needs of a generator; `latent_diffusion.Model` is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's latents."""
        ...

    @property
    def denoise(self) -> diffusion.Denoiser:
        """Clean latents of noisy ones."""
        ...

    @property
    def unconditional(self) -> jax.Array:
        """The prompt that stands for none, `[p]`."""
        ...

    def decode(self, latents: jax.Array) -> jax.Array:
        """Outputs of latents; differentiable."""
        ...


@dataclasses.dataclass(frozen=True)
class Bench:
    """A generator and what it is judged by.

    Attributes:
      model: what draws.
      prompts: wordings of every kind of thing, unit rows `[kinds, wordings, p]`.
      names: of the kinds.
      features: of outputs, unit rows `[b, d]`; differentiable.
      logits: of features with every kind, `[b, kinds]`.
      real: features and prompts of real outputs, with the number of their kind as `kind`.
      best: an output is aligned if its kind is among so many of the judge's.
      judged: what that is, in words.
      params: of all that was trained, for the identity of results.
      words: for captions.
    """

    model: Model
    prompts: np.ndarray
    names: np.ndarray
    features: Callable[[jax.Array], jax.Array]
    logits: Callable[[jax.Array], jax.Array]
    real: PairedEmbeddings
    best: int
    judged: str
    params: Mapping[str, Any]
    words: str


def load(name: str, mixture: str | None = None) -> Bench:
    """The bench of a name; of `MIXTURE`, that of a file or else the project's own.

    Raises:
      ValueError: an unknown name, something that is not shipped, or the file is no mixture.
    """
    return mixture_bench(mixture) if name == MIXTURE else trained_bench(name)


def trained_bench(name: str) -> Bench:
    """A model of real pictures, an encoder of them, and those that neither has seen.

    Raises:
      ValueError: the features of the unseen ones are of another encoder or of other pictures.
    """
    model, judge = latent_diffusion.load(name), picture_encoder.load(name)
    few = len(judge.prompts) <= len(pictures.FASHION)
    return Bench(
        model,
        model.prompts.embeddings,
        model.prompts.names,
        judge.features,
        judge.logits,
        held_out_features(sets.FOLDER / f"{name}_features.npz", judge.training),
        best=1 if few else 5,
        judged="accuracy of a classifier" if few else "retrieval among the best 5 prompts",
        params={"denoiser": model.params, "autoencoder": model.coder, "judge": judge.params},
        words=f"Latent diffusion of {name}, trained here",
    )


def held_out_features(path: pathlib.Path, training: picture_encoder.Training) -> PairedEmbeddings:
    """The pairs of a file, which must be of the encoder that this training made.

    Raises:
      ValueError: they are of another one, or of other pictures.
    """
    with np.load(path, allow_pickle=False) as stored:
        found = stored["provenance"].tolist() if "provenance" in stored.files else []
    for line in picture_encoder.provenance(training):
        if line not in found:
            raise ValueError(
                f"{path}: expected features of {line}, received {', '.join(found) or 'none'}; "
                f"python -m experiments.builders.features {training.collection} --pictures=DIR "
                "makes them anew."
            )
    return sets.read_set(path)


@dataclasses.dataclass(frozen=True)
class _Mixture:
    """The exact diffusion of a mixture, whose latents are its outputs."""

    law: mixture_diffusion.PromptedMixture
    shape: tuple[int, ...] = (2,)

    @property
    def denoise(self) -> diffusion.Denoiser:
        return self.law.denoise

    @property
    def unconditional(self) -> jax.Array:
        return self.law.unconditional

    def decode(self, latents: jax.Array) -> jax.Array:
        return latents


def mixture_bench(path: str | None) -> Bench:
    """A mixture in the plane, whose points x have the features (1, x) scaled to norm one.

    The judge is Bayes' own: the likelihood of a point under every prompt.

    Raises:
      ValueError: the file is no mixture.
    """
    law = mixture_diffusion.shared() if path is None else read_mixture(pathlib.Path(path))

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
        _Mixture(law),
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


def read_mixture(path: pathlib.Path) -> mixture_diffusion.PromptedMixture:
    """The mixture of a file.

    Raises:
      ValueError: there is no such file, or it holds no mixture.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            given = [stored[name] for name in ("centres", "spread", "weights")]
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"--mixture: {path} cannot be read ({error}).") from error
    return mixture_diffusion.mixture(*given)
