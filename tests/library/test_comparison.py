"""Models side by side: rates of false and of true differences, what is paired, what is shown."""

import itertools
import json
import re
import warnings

import canonical
import jax
import numpy as np
import pytest
from canonical import FEW_PROMPTS, OUTPUTS, SCORES, N, errors_at
from oracles import assert_close, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.base import files

WHATEVER = {"one_population": True, "profile": False}
KERNELS = {"output_kernel": cv.Gaussian(2.0), "prompt_kernel": cv.Gaussian(1.5)}


def _prompts(rng, count, repeats):
    return np.repeat(rng.normal(size=(count, 2)), repeats, axis=0).astype(np.float32)


def _outputs(rng, prompts, spread):
    """What a model makes of its prompts: X = T + spread * noise."""
    return (prompts + spread * rng.normal(size=prompts.shape)).astype(np.float32)


def _three(*, repeats=2, dtype=np.float32, seed=0):
    """Three models, "one" and "two" alike, of the same repeated prompts."""
    rng = np.random.default_rng(seed)
    prompts = _prompts(rng, N // repeats, repeats)
    spreads = {"one": 0.5, "two": 0.5, "three": 1.5}
    models = {name: _outputs(rng, prompts, s).astype(dtype) for name, s in spreads.items()}
    return models, prompts.astype(dtype)


@pytest.mark.parametrize("kind, x64_on", [("float32", False), ("float64", False), ("int64", True)])
def test_models_are_matched_by_prompts_in_any_order_of_rows(kind, x64_on):
    """Rows permuted in every model but the first give the same groups: the same numbers."""
    models, prompts = _three()
    prompts = (1000 * prompts).astype(kind)
    kernels = KERNELS | {"prompt_kernel": cv.Gaussian(1500.0)}
    rng = np.random.default_rng(1)
    own, permuted = {}, {}
    for name, outputs in models.items():
        order = rng.permutation(len(outputs)) if permuted else np.arange(len(outputs))
        permuted[name], own[name] = outputs[order], prompts[order]
    with jax.enable_x64(x64_on), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "prompts: float64 input")
        options = kernels | {"orders": [2], "profile": False}
        by_rows = cv.compare(models, prompts, **options)
        by_prompts = cv.compare(permuted, own, **options)
    assert (by_rows.matched, by_prompts.matched) == ("rows", "prompts")
    for one, two in zip(by_rows.rankings, by_prompts.rankings, strict=True):
        for a, b in zip(one.differences, two.differences, strict=True):
            assert a[:2] == b[:2]
            np.testing.assert_allclose(b[2:10], a[2:10], rtol=2e-2, atol=1e-9)


def _evaluate(models, **options):
    return cv.evaluate(models["one"], **options)


@pytest.mark.parametrize("call", [pytest.param(_evaluate, marks=pytest.mark.slow), cv.compare])
def test_every_argument_changes_the_result(call):
    (models, prompts), (others, other_prompts) = _three(), _three(seed=1)
    default = {"models": models, "prompts": prompts, "orders": [1], "groups": 8, "rule": "median"}
    default |= {"similar_prompts": True}
    changes = {"models": others, "prompts": other_prompts, "rule": "variance", "orders": [0.5]}
    changes |= {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(1.0)}
    changes |= {"truncation": 3, "groups": 7, "seed": 1, "similar_prompts": False}
    if call is cv.compare:
        default["profile"], changes["level"], changes["equal_ratio"] = False, 1 - 1e-9, 3.0
    reference = _numbers(call(**default))
    for name, value in changes.items():
        changed = _numbers(call(**(default | {name: value})))
        assert np.abs(changed / reference - 1).max() > 1e-3, name


def _numbers(result):
    if isinstance(result, cv.inference.Evaluation):
        (scored,) = result.orders
        return np.array([*scored.decomposition.scores, *scored.standard_errors])
    numbers = []
    for one, two in itertools.combinations(sorted(result.models), 2):
        for ranking in result.rankings:
            difference = ranking.difference(one, two)
            numbers += [ranking.values[one], *difference[2:4], difference.equal_p_value]
            numbers.append(len({*ranking.letters.values()}))
    return np.array(numbers)


def test_the_models_have_equal_parts_in_the_bandwidth():
    """Medians: 1 within each model, 100 between them. Of all rows few pairs are of both models."""
    few = np.tile([[0.0], [1.0]], (20, 1)).astype(np.float32)
    many = np.tile([[100.0], [101.0]], (200, 1)).astype(np.float32)
    found = cv.compare(
        {"few": few, "many": many}, rule="median", orders=[2], groups=4, profile=False
    )
    assert found.bandwidths["outputs"].bandwidth > 90


def _equally_likely(shapes):
    """Ten equally likely answers to prompts of each model, (prompts, answers to each)."""
    rng = np.random.default_rng(0)
    models = {m: rng.integers(10, size=(p * k, 1)) for m, (p, k) in shapes.items()}
    prompts = {m: np.repeat(ord(m) * 99 + np.arange(p), k)[:, None] for m, (p, k) in shapes.items()}
    return models, prompts


@pytest.mark.parametrize("unbiased", [True, False])
def test_models_of_other_numbers_of_answers_are_compared_at_one_design(x64, unbiased):
    """Conditional-RKE of 20 prompts and k answers is 1 / (1 / k + (1 - 1 / k) of equal answers)."""
    models, prompts = _equally_likely({"a": (40, 10), "b": (20, 20), "c": (20, 20)})
    options = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator(), "orders": [2]}
    found = cv.compare(models, prompts, **options, unbiased=unbiased, **WHATEVER)
    ranking, share = found.ranking("conditional", 2), 0 if unbiased else 1 / 10
    assert found.reason is None and ranking.tested and ranking.unbiased == unbiased
    assert found.at == (None if unbiased else (20, 10))
    for name, outputs in models.items():
        counts = [np.bincount(of) for of in outputs.reshape(-1, {"a": 10}.get(name, 20))]
        equal = [np.sum(of * (of - 1)) / of.sum() / (of.sum() - 1) for of in counts]
        assert_close(ranking.values[name], 1 / (share + (1 - share) * np.mean(equal)))


@pytest.mark.filterwarnings("ignore:.*all kernel values between")
def test_a_model_keeps_its_score_beside_one_of_single_answers():
    """No two prompts of that model are alike, so that it has no number, and no rank."""
    rng = np.random.default_rng(0)
    models = {name: rng.integers(3, size=(n, 1)) for name, n in (("a", 30), ("b", 60))}
    prompts = {"a": np.arange(30)[:, None], "b": np.arange(60)[:, None] // 3}
    exact = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    found = cv.compare(models, prompts, **exact, orders=[2], profile=False)
    alone = cv.evaluate(models["b"], prompts["b"], **exact, orders=[2]).order(2).population
    ranking = found.ranking("conditional", 2)
    value, total = ranking.values["b"], found.ranking("vendi", 2).values["b"]
    assert_close(np.array([value, *ranking.intervals["b"]]), [alone.values[1], *alone.intervals[1]])
    assert (str(ranking), ranking.best) == ("b; no number for a", ["b"])
    assert [*ranking.values] == ["b", "a"]
    assert_close(found.ranking("information", 2).values["b"], total / value)
    assert "no two rows have similar prompts" in found.reason


def test_progress_is_of_every_model():
    models, prompts = _three()
    said = []
    cv.compare(models, prompts, orders=[1], groups=5, profile=False, progress=said.append)
    assert said[:2] == ["bandwidth of outputs", "order 1 of one"]  # Prompts repeat.
    assert said.count("errors of order 1: 4 of 5 groups done") == 3


@pytest.fixture(scope="module")
def compared():
    outputs = (0.5 * OUTPUTS, 0.5 * OUTPUTS[::-1], 1.5 * OUTPUTS)
    models = dict(zip(("one", "two", "three"), outputs, strict=True))
    return cv.compare(models, FEW_PROMPTS, **canonical.KERNELS, orders=[1, 2])


def test_a_comparison_shows_every_number_as_data_lines_and_tables(compared):
    content = json.loads(json.dumps(files.jsonable(compared.as_dict()), allow_nan=False))
    assert content["n"] == {"one": N, "two": N, "three": N}
    assert content["bandwidths"]["prompts"]["rule"] == "given"
    assert (content["matched"], content["level"], content["seed"]) == ("rows", 0.05, 0)
    assert "sampling only" in content["errors_cover"]
    for entry, ranking in zip(content["rankings"], compared.rankings, strict=True):
        for name in ("score", "order", "letters"):
            assert entry[name] == getattr(ranking, name)
        assert list(entry["values"].items()) == list(ranking.values.items())
        assert entry["differences"][0] == ranking.differences[0]._asdict()
    lines = [line for line in compared.lines() if line["score"] in SCORES]
    pairs = [line for line in compared.pair_lines() if line["score"] in SCORES]
    assert len(lines) == len(pairs) == 6 * 3
    for line in lines:
        ranking, model = compared.ranking(line["score"], line["order"]), line["model"]
        columns = {"value": "values", "standard_error": "standard_errors", "letters": "letters"}
        assert {n: line[n] for n in columns} == {
            n: getattr(ranking, columns[n])[model] for n in columns
        }
    for line in pairs:
        difference = compared.ranking(line["score"], line["order"]).difference(
            line["first"], line["second"]
        )
        expected = difference._asdict() | {"adjusted_p_value": difference.adjusted}
        for name in line.keys() & expected.keys():
            assert line[name] == pytest.approx(expected[name], nan_ok=True), name
        assert {*expected} - {*line} == {"adjusted"}
    text = compared.details()
    row = next(line for line in text.splitlines() if re.match(r"three +\d", line))
    letters = [cell for cell in row.split() if cell.isalpha() and len(cell) == 1]
    assert letters == [ranking.letters["three"] for ranking in compared.rankings]
    for words in ("leaving out 8 groups of prompts", "Holm", "outputs: 1, given"):
        assert words in text
    with pytest.raises(KeyError, match=r"\('vendi', 3\): computed were \('vendi', 1\)"):
        compared.ranking("vendi", 3)


OF_THREE, OF_PROMPTS = _three()
BAD = {
    "outputs of each model by its": {"models": [*OF_THREE.values()]},
    "received 0": {"models": dict(enumerate(OF_THREE.values()))},
    r"expected names of printable text, received 'one\\n\\x1b'": {"models": {"one\n\x1b": OUTPUTS}},
    r"prompts: expected those of \['one', 'three', 'two'\], received those of": {
        "prompts": dict.fromkeys(("one", "two", "four"), OF_PROMPTS)
    },
    "^one: .*48 outputs and 47 prompts": {"prompts": OF_PROMPTS[1:]},
    "^one: prompts: .*row 7": {"prompts": np.where(np.arange(N)[:, None] == 7, np.nan, OF_PROMPTS)},
    "three outputs of each or more": {
        "models": {name: of[:1] for name, of in OF_THREE.items()},
        "prompts": OF_PROMPTS[:1],
    },
    "prompts: expected beside prompt_": {"prompts": None},
    "level: expected a number between 0 and 1, received 1": {"level": 1},
    "^one: groups: expected 48 labels": {"groups": np.arange(47)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message):
    options = {"models": OF_THREE, "prompts": OF_PROMPTS, **KERNELS} | BAD[message]
    with pytest.raises((TypeError, ValueError), match=message):
        cv.compare(**options)


@pytest.mark.parametrize("groups", [None, 20])
def test_a_model_that_lacks_prompts_has_the_error_of_its_own(groups):
    """The delete-one jackknife over its four prompts, in float64."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.eye(6, dtype=np.float32), 4, axis=0)
    outputs = rng.normal(size=(24, 3)).astype(np.float32)
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Indicator()}
    models, asked = ({"a": rows, "b": rows[:16]} for rows in (outputs, prompts))
    found = cv.compare(models, asked, **kernels, orders=[2], groups=groups, **WHATEVER)
    ranking = found.ranking("conditional", 2)
    assert not ranking.tested
    squares = gaussian_gram(outputs, 1.0) ** 2

    def similarity(of: list[int]) -> float:
        blocks = [squares[4 * p : 4 * p + 4, 4 * p : 4 * p + 4] for p in of]
        return float(np.mean([(block.sum() - 4) / 12 for block in blocks]))

    for name, count in (("a", 6), ("b", 4)):
        without = [similarity([q for q in range(count) if q != p]) for p in range(count)]
        expected = np.sqrt((count - 1) * np.var(without)) / similarity([*range(count)]) ** 2
        np.testing.assert_allclose(ranking.standard_errors[name], expected, rtol=1e-4)


def test_models_without_a_prompt_in_common_are_not_matched():
    """Five prompts each: as many groups, of the rows of one prompt, in each model by itself."""
    rng = np.random.default_rng(0)
    prompts = {name: _prompts(rng, 5, 8) for name in "ab"}
    models = {name: _outputs(rng, own, 0.5) for name, own in prompts.items()}
    found = cv.compare(models, prompts, **KERNELS, orders=[2], unbiased=False, profile=False)
    by = found.first.orders[0].errors_by
    assert (found.matched, by.groups, by.units) == ("none", 5, "rows of one prompt")
    for name in "ab":
        _, labels = np.unique(prompts[name][:, 0], return_inverse=True)
        options = KERNELS | {"order": 2, "groups": labels}
        expected = errors_at(models[name], prompts[name], **options)
        got = found.ranking("information", 2).standard_errors[name]
        np.testing.assert_allclose(got, expected.information, rtol=1e-4)


@pytest.mark.parametrize("distinct", [2, 7])
def test_too_few_groups_give_no_test(distinct):
    """Two prompts made equal models differ every time: information is 1 without either."""
    rng = np.random.default_rng(0)
    prompts = 3.0 * (np.arange(N) % distinct)[:, None]
    models = {name: rng.normal(size=(N, 2)) for name in ("first", "second")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "prompts: 2 distinct prompts|.*float64 input is computed")
        options = {"orders": [2], "profile": False}
        found = cv.compare(models, prompts, prompt_kernel=KERNELS["prompt_kernel"], **options)
    assert found.first.orders[0].errors_by.groups == distinct
    tested = distinct == 7
    assert (found.reason is None) == tested
    for ranking in found.rankings:
        (difference,) = ranking.differences
        assert np.isfinite([difference.p_value, difference.adjusted]).all() == tested
        defined = distinct > 2  # One prompt says nothing of the similarity between prompts.
        assert np.isfinite(list(ranking.standard_errors.values())).all() == defined
        assert all(ranking.letters.values()) == tested
    words = f"differences are not tested: {distinct} groups of prompts are too few"
    assert (words in found.details()) != tested
    assert ("(in descending order; not tested)" in found.details()) != tested
    assert "nan" not in found.details() + found.comma_separated()


def test_a_group_that_holds_all_but_one_prompt_leaves_conditional_untested():
    """Eight groups; prompts differ inside one of them alone. Vendi of the outputs is tested."""
    rng = np.random.default_rng(0)
    groups = np.arange(N) % 8
    prompts = np.where(groups == 0, np.arange(N), 0)[:, None].astype(np.float32)
    models = {m: s * rng.normal(size=(N, 2)).astype(np.float32) for s, m in ((1, "a"), (3, "b"))}
    with pytest.warns(UserWarning, match="give no standard errors of conditional and information"):
        found = cv.compare(models, prompts, **KERNELS, orders=[1], groups=groups, profile=False)
    assert all(found.ranking("vendi", 1).letters.values())
    for score in ("conditional", "information"):
        assert not any(found.ranking(score, 1).letters.values())
    words = "no test of Conditional-Vendi and Information-Vendi: without one of the groups all rows"
    assert words in found.details()
    assert "(in descending order; not tested)" in found.details()
