"""The builder of the judged sets, on a small repository of its own."""

import csv
import io

import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import human

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
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("human")
    tasks = "data/with_metrics"
    files = {
        f"{tasks}/decTest/x_200_with_hds_resp_gen.csv": task("temp", REPLIES),
        f"{tasks}/conTest/x_200_with_hds_story_gen.csv": task("content_diversity", STORY),
        f"{tasks}/conTest/con_test_1000_prompt_gen.csv": b"x",
    }
    clone = repository(folder / "clone", "me/it", files)
    return make(human, folder, clone, DIMENSIONS=(9, 3))


def test_every_response_knows_its_set_and_what_people_said(made):
    labels = made.pairs.labels
    assert labels["sets"].tolist() == [0] * 3 + [1] * 3 + [2] * 4
    assert labels["task"].tolist() == ["conTest story"] * 6 + ["decTest response"] * 4
    np.testing.assert_array_equal(labels["people"], [4.5] * 3 + [1.5] * 3 + [3.25] * 4)
    np.testing.assert_array_equal(labels["label"], [1] * 3 + [0] * 3 + [np.nan] * 4)
    np.testing.assert_allclose(labels["temperature"], [np.nan] * 6 + [0.7] * 4)
    np.testing.assert_allclose(labels["metric_SentBert"], labels["people"] / 5)
    np.testing.assert_array_equal(labels["metric_BertScore"], -1)
    assert set(labels) == {"task", "sets", "prompt", "people", "label", "temperature", *METRICS}
    assert "3 sets" in made.pairs.description and "2 contexts" in made.pairs.description


def test_equal_texts_have_equal_rows_and_angles_are_those_of_the_encoder(made):
    pairs = made.pairs
    texts = ["ab", "bc", 'with "quotes", and\nlines', *["ab"] * 3, "ab", "cc", "dd", "a"]
    rows = made.texts.rows([*texts, *["cab, a"] * 6, *["de"] * 4])
    found = np.concatenate([pairs.outputs, pairs.prompts])
    np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=2e-3)  # float16.
    np.testing.assert_array_equal(pairs.outputs[0], pairs.outputs[6])
    assert pairs.labels["prompt"].tolist() == [0] * 6 + [1] * 4


def test_an_encoder_is_cut_with_its_contexts(made):
    assert made.pairs.further["second_outputs"].shape == (10, 3)
    assert made.pairs.further["second_prompts"].shape == (10, 3)
    assert made.cut["words"]["kept"].startswith("4 of 4 principal directions, with 1.0000")
    assert made.cut["others"]["kept"].startswith("3 of 4 principal directions, with 0.9")
