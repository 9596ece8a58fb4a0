"""The study of bandwidths: its curves, their limits, and the rankings that it compares."""

import math

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from small import flags, small_run, widths, write
from studies import execute

from experiments import bandwidth_surfaces
from experiments.bandwidth import Bandwidth
from experiments.bandwidth_surfaces import ORDERS, SCORES, SWEEPS
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow
designers = studies.finished(Bandwidth)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two models, twelve prompts of three outputs, two of which may be the same; their pairs."""
    folder = tmp_path_factory.mktemp("bandwidth")
    generator = np.random.default_rng(2)
    outputs = generator.normal(size=(72, 2)).astype(np.float32)
    outputs[1:36:3] = outputs[:36:3]
    prompts = np.repeat(2 * generator.normal(size=(12, 2)), 3, axis=0).astype(np.float32)
    prompts, models = np.tile(prompts, (2, 1)), np.repeat(["few", "many"], 36)
    own = write(folder, outputs=outputs, prompts=prompts, models=models) + widths(1)
    run = execute(Bandwidth, folder, *own, *flags(reach="0.001,20000", per_octave=1))
    pairs = PairedEmbeddings("own", outputs, prompts, "", {"models": models})
    # In the order in which the study draws the prompts.
    pairs = bandwidth_surfaces.matched(pairs, least=0.5, rows=500, seed=0)
    return run, {model: pairs.rows(pairs.labels["models"] == model) for model in ("few", "many")}


@pytest.mark.parametrize("model", ["few", "many"])
def test_the_study_saves_what_the_oracle_computes(finished, model):
    run, pairs = finished[0], finished[1][model]
    multiples = run.study.multiples
    found = run.found.value.sel(model=model, left_out=0)
    held = multiples.index(1.0)
    for i, j in ((held, held), (held, held + 2), (held - 2, held), (held + 3, held)):
        grams = [
            gaussian_gram(points, multiples[at])
            for points, at in zip((pairs.outputs, pairs.prompts), (i, j), strict=True)
        ]
        for name, order in ORDERS.items():
            expected = scores(*grams, order=order)
            told = found.sel(order=name).isel(outputs=i, prompts=j)
            for score in SCORES:
                of_score = told.sel(score=score).item()
                assert of_score == pytest.approx(expected[score.lower()], rel=1e-4)


def test_rows_behind_the_first_leave_out_groups_of_prompts(finished):
    """Twelve groups of one prompt each, in any order, from which the jackknife takes its error."""
    run, pairs = finished[0], finished[1]["few"]
    place = {"model": "few", "order": "RKE", "score": "Conditional", "outputs": 1, "prompts": 1}
    found = run.found.value.sel(place).values
    expected = []
    for prompt in np.unique(pairs.prompts, axis=0):
        kept = np.any(pairs.prompts != prompt, axis=1)
        grams = [gaussian_gram(p[kept], 1.0) for p in (pairs.outputs, pairs.prompts)]
        expected.append(scores(*grams, order=2)["conditional"])
    np.testing.assert_allclose(np.sort(found[1:]), np.sort(expected), rtol=1e-4)
    error = math.sqrt(11 / 12 * np.sum((expected - np.mean(expected)) ** 2))
    assert bandwidth_surfaces.jackknife(found[None]) == pytest.approx([error], rel=1e-2)


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_curves_reach_their_limits_at_both_ends(finished, sweep, order, score, scale):
    run, _ = finished
    place, other = {"order": order, "score": score}, SWEEPS[1 - SWEEPS.index(sweep)]
    curve = run.found.value.sel({**place, other: scale, "left_out": 0})
    limits = run.found.limit.sel({**place, "sweep": sweep, "scale": scale})
    narrow, wide = (limits.sel(end=end).values for end in ("narrow", "wide"))
    np.testing.assert_allclose(curve.isel({sweep: 0}), narrow, rtol=1e-4)
    np.testing.assert_allclose(curve.isel({sweep: -1}), wide, rtol=1e-3)
    assert not np.allclose(narrow, wide, rtol=0.05)


@pytest.mark.parametrize(
    ("taus", "expected"),
    [
        ([1, 1, 1, 1, 1], (0.25, 4.0)),
        ([1, 0.5, 1, 1, 0], (1.0, 2.0)),
        ([0, 1, 1, 0, 1], (0.5, 1.0)),
        ([1, 1, 0.9, 1, 1], (math.nan, math.nan)),
    ],
)
def test_the_range_of_one_ranking_is_about_the_rule(taus, expected):
    multiples = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    found = bandwidth_surfaces.same_ranking(np.array(taus), multiples)
    np.testing.assert_equal(found, expected)


def test_a_ranking_that_turns_round_is_found(designers):
    run = designers
    assert run.study.models == ("1 designs", "2 designs", "4 designs")
    taus = bandwidth_surfaces.taus(run.found, "Vendi", "Conditional", "prompts", 1.0)
    assert taus[run.study.multiples.index(1.0)] == 1
    # Narrow prompts leave the designs a prompt.
    place = {"order": "Vendi", "score": "Conditional", "outputs": 1, "left_out": 0}
    assert (run.found.value.sel(place).isel(prompts=0).diff("model") > 0).all()
    turned = bandwidth_surfaces.taus(run.found, "RKE", "Conditional", "outputs", 1.0)
    assert turned.min() < 1
    (grid,) = run.study.tables(run)
    rows = list(zip(*(column.cells for column in grid.columns), strict=True))
    row = next(r for r in rows if r[:3] == ("outputs", "Conditional-RKE", "1"))
    assert row[4] == f"{turned.min():.2f}"
    assert row[6] == bandwidth_surfaces.reversals(run.found, "Conditional", "outputs", 1.0)
    figures = Bandwidth.figures([run])
    assert set(figures) == {"bandwidth_prompts", "bandwidth_outputs", "bandwidth_map"}
    caption = figures["bandwidth_prompts"]._supxlabel.get_text().replace("\n", " ")
    for part in ("3 models on 12 shared prompts", "n = 48 each", "seed 0", "median rule"):
        assert part in caption


def test_reversals_are_counted_beyond_the_errors_of_both_ends(designers):
    """A pair that turns round far beyond its errors counts, one within them does not."""
    found = designers.found
    noise = np.random.default_rng(0).normal(size=found.value.shape)

    def reversals(size):
        values = 10 + size * found.value.copy(data=noise)
        swept = xr.DataArray([[1, 2, -1], [1, -2, -3]], dims=("last", "model"))
        is_last = values.prompts == values.prompts[-1]
        shift = xr.where(is_last, swept.isel(last=0), swept.isel(last=1))
        changed = found.assign(value=values + shift.where(values.outputs == 1, 0))
        return bandwidth_surfaces.reversals(changed, "Conditional", "prompts", 1.0)

    assert reversals(1e-3) == "1 of 3"
    assert reversals(10.0) == "0 of 3"


def pairs_of(counts):
    """Models with so many outputs of each of 12 prompts."""
    rows = [(m, p) for m, row in counts.items() for p, c in enumerate(row) for _ in range(c)]
    models, prompts = zip(*rows, strict=True)
    outputs = np.arange(len(rows), dtype=np.float32)[:, None]
    prompts = np.array(prompts, np.float32)[:, None]
    return PairedEmbeddings("own", outputs, prompts, "", {"models": np.array(models)})


def test_models_are_matched_prompt_by_prompt():
    counts = {"a": [2] * 12, "b": [1] * 11 + [3], "c": [0] * 8 + [1] * 4}
    found = bandwidth_surfaces.matched(pairs_of(counts), least=0.5, rows=500, seed=0)
    assert found.labels["models"].tolist() == ["a"] * 13 + ["b"] * 13
    np.testing.assert_array_equal(found.prompts[:13], found.prompts[13:])
    fewer = bandwidth_surfaces.matched(pairs_of(counts), least=0.5, rows=10, seed=0)
    assert len(fewer) == 20
    np.testing.assert_array_equal(fewer.prompts[:10], fewer.prompts[10:])
    other = bandwidth_surfaces.matched(pairs_of(counts), least=0.5, rows=10, seed=1)
    assert not np.array_equal(fewer.prompts, other.prompts)
    with pytest.raises(ValueError, match="3 models share 4 prompts, expected 10"):
        bandwidth_surfaces.matched(pairs_of(counts), least=0.1, rows=500, seed=0)
    few = pairs_of({"a": [1] * 12, "c": counts["c"]})
    with pytest.raises(ValueError, match="--least=0.9 leaves 1 models"):
        bandwidth_surfaces.matched(few, least=0.9, rows=500, seed=0)


test_bad_flags_are_refused = studies.refuses(
    Bandwidth,
    ("--reach=2,4", "--reach: expected a multiple below 1 and one above, received 2, 4"),
    ("--reach=0.5", "--reach: expected a multiple below 1"),
    ("--per_octave=0", "--per_octave"),
    ("--scales=0.5,2", "--scales: expected 1 among them"),
    ("--least=0", "--least"),
    ("--rows=5", "--rows"),
)


def test_only_a_kernel_with_a_bandwidth_is_swept(tmp_path):
    files = small_run(Bandwidth, tmp_path, 0)[:3]
    with pytest.raises(ValueError, match="--kernel: expected gaussian"):
        execute(Bandwidth, tmp_path, *files, "--kernel=cosine")
