"""How fast, how large and how exact: the engines against their peers and the machine's limit.

python -m experiments.scaling                 # minutes
python -m experiments.scaling --full          # hours
python -m experiments.scaling --output=experiments/results && python -m experiments.plots
"""

from __future__ import annotations

import datetime
import math
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
from absl import flags
from rich import console, table

from condvendi_jax import bandwidth, command, files, validation
from experiments import harness
from experiments.scaling import report, study
from experiments.scaling.processes import Worker

_FULL = flags.DEFINE_bool("full", False, "Sizes up to what fits, 200 seeds: hours.")
_PARTS = flags.DEFINE_list(
    "parts",
    ["order2", "exact", "measure", "start"],
    "What is measured, of these: order 2, exact spectra, the spectral measure, the cold start.",
)
_ORDER_TWO_N = flags.DEFINE_integer("order_two_n", None, "The largest n of order 2.")
_EXACT_N = flags.DEFINE_integer("exact_n", None, "The largest n of the exact spectra.")
_MEASURE_N = flags.DEFINE_integer("measure_n", None, "The largest n of the spectral measure.")
_OUTPUT_DIMENSION = flags.DEFINE_integer("output_dimension", 768, "d_x of the mixture.")
_PROMPT_DIMENSION = flags.DEFINE_integer("prompt_dimension", 512, "d_t of the mixture.")
_BANDWIDTH = flags.DEFINE_float("bandwidth", 0.7, "Of the mixture's outputs and prompts.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Rounds at most, after the first.")
_SEEDS = flags.DEFINE_integer("seeds", None, "Seeds that errors and coverage are taken over.")
_RTOL = flags.DEFINE_float("rtol", 2e-3, "The tolerance asked of the measure.")
_PATIENCE = flags.DEFINE_float(
    "patience", None, "Seconds; what should take longer for one call is left out."
)
_ENOUGH = flags.DEFINE_float(
    "enough", None, "Seconds; who took that long, after the first call, is not called again."
)
_PEERS = flags.DEFINE_list("peers", list(study.PACKAGES), "Packages compared with.")
_PARTS_BY_FLAG = {
    "order2": "order 2",
    "exact": "exact",
    "measure": "measure",
    "start": "cold start",
}
# Of the median distance: about what the papers' variance rule finds, and a far harder spectrum.
_NARROW = 0.65


class _Defaults(NamedTuple):
    """The largest n of each part, the seeds, the patience and what is enough, in seconds."""

    order_two_n: int
    exact_n: int
    measure_n: int
    seeds: int
    patience: float
    enough: float


_DEFAULTS = {
    ("cpu", False): _Defaults(20_000, 4000, 4000, 10, 30, 10),
    ("cpu", True): _Defaults(30_000, 16_000, 30_000, 200, 600, 60),
    ("accelerator", False): _Defaults(100_000, 8000, 32_000, 20, 10, 5),
    ("accelerator", True): _Defaults(1_000_000, 25_000, 100_000, 200, 60, 20),
}


def main(argv: list[str]) -> None:
    """Measures what is missing, saves, prints."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}; flags are written --name=value.")
    peers = _check_flags()
    # This process measures nothing and must not take the accelerator from those that do.
    jax.config.update("jax_platforms", "cpu")
    folder = pathlib.Path(flags.FLAGS.output)
    folder.mkdir(parents=True, exist_ok=True)
    with Worker("engines") as worker:
        device = worker.request("ask", function="describe")
    target = folder / f"scaling{_suffix(device)}.json"
    files.check_writable(target)
    with tempfile.TemporaryDirectory() as scratch:
        configuration = _configure(device, peers)
        data = _write_data(pathlib.Path(scratch), configuration)
        configuration["data"] = {name: _plain(of) for name, of in data.items()}
        store = harness.Store(target.with_suffix(".partial"), configuration)
        records = study.run(store, data, device["memory_bytes"], pathlib.Path(scratch))
        store.close()
    result = {
        "configuration": store.configuration,
        "provenance": device["provenance"]
        | {
            "cores": device["cores"],
            "peers": study.versions(peers),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
        "cells": records,
    }
    files.write_json(target, result)
    shutil.rmtree(store.folder)
    _print(report.load(target))
    print(target)


def _check_flags() -> list[str]:
    """The peers that are wanted and there; says in a line which are not."""
    _check_names(_PARTS, _PARTS_BY_FLAG)
    _check_names(_PEERS, study.PACKAGES)
    for flag in (_ORDER_TWO_N, _EXACT_N, _MEASURE_N, _OUTPUT_DIMENSION, _PROMPT_DIMENSION):
        if flag.value is not None:
            validation.check_count(flag.value, name=f"--{flag.name}", minimum=2)
    for flag in (_REPEATS, _SEEDS):
        if flag.value is not None:
            validation.check_count(flag.value, name=f"--{flag.name}", minimum=1)
    for flag in (_BANDWIDTH, _RTOL, _PATIENCE, _ENOUGH):
        if flag.value is not None and not 0 < flag.value < math.inf:
            raise ValueError(f"--{flag.name}: expected a positive number, received {flag.value}.")
    present, absences = study.find_peers(_PEERS.value)
    for line in absences:
        sys.stderr.write(line + "\n")
    return present


def _check_names(flag: Any, known: Collection[str]) -> None:
    unknown = [name for name in flag.value if name not in known]
    if unknown:
        raise ValueError(
            f"--{flag.name}: expected some of {', '.join(known)}, received {unknown[0]!r}."
        )


def _suffix(device: Mapping[str, Any]) -> str:
    """Nothing for a CPU, else the device's kind in the letters of a file name."""
    if device["platform"] == "cpu":
        return ""
    return "-" + re.sub(r"[^a-z0-9]+", "-", device["kind"].lower()).strip("-")


def _configure(device: Mapping[str, Any], peers: list[str]) -> dict[str, Any]:
    """Everything that the results depend on but the data, as plain data."""
    platform = "cpu" if device["platform"] == "cpu" else "accelerator"
    defaults = _DEFAULTS[platform, _FULL.value]

    def chosen(flag: Any) -> Any:
        return getattr(defaults, flag.name) if flag.value is None else flag.value

    return {
        "study": "scaling",
        "device": device["provenance"]["device"],
        "parts": [_PARTS_BY_FLAG[name] for name in _PARTS.value],
        "full": _FULL.value,
        "largest": {
            "order 2": chosen(_ORDER_TWO_N),
            "exact": chosen(_EXACT_N),
            "measure": chosen(_MEASURE_N),
        },
        "dimensions": [_OUTPUT_DIMENSION.value, _PROMPT_DIMENSION.value],
        "bandwidth": _BANDWIDTH.value,
        "repeats": _REPEATS.value,
        "seeds": chosen(_SEEDS),
        "rtol": _RTOL.value,
        "patience": chosen(_PATIENCE),
        "enough": chosen(_ENOUGH),
        "peers": peers,
        "seed": flags.FLAGS.seed,
    }


def _write_data(folder: pathlib.Path, configuration: Mapping[str, Any]) -> dict[str, study.DataSet]:
    """The mixture and the real data by name, their points in files that the workers read."""
    seed, dimensions = configuration["seed"], configuration["dimensions"]
    real = harness.load_data()
    largest = configuration["largest"]
    n = max((largest[part] for part in configuration["parts"] if part in largest), default=2)
    width = configuration["bandwidth"]
    description = f"mixture of 10 kinds of 10 modes, d = {dimensions[0]} and {dimensions[1]}"
    paths = study.write_mixture(folder, n, dimensions, seed)
    found = {"mixture": study.DataSet(description, *paths, n, (width, width))}
    paths = study.write_points(folder, real.name, real.outputs, real.prompts, seed)
    median = [
        bandwidth.median_heuristic(points, key=jax.random.key(seed))
        for points in (real.outputs, real.prompts)
    ]
    for suffix, scale in (("", 1.0), (", narrow", _NARROW)):
        widths = (float(scale * median[0]), float(scale * median[1]))
        found[real.name + suffix] = study.DataSet(real.description, *paths, len(real), widths)
    return found


def _plain(of: study.DataSet) -> dict[str, Any]:
    return {"description": of.description, "n": of.n, "bandwidths": of.bandwidths}


def _print(result: Mapping[str, Any]) -> None:
    """The targets and what was measured, and who was left out."""
    grid = table.Table("what", "target", "measured", "met")
    for row in report.rows(result):
        grid.add_row(row.what, row.target, row.measured, report.word(row.met))
    output = console.Console()
    output.print(grid)
    for record in result["cells"]:
        for name, reason in record["left_out"].items():
            where = f"{record['part']}, {record['data']}, n = {record['n']:,}"
            output.print(f"left out: {name} ({where}): {reason}", highlight=False, soft_wrap=True)
    shares = [of.get("idle_share", 0.0) for r in result["cells"] for of in r["results"].values()]
    output.print(f"waiting took a process at most {max(shares, default=0):.1%} of a core")
    output.print(f"on {report.machine(result)}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    harness.define_flags(output="results")
    command.run(main)
