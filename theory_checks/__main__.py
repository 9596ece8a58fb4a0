"""Try the papers' statements: `python -m theory_checks [--only=PATTERN] [--budget=full] [--all]`.

Prints the errors of the papers with their counterexamples, every statement on request, and how many
statements held and failed. Exits non-zero when a verdict is not the one that the project stands by,
or a wrong version of a statement is taken for right.
"""

import dataclasses
import difflib
import fnmatch
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from condvendi_jax.cli import command
from condvendi_jax.cli.flags import flag, parse
from theory_checks import claim, evidence, report


@dataclasses.dataclass(frozen=True)
class Flags:
    """Try the papers' statements."""

    only: str | None = flag(None, "Claims whose name matches this shell pattern or contains it.")
    all: bool = flag(False, "Print every claim, not only what is false.")
    mutants: bool = flag(False, "Try the wrong versions of what holds, too.")
    seed: int = flag(0, "Seed of every random trial.", at_least=0)
    budget: str = flag("quick", "How much work to spend.", choices=tuple(evidence.BUDGETS))
    document: str | None = flag(
        None, "Renew the generated parts of docs/theory.md.", excludes=("only",)
    )


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
    words, given = parse(Flags, argv[1:])
    if words:
        raise ValueError(f"unexpected argument {words[0]!r}.")
    chosen = select(given.only, claim.registry())
    if given.document:
        report.renewed(given.document, dict.fromkeys(report.PARTS, ""))
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
    everything = given.all or given.only is not None
    page = report.page(outcomes, everything=everything, unexpected=wrong, wrong_versions=rejected)
    Console(width=None if sys.stdout.isatty() else 200).print(Text(page))
    if given.document:
        report.insert(given.document, report.documents(outcomes, wrong_versions=rejected))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    command.run(main)
