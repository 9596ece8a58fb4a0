"""The convergence study: what it computes, on data whose scores an oracle knows."""

import dataclasses

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import entropy, gaussian_gram
from small import flags, small_pairs, widths, write
from studies import execute

from experiments import lab
from experiments.conditional_vendi import convergence
from experiments.conditional_vendi.convergence import Convergence

small = small_pairs("--sizes=40,80,150", "--repeats=2", "--rules=median", "--truncation=scaled,10")


ROWS = 150
TERMS = {"term": ["outputs", "prompts", "joint"]}
finished = studies.finished(Convergence)


def test_spectra_are_the_oracles_and_those_of_all_pairs_are_taken_once(finished, tmp_path):
    study, found = finished.study, finished.found.sel(rule="median")
    assert (study.truncation, study.sizes) == (("60", "10"), (40, 80, 150))
    x, t = (np.load(flag.partition("=")[2]) for flag in small(tmp_path, 0)[:2])
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


def test_above_a_size_one_random_order_is_enough():
    study = Convergence(sizes=(40, 80, 150), n=200, repeats=2, repeated_up_to=80)
    assert [study.spectra_of(repeat) for repeat in (0, 1)] == [[40, 80, 150], [40, 80]]
    assert [study.order_two_sizes(repeat)[-1] for repeat in (0, 1)] == [200, 80]


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


def changed(run, **fields):
    return dataclasses.replace(run, study=dataclasses.replace(run.study, **fields))


def test_estimates_are_compared_where_pairs_orders_and_kernels_are_the_same(finished):
    known = changed(finished, method="exact")
    assert convergence.deviation(finished, known, "vendi") == 0
    (chosen,) = finished.study.bandwidths.axis
    other = lab.Rules(axis=(dataclasses.replace(chosen, prompts=1.01 * chosen.prompts),))
    assert convergence.deviation(finished, changed(known, bandwidths=other), "vendi") is None
    for changes in ({"arrays": {"outputs": "of others"}}, {"seed": 1}):
        stranger = dataclasses.replace(known, identity=finished.identity | changes)
        assert convergence.deviation(finished, stranger, "vendi") is None


test_bad_flags_are_refused = studies.refuses(
    Convergence,
    ("--sizes=40,1000", "between 2 and n = 150"),
    ("--truncation=half", "whole numbers or 'scaled', received 'half'"),
    ("--kernel=cosine", "--rules"),
)


@pytest.mark.parametrize("n", [2, 3, 150, 600, 1652, 8091, 11_822, 10**6])
def test_default_sizes_end_above_the_truncation_and_stop_where_spectra_take_hours(n):
    sizes = convergence.sizes_of(None, n)
    assert sizes[-1] == min(n, 20_000) and sizes == tuple(sorted(set(sizes))) and sizes[0] > 1
    if n >= 150:
        kept = int(convergence._truncation("scaled", sizes[-1]))
        assert sum(size > kept for size in sizes) == 2
