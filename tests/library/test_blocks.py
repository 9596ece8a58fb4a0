"""Sums over pairs of rows by the blocks of a prompt, beside all pairs in float64."""

from typing import Any

import jax
import numpy as np
import pytest
from oracles import assert_close, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.inference import errors, profiles
from condvendi_jax.spectra import order_two, pair_sums

pytestmark = pytest.mark.usefixtures("x64")
SIZES = [3, 1, 4, 3, 1, 5, 2]  # Of the prompts, whose rows are mixed.
KIND = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
ROWS = np.random.default_rng(1).normal(size=(KIND.size, 3)) + KIND[:, None] % 3
LABELS = np.random.default_rng(2).integers(3, size=KIND.size)
WEIGHTS = np.random.default_rng(3).uniform(0.2, 1, KIND.size)


def equal(labels):
    return (labels[:, None] == labels).astype(float)


def block_similarities():
    """Similarities of outputs within each prompt, and all of them as one matrix."""
    gram = gaussian_gram(ROWS, 1.5) * equal(KIND)
    blocks = {p: gram[np.ix_(KIND == p, KIND == p)] for p in range(7)}
    return cv.Similarities(blocks, prompts=KIND.tolist()), gram


GAUSSIAN: Any = {"output_kernel": cv.Gaussian(1.5)}
CASES: Any = {
    "answers": lambda: ((ROWS, KIND), GAUSSIAN, gaussian_gram(ROWS, 1.5), equal(KIND)),
    "labels": lambda: ((LABELS, KIND), {}, equal(LABELS), equal(KIND)),
    "alike prompts": lambda: (
        (LABELS, ROWS),
        {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Gaussian(1.5)},
        equal(LABELS),
        gaussian_gram(ROWS, 1.5),
    ),
    "no labels": lambda: (
        (ROWS, ROWS[::-1]),
        GAUSSIAN | {"prompt_kernel": cv.Gaussian(1.5)},
        gaussian_gram(ROWS, 1.5),
        gaussian_gram(ROWS[::-1], 1.5),
    ),
    "outputs alone": lambda: ((ROWS,), GAUSSIAN, gaussian_gram(ROWS, 1.5), None),
}


@pytest.mark.parametrize("most", [0, 1 << 11], ids=["compiled", "NumPy"])
@pytest.mark.parametrize("case", CASES)
def test_sums_over_other_rows_are_those_of_all_pairs(case, most, monkeypatch):
    monkeypatch.setattr(pair_sums, "_IN_NUMPY", most)
    monkeypatch.setattr(pair_sums, "_BLOCK", 8)
    arrays, options, outputs, prompts = CASES[case]()
    pairs = cv.Pairs(*arrays, weights=WEIGHTS, **options)
    terms = [outputs] if prompts is None else [outputs, prompts, outputs * prompts]
    others = [np.square(gram) * (1 - np.eye(KIND.size)) for gram in terms]
    assert_close(pair_sums.row_sums(pairs), [square @ pairs.shares for square in others])
    norms = [np.square(gram) @ pairs.shares @ pairs.shares for gram in terms]
    found = order_two.frobenius(pairs, ("outputs", "prompts", "joint"))
    assert_close([value for value in found if value is not None], -np.log(norms))
    # Of groups that are prompts, and of some that split them.
    for membership in (KIND, np.arange(KIND.size) % 4):
        groups = pair_sums.leaving_of(pairs.shares, membership)
        parts = [pair_sums.sums_inside(pairs, part) for part in groups]
        inside = equal(membership)
        expected = [(square * inside) @ pairs.shares for square in others]
        assert_close(pair_sums.by_rows(groups, parts, KIND.size), expected)


def test_similarities_within_prompts_are_not_looked_for_between_them():
    similarities, gram = block_similarities()
    pairs = cv.Pairs(similarities)
    found = pair_sums.row_sums(pairs)
    square = (np.square(gram) * (1 - np.eye(KIND.size))).mean(axis=1)
    assert_close(found[[0, 2]], np.stack([square, square]))


def test_conditional_rke_of_equal_prompts_compares_no_different_ones(monkeypatch):
    def fail(*_):
        raise AssertionError("all pairs of rows were visited")

    monkeypatch.setattr(pair_sums, "all_row_sums", fail)
    monkeypatch.setattr(order_two, "_squared_norms", fail)
    score = cv.conditional_rke(ROWS, KIND, prompt_kernel=cv.Indicator(), **GAUSSIAN)
    same = equal(KIND)
    assert_close(score, same.sum() / (np.square(gaussian_gram(ROWS, 1.5)) * same).sum())


@pytest.mark.parametrize("seed", range(6))
def test_a_group_leaves_one_prompt_if_the_rest_has_one(seed):
    rng = np.random.default_rng(seed)
    kinds, membership = rng.integers(3, size=6), rng.integers(4, size=6)
    rests = [kinds[membership != group] for group in range(4)]
    expected = np.unique(kinds).size > 1 and any(np.unique(rest).size <= 1 for rest in rests)
    groups = errors.Groups(membership, "given labels", 4)
    assert errors.leaves_one_prompt(kinds, groups) == expected


def test_a_profile_of_many_rows_compares_drawn_prompts(monkeypatch):
    """The conditional score is that of all prompts, the others are those of the drawn ones."""
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(120), 3)
    outputs = {name: rng.normal(size=(360, 2)) + kind[:, None] % 5 for name in "ab"}
    options: Any = {"output_kernel": cv.Gaussian(1.0), "multiples": [0.5, 1.0]}
    whole = cv.profile(outputs, kind, **options)
    monkeypatch.setattr(profiles, "_MOST_PAIRS", 2 * 310**2)
    monkeypatch.setattr(profiles, "_FEWEST_DRAWN", 100)
    found = cv.profile(outputs, kind, **options)
    assert (whole.sampled, found.sampled) == (0, 103)
    assert "RKE and Information-RKE are those of 103 prompts, drawn at random" in str(found)
    assert "sampled" not in whole.as_dict() and found.as_dict()["sampled"] == 103
    np.testing.assert_allclose(found.values.conditional, whole.values.conditional, rtol=1e-6)
    np.testing.assert_array_equal(found.pair("a", "b").signs, whole.pair("a", "b").signs)
    drawn, _ = profiles._drawn(cv.Pairs.of_models(outputs, kind, output_kernel=cv.Gaussian(1.0)), 0)
    rows = drawn["a"]
    alone = cv.evaluate(outputs["a"][rows], kind[rows], orders=[2], output_kernel=cv.Gaussian(1.0))
    population = alone.order(2).population
    assert population is not None
    # At the design of all 120 prompts, of which a prompt is with itself in fewer pairs.
    expected = population.at(1 / 120, 0.0).values
    for name in ("vendi", "information"):
        assert_close(getattr(found.values, name)[0, 1], getattr(expected, name))
        assert not np.array_equal(getattr(found.values, name), getattr(whole.values, name))


def test_models_are_compared_by_block_as_by_all_rows():
    """Prompts as labels, and as rows under a kernel that is as good as zero between them."""
    models = {name: ROWS + shift for name, shift in (("a", 0.0), ("b", 0.3), ("c", 2.0))}
    apart = 100.0 * np.stack([KIND, KIND], axis=1)
    alike = cv.between_models(models, KIND, **GAUSSIAN)
    far = cv.between_models(models, apart, prompt_kernel=cv.Gaussian(0.1), **GAUSSIAN)
    assert_close(alike.number, far.number)
    assert_close(alike.overlaps, far.overlaps)
    assert alike.error is not None and far.error is not None
    assert_close(alike.error.influences, far.error.influences)


def test_kernels_of_stacks_are_those_of_each():
    stack: Any = np.stack([ROWS[:8], ROWS[8:16]])
    of_labels: Any = np.stack([LABELS[:8], LABELS[8:16]])[..., None].astype(float)
    for kernel, points in ((cv.Gaussian(1.5), stack), (cv.Indicator(), of_labels)):
        found = kernel.cross(*[kernel.prepare(points)] * 2)
        for part, values in zip(points, found, strict=True):
            alone = kernel.prepare(jax.numpy.asarray(part))
            assert_close(values, kernel.cross(alone, alone))


def test_programs_for_a_gpu_run_inside_transformations_too(monkeypatch):
    """What is compiled with an option there, which JAX refuses inside, is the same program."""
    monkeypatch.setattr(pair_sums, "_IN_NUMPY", 0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    rows, expected = jax.numpy.asarray(ROWS), 1 / np.square(gaussian_gram(ROWS, 1.5)).mean()
    jax.clear_caches()

    def score(times):
        return times * cv.rke(rows, **GAUSSIAN)

    assert_close(score(1.0), expected)
    assert_close(jax.jit(score)(2.0), 2 * expected)
    assert_close(jax.grad(score)(2.0), expected)
    moving = jax.grad(lambda width: cv.rke(rows, kernel=cv.Gaussian(width)))(1.5)
    ends = [1 / np.square(gaussian_gram(ROWS, 1.5 + step)).mean() for step in (-1e-4, 1e-4)]
    np.testing.assert_allclose(moving, (ends[1] - ends[0]) / 2e-4, rtol=1e-5)
