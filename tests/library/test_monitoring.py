"""A monitor of runs: its numbers against NumPy, its bad inputs, its state and the study."""

import itertools
import math
import pickle

import numpy as np
import pytest
from oracles import components, gaussian_gram
from rates import is_at_most
from scipy import optimize, special, stats

import condvendi_jax as cv
from condvendi_jax.statistics.sequential import EProcess, bounds, upper_end
from experiments.calibration import simulations as study

P, K, WIDTH = 6, 12, 1.2
PROMPTS = np.repeat(np.arange(P), K)
KERNEL = {"output_kernel": cv.Gaussian(WIDTH)}


def draw(seed, scale=1.0, k=K):
    """Embeddings `[P, k, 2]` of prompts whose answers are spread differently."""
    rng = np.random.default_rng(seed)
    return (scale * rng.normal(size=(P, k, 2)) * (2 + np.arange(P))[:, None, None]).astype("f4")


def similar(answers):
    """The mean squared kernel of different answers to a prompt, in float64."""
    return components(gaussian_gram(answers, WIDTH))[0]


def fixed_variance(answers):
    """The unbiased variance of `similar` over other answers."""
    _, zeta_1, delta = components(gaussian_gram(answers, WIDTH))
    return 4 * zeta_1 / len(answers) + 2 * delta / (len(answers) * (len(answers) - 1))


def kl_bound(mean, pairs, level):
    """The root s above the mean of: pairs times kl(mean, s) = log(1 / level)."""
    rest = sum(-special.entr(of) for of in (mean, 1 - mean)) + math.log(level) / pairs
    return optimize.brentq(
        lambda s: rest - mean * math.log(s) - (1 - mean) * math.log1p(-s), mean, 1 - 1e-15
    )


def by_hand(baseline, looks, level=0.05, tolerated=1.0):
    """The evidence after each look, and the bound, in plain NumPy."""
    p, k = len(baseline), len(baseline[0])
    first = np.array([similar(of) for of in baseline])
    error = math.sqrt(sum(map(fixed_variance, baseline))) / p
    mean = first.mean()
    bound = min(kl_bound(mean, p * (k // 2), level / 2) / tolerated, 1)
    kept = 1 - p * error**2 / first.var(ddof=1)
    kept = min(max(kept, 0), (1 / bound - 1) / (first.max() / mean - 1))
    expected = bound * (1 + kept * (first / mean - 1))
    factors, evidence = [], []
    for t, answers in enumerate(looks, 1):
        higher = (np.array([similar(of) for of in answers]) - expected) / expected.max()
        factors.append([np.prod(1 + share * higher) for share in (0.9, 0.45, 0.225, 0.1125)])
        starts = [np.mean(np.prod(factors[j:], axis=0)) / (j + 1) / (j + 2) for j in range(t)]
        evidence.append(1 / (t + 1) + sum(starts))
    return evidence, bound


@pytest.fixture(scope="module")
def watched():
    return cv.monitor(draw(0), np.arange(P), **KERNEL)


def again(monitor):
    return pickle.loads(pickle.dumps(monitor))


@pytest.mark.parametrize(("level", "tolerated"), [(0.05, 1.0), (0.4, 0.9)])
def test_evidence_is_that_of_numpy(level, tolerated):
    outputs = [draw(1), draw(2, 0.6), draw(3, 0.5), draw(4, 0.5)]
    monitor = cv.monitor(draw(0), np.arange(P), level=level, tolerated=tolerated, **KERNEL)
    for of in outputs:
        monitor = again(monitor)  # As a run resumes from a checkpoint.
        looks = monitor.look(of)
    evidence, bound = by_hand(draw(0), outputs, level, tolerated)
    np.testing.assert_allclose([of.evidence for of in looks.looks], evidence, rtol=1e-3)
    assert looks.bound == pytest.approx(1 / bound, rel=1e-4)
    assert looks.limit == pytest.approx(2 / level)
    alarms = np.maximum.accumulate(evidence) >= 2 / level
    assert [of.alarm for of in looks.looks] == alarms.tolist()
    scores = [1 / np.mean([similar(a) for a in of]) for of in (draw(0), *outputs)]
    np.testing.assert_allclose([looks.baseline[0], *(of.score for of in looks.looks)], scores, 1e-4)
    ratios = np.array(scores[1:]) / scores[0]
    np.testing.assert_allclose([of.ratio for of in looks.looks], ratios, rtol=1e-4)


def test_an_alarm_stays_and_is_told(watched):
    monitor = again(watched)
    assert monitor.look(draw(1)).alarm is None
    for step in (30, 40, 50):
        looks = monitor.look(draw(2, 0.1), step=step)
    assert looks.alarm and looks.alarm.step == 40
    assert "ALARM at look 3 (step 40)" in str(looks)
    assert "assumed: answers drawn independently" in str(looks) and "rise" in str(looks)
    looks = [monitor.look(draw(9, 2.0), step=60) for _ in range(30)][-1]
    assert looks.looks[-1].evidence < looks.limit
    assert looks.looks[-1].alarm and looks.alarm.look == 3
    assert [line["step"] for line in looks.lines()[:4]] == [1, 30, 40, 50]
    assert looks.as_dict()["looks"][2]["alarm"] is True
    assert list(looks.to_dataframe().look) == list(range(1, 35))


def test_prompts_may_come_in_another_order(watched):
    rows, order = draw(5, 0.5).reshape(-1, 2), np.random.default_rng(0).permutation(P * K)
    names = np.array([f"prompt {p}" for p in PROMPTS])
    first = draw(0).reshape(-1, 2), np.sort(names)
    one, two = (cv.monitor(*first, **KERNEL) for _ in range(2))
    straight = one.look(rows, names).looks[-1].evidence
    assert two.look(rows[order], names[order]).looks[-1].evidence == pytest.approx(straight)
    assert again(watched).look(rows, PROMPTS).looks[-1].evidence == pytest.approx(straight)
    swapped = again(watched).look(rows, (PROMPTS + 3) % P).looks[-1].evidence
    assert swapped != pytest.approx(straight, rel=0.01)


def test_prompts_count_equally_whatever_their_numbers_of_answers():
    answers, numbers = draw(8, 0.3, k=9), 4 + np.arange(P)
    kept = [of[:k] for of, k in zip(answers, numbers, strict=True)]
    data = np.concatenate(kept), np.repeat(np.arange(P), numbers)
    looks = cv.monitor(*data, **KERNEL).look(*data)
    look = looks.looks[-1]
    mean = np.mean([similar(of) for of in kept])
    error = math.sqrt(sum(map(fixed_variance, kept))) / P
    low, high = bounds(mean, error, P * 6, 1.96)
    assert (look.score, look.low, look.high) == pytest.approx((1 / mean, 1 / high, 1 / low), 2e-3)
    assert looks.bound == pytest.approx(1 / kl_bound(mean, P * 2, 0.025), 1e-4)  # Of four answers.


class Numbers:
    """Texts that are numbers, as embeddings of one column."""

    name = "numbers"

    def encode(self, texts):
        return np.array([[float(text.removeprefix("x = "))] for text in texts], np.float32)


def test_texts_are_embedded_and_the_bandwidth_is_kept():
    rng, names = np.random.default_rng(0), ["a", "b", "c", "d"]

    def texts(spread):
        return [[f"x = {x:.4f}" for x in spread * of] for of in rng.normal(size=(4, 6))]

    monitor = cv.monitor(texts(1), names, encoder=Numbers())
    looks = monitor.look(texts(1.1))
    assert looks.bandwidth.bandwidth > 0
    flat = [text for of in texts(0.01) for text in of]
    looks = monitor.look(flat, np.repeat(names, 6).tolist())
    assert looks.looks[1].score < 1.01 < looks.looks[0].score


def test_no_similarity_at_all_and_nothing_but_similarity():
    """No two answers alike: an infinite score. All alike: no fall can be found."""
    apart = np.tile(np.arange(K), P)
    monitor = cv.monitor(apart, PROMPTS)
    looks = monitor.look(apart)
    assert looks.baseline[0] == looks.looks[0].score == math.inf
    assert math.isfinite(looks.bound) and math.isfinite(looks.looks[0].low)
    assert monitor.look(PROMPTS).alarm
    with pytest.warns(UserWarning, match="no look can raise an alarm.* the score is 1"):
        monitor = cv.monitor(PROMPTS, PROMPTS)
    looks = monitor.look(PROMPTS)
    assert looks.baseline[0] == looks.bound == 1
    assert looks.alarm is None and "no alarm is possible" in str(looks)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompts": np.arange(P * K) // 2}, "4 answers .* received 36 prompts, and 2 answers"),
        ({"prompts": np.zeros(P * K, int)}, "at least 2 prompts, received 1 prompts"),
        ({"prompts": None}, "prompts: expected a text or label"),
        ({"prompts": PROMPTS[:-1]}, "72 outputs and 71 prompts"),
        ({"outputs": np.full((P * K, 2), np.nan, "f4")}, "outputs: expected finite numbers"),
        ({"level": 0}, "level: expected a number between 0 and 1, received 0"),
        ({"tolerated": 1.1}, "tolerated: expected a share .* received 1.1"),
        ({"tolerated": math.nan}, "tolerated: .* received nan"),
        ({"batches": np.arange(P * K - 1)}, "batches: expected 72 labels"),
        ({"batches": [[0] * K] * P}, "batches: expected 72 labels"),
        ({"batches": np.zeros(P * K)}, "2 batches of answers .* and 1 batches of answers to 0"),
    ],
)
def test_bad_baselines_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        cv.monitor(**{"outputs": draw(0).reshape(-1, 2), "prompts": PROMPTS, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompts": np.arange(1, P + 1)}, "those of the baseline; only one of both has 0 and 6"),
        ({"outputs": draw(1)[:-1], "prompts": np.arange(P - 1)}, "only one of both has 5"),
        ({"prompts": [False, True, *range(2, P)]}, "only one of both has 0, 1, False and True"),
        ({"outputs": draw(1)[:, :3]}, "at least 4 answers"),
        ({"outputs": draw(1)[:, 1:]}, "12 answers to 0, as in the .*, received 11.* batches="),
        ({"outputs": draw(1)[..., :1]}, "2 columns, as the baseline has .*, received 1"),
        ({"outputs": np.arange(P * K), "prompts": PROMPTS}, "received labels"),
        ({"outputs": draw(1) * np.nan}, "outputs: expected finite numbers"),
        ({"batches": np.arange(P * K)}, "batches: expected labels in `monitor` and in every look"),
        ({"step": -1}, "step"),
    ],
)
def test_a_refused_look_leaves_the_monitor_as_it_was(watched, given, message):
    monitor, untouched = again(watched), again(watched)
    with pytest.raises(ValueError, match=message):
        monitor.look(**{"outputs": draw(1)} | given)
    assert monitor.look(draw(1)).lines() == untouched.look(draw(1)).lines()


def test_one_look_has_an_expectation_of_at_most_one_if_prompts_differ():
    """Of prompts that rose and prompts that fell: all outcomes of three coins, exactly."""
    before, now = np.array([0.2, 0.5, 0.2]), np.array([0.1, 0.2, 0.6])
    expectation = 0.0
    for outcome in itertools.product((0, 1), repeat=3):
        chance = np.prod(np.where(outcome, now, 1 - now))
        process = EProcess(before, 0.01, now.mean())
        expectation += chance * math.exp(process.update(np.array(outcome, float)))
    assert 0.9 < expectation <= 1
    assert (process.expected.mean(), process.expected.max()) <= (pytest.approx(0.3), 1)


@pytest.mark.parametrize(("mean", "pairs", "level"), [(0.1, 7, 0.025), (0.9, 40, 0.2)])
def test_the_upper_end_is_the_root_of_the_divergence(mean, pairs, level):
    assert upper_end(mean, pairs, level) == pytest.approx(kl_bound(mean, pairs, level))
    assert upper_end(np.array([mean, 0.0, 1.0]), pairs, level).tolist() == [
        upper_end(mean, pairs, level),
        pytest.approx(1 - level ** (1 / pairs)),  # N log(1 / (1 - s)) = log(1 / level).
        1.0,
    ]


@pytest.mark.parametrize(
    ("chances", "k"),
    [((0.15, 0.15), 20), ((0.97, 0.97), 20), ((0.8, 0.95), 20), ((0.0, 0.9), 4), ((1.0, 1.0), 5)],
)
def test_the_upper_end_is_below_the_truth_in_at_most_a_share_of_samples(chances, k):
    """Exactly: each prompt has a favourite answer of this chance, and no other one comes twice."""
    times = np.arange(k + 1)
    chance_of = [stats.binom.pmf(times, k, chance) for chance in chances]
    similar = times * (times - 1) / (k * (k - 1))
    ends = upper_end((similar[:, None] + similar) / 2, 2 * (k // 2), 0.025)
    assert np.outer(*chance_of)[ends < np.mean(np.square(chances)) - 1e-12].sum() <= 0.025


def test_pairs_of_one_batch_do_not_count():
    """Every answer is twice there, in one batch: by hand, and by brute force with other sizes."""
    twice = np.repeat([[0, 1, 0, 1], [0, 0, 0, 1]], 2, axis=1).ravel()
    batches = np.repeat(np.arange(8) % 4, 2)
    first = cv.monitor(twice, np.repeat([7, 3], 8), batches=batches)
    looks = first.look(twice)
    assert looks.looks[0].score == pytest.approx(1 / np.mean([2 / 6, 3 / 6]))
    assert looks.bound == pytest.approx(1 / kl_bound(5 / 12, 2 * 2, 0.025))  # Two pairs of batches.
    answers, labels = draw(8, 0.3).reshape(-1, 2), np.array(["a", "b", "b", "c"] * (P * K // 4))
    labels[0] = "d"
    order, means = np.random.default_rng(0).permutation(P * K), []
    for prompt in range(P):
        rows = np.flatnonzero(PROMPTS == prompt)
        squares = gaussian_gram(answers[rows], WIDTH) ** 2
        there = [np.flatnonzero(labels[rows] == label) for label in np.unique(labels[rows])]
        pairs = itertools.combinations(there, 2)
        means.append(np.mean([squares[np.ix_(*pair)].mean() for pair in pairs]))
    monitor = cv.monitor(answers, PROMPTS, batches=labels, **KERNEL)
    assert monitor.look(answers).baseline[0] == pytest.approx(1 / np.mean(means), rel=1e-5)
    shuffled = answers[order], PROMPTS[order]
    last = monitor.look(*shuffled, batches=labels[order]).looks[-1]
    assert last.score == pytest.approx(1 / np.mean(means), rel=1e-5)
    error = np.std(means, ddof=1) / math.sqrt(P)  # Three batches do not show it: of the prompts.
    low, high = bounds(np.mean(means), error, P * 3, 1.96)
    assert (last.low, last.high) == (pytest.approx(1 / high, 1e-4), pytest.approx(1 / low, 1e-4))


def test_single_answers_as_batches_are_answers_and_may_be_fewer_in_a_look(watched):
    rows = draw(5, 0.5).reshape(-1, 2)
    labelled = cv.monitor(draw(0), np.arange(P), batches=np.arange(P * K), **KERNEL)
    straight = again(watched).look(rows, PROMPTS).lines()
    assert again(labelled).look(rows, PROMPTS, batches=np.arange(P * K)).lines() == straight
    few = np.flatnonzero(np.arange(P * K) % K < 6)
    last = labelled.look(rows[few], PROMPTS[few], batches=few).looks[-1]
    half = rows.reshape(P, K, 2)[:, :6]
    assert last.score == pytest.approx(1 / np.mean([similar(of) for of in half]), rel=1e-4)


def test_too_few_answers_for_any_alarm_are_said():
    """A similarity of 1 / 3 from 2 prompts x 4 answers: below 0.7 from 14 of them on."""
    with pytest.warns(UserWarning, match="70% of the true score .* at least 14 answers"):
        monitor = cv.monitor([0, 0, 1, 1] * 2, [0] * 4 + [1] * 4, tolerated=0.7)
    assert monitor.look([0] * 8).alarm is None
    assert kl_bound(1 / 3, 2 * 7, 0.025) < 0.7 < kl_bound(1 / 3, 2 * 6, 0.025)


def test_similarities_of_the_study_are_those_of_the_library():
    rng = np.random.default_rng(0)
    counts = rng.multinomial(6, study.answers_of("heavy")[rng.integers(400, size=8)])
    rows = np.concatenate([np.repeat(np.arange(40), of) for of in counts])
    looks = cv.monitor(rows, np.repeat(np.arange(8), 6)).look(rows)
    similar = study.similarities(counts)
    np.testing.assert_allclose(study.parts_of(counts, np.eye(40)).similarity, similar)
    assert looks.baseline[0] == pytest.approx(1 / similar.mean(), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "prompts", "k"), [("mild", 50, 10), ("bimodal", 20, 10)])
def test_false_alarms_are_at_most_at_the_level(kind, prompts, k):
    alarms = study.first_alarms(kind, prompts, k, k, looks=100, runs=300)
    assert is_at_most(np.mean(alarms["monitor"] > 0), 300, study.LEVEL)
    assert np.mean(alarms["fixed"] > 0) > 0.4


def test_a_fall_by_a_quarter_is_found_in_a_few_looks():
    shares = study.answers_of("mild")[None, :50]
    assert np.mean(np.sum(study.collapsed(shares, 4 / 3) ** 2, axis=-1)) == pytest.approx(
        4 / 3 * np.mean(np.sum(shares**2, axis=-1))
    )
    found = study.delays("mild", (40, 10), change=15, draws=60)
    assert found["median"] <= 5 and found["found"] > 0.9
