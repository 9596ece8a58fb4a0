"""Gradients: against the papers' formulas and finite differences, and where they could fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import N, kernels, slow
from oracles import (
    assert_close,
    conditional_rke_gradient,
    directional_difference,
    draw_pairs,
    truncated_conditional_gradient,
)

import condvendi_jax as cv

BANDWIDTHS = (0.8, 0.6)


@pytest.mark.parametrize("truncation", [4, N])
def test_truncated_gradient_is_that_of_the_paper(truncation, x64):
    """CV eq. 24-27, for every row in turn."""
    pairs = draw_pairs(N)
    score = functools.partial(cv.conditional_vendi, **kernels(), truncation=truncation)
    expected = truncated_conditional_gradient(*pairs, BANDWIDTHS, truncation)
    assert_close(jax.grad(score)(*pairs), expected)


@pytest.mark.parametrize("gram", [cv.gram, cv.grams.TiledGram.from_points])
def test_conditional_rke_gradient_is_that_of_the_paper(gram, x64):
    """The formula below CV eq. 27, stored and streamed."""
    outputs, prompts = draw_pairs(N)

    def score(outputs):
        gaussians = map(cv.Gaussian, BANDWIDTHS)
        x, t = map(gram, gaussians, (outputs, jnp.asarray(prompts)))
        return jnp.exp(cv.Entropy(2)(x * t) - cv.Entropy(2)(t))

    assert_close(jax.grad(score)(outputs), conditional_rke_gradient(outputs, prompts, BANDWIDTHS))


SCORES = {f"order {order}": {"order": order} for order in (0.5, 1, 2, np.inf)}
SCORES["truncated order 2"] = {"order": 2, "truncation": 4}


@pytest.mark.parametrize("name", [slow(n) if n[-1] in "5f" else n for n in SCORES])
def test_gradients_are_finite_differences(name, x64):
    """Along one direction of all arguments; of a sum that no term can drop out of."""

    @jax.jit
    def total(arguments):
        outputs, prompts, *bandwidths = arguments
        result = cv.decompose(outputs, prompts, **kernels(bandwidths), **SCORES[name])
        return result.vendi + result.conditional + 2 * result.information

    point = (*map(jnp.asarray, draw_pairs(N)), jnp.asarray(0.8), jnp.asarray(0.6))
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), point)
    slope = directional_difference(
        lambda s: total(jax.tree.map(lambda p, d: p + s * d, point, direction)), 0.0, 1.0, step=1e-3
    )
    products = jax.tree.map(lambda g, d: np.sum(g * d), jax.grad(total)(point), direction)
    # A fourth-order difference of step 1e-3 is itself right to about 1e-9.
    assert_close(sum(products), float(slope), loosened=1e3)


DEGENERATE = {
    "duplicates": lambda rng: np.repeat(rng.normal(size=(N // 3, 3)), 3, axis=0),
    "identical rows": lambda rng: np.repeat(rng.normal(size=(1, 3)), N, axis=0),
    "equidistant, all eigenvalues tied": lambda rng: np.eye(N),
    "rank one": lambda rng: np.outer(rng.uniform(1, 2, size=N), [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("data", DEGENERATE)
@pytest.mark.parametrize("kernel", [slow(cv.Cosine), lambda: cv.Gaussian(0.5)])
@pytest.mark.filterwarnings("ignore:.*the Gram is numerically")
def test_gradients_are_finite_on_degenerate_data(data, kernel):
    """Zero eigenvalues, ties and distances of zero, in float32."""
    points = jnp.asarray(DEGENERATE[data](np.random.default_rng(0)), jnp.float32)

    @jax.jit
    def gradients(points):
        def of(entropy):
            return jax.grad(lambda p: entropy(cv.gram(kernel(), p)))(points)

        entropies = [cv.Entropy(o) for o in (0.5, 1, 2, np.inf)] + [cv.Entropy(truncation=3)]
        return [of(entropy) for entropy in entropies]

    for gradient in gradients(points):
        assert np.isfinite(gradient).all()


def test_ties_inside_the_truncation_have_the_gradient_of_the_formula(x64):
    """Two pairs of equal clusters: the leading eigenvalues tie, the sum over them is smooth."""
    outputs = np.repeat(np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 9.0]]), 4, axis=0)
    outputs = outputs + np.tile([[0.3, 0], [0, 0.3], [-0.3, 0], [0, -0.3]], (3, 1))
    prompts = np.zeros((12, 1))
    score = functools.partial(cv.conditional_vendi, **kernels(), truncation=3)
    expected = truncated_conditional_gradient(outputs, prompts, BANDWIDTHS, 3)
    assert_close(jax.grad(score)(outputs, prompts), expected)


@pytest.mark.parametrize(
    ("order", "truncation"), [(1, None), (2, None), (2, 7), slow(1, 5), slow(0.5, None)]
)
def test_derivatives_in_forward_mode_are_those_in_reverse_mode(order, truncation, x64):
    outputs, prompts = map(jnp.asarray, draw_pairs(N))
    direction = jnp.asarray(np.random.default_rng(1).normal(size=outputs.shape))

    def score(points):
        options = {"order": order, "truncation": truncation}
        return cv.decompose(points, prompts, **kernels(), **options).conditional

    value, slope = jax.jvp(score, (outputs,), (direction,))
    beside, gradient = jax.value_and_grad(score)(outputs)
    assert_close(np.stack([value, beside]), [score(outputs)] * 2)
    assert_close(slope, np.sum(gradient * direction))
