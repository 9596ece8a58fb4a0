"""What a saved result of the benchmark says. A number stands on three calls, or there is none."""

import re
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from experiments.cost import engines, timing
from experiments.cost.contests import CONTESTANTS, EVERY, counted
from experiments.lab import Run, dots, style, tables

PARTS = {"order2": "order 2", "exact": "exact", "measure": "measure"}
"""The names of the parts in cells, by what flags call them."""
# By part: what a panel shows, and the lines in it, ours first.
_PANELS = {
    "order 2": ("three norms of order 2", ("library", "dense JAX", "dense torch", "rke-score")),
    "exact": (
        "all eigenvalues of one matrix",
        ("spectrum", "jnp.linalg.eigvalsh", "torch.linalg.eigvalsh", "vendi_score"),
    ),
}
_COLOURS = (style.BLUE, style.VERMILION, style.ORANGE, style.PINK)


def of_run(run: Run) -> xr.Dataset:
    """The results of all cells, NaN where there are none, of every part and contestant.

    `seconds` are of the calls that count; `mebibytes` is the memory that they took at their peak,
    beyond data and runtime.
    """
    places = {"part": [*CONTESTANTS], "data": [*run.study.points], "contestant": [*EVERY]}
    found = run.found.reindex(places)
    seconds = counted(found.seconds)
    enough = seconds.count("call") >= timing.AT_LEAST
    mebibytes = found.memory_bytes.where(enough) / 2**20
    return found.assign(seconds=seconds.where(enough), mebibytes=mebibytes)


def ratio(found: xr.Dataset, one: Any, other: str) -> xr.DataArray:
    """The time of a contestant, or of several, over another's, of calls that took turns.

    It is a `timing.spread`.

    Raises:
      ValueError: a contestant is compared with itself, which says nothing.
    """
    if one == other:
        raise ValueError(f"{one} is compared with itself.")
    of_other = found.seconds.sel(contestant=other, drop=True)
    return timing.spread(found.seconds.sel(contestant=one) / of_other, "call")


def of_mixture(found: xr.Dataset, part: str, one: str, other: str, n: int = 0) -> xr.Dataset:
    """One's `time` and `memory` over the other's, of the mixture at n or the largest there is.

    Names have _ for what is no letter.
    """
    names = {re.sub(r"\W", "_", name): name for name in EVERY}
    mixture = found.sel(part=PARTS[part], data="mixture")
    memory = mixture.mebibytes / mixture.mebibytes.sel(contestant=names[other], drop=True)
    ratios = {
        "time": ratio(mixture, names[one], names[other]),
        "memory": memory.sel(contestant=names[one]),
    }
    there = xr.Dataset(ratios).dropna("n", subset=["time"])
    return there.sel(n=n) if n else there.isel(n=-1)


def errors(found: xr.Dataset, name: str) -> xr.Dataset:
    """The relative errors of a contestant's scores over the seeds, where there are three.

    Quantities are called 'vendi', 'conditional-t200' or 'joint 448': what follows a space says
    how it was computed and has no part in the exact value. `half` is half the width of the
    interval, relative to the score; `held` whether it holds the exact value, 0 or 1.
    """
    values = found.value.sel(part="measure")
    names = values.quantity.values.tolist()
    exact = values.sel(contestant="exact", drop=True).isel(call=0, end=0)
    truth = exact.reindex(quantity=[name.partition(" ")[0] for name in names])
    truth = truth.assign_coords(quantity=names)
    value, low, high = values.sel(contestant=name, drop=True).transpose("end", ...)
    known = truth.notnull() & (value.count("call") >= timing.AT_LEAST)
    held = ((low <= truth) & (truth <= high)).where(low.notnull())
    error, half = abs(np.expm1(value - truth)), np.expm1((high - low) / 2)
    return xr.Dataset({"error": error, "half": half, "held": held}).where(known)


def rms(found: xr.Dataset, name: str) -> xr.DataArray:
    """The rms error of exp H(X, T) at `engines.PRODUCTS` products over seeds; of the best split."""
    error = errors(found, name).error
    of_splits = error.where(error.quantity.str.startswith(f"joint {engines.PRODUCTS}"))
    return np.sqrt((of_splits**2).mean("call")).min("quantity")


def contest(part: str, found: xr.Dataset, memory: bool = False) -> Table:
    """Seconds a call of a part's contestants, or the MiB that it takes, a row a data set and n."""
    names = [name for name, entry in CONTESTANTS[part].items() if entry.calls == "rounds"]
    there = found.sel(part=part, contestant=names)
    there = there.dropna("contestant", how="all", subset=["seconds"])
    words = timing.in_words(timing.spread(there.seconds, "call"))
    if memory:
        of_memory = xr.apply_ufunc("{:,.0f}".format, there.mebibytes, vectorize=True)
        words = of_memory.where(there.mebibytes.notnull())
    shown = words.assign_coords(n=[f"{n:,}" for n in words.n.values]).to_dataset(name="value")
    grid = tables.table(shown, rows=("data", "n"), columns="contestant")
    grid.title = f"{part}: {'MiB' if memory else 'seconds a call'}"
    return grid


def accuracy(found: xr.Dataset) -> Table:
    """The accuracy of order 1 against all eigenvalues: a row a data set and n."""
    heads = ("seeds", "largest error", "mean half interval", "truncated: largest error", "held")
    per = f"rms error at {engines.PRODUCTS} products", "plain SLQ"
    grid = Table("data", "n", *heads, *per, title="order 1: accuracy")
    of, axes = errors(found, "by tolerance"), ("quantity", "call")
    cut = of.quantity.str.contains("-t")
    whole = of.where(~cut)
    numbers = {
        "seeds": of.error.notnull().any("quantity").sum("call"),
        "error": whole.error.max(axes),
        "half": whole.half.mean(axes),
        "truncated": of.error.where(cut).max(axes),
        "held": of.held.sum(axes),
        "intervals": of.held.count(axes),
        "by budget": rms(found, "by budget"),
        "plain SLQ": rms(found, "plain SLQ"),
    }
    lines = xr.Dataset(numbers).to_dataframe(dim_order=["data", "n"]).dropna(subset=["error"])
    for (data, n), *row in lines[[*numbers]].itertuples(name=None):
        words = "{:.0f}|{:.3%}|{:.3%}|{:.3%}|{:.0f} of {:.0f}|{:.2%}|{:.2%}".format(*row)
        grid.add_row(data, f"{n:,}", *words.replace("nan%", "-").split("|"))
    return grid


def draw(run: Run) -> dict[str, Figure]:
    """Seconds against n, a panel a part; the time of estimates over that of all eigenvalues."""
    found, drawn, name, study = of_run(run), {}, run.study.name, run.study
    mixture = found.sel(data="mixture")
    seconds = timing.spread(mixture.seconds, "call")
    parts = {part: seconds.sel(part=part).dropna("n", how="all") for part in _PANELS}
    parts = {part: of for part, of in parts.items() if of.n.size > 2}
    if parts:
        figure, panels = style.panels(len(parts), size=(7 / len(parts), 2.8), sharey=True)
        for panel, (part, of) in zip(panels, parts.items(), strict=True):
            _draw_times(panel, part, of)
        style.label_lines(*panels)
        words = "; ".join(filter(None, (_quickest(part, mixture.sel(part=part)) for part in parts)))
        drawn[f"{name}_time"] = style.headline(figure, f"Time: {words}")
    shares = 100 * ratio(found.sel(part="measure"), "stored", "exact").stack(place=("data", "n"))
    shares = shares.dropna("place")
    if shares.place.size:
        places = [f"{data}, {n:,}" for data, n in shares.place.values]
        shares = shares.drop_vars(["place", "data", "n"]).assign_coords(place=places)
        ends = {"value": shares.isel(end=0), "ends": shares.isel(end=[1, 2])}
        words = f"Scores of order 1 to within {study.rtol:.1%}: {ends['value'].min():.0f}% to "
        words += f"{ends['value'].max():.0f}% of the time of all eigenvalues"
        drawn[f"{name}_estimates"] = dots.facets(
            xr.Dataset(ends).expand_dims(["one", "panel"]), row="place", hue="one", column="panel",
            x_label="% of the time of all eigenvalues", headline=words,
            each=lambda panel, _: panel.set_xlim(0),
        )  # fmt: skip
    dtype = next(iter(run.provenance.values()))["dtype"]
    words = f"{study.device}, {study.cores} cores, {dtype}. Medians; bars: least to most of "
    words += f"{study.repeats} calls or more."
    return {k: style.caption(of, words) for k, of in drawn.items()}


def _draw_times(panel: Axes, part: str, seconds: xr.DataArray) -> None:
    """A line a contestant with two sizes or more, and bars from the least to the most."""
    title, names = _PANELS[part]
    for at, name in enumerate(names):
        of = seconds.sel(contestant=name).dropna("n")
        if of.n.size < 2:
            continue
        median, least, most = of.values
        look: dict[str, Any] = {"c": _COLOURS[at], "marker": style.MARKERS[at], "elinewidth": 1}
        look |= {"ls": "--" if EVERY[name].peer else "-", "label": name if at else "ours"}
        panel.errorbar(of.n, median, [median - least, most - median], **look)
    panel.set_yscale("log")
    style.log_counts(panel, seconds.n.values[::2])
    panel.set(xlabel="sample size n", ylabel="seconds a call", title=title)
    panel.label_outer()


def _quickest(part: str, mixture: xr.Dataset) -> str:
    """The time of the quickest peer at the largest n, in words; '' where there is none."""
    ours, *others = _PANELS[part][1]
    medians = ratio(mixture, others, ours)[0].dropna("n", how="all")
    if not medians.n.size:
        return ""
    last = medians.isel(n=-1)
    least = last.isel(contestant=last.argmin("contestant"))
    return f"{least.contestant.item()} {least:.2g} times ours at n = {least.n.item():,}"
