"""RKE-MC, recall and coverage against the sample size, on types whose answer is known."""

import math

import jax
import numpy as np
import pytest
import studies
from oracles import gaussian_gram
from scipy.spatial.distance import cdist
from small import small_run
from studies import execute

from experiments.data import PairedEmbeddings
from experiments.rke import coverage
from experiments.rke.coverage import Coverage

pytestmark = pytest.mark.slow
finished = studies.finished(Coverage)


def brute_force(references, samples, k):
    """Both metrics by their definitions, one point at a time."""

    def reaches(centre, own, point):
        others = sorted(math.dist(centre, p) for i, p in enumerate(own) if p is not centre)
        return math.dist(centre, point) <= others[k - 1]

    references, samples = list(references), list(samples)
    recalled = [any(reaches(s, samples, r) for s in samples) for r in references]
    covered = [any(reaches(r, references, s) for s in samples) for r in references]
    return np.mean(recalled), np.mean(covered)


@pytest.mark.parametrize("k", [1, 3])
def test_metrics_are_those_of_the_definitions(k):
    generator = np.random.default_rng(k)
    references = generator.normal(size=(25, 2))
    samples = 0.4 * generator.normal(size=(18, 2)) + 0.5
    across, of_r, of_s = (
        cdist(a, b)
        for a, b in ((references, samples), (references, references), (samples, samples))
    )
    recalled, covered = brute_force(references, samples, k)
    assert coverage.recall(across, of_s, k) == pytest.approx(recalled)
    assert coverage.coverage(across, of_r, k) == pytest.approx(covered)
    assert recalled != covered


def test_coverage_of_equal_distributions_is_the_expected_one():
    generator = np.random.default_rng(0)
    n, k, trials = 30, 4, 150
    found = []
    for _ in range(trials):
        references, samples = generator.normal(size=(2, n, 3))
        across, within = cdist(references, samples), cdist(references, references)
        found.append(coverage.coverage(across, within, k))
    (expected,) = coverage.expected_coverage(np.array([n]), k)
    assert expected == pytest.approx(1 - math.comb(n - 1, k) / math.comb(2 * n - 1, k))
    error = np.std(found) / math.sqrt(trials)
    assert abs(np.mean(found) - expected) < 4 * error < 0.02


def test_lost_types_show_in_every_metric(finished):
    """Four types far apart: samples of one recall a quarter, and are one mode."""
    one, every = (finished.found.value.sel(kept=kept) for kept in (1, 4))
    assert np.isnan(one.sel(n=120)).all()  # A quarter of a half is not so many.
    assert np.isfinite(every).all()
    few = finished.study.sizes[0]
    # More neighbours than references of a type reach into another type.
    shares = ["Recall", "Coverage"]
    np.testing.assert_allclose(one.sel(metric=shares, width=0, n=few), 0.25, atol=0.15)
    assert (every.sel(metric=shares, n=120) > 0.8).all()
    # At the middle scale a type is one mode, and the four of them four.
    np.testing.assert_allclose(one.sel(metric="RKE-MC", width=1, n=few), 1, atol=0.1)
    np.testing.assert_allclose(every.sel(metric="RKE-MC", width=1, n=120), 4, atol=0.3)


def test_scores_are_those_of_the_split(finished, tmp_path):
    flags = small_run(Coverage, tmp_path, 0)
    outputs, types = (np.load(flag.partition("=")[2]) for flag in flags[:2])
    pairs = PairedEmbeddings("own", outputs, outputs[:, :1], "", {"types": types})
    rows = coverage.split(pairs, 4, 1, jax.random.key(0))
    assert sorted(np.concatenate(rows)) == list(range(240))
    n = finished.study.sizes[1]
    samples, references = (outputs[part][:n] for part in rows)
    found = finished.found.value.sel(kept=4, repeat=1, n=n)
    for width, scale in enumerate(finished.study.scales):
        rke = found.sel(metric="RKE-MC", width=width).item()
        gram = gaussian_gram(samples, 10 * scale)
        assert rke == pytest.approx(n**2 / np.sum(gram**2), rel=1e-4)
        expected = brute_force(references, samples, finished.study.neighbours[width])
        told = found.sel(metric=["Recall", "Coverage"], width=width)
        np.testing.assert_allclose(told, expected)


def test_types_of_a_repeat_are_nested():
    types = np.repeat(np.arange(6), 20)
    pairs = PairedEmbeddings("own", types[:, None] * 1.0, types[:, None], "", {"types": types})
    key = jax.random.key(3)
    kept = [{*types[coverage.split(pairs, j, 0, key)[0]].tolist()} for j in (1, 3, 6)]
    assert [len(k) for k in kept] == [1, 3, 6]
    assert kept[0] < kept[1] < kept[2]
    one, other = (coverage.split(pairs, 6, repeat, key)[0] for repeat in (0, 1))
    assert one.tolist() != other.tolist()


def test_the_table_and_the_figure_say_what_is_seen(finished):
    (grid,) = finished.study.tables(finished)
    rows = list(zip(*(column.cells for column in grid.columns), strict=True))
    one = finished.found.value.sel(metric="RKE-MC", kept=1).dropna("n")
    ends = one.sel(width=0).isel(n=-1)
    shown = (str(ends.n.item()), f"{ends.mean().item():.3g}", f"{ends.std().item():.2g}")
    assert ("RKE-MC", "k = 3, bandwidth 5", "1", *shown) in [row[:6] for row in rows]
    figure = Coverage.figures([finished])["coverage"]
    caption = figure._supxlabel.get_text().replace("\n", " ")
    for part in ("240 outputs", "2 random halves", "seed 0", "bandwidth 10 (given)"):
        assert part.lower() in caption.lower()
    assert figure.axes[0].get_ylabel() == "k = 3, bandwidth 5"
    every = finished.found.value.sel(metric="RKE-MC", kept=4, n=ends.n, width=1).mean()
    share = (one.sel(width=1).isel(n=-1).mean() / every).item()
    assert figure.axes[5].get_title() == f"RKE-MC keeps {share:.0%} with 1 of 4 types"


test_bad_flags_are_refused = studies.refuses(
    Coverage,
    ("--kept=5", "between 1 and the 4 types, received 5"),
    ("--neighbours=5", "as many as scales, 3, not 1"),
    ("--neighbours=3,5,100 --kept=1", "100 are not fewer than the .* samples"),
    ("--neighbours=0,1,2", "--neighbours"),
    ("--rule=median", "--rule=median means nothing beside --output_bandwidth"),
    ("--output_bandwidth=0", "--output_bandwidth: expected a number above 0"),
    ("--repeats=0", "--repeats"),
    ("--prompts=t.npy", "Unknown command line flag 'prompts'"),
)


def test_options_have_defaults_of_the_data(tmp_path):
    own = small_run(Coverage, tmp_path, 0)[:2]
    run = execute(Coverage, tmp_path, *own, "--repeats=1", "--rule=median", "--neighbours=1,2,3")
    assert run.study.kept == (1, 2, 4)
    assert 20 < run.study.sizes[0] < 50  # A quarter of a half.
    assert run.study.sizes[-1] == 120
    assert run.study.described == "median distance"
