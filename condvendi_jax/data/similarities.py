"""Outputs that are known by their similarities to each other, in place of embeddings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy  # Its modules are imported when they are used.

from condvendi_jax.base import checks, files, labelling, memory, tables
from condvendi_jax.data.bandwidth import WITHIN
from condvendi_jax.data.kernels import Indicator, WithinPrompts, is_equality

#: The share of the trace that negative eigenvalues may have. A choice.
LIMIT = 0.05
_ROUNDED = 1e-6  # Negative eigenvalues of at most this share of the trace are rounding.
_TOLERANCES = (1e-4, 1e-2)  # Of symmetry, diagonal and range; in float16.


class Similarities:
    """Outputs whose similarities to the other outputs of their prompt are known.

    They take the place of outputs and prompts in every function of outputs. Outputs of different
    prompts are not compared: results show conditional scores; other scores count them as different.

    Args:
      matrices: one for each prompt, `[k, k]` of its k outputs, by its label or in a list; or one of
        all outputs, `[n, n]`. Symmetric, with ones on the diagonal and entries in [-1, 1], to 1e-4.
        Order 2 takes the square of an entry as the probability that two outputs count as the same.
      prompts: the label of the prompt of each row, `[n]`. Where None, matrices by prompt have their
        rows one after the other, and the outputs of one matrix have no prompts.
      name: what compares the outputs, for what is printed.
      limit: the largest share of the trace that negative eigenvalues may have, in the mean over all
        rows. They are replaced by zero, and the diagonal by ones.

    Attributes:
      vectors, prompts: of the rows, `[n, d]` and `[n]`; inner products of vectors are similarities.
      negative: the share of the trace that negative eigenvalues had.
      space: what models of one `split` share, so that their outputs can be compared.

    Raises:
      TypeError, ValueError: a matrix is none of similarities (its prompt is named) or over `limit`.

    Examples:
      Two of three answers to the first prompt are the same, and both answers to the second differ:

      >>> import condvendi_jax as cv
      >>> answers = cv.Similarities([[[1, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 0], [0, 1]]])
      >>> table = cv.prompt_table(answers, order=2)
      >>> [round(prompt.plug_in, 2) for prompt in table.prompts]
      [1.8, 2.0]
    """

    def __init__(
        self,
        matrices: Any,
        *,
        prompts: Sequence[Any] | None = None,
        name: str = "given",
        limit: float = LIMIT,
    ):
        self.name, self.space = name, object()
        blocks = _blocks(matrices, prompts)
        sizes = [len(rows) for rows, _ in blocks.values()]
        if prompts is None and [*blocks] != [None]:
            prompts = [label for label, (rows, _) in blocks.items() for _ in rows]
        self.prompts = None if prompts is None else list(prompts)
        made = {label: _unit_vectors(matrix) for label, (_, matrix) in blocks.items()}
        self.vectors = np.zeros((sum(sizes), max(rows.shape[1] for rows, _ in made.values())))
        for label, (vectors, _) in made.items():
            self.vectors[blocks[label][0], : vectors.shape[1]] = vectors
        shares = {label: share for label, (_, share) in made.items()}
        self.negative = float(np.average([*shares.values()], weights=sizes))
        if self.negative > checks.check_number(limit, name="limit", above=0):
            worst = max(shares, key=shares.__getitem__)
            where = "" if worst is None else f", {shares[worst]:.2g} for prompt {worst!r}"
            raise ValueError(
                "similarities: expected positive semidefinite matrices, received negative "
                f"eigenvalues of {self.negative:.2g} of the trace{where}, above the limit of "
                f"{limit:g}: no score is defined. Use another similarity, or pass a higher limit."
            )

    @classmethod
    def from_classes(
        cls, classes: Sequence[Any], prompts: Sequence[Any] | None = None, *, name: str = "classes"
    ) -> Self:
        """Outputs that a judge put into classes: two of one class and one prompt are the same.

        Args:
          classes: of each output, integers or strings `[n]`. They mean nothing beyond a prompt.
          prompts, name: see `Similarities`.
        """
        checks.check_indices({"classes": classes, "prompts": prompts})
        distinct, kinds = labelling.check_labels(classes, len(classes), name="classes")
        labelling.refuse_noise(distinct, kinds, name="classes")
        rows_of = _rows_of(prompts, len(kinds))
        equal = {label: np.equal.outer(kinds[r], kinds[r]) for label, r in rows_of.items()}
        return cls(equal, prompts=prompts, name=name)

    @classmethod
    def from_function(
        cls,
        function: Any,
        outputs: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        *,
        limit: float = LIMIT,
        cache: files.StrPath | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> Self:
        """Outputs that a function compares: every two different outputs of a prompt, once.

        Args:
          function: returns the similarity of two outputs, 1 for equal ones, or its import path;
            'exact' or 'code' for texts that are equal but for how they are written; or 'calls'.
            With an attribute `batch_size`, it takes two lists of at most so many outputs and
            returns a number for each pair. Ten pairs are tried in both orders, which must agree.
            `details` is a mapping of what else its values depend on, such as weights.
          outputs: `[n]`: texts, paths of files or other objects.
          prompts, limit: see `Similarities`.
          cache: as in `encoders.embed`. It keeps the values of a function at the top level of a
            file, of an object without attributes, and of whatever has `details`.
          progress: called with the number of pairs that are done, and that of all.

        Raises:
          ValueError: values are no similarities, or a pair fails, which is named; others are kept.
        """
        from condvendi_jax.encoders import similarity  # Imported where it is used: it is slow.

        if isinstance(outputs, Similarities) or getattr(outputs, "ndim", 1) > 2:
            raise ValueError("outputs: expected texts, paths or other objects, `[n]`.")
        checks.check_indices({"outputs": outputs, "prompts": prompts})
        rows_of = _rows_of(prompts, len(outputs))
        matrices = similarity.matrices(function, outputs, rows_of, cache=cache, progress=progress)
        return cls(matrices, prompts=prompts, name=similarity.as_loaded(function).name, limit=limit)

    def __len__(self) -> int:
        return len(self.vectors)

    def split(self, models: Sequence[Any]) -> dict[str, Self]:
        """The outputs of each model by its name, from the model of each row `[n]`."""
        parts = {}
        for model, rows in _rows_of(models, len(self), "models").items():
            parts[str(model)] = part = object.__new__(type(self))
            vars(part).update(vars(self), vectors=self.vectors[rows])
            part.prompts = self.prompts and [self.prompts[row] for row in rows]
        return parts


def _rows_of(labels: Any, n: int, name: str = "prompts") -> dict[Any, np.ndarray]:
    """The rows of each label; all rows have the label None where there are none."""
    if labels is None:
        return {None: np.arange(n)}
    distinct, kinds = labelling.check_labels(labels, n, name=name)
    return labelling.by_label(distinct, (np.flatnonzero(kinds == k) for k in range(len(distinct))))


def _blocks(given: Any, prompts: Any) -> dict[Any, tuple[np.ndarray, np.ndarray]]:
    """The rows and the checked matrix of each prompt, by its label."""
    several = isinstance(given, (list, tuple)) and len(given) and np.ndim(given[0]) == 2
    if several or getattr(given, "ndim", 0) == 3:
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        whole = _checked(given, None)
        rows_of = _rows_of(prompts, len(whole))
        return {label: (rows, whole[np.ix_(rows, rows)]) for label, rows in rows_of.items()}
    checked = {label: _checked(matrix, label) for label, matrix in given.items()}
    if not checked:
        raise ValueError("similarities: expected a matrix for each prompt, received none.")
    if prompts is None:
        ends = np.cumsum([*map(len, checked.values())])
        rows_of = dict(zip(checked, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    else:
        rows_of = _rows_of(prompts, len(prompts))
    for label in {**checked, **rows_of}:
        sizes = len(rows_of.get(label, ())), len(checked.get(label, ()))
        if sizes[0] != sizes[1]:
            expected = f"expected a matrix of its {sizes[0]:,} rows in prompts"
            received = f"which has a label for each row, received one of {sizes[1]:,}."
            raise ValueError(f"similarities of prompt {label!r}: {expected}, {received}")
    return {label: (rows_of[label], matrix) for label, matrix in checked.items()}


def _checked(matrix: Any, label: Any) -> np.ndarray:
    name = "similarities" if label is None else f"similarities of prompt {label!r}"
    array = checks.as_array(matrix, name=name)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise ValueError(f"{name}: expected a matrix [k, k], received shape {array.shape}.")
    checks.check_shapes({name: array})
    memory.check(len(array), np.float64)
    host = np.asarray(array, np.float64)
    checks.check_finite(host, name=name)
    by_row = {
        "the unit diagonal of a normalised kernel (K_ij / sqrt(K_ii K_jj) has one, a matrix of "
        "distances has none)": np.abs(np.diagonal(host) - 1),
        "entries in [-1, 1]": np.max(np.abs(host), axis=1) - 1,
        "a symmetric matrix": np.max(np.abs(host - host.T), axis=1),
    }
    for expected, by in by_row.items():
        if by.max() > _TOLERANCES[array.dtype.itemsize == 2]:
            off = f"received one that is off by {by.max():.2g} in row {int(by.argmax())}"
            raise ValueError(f"{name}: expected {expected}, {off}.")
    return (host + host.T) / 2


def _unit_vectors(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Unit vectors `[k, d]` with the inner products of a Gram `[k, k]`, and its negative share."""
    rounding = len(matrix) * np.finfo(np.float64).eps
    values, vectors = np.linalg.eigh(matrix)
    negative = float(-values[values < 0].sum() / len(matrix))  # Of the trace.
    if negative > rounding:  # Negative eigenvalues count as zero.
        kept = values > rounding * values[-1]
        rows = vectors[:, kept] * np.sqrt(values[kept])
    else:  # A Cholesky factor: equal rows have equal vectors, and classes those of a basis.
        factor, pivots, rank, _ = vars(scipy.linalg.lapack)["dpstrf"](matrix, lower=1)
        rows = np.tril(factor)[np.argsort(pivots), :rank]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), negative


def unpacked(
    models: Mapping[str, Mapping[str, Any]], kernels: tuple[Any, Any]
) -> tuple[Mapping[str, Mapping[str, Any]], tuple[Any, Any], bool]:
    """Arrays in place of the `Similarities` of models, their kernels, and whether they are such."""
    every: list[Any] = [arrays["outputs"] for arrays in models.values()]
    if not (count := sum(isinstance(given, Similarities) for given in every)):
        return models, kernels, False
    alone = kernels[0] is None and is_equality(kernels[1])
    if count < len(every) or not alone or any("prompts" in arrays for arrays in models.values()):
        received = "received similarities, which hold prompts and a kernel"
        mend = "pass those of all models, and leave out prompts and kernels beside them."
        raise ValueError(f"outputs: {received}; {mend}")
    if len({given.prompts is None for given in every}) > 1:
        raise ValueError("outputs: expected similarities with prompts of all models, or of none.")
    width, arrays, numbers = max(given.vectors.shape[1] for given in every), {}, dict[Any, int]()
    for model, given in zip(models, every, strict=True):
        prompts = [None] * len(given) if given.prompts is None else given.prompts
        rows = np.zeros((len(given), 1 + width), checks.compute_dtype())
        rows[:, 0] = [numbers.setdefault(label, len(numbers)) for label in labelling.typed(prompts)]
        rows[:, 1 : 1 + given.vectors.shape[1]] = given.vectors
        arrays[model] = {"outputs": rows} | ({} if given.prompts is None else {"prompts": prompts})
    negative = float(np.average([given.negative for given in every], weights=[*map(len, every)]))
    across = all(given.space is every[0].space for given in every)
    name = tables.listed([*dict.fromkeys(given.name for given in every)])
    lost = f"; negative eigenvalues, {negative:.2g} of the trace, count as zero"
    kernel = WithinPrompts(f"{WITHIN}: {name}{lost * (negative > _ROUNDED)}", across)
    return arrays, (kernel, None if every[0].prompts is None else Indicator()), True
