"""The builder of the video set, on repositories of a few small animations."""

import io

import numpy as np
import pytest
from PIL import Image
from small_repositories import make, repository

from experiments.builders import common, video

pytestmark = pytest.mark.slow

RED, BLUE, CLEAR = (250, 0, 0, 255), (0, 0, 250, 255), (0, 0, 0, 0)
FOLDERS = list(video.MODELS)


def gif(*colours, size=(12, 8)):
    first, *rest = (Image.new("RGBA", size, colour) for colour in colours)
    content, knobs = io.BytesIO(), {"disposal": 2, "loop": 0, "duration": 50}
    first.save(content, "GIF", save_all=True, append_images=rest, **knobs)
    return content.getvalue()


def fetv():
    """Three prompts; the first is listed twice, the last has no real clip."""
    rows, files = [], {}
    for category, prompt, number in (
        *(("actions", "a red dog", 1), ("light", "a blue cat", 2)),
        *(("colour", "a red dog", 1), ("speed", "no real one", 3)),
    ):
        folders = FOLDERS if number < 3 else FOLDERS[:-1]
        paths = [f"assets/{category}/{folder}/{number}.gif" for folder in folders]
        rows += [f"| {prompt} | " + " | ".join(f"![]({path})" for path in paths) + " |"]
        rows += ["|  | SQ=3, TQ=3 | SQ=4, TQ=1 |"]
        for place, path in enumerate(paths):
            colours = (RED, BLUE) if place % 2 else (RED, RED)
            files[f"generated_video_examples/{path}"] = gif(*colours, *colours)
    page = "# Examples\n| Prompt | CogVideo |\n| --- | :---: |\n" + "\n".join(rows)
    return files | {"generated_video_examples/README.md": page.encode()}


def shap_e():
    paths = [f"samples/{name}/{k}.gif" for name in ("a_chair", "a_car") for k in range(4)]
    cells = [f'<td><img src="{p}" alt="{p.split("/")[1].replace("_", " ")}"></td>' for p in paths]
    files = {path: gif(CLEAR, (0, 200, 0, 255)) for path in paths}
    return files | {"samples.md": "".join(cells).encode()}


def test_frames_are_evenly_spaced_over_white_and_square(monkeypatch):
    monkeypatch.setattr(video, "FRAMES", 3)
    colours = [(index, 0, 0, 255) for index in range(0, 90, 10)]
    frames = video.decode_frames(gif(*colours), side=8)
    assert frames.shape == (3, 8, 8, 3)
    assert frames[:, 4, 4, 0].tolist() == [0, 40, 80]
    # A shorter one repeats frames, and what is transparent is white.
    monkeypatch.setattr(video, "FRAMES", 4)
    frames = video.decode_frames(gif(CLEAR, RED), side=8)
    assert frames[:, 0, 0].tolist() == [[255] * 3] * 2 + [[250, 0, 0]] * 2


def test_the_set_knows_source_model_and_prompt(tmp_path):
    clones = [
        repository(tmp_path / "fetv", "llyx97/FETV", fetv()),
        repository(tmp_path / "shap_e", "openai/shap-e", shap_e()),
    ]
    pairs, _, cut, pictures, texts = make(video, tmp_path, *clones, FRAMES=4)
    assert pictures.given == 4 * 18
    assert sorted(texts.given) == ["a blue cat", "a car", "a chair", "a red dog"]
    assert pairs.labels["source"].tolist() == ["FETV"] * 10 + ["Shap-E"] * 8
    assert pairs.labels["prompt"].tolist() == [0] * 5 + [1] * 5 + [2] * 4 + [3] * 4
    assert pairs.labels["models"][:6].tolist() == [*video.MODELS.values(), "CogVideo"]
    assert cut["clips"] == {"FETV": 10, "Shap-E": 8}
    moving = np.linalg.norm(pairs.outputs[:, 6:], axis=1)
    assert cut["spread"]["CogVideo"] == pytest.approx(0, abs=1e-6)
    assert cut["spread"]["Text2Video-Zero"] == pytest.approx(moving[1] ** 2, rel=1e-2)
    assert moving[1] > 0.1
    # Clips that stand still are their one frame.
    apart = np.abs(pairs.further["stills"] - pairs.further["means"]).max(axis=1)
    assert apart[0] < 1e-3 and apart[1] > 0.1
    means = common.unit_rows(pairs.outputs[:, :6])
    np.testing.assert_allclose(pairs.further["means"], means, atol=1e-3)
