"""The scores on many devices: one GPU or eight, a TPU slice, several hosts, or a rehearsal."""

import dataclasses
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.sharding import Mesh

import condvendi_jax as cv
from condvendi_jax import spectra
from condvendi_jax.grams import Layout, mesh_of
from experiments import lab
from experiments.cost.timing import AT_LEAST, in_turns, spread
from experiments.lab import scales, tables

_WAYS = ("order 2", "stored", "matrix-free")
# Of the median distance: a spectrum with something to estimate.
_SCALE = 0.5
_SCORES = ("conditional", "vendi")


class ManyDevices(lab.Study):
    """Do many devices, or several hosts, give the same scores as one device?"""

    name = "many_devices"
    duration = "2 minutes"
    data = "mixture"
    runs = ()

    devices: int | None = lab.flag(
        None, "Virtual CPU devices instead of what there is.", at_least=1
    )
    n: int = lab.flag(4000, "How many pairs: a random sample of the data.", at_least=2)
    rtol: float = lab.flag(5e-3, "How wide an interval of order 1 may be, relatively.")
    coordinator: str | None = lab.flag(None, "host:port of process 0.")
    num_processes: int | None = lab.flag(None, "How many processes there are.")
    process_id: int | None = lab.flag(None, "Which of them this one is.")
    kind: str = lab.resolved("")
    bandwidths: lab.Bandwidths | None = lab.resolved()

    def prepare(self, load, seed):
        """Connects the processes before anything asks for their devices, and spreads the points."""
        if self.devices is not None:
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", self.devices)
        others = {"--num_processes": self.num_processes, "--process_id": self.process_id}
        missing = " and ".join(name for name, value in others.items() if value is None)
        if self.coordinator is None and any(value is not None for value in others.values()):
            raise ValueError("--coordinator: several processes need the address of the first.")
        if self.coordinator is not None:
            if missing:
                raise ValueError(f"{missing}: expected beside --coordinator.")
            jax.distributed.initialize(self.coordinator, self.num_processes, self.process_id)
        pairs = load()
        chosen = np.random.default_rng(seed).permutation(len(pairs))[: self.n]
        points = {"outputs": pairs.outputs[chosen], "prompts": pairs.prompts[chosen]}
        sample = dataclasses.replace(pairs, **points, labels={})
        mesh = Mesh(np.array(jax.devices()), ("rows",))
        return self.ready(
            pairs,
            state=(mesh, list(points.values())),
            arrays=points,
            devices=mesh.size,
            n=len(chosen),
            # The results are the same from any address, and all processes share them.
            coordinator=None,
            num_processes=jax.process_count(),
            process_id=None,
            kind=mesh.devices.flat[0].device_kind,
            bandwidths=scales.by_rule(sample, "median", seed).scaled(_SCALE),
        )

    def cells(self):
        """Every way on all devices, and on one; matrix-free products take long there."""
        places = [(way, "all") for way in _WAYS] + [(way, "one") for way in _WAYS[:2]]
        return [lab.Cell((("way", way), ("devices", devices))) for way, devices in places]

    def compute(self, state, context, *, way, devices):
        """The scores by one way; every way has the same key, so that they can be compared.

        Intervals are at 95%, of no width where a score is exact. Seconds are the median of calls
        after the first, which compiles.
        """
        mesh, points = state
        options: dict[str, Any] = {"order": 2}
        if way != "order 2":
            options = {"method": spectra.named(way, key=context.shared_key, rtol=self.rtol)}
        if devices == "all":
            layout = Layout(mesh, "rows", self.n)
            points = [_distribute(array, layout) for array in points]
            # Where the rows lie on devices already, they say so themselves; else the mesh is named.
            options |= {} if mesh_of(points[0]) else {"mesh": mesh}

        def call() -> cv.scores.Decomposition:
            return cv.decompose(*points, **kernels, **options)

        assert self.bandwidths is not None
        kernels = self.bandwidths.kernels
        found = call()
        seconds = in_turns({way: call}, AT_LEAST)[way]
        return xr.Dataset(
            {
                "value": (("score",), [float(getattr(found, name)) for name in _SCORES]),
                "interval": (("score", "end"), [getattr(found.intervals, n) for n in _SCORES]),
                "seconds": spread(seconds).median,
            },
            {"score": list(_SCORES)},
        )

    def tables(self, run):
        """The scores by every way, and the seconds that it took."""
        found = run.found
        value = xr.concat([found.value, found.seconds.expand_dims(score=["seconds"])], "score")
        half = found.interval.diff("end").squeeze("end") / 2
        error = half.where(half > 0).reindex(score=value.score)
        shown = xr.Dataset({"value": value, "error": error})
        grid = tables.table(
            shown, rows=("way", "devices"), columns="score", error="error", digits=6
        )
        grid.title = f"{self.n:,} pairs, {self.devices} x {self.kind}"
        if (self.num_processes or 1) > 1:
            grid.title += f" of {self.num_processes} processes"
        yield grid

    def variant(self):
        counts = (self.num_processes, self.devices)
        return "x".join(str(count) for count in counts if count is not None)


def _distribute(points: np.ndarray, layout: Layout) -> Any:
    """The points on all devices; where their number allows, from what each process has itself."""
    if layout.rows != layout.n:
        return points
    # Real runs read these rows from the host's own files, and no host holds all of them.
    own = np.array_split(points, jax.process_count())[jax.process_index()]
    return jax.make_array_from_process_local_data(layout.sharding, own)
