"""Scores that differ by rounding alone are reported as saturated, and nothing is made of them."""

import math
import re
import warnings

import numpy as np
import pytest
from canonical import OUTPUTS, PROMPTS, SCORES, N, kernels
from oracles import draw_pairs, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import saturation
from condvendi_jax.results.ranking import order_in_words
from condvendi_jax.statistics import reasons

ORDER_1, ORDER_2 = Entropy(), cv.Entropy(2)
WIDE = pytest.mark.filterwarnings("ignore:.*the Gram is numerically constant")
NARROW = pytest.mark.filterwarnings("ignore:.*the Gram is numerically the identity")
AGAIN = np.random.default_rng(0).permutation(N)  # Another order of rows, of rounding errors.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_eps_of_sums_or_of_eigenvalues(dtype):
    eps = np.finfo(dtype).eps
    entropies = ORDER_2, ORDER_1, Entropy(2, truncation=3), Entropy(0.5)
    found = [saturation.rounding(entropy, dtype) for entropy in entropies]
    assert found == pytest.approx([8 * eps, 512 * eps, 512 * eps, math.sqrt(512 * eps)])


@pytest.mark.parametrize("counted", ["vendi", "conditional", "information"])
def test_a_limit_is_judged_by_the_side_that_it_bounds(counted):
    """The smaller, the larger, both at n; the larger, both, the smaller at 1; none."""
    values = np.array([[2, 5, 5, 3, 1, 1, 2], [3, 3, 5, 1, 1, 3, 3.0]])
    largest = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0]], bool)
    smallest = np.array([[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 0, 0]], bool)
    limits = saturation.Nearly(smallest, largest)
    full = "nearly every output of {} counts as different"
    same = "nearly every output of {} counts as the same"
    assert saturation.untested(counted, ("a", "b"), values, limits) == [
        full.format("a"),
        full.format("a") if counted == "information" else None,
        full.format("both"),
        same.format("a"),
        same.format("both"),
        None,
        None,
    ]


@pytest.mark.parametrize("bandwidth", [0.3, 100.0])
def test_another_order_of_the_rows_moves_a_score_by_no_more_than_rounding(bandwidth, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    rng = np.random.default_rng(0)
    for entropy in (ORDER_1, ORDER_2, Entropy(truncation=5)):
        options = {"order": entropy.order, "truncation": entropy.truncation}
        options |= kernels((bandwidth, bandwidth))
        orders = [rng.permutation(N) for _ in range(4)]
        found = np.array([cv.decompose(*(p[r] for p in pairs), **options).scores for r in orders])
        moved = np.ptp(found, axis=0) / np.mean(found, axis=0)
        assert moved.max() <= saturation.rounding(entropy, dtype)


def _compare(bandwidth, sizes=(N, N)):
    """Two models that differ, at any bandwidth that tells outputs apart."""
    pairs = [draw_pairs(n, seed=k, dtype=np.float32) for k, n in enumerate(sizes)]
    models = (dict(zip("ab", rows, strict=True)) for rows in zip(*pairs, strict=True))
    return cv.compare(*models, **kernels((bandwidth, 0.5)), groups=8)


def _nothing_is_tested(ranking):
    (difference,) = ranking.differences
    assert math.isnan(difference.p_value) and math.isnan(difference.adjusted)
    assert set(ranking.letters.values()) == {""}


@WIDE
def test_scores_of_one_are_neither_ranked_nor_tested():
    found = _compare(1e5)
    assert len(found.rankings) == 7
    for ranking in found.rankings:
        assert ranking.saturated == "smallest"
        _nothing_is_tested(ranking)
    assert found.reason is None
    words = found.details()
    assert "RKE: a, b (saturated: neither ranked nor tested)" in words
    assert "ifferences are not tested: nearly every output of both counts as the same" in words
    assert words.count("nearly all outputs count as the same (RKE 1, Vendi 1).") == 1
    assert ">" not in words.split("score  ")[0]
    assert {ranking["saturated"] for ranking in found.as_dict()["rankings"]} == {"smallest"}


@pytest.mark.slow
@NARROW
@pytest.mark.filterwarnings("ignore:models. a .48 outputs")
def test_scores_of_n_are_not_compared_between_models_of_different_n():
    found = _compare(1e-5, sizes=(N, N + 10))
    for order, limit in ((1, "equal"), (2, "largest")):  # At order 1 both are 48 of 48.
        ranking = found.ranking("vendi", order)
        assert ranking.saturated == limit
        assert list(ranking.values) == ["a", "b"]  # As given: 58 is not above 48.
        _nothing_is_tested(ranking)


def test_equal_scores_are_not_tested():
    alone = {"output_kernel": cv.Gaussian(0.7), "groups": 8}
    found = cv.compare({"a": OUTPUTS, "b": OUTPUTS[AGAIN]}, **alone)
    for ranking in found.rankings:
        assert ranking.saturated == "equal"
        _nothing_is_tested(ranking)
    words = "ifferences are not tested: all values are equal up to rounding"
    assert words in found.details() and words in cv.report.latex(found, long=True).paragraph
    first = cv.compare({"a": OUTPUTS, "b": OUTPUTS.copy()}, **alone).rankings[0]
    assert str(first) == "a, b (the models have the same outputs)"
    assert first.differences[0].reason is reasons.IDENTICAL


def test_two_of_three_models_that_rounding_parts_are_not_told_apart():
    models = {"a": OUTPUTS, "b": OUTPUTS[AGAIN], "wide": 4 * OUTPUTS}
    for ranking in cv.compare(models, output_kernel=cv.Gaussian(0.7), groups=8).rankings:
        assert ranking.saturated is None
        assert ranking.difference("a", "b").p_value == 1
        assert set(ranking.letters["a"]) & set(ranking.letters["b"])
        assert ranking.difference("wide", "a").adjusted < 0.05


@pytest.mark.parametrize(
    ("bandwidth", "limit"),
    [
        pytest.param(1e5, "smallest", marks=WIDE),
        pytest.param(1e-5, "largest", marks=NARROW),
        (0.7, None),
    ],
)
def test_an_evaluation_says_what_is_saturated(bandwidth, limit):
    found = cv.evaluate(OUTPUTS, PROMPTS, **kernels((bandwidth, 0.5)), errors=False)
    for scored in found.orders:
        assert scored.saturated.get("vendi") == limit
        assert scored.as_dict(SCORES)["saturated"] == scored.saturated
    assert found.details().count("saturated: ") == (limit is not None)  # The advice says it.
    alone = cv.evaluate(OUTPUTS, **kernels((bandwidth,)), errors=False)
    assert all(scored.saturated == ({"vendi": limit} if limit else {}) for scored in alone.orders)


def test_near_the_limits_by_hand():
    values = [[1.0, 1.04, 1.06], [89.0, 91.0, 100.0], [math.nan, 9.1, 8.9]]
    smallest, largest = saturation.nearly(values, [[100], [100], [10]])
    assert smallest.tolist() == [[True, True, False], [False] * 3, [False] * 3]
    assert largest.tolist() == [[False] * 3, [False, True, True], [False, True, False]]
    for values, most in ((1.0, 1), (1.04, 1.1), (2.0, math.nan)):  # One row, or nearly; unknown.
        assert not np.any(saturation.nearly(values, most))


FEW = PROMPTS[np.arange(N) // 4]  # Twelve prompts, each with four outputs.


@pytest.mark.parametrize(
    ("prompts", "widths", "codes"),
    [
        (PROMPTS, (0.7, 0.7), []),
        (PROMPTS, (10.0, 0.7), ["outputs alike"]),
        (PROMPTS, (0.7, 20.0), ["prompts alike"]),
        (PROMPTS, (0.15, 0.05), ["outputs apart", "prompts apart"]),
        (FEW, (0.7, 0.1), []),
        (FEW, (0.7, 2.0), ["prompts blended"]),
        (PROMPTS[np.zeros(N, int)], (0.7, 0.7), []),
        (None, (0.15,), ["outputs apart"]),
    ],
)
@pytest.mark.filterwarnings("ignore:prompts. all rows are equal")
def test_each_end_has_one_sentence_with_its_scores_and_a_remedy(prompts, widths, codes):
    found = cv.evaluate(OUTPUTS, prompts, **kernels(widths), errors=False)
    assert [item.code for item in found.advice] == codes
    told = [{"code": item.code, "sentence": str(item)} for item in found.advice]
    assert found.as_dict()["advice"] == told
    for item in found.advice:
        role, end = item.code.split()
        points, width = (OUTPUTS, widths[0]) if role == "outputs" else (prompts, widths[-1])
        shown = float(item.evidence.partition("RKE ")[2].split()[0].rstrip(","))
        assert shown == pytest.approx(1 / np.mean(gaussian_gram(points, width) ** 2), rel=5e-3)
        way = "wider" if end == "apart" else "narrower"
        remedy = "cv.Indicator()" if end == "blended" else f"{way} {role[:-1]} bandwidth"
        assert remedy in item.remedy
        assert found.details().count(str(item)) == 1


def test_kernels_without_a_bandwidth_and_kept_eigenvalues_have_other_advice():
    options = {"orders": [2], "errors": False}
    (item,) = cv.evaluate(OUTPUTS[:, :2] + 100, output_kernel=cv.Cosine(), **options).advice
    assert item.code == "outputs alike" and "bandwidth" not in item.remedy
    found = cv.evaluate(OUTPUTS, **kernels((0.1,)), truncation=3, **options)
    assert [item.code for item in found.advice] == ["outputs cut"]
    assert "(RKE 2.999 of 3)" in found.details()


def test_models_share_a_sentence_that_holds_the_scores_of_each():
    models = {"a": 0.01 * OUTPUTS, "b": 0.005 * OUTPUTS, "c": OUTPUTS}
    found = cv.compare(models, FEW, **kernels((0.1, 2.0)), orders=[2], errors=False)
    advice = {item.code: item for item in found.advice}
    parts = [part.split(": RKE ") for part in advice["outputs alike"].evidence.split("; ")]
    shown = {name: float(value) for name, value in parts}
    rke = {name: 1 / np.mean(gaussian_gram(models[name], 0.1) ** 2) for name in "ab"}
    assert shown == pytest.approx(rke, rel=5e-3)
    assert advice["outputs apart"].evidence.startswith("c: RKE ")
    assert ":" not in advice["prompts blended"].evidence  # The same for all.
    for item in found.advice:
        assert found.details().count(str(item)) == 1


def _population(rng, ideas, spread=8.0):
    """Eight answers to each of twelve prompts, unit vectors of so many ideas, or all different."""
    answers = np.eye(8)[np.stack([rng.permutation(8) % ideas for _ in range(12)])]
    answers = np.concatenate([answers, spread / 50 * rng.normal(size=answers.shape)], axis=-1)
    return (answers / np.linalg.norm(answers, axis=-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("numbers", [(8, 4, 3, 4), (3, 8, 8, 4), (8, 8, 8, 8)])
def test_saturated_models_are_neither_ranked_nor_tested_anywhere(numbers):
    """Headline, letters, p-values, page, LaTeX and plan agree on an oracle's saturated models."""
    rng, ideas = np.random.default_rng(0), dict(zip("ABCD", numbers, strict=True))
    spreads = zip(ideas, numbers, (9, 7, 5, 3), strict=True)
    models = {name: _population(rng, number, spread) for name, number, spread in spreads}
    prompts, kernel = np.arange(12), cv.Gaussian(0.5)
    found = cv.compare(models, prompts, output_kernel=kernel, orders=[2])
    same = np.kron(np.eye(12), np.ones((8, 8)))
    grams = {name: same * gaussian_gram(x.reshape(96, -1), 0.5) for name, x in models.items()}
    apart = {name for name, gram in grams.items() if 1 / np.mean(gram**2) > 0.9 * 96}
    assert apart == {name for name in models if ideas[name] == 8}
    ranking, text = found.ranking("conditional", 2), str(found)
    for name in models:
        assert (name in apart) == str(ranking.estimate(name)).startswith("> ")
        assert f"  {ranking.estimate(name)}  " in text
        assert not (len(apart) > 1 and name in apart and ranking.letters[name])
    for of in ranking.differences:
        assert math.isnan(of.p_value) == ({of.first, of.second} <= apart)
        assert not ({of.first, of.second} <= apart) or f"{of.first} > {of.second}" not in text
        known = not {of.first, of.second} & apart
        assert math.isfinite(of.value) == math.isfinite(of.detectable) == known
    assert [*ranking.values][: len(apart)] == sorted(apart)
    names = " and ".join(filter(None, [", ".join(sorted(apart)[:-1]), *sorted(apart)[-1:]]))
    assert (f". 8 outputs cannot tell {names} apart" in text) == (len(apart) > 1)
    headline = re.findall(r"\((\w)\)", text.partition(". ")[0])
    assert headline[: len(apart)] == sorted(apart)
    assert ("differ: there may be many more" in text) == (len(apart) == 1)
    leads = re.findall(r"^(\w) leads", text, re.MULTILINE)
    assert not leads or len(apart) < 2
    assert ("These data cannot tell the models apart" in text) == (numbers == (8,) * 4)
    assert ("outputs different" in [item.code for item in found.advice]) == bool(apart)
    for name in apart:
        with pytest.raises(ValueError, match="nearly all outputs of .* count as different"):
            cv.plan(found, models=[name, next(of for of in models if of != name)])
    if len(apart) < 3:
        assert cv.plan(found, models=[*(models.keys() - apart)][:2], ratio=2).sizes


def test_an_order_in_words_says_which_models_are_not_tested():
    """A and B are saturated, C is below them, D is not told apart from C."""
    above = {(a, b): 1.0 for a in "AB" for b in "CD"}
    states = {("A", "B"): math.nan, **above, ("C", "D"): 0.0}
    words = order_in_words("ABCD", states)
    assert words == "A, B > C >= D (>=: no significant difference; not tested: A - B)"
    assert order_in_words("AB", {("A", "B"): math.nan}) == "A, B (in descending order; not tested)"


def test_intervals_lie_inside_what_is_possible():
    """RKE and Conditional-RKE are at least 1, information is at most the number of prompts."""
    rng = np.random.default_rng(0)
    same = np.repeat(rng.normal(size=(1, 1, 3)), 96, axis=1).reshape(12, 8, 3).astype(np.float32)
    for outputs in (_population(rng, 8), _population(rng, 2), same):
        for width in (0.05, 0.5, 5.0):
            kernel = {"output_kernel": cv.Gaussian(width), "prompt_kernel": cv.Indicator()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = cv.evaluate(outputs, np.arange(12), **kernel, orders=[2])
            (scored,) = found.orders
            for name, (low, high) in scored.population.intervals._asdict().items():
                assert 0 <= low <= high and (name == "information" or low >= 1)
                assert high <= 12 * (1 + 1e-6) or name != "information"
                apart = scored.saturated.get(name) == "largest"
                assert math.isinf(high) == (apart and name != "information")
            table = str(found.table())
            assert "inf" not in table.replace("information", "") and "e+" not in table
            assert "± 0 " not in table + " "


def test_what_nearly_all_answers_do_is_said_of_their_weights():
    """Of weights 0.9, 0.05 and 0.05 the largest number is 1 / (0.81 + 2 * 0.0025), 1.227."""
    answers, prompts = np.tile([0, 1, 2], 4), np.repeat(np.arange(4), 3)
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    for weights, most, said in (
        (
            np.tile([0.9, 0.05, 0.05], 4),
            "1.227 of 1.227 by the weights",
            "largest that the weights",
        ),
        (None, "3 of 3", "Nearly all outputs differ"),
    ):
        found = cv.evaluate(answers, prompts, **kernels, orders=[2], weights=weights)
        assert said in str(found) and most in found.details()
        assert ("Nearly all" in str(found)) == (weights is None)


def test_a_figure_and_a_table_end_at_saturation():
    models = {name: _population(np.random.default_rng(k), 8) for k, name in enumerate("AB")}
    found = cv.profile(models, np.arange(12), output_kernel=cv.Gaussian(0.5))
    assert found.values.conditional.max() > 1e20
    (panel,) = found.plot().axes
    drawn = np.array([line.get_ydata() for line in panel.lines[:2]])
    assert (np.isnan(drawn) == found.saturated.conditional).all() and panel.get_ylim() == (1, 8)
    assert found.plot("vendi").axes[0].get_ylim()[1] < 1000
    assert "> 96 *" in str(found.table()) and "e+" not in str(found.table())
