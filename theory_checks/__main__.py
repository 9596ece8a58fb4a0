"""Try the papers' statements: `python -m theory_checks [--only=PATTERN] [--budget=full]`.

Exits non-zero when a verdict is not the one that the project stands by.
"""

import fnmatch
import sys

from absl import flags
from rich.console import Console

from condvendi_jax import command, files
from theory_checks import claim, report

_ONLY = flags.DEFINE_string(
    "only", None, "Try the claims whose name matches this shell pattern, or contains it."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of every random trial.", lower_bound=0)
_BUDGET = flags.DEFINE_enum("budget", "quick", sorted(claim.BUDGETS), "How much work to spend.")
_OUTPUT = flags.DEFINE_string("output", None, "Write the report as JSON to this path.")
_TABLE = flags.DEFINE_string("table", None, "Write the table of docs/theory.md to this path.")


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
        names = "\n  ".join(claims)
        raise ValueError(f"--only: no claim matches {pattern!r}. The claims are\n  {names}")
    return chosen


def try_all(claims: list[claim.Claim], *, seed: int, budget: claim.Budget) -> list[claim.Outcome]:
    """Tries the claims in turn, with a progress bar."""
    outcomes = []
    with command.progress_bar() as progress:
        task = progress.add_task("", total=len(claims))
        for entry in claims:
            progress.update(task, description=entry.name)
            outcomes.append(claim.try_claim(entry, seed=seed, budget=budget))
            progress.advance(task)
    return outcomes


def main(argv: list[str]) -> int:
    """Tries, prints, writes, and says whether the verdicts are the expected ones."""
    command.no_words(argv[1:])
    chosen = select(_ONLY.value, claim.registry())
    budget = claim.BUDGETS[_BUDGET.value]
    if _OUTPUT.value:
        files.check_writable(_OUTPUT.value)
    outcomes = try_all(chosen, seed=_SEED.value, budget=budget)
    Console(width=None if sys.stdout.isatty() else 200).print(report.terminal_table(outcomes))
    if _OUTPUT.value:
        files.write_json(
            _OUTPUT.value, report.to_json(outcomes, seed=_SEED.value, budget=budget.name)
        )
    if _TABLE.value:
        report.insert_table(_TABLE.value, report.markdown(outcomes))
    surprises = [outcome for outcome in outcomes if not outcome.as_expected]
    for outcome in surprises:
        print(
            f"{outcome.claim.name}: {outcome.judgement.verdict.value}, "
            f"expected {outcome.claim.expected.value}; {outcome.judgement.detail}",
            file=sys.stderr,
        )
    return 1 if surprises else 0


if __name__ == "__main__":
    command.run(main)
