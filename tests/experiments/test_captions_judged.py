"""The study of judged captions: scores and measures against oracles."""

import functools

import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from scipy import stats
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
    # Pairs of which people choose the longer, and the other one is nearer to references.
    names = ["task", "people", "photograph", "metric_length", "metric_cider", "metric_reference"]
    labels = [["HC"] * 8, *np.tile([[3, 1], [0, 0], [5, 2], [1, 1], [0, 1]], 4)]
    labels[2] = np.arange(8) // 2
    pairs = folder / "pairs.npz"
    of = {f"label_{name}": values for name, values in zip(names, labels, strict=True)}
    np.savez(pairs, outputs=np.eye(8), prompts=np.eye(8), description="d", **of)
    # Of each task three captions a photograph: its own, nearly its own, and another's.
    photograph, rank = (np.tile(of, 3) for of in np.divmod(np.arange(30), 3))
    whose = np.where(rank == 0, (photograph + 5) % 10, photograph)
    outputs = captions[whose] + 0.02 * (rank == 1)[:, None]
    task = np.repeat(["expert", "crowd", "color"], 30)
    numbers = {"people": rank.astype(float), "photograph": photograph, "caption": 3 * whose + rank}
    files = write(folder, outputs=outputs, prompts=photographs[photograph], task=task, **numbers)
    return [*files, *widths(1), *flags(references=path, pairs=pairs, ridges="1e-4,1e-2")]


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
    # Fewer references, another fit; and its draws widen the intervals.
    assert found.fewer.sizes["share"] == 4
    chosen = found.chosen.sel(category="HC", end="value").to_series().to_dict()
    assert chosen == {"length": 1, "cider": 0.5, "reference": 0}


def judged_of(pairs):
    return captions_judged.Judged.of_pairs(pairs)


def test_scores_are_mid_a_ridge_regression_s_cosine_and_what_a_pair_adds_to_information():
    numbers = np.arange(6)
    pairs, fit = pairs_of(6, 0, photograph=numbers, caption=numbers[::-1]), pairs_of(40, 1)
    (t, x), (t_new, x_new) = ((of.prompts.astype(float), of.outputs) for of in (fit, pairs))
    rows = np.concatenate([t - t.mean(0), np.sqrt(40 * 0.3) * np.eye(2)])
    linear = np.linalg.lstsq(rows, np.concatenate([x - x.mean(0), np.zeros((2, 3))]))[0]
    one, other = (t_new - t.mean(0)) @ linear, x_new - x.mean(0)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    mid, found = captions_judged.gaussian_scores(judged_of(pairs), fit.prompts, fit.outputs, 0.3)
    np.testing.assert_allclose(found, np.sum(one * other, axis=1) / norms, rtol=1e-4)
    references = {"reference_outputs": fit.outputs, "reference_prompts": fit.prompts}
    expected = cv.baselines.pointwise_mutual_information(
        pairs.outputs, pairs.prompts, ridge=0.3, **references
    )
    np.testing.assert_allclose(mid, expected, rtol=1e-3, atol=1e-5)
    kernels = {"output_kernel": cv.Gaussian(1.5), "prompt_kernel": cv.Gaussian(0.8)}
    both = (np.concatenate([x_new, x]).astype(float), 1.5), (np.concatenate([t_new, t]), 0.8)
    k_x, k_t = (gaussian_gram(of, width)[:6, 6:] ** 2 for of, width in both)
    expected = np.log(np.mean(k_x * k_t, 1) / np.mean(k_x, 1) / np.mean(k_t, 1))
    found = captions_judged.kernel_information(judged_of(pairs), fit, kernels)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_measures_are_tau_and_how_often_a_changed_caption_scores_less():
    labels = {
        "people": [1, 2, 2, 3, 1, 2, 0, 1, 2, 0],
        "photograph": [0, 0, 1, 1, 5, 5, 5, 4, 4, 4],
        "task": ["expert"] * 4 + ["color"] * 6,
    }
    labels = {role: np.array(values) for role, values in labels.items()}
    scores = np.array([[4.0, 3, 2, 1, 2, 3, 1, 1, 3, 2], [1, 3, 1, 2, 9, 1, 5, 9, 9, 9]])
    found = captions_judged.measures([*scores], labels)
    # Of six pairs people tie one. Five are discordant; or three concordant, one not, and one tied.
    np.testing.assert_allclose(found["expert"][0], 2 * 3 * np.array([-5, 3 - 1]) / (16 * 2))
    (pair, influence), (lowest, _) = (found[name] for name in ("color", "color, lowest of three"))
    assert pair.tolist() == [1, 0] and lowest.tolist() == [0.5, 0] and influence.shape == (2, 2)
    # The jackknife of a share: sqrt(p (1 - p) / (n - 1)).
    value, low, high = captions_judged.interval(*found["color, lowest of three"])[0]
    assert (high - low) / 2 == pytest.approx(1.96 * 0.5, rel=1e-3) and value == 0.5


@pytest.mark.parametrize("variant", ["b", "c"])
def test_tau_is_scipy_s_and_its_influences_are_those_of_photographs_left_out(variant):
    rng = np.random.default_rng(0)
    people, groups = rng.integers(0, 4, 400), rng.integers(0, 80, 400)
    scores = np.round(people + 2 * rng.normal(size=(2, 400)), 1)
    values, influences = captions_judged.taus(scores, people, groups, variant)
    for score, value, influence in zip(scores, values, influences, strict=True):
        known = functools.partial(stats.kendalltau, variant=variant)
        assert value == pytest.approx(known(score, people)[0])
        left = [known(score[groups != g], people[groups != g])[0] for g in np.unique(groups)]
        np.testing.assert_allclose(-influence, left - value, atol=1e-3)
        assert np.corrcoef(influence, left)[0, 1] < -0.999
