"""The benchmark as a study: a cell is one part of it on one data set at one n."""

import contextlib
import dataclasses
import importlib.metadata
import pathlib
import re
import tempfile

import jax
import numpy as np
from rich.table import Table

from experiments import lab
from experiments.cost.scaling import contests, engines, figures, report
from experiments.cost.scaling import points as sets
from experiments.cost.scaling.contests import FRESH, PACKAGES
from experiments.cost.scaling.points import BESIDE, Points
from experiments.cost.scaling.records import Record, dataset, records
from experiments.cost.scaling.worker import Worker

_PARTS = {
    "order2": "order 2",
    "exact": "exact",
    "measure": "measure",
    "first": "first call",
    "jackknife": "jackknife",
    "start": "cold start",
}
# The field of the largest n of a part, by the part's name among the flags.
_NAMED = ("exact", "measure", "first", "jackknife")
_SIZES = {"order2": "order_two_n"} | {part: f"{part}_n" for part in _NAMED}
# The default sizes and limits of a device, without and with --full.
_LIMITED = ("order_two_n", "exact_n", "measure_n", "seeds", "patience", "enough")
_DEFAULTS = {
    ("cpu", False): (20_000, 4000, 4000, 10, 30, 10),
    ("cpu", True): (30_000, 16_000, 30_000, 200, 600, 60),
    ("accelerator", False): (100_000, 8000, 32_000, 20, 10, 5),
    ("accelerator", True): (1_000_000, 25_000, 100_000, 200, 60, 20),
}


class Scaling(lab.Study):
    """How do speed, memory and accuracy of the library compare with its peers?"""

    name = "scaling"
    version = 3
    duration = "30 minutes"
    runs = (("--patience=400", "--enough=5", "--repeats=3"),)
    drawings = ("scaling_time", "scaling_memory", "scaling_real", "scaling_error")

    full: bool = lab.flag(False, "The largest sizes that fit, and 200 seeds; takes hours.")
    parts: tuple[str, ...] = lab.flag(
        tuple(_PARTS),
        "What is measured: order 2, exact spectra, the spectral measure, the first calls, errors "
        "and contributions beside deletions (the jackknife), the cold start.",
        choices=_PARTS,
    )
    beside: tuple[str, ...] | None = lab.flag(
        None,
        "Further data that are measured; if unset, all of them with emoji, none with other data.",
        choices=(*BESIDE, "none"),
    )
    # Where a default depends on the device, it is None until the device is known.
    order_two_n: int | None = lab.flag(None, "The largest n of order 2.", at_least=2)
    exact_n: int | None = lab.flag(None, "The largest n of the exact spectra.", at_least=2)
    measure_n: int | None = lab.flag(
        None, "The largest n of the spectral measure, of the mixture.", at_least=2
    )
    repeats: int = lab.flag(5, "Most rounds after the first.", at_least=1)
    patience: float | None = lab.flag(
        None, "Leave out a contestant whose call would take more seconds than this.", above=0
    )
    enough: float | None = lab.flag(
        None, "Do not repeat a contestant whose calls have taken this many seconds.", above=0
    )
    peers: tuple[str, ...] | None = lab.flag(
        None,
        "Packages to compare with; all that are installed if unset.",
        choices=(*PACKAGES, "none"),
    )
    seeds: int | None = lab.resolved()
    # What the targets are of.
    first_n: int = lab.resolved(2000)
    jackknife_n: int = lab.resolved(1000)
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
        """The largest n of each part, of a study that was made ready."""
        return {_PARTS[part]: getattr(self, name) for part, name in _SIZES.items()}

    def prepare(self, load, seed):
        """Asks for the device, finds the peers, and writes the points that the processes read."""
        for part, name in _SIZES.items():
            if getattr(self, name) != getattr(Scaling, name) and part not in self.parts:
                raise ValueError(f"--{name} means nothing without {part} among --parts.")
        versions = {}
        for package in [p for p in PACKAGES if self.peers is None or p in self.peers]:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        # This process measures nothing and must not take the accelerator from those that do.
        jax.config.update("jax_platforms", "cpu")
        pairs = sets.load_sets(load, self.beside)
        with Worker() as worker:
            platform, memory, on = worker.request("ask", engines.describe)
        defaults = zip(_LIMITED, _DEFAULTS[platform, self.full], strict=True)
        limits = {name: of for name, of in defaults if getattr(self, name) is None}
        study = dataclasses.replace(self, **limits, **on, platform=platform, versions=versions)
        scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(scratch.name)
        points, arrays = sets.write(folder, pairs, study, seed)
        setup = {"provenance": on, "close": scratch.cleanup}
        return study.ready(state=(folder, memory), arrays=arrays, setup=setup, points=points)

    def cells(self):
        """A part of the benchmark on one data set at one n."""
        names = ("part", "data", "n")
        return [lab.Cell(tuple(zip(names, cell, strict=True))) for cell in sets.cells(self)]

    def compute(self, state, context, *, part, data, n):
        """Lets the contestants of a cell meet."""
        if part == "cold start":
            return dataset((), contests.cold_starts(self.repeats), {})
        folder, memory = state
        earlier = [Record(**cell.values, measured=of) for cell, of in context.finished.items()]
        entries, left_out = contests.choose(self, part, data, n, memory, earlier)
        outputs, prompts = sets.paths(folder, data)
        bandwidths = self.points[data].bandwidths
        request = {
            "outputs": outputs,
            "prompts": prompts,
            "n": n,
            "bandwidths": [bandwidths.outputs, bandwidths.prompts],
            # A few, a twentieth, and 0.4 n, which is the papers' 10,000 of 25,000.
            "truncations": sorted({min(10, n), max(1, n // 20), max(1, round(0.4 * n))}),
            "rtol": self.rtol,
            "budgets": {p: b for p, b in contests.BUDGETS.items() if b["block"] * b["sweeps"] < n},
            "splits": contests.SPLITS,
        }
        run = contests.first_calls if part in FRESH else contests.run_cell
        results, failed = run(entries, request, self, context.say)
        dimensions = [np.load(path, mmap_mode="r").shape[1] for path in (outputs, prompts)]
        return dataset(dimensions, results, left_out | failed)

    def tables(self, run):
        """The targets and what was measured; below them who was left out, and the machine."""
        notes = [
            f"left out: {name} ({record.part}, {record.data}, n = {record.n:,}): {why}"
            for record in records(run)
            for name, why in record.measured.left_out.to_series().items()
            if why
        ]
        caption = "\n".join([*notes, f"on {report.machine(run)}"])
        grid = Table("what", "target", "measured", "met", caption=caption, caption_justify="left")
        for row in report.rows(run):
            grid.add_row(*row.values())
        yield grid

    @classmethod
    def figures(cls, runs):
        found = {}
        for run in runs:
            kind = re.sub(r"[^a-z0-9]+", "-", run.study.device.lower()).strip("-")
            suffix = "" if run.study.platform == "cpu" else f"_{kind}"
            found |= {f"scaling_{name}{suffix}": of for name, of in figures.draw(run).items()}
        return found
