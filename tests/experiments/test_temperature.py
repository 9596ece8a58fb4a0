"""The temperature study on stories whose plots, endings and perplexities are known."""

import numpy as np
import pytest
from small import small_run
from studies import execute

import condvendi_jax as cv
from experiments import temperature
from experiments.data import PairedEmbeddings
from experiments.lab import models

pytestmark = pytest.mark.slow

STUDY = temperature.STUDY
PLOTS = (1, 2, 4)
PROMPTS = 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("temperature")
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


def without(flags, *names):
    return [flag for flag in flags if not flag.startswith(tuple(f"--{n}=" for n in names))]


@pytest.mark.parametrize("scale", ["1", "1.05"])
def test_the_scores_are_the_known_numbers(finished, scale):
    known = {"all": PLOTS, "finished": (1, 1, 1), "cut": PLOTS[::-1]}
    for text, plots in known.items():
        found = finished.results[temperature.Cell(text, scale)]
        assert found.models == ("0.5", "1", "2")
        for name, values in zip(models.NAMES, found.values, strict=True):
            kind = name.split("-")[0]
            expected = {"Conditional": plots, "Information": (PROMPTS,) * 3}.get(
                kind, [PROMPTS * count for count in plots]
            )
            np.testing.assert_allclose(values, expected, rtol=1e-3, err_msg=f"{text} {name}")


def test_stories_that_ended_are_as_many_of_each_prompt_everywhere(finished):
    assert finished.results[temperature.Cell("all", "1")].n == (48, 48, 48)
    found = finished.results[temperature.Cell("finished", "1")]
    assert found.n == (12, 12, 12)
    np.testing.assert_allclose(found.controls[1], 1)


def test_the_controls_are_the_known_numbers(finished):
    found = finished.results[temperature.Cell("all", "1")]
    expected = [[2, 4, 8], [1, 0.5, 0.25], [10, 20, 40]]
    np.testing.assert_allclose(found.controls, expected, rtol=1e-6)
    assert np.isnan(finished.results[temperature.Cell("cut", "1")].controls).all()
    # Every prompt is like the others here.
    np.testing.assert_allclose(found.control_errors, 0, atol=1e-6)


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
    values, errors = temperature.controls_of(pairs)
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
    row = models.NAMES.index("Conditional-RKE")
    found = finished.results[temperature.Cell("all", "1")]
    np.testing.assert_allclose(found.differences[row, 1:, 0], [1, 3], rtol=1e-3)
    assert len(set(found.letters[row])) == 3
    grid = STUDY.table(finished)
    cells = [[str(cell) for cell in column.cells] for column in grid.columns]
    headings = [str(column.header) for column in grid.columns]
    assert headings[3:] == ["T = 0.5", "T = 1", "T = 2", "1 - 0.5", "2 - 1"]
    place = next(
        i for i, words in enumerate(zip(*cells[:3], strict=True)) if words[2] == "Conditional-RKE"
    )
    assert cells[6][place].startswith("1") and cells[7][place].startswith("2")


def test_rows_are_balanced_by_prompt_and_the_first_are_kept():
    model = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    prompt = np.array([0, 0, 1, 0, 0, 1, 0, 2])
    chosen = np.array([1, 1, 1, 0, 1, 0, 1, 1], bool)
    kept = temperature.balanced(model, prompt, chosen)
    assert np.flatnonzero(kept).tolist() == [0, 4]


def test_models_are_ordered_by_their_numbers_where_they_have_any():
    assert temperature.in_order(np.array(["1.3", "0.4", "1.3", "10"])) == ["0.4", "1.3", "10"]
    assert temperature.in_order(np.array(["warm", "0.4"])) == ["warm", "0.4"]
    assert temperature.places(["a"]) is None and temperature.places(["0"]) == [0.0]


def test_without_what_is_known_of_the_stories_the_scores_remain(tmp_path):
    known = ("finished", "tokens", "log_likelihood", "truncated")
    flags = without(small_run(STUDY, tmp_path, 0), *known, "scales")
    names = (tmp_path / "models.txt").read_text().split()
    (tmp_path / "models.txt").write_text("\n".join(f"v{name}" for name in names) + "\n")
    run = execute(STUDY, tmp_path, *flags, "--scales=1")
    (found,) = run.results.values()
    assert np.isnan(found.controls).all()
    np.testing.assert_allclose(found.values[0], PLOTS, rtol=1e-3)
    assert set(temperature.draw([run])) == {"temperature"}
    assert [str(c.header) for c in STUDY.table(run).columns][3] == "v0.5"


def test_the_cosine_kernel_has_one_scale(tmp_path):
    flags = without(small_run(STUDY, tmp_path, 0), "output_bandwidth", "prompt_bandwidth", "scales")
    for role in ("x", "t"):
        number = np.unique(np.load(tmp_path / f"{role}.npy"), return_inverse=True)[1].ravel()
        np.save(tmp_path / f"{role}.npy", np.eye(200, dtype="f4")[number] + np.float32(1e-4))
    flags = without(flags, "truncated", "finished")
    run = execute(STUDY, tmp_path, *flags, "--kernel=cosine")
    assert [cell.scale for cell in run.results] == ["cosine"]
    found = run.results[temperature.Cell("all", "cosine")]
    np.testing.assert_allclose(found.values[0], PLOTS, rtol=1e-2)


def test_the_number_of_groups_enters(finished, tmp_path):
    flags = without(small_run(STUDY, tmp_path, 0), "groups", "scales")
    found = execute(STUDY, tmp_path, *flags, "--scales=1", "--groups=6").results
    assert found[temperature.Cell("all", "1")].groups == 6
    assert finished.results[temperature.Cell("all", "1")].groups == 5


def test_more_stories_than_spectra_are_had_of_are_estimated(tmp_path, monkeypatch):
    known, given = models.score_models, []

    def noted(*arguments, method, **options):
        given.append(method)
        return known(*arguments, method=method, **options)

    monkeypatch.setattr(models, "score_models", noted)
    flags = without(small_run(STUDY, tmp_path, 0), "scales", "truncated", "finished")
    execute(STUDY, tmp_path, *flags, "--scales=1")
    (method,) = given
    assert isinstance(method, cv.Auto) and method.key is not None


def test_the_caption_says_what_is_shown(finished):
    caption = temperature._caption(finished).replace("\n", " ")
    for part in ("n = 48 each on 12 prompts", "seed 0", "given", "5 groups of prompts"):
        assert part in caption


def test_bad_input_is_refused(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)
    with pytest.raises(ValueError, match="--groups: expected an integer of at least 2"):
        execute(STUDY, tmp_path, *flags, "--groups=1")
    with pytest.raises(ValueError, match="a perplexity needs --tokens"):
        execute(STUDY, tmp_path, *without(flags, "tokens"))
    np.save(tmp_path / "finished.npy", np.arange(144) < 100)
    with pytest.raises(ValueError, match="--finished: 1 prompts have .* fewer than --groups=5"):
        execute(STUDY, tmp_path, *flags)
    np.save(tmp_path / "finished.npy", np.full(144, "yes"))
    with pytest.raises(ValueError, match="--finished: expected a number of each story"):
        execute(STUDY, tmp_path, *flags)
    (tmp_path / "models.txt").write_text("1\n" * 144)
    with pytest.raises(ValueError, match="--models: expected at least two, received 1"):
        execute(STUDY, tmp_path, *flags)
