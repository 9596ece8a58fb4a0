"""The builder of the gallery: what it keeps of a small repository, and what it writes."""

import io
import json
import subprocess
from typing import Any

import numpy as np
import pytest
from fake_encoders import Means
from PIL import Image

from experiments.builders import gallery
from experiments.data import SETS, sets
from experiments.data.repository import Repository

pytestmark = pytest.mark.slow

SHEETS = {
    "gallery-9.md": "# Preview\n\n- midjourney\n\n## a-red-cat-1 \n> A red cat \n\n`midj`\n\n"
    "## a-blue-dog-2\n> A blue dog\n",
    "storyboard-9.md": "## lost-3 \n> A girl is lost\n",
}


def picture(colour, side=256, kind="PNG"):
    content = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(content, kind)
    return content.getvalue()


def renders():
    red, small = picture("red"), picture("white")
    return {
        "a-red-cat-1/ldif-1.png": red,
        "a-red-cat-1/ldif-10.png": picture("brown"),
        "a-red-cat-1/ldif-2.png": picture("pink"),
        "a-red-cat-1/midj-1.png": picture("black", 1024),
        "a-red-cat-1/midj-2.png": picture("grey", 512),
        "a-red-cat-1/dal2-1.jpg": picture("yellow", 1024, "JPEG"),
        "a-red-cat-1/dal2.jpg": picture("green", 1024, "JPEG"),
        "a-blue-dog-2/ldif-1.png": red,
        "a-blue-dog-2/disco-1.png": picture("orange"),
        "a-blue-dog-2/dmin-1.png": picture("blue"),
        "a-blue-dog-2/simu-1.png": small,
        "lost-3/dmin-1.png": picture("purple"),
        "unknown-4/dmin-1.png": picture("cyan"),
    }


def git(folder, *words):
    whole = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(whole, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder, files):
    folder.mkdir()
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "output/renders/lost-3").mkdir(parents=True, exist_ok=True)
    (folder / "output/renders/lost-3/dmin-2.png").symlink_to("dmin-1.png")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return Repository("dcsan/imagen", git(folder, "rev-parse", "HEAD"), folder)


@pytest.fixture
def small(tmp_path):
    files = {f"{gallery.RENDERS}/{path}": c for path, c in renders().items()}
    return repository(tmp_path / "clone", files | SHEETS)


def test_prompts_are_read_in_the_order_of_the_sheets():
    found = gallery.read_prompts([*SHEETS.values()])
    assert [*found.items()] == [
        ("a-red-cat-1", "A red cat"),
        ("a-blue-dog-2", "A blue dog"),
        ("lost-3", "A girl is lost"),
    ]


def test_single_pictures_of_known_prompts_are_kept_in_order(small):
    found = gallery.collect(small, [*gallery.SOURCES])
    assert [(p.prompt, p.source, p.sample) for p in found.pictures] == [
        (0, "ldif", 1),
        (0, "ldif", 2),
        (0, "ldif", 10),
        (0, "midj", 1),
        (0, "dal2", 1),
        (1, "dmin", 1),
        (2, "dmin", 1),
    ]
    # Midjourney's sheet of four, simulacra's of another's size; the red picture a second time.
    assert found.left_out == {"smaller than the source's own": 2, "repeated": 1}
    assert found.prompts == ("A red cat", "A blue dog", "A girl is lost")


def test_a_set_is_written_and_read_again(small, tmp_path):
    encoders: dict[str, Any] = {"pictures": Means(), "texts": Means()}
    output = tmp_path / "gallery.npz"
    gallery.build(
        small, ["ldif", "dmin"], output, cache=tmp_path / "cache", packages=["a 1"], **encoders
    )
    pairs = sets.read_set(output)
    assert pairs.labels["models"].tolist() == ["latent diffusion"] * 3 + ["DALL-E mini"] * 2
    assert pairs.labels["prompt"].tolist() == [0, 0, 0, 1, 2]
    assert pairs.labels["sample"].tolist() == [1, 2, 10, 1, 1]
    red = np.array([255, 0, 0, 224]) / np.hypot(255, 224)
    np.testing.assert_allclose(pairs.outputs[0], red, atol=1e-3)
    (text,) = Means().encode(["A blue dog"])
    np.testing.assert_allclose(pairs.prompts[3], text / np.linalg.norm(text), atol=1e-3)
    assert "5 pictures by 2 text-to-image sources on 3 prompts" in pairs.description
    with np.load(output) as stored:
        assert stored["provenance"].tolist() == [small.reference, "a 1"]
        assert json.loads(str(stored["cut"]))["left out"]["repeated"] == 1
        assert "not stated" in str(stored["licence"])
        assert not any("red cat" in str(stored[name]) for name in stored.files)


@pytest.mark.parametrize("given", [["ldif", "disco"], ["ldif", "ldif"], []])
def test_unknown_sources_are_refused(given):
    with pytest.raises(ValueError, match="--sources: expected some of ldif, dmin, glid3"):
        gallery.check_keys(given)


def test_a_repository_without_pictures_and_a_damaged_picture_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no pictures of ldif"):
        gallery.collect(repository(tmp_path / "empty", SHEETS), ["ldif"])
    damaged = {f"{gallery.RENDERS}/lost-3/ldif-1.png": b"no picture"}
    with pytest.raises(ValueError, match=r"lost-3/ldif-1\.png: cannot be decoded"):
        gallery.collect(repository(tmp_path / "damaged", damaged | SHEETS), ["ldif"])


def test_the_shipped_set_has_the_counts_of_its_description():
    pairs = SETS["gallery"].load()
    names, counts = np.unique(pairs.labels["models"], return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        "DALL-E 2": 77,
        "DALL-E mini": 369,
        "GLID-3-XL": 243,
        "Midjourney": 199,
        "Stability beta": 101,
        "latent diffusion": 369,
        "simulacra": 104,
    }
    assert pairs.outputs.shape == (1462, 1280)
    assert np.unique(pairs.labels["prompt"]).size == 41
    first = np.unique(pairs.labels["prompt"], return_index=True)[1]
    np.testing.assert_array_equal(pairs.prompts, pairs.prompts[first][pairs.labels["prompt"]])
    assert "not stated" in SETS["gallery"].licence
