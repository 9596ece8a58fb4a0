"""Rebuild gallery.npz: pictures by seven text-to-image sources on shared prompts, embedded.

    python -m experiments.builders.gallery --source=imagen

The pictures and prompts are those of github.com/dcsan/imagen, which states no licence; neither is
written. Needs the extra `embed` and the two weights packages (README.md). EfficientNet-Lite0 sees
each picture at 224 x 224 pixels; all-MiniLM-L6-v2 reads each prompt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
import re
from collections.abc import Sequence

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.encoders import Encoder, load_efficientnet, load_minilm
from condvendi_jax.encoders.efficientnet import PACKAGE as EFFICIENTNET_PACKAGE
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from experiments.builders import common
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER, SETS

REPOSITORY, COMMIT = "dcsan/imagen", "c6f37ebed13ee57a51055235c70621c6ae80521f"
SHEETS = ("gallery-9.md", "storyboard-9.md")
RENDERS = "output/renders"


@dataclasses.dataclass(frozen=True)
class Source:
    """What made some of the pictures: its name, and the least side in pixels of those it made.

    Smaller pictures under its name are left out: they are sheets of four, or of another source.
    """

    name: str
    side: int = 256


# By the beginning of a file's name. The eighth of the repository, Disco Diffusion, shows one
# picture twice under nearly every prompt.
SOURCES = {
    "ldif": Source("latent diffusion"),
    "dmin": Source("DALL-E mini"),
    "glid3": Source("GLID-3-XL"),
    "midj": Source("Midjourney", side=513),
    "stab": Source("Stability beta", side=512),
    "simu": Source("simulacra", side=512),
    "dal2": Source("DALL-E 2", side=512),
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """One file: its path, the number of its prompt, the key of its source, its own number."""

    path: str
    prompt: int
    source: str
    sample: int


@dataclasses.dataclass(frozen=True)
class Gallery:
    """The pictures that are kept, the texts of the prompts, and why others are left out.

    Attributes:
      pictures: in the order of the prompts, then of the sources, then of their numbers.
      prompts: by number.
      left_out: how many, by reason.
    """

    pictures: tuple[Picture, ...]
    prompts: tuple[str, ...]
    left_out: dict[str, int]


def read_prompts(sheets: Sequence[str]) -> dict[str, str]:
    """Folder of a prompt -> its text, in the order of the sheets: `## FOLDER`, then `> text`."""
    found = [re.findall(r"^## (\S+) *\n> *(.+?) *$", sheet, re.MULTILINE) for sheet in sheets]
    return {folder: text for prompts in found for folder, text in prompts}


def collect(repository: Repository, keys: Sequence[str]) -> Gallery:
    """Every picture of some sources whose prompt is known, but small ones and repetitions.

    Raises:
      ValueError: nothing is left, or a file is no picture.
    """
    prompts = read_prompts([content.decode() for content in repository.read(SHEETS)])
    names = re.compile(rf"{RENDERS}/([^/]+)/({'|'.join(keys)})-(\d+)\.(?:png|jpe?g|webp)")
    order, found = list(prompts), []
    for path in repository.paths(RENDERS):
        match = names.fullmatch(path)
        if match and match[1] in prompts:
            found.append(Picture(path, order.index(match[1]), match[2], int(match[3])))
    found.sort(key=lambda p: (p.prompt, keys.index(p.source), p.sample, p.path))
    seen: set[bytes] = set()
    kept, small, repeated = [], 0, 0
    for picture, content in zip(found, repository.read([p.path for p in found]), strict=True):
        digest = hashlib.sha256(content).digest()
        if min(_size(content, picture.path)) < SOURCES[picture.source].side:
            small += 1
        elif digest in seen:
            repeated += 1
        else:
            kept.append(picture)
        seen.add(digest)
    if not kept:
        raise ValueError(f"{repository.reference}: no pictures of {', '.join(keys)}.")
    left_out = {"smaller than the source's own": small, "repeated": repeated}
    return Gallery(tuple(kept), tuple(prompts.values()), left_out)


def _size(content: bytes, name: str) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            return picture.size
    except OSError as error:
        raise ValueError(f"{name}: cannot be decoded as a picture: {error}") from error


def build(
    repository: Repository,
    keys: Sequence[str],
    output: pathlib.Path,
    *,
    pictures: Encoder,
    texts: Encoder,
    cache: pathlib.Path,
    packages: Sequence[str] = (),
) -> None:
    """Embeds the pictures and prompts of some sources, and writes the file."""
    gallery = collect(repository, keys)
    outputs = common.embed_pictures(
        repository, [p.path for p in gallery.pictures], pictures, cache=cache, name="gallery"
    )
    prompts = common.embed_texts(gallery.prompts, texts, cache=cache, name="gallery-prompts")
    labels = {
        "models": np.array([SOURCES[p.source].name for p in gallery.pictures]),
        "prompt": np.array([p.prompt for p in gallery.pictures]),
        "sample": np.array([p.sample for p in gallery.pictures]),
    }
    common.write_set(
        output,
        outputs=outputs,
        prompts=(prompts, labels["prompt"]),
        labels=labels,
        description=f"{len(outputs):,} pictures by {len(set(labels['models']))} text-to-image "
        f"sources on {len(set(labels['prompt']))} prompts; {pictures.name} pictures, "
        f"{texts.name} prompts",
        licence=SETS["gallery"].licence,
        provenance=[repository.reference, *packages],
        cut={"left out": gallery.left_out},
    )


def check_keys(given: Sequence[str]) -> list[str]:
    """The sources that are asked for, each once.

    Raises:
      ValueError: one is unknown or given twice, with those that there are.
    """
    unknown = [key for key in given if key not in SOURCES]
    if unknown or len(set(given)) < len(given) or not given:
        raise ValueError(
            f"--sources: expected some of {', '.join(SOURCES)}, each once, "
            f"received {', '.join(given) or 'nothing'}."
        )
    return list(given)


def main(argv: list[str]) -> None:
    """Read the clone, embed and write."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    cache, output = pathlib.Path(values.cache_dir), pathlib.Path(values.output)
    keys = check_keys(values.sources)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(FOLDER / "gallery.npz")
    repository = Repository.opened(REPOSITORY, COMMIT, source=values.source, cache=cache)
    packages = common.versions(EFFICIENTNET_PACKAGE, MINILM_PACKAGE, "pillow", "tokenizers")
    build(
        repository,
        keys,
        output,
        pictures=load_efficientnet(),
        texts=load_minilm(),
        cache=cache,
        packages=packages,
    )


if __name__ == "__main__":
    common.define_flags(FOLDER / "gallery.npz", source=REPOSITORY)
    flags.DEFINE_list("sources", list(SOURCES), "Whose pictures, by the beginning of file names.")
    command.run(main)
