"""The builder of the VAE's drawings: what it draws, embeds and writes."""

import numpy as np
import pytest
import small_quickdraw
from small_repositories import Corners, make, repository

from experiments.builders import common, quickdraw
from experiments.data.wordings import WORDINGS
from experiments.generators import quickdraw_vae

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickdraw")
    clone = repository(folder / "clone", "a/b", small_quickdraw.files())
    return clone, folder, make(quickdraw, folder, clone, PSI=(0.0, 0.5, 1.0), DRAWS=4)


def test_the_set_has_every_class_at_every_psi(built):
    _, _, (pairs, _, cut, pictures, _) = built
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
    np.testing.assert_array_equal(wording[0], WORDINGS["quickdraw"].pair(12, quickdraw.SEED))
    np.testing.assert_array_equal(pairs.prompts[:12], pairs.prompts[12:24])
    assert cut["dimensions"].startswith("6 of 6 principal directions, with 1.0000")


def test_features_are_of_the_pictures_of_the_samples(built, monkeypatch):
    clone, folder, made = built
    monkeypatch.setattr(quickdraw, "PSI", (0.0, 0.5, 1.0))
    monkeypatch.setattr(quickdraw, "DRAWS", 4)
    ink = quickdraw.draw(quickdraw_vae.load(clone))
    assert ink.shape == (3, 3, 4, 8, 8)
    pictures = np.stack([quickdraw.picture(one, 8) for one in ink[2, 1]])
    assert pictures.dtype == np.uint8
    np.testing.assert_array_equal(pictures[..., 0], np.round(255 * (1 - ink[2, 1])))
    features = common.unit_rows(Corners().encode(pictures))
    rows = made.pairs.outputs[28:32]
    np.testing.assert_allclose(rows @ rows.T, features @ features.T, atol=2e-3)
    with np.load(folder / "drawings/quickdraw.npz", allow_pickle=False) as shown:
        np.testing.assert_array_equal(shown["ink"], np.round(255 * ink[:, :, :2]))
        assert shown["types"].tolist() == ["cat", "alarm clock", "key"]
        assert shown["models"].tolist() == ["0", "0.5", "1"]
