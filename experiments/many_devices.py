"""The scores on many devices: one GPU or eight, a TPU slice, several hosts, or a rehearsal.

Order 2 goes round a ring, order 1 comes from the spectral measure, by rings too or with the matrix
stored in blocks of rows; one device computes the same with the same key beside them.

    python -m experiments.many_devices                       the devices that there are
    python -m experiments.many_devices --devices=8           8 virtual ones of the CPU

Several hosts run the same command each, with its own number; virtual devices rehearse that too:

    python -m experiments.many_devices --coordinator=host0:1234 --num_processes=2 --process_id=0
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from absl import flags
from jax.sharding import Mesh
from rich import console, table

import condvendi_jax as cv
from condvendi_jax import bandwidth, command, sharding, validation
from condvendi_jax.sharding import Layout
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
    options = {
        "output_kernel": cv.Gaussian(widths[0] / 2),
        "prompt_kernel": cv.Gaussian(widths[1] / 2),
        "key": keys[2],
        "rtol": _RTOL.value,
    }
    layout = Layout(mesh, "rows", len(points[0]))
    spread = [_distribute(array, layout) for array in points]
    # Where the rows lie on devices already, they say so themselves; else the mesh is named.
    named = {} if sharding.mesh_of(spread[0]) else {"mesh": mesh}
    ways = {
        "order 2": functools.partial(cv.decompose, *spread, **options, **named, order=2),
        "stored": functools.partial(cv.decompose, *spread, **options, **named, method="stored"),
        "matrix-free": functools.partial(
            cv.decompose, *spread, **options, **named, method="matrix-free"
        ),
    }
    if _COMPARE.value:
        ways |= {
            "order 2, one": functools.partial(cv.decompose, *points, **options, order=2),
            "stored, one": functools.partial(cv.decompose, *points, **options, method="stored"),
        }
    results = {way: _timed(compute) for way, compute in ways.items()}
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


def _distribute(points: np.ndarray, layout: Layout) -> Any:
    """The points on all devices; where their number allows, from what each process has itself."""
    if layout.rows != layout.n:
        return points
    # Real runs read these rows from the host's own files, and no host holds all of them.
    own = np.array_split(points, jax.process_count())[jax.process_index()]
    return jax.make_array_from_process_local_data(layout.sharding, own)


def _timed(function: Callable[[], cv.Decomposition]) -> tuple[cv.Decomposition, float]:
    """The result, and the seconds of a second run: the first compiles."""
    jax.block_until_ready(function())
    start = time.perf_counter()
    return jax.block_until_ready(function()), time.perf_counter() - start


def _report(
    results: Mapping[str, tuple[cv.Decomposition, float]], mesh: Mesh, n: int
) -> table.Table:
    kind = f"{mesh.size} x {mesh.devices.flat[0].device_kind}"
    if jax.process_count() > 1:
        kind += f" of {jax.process_count()} processes"
    report = table.Table(title=f"{n:,} pairs ({_DATA.value}), {kind}", title_justify="left")
    for name in ("way", "conditional", "vendi", "seconds"):
        report.add_column(name, justify="left" if name == "way" else "right", no_wrap=True)
    for way, (result, seconds) in results.items():
        cells = (_cell(result, name) for name in ("conditional", "vendi"))
        report.add_row(way, *cells, f"{seconds:.2f}")
    return report


def _cell(result: cv.Decomposition, name: str) -> str:
    """A score, and half of its interval where it has one."""
    value = f"{float(getattr(result, name)):.6g}"
    if result.estimation is None:
        return value
    low, high = getattr(result.estimation.intervals, name)
    return f"{value} ± {(high - low) / 2:.1g}"


if __name__ == "__main__":
    command.run(main)
