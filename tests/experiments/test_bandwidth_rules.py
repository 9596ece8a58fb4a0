"""Candidates for a rule, the sets that judge them, and how they are judged."""

import jax
import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from small import flags

from experiments.calibration import bandwidth_rules
from experiments.calibration.bandwidth_rules import OPEN, TOTAL, BandwidthRules, Half, Question
from experiments.lab import Context, pages


def small(folder, seed):
    return flags(sets="captioning,plane,human", rows=80, seed=seed)


RNG = np.random.default_rng(0)
run = studies.finished(BandwidthRules)
test_bad_flags_are_refused = studies.refuses(
    BandwidthRules, ("--sets=human,dogs", "--sets: expected at least three, received 2")
)


def rke(points, width):
    return 1 / np.mean(gaussian_gram(points, width) ** 2)


def test_counts_are_those_of_the_definition():
    x, t = RNG.normal(size=(12, 3)), RNG.normal(size=(12, 2))
    squares = [bandwidth_rules.squared_distances(points) for points in (x, t)]
    slot, levels = np.arange(12) % 3, [[0], [0, 2]]
    widths = np.array([0.5, 2.0]), np.array([0.7, 1.5, np.nan])
    found = bandwidth_rules.counts(squares, slot, levels, *widths)
    alone = bandwidth_rules.counts((squares[0], np.zeros((12, 12))), slot, levels, *widths)
    for i, j, level in np.ndindex(2, 2, 2):
        rows = np.isin(slot, levels[level])
        k_x, k_t = gaussian_gram(x[rows], widths[0][i]), gaussian_gram(t[rows], widths[1][j])
        conditional = scores(k_x, k_t, order=2)["conditional"]
        assert found[i, j, level] == pytest.approx(conditional, rel=1e-5)
        assert alone[i, j, level] == pytest.approx(1 / np.mean(k_x**2), rel=1e-5)
    assert np.isnan(found[:, 2]).all()


def test_rules_by_distances_are_what_they_say():
    """Eight clusters of five rows, of which two are equal, far apart."""
    points = 10 * np.eye(8)[:, None] + 0.6 * RNG.normal(size=(8, 5, 8))
    points[:, 4] = points[:, 3]
    points = points.reshape(40, 8).astype(np.float32)
    found = bandwidth_rules.by_distances(points, jax.random.key(0))
    apart = np.linalg.norm(points[:, None].astype(float) - points, axis=-1)
    apart[apart == 0] = np.nan
    expected = np.nanmedian(np.nanmin(apart, axis=1)) / 2, np.nanmin(apart) / 3, np.nanmedian(apart)
    told = [found[name] for name in ("nearest x 0.5", "least / 3", "median x 1")]
    np.testing.assert_allclose(told, expected, rtol=1e-4)
    assert rke(points, found["plateau"]) == pytest.approx(8, rel=0.2)
    different = 40**2 / (40 + 2 * 8)
    for share in (0.5, 0.9):  # Between two candidates of the ladder, of ratio 2^(1/6).
        near = [rke(points, 2**power * found[f"{share:.0%} apart"]) for power in (1 / 6, -1 / 6)]
        assert near[0] < share * different < near[1]


def test_labels_give_a_bandwidth_that_counts_the_classes_of_its_pairs():
    classes = np.arange(200) % 4
    points = RNG.normal(size=(4, 6))[classes] + 0.3 * RNG.normal(size=(200, 6))
    found = bandwidth_rules.by_labels(points, classes, np.random.default_rng(1))
    assert rke(points, found[bandwidth_rules.OF_SHARE]) == pytest.approx(4, rel=0.1)
    assert found[bandwidth_rules.OF_PAIRS] > 0
    assert np.isnan(list(bandwidth_rules.by_labels(points, None, RNG).values())).all()


def test_a_candidate_is_chosen_on_the_other_sets_and_reversals_are_counted():
    """Rule `b` is right on both of the first sets, `a` on the third, whose scores `b` reverses."""
    names = ["a", "b", bandwidth_rules.OF_PAIRS, bandwidth_rules.OF_SHARE]
    axes = {"set": ["one", "two", "three"], "question": [TOTAL], "half": [0, 1], "outputs": names}
    axes |= {"prompts": ["p"], "level": [0, 1, 2]}
    value = xr.DataArray(1.0, axes, list(axes))
    truth = xr.DataArray([1.0, 2.0, np.nan], {"level": axes["level"]})
    value.loc[{"outputs": "b", "level": 1}] = 2.0
    value.loc[{"outputs": "a", "level": 1}] = 1.5
    value.loc[{"outputs": "b", "set": "three"}] = [3.0, 2.0, np.nan]
    truth = truth.expand_dims(set=axes["set"], question=[TOTAL])
    found = xr.Dataset({"value": value, "truth": truth, "counted": ("set", [1.0, 1.0, 1.0])})
    error, order = bandwidth_rules.errors(found), bandwidth_rules.ranked(found)
    assert error.sel(set="one", outputs="a").item() == pytest.approx(np.log(4 / 3) / 2)
    third = order.sel(set="three", question=TOTAL, prompts="p", outputs=["a", "b"])
    assert third.reversed.values.tolist() == [0, 2] and third.tau.values.tolist() == [1, -1]
    assert (order.known == 2).all()
    assert bandwidth_rules.best(error, ["one", "two"]) == ("b", "p")
    assert bandwidth_rules.best(error, ["three"]) == ("a", "p")
    # By rankings of its twin, `a` is chosen for a set like the third.
    twins = found.sel(set=["three", "three"]).assign_coords(set=["x", "y"])
    assert bandwidth_rules.chosen_by_order(twins, "x") == 0


def test_each_half_is_scored_at_the_bandwidths_of_the_other():
    x, t = (RNG.standard_normal((2, 40, d), np.float32) for d in (3, 2))
    one = Half(x[0], {OPEN: t[0]}, np.arange(40) % 2)
    two = Half(1.5 * x[1], {OPEN: 1.5 * t[1]}, np.arange(40) // 20)
    question, key = Question(OPEN, [[0], [0, 1]], (1, 2)), jax.random.key(0)
    state = {"x": ((one, two), (question,))}
    context = Context(key, key, lambda *words: None)
    found = BandwidthRules().compute(state, context, set="x").sel(question=OPEN)
    for part, (mine, other) in enumerate(((one, two), (two, one))):
        points, others = ((of.outputs, of.prompts[OPEN]) for of in (mine, other))
        widths = [bandwidth_rules.by_distances(of, key) for of in others]
        for level, rule in ((0, "median x 0.5"), (1, "variance x 1")):
            rows = np.isin(mine.slot, question.levels[level])
            each = zip(points, widths, strict=True)
            grams = [gaussian_gram(of[rows], width[rule]) for of, width in each]
            score = found.value.sel(half=part, outputs=rule, prompts=rule, level=level).item()
            assert score == pytest.approx(scores(*grams, order=2)["conditional"], rel=1e-4)
        if part == 0:
            of_one = found.order_one.sel(fixed="variance rule").item()
            assert of_one == pytest.approx(scores(*grams, order=1)["conditional"], rel=1e-3)
    assert found.truth.values[:2].tolist() == [1, 2] and found.truth[2:].isnull().all()


@pytest.mark.slow
def test_half_of_the_default_rule_ranks_better_on_sets_left_out():
    """The default where prompts repeat: what docs/bandwidths.md says of it, and no more."""
    known = pages.facts_of("bandwidth_rules")
    wrong = bandwidth_rules.ranked(known.found).reversed.sum("question")
    rule, half = (wrong.sel(outputs=x, prompts=t) for x, t in bandwidth_rules.FIXED.values())
    apart = wrong.sel(outputs="variance x 1", prompts="1% / 3").sum()
    counts = [*map(int, (half.sum(), known.known[1], rule.sum(), apart))]
    words = "it reversed {} of {} pairs, and the variance rule {}, or {} if all prompts are told"
    guide = (pages.PROJECT / "docs/bandwidths.md").read_text(encoding="utf-8")
    assert words.format(*counts) in guide and known.found.sizes["set"] == 13
    assert (half <= rule).all() and known.fewer == (half < rule).sum() > 0 == known.more
    assert (half.sum() - half < rule.sum() - rule).all()  # On the other twelve.
