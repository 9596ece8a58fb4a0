"""The builder of the stories, with a model of a few numbers that tells nonsense."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import small_language_models as small
from processes import HANG_S
from small_repositories import WordCounts

from experiments.builders import stories
from experiments.builders.stories import Request
from experiments.builders.subjects import SUBJECTS
from experiments.data import sets
from experiments.generators import smollm2

pytestmark = pytest.mark.slow

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

REQUEST = Request(
    subjects=1, draws=2, temperatures=(0.5, 2.0), max_tokens=5, seed=3, batch=5, slots=8
)


class Counted(WordCounts):
    """Word counts of texts that may be empty."""

    def encode(self, items):
        return super().encode([f"+{text}" for text in items])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    small.write(path, small.weights(0))
    return smollm2.load_smollm2(path)


@pytest.fixture(scope="module")
def told(model, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return cache, stories.tell(model, REQUEST, name="small", cache=cache)


def only(calls):
    """A sampler that may be called so many times, and is interrupted then."""
    left, sample = [None] * calls, smollm2.sample

    def counted(*arguments, **knobs):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return sample(*arguments, **knobs)

    return counted


def test_subjects_are_two_hundred_and_each_once():
    subjects = [subject for of_genre in SUBJECTS.values() for subject in of_genre]
    assert {len(of_genre) for of_genre in SUBJECTS.values()} == {20}
    assert len(SUBJECTS) == 10 and len(set(subjects)) == 200
    assert all(subject == subject.strip() and subject[-1].isalpha() for subject in subjects)
    asked = Request(subjects=20).prompts
    assert len({text for _, text in asked}) == 200
    assert asked[20][0] == list(SUBJECTS)[1]
    assert all(genre in text for genre, text in asked)


def test_stories_are_those_of_the_sampler_batch_after_batch(model, told):
    _, found = told
    assert list(found) == [0.5, 2.0]
    texts = [text for _, text in REQUEST.prompts]
    for temperature, samples in found.items():
        assert samples.tokens.shape == (10, 2, 5)
        for row in (1, 7):
            told = samples.tokens[row, 1, : samples.lengths[row, 1]]
            (encoding,) = model.tokenizer.encode_batch([smollm2.chat(texts[row])])
            expected = small.log_probabilities(small.weights(0), encoding.ids, told)
            found_here = samples.log_probabilities[row, 1, : len(told)]
            np.testing.assert_allclose(found_here, expected, atol=1e-3, err_msg=str(temperature))
    assert not np.array_equal(found[0.5].tokens, found[2.0].tokens)
    means = [s.log_probabilities.sum() / s.lengths.sum() for s in found.values()]
    assert means[0] > means[1]


def test_an_interrupted_run_loses_at_most_one_batch(model, told, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "sample", only(3))
    with pytest.raises(KeyboardInterrupt):
        stories.tell(model, REQUEST, name="small", cache=tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(smollm2, "sample", only(1))
    found = stories.tell(model, REQUEST, name="small", cache=tmp_path)
    for temperature, samples in told[1].items():
        np.testing.assert_array_equal(found[temperature].tokens, samples.tokens)


def test_what_stories_depend_on_is_their_identity(model, told, monkeypatch):
    cache, found = told
    monkeypatch.setattr(smollm2, "sample", only(0))
    same = dataclasses.replace(REQUEST, slots=3)
    again = stories.tell(model, same, name="small", cache=cache)
    np.testing.assert_array_equal(again[2.0].tokens, found[2.0].tokens)
    for change in ({"seed": 4}, {"draws": 3}, {"max_tokens": 6}, {"temperatures": (0.6,)}):
        with pytest.raises(KeyboardInterrupt):
            stories.tell(model, dataclasses.replace(REQUEST, **change), name="small", cache=cache)
    with pytest.raises(KeyboardInterrupt):
        stories.tell(model, REQUEST, name="another", cache=cache)


def test_two_temperatures_share_no_random_number(model, tmp_path):
    request = dataclasses.replace(REQUEST, temperatures=(1.0, 1.001))
    one, other = stories.tell(model, request, name="small", cache=tmp_path).values()
    assert np.mean(one.tokens == other.tokens) < 0.5


def test_another_seed_tells_other_stories(model, told, tmp_path):
    request = dataclasses.replace(REQUEST, seed=4, temperatures=(2.0,))
    found = stories.tell(model, request, name="small", cache=tmp_path)
    assert np.mean(found[2.0].tokens == told[1][2.0].tokens) < 0.5


def test_the_set_holds_the_stories_with_what_is_known_of_each(model, told, tmp_path):
    cache, drawn = told
    encoder = Counted()
    stories.build(
        model, encoder, REQUEST, name="small", cache=cache, output=tmp_path / "stories.npz"
    )
    pairs = sets.read_set(tmp_path / "stories.npz")
    assert len(pairs) == 2 * 10 * 2 and pairs.outputs.shape[1] == 4
    assert pairs.labels["models"].tolist() == ["0.5"] * 20 + ["2"] * 20
    assert pairs.labels["prompt"].tolist() == list(np.repeat(np.arange(10), 2)) * 2
    assert pairs.labels["types"][2] == list(SUBJECTS)[1]
    assert len(np.unique(pairs.prompts[:20:2], axis=0)) > 1
    np.testing.assert_array_equal(pairs.prompts[:20], pairs.prompts[20:])
    high = pairs.rows(np.arange(20, 40))
    np.testing.assert_array_equal(high.labels["tokens"], drawn[2.0].lengths.ravel())
    np.testing.assert_array_equal(high.labels["finished"], drawn[2.0].finished.ravel())
    np.testing.assert_allclose(
        high.labels["log_likelihood"], drawn[2.0].log_probabilities.sum(axis=2).ravel(), rtol=1e-5
    )
    with np.load(tmp_path / "stories.npz") as stored:
        cut = json.loads(str(stored["cut"]))
        assert any("small" in line for line in stored["provenance"])
        assert not any("texts" in name for name in stored.files)
    assert set(cut["cost"]) == {"T = 0.5", "T = 2"}
    for role in ("outputs", "further_truncated"):
        with np.load(tmp_path / "stories.npz") as stored:
            steps = stored[role].astype(float) / cut["step"]
        np.testing.assert_array_equal(steps, np.round(steps))
    for text in model.texts(drawn[0.5])[0]:
        words = text.split()[: cut["truncated"]["words"]]
        assert f"+{' '.join(words)}" in encoder.given

    first, *_ = (tmp_path / "stories.txt").read_text().split("\n\n")
    assert first.startswith(REQUEST.prompts[0][1])
    shown = (tmp_path / "stories.txt").read_text()
    (story,) = model.texts(drawn[2.0])[1][:1]
    assert shown.count("T = 2: ") == 3 and " ".join(story.split()) in shown


def command(tmp_path, *words):
    whole = [sys.executable, "-m", "experiments.builders.stories", f"--cache_dir={tmp_path}"]
    return subprocess.run([*whole, *words], capture_output=True, text=True, timeout=HANG_S)


def test_bad_flags_are_refused_in_one_line(tmp_path):
    for words, message in (
        (["--full"], "--full: expected another --output"),
        (["--subjects=21", f"--output={tmp_path / 's.npz'}"], "--subjects: expected at most 20"),
    ):
        found = command(tmp_path, *words)
        assert found.returncode == 2 and message in found.stderr
        assert len(found.stderr.splitlines()) == 1


def test_temperatures_are_different_numbers():
    assert stories.temperatures_of(["1.0", "0.4"]) == (0.4, 1.0)
    for words in ([], ["warm"], ["-1"], ["inf"], ["nan"], ["1", "1.0"]):
        with pytest.raises(ValueError, match="--temperatures: expected"):
            stories.temperatures_of(words)
