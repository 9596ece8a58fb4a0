"""What a saved result says: ratios of pairs, errors, coverage, and whether the targets are met.

    python -m experiments.scaling.report --results=experiments/results/scaling

prints it as Markdown. Nothing here measures anything.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from absl import flags

from condvendi_jax.cli import command
from experiments.cost.scaling.contests import AGAIN, CONTESTANTS, FRESH
from experiments.cost.scaling.points import Points
from experiments.cost.scaling.records import Record, records
from experiments.lab import Run, registry, store

DEFAULT_PRODUCTS = 448
_DIGITS = 8  # Of a digest.


def accuracy(record: Record, name: str) -> xr.Dataset:
    """How near a contestant came to the exact values over the seeds, along `quantity`.

    Quantities are called 'vendi', 'conditional-t200' or 'joint 448': what follows a space says how
    it was computed and has no part in the exact value. Those without one are left out.

    Returns:
      `seeds`, how many; `rms` and `within`, the relative error of the score (the exponential) as
      root mean square and as what 95% of the seeds stay below; `half_width`, the mean of the
      intervals', relative to the score; `coverage`, the share that held the exact value.
    """
    exact, found = record.first("exact"), record.values(name)
    exact_of = {q: q.partition(" ")[0] for q in found.quantity.values.tolist()}
    known = [q for q, of in exact_of.items() if of in exact.quantity]
    truth = exact.sel(quantity=[exact_of[q] for q in known]).drop_vars("quantity")
    value, low, high = found.sel(quantity=known).transpose("end", ...)
    errors = abs(np.expm1(value - truth))
    held = (low <= truth) & (truth <= high)
    return xr.Dataset(
        {
            "seeds": value.count("call"),
            "rms": np.sqrt((errors**2).mean("call")),
            "within": errors.reduce(np.nanquantile, "call", q=0.95),
            "half_width": np.expm1((high - low) / 2).mean("call"),
            "coverage": held.where(value.notnull()).mean("call"),
        }
    )


def worst(record: Record) -> dict[str, float]:
    """The worst score by tolerance, by the heading of its column; empty where none was measured.

    The coverage is that of all scores and seeds together: a score has few seeds where a call takes
    long, and its share alone says little.
    """
    found = accuracy(record, "by tolerance")
    if not found.quantity.size:
        return {}
    truncated = np.array(["-t" in quantity for quantity in found.quantity.values.tolist()])
    whole, cut = (found.isel(quantity=chosen) for chosen in (~truncated, truncated))
    return {
        "seeds": whole.seeds[0].item(),
        "error at 95%": whole.within.max().item(),
        "mean half interval": whole.half_width.max().item(),
        "truncated: error at 95%": _largest(cut.within),
        "coverage": found.coverage.mean().item(),
    }


def ours_by_budget(record: Record) -> dict[str, float]:
    """By 'joint products', the rms error of ours."""
    return accuracy(record, "by budget").rms.to_series().to_dict()


def best_splits(record: Record) -> dict[str, float]:
    """By 'joint products', the rms error of plain quadrature's best split."""
    errors = accuracy(record, "plain SLQ").rms.to_series()
    return errors.groupby(lambda quantity: quantity.rpartition(" ")[0], sort=False).min().to_dict()


def plain_over_ours(record: Record) -> float:
    """The rms error of plain quadrature over that of ours, of H(X, T) by the default budget."""
    name = f"joint {DEFAULT_PRODUCTS}"
    plain, ours = (of.get(name, np.nan) for of in (best_splits(record), ours_by_budget(record)))
    # Ours is exact where its Krylov space holds all of a small matrix.
    return plain / ours if ours else math.inf


def norm_error(record: Record) -> float:
    """The largest relative error of our squared norms against float64."""
    exact = record.first("float64")
    ours = [record.first(name) / exact for name in ("tiles", "library", "16 bandwidths")]
    return max((abs(ratio - 1) for of in ours for ratio in of.values.tolist()), default=np.nan)


def share_of_peak(record: Record) -> float:
    """n^2 (d_x + d_t) operations over our time, over those of the fastest matrix product."""
    product, times = record.first("matrix product"), record.calls("matrix product")
    if not product.size:
        return np.nan
    useful = record.n**2 * record.measured.dimensions.values.sum()
    return float(useful / record.seconds("tiles") / (product[0] / times.min()))


class _Target(NamedTuple):
    """A bound on `what`: a name of `_MEASURES`, a column of `worst`, a contestant, or a ratio."""

    part: str
    sizes: tuple[float, float]
    what: str
    sign: str
    bound: float
    unit: str = "x"
    data: str = ""

    def words(self) -> str:
        """Part, data and n, and what is measured."""
        least, most = self.sizes
        n = f"n >= {least:,}" if most == math.inf else f"n = {least:,} ... {most:,}"
        n = f"n = {least:,}" if most == least else n if least else ""
        return ", ".join(filter(None, (self.part, self.data, n))) + f": {self.what}"

    def measure(self, record: Record) -> float:
        """What is measured of a record; NaN where it is missing."""
        if self.what in _MEASURES:
            return _MEASURES[self.what](record)
        one, _, other = self.what.partition(" / ")
        times = record.ratio(one, other) if other else record.seconds(one)
        return worst(record).get(self.what, times)


_SPLITS = f"rms error at {DEFAULT_PRODUCTS} products, plain SLQ / ours"
_MEASURES = {
    "share of the peak": share_of_peak,
    "relative error against float64": norm_error,
    _SPLITS: plain_over_ours,
}
_ANY, _SMALL, _LARGE, _HUGE = (0, math.inf), (500, 4000), (8000, math.inf), (20_000, math.inf)
_TARGETS = (
    _Target("order 2", _HUGE, "share of the peak", ">=", 0.8, "%"),
    _Target("order 2", _HUGE, "dense torch / tiles", ">=", 3),
    _Target("order 2", _SMALL, "dense JAX / library", ">=", 1),
    _Target("order 2", _ANY, "relative error against float64", "<=", 1e-6, ""),
    _Target("order 2", _LARGE, "all prefixes / tiles", "<=", 1.2),
    _Target("order 2", _LARGE, "16 bandwidths / tiles", "<=", 2),
    _Target("order 2", _LARGE, "value and gradient / tiles", "<=", 1.8),
    _Target("exact", (4000, 4000), "jnp.linalg.eigvalsh / spectrum", ">=", 1.7),
    _Target("exact", _SMALL, "jnp.linalg.eigvalsh / spectrum", ">=", 1),
    _Target("exact", _SMALL, "torch.linalg.eigvalsh / spectrum", ">=", 1),
    _Target("measure", _ANY, "error at 95%", "<=", 0.002, "%"),
    _Target("measure", _ANY, "truncated: error at 95%", "<=", 0.003, "%"),
    _Target("measure", _ANY, "coverage", ">=", 0.9, "%"),
    _Target("measure", (8000, 13_999), "stored / exact", "<=", 0.25, "%"),
    _Target("measure", (14_000, math.inf), "stored / exact", "<=", 0.1, "%"),
    _Target("measure", _ANY, _SPLITS, ">=", 25),
    _Target("first call", (2000, 2000), "decompose", "<=", 3, " s"),
    _Target("jackknife", _ANY, "errors / scores", "<=", 4),
    _Target("jackknife", _ANY, "20 deletions / errors", ">=", 3),
    _Target("jackknife", _ANY, "every row deleted / contributions", ">=", 100),
    _Target("jackknife", _ANY, "every candidate scored / select", ">=", 20),
    _Target("cold start", _ANY, "import condvendi_jax / import jax", "<=", 1.2),
)


def rows(run: Run) -> list[dict[str, str]]:
    """The targets, each beside the worst that was measured; `met` is '' where nothing was."""
    targets = list(_TARGETS)
    for name, points in run.study.points.items():
        for sizes, bound in (((4000, 4000), 0.6), (_LARGE, 0.15)):
            if points.kind == "real" and points.n >= sizes[0]:
                targets.append(_Target("measure", sizes, "stored / exact", "<=", bound, "%", name))
    return [_row(target, records(run)) for target in targets]


def _row(target: _Target, records: Sequence[Record]) -> dict[str, str]:
    least, most = target.sizes
    found = [
        (value, f"{record.data}, n = {record.n:,}")
        for record in records
        if record.part == target.part and target.data in ("", record.data)
        if least <= record.n <= most and not math.isnan(value := target.measure(record))
    ]
    measured, met = "not measured", ""
    if found:
        value, where = (min if target.sign == ">=" else max)(found)
        where += f"; worst of {len(found)}" if len(found) > 1 else ""
        measured = f"{_text(value, target.unit)} ({where})"
        is_met = value >= target.bound if target.sign == ">=" else value <= target.bound
        met = "yes" if is_met else "no"
    bound = f"{target.sign} {_text(target.bound, target.unit)}"
    return {"what": target.words(), "target": bound, "measured": measured, "met": met}


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
    measured = records(run)
    used = {record.data for record in measured}
    tables = [rows(run), [_data(k, of) for k, of in run.study.points.items() if k in used]]
    tables += [*(_times(part, measured) for part in CONTESTANTS), _accuracy(measured)]
    return "\n\n".join([f"Measured on {machine(run)}.", *map(_table, filter(None, tables))]) + "\n"


def _table(lines: Sequence[Mapping[str, str]]) -> str:
    """A table of lines by the headings of their columns."""
    grid = [lines[0].keys(), ["---"] * len(lines[0]), *(line.values() for line in lines)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in grid)


def _data(name: str, points: Points) -> dict[str, str]:
    """What the data are, and the digests that tell whose numbers a row has."""
    digests = [digest.rpartition(" ")[2][:_DIGITS] for digest in points.digests]
    return {
        "data": f"{name}: {points.description.rstrip('.')}",
        "pairs": f"{points.n:,}",
        "bandwidths": f"{points.bandwidths.outputs:.3g}, {points.bandwidths.prompts:.3g}",
        "sha256 of outputs, prompts": ", ".join(digests),
    }


def _times(part: str, records: Sequence[Record]) -> list[dict[str, str]]:
    """Seconds and memory of the contestants of a part that are there to be timed, side by side."""
    of_part = [record for record in records if record.part == part]
    times = ("rounds", "rounds after compiling", "twice")
    timed = [n for n, e in CONTESTANTS[part].items() if e.calls in times and n != "matrix product"]
    if part in FRESH:
        timed = [key for name in timed for key in (name, name + AGAIN)]
    names = [name for name in timed if any(len(record.calls(name)) for record in of_part)]
    both = "{:.3g} ({:,.0f})".format
    return [
        {f"{part}: seconds (MiB)": of.data, "n": f"{of.n:,}"}
        | {m: both(of.seconds(m), of.mebibytes(m)) if len(of.calls(m)) else "" for m in names}
        for of in (of_part if names else [])
    ]


def _accuracy(records: Sequence[Record]) -> list[dict[str, str]]:
    """The accuracy by tolerance against the exact values: a line a cell, its worst score."""
    return [
        {"accuracy, worst score": record.data, "n": f"{record.n:,}"}
        | {name: _text(value, "" if name == "seeds" else "%") for name, value in found.items()}
        for record in records
        if record.part == "measure" and (found := worst(record))
    ]


def _largest(values: xr.DataArray) -> float:
    return max(values.values.tolist(), default=np.nan)


def main(argv: list[str]) -> None:
    """Prints a saved result."""
    command.no_words(argv[1:])
    print(markdown(store.read_run(flags.FLAGS.results, registry.load("scaling"))), end="")


if __name__ == "__main__":
    flags.DEFINE_string("results", "experiments/results/scaling", "The folder of a run.")
    command.run(main)
