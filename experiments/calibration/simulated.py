"""What the simulations beside this file share: populations of prompts, and their command."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.cli.flags import flag
from experiments.lab import runner

SCORES = ("vendi", "conditional", "information")
KINDS = ("mild", "heavy", "bimodal")
EACH = 8  # Answers to a prompt, where rows depend on each other.
EXACT: dict[str, Any] = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}


@functools.cache
def answers_of(kind: str) -> np.ndarray:
    """The probabilities of 40 answers to each of 400 equally likely prompts, `[400, 40]`.

    Mild prompts have six answers. Heavy ones prefer one answer, with a log-normal probability that
    two answers agree. Of bimodal ones, a tenth has one answer and the others have twenty.
    """
    rng, shares = np.random.default_rng(7), np.zeros((400, 40))
    if kind == "heavy":
        agreeing = np.exp(np.log(0.05) + stats.norm.ppf((np.arange(400) + 0.5) / 400))
        most = np.sqrt(np.minimum(agreeing, 0.95))
        shares += ((1 - most) / 39)[:, None]
        shares[np.arange(400), rng.integers(40, size=400)] = most
        return shares
    for prompt, row in enumerate(shares):
        count = 6 if kind == "mild" else 1 if prompt < 40 else 20
        row[rng.choice(40, count, replace=False)] = rng.dirichlet(np.ones(count))
    return shares


def numbers(rng: Any, count: int, k: int, unequal: bool) -> Any:
    """How many answers each of some prompts has: k, or 2 to 2k."""
    return rng.permutation(np.resize(np.arange(2, 2 * k + 1), count)) if unequal else k


def draw_answers(rng: Any, kind: str, prompts: np.ndarray, counts: Any) -> tuple[Any, Any]:
    """`counts` answers to each of some prompts; a prompt that is drawn twice is two prompts."""
    copies = rng.multinomial(counts, answers_of(kind)[prompts])
    prompt, answer = np.nonzero(copies)
    rows = np.repeat(np.stack([answer, prompt], axis=1), copies[prompt, answer], axis=0)
    return np.float32(rows[:, :1]), np.float32(rows[:, 1:])


def run(cells: Callable[..., Iterator[dict[str, Any]]], fewest: int = 1) -> None:
    """The command that prints each cell as JSON. Its flags are the parameters of `cells`."""
    entries: list[Any] = []
    for name, parameter in inspect.signature(cells).parameters.items():
        default = parameter.default
        values = default if isinstance(default, tuple) else (default,)
        numbers = isinstance(values[0], int)
        rules: Any = {"at_least": fewest} if numbers else {"choices": values}
        kind: Any = int if numbers else str
        kind = tuple[kind, ...] if isinstance(default, tuple) else kind
        entries.append((name, kind, flag(default, f"{name}.", **rules)))

    def main(_: list[str], given: Any) -> None:
        for cell in cells(**vars(given)):
            print(json.dumps(cell), flush=True)

    runner.run_program(main, dataclasses.make_dataclass("Flags", entries, frozen=True))
