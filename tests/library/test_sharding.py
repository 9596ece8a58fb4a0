"""Sharded Grams against NumPy: sharded_runs.py on virtual devices and in two processes."""

import contextlib
import fcntl
import os
import pathlib
import socket
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import sharded_runs as runs
from oracles import assert_close, cosine_gram, draw_pairs, eigenvalues, gaussian_grams, scores
from processes import HANG_S, on_devices, started
from scipy.spatial.distance import cdist

import condvendi_jax as cv
from condvendi_jax.base import memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import Layout, TiledGram


def start(devices, *arguments):
    # The helpers of the tests are in the folder above.
    paths = [str(pathlib.Path(runs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = on_devices(devices) | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return started([sys.executable, runs.__file__, *map(str, arguments)], env=environment)


def finish(*commands):
    """Waits for all; ends all where one fails or hangs, since the others would wait for it."""
    with contextlib.ExitStack() as stack:
        for process in [stack.enter_context(command) for command in commands]:
            _, errors = process.communicate(timeout=HANG_S)
            assert process.returncode == 0, errors


def load(path):
    with np.load(path) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder that all workers of one run of pytest have in common."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@contextlib.contextmanager
def one_at_a_time(path):
    """Lets the worker that comes first measure, and the others wait for its result."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def found(shared):
    """Everything measured on 8 virtual devices."""
    path = shared / "sharding-devices.npz"
    with one_at_a_time(shared / "sharding-devices.lock"):
        if not path.exists():
            finish(start(runs.DEVICES, "devices", path))
    return load(path)


@pytest.fixture(scope="module")
def of_processes(shared):
    """What each of two processes found, on two devices of each."""
    paths = [shared / f"sharding-{index}.npz" for index in range(runs.PROCESSES)]
    with one_at_a_time(shared / "sharding-processes.lock"):
        if not all(path.exists() for path in paths):
            with socket.socket() as probe:
                probe.bind(("localhost", 0))
                port = probe.getsockname()[1]
            finish(*(start(runs.DEVICES_EACH, "process", p, port, k) for k, p in enumerate(paths)))
    return [load(path) for path in paths]


def oracle_grams(n=runs.N, kernel="gaussian"):
    pairs = draw_pairs(n, **runs.DIMENSIONS)
    x, t = gaussian_grams(pairs, runs.BANDWIDTHS)
    return cosine_gram(pairs[0]) if kernel == "cosine" else x, t


def part(found, prefix):
    return {k[len(prefix) + 1 :]: v for k, v in found.items() if k.startswith(prefix + "/")}


def assert_right(values, n, count, *, kernel="gaussian", dtype="float64"):
    """All results for one pair of Grams, and that the padding is zero."""
    x, t = oracle_grams(n, kernel)
    rows, joint = -(-n // count) * count, x * t
    product = joint @ runs.vectors(n) / n
    assert {value.dtype.name for value in values.values()} == {dtype}
    assert_close(values["norms"], [np.mean(k**2) for k in (x, t, joint)])
    assert_close(values["stored norm"], np.mean(joint**2))
    beside = np.sum((joint / n - runs.vectors(n) @ runs.vectors(n).T) ** 2, axis=1)
    for name in ("beside", "stored beside"):
        assert_close(values[name][:n], beside)
        assert not values[name][n:].any()
    assert_close(values["matrix"][:n, :n], joint)
    assert values["matrix"].shape == (rows, rows)
    assert not values["matrix"][n:].any()
    assert not values["matrix"][:, n:].any()
    for name in ("product", "stored product"):
        assert values[name].shape == (rows, 3)
        assert_close(values[name][:n], product)
        assert not values[name][n:].any()


@pytest.mark.slow
@pytest.mark.parametrize("case", runs.CASES)
def test_sharded_grams_are_those_of_numpy(case, found):
    count, n, kernel, dtype = runs.CASES[case]
    values = part(found, f"cases/{case}")
    assert_right(values, n, count, kernel=kernel, dtype=dtype)
    assert (np.diag(values["matrix"])[:n] == 1).all()


@pytest.mark.slow
def test_every_way_to_say_where_points_are_gives_what_numpy_does(found):
    """Meshes with explicit axes or two, features, vectors of n."""
    (x, t), cosine = oracle_grams(), oracle_grams(kernel="cosine")[0]
    columns = runs.vectors(runs.N)
    expected = {
        "explicit mesh": np.mean(x**2),
        "two axes": (x * t) @ columns / runs.N,
        "cosine eigenvalues": eigenvalues(cosine),
        "cosine product": cosine @ columns / runs.N,
        "eigenvalues": eigenvalues(x),
        "vector of n": x @ columns[:, 0] / runs.N,
    }
    for name in ("eigenvalues", "vector of n"):
        expected[f"stored {name}"] = expected[name]
    for name, values in expected.items():
        own = found[f"meshes/{name}"]
        assert_close(own[: runs.N] if np.ndim(values) else own, values)
    assert not found["meshes/cosine product"][runs.N :].any()
    assert_close(found["meshes/mixed product"][: runs.N, : runs.N], x * cosine)


def norm_gradient(weights, points, bandwidth):
    """d sum_ij K_ij^2 w_ij / n^2 in the points and in the bandwidth, for K_ij^2 w_ij given."""
    n = len(points)
    pull = weights.sum(axis=1)[:, None] * points - weights @ points
    squares = cdist(points, points, "sqeuclidean")
    in_bandwidth = 2 * np.sum(weights * squares) / bandwidth**3 / n**2
    return -4 * pull / bandwidth**2 / n**2, in_bandwidth


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 4])
def test_gradients_are_those_of_the_formulas(count, found):
    """In points and bandwidths, where the last hop is whole (3 devices) and divided (4)."""
    values = part(found, f"gradients/{count}")
    pairs = draw_pairs(runs.N, **runs.DIMENSIONS)
    x, t = oracle_grams()
    of_x, of_t, of_joint = runs.COTANGENT
    squares = (of_x * x**2 + of_joint * (x * t) ** 2, of_t * t**2 + of_joint * (x * t) ** 2)
    for k, name in enumerate(("outputs", "prompts")):
        in_points, in_bandwidth = norm_gradient(squares[k], pairs[k], runs.BANDWIDTHS[k])
        np.testing.assert_allclose(values[name], in_points, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(values["bandwidths"][k], in_bandwidth, rtol=1e-9)
    alone = found["gradients/prompts alone"]
    np.testing.assert_allclose(alone, values["prompts"], rtol=1e-9, atol=1e-14)


SQUARE = runs.COMPILED_N**2
BLOCK = SQUARE // runs.DEVICES


@pytest.mark.slow
def test_the_compiled_rings_hold_no_block_of_the_matrix_and_gather_nothing(found):
    compiled = part(found, "compiled")
    # A block of rows, padded to whole tiles, of at most 5 columns.
    rows = runs.COMPILED_N // runs.DEVICES + runs.TILE
    block = 5 * rows
    for name in ("norms", "gradient", "product"):
        largest, gathered, passed = compiled[name]
        assert largest < BLOCK / 50, name
        assert gathered == 0, name
        assert 0 < passed <= block, name
    for name in ("matrix-free space", "matrix-free lanczos"):
        # The vectors of the recurrences are the largest that there is, and they are sharded.
        assert compiled[name][0] <= max(4096, runs.CAPACITY * 3 * rows), name
        assert compiled[name][1] == 0, name


@pytest.mark.slow
def test_the_compiled_stored_gram_gathers_vectors_only(found):
    compiled = part(found, "compiled")
    vectors = runs.COMPILED_N * 3
    # The control: a reader of compiled text that finds no block here would find none anywhere.
    for name in ("stored product", "store", "stored space", "stored lanczos"):
        assert compiled[name][0] == BLOCK, name
    for name in ("stored product", "stored space", "stored lanczos"):
        assert compiled[name][1] == vectors, name
    assert compiled["store"][1] <= 5 * runs.COMPILED_N  # The points.


@pytest.mark.slow
@pytest.mark.parametrize("index", range(runs.PROCESSES))
def test_each_process_may_bring_its_own_rows(index, of_processes):
    pairs = (p[:200] for p in draw_pairs(runs.N, **runs.DIMENSIONS))
    grams = gaussian_grams(pairs, runs.BANDWIDTHS)
    joint = grams[0] * grams[1]
    values = part(of_processes[index], "parts")
    assert_close(values["norms"], [np.mean(k**2) for k in (*grams, joint)])
    assert_close(values["matrix"], joint)
    assert_close(values["product"], joint @ runs.vectors(200) / 200)


@pytest.mark.slow
def test_the_scores_on_a_mesh_are_those_of_one_device(found):
    np.testing.assert_allclose(found["mesh/scores"], found["one device/scores"], rtol=1e-8)
    assert found["mesh/n"] == runs.SCORED_N
    exact = [oracle_scores(runs.SCORED_N, order=order) for order in (2, 1, 1)]
    np.testing.assert_allclose(found["mesh/scores"][0], exact[0], rtol=1e-10)
    np.testing.assert_allclose(found["mesh/scores"][1:], exact[1:], rtol=0.02)


@pytest.mark.slow
def test_weighted_rows_on_a_mesh_score_as_on_one_device(found):
    for name in ("scores", "errors", "rows", "slope"):
        one, mesh = (found[f"weighted/{where}/{name}"] for where in ("one device", "mesh"))
        assert np.nanmax(np.abs(one)) > 1e-4  # Some errors are withheld.
        np.testing.assert_allclose(mesh, one, rtol=1e-7, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_the_errors_on_a_mesh_are_those_of_one_device(found):
    assert (found["errors/mesh"] > 0).all()
    np.testing.assert_allclose(found["errors/mesh"], found["errors/one device"], rtol=1e-8)


def oracle_scores(n, *, order):
    pairs = (p[:n] for p in draw_pairs(runs.SCORED_N, **runs.DIMENSIONS))
    grams = gaussian_grams(pairs, runs.BANDWIDTHS)
    return list(scores(*grams, order=order).values())


@pytest.mark.slow
@pytest.mark.parametrize("index", range(runs.PROCESSES))
def test_the_scores_in_two_processes(index, found, of_processes):
    """Of arrays that every host has, and of arrays of which each has its own rows."""
    values = of_processes[index]
    np.testing.assert_allclose(values["host/scores"], found["one device/scores"], rtol=1e-8)
    assert (values["host/n"], values["global/n"]) == (runs.SCORED_N, 600)
    np.testing.assert_allclose(values["global/scores"][0], oracle_scores(600, order=2), rtol=1e-10)
    np.testing.assert_allclose(values["global/scores"][1], oracle_scores(600, order=1), rtol=0.02)


@pytest.fixture
def mesh():
    return runs.lines(1)


def test_what_does_not_fit_together_is_refused(mesh, monkeypatch):
    points = np.ones((4, 2), np.float32)
    kernel, layout = cv.Gaussian(1.0), Layout(mesh, "rows", 4)
    gram = TiledGram.from_points(kernel, points, layout=layout)
    shorter = TiledGram.from_points(kernel, points[:3], layout=Layout(mesh, "rows", 3))
    with pytest.raises(TypeError):
        gram * 2.0
    other, both = cv.gram(kernel, points), (gram, gram.store())
    monkeypatch.setattr(memory, "limit", lambda: 10)
    for either in both:
        with pytest.raises(ValueError, match="same number of points, received 4 and 3"):
            either * shorter
        with pytest.raises(ValueError, match="expected another"):
            other * either
        with pytest.raises(ValueError, match="need about"):
            either.eigenvalues()


def test_gathered_points_are_on_one_device_without_padding(mesh):
    pairs = tuple(map(jnp.asarray, draw_pairs(5, dtype=np.float32)))
    padded = tuple(jnp.pad(array, ((0, 3), (0, 0))) for array in pairs)
    points = Pairs.trusted(padded, runs.kernels(), n=5, layout=Layout(mesh, "rows", 5))
    gathered = points.gathered()
    assert gathered.layout is None
    for found, expected in zip(gathered.arrays, pairs, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert gathered.gathered() is gathered
