"""Saved results -> figures. Nothing is computed here but means, spreads and exponentials.

python -m experiments.plots                       # the committed results into figures/
python -m experiments.plots --results=results --figures=results
"""

from __future__ import annotations

import io
import pathlib
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from condvendi_jax import command, files
from experiments import harness
from experiments.scaling import report

# Figure -> the folders of results that it shows, those of them that exist.
_CONVERGENCE = {
    "convergence": ("convergence-gaussian", "convergence-cosine"),
    "convergence_full": ("convergence-gaussian-full", "convergence-cosine-full"),
}
_SCORES = ("conditional", "information", "vendi")
_NAMES = {
    "conditional": ("Conditional-Vendi", "Conditional-RKE"),
    "information": ("Information-Vendi", "Information-RKE"),
    "vendi": ("Vendi", "RKE"),
}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def check_scores(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the scores to draw, or raises ValueError with the valid ones."""
    unknown = [name for name in names if name not in _SCORES]
    if unknown or not names:
        raise ValueError(f"--scores: expected some of {', '.join(_SCORES)}, received {names}.")
    return tuple(names)


def score_values(entropies: np.ndarray, score: str) -> np.ndarray:
    """A score out of H(X), H(T), H(X, T), the last axis but one of `[..., 3, sizes]`."""
    outputs, prompts, joint = np.moveaxis(entropies.astype(np.float64), -2, 0)
    terms = {
        "vendi": outputs,
        "conditional": joint - prompts,
        "information": outputs + prompts - joint,
    }
    return np.exp(terms[score])


def lines(cell: dict[str, np.ndarray], scores: Sequence[str]) -> list[tuple[str, str]]:
    """Every score of every entropy that a cell holds."""
    quantities = [name for name in cell if name.startswith("order") and not name.endswith("sizes")]
    return [(score, quantity) for score in scores for quantity in quantities]


def curve(
    cells: Sequence[dict[str, np.ndarray]], score: str, quantity: str
) -> tuple[np.ndarray, np.ndarray]:
    """The sizes `[m]` of one curve and its values `[repeats, m]`."""
    sizes = cells[0]["order_two_sizes" if quantity == "order2" else "sizes"]
    return sizes, np.stack([score_values(cell[quantity], score) for cell in cells])


def label(quantity: str, score: str) -> str:
    """'order1-t1600' as 'Conditional-Vendi, t = 1,600'."""
    order, _, truncation = quantity.removeprefix("order").partition("-t")
    one, two = _NAMES[score]
    name = {"1": one, "2": two}.get(order, f"{one}, order {order}")
    return name + (f", t = {int(truncation):,}" if truncation else "")


def _panel(axes: Axes, cells: Sequence[dict[str, np.ndarray]], scores: Sequence[str]) -> None:
    """The curves of one panel: the mean over the repeats, and a band of one standard deviation."""
    for index, (score, quantity) in enumerate(lines(cells[0], scores)):
        sizes, values = curve(cells, score, quantity)
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1 if len(cells) > 1 else 0)
        colour, marker = _COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)]
        every = max(1, len(sizes) // 8)
        axes.plot(
            sizes,
            mean,
            color=colour,
            marker=marker,
            markersize=4,
            markevery=every,
            label=label(quantity, score),
        )
        axes.fill_between(sizes, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("sample size n")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _panel_title(configuration: dict[str, Any], rule: str) -> str:
    bandwidths = configuration["bandwidths"][rule]
    if bandwidths["outputs"] is None:
        return "cosine kernel"
    return (
        f"Gaussian kernel, bandwidths by '{rule}'\n"
        f"outputs {bandwidths['outputs']:.3g}, prompts {bandwidths['prompts']:.3g}"
    )


def _caption(configuration: dict[str, Any], rules: Sequence[str]) -> str:
    """The line under a figure: what data, n, bandwidths, rule, truncation and seed it shows."""
    words = {rule: configuration["bandwidths"][rule]["rule"] for rule in rules}
    bandwidths = "; ".join(f"'{rule}': {text}" for rule, text in words.items() if rule != "cosine")
    truncations = ", ".join(f"{t:,}" for t in configuration["truncations"])
    repeats = configuration["repeats"]
    orders = (
        "one random order of the pairs"
        if repeats == 1
        else f"mean and one standard deviation over {repeats} random orders of the pairs"
    )
    parts = [
        f"Data: {configuration['data']}",
        f"n = {configuration['n']:,}; spectra up to n = {configuration['sizes'][-1]:,}, order 2 to "
        f"all pairs; {orders}, seed {configuration['seed']}; truncation t = {truncations}",
    ]
    # Results of before there was a choice are of all eigenvalues.
    if configuration.get("method", "exact") != "exact":
        parts.append("Spectra of more than 4,096 pairs are estimated, to 0.2%")
    if bandwidths:
        parts.append(f"Bandwidths {bandwidths}")
    return ". ".join(part.rstrip(".") for part in parts) + "."


def draw_convergence(
    folders: Sequence[str | pathlib.Path],
    target: str | pathlib.Path,
    *,
    scores: Sequence[str] = ("conditional",),
    name: str = "convergence",
) -> list[pathlib.Path]:
    """Draws the scores against n: a row a run, a panel a bandwidth rule (CV figs 2, 3 and 19).

    Args:
      folders: the results of `experiments.convergence`, one a kernel.
      target: the folder of the figures.
      scores: which scores are drawn.
      name: the figures' name, without a suffix.

    Returns:
      The paths of the PNG and the PDF.

    Raises:
      ValueError: a folder holds no results.
    """
    panels, captions = [], []
    for folder in folders:
        run, cells = harness.load_run(folder)
        configuration = run["configuration"]
        rules = [rule for rule in configuration["bandwidths"] if f"{rule}-0" in cells]
        if not rules:
            raise ValueError(f"{folder}: no cell of the study is finished.")
        for rule in rules:
            repeats = [cells[c] for c in cells if c.rsplit("-", 1)[0] == rule]
            panels.append((_panel_title(configuration, rule), repeats))
        captions.append(_caption(configuration, rules))
    columns = len(panels) if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.4 * max(2, columns), 3.9 * rows), squeeze=False
    )
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, (title, repeats) in zip(grid.flat, panels, strict=False):
        _panel(axes, repeats, scores)
        axes.set_title(title, fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("score (effective number of modes)")
    return _save(figure, captions, pathlib.Path(target) / name)


# Who is drawn of each part of the benchmark; the first of them are ours.
_CONTESTANTS = {
    "order 2": (("tiles",), ("dense JAX", "dense torch", "rke-score")),
    "exact": (("spectrum",), ("jnp.linalg.eigvalsh", "torch.linalg.eigvalsh", "vendi_score")),
    "measure": (("stored", "matrix-free"), ("exact",)),
}
_TITLES = {
    "order 2": "order 2: three squared norms",
    "exact": "all eigenvalues of one Gram",
    "measure": "three scores of order 1",
}


def draw_scaling(path: str | pathlib.Path, target: str | pathlib.Path) -> list[pathlib.Path]:
    """Draws time and memory against n, and error against n and against products.

    Args:
      path: a result of `experiments.scaling`.
      target: the folder of the figures.

    Returns:
      The paths of the PNGs and the PDFs. What was not measured is not drawn.

    Raises:
      ValueError: the file is no such result.
    """
    result = report.load(path)
    target, suffix = pathlib.Path(target), pathlib.Path(path).stem.removeprefix("scaling")
    mixture = next(iter(result["configuration"]["data"]))
    records = [record for record in result["cells"] if record["data"] == mixture]
    paths = []
    for name, measure, unit in (
        ("time", report.seconds, "seconds a call"),
        ("memory", report.mebibytes, "memory beyond the points, MiB"),
    ):
        parts = [p for p in _CONTESTANTS if any(r["part"] == p for r in records)]
        if parts:
            figure, grid = _panels(len(parts))
            for axes, part in zip(grid, parts, strict=True):
                _against_n(axes, [r for r in records if r["part"] == part], measure)
                axes.set_title(_TITLES[part], fontsize=9)
            grid[0].set_ylabel(unit)
            caption = _scaling_caption(result, [mixture])
            paths += _save(figure, [caption], target / f"scaling_{name}{suffix}")
    measured = [r for r in result["cells"] if report.quantities(r, "by tolerance")]
    measured = [r for r in measured if "exact" in r["results"]]
    if measured:
        # The largest n of each data.
        compared = list({r["data"]: r for r in measured if report.plain_over_ours(r)}.values())
        figure, grid = _panels(1 + len(compared))
        _errors_against_n(grid[0], measured)
        for axes, record in zip(grid[1:], compared, strict=True):
            _errors_against_products(axes, record)
        caption = _scaling_caption(result, list(dict.fromkeys(r["data"] for r in measured)))
        paths += _save(figure, [caption], target / f"scaling_error{suffix}")
    return paths


def _panels(count: int) -> tuple[Any, list[Axes]]:
    """A figure of `count` panels, three a row at most."""
    columns = min(count, 3)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.4 * max(2, columns), 3.9 * rows), squeeze=False
    )
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def _log_log(axes: Axes, label: str) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _against_n(
    axes: Axes,
    records: Sequence[dict[str, Any]],
    measure: Callable[[dict[str, Any], str], float | None],
) -> None:
    ours, peers = _CONTESTANTS[records[0]["part"]]
    for index, name in enumerate((*ours, *peers)):
        points = [(record["n"], measure(record, name)) for record in records]
        points = [(n, value) for n, value in points if value]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                color=_COLOURS[index],
                marker=_MARKERS[index],
                markersize=4,
                linestyle="-" if name in ours else "--",
                label=f"{name} (ours)" if name in ours else name,
            )
    _log_log(axes, "sample size n")


def _errors_against_n(axes: Axes, records: Sequence[dict[str, Any]]) -> None:
    """By data: the error of the worst of the three scores, and the half-width of its interval."""
    names = list(dict.fromkeys(record["data"] for record in records))
    for index, name in enumerate(names):
        of_data = [record for record in records if record["data"] == name]
        worst = [_worst(record) for record in of_data]
        for values, style, words in (
            ([w.within for w in worst], "-", "error at 95%"),
            ([np.mean(w.half_widths) for w in worst], ":", "mean half interval"),
        ):
            axes.plot(
                [record["n"] for record in of_data],
                values,
                color=_COLOURS[index],
                marker=_MARKERS[index],
                markersize=4,
                markerfacecolor=_COLOURS[index] if style == "-" else "white",
                linestyle=style,
                label=f"{name}: {words}",
            )
    _log_log(axes, "sample size n")
    axes.set_ylabel("relative")
    axes.set_title("scores of order 1, by tolerance: the worst", fontsize=9)


def _worst(record: dict[str, Any]) -> report.Accuracy:
    """The accuracy of the score of order 1 that came off worst."""
    found = [
        report.accuracy(record, "by tolerance", quantity)
        for quantity in ("vendi", "conditional", "information")
    ]
    return max((a for a in found if a is not None), key=lambda a: a.within)


def _errors_against_products(axes: Axes, record: dict[str, Any]) -> None:
    """The rms error of the joint entropy by the number of products, of ours and of plain SLQ."""
    ticks: list[int] = []
    for index, (name, label) in enumerate(
        (("by budget", "deflated, with moments (ours)"), ("plain SLQ", "plain SLQ, best split"))
    ):
        best: dict[int, float] = {}
        for quantity in report.quantities(record, name):
            entropy, products, *_ = quantity.split()
            found = report.accuracy(record, name, quantity)
            if entropy == "joint" and found:
                best[int(products)] = min(found.rms, best.get(int(products), np.inf))
        axes.plot(
            list(best),
            list(best.values()),
            color=_COLOURS[index],
            marker=_MARKERS[index],
            markersize=4,
            linestyle="--" if index else "-",
            label=label,
        )
        ticks = list(best)
    _log_log(axes, "matrix-vector products")
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()
    axes.set_ylabel("rms relative error of exp H(X, T)")
    axes.set_title(f"{record['data']}, n = {record['n']:,}", fontsize=9)


def _scaling_caption(result: dict[str, Any], names: Sequence[str]) -> str:
    """Data, n, bandwidths, precision, seeds and machine kind."""
    configuration, cells = result["configuration"], result["cells"]
    parts = []
    for name in names:
        data = configuration["data"][name]
        sizes = sorted({r["n"] for r in cells if r["data"] == name})
        widths = " and ".join(f"{b:.3g}" for b in data["bandwidths"])
        parts.append(
            f"{name}: {data['description'].rstrip('.')}, n = {sizes[0]:,} to {sizes[-1]:,}, "
            f"bandwidths {widths}"
        )
    parts.append(
        f"Seed {configuration['seed']}; medians of up to {configuration['repeats']} rounds; errors "
        f"over up to {configuration['seeds']} seeds at a tolerance of {configuration['rtol']:g}"
    )
    parts.append(report.machine(result))
    return ". ".join(parts) + "."


def _save(figure: Any, captions: Sequence[str], path: pathlib.Path) -> list[pathlib.Path]:
    """Writes PNG and PDF, whole or not at all, with the captions below the panels."""
    width = int(figure.get_size_inches()[0] * 21)
    lines = [line for text in dict.fromkeys(captions) for line in textwrap.wrap(text, width)]
    height = figure.get_size_inches()[1]
    margin = 0.14 * len(lines) + 0.1
    figure.set_size_inches(figure.get_size_inches()[0], height + margin)
    figure.tight_layout(rect=(0, margin / (height + margin), 1, 1))
    figure.text(0.01, 0.01, "\n".join(lines), fontsize=6.5, va="bottom")
    paths = []
    for suffix in (".png", ".pdf"):
        image = io.BytesIO()
        # Without a date the same results give the same bytes.
        metadata = {"CreationDate": None} if suffix == ".pdf" else {"Software": None}
        figure.savefig(image, format=suffix[1:], dpi=160, metadata=metadata)
        paths.append(path.with_suffix(suffix))
        with files.atomic_writer(paths[-1]) as stream:
            stream.write(image.getvalue())
    plt.close(figure)
    return paths


def main(argv: list[str]) -> None:
    """Draws every figure whose results are there."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}; flags are written --name=value.")
    results = pathlib.Path(flags.FLAGS.results)
    drawings = {
        name: [
            folder for folder in map(results.joinpath, folders) if (folder / "run.json").exists()
        ]
        for name, folders in _CONVERGENCE.items()
    }
    benchmarks = sorted(results.glob("scaling*.json"))
    if not any(drawings.values()) and not benchmarks:
        raise ValueError(f"{results}: there are no results to draw.")
    target = pathlib.Path(flags.FLAGS.figures)
    target.mkdir(parents=True, exist_ok=True)
    scores = check_scores(flags.FLAGS.scores)
    for name, found in drawings.items():
        if found:
            for path in draw_convergence(found, target, scores=scores, name=name):
                print(path)
    for benchmark in benchmarks:
        for path in draw_scaling(benchmark, target):
            print(path)


if __name__ == "__main__":
    flags.DEFINE_string("results", "experiments/results", "Folder of the saved results.")
    flags.DEFINE_string("figures", "figures", "Folder the figures are written to.")
    flags.DEFINE_list("scores", ["conditional"], "What is drawn: conditional, information, vendi.")
    command.run(main)
