"""The studies of outputs asked once, intervals, bandwidth rules and scores beside people."""

import dataclasses
import re

import jax
import numpy as np
import oracles
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram
from small import flags
from test_people_studies import judged_sets, small_human

import condvendi_jax as cv
from condvendi_jax.statistics import asked_once as statistics
from experiments import lab
from experiments.calibration import asked_once as reports
from experiments.calibration import asked_once_methods as methods
from experiments.calibration import bandwidth_rules as rules
from experiments.calibration import intervals, judgements, validity
from experiments.calibration.asked_once import AskedOnce, papers_scores, said
from experiments.calibration.asked_once_methods import Outputs
from experiments.calibration.simulations import EXACT
from experiments.calibration.validity import Validity
from experiments.data import PairedEmbeddings
from experiments.lab import Context, pages

WIDTHS = [0.1, 0.8, 1.6]
ASKED_ONCE = flags(families="video,stories", draws=2, tried=1, scored=1)
asked_once_run = studies.finished(AskedOnce, ASKED_ONCE)


def smooth(columns=2, groups=None):
    """Outputs that move with their prompts, and scatter; three of each prompt."""
    rng = np.random.default_rng(1)
    prompts = np.repeat(rng.normal(size=(100, columns)), 3, axis=0).astype(np.float32)
    outputs = 0.8 * prompts[:, :2] + 0.25 * rng.normal(size=(300, 2)).astype(np.float32)
    return Outputs(outputs, prompts[::3], np.arange(0, 301, 3), groups)


@pytest.mark.slow
def test_tables_have_a_row_for_each_set_family_and_choice(asked_once_run):
    found = asked_once_run.found
    tables = [reports.by_family(asked_once_run, *of) for of in (["set"], [])]
    tables.append(reports.by_constants(asked_once_run))
    assert [len(table) for table in tables] == [1 + 5 * 3, 1 + 3 * 3, 1 + 2 + 12]
    assert all(len({len(row) for row in table}) == 1 for table in tables)
    assert reports.judged(found).held.mean() > 0.9
    assert (found.total > found.total.sel(scale=2).max()).sel(scale=0.5).all()


def test_the_truth_is_of_prompts_with_several_outputs_and_no_output_with_itself():
    numbers = np.array([2, 0, 2, 1, 0, 2])
    outputs, prompts = np.arange(6.0)[:, None], 10.0 * numbers[:, None]
    labels = {"prompt": numbers, "models": np.array(list("abcdef"))}
    kept = Outputs.of(PairedEmbeddings("set", outputs, prompts, "", labels), grouped=True)
    assert kept.outputs.ravel().tolist() == [1, 4, 0, 2, 5]
    assert kept.prompts.ravel().tolist() == [0, 20] and kept.starts.tolist() == [0, 2, 5]
    assert kept.groups is not None and kept.groups.tolist() == list("beacf")
    drawn = kept.drawn(np.random.default_rng(0), 200)
    assert set(drawn[:, 0]) == {0, 1} and set(drawn[:, 1]) == {2, 3, 4}
    # Each prompt counts once.
    outputs = Outputs(np.array([[0.0], [1], [1], [0], [2]]), np.eye(2), np.array([0, 3, 5]))
    expected = [(np.exp(-1 / s**2) * 2 + 1) / 6 + np.exp(-4 / s**2) / 2 for s in WIDTHS]
    np.testing.assert_allclose(outputs.similarity(WIDTHS), expected)


@pytest.mark.parametrize("columns", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_librarys_constants_decide_as_the_library(columns, monkeypatch):
    """Where outputs and prompts have one space, and where they have none in common.

    No prompts of a shipped set are so close that a flat curve says something.
    """
    monkeypatch.setattr(statistics, "CLOSE", 0.0)
    outputs = smooth(columns=columns)
    drawn = outputs.drawn(np.random.default_rng(0), 2)
    found = methods.tried(outputs, drawn, WIDTHS)
    of = methods.decided(found).sel(methods.OWN)
    told = np.array([[said(outputs, rows, width) for rows in drawn] for width in WIDTHS])
    assert (of.given == (told[..., 0] == 0)).all() and 0 < of.given.mean() < 1
    np.testing.assert_allclose(1 / of.low, told[..., 4], rtol=1e-4)
    np.testing.assert_allclose((1 / of.high).where(of.given), told[..., 2], rtol=1e-4)
    np.testing.assert_allclose(1 / found.far, told[..., 5], rtol=1e-4)


def test_every_constant_changes_what_is_decided():
    outputs = smooth()
    found = methods.tried(outputs, outputs.drawn(np.random.default_rng(0), 3), WIDTHS)
    found = found.assign(far=0.99 * found.near_low)  # So that little of the rise was seen.
    found = methods.decided(found)
    for name, values in methods.GRID.items():
        choices = [found.sel({**methods.OWN, name: value}) for value in values]
        one, *others = [of.high.where(of.given, 0) for of in choices]
        assert any(not np.array_equal(one, other) for other in others), name


@pytest.mark.slow
def test_outputs_of_one_label_are_not_compared_and_papers_scores_keep_the_prompt_kernel():
    labels, rows = np.tile(np.repeat([0, 1], 3), 50), np.arange(0, 300, 3)
    plain, grouped = (said(smooth(groups=groups), rows, 0.8) for groups in (None, labels))
    assert plain[4:] != grouped[4:]
    # By the rule, of the prompts alone, so that it is the same for all draws.
    drawn = smooth().drawn(np.random.default_rng(0), 2)
    both = papers_scores(smooth(), drawn, [0.4, 0.8])
    for place, rows in enumerate(drawn):
        np.testing.assert_allclose(papers_scores(smooth(), rows[None], [0.8])[0], both[1][place])


def test_other_methods_read_known_similarities():
    """Outputs to near prompts are equal, to others far apart: all methods say one."""
    places = np.repeat(np.arange(6.0), 10)[:, None]
    prompts = 100 * places + np.random.default_rng(0).uniform(size=(60, 1))
    outputs = Outputs(50 * places, prompts, np.arange(61))
    found = methods.read_outs(outputs, np.arange(60)[None], 1.0)
    np.testing.assert_allclose(found[0][:2], 1)
    assert found[0][2] > 0.95


def test_sets_are_split_alternately_in_each_family_and_constants_chosen_that_hold():
    """One error more would lose nothing, one less would miss the truth."""
    names = ["human: a", "human: c", "human: b", "video: x", "sketches: 2", "sketches: 1", "emoji"]
    found = xr.Dataset({"truth": ("set", np.ones(7))}, {"set": names})
    one, two = ([str(k) for k in half.set.values] for half in reports.halves(found))
    assert one == ["human: a", "human: c", "sketches: 1", "video: x"]
    assert two == ["human: b", "sketches: 2"]
    axes = {name: methods.GRID[name] for name in ("neighbours", "narrow", "line")}
    values = {"near": 0.42, "near_low": 0.4, "at_least": 0.4, "far": 0.1}
    values |= {"zero": 0.45, "zero_error": 0.02, "truth": 0.48}
    place = ("set", "scale", "tried")
    dims = dict.fromkeys(("zero", "zero_error"), (*axes, *place)) | {"far": place}
    dims |= dict.fromkeys(("near", "near_low", "at_least"), (*list(axes)[:2], *place))
    dims["truth"] = place[:2]
    sizes = {name: len(of) for name, of in axes.items()} | {"set": 1, "scale": 1, "tried": 4}
    arrays = {k: (dims[k], np.full([sizes[d] for d in dims[k]], of)) for k, of in values.items()}
    of = reports.reached(xr.Dataset(arrays, axes))
    best = reports.best_choice(of)
    assert of.sel({**best, "errors": 1}).holds == 0
    assert best["errors"] == 2 and best["neighbours"] == min(axes["neighbours"])


intervals_run = studies.finished(intervals.Intervals, flags(draws=40, evaluations=4))


@pytest.mark.slow
def test_tables_have_a_row_for_each_population(intervals_run):
    found = intervals_run.found
    differences, *_, good = intervals.tables_of(found).values()
    assert [len(of) for of in (differences, good)] == [9, 7]  # Zipf has no good outputs.
    assert differences[1][:2] == ["5", "2%"]
    assert found.false.sel(alike="own prompts 20/200", test="interval").max() < 0.2
    assert found.held.mean() > 0.8


@pytest.mark.parametrize("matched", [True, False])
def test_models_are_told_apart_as_compare_tells_them(matched):
    """Of prompts that collapse, and others with 8 or 5 answers, at a margin between the scores."""
    options = {"orders": [2], "profile": False, "equal_ratio": 2.5, **EXACT}
    both, rng = [], np.random.default_rng(0)
    for _ in range(12):
        one, prompts = intervals.drawn(rng, (1, 24, 5), law=0.2, answers=8)
        two = intervals.drawn(rng, (1, 24, 5), law=0.4, answers=5)[0]
        models = {name: np.float32(of.reshape(-1, 1)) for name, of in (("one", one), ("two", two))}
        shift = {"one": 0, "two": 0 if matched else 24}
        ids = {name: np.repeat(np.arange(24) + by, 5) for name, by in shift.items()}
        compared = cv.compare(models, ids, **options, one_population=not matched)
        (found,) = compared.ranking("conditional", 2).differences
        shown = [found.p_value <= 0.05, found.equal_p_value <= 0.05]
        told = [intervals.told(one, two, matched, *margin)[0] for margin in ([], [2.5])]
        both.append((shown, told))
    assert all(shown == told for shown, told in both)
    assert {True, False} == {shown[0] for shown, _ in both} == {shown[1] for shown, _ in both}


def test_laws_of_answers_have_their_similarities_and_a_flatter_one_a_larger_score():
    for law in (0.05, 0.2):
        shares = np.full(20, (1 - law) / 20)
        shares[0] += law
        expected = law + (1 - law) / 20, np.sum(shares**2)
        np.testing.assert_allclose(intervals.similarities(law, 20), expected)
    exponents = np.random.default_rng(1).uniform(0, 3, 400_000)
    flat, steep = (
        np.mean(np.sum(intervals.zipf(times * exponents) ** 2, axis=1))
        for times in (intervals._flatter(), 1)
    )
    assert steep / flat == pytest.approx(1.22, rel=0.005)
    np.testing.assert_allclose(intervals.similarities(intervals.ZIPF)[0], steep, rtol=0.005)
    rng = np.random.default_rng(0)
    for similarity in (0.0216, 0.216, 0.4):
        same = intervals.same_answers(intervals._of_one_law(rng, (400, 400, 5), similarity))
        assert abs(same.mean() - similarity) < 4 * same.mean(axis=1).std() / 20
    answers, exponents = intervals.drawn(rng, (2, 2, 50_000), law=intervals.ZIPF)
    frequent, expected = np.mean(answers == 1, axis=2), intervals.zipf(exponents)[..., 1]
    np.testing.assert_allclose(frequent, expected, atol=0.01)
    for good in intervals.GOOD:  # Shares at both ends are held.
        held = intervals.shares_held(rng, (400, 50, 5), 0.05, good)
        assert min(held) > 0.9 and max(held) < 1


BANDWIDTH_RULES = flags(sets="captioning,plane,human", rows=80)
bandwidth_rules_run = studies.finished(rules.BandwidthRules, BANDWIDTH_RULES)


def rke(points, width):
    return 1 / np.mean(gaussian_gram(points, width) ** 2)


def conditional(outputs, prompts, *widths, order):
    return oracles.scores(*map(gaussian_gram, (outputs, prompts), widths), order=order)[
        "conditional"
    ]


def test_counts_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    squares = [rules.squared_distances(points) for points in (x, t)]
    slot, levels = np.arange(12) % 3, [[0], [0, 2]]
    widths = np.array([0.5, 2.0]), np.array([0.7, 1.5, np.nan])
    found = rules.counts(squares, slot, levels, *widths)
    alone = rules.counts((squares[0], np.zeros((12, 12))), slot, levels, *widths)
    for i, j, level in np.ndindex(2, 2, 2):
        rows, s, z = np.isin(slot, levels[level]), widths[0][i], widths[1][j]
        expected = conditional(x[rows], t[rows], s, z, order=2)
        assert found[i, j, level] == pytest.approx(expected, rel=1e-5)
        assert alone[i, j, level] == pytest.approx(rke(x[rows], s), rel=1e-5)
    assert np.isnan(found[:, 2]).all()


def test_rules_by_distances_and_labels_are_what_they_say():
    """Eight clusters of five rows, of which two are equal, far apart."""
    rng = np.random.default_rng(0)
    points = 10 * np.eye(8)[:, None] + 0.6 * rng.normal(size=(8, 5, 8))
    points[:, 4] = points[:, 3]
    points = points.reshape(40, 8).astype(np.float32)
    found = rules.by_distances(points, jax.random.key(0))
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
    # Labels give a bandwidth that counts the classes of its pairs.
    classes = np.arange(200) % 4
    points = rng.normal(size=(4, 6))[classes] + 0.3 * rng.normal(size=(200, 6))
    found = rules.by_labels(points, classes, np.random.default_rng(1))
    assert rke(points, found[rules.OF_SHARE]) == pytest.approx(4, rel=0.1)
    assert found[rules.OF_PAIRS] > 0
    assert np.isnan(list(rules.by_labels(points, None, rng).values())).all()


def test_a_candidate_is_chosen_on_the_other_sets_and_reversals_are_counted():
    """Rule `b` is right on both of the first sets, `a` on the third, whose scores `b` reverses."""
    axes = {"set": ["one", "two", "three"], "question": [rules.TOTAL], "half": [0, 1]}
    axes |= {"outputs": ["a", "b", rules.OF_PAIRS, rules.OF_SHARE], "prompts": ["p"]}
    axes |= {"level": [0, 1, 2]}
    value = xr.DataArray(1.0, axes, list(axes))
    truth = xr.DataArray([1.0, 2.0, np.nan], {"level": axes["level"]})
    value.loc[{"outputs": "b", "level": 1}] = 2.0
    value.loc[{"outputs": "a", "level": 1}] = 1.5
    value.loc[{"outputs": "b", "set": "three"}] = [3.0, 2.0, np.nan]
    truth = truth.expand_dims(set=axes["set"], question=[rules.TOTAL])
    found = xr.Dataset({"value": value, "truth": truth, "counted": ("set", [1.0, 1.0, 1.0])})
    error, order = rules.errors(found), rules.ranked(found)
    assert error.sel(set="one", outputs="a").item() == pytest.approx(np.log(4 / 3) / 2)
    third = order.sel(set="three", question=rules.TOTAL, prompts="p", outputs=["a", "b"])
    assert third.reversed.values.tolist() == [0, 2] and third.tau.values.tolist() == [1, -1]
    assert (order.known == 2).all()
    assert rules.best(error, ["one", "two"]) == ("b", "p")
    assert rules.best(error, ["three"]) == ("a", "p")
    # By rankings of its twin, `a` is chosen for a set like the third.
    twins = found.sel(set=["three", "three"]).assign_coords(set=["x", "y"])
    assert rules.chosen_by_order(twins, "x") == 0


def test_each_half_is_scored_at_the_bandwidths_of_the_other():
    rng, slots = np.random.default_rng(0), (np.arange(40) % 2, np.arange(40) // 20)
    x, t = (rng.standard_normal((2, 40, d), np.float32) for d in (3, 2))
    halves = [
        rules.Half(by * x[part], {rules.OPEN: by * t[part]}, slots[part])
        for part, by in enumerate(np.float32([1, 1.5]))
    ]
    question, key = rules.Question(rules.OPEN, [[0], [0, 1]], (1, 2)), jax.random.key(0)
    context = Context(key, key, lambda *words: None)
    found = rules.BandwidthRules().compute({"x": (halves, (question,))}, context, set="x")
    found = found.sel(question=rules.OPEN)
    for part, (mine, other) in enumerate((halves, halves[::-1])):
        widths = [rules.by_distances(of, key) for of in (other.outputs, other.prompts[rules.OPEN])]
        for level, rule in ((0, "median x 0.5"), (1, "variance x 1")):
            rows = np.isin(mine.slot, question.levels[level])
            given = mine.outputs[rows], mine.prompts[rules.OPEN][rows], *(w[rule] for w in widths)
            score = found.value.sel(half=part, outputs=rule, prompts=rule, level=level).item()
            assert score == pytest.approx(conditional(*given, order=2), rel=1e-4)
        if part == 0:
            of_one = found.order_one.sel(fixed="variance rule").item()
            assert of_one == pytest.approx(conditional(*given, order=1), rel=1e-3)
    assert found.truth.values[:2].tolist() == [1, 2] and found.truth[2:].isnull().all()


@pytest.mark.slow
def test_half_of_the_default_rule_ranks_better_on_sets_left_out(bandwidth_rules_run):
    """The default where prompts repeat: what docs/bandwidths.md says of it, and no more."""
    assert not bandwidth_rules_run.missing
    known = pages.facts_of("bandwidth_rules")
    wrong = rules.ranked(known.found).reversed.sum("question")
    rule, half = (wrong.sel(outputs=x, prompts=t) for x, t in rules.FIXED.values())
    apart = wrong.sel(outputs="variance x 1", prompts="1% / 3").sum()
    counts = [*map(int, (half.sum(), known.known[1], rule.sum(), apart))]
    words = "it reversed {} of {} pairs, and the variance rule {}, or {} if all prompts are told"
    guide = (pages.PROJECT / "docs/bandwidths.md").read_text(encoding="utf-8")
    assert words.format(*counts) in guide and known.found.sizes["set"] == 13
    assert (half <= rule).all() and known.fewer == (half < rule).sum() > 0 == known.more
    assert (half.sum() - half < rule.sum() - rule).all()  # On the other twelve.


def small_validity(folder):
    """Sets of six responses with one to six modes, which people count."""
    return [flag for flag in small_human(folder) if not re.match("--(folds|contexts|draws)", flag)]


@pytest.fixture
def no_weights(monkeypatch):
    def lacking():
        raise ModuleNotFoundError

    monkeypatch.setattr(validity, "load_minilm", lacking)


def test_a_score_that_people_agree_with_is_ahead_of_noise_and_of_no_equal(no_weights):
    pairs = judged_sets(sets=60, tasks=2)
    people = pairs.labels["people"]
    noise = np.random.default_rng(1).permutation(60)[pairs.labels["sets"]]
    labels = {"metric_same": people, "text_same": people**3, "text_noise": 1.0 * noise}
    pairs = dataclasses.replace(pairs, labels={**pairs.labels, **labels})
    widths = lab.Scales(scales=(1.0,), output_bandwidth=0.7, prompt_bandwidth=0.7)
    setup, found = studies.computed(Validity(bandwidths=widths, resamples=60), pairs)
    assert vars(setup.study)["sets"] == {"task 0": 30, "task 1": 30}
    value = found.value.sel(end="value")
    np.testing.assert_allclose(value.sel(judge=["same", "same (published)"]), 1)
    mean = found["mean"].sel(end="value")
    np.testing.assert_allclose(mean, value.mean("task"))
    assert (np.diff(mean) <= 0).all()
    for against in found.against.values:
        other = mean.sel(judge="same" if against == "best" else "Vendi")
        gap = found.difference.sel(against=against, end="value")
        np.testing.assert_allclose(gap, mean - other, atol=1e-12)
    p_value = found.p_value.sel(against="best")
    assert p_value.sel(judge="noise") < 0.01 < p_value.sel(judge="same (published)") == 1
    low, high = found.difference.sel(judge="noise", against="best", end=["low", "high"]).values
    assert low < -0.5 and high < 0
    # Without weights an embedding has no cost; words and characters have one.
    assert np.isnan(found.cost.sel(judge="Vendi"))
    assert validity.timed(lambda: sum(k * k for k in range(200_000))) > 0


def test_clusters_and_distances_are_those_by_hand():
    rows = np.array([[1.0, 0], [0.8, 0.6], [0, 1], [-1, 0]])
    assert validity.mean_distance(rows[[0, 2, 3]]) == pytest.approx((1 + 2 + 1) / 3)
    # Neighbours lie 0.63, 0.89 and 1.41 apart.
    assert [validity.clusters(rows, w) for w in (0.6, 0.7, 0.9, 1.5)] == [4, 3, 2, 1]


def test_similarities_are_scored_in_place_of_kernels_wherever_the_rows_of_a_set_are():
    pairs, members = judged_sets(sets=6), np.arange(24).reshape(6, 4).T.reshape(-1)
    grams = np.stack([x @ x.T for x in pairs.outputs.astype(np.float64).reshape(6, 4, 3)])
    rows = np.pad(grams**2, ((0, 0), (0, 0), (0, 2))).reshape(24, 6)
    pairs = dataclasses.replace(pairs, further={"edit_similarity": rows}).rows(members)
    scores = judgements.scores_of_similarities(pairs, judgements.Responses.of(pairs).members)
    assert list(scores) == ["edit similarity", "cosine similarity"]
    for found, of in zip(scores.values(), (grams**2, grams), strict=True):
        np.testing.assert_allclose(found, [oracles.entropy(gram) for gram in of], atol=1e-4)


def test_sets_of_unequal_sizes_are_refused(no_weights):
    pairs = judged_sets(sets=8)
    with pytest.raises(ValueError, match="equally many responses in task 0, received from 3 to 4"):
        Validity().prepare(lambda: pairs.rows(np.arange(1, len(pairs))), 0)


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (AskedOnce, ASKED_ONCE, "--families=language", "none of .* has repeated prompts"),
    (rules.BandwidthRules, BANDWIDTH_RULES, "--sets=human,dogs", "at least three, received 2"),
    (Validity, small_validity, "--resamples=1", "resamples"),
)
