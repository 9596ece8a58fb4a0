"""RKE-MC and RRKE of GANs trained on mixtures whose modes can be counted: RKE figure 1."""

import functools
import itertools
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree

import condvendi_jax as cv
from experiments import lab
from experiments.generators import fitting, mixture_gan
from experiments.lab import agreement, figures, scales, style, tables
from experiments.rke import coverage

SCORES, TRUTHS = ("RKE-MC", "RRKE"), ("captured", "missing")
REAL, REMOVED = "real", "removed"
_NAMES = {kind: of.label for kind, of in mixture_gan.KINDS.items()}
_NAMES |= {REAL: "the mixture", REMOVED: "modes removed"}
_SEEDS = 5  # Trainings of each kind.
_RULED = 10_000  # Samples of the mixture that the paper's rule is followed on.
_SHOWN = 1000  # Samples a panel.
_RESAMPLES = 1000


class GmmGan(lab.Study):
    """Does RKE-MC count the modes that a GAN captures, and does RRKE see those that it misses?"""

    control = "Mixtures with modes removed show what the scores do if only the modes change."
    data = None

    mixtures: tuple[str, ...] = lab.flag(
        tuple(mixture_gan.MIXTURES), "The data.", choices=mixture_gan.MIXTURES
    )
    kinds: tuple[str, ...] = lab.flag(
        tuple(mixture_gan.KINDS), "The kinds of GAN.", choices=mixture_gan.KINDS
    )
    samples: int = lab.flag(5000, "Samples of RKE-MC and of what is captured.", at_least=2)
    references: int = lab.flag(500, "Of them, those of RRKE; of the mixture as many.", at_least=2)
    scales: tuple[float, ...] = lab.flag(
        scales.SCALES,
        "Multiples of the bandwidth at which the closed form of RKE-MC counts the modes.",
        above=0,
    )
    repeats: int = lab.flag(3, "Random orders in which modes are removed.", at_least=1)
    bandwidths: dict[str, dict[str, float]] = lab.resolved()

    def prepare(self, load, seed):
        if self.references > self.samples:
            most = f"expected at most --samples={self.samples}, received {self.references}"
            raise ValueError(f"--references: {most}.")
        trained, arrays = {}, {}
        for mixture, kind in itertools.product(self.mixtures, self.kinds):
            training = mixture_gan.Training(mixture, kind, mixture_gan.KINDS[kind].steps)
            found = trained[mixture, kind] = mixture_gan.trained(training, fitting.Places())
            arrays[f"{mixture} {kind}"] = np.asarray(ravel_pytree(found["generator"])[0])
        laws = {name: mixture_gan.MIXTURES[name] for name in self.mixtures}
        arrays |= {name: np.append(np.ravel(of.centres), of.scale) for name, of in laws.items()}
        return self.ready(
            state=trained,
            arrays=arrays,
            description="Mixtures: " + "; ".join(of.description for of in laws.values()),
            bandwidths={name: self.widths(of, seed) for name, of in laws.items()},
        )

    def widths(self, mixture: mixture_gan.Mixture, seed: int) -> dict[str, float]:
        """Multiples of the bandwidth that counts the modes, and that of the paper's rule (std)."""
        key, rule_key = jax.random.split(jax.random.key(seed))
        counting, modes = mixture.counting_bandwidth(), len(mixture.centres)
        points = mixture.sample(key, _RULED, weights=np.full(modes, 1 / modes))
        ruled = coverage.width_by_rule(points, rule_key)
        return {f"{scale:g}": scale * counting for scale in self.scales} | {"std": ruled}

    def axes(self):
        return {"mixture": self.mixtures, "source": (*self.kinds, REAL, REMOVED)}

    def compute(self, state, context, *, mixture, source):
        """The scores of every seed of a GAN, of the mixture, or of what is left of it.

        RKE-MC and what is captured are of all samples of a set; RRKE is of the first of them,
        against as many of the mixture. The samples of the first set are kept, to be shown.
        """
        law = mixture_gan.MIXTURES[mixture]
        order_key, key = jax.random.split(context.key)
        of_mixture = jax.jit(law.sample, static_argnums=1)
        draws = [of_mixture] * _SEEDS
        trained = state.get((mixture, source))
        if trained is not None:
            networks = [mixture_gan.one(trained["generator"], seed) for seed in range(_SEEDS)]
            draws = [functools.partial(mixture_gan.sample, params) for params in networks]
        elif source == REMOVED:
            modes, keys = len(law.centres), jax.random.split(order_key, self.repeats)
            orders = [np.asarray(jax.random.permutation(of_order, modes)) for of_order in keys]
            every = [(o < left) / left for left in range(modes, 0, -1) for o in orders]
            draws = [functools.partial(of_mixture, weights=weights) for weights in every]
        widths, values, sets = self.bandwidths[mixture], [], []
        for index, draw in enumerate(draws):
            context.say(f"{index + 1} of {len(draws)}")
            sample_key, reference_key = jax.random.split(jax.random.fold_in(key, index))
            points = draw(sample_key, self.samples)
            pair = points[: self.references], of_mixture(reference_key, self.references)
            values.append([
                (float(cv.rke(points, kernel=k)), float(cv.baselines.rrke(*pair, kernel=k)))
                for k in map(cv.Gaussian, widths.values())
            ])  # fmt: skip
            sets.append(np.asarray(points))
        shares = np.array([law.good_shares(points) for points in sets])
        labels = {"bandwidth": list(widths), "score": list(SCORES)}
        whole = {
            "value": (("set", *labels), values),
            "share": (("set", "mode"), shares),
            "captured": ("set", law.captured(shares)),
            "missing": ("set", missing(shares)),
            "shown": (("point", "place"), sets[0][:_SHOWN].astype(np.float16)),
        }
        labels |= {"set": range(len(draws)), "mode": range(len(law.centres))}
        if trained is not None:
            labels["quantity"] = list(mixture_gan.TRACES)
            trace = [trained["trace"][name] for name in mixture_gan.TRACES]
            whole["trace"] = (("quantity", "set", "checkpoint"), trace)
        return xr.Dataset(whole, labels)

    def tables(self, run):
        """The scores and what is captured, by bandwidth, and their rank correlations."""
        rows, ranked = ("bandwidth", "mixture", "source"), ("mixture", "bandwidth", "with")
        yield tables.table(_means(run), rows=rows, columns="score", error="error")
        for sources in (self.kinds, (REMOVED,)):
            words, of = tables.intervals(correlations(run.found, sources)), f"{len(sources)} kinds"
            yield tables.table(words, rows=ranked, columns="score", names={"with": f"{of}, with"})

    @classmethod
    def figures(cls, runs):
        drawn = {"": _samples, "_scores": _scores}
        return {run.folder.name + end: draw(run) for run in runs for end, draw in drawn.items()}

    @classmethod
    def facts(cls, runs):
        run, study, means = runs[0], runs[0].study, _means(runs[0])
        ranks = {of: correlations(run.found, of) for of in (study.kinds, (REMOVED,))}

        def rank(mixture, score, width="1", truth="captured", of=study.kinds):
            place = {"mixture": mixture, "score": score, "bandwidth": width, "with": truth}
            return ranks[of].sel(place)

        def exact(mixture, width):
            return mixture_gan.MIXTURES[mixture].rke(study.bandwidths[mixture][width])

        of = {"rows": ("mixture", "source"), "columns": "score", "error": "error", "digits": 3}
        table = tables.table(means.sel(bandwidth="1"), **of)
        along, traces = [["set", "checkpoint"]], _sets(run, study.kinds).trace
        moves = xr.apply_ufunc(mixture_gan.settled, traces, input_core_dims=along, vectorize=True)
        return {"means": means.value, "rank": rank, "exact": exact, "moves": moves, "table": table}


def missing(shares: np.ndarray) -> np.ndarray:
    """The mass that no good sample stands for, `[sets]`, of good shares `[sets, modes]`."""
    return 1 - np.minimum(shares, 1 / shares.shape[1]).sum(axis=1)


def correlations(found: xr.Dataset, sources: tuple[str, ...]) -> xr.DataArray:
    """Spearman's correlations of the scores with what is captured, over sets of samples.

    By mixture, bandwidth, score, truth (`with`), and `end`: the value and its 95% bootstrap
    interval over the sets. NaN where a score or a truth does not vary beyond rounding.
    """
    labels = {of: found[of].values.tolist() for of in ("bandwidth", "score")}
    labels = {"with": list(TRUTHS), **labels, "end": ["value", "low", "high"]}
    parts, mixtures = [], found.mixture.values.tolist()
    for mixture in mixtures:
        sets = _stacked(found, mixture, sources)
        numbers = np.arange(sets.sizes["sets"])
        scores = sets.value.transpose("bandwidth", "score", "sets").values.reshape(-1, len(numbers))
        draws = list(agreement.resampled(numbers, _RESAMPLES, np.random.default_rng(0)))
        parts.append([agreement.correlate(scores, sets[truth].values, draws) for truth in TRUTHS])
    shape = [len(mixtures), *map(len, labels.values())]
    labels = {"mixture": mixtures, **labels}
    return xr.DataArray(np.reshape(parts, shape), labels, list(labels))


def _stacked(found, mixture, sources):
    """Scores and truths of the sets of some sources of samples, one after another: axis `sets`."""
    of = found[["value", *TRUTHS]].sel(mixture=mixture, source=list(sources))
    of = of.stack(sets=("source", "set")).dropna("sets", subset=["captured"])
    return of.transpose("sets", ...)


def _sets(run, sources):
    """Results of sources that have a set for each seed, by the names of the sources."""
    found = run.found.sel(source=list(sources)).isel(set=slice(_SEEDS))
    return found.assign_coords(source=[_NAMES[source] for source in sources])


def _means(run):
    """Both scores, captured modes and the share of good samples: means over the seeds."""
    whole = _sets(run, [*run.study.kinds, REAL])
    modes = xr.Dataset({"captured": whole.captured, "good": whole.share.sum("mode")})
    modes = modes.to_array("score").expand_dims(bandwidth=whole.bandwidth)
    return tables.means(xr.concat([modes, whole.value], "score"), "set")


def _samples(run):
    """Columns of methods, rows of mixtures; the mixture blue and generated samples red."""
    study, found = run.study, _sets(run, [*run.study.kinds, REAL]).isel(set=0)
    name, sources = f"{study.scales[len(study.scales) // 2]:g}", found.source.values.tolist()
    places = list(itertools.product(study.mixtures, sources))
    figure, panels = style.panels(len(places), columns=len(sources), size=(1.42, 1.95))
    look = {"linestyle": "", "marker": ".", "markeredgewidth": 0}
    for panel, (mixture, source) in zip(panels, places, strict=True):
        real, of = (found.sel(mixture=mixture, source=s) for s in (_NAMES[REAL], source))
        centres, points = (each.shown.values.astype(float) for each in (real, of))
        panel.plot(*centres.T, color=style.BLUE, markersize=4, **look)
        if source != _NAMES[REAL]:
            panel.plot(*points.T, color=style.VERMILION, markersize=2.5, alpha=0.6, **look)
        rke, rrke = of.value.sel(bandwidth=name).values
        modes = f"{of.captured:.0f} modes, {of.share.sum():.0%} good"
        panel.set_title(f"{source}\nRKE-MC {rke:.2f}, RRKE {rrke:.3f}\n{modes}", fontsize=7)
        ends = 1.35 * np.abs(centres).max() * np.array([-1, 1])
        panel.set(xlim=ends, ylim=ends, aspect="equal", xticks=[], yticks=[])
    n = f"the first of {_SEEDS} trainings. Good: within {mixture_gan.RADIUS:g} sd of a centre"
    least = found.value.sel(bandwidth=name, score=SCORES[0]).idxmin("source").values.tolist()
    finding = "has the lowest RKE-MC and misses modes (blue)"
    style.headline(figure, f"{' and '.join(dict.fromkeys(least))} {finding}")
    return figures.caption(figure, run, n=n)


def _scores(run):
    """A row a mixture: RKE-MC against captured modes, RRKE against lost mass."""
    study, ranks = run.study, correlations(run.found, run.study.kinds).sel(end="value")
    first = f"{study.scales[len(study.scales) // 2]:g}"
    figure, panels = style.panels(2 * len(study.mixtures), columns=2, size=(3.45, 2.5))
    places: Any = itertools.product(study.mixtures, zip(SCORES, TRUTHS, strict=True))
    looks = [(style.GREY, "."), *zip(style.CYCLE, style.MARKERS, strict=True)]
    for panel, (mixture, (score, truth)) in zip(panels, places, strict=True):
        for source, (colour, marker) in zip((REMOVED, *study.kinds), looks, strict=False):
            sets = _stacked(run.found, mixture, (source,))
            values = sets.value.sel(bandwidth=first, score=score)
            look = {"color": colour, "marker": marker, "label": _NAMES[source]}
            panel.plot(sets[truth], values, linestyle="", **look)
        rank = ranks.sel({"mixture": mixture, "bandwidth": first, "score": score, "with": truth})
        panel.set_title(f"{mixture}: rank correlation {rank:.2f}")
        if score == "RRKE":
            style.log_axis(panel, digits=(1,))
            panel.set(xlabel="mass missing", xlim=(-0.03, 1.03), ylabel="RRKE, nats")
            continue
        modes = len(mixture_gan.MIXTURES[mixture].centres)
        panel.set(xlabel="modes captured", xlim=(0, modes + 1), ylabel=score)
        panel.plot([0, modes], [0, modes], color=style.GREY, linewidth=0.8, zorder=0)
    style.legend_above(figure, panels[0], columns=6)
    finding = "RKE-MC ranks GANs as the modes captured (line: it counts them), RRKE as"
    style.headline(figure, f"{finding} the mass missing")
    n = f"{_SEEDS} trainings; RKE-MC of {study.samples:,} samples, RRKE of {study.references:,} "
    return figures.caption(figure, run, n=f"{n}against as many")
