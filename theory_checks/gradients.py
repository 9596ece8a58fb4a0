"""Guidance gradients: eq. 21-27 of the CV paper and its Conditional-RKE gradient.

Every formula is compared with automatic differentiation and with a five-point central difference,
both in float64. Latents are the rows of z `[n, d]`; the last one is the one that is guided.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from theory_checks.claim import Budget, Evidence, Verdict, at_most, claim, equal, limit

# Error of the five-point difference at h = 1e-3: h^4 f^(5) / 30 in truncation, 1e-13 in rounding.
STEP = 1e-3
TOLERANCE = 1e-8


def difference(function: Callable[[float], float], step: float = STEP) -> float:
    """Derivative at 0 by the five-point central difference."""
    near = function(step) - function(-step)
    far = function(2 * step) - function(-2 * step)
    return (8 * near - far) / (12 * step)


def truncated_entropy(matrix: np.ndarray, truncation: int) -> float:
    """H^(t) of CV eq. 23, in nats, with 0 log 0 = 0."""
    top = np.linalg.eigvalsh(matrix)[::-1][:truncation]
    shifted = top + (1 - top.sum()) / truncation
    return float(-np.sum(shifted * np.log(np.where(shifted > 1e-15, shifted, 1.0))))


def printed_gradient(matrix: np.ndarray, truncation: int) -> np.ndarray:
    """Gradient of H^(t) in the matrix as printed in CV eq. 24."""
    values, vectors = np.linalg.eigh(matrix)
    top, basis = values[::-1][:truncation], vectors[:, ::-1][:, :truncation]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(top + (1 - top.sum()) / truncation)
        return (basis * (logs.mean() - logs)) @ basis.T


def _kernel(z: jax.Array, bandwidth: float) -> jax.Array:
    gaps = z[:, None] - z[None]
    return jnp.exp(-jnp.sum(gaps**2, -1) / (2 * bandwidth**2))


def gaussian(z: np.ndarray, bandwidth: float) -> np.ndarray:
    """Gaussian kernel matrix of the rows of z."""
    gaps = z[:, None] - z[None]
    return np.exp(-np.sum(gaps**2, -1) / (2 * bandwidth**2))


def kernel_gradient(z: np.ndarray, bandwidth: float) -> np.ndarray:
    """Gradients of k(z_i, z_n) in z_n for every i, `[n, d]`."""
    return (z - z[-1]) / bandwidth**2 * gaussian(z, bandwidth)[:, -1:]


@partial(jax.jit, static_argnums=2)
def _entropy_of_latents(
    z: jax.Array, gram_t: jax.Array, truncation: int, width: float
) -> jax.Array:
    matrix = _kernel(z, width) * gram_t / len(gram_t)
    return _entropy_of_matrix(matrix, truncation)


@partial(jax.jit, static_argnums=1)
def _entropy_of_matrix(matrix: jax.Array, truncation: int) -> jax.Array:
    top = jnp.linalg.eigvalsh(matrix)[::-1][:truncation]
    shifted = top + (1 - top.sum()) / truncation
    return -jnp.sum(shifted * jnp.log(shifted))


@jax.jit
def _conditional_rke(gram_z: jax.Array, gram_t: jax.Array) -> jax.Array:
    return jnp.sum(gram_t**2) / jnp.sum((gram_z * gram_t) ** 2)


@jax.jit
def _conditional_rke_of_latents(z: jax.Array, gram_t: jax.Array, width: float) -> jax.Array:
    return _conditional_rke(_kernel(z, width), gram_t)


_GRADIENT_IN_MATRIX = jax.jit(jax.grad(_entropy_of_matrix), static_argnums=1)
_GRADIENT_IN_LATENTS = jax.jit(jax.grad(_entropy_of_latents), static_argnums=2)
_RKE_IN_LATENTS = jax.jit(jax.grad(_conditional_rke_of_latents))
_RKE_IN_KERNEL = jax.jit(jax.grad(_conditional_rke))

N, DIMENSION = 6, 3


class Batch:
    """A random batch of latents and a prompt kernel, with everything eq. 21-27 name."""

    def __init__(self, rng: np.random.Generator, truncation: int, *, n: int = N):
        """Draws n pairs; `truncation` is the t of the entropy."""
        self.truncation = truncation
        self._draw(rng, n)
        while not self._regular():
            self._draw(rng, n)

    def _draw(self, rng: np.random.Generator, n: int) -> None:
        self.z = rng.normal(size=(n, DIMENSION))
        self.bandwidth = float(rng.uniform(0.7, 2.0))
        self.gram_t = gaussian(rng.normal(size=(n, 2)), 1.5)

    def _regular(self) -> bool:
        """Whether differences with steps of `STEP` stay clear of ties at t and of zero."""
        values = np.append(np.linalg.eigvalsh(self.joint)[::-1], 0.0)
        gaps = values[[self.truncation - 1, -2]] - values[[self.truncation, -1]]
        return bool(np.min(gaps) > 5 * STEP)

    @property
    def joint(self) -> np.ndarray:
        """A of eq. 21."""
        return gaussian(self.z, self.bandwidth) * self.gram_t / len(self.z)

    def entropy(self, z: np.ndarray) -> float:
        """H^(t)(A) at other latents."""
        joint = gaussian(z, self.bandwidth) * self.gram_t / len(z)
        return truncated_entropy(joint, self.truncation)

    def score(self, z: np.ndarray) -> float:
        """Truncated Conditional-Vendi of eq. 22."""
        prompts = truncated_entropy(self.gram_t / len(z), self.truncation)
        return math.exp(self.entropy(z) - prompts)

    def moved(self, function: Callable[[np.ndarray], float]) -> np.ndarray:
        """Gradient of a function of the latents in the last one, by differences."""
        gradient = np.zeros(DIMENSION)
        for axis in range(DIMENSION):
            step = np.zeros_like(self.z)
            step[-1, axis] = 1.0
            gradient[axis] = difference(lambda h, step=step: function(self.z + h * step))
        return gradient

    def accumulate(self, in_kernel: np.ndarray) -> np.ndarray:
        """Eq. 27: gradient in the last latent out of a gradient in the kernel matrix."""
        slopes = kernel_gradient(self.z, self.bandwidth)[:-1]
        return (in_kernel[:-1, -1] + in_kernel[-1, :-1]) @ slopes


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    direction = rng.normal(size=(n, n))
    return (direction + direction.T) / math.sqrt(n)


def _separated(rng: np.random.Generator, n: int, truncation: int) -> np.ndarray:
    """Unit-trace PSD matrix whose eigenvalues t and t+1 are well apart."""
    values = np.sort(rng.uniform(0.2, 1.0, n))[::-1]
    values[:truncation] += 0.4
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (basis * (values / values.sum())) @ basis.T


def _stack(*blocks: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ravel(block) for block in blocks])


@claim(
    name="gradient-eq-21",
    source="CV eq. 21",
    statement=r"A = \frac{1}{n} (K_Z \odot K_T), \quad \text{Tr}(A) = 1",
    expected=Verdict.HOLDS,
    assumptions="normalised kernels",
    parameters={"n": "6", "bandwidth": "0.7..2"},
    note="A is positive semidefinite as well, by Schur's theorem.",
)
def joint_has_unit_trace(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Trace and least eigenvalue of the joint matrix."""
    batches = [Batch(rng, 3) for _ in range(budget.trials(20))]
    traces = [np.trace(batch.joint) for batch in batches]
    negative = [min(np.linalg.eigvalsh(batch.joint)[0], 0.0) for batch in batches]
    return equal([*traces, *negative], [1.0] * len(traces) + [0.0] * len(negative))


@claim(
    name="gradient-eq-23",
    source="CV eq. 23",
    statement=r"H^{(t)}(M) = -\sum_{i=1}^t (\lambda_i + c)\log(\lambda_i + c), c = "
    r"\frac{1 - S_t}{t}\text{: the shifted eigenvalues sum to one, so } 0 \leq H^{(t)} \leq \log t",
    expected=Verdict.HOLDS,
    assumptions="M PSD with unit trace",
    parameters={"n": "5", "t": "1..5"},
)
def truncated_entropy_range(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Truncated entropy of random unit-trace matrices between 0 and log t."""
    values, limits = [], []
    for trial in range(budget.trials(30)):
        t = 1 + trial % 5
        value = truncated_entropy(_separated(rng, 5, t), t)
        values += [value, -value]
        limits += [math.log(t), 0.0]
    return at_most(values, limits, tolerance=1e-12)


@claim(
    name="gradient-eq-24",
    source="CV eq. 24",
    statement=r"\nabla_M H^{(t)}(M) = -V_t \log(\Lambda_t + cI_t) V_t^\top + "
    r"\bar{\ell}_t V_t V_t^\top, \bar{\ell}_t = \frac{1}{t} \sum_{i=1}^t \log(\lambda_i + c)",
    expected=Verdict.HOLDS,
    assumptions="lambda_t > lambda_{t+1} and lambda_t + c > 0",
    parameters={"n": "5", "t": "1..5", "directions": "any symmetric, with or without trace"},
    note="Exact off the unit trace too, since c is (1 - S_t)/t: the -1 of the derivative of "
    "x log x cancels against the shift, not by the trace constraint.",
)
def truncated_entropy_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Directional derivatives: printed, automatic and by differences."""
    printed, others = [], []
    for trial in range(budget.trials(15)):
        t = 1 + trial % 5
        matrix, direction = _separated(rng, 5, t), _symmetric(rng, 5)
        slope = np.sum(printed_gradient(matrix, t) * direction)
        automatic = np.sum(np.asarray(_GRADIENT_IN_MATRIX(matrix, t)) * direction)
        measured = difference(
            lambda h, m=matrix, e=direction, t=t: truncated_entropy(m + h * e, t), 1e-4
        )
        printed += [slope, slope]
        others += [automatic, measured]
    return equal(printed, others, tolerance=TOLERANCE)


@claim(
    name="gradient-eq-24-inner-ties",
    source="CV eq. 24, equal eigenvalues inside the top t",
    statement=r"\nabla_M H^{(t)}(M) = -V_t \log(\Lambda_t + cI_t) V_t^\top + "
    r"\bar{\ell}_t V_t V_t^\top",
    expected=Verdict.HOLDS,
    assumptions="lambda_1 = lambda_2 > lambda_3 (= lambda_4) > lambda_{t+1}",
    parameters={"n": "5", "t": "3..4"},
    note="V_t V_t^T does not depend on the basis chosen among equal eigenvalues.",
)
def gradient_at_inner_ties(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Directional derivatives at a repeated eigenvalue inside the top t."""
    printed, measured = [], []
    for trial in range(budget.trials(9)):
        t = 3 + trial % 2
        basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        values = np.array([0.4, 0.4, 0.2, 0.2, 0.03] if t == 4 else [0.4, 0.4, 0.2, 0.05, 0.03])
        matrix, direction = (basis * (values / values.sum())) @ basis.T, _symmetric(rng, 5)
        printed.append(np.sum(printed_gradient(matrix, t) * direction))
        measured.append(
            difference(lambda h, m=matrix, e=direction, t=t: truncated_entropy(m + h * e, t), 1e-4)
        )
    return equal(printed, measured, tolerance=TOLERANCE)


def _tied(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Matrix with lambda_t = lambda_{t+1} (t = 2), a direction, and t."""
    basis = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = (basis * np.array([0.5, 0.2, 0.2, 0.1])) @ basis.T
    return matrix, _symmetric(rng, 4), 2


def _one_sided(matrix: np.ndarray, direction: np.ndarray, truncation: int) -> float:
    """Derivative of H^(t) to the right, by a second-order one-sided difference."""
    step = 1e-5
    value = [truncated_entropy(matrix + k * step * direction, truncation) for k in range(3)]
    return (-3 * value[0] + 4 * value[1] - value[2]) / (2 * step)


SMALL_TIE = (np.diag([0.5, 0.25, 0.25]), np.diag([0.0, 1.0, -1.0]), 2)


@claim(
    name="gradient-eq-24-tie",
    source="CV eq. 24, equal eigenvalues across the truncation",
    statement=r"\nabla_M H^{(t)}(M) = -V_t \log(\Lambda_t + cI_t) V_t^\top + "
    r"\bar{\ell}_t V_t V_t^\top",
    expected=Verdict.FALSE,
    assumptions="none printed; here lambda_t = lambda_{t+1}",
    parameters={"n": "3..4", "t": "2"},
    note="H^(t) has a kink there: V_t is not determined and no gradient exists.",
)
def gradient_at_tie(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Printed directional derivative against both one-sided ones at a tie."""
    printed, measured = [], []
    for matrix, direction, t in [SMALL_TIE, *[_tied(rng) for _ in range(budget.trials(8))]]:
        slope = np.sum(printed_gradient(matrix, t) * direction)
        printed += [slope, slope]
        measured += [_one_sided(matrix, direction, t), -_one_sided(matrix, -direction, t)]
    example = {
        "M": "diag(1/2, 1/4, 1/4)", "t": 2, "direction": "diag(0, 1, -1)",
        "derivative to the right": measured[0], "derivative to the left": measured[1],
    }  # fmt: skip
    return equal(printed, measured, tolerance=1e-4, counterexample=example)


@claim(
    name="gradient-eq-24-tie-corrected",
    source="CV eq. 24, one-sided derivative at a tie",
    statement=r"H'(M; E) = \sum_{i: \lambda_i > \lambda_t}(\bar\ell - \log\mu_i) v_i^\top E v_i + "
    r"(\bar\ell - \log\mu_t)\sum_{j \leq r}\lambda_j(U^\top E U), U\text{ the eigenspace of } "
    r"\lambda_t, r = t - \#\{\lambda_i > \lambda_t\}, \mu = \lambda + c",
    expected=Verdict.HOLDS,
    parameters={"n": "3..4", "t": "2"},
    note="Equals eq. 24 when the eigenspace lies inside the top t.",
    corrects="gradient-eq-24-tie",
)
def one_sided_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """One-sided formula against one-sided differences."""
    formula, measured = [], []
    for matrix, direction, t in [SMALL_TIE, *[_tied(rng) for _ in range(budget.trials(8))]]:
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh(matrix))
        shifted = values[:t] + (1 - values[:t].sum()) / t
        weights = np.log(shifted).mean() - np.log(shifted)
        above = values > values[t - 1] + 1e-9
        tied = np.abs(values - values[t - 1]) <= 1e-9
        inside = np.einsum("ij,jk,ki->i", vectors.T, direction, vectors)[above]
        block = np.linalg.eigvalsh(vectors[:, tied].T @ direction @ vectors[:, tied])[::-1]
        count = t - int(above.sum())
        formula.append(weights[: above.sum()] @ inside + weights[t - 1] * block[:count].sum())
        measured.append(_one_sided(matrix, direction, t))
    return equal(formula, measured, tolerance=1e-6)


def _duplicated(rng: np.random.Generator, truncation: int) -> Batch:
    """A batch whose first two pairs coincide: A is singular."""
    batch = Batch(rng, truncation)
    batch.z[1] = batch.z[0]
    prompts = rng.normal(size=(N, 2))
    prompts[1] = prompts[0]
    batch.gram_t = gaussian(prompts, 1.5)
    return batch


@claim(
    name="gradient-eq-24-singular",
    source="CV eq. 24-27, duplicated pairs with t above the rank",
    statement=r"\nabla_{\mathbf{z}^{(n)}} H^{(t)}(A) = \sum_{i=1}^{n-1}((\nabla_{K_Z} H)_{in} + "
    r"(\nabla_{K_Z} H)_{ni})\nabla_{\mathbf{z}^{(n)}} k_Z(\mathbf{z}^{(i)}, \mathbf{z}^{(n)})",
    expected=Verdict.FALSE,
    assumptions="none printed; here two pairs coincide and t = n, so c = 0 and log 0 occurs",
    parameters={"n": "6", "t": "6"},
    note="The latent gradient exists, the printed route to it is not a number.",
)
def gradient_at_duplicates(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Printed latent gradient against differences where A is singular."""
    printed, measured = [], []
    for _ in range(budget.trials(4)):
        batch = _duplicated(rng, N)
        values, vectors = np.linalg.eigh(batch.joint)
        exact = (vectors * np.where(values > 1e-14, values, 0.0)) @ vectors.T
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.where(values > 1e-14, values, 0.0))
            in_matrix = (vectors * (logs.mean() - logs)) @ vectors.T
            printed.append(batch.accumulate(in_matrix * batch.gram_t / len(exact)))
        measured.append(batch.moved(batch.entropy))
    example = {"z": "z_1 = z_2, t_1 = t_2", "t": "n", "printed": "NaN", "gradient": "finite"}
    return equal(_stack(*printed), _stack(*measured), tolerance=1e-6, counterexample=example)


@claim(
    name="gradient-eq-24-singular-corrected",
    source="CV eq. 24, singular A and t at or above the rank",
    statement=r"\nabla_A H^{(t)}(A) = -V_r\log(\Lambda_r)V_r^\top, r = \mathrm{rank} A \leq t"
    r"\text{: zero eigenvalues dropped, up to a multiple of the identity}",
    expected=Verdict.HOLDS,
    assumptions="diagonal of A fixed; c = 0",
    parameters={"n": "6", "t": "5..6", "moved latent": "distinct, or itself a duplicate"},
    note="The dropped eigenvalues move to second order only.",
    corrects="gradient-eq-24-singular",
)
def gradient_without_zeros(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Latent gradient without the zero eigenvalues against differences."""
    formula, measured = [], []
    for trial in range(budget.trials(6)):
        batch = _duplicated(rng, N - trial % 2)
        if trial % 3 == 0:
            order = [2, 3, 4, 5, 0, 1]
            batch.z, batch.gram_t = batch.z[order], batch.gram_t[np.ix_(order, order)]
        values, vectors = np.linalg.eigh(batch.joint)
        kept = values > 1e-12
        logs = (vectors[:, kept] * np.log(values[kept])) @ vectors[:, kept].T
        formula.append(batch.accumulate(-logs * batch.gram_t / N))
        measured.append(batch.moved(batch.entropy))
    return equal(_stack(*formula), _stack(*measured), tolerance=1e-6)


@claim(
    name="gradient-eq-25",
    source="CV eq. 25",
    statement=r"\nabla_{\mathbf{z}^{(n)}} \text{Conditional-Vendi}^{(t)}(z_{1:n}; t_{1:n}) = "
    r"\text{Conditional-Vendi}^{(t)}(z_{1:n}; t_{1:n}) \cdot \nabla_{\mathbf{z}^{(n)}} H^{(t)}(A)",
    expected=Verdict.HOLDS,
    parameters={"n": "6", "t": "1..6"},
)
def score_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Gradient of the score by differences against score times entropy gradient."""
    printed, measured = [], []
    for trial in range(budget.trials(12)):
        batch = Batch(rng, 1 + trial % N)
        slope = _GRADIENT_IN_LATENTS(batch.z, batch.gram_t, batch.truncation, batch.bandwidth)
        printed.append(batch.score(batch.z) * np.asarray(slope)[-1])
        measured.append(batch.moved(batch.score))
    return equal(_stack(*printed), _stack(*measured), tolerance=TOLERANCE)


@claim(
    name="gradient-eq-26",
    source="CV eq. 26",
    statement=r"\nabla_{K_Z} H^{(t)}(A) = \frac{1}{n} (\nabla_A H^{(t)}(A)) \odot K_T",
    expected=Verdict.HOLDS,
    assumptions="lambda_t > lambda_{t+1} > 0",
    parameters={"n": "6", "t": "1..6", "directions": "any symmetric change of K_Z"},
)
def gradient_in_kernel(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Directional derivatives in K_Z against the chain rule."""
    printed, measured = [], []
    for trial in range(budget.trials(12)):
        batch = Batch(rng, 1 + trial % N)
        in_kernel = printed_gradient(batch.joint, batch.truncation) * batch.gram_t / N
        direction = _symmetric(rng, N)
        printed.append(np.sum(in_kernel * direction))
        measured.append(
            difference(
                lambda h, b=batch, e=direction: truncated_entropy(
                    b.joint + h * e * b.gram_t / N, b.truncation
                ),
                1e-4,
            )
        )
    return equal(printed, measured, tolerance=1e-6)


@claim(
    name="gradient-eq-27",
    source="CV eq. 27",
    statement=r"\nabla_{\mathbf{z}^{(n)}} H^{(t)}(A) = \sum_{i=1}^{n-1} ((\nabla_{K_Z} "
    r"H^{(t)}(A))_{in} + (\nabla_{K_Z} H^{(t)}(A))_{ni}) \nabla_{\mathbf{z}^{(n)}} "
    r"k_Z(\mathbf{z}^{(i)}, \mathbf{z}^{(n)})",
    expected=Verdict.HOLDS,
    assumptions="k(z, z) = 1, so that the omitted i = n adds nothing; eq. 24's conditions",
    parameters={"n": "6", "t": "1..6", "bandwidth": "0.7..2"},
    note="The two summands are equal: twice either is the same.",
)
def latent_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Accumulated gradient against automatic differentiation and differences."""
    printed, others = [], []
    for trial in range(budget.trials(12)):
        batch = Batch(rng, 1 + trial % N)
        in_matrix = printed_gradient(batch.joint, batch.truncation)
        in_latent = batch.accumulate(in_matrix * batch.gram_t / N)
        slope = _GRADIENT_IN_LATENTS(batch.z, batch.gram_t, batch.truncation, batch.bandwidth)
        printed += [in_latent, in_latent]
        others += [np.asarray(slope)[-1], batch.moved(batch.entropy)]
    return equal(_stack(*printed), _stack(*others), tolerance=TOLERANCE)


@claim(
    name="gradient-eq-27-any-kernel",
    source="CV eq. 27, kernels without unit diagonal",
    statement=r"\nabla_{z^{(n)}} H^{(t)}(A) = \sum_{i<n}((\nabla_{K_Z} H)_{in} + (\nabla_{K_Z} "
    r"H)_{ni})\nabla_{z^{(n)}}k(z^{(i)}, z^{(n)}) + (\nabla_{K_Z} H)_{nn}\nabla_{z^{(n)}}"
    r"k(z^{(n)}, z^{(n)})",
    expected=Verdict.HOLDS,
    assumptions="linear kernel <x, y>, c = (1 - S_t)/t unchanged",
    parameters={"n": "6", "t": "1..3"},
    note="What eq. 27 must add once k(z, z) moves with z; zero for Gaussian and cosine kernels.",
)
def latent_gradient_any_kernel(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Accumulated gradient with the self term, for the linear kernel."""
    formula, measured = [], []
    for trial in range(budget.trials(9)):
        batch = Batch(rng, 1 + trial % 3)
        # Scaled so that the trace is below one and every shifted eigenvalue positive.
        batch.z *= 0.3

        def joint(z: np.ndarray, batch: Batch = batch) -> np.ndarray:
            return z @ z.T * batch.gram_t / N

        in_kernel = printed_gradient(joint(batch.z), batch.truncation) * batch.gram_t / N
        pull = (in_kernel[:-1, -1] + in_kernel[-1, :-1]) @ batch.z[:-1]
        formula.append(pull + in_kernel[-1, -1] * 2 * batch.z[-1])
        measured.append(
            batch.moved(lambda z, b=batch, f=joint: truncated_entropy(f(z), b.truncation))
        )
    return equal(_stack(*formula), _stack(*measured), tolerance=TOLERANCE)


@claim(
    name="gradient-identity-free",
    source="CV eq. 24 and 27 together",
    statement=r"\nabla_A H^{(t)}(A) + \beta I \text{ gives the same } \nabla_{\mathbf{z}^{(n)}} "
    r"H^{(t)}(A) \text{ for every } \beta",
    expected=Verdict.HOLDS,
    parameters={"beta": "-10..10", "t": "1..6"},
    note="Eq. 27 reads off-diagonal entries only: for t = n, -log A alone will do, with or without "
    "the -1; for t < n the mean logarithm multiplies V_t V_t^T, not I, and must stay.",
)
def identity_does_not_matter(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Latent gradient with and without a multiple of the identity."""
    left, right = [], []
    for trial in range(budget.trials(12)):
        batch = Batch(rng, 1 + trial % N)
        in_matrix = printed_gradient(batch.joint, batch.truncation)
        shifted = in_matrix + rng.uniform(-10, 10) * np.eye(N)
        left.append(batch.accumulate(in_matrix * batch.gram_t / N))
        right.append(batch.accumulate(shifted * batch.gram_t / N))
    return equal(_stack(*left), _stack(*right))


@claim(
    name="gradient-conditional-rke-matrix",
    source="CV appendix C, Conditional-RKE guidance",
    statement=r"\nabla_S \text{Conditional-RKE} = -2 \|K_T\|_F^2 \frac{S}{\|S\|_F^4}, \quad "
    r"\nabla_{K_Z} \text{Conditional-RKE} = \nabla_S \text{Conditional-RKE} \odot K_T",
    expected=Verdict.HOLDS,
    assumptions="S = K_Z o K_T",
    parameters={"n": "6"},
)
def conditional_rke_matrix_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Printed gradient in K_Z against automatic differentiation and differences."""
    printed, others = [], []
    for _ in range(budget.trials(8)):
        batch, direction = Batch(rng, N), _symmetric(rng, N)
        gram_z = gaussian(batch.z, batch.bandwidth)
        joint = gram_z * batch.gram_t
        prompts = np.sum(batch.gram_t**2)
        in_kernel = -2 * prompts * joint / np.sum(joint**2) ** 2 * batch.gram_t
        automatic = np.asarray(_RKE_IN_KERNEL(gram_z, batch.gram_t))
        measured = difference(
            lambda h, g=gram_z, b=batch, e=direction, p=prompts: (
                p / np.sum(((g + h * e) * b.gram_t) ** 2)
            )
        )
        printed += [in_kernel.ravel(), [np.sum(in_kernel * direction)]]
        others += [automatic.ravel(), [measured]]
    return equal(_stack(*printed), _stack(*others), tolerance=1e-9)


def _rke_repulsion(batch: Batch) -> np.ndarray:
    """Closed form of the Conditional-RKE gradient in the last latent."""
    gram = gaussian(batch.z, batch.bandwidth)
    weights = (gram[:, -1] * batch.gram_t[:, -1]) ** 2
    scale = np.sum(batch.gram_t**2) / np.sum((gram * batch.gram_t) ** 2) ** 2
    return 4 * scale / batch.bandwidth**2 * weights @ (batch.z[-1] - batch.z)


@claim(
    name="gradient-conditional-rke-latent",
    source="CV appendix C ('via the same accumulation as equation 27')",
    statement=r"\nabla_{z^{(n)}}\text{Conditional-RKE} = \sum_{i<n}(G_{in} + G_{ni})\nabla k = "
    r"\frac{4\|K_T\|_F^2}{\sigma^2\|S\|_F^4}\sum_i k_T^2(t_i,t_n)\,k_Z^2(z^{(i)},z^{(n)})"
    r"(z^{(n)} - z^{(i)})",
    expected=Verdict.HOLDS,
    assumptions="Gaussian kernel (closed form on the right)",
    parameters={"n": "6", "bandwidth": "0.7..2"},
    note="Guidance pushes the latent straight away from every other, weighted by the squared joint "
    "kernel: only latents with similar prompts count.",
)
def conditional_rke_latent_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Accumulated and closed-form gradients against automatic differentiation and differences."""
    formulas, others = [], []
    for _ in range(budget.trials(8)):
        batch = Batch(rng, N)
        joint = gaussian(batch.z, batch.bandwidth) * batch.gram_t
        prompts = np.sum(batch.gram_t**2)
        in_kernel = -2 * prompts * joint / np.sum(joint**2) ** 2 * batch.gram_t
        slope = np.asarray(_RKE_IN_LATENTS(batch.z, batch.gram_t, batch.bandwidth))[-1]
        measured = batch.moved(
            lambda z, b=batch, p=prompts: p / np.sum((gaussian(z, b.bandwidth) * b.gram_t) ** 2)
        )
        formulas += [batch.accumulate(in_kernel), _rke_repulsion(batch)]
        others += [slope, measured]
    return equal(_stack(*formulas), _stack(*others), tolerance=1e-9)


@claim(
    name="gradient-conditional-rke-cost",
    source="CV appendix C ('can be implemented using O(n^2) computations per iteration')",
    statement=r"\|S'\|_F^2 = \|S\|_F^2 + 2\sum_{i<n}k_T^2(t_i,t_n)(k_Z^2(z^{(i)},z'^{(n)}) - "
    r"k_Z^2(z^{(i)},z^{(n)}))",
    expected=Verdict.HOLDS,
    parameters={"n": "6"},
    note="With one latent guided and the norms kept, an iteration costs O(n d) only.",
)
def norm_update(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Updated squared norm against the full one after a move of the last latent."""
    updated, full = [], []
    for _ in range(budget.trials(20)):
        batch = Batch(rng, N)
        old = gaussian(batch.z, batch.bandwidth)
        batch.z[-1] += rng.normal(size=DIMENSION)
        new = gaussian(batch.z, batch.bandwidth)
        change = batch.gram_t[:-1, -1] ** 2 @ (new[:-1, -1] ** 2 - old[:-1, -1] ** 2)
        updated.append(np.sum((old * batch.gram_t) ** 2) + 2 * change)
        full.append(np.sum((new * batch.gram_t) ** 2))
    return equal(updated, full)


@claim(
    name="gradient-eq-14",
    source="CV eq. 14",
    statement=r"\mathbf{z} \leftarrow \mathbf{z} + \eta\nabla\text{Conditional-Vendi}^{(t)} "
    r"\text{ raises the score: } \frac{s(z + \eta g) - s(z)}{\eta\|g\|^2} \to 1",
    expected=Verdict.HOLDS,
    assumptions="a gradient that is not zero (above 0.002)",
    parameters={"n": "6", "t": "3", "length of the step": "1e-1..1e-5"},
    note="A first-order statement: a large guidance scale may lower the score.",
)
def ascent_raises_score(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Gain of a guidance step over its first-order prediction."""
    lengths = 10.0 ** -np.arange(1, 6)
    rows, moving = [], []
    for _ in range(budget.trials(8)):
        batch = Batch(rng, 3)
        slope = _GRADIENT_IN_LATENTS(batch.z, batch.gram_t, batch.truncation, batch.bandwidth)
        start = batch.score(batch.z)
        gradient = start * np.asarray(slope)[-1]
        size = float(np.linalg.norm(gradient))
        push = np.zeros_like(batch.z)
        push[-1] = gradient / size
        rows.append([(batch.score(batch.z + h * push) - start) / (h * size) for h in lengths])
        moving.append(size > 2e-3)
    return limit(rows, 1.0, lengths, tolerance=1e-3, premise_met=moving)


@claim(
    name="gradient-coincident-latents",
    source="CV section 6 ('encourages each new latent to increase the prompt-aware entropy')",
    statement=r"\|\nabla_{\mathbf{z}^{(n)}}\text{Conditional-RKE}\| > 0 \text{ whenever the score "
    r"is not maximal}",
    expected=Verdict.FALSE,
    assumptions="read as: guidance always acts; Gaussian kernel",
    parameters={"latents": "all equal, any prompts"},
    note="Coinciding latents are a critical point, the least diverse one: guidance cannot part "
    "them.",
)
def coincident_gradient(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Size of the gradient where all latents coincide, against a positive threshold."""
    sizes = []
    for _ in range(budget.trials(5)):
        batch = Batch(rng, N)
        batch.z[:] = batch.z[0]
        slope = np.asarray(_RKE_IN_LATENTS(batch.z, batch.gram_t, batch.bandwidth))[-1]
        sizes.append(float(np.linalg.norm(slope)))
    example = {"n": 2, "z": "z_1 = z_2", "score": "1, the least", "gradient": 0.0}
    return at_most(1e-6, sizes, tolerance=1e-12, counterexample=example)


@claim(
    name="gradient-coincident-latents-corrected",
    source="CV section 6, corrected",
    statement=r"\nabla_{z^{(n)}}\text{Conditional-RKE} \cdot (z^{(n)} - z^{(1)}) > 0 \text{ for } "
    r"z^{(1)} = \ldots = z^{(n-1)} \neq z^{(n)}",
    expected=Verdict.HOLDS,
    assumptions="Gaussian kernel",
    parameters={"distance/bandwidth": "1e-3..3"},
    note="Any perturbation is amplified: the critical point is unstable under guidance.",
    corrects="gradient-coincident-latents",
)
def coincidence_is_unstable(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Sign of the push on a latent that is slightly off all others."""
    pushes = []
    for _ in range(budget.trials(20)):
        batch = Batch(rng, N)
        batch.z[:] = batch.z[0]
        away = rng.normal(size=DIMENSION)
        away *= 10.0 ** rng.uniform(-3, 0.5) * batch.bandwidth / np.linalg.norm(away)
        batch.z[-1] += away
        slope = np.asarray(_RKE_IN_LATENTS(batch.z, batch.gram_t, batch.bandwidth))[-1]
        pushes.append(slope @ away / (away @ away))
    return at_most(0.0, pushes, tolerance=-1e-9)
