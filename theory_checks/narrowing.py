r"""Wrong versions that are true for a part of the populations alone, drawn by a claim's symbols.

Where none of a symbol's versions fails, the trials do not vary it enough. A number, as n, an
order or a dimension, is the least or the largest in all trials. What has an index, as weights or
eigenvalues, is its mean: equal shares, ties; a spread is 0: the prompts of a mode coincide. Of a
matrix the diagonal is left, or one number: outputs are orthogonal, prompts coincide. Of a sum the
largest term is left: one prompt, one mode.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from theory_checks.latex import Formula, Matrix, squeezed

Change = Callable[[Any], Any]

_SPREAD = re.compile(r"\\(?:sigma|rho)_i|\\tau|^t'?_i|H\(C_\{T")
_OPERATORS = {
    r"\\sum": r"\\max", r"\\max": r"\\min", r"\\min": r"\\max", r"_\+": "",
    r"\\lfloor(.*?)\\rfloor": r"(\1)", r"\\wedge": "+0", r"(?<!sum|max|min)_j(?![a-z])": "_i",
}  # fmt: skip
"""What stands for an operator in a version that is true where it has one term, or equal ones."""


def _number(value: float) -> Change:
    return lambda given: np.full_like(np.asarray(given, float), value) if np.ndim(given) else value


def _even(given: Any) -> Any:
    given = np.asarray(given, float)
    return np.broadcast_to(given.mean(-2 if given.ndim > 1 else 0, keepdims=True), given.shape)


def _alike(end: Callable[[Any], Any]) -> Change:
    return lambda given: end(given) + 1e-3 * np.eye(*np.shape(given)[-2:]) + 0 * given


def of_symbol(name: str, values: Sequence[Any]) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """What is put for a symbol with these values: words, and functions, of which one must fail."""
    if isinstance(values[0], Matrix) or re.search(r"_\{?i[jn]", name):
        if not re.match(r"I|\\Lambda", name):
            yield f"{name}: 0 off the diagonal", (lambda given: given * np.eye(*given.shape[-2:]),)
        yield f"{name}: one number", (_alike(np.max), _alike(np.min))
    elif re.search(r"_\{?[ij]+(?![a-zA-Z])|^[ij]$", name) and np.ndim(values[0]):
        yield f"{name}: all equal", (_even,)
    else:
        numbers = np.concatenate([np.ravel(value) for value in values])
        yield f"{name}: one value", (_number(np.nanmin(numbers)), _number(np.nanmax(numbers)))
    if _SPREAD.search(name):
        yield f"{name}: 0", (_number(0.0),)


def versions(formulas: Sequence[Formula]) -> Iterator[tuple[str, bool, list[list[Any]]]]:
    """Wrong versions of formulas that were evaluated.

    Yields:
        Words, whether values that were given are changed, and what stands in the formulas' place:
        lists, in which one must fail, with a symbol changed everywhere, then in one formula each.
    """
    names: dict[str, list[Any]] = {}
    for name, values in (item for formula in formulas for item in formula.seen.items()):
        names[name] = names.get(name, []) + values
    for name, values in names.items():
        places = [k for k, formula in enumerate(formulas) if name in formula.seen]
        for words, changes in of_symbol(name, values):
            pairs = [map(np.asarray, (of(v), v)) for of in changes for v in values]
            moved = not all(np.allclose(*pair, equal_nan=True) for pair in pairs)
            where = [places, *([k] for k in places)][: None if len(places) > 1 else 1]
            ways = [[_put(formulas, ks, {"change": {name: of}}) for of in changes] for ks in where]
            yield words, moved, ways
    for k, text in enumerate(squeezed(formula.text) for formula in formulas):
        for found in (f for old in _OPERATORS for f in re.finditer(old, text)):
            new = found.expand(_OPERATORS[found.re.pattern])
            renewed = text[: found.start()] + new + text[found.end() :]
            words = f"{found.group()} in place {found.start()} of formula {k + 1}"
            yield words, False, [[_put(formulas, [k], {"text": renewed})]]


def _put(formulas: Sequence[Formula], places: list[int], fields: Any) -> tuple[Formula, ...]:
    """The formulas, with other fields in these places."""
    return tuple(
        replace(formula, seen={}, **(fields if k in places else {}))
        for k, formula in enumerate(formulas)
    )
