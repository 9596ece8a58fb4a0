"""How many samples the scores need: CV figures 2, 3 and 19 on real embeddings.

The scores of random subsamples against their size n', mean and spread over repeats: Conditional-
Vendi, truncated Conditional-Vendi and Conditional-RKE, with Information-* and the unconditional
scores from the same spectra. Under the Gaussian kernel the study is repeated for every way of
choosing the bandwidths, because what settles by a given n depends on it.

    python -m experiments.convergence --kernel=gaussian
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags
from rich import console, table

import condvendi_jax as cv
from condvendi_jax import bandwidth, command, scores, uncertainty, validation
from experiments import harness, plots
from experiments.data import PairedEmbeddings

RULES = ("variance", "std", "median", "given")
_DEFAULT_SIZES = (250, 500, 1000, 2000, 3000, 4000)
_FULL_SIZES = (500, 1000, 2000, 4000, 6000, 8000, 10000)
# CV truncates at 10,000 of 25,000 samples.
_PAPER_TRUNCATION = 10_000 / 25_000
# Sizes of the order-2 curve, which costs no more than its last point.
_ORDER_TWO_POINTS = 40
# A curve has settled where it stays this near to its last value.
_NEAR = 0.02

_KERNEL = flags.DEFINE_enum("kernel", "gaussian", ["gaussian", "cosine"], "The kernel of both.")
_ORDERS = flags.DEFINE_list("orders", ["1", "2"], "Renyi orders of the untruncated scores.")
_TRUNCATION = flags.DEFINE_list(
    "truncation",
    ["scaled", "200"],
    "Eigenvalues kept by truncated Conditional-Vendi; 'scaled' is 0.4 of the largest size, as "
    "10,000 is of the paper's 25,000.",
)
_SIZES = flags.DEFINE_list(
    "sizes", None, "Sizes at which spectra are computed; order 2 goes on to all pairs regardless."
)
_REPEATS = flags.DEFINE_integer("repeats", 3, "Random orders of the pairs.")
_RULES = flags.DEFINE_list(
    "rules",
    None,
    "How the Gaussian bandwidths are chosen, each drawn as a panel: variance (CV), std (RKE), "
    "median (median distance); by default all, or 'given' with --output_bandwidth.",
)
_OUTPUT_BANDWIDTH = flags.DEFINE_float("output_bandwidth", None, "Bandwidth of the outputs.")
_PROMPT_BANDWIDTH = flags.DEFINE_float("prompt_bandwidth", None, "Bandwidth of the prompts.")
_FULL = flags.DEFINE_bool("full", False, "Spectra up to all pairs.")
_METHOD = flags.DEFINE_enum(
    "method",
    "auto",
    list(scores.METHODS),
    "How spectra are computed: all eigenvalues (exact), or estimated with intervals (stored, "
    "matrix-free); auto takes eigenvalues up to n = 4,096.",
)
_SCORES = flags.DEFINE_list(
    "scores", ["conditional"], "What is drawn: conditional, information, vendi. All are saved."
)


def main(argv: list[str]) -> None:
    """Computes what is missing, then draws."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}; flags are written --name=value.")
    drawn = plots.check_scores(_SCORES.value)
    data = harness.load_data()
    configuration = _configure(data)
    folder = f"{flags.FLAGS.output}/convergence-{_KERNEL.value}{'-full' if _FULL.value else ''}"
    store = harness.Store(folder, configuration)
    cells = [
        f"{rule}-{repeat}"
        for rule in configuration["bandwidths"]
        for repeat in range(configuration["repeats"])
    ]
    compute = functools.partial(_compute, data, configuration)
    harness.run_cells(store, cells, compute, steps=len(configuration["sizes"]))
    store.close()
    _report(folder, drawn)
    for path in plots.draw_convergence([folder], folder, scores=drawn):
        print(path)


def _report(folder: str, drawn: Sequence[str]) -> None:
    """Prints where each curve ends, and from which size on it stays near its end."""
    run, cells = harness.load_run(folder)
    grid = table.Table("bandwidths", "score", "last n", "there", f"within {_NEAR:.0%} from")
    for rule in run["configuration"]["bandwidths"]:
        repeats = [cells[name] for name in cells if name.rsplit("-", 1)[0] == rule]
        for score, quantity in plots.lines(repeats[0], drawn):
            sizes, values = plots.curve(repeats, score, quantity)
            mean = values.mean(axis=0)
            settled = uncertainty.settled_from(sizes.tolist(), mean, tolerance=_NEAR)
            start = "not settled" if settled is None else f"{settled:,}"
            name = plots.label(quantity, score)
            grid.add_row(rule, name, f"{sizes[-1]:,}", f"{mean[-1]:.4g}", start)
    console.Console().print(grid)


def _configure(data: PairedEmbeddings) -> dict[str, Any]:
    """Everything that the numbers depend on, bandwidths included, as plain data."""
    n = len(data)
    sizes = _sizes(n)
    return {
        "study": "convergence",
        "data": data.description,
        "n": n,
        "kernel": _KERNEL.value,
        "orders": [validation.check_order(float(order)) for order in _ORDERS.value],
        "truncations": [_truncation(text, sizes[-1]) for text in _TRUNCATION.value],
        "sizes": sizes,
        "order_two_sizes": _order_two_sizes(n, sizes),
        "repeats": validation.check_count(_REPEATS.value, name="--repeats", minimum=1),
        "bandwidths": _bandwidths(data),
        "method": _METHOD.value,
        "seed": flags.FLAGS.seed,
    }


def _sizes(n: int) -> list[int]:
    if _SIZES.value is not None:
        sizes = sorted({_parse_int(text, name="--sizes") for text in _SIZES.value})
        if not sizes or sizes[0] < 2 or sizes[-1] > n:
            raise ValueError(f"--sizes: expected numbers between 2 and n = {n}, received {sizes}.")
        return sizes
    if _FULL.value:
        return [size for size in _FULL_SIZES if size < n] + [n]
    return [size for size in _DEFAULT_SIZES if size < n] or [n]


def _order_two_sizes(n: int, sizes: list[int]) -> list[int]:
    """Sizes of equal ratio up to all pairs, and those of the spectra."""
    spaced = np.geomspace(min(sizes[0], n), n, _ORDER_TWO_POINTS).round().astype(int)
    return sorted({*spaced.tolist(), *sizes})


def _truncation(text: str, largest: int) -> int:
    if text == "scaled":
        return max(1, round(_PAPER_TRUNCATION * largest))
    return validation.check_count(
        _parse_int(text, name="--truncation"), name="--truncation", minimum=1
    )


def _parse_int(text: str, *, name: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{name}: expected whole numbers, received {text!r}.") from error


def _bandwidths(data: PairedEmbeddings) -> dict[str, Any]:
    """For each rule the bandwidths of outputs and prompts, and the rule in words."""
    given = (_OUTPUT_BANDWIDTH.value, _PROMPT_BANDWIDTH.value)
    if _KERNEL.value == "cosine":
        return {"cosine": {"outputs": None, "prompts": None, "rule": "no bandwidth"}}
    if given != (None, None):
        if None in given:
            raise ValueError("give both --output_bandwidth and --prompt_bandwidth, or neither.")
        return {"given": {"outputs": given[0], "prompts": given[1], "rule": "given"}}
    rules = _RULES.value or list(RULES[:3])
    unknown = sorted(set(rules) - set(RULES[:3]))
    if unknown:
        raise ValueError(f"--rules: expected {', '.join(RULES[:3])}, received {unknown[0]!r}.")
    return {rule: _choose(data, rule) for rule in rules}


def _choose(data: PairedEmbeddings, rule: Any) -> dict[str, Any]:
    keys = jax.random.split(jax.random.fold_in(jax.random.key(flags.FLAGS.seed), 0x5E1EC7))
    if rule == "median":
        values = [
            bandwidth.median_heuristic(points, key=key)
            for points, key in zip((data.outputs, data.prompts), keys, strict=True)
        ]
        words = "median distance"
    else:
        chosen = [
            bandwidth.select_bandwidth(points, key=key, criterion=rule)
            for points, key in zip((data.outputs, data.prompts), keys, strict=True)
        ]
        values = [selection.bandwidth for selection in chosen]
        words = "RKE of each modality: " + chosen[0].describe()
    return {"outputs": values[0], "prompts": values[1], "rule": words}


def _compute(
    data: PairedEmbeddings,
    configuration: Mapping[str, Any],
    cell: str,
    advance: Callable[[], None],
) -> dict[str, np.ndarray]:
    """The entropies of every size for one bandwidth rule and one random order of the pairs."""
    rule, repeat = cell.rsplit("-", 1)
    key = jax.random.fold_in(jax.random.key(configuration["seed"]), int(repeat))
    order = np.asarray(jax.random.permutation(key, len(data)))
    estimator_key = jax.random.fold_in(key, 1)
    kernels = [_kernel(configuration["bandwidths"][rule][name]) for name in ("outputs", "prompts")]
    curve = functools.partial(
        uncertainty.convergence_curve,
        data.outputs[order],
        data.prompts[order],
        output_kernel=kernels[0],
        prompt_kernel=kernels[1],
        method=configuration["method"],
        key=estimator_key,
    )
    spectral = [cv.Entropy(order=o) for o in configuration["orders"] if o != 2]
    spectral += [cv.truncated(t) for t in configuration["truncations"]]
    arrays = {"sizes": np.array(configuration["sizes"])}
    results = curve(configuration["sizes"], entropies=spectral, progress=advance)
    if 2 in configuration["orders"]:
        arrays["order_two_sizes"] = np.array(configuration["order_two_sizes"])
        results += curve(configuration["order_two_sizes"], entropies=[cv.renyi(2)])
    for result in results:
        cut = "" if result.truncation is None else f"-t{result.truncation}"
        arrays[f"order{result.order:g}{cut}"] = np.stack(
            [result.entropy_outputs, result.entropy_prompts, result.entropy_joint]
        )
        if result.estimation is not None:
            # [score, low or high, size], in effective numbers of modes.
            intervals = [np.array(ends) for ends in result.estimation.intervals]
            arrays[f"interval-order{result.order:g}{cut}"] = np.stack(intervals)
    return arrays


def _kernel(value: float | None) -> cv.Kernel:
    return cv.Cosine() if value is None else cv.Gaussian(value)


if __name__ == "__main__":
    harness.define_flags(output="results")
    command.run(main)
