"""The builder of the judged sets, on a small repository of its own."""

import csv
import io
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import human, similarities

pytestmark = pytest.mark.slow

METRICS = ("metric_SentBert", "metric_BertScore")
STORY = [("cab, a", ("ab", "bc", 'with "quotes", and\nlines'), 1.0, 4.5)]
STORY += [("cab, a", ("ab", "ab", "ab"), 0.0, 1.5)]
REPLIES = [("de", ("ab", "cc", "dd", "a"), 0.7, 3.25)]


def task(label_name, rows):
    """A task's file."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    responses = [f"resp_{k}" for k in range(len(rows[0][1]))]
    people = ["metric_abs_hds_mean", "metric_abs_hds_std"]
    writer.writerow(
        ["sample_id", "context", "label_value", "label_name", *responses, *people, *METRICS]
    )
    for context, texts, value, judged in rows:
        writer.writerow(["id", context, value, label_name, *texts, judged, 9, judged / 5, -1])
    return file.getvalue().encode("utf-8-sig")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("human")
    tasks = "data/with_metrics"
    files = {
        f"{tasks}/decTest/x_200_with_hds_resp_gen.csv": task("temp", REPLIES),
        f"{tasks}/conTest/x_200_with_hds_story_gen.csv": task("content_diversity", STORY),
        f"{tasks}/conTest/con_test_1000_prompt_gen.csv": b"x",
    }
    clone = repository(folder / "clone", "me/it", files)
    made = make(human, folder, clone, DIMENSIONS=(9, 3), of_responses=lengths_alike)
    with np.load(folder / "human_similarities.npz") as stored:
        return made, dict(stored)


def lengths_alike(texts, encoder):
    lengths = np.array([len(text) for text in texts])
    return {"length_similarity": np.minimum.outer(lengths, lengths) / lengths.max()}


def test_every_response_knows_its_set_and_what_people_said(both):
    pairs = both[0].pairs
    labels = pairs.labels
    assert labels["sets"].tolist() == [0] * 3 + [1] * 3 + [2] * 4
    assert labels["task"].tolist() == ["conTest story"] * 6 + ["decTest response"] * 4
    np.testing.assert_array_equal(labels["people"], [4.5] * 3 + [1.5] * 3 + [3.25] * 4)
    np.testing.assert_array_equal(labels["label"], [1] * 3 + [0] * 3 + [np.nan] * 4)
    np.testing.assert_allclose(labels["temperature"], [np.nan] * 6 + [0.7] * 4)
    np.testing.assert_allclose(labels["metric_SentBert"], labels["people"] / 5)
    np.testing.assert_array_equal(labels["metric_BertScore"], -1)
    texts = {f"text_{name}" for name in similarities.OF_TEXTS}
    known = {"task", "sets", "prompt", "people", "label", "temperature", *METRICS}
    assert set(labels) == known | texts
    # "ab" three times has two different n-grams (of one word) of six.
    np.testing.assert_allclose(labels["text_distinct-n"][[0, 3, 6]], [1, 1 / 3, 1])
    assert "3 sets" in pairs.description and "2 contexts" in pairs.description


def test_equal_texts_have_equal_rows_and_angles_are_those_of_the_encoder(both):
    pairs = both[0].pairs
    texts = ["ab", "bc", 'with "quotes", and\nlines', *["ab"] * 3, "ab", "cc", "dd", "a"]
    rows = both[0].texts.rows([*texts, *["cab, a"] * 6, *["de"] * 4])
    found = np.concatenate([pairs.outputs, pairs.prompts])
    np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=2e-3)  # float16.
    np.testing.assert_array_equal(pairs.outputs[0], pairs.outputs[6])
    assert pairs.labels["prompt"].tolist() == [0] * 6 + [1] * 4


def test_similarities_of_a_set_are_rows_that_zeros_fill_up(both):
    """Texts of length 2, 2 and 24; of 2, 2 and 2; of 2, 2, 2 and 1."""
    (rows,) = both[1].values()
    assert list(both[1]) == ["length_similarity"] and rows.dtype == np.float16
    first, second = np.full((3, 3), 2 / 24), np.ones((3, 3))
    first[2, 2], third = 1, np.ones((4, 4))
    third[3] = third[:, 3] = 0.5
    np.testing.assert_allclose(rows[:6, :3], np.vstack([first, second]), rtol=1e-3)
    np.testing.assert_allclose(rows[6:], third)
    assert not rows[:6, 3].any()


def test_texts_are_compared_by_words_characters_and_tokens(monkeypatch):
    """Of "a b", "A  b" and "c": the marks around the tokens of a text have no part in it."""
    table, numbers = np.eye(6, dtype=np.float32), {"a": 2, "b": 3, "c": 4}
    monkeypatch.setattr(similarities, "token_vectors", lambda table, tokens, mask: table[tokens])

    def encode_batch(texts):
        of_texts = [[0, *map(numbers.get, text.casefold().split()), 1] for text in texts]
        return [types.SimpleNamespace(ids=ids) for ids in of_texts]

    tokenizer = types.SimpleNamespace(encode_batch=encode_batch)
    encoder: Any = types.SimpleNamespace(parameters=jnp.asarray(table), tokenizer=tokenizer)
    found = similarities.of_responses(["a b", "A  b", "c", "b a c"], encoder)
    same = [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    for name in ("edit_similarity", "trigram_similarity", "token_similarity"):
        np.testing.assert_allclose(found[name][:3, :3], same, atol=1e-6)
        np.testing.assert_array_equal(found[name], found[name].T)
    np.testing.assert_allclose(found["edit_similarity"][3], [1 / 3, 1 / 3, 1 / 3, 1])
    # All tokens of the first are in the last, and two of three the other way round.
    np.testing.assert_allclose(found["token_similarity"][3], [0.8, 0.8, 0.5, 1], atol=1e-6)
    # " a ", "a b", " b " and " b ", "b a", " a ", "a c", " c ": two of six.
    assert found["trigram_similarity"][3, 0] == pytest.approx(2 / 6)


def test_scores_of_texts_are_those_by_hand():
    """Of "a b c" and "a b d": two words and a pair of words in common."""
    texts = ["a b c", "A b, d"]
    # Four words of six, three pairs of four, two triples of two.
    assert similarities.distinct_n(texts) == pytest.approx((4 / 6 + 3 / 4 + 1) / 3)
    # Two of three words, (1 + 1) of (2 + 1) pairs, (0 + 1) of (1 + 1) triples; as long.
    assert similarities.self_bleu(texts) == pytest.approx(-((2 / 3 * 2 / 3 * 1 / 2) ** (1 / 3)))
    # All words of a text of two in one of three, which is longer by half.
    assert similarities.bleu(["a", "b"], [["a", "b", "c"]]) == pytest.approx(np.exp(1 - 3 / 2))
    assert similarities.self_bleu(["a", "b"]) == 0
    assert similarities.compression(["ab" * 50] * 2) < similarities.compression(["ab", "cd"])
