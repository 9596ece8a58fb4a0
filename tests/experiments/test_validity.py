"""Every score beside people: what each counts, the differences, and the costs."""

import dataclasses
import re

import numpy as np
import oracles
import pytest
import studies
import test_human
from studies import computed
from test_human import judged_sets

from experiments import lab
from experiments.calibration import judgements, validity
from experiments.calibration.judgements import Responses
from experiments.calibration.validity import Validity


@pytest.fixture(autouse=True)
def no_weights(monkeypatch):
    def lacking():
        raise ModuleNotFoundError

    monkeypatch.setattr(validity, "load_minilm", lacking)


def small(folder, seed):
    """Sets of six responses with one to six modes, which people count."""
    given = test_human.small(folder, seed)
    return [flag for flag in given if not re.match("--(folds|contexts|draws)", flag)]


def test_a_score_that_people_agree_with_is_ahead_of_noise_and_of_no_equal():
    pairs = judged_sets(sets=60, tasks=2)
    people = pairs.labels["people"]
    noise = np.random.default_rng(1).permutation(60)[pairs.labels["sets"]]
    labels = {"metric_same": people, "text_same": people**3, "text_noise": 1.0 * noise}
    pairs = dataclasses.replace(pairs, labels={**pairs.labels, **labels})
    widths = lab.Scales(scales=(1.0,), output_bandwidth=0.7, prompt_bandwidth=0.7)
    setup, found = computed(Validity(bandwidths=widths, resamples=60), pairs)
    assert vars(setup.study)["sets"] == {"task 0": 30, "task 1": 30}
    value = found.value.sel(end="value")
    np.testing.assert_allclose(value.sel(judge=["same", "same (published)"]), 1)
    mean = found["mean"]
    np.testing.assert_allclose(mean.sel(end="value"), value.mean("task"))
    assert (np.diff(mean.sel(end="value")) <= 0).all()
    for against in found.against.values:
        other = mean.sel(judge="same" if against == "best" else "Vendi", end="value")
        gap = found.difference.sel(against=against, end="value")
        np.testing.assert_allclose(gap, mean.sel(end="value") - other, atol=1e-12)
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
    scores = judgements.scores_of_similarities(pairs, Responses.of(pairs).members)
    assert list(scores) == ["edit similarity", "cosine similarity"]
    for found, of in zip(scores.values(), (grams**2, grams), strict=True):
        np.testing.assert_allclose(found, [oracles.entropy(gram) for gram in of], atol=1e-4)


def test_sets_of_unequal_sizes_are_refused():
    pairs = judged_sets(sets=8)
    with pytest.raises(ValueError, match="equally many responses in task 0, received from 3 to 4"):
        Validity().prepare(lambda: pairs.rows(np.arange(1, len(pairs))), 0)


test_bad_flags_are_refused = studies.refuses(Validity, ("--resamples=1", "resamples"))
