"""How many models are different: against loops over pairs in NumPy, by hand, errors."""

import csv
import io
import itertools
import math

import numpy as np
import precision
import pytest
import scipy.linalg
import scipy.stats
from canonical import N
from oracles import assert_close, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.base import tables
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.inference import errors as grouping
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.results.between import Between
from condvendi_jax.statistics.influences import Error, group_influences

WIDTHS = (0.8, 0.6)
LABELS = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
PAIRS = np.triu_indices(3, 1)


def draw(how, *, n=12):
    """Outputs of three models and prompts: 'shared', each model's 'own', or 'none'."""
    rng = np.random.default_rng(0)
    kinds, models, own = rng.normal(size=(7, 2)), {}, {}
    for a, name in enumerate("abc"):
        chosen = kinds[rng.integers(7, size=n + 3 * a if how == "own" else n)]
        own[name] = np.float32(chosen if how == "own" or not own else own["a"])
        noise = rng.normal(size=own[name].shape)
        models[name] = np.float32(own[name] + (0.3 + 0.4 * a) * noise)
    return models, {"shared": own["a"], "own": own, "none": None}[how]


def run(models, prompts, **options):
    kernels = {"output_kernel": cv.Gaussian(WIDTHS[0])}
    if prompts is not None:
        kernels["prompt_kernel"] = cv.Gaussian(WIDTHS[1])
    return cv.between_models(models, prompts, **kernels, **options)


def rows_of(models, prompts):
    """The model, prompt and weight of each row, and whether prompts repeat; each counts once."""
    model = np.repeat(np.arange(len(models)), [len(outputs) for outputs in models.values()])
    kind = np.zeros(model.size, int)
    if prompts is not None:
        asked = np.concatenate([*of_each(models, prompts).values()])
        kind = np.unique(asked, axis=0, return_inverse=True)[1].ravel()
    number = np.unique([model, kind], axis=1, return_inverse=True)[1].ravel()
    counts = np.bincount(number)[number]
    several = ~np.isin(kind, kind[counts == 1])
    least = min(np.mean(several[model == a]) for a in range(len(models)))
    repeat = least >= 0.5 and kind.any()
    return model, kind, (several if repeat else 1) / counts, repeat


def of_each(models, prompts):
    return prompts if isinstance(prompts, dict) else dict.fromkeys(models, prompts)


def unbiased(models, prompts, kept=1):
    """exp I(X; M | T), exp H(M | T) and overlaps, from different rows (some, by `kept`)."""
    model, kind, weights, repeat = rows_of(models, prompts)
    joint = gaussian_gram(np.concatenate([*models.values()]), WIDTHS[0]) ** 2
    of_prompts, other = np.ones_like(joint), ~np.eye(kind.size, dtype=bool)
    if prompts is not None:
        asked = np.concatenate([*of_each(models, prompts).values()])
        of_prompts = gaussian_gram(asked, WIDTHS[1]) ** 2
    joint *= of_prompts
    counted = kind[:, None] != kind if kind.any() else other
    if repeat:  # The mean over the other answers takes the place of a row itself.
        same = other & (kind[:, None] == kind) & (model[:, None] == model)
        mean = np.sum(joint * same, axis=1) / np.maximum(np.sum(same, axis=1), 1)
        np.fill_diagonal(joint, mean)
        counted = np.ones_like(joint)
    counted = counted * np.outer(weights * kept, weights * kept)
    of_model = np.float64(model == np.arange(len(models))[:, None])

    def means(squares):
        return (of_model @ (squares * counted) @ of_model.T) / (of_model @ counted @ of_model.T)

    def number(of):
        return len(models) * np.trace(of) / of.sum()

    def common(of):
        return 2 * of / np.add.outer(np.diag(of), np.diag(of))

    joint, of_prompts = means(joint), means(of_prompts)
    overlaps = common(joint) / common(of_prompts)
    np.fill_diagonal(overlaps, 1)
    return number(joint) / number(of_prompts), len(models) / number(of_prompts), overlaps


@pytest.mark.parametrize("how", ["shared", "own", "none"])
def test_numbers_overlaps_and_errors_are_those_of_all_pairs(how, x64):
    """Errors by groups left out of all models: each keeps its share, whichever rows leave."""
    models, prompts = draw(how)
    found, key, deleted = run(models, prompts, groups=3, seed=3), Keys(3).groups, []
    number, largest, overlaps = unbiased(models, prompts)
    received = found.number, found.largest, found.overlaps
    for one, expected in zip(received, (number, largest, overlaps), strict=True):
        assert_close(np.float64(one), expected)
    assert (found.models, found.paired) == (("a", "b", "c"), how != "none")
    pairs = Pairs.of_models(models, prompts, rule="median", key=key)
    groups = grouping.group_models(pairs, 3, key=key)[0]
    group = np.concatenate([of.membership for of in groups.values()])
    for left in range(3):
        without, _, of_pairs = unbiased(models, prompts, group != left)
        deleted.append([without, *of_pairs[PAIRS]])
    model, _, weights, _ = rows_of(models, prompts)
    each = [np.bincount(group[model == a], weights[model == a], 3) for a in range(3)]
    shares = np.mean([of / of.sum() for of in each], axis=0)
    received = [found.error.influences[0], *found.overlap_influences[PAIRS]]
    columns = zip(received, [number, *overlaps[PAIRS]], np.transpose(deleted), strict=True)
    for of, whole, rest in columns:
        np.testing.assert_allclose(of, group_influences(whole, rest, shares), atol=1e-8)
    if how == "none":  # Of one size: the usual formula.
        errors = [found.standard_error, *found.overlap_errors[PAIRS]]
        np.testing.assert_allclose(errors, np.sqrt(2 * np.var(deleted, axis=0)), rtol=1e-6)
    width = scipy.stats.t.isf(0.025, 2) * found.standard_error
    assert found.error.interval() == pytest.approx((number - width, number + width), rel=1e-5)
    without = run(models, prompts, errors=False)
    assert math.isnan(without.standard_error) and np.isnan(without.overlap_errors).all()


def test_equal_models_count_as_one_and_disjoint_ones_as_all(x64):
    models, prompts = draw("shared")
    same = run(dict.fromkeys("abc", prompts), prompts)  # One answer to each prompt.
    assert_close(np.float32([same.number, *same.overlaps.ravel()]), np.ones(10))
    assert same.standard_error < 1e-5
    apart = {name: x + 50 * k for k, (name, x) in enumerate(models.items())}
    found = run(apart, prompts, errors=False)
    assert_close(np.float32([found.number, *found.overlaps.ravel()]), [3, *np.eye(3).ravel()])
    assert found.largest == 3


def test_prompts_of_their_own_can_bring_the_number_below_one_and_leave_no_overlap():
    """J = 1/4 within and between, T = 1/2 and 1/4: (3/8) / (1/2) = 3/4; overlap 1 / (1/2)."""
    models = {"a": [[0], [0], [1], [2]], "b": [[0], [0], [3], [4]]}
    prompts = {"a": [[0], [0], [1], [1]], "b": [[0], [0], [2], [2]]}
    found = cv.between_models(models, prompts, **LABELS, errors=False)
    received = [found.number, found.largest, found.overlaps[0, 1]]
    np.testing.assert_allclose(received, [0.75, 1.5, 2], rtol=1e-6)
    assert "0.75 of 2 (at most 1.5, because prompts differ between models)" in str(found)
    found = cv.between_models(models, prompts | {"b": [[2], [2], [3], [3]]}, **LABELS)
    np.testing.assert_allclose([found.number, found.largest], 1, rtol=1e-5)
    assert math.isnan(found.overlaps[0, 1]) and math.isnan(found.overlap_errors[0, 1])
    assert str(found).splitlines()[3].split() == ["a", "1", "-"]


def test_models_far_apart_keep_the_distances_within_each():
    """Each model alone is well resolved by a matrix product, and all of them together are not."""
    rng = np.random.default_rng(0)
    spread = [1e-3 * rng.integers(0, 3, (9, 1)) for _ in range(2)]
    models = {"a": spread[0].astype(np.float32), "b": (spread[1] + 1e3).astype(np.float32)}
    found = cv.between_models(models, output_kernel=cv.Gaussian(1e-3), errors=False)
    assert_close(np.float32(found.number), 2)
    assert_close(found.overlaps.astype(np.float32), np.eye(2))


def test_every_argument_changes_the_answer():
    models, _ = draw("none", n=N)
    prompts, seen = np.random.default_rng(1).normal(size=(N, 2)).astype(np.float32), []
    found, other = (run(models, prompts, seed=seed) for seed in (0, 1))
    assert found.groups == 20
    assert abs(other.standard_error / found.standard_error - 1) > 1e-3
    kernels = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.6)}
    choices = [kernels, {"rule": "median", "progress": seen.append}]
    numbers = [cv.between_models(models, prompts, **c, errors=False).number for c in choices]
    assert abs(numbers[0] - numbers[1]) > 1e-3
    assert {"between models", "bandwidth of prompts"} <= {*seen}


def test_results_are_plain_data_and_print_as_text():
    found = run(*draw("shared"))
    plain = found.as_dict()
    assert (plain["number"], plain["largest"], plain["groups"]) == (found.number, 3, found.groups)
    first, second, value, error, *_ = plain["overlaps"][1].values()
    assert (first, second, value) == ("a", "c", found.overlaps[0, 2])
    assert error == found.overlap_errors[0, 2] > 0
    line, _, _, row, *_, last = str(found).splitlines()
    start = "effective number of different models given the prompts, order 2: "
    width = scipy.stats.t.isf(0.025, found.groups - 1)

    def words(value, error):
        return tables.with_interval(value, (value - width * error, value + width * error))

    assert line == start + words(found.number, found.standard_error) + " of 3"
    cell = words(found.overlaps[0, 1], found.overlap_errors[0, 1])
    assert row.split()[:5] == ["a", "1", *cell.split()]
    assert last.endswith(f"leaving out {found.groups} groups of prompts")


def test_overlaps_and_small_errors_are_shown_as_what_they_are():
    """Of 20 groups with influences of 0.005 the interval is 2.093 * 0.005 to each side."""
    for overlap, cell in ((1.05, "1.05"), (1.2, "unknown")):
        overlaps = np.array([[1, overlap], [overlap, 1]])
        found = Between(("a", "b"), True, 1.9, 2.0, overlaps, None, None)
        assert found.table().rows[0] == ["a", "1", cell]
    for size, words in ((0.005, "1.500 [1.490, 1.510]"), (5e-6, "1.5")):
        error = Error(1.5, np.full((1, 20), size))
        found = Between(("a", "b"), True, 1.5, 2.0, overlaps, error, None)
        assert found.headline().endswith(f"order 2: {words} of 2")


@pytest.mark.parametrize(("labels", "groups"), [(50, 50), (51, 20)])
def test_up_to_fifty_labels_are_groups(labels, groups):
    rows = np.repeat(np.arange(labels), 2)[:, None]
    models = {"a": rows, "b": 2 * rows}
    assert cv.between_models(models, rows, groups=rows[:, 0], **LABELS).groups == groups


def test_bad_input_is_refused():
    models, prompts = draw("shared")
    with pytest.raises(ValueError, match="groups: expected 12 labels"):
        run(models, prompts, groups=[0, 1])
    with pytest.raises(ValueError, match=r"models: expected at least two, received \['a'\]"):
        run({"a": models["a"]}, prompts)
    two = {name: own[:2] for name, own in models.items()}
    with pytest.warns(UserWarning, match="at least three outputs of each model: .* NaN for 2"):
        found = run(two, prompts[:2])
    assert found.number > 1 and math.isnan(found.standard_error)


def test_compare_shows_the_same_where_order_two_is_of_all_pairs():
    models, prompts = draw("shared", n=N)
    kernels = {"output_kernel": cv.Gaussian(WIDTHS[0]), "prompt_kernel": cv.Gaussian(WIDTHS[1])}
    options = {"groups": 5, "seed": 2}
    found = run(models, prompts, **options)
    options |= {"profile": False}
    compared = cv.compare(models, prompts, **kernels, orders=[1, 2], **options)
    assert compared.between.as_dict() == found.as_dict() == compared.as_dict()["between"]
    assert all(line in compared.details() for line in str(found).splitlines())
    rows, pairs = (
        list(csv.DictReader(io.StringIO(compared.comma_separated(part))))
        for part in ("models", "pairs")
    )
    received = [[*row.values()][3:7] for row in pairs if row["score"] == "overlap"]
    assert received == [[*map(str, overlap.values())] for overlap in found.lines()]
    (row,) = (row for row in rows if row["score"] == "different_models")
    assert [*row.values()][1:6] == ["2", "", "", str(found.number), str(found.standard_error)]
    for left_out in (
        {"orders": [1]},
        {"truncation": 9},
    ):  # Order two of all pairs does not give it.
        found = cv.compare(models, prompts, **kernels, errors=False, **left_out)
        assert found.between is None and "effective number" not in found.details()
    alone = cv.compare({"a": models["a"]}, prompts, **kernels, orders=[2])
    assert alone.between is None and alone.as_dict()["between"] is None
    without = cv.compare(models, prompts, **kernels, orders=[2], errors=False).between
    assert math.isnan(without.standard_error) and without.number > 1


def test_prompts_with_other_weights_are_other_prompts(x64):
    """Each model weighs the same rows in its own way: as if the rows were repeated so often."""
    rng, n = np.random.default_rng(0), 20
    prompts, models = rng.normal(size=(n, 2)), {m: rng.normal(size=(n, 3)) for m in "ab"}
    counts = {"a": np.where(np.arange(n) < 10, 5, 2), "b": np.where(np.arange(n) < 10, 2, 5)}
    repeated = {m: np.repeat(models[m], counts[m], axis=0) for m in "ab"}
    own = {m: np.repeat(prompts, counts[m], axis=0) for m in "ab"}
    expected = unbiased(repeated, own)
    for given in (prompts, {"a": prompts, "b": prompts.copy()}):
        found = run(models, given, weights=counts, errors=False)
        received = [found.number, found.largest, found.overlaps[0, 1]]
        np.testing.assert_allclose(received, [*expected[:2], expected[2][0, 1]], rtol=1e-9)


def test_a_prompt_with_one_answer_is_left_out_beside_repeated_ones(x64):
    models, prompts = draw("shared", n=24)
    prompts = np.repeat(np.arange(8.0), 3)[:, None]
    keep = np.arange(24) > 1  # One answer to prompt 0.
    fewer = {"a": models["a"][keep], "b": models["b"], "c": models["c"]}
    own = {"a": prompts[keep], "b": prompts, "c": prompts}
    found = run(fewer, own)
    expected = run({m: of[3:] for m, of in models.items()}, prompts[3:])
    assert (found.left_out, expected.left_out) == (1, 0)
    assert "leave out 1 prompts" in str(found) and "leave out" not in str(expected)
    np.testing.assert_allclose(found.overlaps, expected.overlaps, rtol=1e-9)
    split = run(models, prompts, groups=np.arange(24) % 6)
    assert math.isnan(split.standard_error) and "split the answers" in str(split)


@pytest.mark.slow
def test_blocks_of_rows_do_not_change_the_number(x64):
    models, prompts = draw("own", n=41)
    expected = run(models, prompts)
    with precision.tiles(16):
        found = run(models, prompts)
    for name in ("number", "overlaps", "standard_error", "overlap_errors"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-10)
    assert found.number == pytest.approx(unbiased(models, prompts)[0])


def test_pairs_of_one_batch_are_left_out(x64):
    """Of three answers to each of eight prompts, the first two come from one request."""
    rng, asked = np.random.default_rng(0), np.repeat(np.arange(8), 3)
    batches = np.where(np.arange(24) % 3 < 2, asked, 100 + np.arange(24))
    models = {name: rng.integers(3, size=24) for name in "ab"}
    found = cv.between_models(models, asked, errors=False, batches=batches)
    means = np.zeros((2, 2))
    for (a, x), (b, y) in itertools.product(enumerate(models.values()), repeat=2):
        pairs = asked[:, None] == asked
        if a == b:
            pairs &= batches[:, None] != batches
        means[a, b] = np.average(x[:, None] == y, weights=pairs)
    assert found.overlaps[0, 1] == pytest.approx(2 * means[0, 1] / np.trace(means), rel=1e-9)


def test_too_few_repeats_are_said_where_an_overlap_is_no_share():
    """Answers 0, 1, 2, 0 of both: 1 / 6 of the pairs of one model agree, 3 / 8 of those of two."""
    answers, prompts = np.tile([0, 1, 2, 0], 4)[:, None], np.repeat(np.arange(4), 4)
    models = {"A": answers, "B": answers}
    found = cv.between_models(models, prompts[:, None], **LABELS, errors=False)
    assert found.overlaps[0, 1] == pytest.approx(9 / 4) and found.number == pytest.approx(8 / 13)
    assert found.table().rows[0] == ["A", "1", "unknown"]
    assert found.headline().endswith("order 2: unknown (too few repeats to tell) of 2")
    assert "unknown: too few repeats to tell" in found.notes()[0]


def test_two_samples_of_one_model_overlap_by_one():
    """A and B answer 0 or 1, C 0 or 3: half the answers of a model are equal, 1/4 of A and C."""
    coins = (scipy.linalg.hadamard(32)[:, 1:31] > 0).astype(int)
    said = dict(zip("ABC", np.split(coins, 3, axis=1), strict=True))
    models = {name: (1 + 2 * (name == "C")) * of.reshape(-1, 1) for name, of in said.items()}
    found = cv.between_models(models, np.repeat(np.arange(32), 10)[:, None], **LABELS)
    assert (found.reason, found.left_out) == (None, 0)
    np.testing.assert_allclose(found.overlaps, [[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]], rtol=1e-5)
    np.testing.assert_allclose(found.number, 3 * 1.5 / 3.5, rtol=1e-5)
