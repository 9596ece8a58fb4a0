"""The data of a call: what makes a `Pairs`, in which shapes, and what functions take for it."""

import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pandas as pd
import pytest
import xarray as xr
from fake_encoders import Means
from oracles import assert_close, draw_pairs, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.base import checks as validation
from condvendi_jax.base import devices
from condvendi_jax.base.checks import equal_rows
from condvendi_jax.data import bandwidth, kernels

KERNELS = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.9)}
ALONE = {"output_kernel": cv.Gaussian(0.8)}
KEY = jax.random.key(0)
N = 40
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)


def test_pairs_and_what_makes_them_give_the_same_score():
    pairs = cv.Pairs(OUTPUTS, PROMPTS, **KERNELS)
    for score in (cv.conditional_rke, cv.information_rke):
        assert float(score(pairs)) == float(score(OUTPUTS, PROMPTS, **KERNELS))
    alone = cv.rke(cv.Pairs(OUTPUTS, **ALONE))
    assert_close(cv.rke(OUTPUTS, kernel=ALONE["output_kernel"]), alone)
    assert_close(cv.rke(pairs), alone)


def test_a_rule_chooses_the_kernels_that_are_missing_and_all_models_share_them():
    rule = {"rule": "median", "key": KEY}
    pairs = cv.Pairs(OUTPUTS, PROMPTS, prompt_kernel=cv.Cosine(), **rule)
    assert pairs.bandwidths["outputs"].rule == "median distance"
    assert pairs.bandwidths["prompts"].bandwidth is None
    models = {"a": OUTPUTS, "b": 2 * OUTPUTS[::-1]}
    found = cv.Pairs.of_models(models, PROMPTS, **rule)
    assert [*found] == ["a", "b"]
    a, b = found.values()
    for points, chosen in ((OUTPUTS, [pairs]), (np.concatenate([*models.values()]), [a, b])):
        expected = cv.bandwidth_by_rule(points, "median", key=jax.random.fold_in(KEY, 0)).bandwidth
        for of in chosen:
            assert float(of.kernels[0].bandwidth) == pytest.approx(expected)
    assert a.arrays[1] is b.arrays[1]
    rows = np.asarray(b.arrays[0])
    np.testing.assert_allclose(rows[0] - rows[1], 2 * (OUTPUTS[-1] - OUTPUTS[-2]), rtol=1e-5)


def test_models_of_any_length_under_given_kernels_are_moved_by_the_same_row():
    """Cast to float32 by themselves, their rows could not be compared with each other."""
    outputs = np.arange(7.0)[:, None] + 2.0**40
    models = {"a": outputs[:6], "b": outputs + 1}
    with pytest.warns(UserWarning, match="computed in float32"):
        found = cv.Pairs.of_models(models, output_kernel=cv.Gaussian(1.0))
    assert {name: pairs.n for name, pairs in found.items()} == {"a": 6, "b": 7}
    a, b = (np.asarray(pairs.arrays[0]) for pairs in found.values())
    np.testing.assert_array_equal(b[:6] - a, np.ones((6, 1), np.float32))


COSINE = {"output_kernel": cv.Cosine()}
SHARP = {"output_kernel": cv.Gaussian(0.3), "prompt_kernel": cv.Indicator()}
MODELS = cv.Pairs.of_models
IDS = "prompt_ids: received some, and there are no prompts"
REFUSED = {
    "output_kernel: expected a kernel": lambda x, t: cv.Pairs(x),
    "prompt_kernel: expected beside prompts": lambda x, t: cv.Pairs(x, t, **COSINE),
    "prompts: expected beside": lambda x, t: cv.Pairs(x, **KERNELS),
    "rule: expected one of": lambda x, t: cv.Pairs(x, rule="mean", key=KEY),
    "key: expected a random key": lambda x, t: cv.Pairs(x, rule="median"),
    "kernel: received beside output_kernel": lambda x, t: cv.rke(x, kernel=cv.Cosine(), **COSINE),
    "expected Pairs alone": lambda x, t: cv.decompose(cv.Pairs(x, t, **KERNELS), **KERNELS),
    "rke: unknown keyword bandwidth; .*cv.Gaussian": lambda x, t: cv.rke(x, bandwidth=1),
    "models: expected the outputs": lambda x, t: MODELS({}),
    "one dimension for all models": lambda x, t: MODELS({"a": x, "b": x[:, :1]}, **COSINE),
    "b: outputs: expected finite": lambda x, t: MODELS({"a": x, "b": x * np.nan}, **COSINE),
    IDS: lambda x, t: cv.Pairs(x, output_kernel=cv.Indicator(), prompt_ids=range(N)),
    "prompt_ids: expected 40 labels": lambda x, t: cv.Pairs(x, t, **SHARP, prompt_ids=[0, 1]),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_makes_no_pairs_is_refused(words):
    with pytest.raises((TypeError, ValueError), match=words):
        REFUSED[words](OUTPUTS, PROMPTS)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, _: cv.decompose(x, y, **KERNELS),
        lambda x, y, _: cv.compare({"a": x}, y, **KERNELS),
        lambda x, y, _: cv.baselines.mutual_information_divergence(x, y),
        lambda x, y, labels: cv.evaluate(x, rule="median", groups=labels),
        lambda x, y, labels: cv.rke(x, kernel=cv.Gaussian(1.0), weights=labels),
        lambda x, y, labels: cv.clusters.cluster_vendi(x, labels, kernel=cv.Gaussian(1.0)),
    ],
)
def test_rows_of_different_indices_do_not_pair_up(call):
    x = pd.DataFrame(OUTPUTS)
    with pytest.raises(ValueError, match="expected the index of outputs, .*received .39, 38, 37"):
        call(x, pd.DataFrame(PROMPTS, x.index[::-1]), pd.Series(np.arange(N) % 4, x.index[::-1]))
    score = cv.decompose(x, pd.DataFrame(PROMPTS), **KERNELS).conditional
    assert float(score) == float(cv.decompose(OUTPUTS, PROMPTS, **KERNELS).conditional)


@pytest.mark.parametrize("order", [1, 2])
def test_equal_prompts_are_numbered_alike_in_all_models(order):
    """Zeros of either sign are equal, and the scores are those of the rows themselves."""
    outputs, _ = draw_pairs(24, dtype=np.float32)
    kinds = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    kinds[:2, 1:] = [[0.0], [1.0]]
    chosen = {"a": np.arange(24) % 4, "b": np.arange(24) // 5}
    prompts = {name: kinds[rows] for name, rows in chosen.items()}
    prompts["a"][::8, 1:] *= -1
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Indicator()}
    models = dict.fromkeys(chosen, outputs)
    pairs = cv.Pairs.of_models(models, prompts, **kernels)
    numbers = {name: own.arrays[1] for name, own in pairs.items()}
    assert all(of.shape == (24, 1) for of in numbers.values())
    same = np.concatenate(list(chosen.values()))
    found = np.concatenate(list(numbers.values()))
    np.testing.assert_array_equal(found == found.T, same[:, None] == same[None, :])
    gram_x = gaussian_gram(outputs, 1.0)
    for name, rows in chosen.items():
        gram_t = (rows[:, None] == rows[None, :]).astype(float)
        expected = oracles.scores(gram_x, gram_t, order=order)
        for own in (pairs[name], cv.Pairs(outputs, prompts[name], **kernels)):
            scores = cv.decompose(own, order=order).scores
            for score, value in scores._asdict().items():
                assert_close(value, expected[score], loosened=10)


def test_ids_decide_which_prompts_are_equal():
    """Three prompts that share an embedding, each with one answer that it gives twice."""
    outputs, prompts = np.float32([[0], [0], [1], [1], [2], [2]]), np.ones((6, 4), np.float32)
    kernels = {"output_kernel": cv.Gaussian(0.01), "prompt_kernel": cv.Indicator()}
    for ids, expected in ((None, (3, 1)), (["a", "a", "b", "b", "c", "c"], (1, 3))):
        found = cv.decompose(outputs, prompts, **kernels, order=2, prompt_ids=ids)
        np.testing.assert_allclose((found.conditional, found.information), expected, rtol=1e-6)


def test_ids_match_the_rows_of_several_models():
    outputs, prompts = np.eye(4, dtype=np.float32), np.ones((4, 2), np.float32)
    models = {"A": outputs, "B": outputs[:3]}
    ids = {"A": ["x", "x", "y", "z"], "B": ["z", "w", "x"]}
    prompts = {"A": prompts, "B": prompts[:3]}
    found = cv.Pairs.of_models(models, prompts, **SHARP, key=KEY, prompt_ids=ids)
    assert [own.prompt_ids.tolist() for own in found.values()] == [[0, 0, 1, 2], [2, 3, 0]]
    assert [own.arrays[1][:, 0].tolist() for own in found.values()] == [[0, 0, 1, 2], [2, 3, 0]]


@pytest.mark.parametrize("jitter", [1e-8, 6e-8, 1e-6, 1e-4])
@pytest.mark.parametrize("width", [3, 40])
def test_rows_equal_up_to_rounding_are_one_prompt(jitter, width):
    """Ten prompts, embedded in several batches; in float64, where a jitter of 1e-8 is one."""
    rng = np.random.default_rng(0)
    kinds = np.arange(60) % 10
    rows = rng.normal(size=(10, width))[kinds]
    rows *= 1 + jitter * rng.uniform(-1, 1, size=rows.shape)
    with pytest.warns(UserWarning, match="prompts: 60 different rows are 10 up to rounding.*ids"):
        count, numbers = equal_rows(rows, name="prompts")
    assert count == 10
    np.testing.assert_array_equal(numbers, kinds)


@pytest.mark.parametrize("rows", ["normal", "line", "grid", "far", "clusters"])
def test_rows_that_differ_by_more_than_rounding_stay_apart(rows):
    """Continuous data have close neighbours too, and one far row does not make the rest equal."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(2000, 2))
    data = {
        "normal": normal,
        "line": np.linspace(0, 1, 2000)[:, None] * np.ones(3),
        "grid": np.stack(np.meshgrid(np.arange(40.0), np.arange(50.0)), axis=-1).reshape(-1, 2),
        "far": np.concatenate([normal, [[1e6, 0]]]),
        "clusters": np.eye(4)[np.arange(2000) % 4] + 0.01 * rng.normal(size=(2000, 4)),
    }[rows]
    assert equal_rows(data, name="prompts")[0] == len(data)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="rows of accelerators are checked there")
def test_another_number_of_rows_compiles_no_program(caplog):
    """The checks run on the host, and the probe of the kernels has always as many rows."""

    def make(n):
        outputs, prompts = draw_pairs(n, dtype=np.float32)
        weights = np.arange(n) % 3
        pairs = cv.Pairs(outputs, prompts // 1, **SHARP, weights=weights).supported()
        cv.Pairs(outputs, prompts, **KERNELS).rows(np.arange(5))
        return cv.Pairs.of_models({"a": outputs, "b": jax.device_put(-outputs)}, **ALONE), pairs

    make(N)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        jax.jit(lambda x: x + 1)(np.ones(N))
        assert caplog.text.count("Compiling") == 1
        make(N + 1)
    assert caplog.text.count("Compiling") == 1


@pytest.mark.parametrize("row", [2.0, 0.0, 1e-42, 3e38, np.nan, 2.0**30])
def test_checks_on_the_host_and_on_a_device_agree(row, monkeypatch):
    points = OUTPUTS.copy()
    points[7] = row
    checks = (
        kernels._reach, kernels._without_direction, kernels._bad_labels, bandwidth._identical,
        validation._not_finite, validation._extremes,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        host = [check(points) for check in checks]
        monkeypatch.setattr(devices, "host_view", lambda array: None)
        device = [check(jnp.asarray(points)) for check in checks]
    for one, two in zip(jax.tree.leaves(host), jax.tree.leaves(device), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-37)


# Shapes that people have: five prompts, with four answers each.
COUNT, EACH = 5, 4
RNG = np.random.default_rng(0)
GROUPED = RNG.normal(size=(COUNT, EACH, 3)).astype(np.float32)
ASKED = RNG.normal(size=(COUNT, 2)).astype(np.float32)
NAMES = list("abcde")
ROWS, ASKED_BY_ROW = GROUPED.reshape(-1, 3), np.repeat(ASKED, EACH, axis=0)
ONE = cv.Gaussian(1.0)


def score(outputs, prompts=None):
    """Under `Indicator` where prompts are labels; without prompts RKE."""
    if prompts is None:
        return float(cv.rke(outputs, kernel=ONE))
    labels = np.ndim(prompts) == 1 and np.ndim(prompts[0]) == 0
    kernel = cv.Indicator() if labels else ONE
    return float(cv.conditional_rke(outputs, prompts, output_kernel=ONE, prompt_kernel=kernel))


def plain(outputs, prompts=None):
    """The same in float64 from the definition."""
    x = gaussian_gram(outputs, 1.0)
    if prompts is None:
        return 1 / np.mean(x**2)
    prompts = np.asarray(prompts)
    t = prompts[:, None] == prompts if prompts.ndim == 1 else gaussian_gram(prompts, 1.0)
    return np.sum(t**2) / np.sum((x * t) ** 2)


@pytest.mark.parametrize(
    ("outputs", "prompts"),
    [
        (GROUPED, ASKED),
        (jnp.asarray(GROUPED), ASKED),
        (GROUPED, ASKED_BY_ROW.reshape(COUNT, EACH, 2)),
        (list(GROUPED), list(ASKED)),
        (pd.Series(ROWS.tolist()), pd.Series(list(ASKED_BY_ROW))),
        (pd.DataFrame(ROWS), pd.DataFrame(ASKED_BY_ROW)),
        (xr.DataArray(GROUPED), xr.DataArray(ASKED)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")
def test_shapes_that_are_taken(outputs, prompts):
    assert score(outputs, prompts) == pytest.approx(plain(ROWS, ASKED_BY_ROW), rel=1e-5)


def test_models_of_several_shapes_are_compared():
    models = {"a": GROUPED, "b": 2 * ROWS, "c": list(GROUPED + 1)}
    names = {"a": NAMES, "b": np.repeat(NAMES, EACH), "c": NAMES}
    kernels = {"output_kernel": ONE, "prompt_kernel": cv.Indicator()}
    found = cv.compare(models, names, orders=[2], unbiased=False, **kernels)
    for name, rows in (("a", ROWS), ("b", 2 * ROWS), ("c", ROWS)):
        value = found.ranking("conditional", 2).values[name]
        assert value == pytest.approx(plain(rows, np.repeat(NAMES, EACH)), rel=1e-4)


def mended(outputs, prompts=None):
    """The lines that the error tells to run, each tried from the start: the scores that follow."""
    with pytest.raises((TypeError, ValueError)) as refused:
        score(outputs, prompts)
    lines, together = re.findall(r"`([^`]+)`", str(refused.value)), "then `" in str(refused.value)
    assert lines, refused.value
    found = []
    for each in ["\n".join(lines)] if together else lines:
        names = {"np": np, "outputs": outputs, "prompts": prompts}
        exec(each, names)
        found.append(score(names["outputs"], names["prompts"]))
    return found


BY_NAME = np.repeat(NAMES, EACH)
UNEVEN, COUNTS = [of[:k] for of, k in zip(GROUPED, (4, 2, 3, 4, 1), strict=True)], (4, 2, 3, 4, 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((ROWS, ASKED), [(ROWS, ASKED_BY_ROW)]),
        ((ROWS, NAMES), [(ROWS, BY_NAME)]),
        ((GROUPED, ASKED_BY_ROW), [(ROWS, ASKED_BY_ROW)]),
        ((GROUPED, BY_NAME.tolist()), [(ROWS, BY_NAME)]),
        ((ROWS[:, 0],), [(ROWS[:, :1],)]),
        ((ROWS, ASKED_BY_ROW[:, 0]), [(ROWS, ASKED_BY_ROW[:, :1])]),
        ((UNEVEN, ASKED), [(np.concatenate(UNEVEN), np.repeat(ASKED, COUNTS, axis=0))]),
        ((UNEVEN, NAMES), [(np.concatenate(UNEVEN), np.repeat(NAMES, COUNTS))]),
        (({"name": "a", "rows": ROWS, "label": BY_NAME},), [(ROWS,)]),
        ((xr.Dataset({"k": ("n", BY_NAME), "x": (("n", "d"), ROWS)}), BY_NAME), [(ROWS, BY_NAME)]),
    ],
)
def test_the_line_that_an_error_names_works(given, expected):
    found = mended(*given)
    assert found == pytest.approx([plain(*of) for of in expected], rel=1e-4)


@pytest.mark.parametrize("prompts", [np.zeros((7, 2)), np.zeros((40, 3))])
def test_no_line_is_named_where_none_is_known(prompts):
    with pytest.raises(ValueError, match="must pair up row by row") as refused:
        score(ROWS, prompts)
    assert "`" not in str(refused.value)
    with pytest.raises(ValueError, match="one or k for each prompt, received") as refused:
        score(GROUPED, prompts)
    assert "`" not in str(refused.value)


@pytest.mark.parametrize("empty", [None, float("nan"), "text"])
def test_entries_without_a_vector_are_named_by_row(empty):
    for column in (pd.Series([*ROWS[:3], empty, *ROWS[3:]]), [*ROWS[:3].tolist(), empty]):
        with pytest.raises(ValueError, match=rf"outputs: .* received {empty!r} in row 3: leave"):
            score(column)
    for column in (pd.Series([*ROWS[:3], ROWS[0, :2]]), [*ROWS[:3].tolist(), [1.0, 2.0]]):
        with pytest.raises(ValueError, match="outputs: .* received 3 in row 0, 2 in row 3"):
            score(column)


class OnADevice:
    """A tensor of a device, which NumPy cannot read."""

    requires_grad = False

    def __init__(self, values):
        self.values, self.dtype = values, values.dtype

    def __array__(self, *_, **__):
        raise TypeError("not in the memory of the host")

    def cpu(self):
        return self.values


def test_tensors_of_devices_are_copied_to_the_host():
    assert score(OnADevice(ROWS)) == pytest.approx(plain(ROWS), rel=1e-5)


def test_columns_of_a_hugging_face_data_set():
    datasets = pytest.importorskip("datasets")
    texts = [[f"{'a' * row} {'b' * k}" for k in range(EACH)] for row in range(COUNT)]
    by_prompt = {"x": GROUPED.tolist(), "t": ASKED.tolist(), "name": NAMES, "texts": texts}
    by_row = {"x": ROWS.tolist(), "t": ASKED_BY_ROW.tolist(), "name": BY_NAME.tolist()}
    for content in (by_prompt, by_row):
        data = datasets.Dataset.from_dict(content).with_format("numpy")
        assert score(data["x"], data["t"]) == pytest.approx(plain(ROWS, ASKED_BY_ROW), rel=1e-5)
        kernels = {"output_kernel": ONE, "prompt_kernel": cv.Indicator()}
        found = cv.conditional_rke(data["x"], data["name"], **kernels)
        assert found == pytest.approx(plain(ROWS, BY_NAME), rel=1e-5)
    assert mended(data) == pytest.approx([plain(ROWS)], rel=1e-4)
    data = datasets.Dataset.from_dict(by_prompt)  # Lists, of float64.
    options = {"encoder": Means(), "output_kernel": ONE, "orders": [2], "errors": False}
    found = cv.evaluate(data["texts"], data["name"], **options)
    assert str(found) == str(cv.evaluate(texts, NAMES, **options))
    flat = [text for of in texts for text in of]
    data = datasets.Dataset.from_dict({"texts": flat, "name": BY_NAME.tolist()})
    assert str(found) == str(cv.evaluate(data["texts"], data["name"], **options))
