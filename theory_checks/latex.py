r"""Displayed formulas, evaluated: what a reader sees is what the evidence is compared with.

In a statement the parts between ⟦ and ⟧ are formulas. The brackets are not shown. A formula is
arithmetic over names, and names are pieces of LaTeX that the evidence gives values to:

>>> formula = Formula(r"\tfrac1{\sqrt n}\big(1+\sqrt{2\log\tfrac4\delta}\big)")
>>> formula({"n": 4, r"\delta": 4.0})
0.5

An array whose name has the index i runs along rows, one with j along columns (the values of i serve
for j). Sums, minima and maxima over i, j or both reduce these axes; a norm of (...)_i reduces i. A
minimum over theta names its range, as in `\min_{0\le\theta\le1}`. A condition such as `n \ge 2`
is 1 where it is met, else 0. What `matrix` made is a matrix: its products, powers and logarithms
are those of matrices.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from scipy import special

_MARKS = re.compile("⟦(.*?)⟧", re.DOTALL)
_SPACING = re.compile(
    r"\\(?:[Bb]igg?[lr]?|left|right|textstyle|displaystyle|quad|[,;!:])(?![a-z])|\s+"
)
_DIGIT, _NUMBER = re.compile(r"\d"), re.compile(r"\d+(?:\.\d+)?")
# No constant is an index or an end of a range of theta; `\tfrac12` has two, of a digit each.
_CONSTANT = re.compile(
    r"(?<=_)N|(?<=\\theta\\le)N|N(?=\\le\\theta)"
    r"|(?P<constant>(?:(?<=frac)|(?<=frac\d)|(?<=\^))\d|N)".replace("N", _NUMBER.pattern)
)
_GROUPS = {
    "(": (")", np.asanyarray), "[": ("]", np.asanyarray), "{": ("}", np.asanyarray),
    r"\lvert": (r"\rvert", np.abs), r"\lfloor": (r"\rfloor", np.floor),
}  # fmt: skip
_FUNCTIONS = {
    r"\log": np.log, r"\psi": special.digamma, r"\det": np.linalg.det, r"\mathrm{Tr}": np.trace,
}  # fmt: skip
_REDUCED = {r"\sum": np.sum, r"\min": np.min, r"\max": np.max}
_INDEX = re.compile(r"_(?:\{((?:(?!\\theta)[^}])*)\}|([ij]))")
_RANGE = re.compile(r"_\{([\d.]+)\\le\\theta\\le([\d.]+)\}")
_RELATIONS = {
    r"\le": np.less_equal, r"\ge": np.greater_equal, "<": np.less, ">": np.greater, "=": np.equal,
}  # fmt: skip
_THETA = r"\theta"

Node = Callable[[Mapping[str, Any]], Any]


class Unknown(ValueError):
    """A formula holds what is neither a name nor a command of this module."""


class Matrix(np.ndarray):
    """A matrix of which a formula takes matrix products, inverses, roots and logarithms."""

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """NumPy's function; where it differs for matrices, that of (symmetric) matrices."""
        first, *rest = [np.asarray(part) for part in inputs]
        if function is np.multiply and all(isinstance(part, Matrix) for part in inputs):
            return matrix(first @ rest[0])
        if function is np.power and np.all(rest[0] == -1):
            return matrix(np.linalg.inv(first))
        if function in (np.power, np.log):
            values, vectors = np.linalg.eigh(first)
            values = np.where(np.abs(values) < 1e-13 * values.max(), 0.0, values)
            return matrix((vectors * function(values, *rest)) @ vectors.T)
        found = getattr(function, method)(first, *rest, **named)
        return matrix(found) if np.ndim(found) == 2 else found


def matrix(value: Any) -> Matrix:
    """This array `[n, m]` as a matrix."""
    return np.asarray(value, float).view(Matrix)


@functools.lru_cache(4096)
def squeezed(text: str) -> str:
    """A text without white space and without what only moves or sizes things."""
    return _SPACING.sub("", text).replace(r"\tfrac", r"\frac")


def shown(text: str) -> str:
    """A statement as it is displayed."""
    return text.replace("⟦", "").replace("⟧", "")


def formulas(text: str) -> tuple["Formula", ...]:
    """The formulas of a statement."""
    return tuple(map(Formula, _MARKS.findall(text)))


def changed(text: str) -> Iterator[tuple[str, Callable[[float], str]]]:
    """Every constant of a statement's formulas, and the statement with it times a factor."""
    for part in _MARKS.finditer(text):
        for found in _CONSTANT.finditer(text, *part.span(1)):
            if float(found["constant"] or 0):
                yield found["constant"], functools.partial(_times, text, found)


def _times(text: str, found: re.Match[str], factor: float) -> str:
    number = f"{{{float(found.group()) * factor:.12g}}}"
    return text[: found.start()] + number + text[found.end() :]


@dataclasses.dataclass(frozen=True)
class Formula:
    """A formula that can be called with the values of its names.

    Attributes:
        text: LaTeX.
        change: what a wrong version does to values, by name.
        seen: values that were given, by the names that the formula reads.
    """

    text: str
    change: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    seen: dict[str, list[Any]] = dataclasses.field(default_factory=dict, compare=False)

    def __call__(self, values: Mapping[str, Any], /) -> Any:
        """The value; a float where every name has one.

        Raises:
            Unknown: something in the formula is neither a name nor known here.
        """
        values = {squeezed(name): value for name, value in values.items()}
        node, names = _compiled(squeezed(self.text), tuple(values))
        for name in names:
            self.seen.setdefault(name, []).append(values[name])
            values[name] = self.change.get(name, lambda value: value)(values[name])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = np.asarray(node(values), float)
        if re.search(r"_\{?[ij]", self.text):  # Their axes are gone, or one of them is left.
            found = np.squeeze(found)
        return float(found) if found.ndim == 0 else found


@functools.lru_cache(4096)
def _compiled(text: str, names: tuple[str, ...]) -> tuple[Node, frozenset[str]]:
    """A function of names, and those that it reads."""
    parser = _Parser(text, names)
    node = parser.condition()
    if parser.at < len(text):
        raise Unknown(f"formula: {text[parser.at :]!r} of {text!r} is not understood.")
    return node, frozenset(parser.read)


def _indexed(name: str, value: Any) -> Any:
    """A vector along the axis of its index."""
    value = np.asanyarray(value, float)
    return value[:, None] if value.ndim == 1 and re.search(r"_i(?![a-z])", name) else value


def _quotient(above: Any, below: Any) -> Any:
    """A fraction; 0 / 0 is 0: a share of nothing."""
    nothing = (np.asarray(above) == 0) & (np.asarray(below) == 0)
    return np.divide(above, np.where(nothing, 1.0, below))


def _norm(vector: np.ndarray, order: float) -> float:
    """The norm of this order, without underflow."""
    top = np.max(np.abs(vector))
    return float(top * np.sum((np.abs(vector) / top) ** order) ** (1 / order)) if top > 0 else 0.0


def _over(function: Callable, *parts: Any) -> Any:
    """One of `_REDUCED`, or all, over several values."""
    return function(np.stack(np.broadcast_arrays(*parts)), axis=0)


def _over_index(function: Callable, over: str, values: Any) -> Any:
    """One of `_REDUCED` over i, j or both, such as `j<i`, where other entries are 0."""
    values = np.asarray(values, float)
    size = max(values.shape[-2:], default=1)
    if "<" in over:
        values = np.where(np.tri(size, k=-1, dtype=bool), values, 0.0)
    elif r"\ne" in over:
        values = np.where(np.eye(size, dtype=bool), 0.0, values)
    axes = (-1,) if over.startswith("j") else (-2, -1) if "j" in over else (-2,)
    return function(values, axis=axes, keepdims=True)


# Each level binds closer than the one before it; factors may stand side by side.
_OPERATORS: tuple[dict[str, Callable], ...] = (
    {r"\wedge": np.minimum},
    {"+": np.add, "-": np.subtract},
    {
        "/": _quotient, r"\odot": lambda x, y: np.multiply(np.asarray(x), y),
        r"\cdot": np.multiply, "": np.multiply,
    },
)  # fmt: skip
_PRODUCT = 2
_MARKED = {"_+": lambda x: np.maximum(x, 0.0), r"^\top": np.transpose}


class _Parser:
    """Recursive descent; each method reads what its name says and returns a function of names."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        both = {
            other: name for name in names for other in (re.sub(r"_i(?![a-z])", "_j", name), name)
        }
        self.names = sorted(both.items(), key=lambda pair: -len(pair[0]))
        self.text, self.at, self.read = text, 0, set[str]()

    def take(self, *tokens: str) -> str:
        """The first of these that stands here, or nothing."""
        for token in tokens:
            if self.text.startswith(token, self.at):
                self.at += len(token)
                return token
        return ""

    def condition(self) -> Node:
        """An expression, or several with relations between them, all of which must hold."""
        sides, met = [self.expression()], []
        while relation := self.take(*_RELATIONS):
            sides.append(self.expression())
            met.append(_joined(_RELATIONS[relation], *sides[-2:]))
        return _joined(functools.partial(_over, np.all), *met) if met else sides[0]

    def expression(self, level: int = 0) -> Node:
        """What the operators of this level join, or of a later one, which bind closer."""
        if level == len(_OPERATORS):
            return self.power()
        operators = _OPERATORS[level]
        sign = self.take("+", "-") if "-" in operators else ""
        found = self.expression(level + 1)
        if sign == "-":
            found = _joined(np.negative, found)
        while (token := self.take(*operators)) in operators:
            start = self.at
            try:
                found = _joined(operators[token], found, self.expression(level + 1))
            except Unknown:
                if token:
                    raise
                self.at = start
                break
        return found

    def power(self) -> Node:
        found = self.atom()
        while mark := self.take(*_MARKED, "^"):
            power = () if mark in _MARKED else (self.atom(_DIGIT),)
            found = _joined(_MARKED.get(mark, np.power), found, *power)
        return found

    def atom(self, number: re.Pattern[str] = _NUMBER) -> Node:
        """What a command applies to: a group or one name, or a number (of one digit)."""
        if found := self.name():
            return found
        if self.take(r"\lVert("):
            vector, _ = self.until(")"), self.take(r"_i\rVert_")
            return _joined(_norm, vector, self.atom(_DIGIT))
        if self.take(r"\lVert"):
            inner, order = self.until(r"\rVert_"), "nuc" if self.take("*", "F") == "*" else "fro"
            return _joined(lambda x: np.linalg.norm(np.asarray(x), order), inner)
        if opening := self.take(*_GROUPS):
            closing, function = _GROUPS[opening]
            return _joined(function, self.until(closing))
        if self.take(r"\frac"):
            return _joined(_quotient, self.atom(_DIGIT), self.atom(_DIGIT))
        if self.take(r"\sqrt"):
            root = self.until("]") if self.take("[") else lambda values: 2.0
            return _joined(lambda n, x: np.power(x, 1 / n), root, self.atom(_DIGIT))
        if command := self.take(*_FUNCTIONS):
            return _joined(_FUNCTIONS[command], self.power())
        if command := self.take(*_REDUCED):
            return self.reduced(_REDUCED[command])
        if constant := self.take(r"\pi", "e"):
            return lambda values: np.pi if constant == r"\pi" else np.e
        if match := number.match(self.text, self.at):
            self.at = match.end()
            return lambda values: float(match.group())
        raise Unknown(f"formula: {self.text[self.at :]!r} of {self.text!r} is not understood.")

    def until(self, closing: str) -> Node:
        found = self.expression()
        if not self.take(closing):
            raise Unknown(f"formula: expected {closing!r} at {self.text[self.at :]!r}.")
        return found

    def name(self) -> Node | None:
        for shown, name in self.names:
            if self.take(shown):
                self.read |= {name} - {_THETA}
                return lambda values: _indexed(shown, values[name])
        return None

    def reduced(self, function: Callable) -> Node:
        """Over what braces list, over an index or two, or over 101 values of theta in its range."""
        if self.take(r"\lbrace"):
            parts = [self.expression()]
            while self.take(","):
                parts.append(self.expression())
            self.take(r"\rbrace")
            return _joined(functools.partial(_over, function), *parts)
        if match := _INDEX.match(self.text, self.at):
            self.at = match.end()
            over = functools.partial(_over_index, function, match[1] or match[2])
            return _joined(over, self.expression(_PRODUCT))
        if match := _RANGE.match(self.text, self.at):
            self.at = match.end()
            grid = np.linspace(float(match[1]), float(match[2]), 101)[:, None, None]
            self.names.insert(0, (_THETA, _THETA))
            inner = self.expression(_PRODUCT)
            self.names.pop(0)
            return lambda values: function(inner({**values, _THETA: grid}), axis=0)
        raise Unknown(f"formula: no index, nor theta with a range, at {self.text[self.at :]!r}.")


def _joined(function: Callable, *parts: Node) -> Node:
    return lambda values: function(*(part(values) for part in parts))
