"""The conditional VAE of drawings against NumPy, on small files of its format, and its builder."""

import itertools
import json

import jax
import numpy as np
import pytest
from small_repositories import Corners, make, repository

from experiments.builders import common, quickdraw
from experiments.data.wordings import WORDINGS

pytestmark = pytest.mark.slow

SHARD = f"{quickdraw.FOLDER}/models/group1-shard1of1"
NAMES = ["cat", "alarm_clock", "key"]
LATENTS, SIDE, CHANNELS = 3, 2, (2, 4, 3)


def arrays(seed=0):
    """Weights by name: the latents and the class, two squares, three convolutions to one."""
    generator = np.random.default_rng(seed)
    units = CHANNELS[0] * SIDE**2
    shapes = {"dense_5/kernel": (LATENTS + len(NAMES) + 1, units), "dense_5/bias": (units,)}
    for layer, (given, made) in enumerate(itertools.pairwise([*CHANNELS, 1]), start=1):
        shapes[f"conv2d_transpose_{layer}/kernel"] = (3, 3, made, given)
        shapes[f"conv2d_transpose_{layer}/bias"] = (made,)
    return {name: generator.normal(size=shape).astype("<f4") for name, shape in shapes.items()}


def files(seed=0):
    """The three files by path."""
    weights = arrays(seed)
    entries = [{"name": name, "shape": array.shape} for name, array in weights.items()]
    manifest = {"paths": ["group1-shard1of1"], "weights": entries}
    return {
        quickdraw.LABELS: json.dumps({"labels": NAMES}).encode(),
        quickdraw.MODEL: json.dumps({"weightsManifest": [manifest]}).encode(),
        SHARD: b"".join(array.tobytes() for array in weights.values()),
    }


def decode(weights, latents, prompts):
    """The decoder in NumPy float64, a pixel at a time."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    drawings = []
    for latent, prompt in zip(latents, prompts, strict=True):
        chosen = np.zeros(len(NAMES) + 1)
        chosen[prompt + 1] = 1
        flat = np.concatenate([latent, chosen]) @ weights["dense_5/kernel"]
        x = np.maximum(flat + weights["dense_5/bias"], 0).reshape(SIDE, SIDE, -1)
        for layer in (1, 2, 3):
            name = f"conv2d_transpose_{layer}"
            x = transposed(x, weights[f"{name}/kernel"]) + weights[f"{name}/bias"]
            if layer < 3:
                x = np.kron(np.maximum(x, 0), np.ones((2, 2, 1)))
        drawings.append(1 / (1 + np.exp(-x[..., 0])))
    return np.stack(drawings)


def transposed(x, kernel):
    """Every pixel spreads its channels over its 3 x 3 neighbours; what leaves the square is cut."""
    wide = np.zeros((len(x) + 2, len(x) + 2, kernel.shape[2]))
    for i, j in np.ndindex(x.shape[:2]):
        wide[i : i + 3, j : j + 3] += kernel @ x[i, j]
    return wide[1:-1, 1:-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickdraw")
    clone = repository(folder / "clone", "a/b", files())
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
    ink = quickdraw.draw(quickdraw.load(clone)[1], 3)
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


def test_samples_are_those_of_the_format_at_scaled_latents(built):
    names, decoder = quickdraw.load(built[0])
    assert names == ["cat", "alarm clock", "key"]
    assert [len(part) for part in decoder] == [LATENTS, 1 + len(NAMES), 3]
    prompts = np.array([2, 0, 1, 1])
    latents = np.asarray(jax.random.normal(jax.random.key(5), (4, 3)))
    for psi in (0.0, 0.3, 1.0):
        expected = decode(arrays(), psi * latents, prompts)
        assert expected.shape == (4, 8, 8) and np.ptp(expected) > 0.5
        drawn = quickdraw.sample(decoder, jax.random.key(5), prompts, psi)
        np.testing.assert_allclose(drawn, expected, atol=1e-5)
