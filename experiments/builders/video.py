"""Rebuild video.npz: clips of text-to-video models and of Shap-E, embedded."""

import io
import itertools
import re

import numpy as np

from experiments.builders.common import EFFICIENTNET, OF_TEXTS, NewSet, Work, recipe, unit_rows
from experiments.data.repository import Repository

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


def fetv_clips(repository: Repository) -> list[tuple[str, str, str]]:
    """The clips of every prompt that all models and a real clip have, each prompt once.

    A clip is its file, model and prompt. The page lists a prompt again under each category that it
    belongs to, with the same files; the first place counts.
    """
    (page,) = repository.read([f"{_EXAMPLES}README.md"])
    by_prompt: dict[str, dict[str, str]] = {}
    for line in page.decode().splitlines():
        pictures = {model: path for path, model in _PICTURE.findall(line)}
        prompt = line.strip("| ").partition("|")[0].strip()
        if prompt and pictures:
            by_prompt.setdefault(prompt, pictures)
    return [
        (_EXAMPLES + found[folder], model, prompt)
        for prompt, found in by_prompt.items()
        if set(found) >= set(MODELS)
        for folder, model in MODELS.items()
    ]


def decode_frames(content: bytes, *, side: int) -> np.ndarray:
    """Some frames of an animation, evenly spaced from the first to the last.

    Frames of a shorter animation come several times. A frame's shorter side is resampled and the
    middle is cut out, over white where it is transparent: uint8 `[FRAMES, side, side, 3]`.
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


@recipe(
    "video",
    EFFICIENTNET,
    *OF_TEXTS,
    fetv=("llyx97/FETV", "127282c"),
    shap_e=("openai/shap-e", "5013101"),
)
def build(work: Work, fetv: Repository, shap_e: Repository) -> NewSet:
    """The clips of both sources, by the mean and spread of their frames."""
    (page,) = shap_e.read(["samples.md"])
    turned = [(path, "Shap-E", text) for path, text in _SAMPLE.findall(page.decode())]
    by_source = {"FETV": fetv_clips(fetv), "Shap-E": turned}
    rows, side = [], work.pictures.side
    for repository, found in zip((fetv, shap_e), by_source.values(), strict=True):
        paths = [path for path, *_ in found]
        contents = repository.read(paths)
        embedded = work.embed(
            (frame for content in contents for frame in decode_frames(content, side=side)),
            work.pictures,
            arrays={"paths": np.array(paths)},
            repository=repository.reference,
            frames=FRAMES,
        )
        rows.append(embedded.reshape(len(paths), FRAMES, -1))
    features = np.concatenate(rows)
    outputs, width = pool(features), features.shape[-1]
    counts = {name: len(found) for name, found in by_source.items()}
    sources = np.repeat([*counts], [*counts.values()])
    clips = itertools.chain.from_iterable(by_source.values())
    _, models, prompts = map(np.array, zip(*clips, strict=True))
    wordings = list(dict.fromkeys(prompts.tolist()))
    prompt = np.array([wordings.index(text) for text in prompts])
    moving = 1 - np.sum(outputs[:, :width].astype(np.float64) ** 2, axis=1)
    return NewSet(
        outputs,
        (work.embed_texts(wordings), prompt),
        labels={"models": models, "prompt": prompt, "source": sources},
        description=f"clips of FETV and Shap-E; mean and spread over {FRAMES} frames of "
        f"{work.pictures.name}, {work.texts.name} prompts",
        cut={
            "clips": counts,
            "frames": FRAMES,
            "spread": {
                of: float(moving[models == of].mean()) for of in dict.fromkeys(models.tolist())
            },
        },
        further={"means": unit_rows(outputs[:, :width]), "stills": features[:, FRAMES // 2]},
    )
