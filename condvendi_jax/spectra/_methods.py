"""How entropies are computed, as objects that a caller passes: `method=cv.Exact()`.

Order 2 without truncation is a Frobenius norm: one pass over the pairs, exact at any n. All other
entropies need a spectrum. A `GramMethod` takes it from Gram matrices: all eigenvalues, or estimates
with an interval (`_estimators`). `RandomFeatures` replace the kernel by finite features, at order
2 too, in time linear in n (`_feature_maps`, `_approximations`).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax import entropies, validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, log_scores
from condvendi_jax.grams import Gram, Operator, to_host
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.grams._grams import Dense, DenseGram, FeatureGram, square_roots
from condvendi_jax.kernels import Kernel
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _approximations as approximations
from condvendi_jax.spectra import _estimators as estimators
from condvendi_jax.spectra import _feature_maps as feature_maps
from condvendi_jax.spectra import _novelty as novelty
from condvendi_jax.spectra import _order_two as order_two
from condvendi_jax.spectra._measures import Estimate, SpectralMeasure
from condvendi_jax.spectra._order_two import Leaving, Matrices, in_order

FROBENIUS = "frobenius"
# Up to this n all eigenvalues take seconds on two CPU cores (docs/how_fast.md), so that sampling
# would save little.
_EXACT_UP_TO = 4096
# Above this n all eigenvalues take minutes: a warning says so before the work begins.
_LONG_ABOVE = 8000
# Seconds per n^3 for one spectrum, measured on two CPU cores: 2e-11 at n = 4,000, 7e-11 at 14,000.
_SECONDS_PER_CUBE = 5e-11
# The precision of the entropy of a sample of the rows: far below the noise between samples.
_SAMPLE_RTOL = 0.005
# With 64, intervals covered only 89% of 80 keys: weights are large, and the bounds hold in the
# mean of many rows.
_FEWEST_SAMPLED = 256

#: Names of fields of `PerTerm`: the terms H(X), H(T) and H(X, T) that are computed.
Terms = tuple[str, ...]
ALL_TERMS: Terms = PerTerm._fields
OUTPUTS: Terms = ("outputs",)
GIVEN_PROMPTS: Terms = ("prompts", "joint")
# Of every term, the kernels whose product it is.
_FACTORS_OF = {"outputs": (0,), "prompts": (1,), "joint": (0, 1)}
#: The Grams of outputs, prompts and pairs by the name of their term.
Grams = Mapping[str, Operator]
OfRows = Callable[[np.ndarray, Sequence[Entropy]], list["Computed"]]


_LOOKED_AT = 1024  # Rows whose rounding stands for that of all.
# At order 1, groups are deleted exactly while their squared shares have up to this sum: with equal
# weights, deletions then take no longer than the eigenvectors, and less than four n x n arrays.
_GROUP_WORK = 0.2


class Computed(NamedTuple):
    """The entropies of one order and truncation, in nats.

    Values are None for terms that were not computed. `estimates` are what the values are the means
    of, None where these are exact; `method` is frobenius or the name of a method. `spectra` are
    eigenvalues or a `SpectralMeasure` for each term, where the values come from Grams.
    """

    values: PerTerm
    estimates: PerTerm | None
    method: str
    spectra: PerTerm | None = None


def compute(
    points: Pairs, wanted: Sequence[Entropy], method: Method, terms: Terms = ALL_TERMS
) -> list[Computed]:
    """Several entropies of the same points, of truncations up to n, from one set of spectra.

    Without prompts, only the outputs' term is computed. Raises TypeError or ValueError, before any
    work, where the method cannot be used on these points.
    """
    check_method(method)
    terms = terms if points.paired else OUTPUTS
    spectral = [entropy for entropy in wanted if method.computes(entropy)]
    found = iter(method.of_points(points, spectral, terms) if spectral else ())
    return [
        next(found)
        if method.computes(entropy)
        else Computed(_frobenius(points, terms, validation.is_concrete(points)), None, FROBENIUS)
        for entropy in wanted
    ]


class Deleted(NamedTuple):
    """An entropy of all points, without each of some groups, and at other bandwidths."""

    everything: Computed
    without: PerTerm  # Without each of g groups, `[g]` each.
    estimates: list[PerTerm]  # Of each deletion, where it has its own.
    moved: list[PerTerm]  # Of all points, at each of the other bandwidths.


def compute_deleted(
    points: Pairs,
    entropy: Entropy,
    groups: np.ndarray | None,
    method: Method,
    progress: Callable[[], Any],
    moved: Sequence[Pairs] = (),
) -> Deleted:
    """An entropy of all points, and without each group of them, numbered from 0 in `groups` `[n]`.

    A deletion that leaves fewer points than the truncation keeps all eigenvalues. `moved` are the
    same points at other bandwidths, of which the entropy of all points is computed. Without groups,
    only that of all `points` is. `progress` is called after each spectrum.
    """
    check_method(method)
    if groups is None:
        (computed,) = compute(points, (entropy,), method)
        return Deleted(computed, computed.values, [], [])
    count, turns = int(np.max(groups)) + 1, (points, *moved)
    if not method.computes(entropy):
        everything, *others = (_frobenius(own, ALL_TERMS, True) for own in turns)
        leaving = order_two.leaving_of(groups, count, points.shares)
        among = [order_two.sums_inside(points, of) for of in leaving]
        sums, *among = (np.asarray(of, np.float64) for of in (order_two.row_sums(points), *among))
        _, norms = order_two.norms_without(sums, points, leaving, among)
        progress()
        left = _entropies_of(np.asarray(norms, points.dtype))
        return Deleted(Computed(everything, None, FROBENIUS), left, [], others)
    found: list[Computed] = []
    for own in turns:
        of_rows = method.of_subsets(own, ALL_TERMS if points.paired else OUTPUTS)
        for group in range(-1, count if own is points else 0):  # The group -1 has no rows.
            rows = groups != group
            found += of_rows(rows, (entropy.fitted(int(np.count_nonzero(rows))),))
            progress()
    deletions = found[1 : count + 1]
    return Deleted(
        found[0],
        jax.tree.map(lambda *values: np.stack(values), *(own.values for own in deletions)),
        [own.estimates for own in deletions if own.estimates and not method.approximates],
        [own.values for own in found[count + 1 :]],
    )


class Sloped(NamedTuple):
    """Entropies in nats, and how they change with the weights of rows and with bandwidths.

    Attributes:
      computed: the entropies of one order and truncation.
      of_rows: for each term the influences of the rows, float64 `[replicates, n]` in NumPy: the
        derivative in the weight of a row, less its mean over the weights. Replicates are
        independent estimates; exact influences have one. NaN where a row of weight zero has none.
      of_bandwidths: by the index of a kernel, for each term, the derivative in the logarithm of its
        bandwidth.
      of_deletions: for each term, what the entropy loses without each group of `Leaving`, per
        weight and relative to the rest, `[G]`, not less its mean; None where it is not computed,
        NaN where nothing is left.
      stored: the matrices that the method has stored, if rows have no weights.
      pair_sums: at order 2, `order_two.row_sums` with their slopes, and `sums_inside` the groups.
    """

    computed: Computed
    of_rows: PerTerm
    of_bandwidths: dict[int, PerTerm]
    of_deletions: PerTerm | None = None
    stored: Matrices | None = None
    pair_sums: tuple[np.ndarray, Sequence[np.ndarray]] | None = None


def compute_sloped(
    points: Pairs,
    entropy: Entropy,
    method: Method,
    leaving: Sequence[Leaving] | None = None,
    known: Sloped | None = None,
    stored: Matrices | None = None,
) -> Sloped:
    """An entropy of points with its slopes, in the bandwidths that a rule has drawn.

    Deletions of what leaves are computed at order 2 and, from all eigenvectors and where groups are
    small enough, at order 1 without truncation. `known` is the result for other points of the same
    prompts, weights and deletions: if it is exact, the spectrum of the prompts is not computed
    again. `stored` is that of another entropy of the same points: order 2 then computes no
    distances.
    """
    check_method(method)
    terms, drawn = ALL_TERMS if points.paired else OUTPUTS, _drawn(points)
    if method.computes(entropy):
        if known is None or known.computed.estimates is not None or not _is_exact(method, points):
            return method.sloped(points, entropy, terms, leaving)
        return _with_prompts(method.sloped(points, entropy, ("outputs", "joint"), leaving), known)
    if stored is not None:
        found = order_two.stored_row_sums_sloped(stored, drawn)
    else:
        found = order_two.sloped(order_two.row_sums, points, drawn)
    shares, sums = points.shares, np.asarray(to_host(found), np.float64)[..., : points.n]
    with_own = sums[0] + shares
    norms = with_own @ shares
    of_rows = [-2 * (row / norm - 1)[None] for row, norm in zip(with_own, norms, strict=True)]
    values = _entropies_of(np.asarray(norms, points.dtype))
    moves = [dict(zip(terms, -(of @ shares) / norms, strict=True)) for of in sums[1:]]
    without, inside = None, []
    if leaving is not None:
        inside = [
            np.asarray(to_host(order_two.sums_inside(points, of)), np.float64) for of in leaving
        ]

        lost = order_two.lost_without(sums[0], points, leaving, inside)
        without = _per_term(dict(zip(terms, lost, strict=True)))
    return Sloped(
        Computed(values, None, FROBENIUS),
        _per_term(dict(zip(terms, of_rows, strict=True))),
        dict(zip(drawn, map(_per_term, moves), strict=True)),
        without,
        pair_sums=(sums, inside),
    )


def _is_exact(method: Method, points: Pairs) -> bool:
    """Whether a method computes all eigenvalues of these points."""
    if not isinstance(method, GramMethod):
        return False
    return isinstance(method.suited_to(_unweighted_grams(points), ALL_TERMS), Exact)


def _with_prompts(found: Sloped, known: Sloped) -> Sloped:
    """What was computed without the prompts' term, with that of another result."""

    def filled(own: Any, other: Any) -> PerTerm:
        return own._replace(prompts=other.prompts)

    computed = found.computed._replace(
        values=filled(found.computed.values, known.computed.values),
        spectra=filled(found.computed.spectra, known.computed.spectra),
    )
    deletions = found.of_deletions
    if deletions is not None and known.of_deletions is not None:
        deletions = filled(deletions, known.of_deletions)
    return Sloped(
        computed,
        filled(found.of_rows, known.of_rows),
        {k: filled(of, known.of_bandwidths[k]) for k, of in found.of_bandwidths.items()},
        deletions,
    )


def _drawn(points: Pairs) -> tuple[int, ...]:
    """The indices of the kernels whose bandwidths a rule has drawn."""
    errors = [chosen.relative_error for chosen in points.bandwidths.values()]
    return tuple(index for index, error in enumerate(errors) if error is not None)


def entropy_of(gram: Operator, entropy: Entropy, method: Method) -> float:
    """An entropy in nats of an operator of unit trace of K / n, which need not be of points."""
    grams = {"outputs": gram}
    suited = check_gram_method(method).suited_to(grams, OUTPUTS)
    (computed,) = suited.entropies(grams, (entropy,), OUTPUTS)
    return float(computed.values.outputs)


def check(points: Pairs, method: Method) -> None:
    """Raises where a method cannot be used on these points; computes nothing."""
    check_method(method).check(points, ALL_TERMS if points.paired else OUTPUTS)


def check_method(method: Method) -> Method:
    """Returns the method, or raises TypeError where it is none."""
    if not isinstance(method, Method):
        raise TypeError(
            "method: expected cv.Auto(key=...), cv.Exact(), cv.Stored(key=...), "
            "cv.MatrixFree(key=...), cv.Sampled(key=...) or cv.RandomFeatures(key=...), "
            f"received {method!r}."
        )
    return method


def no_errors(method: Method) -> ValueError:
    """What is raised where a method that has no standard errors is asked for them."""
    return ValueError(
        f"method: {method.name} gives no standard errors, nor contributions of rows; choose "
        "another method, or errors=False."
    )


def check_gram_method(method: Method) -> GramMethod:
    """Returns the method, or raises TypeError where it needs points and not Grams."""
    if not isinstance(check_method(method), GramMethod):
        raise TypeError(
            f"method: {method.name} is of points, and here there are only their Gram matrices; "
            "expected cv.Exact(), cv.Stored(key=...) or cv.MatrixFree(key=...)."
        )
    return method  # pyright: ignore[reportReturnType]


class Method(abc.ABC):
    """How entropies of points are computed."""

    #: What a result says of how it was computed.
    name: ClassVar[str]
    #: Whether features replace the kernel, at order 2 too.
    approximates: ClassVar[bool] = False
    #: Whether it gives the influences of rows, from which standard errors follow.
    gives_errors: ClassVar[bool] = True

    def computes(self, entropy: Entropy) -> bool:
        """Whether the method computes an entropy, and not the pass over all pairs."""
        return self.approximates or entropy.needs_spectrum

    @abc.abstractmethod
    def check(self, points: Pairs, terms: Terms) -> None:
        """Raises where the method cannot be used on these points; computes nothing."""

    @abc.abstractmethod
    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies of points, for the given terms."""

    def of_subsets(self, points: Pairs, terms: Terms) -> OfRows:
        """A function of rows, booleans `[n]`, and entropies: each entropy of these rows."""
        return lambda rows, wanted: self.of_points(_subset(points, rows), wanted, terms)

    @abc.abstractmethod
    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        """`compute_sloped` of the given terms."""


class GramMethod(Method):
    """A method that needs no more of the points than their Grams."""

    def suited_to(self, grams: Grams, terms: Terms) -> GramMethod:
        """The method that will run on these Grams; ValueError where there is not enough memory."""
        del grams, terms
        return self

    @abc.abstractmethod
    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies, for the given terms."""

    def check(self, points: Pairs, terms: Terms) -> None:
        self.suited_to(_unweighted_grams(points), terms)

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        grams = grams_of_terms(points)
        return self.suited_to(grams, terms).entropies(grams, wanted, terms)


@dataclasses.dataclass(frozen=True)
class Exact(GramMethod):
    """All eigenvalues: O(n^3) time and n x n arrays, or less where the kernels have few features.

    Needs no key. Differentiable, and the only method that works inside `jax.jit`.
    """

    name: ClassVar[str] = "exact"

    def suited_to(self, grams: Grams, terms: Terms) -> GramMethod:
        if not _all_dual(grams, terms):
            memory.check(grams["outputs"].n, grams["outputs"].dtype)
        return self

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        _warn_of_long_work(grams, terms)
        return self._of_spectra(grams, wanted, terms, estimators.all_eigenvalues)

    def of_subsets(self, points: Pairs, terms: Terms) -> OfRows:
        """From Grams of one size, whichever rows are left out: one program serves all subsets."""
        grams = _unweighted_grams(points)
        self.suited_to(grams, terms)
        _warn_of_long_work(grams, terms)
        given = jnp.ones((), points.dtype) if points.weights is None else points.weights

        def of_rows(rows: np.ndarray, wanted: Sequence[Entropy]) -> list[Computed]:
            kept = jnp.asarray(rows, points.dtype)
            eigenvalues = functools.partial(_eigenvalues_of_rows, weights=given * kept)
            return self._of_spectra(grams, wanted, terms, eigenvalues)

        return of_rows

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        """By one decomposition into eigenvectors of each Gram, or of its dual."""
        near, drawn = points.gathered(), _drawn(points)
        self.check(near, terms)
        _warn_of_long_work(_unweighted_grams(near), terms)
        if leaving is not None:
            # By weights, so that copies of rows and their numbers give the same errors.
            work = sum(np.square(of.weights.sum(1)).sum() for of in leaving if of.rows.shape[1] > 1)
            if entropy != Entropy() or near.n == 1 or work > _GROUP_WORK:
                leaving = None
        with memory.explained(near.n, near.dtype):
            found = {name: _sloped_term(near, entropy, name, drawn, leaving) for name in terms}
        values = {name: term.value for name, term in found.items()}
        eigenvalues = {name: term.eigenvalues for name, term in found.items()}
        spectra.check_spectra(*values.values())
        shares = near.shares

        def centred(derivative: jax.Array) -> np.ndarray:
            raw = np.asarray(derivative, np.float64)
            return np.where(shares > 0, raw - shares @ raw, np.nan)

        deletions = None
        if leaving is not None:
            deletions = _per_term(
                {name: in_order(term.of_deletions, leaving) for name, term in found.items()}
            )
        return Sloped(
            Computed(_per_term(values), None, self.name, _per_term(eigenvalues)),
            _per_term({name: centred(term.of_rows)[None] for name, term in found.items()}),
            {
                index: _per_term(
                    {name: np.asarray(t.of_bandwidths)[k] for name, t in found.items()}
                )
                for k, index in enumerate(drawn)
            },
            deletions,
        )

    def _of_spectra(
        self,
        grams: Grams,
        wanted: Sequence[Entropy],
        terms: Terms,
        eigenvalues: Callable[[Operator], jax.Array],
    ) -> list[Computed]:
        with memory.explained(grams["outputs"].n, grams["outputs"].dtype):
            found = jax.block_until_ready({name: eigenvalues(grams[name]) for name in terms})
        values = _of_spectra(found, tuple(wanted))
        spectra.check_spectra(*jax.tree.leaves(values))
        return [Computed(_per_term(own), None, self.name, _per_term(found)) for own in values]


@dataclasses.dataclass(frozen=True, eq=False)
class _Estimating(GramMethod):
    """A spectral measure of each Gram: what `Stored` and `MatrixFree` share."""

    #: Whether products are taken with the stored n x n matrix.
    _stores: ClassVar[bool] = False
    #: All eigenvalues are computed where an estimate is predicted to take more products than this.
    _products_per_point: ClassVar[int | None] = None
    key: jax.Array
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", validation.check_key(self.key))
        object.__setattr__(self, "rtol", validation.check_rtol(self.rtol))

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        samplers, estimates, within_limit = self._refined(self._held(grams), wanted, terms)
        if not within_limit:
            return Exact().entropies(grams, wanted, terms)
        found, asked, dtype = [], [grams[name] for name in terms], grams["outputs"].dtype
        for entropy, row in zip(wanted, estimates, strict=True):
            values = [jnp.asarray(estimate.value, dtype) for estimate in row]
            if not validation.is_concrete(*asked):
                slopes = [s.slope(entropy, gram) for s, gram in zip(samplers, asked, strict=True)]
                values = jax.tree.map(jnp.add, values, slopes)
            found.append(_computed(terms, values, row, self.name, samplers))
        return found

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        """From the probes of the estimate: no further product with A."""
        drawn, held = _drawn(points), self._held(grams_of_terms(points))
        samplers, (row,), within_limit = self._refined(held, (entropy,), terms)
        if not within_limit:
            return Exact().sloped(points, entropy, terms, leaving)
        values = [jnp.asarray(estimate.value, points.dtype) for estimate in row]
        shares = points.shares
        of_rows = {
            name: sampler.influences(entropy, shares)
            for name, sampler in zip(terms, samplers, strict=True)
        }

        def slope(logs: jax.Array, name: str, sampler: estimators.Sampler) -> jax.Array:
            moved = order_two.moved(points, points.weights, drawn, logs)
            return sampler.slope(entropy, grams_of_terms(moved)[name])

        slopes: dict[str, Sequence[Any]] = {}
        for name, sampler in zip(terms if drawn else (), samplers, strict=False):
            own = [ALL_TERMS[k] for k in drawn if k in _FACTORS_OF[name]]
            stored = [held[of] for of in (name, *own)]
            if sampler.complete or not all(map(_is_one_array, stored)):
                slopes[name] = jax.grad(slope)(jnp.zeros(len(drawn), points.dtype), name, sampler)
                continue
            matrix, *factors = (cast(Dense, gram).matrix for gram in stored)
            moves = iter(_stored_slopes(matrix, factors, *sampler.sensitivity(entropy)))
            slopes[name] = [next(moves) if k in _FACTORS_OF[name] else 0.0 for k in drawn]
        of_bandwidths = {
            index: _per_term({name: of[k] for name, of in slopes.items()})
            for k, index in enumerate(drawn)
        }
        computed = _computed(terms, values, row, self.name, samplers)
        factors = [held[name] for name in ALL_TERMS[: len(points.kernels)]]
        matrices = None
        if all(map(_is_one_array, factors)):
            matrices = tuple(cast(Dense, gram).matrix for gram in factors)
        return Sloped(computed, _per_term(of_rows), of_bandwidths, stored=matrices)

    def _refined(self, held: Grams, wanted: Sequence[Entropy], terms: Terms) -> estimators.Refined:
        """Samplers and estimates of each entropy, refined until the scores are precise enough."""
        n = held["outputs"].n

        def scores(row: list[Estimate]) -> list[Estimate]:
            logs = log_scores(*_per_term(dict(zip(terms, row, strict=True))))
            return [score for score in logs if score is not None]

        with memory.explained(n, held["outputs"].dtype):
            return estimators.refine(
                [held[name] for name in terms],
                wanted,
                scores,
                key=self.key,
                rtol=self.rtol,
                limit=None if self._products_per_point is None else self._products_per_point * n,
            )

    def _held(self, grams: Grams) -> Grams:
        """The Grams that products are taken with; that of the pairs from the other two."""
        constant = jax.tree.map(lax.stop_gradient, dict(grams))
        held = _store if self._stores else lambda gram: gram
        with memory.explained(grams["outputs"].n, grams["outputs"].dtype):
            if "joint" not in constant or not isinstance(constant["joint"], Gram):
                return {name: held(gram) for name, gram in constant.items()}
            found = {name: held(gram) for name, gram in constant.items() if name != "joint"}
            joint = cast(Gram, found["outputs"]) * cast(Gram, found["prompts"])
            # What is stored already would be copied.
            return found | {"joint": joint if isinstance(joint, Dense) else held(joint)}


class Stored(_Estimating):
    """A spectral measure of each Gram, whose n x n matrix is stored: seconds at n = 14,000.

    Needs a key, and memory for the matrices of outputs, prompts and pairs; on a mesh every device
    holds some of their rows. Not inside `jax.jit`, because the work depends on the numbers.

    Attributes:
      key: draws the probes. The same key gives the same number on any number of devices.
      rtol: how wide on either side, relatively, the 95% intervals of the scores may be.
    """

    name: ClassVar[str] = "stored"
    _stores: ClassVar[bool] = True

    def suited_to(self, grams: Grams, terms: Terms) -> GramMethod:
        gram = grams["outputs"]
        memory.check(gram.n, gram.dtype, share=gram.stored_share)
        return self


class _StoredUnlessSlower(Stored):
    """`Stored`, or all eigenvalues where these are predicted to take less time.

    Those of a stored matrix take the time of 1.1 to 1.3 n products with it, measured on two CPU
    cores at n = 4,000 and 11,822; on an accelerator they take longer.
    """

    _products_per_point: ClassVar[int | None] = 1


class MatrixFree(_Estimating):
    """A spectral measure of each Gram, from products with a matrix that is never formed: any n.

    Needs a key. Not inside `jax.jit`, because the work depends on the numbers.

    `key` and `rtol` are as in `Stored`.
    """

    name: ClassVar[str] = "matrix-free"


@dataclasses.dataclass(frozen=True, eq=False)
class Auto(GramMethod):
    """The method that suits: exact where that is quick or there is no key, else estimated.

    `Exact` up to n = 4,096, where the kernels have few features, inside `jax.jit` and wherever
    there is no key; above, `Stored` while the matrices fit in memory, and then `MatrixFree`.
    `key` and `rtol` are as in `Stored`.
    """

    name: ClassVar[str] = "auto"
    key: jax.Array | None = None
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def __post_init__(self) -> None:
        if self.key is not None:
            object.__setattr__(self, "key", validation.check_key(self.key))
        object.__setattr__(self, "rtol", validation.check_rtol(self.rtol))

    def suited_to(self, grams: Grams, terms: Terms) -> GramMethod:
        gram = grams["outputs"]
        # A tracer of jit, where nothing can adapt, looks like one of a derivative.
        quick = gram.n <= _EXACT_UP_TO or not validation.is_concrete(grams)
        if self.key is None or _all_dual(grams, terms):
            return Exact().suited_to(grams, terms)
        if memory.fits(gram.n, gram.dtype):
            return Exact() if quick else _StoredUnlessSlower(self.key, rtol=self.rtol)
        if memory.fits(gram.n, gram.dtype, share=gram.stored_share):
            return Stored(self.key, rtol=self.rtol)
        return MatrixFree(self.key, rtol=self.rtol)

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        return self.suited_to(grams, terms).entropies(grams, wanted, terms)

    def of_subsets(self, points: Pairs, terms: Terms) -> OfRows:
        return self.suited_to(grams_of_terms(points), terms).of_subsets(points, terms)

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        suited = self.suited_to(_unweighted_grams(points), terms)
        return suited.sloped(points, entropy, terms, leaving)


class _OnOneDevice(Method):
    """A method that estimates from points on one device, with a key, and gives no errors."""

    gives_errors: ClassVar[bool] = False
    key: jax.Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", validation.check_key(self.key))

    def check(self, points: Pairs, terms: Terms) -> None:
        del terms
        if points.layout is not None:
            raise ValueError(
                f"method: {self.name} is of points on one device, received ones on a mesh."
            )
        if not validation.is_concrete(points):
            raise TypeError(
                f"method: {self.name} estimates, which cannot be done inside jit or vmap nor "
                "differentiated; cv.Exact() and scores of cv.spectra.fourier_features can."
            )

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> Sloped:
        raise no_errors(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Sampled(_OnOneDevice):
    """Order 1 of up to millions of rows, from samples of them and from how new further rows are.

    The mean entropy of samples of `rows` rows is too small. What is missing follows from how new a
    further row is beside all rows before it, which is bounded on both sides (docs/any_n.md). The
    intervals hold both bounds and the noise of all draws. They are narrow where further rows are
    hardly new, and up to tenths of the score where rows stay new, as pairs often do.

    The time hardly depends on n. Of order 1 without truncation; no standard errors, gradients or
    weights; points on one device; not inside `jax.jit`.

    Attributes:
      key: draws the samples.
      rows: the rows of each of eight samples, at least 256. A further row is compared with as many
        of the rows before it. Of n up to `rows`, all eigenvalues are computed.
      new_rows: how many further rows are compared.
    """

    name: ClassVar[str] = "sampled"
    key: jax.Array
    rows: int = dataclasses.field(default=4096, kw_only=True)
    new_rows: int = dataclasses.field(default=128, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.check_count(self.rows, name="rows", minimum=_FEWEST_SAMPLED)
        validation.check_count(self.new_rows, name="new_rows", minimum=novelty.REPLICATES)

    def check(self, points: Pairs, terms: Terms) -> None:
        super().check(points, terms)
        points.refuse_weights(f"method: {self.name}")

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        self.check(points, terms)
        for entropy in wanted:
            if entropy.order != 1 or entropy.truncation is not None:
                raise ValueError(
                    f"method: {self.name} is of order 1 without truncation, received {entropy!r}; "
                    "cv.MatrixFree(key=...) estimates any order."
                )
        if points.n <= self.rows:
            return Exact().of_points(points, wanted, terms)

        def of_sample(sample: Pairs, key: jax.Array) -> list[Estimate]:
            method = _StoredUnlessSlower(key, rtol=_SAMPLE_RTOL)
            (computed,) = method.of_points(sample, wanted[:1], terms)
            found = computed.estimates or jax.tree.map(_exactly, computed.values)
            return [getattr(found, name) for name in terms]

        row = novelty.estimates(
            points,
            [_FACTORS_OF[name] for name in terms],
            of_sample,
            key=self.key,
            rows=self.rows,
            new_rows=self.new_rows,
        )
        values = [jnp.asarray(estimate.value, points.dtype) for estimate in row]
        return [_computed(terms, values, row, self.name) for _ in wanted]


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures(_OnOneDevice):
    """Random Fourier features of Gaussian kernels: time and memory linear in n, at any order.

    FKEA (Ospanov et al., 2024) scores the features as they are, at order 1 too low by tenths of a
    nat. This method extrapolates to infinitely many frequencies, with intervals: narrow from order
    2 on, coarse at order 1 where many small eigenvalues matter, and coarser below.

    Points are on one device; no standard errors; not inside `jax.jit` and not differentiable. The
    time is O(n count^2 + count^3), or O(n^2 count) for fewer points than 1.5 count.

    Attributes:
      key: draws the frequencies, which outputs, prompts and pairs share.
      count: how many, a multiple of 8; there are twice as many features.
    """

    name: ClassVar[str] = "random-features"
    approximates: ClassVar[bool] = True
    key: jax.Array
    count: int = dataclasses.field(default=feature_maps.DEFAULT_COUNT, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        count = validation.check_count(self.count, name="count", minimum=1)
        if count % approximations.GROUPS:
            raise ValueError(
                f"count: expected a multiple of {approximations.GROUPS}, received {count}."
            )

    def check(self, points: Pairs, terms: Terms) -> None:
        super().check(points, terms)
        for kernel in points.kernels:
            feature_maps.length_scale(kernel)
        memory.check_fourier(
            points.n,
            self.count,
            points.dtype,
            dual=self._dual(points.n),
            terms=len(terms),
            dimensions=sum(part.shape[1] for part in points.arrays),
        )

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        return self.of_subsets(points, terms)(np.ones(points.n, bool), wanted)

    def of_subsets(self, points: Pairs, terms: Terms) -> OfRows:
        """From one draw of features, whose error is then much the same for every subset."""
        self.check(points, terms)
        drawn = feature_maps.draw_frequencies(points, key=self.key, count=self.count)

        def of_rows(rows: np.ndarray, wanted: Sequence[Entropy]) -> list[Computed]:
            chosen = _subset(points, rows)
            matrices = self._matrices(chosen, drawn, terms)
            by_term = [approximations.fourier_estimates(m, wanted, chosen.n) for m in matrices]
            return [
                _computed(terms, [jnp.asarray(e.value, points.dtype) for e in row], row, self.name)
                for row in zip(*by_term, strict=True)
            ]

        return of_rows

    def _matrices(
        self, points: Pairs, drawn: tuple[jax.Array, ...], terms: Terms
    ) -> Iterable[jax.Array]:
        """For each term what `fourier_estimates` takes, of the rows or of their features."""
        groups = approximations.GROUPS
        if self._dual(points.n):
            # One term at a time, since the matrices of all 8 groups are held.
            return (feature_maps.fourier_grams(points, drawn, (t,), groups)[0] for t in terms)
        return feature_maps.covariances(points, drawn, terms)

    def _dual(self, n: int) -> bool:
        """Whether 13 spectra of n x n matrices cost less than those of the features' subsets.

        13 n^3 equals (1 + 8 (7/8)^3 + 4 / 8) (2 count)^3 at n = 1.6 count; forming the n x n
        matrices takes the rest.
        """
        return 2 * n <= 3 * self.count


def _wide(array: jax.Array) -> np.ndarray:
    return np.asarray(array, np.float64)


def _exactly(value: jax.Array) -> Estimate:
    return Estimate(np.full(2, float(value)))


# The sizes of methods that `named` calls features.
_SIZES = ("count", "rows")
AUTO = Auto()
"""The default method."""
BY_NAME: dict[str, type[Method]] = {
    m.name: m for m in (Auto, Exact, Stored, MatrixFree, Sampled, RandomFeatures)
}
"""The methods by the names that the command line uses."""


def named(
    name: str, *, key: jax.Array, rtol: float | None = None, features: int | None = None
) -> Method:
    """The method of a name in `BY_NAME`, with those of the settings that it uses and are given.

    `features` says how many frequencies or rows of a sample; ValueError where there is
    no such method.
    """
    if name not in BY_NAME:
        raise ValueError(f"method: expected one of {', '.join(BY_NAME)}, received {name!r}.")
    kind: Any = BY_NAME[name]
    uses = {field.name for field in dataclasses.fields(kind)}
    settings = {"key": key, "rtol": rtol} | dict.fromkeys(_SIZES, features)
    return kind(**{k: v for k, v in settings.items() if k in uses and v is not None})


def takes_features(name: str) -> bool:
    """Whether the `features` of `named` have an effect on the method of this name."""
    return any(field.name in _SIZES for field in dataclasses.fields(cast(Any, BY_NAME[name])))


def grams_of_terms(points: Pairs) -> Grams:
    """The Grams of outputs and, where there are prompts, of prompts and pairs, with the weights."""
    grams = _unweighted_grams(points)
    if points.weights is None:
        return grams
    return {name: gram.weighted(points.weights) for name, gram in grams.items()}


def _unweighted_grams(points: Pairs) -> dict[str, Gram]:
    grams = dict(zip(ALL_TERMS, points.grams(), strict=False))
    if points.paired:
        grams["joint"] = grams["outputs"] * grams["prompts"]
    return grams


def _per_term(values: Mapping[str, Any]) -> PerTerm:
    """The values by the name of their term; None for the other terms."""
    return PerTerm(*map(values.get, ALL_TERMS))


def _computed(
    terms: Terms,
    values: Sequence[jax.Array],
    estimates: Sequence[Estimate],
    method: str,
    samplers: Sequence[estimators.Sampler] = (),
) -> Computed:
    rows = values, estimates, [sampler.measure() for sampler in samplers]
    own, sampled, measures = (_per_term(dict(zip(terms, row, strict=False))) for row in rows)
    return Computed(own, sampled, method, measures if samplers else None)


def rounding(points: Pairs, computed: Computed, entropy: Entropy) -> PerScore | None:
    """How far rounding may move the logarithm of each score; about 1,000 rows are looked at.

    None where there are no spectra of Grams, and inside transformations.
    """
    if computed.spectra is None or not validation.is_concrete(points, computed.spectra):
        return None
    step, eps = -(-points.n // _LOOKED_AT), float(jnp.finfo(points.dtype).eps)
    rows = [to_host(array[::step]) for array in points.arrays]
    own = [kernel.rounding(of) for kernel, of in zip(points.kernels, rows, strict=True)]
    found = dict.fromkeys(ALL_TERMS, 0.0)
    for name, measure in zip(ALL_TERMS, computed.spectra, strict=True):
        if measure is not None:
            if not isinstance(measure, SpectralMeasure):
                measure = SpectralMeasure.of_eigenvalues(_wide(measure), n=measure.size, eps=eps)
            relative = eps * sum(own[k] for k in _FACTORS_OF[name])
            found[name] = measure.rounding(entropy, relative)
    x, t, joint = found.values()
    return PerScore(x, joint + t, x + t + joint) if points.paired else PerScore(x, x, 0.0)


def _subset(points: Pairs, rows: np.ndarray) -> Pairs:
    return points if rows.all() else points.rows(np.flatnonzero(rows))


def _all_dual(grams: Grams, terms: Terms) -> bool:
    """Whether every spectrum can be computed from a matrix smaller than n x n."""
    return all(grams[name].rank_bound < grams[name].n for name in terms)


def _warn_of_long_work(grams: Grams, terms: Terms) -> None:
    ranks = [grams[name].rank_bound for name in terms]
    if max(ranks) > _LONG_ABOVE:
        minutes = sum(rank**3 for rank in ranks) * _SECONDS_PER_CUBE / 60
        validation.warn(
            f"all eigenvalues of n = {grams['outputs'].n:,} points take some {minutes:.0f} minutes "
            "on two CPU cores; method=cv.Auto(key=jax.random.key(0)) estimates the scores, with an "
            "interval, in a small part of that."
        )


@jax.jit
def _eigenvalues_of_rows(gram: Gram, weights: jax.Array) -> jax.Array:
    """Those of the Gram of points of these weights, `[n]`: a zero for every zero weight."""
    return gram.weighted(weights / jnp.sum(weights)).eigenvalues()


@functools.partial(jax.jit, static_argnums=1)
def _of_spectra(
    spectra_of_terms: dict[str, jax.Array], wanted: tuple[Entropy, ...]
) -> list[dict[str, jax.Array]]:
    """Each entropy of every spectrum."""
    return [jax.tree.map(entropy.of_spectrum, spectra_of_terms) for entropy in wanted]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _frobenius(points: Pairs, terms: Terms, in_tiles: bool) -> PerTerm:
    """The entropies of order 2, in one pass over the pairs of points."""
    if points.weights is None:
        found = entropies.entropies(entropies.renyi(2), *points.grams(in_tiles=in_tiles))
    elif in_tiles:
        options: Any = {"weights": points.weights, "layout": points.layout}
        found = order_two.entropies_of(
            pairwise.squared_norms(*order_two.factors_of(points), **options)
        )
    else:
        grams = _unweighted_grams(points)
        norms = [grams[name].squared_norm_by(points.weights) for name in grams]
        found = order_two.entropies_of(jnp.stack(norms))
    return PerTerm(*(getattr(found, name) if name in terms else None for name in ALL_TERMS))


class _SlopedTerm(NamedTuple):
    """One entropy, and what `Sloped` says of it, not yet less its mean."""

    value: jax.Array
    of_rows: jax.Array
    of_bandwidths: jax.Array
    of_deletions: list[jax.Array]  # Of each `Leaving`.
    eigenvalues: jax.Array


def _sloped_term(
    points: Pairs,
    entropy: Entropy,
    name: str,
    drawn: tuple[int, ...],
    leaving: Sequence[Leaving] | None,
) -> _SlopedTerm:
    """Through one set of eigenvectors: of A, or of the smaller matrix of finite features.

    In three programs, so that the largest is the same for all terms and is compiled once.
    """
    weights = np.asarray(points.shares, points.dtype)
    still = np.zeros(len(drawn), points.dtype)
    operator, features = _operator(points, weights, name, drawn, still)
    term, outer = _term_of_operator(operator, features, weights, leaving, entropy, bool(drawn))
    if drawn:
        slopes = _bandwidth_slopes(outer, points, weights, name, drawn, still)
        term = term._replace(of_bandwidths=slopes)
    # One term at a time holds the vectors of one matrix.
    return jax.block_until_ready(term)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _operator(
    points: Pairs, weights: jax.Array, name: str, drawn: tuple[int, ...], logs: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    """A, or the smaller matrix of its features, and these: each bandwidth times its exp(log)."""
    roots = square_roots(weights)
    gram = _unweighted_grams(order_two.moved(points, None, drawn, logs))[name]
    if isinstance(gram, FeatureGram) and gram.rank_bound < gram.n:
        return spectra.outer_products(gram.features * roots[:, None]), gram.features
    return gram.dense().matrix * roots[:, None] * roots[None, :], None


@functools.partial(jax.jit, static_argnums=(4, 5))
def _term_of_operator(
    operator: jax.Array,
    features: jax.Array | None,
    weights: jax.Array,
    leaving: Sequence[Leaving] | None,
    entropy: Entropy,
    drawn: bool,
) -> tuple[_SlopedTerm, jax.Array | None]:
    """The term, without slopes in bandwidths, and where they are `drawn`, its slope in A."""
    values, vectors = spectra.decomposed(operator)
    # Of the eigenvalues of A, those that the features lack are zero.
    padded = functools.partial(jnp.pad, pad_width=(0, weights.size - values.size))
    value, slopes = jax.value_and_grad(lambda v: entropy.of_spectrum(padded(v)))(values)
    # v_k^T phi_i for the eigenvector v_k of the operator and the feature phi_i of a row.
    if features is None:
        projections = _projections(values, vectors, weights)
    else:
        projections = _matmul(features, vectors)
    of_deletions = [_deletions(value, values, projections, of) for of in leaving or ()]
    of_rows = _matmul(jnp.square(projections), slopes)
    outer = _matmul(vectors * slopes[None, :], vectors.T) if drawn else None
    return _SlopedTerm(value, of_rows, slopes[:0], of_deletions, padded(values)), outer


@functools.partial(jax.jit, static_argnums=(3, 4))
def _bandwidth_slopes(
    outer: jax.Array,
    points: Pairs,
    weights: jax.Array,
    name: str,
    drawn: tuple[int, ...],
    logs: jax.Array,
) -> jax.Array:
    """The derivatives in the logarithms of the bandwidths, from the slope in A."""

    def along(logs: jax.Array) -> jax.Array:
        return jnp.sum(outer * _operator(points, weights, name, drawn, logs)[0])

    return jax.grad(along)(logs)


def _is_one_array(gram: Operator) -> bool:
    """Whether a Gram is stored on one device, without weights."""
    return isinstance(gram, DenseGram) and gram.layout is None


@jax.jit
def _stored_slopes(
    matrix: jax.Array,
    factors: Sequence[jax.Array],
    left: jax.Array,
    right: jax.Array,
    of_norm: jax.Array,
) -> jax.Array:
    """The derivatives of an entropy in the logarithms of bandwidths, from stored matrices.

    Where K_f is Gaussian of bandwidth sigma, so that it falls with exp(-1 / sigma^2), the Hadamard
    product K of K_f and others has dK / d log sigma = -2 K log K_f.

    Args:
      matrix: K `[n, n]`.
      factors: K_f for each bandwidth.
      left, right, of_norm: `Sampler.sensitivity` of the entropy of K / n.
    """
    n = matrix.shape[0]
    size = min(n, pairwise.CPU_TILE)

    def add(k: Any, total: jax.Array) -> jax.Array:
        # The last block reaches back over its neighbour, whose rows do not count again.
        first = jnp.minimum(k * size, n - size)
        cut = functools.partial(lax.dynamic_slice_in_dim, start_index=first, slice_size=size)
        block, counted = cut(matrix), first + jnp.arange(size) >= k * size
        slopes = pairwise.outer(cut(left), right) + 2 * of_norm * block / n
        by_pair = jnp.where(counted[:, None], block * slopes, 0)
        # A kernel value that is too small for the dtype moves nothing.
        logs = [order_two.log_or_zero(cut(own)) for own in factors]
        return total + jnp.stack([jnp.sum(jnp.sum(by_pair * own, axis=1)) for own in logs])

    sums = lax.fori_loop(0, -(-n // size), add, jnp.zeros(len(factors), matrix.dtype))
    return -2 * sums / n


def _projections(values: jax.Array, vectors: jax.Array, weights: jax.Array) -> jax.Array:
    """v_k^T phi_i, `[n, n]`, from the eigenvectors u_k of A; zero for rows of weight zero."""
    inverse = jnp.where(weights > 0, 1 / jnp.where(weights > 0, weights, 1), 0)
    return vectors * square_roots(values)[None, :] * square_roots(inverse)[:, None]


class Apart(NamedTuple):
    """The entropies of g sets of points, each of a set by itself.

    Attributes:
      values: in nats, `[g]`.
      of_rows: `[g, m]`, not less their means: the derivative in the weight of a row; at order 1
        without truncation, what the entropy loses without a row, per weight and relative to the
        rest.
      squared_norms: the weighted mean of the squared kernel over all pairs of a set, `[g]`.
    """

    values: jax.Array
    of_rows: jax.Array
    squared_norms: jax.Array


@functools.partial(jax.jit, static_argnums=4)
def compute_apart(
    kernel: Kernel, points: jax.Array, weights: jax.Array, units: jax.Array, entropy: Entropy
) -> Apart:
    """The entropy of each of several small sets of points by itself, in one program.

    Args:
      kernel: of the points.
      points: `[g, m, d]`. A point of weight zero is padding.
      weights: `[g, m]`, of sum one in each set.
      units: the weight that is deleted of each row, `[g, m]`.
      entropy: of a truncation up to m.
    """

    def of_set(points: jax.Array, weights: jax.Array, units: jax.Array) -> Apart:
        (gram,) = Pairs.trusted((points,), (kernel,), n=points.shape[0]).grams()
        matrix, roots = gram.dense().matrix, square_roots(weights)
        row_norms = jnp.sum(jnp.square(matrix) * weights[None, :], axis=1)
        norm = jnp.sum(weights * row_norms)
        if not entropy.needs_spectrum:
            return Apart(entropies.of_squared_norm(norm), -2 * row_norms / norm, norm)
        values, vectors = spectra.decomposed(matrix * roots[:, None] * roots[None, :])
        value, slopes = jax.value_and_grad(entropy.of_spectrum)(values)
        projections = _projections(values, vectors, weights)
        if entropy == Entropy():
            each = Leaving(rows := np.arange(weights.size), rows[:, None], units[:, None])
            return Apart(value, _deletions(value, values, projections, each), norm)
        return Apart(value, _matmul(jnp.square(projections), slopes), norm)

    return jax.vmap(of_set)(points, weights, units)


def _deletions(
    value: jax.Array, values: jax.Array, projections: jax.Array, leaving: Leaving
) -> jax.Array:
    """What the entropy of order 1 loses without each group, per weight and relative to the rest.

    With C the operator and w_i the weights that a group takes of rows of features phi_i,
    log det (s + C - sum_i w_i phi_i phi_i') - log det (s + C) = log det(1 - B), where
    B_ij = (w_i w_j)^(1/2) phi_i' (s + C)^-1 phi_j; and -x log x is the integral over s of
    log(1 + x / s) - x / (1 + s), less x. The integral is smooth in log s, where the trapezoid rule
    converges exponentially: with steps of one it is right to 1e-8.
    """
    s = jnp.exp(jnp.arange(-24, 25, dtype=values.dtype))
    # Zero eigenvalues have no part: the rows lie in what the others span.
    inverse = 1 / (jnp.maximum(values, 0)[None, :] + s[:, None])
    largest = 1 - jnp.finfo(values.dtype).epsneg
    weights = jnp.asarray(leaving.weights, values.dtype)

    def log_dets(group: tuple[jax.Array, jax.Array]) -> jax.Array:
        parts = projections[group[0]] * jnp.sqrt(group[1])[:, None]
        blocks = _matmul(inverse[:, None, :] * parts[None], parts.T)

        # By the pivots less one: where s is large, 1 - B would be rounded to one.
        def eliminate(k: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            blocks, total = carry
            column = blocks[:, k]
            pivot = jnp.clip(column[:, k], 0, largest)
            outer = column[:, :, None] * column[:, None, :]
            return blocks + outer / (1 - pivot)[:, None, None], total + jnp.log1p(-pivot)

        return lax.fori_loop(0, parts.shape[0], eliminate, (blocks, jnp.zeros_like(s)))[1]

    # Group by group: of all at once, the inverses times the features would be 49 n x n arrays.
    logs = lax.map(log_dets, (jnp.asarray(leaving.rows), weights))
    # Divided by the weight term by term: the difference of two entropies would lose the digits.
    weights = jnp.sum(weights, axis=1)
    divided = weights > 0
    per_weight = 1 / jnp.where(divided, weights, 1)
    parts = logs * per_weight[:, None] + 1 / (1 + s[None, :])
    unscaled = value + 1 + jnp.sum(parts * s[None, :], axis=1)
    lost = jnp.minimum(weights, largest)
    return jnp.where(divided, -unscaled - (1 - lost) * jnp.log1p(-lost) * per_weight, 0)


_matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


_entropies_of = jax.jit(order_two.entropies_of)


@jax.jit
def _store(gram: Operator) -> Operator:
    return gram.store()
