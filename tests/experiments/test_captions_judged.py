"""The study of judged captions: scores and measures against oracles."""

import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from small import flags, widths, write

import condvendi_jax as cv
from experiments.calibration import captions_judged
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Ten photographs whose judged captions are near them, and changed captions far off."""
    generator = np.random.default_rng(seed)
    photographs = generator.normal(size=(60, 4))
    turn = generator.normal(size=(4, 3))
    captions = photographs @ turn + 0.1 * generator.normal(size=(60, 3))
    path = folder / "references.npz"
    np.savez(
        path, outputs=photographs, prompts=captions, description="d", label_photograph=np.arange(60)
    )
    # Of each task three captions a photograph: its own, nearly its own, and another's.
    photograph, rank = (np.tile(of, 3) for of in np.divmod(np.arange(30), 3))
    whose = np.where(rank == 0, (photograph + 5) % 10, photograph)
    outputs = captions[whose] + 0.02 * (rank == 1)[:, None]
    task = np.repeat(["expert", "crowd", "color"], 30)
    numbers = {"people": rank.astype(float), "photograph": photograph, "caption": 3 * whose + rank}
    files = write(folder, outputs=outputs, prompts=photographs[photograph], task=task, **numbers)
    return [*files, *widths(1), *flags(references=path, ridges="1e-4,1e-2", resamples=20)]


finished = studies.finished(captions_judged.CaptionsJudged)


def pairs_of(n, seed, **labels):
    rng = np.random.default_rng(seed)
    x, t = (rng.normal(size=(n, d)).astype("f4") for d in (3, 2))
    return PairedEmbeddings("own", x, t, "", labels)


def test_judged_photographs_are_not_fitted_to(finished):
    assert finished.study.fitted == 50
    found = finished.found.squeeze("fitted_to")
    value = found.value.sel(end="value")
    assert found.n.sel(measure=["expert", "color"]).values.tolist() == [30, 10]
    assert (value.sel(score="MID") != value.sel(score="MID, ridge 0.01"))[0]
    np.testing.assert_allclose(found.ahead.sel(end="value"), value.sel(score="MID") - value)


def test_scores_are_a_ridge_regression_s_cosine_and_what_a_pair_adds_to_information():
    numbers = np.arange(6)
    pairs, fit = pairs_of(6, 0, photograph=numbers, caption=numbers[::-1]), pairs_of(40, 1)
    (t, x), (t_new, x_new) = ((of.prompts.astype(float), of.outputs) for of in (fit, pairs))
    rows = np.concatenate([t - t.mean(0), np.sqrt(40 * 0.3) * np.eye(2)])
    linear = np.linalg.lstsq(rows, np.concatenate([x - x.mean(0), np.zeros((2, 3))]))[0]
    one, other = (t_new - t.mean(0)) @ linear, x_new - x.mean(0)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    found = captions_judged.mapped_cosine(pairs, fit, 0.3)
    np.testing.assert_allclose(found, np.sum(one * other, axis=1) / norms, rtol=1e-4)
    kernels = {"output_kernel": cv.Gaussian(1.5), "prompt_kernel": cv.Gaussian(0.8)}
    both = (np.concatenate([x_new, x]).astype(float), 1.5), (np.concatenate([t_new, t]), 0.8)
    k_x, k_t = (gaussian_gram(of, width)[:6, 6:] ** 2 for of, width in both)
    expected = np.log(np.mean(k_x * k_t, 1) / np.mean(k_x, 1) / np.mean(k_t, 1))
    found = captions_judged.kernel_information(pairs, fit, kernels)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_measures_are_tau_and_how_often_a_changed_caption_scores_less():
    labels = {
        "people": [1, 2, 2, 3, 1, 2, 0, 1, 2, 0],
        "photograph": [0, 0, 1, 1, 5, 5, 5, 4, 4, 4],
    }
    labels = {role: np.array(values) for role, values in labels.items()}
    pairs = pairs_of(10, 0, task=np.array(["expert"] * 4 + ["color"] * 6), **labels)
    scores = np.array([[4.0, 3, 2, 1, 2, 3, 1, 1, 3, 2], [1, 3, 1, 2, 9, 1, 5, 9, 9, 9]])
    found = captions_judged.measures(scores, pairs)
    measure, groups = found["expert"]
    # Of six pairs people tie one. Five are discordant; or three concordant, one not, and one tied.
    np.testing.assert_allclose(measure(np.arange(4)), 2 * 3 * np.array([-5, 3 - 1]) / (16 * 2))
    assert groups.tolist() == [0, 0, 1, 1]
    (pair, groups), (lowest, _) = (found[name] for name in ("color", "color, lowest of three"))
    assert groups.tolist() == [4, 5]
    assert pair(np.arange(2)).tolist() == [1, 0] and lowest(np.arange(2)).tolist() == [0.5, 0]
