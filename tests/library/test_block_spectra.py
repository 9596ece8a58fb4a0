"""Spectra where rows count as equal or different: those of the blocks, against NumPy."""

import jax
import numpy as np
import pytest
from oracles import assert_close, gaussian_gram, weighted_entropy, weighted_logs

import condvendi_jax as cv
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams.operators import TiledGram
from condvendi_jax.inference import errors
from condvendi_jax.spectra import blocks, computation

_RNG = np.random.default_rng(0)
_PROMPTS = _RNG.permutation(np.repeat(np.arange(24), _RNG.integers(1, 6, size=24)))
_N = _PROMPTS.size
_POINTS, _LABELS = _RNG.normal(size=(_N, 2)), _RNG.integers(0, 4, size=_N)
_POINTS[1] = _POINTS[2]
_KERNEL = cv.Gaussian(1.0)
_OF_POINTS = gaussian_gram(_POINTS, 1.0)
_OF_LABELS, _OF_PROMPTS = np.equal.outer(_LABELS, _LABELS), np.equal.outer(_PROMPTS, _PROMPTS)
_ZEROS = np.where(_PROMPTS % 5 == 2, 0, _RNG.uniform(0.5, 2, size=_N))
_ZEROS[::7] = 0
WEIGHTS = {"equal": None, "zeros": _ZEROS, "copies": _RNG.integers(0, 4, size=_N)}


def _similar(weights):
    """Answers with similarities within each prompt."""
    order = np.argsort(_PROMPTS, kind="stable")
    rows = [np.flatnonzero(_PROMPTS == prompt) for prompt in range(24)]
    matrices = [_OF_POINTS[np.ix_(some, some)] for some in rows]
    weights = None if weights is None else weights[order]
    kinds = _PROMPTS[order]
    within = (_OF_POINTS * _OF_PROMPTS)[np.ix_(order, order)]
    return (
        cv.Pairs(cv.Similarities(matrices), weights=weights),
        within,
        np.equal.outer(kinds, kinds),
    )


CASES = {
    "embeddings": lambda w: (
        cv.Pairs(_POINTS, _PROMPTS, output_kernel=_KERNEL, weights=w),
        _OF_POINTS,
        _OF_PROMPTS,
    ),
    "labels": lambda w: (cv.Pairs(_LABELS, _PROMPTS, weights=w), _OF_LABELS, _OF_PROMPTS),
    "labels under embeddings": lambda w: (
        cv.Pairs(_LABELS, _POINTS, prompt_kernel=_KERNEL, weights=w),
        _OF_LABELS,
        _OF_POINTS,
    ),
    "similarities": _similar,
}


def _make(case, weights):
    """Pairs, the Grams of their terms, and their weights."""
    pairs, x, t = CASES[case](WEIGHTS[weights])
    return pairs, (x * 1.0, t * 1.0, x * t * 1.0), pairs.shares


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("case", CASES)
def test_entropies_are_those_of_whole_matrices(case, weights, x64):
    pairs, grams, shares = _make(case, weights)
    assert "joint" in blocks.blocks_of(pairs)
    for order, t in ((1, None), (0.8, None), (np.inf, None), (1, 30), (3, 7)):
        (found,) = computation.compute(pairs, [Entropy(order, t)], cv.Exact())
        expected = [weighted_entropy(gram, shares, order, t) for gram in grams]
        np.testing.assert_allclose(found.values, expected, atol=1e-9, err_msg=f"{order}, {t}")
        assert all(values.shape == (_N,) for values in found.spectra)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("case", CASES)
def test_slopes_are_derivatives_in_the_weights(case, weights, x64):
    pairs, grams, shares = _make(case, weights)
    direction = np.where(shares > 0, np.random.default_rng(1).normal(size=_N), 0) * shares
    direction -= shares * direction.sum()
    ends = [weighted_logs(grams, shares + step * direction, 1.5) for step in (1e-6, -1e-6)]
    rows = computation.compute_sloped(pairs, Entropy(1.5), cv.Exact()).rows
    there = [np.where(shares > 0, part[0], 0) @ direction for part in rows]
    found = there[0], there[2] - there[1], there[0] + there[1] - there[2]
    np.testing.assert_allclose(found, np.subtract(*ends) / 2e-6, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("groups", ["rows", "prompts", "both", "across"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("case", CASES)
def test_deletions_of_prompts_and_of_parts_of_several(case, weights, groups, x64):
    pairs, grams, shares = _make(case, weights)
    kinds, of_rows = pairs.prompt_kinds[1], np.random.default_rng(2).integers(0, 40, size=_N)
    # Some prompts as a group, and groups of rows of several prompts.
    both = np.where(kinds < 9, kinds, 9 + of_rows)
    membership = {"rows": None, "prompts": kinds, "both": both, "across": of_rows}[groups]
    units = errors.Groups(np.arange(_N) if membership is None else membership, groups, _N)
    leaving = units.leaving(pairs)
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
        assert_close(score, np.float32(np.sqrt(2)))


@pytest.mark.parametrize("weights", [None, np.arange(600) % 5])
def test_only_the_outputs_are_estimated_where_blocks_are_exact(weights):
    prompts = np.repeat(np.arange(300), 2)
    outputs = np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
    pairs = cv.Pairs(outputs, prompts, kernel=cv.Gaussian(0.3), weights=weights)
    estimated = cv.decompose(pairs, method=cv.Stored(jax.random.key(0)))
    assert estimated.method == "stored"
    errors = estimated.estimation.standard_errors
    assert errors.conditional == 0 < errors.vendi
    assert_close(estimated.conditional, cv.decompose(pairs).conditional)
    exact = computation.compute_sloped(pairs, Entropy(), cv.Exact()).rows
    sloped = computation.compute_sloped(pairs, Entropy(), cv.Stored(jax.random.key(0)))
    np.testing.assert_allclose(sloped.rows.joint, exact.joint, atol=1e-3)
