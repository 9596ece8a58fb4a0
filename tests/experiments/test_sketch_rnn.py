"""Sketch-RNN: against NumPy in float64, at known distributions, and its files."""

import json

import jax
import numpy as np
import pytest
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
    return np.asarray(
        sketch_rnn.sample(
            published.params,
            key,
            np.array(prompts),
            **{"draws": 4, "max_steps": 9, "temperature": 1.0, **knobs},
        )
    )


def test_a_file_says_names_scales_and_lengths(published):
    assert published.names == NAMES
    assert published.scales.tolist() == [40, 41, 42]
    assert published.lengths.tolist() == [10, 11, 12]
    (count,) = {len(array) for array in jax.tree.leaves(published.params)}
    assert count == len(NAMES)


def test_distributions_are_those_of_numpy(published):
    generator = np.random.default_rng(0)
    points = np.concatenate(
        [generator.normal(size=(3, 7, 2)), np.eye(3)[generator.integers(0, 2, (3, 7))]], axis=-1
    )
    order = [2, 0, 1]
    found = sketch_rnn.distributions(published.params, np.array(order), points)
    for row, seed in enumerate(order):
        for step, wanted in enumerate(reference(random_arrays(seed), points[row])):
            for name, values in wanted.items():
                ours = getattr(found, name)[row, step]
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


def test_a_key_gives_its_drawings_and_another_one_others(published):
    first = drawn(published)
    np.testing.assert_array_equal(first, drawn(published))
    assert (first != drawn(published, key=jax.random.key(4))).any()
    assert (first[:, 0] != first[:, 1]).any()
    twice = drawn(published, prompts=(1, 1, 2))
    assert (twice[0] != twice[1]).any()


def test_every_knob_matters(published):
    plain = drawn(published)
    assert plain.shape == (3, 4, 9, 5)
    assert drawn(published, draws=2, max_steps=3, prompts=(1,)).shape == (1, 2, 3, 5)
    assert (plain != drawn(published, temperature=0.5)).any()
    assert (plain != drawn(published, softmax_temperature=0.5)).any()
    assert (plain != drawn(published, prompts=(2, 1, 0))).any()
    # Of each draw by itself, and with one for all logits and one for the deviations.
    mixed = drawn(published, temperature=np.array([1, 1, 0.3, 0.3]))
    np.testing.assert_allclose(mixed[:, :2], plain[:, :2], rtol=1e-6)
    np.testing.assert_allclose(
        mixed[:, 2:], drawn(published, temperature=0.3)[:, 2:], rtol=1e-6, atol=1e-6
    )
    same = drawn(published, temperature=0.3, softmax_temperature=0.3)
    np.testing.assert_array_equal(same, drawn(published, temperature=0.3))


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


@pytest.mark.parametrize(("temperature", "softness"), [(1.0, 1.0), (0.4, 0.4), (0.4, 0.7)])
def test_points_have_the_published_distribution(tmp_path, temperature, softness):
    """Logits over one number, deviations by the root of one; offsets correlated in a component."""
    log = np.log(DEVIATIONS)
    parts = [LOGITS, MEANS, [m / 5 for m in MEANS], log, log / 2, np.arctanh(CORRELATIONS)]
    bias = np.concatenate([PENS, *parts])
    model = load(tmp_path, {"dot": content("dot", fixed_arrays(bias))})
    knobs = {"temperature": temperature, "softmax_temperature": softness}
    points = drawn(model, prompts=(0,), draws=2000, max_steps=4, **knobs)[0].reshape(-1, 5)
    points = points[points[:, 4] == 0]
    n, second = len(points), points[:, 0] > 0  # Components are ten apart.
    assert n > 7000

    def share(logits):
        weights = np.exp(np.array(logits) / softness)
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


def test_weights_are_arguments_of_what_is_compiled(published):
    lowered = sketch_rnn.sample.lower(published.params, KEY, np.arange(3), draws=2, max_steps=3)
    weights = [array.shape for array in jax.tree.leaves(published.params)]
    taken = [leaf.shape for leaf in jax.tree.leaves(lowered.args_info)]
    assert all(shape in taken for shape in weights)


def damaged(change):
    parts = json.loads(content("ape", random_arrays(0)))
    changed = change(parts)
    return json.dumps(parts if changed is None else changed).encode()


def put(parts, *path, value):
    *where, last = path
    for key in where:
        parts = parts[key]
    parts[last] = value


GOOD = content("ape", random_arrays(0))
FILES = {
    "cut": (GOOD[:-200], "not a Sketch-RNN model"),
    "not text": (b"\xff\xfe" + GOOD, "not a Sketch-RNN model"),
    "another thing": (b'{"weights": []}', "not a Sketch-RNN model"),
    "a number": (b"7", "not a Sketch-RNN model"),
    "another class": (content("bee", random_arrays(0)), "expected the class 'ape', received 'bee'"),
    "with latents": (content("ape", random_arrays(0), mode="vae"), "received mode 'vae'"),
    "no scale": (content("ape", random_arrays(0), scale=0.0), "positive scale and length"),
    "no length": (content("ape", random_arrays(0), length=-1), "positive scale and length"),
    "nameless": (damaged(lambda p: p[0].pop("name") and None), "not a Sketch-RNN model"),
    "not base64": (damaged(lambda p: put(p, 2, 1, value="*&%")), "not a Sketch-RNN model"),
    "short array": (damaged(lambda p: put(p, 2, 3, value=p[2][3][:-8])), "expected arrays of"),
    "fewer arrays": (damaged(lambda p: [p[0], p[1][:4], p[2][:4]]), "expected the shapes"),
    "one array less": (damaged(lambda p: [p[0], p[1], p[2][:4]]), "expected arrays of"),
    "other shapes": (damaged(lambda p: put(p, 1, 2, value=[4, 30])), "expected the shapes"),
    "width": (content("ape", random_arrays(0)[:1] * 5), "expected the shapes"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_such_model_are_refused_in_a_line(tmp_path, case):
    file, message = FILES[case]
    with pytest.raises(ValueError, match=r"^models/ape\.gen\.json: ") as error:
        load(tmp_path, {"ape": file})
    assert message in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_models_of_other_sizes_and_classes_that_are_not_there_are_refused(tmp_path, published):
    files = {"ape": GOOD, "bee": content("bee", random_arrays(0, units=5))}
    with pytest.raises(ValueError, match=r"models/bee\.gen\.json: the sizes .* are not those of"):
        load(tmp_path, files)
    clone = repository(tmp_path / "another", "me/models", {"models/ape.gen.json": GOOD})
    with pytest.raises(ValueError, match=r"models/cow\.gen\.json is not in"):
        sketch_rnn.load(clone, ["ape", "cow"])
