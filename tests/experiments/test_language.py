"""The language study on models whose diversity, length and neighbourhoods are known."""

import numpy as np
import pytest
from small import small_run
from studies import execute

from experiments import answers
from experiments.language import Language

pytestmark = pytest.mark.slow

KNOWN = {"few": 2, "some": 4, "many": 8}
NEIGHBOURHOODS = 5
NAMES = list(KNOWN)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return execute(Language, folder, *small_run(Language, folder, 0))


@pytest.fixture(scope="module")
def whole(finished):
    return finished.found.sel(text="whole", scale=1)


def test_the_scores_are_the_known_numbers(finished):
    found = finished.found.sel(text="whole")
    for model, count in KNOWN.items():
        known = [count, NEIGHBOURHOODS, NEIGHBOURHOODS * count] * 2
        np.testing.assert_allclose(found.value.sel(model=model), [known] * 2, rtol=5e-3)
    np.testing.assert_allclose(found.prompt_modes, NEIGHBOURHOODS, rtol=5e-3)
    assert (found.n == 80).all() and (found.groups == 6).all()
    assert list(map(str, finished.results))[:2] == ["whole-1", "whole-2"]


def test_cut_answers_are_scored_by_their_own_embeddings(finished):
    found = finished.found.value.sel(text="cut", scale=1, score="Conditional-RKE", model=NAMES)
    np.testing.assert_allclose(found, [*KNOWN.values()][::-1], rtol=5e-3)


def test_differences_are_those_of_the_scores_and_told_apart(whole):
    other = whole.value.rename(model="other")
    np.testing.assert_allclose(whole.difference, whole.value - other, atol=1e-9)
    found = whole.sel(score="Conditional-RKE")
    assert (found.difference_error.values[~np.eye(3, dtype=bool)] > 0).all()
    assert len(set(found.letters.values)) == 3
    np.testing.assert_allclose(whole.p_value.values[:, range(3), range(3)], 1)


def test_length_correlates_with_whole_answers_and_reversed_with_cut_ones(finished):
    for text, expected in (("whole", 1), ("cut", -1)):
        found = finished.found.sel(text=text, scale=1, score="Conditional-RKE", model=NAMES)
        assert found.words.values.tolist() == [10 * count for count in KNOWN.values()]
        assert found.correlation == pytest.approx(expected)
        np.testing.assert_allclose(found.interval, expected)


def test_with_one_answer_a_prompt_narrow_bandwidths_give_one_and_wide_ones_rke(finished, whole):
    assert finished.study.multiples == (0.001, 1.0, 1000.0)
    assert finished.study.n == finished.study.prompts == 80
    limits = whole.value.sel(score=["Conditional-RKE", "RKE"])
    np.testing.assert_allclose(whole.swept.sel(multiple=0.001), 1, rtol=1e-5)
    np.testing.assert_allclose(whole.swept.sel(multiple=1), limits[0], rtol=1e-5)
    np.testing.assert_allclose(whole.swept.sel(multiple=1000), limits[1], rtol=1e-3)


def test_intervals_over_models_hold_the_correlation_and_have_a_width():
    # Two of three in order: some resamples of the models say more, some less.
    found = answers.correlations(
        np.array([[2.0, 4.0, 8.0]]), np.array([20.0, 100.0, 80.0]), [2.0], 100, 0
    )
    centre, low, high = found[0]
    assert centre == pytest.approx(0.5) and low < 0.5 < high


def test_variants_are_found_by_their_names():
    names = ["m_concise", "m", "alone", "m_verbose", "k", "k_concise"]
    assert answers.variants(names) == {"m": ["m_concise", "m", "m_verbose"]}


def test_without_lengths_and_cut_answers_the_scores_remain(tmp_path):
    flags = [
        f for f in small_run(Language, tmp_path, 0) if not f.startswith(("--words", "--truncated"))
    ]
    run = execute(Language, tmp_path, *flags, "--scales=1")
    assert run.study.texts == ("whole",)
    assert run.found.correlation.isnull().all()
    found = run.found.value.sel(score="Conditional-RKE", model="many")
    assert found == pytest.approx(8, rel=5e-3)
    assert set(Language.figures([run])) == set(Language.drawings)


def test_the_cosine_kernel_has_no_bandwidth_to_follow(tmp_path):
    drop = ("--output_b", "--prompt_b", "--scales")
    flags = [flag for flag in small_run(Language, tmp_path, 0) if not flag.startswith(drop)]
    run = execute(Language, tmp_path, *flags, "--kernel=cosine")
    assert run.found.sizes["scale"] == 1 and run.found.sizes["multiple"] == 0
    assert set(Language.figures([run])) == set(Language.drawings)


def test_titles_and_captions_say_what_is_shown(finished):
    figure = Language.figures([finished])["language"]
    assert "of 3 pairs told apart,\n3 whole, 3 cut" in figure.axes[0].get_title()
    caption = figure._supxlabel.get_text().replace("\n", " ")
    for part in ("80 of each model, 1 a prompt", "seed 0", "given", "6 groups"):
        assert part in caption


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--groups=1",), "--groups"),
        (("--resamples=3",), "--resamples"),
        (("--multiples=0,1",), "--multiples: expected a number above 0"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(Language, tmp_path, *small_run(Language, tmp_path, 0), *flags)


def test_models_must_share_their_prompts(tmp_path):
    flags = small_run(Language, tmp_path, 0)
    names = (tmp_path / "models.txt").read_text().split()
    (tmp_path / "models.txt").write_text("\n".join(["other", *names[1:]]) + "\n")
    with pytest.raises(ValueError, match="--models: expected the same prompts for each"):
        execute(Language, tmp_path, *flags)
    (tmp_path / "models.txt").write_text("same\n" * len(names))
    with pytest.raises(ValueError, match="at least two models, received same"):
        execute(Language, tmp_path, *flags)
    (tmp_path / "words.txt").write_text("long\n" * len(names))
    (tmp_path / "models.txt").write_text("\n".join(names) + "\n")
    flags = [flag for flag in flags if not flag.startswith("--words")]
    with pytest.raises(ValueError, match="--words: expected the length of each answer"):
        execute(Language, tmp_path, *flags, f"--words={tmp_path / 'words.txt'}")
