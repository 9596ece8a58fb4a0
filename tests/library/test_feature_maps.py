"""Finite features of kernels: FKEA's scores, the kernels they stand for, and sums over rows."""

import jax
import jax.numpy as jnp
import numpy as np
from oracles import assert_close, draw_pairs, gaussian_gram, renyi

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.spectra import approximate

KEY = jax.random.key(3)
KERNELS = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(2.0)}
ALL = ("outputs", "prompts", "joint")
N = 60


def points_of(dtype=np.float64, n=N, kernels=KERNELS):
    return Pairs(*draw_pairs(n, dtype=dtype), **kernels)


def fkea(points, frequencies):
    """Eigenvalues of the mean outer product of (cos w^T x, sin w^T x) / sqrt(count)."""
    angles = np.asarray(points, np.float64) @ np.asarray(frequencies, np.float64).T
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(angles.shape[1])
    return np.clip(np.linalg.eigvalsh(waves.T @ waves / len(angles)), 0, None)


def features(points, *, key=KEY, count=64):
    drawn = approximate.draw_frequencies(points, key=key, count=count)
    return approximate.fourier_map(points, drawn, ALL)(points.arrays)


def test_scores_of_fourier_features_are_those_of_fkea(dtype):
    """Given the same frequencies; of the pairs, whose points are side by side, too."""
    outputs, prompts = draw_pairs(N, dtype=dtype)
    points = points_of(dtype)
    w_x, w_t = approximate.draw_frequencies(points, key=KEY, count=16)
    expected = cv.entropies.PerTerm(
        fkea(outputs, w_x),
        fkea(prompts, w_t),
        fkea(np.concatenate([outputs, prompts], axis=1), np.concatenate([w_x, w_t], axis=1)),
    )
    covariances = approximate.covariances(points, (w_x, w_t), ALL)
    images = features(points, count=16)
    for image, covariance, values in zip(images, covariances, expected, strict=True):
        gram = cv.grams.FeatureGram(image)  # Of unit norm, or refused.
        assert gram.features.shape == (N, 32)
        for order in (1, 2):
            assert_close(cv.renyi(order)(gram), renyi(values, order), loosened=3)
        found = np.linalg.eigvalsh(np.asarray(covariance, np.float64))
        np.testing.assert_allclose(found, values, atol=30 * float(jnp.finfo(dtype).eps))


def test_the_mean_over_frequencies_is_the_kernel():
    """To 5 of its standard deviations, at most 1 / sqrt(2 count); of the pairs, the product."""
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    count = 20_000
    k_x, k_t = gaussian_gram(outputs, 1.0), gaussian_gram(prompts, 2.0)
    images = features(points_of(np.float32), count=count)
    for image, kernel in zip(images, (k_x, k_t, k_x * k_t), strict=True):
        z = np.asarray(image, np.float64)
        np.testing.assert_allclose(z @ z.T, kernel, atol=5 / np.sqrt(2 * count))


def test_far_points_keep_the_digits_of_their_angles():
    """A shift turns all features alike; float32 angles of it would have few digits."""
    near = draw_pairs(N, dtype=np.float32)[0]
    far = jnp.asarray(near) + 4096.0

    def of_outputs(outputs):
        (image,) = features(Pairs(outputs, output_kernel=cv.Gaussian(1.0)))
        return image

    of_near = of_outputs(near)
    scores = [cv.von_neumann(cv.grams.FeatureGram(z)) for z in (of_outputs(far), of_near)]
    np.testing.assert_allclose(*scores, rtol=2e-3)
    # A single far row changes nothing between the others.
    for row in (1e12, 3e38):
        with_far = of_outputs(far.at[0].set(row))
        grams = [z[1:] @ z[1:].T for z in (of_near, with_far)]
        np.testing.assert_allclose(grams[1], grams[0], atol=2e-2)
        np.testing.assert_allclose(np.linalg.norm(with_far[0]), 1, rtol=1e-4)


def test_sums_over_blocks_of_rows_are_those_over_all(monkeypatch, x64):
    """The last block is not full, and its rows count once; only what is wanted is summed."""
    points = points_of(n=103)
    drawn = approximate.draw_frequencies(points, key=KEY, count=8)
    images = approximate.fourier_map(points, drawn, ALL)(points.arrays)
    expected = [np.asarray(z).T @ np.asarray(z) / 103 for z in images]
    monkeypatch.setattr(approximate, "_ENTRIES", 20 * images[0].shape[1])
    sums = approximate.covariances
    sums.clear_cache()
    for found, one in zip(sums(points, drawn, ALL), expected, strict=True):
        np.testing.assert_allclose(found, one, atol=1e-14)
    (joint,) = sums(points, drawn, ("joint",))
    np.testing.assert_allclose(joint, expected[2], atol=1e-14)
    sums.clear_cache()


def test_the_key_draws_the_frequencies():
    points = points_of(np.float32)
    one, same, other = (features(points, key=jax.random.key(k), count=8)[0] for k in (0, 0, 1))
    assert (one == same).all() and not np.allclose(one, other)
