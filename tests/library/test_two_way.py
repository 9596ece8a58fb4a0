"""Errors of answers that share a seed with answers to other prompts."""

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.statistics.influences import Error, TwoWayError

PROMPTS, SEEDS = 12, 8
EXACT = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator(), "orders": [2]}


def answers(rng):
    """A seed has a style, which a part of its answers to all prompts shows, `[prompts, seeds]`."""
    own, style = rng.integers(4, size=(PROMPTS, SEEDS)), rng.integers(9, 12, size=SEEDS)
    return np.where(rng.random((PROMPTS, SEEDS)) < 0.5, style, own)


def by_hand(drawn):
    """The conditional similarity and its error over prompts and seeds."""
    equal = (drawn[:, :, None] == drawn[:, None]).sum(axis=2) - 1
    means = equal / (SEEDS - 1)
    similar = means.mean(axis=1)
    moved = (similar[:, None] - similar.mean() + 2 * (means - similar[:, None])) / drawn.size
    parts = moved.sum(axis=1), moved.sum(axis=0), moved.ravel()
    prompts, seeds, cells = (p.size / (p.size - 1) * np.sum(p**2) for p in parts)
    return similar.mean(), np.sqrt(max(prompts + seeds - cells, prompts, seeds))


def test_errors_over_prompts_and_seeds_are_those_by_hand():
    drawn = answers(np.random.default_rng(0))
    seed = np.tile(np.arange(SEEDS), PROMPTS)
    prompt = np.repeat(np.arange(PROMPTS), SEEDS)
    found = cv.evaluate(drawn.ravel(), prompt, groups=seed, **EXACT)
    population = found.order(2).population
    similarity, error = by_hand(drawn)
    assert population.values.conditional == pytest.approx(1 / similarity, rel=1e-5)
    received = population.standard_errors
    assert received.conditional == pytest.approx(error / similarity**2, rel=1e-4)
    assert np.isnan(received.vendi) and np.isnan(received.information)
    assert "over other prompts and other labels" in found.details()
    one_way = cv.evaluate(drawn.ravel(), prompt, **EXACT).order(2).population
    low, high = population.intervals.conditional
    least, most = one_way.intervals.conditional
    assert low < least < most < high


def part(influences):
    return Error(2.0, np.array([influences]), freedom=len(influences) - 1)


def two_way(prompts, labels, cells):
    parts = {"labels": part(labels), "cells": part(cells)}
    return TwoWayError(2.0, np.array([prompts]), freedom=len(prompts) - 1, **parts)


def test_the_variance_counts_what_both_share_once_and_is_at_least_the_larger():
    assert two_way([3.0, -3.0], [2.0, -2.0], [1.0, -1.0]).standard_error == pytest.approx(12**0.5)
    assert two_way([3.0, -3.0], [2.0, -2.0], [4.0, -4.0]).standard_error == pytest.approx(3)


def test_what_two_models_share_by_prompt_and_by_seed_cancels():
    one = two_way([3.0, -3.0], [2.0, -2.0], [1.0, -1.0])
    assert one.correlation(one, matched=True) == pytest.approx(1)
    assert one.covariance(one) == pytest.approx(9 + 4 - 1)
    assert one.correlation(one, matched=False) == 0


def test_seeds_of_two_models_are_tested_together():
    rng = np.random.default_rng(1)
    prompt, seed = np.repeat(np.arange(PROMPTS), SEEDS), np.tile(np.arange(SEEDS), PROMPTS)
    models = {"a": answers(rng).ravel(), "b": rng.integers(9, 12, PROMPTS * SEEDS)}
    found = cv.compare(models, prompt, groups=seed, profile=False, **EXACT)
    difference = found.ranking("conditional", 2).difference("a", "b")
    assert difference.reason is None and 0 < difference.p_value <= 1
    assert "split the answers" in found.ranking("vendi", 2).difference("a", "b").reason
