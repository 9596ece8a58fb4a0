"""Mixtures whose scores are known."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest
import studies
from gaussian_mixtures import GaussianMixture
from oracles import gaussian_gram, scores
from small import flags
from studies import execute

import condvendi_jax as cv
from experiments.conditional_vendi.gmm_toy import SCORES, GmmToy, columns, draw_pairs, match, moves
from experiments.lab import runner

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Components so far apart and so narrow that each is one mode."""
    return flags(
        n=24, repeats=2, prompt_modes="1,2,4", output_modes="2,4,6", apart=40, spreads=1e-3
    )


finished = studies.finished(GmmToy)
test_bad_flags_are_refused = studies.refuses(
    GmmToy, ("--n=1", "--n: expected at least one pair a mode")
)


def test_scores_are_those_of_the_pairs_of_the_stated_geometry(tmp_path):
    flags = ("--prompt_modes=2", "--output_modes=3", "--n=30", "--bandwidth=0.5", "--spreads=0.3")
    found = execute(GmmToy, tmp_path, *flags, "--apart=2", "--repeats=2", "--seed=3").found
    found = found.sel(prompts=2, outputs=3, spread=0.3)
    cell: Any = "2-3-0.3"
    key = jax.random.split(runner.cell_key(3, cell), 2)[1]
    grams = [gaussian_gram(of, 0.5) for of in draw_pairs((3, 2), 2.0, 0.3, key, 30)[0]]
    known = [scores(*grams, order=order) for order in (1, 2)]
    expected = [of[score] for of in known for score in ("conditional", "information")]
    np.testing.assert_allclose(found.value.sel(repeat=1), expected, rtol=1e-4)
    assert found.point.shape == (30, 2, 2)
    assert set(found["mode"].sel(role="outputs").values) == {0, 1, 2}


def test_modes_are_counted_and_trends_said(finished):
    conditional = GmmToy.facts([finished])["by"].value.sel(score=SCORES[0], spread=1e-3)
    np.testing.assert_allclose(
        conditional.sel(varied="prompts").dropna("modes"), [4, 2, 1], rtol=0.01
    )
    _, trends = finished.study.tables(finished)
    assert [*trends.columns[3].cells][0] == "4.00 to 1.00"
    assert moves(np.array([1.0, 3.0, 2.0])) == "1.00 to 2.00, up and down"


def test_the_matching_is_the_least_of_all():
    generator = np.random.default_rng(0)
    for _ in range(5):
        outputs, prompts = generator.normal(size=(2, 6, 2))
        costs = np.linalg.norm(prompts[:, None] - outputs[None], axis=-1)
        totals = {
            order: costs[np.arange(6), order].sum() for order in itertools.permutations(range(6))
        }
        assert tuple(match(outputs, prompts)) == min(totals, key=totals.__getitem__)


def test_centres_are_in_two_columns_and_a_single_one_between_them():
    np.testing.assert_array_equal(columns(1.5, 2), [[-1.5, 0], [1.5, 0]])
    np.testing.assert_array_equal(columns(1.5, 3), [[-1.5, -1.5], [-1.5, 1.5], [1.5, 0]])
    np.testing.assert_array_equal(columns(1.5, 1), [[0, 0]])


def test_pairs_keep_every_point_and_its_component():
    key = jax.random.key(0)
    points, kinds = draw_pairs((4, 2), 4.0, 0.2, key, 800)
    assert [np.bincount(of).tolist() for of in kinds] == [[200] * 4, [400] * 2]
    noise = points[0] - columns(2.0, 4)[kinds[0]]
    np.testing.assert_allclose(np.cov(noise.T), 0.04 * np.eye(2), atol=0.01)
    moved, others = draw_pairs((4, 2), 8.0, 0.2, key, 800)
    other = moved[0] - columns(4.0, 4)[others[0]]
    # The noise is the key's.
    np.testing.assert_allclose(np.sort(noise[:, 0]), np.sort(other[:, 0]), atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_gaussian_mixture_against_samples():
    """Closed-form RKE and Conditional-RKE against the U-statistic of a sample."""
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(2, 3, 3)) * 0.5
    mixture = GaussianMixture(
        rng.normal(size=(2, 3)), factors @ factors.transpose(0, 2, 1), [0.3, 0.7], d_x=2
    )
    n = 3000
    outputs, prompts = (np.asarray(part) for part in mixture.sample(jax.random.key(0), n))
    off = ~np.eye(n, dtype=bool)
    kx, kt = gaussian_gram(outputs, 0.8)[off] ** 2, gaussian_gram(prompts, 1.1)[off] ** 2
    exact = mixture.rke(kernel=cv.Gaussian(0.8))
    np.testing.assert_allclose(exact, 1 / kx.mean(), rtol=0.05)
    conditional = mixture.conditional_rke(
        output_kernel=cv.Gaussian(0.8), prompt_kernel=cv.Gaussian(1.1)
    )
    np.testing.assert_allclose(conditional, kt.mean() / (kx * kt).mean(), rtol=0.05)
