"""The studies of bandwidths, of toy mixtures and of theorems; the README's picture."""

import itertools
from typing import Any

import jax
import numpy as np
import precision
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from small import flags, mean_squared_kernels, widths, write, write_designers

from experiments.conditional_vendi import bandwidth, gmm_toy, idea
from experiments.conditional_vendi.bandwidth import Bandwidth
from experiments.conditional_vendi.gmm_toy import GmmToy, columns, draw_pairs
from experiments.conditional_vendi.theorems import CLAIMS, Theorems
from experiments.data import PairedEmbeddings
from experiments.lab import runner

pytestmark = pytest.mark.slow


def small_bandwidth(folder):
    """Models of one, two and four designs a prompt."""
    files = write_designers(folder, prompts=12, designs=(1, 2, 4))
    files = [flag for flag in files if not flag.startswith("--prompt=")]
    return files + flags(rule="median", per_octave=1, reach="0.25,4")


@pytest.fixture(scope="module")
def bandwidth_run(tmp_path_factory):
    """Two models of 60 prompts in a random order, one with far outputs; and their arrays."""
    folder, generator = tmp_path_factory.mktemp("bandwidth"), np.random.default_rng(2)
    prompts = np.tile(2 * generator.normal(size=(60, 2)), (2, 1)).astype(np.float32)
    spread = np.repeat([0.5, 3.0], 60)[:, None]
    outputs = (prompts + spread * generator.normal(size=(120, 2))).astype(np.float32)
    models, shuffled = np.repeat(["few", "many"], 60), generator.permutation(120)
    arrays = {"outputs": outputs, "prompts": prompts, "models": models}
    files = write(folder, **{name: of[shuffled] for name, of in arrays.items()})
    more = [*widths(1), *flags(reach="0.25,4", per_octave=1)]
    run = studies.execute(Bandwidth, folder, *files, *more)
    return run, {name: (outputs[models == name], prompts[:60]) for name in ("few", "many")}


@pytest.mark.parametrize("sweep", bandwidth.SWEEPS)
def test_the_study_saves_what_the_oracle_computes(bandwidth_run, sweep):
    run, arrays = bandwidth_run
    assert run.study.multiples == (0.25, 0.5, 1.0, 2.0, 4.0)
    for model, multiple in (("few", 0.5), ("many", 4.0)):
        of_x, of_t = (multiple if sweep in (side, "both") else 1 for side in ("outputs", "prompts"))
        grams = gaussian_gram(arrays[model][0], of_x), gaussian_gram(arrays[model][1], of_t)
        orders: Any = bandwidth.ORDERS
        for name, order in orders.items():
            expected = scores(*grams, order=order)
            told = run.found.sel(sweep=sweep, order=name, model=model, multiple=multiple)
            for score in bandwidth.SCORES:
                own = told.sel(score=score)
                assert own.value.item() == pytest.approx(expected[score.lower()], rel=1e-4)
                low, high = own.band.values
                assert own.saturated or low < own.value < high


def test_the_more_diverse_model_is_told_and_pairs_that_reverse_are_counted(bandwidth_run):
    found = bandwidth_run[0].found.sel(sweep="outputs", order="RKE", score="Conditional")
    assert found.pair.values.tolist() == ["few, many"]
    assert (found.sign.sel(multiple=[2, 4]) == -1).all()
    assert bandwidth.pairs_by_order(found.sign) == (1, 0, 0)
    assert found.p.item() < 0.01
    # A pair is counted also where the rule does not tell it.
    signs = [[1, 0, 0, -1], [1, 1, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0]]
    of_pairs = xr.DataArray(signs, {"multiple": [0.5, 1, 2, 4]}, ("pair", "multiple"))
    assert bandwidth.pairs_by_order(of_pairs) == (2, 1, 1)
    # Rankings are compared with the rule's.
    curves = [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 1.0, 3.0]]
    values = xr.DataArray(curves, {"multiple": [0.5, 1.0, 2.0]}, ("multiple", "model"))
    np.testing.assert_allclose(bandwidth.taus(values, 2.0), [-1, 1, -1 / 3])


def test_models_are_matched_prompt_by_prompt():
    counts = np.array([[2] * 12, [1] * 11 + [3], [0] * 8 + [1] * 4])  # By model and prompt.
    model, prompt = np.repeat(np.indices(counts.shape).reshape(2, -1), counts.ravel(), axis=1)
    points, labels = prompt[:, None].astype(np.float32), {"models": np.array([*"abc"])[model]}
    pairs = PairedEmbeddings("own", points, points, "", labels)
    found, fewer, other = (
        bandwidth.matched(pairs, least=0.5, rows=rows, seed=seed)
        for rows, seed in ((500, 0), (10, 0), (10, 1))
    )
    for of, each in ((found, 13), (fewer, 10)):
        assert of.labels["models"].tolist() == ["a"] * each + ["b"] * each
        np.testing.assert_array_equal(of.prompts[:each], of.prompts[each:])
    assert not np.array_equal(fewer.prompts, other.prompts)
    for least, message in ((0.1, "3 models share 4 prompts, expected 10"), (1.1, "0 models")):
        with pytest.raises(ValueError, match=message):
            bandwidth.matched(pairs, least=least, rows=500, seed=0)


# Components so far apart and so narrow that each is one mode.
NARROW = flags(n=24, repeats=2, prompt_modes="1,2,4", output_modes="2,4,6", apart=40, spreads=1e-3)
gmm_toy_run = studies.finished(GmmToy, NARROW)


def test_scores_are_those_of_the_pairs_of_the_stated_geometry(tmp_path):
    sizes = flags(prompt_modes=2, output_modes=3, n=30, bandwidth=0.5, spreads=0.3)
    more = flags(apart=2, repeats=2, seed=3)
    found = studies.execute(GmmToy, tmp_path, *sizes, *more).found
    found = found.sel(prompts=2, outputs=3, spread=0.3)
    cell: Any = "2-3-0.3"
    key = jax.random.split(runner.cell_key(3, cell), 2)[1]
    grams = [gaussian_gram(of, 0.5) for of in draw_pairs((3, 2), 2.0, 0.3, key, 30)[0]]
    known = [scores(*grams, order=order) for order in (1, 2)]
    expected = [of[score] for of in known for score in ("conditional", "information")]
    np.testing.assert_allclose(found.value.sel(repeat=1), expected, rtol=1e-4)
    assert found.point.shape == (30, 2, 2)
    assert set(found["mode"].sel(role="outputs").values) == {0, 1, 2}


def test_modes_are_counted_and_trends_said(gmm_toy_run):
    by = GmmToy.facts([gmm_toy_run])["by"].value.sel(score=gmm_toy.SCORES[0], spread=1e-3)
    np.testing.assert_allclose(by.sel(varied="prompts").dropna("modes"), [4, 2, 1], rtol=0.01)
    _, trends = gmm_toy_run.study.tables(gmm_toy_run)
    assert [*trends.columns[3].cells][0] == "4.00 to 1.00"
    assert gmm_toy.moves(np.array([1.0, 3.0, 2.0])) == "1.00 to 2.00, up and down"
    up, errors = [1.0, 2.0], np.full((1, 3), 0.5)
    for values, told in (([1, 3, 2], False), ([1, 3, 2.5], True), ([1, 1.2, 1.4], False)):
        assert gmm_toy._comes_out(up, np.array([values]), errors) == told


def test_centres_are_in_two_columns_and_matched_at_least_cost_and_pairs_keep_every_point():
    np.testing.assert_array_equal(columns(1.5, 2), [[-1.5, 0], [1.5, 0]])
    np.testing.assert_array_equal(columns(1.5, 3), [[-1.5, -1.5], [-1.5, 1.5], [1.5, 0]])
    np.testing.assert_array_equal(columns(1.5, 1), [[0, 0]])
    generator, rows = np.random.default_rng(0), np.arange(6)
    for _ in range(5):
        outputs, prompts = generator.normal(size=(2, 6, 2))
        costs = np.linalg.norm(prompts[:, None] - outputs[None], axis=-1)
        totals = {order: costs[rows, order].sum() for order in itertools.permutations(range(6))}
        assert tuple(gmm_toy.match(outputs, prompts)) == min(totals, key=totals.__getitem__)
    key = jax.random.key(0)
    points, kinds = draw_pairs((4, 2), 4.0, 0.2, key, 800)
    assert [np.bincount(of).tolist() for of in kinds] == [[200] * 4, [400] * 2]
    noise = points[0] - columns(2.0, 4)[kinds[0]]
    np.testing.assert_allclose(np.cov(noise.T), 0.04 * np.eye(2), atol=0.01)
    moved, others = draw_pairs((4, 2), 8.0, 0.2, key, 800)
    other = moved[0] - columns(4.0, 4)[others[0]]
    # The noise is the key's.
    np.testing.assert_allclose(np.sort(noise[:, 0]), np.sort(other[:, 0]), atol=1e-5)


def test_closed_forms_of_kernels_of_normal_laws_are_the_means_over_samples():
    rng = np.random.default_rng(1)
    means, mode = rng.normal(size=(3, 2)), np.repeat(np.arange(3), 1000)
    points = means[mode] + 0.4 * rng.normal(size=(3000, 2))
    squares = gaussian_gram(points, 0.8) ** 2
    np.fill_diagonal(squares, np.nan)
    sampled = np.nanmean(squares.reshape(3, 1000, 3, 1000), axis=(1, 3))
    np.testing.assert_allclose(mean_squared_kernels(means, 0.4, 0.8), sampled, rtol=0.05)


theorems_run = studies.finished(Theorems, flags(samples=20))


def test_sharper_bounds_lie_between_errors_and_prints_which_fail_where_a_prompt_is_rare(
    theorems_run,
):
    for name in CLAIMS[:3]:
        found = theorems_run.found.sel(claim=name).isel(n=-1)
        assert (found["quantile"] < found.sharp).sum() == 5
        assert (found.sharp < found.bound).sum() == found.bound.notnull().sum() > 0
    found = theorems_run.found.sel(claim=CLAIMS[4])
    assert (found.rare_gap > found.rare_printed).any()
    assert not (found.rare_gap > found.rare_corrected + 1e-9).any()
    assert not (found.ordinary_gap > found.ordinary_printed + 1e-9).any()


def test_models_of_the_readme_are_equally_diverse_for_opposite_reasons_and_bars_say_so():
    with precision.optimised():
        figure, found = idea.draw()
    follows, ignores = found["A"], found["B"]
    assert abs(follows.vendi - ignores.vendi) < 0.1
    assert 1.0 < follows.conditional < 1.1 and 3.7 < follows.information < 4.0
    assert 3.9 < ignores.conditional < 4.2 and 0.99 < ignores.information < 1.03
    bars: Any = figure.axes[2]
    drawn = [bar.get_width() for bar in bars.patches]
    wanted = [getattr(scores, name) for scores in found.values() for name in idea._SCORES]
    np.testing.assert_allclose(drawn, np.array(wanted, float), rtol=1e-5)
    assert {text.get_text() for text in bars.texts} >= {f"{width:.2f}" for width in drawn}


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (Bandwidth, small_bandwidth, "--reach=2,4", "a multiple below 1 and one above, received 2, 4"),
    (Bandwidth, small_bandwidth, "--scales=0.5,2", "--scales means nothing here"),
    (GmmToy, NARROW, "--n=1", "--n: expected at least one pair a mode"),
)
