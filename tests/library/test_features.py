"""The D x D matrix of finitely many features, against the n x n one."""

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close

from condvendi_jax.grams import _features as features

N, D = 20, 4


@pytest.fixture
def unit_rows():
    rows = np.random.default_rng(0).normal(size=(N, D))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_small_matrix_says_what_the_large_one_says(unit_rows, dtype):
    z = jnp.asarray(unit_rows, dtype)
    gram = unit_rows @ unit_rows.T / N
    covariance = features.outer_products(z) / N
    assert_close(features.squared_norm(covariance), np.sum(gram**2))
    vectors = np.random.default_rng(1).normal(size=(N, 3))
    found = features.matvec(z, jnp.asarray(vectors, dtype)) / N
    np.testing.assert_allclose(found, gram @ vectors, atol=20 * jnp.finfo(dtype).eps)
    values = np.linalg.eigvalsh(gram)[::-1]
    for length in (D, 7, N):
        found = features.eigenvalues(covariance, length)
        assert found.shape == (length,)
        np.testing.assert_allclose(found, values[:length], atol=20 * jnp.finfo(dtype).eps)


def test_rows_of_zeros_add_nothing(unit_rows, x64):
    longer = np.concatenate([unit_rows, np.zeros((5, D))])
    found = features.outer_products(jnp.asarray(longer))
    assert_close(found, unit_rows.T @ unit_rows)
