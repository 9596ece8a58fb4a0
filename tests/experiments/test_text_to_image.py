"""The study of text-to-image models, on models whose diversity is known."""

import jax
import numpy as np
import pytest
import xarray as xr
from small import small_run
from studies import execute

from experiments import shared_prompts
from experiments.data import PairedEmbeddings
from experiments.shared_prompts import Design, Sizes, of_pairs, verdicts
from experiments.text_to_image import TextToImage

pytestmark = pytest.mark.slow

MODES = {"one": 1, "two": 2, "four": 4}
SIZES = Sizes(None, 20, 200)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_to_image")
    return execute(TextToImage, folder, *small_run(TextToImage, folder, 0))


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


def counts(*rows):
    return [f"m{k}" for k in range(len(rows))], np.array(rows)


def test_samples_are_chosen_for_the_most_rows_and_then_prompts():
    names, table = counts([9, 9, 9, 2], [9, 3, 3, 2])
    design = shared_prompts.match(names, table, [0, 1], SIZES)
    assert (design.prompts, design.samples) == (3, 3)
    fewer = Sizes(2, 20, 200)
    assert shared_prompts.match(names, table, [0, 1], fewer).prompts == 4
    few = Sizes(2, 20, 3)
    assert shared_prompts.match(names, table, [0, 1], few).prompts == 3
    names, table = counts([2, 2, 4], [2, 2, 4])  # 6 rows of 1 x 3 x 2 or 4 of 4 x 1.
    assert shared_prompts.match(names, table, [0, 1], SIZES).prompts == 3


def test_models_of_few_prompts_are_left_out_first():
    names, table = counts([1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1])
    options = Sizes(None, 4, 200)
    design, left_out = shared_prompts.share(names, table, options)
    assert (design.models, left_out) == (("m0", "m2"), ("m1", "m3"))
    design, left_out = shared_prompts.share(names, table, Sizes(None, 3, 200))
    assert (design.models, left_out) == (("m0", "m2", "m3"), ("m1",))
    with pytest.raises(ValueError, match="m0 and m1 share 2"):
        shared_prompts.share(names[:2], table[:2], options)


def test_rows_of_a_design_have_their_models_and_prompts(finished):
    generator = np.random.default_rng(0)
    model, prompt = generator.integers(0, 3, 400), generator.integers(0, 9, 400)
    pairs = PairedEmbeddings(
        "a",
        generator.normal(size=(400, 2)),
        generator.normal(size=(9, 2))[prompt],
        "b",
        labels={"models": np.array(["x", "y", "z"])[model], "prompt": prompt},
    )
    design = Design(("z", "x"), 7, 4)
    keys = [jax.random.key(seed) for seed in (0, 1)]
    rows, others = (shared_prompts.draw_rows(pairs, design, key) for key in keys)
    assert rows.shape == (2, 7, 4)
    assert np.unique(rows).size == rows.size
    assert (model[rows] == np.array([2, 0])[:, None, None]).all()
    assert (prompt[rows] == prompt[rows[0, :, 0]][None, :, None]).all()
    assert (rows != others).any()


def compared(first, second, values, p_value):
    """Two models in one score, as `models.compare` gives them."""
    names = [first, second]
    difference = np.subtract.outer(values, values)
    of_two = {"value": [values], "error": [[0.1, 0.1]]}
    of_all = {"difference": difference, "difference_error": np.ones((2, 2))}
    of_all["p_value"] = np.full((2, 2), p_value)
    return xr.Dataset(
        {
            **{name: (("score", "model"), found) for name, found in of_two.items()},
            **{name: (("score", "model", "other"), [found]) for name, found in of_all.items()},
        },
        {"score": ["RKE"], "model": names, "other": names},
    )


def test_p_values_are_adjusted_over_all_pairs_of_models():
    pairs = (("a", "b", 0.01), ("a", "c", 0.04), ("b", "c", 0.03))
    found = of_pairs([compared(one, two, [2.0, 1.0], p) for one, two, p in pairs])
    told = [found.p_value.sel(score="RKE", model=m, other=o).item() for m, o, _ in pairs]
    assert told == pytest.approx([0.03, 0.06, 0.06])
    assert found.of_pair.sel(score="RKE", model="c", other="b") == 1
    assert found.difference.sel(score="RKE", model="c", other="b") == -1


def test_a_verdict_is_the_ratio_where_a_test_tells_two_models_apart():
    one, unsure = (of_pairs([compared("a", "b", [2.0, 1.0], p)]) for p in (0.01, 0.06))
    for found, expected in ((one, [1.0, -0.5]), (unsure, [np.nan] * 2)):
        told = verdicts(found, 0.05).sel(score="RKE")
        ratios = [told.sel(model=m, other=o).item() for m, o in (("a", "b"), ("b", "a"))]
        np.testing.assert_allclose(ratios, expected)


def test_the_tables_and_captions_say_what_was_compared(finished):
    scores, counts = finished.study.tables(finished)
    rows = {row[:3]: row[3] for row in zip(*(c.cells for c in scores.columns), strict=True)}
    assert rows["1", "Conditional-RKE", "four"].startswith("4")
    told = {row[:2]: row[2:] for row in zip(*(c.cells for c in counts.columns), strict=True)}
    assert told["1", "Conditional-RKE"] == ("3", "0")
    figures = TextToImage.figures([finished])
    assert set(figures) == {"text_to_image_x", "text_to_image_bandwidth_x", "text_to_image_pairs_x"}
    caption = figures["text_to_image_x"]._supxlabel.get_text().replace("\n", " ")
    assert "8 of each of 10 shared prompts" in caption and "seed 0" in caption
    titles = [panel.get_title() for panel in figures["text_to_image_pairs_x"].axes]
    assert titles == ["Conditional-RKE: 3 of 3 pairs told apart"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--samples=9",), "share at least 3 prompts with 9 samples each"),
        (("--samples=0",), "--samples"),
        (("--least_prompts=1",), "--least_prompts"),
        (("--most_prompts=2",), "--most_prompts"),
        (("--groups=1",), "--groups"),
        (("--level=1",), "--level: expected a number above 0 and below 1"),
        (("--orders=0",), "order"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(TextToImage, tmp_path, *small_run(TextToImage, tmp_path, 0), *flags)


def test_one_model_is_none_to_compare(tmp_path):
    flags = small_run(TextToImage, tmp_path, 0)
    (tmp_path / "models.txt").write_text("only\n" * 272)
    with pytest.raises(ValueError, match="at least two models, received only"):
        execute(TextToImage, tmp_path, *flags)


@pytest.mark.parametrize("flag", ["--samples=3", "--groups=4", "--level=1e-30"])
def test_options_change_what_comes_out(tmp_path, finished, flag):
    run = execute(TextToImage, tmp_path, *small_run(TextToImage, tmp_path, 0), flag)
    one, other = (r.found.sel(comparison="together", scale=1) for r in (run, finished))
    assert not one.equals(other)
    if "level" in flag:
        letters = one.letters.sel(score="Conditional-RKE")
        assert letters.sel(model="one").item() == letters.sel(model="four").item()
