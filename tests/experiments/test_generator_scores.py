"""Scores of generators: against definitions, and on generators whose faults are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import studies
import xarray as xr
from scipy import linalg
from small import flags

from experiments.generators import mixture_gan
from experiments.rke import generator_scores
from experiments.rke.generator_scores import REAL, SCORES, GeneratorScores

pytestmark = pytest.mark.slow


def small(folder, seed):
    """The shipped GANs of the ring, few samples."""
    return flags(sources="ring", samples=60, repeats=2, seed=seed)


finished = studies.finished(GeneratorScores)


def test_the_inception_score_by_hand():
    sure = 50 * jnp.eye(4)[jnp.array([0, 1, 1, 2])]
    shares = np.array([1, 2, 1]) / 4
    expected = np.exp(-np.sum(shares * np.log(shares)))
    assert generator_scores.inception_score(sure) == pytest.approx(expected)
    assert generator_scores.inception_score(jnp.zeros((5, 4))) == pytest.approx(1)


def test_the_frechet_distance_is_that_of_a_matrix_square_root():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(40, 3)), 2 * generator.normal(size=(30, 3)) + 1
    covariances = np.cov(x.T), np.cov(y.T)
    root = np.real(linalg.sqrtm(covariances[0] @ covariances[1]))
    means = np.sum((x.mean(0) - y.mean(0)) ** 2)
    expected = means + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert generator_scores.frechet(x, y) == pytest.approx(expected)


def test_the_data_have_their_modes_and_a_collapsed_gan_has_one(finished, monkeypatch):
    of = finished.found.value.sel(data="ring", generator=REAL, score="RKE-MC").mean("repeat")
    assert 5 < of[0] < 9 and of[1] < 4
    at_once = np.array([mixture_gan.MIXTURES["ring"].centres[0]] * 60, "f4")
    monkeypatch.setattr(mixture_gan, "sample", lambda *_: at_once)
    setup, cells = finished.study.prepare(None, 0), finished.study.cells()
    context = studies.Context(jax.random.key(0), jax.random.key(0), lambda words: None)
    scores = setup.study.compute(setup.state, context, **cells[0].values).value
    np.testing.assert_allclose(scores.sel(score=["IS", "RKE-MC"]), 1, atol=1e-3)
    assert (scores.sel(score="Recall") == 0).all()


def known(values):
    """Scores of five generators and the data, `[repeats, 6]`: RKE-MC; IS alike, RRKE reversed."""
    found = np.random.default_rng(0).normal(size=(*np.shape(values), len(SCORES)))
    found[..., [SCORES.index("IS"), -1]] = np.array(values)[..., None]
    found[..., SCORES.index("RRKE")] = -np.array(values)
    names = [*"abcde", REAL]
    labels = {"data": ["ring"], "bandwidth": ["count"], "repeat": range(len(values))}
    labels |= {"generator": names, "score": list(SCORES)}
    return xr.Dataset({"value": (tuple(labels), found[None, None])}, labels)


def test_correlations_are_over_generators_and_data_with_exact_p():
    ranks = generator_scores.correlations(known([range(6), range(6)]))
    ranks = ranks.sel(data="ring", bandwidth="count")
    told = ranks.sel(score=["IS", "RRKE"])  # Lower is better.
    np.testing.assert_allclose(told.value, 1)
    np.testing.assert_allclose(told.p, 2 / 720)
    others = ranks.sel(score=["Precision", "Density"])
    assert (others.ends.sel(end="low") <= others.value).all() and (others.p > 2 / 720).all()
    five = generator_scores.correlations(known([range(6)]), left_out=REAL)
    np.testing.assert_allclose(five.p.sel(score="IS"), 2 / 120)


def test_one_of_five_places_exchanged_is_no_evidence():
    scores = known([[0, 1, 2, 3, 4, 5]])
    scores.value.loc[{"score": "IS"}] = [1, 0, 2, 3, 4, 5]
    found = generator_scores.correlations(scores, left_out=REAL).sel(score="IS")
    assert found.value.item() == pytest.approx(0.9) and found.p.item() == pytest.approx(1 / 12)
