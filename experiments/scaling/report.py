"""What a saved result says: ratios of pairs, errors, coverage, and whether the targets are met.

    python -m experiments.scaling.report --results=experiments/results/scaling

prints it as Markdown. Nothing here measures anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from experiments import registry
from experiments.lab import Run, store
from experiments.scaling.contests import AGAIN, CONTESTANTS, FRESH
from experiments.scaling.records import Record, records

DEFAULT_PRODUCTS = 448
_TOLERANCE = 0.002  # What the targets of the measure ask for.
_DIGITS = 8  # Of a digest.


class Accuracy(NamedTuple):
    """How near one quantity of one contestant came to its exact value, over the seeds.

    Attributes:
      seeds: how many.
      rms: the root mean square error, relative, of the score (the exponential).
      within: the size of error that 95% of the seeds stay below.
      half_width: the mean of the intervals' half widths, relative to the score.
      coverage: the share of the intervals that held the exact value.
    """

    seeds: int
    rms: float
    within: float
    half_width: float
    coverage: float


def accuracies(record: Record, name: str) -> dict[str, Accuracy]:
    """The accuracy of a contestant by quantity; none where the exact value is missing.

    Quantities are called 'vendi', 'conditional-t200' or 'joint 448': what follows a space says how
    it was computed and has no part in the exact value.
    """
    exact = record.values("exact")
    found = {}
    for quantity, values in record.values(name).items():
        known = exact.get(quantity.partition(" ")[0])
        if known is not None:
            truth, (value, low, high) = known[0, 0], values.T
            errors = np.abs(np.expm1(value - truth))
            found[quantity] = Accuracy(
                seeds=len(values),
                rms=float(np.sqrt(np.mean(errors**2))),
                within=float(np.quantile(errors, 0.95)),
                half_width=float(np.mean(np.expm1((high - low) / 2))),
                coverage=float(np.mean((low <= truth) & (truth <= high))),
            )
    return found


def worst(record: Record) -> dict[str, float]:
    """The worst score by tolerance, by the heading of its column; empty where none was measured.

    The coverage is that of all scores and seeds together: a score has few seeds where a call takes
    long, and its share alone says little.
    """
    found = accuracies(record, "by tolerance")
    scores = [of for quantity, of in found.items() if "-t" not in quantity]
    truncated = [of.within for quantity, of in found.items() if "-t" in quantity]
    if not scores:
        return {}
    return {
        "seeds": scores[0].seeds,
        "error at 95%": max(of.within for of in scores),
        "mean half interval": max(of.half_width for of in scores),
        "truncated: error at 95%": max(truncated, default=np.nan),
        "coverage": float(np.mean([of.coverage for of in found.values()])),
    }


def best_splits(record: Record) -> dict[str, float]:
    """By 'entropy products', the rms error of plain quadrature's best split."""
    best: dict[str, float] = {}
    for quantity, plain in accuracies(record, "plain SLQ").items():
        name = quantity.rpartition(" ")[0]
        best[name] = min(plain.rms, best.get(name, math.inf))
    return best


def plain_over_ours(record: Record) -> float:
    """The rms error of plain quadrature over that of ours, of H(X, T) by the default budget."""
    name = f"joint {DEFAULT_PRODUCTS}"
    plain, ours = best_splits(record).get(name), accuracies(record, "by budget").get(name)
    if plain is None or ours is None:
        return np.nan
    # Ours is exact where its Krylov space holds all of a small matrix.
    return plain / ours.rms if ours.rms > 0 else math.inf


# What is measured of a record, by a detail about it; NaN where it is missing.
_Measure = Callable[[Record], Mapping[str, float]]


def norm_errors(record: Record) -> dict[str, float]:
    """By contestant, the largest relative error of a squared norm against float64."""
    exact = record.values("float64")
    errors = {}
    for name in ("tiles", "library", "16 bandwidths"):
        found = record.values(name)
        both = [(found[q][0, 0], exact[q][0, 0]) for q in found.keys() & exact.keys()]
        errors[name] = max((abs(value / truth - 1) for value, truth in both), default=np.nan)
    return errors


def share_of_peak(record: Record) -> dict[str, float]:
    """n^2 (d_x + d_t) operations over our time, over those of the fastest matrix product."""
    product = record.values("matrix product")
    if not product:
        return {}
    peak = product["operations"][0, 0] / record.calls("matrix product").min()
    useful = record.n**2 * record.measured.dimensions.values.sum()
    return {"": float(useful / record.seconds("tiles") / peak)}


def _ratio(one: str, other: str) -> _Measure:
    return lambda record: {"": record.ratio(one, other)}


def _seconds(name: str) -> _Measure:
    return lambda record: {"": record.seconds(name)}


def _errors(*, truncated: bool) -> _Measure:
    return lambda record: {
        f"{quantity}, {of.seeds} seeds": of.within
        for quantity, of in accuracies(record, "by tolerance").items()
        if ("-t" in quantity) == truncated
    }


def _coverage(record: Record) -> dict[str, float]:
    count = sum(of.seeds for of in accuracies(record, "by tolerance").values())
    return {f"{count} intervals": worst(record).get("coverage", np.nan)}


class _Target(NamedTuple):
    """A bound on what is measured of the records of a part, from n = `smallest` to below `end`."""

    part: str
    smallest: int
    end: float
    measure: _Measure
    sign: str
    bound: float
    unit: str = ""
    data: str | None = None


def _targets(run: Run) -> dict[str, _Target]:
    """The targets of a run by their words."""
    any_n, small, large = (0, math.inf), (500, 4001), (8000, math.inf)
    share = _ratio("stored", "exact")
    # What an interval of 0.2% takes, of each set of real data that is large enough.
    sets = [(name, points.n) for name, points in run.study.points.items() if points.kind == "real"]
    real = {
        f"{name}, {words}, intervals of 0.2%: share of the exact time": _Target(
            "measure", smallest, end, share, "<=", bound, "%", name
        )
        for name, n in sets
        for words, smallest, end, bound in (
            ("n = 4,000", 4000, 4001, 0.6),
            ("n >= 8k", *large, 0.15),
        )
        if n >= smallest
    }
    # What arithmetic says of one H200.
    h200 = {
        f"{what}, n = {n:,}": _Target(part, n, 1.2 * n, _seconds(name), "<=", bound, " s")
        for what, part, name, n, bound in (
            ("Conditional-RKE", "order 2", "tiles", 25_000, 0.015),
            ("Conditional-RKE", "order 2", "tiles", 100_000, 0.25),
            ("Conditional-RKE", "order 2", "tiles", 1_000_000, 25),
            ("three Vendi scores", "measure", "stored", 25_000, 3 * 0.2),
            ("three Vendi scores", "measure", "matrix-free", 100_000, 3 * 2),
        )
        if "H200" in run.study.device
    }
    return {
        "order 2, n >= 20k: useful share of the measured matrix-product peak": _Target(
            "order 2", 20_000, math.inf, share_of_peak, ">=", 0.8, "%"
        ),
        "order 2, n >= 20k: dense torch / ours": _Target(
            "order 2", 20_000, math.inf, _ratio("dense torch", "tiles"), ">=", 3, "x"
        ),
        "order 2, n = 500 ... 4,000: dense JAX / ours": _Target(
            "order 2", *small, _ratio("dense JAX", "library"), ">=", 1, "x"
        ),
        "order 2: relative error against float64": _Target(
            "order 2", *any_n, norm_errors, "<=", 1e-6
        ),
        **{
            f"order 2, n >= 8k: {name} / one evaluation": _Target(
                "order 2", *large, _ratio(name, "tiles"), "<=", bound, "x"
            )
            for name, bound in (
                ("all prefixes", 1.2),
                ("16 bandwidths", 2),
                ("value and gradient", 1.8),
            )
        },
        "exact spectrum, n = 4,000: jnp.linalg.eigvalsh / ours": _Target(
            "exact", 4000, 8000, _ratio("jnp.linalg.eigvalsh", "spectrum"), ">=", 1.7, "x"
        ),
        **{
            f"exact spectrum, n = 500 ... 4,000: {peer} / ours": _Target(
                "exact", *small, _ratio(peer, "spectrum"), ">=", 1, "x"
            )
            for peer in ("jnp.linalg.eigvalsh", "torch.linalg.eigvalsh")
        },
        "Vendi, Conditional- and Information-Vendi: error at 95%": _Target(
            "measure", *any_n, _errors(truncated=False), "<=", 0.002, "%"
        ),
        "truncated, any t: error at 95%": _Target(
            "measure", *any_n, _errors(truncated=True), "<=", 0.003, "%"
        ),
        "intervals of 95%: coverage": _Target("measure", *any_n, _coverage, ">=", 0.9, "%"),
        **real,
        "measure, n >= 14k: share of the exact time": _Target(
            "measure", 14_000, math.inf, share, "<=", 0.1, "%"
        ),
        "measure, n = 8k: share of the exact time": _Target(
            "measure", 8000, 14_000, share, "<=", 0.25, "%"
        ),
        f"rms error at {DEFAULT_PRODUCTS} products, the default budget: plain SLQ / ours": _Target(
            "measure", *any_n, lambda record: {"joint": plain_over_ours(record)}, ">=", 25, "x"
        ),
        "first call of decompose, n = 2,000, beyond the import": _Target(
            "first call", 2000, 2001, _seconds("decompose"), "<=", 3, " s"
        ),
        **{
            f"order 1 with standard errors, n = 1,000: {words} call": _Target(
                "jackknife", 1000, 1001, _seconds(name), "<=", 5, " s"
            )
            for words, name in (("first", "evaluate"), ("second", "evaluate" + AGAIN))
        },
        "cold start: import condvendi_jax / import jax": _Target(
            "cold start", *any_n, _ratio("import condvendi_jax", "import jax"), "<=", 1.2, "x"
        ),
        **h200,
    }


class Row(NamedTuple):
    """A target and what was measured beside it; `met` is 'yes', 'no', or '' where nothing was."""

    what: str
    target: str
    measured: str
    met: str


def rows(run: Run) -> list[Row]:
    """The targets, each beside the worst that was measured."""
    measured = records(run)
    return [_row(what, target, measured, run.study.rtol) for what, target in _targets(run).items()]


def _row(what: str, target: _Target, records: Sequence[Record], rtol: float) -> Row:
    found = [
        (value, ", ".join(filter(None, (record.data, f"n = {record.n:,}", detail))))
        for record in records
        if record.part == target.part and target.smallest <= record.n < target.end
        # Targets of one set are of intervals of 0.2%; wider ones say nothing about them.
        if target.data is None or (target.data == record.data and rtol <= _TOLERANCE)
        for detail, value in target.measure(record).items()
        if not math.isnan(value)
    ]
    bound = f"{target.sign} {_text(target.bound, target.unit)}"
    if not found:
        return Row(what, bound, "not measured", "")
    at_least = target.sign == ">="
    value, where = (min if at_least else max)(found)
    met = value >= target.bound if at_least else value <= target.bound
    of = f"; worst of {len(found)}" if len(found) > 1 else ""
    return Row(what, bound, f"{_text(value, target.unit)} ({where}{of})", "yes" if met else "no")


def _text(value: float, unit: str) -> str:
    """A number with its unit; '' where there is none."""
    return "" if math.isnan(value) else f"{100 * value if unit == '%' else value:.3g}{unit}"


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
    """The targets, the data, the times by n and the accuracy, as Markdown."""
    tables = [_table(Row._fields, rows(run)), _data(run)]
    tables += [_times(part, records(run)) for part in CONTESTANTS if part != "features"]
    tables += [_accuracy(run), _features(run)]
    return "\n\n".join([f"Measured on {machine(run)}.", *filter(None, tables)]) + "\n"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; '' where it has no lines."""
    body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(
        ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *body] if body else []
    )


def _data(run: Run) -> str:
    """What the data are, and the digests that tell whose numbers a row has."""
    lines = []
    for name, points in run.study.points.items():
        widths = f"{points.bandwidths.outputs:.3g}, {points.bandwidths.prompts:.3g}"
        digests = ", ".join(d.rpartition(" ")[2][:_DIGITS] for d in points.digests)
        what = f"{name}: {points.description.rstrip('.')}"
        lines.append((what, f"{points.n:,}", widths, digests))
    return _table(("data", "pairs", "bandwidths", "sha256 of outputs, prompts"), lines)


def _times(part: str, records: Sequence[Record]) -> str:
    """Seconds and memory of the contestants of a part that are there to be timed, side by side."""
    of_part = [record for record in records if record.part == part]
    entries = CONTESTANTS[part].items()
    timed = [n for n, e in entries if e.calls.startswith("rounds") and n != "matrix product"]
    if part in FRESH:
        timed = [key for name in timed for key in (name, name + AGAIN)]
    names = [name for name in timed if any(len(record.calls(name)) for record in of_part)]
    lines = [
        [record.data, f"{record.n:,}", *(_time_and_memory(record, name) for name in names)]
        for record in of_part
        if names
    ]
    return _table([f"{part}: seconds (MiB)", "n", *names], lines)


def _time_and_memory(record: Record, name: str) -> str:
    taken = record.seconds(name)
    return "" if math.isnan(taken) else f"{taken:.3g} ({record.mebibytes(name):,.0f})"


def _accuracy(run: Run) -> str:
    """The accuracy by tolerance against the exact values: a line a cell, its worst score."""
    found = [(record, worst(record)) for record in records(run) if record.part == "measure"]
    found = [(record, of) for record, of in found if of]
    if not found:
        return ""
    lines = [
        (
            record.data,
            f"{record.n:,}",
            *(_text(v, "" if k == "seeds" else "%") for k, v in of.items()),
        )
        for record, of in found
    ]
    return _table(("accuracy, worst score", "n", *found[0][1]), lines)


def _features(run: Run) -> str:
    """Time and memory of features, and how near their scores come to all eigenvalues, where there.

    The error is the root mean square over the seeds, of the worst score.
    """
    lines = []
    names = [name for name in CONTESTANTS["features"] if name != "exact"]
    for record in (record for record in records(run) if record.part == "features"):
        for name in (name for name in names if len(record.calls(name))):
            found = accuracies(record, name).values()
            error = max((of.rms for of in found), default=np.nan)
            width = max((of.half_width for of in found), default=0)
            coverage = float(np.mean([of.coverage for of in found])) if width > 0 else np.nan
            lines.append(
                (
                    record.data,
                    f"{record.n:,}",
                    f"{name}, {run.study.features:,}",
                    f"{record.seconds(name):.3g}",
                    f"{record.mebibytes(name):,.0f}",
                    _text(error, "%"),
                    _text(width or np.nan, "%"),
                    _text(coverage, "%"),
                )
            )
    error = "rms error, worst score"
    heads = ("features", "n", "kind, how many", "seconds", "MiB", error, "mean half interval")
    return _table((*heads, "coverage"), lines)


def main(argv: list[str]) -> None:
    """Prints a saved result."""
    command.no_words(argv[1:])
    print(markdown(store.read_run(flags.FLAGS.results, registry.load("scaling"))), end="")


if __name__ == "__main__":
    flags.DEFINE_string("results", "experiments/results/scaling", "The folder of a run.")
    command.run(main)
