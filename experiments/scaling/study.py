"""How fast, how large and how exact: the benchmark as a study.

A cell is one part of the benchmark on one data set at one n; its contestants meet in `contests`,
`report` derives every ratio and `figures` draws.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from condvendi_jax import validation
from experiments import lab
from experiments.data import PairedEmbeddings, mixture
from experiments.lab import choices
from experiments.lab.examples import small_pairs
from experiments.lab.study import option, positive
from experiments.scaling import contests, figures, report
from experiments.scaling.contests import CONTESTANTS, PACKAGES, Limits
from experiments.scaling.processes import Worker
from experiments.scaling.records import Cell, Measured, Record

_PARTS = {
    "order2": "order 2",
    "exact": "exact",
    "measure": "measure",
    "start": "cold start",
}
_SMALLEST = {"order 2": 500, "exact": 500, "measure": 2000}
# Of the median distance: about what the papers' variance rule finds, and a far harder spectrum.
_NARROW = 0.65
# Options that one part alone looks at.
_OF_PART = {
    "order_two_n": "order2",
    "exact_n": "exact",
    "measure_n": "measure",
    "rtol": "measure",
    "seeds": "measure",
}
# Without --full the measure takes the real data at this n only.
_REAL_MEASURE_N = 4000


class _Defaults(NamedTuple):
    """The largest n of each part, the seeds, the patience and what is enough, in seconds."""

    order_two_n: int
    exact_n: int
    measure_n: int
    seeds: int
    patience: float
    enough: float


_DEFAULTS = {
    ("cpu", False): _Defaults(20_000, 4000, 4000, 10, 30, 10),
    ("cpu", True): _Defaults(30_000, 16_000, 30_000, 200, 600, 60),
    ("accelerator", False): _Defaults(100_000, 8000, 32_000, 20, 10, 5),
    ("accelerator", True): _Defaults(1_000_000, 25_000, 100_000, 200, 60, 20),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the benchmark; where a default depends on the device, it is None here."""

    full: bool = option(False, "Sizes up to what fits, 200 seeds: hours.")
    parts: tuple[str, ...] = option(
        tuple(_PARTS),
        "What is measured: order 2, exact spectra, the spectral measure, the cold start.",
        choices=_PARTS,
    )
    order_two_n: int | None = option(None, "The largest n of order 2.")
    exact_n: int | None = option(None, "The largest n of the exact spectra.")
    measure_n: int | None = option(None, "The largest n of the spectral measure.")
    output_dimension: int = option(768, "d_x of the mixture.")
    prompt_dimension: int = option(512, "d_t of the mixture.")
    bandwidth: float = option(0.7, "Of the mixture's outputs and prompts.")
    repeats: int = option(5, "Rounds at most, after the first.")
    seeds: int | None = option(None, "Seeds that errors and coverage are taken over.")
    rtol: float = option(2e-3, "The tolerance asked of the measure.")
    patience: float | None = option(
        None, "Seconds; what should take longer for one call is left out."
    )
    enough: float | None = option(
        None, "Seconds; who took that long, after the first call, is not called again."
    )
    peers: tuple[str, ...] | None = option(
        None,
        "Packages compared with; all that are installed if unset.",
        choices=(*PACKAGES, "none"),
    )


@dataclasses.dataclass(frozen=True)
class Points:
    """A data set of the benchmark: what it is, how many pairs, and the bandwidths."""

    description: str
    n: int
    bandwidths: choices.Bandwidths


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the measurements depend on, the device and the peers' versions among it."""

    device: str
    platform: str
    cores: int | None
    data: dict[str, Points]
    parts: tuple[str, ...]
    full: bool
    largest: dict[str, int]
    dimensions: tuple[int, int]
    bandwidth: float
    repeats: int
    seeds: int
    rtol: float
    patience: float
    enough: float
    peers: dict[str, str]


@dataclasses.dataclass(frozen=True)
class _State:
    """Where the points lie on disk, by the name of the data set, and the device's memory."""

    paths: Mapping[str, tuple[pathlib.Path, pathlib.Path]]
    memory: int
    scratch: pathlib.Path


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Asks for the device, finds the peers, and writes the points that the processes read."""
    _check(options)
    peers = _find_peers(options.peers)
    # This process measures nothing and must not take the accelerator from those that do.
    jax.config.update("jax_platforms", "cpu")
    real = load()
    with Worker("engines") as worker:
        device = worker.request("ask", function="describe")
    platform = "cpu" if device["platform"] == "cpu" else "accelerator"
    defaults = _DEFAULTS[platform, options.full]
    chosen = {
        name: value if (value := getattr(options, name)) is not None else default
        for name, default in defaults._asdict().items()
    }
    largest = {
        "order 2": chosen["order_two_n"],
        "exact": chosen["exact_n"],
        "measure": chosen["measure_n"],
    }
    parts = tuple(_PARTS[name] for name in options.parts)
    dimensions = (options.output_dimension, options.prompt_dimension)
    scratch = tempfile.TemporaryDirectory()
    folder = pathlib.Path(scratch.name)
    n = max((largest[part] for part in parts if part in largest), default=2)
    paths = {"mixture": write_mixture(folder, n, dimensions, seed)}
    given = choices.Bandwidths(options.bandwidth, options.bandwidth, "given")
    data = {"mixture": Points(mixture.describe(dimensions), n, given)}
    median = choices.by_rules(real, ["median"], seed)["median"]
    of_real = write_points(folder, real, seed)
    # Never the name of the mixture.
    name = real.name if real.name != "mixture" else "mixture (set)"
    for suffix, bandwidths in (("", median), (", narrow", median.scaled(_NARROW))):
        data[name + suffix] = Points(real.description, len(real), bandwidths)
        paths[name + suffix] = of_real
    settings = Settings(
        device=device["provenance"]["device"],
        platform=platform,
        cores=device["cores"],
        data=data,
        parts=parts,
        full=options.full,
        largest=largest,
        dimensions=dimensions,
        bandwidth=options.bandwidth,
        repeats=options.repeats,
        seeds=chosen["seeds"],
        rtol=options.rtol,
        patience=chosen["patience"],
        enough=chosen["enough"],
        peers=contests.versions(peers),
    )
    arrays = {
        f"{name} {role}": np.load(path, mmap_mode="r")
        for name in (list(paths)[:2])
        for role, path in zip(("outputs", "prompts"), paths[name], strict=True)
    }
    state = _State(paths, device["memory_bytes"], folder)
    measured_on = {"device": settings.device, "cores": settings.cores}
    return lab.Setup(settings, arrays, state, measured_on, close=scratch.cleanup)


def _check(options: Options) -> None:
    defaults = Options()
    for name, part in _OF_PART.items():
        if getattr(options, name) != getattr(defaults, name) and part not in options.parts:
            raise ValueError(f"--{name} means nothing without {part} among --parts.")
    sizes = ("order_two_n", "exact_n", "measure_n", "output_dimension", "prompt_dimension")
    for names, minimum in ((sizes, 2), (("repeats", "seeds"), 1)):
        for name in names:
            if getattr(options, name) is not None:
                validation.check_count(getattr(options, name), name=f"--{name}", minimum=minimum)
    for name in ("bandwidth", "rtol", "patience", "enough"):
        if getattr(options, name) is not None:
            positive(getattr(options, name), name=name)


def _find_peers(wanted: tuple[str, ...] | None) -> list[str]:
    """The peers that are wanted and there; says in a line which are not."""
    wanted = PACKAGES if wanted is None else wanted
    present, absences = contests.find_peers([name for name in wanted if name != "none"])
    for line in absences:
        sys.stderr.write(line + "\n")
    return present


def write_mixture(
    folder: pathlib.Path, n: int, dimensions: Sequence[int], seed: int
) -> tuple[pathlib.Path, pathlib.Path]:
    """The files of n outputs `[n, d_x]` and prompts `[n, d_t]` of `mixture.fill_mixture`."""
    paths = (folder / "mixture-outputs.npy", folder / "mixture-prompts.npy")
    outputs, prompts = (
        np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for path, d in zip(paths, dimensions, strict=True)
    )
    mixture.fill_mixture(outputs, prompts, seed)
    outputs.flush()
    prompts.flush()
    return paths


def write_points(
    folder: pathlib.Path, pairs: PairedEmbeddings, seed: int
) -> tuple[pathlib.Path, pathlib.Path]:
    """The files of the pairs in a random order, so that the first n of them are a sample."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    paths = (folder / "real-outputs.npy", folder / "real-prompts.npy")
    for path, points in zip(paths, (pairs.outputs, pairs.prompts), strict=True):
        np.save(path, np.asarray(points, np.float32)[order])
    return paths


def cells(settings: Settings) -> list[Cell]:
    """Every part on the mixture at doubling sizes, then on the real data."""
    first, real, narrow = list(settings.data)
    found = []
    for part in settings.parts:
        if part == "cold start":
            found.append(Cell(part, "none", 0))
            continue
        largest = settings.largest[part]
        found += [Cell(part, first, n) for n in sizes(part, largest)]
        largest = min(largest, settings.data[real].n)
        if part != "measure":
            found.append(Cell(part, real, largest))
            continue
        of_real = sizes(part, largest) if settings.full else [min(largest, _REAL_MEASURE_N)]
        found += [Cell(part, name, n) for name in (real, narrow) for n in of_real]
    return found


def sizes(part: str, largest: int) -> list[int]:
    """Doubling sizes, ending at `largest`: none lies between half of it and itself."""
    below = []
    size = _SMALLEST[part]
    while size <= largest / 2:
        below.append(size)
        size *= 2
    return [*below, largest]


def truncations(n: int) -> list[int]:
    """A few, a twentieth, and 0.4 n, which is the papers' 10,000 of 25,000."""
    return sorted({min(10, n), max(1, n // 20), max(1, round(0.4 * n))})


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Measured:
    """Lets the contestants of a cell meet."""
    settings, state = setup.settings, setup.state
    if cell.part == "cold start":
        return Measured((), contests.cold_starts(settings.repeats), {})
    limits = Limits(
        repeats=settings.repeats,
        seeds=settings.seeds,
        patience=settings.patience,
        enough=settings.enough,
        memory=state.memory,
    )
    earlier = [Record.of(c, m) for c, m in context.finished.items() if c.part == cell.part]
    taking_part, left_out = contests.choose(
        CONTESTANTS[cell.part],
        cell.n,
        limits,
        earlier,
        largest=cell.data == next(iter(settings.data)) and cell.n == settings.largest[cell.part],
        missing=[p for p in PACKAGES if p.replace("_", "-") not in settings.peers],
    )
    outputs, prompts = state.paths[cell.data]
    bandwidths = settings.data[cell.data].bandwidths
    request: dict[str, Any] = {
        "outputs": str(outputs),
        "prompts": str(prompts),
        "n": cell.n,
        "bandwidths": [bandwidths.outputs, bandwidths.prompts],
        "truncations": truncations(cell.n),
        "rtol": settings.rtol,
        "budgets": {
            products: budget
            for products, budget in contests.BUDGETS.items()
            if budget["block"] * budget["sweeps"] < cell.n
        },
        "splits": contests.SPLITS,
        "eigenvalues": str(state.scratch / "eigenvalues.npy"),
    }
    entries = {name: CONTESTANTS[cell.part][name] for name in taking_part}
    results, failed = contests.run_cell(entries, request, limits, context.say)
    dimensions = tuple(int(np.load(p, mmap_mode="r").shape[1]) for p in (outputs, prompts))
    return Measured(dimensions, results, left_out | failed)


def table(run: lab.Run) -> Table:
    """The targets and what was measured; below them who was left out, and the machine."""
    grid = Table("what", "target", "measured", "met")
    for row in report.rows(run):
        grid.add_row(row.what, row.target, row.measured, report.word(row.met))
    records = report.records(run)
    notes = [
        f"left out: {name} ({record.part}, {record.data}, n = {record.n:,}): {reason}"
        for record in records
        for name, reason in record.left_out.items()
    ]
    shares = [of.get("idle_share", 0.0) for record in records for of in record.results.values()]
    notes.append(f"waiting took a process at most {max(shares, default=0):.1%} of a core")
    grid.caption = "\n".join([*notes, f"on {report.machine(run)}"])
    grid.caption_justify = "left"
    return grid


def draw(runs: Sequence[lab.Run], references: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Time, memory and error of each run; one of an accelerator bears its name."""
    found = {}
    for run in runs:
        kind = re.sub(r"[^a-z0-9]+", "-", run.settings.device.lower()).strip("-")
        suffix = "" if run.settings.platform == "cpu" else f"_{kind}"
        for name, figure in figures.draw(run).items():
            found[f"scaling_{name}{suffix}"] = figure
    return found


STUDY = lab.Study(
    name="scaling",
    version=1,
    question="How fast, how large and how exact are the engines, beside their peers?",
    reproduces="-",
    duration="20 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Measured,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    small=small_pairs(
        "--parts=exact", "--exact_n=64", "--repeats=1", "--peers=none", "--output_dimension=6"
    ),
    committed=(("--measure_n=14000", "--patience=400", "--repeats=3"),),
    figures=("scaling_time", "scaling_memory", "scaling_error"),
)
