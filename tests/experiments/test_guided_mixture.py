"""Guided sampling where the law is known: it raises the true conditional diversity, at a price."""

import types

import jax.numpy as jnp
import numpy as np
import pytest
import studies
import xarray as xr
from oracles import entropy, gaussian_gram
from scipy import stats
from small import flags, population_of, widths

import condvendi_jax as cv
from experiments.generators.mixture_diffusion import MIXTURES, mixture
from experiments.guidance import guided_mixture
from experiments.guidance.guided_mixture import KINDS, LAW, PLAIN, SCORES, GuidedMixture, measured
from experiments.lab import runner, store, tables

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Prompts with components of their own, far apart."""
    words = flags(mixtures="apart", kinds="rke,conditional_rke", scales=1, weights="1,30")
    sizes = flags(until=0.5, seeds=2, batches=4, window=16, steps=8, seed=seed)
    return [*words, *sizes, *widths(3, 0.5)]


KERNELS = {"output_kernel": cv.Gaussian(1.5), "prompt_kernel": cv.Gaussian(0.7)}


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """All prompts share six components; five seeds."""
    flags = ["--mixtures=shared", "--kinds=conditional_vendi,rke,conditional_rke", "--scales=1"]
    flags += ["--weights=1,3,10,30", "--until=0.5", "--batches=8"]
    return studies.execute(GuidedMixture, tmp_path_factory.mktemp("guided"), *flags)


def score(run, kind, name, weight=300.0):
    """A score of every seed, of a guide at the largest weight up to the given one."""
    place = {"kind": kind, "until": 0.5 if kind in KINDS else 0.0}
    found = run.found.value.sel(mixture="shared", scale=1, score=name).sel(place)
    return found.dropna("weight").sel(weight=slice(0, weight)).isel(weight=-1).values


def is_greater(first, second):
    """Whether paired differences are above 0 beyond their error."""
    return stats.ttest_rel(first, second, alternative="greater").pvalue < 0.01


@pytest.mark.parametrize("kind", ["conditional_rke", "conditional_vendi"])
@pytest.mark.parametrize("name", ["modes", "conditional_rke", "conditional_vendi"])
def test_conditional_guidance_raises_the_true_conditional_diversity(guided, kind, name):
    found = score(guided, kind, name)
    assert is_greater(found, score(guided, PLAIN, name))
    assert is_greater(found, score(guided, kind, name, weight=1))
    # Above the law itself: what is gained is not what the sampler had lost.
    assert is_greater(found, score(guided, LAW, name))


@pytest.mark.parametrize("mixture, gains", [("shared", True), ("apart", False)])
def test_conditional_guides_of_the_committed_run_gain_where_prompts_share(mixture, gains):
    """Other prompts' samples fill the components already: a marginal score sees nothing missing."""
    committed = store.read_run(runner.COMMITTED / "guided_mixture", GuidedMixture)
    reached = committed.study.reached(committed).sel(scale=1, until=0.5, mixture=mixture)
    found = guided_mixture.differences(reached).sel(score="modes")
    for pair in ("Conditional-Vendi less Vendi", "Conditional-RKE less RKE"):
        assert is_greater(found.sel(pair=pair), np.full(5, 0.5)) == gains


def test_guidance_moves_the_law_and_more_so_at_a_larger_weight(guided):
    for kind in guided.study.kinds:
        for name in ("energy", "variation", "off"):
            assert is_greater(score(guided, kind, name), score(guided, kind, name, weight=1))
    # Without it the sampler cannot be told from the law.
    differences = score(guided, PLAIN, "energy") - score(guided, LAW, "energy")
    assert abs(differences.mean()) < 4 * differences.std(ddof=1) / np.sqrt(5) + 0.01


def test_samples_of_the_law_have_its_diversity_in_closed_form(guided):
    of_law = MIXTURES["shared"]()
    kernels = guided.study.of_mixtures["shared"].axis[0].kernels
    modes = 1 / jnp.mean(jnp.sum(jnp.square(of_law.weights), axis=1))
    rke = population_of(of_law).conditional_rke(**kernels)
    for name, value in (("modes", modes), ("conditional_rke", rke)):
        found = score(guided, LAW, name)
        assert abs(found.mean() - float(value)) < 4 * found.std(ddof=1) / np.sqrt(found.size)


def test_measures_by_hand():
    """Two prompts: one with three samples on one component and one off it, one with two and two."""
    of_law = mixture(np.array([[0, 0], [10, 0], [0, 30]]), 1.0, np.array([[0.5, 0.5, 0]] * 2))
    points = np.array(
        [[[0, 0], [0, 1], [1, 0], [0, 30]], [[0, 0], [10, 0], [0, 1], [10, 1]]], np.float32
    )
    found = dict(zip(SCORES, measured(of_law, points, KERNELS), strict=True))
    assert found["modes"] == pytest.approx((6 + 12) / (6 + 4))
    assert found["off"] == pytest.approx(1 / 8)
    # Shares (3/4, 0) and 1/4 off; shares (1/2, 1/2).
    assert found["variation"] == pytest.approx(np.mean([(0.25 + 0.5 + 0.25) / 2, 0]))
    of_x = gaussian_gram(points.reshape(-1, 2), 1.5)
    of_t = gaussian_gram(np.repeat(np.eye(2), 4, axis=0), 0.7)
    assert found["vendi"] == pytest.approx(np.exp(entropy(of_x)), rel=1e-4)
    expected = np.exp(entropy(of_x * of_t) - entropy(of_t))
    assert found["conditional_vendi"] == pytest.approx(expected, rel=1e-4)
    # Squares of pairs of different samples: 12 of each prompt, 16 across.
    squares = of_x**2 - np.eye(8)
    within = (squares[:4, :4].sum() + squares[4:, 4:].sum()) / 12
    across, alike = 2 * squares[:4, 4:].mean(), of_t[0, 4] ** 2
    assert found["rke"] == pytest.approx(4 / (within + across), rel=1e-4)
    expected = 2 * (1 + alike) / (within + alike * across)
    assert found["conditional_rke"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("off", "weight"),
    [((0.01, 0.02, 0.08), 1), ((0.01, 0.02, 0.04), 30), ((0.01, 0.06, 0.07), 0), ((0.5,) * 3, 0)],
)
def test_guides_are_compared_at_the_largest_weight_within_the_limit(off, weight):
    """On the mean over the seeds; without a guide where none is within it."""
    labels = {"kind": [PLAIN, "rke"], "until": [0.0, 0.5], "weight": [0.0, 1.0, 30.0]}
    labels |= {"seed": [0, 1], "score": ["off", "modes"]}
    values = xr.DataArray(np.nan, labels, list(labels))
    shares = np.add.outer(off, [-0.02, 0.02])
    for place, (kind, until) in enumerate([(PLAIN, 0.0), ("rke", 0.5), ("rke", 0.5)]):
        at = {"kind": kind, "until": until, "weight": labels["weight"][place]}
        values.loc[at] = np.stack([shares[place], [place, place]], axis=1)
    run = types.SimpleNamespace(found=xr.Dataset({"value": values}))
    found = GuidedMixture(limit=0.05).reached(run).sel(kind="RKE", until=0.5)
    np.testing.assert_allclose(found.sel(score="weight"), weight)
    np.testing.assert_allclose(found.sel(score="modes"), labels["weight"].index(weight))


def test_means_over_seeds_have_intervals_by_student():
    """No number where a seed has none."""
    values = xr.DataArray([[1.0, 2.0, 6.0], [1.0, np.nan, 2.0]], dims=("row", "seed"))
    found = tables.t_intervals(values, "seed")
    half = stats.t(2, 0, np.sqrt(7 / 3)).interval(0.95)[1]
    np.testing.assert_allclose([found.value, found.error], [[3, np.nan], [half, np.nan]])


test_bad_flags_are_refused = studies.refuses(
    GuidedMixture, ("--until=0.5,2", "--until: expected parts up to 1, received 2")
)
