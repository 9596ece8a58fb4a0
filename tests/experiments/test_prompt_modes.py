"""The study of prompt modes on prompts whose modes, and their outputs, are known."""

import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from small import widths, write

from experiments import lab
from experiments.conditional_vendi.prompt_modes import PromptModes, told, whole_prompts
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Dogs: 12 prompts and eight outputs; sofas: 9 and two; planes: 6 and one; two pairs each."""
    group = np.repeat([0, 1, 2], [24, 18, 12])
    prompt = np.arange(54) // 2
    prompts = np.stack([5.0 * group, 2e-3 * prompt], 1)
    outputs = 100 * group + np.arange(54) % np.array([8, 2, 1])[group]
    flags = write(folder, outputs=1.0 * outputs[:, None], prompts=prompts)
    return [*flags, *widths(0.1, 1), "--scales=1,0.5", "--modes=3"]


run = studies.finished(PromptModes)
test_bad_flags_are_refused = studies.refuses(
    PromptModes, ("--modes=28", "--modes: expected at most the 27 prompts, got 28")
)


def test_prompts_are_drawn_with_all_of_their_outputs():
    prompts = np.repeat(np.arange(6.0), [1, 2, 3, 4, 5, 6])[:, None]
    rows = whole_prompts(prompts, 12, seed=0)
    kinds, counts = np.unique(prompts[rows], return_counts=True)
    assert 6 < len(rows) <= 12 and (counts == kinds + 1).all()
    assert len(whole_prompts(prompts, 21, seed=0)) == 21


def test_modes_of_known_groups_have_their_shares_sizes_and_scores(run):
    found = run.found.sel(scale=1)
    np.testing.assert_allclose(found.share, [24 / 54, 18 / 54, 12 / 54], rtol=1e-4)
    np.testing.assert_allclose(found["size"], [24, 18, 12], rtol=1e-3)
    np.testing.assert_allclose(found.value, [[8, 2, 1]] * 2, rtol=1e-3)
    for mode, prompts in enumerate(((0, 12), (12, 21), (21, 27))):
        assert set(found.prompts.values[mode]) <= set(range(*prompts))


def entropies_of(gram, weights):
    root = np.sqrt(weights / weights.sum())
    values = np.linalg.eigvalsh(gram * np.outer(root, root))
    values = values[values > 0]
    return np.array([-np.sum(values * np.log(values)), -np.log(np.sum(values**2))])


def influences(gram, weights, units):
    """The derivatives of both entropies in the logarithm of the weight of each unit."""
    tilts = 1e-5 * np.eye(units.max() + 1)[units].T
    ends = [[entropies_of(gram, weights * (1 + s * tilt)) for tilt in tilts] for s in (-1, 1)]
    return np.diff(ends, axis=0)[0].T / 2e-5


def test_covariances_are_sums_over_prompts():
    """Of influences under the weights v^2, by the eigenvectors v of the prompts' Gram."""
    rng, kind = np.random.default_rng(2), np.arange(40) % 20
    outputs, prompts = rng.normal(size=(40, 2)), rng.normal(size=(20, 2))[kind]
    pairs = PairedEmbeddings("own", outputs.astype("f4"), prompts.astype("f4"), "")
    scales = lab.Scales(output_bandwidth=0.8, prompt_bandwidth=0.9, scales=(1.0,))
    found = studies.computed(PromptModes(bandwidths=scales, modes=2), pairs)[1]
    vectors = np.linalg.eigh(gaussian_gram(prompts, 0.9))[1][:, ::-1]
    gram = gaussian_gram(outputs, 0.8)
    effects = [influences(gram, v**2, kind) for v in vectors[:, :2].T]
    for other in (1, 2):
        expected = np.sum(effects[0] * effects[other - 1], axis=1) * 20 / 19
        covariance = found.covariance.sel(mode=1, other=other)
        np.testing.assert_allclose(covariance, expected, rtol=1e-3, atol=1e-6)


def test_a_difference_of_modes_that_share_prompts_is_paired(run):
    """By hand: log 4 in errors of sqrt(0.04 + 0.09 - 2 * 0.05)."""
    covariance = np.tile([[0.04, 0.05, 0], [0.05, 0.09, 0], [0, 0, 0.01]], (2, 1, 1))
    found = run.found.sel(scale=1)
    found["covariance"] = (("score", "mode", "other"), covariance)
    vendi = told(found).sel(score="Vendi")
    apart = np.log(4) / np.sqrt(0.03)
    assert vendi.apart.sel(mode=1, other=2) == pytest.approx(apart, rel=1e-3)
    np.testing.assert_allclose(vendi.apart, -vendi.apart.transpose("other", "mode"))
    assert vendi.error.sel(mode=2).item() == pytest.approx(2 * 0.3, rel=1e-3)
    # Of modes 2 and 3 alone: log 2 in errors of sqrt(0.09 + 0.01).
    assert vendi.among.item() == pytest.approx(np.log(2) / np.sqrt(0.1), rel=1e-3)
