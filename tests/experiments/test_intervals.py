"""How often intervals hold where prompts collapse: what is drawn, and what counts as told."""

import numpy as np
import pytest
import studies
from small import flags

import condvendi_jax as cv
from experiments.calibration import intervals as study
from experiments.calibration.intervals import Intervals
from experiments.calibration.simulations import EXACT

RNG = np.random.default_rng(0)


def small(folder, seed):
    return flags(draws=40, evaluations=4, seed=seed)


run = studies.finished(Intervals)


@pytest.mark.slow
def test_tables_have_a_row_for_each_population(run):
    differences, *_, good = study.tables_of(run.found).values()
    assert [len(of) for of in (differences, good)] == [9, 7]  # Zipf has no good outputs.
    assert differences[1][:2] == ["5", "2%"]
    assert run.found.false.sel(alike="own prompts 20/200", test="interval").max() < 0.2
    assert run.found.held.mean() > 0.8


@pytest.mark.parametrize("matched", [True, False])
def test_models_are_told_apart_as_compare_tells_them(matched):
    """Of prompts that collapse, and others with 8 or 5 answers, at a margin between the scores."""
    of_both = []
    for _ in range(12):
        one, prompts = study.drawn(RNG, (1, 24, 5), law=0.2, answers=8)
        two = study.drawn(RNG, (1, 24, 5), law=0.4, answers=5)[0]
        models = {"one": one, "two": two}
        outputs = {name: np.float32(of.reshape(-1, 1)) for name, of in models.items()}
        ids = {
            name: np.repeat(np.arange(24) + 24 * k * (not matched), 5)
            for k, name in enumerate(models)
        }
        options = {
            "orders": [2],
            "profile": False,
            "equal_ratio": 2.5,
            "one_population": not matched,
        }
        found = (
            cv.compare(outputs, ids, **options, **EXACT).ranking("conditional", 2).differences[0]
        )
        shown = [found.p_value <= 0.05, found.equal_p_value <= 0.05]
        told = [study.told(one, two, matched)[0], study.told(one, two, matched, 2.5)[0]]
        of_both.append((shown, told))
    assert all(shown == told for shown, told in of_both)
    assert {True, False} == {shown[0] for shown, _ in of_both}
    assert {True, False} == {shown[1] for shown, _ in of_both}


@pytest.mark.parametrize("law", [0.05, 0.2])
def test_similarities_are_those_of_the_probabilities(law):
    shares = np.full(20, (1 - law) / 20)
    shares[0] += law
    within = law + (1 - law) / 20
    np.testing.assert_allclose(study.similarities(law, 20), (within, np.sum(shares**2)))


def test_a_flatter_law_has_a_score_so_many_times_as_large():
    exponents = np.random.default_rng(1).uniform(0, 3, 400_000)
    flat, steep = (
        np.mean(np.sum(study.zipf(times * exponents) ** 2, axis=1))
        for times in (study._flatter(), 1)
    )
    assert steep / flat == pytest.approx(1.22, rel=0.005)
    np.testing.assert_allclose(study.similarities(study.ZIPF)[0], steep, rtol=0.005)


@pytest.mark.parametrize("similarity", [0.0216, 0.216, 0.4])
def test_answers_of_one_law_are_the_same_so_often(similarity):
    same = study.same_answers(study._of_one_law(RNG, (400, 400, 5), similarity))
    error = same.mean(axis=1).std() / 20
    assert abs(same.mean() - similarity) < 4 * error


def test_unequal_answers_have_the_probabilities_of_zipf():
    answers, exponents = study.drawn(RNG, (2, 2, 50_000), law=study.ZIPF)
    frequent = np.mean(answers == 1, axis=2)
    np.testing.assert_allclose(frequent, study.zipf(exponents)[..., 1], atol=0.01)


def test_shares_at_both_ends_are_held():
    for good in study.GOOD:
        held = study.shares_held(RNG, (400, 50, 5), 0.05, good)
        assert min(held) > 0.9 and max(held) < 1
