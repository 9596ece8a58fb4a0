"""Sketch-RNN: against NumPy in float64, at known distributions, and its files."""

import jax
import numpy as np
import pytest
from flax import nnx
from small_repositories import repository
from small_sketches import content, fixed_arrays, random_arrays, reference

from experiments.generators import sketch_rnn

pytestmark = pytest.mark.slow

NAMES = ("ape", "bee", "red_cow")
KEY = jax.random.key(3)


def load(folder, files):
    models = {f"models/{name}.gen.json": file for name, file in files.items()}
    return sketch_rnn.load(repository(folder / "clone", "me/models", models), list(files))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    files = {
        name: content(name, random_arrays(seed), length=10 + seed, scale=40.0 + seed)
        for seed, name in enumerate(NAMES)
    }
    return load(tmp_path_factory.mktemp("random"), files)


def drawn(published, key=KEY, prompts=(0, 1, 2), **knobs):
    given = {"draws": 4, "max_steps": 9, "temperature": 1.0} | knobs
    return np.asarray(sketch_rnn.sample(published.params, key, np.array(prompts), **given))


def test_the_network_is_that_of_numpy_and_a_file_says_names_scales_and_lengths(published):
    assert published.names == NAMES
    assert (published.scales.tolist(), published.lengths.tolist()) == ([40, 41, 42], [10, 11, 12])
    points = np.random.default_rng(0).normal(size=(7, 5))
    params = jax.tree.map(lambda array: array[1], published.params)
    graph, _ = nnx.split(sketch_rnn.SketchRNN(6, 3, rngs=nnx.Rngs(0)))
    started = np.concatenate([np.zeros((1, 5)), points]).astype(np.float32)
    _, found = jax.lax.scan(nnx.merge(graph, params), (np.zeros(6, "f4"),) * 2, started)
    for step, wanted in enumerate(reference(random_arrays(1), points)):
        for name, values in wanted.items():
            ours = getattr(found, name)[step]
            np.testing.assert_allclose(ours, values, rtol=2e-5, atol=2e-6, err_msg=name)


def test_at_zero_every_step_is_the_most_likely_mean(published):
    found = drawn(published, temperature=0.0)
    for seed, drawing in enumerate(found[:, 0]):
        points = []
        for _ in range(9):
            last = reference(random_arrays(seed), points)[-1]
            pen = np.eye(3)[last["pens"].argmax()]
            ended = pen[2] or (points and points[-1][4])
            mean = last["means"][last["logits"].argmax()]
            points.append(np.array(sketch_rnn.END if ended else [*mean, *pen]))
        np.testing.assert_allclose(drawing, points, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found, found[:, :1].repeat(4, axis=1))
    other = drawn(published, key=jax.random.key(8), temperature=0.0)
    np.testing.assert_array_equal(found, other)
    np.testing.assert_allclose(drawn(published, temperature=1e-12), found, atol=1e-4)


def test_a_drawing_ends_and_stays_so(published):
    found = drawn(published)
    pens = found[..., 2:]
    np.testing.assert_array_equal(pens.sum(axis=-1), 1)
    assert set(np.unique(pens)) == {0, 1}
    ended = found[..., 4] == 1
    assert ended.any() and (np.diff(ended.astype(int), axis=-1) >= 0).all()
    np.testing.assert_array_equal(found[ended], np.tile(sketch_rnn.END, (ended.sum(), 1)))


LOGITS, MEANS, DEVIATIONS, CORRELATIONS = (0.0, 1.0), (-5.0, 5.0), (0.5, 1.5), (0.8, -0.4)
PENS = (1.0, 0.0, -9.0)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_points_have_the_published_distribution(tmp_path, temperature):
    """Logits over one number, deviations by the root of one; offsets correlated in a component."""
    log = np.log(DEVIATIONS)
    parts = [LOGITS, MEANS, [m / 5 for m in MEANS], log, log / 2, np.arctanh(CORRELATIONS)]
    bias = np.concatenate([PENS, *parts])
    model = load(tmp_path, {"dot": content("dot", fixed_arrays(bias))})
    sizes = {"draws": 2000, "max_steps": 4, "temperature": temperature}
    points = drawn(model, prompts=(0,), **sizes)[0].reshape(-1, 5)
    points = points[points[:, 4] == 0]
    n, second = len(points), points[:, 0] > 0  # Components are ten apart.
    assert n > 7000

    def share(logits):
        weights = np.exp(np.array(logits) / temperature)
        return weights[1] / weights.sum()

    assert second.mean() == pytest.approx(share(LOGITS), abs=4 * np.sqrt(0.25 / n))
    assert points[:, 3].mean() == pytest.approx(share(PENS), abs=4 * np.sqrt(0.25 / n))
    for component, rows in enumerate((points[~second], points[second])):
        x, y = rows[:, 0], rows[:, 1]
        spread = DEVIATIONS[component] * np.sqrt(temperature)
        other = np.sqrt(DEVIATIONS[component]) * np.sqrt(temperature)
        error = 4 / np.sqrt(len(rows))
        assert x.mean() == pytest.approx(MEANS[component], abs=error * spread)
        assert y.mean() == pytest.approx(MEANS[component] / 5, abs=error * other)
        assert x.std() == pytest.approx(spread, rel=error)
        assert y.std() == pytest.approx(other, rel=error)
        assert np.corrcoef(x, y)[0, 1] == pytest.approx(CORRELATIONS[component], abs=error)
