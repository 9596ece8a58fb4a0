"""What guidance costs: seconds and memory of a step as the window grows, beside a sampler's own.

The sampler is the latent diffusion of this project with classifier-free guidance, of the size that
is shipped; what a step costs does not depend on its parameters, so random ones will do. Guidance of
order 2, Conditional-RKE, costs O(window) a sample. Conditional-Vendi takes all eigenvectors of
window + batch pairs, whatever its truncation, and goes only as far as they do. The sampler's step
and the guide's are timed in turns, so that what else the machine does falls on both.

    python -m experiments.guidance_cost --model=fashion
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import validation
from condvendi_jax.cli import files
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.generators import diffusion, latent_diffusion
from experiments.lab import style
from experiments.lab.study import option

_KINDS = {"conditional_rke": "Conditional-RKE", "conditional_vendi": "Conditional-Vendi"}
_MIB = 2**20
# Of classifier-free guidance; the paper's.
_SCALE = 7.5
# A slow step is repeated less often once it took so many seconds, but three times at least.
_ENOUGH_S, _AT_LEAST = 60.0, 3


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    model: str = option(
        "emoji",
        "Of which latent diffusion the sampler's step is.",
        choices=tuple(latent_diffusion.TRAININGS),
    )
    windows: tuple[int, ...] = option((100, 300, 1000, 3000, 10_000), "Pairs remembered.")
    spectra: int = option(3000, "The largest window whose eigenvectors are computed.")
    batch: int = option(16, "Latents guided at once.")
    repeats: int = option(
        15, f"Timings of each; fewer, but {_AT_LEAST}, of what takes {_ENOUGH_S:g} s."
    )
    latents: str | None = option(
        None, "Finished latents [n, ...] that fill the window, .npy; noise of the model's shape."
    )
    prompts: str | None = option(None, "Their prompts [n, p], .npy; noise of unit length.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the costs depend on.

    Attributes:
      model: of the sampler.
      windows: of the guides.
      spectra: the largest of them whose eigenvectors are computed.
      batch: latents guided at once.
      repeats: timings of each, at most.
      latent: entries of a latent that is remembered.
      prompt: entries of its prompt.
      bandwidths: of latents and prompts: half the root mean squared distances.
      device: that the steps ran on.
    """

    model: str
    windows: tuple[int, ...]
    spectra: int
    batch: int
    repeats: int
    latent: int
    prompt: int
    bandwidths: tuple[float, float]
    device: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """A kind of guidance and its window."""

    kind: str
    window: int


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds of each repetition, and bytes.

    Attributes:
      step: of the sampler alone, `[r]` seconds.
      update: of the guide alone, in turns with the sampler, `[r]` seconds.
      remember: of taking a finished batch into the window, `[r]` seconds.
      state: bytes of the guide's state.
      update_bytes: that the compiled update takes for its arguments, the state among them, and as
        workspace; what LAPACK takes for itself is not in it.
      step_bytes: the same of the sampler's step, its parameters among the arguments.
    """

    step: np.ndarray
    update: np.ndarray
    remember: np.ndarray
    state: int
    update_bytes: int
    step_bytes: int


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, and has as many pairs as the largest window and a batch take."""
    del load
    for name in ("spectra", "batch", "repeats"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=1)
    windows = tuple(sorted(set(options.windows)))
    if not windows or windows[0] < 1:
        raise ValueError(f"--windows: expected numbers of at least 1, received {windows}.")
    if (options.latents is None) != (options.prompts is None):
        raise ValueError("--latents and --prompts are of the same pairs: expected both or none.")
    arrays = _pairs(options, windows[-1] + options.batch, seed)
    settings = Settings(
        model=options.model,
        windows=windows,
        spectra=options.spectra,
        batch=options.batch,
        repeats=options.repeats,
        latent=arrays["latents"].shape[1],
        prompt=arrays["prompts"].shape[1],
        bandwidths=(_bandwidth(arrays["latents"]), _bandwidth(arrays["prompts"])),
        device=jax.devices()[0].device_kind,
    )
    return lab.Setup(settings, arrays)


def _pairs(options: Options, n: int, seed: int) -> dict[str, np.ndarray]:
    """Latents `[n, d]` and prompts `[n, p]` in float32, from files or drawn."""
    if options.latents is None or options.prompts is None:
        generator = np.random.default_rng(seed)
        sizes = latent_diffusion.TRAININGS[options.model].sizes
        latents = generator.normal(size=(n, sizes.latent * latent_diffusion.GRID**2))
        prompts = generator.normal(size=(n, sizes.prompt))
        prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
        return {"latents": latents.astype(np.float32), "prompts": prompts.astype(np.float32)}
    named = {"latents": options.latents, "prompts": options.prompts}
    arrays = {name: files.read_array(path) for name, path in named.items()}
    for name, array in arrays.items():
        if array.ndim < 2 or len(array) < n:
            raise ValueError(
                f"--{name}: expected at least {n} rows, the largest window and a batch, received "
                f"shape {array.shape}."
            )
    rows = {name: array.reshape(len(array), -1)[:n] for name, array in arrays.items()}
    checked = validation.check_arrays(rows)
    return {name: np.asarray(array) for name, array in zip(rows, checked, strict=True)}


def _bandwidth(rows: np.ndarray) -> float:
    """Half the root mean squared distance of two rows: a spectrum that is neither flat nor one."""
    return float(np.sqrt(np.sum(np.var(rows, axis=0, dtype=np.float64)) / 2))


def cells(settings: Settings) -> list[Cell]:
    """Every kind at every window that it can have."""
    return [
        Cell(kind, window)
        for window in settings.windows
        for kind in _KINDS
        if kind == "conditional_rke" or window <= settings.spectra
    ]


def guide_of(settings: Settings, cell: Cell) -> optax.GradientTransformationExtraArgs:
    """The guide of a cell; a tenth of the eigenvalues is kept."""
    latents, prompts = map(cv.Gaussian, settings.bandwidths)
    options: Any = {"output_kernel": latents, "prompt_kernel": prompts, "window": cell.window}
    options |= {"prompt_size": settings.prompt}
    if cell.kind == "conditional_rke":
        return cv.guidance.conditional_rke(**options)
    t = max(1, cell.window // 10)
    return cv.guidance.conditional_vendi(**options, truncation=t)


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Cost:
    """Fills the window, and times the sampler's step and the guide's in turns."""
    settings = setup.settings
    pairs = (setup.arrays["latents"], setup.arrays["prompts"])
    batch = tuple(jnp.asarray(array[: settings.batch]) for array in pairs)
    guide = guide_of(settings, cell)
    state = guide.init(batch[0])
    remember = jax.jit(cv.guidance.remember).lower(state, *batch).compile()
    context.say(f"{_KINDS[cell.kind]}, window {cell.window:,}")
    for first in range(0, cell.window, settings.batch):
        chosen = slice(first, first + settings.batch)
        state = remember(state, *(jnp.asarray(array[chosen]) for array in pairs))
    update = jax.jit(_update, static_argnums=0).lower(guide, state, *batch).compile()
    step, inputs = _sampler(settings, context.shared_key)
    seconds: dict[str, list[float]] = {"step": [], "update": [], "remember": []}
    calls = {
        "step": lambda: step(*inputs),
        "update": lambda: update(state, *batch),
        "remember": lambda: remember(state, *batch),
    }
    for call in calls.values():
        jax.block_until_ready(call())
    started = time.perf_counter()
    while len(seconds["step"]) < settings.repeats:
        late = time.perf_counter() - started > _ENOUGH_S
        if late and len(seconds["step"]) >= _AT_LEAST:
            break
        for name, call in calls.items():
            before = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - before)
    return Cost(
        **{name: np.array(values) for name, values in seconds.items()},
        state=sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
        update_bytes=_bytes(update),
        step_bytes=_bytes(step),
    )


def _update(
    guide: optax.GradientTransformationExtraArgs, state: Any, latents: jax.Array, prompts: jax.Array
) -> tuple[Any, Any]:
    return guide.update(jnp.zeros_like(latents), state, latents, prompts=prompts)


def _bytes(program: Any) -> int:
    """Of the arguments and the workspace of a compiled program."""
    needs = program.memory_analysis()
    return needs.argument_size_in_bytes + needs.temp_size_in_bytes


def _sampler(settings: Settings, key: jax.Array) -> tuple[Any, tuple[Any, ...]]:
    """One step of DDIM, compiled, and parameters, latents, a time and prompts for it."""
    sizes = latent_diffusion.TRAININGS[settings.model].sizes
    graph, params = nnx.split(latent_diffusion.Denoiser(sizes, rngs=nnx.Rngs(0)))

    def denoise(params: Any, latents: jax.Array, time: jax.Array, prompts: jax.Array) -> jax.Array:
        times = jnp.broadcast_to(time, latents.shape[:1])
        velocity = nnx.merge(graph, params)(latents, times, prompts)
        return diffusion.alpha(time) * latents - diffusion.sigma(time) * velocity

    def step(params: Any, latents: jax.Array, time: jax.Array, prompts: jax.Array) -> jax.Array:
        conditional = functools.partial(denoise, params)
        nothing = jnp.zeros(prompts.shape[1:])
        clean = diffusion.guided(conditional, nothing, _SCALE)(latents, time, prompts)
        later = 0.9 * time
        noise = (latents - diffusion.alpha(time) * clean) / diffusion.sigma(time)
        return diffusion.alpha(later) * clean + diffusion.sigma(later) * noise

    side = latent_diffusion.GRID
    inputs = (
        params,
        jax.random.normal(key, (settings.batch, side, side, sizes.latent)),
        jnp.asarray(0.5),
        jax.random.normal(key, (settings.batch, sizes.prompt)),
    )
    return jax.jit(step).lower(*inputs).compile(), inputs


def relative(cost: Cost) -> np.ndarray:
    """A guide's step over the sampler's: lower quartile, median and upper quartile of the turns."""
    return np.quantile(cost.update / cost.step, [0.25, 0.5, 0.75])


def table(run: lab.Run) -> Table:
    """Milliseconds, multiples of the sampler's step with quartiles, and memory."""
    settings = run.settings
    own = 1e3 * np.median(np.concatenate([cost.step for cost in run.results.values()]))
    title = f"{settings.model}, {settings.batch} latents: the sampler's step takes {own:.3g} ms"
    grid = Table("guidance", "window", title=title, title_justify="left")
    for name in ("ms", "of a step", "remember, ms", "state, MiB", "all, MiB"):
        grid.add_column(name, justify="right", no_wrap=True)
    for cell, cost in run.results.items():
        low, middle, high = relative(cost)
        grid.add_row(
            _KINDS[cell.kind],
            f"{cell.window:,}",
            f"{1e3 * np.median(cost.update):.3g}",
            f"{middle:.2g} ({low:.2g}-{high:.2g})",
            f"{1e3 * np.median(cost.remember):.3g}",
            *(f"{size / _MIB:.3g}" for size in (cost.state, cost.update_bytes)),
        )
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Seconds and memory against the window, beside the sampler's own."""
    return {run.folder.name: _figure(run) for run in runs}


def _figure(run: lab.Run) -> Figure:
    settings = run.settings
    figure, (times, memories) = style.panels(2, size=(3.9, 2.9))
    for index, (kind, name) in enumerate(_KINDS.items()):
        found = {cell.window: cost for cell, cost in run.results.items() if cell.kind == kind}
        windows = list(found)
        colour, marker = style.score_colour(name), style.MARKERS[index]
        low, middle, high = (
            [1e3 * np.quantile(cost.update, q) for cost in found.values()]
            for q in (0.25, 0.5, 0.75)
        )
        times.plot(windows, middle, color=colour, marker=marker, label=name)
        times.fill_between(windows, low, high, color=colour, alpha=0.2, linewidth=0)
        held = [cost.update_bytes / _MIB for cost in found.values()]
        memories.plot(windows, held, color=colour, marker=marker, label=name)
    every = list(run.results.values())
    own = 1e3 * np.median(np.concatenate([cost.step for cost in every]))
    for panel, level in ((times, own), (memories, every[0].step_bytes / _MIB)):
        panel.axhline(level, color=style.GREY, linestyle="--", label="the sampler's own step")
    for panel, words in ((times, "milliseconds a step"), (memories, "memory of a step, MiB")):
        _logarithmic(panel, settings.windows)
        panel.set(xlabel="window", ylabel=words)
    style.legend_above(figure, times, columns=3)
    latents, prompts = settings.bandwidths
    repeats = [len(cost.step) for cost in every]
    counts = " to ".join(map(str, sorted({min(repeats), max(repeats)})))
    style.caption(
        figure,
        f"A step for {settings.batch} latents of {settings.latent} numbers with prompts of "
        f"{settings.prompt}, beside a step of the {settings.model} diffusion with classifier-free "
        f"guidance, on a {settings.device}. Medians of {counts} repetitions, "
        "shaded from quartile to quartile; memory is the state, the other arguments "
        f"and the workspace, without what LAPACK takes itself; bandwidths {latents:.3g} and "
        f"{prompts:.3g}, half the root mean squared distances; seed {run.seed}.",
    )
    return figure


def _logarithmic(panel: Axes, windows: Sequence[int]) -> None:
    style.log_counts(panel, windows)
    panel.set_yscale("log")
    style.log_numbers(panel.yaxis)


STUDY = lab.StudyRecord(
    name="guidance_cost",
    version=1,
    question="What does guidance cost a step, in time and memory, as the window grows?",
    reproduces="-",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Cost,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("guidance_cost",),
    data=None,
)


if __name__ == "__main__":
    lab.main(STUDY)
