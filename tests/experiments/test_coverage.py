"""RKE-MC, recall and coverage against the sample size, on types whose answer is known."""

import math

import jax
import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from scipy.spatial.distance import cdist
from small import flags, write

from experiments.data import PairedEmbeddings
from experiments.rke import coverage
from experiments.rke.coverage import Coverage

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Four far types of one distribution each, of which samples have one or all."""
    generator = np.random.default_rng(seed)
    types = generator.integers(0, 4, 240)
    outputs = generator.normal(size=(240, 3)) + 100 * types[:, None]
    files = write(folder, outputs=outputs, types=types)
    return files + flags(output_bandwidth=10, kept="1,4", repeats=2)


finished = studies.finished(Coverage)


def test_coverage_of_equal_distributions_is_the_expected_one():
    n, k, trials = 30, 4, 150
    found = []
    for references, samples in np.random.default_rng(0).normal(size=(trials, 2, n, 3)):
        across, within = cdist(references, samples), cdist(references, references)
        found.append(coverage.neighbourly(across, within, within, k)[3])
    (expected,) = coverage.expected_coverage(np.array([n]), k)
    assert expected == pytest.approx(1 - math.comb(n - 1, k) / math.comb(2 * n - 1, k))
    error = np.std(found) / math.sqrt(trials)
    assert abs(np.mean(found) - expected) < 4 * error < 0.02


def test_precision_recall_density_and_coverage_by_their_definitions():
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
    found = coverage.neighbourly(across, *within, k=3)
    np.testing.assert_allclose(found, expected)


def test_lost_types_show_in_every_metric(finished):
    """Four types far apart: samples of one recall a quarter, and are one mode."""
    one, every = (finished.found.sel(kept=kept) for kept in (1, 4))
    # A quarter of a half is not so many.
    assert one.sel(n=120).modes.isnull().all() and one.sel(n=120).share.isnull().all()
    few = finished.study.sizes[0]
    # More neighbours than references of a type reach into another type.
    np.testing.assert_allclose(one.share.sel(k=3, n=few), 0.25, atol=0.15)
    assert (every.share.sel(n=120) > 0.8).all()
    # At the middle scale a type is one mode, and the four of them four.
    np.testing.assert_allclose(one.modes.sel(scale=1, n=few), 1, atol=0.1)
    np.testing.assert_allclose(every.modes.sel(scale=1, n=120), 4, atol=0.3)


def test_scores_are_those_of_the_split(finished, tmp_path):
    flags = small(tmp_path, 0)
    outputs, types = (np.load(flag.partition("=")[2]) for flag in flags[:2])
    pairs = PairedEmbeddings("own", outputs, outputs[:, :1], "", {"types": types})
    rows = coverage.split(pairs, 4, 1, jax.random.key(0))
    assert sorted(np.concatenate(rows)) == list(range(240))
    n = finished.study.sizes[1]
    samples, references = (outputs[part][:n] for part in rows)
    found = finished.found.sel(kept=4, repeat=1, n=n)
    for scale in finished.study.scales:
        gram = gaussian_gram(samples, 10 * scale)
        rke = found.modes.sel(scale=scale).item()
        assert rke == pytest.approx(n**2 / np.sum(gram**2), rel=1e-4)
    distances = [
        cdist(*of) for of in ((references, samples), (samples, samples), (references, references))
    ]
    for k in finished.study.neighbours:
        _, *shares = coverage.neighbourly(*distances, k=k)  # Tested by their definitions.
        np.testing.assert_allclose(found.share.sel(k=k), shares[::2])


test_bad_flags_are_refused = studies.refuses(
    Coverage,
    ("--kept=5", "between 1 and the 4 types, received 5"),
    ("--neighbours=3,5,100 --kept=1", "100 are not fewer than the .* samples"),
)
