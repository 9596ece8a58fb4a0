"""The count of designs a prompt: where it is known, where it is not reached, and why."""

import dataclasses
import math

import numpy as np
import pytest
from oracles import gaussian_gram, scores
from small import small_run
from studies import execute

from experiments import designs
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow

STUDY = designs.STUDY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("designs")
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


def test_outputs_that_have_nothing_in_common_are_counted(finished):
    assert finished.settings.most == 4
    assert len(finished.results) == 8
    for found in finished.results.values():
        for values in (*found.conditional, *found.mean_within):
            np.testing.assert_allclose(values, [1, 2, 3, 4], rtol=2e-3)
        assert found.sizes.tolist() == [12, 12, 12, 12]
        np.testing.assert_allclose(found.alike, np.eye(4), atol=1e-3)


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory):
    """Twelve prompts, some of them near each other, of three outputs that are partly alike."""
    folder = tmp_path_factory.mktemp("overlapping")
    generator = np.random.default_rng(5)
    prompt = np.repeat(np.arange(12), 3)
    arrays = {
        "outputs": generator.normal(size=(36, 2)).astype(np.float32),
        "prompts": generator.normal(size=(12, 2)).astype(np.float32)[prompt],
        "prompt": prompt,
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    flags = [f"--{name}={folder / f'{name}.npy'}" for name in arrays]
    widths = ("--output_bandwidth=0.8", "--prompt_bandwidth=0.7", "--scales=1", "--draws=2")
    return execute(STUDY, folder, *flags, *widths), arrays


def test_scores_are_those_of_the_oracle(overlapping):
    run, arrays = overlapping
    gram_x, gram_t = (
        gaussian_gram(arrays[name], width) for name, width in (("outputs", 0.8), ("prompts", 0.7))
    )
    expected = scores(gram_x, gram_t, order=2)["conditional"]
    found, other = designs.curves(run, "1", designs.BLENDED)
    assert found.all_prompts[-1] == pytest.approx(expected, rel=1e-5)
    assert other.all_prompts.size == 0
    # Fewer prompts at more outputs a prompt: n stays.
    assert found.sizes.tolist() == [12, 12, 12]


def test_told_apart_the_scores_are_means_over_prompts(overlapping):
    """Geometric at order 1 and harmonic at order 2, both below the mean that is their limit."""
    run, arrays = overlapping
    own = [
        scores(gaussian_gram(x, 0.8), np.ones((3, 3)), order=order)["vendi"]
        for order in (1, 2)
        for x in arrays["outputs"].reshape(12, 3, 2)
    ]
    vendi, rke = np.reshape(own, (2, 12))
    found = designs.curves(run, "1", designs.APART)[0]
    assert found.all_prompts[-1] == pytest.approx(12 / np.sum(1 / rke), rel=1e-5)
    np.testing.assert_allclose(found.mean_within[:, -1], [vendi.mean(), rke.mean()], rtol=1e-5)
    assert found.all_prompts[-1] < found.mean_within[1, -1]


def test_draws_differ_and_apart_is_not_blended(overlapping):
    run, _ = overlapping
    one, other = designs.curves(run, "1", designs.APART)
    assert (one.conditional != other.conditional).any()
    blended = designs.curves(run, "1", designs.BLENDED)[0]
    assert blended.all_prompts[-1] != pytest.approx(one.all_prompts[-1], rel=1e-3)
    assert run.settings.apart < run.settings.bandwidths["1"].prompts
    assert (blended.errors[1:] > 0).all()
    assert blended.alike.size == 0  # There are no models.


def test_models_come_in_one_order_for_all_prompts():
    prompt = np.tile(np.arange(6), 3)
    models = np.repeat(["a", "b", "c"], 6)
    labels = {"models": models, "prompt": prompt}
    pairs = PairedEmbeddings("own", prompt[:, None], prompt[:, None], "", labels)
    chosen = designs.in_random_order(pairs, prompt, np.random.default_rng(0))
    assert all(len(set(column)) == 1 for column in models[chosen].T)
    assert sorted(prompt[chosen][:, 0].tolist()) == [0, 1, 2, 3, 4, 5]
    alone = dataclasses.replace(pairs, labels={"prompt": prompt})
    mixed = designs.in_random_order(alone, prompt, np.random.default_rng(0))
    assert any(len(set(column)) > 1 for column in models[mixed].T)


def test_models_of_one_house_are_alike(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)
    outputs = np.load(tmp_path / "x.npy").reshape(12, 4, 1)
    outputs[:, 1] = outputs[:, 0]
    np.save(tmp_path / "x.npy", outputs.reshape(48, 1))
    run = execute(STUDY, tmp_path, *flags)
    alike = designs.curves(run, "1", designs.APART)[0].alike
    assert alike[0, 1] == pytest.approx(1)
    assert np.all(alike[0, 2:] < 0.01)
    found = designs.curves(run, "1", designs.APART)[0]
    assert found.all_prompts[-1] == pytest.approx(16 / 6, rel=1e-3)


def test_the_cosine_kernel_tells_no_prompts_apart(tmp_path):
    own = small_run(STUDY, tmp_path, 0)[:4]
    for name in ("x", "t"):
        values = 1 + np.load(tmp_path / f"{name}.npy")
        np.save(tmp_path / f"{name}.npy", np.concatenate([values, values[::-1] ** 2], axis=1))
    run = execute(STUDY, tmp_path, *own, "--kernel=cosine", "--draws=1", "--most=2")
    assert list(run.results) == [designs.Cell("cosine", designs.BLENDED, 0)]
    assert np.isfinite(run.results[designs.Cell("cosine", designs.BLENDED, 0)].errors).all()


def test_the_number_of_outputs_is_what_enough_prompts_have():
    assert designs._most(np.array([9] * 100 + [5] * 900)) == 9
    assert designs._most(np.array([9] * 99 + [5] * 901)) == 5
    assert designs._most(np.array([4, 4, 2, 1])) == 4


def test_the_table_and_the_caption(finished):
    columns = [list(column.cells) for column in designs.table(finished).columns]
    row = columns[2].index("Conditional-RKE")
    assert columns[4][row] == "4.000"
    assert columns[7][row] == "100%"
    figures = designs.draw([finished])
    assert set(figures) == {"designs", "designs_pairs"}
    caption = figures["designs"]._supxlabel.get_text().replace("\n", " ")
    for part in ("12 prompts with 4 outputs", "n = 12", "seed 0", "2 random choices", "given"):
        assert part in caption
    assert math.isclose(finished.settings.apart, 10 / 6, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--most=5",), "--most=5: 0 prompts have so many outputs"),
        (("--most=1",), "--most"),
        (("--draws=0",), "--draws"),
        (("--rows=7",), "--rows: expected a number between 8"),
        (("--rows=13",), "the 12 prompts that have 4 outputs, received 13"),
        (("--kernel=cosine", "--scales=1"), "--scales means nothing with --kernel=cosine"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    own = small_run(STUDY, tmp_path, 0)[:4]
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *own, *flags)


def test_labels_and_embeddings_agree_on_the_prompts(tmp_path):
    own = small_run(STUDY, tmp_path, 0)
    prompt = np.load(tmp_path / "prompt.npy")
    np.save(tmp_path / "prompt.npy", np.where(prompt == 3, 4, prompt))
    with pytest.raises(ValueError, match="11 labels for 12 different rows of the prompts"):
        execute(STUDY, tmp_path, *own)
