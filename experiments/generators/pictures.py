"""Small real pictures with prompts, for models that are trained here; the pictures stay outside.

Two collections, `fashion` and `emoji`, are each read from a folder that the user has
(experiments/data/README.md). The prompts' embeddings and a digest of the pictures are shipped.
"""

import dataclasses
import functools
import gzip
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from condvendi_jax.encoders.pictures import decode_image
from experiments.data.sets import EMOJI_FILE, FOLDER
from experiments.lab import records, style

SIDE = 32
FASHION = (
    *("T-shirt", "pair of trousers", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "handbag", "ankle boot"),
)
FASHION_FILE = FOLDER / "fashion_prompts.npz"
_HELD_OUT, _SEED = 10, 0  # One emoji of so many.


@dataclasses.dataclass(frozen=True)
class Prompts:
    """What the pictures of a collection are asked for with."""

    names: np.ndarray  # Of the kinds of thing, [kinds].
    embeddings: np.ndarray  # Of each kind's wordings, unit norm, float32 [kinds, wordings, p].


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Real pictures."""

    pixels: np.ndarray  # uint8 [n, SIDE, SIDE, channels].
    kinds: np.ndarray  # What each shows, an index into the names of `Prompts`, [n].
    held_out: np.ndarray  # Those that nothing is trained on, bool [n].

    def part(self, *, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
        """Pixels in [0, 1], float32, and kinds, of what is held out or of the rest."""
        chosen = self.held_out == held_out
        return self.pixels[chosen].astype(np.float32) / 255, self.kinds[chosen]


@dataclasses.dataclass(frozen=True)
class Collection:
    """A collection of pictures: how it is read, and what is known of it without its pictures."""

    name: str
    read: Callable[[pathlib.Path], Pictures]  # Those of a folder.
    prompts: Callable[[], Prompts]  # The shipped embeddings of what they show.
    digest: str  # Of the pictures, the kinds and what is held out.
    source: str  # Where a user gets them, for errors.

    def load(self, folder: pathlib.Path | None) -> Pictures:
        """The pictures; ValueError where they are not whole, or not those of the digest."""
        if folder is None:
            raise ValueError(f"{self.name}: no folder of pictures is given; {self.source}.")
        if not folder.is_dir():
            raise ValueError(f"{folder}: there is no such folder; {self.source}.")
        found = self.read(folder)
        if (digest := digest_of(found)) != self.digest:
            raise ValueError(
                f"{folder}: other pictures than those of {self.name} (their digest is {digest}, "
                f"expected {self.digest}); {self.source}."
            )
        return found


def strips(shown: Sequence[np.ndarray], columns: int, size: tuple[float, float]) -> Any:
    """A figure and its panels: each a strip of pictures `[draws, h, w, channels]`, side by side."""
    figure, panels = style.panels(len(shown), columns=columns, size=size)
    for panel, strip in zip(panels, shown, strict=True):
        panel.imshow(np.concatenate(list(strip), axis=1).squeeze(), cmap="gray", vmin=0, vmax=255)
        panel.set(xticks=[], yticks=[])
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
    return figure, panels


def digest_of(pictures: Pictures) -> str:
    """Of everything that `Pictures` holds, 16 characters."""
    arrays = dataclasses.asdict(pictures)
    return records.digest({name: records.hash_array(array) for name, array in arrays.items()})[:16]


def read_idx(path: pathlib.Path, axes: int) -> np.ndarray:
    """An array of bytes in the gzipped IDX format, uint8 with so many axes; else ValueError."""
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise ValueError(f"{path}: there is no such file.") from error
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: damaged ({error}).") from error
    start = 4 * (axes + 1)
    if len(content) < start or content[:4] != bytes([0, 0, 8, axes]):
        raise ValueError(f"{path}: not an IDX file of bytes with {axes} axes.")
    shape = np.frombuffer(content[4:start], ">u4").tolist()
    values = np.frombuffer(content[start:], np.uint8)
    if len(values) != np.prod(shape):
        raise ValueError(f"{path}: {len(values):,} bytes where its header says {shape}.")
    return values.reshape(shape)


def read_fashion(folder: pathlib.Path) -> Pictures:
    """Fashion-MNIST: the 60,000 and 10,000 pictures of its four files."""
    parts = ("train", "t10k")
    pixels = [read_idx(folder / f"{part}-images-idx3-ubyte.gz", 3) for part in parts]
    kinds = [read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 1) for part in parts]
    rim = (SIDE - pixels[0].shape[1]) // 2
    return Pictures(
        np.pad(np.concatenate(pixels), ((0, 0), (rim, rim), (rim, rim)))[..., None],
        np.concatenate(kinds).astype(np.int64),
        np.repeat([False, True], [len(part) for part in pixels]),
    )


def read_emoji(folder: pathlib.Path) -> Pictures:
    """The drawings '0.png', '1.png', ... in the order of the set `emoji`, at half their side."""
    with np.load(EMOJI_FILE, allow_pickle=False) as stored:
        kinds = stored["prompt_index"].astype(np.int64)
    pixels = np.empty((len(kinds), SIDE, SIDE, 3), np.uint8)
    for row in range(len(kinds)):
        path = folder / f"{row}.png"
        try:
            pixels[row] = decode_image(path.read_bytes(), name=str(path), side=SIDE)
        except FileNotFoundError as error:
            raise ValueError(f"{path}: there is no such file.") from error
    order = np.random.default_rng(_SEED).permutation(len(kinds))
    return Pictures(pixels, kinds, np.isin(range(len(kinds)), order[: len(kinds) // _HELD_OUT]))


@functools.cache
def _fashion_prompts() -> Prompts:
    with np.load(FASHION_FILE, allow_pickle=False) as stored:
        return Prompts(np.array(FASHION), stored["embeddings"].astype(np.float32))


@functools.cache
def _emoji_prompts() -> Prompts:
    with np.load(EMOJI_FILE, allow_pickle=False) as stored:
        rows = stored["prompt_embeddings"].astype(np.float32)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return Prompts(stored["prompt_texts"], unit[:, None])


COLLECTIONS = {
    "fashion": Collection(
        "fashion",
        read_fashion,
        _fashion_prompts,
        digest="3bc285b1fb0d368c",
        source="the Debian package dataset-fashion-mnist has its four files",
    ),
    "emoji": Collection(
        "emoji",
        read_emoji,
        _emoji_prompts,
        digest="c8457f80a67e1bdb",
        source="python -m experiments.builders emoji --pictures=DIR writes them",
    ),
}
