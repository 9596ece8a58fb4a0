"""The study of pairs that people called the same, on pairs of known distances."""

import numpy as np
import pytest
import studies
from small import flags, write

import condvendi_jax as cv
from experiments import data
from experiments.language_models import judged
from experiments.language_models.same_answers import SameAnswers, area, best_threshold

pytestmark = pytest.mark.slow


SAME = np.arange(40) % 2 == 1
APART = np.where(SAME, np.linspace(0.2, 0.4, 40), np.linspace(0.6, 1.2, 40))
APART[38] = 0.3


def small(folder, seed):
    """Writes 40 pairs of answers, half of them for training; gives the flags.

    Pairs that are the same lie 0.2 to 0.4 apart, those that differ 0.6 to 1.2; one of them, 0.3.
    """
    generator = np.random.default_rng(seed)
    first = generator.normal(size=(40, 5))
    towards = generator.normal(size=(40, 5))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    files = write(
        folder,
        outputs=first,
        second=first + APART[:, None] * towards,
        same=SAME.astype(int),
        train=(np.arange(40) < 20).astype(int),
        classes=np.where(np.arange(40) < 8, SAME, -1),
    )
    return [*files, *flags(resamples=20)]


finished = studies.finished(SameAnswers)


@pytest.mark.parametrize("part", ["training", "validation"])
def test_what_is_counted_and_how_far_it_agrees_are_those_of_the_distances(finished, part):
    rows = slice(0, 20) if part == "training" else slice(20, 40)
    apart, same = APART[rows], SAME[rows]
    found = finished.found.sel(part=part)
    for name, width in finished.study.bandwidths.items():
        squares = np.exp(-((apart / width) ** 2))
        of = found.sel(width=name)
        expected = [np.mean(2 / (1 + squares[same])), np.mean(2 / (1 + squares[~same]))]
        np.testing.assert_allclose(of.number, expected, rtol=1e-4)
        assert of.counted.item() == pytest.approx(1 / squares.mean(), rel=1e-4)
    above = [np.mean(one < other) for one in apart[same] for other in apart[~same]]
    value, low, high = found.auc.sel(judge="effective number").values
    assert value == pytest.approx(np.mean(above)) and low <= value <= high
    assert found.judged.values.tolist() == [20, 20, 20, 20, 8 if part == "training" else 0]
    if part == "training":
        widths = finished.study.bandwidths
        assert np.mean(np.exp(-((apart / widths["people"]) ** 2))) == pytest.approx(0.5, rel=1e-4)
        likeliest = cv.bandwidth_from_pairs(np.zeros((20, 1)), apart[:, None], same)
        assert widths["likeliest"] == pytest.approx(likeliest, rel=1e-4)
        assert (found.auc.sel(judge="effective number below 1.5") == 1).all()
        assert found.auc.sel(judge="the benchmark's class", end=0) == 1
        assert found.auc.sel(judge="cosine above the best threshold", end=0) > 0.5
    assert found.auc.sel(judge="equal texts", end=0) == 0.5
    assert found.share.values[0] == found.share_error.values[0] == 0
    own = np.exp(-((apart / finished.study.bandwidths["people"]) ** 2))
    assert found.alike.values[-1] == pytest.approx(np.sort(own)[-2:].mean(), rel=1e-4)


def test_area_and_threshold_of_a_few_numbers():
    same = np.array([True, False, True, False])
    assert area(np.array([3.0, 1.0, 2.0, 2.0]), same) == pytest.approx(3.5 / 4)
    assert np.isnan(area(np.array([1.0, 2.0]), np.array([True, True])))
    assert best_threshold(np.array([3.0, 1.0, 2.0, 1.5]), same) == 1.75


def test_equal_answers_that_people_call_different_have_no_part_in_the_bandwidth():
    first, second = np.zeros((6, 1)), np.array([[0.5], [0.7], [2.0], [3.0], [0.0], [9.0]])
    same = np.array([1, 1, 0, 0, 0, 1])
    pairs = data.PairedEmbeddings(
        "", first, first, "", {"same": same, "train": np.array([1, 1, 1, 1, 1, 0])},
        {"second": second},
    )  # fmt: skip
    found = judged.bandwidth_of(judged.labelled(pairs))
    assert found == cv.bandwidth_from_pairs(first[:4], second[:4], same[:4] == 1, share=0.5)
