"""The builder of the stories, with a model that draws from a table of numbers."""

import sys
import types

import numpy as np
import pytest
from scipy import special
from small_repositories import make

from experiments.builders import stories

pytestmark = pytest.mark.slow

WORDS = ["<end>", "a", "cat", "sat", "down"]
CONSTANTS = {"TEMPERATURES": (0.5, 2.0), "MAX_TOKENS": 5, "_BATCH": 5, "SEED": 3}
ASKED = [text for _, text in stories.prompts_of(1)]


class Model:
    """Stands for the model of transformers and its tokenizer; logits depend on the step alone."""

    eos_token_id = 0
    logits = np.random.default_rng(0).normal(size=(CONSTANTS["MAX_TOKENS"], len(WORDS)))

    def __init__(self):
        self.seeds, self.knobs = [], []

    def apply_chat_template(self, chats, **knobs):
        assert knobs["add_generation_prompt"] and knobs["padding"]
        assert all(message["role"] == "user" for (message,) in chats)
        return {"input_ids": np.full((len(chats), 3), 9)}

    def generate(self, input_ids, **knobs):
        self.knobs.append(knobs)
        rows = np.repeat(input_ids, knobs["num_return_sequences"], axis=0)
        generator = np.random.default_rng(self.seeds[-1])
        shares = special.softmax(self.logits / knobs["temperature"], axis=1)
        drawn = [generator.choice(len(WORDS), size=len(rows), p=share) for share in shares]
        logits = [np.tile(of, (len(rows), 1)) for of in self.logits]
        whole = np.hstack([rows, np.array(drawn).T])
        return types.SimpleNamespace(sequences=whole, logits=tuple(logits))

    def batch_decode(self, rows, skip_special_tokens):
        return [" ".join(WORDS[token] for token in row) for row in rows]


@pytest.fixture
def tell(monkeypatch, tmp_path):
    def told(model, draws=3):
        seeded = types.SimpleNamespace(set_seed=model.seeds.append)
        monkeypatch.setitem(sys.modules, "transformers", seeded)
        for name, value in CONSTANTS.items():
            monkeypatch.setattr(stories, name, value)
        return stories.tell(model, model, ASKED, draws=draws, cache=tmp_path)

    return told


def test_stories_are_plain_draws_with_their_likelihood(tell):
    model = Model()
    found = tell(model)
    assert list(found) == [0.5, 2.0] and len(set(model.seeds)) == 4
    assert all((k["top_k"], k["top_p"], k["do_sample"]) == (0, 1.0, True) for k in model.knobs)
    logs = special.log_softmax(Model.logits, axis=1)
    ended = 0
    for told in found.values():
        assert told.text.shape == (10, 3)
        for text, tokens, finished, likelihood in zip(*map(np.ravel, told), strict=True):
            words = [WORDS.index(word) for word in text.split()] + [0] * bool(finished)
            assert tokens == len(words) and 0 not in words[:-1]
            assert likelihood == pytest.approx(logs[np.arange(len(words)), words].sum())
            ended += finished
    assert 0 < ended < 60
    assert found[0.5].log_likelihood.mean() > found[2.0].log_likelihood.mean()


def test_finished_batches_are_not_told_again(tell):
    first, again, more = Model(), Model(), Model()
    told = tell(first)
    kept = tell(again)
    assert again.seeds == [] and (kept[2.0].text == told[2.0].text).all()
    tell(more, draws=2)
    assert more.seeds == first.seeds


def test_the_set_holds_the_stories_with_what_is_known_of_each(tell, tmp_path, monkeypatch):
    model = Model()
    drawn = tell(model, draws=2)
    monkeypatch.setattr(stories, "load_teller", lambda: (model, model))
    pairs, stored, cut, _, texts = make(
        stories, tmp_path, flag_values={"full": False}, SIZE=(1, 2), **CONSTANTS
    )
    assert pairs.labels["models"].tolist() == ["0.5"] * 20 + ["2"] * 20
    assert pairs.labels["prompt"].tolist() == list(np.repeat(np.arange(10), 2)) * 2
    assert pairs.labels["types"][2] == list(stories.SUBJECTS)[1]
    np.testing.assert_allclose(pairs.prompts[:20:2], texts.rows(ASKED), atol=1e-3)
    for name in ("tokens", "finished", "log_likelihood"):
        found = getattr(drawn[2.0], name).ravel()
        np.testing.assert_allclose(pairs.rows(np.arange(20, 40)).labels[name], found, rtol=1e-5)
    written = [text for told in drawn.values() for text in told.text.ravel()]
    shorter = [" ".join(text.split()[: cut["truncated"]["words"]]) for text in written]
    for role, given in (("outputs", written), ("further_truncated", shorter)):
        np.testing.assert_allclose(stored[role], texts.rows(given), atol=cut["step"])
    shown = (tmp_path / "stories.txt").read_text()
    assert shown.startswith(ASKED[0])
    assert shown.count("T = 2: ") == 3 and drawn[2.0].text[1, 0] in shown
