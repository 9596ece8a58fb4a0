"""How many samples the scores need: CV figures 2, 3 and 19 on real embeddings."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import xarray as xr
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import spectra
from condvendi_jax.base import checks, memory
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.conditional_vendi import settling
from experiments.conditional_vendi.settling import over_orders
from experiments.lab import figures, scales, style, tables
from experiments.lab.curves import convergence_curve

_LARGEST = 20_000  # Spectra go up to all pairs, or where there are more, to so many of them.
_RTOL = 0.01  # In the figure, about the width of a line.
_EXACT_UP_TO = 1000  # Up to here all eigenvalues take less time than an estimate.
_SCALED, _PAPER_TRUNCATION = "scaled", 10_000 / 25_000
_ORDER_TWO_POINTS = 40  # Sizes of the order-2 curves, which cost no more than their last point.
_EARLY = (50, 100)  # They begin there.
_PREFIXES = {"conditional": "Conditional-", "information": "Information-", "vendi": ""}
_BOTH = ",".join(scales.KERNELS)
# The committed results have more than the default run, which is to take two minutes.
_ALL_RULES = f"--rules={','.join(bandwidth.RULES)}"
_FINE = ("--repeated_up_to=12000", "--rtol=0.005")
_EMOJI = "--sizes=250,500,1000,2000,4000,5911,7000,11822"
_EXACT = ("--method=exact", "--sizes=2000,4000,7000", "--truncation=4729,200", _FINE[0])
_CAPTIONS = ("--data=captions", "--sizes=250,500,1000,2000,4000,7000,8091")


@dataclasses.dataclass(frozen=True)
class Kernels(lab.Rules):
    """The Gaussian kernel by several rules, the cosine, or one after the other."""

    kernel: str = lab.flag(
        "gaussian", "The kernel of outputs and prompts, or both.", choices=(*scales.KERNELS, _BOTH)
    )
    rules: tuple[str, ...] | None = lab.flag(
        help="How Gaussian bandwidths are chosen: variance (CV), std (RKE), median (median "
        "distance); each is a row of panels. variance if unset.",
        choices=bandwidth.RULES,
    )

    def _choose(self, pairs, rules, seed):
        if self.kernel == "cosine" and self.rules:
            raise ValueError("--rules means nothing with --kernel=cosine.")
        each = [dataclasses.replace(self, kernel=kernel) for kernel in self.kernel.split(",")]
        chosen = [lab.Rules._choose(of_one, pairs, rules, seed) for of_one in each]
        return tuple(itertools.chain(*chosen))


class Convergence(lab.Study):
    """How many samples do the scores need?"""

    name = "convergence"
    version = 3
    tolerance = 5e-3  # Spectra are estimated to half a percent.
    runs = (
        ("--kernel=gaussian", _EMOJI, _ALL_RULES, *_FINE),
        ("--kernel=cosine", _EMOJI, *_FINE),
        ("--kernel=gaussian", _ALL_RULES, *_EXACT),
        ("--kernel=cosine", *_EXACT),
        (*_CAPTIONS, "--kernel=gaussian", _ALL_RULES, *_FINE),
        (*_CAPTIONS, "--kernel=cosine", *_FINE),
    )
    drawings = tuple(
        f"convergence{score}{data}"
        for data in ("", "_captions")
        for score in ("", "_information", "_vendi")
    )

    bandwidths: Kernels = Kernels()
    truncation: tuple[str, ...] = lab.flag(
        (_SCALED, "200"),
        "Eigenvalues kept where truncated; scaled: 0.4 of the largest size, as in CV.",
    )
    sizes: tuple[int, ...] | None = lab.flag(
        help=f"Numbers of pairs at which order 1 is computed; all, at most {_LARGEST:,}, 0.6, "
        "a quarter and its halves if unset. Order 2 always goes up to all pairs."
    )
    repeats: int = lab.flag(3, "Random orders of the pairs.", at_least=1)
    # Larger spectra take most of the time, and random orders of the pairs hardly change them.
    repeated_up_to: int = lab.flag(
        2000, "Above so many pairs, order 1 is of the first random order only.", at_least=0
    )
    method: str = lab.flag(
        "auto",
        "How spectra are computed: by all eigenvalues (exact), or (auto) estimated with 95% "
        f"intervals above n = {_EXACT_UP_TO:,}.",
        choices=("auto", "exact"),
    )
    rtol: float | None = lab.flag(
        help=f"Relative half width of the intervals of estimated scores; {_RTOL:g} if unset.",
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

    def compute(self, state, context, *, rule, repeat):
        """The `entropy` in nats by curve, term and n, for one rule and one order of the pairs.

        Beside it the 95% `interval` of each score, by curve, score, end and n, the `method` of the
        spectra by n, and how many outputs `to_one_prompt` differ. NaN where a curve lacks a size.
        """
        order_key, probe_key = jax.random.split(context.key)
        order = np.asarray(jax.random.permutation(order_key, len(state)))
        curve = functools.partial(
            convergence_curve, state.outputs[order], state.prompts[order], **rule.kernels
        )
        kept = {f"Vendi, t = {int(t):,}": cv.Entropy(truncation=int(t)) for t in self.truncation}
        spectral = {"Vendi": cv.von_neumann, **kept}
        parts: list[xr.Dataset] = []
        for size in self.spectra_of(repeat):
            context.say(f"spectra of {size:,} pairs")
            method = spectra.named(method_of(self.method, size), key=probe_key, rtol=self.rtol)
            results = curve([size], entropies=[*spectral.values()], method=method)
            part = settling.entropies(results, [*spectral], [size])
            intervals = [np.array(result.intervals) for result in results]
            part["interval"] = ("curve", "score", "end", "n"), intervals
            parts.append(part.assign(method=("n", [method.name])))
        context.say("order 2")
        sizes = self.order_two_sizes(repeat)
        (plug_in,), of_two = curve(sizes, entropies=[cv.Entropy(2)]), ["RKE", "RKE, unbiased"]
        last = settling.entropies([plug_in, plug_in.unbiased], of_two, sizes)
        found = xr.merge([xr.concat(parts, "n"), last], join="outer", compat="no_conflicts")
        found = found.assign(to_one_prompt=_to_one_prompt(state, rule.kernels["output_kernel"]))
        return found.sel(curve=[*spectral, *of_two])

    def order_two_sizes(self, repeat: int) -> list[int]:
        """Sizes of equal ratio up to all pairs, and those of the figure."""
        spaced = np.geomspace(self.shown[0], self.n, _ORDER_TWO_POINTS).round().astype(int)
        found = np.union1d(spaced, self.shown).tolist()
        return [size for size in found if repeat == 0 or size <= self.repeated_up_to]

    def costs(self, *, rule, repeat):
        """About the seconds of each step that `compute` says, on two cores."""
        costs = [1e-7 * self.order_two_sizes(repeat)[-1] ** 2]
        for n in reversed(self.spectra_of(repeat)):
            exact = method_of(self.method, n) == "exact"
            costs.insert(0, 1.5 + (1.5e-10 * n**3 if exact else 5e-7 * n**2))
        return costs

    def tables(self, run):
        """Where each curve ends, whether it has settled there, and its spread over the orders."""
        found = over_orders(run.found)
        near = f"within {settling.NEAR:.0%}"
        grid = Table("bandwidths", "score", "last n", "there", near, "largest spread")
        axes = found.rule.values, _PREFIXES, found.curve.values
        for rule, score, curve in itertools.product(*axes):
            line = found.sel(rule=rule, score=score, curve=curve)
            last, spread = line.value.dropna("n")[-1], (line.error / line.value).max().item()
            ends = f"{last.n.item():,}", f"{last.item():.4g}", settling.verdict(line.value)[0]
            spread = "-" if np.isnan(spread) else f"{spread:.2%}"
            grid.add_row(rule, _PREFIXES[score] + curve, *ends, spread)
        yield grid
        order_two = found.isel(curve=found.curve.str.startswith("RKE"), n=found.n.isin(self.shown))
        yield tables.table(order_two, rows=("rule", "score", "curve"), columns="n", error="error")

    @classmethod
    def figures(cls, runs):
        runs = sorted(runs, key=lambda run: "gaussian" not in run.study.bandwidths.kernel)
        exact, drawn = [run for run in runs if run.study.method == "exact"], {}
        for data, score in itertools.product(dict.fromkeys(run.data for run in runs), _PREFIXES):
            own = [run for run in runs if run.data == data]
            shown = [run for run in own if run not in exact] or own
            words = ("convergence", "" if score == "conditional" else score, data)
            drawn["_".join(filter(None, words))] = _figure(shown, score, exact)
        return drawn

    @classmethod
    def facts(cls, runs):
        runs_of = {run.folder.name.removeprefix("convergence-"): run for run in runs}
        over = {name: over_orders(run.found) for name, run in runs_of.items()}
        kernels, names = scales.KERNELS, ("vendi", "scaled", "t200", "rke", "unbiased")

        def line(run, rule, curve, score="conditional"):
            of_curve = over[run].isel(curve=names.index(curve))
            return of_curve.value.sel(rule=rule, score=score).dropna("n")

        def shown(data, sizes, error=None, **place):
            found = xr.concat([over[data + kernel] for kernel in kernels], "rule", join="outer")
            found = found.sel(**place, n=[*sizes, found.n.max()])
            found = found.assign_coords(curve=[c.replace(" = ", "=") for c in found.curve.values])
            rows = [axis for axis in ("rule", "score", "curve") if found[axis].ndim]
            return tables.table(found, rows=rows, columns="n", error=error, digits=3)

        checked = [(runs_of[kernel], runs_of[f"{kernel}-exact"]) for kernel in kernels]
        estimated, exact = zip(*checked, strict=True)
        return {
            "shown": shown,
            "at": lambda *of, n=-1: line(*of).sel(n=n) if n > 0 else line(*of)[-1],
            "start": lambda *of: settling.verdict(line(*of))[1],
            "near": lambda *of: settling.settled_from(line(*of)),
            "held": np.sum([settling.held(*of) for of in checked], axis=0),
            "off": max(settling.deviation(estimated, exact, score) or 0 for score in _PREFIXES),
        }

    def variant(self):
        kernels = self.bandwidths.kernel.replace(",", "-")
        return kernels + ("-exact" if self.method == "exact" else "")


def _to_one_prompt(pairs, kernel):
    """How many outputs to one prompt differ, of any number; NaN where no prompt repeats."""
    if len(np.unique(pairs.prompt_numbers)) == len(pairs):
        return np.nan
    kernels = {"output_kernel": kernel, "prompt_kernel": cv.Indicator()}
    rows = pairs.outputs, pairs.prompt_numbers[:, None]
    return cv.conditional_rke(*rows, **kernels, unbiased=True).item()


def sizes_of(given: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """The sizes of the spectra, ascending.

    By default the largest and 0.6 of it, above the scaled truncation, and its quarter and halves
    of that from 250 on. Just above a truncation, estimates take longer than all eigenvalues.
    """
    largest = min(n, _LARGEST)
    halves = [largest >> k for k in range(2, 9) if largest >> k >= 250]
    usual = (max(size, 2) for size in (largest, 3 * largest // 5, *halves))
    sizes = sorted(set(given or usual))
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


def _figure(runs, score, exact):
    """A row a rule: order 2, unbiased and order 1 in a panel each, with a scale of its own."""
    parts, settings = [over_orders(run.found) for run in runs], [run.study for run in runs]
    names = list(dict.fromkeys(name for part in parts for name in part.curve.values.tolist()))
    found = xr.concat(parts, "rule", join="outer").sel(score=score, curve=names, drop=True)
    groups = [[name] for name in names if name.startswith("RKE")]
    groups.append([name for name in names if name.startswith("Vendi")])
    sizes = sorted({size for study in settings for size in (*study.shown, study.n)})
    last_n, columns, legend = max(sizes), len(groups), {}
    places = list(itertools.product(found.rule.values.tolist(), groups))
    figure, panels = style.panels(len(places), columns=columns, size=(3.5, 2.4), sharex=True)
    to_one = xr.concat([run.found.to_one_prompt.isel(repeat=0) for run in runs], "rule")
    for panel, (rule, group) in zip(panels, places, strict=True):
        if score == "conditional" and group[0].startswith("RKE") and to_one.sel(rule=rule) > 0:
            look = {"color": style.BLACK, "linestyle": ":", "linewidth": 1.2}
            line = panel.axhline(to_one.sel(rule=rule).item(), **look)
            legend["to one prompt, of all its outputs"] = line
        for name, marker, dash in zip(group, style.MARKERS, style.DASHES, strict=False):
            curve = found.sel(rule=rule, curve=name).dropna("n", subset=["value"])
            if not curve.n.size:  # A truncation of another run.
                continue
            score_name, last = _PREFIXES[score] + name, curve.value[-1].item()
            ends = last * (1 - settling.NEAR), last * (1 + settling.NEAR)
            legend["within 2% of the last value"] = panel.axhspan(*ends, color="0.9", zorder=0)
            words, start = settling.verdict(curve.value)
            if start is not None:
                look = {"markersize": 10, "color": style.BLACK, "markerfacecolor": "none"}
                (circle,) = panel.plot(start, curve.value.sel(n=start), "o", **look)
                legend["settled: stays there, and the data have twice this n"] = circle
            part = curve.isel(n=curve.n.isin(sizes))
            look = {"color": style.score_colour(score_name), "linestyle": dash, "marker": marker}
            bars = {"yerr": part.error.fillna(0), "capsize": 3, "elinewidth": 1.4}
            legend[score_name] = panel.errorbar(part.n, part.value, **bars, **look)
            if name == group[0]:
                rule_name = rule if rule in ("cosine", "given") else f"{rule} rule"
                panel.set_title(f"{score_name}, {rule_name}:\n{words}")
        style.log_counts(panel, [n for n in (50, 250, 1000, 4000) if n < last_n / 1.5] + [last_n])
        panel.tick_params(labelbottom=True)
    for panel in panels[::columns]:
        panel.set_ylabel("effective number of modes")
    for panel in panels[-columns:]:
        panel.set_xlabel("sample size n")
    figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=3)
    n, bars = "one random order", ""
    if (orders := max(study.repeats for study in settings)) > 1:
        n = f"means over {orders} random orders"
        bars = "one standard deviation over the orders, which shrinks as n nears all pairs"
    methods = xr.concat([run.found.method for run in runs], "rule", join="outer")
    estimated = methods.isin(("stored", "matrix-free")).any(("rule", "repeat"))
    if estimated.any():
        n += f"; spectra of {methods.n.values[estimated].min():,} pairs or more are estimated"
        if (error := settling.deviation(runs, exact, score)) is not None:
            n += f", within {error:.1%} of all eigenvalues"
    return figures.caption(figure, runs, n=n, bars=bars)
