"""Order 2 in strips: the numbers of `decompose`, interruptions, and files that do not fit."""

import json
from typing import Any

import jax
import numpy as np
import pytest
from oracles import gaussian_gram

import condvendi_jax as cv
from condvendi_jax import files
from condvendi_jax.inference import _plan
from condvendi_jax.scores import _in_strips as in_strips

N, STRIP = 200, 64  # Four strips, the last of eight rows.
SHARES = [0.0, 0.1, 0.3, 0.6, 1.0]  # Of the pairs of strips, 1 + 2 + 3 + 4 of them.


def data(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, 3)).astype(np.float32), rng.normal(size=(N, 2)).astype(np.float32)


KERNELS: dict[str, Any] = {"output_kernel": cv.Gaussian(0.7), "prompt_kernel": cv.Gaussian(0.5)}
OUTPUTS, PROMPTS = data()
NEXT = float(np.nextafter(np.float32(0.7), np.float32(1)))  # Its `repr` is that of 0.7.


class Stop(Exception):
    pass


class Watch:
    """Records the shares, and stops after some calls."""

    def __init__(self, stop_after=None):
        self.shares, self.stop_after = [], stop_after

    def __call__(self, share):
        self.shares.append(share)
        if len(self.shares) == self.stop_after:
            raise Stop


def run(path=None, watch=lambda _: None, *, arrays=(OUTPUTS, PROMPTS), strip=STRIP, **changed):
    options: dict[str, Any] = (
        KERNELS | {"checkpoint": path, "progress": watch, "strip": strip} | changed
    )
    return cv.scores.decompose_in_strips(*arrays, **options)


def oracle(weights=None):
    """The three entropies in float64, by their definition."""
    mass = np.ones(N) if weights is None else np.asarray(weights, float)
    mass = mass / mass.sum()

    x, t = gaussian_gram(OUTPUTS, 0.7) ** 2, gaussian_gram(PROMPTS, 0.5) ** 2
    return [-np.log(mass @ square @ mass) for square in (x, t, x * t)]


@pytest.mark.parametrize("strip", [STRIP, 1, None])
@pytest.mark.parametrize("weights", [None, np.arange(N) % 4])
def test_scores_are_those_of_decompose_and_of_the_definition(strip, weights):
    found = run(strip=strip, weights=weights)
    expected = cv.decompose(OUTPUTS, PROMPTS, **KERNELS, weights=weights, order=2)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-6)
    np.testing.assert_allclose(found.entropies, oracle(weights), rtol=1e-6)
    assert (found.n, found.order, found.method) == (N, 2, expected.method)
    assert found.dtype == expected.dtype


def test_outputs_alone_give_rke():
    found = run(arrays=(OUTPUTS,), prompt_kernel=None)
    expected = cv.decompose(OUTPUTS, output_kernel=KERNELS["output_kernel"], order=2)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-6)
    assert found.entropy_prompts == 0


def test_other_kernels_give_the_scores_of_decompose():
    kernels = {"output_kernel": cv.Cosine() * cv.Gaussian(0.7), "prompt_kernel": cv.Indicator()}
    arrays = OUTPUTS, np.round(PROMPTS)
    expected = cv.decompose(*arrays, **kernels, order=2)
    np.testing.assert_allclose(run(arrays=arrays, **kernels).scores, expected.scores, rtol=2e-6)


def test_memory_maps_are_read(tmp_path):
    np.save(tmp_path / "x.npy", OUTPUTS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert run(arrays=(mapped, PROMPTS)).entropies == run().entropies


def test_progress_is_the_share_of_the_pairs():
    watch = Watch()
    run(watch=watch)
    np.testing.assert_allclose(watch.shares, SHARES)


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_interrupted_call_goes_on_where_it_stopped(tmp_path, calls):
    path, second = tmp_path / "strips.json", Watch()
    with pytest.raises(Stop):
        run(path, Watch(stop_after=calls))
    resumed = run(path, second)
    np.testing.assert_allclose(second.shares, SHARES[calls - 1 :])
    assert resumed.entropies == run().entropies  # Bit by bit.


def test_finished_file_gives_the_result_without_another_strip(tmp_path, monkeypatch):
    path, watch = tmp_path / "strips.json", Watch()
    first = run(path)
    monkeypatch.setattr(in_strips.pairwise, "strip_sums", None)
    assert run(path, watch).entropies == first.entropies
    assert watch.shares == [1.0]


def test_file_is_written_after_each_strip_once_some_seconds_have_passed(tmp_path, monkeypatch):
    path, strips = tmp_path / "strips.json", []

    def record(share):
        if share:
            strips.append(json.loads(path.read_bytes())["strips_done"] if path.exists() else None)

    run(path, record)
    assert strips == [None] * 4  # The seconds have not passed.
    path.unlink()
    monkeypatch.setattr(in_strips, "_BETWEEN_WRITES", 0)
    strips.clear()
    run(path, record)
    assert strips == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "name, changed",
    [
        ("data", {"arrays": data(1)}),
        ("data", {"arrays": (OUTPUTS, data(1)[1])}),
        ("data", {"weights": np.arange(N) % 4 + 1}),
        ("shapes", {"arrays": (OUTPUTS[:-1], PROMPTS[:-1])}),
        ("kernels", {"output_kernel": cv.Gaussian(NEXT)}),
        ("kernels", {"prompt_kernel": cv.Cosine()}),
        ("strip", {"strip": 48}),
    ],
)
def test_file_of_another_computation_is_refused_and_kept(tmp_path, name, changed):
    path = tmp_path / "strips.json"
    run(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"another computation: {name} "):
        run(path, **changed)
    assert path.read_bytes() == before


@pytest.mark.parametrize("field", ["version", "dtype"])
def test_file_of_another_version_or_dtype_is_refused(tmp_path, field):
    path = tmp_path / "strips.json"
    run(path)
    content = json.loads(path.read_bytes())
    del content["checksum"]
    content["of"][field] = "another"
    files.write_report(path, content)
    with pytest.raises(ValueError, match=f"another computation: {field} another there"):
        run(path)


def cut(content):
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        lambda _: b"",
        lambda _: b"\x93NUMPY",
        lambda content: content.replace(b'"strips_done": 4', b'"strips_done": 3'),
        lambda _: json.dumps([1]).encode(),
    ],
)
def test_damaged_file_is_refused_and_kept(tmp_path, damage):
    path = tmp_path / "strips.json"
    run(path)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="or is damaged. Remove it"):
        run(path)
    assert path.read_bytes() == damaged


def test_other_result_of_the_library_is_no_checkpoint(tmp_path):
    path = tmp_path / "scores.json"
    files.write_report(path, {"n": 3})
    with pytest.raises(ValueError, match="is no checkpoint"):
        run(path)


def test_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="expected a file"):
        run(tmp_path)


def test_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    watch = Watch()
    with pytest.raises(OSError):
        run(tmp_path / "missing" / "strips.json", watch)
    assert not watch.shares


@jax.tree_util.register_static
class Plain(cv.Kernel):
    """Without a `repr`: Python shows its address in memory."""

    def __init__(self, bandwidth=1.0):
        self.parts = [bandwidth]

    def __call__(self, x, y):
        return cv.Gaussian(self.parts[0])(x, y)


@jax.tree_util.register_static
class Around(Plain):
    """Holds another kernel without a `repr`."""

    def __init__(self, bandwidth=1.0):
        self.parts = [Plain(bandwidth)]

    def __call__(self, x, y):
        return self.parts[0](x, y)


@pytest.mark.parametrize("kind", [Plain, Around])
def test_kernel_of_the_callers_is_known_in_another_process_by_its_attributes(tmp_path, kind):
    path, watch = tmp_path / "strips.json", Watch()
    options = {"arrays": (OUTPUTS,), "prompt_kernel": None}
    first = run(path, output_kernel=kind(), **options)
    assert run(path, watch, output_kernel=kind(), **options).entropies == first.entropies
    assert watch.shares == [1.0]
    with pytest.raises(ValueError, match="another computation: kernels "):
        run(path, output_kernel=kind(2.0), **options)


def test_rows_over_devices_are_refused():
    with pytest.raises(ValueError, match="rows over several devices"):
        run(mesh=jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",)))


@jax.tree_util.register_static
class Broken(cv.Kernel):
    """NaN beside the last row."""

    def __call__(self, x, y):
        return (x[0] * y[0]) / (x[0] * y[0])


def test_values_that_are_not_finite_stop_the_call_and_keep_what_was_done(tmp_path):
    path, points = tmp_path / "strips.json", np.ones((N, 1), np.float32)
    points[-1] = 0
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="on the rows 192 to 199"):
        run(path, arrays=(points,), output_kernel=Broken(), prompt_kernel=None)
    assert json.loads(path.read_bytes())["strips_done"] == 3


def test_evaluate_shows_the_time_left_and_goes_on(tmp_path):
    path, words = tmp_path / "strips.json", []
    options: dict[str, Any] = KERNELS | {"orders": [2], "errors": False}
    found = cv.evaluate(OUTPUTS, PROMPTS, **options, checkpoint=path, progress=words.append)
    expected = cv.evaluate(OUTPUTS, PROMPTS, **options)
    np.testing.assert_allclose(
        found.order(2).decomposition.scores, expected.order(2).decomposition.scores, rtol=2e-6
    )
    assert words[1:] == ["order 2: 0.0% of the pairs", "order 2: 100.0% of the pairs, 0:00:00 left"]
    words.clear()
    cv.evaluate(OUTPUTS, PROMPTS, **options, checkpoint=path, progress=words.append)
    assert words[1:] == ["order 2: 100.0% of the pairs"]


def test_time_left_follows_from_the_pace_of_this_call(monkeypatch):
    words, times = [], iter([100.0, 110.0])
    monkeypatch.setattr(_plan.time, "monotonic", lambda: next(times))
    show = _plan._with_time_left("order 2", words.append)
    show(0.4)
    show(0.5)  # A tenth in 10 seconds: the other half takes 50.
    assert words == ["order 2: 40.0% of the pairs", "order 2: 50.0% of the pairs, 0:00:50 left"]


@pytest.mark.parametrize(
    "changed", [{"errors": True}, {"orders": [1]}, {"orders": [2, 3]}, {"truncation": 5}]
)
def test_evaluate_refuses_a_checkpoint_of_anything_else(tmp_path, changed):
    options: dict[str, Any] = KERNELS | {"orders": [2], "errors": False} | changed
    with pytest.raises(ValueError, match="checkpoint: expected order 2 alone"):
        cv.evaluate(OUTPUTS, PROMPTS, **options, checkpoint=tmp_path / "strips.json")


def test_transformations_are_refused():
    with pytest.raises(TypeError, match="cannot run inside jax.jit"):
        jax.jit(lambda points: run(arrays=(points, PROMPTS)).vendi)(OUTPUTS)


def test_single_answers_are_left_out_with_a_checkpoint_too(tmp_path):
    prompts = np.repeat(np.arange(9), [3, 3, 2, 4, 1, 3, 1, 3, 4])[:, None]
    outputs = np.random.default_rng(0).normal(size=(len(prompts), 2)).astype(np.float32)
    options = {"output_kernel": KERNELS["output_kernel"], "prompt_kernel": cv.Indicator()}
    options |= {"orders": [2], "errors": False}
    found = cv.evaluate(outputs, prompts, **options, checkpoint=tmp_path / "strips").order(2)
    expected = cv.conditional_rke(
        outputs,
        prompts,
        **{k: options[k] for k in ("output_kernel", "prompt_kernel")},
        unbiased=True,
    )
    np.testing.assert_allclose(found.unbiased.conditional, expected, rtol=1e-6)
    assert found.population.answers.left_out == 2
