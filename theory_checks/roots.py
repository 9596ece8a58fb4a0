"""The root errors: each is counted once, however many statements go back to it."""

import dataclasses
import enum

from theory_checks import statements


class Severity(enum.Enum):
    """What a root error does; the words are the headings of docs/theory.md."""

    RESULT = "A result fails"
    BOUND = "A constant or a condition fails; the result stands in another form"
    SLIP = "A display has a slip; the argument around it stands"
    READING = "Readings to avoid: the paper does not state them, but a reader might"


@dataclasses.dataclass(frozen=True)
class Root:
    """One error of the papers.

    Attributes:
        title: where it stands, in a few words.
        severity: what it does.
        shown_by: name of the claim whose counterexample shows it best.
        example: a sentence on that counterexample, with its sides as {lhs} and {rhs}.
        meaning: what it means for users of the scores.
        corrected: what replaces it, with a link, where the root stands on the first page.
    """

    title: str
    severity: Severity
    shown_by: str
    example: str
    meaning: str

    corrected: str = ""


ROOTS = {
    key: Root(**{**table, "severity": Severity[table["severity"].upper()]})
    for key, table in statements.read("roots").items()
}
"""Every root error by its key, in the order of docs/theory.md."""
