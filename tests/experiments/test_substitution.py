"""The study of substitution, on prompts that their outputs tell apart."""

import numpy as np
import pytest
import studies
import xarray as xr
from small import flags, widths, write_uneven_models
from studies import computed

from experiments import lab
from experiments.conditional_vendi import substitution
from experiments.conditional_vendi.substitution import INFORMATION, OTHER, SAME, Substitution
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Prompts far apart, eight outputs of each, of three models with 1, 2 and 4 modes a prompt."""
    files = write_uneven_models(folder, seed)
    files = [flag for flag in files if "--models" not in flag]
    return [*files, *widths(0.5), *flags(scales=1, repeats=2, steps=2)]


finished = studies.finished(Substitution)


def result(outputs, prompts, prompt, **fields):
    """The values of the first draw on these pairs, at bandwidths of 0.5."""
    arrays = outputs.astype("f4"), prompts.astype("f4")
    pairs = PairedEmbeddings("own", *arrays, "own", labels={"prompt": prompt})
    scales = lab.Scales(output_bandwidth=0.5, prompt_bandwidth=0.5, scales=(1.0,))
    return computed(Substitution(bandwidths=scales, **fields), pairs)[1].value


def test_information_is_the_number_of_prompts_and_falls_to_independence():
    """240 pairs in 56 equal cells have an entropy less than theirs by 55 / 480 in expectation."""
    generator = np.random.default_rng(0)
    prompt = np.repeat(np.arange(16), 60)
    outputs = 2 * generator.normal(size=(16, 12))[prompt]
    outputs += 0.02 * generator.normal(size=outputs.shape)
    prompts = (2 * generator.normal(size=(16, 8)))[prompt]
    found = result(outputs, prompts, prompt, pairs=240, steps=3, dimensions=2)
    found = found.sel(metric=list(INFORMATION))
    same, other = found.sel(replaced=SAME), found.sel(replaced=OTHER)
    np.testing.assert_allclose(same, 8, rtol=0.03)
    np.testing.assert_allclose(other.sel(share=0), 8, rtol=0.03)
    assert (other.diff("share") < 0).all()
    assert other.isel(share=1).diff("metric") > 0.5
    expected = [64 / 56 * np.exp(55 / 480), 64 * (1 / 56 + 1 / 240)]
    np.testing.assert_allclose(other.sel(share=1), expected, atol=0.15)


def test_mid_and_cosine_fall_with_others_and_stay_with_the_same_prompt():
    """Outputs are a linear function of their prompts, which a linear map finds on half of them."""
    generator = np.random.default_rng(0)
    prompt = np.repeat(np.arange(120), 6)
    prompts = generator.normal(size=(120, 4))[prompt]
    outputs = prompts @ generator.normal(size=(4, 6)) + 0.5 * generator.normal(size=(720, 6))
    found = result(outputs, prompts, prompt, pairs=180, steps=2, dimensions=4)
    found = found.sel(metric=["MID", "cosine"])
    same, other = found.sel(replaced=SAME), found.sel(replaced=OTHER)
    np.testing.assert_allclose(same.sel(share=1), other.sel(share=0), rtol=0.1)
    assert (same.sel(share=1) != other.sel(share=0)).all()
    mid, cosine = (other.sel(metric=metric).values for metric in ("MID", "cosine"))
    assert cosine[0] > 0.8 and cosine[2] == pytest.approx(0, abs=0.15)
    assert mid[0] > 1 and mid[2] < 0
    middle = (other.sel(share=0) + other.sel(share=1)) / 2
    np.testing.assert_allclose(other.sel(share=0.5), middle, atol=0.1 * np.ptp(mid))


@pytest.mark.parametrize("replaced", [0, 2, 13, 40])
def test_draws_part_prompts_and_replace_the_first_of_the_order_alone(replaced):
    generator = np.random.default_rng(0)
    prompt = np.random.default_rng(3).integers(0, 20, 300)
    drawn = substitution.draw_rows(prompt, 40, generator)
    assert (prompt[drawn.rows] == prompt[drawn.partners]).all()
    both = np.concatenate([drawn.rows, drawn.partners])
    assert np.unique(both).size == 80
    assert not set(prompt[both]) & set(prompt[drawn.reference])
    assert sorted(drawn.order) == list(range(40))
    chosen, rest = drawn.order[:replaced], drawn.order[replaced:]
    same = substitution.by_partners(drawn, replaced)
    other = substitution.by_others(drawn, prompt, replaced, generator)
    for rows in (same, other):
        np.testing.assert_array_equal(rows[rest], drawn.rows[rest])
    np.testing.assert_array_equal(same[chosen], drawn.partners[chosen])
    assert sorted(other) == sorted(drawn.rows)
    if replaced > 2:
        assert (prompt[other[chosen]] != prompt[drawn.rows[chosen]]).all()


def draws(*rows):
    """A metric of two draws at the shares 0, 0.25, 0.5 and 1, which SAME leaves as it is."""
    values = np.stack([np.ones((2, 4)), np.array(rows, float)])
    axes = {"replaced": [SAME, OTHER], "repeat": [0, 1], "share": [0, 0.25, 0.5, 1]}
    return xr.Dataset({"value": (tuple(axes), values)}, axes)


def test_saturation_is_read_between_the_shares_unless_the_metric_moves_by_chance():
    linear = substitution.left(draws([1, 0.75, 0.5, 0], [3, 2.5, 2, 1])).sel(replaced=OTHER)
    np.testing.assert_allclose(linear, [[1, 0.75, 0.5, 0]] * 2)
    assert substitution.saturates(linear).values == pytest.approx([0.9, 0.9])
    early = substitution.left(draws([1, 0.2, 0, 0], [1, 0, 0.2, 0])).sel(replaced=OTHER)
    assert substitution.saturates(early).values == pytest.approx([0.375, 0.75])
    chance = substitution.left(draws([1, 1, 1, 0.9], [1, 1, 1, 1.05]))
    assert chance.isnull().all() and substitution.saturates(chance).isnull().all()
