"""How much the similarity of a prompt's answers varies with the answers, and between prompts.

The similarity U of k answers to a prompt is the mean of the squared kernel h over their pairs. Over
other answers to the same prompt its variance is that of a U-statistic (Hoeffding, 1948),

    Var U = 4 zeta_1 / k + 2 delta / (k (k - 1)),   delta = zeta_2 - 2 zeta_1,

with zeta_1 = Cov(h_ij, h_il) and zeta_2 = Var(h_ij). Means over pairs, triples and quadruples of
different answers estimate both without bias; quadruples need four answers.

Whether prompts differ, and the similarity of each one shrunken towards those of all prompts.

The least and the most similar of many prompts are there partly by chance. A posterior interval
needs no correction for that selection if its prior is right (Dawid, 1994; Efron, 2011). The prior
is estimated: a mean of Beta distributions, by how well they fit all prompts, of which a part is
Beta(1/2, 1/2), so that prompts unlike the others are not drawn to them (Berger and Berliner, 1986);
and a smooth one without a form, where it fits far better, such as where prompts are of two kinds.
The likelihood is a quasi-likelihood (Wedderburn, 1974). docs/contributions.md has the coverage.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy  # Its modules are imported when they are used.

FEWEST_ANSWERS = 4
RELIABLE = 0.8  # The reliability from which on a table ranks prompts.
FEWEST_PROMPTS = 5  # With four answers: of fewer, nothing is tested and nothing shrunken.
_POSTERIOR = 0.99  # For 90% to 100% at the ends.
_WIDE = 1.5  # Times zeta_1, for intervals: prompts of one similarity differ in it.
_LEAST_VARIANCE = 1e-6  # Of squared kernels: less may be rounding.
_PASSES = 3  # Over the prompts, which settle the variance of a similarity.
_MOST = 2000  # Prompts that the prior is estimated from.
# Of the prior without a form: rounds, the part of the others in it, and what its fit must gain.
_ROUNDS, _OTHERS, _PENALTY = 10, 0.2, 4.0
_TINY = 1e-300  # So that nothing is divided by 0.
_EDGES = np.sin(np.linspace(0, np.pi / 2, 241)) ** 2  # Similarities, finer near 0 and 1.
_STEPS, _S = np.diff(_EDGES), (_EDGES[1:] + _EDGES[:-1]) / 2
# zeta_1 is at most this, which it is where one answer is preferred; it is 0 of equal answers.
_LARGEST = _S**1.5 - _S**2


class Components(NamedTuple):
    """The prompts of a model, `[p]` each, by the numbers of `Answers.kind`."""

    answers: np.ndarray  # The number of answers k.
    similarity: np.ndarray  # U.
    of_answers: np.ndarray  # An unbiased estimate of zeta_1; NaN below four answers.
    of_pairs: np.ndarray  # An unbiased estimate of delta; NaN below four answers.

    def within(self) -> np.ndarray:
        """The variance of U over other answers, `[p]`."""
        k = self.answers
        return 4 * self.of_answers / k + 2 * self.of_pairs / (k * (k - 1))

    def error(self, weights: np.ndarray) -> float:
        """The error of a mean of U with weights `[p]`, over other answers to the same prompts."""
        pairs = self.answers * (self.answers - 1)
        least = 2 * (2 * self.of_answers + self.of_pairs) / pairs  # Where zeta_1 is 0.
        squares = np.square(weights)
        return math.sqrt(max(squares @ self.within(), squares @ least, 0.0))


def of_sums(
    sums: np.ndarray, squares: np.ndarray, copies: np.ndarray, kind: np.ndarray, count: int
) -> Components:
    """The components from the sums of h and h^2 of each answer with the others to its prompt."""
    k = np.bincount(kind, copies, count)
    s, r, q = (np.bincount(kind, copies * values, count) for values in (sums, sums**2, squares))
    with np.errstate(divide="ignore", invalid="ignore"):
        pair = k * (k - 1)
        triples = (r - q) / (pair * (k - 2))
        quadruples = (s**2 - 4 * r + 2 * q) / (pair * (k - 2) * (k - 3))
        parts = triples - quadruples, q / pair - 2 * triples + quadruples
        known = (np.where(k >= FEWEST_ANSWERS, part, np.nan) for part in parts)
        return Components(k.astype(int), s / pair, *known)


class PromptSpread(NamedTuple):
    """How much prompts differ in the similarity of their outputs, more than by chance.

    Attributes:
      p_value: of no difference, one-sided.
      deviation: the standard deviation over prompts of the similarity of any number of outputs.
      reliability: the share of its square in the variance of the table's similarities.
      outputs_needed: the number of outputs of each prompt for a reliability of 0.8, or infinity.
    """

    p_value: float
    deviation: float
    reliability: float
    outputs_needed: float


def shrink(parts: Components) -> tuple[PromptSpread, np.ndarray] | str:
    """Tests whether prompts differ, and shrinks; or says in words why not.

    The array has the shrunken similarities and the ends of their intervals, `[3, p]`; NaN of a
    prompt with one answer.
    """
    tested, several = parts.answers >= FEWEST_ANSWERS, parts.answers > 1
    count, shrunken = int(tested.sum()), np.full((3, several.size), np.nan)
    if count < FEWEST_PROMPTS:
        wanted = f"expected {FEWEST_PROMPTS} prompts or more with {FEWEST_ANSWERS} outputs or more"
        return f"{wanted}, received {count}"
    of_answers = float(np.mean(parts.of_answers[tested]))
    of_pair = float(np.mean((2 * parts.of_answers + parts.of_pairs)[tested]))
    if of_pair < _LEAST_VARIANCE:
        return "all outputs of a prompt count as different, or all as the same"
    spread, noise = _spread(Components(*(part[tested] for part in parts)), of_answers, of_pair)
    given = parts.similarity[several], parts.answers[several]
    shrunken[:, several] = _posterior(*given, of_answers, of_pair, noise)
    return spread, shrunken


def _spread(parts: Components, of_answers: float, of_pair: float) -> tuple[PromptSpread, float]:
    """The variance between prompts, with a test that there is none, and the variance within.

    Both tests must find one: Student's of z, transformed for its skewness (Hall, 1992), and that of
    the ratio of the variances.
    """
    count, k, within = parts.answers.size, parts.answers, parts.within()
    z = count / (count - 1) * (parts.similarity - parts.similarity.mean()) ** 2 - within
    centred = z - z.mean()
    error = math.sqrt(np.sum(centred**2) / (count * (count - 1)))
    t = float(z.mean()) / error if error > 0 else 0.0
    a = np.mean(centred**3) / max(np.mean(centred**2) ** 1.5, _TINY) / math.sqrt(count)
    t += a * t**2 / 3 + a**2 * t**3 / 27 + a / 6
    total = float(np.var(parts.similarity, ddof=1))
    # The estimate may be below what equal answers have.
    noise = float(max(np.mean(within), np.mean(2 * of_pair / (k * (k - 1)))))
    of_ratio = scipy.special.chdtrc(count - 1, (count - 1) * total / noise)
    p_value = max(scipy.special.stdtr(count - 1, -t), of_ratio)
    between = max(total - noise, 0.0)
    # The number of answers at which the variance within is so small a part of that between.
    w, zeta = between * (1 / RELIABLE - 1), min(max(of_answers, 0.0), of_pair / 2)
    b, c = w + 4 * zeta, 8 * zeta - 2 * of_pair
    needed = (b + math.sqrt(b**2 - 4 * w * c)) / (2 * w) if w > 0 else math.inf
    reliability = between / max(total, _TINY)
    return PromptSpread(float(p_value), math.sqrt(between), reliability, needed), noise


def _posterior(
    similarity: np.ndarray, answers: np.ndarray, of_answers: float, of_pair: float, noise: float
) -> np.ndarray:
    """The mean and the ends of the posterior of each similarity, `[3, p]`."""
    zeta = _components(np.histogram(similarity, _EDGES)[0] / similarity.size, of_answers, of_pair)
    priors, logs = _priors(similarity, noise)
    some = slice(None, None, math.ceil(similarity.size / _MOST))
    for _ in range(_PASSES):
        likely = _likelihood(similarity, answers, zeta)
        fits = logs + np.sum(np.log(likely[some] @ priors.T + _TINY), axis=0)
        free = _smooth_prior(likely[some], np.exp(fits - fits.max()) @ priors)
        fits = np.append(fits, np.sum(np.log(likely[some] @ free + _TINY)) - _PENALTY)
        prior = np.exp(fits - fits.max()) @ np.vstack([priors, free])
        posterior = _normalised(likely * prior)
        zeta = _components(posterior.mean(axis=0), of_answers, of_pair)
    # Near 1 one answer is preferred, and zeta_1 is the largest, whatever that of most prompts is.
    zeta_1 = np.clip(_WIDE * zeta[0], _S * _LARGEST, _LARGEST)
    wide = _likelihood(similarity, answers, (zeta_1, zeta[1]))
    sums = np.cumsum(_normalised(wide * prior), axis=1)
    low = _EDGES[np.argmax(sums > 0.5 - _POSTERIOR / 2, axis=1)]
    high = _EDGES[np.argmax(sums > 0.5 + _POSTERIOR / 2, axis=1) + 1]
    ends = np.where(similarity <= 0, 0, low), np.where(similarity >= 1, 1, high)
    return np.stack([posterior @ _S, *ends])


def _components(density: np.ndarray, of_answers: float, of_pair: float) -> tuple[Any, Any]:
    """zeta_1 and zeta_2 at each similarity, with these means over a density of similarities."""
    rising, binary = _S * _LARGEST, _S * (1 - _S)
    part, rest = of_answers / max(density @ rising, _TINY), _LARGEST - rising
    zeta = min(max(part, 0.02), 1) * rising
    if part > 1:
        zeta = zeta + min((part - 1) * (density @ rising) / (density @ rest), 1) * rest
    return zeta, min(max(of_pair / max(density @ binary, _TINY), 1e-3), 1) * binary


def _likelihood(similarity: np.ndarray, answers: np.ndarray, zeta: tuple[Any, Any]) -> np.ndarray:
    """The quasi-likelihood, the integral of (U - s) / Var U over s, of maximum 1, `[p, s]`."""
    logs, of_pairs = np.zeros((similarity.size, _S.size)), np.maximum(zeta[1] - 2 * zeta[0], 0)
    for k in np.unique(answers):  # `Components.within` at each similarity.
        slope = _STEPS / (4 * zeta[0] / k + 2 * of_pairs / (k * (k - 1)))
        first, second = (np.cumsum(terms) - terms / 2 for terms in (slope, slope * _S))
        logs[answers == k] = similarity[answers == k, None] * first - second
    return np.exp(logs - logs.max(axis=1, keepdims=True))


def _priors(similarity: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Beta distributions, `[h, s]`, and the logarithms of their prior weights (Daniels, 1999)."""
    count, mean = similarity.size, float(np.clip(similarity.mean(), 1e-3, 1 - 1e-3))
    pairs = mean * (1 - mean) / noise  # So many independent ones say as much as a prompt.
    error = max(similarity.std(), math.sqrt(mean * (1 - mean) / pairs)) / math.sqrt(count)
    logits = np.linspace(-3.5, 3.5, 13) * min(error / (mean * (1 - mean)), 1)
    means = 1 / (1 + np.exp(-logits - math.log(mean / (1 - mean))))
    odds = np.arange(1, 32, 2) / np.arange(31, 0, -2)  # Of the shares by which they shrink.
    means, weights = (grid.reshape(-1, 1) for grid in np.meshgrid(means, pairs * odds))
    narrow = scipy.special.betainc(means * weights, (1 - means) * weights, _EDGES)
    narrow, wide = np.diff(narrow), np.diff(scipy.special.betainc(0.5, 0.5, _EDGES))
    priors = np.concatenate([narrow + part * (wide - narrow) for part in (0, 0.03, 0.1, 0.25)])
    return priors, np.tile(np.log(means * (1 - means))[:, 0], 4)


def _smooth_prior(likely: np.ndarray, start: np.ndarray) -> np.ndarray:
    """A prior of any form: smoothed rounds of expectation-maximisation (Silverman et al., 1990).

    A part of the start stays in it, so that no prompt makes a prior of its own.
    """
    prior = start = start / start.sum()
    for _ in range(_ROUNDS):
        padded = np.pad(_normalised(likely * prior).mean(axis=0), 1, mode="edge")
        prior = padded[1:-1] / 2 + (padded[:-2] + padded[2:]) / 4
    return _OTHERS * start + (1 - _OTHERS) * prior


def _normalised(density: np.ndarray) -> np.ndarray:
    return density / np.sum(density, axis=1, keepdims=True)
