"""Intervals at any n: against all pairs in NumPy, exact coverage, what is refused."""

import math

import numpy as np
import pytest
import scipy.stats
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.inference import finite_sample_interval

# Labels of which all rows are equal, or different.
pytestmark = pytest.mark.filterwarnings("ignore:.*all kernel values between")

N, WIDTHS = 150, (1.5, 2.0)
KERNELS = {"output_kernel": cv.Gaussian(WIDTHS[0]), "prompt_kernel": cv.Gaussian(WIDTHS[1])}
SAME = {"output_kernel": cv.Gaussian(WIDTHS[0]), "prompt_kernel": cv.Indicator()}
LABELS = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
# Prompts with one to five answers.
IDS = np.repeat(np.arange(50), np.arange(50) % 5 + 1)


def rejected(h, blocks, confidence):
    """Whether independent or pairwise values of h_c have a mean beyond the bound; `h` at a c."""
    values, c = h
    x, largest = math.log(3 / (1 - confidence)) / blocks, max(c, 1 - c)
    root = math.sqrt((largest * x) ** 2 + 2 * x * np.mean(values**2))
    return abs(values.mean()) > 4 / 3 * largest * x + root


def of_pairs(k_x, k_t):
    """h_c over pairs of different rows."""
    others = ~np.eye(len(k_x), dtype=bool)
    return lambda c: ((k_t**2 * (k_x**2 - c))[others], c)


def of_prompts(k_x, ids):
    """U_p - c of every prompt with several answers."""
    means = []
    for prompt in np.unique(ids):
        own = np.flatnonzero(ids == prompt)
        if own.size > 1:
            means.append((np.sum(k_x[np.ix_(own, own)] ** 2) / own.size - 1) / (own.size - 1))
    return lambda c: (np.array(means) - c, c)


def case(name):
    """Arguments, h_c by brute force, and the number of independent blocks."""
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    k_x, k_t = gaussian_gram(outputs, WIDTHS[0]), gaussian_gram(prompts, WIDTHS[1])
    if name == "pairs":
        return (outputs, prompts), KERNELS, of_pairs(k_x, k_t), N // 2
    if name == "outputs":
        return (outputs,), {"kernel": cv.Gaussian(WIDTHS[0])}, of_pairs(k_x, np.ones_like(k_x)), 75
    if name == "cosine":
        k_x = cosine_gram(outputs)
        return (outputs,), {"kernel": cv.Cosine()}, of_pairs(k_x, np.ones_like(k_x)), 75
    return (outputs, IDS[:, None]), SAME, of_prompts(k_x, IDS), 40


@pytest.mark.parametrize("name", ["pairs", "outputs", "cosine", "prompts"])
def test_ends_are_where_all_pairs_begin_to_reject(name):
    arguments, kernels, h, blocks = case(name)
    found = finite_sample_interval(*arguments, **kernels, confidence=0.2)
    at_zero, at_one = (h(c)[0].mean() for c in (0.0, 1.0))
    assert_close(np.float32(found.score), (at_zero - at_one) / at_zero)
    assert 1 < found.low < found.score < found.high < math.inf
    for end, outside in ((found.low, 1 / 1.001), (found.high, 1.001)):
        assert not rejected(h(1 / (end / outside)), blocks, 0.2)
        assert rejected(h(1 / (end * outside)), blocks, 0.2)
    words = {"prompts": "40 of 50 independent prompts"}.get(name, f"{N} independent rows")
    assert (found.units, found.name) == (words, "Conditional-RKE" if len(arguments) == 2 else "RKE")


@pytest.mark.parametrize("n", [2, 3, 40])
def test_exact_coverage_of_two_outputs(n):
    """The count of the first output is binomial; a smaller confidence would not be reached."""
    share, confidence, holds = 0.4, 0.3, []
    for count in range(n + 1):
        outputs = (np.arange(n) < count).astype(np.float32)[:, None]
        options = {"kernel": cv.Indicator(), "confidence": confidence}
        found = finite_sample_interval(outputs, **options)
        holds.append(found.low <= 1 / (share**2 + (1 - share) ** 2) <= found.high)
    chances = scipy.stats.binom.pmf(np.arange(n + 1), n, share)
    assert chances[holds].sum() >= confidence
    assert n < 40 or chances[holds].sum() < 1


def test_exact_coverage_over_prompts():
    """Both answers to a prompt are the same with probability 1/4: pairs with themselves fail."""
    prompts, confidence, holds = 60, 0.5, []
    ids = np.repeat(np.arange(prompts), 2)[:, None]
    for count in range(prompts + 1):
        answers = np.stack([np.zeros(prompts), np.arange(prompts) >= count], axis=1)
        outputs, options = answers.reshape(-1, 1).astype(np.int32), {"confidence": confidence}
        found = finite_sample_interval(outputs, ids, **LABELS, **options)
        holds.append(found.low <= 4 <= found.high)
    chances = scipy.stats.binom.pmf(np.arange(prompts + 1), prompts, 1 / 4)
    assert confidence <= chances[holds].sum() < 1


def test_order_of_rows_and_equal_weights_do_not_matter():
    (outputs, prompts), kernels, *_ = case("prompts")
    kernels = kernels | {"confidence": 0.2}
    found = finite_sample_interval(outputs, prompts, **kernels)
    mixed = np.random.default_rng(0).permutation(N)
    for other in (
        finite_sample_interval(outputs[mixed], prompts[mixed], **kernels),
        finite_sample_interval(outputs, prompts, **kernels, weights=np.full(N, 0.5)),
        finite_sample_interval(outputs, -prompts, **kernels, prompt_ids=IDS.astype(str)),
    ):
        assert other.units == found.units
        ends = [[of.score, of.low, of.high] for of in (other, found)]
        assert_close(*np.float32(ends))


def test_rows_of_equal_prompts_are_independent_where_groups_say_so():
    (outputs, prompts), _, *_ = case("prompts")
    with pytest.raises(ValueError, match=r"prompt_kernel: expected cv.Indicator\(\)"):
        finite_sample_interval(outputs, prompts, **KERNELS)
    pairs = cv.Pairs(outputs, prompts, **KERNELS, groups=np.arange(N))
    found = finite_sample_interval(pairs)
    assert found.units == f"{N} independent rows"
    squares = [
        gaussian_gram(of, width) ** 2 for of, width in zip(pairs.arrays, WIDTHS, strict=True)
    ]
    t, joint = (of.sum() - N for of in (squares[1], squares[0] * squares[1]))
    assert_close(np.float32(found.score), t / joint)


def test_bad_options_and_rows_are_refused():
    (outputs,), kernels, *_ = case("outputs")
    with pytest.raises(ValueError, match="confidence: expected a number between 0 and 1"):
        finite_sample_interval(outputs, **kernels, confidence=1.0)
    with pytest.raises(ValueError, match="weights: expected equal ones or integers"):
        finite_sample_interval(outputs, **kernels, weights=np.linspace(1, 2, N))
    with pytest.raises(ValueError, match="expected at least two rows, received 1"):
        finite_sample_interval([[1]], kernel=cv.Gaussian(1.0))
    rows = np.arange(41)[:, None]
    with pytest.raises(ValueError, match="prompts: expected some that are similar"):
        finite_sample_interval(rows, rows, **LABELS)
    with pytest.raises(ValueError, match="groups: expected None or n different ones"):
        finite_sample_interval(cv.Pairs(rows, output_kernel=cv.Indicator(), groups=rows[:, 0] // 2))
