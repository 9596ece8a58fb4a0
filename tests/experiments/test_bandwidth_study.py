"""The study of bandwidths: its curves, the pairs that it counts, and how models are matched."""

from typing import Any

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from small import flags, widths, write, write_designers
from studies import execute

from experiments.conditional_vendi import bandwidth
from experiments.conditional_vendi.bandwidth import ORDERS, SCORES, SWEEPS, Bandwidth
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Models of one, two and four designs a prompt."""
    files = write_designers(folder, seed, prompts=12, designs=(1, 2, 4))
    files = [flag for flag in files if not flag.startswith("--prompt=")]
    return files + flags(rule="median", per_octave=1, reach="0.25,4")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two models of 60 prompts in a random order, one with far outputs; and their arrays."""
    folder = tmp_path_factory.mktemp("bandwidth")
    generator = np.random.default_rng(2)
    prompts = np.tile(2 * generator.normal(size=(60, 2)), (2, 1)).astype(np.float32)
    spread = np.repeat([0.5, 3.0], 60)[:, None]
    outputs = (prompts + spread * generator.normal(size=(120, 2))).astype(np.float32)
    models = np.repeat(["few", "many"], 60)
    shuffled = generator.permutation(120)
    arrays = {"outputs": outputs, "prompts": prompts, "models": models}
    files = write(folder, **{name: of[shuffled] for name, of in arrays.items()})
    run = execute(Bandwidth, folder, *files, *widths(1), *flags(reach="0.25,4", per_octave=1))
    return run, {name: (outputs[models == name], prompts[:60]) for name in ("few", "many")}


@pytest.mark.parametrize("sweep", SWEEPS)
def test_the_study_saves_what_the_oracle_computes(finished, sweep):
    run, arrays = finished
    assert run.study.multiples == (0.25, 0.5, 1.0, 2.0, 4.0)
    for model, multiple in (("few", 0.5), ("many", 4.0)):
        outputs, prompts = arrays[model]
        of_x, of_t = (multiple if sweep in (side, "both") else 1 for side in ("outputs", "prompts"))
        grams = gaussian_gram(outputs, of_x), gaussian_gram(prompts, of_t)
        orders: Any = ORDERS
        for name, order in orders.items():
            expected = scores(*grams, order=order)
            told = run.found.sel(sweep=sweep, order=name, model=model, multiple=multiple)
            for score in SCORES:
                own = told.sel(score=score)
                assert own.value.item() == pytest.approx(expected[score.lower()], rel=1e-4)
                low, high = own.band.values
                assert own.saturated or low < own.value < high


def test_the_more_diverse_model_is_told_where_it_is(finished):
    run, _ = finished
    found = run.found.sel(sweep="outputs", order="RKE", score="Conditional")
    assert found.pair.values.tolist() == ["few, many"]
    assert (found.sign.sel(multiple=[2, 4]) == -1).all()
    assert bandwidth.pairs_by_order(found.sign) == (1, 0, 0)
    assert found.p.item() < 0.01


def test_a_pair_that_reverses_is_counted_also_where_the_rule_does_not_tell_it():
    signs = [[1, 0, 0, -1], [1, 1, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0]]
    of_pairs = xr.DataArray(signs, {"multiple": [0.5, 1, 2, 4]}, ("pair", "multiple"))
    assert bandwidth.pairs_by_order(of_pairs) == (2, 1, 1)


def test_rankings_are_compared_with_the_rules():
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


test_bad_flags_are_refused = studies.refuses(
    Bandwidth,
    ("--reach=2,4", "--reach: expected a multiple below 1 and one above, received 2, 4"),
    ("--scales=0.5,2", "--scales means nothing here"),
)
