"""The study of text-to-image models, on models whose diversity is known."""

import dataclasses

import numpy as np
import pytest
from small import small_run
from studies import execute

from experiments import text_to_image
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow

STUDY = text_to_image.STUDY
MODES = {"one": 1, "two": 2, "four": 4}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_to_image")
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


def scored(run, kind="together", score="Conditional-RKE", scale="1"):
    return list(text_to_image.scored_of(run, kind, scale, score))


def test_the_conditional_score_counts_the_modes_that_a_model_adds(finished):
    """Eight samples a prompt: of 1, 2 and 4 modes in equal shares, all of them far apart."""
    (found,) = scored(finished)
    assert finished.settings.together.samples == 8
    assert found.values == pytest.approx(MODES, rel=0.02)
    assert list(found.values) == ["four", "two", "one"]
    assert sorted(found.letters.values()) == ["a", "b", "c"]
    # Prompts far apart: all that an output says about its prompt.
    (information,) = scored(finished, score="Information-RKE")
    prompts = finished.settings.together.prompts
    assert information.values == pytest.approx(dict.fromkeys(MODES, prompts), rel=0.03)


def test_models_are_compared_on_what_they_share(finished):
    settings = finished.settings
    assert (settings.together.prompts, settings.left_out) == (10, ())
    shared = {design.models: (design.prompts, design.samples) for design in settings.pairs}
    assert shared == {("four", "one"): (10, 8), ("four", "two"): (10, 8), ("one", "two"): (12, 8)}
    for found in scored(finished, "pairs"):
        assert found.values == pytest.approx({m: MODES[m] for m in found.values}, rel=0.02)


def counts(*rows):
    return [f"m{k}" for k in range(len(rows))], np.array(rows)


def test_samples_are_chosen_for_the_most_rows_and_then_prompts():
    names, table = counts([9, 9, 9, 2], [9, 3, 3, 2])
    design = text_to_image.match(names, table, [0, 1], text_to_image.Options())
    assert (design.prompts, design.samples) == (3, 3)
    fewer = text_to_image.Options(samples=2)
    assert text_to_image.match(names, table, [0, 1], fewer).prompts == 4
    few = text_to_image.Options(most_prompts=3, samples=2)
    assert text_to_image.match(names, table, [0, 1], few).prompts == 3
    names, table = counts([2, 2, 4], [2, 2, 4])  # 6 rows of 1 x 3 x 2 or 4 of 4 x 1.
    assert text_to_image.match(names, table, [0, 1], text_to_image.Options()).prompts == 3


def test_models_of_few_prompts_are_left_out_first():
    names, table = counts([1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1])
    options = text_to_image.Options(least_prompts=4)
    design, left_out = text_to_image.share(names, table, options)
    assert (design.models, left_out) == (("m0", "m2"), ("m1", "m3"))
    design, left_out = text_to_image.share(names, table, text_to_image.Options(least_prompts=3))
    assert (design.models, left_out) == (("m0", "m2", "m3"), ("m1",))
    with pytest.raises(ValueError, match="m0 and m1 share 2"):
        text_to_image.share(names[:2], table[:2], options)


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
    design = text_to_image.Design(("z", "x"), 7, 4)
    keys = [text_to_image.jax.random.key(seed) for seed in (0, 1)]
    rows, others = (text_to_image.draw_rows(pairs, design, key) for key in keys)
    assert rows.shape == (2, 7, 4)
    assert np.unique(rows).size == rows.size
    assert (model[rows] == np.array([2, 0])[:, None, None]).all()
    assert (prompt[rows] == prompt[rows[0, :, 0]][None, :, None]).all()
    assert (rows != others).any()


def test_p_values_are_adjusted_over_all_pairs_of_models(finished):
    def of(p):
        difference = text_to_image.Difference("a", "b", 1.0, 1.0, p)
        return (text_to_image.Scored("RKE", {}, {}, {}, (difference,)),)

    found = text_to_image.adjust([of(0.01), of(0.04), of(0.03)])
    adjusted = [design[0].differences[0].adjusted for design in found]
    assert adjusted == pytest.approx([0.03, 0.06, 0.06])


def altered(run, scale, values):
    """The run with other differences of 'one' and 'two' in every score of both models."""
    difference = text_to_image.Difference("one", "two", 1.0, 0.1, values["p"])
    changed = text_to_image.Scored("RKE", {"one": values["one"], "two": 1.0}, {}, {}, (difference,))
    cell = text_to_image.Cell("pairs", scale)
    return dataclasses.replace(
        run, results={**run.results, cell: text_to_image.Compared(((changed,),))}
    )


def test_an_order_turns_only_where_tests_say_so_on_both_sides(finished):
    apart = altered(finished, "1", {"one": 2.0, "p": 0.01})
    assert text_to_image.verdicts(apart, "pairs", "1", "RKE") == {
        ("one", "two"): 1.0,
        ("two", "one"): -0.5,
    }
    turned = altered(apart, "2", {"one": 0.5, "p": 0.01})
    assert text_to_image.flips(turned, "pairs", "RKE") == [("one", "two")]
    unsure = altered(apart, "2", {"one": 0.5, "p": 0.06})
    assert text_to_image.flips(unsure, "pairs", "RKE") == []


def test_the_table_and_captions_say_what_was_compared(finished):
    columns = [list(column.cells) for column in text_to_image.table(finished).columns]
    row = columns[1].index("Conditional-RKE")
    assert columns[2][row].startswith("four ")
    assert columns[3][row] == "3 of 3"
    assert columns[4][row] == "none"
    figures = text_to_image.draw([finished])
    assert set(figures) == {"text_to_image_x", "text_to_image_pairs_x"}
    caption = figures["text_to_image_x"]._supxlabel.get_text().replace("\n", " ")
    assert "10 prompts that the models share, 8 of each" in caption
    assert "jackknife" in caption and "Seed 0" in caption


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--samples=9",), "share at least 3 prompts with 9 samples each"),
        (("--samples=0",), "--samples"),
        (("--least_prompts=1",), "--least_prompts"),
        (("--most_prompts=2",), "--most_prompts"),
        (("--groups=1",), "--groups"),
        (("--level=1",), "--level: expected a number between 0 and 1"),
        (("--orders=0",), "order"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *small_run(STUDY, tmp_path, 0), *flags)


def test_one_model_is_none_to_compare(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)
    (tmp_path / "models.txt").write_text("only\n" * 272)
    with pytest.raises(ValueError, match="at least two models, received only"):
        execute(STUDY, tmp_path, *flags)


@pytest.mark.parametrize("flag", ["--samples=3", "--groups=4", "--level=1e-30"])
def test_options_change_what_comes_out(tmp_path, finished, flag):
    run = execute(STUDY, tmp_path, *small_run(STUDY, tmp_path, 0), flag)
    assert run.results != finished.results or run.settings.level < 0.05
    if "level" in flag:
        assert scored(run)[0].letters["one"] == scored(run)[0].letters["four"]
