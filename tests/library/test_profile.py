"""Scores over a ladder of bandwidths: values, errors, bands, signs, and the words for them."""

import dataclasses
import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import N, kernels
from oracles import assert_close, draw_pairs, gaussian_gram
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import PairProfile, profiles, saturation
from condvendi_jax.spectra import order_two
from condvendi_jax.statistics import intervals, reasons
from condvendi_jax.statistics.influences import Error

MULTIPLES = [0.5, 1.0, 2.0]


def models(seeds=(0, 1)):
    """Models of different outputs over the same prompts, and these."""
    dtype = np.float64 if jax.config.jax_enable_x64 else np.float32
    outputs, prompts = draw_pairs(N, dtype=dtype)
    noise = np.random.default_rng(5).normal(size=(len(seeds), *outputs.shape)).astype(dtype)
    return {
        f"{seed}": outputs + dtype(0.3 * seed) * noise[k] for k, seed in enumerate(seeds)
    }, prompts


def scores_of(x, t):
    """The three scores from the Grams, of the pairs of different rows."""
    pairs = ~np.eye(len(x), dtype=bool)
    x, t, both = (-np.log(np.mean(gram[pairs] ** 2)) for gram in (x, t, x * t))
    return np.exp([x, both - t, x + t - both])


@pytest.mark.parametrize("over", ["both", "outputs", "prompts"])
def test_values_and_bands_are_those_of_each_bandwidth(over, x64):
    (outputs, _), prompts = models()[0].values(), models()[1]
    options = {"over": over, "level": 0.1, **kernels()}
    found = cv.profile(outputs, prompts, multiples=[0.5, 2.0], **options)
    for k, times in enumerate((0.5, 2.0)):
        of_x, of_t = (times if over in (side, "both") else 1.0 for side in ("outputs", "prompts"))
        grams = gaussian_gram(outputs, 0.8 * of_x), gaussian_gram(prompts, 0.6 * of_t)
        assert_close([of[0, k] for of in found.values], scores_of(*grams))
        at = {"output_kernel": cv.Gaussian(0.8 * of_x), "prompt_kernel": cv.Gaussian(0.6 * of_t)}
        alone = cv.evaluate(outputs, prompts, orders=[2], **at).order(2).population.errors
        for name, band in zip(PerScore._fields, found.bands, strict=True):
            if not np.isnan(band[0, k]).any():  # Bands of two are wider, by less than Bonferroni's.
                ends = [getattr(alone, name).interval(level) for level in (0.11, 0.045)]
                assert ends[1][0] < band[0, k, 0] < ends[0][0]
                assert ends[0][1] < band[0, k, 1] < ends[1][1]
    axis = "prompts" if over == "prompts" else "outputs"
    assert found.axis == axis
    assert_close(found.bandwidths, {"outputs": 0.4, "prompts": 0.3}[axis] * np.r_[1, 4])


@pytest.mark.parametrize("matched", [True, False])
def test_p_values_are_those_of_one_difference(matched):
    """At one bandwidth the test is Student's; models that share no prompt are independent."""
    of_models, prompts = models((0, 1.3))
    own = {name: prompts + np.float32(0.1 * k * (not matched)) for k, name in enumerate(of_models)}
    found = cv.profile(of_models, own, multiples=[1.0], one_population=True, **kernels())
    errors, logs = [], []
    for outputs in of_models.values():
        gram = gaussian_gram(outputs.astype(np.float64), 0.8) ** 2 - np.eye(N)
        logs.append(-np.log(gram.sum() / N / (N - 1)))
        errors.append(-2 * (gram.mean(axis=0) / gram.mean() - 1))
    spread = errors[0] - errors[1]
    variance = np.mean(spread**2) if matched else np.mean(np.square(errors), axis=1).sum()
    statistic = (logs[0] - logs[1]) / math.sqrt(variance / (N - 1))
    expected = 2 * stats.t.sf(abs(statistic), N - 1)
    pair = found.pair(*of_models, "vendi")
    assert pair.p_value == pytest.approx(expected, abs=0.03)
    assert pair.adjusted == pair.p_value
    # The influences of the two belong together row by row; without that they would cancel less.
    assert (expected < 0.02) == matched
    assert pair.signs.tolist() == ([-1] if matched else [0])


def curve(values, influences):
    """One score `[bandwidths]` with influences `[bandwidths, rows]`, at no limit."""
    rows = influences.shape[-1]
    both = zip(values, influences, strict=True)
    errors = [Error(value, of[None], freedom=rows - 1) for value, of in both]
    none = np.zeros((3, len(values)), bool)
    return profiles.Curve([PerScore(*[of] * 3) for of in errors], saturation.Nearly(none, none))


@pytest.mark.parametrize("groups", [None, np.arange(48) // 6])
def test_a_band_of_one_bandwidth_is_the_interval_of_evaluate(groups):
    """Of few answers with one likely value, intervals are far from symmetric."""
    rng, options = np.random.default_rng(0), {"output_kernel": cv.Gaussian(1.0), "groups": groups}
    outputs = rng.choice(5, (16, 3, 1), p=[0.6, 0.1, 0.1, 0.1, 0.1]).astype(np.float32)
    found = cv.profile(outputs, np.arange(16), multiples=[1.0], **options)
    intervals = cv.evaluate(outputs, np.arange(16), orders=[2], **options).order(2).population
    for value, band, ends in zip(found.values, found.bands, intervals.intervals, strict=True):
        longer = np.log(band[0, 0] / value[0, 0]) / np.log(np.array(ends) / value[0, 0])
        np.testing.assert_allclose(longer, 1, rtol=0.1)  # Of 5,000 draws of Student's t.


def test_scores_of_the_papers_count_the_pairs_within_a_batch(x64):
    (outputs, _), prompts = models()[0].values(), models()[1]
    batches = np.arange(N) // 2
    data = {"multiples": [1.0], "unbiased": False, "batches": batches, **kernels()}
    found = cv.profile(outputs, prompts, **data).values
    whole = cv.decompose(outputs, prompts, order=2, **kernels())
    expected = [whole.vendi, whole.conditional, whole.information]
    assert_close([of.item() for of in found], expected)


def test_a_precise_difference_is_not_hidden_by_a_noisy_one():
    """At the first bandwidth the errors of two models nearly cancel; it differs by five of them."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=(2, 400))
    two = np.stack([one[0] + 0.1 * rng.normal(size=400), rng.normal(size=400)])
    curves = [curve([1.0, 1.0], one), curve([0.5, 1.0], two)]
    tested = profiles.Tested(dict(zip("ab", curves, strict=True)), True, 0.05, 0, 1e-6)
    (pair,) = tested.of_score("vendi")[1]
    assert pair.states == [1, 0]
    # Where one of the two has too few rows for errors, they are not tested.
    few = curves[0].errors[0].map(lambda error: dataclasses.replace(error, reason=reasons.FEW_ROWS))
    at_none = curves[0]._replace(errors=[few, curves[0].errors[1]])
    (pair,) = tested._replace(curves={"a": at_none, "b": curves[1]}).of_score("vendi")[1]
    assert pair.states == [reasons.FEW_ROWS, 0]


@pytest.mark.parametrize("matched", [True, False])
def test_one_bandwidth_is_tested_by_the_interval_of_the_difference(matched):
    """The p-value is that of `compare`, up to 5,000 draws; without shared prompts it is larger."""
    rng = np.random.default_rng(1)
    chances = {"a": [0.5, *[0.1] * 5], "b": None}
    answers = {m: rng.choice(6, (40, 5, 1), p=p) for m, p in chances.items()}
    prompts = np.repeat(np.arange(40), 5)
    own = {m: prompts + 100 * k * (not matched) for k, m in enumerate(answers)}
    models = {m: of.reshape(-1, 1).astype(np.float32) for m, of in answers.items()}
    options = {"output_kernel": cv.Gaussian(0.3), "one_population": True}
    found = cv.profile(models, own, multiples=[1.0], **options)
    compared = cv.compare(models, own, orders=[2], profile=False, **options)
    for pair in found.pairs:
        expected = compared.ranking(pair.score, 2).difference("a", "b").p_value
        assert pair.p_value == pytest.approx(expected, abs=4 * math.sqrt(expected / 5000) + 4e-4)
        assert pair.adjusted == pair.p_value
        assert pair.signs.tolist() == [0 if expected > 0.05 else -1]


def test_models_of_other_numbers_of_rows_are_tested_by_unbiased_scores_alone():
    rng = np.random.default_rng(0)
    models = {m: rng.normal(size=(n, 2)).astype(np.float32) for m, n in (("a", 30), ("b", 40))}
    options = {"output_kernel": cv.Gaussian(1.0), "multiples": MULTIPLES}
    (pair,) = cv.profile(models, **options).pairs
    assert pair.reasons == [None] * 3 and 0 < pair.p_value <= 1
    found = cv.profile(models, **options, unbiased=False)
    (pair,) = found.pairs
    assert not pair.signs.any() and None not in pair.reasons and np.isnan(pair.p_value)
    assert f"nothing is tested over the bandwidths: {found.reason}" in str(found)


def test_ends_at_which_nothing_differs_have_no_bands_and_no_signs():
    of_models, prompts = models((0, 2))
    found = cv.profile(of_models, prompts, multiples=[1e-3, 1, 1e4], **kernels())
    for score in ("vendi", "conditional", "information"):
        assert getattr(found.saturated, score)[0].tolist() == [True, False, True]
        assert np.isnan(getattr(found.bands, score)[0]).all(axis=1).tolist() == [True, False, True]
        pair = found.pair("0", "2", score)
        assert pair.signs[[0, 2]].tolist() == [0, 0]
        assert pair.states[1:] == [pair.signs[1], "nearly every output of both counts as the same"]
        assert pair.states[0].endswith(" of both counts as different")
    assert "*: saturated: nearly all rows" in str(found)
    ends = cv.profile(of_models, prompts, multiples=[1e-3, 1e4], **kernels())
    assert np.isnan([pair[-2:] for pair in ends.pairs]).all()  # Nothing is tested.


def test_a_model_at_its_limit_is_more_diverse_but_never_less():
    """Of three kinds of 8 answers, 3 * 2 + 3 * 2 + 2 of 8 * 7 pairs are equal; of eight none."""
    kinds = {"one": 1, "three": 3, "eight": 8, "other eight": 8}
    prompts = np.repeat(np.eye(50, dtype=np.float32), 8, axis=0)
    eight = np.eye(8, dtype=np.float32)
    answers = {name: np.tile(eight[np.arange(8) % k], (50, 1)) for name, k in kinds.items()}
    options = kernels() | {"prompt_kernel": cv.Indicator(), "over": "outputs", "multiples": [0.1]}
    found = cv.profile(answers, prompts, **options)
    true = [1, 4, np.inf, np.inf]
    np.testing.assert_allclose(found.values.conditional[:, 0], true, rtol=1e-5)
    assert found.saturated.conditional[:, 0].tolist() == [True, False, True, True]
    for high, low in (("eight", "three"), ("eight", "one"), ("three", "one")):
        assert found.pair(high, low).states == [1] and found.pair(low, high).states == [-1]
    assert found.pair("eight", "other eight").states == [
        "nearly every output of both counts as different"
    ]
    assert math.isnan(found.pair("eight", "other eight").p_value)
    few = found.pair("eight", "three", "information")
    assert few.states == ["nearly every output of eight counts as different"]
    with pytest.raises(KeyError, match="'one' and 'two' were not compared by 'vendi'"):
        found.pair("one", "two", "vendi")


ALIKE = ("A", 4), ("B", 3)  # How many answers to the first prompt are equal; all others differ.


def test_a_score_without_an_error_takes_no_other_one_with_it():
    """Without prompt 0 no two outputs are alike, so that information is 0 over 0.

    All 6 pairs of its answers are equal, or 3 of them: a similarity of 1 / 12, or of 1 / 24.
    """
    answers, options = np.arange(48), {"output_kernel": cv.Gaussian(0.5), "multiples": [0.5, 1]}
    models = {m: np.float32(10 * np.where(answers < k, 0, answers)[:, None]) for m, k in ALIKE}
    found = cv.profile(models, answers // 4, **options)
    np.testing.assert_allclose(found.values.conditional, [[12, 12], [24, 24]], rtol=1e-5)
    undefined = [reasons.ONE_HAS_PAIRS] * 2
    assert found.pair("A", "B", "information").states == undefined
    assert np.isnan(found.bands.information).all()
    for score in ("vendi", "conditional"):
        assert found.pair("A", "B", score).states == [0, 0]  # One prompt differs.
        assert (getattr(found.bands, score)[..., 0] > 1).all()
    assert not np.any(found.saturated) and "*" not in str(found)


@pytest.mark.parametrize("large", [1e152, math.inf, math.nan])
def test_a_bandwidth_at_which_errors_overflow_is_not_tested(large):
    rng = np.random.default_rng(0)
    one, two = 0.1 * rng.normal(size=(2, 2, 400))
    curves = [curve([1.0, 1.0], one), curve([1.5, 1.5], two)]
    tested = profiles.Tested(dict(zip("ab", curves, strict=True)), True, 0.05, 0, 1e-6)
    (band, expected), (pair,) = tested.of_score("vendi")[0], tested.of_score("vendi")[1]
    assert pair.states == [-1, -1]
    overflowing = {"a": curve([1.0, 1.0], one * [[large], [1]]), "b": curves[1]}
    (band, rest), (pair,) = tested._replace(curves=overflowing).of_score("vendi")
    assert pair.states == [reasons.OVERFLOW, -1]
    assert np.isnan(band[0]).all()
    np.testing.assert_allclose(rest, expected, rtol=0.2)
    np.testing.assert_allclose(band[1] - 1, expected[1] - 1.5, rtol=0.2)  # For one bandwidth fewer.


def test_similarities_that_are_not_finite_are_unknown():
    outputs, prompts, joint = [0, 0, 0.5, 1e-300], [1, 1, 0, 0.5], [0, 1e-30, 0, 0.5]
    found = order_two.similarities(np.array([outputs, prompts, joint]))
    np.testing.assert_allclose(found[1:], [[0, 1e-30, math.nan, 1], [math.nan] * 4])
    low, high = intervals.prompt_mean(1e-110, 1e-110, np.full(4, 1e-110), np.full(4, 0.25))(0.05)
    assert 0 <= low < high < 1


def test_too_few_groups_give_no_bands_and_say_so():
    of_models, prompts = models()
    found = cv.profile(of_models, prompts, **kernels(), groups=np.arange(N) % 6)
    assert found.reason == "there are fewer than 7 given labels"
    assert np.isnan(found.bands.vendi).all()
    assert not any(pair.signs.any() for pair in found.pairs)
    assert math.isnan(found.pairs[0].p_value)
    assert "influences of 6 given labels; these are few, so bands may hold in 90% only" in str(
        found
    )
    assert "nothing is tested over the bandwidths: there are fewer than 7" in str(found)
    for groups, few in ((99, True), (100, False)):
        assert ("; these are few" in str(dataclasses.replace(found, groups=groups))) == few


WIDE = [0.5, 1, 2, 4]
SENTENCES = {
    (0, 0, -1, -1): "B is more diverse than A at bandwidths from 2 to 4; no significant difference "
    "at bandwidths from 0.5 to 1",
    (1, 0, 1, 1): "A is more diverse than B at 0.5 and at bandwidths from 2 to 4; no significant "
    "difference at 1",
    ("x", 0, 0, "y"): "A and B: no significant difference at bandwidths from 1 to 2; not tested at "
    "0.5: x; not tested at 4: y",
    (1, 0, -1, -1): "the order of A and B depends on the bandwidth: A is more diverse than B at "
    "0.5, and B is more diverse than A at bandwidths from 2 to 4; no significant difference at 1",
}


def of_states(first, second, states):
    """A pair of models from its states: signs, or why it is not tested."""
    signs = np.array([0 if isinstance(state, str) else state for state in states])
    untested = [state if isinstance(state, str) else None for state in states]
    return PairProfile(first, second, "conditional", signs, untested, 0.01, 0.01)


@pytest.mark.parametrize("states", SENTENCES)
def test_where_a_model_leads_in_words(states):
    pair = of_states("A", "B", states)
    assert pair.states == list(states)
    assert pair.in_words(WIDE) == SENTENCES[states]
    assert pair.depends == (1 in states and -1 in states)


@pytest.fixture(scope="module")
def five():
    of_models, prompts = models((0, 0.1, 2, 3))
    of_models["near"] = of_models["0"] + np.float32(1e-4)
    return cv.profile(of_models, prompts, multiples=MULTIPLES, **kernels())


def test_of_many_models_those_whose_order_turns_are_named(five):
    pairs = [pair for pair in five.pairs if pair.score == "conditional"]
    own = [of_states(*pair[:2], (1, 0, -k)) for k, pair in zip([1] + [0] * 9, pairs, strict=True)]
    assert dataclasses.replace(five, pairs=tuple(own)).leads() == [
        "the order of 1 of 10 pairs of models depends on the bandwidth (0 - 0.1)"
    ]


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([(1, 1), (1, -1), (-1, 1)], "The order depends on the bandwidth: A - C and B - C"),
        ([(0, 1), (1, "x"), (0, 0)], "No bandwidth reverses the order of two models"),
        ([(0, -1), (-1, "x"), (0, 0)], "No bandwidth reverses the order of two models"),
        ([(0, "x"), ("x", "x"), (0, 0)], "No significant difference at any tested bandwidth"),
        ([("x", "x")] * 3, "No difference was tested at any bandwidth"),
    ],
)
def test_the_verdict_says_no_more_and_no_less_than_the_tests(five, states, words):
    names = itertools.combinations("ABC", 2)
    pairs = [of_states(*two, of) for two, of in zip(names, states, strict=True)]
    turning = of_states("A", "B", [1, -1])._replace(score="vendi")  # It tells of another score.
    found = dataclasses.replace(five, models=("A", "B", "C"), pairs=(*pairs, turning))
    assert found.verdict() == words


@pytest.mark.slow
def test_compare_says_over_which_bandwidths_the_order_holds(monkeypatch):
    of_models, prompts = models((0, 2))
    found = cv.compare(of_models, prompts, **kernels(), orders=[1, 2], errors=True)
    alone = cv.profile(of_models, prompts, **kernels())
    assert found.profile.pair("0", "2").signs.tolist() == alone.pair("0", "2").signs.tolist()
    (lead,) = alone.leads()
    heading = "Conditional-RKE over the bandwidths of outputs and prompts, outputs from 0.1 to 6.4"
    for text in (found.details(), cv.report.latex(found, long=True).paragraph):
        assert heading in text and lead in text
    assert found.as_dict()["profile"]["pairs"][0]["signs"] == alone.pairs[0].signs.tolist()
    cosine = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Gaussian(0.6)}
    assert cv.compare(of_models, prompts, **cosine, orders=[2]).profile.over == "prompts"
    alone = cv.compare(of_models, output_kernel=cv.Gaussian(1), orders=[2], level=0.2).profile
    assert (alone.over, alone.level) == ("both", 0.2)
    for options in ({"orders": [1]}, {"groups": 8}, {"profile": False}, {"errors": False}):
        assert cv.compare(of_models, prompts, **kernels(), **options).profile is None
    monkeypatch.setattr("condvendi_jax.inference.profiles._CHEAP", 2 * N - 1)
    assert cv.compare(of_models, prompts, **kernels(), orders=[2]).profile is None
    assert cv.compare(of_models, prompts, **kernels(), orders=[2], profile=True).profile is not None


def test_a_figure_names_lines_by_their_scores_and_shades_what_is_saturated():
    of_models, prompts = models((0, 2))
    found = cv.profile({"$a": of_models["0"], "b": of_models["2"]}, prompts, **kernels())
    (panel,) = found.plot("vendi").axes
    both = found.saturated.vendi.all(axis=0)
    assert 0 < both.sum() < both.size == both.sum() + np.isfinite(panel.lines[0].get_ydata()).sum()
    assert len(panel.patches) == both.sum()
    assert panel.lines[-1].get_xdata()[0] == pytest.approx(0.8)  # The chosen bandwidth.
    legend = found.plot("vendi").axes[0].get_legend()
    order = np.argsort(-found.values.vendi[:, found.multiples.tolist().index(1)])
    assert [text.get_text() for text in legend.texts] == [("\\$a", "b")[k] for k in order]
    assert found.plot().get_suptitle().replace("\n", " ") == found.verdict()
    with pytest.raises(ValueError, match="score: expected one of"):
        found.plot("rke")
    alone = cv.profile(of_models["0"], output_kernel=cv.Gaussian(0.8), multiples=MULTIPLES)
    assert not alone.plot().axes[0].texts and alone.plot().get_suptitle().startswith("RKE")
    named = {name: getattr(found, name) for name in ("values", "bands", "saturated")}
    seven = {k: v.map(lambda x: np.repeat(x[:1], 7, axis=0)) for k, v in named.items()}
    seven |= {"models": tuple("abcdefg"), "pairs": (), "n": found.n[:1] * 7}
    assert len(dataclasses.replace(found, **seven).plot().axes[0].get_legend().texts) == 7


def test_a_figure_counts_the_given_answers_where_prompts_repeat():
    rng, prompts = np.random.default_rng(0), np.repeat(np.arange(12), 8)
    pair = {name: rng.normal(size=(96, 3)).astype(np.float32) for name in "ab"}
    found = cv.compare(pair, prompts, output_kernel=cv.Gaussian(1.0), orders=[2])
    (panel,) = found.profile.plot().axes
    assert (
        panel.get_ylim() == (1, 8) and panel.get_ylabel() == "effectively different outputs, of 8"
    )
    for line, evaluation in zip(panel.lines, found.evaluations.values(), strict=False):
        drawn = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert drawn[1.0] == pytest.approx(evaluation.order(2).given.value, rel=1e-5)


ASKED = functools.partial(cv.compare, profile=True)
COSINE, COSINES = {"prompt_kernel": cv.Cosine()}, dict.fromkeys(kernels(), cv.Cosine())


@pytest.mark.parametrize(
    ("call", "options", "message"),
    [
        (cv.profile, {"over": "x"}, "over: expected one of outputs, prompts, both, received 'x'"),
        (cv.profile, COSINE | {"over": "both"}, "over: expected a Gaussian kernel of the prompts"),
        (cv.profile, {"multiples": [2.0, 1.0]}, "multiples: expected ascending numbers above 0"),
        (cv.profile, {"multiples": [0.0, 1.0]}, "multiples: expected ascending numbers"),
        (cv.profile, {"multiples": [1.0, math.nan]}, "multiples: expected ascending"),
        (cv.profile, {"groups": 5}, "groups: expected the label of each row or None, received 5"),
        (cv.profile, {"level": 1}, "level: expected a number between 0 and 1, received 1"),
        (ASKED, {"orders": [1]}, "profile: expected order 2 without truncation"),
        (ASKED, {"errors": False, "orders": [2]}, "profile: expected errors, from the influences"),
        (ASKED, COSINES | {"orders": [2]}, "profile: expected a Gaussian kernel, whose bandwidth"),
    ],
)
def test_what_has_no_profile_is_refused(call, options, message):
    of_models, prompts = models()
    with pytest.raises(ValueError, match=message):
        call(of_models, prompts, **(kernels() | options))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Laplacian(cv.Kernel):
    """Its bandwidth is a leaf, so that one program serves all multiples."""

    bandwidth: float

    def __call__(self, x, y):
        return jnp.exp(-jnp.sum(jnp.abs(x - y)) / self.bandwidth)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class StaticLaplacian(Laplacian):
    """Each bandwidth is a program, and may be checked."""

    def __post_init__(self):
        if not self.bandwidth > 0:
            raise ValueError("bandwidth: expected a number above 0.")


@jax.tree_util.register_static
class PlainLaplacian(cv.Kernel):
    def __init__(self, bandwidth):
        self.bandwidth = bandwidth

    __call__ = Laplacian.__call__


@jax.tree_util.register_static
class RemadeLaplacian(PlainLaplacian):
    def with_bandwidth(self, bandwidth):
        return RemadeLaplacian(bandwidth)


@pytest.mark.parametrize("kind", [Laplacian, StaticLaplacian, RemadeLaplacian])
def test_the_bandwidth_of_a_kernel_of_your_own_moves(kind, x64):
    (outputs, _), prompts = models()[0].values(), models()[1]
    chosen = kernels() | {"output_kernel": kind(0.8)}
    found = cv.profile(outputs, prompts, multiples=[0.5, 2.0], **chosen)
    assert_close(found.bandwidths, [0.4, 1.6])
    distances = np.abs(outputs[:, None] - outputs[None]).sum(axis=2)
    for k, times in enumerate((0.5, 2.0)):
        grams = np.exp(-distances / (0.8 * times)), gaussian_gram(prompts, 0.6 * times)
        assert_close([of[0, k] for of in found.values], scores_of(*grams))


def test_compare_has_the_profile_of_a_kernel_of_your_own_or_says_why_not():
    of_models, prompts = models()
    options = {"prompt_kernel": cv.Cosine(), "orders": [2]}
    result = cv.compare(of_models, prompts, output_kernel=Laplacian(0.8), **options)
    assert result.profile.over == "outputs"
    assert_close(result.profile.bandwidths[[0, 6, 12]], [0.1, 0.8, 6.4])
    options["output_kernel"] = PlainLaplacian(0.8)
    with pytest.warns(UserWarning, match="not computed: profile"):
        result = cv.compare(of_models, prompts, **options)
    expected = r"expected a dataclass, or .*, received PlainLaplacian\(bandwidth=0.8\)"
    assert re.search(rf"not computed: profile \(kernel: {expected}", str(result))
    with pytest.raises(ValueError, match=expected):
        cv.compare(of_models, prompts, profile=True, **options)


def test_all_bandwidths_use_the_form_that_suits_the_narrowest():
    """A matrix product moves k(x, y) by a tenth at the narrow one, and by 1e-4 at the wide one."""
    rng = np.random.default_rng(0)
    outputs = np.repeat([[-500.0], [500.0]], 24, axis=0) + rng.normal(size=(48, 1))
    outputs = outputs.astype(np.float32)
    found = cv.profile(outputs, output_kernel=cv.Gaussian(32.0), multiples=[1 / 32, 1])
    grams = (gaussian_gram(outputs, width) ** 2 for width in (1, 32))
    expected = [N * (N - 1) / (gram.sum() - N) for gram in grams]
    np.testing.assert_allclose(found.values.vendi[0], expected, rtol=1e-4)
