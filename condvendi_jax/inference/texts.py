"""Outputs that are texts: embedded, and compared at the bandwidth that suits their encoder."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax import encoders
from condvendi_jax.base import checks, labelling
from condvendi_jax.data import shapes
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.kernel_choice import KernelChoice
from condvendi_jax.data.models import of_each_model
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.encoders import embedding
from condvendi_jax.inference.results.evaluation import DOUBT, Advice, Evaluation
from condvendi_jax.records import answers

_LOOK = "Look at them: refusals and errors that differ from other answers count as diverse"


class Embedded(NamedTuple):
    """Outputs and prompts of each model as embeddings, and what is known of them beside."""

    outputs: dict[str, Any]
    prompts: Any  # As they were passed where they repeat.
    prompt_ids: Any  # The texts of the prompts.
    output_kernel: KernelChoice  # The bandwidth of the encoder, where it has one.
    encoder: dict[str, Any]  # As `LoadedEncoder.described` has it.


def judged(encoder: Any) -> RuledBandwidth | None:
    """The bandwidth at which an encoder fits people's judgements, if it is known."""
    width = getattr(encoder, "bandwidth", None)
    words = f"fits people's judgements with {getattr(encoder, 'name', 'this encoder')}"
    return None if width is None else RuledBandwidth(float(width), words)


def by_row(outputs: Any, prompts: Any, *, lists: bool) -> tuple[Any, Any]:
    """Lists of the answers to each prompt, one after the other, each with its prompt.

    Where all outputs are lists of texts or, if `lists`, of anything; others are as they were.
    """
    outputs, prompts = shapes.listed(outputs), shapes.listed(prompts)
    of_models: Any = outputs.values() if isinstance(outputs, Mapping) else [None]
    if not all(isinstance(of, list | tuple) for of in of_models):
        return outputs, prompts
    each = [*itertools.chain(*of_models)]
    if not each or not all(isinstance(of, list) if lists else _are_texts(of) for of in each):
        return outputs, prompts
    flat = {name: [*itertools.chain(*of)] for name, of in outputs.items()}
    if prompts is None and not lists:
        return flat, None
    if prompts is None:
        prompts = {name: range(len(of)) for name, of in outputs.items()}
    repeated = {}
    for name, asked in of_each_model(prompts, outputs, "prompts").items():
        of = outputs[name]
        if len(asked) != len(of):
            raise ValueError(
                f"outputs{name and f' of {name}'}: expected lists of answers to {len(asked):,} "
                f"prompts, received {len(of):,} lists."
            )
        repeated[name] = [p for p, each in zip(asked, of, strict=True) for _ in each]
    alike = all(of == next(iter(repeated.values())) for of in repeated.values())
    return flat, next(iter(repeated.values())) if alike else repeated


def of_models(outputs: Any) -> dict[str, list[str]]:
    """The texts of the models whose outputs are texts."""
    each = outputs.items() if isinstance(outputs, Mapping) else ()
    return {name: [*map(str, of)] for name, of in each if _are_texts(of)}


def advised(evaluation: Evaluation, pairs: Pairs, texts: Sequence[Any] | None) -> Evaluation:
    """The evaluation of pairs with advice on texts that may not be what a model said."""
    if not texts or not pairs.paired or not all(isinstance(text, str) for text in texts):
        return evaluation
    lines = answers.doubts(texts, pairs.prompt_kinds[1].tolist())
    doubt = Advice(DOUBT, "some answers may not be what a model said", "; ".join(lines), _LOOK)
    return dataclasses.replace(evaluation, advice=(*evaluation.advice, *[doubt] * bool(lines)))


def embed(
    outputs: Mapping[str, Any], prompts: Any, prompt_ids: Any, encoder: Any, *, similar: bool
) -> Embedded | None:
    """Embeds outputs that are texts, else None, and prompts that do not repeat or are `similar`."""
    named = isinstance(outputs, Mapping) and bool(outputs)
    if named and prompts is not None:
        for name, of_model in of_each_model(prompts, outputs, "prompts").items():
            checks.check_indices({"outputs": outputs[name], "prompts": of_model})
    if not named or not all(map(_are_texts, outputs.values())):
        if encoder is not None:
            raise TypeError("encoder: expected texts as the outputs of all models.")
        return None
    if encoder is None or isinstance(encoder, str):
        encoder = embedding.load_encoder(encoder, encoders.load_minilm)
    loaded = embedding.as_loaded(encoder)

    def rows(texts: Any) -> np.ndarray:
        return embedding.embed(list(map(str, texts)), loaded, kind="texts")

    by_model = prompts if isinstance(prompts, Mapping) else {"": prompts}
    if prompts is not None and all(map(_are_texts, by_model.values())):
        prompt_ids = prompts if prompt_ids is None else prompt_ids
        if similar or not all(map(_repeat, by_model.values())):
            embedded = {name: rows(texts) for name, texts in by_model.items()}
            prompts = embedded if isinstance(prompts, Mapping) else embedded[""]
    embedded, told = {name: rows(of) for name, of in outputs.items()}, loaded.described("texts")
    return Embedded(embedded, prompts, prompt_ids, judged(encoder), told)


def compare_pairs(
    similarity: Any, outputs: Mapping[str, Any], prompts: Any, *, across: bool, **options: Any
) -> dict[str, Similarities]:
    """The outputs of models, compared by a function within each model, or also `across` models."""
    asked = of_each_model(prompts, outputs, "prompts")
    make = functools.partial(Similarities.from_function, similarity, **options)
    if not across:
        return {name: make(of_model, asked[name]) for name, of_model in outputs.items()}
    items = [item for of_model in outputs.values() for item in of_model]
    models = [name for name, of_model in outputs.items() for _ in of_model]
    if prompts is None:
        return make(items).split(models)
    return make(items, [label for name in outputs for label in asked[name]]).split(models)


def _are_texts(values: Any) -> bool:
    return shapes.are_labels(values) and all(isinstance(value, str) for value in values)


def _repeat(texts: Any) -> bool:
    """Whether more than half of the texts are there several times."""
    kinds = labelling.check_labels(texts, len(texts), name="prompts")[1]
    return float(np.mean(np.bincount(kinds)[kinds] > 1)) > 0.5
