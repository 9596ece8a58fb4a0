"""The study of stages of training, on stages whose numbers of answers are known."""

import numpy as np
import pytest
import studies
from small import flags, write

from experiments import data
from experiments.language_models import judged
from experiments.language_models.post_training import PostTraining

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Three stages with 4, 2 and 1 different answers to each of eight prompts; the flags.

    The first prompt has four in every stage. The prompts are of two sets of four; to the first
    three of each there are matched answers also, of which 4, 1 and 2 are different. Different
    answers lie 5 apart, so that at a bandwidth of 1 Conditional-* is their number; one is the
    prompt itself.
    `distinct` is the number of whole answers to the prompts of a stage, and largest for the first.
    """
    generator = np.random.default_rng(seed)
    prompts, size = 8, 4
    places = 3.5 * np.linalg.qr(generator.normal(size=(32, 32)))[0].reshape(prompts, size, 32)
    whole, matched = {"base": 4, "SFT": 2, "Instruct": 1}, {"base": 4, "SFT": 1, "Instruct": 2}
    rows = [
        (stage, cut, prompt, place % (counts[stage] if prompt else size), counts[stage])
        for cut, counts in enumerate((whole, matched))
        for stage in counts
        for prompt in ((0, 1, 2, 4, 5, 6) if cut else range(prompts))
        for place in range(size)
    ]
    stage, cut, prompt, place, count = map(np.array, zip(*rows, strict=True))
    return [
        *write(
            folder,
            outputs=places[prompt, place],
            prompts=places[prompt, 0],
            models=stage,
            prompt=prompt,
            benchmark=np.array(["one", "two"])[prompt // 4],
            matched=cut,
            words=10 * count,
            distinct=np.where(cut == 1, np.nan, np.where(prompt == 0, 9.0, count)),
        ),
        *flags(bandwidth=1, scales="1,2", resamples=20),
    ]


finished = studies.finished(PostTraining)

# The numbers of different answers after each stage, to the first prompt and to the others.
WHOLE, MATCHED = np.array([[4, 4, 4], [4, 2, 1]]), np.array([[4, 4, 4], [4, 1, 2]])


def known(numbers, prompts):
    """Conditional-Vendi and -RKE of one prompt of the first kind and some of the second."""
    each = np.repeat(numbers, [1, prompts - 1], axis=0)
    return [np.exp(np.log(each).mean(axis=0)), 1 / np.mean(1 / each, axis=0)]


@pytest.mark.parametrize(
    ("benchmark", "text", "expected"),
    [
        ("one", "whole", known(WHOLE, 4)),
        ("two", "whole", [[4, 2, 1]] * 2),
        ("both", "whole", known(WHOLE, 8)),
        ("one", "matched", known(MATCHED, 3)),
        ("both", "matched", known(MATCHED, 6)),
    ],
)
def test_the_scores_of_every_part_are_the_known_ones(finished, benchmark, text, expected):
    found = finished.found.sel(benchmark=benchmark, text=text, scale=1, score=list(judged.PAPERS))
    np.testing.assert_allclose(found.value, expected, rtol=1e-4)
    assert found.model.values.tolist() == ["base", "SFT", "Instruct"]
    expected = np.array(expected)
    steps = [expected[:, 1] - expected[:, 0], expected[:, 2] - expected[:, 1]]
    steps.append(expected[:, 2] - expected[:, 0])
    changes = finished.study.changes(found)
    np.testing.assert_allclose(changes.difference, np.stack(steps, axis=1), atol=1e-3)
    assert found.step.values.tolist() == ["base to SFT", "SFT to Instruct", "base to Instruct"]


def test_prompts_that_narrow_are_counted_and_ties_count_half(finished):
    found = finished.found.narrower.sel(scale=1, score="Conditional-Vendi")
    np.testing.assert_allclose(found.sel(benchmark="two", text="whole"), 1)
    np.testing.assert_allclose(found.sel(benchmark="both", text="whole"), (0.5 + 7) / 8)
    matched = found.sel(benchmark="both", text="matched")
    np.testing.assert_allclose(matched, [5.5 / 6, 0.5 / 6, 5.5 / 6])


def test_lengths_and_cosines_are_those_of_the_answers(finished):
    found = finished.found.sel(scale=1, benchmark="two")
    np.testing.assert_allclose(found.words.sel(text="whole"), [40, 20, 10])
    # Different answers are orthogonal: of 12 ordered pairs 0, 4 and 12 are equal.
    np.testing.assert_allclose(found.unlike.sel(text="whole"), [1, 2 / 3, 0], atol=1e-6)
    # One of the different answers is as the prompt.
    np.testing.assert_allclose(found.near.sel(text="whole"), [1 / 4, 1 / 2, 1], rtol=1e-6)


def test_the_correlation_is_that_of_the_prompts_numbers(finished):
    found = finished.found.correlation.sel(scale=1, benchmark="one", score="Conditional-RKE")
    whole = found.sel(text="whole")
    assert whole.sel(model="base").isnull().all()  # All prompts have four answers.
    np.testing.assert_allclose(whole.isel(end=0).sel(model=["SFT", "Instruct"]), 1)
    assert found.sel(text="matched").isnull().all()


def test_reweighting_moves_a_rare_answer_as_far_as_the_distance():
    """One answer differs from three equal ones, so that the MMD is sqrt 2 times its gain."""
    kinds = np.tile([[0, 1, 1, 1], [0, 1, 2, 3]], 3).ravel()  # Of two models, to three prompts.
    labels = {"models": np.repeat(["a", "b"], 12), "prompt": np.tile(np.repeat(np.arange(3), 4), 2)}
    outputs = 5 * np.eye(4, dtype=np.float32)[kinds]
    pairs = data.PairedEmbeddings("", outputs, np.zeros((24, 2)), "", labels)
    widths, distances = judged.Widths(bandwidth=0.5, scales=(1.0,)), (0.05, 0.1)
    study = PostTraining(widths=widths, distances=distances)
    found = studies.computed(study, pairs)[1].reweighted.sel(score=list(judged.PAPERS))
    share = 1 / 4 + np.array(distances) / np.sqrt(2)
    law = np.stack([share, 1 - share])
    expected = [np.exp(-np.sum(law * np.log(law), axis=0)), 1 / np.sum(law**2, axis=0)]
    np.testing.assert_allclose(found.sel(model="a"), expected, rtol=1e-3)
    np.testing.assert_allclose(found.sel(model="b"), 4, rtol=1e-3)  # No gain.


def test_effects_and_shares_are_those_of_the_prompts_numbers():
    """At order 2 a prompt's number is 1 over the mean of its squared kernel.

    The answers of three stages move further apart, and closer; one of prompt 3 is empty.
    """
    generator = np.random.default_rng(0)
    spread = np.multiply.outer([1.0, 0.7, 0.72], generator.uniform(0.5, 1.5, size=(40, 1, 1)))
    stages = (spread * generator.normal(size=(3, 40, 4, 3))).astype(np.float32)
    prompt = np.tile(np.repeat(np.arange(40), 4), 3)
    labels = {"models": np.repeat(["a", "b", "c"], 160), "prompt": prompt}
    labels["words"] = np.where(np.arange(480) == 13, 0, 5)
    pairs = data.PairedEmbeddings("", stages.reshape(-1, 3), np.zeros((480, 3)), "", labels)
    rows = stages.astype(float)
    squares = np.sum((rows[:, :, :, None] - rows[:, :, None]) ** 2, axis=-1)
    squares = np.exp(-squares / 1.2**2)
    numbers = 1 / np.mean(squares, axis=(2, 3))
    study = PostTraining(widths=judged.Widths(bandwidth=1.2, scales=(1.0,)))
    setup, found = studies.computed(study, pairs)
    assert isinstance(setup.study, PostTraining) and setup.study.counts == {"all": {"whole": 40}}
    unbiased, found = found.sel(score=judged.UNBIASED), found.sel(score="Conditional-RKE")
    for n, values in ((4, unbiased.value), (2, unbiased.half)):
        alike = squares[..., :n, :n][..., ~np.eye(n, dtype=bool)]  # Of two different answers.
        np.testing.assert_allclose(values, 1 / alike.mean(axis=(1, 2)), rtol=1e-4)
    changed = setup.study.changes(found)
    for step, (before, after) in enumerate(((0, 1), (1, 2), (0, 2))):
        changes = numbers[after] - numbers[before]
        np.testing.assert_allclose(found.effect[step], changes.mean() / np.std(changes, ddof=1))
        np.testing.assert_allclose(found.narrower[step], np.mean(changes < 0))
        assert changed.difference[step] == found.value[after] - found.value[before]
        assert changed.p_value[step] == found.p_value[before, after]
    assert found.empty.values.tolist() == [1, 0, 0]
    full = 1 / np.mean(1 / np.delete(numbers, 3, axis=1), axis=1)
    np.testing.assert_allclose(found.full, full)
