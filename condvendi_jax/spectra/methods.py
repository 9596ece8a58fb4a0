"""Methods of computing entropies, as objects that a caller passes: `method=cv.Exact()`.

Order 2 without truncation is a Frobenius norm: one pass over the pairs, exact at any n. All other
entropies need a spectrum of Gram matrices: all eigenvalues, or estimates with an interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy, PerTerm
from condvendi_jax.grams import Gram, Operator, grams_of
from condvendi_jax.spectra import blocks, order_two
from condvendi_jax.spectra.pair_sums import Leaving, factor

#: Names of fields of `PerTerm`: the terms H(X), H(T) and H(X, T) that are computed.
Terms = tuple[str, ...]
ALL_TERMS: Terms = PerTerm._fields
OUTPUTS: Terms = ("outputs",)
GIVEN_PROMPTS: Terms = ("prompts", "joint")
#: The Grams of outputs, prompts and pairs by the name of their term.
Grams = Mapping[str, Operator]


class Method:
    """A method of computing entropies that need a spectrum."""

    #: The name that a result shows.
    name: ClassVar[str]

    def suited_to(self, grams: Grams, terms: Terms) -> "Method":
        """The method that will run on these Grams; ValueError where there is not enough memory."""
        return self

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies, for the given terms, by a method that `suited_to` returns."""
        raise NotImplementedError  # Of `Auto`, which never runs itself.

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> order_two.Sloped:
        """`compute_sloped` of the given terms, by a method that `suited` returns."""
        raise NotImplementedError  # Of `Auto`, which never runs itself.

    def suited(self, points: Pairs, terms: Terms) -> "Method":
        """The method that will run on these points; raises where it cannot, computes nothing."""
        return self.suited_to(unweighted_grams(points, stores=False), terms)


def check_method(method: Method) -> Method:
    """Returns the method, or raises TypeError where it is none."""
    if not isinstance(method, Method):
        expected = "cv.Auto(key=...), cv.Exact(), cv.Stored(key=...) or cv.MatrixFree(key=...)"
        raise TypeError(f"method: expected {expected}, received {method!r}.")
    return method


def grams_of_terms(points: Pairs, terms: Terms = ALL_TERMS) -> Grams:
    """The Grams of outputs and, where there are prompts, of prompts and pairs, with the weights."""
    grams = unweighted_grams(points, terms)
    if points.weights is None:
        return grams
    return {name: gram.weighted(points.weights) for name, gram in grams.items()}


def unweighted_grams(
    points: Pairs, terms: Terms = ALL_TERMS, *, stores: bool = True
) -> dict[str, Gram]:
    """The Grams of outputs, prompts and pairs, without the weights of the rows: see `grams_of`.

    No matrix is computed if not `stores`, or for what is not among the `terms`.
    """
    grams: dict[str, Any] = dict(blocks.blocks_of(points))
    how = () if stores and not ("joint" in grams and "outputs" not in terms) else (0,)
    if not grams:
        grams = dict(zip(ALL_TERMS, grams_of(points, *how), strict=False))
    for index, name in enumerate(ALL_TERMS[: len(points.arrays)]):
        if name not in grams:
            (grams[name],) = grams_of(factor(points, index), *how)
    if points.paired and "joint" not in grams:
        grams["joint"] = grams["outputs"] * grams["prompts"]
    return {name: grams[name] for name in ALL_TERMS if name in grams}


def per_term(terms: Terms, values: Iterable[Any]) -> PerTerm:
    """The value of each of the terms; None for the others."""
    return PerTerm(*map(dict(zip(terms, values, strict=True)).get, ALL_TERMS))
