"""A language model of a few numbers in the published format, and what it computes, in float64."""

import numpy as np

WIDTH, LAYERS, HEADS, GROUPS, HIDDEN, THETA, EPSILON = 32, 2, 4, 2, 64, 100.0, 1e-3
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "1 2", "h e"]


def byte_words():
    """The 256 characters that stand for bytes in byte-level encodings (Radford et al. 2019)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte if byte in kept else next(moved)) for byte in range(256)]


WORDS = SPECIAL + byte_words() + [merge.replace(" ", "") for merge in MERGES]
MATRICES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH // HEADS * GROUPS, WIDTH),
    "attn_v": (WIDTH // HEADS * GROUPS, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (HIDDEN, WIDTH),
    "ffn_up": (HIDDEN, WIDTH),
    "ffn_down": (WIDTH, HIDDEN),
}


def weights(seed):
    """The model's tensors by their published names."""
    generator = np.random.default_rng(seed)

    def matrix(shape, spread):
        return (spread * generator.normal(size=shape)).astype(np.float32)

    found = {"token_embd.weight": matrix((len(WORDS), WIDTH), 0.4)}
    found["output_norm.weight"] = 1 + matrix(WIDTH, 0.1)
    for layer in range(LAYERS):
        for name, shape in MATRICES.items():
            found[f"blk.{layer}.{name}.weight"] = matrix(shape, 0.3)
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{layer}.{name}.weight"] = 1 + matrix(WIDTH, 0.1)
    return found


def quantised(name):
    """Whether a tensor is written in four bits."""
    return name.split(".")[-2] in MATRICES


def write(path, tensors, *, end=2, architecture="llama", pre="smollm", rotated=WIDTH // HEADS):
    """Writes a GGUF file."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_rope_freq_base(THETA)
    writer.add_rope_dimension_count(rotated)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(WORDS)
    writer.add_token_types([3 if word in SPECIAL else 1 for word in WORDS])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(end)
    for name, tensor in tensors.items():
        if quantised(name) and tensor.shape[-1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def four_bits(tensor):
    """What Q4_1 keeps: of 32 numbers, the least and steps of a fifteenth of their range."""
    blocks = tensor.astype(np.float32).reshape(-1, 32)
    low = blocks.min(axis=1, keepdims=True)
    step = (blocks.max(axis=1, keepdims=True) - low) / np.float32(15)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step > 0)
    levels = np.clip(np.trunc((blocks - low) * inverse + np.float32(0.5)), 0, 15)
    step, low = (part.astype(np.float16).astype(np.float64) for part in (step, low))
    return (levels * step + low).reshape(tensor.shape)


def _norm(x, weight):
    return weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + EPSILON)


def _turned(x):
    """Pairs of neighbours as complex numbers, turned by their positions; `[length, heads, d]`."""
    length, _, d = x.shape
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    angles = np.arange(length)[:, None] * THETA ** (-2 * np.arange(d // 2) / d)
    turned = pairs * np.exp(1j * angles)[:, None]
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def logits(tensors, tokens):
    """Logits of one text's tokens, `[length, vocabulary]`, in float64, position by position."""
    read = {n: four_bits(t) if quantised(n) else t.astype(float) for n, t in tensors.items()}
    length, d = len(tokens), WIDTH // HEADS
    x = read["token_embd.weight"][list(tokens)]
    for layer in range(LAYERS):
        w = {n.split(".")[2]: t for n, t in read.items() if n.startswith(f"blk.{layer}.")}
        y = _norm(x, w["attn_norm"])
        q, k, v = ((y @ w[f"attn_{p}"].T).reshape(length, -1, d) for p in "qkv")
        q, k = _turned(q), _turned(k)
        mixed = np.zeros((length, HEADS, d))
        for head in range(HEADS):
            shared = head // (HEADS // GROUPS)
            for place in range(length):
                scores = k[: place + 1, shared] @ q[place, head] / np.sqrt(d)
                share = np.exp(scores - scores.max())
                mixed[place, head] = share / share.sum() @ v[: place + 1, shared]
        x = x + mixed.reshape(length, WIDTH) @ w["attn_output"].T
        y = _norm(x, w["ffn_norm"])
        gate = y @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up"].T)) @ w["ffn_down"].T
    return _norm(x, read["output_norm.weight"]) @ read["token_embd.weight"].T


def log_probabilities(tensors, prompt, answer):
    """Of each token of an answer given the prompt and those before it, in nats."""
    found = logits(tensors, [*prompt, *answer])
    found -= found.max(axis=1, keepdims=True)
    found -= np.log(np.exp(found).sum(axis=1, keepdims=True))
    places = np.arange(len(prompt) - 1, len(prompt) + len(answer) - 1)
    return found[places, list(answer)]
