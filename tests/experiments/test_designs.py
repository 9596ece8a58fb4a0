"""The count of designs a prompt: where it is known, where it is not reached, and why."""

import numpy as np
import pytest
import studies
from oracles import gaussian_gram, scores
from small import flags, widths, write, write_line
from studies import execute

from experiments.calibration import designs
from experiments.calibration.designs import APART, BLENDED, NAMES, RKE, UNBIASED, VENDI, WHOLE
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Twelve prompts of four outputs that have nothing in common, under a narrow bandwidth."""
    models = [f"model {m}" for m in np.tile(np.arange(4), 12)]
    outputs = np.random.default_rng(seed).permutation(48)
    files = write_line(folder, outputs, np.repeat(np.arange(12), 4), models)
    return [*files, *widths(0.24, 2.4), *flags(draws=2, scales="0.9,1")]


finished = studies.finished(designs.Designs)

test_bad_flags_are_refused = studies.refuses(
    designs.Designs, ("--most=5", "--most=5: 0 prompts have so many outputs, expected at least 10")
)


def test_outputs_that_have_nothing_in_common_are_counted(finished):
    study, found = finished.study, finished.found
    assert study.most == 4 and study.apart == pytest.approx(10 / 6)
    for curve in (*NAMES, VENDI, RKE):
        told = found.value.sel(curve=curve) / found.k
        np.testing.assert_allclose(told, 1, rtol=2e-3)
    assert (found.n == 12).all()
    np.testing.assert_allclose(found.alike - np.eye(4), 0, atol=1e-3)
    # Unlike outputs are any number; a single one of each prompt says nothing.
    unbiased = found.value.sel(curve=UNBIASED, prompts=APART)
    assert unbiased.sel(k=1).isnull().all() and (unbiased.sel(k=[2, 3, 4]) > 100).all()


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory):
    """Twelve prompts, some of them near each other, of three outputs that are partly alike."""
    folder = tmp_path_factory.mktemp("overlapping")
    generator = np.random.default_rng(5)
    outputs, prompts = (generator.normal(size=(n, 2)).astype(np.float32) for n in (36, 12))
    prompt = np.repeat(np.arange(12), 3)
    arrays = {"outputs": outputs, "prompts": prompts[prompt], "prompt": prompt}
    widths = ("--output_bandwidth=0.8", "--prompt_bandwidth=0.7", "--scales=1", "--draws=2")
    return execute(designs.Designs, folder, *write(folder, **arrays), *widths), arrays


def test_blended_the_score_is_the_oracles_and_draws_differ(overlapping):
    run, arrays = overlapping
    grams = (gaussian_gram(arrays[of], width) for of, width in (("outputs", 0.8), ("prompts", 0.7)))
    expected = scores(*grams, order=2)["conditional"]
    whole = run.found.value.sel(prompts=BLENDED, curve=WHOLE, k=3).values[0]
    assert whole[0] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(whole[1])  # In the first draw only.
    assert (run.found.n == 12).all()  # Fewer prompts at more outputs a prompt.
    drawn = run.found.sel(curve=NAMES[0], prompts=APART, k=[2, 3]).value
    assert (drawn.sel(draw=0) != drawn.sel(draw=1)).any()
    assert (run.found.error.sel(curve=NAMES[1], k=[2, 3]) > 0).all()


def test_told_apart_the_scores_are_means_over_prompts(overlapping):
    """Geometric at order 1 and harmonic at order 2, both below the mean that is their limit."""
    run, arrays = overlapping
    grams = [gaussian_gram(x, 0.8) for x in arrays["outputs"].reshape(12, 3, 2)]
    vendi, rke = (
        np.array([scores(g, np.ones((3, 3)), order=order)["vendi"] for g in grams])
        for order in (1, 2)
    )
    told = run.found.value.sel(scale=1, prompts=APART, draw=0, k=3, curve=[WHOLE, VENDI, RKE])
    expected = [12 / np.sum(1 / rke), vendi.mean(), rke.mean()]
    np.testing.assert_allclose(told, expected, rtol=1e-5)
    assert expected[0] < expected[2]
    plain, unbiased = run.found.value.sel(prompts=APART, k=3, curve=[NAMES[1], UNBIASED]).T
    np.testing.assert_allclose(1 / plain, 1 / 3 + 2 / 3 / unbiased, rtol=1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_models_come_in_one_order_for_all_prompts_where_they_are_known(known):
    prompt, models = np.tile(np.arange(6), 3), np.repeat(["a", "b", "c"], 6)
    labels = {"prompt": prompt} | ({"models": models} if known else {})
    pairs = PairedEmbeddings("own", prompt[:, None], prompt[:, None], "", labels)
    chosen = designs.in_random_order(pairs, np.random.default_rng(0))
    assert sorted(prompt[chosen][:, 0].tolist()) == [0, 1, 2, 3, 4, 5]
    assert all(len(set(column)) == 1 for column in models[chosen].T) == known


@pytest.mark.parametrize(
    ("counts", "most"), [([9] * 100 + [5] * 900, 9), ([9] * 99 + [5] * 901, 5), ([4, 4, 2, 1], 4)]
)
def test_the_number_of_outputs_is_what_enough_prompts_have(counts, most):
    assert designs.most_of(np.array(counts)) == most
