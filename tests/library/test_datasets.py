"""Texts and arrays on their way to `Pairs`: what is embedded, and what is known of it."""

import types
from typing import Any

import jax
import numpy as np
import pytest
from fake_encoders import Means
from PIL import Image

import condvendi_jax as cv
from condvendi_jax.encoders.embedding import LoadedEncoder
from condvendi_jax.inference import datasets


def _lengths(texts):
    return np.array([[len(text)] for text in texts], np.float32)


ONCE, TWICE = ["p", "q", "r", "s"], ["p", "p", "q", "q"]
EMBEDDED = [  # The prompts, their kernel, whether they are `similar_prompts`, and the answer.
    (ONCE, None, False, True),
    (TWICE, None, False, False),
    (["p", "p", "q", "r"], None, False, True),  # Half of the rows is not most of them.
    (["p", "p", "p", "r"], None, False, False),
    (TWICE, None, True, True),
    (TWICE, cv.Gaussian(1.0), False, True),
    (ONCE, cv.Indicator(), False, False),
    (ONCE, cv.Indicator(), True, False),
    ({"A": TWICE, "B": TWICE}, None, False, False),
    ({"A": TWICE, "B": ONCE}, None, False, True),
    ([1, 2, 3, 4], None, True, False),
    (None, None, False, False),
]


@pytest.mark.parametrize(("prompts", "kernel", "similar", "embedded"), EMBEDDED)
def test_prompts_are_embedded_if_compared_by_similarity(prompts, kernel, similar, embedded):
    embed = {"outputs": _lengths, "prompts": _lengths}
    data = datasets.Dataset({"A": ONCE, "B": ONCE}, prompts, embed)
    assert data.embedded(kernel, similar) == ["outputs", *["prompts"] * embedded]
    only = datasets.Dataset({"A": _lengths(ONCE)}, prompts, {"prompts": _lengths})
    assert only.embedded(kernel, similar) == ["prompts"] * embedded


def test_texts_of_all_models_are_embedded_in_one_call():
    calls = []

    def embed(texts):
        calls.append(list(texts))
        return _lengths(texts)

    models = {"A": ["a", "bb", "a", "ccc"], "B": ["dddd", "e", "ff", "e"]}
    data = datasets.Dataset(models, {"A": TWICE, "B": TWICE}, {"outputs": embed, "prompts": embed})
    kernel = cv.Gaussian(1.0)
    options = {"output_kernel": kernel, "prompt_kernel": None, "rule": "auto"}
    pairs = data.pairs(**options, similar_prompts=False)
    assert calls == [models["A"] + models["B"]]
    assert [of.arrays[0].shape for of in pairs.values()] == [(4, 1)] * 2
    differences = [np.ptp(of.arrays[0][:2]) for of in pairs.values()]
    assert differences == pytest.approx([1, 3])
    assert [of.prompt_ids.tolist() for of in pairs.values()] == [[0, 0, 1, 1]] * 2


def test_prompts_are_known_by_their_texts_and_the_bandwidth_of_the_encoder_is_the_default():
    """The encoder gives all prompts one embedding; 'median' is another rule than its bandwidth."""
    encoder = LoadedEncoder(types.SimpleNamespace(bandwidth=0.25, name="short"), "a:b")
    embed = {"outputs": _lengths, "prompts": _lengths}
    data = datasets.Dataset({"": ["a", "bb", "ccc", "d"]}, ONCE, embed, None, encoder)
    options = {"prompt_kernel": cv.Gaussian(1.0), "similar_prompts": False}
    options["key"] = jax.random.key(0)
    words = "fits people's judgements with short"
    for kernel, rule, bandwidth, told in (
        (None, "auto", 0.25, words),
        (None, "median", None, "median distance"),
        (cv.Gaussian(3.0), "auto", 3.0, "given"),
    ):
        (pairs,) = data.pairs(output_kernel=kernel, rule=rule, **options).values()
        chosen = pairs.bandwidths["outputs"]
        assert chosen.rule == told and (bandwidth is None or chosen.bandwidth == bandwidth)
        assert pairs.prompt_kinds[0] == 4 and np.ptp(np.asarray(pairs.arrays[1])) == 0


def test_outputs_have_the_name_of_what_they_are(tmp_path):
    files = [tmp_path / f"{k}.png" for k in range(6)]
    for k, file in enumerate(files):
        Image.fromarray(np.full((4, 4, 3), 9 * max(k, 1), np.uint8)).save(file)
    kinds: dict[str, Any] = {"answers": [*"aacdef"], "pictures": files}
    kinds["outputs"] = np.maximum(np.arange(6), 1)[:, None].astype(np.float32)
    for noun, outputs in kinds.items():
        encoder = None if noun == "outputs" else Means()
        options: Any = {"encoder": encoder, "orders": [2], "errors": False}
        found = cv.evaluate(outputs, [*"ppqqrr"], output_kernel=cv.Indicator(), **options)
        text = str(found)
        assert text.startswith(f"Of 2 {noun} to a prompt") and f"{noun.capitalize()}: " in text
        others = {*kinds} - {noun}
        assert not any(other in f"{text} {[*map(str, found.advice)]}" for other in others)


@pytest.mark.parametrize("similarity", [None, lambda one, other: float(one == other)])
def test_one_text_and_lists_beside_single_answers_are_refused(similarity):
    for models, words in (
        ({"": "some text"}, "received one text; expected a list of texts"),
        ({"A": [["a", "b"]] * 3, "B": ["a"] * 3}, "received lists of answers beside single"),
    ):
        with pytest.raises(TypeError, match=words):
            datasets.Dataset.of(models, ["p", "q", "r"], None, similarity, True, across=True)
