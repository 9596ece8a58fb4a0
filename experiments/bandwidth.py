"""What the scores are at every bandwidth: CV-early figures 25 and 26.

Conditional- and Information-Vendi and -RKE of several models on the prompts that they share, while
the bandwidth of the prompts goes from far below the rule's to far above it, and then that of the
outputs. Beside the curves: what they must tend to at both ends, and whether the ranking of the
models at the rule's bandwidths survives elsewhere.

    python -m experiments.bandwidth --least=0.9
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from rich.table import Table
from scipy import stats

import condvendi_jax as cv
from condvendi_jax import bandwidth, inference, validation
from condvendi_jax.grams import DenseGram
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.agreement import ranks, rounding
from experiments.lab.study import option, positive

ORDERS = {"Vendi": 1.0, "RKE": 2.0}
SCORES = ("Conditional", "Information")
SWEEPS = ("prompts", "outputs")
_ALL = "all pairs"
# Fewer prompts make no groups for a jackknife.
_LEAST_PROMPTS = 10
# A difference of two models beyond so many standard errors is one.
_SIGNIFICANT = 2.0
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    rule: str = option(
        "variance",
        "How the bandwidths are chosen that others are multiples of, on the pairs of all models.",
        choices=bandwidth.RULES,
    )
    output_bandwidth: float | None = option(
        None, "That of the outputs, in their units, in the place of the rule's."
    )
    prompt_bandwidth: float | None = option(
        None, "That of the prompts, in their units, in the place of the rule's."
    )
    reach: tuple[float, ...] = option(
        (1 / 8, 32.0), "The least and the largest multiple of them in a sweep."
    )
    per_octave: int = option(2, "Bandwidths of a sweep to a factor of two.")
    scales: tuple[float, ...] = option(
        choices.SCALES, "Multiples at which one bandwidth is held while the other is swept."
    )
    least: float = option(
        0.5, "Models that answer a smaller share of all prompts than this are left out."
    )
    rows: int = option(400, "Pairs of each model at most, of prompts drawn at random.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the curves depend on."""

    data: str
    n: int
    prompts: int
    models: tuple[str, ...]
    bandwidths: choices.Bandwidths
    multiples: tuple[float, ...]
    scales: tuple[float, ...]

    def held(self, scale: float) -> int:
        """Where a scale is among the multiples."""
        return self.multiples.index(scale)

    def widths(self, side: str) -> np.ndarray:
        """The bandwidths of a sweep, in the units of the outputs or prompts."""
        return np.array(self.multiples) * getattr(self.bandwidths, side)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One model."""

    model: str


@dataclasses.dataclass(frozen=True)
class Scores:
    """Vendi and Conditional-Vendi (or RKE and Conditional-RKE) over output and prompt bandwidths.

    Information-* is their quotient (CV eq. 8). m multiples of the rule's bandwidths, S scales.

    Attributes:
      vendi: `[m]`, order 1.
      conditional: `[m, m]`, order 1, by output and prompt bandwidth; NaN where neither is held.
      rke: `[1 + g, m]`, order 2; behind the first row those without each of g groups of prompts.
      conditional_rke: `[1 + g, m, m]`.
      prompts: `[2, m]`, the Vendi and the RKE of the prompts.
      narrow: `[2, 2, 2, S]`, exp H of orders 1 and 2 (last axis but one) in the limit of a narrow
        bandwidth of the prompts and of the outputs (first axis), the other being held: of the
        joint, and of the narrow ones alone (second axis).
    """

    vendi: np.ndarray
    conditional: np.ndarray
    rke: np.ndarray
    conditional_rke: np.ndarray
    prompts: np.ndarray
    narrow: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Matches the models' prompts and chooses the bandwidths that the sweeps are around."""
    multiples, scales = _multiples(options)
    if not 0 < options.least <= 1:
        raise ValueError(f"--least: expected a share between 0 and 1, received {options.least}.")
    validation.check_count(options.rows, name="--rows", minimum=_LEAST_PROMPTS)
    loaded = load()
    pairs = matched(loaded, least=options.least, rows=options.rows, seed=seed)
    once = choices.ScaledOptions(
        rule=options.rule,
        output_bandwidth=options.output_bandwidth,
        prompt_bandwidth=options.prompt_bandwidth,
        scales=(1.0,),
    )
    models = tuple(dict.fromkeys(pairs.labels["models"].tolist()))
    settings = Settings(
        data=pairs.description,
        n=len(pairs) // len(models),
        prompts=validation.distinct_rows(pairs.prompts)[0],
        models=models,
        bandwidths=choices.choose_scaled(pairs, once, seed)["1"],
        multiples=multiples,
        scales=scales,
    )
    return lab.Setup(settings, loaded.arrays, state=pairs)


def _multiples(options: Options) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The multiples of a sweep, ascending, and those that are held, which are among them."""
    if len(options.reach) != 2 or not 0 < options.reach[0] < 1 < options.reach[1] < math.inf:
        raise ValueError(
            "--reach: expected a multiple below 1 and one above, received "
            f"{', '.join(f'{m:g}' for m in options.reach)}."
        )
    validation.check_count(options.per_octave, name="--per_octave", minimum=1)
    scales = tuple(round(positive(scale, name="scales"), 6) for scale in options.scales)
    if len(set(scales)) < len(scales) or 1.0 not in scales:
        raise ValueError(f"--scales: expected different ones with 1 among them, received {scales}.")
    low, high = options.reach
    count = 1 + math.ceil(options.per_octave * math.log2(high / low) - 1e-9)
    spaced = np.geomspace(low, high, count).round(6).tolist()
    return tuple(sorted({*spaced, *scales})), scales


def matched(pairs: PairedEmbeddings, *, least: float, rows: int, seed: int) -> PairedEmbeddings:
    """The prompts that all models answer, as many outputs of each by every model.

    Args:
      pairs: those of equal prompt embeddings are of one prompt; without the label `models` they are
        taken for one model's.
      least: models that answer a smaller share of all prompts are left out.
      rows: of each model at most, of prompts drawn at random by the seed.

    Returns:
      Model by model, the prompts in the same order.

    Raises:
      ValueError: fewer than two models are left, or they share too few prompts.
    """
    names = pairs.labels.get("models", np.full(len(pairs), _ALL))
    models, model = np.unique(names, return_inverse=True)
    kinds, prompt = validation.distinct_rows(pairs.prompts)
    counts = np.zeros((len(models), kinds), int)
    np.add.at(counts, (model, prompt), 1)
    kept = np.flatnonzero(np.mean(counts > 0, axis=1) >= least)
    if len(kept) < min(2, len(models)):
        raise ValueError(f"--least={least:g}: {len(kept)} of {len(models)} models are left.")
    shared = counts[kept].min(axis=0)
    if np.sum(shared > 0) < _LEAST_PROMPTS:
        raise ValueError(
            f"models: {len(kept)} models share {np.sum(shared > 0)} prompts, expected "
            f"{_LEAST_PROMPTS}; a larger --least leaves out those that answer few."
        )
    order = np.random.default_rng(seed).permutation(kinds)
    chosen = [
        of_prompt[: shared[p]]
        for m, p in itertools.product(kept, order)
        if (of_prompt := np.flatnonzero((model == m) & (prompt == p))).size and shared[p]
    ]
    per_model = min(rows, int(shared.sum()))
    by_model = np.concatenate(chosen).reshape(len(kept), -1)[:, :per_model]
    found = pairs.rows(by_model.ravel())
    labels = {**found.labels, "models": np.repeat(models[kept], per_model)}
    return dataclasses.replace(found, labels=labels)


def cells(settings: Settings) -> list[Cell]:
    """A cell a model."""
    return [Cell(model) for model in settings.models]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scores:
    """Every score of one model."""
    settings = setup.settings
    pairs = setup.state.rows(setup.state.labels["models"] == cell.model)
    outputs = _Side(jnp.asarray(pairs.outputs), settings.widths("outputs"))
    prompts = _Side(jnp.asarray(pairs.prompts), settings.widths("prompts"))
    context.say("order 2")
    # The same prompts leave together in every model, so that what they share cancels.
    groups = inference.group_rows(
        settings.n,
        min(20, settings.prompts),
        key=context.shared_key,
        kinds=validation.distinct_rows(pairs.prompts)[1],
    )
    rke, conditional_rke, prompts_rke = _order_two(outputs, prompts, groups)
    context.say("spectra")
    held = [settings.held(scale) for scale in settings.scales]
    vendi, conditional, prompts_vendi = _order_one(outputs, prompts, held)
    narrow = [
        [_narrow(outputs, prompts, index), _narrow(prompts, outputs, index)] for index in held
    ]
    return Scores(
        vendi=vendi,
        conditional=conditional,
        rke=rke,
        conditional_rke=conditional_rke,
        prompts=np.stack([prompts_vendi, prompts_rke]),
        narrow=np.moveaxis(np.array(narrow), 0, -1),
    )


class _Side:
    """Outputs or prompts `[n, d]`, their bandwidths `[m]` and the distances that all of them share.

    One form of the kernel, that of the narrowest bandwidth, serves all of them.
    """

    def __init__(self, points: jax.Array, widths: np.ndarray):
        self.points, self.widths = points, jnp.asarray(widths, points.dtype)
        self.unit = cv.Gaussian(float(widths.min())).suited_to(points).unit
        self.kinds = validation.distinct_rows(np.asarray(points))[1]
        kernel = cv.Gaussian(1.0, unit=self.unit)
        prepared = kernel.prepare(points)
        self._geometry = jnp.fill_diagonal(kernel.geometry(prepared, prepared), 0, inplace=False)

    def gram(self, index: int) -> jax.Array:
        """K at one of the bandwidths, `[n, n]`."""
        return cv.Gaussian(self.widths[index], unit=self.unit).profile(self._geometry)

    def grams(self, rows: np.ndarray) -> np.ndarray:
        """Some rows of K at every bandwidth, `[m, rows, n]`."""
        geometry = self._geometry[rows]
        kernels = [cv.Gaussian(width, unit=self.unit) for width in self.widths]
        return np.stack([kernel.profile(geometry) for kernel in kernels])


def _order_two(
    outputs: _Side, prompts: _Side, groups: inference.Groups
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """RKE `[1 + g, m]`, Conditional-RKE `[1 + g, m, m]`, RKE of the prompts `[m]`: in one pass.

    Squared norms of joints are inner products of squared Grams: each Gram is evaluated at its own m
    bandwidths, and a matrix product does the m^2 combinations. A Gram of ones stands in front.
    """
    touching, inside = [], []
    for group in range(groups.count):
        rows = groups.membership == group
        x, t = (np.square(side.grams(rows)) for side in (outputs, prompts))
        touching.append(_inner_products(x, t))
        inside.append(_inner_products(x[..., rows], t[..., rows]))
    total = np.sum(touching, axis=0)
    without = total - 2 * np.array(touching) + np.array(inside)
    norms = np.concatenate([total[None], without])
    left = len(outputs.kinds) * np.append(1, 1 - groups.fractions)
    rke = left[:, None] ** 2 / norms[:, 1:, 0]
    return rke, norms[:, :1, 1:] / norms[:, 1:, 1:], left[0] ** 2 / norms[0, 0, 1:]


def _inner_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Of all matrices `[m, r, n]` of both, with a matrix of ones in front, `[1 + m, 1 + m]`."""
    flat = [m.reshape(len(m), -1) for m in (left, right)]
    flat = [np.concatenate([np.ones_like(m[:1]), m]) for m in flat]
    return (flat[0] @ flat[1].T).astype(np.float64)


def _order_one(
    outputs: _Side, prompts: _Side, held: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vendi `[m]`, Conditional-Vendi `[m, m]`, NaN where neither is held, Vendi of the prompts."""
    m = len(outputs.widths)
    h_x, h_t = (
        np.array([_von_neumann(side.gram(index)) for index in range(m)])
        for side in (outputs, prompts)
    )
    conditional = np.full((m, m), np.nan)
    for i, j in itertools.product(range(m), repeat=2):
        if i in held or j in held:
            conditional[i, j] = math.exp(_von_neumann(outputs.gram(i), prompts.gram(j)) - h_t[j])
    return np.exp(h_x), conditional, np.exp(h_t)


@jax.jit
def _von_neumann(*grams: jax.Array) -> jax.Array:
    """H of the Hadamard product of Grams, by all eigenvalues; compiled once for all bandwidths."""
    return cv.von_neumann(DenseGram.trusted(functools.reduce(jnp.multiply, grams)))


def _narrow(other: _Side, narrow: _Side, held: int) -> np.ndarray:
    """exp H of the joint and of the narrow side alone, at orders 1 and 2, `[2, 2]`.

    A Gram whose bandwidth goes to zero tends to that of equality, and the joint to the other Gram,
    zero between what differs. As prompts narrow, Conditional-Vendi so tends to a geometric mean
    over the prompts and Conditional-RKE to a harmonic one, and both to 1 where each occurs once.
    """
    gram = np.asarray(other.gram(held), np.float64)
    return np.exp([_within(gram, narrow.kinds), _within(np.ones_like(gram), narrow.kinds)])


def _within(gram: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The entropies of orders 1 and 2, in nats, of a Gram set to zero between different kinds."""
    rows = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
    values = np.concatenate([np.linalg.eigvalsh(gram[np.ix_(r, r)]) for r in rows]) / len(gram)
    positive_values = values[values > 0]
    return np.array([-np.sum(positive_values * np.log(positive_values)), -np.log(values @ values)])


def surface(run: lab.Run, order: str, score: str) -> np.ndarray:
    """A score of all models over output and prompt bandwidths, `[models, m, m]`."""
    return surfaces(run, order, score)[:, 0]


def surfaces(run: lab.Run, order: str, score: str) -> np.ndarray:
    """The same with those without each group of prompts behind, `[models, 1 + g, m, m]`."""
    found = []
    for scores in run.results.values():
        vendi, conditional = scores.rke, scores.conditional_rke
        if order == "Vendi":
            vendi, conditional = scores.vendi[None], scores.conditional[None]
        found.append(conditional if score == "Conditional" else vendi[..., None] / conditional)
    return np.stack(found)


def along(surface: np.ndarray, sweep: str, held: int) -> np.ndarray:
    """The curve `[..., m]` of a surface `[..., m, m]`: one bandwidth swept, the other held."""
    return surface[..., held, :] if sweep == "prompts" else surface[..., held]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How the ranking of the models in one sweep agrees with that at the rule's bandwidths.

    Attributes:
      taus: Kendall's tau at each multiple, `[m]`.
      same: the least and the largest multiple about 1 between which no pair of models changes
        places.
      reversed: how many pairs of models somewhere in the sweep stand the other way round, both
        there and at the rule beyond two standard errors of the paired jackknife; None at order 1,
        which has no errors.
      pairs: how many pairs there are.
    """

    taus: np.ndarray
    same: tuple[float, float]
    reversed: int | None
    pairs: int


def agreement(run: lab.Run, order: str, score: str, sweep: str, scale: float) -> Agreement:
    """The agreement of one sweep with the ranking at the rule's bandwidths."""
    settings = run.settings
    reference, held = settings.held(1.0), settings.held(scale)
    values = surfaces(run, order, score)
    curves = along(values, sweep, held)
    at_rule = values[:, :, reference, reference]
    taus = kendall(at_rule[:, 0], curves[:, 0].T, ORDERS[order])
    first, second = np.triu_indices(len(at_rule), 1)
    reversed_pairs = None
    if order == "RKE":
        there = _strengths(curves[first], curves[second])
        here = _strengths(at_rule[first], at_rule[second])[:, None]
        opposite = (np.abs(there) > _SIGNIFICANT) & (np.abs(here) > _SIGNIFICANT)
        reversed_pairs = int(np.any(opposite & (there * here < 0), axis=1).sum())
    return Agreement(taus, _same(taus, settings, reference), reversed_pairs, len(first))


def kendall(at_rule: np.ndarray, others: np.ndarray, order: float) -> np.ndarray:
    """Kendall's tau of scores `[models]` with others `[k, models]`, `[k]`; NaN where saturated."""
    ranked = ranks(at_rule, order)
    return np.array([stats.kendalltau(ranked, ranks(other, order))[0] for other in others])


def _strengths(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Differences of the order-2 scores `[pairs, 1 + g, ...]` of models in their jackknife errors.

    `[pairs, ...]`, zero where the scores differ by no more than rounding: there, both are at a
    limit that all models share.
    """
    errors = jackknife(one - two)
    differ = np.abs(one - two)[:, 0] > rounding(2.0) * np.abs(one[:, 0])
    out = np.zeros_like(errors)
    return np.divide((one - two)[:, 0], errors, out=out, where=differ & (errors > 0))


def jackknife(values: np.ndarray) -> np.ndarray:
    """The delete-group errors `[k, ...]` of values `[k, 1 + g, ...]`, of groups of one size."""
    deleted = values[:, 1:]
    count = deleted.shape[1]
    return np.sqrt((count - 1) * np.var(deleted, axis=1))


def _same(taus: np.ndarray, settings: Settings, reference: int) -> tuple[float, float]:
    """The least and largest multiple about the rule's between which tau is 1."""
    same = np.isclose(taus, 1)
    if not same[reference]:  # Held at another scale, the ranking may differ everywhere.
        return math.nan, math.nan
    low = reference - int(np.argmin(np.append(same[reference::-1], False))) + 1
    high = reference + int(np.argmin(np.append(same[reference:], False))) - 1
    return settings.multiples[low], settings.multiples[high]


def table(run: lab.Run) -> Table:
    """How far the ranking of the models at the rule's bandwidths reaches."""
    heads = ("swept", "score", "the other at", "scores at the rule's", "least tau")
    grid = Table(*heads, "ranking unchanged", "pairs reversed beyond 2 errors")
    settings = run.settings
    for sweep, order, score in itertools.product(SWEEPS, ORDERS, SCORES):
        for scale in settings.scales:
            curve = along(surface(run, order, score), sweep, settings.held(scale))
            ends = np.sort(curve[:, settings.held(1.0)])[[0, -1]]
            row = [sweep, f"{score}-{order}", f"{scale:g}", "{:.4g} to {:.4g}".format(*ends)]
            if len(settings.models) > 1:
                found = agreement(run, order, score, sweep, scale)
                least = np.fmin.reduce(found.taus)  # NaN where every one is.
                row += [f"{least:.2f}", "{:.2g} to {:.2g}".format(*found.same)]
                if found.reversed is not None:
                    row.append(f"{found.reversed} of {found.pairs}")
            grid.add_row(*row)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """For each run a figure of each sweep (CV-early figs 25 and 26) and one of all bandwidths."""
    figures = {}
    for run in runs:
        name = run.folder.name
        for sweep in SWEEPS:
            figures[f"{name}_{sweep}"] = _figure(run, sweep)
        figures[f"{name}_map"] = _map(run)
    return figures


def _figure(run: lab.Run, sweep: str) -> Figure:
    """Conditional and Information side by side as in the papers, and the ranking beside them."""
    settings = run.settings
    several = len(settings.models) > 1
    columns = 3 if several else 2
    figure, axes = style.panels(2 * columns, columns=columns, size=(4.0, 3.0), sharex=True)
    panels = np.array(axes, object).reshape(2, columns)
    for row, order in zip(panels, ORDERS, strict=True):
        for panel, score in zip(row[:2], SCORES, strict=True):
            _curves(panel, run, order, score, sweep)
        if several:
            _rankings(row[2], run, order, sweep)
    for panel in panels[1]:
        _octaves(panel.xaxis.axes)
        panel.set_xlabel(f"bandwidth of the {sweep}, multiples of the rule's")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5)
    if several:
        panels[0, 2].legend(loc="lower right", fontsize=6.5)
    style.caption(figure, _caption(run, sweep))
    return figure


def _octaves(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(
        lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}"
    )


def _curves(panel: Axes, run: lab.Run, order: str, score: str, sweep: str) -> None:
    """A curve a model, the other bandwidth as the rule has it, and the limits at both ends."""
    settings = run.settings
    held = settings.held(1.0)
    values = along(surfaces(run, order, score), sweep, held)
    ends = limits(run, order, score, sweep, 1.0)
    x = np.array(settings.multiples)
    beyond = x[0] / 1.7, x[-1] * 1.7
    for index, model in enumerate(settings.models):
        colour = style.CYCLE[index % len(style.CYCLE)]
        dash = _DASHES[index // len(style.CYCLE)]
        panel.plot(x, values[index, 0], color=colour, linestyle=dash, label=model, linewidth=1.1)
        if values.shape[1] > 1:
            error = jackknife(values[index : index + 1])[0]
            panel.fill_between(
                x, values[index, 0] - error, values[index, 0] + error, color=colour, alpha=0.25
            )
        for where, limit, marker in zip(beyond, ends[:, index], "<>", strict=True):
            label = "limit" if index == len(settings.models) - 1 and marker == ">" else None
            look = {"color": style.GREY, "markerfacecolor": colour, "linestyle": "", "alpha": 0.9}
            panel.plot(where, limit, marker=marker, markersize=5, label=label, **look)
    panel.axvline(1, color=style.GREY, linewidth=0.8)
    panel.set(yscale="log", title=f"{score}-{order}", ylabel="effective number of modes")
    style.log_numbers(panel.yaxis)
    panel.yaxis.set_minor_formatter(NullFormatter())


def limits(run: lab.Run, order: str, score: str, sweep: str, scale: float) -> np.ndarray:
    """What every model's curve tends to at its narrow and its wide end, `[2, models]`.

    Wide prompts are forgotten: Conditional-Vendi tends to Vendi and Information-Vendi to 1. Wide
    outputs are all alike: both tend to 1. The narrow ends are those of `_narrow`.
    """
    settings, of_order = run.settings, list(ORDERS).index(order)
    at, held = settings.scales.index(scale), settings.held(scale)
    found = []
    for scores in run.results.values():
        vendi = scores.vendi[held] if order == "Vendi" else scores.rke[0, held]
        joint, alone = scores.narrow[SWEEPS.index(sweep), :, of_order, at]
        if sweep == "prompts":
            ends = (vendi, joint / alone), (vendi, vendi)
        else:
            ends = (alone, joint / scores.prompts[of_order, held]), (1.0, 1.0)
        found.append([c if score == "Conditional" else v / c for v, c in ends])
    return np.array(found).T


def _rankings(panel: Axes, run: lab.Run, order: str, sweep: str) -> None:
    """Kendall's tau with the ranking at the rule's bandwidths, for every held multiple."""
    settings = run.settings
    other = next(side for side in SWEEPS if side != sweep)
    for score, scale in ((score, scale) for score in SCORES for scale in settings.scales):
        taus = agreement(run, order, score, sweep, scale).taus
        panel.plot(
            settings.multiples,
            taus,
            color=style.score_colour(f"{score}-{order}"),
            linestyle=_DASHES[settings.scales.index(scale) % len(_DASHES)],
            label=f"{score}, {other} at {scale:g}",
            linewidth=1.1,
        )
    panel.axvline(1, color=style.GREY, linewidth=0.8)
    panel.set(ylim=(-1.05, 1.05), title="same ranking as at the rule's?", ylabel="Kendall's tau")


def _map(run: lab.Run) -> Figure:
    """Order 2 at all bandwidths: the mean over the models, and its ranking."""
    settings = run.settings
    several = len(settings.models) > 1
    figure, axes = style.panels(4 if several else 2, columns=2, size=(4.2, 3.6), sharex=True)
    reference = settings.held(1.0)
    for index, score in enumerate(SCORES):
        values = surface(run, "RKE", score)
        mean = np.exp(np.mean(np.log(values), axis=0))
        _mesh(axes[index], settings, mean, f"{score}-RKE, geometric mean over the models", log=True)
        if several:
            at_rule = values[:, reference, reference]
            others = values.reshape(len(values), -1).T
            taus = kendall(at_rule, others, 2.0).reshape(values.shape[1:])
            title = f"{score}-RKE: Kendall's tau with the rule's ranking"
            _mesh(axes[2 + index], settings, taus, title, log=False)
    for panel in axes[-2:]:
        panel.set_xlabel("bandwidth of the prompts, multiples of the rule's")
    for panel in axes[::2]:
        panel.set_ylabel("bandwidth of the outputs")
    style.caption(figure, _caption(run, None))
    return figure


def _mesh(panel: Axes, settings: Settings, values: np.ndarray, title: str, *, log: bool) -> None:
    norm: dict[str, Any] = (
        {"norm": "log", "cmap": "viridis"} if log else {"vmin": -1, "vmax": 1, "cmap": "RdBu"}
    )
    x = settings.multiples
    mesh = panel.pcolormesh(x, x, values, shading="nearest", rasterized=True, **norm)
    bar = panel.figure.colorbar(mesh, ax=panel)
    if log:
        style.log_numbers(bar.ax.yaxis)
    panel.plot(1, 1, "+", color="white" if log else style.BLACK, markersize=9)
    _octaves(panel)
    panel.set_yscale("log", base=2)
    panel.yaxis.set_major_formatter(panel.xaxis.get_major_formatter())
    panel.grid(False)
    panel.set_title(title)


def _caption(run: lab.Run, sweep: str | None) -> str:
    """What data, n, bandwidths, rule and seed are shown, and what the errors are."""
    settings = run.settings
    widths = settings.bandwidths
    parts = [
        f"{settings.data.rstrip('.')}; {len(settings.models)} models on the {settings.prompts:,} "
        f"prompts that they share, n = {settings.n:,} each, seed {run.seed}",
        f"Multiples of {widths.outputs:.3g} (outputs) and {widths.prompts:.3g} (prompts), the "
        f"{widths.rule}",
    ]
    if sweep:
        parts.append(
            "Bands: one standard error by the jackknife over prompts (RKE). Triangles: the limits "
            "of a bandwidth of zero and of an infinite one"
        )
    return ". ".join(parts) + "."


STUDY = lab.StudyRecord(
    name="bandwidth",
    version=1,
    question="What hangs on the bandwidths, and does the ranking of models?",
    reproduces="CV-early figs 25, 26",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Scores,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("bandwidth_prompts", "bandwidth_outputs", "bandwidth_map"),
    more_labels=("models",),
)


if __name__ == "__main__":
    lab.main(STUDY)
