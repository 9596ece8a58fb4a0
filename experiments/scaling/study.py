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
from experiments import data as data_sets
from experiments import lab, records
from experiments.data import PairedEmbeddings, mixture
from experiments.lab import choices
from experiments.lab.study import option, positive
from experiments.scaling import contests, figures, report
from experiments.scaling.contests import CONTESTANTS, PACKAGES, Limits
from experiments.scaling.processes import Worker
from experiments.scaling.records import Cell, Measured, Record

_PARTS = {
    "order2": "order 2",
    "exact": "exact",
    "measure": "measure",
    "features": "features",
    "first": "first call",
    "jackknife": "jackknife",
    "start": "cold start",
}
_SMALLEST = {"order 2": 500, "exact": 500, "measure": 2000}
# The parts whose calls are the first of their processes.
_FRESH = ("first call", "jackknife")
# What is measured beside the shipped pictures of emoji, by the name that says what its outputs are.
BESIDE = {"photographs": "captions", "captions": "captioning"}
# Of the median distance: about what the papers' variance rule finds, and a far harder spectrum.
_NARROW = 0.65
_ROLES = ("outputs", "prompts")
_Paths = tuple[pathlib.Path, pathlib.Path]
# Options that one part alone looks at.
_OF_PART = {
    "order_two_n": "order2",
    "exact_n": "exact",
    "measure_n": "measure",
    "features_n": "features",
    "features": "features",
    "first_n": "first",
    "jackknife_n": "jackknife",
}
# Without --full the measure takes real data at this n and whole; and up to here order 2 takes them
# at every size, and features are compared with all eigenvalues.
_MIDDLE_N = 4000
# With more dimensions a million points would not fit beside their features.
_FEATURES_DIMENSIONS = (64, 48)


class _Defaults(NamedTuple):
    """The largest n of each part, the seeds, the patience and what is enough, in seconds."""

    order_two_n: int
    exact_n: int
    measure_n: int
    features_n: int
    seeds: int
    patience: float
    enough: float


_DEFAULTS = {
    ("cpu", False): _Defaults(20_000, 4000, 4000, 1_000_000, 10, 30, 10),
    ("cpu", True): _Defaults(30_000, 16_000, 30_000, 1_000_000, 200, 600, 60),
    ("accelerator", False): _Defaults(100_000, 8000, 32_000, 1_000_000, 20, 10, 5),
    ("accelerator", True): _Defaults(1_000_000, 25_000, 100_000, 10_000_000, 200, 60, 20),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the benchmark; where a default depends on the device, it is None here."""

    full: bool = option(False, "Sizes up to what fits, 200 seeds: hours.")
    parts: tuple[str, ...] = option(
        tuple(_PARTS),
        "What is measured: order 2, exact spectra, the spectral measure, features at large n, the "
        "first calls of decompose, the jackknife of order 1, the cold start.",
        choices=_PARTS,
    )
    beside: tuple[str, ...] | None = option(
        None,
        "What is measured beside the mixture and --data; all of it beside emoji, none of it beside "
        "others, if unset.",
        choices=(*BESIDE, "none"),
    )
    order_two_n: int | None = option(None, "The largest n of order 2.")
    exact_n: int | None = option(None, "The largest n of the exact spectra.")
    measure_n: int | None = option(None, "The largest n of the spectral measure, of the mixture.")
    real_n: int | None = option(None, "The largest n of real data; whole sets if unset.")
    features_n: int | None = option(None, "The largest n of the features.")
    features: int = option(512, "How many features; Fourier's are of half as many frequencies.")
    first_n: int = option(2000, "The n of the first calls.")
    jackknife_n: int = option(1000, "The n of the jackknife.")
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
    """A data set of the benchmark.

    Attributes:
      description: what it is.
      n: how many pairs there are.
      bandwidths: of outputs and prompts.
      kind: 'mixture', 'few dimensions' (the mixture of the features), 'real', or 'narrow' (the same
        arrays as the real data before it, under smaller bandwidths).
      digests: of outputs and prompts as they are measured, as the store writes them.
    """

    description: str
    n: int
    bandwidths: choices.Bandwidths
    kind: str
    digests: tuple[str, str]


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
    features: int
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

    paths: Mapping[str, _Paths]
    memory: int
    scratch: pathlib.Path


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Asks for the device, finds the peers, and writes the points that the processes read."""
    _check(options)
    peers = _find_peers(options.peers)
    # This process measures nothing and must not take the accelerator from those that do.
    jax.config.update("jax_platforms", "cpu")
    sets = load_sets(load, options.beside)
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
        "features": chosen["features_n"],
        "first call": options.first_n,
        "jackknife": options.jackknife_n,
    }
    parts = tuple(_PARTS[name] for name in options.parts)
    dimensions = (options.output_dimension, options.prompt_dimension)
    scratch = tempfile.TemporaryDirectory()
    folder = pathlib.Path(scratch.name)
    given = choices.Bandwidths(options.bandwidth, options.bandwidth, "given")
    data, paths, arrays = {}, {}, {}

    def add(name: str, description: str, kind: str, of: _Paths, bandwidths: Any) -> None:
        outputs, prompts = (np.load(path, mmap_mode="r") for path in of)
        digests = (records.hash_array(outputs), records.hash_array(prompts))
        data[name] = Points(description, len(outputs), bandwidths, kind, digests)
        paths[name] = of
        if kind != "narrow":  # Whose arrays are those before it.
            arrays.update({f"{name} outputs": outputs, f"{name} prompts": prompts})

    n = max((largest[part] for part in parts if part not in ("features", "cold start")), default=2)
    made = write_mixture(folder, "mixture", n, dimensions, seed)
    add("mixture", mixture.describe(dimensions), "mixture", made, given)
    for index, (name, pairs) in enumerate(sets.items()):
        median = choices.by_rules(pairs, ["median"], seed)["median"]
        written = write_points(folder, name, pairs, options.real_n, seed)
        add(name, pairs.description, "real", written, median)
        if index == 0:
            narrow = median.scaled(_NARROW)
            add(f"{name}, narrow", pairs.description, "narrow", written, narrow)
    if "features" in parts:
        name = "mixture, d = {} and {}".format(*_FEATURES_DIMENSIONS)
        made = write_mixture(folder, name, largest["features"], _FEATURES_DIMENSIONS, seed)
        add(name, mixture.describe(_FEATURES_DIMENSIONS), "few dimensions", made, given)
    settings = Settings(
        device=device["provenance"]["device"],
        platform=platform,
        cores=device["cores"],
        data=data,
        parts=parts,
        full=options.full,
        largest=largest,
        dimensions=dimensions,
        features=options.features,
        bandwidth=options.bandwidth,
        repeats=options.repeats,
        seeds=chosen["seeds"],
        rtol=options.rtol,
        patience=chosen["patience"],
        enough=chosen["enough"],
        peers=contests.versions(peers),
    )
    state = _State(paths, device["memory_bytes"], folder)
    measured_on = {"device": settings.device, "cores": settings.cores}
    return lab.Setup(settings, arrays, state, measured_on, close=scratch.cleanup)


def _check(options: Options) -> None:
    defaults = Options()
    for name, part in _OF_PART.items():
        if getattr(options, name) != getattr(defaults, name) and part not in options.parts:
            raise ValueError(f"--{name} means nothing without {part} among --parts.")
    if options.seeds is not None and not {"measure", "features"} & {*options.parts}:
        raise ValueError("--seeds means nothing without measure or features among --parts.")
    if options.rtol != defaults.rtol and not {"measure", "first"} & {*options.parts}:
        raise ValueError("--rtol means nothing without measure or first among --parts.")
    if options.features % 16 or options.features <= 0:
        raise ValueError(f"--features: expected a multiple of 16, received {options.features}.")
    sizes = [name for name in Options.__dataclass_fields__ if name.endswith(("_n", "_dimension"))]
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


def load_sets(
    load: Callable[[], PairedEmbeddings], beside: Sequence[str] | None
) -> dict[str, PairedEmbeddings]:
    """The real data by the names that they have here: those of the user first.

    Args:
      load: gives the pairs that the user named.
      beside: names in `BESIDE`, or 'none'; all of it beside emoji and none beside others if None.

    Raises:
      ValueError: the same set would be there twice.
    """
    pairs = load()
    if beside is None:
        beside = tuple(BESIDE) if pairs.name == "emoji" else ()
    if "none" in beside:
        beside = ()
    # Never the name of the mixture, nor of what is beside it.
    taken = pairs.name == "mixture" or pairs.name in beside
    found = {f"{pairs.name} (set)" if taken else pairs.name: pairs}
    for name in dict.fromkeys(beside):
        if pairs.name == BESIDE[name]:
            raise ValueError(f"--beside={name}: --data={pairs.name} is the same set.")
        found[name] = data_sets.load(BESIDE[name])
    return found


def _paths(folder: pathlib.Path, name: str) -> _Paths:
    word = re.sub(r"\W+", "_", name)
    outputs, prompts = (folder / f"{word}-{role}.npy" for role in _ROLES)
    return outputs, prompts


def write_mixture(
    folder: pathlib.Path, name: str, n: int, dimensions: Sequence[int], seed: int
) -> _Paths:
    """The files of n outputs `[n, d_x]` and prompts `[n, d_t]` of `mixture.fill_mixture`."""
    paths = _paths(folder, name)
    outputs, prompts = (
        np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for path, d in zip(paths, dimensions, strict=True)
    )
    mixture.fill_mixture(outputs, prompts, seed)
    outputs.flush()
    prompts.flush()
    return paths


def write_points(
    folder: pathlib.Path, name: str, pairs: PairedEmbeddings, largest: int | None, seed: int
) -> _Paths:
    """The files of the pairs in a random order, so that the first n of them are a sample.

    Args:
      folder, name: where, and what the files are called.
      pairs: all of them.
      largest: how many are kept at most; all where None.
      seed: of the order.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))[:largest]
    paths = _paths(folder, name)
    for path, points in zip(paths, (pairs.outputs, pairs.prompts), strict=True):
        np.save(path, np.asarray(points, np.float32)[order])
    return paths


def cells(settings: Settings) -> list[Cell]:
    """Every part on the mixture at doubling sizes, then on the real data."""
    found = []
    for part in settings.parts:
        if part == "cold start":
            found.append(Cell(part, "none", 0))
            continue
        largest = settings.largest[part]
        if part in _FRESH:
            found.append(Cell(part, of_kind(settings, "mixture")[0], largest))
        elif part == "features":
            (name,) = of_kind(settings, "few dimensions")
            middle = min(_MIDDLE_N, largest)
            found += [Cell(part, name, n) for n in sorted({middle, largest})]
            found += [
                Cell(part, name, min(settings.data[name].n, middle))
                for name in of_kind(settings, "real")
            ]
        else:
            (name,) = of_kind(settings, "mixture")
            found += [Cell(part, name, n) for n in sizes(part, largest)]
            found += [
                Cell(part, name, n)
                for name in of_kind(settings, "real", "narrow")
                for n in real_sizes(part, name, settings)
            ]
    return found


def of_kind(settings: Settings, *kinds: str) -> list[str]:
    """The names of the data of these kinds."""
    return [name for name, points in settings.data.items() if points.kind in kinds]


def real_sizes(part: str, name: str, settings: Settings) -> list[int]:
    """The sizes at which a part takes real data.

    Order 2 takes them at small sizes, every second one without --full, and whole; all eigenvalues
    of one Gram, those of the first set only; the measure, a middle size and the whole set; what is
    narrow, at the middle size.
    """
    points = settings.data[name]
    if points.kind == "narrow":
        return [min(points.n, _MIDDLE_N)] if part == "measure" else []
    if part == "order 2":
        whole = min(settings.largest[part], points.n)
        small = sizes(part, min(whole, _MIDDLE_N))
        return sorted({*(small if settings.full else small[1::2]), whole})
    if part == "exact":
        first = name == of_kind(settings, "real")[0]
        return [min(settings.largest[part], points.n)] if first else []
    if settings.full:
        return sizes(part, points.n)
    return sorted({min(points.n, _MIDDLE_N), points.n})


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
    points = settings.data[cell.data]
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
        largest=points.kind == "mixture" and cell.n == settings.largest[cell.part],
        real=points.kind in ("real", "narrow"),
        missing=[p for p in PACKAGES if p.replace("_", "-") not in settings.peers],
    )
    outputs, prompts = state.paths[cell.data]
    request: dict[str, Any] = {
        "outputs": str(outputs),
        "prompts": str(prompts),
        "n": cell.n,
        "bandwidths": [points.bandwidths.outputs, points.bandwidths.prompts],
        "truncations": truncations(cell.n),
        "rtol": settings.rtol,
        "features": settings.features,
        "budgets": {
            products: budget
            for products, budget in contests.BUDGETS.items()
            if budget["block"] * budget["sweeps"] < cell.n
        },
        "splits": contests.SPLITS,
        "eigenvalues": str(state.scratch / "eigenvalues.npy"),
    }
    entries = {name: CONTESTANTS[cell.part][name] for name in taking_part}
    if cell.part in _FRESH:
        # The first process finds nothing in the machine's caches, and counts as a first call does.
        results, failed = contests.first_calls(entries, request, settings.repeats + 1, context.say)
    else:
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
    # Whose process is alone disturbs nobody.
    shares = [
        of.get("idle_share", 0.0)
        for record in records
        if record.part not in _FRESH
        for of in record.results.values()
    ]
    notes.append(f"waiting took a process at most {max(shares, default=0):.1%} of a core")
    grid.caption = "\n".join([*notes, f"on {report.machine(run)}"])
    grid.caption_justify = "left"
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Time, memory and error of each run; one of an accelerator bears its name."""
    found = {}
    for run in runs:
        kind = re.sub(r"[^a-z0-9]+", "-", run.settings.device.lower()).strip("-")
        suffix = "" if run.settings.platform == "cpu" else f"_{kind}"
        for name, figure in figures.draw(run).items():
            found[f"scaling_{name}{suffix}"] = figure
    return found


STUDY = lab.StudyRecord(
    name="scaling",
    version=3,
    question="How fast, how large and how exact are the engines, beside their peers?",
    reproduces="-",
    duration="30 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Measured,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=(("--patience=400", "--enough=5", "--repeats=3"),),
    figures=("scaling_time", "scaling_memory", "scaling_real", "scaling_error"),
)
