"""The study of text-to-image models, on models whose diversity is known."""

import jax
import numpy as np
import pytest
import studies
import xarray as xr
from small import small_run
from studies import execute

from experiments.conditional_vendi import text_to_image
from experiments.conditional_vendi.text_to_image import (
    Design,
    TextToImage,
    match,
    of_pairs,
    share,
    verdicts,
)
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow

MODES = {"one": 1, "two": 2, "four": 4}

finished = studies.finished(TextToImage)


def test_the_conditional_score_counts_the_modes_that_a_model_adds(finished):
    """Eight samples a prompt: of 1, 2 and 4 modes in equal shares, all of them far apart."""
    together = finished.study.together
    assert (together.samples, together.prompts) == (8, 10)
    found = finished.found.sel(comparison="together", scale=1, model=list(MODES))
    conditional = found.sel(score="Conditional-RKE")
    np.testing.assert_allclose(conditional.value, list(MODES.values()), rtol=0.02)
    assert conditional.letters.values.tolist() == ["c", "b", "a"]
    # Prompts far apart: all that an output says about its prompt.
    np.testing.assert_allclose(found.value.sel(score="Information-RKE"), 10, rtol=0.03)


def test_models_are_compared_on_what_they_share(finished):
    study = finished.study
    assert (study.together.prompts, study.left_out) == (10, ())
    shared = {design.models: (design.prompts, design.samples) for design in study.couples}
    assert shared == {("four", "one"): (10, 8), ("four", "two"): (10, 8), ("one", "two"): (12, 8)}
    scores = finished.found.of_pair.sel(comparison="pairs", score="Conditional-RKE")
    for model, modes in MODES.items():
        for other in set(MODES) - {model}:
            told = scores.sel(scale=1, model=model, other=other).item()
            assert told == pytest.approx(modes, rel=0.02)


def test_samples_are_chosen_for_the_most_rows_and_then_prompts():
    names, table = ["a", "b"], np.array([[9, 9, 9, 2], [9, 3, 3, 2]])
    assert match(names, table, None, 200) == Design(("a", "b"), 3, 3)
    assert match(names, table, 2, 200).prompts == 4
    assert match(names, table, 2, 3).prompts == 3
    # 6 rows of 3 prompts x 2, or 4 of 1 x 4.
    assert match(names, np.array([[2, 2, 4]] * 2), None, 200) == Design(("a", "b"), 3, 2)


def test_models_of_few_prompts_are_left_out_first():
    names = ["m0", "m1", "m2", "m3"]
    table = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1]])
    design, left_out = share(names, table, None, 4, 200)
    assert (design.models, left_out) == (("m0", "m2"), ("m1", "m3"))
    design, left_out = share(names, table, None, 3, 200)
    assert (design.models, left_out) == (("m0", "m2", "m3"), ("m1",))
    with pytest.raises(ValueError, match="m0 and m1 share 2"):
        share(names[:2], table[:2], None, 4, 200)


def test_rows_of_a_design_have_their_models_and_prompts():
    generator = np.random.default_rng(0)
    model, prompt = generator.integers(0, 3, 400), generator.integers(0, 9, 400)
    outputs, prompts = generator.normal(size=(400, 2)), generator.normal(size=(9, 2))[prompt]
    labels = {"models": np.array(["x", "y", "z"])[model], "prompt": prompt}
    pairs = PairedEmbeddings("a", outputs, prompts, "b", labels=labels)
    design = Design(("z", "x"), 7, 4)
    keys = [jax.random.key(seed) for seed in (0, 1)]
    rows, others = (text_to_image.draw_rows(pairs, design, key) for key in keys)
    assert rows.shape == (2, 7, 4)
    assert np.unique(rows).size == rows.size
    assert (model[rows] == np.array([2, 0])[:, None, None]).all()
    assert (prompt[rows] == prompt[rows[0, :, 0]][None, :, None]).all()
    assert (rows != others).any()


def compared(first, second, p_value):
    """Two models with scores of 2 and 1, as `models.compare` gives them."""
    of_one, of_two = ("score", "model"), ("score", "model", "other")
    return xr.Dataset(
        {
            "value": (of_one, [[2.0, 1.0]]),
            "error": (of_one, [[0.1, 0.2]]),
            "difference": (of_two, [[[0.0, 1.0], [-1.0, 0.0]]]),
            "difference_error": (of_two, np.ones((1, 2, 2))),
            "p_value": (of_two, np.full((1, 2, 2), p_value)),
        },
        {"score": ["RKE"], "model": [first, second], "other": [first, second]},
    )


def test_p_values_are_adjusted_over_all_pairs_of_models():
    pairs = (("a", "b", 0.01), ("a", "c", 0.04), ("b", "c", 0.03))
    found = of_pairs([compared(*pair) for pair in pairs]).sel(score="RKE")
    told = [found.p_value.sel(model=m, other=o).item() for m, o, _ in pairs]
    assert told == pytest.approx([0.03, 0.06, 0.06])
    turned = found.sel(model="c", other="b")
    assert (turned.of_pair, turned.of_pair_error, turned.difference) == (1, 0.2, -1)
    assert turned.p_value == pytest.approx(0.06)
    assert np.isnan(found.of_pair.sel(model="a", other="a"))
    # A verdict is the ratio where a test tells two models apart.
    ratios = verdicts(found).transpose("model", "other")
    np.testing.assert_allclose(ratios, [[np.nan, 1, np.nan], [-0.5, *2 * [np.nan]], 3 * [np.nan]])


def test_the_tables_and_captions_say_what_was_compared(finished):
    scores, counts = finished.study.tables(finished)
    rows = {row[:3]: row[3] for row in zip(*(c.cells for c in scores.columns), strict=True)}
    assert rows["1", "Conditional-RKE", "four"].startswith("4")
    told = {row[:2]: row[2:] for row in zip(*(c.cells for c in counts.columns), strict=True)}
    assert told["1", "Conditional-RKE"] == ("3", "0")
    figures = TextToImage.figures([finished])
    assert set(figures) == {"text_to_image_x", "text_to_image_bandwidth_x", "text_to_image_pairs_x"}
    caption = figures["text_to_image_x"]._supxlabel.get_text().replace("\n", " ")
    assert "8 of each of 10 shared prompts" in caption
    titles = [panel.get_title() for panel in figures["text_to_image_pairs_x"].axes]
    assert titles == ["Conditional-RKE: 3 of 3 pairs told apart"]


test_bad_flags_are_refused = studies.refuses(
    TextToImage,
    ("--samples=9", "share at least 3 prompts with 9 samples each"),
    ("--samples=0", "--samples"),
    ("--least_prompts=1", "--least_prompts"),
    ("--most_prompts=2", "--most_prompts"),
    ("--groups=1", "--groups"),
    ("--orders=0", "order"),
)


@pytest.mark.parametrize("flag", ["--samples=3", "--groups=4"])
def test_options_change_what_comes_out(tmp_path, finished, flag):
    run = execute(TextToImage, tmp_path, *small_run(TextToImage, tmp_path, 0), flag)
    one, other = (r.found.sel(comparison="together", scale=1) for r in (run, finished))
    assert not one.equals(other)
