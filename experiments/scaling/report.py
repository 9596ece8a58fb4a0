"""What a saved result says: ratios of pairs, errors, coverage, and whether the targets are met.

    python -m experiments.scaling.report --results=experiments/results/scaling

prints it as Markdown. Nothing here measures anything.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from experiments import registry
from experiments.lab import Run, store
from experiments.scaling import contests
from experiments.scaling.records import Record

DEFAULT_PRODUCTS = 448
_TOLERANCE = 0.002  # What the targets of the measure ask for.
_DIGITS = 8  # Of a digest.
# Whose times stand side by side; who is called once a seed is there for the accuracy.
_TIMED = {
    part: [n for n, e in entries.items() if not e.seeds and not e.once and n != "matrix product"]
    for part, entries in contests.CONTESTANTS.items()
    if part != "features"
}
_TIMED |= {
    part: [name for one in _TIMED[part] for name in (one, one + contests.AGAIN)]
    for part in ("first call", "jackknife")
}


def records(run: Run) -> list[Record]:
    """What each cell of a run measured."""
    return [Record.of(cell, measured) for cell, measured in run.results.items()]


def seconds(record: Record, name: str) -> float | None:
    """The median time of a call after the first, or of the first where there is no other."""
    if name not in record.results:
        return None
    taken = record.results[name]["seconds"]
    return statistics.median(taken[1:] or taken)


def mebibytes(record: Record, name: str) -> float | None:
    """The memory that the calls took at their peak, beyond data and runtime, in MiB."""
    if name not in record.results:
        return None
    return record.results[name]["memory_bytes"] / 2**20


def ratio(record: Record, one: str, other: str) -> float | None:
    """The median over the rounds that both took part in of one's time over the other's.

    The first round warms up. Where one of them was not called again, its first call was long
    enough to count, and stands beside the median of the other.
    """
    of_one, of_other = seconds(record, one), seconds(record, other)
    if of_one is None or of_other is None:
        return None
    calls = (record.results[name]["seconds"][1:] for name in (one, other))
    ratios = [a / b for a, b in zip(*calls, strict=False)]
    return statistics.median(ratios) if ratios else of_one / of_other


def norm_error(record: Record, name: str) -> float | None:
    """The largest relative error of a squared norm or of a Vendi score against float64."""
    if name not in record.results or "float64" not in record.results:
        return None
    exact = record.results["float64"]["values"][0]
    found = record.results[name]["values"][0]
    errors = []
    for quantity in set(exact) & set(found):
        if isinstance(exact[quantity], list):  # An entropy and its interval, in nats.
            errors.append(abs(np.expm1(found[quantity][0] - exact[quantity][0])))
        else:
            errors.append(abs(found[quantity] / exact[quantity] - 1))
    return float(max(errors)) if errors else None


class Accuracy(NamedTuple):
    """How near one quantity of one contestant came to its exact value, over the seeds.

    Attributes:
      errors: `[seeds]`, relative, of the score (the exponential).
      half_widths: `[seeds]`, relative to the score, of the intervals.
      covered: `[seeds]`, whether the interval held the exact value.
    """

    errors: np.ndarray
    half_widths: np.ndarray
    covered: np.ndarray

    @property
    def rms(self) -> float:
        """The root mean square error."""
        return float(np.sqrt(np.mean(np.square(self.errors))))

    @property
    def coverage(self) -> float:
        """The share of the intervals that held the exact value."""
        return float(np.mean(self.covered))

    @property
    def within(self) -> float:
        """The size of error that 95% of the seeds stay below."""
        return float(np.quantile(np.abs(self.errors), 0.95))


def accuracy(record: Record, name: str, quantity: str) -> Accuracy | None:
    """The accuracy of `quantity` by a contestant; None where either side is missing.

    Args:
      record: a cell of the measure part.
      name: the contestant.
      quantity: such as 'vendi', 'conditional-t200' or 'joint 448'; what follows a space says how
        it was come by and has no part in the exact value.
    """
    if name not in record.results or "exact" not in record.results:
        return None
    exact = record.results["exact"]["values"][0].get(quantity.partition(" ")[0])
    found = [v[quantity] for v in record.results[name]["values"] if quantity in v]
    if exact is None or not found:
        return None
    value, low, high = np.array(found, float).T
    return Accuracy(
        errors=np.expm1(value - exact[0]),
        half_widths=np.expm1((high - low) / 2),
        covered=(low <= exact[0]) & (exact[0] <= high),
    )


def quantities(record: Record, name: str) -> list[str]:
    """What a contestant gave at every call."""
    if name not in record.results:
        return []
    return list(record.results[name]["values"][0])


def plain_over_ours(record: Record) -> dict[str, float]:
    """By 'entropy products', rms error of plain quadrature's best split over that of ours."""
    found: dict[str, list[float]] = {}
    for quantity in quantities(record, "plain SLQ"):
        plain = accuracy(record, "plain SLQ", quantity)
        ours = accuracy(record, "by budget", quantity.rpartition(" ")[0])
        if plain and ours:
            # Ours is exact where its Krylov space holds all of a small matrix.
            times = plain.rms / ours.rms if ours.rms > 0 else math.inf
            found.setdefault(quantity.rpartition(" ")[0], []).append(times)
    return {quantity: min(ratios) for quantity, ratios in found.items()}


class Row(NamedTuple):
    """A target and what was measured beside it."""

    what: str
    target: str
    measured: str
    met: bool | None


# What a record gives for a target: a number with what it is of, or nothing.
_Measure = Callable[[Record], Sequence[tuple[float, str]]]


class _Target(NamedTuple):
    """A bound, and the cells and the measure that it is about.

    Attributes:
      what: in words.
      sign, bound: at least ('>=') or at most ('<=') this.
      text: the unit: how a number is written.
      part: of the benchmark.
      measure: what is compared with the bound.
      sizes: the smallest n, and the n above all of them.
      data: the data set; any where None.
    """

    what: str
    sign: str
    bound: float
    text: Callable[[float], str]
    part: str
    measure: _Measure
    sizes: tuple[float, float] = (0, math.inf)
    data: str | None = None

    def row(self, run: Run) -> Row:
        """The worst of what was measured beside the bound."""
        found = [
            (value, ", ".join(filter(None, (f"{r.data}, n = {r.n:,}", detail))))
            for r in _cells(run, self.part, self.sizes)
            if self.data in (None, r.data)
            for value, detail in self.measure(r)
        ]
        target = f"{self.sign} {self.text(self.bound)}"
        if not found:
            return Row(self.what, target, "not measured", None)
        at_least = self.sign == ">="
        value, where = (min if at_least else max)(found)
        met = value >= self.bound if at_least else value <= self.bound
        of = f"; worst of {len(found)}" if len(found) > 1 else ""
        return Row(self.what, target, f"{self.text(value)} ({where}{of})", met)


def _cells(run: Run, part: str, sizes: tuple[float, float] = (0, math.inf)) -> Iterator[Record]:
    return (r for r in records(run) if r.part == part and sizes[0] <= r.n < sizes[1])


def _percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def _multiple(value: float) -> str:
    return f"{value:.3g}x"


def _seconds_text(value: float) -> str:
    return f"{value:.3g} s"


def _one(measure: Callable[[Record], float | None]) -> _Measure:
    """A number for each record that has it."""
    return lambda record: [(v, "") for v in (measure(record),) if v is not None]


def _over(one: str, other: str) -> _Measure:
    """The time of one over that of another."""
    return _one(lambda record: ratio(record, one, other))


def _time(name: str) -> _Measure:
    return _one(lambda record: seconds(record, name))


def share_of_peak(record: Record) -> float | None:
    """n^2 (d_x + d_t) operations over our time, over those of the fastest matrix product."""
    taken = seconds(record, "tiles")
    if "matrix product" not in record.results or taken is None:
        return None
    product = record.results["matrix product"]
    peak = product["values"][0]["operations"] / min(product["seconds"])
    return record.n**2 * sum(record.dimensions) / taken / peak


def _norm_errors(record: Record) -> list[tuple[float, str]]:
    found = [norm_error(record, name) for name in ("tiles", "library", "16 bandwidths")]
    return [(error, "") for error in found if error is not None]


def _errors(truncated: bool) -> _Measure:
    """The error at 95% of every score by tolerance, truncated or not."""

    def measure(record: Record) -> list[tuple[float, str]]:
        return [
            (of.within, f"{quantity}, {len(of.errors)} seeds")
            for quantity, of in _by_tolerance(record).items()
            if ("-t" in quantity) == truncated
        ]

    return measure


def _by_tolerance(record: Record) -> dict[str, Accuracy]:
    names = quantities(record, "by tolerance")
    found = {name: accuracy(record, "by tolerance", name) for name in names}
    return {name: of for name, of in found.items() if of is not None}


def _coverage(record: Record) -> list[tuple[float, str]]:
    """The share of the intervals that held, of all scores and seeds of a cell together.

    A score has few seeds where a call takes long, and its share alone says little.
    """
    covered = [held for of in _by_tolerance(record).values() for held in of.covered]
    return [(float(np.mean(covered)), f"{len(covered)} intervals")] if covered else []


def _equal_products(record: Record) -> list[tuple[float, str]]:
    name = f"joint {DEFAULT_PRODUCTS}"
    return [(times, of) for of, times in plain_over_ours(record).items() if of == name]


_SMALL, _LARGE = (500, 4001), (20_000, math.inf)
_TARGETS = (
    _Target(
        "order 2, n >= 20k: useful share of the measured matrix-product peak",
        ">=", 0.8, _percent, "order 2", _one(share_of_peak), _LARGE,
    ),
    _Target(
        "order 2, n >= 20k: dense torch / ours",
        ">=", 3, _multiple, "order 2", _over("dense torch", "tiles"), _LARGE,
    ),
    _Target(
        "order 2, n = 500 ... 4,000: dense JAX / ours",
        ">=", 1, _multiple, "order 2", _over("dense JAX", "library"), _SMALL,
    ),
    _Target(
        "order 2: relative error against float64",
        "<=", 1e-6, "{:.3g}".format, "order 2", _norm_errors,
    ),
    *(
        _Target(
            f"order 2, n >= 8k: {name} / one evaluation",
            "<=", bound, _multiple, "order 2", _over(name, "tiles"), (8000, math.inf),
        )
        for name, bound in (
            ("all prefixes", 1.2), ("16 bandwidths", 2), ("value and gradient", 1.8),
        )
    ),
    _Target(
        "exact spectrum, n = 4,000: jnp.linalg.eigvalsh / ours",
        ">=", 1.7, _multiple, "exact", _over("jnp.linalg.eigvalsh", "spectrum"), (4000, 8000),
    ),
    *(
        _Target(
            f"exact spectrum, n = 500 ... 4,000: {peer} / ours",
            ">=", 1, _multiple, "exact", _over(peer, "spectrum"), _SMALL,
        )
        for peer in ("jnp.linalg.eigvalsh", "torch.linalg.eigvalsh")
    ),
    _Target(
        "Vendi, Conditional- and Information-Vendi: error at 95%",
        "<=", _TOLERANCE, _percent, "measure", _errors(truncated=False),
    ),
    _Target(
        "truncated, any t: error at 95%",
        "<=", 0.003, _percent, "measure", _errors(truncated=True),
    ),
    _Target("intervals of 95%: coverage", ">=", 0.9, _percent, "measure", _coverage),
)  # fmt: skip
_AFTER_REAL = (
    _Target(
        "measure, n >= 14k: share of the exact time",
        "<=", 0.1, _percent, "measure", _over("stored", "exact"), (14_000, math.inf),
    ),
    _Target(
        "measure, n = 8k: share of the exact time",
        "<=", 0.25, _percent, "measure", _over("stored", "exact"), (8000, 14_000),
    ),
    _Target(
        f"rms error at {DEFAULT_PRODUCTS} products, the default budget: plain SLQ / ours",
        ">=", 25, _multiple, "measure", _equal_products,
    ),
    _Target(
        "first call of decompose, n = 2,000, beyond the import",
        "<=", 3, _seconds_text, "first call", _time("decompose"), (2000, 2001),
    ),
    *(
        _Target(
            f"order 1 with standard errors, n = 1,000: {words} call",
            "<=", 5, _seconds_text, "jackknife", _time(name), (1000, 1001),
        )
        for words, name in (("first", "evaluate"), ("second", "evaluate" + contests.AGAIN))
    ),
    _Target(
        "cold start: import condvendi_jax / import jax",
        "<=", 1.2, _multiple, "cold start", _over("import condvendi_jax", "import jax"),
    ),
)  # fmt: skip
# What arithmetic says of one H200, in seconds.
_H200 = tuple(
    _Target(
        f"{what}, n = {n:,}", "<=", bound, _seconds_text, part, _time(name), (n, 1.2 * n)
    )
    for what, part, name, n, bound in (
        ("Conditional-RKE", "order 2", "tiles", 25_000, 0.015),
        ("Conditional-RKE", "order 2", "tiles", 100_000, 0.25),
        ("Conditional-RKE", "order 2", "tiles", 1_000_000, 25),
        ("three Vendi scores", "measure", "stored", 25_000, 3 * 0.2),
        ("three Vendi scores", "measure", "matrix-free", 100_000, 3 * 2),
    )
)  # fmt: skip


def rows(run: Run) -> list[Row]:
    """The targets, each beside the worst that was measured."""
    targets = [*_TARGETS, *_real(run), *_AFTER_REAL]
    return [t.row(run) for t in [*targets, *(_H200 if "H200" in run.study.device else ())]]


def _real(run: Run) -> list[_Target]:
    """What an interval of 0.2% on real data takes, for every data set and size.

    A run at a wider tolerance measures nothing of this.
    """
    tight = run.study.rtol <= _TOLERANCE
    sizes = (("n = 4,000", 0.6, (4000, 4001)), ("n >= 8k", 0.15, (8000, math.inf)))
    return [
        _Target(
            f"{name}, {words}, intervals of {_percent(_TOLERANCE)}: share of the exact time",
            "<=", bound, _percent, "measure",
            _over("stored", "exact") if tight else lambda record: [], of_n, name,
        )
        for name, points in run.study.points.items()
        for words, bound, of_n in sizes
        if points.kind == "real" and points.n >= of_n[0]
    ]  # fmt: skip


def machine(run: Run) -> str:
    """The machine's kind, the versions and the dates, in one line."""
    origins = list(run.provenance.values())
    versions = origins[0]["versions"] | run.study.versions
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    dates = sorted({origin["date"][:10] for origin in origins})
    return (
        f"{run.study.device}, {run.study.cores} processor cores, {origins[0]['platform']}, "
        f"{origins[0]['dtype']}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}; {words}"
    )


def markdown(run: Run) -> str:
    """The targets, the data, the times by n, and the accuracy, as Markdown."""
    of_targets = [(*row[:3], word(row.met)) for row in rows(run)]
    tables = [
        _table(("what", "target", "measured", "met"), of_targets),
        _table(("data", "pairs", "bandwidths", "sha256 of outputs, prompts"), _data(run)),
    ]
    for part, timed in _TIMED.items():
        of_part = list(_cells(run, part))
        names = [name for name in timed if any(name in r.results for r in of_part)]
        if names:
            times = [
                (r.data, f"{r.n:,}", *(_time_and_memory(r, name) for name in names))
                for r in of_part
            ]
            tables.append(_table((f"{part}: seconds (MiB)", "n", *names), times))
    head = ("accuracy, worst score", "n", "seeds", "error at 95%", "mean half interval")
    more = ("truncated: error at 95%", "coverage")
    tables.append(_table((*head, *more), _accuracies(run)))
    head = ("features", "n", "kind, how many", "seconds", "MiB", "rms error, worst score")
    tables.append(_table((*head, "mean half interval", "coverage"), _features(run)))
    return "\n\n".join([f"Measured on {machine(run)}.", *filter(None, tables)]) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of words as Markdown; nothing where there are none."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines] if lines else [])


def _data(run: Run) -> Iterator[tuple[str, ...]]:
    """What the data are, and the digests that tell whose numbers a row has."""
    for name, points in run.study.points.items():
        widths = f"{points.bandwidths.outputs:.3g}, {points.bandwidths.prompts:.3g}"
        digests = ", ".join(d.rpartition(" ")[2][:_DIGITS] for d in points.digests)
        yield f"{name}: {points.description.rstrip('.')}", f"{points.n:,}", widths, digests


def _features(run: Run) -> Iterator[tuple[str, ...]]:
    """Time and memory of features, and how near their scores come to all eigenvalues, where there.

    The error is the root mean square over the seeds, of the worst score.
    """
    for record in _cells(run, "features"):
        for name in contests.CONTESTANTS["features"]:
            taken = seconds(record, name)
            if taken is None or name == "exact":
                continue
            of_scores = (accuracy(record, name, q) for q in quantities(record, name))
            known = [a for a in of_scores if a is not None]
            error = _percent(max(a.rms for a in known)) if known else ""
            widest = max((float(np.mean(a.half_widths)) for a in known), default=0)
            coverage = f"{100 * np.mean([a.coverage for a in known]):.0f}%" if widest > 0 else ""
            yield (
                record.data, f"{record.n:,}", f"{name}, {run.study.features:,}", f"{taken:.3g}",
                f"{mebibytes(record, name):,.0f}", error, _percent(widest) if widest > 0 else "",
                coverage,
            )  # fmt: skip


def _accuracies(run: Run) -> Iterator[tuple[str, ...]]:
    """The accuracy by tolerance against the exact values: a line a cell, its worst score."""
    for record in _cells(run, "measure"):
        found = _by_tolerance(record)
        whole = [a for q, a in found.items() if "-t" not in q]
        cut = [a for q, a in found.items() if "-t" in q]
        if whole and cut:
            half = max(float(np.mean(a.half_widths)) for a in whole)
            numbers = (max(a.within for a in whole), half, max(a.within for a in cut))
            coverage = _coverage(record)[0][0]
            seeds = f"{len(whole[0].errors)}"
            yield record.data, f"{record.n:,}", seeds, *map(_percent, (*numbers, coverage))


def word(met: bool | None) -> str:
    """Whether a target is met, where it was measured."""
    return {True: "yes", False: "no", None: ""}[met]


def _time_and_memory(record: Record, name: str) -> str:
    taken = seconds(record, name)
    return "" if taken is None else f"{taken:.3g} ({mebibytes(record, name):,.0f})"


def main(argv: list[str]) -> None:
    """Prints a saved result."""
    command.no_words(argv[1:])
    print(markdown(store.read_run(flags.FLAGS.results, registry.load("scaling"))), end="")


if __name__ == "__main__":
    flags.DEFINE_string("results", "experiments/results/scaling", "The folder of a run.")
    command.run(main)
