"""What a saved result says: ratios of pairs, errors, coverage, and whether the targets are met.

    python -m experiments.scaling.report --results=experiments/results/scaling

prints it as Markdown. Nothing here measures anything.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
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
_SMALL, _SMALL_END = 500, 4001
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


class _Found(NamedTuple):
    value: float
    where: str


def _cells(run: Run, part: str, smallest: int = 0, end: float = math.inf) -> Iterator[Record]:
    return (r for r in records(run) if r.part == part and smallest <= r.n < end)


def _where(record: Record, detail: str = "") -> str:
    return f"{record.data}, n = {record.n:,}" + (f", {detail}" if detail else "")


def _each(records: Iterator[Record], measure: Callable[[Record], float | None]) -> list[_Found]:
    values = [(measure(record), record) for record in records]
    return [_Found(value, _where(record)) for value, record in values if value is not None]


def peak(record: Record) -> float | None:
    """Operations a second of the fastest matrix product."""
    if "matrix product" not in record.results:
        return None
    product = record.results["matrix product"]
    return product["values"][0]["operations"] / min(product["seconds"])


def share_of_peak(record: Record) -> float | None:
    """n^2 (d_x + d_t) operations over our time, over the peak."""
    limit, taken = peak(record), seconds(record, "tiles")
    if limit is None or taken is None:
        return None
    return record.n**2 * sum(record.dimensions) / taken / limit


def _errors(
    run: Run, kept: Callable[[str], bool], measure: Callable[[Accuracy], float]
) -> list[_Found]:
    """A measure of the accuracy of every score by tolerance, for the names that are kept."""
    found = []
    for record in _cells(run, "measure"):
        for quantity in filter(kept, quantities(record, "by tolerance")):
            of_quantity = accuracy(record, "by tolerance", quantity)
            if of_quantity:
                where = _where(record, f"{quantity}, {len(of_quantity.errors)} seeds")
                found.append(_Found(measure(of_quantity), where))
    return found


def _pooled_coverage(run: Run) -> list[_Found]:
    """The share of the intervals that held, of all scores and seeds of a cell together.

    A score has few seeds where a call takes long, and its share alone says little.
    """
    found = []
    for record in _cells(run, "measure"):
        covered = covered_by_tolerance(record)
        if covered.size:
            found.append(_Found(float(covered.mean()), _where(record, f"{covered.size} intervals")))
    return found


def covered_by_tolerance(record: Record) -> np.ndarray:
    """Whether each interval of every score and seed held the exact value."""
    names = quantities(record, "by tolerance")
    found = [accuracy(record, "by tolerance", name) for name in names]
    return np.concatenate([np.zeros(0, bool), *(a.covered for a in found if a)])


def _row(
    what: str,
    sign: str,
    bound: float,
    found: Sequence[_Found],
    text: Callable[[float], str] = "{:.3g}".format,
) -> Row:
    """The worst of what was found beside its bound."""
    target = f"{sign} {text(bound)}"
    if not found:
        return Row(what, target, "not measured", None)
    worst = (min if sign == ">=" else max)(found, key=lambda f: f.value)
    met = worst.value >= bound if sign == ">=" else worst.value <= bound
    of = f"; worst of {len(found)}" if len(found) > 1 else ""
    return Row(what, target, f"{text(worst.value)} ({worst.where}{of})", met)


def _percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def _multiple(value: float) -> str:
    return f"{value:.3g}x"


def _seconds_text(value: float) -> str:
    return f"{value:.3g} s"


def rows(run: Run) -> list[Row]:
    """The targets, each beside the worst that was measured."""

    def of(part: str, one: str, other: str, smallest: int = 0) -> list[_Found]:
        return _each(_cells(run, part, smallest), lambda r: ratio(r, one, other))

    def share_of_exact(smallest: int, end: float) -> list[_Found]:
        records = _cells(run, "measure", smallest, end)
        return _each(records, lambda r: ratio(r, "stored", "exact"))

    def at_small_n(part: str, one: str, other: str) -> list[_Found]:
        records = _cells(run, part, _SMALL, _SMALL_END)
        return _each(records, lambda r: ratio(r, one, other))

    def time_of(part: str, name: str, n: int) -> list[_Found]:
        return _each(_cells(run, part, n, n + 1), lambda r: seconds(r, name))

    def equal_products() -> list[_Found]:
        return [
            _Found(value, _where(record, quantity))
            for record in _cells(run, "measure")
            for quantity, value in plain_over_ours(record).items()
            if quantity == f"joint {DEFAULT_PRODUCTS}"
        ]

    large = 20_000
    exact_4k = _cells(run, "exact", 4000, 8000)
    found = [
        _row(
            "order 2, n >= 20k: useful share of the measured matrix-product peak",
            ">=",
            0.8,
            _each(_cells(run, "order 2", large), share_of_peak),
            _percent,
        ),
        _row(
            "order 2, n >= 20k: dense torch / ours",
            ">=",
            3,
            of("order 2", "dense torch", "tiles", large),
            _multiple,
        ),
        _row(
            "order 2, n = 500 ... 4,000: dense JAX / ours",
            ">=",
            1,
            at_small_n("order 2", "dense JAX", "library"),
            _multiple,
        ),
        _row(
            "order 2: relative error against float64",
            "<=",
            1e-6,
            [
                found
                for name in ("tiles", "library", "16 bandwidths")
                for found in _each(_cells(run, "order 2"), lambda r, name=name: norm_error(r, name))
            ],
        ),
        *(
            _row(f"order 2, n >= 8k: {name} / one evaluation", "<=", bound, found, _multiple)
            for name, bound, found in (
                (name, bound, of("order 2", name, "tiles", 8000))
                for name, bound in (
                    ("all prefixes", 1.2),
                    ("16 bandwidths", 2),
                    ("value and gradient", 1.8),
                )
            )
        ),
        _row(
            "exact spectrum, n = 4,000: jnp.linalg.eigvalsh / ours",
            ">=",
            1.7,
            _each(exact_4k, lambda r: ratio(r, "jnp.linalg.eigvalsh", "spectrum")),
            _multiple,
        ),
        *(
            _row(
                f"exact spectrum, n = 500 ... 4,000: {peer} / ours",
                ">=",
                1,
                at_small_n("exact", peer, "spectrum"),
                _multiple,
            )
            for peer in ("jnp.linalg.eigvalsh", "torch.linalg.eigvalsh")
        ),
        _row(
            "Vendi, Conditional- and Information-Vendi: error at 95%",
            "<=",
            0.002,
            _errors(run, lambda q: "-t" not in q, lambda a: a.within),
            _percent,
        ),
        _row(
            "truncated, any t: error at 95%",
            "<=",
            0.003,
            _errors(run, lambda q: "-t" in q, lambda a: a.within),
            _percent,
        ),
        _row("intervals of 95%: coverage", ">=", 0.9, _pooled_coverage(run), _percent),
        *_real(run),
        _row(
            "measure, n >= 14k: share of the exact time",
            "<=",
            0.1,
            share_of_exact(14_000, np.inf),
            _percent,
        ),
        _row(
            "measure, n = 8k: share of the exact time",
            "<=",
            0.25,
            share_of_exact(8000, 14_000),
            _percent,
        ),
        _row(
            f"rms error at {DEFAULT_PRODUCTS} products, the default budget: plain SLQ / ours",
            ">=",
            25,
            equal_products(),
            _multiple,
        ),
        _row(
            "first call of decompose, n = 2,000, beyond the import",
            "<=",
            3,
            time_of("first call", "decompose", 2000),
            _seconds_text,
        ),
        *(
            _row(
                f"order 1 with standard errors, n = 1,000: {words} call",
                "<=",
                5,
                time_of("jackknife", name, 1000),
                _seconds_text,
            )
            for words, name in (("first", "evaluate"), ("second", "evaluate" + contests.AGAIN))
        ),
        _row(
            "cold start: import condvendi_jax / import jax",
            "<=",
            1.2,
            of("cold start", "import condvendi_jax", "import jax"),
            _multiple,
        ),
    ]
    return found + (_h200(run) if "H200" in run.study.device else [])


def _real(run: Run) -> list[Row]:
    """What an interval of 0.2% on real data takes, a row a data set and size.

    Of a run at another tolerance they say nothing.
    """
    found = []
    for name, points in run.study.points.items():
        if points.kind != "real":
            continue
        for words, bound, smallest, end in (
            ("n = 4,000", 0.6, 4000, 4001),
            ("n >= 8k", 0.15, 8000, math.inf),
        ):
            if points.n < smallest:
                continue
            records = [r for r in _cells(run, "measure", smallest, end) if r.data == name]
            if run.study.rtol > _TOLERANCE:
                records = []
            what = f"{name}, {words}, intervals of {_percent(_TOLERANCE)}: share of the exact time"
            shares = _each(iter(records), lambda r: ratio(r, "stored", "exact"))
            found.append(_row(what, "<=", bound, shares, _percent))
    return found


def _h200(run: Run) -> list[Row]:
    """What arithmetic says of one H200."""

    def time_at(part: str, name: str, n: int) -> list[_Found]:
        return _each(_cells(run, part, n, 1.2 * n), lambda r: seconds(r, name))

    targets = (
        ("Conditional-RKE", "order 2", "tiles", 25_000, 0.015),
        ("Conditional-RKE", "order 2", "tiles", 100_000, 0.25),
        ("Conditional-RKE", "order 2", "tiles", 1_000_000, 25),
        ("three Vendi scores", "measure", "stored", 25_000, 3 * 0.2),
        ("three Vendi scores", "measure", "matrix-free", 100_000, 3 * 2),
    )
    return [
        _row(f"{what}, n = {n:,}", "<=", bound, time_at(part, name, n), _seconds_text)
        for what, part, name, n, bound in targets
    ]


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
    """The targets, and the times by n, as Markdown."""
    lines = [f"Measured on {machine(run)}.", "", "| what | target | measured | met |"]
    lines.append("|---|---|---|---|")
    lines += [f"| {r.what} | {r.target} | {r.measured} | {word(r.met)} |" for r in rows(run)]
    lines += _data_table(run)
    for part in _TIMED:
        records = list(_cells(run, part))
        found = {name for record in records for name in record.results}
        names = [name for name in _TIMED[part] if name in found]
        if not names:
            continue
        lines += ["", f"| {part}: seconds (MiB) | n | " + " | ".join(names) + " |"]
        lines.append("|---" * (len(names) + 2) + "|")
        for record in records:
            cells = [_time_and_memory(record, name) for name in names]
            lines.append(f"| {record.data} | {record.n:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines + _accuracy_table(run) + _features_table(run)) + "\n"


def _data_table(run: Run) -> list[str]:
    """What the data are, and the digests that tell whose numbers a row has."""
    lines = ["", "| data | pairs | bandwidths | sha256 of outputs, prompts |", "|---" * 4 + "|"]
    for name, points in run.study.points.items():
        widths = f"{points.bandwidths.outputs:.3g}, {points.bandwidths.prompts:.3g}"
        digests = ", ".join(d.rpartition(" ")[2][:_DIGITS] for d in points.digests)
        what = f"{name}: {points.description.rstrip('.')}"
        lines.append(f"| {what} | {points.n:,} | {widths} | {digests} |")
    return lines


def _features_table(run: Run) -> list[str]:
    """Time and memory of features, and how near their scores come to all eigenvalues, where there.

    The error is the root mean square over the seeds, of the worst score.
    """
    lines = []
    for record in _cells(run, "features"):
        for name in contests.CONTESTANTS["features"]:
            taken = seconds(record, name)
            if taken is None or name == "exact":
                continue
            cells = (record.data, f"{record.n:,}", f"{name}, {run.study.features:,}")
            numbers = [f"{taken:.3g}", f"{mebibytes(record, name):,.0f}", "", "", ""]
            found = [accuracy(record, name, quantity) for quantity in quantities(record, name)]
            known = [a for a in found if a is not None]
            if known:
                numbers[2] = _percent(max(a.rms for a in known))
                widest = max(float(np.mean(a.half_widths)) for a in known)
                if widest > 0:
                    coverage = float(np.mean([a.coverage for a in known]))
                    numbers[3:] = [_percent(widest), f"{100 * coverage:.0f}%"]
            lines.append("| " + " | ".join((*cells, *numbers)) + " |")
    if not lines:
        return []
    head = (
        "| features | n | kind, how many | seconds | MiB | rms error, worst score "
        "| mean half interval | coverage |"
    )
    return ["", head, "|---" * 8 + "|", *lines]


def _accuracy_table(run: Run) -> list[str]:
    """The accuracy by tolerance against the exact values: a line a cell, its worst score."""
    lines = []
    for record in _cells(run, "measure"):
        names = quantities(record, "by tolerance")
        found = {name: accuracy(record, "by tolerance", name) for name in names}
        whole = [a for q, a in found.items() if a and "-t" not in q]
        cut = [a for q, a in found.items() if a and "-t" in q]
        if whole and cut:
            numbers = [
                f"{len(whole[0].errors)}",
                _percent(max(a.within for a in whole)),
                _percent(max(float(np.mean(a.half_widths)) for a in whole)),
                _percent(max(a.within for a in cut)),
                _percent(float(covered_by_tolerance(record).mean())),
            ]
            of = f"| {record.data} | {record.n:,} | "
            lines.append(of + " | ".join(numbers) + " |")
    if not lines:
        return []
    head = (
        "| accuracy, worst score | n | seeds | error at 95% | mean half interval "
        "| truncated: error at 95% | coverage |"
    )
    return ["", head, "|---" * 7 + "|", *lines]


def word(met: bool | None) -> str:
    """Whether a target is met, where it was measured."""
    return {True: "yes", False: "no", None: ""}[met]


def _time_and_memory(record: Record, name: str) -> str:
    taken = seconds(record, name)
    if taken is None:
        return ""
    return f"{taken:.3g} ({mebibytes(record, name):,.0f})"


def main(argv: list[str]) -> None:
    """Prints a saved result."""
    command.no_words(argv[1:])
    print(markdown(store.read_run(flags.FLAGS.results, registry.load("scaling"))), end="")


if __name__ == "__main__":
    flags.DEFINE_string("results", "experiments/results/scaling", "The folder of a run.")
    command.run(main)
