"""The scores on many devices: one GPU or eight, a TPU slice, several hosts, or a rehearsal.

Order 2 goes round a ring, order 1 comes from the spectral measure, by rings too or with the matrix
stored in blocks of rows; one device computes the same with the same key beside them.

    python -m experiments.many_devices                       the devices that there are
    python -m experiments.many_devices --devices=8           8 virtual ones of the CPU

Several hosts run the same command each, with its own number; virtual devices rehearse that too:

    python -m experiments.many_devices --coordinator=host0:1234 --num_processes=2 --process_id=0
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jax.sharding import Mesh
from rich import console, table

import condvendi_jax as cv
from condvendi_jax import bandwidth, command, validation
from condvendi_jax.estimators import Estimate, spectral_measure
from condvendi_jax.grams import Gram
from condvendi_jax.sharding import Layout, ShardedGram
from experiments.data import load

MODES, DIMENSIONS = 40, (64, 32)

_DEVICES = flags.DEFINE_integer("devices", None, "Virtual CPU devices instead of what there is.")
_N = flags.DEFINE_integer("n", 4000, "How many pairs.")
_DATA = flags.DEFINE_enum("data", "mixture", ["mixture", "emoji"], "What is scored.")
_SEED = flags.DEFINE_integer("seed", 0, "Every random choice derives from it.")
_RTOL = flags.DEFINE_float("rtol", 5e-3, "How wide an interval of order 1 may be, relatively.")
_COMPARE = flags.DEFINE_bool("compare", True, "Whether to compute it all on one device too.")
_COORDINATOR = flags.DEFINE_string("coordinator", None, "host:port of process 0.")
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes there are.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this one is.")


def main(_: list[str]) -> None:
    """Connects the processes, scores, and prints the table in the first of them."""
    _connect()
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    points = _data(validation.check_count(_N.value, name="--n", minimum=2))
    keys = jax.random.split(jax.random.key(_SEED.value), 3)
    widths = [bandwidth.median_heuristic(p, key=k) for p, k in zip(points, keys[:2], strict=True)]
    kernels = [cv.Gaussian(width / 2) for width in widths]
    layout = Layout(mesh, "rows", len(points[0]))
    sharded = [
        ShardedGram.from_points(kernel, _distribute(array, layout), layout=layout)
        for kernel, array in zip(kernels, points, strict=True)
    ]
    ways: dict[str, Sequence[Gram]] = {
        "ring": sharded,
        "stored": [gram.store() for gram in sharded],
    }
    if _COMPARE.value:
        pairs = zip(kernels, points, strict=True)
        ways["one device"] = [cv.TiledGram.from_points(k, jnp.asarray(p)) for k, p in pairs]
    results = {way: _scores(pair, keys[2]) for way, pair in ways.items()}
    if jax.process_index() == 0:
        console.Console().print(_report(results, mesh, len(points[0])))


def _connect() -> None:
    """Makes the devices, before anything asks for them."""
    if _DEVICES.value is not None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", _DEVICES.value)
    others = {"--num_processes": _NUM_PROCESSES.value, "--process_id": _PROCESS_ID.value}
    missing = [name for name, value in others.items() if value is None]
    if _COORDINATOR.value is None:
        if len(missing) < len(others):
            raise ValueError("--coordinator: several processes need the address of the first.")
        return
    if missing:
        raise ValueError(f"{' and '.join(missing)}: expected beside --coordinator.")
    jax.distributed.initialize(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)


def _data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and prompts of n pairs: the shipped emoji, or a mixture whose prompts name a mode."""
    generator = np.random.default_rng(_SEED.value)
    if _DATA.value == "emoji":
        data = load("emoji")
        chosen = generator.permutation(len(data))[:n]
        return data.outputs[chosen], data.prompts[chosen]
    mode = generator.integers(MODES, size=n)
    outputs, prompts = (
        generator.normal(size=(MODES, d))[mode] + 0.3 * generator.normal(size=(n, d))
        for d in DIMENSIONS
    )
    return outputs.astype(np.float32), prompts.astype(np.float32)


def _distribute(points: np.ndarray, layout: Layout) -> jax.Array:
    """The points on all devices; where their number allows, from what each process has itself."""
    if layout.rows != layout.n:
        return layout.shard(points)
    # Real runs read these rows from the host's own files, and no host holds all of them.
    own = np.array_split(points, jax.process_count())[jax.process_index()]
    return jax.make_array_from_process_local_data(layout.sharding, own)


def _scores(pair: Sequence[Gram], key: jax.Array) -> dict[str, tuple[float, float, float]]:
    """Value, half of its interval and seconds of every score."""
    all_three = (*pair, pair[0] * pair[1])

    def order_two() -> Mapping[str, tuple[float, float]]:
        of_x, of_t, of_joint = map(float, _norms(*pair))
        return {"RKE": (1 / of_x, 0), "Conditional-RKE": (of_t / of_joint, 0)}

    def order_one() -> Mapping[str, tuple[float, float]]:
        of_x, of_t, of_joint = (
            spectral_measure(gram, key=key, rtol=_RTOL.value).entropy() for gram in all_three
        )
        return {"Vendi": _exponential(of_x), "Conditional-Vendi": _exponential(of_joint - of_t)}

    return {
        name: (*values, seconds)
        for compute in (order_two, order_one)
        for found, seconds in [_timed(compute)]
        for name, values in found.items()
    }


@jax.jit
def _norms(outputs: Gram, prompts: Gram) -> tuple[jax.Array, ...]:
    return outputs.squared_norms_with(prompts)


def _exponential(entropy: Estimate) -> tuple[float, float]:
    """exp(H) and half of its interval, to first order."""
    value = float(np.exp(entropy.value))
    return value, value * entropy.half_width


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the seconds of a second run: the first compiles."""
    function()
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def _report(results: Mapping[str, Any], mesh: Mesh, n: int) -> table.Table:
    kind = f"{mesh.size} x {mesh.devices.flat[0].device_kind}"
    if jax.process_count() > 1:
        kind += f" of {jax.process_count()} processes"
    report = table.Table(title=f"{n:,} pairs ({_DATA.value}), {kind}", title_justify="left")
    for name in ("score", "way"):
        report.add_column(name, no_wrap=True)
    for name in ("value", "within", "seconds"):
        report.add_column(name, justify="right", no_wrap=True)
    for score in next(iter(results.values())):
        for way, scores in results.items():
            value, half, seconds = scores[score]
            within = f"{half:.1g}" if half else "rounding"
            report.add_row(score, way, f"{value:.6g}", within, f"{seconds:.2f}")
    return report


if __name__ == "__main__":
    command.run(main)
