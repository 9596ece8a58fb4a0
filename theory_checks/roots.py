"""The root errors: each is counted once, however many statements hang on it."""

import dataclasses
import enum

from theory_checks import statements


class Severity(enum.Enum):
    """What a root error does."""

    SLIP = "slip: the argument around it stands"
    CONSTANT = "constant or condition: the result stands in another size"
    RESULT = "result: the statement itself fails"
    USE = "use: a reader who follows it goes wrong"


@dataclasses.dataclass(frozen=True)
class Root:
    """One error of the papers.

    Attributes:
        title: a few words ('a norm is bounded by the bound of its square').
        printed: LaTeX of what stands in the paper.
        corrected: LaTeX of what should.
        shown_by: name of the claim whose counterexample shows it best.
        severity: what it does.
        meaning: one sentence for users of the scores.
    """

    title: str
    printed: str
    corrected: str
    shown_by: str
    severity: Severity
    meaning: str


ROOTS = {
    key: Root(**{**table, "severity": Severity[table["severity"].upper()]})
    for key, table in statements.read("roots").items()
}
"""Every root error by its key, in the order of docs/theory.md."""
