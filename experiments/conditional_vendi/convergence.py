"""How many samples the scores need: CV figures 2, 3 and 19 on real embeddings."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import xarray as xr
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import spectra
from condvendi_jax.base import checks, memory
from condvendi_jax.data import bandwidth
from condvendi_jax.entropies import Decomposition, log_scores
from experiments import lab
from experiments.lab import curves, figures, scales, style, tables

_LARGEST = 20_000  # Spectra go up to all pairs, or where there are more, to so many of them.
_RTOL = 0.01  # In the figure, about the width of a line.
_EXACT_UP_TO = 1000  # Up to here all eigenvalues take less time than an estimate.
_SCALED, _PAPER_TRUNCATION = "scaled", 10_000 / 25_000
_ORDER_TWO_POINTS = 40  # Sizes of the order-2 curves, which cost no more than their last point.
_EARLY = (50, 100)  # They begin there.
_PREFIXES = {"conditional": "Conditional-", "information": "Information-", "vendi": ""}
_WHOLE = {"RKE": "plug-in", "Vendi": "all eigenvalues"}
_CLOSE = 3  # Times n: nearer circles have their numbers at the outer sides.
NEAR = 0.02  # Of its last value: how near a curve that has settled stays.
SCORES = ("vendi", "conditional", "information")
TERMS = ("outputs", "prompts", "joint")
# The committed results have more than the default run, which is to take two minutes.
_ALL_RULES = f"--rules={','.join(bandwidth.RULES)}"
_FINE = ("--repeated_up_to=12000", "--rtol=0.005")
_EMOJI = "--sizes=250,500,1000,2000,4000,5911,7000,11822"
_EXACT = ("--method=exact", "--sizes=2000,4000,7000", "--truncation=4729,200", _FINE[0])
_CAPTIONS = ("--data=caption_pairs", "--sizes=250,1000,4000,8000,12500,15000,25000")
_CAPTIONS += ("--repeated_up_to=4000",)


class Convergence(lab.Study):
    """How many samples do the scores need?"""

    version = 3
    tolerance = 5e-3  # Spectra are estimated to half a percent.
    runs = (
        ("--kernel=gaussian", _EMOJI, _ALL_RULES, *_FINE),
        ("--kernel=cosine", _EMOJI, *_FINE),
        ("--kernel=gaussian", _ALL_RULES, *_EXACT),
        ("--kernel=cosine", *_EXACT),
        (*_CAPTIONS, "--kernel=gaussian"),
        (*_CAPTIONS, "--kernel=cosine"),
    )
    control = "Every n is a random part of one set, and the unbiased scores do not depend on n."
    grows = ("n",)

    bandwidths: lab.Rules = lab.Rules()
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
        pairs = cv.Pairs(state.outputs[order], state.prompts[order], **rule.kernels)
        kept = {f"Vendi, t = {int(t):,}": cv.Entropy(truncation=int(t)) for t in self.truncation}
        spectral = {"Vendi": cv.von_neumann, **kept}
        parts: list[xr.Dataset] = []
        for size in self.spectra_of(repeat):
            context.say(f"spectra of {size:,} pairs")
            method = spectra.named(method_of(self.method, size), key=probe_key, rtol=self.rtol)
            fitted = [entropy.fitted(size) for entropy in spectral.values()]
            computed = spectra.compute(pairs.rows(slice(size)), fitted, method)
            results = [Decomposition.of(*of, n=size) for of in zip(computed, fitted, strict=True)]
            values = np.array([of.entropies for of in results])[..., None]
            part = _entropies(values, [*spectral], [size])
            intervals = [np.array(of.intervals)[..., None] for of in results]
            part["interval"] = ("curve", "score", "end", "n"), intervals
            parts.append(part.assign(method=("n", [method.name])))
        context.say("order 2")
        sizes = self.order_two_sizes(repeat)
        of_two = ["RKE", "RKE, unbiased"]
        last = _entropies(curves.order_two_curves(pairs, sizes), of_two, sizes)
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
        exact = {n: method_of(self.method, n) == "exact" for n in self.spectra_of(repeat)}
        of_spectra = [1.5 + (1.5e-10 * n**3 if of else 5e-7 * n**2) for n, of in exact.items()]
        return [*of_spectra, 1e-7 * self.order_two_sizes(repeat)[-1] ** 2]

    def tables(self, run):
        """Where each curve ends, whether samples settle, and their deviation."""
        found = over_orders(run.found)
        heads = "bandwidths", "score", "last n", "there", f"within {NEAR:.0%}"
        grid = Table(*heads, "deviation at n = 1,000")
        axes = found.rule.values, _PREFIXES, found.curve.values
        for rule, score, curve in itertools.product(*axes):
            line = found.sel(rule=rule, score=score, curve=curve)
            last = line.dropna("n", subset=["value"]).isel(n=-1)
            ends = f"{last.n.item():,}", f"{last.value.item():.4g}", verdict(line)[0]
            spread = (last.error / last.value * (last.n / 1000) ** 0.5).item()
            spread = "-" if np.isnan(spread) else f"{spread:.2%}"
            grid.add_row(rule, _PREFIXES[score] + curve, *ends, spread)
        yield grid
        order_two = found.isel(curve=found.curve.str.startswith("RKE"), n=found.n.isin(self.shown))
        yield tables.table(order_two, rows=("rule", "score", "curve"), columns="n", error="error")

    @classmethod
    def figures(cls, runs):
        runs = sorted(runs, key=lambda run: "gaussian" not in run.study.bandwidths.kernel)
        drawn = {}
        for data in dict.fromkeys(run.data for run in runs):
            own = [run for run in runs if run.data == data]
            shown = [run for run in own if run.study.method != "exact"] or own
            drawn["_".join(filter(None, ("convergence", data)))] = _figure(shown)
        return drawn

    @classmethod
    def facts(cls, runs):
        runs_of = {run.folder.name.removeprefix("convergence-"): run for run in runs}
        over = {name: over_orders(run.found) for name, run in runs_of.items()}
        kernels, names = scales.KERNELS, ("vendi", "scaled", "t200", "rke", "unbiased")

        def line(run, rule, curve, score="conditional"):
            of_curve = over[run].isel(curve=names.index(curve))
            return of_curve.sel(rule=rule, score=score).dropna("n", subset=["value"])

        def shown(data, sizes, error=None, **place):
            found = xr.concat([over[data + kernel] for kernel in kernels], "rule", join="outer")
            found = found.sel(**place, n=[*sizes, found.n.max()])
            found = found.assign_coords(curve=[c.replace(" = ", "=") for c in found.curve.values])
            rows = [axis for axis in ("rule", "score", "curve") if found[axis].ndim]
            return tables.table(found, rows=rows, columns="n", error=error, digits=3)

        checked = [(runs_of[kernel], runs_of[f"{kernel}-exact"]) for kernel in kernels]
        errors = [deviation(*of, score) for of, score in itertools.product(checked, _PREFIXES)]
        return {
            "shown": shown,
            "at": lambda *of, n=None: line(*of).value.sel(n=n or line(*of).n[-1]),
            "start": lambda *of: verdict(line(*of))[1],
            "near": lambda *of: samples_settle(line(*of)),
            "held": np.sum([held(*of) for of in checked], axis=0),
            "off": max(error or 0 for error in errors),
        }

    def variant(self):
        kernels = self.bandwidths.kernel.replace(",", "-")
        return kernels + ("-exact" if self.method == "exact" else "")


def _to_one_prompt(pairs, kernel):
    """How many outputs to one prompt differ, of any number; NaN where few prompts repeat."""
    if 2 * len(np.unique(pairs.prompt_numbers)) > len(pairs):
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


def _entropies(values: Any, names: list[str], sizes: list[int]) -> xr.Dataset:
    """H(X), H(T) and H(X, T) by curve and size, `entropy` in nats; with the names of the scores."""
    labels = {"curve": names, "term": list(TERMS), "n": sizes}
    along = {"entropy": (tuple(labels), np.array(values))}
    return xr.Dataset(along, labels | {"score": list(SCORES)})


def scores_of(found: xr.Dataset) -> xr.DataArray:
    """The scores out of the three entropies, in effective numbers of modes."""
    logs = log_scores(*(found.entropy.astype(float).sel(term=t, drop=True) for t in TERMS))
    scores = xr.concat([np.exp(getattr(logs, score)) for score in SCORES], "score")
    return scores.assign_coords(score=list(SCORES))


def over_orders(found: xr.Dataset) -> xr.Dataset:
    """The mean of each score over the `orders` that have a size, and the `error` of one sample.

    Few orders say little of one size, so the deviation is one constant for all sizes, over √n.
    """
    scores = scores_of(found)
    mean, orders, n = scores.mean("repeat"), scores.count("repeat"), scores.n
    axes = [["repeat", "n"], ["n"]]
    constant = xr.apply_ufunc(_pooled, scores / mean - 1, n, input_core_dims=axes, vectorize=True)
    return xr.Dataset({"value": mean, "error": mean * (constant / n) ** 0.5, "orders": orders})


def _pooled(away: np.ndarray, n: np.ndarray) -> float:
    """n times the variance of a sample, from distances `[orders, n]` to the mean over the orders.

    Samples of an order overlap, but each d further of N pairs are new: what they add to n times the
    distance has the variance (d - d²/N) times the constant.
    """
    if len(away) < 2 or not (there := np.isfinite(away).all(axis=0)).any():
        return np.nan
    further, added = (np.diff(of[..., there], prepend=0) for of in (n, n * away))
    return np.mean(np.sum(added**2, axis=0) / (len(away) - 1) / (further - further**2 / n[-1]))


def samples_settle(curve: xr.Dataset, near: float = NEAR) -> int | None:
    """The least size from which single samples stay near the last value; None where none do.

    Two deviations of a sample are added to the distance of the mean of `orders` samples, as far as
    that is beyond the mean's own error.
    """
    curve = curve.dropna("n", subset=["value"])
    last, error = curve.value[-1], curve.error.fillna(np.inf)
    away = np.maximum((curve.value - last) ** 2 - error**2 / curve.orders, 0) ** 0.5
    near_end = (away + 2 * error <= near * last).values
    first = near_end.size - np.argmin(near_end[::-1]) if not near_end.all() else 0
    return int(curve.n.values[first]) if first < curve.n.size - 1 else None


def verdict(curve: xr.Dataset, near: float = NEAR) -> tuple[str, int | None]:
    """Whether single samples settle, in words, and from which size on; None where they do not.

    They do if they stay near the last value from a size on that the data have at least twice.
    """
    start = samples_settle(curve, near)
    if curve.error.isnull().all():
        return "has one order", None
    if start is None:
        return "does not settle", None
    if 2 * start > curve.value.dropna("n").n.max():
        return f"may settle at n = {start:,}", None
    return f"settles at n = {start:,}", start


def held(run: lab.Run, known: lab.Run) -> tuple[int, int]:
    """How many intervals of estimated scores hold those of all eigenvalues, and how many are."""
    low, high = (run.found.interval.isel(end=end) for end in range(2))
    values = scores_of(known.found).where(run.found.method == "stored").where(low.notnull())
    return int(((low <= values) & (values <= high)).sum()), int(values.count())


def deviation(run: lab.Run, known: lab.Run, score: str) -> float | None:
    """The largest relative error of estimated scores; None without eigenvalues of the same."""
    one, other = ((of.identity["arrays"], of.seed) for of in (run, known))
    # To three digits: others come from rounding.
    widths = [set(of.study.bandwidths.widths.split(", ")) for of in (run, known)]
    rules = [words.split()[0] for words in widths[0] & widths[1]]
    if one != other or not rules:
        return None
    ratio = scores_of(run.found) / scores_of(known.found)  # At the sizes of both.
    return abs(ratio.sel(score=score, rule=rules) - 1).max().item()


def _figure(runs):
    """A row a kernel, by its first rule: the curves of order 2, beside them those of order 1."""

    def first_rule(run):
        of = dataclasses.replace(run.study.bandwidths, axis=run.study.bandwidths.axis[:1])
        return dataclasses.replace(run, study=dataclasses.replace(run.study, bandwidths=of))

    runs = list(map(first_rule, runs))
    parts = [over_orders(run.found) for run in runs]
    found: Any = xr.concat(parts, "rule", join="outer").sel(score="conditional", drop=True)
    to_one = xr.concat([run.found.to_one_prompt.isel(repeat=0) for run in runs], "rule")
    rules, study = [run.study.bandwidths.axis[0].coordinate for run in runs], runs[0].study
    places = list(itertools.product(rules, _WHOLE))
    figure, panels = style.panels(
        len(places), columns=2, size=(3.45, 2.3), sharex=True, sharey="row"
    )
    for panel, (rule, order) in zip(panels, places, strict=True):
        settled: dict[int, float] = {}
        names = [name for name in found.curve.values if name.startswith(order)]
        for number, name in enumerate(names):
            curve = found.sel(rule=rule, curve=name).dropna("n", subset=["value"])
            last, (_, start) = curve.value[-1].item(), verdict(curve)
            panel.axhspan(last * (1 - NEAR), last * (1 + NEAR), color="0.88", zorder=0)
            part = curve.sel(n=curve.n.isin((*study.shown, study.n)))
            look = style.look(number, style.score_colour("Conditional-" + name))
            look |= {"linestyle": style.DASHES[number], "elinewidth": 0.8}
            look["label"] = name.partition(", ")[2] or _WHOLE[order]
            panel.errorbar(part.n, part.value, 2 * part.error.fillna(0), **look)
            if start is not None:
                settled[start] = curve.value.sel(n=start).item()
                look = {"markersize": 10, "color": style.BLACK, "markerfacecolor": "none"}
                panel.plot(start, settled[start], "o", **look)
        close = len(settled) == 2 and max(settled) < _CLOSE * min(settled)
        sides = ("right", "left") if close else ("center",) * len(settled)
        for point, side in zip(sorted(settled.items()), sides, strict=True):
            style.above(panel, f"{point[0]:,}", point, 6, side)
        value = to_one.sel(rule=rule).item()
        if order == "RKE" and value > 0:
            style.known(panel, value, f"outputs to one prompt: {value:.2f}", below=True)
        style.log_counts(panel, [*(n for n in (50, 250, 1000, 4000) if n < study.n / 2.9), study.n])
        rule_name = rule if rule in ("cosine", "given") else f"{rule} rule"
        panel.set_title(f"Conditional-{order}, {rule_name}")
        panel.tick_params(labelbottom=True)
    for panel in panels[::2]:
        panel.set_ylim(0, 1.15 * panel.get_ylim()[1])
        panel.set_ylabel("effective modes")
    for panel in panels[-2:]:
        panel.set_xlabel("sample size n")
    style.label_lines(*panels)
    said, names = [], {"RKE, unbiased": "Unbiased Conditional-RKE"}
    for name, words in (names | {"Vendi": "full Conditional-Vendi"}).items():
        verdicts = [verdict(found.sel(rule=rule, curve=name))[0] for rule in rules]
        each = " and ".join(dict.fromkeys(verdicts)).replace("and settles at", "and")
        said.append(f"{words} {each}")
    style.headline(figure, ", ".join(said))
    bars = "two deviations of a sample; grey: end ± 2%; circle: settled"
    return figures.caption(figure, runs, bars=bars)
