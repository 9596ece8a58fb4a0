"""Ask again or stop: estimates and upper ends by brute force, their theory, the stream."""

import itertools
import json
import math
import os
import sys

import fake_encoders
import numpy as np
import pytest
from oracles import gaussian_gram, prompt_mean_ends
from processes import started
from rates import is_at_most
from scipy import optimize

import condvendi_jax as cv
from condvendi_jax.cli import __main__
from condvendi_jax.integrations import DiversityReward
from condvendi_jax.statistics.novelty import after_each

WIDTH, P, K = 0.9, 3, 6
PROMPTS = np.tile(np.arange(P), K)  # One answer to each in turn.
OUTPUTS = np.random.default_rng(0).normal(size=(P * K, 2)).astype(np.float32)
RATINGS = np.random.default_rng(1).integers(3, size=P * K)
KERNEL = {"output_kernel": cv.Gaussian(WIDTH)}


def chance(similar, good, i, others):
    return good[i] * math.prod(1 - good[j] * similar[i][j] for j in others if j != i)


def estimate(similar, good):
    k = len(good)
    return np.mean([chance(similar, good, i, range(k)) for i in range(k)]) if k > 1 else np.nan


def upper_end(similar, good, level):
    """The smallest root over all looks, by products from each start."""
    came, least = [chance(similar, good, t, range(t)) for t in range(1, len(good))], 1.0

    def evidence(m, t):
        stakes = [[1 - c * (y - m) / (1 - m) for y in came[:t]] for c in (1, 0.5)]
        starts = [(s, np.mean([math.prod(f[s - 1 :]) for f in stakes])) for s in range(1, t + 1)]
        return sum(value / (s * (s + 1)) for s, value in starts) + 1 / (t + 1) - 1 / level

    for t in range(1, len(good)):
        if evidence(0.999, t) > 0:
            least = min(least, optimize.brentq(evidence, 0, 0.999, (t,)))
    return least


@pytest.mark.parametrize(("rated", "level"), [(False, 0.05), (True, 0.3)])
def test_estimates_and_upper_ends_are_those_of_brute_force(rated, level):
    quality = {"quality": RATINGS, "at_least": 1} if rated else {}
    found = cv.enough(OUTPUTS, PROMPTS, **KERNEL, **quality, level=level, until=0.3)
    for p, asked in enumerate(found.prompts):
        similar = gaussian_gram(OUTPUTS[PROMPTS == p], WIDTH) ** 2
        good = (RATINGS[PROMPTS == p] >= 1) if rated else np.ones(K)
        news = [estimate(similar[:k, :k], good[:k]) for k in range(1, K + 1)]
        ends = [upper_end(similar[:k, :k], good[:k], level) for k in range(1, K + 1)]
        np.testing.assert_allclose(asked.news, news, rtol=1e-5)
        above = asked.bounds - ends  # By rounding up to thousandths.
        assert (above > -1e-6).all() and (above < 0.001 + 1e-6).all()
        stops = [bool(new <= 0.3) for new in news]
        assert (asked.prompt, asked.answers, asked.stop) == (p, K, stops[-1])
        assert asked.after == (stops.index(True) + 1 if any(stops) else None)
        assert (asked.new, asked.at_most) == (asked.news[-1], asked.bounds[-1])
    ends = [asked.new for asked in found.prompts]
    assert found.new == pytest.approx(np.mean(ends))
    assert found.ends == pytest.approx(prompt_mean_ends(ends, 0.05))
    assert found.stop == all(asked.stop for asked in found.prompts) and math.isnan(found.at_most)
    # The last of the good and different outputs of `evaluate` is the one that this estimates.
    rated_so = {"quality": RATINGS if rated else np.ones(P * K), "at_least": 1, "orders": [2]}
    numbers = [
        cv.evaluate(OUTPUTS, PROMPTS, **KERNEL, **rated_so, errors=False, draws=k).quality.number
        for k in (K, K - 1)
    ]
    assert numbers[0].value - numbers[1].value == pytest.approx(found.new, abs=1e-5)


CHANCES = np.array([0.5, 0.3, 0.2])
SIMILAR = np.array([[1, 0.4, 0], [0.4, 1, 0.7], [0, 0.7, 1]])


def truth(rows, good):
    """The chance M that a further answer is new after these."""
    return sum(
        CHANCES[x] * good[x] * math.prod(1 - good[j] * SIMILAR[x, j] for j in rows)
        for x in range(len(CHANCES))
    )


@pytest.mark.parametrize("good", [np.ones(3), np.array([1, 0, 1])])
def test_the_estimate_has_the_mean_of_one_answer_fewer(good):
    k, means = 4, np.zeros(3)  # Over all draws.
    for rows in itertools.product(range(3), repeat=k):
        index = np.ix_(rows, rows)
        values = (
            after_each(SIMILAR[index], good[[*rows]], 0.05)[0][-1],
            *(truth(rows[:n], good) for n in (k - 1, k)),
        )
        means += CHANCES[[*rows]].prod() * np.array(values)
    assert means[0] == pytest.approx(means[1], rel=1e-12)
    assert 0 <= means[1] - means[2] <= 1 / k


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["uniform", "heavy", "similar", "rated"])
def test_upper_ends_hold_at_all_looks_at_once(shape):
    chances = {"uniform": np.ones(12), "heavy": 1 / np.arange(1, 31)}.get(shape, np.ones(6))
    chances, runs, k, level = chances / chances.sum(), 1000, 40, 0.2
    similar, rng = np.eye(len(chances)), np.random.default_rng(2)
    if shape == "similar":
        similar = gaussian_gram(np.arange(6.0)[:, None], 1.0)
    good = np.where(np.arange(len(chances)) % 3 == 0, shape != "rated", 1)
    failures = 0
    for _ in range(runs):
        rows = rng.choice(len(chances), size=k, p=chances)
        bounds = after_each(similar[np.ix_(rows, rows)], 1.0 * good[rows], level)[1]
        left = np.cumprod(1 - good[rows] * similar[:, rows], axis=1)
        failures += np.any((chances * good) @ left > bounds)
    assert is_at_most(failures / runs, runs, level)
    assert bounds[-1] < 0.8  # It says something.


def test_the_rule():
    same = [3] * 5
    assert [cv.enough(same[:k]).stop for k in (1, 2)] == [False, True]
    assert not cv.enough(same, sure=True).stop and cv.enough(same, sure=True, most=5).stop
    assert cv.enough(same, sure=True, until=0.9).prompts[0].after == 3
    assert cv.enough([1, 2], most=1).prompts[0].after == 1 and math.isnan(cv.enough([1]).new)
    assert "1 answer, which cannot tell" in str(cv.enough([1]))
    assert cv.enough(same).prompts[0].prompt is None and cv.enough([1]).at_most == 1
    table = cv.enough([1, 1, 2, 2, 3], ["p", "q", "p", "q", "q"])
    assert [line["prompt"] for line in table.lines()] == ["p", "q"]
    assert str(table).startswith("0 of 2 prompts have enough answers; the next one is new with a")


def test_kinds_of_outputs_agree():
    texts = ["a cat", "A cat", "b", "c c"]
    for prompts in (None, ["p", "p", "q", "q"]):
        by_text = cv.enough(texts, prompts, similarity="exact")
        matrix = cv.Similarities.from_function("exact", texts, prompts)
        for other in (cv.enough(matrix), cv.enough([5, 5, 6, 7], prompts)):
            assert [*map(str, other.prompts)] == [*map(str, by_text.prompts)]
    assert (
        by_text.lines() == cv.enough([texts[:2], texts[2:]], ["p", "q"], similarity="exact").lines()
    )
    one = cv.enough(texts, encoder=fake_encoders.Means(), output_kernel=cv.Gaussian(9.0))
    rows = fake_encoders.Means().encode(texts)
    assert one.new == pytest.approx(estimate(gaussian_gram(rows, 9.0) ** 2, [1] * 4), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": OUTPUTS}, "output_kernel: expected a kernel"),
        ({"outputs": []}, "outputs: expected"),
        ({"outputs": [["a", "b"], ["c"]], "similarity": "exact"}, "prompts: expected one for each"),
        ({"outputs": cv.Pairs([1, 1, 2])}, "outputs: expected a list or an array, received Pairs"),
        ({"until": 0}, "a price of 0 never stops"),
        ({"until": 1}, "until: expected"),
        ({"most": 0}, "most: expected"),
        ({"level": 1}, "level: expected"),
        ({"sure": 1}, "sure: expected"),
        ({"quality": [1, 2]}, "quality, at_least: expected both"),
        ({"quality": [1, None], "at_least": 1}, "quality: expected finite numbers"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cv.enough(**{"outputs": [1, 2]} | arguments)


LINES = [{"prompt": p, "answer": a, "mark": m} for p, a, m in (
    ("p", "cat", 1), (["p"], "cat", 1), ("p", "cat", 0), ("p", "dogs", 2), ("p", "a dog", 3)
)]  # fmt: skip


def test_the_command_answers_each_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(fake_encoders, "ready", encoder := fake_encoders.Means())
    rows = [json.dumps(line) for line in LINES]
    wrong = ["no", "[1]", '{"prompt": "p"}', '{"prompt": "p", "answer": " ", "mark": 1}']
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, *wrong]))
    flags = ["--text_encoder=fake_encoders:ready", "--output_bandwidth=9", "--quality_field=mark"]
    flags += ["--at_least=1", "--until=0.4", "--most=3"]
    assert __main__.main(["condvendi", "enough", str(tmp_path / "a.jsonl"), *flags]) == 2
    written = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["error"][:7] for line in written[5:]] == [f"line {k}:" for k in range(6, 10)]
    assert encoder.count == 3
    for k, line in enumerate(written[:5], start=1):
        so_far = [row for row in LINES[:k] if row["prompt"] == LINES[k - 1]["prompt"]]
        ratings = {"quality": [row["mark"] for row in so_far], "at_least": 1}
        how = {"until": 0.4, "most": 3, "encoder": encoder, "output_kernel": cv.Gaussian(9.0)}
        one = cv.enough([row["answer"] for row in so_far], **ratings, **how)
        new = None if len(so_far) == 1 else one.new
        names = {"prompt": LINES[k - 1]["prompt"], "answers": len(so_far), "new": new}
        assert line == names | {"at_most": one.at_most, "stop": one.stop}


@pytest.mark.slow
def test_the_command_answers_before_the_next_line_comes():
    command = [sys.executable, "-m", "condvendi_jax.cli", "enough", "--similarity=exact", "--sure"]
    with started(command, stdin=-1, env=os.environ) as process:
        for k in range(1, 4):
            process.stdin.write(json.dumps(LINES[0]) + "\n")
            process.stdin.flush()
            line = json.loads(process.stdout.readline())
            assert (line["answers"], line["stop"]) == (k, False)
        process.stdin.close()


def test_the_reward_of_being_new():
    texts = ["a", "bb", "bb", "abcd"]
    how = {"bandwidth": 90.0, "num_generations": 4, "encoder": fake_encoders.Means()}
    rewards = DiversityReward(**how, reward="new")(prompts=["q"] * 4, completions=texts)
    similar = gaussian_gram(fake_encoders.Means().encode(texts), 90.0) ** 2
    assert rewards == pytest.approx([chance(similar, [1] * 4, i, range(4)) for i in range(4)], 1e-4)
    with pytest.raises(ValueError, match="reward: expected"):
        DiversityReward(**how, reward="old")
