"""The language study on models whose diversity, length and neighbourhoods are known."""

import numpy as np
import pytest
import studies
from small import small_run
from studies import execute

import condvendi_jax as cv
from experiments import lab
from experiments.lab import models
from experiments.language_models import language
from experiments.language_models.language import Language

pytestmark = pytest.mark.slow

KNOWN = {"few": 2, "some": 4, "many": 8}
NEIGHBOURHOODS = 5
NAMES = list(KNOWN)

finished = studies.finished(Language)


@pytest.fixture(scope="module")
def whole(finished):
    return finished.found.sel(text="whole", scale=1)


def test_the_scores_are_the_known_numbers_of_each_text(finished):
    found = finished.found.sel(text="whole")
    for model, count in KNOWN.items():
        known = [count, NEIGHBOURHOODS, NEIGHBOURHOODS * count] * 2
        values = found.value.sel(model=model).values
        np.testing.assert_allclose(values[:, :6], [known] * 2, rtol=5e-3)
    np.testing.assert_allclose(found.prompt_modes, NEIGHBOURHOODS, rtol=5e-3)
    assert (found.n == 80).all() and (found.groups == 8).all()
    assert finished.study.n == finished.study.prompts == 80
    cut = finished.found.value.sel(text="cut", scale=1, score="Conditional-RKE", model=NAMES)
    np.testing.assert_allclose(cut, [*KNOWN.values()][::-1], rtol=5e-3)


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


def test_with_one_answer_a_prompt_narrow_bandwidths_give_one_and_wide_ones_rke(whole):
    generator = np.random.default_rng(0)
    outputs, prompts = generator.normal(size=(2, 30, 3)).astype(np.float32)
    widths = lab.Bandwidths(1.0, 0.9, 1.0, "given")
    narrow, once, wide = (
        language.conditional_rke(outputs, prompts, widths, times) for times in (0.1, 1, 1000)
    )
    assert narrow == pytest.approx(1, rel=0.01) and 1 < once < wide
    assert wide == pytest.approx(float(cv.rke(outputs, kernel=cv.Gaussian(0.9))), rel=1e-4)
    conditional = whole.value.sel(score="Conditional-RKE")
    np.testing.assert_allclose(whole.swept.sel(multiple=1), conditional, rtol=1e-5)


def test_intervals_over_models_hold_the_correlation_and_have_a_width():
    # Two of three in order: some resamples of the models say more, some less.
    values = np.tile([2.0, 4.0, 8.0], (len(models.SCORES), 1))
    found = language.correlations(values, np.array([20.0, 100.0, 80.0]), 0)
    centre, low, high = found.T
    np.testing.assert_allclose(centre, 0.5)
    assert (low < 0.5).all() and (high > 0.5).all()


def test_variants_are_found_by_their_names():
    names = ["m_concise", "m", "alone", "m_verbose", "k", "k_concise"]
    assert language.variants(names) == {"m": ["m_concise", "m", "m_verbose"]}


def test_without_lengths_cut_answers_and_bandwidths_the_scores_remain(tmp_path):
    drop = ("--words", "--truncated", "--output_b", "--prompt_b", "--scales")
    flags = [flag for flag in small_run(Language, tmp_path, 0) if not flag.startswith(drop)]
    run = execute(Language, tmp_path, *flags, "--kernel=cosine")
    assert run.study.texts == ("whole",)
    assert run.found.correlation.isnull().all() and run.found.value.notnull().all()
    assert run.found.sizes["scale"] == 1 and run.found.sizes["multiple"] == 0
    assert set(Language.figures([run])) == set(Language.drawings)


def test_titles_and_captions_say_what_is_shown(finished):
    figure = Language.figures([finished])["language"]
    assert "\n3 whole, 3 cut of 3 pairs told apart" in figure.axes[0].get_title()
    assert "80 of each model, 1 a prompt" in figure._supxlabel.get_text().replace("\n", " ")


test_bad_flags_are_refused = studies.refuses(Language, ("--groups=1", "--groups"))


@pytest.mark.parametrize(
    ("file", "first", "others", "message"),
    [
        ("models", "other", None, "--models: expected the same prompts for each"),
        ("models", "same", "same", "at least two models, received same"),
        ("words", "long", "long", "--words: expected a number for each answer"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, file, first, others, message):
    flags = small_run(Language, tmp_path, 0)
    names = (tmp_path / "models.txt").read_text().split()
    rows = [first, *(others or name for name in names[1:])]
    np.save(tmp_path / "changed.npy", rows)
    with pytest.raises(ValueError, match=message):
        execute(Language, tmp_path, *flags, f"--{file}={tmp_path / 'changed.npy'}")
