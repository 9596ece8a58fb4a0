"""How many samples the scores need: CV figures 2, 3 and 19 on real embeddings.

The scores of random subsamples against their size n', mean and spread over random orders of the
pairs: Conditional-Vendi, truncated Conditional-Vendi and Conditional-RKE, with Information-* and
the unconditional scores from the same spectra. What settles by a given n depends on the bandwidths:
`--rules=variance,std,median` repeats the study for every rule that chooses them.

    python -m experiments.convergence --kernel=gaussian
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import bandwidth, spectra, validation
from condvendi_jax.entropies import log_scores
from condvendi_jax.grams import _memory as memory
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option

# Spectra at these sizes and at all pairs, or where there are more, at the last of them.
_SIZES = (250, 500, 1000, 2000, 4000, 7000)
_LARGEST = 20_000
# In the figure, about the width of a line.
_RTOL = 0.01
# Larger spectra take most of the time, and random orders of the pairs hardly change them.
_REPEATED_UP_TO = 4000
# Up to here all eigenvalues take less time than an estimate.
_EXACT_UP_TO = 1000
# CV truncates at 10,000 of 25,000 samples.
_PAPER_TRUNCATION = 10_000 / 25_000
_SCALED = "scaled"
# Sizes of the order-2 curve, which costs no more than its last point.
_ORDER_TWO_POINTS = 40
# Starting the spectra of one size takes as long as computing with a matrix of this many rows.
_STARTING = 4000
# A curve has settled where it stays this near to its last value.
_NEAR = 0.02
_NAMES = {
    "conditional": ("Conditional-Vendi", "Conditional-RKE"),
    "information": ("Information-Vendi", "Information-RKE"),
    "vendi": ("Vendi", "RKE"),
}
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)))


@dataclasses.dataclass(frozen=True)
class Options(choices.KernelOptions):
    """The flags of the study."""

    orders: tuple[float, ...] = option((1.0, 2.0), "Renyi orders of the untruncated scores.")
    truncation: tuple[str, ...] = option(
        (_SCALED, "200"),
        "Eigenvalues kept by truncated Conditional-Vendi; 'scaled' is 0.4 of the largest size, as "
        "10,000 is of the paper's 25,000.",
    )
    sizes: tuple[int, ...] | None = option(
        None,
        f"Sizes at which spectra are computed, up to all pairs or {_LARGEST:,} if unset; order 2 "
        "goes on to all pairs regardless.",
    )
    repeats: int = option(3, "Random orders of the pairs.")
    repeated_up_to: int = option(
        _REPEATED_UP_TO, "Larger sizes are computed in the first random order only."
    )
    method: str = option(
        "auto",
        "How spectra are computed: all eigenvalues (exact), or estimated with 95% intervals "
        f"(stored, matrix-free); auto takes eigenvalues up to n = {_EXACT_UP_TO:,}.",
        choices=tuple(name for name, of in spectra.BY_NAME.items() if not of.approximates),
    )
    rtol: float | None = option(
        None, f"Half width of the intervals of estimated scores, relatively; {_RTOL:g} if unset."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the curves depend on."""

    data: str
    n: int
    kernel: str
    orders: tuple[float, ...]
    truncations: tuple[int, ...]
    sizes: tuple[int, ...]
    repeats: int
    repeated_up_to: int
    bandwidths: dict[str, choices.Bandwidths]
    method: str
    rtol: float | None

    @property
    def spectral(self) -> list[cv.Entropy]:
        """The entropies that take spectra."""
        found = [cv.Entropy(order=order) for order in self.orders if order != 2]
        return found + [cv.truncated(t) for t in self.truncations]

    @property
    def order_two_sizes(self) -> list[int]:
        """Sizes of equal ratio up to all pairs, and those of the spectra."""
        spaced = np.geomspace(min(self.sizes[0], self.n), self.n, _ORDER_TWO_POINTS)
        return sorted({*spaced.round().astype(int).tolist(), *self.sizes})


@dataclasses.dataclass(frozen=True)
class Cell:
    """One way of choosing the bandwidths, and one random order of the pairs."""

    rule: str
    repeat: int


@dataclasses.dataclass(frozen=True)
class Curves:
    """The entropies of the first n' pairs in nats, H(X), H(T) and H(X, T), against n'.

    Attributes:
      sizes: `[m]`, of the spectra. Those above `Settings.repeated_up_to`, and all pairs, whose
        order has no meaning, are there in the first random order only.
      spectral: `[entropies, 3, m]`, in the order of `Settings.spectral`.
      intervals: `[entropies, 3, 2, m]`, in effective numbers of modes: where Vendi, Conditional-
        and Information-Vendi lie at 95%; of no width where all eigenvalues were taken.
      methods: how the spectra of each size were had.
      order_two_sizes: `[k]`, in random orders but the first up to `Settings.repeated_up_to`.
      order_two: `[3, k]`, exact; of no size where order 2 was not asked for.
    """

    sizes: np.ndarray
    spectral: np.ndarray
    intervals: np.ndarray
    methods: tuple[str, ...]
    order_two_sizes: np.ndarray
    order_two: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options against the pairs, and chooses the bandwidths."""
    orders = tuple(map(validation.check_order, options.orders))
    validation.check_count(options.repeats, name="--repeats", minimum=1)
    if options.rtol is not None and options.method == "exact":
        raise ValueError("--rtol means nothing with --method=exact, which estimates nothing.")
    rtol = _RTOL if options.rtol is None else options.rtol
    if not 0 < rtol < 1:
        raise ValueError(f"--rtol: expected a number between 0 and 1, received {rtol}.")
    pairs = load()
    sizes = _sizes(options.sizes, len(pairs))
    settings = Settings(
        data=pairs.description,
        n=len(pairs),
        kernel=options.kernel,
        orders=orders,
        truncations=tuple(_truncation(word, sizes[-1]) for word in options.truncation),
        sizes=sizes,
        repeats=options.repeats,
        repeated_up_to=options.repeated_up_to,
        bandwidths=choices.choose(pairs, options, seed),
        method=options.method,
        rtol=None if options.method == "exact" else rtol,
    )
    arrays = {"outputs": pairs.outputs, "prompts": pairs.prompts}
    return lab.Setup(settings, arrays, state=pairs)


def _sizes(given: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    if given is None:
        return (*(size for size in _SIZES if size < n), min(n, _LARGEST))
    sizes = sorted(set(given))
    if sizes[0] < 2 or sizes[-1] > n:
        raise ValueError(f"--sizes: expected numbers between 2 and n = {n}, received {sizes}.")
    return tuple(sizes)


def _truncation(word: str, largest: int) -> int:
    if word == _SCALED:
        return max(1, round(_PAPER_TRUNCATION * largest))
    if not word.isdecimal():
        raise ValueError(f"--truncation: expected whole numbers or 'scaled', received {word!r}.")
    return validation.check_count(int(word), name="--truncation", minimum=1)


def cells(settings: Settings) -> list[Cell]:
    """Every rule in every random order."""
    return [
        Cell(rule, repeat) for rule in settings.bandwidths for repeat in range(settings.repeats)
    ]


def cost(settings: Settings, cell: Cell) -> float:
    """The work of a cell: the matrices of its spectra, and one small one for order 2."""
    return _work([*_sizes_of(settings, cell), 0])


def _work(sizes: Sequence[int]) -> float:
    return float(sum(size**2 + _STARTING**2 for size in sizes))


def _sizes_of(settings: Settings, cell: Cell) -> list[int]:
    """The sizes of a cell's spectra."""
    if cell.repeat == 0:
        return list(settings.sizes)
    return [s for s in settings.sizes if s < settings.n and s <= settings.repeated_up_to]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Curves:
    """The entropies of every size for one bandwidth rule and one random order of the pairs."""
    settings, pairs = setup.settings, setup.state
    order_key, probe_key = jax.random.split(context.key)
    order = np.asarray(jax.random.permutation(order_key, len(pairs)))
    curve = functools.partial(
        cv.convergence_curve,
        pairs.outputs[order],
        pairs.prompts[order],
        **settings.bandwidths[cell.rule].kernels(),
    )
    sizes = _sizes_of(settings, cell)
    spectral, intervals, ways = [], [], []
    for index, size in enumerate(sizes):
        context.say(f"spectra of {size:,} pairs", _work(sizes[:index]) / cost(settings, cell))
        method = spectra.named(_method(settings.method, size), key=probe_key, rtol=settings.rtol)
        found = curve([size], entropies=settings.spectral, method=method)
        spectral.append([_entropies(result) for result in found])
        intervals.append([np.array(result.intervals) for result in found])
        ways.append(method.name)
    order_two_sizes, order_two = [], np.zeros((3, 0))
    if 2 in settings.orders:
        largest = settings.n if cell.repeat == 0 else settings.repeated_up_to
        order_two_sizes = [size for size in settings.order_two_sizes if size <= largest]
    if order_two_sizes:
        context.say("order 2", _work(sizes) / cost(settings, cell))
        (result,) = curve(order_two_sizes, entropies=[cv.renyi(2)])
        order_two = _entropies(result)
    return Curves(
        sizes=np.array(sizes),
        spectral=np.concatenate(spectral, axis=-1),
        intervals=np.concatenate(intervals, axis=-1),
        methods=tuple(ways),
        order_two_sizes=np.array(order_two_sizes, int),
        order_two=order_two,
    )


def _method(method: str, n: int) -> str:
    if method != "auto":
        return method
    if n <= _EXACT_UP_TO:
        return "exact"
    return "stored" if memory.fits(n, validation.compute_dtype()) else "matrix-free"


def _entropies(result: cv.inference.ConvergenceCurve) -> np.ndarray:
    """H(X), H(T) and H(X, T) of each size, `[3, m]`."""
    return np.stack([result.entropy_outputs, result.entropy_prompts, result.entropy_joint])


@dataclasses.dataclass(frozen=True)
class Curve:
    """One score against the sample size: its name, sizes `[m]` and values `[repeats, m]`.

    Values are NaN at the sizes that a repeat does not have.
    """

    name: str
    sizes: np.ndarray
    values: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """`[m]`, over the repeats that have the size."""
        return np.nanmean(self.values, axis=0)

    @property
    def spread(self) -> np.ndarray:
        """The standard deviation over the repeats, relative to the mean; NaN where it is one."""
        several = np.sum(np.isfinite(self.values), axis=0) > 1
        values = np.where(several, self.values, np.arange(len(self.values))[:, None])
        spread = np.nanstd(values, axis=0, ddof=1 if len(values) > 1 else 0)
        return np.where(several & (self.sizes < self.sizes[-1]), spread / self.mean, np.nan)


def curves(run: lab.Run, rule: str, score: str) -> list[Curve]:
    """The curves of one score under one bandwidth rule, of every order and truncation."""
    settings = run.settings
    repeats = [found for cell, found in run.results.items() if cell.rule == rule]
    vendi, rke = _NAMES[score]
    curves = []
    for index, entropy in enumerate(settings.spectral):
        name = vendi if entropy.order == 1 else f"{vendi}, order {entropy.order:g}"
        name += "" if entropy.truncation is None else f", t = {entropy.truncation:,}"
        values = [_values(found.spectral[index], score) for found in repeats]
        curves.append(Curve(name, np.array(settings.sizes), _padded(values)))
    if 2 in settings.orders:
        values = [_values(found.order_two, score) for found in repeats]
        curves.append(Curve(rke, repeats[0].order_two_sizes, _padded(values)))
    return curves


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows that begin alike as one array, as long as the first and with NaN where one has ended."""
    filled = np.full((len(rows), len(rows[0])), np.nan)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return filled


def _values(entropies: np.ndarray, score: str) -> np.ndarray:
    """A score `[m]` out of H(X), H(T) and H(X, T), `[3, m]`."""
    return np.exp(getattr(log_scores(*entropies.astype(np.float64)), score))


def table(run: lab.Run) -> Table:
    """Where each curve ends, and from which size on it stays near its end."""
    grid = Table("bandwidths", "score", "last n", "there", f"within {_NEAR:.0%} from")
    for rule in run.settings.bandwidths:
        for curve in (curve for score in _NAMES for curve in curves(run, rule, score)):
            mean, sizes = curve.mean, curve.sizes.tolist()
            settled = cv.inference.settled_from(sizes, mean, tolerance=_NEAR)
            start = "not settled" if settled is None else f"{settled:,}"
            grid.add_row(rule, curve.name, f"{sizes[-1]:,}", f"{mean[-1]:.4g}", start)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """A figure for each score, and one of all eigenvalues, for each data set (CV figs 2, 3, 19)."""
    runs = sorted(runs, key=lambda run: run.settings.kernel != "gaussian")
    full = [run for run in runs if run.settings.method == "exact"]
    estimated = [run for run in runs if run.settings.method != "exact"]
    figures = {}
    for name in dict.fromkeys(run.data for run in runs):
        end = f"_{name}" if name else ""
        whole, rest = ([run for run in some if run.data == name] for some in (full, estimated))
        if whole:
            figures[f"convergence_full{end}"] = _figure(whole, "conditional", [])
        if rest:
            figures[f"convergence{end}"] = _figure(rest, "conditional", full)
            for score in ("information", "vendi"):
                figures[f"convergence_{score}{end}"] = _figure(rest, score, full)
    return figures


def _figure(runs: Sequence[lab.Run], score: str, known: Sequence[lab.Run]) -> Figure:
    """Scores above, their spread below, a column a bandwidth rule; what is known as circles."""
    columns = [(run, rule) for run in runs for rule in run.settings.bandwidths]
    count = len(columns)
    wide = 3.6 if count > 1 else 6.0
    figure, axes = style.panels(
        2 * count, columns=count, size=(wide, 2.8), sharex=True, sharey="row"
    )
    marked = False
    for (run, rule), upper, lower in zip(columns, axes[:count], axes[count:], strict=True):
        lower.set_yscale("log")
        _panel(upper, lower, curves(run, rule, score))
        for other in (o for o in known if _same_kernels(o, run, rule)):
            marked = True
            for curve in (c for c in curves(other, rule, score) if "RKE" not in c.name):
                colour = style.score_colour(curve.name)
                upper.plot(curve.sizes, curve.mean, "o", color=colour, markerfacecolor="white")
        upper.set_title(_title(run, rule))
        style.log_numbers(lower.yaxis)
        style.log_counts(lower, _ticks(run.settings.n))
        lower.set(xlabel="sample size n")
    axes[0].set(ylim=(0, None), ylabel="effective number of modes")
    axes[count].set_ylabel("spread over orders, %")
    if marked:
        look: dict[str, Any] = {
            "color": style.GREY,
            "markerfacecolor": "white",
            "label": "by all eigenvalues",
        }
        axes[0].add_line(Line2D([], [], marker="o", linestyle="", **look))
    style.legend_above(figure, axes[0], columns=5 if count > 1 else 2)
    style.caption(figure, _caption(runs, marked=marked))
    return figure


def _ticks(n: int) -> list[int]:
    """Sizes that are written at the axis: all pairs, and some well below."""
    return [*(size for size in (250, 1000, 4000) if size < n / 1.5), n]


def _panel(upper: Axes, lower: Axes, found: Sequence[Curve]) -> None:
    """Means with a band of one standard deviation, and below them that deviation by itself."""
    for curve, dashes in zip(found, itertools.cycle(_DASHES)):
        # Untruncated curves are thin and whole, so that what lies on them is seen, and they too.
        cut = "t = " in curve.name
        look = {
            "color": style.score_colour(curve.name),
            "linestyle": dashes if cut else "-",
            "linewidth": 2.4 if cut else 1.2,
        }
        upper.plot(curve.sizes, curve.mean, label=curve.name, **look)
        lower.plot(curve.sizes, 100 * curve.spread, **look)
        ends = curve.mean * (1 - curve.spread), curve.mean * (1 + curve.spread)
        upper.fill_between(curve.sizes, *ends, color=look["color"], alpha=0.3, linewidth=0)


def _same_kernels(other: lab.Run, run: lab.Run, rule: str) -> bool:
    """Whether another run has the very pairs of this one, and under this rule its kernels."""
    if other.identity["arrays"] != run.identity["arrays"]:
        return False
    ours, theirs = (r.settings.bandwidths.get(rule) for r in (run, other))
    if theirs is None or ours.outputs is None or theirs.outputs is None:
        return ours == theirs
    widths = zip((ours.outputs, ours.prompts), (theirs.outputs, theirs.prompts), strict=True)
    return all(math.isclose(a, b, rel_tol=1e-6) for a, b in widths)


def _title(run: lab.Run, rule: str) -> str:
    bandwidths = run.settings.bandwidths[rule]
    if bandwidths.outputs is None:
        return "cosine kernel"
    widths = f"{bandwidths.outputs:.3g} (outputs), {bandwidths.prompts:.3g} (prompts)"
    return f"Gaussian kernel, bandwidths by '{rule}':\n{widths}"


def _caption(runs: Sequence[lab.Run], *, marked: bool) -> str:
    """What data, n, bandwidths, rules and seed are shown."""
    settings = [run.settings for run in runs]
    first = settings[0]
    rules = {name: b for of in settings for name, b in of.bandwidths.items()}
    orders = f"{first.repeats} random orders" if first.repeats > 1 else "one random order"
    parts = [f"{first.data.rstrip('.')}; {orders} of the pairs, seed {runs[0].seed}"]
    if first.repeats > 1 and first.repeated_up_to < max(first.sizes):
        parts[0] += f", one for spectra of more than {first.repeated_up_to:,}"
    if first.repeats > 1:
        parts[0] += ": means, and one standard deviation as bands and below"
    methods = {method for run in runs for c in run.results.values() for method in c.methods}
    if methods != {"exact"}:
        words = f"Spectra of more than {_EXACT_UP_TO:,} pairs are estimated to {first.rtol:g}"
        parts.append(words + ("; circles take all eigenvalues" if marked else ""))
    parts.append(choices.describe(rules))
    return ". ".join(filter(None, parts)) + "."


def variant(options: Options) -> str:
    """'gaussian', 'cosine', or with '-exact' where all eigenvalues are taken."""
    return options.kernel + ("-exact" if options.method == "exact" else "")


# The committed results have more than the default run, which is to take a minute.
_ALL_RULES = f"--rules={','.join(bandwidth.RULES)}"
_FINE = ("--repeated_up_to=12000", "--rtol=0.005")

STUDY = lab.StudyRecord(
    name="convergence",
    version=3,
    question="How many samples do the scores need?",
    reproduces="CV figs 2, 3, 19",
    duration="2 minutes, 4 to 24 as committed",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Curves,
    prepare=prepare,
    cells=cells,
    cost=cost,
    compute=compute,
    table=table,
    draw=draw,
    variant=variant,
    committed=(
        ("--kernel=gaussian", _ALL_RULES, *_FINE),
        ("--kernel=cosine", *_FINE),
        ("--kernel=gaussian", "--method=exact", _ALL_RULES, _FINE[0]),
        ("--kernel=cosine", "--method=exact", _FINE[0]),
        ("--data=captions", "--kernel=gaussian", _ALL_RULES, *_FINE),
        ("--data=captions", "--kernel=cosine", *_FINE),
    ),
    figures=(
        "convergence",
        "convergence_information",
        "convergence_vendi",
        "convergence_full",
        "convergence_captions",
        "convergence_information_captions",
        "convergence_vendi_captions",
    ),
)


if __name__ == "__main__":
    lab.main(STUDY)
