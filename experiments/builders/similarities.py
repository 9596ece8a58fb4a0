"""Similarities of the responses of a set that need no embedding of a whole text."""

import itertools
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.encoders.minilm import MiniLMEncoder, pad_tokens, token_vectors

_WORD = re.compile(r"\w+")


def of_responses(texts: Sequence[str], encoder: MiniLMEncoder) -> dict[str, np.ndarray]:
    """By name, similarities of each two of k texts, `[k, k]`, with ones where texts are equal.

    Those of `edit_similarity` of words, of `match_tokens`, and the Jaccard index of the sets of
    three characters in a row, `trigram_similarity`.
    """
    words = [_WORD.findall(text.casefold()) or [text] for text in texts]
    padded = [f" {' '.join(text.casefold().split())} " for text in texts]
    trigrams = [{text[k : k + 3] for k in range(len(text) - 2)} for text in padded]
    ids = [encoding.ids for encoding in encoder.tokenizer.encode_batch(list(texts))]
    tokens, mask = pad_tokens(ids)
    marks = (tokens == ids[0][0]) | (tokens == ids[0][-1])
    matched = np.asarray(_match_texts(encoder.parameters, tokens, mask, marks))
    return {
        "edit_similarity": _of_pairs(words, edit_similarity),
        "trigram_similarity": _of_pairs(trigrams, lambda a, b: len(a & b) / len(a | b)),
        "token_similarity": matched[: len(texts), : len(texts)],
    }


def _of_pairs(items: Sequence, similarity: Callable) -> np.ndarray:
    found = np.eye(len(items))
    for i, j in itertools.combinations(range(len(items)), 2):
        found[i, j] = found[j, i] = similarity(items[i], items[j])
    return found


def edit_similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """1 less the least number of insertions, deletions and exchanges over the longer length."""
    row = list(range(len(second) + 1))
    for i, word in enumerate(first):
        above, row = row, [i + 1]
        for j, other in enumerate(second):
            row.append(min(above[j] + (word != other), above[j + 1] + 1, row[j] + 1))
    return 1 - row[-1] / max(len(first), len(second))


def match_tokens(vectors: jax.Array, mask: jax.Array) -> jax.Array:
    """The F1 of BERTScore (Zhang et al. 2020) of each two of k texts, `[k, k]`.

    Precision and recall are means over the tokens of a text of the largest cosine with a token of
    the other. Vectors are `[k, length, d]`; the mask `[k, length]` is false where no token is.
    """
    unit = vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = jnp.einsum("iad,jbd->ijab", unit, unit, precision="highest")
    best = jnp.max(jnp.where(mask[None, :, None, :], cosines, -1), axis=-1)
    recall = jnp.mean(best, axis=-1, where=mask[:, None, :])
    total = recall + recall.T
    return jnp.minimum(jnp.where(total > 0, 2 * recall * recall.T / total, 0), 1)


@jax.jit
def _match_texts(parameters, tokens, mask, marks):
    return match_tokens(token_vectors(parameters, tokens, mask), mask & ~marks)
