"""What the main programs take on one device, beside the arithmetic that they need.

    python -m experiments.accelerator                          # on an accelerator: 5 minutes
    python -m experiments.accelerator --programs='order 2.*' --n=10000 --n=25000

Prints a Markdown table, on the benchmark's mixture (d = 768 and 512). "First" are the seconds until
the first result, with what is compiled for it. "Seconds" are the median of later calls. "Times the
arithmetic" divides them by the time that one large float32 matrix product takes, in the same
process, for as many operations: n^2 (d_x + d_t) for the distances of all pairs, 2 n^2 d_x more for
the gradient in the outputs, 4/3 n^3 to bring a matrix to tridiagonal form. "Error" is the largest
of the three norms against float64, up to n = 10,000. ± is half the 95% interval of a score.
"""

from __future__ import annotations

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
from experiments.matrix_free import spent
from experiments.scaling import engines, peers, points, reference
from experiments.scaling.worker import Cell, Contestant

_FLAGS = flags.FlagValues()
flags.DEFINE_string("programs", ".*", "Which of them: a regular expression.", flag_values=_FLAGS)
flags.DEFINE_multi_integer("n", [], "At which sizes; at all if none.", 2, flag_values=_FLAGS)
flags.DEFINE_float("enough", 2, "Seconds of later calls, of 1 to 5.", 0, flag_values=_FLAGS)

_D_X, _D_T = 768, 512
_BANDWIDTHS = [0.7, 0.7]
_RTOL = 2e-3
_FLOAT64_UP_TO = 10_000


class Program(NamedTuple):
    """What is measured, at which sizes; the operations that it needs at n, where they are known."""

    make: Callable[[Cell], Contestant]
    sizes: tuple[int, ...]
    operations: Callable[[int], float] | None = None


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
    "scores of order 1, samples": Program(_by("sampled"), (10**6,)),
    "evaluate, with errors": Program(engines.evaluate, (1000, 10_000)),
}


def measure(program: Program, cell: Cell, enough: float, rate: float) -> list[str]:
    """The fields of a row after the program and n. `rate` are the machine's operations a second."""
    n = cell["n"]
    started = time.perf_counter()
    contestant = program.make(cell)
    result = None

    def call(seed: int) -> float:
        nonlocal result
        _, seconds, result = spent(contestant.ready(seed))
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
    return [f"{first:.2f}", f"{taken:.4g}", beside or "", error, "; ".join(intervals)]


def _error(values: dict[str, Any], cell: Cell) -> float:
    """The largest relative error of the three norms."""
    right = reference.norms(cell)
    truth = right.read(right.ready(0)())
    return max(abs(values[name] / of - 1) for name, of in truth.items())


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(command.parse(_FLAGS, argv))
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
        points.write_mixture(folder, "mixture", max(n for _, n in chosen), (_D_X, _D_T), seed=0)
        outputs, prompts = points.paths(folder, "mixture")
        cell = {
            "outputs": outputs,
            "prompts": prompts,
            "bandwidths": _BANDWIDTHS,
            "rtol": _RTOL,
            "features": 512,
        }
        rate = _rate()
        print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, {rate / 1e12:.3g} TFLOP/s")
        data = points.mixture.describe((_D_X, _D_T))
        print(f"condvendi_jax {cv.__version__}; {data}, seed 0; bandwidths 0.7; rtol {_RTOL:g}\n")
        head = "program | n | first | seconds | times the arithmetic | error | scores"
        print(f"| {head} |\n|{' --- |' * (head.count('|') + 1)}")
        for (name, n), program in chosen.items():
            try:
                fields = measure(program, cell | {"n": n}, given["enough"], rate)
            except (ImportError, RuntimeError, ValueError) as error:
                fields = ["", "", "", "", str(error).partition("\n")[0]]
            print(f"| {' | '.join([name, f'{n:,}', *fields])} |", flush=True)


def _rate() -> float:
    """Operations a second of one large float32 matrix product."""
    product = engines.matrix_product({})
    seconds = min(spent(product.ready(0))[1] for _ in range(5))
    return product.read(None)["operations"] / seconds


if __name__ == "__main__":
    command.run(main, parse_flags=False)
