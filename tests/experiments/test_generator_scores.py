"""Scores of generators: against definitions, and on generators whose faults are known."""

import jax
import numpy as np
import pytest
import studies
from scipy import linalg
from small import flags

from experiments.generators import mixture_gan
from experiments.rke import generator_scores
from experiments.rke.generator_scores import PRINTED, REAL, SCORES, GeneratorScores

pytestmark = pytest.mark.slow


def small(folder, seed):
    """The shipped GANs of the ring, few samples."""
    return flags(sources="ring", samples=60, repeats=2, seed=seed)


finished = studies.finished(GeneratorScores)


def test_the_inception_score_by_hand():
    sure = 50 * np.eye(4)[[0, 1, 1, 2]]
    shares = np.array([1, 2, 1]) / 4
    expected = np.exp(-np.sum(shares * np.log(shares)))
    assert generator_scores.inception_score(sure) == pytest.approx(expected)
    assert generator_scores.inception_score(np.zeros((5, 4))) == pytest.approx(1)


def test_the_frechet_distance_is_that_of_a_matrix_square_root():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(40, 3)), 2 * generator.normal(size=(30, 3)) + 1
    covariances = np.cov(x.T), np.cov(y.T)
    root = linalg.sqrtm(covariances[0] @ covariances[1]).real
    means = np.sum((x.mean(0) - y.mean(0)) ** 2)
    expected = means + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert generator_scores.frechet(x, y) == pytest.approx(expected)


def test_the_data_have_their_modes_and_a_collapsed_gan_has_one(finished, monkeypatch):
    of = finished.found.value.sel(data="ring", generator=REAL, score="RKE-MC").mean("repeat")
    assert 5 < of[0] < 9 and of[1] < 4
    at_once = np.float32([mixture_gan.MIXTURES["ring"].centres[0]] * 60)
    monkeypatch.setattr(mixture_gan, "sample", lambda *_: at_once)
    setup, cells = finished.study.prepare(None, 0), finished.study.cells()
    context = studies.Context(*[jax.random.key(0)] * 2, lambda words: None)
    scores = setup.study.compute(setup.state, context, **cells[0].values).value
    np.testing.assert_allclose(scores.sel(score=["IS", "RKE-MC"]), 1, atol=1e-3)
    assert (scores.sel(score="Recall") == 0).all()


def test_correlations_are_over_generators_with_signs_and_ranges(finished):
    ranks = generator_scores.correlations(finished.found).sel(data="CIFAR-10", bandwidth="std")
    columns = dict(zip(SCORES, PRINTED["CIFAR-10"].T, strict=True))
    places = [np.argsort(np.argsort(columns[name])) for name in ("IS", "RKE-MC")]
    expected = np.corrcoef(places)[0, 1]  # No ties.
    np.testing.assert_allclose(ranks.sel(score="IS"), expected)
    assert (ranks.sel(score="FID") > 0.5).all()  # Lower is better.
    ours = generator_scores.correlations(finished.found).sel(data="ring", bandwidth="count")
    assert (ours.sel(end="low") < ours.sel(end="high")).any()
