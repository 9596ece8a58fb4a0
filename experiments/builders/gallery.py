"""Rebuild gallery.npz: pictures by seven text-to-image sources on shared prompts, embedded."""

import dataclasses
import hashlib
import io
import re
from collections.abc import Sequence

import numpy as np

from experiments.builders.common import EFFICIENTNET, MINILM, NewSet, Work, recipe
from experiments.data.repository import Repository

REPOSITORY = ("dcsan/imagen", "c6f37ebed13ee57a51055235c70621c6ae80521f")
SHEETS = ("gallery-9.md", "storyboard-9.md")
RENDERS = "output/renders"


# By the beginning of a file's name, what made the picture, and the least side in pixels of those
# that it made: smaller ones are sheets of four, or of another source. The eighth of the repository,
# Disco Diffusion, shows one picture twice under nearly every prompt.
SOURCES = {
    "ldif": ("latent diffusion", 256),
    "dmin": ("DALL-E mini", 256),
    "glid3": ("GLID-3-XL", 256),
    "midj": ("Midjourney", 513),
    "stab": ("Stability beta", 512),
    "simu": ("simulacra", 512),
    "dal2": ("DALL-E 2", 512),
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """One file: its path, the number of its prompt, the key of its source, its own number."""

    path: str
    prompt: int
    source: str
    sample: int


def read_prompts(sheets: Sequence[str]) -> dict[str, str]:
    """Folder of a prompt -> its text, in the order of the sheets: `## FOLDER`, then `> text`."""
    found = [re.findall(r"^## (\S+) *\n> *(.+?) *$", sheet, re.MULTILINE) for sheet in sheets]
    return {folder: text for prompts in found for folder, text in prompts}


def collect(repository: Repository, prompts: Sequence[str]) -> tuple[list[Picture], dict[str, int]]:
    """Every picture whose prompt is known by its folder, but small ones and repetitions.

    Returns:
      The pictures in the order of the prompts, then of the sources, then of their numbers; and by
      reason how many were left out.
    """
    from PIL import Image

    names = re.compile(rf"{RENDERS}/([^/]+)/({'|'.join(SOURCES)})-(\d+)\.(?:png|jpe?g|webp)")
    found = [
        Picture(path, prompts.index(match[1]), match[2], int(match[3]))
        for path in repository.paths(RENDERS)
        if (match := names.fullmatch(path)) and match[1] in prompts
    ]
    order = list(SOURCES)
    found.sort(key=lambda p: (p.prompt, order.index(p.source), p.sample, p.path))
    seen: set[bytes] = set()
    kept, left_out = [], {"smaller than the source's own": 0, "repeated": 0}
    for picture, content in zip(found, repository.read([p.path for p in found]), strict=True):
        digest = hashlib.sha256(content).digest()
        if min(Image.open(io.BytesIO(content)).size) < SOURCES[picture.source][1]:
            left_out["smaller than the source's own"] += 1
        elif digest in seen:
            left_out["repeated"] += 1
        else:
            kept.append(picture)
        seen.add(digest)
    return kept, left_out


@recipe("gallery", EFFICIENTNET, MINILM, "pillow", "tokenizers", source=REPOSITORY)
def build(work: Work, repository: Repository) -> NewSet:
    """The pictures that are kept, with the prompts of the sheets."""
    prompts = read_prompts([content.decode() for content in repository.read(SHEETS)])
    kept, left_out = collect(repository, list(prompts))
    models = [SOURCES[picture.source][0] for picture in kept]
    prompt = np.array([picture.prompt for picture in kept])
    return NewSet(
        work.embed_pictures(repository, [picture.path for picture in kept]),
        (work.embed_texts(list(prompts.values())), prompt),
        labels={"models": models, "prompt": prompt, "sample": [picture.sample for picture in kept]},
        description=f"{len(kept):,} pictures by {len(set(models))} text-to-image sources on "
        f"{len(set(prompt))} prompts; {work.pictures.name} pictures, {work.texts.name} prompts",
        cut={"left out": left_out},
    )
