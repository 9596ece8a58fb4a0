"""Rebuild video.npz: clips of text-to-video models and of Shap-E, embedded.

python -m experiments.builders.video --cache_dir=data-cache
"""

import io
import pathlib
import re
from typing import NamedTuple

import numpy as np

from condvendi_jax.encoders import load_efficientnet, load_minilm
from experiments.builders import common
from experiments.data.repository import Repository

FETV = ("llyx97/FETV", "127282c")
SHAP_E = ("openai/shap-e", "5013101")
FRAMES = 16  # The shortest clips have as many.
MODELS = {
    "cogvideo": "CogVideo",
    "text2video-zero": "Text2Video-Zero",
    "videofusion": "ModelScope",
    "zeroscope": "ZeroScope",
    "gt": "real clips",
}
_EXAMPLES = "generated_video_examples/"
_PICTURE = re.compile(r"!\[\]\((assets/[^)\s]+/([^/)\s]+)/[^/)\s]+\.gif)\)")
_SAMPLE = re.compile(r'<img src="(samples/[^"]+\.gif)" alt="([^"]+)"')


class Clip(NamedTuple):
    """A clip: the file in its repository, whose it is and the prompt's text."""

    path: str
    source: str
    model: str
    prompt: str


def fetv_clips(repository: Repository) -> list[Clip]:
    """The clips of every prompt that all models and a real clip have, each prompt once.

    Its page lists a prompt again under each category that it belongs to, with the same files; the
    first place counts.
    """
    (page,) = repository.read([f"{_EXAMPLES}README.md"])
    by_prompt: dict[str, dict[str, str]] = {}
    for line in page.decode().splitlines():
        pictures = {model: path for path, model in _PICTURE.findall(line)}
        prompt = line.strip("| ").partition("|")[0].strip()
        if prompt and pictures:
            by_prompt.setdefault(prompt, pictures)
    return [
        Clip(_EXAMPLES + found[folder], "FETV", model, prompt)
        for prompt, found in by_prompt.items()
        if set(found) >= set(MODELS)
        for folder, model in MODELS.items()
    ]


def decode_frames(content: bytes, *, side: int) -> np.ndarray:
    """Some frames of an animation, evenly spaced from the first to the last.

    Frames of a shorter animation come several times. A frame's shorter side is resampled and the
    middle is cut out, over white where it is transparent.

    Returns:
      uint8 `[FRAMES, side, side, 3]`.
    """
    from PIL import Image, ImageOps

    opened, frames = Image.open(io.BytesIO(content)), []
    last = getattr(opened, "n_frames", 1) - 1
    for place in np.linspace(0, last, FRAMES).round().astype(int).tolist():
        opened.seek(place)
        picture = opened.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture).convert("RGB")
        frames.append(ImageOps.fit(picture, (side, side), Image.Resampling.BICUBIC))
    return np.stack(frames)


def pool(frames: np.ndarray) -> np.ndarray:
    """Mean and standard deviation over time, one after the other: `[n, k, d]` to `[n, 2 d]`.

    For frames of norm 1 the squared norms of the two sum to one: |E f|^2 + sum of Var f = E |f|^2.
    A clip that stands still has its mean and zeros.
    """
    wide = frames.astype(np.float64)
    return np.concatenate([wide.mean(axis=1), wide.std(axis=1)], axis=1).astype(np.float32)


def build(output: pathlib.Path, cache: pathlib.Path, fetv: Repository, shap_e: Repository) -> None:
    """Reads, embeds and writes."""
    pictures, texts = load_efficientnet(), load_minilm()
    side = common.side_of(pictures)
    clips: list[Clip] = []
    rows = []
    (page,) = shap_e.read(["samples.md"])
    found = _SAMPLE.findall(page.decode())
    turned = [Clip(path, "Shap-E", "Shap-E", text) for path, text in found]
    for repository, found in ((fetv, fetv_clips(fetv)), (shap_e, turned)):
        paths = [clip.path for clip in found]
        contents = repository.read(paths)
        embedded = common.embed(
            f"frames-{repository.name.partition('/')[2]}",
            (frame for content in contents for frame in decode_frames(content, side=side)),
            pictures,
            cache=cache,
            arrays={"paths": np.array(paths)},
            repository=repository.reference,
            frames=FRAMES,
        )
        rows.append(embedded.reshape(len(paths), FRAMES, -1))
        clips += found
    features = np.concatenate(rows)
    outputs, width = pool(features), features.shape[-1]
    wordings = list(dict.fromkeys(clip.prompt for clip in clips))
    prompt = np.array([wordings.index(clip.prompt) for clip in clips])
    models = np.array([clip.model for clip in clips])
    sources = np.array([clip.source for clip in clips])
    every = dict.fromkeys(models.tolist())
    moving = 1 - np.sum(outputs[:, :width].astype(np.float64) ** 2, axis=1)
    common.write_set(
        output,
        "video",
        outputs=outputs,
        prompts=(common.embed_texts(wordings, texts, cache=cache, name="video-prompts"), prompt),
        labels={"models": models, "prompt": prompt, "source": sources},
        further={"means": common.unit_rows(outputs[:, :width]), "stills": features[:, FRAMES // 2]},
        description=f"clips of FETV and Shap-E; mean and spread over {FRAMES} frames of "
        f"{pictures.name}, {texts.name} prompts",
        provenance=common.origins(fetv, shap_e, common.EFFICIENTNET, common.MINILM, "tokenizers"),
        cut={
            "clips": {name: int(np.sum(sources == name)) for name in ("FETV", "Shap-E")},
            "frames": FRAMES,
            "spread": {of: float(moving[models == of].mean()) for of in every},
        },
    )


RECIPES = {"video": common.Recipe(build, {"fetv": FETV, "shap_e": SHAP_E})}

if __name__ == "__main__":
    common.run(RECIPES)
