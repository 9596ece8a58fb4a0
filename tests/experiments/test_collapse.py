"""The study of GANs that collapse while a monitor looks at them."""

import jax
import numpy as np
import pytest
import studies
from small import flags

import condvendi_jax as cv
from experiments.rke.collapse import CONSTANT, DOUBLING, Collapse

pytestmark = pytest.mark.slow


def small(folder, seed):
    """A generator that never learned, with samples that are all in one place in the end."""
    sizes = flags(start=20, steps=60, every=20, repeats=1, batches=20, baseline=6, samples=5)
    return [*sizes, *flags(doubling=2, seed=seed)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collapse")
    with jax.numpy_dtype_promotion("standard"):  # As `optax_promotes`.
        return studies.execute(Collapse, folder, *small(folder, 0))


def test_only_the_training_whose_rate_doubles_raises_an_alarm(finished):
    of = finished.found.isel(repeat=0)
    assert np.isnan(of.alarm.sel(rate=CONSTANT))
    collapsed = of.sel(rate=DOUBLING)
    assert collapsed.alarm.item() in collapsed.step.values
    there = collapsed.isel(look=np.flatnonzero(collapsed.step == collapsed.alarm))
    assert (there.evidence >= collapsed.limit).all() and (there.score < collapsed.bound).all()
    assert collapsed.score[-1] == pytest.approx(1, abs=1e-3)


def test_both_rates_have_one_baseline(finished):
    one, other = (finished.found.isel(repeat=0).sel(rate=rate) for rate in (CONSTANT, DOUBLING))
    np.testing.assert_array_equal(one.baseline, other.baseline)
    np.testing.assert_array_equal(one.shown[0], other.shown[0])
    kernel = cv.Gaussian(finished.study.bandwidth)
    batches = one.shown.values[0].astype(np.float32)
    rke = float(cv.decompose(batches, kernel=kernel, order=2, unbiased=True).vendi)
    assert one.baseline[0].item() == pytest.approx(rke, rel=0.3)


test_bad_flags_are_refused = studies.refuses(
    Collapse, ("--every=7", "--every=7: expected a divisor of --steps=60")
)
