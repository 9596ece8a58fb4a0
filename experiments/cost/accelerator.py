"""What the main programs take on one device, beside the arithmetic that they need.

    python -m experiments.accelerator                          # on an accelerator: 5 minutes
    python -m experiments.accelerator --programs='.*few dimensions'  # on a CPU: half an hour

Prints a Markdown table (docs/how_fast.md). "CPU s" are those of the last call, "error" is the
largest of the three norms against float64, up to n = 10,000.
"""

import functools
import pathlib
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags

import condvendi_jax as cv
from condvendi_jax.cli import command
from experiments.cost.scaling import engines, peers, points, reference
from experiments.cost.scaling.worker import Cell, Contestant
from experiments.cost.timing import spent
from experiments.lab import runner

_FLAGS = flags.FlagValues()
flags.DEFINE_string("programs", ".*", "Which of them: a regular expression.", flag_values=_FLAGS)
flags.DEFINE_multi_integer("n", [], "At which sizes; at all if none.", 2, flag_values=_FLAGS)
flags.DEFINE_float("enough", 2, "Seconds of later calls, of 1 to 5.", 0, flag_values=_FLAGS)

_D_X, _D_T = 768, 512
_FEW_DIMENSIONS = 64, 48
_FEW, _EMOJI = "mixture of few dimensions", "emoji of few dimensions"
_SIZES = 4000, 20_000, 50_000  # Of those.
_RTOL, _WIDER = 2e-3, 1e-2
_FLOAT64_UP_TO = 10_000


class Program(NamedTuple):
    """What is measured, at which sizes; the operations that it needs at n, where they are known."""

    make: Callable[[Cell], Contestant]
    sizes: tuple[int, ...]
    operations: Callable[[int], float] | None = None
    data: str = "mixture"


def _distances(n: int) -> float:
    return n**2 * (_D_X + _D_T)


def _tridiagonal(n: int) -> float:
    return 4 / 3 * n**3


def _by(method: str) -> Callable[[Cell], Contestant]:
    return functools.partial(engines.decompose, method)


PROGRAMS = {
    "order 2": Program(engines.tile_norms, (10_000, 25_000, 100_000, 10**6), _distances),
    "order 2, dense torch": Program(peers.torch_norms, (10_000, 25_000), _distances),
    "order 2, 16 bandwidths": Program(engines.many_bandwidths, (25_000, 100_000), _distances),
    "order 2, all prefixes": Program(engines.all_prefixes, (25_000, 100_000), _distances),
    "order 2, value and gradient": Program(
        engines.value_and_gradient, (25_000, 100_000), lambda n: _distances(n) + 2 * n**2 * _D_X
    ),
    "eigenvalues": Program(engines.spectrum, (4000, 10_000, 25_000), _tridiagonal),
    "eigenvalues, torch": Program(peers.torch_eigvalsh, (4000, 10_000), _tridiagonal),
    "scores of order 1, all eigenvalues": Program(_by("auto"), (4000,)),
    "scores of order 1, stored": Program(_by("stored"), (4000, 25_000, 60_000)),
    "scores of order 1, matrix-free": Program(_by("matrix-free"), (25_000, 100_000)),
    **{
        f"scores of order 1, matrix-free, {data}": Program(_by("matrix-free"), _SIZES, data=data)
        for data in (_FEW, _EMOJI)
    },
    "evaluate, with errors": Program(engines.evaluate, (1000, 10_000)),
}


def measure(program: Program, cell: Cell, enough: float, rate: float) -> list[str]:
    """The fields of a row after the program and n. `rate` are the machine's operations a second."""
    n = cell["n"]
    started = time.perf_counter()
    contestant = program.make(cell)
    result, cpu = None, 0.0

    def call(seed: int) -> float:
        nonlocal result, cpu
        cpu, seconds, result = spent(contestant.ready(seed))
        return seconds

    called = call(0)
    first = time.perf_counter() - started
    # What has known operations compiles nothing when called: a long first call is not repeated.
    seconds = [called] if program.operations and called > enough else []
    while not seconds or (sum(seconds) < enough and len(seconds) < 5):
        seconds.append(call(1 + len(seconds)))
    taken, values = statistics.median(seconds), contestant.read(result)
    beside = program.operations and f"{taken * rate / program.operations(n):.2f}"
    shown = {"outputs", "prompts", "joint"} <= values.keys() and n <= _FLOAT64_UP_TO
    error = f"{_error(values, cell):.1e}" if shown else ""
    intervals = [
        f"{name} {np.exp(of[0]):.4g} ± {(np.exp(of[2]) - np.exp(of[1])) / 2 / np.exp(of[0]):.2%}"
        for name, of in values.items()
        if np.ndim(of)
    ]
    times = f"{first:.2f}", f"{taken:.4g}", f"{cpu:.4g}"
    return [*times, beside or "", error, "; ".join(intervals)]


def _error(values: dict[str, Any], cell: Cell) -> float:
    """The largest relative error of the three norms."""
    right = reference.norms(cell)
    truth = right.read(right.ready(0)())
    return max(abs(values[name] / of - 1) for name, of in truth.items())


def write(folder: pathlib.Path, data: str, n: int) -> dict[str, Any]:
    """Writes the points of some data; gives what all their programs are asked for."""
    dimensions = (_D_X, _D_T) if data == "mixture" else _FEW_DIMENSIONS
    maker = points.write_emoji_like if data == _EMOJI else points.write_mixture
    bandwidths = maker(folder, data, n, dimensions, seed=0) or [0.7, 0.7]
    outputs, prompts = points.paths(folder, data)
    rtol = _RTOL if data == "mixture" else _WIDER
    files = {"outputs": outputs, "prompts": prompts}
    return files | {"bandwidths": bandwidths, "rtol": rtol}


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    given: dict[str, Any] = _FLAGS.flag_values_dict()
    chosen = {
        (name, n): program
        for name, program in PROGRAMS.items()
        for n in program.sizes
        if re.fullmatch(given["programs"], name) and n in (given["n"] or program.sizes)
    }
    if not chosen:
        names = ", ".join(PROGRAMS)
        raise ValueError(f"no program is one of --programs={given['programs']} and --n: {names}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        cells: dict[str, dict[str, Any]] = {
            data: write(folder, data, max(n for (_, n), p in chosen.items() if p.data == data))
            for data in {program.data for program in chosen.values()}
        }
        rate = _rate()
        print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, {rate / 1e12:.3g} TFLOP/s")
        data = points.mixture.describe((_D_X, _D_T))
        print(f"condvendi_jax {cv.__version__}; {data}, seed 0; bandwidths 0.7; rtol {_RTOL:g}\n")
        head = "program | n | first | seconds | CPU s | times the arithmetic | error | scores"
        print(f"| {head} |\n|{' --- |' * (head.count('|') + 1)}")
        for (name, n), program in chosen.items():
            try:
                fields = measure(program, cells[program.data] | {"n": n}, given["enough"], rate)
            except (ImportError, RuntimeError, ValueError) as error:
                fields = ["", "", "", "", "", str(error).partition("\n")[0]]
            print(f"| {' | '.join([name, f'{n:,}', *fields])} |", flush=True)


def _rate() -> float:
    """Operations a second of one large float32 matrix product."""
    product = engines.matrix_product({})
    seconds = min(spent(product.ready(0))[1] for _ in range(5))
    return product.read(None)["operations"] / seconds


if __name__ == "__main__":
    command.run(main, parse_flags=False)
