"""The studies of scores against the sample size, and of attributes."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import entropy, gaussian_gram
from small import flags, small_pairs, widths, write
from studies import execute

from experiments import lab
from experiments.conditional_vendi import convergence
from experiments.conditional_vendi.attributes import Attributes, agreement
from experiments.conditional_vendi.convergence import Convergence
from experiments.data import PairedEmbeddings

small_convergence = small_pairs(
    *flags(sizes="40,80,150", repeats=2, rules="median", truncation="scaled,10")
)
ROWS = 150
TERMS = {"term": ["outputs", "prompts", "joint"]}
finished = studies.finished(Convergence, small_convergence)


def test_spectra_are_the_oracles_and_those_of_all_pairs_are_taken_once(finished, tmp_path):
    study, found = finished.study, finished.found.sel(rule="median")
    assert (study.truncation, study.sizes) == (("60", "10"), (40, 80, 150))
    x, t = (np.load(flag.partition("=")[2]) for flag in small_convergence(tmp_path)[:2])
    (chosen,) = study.bandwidths.axis
    x, t = gaussian_gram(x, chosen.outputs), gaussian_gram(t, chosen.prompts)
    terms = x, t, x * t
    options = {f"Vendi, t = {t}": {"truncation": t} for t in (60, 10)}
    options = {"Vendi": {}, **options, "RKE": {"order": 2}}
    expected_of = {name: [entropy(g, **of) for g in terms] for name, of in options.items()}
    others = ~np.eye(ROWS, dtype=bool)
    expected_of["RKE, unbiased"] = [-np.log(np.mean(g[others] ** 2)) for g in terms]
    assert found.curve.values.tolist() == list(expected_of)
    for name, expected in expected_of.items():
        curve = found.entropy.sel(curve=name)
        # At all pairs the random order does not matter, so the oracle needs no seed.
        for repeat in (0, 1) if "RKE" in name else (0,):
            told = curve.sel(repeat=repeat, n=ROWS).sel(TERMS)
            np.testing.assert_allclose(told, expected, rtol=2e-5)
    for repeat, sizes in enumerate(([40, 80, 150], [40, 80])):
        curve = found.entropy.sel(curve="Vendi", repeat=repeat)
        assert curve.dropna("n").n.values.tolist() == sizes
    known = found.sel(n=[40, 80, 150], repeat=0, curve="Vendi")
    assert known.method.values.tolist() == ["exact"] * 3
    vendi = convergence.scores_of(known).transpose("score", "n")
    for end in range(2):
        np.testing.assert_allclose(known.interval.sel(end=end), vendi, rtol=1e-5)
    assert (found.entropy.sel(repeat=0, n=40) != found.entropy.sel(repeat=1, n=40)).any()


def test_sizes_end_above_the_truncation_and_stop_where_spectra_take_hours():
    """Above a size one random order is enough."""
    study = Convergence(sizes=(40, 80, 150), n=200, repeats=2, repeated_up_to=80)
    assert [study.spectra_of(repeat) for repeat in (0, 1)] == [[40, 80, 150], [40, 80]]
    assert [study.order_two_sizes(repeat)[-1] for repeat in (0, 1)] == [200, 80]
    for n in (2, 3, 150, 600, 1652, 8091, 11_822, 10**6):
        sizes = convergence.sizes_of(None, n)
        assert sizes[-1] == min(n, 20_000) and sizes == tuple(sorted(set(sizes))) and sizes[0] > 1
        if n >= 150:
            kept = int(convergence._truncation("scaled", sizes[-1]))
            assert sum(size > kept for size in sizes) == 2


@pytest.mark.slow
def test_estimated_curves_are_saved_with_their_intervals(tmp_path, monkeypatch):
    """At all pairs the random order does not matter, so the two runs estimate the same."""
    monkeypatch.setattr(convergence, "_EXACT_UP_TO", 100)
    generator = np.random.default_rng(1)
    outputs, prompts = (generator.normal(size=(600, d)) for d in (6, 4))
    own = write(tmp_path, outputs=outputs, prompts=prompts) + widths(0.7)
    own += flags(repeats=1, truncation=40, sizes=600)
    exact = execute(Convergence, tmp_path / "exact", *own, "--method=exact")
    stored = execute(Convergence, tmp_path / "stored", *own, "--rtol=0.002")
    assert stored.found.method.sel(n=600).item() == "stored"
    values, estimates = (convergence.scores_of(run.found) for run in (exact, stored))
    place = {"n": 600, "score": "conditional", "curve": ["Vendi", "Vendi, t = 40"]}
    low, high = (stored.found.interval.sel(place).isel(end=end) for end in range(2))
    value, half = values.sel(place), (high - low) / 2
    assert ((0 < half) & (half < 0.0021 * value)).all()
    assert ((low - half / 2 < value) & (value < high + half / 2)).all()
    for score, errors in abs(estimates / values - 1).groupby("score"):
        found = convergence.deviation(stored, exact, score)
        assert found and 0 < found < 0.003 and found == pytest.approx(errors.max().item())


def test_mean_and_spread_are_over_the_repeats_that_have_a_size():
    """Scores 1, 4, 9, 5 and 3, 8, -, 5 at four sizes, of which the last is all pairs."""
    vendi = np.log(np.array([[1, 4, 9, 5], [3, 8, np.nan, 5]]))
    terms = np.stack([vendi, 0 * vendi, vendi], axis=1)
    labels = TERMS | {"n": [10, 20, 30, 40]}
    found = xr.Dataset({"entropy": (("repeat", "term", "n"), terms)}, labels)
    over = convergence.over_orders(found).sel(score="vendi")
    np.testing.assert_allclose(over.value, [2, 6, 9, 5])
    np.testing.assert_array_equal(over.orders, [2, 2, 1, 2])
    # Distances to means 1/2, 1/3, 0 add 5, 5/3, -20/3 by 10, 10, 20 pairs of 40, in both orders.
    constant = np.mean([2 * 25 / 7.5, 2 * 25 / 9 / 7.5, 2 * 400 / 9 / 10])
    np.testing.assert_allclose(over.error, over.value * np.sqrt(constant / found.n))
    assert np.isnan(convergence.over_orders(found.isel(repeat=[0])).error).all()


def test_samples_of_a_known_deviation_have_it_at_every_size():
    """Means of the first n of 400 numbers, in many orders: the deviation falls with √n."""
    numbers = np.exp(np.random.default_rng(0).normal(size=400))
    orders = np.random.default_rng(1).permuted(np.tile(numbers, (300, 1)), axis=1)
    sizes = np.array([20, 50, 100, 200, 400])
    means = np.log(np.cumsum(orders, axis=1)[:, sizes - 1] / sizes)
    terms = np.stack([means, 0 * means, means], axis=1)
    found = xr.Dataset({"entropy": (("repeat", "term", "n"), terms)}, TERMS | {"n": sizes})
    error = convergence.over_orders(found).sel(score="vendi").error
    np.testing.assert_allclose(error, numbers.std(ddof=1) / np.sqrt(sizes), rtol=0.1)


@pytest.mark.parametrize(
    ("values", "errors", "start", "words"),
    [
        ([5, 9.9, 10.1, 10], [0, 0, 0, 0], 20, "settles at n = 20"),
        ([10, 10, 10, 10], [0, 0, 0, 0], 10, "settles at n = 10"),
        ([10, 5, 10, 10], [0, 0, 0, 0], 30, "may settle at n = 30"),
        ([1, 2, 3, 4], [0, 0, 0, 0], None, "does not settle"),
        ([1, 2, 3, np.nan], [0, 0, 0, 0], None, "does not settle"),
        # Two deviations are more than 2%, then less; the mean is off by more than its own error.
        ([10, 10, 10, 10], [0.2, 0.09, 0.08, 0.07], 20, "settles at n = 20"),
        ([10, 9.95, 10, 10], [0.2, 0.09, 0.08, 0.07], 20, "settles at n = 20"),
        ([10, 9.9, 10, 10], [0.2, 0.09, 0.08, 0.07], 30, "may settle at n = 30"),
        ([10, 10, 10, 10], [np.nan] * 4, None, "has one order"),
    ],
)
def test_a_score_settles_where_single_samples_stay_near_its_end_on_twice_the_data(
    values, errors, start, words
):
    """Of 40 pairs: from 20 on, not from 30."""
    n = {"n": [10, 20, 30, 40]}
    of = {"value": values, "error": errors, "orders": [3, 3, 3, 3]}
    curve = xr.Dataset({name: ("n", np.array(v, float)) for name, v in of.items()}, n)
    assert convergence.samples_settle(curve) == start
    assert convergence.verdict(curve) == (words, start if words[0] == "s" else None)
    assert convergence.samples_settle(curve, near=10.0) == (None if np.isnan(errors[0]) else 10)


def test_estimates_are_compared_where_pairs_orders_and_kernels_are_the_same(finished):
    def changed(**fields):
        study = dataclasses.replace(finished.study, method="exact", **fields)
        return dataclasses.replace(finished, study=study)

    known = changed()
    assert convergence.deviation(finished, known, "vendi") == 0
    (chosen,) = finished.study.bandwidths.axis
    other = lab.Rules(axis=(dataclasses.replace(chosen, prompts=1.01 * chosen.prompts),))
    assert convergence.deviation(finished, changed(bandwidths=other), "vendi") is None
    for changes in ({"arrays": {"outputs": "of others"}}, {"seed": 1}):
        stranger = dataclasses.replace(known, identity=finished.identity | changes)
        assert convergence.deviation(finished, stranger, "vendi") is None


PROMPTS, MODELS = 6, 4
# Of four models, so many kinds of pictures in equal shares, in every prompt of the category.
KINDS = {"colours": 1, "counting": 2, "Reddit": 4, "styles": 2}


def known(seed=0):
    """Four pictures of each prompt, in a random order; no two prompts of a category share one."""
    prompt = np.repeat(np.arange(PROMPTS * len(KINDS)), MODELS)
    model = np.tile(np.arange(MODELS), PROMPTS * len(KINDS))
    types = np.array(list(KINDS))[prompt // PROMPTS]
    outputs = 13.0 * (prompt % 12) + 3 * (model % np.array([KINDS[t] for t in types]))
    outputs += np.random.default_rng(seed).normal(0, 0.01, len(prompt))
    order = np.random.default_rng(seed + 1).permutation(len(prompt))
    labels = {"models": np.char.add("model ", model.astype(str)), "prompt": prompt, "types": types}
    arrays = {"outputs": outputs[:, None], "prompts": prompt[:, None] * 1.0, **labels}
    return {role: values[order] for role, values in arrays.items()}


def small_attributes(folder):
    arrays = known()
    noise = np.random.default_rng(0).normal(size=(len(arrays["prompts"]), 2))
    return [*write(folder, **arrays, second=noise), *widths(1), *flags(equal=3, scales=1)]


run = studies.finished(Attributes, small_attributes)


def test_a_category_has_the_number_of_different_outputs_to_one_prompt(run):
    """Of the pairs of two models all, a third and none are alike."""
    found = run.found.sel(encoder="outputs", scale=1).sel(category=list(KINDS))
    pairs = np.array([1, 1 / 3, 0, 1 / 3])
    np.testing.assert_allclose(1 / found.value, pairs, atol=1e-3)
    np.testing.assert_allclose(1 / found.equal, pairs, atol=1e-3)
    assert (1 / found.other < 1e-3).all() and found.alike < 1e-3
    # Of each two once: fewer of colours, more of Reddit, but none of two kinds.
    apart = found.apart.sel(than=["Reddit", "styles"])
    assert apart.values.tolist() == [[0, -1], [0, 0], [0, 1], [0, 0]]
    found: Any = xr.concat([run.found] * 2, "encoder").sel(encoder="outputs")
    assert agreement(found).sel(of="both").item() == agreement(found).sel(of="any").item() == 5


def test_intervals_tests_and_the_ratio_are_over_prompts():
    rng = np.random.default_rng(3)
    arrays = known() | {"outputs": rng.normal(size=(PROMPTS * MODELS * len(KINDS), 2))}
    data: Any = {role: arrays.pop(role).astype("f4") for role in ("outputs", "prompts")}
    pairs = PairedEmbeddings("own", **data, description="", labels=arrays)
    setup, found = studies.computed(Attributes(equal=2), pairs)
    kinds, _, encoded = setup.state
    width = setup.study.encoders["outputs"].axis[0].outputs
    gaps = np.square(encoded["outputs"][:, :, None] - encoded["outputs"][:, None]).sum(-1)
    similar = np.exp(-gaps / width**2)
    inside = (similar.sum((1, 2)) - MODELS) / (MODELS * (MODELS - 1))
    s = inside[kinds == "counting"]
    half = 2.570582 * s.std(ddof=1) / np.sqrt(len(s)) / s.mean()  # Student's t, 5 degrees.
    got = found.sel(category="counting")
    np.testing.assert_allclose(got.value, 1 / s.mean(), rtol=1e-4)
    np.testing.assert_allclose(got.ends, np.exp([-half, half]) / s.mean(), rtol=1e-4)
    named, unnamed = inside[np.isin(kinds, ["colours", "counting"])], inside[kinds == "Reddit"]
    np.testing.assert_allclose(found.named[0], unnamed.mean() / named.mean(), rtol=1e-4)
    assert found.named[1] < found.named[0] < found.named[2]
    assert found.alike > 0.01 and (found.apart == 0).all()


def test_a_model_without_a_picture_is_refused():
    arrays = {role: values[1:] for role, values in known().items()}
    data: Any = {role: arrays.pop(role).astype("f4") for role in ("outputs", "prompts")}
    pairs = PairedEmbeddings("own", **data, description="", labels=arrays)
    with pytest.raises(ValueError, match="one output of every prompt"):
        Attributes().prepare(lambda: pairs, 0)


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (Convergence, small_convergence, "--sizes=40,1000", "between 2 and n = 150"),
    (
        Convergence,
        small_convergence,
        "--truncation=half",
        "whole numbers or 'scaled', received 'half'",
    ),
    (Convergence, small_convergence, "--kernel=cosine", "--rules"),
    (Attributes, small_attributes, "--equal=7", "at most the 6 prompts"),
)
