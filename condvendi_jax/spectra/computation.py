"""The entropies of pairs, by the method that suits: alone, and with slopes."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Decomposition, Entropy, PerScore
from condvendi_jax.grams import to_host
from condvendi_jax.spectra import estimators, exact, measures, methods, order_two
from condvendi_jax.spectra.methods import ALL_TERMS, OUTPUTS, Grams, Method, Terms, check_method
from condvendi_jax.spectra.order_two import FROBENIUS, Sloped
from condvendi_jax.spectra.pair_sums import TERMS, Leaving
from condvendi_jax.spectra.refinement import MatrixFree, Stored

_EXACT_UP_TO = 4096  # Up to it all eigenvalues take seconds on two CPU cores (docs/how_fast.md).
_SAMPLED_ROWS = 1024  # Rows whose rounding stands for that of all.


@dataclasses.dataclass(frozen=True, eq=False)
class Auto(Method):
    """The method that suits: exact where that is quick or there is no key, else estimated.

    `Exact` up to n = 4,096, where the kernels have few features, inside `jax.jit` and wherever
    there is no key; above, `Stored` while the matrices fit in memory, and then `MatrixFree`.
    `key` and `rtol` are as in `Stored`; the key may be a function that returns it when needed.
    """

    name: ClassVar[str] = "auto"
    key: jax.Array | Callable[[], jax.Array] | None = None
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def __post_init__(self) -> None:
        if self.key is not None and not callable(self.key):
            checks.check_key(self.key)
        vars(self).update(rtol=checks.check_rtol(self.rtol))

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        gram = grams["outputs"]
        # A tracer of jit, where nothing can adapt, looks like one of a derivative.
        quick = gram.n <= _EXACT_UP_TO or not checks.is_concrete(grams)
        if self.key is None or exact.all_dual(grams, terms):
            return exact.Exact().suited_to(grams, terms)
        if quick and memory.fits(gram.n, gram.dtype):
            return exact.Exact()
        key = self.key() if callable(self.key) else self.key
        if memory.fits(gram.n, gram.dtype, share=gram.stored_share):
            return Stored(key, rtol=self.rtol)
        return MatrixFree(key, rtol=self.rtol)


AUTO = Auto()
"""The default method."""
BY_NAME: dict[str, type[Method]] = {m.name: m for m in (Auto, exact.Exact, Stored, MatrixFree)}
"""The methods by the names that the command line uses."""


def named(name: str, *, key: jax.Array, rtol: float | None = None) -> Method:
    """Constructs the method called `name` in `BY_NAME` from the settings that it accepts.

    ValueError where there is no such method.
    """
    if name not in BY_NAME:
        raise ValueError(f"method: expected one of {', '.join(BY_NAME)}, received {name!r}.")
    kind: Any = BY_NAME[name]
    uses = {field.name for field in dataclasses.fields(kind)}
    settings = {"key": key, "rtol": rtol}
    return kind(**{k: v for k, v in settings.items() if k in uses and v is not None})


def compute(
    points: Pairs,
    wanted: Sequence[Entropy],
    method: Method,
    terms: Terms = ALL_TERMS,
    *,
    unbiased: bool = False,
) -> list[Computed]:
    """Several entropies of the same points, of truncations up to n, from one set of spectra.

    Without prompts, only the outputs' term is computed. If `unbiased`, order 2 is without pairs of
    a row with itself. Raises TypeError or ValueError at once where the method cannot be used.
    """
    check_method(method)
    terms = terms if points.paired else OUTPUTS
    computed: Iterator[Computed] = iter(())
    if spectral := [entropy for entropy in wanted if entropy.needs_spectrum]:
        grams = methods.grams_of_terms(points, terms)
        computed = iter(method.suited_to(grams, terms).entropies(grams, spectral, terms))
    return [
        next(computed)
        if entropy.needs_spectrum
        else Computed(order_two.frobenius(points, terms, unbiased=unbiased), None, FROBENIUS)
        for entropy in wanted
    ]


def decomposition(
    points: Pairs, entropy: Entropy, computed: Computed, unbiased: bool = False
) -> Decomposition:
    """The scores of computed entropies of points, and how far rounding may move them.

    That is the largest change of the logarithm of each score, from about 1,000 rows; None where
    there are no spectra of Grams, and inside transformations.
    """
    moved = None
    if computed.spectra is not None and checks.is_concrete(points, computed.spectra):
        step, eps = -(-points.n // _SAMPLED_ROWS), float(jnp.finfo(points.dtype).eps)
        rows = [to_host(array[::step]) for array in points.arrays]
        kernel_rounding = [k.rounding(some) for k, some in zip(points.kernels, rows, strict=True)]
        by_term = dict.fromkeys(ALL_TERMS, 0.0)
        for name, factors, measure in zip(ALL_TERMS, TERMS, computed.spectra, strict=True):
            if measure is not None:
                if not isinstance(measure, measures.SpectralMeasure):
                    wide = np.asarray(measure, np.float64)
                    measure = measures.SpectralMeasure.of_eigenvalues(wide, n=measure.size, eps=eps)
                relative = eps * sum(kernel_rounding[k] for k in factors)
                by_term[name] = measure.rounding(entropy, relative)
        x, t, joint = by_term.values()
        moved = PerScore(x, joint + t, x + t + joint) if points.paired else PerScore(x, x, 0.0)
    return Decomposition.of(computed, entropy, n=points.n, rounding=moved, unbiased=unbiased)


def score(
    points: Pairs, entropy: Entropy, method: Method, *, unbiased: bool = False
) -> Decomposition:
    """The scores of points by one entropy, of a truncation up to n; `unbiased` as `compute`."""
    if unbiased and entropy.needs_spectrum:
        expected = "expected order 2 without truncation, of all pairs of rows"
        why = "Only a sum over pairs can leave out those of a row with itself."
        raise ValueError(f"unbiased: {expected}, received {entropy}. {why}")
    (computed,) = compute(points, (entropy,), method, unbiased=unbiased)
    return decomposition(points, entropy, computed, unbiased)


def compute_sloped(
    points: Pairs, entropy: Entropy, method: Method, leaving: Sequence[Leaving] | None = None
) -> Sloped:
    """An entropy of points with its slopes in the weights of rows.

    Deletions of groups of rows are computed at order 2 and, from all eigenvectors and where groups
    are small enough, at order 1 without truncation.
    """
    check_method(method)
    if not entropy.needs_spectrum:
        return order_two.slopes(points, leaving)
    terms = ALL_TERMS if points.paired else OUTPUTS
    return method.suited(points, terms).sloped(points, entropy, terms, leaving)


def check(points: Pairs, method: Method) -> None:
    """Raises where a method cannot be used on these points; computes nothing."""
    check_method(method).suited(points, ALL_TERMS if points.paired else OUTPUTS)
