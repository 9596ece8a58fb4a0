"""Which answers are kept: stopping and choosing, cures at equal quality, weights."""

import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from scipy.optimize import minimize
from small import flags, write

import condvendi_jax as cv
from experiments import data
from experiments.language_models.acts import CHOSEN, CONTROL, FIXED, Acts, greedy, held_out
from experiments.language_models.interventions import Interventions
from experiments.language_models.post_training import reweight

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
ACTS_OUTPUTS = 1.3 * np.eye(20, dtype=np.float32)[PLACES]  # Classes have a squared kernel of 1e-6.


def small_acts(folder):
    prompts = np.random.default_rng(0).normal(size=(PROMPTS, 4))[LABELS["prompt"]]
    return [*write(folder, outputs=ACTS_OUTPUTS, prompts=prompts, **LABELS), *flags(halves=1)]


acts_run = studies.finished(Acts, small_acts)


def values(found, measure):
    return {rule: found.value.sel(rule=rule, measure=measure).item() for rule in found.rule.values}


def test_a_stop_is_worth_its_classes_less_its_answers():
    pairs = data.PairedEmbeddings("", ACTS_OUTPUTS, LABELS["prompt"][:, None] * 1.0, "", LABELS)
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
    # A setting counts where it was not chosen.
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
    rows, quality = generator.normal(size=(20, 7, 5)), generator.uniform(size=(20, 7))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    alike = rows @ rows.swapaxes(1, 2)
    expected = [brute(*one, weight, dpp) for one in zip(alike, quality, strict=True)]
    assert greedy(alike, quality, weight, dpp=dpp).tolist() == expected


@pytest.mark.slow
def test_mixing_and_choosing_give_what_the_answers_have(acts_run):
    parts = Acts.facts([acts_run])["parts"]
    np.testing.assert_allclose(parts["mix"].value[[0, 4], 0], [4, 2], rtol=1e-4)  # Half are alike.
    np.testing.assert_allclose(parts["mix"].told[:3], parts["mix"].told[0], rtol=1e-4)
    ours, most, first = parts["choose"].value[[0, 7, 1], 0].values
    assert (ours, most, first) == pytest.approx(((9 + 40) / 2, (9 + 40) / 2, (9 + 36) / 2))
    assert len(parts["people"].rule) == 3


# By source and cure: the places of four answers to each prompt, and their qualities.
ARMS = {
    "one": {
        "base": ([0, 0, 0, 1], [8, 8, 8, 8]),
        "junk": ([0, 0, 1, 2], [8, 8, 2, 2]),
        "bad": ([0, 0, 1, 1], [1, 1, 1, 1]),
    },
    "two": {"poor base": ([0, 1, 1, 1], [8, 8, 4, 4]), "better": ([0, 0, 1, 1], [20 / 3] * 4)},
}


def small_interventions(folder):
    """Six prompts a source; answers in different places lie 5 apart. Rows are in no order."""
    generator = np.random.default_rng(0)
    rows = [
        (source, cure, 6 * number + prompt, place, quality)
        for number, (source, of) in enumerate(ARMS.items())
        for prompt in range(6)
        for cure, arm in of.items()
        for place, quality in zip(*arm, strict=True)
    ]
    source, cure, prompt, place, quality = map(np.array, zip(*rows, strict=True))
    places = 3.5 * np.linalg.qr(generator.normal(size=(36, 36)))[0].reshape(12, 3, 36)
    files = write(
        folder,
        outputs=places[prompt, place],
        prompts=generator.normal(size=(12, 4))[prompt],
        source=source,
        models=cure,
        prompt=prompt,
        quality=quality.astype(float),
    )
    return [*files, *flags(bandwidth=1, scales="1", bars="0")]


interventions_run = studies.finished(Interventions, small_interventions)


@pytest.mark.parametrize(
    ("source", "cure", "number", "times", "better", "good"),
    [
        ("one", "base", 2, 1, 0, {0: 2, 6: 2}),
        # More different answers, of which one passes the bar.
        ("one", "junk", 6, 3, -3, {0: 3, 6: 1}),
        ("one", "bad", 3, 1.5, -7, {0: 2, 6: 0}),
        ("two", "better", 3, 1.5, 2 / 3, {0: 2, 6: 2}),
    ],
)
def test_answers_below_the_bar_do_not_count(
    interventions_run, source, cure, number, times, better, good
):
    found = interventions_run.found.sel(source=source, model=cure, scale=1, text="whole").isel(
        end=0
    )
    first = {name: found[name].item() for name in ("number", "times", "better")}
    assert first == pytest.approx(dict(number=number, times=times, better=better), rel=1e-4)
    base = {"one": 2, "two": {0: 2, 6: 2}}[source]
    for bar, expected in good.items():
        assert found.good.sel(bar=bar).item() == pytest.approx(expected, abs=1e-4)
        ratio = expected / (base if source == "one" else base[bar])
        assert found.good_times.sel(bar=bar).item() == pytest.approx(ratio, abs=1e-4)
    assert found.quality.item() == pytest.approx(np.mean(ARMS[source][cure][1]))


# Prompts of 4, 3 and 1 rows, in no order; in the first two, one row is unlike the others.
PROMPT = np.array([1, 0, 1, 2, 0, 1, 0, 1])
REWEIGHTING_OUTPUTS = np.array([[0], [0], [0.1], [0.5], [0.2], [0.3], [1.5], [2]], "f4")
CENTRES = np.array([[0], [0.4], [1.5]], "f4")
GRAM = gaussian_gram(REWEIGHTING_OUTPUTS, 0.8)
SAME = (PROMPT[:, None] == PROMPT).astype(float)
KERNELS = {"output_kernel": cv.Gaussian(0.8)}
CASES = {
    "similar prompts": (
        (REWEIGHTING_OUTPUTS, CENTRES[PROMPT], {**KERNELS, "prompt_kernel": cv.Gaussian(0.6)}),
        GRAM * gaussian_gram(CENTRES[PROMPT], 0.6),
    ),
    "equal or different prompts": ((REWEIGHTING_OUTPUTS, PROMPT, KERNELS), GRAM * SAME),
    "no prompts": ((REWEIGHTING_OUTPUTS, None, KERNELS), GRAM),
}


def entropy(gram, weights):
    roots = np.sqrt(np.maximum(weights, 0))
    values = np.linalg.eigvalsh(gram * roots[:, None] * roots)
    values = values[values > 1e-300]
    return -np.sum(values * np.log(values))


def squared_distance(gram, weights):
    moved = weights - 1 / 8
    return moved @ gram @ moved


def largest_entropy(gram, same, limit):
    equal = {"type": "eq", "fun": lambda w: same @ (w - 1 / 8)}
    near = {"type": "ineq", "fun": lambda w: 100 * (limit - squared_distance(gram, w))}
    found = minimize(
        lambda w: -entropy(gram, w),
        np.full(8, 1 / 8),
        method="SLSQP",
        bounds=[(1e-9, 1)] * 8,
        constraints=[equal, near],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert squared_distance(gram, found.x) <= limit * (1 + 1e-6)
    return -found.fun


@pytest.mark.parametrize("distance", [0.03, 5.0])
@pytest.mark.parametrize("name", CASES)
def test_entropy_is_the_largest_within_the_distance(name, distance, x64):
    (outputs, prompts, kernels), gram = CASES[name]
    same = np.unique(PROMPT)[:, None] == PROMPT if prompts is not None else np.ones((1, 8))
    weights = reweight(cv.Pairs(outputs, prompts, **kernels), distance=distance)
    np.testing.assert_allclose(same @ weights, same @ np.full(8, 1 / 8), rtol=1e-12)
    assert squared_distance(gram, weights) <= distance**2 * (1 + 1e-6)
    best = largest_entropy(gram, same.astype(float), distance**2)
    assert best - 3e-4 < entropy(gram, weights) < best + 1e-6
    assert best > entropy(gram, np.full(8, 1 / 8)) + 2e-3  # So that equal weights would fail.


def test_equal_rows_share_the_weight_of_one():
    pairs = cv.Pairs([[0], [0], [0], [1]], output_kernel=cv.Gaussian(0.1))
    weights = reweight(pairs, distance=1)
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 6, 1 / 2], rtol=1e-2)
