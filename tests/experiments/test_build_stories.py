"""The builder of the stories, with a model of a few numbers that tells nonsense."""

from typing import Any

import numpy as np
import pytest
import small_language_models as small
from small_repositories import make

from experiments.builders import stories
from experiments.generators import smollm2

pytestmark = pytest.mark.slow

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

CONSTANTS = {"TEMPERATURES": (0.5, 2.0), "MAX_TOKENS": 5, "_BATCH": 5, "SEED": 3}
ASKED = [text for _, text in stories.prompts_of(1)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    small.write(path, small.weights(0))
    return smollm2.load_smollm2(path)


def tell(model, cache, *, draws=2, slots=8, sha256="small", calls=None, **constants):
    """The stories; the sampler may be called so many times, and is interrupted then."""
    sample, left = smollm2.sample, calls

    def counted(*arguments, **knobs):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left = left and left - 1
        return sample(*arguments, **knobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smollm2, "sample", counted)
        patch.setattr(smollm2, "SHA256", sha256)
        for name, value in (CONSTANTS | constants).items():
            patch.setattr(stories, name, value)
        return stories.tell(model, ASKED, draws=draws, slots=slots, cache=cache)


@pytest.fixture(scope="module")
def told(model, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return cache, tell(model, cache)


def test_subjects_are_two_hundred_and_each_once():
    asked = stories.prompts_of(20)
    assert len({text for _, text in asked}) == 200
    assert asked[20][0] == list(stories.SUBJECTS)[1]
    assert all(genre in text for genre, text in asked)


def test_stories_are_those_of_the_sampler_batch_after_batch(model, told):
    _, found = told
    assert list(found) == [0.5, 2.0]
    for temperature, samples in found.items():
        assert samples.tokens.shape == (10, 2, 5)
        for row in (1, 7):
            tokens = samples.tokens[row, 1, : samples.lengths[row, 1]]
            (encoding,) = model.tokenizer.encode_batch([smollm2.chat(ASKED[row])])
            expected = small.log_probabilities(small.weights(0), encoding.ids, tokens)
            found_here = samples.log_probabilities[row, 1, : len(tokens)]
            np.testing.assert_allclose(found_here, expected, atol=1e-3, err_msg=str(temperature))
    means = [s.log_probabilities.sum() / s.lengths.sum() for s in found.values()]
    assert means[0] > means[1]


def test_an_interrupted_run_loses_at_most_one_batch(model, told, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tell(model, tmp_path, calls=3)
    found = tell(model, tmp_path, calls=1)
    for temperature, samples in told[1].items():
        np.testing.assert_array_equal(found[temperature].tokens, samples.tokens)


def test_what_stories_depend_on_is_their_identity(model, told):
    cache, found = told
    again = tell(model, cache, slots=3, calls=0)
    np.testing.assert_array_equal(again[2.0].tokens, found[2.0].tokens)
    changes: list[dict[str, Any]] = [{"SEED": 4}, {"draws": 3}, {"MAX_TOKENS": 6}]
    changes += [{"TEMPERATURES": (0.6,)}, {"sha256": "another"}]
    for change in changes:
        with pytest.raises(KeyboardInterrupt):
            tell(model, cache, calls=0, **change)


def test_other_temperatures_and_seeds_share_no_random_number(model, told, tmp_path):
    one, other = tell(model, tmp_path, TEMPERATURES=(1.0, 1.001)).values()
    assert np.mean(one.tokens == other.tokens) < 0.5
    another = tell(model, tmp_path, SEED=4, TEMPERATURES=(2.0,))[2.0]
    assert np.mean(another.tokens == told[1][2.0].tokens) < 0.5


def test_the_set_holds_the_stories_with_what_is_known_of_each(model, told, tmp_path, monkeypatch):
    _, drawn = told
    monkeypatch.setattr(smollm2, "load_smollm2", lambda: model)
    values = {"full": False, "slots": 8}
    pairs, stored, cut, _, texts = make(
        stories, tmp_path, flag_values=values, SIZE=(1, 2), **CONSTANTS
    )
    assert pairs.labels["models"].tolist() == ["0.5"] * 20 + ["2"] * 20
    assert pairs.labels["prompt"].tolist() == list(np.repeat(np.arange(10), 2)) * 2
    assert pairs.labels["types"][2] == list(stories.SUBJECTS)[1]
    np.testing.assert_allclose(pairs.prompts[:20:2], texts.rows(ASKED), atol=1e-3)
    np.testing.assert_array_equal(pairs.prompts[:20], pairs.prompts[20:])
    high = pairs.rows(np.arange(20, 40))
    np.testing.assert_array_equal(high.labels["tokens"], drawn[2.0].lengths.ravel())
    np.testing.assert_array_equal(high.labels["finished"], drawn[2.0].finished.ravel())
    np.testing.assert_allclose(
        high.labels["log_likelihood"], drawn[2.0].log_probabilities.sum(axis=2).ravel(), rtol=1e-5
    )
    written = [text for samples in drawn.values() for of in model.texts(samples) for text in of]
    shorter = [" ".join(text.split()[: cut["truncated"]["words"]]) for text in written]
    for role, given in (("outputs", written), ("further_truncated", shorter)):
        np.testing.assert_allclose(stored[role], texts.rows(given), atol=cut["step"])
        steps = stored[role].astype(float) / cut["step"]
        np.testing.assert_array_equal(steps, np.round(steps))

    shown = (tmp_path / "stories.txt").read_text()
    assert shown.startswith(ASKED[0])
    story = model.texts(drawn[2.0])[1][0]
    assert shown.count("T = 2: ") == 3 and " ".join(story.split()) in shown


def test_the_full_size_does_not_replace_the_shipped_set(tmp_path):
    with pytest.raises(ValueError, match="--full: expected another --output"):
        make(stories, tmp_path, flag_values={"full": True, "slots": 8}, FOLDER=tmp_path)
