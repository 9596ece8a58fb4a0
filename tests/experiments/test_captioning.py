"""The captioning study: captioners with a known number of captions, and several side by side."""

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import entropy, gaussian_gram
from small import flags, widths, write

from experiments import lab
from experiments.conditional_vendi import captioning
from experiments.conditional_vendi.captioning import SCORES, Captioning, with_errors
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Writes 12 photographs, each there twice, with the same two captions; gives the flags.

    Photographs and captions are so far apart that Conditional-* is the number of captions and
    Information-* that of different photographs: 2 of the cats, 2 of the dogs.
    """
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    captions = 15 * rotation.reshape(6, 2, 12).repeat(2, axis=0)
    photographs = np.tile(15 * np.eye(6), 2).repeat(4, axis=0)
    files = write(
        folder,
        outputs=captions.reshape(24, 12),
        prompts=photographs,
        prompt=np.arange(24) // 2,
        pictures=np.repeat(["cat", "dog", "other"], 8),
    )
    return [*files, *widths(1), *flags(groups=4)]


CONTROLS = ["swapped", "shuffled", "one for all"]
finished = studies.finished(Captioning)


def test_far_apart_captions_and_photographs_are_counted(finished):
    """Conditional-* is the number of captions and Information-* that of photographs."""
    study, found = finished.study, finished.found
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


def blurred(seed, *, photographs=40, captions=3):
    """Captions near a point of their photograph, photographs in five near groups."""
    rng = np.random.default_rng(seed)
    centres = 4 * np.eye(5)[np.arange(photographs) % 5]
    prompts = centres + 0.3 * rng.normal(size=(photographs, 5))
    outputs = np.repeat(centres, captions, axis=0)
    outputs = (outputs + 0.5 * rng.normal(size=outputs.shape)).astype(np.float32)
    prompts = np.repeat(prompts, captions, axis=0).astype(np.float32)
    labels = {"prompt": np.repeat([f"p{i}" for i in range(photographs)], captions)}
    return PairedEmbeddings("blurred", outputs, prompts, "blurred captions", labels=labels)


def computed(pairs, seed=0, **options):
    scales = lab.Scales(output_bandwidth=0.5, prompt_bandwidth=2.0, scales=(1.0,))
    study = Captioning(**{"bandwidths": scales, "groups": 8} | options)
    return studies.computed(study, pairs, seed)


@pytest.fixture(scope="module")
def known():
    return blurred(0), *computed(blurred(0))


def test_scores_of_all_captioners_are_the_oracles(known):
    pairs, setup, found = known
    said, _ = setup.state[1]["all"]
    for name, captions in said.items():
        prompts = pairs.prompts[np.repeat(said["k = 1"], captions.shape[1])].astype(float)
        grams = gaussian_gram(pairs.outputs[captions.ravel()].astype(float), 0.5)
        grams = grams, gaussian_gram(prompts, 2.0)
        for order in (1, 2):
            h_x, h_t, h_xt = (entropy(g, order=order) for g in (*grams, grams[0] * grams[1]))
            expected = np.exp([h_x, h_xt - h_t, h_x + h_t - h_xt])
            told = found.value.sel(captioner=name, order=order)
            np.testing.assert_allclose(told, expected, rtol=1e-4)


def test_nobody_keeps_a_caption_when_swapped_or_shuffled(known):
    pairs, setup, _ = known
    said, _ = setup.state[1]["all"]
    photograph_of = np.arange(120) // 3
    for name in CONTROLS[:2]:
        wrong = photograph_of[said[name]]
        assert (wrong != photograph_of[said["k = 1"]]).all()
        assert sorted(said[name].ravel()) == list(range(120))
        together = wrong[:, 0] == wrong[:, 1]
        assert together.all() if name == "swapped" else not together.all()
    nearest = pairs.outputs @ pairs.outputs.sum(axis=0)
    assert set(said["one for all"].ravel()) == {int(np.argmax(nearest))}


def test_errors_leave_out_photographs(known):
    pairs, setup, found = known
    said, groups = setup.state[1]["all"]
    assert sorted(np.bincount(groups)) == [5] * 8
    scores = []
    for group in range(8):
        rows = said["k = 3"][groups != group].ravel()
        gram = gaussian_gram(pairs.prompts[rows].astype(float), 2.0)
        joint = gaussian_gram(pairs.outputs[rows].astype(float), 0.5) * gram
        scores.append(np.exp(entropy(joint, order=2) - entropy(gram, order=2)))
    expected = np.sqrt(7 / 8 * np.sum((np.array(scores) - np.mean(scores)) ** 2))
    alone = with_errors(found).error.sel(order=2, score="conditional", captioner="k = 3")
    assert float(alone) == pytest.approx(expected, rel=1e-3)


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
    setup, found = computed(pairs, groups=5, orders=(2.0,))
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


test_bad_flags_are_refused = studies.refuses(
    Captioning, ("--groups=5", "at most the 4 photographs of cat, received 5")
)
