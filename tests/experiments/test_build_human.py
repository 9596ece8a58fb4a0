"""The builder of the judged sets, on a small repository of its own."""

import csv
import subprocess

import numpy as np
import pytest

from experiments.builders import common, human
from experiments.data.sets import read_set

pytestmark = pytest.mark.slow

_NAMES = ("metric_SentBert", "metric_BertScore")


class Letters:
    """How long a text is, and which letters it has."""

    def __init__(self, name, width):
        self.name, self.width = name, width

    def encode(self, items):
        rows = [[len(i), *(i.count(chr(97 + k)) for k in range(self.width - 1))] for i in items]
        return np.array(rows, np.float32) + 1


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write_task(folder, family, generator, label_name, rows):
    path = folder / "data" / "with_metrics" / family / f"x_200_with_hds_{generator}_gen.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    size = len(rows[0][1])
    names = ["sample_id", "context", "label_value", "label_name"]
    names += [f"resp_{k}" for k in range(size)]
    names += ["metric_abs_hds_mean", "metric_abs_hds_std", *_NAMES]
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for context, responses, value, people in rows:
            writer.writerow(
                ["id", context, value, label_name, *responses, people, 9, people / 5, -1]
            )


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    story = [("cab, a", ("ab", "bc", 'with "quotes", and\nlines'), 1.0, 4.5)]
    story += [("cab, a", ("ab", "ab", "ab"), 0.0, 1.5)]
    write_task(folder, "conTest", "story", "content_diversity", story)
    replies = [("de", ("ab", "cc", "dd", "a"), 0.7, 3.25)]
    write_task(folder, "decTest", "resp", "temp", replies)
    (folder / "data" / "with_metrics" / "conTest" / "con_test_1000_prompt_gen.csv").write_text("x")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    commit = git(folder, "rev-parse", "HEAD")
    return common.Repository.opened("me/it", commit, source=str(folder), cache=tmp_path)


ENCODERS = (Letters("one", 5), Letters("two", 4))


@pytest.fixture
def built(repository, tmp_path):
    found = human.build(repository, ENCODERS, cache=tmp_path, dimensions=(5, 3))
    common.write_set(tmp_path / "human.npz", **found, provenance=[repository.reference])
    return read_set(tmp_path / "human.npz")


def test_sets_have_their_responses_contexts_and_judgements(built):
    labels = built.labels
    assert len(built) == 10
    np.testing.assert_array_equal(labels["sets"], [0] * 3 + [1] * 3 + [2] * 4)
    assert labels["task"].tolist() == ["conTest story"] * 6 + ["decTest response"] * 4
    np.testing.assert_array_equal(labels["people"], [4.5] * 3 + [1.5] * 3 + [3.25] * 4)
    np.testing.assert_array_equal(labels["label"], [1] * 3 + [0] * 3 + [np.nan] * 4)
    np.testing.assert_allclose(labels["temperature"], [np.nan] * 6 + [0.7] * 4)
    np.testing.assert_allclose(labels["metric_SentBert"], labels["people"] / 5)
    np.testing.assert_array_equal(labels["metric_BertScore"], -1)
    assert set(labels) == {"task", "sets", "prompt", "people", "label", "temperature", *_NAMES}
    assert "3 sets" in built.description and "2 contexts" in built.description


def test_equal_texts_have_equal_rows_and_angles_are_those_of_the_encoder(built):
    texts = ["ab", "bc", 'with "quotes", and\nlines', *["ab"] * 3, "ab", "cc", "dd", "a"]
    contexts = ["cab, a"] * 6 + ["de"] * 4
    rows = np.array([*ENCODERS[0].encode(texts), *ENCODERS[0].encode(contexts)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = np.concatenate([built.outputs, built.prompts])
    np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=2e-3)  # float16.
    np.testing.assert_array_equal(built.outputs[0], built.outputs[6])
    assert built.labels["prompt"].tolist() == [0] * 6 + [1] * 4


def test_the_second_encoder_is_cut_with_its_contexts(built, repository, tmp_path):
    assert built.further["second_outputs"].shape == (10, 3)
    assert built.further["second_prompts"].shape == (10, 3)
    found = human.build(repository, ENCODERS, cache=tmp_path, dimensions=(9, 3))
    assert found["cut"]["one"]["principal directions"] == "5 of 5"
    assert found["cut"]["one"]["share of the squared norm"] == pytest.approx(1)
    assert found["cut"]["two"]["share of the squared norm"] < 1
    assert abs(found["cut"]["one"]["cost at order 2"]["vendi"]["change"]) < 1e-4


def test_no_text_is_written(built, tmp_path):
    content = (tmp_path / "human.npz").read_bytes()
    with np.load(tmp_path / "human.npz") as stored:
        words = " ".join(str(stored[n]) for n in stored.files if stored[n].dtype.kind == "U")
    assert "quotes" not in words and b"quotes" not in content


def test_tasks_are_chosen_by_name(repository, tmp_path):
    (only,) = human.read_sets(repository, ["decTest response"])
    assert only.context == "de" and only.responses == ("ab", "cc", "dd", "a")
    with pytest.raises(ValueError, match="some of conTest story, decTest response, received 'x'"):
        human.read_sets(repository, ["x"])


def test_the_shipped_file_is_whole():
    pairs = read_set(human.FOLDER / "human.npz")
    assert (human.FOLDER / "human.npz").stat().st_size <= 12e6
    first = np.unique(pairs.labels["sets"], return_index=True)[1]
    tasks, counts = np.unique(pairs.labels["task"][first], return_counts=True)
    assert len(tasks) == 9 and counts.min() == 200 and counts.max() == 250
    assert len(pairs) == 12_440 and len(first) == 1_879
    people = pairs.labels["people"]
    assert np.all((people >= 1) & (people <= 5))
    assert np.all(np.isnan(pairs.labels["label"]) != np.isnan(pairs.labels["temperature"]))
    assert sum(role.startswith("metric_") for role in pairs.labels) == 10
    width = pairs.further["second_outputs"].shape[1]
    assert pairs.further["second_prompts"].shape == (12_440, width)
    norms = np.linalg.norm(pairs.prompts, axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-6)
