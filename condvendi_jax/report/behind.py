"""The outputs behind a comparison: contributions, near-duplicates, and their texts or pictures."""

import base64
import collections
import dataclasses
import functools
import io
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import extras, tables
from condvendi_jax.data.kernels import Kernel, of_all
from condvendi_jax.data.pairs import Pairs, of_each_model
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.encoders import pictures
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import contributions, prompt_tables
from condvendi_jax.results.prompts import PromptScore, PromptTable
from condvendi_jax.spectra import exact

#: Outputs whose kernel is at least this are joined as near-duplicates.
ALIKE = 0.9
#: Of each model, this many outputs of a prompt are shown and compared.
SHOWN = 50
# Bytes of all texts, of a prompt, and of all pictures of a page.
_TEXT_BYTES, _PROMPT_BYTES, _PICTURE_BYTES = 900_000, 4_000, 1_300_000
_SIDES = (96, 64, 48, 40)  # Of pictures, in pixels: the first that fits, or the last.
_kernels = jax.jit(jax.vmap(of_all, in_axes=(None, 0)))  # Of points `[g, m, d]`, `[g, m, m]`.


@dataclasses.dataclass(frozen=True, eq=False)
class Behind:
    """The outputs behind a comparison, model by model; `[n]` each, without rows of weight zero."""

    models: list[str]
    model: np.ndarray  # By its number.
    row: np.ndarray  # In the arrays of the model, from 0.
    prompt: np.ndarray  # By a number that all models share.
    # The near-duplicates of one prompt by a number that all models share; -1 if not compared.
    group: np.ndarray
    influence: np.ndarray  # On the main score of order 2 of the model.
    scores: np.ndarray  # The main score of order 2 of each model, `[models]`.
    tables: list[PromptTable]  # For each model, with the numbers of prompts as labels.
    main: str  # 'conditional' or, without prompts, 'vendi'.

    @functools.cached_property
    def prompts(self) -> list[dict[int, PromptScore]]:
        """For each model, by the number of the prompt."""
        return [{int(scored.prompt): scored for scored in t.prompts} for t in self.tables]

    @functools.cached_property
    def typical(self) -> dict[str, tuple[int, int]]:
        """By model its number, and that of the prompt whose outputs are as alike as the median."""
        typical = {}
        for index, by in enumerate(self.prompts):
            ordered = sorted(by, key=lambda k: math.isnan(v := by[k].known) and math.inf or v)
            typical[self.models[index]] = index, ordered[len(ordered) // 2]
        return typical

    @functools.cached_property
    def first(self) -> list[int]:
        """The first output of each prompt, by the number of the prompt."""
        return np.unique(self.prompt, return_index=True)[1].tolist()

    @functools.cached_property
    def alike(self) -> dict[int, dict[int, list[int]]]:
        """The near-duplicates by their `group` and the number of the model, in their order."""
        groups = collections.defaultdict[int, dict[int, list[int]]](dict)
        for k in np.flatnonzero(self.group >= 0).tolist():
            groups[int(self.group[k])].setdefault(int(self.model[k]), []).append(k)
        return groups

    def shared(self, count: int) -> list[tuple[list[int], dict[str, int]]]:
        """Near-duplicates of several models, of most models first, and how many each model has."""
        shared = [of_models for of_models in self.alike.values() if len(of_models) > 1]
        shared.sort(key=lambda of_models: (-len(of_models), -sum(map(len, of_models.values()))))
        counts = [{self.models[m]: len(k) for m, k in one.items()} for one in shared[:count]]
        return [(sum(one.values(), []), n) for one, n in zip(shared, counts, strict=False)]

    def redundant(self, count: int) -> list[tuple[list[int], float]]:
        """The largest near-duplicates of one model, then single outputs, by influence.

        The mean influence relative to the score is 0 of a model that always repeats itself.
        """
        redundant = []
        for model, score in enumerate(self.scores):
            for alike in filter(None, (groups.get(model) for groups in self.alike.values())):
                influence = float(self.influence[alike].mean() / score)
                if len(alike) > 1 or influence < 0:
                    redundant.append((alike, influence))
        return sorted(redundant, key=lambda entry: (-len(entry[0]), entry[1]))[:count]


def of_pairs(models: Mapping[str, Pairs]) -> Behind:
    """The outputs of models under the same kernels."""
    row = np.concatenate([np.flatnonzero(pairs.shares > 0) for pairs in models.values()])
    every = [pairs.supported() for pairs in models.values()]
    outputs = np.concatenate([np.asarray(pairs.arrays[0]) for pairs in every])
    _, prompts = prompts_by_model(every)
    prompt = np.concatenate(prompts)
    model = np.repeat(np.arange(len(every)), [pairs.n for pairs in every])
    kernel = every[0].kernels[0].suited_to(jnp.asarray(outputs))
    main = "conditional" if every[0].paired else "vendi"
    results = [contributions(pairs, order=2) for pairs in every]
    parts = zip(every, results, prompts, strict=True)
    by_prompt = [prompt_tables.tabulate(p, r, Entropy(2), kinds, kinds) for p, r, kinds in parts]
    group = _grouped(outputs, prompt, model, kernel, across=every[0].across_models)
    influence = np.concatenate([getattr(result.influences, main) for result in results])
    scores = np.array([float(getattr(r.decomposition.scores, main)) for r in results])
    return Behind([*models], model, row, prompt, group, influence, scores, by_prompt, main)


def _grouped(
    outputs: np.ndarray, prompt: np.ndarray, model: np.ndarray, kernel: Kernel, *, across: bool
) -> np.ndarray:
    """The `group` of each output, `[n]`: its first output; -1 beyond the first of a model."""
    groups, column = np.full(len(outputs), -1), prompt * (model.max() + 1) + model
    order, counts = np.argsort(column, kind="stable"), np.bincount(column)
    rank = np.arange(order.size) - (np.cumsum(counts) - counts)[column[order]]
    rows = order[rank < SHOWN]
    sizes = np.bincount(prompt[rows])
    for _, places, inside in exact.padded_sets(sizes, np.flatnonzero(sizes), outputs.shape[1]):
        members = rows[places]
        near = np.asarray(_kernels(kernel, outputs[members]), np.float64) >= ALIKE
        if not across:  # Similarities of outputs of different models are not known.
            near &= model[members][:, :, None] == model[members][:, None]
        near |= np.eye(near.shape[1], dtype=bool)
        group = np.where(inside, -1, -2)
        for place, first in enumerate(members.T):
            free = group == -1  # Who is free stands for all free ones that are near.
            group = np.where(free[:, [place]] & near[:, place] & free, first[:, None], group)
        groups[members[inside]] = group[inside]
    return groups


def check_texts(given: Any, models: Mapping[str, Pairs], what: str) -> dict[str, list[Any]]:
    """The texts, or paths of pictures, of each model, after a check that each row has one."""
    if what == "outputs" and not isinstance(given, Mapping):  # Models may share prompts alone.
        raise ValueError(f"{what}: expected those of {[*models]}, received {type(given).__name__}.")
    given = of_each_model(given, models, what)
    checked: dict[str, list[Any]] = {}
    for model, pairs in models.items():
        name, items = f"{what} of {model}", given[model]
        if isinstance(items, (str, bytes)) or len(items) != pairs.n:
            raise ValueError(
                f"{name}: expected a list of {pairs.n:,}, one for each row of the embeddings and "
                f"in their order, received {type(items).__name__} of length {len(items):,}."
            )
        checked[model] = what == "outputs" and pictures.checked(items, name) or list(items)
        for row, item in enumerate(checked[model]):
            if not isinstance(item, (str, os.PathLike, pictures.Content)):
                raise TypeError(f"{name}: expected texts or paths, received {item!r} in row {row}.")
    return checked


class Item(NamedTuple):
    """An output or a prompt as a page shows it."""

    text: str  # As far as there is room; or the name of a picture, or the number of a row.
    rest: int = 0  # How many more characters the text has.
    picture: str | None = None  # A small one in base64.


class Items:
    """The outputs and prompts of a page, by their texts or pictures, or else by their rows."""

    def __init__(self, behind: Behind, outputs: Any, prompts: Any):
        self.behind, self.prompts = behind, prompts
        self.note, self.limit, self.side = "", _TEXT_BYTES, 0
        if outputs is None:
            self.note = "No texts or pictures were given: outputs are shown by their row."
            self.outputs: list[Any] = [f"row {row}" for row in behind.row]
        else:
            places = zip(behind.model.tolist(), behind.row.tolist(), strict=True)
            self.outputs = [outputs[behind.models[model]][row] for model, row in places]
        shown = {k: self.outputs[k] for k in np.flatnonzero(behind.group >= 0).tolist()}
        sizes = [len(x.encode("utf-8", "replace")) for x in shown.values() if isinstance(x, str)]
        if sum(sizes) > _TEXT_BYTES:
            self.limit = max(_TEXT_BYTES // len(sizes), 40)
        if cut := sum(size > self.limit for size in sizes):
            self.note = f"{cut:,} long texts are cut to {self.limit:,} bytes."
        paths = {k: item for k, item in shown.items() if not isinstance(item, str)}
        sample = [*paths.values()][:: max(1, len(paths) // 20)]
        for self.side in _SIDES if paths else ():
            mean = np.mean([len(_thumbnail(path, self.side)) for path in sample])
            if mean * len(paths) <= _PICTURE_BYTES:
                break
        self.pictures = {k: _thumbnail(path, self.side) for k, path in paths.items()}

    def output(self, k: int, limit: int | None = None) -> Item:
        """An output; a text of at most `limit` bytes."""
        item = self.outputs[k]
        if isinstance(item, str):
            return _cut(item, min(limit or self.limit, self.limit))
        return Item(item.name, picture=self.pictures.get(k))

    def equal(self, one: int, two: int) -> bool:
        """Whether two outputs are the same text."""
        return isinstance(self.outputs[one], str) and self.outputs[one] == self.outputs[two]

    def prompt(self, number: int, width: int | None = None) -> Item:
        """A prompt, in one line of at most `width` characters if it is given."""
        first = self.behind.first[number]
        row = self.behind.row[first]
        name = f"prompt of row {row}" if self.behind.main == "conditional" else "all outputs"
        if self.prompts is not None:
            name = str(self.prompts[self.behind.models[self.behind.model[first]]][row])
        return _cut(name if width is None else tables.shortened(name, width), _PROMPT_BYTES)


def _cut(text: str, limit: int) -> Item:
    kept = text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
    return Item(kept, len(text) - len(kept))


def _thumbnail(path: pathlib.Path | pictures.Content, side: int) -> str:
    """A picture of at most side x side pixels as WebP, in base64."""
    with extras.needed("embed", package="Pillow", purpose="showing pictures"):
        from PIL import Image
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as opened:
            opened.draft("RGB", (2 * side, 2 * side))
            picture = pictures.as_viewed(opened)
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"{path}: expected a picture that Pillow can read ({error}).") from error
    picture.thumbnail((side, side))
    stream = io.BytesIO()
    picture.save(stream, "WEBP", quality=50, method=6)
    return base64.b64encode(stream.getvalue()).decode()
