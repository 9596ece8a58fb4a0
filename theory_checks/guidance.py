"""Guidance: CV eq. 14 and appendix C, against the library and five-point differences.

Latents are the rows of z `[n, d]`, the last one is guided; what is printed is computed in NumPy.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import condvendi_jax as cv
from theory_checks import numerics
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, at_most, concatenate, equal, rate

# Error of the five-point difference at h = 1e-3: h^4 f^(5) / 30 in truncation, 1e-13 in rounding.
STEP, TOLERANCE = 1e-3, 1e-8
N, T, DIMENSION, PROMPT_BANDWIDTH = 6, 3, 3, 1.5


def difference(function: Callable[[float], Any], step: float = STEP) -> Any:
    """Derivative at 0 by the five-point central difference."""
    near = function(step) - function(-step)
    return (8 * near - (function(2 * step) - function(-2 * step))) / (12 * step)


def truncated_entropy(matrix: np.ndarray, t: int) -> float:
    """H^(t) of CV eq. 23, in nats, with 0 log 0 = 0."""
    return float(numerics.entropy(numerics.truncate(np.linalg.eigvalsh(matrix), t)))


def entropy_along(matrix: np.ndarray, direction: np.ndarray, t: int) -> Callable[[float], float]:
    """H^(t) on a line of matrices, as a function of the step."""
    return lambda step: truncated_entropy(matrix + step * direction, t)


def _inverse_square(matrix: np.ndarray, direction: np.ndarray, step: float) -> float:
    return 1 / float(np.sum((matrix + step * direction) ** 2))


def printed_gradient(matrix: np.ndarray, t: int, weights: Any = None) -> np.ndarray:
    """Gradient of H^(t) in the matrix (CV eq. 24), or with other weights of the logarithms."""
    values, vectors = (part[..., ::-1][..., :t] for part in np.linalg.eigh(matrix))
    shifted = values + (1 - values.sum()) / t
    with np.errstate(divide="ignore", invalid="ignore"):
        # What is zero comes out as rounding of either sign.
        logs = np.log(np.where(np.abs(shifted) < 1e-14, 0.0, shifted))
        return (vectors * (weights(logs) if weights else logs.mean() - logs)) @ vectors.T


class Batch:
    """Latents and prompts, with everything that eq. 21-27 name."""

    def __init__(self, z: np.ndarray, prompts: np.ndarray, bandwidth: float = 1.0):
        """Gaussian kernels of both."""
        self.z, self.prompts, self.bandwidth, self.n = z, prompts, bandwidth, len(z)

    @property
    def gram_t(self) -> np.ndarray:
        """K_T."""
        return numerics.gaussian(self.prompts, bandwidth=PROMPT_BANDWIDTH)

    def product(self, z: np.ndarray | None = None) -> np.ndarray:
        """K_Z * K_T, of other latents where given."""
        z = self.z if z is None else z
        return numerics.gaussian(z, bandwidth=self.bandwidth) * self.gram_t

    def entropy(self, t: int) -> Callable[[np.ndarray], float]:
        """H^(t)(A) as a function of the latents."""
        return lambda z: truncated_entropy(self.product(z) / self.n, t)

    def score(self, t: int) -> float:
        """Truncated Conditional-Vendi (eq. 22)."""
        return math.exp(self.entropy(t)(self.z) - truncated_entropy(self.gram_t / self.n, t))

    def conditional_rke(self, z: np.ndarray | None = None) -> float:
        """The closed form of appendix C."""
        return float(np.sum(self.gram_t**2) / np.sum(self.product(z) ** 2))

    def measured(self, function: Callable[[np.ndarray], float]) -> np.ndarray:
        """Gradient in the last latent by differences."""
        moves = np.zeros((self.z.shape[1], *self.z.shape))
        moves[:, -1] = np.eye(self.z.shape[1])
        return np.array([difference(lambda h, m=m: function(self.z + h * m)) for m in moves])

    def accumulate(self, in_kernel: np.ndarray) -> np.ndarray:
        """Eq. 27: the gradient in the last latent out of one in the kernel matrix."""
        kernel = numerics.gaussian(self.z, bandwidth=self.bandwidth)[:-1, -1:]
        slopes = (self.z[:-1] - self.z[-1]) / self.bandwidth**2 * kernel
        return (in_kernel[:-1, -1] + in_kernel[-1, :-1]) @ slopes

    def library(self, t: int | None = None) -> np.ndarray:
        """What `condvendi_jax.guidance` adds to the last latent; order 2 without t."""
        kernels = cv.Gaussian(self.bandwidth), cv.Gaussian(PROMPT_BANDWIDTH)
        named: Any = {"output_kernel": kernels[0], "prompt_kernel": kernels[1], "window": 0}
        named |= {"prompt_size": self.prompts.shape[1]} | ({"truncation": t} if t else {})
        kind = cv.guidance.conditional_vendi if t else cv.guidance.conditional_rke
        guide = kind(**named)
        state = guide.init(self.z)
        updates, _ = guide.update(0 * self.z, state, self.z, prompts=self.prompts)
        return np.asarray(updates)[-1]


def _draw(rng: np.random.Generator, t: int = T) -> Batch:
    """A batch at which differences stay clear of ties at t and of zero eigenvalues."""
    while True:
        z, prompts = rng.normal(size=(N, DIMENSION)), rng.normal(size=(N, 2))
        batch = Batch(z, prompts, rng.uniform(0.7, 2.0))
        values = np.append(np.linalg.eigvalsh(batch.product() / N)[::-1], 0.0)
        if min(values[t - 1] - values[t], values[N - 1]) > 5 * STEP:
            return batch


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    direction = rng.normal(size=(n, n))
    return (direction + direction.T) / math.sqrt(n)


def _matrix(rng: np.random.Generator, values: Any) -> np.ndarray:
    """A unit-trace matrix of these eigenvalues in a random basis."""
    basis = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    return (basis * (np.array(values) / np.sum(values))) @ basis.T


def _stack(parts: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts])


@claim(
    "cv-eq-21-23",
    stated=(N, 1.0, numerics.truncate),
    mutants={
        "not divided by n": (1, 1.0, numerics.truncate),
        "without the prompts": (N, 0.0, numerics.truncate),
        "two thirds of their entropy": (N, 2 / 3, numerics.truncate),
        "no shift": (N, 1.0, lambda values, t: values[:t]),
        "scaled instead of shifted": (N, 1.0, lambda values, t: values[:t] / values[:t].sum()),
    },
)
def truncated_score(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Trace, what is negative of the spectrum, and the score against the library's."""
    divisor, share, truncate = value
    printed, others = [], []
    for _ in range(budget.trials(9)):
        batch = _draw(rng)
        spectra = [np.linalg.eigvalsh(g / divisor)[::-1] for g in (batch.product(), batch.gram_t)]
        joint, prompts = (numerics.entropy(truncate(values, T)) for values in spectra)
        printed += [spectra[0].sum(), min(spectra[0][-1], 0.0), np.exp(joint - share * prompts)]
        kernels: Any = {"output_kernel": cv.Gaussian(batch.bandwidth), "truncation": T}
        kernels |= {"prompt_kernel": cv.Gaussian(PROMPT_BANDWIDTH)}
        others += [1.0, 0.0, float(cv.conditional_vendi(batch.z, batch.prompts, **kernels))]
    return equal(printed, others)


@claim(
    "cv-eq-24",
    mutants={
        "the sign": lambda logs: logs - logs.mean(),
        "-1 - log, as without the shift": lambda logs: -1 - logs,
        "half the mean logarithm": lambda logs: 0.5 * logs.mean() - logs,
    },
)
def truncated_gradient(rng: np.random.Generator, budget: Budget, weights: Any) -> Evidence:
    """Directional derivatives, printed and by differences; ties among the t largest included."""
    cases: list[Any] = [([0.4, 0.4, 0.2, 0.05, 0.03], 3), ([0.4, 0.4, 0.2, 0.2, 0.03], 4)]
    for trial in range(budget.trials(20)):
        values = np.sort(rng.uniform(0.2, 1.0, 5))[::-1]
        cases.append((values + 0.4 * (np.arange(5) <= trial % 5), 1 + trial % 5))
    printed, measured = [], []
    for values, t in cases:
        matrix, along = _matrix(rng, values), _symmetric(rng, 5)
        printed.append(np.sum(printed_gradient(matrix, t, weights) * along))
        measured.append(difference(entropy_along(matrix, along, t), 1e-4))
    return equal(printed, measured, tolerance=TOLERANCE)


@claim(
    "cv-eq-24-tie",
    corrected=lambda inner, r: inner[:r].sum(),
    mutants={
        "the mean over the tied space": lambda inner, r: r * inner.mean(),
        "the smallest of its eigenvalues": lambda inner, r: inner[-r:].sum(),
    },
)
def derivative_at_ties(rng: np.random.Generator, budget: Budget, tied_part: Any) -> Evidence:
    """Derivatives to the right: by the formula, and by one-sided differences."""
    by_hand, along = np.diag([0.5, 0.25, 0.25]), np.diag([0.0, 1.0, -1.0])
    cases = [(by_hand, along, 2), (by_hand, -along, 2)]
    for trial in range(budget.trials(8)):
        values, t = (([0.5, 0.2, 0.2, 0.1], 2), ([0.4, 0.2, 0.2, 0.2], 3))[trial % 2]
        cases.append((_matrix(rng, values), _symmetric(rng, 4), t))
    formula, measured, step = [], [], 1e-5
    for matrix, along, t in cases:
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh(matrix))
        weights = -np.log(values[:t] + (1 - values[:t].sum()) / t)
        weights -= weights.mean()
        space = vectors[:, np.abs(values - values[t - 1]) < 1e-9]
        inner = np.linalg.eigvalsh(space.T @ along @ space)[::-1]
        if tied_part is None:
            formula.append(np.sum(printed_gradient(matrix, t) * along))
        else:
            alone = weights[0] * (vectors[:, 0] @ along @ vectors[:, 0])
            formula.append(alone + weights[-1] * tied_part(inner, t - 1))
        near = [truncated_entropy(matrix + k * step * along, t) for k in range(3)]
        measured.append((-3 * near[0] + 4 * near[1] - near[2]) / (2 * step))
    shown = [f"diag(1/2, 1/4, 1/4), t = 2, along {sign}diag(0, 1, -1)" for sign in ("", "-")]
    return equal(
        formula,
        measured,
        tolerance=1e-6,
        size=[len(matrix) for matrix, _, _ in cases],
        parameters={"matrix": shown + ["random"] * (len(cases) - 2)},
    )


def _logs(sign: float, beta: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
    """Weights -log for eigenvalues that are not zero."""
    return lambda logs: beta - sign * np.where(np.isinf(logs), 0.0, logs)


@claim(
    "cv-eq-24-singular",
    corrected=(0, _logs(1.0, 7.0)),
    mutants={
        "the sign": (0, _logs(-1.0)),
        "two thirds of the logarithms": (0, _logs(2 / 3)),
        "the same for t below the rank": (3, _logs(1.0)),
    },
)
def gradient_of_repeated_pairs(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Latent gradients where A is singular; the guided latent distinct, or itself repeated."""
    less, weights = value or (0, None)
    cases = [(Batch(np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1))), 3)]
    for trial in range(budget.trials(6)):
        t = N - less - (trial in (1, 3))
        batch = _draw(rng, t)
        if trial < 4 or not value:
            again = -1 if trial == 0 else 1
            batch.z[again], batch.prompts[again] = batch.z[0], batch.prompts[0]
        cases.append((batch, t))
    found = []
    for batch, t in cases:
        slope = printed_gradient(batch.product() / batch.n, t, weights)
        found.append(batch.accumulate(slope * batch.gram_t / batch.n))
    measured = [batch.measured(batch.entropy(t)) for batch, t in cases]
    sizes = np.repeat([batch.n for batch, _ in cases], [len(part) for part in found])
    shown = ["latents 0, 0, 1 of one prompt, t = 3"] + ["random"] * (len(sizes) - 1)
    parts = _stack(found), _stack(measured)
    return equal(*parts, tolerance=1e-6, parameters={"pairs": shown}, size=sizes)


@claim(
    "cv-eq-25",
    stated=1.0,
    mutants={"without the score": 0.0, "divided by it": -1.0, "its square root": 0.5},
)
def score_gradient(rng: np.random.Generator, budget: Budget, power: float) -> Evidence:
    """Score times the entropy's gradient by differences, against the library's guidance."""
    batches = [_draw(rng) for _ in range(budget.trials(6))]
    found = [batch.score(T) ** power * batch.measured(batch.entropy(T)) for batch in batches]
    return equal(_stack(found), _stack(b.library(T) for b in batches), tolerance=TOLERANCE)


@claim(
    "cv-eq-26-27",
    stated=(lambda slope, k_t: slope * k_t / N, 1.0),
    mutants={
        "not divided by n": (lambda slope, k_t: slope * k_t, 1.0),
        "without the prompts": (lambda slope, k_t: slope / N, 1.0),
        "the matrix product": (lambda slope, k_t: slope @ k_t / N, 1.0),
        "one of the two entries": (lambda slope, k_t: slope * k_t / N, 0.0),
    },
)
def latent_gradient(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Slopes in any symmetric change of K_Z, and in the last latent, against differences."""
    chain, entry = value
    printed, measured = [], []
    for trial in range(budget.trials(12)):
        t = 1 + trial % N
        batch, along = _draw(rng, t), _symmetric(rng, N)
        joint, gram_t = batch.product() / N, batch.gram_t
        in_kernel = chain(printed_gradient(joint, t), gram_t)
        once = np.tril(in_kernel) + entry * np.triu(in_kernel, 1)
        printed += [[np.sum(in_kernel * along)], batch.accumulate(once)]
        line = entropy_along(joint, along * gram_t / N, t)
        measured += [[difference(line, 1e-4)], batch.measured(batch.entropy(t))]
    return equal(_stack(printed), _stack(measured), tolerance=1e-6)


@claim(
    "cv-rke-guidance",
    stated=(2.0, 2.0, 1.0, 2),
    mutants={
        "a half of the gradient": (1.0, 2.0, 1.0, 2),
        "the square of the norm for its fourth power": (2.0, 1.0, 1.0, 2),
        "no Hadamard product": (2.0, 2.0, 0.0, 2),
        "kernels without squares": (2.0, 2.0, 1.0, 1),
    },
)
def order_2_gradients(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Against entropies of spectra, differences, and the library's guidance."""
    factor, norm, chain, square = value
    found, others = [], []
    for _ in range(budget.trials(8)):
        batch, along = _draw(rng, N), _symmetric(rng, N)
        joint, gram_t, score = batch.product(), batch.gram_t, batch.conditional_rke()
        spectra = numerics.spectrum(gram_t), numerics.spectrum(joint)
        entropies = [numerics.entropy(values, 2.0) for values in spectra]
        slope = -factor * np.sum(gram_t**2) * joint / np.sum(joint**2) ** norm
        in_kernel = slope * gram_t**chain
        push = joint[-1] ** square @ (batch.z[-1] - batch.z) / np.sum(joint**2)
        found += [score, np.sum(slope * along), np.sum(in_kernel * along)]
        found += [batch.accumulate(in_kernel), 4 * score / batch.bandwidth**2 * push]
        others.append(np.exp(entropies[1] - entropies[0]))
        for step in (along, along * gram_t):
            line = partial(_inverse_square, joint, step)
            others.append(np.sum(gram_t**2) * difference(line))
        others += [batch.library(), batch.measured(batch.conditional_rke)]
    return equal(_stack(found), _stack(others), tolerance=TOLERANCE)


@claim(
    "cv-rke-guidance-cost",
    stated=lambda joint: jnp.sum(joint**2),
    mutants={"the norm as the trace of a product": lambda joint: jnp.trace(joint @ joint)},
)
def order_2_cost(rng: np.random.Generator, budget: Budget, norm: Any) -> Evidence:
    """Operations that XLA counts for value and gradient, against n."""
    counts, sizes = [], [64, 128, 256, 512]

    def score(z: jax.Array, gram_t: jax.Array) -> jax.Array:
        squares = jnp.sum(z**2, 1)
        return norm(gram_t) / norm(
            jnp.exp(z @ z.T - squares[:, None] / 2 - squares[None] / 2) * gram_t
        )

    for n in sizes:
        shapes = [jax.ShapeDtypeStruct(shape, float) for shape in ((n, DIMENSION), (n, n))]
        lowered: Any = jax.jit(jax.value_and_grad(score)).lower(*shapes)
        counts.append(lowered.cost_analysis()["flops"])
    return rate(counts, (-np.inf, 2.0), sizes)


@claim(
    "cv-rke-guidance-step",
    stated=(1.0, 1.0),
    mutants={
        "two thirds of the first": (2 / 3, 1.0),
        "the first 1.5 times weaker": (1.5, 1.0),
        "three halves of the second": (1.0, 1.5),
    },
)
def size_of_a_push(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The library's updates against both bounds, and where the first one is attained."""
    parts = []
    for trial in range(budget.trials(20)):
        batch = _draw(rng, N)
        if together := trial % 2:
            length = batch.bandwidth * (0.5**0.5 if trial % 4 == 1 else 10 ** rng.uniform(-2, 0.3))
            batch.z[:] = batch.z[0]
            parts.append(at_most(np.linalg.norm(batch.library()), 0.0))
            batch.z[-1] += length * numerics.unit_features(rng, 1, DIMENSION)[0]
        away, joint, gram_t = batch.z[-1] - batch.z[0], batch.product(), batch.gram_t
        push, near = batch.library(), np.sum(gram_t[:-1, -1] ** 2)
        most = 4 * batch.conditional_rke() / (batch.bandwidth * np.sqrt(2 * np.e))
        both = np.linalg.norm(push), value[0] * most * near / np.sum(joint**2)
        parts.append(at_most(*both))
        # The others at one point at distance sigma / sqrt(2).
        parts.append(at_most(*both[::-1], premise_met=trial % 4 == 1))
        least = 4 / batch.bandwidth**2 * np.sum(joint[:-1, -1] ** 2) / np.sum(gram_t**2)
        bounds = value[1] * least, push @ away / (away @ away)
        parts.append(at_most(*bounds, premise_met=bool(together)))
    return concatenate(*parts)
