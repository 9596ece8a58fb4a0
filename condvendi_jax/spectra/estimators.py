"""Entropies at any n, with an interval: the sampling of a `SpectralMeasure`.

docs/any_n.md derives it. For A = K / n, Tr f(A) is computed in three parts:

1. *Deflation.* A block Krylov space gives approximate eigenvectors V of the large eigenvalues, and
   a block Gauss quadrature gives Tr V^T f(A) V.
2. *Stochastic Lanczos quadrature* of the rest, Tr P f(A) P with P = I - V V^T (Ubaru, Chen and
   Saad, 2017).
3. *Exact moments as control variates.* Tr I = n, Tr A = 1 and Tr A^2 = ||A||_F^2 are known.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, devices
from condvendi_jax.entropies import Entropy, eigenvalues
from condvendi_jax.grams.operators import Operator, together
from condvendi_jax.spectra import blocks, krylov
from condvendi_jax.spectra.measures import Function, Rule, SpectralMeasure, fitted
from condvendi_jax.spectra.pair_sums import to_float64

DEFAULT_RTOL = 2e-3
# In eps of the dtype, an empirical bound: rounding in the sum and the squares of the Ritz values.
_MOMENT_ROUNDING = 4
# Empirical limits of a Ritz pair's residual, relative to its value. Up to the first a pair is
# deflated, at no bias since the quadrature follows it. Up to the second Lanczos steps project it
# off, an error of second order in the residual: 0.03^2 is about half of the default tolerance.
_DEFLATED = 0.3
_PROJECTED = 0.03
# Limits of the refinement: the memory of the Lanczos vectors is probes x steps x n numbers.
MAX_STEPS = 96
# Below this side all eigenvalues of a dual matrix take less time than a measure (docs/how_fast.md).
_DUAL_UP_TO = 4096


@dataclasses.dataclass(frozen=True)
class Budget:
    """The work of a measure: `block * sweeps + probes * steps` products with A.

    Attributes:
      block: columns of a block of the Krylov space that deflates.
      sweeps: blocks of that space; the last serves the quadrature of the others.
      probes: random vectors, each an independent estimate of the rest; at least 2.
      steps: Lanczos steps of each probe.
    """

    block: int = 32
    sweeps: int = 8
    probes: int = 16
    steps: int = 16

    def __post_init__(self) -> None:
        for name, minimum in {"block": 1, "sweeps": 1, "probes": 2, "steps": 1}.items():
            checks.check_count(getattr(self, name), name=f"budget.{name}", minimum=minimum)

    @property
    def products(self) -> int:
        """Matrix-vector products with A."""
        return self.block * self.sweeps + self.probes * self.steps


class Samplers:
    """A sampler for every Gram, all with the same steps; passes over the pairs serve them all.

    They begin with the work of `budget`; `rtol` decides which Ritz pairs are projected off.
    """

    def __init__(self, grams: Sequence[Operator], *, key: jax.Array, budget: Budget, rtol: float):
        start_key, self._probe_key = jax.random.split(key)
        whole = [gram for gram in grams if not isinstance(gram, blocks.IN_BLOCKS)]
        norms = iter(_squared_norms(together(whole)) if whole else ())
        known = [(gram, float(next(norms)) if gram in whole else 0) for gram in grams]
        self.members = [Sampler(gram, norm, budget=budget) for gram, norm in known]
        self._sampled = [sampler for sampler in self.members if not sampler.complete]
        if not self._sampled:
            return
        self._products = together([sampler.gram for sampler in self._sampled])
        start = jax.random.normal(start_key, (grams[0].n, budget.block), grams[0].dtype)
        starts = tuple(sampler.gram.place(start) for sampler in self._sampled)
        spaces = krylov.krylov_spaces(self._products, starts, sweeps=budget.sweeps)
        for sampler, space in zip(self._sampled, spaces, strict=True):
            rest = sampler.gram.row_squares_beside(*sampler.deflate(space, rtol))
            sampler.rest = to_float64(rest)[: sampler.gram.n]
        self._draw(0, budget.probes)

    def _draw(self, first: int, last: int) -> None:
        """Adds a batch of probes, one key each, so that more probes begin with the fewer."""
        gram = self._sampled[0].gram
        folded = jax.vmap(functools.partial(jax.random.fold_in, self._probe_key))
        draw = functools.partial(jax.random.rademacher, shape=(gram.n,), dtype=gram.dtype)
        signs = jax.vmap(draw, out_axes=1)(folded(jnp.arange(first, last)))
        for sampler in self._sampled:
            placed, capacity = sampler.gram.place(signs), sampler.capacity
            sampler.batches.append(krylov.start_lanczos(sampler.vectors, placed, capacity=capacity))
        self._advance(slice(-1, None), 0)

    def _advance(self, batches: slice, before: int) -> None:
        """Continues the recurrences of some batches up to the steps of the samplers."""
        states = tuple(tuple(sampler.batches[batches]) for sampler in self._sampled)
        bases = tuple(sampler.invariant for sampler in self._sampled)
        bounds = jnp.asarray(before), jnp.asarray(self._sampled[0].steps)
        advanced = krylov.lanczos(self._products, bases, states, *bounds)
        for sampler, states_of_sampler in zip(self._sampled, advanced, strict=True):
            sampler.batches[batches] = states_of_sampler

    def deepen(self, steps: int) -> None:
        """Continues every recurrence up to this many steps."""
        before = self._sampled[0].steps
        if steps > before:  # Without a step to take, a program would be compiled for nothing.
            for sampler in self._sampled:
                sampler.steps = steps
                for index, state in enumerate(sampler.batches):
                    if state.alpha.shape[1] < steps:
                        sampler.batches[index] = krylov.enlarge(state, capacity=sampler.capacity)
            self._advance(slice(None), before)

    def widen(self, probes: int) -> None:
        """Adds batches of probes until there are at least this many: one, of all that are new."""
        first, batch = self.members[0].probes, self.members[0].batch
        last = first + math.ceil(max(probes - first, 0) / batch) * batch
        if last > first:
            self._draw(first, last)
        for sampler in self.members:
            sampler.probes = last


class Sampler:
    """The parts of a measure of one Gram, kept so that steps and probes can be added."""

    def __init__(self, gram: Operator, norm: float, *, budget: Budget):
        self.gram, self._norm, self._budget = gram, norm, budget
        self.probes, self.steps = budget.probes, budget.steps
        self.batch = budget.probes  # That are drawn at once.
        self._eps = float(jnp.finfo(gram.dtype).eps)
        self.batches: list[krylov.Tridiagonals] = []
        #: The diagonal `[n]` of the square of A - V diag(values) V^T.
        self.rest = np.zeros(gram.n)
        dual = gram.rank_bound < gram.n and gram.rank_bound <= _DUAL_UP_TO
        # Tr A = 1 bounds the largest eigenvalue from below by ||A||_F^2.
        rank_one = self._norm >= 1 - eigenvalues.RANK_ONE * self._eps
        #: Whether all eigenvalues are known, so that nothing was sampled.
        self.complete = gram.n <= budget.products or dual or rank_one
        if self.complete:
            self._eigenvalues = np.ones(1) if rank_one else to_float64(all_eigenvalues(gram))

    def deflate(self, space: krylov.KrylovSpace, rtol: float) -> tuple[jax.Array, jax.Array]:
        """Chooses Ritz vectors of all blocks but the last, which gives their residuals.

        Returns V diag(values) and V: the deflation subtracts V diag(values) V^T from A.
        """
        upper, remainder = np.triu(to_float64(space.projected)), to_float64(space.remainder)
        projected = upper + np.triu(upper, 1).T
        size = projected.shape[0] - self._budget.block
        values, rotation = np.linalg.eigh(projected[:size, :size])
        values = values[::-1]
        rotation = np.pad(rotation[:, ::-1], ((0, self._budget.block), (0, 0)))
        residuals = np.linalg.norm(projected[size:] @ rotation, axis=0)
        floor = 4 * self._eps * float(values.max(initial=0.0))
        deflated = (residuals <= _DEFLATED * values) & (values > floor)
        limit = min(_PROJECTED, _PROJECTED * math.sqrt(rtol / DEFAULT_RTOL))
        projected_off = deflated & (residuals <= limit * values)
        chosen, invariant = map(self._padded, (rotation[:, deflated], rotation[:, projected_off]))
        self._chosen, self._projected_off = chosen, self._padded(projected_off[None, deflated])
        self._projected, self._eigen = projected, np.linalg.eigh(projected)
        self.values, self.residuals = values[deflated], residuals[deflated]
        self.projected = values[projected_off], residuals[projected_off]

        def rule(nodes: np.ndarray, vectors: np.ndarray) -> Rule:
            shares = vectors[: projected.shape[0]].T @ chosen
            return Rule(np.maximum(nodes, 0), np.sum(np.square(shares), axis=1))

        # The block Gauss and Gauss-Radau quadratures of Tr V^T f(A) V.
        extended = krylov.with_null_space(projected, remainder, floor)
        self._rules = rule(*self._eigen), rule(*np.linalg.eigh(extended))
        self._largest = float(self._rules[0].nodes.max())
        # The relative error of the largest eigenvalue: the residual, or by Kato and Temple.
        nodes, vectors = self._eigen
        last = vectors[-remainder.shape[0] :, -1]
        residual = math.sqrt(max(float(last @ remainder @ last), 0.0))
        gap = float(nodes[-1] - nodes[-2:-1].sum())
        error = min(residual, residual**2 / gap if gap > 0 else residual)
        self._largest_error = error / float(nodes[-1])
        self._basis = space.basis
        self.vectors = self._combined(chosen)
        self.invariant = self._combined(invariant)
        return self.vectors * self._like(self._padded(self.values[None])), self.vectors

    def _padded(self, columns: np.ndarray) -> np.ndarray:
        """Adds columns of zeros up to a few widths, since each width is a program to compile."""
        return np.pad(columns, ((0, 0), (0, -max(columns.shape[1], 1) % (2 * self._budget.block))))

    def _like(self, array: np.ndarray) -> jax.Array:
        return jnp.asarray(array, self.gram.dtype)

    @property
    def capacity(self) -> int:
        """Room for the steps. Each capacity is a program to compile, so that there are few."""
        first = 2 * self._budget.steps
        return first if self.steps <= first else max(self.steps, MAX_STEPS)

    def measure(self) -> SpectralMeasure:
        """The measure of everything sampled so far."""
        n, eps = self.gram.n, self._eps
        if self.complete:
            values = self._eigenvalues
            return SpectralMeasure.of_eigenvalues(values, n=n, eps=eps, probes=self.probes)
        parts = zip(*((s.alpha, s.beta, s.squares) for s in self.batches), strict=True)
        alpha, beta, squares = (np.concatenate([*map(to_float64, part)]) for part in parts)
        count, mass = self.values.size, np.sum(self.values)
        # A - V diag(values) V^T consists of P A P and, in either of the two corners beside it, the
        # part of A V outside of the span of V. Tr P A^2 P has one such corner.
        square = float(np.sum(self.rest) - np.sum(np.square(self.residuals)))
        moments = np.array([n - count, 1 - mass, square])
        spent = dataclasses.replace(self._budget, probes=self.probes, steps=self.steps)
        # The square is a sum of squares over the entries of what is left, rounded like the entries.
        square_size = math.sqrt(square * self._norm) + square
        return SpectralMeasure(
            deflated=self._rules,
            alpha=alpha[:, : self.steps],
            beta=beta[:, : self.steps],
            squares=squares,
            moments=np.maximum(moments, 0),
            moment_errors=_MOMENT_ROUNDING * eps * np.array([0.0, mass, square_size]),
            projected=self.projected,
            squared_norm=self._norm,
            largest=self._largest,
            largest_error=self._largest_error,
            eps=eps,
            n=n,
            products=spent.products,
        )

    def influences(self, entropy: Entropy, shares: np.ndarray) -> np.ndarray:
        """The influences of rows on the entropy, as independent estimates `[replicates, n]`.

        There is one a probe (docs/any_n.md), or an exact one where all eigenvalues are known. Rows
        of weight zero in `shares` `[n]` have NaN. Their means and products are unbiased.
        """
        n, weights = self.gram.n, np.where(shares > 0, shares, 1)
        if self.complete:
            if self._eigenvalues.size == 1:
                return np.zeros((1, n))
            if isinstance(self.gram, blocks.IN_BLOCKS):
                rows = blocks.slopes(self.gram.spectra(shares), entropy, n)[1]
                return centred(rows.astype(float)[None], shares)
            return centred(to_float64(_diagonal(self.gram, entropy))[None] / weights, shares)
        measure = self.measure()
        derivative = measure.derivative(entropy)
        # The line that leaves least noise in the diagonal of A f(A): the variances of that of
        # s(A) P z (P z)^T add up to less than ||P s(A) P||_F^2.
        nodes, masses = measure.sampled[0][0]
        line = fitted(derivative, Rule(nodes, np.square(nodes) * masses), degree=1)

        def remainder(x: np.ndarray) -> np.ndarray:
            return x * (derivative(x) - line[0] - line[1] * x)

        # f(A) V, and again P f(A) V of what Lanczos projects off, as combinations `[m, k]`.
        nodes, vectors = self._eigen
        values = remainder(np.maximum(nodes, 0))
        functions = vectors @ (values[:, None] * (vectors.T @ self._chosen))
        outside = functions - self._chosen @ (self._chosen.T @ functions)
        functions += outside * self._projected_off
        # A^2 less the square of what is left has V diag(theta) (A V)^T and its transpose.
        images = self._projected @ self._chosen
        theta = np.sum(self._chosen * images, axis=0)
        squares = (2 * images - self._chosen * theta) * theta
        deflated = self._combined(functions + line[1] * squares)
        known = line[1] * self.rest + to_float64(jnp.sum(self.vectors * deflated, axis=1))[:n]
        sampled = [self._of_probes(state, remainder)[:n].T for state in self.batches]
        return centred((known + np.concatenate(sampled)) / weights, shares)

    def _of_probes(self, state: krylov.Tridiagonals, function: Function) -> np.ndarray:
        """The diagonal of f(A) P z (P z)^T for every probe of a batch, `[rows, probes]`."""
        alpha, beta, squares = map(to_float64, (state.alpha, state.beta, state.squares))
        nodes, vectors = krylov.tridiagonal_eigen(alpha[:, : self.steps], beta[:, : self.steps - 1])
        first = function(np.maximum(nodes, 0)) * vectors[:, 0, :]
        coefficients = np.einsum("pkj,pj->pk", vectors, first) * squares[:, None]
        padded = np.pad(coefficients, ((0, 0), (0, state.alpha.shape[1] - self.steps)))
        return to_float64(state.history[:, 0].T * krylov.unroll(state, self._like(padded)))

    def _combined(self, coefficients: np.ndarray) -> jax.Array:
        return krylov.combine(self._basis, self._like(coefficients))


def centred(derivatives: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Derivatives `[..., n]` less their mean, NaN for rows of share zero, which have none."""
    means = np.sum(shares * derivatives, axis=-1, keepdims=True)
    return np.where(shares > 0, derivatives - means, np.nan)


@functools.partial(jax.jit, static_argnums=1)
def _diagonal(gram: Operator, entropy: Entropy) -> jax.Array:
    """(A h(A))_ii, `[n]`: half the derivative in s_i of the entropy of diag(s) A diag(s)."""
    root = math.sqrt(gram.n)
    return jax.grad(lambda s: entropy(gram.scaled(s / root)))(jnp.ones(gram.n, gram.dtype)) / 2


_squared_norms = jax.jit(lambda together: together.squared_frobenius_norms())
# Compiled alone, because compiling it takes most of the time of a first call: one program serves
# outputs, prompts and pairs, at every order and truncation.
all_eigenvalues = devices.compiled_elsewhere(lambda gram: gram.eigenvalues())
