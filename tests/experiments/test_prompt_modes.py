"""The study of prompt modes on prompts whose modes, and their outputs, are known."""

import dataclasses

import numpy as np
import pytest
from oracles import gaussian_gram
from PIL import Image
from studies import execute

from experiments import prompt_modes

pytestmark = pytest.mark.slow

STUDY = prompt_modes.STUDY


def write_groups(folder):
    """Dogs: 12 prompts and eight outputs; sofas: 9 and two; planes: 6 and one; two pairs each."""
    group = np.repeat([0, 1, 2], [24, 18, 12])
    prompt = np.arange(54) // 2
    prompts = np.stack([10.0 * group, 1e-3 * prompt], 1)
    outputs = 100 * group + np.arange(54) % np.array([8, 2, 1])[group]
    np.save(folder / "x.npy", outputs[:, None].astype(np.float32))
    np.save(folder / "t.npy", prompts.astype(np.float32))
    flags = [f"--outputs={folder / 'x.npy'}", f"--prompts={folder / 't.npy'}"]
    return [*flags, "--output_bandwidth=0.1", "--prompt_bandwidth=1", "--scales=1,0.5"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    return execute(STUDY, folder, *write_groups(folder), "--modes=3", "--directions=1")


def test_modes_of_known_groups_have_their_shares_sizes_and_scores(run):
    found = run.results[prompt_modes.Cell("1")]
    np.testing.assert_allclose(found.share, [24 / 54, 18 / 54, 12 / 54], rtol=1e-4)
    np.testing.assert_allclose(found.size, [24, 18, 12], rtol=1e-3)
    np.testing.assert_allclose(found.scores[0], [8, 2, 1], rtol=1e-3)
    np.testing.assert_allclose(found.scores[1], [8, 2, 1], rtol=1e-3)
    np.testing.assert_allclose(found.output_shares[:, 0], [1 / 8, 1 / 2, 1], rtol=1e-3)
    for mode, prompts in enumerate(((0, 12), (12, 21), (21, 27))):
        assert set(found.prompts[mode]) <= set(range(*prompts))
        assert found.output_prompts[mode, 0] in range(*prompts)
    assert prompt_modes.named(run.settings, np.array([3])) == ["prompt 3"]
    assert run.settings.bandwidths["0.5"].outputs == pytest.approx(0.05)


def test_modes_of_different_diversity_are_told_apart(run):
    """All 27 prompts differ; the groups' scores by many standard errors, in the right direction."""
    found = run.results[prompt_modes.Cell("1")]
    apart = prompt_modes.differences(found)
    for order in (0, 1):
        assert apart[order, 0, 1] > 4
        np.testing.assert_allclose(apart[order], -apart[order].T)
    assert (prompt_modes.standard_errors(found) < found.scores).all()


def test_a_difference_of_modes_that_share_prompts_is_paired(run):
    """By hand: log 4 in errors of sqrt(0.04 + 0.09 - 2 * 0.05)."""
    covariance = np.tile([[0.04, 0.05, 0], [0.05, 0.09, 0], [0, 0, 0.01]], (2, 1, 1))
    found = dataclasses.replace(run.results[prompt_modes.Cell("1")], covariance=covariance)
    apart = prompt_modes.differences(found)
    assert apart[0, 0, 1] == pytest.approx(np.log(4) / np.sqrt(0.03), rel=1e-3)
    assert prompt_modes.standard_errors(found)[0, 1] == pytest.approx(2 * 0.3, rel=1e-3)


def entropies_of(gram, weights):
    root = np.sqrt(weights / weights.sum())
    values = np.linalg.eigvalsh(gram * np.outer(root, root))
    values = values[values > 0]
    return np.array([-np.sum(values * np.log(values)), -np.log(np.sum(values**2))])


def test_influences_are_derivatives_in_the_weights_of_units():
    rng = np.random.default_rng(0)
    gram = gaussian_gram(rng.normal(size=(20, 3)), 0.8)
    weights = rng.random(20)
    weights /= weights.sum()
    units = np.r_[np.arange(7), rng.integers(0, 7, 13)]
    found = prompt_modes.influences(gram, weights, units)
    for unit in range(7):
        tilt = 1e-5 * (units == unit)
        up, down = (entropies_of(gram, weights * (1 + s * tilt)) for s in (1, -1))
        np.testing.assert_allclose(found[:, unit], (up - down) / 2e-5, rtol=1e-6, atol=1e-9)
    # The sum over all units: scaling all weights changes nothing.
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-12)


def test_errors_are_those_of_samples_of_prompts():
    """Against the spread of the entropy over samples: outputs of four kinds, 0.55 ... 0.1."""
    rng = np.random.default_rng(1)
    chance = np.array([0.55, 0.25, 0.1, 0.1])
    found, errors = [], []
    for _ in range(300):
        kinds = rng.choice(4, 120, p=chance)
        gram = (kinds[:, None] == kinds[None, :]).astype(float)
        weights = np.full(120, 1 / 120)
        found.append(entropies_of(gram, weights))
        if len(errors) < 20:
            effects = prompt_modes.influences(gram, weights, np.arange(120))
            errors.append(np.sqrt(np.sum(effects**2, axis=1)))
    np.testing.assert_allclose(np.mean(errors, axis=0), np.std(found, axis=0), rtol=0.12)


def test_whole_prompts_are_drawn(tmp_path):
    flags = write_groups(tmp_path)
    prompts = np.load(tmp_path / "t.npy")
    rows = prompt_modes._rows(prompts, 21, 0)
    kept = prompts[rows]
    assert len(rows) == 20
    assert all(np.sum((kept == row).all(axis=1)) == 2 for row in kept)
    assert not np.array_equal(rows, prompt_modes._rows(prompts, 21, 1))
    run = execute(STUDY, tmp_path, *flags, "--largest=20", "--modes=2")
    assert (run.settings.n, run.settings.prompts) == (20, 10)
    with pytest.raises(ValueError, match="at most the 27 prompts and 54 pairs, received 28 and 3"):
        execute(STUDY, tmp_path / "other", *flags, "--modes=28")


@pytest.mark.parametrize("flag", ["--modes=0", "--directions=0", "--largest=19"])
def test_bad_flags_are_refused(tmp_path, flag):
    with pytest.raises(ValueError, match=flag.partition("=")[0]):
        execute(STUDY, tmp_path, *write_groups(tmp_path), flag)


def test_a_figure_shows_each_mode_with_its_prompts_and_says_what_the_errors_are(run):
    settings = dataclasses.replace(run.settings, names=tuple(f"dog {i}" for i in range(27)))
    figure = prompt_modes.draw([dataclasses.replace(run, settings=settings)])["prompt_modes"]
    assert len(figure.axes) == 2 * 4
    (words,) = figure.axes[0].texts
    assert "dog " in words.get_text()
    assert "24 pairs carry it" in words.get_text()
    caption = figure._supxlabel.get_text().replace("\n", " ")
    for part in (
        "54 pairs of 27 prompts",
        "seed 0",
        "standard errors over prompts",
        "0.1 (outputs",
    ):
        assert part in caption


def test_the_table_names_modes_and_errors(run):
    columns = [list(column.cells) for column in prompt_modes.table(run).columns]
    assert columns[1] == ["1", "2", "3"] * 2
    assert columns[2][0] == "0.444"
    assert " +- " in columns[4][0]


def test_a_picture_of_each_prompt_that_is_named_is_kept(tmp_path):
    """A picture's colour is its row; of the prompts that carry a mode, one row each."""
    flags = write_groups(tmp_path)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for row in range(54):
        Image.new("RGB", (30, 20), (row, 2 * row, 0)).save(folder / f"{row}.png")
    more = ["--modes=3", "--directions=1", "--scales=1"]
    flags = [flag for flag in flags if not flag.startswith("--scales")]
    plain = execute(STUDY, tmp_path / "plain", *flags, *more)
    found = execute(STUDY, tmp_path / "pictured", *flags, *more, f"--pictures={folder}")
    modes = found.results[prompt_modes.Cell("1")]
    assert modes.pictures.shape == (3, 6, 40, 40, 3) and modes.pictures.dtype == np.uint8
    rows = modes.pictures[:, :, 20, 20, 0].astype(int)
    np.testing.assert_array_equal(modes.pictures[:, :, 20, 20, 1], 2 * rows)
    np.testing.assert_array_equal(rows // 2, modes.prompts)
    assert {0, 1} == set((rows % 2).ravel())
    assert plain.results[prompt_modes.Cell("1")].pictures.size == 0
    assert plain.identity["arrays"] != found.identity["arrays"]
    (folder / "7.png").unlink()
    with pytest.raises(ValueError, match="one for each of 54 outputs, found 53"):
        execute(STUDY, tmp_path / "fewer", *flags, *more, f"--pictures={folder}")


def test_pictures_are_drawn_with_their_licence(run):
    pictured = dataclasses.replace(
        run,
        settings=dataclasses.replace(run.settings, credit="CC-BY, by a designer"),
        results={
            cell: dataclasses.replace(found, pictures=np.full((3, 6, 40, 40, 3), 99, np.uint8))
            for cell, found in run.results.items()
        },
    )
    for shown, count in ((run, 0), (pictured, 2 * 18)):
        (figure,) = prompt_modes.draw([shown]).values()
        images = [i for axes in figure.axes for child in axes.child_axes for i in child.images]
        assert len(images) == count
        words = " ".join(figure.get_supxlabel().split())
        assert ("licences: CC-BY, by a designer" in words) == bool(count)
