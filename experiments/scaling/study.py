"""Who meets whom, on what data and at which n; the rounds, and what a cell records.

A cell is one part of the benchmark on one data set at one n. In every round its contestants are
called in turn, so that what else the machine does meets all of them, and the next cell starts when
all their processes have ended.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import progress

from condvendi_jax import command, files
from experiments import harness
from experiments.scaling.processes import Worker, WorkerError

_SMALLEST = {"order 2": 500, "exact": 500, "measure": 2000}
_SUPERMODES, _MODES = 10, 10
_CHUNK = 65_536
_COLD_STARTS = ("import jax", "import condvendi_jax")
# Without --full the measure takes the real data at this n only.
_REAL_MEASURE_N = 4000


class Entry(NamedTuple):
    """A contestant as the study knows it.

    Attributes:
      module, function: where it is, under `experiments.scaling`.
      power: its time grows as n^power.
      arrays: how many n x n arrays of float32 it holds at the peak.
      package: what must be installed for it.
      once: it is called once only, for its values.
      seeds: it is called once a seed, for its values.
      largest_only: it takes part at the largest n of the mixture only.
      up_to: the largest n at which it takes part.
    """

    module: str
    function: str
    power: int
    arrays: float = 0
    package: str | None = None
    once: bool = False
    seeds: bool = False
    largest_only: bool = False
    up_to: float = math.inf


# The first of each part is what the others are compared with.
CONTESTANTS: dict[str, dict[str, Entry]] = {
    "order 2": {
        "tiles": Entry("engines", "tile_norms", 2),
        "all prefixes": Entry("engines", "all_prefixes", 2, largest_only=True),
        "16 bandwidths": Entry("engines", "many_bandwidths", 2, largest_only=True),
        "value and gradient": Entry("engines", "value_and_gradient", 2, largest_only=True),
        "matrix product": Entry("engines", "matrix_product", 0, largest_only=True),
        "dense JAX": Entry("engines", "dense_norms", 2, arrays=3),
        "dense torch": Entry("peers", "torch_norms", 2, arrays=2, package="torch"),
        "rke-score": Entry("peers", "rke_score", 2, package="rke_score"),
        "float64": Entry("reference", "norms", 2, once=True),
    },
    "exact": {
        "spectrum": Entry("engines", "spectrum", 3, arrays=3),
        "jnp.linalg.eigvalsh": Entry("engines", "eigvalsh", 3, arrays=4),
        "torch.linalg.eigvalsh": Entry("peers", "torch_eigvalsh", 3, arrays=3, package="torch"),
        "vendi_score": Entry("peers", "vendi_score", 3, arrays=3, package="vendi_score"),
        "float64": Entry("reference", "eigenvalues", 3, arrays=5, once=True),
    },
    "measure": {
        "exact": Entry("engines", "exact", 3, arrays=4),
        "stored": Entry("engines", "stored", 2, arrays=3),
        "matrix-free": Entry("engines", "matrix_free", 2),
        "by tolerance": Entry("engines", "by_tolerance", 2, arrays=3, seeds=True),
        "by budget": Entry("engines", "by_budget", 2, arrays=3, seeds=True, up_to=4000),
        "plain SLQ": Entry(
            "peers", "plain_quadrature", 2, arrays=3, package="matfree", seeds=True, up_to=4000
        ),
    },
}
PACKAGES = ("torch", "rke_score", "vendi_score", "matfree")
# Products with the matrix -> how ours spends them, and the splits that plain quadrature may choose
# among (the best in hindsight counts): probes x steps.
BUDGETS = {
    "160": {"block": 12, "sweeps": 8, "probes": 8, "steps": 8},
    "448": {"block": 32, "sweeps": 8, "probes": 16, "steps": 12},
    "1024": {"block": 64, "sweeps": 9, "probes": 28, "steps": 16},
}
SPLITS = {
    "160": [(20, 8), (10, 16)],
    "448": [(56, 8), (28, 16)],
    "1024": [(128, 8), (64, 16)],
}


class DataSet(NamedTuple):
    """Points on disk, float32, in random order, and the bandwidths they are scored with."""

    description: str
    outputs: pathlib.Path
    prompts: pathlib.Path
    n: int
    bandwidths: tuple[float, float]


def write_mixture(
    folder: pathlib.Path, n: int, dimensions: Sequence[int], seed: int
) -> tuple[pathlib.Path, pathlib.Path]:
    """A mixture of mixtures: 10 kinds of prompts of 10 modes each, and what the model adds to them.

    A prompt is its kind, its mode and noise; its output the same kind, a mode of its own and noise.
    The squared distances of two outputs are about 2, 1 and 0.3 within a mode, within a kind and
    between kinds, in the reverse order.

    Args:
      folder: where the two files go.
      n: the number of pairs.
      dimensions: d_x and d_t.
      seed: fixes the centres; the first rows are the same for every n.

    Returns:
      The paths of the outputs `[n, d_x]` and the prompts `[n, d_t]`.
    """
    paths = (folder / "mixture-outputs.npy", folder / "mixture-prompts.npy")
    for role, (path, d) in enumerate(zip(paths, dimensions, strict=True)):
        centres = np.random.default_rng((seed, role))
        kinds = centres.standard_normal((_SUPERMODES, d), np.float32)
        modes = 0.6 * centres.standard_normal((_SUPERMODES * _MODES, d), np.float32)
        points = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for chunk, start in enumerate(range(0, n, _CHUNK)):
            # The same stream for both roles: an output and its prompt are of the same kind.
            shared = np.random.default_rng((seed, 2, chunk))
            own = np.random.default_rng((seed, 3 + role, chunk))
            rows = min(_CHUNK, n - start)
            kind = shared.integers(_SUPERMODES, size=_CHUNK)[:rows]
            mode = kind * _MODES + own.integers(_MODES, size=_CHUNK)[:rows]
            noise = own.standard_normal((rows, d), np.float32)
            points[start : start + rows] = kinds[kind] + modes[mode] + 0.4 * noise
            points[start : start + rows] /= np.float32(math.sqrt(d))
        points.flush()
    return paths


def write_points(
    folder: pathlib.Path, name: str, outputs: np.ndarray, prompts: np.ndarray, seed: int
) -> tuple[pathlib.Path, pathlib.Path]:
    """The pairs in a random order, so that the first n of them are a sample."""
    order = np.random.default_rng(seed).permutation(len(outputs))
    paths = (folder / f"{name}-outputs.npy", folder / f"{name}-prompts.npy")
    for path, points in zip(paths, (outputs, prompts), strict=True):
        np.save(path, np.asarray(points, np.float32)[order])
    return paths


def sizes(part: str, largest: int) -> list[int]:
    """Doubling sizes, ending at `largest`: none lies between half of it and itself."""
    found = [largest]
    size = _SMALLEST[part]
    below = []
    while size <= largest / 2:
        below.append(size)
        size *= 2
    return below + found


def find_peers(wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which of the packages are installed, none of them imported; a line on each that is not."""
    present = [name for name in wanted if importlib.util.find_spec(name) is not None]
    lines = []
    for package in wanted:
        if package not in present:
            names = [
                name
                for entries in CONTESTANTS.values()
                for name, entry in entries.items()
                if entry.package == package
            ]
            lines.append(
                f"{package} is not installed, left out: {', '.join(names)}; "
                "pip install -e '.[bench]' brings it"
            )
    return present, lines


def versions(names: Sequence[str]) -> dict[str, str]:
    """The versions of packages that are installed."""
    distributions = {name: name.replace("_", "-") for name in names}
    return {distributions[name]: importlib.metadata.version(distributions[name]) for name in names}


def truncations(n: int) -> list[int]:
    """A few, a twentieth, and 0.4 n, which is the papers' 10,000 of 25,000."""
    return sorted({min(10, n), max(1, n // 20), max(1, round(0.4 * n))})


class Limits(NamedTuple):
    """What a cell may take.

    Attributes:
      repeats: rounds at most, after the first.
      seeds: calls at most of what is called once a seed.
      patience: seconds; what is expected to take longer for a call is left out.
      enough: seconds; who took that long, in all its calls after the first, is not called again.
      memory: bytes of the device.
    """

    repeats: int
    seeds: int
    patience: float
    enough: float
    memory: int


def choose(
    entries: Mapping[str, Entry],
    n: int,
    limits: Limits,
    earlier: Sequence[Mapping[str, Any]],
    *,
    largest: bool,
    missing: Sequence[str],
) -> tuple[list[str], dict[str, str]]:
    """Who takes part at n, and why the others do not.

    Args:
      entries: the contestants of the part.
      n: the number of points.
      limits: what a cell may take.
      earlier: the records of the same part that are there.
      largest: whether this is the largest n of the mixture.
      missing: the packages that are not installed or not wanted.

    Returns:
      The names of those who take part, and the reason by the name of those left out. Who does not
      belong to this n is in neither.
    """
    taking_part, left_out = [], {}
    for name, entry in entries.items():
        if n > entry.up_to or (entry.largest_only and not largest):
            continue
        needed = 4 * entry.arrays * n * n
        expected = _expected_seconds(name, entry.power, n, earlier)
        if entry.package in missing:
            left_out[name] = f"{entry.package} is not there"
        elif needed > limits.memory:
            left_out[name] = f"needs about {needed / 2**30:.0f} GiB"
        elif expected > limits.patience:
            left_out[name] = f"a call would take about {expected:.0f} s"
        else:
            taking_part.append(name)
    return taking_part, left_out


def _expected_seconds(name: str, power: int, n: int, earlier: Sequence[Mapping[str, Any]]) -> float:
    """What a call should take, by the largest n at which it was timed; 0 where it never was."""
    timed = [record for record in earlier if name in record["results"]]
    if not timed:
        return 0.0
    last = max(timed, key=lambda record: record["n"])
    taken = last["results"][name]["seconds"]
    return statistics.median(taken[1:] or taken) * (n / last["n"]) ** power


def run_cell(
    entries: Mapping[str, Entry],
    cell: Mapping[str, Any],
    limits: Limits,
    advance: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Starts the contestants' processes, compiles one after the other, calls all in turn.

    Args:
      entries: who takes part.
      cell: what the contestants need to know, as plain data.
      limits: what it may take.
      advance: called with the name of whose turn it is.

    Returns:
      The results by name, and the reason by the name of those that failed.
    """
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(entry.module)) for name, entry in entries.items()
        }

        def attempt(name: str, do: str, **arguments: Any) -> Any:
            advance(f"{name}: {do}")
            try:
                return workers[name].request(do, **arguments)
            except WorkerError as error:
                failed[name] = str(error)
                results.pop(name, None)
                return None

        for name, entry in entries.items():
            reply = attempt(name, "prepare", function=entry.function, cell=dict(cell))
            if reply is not None:
                results[name] = reply | {"seconds": [], "values": []}
        round_ = 0
        while due := [n for n in results if _due(entries[n], results[n]["seconds"], limits)]:
            for name in due:
                reply = attempt(name, "run", seed=round_)
                if reply is not None:
                    results[name]["seconds"].append(reply["seconds"])
                    results[name]["values"].append(reply["values"])
            round_ += 1
        for name in list(results):
            reply = attempt(name, "finish")
            if reply is not None:
                results[name] |= reply
    return results, failed


def _due(entry: Entry, seconds: Sequence[float], limits: Limits) -> bool:
    """Whether another call is wanted after calls of these seconds."""
    if not seconds:
        return True
    if entry.once:
        return False
    if entry.seeds:
        return len(seconds) < limits.seeds and sum(seconds[1:]) < limits.enough
    # The first call warms up and counts only where it was long enough to be the last.
    again = len(seconds) <= limits.repeats and seconds[0] < limits.enough
    return again and sum(seconds[1:]) < limits.enough


def cells(
    configuration: Mapping[str, Any], data: Mapping[str, DataSet]
) -> list[tuple[str, str, int]]:
    """Part, data and n of every cell, in the order in which they are measured.

    Args:
      configuration: `parts`, the `largest` n of each, and whether the real data are taken `full`.
      data: the mixture, the real data and the same with narrow bandwidths, by name.
    """
    mixture, real, narrow = data
    found = []
    for part in configuration["parts"]:
        if part == "cold start":
            found.append((part, "none", 0))
            continue
        largest = configuration["largest"][part]
        found += [(part, mixture, n) for n in sizes(part, largest)]
        largest = min(largest, data[real].n)
        if part != "measure":
            found.append((part, real, largest))
            continue
        of_real = sizes(part, largest) if configuration["full"] else [min(largest, _REAL_MEASURE_N)]
        found += [(part, name, n) for name in (real, narrow) for n in of_real]
    return found


def run(
    store: harness.Store, data: Mapping[str, DataSet], memory: int, scratch: pathlib.Path
) -> list[dict[str, Any]]:
    """The records of all cells; those of an interrupted run are read and not measured again.

    Args:
      store: holds the configuration and what is finished.
      data: by name.
      memory: bytes of the device.
      scratch: a folder for what one contestant leaves to another.
    """
    every = cells(store.configuration, data)
    names = ["-".join(map(str, cell)).replace(" ", "_") for cell in every]
    missing = store.missing(names)
    _, saved = harness.load_run(store.folder)
    records: list[dict[str, Any]] = []
    with command.progress_bar() as bar:
        task = bar.add_task("", total=len(every))
        for name, cell in zip(names, every, strict=True):
            if name in missing:
                title = f"{cell[0]}, {cell[1]}, n = {cell[2]:,}"
                earlier = [record for record in records if record["part"] == cell[0]]
                advance = functools.partial(_describe, bar, task, title)
                record = measure(cell, earlier, data, store.configuration, memory, scratch, advance)
                store.save(name, {"record": np.array(json.dumps(files.jsonable(record)))})
            else:
                record = json.loads(str(saved[name]["record"]))
            records.append(record)
            bar.advance(task)
    return records


def _describe(bar: progress.Progress, task: progress.TaskID, title: str, text: str) -> None:
    bar.update(task, description=f"{title}: {text}")


def measure(
    cell: tuple[str, str, int],
    earlier: Sequence[Mapping[str, Any]],
    data: Mapping[str, DataSet],
    configuration: Mapping[str, Any],
    memory: int,
    scratch: pathlib.Path,
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """The record of one cell.

    Args:
      cell: part, data and n.
      earlier: the records of the same part that are there.
      data: by name.
      configuration: of the run.
      memory: bytes of the device.
      scratch: a folder for what one contestant leaves to another.
      advance: called with what is being done.
    """
    part, name, n = cell
    record: dict[str, Any] = {"part": part, "data": name, "n": n}
    if part == "cold start":
        return record | {"results": _cold_starts(configuration["repeats"]), "left_out": {}}
    limits = Limits(
        repeats=configuration["repeats"],
        seeds=configuration["seeds"],
        patience=configuration["patience"],
        enough=configuration["enough"],
        memory=memory,
    )
    taking_part, left_out = choose(
        CONTESTANTS[part],
        n,
        limits,
        earlier,
        largest=name == next(iter(data)) and n == configuration["largest"][part],
        missing=[p for p in PACKAGES if p not in configuration["peers"]],
    )
    points = data[name]
    request = {
        "outputs": str(points.outputs),
        "prompts": str(points.prompts),
        "n": n,
        "bandwidths": list(points.bandwidths),
        "truncations": truncations(n),
        "rtol": configuration["rtol"],
        "budgets": {products: b for products, b in BUDGETS.items() if b["block"] * b["sweeps"] < n},
        "splits": SPLITS,
        "eigenvalues": str(scratch / "eigenvalues.npy"),
    }
    entries = {name: CONTESTANTS[part][name] for name in taking_part}
    results, failed = run_cell(entries, request, limits, advance)
    dimensions = [int(np.load(p, mmap_mode="r").shape[1]) for p in points[1:3]]
    return record | {
        "bandwidths": list(points.bandwidths),
        "dimensions": dimensions,
        "results": results,
        "left_out": left_out | failed,
    }


def _cold_starts(repeats: int) -> dict[str, Any]:
    """Seconds that fresh processes take to import JAX and the library, in turn."""
    results: dict[str, Any] = {name: {"seconds": []} for name in _COLD_STARTS}
    for _ in range(repeats + 1):
        for name in _COLD_STARTS:
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", name], check=True, capture_output=True)
            results[name]["seconds"].append(time.perf_counter() - started)
    return results
