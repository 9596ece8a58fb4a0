"""Scores of several models at all bandwidths: CV-early figures 25 and 26."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from rich.table import Table
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.base import checks
from condvendi_jax.data.rows import NAMES
from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import errors, profiles, saturation
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.results.profile import Over
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.reasons import FEW_ROWS, Reason
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style
from experiments.lab.agreement import ranks

ORDERS = {"Vendi": 1.0, "RKE": 2.0}
SCORES = ("Conditional", "Information")
SWEEPS = ("prompts", "outputs", "both")
_ENTROPY = cv.Entropy(order=1)
LEAST_PROMPTS = 10  # Fewer prompts give no errors.


class Bandwidth(lab.Study):
    """How do bandwidths change the scores, and which rankings of models hold at all of them?"""

    version = 3
    needs = ("models",)
    control = "All models answer the same prompts equally often, at every bandwidth."
    runs = ((), ("--data=t2i",), ("--data=t2i_second",))
    unrepeated = ("p", "sign")  # Resamples that rounding moves across a limit change them.

    bandwidths: lab.Scales = lab.Scales()
    reach: tuple[float, ...] = lab.flag(
        (1 / 8, 32.0), "The least and the largest multiple of the bandwidths in a sweep."
    )
    per_octave: int = lab.flag(2, "Bandwidths of a sweep to a factor of two.", at_least=1)
    least: float = lab.flag(
        0.5, "Models that answer a smaller share of all prompts than this are left out.", above=0
    )
    rows: int = lab.flag(
        400, "Pairs of each model at most, of prompts drawn at random.", at_least=LEAST_PROMPTS
    )
    n: int = lab.resolved(0)
    prompts: int = lab.resolved(0)
    models: tuple[str, ...] = lab.resolved(())
    multiples: tuple[float, ...] = lab.resolved(())

    def prepare(self, load, seed):
        if self.bandwidths.kernel != "gaussian":
            raise ValueError("--kernel: expected gaussian, whose bandwidth is swept.")
        if self.bandwidths.scales is not None:
            raise ValueError("--scales means nothing here: --reach and --per_octave are swept.")
        if len(self.reach) != 2 or not 0 < self.reach[0] < 1 < self.reach[1] < math.inf:
            said = "a multiple below 1 and one above, received "
            raise ValueError(f"--reach: expected {said}{', '.join(f'{m:g}' for m in self.reach)}.")
        octaves = [self.per_octave * math.log2(of) for of in self.reach]
        steps = np.arange(math.ceil(octaves[0] - 1e-9), math.floor(octaves[1] + 1e-9) + 1)
        loaded = load()
        pairs = matched(loaded, least=self.least, rows=self.rows, seed=seed)
        models = tuple(dict.fromkeys(pairs.labels["models"].tolist()))
        return self.ready(
            pairs,
            state=pairs,
            arrays=loaded.arrays,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            n=len(pairs) // len(models),
            prompts=checks.distinct_rows(pairs.prompts)[0],
            models=models,
            multiples=tuple((2.0 ** (steps / self.per_octave)).round(6).tolist()),
        )

    def axes(self):
        return {"order": tuple(ORDERS), "sweep": SWEEPS}

    def compute(self, state, context, *, order, sweep):
        """Scores, bands and signs of one sweep; see `cv.profile` and `vendi_profile`."""
        outputs = np.split(state.outputs, len(self.models))  # Model by model.
        whole = dataclasses.replace(self.bandwidths, scales=(1.0,)).axis[0]
        data = dict(zip(self.models, outputs, strict=True)), state.prompts[: self.n]
        options = {"over": sweep, "multiples": self.multiples, "seed": context.shared_seed}
        options |= {"progress": context.say, **whole.kernels}
        if order == "RKE":
            found = cv.profile(*data, **options, unbiased=False)
        else:
            found = vendi_profile(*data, **options)
        names = [score.lower() for score in SCORES]
        compared = [[pair for pair in found.pairs if pair.score == name] for name in names]
        along = ("score", "model", "multiple")
        results = {
            "value": (along, [getattr(found.values, name) for name in names]),
            "band": ((*along, "end"), [getattr(found.bands, name) for name in names]),
            "saturated": (along, [getattr(found.saturated, name) for name in names]),
            "sign": (("score", "pair", "multiple"), [[p.signs for p in of] for of in compared]),
            "p": (("score", "pair"), [[pair.adjusted for pair in of] for of in compared]),
        }
        named = [f"{pair.first}, {pair.second}" for pair in compared[0]]
        axes = {"score": list(SCORES), "model": list(self.models), "end": ["low", "high"]}
        axes |= {"multiple": list(self.multiples), "pair": named}
        return xr.Dataset(results, axes)

    def tables(self, run):
        yield ranking(run.found)

    @classmethod
    def figures(cls, runs):
        # The papers sweep the prompts' bandwidth.
        swept = [(run, sweep) for run in runs for sweep in (SWEEPS[:1] if run.data else SWEEPS)]
        drawn = {}
        for (run, sweep), score in itertools.product(swept, SCORES):
            part = "_information" if score == "Information" else ""
            name = f"{run.folder.name}_{sweep}{part}".replace("-", "_")
            drawn[name] = _sweep(run, sweep, score)
        return drawn

    @classmethod
    def facts(cls, runs):
        found, t2i, second = (run.found for run in runs)
        places = list(itertools.product(SWEEPS, ORDERS, SCORES))

        def counts(of):
            signs = (of.sign.sel(sweep=s, order=o, score=c) for s, o, c in places)
            return np.array([pairs_by_order(sign) for sign in signs])

        means = found.value.sel(order="Vendi").mean("model")
        mean = {"mean": lambda sweep, score=SCORES[0]: means.sel(sweep=sweep, score=score)}
        every = {"t2i": counts(t2i), "second": counts(second), "counts": counts(found)}
        first = t2i.value.sel(sweep="prompts", order="Vendi", score="Conditional")
        return every | {"taus": taus(first, 1.0), "pictures": ranking(t2i), **mean}


def ranking(found: xr.Dataset) -> Table:
    """How far the ranking goes from that at the rule's, and how many pairs keep their order."""
    heads = ("swept", "score", "at the rule's", "tau at half", "tau at double", "least tau")
    grid = Table(*heads, "one order", "reversed", "not separated")
    for sweep, order, score in itertools.product(SWEEPS, ORDERS, SCORES):
        own = found.sel(sweep=sweep, order=order, score=score)
        ends, tau = own.value.sel(multiple=1.0), taus(own.value, ORDERS[order])
        shown = [*tau.reindex(multiple=[0.5, 2.0]).values, tau.min().item()]
        grid.add_row(
            *(sweep, f"{score}-{order}", f"{ends.min().item():.4g} to {ends.max().item():.4g}"),
            *(f"{value:.2f}" for value in shown),  # NaN where all are saturated.
            *map(str, pairs_by_order(own.sign)),
        )
    return grid


def matched(pairs: PairedEmbeddings, *, least: float, rows: int, seed: int) -> PairedEmbeddings:
    """The prompts that all models answer, as many outputs of each by every model, model by model.

    Models that answer less than the share `least` of prompts are left out. Of each model at most
    `rows` are taken, of random prompts.
    """
    model = np.unique(pairs.labels["models"], return_inverse=True)[1]
    kinds, prompt = checks.distinct_rows(pairs.prompts)
    counts = pd.crosstab(model, prompt).to_numpy()
    kept = np.flatnonzero(np.mean(counts > 0, axis=1) >= least)
    if len(kept) < 2:
        raise ValueError(f"--least={least:g} leaves {len(kept)} models, expected two or more.")
    shared = counts[kept].min(axis=0)
    if (answered := np.sum(shared > 0)) < LEAST_PROMPTS:
        raise ValueError(
            f"models: {len(kept)} models share {answered} prompts, expected {LEAST_PROMPTS}; a "
            "larger --least leaves out those that answer few."
        )
    order = np.random.default_rng(seed).permutation(kinds)
    chosen = [
        np.flatnonzero((model == m) & (prompt == p))[: shared[p]]
        for m, p in itertools.product(kept, order)
    ]
    return pairs.rows(np.concatenate(chosen).reshape(len(kept), -1)[:, :rows].ravel())


def pairs_by_order(signs: xr.DataArray) -> tuple[int, ...]:
    """How many pairs have one order wherever the signs tell them apart, two orders, and none."""
    first, second = ((signs == sign).any("multiple") for sign in (1, -1))
    return tuple(int(of.sum()) for of in (first ^ second, first & second, ~(first | second)))


def taus(values: xr.DataArray, order: float) -> xr.DataArray:
    """Kendall's tau of the ranking at each multiple with that at 1; NaN where saturated."""
    curves = values.transpose("multiple", "model")
    at_rule = ranks(curves.sel(multiple=1.0).values, order)
    found = [stats.kendalltau(at_rule, ranks(of, order))[0] for of in curves.values]
    return xr.DataArray(found, {"multiple": curves.multiple.values})


def _sweep(run, sweep, score):
    """One score of both orders, and below it which pairs of models a test separates."""
    figure, panels = style.panels(4, size=(3.45, 2.3), sharex=True, sharey="row")
    found, reverse = run.found.sel(sweep=sweep, score=score), 0
    for above, below, order in zip(panels, panels[2:], ORDERS, strict=False):
        _curves(above, found.sel(order=order), f"{score}-{order}")
        reverse += _separated(below, found.sign.sel(order=order))
    panels[0].set_ylabel("effective modes")
    panels[2].set_ylabel(f"pairs told apart, of {found.pair.size}")
    swept = "both bandwidths" if sweep == "both" else f"bandwidth of the {sweep}"
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}")
        panel.axvline(1, color=style.GREY, linewidth=0.8)
        panel.tick_params(labelbottom=True)
    for panel in panels[2:]:
        panel.set_xlabel(f"{swept} / the rule's")
    style.legend_above(figure, panels[0], columns=4)
    words = f"{reverse} pairs told apart change" if reverse else "no pair told apart changes"
    style.headline(figure, f"{score} scores: {words} order with the bandwidth")
    n = f"n = {run.study.n:,} each; 95% bands; grey: all saturated"
    return figures.caption(figure, run, n=n, scale=1.0)


def _curves(panel: Axes, found: xr.Dataset, name: str) -> None:
    """A curve and a band a model; grey where all of them are saturated."""
    x, looks = found.multiple.values, itertools.product(style.DASHES, style.CYCLE)
    for model, (dash, colour) in zip(found.model.values.tolist(), itertools.cycle(looks)):
        own = found.sel(model=model)
        panel.plot(x, own.value, color=colour, linestyle=dash, label=model, linewidth=1.1)
        panel.fill_between(x, *own.band.values.T, color=colour, alpha=0.2, linewidth=0)
    step = math.sqrt(x[1] / x[0])
    for multiple in x[found.saturated.all("model").values]:
        panel.axvspan(multiple / step, multiple * step, color="0.9", linewidth=0, zorder=0)
    panel.set_title(name)
    style.log_axis(panel)


def _separated(panel: Axes, signs: xr.DataArray) -> int:
    """Draws how many pairs a test separates at each multiple; returns how many in two orders."""
    nearest = signs.isel(multiple=np.argsort(abs(np.log(signs.multiple.values)), kind="stable"))
    usual = nearest.isel(multiple=(nearest != 0).argmax("multiple")).drop_vars("multiple")
    looks = {1: ("in one order", style.BLACK), -1: ("in the reversed order", style.VERMILION)}
    for (sign, (label, colour)), dash in zip(looks.items(), style.DASHES, strict=False):
        told = (signs * usual == sign).sum("pair")
        panel.plot(signs.multiple, told, label=label, color=colour, linestyle=dash)
    panel.set_ylim(-0.5, 1.35 * signs.pair.size)
    panel.legend(loc="upper center")
    return pairs_by_order(signs)[1]


def vendi_profile(
    models: Mapping[str, np.ndarray],
    prompts: np.ndarray,
    *,
    over: Over,
    multiples: Any,
    seed: int,
    progress: Any,
    **kernels: Any,
) -> cv.inference.Profile:
    """As `cv.profile`, of order 1, from all eigenvalues."""
    pairs = cv.Pairs.of_models(models, prompts, **kernels)
    units, curves = errors.Units.of(pairs, None, Keys(seed).groups), {}
    for name, rows in pairs.items():
        progress(f"all bandwidths of {name}")
        curves[name] = _curve(rows, over, multiples, units.of_models[name])
    options: dict[str, Any] = {"over": over, "ladder": np.array(multiples), "seed": seed}
    return profiles.of_curves(pairs, curves, units, entropy=_ENTROPY, level=0.05, **options)


def _curve(
    pairs: cv.Pairs, over: Over, multiples: Any, units: cv.inference.Groups
) -> profiles.Curve:
    """The scores of one model at every bandwidth, with the errors of groups of rows."""
    terms, of_scores, leaving = [], [], units.leaving(pairs)
    for multiple in multiples:
        times = [multiple if over in (name, "both") else 1 for name in NAMES]
        kernels: Any = pairs.kernels
        scaled = (k.with_bandwidth(k.bandwidth * of) for k, of in zip(kernels, times, strict=True))
        moved = pairs.under(tuple(scaled))
        influences = errors.row_influences(moved, _ENTROPY, cv.Exact(), leaving)
        whole = influences.decomposition
        changes = errors.influences_of_units(influences, moved, units)
        few = FEW_ROWS if errors.too_many_modes(moved, influences, units) else None
        known = units.units, units.independent(pairs) - 1, few
        scores = zip(map(float, whole.scores), changes, strict=True)
        similarities = (Error(1 / score, -of / score**2, *known) for score, of in scores)
        terms.append(np.array(whole.entropies, np.float64))
        of_scores.append(PerScore(*(of.inverted().in_logarithms() for of in similarities)))
    limits = saturation.of_entropies(np.transpose(terms), saturation.largest_score(pairs, _ENTROPY))
    few = errors.too_few(pairs, units, _ENTROPY)
    return profiles.Curve(of_scores, limits, Reason(few) if few else None)
