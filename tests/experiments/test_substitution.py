"""The study of substitution, on prompts that their outputs tell apart."""

import numpy as np
import pytest
from small import small_run
from studies import execute

from experiments import substitution
from experiments.data import PairedEmbeddings
from experiments.lab.choices import Bandwidths

pytestmark = pytest.mark.slow

STUDY = substitution.STUDY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("substitution")
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


PROMPTS, SAMPLES = 16, 60


@pytest.fixture(scope="module")
def told():
    """A setup of sixteen prompts, far apart, sixty outputs of each near a place of its own."""
    generator = np.random.default_rng(0)
    prompt = np.repeat(np.arange(PROMPTS), SAMPLES)
    outputs = 2 * generator.normal(size=(PROMPTS, 12))[prompt]
    pairs = PairedEmbeddings(
        "told",
        (outputs + 0.02 * generator.normal(size=outputs.shape)).astype(np.float32),
        (2 * generator.normal(size=(PROMPTS, 8)))[prompt].astype(np.float32),
        "told apart",
    )
    settings = substitution.Settings(
        name="told", data="told", n=len(pairs), prompts=PROMPTS, scored=240,
        shares=(0.0, 0.25, 0.5, 1.0), dimensions=2, repeats=2,
        bandwidths={"1": Bandwidths(0.5, 0.5, "given")},
    )  # fmt: skip
    return substitution.lab.Setup(settings, {}, state=pairs)


def curves(setup, part):
    context = substitution.lab.Context(
        key=substitution.jax.random.key(1),
        shared_key=substitution.jax.random.key(0),
        finished={},
        say=lambda words: None,
    )
    return substitution.compute(setup, substitution.Cell(part, 0), context)


def test_information_is_the_number_of_prompts_and_falls_to_independence(told):
    """Eight prompts of thirty: information 8 for outputs of their own, 1 for independent ones.

    Eight by seven cells are left by outputs of other prompts, and 240 pairs counted in 56 equal
    cells have an entropy less than theirs by 55 / 480 in expectation.
    """
    found = curves(told, "1")
    np.testing.assert_allclose(found.same, 8, rtol=0.03)
    np.testing.assert_allclose(found.other[:, 0], 8, rtol=0.03)
    assert (np.diff(found.other, axis=1) < 0).all()
    assert found.other[0, -1] == pytest.approx(64 / 56 * np.exp(55 / 480), abs=0.15)
    # The same at order 2: the expected sum of squared shares.
    assert found.other[1, -1] == pytest.approx(64 * (1 / 56 + 1 / 240), abs=0.15)


def test_mid_and_cosine_fall_with_others_and_stay_with_the_same_prompt():
    """Outputs are a linear function of their prompts, which a linear map finds on half of them."""
    generator = np.random.default_rng(0)
    prompt = np.repeat(np.arange(120), 6)
    prompts = generator.normal(size=(120, 4))[prompt]
    outputs = prompts @ generator.normal(size=(4, 6)) + 0.5 * generator.normal(size=(720, 6))
    pairs = PairedEmbeddings(
        "linear", outputs.astype("f4"), prompts.astype("f4"), "linear", labels={"prompt": prompt}
    )
    settings = substitution.Settings(
        name="linear", data="linear", n=720, prompts=120, scored=180,
        shares=(0.0, 0.5, 1.0), dimensions=4, repeats=2, bandwidths={},
    )  # fmt: skip
    found = curves(substitution.lab.Setup(settings, {}, state=pairs), "alignment")
    mid, cosine = found.other
    np.testing.assert_allclose(found.same[:, 0], found.other[:, 0])
    np.testing.assert_allclose(found.same[:, 2], found.same[:, 0], rtol=0.1)
    assert cosine[0] > 0.8 and cosine[2] == pytest.approx(0, abs=0.15)
    assert mid[0] > 1 and mid[2] < 0
    # Both are means over the pairs: linear in the share.
    middle = (found.other[:, 0] + found.other[:, 2]) / 2
    np.testing.assert_allclose(found.other[:, 1], middle, atol=0.1 * np.ptp(mid))


def drawn_of(prompt, scored, seed=0):
    generator = np.random.default_rng(seed)
    return substitution.draw_rows(prompt, scored, generator), generator


def test_draws_part_prompts_and_give_partners_of_the_same_prompt():
    prompt = np.random.default_rng(3).integers(0, 20, 300)
    drawn, _ = drawn_of(prompt, 40)
    assert len(drawn.rows) == len(drawn.partners) == len(drawn.order) == 40
    assert (prompt[drawn.rows] == prompt[drawn.partners]).all()
    both = np.concatenate([drawn.rows, drawn.partners])
    assert np.unique(both).size == 80
    assert not set(prompt[both]) & set(prompt[drawn.reference])
    assert sorted(drawn.order) == list(range(40))


@pytest.mark.parametrize("replaced", [0, 2, 13, 40])
def test_replacements_touch_the_first_of_the_order_alone(replaced):
    prompt = np.random.default_rng(3).integers(0, 20, 300)
    drawn, generator = drawn_of(prompt, 40)
    rest = drawn.order[replaced:]
    same = substitution.by_partners(drawn, replaced)
    other = substitution.by_others(drawn, prompt, replaced, generator)
    for rows in (same, other):
        np.testing.assert_array_equal(rows[rest], drawn.rows[rest])
    chosen = drawn.order[:replaced]
    np.testing.assert_array_equal(same[chosen], drawn.partners[chosen])
    assert sorted(other) == sorted(drawn.rows)
    if replaced > 2:
        assert (prompt[other[chosen]] != prompt[drawn.rows[chosen]]).all()


def test_outputs_of_others_come_from_many_prompts():
    """Moved on by a whole prompt, they would say as much about it as before."""
    prompt = np.repeat(np.arange(12), 20)
    drawn, generator = drawn_of(prompt, 60)
    rows = substitution.by_others(drawn, prompt, 60, generator)
    for number in np.unique(prompt[drawn.rows]):
        assert np.unique(prompt[rows[prompt[drawn.rows] == number]]).size >= 4


def metric(same, other):
    return substitution.Metric("MID", np.array(same, float), np.array(other, float))


def test_saturation_is_read_between_the_shares():
    shares = (0, 0.25, 0.5, 1)
    linear = metric([[1] * 4] * 2, [[1, 0.75, 0.5, 0], [3, 2.5, 2, 1]])
    assert linear.saturates(shares) == pytest.approx([0.9, 0.9])
    early = metric([[1] * 4] * 2, [[1, 0.2, 0, 0], [1, 0, 0.2, 0]])
    assert early.saturates(shares) == pytest.approx([0.375, 0.75])
    np.testing.assert_allclose(linear.scaled(linear.other)[1], [1, 0.75, 0.5, 0])
    assert linear.moves
    assert not metric([[1] * 4] * 2, [[1, 1, 1, 0.9], [1, 1, 1, 1.05]]).moves


def test_the_table_says_what_each_replacement_takes(finished):
    columns = [list(column.cells) for column in substitution.table(finished).columns]
    assert columns[1] == ["Information-Vendi", "Information-RKE", "MID", "cosine"]
    assert columns[0] == ["1", "1", "-", "-"]
    first = substitution.metrics(finished, "1")[0]
    assert columns[2][0].startswith(f"{first.other[:, 0].mean():.1f}"[:3])
    figure = substitution.draw([finished])["substitution"]
    caption = figure._supxlabel.get_text().replace("\n", " ")
    assert "12 prompts with several outputs, 2 draws, seed 0" in caption


def test_draws_are_the_same_at_all_bandwidths_and_differ_between_repeats(told):
    """MID, which has no bandwidth, tells whether the rows are the same."""
    found = [curves(told, "alignment") for _ in range(2)]
    np.testing.assert_array_equal(found[0].other, found[1].other)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--shares=0,0.5",), "--shares: expected numbers from 0 to 1, both among them"),
        (("--shares=0,1,2",), "--shares: expected numbers from 0 to 1"),
        (("--pairs=2",), "--pairs"),
        (("--repeats=1",), "--repeats"),
        (("--dimensions=0",), "--dimensions"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *small_run(STUDY, tmp_path, 0), *flags)


def test_prompts_of_one_output_each_are_refused(tmp_path):
    flags = small_run(STUDY, tmp_path, 0)
    np.save(tmp_path / "prompt.npy", np.arange(272))
    with pytest.raises(ValueError, match="at least 8 prompts of several outputs each, received 0"):
        execute(STUDY, tmp_path, *flags)


def test_options_are_heeded(tmp_path, finished):
    run = execute(STUDY, tmp_path, *small_run(STUDY, tmp_path, 0), "--pairs=20", "--dimensions=1")
    assert (run.settings.scored, finished.settings.scored) == (20, 64)
    assert run.settings.dimensions == 1
