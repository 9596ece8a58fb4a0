"""The scores against the papers' definitions, peers and examples worked by hand."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import precision
import pytest
from canonical import FEW_PROMPTS, OUTPUTS, PROMPTS, N, kernels, named
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import (
    assert_close,
    cosine_gram,
    draw_pairs,
    entropy,
    gaussian_gram,
    gaussian_grams,
    scores,
)

import condvendi_jax as cv

BANDWIDTHS = (0.4, 0.3)
# A kernel of whole numbers under which different points are unlike: exp(-50) or less.
DISCRETE = 0.1


@jax.tree_util.register_static
class Laplace(cv.Kernel):
    """A user's own kernel: the function of two points and nothing else."""

    def __call__(self, x, y):
        return jnp.exp(-jnp.sum(jnp.abs(x - y)))


def laplace_gram(points):
    return np.exp(-np.abs(points[:, None] - points[None]).sum(axis=-1))


# By name: the kernels, in the precision of the test, and the Grams.
KERNELS = {
    "gaussian": (lambda: kernels(BANDWIDTHS), lambda *p: gaussian_grams(p, BANDWIDTHS)),
    "cosine and gaussian": (
        lambda: named((cv.Cosine(), cv.Gaussian(0.3))),
        lambda x, t: (cosine_gram(x), gaussian_gram(t, 0.3)),
    ),
    "of two points": (lambda: named((Laplace(), Laplace())), lambda *p: map(laplace_gram, p)),
}
ORDERS = [(0.5, None), (1, None), (1, 5), (2, None), (np.inf, 7)]


@pytest.mark.parametrize(
    ("name", "order", "truncation"),
    [("gaussian", *given) for given in ORDERS]
    + [(name, order, None) for name in [*KERNELS][1:] for order in (1, 2)],
)
def test_decomposition_is_that_of_the_oracle(name, order, truncation, dtype):
    pairs, (made, grams) = draw_pairs(N, dtype=dtype), KERNELS[name]
    result = cv.decompose(*pairs, **made(), order=order, truncation=truncation)
    expected = scores(*grams(*pairs), order=order, truncation=truncation)
    for score, got in result.scores._asdict().items():
        assert_close(got, expected[score])
    recorded = (result.order, result.truncation, result.n, result.dtype)
    assert recorded == (order, truncation, N, dtype.name)


coordinates = st.floats(-3, 3, width=16)
outputs = hnp.arrays(np.float64, (10, 3), elements=coordinates)
prompts = hnp.arrays(np.float64, (10, 2), elements=coordinates)
widths = st.sampled_from([0.2, 0.7, 2.0])
cuts = st.sampled_from([(0.5, None), (1, None), (2, None), (np.inf, None), (1, 1), (1, 5), (1, 10)])


@functools.partial(jax.jit, static_argnames=("order", "truncation"))
def _decomposed(x, t, width, *, order, truncation):
    return cv.decompose(x, t, **kernels((width, width)), order=order, truncation=truncation)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(outputs, prompts, widths, cuts, st.sampled_from([0.01, 1, 100]), st.sampled_from([0, 7]))
def test_entropies_of_any_data_are_those_of_the_oracle(x, t, width, cut, scale, move):
    """Also of rows that are equal or equidistant, in any unit and far from the origin."""
    order, truncation = cut
    with precision.x64(True):
        points = scale * (x + move), scale * (t - move)
        found = _decomposed(*points, scale * width, order=order, truncation=truncation).entropies
    gram_x, gram_t = gaussian_grams((x, t), (width, width))
    options = {"order": order, "truncation": truncation}
    expected = [entropy(gram, **options) for gram in (gram_x, gram_t, gram_x * gram_t)]
    # Below order 1 a zero eigenvalue of the size of rounding counts with its power.
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_truncated_conditional_entropy_may_be_negative():
    """The joint keeps (3, 3, 1) / 10 and shares out 3/10; prompts (3, 3, 3) / 10 and 1/10."""
    outputs, prompts = np.array([0] * 7 + [1, 2, 0]), np.repeat(np.arange(4), [3, 3, 3, 1])
    result = cv.decompose(outputs, prompts, truncation=3, **named([cv.Indicator()] * 2))
    assert_close(result.entropy_prompts, np.log(3))
    assert_close(result.entropy_joint, -0.8 * np.log(0.4) - 0.2 * np.log(0.2))


def test_a_kernel_of_two_points_is_tiled():
    points = jnp.asarray(OUTPUTS)
    tiled = cv.grams.TiledGram.from_points(Laplace(), points)
    assert_close(tiled.squared_frobenius_norm(), np.mean(laplace_gram(OUTPUTS) ** 2))


def test_every_score_is_a_part_of_the_decomposition(x64):
    pairs, both, alone = draw_pairs(N), kernels(BANDWIDTHS), {"kernel": cv.Gaussian(0.4)}
    options = {"order": 1, "truncation": 6}
    first, second = (cv.decompose(*pairs, **both, **o) for o in (options, {"order": 2}))
    assert_close(cv.vendi(pairs[0], **alone, **options), first.vendi)
    assert_close(cv.conditional_vendi(*pairs, **both, **options), first.conditional)
    assert_close(cv.information_vendi(*pairs, **both, **options), first.information)
    assert_close(cv.rke(pairs[0], **alone), second.vendi)
    assert_close(cv.conditional_rke(*pairs, **both), second.conditional)
    assert_close(cv.information_rke(*pairs, **both), second.information)
    grams = [cv.gram(kernel, points) for kernel, points in zip(both.values(), pairs, strict=True)]
    entropies = [cv.Entropy(2)(gram) for gram in (*grams, grams[0] * grams[1])]
    assert_close(second.entropies, entropies)


@pytest.mark.filterwarnings("ignore")  # The package reaches into namespaces that SciPy deprecates.
@pytest.mark.parametrize("order", [0.5, 1, 2, np.inf])
def test_vendi_is_that_of_the_vendi_score_package(order, x64):
    vendi = pytest.importorskip("vendi_score.vendi")
    points = draw_pairs(N)[0]
    theirs = vendi.score_K(gaussian_gram(points, 0.4), q="inf" if np.isinf(order) else order)
    assert_close(cv.vendi(points, kernel=cv.Gaussian(0.4), order=order), theirs)


def test_rke_is_that_of_the_rke_score_package(dtype):
    rke_score = pytest.importorskip("rke_score").RKE(kernel_bandwidth=[0.4])
    points = draw_pairs(N, dtype=dtype)[0]
    theirs = rke_score.compute_rke_mc_frobenius_norm(points.astype(np.float64))
    assert_close(cv.rke(points, kernel=cv.Gaussian(0.4)), 1 / theirs[0.4])


@pytest.mark.parametrize("order", [0.5, 1, 2, np.inf])
def test_modes_within_prompts_are_counted_by_hand(order, x64):
    """Two prompts, of three equally frequent outputs each: 6 = 3 within a prompt * 2 by prompts."""
    prompts = np.repeat(np.arange(2.0), 6)[:, None]
    outputs = np.tile(np.arange(3.0), 4)[:, None] + 3 * prompts
    result = cv.decompose(outputs, prompts, **kernels((DISCRETE, DISCRETE)), order=order)
    # Distances between equal points are rounding's, and count by their square root at order 0.5.
    loosened = 1 if order >= 1 else 1e5
    assert_close(np.stack(result.scores), [6, 3, 2], loosened=loosened)


def test_classes_of_answers_give_semantic_entropy(x64):
    """Shannon entropies by hand: classes of 2, 1 and 3 answers; of the first three, 2 and 1."""
    classes, clarification = np.array([0, 0, 1, 2, 2, 2]), np.repeat([0, 1], 3)
    equality = named((cv.Indicator(), cv.Indicator()))
    found = cv.decompose(classes, clarification, **equality, order=1).log_scores
    total = np.log(6) - (2 * np.log(2) + 3 * np.log(3)) / 6
    epistemic = (np.log(3) - 2 / 3 * np.log(2)) / 2
    np.testing.assert_allclose(found, [total, epistemic, total - epistemic], atol=1e-9)


def test_information_at_order_two_falls_below_one_on_a_star():
    """Of pairs of (0, j) and (j, 0), 1/40 agree in both coordinates and 1/4 + 1/80 in either."""
    star = np.concatenate([np.zeros(20), np.arange(1, 21)])[:, None].astype(np.float32)
    pairs, discrete = (star, np.roll(star, 20)), kernels((DISCRETE, DISCRETE))
    assert_close(cv.information_rke(*pairs, **discrete), 80**2 / 40 / 21**2)
    assert float(cv.information_vendi(*pairs, **discrete)) >= 1


PAIRED = (cv.decompose, cv.conditional_vendi, cv.information_vendi)
PAIRED += (cv.conditional_rke, cv.information_rke)


@pytest.mark.parametrize("function", [*PAIRED, cv.vendi, cv.rke], ids=lambda f: f.__name__)
def test_every_argument_changes_the_score(function):
    others = draw_pairs(N, seed=1, dtype=np.float32)
    default = {"outputs": OUTPUTS, "kernel": cv.Gaussian(0.4)}
    if function in PAIRED:
        default = {"outputs": OUTPUTS, "prompts": PROMPTS, **kernels(BANDWIDTHS)}
    changes = dict.fromkeys(("output_kernel", "prompt_kernel", "kernel"), cv.Gaussian(0.8))
    changes |= {"outputs": others[0], "prompts": others[1]}
    changes |= {"order": 3, "truncation": 4, "unbiased": True}

    def evaluate(**arguments):
        return np.array(jax.tree.leaves(function(**arguments)), np.float64)

    # These leave the scores of few points alone; test_methods.py and test_sharding.py are of them.
    elsewhere = {"pairs", "method"}
    own = set(inspect.signature(inspect.unwrap(function)).parameters)
    for name in (set(default) | own) - elsewhere:
        order = {"order": 2} if name == "unbiased" and function is cv.decompose else {}
        reference = evaluate(**default, **order)
        changed = evaluate(**(default | {name: changes[name]}), **order)
        assert np.abs(changed / reference - 1).max() > 1e-3, name


@pytest.mark.parametrize("order", [1, 2])
def test_scores_map_over_bandwidths_and_sample_sets_and_compile(order, x64):
    batch = [np.stack(p) for p in zip(*(draw_pairs(N, seed=s) for s in range(3)), strict=True)]
    grid = np.array([0.3, 0.6, 1.2])

    def score(outputs, prompts, bandwidth):
        result = cv.decompose(outputs, prompts, **kernels((bandwidth, 0.3)), order=order)
        assert isinstance(result, cv.scores.Decomposition)
        return result.information

    separate = [float(score(x, t, s)) for x, t, s in zip(*batch, grid, strict=True)]
    assert_close(jax.jit(jax.vmap(score))(*batch, grid), separate)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Warped(cv.Kernel):
    """A kernel with a bandwidth and other parameters."""

    bandwidth: float
    warp: Callable = lambda x: x
    name: str = ""

    def __call__(self, x, y):
        return jnp.exp(-jnp.sum(jnp.abs(self.warp(x) - self.warp(y))) / self.bandwidth)


def test_a_kernel_of_your_own_is_reported_by_its_name_and_bandwidth():
    """Never by an address in memory, and in one short line."""
    result = cv.evaluate(OUTPUTS, PROMPTS, output_kernel=Laplace(), prompt_kernel=Warped(1 / 3))
    assert repr(Laplace()) == "Laplace()"
    assert result.as_dict()["bandwidths"]["outputs"]["rule"] == "given: Laplace()"
    width, words, _ = result.bandwidths["prompts"]
    assert width == 1 / 3
    assert words.startswith("given: Warped(bandwidth=0.333333, warp=<function Warped.<lambda>>, ")
    assert "prompts: bandwidth 0.3333, given: Warped(bandwidth=0.333333, " in str(result)
    paragraph = cv.report.latex(result, long=True).paragraph
    assert "The kernel of the prompts is Warped(bandwidth=0.333333, " in paragraph
    many = Warped(1.0, name="many words\n" * 20)
    pairs = cv.Pairs(OUTPUTS, PROMPTS, output_kernel=many, prompt_kernel=cv.Gaussian(0.5))
    assert pairs.bandwidths["prompts"] == (0.5, "given", None)
    words = pairs.bandwidths["outputs"].rule
    assert "\n" not in words
    assert 100 < len(words) <= len("given: ") + 120
    assert words.endswith(" ...")


@pytest.mark.parametrize("bandwidth", [None, "wide", np.ones(3), math.nan])
def test_only_a_number_is_a_known_bandwidth(bandwidth):
    known = Warped(bandwidth).known_bandwidth
    assert known is None or math.isnan(known)
    assert jax.jit(lambda width: 0 * width if Warped(width).known_bandwidth is None else 1)(2) == 0


def test_the_bandwidth_of_another_kernel_makes_no_gaussian():
    chosen = cv.evaluate(OUTPUTS, output_kernel=Warped(1.0)).bandwidths["outputs"]
    with pytest.raises(ValueError, match=r"output_kernel: expected a kernel or .* pass the kernel"):
        cv.evaluate(OUTPUTS, output_kernel=chosen)


@jax.tree_util.register_static
class Labels(cv.Kernel):
    compares_equality = True

    def __call__(self, x, y):
        return jnp.where(jnp.all(x == y), 1.0, 0.0)


def test_a_kernel_that_compares_equality_is_like_the_indicator():
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [2]}
    result, expected = (
        cv.evaluate(OUTPUTS, FEW_PROMPTS, prompt_kernel=kernel, **options)
        for kernel in (Labels(), cv.Indicator())
    )
    assert result.answers == expected.answers == (6, 6)
    population, indicator = result.orders[0].population, expected.orders[0].population
    assert_close(population.given[:2], indicator.given[:2])
    assert_close(population.fixed_error, indicator.fixed_error)
    similar = cv.evaluate(OUTPUTS, FEW_PROMPTS, prompt_kernel=cv.Gaussian(0.5), **options)
    assert similar.answers is None
    assert similar.orders[0].population.given is None
    assert similar.orders[0].population.fixed_error is None
    labels = np.repeat(np.arange(8), 6)
    assert cv.evaluate(OUTPUTS, labels, prompt_kernel=Labels(), **options).answers == (6, 6)
