"""Generated outputs beside real ones, where what they share is known."""

import numpy as np
import pytest
import studies
from scipy.spatial.distance import cdist
from small import flags, widths, write
from studies import execute

import condvendi_jax as cv
from experiments.rke import beside_real, coverage
from experiments.rke.beside_real import BesideReal

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Twelve real outputs, a copy of each, and as many that are far from all; the flags."""
    real = 10.0 * np.random.default_rng(seed).normal(size=(12, 8))
    files = write(
        folder,
        outputs=np.concatenate([real, real, real + 1000]),
        prompts=np.tile(np.eye(12), (3, 1)),
        models=np.repeat(["real", "copy", "far"], 12),
    )
    return [*files, *widths(1), *flags(reference="real", neighbours=3, scales="1,2", halves=20)]


finished = studies.finished(BesideReal)


def test_the_metrics_are_those_of_the_library_and_of_coverage():
    generated, real = points = np.random.default_rng(0).normal(size=(2, 12, 3)).astype(np.float32)
    both, kernel = np.concatenate(points), cv.Gaussian(1.3)
    distances = np.linalg.norm(both[:, None] - both, axis=-1)
    rke, rrke, *shares = beside_real.score(np.exp(-(distances**2) / (2 * 1.3**2)), distances, 2)
    assert rke == pytest.approx(float(cv.rke(generated, kernel=kernel)), rel=1e-4)
    assert rrke == pytest.approx(float(cv.baselines.rrke(generated, real, kernel=kernel)), rel=1e-3)
    parts = cdist(real, generated), cdist(generated, generated), cdist(real, real)
    assert shares == pytest.approx(coverage.neighbourly(*parts, 2))  # Tested by its definitions.


def test_a_copy_is_near_and_other_outputs_are_far(finished):
    found = finished.found.sel(scale=1, embedding="outputs")
    copy, far, shares = found.sel(model="copy"), found.sel(model="far"), ["Precision", "Coverage"]
    assert copy.value.sel(metric="RRKE") == pytest.approx(0, abs=1e-4)
    assert far.value.sel(metric="RRKE") > 5 and (far.value.sel(metric=shares) == 0).all()
    assert (copy.value.sel(metric=shares) == 1).all()
    # Twelve outputs far from each other, and the reference has no distance from itself.
    np.testing.assert_allclose(found.value.sel(metric="RKE-MC"), 12, rtol=1e-3)
    assert found.value.sel(model="real", metric="RRKE").isnull()
    # Real outputs of other prompts are none of these.
    assert (found.apart.sel(metric="RRKE") > 5).all()


def test_errors_are_those_of_as_many_prompts(tmp_path):
    generator = np.random.default_rng(0)
    many = generator.normal(size=(300, 80, 2))
    arrays = {"outputs": np.concatenate(many[:2]), "prompts": np.tile(np.eye(80), (2, 1))}
    files = write(tmp_path, **arrays, models=np.repeat(["real", "other"], 80))
    more = flags(reference="real", scales=1, halves=200)
    run = execute(BesideReal, tmp_path, *files, *widths(1), *more)
    error = run.found.error.sel(model="other", metric="RKE-MC").item()
    distances = [((x[:, None] - x) ** 2).sum(-1) for x in many]
    assert 0.5 < error / np.std([1 / np.mean(np.exp(-d)) for d in distances]) < 2


test_bad_flags_are_refused = studies.refuses(
    BesideReal,
    ("--reference=nobody", "--reference: expected one of the models, received nobody"),
    ("--neighbours=6", "--neighbours: expected fewer than half of the 12 prompts"),
)
