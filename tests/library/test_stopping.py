"""Ask again or stop: estimates and upper ends by brute force, their theory, the stream."""

import inspect
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
from condvendi_jax.cli import __main__, verbs
from condvendi_jax.integrations import DiversityReward
from condvendi_jax.statistics.sequential import after_each

WIDTH, P, K = 0.9, 12, 6
PROMPTS = np.tile(np.arange(P), K)  # One answer to each in turn.
OUTPUTS = np.random.default_rng(0).normal(size=(P * K, 2)).astype(np.float32)
RATINGS = np.random.default_rng(1).integers(3, size=P * K)
KERNEL = {"output_kernel": cv.Gaussian(WIDTH)}
LINES = [("p", "cat", 1), (["p"], "cat", 1), ("p", "cat", 0), ("p", "dogs", 2), ("p", "a dog", 3)]
LINES = [dict(zip(("prompt", "answer", "mark"), line, strict=True)) for line in LINES]


def chance(similar, good, i, others):
    return good[i] * math.prod(1 - good[j] * similar[i][j] for j in others if j != i)


def estimates(similar, good):
    every = range(1, len(good) + 1)
    return [np.mean([chance(similar, good, i, range(k)) for i in range(k)]) for k in every]


def upper_ends(similar, good, level):
    """The smallest root up to each look, by products from each start."""
    came, roots = [chance(similar, good, t, range(t)) for t in range(1, len(good))], [1.0]

    def evidence(m, t):
        stakes = [[1 - c * (y - m) / (1 - m) for y in came[:t]] for c in (1, 0.5)]
        starts = [(s, np.mean([math.prod(f[s - 1 :]) for f in stakes])) for s in range(1, t + 1)]
        return sum(value / (s * (s + 1)) for s, value in starts) + 1 / (t + 1) - 1 / level

    for t in range(1, len(good)):
        shown = evidence(0.999, t) > 0
        roots.append(optimize.brentq(evidence, 0, 0.999, (t,)) if shown else 1.0)
    return np.minimum.accumulate(roots)


@pytest.mark.parametrize(("rated", "level"), [(False, 0.05), (True, 0.3)])
def test_numbers_are_those_of_brute_force(rated, level):
    good = (RATINGS >= 1) if rated else np.ones(P * K)
    quality = {"quality": RATINGS, "at_least": 1} if rated else {}
    found = cv.enough(OUTPUTS, PROMPTS, **KERNEL, **quality, level=level, until=0.3)
    for p, asked in enumerate(found.prompts):
        given = gaussian_gram(OUTPUTS[PROMPTS == p], WIDTH) ** 2, good[PROMPTS == p]
        news = estimates(*given)
        np.testing.assert_allclose(asked.news, [np.nan, *news[1:]], rtol=1e-5)
        above = asked.bounds - upper_ends(*given, level)  # Rounded up to thousandths.
        assert (above > -1e-6).all() and (above < 0.001 + 1e-6).all()
        assert (asked.prompt, asked.answers, asked.stop) == (p, K, news[-1] <= 0.3)
        assert (asked.new, asked.at_most) == (asked.news[-1], asked.bounds[-1])
    last = [asked.new for asked in found.prompts]
    assert found.new.value == pytest.approx(np.mean(last))
    assert found.new.ends == pytest.approx(prompt_mean_ends(last, 0.05))
    # The last of the good and different outputs of `evaluate` is the one that this estimates.
    how = KERNEL | {"quality": good, "at_least": 1, "orders": [2], "errors": False}
    more, less = (cv.evaluate(OUTPUTS, PROMPTS, **how, draws=k).quality.number for k in (K, K - 1))
    assert more.value - less.value == pytest.approx(found.new.value, abs=1e-5)


@pytest.mark.parametrize("good", [np.ones(3), np.array([1, 0, 1])])
def test_the_estimate_has_the_mean_of_one_answer_fewer(good):
    chances, similar = [0.5, 0.3, 0.2], np.array([[1, 0.4, 0], [0.4, 1, 0.7], [0, 0.7, 1]])
    k, means = 4, np.zeros(3)  # Over all draws.
    for rows in itertools.product(range(3), repeat=k):
        left = np.cumprod(1 - good[[*rows]] * similar[:, rows], axis=1)
        truth = (chances * good) @ left[:, k - 2 :]
        estimate = after_each(similar[np.ix_(rows, rows)], good[[*rows]], 0.05)[0][-1]
        means += math.prod(chances[x] for x in rows) * np.array([estimate, *truth])
    assert means[0] == pytest.approx(means[1], rel=1e-12) and 0 <= means[0] - means[2] <= 1 / k


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["uniform", "heavy", "similar", "rated"])
def test_upper_ends_hold_at_all_looks_at_once(shape):
    chances = {"uniform": np.ones(12), "heavy": 1 / np.arange(1, 31)}.get(shape, np.ones(6))
    chances, good = chances / chances.sum(), np.ones(len(chances))
    good[1::2] = shape != "rated"
    similar = gaussian_gram(np.arange(6.0)[:, None], 1.0) if shape == "similar" else np.eye(30)
    rng, runs, level, failures = np.random.default_rng(2), 1000, 0.2, 0
    for _ in range(runs):
        rows = rng.choice(len(chances), size=40, p=chances)
        bounds = after_each(similar[np.ix_(rows, rows)], good[rows], level)[1]
        left = np.cumprod(1 - good[rows] * similar[: len(chances), rows], axis=1)
        failures += np.any((chances * good) @ left > bounds)
    assert is_at_most(failures / runs, runs, level) and bounds[-1] < 0.8


def test_the_rule_and_kinds_of_outputs():
    same, texts = [3] * 5, ["a cat", "A cat", "b", "c c"]
    assert [cv.enough(same[:k]).stop for k in (1, 2)] == [False, True]
    assert not cv.enough(same, sure=True).stop and cv.enough(same, sure=True, most=5).stop
    assert cv.enough(same[:3], sure=True, until=0.9).stop and math.isnan(cv.enough([1]).new.value)
    assert str(cv.enough([1])).startswith("1 answer cannot tell: ask again")
    assert cv.enough(same).prompts[0].prompt == 0 and cv.enough([1]).prompts[0].at_most == 1
    for prompts in (None, ["q", "q", "p", "p"]):
        by_text = cv.enough(texts, prompts, similarity="exact")
        matrix = cv.Similarities.from_function("exact", texts, prompts)
        for other in (cv.enough(matrix), cv.enough([5, 5, 6, 7], prompts)):
            assert str(by_text) == str(other)
    assert by_text.lines() == cv.enough([texts[:2], texts[2:]], [*"qp"], similarity="exact").lines()
    assert cv.enough([1, 1, 1, 2], until=0.25).stop  # One of four is new: exactly the limit.
    defaults = inspect.signature(cv.enough).parameters
    assert verbs.Enough().until == defaults["until"].default == 0.1
    counted = cv.enough([5, 5, 6, 7, 8], [*"qqppz"])  # One answer to z cannot tell.
    assert [(p.prompt, p.answers) for p in counted.prompts] == [("q", 2), ("p", 2), ("z", 1)]
    assert counted.new.value == 0.5 and "prompt 'p': 2 answers" in str(counted)
    drifts = cv.enough([1] * 40 + [*range(2, 30)], until=0.2, sure=True)
    assert drifts.prompts[0].at_most < 0.2 and not drifts.stop  # The answers are not of one law.
    labels = [p.answers for p in cv.enough([[1, 2, 1], [3]], output_kernel=cv.Indicator()).prompts]
    assert labels == [3, 1]
    for lists in ([["a"], ["b"]], np.array([["a"], ["b"]])):  # Of one prompt each.
        assert [p.prompt for p in cv.enough(lists, similarity="exact").prompts] == [0, 1]
    assert len(cv.enough(OUTPUTS[:, None], **KERNEL).prompts) == len(OUTPUTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": OUTPUTS}, "output_kernel: expected a kernel"),
        ({"outputs": []}, "outputs: received a list without answers"),
        ({"outputs": [["a"], []]}, "outputs: received a list without answers; ask its prompt"),
        ({"outputs": 3}, "outputs: expected a list or an array, received int"),
        ({"until": 0}, "until: expected a number between 0 and 1"),
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


def test_the_command_answers_each_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(fake_encoders, "ready", encoder := fake_encoders.Means())
    wrong = ["no", "[1]", '{"prompt": "p"}', '{"prompt": "p", "answer": " ", "mark": 1}']
    wrong += ['{"prompt": "p", "answer": "<think>cut", "mark": 1}', ""]
    (tmp_path / "a.jsonl").write_text("\ufeff" + "\n".join([*map(json.dumps, LINES), *wrong]))
    flags = ["--text_encoder=fake_encoders:ready", "--output_bandwidth=9", "--quality_field=mark"]
    flags += ["--at_least=1", "--until=0.4", "--most=3"]
    assert __main__.main(["condvendi", "enough", str(tmp_path / "a.jsonl"), *flags]) == 2
    written = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["error"].partition(":")[0] for line in written[5:]] == [
        f"line {k}" for k in range(6, 11)
    ]
    assert encoder.count == 3
    monkeypatch.setattr(encoder, "encode", lambda texts: np.full((len(texts), 2), np.nan))
    __main__.main(["condvendi", "enough", str(tmp_path / "a.jsonl"), *flags])
    assert '"error": "line 1: means: gives NaN' in capfd.readouterr().out
    monkeypatch.undo()
    how = {"until": 0.4, "most": 3, "encoder": encoder, "output_kernel": cv.Gaussian(9.0)}
    for k, line in enumerate(written[:5]):
        rows = [row for row in LINES[: k + 1] if row["prompt"] == LINES[k]["prompt"]]
        quality = {"quality": [row["mark"] for row in rows], "at_least": 1}
        (one,) = cv.enough([row["answer"] for row in rows], **quality, **how).prompts
        names = {"prompt": LINES[k]["prompt"], "answers": len(rows), "at_most": one.at_most}
        assert line == names | {"new": one.new if len(rows) > 1 else None, "stop": one.stop}


def test_the_command_reads_tool_calls(tmp_path, capfd):
    runs = [["search", {"name": "read", "args": {"n": 1}}], ["search", "read"], []]
    rows = [json.dumps({"prompt": "t", "tool_calls": run}) for run in runs]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    where = ["condvendi", "enough", str(tmp_path / "a.jsonl")]
    assert not __main__.main([*where, "--answer_field=tool_calls"])
    written = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    texts = ['search\nread {"n": 1}', "search\nread", "(no calls)"]
    expected = [cv.enough(texts[:k], similarity="calls").new.value for k in (2, 3)]
    assert [line["new"] for line in written] == [None, *expected]
    with pytest.raises(ValueError, match="--quality_field, --at_least: expected both"):
        __main__.main([*where, "--at_least=1"])


@pytest.mark.slow
def test_the_command_answers_before_the_next_line_comes():
    command = [sys.executable, "-m", "condvendi_jax.cli", "enough", "--similarity=exact", "--sure"]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    with started(command, stdin=-1, env=buffered) as process:
        for k in range(1, 4):
            process.stdin.write(json.dumps(LINES[0]) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["answers"] == k
        process.stdin.close()


def test_the_reward_of_being_new():
    texts, how = ["a", "bb", "bb", "abcd"], {"encoder": fake_encoders.Means(), "bandwidth": 90.0}
    reward = DiversityReward(**how, num_generations=4, reward="new")
    similar = gaussian_gram(fake_encoders.Means().encode(texts), 90.0) ** 2
    expected = [chance(similar, [1] * 4, i, range(4)) for i in range(4)]
    assert reward(prompts=["q"] * 4, completions=texts) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="reward: expected"):
        DiversityReward(**how, num_generations=4, reward="old")
