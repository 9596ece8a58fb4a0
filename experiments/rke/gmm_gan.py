"""RKE-MC and RRKE of GANs trained on mixtures whose modes can be counted: RKE figure 1."""

import dataclasses
import functools
import itertools
import pathlib

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.generators import checkpoints, fitting, mixture_gan
from experiments.lab import figures, scales, style, tables
from experiments.rke import gan_scores
from experiments.rke.gan_scores import COUNTING, SCORES, TRUTHS

REAL, REMOVED, EXACT = "real", "removed", "closed form"
_NAMES = {kind: of.label for kind, of in mixture_gan.KINDS.items()} | {
    REAL: "the mixture",
    REMOVED: "modes removed",
}
_TRACES = {"rke": "RKE-MC", "captured": "modes captured", "good": "share of good samples"}


class GmmGan(lab.Study):
    """Does RKE-MC count the modes that a GAN captures, and does RRKE see those that it misses?"""

    name = "gmm_gan"
    reproduces = "RKE fig 1"
    duration = "1 minute"
    data = None
    drawings = ("gmm_gan", "gmm_gan_scores", "gmm_gan_training")

    mixtures: tuple[str, ...] = lab.flag(
        tuple(mixture_gan.MIXTURES), "The data.", choices=mixture_gan.MIXTURES
    )
    kinds: tuple[str, ...] = lab.flag(
        tuple(mixture_gan.KINDS), "The kinds of GAN.", choices=mixture_gan.KINDS
    )
    seeds: int = lab.flag(5, "Trainings of each kind; other numbers train anew.", at_least=1)
    steps: int | None = lab.flag(
        None, "Updates of each generator; other numbers than its kind's train anew.", at_least=1
    )
    samples: int = lab.flag(5000, "Samples of RKE-MC and of what is captured.", at_least=2)
    references: int = lab.flag(500, "Of them, those of RRKE; of the mixture as many.", at_least=2)
    rules: tuple[str, ...] = lab.flag(
        (COUNTING, "std"),
        "How bandwidths are chosen on the mixture itself: where the closed form of RKE-MC is the "
        "number of modes (count), std (RKE), variance (CV), median distance. The first is repeated "
        "at scales.",
        choices=(COUNTING, *bandwidth.RULES),
    )
    scales: tuple[float, ...] = lab.flag(scales.SCALES, "Multiples of the first.", above=0)
    repeats: int = lab.flag(3, "Random orders in which modes are removed.", at_least=1)
    cache: str | None = lab.flag(None, "Folder of what is trained here; the user's if unset.")
    bandwidths: dict[str, dict[str, float]] = lab.resolved()
    trainings: dict[str, dict[str, int]] = lab.resolved()

    def prepare(self, load, seed):
        if self.references > self.samples:
            raise ValueError(
                f"--references: expected at most --samples={self.samples}, received "
                f"{self.references}."
            )
        mixtures = {name: mixture_gan.MIXTURES[name] for name in self.mixtures}
        steps = {kind: self.steps or mixture_gan.KINDS[kind].steps for kind in self.kinds}
        places = fitting.Places()
        if self.cache is not None:
            places = dataclasses.replace(places, cache=pathlib.Path(self.cache))
        found = {
            (mixture, kind): mixture_gan.trained(
                mixture_gan.Training(mixture, kind, count, self.seeds), places
            )
            for mixture in mixtures
            for kind, count in steps.items()
        }
        arrays = {
            " ".join(names): np.concatenate(
                [leaf.ravel() for leaf in checkpoints.flatten(of["generator"]).values()]
            )
            for names, of in found.items()
        }
        for name, of in mixtures.items():
            arrays[name] = np.append(np.ravel(of.centres), of.scale)
        return self.ready(
            state=found,
            arrays=arrays,
            description="Mixtures: " + "; ".join(of.description for of in mixtures.values()),
            cache=None,
            bandwidths={
                name: gan_scores.bandwidths(of, self.rules, self.scales, seed)
                for name, of in mixtures.items()
            },
            trainings={name: steps for name in mixtures},
        )

    def axes(self):
        return {"mixture": self.mixtures, "source": (*self.kinds, REAL, REMOVED)}

    def compute(self, state, context, *, mixture, source):
        """The scores of every seed of a GAN, of the mixture, or of what is left of it."""
        law = mixture_gan.MIXTURES[mixture]
        order_key, key = jax.random.split(context.key)
        of_mixture = jax.jit(law.sample, static_argnums=1)
        draws = [of_mixture] * self.seeds
        trained = state.get((mixture, source))
        if trained is not None:
            networks = [mixture_gan.one(trained["generator"], seed) for seed in range(self.seeds)]
            draws = [functools.partial(mixture_gan.sample, params) for params in networks]
        elif source == REMOVED:
            every = gan_scores.removals(len(law.centres), self.repeats, order_key)
            draws = [functools.partial(of_mixture, weights=weights) for weights in every]
        widths = self.bandwidths[mixture]
        sizes = {"samples": self.samples, "references": self.references}
        found = gan_scores.score(draws, law, widths, key, say=context.say, **sizes)
        if trained is None:
            return found
        return gan_scores.with_training(found, trained["trace"], float(trained["seconds"]))

    def tables(self, run):
        """What is captured, the scores, their rank correlations, and how far trainings moved."""
        whole = _sets(run, [*self.kinds, REAL])
        good = xr.Dataset({"captured": whole.captured, "good": whole.share.sum("mode")})
        good = tables.means(good.to_array("of"), "set")
        yield tables.table(good, rows=("mixture", "source"), columns="of", error="error")
        exact = self._exact(whole.bandwidth.values)
        scores = xr.concat([tables.means(whole.value, "set"), exact], "source", join="outer")
        rows = ("mixture", "bandwidth", "source")
        yield tables.table(scores, rows=rows, columns="score", error="error")
        groups = xr.IndexVariable("source", ["GANs", _NAMES[REMOVED]])
        ranks = [gan_scores.correlations(run.found, of) for of in (self.kinds, (REMOVED,))]
        words = tables.intervals(xr.concat(ranks, groups))
        yield tables.table(words, rows=(*rows, "with"), columns="score")
        moves = xr.apply_ufunc(
            mixture_gan.settled,
            _sets(run, self.kinds).trace,
            input_core_dims=[["set", "checkpoint"]],
            vectorize=True,
        )
        yield tables.table(
            moves.to_dataset(name="value"),
            rows=("mixture", "source"),
            columns="quantity",
            names={"source": "last move, of the seeds' sd"},
            digits=2,
        )

    def _exact(self, names):
        """RKE-MC of the mixtures in closed form at every bandwidth, as one more source."""
        laws = {mixture: mixture_gan.MIXTURES[mixture].population() for mixture in self.mixtures}
        values = [
            [float(law.rke(kernel=cv.Gaussian(self.bandwidths[mixture][name]))) for name in names]
            for mixture, law in laws.items()
        ]
        exact = xr.DataArray(values, {"mixture": list(laws), "bandwidth": names})
        return exact.expand_dims(source=[EXACT], score=SCORES[:1]).to_dataset(name="value")

    @classmethod
    def figures(cls, runs):
        drawn = {"": _samples, "_scores": _scores, "_training": _training}
        return {run.folder.name + end: draw(run) for run in runs for end, draw in drawn.items()}


def _sets(run, sources):
    """Results of sources that have a set for each seed, by the names of the sources."""
    found = run.found.sel(source=list(sources)).isel(set=slice(run.study.seeds))
    return found.assign_coords(source=[_NAMES[source] for source in sources])


def _samples(run):
    """Columns of methods, rows of mixtures; the mixture blue and generated samples red."""
    study = run.study
    found = _sets(run, [*study.kinds, REAL]).isel(set=0)
    name = "1" if "1" in found.bandwidth else found.bandwidth.values[0]
    sources = found.source.values.tolist()
    places = list(itertools.product(study.mixtures, sources))
    figure, panels = style.panels(len(places), columns=len(sources), size=(2.1, 2.5))
    look = {"linestyle": "", "marker": ".", "markeredgewidth": 0}
    for panel, (mixture, source) in zip(panels, places, strict=True):
        real = found.shown.sel(mixture=mixture, source=_NAMES[REAL]).values.astype(float)
        panel.plot(*real.T, color=style.BLUE, markersize=4, **look)
        of = found.sel(mixture=mixture, source=source)
        if source != _NAMES[REAL]:
            points = of.shown.values.astype(float)
            panel.plot(*points.T, color=style.VERMILION, markersize=2.5, alpha=0.6, **look)
        rke, rrke = of.value.sel(bandwidth=name).values
        panel.set_title(
            f"{source}\nRKE-MC {rke:.2f}, RRKE {rrke:.3f}\n"
            f"{of.captured:.0f} modes, {of.share.sum():.0%} good"
        )
        reach = 1.35 * np.abs(real).max()
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        panel.grid(visible=False)
    widths = ", ".join(f"{of[name]:.3g} ({mixture})" for mixture, of in study.bandwidths.items())
    n = (
        f"the first of {study.seeds} trainings, {_sizes(study)}, bandwidths {widths}. Good: within "
        f"{mixture_gan.RADIUS:g} sd of a centre; captured: with {mixture_gan.LEAST:g} of its due"
    )
    return figures.caption(figure, run, n=n)


def _sizes(study):
    return f"RKE-MC of {study.samples:,} samples, RRKE of {study.references:,} against as many"


def _scores(run):
    """RKE-MC against captured modes, and RRKE against the missing mass; columns of bandwidths."""
    study, found = run.study, run.found
    ranks = gan_scores.correlations(found, study.kinds).sel(end="value")
    names = found.bandwidth.values.tolist()
    places = list(itertools.product(study.mixtures, SCORES, names))
    figure, panels = style.panels(len(places), columns=len(names), size=(3.0, 2.5))
    for panel, (mixture, score, name) in zip(panels, places, strict=True):
        truth = TRUTHS[SCORES.index(score)]
        for number, source in enumerate((*study.kinds, REMOVED)):
            sets = gan_scores.sets_of(found, mixture, [source])
            left = source == REMOVED
            panel.plot(
                sets[truth],
                sets.value.sel(bandwidth=name, score=score),
                color=style.GREY if left else style.CYCLE[number],
                marker="." if left else style.MARKERS[number],
                linestyle="",
                zorder=1 if left else 2,
                label=_NAMES[source],
            )
        rank = ranks.sel({"mixture": mixture, "bandwidth": name, "score": score, "with": truth})
        words = "" if np.isnan(rank) else f": rank correlation {rank:.2f}"
        rule = f"'{name}'" if name in study.rules[1:] else f"{name} x '{study.rules[0]}'"
        panel.set_title(f"{mixture}, {rule}{words}")
        modes = len(mixture_gan.MIXTURES[mixture].centres)
        if truth == "captured":
            panel.plot([0, modes], [0, modes], color=style.GREY, linewidth=0.8)
            panel.set(xlabel="modes captured", xlim=(-0.5, modes + 0.5))
        else:
            panel.set(xlabel="mass missing", xlim=(-0.03, 1.03))
        panel.set_ylim(0, None)
        if name == names[0]:
            panel.set_ylabel("RRKE, nats" if score == "RRKE" else score)
    style.legend_above(figure, panels[0], columns=6)
    n = (
        f"{_sizes(study)}, of {study.seeds} trainings and of the mixture with modes removed in "
        f"{study.repeats} orders. On the line RKE-MC counts the captured modes. Titles: of the GANs"
    )
    return figures.caption(figure, run, n=n)


def _training(run):
    """RKE-MC, captured modes and good samples during the trainings; rows of mixtures."""
    study, found = run.study, _sets(run, run.study.kinds)
    places = list(itertools.product(study.mixtures, _TRACES))
    figure, panels = style.panels(len(places), columns=3, size=(3.6, 2.5), sharex=True)
    part = found.step / found.step.max("checkpoint")
    mean = found.trace.mean("set")
    sd = found.trace.std("set", ddof=1 if study.seeds > 1 else 0)
    for panel, (mixture, quantity) in zip(panels, places, strict=True):
        for colour, kind in zip(style.CYCLE, found.source.values.tolist(), strict=False):
            x = part.sel(mixture=mixture, source=kind)
            y, half = (of.sel(mixture=mixture, source=kind, quantity=quantity) for of in (mean, sd))
            panel.plot(x, y, color=colour, label=kind)
            panel.fill_between(x, y - half, y + half, color=colour, alpha=0.15, linewidth=0)
        ends = mean.sel(mixture=mixture, quantity=quantity).isel(checkpoint=-1)
        panel.set_title(f"{mixture}: {ends.min():.2g} to {ends.max():.2g} in the end")
        panel.set(ylabel=_TRACES[quantity], ylim=(0, None))
        if quantity != "good":
            modes = len(mixture_gan.MIXTURES[mixture].centres)
            panel.axhline(modes, color=style.GREY, linewidth=0.8)
    for panel in panels[-3:]:
        panel.set_xlabel("part of the training")
    style.legend_above(figure, panels[0], columns=5)
    steps = [count for of in study.trainings.values() for count in of.values()]
    updates = " to ".join(f"{count:,}" for count in sorted({min(steps), max(steps)}))
    n = (
        f"trainings of seed {mixture_gan.SEED} and {updates} updates, 1,000 samples. "
        "RKE-MC at the bandwidth that counts the modes (line) of the mixture itself"
    )
    bars = f"bands of one standard deviation over {study.seeds} seeds"
    return figures.caption(figure, run, n=n, bars=bars)
