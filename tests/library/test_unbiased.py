"""Unbiased scores of order 2, against sums over all pairs in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import named
from oracles import cosine_gram, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.inference import errors as grouping
from condvendi_jax.inference import population as populations

EXACT = cv.Indicator()
KERNELS = {"gaussian": (cv.Gaussian(1.2), cv.Gaussian(0.8)), "indicator": (EXACT, EXACT)}
KERNELS |= {"cosine": (cv.Cosine(), EXACT)}


def squared(kernel, rows):
    """k^2 of every two rows, in float64."""
    if isinstance(kernel, cv.Indicator):
        return np.all(rows[:, None] == rows[None], axis=-1).astype(float)
    if isinstance(kernel, cv.Gaussian):
        return gaussian_gram(rows, float(kernel.bandwidth)) ** 2
    return cosine_gram(rows) ** 2


def pair_mean(squares, w, ids, own=None):
    """The mean over different rows, a share `own` of one prompt; None: by their weights."""
    of_pairs, same = np.outer(w, w) * ~np.eye(w.size, dtype=bool), ids[:, None] == ids[None, :]
    shares, within = np.bincount(ids, w), np.zeros(ids.max() + 1)
    for p in np.flatnonzero(np.bincount(ids) > 1):
        block = np.ix_(ids == p, ids == p)
        within[p] = np.average(squares[block], weights=of_pairs[block])
    own = np.sum(shares**2) if own is None else own
    between = np.average(squares, weights=of_pairs * ~same) if own < 1 else 0
    return own * np.average(within, weights=shares**2) + (1 - own) * between


def by_brute_force(outputs, prompts, kernels, copies=None, weights=None):
    """RKE, Conditional- and Information-RKE from loops over pairs; `copies` are rows.

    Without weights each prompt counts once.
    """
    n = len(outputs)
    rows = np.repeat(np.arange(n), np.ones(n, int) if copies is None else copies)
    w, own = np.ones(n) if weights is None else np.asarray(weights, np.float64), None
    if prompts is not None:
        ids = np.unique(prompts, axis=0, return_inverse=True)[1].ravel()
        several = np.bincount(ids[rows])[ids[rows]] > 1
        if several.mean() >= 0.5:
            rows = rows[several]
    if prompts is not None and weights is None:
        w = 1 / np.maximum(np.bincount(ids[rows], minlength=ids.max() + 1), 1)[ids]
    if prompts is None or several.mean() < 0.5:
        own = 0
    ids = np.arange(rows.size) if own == 0 else ids[rows]
    x = squared(kernels[0], np.asarray(outputs)[rows])
    t = np.ones_like(x) if prompts is None else squared(kernels[1], np.asarray(prompts)[rows])
    x, t, joint = (pair_mean(of, w[rows] / w[rows].sum(), ids, own) for of in (x, t, x * t))
    return np.array([1 / x, t / joint, joint / x / t])


def data(kernel, numbers, seed=0):
    """Outputs and prompts with these numbers of answers to each prompt."""
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(len(numbers)), numbers)
    places = rng.normal(size=(len(numbers), 2))
    outputs = rng.integers(4, size=(prompt.size, 2)) + 0.0
    if kernel != "indicator":
        outputs = outputs + rng.normal(size=outputs.shape)
    order = rng.permutation(prompt.size)
    return outputs[order].astype(np.float32), places[prompt][order].astype(np.float32)


NUMBERS = [3, 2, 5, 2, 4, 2, 2, 4]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("numbers", [NUMBERS, [1] * 24, [1, 1, 1, 3, 3, 3, 4, 8], [2] + [1] * 22])
@pytest.mark.parametrize("weighted", [None, "copies", "shares"])
@pytest.mark.filterwarnings("ignore:.*all kernel values between:UserWarning")
def test_scores_are_those_of_all_pairs_in_float64(kernel, numbers, weighted):
    outputs, prompts = data(kernel, numbers)
    kernels, rng, given = KERNELS[kernel], np.random.default_rng(1), {}
    if weighted == "copies":
        given["copies"] = rng.integers(1, 3, len(outputs))
    if weighted == "shares":
        given["weights"] = rng.uniform(0.5, 2, len(outputs))
    weights = given.get("copies", given.get("weights"))
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = by_brute_force(outputs, prompts, kernels, **given)
    options = {"weights": weights, "unbiased": True}
    found = cv.decompose(outputs, prompts, **named(kernels), order=2, **options)
    np.testing.assert_allclose(np.array(found.scores), expected, rtol=2e-6)
    alone = cv.rke(outputs, kernel=kernels[0], **options)
    expected = by_brute_force(outputs, None, kernels, **given)
    np.testing.assert_allclose(alone, expected[0], rtol=2e-6)


def by_blocks(outputs, prompts, ids, width):
    """Unbiased Conditional-RKE of Gaussians of one width, as a function that JAX differentiates."""
    same = jnp.asarray(ids[:, None] == ids[None, :])
    counts = jnp.asarray(np.bincount(ids)[ids], float)
    once = jnp.outer(1 / counts, 1 / counts)
    times = once * jnp.where(same, counts[:, None] / (counts[:, None] - 1), 1)
    times *= 1 - jnp.eye(len(ids))

    def squares(rows):
        return jnp.exp(-jnp.sum((rows[:, None] - rows[None]) ** 2, axis=-1) / width**2)

    of_prompts = squares(prompts)
    return jnp.sum(times * of_prompts) / jnp.sum(times * of_prompts * squares(outputs))


def test_gradients_inside_jit_are_those_of_the_blocks(x64):
    outputs, prompts = (rows.astype(float) for rows in data("gaussian", NUMBERS))
    ids = np.unique(prompts, axis=0, return_inverse=True)[1].ravel()

    def score(outputs, width):
        kernels = {"output_kernel": cv.Gaussian(width), "prompt_kernel": cv.Gaussian(width)}
        return cv.conditional_rke(outputs, prompts, **kernels, prompt_ids=ids, unbiased=True)

    found = jax.jit(jax.value_and_grad(score, argnums=(0, 1)))(jnp.asarray(outputs), 1.2)
    blocks = jax.value_and_grad(lambda x, width: by_blocks(x, prompts, ids, width), argnums=(0, 1))
    expected = jax.jit(blocks)(jnp.asarray(outputs), 1.2)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-12)


def test_what_has_no_unbiased_score_is_refused():
    outputs, prompts = data("gaussian", NUMBERS)
    kernels = {"output_kernel": cv.Gaussian(1.2), "prompt_kernel": cv.Gaussian(0.8)}
    for options in ({"order": 1}, {"order": 3}, {"order": 2, "truncation": 4}):
        with pytest.raises(ValueError, match="unbiased: expected order 2 without truncation"):
            cv.decompose(outputs, prompts, **kernels, **options, unbiased=True)
    with pytest.raises(ValueError, match="unbiased: expected prompt_ids"):
        jax.jit(lambda x: cv.rke(x, prompts, **kernels, unbiased=True))(outputs)
    with pytest.raises(ValueError, match="unbiased: expected True or False"):
        cv.evaluate(outputs, output_kernel=cv.Gaussian(1.2), unbiased=2, errors=False)


def population(outputs, prompts, kernels, *, weights=None):
    pairs = cv.Pairs(outputs, prompts, **named(kernels), weights=weights)
    groups, _ = grouping.group_models({"": pairs}, None, key=jax.random.key(0))
    return populations.of_pairs(pairs, groups[""])


@pytest.mark.parametrize("numbers", [[3, 3, 5, 3, 4, 3, 3, 4], [1] * 24])
@pytest.mark.parametrize("kernel", ["gaussian", "indicator"])
def test_errors_are_those_of_the_jackknife_over_prompts_or_rows(kernel, numbers):
    outputs, prompts = data("gaussian" if numbers[0] == 1 else kernel, numbers)
    kernels = KERNELS["gaussian" if numbers[0] == 1 else kernel]
    found = population(outputs, prompts, kernels)
    _, units = np.unique(prompts, axis=0, return_inverse=True)
    own = found.share

    def similarities(kept):
        """By brute force; a fixed share of the pairs is of one prompt."""
        x, t = (squared(k, a[kept]) for k, a in zip(kernels, (outputs, prompts), strict=True))
        number = units.ravel()[kept]
        w = 1 / np.bincount(number)[number] / np.unique(number).size
        x, t, joint = (pair_mean(of, w, number, own) for of in (x, t, x * t))
        return np.array([x, joint / t, joint / t / x])

    everything = np.ones(len(outputs), bool)
    whole = similarities(everything)
    np.testing.assert_allclose(found.similarities, whole, rtol=1e-5)
    np.testing.assert_allclose(found.values, [1 / whole[0], 1 / whole[1], whole[2]], rtol=1e-5)
    labels = units.ravel() if found.repeated else np.arange(len(outputs))
    shares = np.full(labels.max() + 1, 1 / (labels.max() + 1))
    effects = []
    for label in range(labels.max() + 1):
        without = similarities(labels != label)
        effects.append((whole - without) * (1 - shares[label]))
    effects = np.array(effects) - shares[:, None] * np.sum(effects, axis=0)
    count = len(effects)
    error = np.sqrt(count / (count - 1) * np.sum(effects**2, axis=0))
    expected = error * [whole[0] ** -2, whole[1] ** -2, 1]
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-4)
    assert found.fixed_error is None  # Prompts are similar, or one has three answers.


@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_of_fixed_prompts_is_that_of_pairs_of_pairs(weighted, x64):
    """U^2 less the mean of h_ij h_kl over four different answers is unbiased for Var U."""
    outputs, prompts = (rows.astype(float) for rows in data("gaussian", [4, 6, 5, 4, 6]))
    ids = np.unique(prompts, axis=0, return_inverse=True)[1].ravel()
    shares = np.array([2.0, 1, 3, 1, 1])[ids] if weighted else np.ones(ids.size)
    squares, terms = squared(cv.Gaussian(1.2), outputs), []
    for rows in (np.flatnonzero(ids == prompt) for prompt in range(5)):
        pairs = np.array([*itertools.permutations(rows, 4)]).T
        similarity, both = squares[pairs[0], pairs[1]], squares[pairs[2], pairs[3]]
        terms.append((shares[rows].sum() ** 2, similarity.mean(), np.mean(similarity * both)))
    weight, similarity, apart = np.array(terms).T
    weight /= weight.sum()
    error = np.sqrt(np.sum(weight**2 * (similarity**2 - apart)))
    found = population(outputs, prompts, (cv.Gaussian(1.2), EXACT), weights=shares)
    assert found.fixed_error == pytest.approx(error / (weight @ similarity) ** 2, rel=1e-6)


def test_rounding_does_not_decide_the_interval_of_outputs_that_agree():
    """Multiples of one vector, whose cosines are one but for rounding."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        outputs = np.outer(rng.uniform(1, 2, 40), rng.normal(size=5)).astype(np.float32)
        with pytest.warns(UserWarning, match="numerically constant"):
            found = cv.evaluate(outputs, output_kernel=cv.Cosine(), orders=[2])
        low, high = found.order(2).population.intervals.vendi
        assert (low, high) == pytest.approx((1, 1 / (1 + math.log(0.025) / 40)), rel=1e-5)


@pytest.mark.parametrize("kernel", ["gaussian", "indicator"])
def test_pairs_of_one_batch_are_left_out(kernel, x64):
    """Two answers to a batch: means over pairs of other batches, and the jackknife of prompts."""
    outputs, prompts = (rows.astype(float) for rows in data(kernel, [4, 6, 4, 8, 4, 6, 2, 4]))
    ids, batches = np.unique(prompts, axis=0, return_inverse=True)[1].ravel(), np.zeros(38, int)
    for prompt in range(8):
        rows = np.flatnonzero(ids == prompt)
        batches[rows] = np.arange(rows.size) // 2
    kept = np.bincount(ids)[ids] > 2  # One batch is like one answer.
    x, t = (squared(k, of) for k, of in zip(KERNELS[kernel], (outputs, prompts), strict=True))
    alone = (ids[:, None] == ids) & (batches[:, None] == batches)

    def similarities(rows):
        pick, w = np.ix_(rows, rows), 1 / np.bincount(ids)[ids[rows]]
        counted, same = np.outer(w, w) * ~alone[pick], ids[rows][:, None] == ids[rows]
        means = []
        for squares in (x[pick], t[pick], (x * t)[pick]):
            of_prompts = [
                np.average(squares[np.ix_(p, p)], weights=counted[np.ix_(p, p)])
                for p in (ids[rows] == prompt for prompt in np.unique(ids[rows]))
            ]
            between = np.average(squares, weights=counted * ~same)
            means.append(np.mean(of_prompts) / 7 + between * 6 / 7)
        return np.array([means[0], means[2] / means[1], means[2] / means[1] / means[0]])

    kernels = named(KERNELS[kernel])
    pairs, rows = cv.Pairs(outputs, prompts, **kernels, batches=batches), np.flatnonzero(kept)
    whole = similarities(rows)
    expected = [1 / whole[0], 1 / whole[1], whole[2]]
    np.testing.assert_allclose(
        cv.decompose(pairs, order=2, unbiased=True).scores, expected, rtol=1e-9
    )
    found = cv.evaluate(pairs, orders=[2]).order(2).population
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)
    without = [similarities(rows[ids[rows] != prompt]) for prompt in np.unique(ids[rows])]
    error = np.sqrt(6 * np.var(without, axis=0)) * [whole[0] ** -2, whole[1] ** -2, 1]
    np.testing.assert_allclose(found.standard_errors, error, rtol=1e-6)
    assert found.answers.left_out == 1 and found.fixed_error is None
    if kernel == "indicator":
        table = [of.similarity for of in cv.prompt_table(pairs, order=2).prompts]
        assert np.nanmean(table) == pytest.approx(whole[1], rel=1e-9)
    alone_given = cv.Pairs(outputs, output_kernel=KERNELS[kernel][0], batches=batches)
    other = batches[:, None] != batches
    score = cv.evaluate(alone_given, orders=[2]).order(2).unbiased.vendi
    assert score == pytest.approx(1 / x[other].mean(), rel=1e-9)
    decomposed = cv.decompose(alone_given, order=2, unbiased=True).vendi
    assert float(decomposed) == pytest.approx(score, rel=1e-9)
