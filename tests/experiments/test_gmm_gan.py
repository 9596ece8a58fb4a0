"""The study of GANs on mixtures: generators of which it is known what they capture."""

import jax
import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from small import flags

from experiments.generators import mixture_gan
from experiments.rke import gmm_gan
from experiments.rke.gmm_gan import REAL, REMOVED, GmmGan

pytestmark = pytest.mark.slow


def small(folder, seed):
    """A shipped GAN of the ring, another kind for another seed."""
    names = flags(mixtures="ring", kinds=("vanilla", "lsgan")[seed])
    return names + flags(samples=400, references=200, repeats=1)


RING = mixture_gan.MIXTURES["ring"]
SAMPLES = 400


def sample(params, key, n):
    """Of four of the ring's eight modes, exactly."""
    return params["corners"][jax.random.randint(key, (n,), 0, 4)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Of five generators; the last four have the modes between those of the first."""
    corners = np.array(RING.centres, np.float32)
    corners = np.stack([corners[1::2], *[corners[0::2]] * 4])
    trace = {name: np.ones((5, 3)) for name in mixture_gan.TRACES}
    trained = {"generator": {"corners": corners}, "trace": trace}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture_gan, "trained", lambda training, places: trained)
        patch.setattr(mixture_gan, "sample", sample)
        folder = tmp_path_factory.mktemp("gmm_gan")
        return studies.execute(GmmGan, folder, *small(folder, 0))


def of_source(run, source):
    """The results of one source, without what others have more of, and the bandwidths."""
    of = run.found.sel(mixture="ring", source=source).dropna("set", subset=["captured"])
    return of.transpose("set", ...), list(run.study.bandwidths["ring"].values())


def test_four_modes_of_eight_are_scored_as_four(finished):
    of, widths = of_source(finished, "vanilla")
    assert of.captured.values.tolist() == [4] * 5
    np.testing.assert_allclose(of.share[0, 1::2], 0.25, atol=0.1)
    np.testing.assert_allclose(of.share[1, 0::2], 0.25, atol=0.1)
    # Of the mixture's mass, good samples stand for no more than half, nor for much less.
    assert (of.missing >= 0.5).all()
    np.testing.assert_allclose(of.missing, 0.5, atol=0.08)
    # Four points at the corners of a square; half of what four hold is common with eight.
    for column, width in enumerate(widths):
        gram = gaussian_gram(np.array(RING.centres)[1::2], width) / 4
        np.testing.assert_allclose(of.value[:, column, 0], 1 / np.sum(gram**2), rtol=0.03)
    np.testing.assert_allclose(of.value[:, 0, 1], np.log(2), atol=0.25)
    assert of.value[0, 0, 0] != of.value[1, 0, 0]  # Networks have samples of their own.


def test_the_mixture_itself_has_its_closed_form(finished):
    of, widths = of_source(finished, REAL)
    assert of.captured.values.tolist() == [8] * 5
    half, whole, twice, ruled = widths
    # RKE's own rule takes one at which the mixture itself has fewer modes.
    assert (half, twice) == (pytest.approx(whole / 2), pytest.approx(2 * whole)) and ruled > twice
    for column, width in enumerate(widths):
        exact = RING.rke(width)
        assert width != whole or exact == pytest.approx(8, rel=1e-3)
        seen = 1 / (1 / SAMPLES + (1 - 1 / SAMPLES) / exact)
        np.testing.assert_allclose(of.value[:, column, 0], seen, rtol=0.03)
    # The samples of RRKE are not its references.
    assert (of.value[..., 1] < 0.05).all() and (of.value[:, 0, 1] > 0.002).all()
    assert (of.missing < 0.15).all() and of.trace.isnull().all()


def test_removed_modes_are_counted_and_missed(finished):
    of, _ = of_source(finished, REMOVED)
    left = np.arange(8, 0, -1)
    np.testing.assert_array_equal(of.captured, left)
    np.testing.assert_allclose(of.missing, 1 - left / 8, atol=0.12)
    np.testing.assert_allclose(of.value[:, 0, 0], left, rtol=0.05)
    # All but the first: c of 8 modes, exp(-RRKE) = c / 8 where modes are far apart.
    np.testing.assert_allclose(of.value[:, 0, 1], np.log(8 / left), rtol=0.12, atol=0.06)


def test_correlations_by_hand(finished):
    """RKE-MC falls with every removed mode, RRKE rises; all networks have four modes."""
    removed, alike = (
        gmm_gan.correlations(finished.found, (source,)).sel(mixture="ring", bandwidth="0.5")
        for source in (REMOVED, "vanilla")
    )
    removed = removed.transpose("score", "with", "end")
    np.testing.assert_allclose(removed[:, 0], [[1, 1, 1], [-1, -1, -1]])
    assert removed[0, 1, 0] < -0.95 and removed[1, 1, 0] > 0.95
    assert alike.sel({"with": "captured"}).isnull().all()
    # Mass is missing where good samples are fewer than due.
    shares = np.array([(5, 0), (9, 1), (2, 2)]) / 10
    np.testing.assert_allclose(gmm_gan.missing(shares), [0.5, 0.4, 0.6])


test_bad_flags_are_refused = studies.refuses(
    GmmGan, ("--references=401", "--references: expected at most --samples=400, received 401")
)
