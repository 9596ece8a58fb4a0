"""The study of GANs on mixtures: generators of which it is known what they capture."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import studies
from oracles import gaussian_gram

import condvendi_jax as cv
from experiments import lab
from experiments.generators import checkpoints, mixture_gan
from experiments.lab import runner
from experiments.rke import gan_scores
from experiments.rke.gmm_gan import REAL, REMOVED, GmmGan

pytestmark = pytest.mark.slow

RING = mixture_gan.MIXTURES["ring"]
SAMPLES, REFERENCES = 400, 200

finished = studies.finished(GmmGan)


def of_source(run, source):
    """The results of one source, without what others have more of."""
    of = run.found.sel(mixture="ring", source=source)
    return of.dropna("set", subset=["captured"]).transpose("set", ...)


def widths(run):
    return list(run.study.bandwidths["ring"].values())


def test_bandwidths_are_of_the_mixture_and_the_first_rules_multiples(finished):
    names = list(finished.study.bandwidths["ring"])
    assert names == ["0.5", "1", "2", "std"]
    half, whole, twice, ruled = widths(finished)
    assert (half, twice) == (pytest.approx(whole / 2), pytest.approx(2 * whole))
    assert float(RING.population().rke(kernel=cv.Gaussian(whole))) == pytest.approx(8, rel=1e-3)
    # RKE's own rule takes one at which the mixture itself has fewer modes.
    assert ruled > twice
    turned = gan_scores.bandwidths(RING, ("std", "count"), (1.0, 3.0), 0)
    assert list(turned) == ["1", "3", "count"]
    np.testing.assert_allclose(list(turned.values()), [ruled, 3 * ruled, whole])


def test_four_modes_of_eight_are_scored_as_four(finished):
    of = of_source(finished, "vanilla")
    assert of.captured.values.tolist() == [4, 4]
    np.testing.assert_allclose(of.share[0, 1::2], 0.25, atol=0.1)
    np.testing.assert_allclose(of.share[1, 0::2], 0.25, atol=0.1)
    # Of the mixture's mass, good samples stand for no more than half, nor for much less.
    assert (of.missing >= 0.5).all()
    np.testing.assert_allclose(of.missing, 0.5, atol=0.08)
    # Four points at the corners of a square; half of what four hold is common with eight.
    for column, width in enumerate(widths(finished)):
        corners = np.array(RING.centres)[1::2]
        gram = gaussian_gram(corners, width) / 4
        np.testing.assert_allclose(of.value[:, column, 0], 1 / np.sum(gram**2), rtol=0.03)
    np.testing.assert_allclose(of.value[:, 0, 1], np.log(2), atol=0.25)
    # Networks have samples of their own.
    assert of.value[0, 0, 0] != of.value[1, 0, 0]
    assert of.shown.shape == (SAMPLES, 2)


def test_the_mixture_itself_has_its_closed_form(finished):
    of = of_source(finished, REAL)
    assert of.captured.values.tolist() == [8, 8]
    for column, width in enumerate(widths(finished)):
        exact = float(RING.population().rke(kernel=cv.Gaussian(width)))
        seen = 1 / (1 / SAMPLES + (1 - 1 / SAMPLES) / exact)
        np.testing.assert_allclose(of.value[:, column, 0], seen, rtol=0.03)
    assert (of.value[..., 1] < 0.05).all()
    # The samples of RRKE are not its references.
    assert (of.value[:, 0, 1] > 0.002).all()
    assert (of.missing < 0.15).all()
    assert of.trace.isnull().all() and np.isnan(of.seconds)


def test_removed_modes_are_counted_and_missed(finished):
    of = of_source(finished, REMOVED)
    left = np.arange(8, 0, -1)
    np.testing.assert_array_equal(of.captured, left)
    np.testing.assert_allclose(of.missing, 1 - left / 8, atol=0.12)
    np.testing.assert_allclose(of.value[:, 0, 0], left, rtol=0.05)
    # All but the first: c of 8 modes, exp(-RRKE) = c / 8 where modes are far apart.
    np.testing.assert_allclose(of.value[:, 0, 1], np.log(8 / left), rtol=0.12, atol=0.06)


def test_rrke_is_the_nuclear_norm_of_the_cross_gram(finished, monkeypatch):
    """The same points through NumPy in float64."""
    seen = []

    def record(points, references, *, kernel):
        seen.append((np.asarray(points, float), np.asarray(references, float), kernel.bandwidth))
        return 0.0

    monkeypatch.setattr(cv.baselines, "rrke", record)
    key = runner.cell_key(0, "ring-real")
    context = lab.Context(key, jax.random.key(0), {}, lambda words: None)
    finished.study.compute({}, context, mixture="ring", source=REAL)
    assert len(seen) == 8
    for (x, y, width), value in zip(
        seen, of_source(finished, REAL).value.values[..., 1].ravel(), strict=True
    ):
        assert len(x) == len(y) == REFERENCES
        distances = np.sum((x[:, None] - y[None]) ** 2, axis=-1)
        singular = np.linalg.svd(np.exp(-distances / (2 * width**2)), compute_uv=False)
        assert -2 * np.log(singular.sum() / REFERENCES) == pytest.approx(value, abs=2e-4)


def test_removals_take_one_mode_after_the_other():
    weights = gan_scores.removals(4, 2, jax.random.key(0))
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights > 0).sum(axis=1).tolist() == [4, 4, 3, 3, 2, 2, 1, 1]
    for repeat in range(2):
        left = weights[repeat::2] > 0
        assert (left[1:] <= left[:-1]).all()
    others = gan_scores.removals(25, 2, jax.random.key(1))
    assert (others[0::2] != others[1::2]).any()


def test_correlations_by_hand(finished):
    """RKE-MC falls with every removed mode, RRKE rises; both networks have four modes."""
    removed, alike = (
        gan_scores.correlations(finished.found, [source]).sel(mixture="ring", bandwidth="0.5")
        for source in (REMOVED, "vanilla")
    )
    removed = removed.transpose("score", "with", "end")
    np.testing.assert_allclose(removed[:, 0], [[1, 1, 1], [-1, -1, -1]])
    assert removed[0, 1, 0] < -0.95
    assert removed[1, 1, 0] > 0.95
    assert alike.sel({"with": "captured"}).isnull().all()


def test_mass_is_missing_where_good_samples_are_fewer_than_due():
    two = mixture_gan.Mixture(((0.0, 0.0), (1.0, 0.0)), 0.1, "two")
    counts = ((5, 0), (9, 1), (2, 2))  # Good samples of each mode, of ten.
    places = [jnp.repeat(jnp.array([0.0, 1, 9]), jnp.array([*c, 10 - sum(c)])) for c in counts]
    draws = [lambda key, n, x=x: jnp.stack([x, 0 * x], axis=1) for x in places]
    key, sizes = jax.random.key(0), {"samples": 10, "references": 4}
    of = gan_scores.score(draws, two, {"1": 1.0}, key, **sizes, say=lambda words: None)
    np.testing.assert_allclose(of.missing, [0.5, 0.4, 0.6])


def test_the_tables_have_scores_closed_form_correlations_and_movement(finished):
    captured, scores, ranks, moves = (
        list(zip(*(column.cells for column in grid.columns), strict=True))
        for grid in finished.study.tables(finished)
    )
    assert captured[0][:3] == ("ring", "GAN", "4 ± 0")
    (row,) = (row for row in scores if row[1:3] == ("0.5", "closed form"))
    exact = float(RING.population().rke(kernel=cv.Gaussian(widths(finished)[0])))
    assert row[3:] == (f"{exact:.4g}", "-")
    expected = ("ring", "0.5", "modes removed", "captured", "1.00 [1.00, 1.00]")
    assert expected in {row[:5] for row in ranks}
    assert moves == [("ring", "GAN", "0", "0", "0")]


def test_the_figures_say_data_n_rule_and_what_good_means(finished):
    figure = GmmGan.figures([finished])["gmm_gan"]
    text = figure._supxlabel.get_text().replace("\n", " ")
    for part in ("400 samples", "of 200 against", "0.435 (ring)", "within 3 sd", "0.1 of its"):
        assert part in text
    of = of_source(finished, "vanilla")
    title = figure.axes[0].get_title()
    assert f"RKE-MC {of.value[0, 1, 0]:.2f}, RRKE {of.value[0, 1, 1]:.3f}" in title
    assert "4 modes, 100% good" in title


def test_trainings_follow_their_options_and_stay_in_the_cache(tmp_path, monkeypatch):
    asked = []

    def train(training, seed, say):
        asked.append(training)
        layer = {"kernel": np.zeros((3, 2, 2), "f4"), "bias": np.zeros((3, 2), "f4")}
        trace = {name: np.ones((3, 2)) for name in mixture_gan.TRACES} | {"step": np.arange(2)}
        return {"generator": {"layers": {0: layer}}, "trace": trace, "seconds": np.array(1.0)}

    monkeypatch.setattr(mixture_gan, "train", train)
    kinds, sizes = ("lsgan", "sngan"), {"seeds": 3, "steps": 7}
    options = GmmGan(mixtures=("grid",), kinds=kinds, cache=str(tmp_path), **sizes)
    for _ in range(2):
        setup = options.prepare(None, 0)
    assert asked == [mixture_gan.Training("grid", kind, 7, 3) for kind in kinds]
    names = {checkpoints.file_name(mixture_gan.identity(training)) for training in asked}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert list(setup.arrays) == ["grid lsgan", "grid sngan", "grid"]
    grid = mixture_gan.MIXTURES["grid"]
    np.testing.assert_array_equal(setup.arrays["grid"], [*np.ravel(grid.centres), grid.scale])
    assert setup.study.cache is None


test_bad_flags_are_refused = studies.refuses(
    GmmGan,
    ("--seeds=0", "--seeds"),
    ("--steps=0", "--steps"),
    ("--repeats=0", "--repeats"),
    ("--samples=1", "--samples"),
    ("--references=401", "--references: expected at most --samples=400, received 401"),
)
