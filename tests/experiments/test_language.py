"""The language study on models whose diversity, length and neighbourhoods are known."""

import numpy as np
import pytest
from small import small_run
from studies import execute

from experiments import language
from experiments.lab import models

pytestmark = pytest.mark.slow

STUDY = language.STUDY
KNOWN = {"few": 2, "some": 4, "many": 8}
NEIGHBOURHOODS = 5


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


def of(found, name, model):
    return found.values[models.NAMES.index(name), found.models.index(model)]


def test_the_scores_are_the_known_numbers(finished):
    for scale in ("1", "2"):
        found = finished.results[language.Cell("whole", scale)]
        for model, count in KNOWN.items():
            for name in ("Conditional-Vendi", "Conditional-RKE"):
                assert of(found, name, model) == pytest.approx(count, rel=5e-3)
            for name in ("Information-Vendi", "Information-RKE"):
                assert of(found, name, model) == pytest.approx(NEIGHBOURHOODS, rel=5e-3)
            assert of(found, "RKE", model) == pytest.approx(5 * count, rel=5e-3)
        np.testing.assert_allclose(found.prompt_modes, NEIGHBOURHOODS, rtol=5e-3)
        assert found.n == (80, 80, 80)
        assert found.groups == 6


def test_cut_answers_are_scored_by_their_own_embeddings(finished):
    found = finished.results[language.Cell("cut", "1")]
    cut = dict(zip(KNOWN, [*KNOWN.values()][::-1], strict=True))
    for model, count in cut.items():
        assert of(found, "Conditional-RKE", model) == pytest.approx(count, rel=5e-3)


def test_differences_are_those_of_the_scores_and_told_apart(finished):
    found = finished.results[language.Cell("whole", "1")]
    np.testing.assert_allclose(
        found.differences, found.values[:, :, None] - found.values[:, None, :], atol=1e-9
    )
    row = models.NAMES.index("Conditional-RKE")
    assert np.all(found.difference_errors[row][~np.eye(3, dtype=bool)] > 0)
    assert len(set(found.letters[row])) == 3
    np.testing.assert_allclose(found.p_values[:, range(3), range(3)], 1)


def test_length_correlates_with_whole_answers_and_reversed_with_cut_ones(finished):
    row = models.NAMES.index("Conditional-RKE")
    for text, expected in (("whole", 1), ("cut", -1)):
        found = finished.results[language.Cell(text, "1")]
        assert dict(zip(found.models, found.words.tolist(), strict=True)) == {
            name: 10 * count for name, count in KNOWN.items()
        }
        assert found.correlations[row] == pytest.approx(expected)
        np.testing.assert_allclose(found.intervals[row], expected)


def test_with_one_answer_a_prompt_narrow_bandwidths_give_one_and_wide_ones_rke(finished):
    found = finished.results[language.Cell("whole", "1")]
    assert finished.settings.multiples == (0.001, 1.0, 1000.0)
    assert finished.settings.n == finished.settings.prompts == 80
    np.testing.assert_allclose(found.swept[:, 0], 1, rtol=1e-5)
    np.testing.assert_allclose(found.swept[:, 1], found.values[3], rtol=1e-5)
    np.testing.assert_allclose(found.swept[:, 2], found.values[5], rtol=1e-3)


def test_intervals_over_models_hold_the_correlation_and_have_a_width(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)
    words = np.load(tmp_path / "words.npy")
    # Two of three in order: some resamples of the models say more, some less.
    np.save(tmp_path / "words.npy", np.where(words == 40, 100.0, words))
    found = execute(STUDY, tmp_path, *flags, "--scales=1").results[language.Cell("whole", "1")]
    assert found.correlations[3] == pytest.approx(0.5)
    low, high = found.intervals[3]
    assert low < 0.5 < high


def test_variants_are_found_by_their_names():
    names = ["m_concise", "m", "alone", "m_verbose", "k", "k_concise"]
    assert language.variants(names) == {"m": [0, 1, 3]}


def test_without_lengths_and_cut_answers_the_scores_remain(tmp_path):
    flags = [
        f for f in small_run(STUDY, tmp_path, 0) if not f.startswith(("--words", "--truncated"))
    ]
    run = execute(STUDY, tmp_path, *flags, "--scales=1")
    (found,) = run.results.values()
    assert run.settings.texts == ("whole",)
    assert np.isnan(found.correlations).all()
    assert of(found, "Conditional-RKE", "many") == pytest.approx(8, rel=5e-3)
    assert set(language.draw([run])) == {"language", "language_length"}


def test_the_cosine_kernel_has_no_bandwidth_to_follow(tmp_path):
    drop = ("--output_b", "--prompt_b", "--scales")
    flags = [flag for flag in small_run(STUDY, tmp_path, 0) if not flag.startswith(drop)]
    run = execute(STUDY, tmp_path, *flags, "--kernel=cosine")
    assert [cell.scale for cell in run.results] == ["cosine"] * 2
    assert run.results[language.Cell("whole", "cosine")].swept.shape[1] == 0


def test_the_caption_says_what_is_shown(finished):
    caption = language._caption(finished, errors=True).replace("\n", " ")
    for part in ("n = 80 answers of each of 3 models, 1 a prompt", "seed 0", "given", "6 groups"):
        assert part in caption


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--groups=1",), "--groups"),
        (("--resamples=3",), "--resamples"),
        (("--multiples=0,1",), "--multiples: expected a positive number"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *small_run(STUDY, tmp_path, 0), *flags)


def test_models_must_share_their_prompts(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)
    names = (tmp_path / "models.txt").read_text().split()
    (tmp_path / "models.txt").write_text("\n".join(["other", *names[1:]]) + "\n")
    with pytest.raises(ValueError, match="--models: expected the same prompts for each"):
        execute(STUDY, tmp_path, *flags)
    (tmp_path / "models.txt").write_text("same\n" * len(names))
    with pytest.raises(ValueError, match="at least two models, received same"):
        execute(STUDY, tmp_path, *flags)
    (tmp_path / "words.txt").write_text("long\n" * len(names))
    (tmp_path / "models.txt").write_text("\n".join(names) + "\n")
    flags = [flag for flag in flags if not flag.startswith("--words")]
    with pytest.raises(ValueError, match="--words: expected the length of each answer"):
        execute(STUDY, tmp_path, *flags, f"--words={tmp_path / 'words.txt'}")
