"""Paired (output, prompt) embeddings with labels, and the loader of one's own."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.base.files import StrPath, read_array, read_labels


@dataclass(frozen=True, eq=False)
class PairedEmbeddings:
    """The embeddings of n (output, prompt) pairs, and what is known about each pair.

    Attributes:
      name: short name of the set.
      outputs: X, float32 `[n, d_x]`.
      prompts: T, float32 `[n, d_t]`; pairs of one prompt have identical rows.
      description: one line for a figure's caption: what the data are and how they were embedded.
      labels: by role, one label a pair, each `[n]` of numbers or strings: `types` (the group that
        a pair belongs to), `models` (who or what made the output), `prompt` (equal for the pairs
        of one prompt), and whatever else a set knows.
      further: by role, more embeddings of the same pairs, each float32 `[n, d]`: the prompts in
        other words or by another encoder, the outputs cut to one length.

    Raises:
      ValueError: if the length of an array is not that of `outputs`, with both lengths.
    """

    name: str
    outputs: np.ndarray
    prompts: np.ndarray
    description: str
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    further: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the arrays describe the same pairs."""
        for role, values in {"prompts": self.prompts, **self.labels, **self.further}.items():
            if len(values) != len(self.outputs):
                raise ValueError(
                    f"outputs and {role} must have the same length, "
                    f"received {len(self.outputs)} and {len(values)}"
                )

    def __len__(self) -> int:
        """The number of pairs n."""
        return len(self.outputs)

    def rows(self, chosen: np.ndarray) -> PairedEmbeddings:
        """Some of the pairs: those of these row numbers, or of these booleans `[n]`."""
        return dataclasses.replace(
            self,
            outputs=self.outputs[chosen],
            prompts=self.prompts[chosen],
            labels={role: values[chosen] for role, values in self.labels.items()},
            further={role: values[chosen] for role, values in self.further.items()},
        )

    @property
    def prompt_numbers(self) -> np.ndarray:
        """Which prompt each pair has, numbered from 0, `[n]`: by the label, else by equal rows."""
        if "prompt" in self.labels:
            return np.unique(self.labels["prompt"], return_inverse=True)[1]
        return checks.distinct_rows(self.prompts)[1]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by its role, for the identity of what is computed from all of them."""
        return {"outputs": self.outputs, "prompts": self.prompts, **self.further, **self.labels}


def load_files(
    *,
    outputs: StrPath | None = None,
    prompts: StrPath | None = None,
    further: Mapping[str, StrPath] = types.MappingProxyType({}),
    keys: Mapping[str, str | None] = types.MappingProxyType({}),
    paired: bool = True,
    **labels: StrPath,
) -> PairedEmbeddings:
    """One's own embeddings, from .npy, .npz or .safetensors files; named as that of the outputs.

    `keys` says by role which array of a file is meant where it holds several. Labels are n numbers
    or strings, or a .txt of one a line. Prompts may be left out where not `paired`: it is one then.

    Raises:
      TypeError, ValueError: if a file is missing or cannot be read, if an embedding file does not
        hold a matrix of finite numbers, with the first bad row; if the labels are not one column,
        or if the lengths differ.
    """
    files = {"outputs": outputs, "prompts": prompts, **further}
    given = {role: path for role, path in files.items() if path is not None}
    if outputs is None or (paired and prompts is None):
        absent = "outputs" if outputs is None else "prompts"
        needed = "outputs and one of prompts" if paired else "outputs"
        raise ValueError(f"--{absent}: one's own data need a file of {needed}.")
    arrays = {role: read_array(path, key=keys.get(role)) for role, path in given.items()}
    rows = dict(zip(given, map(np.asarray, checks.check_arrays(arrays)), strict=True))
    name, n = Path(outputs).stem, len(rows["outputs"])
    if prompts is not None and np.array_equal(rows["outputs"], rows["prompts"]):
        raise ValueError(
            f"--outputs and --prompts are equal in every row ({outputs}, {prompts}): give the "
            "outputs, and the prompts that they answer."
        )
    origin = f"{n:,} outputs from {Path(outputs).name}"
    if prompts is not None:
        origin = f"{n:,} pairs from {Path(outputs).name} and {Path(prompts).name}"
    return PairedEmbeddings(
        name,
        rows["outputs"],
        rows["prompts"] if prompts is not None else np.zeros((n, 1), np.float32),
        description=f"{name}: {origin}",
        labels={  # Of the dtype that NumPy gives them, as files of results have no objects.
            role: np.array(read_labels(path, key=keys.get(role)).tolist())
            for role, path in labels.items()
        },
        further={role: rows[role] for role in further},
    )
