"""The study of acts, on answers whose numbers of classes and rewards are known."""

import numpy as np
import pytest
import studies
from small import flags, write

from experiments import data
from experiments.language_models.acts import CHOSEN, CONTROL, FIXED, Acts, greedy

# Two models that share no answer. To even prompts, the answers of each are one class of reward 9;
# to odd ones ten classes, the first five of reward 9, the others of 10.
PROMPTS = 16
PLACES = np.array([[[10 * m + odd * a for a in range(10)] for odd in [0, 1] * (PROMPTS // 2)]
                   for m in range(2)]).reshape(-1)  # fmt: skip
LABELS = {
    "models": np.repeat(["one", "other"], 10 * PROMPTS),
    "prompt": np.tile(np.repeat(np.arange(PROMPTS), 10), 2),
    "classes": PLACES,
    "rewards": np.where(PLACES % 10 < 5, 9, 10),
}
OUTPUTS = 1.3 * np.eye(20, dtype=np.float32)[PLACES]  # Classes have a squared kernel of 1e-6.


def small(folder, seed):
    generator = np.random.default_rng(seed)
    prompts = generator.normal(size=(PROMPTS, 4))[LABELS["prompt"]]
    return [*write(folder, outputs=OUTPUTS, prompts=prompts, **LABELS), *flags(halves=1)]


finished = studies.finished(Acts)


def values(found, measure):
    return {rule: found.value.sel(rule=rule, measure=measure).item() for rule in found.rule.values}


def test_a_stop_is_worth_its_classes_less_its_answers():
    pairs = data.PairedEmbeddings("", OUTPUTS, LABELS["prompt"][:, None] * 1.0, "", LABELS)
    _, found = studies.computed(Acts(halves=1), pairs)
    net, asked, lost = (values(found, name) for name in ("net value", "asked", "lost"))
    # One class by two answers, or ten by ten, at 0.2 an answer; a fixed number asks ten of both.
    assert net["cv.enough"] == pytest.approx(((1 - 0.4) + (10 - 2)) / 2)
    assert net["by true classes"] == pytest.approx(net["cv.enough"])
    assert net[FIXED] == pytest.approx(((1 - 2) + (10 - 2)) / 2)
    assert net[CONTROL] == pytest.approx(net[FIXED])  # It never stops, or at the wrong prompts.
    assert (asked["cv.enough"], asked[FIXED]) == pytest.approx((6, 10))
    assert lost["cv.enough"] == pytest.approx(0, abs=1e-12)
    # Six answers to all prompts find (1 + 6) / 2 classes of (1 + 10) / 2.
    assert values(found, "lost by a fixed number")["cv.enough"] == pytest.approx(1 - 7 / 11)
    np.testing.assert_allclose(found.ahead.sel(rule=FIXED)[0], 0.8)
    # Odd prompts always have something new, good only from a reward of 6: all are.
    np.testing.assert_allclose(found.rates, 0.5, atol=1e-4)


def brute(similarity, quality, weight, dpp):
    """The greedy choice by determinants, or by the nearest chosen row, one set at a time."""
    rows = []
    for _ in range(CHOSEN):
        worth = np.full(len(quality), -np.inf)
        for row in set(range(len(quality))) - set(rows):
            every, scale = [*rows, row], np.exp(weight * quality / 2)
            volume = np.linalg.det((scale[:, None] * similarity * scale)[np.ix_(every, every)])
            nearest = max((similarity[row, other] for other in rows), default=0)
            worth[row] = volume if dpp else weight * quality[row] - (1 - weight) * nearest
        rows.append(int(worth.argmax()))
    return rows


@pytest.mark.parametrize("dpp", [False, True])
@pytest.mark.parametrize("weight", [0.3, 0.8])
def test_the_rivals_choose_as_their_definitions_say(dpp, weight):
    generator = np.random.default_rng(1)
    rows, quality = generator.normal(size=(5, 7, 9)), generator.uniform(size=(5, 7))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    similarity = rows @ rows.swapaxes(1, 2)
    expected = [brute(*one, weight, dpp) for one in zip(similarity, quality, strict=True)]
    assert greedy(similarity, quality, weight, dpp=dpp).tolist() == expected


@pytest.mark.slow
def test_mixing_and_choosing_give_what_the_answers_have(finished):
    parts = Acts.facts([finished])["parts"]
    # Two answers of a model are the same with 1/2, of both in equal shares with 1/4.
    number = values(parts["mix"], "different answers")
    assert number["best shares"] == pytest.approx(4, rel=1e-4)
    assert number["the most diverse model"] == pytest.approx(2, rel=1e-4)
    np.testing.assert_allclose(parts["mix"].told[:3], parts["mix"].told[0], rtol=1e-4)
    utility = values(parts["choose"], "utility")
    assert utility["cv.select"] == utility["possible"] == pytest.approx((9 + 40) / 2)
    assert utility["the first answers"] == pytest.approx((9 + 36) / 2)
    assert parts["choose"].ahead.sel(rule="the first answers")[0].item() == pytest.approx(2)
    assert len(parts["people"].rule) == 3
