"""Rebuild the drawings by the conditional VAE: 50 classes at six truncations of its latents.

    python -m experiments.builders.quickdraw --source=CLONE

Needs the extra `embed` and the two weights packages (README.md). The weights of the generator are
read from the clone (`generators/quickdraw_vae.py`). Every class is drawn equally often at every
truncation, from the same latents multiplied by psi, and each drawing has a wording at random, the
same at every psi. A few drawings are kept as small pictures beside the set, to be shown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from absl import flags

from condvendi_jax.bandwidth import median_heuristic
from condvendi_jax.cli import command
from condvendi_jax.cli.files import atomic_writer
from condvendi_jax.encoders import Encoder, load_efficientnet, load_minilm
from condvendi_jax.encoders.efficientnet import PACKAGE as EFFICIENTNET_PACKAGE
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from experiments import records
from experiments.builders import common
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER, SEED
from experiments.data.wordings import WORDINGS
from experiments.generators import quickdraw_vae

PSI = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
DRAWS, DIMENSIONS = 16, 448
_SHOWN, _SHOWN_DRAWS = 10, 2  # Classes, evenly among all, and drawings of each.
_BATCH = 128
_VERSION = 1  # Raised when what is drawn from the same weights and key changes, or its pictures.


def draw(published: quickdraw_vae.Published, psi: Sequence[float], draws: int) -> np.ndarray:
    """Ink in [0, 1], `[psi, classes, draws, side, side]`, of the same latents times each psi."""
    classes = np.repeat(np.arange(len(published.names)), draws)
    key = jax.random.key(SEED)
    found = [
        np.asarray(
            quickdraw_vae.sample(published.params, key, classes, psi=value, sizes=published.sizes)
        )
        for value in psi
    ]
    side = found[0].shape[-1]
    return np.stack(found).reshape(len(psi), len(published.names), draws, side, side)


def pictures(ink: np.ndarray, side: int) -> np.ndarray:
    """Black on white, enlarged: uint8 `[n, side, side, 3]` of ink `[n, s, s]`."""
    from PIL import Image

    grey = np.round(255 * (1 - ink)).astype(np.uint8)
    large = [Image.fromarray(one).resize((side, side), Image.Resampling.BICUBIC) for one in grey]
    return np.repeat(np.stack([np.asarray(one) for one in large])[..., None], 3, axis=-1)


def embed(ink: np.ndarray, encoder: Encoder) -> np.ndarray:
    """The features of some drawings, `[n, d]`; equal ones are embedded once."""
    distinct, index = np.unique(ink.reshape(len(ink), -1), axis=0, return_inverse=True)
    distinct = distinct.reshape(-1, *ink.shape[1:])
    side: int = getattr(encoder, "side", 224)
    rows = []
    for start in range(0, len(distinct), _BATCH):
        rows.append(encoder.encode(pictures(distinct[start : start + _BATCH], side)))
        sys.stderr.write(f"drawings: {start + len(rows[-1]):,} of {len(distinct):,}\n")
    return np.concatenate(rows)[index.reshape(-1)]


def build(
    repository: Repository, *, psi: Sequence[float], draws: int, cache: Path, output: Path
) -> None:
    """Draws, embeds and writes the set's file, and `drawings/NAME.npz` beside it.

    Args:
      repository: of the weights.
      psi: what latents are multiplied by, rising.
      draws: drawings of a class at each psi.
      cache: folder of what is made.
      output: the set's file.
    """
    wordings, encoder, texts = WORDINGS["quickdraw"], load_efficientnet(), load_minilm()
    published = quickdraw_vae.load(repository)
    names = published.names
    ink = draw(published, psi, draws)
    flat = ink.reshape(-1, *ink.shape[-2:])
    features = common.unit_rows(
        records.cached(
            cache,
            "quickdraw-pictures",
            version=_VERSION,
            settings={"encoder": encoder.name},
            arrays={"ink": flat},
            build=lambda: {"features": embed(flat, encoder)},
        )["features"]
    )
    outputs, share = common.principal_rows(features, min(DIMENSIONS, features.shape[1]))
    number = np.tile(np.repeat(np.arange(len(names)), draws), len(psi))
    wording = np.tile(wordings.pair(len(names) * draws, SEED), len(psi))
    typed = number * len(wordings.templates) + wording
    prompts = common.embed_texts(
        wordings.specified(names), texts, cache=cache, name="quickdraw-prompts"
    )
    words = [f"{value:g}" for value in psi]
    common.write_set(
        output,
        outputs=outputs,
        prompts=(prompts, typed),
        labels={
            "types": np.array(names)[number],
            "models": np.repeat(words, len(names) * draws),
            "prompt": typed,
            "wording": wording,
        },
        description=f"{len(outputs):,} drawings by a conditional VAE of {len(names)} classes at "
        f"{len(words)} truncations, {len(wordings.templates)} wordings; {encoder.name} pictures, "
        f"{texts.name} prompts",
        licence="MIT (weights of ml5.js), trained on Quick, Draw! (CC-BY-4.0)",
        provenance=[
            repository.reference,
            *common.versions("jax", "flax", "pillow", MINILM_PACKAGE, EFFICIENTNET_PACKAGE),
        ],
        cut={
            "drawings": f"{draws} of each class at each psi from the same latents, seed {SEED}",
            "dimensions": f"{outputs.shape[1]} of {features.shape[1]} principal directions, with "
            f"{share:.4f} of the squared norm",
            "cost": cost(features, outputs, prompts[typed]),
        },
    )
    shown = np.linspace(0, len(names) - 1, min(_SHOWN, len(names))).astype(int)
    folder = output.parent / "drawings"
    folder.mkdir(exist_ok=True)
    with atomic_writer(folder / output.name) as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            ink=np.round(255 * ink[:, shown, :_SHOWN_DRAWS]).astype(np.uint8),
            types=np.array(names)[shown],
            models=np.array(words),
        )


def cost(
    features: np.ndarray, outputs: np.ndarray, prompts: np.ndarray
) -> dict[str, dict[str, float] | dict[str, dict[str, float]]]:
    """What the directions left out and float16 cost, at the medians of the distances."""
    whole = PairedEmbeddings("whole", features, prompts, "before the cut")
    halved = common.unit_rows(outputs.astype(np.float16))
    cut = PairedEmbeddings("cut", halved, prompts, "as written")
    widths = {
        side: float(median_heuristic(points, key=jax.random.key(SEED)))
        for side, points in (("outputs", features), ("prompts", prompts))
    }
    return {"bandwidths": widths, "cut": common.cost_of(whole, cut, widths)}


def main(argv: list[str]) -> None:
    """Opens the clone, draws, embeds and writes."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    if values.draws < 1:
        raise ValueError(f"--draws: expected a positive number, received {values.draws}.")
    cache, output = Path(values.cache_dir), Path(values.output)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(FOLDER / "quickdraw.npz", output.parent / "drawings" / output.name)
    repository = Repository.opened(*quickdraw_vae.REPOSITORY, source=values.source, cache=cache)
    build(repository, psi=PSI, draws=values.draws, cache=cache, output=output)


if __name__ == "__main__":
    common.define_flags(FOLDER / "quickdraw.npz", source=quickdraw_vae.REPOSITORY[0])
    flags.DEFINE_integer("draws", DRAWS, "Drawings of each class at each truncation.")
    command.run(main)
