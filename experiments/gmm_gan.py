"""RKE-MC and RRKE of GANs trained on mixtures whose modes can be counted: RKE figure 1.

Five kinds of GAN on the ring of 8 and the grid of 25 Gaussians, several seeds each: whether RKE-MC
counts the modes that a GAN captures, and whether RRKE rises with what it misses. Beside them stand
samples of the mixture itself, and of the mixture with modes removed one by one: what the scores
tell where only modes are missing.

    python -m experiments.gmm_gan --mixtures=ring
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax import bandwidth
from experiments import gan_scores, lab
from experiments.gan_scores import COUNTING, SCORES, TRUTHS, over_sets, sets_of
from experiments.generators import checkpoints, mixture_gan
from experiments.lab import figures, scales, style, tables

REAL, REMOVED, EXACT = "real", "removed", "closed form"
_NAMES = {kind: of.label for kind, of in mixture_gan.KINDS.items()} | {
    REAL: "the mixture",
    REMOVED: "modes removed",
}
_TRACES = {"rke": "RKE-MC", "captured": "modes captured", "good": "share of good samples"}


@dataclasses.dataclass(frozen=True)
class GmmGan(lab.Study):
    """Does RKE-MC count the modes that a GAN captures, and does RRKE see those it misses?"""

    name = "gmm_gan"
    reproduces = "RKE fig 1"
    duration = "1 minute"
    data = None
    runs = ((),)
    drawings = ("gmm_gan", "gmm_gan_scores", "gmm_gan_training")

    mixtures: tuple[str, ...] = lab.flag(
        tuple(mixture_gan.MIXTURES), "The data.", choices=mixture_gan.MIXTURES
    )
    kinds: tuple[str, ...] = lab.flag(
        tuple(mixture_gan.KINDS), "The kinds of GAN.", choices=mixture_gan.KINDS
    )
    seeds: int = lab.flag(
        5, "Trainings of each kind; with other numbers they are trained anew.", at_least=1
    )
    steps: int | None = lab.flag(
        None,
        "Updates of each generator; each kind's own if unset. Others are trained anew.",
        at_least=1,
    )
    samples: int = lab.flag(5000, "Samples of RKE-MC and of what is captured.", at_least=2)
    references: int = lab.flag(
        500, "Of them, samples of RRKE, against as many of the mixture.", at_least=2
    )
    rules: tuple[str, ...] = lab.flag(
        (COUNTING, "std"),
        "How bandwidths are chosen on the mixture itself: where the closed form of RKE-MC is the "
        "number of modes (count), std (RKE), variance (CV), median distance. The first is repeated "
        "at scales.",
        choices=(COUNTING, *bandwidth.RULES),
    )
    scales: tuple[float, ...] = lab.flag(
        scales.SCALES, "Multiples of the first bandwidth.", above=0
    )
    repeats: int = lab.flag(
        3, "Random orders in which modes are removed from the mixture.", at_least=1
    )
    cache: str | None = lab.flag(
        None, "Folder of what is trained here; in the user's cache folder if unset."
    )
    bandwidths: dict[str, dict[str, float]] = lab.resolved()
    trainings: dict[str, dict[str, int]] = lab.resolved()

    def prepare(self, load, seed):
        """Chooses the bandwidths, and reads or trains the generators."""
        if self.references > self.samples:
            raise ValueError(
                f"--references: expected at most --samples={self.samples}, received "
                f"{self.references}."
            )
        mixtures = {name: mixture_gan.MIXTURES[name] for name in self.mixtures}
        steps = {kind: self.steps or mixture_gan.KINDS[kind].steps for kind in self.kinds}
        cache = None if self.cache is None else pathlib.Path(self.cache)
        found = {
            (mixture, kind): mixture_gan.trained(
                mixture_gan.Training(mixture, kind, count, self.seeds),
                cache=cache,
                say=lambda words: print(words, file=sys.stderr),
            )
            for mixture in mixtures
            for kind, count in steps.items()
        }
        arrays = {
            f"{mixture} {kind}": np.concatenate(
                [leaf.ravel() for leaf in checkpoints.flatten(of["generator"]).values()]
            )
            for (mixture, kind), of in found.items()
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
        """Every kind on every mixture, the mixture itself, and what is left of it."""
        return {"mixture": self.mixtures, "source": (*self.kinds, REAL, REMOVED)}

    def compute(self, state, context, *, mixture, source):
        """The scores of every seed of a GAN, of the mixture, or of what is left of it."""
        law = mixture_gan.MIXTURES[mixture]
        order_key, key = jax.random.split(context.key)
        trained = state.get((mixture, source))
        of_mixture = jax.jit(law.sample, static_argnums=1)
        if trained is not None:
            params = [mixture_gan.one(trained["generator"], seed) for seed in range(self.seeds)]
            draws = [functools.partial(mixture_gan.sample, of) for of in params]
        elif source == REAL:
            draws = [of_mixture] * self.seeds
        else:
            every = gan_scores.removals(len(law.centres), self.repeats, order_key)
            draws = [functools.partial(of_mixture, weights=weights) for weights in every]
        found = gan_scores.score(
            draws,
            law,
            self.bandwidths[mixture],
            key,
            samples=self.samples,
            references=self.references,
            say=context.say,
        )
        if trained is None:
            return found
        return gan_scores.with_training(found, trained["trace"], float(trained["seconds"]))

    def tables(self, run):
        """What is captured, the scores, their rank correlations, and how far trainings moved."""
        found = run.found
        sources = [*self.kinds, REAL]
        called = {"source": [_NAMES[source] for source in sources]}
        shown = found.sel(source=sources)
        good: Any = xr.concat(
            [shown.captured, shown.share.sum("mode", min_count=1)],
            xr.DataArray(["captured", "good"], dims="of", name="of"),
        )
        yield tables.table(
            over_sets(good).assign_coords(called),
            rows=("mixture", "source"),
            columns="of",
            error="error",
        )
        of_scores = over_sets(shown.value).assign_coords(called)
        exact = self._exact(of_scores)
        yield tables.table(
            xr.concat([of_scores, exact], "source"),
            rows=("mixture", "bandwidth", "source"),
            columns="score",
            error="error",
        )
        yield tables.table(
            self._correlations(found),
            rows=("mixture", "bandwidth", "source", "with"),
            columns="score",
        )
        moves = [
            [[mixture_gan.settled(t.values) for t in self._trace(found, m, k)] for k in self.kinds]
            for m in self.mixtures
        ]
        axes = {"mixture": list(self.mixtures), "source": [_NAMES[kind] for kind in self.kinds]}
        axes["moves in the end, of the seeds' sd"] = list(mixture_gan.TRACES)
        yield tables.table(
            xr.Dataset({"value": (tuple(axes), moves)}, axes),
            rows=("mixture", "source"),
            columns=list(axes)[-1],
            names={"source": "last move, of the seeds' sd"},
            digits=2,
        )

    def _trace(self, found: xr.Dataset, mixture: str, kind: str) -> xr.DataArray:
        """RKE-MC, captured modes and good samples during a training, by seed and checkpoint."""
        return sets_of(found, mixture, kind).trace.dropna("checkpoint", how="all")

    def _exact(self, like: xr.Dataset) -> xr.Dataset:
        """RKE-MC of the mixtures in closed form, with the axes of the scores."""
        exact = xr.full_like(like.isel(source=[0]), np.nan).assign_coords(source=[EXACT])
        for mixture, widths in self.bandwidths.items():
            law = mixture_gan.MIXTURES[mixture].population()
            for name, width in widths.items():
                place = {"mixture": mixture, "bandwidth": name, "source": EXACT}
                number = float(law.rke(kernel=cv.Gaussian(width)))
                exact.value.loc[place | {"score": "RKE-MC"}] = number
        return exact

    def _correlations(self, found: xr.Dataset) -> xr.Dataset:
        """Rank correlations with their intervals, in words."""
        sources = (self.kinds, (REMOVED,))
        labels = {
            "mixture": list(self.mixtures),
            "bandwidth": found.bandwidth.values.tolist(),
            "source": ["GANs", _NAMES[REMOVED]],
            "score": list(SCORES),
            "with": list(TRUTHS),
        }
        every = np.array([
            [
                [gan_scores.correlations(found, mixture, name, of) for of in sources]
                for name in labels["bandwidth"]
            ]
            for mixture in self.mixtures
        ])  # fmt: skip
        flat = every.reshape(-1, 3).tolist()
        words = [f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in flat]
        words = np.array(words).reshape(every.shape[:-1])
        return xr.Dataset({"value": (tuple(labels), words)}, labels)

    @classmethod
    def figures(cls, runs):
        """The samples as in RKE fig 1, the scores against what is captured, and the trainings."""
        drawn = {}
        for run in runs:
            name = run.folder.name
            drawn[name] = _samples(run)
            drawn[f"{name}_scores"] = _scores(run)
            drawn[f"{name}_training"] = _training(run)
        return drawn


def _samples(run: lab.Run) -> Figure:
    """Columns of methods, rows of mixtures; the mixture blue and generated samples red."""
    study, found = run.study, run.found
    sources = (*study.kinds, REAL)
    count = len(sources)
    figure, axes = style.panels(count * len(study.mixtures), columns=count, size=(2.1, 2.5))
    panels = iter(axes)
    look = {"linestyle": "", "marker": ".", "markeredgewidth": 0}
    name = _shown(study)
    for mixture in study.mixtures:
        real = found.shown.sel(mixture=mixture, source=REAL).values.astype(float)
        reach = 1.35 * np.abs(real).max()
        for source, panel in zip(sources, panels, strict=False):
            of = sets_of(found, mixture, source)
            first = of.isel(set=0)
            panel.plot(*real.T, color=style.BLUE, markersize=4, **look)
            if source != REAL:
                points = of.shown.values.astype(float)
                panel.plot(*points.T, color=style.VERMILION, markersize=2.5, alpha=0.6, **look)
            rke, rrke = first.value.sel(bandwidth=name).values
            panel.set_title(
                f"{_NAMES[source]}\nRKE-MC {rke:.2f}, RRKE {rrke:.3f}\n"
                f"{first.captured:.0f} modes, {first.share.sum('mode'):.0%} good"
            )
            panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            panel.set(xticks=[], yticks=[])
            panel.grid(visible=False)
    widths = ", ".join(f"{of[name]:.3g} ({mixture})" for mixture, of in study.bandwidths.items())
    n = (
        f"the first of {study.seeds} trainings, {_sizes(study)}, bandwidths {widths}. Good: within "
        f"{mixture_gan.RADIUS:g} sd of a centre; captured: with {mixture_gan.LEAST:g} of its due"
    )
    return figures.caption(figure, run, n=n)


def _shown(study: GmmGan) -> str:
    """The bandwidth of the panels of samples: the multiple 1, or the first where that is not."""
    names = list(study.bandwidths[study.mixtures[0]])
    return "1" if "1" in names else names[0]


def _sizes(study: GmmGan) -> str:
    return f"RKE-MC of {study.samples:,} samples, RRKE of {study.references:,} against as many"


def _scores(run: lab.Run) -> Figure:
    """RKE-MC against captured modes, and RRKE against the missing mass; columns of bandwidths."""
    study, found = run.study, run.found
    names = found.bandwidth.values.tolist()
    rows = [(mixture, place) for mixture in study.mixtures for place in range(len(SCORES))]
    figure, axes = style.panels(len(names) * len(rows), columns=len(names), size=(3.0, 2.5))
    for index, panel in enumerate(axes):
        (mixture, place), name = rows[index // len(names)], names[index % len(names)]
        for number, source in enumerate((*study.kinds, REMOVED)):
            of = sets_of(found, mixture, source)
            left = source == REMOVED
            panel.plot(
                of[TRUTHS[place]],
                of.value.sel(bandwidth=name, score=SCORES[place]),
                color=style.GREY if left else style.CYCLE[number],
                marker="." if left else style.MARKERS[number],
                linestyle="",
                zorder=1 if left else 2,
                label=_NAMES[source],
            )
        rank = gan_scores.correlation(found, mixture, name, study.kinds, place)
        words = "" if np.isnan(rank) else f": rank correlation {rank:.2f}"
        panel.set_title(f"{mixture}, {_named(name, study)}{words}")
        modes = len(mixture_gan.MIXTURES[mixture].centres)
        if place == 0:
            panel.plot([0, modes], [0, modes], color=style.GREY, linewidth=0.8)
            panel.set(xlabel="modes captured", xlim=(-0.5, modes + 0.5))
        else:
            panel.set(xlabel="mass missing", xlim=(-0.03, 1.03))
        panel.set_ylim(0, None)
        if name == names[0]:
            panel.set_ylabel("RKE-MC" if place == 0 else "RRKE, nats")
    style.legend_above(figure, axes[0], columns=6)
    n = (
        f"{_sizes(study)}, of {study.seeds} trainings and of the mixture with modes removed in "
        f"{study.repeats} orders. On the line RKE-MC counts the captured modes. Titles: of the GANs"
    )
    return figures.caption(figure, run, n=n)


def _named(name: str, study: GmmGan) -> str:
    return f"'{name}'" if name in study.rules[1:] else f"{name} x '{study.rules[0]}'"


def _training(run: lab.Run) -> Figure:
    """RKE-MC, captured modes and good samples during the trainings; rows of mixtures."""
    study, found = run.study, run.found
    figure, axes = style.panels(3 * len(study.mixtures), columns=3, size=(3.6, 2.5), sharex=True)
    for mixture, row in zip(study.mixtures, np.array(axes, object).reshape(-1, 3), strict=True):
        modes = len(mixture_gan.MIXTURES[mixture].centres)
        for panel, (quantity, word) in zip(row, _TRACES.items(), strict=True):
            ends = []
            for index, kind in enumerate(study.kinds):
                of = sets_of(found, mixture, kind).dropna("checkpoint", subset=["step"])
                values = of.trace.sel(quantity=quantity).values
                _band(panel, of.step.values / of.step.values[-1], values, index, _NAMES[kind])
                ends.append(values[:, -1].mean())
            panel.set_title(f"{mixture}: {min(ends):.2g} to {max(ends):.2g} in the end")
            panel.set(ylabel=word, ylim=(0, None))
            if quantity != "good":
                panel.axhline(modes, color=style.GREY, linewidth=0.8)
    for panel in axes[-3:]:
        panel.set_xlabel("part of the training")
    style.legend_above(figure, axes[0], columns=5)
    n = (
        f"trainings of seed {mixture_gan.SEED} and {_lengths(study)} updates, 1,000 samples. "
        "RKE-MC at the bandwidth that counts the modes (line) of the mixture itself"
    )
    bars = f"bands of one standard deviation over {study.seeds} seeds"
    return figures.caption(figure, run, n=n, bars=bars)


def _lengths(study: GmmGan) -> str:
    steps = [count for of in study.trainings.values() for count in of.values()]
    return " to ".join(f"{count:,}" for count in sorted({min(steps), max(steps)}))


def _band(panel: Axes, x: np.ndarray, values: np.ndarray, index: int, label: str) -> None:
    mean = values.mean(axis=0)
    sd = values.std(axis=0, ddof=1) if len(values) > 1 else 0 * mean
    panel.plot(x, mean, color=style.CYCLE[index], label=label)
    panel.fill_between(x, mean - sd, mean + sd, color=style.CYCLE[index], alpha=0.15, linewidth=0)


if __name__ == "__main__":
    lab.main(GmmGan)
