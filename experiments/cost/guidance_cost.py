"""Seconds and memory of a guided step as the window grows, beside a step of the sampler.

The cost of a step does not depend on the sampler's parameters, so they are random.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from flax import nnx
from rich.table import Table

import condvendi_jax as cv
from experiments import lab
from experiments.cost import timing
from experiments.generators import diffusion, latent_diffusion
from experiments.lab import figures, style

_KINDS = {"conditional_rke": "Conditional-RKE", "conditional_vendi": "Conditional-Vendi"}
_SCALE = 7.5  # Of classifier-free guidance; the paper's.
_ENOUGH_S = 60.0  # A slow call is repeated less often once all took so many seconds.


class GuidanceCost(lab.Study):
    """How much time and memory does a guided step take as its window grows?"""

    control = "A step of the sampler is timed in turns with it; the window is the question."
    grows = ("window",)
    unrepeated = ("repeat", "step", "update", "remember")
    data = None

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
        f"Timings of each; fewer, but {timing.AT_LEAST}, of what takes {_ENOUGH_S:g} s.",
        at_least=timing.AT_LEAST,
    )
    latent: int = lab.resolved(0)
    prompt: int = lab.resolved(0)
    bandwidths: tuple[float, float] = lab.resolved(())
    device: str = lab.resolved("")

    def prepare(self, load, seed):
        """Draws as many random pairs of the model's shapes as the largest window and a batch take.

        A bandwidth is half the root mean squared distance of two rows: a spectrum that is neither
        flat nor one.
        """
        windows, generator = tuple(sorted(self.windows)), np.random.default_rng(seed)
        sizes, n = latent_diffusion.TRAININGS[self.model].sizes, windows[-1] + self.batch
        latents = generator.normal(size=(n, sizes.latent * latent_diffusion.GRID**2))
        prompts = generator.normal(size=(n, sizes.prompt))
        prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
        arrays = {"latents": latents.astype(np.float32), "prompts": prompts.astype(np.float32)}
        variances = [np.var(of, axis=0, dtype=np.float64) for of in arrays.values()]
        return self.ready(
            state=tuple(arrays.values()),
            arrays=arrays,
            windows=windows,
            latent=latents.shape[1],
            prompt=prompts.shape[1],
            bandwidths=tuple(float(np.sqrt(np.sum(of) / 2)) for of in variances),
            device=jax.devices()[0].device_kind,
        )

    def axes(self):
        return {"kind": tuple(_KINDS), "window": self.windows}

    def cells(self):
        """Those that a guide can have: eigenvectors are computed of the smaller windows only."""
        most = {"conditional_rke": np.inf, "conditional_vendi": self.spectra}
        every = super().cells()
        return [cell for cell in every if cell.values["window"] <= most[cell.values["kind"]]]

    def compute(self, state, context, *, kind, window):
        """Fills the window, then times the steps of the sampler and of the guide in turns."""
        batch = tuple(jnp.asarray(array[: self.batch]) for array in state)
        guide = _guide(kind, window, self.bandwidths, self.prompt)
        memory = guide.init(batch[0])
        remember = jax.jit(cv.guidance.remember).lower(memory, *batch).compile()
        for first in range(0, window, self.batch):
            chosen = slice(first, first + self.batch)
            memory = remember(memory, *(jnp.asarray(array[chosen]) for array in state))
        update = jax.jit(_update, static_argnums=0).lower(guide, memory, *batch).compile()
        step, inputs = _sampler(self.model, self.batch, context.shared_key)
        calls = {
            "step": lambda: step(*inputs),
            "update": lambda: update(memory, *batch),
            "remember": lambda: remember(memory, *batch),
        }
        for call in calls.values():
            jax.block_until_ready(call())
        rounds: list[list[float]] = []
        began = time.perf_counter()
        while len(rounds) < self.repeats:  # In turns: what else the machine does falls on all.
            if time.perf_counter() - began > _ENOUGH_S and len(rounds) >= timing.AT_LEAST:
                break
            marks = [time.perf_counter()]
            for call in calls.values():
                jax.block_until_ready(call())
                marks.append(time.perf_counter())
            rounds.append(np.diff(marks).tolist())
        seconds = zip(calls, np.transpose(rounds), strict=True)
        found: dict[str, Any] = {name: ("repeat", of) for name, of in seconds}
        found["state"] = sum(leaf.nbytes for leaf in jax.tree.leaves(memory))
        for name, compiled in {"update": update, "step": step}.items():
            needs: Any = compiled.memory_analysis()
            found[f"{name}_bytes"] = needs.argument_size_in_bytes + needs.temp_size_in_bytes
        return xr.Dataset(found, {"repeat": range(len(rounds))})

    def tables(self, run):
        """Steps of the guide over those of the sampler, milliseconds, and memory."""
        heads = ("steps of the sampler", "ms", "sampler's step, ms")
        grid = Table("guide", "window", *heads, "state, MiB", "all, MiB")
        for cell, found in run.results.items():
            update, step = found["update"], found.step
            times = (
                timing.spread(of, "repeat") for of in (update / step, 1e3 * update, 1e3 * step)
            )
            memory = (f"{found[name].item() / 2**20:.3g}" for name in ("state", "update_bytes"))
            place = _KINDS[cell.values["kind"]], f"{cell.values['window']:,}"
            grid.add_row(*place, *(timing.in_words(of, 2).item() for of in times), *memory)
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """`ms(what, kind, window)`; `steps(kind, window)`, over the sampler's; and the table."""
        found = runs[0].found

        def ms(what: str, kind: str, window: int, over: Any = 1e-3) -> float:
            times = (found[what] / over).sel(kind=f"conditional_{kind}", window=window)
            return timing.spread(times, "repeat")[0].item()

        (table,) = runs[0].study.tables(runs[0])
        return {"steps": functools.partial(ms, "update", over=found.step), "ms": ms, "table": table}

    @classmethod
    def figures(cls, runs):
        return {run.folder.name: _figure(run) for run in runs}


def _guide(
    kind: str, window: int, bandwidths: tuple[float, float], prompt_size: int
) -> optax.GradientTransformationExtraArgs:
    """Guidance by Conditional-RKE, or by Conditional-Vendi with a tenth of its eigenvalues."""
    options: Any = {"window": window, "prompt_size": prompt_size}
    options["output_kernel"], options["prompt_kernel"] = map(cv.Gaussian, bandwidths)
    if kind == "conditional_rke":
        return cv.guidance.conditional_rke(**options)
    return cv.guidance.conditional_vendi(**options, truncation=max(1, window // 10))


def _update(
    guide: optax.GradientTransformationExtraArgs, state: Any, latents: jax.Array, prompts: jax.Array
) -> tuple[Any, Any]:
    """The updates of one step of a guide, and what it changes in the state.

    The rest of the state stays where it is in a compiled loop. As a result it would be copied.
    """
    updates, state = guide.update(jnp.zeros_like(latents), state, latents, prompts=prompts)
    return updates, state.skipped


def _sampler(model: str, batch: int, key: jax.Array) -> tuple[Any, tuple[Any, ...]]:
    """One step of DDIM, compiled, and parameters, latents, a time and prompts for it."""
    sizes, side = latent_diffusion.TRAININGS[model].sizes, latent_diffusion.GRID
    network = latent_diffusion.Denoiser(sizes, rngs=nnx.Rngs(0))
    denoise = jax.tree_util.Partial(latent_diffusion.clean_prediction, network)

    def step(denoise: Any, latents: jax.Array, at: jax.Array, prompts: jax.Array) -> jax.Array:
        nothing = jnp.zeros(prompts.shape[1:])
        clean = diffusion.guided(denoise, nothing, _SCALE)(latents, at, prompts)
        later = 0.9 * at
        noise = (latents - diffusion.alpha(at) * clean) / diffusion.sigma(at)
        return diffusion.alpha(later) * clean + diffusion.sigma(later) * noise

    latents = jax.random.normal(key, (batch, side, side, sizes.latent))
    inputs = denoise, latents, jnp.asarray(0.5), jax.random.normal(key, (batch, sizes.prompt))
    return jax.jit(step).lower(*inputs).compile(), inputs


def _figure(run: lab.Run) -> Any:
    study, found = run.study, run.found.assign_coords(kind=list(_KINDS.values()))
    spreads = 1e3 * timing.spread(found["update"], "repeat")
    step = 1e3 * found.step.median().item()

    def each(panel, part):
        style.known(panel, step, "the sampler's step", side="left")
        style.log_counts(panel, study.windows)

    drawn = figures.facets(
        xr.Dataset({"value": spreads.isel(end=0, drop=True), "error": spreads.isel(end=[1, 2])}),
        x="window", hue="kind", error="error", log_y=True, x_label="window: pairs remembered",
        y_label="milliseconds a step", size=(7.0, 2.8), each=each,
    )  # fmt: skip
    below = found.window.where(spreads.isel(end=0) < step).max("window").fillna(0)
    words = (f"{kind} up to {most:,.0f}" for kind, most in below.to_series().items())
    style.headline(drawn, f"Less than the sampler's own step: {' pairs, '.join(words)} pairs")
    latents, prompts = study.bandwidths
    n = f"{study.batch} latents of {study.latent} numbers, {study.model} model, {study.device}"
    bars = f"least to most of {timing.AT_LEAST} to {found.sizes['repeat']} repetitions"
    n += f"; bandwidths {latents:.3g}, {prompts:.3g}"
    return figures.caption(drawn, run, n=n, bars=bars)
