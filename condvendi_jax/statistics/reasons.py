"""Why there is no number, no error or no test: one sentence each, which travels with the NaN."""

from collections.abc import Sequence


class Reason(str):
    """Why a number is missing, or a difference is not tested, in words."""


class Saturated(Reason):
    """That scores are nearly at a limit, where they tell nothing apart."""


NO_ERRORS = Reason("standard errors were not computed of every order")
NO_PAIRS = Reason("no two rows have similar prompts: give several answers to each prompt")
ALL_DIFFERENT = Reason("no two outputs to similar prompts count as the same: use a wider bandwidth")
ONE_PROMPT = Reason(
    "without one of the groups all rows have the same prompt, for which conditional and "
    "information say nothing"
)
ONE_HAS_PAIRS = Reason(
    "without one of the groups no two rows have similar prompts: give several answers to more "
    "prompts"
)
ONE_UNIT = Reason("all rows that count, of prompts with several answers, are in one group")
SPLIT = Reason("the labels of the groups split the answers to a prompt")
DESIGNS = Reason("models differ in their numbers or weights of rows, with which scores grow")
GROWING = Reason("models differ in their prompts or answers to each, with which scores grow")
ALONE = Reason(
    "no two outputs that could be compared are alike; give several answers to each prompt"
)
FEW_ROWS = Saturated("there are too few rows for so many different outputs")
OVERFLOW = Reason("their errors are unknown")
IDENTICAL = Saturated("the models have the same outputs")
EQUAL = Saturated("all values are equal up to rounding")
SCRIPTS = Reason("models write in different scripts, which an encoder of one language confuses")


def in_words(units: str) -> str:
    """What a group is, in words: prompts, where it is the rows of one."""
    return "prompts" if units == "rows of one prompt" else units


def too_few(groups: int, units: str, needed: int) -> Reason:
    """That there are too few groups for a test."""
    return Reason(f"{groups} groups of {in_words(units)} are too few: a test needs {needed}")


def first(reasons: Sequence[Reason | None]) -> Reason | None:
    """The first reason that there is."""
    return next(filter(None, reasons), None)
