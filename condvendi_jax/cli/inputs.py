"""What `condvendi score` reads: arrays from files, or pictures and texts that it embeds."""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import flags
from rich import progress

from condvendi_jax import files

if TYPE_CHECKING:
    from condvendi_jax.encoders.embedding import LoadedEncoder

_TEXT_ENDINGS = (".txt", ".csv", ".jsonl")
_SOURCES = ("outputs", "images", "texts")
_ENCODERS = {"images": "efficientnet:load_efficientnet", "texts": "minilm:load_minilm"}


def define(values: flags.FlagValues) -> None:
    """Adds the flags."""
    words = {
        "outputs": "Embeddings of the outputs [n, d_x]: a .npy, .npz or .safetensors file.",
        "prompts": "Their prompts: embeddings [n, d_t] in such a file, or texts in a .txt file of "
        "one prompt a line, a .csv or a .jsonl file. Without prompts: Vendi and RKE only.",
        "outputs_key": "The array to read from the file of the outputs.",
        "prompts_key": "The array to read from the file of the prompts.",
        "images": "Instead of --outputs: a folder of pictures, which are embedded.",
        "texts": "Instead of --outputs: a .txt, .csv or .jsonl file of texts, which are embedded.",
        "image_encoder": "The encoder of pictures: package.module:attribute with encode(items); "
        "EfficientNet-Lite0 if unset.",
        "text_encoder": "The encoder of texts, in the same form; all-MiniLM-L6-v2 if unset.",
        "prompt_column": "The column of the prompts' file that holds the prompts.",
        "image_column": "The column of the prompts' file that names the pictures.",
        "text_column": "The column of the texts' file that holds the texts.",
        "cache": "The folder that keeps embeddings; the user's cache folder if unset.",
    }
    for name, word in words.items():
        flags.DEFINE_string(name, None, word, flag_values=values)
    flags.DEFINE_enum(
        "long_texts",
        None,
        ["cut", "chunks"],
        "What all-MiniLM-L6-v2 does with texts longer than the 256 tokens that it reads: 'cut', "
        "the default, ignores the rest with a warning; 'chunks' averages the embeddings of pieces.",
        flag_values=values,
    )


def check(given: dict[str, Any]) -> None:
    """Refuses what would be ignored, before anything is read.

    Raises:
      ValueError: outputs are missing or given twice, or a flag has nothing to act on.
    """
    sources = [name for name in _SOURCES if given[name] is not None]
    if not sources:
        raise ValueError("--outputs, --images or --texts is required; --help lists all flags.")
    if len(sources) > 1:
        raise ValueError(f"--{sources[0]} and --{sources[1]}: give one or the other.")
    texts = _is_text(given["prompts"])
    needs = {
        "outputs_key": sources == ["outputs"],
        "prompts_key": given["prompts"] is not None and not texts,
        "prompt_column": texts,
        "image_column": texts and sources == ["images"],
        "text_column": sources == ["texts"],
        "image_encoder": sources == ["images"],
        "text_encoder": texts or sources == ["texts"],
        "long_texts": texts or sources == ["texts"],
        "cache": texts or sources != ["outputs"],
    }
    for name, used in needs.items():
        if given[name] is not None and not used:
            raise ValueError(f"--{name}: there is nothing here that it would act on.")
    if given["long_texts"] is not None and given["text_encoder"] is not None:
        raise ValueError("--long_texts is an option of all-MiniLM-L6-v2, not of --text_encoder.")


def _is_text(path: str | None) -> bool:
    return path is not None and pathlib.Path(path).suffix.lower() in _TEXT_ENDINGS


class Inputs(NamedTuple):
    """What was read.

    Attributes:
      arrays: the outputs and, if there are any, the prompts, as embeddings by name.
      described: the files, columns and encoders, for JSON.
      notes: the encoders and the pairing, one line each, to print below the table.
    """

    arrays: dict[str, np.ndarray]
    described: dict[str, Any]
    notes: list[str]


def read(given: dict[str, Any], bar: progress.Progress) -> Inputs:
    """Reads the files, pairs outputs with prompts, and embeds pictures and texts.

    Raises:
      ValueError: a file cannot be read or embedded, the numbers of outputs and prompts differ, or
        outputs and prompts are the same data.
    """
    names = (*_SOURCES, "prompts", "outputs_key", "prompts_key")
    described = {name: given[name] for name in names if given[name] is not None}
    found, columns = _read_files(given)
    described |= columns
    arrays, encoders = {}, []
    for role, items in found.items():
        if isinstance(items, np.ndarray):
            arrays[role] = items
            continue
        kind = "images" if role == "outputs" and given["images"] is not None else "texts"
        what = role if role == "prompts" else {"images": "pictures", "texts": "texts"}[kind]
        encoder = _load_encoder(given, kind)
        arrays[role] = _embed(items, encoder, kind, given["cache"], bar, what)
        described[f"{kind[:-1]}_encoder"] = encoder.name
        described[f"{kind[:-1]}_encoder_path"] = encoder.spec
        column = described.get("prompt_column" if role == "prompts" else "text_column")
        where = f" (column {column!r})" if column and kind == "texts" else ""
        encoders.append(f"{what}{where} embedded by {encoder.name}")
    if "prompts" in arrays:
        refuse_equal("outputs", arrays["outputs"], arrays["prompts"])
    notes = ["; ".join(encoders)] if encoders else []
    if "paired_by" in described:
        notes.append(f"outputs paired with prompts by {described['paired_by']}")
    return Inputs(arrays, described, notes)


def refuse_equal(name: str, outputs: np.ndarray, prompts: np.ndarray) -> None:
    """Raises ValueError where outputs, of a name, are their own prompts."""
    if np.array_equal(outputs, prompts):
        raise ValueError(
            f"{name} and their prompts are equal in every row: give the outputs, and the prompts "
            "that they answer."
        )


def _read_files(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrays, texts or paths of pictures by role; and the columns and the pairing, for JSON."""
    if given["outputs"] is not None and not _is_text(given["prompts"]):
        return _read_arrays(given), {}
    from condvendi_jax.encoders import items  # Encoders need packages that arrays do not.

    columns = {"prompt_column": "", "image_column": "", "text_column": "", "paired_by": ""}
    found: dict[str, Any] = {"outputs": None}  # Outputs are embedded first.
    prompts = None
    if given["prompts"] is not None:
        columns["paired_by"] = "order"
        if _is_text(given["prompts"]):
            prompts = items.read_prompts(given["prompts"], column=given["prompt_column"])
            columns["prompt_column"] = prompts.column
            found["prompts"] = prompts.texts
        else:
            found["prompts"] = files.read_array(given["prompts"], key=given["prompts_key"])
    if given["outputs"] is not None:
        found["outputs"] = files.read_array(given["outputs"], key=given["outputs_key"])
    elif given["images"] is not None:
        found["outputs"] = items.list_images(given["images"])
        if prompts is not None:
            found["outputs"], column = items.pair_images(
                prompts, found["outputs"], column=given["image_column"]
            )
            if column is not None:
                columns |= {"image_column": column, "paired_by": f"image column {column!r}"}
    else:
        texts = items.read_texts(given["texts"], column=given["text_column"])
        if prompts is not None:
            items.pair_texts(prompts, texts)
        columns["text_column"] = texts.column
        found["outputs"] = texts.texts
    return found, {name: value for name, value in columns.items() if value}


def _read_arrays(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Outputs and prompts, which must not be the same array.

    Raises:
      ValueError: a file cannot be read, or one array is both.
    """
    roles = [role for role in ("outputs", "prompts") if given[role] is not None]
    keys = [given[f"{role}_key"] for role in roles]
    paths = [given[role] for role in roles]
    arrays = {
        role: files.read_array(path, key=key)
        for role, path, key in zip(roles, paths, keys, strict=True)
    }
    same_file = len(roles) == 2 and os.path.samefile(*map(files.expanded, paths))
    # Where one key was not needed to read it, the file holds only one array.
    if same_file and (keys[0] == keys[1] or None in keys):
        raise ValueError(
            f"{paths[0]}: the same array is both --outputs and --prompts; give two files, or "
            "two keys with --outputs_key and --prompts_key."
        )
    return arrays


def _load_encoder(given: dict[str, Any], kind: str) -> LoadedEncoder:
    from condvendi_jax.encoders import embedding

    options = {}
    if kind == "texts" and given["long_texts"] is not None:
        options["long_texts"] = given["long_texts"]
    return embedding.load_encoder(given[f"{kind[:-1]}_encoder"], _default(kind), **options)


def _embed(
    items: Sequence[Any],
    encoder: LoadedEncoder,
    kind: Any,
    cache: str | None,
    bar: progress.Progress,
    what: str,
) -> np.ndarray:
    """The embeddings of pictures or texts; those in the cache are not computed again."""
    from condvendi_jax.encoders import embedding

    task = bar.add_task(f"embedding {what}", total=len(items))
    return embedding.embed(
        items, encoder, kind=kind, cache=cache, progress=lambda count: bar.advance(task, count)
    )


def _default(kind: str) -> Callable[[], Any]:
    """What loads the shipped encoder."""
    module, name = _ENCODERS[kind].split(":")
    return getattr(importlib.import_module(f"condvendi_jax.encoders.{module}"), name)
