"""Guidance: CV eq. 14 and appendix C, against the library and five-point differences.

Latents are the rows of z `[n, d]`, the last one is guided; what is printed is computed in NumPy.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import condvendi_jax as cv
from theory_checks import latex, numerics, statements
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, compared, equal

# Error of the five-point difference at h = 1e-3: h^4 f^(5) / 30 in truncation, 1e-13 in rounding.
STEP, TOLERANCE = 1e-3, 1e-8
N, T, DIMENSION, PROMPT_BANDWIDTH = 6, 3, 3, 1.5


def difference(
    function: Callable[[Any], Any], at: Any = 0.0, along: Any = 1.0, step: float = STEP
) -> Any:
    """Derivative at a point along a direction by the five-point central difference."""
    near, far = (function(at + k * along) - function(at - k * along) for k in (step, 2 * step))
    return (8 * near - far) / (12 * step)


def truncated_entropy(matrix: np.ndarray, t: int) -> float:
    """H^(t) of CV eq. 23, in nats, with 0 log 0 = 0."""
    return float(numerics.entropy(numerics.truncate(np.linalg.eigvalsh(matrix), t)))


EQ_24, EQ_26, EQ_27 = latex.formulas(statements.texts()["cv-eq-25"]["printed"])


def printed_gradient(matrix: np.ndarray, t: int, form: Any = EQ_24) -> np.ndarray:
    """Gradient of H^(t) in the matrix by a formula: CV eq. 24, or what replaces it."""
    values, vectors = (part[..., ::-1][..., :t] for part in np.linalg.eigh(matrix))
    c = (1 - values.sum()) / t
    # What is zero comes out as rounding of either sign.
    values = np.where(np.abs(values + c) < 1e-14, -c, values)
    kept = values > 1e-14
    with np.errstate(divide="ignore", invalid="ignore"):
        names = {"c": c, r"\bar\ell_t": np.log(values + c).mean(), r"\beta": 7.0}
    named = {"V_t": vectors, "I_t": np.eye(t), r"\Lambda_t": np.diag(values)}
    named |= {"V_r": vectors[:, kept], r"\Lambda_r": np.diag(values[kept])}
    named["I"] = np.eye(len(matrix))
    return form(names | {name: latex.matrix(part) for name, part in named.items()})


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
        return np.array([difference(function, self.z, move) for move in moves])

    def accumulate(
        self, in_kernel: np.ndarray, score: float = 1.0, form: Any = EQ_27
    ) -> np.ndarray:
        """The gradient in the last latent out of one in the kernel matrix, times the score."""
        kernel = numerics.gaussian(self.z, bandwidth=self.bandwidth)[:-1, -1:]
        slopes = (self.z[:-1] - self.z[-1]) / self.bandwidth**2 * kernel
        slope = r"(\nabla_{K_Z}H^{(t)}(A))"
        names = {slope + "_{in}": in_kernel[:-1, -1:], slope + "_{ni}": in_kernel[-1:, :-1].T}
        names |= {r"\nabla_{z^{(n)}}k_Z(z^{(i)},z^{(n)})": slopes}
        return np.atleast_1d(form(names | {r"\mathrm{Cond\text{-}Vendi}^{(t)}": score}))

    def library(self, t: int | None = None) -> np.ndarray:
        """What `condvendi_jax.guidance` adds to the last latent; order 2 without t."""
        kernels = cv.Gaussian(self.bandwidth), cv.Gaussian(PROMPT_BANDWIDTH)
        named: Any = {"output_kernel": kernels[0], "prompt_kernel": kernels[1], "window": 0}
        named |= {"prompt_size": self.prompts.shape[1]} | ({"truncation": t} if t else {})
        guide = (cv.guidance.conditional_vendi if t else cv.guidance.conditional_rke)(**named)
        updates, _ = guide.update(0 * self.z, guide.init(self.z), self.z, prompts=self.prompts)
        return np.asarray(updates)[-1]


def _draw(rng: np.random.Generator, t: int = T, alike: bool = False, n: int = N) -> Batch:
    """A batch at which differences stay clear of ties at t and of zero eigenvalues."""
    while True:
        z, prompts = rng.normal(size=(n, DIMENSION)), rng.normal(size=(n, 2))
        batch = Batch(z, prompts * (not alike), rng.uniform(0.7, 2.0))
        values = np.append(np.linalg.eigvalsh(batch.product() / n)[::-1], 0.0)
        if min(values[t - 1] - values[t], values[n - 1]) > 5 * STEP:
            return batch


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    direction = rng.normal(size=(n, n))
    return (direction + direction.T) / math.sqrt(n)


def _matrix(rng: np.random.Generator, values: Any) -> np.ndarray:
    """A unit-trace matrix of these eigenvalues in a random basis."""
    basis = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    return (basis * (np.array(values) / np.sum(values))) @ basis.T


@claim(
    "cv-eq-24-tie",
    stated=lambda inner, r: inner[:r],
    mutants={
        "the mean over the tied space": lambda inner, r: np.full(r, inner.mean()),
        "the smallest of its eigenvalues": lambda inner, r: inner[-r:],
    },
)
def derivative_at_ties(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Derivatives to the right: by the formula, and by one-sided differences."""
    first, form = value
    by_hand, along = np.diag([0.5, 0.25, 0.25]), np.diag([0.0, 1.0, -1.0])
    cases = [(by_hand, along, 2), (by_hand, -along, 2)]
    for values in ([0.4, 0.2, 0.1, 0.1, 0.1], [0.4, 0.2, 0.2, 0.2]) * budget.trials(4):
        cases.append((_matrix(rng, values), _symmetric(rng, len(values)), 3))
    rows, step = [], 1e-5
    for matrix, along, t in cases:
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh(matrix))
        mu, above = values + (1 - values[:t].sum()) / t, values > values[t - 1] + 1e-9
        space = vectors[:, np.abs(values - values[t - 1]) < 1e-9]
        inner = np.linalg.eigvalsh(space.T @ along @ space)[::-1]
        r = t - above.sum()
        names = {r"\bar\ell_t": np.log(mu[:t]).mean(), r"\mu_i": mu[above], r"\mu_t": mu[t - 1]}
        names[r"v_i^\top E v_i"] = np.diag(vectors.T @ along @ vectors)[above]
        formula = form(names | {r"\lambda_j(U^\top E U)": first(inner, r)})
        near = [truncated_entropy(matrix + k * step * along, t) for k in range(3)]
        rows.append((formula, (-3 * near[0] + 4 * near[1] - near[2]) / (2 * step), r))
    return compared("==", rows, "r", tolerance=1e-6)


@claim("cv-eq-24-singular", stated=0, mutants={"the same for t below the rank": 3})
def gradient_of_repeated_pairs(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Latent gradients where A is singular; the guided latent distinct, or itself repeated."""
    less, form = value
    rows, cases = [], [(Batch(np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1))), 3)]
    for trial in range(budget.trials(6)):
        t = N - less - (trial in (1, 3))
        batch = _draw(rng, t)
        if trial < 4:
            again = -1 if trial == 0 else 1
            batch.z[again], batch.prompts[again] = batch.z[0], batch.prompts[0]
        cases.append((batch, t))
    for batch, t in cases:
        slope = printed_gradient(batch.product() / batch.n, t, form)
        found = batch.accumulate(chain(slope, batch.gram_t))
        rows += zip(found, batch.measured(batch.entropy(t)), strict=True)
    return compared("==", rows, tolerance=1e-6)


@claim("cv-eq-21-23")
def truncated_score(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Eq. 21 to 23 as printed, against the library's truncated score; trace and sign of A."""
    product, shift, entropy = value
    found, others = [], []
    for trial in range(budget.trials(12)):
        n, scores = N - trial // 3 % 2, []
        t, batch = (1, T, n)[trial % 3], _draw(rng, T, n=n)
        gram_z = numerics.gaussian(batch.z, bandwidth=batch.bandwidth)
        grams = {"K_Z": latex.matrix(gram_z), "K_T": latex.matrix(batch.gram_t)}
        joint = product(grams | {"n": n})
        for matrix in (joint, batch.gram_t / n):
            values = np.linalg.eigvalsh(matrix)[::-1][:t]
            c = shift({"S_t": values.sum(), "t": t})
            scores.append(entropy({r"\lambda_i": values, "c": c}))
        kernels = cv.Gaussian(batch.bandwidth), cv.Gaussian(PROMPT_BANDWIDTH)
        pairs = cv.Pairs(batch.z, batch.prompts, output_kernel=kernels[0], prompt_kernel=kernels[1])
        found += [np.trace(joint), min(np.linalg.eigvalsh(joint)[0], 0.0), scores[0] - scores[1]]
        others += [1.0, 0.0, np.log(cv.conditional_vendi(pairs, truncation=t))]
    return equal(found, others, tolerance=1e-9)


def chain(slope: np.ndarray, gram_t: np.ndarray, form: Any = EQ_26) -> np.ndarray:
    """Eq. 26: the gradient in K_Z out of one in A."""
    names = {r"\nabla_AH^{(t)}(A)": latex.matrix(slope), "K_T": latex.matrix(gram_t)}
    return np.asarray(form(names | {"n": len(gram_t)}))


@claim("cv-eq-25")
def latent_gradient(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Slopes in any symmetric change of K_Z, in the last latent, and of the library's guidance."""
    in_matrix, in_gram, in_latent = value
    printed, measured = [], []
    for trial in range(budget.trials(12)):
        t, alike = 1 + trial % N, trial > N
        n = N - (t == 2)
        batch, along = _draw(rng, t, alike, n), _symmetric(rng, n)
        joint, gram_t = batch.product() / n, batch.gram_t
        in_kernel = chain(printed_gradient(joint, t, in_matrix), gram_t, in_gram)
        printed += [np.sum(in_kernel * along), batch.accumulate(in_kernel, 1.0, in_latent)]
        slope = difference(partial(truncated_entropy, t=t), joint, along * gram_t / n, 1e-4)
        measured += [slope, batch.measured(batch.entropy(t))]
        if t == T:
            printed.append(batch.accumulate(in_kernel, batch.score(T), in_latent))
            measured.append(batch.library(T))
    return equal(np.hstack(printed), np.hstack(measured), tolerance=1e-6)


@claim("cv-rke-guidance")
def order_2_gradients(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Against entropies of spectra, differences, and the library's guidance."""
    found, others = [], []
    for trial in range(budget.trials(8)):
        batch, along = _draw(rng, N, alike=trial < 2), _symmetric(rng, N)
        batch.bandwidth = batch.bandwidth if trial % 2 else 1.0
        joint, gram_t, score = batch.product(), batch.gram_t, batch.conditional_rke()
        spectra = numerics.spectrum(gram_t), numerics.spectrum(joint)
        entropies = [numerics.entropy(values, 2.0) for values in spectra]
        names = {"K_T": latex.matrix(gram_t), "S": latex.matrix(joint), "S_{in}": joint[:, -1:]}
        names |= {"s": score, r"\sigma": batch.bandwidth}
        names |= {"z^{(n)}": batch.z[-1], "z^{(i)}": batch.z}
        slope = value[1](names)
        in_kernel = np.asarray(value[2](names | {r"\nabla_Ss": latex.matrix(slope)}))
        found += [value[0](names), np.sum(slope * along), np.sum(in_kernel * along)]
        found += [batch.accumulate(in_kernel), value[3](names)]
        others.append(np.exp(entropies[1] - entropies[0]))
        for change in (along, along * gram_t):
            others.append(np.sum(gram_t**2) * difference(lambda s: 1 / np.sum(s**2), joint, change))
        others += [batch.library(), batch.measured(batch.conditional_rke)]
    return equal(np.hstack(found), np.hstack(others), tolerance=TOLERANCE)


@claim("cv-rke-guidance-step")
def size_of_a_push(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The library's updates against both bounds, and where they are attained, or nearly so."""
    rows = []
    for trial in range(budget.trials(20)):
        batch, far = _draw(rng, N), rng.uniform(-2, 0.3) if trial > 4 else -2
        batch.bandwidth = batch.bandwidth if trial % 8 else 1.0
        if together := trial % 2:
            length = batch.bandwidth * (0.5**0.5 if trial % 4 == 1 else 10**far)
            batch.z[:] = batch.z[0]
            rows.append((np.linalg.norm(batch.library()), 0.0))
            batch.z[-1] += length * numerics.unit_features(rng, 1, DIMENSION)[0]
        away, push = batch.z[-1] - batch.z[0], batch.library()
        joint, gram_t = batch.product(), batch.gram_t
        names = {"s": batch.conditional_rke(), r"\sigma": batch.bandwidth}
        names |= {r"\lVert\Delta\rVert": np.linalg.norm(away)}
        names |= {r"\lVert S\rVert_F": np.sqrt(np.sum(joint**2))}
        names |= {r"\lVert K_T\rVert_F": np.sqrt(np.sum(gram_t**2))}
        names |= {"k_T^2(t_i,t_n)": gram_t[:-1, -1:] ** 2, "S_{in}": joint[:-1, -1:]}
        most, least = (form(names) for form in value)
        rows.append((np.linalg.norm(push), most))
        # Attained: the others at one point at distance sigma / sqrt(2), or for the second near it.
        rows += [rows[-1][::-1]] if trial % 4 == 1 else []
        rows += [(least, push @ away)] if together else []
        rows += [(push @ away / 1.01, least)] if trial == 3 else []
    return compared("<=", rows)
