"""The benchmark: time, memory and accuracy beside peers, a contest in each cell.

Each contestant runs in a process of its own, since two runtimes in one would fight over the cores.
"""

import contextlib
import functools
import importlib.metadata
import os
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from condvendi_jax.base import memory
from condvendi_jax.cli import provenance
from experiments import lab
from experiments.cost import contests, measured, points, scaling_figures, timing
from experiments.cost.contests import PACKAGES
from experiments.cost.points import Points
from experiments.cost.worker import Worker

_PARTS = {"order2": "order 2", "exact": "exact", "measure": "measure"}


class Ratio(NamedTuple):
    """One contestant over another at the largest n at which both have numbers."""

    n: float
    median: float
    least: float
    most: float
    memory: float


class Scaling(lab.Study):
    """How do speed, memory and accuracy of the library compare with its peers?"""

    name = "scaling"
    control = "Contestants take turns on the same data; n is the question."
    grows = ("n",)
    unrepeated = ("seconds", "memory_bytes", "left_out", "device", "cores", "versions")
    version = 3
    drawings = ("scaling_time", "scaling_estimates")
    smallest: ClassVar[int] = 500  # Of the sizes that double.
    on: ClassVar[str] = "cpu"

    parts: tuple[str, ...] = lab.flag(
        tuple(_PARTS),
        "What is measured: order 2, all eigenvalues, scores of order 1.",
        choices=_PARTS,
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
    def measured(self) -> list[str]:
        """The parts as the cells name them, without those of earlier runs that are gone."""
        return [_PARTS[name] for name in self.parts if name in _PARTS]

    @property
    def largest(self) -> dict[str, int]:
        """The largest n of each part."""
        return {"order 2": self.order_two_n, "exact": self.exact_n, "measure": self.measure_n}

    def prepare(self, load, seed):
        """Asks for the device, finds the peers, and writes the points that the processes read."""
        versions = {}
        for package in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        # This process measures nothing and must not take the accelerator from those that do.
        jax.config.update("jax_platforms", "cpu")
        with Worker() as worker:
            limit, on = worker.request("ask", _device)
        if on["platform"] != self.on:
            raise ValueError(f"{self.name}: expected an {self.on}, received {on['device']}.")
        scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(scratch.name)
        found, arrays = points.write(folder, load, self, seed)
        setup = {"provenance": {k: on[k] for k in ("device", "cores")}, "close": scratch.cleanup}
        state = folder, limit
        return self.ready(
            state=state, arrays=arrays, setup=setup, points=found, versions=versions, **on
        )

    def cells(self):
        """A part of the benchmark on one data set at one n."""
        names = ("part", "data", "n")
        return [lab.Cell(tuple(zip(names, cell, strict=True))) for cell in points.cells(self)]

    def compute(self, state, context, *, part, data, n):
        """Lets the contestants of a cell meet."""
        folder, limit = state
        entries, left_out = contests.choose(self, part, n, limit)
        outputs, prompts = points.paths(folder, data)
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
        among = measured.records(run)
        for part in self.measured:
            yield measured.contest(part, among)
        yield measured.contest("order 2", among, memory=True)
        grid = measured.accuracy(among)
        notes = [
            f"left out: {name} ({record.part}, {record.data}, n = {record.n:,}): {why}"
            for record in among
            for name, why in record.found.left_out.to_series().items()
            if why
        ]
        grid.caption = "\n".join([*notes, f"on {_machine(run)}"])
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """Tables, the machine, `ratio(part, one, other, n)` of mixtures, the worst errors."""
        among = [record for run in runs[:1] for record in measured.records(run)]
        accurate = [of for record in among if (of := record.errors("by tolerance")).error.size]
        factors = [
            measured.rms(r.at_products("plain SLQ")) / measured.rms(r.at_products("by budget"))
            for r in among
        ]
        return {
            "ratio": functools.partial(_ratio, among),
            "contest": lambda part: measured.contest(_PARTS[part], among),
            "accuracy": measured.accuracy(among),
            "machine": "".join(map(_machine, runs[:1])),
            "norm_error": max((record.norm_error() for record in among), default=np.nan),
            "held": sum(of.held.sum().item() for of in accurate),
            "intervals": sum(of.held.count().item() for of in accurate),
            "factor": np.nanmin([*factors, np.inf]),
        }

    @classmethod
    def figures(cls, runs):
        return scaling_figures.draw(runs[0])


def _device() -> tuple[float, dict[str, Any]]:
    """The memory of the device in bytes; whether it is a CPU, its name and the cores."""
    platform = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    on = {"device": provenance.collect()["device"], "platform": platform, "cores": cores}
    return memory.limit() or np.inf, on


def _ratio(among: Sequence[measured.Record], part: str, one: str, other: str, n: int = 0) -> Ratio:
    """One's time and memory over the other's, at n or the largest; names have _ for no letters."""
    names = {re.sub(r"\W", "_", name): name for name in contests.CONTESTANTS[_PARTS[part]]}
    one, other = names[one], names[other]
    found = Ratio(*[np.nan] * 5)
    for record in among:
        if (record.part, record.data) == (_PARTS[part], "mixture") and n in (0, record.n):
            spread = record.ratio(one, other)
            more = record.mebibytes(one) / record.mebibytes(other)
            found = found if np.isnan(spread.median) else Ratio(record.n, *spread, more)
    return found


def _machine(run: lab.Run) -> str:
    """The machine's kind, the versions and the date, in one line."""
    origin = next(iter(run.provenance.values()))
    versions = (origin["versions"] | run.study.versions).items()
    where = f"{run.study.device}, {run.study.cores} cores, {origin['platform']}, {origin['dtype']}"
    return f"{where}, {origin['date'][:10]}; {', '.join(' '.join(of) for of in versions)}"
