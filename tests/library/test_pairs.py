"""The data of a call: what makes a `Pairs`, and what functions of pairs take in its place."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import assert_close, draw_pairs

import condvendi_jax as cv
from condvendi_jax.base import checks as validation
from condvendi_jax.base import devices
from condvendi_jax.base.checks import equal_rows
from condvendi_jax.data import bandwidth, kernels

KERNELS = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.9)}
ALONE = {"output_kernel": cv.Gaussian(0.8)}
KEY = jax.random.key(0)
N = 40


def test_pairs_and_what_makes_them_give_the_same_score():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    pairs = cv.Pairs(outputs, prompts, **KERNELS)
    for score in (cv.conditional_rke, cv.information_rke):
        assert float(score(pairs)) == float(score(outputs, prompts, **KERNELS))
    alone = cv.rke(cv.Pairs(outputs, output_kernel=KERNELS["output_kernel"]))
    assert_close(cv.rke(outputs, kernel=KERNELS["output_kernel"]), alone)
    assert_close(cv.rke(pairs), alone)


def test_a_rule_chooses_the_bandwidth_of_every_kernel_that_is_missing():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    pairs = cv.Pairs(outputs, prompts, prompt_kernel=cv.Cosine(), rule="median", key=KEY)
    expected = cv.bandwidth_by_rule(outputs, "median", key=jax.random.fold_in(KEY, 0)).bandwidth
    assert float(pairs.kernels[0].bandwidth) == pytest.approx(expected)
    assert pairs.bandwidths["outputs"].rule == "median distance"
    assert pairs.bandwidths["prompts"].bandwidth is None


def test_models_share_kernels_and_keep_their_rows():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    models = {"a": outputs, "b": 2 * outputs[::-1]}
    found = cv.Pairs.of_models(models, prompts, rule="median", key=KEY)
    assert [*found] == ["a", "b"]
    a, b = found.values()
    assert float(a.kernels[0].bandwidth) == float(b.kernels[0].bandwidth)
    assert a.arrays[1] is b.arrays[1]
    rows = np.asarray(b.arrays[0])
    np.testing.assert_allclose(rows[0] - rows[1], 2 * (outputs[-1] - outputs[-2]), rtol=1e-5)
    pooled = np.concatenate([*models.values()])
    expected = cv.bandwidth_by_rule(pooled, "median", key=jax.random.fold_in(KEY, 0)).bandwidth
    assert float(a.kernels[0].bandwidth) == pytest.approx(expected)


def test_models_of_different_lengths_under_given_kernels_need_no_key():
    models = {"a": np.zeros((2, 1), np.float32), "b": np.zeros((3, 1), np.float32)}
    found = cv.Pairs.of_models(models, output_kernel=cv.Gaussian(1.0))
    assert {name: pairs.n for name, pairs in found.items()} == {"a": 2, "b": 3}


def test_models_far_from_the_origin_are_moved_by_the_same_row():
    """Cast to float32 by themselves, their rows could not be compared with each other."""
    outputs = np.arange(6.0)[:, None] + 2.0**40
    models = {"a": outputs, "b": outputs + 1}
    with pytest.warns(UserWarning, match="computed in float32"):
        found = cv.Pairs.of_models(models, output_kernel=cv.Gaussian(1.0))
    a, b = (np.asarray(pairs.arrays[0]) for pairs in found.values())
    np.testing.assert_array_equal(b - a, np.ones((6, 1), np.float32))


COSINE = {"output_kernel": cv.Cosine()}
REFUSED = {
    "output_kernel: expected a kernel": lambda x, t, p: cv.Pairs(x),
    "prompt_kernel: expected beside prompts": lambda x, t, p: cv.Pairs(x, t, **COSINE),
    "prompts: expected beside": lambda x, t, p: cv.Pairs(x, **KERNELS),
    "rule: expected one of": lambda x, t, p: cv.Pairs(x, rule="mean", key=KEY),
    "key: expected a random key": lambda x, t, p: cv.Pairs(x, rule="median"),
    "kernel: expected a kernel": lambda x, t, p: cv.rke(x, kernel=3),
    "kernel: received beside output_kernel": lambda x, *_: cv.rke(x, kernel=cv.Cosine(), **COSINE),
    "expected Pairs alone": lambda x, t, p: cv.decompose(p, **KERNELS),
    "rke: unknown keyword bandwidth; .*cv.Gaussian": lambda x, t, p: cv.rke(x, bandwidth=1),
    "models: expected the outputs": lambda x, t, p: cv.Pairs.of_models({}),
    "outputs: expected one dimension for all models": (
        lambda x, t, p: cv.Pairs.of_models({"a": x, "b": x[:, :1]}, **COSINE)
    ),
    "b: outputs: expected finite numbers": (
        lambda x, t, p: cv.Pairs.of_models({"a": x, "b": x * np.nan}, **COSINE)
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_makes_no_pairs_is_refused(words):
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    with pytest.raises((TypeError, ValueError), match=words):
        REFUSED[words](outputs, prompts, cv.Pairs(outputs, prompts, **KERNELS))


class _Labels(list):
    """What an index of pandas has."""

    def equals(self, other):
        return self == other


class _Frame:
    """What a DataFrame or a Series has: rows, and a label for each."""

    def __init__(self, values, labels):
        self.values, self.index = values, _Labels(labels)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


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
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    ordered, numbers = np.arange(N).tolist(), np.arange(N) % 4
    x, shuffled = _Frame(outputs, ordered), ordered[::-1]
    with pytest.raises(ValueError, match="expected the index of outputs, .*received .39, 38, 37"):
        call(x, _Frame(prompts, shuffled), _Frame(numbers, shuffled))
    score = cv.decompose(x, _Frame(prompts, ordered), **KERNELS).conditional
    assert float(score) == float(cv.decompose(outputs, prompts, **KERNELS).conditional)


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
    gram_x = oracles.gaussian_gram(outputs, 1.0)
    for name, rows in chosen.items():
        gram_t = (rows[:, None] == rows[None, :]).astype(float)
        expected = oracles.scores(gram_x, gram_t, order=order)
        for own in (pairs[name], cv.Pairs(outputs, prompts[name], **kernels)):
            scores = cv.decompose(own, order=order).scores
            for score, value in scores._asdict().items():
                assert_close(value, expected[score], loosened=10)


SHARP = {"output_kernel": cv.Gaussian(0.3), "prompt_kernel": cv.Indicator()}


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


def test_ids_without_prompts_are_refused():
    with pytest.raises(ValueError, match="prompt_ids: received some, and there are no prompts"):
        cv.Pairs(np.eye(3), output_kernel=cv.Indicator(), prompt_ids=[0, 1, 2])
    with pytest.raises(ValueError, match="prompt_ids: expected 3 labels"):
        cv.Pairs(np.eye(3), np.eye(3), **SHARP, prompt_ids=[0, 1])


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
    points = draw_pairs(N, dtype=np.float32)[0]
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
