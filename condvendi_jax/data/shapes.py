"""Arrays as people have them: a label for each row, columns of vectors, answers by prompt."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import is_equality


def are_labels(values: Any) -> bool:
    """Whether values are a label for each row, `[n]`: strings, integers or booleans."""
    values = listed(values)
    if isinstance(values, (list, tuple)):
        labels = (str, int, np.integer, np.bool_)
        return bool(values) and all(isinstance(value, labels) for value in values)
    if getattr(values, "ndim", None) != 1 or len(values) == 0 or not checks.is_concrete(values):
        return False
    return checks.to_numpy(values).dtype.kind in "iub"


def labelled(models: Mapping[str, Any], kernels: Sequence[Any], similar_prompts: bool) -> list[str]:
    """Which arrays are labels in all models; refuses them under distances, and texts as outputs."""
    roles = next(iter(models.values()))
    labels = [r for r in roles if all(are_labels(arrays[r]) for arrays in models.values())]
    for role, kernel in zip(("outputs", "prompts"), kernels, strict=True):
        if role in labels and not is_equality(kernel):
            expected = f"expected embeddings [n, d] under {kernel!r}, received labels"
            mend = "leave the kernel out, or pass embeddings."
            raise ValueError(f"{role}: {expected}, which are equal or different: {mend}")
    if "prompts" in labels and similar_prompts:
        raise ValueError("prompts: expected embeddings for similar_prompts, received labels.")
    for arrays in models.values():
        if "outputs" in labels and any(isinstance(x, str) for x in arrays["outputs"]):
            expected = "expected embeddings [n, d], or integers that say which are equal."
            received = "received texts, which cv.evaluate and cv.compare embed"
            raise TypeError(f"outputs: {received}; {expected}")
    return labels


def by_row(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs, `[n, d]` or `[prompts, k, d]`, and prompts (or labels) of either shape, by row."""
    made = {name: _stacked(unpacked(values, name), name) for name, values in arrays.items()}
    outputs, prompts = made["outputs"], made.get("prompts")
    if getattr(outputs, "ndim", None) != 3 or prompts is None or outputs.dtype == np.uint8:
        return made
    outputs, answers = checks.as_array(outputs, name="outputs"), outputs.shape[1]
    labels = isinstance(prompts, (list, tuple)) and are_labels(prompts)
    column: Any = np.fromiter(prompts, object) if labels else prompts
    prompts = checks.as_array(column, name="prompts")
    flat = outputs.reshape(-1, outputs.shape[2])
    if prompts.ndim == 3 and prompts.shape[:2] == outputs.shape[:2]:
        prompts = prompts.reshape(-1, prompts.shape[2])
    elif prompts.ndim < 3 and prompts.shape[0] == outputs.shape[0]:
        prompts = prompts.repeat(answers, axis=0)
    else:
        line = f" If rows follow prompts: `outputs = np.reshape(outputs, (-1, {flat.shape[1]}))`."
        hint = line * (len(prompts) == len(flat))
        expected = f"outputs: expected [{len(prompts)}, k, d] or [n, d], one or k for each prompt"
        raise ValueError(f"{expected}, received shape {outputs.shape}.{hint}")
    return {"outputs": flat, "prompts": prompts}


def unpacked(values: Any, name: str) -> Any:
    """Tensors as arrays, and columns of data sets as what they hold; other values as they are."""
    columns = values if isinstance(values, Mapping) else getattr(values, "column_names", None)
    if columns:
        key, axes = max(((k, _axes(listed(values[k]))) for k in columns), key=lambda pair: pair[1])
        hint = f" If keys are prompts: `prompts, {name} = list({name}), list({name}.values())`."
        hint *= isinstance(values, dict) and axes < 2
        raise TypeError(
            f"{name}: expected one array, received a {type(values).__name__} of {[*columns][:9]}. "
            f"For one: `{name} = {name}[{key!r}]`; several models go to cv.compare.{hint}"
        )
    values = listed(values)
    record = next(iter(values), None) if type(values) in (list, tuple) else None
    record = record[-1] if isinstance(record, (list, tuple)) and record else record
    if isinstance(record, Mapping):
        received = f"received dictionaries of {', '.join(map(str, record))[:200]}"
        rows = f"for row in {name}]"
        mend = f"[row['answer'] {rows}, or of chats [row[-1]['content'] {rows}"
        raise TypeError(f"{name}: {received}. Pass texts: {mend}. cv.read_records reads files.")
    return checks.as_array(values, name=name) if hasattr(values, "detach") else values


def without_table(outputs: Any, prompts: Any) -> Any:
    """A table of texts, with columns such as a1 and a2, as lists of answers; others as they are."""
    if isinstance(prompts, str):
        needed = f"prompts: expected {len(outputs):,}, one for each row, received one text"
        raise TypeError(f"{needed}. If all rows have it: `prompts = [prompt] * len(outputs)`.")
    table = np.asarray(outputs) if hasattr(outputs, "columns") else outputs
    texts = isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind in "OSTU"
    are_texts = [isinstance(cell, (str, bytes)) for cell in table.flat] if texts else []
    alone = len({re.sub(r"\d", "", str(name)) for name in getattr(outputs, "columns", ())}) < 2
    if not any(are_texts) or (alone and (prompts is None or _axes(prompts) > 1)):
        return outputs
    if not (alone and all(are_texts)) or [*map(str, prompts)] in table.T.tolist():
        line = "outputs = [[x for x in row if isinstance(x, str)] for row in np.asarray(outputs)]"
        received = "outputs: expected a table of answers, received other columns or missing cells"
        mend = "Keep the answers, such as outputs['answer']. If all texts in it are answers"
        raise TypeError(f"{received}. {mend}: `{line}`.")
    return table.tolist()


def listed(values: Any) -> Any:
    """What columns of data sets hold, objects and texts as lists; other values as they are."""
    if isinstance(values, Mapping):
        return {name: listed(column) for name, column in values.items()}
    if hasattr(values, "to_pylist") and not hasattr(values, "column_names"):  # Of Arrow.
        return values.to_pylist()
    if getattr(getattr(values, "dtype", None), "kind", None) in tuple("OSTU") and values.ndim == 1:
        values = (values if hasattr(values, "tolist") else checks.to_numpy(values)).tolist()
    elif isinstance(values, Sequence) and not isinstance(values, (list, tuple, str, bytes)):
        return values[:]
    if isinstance(values, (list, tuple)) and any(isinstance(value, bytes) for value in values):
        return [value.decode() if isinstance(value, bytes) else value for value in values]
    return values


def refuse_missing(values: Any, name: str) -> None:
    """Raises ValueError where a row of a list is None, NaN or NA."""
    for row, value in enumerate(values if isinstance(values, (list, tuple)) else ()):
        number = isinstance(value, float) and value != value
        if value is None or number or type(value).__name__ == "NAType":
            raise ValueError(
                f"{name}: expected a text or label in every row, received {value!r} in row {row}. "
                "Leave such rows out: of a DataFrame of outputs and prompts, `data.dropna()`."
            )


def _stacked(values: Any, name: str) -> Any:
    """Vectors or matrices that are apart as one array; other values as they are."""
    axes = list(map(_axes, values)) if isinstance(values, (list, tuple)) else []
    if not any(axes):
        refuse_missing(values, name)
        return values
    if 0 in axes:
        empty = f"received {values[axes.index(0)]!r} in row {axes.index(0)}: leave it out"
        raise ValueError(f"{name}: expected a vector in every row, {empty}.")
    rows: Any = [unpacked(row, name) for row in values]
    lengths = list(map(len, rows))
    if len(set(lengths)) == 1:
        return checks.as_array(rows, name=name)
    row = next(row for row, length in enumerate(lengths) if length != lengths[0])
    received = f"received {lengths[0]} in row 0, {lengths[row]} in row {row}"
    turn = "For rows in turn" if axes[0] > 1 else "First decode tokens to texts. For classes"
    hint = (
        f" {turn}, `prompts = np.repeat(prompts, [*map(len, outputs)], axis=0)` "
        "where there are prompts, then `outputs = np.concatenate(outputs)`."
    )
    several = axes[0] > 1 or np.asarray(rows[0]).dtype.kind in "iu"
    hint = f" {checks.PICTURES}" if axes[0] > 2 else hint * several
    raise ValueError(f"{name}: expected rows of one length, {received}.{hint}")


def _axes(values: Any) -> int:
    """The number of axes of an array, or of lists by their first entries."""
    if hasattr(values, "ndim") or not isinstance(values, (list, tuple)):
        return getattr(values, "ndim", 0)
    return 1 + (_axes(values[0]) if values else 0)
