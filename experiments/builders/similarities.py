"""Similarities and scores of the responses of a set that need no embedding of a whole text."""

import functools
import itertools
import math
import operator
import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.encoders.minilm import MiniLMEncoder, Parameters, pad_tokens, token_vectors

_WORD = re.compile(r"\w+")
DISTINCT, SELF_BLEU, COMPRESSION = "distinct-n", "self-BLEU", "compression"


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; the text where it has none."""
    return _WORD.findall(text.casefold()) or [text]


def of_responses(texts: Sequence[str], encoder: MiniLMEncoder) -> dict[str, np.ndarray]:
    """By name, similarities of each two of k texts, `[k, k]`, with ones where texts are equal."""
    return {
        "edit_similarity": edits(texts),
        "trigram_similarity": trigrams(texts),
        "token_similarity": matched_tokens(texts, encoder),
    }


def edits(texts: Sequence[str]) -> np.ndarray:
    """The `edit_similarity` of the words of each two texts, `[k, k]`."""
    return _of_pairs(list(map(words_of, texts)), edit_similarity)


def trigrams(texts: Sequence[str]) -> np.ndarray:
    """The Jaccard index of the sets of three characters in a row, `[k, k]`."""
    padded = [f" {' '.join(text.casefold().split())} " for text in texts]
    sets = [{text[k : k + 3] for k in range(len(text) - 2)} for text in padded]
    return _of_pairs(sets, lambda a, b: len(a & b) / len(a | b))


def matched_tokens(texts: Sequence[str], encoder: MiniLMEncoder) -> np.ndarray:
    """`match_tokens` of each two texts, without the marks around their tokens, `[k, k]`."""
    ids = [encoding.ids for encoding in encoder.tokenizer.encode_batch(list(texts))]
    tokens, mask = pad_tokens(ids)
    marks = (tokens == ids[0][0]) | (tokens == ids[0][-1])
    matched = np.asarray(match_tokens(encoder.parameters, tokens, mask, mask & ~marks))
    return matched[: len(texts), : len(texts)]


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


@jax.jit
def match_tokens(
    parameters: Parameters, tokens: jax.Array, mask: jax.Array, counted: jax.Array
) -> jax.Array:
    """The F1 of BERTScore (Zhang et al. 2020) of each two of k texts, `[k, k]`.

    Precision and recall are means over the tokens of a text that are counted of the largest cosine
    with one of the other. Tokens are `[k, length]`; the mask is false where there is none.
    """
    vectors = token_vectors(parameters, tokens, mask)
    unit = vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = jnp.einsum("iad,jbd->ijab", unit, unit, precision="highest")
    best = jnp.max(jnp.where(counted[None, :, None, :], cosines, -1), axis=-1)
    recall = jnp.mean(best, axis=-1, where=counted[:, None, :])
    total = recall + recall.T
    return jnp.minimum(jnp.where(total > 0, 2 * recall * recall.T / total, 0), 1)


def distinct_n(texts: Sequence[str]) -> float:
    """The share of different n-grams of words among all (Li et al. 2016), mean over n = 1, 2, 3."""
    of_n = [sum((_ngrams(words_of(text), n) for text in texts), Counter()) for n in (1, 2, 3)]
    return float(np.mean([len(grams) / grams.total() for grams in of_n if grams]))


def self_bleu(texts: Sequence[str]) -> float:
    """Minus the mean BLEU of each text with the others as references (Zhu et al. 2018)."""
    words = list(map(words_of, texts))
    return -float(np.mean([bleu(words[i], words[:i] + words[i + 1 :]) for i in range(len(words))]))


def bleu(words: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU-4 of a text, of at most as many orders as it has words; bigrams on count one more."""
    logs = []
    for n in range(1, min(4, len(words)) + 1):
        grams = _ngrams(words, n)
        most = functools.reduce(operator.or_, (_ngrams(of, n) for of in references))
        hits, plus = (grams & most).total(), int(n > 1)
        if hits + plus == 0:
            return 0.0
        logs.append(math.log((hits + plus) / (grams.total() + plus)))
    length = min((abs(len(of) - len(words)), len(of)) for of in references)[1]
    return math.exp(min(0, 1 - length / len(words)) + np.mean(logs))


def _ngrams(words: Sequence[str], n: int) -> Counter:
    return Counter(zip(*(words[k:] for k in range(n)), strict=False))


def compression(texts: Sequence[str]) -> float:
    """The bytes of all texts compressed, over those bytes (Shaib et al. 2024)."""
    whole = "\n".join(texts).encode()
    return len(zlib.compress(whole, 9)) / len(whole)


#: Scores of the diversity of some texts by what they count, larger where more diverse.
OF_TEXTS = {DISTINCT: distinct_n, SELF_BLEU: self_bleu, COMPRESSION: compression}
