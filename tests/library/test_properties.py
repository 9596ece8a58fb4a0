"""What holds for all data, sought by hypothesis in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import assert_close

import condvendi_jax as cv

pytestmark = pytest.mark.usefixtures("module_in_x64")

N = 10
ORDERS = (0.5, 1, 2, np.inf)
# Rounding of H, in nats, where an inequality is attained with equality: below order 1 a zero
# eigenvalue of rounding's size counts with its power.
SLACK = 1e-6

coordinates = st.floats(-3, 3, width=16)
outputs = hnp.arrays(np.float64, (N, 3), elements=coordinates)
prompts = hnp.arrays(np.float64, (N, 2), elements=coordinates)
bandwidths = st.sampled_from([0.2, 0.7, 2.0])
orders = st.sampled_from(ORDERS)
quick = settings(max_examples=20, deadline=None, derandomize=True, database=None)


@functools.partial(jax.jit, static_argnames=("order", "truncation"))
def _entropies(x, t, bandwidth, *, order=1, truncation=None):
    """H(X), H(T), H(X, T) as an array."""
    kernels = {"output_kernel": cv.Gaussian(bandwidth), "prompt_kernel": cv.Gaussian(bandwidth)}
    result = cv.decompose(x, t, **kernels, order=order, truncation=truncation)
    return jnp.stack([result.entropy_outputs, result.entropy_prompts, result.entropy_joint])


@quick
@given(outputs, prompts, bandwidths, orders, st.integers(0, 100), st.floats(0.01, 100))
def test_symmetries_change_nothing(x, t, bandwidth, order, seed, scale):
    """The order of rows, rotations and translations, and the unit of points and bandwidth."""
    rng = np.random.default_rng(seed)
    rows, (rotation, _) = rng.permutation(N), np.linalg.qr(rng.normal(size=(3, 3)))
    expected = _entropies(x, t, bandwidth, order=order)
    for changed in (
        (x[rows], t[rows], bandwidth),
        (x @ rotation + rng.normal(size=3), t - 7, bandwidth),
        (scale * x, scale * t, scale * bandwidth),
    ):
        np.testing.assert_allclose(_entropies(*changed, order=order), expected, atol=SLACK)


@quick
@given(outputs, prompts, bandwidths, orders)
def test_pairs_are_at_least_as_diverse_as_outputs_or_prompts(x, t, bandwidth, order):
    """H(X|T) >= 0: K_X o K_T mixes conjugates of K_T, and entropies are Schur-concave."""
    h_x, h_t, h_joint = _entropies(x, t, bandwidth, order=order)
    assert 0 <= max(h_x, h_t) <= h_joint + SLACK
    assert h_joint <= np.log(N) + SLACK
    if order == 1:
        assert h_x + h_t >= h_joint - SLACK


def test_truncated_conditional_entropy_may_be_negative():
    """The joint keeps (3, 3, 1) / 10 and shares out 3/10; prompts (3, 3, 3) / 10 and 1/10."""
    prompts = np.repeat(np.arange(4.0), [3, 3, 3, 1])[:, None]
    outputs = np.array([0.0] * 6 + [0, 1, 2, 0])[:, None]
    h_t, h_joint = _entropies(outputs, prompts, 0.05, truncation=3)[1:]
    assert_close(h_t, np.log(3))
    assert_close(h_joint, -0.8 * np.log(0.4) - 0.2 * np.log(0.2))
    assert h_joint < h_t


@quick
@given(outputs, prompts, bandwidths)
def test_entropy_does_not_increase_with_the_order(x, t, bandwidth):
    curves = np.stack([_entropies(x, t, bandwidth, order=order) for order in ORDERS])
    assert (np.diff(curves, axis=0) <= SLACK).all()


@quick
@given(outputs, prompts, bandwidths)
def test_truncation_bounds_the_score_and_more_eigenvalues_raise_it(x, t, bandwidth):
    """exp H^(t) lies in [1, t] and does not decrease with t, up to H itself at t = n."""
    cuts = (1, 5, N)
    curves = np.stack([_entropies(x, t, bandwidth, truncation=cut) for cut in cuts])
    assert (curves <= np.log(cuts)[:, None] + SLACK).all()
    assert (np.diff(curves, axis=0) >= -SLACK).all()
    np.testing.assert_allclose(curves[0], 0, atol=SLACK)
    np.testing.assert_allclose(curves[-1], _entropies(x, t, bandwidth), atol=SLACK)
