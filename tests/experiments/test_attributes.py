"""The study of attributes on categories whose number of different outputs is known."""

from typing import Any

import numpy as np
import pytest
import studies
import xarray as xr
from small import flags, widths, write

from experiments.conditional_vendi.attributes import Attributes, agreement
from experiments.data import PairedEmbeddings

PROMPTS, MODELS = 6, 4
# Of four models, so many kinds of pictures in equal shares, in every prompt of the category.
KINDS = {"colours": 1, "counting": 2, "Reddit": 4, "styles": 2}


def known(seed=0):
    """Four pictures of each prompt, in a random order; no two prompts of a category share one."""
    prompt = np.repeat(np.arange(PROMPTS * len(KINDS)), MODELS)
    model = np.tile(np.arange(MODELS), PROMPTS * len(KINDS))
    types = np.array(list(KINDS))[prompt // PROMPTS]
    outputs = 13.0 * (prompt % 12) + 3 * (model % np.array([KINDS[t] for t in types]))
    outputs += np.random.default_rng(seed).normal(0, 0.01, len(prompt))
    order = np.random.default_rng(seed + 1).permutation(len(prompt))
    labels = {"models": np.char.add("model ", model.astype(str)), "prompt": prompt, "types": types}
    arrays = {"outputs": outputs[:, None], "prompts": prompt[:, None] * 1.0, **labels}
    return {role: values[order] for role, values in arrays.items()}


def small(folder, seed):
    arrays = known(seed)
    noise = np.random.default_rng(seed).normal(size=(len(arrays["prompts"]), 2))
    return [*write(folder, **arrays, second=noise), *widths(1), *flags(equal=3, scales=1)]


run = studies.finished(Attributes)
test_bad_flags_are_refused = studies.refuses(Attributes, ("--equal=7", "at most the 6 prompts"))


def test_a_category_has_the_number_of_different_outputs_to_one_prompt(run):
    """Of the pairs of two models all, a third and none are alike."""
    found = run.found.sel(encoder="outputs", scale=1).sel(category=list(KINDS))
    pairs = np.array([1, 1 / 3, 0, 1 / 3])
    np.testing.assert_allclose(1 / found.value, pairs, atol=1e-3)
    np.testing.assert_allclose(1 / found.equal, pairs, atol=1e-3)
    assert (1 / found.other < 1e-3).all() and found.alike < 1e-3
    # Of each two once: fewer of colours, more of Reddit, but none of two kinds.
    apart = found.apart.sel(than=["Reddit", "styles"])
    assert apart.values.tolist() == [[0, -1], [0, 0], [0, 1], [0, 0]]
    found: Any = xr.concat([run.found] * 2, "encoder").sel(encoder="outputs")
    assert agreement(found).sel(of="both").item() == agreement(found).sel(of="any").item() == 5


def test_intervals_tests_and_the_ratio_are_over_prompts():
    rng = np.random.default_rng(3)
    arrays = known() | {"outputs": rng.normal(size=(PROMPTS * MODELS * len(KINDS), 2))}
    data: Any = {role: arrays.pop(role).astype("f4") for role in ("outputs", "prompts")}
    pairs = PairedEmbeddings("own", **data, description="", labels=arrays)
    setup, found = studies.computed(Attributes(equal=2), pairs)
    kinds, _, encoded = setup.state
    width = setup.study.encoders["outputs"].axis[0].outputs
    gaps = np.square(encoded["outputs"][:, :, None] - encoded["outputs"][:, None]).sum(-1)
    similar = np.exp(-gaps / width**2)
    inside = (similar.sum((1, 2)) - MODELS) / (MODELS * (MODELS - 1))
    s = inside[kinds == "counting"]
    half = 2.570582 * s.std(ddof=1) / np.sqrt(len(s)) / s.mean()  # Student's t, 5 degrees.
    got = found.sel(category="counting")
    np.testing.assert_allclose(got.value, 1 / s.mean(), rtol=1e-4)
    np.testing.assert_allclose(got.ends, np.exp([-half, half]) / s.mean(), rtol=1e-4)
    named, unnamed = inside[np.isin(kinds, ["colours", "counting"])], inside[kinds == "Reddit"]
    np.testing.assert_allclose(found.named[0], unnamed.mean() / named.mean(), rtol=1e-4)
    assert found.named[1] < found.named[0] < found.named[2]
    assert found.alike > 0.01 and (found.apart == 0).all()


def test_a_model_without_a_picture_is_refused():
    arrays = {role: values[1:] for role, values in known().items()}
    data: Any = {role: arrays.pop(role).astype("f4") for role in ("outputs", "prompts")}
    pairs = PairedEmbeddings("own", **data, description="", labels=arrays)
    with pytest.raises(ValueError, match="one output of every prompt"):
        Attributes().prepare(lambda: pairs, 0)
