"""The builder of t2i on a small repository, and the second encoder of its pictures."""

import jax
import numpy as np
import pytest
from small_repositories import Corners, make, picture, repository

from condvendi_jax.encoders import efficientnet
from experiments.builders import t2i

SHEET = '\ufeffPrompt,文本,类别,来源\nA red cat,猫,颜色,DrawBench\n"Fish, burning",鱼,反事实,ViLG\n'


@pytest.mark.slow
def test_every_model_has_a_picture_of_every_prompt_with_its_category(tmp_path, monkeypatch):
    colours = ["red", "blue", "lime", "white", "grey", "pink", "gold", "cyan"]
    shown = {
        m: (c, colours[-1 - k]) for k, (m, c) in enumerate(zip(t2i.MODELS, colours, strict=True))
    }
    files = {
        f"saved/{m}/{k}.jpg": picture(c) for m, two in shown.items() for k, c in enumerate(two)
    }
    files[t2i.PROMPTS] = SHEET.encode()
    clone = repository(tmp_path / "clone", t2i.REPOSITORY[0], files)
    monkeypatch.setattr(t2i, "load_lite2", lambda: Corners())
    pairs, _, _, _, texts = make(t2i, tmp_path, clone)
    assert pairs.labels["models"].tolist() == [*t2i.MODELS.values()] * 2
    assert pairs.labels["types"].tolist() == ["colours"] * 8 + ["counterfactual"] * 8
    assert pairs.labels["prompt"].tolist() == [0] * 8 + [1] * 8
    cyan = np.array([0.01, 1.01, 1.01] * 2)
    for rows in (pairs.outputs, pairs.further["second"]):
        np.testing.assert_allclose(rows[[7, 8]], [cyan / np.linalg.norm(cyan)] * 2, atol=1e-3)
    prompts = texts.rows(["A red cat", "Fish, burning"])
    np.testing.assert_allclose(pairs.prompts[[0, 8]], prompts, atol=1e-3)


def published(blocks):
    """Tensors of a small network of so many blocks, as the packages have them."""
    rng, tensors = np.random.default_rng(0), {}

    def add(convolution, norm, shape):
        tensors[f"{convolution}.weight"] = rng.normal(size=shape).astype(np.float32)
        for part in ("weight", "bias", "running_mean", "running_var"):
            tensors[f"{norm}.{part}"] = rng.uniform(0.5, 1, shape[0]).astype(np.float32)

    add("_conv_stem", "_bn0", (4, 3, 3, 3))
    for k in range(blocks):
        at = f"_blocks.{k}"
        add(f"{at}._depthwise_conv", f"{at}._bn1", (4, 1, 3, 3))
        add(f"{at}._project_conv", f"{at}._bn2", (4, 4, 1, 1))
    add("_conv_head", "_bn1", (6, 4, 1, 1))
    return tensors


def test_lite2_is_lite0s_network_with_strides_of_its_own():
    strides = t2i.Lite2Encoder.strides
    assert strides == (1, 2, 1, 1, 2, 1, 1, *(2, 1, 1, 1), *[1] * 4, *(2, 1, 1, 1, 1), 1)
    folded = efficientnet.fold_batch_norms(published(21), strides)
    wanted = published(21)["_blocks.20._depthwise_conv.weight"][:, 0].transpose(1, 2, 0)
    ratio = np.asarray(folded["blocks"][20]["depthwise"][0]) / wanted
    assert len(folded["blocks"]) == 21
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0, 0], ratio.shape), rtol=1e-5)
    small = efficientnet.fold_batch_norms(published(4))
    small["head"] = jax.tree.map(lambda of: np.tile(of, 320)[..., :1280], small["head"])
    pictures = np.random.default_rng(1).integers(0, 256, (1, 260, 260, 3), np.uint8)
    found = t2i.Lite2Encoder(small).encode(pictures)
    np.testing.assert_allclose(found, efficientnet.features(small, pictures, strides), rtol=1e-5)
    assert np.abs(found - efficientnet.features(small, pictures)).max() > 1e-3
