"""Seconds and memory of a guided step as the window grows, beside a step of the sampler.

The cost of a step does not depend on the sampler's parameters, so they are random.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments import lab
from experiments.cost import guidance_timing as steps
from experiments.cost import timing
from experiments.generators import latent_diffusion
from experiments.lab import figures, style, tables

_KINDS = {"conditional_rke": "Conditional-RKE", "conditional_vendi": "Conditional-Vendi"}
_MIB = 2**20


class GuidanceCost(lab.Study):
    """How much time and memory does a guided step take as its window grows?"""

    name = "guidance_cost"
    duration = "2 minutes"
    data = None
    drawings = ("guidance_cost",)

    model: str = lab.flag(
        "emoji",
        "Of which latent diffusion the sampler's step is.",
        choices=tuple(latent_diffusion.TRAININGS),
    )
    windows: tuple[int, ...] = lab.flag(
        (100, 300, 1000, 3000, 10_000), "Pairs remembered.", at_least=1
    )
    spectra: int = lab.flag(3000, "The largest window whose eigenvectors are computed.", at_least=1)
    batch: int = lab.flag(16, "Latents guided at once.", at_least=1)
    repeats: int = lab.flag(
        15,
        f"Timings of each; fewer, but {timing.AT_LEAST}, of what takes {timing.ENOUGH_S:g} s.",
        at_least=1,
    )
    latent: int = lab.resolved(0)
    prompt: int = lab.resolved(0)
    bandwidths: tuple[float, float] = lab.resolved(())
    device: str = lab.resolved("")

    def prepare(self, load, seed):
        """Draws as many pairs of the model's shapes as the largest window and a batch take."""
        windows = tuple(sorted(self.windows))
        latents, prompts = steps.noise(self.model, windows[-1] + self.batch, seed)
        return self.ready(
            state=(latents, prompts),
            arrays={"latents": latents, "prompts": prompts},
            windows=windows,
            latent=latents.shape[1],
            prompt=prompts.shape[1],
            bandwidths=(steps.bandwidth_of(latents), steps.bandwidth_of(prompts)),
            device=jax.devices()[0].device_kind,
        )

    def axes(self):
        return {"kind": tuple(_KINDS), "window": self.windows}

    def cells(self):
        """Those that a guide can have: eigenvectors are computed of the smaller windows only."""
        return [
            cell
            for cell in super().cells()
            if cell.values["kind"] == "conditional_rke" or cell.values["window"] <= self.spectra
        ]

    def compute(self, state, context, *, kind, window):
        """Fills the window, then times the steps of the sampler and of the guide in turns."""
        batch = tuple(jnp.asarray(array[: self.batch]) for array in state)
        guide = steps.guide(kind, window, self.bandwidths, self.prompt)
        memory = guide.init(batch[0])
        remember = jax.jit(cv.guidance.remember).lower(memory, *batch).compile()
        for first in range(0, window, self.batch):
            chosen = slice(first, first + self.batch)
            memory = remember(memory, *(jnp.asarray(array[chosen]) for array in state))
        update = jax.jit(steps.update, static_argnums=0).lower(guide, memory, *batch).compile()
        step, inputs = steps.sampler(self.model, self.batch, context.shared_key)
        calls = {
            "step": lambda: step(*inputs),
            "update": lambda: update(memory, *batch),
            "remember": lambda: remember(memory, *batch),
        }
        seconds = timing.in_turns(calls, self.repeats)
        bytes_of = {
            "state": sum(leaf.nbytes for leaf in jax.tree.leaves(memory)),
            "update_bytes": steps.memory(update),
            "step_bytes": steps.memory(step),
        }
        arrays = {name: (("repeat",), values) for name, values in seconds.items()}
        return xr.Dataset(arrays | bytes_of, {"repeat": range(len(seconds["step"]))})

    def tables(self, run):
        """Milliseconds, multiples of the sampler's step with quartiles, and memory."""
        found = run.found
        times = quartiles(found["update"] / found.step)
        columns: dict[str, Any] = {
            "ms": 1e3 * _median(found["update"]),
            "of the sampler's step": times.sel(quantile=0.5, drop=True),
            "lower quartile": times.sel(quantile=0.25, drop=True),
            "upper quartile": times.sel(quantile=0.75, drop=True),
            "sampler's step, ms": 1e3 * _median(found.step),
            "remember, ms": 1e3 * _median(found.remember),
            "state, MiB": found.state / _MIB,
            "all, MiB": found.update_bytes / _MIB,
        }
        value = _named(xr.Dataset(columns)).to_array("cost").to_dataset(name="value")
        yield tables.table(value, rows=("kind", "window"), columns="cost", digits=3)

    @classmethod
    def figures(cls, runs):
        return {run.folder.name: _figure(run) for run in runs}


def quartiles(seconds: xr.DataArray) -> xr.DataArray:
    """Lower quartile, median and upper quartile over the repetitions of each cell."""
    cells = seconds.stack(cell=("kind", "window")).dropna("cell", how="all")
    found = cells.quantile([0.25, 0.5, 0.75], "repeat", skipna=True).unstack("cell")
    return found.reindex({axis: seconds[axis] for axis in ("kind", "window")})


def _median(seconds: xr.DataArray) -> xr.DataArray:
    return quartiles(seconds).sel(quantile=0.5, drop=True)


def _named(found: xr.Dataset) -> xr.Dataset:
    return found.assign_coords(kind=[_KINDS[kind] for kind in found.kind.values.tolist()])


def _figure(run: lab.Run) -> Any:
    study, found = run.study, run.found
    time = 1e3 * quartiles(found["update"])
    memory = found.update_bytes / _MIB
    ends = time.sel(quantile=[0.25, 0.75]).rename(quantile="end").drop_vars("end")
    axis = xr.IndexVariable("panel", ["time", "memory"])
    own = [1e3 * found.step.median().item(), found.step_bytes.max().item() / _MIB]
    values = {
        "value": xr.concat([time.sel(quantile=0.5, drop=True), memory], axis),
        "error": xr.concat([ends, ends * np.nan], axis),
        "own": ("panel", own),
    }
    shown = _named(xr.Dataset(values))

    def each(panel, part):
        panel.axhline(part.own, color=style.GREY, linestyle="--", label="the sampler's own step")
        style.log_counts(panel, study.windows)

    drawn = figures.facets(
        shown,
        x="window",
        hue="kind",
        row="panel",
        error="error",
        log_y=True,
        title=lambda panel, _: _title(shown.sel(panel=panel)),
        x_label="window: pairs remembered",
        y_label=lambda panel: {"time": "milliseconds a step", "memory": "MiB a step"}[panel],
        size=(6.2, 2.3),
        each=each,
    )
    counts = sorted({int(n) for n in found.step.count("repeat").values.ravel() if n})
    latents, prompts = study.bandwidths
    return figures.caption(
        drawn,
        run,
        n=f"{study.batch} latents of {study.latent} numbers, {study.model} model, {study.device}; "
        f"bandwidths {latents:.3g}, {prompts:.3g}",
        bars=f"quartiles of {' to '.join(map(str, counts[:1] + counts[1:][-1:]))} repetitions",
    )


def _title(found: xr.Dataset) -> str:
    """How much more Conditional-Vendi takes than Conditional-RKE, where both were timed."""
    first, *others = found.kind.values.tolist()
    if not others:
        return first
    both = found.value.dropna("window").isel(window=-1)
    times = (both.sel(kind=others[0]) / both.sel(kind=first)).item()
    what = f"{times:.3g} times the {found.panel.item()} of {first}"
    return f"Window {both.window.item():,}: {others[0]} takes {what}"
