"""Guidance where the truth is known: a diffusion on mixtures in the plane, four kinds of guide."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.generators import diffusion
from experiments.generators.mixture_diffusion import MIXTURES, PromptedMixture
from experiments.lab import figures, style, tables

KINDS = {
    "vendi": "Vendi",
    "conditional_vendi": "Conditional-Vendi",
    "rke": "RKE",
    "conditional_rke": "Conditional-RKE",
}
LAW, PLAIN = "law", "plain"
SCORES = ("modes", *KINDS, "energy", "off", "variation")
_RULED = 2000  # Samples of the law that the bandwidths are chosen on.
_SHOWN = 240  # Samples a panel.
_WORDS = {
    LAW: "true distribution",
    PLAIN: "no guidance",
    **KINDS,
    "shared": "prompts share components",
    "apart": "prompts are apart",
    "modes": "modes of a prompt",
    "energy": "energy distance",
    "off": "share off the support",
    "until": "part of the steps",
}
_COLUMNS = "weight", "off", "modes", "energy"  # Of tables.


class GuidedMixture(lab.Study):
    """What do guided samplers gain and lose when the true distribution is known?"""

    data = None
    unrepeated = ("shown",)
    tolerance = 5e-3  # A sample near a border of modes falls to either side by rounding.
    runs = ((), ("--at=noisy", "--kinds=rke,conditional_rke", "--scales=1"))
    control = "All guides have the same prompts and noise, and may leave the support as often."

    bandwidths: lab.Scales = lab.Scales()
    mixtures: tuple[str, ...] = lab.flag(
        tuple(MIXTURES), "Whether prompts share components, or are apart.", choices=MIXTURES
    )
    kinds: tuple[str, ...] = lab.flag(tuple(KINDS), "The guides.", choices=KINDS)
    weights: tuple[float, ...] = lab.flag(
        (0.3, 1.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 25.0, 30.0, 50.0, 100.0),
        "Weights of the guides.",
        above=0,
    )
    until: tuple[float, ...] = lab.flag((0.5, 1.0), "Parts of the steps that are guided.", above=0)
    # At predicted clean samples, or at noisy ones (CV eq. 14).
    at: str = lab.flag("clean", "Where the gradient is taken.", choices=diffusion.PLACES)
    seeds: int = lab.flag(5, "Repetitions with other noise, each for every guide.", at_least=1)
    batches: int = lab.flag(12, "Batches one after another in each.", at_least=1)
    # Modes of a prompt and energy distances are of pairs of different samples.
    copies: int = lab.flag(4, "Samples of every prompt in a batch.", at_least=2)
    window: int = lab.flag(48, "Finished samples that the guide remembers.", at_least=0)
    truncation: int = lab.flag(36, "Eigenvalues that Conditional-Vendi keeps.", at_least=1)
    steps: int = lab.flag(12, "Steps of the sampler.", at_least=1)
    solver: str = lab.flag("dpm2", "The sampler.", choices=diffusion.SOLVERS)
    limit: float = lab.flag(0.05, "Share off the support of guides.", above=0, below=1)
    of_mixtures: dict[str, lab.Scales] = lab.resolved()

    def prepare(self, load, seed):
        """Chooses the bandwidths on samples of each law."""
        if max(self.until) > 1:
            raise ValueError(f"--until: expected parts up to 1, received {max(self.until):g}.")
        laws = {name: MIXTURES[name]() for name in self.mixtures}
        scales = {}
        for name, law in laws.items():
            prompts = jnp.repeat(law.prompts, -(-_RULED // len(law.weights)), axis=0)
            outputs = law.sample(jax.random.key(seed), prompts)
            pairs = PairedEmbeddings(name, np.asarray(outputs), np.asarray(prompts), "")
            scales[name] = self.bandwidths.resolve(pairs, seed)
        one, widths = next(iter(scales.values())), self.bandwidths
        return self.ready(
            state=laws,
            arrays={
                f"{name} {part}": np.asarray(array)
                for name, law in laws.items()
                for part, array in law._asdict().items()
            },
            bandwidths=dataclasses.replace(widths, scales=one.scales, described=one.described),
            of_mixtures=scales,
            weights=tuple(sorted(self.weights)),
            until=tuple(sorted(self.until)),
        )

    def cells(self):
        """The law and the sampler by itself, then every guide."""
        return [
            lab.Cell((("mixture", name), ("scale", scale), ("kind", kind), ("until", until)))
            for name, scales in self.of_mixtures.items()
            for scale in scales.axis
            for kind in (LAW, PLAIN, *self.kinds)
            for until in (self.until if kind in KINDS else (0.0,))
        ]

    def compute(self, state, context, *, mixture, scale, kind, until):
        """Samples at every weight with the same noise, and what is found of them."""
        law, kernels = state[mixture], scale.kernels
        fixed = dataclasses.replace(self, of_mixtures=None)  # Programs are kept by its hash.
        sampler = functools.partial(fixed.draw, law, kernels=kernels, kind=kind, until=until)
        keys = [jax.random.fold_in(context.shared_key, seed) for seed in range(self.seeds)]
        each = -(-_SHOWN // len(law.weights))
        weights = self.weights if kind in KINDS else (0.0,)
        values, shown = [], []
        for weight in weights:
            context.say(f"weight {weight:g}")
            points = [np.asarray(sampler(key=key, weight=jnp.asarray(weight))) for key in keys]
            values.append([measured(law, of, kernels) for of in points])
            shown.append(points[0][:, :each].reshape(-1, 2).astype(np.float16))
        count = len(shown[0])
        return xr.Dataset(
            {
                "value": (("weight", "seed", "score"), values),
                "shown": (("weight", "sample", "coordinate"), shown),
                "prompt": (("sample",), np.arange(count) * len(law.weights) // count),
            },
            {"weight": list(weights), "score": list(SCORES), "sample": range(count)},
        )

    @functools.partial(jax.jit, static_argnames=("self", "kind", "until"))
    def draw(self, law, key, kernels, weight, *, kind, until):
        """Samples of every prompt, `[prompts, n, 2]`: the batches in order within each.

        Guided by a kind of KINDS in a first part of the steps, by nothing (PLAIN), or of the LAW.
        """
        count, guide = len(law.weights), None
        prompts = jnp.tile(jnp.repeat(law.prompts, self.copies, axis=0), (self.batches, 1, 1))
        if kind in KINDS:
            sizes = {"prompt_size": count, "window": self.window, "truncation": self.truncation}
            whole = diffusion.weighted(kind, weight, **kernels, **sizes)
            stop = max(1, round(until * self.steps))
            guide = optax.conditionally_mask(whole, lambda step, **_: jnp.asarray(step) < stop)
        points = law.sample(key, prompts.reshape(-1, count))
        if kind != LAW:
            options = {name: getattr(self, name) for name in ("steps", "solver", "at")}
            options |= {"shape": (2,), "guide": guide}
            points, _ = diffusion.sample_batches(law.denoise, key, prompts, **options)
        by_prompt = points.reshape(self.batches, count, self.copies, 2).swapaxes(0, 1)
        return by_prompt.reshape(count, -1, 2)

    def tables(self, run):
        """Guides within the same share off the support, and conditional less marginal ones."""
        at, gains = self.compared(run)
        look = {"columns": "score", "error": "error", "names": _WORDS}
        yield tables.table(at, rows=("mixture", "scale", "kind", "until"), **look)
        yield tables.table(gains, rows=("mixture", "scale", "pair", "until"), **look)

    def compared(self, run):
        """Scores of the law, without and with guides; then what conditional guides have more."""
        reached = self.reached(run)
        free = run.found.value.sel(kind=[LAW, PLAIN], until=[0.0], weight=0.0, drop=True)
        whole = xr.concat([free, reached], "kind", join="outer").sel(score=list(_COLUMNS))
        whole = whole.assign_coords(kind=[_WORDS.get(kind, kind) for kind in whole.kind.values])
        at = tables.t_intervals(whole, "seed")
        at = at.assign(error=at.error.where(~at.score.isin(_COLUMNS[:2])))
        gains = differences(reached.sel(score=list(_COLUMNS[2:])))
        return at, tables.t_intervals(gains, "seed")

    def reached(self, run):
        """The scores of every guide at its largest weight within `limit` off the support.

        The share is the mean over the seeds; the weight becomes one more score.
        """
        path = guided(run.found.value)
        share = path.sel(score="off", drop=True).mean("seed", skipna=False)
        weight = path.weight.where(share <= self.limit).max("weight").fillna(0.0)
        chosen = path.sel(weight=weight).drop_vars("weight")
        return xr.concat([chosen, weight.expand_dims(score=["weight"])], "score")

    @classmethod
    def facts(cls, runs):
        (at, gains), (noisy, noisy_gains) = (run.study.compared(run) for run in runs)
        first = at.sel(scale=1.0, until=[0.0, 0.5]).max("until")
        gains = gains.sel(score="modes", until=0.5)
        look = {"error": "error", "names": _WORDS, "digits": 3}
        return {
            "at": first,
            "throughout": at.sel(scale=1.0, until=1.0),
            "noisy": noisy.sel(scale=1.0, until=0.5),
            "gains": gains,
            "noisy_gains": noisy_gains.sel(scale=1.0, until=0.5, score="modes"),
            "means": guided(runs[0].found.value).sel(scale=1.0).mean("seed"),
            "scores": tables.table(first, rows=("mixture", "kind"), columns="score", **look),
            "by_bandwidth": tables.table(gains, rows=("mixture", "pair"), columns="scale", **look),
        }

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            name = run.folder.name.replace("-", "_")
            drawn |= {name: _curves(run), f"{name}_samples": _samples(run)}
        return drawn

    def checked(self, committed):
        """Beyond the limit, rounding grows in every step: samples fly off in any direction."""
        off = committed.value.sel(score="off").mean("seed")
        return {"weight": committed.weight[(off <= self.limit).values]}

    def variant(self):
        return "" if self.at == GuidedMixture.at else self.at


def measured(
    mixture: PromptedMixture, points: np.ndarray, kernels: Mapping[str, Any]
) -> np.ndarray:
    """What SCORES names, `[scores]`, of samples of every prompt `[m, n, 2]`.

    The modes of a prompt are one over the share of pairs of its samples on the support that share a
    component, as Conditional-RKE of narrow components far apart; NaN where no two do. Scores of
    order 2 are of the samples' law, without bias but for the ratio; those of order 1 of the
    samples. 'off' is the share off the support, 'variation' that of the components' shares.
    """
    m, n, _ = points.shape
    shares = np.stack([mixture.shares(of, prompt) for prompt, of in enumerate(points)])
    on = shares.sum(axis=1)
    pairs, meeting = (np.sum(of * (n * of - 1)) for of in (on, shares))
    weights = np.asarray(mixture.weights, float)
    outputs = points.reshape(-1, 2)
    prompts = np.repeat(np.asarray(mixture.prompts), n, axis=0)
    spectral = cv.decompose(outputs, prompts, order=1, method=cv.Exact(), **kernels)
    of_prompts = np.square(_gram(kernels["prompt_kernel"], mixture.prompts))
    squares = np.square(_gram(kernels["output_kernel"], outputs))
    # The means of different samples of every two prompts, [m, m], without bias.
    of_outputs = squares.reshape(m, n, m, n).mean(axis=(1, 3))
    np.fill_diagonal(of_outputs, (n * np.diagonal(of_outputs) - 1) / (n - 1))
    energies = [mixture.energy_distance(of, prompt) for prompt, of in enumerate(points)]
    found = {
        "modes": pairs / meeting if meeting > 0 else np.nan,
        "vendi": spectral.vendi,
        "conditional_vendi": spectral.conditional,
        "rke": m**2 / of_outputs.sum(),
        "conditional_rke": of_prompts.sum() / np.sum(of_prompts * of_outputs),
        "energy": np.mean(energies),
        "off": 1 - on.mean(),
        "variation": np.mean(np.abs(shares - weights).sum(axis=1) + 1 - on) / 2,
    }
    return np.array([float(found[name]) for name in SCORES])


def _gram(kernel: cv.Kernel, points: Any) -> np.ndarray:
    prepared = kernel.prepare(jnp.asarray(points))
    return np.asarray(kernel.cross(prepared, prepared), float)


def guided(values: xr.DataArray) -> xr.DataArray:
    """The scores of the guides by their names, and at the weight 0 those without guidance."""
    kinds = [kind for kind in values.kind.values.tolist() if kind in KINDS]
    plain = values.sel(kind=PLAIN, until=0.0, weight=0.0, drop=True)
    guides = values.sel(kind=kinds, until=values.until > 0)
    guides = guides.assign_coords(kind=[KINDS[kind] for kind in kinds])
    return guides.where(guides.weight > 0, plain)


def differences(reached: xr.DataArray) -> xr.DataArray:
    """Conditional guides less the marginal ones, of what `reached` gives, by both names."""
    marginal = [kind for kind in reached.kind.values if f"Conditional-{kind}" in reached.kind]
    conditional = reached.sel(kind=[f"Conditional-{kind}" for kind in marginal])
    gains = conditional - reached.sel(kind=marginal).assign_coords(kind=conditional.kind)
    pairs = [f"Conditional-{kind} less {kind}" for kind in marginal]
    return gains.assign_coords(kind=pairs).rename(kind="pair")


def _samples(run):
    """The law, plain samples, and each guide at its largest weight within the limit."""
    study, until = run.study, run.study.until[0]
    kinds = [LAW, PLAIN, *study.kinds]
    places = list(itertools.product(study.mixtures, kinds))
    figure, panels = style.panels(len(places), columns=len(kinds), size=(1.75, 2.1))
    best = 0.0, "", ""
    found = run.found.sel(scale=study.bandwidths.shown)
    weights = study.reached(run).sel(scale=study.bandwidths.shown, until=until, score="weight")
    for panel, (mixture, kind) in zip(panels, places, strict=True):
        name, weight = _WORDS[kind], 0.0
        if kind in KINDS:
            weight = weights.sel(mixture=mixture, kind=name).isel(seed=0).item()
        unguided = kind if kind == LAW else PLAIN
        place = {"kind": kind, "until": until} if weight else {"kind": unguided, "until": 0.0}
        one = found.sel(mixture=mixture, weight=weight, **place)
        prompts = one.prompt.values.astype(int)
        colours = np.array(style.CYCLE)[prompts % len(style.CYCLE)]
        panel.scatter(*one.shown.values.T, s=3, c=colours.tolist(), linewidths=0)
        modes, off = one.value.sel(score=["modes", "off"]).mean("seed", skipna=False).values
        best = max(best, (modes, name, mixture))
        head = f"{name}\nweight {weight:g}, " if kind in KINDS else f"{name}\n"
        panel.set_title(f"{head}{modes:.2f} modes\n{off:.1%} off the support", fontsize=8)
        law = found.shown.sel(mixture=mixture, kind=LAW, until=0.0, weight=0.0)
        reach = 1.35 * float(np.abs(law.astype(float)).max())
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        panel.grid(visible=False)
        if kind == LAW:
            panel.set_ylabel(_WORDS.get(mixture) or "")
    most, name, mixture = best
    style.headline(figure, f"{name} reaches most modes, {most:.1f}, where {_WORDS[mixture]}")
    words = f"{len(prompts)} samples, coloured by prompt; largest weight within {study.limit:.0%} "
    words += f"off the support, in the first {until:.0%} of the steps; means of {study.seeds} seeds"
    return figures.caption(figure, run, n=words, scale=study.bandwidths.shown)


def _curves(run):
    """Modes of a prompt against the share off the support: mixtures by when the guide acts."""
    study, scale = run.study, run.study.bandwidths.shown
    places = list(itertools.product(study.mixtures, study.until))
    columns = len(study.until)
    look = {"size": (3.5, 2.3), "sharex": True, "sharey": True}
    figure, panels = style.panels(len(places), columns=columns, **look)
    paths = guided(run.found.value.sel(scale=scale))
    paths = tables.t_intervals(paths.where(paths.sel(score="off") <= 0.5), "seed")
    at, gains = study.compared(run)
    modes_at, gains = (of.sel(scale=scale, score="modes") for of in (at.value, gains))
    more, gained = gains.value.max("pair"), {}
    for panel, (mixture, until) in zip(panels, places, strict=True):
        for number, kind in enumerate(paths.kind.values.tolist()):
            path = paths.sel(mixture=mixture, until=until, kind=kind)
            off, modes = (path.sel(score=name) for name in ("off", "modes"))
            look = {"label": kind, **style.look(number, style.score_colour(kind))}
            panel.errorbar(100 * off.value, modes.value, modes.error, elinewidth=0.8, **look)
        law = modes_at.sel(mixture=mixture, kind=_WORDS[LAW], until=0.0).item()
        style.known(panel, law, _WORDS[LAW] if panel is panels[0] else "", below=True)
        panel.axvline(100 * study.limit, color=style.GREY, linewidth=0.8, linestyle=":")
        when = "all steps" if until == 1 else f"first {until:.0%} of the steps"
        panel.set_title(f"{mixture}, {when}")
        gained[more.sel(mixture=mixture, until=until).item()] = f"{mixture}, {when}"
        panel.set(xlabel="off the support, %", xlim=(0, 50), ylim=(0, None), ylabel=_WORDS["modes"])
        panel.label_outer()
    style.label_lines(panels[0])
    most, *others = sorted(gained, reverse=True)
    words = f"Within {study.limit:.0%} off the support, knowing the prompt adds {most:.1f} modes"
    others = f", at most {max(others[0], 0):.1f} elsewhere" if others else ""
    style.headline(figure, f"{words} ({gained[most]}){others}")
    n = f"{study.seeds} seeds of {study.batches * study.copies} samples a prompt, "
    n += f"gradient at the {study.at} samples"
    return figures.caption(figure, run, n=n, bars="95%", scale=scale)
