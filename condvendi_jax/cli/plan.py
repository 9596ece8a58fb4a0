"""`condvendi plan`: how many prompts, and answers to each, a difference takes, from a pilot."""

import dataclasses
from collections.abc import Sequence

from condvendi_jax.base import checks
from condvendi_jax.cli import compare, flags, options
from condvendi_jax.cli.flags import flag
from condvendi_jax.inference import planning
from condvendi_jax.statistics.power import FEWEST_TESTED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(compare.Options):
    """Plans a study from a small first one, the pilot: how many prompts and answers it needs.

    usage: condvendi plan a.jsonl b.jsonl [--ratio=1.1] [--flag=value ...]
           condvendi plan a.jsonl --budget=2000 --prompt_cost=5 [--flag=value ...]

    Give the files of the pilot as for `condvendi compare`. With one model, a second one with the
    same spread is assumed. --json and --csv write the plan.
    """

    order: tuple[float, ...] = flag(
        (2.0,), "Renyi orders of the pilot's scores, 2 among them.", check=checks.check_order
    )
    ratio: float | None = flag(
        None, "The ratio of two scores that the study should find; 1.1 if unset, without a budget."
    )
    most_prompts: int | None = flag(
        None, "The largest number of prompts that you have.", at_least=FEWEST_TESTED
    )
    prompt_cost: float = flag(0.0, "The cost of a prompt, where an answer costs one.")
    budget: float | None = flag(None, "The most that prompts and answers of one model may cost.")


def main(argv: Sequence[str]) -> None:
    """Reads, compares, plans, prints, writes."""
    words, given = flags.parse(Options, argv)
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
