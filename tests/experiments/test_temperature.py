"""The temperature study on stories whose plots, endings and perplexities are known."""

import numpy as np
import pytest
from small import small_run
from studies import execute

import condvendi_jax as cv
from experiments import stories
from experiments.data import PairedEmbeddings
from experiments.lab import models
from experiments.temperature import Temperature

pytestmark = pytest.mark.slow

PLOTS = (1, 2, 4)
PROMPTS = 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("temperature")
    return execute(Temperature, folder, *small_run(Temperature, folder, 0))


def without(flags, *names):
    return [flag for flag in flags if not flag.startswith(tuple(f"--{n}=" for n in names))]


def test_the_scores_are_the_known_numbers(finished):
    known = {"all": PLOTS, "finished": (1, 1, 1), "cut": PLOTS[::-1]}
    assert finished.found.model.values.tolist() == ["0.5", "1", "2"]
    for text, plots in known.items():
        for score in models.NAMES:
            kind = score.split("-")[0]
            expected = {"Conditional": plots, "Information": (PROMPTS,) * 3}.get(
                kind, [PROMPTS * count for count in plots]
            )
            values = finished.found.value.sel(text=text, score=score)
            np.testing.assert_allclose(values, [expected] * 2, rtol=1e-3, err_msg=f"{text} {score}")


def test_stories_that_ended_are_as_many_of_each_prompt_everywhere(finished):
    assert (finished.found.n.sel(text="all") == 48).all()
    ended = finished.found.sel(text="finished")
    assert (ended.n == 12).all()
    np.testing.assert_allclose(ended.known.sel(control="finished"), 1)


def test_the_controls_are_the_known_numbers(finished):
    found = finished.found.sel(text="all", scale=1)
    expected = {"perplexity": [2, 4, 8], "finished": [1, 0.5, 0.25], "tokens": [10, 20, 40]}
    for control, values in expected.items():
        np.testing.assert_allclose(found.known.sel(control=control), values, rtol=1e-6)
    assert np.isnan(finished.found.known.sel(text="cut")).all()
    # Every prompt is like the others here.
    np.testing.assert_allclose(found.known_error, 0, atol=1e-6)


def test_the_error_of_a_share_is_that_of_a_mean_over_prompts():
    generator = np.random.default_rng(0)
    share = generator.integers(0, 2, size=(40, 5)).mean(axis=1)
    ended = (np.arange(5) < 5 * share[:, None]).ravel()
    tokens = generator.integers(5, 50, size=200)
    likelihood = -generator.random(200) * tokens
    pairs = PairedEmbeddings(
        "x",
        np.zeros((200, 1)),
        np.zeros((200, 1)),
        "",
        labels={
            "prompt": np.repeat(np.arange(40), 5),
            "finished": ended,
            "tokens": tokens,
            "log_likelihood": likelihood,
        },
    )
    values, errors = stories.controls_of(pairs)
    np.testing.assert_allclose(
        values, [np.exp(-likelihood.sum() / tokens.sum()), ended.mean(), tokens.mean()]
    )
    of_prompts = [column.reshape(40, 5).mean(axis=1) for column in (ended, tokens)]
    np.testing.assert_allclose(
        errors[1:], [np.std(means, ddof=1) / np.sqrt(40) for means in of_prompts]
    )
    # To first order, that of a ratio of totals.
    rest = likelihood - tokens * likelihood.sum() / tokens.sum()
    spread = np.std(rest.reshape(40, 5).sum(axis=1), ddof=1) * np.sqrt(40) / tokens.sum()
    assert errors[0] == pytest.approx(values[0] * spread, rel=0.05)


def test_differences_are_told_apart_where_scores_differ(finished):
    place = {"text": "all", "scale": 1, "score": "Conditional-RKE"}
    found = finished.found.sel(place)
    np.testing.assert_allclose(found.difference.sel(other="0.5")[1:], [1, 3], rtol=1e-3)
    assert len(set(found.letters.values)) == 3
    scores, steps, p_values, known = finished.study.tables(finished)
    assert [column.header for column in scores.columns][3:] == ["0.5", "1", "2"]
    for grid in (steps, p_values):
        assert [column.header for column in grid.columns][3:] == ["1 - 0.5", "2 - 1"]
    rows = zip(*(column.cells for column in steps.columns), strict=True)
    (row,) = (row for row in rows if row[:3] == ("all", "1", "Conditional-RKE"))
    assert row[3].startswith("1 ±") and row[4].startswith("2 ±")
    assert ("all", "perplexity") in set(zip(*(c.cells for c in known.columns[:2]), strict=True))


def test_rows_are_balanced_by_prompt_and_the_first_are_kept():
    model = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    prompt = np.array([0, 0, 1, 0, 0, 1, 0, 2])
    chosen = np.array([1, 1, 1, 0, 1, 0, 1, 1], bool)
    kept = stories.balanced(model, prompt, chosen)
    assert np.flatnonzero(kept).tolist() == [0, 4]


def test_models_are_ordered_by_their_numbers_where_they_have_any():
    assert stories.in_order(np.array(["1.3", "0.4", "1.3", "10"])) == ["0.4", "1.3", "10"]
    assert stories.in_order(np.array(["warm", "0.4"])) == ["warm", "0.4"]
    assert stories.places(["a"]) is None and stories.places(["0"]) == [0.0]


def test_without_what_is_known_of_the_stories_the_scores_remain(tmp_path):
    known = ("finished", "tokens", "log_likelihood", "truncated")
    flags = without(small_run(Temperature, tmp_path, 0), *known, "scales")
    names = (tmp_path / "models.txt").read_text().split()
    (tmp_path / "models.txt").write_text("\n".join(f"v{name}" for name in names) + "\n")
    run = execute(Temperature, tmp_path, *flags, "--scales=1")
    assert np.isnan(run.found.known).all()
    scores = run.found.value.sel(score="Conditional-Vendi")
    np.testing.assert_allclose(scores, [[PLOTS]], rtol=1e-3)
    assert set(Temperature.figures([run])) == {"temperature"}
    assert next(iter(run.study.tables(run))).columns[3].header == "v0.5"


def test_the_cosine_kernel_has_one_scale(tmp_path):
    flags = without(
        small_run(Temperature, tmp_path, 0), "output_bandwidth", "prompt_bandwidth", "scales"
    )
    for role in ("x", "t"):
        number = np.unique(np.load(tmp_path / f"{role}.npy"), return_inverse=True)[1].ravel()
        np.save(tmp_path / f"{role}.npy", np.eye(200, dtype="f4")[number] + np.float32(1e-4))
    flags = without(flags, "truncated", "finished")
    run = execute(Temperature, tmp_path, *flags, "--kernel=cosine")
    scores = run.found.value.sel(score="Conditional-Vendi")
    np.testing.assert_allclose(scores, [[PLOTS]], rtol=1e-2)


def test_the_number_of_groups_enters(finished, tmp_path):
    flags = without(small_run(Temperature, tmp_path, 0), "groups", "scales")
    run = execute(Temperature, tmp_path, *flags, "--scales=1", "--groups=6")
    assert (run.found.groups == 6).all() and (finished.found.groups == 5).all()


def test_more_stories_than_spectra_are_had_of_are_estimated(tmp_path, monkeypatch):
    known, given = models.compare, []

    def noted(*arguments, method, **options):
        given.append(method)
        return known(*arguments, method=method, **options)

    monkeypatch.setattr(models, "compare", noted)
    flags = without(small_run(Temperature, tmp_path, 0), "scales", "truncated", "finished")
    execute(Temperature, tmp_path, *flags, "--scales=1")
    (method,) = given
    assert isinstance(method, cv.Auto) and method.key is not None


def test_the_caption_says_what_is_shown(finished):
    (figure,) = Temperature.figures([finished]).values()
    caption = figure._supxlabel.get_text().replace("\n", " ")
    for part in ("n = 48 each", "seed 0", "given", "5 groups of prompts"):
        assert part in caption


def test_bad_input_is_refused(tmp_path):
    flags = small_run(Temperature, tmp_path, 0)
    with pytest.raises(ValueError, match="--groups: expected a number at least 2"):
        execute(Temperature, tmp_path, *flags, "--groups=1")
    with pytest.raises(ValueError, match="a perplexity needs --tokens"):
        execute(Temperature, tmp_path, *without(flags, "tokens"))
    np.save(tmp_path / "finished.npy", np.arange(144) < 100)
    with pytest.raises(ValueError, match="--finished: 1 prompts have .* fewer than --groups=5"):
        execute(Temperature, tmp_path, *flags)
    np.save(tmp_path / "finished.npy", np.full(144, "yes"))
    with pytest.raises(ValueError, match="--finished: expected a number of each story"):
        execute(Temperature, tmp_path, *flags)
    (tmp_path / "models.txt").write_text("1\n" * 144)
    with pytest.raises(ValueError, match="--models: expected at least two, received 1"):
        execute(Temperature, tmp_path, *flags)
