"""The builder of the gallery: what it keeps of a small repository, and what it writes."""

import numpy as np
import pytest
from small_repositories import make, picture, repository

from experiments.builders import t2i

pytestmark = pytest.mark.slow

SHEETS = {
    "gallery-9.md": b"# Preview\n\n- midjourney\n\n## a-red-cat-1 \n> A red cat \n\n`midj`\n\n"
    b"## a-blue-dog-2\n> A blue dog\n",
    "storyboard-9.md": b"## lost-3 \n> A girl is lost\n",
}


RENDERS = {
    "a-red-cat-1/ldif-1.png": picture("red"),
    "a-red-cat-1/ldif-10.png": picture("brown"),
    "a-red-cat-1/ldif-2.png": picture("pink"),
    "a-red-cat-1/midj-1.png": picture("black", 1024),
    "a-red-cat-1/midj-2.png": picture("grey", 512),
    "a-red-cat-1/dal2-1.jpg": picture("yellow", 1024, "JPEG"),
    "a-red-cat-1/dal2.jpg": picture("green", 1024, "JPEG"),
    "a-blue-dog-2/ldif-1.png": picture("red"),
    "a-blue-dog-2/disco-1.png": picture("orange"),
    "a-blue-dog-2/dmin-1.png": picture("blue"),
    "a-blue-dog-2/simu-1.png": picture("white"),
    "lost-3/dmin-1.png": picture("purple"),
    "unknown-4/dmin-1.png": picture("cyan"),
}


def test_single_pictures_of_known_prompts_are_kept_in_order(tmp_path):
    files = {f"{t2i.RENDERS}/{path}": content for path, content in RENDERS.items()}
    clone = repository(tmp_path / "clone", "dcsan/imagen", files | SHEETS)
    pairs, _, cut, _, texts = make(t2i, tmp_path, clone, name="gallery")
    models = ["latent diffusion"] * 3 + ["Midjourney", "DALL-E 2"] + ["DALL-E mini"] * 2
    assert pairs.labels["models"].tolist() == models
    assert pairs.labels["prompt"].tolist() == [0, 0, 0, 0, 0, 1, 2]
    assert pairs.labels["sample"].tolist() == [1, 2, 10, 1, 1, 1, 1]
    # Midjourney's sheet of four, simulacra's of another's size; the red picture a second time.
    assert cut["left out"] == {"smaller than the source's own": 2, "repeated": 1}
    red = np.array([1.01, 0.01, 0.01] * 2)
    np.testing.assert_allclose(pairs.outputs[0], red / np.linalg.norm(red), atol=1e-3)
    prompts = texts.rows(["A red cat", "A blue dog", "A girl is lost"])
    np.testing.assert_allclose(pairs.prompts[4:], prompts, atol=1e-3)
    assert "7 pictures by 4 text-to-image sources on 3 prompts" in pairs.description
