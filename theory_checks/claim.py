"""A formal statement as data: whose it is, what it says, how it is tried, what would refute it.

A `Claim` holds a statement, where need be its corrected form, mutants of the form that holds, and
one evidence function that all of them share. The texts are in `statements/`. What the function gets
of a form are the formulas that its text displays (`latex.Formula`), or a value given in Python; a
mutant is another value, or another text. Each constant of a formula is a mutant as well: the claim
must fail when it is multiplied or divided by 1.25, or by the factor that `loose` states. So are the
versions that are true for a part of the populations alone, from one list (`narrowing.py`).

No verdict is typed in: the *expected* one is, and the report, the tests and the tables compare.
"""

import contextlib
import dataclasses
import enum
import functools
import importlib
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from theory_checks import latex, narrowing, roots, statements
from theory_checks.evidence import QUICK, Budget, Evidence, Judgement, Verdict, judge
from theory_checks.latex import Formula

double_precision = functools.partial(jax.enable_x64, True)
"""A block in which JAX computes in float64."""
STEP = 1.25
"""What a constant is changed by, where nothing else is stated."""
THEMES = (
    "identities", "concentration", "estimators", "limits", "mixtures", "guidance", "rke", "mid",
)  # fmt: skip


class Kind(enum.Enum):
    """Whose a statement is. Only a printed one can be false *as printed*.

    The name, in small letters, is the key of the statement in its file; the value is what a false
    one is called in the table.
    """

    PRINTED = "FALSE AS PRINTED"
    IMPLIED = "FALSE, THOUGH IMPLIED"
    READING = "FALSE IN OUR READING"
    OURS = "FALSE"


@dataclasses.dataclass(frozen=True)
class Form:
    """One wording of a statement.

    Attributes:
        latex: LaTeX without dollar signs, its formulas between ⟦ and ⟧.
        value: what else makes this form differ from the others, for the evidence function.
        assumptions: their conditions, between ⟦ and ⟧ too, follow the formulas.
        given: what stands in the place of the formulas of both.
    """

    latex: str
    value: Any = None
    assumptions: str = ""
    given: tuple[Formula, ...] | None = None

    @property
    def text(self) -> str:
        """As it is displayed."""
        return latex.shown(self.latex)

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """Of the text and the assumptions."""
        return latex.formulas(self.latex) + latex.formulas(self.assumptions)

    @property
    def argument(self) -> Any:
        """What the evidence function gets: the value, the formulas, or the value before them."""
        formulas = self.given or self.formulas
        if not formulas:
            return self.value
        return formulas if self.value is None else (self.value, *formulas)

    def swapped(self, old: str, new: str) -> "Form":
        """With another piece of text.

        Raises:
            ValueError: the piece is not in it.
        """
        if old not in self.latex + self.assumptions:
            raise ValueError(f"{old!r} is not in the statement {self.latex!r}.")
        text, assumed = (part.replace(old, new) for part in (self.latex, self.assumptions))
        return Form(text, self.value, assumed)


EvidenceFunction = Callable[[np.random.Generator, Budget, Any], Evidence]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A formal statement of a paper, its correction, and what would show either wrong.

    The texts are those of its table in `statements/`, which says what they are.

    Attributes:
        name: slug, unique; begins with the paper's key ('cv-theorem-3').
        paper: key into `statements.PAPERS`.
        kind: whose the statement is.
        stated: the statement.
        evidence: function of a NumPy generator, a `Budget` and a form's value.
        corrected: its corrected form, where it is false and can be repaired.
        mutants: wrong versions of the form that holds, by what was done to it, all to be judged
            FALSE: a value for the evidence function, or a piece of the text and what replaces it.
        loose, only, slack: what of the other wrong versions is not to be noticed.
        assumptions: in words or LaTeX between dollar signs.
        expected: the verdict on the stated form that the project stands by.
    """

    name: str
    paper: str
    source: str
    kind: Kind
    stated: Form
    evidence: EvidenceFunction
    corrected: Form | None = None
    mutants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    misprints: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    loose: Sequence[float] = ()
    only: Sequence[str] = ()
    slack: Sequence[str] = ()
    quote: str = ""
    assumptions: str = ""
    expected: Verdict = Verdict.HOLDS
    root: str | None = None
    proof: str | None = None
    beyond: bool = False
    note: str = ""

    @property
    def forms(self) -> dict[str, tuple[Form, Verdict]]:
        """The statements to be judged, 'stated' and 'corrected', with the expected verdicts."""
        found = {"stated": (self.stated, self.expected)}
        if self.corrected is not None:
            found["corrected"] = (self.corrected, Verdict.HOLDS)
        return found

    @property
    def holding(self) -> Form:
        """The form that holds: the corrected one where there is one."""
        return self.corrected or self.stated

    @property
    def holds(self) -> bool:
        """Whether there is a form that holds."""
        return self.expected is not Verdict.FALSE or self.corrected is not None

    def constants(self) -> Iterator[tuple[str, float, tuple[Form, ...]]]:
        """Every constant that the formulas display: it, its factor, the forms with it changed."""
        form, steps = self.holding, itertools.chain(self.loose, itertools.repeat(STEP))
        found = zip(latex.changed(form.latex), steps, strict=False) if self.holds else ()
        for (constant, times), factor in found:
            if factor < np.inf:
                texts = (times(factor), times(1 / factor))
                yield constant, factor, tuple(dataclasses.replace(form, latex=t) for t in texts)

    def label(self, verdict: Verdict) -> str:
        """The verdict on the stated form in the words of the table."""
        return self.kind.value if verdict is Verdict.FALSE else verdict.value


_REGISTRY: dict[str, Claim] = {}


def claim(
    name: str,
    *,
    stated: Any = None,
    corrected: Any = None,
    mutants: Mapping[str, Any] | None = None,
    expected: Verdict | None = None,
) -> Callable[[EvidenceFunction], EvidenceFunction]:
    """Register the decorated evidence function as the claim of this name in `statements/`.

    Args:
        name: of the table there.
        stated: what the evidence function gets for the statement.
        corrected: what it gets for the corrected form, where the table has one.
        mutants: what it gets for each wrong version of the form that holds.
        expected: the verdict on the statement that the project stands by; where not given, a
            statement with a correction is false and any other holds.

    Raises:
        ValueError: the name is taken or has no table, or the claim lacks what its verdict calls
            for.
    """

    def register(function: EvidenceFunction) -> EvidenceFunction:
        if name not in statements.texts():
            raise ValueError(f"claim {name!r}: there is no statement of this name.")
        fields = dict(statements.texts()[name])
        given = [kind for kind in Kind if kind.name.lower() in fields]
        if len(given) != 1:
            raise ValueError(f"claim {name!r}: needs one of printed, implied, reading and ours.")
        text, repaired = fields.pop(given[0].name.lower()), fields.pop("corrected", None)
        swaps = {fault: tuple(swap) for fault, swap in fields.pop("mutants", {}).items()}
        assumed = fields.get("assumptions", "")
        entry = Claim(
            name=name,
            kind=given[0],
            stated=Form(text, stated, assumed),
            evidence=function,
            corrected=None if repaired is None else Form(repaired, corrected, assumed),
            mutants={**(mutants or {}), **swaps},
            expected=expected or (Verdict.FALSE if repaired else Verdict.HOLDS),
            **fields,
        )
        _check(entry)
        _REGISTRY[name] = entry
        return function

    return register


def _check(entry: Claim) -> None:
    """What a claim must say, by its kind and its verdict."""
    false, ours = entry.expected is Verdict.FALSE, entry.kind is Kind.OURS
    mutable = entry.mutants or next(entry.constants(), None)
    faults = {
        "its name is taken": entry.name in _REGISTRY,
        "its name needs its paper's key first": not entry.name.startswith(f"{entry.paper}-"),
        "what is printed quotes its line": entry.kind is Kind.PRINTED and not entry.quote,
        "what holds needs a mutant": entry.holds and not mutable,
        "what is false needs its root": false and entry.root not in roots.ROOTS,
        "what holds has no root": not false and entry.root is not None,
        "what is ours must hold": false and ours,
        "what holds needs no correction": not false and entry.corrected is not None,
        "a result beyond the papers needs its proof": entry.beyond and not entry.proof,
    }
    for fault, found in faults.items():
        if found:
            raise ValueError(f"claim {entry.name!r}: {fault}.")


@functools.cache
def registry() -> dict[str, Claim]:
    """Every claim by name, in the order of the papers, after importing every theme.

    Raises:
        ValueError: a statement has no evidence.
    """
    for theme in THEMES:
        importlib.import_module(f"theory_checks.{theme}")
    missing = statements.texts().keys() - _REGISTRY.keys()
    if missing:
        raise ValueError(f"no evidence for {', '.join(sorted(missing))}.")
    return {name: _REGISTRY[name] for name in statements.texts()}


@dataclasses.dataclass(frozen=True)
class Tried:
    """One form of a claim after it was tried."""

    form: Form
    expected: Verdict
    evidence: Evidence

    @functools.cached_property
    def judgement(self) -> Judgement:
        """The verdict that the evidence supports."""
        return judge(self.evidence)

    @property
    def as_expected(self) -> bool:
        """Whether the computed verdict is the one that the project stands by."""
        return self.judgement.verdict is self.expected


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A claim after its forms were tried, 'stated' and, where it has one, 'corrected'."""

    claim: Claim
    tried: Mapping[str, Tried]

    @property
    def stated(self) -> Tried:
        """The statement."""
        return self.tried["stated"]

    @property
    def last(self) -> Tried:
        """The correction, or the statement where there is none."""
        return self.tried.get("corrected", self.stated)

    @property
    def label(self) -> str:
        """The verdict on the statement, in the words of the table."""
        return self.claim.label(self.stated.judgement.verdict)


def try_claim(entry: Claim, *, seed: int = 0, budget: Budget = QUICK) -> Outcome:
    """Gather the evidence for every form in float64 and judge it."""
    forms = entry.forms.items()
    return Outcome(entry, {name: _try(entry, *form, seed, budget) for name, form in forms})


def try_mutants(entry: Claim, *, seed: int = 0, budget: Budget = QUICK) -> dict[str, Tried]:
    """The same for every wrong version of the claim, by what was done to it.

    All are expected to be FALSE.
    """
    attempt = functools.partial(_try, entry, expected=Verdict.FALSE, seed=seed, budget=budget)
    tried, holding = {}, entry.holding
    for name, mutant in entry.mutants.items():
        of_text = isinstance(mutant, tuple) and all(isinstance(part, str) for part in mutant)
        form = holding.swapped(*mutant) if of_text else dataclasses.replace(holding, value=mutant)
        tried[name] = attempt(form)
    for number, (constant, factor, forms) in enumerate(entry.constants(), start=1):
        # A number may be part of a name.
        if found := _first_false(attempt, forms, ignored=(latex.Unknown,)):
            tried[f"constant {number}, {constant}, changed by {factor:g}"] = found
    return tried


def try_narrowed(entry: Claim, *, seed: int = 0, budget: Budget = QUICK) -> dict[str, Tried]:
    """Versions that are true at a kind of populations, or for some values of a symbol, alone.

    One that gives the same numbers for other values is the claim itself, such as a sum of means.
    """
    holding = entry.holding
    if entry.expected is Verdict.VACUOUS or not entry.holds:
        return {}

    def attempt(form: Form) -> Tried:
        found = _try(entry, form, Verdict.FALSE, seed, budget)
        return dataclasses.replace(found, evidence=found.evidence.defined())

    whole = dataclasses.replace(holding, given=holding.formulas)
    right, text = attempt(whole).evidence, latex.squeezed(holding.latex)
    tried = {
        f"wrong where {kind}": Tried(holding, Verdict.FALSE, evidence)
        for kind, evidence in right.kinds()
        if kind.removeprefix("not ") not in entry.slack
        and kind not in [f"not {x}" for x in entry.only]
    }
    for words, moved, others in narrowing.versions(whole.given or ()):
        symbol = words.partition(":")[0]
        defined = re.search(r"(?<![\w^}'\\])" + re.escape(symbol) + "=⟦", text)
        if {words, symbol} & {*entry.slack} or defined:
            continue
        for place, ways in enumerate(others):
            forms = (dataclasses.replace(whole, given=given) for given in ways)
            # What is neither a name nor a command, or is divided by 0, is no version.
            ignored, same = (latex.Unknown, ArithmeticError), right if moved else None
            found = _first_false(attempt, forms, ignored=ignored, same=same)
            if found and (place < 2 or not found.as_expected):
                tried[words] = found
            if found and found.as_expected and not place:
                break
    return tried


def _first_false(
    attempt: Callable[[Form], Tried],
    forms: Iterable[Form],
    *,
    ignored: tuple[type[Exception], ...],
    same: Evidence | None = None,
) -> Tried | None:
    """The first form that is FALSE, or else the last whose sides are not the same as these."""
    last = None
    for form in forms:
        with contextlib.suppress(*ignored):
            found = attempt(form)
            if found.as_expected:
                return found
            if same is None or not found.evidence.same_as(same):
                last = found
    return last


def other_way_round(outcome: Outcome) -> dict[str, Tried]:
    """An inequality that holds with its sides exchanged, which is expected to be FALSE."""
    tried = outcome.last
    if tried.evidence.relation != "<=" or tried.expected is Verdict.FALSE:
        return {}
    sides = {"lhs": tried.evidence.rhs, "rhs": tried.evidence.lhs}
    found = dataclasses.replace(tried.evidence, **sides)
    return {"the other way round": Tried(tried.form, Verdict.FALSE, found)}


def _try(entry: Claim, form: Form, expected: Verdict, seed: int, budget: Budget) -> Tried:
    """All forms of a claim meet the same generator, whether it runs alone or with all others."""
    rng = np.random.default_rng([seed, zlib.crc32(entry.name.encode())])
    quiet = "ignore" if expected is Verdict.FALSE else "warn"  # A wrong version may divide by 0.
    with double_precision(), np.errstate(divide=quiet, invalid=quiet, over=quiet):
        return Tried(form, expected, entry.evidence(rng, budget, form.argument))
