"""Rebuild the drawings by the conditional VAE: 50 classes at six truncations of its latents."""

import jax
import numpy as np

from experiments.builders import common
from experiments.builders.common import NewSet, Work
from experiments.data.repository import Repository
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS
from experiments.generators import quickdraw_vae

PSI = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
DRAWS, DIMENSIONS = 16, 448
_SHOWN, _SHOWN_DRAWS = 10, 2  # Classes, evenly among all, and drawings of each.


def draw(published: quickdraw_vae.Published) -> np.ndarray:
    """Ink in [0, 1], `[psi, classes, draws, side, side]`, of the same latents times each psi."""
    classes, key = np.repeat(np.arange(len(published.names)), DRAWS), jax.random.key(SEED)
    ink = np.stack([quickdraw_vae.sample(published.decoder, key, classes, psi) for psi in PSI])
    return ink.reshape(len(PSI), len(published.names), DRAWS, *ink.shape[-2:])


def picture(ink: np.ndarray, side: int) -> np.ndarray:
    """Black on white, enlarged: uint8 `[side, side, 3]` of ink `[s, s]`."""
    from PIL import Image

    grey = Image.fromarray(np.round(255 * (1 - ink)).astype(np.uint8))
    large = np.asarray(grey.resize((side, side), Image.Resampling.BICUBIC))
    return np.repeat(large[..., None], 3, axis=-1)


@common.recipe(
    "quickdraw", *common.OF_DRAWINGS, beside=["drawings/{}.npz"], source=quickdraw_vae.REPOSITORY
)
def build(work: Work, repository: Repository) -> tuple[NewSet, dict[str, np.ndarray]]:
    """The drawings, and a few of them to be shown."""
    wordings, published = WORDINGS["quickdraw"], quickdraw_vae.load(repository)
    names, ink, side = np.array(published.names), draw(published), work.pictures.side
    # Drawings without latents are equal.
    distinct, index = np.unique(ink.reshape(-1, *ink.shape[-2:]), axis=0, return_inverse=True)
    pictures = (picture(one, side) for one in distinct)
    features = work.embed(pictures, work.pictures, arrays={"ink": distinct})[index.reshape(-1)]
    outputs, dimensions = common.principal_rows(features, DIMENSIONS)
    labels = common.knob_labels(published.names, PSI, DRAWS, wordings)
    made = NewSet(
        outputs,
        (work.embed_texts(wordings.specified(published.names)), labels["prompt"]),
        labels=labels,
        description=f"{len(outputs):,} drawings by a conditional VAE of {len(names)} classes at "
        f"{len(PSI)} truncations, {len(wordings.templates)} wordings; {work.pictures.name} "
        f"pictures, {work.texts.name} prompts",
        cut={
            "drawings": f"{DRAWS} of each class at each psi from the same latents, seed {SEED}",
            "dimensions": dimensions,
        },
    )
    shown = np.linspace(0, len(names) - 1, min(_SHOWN, len(names))).astype(int)
    return made, {
        "ink": np.round(255 * ink[:, shown, :_SHOWN_DRAWS]).astype(np.uint8),
        "types": names[shown],
        "models": np.array([f"{psi:g}" for psi in PSI]),
    }
