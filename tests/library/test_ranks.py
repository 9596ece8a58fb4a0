"""Letters, ranks, the best model, the score of the one that is selected, and all that in words."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from oracles import assert_close

import condvendi_jax as cv
from condvendi_jax.base import files
from condvendi_jax.inference import Difference, Ranking, comparisons
from condvendi_jax.report import webpage
from condvendi_jax.report.paper import escaped
from condvendi_jax.statistics import intervals, reasons
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.multiplicity import (
    best_p_values,
    letter_display,
    rank_sets,
    winner_interval,
)

EXACT = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}


@pytest.mark.parametrize(
    ("pairs", "letters", "ranks"),
    [
        ("", "a a a", [(1, 3), (1, 3), (1, 3)]),
        ("AB AC BC", "a b c", [(1, 1), (2, 2), (3, 3)]),
        ("AC BC", "a a b", [(1, 2), (1, 2), (3, 3)]),
        ("AB AC", "a b b", [(1, 1), (2, 3), (2, 3)]),
        ("AC", "a ab b", [(1, 2), (1, 3), (2, 3)]),  # A is not told from B, nor B from C.
        ("AB", "a b ab", [(1, 2), (2, 3), (1, 3)]),
    ],
)
def test_letters_and_ranks_by_hand(pairs, letters, ranks):
    ahead, apart = np.zeros((3, 3), bool), {frozenset(pair) for pair in pairs.split()}
    for one, two in pairs.split():
        ahead["ABC".index(one), "ABC".index(two)] = True
    assert " ".join(letter_display("ABC", apart).values()) == letters
    assert rank_sets(ahead) == ranks


def test_models_share_a_letter_unless_they_are_apart():
    """And there are letters for many models."""
    rng, models = np.random.default_rng(0), [f"model {k}" for k in range(60)]
    for chance in (0.2, 0.5, 0.8):
        eight = list(itertools.combinations(models[:8], 2))
        apart = {frozenset(pair) for pair in eight if rng.uniform() < chance}
        letters = letter_display(models[:8], apart)
        for one, two in eight:
            shared = set(letters[one]) & set(letters[two])
            assert bool(shared) == (frozenset((one, two)) not in apart)
    letters = letter_display(models, {*map(frozenset, itertools.combinations(models, 2))})
    assert len(set(letters.values())) == 60
    assert all(letter.isalpha() and len(letter) == 1 for letter in letters.values())
    assert [letters[models[k]] for k in (0, 25, 26)] == ["a", "z", "A"]


def test_p_values_of_the_best_by_hand():
    """Twice 0.01 and twice 0.03; the reverse are larger than a half."""
    p_ahead = np.array([[1, 0.01, 0.03], [0.99, 1, 0.2], [0.97, 0.8, 1]])
    assert_close(best_p_values(p_ahead), [1, 0.02, 0.06])
    assert_close(best_p_values(p_ahead[:2, :2]), [1, 0.02])  # Two models: the two-sided p-value.
    four = np.ones((4, 4))
    four[0, 3] = 0.02
    assert_close(best_p_values(four), [1, 1, 1, 0.06])


def test_the_interval_of_a_winner_by_hand():
    """3 - z(0.0125), and the larger of 3 + z(0.025) and 2 + 5 z(0.025)."""

    def normal(value, error):
        return intervals.symmetric(value, error, math.inf)

    low, high = winner_interval([normal(3, 1), normal(2, 1)], 0.05)
    assert (low, high) == pytest.approx((0.758597, 4.959964), abs=1e-5)
    assert winner_interval([normal(3, 1), normal(2, 5)], 0.05)[1] == pytest.approx(11.799820)


def _of_prompts(values):
    """The error of a mean over prompts, as a population makes it."""
    mean, count = values.mean(), values.size
    changes, shares = (values - mean) / (count - 1), np.full(count, 1 / count)
    influences = math.sqrt(count / (count - 1)) * (values - mean) / math.sqrt(count)
    error = values.std(ddof=1) / math.sqrt(count)
    ends = intervals.prompt_mean(mean, error, changes, shares)
    return Error(mean, influences[None], "prompts", count - 1, ends=ends)


def _ranked(rng, count, level=0.05):
    """A ranking of models by one over a similarity, from influences of common prompts."""
    errors, spread = {}, rng.choice([0.01, 0.1, 0.3])
    common = rng.beta(2, 4, size=30)
    for model in range(count):
        prompts = np.clip(common + spread * rng.normal() / 2 + spread * rng.normal(size=30), 0, 1)
        errors[f"m{model}"] = _of_prompts(prompts).inverted()
    errors = dict(sorted(errors.items(), key=lambda item: -item[1].value))
    values = {model: error.value for model, error in errors.items()}
    tests = comparisons._Tests(level, 1.1, math.comb(count, 2))
    differences = comparisons._differences(values, errors, tests, {}, rounding=1e-9)
    scores = "vendi", 2, None, values, dict.fromkeys(values, 0.1), None
    return errors, comparisons._tested_ranking(scores, errors, differences, tests)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_letters_ranks_the_best_and_ratios_agree(count):
    rng, told, parted = np.random.default_rng(count), 0, 0
    for draw in range(120 // count):
        errors, ranking = _ranked(rng, count, level=[0.05, 0.2][draw % 2])
        sets, best, models = ranking.rank_sets, ranking.best, [*ranking.values]
        apart = {
            (one, two)
            for one in models
            for two in models
            if one != two and not {*ranking.letters[one]} & {*ranking.letters[two]}
        }
        before = {pair for pair in apart if ranking.values[pair[0]] > ranking.values[pair[1]]}
        for one, (first, last) in sets.items():
            assert first == 1 + sum(pair[1] == one for pair in before)
            assert last == count - sum(pair[0] == one for pair in before)
            assert first <= models.index(one) + 1 <= last
            beaten = any(
                ranking.difference(other, one).ratio_low > 1 for other in models if other != one
            )
            assert (one in best) or beaten
            assert first == 1 or one not in best
        assert all(ranking.difference(*pair).ratio_low > 1 for pair in before)
        assert models[0] in best
        for d in ranking.differences:
            assert (d.p_value <= ranking.level) == (d.ratio_low > 1 or d.ratio_high < 1)
        low, high = errors[models[0]].interval(ranking.level)
        assert ranking.winner[0] < low and ranking.winner[1] >= high
        assert ranking.winner[1] >= max(
            error.interval(ranking.level)[1] for error in errors.values()
        )
        told += len(before)
        parted += len(best) < sum(first == 1 for first, _ in sets.values())
    assert told > 10 and (count < 3 or parted)


ENTROPY = {"score": "vendi", "order": 2, "truncation": None}


def _tested(models, p_values=(), adjusted=None, **options):
    """A ranking of models 9, 8, ... by these p-values of pairs, such as "AB"."""
    values = {name: 9.0 - place for place, name in enumerate(models)}
    p_values, differences = dict(p_values), []
    adjusted = p_values if adjusted is None else adjusted
    for a, b in itertools.combinations(models, 2):
        tests = p_values.get(a + b, 0.9), adjusted.get(a + b, 1.0)
        ratios = {"ratio_low": 2.0, "ratio_high": 4.0}
        differences.append(Difference(a, b, values[a] - values[b], 0.1, *tests, **ratios))
    entropy = [options.pop(name, value) for name, value in ENTROPY.items()]
    letters, errors = dict.fromkeys(models, "a"), dict.fromkeys(models, 0.1)
    return Ranking(*entropy, values, errors, None, tuple(differences), letters, **options)


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        ("", "A, B, C (no significant difference)"),
        ("AB AC BC", "A > B > C"),
        ("AB AC", "A > B >= C (>=: no significant difference)"),
        ("AC", "A, B, C (in descending order; significant: A > C)"),
    ],
)
def test_a_ranking_in_words(apart, words):
    assert str(_tested("ABC", dict.fromkeys(apart.split(), 0.04))) == words


def test_a_ranking_has_a_name_and_gives_differences_in_either_order():
    for name, score, order, truncation in (
        ("Vendi", "vendi", 1, None),
        ("Conditional-RKE", "conditional", 2, None),
        ("Information-Vendi, t = 1,500", "information", 1, 1500),
        ("Vendi of order inf", "vendi", np.inf, None),
    ):
        assert _tested("AB", score=score, order=order, truncation=truncation).name == name
    ranking = _tested("ABC")
    forth, back = ranking.difference("A", "C"), ranking.difference("C", "A")
    assert (*forth[:3], *back[:3]) == ("A", "C", 2, "C", "A", -2)
    np.testing.assert_equal(forth[3:8], back[3:8])
    assert (back.ratio_low, back.ratio_high) == (1 / 4, 1 / 2)
    with pytest.raises(KeyError, match="'D' and 'A' were not compared"):
        ranking.difference("D", "A")


def test_a_model_that_is_behind_for_sure_is_not_the_best():
    """Holm's last p-value counts once, and that of the best three halves of it."""
    ranking = _tested("ABCD", {"AB": 0.04})
    assert ranking.rank_sets["B"] == (2, 4) and best_p_values(np.ones((4, 4)) / 2)[0] == 1
    assert ranking.best == ["A", "C", "D"]
    assert _tested("ABCD", {"AD": 0.03}, {"AD": 0.18}).best == ["A", "B", "C"]


def test_a_pair_that_prompts_in_common_turn_round_counts_in_their_order():
    ranking = _tested("AB", {"AB": 0.01})
    (turned,) = ranking.differences
    ranking = dataclasses.replace(ranking, differences=(turned._replace(value=-1.0),))
    assert ranking.rank_sets == {"A": (2, 2), "B": (1, 1)} and ranking.best == ["B"]
    unknown = turned._replace(value=math.nan)  # The first one's rows nearly all differ.
    ranking = dataclasses.replace(ranking, differences=(unknown,))
    assert ranking.rank_sets == {"A": (1, 1), "B": (2, 2)} and ranking.best == ["A"]


def test_the_verdict_says_no_more_than_the_tests():
    told = {"AB": 0.001, "AC": 0.001}
    ranking = _tested("ABC", told)
    assert ranking.verdict() == "A leads: it is more diverse than every other model."
    assert ranking.verdict(["A - C"]).endswith(" The order changes with the bandwidth (A - C).")
    only = _tested("ABC", {"AC": 0.001}, {"AC": 0.003})
    assert only.verdict() == "A and B lead, and cannot be told apart."
    chain = {"AB": 0.001, "BC": 0.001}  # Not A from C.
    ranking = _tested("ABC", chain)
    assert ranking.verdict() == "A leads, but is not told apart from every other model."
    assert _tested("AB").verdict() == "No difference is shown."
    equal = [d._replace(equal_p_value=0.01) for d in _tested("AB").differences]
    ranking = dataclasses.replace(_tested("AB"), differences=tuple(equal))
    assert ranking.verdict() == "The models are equal within 10%."


def test_four_models_have_a_sentence_of_ranks():
    p_values = {"AC": 0.001, "AD": 0.001, "BD": 0.001}
    ranking = _tested("ABCD", p_values, winner=(3.0, 4.5))
    ranks = "A (1 to 2), B (1 to 3), C (2 to 4) and D (3 to 4)"
    words = f"Ranks at 95%: {ranks}; the best: one of A and B"
    assert ranking.ranks() == f"{words}; A, as the largest of 4: 9.00 [3.00, 4.50]"
    assert ranking.in_full().endswith(ranking.ranks())
    clear = {"AB": 0.001, "AC": 0.001, "AD": 0.001}
    ranking = _tested("ABCD", clear, winner=(3.0, 4.5), level=0.01)
    assert "Ranks at 99%: A (1), B (2 to 4)" in ranking.ranks() and "best: A;" in ranking.ranks()
    assert "Ranks at 95%: all open" in _tested("ABCD", winner=(3.0, 4.5)).ranks()
    assert not _tested("ABC", p_values, winner=(3.0, 4.5)).ranks()
    assert not _tested("ABCD", p_values).ranks()


def test_a_comparison_of_four_models_ranks_them():
    rng, prompts = np.random.default_rng(0), np.repeat(np.arange(30), 6)
    models = {f"{kinds}": rng.integers(kinds, size=180) for kinds in (2, 3, 6, 9)}
    result = cv.compare(models, prompts, orders=[2], profile=False, **EXACT)
    ranking = result.ranking("conditional", 2)
    assert ranking.rank_sets["2"] == (4, 4) and "2" not in ranking.best
    low, high = ranking.intervals["9"]
    assert ranking.winner[0] < low and ranking.winner[1] == pytest.approx(high)
    assert ranking.ranks() in str(result) and ranking.ranks() in result.details()
    assert escaped(ranking.ranks()) in cv.report.latex(result, long=True).paragraph
    assert f"{ranking.ranks()}." in " ".join(webpage.answered(result))
    entry = json.loads(json.dumps(files.jsonable(result.as_dict()), allow_nan=False))["rankings"][1]
    assert entry["rank_sets"]["2"] == [4, 4] and entry["best"] == ranking.best
    assert entry["winner"] == pytest.approx(ranking.winner)
    line = next(x for x in result.lines() if (x["score"], x["model"]) == ("conditional", "2"))
    assert (line["first_rank"], line["last_rank"]) == (4, 4)


def test_a_winner_that_is_not_tested_has_no_interval():
    errors, ranking = _ranked(np.random.default_rng(1), 4)
    scores = "vendi", 2, None, ranking.values, ranking.standard_errors, None
    tests, every = comparisons._Tests(0.05, 1.1, 6), ranking.differences
    untested = [*(d._replace(reason=reasons.EQUAL) for d in every[:3]), *every[3:]]
    missing = errors | {"m1": dataclasses.replace(errors["m1"], reason=reasons.NO_ERRORS)}
    for known, differences in ((errors, untested), (missing, every)):
        assert comparisons._tested_ranking(scores, known, differences, tests).winner is None
    models, options = dict.fromkeys("abcd", np.arange(60) % 7), EXACT | {"profile": False}
    result = cv.compare(models, np.arange(60) // 6, orders=[2], errors=False, **options)
    ranking = result.ranking("conditional", 2)
    assert ranking.winner is None and ranking.rank_sets["a"] == (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("dominant", [False, True])
def test_ranks_and_the_winner_of_twelve_equal_models_hold(dominant):
    """Of 250 draws, 95% hold with a standard error of 1.4%: the means of 12 models are equal."""
    rng, held, count = np.random.default_rng(int(dominant)), np.zeros(3), 250
    chances = np.arange(1.0, 21) ** -rng.uniform(0, 3, (4000, 1))
    chances = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
    for _ in range(count):
        prompts = chances[rng.integers(4000, size=60)]
        answers = (rng.random((12, 60, 5))[..., None] > prompts[:, None]).sum(axis=-1)
        if dominant:  # A third of the answers of every model are one answer to all prompts.
            answers[rng.random(answers.shape) < 1 / 3] = 99
        alike = (answers[..., None] == answers[..., None, :]).sum(axis=(-1, -2)) - 5
        similar = alike / 20
        errors = {f"m{k}": _of_prompts(values).inverted() for k, values in enumerate(similar)}
        ordered = dict(sorted(errors.items(), key=lambda item: -item[1].value))
        values = {name: error.value for name, error in ordered.items()}
        tests = comparisons._Tests(level=0.05, margin=1.1, number=66)
        differences = comparisons._differences(values, ordered, tests, {}, rounding=0.0)
        apart = [d for d in differences if d.adjusted <= 0.05]
        low, high = winner_interval([error.at_levels for error in ordered.values()], 0.05)
        truth = _true_score(chances, dominant)
        first = next(iter(values))
        p_best = [d.p_value / 2 for d in differences if d.second == "m0"]
        best = first == "m0" or 11 * min(p_best) > 0.05
        held += [not apart, low <= truth <= high, best]
    assert (held / count > [0.92, 0.92, 0.92]).all()


def _true_score(cumulated, dominant):
    chances = np.diff(cumulated, axis=1, prepend=0)
    similar = np.mean(np.sum(chances**2, axis=1))
    return 1 / (1 / 9 + 4 / 9 * similar if dominant else similar)
