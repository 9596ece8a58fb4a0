"""The studies of models side by side, of substitution, temperature and captions."""

import math

import jax
import numpy as np
import pytest
import studies
import xarray as xr
from oracles import entropy, gaussian_gram
from small import flags, widths, write, write_designers, write_uneven_models

from experiments import lab
from experiments.conditional_vendi import captioning, side_by_side, substitution, temperature
from experiments.conditional_vendi.captioning import SCORES, Captioning
from experiments.conditional_vendi.side_by_side import Design, SideBySide, match, share, told_apart
from experiments.conditional_vendi.substitution import INFORMATION, OTHER, SAME, Substitution
from experiments.conditional_vendi.temperature import Temperature
from experiments.data import PairedEmbeddings
from experiments.lab import knobs, models

pytestmark = pytest.mark.slow

MODES, KNOWN = {"one": 1, "two": 2, "four": 4}, {"few": 1, "some": 2, "many": 4}


def small_side_by_side(folder):
    """Models whose outputs spread within a prompt by MODES, on prompts that not all have."""
    more = flags(least_prompts=5, scales="1,2")
    return [*write_uneven_models(folder), *widths(0.5), *more]


side_by_side_run = studies.finished(SideBySide, small_side_by_side)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """Models of KNOWN scores on the same prompts, and one alone in a source, two of each prompt.

    Prompts are 16 in each of five neighbourhoods far from each other. In each neighbourhood a
    model's outputs take its number of far modes (a divisor of 16) equally often: at bandwidths of 1
    all Conditional-* are that number, all Information-* are 5. The labels `words` rise with the
    number; `truncated` are outputs of the reversed numbers.
    """
    folder, generator = tmp_path_factory.mktemp("balanced"), np.random.default_rng(0)
    numbers, place = {**KNOWN, "alone": 8}, np.repeat(np.arange(5), 16)
    row, rotation = np.arange(80), np.linalg.qr(generator.normal(size=(32, 32)))[0]
    order = generator.permutation(len(numbers) * 2 * 80)

    def outputs(count):
        rows = np.zeros((80, 32))
        rows[row, row % count] = rows[row, 16 + place] = 10.0
        return np.tile(rows @ rotation, (2, 1))

    counts, model = list(numbers.values()), np.repeat(list(numbers), 160)
    prompts = 10.0 * np.eye(5)[:, :4][place] + 0.01 * generator.normal(size=(80, 4))
    files = write(
        folder,
        outputs=np.concatenate([outputs(count) for count in counts])[order],
        prompts=np.tile(prompts, (2 * len(counts), 1))[order],
        truncated=np.concatenate([outputs(count) for count in counts[::-1]])[order],
        models=model[order],
        words=np.repeat(10.0 * np.array(counts), 160)[order],
        source=np.where(model == "alone", "one", "two")[order],
    )
    return studies.execute(SideBySide, folder, *files, *widths(1), *flags(scales=1, groups=8))


def test_the_conditional_score_counts_the_modes_that_a_model_adds(side_by_side_run):
    """Eight samples a prompt: of 1, 2 and 4 modes in equal shares, all of them far apart.

    Models are compared on what all share, and pairs of models on what these share.
    """
    study, found = side_by_side_run.study, side_by_side_run.found
    together = found.sel(comparison="together", scale=1, model=list(MODES)).squeeze()
    conditional = together.sel(score="Conditional-RKE")
    np.testing.assert_allclose(conditional.value, list(MODES.values()), rtol=0.02)
    assert conditional.letters.values.tolist() == ["c", "b", "a"]
    # Of the seven others of a sample, 7, 3 and 1 are the same.
    unbiased = together.value.sel(score="Conditional-RKE, unbiased")
    np.testing.assert_allclose(unbiased, [1, 7 / 3, 7], rtol=0.02)
    # Prompts far apart: all that an output says about its prompt.
    np.testing.assert_allclose(together.value.sel(score="Information-RKE"), 10, rtol=0.03)
    part = study.parts["all"]
    assert part.together == Design(("one", "two", "four"), 10, 8)
    assert [of.prompts for of in part.couples] == [10, 10, 12]
    scores = found.of_pair.sel(comparison="pairs", scale=1, score="Conditional-RKE").squeeze()
    for model, modes in MODES.items():
        for other in set(MODES) - {model}:
            assert scores.sel(model=model, other=other) == pytest.approx(modes, rel=0.02)
    told = told_apart(found).sel(comparison="pairs", score="Conditional-RKE").squeeze()
    assert (told.value.sel(scale=1), told.turned) == (3, 0)


def test_samples_are_chosen_for_the_most_rows_and_models_of_few_prompts_left_out_first():
    names, table = ["a", "b"], np.array([[9, 9, 9, 2], [9, 3, 3, 2]])
    assert match(names, table) == Design(("a", "b"), 3, 3)
    # 6 rows of 3 prompts x 2, or 4 of 1 x 4.
    assert match(names, np.array([[2, 2, 4]] * 2)) == Design(("a", "b"), 3, 2)
    assert match(names, np.full((2, 400), 2)) == Design(("a", "b"), 300, 2)
    names = ["m0", "m1", "m2", "m3"]
    table = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1]])
    assert share(names, table, 4).models == ("m0", "m2")
    assert share(names, table, 3).models == ("m0", "m2", "m3")
    tied = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
    assert share(names[:3], tied, 3).models == ("m0", "m2")
    with pytest.raises(ValueError, match="--prompts: expected 3 or more .* m0 and m1 share 2"):
        share(names[:2], table[:2], 4)


def test_shared_rows_have_their_models_and_prompts():
    model, prompt = np.random.default_rng(0).integers(0, [[3], [9]], (2, 400))
    labels = {"models": np.array(["x", "y", "z"])[model], "prompt": prompt}
    pairs = PairedEmbeddings("a", np.zeros((400, 2)), np.eye(9)[prompt], "b", labels=labels)
    keys = (jax.random.key(0), jax.random.key(1), None)
    drawn = [models.shared_rows(pairs, ("z", "x"), 4, key) for key in keys]
    for rows in drawn:
        assert rows.shape == (2, 9, 4) and np.unique(rows).size == rows.size
        assert (model[rows] == np.array([2, 0])[:, None, None]).all()
        assert (prompt[rows] == prompt[rows[0, :, 0]][None, :, None]).all()
    assert (drawn[0] != drawn[1]).any() and (np.diff(prompt[drawn[2][0, :, 0]]) == 1).all()
    scarce = np.bincount(prompt[model == 0]).min() + 1
    assert models.shared_rows(pairs, ("x",), scarce, None).shape[1] < 9


def compared(first, second, p_value, sign=1):
    """Two models with scores of 2 and 1, as `models.compare` gives them."""
    axes, whole = ("score", "model", "other"), np.ones((1, 2, 2))
    fields = {
        "difference": (axes, [[[0.0, sign], [-sign, 0.0]]]),
        "difference_error": (axes, whole),
    }
    fields |= {"value": (axes[:2], [[2.0, 1.0]]), "p_value": (axes, p_value * whole)}
    return xr.Dataset(fields, {"score": ["R"], "model": [first, second], "other": [first, second]})


def test_p_values_are_adjusted_over_all_pairs_and_orders_turn_where_tests_contradict():
    pairs = (("a", "b", 0.01), ("a", "c", 0.04), ("b", "c", 0.03))
    found = models.of_pairs([compared(*pair) for pair in pairs]).squeeze()
    wanted = [[np.nan, 0.03, 0.06], [0.03, np.nan, 0.06], [0.06, 0.06, np.nan]]
    np.testing.assert_allclose(found.p_value, wanted)
    np.testing.assert_allclose(found.of_pair.sel(model="b"), [1, np.nan, 2])
    for p_value, turned in ((0.04, 1), (0.06, 0)):
        scales = [compared("a", "b", 0.01), compared("a", "b", p_value, sign=-1)]
        told = told_apart(xr.concat(scales, xr.Variable("scale", [1, 2]))).squeeze()
        assert told.value.values.tolist() == [1, turned] and told.turned == turned


def test_all_is_compared_where_models_have_the_same_prompts(balanced):
    part, found = balanced.study.parts["two"], balanced.found.sel(comparison="together").squeeze()
    assert (part.together.prompts, part.together.samples, part.couples) == (80, 2, ())
    two = found.sel(source="two", model=list(KNOWN))
    for name, count in KNOWN.items():
        scores = two.value.sel(embedding="outputs", model=name)[:6]
        np.testing.assert_allclose(scores, [count, 5, 5 * count] * 2, rtol=5e-3)
    np.testing.assert_allclose(found.prompt_modes, 5, rtol=5e-3)
    assert (found.groups == 8).all()
    # Of the model alone in its source; both samples are alike.
    alone = found.sel(source="one", model="alone", embedding="outputs")
    np.testing.assert_allclose(alone.value[:6], [8, 5, 40] * 2, rtol=1e-2)
    np.testing.assert_allclose(alone.by_samples.sel(samples=2)[:6], alone.value[:6], rtol=1e-4)
    assert found.value.sel(source="two", model="alone").isnull().all()
    # In the order of lengths, the cut outputs take 8, 4 and 2 places.
    assert two.words.sel(embedding="outputs").values.tolist() == [10, 20, 40]
    for embedding, expected in (("outputs", 1), ("truncated", -1)):
        correlation = two.correlation.sel(embedding=embedding, score="Conditional-RKE")
        np.testing.assert_allclose(correlation, expected)


def test_fewer_samples_of_each_prompt_are_scored_and_models_asked_once_compared():
    """Three samples of each far prompt: two alike, the third another."""
    far, scale = 12**0.5 * np.eye(8, dtype=np.float32), lab.Bandwidths(1.0, 1.0, 1.0, "given")
    outputs = np.tile(np.pad(far, ((0, 0), (0, 1)))[:, None], (1, 3, 1))
    outputs[:, 2, 8] = 12**0.5
    found = side_by_side.by_samples(outputs, far, scale)
    np.testing.assert_allclose(found[:, 3], [1, (1 + 2 + 2) / 3, 9 / 5], rtol=1e-3)
    np.testing.assert_allclose(found[2, 0], 3 / 2 ** (2 / 3), rtol=1e-3)
    # The library ranks models by near prompts as well, which is none of the study's scores.
    rng = np.random.default_rng(0)
    prompts = rng.normal(size=(40, 2)).astype(np.float32)
    spread = {"a": 0.1, "b": 1}
    each = {m: (prompts + rng.normal(0, s, (40, 2))).astype(np.float32) for m, s in spread.items()}
    found = models.compare(each, prompts, scale, groups=8)
    assert found.sizes["score"] == 6 and np.isfinite(found.difference).all()


def small_substitution(folder):
    """Prompts far apart, eight outputs of each, of three models with 1, 2 and 4 modes a prompt."""
    files = [flag for flag in write_uneven_models(folder) if "--models" not in flag]
    return [*files, *widths(0.5), *flags(scales=1, repeats=2, steps=2)]


def substituted(outputs, prompts, prompt, metrics, **fields):
    """The first draw on these pairs, at bandwidths of 0.5: SAME and OTHER of some metrics."""
    arrays = outputs.astype("f4"), prompts.astype("f4")
    pairs = PairedEmbeddings("own", *arrays, "own", labels={"prompt": prompt})
    scales = lab.Scales(output_bandwidth=0.5, prompt_bandwidth=0.5, scales=(1.0,))
    found = studies.computed(Substitution(bandwidths=scales, **fields), pairs)[1].value
    return (found.sel(metric=metrics, replaced=replaced) for replaced in (SAME, OTHER))


substitution_run = studies.finished(Substitution, small_substitution)


def test_information_is_the_number_of_prompts_and_falls_to_independence(substitution_run):
    """240 pairs in 56 equal cells have an entropy less than theirs by 55 / 480 in expectation."""
    assert not substitution_run.missing
    generator = np.random.default_rng(0)
    prompt = np.repeat(np.arange(16), 60)
    outputs = 2 * generator.normal(size=(16, 12))[prompt]
    outputs += 0.02 * generator.normal(size=outputs.shape)
    prompts = (2 * generator.normal(size=(16, 8)))[prompt]
    more = {"pairs": 240, "steps": 3, "dimensions": 2}
    same, other = substituted(outputs, prompts, prompt, list(INFORMATION), **more)
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
    more = {"pairs": 180, "steps": 2, "dimensions": 4}
    same, other = substituted(outputs, prompts, prompt, ["MID", "cosine"], **more)
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


def left_of(*rows):
    """What is left of a metric of two draws at four shares, which SAME leaves as it is."""
    values = np.stack([np.ones((2, 4)), np.array(rows, float)])
    axes = {"replaced": [SAME, OTHER], "repeat": [0, 1], "share": [0, 0.25, 0.5, 1]}
    return substitution.left(xr.Dataset({"value": (tuple(axes), values)}, axes))


def test_saturation_is_read_between_the_shares_unless_the_metric_moves_by_chance():
    linear = left_of([1, 0.75, 0.5, 0], [3, 2.5, 2, 1]).sel(replaced=OTHER)
    np.testing.assert_allclose(linear, [[1, 0.75, 0.5, 0]] * 2)
    assert substitution.saturates(linear).values == pytest.approx([0.9, 0.9])
    early = left_of([1, 0.2, 0, 0], [1, 0, 0.2, 0]).sel(replaced=OTHER)
    assert substitution.saturates(early).values == pytest.approx([0.375, 0.75])
    chance = left_of([1, 1, 1, 0.9], [1, 1, 1, 1.05])
    assert chance.isnull().all() and substitution.saturates(chance).isnull().all()


PLOTS, PROMPTS = (1, 2, 4), 12


def small_temperature(folder):
    """Writes stories at three temperatures, with 1, 2 and 4 plots of each prompt; gives the flags.

    Outputs lie a unit or more apart, prompts ten. The stories that ended are those of one plot;
    those cut short have 4, 2 and 1 beginnings. A story has 10 tokens for each plot there is, and a
    perplexity of 2, 4 and 8.
    """
    each = math.lcm(*PLOTS)
    plots = np.repeat(PLOTS, PROMPTS * each)
    plot = np.tile(np.arange(each), len(PLOTS) * PROMPTS) * plots // each
    files = write_designers(folder, prompts=PROMPTS, designs=PLOTS)
    files += write(
        folder,
        models=np.repeat(["0.5", "1", "2"], PROMPTS * each),
        truncated=np.concatenate(np.split(np.load(folder / "x.npy"), len(PLOTS))[::-1]),
        finished=plot == 0,
        tokens=10 * plots,
        log_likelihood=-10 * plots * np.log(2 * plots),
    )
    return [*files, *widths(0.2, 2), *flags(scales="1,1.05", groups=5)]


temperature_run = studies.finished(Temperature, small_temperature)


def test_scores_and_controls_of_stories_are_the_known_numbers(temperature_run):
    whole = temperature_run.found
    assert whole.model.values.tolist() == ["0.5", "1", "2"] and (whole.groups == 5).all()
    for text, plots in {"all": PLOTS, "finished": (1, 1, 1), "cut": PLOTS[::-1]}.items():
        for score in whole.score.values.tolist():
            known = {"Conditional": plots, "Information": (PROMPTS,) * 3}
            expected = known.get(score.split("-")[0], [PROMPTS * count for count in plots])
            values = whole.value.sel(text=text, score=score)
            np.testing.assert_allclose(values, [expected] * 2, rtol=1e-3, err_msg=f"{text} {score}")
    found, ended = whole.sel(text="all", scale=1), whole.sel(text="finished")
    expected = {"perplexity": [2, 4, 8], "finished": [1, 0.5, 0.25], "tokens": [10, 20, 40]}
    for control, values in expected.items():
        np.testing.assert_allclose(found.known.sel(control=control), values, rtol=1e-6)
    assert np.isnan(whole.known.sel(text="cut")).all()
    np.testing.assert_allclose(found.known_error, 0, atol=1e-6)
    assert (found.n == 48).all() and (ended.n == 12).all()
    np.testing.assert_allclose(ended.known.sel(control="finished"), 1)


def test_the_error_of_a_share_is_that_of_a_mean_over_prompts():
    generator = np.random.default_rng(0)
    share = generator.integers(0, 2, size=(40, 5)).mean(axis=1)
    ended = (np.arange(5) < 5 * share[:, None]).ravel()
    tokens = generator.integers(5, 50, size=200)
    likelihood = -generator.random(200) * tokens
    labels = {"prompt": np.repeat(np.arange(40), 5), "finished": ended}
    labels |= {"tokens": tokens, "log_likelihood": likelihood}
    pairs = PairedEmbeddings("x", np.zeros((200, 1)), np.zeros((200, 1)), "", labels=labels)
    values, errors = temperature.controls_of(pairs)
    perplexity = np.exp(-likelihood.sum() / tokens.sum())
    np.testing.assert_allclose(values, [perplexity, ended.mean(), tokens.mean()])
    of_prompts = [column.reshape(40, 5).mean(axis=1) for column in (ended, tokens)]
    np.testing.assert_allclose(errors[1:], np.std(of_prompts, axis=1, ddof=1) / np.sqrt(40))
    # To first order, that of a ratio of totals.
    rest = likelihood - tokens * likelihood.sum() / tokens.sum()
    spread = np.std(rest.reshape(40, 5).sum(axis=1), ddof=1) * np.sqrt(40) / tokens.sum()
    assert errors[0] == pytest.approx(values[0] * spread, rel=0.05)
    # Rows are balanced by prompt, and the first are kept.
    setting, kind = np.array([0, 0, 0, 1, 1, 1, 0, 1]), np.array([0, 0, 1, 0, 0, 1, 0, 2])
    chosen = np.array([1, 1, 1, 0, 1, 0, 1, 1], bool)
    assert np.flatnonzero(knobs.balanced(setting, kind, chosen)).tolist() == [0, 4]


def small_captioning(folder):
    """Writes 12 photographs, each there twice, with the same two captions; gives the flags.

    Photographs and captions are so far apart that Conditional-* is the number of captions and
    Information-* that of different photographs: 2 of the cats, 2 of the dogs.
    """
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    captions = 15 * rotation.reshape(6, 2, 12).repeat(2, axis=0).reshape(24, 12)
    photographs = np.tile(15 * np.eye(6), 2).repeat(4, axis=0)
    labels = {"prompt": np.arange(24) // 2, "pictures": np.repeat(["cat", "dog", "other"], 8)}
    files = write(folder, outputs=captions, prompts=photographs, **labels)
    return [*files, *widths(1), *flags(groups=4)]


CONTROLS = ["swapped", "shuffled", "one for all"]
captioning_run = studies.finished(Captioning, small_captioning)


def test_far_apart_captions_and_photographs_are_counted(captioning_run):
    """Conditional-* is the number of captions and Information-* that of photographs."""
    study, found = captioning_run.study, captioning_run.found
    assert study.captioners == ("k = 1", "k = 2", *CONTROLS)
    assert study.counts == {"cat": 4, "dog": 4, "all": 8}
    different = xr.DataArray([2, 2, 4], {"kind": list(study.counts)})
    for k, name in ((1, "k = 1"), (2, "k = 2")):
        told = found.value.sel(captioner=name)
        for score, known in zip(SCORES, (different * k, k, different), strict=True):
            np.testing.assert_allclose(told.sel(score=score) / known, 1, rtol=1e-3)
    # Two photographs alike have each caption twice: of three others, one is the same.
    sampled = found.unbiased.sel(kind="all", scale=1, end=0, score="conditional")
    sampled = sampled.sel(captioner=["k = 2", "one for all"])
    np.testing.assert_allclose(sampled, [3, 1], rtol=1e-3)


def captioned(pairs, **options):
    scales = lab.Scales(output_bandwidth=0.5, prompt_bandwidth=2.0, scales=(1.0,))
    return studies.computed(Captioning(**{"bandwidths": scales, "groups": 8} | options), pairs)


@pytest.fixture(scope="module")
def blurred():
    """Three captions near a point of each of 40 photographs, which are in five near groups."""
    rng = np.random.default_rng(0)
    centres = 4 * np.eye(5)[np.arange(40) % 5]
    prompts = np.repeat(centres + 0.3 * rng.normal(size=(40, 5)), 3, axis=0)
    outputs = np.repeat(centres, 3, axis=0) + 0.5 * rng.normal(size=(120, 5))
    labels = {"prompt": np.repeat([f"p{i}" for i in range(40)], 3)}
    arrays = outputs.astype(np.float32), prompts.astype(np.float32)
    pairs = PairedEmbeddings("blurred", *arrays, "blurred captions", labels=labels)
    setup, found = captioned(pairs)
    return pairs, *setup.state[1]["all"], found


def test_scores_of_all_captioners_are_the_oracles_with_errors_that_leave_out_photographs(blurred):
    pairs, said, groups, found = blurred
    for name, captions in said.items():
        prompts = pairs.prompts[np.repeat(said["k = 1"], captions.shape[1])]
        grams = gaussian_gram(pairs.outputs[captions.ravel()], 0.5), gaussian_gram(prompts, 2.0)
        for order in (1, 2):
            h_x, h_t, h_xt = (entropy(g, order=order) for g in (*grams, grams[0] * grams[1]))
            expected = np.exp([h_x, h_xt - h_t, h_x + h_t - h_xt])
            told = found.value.sel(captioner=name, order=order)
            np.testing.assert_allclose(told, expected, rtol=1e-4)
    assert sorted(np.bincount(groups)) == [5] * 8
    scores = []
    for group in range(8):
        rows = said["k = 3"][groups != group].ravel()
        gram = gaussian_gram(pairs.prompts[rows], 2.0)
        joint = gaussian_gram(pairs.outputs[rows], 0.5) * gram
        scores.append(np.exp(entropy(joint, order=2) - entropy(gram, order=2)))
    expected = np.sqrt(7 / 8 * np.sum((np.array(scores) - np.mean(scores)) ** 2))
    place = {"order": 2, "score": "conditional", "captioner": "k = 3"}
    alone = captioning.with_errors(found).error.sel(place)
    assert float(alone) == pytest.approx(expected, rel=1e-3)


def test_nobody_keeps_a_caption_when_swapped_or_shuffled(blurred):
    pairs, said, *_ = blurred
    photograph_of = np.arange(120) // 3
    for name in CONTROLS[:2]:
        wrong = photograph_of[said[name]]
        assert (wrong != photograph_of[said["k = 1"]]).all()
        assert sorted(said[name].ravel()) == list(range(120))
        together = wrong[:, 0] == wrong[:, 1]
        assert together.all() if name == "swapped" else not together.all()
    nearest = pairs.outputs @ pairs.outputs.sum(axis=0)
    assert set(said["one for all"].ravel()) == {int(np.argmax(nearest))}


def test_several_captioners_stand_side_by_side_on_what_all_have():
    """Of photograph 1 there is no caption by b, and of 2 only one."""
    rng = np.random.default_rng(0)
    prompt, models = np.repeat(np.arange(6), 4), np.tile(list("aabb"), 6)
    kept = rng.permutation(np.delete(np.arange(24), [6, 7, 10]))
    prompt, models = prompt[kept], models[kept]
    outputs, prompts = (a.astype("f4") for a in (rng.normal(size=(21, 3)), np.eye(6)[prompt]))
    pairs = PairedEmbeddings("two", outputs, prompts, "", {"prompt": prompt, "models": models})
    names, rows = captioning.by_photograph(pairs)
    assert names == ["a", "b"] and rows.shape == (2, 5, 1)
    for of_model, name in zip(rows[..., 0], names, strict=True):
        first = [np.flatnonzero((prompt == p) & (models == name))[0] for p in (0, 2, 3, 4, 5)]
        assert of_model.tolist() == first
    setup, found = captioned(pairs, groups=5, orders=(2.0,))
    assert setup.study.captioners == ("a", "b", "a, shuffled")
    assert found.value.shape == (3, 1, 3)
    said, _ = setup.state[1]["all"]
    assert set(said["a, shuffled"].ravel()) == set(said["a"].ravel())
    assert (said["a, shuffled"] != said["a"]).all()
    # Paired: what two captioners share cancels.
    lead = captioning.ahead(found, "a", "b").sel(order=2, score="conditional")
    both = found.influence.sel(order=2, score="conditional")
    apart = both.sel(captioner="a") - both.sel(captioner="b")
    assert float(lead.error) == pytest.approx(np.sqrt(np.mean(apart.values**2)))
    assert float(captioning.ahead(found, "a", "a").error.max()) == 0


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (Captioning, small_captioning, "--groups=5", "at most the 4 photographs of cat, received 5")
)
