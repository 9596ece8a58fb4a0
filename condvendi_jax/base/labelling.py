"""What makes two labels of rows the same."""

import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from condvendi_jax.base import checks


def check_labels(labels: Any, n: int, *, name: str = "labels") -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct labels, sorted, and for each row the number of its label, `[n]`.

    A label of another type is another label: 1, 1.0, True and "1" are four; np.int64(1) is 1.
    Texts of one `identity` are one label, which is returned as it stands in the first row.
    """
    if not checks.is_concrete(labels):
        traced = "expected concrete labels, received a traced array: they decide shapes"
        raise TypeError(f"{name}: {traced}.")
    if isinstance(labels, (list, tuple)):  # As objects: a common dtype would merge labels.
        labels = np.fromiter(labels, object, len(labels))
    array = np.asarray(checks.as_array(labels, name=name))
    if array.shape != (n,):
        expected = f"expected {n} labels, one for each row"
        raise ValueError(f"{name}: {expected}, received shape {array.shape}.")
    if array.dtype.kind not in "iubUSfMmO":
        expected = "expected numbers, strings or dates [n]"
        raise TypeError(f"{name}: {expected}, received an array of dtype {array.dtype}.")
    if (missing := np.asarray(array != array, bool)).any():
        raise ValueError(f"{name}: received NaN in row {int(missing.argmax())}.")
    if array.dtype.kind not in "OU":
        return np.unique(array, return_inverse=True)
    try:
        kinds = typed(array)
        distinct = sorted({*kinds})
    except TypeError as error:
        raise TypeError(f"{name}: expected all numbers or all strings: {error}.") from error
    numbers = {kind: number for number, kind in enumerate(distinct)}
    written = dict(zip(reversed(kinds), reversed(array.tolist()), strict=True))
    values = np.fromiter(map(written.__getitem__, distinct), object, len(distinct))
    return values, np.fromiter(map(numbers.__getitem__, kinds), int, n)


def refuse_noise(distinct: np.ndarray, kinds: np.ndarray, *, name: str) -> None:
    """Raises ValueError where rows have the class -1: of clusters, it means that they have none."""
    count = int(np.count_nonzero(kinds == 0))
    if str(distinct[0]) in ("-1", "-1.0") and count > 1:
        new = f"np.where(np.equal({name}, -1), -2 - np.arange(len({name})), {name})"
        raise ValueError(
            f"{name}: received -1 in {count:,} rows, which clustering gives to rows of no class. "
            f"Give each its own label (in a file, such as none-17): `{name} = {new}`; or, if -1 is "
            f"a class, another label: `{name} = np.add({name}, 1)`."
        )


def typed(labels: Iterable[Any]) -> list[tuple[Any, str]]:
    """Labels by `identity`, without NumPy's types, with names of types, which tell 1 from True."""
    values = (label.item() if isinstance(label, np.generic) else label for label in labels)
    return [(identity(value), type(value).__name__) for value in values]


def identity(label: Any) -> Any:
    """A text in one Unicode form, every run of white space as one blank, and none at its ends."""
    if not isinstance(label, str):
        return label
    return " ".join(unicodedata.normalize("NFC", label).split())


def by_label(labels: np.ndarray, values: Iterable[Any]) -> dict[Any, Any]:
    """The value of each of several distinct labels; ValueError if a mapping would merge them."""
    mapping = dict(zip(labels.tolist(), values, strict=True))
    if len(mapping) < len(labels):
        raise ValueError("labels: expected one type, received labels such as 1 and True.")
    return mapping
