"""Guidance where the truth is known: a diffusion on mixtures in the plane, four kinds of guide."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from experiments import lab
from experiments.generators import diffusion
from experiments.generators.mixture_diffusion import MIXTURES
from experiments.guidance import mixture_guides
from experiments.guidance.mixture_guides import KINDS, LAW, PLAIN, SCORES
from experiments.lab import figures, style, tables

_SHOWN = 240  # Samples a panel.
_WORDS = {
    "modes": "modes of a prompt",
    **KINDS,
    "energy": "energy distance to the law",
    "off": "share off the support",
    "variation": "total variation",
    "until": "part of the steps",
}
_SAMPLING = "batches", "copies", "window", "truncation", "steps", "solver", "at"
_MIXTURES = {"shared": "prompts share components", "apart": "prompts are apart"}
_SAMPLERS = {LAW: "the law itself", PLAIN: "no guidance"} | KINDS


class GuidedMixture(lab.Study):
    """What do guided samplers gain and lose when the true distribution is known?"""

    name = "guided_mixture"
    duration = "2 minutes"
    data = None
    runs = ((), ("--at=noisy", "--kinds=rke,conditional_rke", "--scales=1"))
    drawings = (
        "guided_mixture",
        "guided_mixture_curves",
        "guided_mixture_weights",
        "guided_mixture_bandwidth",
        "guided_mixture_noisy",
        "guided_mixture_noisy_curves",
        "guided_mixture_noisy_weights",
    )

    bandwidths: lab.Scales = lab.Scales()
    mixtures: tuple[str, ...] = lab.flag(
        tuple(MIXTURES), "Whether prompts share components, or are apart.", choices=MIXTURES
    )
    kinds: tuple[str, ...] = lab.flag(tuple(KINDS), "The guides.", choices=KINDS)
    weights: tuple[float, ...] = lab.flag(
        (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0), "Weights of the guides.", above=0
    )
    until: tuple[float, ...] = lab.flag(
        (0.5, 1.0), "Parts of the steps, from the first one on, in which the guide acts.", above=0
    )
    at: str = lab.flag(
        "clean",
        "Where the gradient is taken: at predicted clean samples, or at noisy ones (CV eq. 14).",
        choices=diffusion.PLACES,
    )
    seeds: int = lab.flag(5, "Repetitions with other noise, each for every guide.", at_least=1)
    batches: int = lab.flag(12, "Batches one after another in each.", at_least=1)
    # Modes of a prompt and energy distances are of pairs of different samples.
    copies: int = lab.flag(4, "Samples of every prompt in a batch.", at_least=2)
    window: int = lab.flag(48, "Finished samples that the guide remembers.", at_least=0)
    truncation: int = lab.flag(36, "Eigenvalues that Conditional-Vendi keeps.", at_least=1)
    steps: int = lab.flag(12, "Steps of the sampler.", at_least=1)
    solver: str = lab.flag("dpm2", "The sampler.", choices=diffusion.SOLVERS)
    limit: float = lab.flag(
        0.05, "The share off the support at which guides are compared.", above=0, below=1
    )
    of_mixtures: dict[str, lab.Scales] = lab.resolved()

    def prepare(self, load, seed):
        """Chooses the bandwidths on samples of each law."""
        if max(self.until) > 1:
            raise ValueError(f"--until: expected parts up to 1, received {max(self.until):g}.")
        laws = {name: MIXTURES[name]() for name in self.mixtures}
        scales = {
            name: self.bandwidths.resolve(mixture_guides.pairs_of(name, law, seed), seed)
            for name, law in laws.items()
        }
        one = next(iter(scales.values()))
        return self.ready(
            state=laws,
            arrays={
                f"{name} {part}": np.asarray(array)
                for name, law in laws.items()
                for part, array in law._asdict().items()
            },
            bandwidths=dataclasses.replace(
                self.bandwidths, scales=one.scales, described=one.described
            ),
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
        options = {name: getattr(self, name) for name in _SAMPLING}
        options |= {"kind": kind, "stop": max(1, round(until * self.steps))}
        draw = functools.partial(mixture_guides.draw, law, kernels=kernels, **options)
        keys = [jax.random.fold_in(context.shared_key, seed) for seed in range(self.seeds)]
        each = -(-_SHOWN // len(law.weights))
        weights = self.weights if kind in KINDS else (0.0,)
        values, shown = [], []
        for weight in weights:
            context.say(f"weight {weight:g}")
            points = [np.asarray(draw(key=key, weight=jnp.asarray(weight))) for key in keys]
            values.append([mixture_guides.measured(law, of, kernels) for of in points])
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

    def tables(self, run):
        """Guides at the same share off the support, and conditional less marginal ones."""
        reached = self.reached(run)
        free = run.found.value.sel(kind=[LAW, PLAIN], until=[0.0], weight=0.0, drop=True)
        columns = ["weight", "off", "modes", "conditional_rke", "conditional_vendi", "energy"]
        whole = xr.concat([free, reached], "kind", join="outer").sel(score=[*columns, "variation"])
        look = {"columns": "score", "error": "error", "names": _WORDS}
        rows = ("mixture", "scale", "kind", "until")
        yield tables.table(tables.means(whole, "seed"), rows=rows, **look)
        if pairs := mixture_guides.differences(reached):
            less = xr.concat(list(pairs.values()), xr.IndexVariable("pair", list(pairs)))
            less = tables.means(less.sel(score=columns[2:]), "seed")
            yield tables.table(less, rows=("mixture", "scale", "pair", "until"), **look)

    def reached(self, run):
        """The scores of every guide where `limit` of its samples are off the support."""
        return mixture_guides.at_limit(mixture_guides.guided(run.found.value), self.limit)

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            name = run.folder.name.replace("-", "_")
            drawn[name] = _samples(run)
            drawn[f"{name}_curves"] = _curves(run)
            drawn[f"{name}_weights"] = _weights(run)
            if run.found.sizes["scale"] > 1:
                drawn[f"{name}_bandwidth"] = _bandwidth(run)
        return drawn

    def variant(self):
        return "" if self.at == GuidedMixture.at else self.at


def _caption(figure, run, scale=None):
    study = run.study
    n = study.batches * study.copies
    words = f"{study.seeds} seeds of {n} samples a prompt, gradient at the {study.at} samples"
    bars = f"one standard error over {study.seeds} seeds"
    return figures.caption(figure, run, n=words, bars=bars, scale=scale)


def _samples(run):
    """The law, plain samples, and each guide at the largest weight within the limit."""
    study, until = run.study, run.study.until[0]
    kinds = [LAW, PLAIN, *study.kinds]
    places = list(itertools.product(study.mixtures, kinds))
    figure, panels = style.panels(len(places), columns=len(kinds), size=(2.2, 2.5))
    found = run.found.sel(scale=study.bandwidths.shown)
    for panel, (mixture, kind) in zip(panels, places, strict=True):
        one = found.sel(mixture=mixture, kind=kind, until=until if kind in KINDS else 0.0)
        means = one.value.mean("seed", skipna=False)
        weight, words = 0.0, _SAMPLERS[kind]
        if kind in KINDS:
            beyond = means.sel(score="off", weight=list(study.weights)).values > study.limit
            weight = study.weights[max(np.argmax(beyond) - 1, 0) if beyond.any() else -1]
            words += f", weight {weight:g}"
        one, means = one.sel(weight=weight), means.sel(weight=weight)
        prompts = one.prompt.values.astype(int)
        colours = np.array(style.CYCLE)[prompts % len(style.CYCLE)]
        panel.scatter(*one.shown.values.T, s=3, c=colours.tolist(), linewidths=0)
        modes, off = means.sel(score=["modes", "off"]).values
        panel.set_title(f"{words}\n{modes:.2f} modes a prompt\n{off:.1%} off the support")
        law = found.shown.sel(mixture=mixture, kind=LAW, until=0.0, weight=0.0)
        reach = 1.35 * float(np.abs(law.astype(float)).max())
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        panel.grid(visible=False)
        if kind == LAW:
            panel.set_ylabel(_MIXTURES.get(mixture) or mixture)
    words = (
        f"the first {len(prompts)} samples of a seed, coloured by prompt; the largest weight with "
        f"at most {study.limit:.0%} off the support in the first {until:.0%} of the steps"
    )
    return figures.caption(figure, run, n=words, scale=study.bandwidths.shown)


def _when(until):
    return "all steps" if until == 1 else f"first {until:.0%} of the steps"


def _curves(run):
    """Modes of a prompt against the share off the support: mixtures by when the guide acts."""
    study, scale = run.study, run.study.bandwidths.shown
    places = list(itertools.product(study.mixtures, study.until))
    columns = len(study.until)
    figure, panels = style.panels(len(places), columns=columns, size=(4.2, 2.7), sharey="row")
    values = run.found.value.sel(scale=scale)
    paths = mixture_guides.guided(values)
    paths = tables.means(paths.where(paths.sel(score="off") <= 0.5), "seed")
    laws = values.sel(kind=LAW, until=0.0, weight=0.0, score="modes").mean("seed")
    reached = study.reached(run).sel(scale=scale, score="modes").mean("seed", skipna=False)
    for panel, (mixture, until) in zip(panels, places, strict=True):
        for marker, kind in zip(style.MARKERS, paths.kind.values.tolist(), strict=False):
            path = paths.sel(mixture=mixture, until=until, kind=kind)
            off, modes = (path.sel(score=name) for name in ("off", "modes"))
            look = {"color": style.score_colour(kind), "marker": marker, "label": kind}
            panel.errorbar(100 * off.value, modes.value, modes.error, **look)
        law = laws.sel(mixture=mixture).item()
        panel.axhline(law, color=style.GREY, linewidth=0.8, label="the law itself")
        panel.axvline(100 * study.limit, color=style.GREY, linewidth=0.8, linestyle=":")
        most = reached.sel(mixture=mixture, until=until)
        best = f"{most.idxmax('kind').item()} has {most.max():.2g} modes"
        panel.set_title(f"{mixture}, {_when(until)}:\n{best} at {study.limit:.0%} off the support")
        panel.set(xlabel="off the support, %", xlim=(0, 50))
        if until == study.until[0]:
            panel.set_ylabel(_WORDS["modes"])
    style.legend_above(figure, panels[0], columns=5)
    return _caption(figure, run, scale)


def _weights(run):
    """What the scores and the distances to the law are at every weight."""
    study, scale = run.study, run.study.bandwidths.shown
    until = study.until[0]
    values = run.found.value.sel(scale=scale, score=["conditional_rke", "energy", "off"])
    laws = values.sel(kind=LAW, until=0.0, weight=0.0).mean("seed")
    guides = mixture_guides.guided(values).sel(until=until, weight=list(study.weights))
    found = tables.means(guides, "seed")

    def each(panel, part):
        law = laws.sel(score=part.score, mixture=part.mixture).item()
        panel.axhline(law, color=style.GREY, linewidth=0.8)
        if part.score != "off":
            options = {"linthresh": 0.1} if part.score == "energy" else {}
            panel.set_yscale("symlog" if options else "log", **options)
            style.log_numbers(panel.yaxis)

    def title(score, mixture):
        last = found.value.sel(score=score, mixture=mixture).isel(weight=-1)
        ends = last.sortby(last)[[0, -1]]
        low, high = (f"{of.kind.item()} {float(f'{of:.2g}'):,g}" for of in ends)
        return f"{mixture}, weight {last.weight:g}: {low} to {high}"

    drawn = figures.facets(
        found,
        x="weight",
        hue="kind",
        row="score",
        column="mixture",
        error="error",
        log_x=True,
        title=title,
        x_label=f"weight, in the {_when(until)}; grey: the law itself",
        y_label=lambda score: _WORDS[score],
        size=(4.4, 2.3),
        each=each,
    )
    return _caption(drawn, run, scale)


def _bandwidth(run):
    """The modes at the limit, at every scale of the bandwidths."""
    study = run.study
    found = tables.means(study.reached(run).sel(score="modes"), "seed")

    def each(panel, part):
        panel.set_xticks(part.scale.values)
        panel.set_xticks([], minor=True)

    def title(mixture, until):
        part = found.value.sel(mixture=mixture, until=until)
        best = part.isel(part.argmax(...))
        words = f"{best.kind.item()} has most, {best:.2g} at x {best.scale:g}"
        return f"{mixture}, {_when(until)}:\n{words}"

    drawn = figures.facets(
        found,
        x="scale",
        hue="kind",
        row="mixture",
        column="until",
        error="error",
        log_x=True,
        title=title,
        x_label="multiple of the rule's bandwidths",
        y_label=f"modes, {study.limit:.0%} off the support",
        size=(4.2, 2.5),
        each=each,
    )
    return _caption(drawn, run)
