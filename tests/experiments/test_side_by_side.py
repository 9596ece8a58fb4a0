"""Models side by side, on models whose diversity, lengths and shared prompts are known."""

import jax
import numpy as np
import pytest
import studies
import xarray as xr
from small import flags, widths, write, write_uneven_models
from studies import execute

from experiments import lab
from experiments.conditional_vendi import side_by_side
from experiments.conditional_vendi.side_by_side import Design, SideBySide, match, share, told_apart
from experiments.data import PairedEmbeddings
from experiments.lab import models

pytestmark = pytest.mark.slow


def write_neighbourhoods(folder, modes, clips=2) -> list[str]:
    """Writes models of known scores on the same prompts; gives the flags that read it.

    Prompts are 16 in each of five neighbourhoods far from each other. In each neighbourhood a
    model's outputs take its number of far modes (by `modes`, a divisor of 16) equally often: at
    bandwidths of 1 all Conditional-* are that number, all Information-* are 5. The labels `words`
    rise with the number; `cut` are outputs of the reversed numbers.
    """
    generator = np.random.default_rng(0)
    places, prompts = 5, 16
    place = np.repeat(np.arange(places), prompts)
    near = 0.01 * generator.normal(size=(len(place), 4))
    wordings = 10.0 * np.eye(places)[:, :4][place] + near
    rotation, _ = np.linalg.qr(generator.normal(size=(2 * prompts, 2 * prompts)))

    def outputs(count: int) -> np.ndarray:
        rows = np.zeros((len(place), 2 * prompts))
        rows[np.arange(len(place)), np.arange(len(place)) % count] = 10.0
        rows[np.arange(len(place)), prompts + place] = 10.0
        return rows @ rotation

    def every(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.tile(part, (clips, 1)) for part in parts])[order]

    order = generator.permutation(len(modes) * clips * len(place))
    counts = list(modes.values())
    write(
        folder,
        cut=every([outputs(count) for count in counts[::-1]]),
        words=every([np.full((len(place), 1), 10.0 * count) for count in counts])[:, 0],
    )
    return write(
        folder,
        outputs=every([outputs(count) for count in counts]),
        prompts=every([wordings] * len(counts)),
        models=np.repeat(list(modes), clips * len(place))[order],
    )


def small(folder, seed):
    """Three models whose outputs spread within a prompt by a known number of modes: 1, 2 and 4."""
    more = flags(least_prompts=5, scales="1,2")
    return [*write_uneven_models(folder, seed), *widths(0.5), *more]


MODES, KNOWN = {"one": 1, "two": 2, "four": 4}, {"few": 1, "some": 2, "many": 4}
finished = studies.finished(SideBySide)  # The models of MODES, on prompts that not all have.


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """The models of KNOWN on the same prompts, and one alone in a source, with two of each."""
    folder = tmp_path_factory.mktemp("balanced")
    files = write_neighbourhoods(folder, {**KNOWN, "alone": 8})
    names = (folder / "models.txt").read_text().split()
    np.save(folder / "source.npy", ["one" if name == "alone" else "two" for name in names])
    more = flags(truncated=folder / "cut.npy", words=folder / "words.npy", scales=1, groups=8)
    source = f"--source={folder / 'source.npy'}"
    return execute(SideBySide, folder, *files, source, *widths(1), *more)


def test_the_conditional_score_counts_the_modes_that_a_model_adds(finished):
    """Eight samples a prompt: of 1, 2 and 4 modes in equal shares, all of them far apart."""
    found = finished.found.sel(comparison="together", scale=1, model=list(MODES)).squeeze()
    conditional = found.sel(score="Conditional-RKE")
    np.testing.assert_allclose(conditional.value, list(MODES.values()), rtol=0.02)
    assert conditional.letters.values.tolist() == ["c", "b", "a"]
    # Of the seven others of a sample, 7, 3 and 1 are the same.
    unbiased = found.value.sel(score="Conditional-RKE, unbiased")
    np.testing.assert_allclose(unbiased, [1, 7 / 3, 7], rtol=0.02)
    # Prompts far apart: all that an output says about its prompt.
    np.testing.assert_allclose(found.value.sel(score="Information-RKE"), 10, rtol=0.03)


def test_models_are_compared_on_what_they_share(finished):
    part = finished.study.parts["all"]
    assert part.together == Design(("one", "two", "four"), 10, 8)
    assert [of.prompts for of in part.couples] == [10, 10, 12]
    found = finished.found.sel(comparison="pairs", scale=1).squeeze()
    scores = found.of_pair.sel(score="Conditional-RKE")
    for model, modes in MODES.items():
        for other in set(MODES) - {model}:
            assert scores.sel(model=model, other=other) == pytest.approx(modes, rel=0.02)
    told = told_apart(finished.found).sel(comparison="pairs", score="Conditional-RKE").squeeze()
    assert (told.value.sel(scale=1), told.turned) == (3, 0)


def test_samples_are_chosen_for_the_most_rows_and_then_prompts():
    names, table = ["a", "b"], np.array([[9, 9, 9, 2], [9, 3, 3, 2]])
    assert match(names, table) == Design(("a", "b"), 3, 3)
    # 6 rows of 3 prompts x 2, or 4 of 1 x 4.
    assert match(names, np.array([[2, 2, 4]] * 2)) == Design(("a", "b"), 3, 2)
    assert match(names, np.full((2, 400), 2)) == Design(("a", "b"), 300, 2)


def test_models_of_few_prompts_are_left_out_first():
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
    axes = ("score", "model", "other")
    fields = {
        "difference": (axes, [[[0.0, sign], [-sign, 0.0]]]),
        "value": (axes[:2], [[2.0, 1.0]]),
    }
    fields |= {"difference_error": (axes, np.ones((1, 2, 2)))}
    fields |= {"p_value": (axes, np.full((1, 2, 2), p_value))}
    return xr.Dataset(fields, {"score": ["R"], "model": [first, second], "other": [first, second]})


def test_p_values_are_adjusted_over_all_pairs_of_models():
    pairs = (("a", "b", 0.01), ("a", "c", 0.04), ("b", "c", 0.03))
    found = models.of_pairs([compared(*pair) for pair in pairs]).squeeze()
    wanted = [[np.nan, 0.03, 0.06], [0.03, np.nan, 0.06], [0.06, 0.06, np.nan]]
    np.testing.assert_allclose(found.p_value, wanted)
    np.testing.assert_allclose(found.of_pair.sel(model="b"), [1, np.nan, 2])


def test_an_order_turns_only_where_tests_contradict_each_other():
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


def test_samples_of_each_prompt_are_fewer():
    """Three samples of each far prompt: two alike, the third another."""
    far = 12**0.5 * np.eye(8, dtype=np.float32)
    outputs = np.tile(np.pad(far, ((0, 0), (0, 1)))[:, None], (1, 3, 1))
    outputs[:, 2, 8] = 12**0.5
    found = side_by_side.by_samples(outputs, far, lab.Bandwidths(1.0, 1.0, 1.0, "given"))
    np.testing.assert_allclose(found[:, 3], [1, (1 + 2 + 2) / 3, 9 / 5], rtol=1e-3)
    np.testing.assert_allclose(found[2, 0], 3 / 2 ** (2 / 3), rtol=1e-3)


def test_models_whose_prompts_were_asked_once_are_compared():
    """The library ranks them by near prompts as well, which is none of the study's scores."""
    generator = np.random.default_rng(0)
    prompts = generator.normal(size=(40, 2)).astype(np.float32)
    outputs = {
        name: prompts + generator.normal(0, s, (40, 2)) for name, s in (("a", 0.1), ("b", 1))
    }
    outputs = {name: values.astype(np.float32) for name, values in outputs.items()}
    scale = lab.Bandwidths(1.0, 1.0, 1.0, "given")
    found = models.compare(outputs, prompts, scale, groups=8)
    assert found.sizes["score"] == 6 and np.isfinite(found.difference).all()
