"""The papers' definitions in NumPy and SciPy float64, and the tolerances of a comparison.

Nothing here imports the library, and distances are differences of points, not inner products.
"""

import itertools

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.spatial.distance
import scipy.stats

_RELATIVE = {"float32": 1e-5, "float64": 1e-10}


def tolerance(dtype):
    """The relative error allowed in a score of a dtype."""
    return _RELATIVE[np.dtype(dtype).name]


def assert_close(actual, expected, *, loosened=1):
    """Equality within the tolerance of the dtype of `actual`, which a caller may loosen."""
    actual = np.asarray(actual)
    expected = np.asarray(expected, np.float64)
    allowed = loosened * tolerance(actual.dtype)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=allowed, atol=allowed * scale)


def draw_pairs(n, *, seed=0, dtype=np.float64, d_x=3, d_t=2, modes=4, spread=0.5):
    """Pairs from a mixture: the prompt is one of `modes` clusters, the output follows it loosely.

    Values are representable in float32, so that both precisions see the same points.
    """
    rng = np.random.default_rng(seed)
    mode = rng.integers(modes, size=n)
    centres_x, centres_t = rng.normal(size=(modes, d_x)), rng.normal(size=(modes, d_t))
    outputs = centres_x[mode] + spread * rng.normal(size=(n, d_x))
    prompts = centres_t[mode] + spread * rng.normal(size=(n, d_t))
    return tuple(a.astype(np.float32).astype(dtype) for a in (outputs, prompts))


def gaussian_gram(points, bandwidth):
    points = np.asarray(points, np.float64)
    squares = scipy.spatial.distance.cdist(points, points, "sqeuclidean")
    return np.exp(-squares / (2 * bandwidth**2))


def gaussian_grams(pairs, bandwidths):
    """Of outputs and of prompts."""
    return [gaussian_gram(p, s) for p, s in zip(pairs, bandwidths, strict=True)]


def cosine_gram(points):
    points = np.asarray(points, np.float64)
    unit = points / np.linalg.norm(points, axis=1)[:, None]
    return unit @ unit.T


def eigenvalues(gram):
    """Of K / n, descending."""
    return np.clip(scipy.linalg.eigvalsh(gram / gram.shape[0])[::-1], 0, None)


def shifted(values, t):
    """CV eq. 13: the t largest, all moved by the same constant to sum to one."""
    leading = np.sort(values)[::-1][:t]
    return leading + (1 - leading.sum()) / t


def renyi(p, order):
    p = p[p > 0]
    if order == 1:
        return -np.sum(p * np.log(p))
    if np.isinf(order):
        return -np.log(p.max())
    return np.log(np.sum(p.astype(np.longdouble) ** order)) / (1 - np.longdouble(order))


def entropy(gram, *, order=1, truncation=None):
    values = eigenvalues(gram)
    return renyi(values if truncation is None else shifted(values, truncation), order)


def scores(gram_x, gram_t, *, order=1, truncation=None):
    """Vendi, Conditional-Vendi and Information-Vendi (CV eq. 3 and 5-7)."""
    x, t, joint = (
        entropy(g, order=order, truncation=truncation) for g in (gram_x, gram_t, gram_x * gram_t)
    )
    return {
        "vendi": float(np.exp(x)),
        "conditional": float(np.exp(joint - t)),
        "information": float(np.exp(x + t - joint)),
    }


def weighted_entropy(gram, weights, order=1, truncation=None):
    """Of rows with weights of any sum, by the spectrum of diag(w)^(1/2) K diag(w)^(1/2)."""
    roots = np.sqrt(weights / np.sum(weights))
    values = np.clip(np.linalg.eigvalsh(roots[:, None] * gram * roots), 0, None)
    return renyi(shifted(values, min(truncation, values.size)) if truncation else values, order)


def weighted_logs(grams, weights, order=1, truncation=None):
    """The logarithms of the three scores of weighted rows, from the Grams of x, t and both."""
    x, t, joint = (weighted_entropy(gram, weights, order, truncation) for gram in grams)
    return np.array([x, joint - t, x + t - joint], np.float64)


def components(gram):
    """U, zeta_1 and delta of the answers to one prompt, as means over tuples of different ones."""
    h = np.square(gram)

    def mean(size, *pairs):
        rows = np.array([*itertools.permutations(range(len(h)), size)]).T
        return np.mean(np.prod([h[rows[i], rows[j]] for i, j in pairs], axis=0))

    apart = mean(4, (0, 1), (2, 3))
    zeta_1 = mean(3, (0, 1), (0, 2)) - apart
    return mean(2, (0, 1)), zeta_1, mean(2, (0, 1), (0, 1)) - apart - 2 * zeta_1


def score_losses(grams, weights, labels, order=1):
    """What each score loses without each group, times the rest's share, centred: `[G, 3]`."""
    whole, shares = weighted_logs(grams, weights, order), np.bincount(labels, weights)
    losses = []
    for label, share in enumerate(shares / shares.sum()):
        kept = np.flatnonzero(labels != label)
        rest = [gram[np.ix_(kept, kept)] for gram in grams]
        losses.append((whole - weighted_logs(rest, weights[kept], order)) * (1 - share))
    means = np.outer(shares / shares.sum(), np.sum(losses, axis=0))
    return np.exp(whole) * (np.array(losses) - means)


def _through_the_gaussian(points, gram, sensitivity, bandwidth):
    """CV eq. 27 for every point: from d/dK to d/dz, with grad k = k (z_i - z_a) / sigma^2."""
    pair = (sensitivity + sensitivity.T) * gram / bandwidth**2
    return pair @ points - pair.sum(axis=1)[:, None] * points


def truncated_conditional_gradient(outputs, prompts, bandwidths, t):
    """d Conditional-Vendi^(t) / d outputs by CV eq. 24-27."""
    n = outputs.shape[0]
    gram_x, gram_t = gaussian_grams((outputs, prompts), bandwidths)
    joint = gram_x * gram_t / n
    values, vectors = np.linalg.eigh(joint)
    leading, vectors = values[::-1][:t], vectors[:, ::-1][:, :t]
    logs = np.log(leading + (1 - leading.sum()) / t)
    of_joint = vectors @ np.diag(logs.mean() - logs) @ vectors.T  # eq. 24
    sensitivity = of_joint * gram_t / n  # eq. 26
    score = scores(gram_x, gram_t, truncation=t)["conditional"]
    return score * _through_the_gaussian(outputs, gram_x, sensitivity, bandwidths[0])  # eq. 25


def conditional_rke_gradient(outputs, prompts, bandwidths):
    """d Conditional-RKE / d outputs by the formula below CV eq. 27."""
    gram_x, gram_t = gaussian_grams((outputs, prompts), bandwidths)
    joint = gram_x * gram_t
    sensitivity = -2 * np.sum(gram_t**2) / np.sum(joint**2) ** 2 * joint * gram_t
    return _through_the_gaussian(outputs, gram_x, sensitivity, bandwidths[0])


def directional_difference(function, point, direction, *, step=1e-5):
    """The derivative of `function` along `direction`, by central differences of fourth order."""
    near, far = (
        function(point + m * step * direction) - function(point - m * step * direction)
        for m in (1, 2)
    )
    return (8 * near - far) / (12 * step)


def prompt_mean_ends(values, level):
    """The interval of a mean of `[prompts]` in [0, 1], each of the same share."""
    values = np.asarray(values, np.float64)
    n = values.size
    error, lost = values.std(ddof=1) / np.sqrt(n), (values - values.mean()) / (n - 1)
    return mean_ends(values.mean(), error, lost, np.full(n, 1 / n), level)


def mean_ends(mean, error, lost, shares, level, most=np.inf):
    """The interval of a mean in [0, 1] that loses `lost` without each prompt: docs/errors.md.

    The error has at most `most` degrees of freedom.
    """
    if mean > 0.5:
        flipped = mean_ends(1 - mean, error, -lost, shares, level, most)
        return tuple(1 - end for end in reversed(flipped))
    ends = (end(mean, error, lost, shares, level, most) for end in (_near_end, _far_end))
    return tuple(np.clip([*ends], 0, 1))


def _critical(shares, level, most=np.inf):
    """Student's critical value of as many equal shares, and relative to that at 95%."""
    freedom = min(max(1 / np.sum(shares**2) - 1, 1), most)
    t, usual = scipy.stats.t.isf([level / 2, 0.025], freedom)
    return t, t / usual


def _near_end(mean, error, lost, shares, level, most=np.inf):
    t, growth = _critical(shares, level, most)
    second = np.sum(lost**2)
    skewed = 2 * min(growth, 1) * np.sum(lost**3) / second**1.5 if second else 0
    return mean + error * (skewed - np.hypot(t, skewed))


def _far_end(mean, error, lost, shares, level, most=np.inf):
    t, growth = _critical(shares, level, most)
    squared, typical = growth * max(growth, 1), np.sum(shares**3) / np.sum(shares**2)
    added, far = 0.2 * squared * typical, 1 - mean
    variance = added * far**2 * typical
    third = np.sum(lost**3) + variance * far * typical
    skewed = 1.25 * squared * third / (np.sum(lost**2) + variance) ** 1.5
    high = mean + added + np.sqrt(error**2 + variance) * (skewed + np.hypot(t, skewed))
    return high / (1 + added)


def between_ends(value, error, lost, shares, level):
    """The interval of the mean similarity between prompts, which is the square of a mean."""
    root, units = np.sqrt(value), 1 / np.sum(shares**2)
    slope = 0.5 / root if root else 0
    given, second = (slope * error, slope * lost, shares, level), np.sum((slope * lost) ** 2)
    low = _near_end(root, *given)
    if root > 0.5:
        low = 1 - _far_end(1 - root, slope * error, -slope * lost, shares, level)
    t, growth = _critical(shares, level)
    third = np.sum((slope * lost) ** 3)
    skewed = growth * max(growth, 1) * max(2 * third, 6 * third) / second**1.5 if second else 0
    high = min(root + slope * error * (skewed + np.hypot(t, skewed)), 1) ** 2
    # A share of prompts of which at most one is among as many.
    unseen = scipy.optimize.brentq(
        lambda x: (1 - x) ** units + units * x * (1 - x) ** (units - 1) - level, 0, 1, xtol=1e-15
    )
    return max(low, 0) ** 2, min(value + np.hypot(high - value, unseen**2 * (1 - value)), 1)


def mover(values, ends, r):
    """The interval of the difference of two values (Zou and Donner, 2008)."""
    (one, two), ((low, high), (other_low, other_high)) = values, ends
    sides = (one - low, other_high - two), (high - one, two - other_low)
    below, above = (np.sqrt(a**2 - 2 * r * a * b + b**2) for a, b in sides)
    return one - two - below, one - two + above


def difference_ends(one, two, level, *, matched=True, margin=1.0):
    """Of the mean of `one` less `margin` times that of `two`."""
    other = [margin * end for end in prompt_mean_ends(two, level)]
    r = np.corrcoef(one, two)[0, 1] if matched else 0.0
    ends = prompt_mean_ends(one, level), other
    return mover((np.mean(one), margin * np.mean(two)), ends, r)


def difference_p_value(one, two, *, matched=True):
    """The level at which the interval of the difference begins to exclude 0."""
    side = 0 if np.mean(one) > np.mean(two) else 1
    return _level(lambda level: difference_ends(one, two, level, matched=matched)[side])


def equality_p_value(one, two, margin):
    """Of two one-sided tests that the ratio of two means is less than the margin."""
    pairs = (one, two), (two, one)
    sides = [lambda level, p=p: difference_ends(*p, level, margin=margin)[1] for p in pairs]
    levels = [_level(side) for side in sides]
    return max(level / 2 if level < 1 else 1.0 for level in levels)


def _level(end):
    """The level at which an end of an interval is 0; 1 where it never is."""
    if end(1 - 1e-12) * end(1e-14) > 0:
        return 1.0
    return scipy.optimize.brentq(end, 1e-14, 1 - 1e-12, xtol=1e-14)
