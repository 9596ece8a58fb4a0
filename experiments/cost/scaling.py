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
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

from condvendi_jax.base import memory
from condvendi_jax.cli import command
from experiments import data as data_sets
from experiments import lab
from experiments.cost import contests, engines, guides, timing, worker
from experiments.cost.contests import CONTESTANTS, EVERY, PACKAGES, counted, timed
from experiments.data import mixture
from experiments.lab import Bandwidths, Run, figures, scales, style, tables

# Of the median distance: about what the papers' variance rule gives, and a far harder spectrum.
_NARROW = 0.65
_REAL_N = 4000
_SMALLEST = {"cpu": 500, "accelerator": 4000}  # Of the sizes that double.
_WINDOWS = (100, 300, 1000, 3000)  # Of guides.
PARTS = {"order2": "order 2", "exact": "exact", "measure": "measure", "guidance": "guided step"}
"""The names of the parts in cells, by what flags call them."""
# By part: the kinds of data that it is measured on; n grows on the first.
_KINDS = {
    "order 2": ("mixture",),
    "exact": ("mixture",),
    "measure": ("mixture", "real", "narrow"),
    "guided step": ("latents",),
}
_TITLES = {
    "order 2": "three norms of order 2",
    "exact": "all eigenvalues of one matrix",
    "guided step": "a guided step, n remembered",
}


@dataclasses.dataclass(frozen=True)
class Points:
    """A data set: 'mixture', 'latents', 'real', or 'narrow', the one before with less bandwidth."""

    description: str
    n: int
    bandwidths: Bandwidths
    kind: str


class Scaling(lab.Study):
    """How do speed, memory and accuracy of the library compare with its peers?"""

    grows = ("n",)
    unrepeated = ("seconds", "memory_bytes", "left_out", "device", "cores", "versions")
    version = 3
    control = "Contestants of a cell take turns on the same data, each in a process of its own."

    parts: tuple[str, ...] = lab.flag(
        tuple(PARTS),
        "What is measured: order 2, all eigenvalues, scores of order 1, guided steps.",
        choices=PARTS,
    )
    order_two_n: int = lab.flag(20_000, "The largest n of order 2.", at_least=2)
    exact_n: int = lab.flag(4000, "The largest n of all eigenvalues.", at_least=2)
    measure_n: int = lab.flag(4000, "The largest n of scores of order 1.", at_least=2)
    guidance_n: int = lab.flag(10_000, "The most pairs that a guide remembers.", at_least=2)
    repeats: int = lab.flag(
        timing.AT_LEAST, "Rounds after the first, which warms up.", at_least=timing.AT_LEAST
    )
    seeds: int = lab.resolved(4)  # Of estimates.
    output_dimension: int = lab.resolved(768)
    prompt_dimension: int = lab.resolved(512)
    bandwidth: float = lab.resolved(0.7)  # Of the mixture's outputs and prompts.
    rtol: float = lab.resolved(2e-3)  # The tolerance asked of the measure.
    batch: int = lab.resolved(16)  # Latents guided at once.
    device: str = lab.resolved("")
    platform: str = lab.resolved("")
    cores: int | None = lab.resolved()
    points: dict[str, Points] = lab.resolved()
    versions: dict[str, str] = lab.resolved()

    @property
    def largest(self) -> dict[str, int]:
        """The largest n of each part that is measured, by its name in the cells."""
        every = self.order_two_n, self.exact_n, self.measure_n, self.guidance_n
        of_parts = dict(zip(PARTS, every, strict=True))
        return {PARTS[part]: of_parts[part] for part in self.parts}

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
        save(folder, "mixture", *mixture.draw(n, dimensions, seed))
        given = Bandwidths("given", self.bandwidth, self.bandwidth, "given")
        points = {"mixture": Points(mixture.describe(dimensions), n, given, "mixture")}
        if "guidance" in self.parts:
            n = self.guidance_n + self.batch
            latents, half = guides.random_pairs(n, seed)
            words = f"{n:,} random latents and prompts of the emoji model's shapes"
            points["latents"] = Points(words, n, half, "latents")
            save(folder, "latents", *latents)
        first = f"{pairs.name} (set)" if pairs.name in points else pairs.name
        real = {first: pairs}
        if pairs.name == "emoji":  # Beside the pictures, captions of photographs as outputs.
            real["captions"] = data_sets.load("captioning")
        for name, pairs in real.items():
            order = np.random.default_rng(seed).permutation(len(pairs))  # The first n: a sample.
            save(folder, name, pairs.outputs[order], pairs.prompts[order])
            median = scales.by_rule(pairs, "median", seed)
            points[name] = Points(pairs.description, len(pairs), median, "real")
            if name == first:
                narrow = {"kind": "narrow", "bandwidths": median.scaled(_NARROW)}
                points[f"{name}, narrow"] = dataclasses.replace(points[name], **narrow)
        arrays = {
            f"{name} {role}": np.load(path, mmap_mode="r")
            for name, of in points.items()
            if of.kind != "narrow"
            for role, path in zip(("outputs", "prompts"), paths(folder, name), strict=True)
        }
        return points, arrays

    def cells(self):
        """Part, data and n: sizes that grow, but of the measure the largest, on real data too."""
        doubled = [_SMALLEST[self.platform] * 2**k for k in range(30)]
        below = {"measure": [], "guided step": _WINDOWS}
        found = []
        for part, largest in self.largest.items():
            for name, points in self.points.items():
                if points.kind not in _KINDS[part]:
                    continue
                real = points.kind in ("real", "narrow")
                most = min(largest, points.n, _REAL_N) if real else largest
                # None lies between half of the largest and itself.
                sizes = [*(n for n in below.get(part, doubled) if n <= most / 2), most]
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
            "batch": self.batch,
        }
        results, failed = contests.run_cell(entries, request, self, context.say)
        return contests.dataset(results, left_out | failed)

    def checked(self, committed):
        """The first calls, or seeds: how many follow rests on the clock."""
        return {"call": [0]}

    def tables(self, run):
        """Seconds and memory of every contest, then the accuracy, who was left out, the machine."""
        found = of_run(run)
        yield from (contest(part, found, of) for of in (False, True) for part in self.largest)
        grid = accuracy(found)
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
        """Tables, the machine, `ratio(part, one, other, n)`, the worst errors."""
        found = of_run(runs[0])
        norms = found.value.sel(part="order 2").isel(call=0, end=0)
        ours, exact = (norms.sel(contestant=name) for name in ("library", "float64"))
        held = errors(found, "by tolerance").held
        plain, budget = (rms(found, name) for name in ("plain SLQ", "by budget"))
        return {
            "ratio": functools.partial(ratio_at, found),
            "contest": lambda part, memory=False: contest(PARTS[part], found, memory),
            "accuracy": accuracy(found),
            "machine": _machine(runs[0]),
            "norm_error": abs(ours / exact - 1).max(),
            "held": held.sum(),
            "intervals": held.count(),
            "factor": (plain / budget).min(),
        }

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        found, study = of_run(run), run.study
        dtype = next(iter(run.provenance.values()))["dtype"]
        words = (
            f"seed {run.seed}. {study.device}, {study.cores} cores, {dtype}. Medians; bars: least "
        )
        words += f"to most of {study.repeats} calls or more."
        mixed = f"mixture (d = {study.output_dimension}, {study.prompt_dimension}; bandwidth "
        mixed += f"{study.bandwidth:g})"
        drawn = {
            "scaling_time": (draw_times(found), f"A {mixed}; guides: random latents"),
            "scaling_estimates": (draw_shares(found, study.rtol), f"Sets, and a {mixed}"),
        }
        shown = {k: (of, data) for k, (of, data) in drawn.items() if of is not None}
        return {k: style.caption(of, f"{data}; {words}") for k, (of, data) in shown.items()}


def of_run(run: Run) -> xr.Dataset:
    """The results of all cells, NaN where there are none, of every part and contestant.

    `seconds` are of the calls that count; `mebibytes` is the memory that they took at their peak,
    beyond data and runtime.
    """
    places = {"part": [*CONTESTANTS], "data": [*run.study.points], "contestant": [*EVERY]}
    found = lab.gather([(c.coordinates, of) for c, of in run.results.items()]).reindex(places)
    seconds = counted(found.seconds)
    enough = seconds.count("call") >= timing.AT_LEAST
    mebibytes = found.memory_bytes.where(enough) / 2**20
    return found.assign(seconds=seconds.where(enough), mebibytes=mebibytes)


def ratio(found: xr.Dataset, one: Any, other: str) -> xr.DataArray:
    """The time of a contestant, or of several, over another's, of calls that took turns.

    It is a `timing.spread`.

    Raises:
      ValueError: a contestant is compared with itself, which says nothing.
    """
    if one == other:
        raise ValueError(f"{one} is compared with itself.")
    of_other = found.seconds.sel(contestant=other, drop=True)
    return timing.spread(found.seconds.sel(contestant=one) / of_other, "call")


def growing(found: xr.Dataset, part: str) -> xr.Dataset:
    """The results of a part on the data on which n grows."""
    return found.sel(part=part, data=_KINDS[part][0])


def ratio_at(found: xr.Dataset, part: str, one: str, other: str, n: int = 0) -> xr.Dataset:
    """One's `time` and `memory` over the other's at n, or the largest there is where n grows.

    Names have _ for what is no letter.
    """
    names = {re.sub(r"\W", "_", name): name for name in EVERY}
    of_part, one, other = growing(found, PARTS[part]), names[one], names[other]
    memory = of_part.mebibytes / of_part.mebibytes.sel(contestant=other, drop=True)
    ratios = {"time": ratio(of_part, one, other), "memory": memory.sel(contestant=one)}
    there = xr.Dataset(ratios).dropna("n", subset=["time"])
    return there.sel(n=n) if n else there.isel(n=-1)


def errors(found: xr.Dataset, name: str) -> xr.Dataset:
    """The relative errors of a contestant's scores over the seeds, where there are three.

    Quantities are called 'vendi', 'conditional-t200' or 'joint 448': what follows a space says
    how it was computed and has no part in the exact value. `half` is half the width of the
    interval, relative to the score; `held` whether it holds the exact value, 0 or 1.
    """
    values = found.value.sel(part="measure")
    names = values.quantity.values.tolist()
    exact = values.sel(contestant="exact", drop=True).isel(call=0, end=0)
    truth = exact.reindex(quantity=[name.partition(" ")[0] for name in names])
    truth = truth.assign_coords(quantity=names)
    value, low, high = values.sel(contestant=name, drop=True).transpose("end", ...)
    known = truth.notnull() & (value.count("call") >= timing.AT_LEAST)
    held = ((low <= truth) & (truth <= high)).where(low.notnull())
    error, half = abs(np.expm1(value - truth)), np.expm1((high - low) / 2)
    return xr.Dataset({"error": error, "half": half, "held": held}).where(known)


def rms(found: xr.Dataset, name: str) -> xr.DataArray:
    """The rms error of exp H(X, T) at `engines.PRODUCTS` products over seeds; of the best split."""
    error = errors(found, name).error
    of_splits = error.where(error.quantity.str.startswith(f"joint {engines.PRODUCTS}"))
    return np.sqrt((of_splits**2).mean("call")).min("quantity")


def contest(part: str, found: xr.Dataset, memory: bool = False) -> Table:
    """Seconds a call of a part's contestants, or the MiB that it takes, a row a data set and n."""
    there = found.sel(part=part, contestant=timed(part))
    there = there.dropna("contestant", how="all", subset=["seconds"])
    words = timing.in_words(timing.spread(there.seconds, "call"))
    if memory:
        of_memory = xr.apply_ufunc("{:,.0f}".format, there.mebibytes, vectorize=True)
        words = of_memory.where(there.mebibytes.notnull())
    shown = words.assign_coords(n=[f"{n:,}" for n in words.n.values]).to_dataset(name="value")
    grid = tables.table(shown, rows=("data", "n"), columns="contestant")
    grid.title = f"{part}: {'MiB' if memory else 'seconds a call'}"
    return grid


def accuracy(found: xr.Dataset) -> Table:
    """The accuracy of order 1 against all eigenvalues: a row a data set and n."""
    heads = ("seeds", "largest error", "mean half interval", "truncated: largest error", "held")
    per = f"rms error at {engines.PRODUCTS} products", "plain SLQ"
    grid = Table("data", "n", *heads, *per, title="order 1: accuracy")
    of, axes = errors(found, "by tolerance"), ("quantity", "call")
    cut = of.quantity.str.contains("-t")
    whole = of.where(~cut)
    numbers = {
        "seeds": of.error.notnull().any("quantity").sum("call"),
        "error": whole.error.max(axes),
        "half": whole.half.mean(axes),
        "truncated": of.error.where(cut).max(axes),
        "held": of.held.sum(axes),
        "intervals": of.held.count(axes),
        "by budget": rms(found, "by budget"),
        "plain SLQ": rms(found, "plain SLQ"),
    }
    lines = xr.Dataset(numbers).to_dataframe(dim_order=["data", "n"]).dropna(subset=["error"])
    for (data, n), *row in lines[[*numbers]].itertuples(name=None):
        words = "{:.0f}|{:.3%}|{:.3%}|{:.3%}|{:.0f} of {:.0f}|{:.2%}|{:.2%}".format(*row)
        grid.add_row(data, f"{n:,}", *words.replace("nan%", "-").split("|"))
    return grid


def draw_times(found: xr.Dataset) -> Figure | None:
    """Seconds against n, a panel for each part with more than two sizes; None without any.

    A line is a contestant with two sizes or more; bars are from the least to the most.
    """
    every = {part: growing(found, part).seconds.dropna("n", how="all") for part in _TITLES}
    parts = {part: timing.spread(of, "call") for part, of in every.items() if of.n.size > 2}
    if not parts:
        return None
    figure, panels = style.panels(len(parts), size=(7.6 / len(parts), 2.8), sharey=True)
    for panel, (part, of_part) in zip(panels, parts.items(), strict=True):
        for at, name in enumerate(timed(part)):
            of, label = of_part.sel(contestant=name).dropna("n"), _shown(part, name)
            if of.n.size < 2:
                continue
            median, least, most = of.values
            look = style.look(at, style.SCORES.get(label, style.CYCLE[at]))
            look |= {"elinewidth": 1, "label": label, "ls": "--" if EVERY[name].peer else "-"}
            panel.errorbar(of.n, median, [median - least, most - median], **look)
        panel.set_yscale("log")
        style.log_counts(panel, of_part.n.values[::2])
        panel.set(xlabel="sample size n", ylabel="seconds a call", title=_TITLES[part])
        panel.label_outer()
    style.label_lines(*panels)
    words = (_quickest(part, growing(found, part)) for part in parts)
    return style.headline(figure, f"Time: {'; '.join(filter(None, words))}")


def _shown(part: str, name: str) -> str:
    """How a figure calls a contestant of a part: 'ours', where it is the only one."""
    ours = [other for other in timed(part) if not EVERY[other].peer]
    return "ours" if ours == [name] else name.removesuffix(" guide")


def _quickest(part: str, found: xr.Dataset) -> str:
    """The time of the quickest peer at the largest n, in words; '' where there is none."""
    first, *others = timed(part)
    peers = [name for name in others if EVERY[name].peer]
    medians = ratio(found, peers, first)[0].dropna("n", how="all")
    if not medians.n.size:
        return ""
    last = medians.isel(n=-1)
    least = last.isel(contestant=last.argmin("contestant"))
    times = f"{least.contestant.item()} {least:.2g} times {_shown(part, first)}"
    return f"{times} at n\xa0=\xa0{least.n.item():,}"


def draw_shares(found: xr.Dataset, rtol: float) -> Figure | None:
    """The time of estimates over that of all eigenvalues, a row a data set and n."""
    shares = 100 * ratio(found.sel(part="measure"), "stored", "exact")
    shares = shares.stack(place=("data", "n")).dropna("place")
    if not shares.place.size:
        return None
    places = [f"{data}, {n:,}" for data, n in shares.place.values]
    shares = shares.drop_vars(["place", "data", "n"]).assign_coords(place=places)
    median = shares.isel(end=0)
    words = f"Scores of order 1 to within {rtol:.1%}: {median.min():.0f}% to {median.max():.0f}%"
    return figures.dots(
        xr.Dataset({"value": median, "ends": shares[1:]}).expand_dims(["one", "panel"]),
        row="place",
        hue="one",
        column="panel",
        headline=f"{words} of the time of all eigenvalues",
        x_label="% of the time of all eigenvalues",
        each=lambda panel, _: panel.set_xlim(0),
    )


def paths(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """The files of a data set's outputs and prompts; what is narrow has those of the set."""
    word = re.sub(r"\W+", "_", name.removesuffix(", narrow"))
    return folder / f"{word}-outputs.npy", folder / f"{word}-prompts.npy"


def save(folder: pathlib.Path, name: str, *pairs: np.ndarray) -> None:
    """Writes the outputs and prompts of a data set to its `paths`."""
    for path, rows in zip(paths(folder, name), pairs, strict=True):
        np.save(path, rows)


def _device() -> tuple[float, dict[str, Any]]:
    """The memory of the device in bytes; whether it is a CPU, its name and the cores."""
    platform = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    on = {"device": command.provenance()["device"], "platform": platform, "cores": cores}
    return memory.limit(), on


def _machine(run: lab.Run) -> str:
    """The machine's kind, the versions and the date, in one line."""
    origin = next(iter(run.provenance.values()))
    versions = (origin["versions"] | run.study.versions).items()
    where = f"{run.study.device}, {run.study.cores} cores, {origin['platform']}, {origin['dtype']}"
    return f"{where}, {origin['date'][:10]}; {', '.join(' '.join(of) for of in versions)}"
