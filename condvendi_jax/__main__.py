"""Scores a user's own embeddings: `python -m condvendi_jax --outputs=x.npy --prompts=t.npy`."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
from absl import flags
from rich import console, progress, table

import condvendi_jax as cv
from condvendi_jax import (
    bandwidth,
    command,
    estimators,
    files,
    provenance,
    scores,
    uncertainty,
    validation,
)

_ERRORS_UP_TO = 2000

_OUTPUTS = flags.DEFINE_string(
    "outputs", None, "Embeddings of the outputs [n, d_x]: a .npy, .npz or .safetensors file."
)
_PROMPTS = flags.DEFINE_string(
    "prompts", None, "Embeddings of their prompts [n, d_t]; without them: Vendi and RKE alone."
)
_OUTPUTS_KEY = flags.DEFINE_string("outputs_key", None, "Which array of the outputs' file.")
_PROMPTS_KEY = flags.DEFINE_string("prompts_key", None, "Which array of the prompts' file.")
_KERNEL = flags.DEFINE_enum("kernel", "gaussian", ["gaussian", "cosine"], "The kernel of both.")
_OUTPUT_BANDWIDTH = flags.DEFINE_float(
    "output_bandwidth", None, "Gaussian bandwidth of the outputs, in their units; by rule if unset."
)
_PROMPT_BANDWIDTH = flags.DEFINE_float(
    "prompt_bandwidth", None, "Gaussian bandwidth of the prompts, in their units; by rule if unset."
)
_RULE = flags.DEFINE_enum(
    "rule",
    "variance",
    list(bandwidth.RULES),
    "How an unset bandwidth is chosen: the smallest whose RKE over disjoint subsets has a variance "
    "(CV) or a standard deviation (RKE) below 0.01, or the median distance.",
)
_ORDER = flags.DEFINE_list("order", ["1", "2"], "Renyi orders above 0, 'inf' included.")
_TRUNCATION = flags.DEFINE_integer(
    "truncation", None, "How many eigenvalues every entropy keeps (CV eq. 13); all if unset."
)
_GROUPS = flags.DEFINE_integer("groups", uncertainty.DEFAULT_GROUPS, "Groups of the jackknife.")
_ERRORS = flags.DEFINE_enum(
    "errors",
    "auto",
    ["auto", "all", "none"],
    f"Standard errors: 'auto' leaves them out above n = {_ERRORS_UP_TO:,} where they take one "
    "decomposition a group (every order but 2).",
)
_METHOD = flags.DEFINE_enum(
    "method",
    "auto",
    list(scores.METHODS),
    "How spectra are computed: 'exact' takes all eigenvalues; 'stored' and 'matrix-free' estimate "
    "them, with a 95% interval, from products with the n x n matrices, which are kept or never "
    "formed; 'auto' is exact up to n = 4,096, then stored while they fit in memory.",
)
_RTOL = flags.DEFINE_float(
    "rtol",
    estimators.DEFAULT_RTOL,
    "Relative half width of the intervals that an estimated score is refined to.",
)
_JSON = flags.DEFINE_string("json", None, "Also write the results, with provenance, to this file.")
_SEED = flags.DEFINE_integer(
    "seed", 0, "Of the bandwidth rule's subsets, the jackknife and the estimator's probes."
)
_X64 = flags.DEFINE_bool("x64", False, "Compute in float64.")


def main(argv: list[str]) -> None:
    """Reads, scores, prints, writes."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}; flags are written --name=value.")
    if _OUTPUTS.value is None:
        raise ValueError("--outputs is required; --help lists all flags.")
    _check_flags()
    jax.config.update("jax_enable_x64", _X64.value)
    started = time.perf_counter()
    if _JSON.value:
        files.check_writable(_JSON.value)
    orders = [_parse_order(text) for text in _ORDER.value or [""]]
    report = _score(orders)
    report["seconds"] = time.perf_counter() - started
    _show(report)
    if _JSON.value:
        files.write_json(_JSON.value, report)


def _check_flags() -> None:
    """Refuses, before anything is read, what would be refused or ignored later."""
    given = _OUTPUT_BANDWIDTH.value is not None or _PROMPT_BANDWIDTH.value is not None
    if given and _KERNEL.value == "cosine":
        raise ValueError("the cosine kernel has no bandwidth; give none, or --kernel=gaussian.")
    if _PROMPTS.value is None and _PROMPT_BANDWIDTH.value is not None:
        raise ValueError("--prompt_bandwidth without --prompts: there is nothing to use it on.")
    validation.check_truncation(_TRUNCATION.value)
    if not 0 < _RTOL.value < 1:
        raise ValueError(f"--rtol: expected a number between 0 and 1, received {_RTOL.value}.")
    validation.check_count(_GROUPS.value, name="groups", minimum=2)


def _parse_order(text: str) -> float:
    try:
        return validation.check_order(float(text))
    except ValueError as error:
        raise ValueError(
            f"--order: expected numbers above 0 or 'inf', received {text!r}."
        ) from error


def _score(orders: list[float]) -> dict[str, Any]:
    """All that is computed, as data."""
    outputs = files.read_array(str(_OUTPUTS.value), key=_OUTPUTS_KEY.value)
    arrays = {"outputs": outputs}
    if _PROMPTS.value is not None:
        arrays["prompts"] = files.read_array(_PROMPTS.value, key=_PROMPTS_KEY.value)
        arrays = dict(zip(arrays, validation.check_pairs(*arrays.values()), strict=True))
    else:
        arrays = {"outputs": validation.check_embeddings(outputs, name="outputs")}
    n = arrays["outputs"].shape[0]
    rule_key, jackknife_key = jax.random.split(jax.random.key(_SEED.value))
    probe_key = jax.random.fold_in(jax.random.key(_SEED.value), 2)
    with command.progress_bar() as bar:
        chosen = {
            name: _choose_kernel(array, given, jax.random.fold_in(rule_key, index), bar, name)
            for index, (name, array, given) in enumerate(
                zip(
                    arrays,
                    arrays.values(),
                    (_OUTPUT_BANDWIDTH.value, _PROMPT_BANDWIDTH.value),
                    strict=False,
                )
            )
        }
        kernels = [kernel for kernel, _ in chosen.values()]
        keys = jackknife_key, probe_key
        results = [_score_order(arrays, kernels, order, keys, bar) for order in orders]
    return {
        "n": n,
        "dtype": str(arrays["outputs"].dtype),
        "kernel": _KERNEL.value,
        "bandwidths": {name: description for name, (_, description) in chosen.items()},
        "truncation": _TRUNCATION.value,
        "seed": _SEED.value,
        "files": {"outputs": _OUTPUTS.value, "prompts": _PROMPTS.value},
        "scores": results,
        "provenance": provenance.collect(),
    }


def _choose_kernel(
    points: jax.Array, given: float | None, key: jax.Array, bar: progress.Progress, name: str
) -> tuple[cv.Kernel, dict[str, Any]]:
    """The kernel, and where its bandwidth comes from."""
    if _KERNEL.value == "cosine":
        return cv.Cosine(), {"bandwidth": None, "rule": "none: the cosine kernel has no bandwidth"}
    if given is not None:
        return cv.Gaussian(given), {"bandwidth": given, "rule": "given"}
    if points.shape[0] == 1:
        return cv.Gaussian(1.0), {"bandwidth": 1.0, "rule": "arbitrary: n = 1"}
    task = bar.add_task(f"bandwidth of {name}", total=bandwidth.DEFAULT_SUBSETS)
    try:
        chosen = bandwidth.bandwidth_by_rule(
            points, _RULE.value, key=key, progress=lambda: bar.advance(task)
        )
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return cv.Gaussian(chosen.bandwidth), chosen._asdict()


def _score_order(
    arrays: dict[str, jax.Array],
    kernels: list[cv.Kernel],
    order: float,
    keys: tuple[jax.Array, jax.Array],
    bar: progress.Progress,
) -> dict[str, Any]:
    """The scores of one order with their standard errors and intervals, as plain numbers."""
    key, probe_key = keys
    n = arrays["outputs"].shape[0]
    one_pass = order == 2 and _TRUNCATION.value is None and len(arrays) == 2
    cheap = one_pass or n <= _ERRORS_UP_TO
    wanted = _ERRORS.value == "all" or (_ERRORS.value == "auto" and cheap)
    groups = min(_GROUPS.value, n) if n > 1 else _GROUPS.value
    options = {"order": order, "truncation": _TRUNCATION.value}
    task = bar.add_task(f"order {order:g}", total=2 if one_pass else 1 + (groups + 1) * wanted)

    def advance() -> None:
        bar.advance(task)

    estimator: dict[str, Any] = {"method": _METHOD.value, "key": probe_key, "rtol": _RTOL.value}
    entropies: dict[str, float] = {}
    errors: dict[str, Any] = {}
    if len(arrays) == 1:
        (outputs,) = arrays.values()
        found = scores.vendi_with_interval(outputs, kernel=kernels[0], **options, **estimator)
        advance()
        values, intervals = {"vendi": found.vendi}, {"vendi": found.interval}
        if wanted:

            def score(outputs: jax.Array) -> jax.Array:
                value = cv.vendi(outputs, kernel=kernels[0], **options, method="exact")
                advance()
                return value

            errors["vendi"] = uncertainty.standard_error(score, outputs, key=key, groups=groups)
    else:
        named = dict(zip(("output_kernel", "prompt_kernel"), kernels, strict=True))
        found = cv.decompose(*arrays.values(), **named, **options, **estimator)
        advance()
        values = {name: getattr(found, name) for name in scores.PerScore._fields}
        intervals = found.estimation.intervals._asdict() if found.estimation else {}
        entropies = {
            name: float(getattr(found, name))
            for name in ("entropy_outputs", "entropy_prompts", "entropy_joint")
        }
        if wanted:
            errors = uncertainty.decomposition_errors(
                *arrays.values(), **named, **options, key=key, groups=groups, progress=advance
            )._asdict()
    return {
        "order": "inf" if np.isinf(order) else order,
        "method": found.method,
        **{name: float(value) for name, value in values.items()},
        "intervals": {name: list(ends) for name, ends in intervals.items() if ends} or None,
        "standard_errors": {name: float(value) for name, value in errors.items()} or None,
        "groups": groups if errors else None,
        **entropies,
    }


def _show(report: dict[str, Any]) -> None:
    """Prints the table; rounding happens here and nowhere else."""
    out = console.Console(highlight=False)
    size = f"n = {report['n']:,}, {report['dtype']}"
    truncation = report["truncation"]
    cut = "" if truncation is None else f", truncated at t = {truncation:,}"
    grid = table.Table(title=f"{size}, {report['kernel']} kernel{cut}", title_justify="left")
    names = {1.0: "1 (Vendi)", 2.0: "2 (RKE)"}
    columns = [
        name for name in ("vendi", "conditional", "information") if name in report["scores"][0]
    ]
    headings = {
        "vendi": "H(X)",
        "conditional": "conditional H(X|T)",
        "information": "information I(X;T)",
    }
    grid.add_column("order")
    for name in columns:
        grid.add_column(f"exp {headings[name]}", justify="right")
    for row in report["scores"]:
        errors, intervals = row["standard_errors"] or {}, row["intervals"] or {}
        cells = [
            f"{row[name]:.4g}"
            + (f" ± {errors[name]:.2g}" if name in errors else "")
            + (" [{:.4g}, {:.4g}]".format(*intervals[name]) if name in intervals else "")
            for name in columns
        ]
        grid.add_row(names.get(row["order"], str(row["order"])), *cells)
    out.print(grid)
    for name, chosen in report["bandwidths"].items():
        value = "" if chosen["bandwidth"] is None else f"{chosen['bandwidth']:.4g}, "
        out.print(f"bandwidth of {name}: {value}{chosen['rule']}", soft_wrap=True)
    estimated = [row for row in report["scores"] if row["intervals"]]
    for row in estimated:
        out.print(
            f"order {row['order']}: estimated ({row['method']}), with the 95% interval of what all "
            "eigenvalues would give.",
            soft_wrap=True,
        )
    if all(row["standard_errors"] is None for row in report["scores"]):
        out.print("no standard errors were computed.")
    elif any(row["standard_errors"] is None for row in report["scores"]):
        out.print(
            f"no standard error where it takes a decomposition a group and n > {_ERRORS_UP_TO:,}: "
            "--errors=all computes it.",
            soft_wrap=True,
        )


if __name__ == "__main__":
    command.run(main)
