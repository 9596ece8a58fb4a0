"""How time and traffic grow with the number of processes, each of one thread, on this machine."""

import functools
import math
import multiprocessing
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec

import condvendi_jax as cv
from condvendi_jax.grams import Layout, SharedTiles, TiledGram
from condvendi_jax.spectra import Budget, krylov, spectral_measure
from experiments import lab
from experiments.data import mixture
from experiments.lab import tables

DIMENSIONS = 768, 512  # Of outputs and prompts.
WAYS = ("order 2", "spectral")
COLLECTIVES = ("all-gather", "all-reduce", "collective-permute")
_BANDWIDTH = 0.7
_BUDGET = Budget()  # 512 products, whatever the number of processes.
_SIZES = 2**6, 2**21  # Numbers that the network is measured with.
# Of what is extrapolated: pairs, hosts, bits a second, seconds a message.
FAR, HOSTS = {"order 2": 10**6, "spectral": 10**5}, (4, 16, 64)
LINKS, LATENCY = {"10 Gbit/s": 1e10, "100 Gbit/s": 1e11}, 5e-5
# Read when a process starts: threads of NumPy and of XLA.
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


class ManyProcesses(lab.Study):
    """What do several processes gain, and what do they send each other?"""

    name = "many_processes"
    duration = "5 minutes"
    data = None

    n: int = lab.flag(8192, "Pairs, with the largest number of processes.", at_least=1024)
    processes: tuple[int, ...] = lab.flag((1, 2, 4), "How many processes.", at_least=1)
    repeats: int = lab.flag(5, "Calls, of which the fastest counts.", at_least=1)

    def prepare(self, load, seed):
        """Nothing is drawn here: each process draws its pairs."""
        if max(self.processes) == 1:
            raise ValueError("--processes: expected a number above 1, to compare with one process.")
        return self.ready(processes=tuple(sorted({1, *self.processes})))

    def cells(self):
        """The network; every way with n pairs, and with n^2 / P fixed."""
        most = self.processes[-1]
        found = []
        for count in self.processes:
            weak = round(self.n * math.sqrt(count / most))
            sizes = [("network", 0)] if count > 1 else []
            sizes += [(way, n) for way in WAYS for n in dict.fromkeys((self.n, weak))]
            found += [lab.Cell((("way", w), ("n", n), ("processes", count))) for w, n in sizes]
        return found

    def compute(self, state, context, *, way, n, processes):
        """Starts the processes, each limited to one thread, and collects what they measured.

        `wall` is of the slowest process, `busy` the CPU seconds of the busiest; `sent` are bytes
        that one process sends, by kind, `messages` its calls; `loopback` all bytes on the wire.
        """
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            address = f"localhost:{probe.getsockname()[1]}"
        measure = functools.partial(_measure, address, processes, way, n, self.repeats)
        spawn = multiprocessing.get_context("spawn")
        with (
            mock.patch.dict(os.environ, _ONE_THREAD),
            ProcessPoolExecutor(processes, mp_context=spawn) as pool,
        ):
            parts = list(pool.map(measure, range(processes)))
        kinds = {"kind": list(COLLECTIVES)}
        if way == "network":
            worst = np.max([part["busy"] for part in parts], axis=0)
            rate = (worst[:, 1] - worst[:, 0]) / np.diff([4 * size for size in _SIZES])
            sent = [_sent(kind, 1.0, processes) for kind in COLLECTIVES]
            values = {"call": ("kind", worst[:, 0]), "byte": ("kind", rate / sent)}
            return xr.Dataset(values, kinds)
        values = {name: max(part[name] for part in parts) for name in ("wall", "busy")}
        first = parts[0]
        by_kind = {name: ("kind", first[name]) for name in ("sent", "messages")}
        return xr.Dataset(values | by_kind | {"loopback": first["loopback"]}, kinds)

    def tables(self, run):
        """What was measured, beside the model; then the model of many hosts."""
        yield tables.table(measured(run.found), rows=("way", "n", "processes"), columns="of")
        yield tables.table(extrapolated(run.found), rows=("way", "hosts"), columns="of")


def _arithmetic(found: xr.Dataset, n: xr.DataArray, processes: xr.DataArray) -> xr.DataArray:
    """CPU seconds of each process without traffic, by the two runs of one process: a + b n^2 / P.

    The small eigenproblems of the spectral measure, a, are solved by every process.
    """
    alone = found.busy.sel(way=list(WAYS), processes=1, drop=True).where(found.n > 0, drop=True)
    less, more = (alone.sel(n=size(alone.n), drop=True) for size in (min, max))
    rate = (more - less) / (int(max(alone.n)) ** 2 - int(min(alone.n)) ** 2)
    return more + rate * (n**2 / processes - int(max(alone.n)) ** 2)


def measured(found: xr.Dataset) -> xr.Dataset:
    """Times, gains, traffic and the model of every way, with axis `of`.

    The model adds to `_arithmetic` what each message and each byte took by itself.
    """
    ways, network = found.sel(way=list(WAYS)), found.sel(way="network", n=0, drop=True)
    there = ways.busy.notnull()
    sending = ways.messages * network.call + ways.sent * network.byte
    columns = {
        "wall, s": ways.wall,
        "busiest process, CPU s": ways.busy,
        "model, CPU s": _arithmetic(found, ways.n, ways.processes) + sending.sum("kind"),
        "gain": _arithmetic(found, ways.n, xr.ones_like(ways.processes)) / ways.busy,
        "MB sent by each": ways.sent.sum("kind") / 1e6,
        "MB on the wire / P": ways.loopback / 1e6 / ways.processes,
        "messages": ways.messages.sum("kind"),
    }
    return _labelled({name: values.where(there) for name, values in columns.items()})


def extrapolated(found: xr.Dataset) -> xr.Dataset:
    """Seconds on many hosts, each as fast as one process here, with axis `of`.

    What a ring of hosts passes on is n / 2 rows in hosts / 2 hops. What is gathered grows with n,
    what is summed does not; both take a step for every other host, sums two.
    """
    n, most = int(found.n.max()), int(found.processes.max())
    ours = found.sel(way=list(WAYS), n=n, drop=True)
    hosts = xr.DataArray(list(HOSTS), {"hosts": list(HOSTS)}, "hosts")
    grows = xr.DataArray([FAR[way] / n for way in WAYS], {"way": list(WAYS)}, "way")
    share = (1 - 1 / hosts) / (1 - 1 / most)

    def by_kind(*factors: xr.DataArray) -> xr.DataArray:
        return xr.concat(xr.broadcast(*factors), xr.Variable("kind", list(COLLECTIVES)))

    each = ours.sel(processes=most, drop=True)
    volume = (each.sent * by_kind(grows * share, share, grows)).sum("kind")
    steps = (each.messages * by_kind(hosts - 1, 2 * (hosts - 1), hosts / most)).sum("kind")
    columns = {"arithmetic, s": _arithmetic(found, n * grows, hosts)}
    columns |= {f"bytes at {name}, s": 8 * volume / bits for name, bits in LINKS.items()}
    return _labelled(columns | {"messages, s": steps * LATENCY})


def _labelled(columns: Mapping[str, xr.DataArray]) -> xr.Dataset:
    return xr.Dataset(dict(columns)).to_array("of").to_dataset(name="value")


def _measure(
    address: str, processes: int, way: str, n: int, repeats: int, index: int
) -> dict[str, Any]:
    """What one process measures; all of them run it together."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, index)
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    if way == "network":
        busy = [[timed(call, 5 * repeats)["busy"] for call in _sends(mesh, k)] for k in COLLECTIVES]
        return {"busy": np.array(busy)}
    points = [np.empty((n, d), np.float32) for d in DIMENSIONS]
    mixture.fill_mixture(*points, seed=0)
    grams = [
        TiledGram.from_points(cv.Gaussian(_BANDWIDTH), array, layout=Layout(mesh, "rows", n))
        for array in points
    ]
    call, programs = _call(way, *grams)
    taken = timed(call, repeats)
    counted = {kind: np.zeros(2) for kind in COLLECTIVES}
    for lowered, trips in programs:
        for kind, elements in traffic(lowered.compile().as_text(), trips):
            counted[kind] += 1, _sent(kind, 4.0 * elements, processes)
    messages, sent = np.array(list(counted.values())).T
    return taken | {"messages": messages, "sent": sent}


def timed(call: Callable[[], Any], repeats: int) -> dict[str, float]:
    """The fastest of several calls after the first: wall, CPU seconds, bytes on the loopback."""
    call()
    found = []
    for _ in range(repeats):
        before = _loopback()  # Of all processes: the barriers' own few bytes count too.
        multihost_utils.sync_global_devices("start")
        started, spent = time.perf_counter(), time.process_time()
        call()
        taken = time.perf_counter() - started, time.process_time() - spent
        multihost_utils.sync_global_devices("end")
        found.append((*taken, _loopback() - before))
    return dict(zip(("wall", "busy", "loopback"), map(min, zip(*found, strict=True)), strict=True))


def _loopback() -> float:
    """The bytes that the loopback interface has carried; NaN where the system does not say."""
    try:
        with open("/proc/net/dev") as stream:
            fields = next(line.split() for line in stream if line.strip().startswith("lo:"))
    except OSError:
        return np.nan
    return float(fields[1])


def _squared_norms(gram_x: Any, gram_t: Any) -> Any:
    shared: Any = SharedTiles.of((gram_x, gram_t, gram_x * gram_t))
    return shared.squared_frobenius_norms()


def _call(way: str, gram_x: Any, gram_t: Any) -> tuple[Callable[[], Any], list[tuple[Any, int]]]:
    """What is timed, and its programs before they are compiled, with the trips of open loops."""
    if way == "order 2":
        norms = jax.jit(_squared_norms)
        programs = [(norms.lower(gram_x, gram_t), 1)]
        return lambda: jax.block_until_ready(norms(gram_x, gram_t)), programs
    gram = jax.block_until_ready((gram_x * gram_t).store())
    columns = gram.place(np.ones((gram.n, _BUDGET.block), np.float32))
    basis = gram.place(np.zeros((gram.n, _BUDGET.block * (_BUDGET.sweeps - 1)), np.float32))
    probes = gram.place(np.ones((gram.n, _BUDGET.probes), np.float32))
    state = krylov.start_lanczos(basis, probes, capacity=2 * _BUDGET.steps)
    bounds = jnp.asarray(0), jnp.asarray(_BUDGET.steps)
    programs = [
        (krylov.krylov_spaces.lower(gram, (columns,), sweeps=_BUDGET.sweeps), 1),
        (jax.jit(lambda g, v: g.row_squares_beside(v, v)).lower(gram, basis), 1),
        (krylov.lanczos.lower(gram, (basis,), ((state,),), *bounds), _BUDGET.steps),
    ]
    key = jax.random.key(0)
    call = functools.partial(spectral_measure, gram, key=key, budget=_BUDGET)
    return call, programs


def _sends(mesh: Mesh, kind: str) -> list[Callable[[], Any]]:
    """Calls that send a few numbers, and many, once by a collective."""
    count = mesh.size

    def send(local: jax.Array) -> jax.Array:
        if kind == "all-reduce":
            return jax.lax.psum(local, "rows")
        if kind == "all-gather":
            return jax.lax.all_gather(local[: local.size // count], "rows", tiled=True)
        return jax.lax.ppermute(local, "rows", [(k, (k + 1) % count) for k in range(count)])

    calls = []
    for size in _SIZES:
        spec = PartitionSpec("rows")
        array = jax.device_put(
            np.zeros(count * size, np.float32), jax.sharding.NamedSharding(mesh, spec)
        )
        mapped = jax.jit(jax.shard_map(send, mesh=mesh, in_specs=spec, out_specs=spec))
        calls.append(lambda mapped=mapped, array=array: jax.block_until_ready(mapped(array)))
    return calls


def _sent(kind: str, size: float, processes: int) -> float:
    """What each of several processes sends for a result of a size, by the usual rings."""
    share = (processes - 1) / processes
    shares = {"all-gather": share, "all-reduce": 2 * share, "collective-permute": 1.0}
    return size * shares[kind]


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_OPERATION = re.compile(rf"= (.*?) ({'|'.join((*COLLECTIVES, 'while'))})\(")
_CALLED = re.compile(r"(?:body|calls|to_apply)=%?([\w.-]+)|branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SHAPE = re.compile(r"\b[a-z]+\d+\[([\d,]*)\]")


def traffic(text: str, trips: int = 1) -> Iterator[tuple[str, int]]:
    """Each collective operation that a compiled program runs, with the elements of its result.

    Args:
      text: of the program, as XLA prints it for one device.
      trips: of the loops whose number of trips is not known before they run.
    """
    bodies: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        if opened := _COMPUTATION.match(line):
            lines = bodies.setdefault(opened[2], [])
            entry = opened[2] if opened[1] else entry
        lines.append(line)

    def walk(name: str) -> Iterator[tuple[str, int]]:
        for line in bodies[name]:
            operation = _OPERATION.search(line)
            kind = operation[2] if operation else None
            if operation and kind in COLLECTIVES:
                shapes = _SHAPE.findall(operation[1])
                yield kind, sum(math.prod(map(int, filter(None, s.split(",")))) for s in shapes)
                continue
            known = _TRIPS.search(line)
            times = (int(known[1]) if known else trips) if kind == "while" else 1
            for one, several in _CALLED.findall(line):
                for called in (one or several.replace("%", "")).split(", "):
                    for _ in range(times):
                        yield from walk(called)

    return walk(entry)
