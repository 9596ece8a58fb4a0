"""Spectral measures in place of all eigenvalues: of stored matrices, or of products alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from condvendi_jax.base import checks, memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy, PerTerm, log_scores
from condvendi_jax.grams import Gram
from condvendi_jax.grams.operators import Dense
from condvendi_jax.spectra import estimators, refinement
from condvendi_jax.spectra.measures import Estimate
from condvendi_jax.spectra.methods import Grams, Method, Terms, grams_of_terms, per_term
from condvendi_jax.spectra.order_two import Leaving, Sloped

_store = jax.jit(lambda gram: gram.store())


@dataclasses.dataclass(frozen=True, eq=False)
class Estimating(Method):
    """A spectral measure of each Gram: the base of `Stored` and `MatrixFree`."""

    #: Whether products are taken with the stored n x n matrix.
    _stores: ClassVar[bool] = False
    key: jax.Array
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", checks.check_key(self.key))
        object.__setattr__(self, "rtol", checks.check_rtol(self.rtol))

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        return self._estimated(grams, wanted, terms)[1]

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        """The slopes, from the probes of the estimate: no further product with A."""
        samplers, (computed,) = self._estimated(grams_of_terms(points), (entropy,), terms)
        rows = [sampler.influences(entropy, points.shares) for sampler in samplers]
        return Sloped(computed, per_term(dict(zip(terms, rows, strict=True))))

    def _estimated(
        self, grams: Grams, wanted: Sequence[Entropy], terms: Terms
    ) -> tuple[list[estimators.Sampler], list[Computed]]:
        """Samplers and the entropies, refined until the scores are precise enough."""
        held, dtype = self._held(grams), grams["outputs"].dtype

        def by_term(values: Iterable[Any]) -> PerTerm:
            return per_term(dict(zip(terms, values, strict=True)))

        def scores(row: list[Estimate]) -> list[Estimate]:
            return [score for score in log_scores(*by_term(row)) if score is not None]

        with memory.explained(held["outputs"].n, dtype):
            samplers, rows = refinement.refine(
                [held[name] for name in terms], wanted, scores, key=self.key, rtol=self.rtol
            )
        measures = by_term(sampler.measure() for sampler in samplers)
        values = [by_term(jnp.asarray(e.value, dtype) for e in row) for row in rows]
        pairs = zip(values, map(by_term, rows), strict=True)
        return samplers, [Computed(*pair, self.name, measures) for pair in pairs]

    def _held(self, grams: Grams) -> Grams:
        """The Grams to multiply with; that of pairs is the product of the other two."""
        held = _store if self._stores else lambda gram: gram
        with memory.explained(grams["outputs"].n, grams["outputs"].dtype):
            if "joint" not in grams or not isinstance(grams["joint"], Gram):
                return {name: held(gram) for name, gram in grams.items()}
            factors = {name: held(gram) for name, gram in grams.items() if name != "joint"}
            joint = cast(Gram, factors["outputs"]) * cast(Gram, factors["prompts"])
            # Storing a dense Gram again would copy it.
            return factors | {"joint": joint if isinstance(joint, Dense) else held(joint)}


class Stored(Estimating):
    """A spectral measure of each Gram, whose n x n matrix is stored: seconds at n = 14,000.

    Needs a key, and memory for the matrices of outputs, prompts and pairs; on a mesh every device
    holds some of their rows. Not inside `jax.jit`, because the work depends on the numbers.

    Attributes:
      key: draws the probes. The same key gives the same number on any number of devices.
      rtol: how wide on either side, relatively, the 95% intervals of the scores may be.
    """

    name: ClassVar[str] = "stored"
    _stores: ClassVar[bool] = True

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        gram = grams["outputs"]
        memory.check(gram.n, gram.dtype, share=gram.stored_share)
        return self


class MatrixFree(Estimating):
    """A spectral measure of each Gram, from products with a matrix that is never formed: any n.

    Needs a key. Not inside `jax.jit`, because the work depends on the numbers.

    `key` and `rtol` are as in `Stored`.
    """

    name: ClassVar[str] = "matrix-free"
