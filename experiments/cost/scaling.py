"""The benchmark: time, memory and accuracy beside peers, a contest in each cell.

Each contestant runs in a process of its own, since two runtimes in one would fight over the cores.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from condvendi_jax.base import memory
from condvendi_jax.cli import provenance
from experiments import data as data_sets
from experiments import lab
from experiments.cost import contests, measured, timing, worker
from experiments.cost.contests import PACKAGES
from experiments.cost.measured import PARTS
from experiments.data import mixture
from experiments.lab import Bandwidths, scales

# What is measured beside the shipped pictures of emoji: captions of photographs, as outputs.
_BESIDE = {"captions": "captioning"}
# Of the median distance: about what the papers' variance rule gives, and a far harder spectrum.
_NARROW = 0.65
_REAL_N = 4000
_SMALLEST = {"cpu": 500, "accelerator": 4000}  # Of the sizes that double.


@dataclasses.dataclass(frozen=True)
class Points:
    """A data set of the benchmark.

    Its kind is 'mixture', 'real', or 'narrow' (the same arrays as the real data before it, under
    smaller bandwidths).
    """

    description: str
    n: int
    bandwidths: Bandwidths
    kind: str


class Scaling(lab.Study):
    """How do speed, memory and accuracy of the library compare with its peers?"""

    name = "scaling"
    grows = ("n",)
    unrepeated = ("seconds", "memory_bytes", "left_out", "device", "cores", "versions")
    version = 3
    drawings = ("scaling_time", "scaling_estimates")
    control = "Contestants of a cell take turns on the same data, each in a process of its own."

    parts: tuple[str, ...] = lab.flag(
        tuple(PARTS),
        "What is measured: order 2, all eigenvalues, scores of order 1.",
        choices=PARTS,
    )
    order_two_n: int = lab.flag(20_000, "The largest n of order 2.", at_least=2)
    exact_n: int = lab.flag(4000, "The largest n of all eigenvalues.", at_least=2)
    measure_n: int = lab.flag(4000, "The largest n of scores of order 1.", at_least=2)
    repeats: int = lab.flag(
        timing.AT_LEAST, "Rounds after the first, which warms up.", at_least=timing.AT_LEAST
    )
    seeds: int = lab.resolved(4)  # Of estimates.
    output_dimension: int = lab.resolved(768)
    prompt_dimension: int = lab.resolved(512)
    bandwidth: float = lab.resolved(0.7)  # Of the mixture's outputs and prompts.
    rtol: float = lab.resolved(2e-3)  # The tolerance asked of the measure.
    device: str = lab.resolved("")
    platform: str = lab.resolved("")
    cores: int | None = lab.resolved()
    points: dict[str, Points] = lab.resolved()
    versions: dict[str, str] = lab.resolved()

    @property
    def largest(self) -> dict[str, int]:
        """The largest n of each part that is measured, by its name in the cells."""
        every = {"order2": self.order_two_n, "exact": self.exact_n, "measure": self.measure_n}
        return {PARTS[part]: every[part] for part in self.parts}

    def prepare(self, load, seed):
        """Asks for the device, finds the peers, and writes the points that the processes read."""
        versions = {}
        for package in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        # This process measures nothing and must not take the accelerator from those that do.
        jax.config.update("jax_platforms", "cpu")
        with worker.processes() as pool:
            limit, on = pool.submit(_device).result()
        scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(scratch.name)
        points, arrays = self._write(folder, load(), seed)
        setup = {"provenance": {k: on[k] for k in ("device", "cores")}, "close": scratch.cleanup}
        given = {"points": points, "versions": versions, **on}
        return self.ready(state=(folder, limit), arrays=arrays, setup=setup, **given)

    def _write(self, folder, pairs, seed):
        """Writes the points that the processes read; data sets by name, all arrays that enter."""
        dimensions, n = (self.output_dimension, self.prompt_dimension), max(self.largest.values())
        write_mixture(folder, n, dimensions, seed)
        given = Bandwidths("given", self.bandwidth, self.bandwidth, "given")
        points = {"mixture": Points(mixture.describe(dimensions), n, given, "mixture")}
        first = f"{pairs.name} (set)" if pairs.name == "mixture" else pairs.name
        beside = _BESIDE if pairs.name == "emoji" else {}
        real = {first: pairs} | {name: data_sets.load(which) for name, which in beside.items()}
        for name, pairs in real.items():
            order = np.random.default_rng(seed).permutation(len(pairs))  # The first n: a sample.
            for path, rows in zip(paths(folder, name), (pairs.outputs, pairs.prompts), strict=True):
                np.save(path, np.asarray(rows, np.float32)[order])
            median = scales.by_rule(pairs, "median", seed)
            points[name] = Points(pairs.description, len(pairs), median, "real")
            if name == first:
                narrow = {"kind": "narrow", "bandwidths": median.scaled(_NARROW)}
                points[f"{name}, narrow"] = dataclasses.replace(points[name], **narrow)
        arrays = {
            f"{name} {role}": np.load(path, mmap_mode="r")
            for name in ("mixture", *real)
            for role, path in zip(("outputs", "prompts"), paths(folder, name), strict=True)
        }
        return points, arrays

    def cells(self):
        """Part, data and n: every part on the mixture, the measure on the real data too."""
        found = []
        for part, largest in self.largest.items():
            for name, points in self.points.items():
                sizes = []
                if part == "measure":
                    most = largest if points.kind == "mixture" else min(points.n, _REAL_N)
                    sizes = [min(largest, most)]
                elif points.kind == "mixture":  # None lies between half of the largest and itself.
                    below = (_SMALLEST[self.platform] * 2**k for k in range(30))
                    sizes = [*(size for size in below if size <= largest / 2), largest]
                found += [lab.Cell((("part", part), ("data", name), ("n", n))) for n in sizes]
        return found

    def compute(self, state, context, *, part, data, n):
        """Lets the contestants of a cell meet."""
        folder, limit = state
        entries, left_out = contests.choose(self, part, n, limit)
        outputs, prompts = paths(folder, data)
        bandwidths = self.points[data].bandwidths
        request = {
            "outputs": outputs,
            "prompts": prompts,
            "n": n,
            "bandwidths": [bandwidths.outputs, bandwidths.prompts],
            # A few, a twentieth, and 0.4 n, which is the papers' 10,000 of 25,000.
            "truncations": sorted({min(10, n), max(1, n // 20), max(1, round(0.4 * n))}),
            "rtol": self.rtol,
        }
        results, failed = contests.run_cell(entries, request, self, context.say)
        return contests.dataset(results, left_out | failed)

    def checked(self, committed):
        """The first calls, or seeds: how many follow rests on the clock."""
        return {"call": [0]}

    def tables(self, run):
        """Seconds and memory of every contest, then the accuracy, who was left out, the machine."""
        found = measured.of_run(run)
        yield from (measured.contest(part, found) for part in self.largest)
        yield measured.contest("order 2", found, memory=True)
        grid = measured.accuracy(found)
        notes = [
            "left out: {} ({part}, {data}, n = {n:,}): {}".format(name, why, **cell.values)
            for cell, of_cell in run.results.items()
            for name, why in of_cell.left_out.to_series().items()
            if why
        ]
        grid.caption = "\n".join([*notes, f"on {_machine(run)}"])
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """Tables, the machine, `ratio(part, one, other, n)` of mixtures, the worst errors."""
        found = measured.of_run(runs[0])
        norms = found.value.sel(part="order 2").isel(call=0, end=0)
        ours, exact = (norms.sel(contestant=name) for name in ("library", "float64"))
        held = measured.errors(found, "by tolerance").held
        plain, budget = (measured.rms(found, name) for name in ("plain SLQ", "by budget"))
        return {
            "ratio": functools.partial(measured.of_mixture, found),
            "contest": lambda part: measured.contest(PARTS[part], found),
            "accuracy": measured.accuracy(found),
            "machine": _machine(runs[0]),
            "norm_error": abs(ours / exact - 1).max(),
            "held": held.sum(),
            "intervals": held.count(),
            "factor": (plain / budget).min(),
        }

    @classmethod
    def figures(cls, runs):
        return measured.draw(runs[0])


def paths(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """The files of a data set's outputs and prompts; what is narrow has those of the set."""
    word = re.sub(r"\W+", "_", name.removesuffix(", narrow"))
    return folder / f"{word}-outputs.npy", folder / f"{word}-prompts.npy"


def write_mixture(folder: pathlib.Path, n: int, dimensions: Sequence[int], seed: int) -> None:
    """Writes n outputs `[n, d_x]` and prompts `[n, d_t]` of `mixture.fill_mixture`."""
    outputs, prompts = (
        np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for path, d in zip(paths(folder, "mixture"), dimensions, strict=True)
    )
    mixture.fill_mixture(outputs, prompts, seed)


def _device() -> tuple[float, dict[str, Any]]:
    """The memory of the device in bytes; whether it is a CPU, its name and the cores."""
    platform = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    on = {"device": provenance.collect()["device"], "platform": platform, "cores": cores}
    return memory.limit() or np.inf, on


def _machine(run: lab.Run) -> str:
    """The machine's kind, the versions and the date, in one line."""
    origin = next(iter(run.provenance.values()))
    versions = (origin["versions"] | run.study.versions).items()
    where = f"{run.study.device}, {run.study.cores} cores, {origin['platform']}, {origin['dtype']}"
    return f"{where}, {origin['date'][:10]}; {', '.join(' '.join(of) for of in versions)}"
