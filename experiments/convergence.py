"""How many samples the scores need: CV figures 2, 3 and 19 on real embeddings.

The scores of random subsamples against their size n, mean and spread over random orders of the
pairs: Conditional-Vendi, truncated Conditional-Vendi and Conditional-RKE, with Information-* and
the unconditional scores from the same spectra. What settles by a given n depends on the bandwidths:
`--rules=variance,std,median` repeats the study for every rule that chooses them.

    python -m experiments.convergence --kernel=gaussian
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import bandwidth, spectra, validation
from condvendi_jax.entropies import log_scores
from condvendi_jax.grams import _memory as memory
from experiments import lab
from experiments.lab import figures, style

# Spectra at these sizes and at all pairs, or where there are more, at the last of them.
_SIZES = (250, 500, 1000, 2000, 4000, 7000)
_LARGEST = 20_000
# In the figure, about the width of a line.
_RTOL = 0.01
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
_PREFIXES = {"conditional": "Conditional-", "information": "Information-", "vendi": ""}
_TERMS = ("outputs", "prompts", "joint")
SCORES = ("vendi", "conditional", "information")
# The committed results have more than the default run, which is to take a minute.
_ALL_RULES = f"--rules={','.join(bandwidth.RULES)}"
_FINE = ("--repeated_up_to=12000", "--rtol=0.005")


@dataclasses.dataclass(frozen=True)
class Convergence(lab.Study):
    """How many samples do the scores need?"""

    name = "convergence"
    version = 3
    reproduces = "CV figs 2, 3, 19"
    duration = "2 minutes, 4 to 24 as committed"
    runs = (
        ("--kernel=gaussian", _ALL_RULES, *_FINE),
        ("--kernel=cosine", *_FINE),
        ("--kernel=gaussian", "--method=exact", _ALL_RULES, _FINE[0]),
        ("--kernel=cosine", "--method=exact", _FINE[0]),
        ("--data=captions", "--kernel=gaussian", _ALL_RULES, *_FINE),
        ("--data=captions", "--kernel=cosine", *_FINE),
    )
    drawings = (
        "convergence",
        "convergence_information",
        "convergence_vendi",
        "convergence_captions",
        "convergence_information_captions",
        "convergence_vendi_captions",
    )

    bandwidths: lab.Rules = lab.Rules()
    orders: tuple[float, ...] = lab.flag((1.0, 2.0), "Renyi orders of the untruncated scores.")
    truncation: tuple[str, ...] = lab.flag(
        (_SCALED, "200"),
        "Eigenvalues kept by truncated Conditional-Vendi; 'scaled' is 0.4 of the largest size, as "
        "10,000 is of the paper's 25,000.",
    )
    sizes: tuple[int, ...] | None = lab.flag(
        None,
        f"Sizes at which spectra are computed, up to all pairs or {_LARGEST:,} if unset; order 2 "
        "goes on to all pairs regardless.",
    )
    repeats: int = lab.flag(3, "Random orders of the pairs.", at_least=1)
    # Larger spectra take most of the time, and random orders of the pairs hardly change them.
    repeated_up_to: int = lab.flag(
        4000, "Larger sizes are computed in the first random order only."
    )
    method: str = lab.flag(
        "auto",
        "How spectra are computed: all eigenvalues (exact), or estimated with 95% intervals "
        f"(stored, matrix-free); auto takes eigenvalues up to n = {_EXACT_UP_TO:,}.",
        choices=tuple(name for name, of in spectra.BY_NAME.items() if not of.approximates),
    )
    rtol: float | None = lab.flag(
        None,
        f"Half width of the intervals of estimated scores, relatively; {_RTOL:g} if unset.",
        above=0,
        below=1,
    )
    n: int = lab.resolved(0)

    def prepare(self, load, seed):
        """Chooses sizes, truncations and bandwidths by the pairs."""
        orders = tuple(map(validation.check_order, self.orders))
        exact = self.method == "exact"
        if exact and self.rtol is not None:
            raise ValueError("--rtol means nothing with --method=exact, which estimates nothing.")
        pairs = load()
        sizes = sizes_of(self.sizes, len(pairs))
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            orders=orders,
            truncation=tuple(_truncation(word, sizes[-1]) for word in self.truncation),
            sizes=sizes,
            rtol=None if exact else self.rtol or _RTOL,
            n=len(pairs),
        )

    def axes(self):
        """Every rule in every random order."""
        return {"rule": self.bandwidths.axis, "repeat": range(self.repeats)}

    def cost(self, *, rule, repeat):
        """The matrices of the spectra, and one small one for order 2."""
        return _work([*self.spectra_of(repeat), 0])

    def spectra_of(self, repeat: int) -> list[int]:
        """The sizes of the spectra; all pairs, whose order has no meaning, are taken once."""
        sizes = self.sizes or ()
        return [s for s in sizes if repeat == 0 or (s < self.n and s <= self.repeated_up_to)]

    @property
    def curves(self) -> dict[str, cv.Entropy]:
        """The entropies by the name of their score without prompts."""
        named = {1.0: "Vendi", 2.0: "RKE"}
        found = {named.get(o, f"Vendi, order {o:g}"): cv.Entropy(order=o) for o in self.orders}
        kept = {f"Vendi, t = {int(t):,}": cv.truncated(int(t)) for t in self.truncation}
        last = {name: found.pop(name) for name in ("RKE",) if name in found}
        return found | kept | last

    def compute(self, state, context, *, rule, repeat):
        """The entropies of every size for one rule and one random order of the pairs.

        Returns:
          With the axes `curve`, `term` (outputs, prompts, joint) and `n`: `entropy` in nats; with
          `curve`, `score`, `end` and `n`: `interval` at 95% in effective numbers of modes, of no
          width where all eigenvalues were taken; `method`, how the spectra of each size were
          computed. NaN where a curve does not have a size.
        """
        order_key, probe_key = jax.random.split(context.key)
        order = np.asarray(jax.random.permutation(order_key, len(state)))
        curve = functools.partial(
            cv.convergence_curve, state.outputs[order], state.prompts[order], **rule.kernels
        )
        spectral = {name: e for name, e in self.curves.items() if name != "RKE"}
        sizes, whole = self.spectra_of(repeat), self.cost(rule=rule, repeat=repeat)
        entropies, intervals, methods = [], [], []
        for index, size in enumerate(sizes):
            context.say(f"spectra of {size:,} pairs", _work(sizes[:index]) / whole)
            method = spectra.named(method_of(self.method, size), key=probe_key, rtol=self.rtol)
            results = curve([size], entropies=list(spectral.values()), method=method)
            entropies.append([_entropies(result) for result in results])
            intervals.append([np.array(result.intervals) for result in results])
            methods.append(method.name)
        found = xr.Dataset(
            {
                "entropy": (("curve", "term", "n"), np.concatenate(entropies, axis=-1)),
                "interval": (("curve", "score", "end", "n"), np.concatenate(intervals, axis=-1)),
                "method": (("n",), methods),
            },
            {"curve": list(spectral), "term": list(_TERMS), "score": list(SCORES), "n": sizes},
        )
        order_two = self.order_two_sizes(repeat)
        if not order_two:
            return found
        context.say("order 2", _work(sizes) / whole)
        (result,) = curve(order_two, entropies=[cv.renyi(2)])
        rke = xr.Dataset(
            {"entropy": (("curve", "term", "n"), [_entropies(result)])},
            {"curve": ["RKE"], "term": list(_TERMS), "n": order_two},
        )
        return xr.merge([found, rke], join="outer", compat="no_conflicts").sel(
            curve=list(self.curves)
        )

    def order_two_sizes(self, repeat: int) -> list[int]:
        """Sizes of equal ratio up to all pairs, and those of the spectra; none without order 2."""
        if 2 not in self.orders or not self.sizes:
            return []
        spaced = np.geomspace(self.sizes[0], self.n, _ORDER_TWO_POINTS)
        found = sorted({*spaced.round().astype(int).tolist(), *self.sizes})
        return [size for size in found if repeat == 0 or size <= self.repeated_up_to]

    def tables(self, run):
        """Where each curve ends, from which size on it stays near its end, and its spread."""
        found = run.found
        means, spreads = over_orders(found)
        near = f"within {_NEAR:.0%} from"
        grid = Table("bandwidths", "score", "last n", "there", near, "largest spread")
        for rule, score, curve in itertools.product(
            found.rule.values, _PREFIXES, found.curve.values
        ):
            place = {"rule": rule, "score": score, "curve": curve}
            mean, spread = means.sel(place).dropna("n"), (spreads / means).sel(place).max().item()
            start = settled_from(mean)
            grid.add_row(
                rule,
                _PREFIXES[score] + curve,
                f"{mean.n.values[-1]:,}",
                f"{mean.values[-1]:.4g}",
                "not settled" if start is None else f"{start:,}",
                "-" if np.isnan(spread) else f"{spread:.2%}",
            )
        yield grid

    @classmethod
    def figures(cls, runs):
        """A figure for each score of each data set (CV figs 2, 3, 19); a panel a rule."""
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
        """'gaussian', 'cosine', or with '-exact' where all eigenvalues are taken."""
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
    return str(validation.check_count(int(word), name="--truncation", minimum=1))


def _work(sizes: Sequence[int]) -> float:
    return float(sum(size**2 + _STARTING**2 for size in sizes))


def method_of(method: str, n: int) -> str:
    """How a spectrum of this size is computed."""
    if method != "auto":
        return method
    if n <= _EXACT_UP_TO:
        return "exact"
    return "stored" if memory.fits(n, validation.compute_dtype()) else "matrix-free"


def _entropies(result: cv.inference.ConvergenceCurve) -> np.ndarray:
    """H(X), H(T) and H(X, T) of each size, `[3, m]`."""
    return np.stack([result.entropy_outputs, result.entropy_prompts, result.entropy_joint])


def scores_of(found: xr.Dataset) -> xr.DataArray:
    """The scores out of the three entropies, in effective numbers of modes."""
    terms = [found.entropy.astype(float).sel(term=term, drop=True) for term in _TERMS]
    logs = log_scores(*terms)
    scores = xr.concat([np.exp(getattr(logs, score)) for score in SCORES], "score")
    return scores.assign_coords(score=list(SCORES))


def over_orders(found: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """The mean of each score over the random orders that have a size, and its deviation.

    The standard deviation is NaN where one order has the size, and at all pairs.
    """
    scores = scores_of(found)
    everything = scores.n == scores.n.max()
    return scores.mean("repeat"), scores.std("repeat", ddof=1).where(~everything)


def settled_from(curve: xr.DataArray) -> int | None:
    """The size from which a curve stays near its end; None where it does not."""
    curve = curve.dropna("n")
    if not curve.size:  # A curve of another run.
        return None
    return cv.inference.settled_from(curve.n.values.tolist(), curve.values, tolerance=_NEAR)


def _settling(curve: xr.DataArray) -> str:
    """From which size a curve stays near its end, in words; of how many if that is late."""
    start = settled_from(curve)
    if start is None:
        return "does not settle"
    last = curve.dropna("n").n.values[-1]
    return f"within {_NEAR:.0%} from {start:,}" + (f" of {last:,}" if start > last / 2 else "")


def _figure(runs: Sequence[lab.Run], score: str, exact: Sequence[lab.Run]) -> Figure:
    """A panel a rule: means over the orders, and a circle where a curve settles."""
    averaged = [over_orders(run.found) for run in runs]
    parts = [xr.Dataset({"value": mean, "error": spread}) for mean, spread in averaged]
    names = dict.fromkeys(name for part in parts for name in part.curve.values)
    found = xr.concat(parts, "rule", join="outer").sel(score=score, curve=list(names), drop=True)
    prefix, settings = _PREFIXES[score], [run.study for run in runs]
    found = found.assign_coords(curve=[prefix + name for name in names])
    sizes = sorted({size for study in settings for size in (*study.sizes, study.n)})

    def start(rule, curve):
        return settled_from(found.value.sel(rule=rule, curve=curve))

    def title(_, rule):
        names = [prefix + name for name in ("RKE", "Vendi") if prefix + name in found.curve]
        words = [f"{name} {_settling(found.value.sel(rule=rule, curve=name))}" for name in names]
        return f"{rule}{'' if rule in ('cosine', 'given') else ' rule'}: " + ";\n".join(words)

    def circles(panel, part):
        for curve in part.curve.values:
            if (n := start(part.rule, curve)) is not None:
                height = found.value.sel(rule=part.rule, curve=curve, n=n)
                look = {"color": style.score_colour(curve), "markerfacecolor": "none"}
                panel.plot(n, height, "o", markersize=10, **look)
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
    words = f"circles: within {_NEAR:.0%} of the end from here"
    estimated = [n for run in runs for n in _estimated(run.found)]
    if estimated:
        words += f"; spectra of {min(estimated):,} pairs or more are estimated"
        if (error := deviation(runs, exact, score)) is not None:
            words += f", within {error:.1%} of all eigenvalues"
    return figures.caption(drawn, runs, n=f"{n}; {words}", bars=bars)


def _estimated(found: xr.Dataset) -> list[int]:
    """The sizes whose spectra are estimated in some cell."""
    is_estimate = found.method.isin(["stored", "matrix-free"]).any(("rule", "repeat"))
    return found.n.values[is_estimate].tolist()


def deviation(runs: Sequence[lab.Run], exact: Sequence[lab.Run], score: str) -> float | None:
    """The largest relative error of estimated scores, where other runs know the eigenvalues."""
    errors = []
    for run, known in itertools.product(runs, exact):
        if (run.identity["arrays"], run.seed) != (known.identity["arrays"], known.seed):
            continue
        for rule in set(run.study.bandwidths.axis) & set(known.study.bandwidths.axis):
            parts = (r.found.sel(rule=rule.coordinate) for r in (run, known))
            one, other = (scores_of(part).sel(score=score) for part in parts)
            errors += np.abs(np.ravel(one / other - 1)).tolist()
    return max((error for error in errors if np.isfinite(error)), default=None)


def ticks(n: int) -> list[int]:
    """Sizes that are written at the axis: all pairs, and some well below."""
    return [*(size for size in (250, 1000, 4000) if size < n / 1.5), n]


if __name__ == "__main__":
    lab.main(Convergence)
