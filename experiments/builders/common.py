"""What the builders of data sets share: the command line, embedding, cutting, writing.

A builder reads a public repository at one commit. Its pictures and texts are never written.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import itertools
import json
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.base.files import atomic_writer, check_targets
from condvendi_jax.cli.flags import flag
from condvendi_jax.encoders import Encoder, efficientnet, minilm
from condvendi_jax.encoders.pictures import decode_image
from experiments.builders import universal
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER, FURTHER, INDEX, LABEL, SEED, SETS
from experiments.data.wordings import Wordings
from experiments.lab import records, runner

EFFICIENTNET, MINILM, UNIVERSAL = efficientnet.PACKAGE, minilm.PACKAGE, universal.PACKAGE
OF_DRAWINGS = "jax", "flax", "pillow", MINILM, EFFICIENTNET  # What drawings depend on.
PERCENTILE = 25.0  # Of the lengths in words, to which texts are cut.
_BATCH = 256  # Items that are read, decoded and embedded at once.
_FORMAT = 1  # Raised when what is embedded of the same bytes changes.


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a set is made.

    Attributes:
      build: makes it: takes the file to write, the folder of the cache and the repositories.
      sources: by the flag that gives a clone, the repository's name and commit.
      beside: the files that are written beside the set's, where {} stands for its stem.
      stem: of the file that ships, where it is not the set's word.
      takes: the flags that `build` takes too, by their names: a type and a `flag`; or, of those
        that all builders have, None.
    """

    build: Callable[..., None]
    sources: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    beside: Sequence[str] = ()
    stem: str = ""
    takes: Mapping[str, tuple[Any, Any] | None] = dataclasses.field(default_factory=dict)

    def files_beside(self, output: pathlib.Path) -> list[pathlib.Path]:
        """The files that are written beside this one."""
        return [output.parent / name.format(output.stem) for name in self.beside]


Recipes = Mapping[str, Recipe]


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of all builders."""

    cache_dir: str = flag("data-cache", "Folder for clones and features.")
    output: str | None = flag(None, "The file to write; the shipped file if unset.")
    overwrite: bool = flag(False, "Replace files that exist; those that ship are always replaced.")


def run(recipes: Recipes) -> None:
    """The command of a builder: makes its set, or of several the one that its word names."""
    words = int(len(recipes) > 1)
    runner.run_program(functools.partial(main, recipes), flags_of(recipes), words)


def flags_of(recipes: Recipes) -> type[Flags]:
    """The flags of a builder: those of all, of its recipes and of their repositories."""
    pinned: dict[str, list[str]] = {}
    for recipe in recipes.values():
        for name, (repository, _) in recipe.sources.items():
            pinned.setdefault(name, []).append(repository)
    taken = {name: of for recipe in recipes.values() for name, of in recipe.takes.items() if of}
    entries: list[Any] = [(name, *of) for name, of in taken.items()]
    for name, repositories in pinned.items():
        names = " or ".join(dict.fromkeys(repositories))
        words = f"A clone of {names}, with a work tree or bare; made in --cache_dir if unset."
        entries.append((name, str | None, flag(None, words)))
    return dataclasses.make_dataclass("Flags", entries, bases=(Flags,), frozen=True)


def main(recipes: Recipes, words: Sequence[str], given: Any) -> None:
    """Refuses, before anything is computed, to write over a user's files; then makes the set.

    The file that ships with the project is replaced: to make it is what a builder is for.

    Raises:
      ValueError, OSError: a flag or word is wrong, as `check_targets`, or the builder's own.
    """
    name = next(iter(recipes)) if len(recipes) == 1 else "".join(words)
    if name not in recipes:
        raise ValueError(f"expected one of {', '.join(recipes)}, received {name!r}.")
    recipe, shipped = recipes[name], FOLDER / f"{recipes[name].stem or name}.npz"
    clones = {word: getattr(given, word) for one in recipes.values() for word in one.sources}
    for word, clone in clones.items():
        if clone and word not in recipe.sources:
            raise ValueError(f"--{word} means nothing for {name}.")
    output = pathlib.Path(given.output or shipped)
    beside = {f"--output (its {path.name})": path for path in recipe.files_beside(output)}
    if output in beside.values():
        raise ValueError(f"--output={output} is the name of a file that is written beside the set.")
    check_targets(
        {"--output": output} | {word: path for word, path in beside.items() if path.exists()},
        {f"--{word}": [clone] for word, clone in clones.items() if clone},
        overwrite=given.overwrite or output.resolve() == shipped.resolve(),
    )
    cache = pathlib.Path(given.cache_dir)
    repositories = [
        Repository.opened(*pinned, source=clones[word], cache=cache)
        for word, pinned in recipe.sources.items()
    ]
    recipe.build(
        output, cache, *repositories, **{word: getattr(given, word) for word in recipe.takes}
    )


def embed(
    name: str,
    items: Iterable[Any],
    encoder: Encoder,
    *,
    cache: pathlib.Path,
    arrays: Mapping[str, np.ndarray],
    batch: int = _BATCH,
    **settings: Any,
) -> np.ndarray:
    """Unit-norm embeddings of some items, float32 `[n, d]`, made once.

    Args:
      name: of the cached file.
      items: pictures or texts, which may be made as they are asked for.
      encoder: of the items.
      cache: folder of what is made.
      arrays: what the items are, for the identity of what is cached.
      batch: how many items are embedded at once.
      **settings: what else the items depend on.
    """

    def build() -> dict[str, np.ndarray]:
        rows, waiting, done = [], iter(items), 0
        while chosen := list(itertools.islice(waiting, batch)):
            rows.append(encoder.encode(chosen))
            done += len(chosen)
            sys.stderr.write(f"{name}: {done:,}\n")
        return {"features": np.concatenate(rows)}

    settings = {"encoder": encoder.name, **settings}
    found = records.cached(
        cache, name, version=_FORMAT, settings=settings, arrays=arrays, build=build
    )
    return unit_rows(found["features"])


def embed_pictures(
    repository: Repository,
    paths: Sequence[str],
    encoder: Encoder,
    *,
    cache: pathlib.Path,
    name: str = "pictures",
) -> np.ndarray:
    """Unit-norm features of a repository's pictures, their middle squares, float32 `[n, d]`."""
    side = side_of(encoder)
    pictures = (
        decode_image(content, name=path, side=side)
        for path, content in zip(paths, repository.read(paths), strict=True)
    )
    return embed(
        name,
        pictures,
        encoder,
        cache=cache,
        arrays={"paths": np.array(paths)},
        repository=repository.reference,
    )


def side_of(encoder: Encoder) -> int:
    """The pixels along each side of the pictures that an encoder takes."""
    return getattr(encoder, "side", 224)


def embed_texts(
    texts: Sequence[str], encoder: Encoder, *, cache: pathlib.Path, name: str = "texts"
) -> np.ndarray:
    """Unit-norm embeddings of some texts, float32 `[n, d]`; equal texts are embedded once."""
    distinct, index = np.unique(np.array(texts), return_inverse=True)
    digests = np.array([hashlib.sha256(text.encode()).hexdigest() for text in distinct])
    arrays, batch = {"texts": digests}, 4 * _BATCH
    return embed(name, distinct.tolist(), encoder, cache=cache, arrays=arrays, batch=batch)[index]


def cut_alike(texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, list[list[str]], dict[str, Any]]:
    """Texts cut to one number of words, which are then parted by single spaces.

    Returns:
      The words of every text before, `[n]`; the first words of all; and how many they are, the 25th
      percentile of the former rounded down.
    """
    words = np.array([len(text.split()) for of in texts for text in of])
    length = int(np.percentile(words, PERCENTILE))
    cut = [[" ".join(text.split()[:length]) for text in of] for of in texts]
    return words, cut, {"words": length, "percentile": PERCENTILE}


def knob_labels(
    names: Sequence[str], settings: Sequence[float], draws: int, wordings: Wordings
) -> dict[str, np.ndarray]:
    """The labels of so many outputs of each class at each setting of a knob, setting by setting.

    Each output has the same wording at every setting.
    """
    each = len(names) * draws
    number = np.tile(np.repeat(np.arange(len(names)), draws), len(settings))
    wording = np.tile(wordings.pair(each, SEED), len(settings))
    return {
        "types": np.array(names)[number],
        "models": np.repeat([f"{setting:g}" for setting in settings], each),
        "prompt": number * len(wordings.templates) + wording,
        "wording": wording,
    }


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of norm 1, float32.

    Raises:
      ValueError: a row is zero or not finite.
    """
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    directed = np.isfinite(norms) & (norms > 0)
    if not directed.all():
        raise ValueError(f"row {int(np.argmin(directed))} has no direction.")
    return (rows / norms).astype(np.float32)


def principal_rows(rows: np.ndarray, dimensions: int) -> tuple[np.ndarray, str]:
    """Rows `[n, d]` on at most so many leading uncentred principal directions, of unit norm again.

    Returns:
      float32 `[n, dimensions]`, and in words how much of the squared norm the directions hold.
    """
    values, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows.astype(np.float64))
    kept = directions[:, ::-1][:, :dimensions]
    share = np.sum(values[::-1][:dimensions]) / np.sum(values)
    words = f"{kept.shape[1]} of {len(values)} principal directions, with {share:.4f} of the "
    return unit_rows(rows @ kept.astype(np.float32)), words + "squared norm"


def rounded(rows: np.ndarray, step: float) -> np.ndarray:
    """Rows as multiples of a power of two, which compress to less; then not quite of norm 1.

    float16 holds multiples below 2,048 steps exactly.
    """
    return (np.round(rows / step) * step).astype(np.float32)


Rows = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Embeddings `[n, d]`, or a table of them `[m, d]` with the row of each pair `[n]`."""


def write_set(
    path: pathlib.Path,
    name: str,
    *,
    outputs: Rows,
    prompts: Rows,
    labels: Mapping[str, np.ndarray],
    description: str,
    provenance: Sequence[str],
    cut: Mapping[str, Any],
    further: Mapping[str, Rows] = types.MappingProxyType({}),
) -> None:
    """Writes a set's file, whole or not at all; `sets.read_set` reads it.

    Args:
      path: of the file.
      name: of the set, whose licence is written.
      outputs: written as float16, like all embeddings.
      prompts: of the outputs.
      labels: by role, `[n]`; words are written as a table.
      description: the caption's line.
      provenance: repositories with commits, packages with versions.
      cut: what was left out.
      further: by role, more embeddings of the pairs.
    """
    entries: dict[str, Any] = {}
    given = {"outputs": outputs, "prompts": prompts}
    for role, rows in (given | {FURTHER + role: rows for role, rows in further.items()}).items():
        if isinstance(rows, tuple):
            rows, index = rows
            entries[role + INDEX] = _small(index)
        entries[role] = rows.astype(np.float16)
    for role, values in labels.items():
        if values.dtype.kind == "U":
            values, index = np.unique(values, return_inverse=True)
            entries[LABEL + role + INDEX] = _small(index)
        entries[LABEL + role] = _small(values) if values.dtype.kind in "iu" else values
    write_arrays(
        path,
        **entries,
        description=description,
        licence=SETS[name].licence,
        provenance=provenance,
        cut=json.dumps(cut),
    )


def write_arrays(path: pathlib.Path, **arrays: Any) -> None:
    """Writes arrays to a compressed file, whole or not at all; makes its folder."""
    path.parent.mkdir(exist_ok=True)
    with atomic_writer(path) as file:
        np.savez_compressed(file, **arrays)
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


def _small(values: np.ndarray) -> np.ndarray:
    """Integers in the smallest type that holds them."""
    low, high = (int(v) for v in (values.min(), values.max()))
    return values.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(high)))


def origins(*sources: Repository | str) -> list[str]:
    """Every repository with its commit, and every package with its version."""
    return [
        f"{one} {importlib.metadata.version(one)}" if isinstance(one, str) else one.reference
        for one in sources
    ]
