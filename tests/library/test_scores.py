"""The scores against the papers' definitions, peers and examples worked by hand."""

import dataclasses
import inspect
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import OUTPUTS, PROMPTS, N, kernels
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, gaussian_grams, scores

import condvendi_jax as cv

BANDWIDTHS = (0.4, 0.3)
# A kernel of whole numbers under which different points are unlike: exp(-50) or less.
DISCRETE = 0.1


def _kernels(bandwidths=BANDWIDTHS):
    return kernels(bandwidths)


def _named(result):
    return result.scores._asdict()


@pytest.mark.parametrize(
    ("order", "truncation"), [(0.5, None), (1, None), (1, 5), (2, None), (np.inf, 7)]
)
def test_decomposition_is_that_of_the_oracle(order, truncation, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    result = cv.decompose(*pairs, **_kernels(), order=order, truncation=truncation)
    expected = scores(*gaussian_grams(pairs, BANDWIDTHS), order=order, truncation=truncation)
    for name, got in _named(result).items():
        assert_close(got, expected[name])
    recorded = (result.order, result.truncation, result.n, result.dtype)
    assert recorded == (order, truncation, N, dtype.name)


def test_every_score_is_a_part_of_the_decomposition(x64):
    pairs = draw_pairs(N)
    first = cv.decompose(*pairs, **_kernels(), order=1, truncation=6)
    second = cv.decompose(*pairs, **_kernels(), order=2)
    options = {"order": 1, "truncation": 6}
    assert_close(cv.vendi(pairs[0], kernel=cv.Gaussian(0.4), **options), first.vendi)
    assert_close(cv.conditional_vendi(*pairs, **_kernels(), **options), first.conditional)
    assert_close(cv.information_vendi(*pairs, **_kernels(), **options), first.information)
    assert_close(cv.rke(pairs[0], kernel=cv.Gaussian(0.4)), second.vendi)
    assert_close(cv.conditional_rke(*pairs, **_kernels()), second.conditional)
    assert_close(cv.information_rke(*pairs, **_kernels()), second.information)
    entropies = (second.entropy_outputs, second.entropy_prompts, second.entropy_joint)
    grams = [cv.gram(cv.Gaussian(s), p) for p, s in zip(pairs, BANDWIDTHS, strict=True)]
    for got, gram in zip(entropies, (*grams, grams[0] * grams[1]), strict=True):
        assert_close(got, cv.Entropy(2)(gram))


def test_mixed_kernels_and_the_dual_of_cosine(dtype):
    pairs = draw_pairs(N, dtype=dtype)
    kernels = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Gaussian(0.3)}
    for order in (1, 2):
        expected = scores(cosine_gram(pairs[0]), gaussian_gram(pairs[1], 0.3), order=order)
        for name, got in _named(cv.decompose(*pairs, **kernels, order=order)).items():
            assert_close(got, expected[name])


@pytest.mark.filterwarnings("ignore")  # The package reaches into namespaces that SciPy deprecates.
@pytest.mark.parametrize("order", [0.5, 1, 2, np.inf])
def test_vendi_is_that_of_the_vendi_score_package(order, x64):
    vendi = pytest.importorskip("vendi_score.vendi")
    points = draw_pairs(N)[0]
    theirs = vendi.score_K(gaussian_gram(points, 0.4), q="inf" if np.isinf(order) else order)
    assert_close(cv.vendi(points, kernel=cv.Gaussian(0.4), order=order), theirs)


def test_rke_is_that_of_the_rke_score_package(dtype):
    rke_score = pytest.importorskip("rke_score")
    points = draw_pairs(N, dtype=dtype)[0]
    theirs = rke_score.RKE(kernel_bandwidth=[0.4]).compute_rke_mc_frobenius_norm(
        points.astype(np.float64)
    )
    assert_close(cv.rke(points, kernel=cv.Gaussian(0.4)), 1 / theirs[0.4])


@pytest.mark.parametrize("order", [0.5, 1, 2, np.inf])
def test_modes_within_prompts_are_counted_by_hand(order, x64):
    """Two prompts, of three equally frequent outputs each: 6 = 3 within a prompt * 2 by prompts."""
    prompts = np.repeat(np.arange(2.0), 6)[:, None]
    outputs = np.tile(np.arange(3.0), 4)[:, None] + 3 * prompts
    result = cv.decompose(outputs, prompts, **_kernels((DISCRETE, DISCRETE)), order=order)
    # Distances between equal points are rounding's, and count by their square root at order 0.5.
    loosened = 1 if order >= 1 else 1e5
    assert_close(np.stack(list(_named(result).values())), [6, 3, 2], loosened=loosened)


def test_classes_of_answers_give_semantic_entropy(x64):
    """Shannon entropies by hand: classes of 2, 1 and 3 answers; of the first three, 2 and 1."""
    classes, clarification = np.array([0, 0, 1, 2, 2, 2]), np.repeat([0, 1], 3)
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    found = cv.decompose(classes, clarification, **kernels, order=1).log_scores
    total = np.log(6) - (2 * np.log(2) + 3 * np.log(3)) / 6
    epistemic = (np.log(3) - 2 / 3 * np.log(2)) / 2
    np.testing.assert_allclose(found, [total, epistemic, total - epistemic], atol=1e-9)


def test_information_at_order_two_falls_below_one_on_a_star():
    """Of pairs of (0, j) and (j, 0), 1/40 agree in both coordinates and 1/4 + 1/80 in either."""
    leaves = np.arange(1, 21, dtype=np.float32)
    zeros = np.zeros(20, np.float32)
    outputs = np.concatenate([zeros, leaves])[:, None]
    prompts = np.concatenate([leaves, zeros])[:, None]
    pairs, kernels = (outputs, prompts), _kernels((DISCRETE, DISCRETE))
    assert_close(cv.information_rke(*pairs, **kernels), 80**2 / 40 / 21**2)
    assert float(cv.information_vendi(*pairs, **kernels)) >= 1


PAIRED = (cv.decompose, cv.conditional_vendi, cv.information_vendi)
PAIRED += (cv.conditional_rke, cv.information_rke)


@pytest.mark.parametrize("function", [*PAIRED, cv.vendi, cv.rke], ids=lambda f: f.__name__)
def test_every_argument_changes_the_score(function):
    outputs, prompts = OUTPUTS, PROMPTS
    other_outputs, other_prompts = draw_pairs(N, seed=1, dtype=np.float32)
    paired = function in PAIRED
    default = {"outputs": outputs} | (
        {"prompts": prompts, **_kernels()} if paired else {"kernel": cv.Gaussian(0.4)}
    )
    changes = {"outputs": other_outputs, "prompts": other_prompts, "order": 3, "truncation": 4}
    changes["unbiased"] = True
    changes |= dict.fromkeys(("output_kernel", "prompt_kernel", "kernel"), cv.Gaussian(0.8))

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
        kernels = _kernels((bandwidth, 0.3))
        result = cv.decompose(outputs, prompts, **kernels, order=order)
        assert isinstance(result, cv.scores.Decomposition)
        return result.information

    separate = [float(score(x, t, s)) for x, t, s in zip(*batch, grid, strict=True)]
    assert_close(jax.jit(jax.vmap(score))(*batch, grid), separate)


@jax.tree_util.register_static
class Laplace(cv.Kernel):
    """A user's own kernel: the function of two points and nothing else."""

    def __call__(self, x, y):
        return jnp.exp(-jnp.sum(jnp.abs(x - y)))


@pytest.mark.parametrize("order", [1, 2])
def test_a_kernel_of_two_points_alone_is_enough(order, x64):
    pairs = draw_pairs(N)
    city_block = [np.exp(-np.abs(p[:, None] - p[None]).sum(axis=-1)) for p in pairs]
    kernels = {"output_kernel": Laplace(), "prompt_kernel": Laplace()}
    expected = scores(*city_block, order=order)
    for name, got in _named(cv.decompose(*pairs, **kernels, order=order)).items():
        assert_close(got, expected[name])
    tiled = cv.grams.TiledGram.from_points(Laplace(), jnp.asarray(pairs[0]))
    assert_close(tiled.squared_frobenius_norm(), np.mean(city_block[0] ** 2))


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
    prompts = np.repeat(PROMPTS[:8], 6, axis=0)
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [2]}
    result, expected = (
        cv.evaluate(OUTPUTS, prompts, prompt_kernel=kernel, **options)
        for kernel in (Labels(), cv.Indicator())
    )
    assert result.answers == expected.answers == (6, 6)
    population, indicator = result.orders[0].population, expected.orders[0].population
    assert_close(population.given[:2], indicator.given[:2])
    assert_close(population.fixed_error, indicator.fixed_error)
    similar = cv.evaluate(OUTPUTS, prompts, prompt_kernel=cv.Gaussian(0.5), **options)
    assert similar.answers is None
    assert similar.orders[0].population.given is None
    assert similar.orders[0].population.fixed_error is None
    labels = np.repeat(np.arange(8), 6)
    assert cv.evaluate(OUTPUTS, labels, prompt_kernel=Labels(), **options).answers == (6, 6)
