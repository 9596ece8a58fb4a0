"""Prompts by themselves: scores, errors, similarities, rankings, against loops in NumPy."""

import csv
import io
import math

import numpy as np
import pytest
from canonical import kernels
from oracles import assert_close, gaussian_gram
from oracles import weighted_entropy as entropy

import condvendi_jax as cv
from condvendi_jax.base import memory
from condvendi_jax.inference import prompt_tables

ENTROPIES = [*({"order": order} for order in (1, 2, math.inf)), {"order": 2, "unbiased": False}]
ENTROPIES += [{"order": 1, "truncation": 4}]
SIZES = (7, 1, 4, 19, 5, 2)


def draw(sizes=SIZES, seed=0):
    """Outputs, prompts, and the number of the prompt of each row, in a random order of rows."""
    rng = np.random.default_rng(seed)
    prompt = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    outputs = rng.normal(size=(prompt.size, 3)) * rng.uniform(0.3, 2, len(sizes))[prompt, None]
    prompts = rng.normal(size=(len(sizes), 2))[prompt]
    return outputs.astype(np.float32), prompts.astype(np.float32), prompt


def of_all(options):
    """The options of the scores of all rows, which are the papers'."""
    return {name: value for name, value in options.items() if name != "unbiased"}


def similarity_of(gram, weights):
    """The weighted mean of the squared kernel over pairs of different rows."""
    pairs = np.outer(weights, weights) * ~np.eye(weights.size, dtype=bool)
    return np.sum(pairs * gram**2) / pairs.sum() if weights.size > 1 else np.nan


def without(row, gram, weights):
    rest = np.arange(weights.size) != row
    return gram[np.ix_(rest, rest)], weights[rest]


def plug_in(gram, weights, **options):
    """The papers' score of the rows of one prompt, and its error."""
    n, weights, step = weights.size, weights / weights.sum(), 1e-6
    value = entropy(gram, weights, **options)
    slopes = np.zeros(n)
    for row, weight in enumerate(weights):
        if options == {"order": 1} and n > 1:
            rest = entropy(*without(row, gram, weights), **options)
            slopes[row] = (value - rest) * (1 - weight) / weight
        else:
            one = np.arange(n) == row
            ends = [entropy(gram, weights + sign * step * one, **options) for sign in (1, -1)]
            slopes[row] = (ends[0] - ends[1]) / (2 * step)
    slopes -= weights @ slopes
    error = math.exp(value) * np.sqrt(np.sum((weights * slopes) ** 2) * n / max(n - 1, 1))
    return math.exp(value), error


def unbiased(gram, weights):
    """One over the similarity of one prompt, and its error by leaving out rows in turn."""
    n, similarity = weights.size, similarity_of(gram, weights)
    if n < 3:
        return 1 if n == 1 else 1 / similarity, np.nan
    deleted = [similarity_of(*without(row, gram, weights)) for row in range(n)]
    return 1 / similarity, math.sqrt((n - 1) * np.var(deleted)) / similarity**2


def alone(gram, weights, **options):
    """The score of the rows of one prompt, its error, and the similarity of its outputs."""
    if options == {"order": 2}:
        score, error = unbiased(gram, weights)
    else:
        score, error = plug_in(gram, weights, **of_all(options))
    return score, error if weights.size >= 5 else np.nan, similarity_of(gram, weights)


@pytest.mark.parametrize(
    ("options", "weighted"),
    [*((each, True) for each in ENTROPIES), *((each, False) for each in ENTROPIES[:2])],
    ids=str,
)
def test_every_prompt_is_scored_as_in_a_loop(options, weighted, x64, monkeypatch):
    outputs, prompts, prompt = draw()
    weights = np.random.default_rng(1).uniform(0.2, 1, prompt.size) if weighted else np.ones(38)
    pairs = cv.Pairs(outputs, prompts, **kernels(), weights=weights if weighted else None)
    monkeypatch.setattr(prompt_tables, "_ENTRIES", 150)  # Two small prompts at a time.
    table = cv.prompt_table(pairs, **options)
    shares = weights / weights.sum()
    assert [own.row for own in table.prompts] == sorted(np.argmax(prompt == p) for p in range(6))
    found = cv.contributions(pairs, **of_all(options))
    assert table.decomposition == found.decomposition
    for own in table.prompts:
        of = prompt == prompt[own.row]
        assert (own.prompt, own.n) == (None, int(of.sum()))
        assert own.share == pytest.approx(shares[of].sum())
        expected = alone(gaussian_gram(outputs[of], 0.8), shares[of], **options)
        actual = [own.score, own.standard_error, own.similarity]
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9, equal_nan=True)
        sums = [of_rows[of] @ shares[of] for of_rows in found.influences]
        np.testing.assert_allclose(own.contributions, sums, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_integer_weights_are_numbers_of_equal_rows(order, x64):
    outputs, prompts, prompt = draw()
    copies = np.random.default_rng(2).integers(1, 4, prompt.size)
    copies[(prompt == 4) | (np.arange(prompt.size) == np.argmax(prompt == 3))] = 0
    *repeated, labels = (np.repeat(a, copies, axis=0) for a in (outputs, prompts, prompt))
    expected = cv.prompt_table(*repeated, **kernels(), order=order, labels=labels)
    options = {"weights": copies, "order": order, "labels": prompt}
    table = cv.prompt_table(outputs, prompts, **kernels(), **options)
    found = {own.prompt: own for own in table.prompts}
    absent = found.pop(4)
    assert len(found) == len(expected.prompts)
    for other in expected.prompts:
        own = found[other.prompt]
        assert own.n == other.n
        for one, two in zip(own[3:], other[3:], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-9, equal_nan=True)
    assert (absent.n, absent.share) == (0, 0) and math.isnan(absent.score)
    assert math.isnan(absent.similarity) and all(value == 0 for value in absent.contributions)


def test_scores_of_prompts_make_up_the_conditional_score(x64):
    """Where the kernel tells all prompts apart, H(X|T) is the mean of their entropies."""
    outputs, _, prompt = draw()
    far = 100.0 * prompt[:, None]
    table = cv.prompt_table(outputs, far, **kernels())
    whole = float(table.decomposition.conditional)
    logs = np.log([own.score for own in table.prompts])
    shares = np.array([own.share for own in table.prompts])
    assert math.log(whole) == pytest.approx(shares @ logs)
    told = [own.contributions.conditional for own in table.prompts]
    np.testing.assert_allclose(told, whole * shares * (logs - math.log(whole)), atol=1e-9)


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
def test_outputs_that_do_not_vary_have_no_error(order, scores):
    data = rows_of(range(6), [0] * 6, [0, 1] * 3, [0, 0, 0, 0, 1])
    table = cv.prompt_table(*data, **kernels(), order=order)
    assert [own.similarity for own in table.prompts[:2]] == [0, 1]
    np.testing.assert_allclose([own.score for own in table.prompts[:3]], scores, rtol=1e-5)
    assert [math.isnan(own.standard_error) for own in table.prompts] == [True, True, True, False]


def test_prompts_with_one_output_are_counted_and_not_compared():
    outputs, prompts, _ = draw((1,) * 6)
    table = cv.prompt_table(outputs, prompts, **kernels(), order=1)
    assert [(own.n, own.score) for own in table.prompts] == [(1, 1.0)] * 6
    assert table.least_diverse(1) == table.most_diverse(1) == []
    assert any(own.contributions.vendi != 0 for own in table.prompts)
    assert str(table).splitlines()[1].startswith("no prompt has two outputs")
    papers = cv.prompt_table(outputs, 0 * prompts, **kernels(), order=2, unbiased=False)
    assert_close(np.float32(papers.prompts[0].score), cv.rke(outputs, kernel=cv.Gaussian(0.8)))


def test_more_outputs_of_a_prompt_than_fit_in_memory_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: memory.needed(18, np.float32))
    with pytest.raises(ValueError, match="n x n arrays of the 19 outputs of one prompt"):
        cv.prompt_table(*draw()[:2], **kernels(), order=2)


def test_a_table_is_printed_and_written():
    data = rows_of([0, 1], [5, 5], [0, 0, 1, 1, 2, 2], [3], [0, 0, 1])
    words = np.repeat(["a, b", "c", "long " * 20, "d", "e"], (2, 2, 6, 1, 3))
    table = cv.prompt_table(*data, **kernels(), order=2, labels=words)
    lines = str(table).splitlines()
    assert lines[0] == "5 prompts, the least diverse first"
    assert lines[1].split() == ["prompt", "n", "similarity", "RKE", "to", "Conditional-RKE"]
    assert [line.split()[0] for line in lines[3:7]] == ["c", "e", "long", "a,"]
    assert lines[6].split()[2:5] == ["2", "0.000", "inf"]
    assert lines[5].startswith("long " * 9 + "...  6       0.200    5  ")
    assert "prompts without a similarity, because they have one output: 1" in lines
    assert "prompts whose outputs all count as different: 1" in lines
    many = cv.prompt_table(*draw((2,) * 7)[:2], **kernels(), order=math.inf)
    lines = str(many).splitlines()
    assert lines[6] == "..." and lines[3].startswith(f"row {many.least_diverse(1)[0].row} ")
    read, plain = csv.DictReader(io.StringIO(table.comma_separated())), table.as_dict()
    assert (plain["order"], many.as_dict()["order"]) == (2, "inf")
    for line, own, entry in zip(read, table.prompts, plain["prompts"], strict=True):
        assert (line["prompt"], line["order"], line["truncation"]) == (own.prompt, "2", "")
        assert entry["contribution_to_information"] == own.contributions.information
        for name, value in list(entry.items())[1:]:
            assert line[name] == ("" if math.isnan(value) else repr(value))
