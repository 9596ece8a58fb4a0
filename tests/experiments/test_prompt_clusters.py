"""The study of prompt clusters on prompts whose clusters, and what k does to them, are known."""

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from small import widths, write
from studies import execute

from experiments.conditional_vendi import prompt_clusters
from experiments.conditional_vendi.prompt_clusters import PromptClusters

pytestmark = pytest.mark.slow

GROUPS, MEMBERS = 4, 5


def small(folder, seed):
    """Four groups of five prompts that the kernel cannot tell apart, an output each of its own.

    Of two models; a third one has too few of the prompts.
    """
    n = GROUPS * MEMBERS
    prompts = np.stack([10.0 * np.repeat(np.arange(GROUPS), MEMBERS), 1e-3 * np.arange(n)], 1)
    # Well apart under a bandwidth of 0.35, and not so far that the kernel would say nothing.
    outputs = np.arange(n)[:, None] * np.ones(3)
    rows = np.r_[np.tile(np.arange(n), 2), :3]
    names = [f"model {i}" for i in np.repeat(np.arange(2), n)] + ["small"] * 3
    flags = write(folder, outputs=outputs[rows], prompts=prompts[rows], models=names)
    return [*flags, *widths(0.35, 1), "--scales=1", "--counts=2,4,20", "--repeats=2"]


run = studies.finished(PromptClusters)
test_bad_flags_are_refused = studies.refuses(
    PromptClusters, ("--counts=2,30", "at most the 20 prompts")
)


def test_scores_against_k_are_those_of_the_population(run):
    """Up to the true clusters the answer is a function of them: Conditional is 1, Information k.

    Beyond, Information stays and Conditional rises to the five outputs of each cluster.
    """
    study, found = run.study, run.found.isel(scale=0)
    assert (study.models, study.left_out) == (("model 0", "model 1"), ("small",))
    value = found.value.transpose("k", ...)
    for name in ("Vendi", "RKE"):
        conditional, information = (
            value.sel(score=of + name) for of in ("Conditional-", "Information-")
        )
        np.testing.assert_allclose(conditional.mean(["model", "repeat"]), [1, 1, MEMBERS], 1e-3)
        np.testing.assert_allclose(information.sel(k=[4, 20]), GROUPS, rtol=1e-3)
        assert (information.sel(k=2) <= 2.001).all()
        np.testing.assert_allclose(value.sel(score=name), conditional * information, rtol=1e-4)
    np.testing.assert_allclose(found.agreement.sel(k=[4, 20]), 1)


def test_a_prompt_gets_the_output_of_the_member_nearest_to_its_centre():
    prompts = np.array([[0.0], [1.0], [5.0], [9.0], [10.0], [20.0]])
    found = prompt_clusters.answers(prompts, np.array([0, 0, 1, 0, 1, 1]))
    # Centres 10/3 and 35/3.
    assert found.tolist() == [1, 1, 4, 1, 4, 4]


def test_at_k_of_all_prompts_the_scores_are_the_oracles(tmp_path):
    generator = np.random.default_rng(4)
    outputs, prompts = generator.normal(size=(10, 3)), generator.normal(size=(10, 4))
    flags = [*write(tmp_path, outputs=outputs, prompts=prompts), *widths(0.9, 0.8)]
    run = execute(PromptClusters, tmp_path, *flags, "--scales=0.5,1", "--repeats=2")
    assert run.study.counts == (2, 3, 4, 5, 7, 10)
    for scale in (0.5, 1):
        grams = gaussian_gram(outputs, scale * 0.9), gaussian_gram(prompts, scale * 0.8)
        expected = [value for order in (1, 2) for value in scores(*grams, order=order).values()]
        got = run.found.value.sel(scale=scale, k=10).isel(model=0, repeat=1)
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_models_are_shown_by_their_mean_and_range():
    values = xr.DataArray([[1.0, 2, 3], [2, 2, 1]], {"model": [0, 1], "k": [2, 4, 8]})
    found = prompt_clusters.over_models(values)
    np.testing.assert_allclose(found.value, [1.5, 2, 2])
    np.testing.assert_allclose(found.ends, [[1, 2, 1], [2, 2, 3]])
