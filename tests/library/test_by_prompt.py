"""Contributions of rows, and prompts by themselves: derivatives, and loops in NumPy."""

import dataclasses
import functools
import math

import numpy as np
import oracles
import precision
import pytest
from canonical import N, kernels, slow
from oracles import assert_close, draw_pairs, gaussian_gram
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.base import memory
from condvendi_jax.grams import sums
from condvendi_jax.spectra import exact, pair_sums
from experiments.calibration import simulations

ENTROPIES = [*({"order": order} for order in (1, 2, math.inf)), {"order": 1, "truncation": 4}]
INFLUENCES = [*ENTROPIES, *(slow({"order": order}) for order in (0.5, 1.05, 3))]
INFLUENCES += [slow({"order": 2, "truncation": 5})]
SIZES = (7, 1, 4, 19, 5, 2)


def weighted_scores(outputs, prompts, weights, **options):
    x, t = gaussian_gram(outputs, 0.8), gaussian_gram(prompts, 0.6)
    return np.exp(oracles.weighted_logs((x, t, x * t), weights, **options))


@pytest.mark.parametrize("options", INFLUENCES, ids=str)
def test_influences_are_derivatives_in_the_weights_of_rows(options, x64):
    pairs, even = draw_pairs(N), np.full(N, 1 / N)
    found = cv.contributions(*pairs, **kernels(), **options)
    scores = functools.partial(weighted_scores, *pairs, **options)
    assert_close(found.decomposition.scores, scores(even))
    for row in (0, 17, N - 1):  # The step is so long that the rounding of the scores is small.
        expected = oracles.directional_difference(scores, even, np.arange(N) == row, step=1e-4)
        np.testing.assert_allclose([of[row] for of in found.influences], expected, atol=1e-7)
    for influences in found.influences:
        assert abs(influences.mean()) < 1e-12 * N


@pytest.mark.slow
def test_row_sums_do_not_depend_on_the_tiles():
    outputs, prompts = draw_pairs(N - 7, dtype=np.float32)  # The last tile is padded.
    tiles = pair_sums.tiles_of(cv.Pairs(outputs, prompts, **kernels()))
    squares = [gaussian_gram(outputs, 0.8) ** 2, gaussian_gram(prompts, 0.6) ** 2]
    expected = np.stack([g.sum(axis=1) - 1 for g in (*squares, squares[0] * squares[1])])
    with precision.tiles(16):
        assert_close(sums.row_norms(tiles), expected)


def test_equal_rows_contribute_equally_and_labels_add_up():
    outputs, prompts = (np.repeat(a, 3, axis=0) for a in draw_pairs(16, dtype=np.float32))
    prompt = np.repeat(np.arange(16), 3)
    for order in (1, 2):
        found = cv.contributions(outputs, prompts, **kernels(), order=order)
        by_prompt = found.by(prompt)
        assert list(by_prompt) == list(range(16))
        for influences, told in zip(
            found.influences, np.transpose([*by_prompt.values()]), strict=True
        ):
            of_prompts = influences.reshape(16, 3)
            assert np.ptp(of_prompts, axis=1).max() < 1e-3
            np.testing.assert_allclose(told, of_prompts.sum(axis=1) / 48, atol=1e-6)
            assert abs(sum(told)) < 1e-4
    with pytest.raises(ValueError, match="labels: expected 48 labels, .* shape .47,."):
        found.by(prompt[1:])


@pytest.mark.parametrize("prompt_kernel", [cv.Indicator(), cv.Gaussian(0.02)], ids=str)
def test_prompts_that_tie_across_a_truncation_share_what_is_kept(prompt_kernel, x64):
    """Whatever the order of the rows: two prompts of two answers each tie."""
    outputs = np.array([[0.0], [1], [2], [5], [6], [9], [9.5]])
    prompts, found = np.array([[0.0], [0], [0], [1], [1], [2], [2]]), []
    for rows in ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 5, 6, 3, 4]):
        given = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": prompt_kernel}
        told = cv.contributions(outputs[rows], prompts[rows], **given, order=1, truncation=2)
        found.append([told.by(prompts[rows, 0])[p].conditional for p in (0.0, 1.0, 2.0)])
    np.testing.assert_allclose(*found, atol=1e-9)


def test_outputs_alone_have_no_information():
    outputs, _ = draw_pairs(N, dtype=np.float32)
    alone = cv.contributions(outputs, kernel=cv.Gaussian(0.8), order=2)
    np.testing.assert_array_equal(alone.influences.conditional, alone.influences.vendi)
    np.testing.assert_array_equal(alone.influences.information, 0)
    one = cv.contributions(outputs[:1], kernel=cv.Gaussian(0.8), order=2)
    assert one.influences.vendi == 0


def draw(sizes=SIZES, seed=0):
    """Outputs, prompts, and the number of the prompt of each row, in a random order of rows."""
    rng = np.random.default_rng(seed)
    prompt = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    outputs = rng.normal(size=(prompt.size, 3)) * rng.uniform(0.3, 2, len(sizes))[prompt, None]
    prompts = rng.normal(size=(len(sizes), 2))[prompt]
    return outputs.astype(np.float32), prompts.astype(np.float32), prompt


def similarity_of(gram, weights):
    """The weighted mean of the squared kernel over pairs of different rows."""
    pairs = np.outer(weights, weights) * ~np.eye(weights.size, dtype=bool)
    return np.sum(pairs * gram**2) / pairs.sum() if weights.size > 1 else np.nan


def alone(gram, weights, **options):
    """The score of the rows of one prompt, that of the papers, and the similarity."""
    similarity = similarity_of(gram, weights)
    plug_in = math.exp(oracles.weighted_entropy(gram, weights / weights.sum(), **options))
    unbiased = options == {"order": 2} and weights.size > 1
    return 1 / similarity if unbiased else plug_in, plug_in, similarity


@pytest.mark.parametrize(
    ("options", "weighted"),
    [*((each, True) for each in ENTROPIES), *((each, False) for each in ENTROPIES[:2])],
    ids=str,
)
def test_every_prompt_is_scored_as_in_a_loop(options, weighted, x64, monkeypatch):
    outputs, prompts, prompt = draw()
    weights = np.random.default_rng(1).uniform(0.2, 1, prompt.size) if weighted else np.ones(38)
    pairs = cv.Pairs(outputs, prompts, **kernels(), weights=weights if weighted else None)
    monkeypatch.setattr(exact, "_ENTRIES", 150)  # Two small prompts at a time.
    table = cv.prompt_table(pairs, **options)
    shares = weights / weights.sum()
    assert [own.row for own in table.prompts] == sorted(np.argmax(prompt == p) for p in range(6))
    found = cv.contributions(pairs, **options)
    assert table.decomposition == found.decomposition
    for own in table.prompts:
        of = prompt == prompt[own.row]
        assert (own.prompt, own.n) == (None, int(of.sum()))
        assert own.share == pytest.approx(shares[of].sum())
        expected = alone(gaussian_gram(outputs[of], 0.8), shares[of], **options)
        actual = [own.score, own.plug_in, own.similarity]
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9, equal_nan=True)
        expected = [of_rows[of] @ shares[of] for of_rows in found.influences]
        np.testing.assert_allclose(own.contributions, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # vendi_score reaches into namespaces that SciPy deprecates.
def test_the_mean_over_prompts_is_the_number_that_papers_print(x64):
    outputs, _, prompt = draw((6,) * 5)
    names = np.array(["a cat", "a dog", "two cats", "a bus", "a red bus"])[prompt]
    table = cv.prompt_table(outputs, names, output_kernel=cv.Cosine(), order=1)
    of_prompts = [outputs[names == name] for name in np.unique(names)]
    scores = [
        math.exp(oracles.weighted_entropy(oracles.cosine_gram(of), np.full(6, 1 / 6), order=1))
        for of in of_prompts
    ]
    assert table.mean == pytest.approx(np.mean(scores), rel=1e-9)
    assert table.standard_error == pytest.approx(stats.sem(scores), rel=1e-9)
    low, high = stats.t.interval(0.95, 4, np.mean(scores), stats.sem(scores))
    value = f"{np.mean(scores):.2f} [{low:.2f}, {high:.2f}]"
    words = (
        f"mean of the Vendi of 5 prompts with 6 outputs: {value} ([low, high]: 95%, over prompts"
    )
    assert words in str(table)
    plain = table.as_dict()
    assert (plain["mean"], plain["standard_error"]) == (table.mean, table.standard_error)
    conditional = float(table.decomposition.conditional)
    assert conditional == pytest.approx(stats.gmean(scores)) and conditional < table.mean
    second = cv.prompt_table(outputs, names, output_kernel=cv.Cosine(), order=2)
    harmonic = stats.hmean([own.plug_in for own in second.prompts])
    assert float(second.decomposition.conditional) == pytest.approx(harmonic)
    vendi = pytest.importorskip("vendi_score.vendi")
    assert table.mean == pytest.approx(np.mean([vendi.score_X(of) for of in of_prompts]))


def test_a_mean_is_of_the_papers_scores_and_leaves_out_prompts_of_weight_zero():
    data = rows_of([0, 1], [5, 5], [0, 0, 1])
    table = cv.prompt_table(*data, **kernels(), order=2, weights=[1, 1, 0, 0, 1, 1, 1])
    first, absent, third = (own.plug_in for own in table.prompts)
    assert math.isnan(absent) and (table.prompts[1].n, table.prompts[1].share) == (0, 0)
    assert table.mean == pytest.approx((first + third) / 2)
    assert table.standard_error == pytest.approx(abs(first - third) / 2)
    assert "of 2 prompts with 2 to 3 outputs: " in str(table)
    assert table.prompts[0].score > first


def test_labels_take_the_place_of_prompts():
    outputs, prompts, prompt = draw()
    words = np.array(["one", "two"])[prompt % 2]
    labelled = cv.prompt_table(outputs, prompts, **kernels(), order=2, labels=words)
    expected = [(word, sum(words == word)) for word in dict.fromkeys(words.tolist())]
    assert [(own.prompt, own.n) for own in labelled.prompts] == expected
    outputs_alone = cv.prompt_table(outputs, kernel=cv.Gaussian(0.8), order=2, labels=words)
    one, two = ([own.score for own in table.prompts] for table in (labelled, outputs_alone))
    assert_close(np.float32(one), two)
    with pytest.raises(ValueError, match="labels: there are outputs alone; expected the prompt"):
        cv.prompt_table(outputs, kernel=cv.Gaussian(0.8))
    with pytest.raises(ValueError, match="labels: expected 38 labels, .* shape .37,."):
        cv.prompt_table(outputs, prompts, **kernels(), labels=words[1:])


def rows_of(*prompts):
    """Outputs on a line, and the number of the prompt of each."""
    outputs = np.concatenate([np.asarray(own, np.float32) for own in prompts])
    prompt = np.repeat(np.arange(len(prompts)), [len(own) for own in prompts])
    return 10 * outputs[:, None], prompt[:, None].astype(np.float32)


def test_prompts_are_ranked_by_similarity_not_by_scores_of_other_n():
    """Six outputs of three modes score more than two different ones, which are less similar."""
    data = rows_of([0, 1], [5, 5], [0, 0, 1, 1, 2, 2], [3], [0, 0, 1], [7, 7, 7], [0, 1, 2, 3])
    table = cv.prompt_table(*data, **kernels(), order=2)
    rows = [own.row for own in table.prompts]
    assert [rows.index(own.row) for own in table.least_diverse(9)] == [5, 1, 4, 2, 6, 0]
    assert [rows.index(own.row) for own in table.most_diverse(4)] == [6, 0, 2, 4]
    with pytest.raises(ValueError, match="count: expected"):
        table.least_diverse(0)
    with pytest.raises(TypeError, match="method: expected cv.Auto"):
        cv.prompt_table(*data, **kernels(), method="exact")


@pytest.mark.parametrize(("order", "scores"), [(1, [6, 1, 2]), (2, [math.inf, 1, 15 / 6])])
def test_outputs_that_are_all_alike_or_all_different_have_exact_scores(order, scores):
    data = rows_of(range(6), [0] * 6, [0, 1] * 3, [0, 0, 0, 0, 1])
    table = cv.prompt_table(*data, **kernels(), order=order)
    assert [own.similarity for own in table.prompts[:2]] == [0, 1]
    np.testing.assert_allclose([own.score for own in table.prompts[:3]], scores, rtol=1e-5)


@pytest.mark.parametrize("options", [{"order": 2}, {"order": 1}, ENTROPIES[3]], ids=str)
def test_the_test_of_a_difference_is_that_of_loops_at_every_order(options, x64):
    outputs, prompts, prompt = draw((7, 4, 5, 9, 5, 2, 6))
    table = cv.prompt_table(outputs, prompts, **kernels(), **options)
    several = [own for own in table.prompts if own.n > 3]
    k = np.array([own.n for own in several])
    rows = [prompt == prompt[own.row] for own in several]
    parts = [oracles.components(gaussian_gram(outputs[of], 0.8)) for of in rows]
    u, zeta, delta = np.transpose(parts)
    within = 4 * zeta / k + 2 * delta / (k * (k - 1))
    z = 6 / 5 * (u - u.mean()) ** 2 - within
    noise, total = within.mean(), u.var(ddof=1)
    t, skew = stats.ttest_1samp(z, 0).statistic, stats.skew(z) / math.sqrt(6)
    t += skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6
    expected = max(stats.t.sf(t, 5), stats.chi2.sf(5 * total / noise, 5))
    assert table.spread.p_value == pytest.approx(expected, rel=1e-5)
    assert table.spread.deviation == pytest.approx(math.sqrt(total - noise), rel=1e-5)
    assert table.spread.reliability == pytest.approx(1 - noise / total, rel=1e-5)
    needed = table.spread.outputs_needed
    pair = np.mean(2 * zeta + delta)
    at_needed = 4 * zeta.mean() / needed
    at_needed += 2 * (pair - 2 * zeta.mean()) / (needed * (needed - 1))
    assert at_needed == pytest.approx((total - noise) / 4, rel=1e-5)
    for own in table.prompts:
        assert own.low < own.shrunken < own.high and own.low <= own.similarity <= own.high
    shrunken = [own.shrunken for own in table.least_diverse(7)]
    assert shrunken == sorted(shrunken, reverse=True)


@pytest.mark.parametrize(
    ("sizes", "weights", "words"),
    [
        ((3,) * 8, None, "expected 5 prompts or more with 4 outputs or more, received 0"),
        ((4,) * 6, np.arange(24) % 2 + 0.5, "the outputs of a prompt have unequal weights"),
    ],
)
def test_what_cannot_be_tested_is_said(sizes, weights, words):
    outputs, prompts, _ = draw(sizes)
    table = cv.prompt_table(outputs, prompts, **kernels(), order=2, weights=weights)
    assert table.spread is None and table.reason == words
    assert str(table).splitlines()[1] == f"not tested whether prompts differ: {words}"
    assert all(math.isnan(own.shrunken) and own.in_words() == "" for own in table.prompts)
    similar = [own.similarity for own in table.least_diverse(9)]
    assert similar == sorted(similar, reverse=True)
    same = cv.prompt_table(*rows_of(*[[0] * 4] * 6), **kernels(), order=2)
    assert same.reason == "all outputs of a prompt count as different, or all as the same"


def test_a_table_says_what_it_can_rank():
    rng = np.random.default_rng(0)
    alike = rows_of(*[rng.integers(4, size=5) for _ in range(12)])
    table = cv.prompt_table(*alike, **kernels(), order=2)
    assert "no sign that prompts differ (p = 0." in str(table) and len(str(table).splitlines()) < 16
    spread = table.spread._replace(p_value=0.01, reliability=0.35, outputs_needed=61.2)
    few = dataclasses.replace(table, spread=spread)
    start, chance = "5 outputs to a prompt", "65% of how the prompts differ is chance"
    assert few.sentence() == f"{start} are too few to rank them: {chance}; about 62 would do"
    more = dataclasses.replace(table, spread=spread._replace(reliability=0.8))
    assert more.sentence() == f"{start} can rank them: 20{chance[2:]}"
    for p in (0.05, 0.2):
        none = dataclasses.replace(table, spread=spread._replace(p_value=p))
        assert none.sentence().startswith(f"no sign that prompts differ (p = {p:.2f})")
    one = table.prompts[0]._replace(shrunken=0.25, low=0.2, high=0.5)
    assert one.in_words() == "4.0 [2.0, 5.0]" and one._replace(low=0).in_words() == "> 2"


def test_prompts_of_two_outputs_are_drawn_further_to_the_others():
    rng = np.random.default_rng(1)
    data = rows_of(*[rng.integers(1 + k % 6, size=12) for k in range(12)], [0, 0], [0, 1], [5])
    *most, same, different, single = cv.prompt_table(*data, **kernels(), order=2).prompts
    mean = np.mean([own.similarity for own in most])
    assert mean < same.shrunken < 0.9 and same.high == 1
    assert 0.1 < different.shrunken < mean and different.low == 0
    assert math.isnan(single.shrunken)
    assert all(abs(own.shrunken - own.similarity) < 0.1 for own in most)


@pytest.mark.slow
@pytest.mark.parametrize("overlapping", [False, True])
def test_intervals_hold_at_the_ends_and_the_test_keeps_its_level(overlapping):
    found = simulations.cover_ends("identical", overlapping, 20, [10], 150)
    assert found["rejected"] <= 0.1 and min(found["coverage"].values()) > 0.9
    assert found["coverage of two errors"]["most diverse"] < 0.3
    found = simulations.cover_ends("heavy", overlapping, 30, [5, 10, 30], 150)
    assert found["rejected"] > 0.2 and min(found["coverage"].values()) > 0.86


def test_prompts_with_one_output_are_counted_and_not_compared():
    outputs, prompts, _ = draw((1,) * 6)
    table = cv.prompt_table(outputs, prompts, **kernels(), order=1)
    assert [(own.n, own.score) for own in table.prompts] == [(1, 1.0)] * 6
    assert table.least_diverse(1) == table.most_diverse(1) == []
    assert any(own.contributions.vendi != 0 for own in table.prompts)
    assert str(table).splitlines()[1].startswith("no prompt has two outputs")
    papers = cv.prompt_table(outputs, 0 * prompts, **kernels(), order=2)
    assert_close(np.float32(papers.prompts[0].plug_in), cv.rke(outputs, kernel=cv.Gaussian(0.8)))


def test_more_outputs_of_a_prompt_than_fit_in_memory_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: memory.needed(18, np.float32))
    with pytest.raises(ValueError, match="n x n arrays of the 19 outputs of one prompt"):
        cv.prompt_table(*draw()[:2], **kernels(), order=2)


def test_a_table_is_printed_and_written():
    data = rows_of([0, 1], [5, 5], [0, 0, 1, 1, 2, 2], [3], [0, 0, 1])
    words = np.repeat(["a, b", "c", "long " * 20, "d", "e"], (2, 2, 6, 1, 3))
    table = cv.prompt_table(*data, **kernels(), order=2, labels=words)
    lines = str(table).splitlines()
    assert [line.split()[0] for line in lines[4:8]] == ["c", "e", "long", "a,"]
    assert lines[7].split()[2:5] == ["2", "0.000", ">"]
    assert lines[6].startswith("long " * 9 + "...  6       0.200 ")
    assert lines[6].split()[-2:] == ["5", "+0.714"]
    limits = "all outputs count as different: 1 prompts; as the same: 1"
    assert f"prompts without a similarity, because they have one output: 1; {limits}" == lines[-1]
    many = cv.prompt_table(*draw((2,) * 7)[:2], **kernels(), order=math.inf)
    lines = str(many).splitlines()
    assert lines[7] == "..." and lines[4].startswith(f"row {many.least_diverse(1)[0].row} ")
    plain = table.as_dict()
    assert (plain["order"], many.as_dict()["order"]) == (2, "inf")
    for line, own, entry in zip(table.lines(), table.prompts, plain["prompts"], strict=True):
        assert (line["prompt"], line["order"], line["truncation"]) == (own.prompt, 2, None)
        assert entry["contribution_to_information"] == own.contributions.information
        assert entry.items() <= line.items()
