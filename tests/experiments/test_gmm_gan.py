"""The study of GANs on mixtures: generators of which it is known what they capture."""

import jax
import numpy as np
import pytest
from oracles import gaussian_gram
from small import small_run
from studies import execute

import condvendi_jax as cv
from experiments import gmm_gan
from experiments.generators import checkpoints, mixture_gan
from experiments.gmm_gan import REAL, REMOVED, Cell
from experiments.lab import runner, store

pytestmark = pytest.mark.slow

STUDY = gmm_gan.STUDY
RING = mixture_gan.MIXTURES["ring"]
SAMPLES, REFERENCES = 400, 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gmm_gan")


@pytest.fixture(scope="module")
def finished(folder):
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


def widths(run):
    return list(run.settings.bandwidths["ring"].values())


def test_bandwidths_are_of_the_mixture_and_its_multiples(finished):
    names = list(finished.settings.bandwidths["ring"])
    assert names == ["0.5", "1", "2", "std"]
    half, whole, twice, ruled = widths(finished)
    assert (half, twice) == (pytest.approx(whole / 2), pytest.approx(2 * whole))
    assert float(RING.population().rke(kernel=cv.Gaussian(whole))) == pytest.approx(8, rel=1e-3)
    # RKE's own rule takes one at which the mixture itself has fewer modes.
    assert ruled > twice


def test_four_modes_of_eight_are_scored_as_four(finished):
    of = finished.results[Cell("ring", "vanilla")]
    assert of.captured("ring").tolist() == [4, 4]
    np.testing.assert_allclose(of.shares.sum(axis=1), 1, atol=0.01)
    np.testing.assert_allclose(of.shares[0, 1::2], 0.25, atol=0.1)
    np.testing.assert_allclose(of.shares[1, 0::2], 0.25, atol=0.1)
    # Of the mixture's mass, good samples stand for no more than half, nor for much less.
    assert (of.missing >= 0.5).all()
    np.testing.assert_allclose(of.missing, 0.5, atol=0.08)
    # Four points at the corners of a square; half of what four hold is common with eight.
    for column, width in enumerate(widths(finished)):
        corners = np.array(RING.centres)[1::2]
        gram = gaussian_gram(corners, width) / 4
        np.testing.assert_allclose(of.rke[:, column], 1 / np.sum(gram**2), rtol=0.03)
    np.testing.assert_allclose(of.rrke[:, 0], np.log(2), atol=0.25)


def test_seeds_draw_samples_of_their_own(finished):
    of = finished.results[Cell("ring", "vanilla")]
    assert of.rke[0, 0] != of.rke[1, 0]
    assert of.shown.shape == (SAMPLES, 2)


def test_the_mixture_itself_has_its_closed_form(finished):
    of = finished.results[Cell("ring", REAL)]
    assert of.captured("ring").tolist() == [8, 8]
    for column, width in enumerate(widths(finished)):
        exact = float(RING.population().rke(kernel=cv.Gaussian(width)))
        seen = 1 / (1 / SAMPLES + (1 - 1 / SAMPLES) / exact)
        np.testing.assert_allclose(of.rke[:, column], seen, rtol=0.03)
    assert (of.rrke < 0.05).all()
    # The samples of RRKE are not its references.
    assert (of.rrke[:, 0] > 0.002).all()
    assert (of.missing < 0.15).all()
    assert of.steps.size == of.traces.size == 0


def test_removed_modes_are_counted_and_missed(finished):
    of = finished.results[Cell("ring", REMOVED)]
    left = np.arange(8, 0, -1)
    np.testing.assert_array_equal(of.captured("ring"), left)
    np.testing.assert_allclose(of.missing, 1 - left / 8, atol=0.12)
    np.testing.assert_allclose(of.rke[:, 0], left, rtol=0.05)
    # All but the first: c of 8 modes, exp(-RRKE) = c / 8 where modes are far apart.
    np.testing.assert_allclose(of.rrke[:, 0], np.log(8 / left), rtol=0.12, atol=0.06)


def test_rrke_is_the_nuclear_norm_of_the_cross_gram(finished, monkeypatch):
    """The same points through NumPy in float64."""
    seen = []

    def record(points, references, *, kernel):
        seen.append((np.asarray(points, float), np.asarray(references, float), kernel.bandwidth))
        return 0.0

    monkeypatch.setattr(cv.baselines, "rrke", record)
    setup = gmm_gan.lab.Setup(finished.settings, {}, state={})
    name = store.cell_name(Cell("ring", REAL))
    key = runner.cell_key(0, name)
    context = gmm_gan.lab.Context(key, jax.random.key(0), {}, lambda words: None)
    gmm_gan.compute(setup, Cell("ring", REAL), context)
    assert len(seen) == 8
    for (x, y, width), value in zip(
        seen, finished.results[Cell("ring", REAL)].rrke.ravel(), strict=True
    ):
        assert len(x) == len(y) == REFERENCES
        distances = np.sum((x[:, None] - y[None]) ** 2, axis=-1)
        singular = np.linalg.svd(np.exp(-distances / (2 * width**2)), compute_uv=False)
        assert -2 * np.log(singular.sum() / REFERENCES) == pytest.approx(value, abs=2e-4)


def test_removals_take_one_mode_after_the_other():
    weights = gmm_gan.removals(4, 2, jax.random.key(0))
    assert weights.shape == (8, 4)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights > 0).sum(axis=1).tolist() == [4, 4, 3, 3, 2, 2, 1, 1]
    for repeat in range(2):
        left = weights[repeat::2] > 0
        assert (left[1:] <= left[:-1]).all()
    others = gmm_gan.removals(25, 2, jax.random.key(1))
    assert (others[0::2] != others[1::2]).any()


def test_correlations_by_hand(finished):
    """RKE-MC falls with every removed mode, RRKE rises."""
    found = gmm_gan.correlations(finished, "ring", "0.5", [REMOVED])
    np.testing.assert_allclose(found[0, 0], [1, 1, 1])
    np.testing.assert_allclose(found[1, 0], [-1, -1, -1])
    assert found[0, 1, 0] < -0.95
    assert found[1, 1, 0] > 0.95
    # Both networks have four modes.
    assert np.isnan(gmm_gan.correlations(finished, "ring", "0.5", ["vanilla"])[:, 0]).all()
    both = gmm_gan.correlations(finished, "ring", "1", [REMOVED, REAL])
    assert both[0, 0, 1] <= both[0, 0, 0] <= both[0, 0, 2]


def test_mass_is_missing_where_good_samples_are_fewer_than_due():
    of = gmm_gan.Scores(
        *(np.zeros(0),) * 2, np.array([[0.5, 0.0], [0.9, 0.1], [0.2, 0.2]]), *(0,) * 4
    )
    np.testing.assert_allclose(of.missing, [0.5, 0.4, 0.6])


def test_the_table_has_scores_closed_form_correlations_and_movement(finished):
    columns = [list(column.cells) for column in gmm_gan.table(finished).columns]
    row = columns[2].index("closed form")
    exact = float(RING.population().rke(kernel=cv.Gaussian(widths(finished)[0])))
    assert columns[5][row] == f"{exact:.4g}"
    assert columns[2].count("modes removed: rank correlation with mass missing") == 4
    assert columns[3][columns[2].index("GAN: last move, of the seeds' sd")] == "0.00"
    assert columns[3][columns[2].index("GAN")] == "4 ± 0"


def test_captions_say_data_n_rule_and_what_good_means(finished):
    figures = gmm_gan.draw([finished])
    assert set(figures) == {"gmm_gan", "gmm_gan_scores", "gmm_gan_training"}
    text = figures["gmm_gan"]._supxlabel.get_text().replace("\n", " ")
    for part in (
        "ring of 8",
        "400 samples",
        "of 200 against",
        "seed 0",
        "within 3 sd",
        "0.1 of its",
    ):
        assert part in text
    of = finished.results[Cell("ring", "vanilla")]
    title = figures["gmm_gan"].axes[0].get_title()
    assert f"RKE-MC {of.rke[0, 1]:.2f}, RRKE {of.rrke[0, 1]:.3f}" in title
    assert "4 modes, 100% good" in title


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (
            "--samples=300 --references=100 --repeats=2",
            {"samples": 300, "references": 100, "repeats": 2},
        ),
        ("--rules=median", {"rules": ("median",)}),
        ("--scales=1,3", {}),
    ],
)
def test_options_of_scoring_are_settings(folder, finished, given, change):
    flags = runner.define_flags(STUDY)
    assert flags(["gmm_gan", *small_run(STUDY, folder, 0), *given.split()]) == ["gmm_gan"]
    found = gmm_gan.prepare(runner.options_of(STUDY, flags), None, 0).settings
    for name, value in change.items():
        assert getattr(found, name) == value != getattr(finished.settings, name)
    widths, before = (of.bandwidths["ring"] for of in (found, finished.settings))
    if given == "--scales=1,3":
        assert list(widths) == ["1", "3", "std"]
        assert widths["3"] == pytest.approx(3 * before["1"])
    assert (widths != before) == given.startswith(("--rules", "--scales"))


def test_trainings_follow_their_options_and_stay_in_the_cache(tmp_path, monkeypatch):
    asked = []

    def train(training, seed, say):
        asked.append(training)
        units = (2, 4, 2)
        layers = {
            i: {
                "kernel": np.zeros((training.seeds, *units[i : i + 2]), "f4"),
                "bias": np.zeros((training.seeds, units[i + 1]), "f4"),
            }
            for i in range(2)
        }
        trace = {name: np.ones((training.seeds, 2)) for name in mixture_gan.TRACES}
        trace["step"] = np.arange(2)
        return {"generator": {"layers": layers}, "trace": trace, "seconds": np.array(1.0)}

    monkeypatch.setattr(mixture_gan, "train", train)
    options = gmm_gan.Options(
        mixtures=("grid",), kinds=("lsgan", "sngan"), seeds=3, steps=7, cache=str(tmp_path)
    )
    for _ in range(2):
        setup = gmm_gan.prepare(options, None, 0)
    found = [mixture_gan.Training("grid", kind, 7, 3) for kind in ("lsgan", "sngan")]
    assert asked == found
    assert list(setup.arrays) == ["grid lsgan", "grid sngan", "grid"]
    grid = mixture_gan.MIXTURES["grid"]
    np.testing.assert_array_equal(setup.arrays["grid"][:-1], np.ravel(grid.centres))
    assert setup.arrays["grid"][-1] == grid.scale
    names = {checkpoints.file_name(mixture_gan.identity(training)) for training in found}
    assert {path.name for path in tmp_path.iterdir()} == names
    cells = gmm_gan.cells(setup.settings)
    assert [cell.source for cell in cells] == ["lsgan", "sngan", REAL, REMOVED]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--mixtures=square",), "expected some of ring, grid, received 'square'"),
        (("--kinds=began",), "expected some of vanilla,"),
        (("--kinds=vanilla,vanilla",), "--kinds: one is given twice in vanilla, vanilla"),
        (("--scales=1,1",), "--scales: one is given twice"),
        (("--scales=0",), "--scales: expected a positive number, received 0"),
        (("--seeds=0",), "--seeds"),
        (("--steps=0",), "--steps"),
        (("--repeats=0",), "--repeats"),
        (("--samples=1",), "--samples"),
        (("--references=401",), "--references: expected at most --samples=400, received 401"),
        (("--rules=best",), "expected some of count, variance, std, median"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_trained(folder, flags, message, monkeypatch):
    monkeypatch.setattr(mixture_gan, "trained", None)
    with pytest.raises(ValueError, match=message):
        execute(STUDY, folder, *small_run(STUDY, folder, 0), *flags)
