"""Rebuild gallery.npz: pictures by seven text-to-image sources on shared prompts, embedded."""

import hashlib
import io
import re
from collections.abc import Sequence
from typing import NamedTuple

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


class Picture(NamedTuple):
    """One file: the numbers of its prompt and of its source, its own number, its path."""

    prompt: int
    source: int
    sample: int
    path: str


def read_prompts(sheets: Sequence[str]) -> dict[str, str]:
    """Folder of a prompt -> its text, in the order of the sheets: `## FOLDER`, then `> text`."""
    found = [re.findall(r"^## (\S+) *\n> *(.+?) *$", sheet, re.MULTILINE) for sheet in sheets]
    return {folder: text for prompts in found for folder, text in prompts}


def collect(repository: Repository, prompts: Sequence[str]) -> tuple[list[Picture], dict[str, int]]:
    """Every picture whose prompt is known by its folder, but small ones and repetitions, in order.

    With them comes, by reason, how many were left out.
    """
    from PIL import Image

    names = re.compile(rf"{RENDERS}/([^/]+)/({'|'.join(SOURCES)})-(\d+)\.(?:png|jpe?g|webp)")
    found = sorted(
        Picture(prompts.index(match[1]), list(SOURCES).index(match[2]), int(match[3]), path)
        for path in repository.paths(RENDERS)
        if (match := names.fullmatch(path)) and match[1] in prompts
    )
    least = [side for _, side in SOURCES.values()]
    seen: set[bytes] = set()
    kept, left_out = [], {"smaller than the source's own": 0, "repeated": 0}
    for picture, content in zip(found, repository.read([p.path for p in found]), strict=True):
        digest = hashlib.sha256(content).digest()
        if min(Image.open(io.BytesIO(content)).size) < least[picture.source]:
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
    prompt, source, sample, paths = zip(*kept, strict=True)
    models = np.array([name for name, _ in SOURCES.values()])[np.array(source)]
    return NewSet(
        work.embed_pictures(repository, paths),
        (work.embed_texts(list(prompts.values())), np.array(prompt)),
        labels={"models": models, "prompt": prompt, "sample": sample},
        description=f"{len(kept):,} pictures by {len(set(models))} text-to-image sources on "
        f"{len(set(prompt))} prompts; {work.pictures.name} pictures, {work.texts.name} prompts",
        cut={"left out": left_out},
    )
