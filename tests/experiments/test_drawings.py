"""Sketches and quick drawings: networks against NumPy, files, and the builders."""

import base64
import functools
import itertools
import json
from typing import Any

import jax
import numpy as np
import pytest
from scipy import special
from small_repositories import Corners, make, repository

from experiments.builders import common, quickdraw, sketches
from experiments.data import sets
from experiments.data.wordings import WORDINGS

pytestmark = pytest.mark.slow

MODELS, KEY, STEP = ("ape", "bee", "red_cow"), jax.random.key(3), 10 / 32767


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


def test_at_zero_every_step_is_the_most_likely_mean_and_a_drawing_ends(published):
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

    # A drawing ends and stays so.
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


def test_a_picture_is_black_on_white_centred_and_smoothed_and_strokes_fit_the_unit_square():
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
    found = sketches.fitted(sketches.lines(POINTS * [30, 15, 1, 1, 1]))
    # Seven wide and half as high: from side to side, in the middle.
    for ours, wanted in zip(found, sketches.lines(POINTS), strict=True):
        np.testing.assert_allclose(ours, wanted / [7, 14] + [0, 0.25], atol=1e-6)
    assert sketches.fitted([]) == []


SKETCHES_NAMES, TEMPERATURES, DRAWS = ("ape", "palm tree", "zebra"), (0.2, 0.6, 1.0), 4


@pytest.fixture(scope="module")
def built_sketches(tmp_path_factory):
    """Three classes, two of them animals, at three temperatures, four times each."""
    folder, files = tmp_path_factory.mktemp("sketches"), {}
    for seed, name in enumerate(SKETCHES_NAMES):
        file = name.replace(" ", "_")
        files[f"models/{file}.gen.json"] = content(file, random_arrays(seed), length=8 + seed)
    clone = repository(folder / "clone", "me/models", files)
    constants = {"ANIMALS": ("ape", "zebra"), "THINGS": ("palm tree",), "TYPES": 1}
    constants |= {"TEMPERATURES": TEMPERATURES, "DRAWS": DRAWS}
    return folder, make(sketches, folder, clone, **constants)


def test_every_class_is_drawn_at_every_temperature_with_the_same_wordings(built_sketches):
    folder, (found, _, cut, pictures, _) = built_sketches
    each = len(SKETCHES_NAMES) * DRAWS
    assert len(found) == pictures.given == each * len(TEMPERATURES)  # Embedded once.
    labels = found.labels
    assert labels["models"].tolist() == np.repeat(["0.2", "0.6", "1"], each).tolist()
    assert labels["types"][:each].tolist() == np.repeat(SKETCHES_NAMES, DRAWS).tolist()
    for role in ("wording", "prompt", "types"):
        of_temperature = labels[role].reshape(len(TEMPERATURES), each)
        assert (of_temperature == of_temperature[0]).all()
    assert len(np.unique(labels["prompt"])) == len(np.unique(found.prompts, axis=0))
    assert (found.outputs[:each] != found.outputs[each : 2 * each]).any()
    ended = [found.labels["ended"][labels["models"] == word].mean() for word in cut["ended"]]
    np.testing.assert_allclose(ended, list(cut["ended"].values()), atol=1e-4)
    shown = json.loads((folder / "drawings" / "sketches.json").read_bytes())
    drawn = itertools.product(SKETCHES_NAMES, ("0.2", "0.6", "1"))
    assert [(one["type"], one["model"]) for one in shown] == list(drawn)
    places = np.concatenate([line for one in shown for line in one["lines"]])
    assert places.dtype == int and (places.min(), places.max()) == (0, 255)


def test_animals_have_prompts_that_name_them_and_that_do_not(built_sketches):
    folder, (whole, _, _, _, texts) = built_sketches
    animals = sets.read_set(folder / "sketched_animals.npz")
    assert set(animals.labels["types"]) == {"ape"}
    assert len(animals) == DRAWS * len(TEMPERATURES)
    chosen = whole.labels["types"] == "ape"
    np.testing.assert_array_equal(animals.outputs, whole.outputs[chosen])
    np.testing.assert_array_equal(animals.further["typed_prompts"], whole.prompts[chosen])
    unnamed = texts.rows(sketches.WORDINGS["sketches"].unspecified())
    np.testing.assert_allclose(animals.prompts, unnamed[animals.labels["wording"]], atol=1e-3)


SHARD = f"{quickdraw.FOLDER}/models/group1-shard1of1"
QUICKDRAW_NAMES = ["cat", "alarm_clock", "key"]
LATENTS, SIDE, CHANNELS = 3, 2, (2, 4, 3)


def arrays(seed=0):
    """Weights by name: the latents and the class, two squares, three convolutions to one."""
    generator = np.random.default_rng(seed)
    units = CHANNELS[0] * SIDE**2
    shapes = {
        "dense_5/kernel": (LATENTS + len(QUICKDRAW_NAMES) + 1, units),
        "dense_5/bias": (units,),
    }
    for layer, (given, made) in enumerate(itertools.pairwise([*CHANNELS, 1]), start=1):
        shapes[f"conv2d_transpose_{layer}/kernel"] = (3, 3, made, given)
        shapes[f"conv2d_transpose_{layer}/bias"] = (made,)
    return {name: generator.normal(size=shape).astype("<f4") for name, shape in shapes.items()}


def files(seed=0):
    """The three files by path."""
    weights = arrays(seed)
    entries = [{"name": name, "shape": array.shape} for name, array in weights.items()]
    manifest = {"paths": ["group1-shard1of1"], "weights": entries}
    return {
        quickdraw.LABELS: json.dumps({"labels": QUICKDRAW_NAMES}).encode(),
        quickdraw.MODEL: json.dumps({"weightsManifest": [manifest]}).encode(),
        SHARD: b"".join(array.tobytes() for array in weights.values()),
    }


def decode(weights, latents, prompts):
    """The decoder in NumPy float64, a pixel at a time."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    drawings = []
    for latent, prompt in zip(latents, prompts, strict=True):
        chosen = np.zeros(len(QUICKDRAW_NAMES) + 1)
        chosen[prompt + 1] = 1
        flat = np.concatenate([latent, chosen]) @ weights["dense_5/kernel"]
        x = np.maximum(flat + weights["dense_5/bias"], 0).reshape(SIDE, SIDE, -1)
        for layer in (1, 2, 3):
            name = f"conv2d_transpose_{layer}"
            x = transposed(x, weights[f"{name}/kernel"]) + weights[f"{name}/bias"]
            if layer < 3:
                x = np.kron(np.maximum(x, 0), np.ones((2, 2, 1)))
        drawings.append(1 / (1 + np.exp(-x[..., 0])))
    return np.stack(drawings)


def transposed(x, kernel):
    """Every pixel spreads its channels over its 3 x 3 neighbours; what leaves the square is cut."""
    wide = np.zeros((len(x) + 2, len(x) + 2, kernel.shape[2]))
    for i, j in np.ndindex(x.shape[:2]):
        wide[i : i + 3, j : j + 3] += kernel @ x[i, j]
    return wide[1:-1, 1:-1]


@pytest.fixture(scope="module")
def built_quickdraw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickdraw")
    clone = repository(folder / "clone", "a/b", files())
    return clone, folder, make(quickdraw, folder, clone, PSI=(0.0, 0.5, 1.0), DRAWS=4)


def test_the_set_has_every_class_at_every_psi(built_quickdraw):
    _, _, (pairs, _, cut, pictures, _) = built_quickdraw
    assert len(pairs) == 3 * 3 * 4
    assert pairs.labels["models"].tolist() == ["0"] * 12 + ["0.5"] * 12 + ["1"] * 12
    assert pairs.labels["types"][:12].tolist() == ["cat"] * 4 + ["alarm clock"] * 4 + ["key"] * 4
    # Equal drawings, those without latents, are embedded once.
    assert pictures.given == 3 + 2 * 3 * 4
    first = pairs.outputs[:12].reshape(3, 4, -1)
    np.testing.assert_array_equal(first, np.repeat(first[:, :1], 4, axis=1))
    assert not np.allclose(pairs.outputs[24:28], pairs.outputs[24])
    # A drawing has the same wording at every psi, and a wording of a class the same prompt.
    wording = pairs.labels["wording"].reshape(3, 12)
    np.testing.assert_array_equal(wording[0], wording[2])
    np.testing.assert_array_equal(wording[0], WORDINGS["quickdraw"].pair(12, quickdraw.SEED))
    np.testing.assert_array_equal(pairs.prompts[:12], pairs.prompts[12:24])
    assert cut["dimensions"].startswith("6 of 6 principal directions, with 1.0000")


def test_features_are_of_the_pictures_of_the_samples(built_quickdraw, monkeypatch):
    clone, folder, made = built_quickdraw
    monkeypatch.setattr(quickdraw, "PSI", (0.0, 0.5, 1.0))
    monkeypatch.setattr(quickdraw, "DRAWS", 4)
    ink = quickdraw.draw(quickdraw.load(clone)[1], 3)
    assert ink.shape == (3, 3, 4, 8, 8)
    pictures = np.stack([quickdraw.picture(one, 8) for one in ink[2, 1]])
    assert pictures.dtype == np.uint8
    np.testing.assert_array_equal(pictures[..., 0], np.round(255 * (1 - ink[2, 1])))
    features = common.unit_rows(Corners().encode(pictures))
    rows = made.pairs.outputs[28:32]
    np.testing.assert_allclose(rows @ rows.T, features @ features.T, atol=2e-3)
    with np.load(folder / "drawings/quickdraw.npz", allow_pickle=False) as shown:
        np.testing.assert_array_equal(shown["ink"], np.round(255 * ink[:, :, :2]))
        assert shown["types"].tolist() == ["cat", "alarm clock", "key"]
        assert shown["models"].tolist() == ["0", "0.5", "1"]


def test_samples_are_those_of_the_format_at_scaled_latents(built_quickdraw):
    names, decoder = quickdraw.load(built_quickdraw[0])
    assert names == ["cat", "alarm clock", "key"]
    assert [len(part) for part in decoder] == [LATENTS, 1 + len(QUICKDRAW_NAMES), 3]
    prompts = np.array([2, 0, 1, 1])
    latents = np.asarray(jax.random.normal(jax.random.key(5), (4, 3)))
    for psi in (0.0, 0.3, 1.0):
        expected = decode(arrays(), psi * latents, prompts)
        assert expected.shape == (4, 8, 8) and np.ptp(expected) > 0.5
        drawn = quickdraw.sample(decoder, jax.random.key(5), prompts, psi)
        np.testing.assert_allclose(drawn, expected, atol=1e-5)
