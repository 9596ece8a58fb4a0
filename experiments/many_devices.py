"""The scores on many devices: one GPU or eight, a TPU slice, several hosts, or a rehearsal.

Order 2 goes round a ring, order 1 comes from the spectral measure, by rings too or with the matrix
stored in blocks of rows; one device computes the same with the same key beside them.

    python -m experiments.many_devices                       the devices that there are
    python -m experiments.many_devices --devices=8           8 virtual ones of the CPU

Several hosts run the same command each, with its own number; virtual devices rehearse that too:

    python -m experiments.many_devices --coordinator=host0:1234 --num_processes=2 --process_id=0
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import spectra, validation
from condvendi_jax.grams import Layout, mesh_of
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices
from experiments.lab.study import option

_WAYS = ("order 2", "stored", "matrix-free")
# Matrix-free products on one device take long, and say nothing about devices.
_WAYS_OF_ONE = ("order 2", "stored")
# Of the median distance: a spectrum with something to estimate.
_SCALE = 0.5


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    devices: int | None = option(None, "Virtual CPU devices instead of what there is.")
    n: int = option(4000, "How many pairs: a random sample of the data.")
    rtol: float = option(5e-3, "How wide an interval of order 1 may be, relatively.")
    compare: bool = option(True, "Whether to compute it all on one device too.")
    coordinator: str | None = option(None, "host:port of process 0.")
    num_processes: int | None = option(None, "How many processes there are.")
    process_id: int | None = option(None, "Which of them this one is.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores and their times depend on."""

    data: str
    n: int
    bandwidths: choices.Bandwidths
    rtol: float
    compare: bool
    devices: int
    processes: int
    kind: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """A way of computing the scores, on all devices or on one."""

    way: str
    devices: str


@dataclasses.dataclass(frozen=True)
class Scored:
    """Vendi and Conditional-Vendi (or -RKE), their 95% intervals, and the seconds of a call.

    Values are effective numbers of modes; intervals have no width where a score is exact. The
    seconds are those of a second call: the first compiles.
    """

    vendi: float
    conditional: float
    vendi_interval: tuple[float, float]
    conditional_interval: tuple[float, float]
    seconds: float


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Connects the processes before anything asks for their devices, and spreads the points."""
    validation.check_count(options.n, name="--n", minimum=2)
    _connect(options)
    pairs = load()
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: options.n]
    points = [array[chosen] for array in (pairs.outputs, pairs.prompts)]
    sample = dataclasses.replace(pairs, outputs=points[0], prompts=points[1], labels={})
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    settings = Settings(
        data=pairs.description,
        n=len(chosen),
        bandwidths=choices.by_rules(sample, ["median"], seed)["median"].scaled(_SCALE),
        rtol=options.rtol,
        compare=options.compare,
        devices=mesh.size,
        processes=jax.process_count(),
        kind=mesh.devices.flat[0].device_kind,
    )
    return lab.Setup(settings, dict(zip(("outputs", "prompts"), points, strict=True)), state=mesh)


def _connect(options: Options) -> None:
    """Makes the devices, before anything asks for them."""
    if options.devices is not None:
        validation.check_count(options.devices, name="--devices", minimum=1)
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", options.devices)
    others = {"--num_processes": options.num_processes, "--process_id": options.process_id}
    missing = [name for name, value in others.items() if value is None]
    if options.coordinator is None:
        if len(missing) < len(others):
            raise ValueError("--coordinator: several processes need the address of the first.")
        return
    if missing:
        raise ValueError(f"{' and '.join(missing)}: expected beside --coordinator.")
    jax.distributed.initialize(options.coordinator, options.num_processes, options.process_id)


def cells(settings: Settings) -> list[Cell]:
    """Every way on all devices, then those of one device that are compared."""
    alone = [Cell(way, "one") for way in _WAYS_OF_ONE] if settings.compare else []
    return [Cell(way, "all") for way in _WAYS] + alone


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scored:
    """The scores by one way; every way has the same key, so that they can be compared."""
    settings, mesh = setup.settings, setup.state
    points: list[Any] = list(setup.arrays.values())
    way: dict[str, Any] = {"order": 2}
    if cell.way != "order 2":
        way = {"method": spectra.named(cell.way, key=context.shared_key, rtol=settings.rtol)}
    if cell.devices == "all":
        layout = Layout(mesh, "rows", settings.n)
        points = [_distribute(array, layout) for array in points]
        # Where the rows lie on devices already, they say so themselves; else the mesh is named.
        way |= {} if mesh_of(points[0]) else {"mesh": mesh}

    def call() -> cv.scores.Decomposition:
        kernels = settings.bandwidths.kernels()
        return jax.block_until_ready(cv.decompose(*points, **kernels, **way))

    call()
    started = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - started
    values: Any = {name: float(getattr(found, name)) for name in ("vendi", "conditional")}
    intervals: dict[str, Any] = {
        f"{name}_interval": tuple(map(float, getattr(found.intervals, name))) for name in values
    }
    return Scored(**values, **intervals, seconds=seconds)


def _distribute(points: np.ndarray, layout: Layout) -> Any:
    """The points on all devices; where their number allows, from what each process has itself."""
    if layout.rows != layout.n:
        return points
    # Real runs read these rows from the host's own files, and no host holds all of them.
    own = np.array_split(points, jax.process_count())[jax.process_index()]
    return jax.make_array_from_process_local_data(layout.sharding, own)


def table(run: lab.Run) -> Table:
    """The scores by every way, and the seconds that it took."""
    settings = run.settings
    kind = f"{settings.devices} x {settings.kind}"
    if settings.processes > 1:
        kind += f" of {settings.processes} processes"
    grid = Table(title=f"{settings.n:,} pairs, {kind}", title_justify="left")
    for name in ("way", "conditional", "vendi", "seconds"):
        grid.add_column(name, justify="left" if name == "way" else "right", no_wrap=True)
    for cell, found in run.results.items():
        scores = (
            _with_interval(found.conditional, found.conditional_interval),
            _with_interval(found.vendi, found.vendi_interval),
        )
        way = cell.way + (", one" if cell.devices == "one" else "")
        grid.add_row(way, *scores, f"{found.seconds:.2f}")
    return grid


def _with_interval(value: float, ends: tuple[float, float]) -> str:
    """A score, and half of its interval where it has one."""
    low, high = ends
    return f"{value:.6g}" + (f" ± {(high - low) / 2:.1g}" if high > low else "")


def variant(options: Options) -> str:
    """A folder for each number of devices and processes that is asked for: '8', '2x2'."""
    counts = (options.num_processes, options.devices)
    return "x".join(str(count) for count in counts if count is not None)


STUDY = lab.StudyRecord(
    name="many_devices",
    version=1,
    question="Do many devices, or several hosts, give the scores of one?",
    reproduces="-",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Scored,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    variant=variant,
    data="mixture",
)


if __name__ == "__main__":
    lab.main(STUDY)
