"""Rebuild video.npz: clips of text-to-video models and of Shap-E, embedded.

    python -m experiments.builders.video --cache_dir=data-cache

FETV's examples (llyx97/FETV) are one clip a prompt of four models, and the real clip that the
prompt describes; Shap-E's (openai/shap-e) are four turntables a prompt of one model. Of each clip
as many frames, evenly spaced, are embedded by EfficientNet-Lite0 and scaled to norm 1; a clip is
their mean followed by their standard deviation over time. The two together have norm 1 by
themselves, so that no weight is chosen between what is seen and how it changes. Prompts are
embedded by all-MiniLM-L6-v2.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.encoders import Encoder, load_efficientnet, load_minilm
from condvendi_jax.encoders.efficientnet import PACKAGE as EFFICIENTNET_PACKAGE
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from experiments import records
from experiments.builders import common
from experiments.data import sets
from experiments.data.repository import Repository

FETV, FETV_COMMIT = "llyx97/FETV", "127282c"
SHAP_E, SHAP_E_COMMIT = "openai/shap-e", "5013101"
LICENCE = "FETV: not stated (its real clips are others'); Shap-E: MIT"
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
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Clip:
    """A clip: the file in its repository, whose it is and the prompt's text."""

    path: str
    source: str
    model: str
    prompt: str


def fetv_clips(repository: Repository) -> list[Clip]:
    """The clips of every prompt that all models and a real clip have, each prompt once.

    Its page lists a prompt again under each category that it belongs to, with the same files; the
    first place counts.

    Raises:
      ValueError: the page lists no such prompt.
    """
    (page,) = repository.read([f"{_EXAMPLES}README.md"])
    by_prompt: dict[str, dict[str, str]] = {}
    for line in page.decode().splitlines():
        pictures = {model: path for path, model in _PICTURE.findall(line)}
        prompt = line.strip("| ").partition("|")[0].strip()
        if prompt and pictures:
            by_prompt.setdefault(prompt, pictures)
    whole = {prompt: found for prompt, found in by_prompt.items() if set(found) >= set(MODELS)}
    if not whole:
        raise ValueError(f"{repository.name}: no prompt with clips of {', '.join(MODELS)}.")
    return [
        Clip(_EXAMPLES + found[folder], "FETV", model, prompt)
        for prompt, found in whole.items()
        for folder, model in MODELS.items()
    ]


def shap_e_clips(repository: Repository) -> list[Clip]:
    """The turntables of every prompt that its page of samples lists.

    Raises:
      ValueError: the page lists none.
    """
    (page,) = repository.read(["samples.md"])
    clips = [Clip(path, "Shap-E", "Shap-E", text) for path, text in _SAMPLE.findall(page.decode())]
    if not clips:
        raise ValueError(f"{repository.name}: samples.md lists no samples.")
    return clips


def decode_frames(content: bytes, *, name: str, count: int, side: int) -> np.ndarray:
    """Some frames of an animation, evenly spaced from the first to the last.

    Args:
      content: of the file.
      name: of the file, for errors.
      count: how many frames; frames of a shorter animation come several times.
      side: pixels along each side of a frame: the shorter side is resampled to it and the middle
        is cut out, over white where it is transparent.

    Returns:
      uint8 `[count, side, side, 3]`.

    Raises:
      ValueError: it cannot be decoded.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content)) as opened:
            there = getattr(opened, "n_frames", 1)
            frames: dict[int, np.ndarray] = {}
            places = np.linspace(0, there - 1, count).round().astype(int).tolist()
            for place in sorted(set(places)):
                opened.seek(place)
                picture = opened.convert("RGBA")
                white = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(white, picture).convert("RGB")
                picture = ImageOps.fit(picture, (side, side), Image.Resampling.BICUBIC)
                frames[place] = np.asarray(picture)
    except Exception as error:  # Damaged animations fail in any of the decoder's ways.
        raise ValueError(f"{name}: cannot be decoded as an animation: {error}") from error
    return np.stack([frames[place] for place in places])


def embed_frames(
    repository: Repository,
    paths: Sequence[str],
    encoder: Encoder,
    *,
    count: int,
    cache: pathlib.Path,
) -> np.ndarray:
    """Unit-norm features of the frames of some clips, float32 `[n, count, d]`, made once.

    Args:
      repository: where the clips are.
      paths: of the clips.
      encoder: of pictures, with the `side` of those that it takes.
      count: frames of each clip.
      cache: folder of what is made.
    """
    side: int = getattr(encoder, "side", 224)

    def build() -> dict[str, np.ndarray]:
        rows = []
        for path, content in zip(paths, repository.read(paths), strict=True):
            rows.append(encoder.encode(decode_frames(content, name=path, count=count, side=side)))
            if len(rows) % 20 == 0:
                sys.stderr.write(f"{repository.name}: {len(rows)} of {len(paths)} clips\n")
        return {"features": np.stack(rows)}

    found = records.cached(
        cache,
        f"frames-{repository.name.partition('/')[2]}",
        version=_VERSION,
        settings={
            "encoder": encoder.name,
            "repository": repository.reference,
            "count": count,
            "side": side,
        },
        arrays={"paths": np.array(list(paths))},
        build=build,
    )["features"]
    return common.unit_rows(found.reshape(-1, found.shape[-1])).reshape(found.shape)


def pool(frames: np.ndarray) -> np.ndarray:
    """Mean and standard deviation over time, one after the other: `[n, k, d]` to `[n, 2 d]`.

    For frames of norm 1 the squared norms of the two sum to one: |E f|^2 + sum of Var f = E |f|^2.
    A clip that stands still has its mean and zeros.
    """
    wide = frames.astype(np.float64)
    return np.concatenate([wide.mean(axis=1), wide.std(axis=1)], axis=1).astype(np.float32)


def build(
    repositories: Sequence[Repository],
    pictures: Encoder,
    texts: Encoder,
    *,
    count: int,
    cache: pathlib.Path,
    output: pathlib.Path,
) -> None:
    """Reads, embeds and writes.

    Args:
      repositories: FETV's and Shap-E's.
      pictures: the encoder of frames.
      texts: the encoder of prompts.
      count: frames of each clip.
      cache: folder of what is embedded.
      output: the file.
    """
    clips: list[Clip] = []
    frames = []
    for repository, listed in zip(repositories, (fetv_clips, shap_e_clips), strict=True):
        found = listed(repository)
        paths = [clip.path for clip in found]
        frames.append(embed_frames(repository, paths, pictures, count=count, cache=cache))
        clips += found
    features = np.concatenate(frames)
    outputs = pool(features)
    wordings = list(dict.fromkeys(clip.prompt for clip in clips))
    prompt = np.array([wordings.index(clip.prompt) for clip in clips])
    width = features.shape[-1]
    moving = 1 - np.sum(outputs[:, :width].astype(np.float64) ** 2, axis=1)
    fields: dict[str, Any] = {
        name: np.array([getattr(clip, name) for clip in clips]) for name in ("source", "model")
    }
    sources = dict.fromkeys(fields["source"].tolist())
    counts = {name: int(np.sum(fields["source"] == name)) for name in sources}
    common.write_set(
        output,
        outputs=outputs,
        prompts=(common.embed_texts(wordings, texts, cache=cache, name="video-prompts"), prompt),
        labels={"models": fields["model"], "prompt": prompt, "source": fields["source"]},
        further={"means": common.unit_rows(outputs[:, :width]), "stills": features[:, count // 2]},
        description=(
            f"clips of {' and '.join(sources)}; mean and spread over {count} frames of "
            f"{pictures.name}, {texts.name} prompts"
        ),
        licence=LICENCE,
        provenance=[
            *(repository.reference for repository in repositories),
            *common.versions(EFFICIENTNET_PACKAGE, MINILM_PACKAGE, "tokenizers"),
        ],
        cut={
            "clips": counts,
            "frames": count,
            "spread": {
                model: float(moving[fields["model"] == model].mean())
                for model in dict.fromkeys(fields["model"].tolist())
            },
        },
    )


def main(argv: list[str]) -> None:
    """Read, embed and write."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    cache, output = pathlib.Path(values.cache_dir), pathlib.Path(values.output)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(sets.FOLDER / "video.npz", sources=("fetv", "shap_e"))
    if values.frames < 2:
        raise ValueError(f"--frames: expected at least 2, received {values.frames}.")
    repositories = [
        Repository.opened(FETV, FETV_COMMIT, source=values.fetv, cache=cache),
        Repository.opened(SHAP_E, SHAP_E_COMMIT, source=values.shap_e, cache=cache),
    ]
    build(
        repositories,
        load_efficientnet(),
        load_minilm(),
        count=values.frames,
        cache=cache,
        output=output,
    )


if __name__ == "__main__":
    common.define_flags(sets.FOLDER / "video.npz", fetv=FETV, shap_e=SHAP_E)
    flags.DEFINE_integer("frames", 16, "Frames of each clip; the shortest clips have 16.")
    command.run(main)
