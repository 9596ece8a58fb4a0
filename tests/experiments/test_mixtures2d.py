"""Mixtures in the plane and their pairing."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from experiments.generators import mixtures2d
from experiments.generators.mixtures2d import Geometry, Mixture, draw_pairs, match, sample

pytestmark = pytest.mark.slow

GEOMETRY = Geometry("polygon", 2.0, (0.6, 0.3, 0.2), (0.4, 0.2, 0.1), "distance")


def test_samples_are_of_the_components_that_are_named():
    params = Mixture(np.array([[0.0, 0.0], [10.0, -5.0]], np.float32), np.float32(0.5))
    prompts = np.repeat([0, 1], 4000)
    points = np.asarray(sample(params, jax.random.key(0), prompts))
    for component in (0, 1):
        own = points[prompts == component]
        np.testing.assert_allclose(own.mean(axis=0), params.centres[component], atol=0.04)
        np.testing.assert_allclose(np.cov(own.T), 0.25 * np.eye(2), atol=0.03)
    assert np.all(points != sample(params, jax.random.key(1), prompts))


@pytest.mark.parametrize("weight", mixtures2d.WEIGHTS)
def test_the_matching_is_the_least_of_all(weight):
    generator = np.random.default_rng(0)
    for _ in range(5):
        outputs, prompts = generator.normal(size=(2, 6, 2))
        distances = np.linalg.norm(prompts[:, None] - outputs[None], axis=-1)
        costs = distances if weight == "distance" else distances**2
        totals = {
            order: costs[np.arange(6), order].sum() for order in itertools.permutations(range(6))
        }
        assert tuple(match(outputs, prompts, weight)) == min(totals, key=totals.get)


def test_the_weight_matters():
    """On a line: crossing one long edge, or two of middle length."""
    outputs = np.array([[1.0, 0.0], [2.1, 0.3]])
    prompts = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert match(outputs, prompts, "distance").tolist() == [1, 0]
    assert match(outputs, prompts, "squared").tolist() == [0, 1]


def test_layouts_are_where_they_say():
    corners = mixtures2d.LAYOUTS["polygon"](2.0, 4)
    np.testing.assert_allclose(np.abs(corners), np.sqrt(2.0) * np.ones((4, 2)))
    for modes in (2, 3, 6):
        columns = mixtures2d.LAYOUTS["columns"](1.5, modes)
        assert set(columns[:, 0]) == {-1.5, 1.5}
        assert len(columns) == modes
    np.testing.assert_allclose(mixtures2d.LAYOUTS["line"](3.0, 4)[:, 0], [-3, -1, 1, 3])


def test_spreads_of_other_mixtures_follow_a_power_in_between():
    assert float(GEOMETRY.prompts(2).spread) == pytest.approx(0.3)
    assert float(GEOMETRY.outputs(6).spread) == pytest.approx(0.1)
    between = 0.3 * 1.5 ** (np.log(0.2 / 0.3) / np.log(2))
    assert float(GEOMETRY.prompts(3).spread) == pytest.approx(between)
    assert len(GEOMETRY.prompts(1).centres) == 1


def test_pairs_keep_every_point_and_its_component():
    pairs = draw_pairs(GEOMETRY.outputs(4), GEOMETRY.prompts(2), jax.random.key(0), 40, "distance")
    assert np.bincount(pairs.output_modes).tolist() == [10] * 4
    assert np.bincount(pairs.prompt_modes).tolist() == [20] * 2
    centres = np.asarray(GEOMETRY.outputs(4).centres)
    assert np.abs(pairs.outputs - centres[pairs.output_modes]).max() < 1
    further = dataclasses.replace(GEOMETRY, extent=4.0)
    moved = draw_pairs(further.outputs(4), further.prompts(2), jax.random.key(0), 40, "distance")
    noise, other = (
        np.sort((found.outputs - np.asarray(g.outputs(4).centres)[found.output_modes])[:, 0])
        for found, g in ((pairs, GEOMETRY), (moved, further))
    )
    np.testing.assert_allclose(noise, other, atol=1e-6)  # The noise is the key's.
