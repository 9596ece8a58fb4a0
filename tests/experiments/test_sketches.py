"""Sketch-RNN against NumPy and at known distributions, its files, strokes, and the builder."""

import base64
import functools
import itertools
import json
from typing import Any

import jax
import numpy as np
import pytest
from scipy import special
from small_repositories import make, repository

from experiments.builders import sketches
from experiments.data import sets

pytestmark = pytest.mark.slow

MODELS = ("ape", "bee", "red_cow")
KEY = jax.random.key(3)
STEP = 10 / 32767


def content(name, arrays, *, length=12):
    """A model's file: arrays of whole numbers of 16 bits."""
    says = {"name": name, "mode": 2, "max_seq_len": length}
    encoded = [base64.b64encode(a.astype("<i2").tobytes()).decode() for a in arrays]
    return json.dumps([says, [list(a.shape) for a in arrays], encoded]).encode()


def random_arrays(seed):
    """The readout of 3 components and its bias, the input's weights, the recurrent ones, a bias."""
    generator = np.random.default_rng(seed)
    shapes = [(6, 21), (21,), (5, 24), (6, 24), (24,)]
    return [generator.integers(-4000, 4000, shape) for shape in shapes]


def reference(arrays, points):
    """Parameters of the next point after each of `points` and before them, in float64.

    An implementation by itself, one step and one number at a time; a dictionary a step.
    """
    readout, readout_bias, inputs, recurrent, bias = (a * STEP for a in arrays)
    hidden = cell = np.zeros(len(recurrent))
    found = []
    for point in [np.zeros(5), *points]:
        gates = point @ inputs + hidden @ recurrent + bias
        i, g, f, o = np.split(gates, 4)
        cell = special.expit(f + 1) * cell + special.expit(i) * np.tanh(g)
        hidden = special.expit(o) * np.tanh(cell)
        out = hidden @ readout + readout_bias
        parts = out[3:].reshape(6, -1)
        found.append(
            {
                "pens": out[:3],
                "logits": parts[0],
                "means": parts[1:3].T,
                "deviations": np.exp(parts[3:5].T),
                "correlations": np.tanh(parts[5]),
            }
        )
    return found


def load(folder, files):
    models = {f"models/{name}.gen.json": file for name, file in files.items()}
    return sketches.load(repository(folder / "clone", "me/models", models), list(files))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    files = {
        name: content(name, random_arrays(seed), length=10 + seed)
        for seed, name in enumerate(MODELS)
    }
    return load(tmp_path_factory.mktemp("random"), files)


def drawn(published, key=KEY, **knobs):
    given = {"draws": 4, "max_steps": 9, "temperature": 1.0} | knobs
    return np.asarray(sketches.sample(published[0], key, **given))


def test_the_network_is_that_of_numpy_and_a_file_and_a_file_says_lengths(published):
    assert published[1].tolist() == [10, 11, 12]
    points = np.random.default_rng(0).normal(size=(7, 5))
    params = jax.tree.map(lambda array: array[1], published[0])
    network: Any = functools.partial(sketches.advance, params)
    started = np.concatenate([np.zeros((1, 5)), points]).astype(np.float32)
    _, found = jax.lax.scan(network, (np.zeros((1, 6), "f4"),) * 2, started[:, None])
    for step, wanted in enumerate(reference(random_arrays(1), points)):
        for name, values in wanted.items():
            ours = getattr(found, name)[step, 0]
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
            points.append(np.array(sketches.END if ended else [*mean, *pen]))
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
    np.testing.assert_array_equal(found[ended], np.tile(sketches.END, (ended.sum(), 1)))


LOGITS, MEANS, DEVIATIONS, CORRELATIONS = (0.0, 1.0), (-5.0, 5.0), (0.5, 1.5), (0.8, -0.4)
PENS = (1.0, 0.0, -9.0)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_points_have_the_published_distribution(tmp_path, temperature):
    """Logits over one number, deviations by the root of one; offsets correlated in a component."""
    log = np.log(DEVIATIONS)
    parts = [LOGITS, MEANS, [m / 5 for m in MEANS], log, log / 2, np.arctanh(CORRELATIONS)]
    bias = np.round(np.concatenate([PENS, *parts]) / STEP)
    others = [np.zeros(shape) for shape in ((5, 8), (2, 8), (8,))]  # Every point has the same.
    model = load(tmp_path, {"dot": content("dot", [np.zeros((2, len(bias))), bias, *others])})
    sizes = {"draws": 2000, "max_steps": 4, "temperature": temperature}
    points = drawn(model, **sizes)[0].reshape(-1, 5)
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


POINTS = np.array(
    [
        [1.0, 0.0, 1, 0, 0],
        [0.0, 2.0, 0, 1, 0],
        [5.0, 5.0, 1, 0, 0],
        [1.0, 0.0, 0, 1, 0],
        [3.0, 3.0, 0, 1, 0],  # A dot: no line.
        [9.0, 9.0, 0, 0, 1],
        [7.0, 7.0, 1, 0, 0],
    ]
)


def test_lines_begin_at_the_origin_and_end_where_the_pen_is_lifted():
    first, second = sketches.lines(POINTS)
    np.testing.assert_array_equal(first, [[0, 0], [1, 0], [1, 2]])
    np.testing.assert_array_equal(second, [[6, 7], [7, 7]])
    assert sketches.lines(POINTS[5:]) == []
    # Without an end of its own a drawing goes as far as its points.
    assert len(sketches.lines(POINTS[:1])) == 1


def test_a_picture_is_black_on_white_centred_and_smoothed():
    pytest.importorskip("PIL")
    square = np.array([[0, 0], [3, 0], [3, 3], [0, 3], [0, 0.0]])
    picture = sketches.picture([square], side=100)
    assert picture.shape == (100, 100, 3) and picture.dtype == np.uint8
    grey = picture[:, :, 0]
    assert (picture == grey[:, :, None]).all()
    assert grey[50, 50] == grey[1, 1] == 255 and grey.min() == 0
    assert len(np.unique(grey)) > 4  # Smoothed.
    for axis in (0, 1):
        ink = np.flatnonzero((grey < 200).any(axis=axis))
        assert abs(ink[0] + ink[-1] - 99) <= 1 and 6 <= ink[0] <= 9
    assert (sketches.picture([], side=20) == 255).all()


def test_strokes_are_fitted_to_the_unit_square():
    found = sketches.fitted(sketches.lines(POINTS * [30, 15, 1, 1, 1]))
    # Seven wide and half as high: from side to side, in the middle.
    for ours, wanted in zip(found, sketches.lines(POINTS), strict=True):
        np.testing.assert_allclose(ours, wanted / [7, 14] + [0, 0.25], atol=1e-6)
    assert sketches.fitted([]) == []


NAMES, TEMPERATURES, DRAWS = ("ape", "palm tree", "zebra"), (0.2, 0.6, 1.0), 4


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three classes, two of them animals, at three temperatures, four times each."""
    folder, files = tmp_path_factory.mktemp("sketches"), {}
    for seed, name in enumerate(NAMES):
        file = name.replace(" ", "_")
        files[f"models/{file}.gen.json"] = content(file, random_arrays(seed), length=8 + seed)
    clone = repository(folder / "clone", "me/models", files)
    constants = {"ANIMALS": ("ape", "zebra"), "THINGS": ("palm tree",), "TYPES": 1}
    constants |= {"TEMPERATURES": TEMPERATURES, "DRAWS": DRAWS}
    return folder, make(sketches, folder, clone, **constants)


def test_every_class_is_drawn_at_every_temperature_with_the_same_wordings(built):
    folder, (found, _, cut, pictures, _) = built
    each = len(NAMES) * DRAWS
    assert len(found) == pictures.given == each * len(TEMPERATURES)  # Embedded once.
    labels = found.labels
    assert labels["models"].tolist() == np.repeat(["0.2", "0.6", "1"], each).tolist()
    assert labels["types"][:each].tolist() == np.repeat(NAMES, DRAWS).tolist()
    for role in ("wording", "prompt", "types"):
        of_temperature = labels[role].reshape(len(TEMPERATURES), each)
        assert (of_temperature == of_temperature[0]).all()
    assert len(np.unique(labels["prompt"])) == len(np.unique(found.prompts, axis=0))
    assert (found.outputs[:each] != found.outputs[each : 2 * each]).any()
    ended = [found.labels["ended"][labels["models"] == word].mean() for word in cut["ended"]]
    np.testing.assert_allclose(ended, list(cut["ended"].values()), atol=1e-4)
    shown = json.loads((folder / "drawings" / "sketches.json").read_bytes())
    drawn = itertools.product(NAMES, ("0.2", "0.6", "1"))
    assert [(one["type"], one["model"]) for one in shown] == list(drawn)
    places = np.concatenate([line for one in shown for line in one["lines"]])
    assert places.dtype == int and (places.min(), places.max()) == (0, 255)


def test_animals_have_prompts_that_name_them_and_that_do_not(built):
    folder, (whole, _, _, _, texts) = built
    animals = sets.read_set(folder / "sketched_animals.npz")
    assert set(animals.labels["types"]) == {"ape"}
    assert len(animals) == DRAWS * len(TEMPERATURES)
    chosen = whole.labels["types"] == "ape"
    np.testing.assert_array_equal(animals.outputs, whole.outputs[chosen])
    np.testing.assert_array_equal(animals.further["typed_prompts"], whole.prompts[chosen])
    unnamed = texts.rows(sketches.WORDINGS["sketches"].unspecified())
    np.testing.assert_allclose(animals.prompts, unnamed[animals.labels["wording"]], atol=1e-3)
