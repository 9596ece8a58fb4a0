"""Standard errors: formulas, agreement of the one-pass form; convergence curves."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import OUTPUTS, PROMPTS, N, errors_at
from oracles import assert_close, draw_pairs

import condvendi_jax as cv
from condvendi_jax.base import checks
from condvendi_jax.inference import standard_error
from condvendi_jax.inference.evaluations import Keys
from experiments.lab.curves import convergence_curve

KERNELS = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.6)}
KEY = jax.random.key(0)


def _three(outputs, prompts, **options):
    result = cv.decompose(outputs, prompts, **KERNELS, **options)
    return result.vendi, result.conditional, result.information


def test_unequal_groups_follow_the_weighted_formula(x64):
    """Busing, Meijer and van der Leeden (1999), written out for three groups of 1, 2 and 5."""
    values = np.random.default_rng(0).normal(size=(8, 1))
    labels = np.array([0, 1, 1, 2, 2, 2, 2, 2])
    whole, g, n = np.exp(values.mean()), 3, 8
    deleted = np.array([np.exp(values[labels != j].mean()) for j in range(g)])
    m = np.bincount(labels)
    centre = g * whole - np.sum((1 - m / n) * deleted)
    pseudo = n / m * whole - (n / m - 1) * deleted
    expected = np.sqrt(np.mean((pseudo - centre) ** 2 / (n / m - 1)))
    assert_close(standard_error(lambda v: jnp.exp(jnp.mean(v)), values, groups=labels), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({"order": 2}, 5),
        ({"order": 2}, np.arange(N) % 6),
        ({"order": 1, "truncation": 5}, 4),
        ({"order": 0.5}, np.arange(N) % 6),
    ],
)
def test_errors_of_the_decomposition_are_the_generic_ones(options, groups, x64):
    """Those at order 2 come out of one pass."""
    pairs = draw_pairs(N)
    score = functools.partial(_three, **options)
    expected = standard_error(score, *pairs, key=Keys(0).groups, groups=groups)
    got = errors_at(*pairs, **KERNELS, **options, groups=groups)
    assert_close(np.stack(got), expected)


def test_a_decomposition_is_a_pytree_of_scalars():
    """As the docstring offers; its structure holds n, which differs once rows are deleted."""
    pairs = OUTPUTS, PROMPTS
    decomposed = functools.partial(cv.decompose, **KERNELS, order=2)

    def entropy(outputs, prompts):
        return decomposed(outputs, prompts).entropy_joint

    got = standard_error(decomposed, *pairs, key=KEY, groups=4)
    assert_close(got.entropy_joint, standard_error(entropy, *pairs, key=KEY, groups=4))


def test_labels_need_no_key_and_may_be_words():
    numbers = np.arange(N) % 3
    words = np.array(["blue", "red", "green"])[numbers]
    errors = functools.partial(errors_at, OUTPUTS, PROMPTS, **KERNELS, order=2)
    one, two = errors(groups=numbers), errors(groups=words)
    assert_close(np.stack(one), np.array(two), loosened=10)


def test_a_standard_error_of_one_row_is_nan_with_a_warning():
    pairs = draw_pairs(1, dtype=np.float32)
    with pytest.warns(UserWarning, match="NaN for n = 1"):
        assert np.isnan(standard_error(jnp.mean, pairs[0], key=KEY))
    for order in (1, 2):
        with pytest.warns(UserWarning, match="NaN for n = 1"):
            errors = errors_at(*pairs, **KERNELS, order=order)
        assert np.isnan(np.stack(errors)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 1}, "groups: expected an integer of at least 2, received 1"),
        ({"groups": 2.5}, "groups: expected"),
        ({"groups": 13}, "groups: expected at most n = 12, received 13"),
        ({"groups": np.arange(11)}, "groups: expected 12 labels, one for each row, received shape"),
        ({"groups": np.zeros(12)}, "groups: expected at least two distinct labels"),
        ({"groups": [*np.arange(11.0), np.nan]}, "groups: received NaN in row 11"),
        ({"key": None}, "key: expected a random key"),
    ],
)
def test_bad_groups_are_refused_before_the_score_is_evaluated(options, message):
    def score(_):
        pytest.fail("evaluated")

    outputs = np.ones((12, 1), np.float32)
    with pytest.raises(ValueError, match=message):
        standard_error(score, outputs, **({"key": KEY, "groups": 4} | options))
    # NumPy would make the number 1 and the string "1" one label.
    with pytest.raises(TypeError, match="groups: expected all numbers or all strings"):
        standard_error(score, outputs, groups=[1, "1", *range(2, 12)])


def test_errors_warn_of_a_truncation_beyond_n_and_not_of_one_beyond_the_deletions():
    options = {**KERNELS, "groups": 4}
    errors_at(OUTPUTS, PROMPTS, **options, truncation=N - 1)
    with pytest.warns(UserWarning, match="truncation 49 exceeds n = 48"):
        errors_at(OUTPUTS, PROMPTS, **options, truncation=N + 1)


@pytest.mark.slow
def test_convergence_curve_is_that_of_separate_decompositions(x64):
    pairs = draw_pairs(N)
    entropies = (cv.von_neumann, cv.renyi(2), cv.truncated(15))
    sizes = (1, 20)
    curves = convergence_curve(*pairs, sizes, **KERNELS, entropies=entropies)
    for entropy, curve in zip(entropies, curves, strict=True):
        assert (curve.sizes, curve.dtype) == (sizes, "float64")
        assert (curve.order, curve.truncation) == (entropy.order, entropy.truncation)
        for k, size in enumerate(sizes):
            truncation = entropy.truncation and min(entropy.truncation, size)
            rows = [p[:size] for p in pairs]
            separate = _three(*rows, order=entropy.order, truncation=truncation)
            got = [curve.vendi[k], curve.conditional[k], curve.information[k]]
            assert_close(np.stack(got), separate)
    assert [curve.order for curve in convergence_curve(*pairs, sizes, **KERNELS)] == [1, 2]
    assert [curve.unbiased is None for curve in curves] == [True, False, True]
    unbiased = cv.decompose(*(p[:20] for p in pairs), **KERNELS, order=2, unbiased=True)
    assert_close(np.stack(curves[1].unbiased.scores)[:, 1], np.stack(unbiased.scores))
    assert np.isnan(curves[1].unbiased.conditional[0])


@pytest.mark.parametrize("sizes", [(), (0, 5), (5, 5), (6, 5), (5, 13), (2.5,)])
def test_sizes_ascend_within_the_data(sizes):
    pairs = draw_pairs(12, dtype=np.float32)
    with pytest.raises(ValueError, match="sizes: expected"):
        convergence_curve(*pairs, sizes, **KERNELS)


_KERNEL = {"output_kernel": cv.Gaussian(1.0)}
_UNTRACEABLE = {
    "evaluate": lambda x: cv.evaluate(x, **_KERNEL, orders=[2]).n,
    "compare": lambda x: cv.compare({"a": x, "b": x}, **_KERNEL, orders=[2]).groups,
    "bandwidth_by_rule": lambda x: cv.bandwidth_by_rule(x, "variance", key=KEY).bandwidth,
    "standard_error": lambda x: standard_error(jnp.mean, x, key=KEY),
    "contributions": lambda x: cv.contributions(x, **_KERNEL).influences.vendi,
}


@pytest.mark.parametrize("name", _UNTRACEABLE)
def test_what_depends_on_numbers_says_so_inside_jit(name):
    with pytest.raises(TypeError, match=f"{name}: cannot run inside jax.jit, jax.vmap or jax.grad"):
        jax.jit(_UNTRACEABLE[name])(OUTPUTS)


def test_labels_that_a_common_dtype_would_make_equal_stay_apart():
    kinds, numbers = checks.check_labels([2**53, 2**53 + 1, 0.5, np.int8(3)], 4)
    assert len(kinds) == 4
    assert numbers.tolist() == [2, 3, 0, 1]
    dates = np.array(["2026-01-02", "2026-01-01", "2026-01-02"], "M8[D]")
    assert checks.check_labels(dates, 3)[1].tolist() == [1, 0, 1]


def test_an_error_of_the_callers_own_function_is_left_alone():
    def score(points):
        return jax.jit(lambda z: 1.0 if z.sum() > 0 else 2.0)(points)

    with pytest.raises(jax.errors.TracerBoolConversionError):
        standard_error(score, np.ones((12, 2), np.float32), key=KEY, groups=4)
