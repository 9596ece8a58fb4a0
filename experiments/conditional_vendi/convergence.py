"""How many samples the scores need: CV figures 2, 3 and 19 on real embeddings."""

import functools
import itertools
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import spectra
from condvendi_jax.base import checks, memory
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.conditional_vendi.settling import (
    SCORES,
    deviation,
    entropies,
    over_orders,
    settled_from,
)
from experiments.lab import figures, style, tables
from experiments.lab.curves import convergence_curve

# Spectra at these sizes and at all pairs, or where there are more, at the last of them.
_SIZES = (250, 500, 1000, 2000, 4000, 7000)
_LARGEST = 20_000
_RTOL = 0.01  # In the figure, about the width of a line.
# Up to here all eigenvalues take less time than an estimate.
_EXACT_UP_TO = 1000
# CV truncates at 10,000 of 25,000 samples.
_PAPER_TRUNCATION = 10_000 / 25_000
_SCALED = "scaled"
# Sizes of the order-2 curves, which cost no more than their last point; from these on.
_ORDER_TWO_POINTS = 40
_EARLY = (50, 100)
_UNBIASED = "RKE, unbiased"
# A curve has settled where it stays this near to its last value.
_NEAR = 0.02
_PREFIXES = {"conditional": "Conditional-", "information": "Information-", "vendi": ""}
# The committed results have more than the default run, which is to take a minute.
_ALL_RULES = f"--rules={','.join(bandwidth.RULES)}"
_FINE = ("--repeated_up_to=12000", "--rtol=0.005")


class Convergence(lab.Study):
    """How many samples do the scores need?"""

    name = "convergence"
    version = 3
    reproduces = "CV figs 2, 3, 19"
    duration = "2 minutes; the committed runs took 4 to 24"
    runs = (
        ("--kernel=gaussian", _ALL_RULES, *_FINE),
        ("--kernel=cosine", *_FINE),
        ("--kernel=gaussian", "--method=exact", _ALL_RULES, _FINE[0]),
        ("--kernel=cosine", "--method=exact", _FINE[0]),
        ("--data=captions", "--kernel=gaussian", _ALL_RULES, *_FINE),
        ("--data=captions", "--kernel=cosine", *_FINE),
    )
    drawings = tuple(
        f"convergence{score}{data}"
        for data in ("", "_captions")
        for score in ("", "_information", "_vendi")
    )

    bandwidths: lab.Rules = lab.Rules()
    truncation: tuple[str, ...] = lab.flag(
        (_SCALED, "200"),
        "Eigenvalues kept by truncated Conditional-Vendi; 'scaled' is 0.4 of the largest size, as "
        "10,000 is of the paper's 25,000.",
    )
    sizes: tuple[int, ...] | None = lab.flag(
        None,
        f"Numbers of pairs at which order 1 is computed; up to all pairs, at most {_LARGEST:,}, if "
        "unset. Order 2 always goes up to all pairs.",
    )
    repeats: int = lab.flag(3, "Random orders of the pairs.", at_least=1)
    # Larger spectra take most of the time, and random orders of the pairs hardly change them.
    repeated_up_to: int = lab.flag(
        4000,
        "Above this number of pairs, order 1 is computed in the first random order only.",
        at_least=0,
    )
    method: str = lab.flag(
        "auto",
        "How spectra are computed: by all eigenvalues (exact), or (auto) estimated with 95% "
        f"intervals above n = {_EXACT_UP_TO:,}.",
        choices=("auto", "exact"),
    )
    rtol: float | None = lab.flag(
        None,
        f"Relative half width of the intervals of estimated scores; {_RTOL:g} if unset.",
        needs={"method": "auto"},
        above=0,
        below=1,
    )
    orders: tuple[float, ...] = lab.resolved((1.0, 2.0))  # Of the untruncated scores.
    n: int = lab.resolved(0)

    def prepare(self, load, seed):
        pairs = load()
        sizes = sizes_of(self.sizes, len(pairs))
        once = sizes[0] == len(pairs) or sizes[0] > self.repeated_up_to
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            truncation=tuple(_truncation(word, sizes[-1]) for word in self.truncation),
            sizes=sizes,
            repeats=1 if once else self.repeats,
            rtol=None if self.method == "exact" else self.rtol or _RTOL,
            n=len(pairs),
        )

    def axes(self):
        return {"rule": self.bandwidths.axis, "repeat": range(self.repeats)}

    def spectra_of(self, repeat: int) -> list[int]:
        """The sizes of the spectra; all pairs, whose order has no meaning, are taken once."""
        sizes = self.sizes or ()
        return [s for s in sizes if repeat == 0 or (s < self.n and s <= self.repeated_up_to)]

    @property
    def shown(self) -> tuple[int, ...]:
        """The sizes of the figure: those of the spectra, and smaller ones of order 2."""
        sizes = self.sizes or (self.n,)
        return (*(size for size in _EARLY if size < sizes[0]), *sizes)

    @property
    def curves(self) -> dict[str, cv.Entropy]:
        """The entropies by the name of their score without prompts."""
        kept = {f"Vendi, t = {int(t):,}": cv.truncated(int(t)) for t in self.truncation}
        return {"Vendi": cv.von_neumann, **kept, "RKE": cv.renyi(2), _UNBIASED: cv.renyi(2)}

    def compute(self, state, context, *, rule, repeat):
        """The entropies of every size for one rule and one random order of the pairs.

        `entropy` in nats by curve, term and n; `interval` at 95% in effective numbers of modes by
        curve, score, end and n, of no width where all eigenvalues were taken; `method` of the
        spectra by n. NaN where a curve lacks a size.
        """
        order_key, probe_key = jax.random.split(context.key)
        order = np.asarray(jax.random.permutation(order_key, len(state)))
        curve = functools.partial(
            convergence_curve, state.outputs[order], state.prompts[order], **rule.kernels
        )
        *spectral, rke, unbiased = self.curves
        parts: list[xr.Dataset] = []
        for size in self.spectra_of(repeat):
            context.say(f"spectra of {size:,} pairs")
            method = spectra.named(method_of(self.method, size), key=probe_key, rtol=self.rtol)
            results = curve([size], entropies=[self.curves[c] for c in spectral], method=method)
            intervals = [np.array(result.intervals) for result in results]
            part = entropies(results, spectral, [size]).assign_coords(score=list(SCORES))
            part["interval"] = ("curve", "score", "end", "n"), intervals
            parts.append(part.assign(method=("n", [method.name])))
        context.say("order 2")
        sizes = self.order_two_sizes(repeat)
        (plug_in,) = curve(sizes, entropies=[self.curves[rke]])
        assert plug_in.unbiased is not None
        last = entropies([plug_in, plug_in.unbiased], [rke, unbiased], sizes)
        found = xr.merge([xr.concat(parts, "n"), last], join="outer", compat="no_conflicts")
        return found.sel(curve=list(self.curves))

    def order_two_sizes(self, repeat: int) -> list[int]:
        """Sizes of equal ratio up to all pairs, and those of the figure."""
        spaced = np.geomspace(self.shown[0], self.n, _ORDER_TWO_POINTS).round().astype(int)
        found = np.union1d(spaced, self.shown).tolist()
        return [size for size in found if repeat == 0 or size <= self.repeated_up_to]

    def tables(self, run):
        """Where each curve ends, from which size on it stays near its end, and its spread."""
        found = over_orders(run.found)
        near = f"within {_NEAR:.0%} from"
        grid = Table("bandwidths", "score", "last n", "there", near, "largest spread")
        axes = found.rule.values, _PREFIXES, found.curve.values
        for rule, score, curve in itertools.product(*axes):
            line = found.sel(rule=rule, score=score, curve=curve)
            last, spread = line.value.dropna("n")[-1], (line.error / line.value).max().item()
            start = settled_from(line.value, _NEAR)
            grid.add_row(
                rule,
                _PREFIXES[score] + curve,
                f"{last.n.item():,}",
                f"{last.item():.4g}",
                "not settled" if start is None else f"{start:,}",
                "-" if np.isnan(spread) else f"{spread:.2%}",
            )
        yield grid
        order_two = found.sel(curve=list(self.curves)[-2:], n=list(self.shown))
        yield tables.table(order_two, rows=("rule", "score", "curve"), columns="n", error="error")

    @classmethod
    def figures(cls, runs):
        runs = sorted(runs, key=lambda run: run.study.bandwidths.kernel != "gaussian")
        exact = [run for run in runs if run.study.method == "exact"]
        drawn = {}
        for data in dict.fromkeys(run.data for run in runs):
            own = [run for run in runs if run.data == data]
            shown = [run for run in own if run not in exact] or own
            for score in _PREFIXES:
                words = ("convergence", "" if score == "conditional" else score, data)
                drawn["_".join(filter(None, words))] = _figure(shown, score, exact)
        return drawn

    def variant(self):
        return self.bandwidths.kernel + ("-exact" if self.method == "exact" else "")


def sizes_of(given: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """The sizes of the spectra, ascending."""
    if given is None:
        return (*(size for size in _SIZES if size < n), min(n, _LARGEST))
    sizes = sorted(set(given))
    if sizes[0] < 2 or sizes[-1] > n:
        raise ValueError(f"--sizes: expected numbers between 2 and n = {n}, received {sizes}.")
    return tuple(sizes)


def _truncation(word: str, largest: int) -> str:
    """How many eigenvalues are kept, where the largest size has `largest`."""
    if word == _SCALED:
        return str(max(1, round(_PAPER_TRUNCATION * largest)))
    if not word.isdecimal():
        raise ValueError(f"--truncation: expected whole numbers or 'scaled', received {word!r}.")
    return str(checks.check_count(int(word), name="--truncation", minimum=1))


def method_of(method: str, n: int) -> str:
    """How a spectrum of this size is computed."""
    if method == "exact" or n <= _EXACT_UP_TO:
        return "exact"
    return "stored" if memory.fits(n, checks.compute_dtype()) else "matrix-free"


def _figure(runs: Sequence[lab.Run], score: str, exact: Sequence[lab.Run]) -> Figure:
    """A panel a rule: means over the orders, and a circle where a curve settles."""
    parts, settings = [over_orders(run.found) for run in runs], [run.study for run in runs]
    names = list(dict.fromkeys(name for study in settings for name in study.curves))
    found = xr.concat(parts, "rule", join="outer").sel(score=score, curve=names, drop=True)
    prefix = _PREFIXES[score]
    found = found.assign_coords(curve=[prefix + name for name in names])
    sizes = sorted({size for study in settings for size in (*study.shown, study.n)})

    def title(_, rule):
        words = []
        for name in (f"{prefix}RKE", f"{prefix}{_UNBIASED}", f"{prefix}Vendi"):
            curve = found.value.sel(rule=rule, curve=name).dropna("n")
            start, last = settled_from(curve, _NEAR), curve.n.values[-1]
            late = f" of {last:,}" if start and start > last / 2 else ""
            settled = f"within {_NEAR:.0%} from {start:,}{late}" if start else "does not settle"
            words.append(f"{name} {settled}")
        return f"{rule}{'' if rule in ('cosine', 'given') else ' rule'}: " + ";\n".join(words)

    def circles(panel, part):
        for curve in found.value.sel(rule=part.rule).transpose("curve", "n"):
            if (start := settled_from(curve, _NEAR)) is not None:
                look = {"color": style.score_colour(curve.curve.item()), "markerfacecolor": "none"}
                panel.plot(start, curve.sel(n=start), "o", markersize=10, **look)
        style.log_axis(panel)
        style.log_counts(panel, ticks(max(sizes)))

    drawn = figures.facets(
        found.sel(n=sizes), x="n", hue="curve", column="rule", error="error", title=title,
        each=circles, x_label="sample size n", size=(3.8 if found.sizes["rule"] > 1 else 6.0, 3.4),
    )  # fmt: skip
    orders = max(study.repeats for study in settings)
    n, bars = "one random order", ""
    if orders > 1:
        n, bars = f"means over {orders} random orders", "one standard deviation over the orders"
    n += f"; circles: within {_NEAR:.0%} of the end from here"
    estimates = [run.found.method.isin(("stored", "matrix-free")) for run in runs]
    estimated = [n for of_run in estimates for n in of_run.n.values[of_run.any(("rule", "repeat"))]]
    if estimated:
        n += f"; spectra of {min(estimated):,} pairs or more are estimated"
        if (error := deviation(runs, exact, score)) is not None:
            n += f", within {error:.1%} of all eigenvalues"
    return figures.caption(drawn, runs, n=n, bars=bars)


def ticks(n: int) -> list[int]:
    """Sizes that are written at the axis: all pairs, and some well below."""
    return [*(size for size in (50, 250, 1000, 4000) if size < n / 1.5), n]
