"""The study of acts, on answers whose numbers of classes and rewards are known."""

import numpy as np
import pytest
import studies
from small import flags, write

from experiments import data
from experiments.language_models.acts import CHOSEN, CONTROL, FIXED, Acts, greedy, held_out

# Two models that share no answer. To even prompts, the answers of each are one class of reward 9;
# to odd ones ten classes, the first five of reward 9, the others of 10.
PROMPTS = 16
ROW = np.arange(20 * PROMPTS)
PLACES = ROW // (10 * PROMPTS) * 10 + ROW // 10 % 2 * (ROW % 10)
LABELS = {
    "models": np.repeat(["one", "other"], 10 * PROMPTS),
    "prompt": ROW // 10 % PROMPTS,
    "classes": PLACES,
    "rewards": np.where(PLACES % 10 < 5, 9, 10),
}
OUTPUTS = 1.3 * np.eye(20, dtype=np.float32)[PLACES]  # Classes have a squared kernel of 1e-6.


def small(folder, seed):
    prompts = np.random.default_rng(seed).normal(size=(PROMPTS, 4))[LABELS["prompt"]]
    return [*write(folder, outputs=OUTPUTS, prompts=prompts, **LABELS), *flags(halves=1)]


finished = studies.finished(Acts)


def values(found, measure):
    return {rule: found.value.sel(rule=rule, measure=measure).item() for rule in found.rule.values}


def test_a_stop_is_worth_its_classes_less_its_answers():
    pairs = data.PairedEmbeddings("", OUTPUTS, LABELS["prompt"][:, None] * 1.0, "", LABELS)
    _, found = studies.computed(Acts(halves=1), pairs)
    net, asked, lost = (values(found, name) for name in ("net value", "asked", "lost"))
    # One class by two answers, or ten by ten, at 0.2 an answer; the others ask ten of both.
    for rule in ("cv.enough", "by true classes"):
        assert net[rule] == pytest.approx(((1 - 0.4) + (10 - 2)) / 2)
        assert (asked[rule], lost[rule]) == pytest.approx((6, 0))
    for rule in (FIXED, CONTROL):
        assert (net[rule], asked[rule]) == pytest.approx((((1 - 2) + (10 - 2)) / 2, 10))
    # Six answers to all prompts find (1 + 6) / 2 classes of (1 + 10) / 2.
    assert values(found, "lost by a fixed number")["cv.enough"] == pytest.approx(1 - 7 / 11)
    np.testing.assert_allclose(found.ahead.sel(rule=FIXED)[0], 0.8)
    np.testing.assert_allclose(found.rates, 0.5, atol=1e-4)  # To odd prompts all are new and good.


def test_a_setting_counts_where_it_was_not_chosen():
    outcomes = np.array([[9, 8, 1, 2], [3, 4, 7, 6]])[..., None]
    halves = ([0, 1], [2, 3]), ([2, 3], [0, 1])
    assert held_out({"": outcomes}, halves)[""][:, 0].tolist() == [3, 4, 1, 2]


def brute(similarity, quality, weight, dpp):
    """The greedy choice by determinants, or by the nearest chosen row, one set at a time."""
    rows = []
    for _ in range(CHOSEN):
        worth = np.full(len(quality), -np.inf)
        for row in set(range(len(quality))) - set(rows):
            scale, chosen = np.exp(weight * quality / 2), np.ix_([*rows, row], [*rows, row])
            volume = np.linalg.det((scale[:, None] * similarity * scale)[chosen])
            nearest = max((similarity[row, other] for other in rows), default=0)
            worth[row] = volume if dpp else weight * quality[row] - (1 - weight) * nearest
        rows.append(int(worth.argmax()))
    return rows


@pytest.mark.parametrize(("dpp", "weight"), [(False, 0.3), (True, 0.8)])
def test_the_rivals_choose_as_their_definitions_say(dpp, weight):
    generator = np.random.default_rng(1)
    rows, quality = generator.normal(size=(5, 7, 9)), generator.uniform(size=(5, 7))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    alike = rows @ rows.swapaxes(1, 2)
    expected = [brute(*one, weight, dpp) for one in zip(alike, quality, strict=True)]
    assert greedy(alike, quality, weight, dpp=dpp).tolist() == expected


@pytest.mark.slow
def test_mixing_and_choosing_give_what_the_answers_have(finished):
    parts = Acts.facts([finished])["parts"]
    np.testing.assert_allclose(parts["mix"].value[[0, 4], 0], [4, 2], rtol=1e-4)  # Half are alike.
    np.testing.assert_allclose(parts["mix"].told[:3], parts["mix"].told[0], rtol=1e-4)
    ours, most, first = parts["choose"].value[[0, 7, 1], 0].values
    assert (ours, most, first) == pytest.approx(((9 + 40) / 2, (9 + 40) / 2, (9 + 36) / 2))
    assert len(parts["people"].rule) == 3
