"""The studies of RKE: beside real outputs, coverage, generators, GANs, a generator's knob."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram
from scipy import linalg
from scipy.spatial.distance import cdist
from small import flags, widths, write

import condvendi_jax as cv
from experiments.data import PairedEmbeddings
from experiments.generators import mixture_gan
from experiments.lab import knobs, tables
from experiments.rke import beside_real, coverage, generator_scores, gmm_gan
from experiments.rke.generator_scores import SCORES
from experiments.rke.gmm_gan import REAL, REMOVED
from experiments.rke.latent_truncation import LatentTruncation

pytestmark = pytest.mark.slow


def small_beside_real(folder):
    """Twelve real outputs, a copy of each, and as many that are far from all."""
    real = 10.0 * np.random.default_rng(0).normal(size=(12, 8))
    outputs, prompts = np.concatenate([real, real, real + 1000]), np.tile(np.eye(12), (3, 1))
    models = np.repeat(["real", "copy", "far"], 12)
    more = flags(reference="real", neighbours=3, scales="1,2", halves=20)
    return [*write(folder, outputs=outputs, prompts=prompts, models=models), *widths(1), *more]


beside_real_run = studies.finished(beside_real.BesideReal, small_beside_real)


def test_the_metrics_beside_real_are_those_of_the_library_and_of_coverage():
    generated, real = points = np.random.default_rng(0).normal(size=(2, 12, 3)).astype(np.float32)
    both, kernel = np.concatenate(points), cv.Gaussian(1.3)
    distances = cdist(both, both)
    rke, rrke, *shares = beside_real.score(np.exp(-(distances**2) / (2 * 1.3**2)), distances, 2)
    assert rke == pytest.approx(float(cv.rke(generated, kernel=kernel)), rel=1e-4)
    assert rrke == pytest.approx(float(cv.baselines.rrke(generated, real, kernel=kernel)), rel=1e-3)
    parts = cdist(real, generated), cdist(generated, generated), cdist(real, real)
    assert shares == pytest.approx(coverage.neighbourly(*parts, 2))  # Tested by its definitions.


def test_a_copy_is_near_and_other_outputs_are_far(beside_real_run):
    found = beside_real_run.found.sel(scale=1, embedding="outputs")
    copy, far, shares = found.sel(model="copy"), found.sel(model="far"), ["Precision", "Coverage"]
    assert copy.value.sel(metric="RRKE") == pytest.approx(0, abs=1e-4)
    assert far.value.sel(metric="RRKE") > 5 and (far.value.sel(metric=shares) == 0).all()
    assert (copy.value.sel(metric=shares) == 1).all()
    # Twelve outputs far from each other, and the reference has no distance from itself.
    np.testing.assert_allclose(found.value.sel(metric="RKE-MC"), 12, rtol=1e-3)
    assert found.value.sel(model="real", metric="RRKE").isnull()
    # Real outputs of other prompts are none of these.
    assert (found.apart.sel(metric="RRKE") > 5).all()


def test_errors_beside_real_are_those_of_as_many_prompts(tmp_path):
    many = np.random.default_rng(0).normal(size=(300, 80, 2))
    arrays = {"outputs": np.concatenate(many[:2]), "prompts": np.tile(np.eye(80), (2, 1))}
    files = write(tmp_path, **arrays, models=np.repeat(["real", "other"], 80))
    more = flags(reference="real", scales=1, halves=200)
    run = studies.execute(beside_real.BesideReal, tmp_path, *files, *widths(1), *more)
    error = run.found.error.sel(model="other", metric="RKE-MC").item()
    expected = np.std([1 / np.mean(np.exp(-(cdist(x, x) ** 2))) for x in many])
    assert 0.5 < error / expected < 2


def small_coverage(folder):
    """Four far types of one distribution each, of which samples have one or all."""
    generator = np.random.default_rng(0)
    types = generator.integers(0, 4, 240)
    outputs = generator.normal(size=(240, 3)) + 100 * types[:, None]
    more = flags(output_bandwidth=10, kept="1,4", repeats=2)
    return write(folder, outputs=outputs, types=types) + more


coverage_run = studies.finished(coverage.Coverage, small_coverage)


def test_shares_of_neighbours_are_their_definitions_and_coverage_is_the_expected_one():
    generator = np.random.default_rng(1)
    samples, references = generator.normal(size=(12, 2)), 2 * generator.normal(size=(15, 2))
    across = cdist(references, samples)
    within = [cdist(of, of) for of in (samples, references)]
    reach_s, reach_r = (np.sort(of)[:, 3] for of in within)
    expected = [
        np.mean([any(across[:, j] <= reach_r) for j in range(12)]),
        np.mean([any(across[i] <= reach_s) for i in range(15)]),
        np.mean([sum(across[:, j] <= reach_r) / 3 for j in range(12)]),
        np.mean([across[i].min() <= reach_r[i] for i in range(15)]),
    ]
    np.testing.assert_allclose(coverage.neighbourly(across, *within, k=3), expected)
    n, k, found = 30, 4, []
    for references, samples in np.random.default_rng(0).normal(size=(150, 2, n, 3)):
        across, within = cdist(references, samples), cdist(references, references)
        found.append(coverage.neighbourly(across, within, within, k)[3])
    (expected,) = coverage.expected_coverage(np.array([n]), k)
    assert expected == pytest.approx(1 - math.comb(n - 1, k) / math.comb(2 * n - 1, k))
    error = np.std(found) / math.sqrt(150)
    assert abs(np.mean(found) - expected) < 4 * error < 0.02


def test_lost_types_show_in_every_metric_of_the_split(coverage_run, tmp_path):
    """Four types far apart: samples of one recall a quarter, and are one mode."""
    study = coverage_run.study
    one, every = (coverage_run.found.sel(kept=kept) for kept in (1, 4))
    # A quarter of a half is not so many.
    assert one.sel(n=120).modes.isnull().all() and one.sel(n=120).share.isnull().all()
    few, n, *_ = study.sizes
    # More neighbours than references of a type reach into another type.
    np.testing.assert_allclose(one.share.sel(k=3, n=few), 0.25, atol=0.15)
    assert (every.share.sel(n=120) > 0.8).all()
    # At the middle scale a type is one mode, and the four of them four.
    np.testing.assert_allclose(one.modes.sel(scale=1, n=few), 1, atol=0.1)
    np.testing.assert_allclose(every.modes.sel(scale=1, n=120), 4, atol=0.3)

    files = small_coverage(tmp_path)
    outputs, types = (np.load(flag.partition("=")[2]) for flag in files[:2])
    pairs = PairedEmbeddings("own", outputs, outputs[:, :1], "", {"types": types})
    rows = coverage.split(pairs, 4, 1, jax.random.key(0))
    assert sorted(np.concatenate(rows)) == list(range(240))
    samples, references = (outputs[part][:n] for part in rows)
    found = every.sel(repeat=1, n=n)
    for scale in study.scales:
        rke = n**2 / np.sum(gaussian_gram(samples, 10 * scale) ** 2)
        assert found.modes.sel(scale=scale).item() == pytest.approx(rke, rel=1e-4)
    both = (references, samples), (samples, samples), (references, references)
    distances = [cdist(*of) for of in both]
    for k in study.neighbours:
        _, *shares = coverage.neighbourly(*distances, k=k)
        np.testing.assert_allclose(found.share.sel(k=k), shares[::2])


# The shipped GANs of the ring, few samples.
generator_scores_run = studies.finished(
    generator_scores.GeneratorScores, flags(sources="ring", samples=60, repeats=2)
)


def test_inception_scores_and_frechet_distances_are_their_definitions():
    sure = 50 * jnp.eye(4)[jnp.array([0, 1, 1, 2])]
    shares = np.array([1, 2, 1]) / 4
    expected = np.exp(-np.sum(shares * np.log(shares)))
    assert generator_scores.inception_score(sure) == pytest.approx(expected)
    assert generator_scores.inception_score(jnp.zeros((5, 4))) == pytest.approx(1)
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(40, 3)), 2 * generator.normal(size=(30, 3)) + 1
    covariances = np.cov(x.T), np.cov(y.T)
    root = np.real(linalg.sqrtm(covariances[0] @ covariances[1]))
    means = np.sum((x.mean(0) - y.mean(0)) ** 2)
    expected = means + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert generator_scores.frechet(x, y) == pytest.approx(expected)


def test_the_data_have_their_modes_and_a_collapsed_gan_has_one(generator_scores_run, monkeypatch):
    found, study = generator_scores_run.found, generator_scores_run.study
    place = {"data": "ring", "generator": generator_scores.REAL, "score": "RKE-MC"}
    of = found.value.sel(place).mean("repeat")
    assert 5 < of[0] < 9 and of[1] < 4
    at_once = np.array([mixture_gan.MIXTURES["ring"].centres[0]] * 60, "f4")
    monkeypatch.setattr(mixture_gan, "sample", lambda *_: at_once)
    scores = studies.computed(study, None)[1].value
    np.testing.assert_allclose(scores.sel(score=["IS", "RKE-MC"]), 1, atol=1e-3)
    assert (scores.sel(score="Recall") == 0).all()


def ranked(values):
    """Scores of five generators and the data, `[repeats, 6]`: RKE-MC; IS alike, RRKE reversed."""
    found = np.random.default_rng(0).normal(size=(*np.shape(values), len(SCORES)))
    found[..., [SCORES.index("IS"), -1]] = np.array(values)[..., None]
    found[..., SCORES.index("RRKE")] = -np.array(values)
    labels = {"data": ["ring"], "bandwidth": ["count"], "repeat": range(len(values))}
    labels |= {"generator": [*"abcde", generator_scores.REAL], "score": list(SCORES)}
    return xr.Dataset({"value": (tuple(labels), found[None, None])}, labels)


def test_correlations_of_scores_are_over_generators_and_data_with_exact_p():
    ranks = generator_scores.correlations(ranked([range(6), range(6)]))
    ranks = ranks.sel(data="ring", bandwidth="count")
    told = ranks.sel(score=["IS", "RRKE"])  # Lower is better.
    np.testing.assert_allclose(told.value, 1)
    np.testing.assert_allclose(told.p, 2 / 720)
    others = ranks.sel(score=["Precision", "Density"])
    assert (others.ends.sel(end="low") <= others.value).all() and (others.p > 2 / 720).all()
    five = generator_scores.correlations(ranked([range(6)]), left_out=generator_scores.REAL)
    np.testing.assert_allclose(five.p.sel(score="IS"), 2 / 120)
    # One of five places exchanged is no evidence.
    scores = ranked([range(6)])
    scores.value.loc[{"score": "IS"}] = [1, 0, 2, 3, 4, 5]
    found = generator_scores.correlations(scores, left_out=generator_scores.REAL).sel(score="IS")
    assert found.value.item() == pytest.approx(0.9) and found.p.item() == pytest.approx(1 / 12)


# A shipped GAN of the ring.
SAMPLES, RING = 400, mixture_gan.MIXTURES["ring"]
SMALL_GAN = flags(mixtures="ring", kinds="vanilla", samples=SAMPLES, references=200, repeats=1)


@pytest.fixture(scope="module")
def gmm_gan_run(tmp_path_factory):
    """Of five generators of four modes each; the last four have those between the first's."""
    corners = np.array(RING.centres, np.float32)
    corners = np.stack([corners[1::2], *[corners[0::2]] * 4])
    trace = {name: np.ones((5, 3)) for name in mixture_gan.TRACES}
    trained = {"generator": {"corners": corners}, "trace": trace}

    def sample(params, key, n):
        return params["corners"][jax.random.randint(key, (n,), 0, 4)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture_gan, "trained", lambda training, places: trained)
        patch.setattr(mixture_gan, "sample", sample)
        return studies.execute(gmm_gan.GmmGan, tmp_path_factory.mktemp("gmm_gan"), *SMALL_GAN)


def of_source(run, source):
    """The results of one source, without what others have more of, and the bandwidths."""
    of = run.found.sel(mixture="ring", source=source).dropna("set", subset=["captured"])
    return of.transpose("set", ...), list(run.study.bandwidths["ring"].values())


def test_four_modes_of_eight_are_scored_as_four(gmm_gan_run):
    of, bandwidths = of_source(gmm_gan_run, "vanilla")
    assert of.captured.values.tolist() == [4] * 5
    np.testing.assert_allclose(of.share[0, 1::2], 0.25, atol=0.1)
    np.testing.assert_allclose(of.share[1, 0::2], 0.25, atol=0.1)
    # Of the mixture's mass, good samples stand for no more than half, nor for much less.
    assert (of.missing >= 0.5).all()
    np.testing.assert_allclose(of.missing, 0.5, atol=0.08)
    # Four points at the corners of a square; half of what four hold is common with eight.
    for column, width in enumerate(bandwidths):
        gram = gaussian_gram(np.array(RING.centres)[1::2], width) / 4
        np.testing.assert_allclose(of.value[:, column, 0], 1 / np.sum(gram**2), rtol=0.03)
    np.testing.assert_allclose(of.value[:, 0, 1], np.log(2), atol=0.25)
    assert of.value[0, 0, 0] != of.value[1, 0, 0]  # Networks have samples of their own.


def test_the_mixture_itself_has_its_closed_form(gmm_gan_run):
    of, bandwidths = of_source(gmm_gan_run, REAL)
    assert of.captured.values.tolist() == [8] * 5
    half, whole, twice, ruled = bandwidths
    # RKE's own rule takes one at which the mixture itself has fewer modes.
    assert (half, twice) == (pytest.approx(whole / 2), pytest.approx(2 * whole)) and ruled > twice
    for column, width in enumerate(bandwidths):
        exact = RING.rke(width)
        assert width != whole or exact == pytest.approx(8, rel=1e-3)
        seen = 1 / (1 / SAMPLES + (1 - 1 / SAMPLES) / exact)
        np.testing.assert_allclose(of.value[:, column, 0], seen, rtol=0.03)
    # The samples of RRKE are not its references.
    assert (of.value[..., 1] < 0.05).all() and (of.value[:, 0, 1] > 0.002).all()
    assert (of.missing < 0.15).all() and of.trace.isnull().all()


def test_removed_modes_are_counted_and_missed_as_correlations_say(gmm_gan_run):
    """RKE-MC falls with every removed mode, RRKE rises; all networks have four modes."""
    of, _ = of_source(gmm_gan_run, REMOVED)
    left = np.arange(8, 0, -1)
    np.testing.assert_array_equal(of.captured, left)
    np.testing.assert_allclose(of.missing, 1 - left / 8, atol=0.12)
    np.testing.assert_allclose(of.value[:, 0, 0], left, rtol=0.05)
    # All but the first: c of 8 modes, exp(-RRKE) = c / 8 where modes are far apart.
    np.testing.assert_allclose(of.value[:, 0, 1], np.log(8 / left), rtol=0.12, atol=0.06)
    removed, alike = (
        gmm_gan.correlations(gmm_gan_run.found, (source,)).sel(mixture="ring", bandwidth="0.5")
        for source in (REMOVED, "vanilla")
    )
    removed = removed.transpose("score", "with", "end")
    np.testing.assert_allclose(removed[:, 0], [[1, 1, 1], [-1, -1, -1]])
    assert removed[0, 1, 0] < -0.95 and removed[1, 1, 0] > 0.95
    assert alike.sel({"with": "captured"}).isnull().all()
    # Mass is missing where good samples are fewer than due.
    shares = np.array([(5, 0), (9, 1), (2, 2)]) / 10
    np.testing.assert_allclose(gmm_gan.missing(shares), [0.5, 0.4, 0.6])


def small_latent_truncation(folder):
    """Three types far apart, of four outputs each that the knob moves apart: one mode, then four.

    Prompts are one of two wordings of the type, as far apart.
    """
    kind, which = (part.ravel() for part in np.indices((3, 8)))
    centres, values = 1000.0 * (kind + 1), (0.0, 0.5, 1.0)
    prompts = np.stack([1000.0 * kind, 1000.0 * (which // 4)], axis=1)
    outputs = np.concatenate([centres + 80.0 * value * (which % 4) for value in values])
    files = write(
        folder,
        outputs=np.stack([outputs, np.zeros(len(outputs))], axis=1),
        prompts=np.tile(prompts, (3, 1)),
        types=np.tile(kind, 3),
        models=np.repeat(values, len(kind)),
    )
    return [*files, *widths(4), *flags(groups=3, scales="1,2")]


latent_truncation_run = studies.finished(LatentTruncation, small_latent_truncation)


def test_the_knob_opens_the_modes_within_a_type(latent_truncation_run):
    """Three types of two wordings: a mode each without latents, and four each with them.

    The wordings of a type have the same four modes, so that outputs do not tell them.
    """
    assert latent_truncation_run.study.values == (0.0, 0.5, 1.0)
    found = latent_truncation_run.found
    assert (found.n == 24).all()
    for order in ("Vendi", "RKE"):
        known = {order: [3, 12, 12], f"Conditional-{order}": [1, 4, 4]}
        for name, expected in {**known, f"Information-{order}": [3, 3, 3]}.items():
            np.testing.assert_allclose(found.value.sel(score=name), [expected] * 2, rtol=1e-3)
    within = found.within.transpose("scale", "type", "setting")
    np.testing.assert_allclose(within, [[[1, 4, 4]] * 3] * 2, rtol=1e-3)


def test_scores_hang_on_the_bandwidth_and_are_those_of_the_pairs(tmp_path):
    files = small_latent_truncation(tmp_path)
    drawn = np.load(tmp_path / "x.npy")
    drawn += np.random.default_rng(1).normal(scale=20, size=drawn.shape).astype(np.float32)
    np.save(tmp_path / "x.npy", drawn)
    more = [*widths(30, 700), *flags(scales="0.5,1", samples=5, groups=2)]
    run = studies.execute(LatentTruncation, tmp_path, *files, *more)
    assert run.study.samples == 5
    files = (np.load(tmp_path / name) for name in ("x.npy", "t.npy"))
    outputs, prompts = (of.reshape(3, 3, 8, 2)[:, :, :5].reshape(3, 15, 2) for of in files)
    for scale, at in np.ndindex(2, 3):
        found, scale = run.found.isel(scale=scale, setting=at), (0.5, 1.0)[scale]
        k_x, k_t = gaussian_gram(outputs[at], 30 * scale), gaussian_gram(prompts[at], 700 * scale)
        of_x, of_t, joint = (np.mean(k**2) for k in (k_x, k_t, k_x * k_t))
        expected = [of_t / joint, joint / (of_x * of_t), 1 / of_x]
        np.testing.assert_allclose(found.value[3:], expected, 1e-3)
        within = [1 / np.mean(k_x[i : i + 5, i : i + 5] ** 2) for i in (0, 5, 10)]
        np.testing.assert_allclose(found.within, within, rtol=1e-3)
    opened = run.found.within.isel(setting=[1, 2])
    assert (opened.sel(scale=0.5) > opened.sel(scale=1)).all()


def test_the_trend_of_a_knob_is_over_the_types():
    by_type = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0], [3.0, 2.0, 1.0]])
    axes = {"type": list("abcd"), "setting": [0.0, 0.5, 1.0]}
    found = xr.Dataset({"within": (tuple(axes), by_type)}, axes)
    averaged = tables.means(found.within, "type")
    np.testing.assert_allclose(averaged.value, by_type.mean(axis=0))
    np.testing.assert_allclose(averaged.error, by_type.std(axis=0, ddof=1) / 2)
    correlation, interval = knobs.trend(found.within)
    each = np.array([1.0, 0.5, -1.0])  # The type that does not change says nothing.
    assert correlation == pytest.approx(each.mean())
    half = 4.302653 * each.std(ddof=1) / np.sqrt(3)
    assert interval == pytest.approx((each.mean() - half, each.mean() + half))


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (beside_real.BesideReal, small_beside_real, "--reference=nobody", "one of the models, rec"),
    (beside_real.BesideReal, small_beside_real, "--neighbours=6", "fewer than half of the 12 pro"),
    (coverage.Coverage, small_coverage, "--kept=5", "between 1 and the 4 types, received 5"),
    (coverage.Coverage, small_coverage, "--neighbours=3,5,100 --kept=1", "100 are not fewer than"),
    (gmm_gan.GmmGan, SMALL_GAN, "--references=401", "--references: expected at most --samples=400"),
)
