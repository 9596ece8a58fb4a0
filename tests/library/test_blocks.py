"""Rows that count as equal or different: sums and spectra by blocks, beside those of all pairs."""

from typing import Any

import jax
import numpy as np
import pytest
from oracles import assert_close, gaussian_gram, weighted_entropy, weighted_logs

import condvendi_jax as cv
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams.operators import TiledGram
from condvendi_jax.inference import errors, profiles
from condvendi_jax.spectra import blocks, computation, order_two, pair_sums

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
KIND = RNG.permutation(np.repeat(np.arange(24), RNG.integers(1, 6, size=24)))
N = KIND.size
ROWS, LABELS = RNG.normal(size=(N, 2)), RNG.integers(0, 4, size=N)
ROWS[1] = ROWS[2]
GRAM = gaussian_gram(ROWS, 1.0)
SAME_LABEL, SAME = (np.equal.outer(numbers, numbers) * 1.0 for numbers in (LABELS, KIND))
UNEVEN = RNG.uniform(0.5, 2, size=N)
WEIGHTS: Any = {
    "equal": None,
    "zeros": np.where((KIND % 5 == 2) | (np.arange(N) % 7 == 0), 0, UNEVEN),
    "copies": RNG.integers(0, 4, size=N),
}
OUTPUTS: Any = {"output_kernel": cv.Gaussian(1.0)}
PROMPTS: Any = {"prompt_kernel": cv.Gaussian(1.0)}
#: Outputs and prompts, their kernels, and their Grams.
CASES: Any = {
    "embeddings": ((ROWS, KIND), OUTPUTS, GRAM, SAME),
    "labels": ((LABELS, KIND), {}, SAME_LABEL, SAME),
    "labels under embeddings": ((LABELS, ROWS), PROMPTS, SAME_LABEL, GRAM),
    "similarities within prompts": ((), {}, GRAM * SAME, SAME),
}
OTHERS: Any = {
    "alike prompts": (
        (LABELS, ROWS),
        {"output_kernel": cv.Indicator()} | PROMPTS,
        SAME_LABEL,
        GRAM,
    ),
    "no labels": ((ROWS, ROWS[::-1]), OUTPUTS | PROMPTS, GRAM, GRAM[::-1, ::-1]),
    "outputs alone": ((ROWS,), OUTPUTS, GRAM),
}
of_every_case = pytest.mark.parametrize("case", CASES)
of_all_weights = pytest.mark.parametrize("weights", WEIGHTS)


def make(case, weights):
    """Pairs, the Grams of their terms, and the shares of rows."""
    arrays, options, *grams = (CASES | OTHERS)[case]
    if not arrays:
        matrices = {p: GRAM[np.ix_(KIND == p, KIND == p)] for p in range(24)}
        arrays = (cv.Similarities(matrices, prompts=KIND.tolist()),)
    pairs = cv.Pairs(*arrays, weights=weights, **options)
    return pairs, grams if len(grams) == 1 else [*grams, grams[0] * grams[1]], pairs.shares


@pytest.mark.parametrize("most", [0, 1 << 11], ids=["compiled", "NumPy"])
@pytest.mark.parametrize("case", CASES | OTHERS)
def test_sums_over_other_rows_are_those_of_all_pairs(case, most, monkeypatch):
    monkeypatch.setattr(pair_sums, "_IN_NUMPY", most)
    monkeypatch.setattr(pair_sums, "_BLOCK", 8)
    pairs, grams, shares = make(case, UNEVEN)
    others = [np.square(gram) * (1 - np.eye(N)) for gram in grams]
    assert_close(pair_sums.row_sums(pairs), [square @ shares for square in others])
    found = order_two.frobenius(pairs, ("outputs", "prompts", "joint"))
    norms = [np.square(gram) @ shares @ shares for gram in grams]
    assert_close([value for value in found if value is not None], -np.log(norms))
    # Of groups that are prompts, and of some that split them.
    for membership in (KIND, np.arange(N) % 4):
        groups = pair_sums.leaving_of(shares, membership)
        parts = [pair_sums.sums_inside(pairs, part) for part in groups]
        inside = np.equal.outer(membership, membership)
        expected = [(square * inside) @ shares for square in others]
        assert_close(pair_sums.by_rows(groups, parts, N), expected)


def test_conditional_rke_of_equal_prompts_compares_no_different_ones(monkeypatch):
    def fail(*_):
        raise AssertionError("all pairs of rows were visited")

    monkeypatch.setattr(pair_sums, "all_row_sums", fail)
    monkeypatch.setattr(order_two, "_squared_norms", fail)
    score = cv.conditional_rke(ROWS, KIND, prompt_kernel=cv.Indicator(), **OUTPUTS)
    assert_close(score, SAME.sum() / (np.square(GRAM) * SAME).sum())


@of_all_weights
@of_every_case
def test_entropies_and_slopes_are_those_of_whole_matrices(case, weights):
    pairs, grams, shares = make(case, WEIGHTS[weights])
    assert "joint" in blocks.blocks_of(pairs)
    for order, t in ((1, None), (0.8, None), (np.inf, None), (1, 30), (3, 7)):
        (found,) = computation.compute(pairs, [Entropy(order, t)], cv.Exact())
        expected = [weighted_entropy(gram, shares, order, t) for gram in grams]
        np.testing.assert_allclose(found.values, expected, atol=1e-9, err_msg=f"{order}, {t}")
        assert all(values.shape == (N,) for values in found.spectra)
    direction = np.where(shares > 0, np.random.default_rng(1).normal(size=N), 0) * shares
    direction -= shares * direction.sum()
    ends = [weighted_logs(grams, shares + step * direction, 1.5) for step in (1e-6, -1e-6)]
    rows = computation.compute_sloped(pairs, Entropy(1.5), cv.Exact()).rows
    x, t, joint = (np.where(shares > 0, part[0], 0) @ direction for part in rows)
    slopes = np.subtract(*ends) / 2e-6
    np.testing.assert_allclose((x, joint - t, x + t - joint), slopes, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("groups", ["rows", "prompts", "both", "across"])
@of_all_weights
@of_every_case
def test_deletions_of_prompts_and_of_parts_of_several(case, weights, groups):
    pairs, grams, shares = make(case, WEIGHTS[weights])
    kinds, of_rows = pairs.prompt_kinds[1], np.random.default_rng(2).integers(0, 40, size=N)
    # Some prompts as a group, and groups of rows of several prompts.
    both = np.where(kinds < 9, kinds, 9 + of_rows)
    every = {"rows": np.arange(N), "prompts": kinds, "both": both, "across": of_rows}
    leaving = errors.Groups(every[groups], groups, N).leaving(pairs)
    sloped = computation.compute_sloped(pairs, Entropy(), cv.Exact(), leaving)
    left = {
        group: (rows, lost)
        for part in leaving
        for group, rows, lost in zip(*part, strict=True)
        if lost.sum() > 0
    }
    for group in sorted(left)[::3]:
        (rows, lost), rest = left[group], shares.copy()
        np.subtract.at(rest, rows, lost)
        share, rest = lost.sum(), np.maximum(rest, 0)
        before = map(float, sloped.computed.values)
        after = (weighted_entropy(gram, rest) for gram in grams)
        losses = [(h - other) * (1 - share) / share for h, other in zip(before, after, strict=True)]
        found = [part[group] for part in sloped.deletions]
        np.testing.assert_allclose(found, losses, rtol=2e-6, atol=2e-6)


def test_a_conditional_score_needs_no_matrix_of_all_rows(monkeypatch):
    """Of two answers to each of 3,000 prompts, which differ for half of the prompts."""

    def fail(*_):
        raise AssertionError("a matrix of all rows was computed.")

    monkeypatch.setattr(TiledGram, "dense", fail)
    monkeypatch.setattr(TiledGram, "store", fail)
    prompts = np.repeat(np.arange(3000), 2)
    answers = np.where(prompts % 2, np.arange(6000) % 2, 0)
    outputs = np.stack([prompts % 9, 9 * answers], axis=1).astype(np.float32)
    for method in (cv.Exact(), cv.Auto(key=jax.random.key(0))):
        score = cv.conditional_vendi(outputs, prompts, kernel=cv.Gaussian(1.0), method=method)
        assert_close(score, np.sqrt(2))


@pytest.mark.parametrize("weights", [None, np.arange(600) % 5], ids=["equal", "zeros"])
def test_only_the_outputs_are_estimated_where_blocks_are_exact(weights):
    prompts = np.repeat(np.arange(300), 2)
    outputs = np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
    pairs = cv.Pairs(outputs, prompts, kernel=cv.Gaussian(0.3), weights=weights)
    estimated = cv.decompose(pairs, method=cv.Stored(jax.random.key(0)))
    assert estimated.method == "stored"
    standard_errors = estimated.estimation.standard_errors
    assert standard_errors.conditional == 0 < standard_errors.vendi
    assert_close(estimated.conditional, cv.decompose(pairs).conditional)
    exact = computation.compute_sloped(pairs, Entropy(), cv.Exact()).rows
    sloped = computation.compute_sloped(pairs, Entropy(), cv.Stored(jax.random.key(0)))
    np.testing.assert_allclose(sloped.rows.joint, exact.joint, atol=1e-3)


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
    whole = cv.profile(outputs, kind, multiples=[0.5, 1.0], **OUTPUTS)
    monkeypatch.setattr(profiles, "_MOST_PAIRS", 2 * 310**2)
    monkeypatch.setattr(profiles, "_FEWEST_DRAWN", 100)
    found = cv.profile(outputs, kind, multiples=[0.5, 1.0], **OUTPUTS)
    assert (whole.sampled, found.sampled) == (0, 103)
    assert "RKE and Information-RKE are those of 103 prompts, drawn at random" in str(found)
    assert "sampled" not in whole.as_dict() and found.as_dict()["sampled"] == 103
    np.testing.assert_allclose(found.values.conditional, whole.values.conditional, rtol=1e-6)
    np.testing.assert_array_equal(found.pair("a", "b").signs, whole.pair("a", "b").signs)
    rows = profiles._drawn(cv.Pairs.of_models(outputs, kind, **OUTPUTS), 0)[0]["a"]
    alone = cv.evaluate(outputs["a"][rows], kind[rows], orders=[2], **OUTPUTS)
    population: Any = alone.order(2).population
    # At the design of all 120 prompts, of which a prompt is with itself in fewer pairs.
    expected = population.at(1 / 120, 0.0).values
    for name in ("vendi", "information"):
        assert_close(getattr(found.values, name)[0, 1], getattr(expected, name))
        assert not np.array_equal(getattr(found.values, name), getattr(whole.values, name))


def test_models_are_compared_by_block_as_by_all_rows():
    """Prompts as labels, and as rows under a kernel that is as good as zero between them."""
    models = {name: ROWS + shift for name, shift in (("a", 0.0), ("b", 0.3), ("c", 2.0))}
    apart = 100.0 * np.stack([KIND, KIND], axis=1)
    alike: Any = cv.between_models(models, KIND, **OUTPUTS)
    far: Any = cv.between_models(models, apart, prompt_kernel=cv.Gaussian(0.1), **OUTPUTS)
    assert_close(alike.number, far.number)
    assert_close(alike.overlaps, far.overlaps)
    assert_close(alike.error.influences, far.error.influences)


def test_kernels_of_stacks_are_those_of_each():
    stacks: Any = (rows[:16].reshape(2, 8, -1) for rows in (ROWS, LABELS * 1.0))
    for kernel, stack in zip((cv.Gaussian(1.5), cv.Indicator()), stacks, strict=True):
        found = kernel.cross(*[kernel.prepare(stack)] * 2)
        for part, values in zip(stack, found, strict=True):
            alone = kernel.prepare(jax.numpy.asarray(part))
            assert_close(values, kernel.cross(alone, alone))


def test_programs_for_a_gpu_run_inside_transformations_too(monkeypatch):
    """What is compiled with an option there, which JAX refuses inside, is the same program."""
    monkeypatch.setattr(pair_sums, "_IN_NUMPY", 0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    rows, expected = jax.numpy.asarray(ROWS), 1 / np.square(GRAM).mean()
    jax.clear_caches()

    def score(times):
        return times * cv.rke(rows, **OUTPUTS)

    assert_close(score(1.0), expected)
    assert_close(jax.jit(score)(2.0), 2 * expected)
    assert_close(jax.grad(score)(2.0), expected)
    moving = jax.grad(lambda width: cv.rke(rows, kernel=cv.Gaussian(width)))(1.0)
    ends = [1 / np.square(gaussian_gram(ROWS, 1 + step)).mean() for step in (-1e-4, 1e-4)]
    np.testing.assert_allclose(moving, (ends[1] - ends[0]) / 2e-4, rtol=1e-5)
