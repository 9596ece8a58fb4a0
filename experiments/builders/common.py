"""What the builders of data sets share: reading repositories, embedding, cutting, writing.

A builder reads the files of a public repository at one commit, from a clone that it is given or
that it makes; embeds them, each once, in a cache folder; and writes embeddings, labels and names of
classes. Pictures and texts of the sources are never written.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

import condvendi_jax as cv
from condvendi_jax.cli.files import atomic_writer, check_targets
from condvendi_jax.encoders import Encoder
from condvendi_jax.encoders.items import decode_image
from experiments import records
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository
from experiments.data.sets import FURTHER, INDEX, LABEL

_KEY = 0x5E1EC7  # Of the random subsets of the bandwidths' rule.
_BATCH = 256  # Items that are read, decoded and embedded at once.
_FORMAT = 1  # Raised when what is embedded of the same bytes changes.


def embed_pictures(
    repository: Repository,
    paths: Sequence[str],
    encoder: Encoder,
    *,
    cache: pathlib.Path,
    decode: Callable[[bytes, str], np.ndarray] | None = None,
    name: str = "pictures",
) -> np.ndarray:
    """Unit-norm features of some pictures of a repository, float32 `[n, d]`, made once.

    Args:
      repository: where they are.
      paths: of the pictures.
      encoder: of pictures, with the `side` of those that it takes.
      cache: folder of what is made.
      decode: a file's content and name to a picture uint8 `[side, side, 3]`; by default resampled
        and cut to the middle square.
      name: of the cached file; another `decode` needs another one.
    """
    side: int = getattr(encoder, "side", 224)
    decode = decode or (lambda content, path: decode_image(content, name=path, side=side))

    def build() -> dict[str, np.ndarray]:
        rows, contents = [], repository.read(paths)
        for start in range(0, len(paths), _BATCH):
            batch = [decode(next(contents), p) for p in paths[start : start + _BATCH]]
            rows.append(encoder.encode(np.stack(batch)))
            sys.stderr.write(f"{name}: {start + len(batch):,} of {len(paths):,}\n")
        return {"features": np.concatenate(rows)}

    found = records.cached(
        cache,
        name,
        version=_FORMAT,
        settings={"encoder": encoder.name, "repository": repository.reference},
        arrays={"paths": np.array(list(paths))},
        build=build,
    )
    return unit_rows(found["features"])


def embed_texts(
    texts: Sequence[str], encoder: Encoder, *, cache: pathlib.Path, name: str = "texts"
) -> np.ndarray:
    """Unit-norm embeddings of some texts, float32 `[n, d]`, made once; equal texts once."""
    distinct, index = np.unique(np.array(list(texts)), return_inverse=True)
    digests = np.array([hashlib.sha256(text.encode()).hexdigest() for text in distinct])

    def build() -> dict[str, np.ndarray]:
        rows = []
        step = 4 * _BATCH
        for start in range(0, len(distinct), step):
            rows.append(encoder.encode(distinct[start : start + step].tolist()))
            sys.stderr.write(f"{name}: {start + len(rows[-1]):,} of {len(distinct):,}\n")
        return {"features": np.concatenate(rows)}

    settings = {"encoder": encoder.name}
    found = records.cached(
        cache, name, version=_FORMAT, settings=settings, arrays={"texts": digests}, build=build
    )
    return unit_rows(found["features"])[index]


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of norm 1, float32.

    Raises:
      ValueError: a row is zero or not finite.
    """
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    if not np.all(np.isfinite(norms) & (norms > 0)):
        raise ValueError(
            f"row {int(np.argmin(np.isfinite(norms) & (norms > 0)))} has no direction."
        )
    return (rows / norms).astype(np.float32)


def principal_rows(rows: np.ndarray, dimensions: int) -> tuple[np.ndarray, float]:
    """Rows on their leading uncentred principal directions, scaled to unit norm again.

    Args:
      rows: `[n, d]`.
      dimensions: how many directions are kept; at most d.

    Returns:
      float32 `[n, dimensions]`, and the share of the squared norm that the directions hold.
    """
    values, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows.astype(np.float64))
    kept = directions[:, ::-1][:, :dimensions]
    share = float(np.sum(values[::-1][:dimensions]) / np.sum(values))
    return unit_rows(rows @ kept.astype(np.float32)), share


def rounded(rows: np.ndarray, step: float) -> np.ndarray:
    """Rows as multiples of a step, which compress to less; then not quite of norm 1.

    Args:
      rows: `[n, d]`.
      step: a power of two, so that float16 holds the multiples below 2,048 steps exactly.

    Raises:
      ValueError: the step is not a power of two below 1.
    """
    if not (0 < step < 1 and math.frexp(step)[0] == 0.5):
        raise ValueError(f"step: expected a power of two below 1, received {step}.")
    return (np.round(rows / step) * step).astype(np.float32)


def bandwidths_by_rule(pairs: PairedEmbeddings) -> tuple[dict[str, float], str]:
    """The bandwidths of outputs and prompts by CV's variance rule, and the rule in words."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), _KEY))
    of_x, of_t = (
        cv.bandwidth_by_rule(points, "variance", key=key, partitions=1)
        for points, key in zip((pairs.outputs, pairs.prompts), keys, strict=True)
    )
    assert of_x.bandwidth is not None and of_t.bandwidth is not None
    return {"outputs": of_x.bandwidth, "prompts": of_t.bandwidth}, of_x.rule


def cost_of(
    whole: PairedEmbeddings, cut: PairedEmbeddings, bandwidths: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """What a cut costs: scores of the whole pairs, of the cut ones, and the relative change.

    Args:
      whole: the pairs before.
      cut: the same pairs, or some of them, afterwards.
      bandwidths: `outputs` and `prompts`, of both.
    """
    kernels: dict[str, Any] = {
        "output_kernel": cv.Gaussian(bandwidths["outputs"]),
        "prompt_kernel": cv.Gaussian(bandwidths["prompts"]),
    }
    before, after = (
        cv.decompose(pairs.outputs, pairs.prompts, order=2.0, **kernels) for pairs in (whole, cut)
    )
    return {
        score: {
            "before": float(getattr(before, score)),
            "after": float(getattr(after, score)),
            "change": float(getattr(after, score) / getattr(before, score) - 1),
        }
        for score in ("vendi", "conditional", "information")
    }


def write_set(
    path: pathlib.Path,
    *,
    outputs: np.ndarray | tuple[np.ndarray, np.ndarray],
    prompts: np.ndarray | tuple[np.ndarray, np.ndarray],
    labels: Mapping[str, np.ndarray],
    description: str,
    licence: str,
    provenance: Sequence[str],
    cut: Mapping[str, Any] | None = None,
    further: Mapping[str, np.ndarray | tuple[np.ndarray, np.ndarray]] | None = None,
) -> None:
    """Writes a set's file, whole or not at all; `sets.read_set` reads it.

    Args:
      path: of the file, `NAME.npz`.
      outputs: float `[n, d_x]`, written as float16 like all embeddings; or as `prompts`.
      prompts: `[n, d_t]`, or a table `[m, d_t]` with the row of each pair `[n]`.
      labels: by role, `[n]`; words are written as a table.
      description: the caption's line.
      licence: of the sources.
      provenance: repositories with commits, packages with versions.
      cut: what was left out, and what that costs.
      further: by role, more embeddings, as `prompts`.
    """
    entries: dict[str, Any] = {}
    given: dict[str, Any] = {"outputs": outputs, "prompts": prompts}
    given |= {FURTHER + role: rows for role, rows in (further or {}).items()}
    for name, rows in given.items():
        if isinstance(rows, tuple):
            rows, index = rows
            entries[name + INDEX] = _small(index)
        entries[name] = rows.astype(np.float16)
    for role, values in labels.items():
        values = np.asarray(values)
        if values.dtype.kind == "U":
            values, index = np.unique(values, return_inverse=True)
            entries[LABEL + role + INDEX] = _small(index)
        entries[LABEL + role] = _small(values) if values.dtype.kind in "iu" else values
    lengths = {
        name: len(entries.get(name + INDEX, entries[name]))
        for name in entries
        if not name.endswith(INDEX)
    }
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{path.name}: entries of different lengths: {lengths}.")
    entries |= {
        "description": np.array(description),
        "licence": np.array(licence),
        "provenance": np.array(list(provenance)),
        "cut": np.array(json.dumps(cut or {})),
    }
    with atomic_writer(path) as file:
        np.savez_compressed(file, allow_pickle=False, **entries)
    print(f"{path.name}: {lengths['outputs']:,} pairs, {path.stat().st_size / 1e6:.1f} MB")


def _small(values: np.ndarray) -> np.ndarray:
    """Integers in the smallest type that holds them."""
    low, high = (int(v) for v in (values.min(), values.max()))
    return values.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(high)))


def check_output(
    default: pathlib.Path | None,
    *more: pathlib.Path,
    flag: str = "output",
    sources: Sequence[str] = ("source",),
) -> None:
    """Refuses, before anything is computed, to write over a user's files.

    The file that ships with the project is replaced: to make it is what a builder is for.

    Args:
      default: the file that the builder ships; None if it ships none under this flag.
      *more: files that are written beside it; their folders are made where missing.
      flag: the flag that names the file, the default where it is unset.
      sources: the flags that name clones or folders that are read.

    Raises:
      ValueError, OSError: as `condvendi_jax.files.check_targets`.
    """
    values = flags.FLAGS
    output = pathlib.Path(getattr(values, flag) or default or "")
    shipped = default is not None and output.resolve() == default.resolve()
    beside = {f"--{flag} (its {path.name})": path for path in more if path.exists()}
    read = {f"--{name}": [getattr(values, name)] for name in sources if getattr(values, name)}
    check_targets({f"--{flag}": output} | beside, read, overwrite=shipped or values.overwrite)


def define_flags(output: pathlib.Path | None, **sources: str) -> None:
    """The flags that every builder has.

    Args:
      output: the file that is written by default; None where it goes by the set.
      **sources: by flag (`source`, say), the repository that a clone may be given of.
    """
    flags.DEFINE_string("cache_dir", "data-cache", "Folder for clones and features.")
    flags.DEFINE_string("output", output and str(output), "The file to write.")
    define_overwrite()
    for flag, name in sources.items():
        words = f"A clone of {name}, with a work tree or bare; cloned into --cache_dir if unset."
        flags.DEFINE_string(flag, None, words)


def define_overwrite() -> None:
    """The flag `--overwrite`."""
    flags.DEFINE_bool(
        "overwrite", False, "Replace files that exist; those that ship are always replaced."
    )


def versions(*packages: str) -> list[str]:
    """Name and version of some packages, or that one is not installed."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name}: not installed")
    return found
