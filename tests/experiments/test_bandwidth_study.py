"""The study of bandwidths: its curves, their limits, and the rankings that it compares."""

import math

import numpy as np
import pytest
import xarray as xr
from oracles import gaussian_gram, scores
from small import small_run
from studies import execute

from experiments import bandwidth_surfaces
from experiments.bandwidth import Bandwidth
from experiments.bandwidth_surfaces import ORDERS, SCORES, SWEEPS
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow

WIDE = ("--output_bandwidth=1", "--prompt_bandwidth=1", "--reach=0.001,20000", "--per_octave=1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two models, twelve prompts of three outputs, two of which may be the same."""
    folder = tmp_path_factory.mktemp("bandwidth")
    generator = np.random.default_rng(2)
    outputs = generator.normal(size=(72, 2))
    outputs[1:36:3] = outputs[:36:3]
    prompts = np.tile(np.repeat(2 * generator.normal(size=(12, 2)), 3, axis=0), (2, 1))
    for name, array in {"x": outputs, "t": prompts}.items():
        np.save(folder / f"{name}.npy", array.astype(np.float32))
    (folder / "m.txt").write_text("\n".join(["few"] * 36 + ["many"] * 36))
    files = [f"--outputs={folder / 'x.npy'}", f"--prompts={folder / 't.npy'}"]
    return execute(Bandwidth, folder, *files, f"--models={folder / 'm.txt'}", *WIDE), folder


def points(finished, model):
    """The model's pairs, in the order in which the study draws the prompts."""
    _, folder = finished
    names = np.array((folder / "m.txt").read_text().split())
    arrays = [np.load(folder / f"{name}.npy") for name in "xt"]
    pairs = PairedEmbeddings("own", *arrays, "", {"models": names})
    return bandwidth_surfaces.matched(pairs, least=0.5, rows=500, seed=0).rows(
        np.repeat(["few", "many"], 36) == model
    )


@pytest.mark.parametrize("model", ["few", "many"])
def test_the_study_saves_what_the_oracle_computes(finished, model):
    run, _ = finished
    pairs, multiples = points(finished, model), run.study.multiples
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
    """Twelve groups of one prompt each; their order is the jackknife's own affair."""
    run, _ = finished
    pairs = points(finished, "few")
    place = {"model": "few", "order": "RKE", "score": "Conditional", "outputs": 1, "prompts": 1}
    found = run.found.value.sel(place).values[1:]
    expected = []
    for prompt in np.unique(pairs.prompts, axis=0):
        kept = np.any(pairs.prompts != prompt, axis=1)
        grams = [gaussian_gram(p[kept], 1.0) for p in (pairs.outputs, pairs.prompts)]
        expected.append(scores(*grams, order=2)["conditional"])
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-4)


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


def test_limits_are_means_over_prompts_at_the_narrow_end(finished):
    """Of the Vendi of a prompt's outputs: geometric at order 1, harmonic at order 2."""
    run, _ = finished
    pairs = points(finished, "few")
    for order, mean in (
        ("Vendi", lambda values: math.exp(np.mean(np.log(values)))),
        ("RKE", lambda values: 1 / np.mean(1 / values)),
    ):
        own = [
            scores(gaussian_gram(x, 1.0), np.ones((3, 3)), order=1 + (order == "RKE"))["vendi"]
            for x in pairs.outputs.reshape(12, 3, 2)
        ]
        place = {"model": "few", "order": order, "score": "Conditional", "sweep": "prompts"}
        narrow = run.found.limit.sel(place).sel(scale=1, end="narrow").item()
        assert narrow == pytest.approx(mean(np.array(own)), rel=1e-4)


def test_conditional_times_information_is_vendi(finished):
    """Whatever the bandwidth of the prompts."""
    run, _ = finished
    found = run.found.value.sel(left_out=0)
    product = found.sel(score="Conditional") * found.sel(score="Information")
    for prompts in (0.5, 2.0):
        told, first = (product.sel(prompts=width) for width in (prompts, 1.0))
        np.testing.assert_allclose(told, first, rtol=1e-6)


def test_jackknife_is_that_of_equal_groups():
    values = np.array([[5.0, 1.0, 2.0, 3.0, 6.0]])
    deleted = values[0, 1:]
    expected = math.sqrt(3 / 4 * np.sum((deleted - deleted.mean()) ** 2))
    assert bandwidth_surfaces.jackknife(values) == pytest.approx([expected])


def ranked(taus):
    multiples = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    return bandwidth_surfaces.same_ranking(np.array(taus), multiples)


def test_the_range_of_one_ranking_is_about_the_rule():
    assert ranked([1, 1, 1, 1, 1]) == (0.25, 4.0)
    assert ranked([1, 0.5, 1, 1, 0]) == (1.0, 2.0)
    assert ranked([0, 1, 1, 0, 1]) == (0.5, 1.0)
    assert all(map(math.isnan, ranked([1, 1, 0.9, 1, 1])))


def test_a_ranking_that_turns_round_is_found(tmp_path):
    run = execute(Bandwidth, tmp_path, *small_run(Bandwidth, tmp_path, 0))
    assert run.study.models == ("1 designs", "2 designs", "4 designs")
    found = bandwidth_surfaces.agreement(run.found, "Vendi", "Conditional", "prompts", 1.0)
    held = run.study.multiples.index(1.0)
    assert found.taus[held] == 1
    assert found.pairs == 3
    assert found.reversed is None
    # Narrow prompts leave the designs a prompt.
    place = {"order": "Vendi", "score": "Conditional", "outputs": 1, "left_out": 0}
    assert (run.found.value.sel(place).isel(prompts=0).diff("model") > 0).all()
    turned = bandwidth_surfaces.agreement(run.found, "RKE", "Conditional", "outputs", 1.0)
    assert turned.taus.min() < 1
    assert turned.reversed is not None
    (grid,) = run.study.tables(run)
    columns = [list(column.cells) for column in grid.columns]
    assert f"{turned.reversed} of 3" in columns[6]
    figures = Bandwidth.figures([run])
    assert set(figures) == {"bandwidth_prompts", "bandwidth_outputs", "bandwidth_map"}
    caption = figures["bandwidth_prompts"]._supxlabel.get_text().replace("\n", " ")
    for part in ("3 models on 12 shared prompts", "n = 48 each", "seed 0", "median rule"):
        assert part in caption


def test_reversals_are_counted_beyond_the_errors_of_both_ends(tmp_path):
    """A pair that turns round far beyond its errors counts, one within them does not."""
    run = execute(Bandwidth, tmp_path, *small_run(Bandwidth, tmp_path, 0), "--scales=1")
    noise = np.random.default_rng(0).normal(size=run.found.value.shape)

    def agreement(size):
        values = 10 + size * run.found.value.copy(data=noise)
        swept = xr.DataArray([[1, 2, -1], [1, -2, -3]], dims=("last", "model"))
        is_last = values.prompts == values.prompts[-1]
        shift = xr.where(is_last, swept.isel(last=0), swept.isel(last=1))
        changed = run.found.assign(value=values + shift.where(values.outputs == 1, 0))
        return bandwidth_surfaces.agreement(changed, "RKE", "Conditional", "prompts", 1.0)

    assert agreement(1e-3).reversed == 1
    assert agreement(10.0).reversed == 0


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
    with pytest.raises(ValueError, match="1 of 2 models are left"):
        few = {"a": [1] * 12, "c": counts["c"]}
        bandwidth_surfaces.matched(pairs_of(few), least=0.9, rows=500, seed=0)


def test_without_models_all_pairs_are_one(tmp_path):
    own = small_run(Bandwidth, tmp_path, 0)
    flags = [flag for flag in own if not flag.startswith("--models")]
    run = execute(Bandwidth, tmp_path, *flags, "--rows=30")
    assert run.found.model.values.tolist() == ["all pairs"]
    assert run.study.n == 30
    assert len(Bandwidth.figures([run])["bandwidth_prompts"].axes) == 4
    assert next(iter(run.study.tables(run))).row_count == 16


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--reach=2,4",), "--reach: expected a multiple below 1 and one above, received 2, 4"),
        (("--reach=0.5",), "--reach: expected a multiple below 1"),
        (("--per_octave=0",), "--per_octave"),
        (("--scales=0.5,2",), "--scales: expected 1 among them"),
        (("--scales=1,1",), "--scales: 1 is given twice"),
        (("--least=0",), "--least: expected a share between 0 and 1"),
        (("--rows=5",), "--rows"),
        (("--rule=variance", "--output_bandwidth=1"), "give both"),
        (("--rule=variance", "--kernel=cosine"), "--kernel: expected gaussian"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    own = small_run(Bandwidth, tmp_path, 0)[:3]
    with pytest.raises(ValueError, match=message):
        execute(Bandwidth, tmp_path, *own, *flags)
