"""Scores over a ladder of bandwidths: values, errors, bands, signs, and the words for them."""

import math

import jax
import numpy as np
import pytest
from oracles import assert_close, draw_pairs, gaussian_gram
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.inference import PairProfile
from condvendi_jax.inference import _profile as profiles
from condvendi_jax.report import _render as render

N = 60
WIDTHS = {"output_kernel": 0.8, "prompt_kernel": 0.6}
MULTIPLES = [0.5, 1.0, 2.0]


def kernels():
    """In the precision of the test."""
    return {name: cv.Gaussian(width) for name, width in WIDTHS.items()}


def models(seeds=(0, 1), n=N):
    """Models of different outputs over the same prompts, and these."""
    dtype = np.float64 if jax.config.jax_enable_x64 else np.float32
    outputs, prompts = draw_pairs(n, dtype=dtype)
    noise = np.random.default_rng(5).normal(size=(len(seeds), *outputs.shape)).astype(dtype)
    return {
        f"{seed}": outputs + dtype(0.3 * seed) * noise[k] for k, seed in enumerate(seeds)
    }, prompts


def log_scores(outputs, prompts, weights, times_x, times_t, order=2):
    """The logarithms of the three scores, by eigenvalues in float64."""
    roots = np.sqrt(weights / weights.sum())
    grams = gaussian_gram(outputs, 0.8 * times_x), gaussian_gram(prompts, 0.6 * times_t)
    scaled = [len(roots) * np.outer(roots, roots) * gram for gram in (grams[0], grams[1])]
    joint = len(roots) * np.outer(roots, roots) * grams[0] * grams[1]

    def entropy(gram):
        values = np.clip(np.linalg.eigvalsh(gram / len(roots)), 1e-300, None)
        if order == 2:
            return -np.log(np.sum(values**2))
        return -np.sum(values * np.log(values))

    x, t, both = map(entropy, (*scaled, joint))
    return np.array([x, both - t, x + t - both])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("over", ["outputs", "prompts", "both"])
def test_values_and_bands_are_those_of_each_bandwidth(over, order, x64):
    (outputs, _), prompts = models()[0].values(), models()[1]
    options = {"over": over, "order": order, "level": 0.1, **kernels()}
    found = cv.profile(outputs, prompts, multiples=[0.5, 2.0], **options)
    for k, times in enumerate((0.5, 2.0)):
        of_x, of_t = (times if over in (side, "both") else 1.0 for side in ("outputs", "prompts"))
        expected = np.exp(log_scores(outputs, prompts, np.ones(N), of_x, of_t, order))
        assert_close([of[0, k] for of in found.values], expected)
        alone = cv.profile(outputs, prompts, multiples=[times], **options)
        for score, band, single in zip(found.values, found.bands, alone.bands, strict=True):
            own, narrow = np.log(band[0, k] / score[0, k]), np.log(single[0, 0] / score[0, k])
            if not np.isnan(own).any():  # Bands of two are wider, by less than Bonferroni's.
                np.testing.assert_allclose(own[0], -own[1])
                ratio = stats.t.ppf(0.975, N - 1) / stats.t.ppf(0.95, N - 1)
                assert 0.97 < own[1] / narrow[1] < 1.03 * ratio
    axis = "prompts" if over == "prompts" else "outputs"
    assert found.axis == axis
    np.testing.assert_allclose(
        found.bandwidths, {"outputs": 0.4, "prompts": 0.3}[axis] * np.r_[1, 4]
    )


@pytest.mark.parametrize("dependent", [False, True])
def test_the_error_is_that_of_influences_of_groups(dependent, x64):
    """At one bandwidth the band is Student's interval of the derivatives in the groups' weights."""
    (outputs, _), prompts = models()[0].values(), models()[1]
    labels = np.arange(N) // 3 if dependent else np.arange(N)
    found = cv.profile(outputs, prompts, multiples=[1.0], **kernels(), groups=labels)
    step, slopes = 1e-5, []
    for group in np.unique(labels):
        moved = step * (labels == group)
        ends = [log_scores(outputs, prompts, np.ones(N) + s * moved, 1, 1) for s in (1, -1)]
        slopes.append(np.subtract(*ends) / (2 * step))
    groups = len(slopes)
    errors = np.sqrt(groups / (groups - 1) * np.sum(np.square(slopes), axis=0))
    widths = stats.t.ppf(0.975, groups - 1) * errors
    for score, band, width in zip(found.values, found.bands, widths, strict=True):
        expected = np.log(band[0, 0] / score[0, 0]) * [-1, 1]
        np.testing.assert_allclose(expected, width, rtol=0.05)  # 5,000 draws: 1.4% at 1 sigma.


def test_bands_of_order_1_have_the_errors_of_evaluate(x64):
    (outputs, _), prompts = models()[0].values(), models()[1]
    found = cv.profile(outputs, prompts, multiples=[1.0], order=1, **kernels())
    errors = cv.evaluate(outputs, prompts, orders=[1], **kernels()).order(1).standard_errors
    for score, band, error in zip(found.values, found.bands, errors, strict=True):
        width = stats.t.ppf(0.975, N - 1) * float(error) / score[0, 0]
        np.testing.assert_allclose(np.log(band[0, 0] / score[0, 0]), [-width, width], rtol=0.05)


def test_weights_are_copies_of_rows(x64):
    (outputs, other), prompts = models()[0].values(), models()[1]
    copies = np.random.default_rng(0).integers(0, 4, N)
    rows = np.repeat(np.arange(N), copies)
    options = {"multiples": MULTIPLES, **kernels()}
    merged = cv.profile({"a": outputs, "b": other}, prompts, weights=copies, **options)
    alone = cv.profile({"a": outputs[rows], "b": other[rows]}, prompts[rows], **options)
    assert merged.n == (copies.sum(),) * 2
    assert merged.groups == np.count_nonzero(copies)  # Copies of a row have its prompt.
    for one, two in zip(merged.values, alone.values, strict=True):
        assert_close(one, two)


@pytest.mark.parametrize("matched", [True, False])
def test_p_values_are_those_of_one_difference(matched):
    """At one bandwidth the test is Student's; models that share no prompt are independent."""
    of_models, prompts = models((0, 1))
    own = {
        name: prompts + np.float32(0 if matched else 0.1 * k) for k, name in enumerate(of_models)
    }
    found = cv.profile(of_models, own, multiples=[1.0], **kernels())
    errors, logs = [], []
    for outputs in of_models.values():
        gram = gaussian_gram(outputs.astype(np.float64), 0.8) ** 2
        logs.append(-np.log(gram.mean()))
        errors.append(-2 * (gram.mean(axis=0) / gram.mean() - 1))
    spread = errors[0] - errors[1]
    variance = np.mean(spread**2) if matched else np.mean(np.square(errors), axis=1).sum()
    statistic = (logs[0] - logs[1]) / math.sqrt(variance / (N - 1))
    expected = 2 * stats.t.sf(abs(statistic), N - 1)
    pair = found.pair(*of_models, "vendi")
    pair = found.pair(*of_models, "vendi")
    assert pair.p_value == pytest.approx(expected, abs=0.03)
    assert pair.adjusted == pair.p_value
    # The influences of the two belong together row by row; without that they would cancel less.
    assert (expected < 0.02) == matched
    assert pair.signs.tolist() == ([-1] if matched else [0])


@pytest.mark.parametrize("matched", [True, False])
def test_every_bandwidth_has_a_difference_in_its_own_errors(matched):
    """Of two models, at each bandwidth: the drawn differences have those errors, too."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 1, 3, 50)) * [[1.0], [3.0], [9.0]]
    two += 0.9 * one
    noise = np.array([[0.0, 3.0, 20.0]])
    none = np.zeros((1, 3), bool)
    curves = [profiles._Curve(noise, of, noise, none, none[0], 49, None) for of in (one, two)]
    tested = profiles._Tested(dict(zip("ab", curves, strict=True)), matched, 0.05, 0, 1e-6)
    squares = (one - two) ** 2 if matched else one**2 + two**2
    expected = np.sqrt(squares.mean(axis=-1)[0] + 2 * noise[0] ** 2)
    np.testing.assert_allclose(tested.errors(0, *curves), expected)
    draws = tested.draws(0)
    # Student's t of 49 degrees of freedom has a variance of 49 / 47; of 5,000, within 5 errors.
    spread = (draws[:, 0] - draws[:, 1]).std(axis=0)
    np.testing.assert_allclose(spread, expected * np.sqrt(49 / 47), rtol=0.06)


def test_a_precise_difference_is_not_hidden_by_a_noisy_one():
    """At the first bandwidth the errors of two models nearly cancel; it differs by five of them."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=(1, 2, 400))
    two = np.stack([one[:, 0] + 0.1 * rng.normal(size=(1, 400)), rng.normal(size=(1, 400))], axis=1)
    none = np.zeros((1, 2), bool)
    logs = [np.array([[0.5, 0.0]]), np.zeros((1, 2))]
    curves = [
        profiles._Curve(log, of, np.zeros((1, 2)), none, none[0], 399, None)
        for log, of in zip(logs, (one, two), strict=True)
    ]
    tested = profiles._Tested(dict(zip("ab", curves, strict=True)), True, 0.05, 0, 1e-6)
    signs, _, _ = tested.of_score(0)[1]["a", "b"]
    assert signs.tolist() == [1, 0]


def test_stepping_down_finds_what_the_first_step_leaves():
    drawn = np.tile(np.linspace(0, 1, 101)[:, None], (1, 2)) * [3, 1]
    # The largest of both is below 2.85 in 95% of draws, the second alone below 0.95.
    assert profiles._stepped_down(np.array([2.9, 1.0]), drawn, 0.05).tolist() == [True, True]
    assert profiles._stepped_down(np.array([2.8, 1.0]), drawn, 0.05).tolist() == [False, False]


def test_adjusted_p_values_are_against_the_largest_of_the_rest():
    drawn = np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    alone, adjusted = profiles._p_values(np.array([2.5, 1.5]), drawn)
    assert alone.tolist() == [2 / 4, 2 / 4]
    assert adjusted.tolist() == [2 / 4, 2 / 4]
    assert profiles._p_values(np.array([1.5, 1.4]), drawn)[1].tolist() == [3 / 4, 3 / 4]


def test_ends_at_which_nothing_differs_have_no_bands_and_no_signs():
    of_models, prompts = models((0, 2))
    found = cv.profile(of_models, prompts, multiples=[1e-3, 1, 1e4], **kernels())
    for score in ("vendi", "conditional", "information"):
        assert getattr(found.saturated, score)[0].tolist() == [True, False, True]
        assert np.isnan(getattr(found.bands, score)[0]).all(axis=1).tolist() == [True, False, True]
        assert found.pair("0", "2", score).signs[[0, 2]].tolist() == [0, 0]
    assert "*: saturated" in str(found)


def test_a_collapsed_model_is_told_from_a_diverse_one():
    (outputs,), prompts = models((0,))[0].values(), models()[1]
    of_models = {"one": np.zeros_like(outputs), "many": outputs}
    found = cv.profile(of_models, prompts, multiples=[1.0], **kernels())
    assert found.saturated.vendi[:, 0].tolist() == [True, False]
    assert found.pair("many", "one", "vendi").signs.tolist() == [1]
    assert found.pair("one", "many", "vendi").signs.tolist() == [-1]
    with pytest.raises(KeyError, match="'one' and 'two' were not compared by 'vendi'"):
        found.pair("one", "two", "vendi")


def test_scores_without_noise_differ_by_more_than_rounding_or_not_at_all():
    """No influence differs from zero: all modes have the same weight."""
    prompts = np.repeat(np.eye(8, dtype=np.float32), 16, axis=0)
    four = np.tile(np.eye(4, dtype=np.float32), (32, 1))
    two = np.tile(np.eye(2, 4, dtype=np.float32), (64, 1))
    of_models = {"four": 5 * four, "other four": 5 * np.roll(four, 1, axis=1), "two": 5 * two}
    found = cv.profile(of_models, prompts, multiples=[0.5, 1.0], **kernels())
    np.testing.assert_allclose(found.values.information, 1, rtol=1e-5)
    for pair in found.pairs:  # Information is 1 of all, and two of the models are alike.
        differ = pair.score != "information" and pair.second == "two"
        assert pair.signs.tolist() == [int(differ)] * 2
        assert (pair.p_value < 0.001) == differ
        assert differ or pair.p_value == 1
    for values, bands in zip(found.values, found.bands, strict=True):
        np.testing.assert_allclose(bands, np.stack([values, values], axis=-1), rtol=1e-4)


def test_a_model_whose_score_counts_rows_is_not_tested():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    of_models = {"far": 8 * outputs, "near": outputs}
    found = cv.profile(of_models, prompts, multiples=[1.0], **kernels())
    assert found.saturated.vendi[:, 0].tolist() == [True, False]
    assert found.pair("far", "near", "vendi").signs.tolist() == [0]


def test_too_few_groups_give_no_bands_and_say_so():
    of_models, prompts = models()
    found = cv.profile(of_models, prompts, **kernels(), groups=np.arange(N) % 6)
    assert found.untested == "there are fewer than 7 given labels"
    assert np.isnan(found.bands.vendi).all()
    assert not any(pair.signs.any() for pair in found.pairs)
    assert math.isnan(found.pairs[0].p_value)
    assert "from the influences of 6 given labels, which are few: too narrow" in str(found)
    assert "nothing is tested over the bandwidths: there are fewer than 7" in str(found)


WIDE = [0.5, 1, 2, 4]
SENTENCES = {
    (1, 1, 1, 1): "A is more diverse than B at every bandwidth from 0.5 to 4",
    (0, 0, -1, -1): "B is more diverse than A at every bandwidth from 2 to 4; below that no "
    "difference can be told",
    (1, 1, 0, 0): "A is more diverse than B at every bandwidth from 0.5 to 1; above that no "
    "difference can be told",
    (
        1,
        0,
        1,
        1,
    ): "A is more diverse than B at 0.5 and at every bandwidth from 2 to 4; elsewhere no "
    "difference can be told",
    (0, 1, 1, 0): "A is more diverse than B at every bandwidth from 1 to 2; elsewhere no "
    "difference can be told",
    (0, 0, 0, 0): "A and B: no difference can be told at any bandwidth",
    (1, 0, -1, -1): "the order of A and B depends on the bandwidth: A is more diverse than B at "
    "0.5, and B is more diverse than A at every bandwidth from 2 to 4",
}


@pytest.mark.parametrize("signs", SENTENCES)
def test_where_a_model_leads_in_words(signs):
    pair = PairProfile("A", "B", "vendi", np.array(signs), 0.01, 0.01)
    assert render._lead(pair, WIDE) == SENTENCES[signs]
    assert pair.depends == (1 in signs and -1 in signs)
    of_prompts = render._lead(pair._replace(score="information"), WIDE)
    assert of_prompts == SENTENCES[signs].replace("is more diverse", "owes more to the prompts")


def test_many_models_are_counted_and_those_whose_order_turns_are_named():
    of_models, prompts = models((0, 0.1, 2, 3))
    of_models["near"] = of_models["0"] + np.float32(1e-4)
    found = cv.profile(of_models, prompts, multiples=MULTIPLES, **kernels())
    turned = found.pairs[0]._replace(score="conditional", signs=np.array([1, 0, -1]))
    object.__setattr__(found, "pairs", (turned, *(p for p in found.pairs[1:])))
    pairs = [pair for pair in found.pairs if pair.score == "conditional"]
    untold = sum(not pair.signs.any() for pair in pairs)
    first, second = render.leads(found, "conditional")
    assert first == (
        f"of {len(pairs)} pairs of models, {len(pairs) - untold - 1} have one order, wherever they "
        f"can be told apart; {untold} can be told apart at no bandwidth; the order of 1 depends on "
        "the bandwidth"
    )
    assert second == f"depends on the bandwidth: {turned.first} and {turned.second}"


def test_compare_says_over_which_bandwidths_the_order_holds(monkeypatch):
    of_models, prompts = models((0, 2))
    found = cv.compare(of_models, prompts, **kernels(), orders=[1, 2], errors=True)
    alone = cv.profile(of_models, prompts, **kernels())
    assert found.profile.pair("0", "2").signs.tolist() == alone.pair("0", "2").signs.tolist()
    (lead,) = render.leads(alone, "conditional")
    for text in (str(found), found.markdown()):
        assert (
            "Conditional-RKE over the bandwidths of outputs and prompts, outputs from 0.1 to 6.4"
            in text
        )
        assert lead in text
    assert found.as_dict()["profile"]["pairs"][0]["signs"] == alone.pairs[0].signs.tolist()
    cosine = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Gaussian(0.6)}
    assert cv.compare(of_models, prompts, **cosine, orders=[2]).profile.over == "prompts"
    assert (
        cv.compare(of_models, **{"output_kernel": cv.Gaussian(1)}, orders=[2]).profile.over
        == "both"
    )
    for options in ({"orders": [1]}, {"groups": 8}, {"profile": False}, {"errors": False}):
        assert cv.compare(of_models, prompts, **kernels(), **options).profile is None
    monkeypatch.setattr(profiles, "_CHEAP", 2 * N - 1)
    assert cv.compare(of_models, prompts, **kernels(), orders=[2]).profile is None
    assert cv.compare(of_models, prompts, **kernels(), orders=[2], profile=True).profile is not None


def test_a_figure_has_a_panel_a_score_and_shades_what_is_saturated():
    of_models, prompts = models((0, 2))
    found = cv.profile({"$a": of_models["0"], "_b": of_models["2"]}, prompts, **kernels())
    figure = found.figure()
    figure.draw_without_rendering()
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == ["RKE", "Conditional-RKE", "Information-RKE"]
    both = found.saturated.vendi.all(axis=0)
    assert 0 < both.sum() < both.size
    spans = [patch for patch in figure.axes[0].patches]
    assert len(spans) == both.sum()
    assert figure.axes[0].lines[-1].get_xdata()[0] == pytest.approx(0.8)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [r"\$a", "b"]
    alone = cv.profile(of_models["0"], output_kernel=cv.Gaussian(0.8), multiples=MULTIPLES)
    assert len(alone.figure().axes) == 1
    assert not alone.figure().legends


REFUSED = {
    "over: expected one of outputs, prompts, both, received 'x'": {"over": "x"},
    "over: expected a Gaussian kernel of the prompts": {"prompt_kernel": cv.Cosine()},
    "multiples: expected ascending numbers above 0": {"multiples": [2.0, 1.0]},
    "multiples: expected ascending numbers above 0, received 1": {"multiples": 1},
    "multiples: expected ascending numbers": {"multiples": [0.0, 1.0]},
    "multiples: expected ascending": {"multiples": [1.0, math.nan]},
    "groups: expected the label of each row or None, received 5": {"groups": 5},
    "level: expected a number between 0 and 1, received 1": {"level": 1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_arguments_get_a_clear_error(message):
    of_models, prompts = models()
    with pytest.raises(ValueError, match=message):
        cv.profile(of_models, prompts, **(kernels() | REFUSED[message]))


def test_a_profile_that_cannot_be_is_refused_by_compare():
    of_models, prompts = models()
    refused = {
        "profile: expected order 2 without truncation": {"orders": [1]},
        "profile: expected errors, from the influences of rows": {"errors": False, "orders": [2]},
        "profile: expected a Gaussian kernel, whose bandwidth moves": {
            "output_kernel": cv.Cosine(),
            "prompt_kernel": cv.Cosine(),
            "orders": [2],
        },
    }
    for message, options in refused.items():
        with pytest.raises(ValueError, match=message):
            cv.compare(of_models, prompts, **(kernels() | options), profile=True)
