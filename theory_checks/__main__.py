"""Try the papers' statements: `python -m theory_checks [--only=PATTERN] [--budget=full] [--all]`.

Prints the errors of the papers with their counterexamples, every statement on request, and how many
statements held and failed. Exits non-zero when a verdict is not the one that the project stands by,
or a wrong version of a statement is taken for right.
"""

import argparse
import difflib
import fnmatch
import sys
from collections.abc import Mapping

from rich.console import Console

from condvendi_jax.cli import command
from theory_checks import claim, evidence, report


def parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    made = argparse.ArgumentParser("python -m theory_checks", allow_abbrev=False)
    switch = argparse.BooleanOptionalAction
    words = "Try the claims whose name matches this shell pattern, or contains it."
    made.add_argument("--only", help=words)
    words = "Print every claim, not only what is false."
    made.add_argument("--all", action=switch, default=False, help=words)
    words = "Try the wrong versions of what holds, too."
    made.add_argument("--mutants", action=switch, default=False, help=words)
    made.add_argument("--seed", type=int, default=0, help="Seed of every random trial.")
    budgets = sorted(evidence.BUDGETS)
    made.add_argument("--budget", choices=budgets, default="quick", help="How much work to spend.")
    made.add_argument("--document", help="Renew the generated parts of docs/theory.md.")
    return made


def select(pattern: str | None, claims: dict[str, claim.Claim]) -> list[claim.Claim]:
    """Claims whose name matches the shell pattern or contains it.

    Raises:
        ValueError: nothing matches; the message lists the names.
    """
    if pattern is None:
        return list(claims.values())
    wide = pattern if any(character in pattern for character in "*?[") else f"*{pattern}*"
    chosen = [entry for name, entry in claims.items() if fnmatch.fnmatchcase(name, wide)]
    if not chosen:
        near = difflib.get_close_matches(pattern.lower(), claims) or claims
        raise ValueError(f"--only: no claim matches {pattern!r}; there are {', '.join(near)}.")
    return chosen


def unexpected(entry: claim.Claim, tried: Mapping[str, claim.Tried]) -> list[str]:
    """One line for every verdict, on a form or a wrong version, that is not the expected one."""
    return [
        f"{entry.name}, {name}: {found.judgement.verdict.value}, expected {found.expected.value}; "
        f"{found.judgement.detail}"
        for name, found in tried.items()
        if not found.as_expected
    ]


def main(argv: list[str]) -> int:
    """Tries, prints, writes, and says whether the verdicts are the expected ones."""
    given = parser().parse_args(argv[1:])
    if given.seed < 0:
        raise ValueError(f"--seed: expected a number from 0, received {given.seed}.")
    chosen = select(given.only, claim.registry())
    if given.document and given.only:
        raise ValueError("--document: the document holds every claim; leave --only away.")
    if given.document:
        report.check_marks(given.document)
    seed, budget = given.seed, evidence.BUDGETS[given.budget]
    outcomes: list[claim.Outcome] = []
    wrong: list[str] = []
    rejected = 0 if given.mutants else None
    with command.progress_bar() as progress:
        task = progress.add_task("", total=len(chosen))
        for entry in chosen:
            progress.update(task, description=entry.name)
            outcomes.append(claim.try_claim(entry, seed=seed, budget=budget))
            wrong += unexpected(entry, outcomes[-1].tried)
            if rejected is not None:
                tried = claim.other_way_round(outcomes[-1])
                tried |= claim.try_mutants(entry, seed=seed, budget=budget)
                tried |= claim.try_narrowed(entry, seed=seed, budget=budget)
                wrong += unexpected(entry, tried)
                verdicts = [found.judgement.verdict for found in tried.values()]
                rejected += verdicts.count(evidence.Verdict.FALSE)
            progress.advance(task)
    console = Console(width=None if sys.stdout.isatty() else 200)
    everything = given.all or given.only is not None
    console.print(
        report.pages(outcomes, everything=everything, unexpected=wrong, wrong_versions=rejected)
    )
    if given.document:
        report.insert(given.document, report.documents(outcomes, wrong_versions=rejected))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    command.run(main)
