"""`condvendi plan`: how many prompts, and answers to each, a difference takes, from a pilot."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from condvendi_jax.base import checks
from condvendi_jax.cli import compare, options
from condvendi_jax.cli.options import option
from condvendi_jax.inference import planning
from condvendi_jax.results.ranking import FEWEST_TESTED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(compare.Options):
    """Plans a study from a small first one, the pilot: how many prompts and answers it needs.

    usage: condvendi plan a.jsonl b.jsonl [--ratio=1.1] [--flag=value ...]
           condvendi plan a.jsonl --budget=2000 --prompt_cost=5 [--flag=value ...]

    Give the files of the pilot as for `condvendi compare`. With one model, a second one with the
    same spread is assumed. --json and --csv write the plan.
    """

    order: tuple[float, ...] = option((2.0,), "Renyi orders of the pilot's scores, 2 among them.")
    ratio: float | None = option(
        None, "The ratio of two scores that the study should find; 1.1 if unset, without a budget."
    )
    most_prompts: int | None = option(
        None,
        "The largest number of prompts that you have.",
        check=functools.partial(checks.check_count, name="most_prompts", minimum=FEWEST_TESTED),
    )
    prompt_cost: float = option(0.0, "The cost of a prompt, where an answer costs one.")
    budget: float | None = option(None, "The most that prompts and answers of one model may cost.")


def main(argv: Sequence[str]) -> None:
    """Reads, compares, plans, prints, writes."""
    words, given = options.parse(Options, argv)
    if given.quality_field is not None:
        raise ValueError("--quality_field: has no effect on a plan; leave it out.")
    read, pilot = compare.read_and_compare(words, given)
    planned = planning.plan(
        pilot,
        ratio=given.ratio,
        prompts=given.most_prompts,
        prompt_cost=given.prompt_cost,
        budget=given.budget,
    )
    options.write(given, pilot, read, plan=planned)
