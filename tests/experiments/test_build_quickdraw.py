"""The builder of the VAE's drawings: what it draws, embeds and writes."""

import json

import numpy as np
import pytest
import small_quickdraw
from small_repositories import Corners, WordCounts, repository

from experiments.builders import quickdraw
from experiments.data import sets
from experiments.data.wordings import WORDINGS
from experiments.generators import quickdraw_vae

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickdraw")
    clone = repository(folder / "clone", "a/b", small_quickdraw.files())
    pictures, texts = Corners(), WordCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quickdraw, "load_efficientnet", lambda: pictures)
        patch.setattr(quickdraw, "load_minilm", lambda: texts)
        path = folder / "quickdraw.npz"
        for _ in range(2):  # The second time out of the cache.
            quickdraw.build(
                clone, psi=(0.0, 0.5, 1.0), draws=4, cache=folder / "cache", output=path
            )
    return clone, pictures, path


def test_the_set_has_every_class_at_every_psi(built):
    _, pictures, path = built
    pairs = sets.read_set(path)
    assert len(pairs) == 3 * 3 * 4
    assert pairs.labels["models"].tolist() == ["0"] * 12 + ["0.5"] * 12 + ["1"] * 12
    assert pairs.labels["types"][:12].tolist() == ["cat"] * 4 + ["alarm clock"] * 4 + ["key"] * 4
    # Equal drawings, those without latents, are embedded once.
    assert pictures.given == 3 + 2 * 3 * 4
    first = pairs.outputs[:12].reshape(3, 4, -1)
    np.testing.assert_array_equal(first, np.repeat(first[:, :1], 4, axis=1))
    assert not np.allclose(pairs.outputs[24:28], pairs.outputs[24])
    # A drawing has the same wording at every psi, and a wording of a class the same prompt.
    wording = pairs.labels["wording"].reshape(3, 12)
    np.testing.assert_array_equal(wording[0], wording[2])
    expected = WORDINGS["quickdraw"].pair(12, quickdraw.SEED)
    np.testing.assert_array_equal(wording[0], expected)
    np.testing.assert_array_equal(pairs.prompts[:12], pairs.prompts[12:24])


def test_features_are_of_the_pictures_of_the_samples(built):
    clone, _, path = built
    published = quickdraw_vae.load(clone)
    ink = quickdraw.draw(published, (0.0, 0.5, 1.0), 4)
    assert ink.shape == (3, 3, 4, 8, 8)
    shown = quickdraw.pictures(ink[2, 1], 8)
    assert shown.dtype == np.uint8
    np.testing.assert_array_equal(shown[..., 0], np.round(255 * (1 - ink[2, 1])))
    features = Corners().encode(shown)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    rows = sets.read_set(path).outputs[28:32]
    np.testing.assert_allclose(rows @ rows.T, features @ features.T, atol=2e-3)
    larger = quickdraw.pictures(ink[2, 1], 32)
    assert larger.shape == (4, 32, 32, 3)


def test_what_was_cut_and_what_is_shown(built):
    _, _, path = built
    with np.load(path, allow_pickle=False) as stored:
        cut = json.loads(str(stored["cut"]))
        assert "MIT" in str(stored["licence"])
        assert stored["outputs"].dtype == np.float16
    assert cut["dimensions"].startswith("6 of 6 principal directions, with 1.0000")
    assert abs(cut["cost"]["cut"]["conditional"]["change"]) < 0.01
    with np.load(path.parent / "drawings/quickdraw.npz", allow_pickle=False) as shown:
        assert shown["ink"].shape == (3, 3, 2, 8, 8)
        assert shown["types"].tolist() == ["cat", "alarm clock", "key"]
        assert shown["models"].tolist() == ["0", "0.5", "1"]
