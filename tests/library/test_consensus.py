"""Several encoders of the same outputs: which statements hold under all of them."""

import itertools
import json

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.inference import Consensus, PairProfile

PROMPTS = np.repeat(np.arange(8), 3)


def draw(rng, spread=1.0):
    """Outputs of two models in two encoders, of which the second is a part of the first."""
    outputs = rng.normal(size=(2, 24, 3)) * np.array([1.0, spread])[:, None, None]
    return {"whole": outputs.astype(np.float32), "part": outputs[..., :2].astype(np.float32)}


def of_models(encoders):
    return {name: dict(zip("AB", outputs, strict=True)) for name, outputs in encoders.items()}


def parts(outputs):
    """What each prompt adds to the difference of the two models' mean similarity, `[prompts]`."""
    answers = outputs.reshape(2, 8, 3, -1).astype(float)
    squares = np.sum((answers[:, :, :, None] - answers[:, :, None]) ** 2, axis=-1)
    alike = (np.exp(-squares).sum(axis=(-1, -2)) - 3) / 6
    return alike[0] - alike[1]


def test_the_joint_test_is_that_of_all_changes_of_sign_under_all_encoders():
    """The p-value is the share of 256 changes of sign with as large a largest difference."""
    encoders = draw(np.random.default_rng(1), 1.5)
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [2], "profile": False}
    found = cv.compare(of_models(encoders), PROMPTS, **options)
    differences = np.array([parts(outputs) for outputs in encoders.values()])
    signs = np.array([*itertools.product([1, -1], repeat=8)])
    drawn = np.abs(signs @ differences.T) / np.linalg.norm(differences, axis=1)
    (pair,) = found.pairs
    expected = np.mean(drawn.max(axis=1) >= drawn[0].max() - 1e-9)
    assert 0.005 < expected < 0.3
    assert pair.p_value == pytest.approx(expected, abs=4 * np.sqrt(expected / 5000) + 2e-4)
    limit = np.quantile(drawn.max(axis=1), 0.95)
    told = drawn[0] > limit  # Where one is told, the other is tested alone.
    if told.any() and not told.all():
        told |= drawn[0] > np.quantile(drawn[:, ~told].max(axis=1), 0.95)
    assert pair.signs.tolist() == (np.sign(-differences.sum(axis=1)) * told).tolist()
    for name, comparison in found.comparisons.items():
        alone = cv.compare(of_models(encoders)[name], PROMPTS, **options)
        assert comparison.ranking("conditional", 2) == alone.ranking("conditional", 2)


def test_each_encoder_may_have_its_own_kernel():
    outputs = of_models(draw(np.random.default_rng(1)))
    kernels = {"whole": cv.Gaussian(1.0), "part": cv.Gaussian(2.0)}
    found = cv.compare(outputs, PROMPTS, output_kernel=kernels, orders=[2], profile=False)
    widths = [of.bandwidths["outputs"].bandwidth for of in found.comparisons.values()]
    assert widths == [1.0, 2.0]


def test_what_holds_under_all_is_told_from_what_holds_under_one():
    encoders = of_models(draw(np.random.default_rng(1)))
    found = cv.compare(encoders, PROMPTS, output_kernel=cv.Gaussian(1.0), orders=[2], profile=False)
    told = {
        "A > B": ([1, 1], [None, None]),
        "B > A": ([-1, -1], [None, None]),
        "A - B (A > B under part only)": ([0, 1], [None, None]),
        "A - B (B > A under whole; A > B under part)": ([-1, 1], [None, None]),
        "A - B (no significant difference)": ([0, 0], [None, None]),
        "A - B (not tested: few)": ([0, 0], ["few", "few"]),
    }
    for words, (signs, untested) in told.items():
        pair = PairProfile("A", "B", "conditional", np.array(signs), untested, 0.1, 0.1)
        own = Consensus(found.comparisons, (pair,), 0.05)
        assert own.in_words(pair) == words
        assert own.lines()[1]["under_all"] == (" - " not in words)
        after = "" if own.holds(pair) else "not "
        assert f"{after}under all 2 encoders: {words}" in str(own)
    assert str(found).startswith("whole: Conditional-RKE: ") and "\npart: Conditional" in str(found)
    json.dumps(found.as_dict()["pairs"])
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [2], "profile": False}
    wide = cv.compare(encoders, PROMPTS, **options, equal_ratio=100.0)
    assert all(of.rankings[0].margin == 100 for of in wide.comparisons.values())
    assert len(found.to_dataframe()) == 2 and len(str(found).splitlines()) == 3


def test_too_few_prompts_are_not_tested_under_any_encoder():
    encoders = {name: of[:, :15] for name, of in draw(np.random.default_rng(1)).items()}
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [2], "profile": False}
    found = cv.compare(of_models(encoders), PROMPTS[:15], **options)
    assert "A - B (not tested: there are fewer than 7 rows of one prompt)" in str(found)


OUTPUTS = of_models(draw(np.random.default_rng(1)))
SHORT = {name: of[:12] for name, of in OUTPUTS["part"].items()}


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        (OUTPUTS | {"part": SHORT}, {}, "same models and rows.*'A': 24.*'A': 12"),
        (OUTPUTS | {"part": {"A": OUTPUTS["part"]["A"]}}, {}, "same models and rows"),
        (OUTPUTS | {"part": OUTPUTS["part"]["A"]}, {}, "same models and rows.*'part': 24"),
        ({"whole": OUTPUTS["whole"]}, {}, "two encoders or more"),
        (OUTPUTS, {"prompts": {"whole": PROMPTS, "part": PROMPTS}}, "prompts that they share"),
        (OUTPUTS, {"output_kernel": {"whole": None}}, "output_kernel of each of the encoders"),
        (OUTPUTS, {"orders": [1]}, "expected orders with 2"),
        (OUTPUTS, {"errors": False}, "expected orders with 2 and errors=True"),
        (OUTPUTS, {"groups": 4}, "expected orders with 2 and errors=True"),
    ],
)
def test_encoders_that_do_not_belong_together_are_refused(models, options, words):
    with pytest.raises(ValueError, match=words):
        cv.compare(models, **{"prompts": PROMPTS} | options)
