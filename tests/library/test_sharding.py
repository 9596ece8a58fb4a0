"""Sharded Grams: sharded_checks.py on virtual devices and in two processes; what is refused."""

import contextlib
import pathlib
import socket
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw_pairs
from processes import HANG_S, on_devices, started

import condvendi_jax as cv
from condvendi_jax.base import memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import Layout, TiledGram

CHECKS = pathlib.Path(__file__).with_name("sharded_checks.py")


def run(devices, chosen, *environments):
    """Runs some checks in processes; ends all where one fails or hangs: the others would wait.

    What they print is among what pytest shows of this test.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-s", "-p", "no:xdist", "-o", "addopts="]
    command += ["-p", "no:cacheprovider", CHECKS, "-k", chosen]
    options = {"stdout": None, "stderr": None}
    with contextlib.ExitStack() as stack:
        for process in [
            stack.enter_context(started(command, env=on_devices(devices) | environment, **options))
            for environment in environments
        ]:
            assert process.wait(timeout=HANG_S) == 0


@pytest.mark.slow
def test_sharded_grams_pass_their_checks_on_eight_devices():
    run(8, "not processes", {})


@pytest.mark.slow
def test_sharded_grams_pass_their_checks_in_two_processes():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    run(2, "processes", *({"SHARDED_PORT": port, "SHARDED_INDEX": str(k)} for k in range(2)))


@pytest.fixture
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))


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
    kernels, layout = (cv.Gaussian(0.7), cv.Gaussian(0.5)), Layout(mesh, "rows", 5)
    gathered = Pairs.trusted(padded, kernels, n=5, layout=layout).gathered()
    assert gathered.layout is None
    for found, expected in zip(gathered.arrays, pairs, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert gathered.gathered() is gathered
