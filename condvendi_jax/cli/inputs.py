"""What `condvendi score` reads: arrays from files, or pictures and texts that it embeds."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags
from rich import progress

from condvendi_jax import files

_TEXT_ENDINGS = (".txt", ".csv", ".jsonl")
_SOURCES = ("outputs", "images", "texts")
_ENCODERS = {"images": "efficientnet:load_efficientnet", "texts": "minilm:load_minilm"}


def define(values: flags.FlagValues) -> None:
    """Adds the flags."""
    words = {
        "outputs": "Embeddings of the outputs [n, d_x]: a .npy, .npz or .safetensors file.",
        "prompts": "Their prompts: embeddings [n, d_t] in such a file, or texts: .txt of one a "
        "line, .csv or .jsonl; without them: Vendi and RKE alone.",
        "outputs_key": "Which array of the outputs' file.",
        "prompts_key": "Which array of the prompts' file.",
        "images": "In the place of --outputs: a folder of pictures, which are embedded.",
        "texts": "In the place of --outputs: a .txt, .csv or .jsonl file of texts.",
        "image_encoder": "What embeds pictures, package.module:attribute with encode(items); "
        "EfficientNet-Lite0 if unset.",
        "text_encoder": "What embeds texts, in the same form; all-MiniLM-L6-v2 if unset.",
        "prompt_column": "Which column of the prompts' file has the prompts.",
        "image_column": "Which column of the prompts' file names the pictures.",
        "text_column": "Which column of the texts' file has the texts.",
        "cache": "Folder of the embeddings that were made; the user's cache folder if unset.",
    }
    for name, word in words.items():
        flags.DEFINE_string(name, None, word, flag_values=values)


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
        "cache": texts or sources != ["outputs"],
    }
    for name, used in needs.items():
        if given[name] is not None and not used:
            raise ValueError(f"--{name}: there is nothing here that it would act on.")


def _is_text(path: str | None) -> bool:
    return path is not None and pathlib.Path(path).suffix.lower() in _TEXT_ENDINGS


def describe(given: dict[str, Any]) -> dict[str, Any]:
    """The flags that say what was scored."""
    names = (*_SOURCES, "prompts", "outputs_key", "prompts_key", "image_encoder", "text_encoder")
    return {name: given[name] for name in names if given[name] is not None}


def read(given: dict[str, Any], bar: progress.Progress) -> dict[str, np.ndarray]:
    """The outputs and, where there are any, the prompts, as embeddings by name.

    Raises:
      ValueError: a file cannot be read or embedded, or the numbers do not fit.
    """
    prompts = None
    if _is_text(given["prompts"]):
        from condvendi_jax.encoders import items  # Encoders need packages that arrays do not.

        prompts = items.read_prompts(
            given["prompts"],
            column=given["prompt_column"],
            image_column=given["image_column"],
        )
    arrays = {"outputs": _outputs(given, prompts, bar)}
    if prompts is not None:
        arrays["prompts"] = _embedded(prompts.texts, "texts", given, bar, "prompts")
    elif given["prompts"] is not None:
        path, key = given["prompts"], given["prompts_key"]
        arrays["prompts"] = files.read_array(path, key=key)
    return arrays


def _outputs(given: dict[str, Any], prompts: Any, bar: progress.Progress) -> np.ndarray:
    if given["outputs"] is not None:
        return files.read_array(given["outputs"], key=given["outputs_key"])
    from condvendi_jax.encoders import items

    if given["images"] is not None:
        found = items.list_images(given["images"])
        if prompts is not None:
            found = items.pair_images(prompts, found)
        return _embedded(found, "images", given, bar, "pictures")
    texts = items.read_texts(given["texts"], column=given["text_column"])
    if prompts is not None:
        items.pair_texts(prompts, texts)
    return _embedded(texts, "texts", given, bar, "texts")


def _embedded(
    found: Any, kind: Any, given: dict[str, Any], bar: progress.Progress, words: str
) -> np.ndarray:
    """The embeddings of pictures or texts, from the cache as far as they are there."""
    from condvendi_jax.encoders import embedding

    spec = given["image_encoder" if kind == "images" else "text_encoder"]
    encoder = embedding.load_encoder(spec, _default(kind))
    task = bar.add_task(f"embedding {words}", total=len(found))
    return embedding.embed(
        found,
        encoder,
        kind=kind,
        cache=given["cache"],
        progress=lambda count: bar.advance(task, count),
    )


def _default(kind: str) -> Callable[[], Any]:
    """What loads the shipped encoder."""
    module, name = _ENCODERS[kind].split(":")
    return getattr(importlib.import_module(f"condvendi_jax.encoders.{module}"), name)
