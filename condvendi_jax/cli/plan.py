"""`condvendi plan`: how many prompts, and answers to each, a difference takes, from a pilot."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from condvendi_jax.cli import compare, options
from condvendi_jax.cli.options import Target, option
from condvendi_jax.inference import planning


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(compare.Options):
    """Prompts, and answers to each, for a difference of two models, from a pilot.

    usage: condvendi plan a.jsonl b.jsonl [--ratio=1.1] [--flag=value ...]
           condvendi plan a.jsonl --budget=2000 --prompt_cost=5 [--flag=value ...]

    The pilot is as in `condvendi compare`; or one model, as if a second had the same spread.
    """

    order: tuple[float, ...] = option((2.0,), "Renyi orders of the pilot's scores, 2 among them.")
    ratio: float | None = option(
        None,
        "The ratio of two scores that is to be found; 1.1 if unset, without a budget.",
        excludes=("difference",),
    )
    difference: float | None = option(None, "Their difference, in place of the ratio.")
    power: float = option(planning.POWER, "How often it is to be found.")
    most_prompts: int | None = option(None, "The most prompts that there are.")
    answers: int | None = option(None, "Answers to each prompt; the best number if unset.")
    prompt_cost: float = option(0.0, "The cost of a prompt, for each model.")
    answer_cost: float = option(1.0, "The cost of an answer.")
    budget: float | None = option(None, "The most that a model may cost.")
    figure: Target | None = option(
        None, "Also draw the sizes to this file.", endings=(".png", ".pdf", ".svg")
    )


def main(argv: Sequence[str]) -> None:
    """Reads, compares, plans, prints, writes."""
    words, given = options.parse(Options, argv)
    read, pilot, started = compare.read_and_compare(words, given, several=None)
    planned = planning.plan(
        pilot,
        ratio=given.ratio,
        difference=given.difference,
        power=given.power,
        prompts=given.most_prompts,
        answers=given.answers,
        prompt_cost=given.prompt_cost,
        answer_cost=given.answer_cost,
        budget=given.budget,
    )
    further = compare.tables(pilot) | {"figure": lambda path: options.draw(planned, path)}
    read_from, over = (read.described, read.notes, ()), pilot.profile
    options.write(given, pilot, *read_from, further, profile=over, since=started, plan=planned)
