"""Generators with what they are judged by, and the judgement, for studies of guidance."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import condvendi_jax as cv
from experiments.data import PairedEmbeddings, sets
from experiments.generators import latent_diffusion, mixture_diffusion, picture_encoder, pictures
from experiments.lab import Scales

MIXTURE = "mixture"
NAMES = (*latent_diffusion.TRAININGS, MIXTURE)
SCORES = ("Conditional-Vendi", "Vendi", "Conditional-RKE", "RKE")
MEASURES = ("first", "alignment", "kernel distance", *SCORES, "similarity")


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

    def measured(
        self, samples: PairedEmbeddings, reference: np.ndarray, bandwidths: Scales
    ) -> np.ndarray:
        """What MEASURES names, of some samples: `[scales, measures]`.

        'first' and 'alignment' are the percent whose kind is the judge's first, and among its best.
        The distance to the reference and the similarity are times 100. Only the scores depend on
        the scale.
        """
        features, kinds = samples.outputs, samples.labels["kind"]
        logits = np.asarray(self.logits(jnp.asarray(features)))
        first, alignment = (
            100 * np.mean(picture_encoder.found_among(logits, kinds, best))
            for best in (1, self.best)
        )
        away, alike = kernel_distance(features, reference), similarity(features, kinds)
        found = []
        for scale in bandwidths.axis:
            orders = [
                cv.decompose(features, samples.prompts, order=o, **scale.kernels)
                for o in (1.0, 2.0)
            ]
            scores = [float(v) for of in orders for v in (of.conditional, of.vendi)]
            found.append([first, alignment, 100 * away, *scores, 100 * alike])
        return np.array(found)


def load(name: str) -> Bench:
    """The bench of a name: a model of real pictures, an encoder of them, and held-out ones.

    ValueError where the features of held-out pictures are of another encoder or other pictures.
    """
    if name == MIXTURE:
        return mixture_bench(mixture_diffusion.MIXTURES["shared"]())
    model, judge = latent_diffusion.load(name), picture_encoder.load(name)
    path = sets.FOLDER / f"{name}_features.npz"
    with np.load(path, allow_pickle=False) as stored:
        found = stored["provenance"].tolist() if "provenance" in stored.files else []
    for line in picture_encoder.provenance(judge.training):
        if line not in found:
            raise ValueError(
                f"{path}: expected features of {line}, received {', '.join(found) or 'none'}; "
                f"python -m experiments.builders {name}_features --pictures=DIR makes them anew."
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


def kernel_distance(one: np.ndarray, other: np.ndarray) -> float:
    """The squared maximum mean discrepancy of unit features `[n, d]` and `[m, d]`, without bias.

    It may be negative. With the kernel (x . y / d + 1)^3 of Binkowski et al. (2018) on features of
    norm sqrt(d), which is that of cosines: (cos + 1)^3.
    """
    rows, n, m = np.concatenate([one, other]).astype(np.float64), len(one), len(other)
    kernel = (rows @ rows.T + 1) ** 3
    np.fill_diagonal(kernel, 0)
    within = kernel[:n, :n].sum() / (n * (n - 1)) + kernel[n:, n:].sum() / (m * (m - 1))
    return float(within - 2 * kernel[:n, n:].mean())


def similarity(features: np.ndarray, kinds: np.ndarray) -> float:
    """Mean cosine of unit features `[n, d]` over the pairs of different samples of one kind."""
    alike = (kinds[:, None] == kinds[None, :]) & ~np.eye(len(kinds), dtype=bool)
    return float((features @ features.T)[alike].mean()) if alike.any() else np.nan
