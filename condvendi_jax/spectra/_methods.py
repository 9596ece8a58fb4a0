"""How entropies of Grams are computed, as objects that a caller passes: `method=cv.Exact()`.

Order 2 without truncation is a Frobenius norm: one pass over the pairs, exact at any n. Every other
entropy needs a spectrum, and a method is a way of having it:

    Exact           all eigenvalues, of the n x n matrices or of the smaller dual ones
    Stored          a spectral measure (`estimators`) of stored n x n matrices
    MatrixFree      a spectral measure of matrices that never exist, or of sharded ones
    Auto            whichever of them suits n, the memory, and whether there is a key

Two more are linear in n, and leave the kernel for finite features of it, order 2 included:

    RandomFeatures  of random frequencies (`feature_maps`), what they are off by extrapolated
    Nystroem        of some of the points, between what is possible (`approximations`)
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax import entropies, validation
from condvendi_jax.entropies import Entropy, PerTerm, log_scores
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams._grams import Gram
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _approximations as approximations
from condvendi_jax.spectra import _estimators as estimators
from condvendi_jax.spectra import _feature_maps as feature_maps
from condvendi_jax.spectra._measures import Estimate

FROBENIUS = "frobenius"
# Up to here all eigenvalues take seconds, and no sampling is needed to save them.
_EXACT_UP_TO = 4096
# Above this all eigenvalues take minutes: said beforehand, with what takes seconds.
_LONG_ABOVE = 8000
# Seconds per n^3 for one spectrum: on two CPU cores 2e-11 at n = 4,000 and 7e-11 at n = 14,000, by
# the committed benchmark.
_SECONDS_PER_CUBE = 5e-11
# All eigenvalues of a stored matrix take the time of 1.1 to 1.3 n products with it (two CPU cores,
# n = 4,000 and 11,822), and more on an accelerator.
_PRODUCTS_PER_POINT = 1
# Points whose pairs are a sample of all pairs.
_SAMPLED = 1024
# So many eigenvalues are there in a moment: nobody interrupts them.
_WAITED_FOR_ABOVE = 1000

# One Gram for each term, None where there are no prompts; and which of them are asked for.
Grams = PerTerm
Terms = PerTerm
ALL_TERMS = PerTerm(True, True, True)
OUTPUTS = PerTerm(True, False, False)
GIVEN_PROMPTS = PerTerm(False, True, True)
_RENYI_2 = entropies.renyi(2)


class Computed(NamedTuple):
    """The entropies of one order and truncation.

    Attributes:
      values: in nats, None for the terms that were not asked for.
      estimates: what the values are the means of; None where they are exact.
      method: frobenius, or the name of a method.
    """

    values: PerTerm
    estimates: PerTerm | None
    method: str


def compute(
    points: Pairs, wanted: Sequence[Entropy], method: Method, terms: Terms = ALL_TERMS
) -> list[Computed]:
    """Several entropies of the same points, from one set of spectra.

    Args:
      points: checked; without prompts there are only outputs to compute.
      wanted: the entropies, of truncations up to n.
      method: how eigenvalues are computed.
      terms: whether H(X), H(T) and H(X, T) are wanted.

    Raises:
      TypeError, ValueError: the method cannot be used on these points; nothing was computed yet.
    """
    check_method(method)
    terms = terms if points.paired else OUTPUTS
    spectral = tuple(entropy for entropy in wanted if method.computes(entropy))
    found: Iterator[Computed] = iter(())
    if spectral:
        found = iter(method.of_points(points, spectral, terms))
    return [
        next(found)
        if method.computes(entropy)
        else Computed(_frobenius(points, terms, validation.is_concrete(points)), None, FROBENIUS)
        for entropy in wanted
    ]


def compute_deletions(
    points: Pairs,
    entropy: Entropy,
    kept: Sequence[np.ndarray],
    method: Method,
    progress: Callable[[], Any],
) -> tuple[Computed, list[Computed]]:
    """An entropy that the method computes, of all points and of some of them in turn.

    Args:
      points: on one device.
      entropy: of a truncation up to n; where fewer points are kept, it keeps all eigenvalues.
      kept: booleans `[n]`, for each turn.
      method: as `compute`.
      progress: called after each spectrum.

    Returns:
      What all points give, and what each turn does.
    """
    terms = ALL_TERMS if points.paired else OUTPUTS
    everything, *found = check_method(method).of_deletions(points, entropy, kept, terms, progress)
    return everything, found


def check(points: Pairs, method: Method) -> None:
    """Raises where a method cannot have the spectra of these points; computes nothing."""
    check_method(method).check(points, ALL_TERMS if points.paired else OUTPUTS)


def check_method(method: Method) -> Method:
    """Returns the method, or raises TypeError where it is none."""
    if not isinstance(method, Method):
        raise TypeError(
            "method: expected cv.Auto(key=...), cv.Exact(), cv.Stored(key=...), "
            "cv.MatrixFree(key=...), cv.RandomFeatures(key=...) or cv.Nystroem(key=...), received "
            f"{method!r}."
        )
    return method


class Method(abc.ABC):
    """How the entropies of Grams are computed that need their spectra."""

    #: What a result says of how it was computed.
    name: ClassVar[str]
    #: Whether it scores features in the place of the kernel, in time linear in n: then order 2 too,
    #: and of the same draw, whatever rows are left out.
    approximates: ClassVar[bool] = False

    def computes(self, entropy: Entropy) -> bool:
        """Whether an entropy is its to compute, and not the pass over all pairs."""
        return self.approximates or entropy.needs_spectrum

    def check(self, points: Pairs, terms: Terms) -> None:
        """Raises where it cannot be used on these points; computes nothing."""
        self.suited_to(grams_of_terms(points), terms)

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies of points, for the wanted terms."""
        grams = grams_of_terms(points)
        return self.suited_to(grams, terms).entropies(grams, wanted, terms)

    def of_deletions(
        self,
        points: Pairs,
        entropy: Entropy,
        kept: Sequence[np.ndarray],
        terms: Terms,
        progress: Callable[[], Any],
    ) -> Iterator[Computed]:
        """An entropy of all points, and of those that are kept in turn, booleans `[n]`."""
        grams = grams_of_terms(points)
        suited = self.suited_to(grams, terms)
        yield suited.of_all_rows(points, grams, entropy, terms)
        progress()
        for rows in kept:
            yield suited.of_rows(points, grams, rows, entropy.fitted(int(rows.sum())), terms)
            progress()

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        """The method that will run on these Grams: itself, after what it needs was checked.

        Args:
          grams: of the outputs and, where there are any, of the prompts and of the pairs.
          terms: which of them are wanted.

        Raises:
          ValueError: what it needs is not there: memory, or a key.
        """
        del grams, terms
        return self

    @abc.abstractmethod
    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies, for the wanted terms."""

    def of_all_rows(self, points: Pairs, grams: Grams, entropy: Entropy, terms: Terms) -> Computed:
        """An entropy of all points, before those of some: see `of_rows`."""
        del points
        (computed,) = self.entropies(grams, (entropy,), terms)
        return computed

    def of_rows(
        self, points: Pairs, grams: Grams, kept: np.ndarray, entropy: Entropy, terms: Terms
    ) -> Computed:
        """An entropy of some of the points: those that are kept, booleans `[n]`.

        Args:
          points: all of them.
          grams: of all of them.
          kept: which of them are meant.
          entropy: of a truncation up to their number.
          terms: which Grams are wanted.
        """
        del grams
        (computed,) = compute(points.rows(np.flatnonzero(kept)), (entropy,), self, terms)
        return computed


@dataclasses.dataclass(frozen=True)
class Exact(Method):
    """All eigenvalues: O(n^3) time and n x n arrays, or less where the kernels have few features.

    Needs no key. Differentiable, and the one way of having a spectrum inside `jax.jit`.
    """

    name: ClassVar[str] = "exact"

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        """Itself; ValueError where an n x n array is needed and does not fit."""
        if not _all_dual(grams, terms):
            memory.check(grams.outputs.n, grams.outputs.dtype)
        return self

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies, differentiably."""
        self._warn_of_long_work(grams, terms)
        return self._of_spectra(grams, wanted, terms, _eigenvalues)

    def of_all_rows(self, points: Pairs, grams: Grams, entropy: Entropy, terms: Terms) -> Computed:
        """By the program of `of_rows`, which is not compiled beside another of the same spectra."""
        self._warn_of_long_work(grams, terms)
        return self.of_rows(points, grams, np.ones(points.n, bool), entropy, terms)

    def of_rows(
        self, points: Pairs, grams: Grams, kept: np.ndarray, entropy: Entropy, terms: Terms
    ) -> Computed:
        """From Grams of one size whatever is left out, so that one program serves them all."""
        del points
        of_kept = functools.partial(_eigenvalues_of_rows, kept=jnp.asarray(kept))
        (computed,) = self._of_spectra(grams, (entropy,), terms, of_kept)
        return computed

    def _of_spectra(
        self,
        grams: Grams,
        wanted: Sequence[Entropy],
        terms: Terms,
        eigenvalues: Callable[[Gram], jax.Array],
    ) -> list[Computed]:
        with memory.explained(grams.outputs.n, grams.outputs.dtype):
            found = _asked(grams, terms, lambda gram: _finished(eigenvalues(gram)))
        values = _of_spectra(found, tuple(wanted))
        spectra.check_spectra(*jax.tree.leaves(values))
        return [Computed(of_entropy, None, self.name) for of_entropy in values]

    @staticmethod
    def _warn_of_long_work(grams: Grams, terms: Terms) -> None:
        n = grams.outputs.n
        bounds = _asked(grams, terms, lambda gram: gram.rank_bound)
        ranks = [rank for rank in bounds if rank is not None]
        if max(ranks) <= _LONG_ABOVE:
            return
        minutes = sum(rank**3 for rank in ranks) * _SECONDS_PER_CUBE / 60
        validation.warn(
            f"all eigenvalues of n = {n:,} points take some {minutes:.0f} minutes on two CPU "
            "cores; method=cv.Auto(key=jax.random.key(0)) estimates the scores, with an interval, "
            "in a small part of that."
        )


class _Estimating(Method):
    """What `Stored` and `MatrixFree` share: a spectral measure of each Gram."""

    key: jax.Array
    rtol: float
    #: Products with each Gram, per point, that it may take; any number where None.
    products_per_point: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", validation.check_key(self.key))
        object.__setattr__(self, "rtol", validation.check_rtol(self.rtol))

    @abc.abstractmethod
    def held(self, gram: Gram) -> Gram:
        """The Gram in the form that products are taken with."""

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies with its estimates, refined until all scores are within `rtol`."""
        with memory.explained(grams.outputs.n, grams.outputs.dtype):
            held = _asked(self._held(grams), terms, lambda gram: gram)
            names = [name for name, gram in held._asdict().items() if gram is not None]
            samplers, rows = estimators.refine(
                [getattr(held, name) for name in names],
                wanted,
                lambda row: _known_scores(_by_name(names, row)),
                key=self.key,
                rtol=self.rtol,
                limit=None
                if self.products_per_point is None
                else self.products_per_point * grams.outputs.n,
            )
        differentiable = [getattr(grams, name) for name in names]
        found = []
        for entropy, row in zip(wanted, rows, strict=True):
            values = [
                jnp.asarray(estimate.value, gram.dtype)
                for estimate, gram in zip(row, differentiable, strict=True)
            ]
            if not validation.is_concrete(*differentiable):
                values = [
                    value + sampler.slope(entropy, gram)
                    for value, sampler, gram in zip(values, samplers, differentiable, strict=True)
                ]
            found.append(Computed(_by_name(names, values), _by_name(names, row), self.name))
        return found

    def _held(self, grams: Grams) -> Grams:
        """The Grams that products are taken with, the pairs' from those of both."""
        constant = jax.tree.map(lax.stop_gradient, grams)
        outputs = self.held(constant.outputs)
        if constant.prompts is None:
            return PerTerm(outputs, None, None)
        prompts = self.held(constant.prompts)
        return PerTerm(outputs, prompts, self.held(outputs * prompts))


@dataclasses.dataclass(frozen=True, eq=False)
class Stored(_Estimating):
    """A spectral measure of each Gram, whose n x n matrix is stored: seconds at n = 14,000.

    Needs a key, and memory for the matrices of outputs, prompts and pairs; on a mesh every device
    has some of their rows. Not inside `jax.jit`: it adapts to numbers.

    Attributes:
      key: draws the probes. The same key gives the same number on any number of devices.
      rtol: how wide on either side, relatively, the 95% intervals of the scores may be.
    """

    name: ClassVar[str] = "stored"
    key: jax.Array
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        """Itself; ValueError where the matrices do not fit."""
        del terms
        of_outputs = grams.outputs
        memory.check(of_outputs.n, of_outputs.dtype, share=of_outputs.stored_share)
        return self

    def held(self, gram: Gram) -> Gram:
        """The Gram with its matrix."""
        return _store(gram)


class _StoredWhereQuicker(Stored):
    """`Stored`, or all eigenvalues where these are predicted to take less."""

    products_per_point: ClassVar[int | None] = _PRODUCTS_PER_POINT

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies, with estimates unless all eigenvalues were quicker."""
        try:
            return super().entropies(grams, wanted, terms)
        except estimators.TooMuchWork:
            return Exact().entropies(grams, wanted, terms)


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixFree(_Estimating):
    """A spectral measure of each Gram, from products with a matrix that never exists: any n.

    Needs a key. Not inside `jax.jit`: it adapts to numbers.

    Attributes:
      key, rtol: as `Stored`.
    """

    name: ClassVar[str] = "matrix-free"
    key: jax.Array
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def held(self, gram: Gram) -> Gram:
        """Itself."""
        return gram


@dataclasses.dataclass(frozen=True, eq=False)
class Auto(Method):
    """The method that suits: exact where that is quick or there is no key, else estimated.

    `Exact` up to n = 4,096, where the kernels have few features, inside `jax.jit` and wherever
    there is no key; above, `Stored` while the matrices fit in memory, and then `MatrixFree`.

    Attributes:
      key: for the probes of an estimate; None never estimates.
      rtol: as `Stored`.
    """

    name: ClassVar[str] = "auto"
    key: jax.Array | None = None
    rtol: float = dataclasses.field(default=estimators.DEFAULT_RTOL, kw_only=True)

    def __post_init__(self) -> None:
        if self.key is not None:
            object.__setattr__(self, "key", validation.check_key(self.key))
        object.__setattr__(self, "rtol", validation.check_rtol(self.rtol))

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        """The method by n, rank, memory and key."""
        gram = grams.outputs
        # Whether a tracer belongs to jit, where nothing can adapt, is not known here.
        quick = gram.n <= _EXACT_UP_TO or not validation.is_concrete(grams)
        if self.key is None or _all_dual(grams, terms):
            return Exact().suited_to(grams, terms)
        if quick and memory.fits(gram.n, gram.dtype):
            return Exact()
        if memory.fits(gram.n, gram.dtype):
            return _StoredWhereQuicker(self.key, rtol=self.rtol)
        if memory.fits(gram.n, gram.dtype, share=gram.stored_share):
            return Stored(self.key, rtol=self.rtol)
        return MatrixFree(self.key, rtol=self.rtol)

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """By the method that suits."""
        return self.suited_to(grams, terms).entropies(grams, wanted, terms)


class _OfFeatures(Method):
    """What `RandomFeatures` and `Nystroem` share: d x d spectra, from one pass over the rows."""

    approximates: ClassVar[bool] = True

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Not available: features are of points."""
        raise TypeError(
            f"method: {self.name} is of points, and here there are only their Gram matrices; "
            "expected cv.Exact(), cv.Stored(key=...) or cv.MatrixFree(key=...)."
        )

    def check(self, points: Pairs, terms: Terms) -> None:
        """Raises where the points are spread over devices, or not known."""
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

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        """Each of the entropies with its estimates."""
        self.check(points, terms)
        return self._of_kept(points, np.ones(points.n, bool), wanted, terms)

    def of_deletions(
        self,
        points: Pairs,
        entropy: Entropy,
        kept: Sequence[np.ndarray],
        terms: Terms,
        progress: Callable[[], Any],
    ) -> Iterator[Computed]:
        """From one draw, so that what it is off by is off in all turns alike."""
        self.check(points, terms)
        for rows in (np.ones(points.n, bool), *kept):
            yield from self._of_kept(points, rows, (entropy.fitted(int(rows.sum())),), terms)
            progress()

    def _of_kept(
        self, points: Pairs, kept: np.ndarray, wanted: Sequence[Entropy], terms: Terms
    ) -> list[Computed]:
        names = [name for name, term in terms._asdict().items() if term]
        by_term = self._estimates(points, kept, wanted, terms)
        return [
            Computed(
                _by_name(names, [jnp.asarray(e.value, points.dtype) for e in row]),
                _by_name(names, row),
                self.name,
            )
            for row in zip(*by_term, strict=True)
        ]

    @abc.abstractmethod
    def _estimates(
        self, points: Pairs, kept: np.ndarray, wanted: Sequence[Entropy], terms: Terms
    ) -> list[list[Estimate]]:
        """For each wanted term, each of the entropies of the points that are kept."""


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures(_OfFeatures):
    """Random Fourier features of Gaussian kernels: time and memory linear in n, at any order.

    FKEA (Ospanov et al., 2024) scores such features as they are, which is too little, at order 1
    by tenths of a nat. Here what more frequencies would give is extrapolated, and the intervals
    say how far that may be off (`approximations.fourier_estimates`): narrow at orders from 2 on,
    coarse at order 1 wherever many small eigenvalues matter, and coarser below.

    Points are on one device; not inside `jax.jit` and not differentiable. The time is
    O(n count^2 + count^3). Where there are fewer points than 1.5 count, the same eigenvalues are
    computed from n x n matrices, in O(n^2 count).

    Attributes:
      key: draws the frequencies, which outputs, prompts and pairs share.
      count: how many, a multiple of 8; there are twice as many features.
    """

    name: ClassVar[str] = "random-features"
    key: jax.Array
    count: int = dataclasses.field(default=feature_maps.DEFAULT_COUNT, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", validation.check_key(self.key))
        count = validation.check_count(self.count, name="count", minimum=1)
        if count % approximations.GROUPS:
            raise ValueError(
                f"count: expected a multiple of {approximations.GROUPS}, received {count}."
            )

    def check(self, points: Pairs, terms: Terms) -> None:
        """Raises where a kernel is not Gaussian, or as the other method of features."""
        super().check(points, terms)
        for kernel in points.kernels:
            feature_maps.length_scale(kernel)
        memory.check_fourier(
            points.n,
            self.count,
            points.dtype,
            dual=self._dual(points.n),
            terms=sum(terms),
            dimensions=sum(part.shape[1] for part in points.arrays),
        )

    def _estimates(
        self, points: Pairs, kept: np.ndarray, wanted: Sequence[Entropy], terms: Terms
    ) -> list[list[Estimate]]:
        frequencies = feature_maps.draw_frequencies(points, key=self.key, count=self.count)
        chosen = _kept(points, kept)
        if self._dual(chosen.n):
            # One term at a time: all groups of its frequencies are held.
            matrices = itertools.chain.from_iterable(
                feature_maps.fourier_grams(chosen, frequencies, term, approximations.GROUPS)
                for term in _one_by_one(terms)
            )
        else:
            matrices = feature_maps.fourier_covariances(chosen, frequencies, terms)
        return [approximations.fourier_estimates(m, wanted, chosen.n) for m in matrices]

    def _dual(self, n: int) -> bool:
        """Whether 13 spectra of n x n matrices cost less than those of the features' subsets.

        The latter cost as much as 7 of 2 count x 2 count matrices, and time grows with the cube.
        """
        return 2 * n <= 3 * self.count


@dataclasses.dataclass(frozen=True, eq=False)
class Nystroem(_OfFeatures):
    """Nystroem features of some of the points, of any kernel: O(n landmarks^2), at any order.

    What the landmarks do not span is known in all, and how unequally it is spread from a sample of
    pairs, but not where it lies: intervals hold every spectrum that this leaves possible
    (`approximations.nystroem_estimates`), and are wide unless the landmarks span nearly everything.
    There are no probes, and so no standard error.

    Points are on one device; not inside `jax.jit` and not differentiable.

    Attributes:
      key: draws the landmarks, which outputs, prompts and pairs share.
      landmarks: how many; all points where there are fewer, which is exact.
    """

    name: ClassVar[str] = "nystroem"
    key: jax.Array
    landmarks: int = dataclasses.field(default=feature_maps.DEFAULT_LANDMARKS, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", validation.check_key(self.key))
        validation.check_count(self.landmarks, name="landmarks", minimum=1)

    def _estimates(
        self, points: Pairs, kept: np.ndarray, wanted: Sequence[Entropy], terms: Terms
    ) -> list[list[Estimate]]:
        # Each in one order of all points, so that most stay where some points are left out.
        of_landmarks, of_sample = jax.random.split(self.key)
        landmarks = _first(points, kept, of_landmarks, self.landmarks).arrays
        sample = _first(points, kept, of_sample, _SAMPLED)
        chosen = _kept(points, kept)
        covariances = feature_maps.nystroem_covariances(chosen, landmarks, terms)
        squares = feature_maps.residual_squares(sample, landmarks, terms)
        return [
            approximations.nystroem_estimates(
                covariance,
                approximations.residual_norms(np.asarray(square, np.float64), chosen.n),
                wanted,
                chosen.n,
            )
            for covariance, square in zip(covariances, squares, strict=True)
        ]


def _kept(points: Pairs, kept: np.ndarray) -> Pairs:
    return points if kept.all() else points.rows(np.flatnonzero(kept))


def _first(points: Pairs, kept: np.ndarray, key: jax.Array, count: int) -> Pairs:
    """The first so many of the points that are kept, in the order of the key."""
    order = np.asarray(feature_maps.draw_rows(points.n, key=key, count=points.n))
    return points.rows(order[kept[order]][:count])


AUTO = Auto()
#: The methods as a command line names them.
BY_NAME: dict[str, type[Method]] = {
    m.name: m for m in (Auto, Exact, Stored, MatrixFree, RandomFeatures, Nystroem)
}
#: Those that refine to a tolerance.
TOLERANT = (Auto.name, Stored.name, MatrixFree.name)
#: Those of finite features, and what they call their number.
_FEATURES = {RandomFeatures.name: "count", Nystroem.name: "landmarks"}


def named(
    name: str, *, key: jax.Array, rtol: float | None = None, features: int | None = None
) -> Method:
    """The method of a name in `BY_NAME`, with the settings that it has a use for.

    Args:
      name: as a command line gives it.
      key: for the probes of an estimate, or for the features.
      rtol: `estimators.DEFAULT_RTOL` where None.
      features: how many frequencies or landmarks; the method's own default where None.

    Raises:
      ValueError: there is no such method.
    """
    if name not in BY_NAME:
        raise ValueError(f"method: expected one of {', '.join(BY_NAME)}, received {name!r}.")
    kind: Any = BY_NAME[name]
    if name in _FEATURES:
        return kind(key, **({} if features is None else {_FEATURES[name]: features}))
    if name not in TOLERANT:
        return kind()
    return kind(key, rtol=estimators.DEFAULT_RTOL if rtol is None else rtol)


def grams_of_terms(points: Pairs) -> Grams:
    """The Grams of outputs, prompts and pairs; None where there are no prompts."""
    of_outputs, *others = points.grams()
    if not others:
        return PerTerm(of_outputs, None, None)
    (of_prompts,) = others
    return PerTerm(of_outputs, of_prompts, of_outputs * of_prompts)


def _asked(grams: Grams, terms: Terms, function: Callable[[Gram], Any]) -> PerTerm:
    """A function of the Grams that are asked for, None for the others."""
    return PerTerm(
        *(function(gram) if asked else None for gram, asked in zip(grams, terms, strict=True))
    )


def _one_by_one(terms: Terms) -> Iterator[Terms]:
    """Each of the terms that are asked for, alone."""
    for name, asked in terms._asdict().items():
        if asked:
            yield PerTerm(False, False, False)._replace(**{name: True})


def _by_name(names: Sequence[str], values: Sequence[Any]) -> PerTerm:
    """Values of some terms, None for the others."""
    return PerTerm(None, None, None)._replace(**dict(zip(names, values, strict=True)))


def _known_scores(values: PerTerm) -> list[Any]:
    """The logarithms of the scores that these terms determine."""
    return [score for score in log_scores(*values) if score is not None]


def _all_dual(grams: Grams, terms: Terms) -> bool:
    """Whether every spectrum that is wanted is that of a smaller matrix than n x n."""
    wanted = _asked(grams, terms, lambda gram: gram.rank_bound < gram.n)
    return all(dual for dual in wanted if dual is not None)


def _finished(array: jax.Array) -> jax.Array:
    """The array once it is there; an interrupt is seen while it is waited for.

    Waiting for JAX itself would put it off until the end, which for eigenvalues may be minutes.
    """
    if not validation.is_concrete(array) or array.size <= _WAITED_FOR_ABOVE:
        return array
    done = threading.Event()

    def wait() -> None:
        # What it raises it raises again below, where it can be explained.
        with contextlib.suppress(Exception):
            jax.block_until_ready(array)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    done.wait()
    return jax.block_until_ready(array)


# A program of its own: compiling it takes most of the time of a first call, and it serves outputs,
# prompts and their joint, of every order and truncation.
@jax.jit
def _eigenvalues(gram: Gram) -> jax.Array:
    return gram.eigenvalues()


@jax.jit
def _eigenvalues_of_rows(gram: Gram, kept: jax.Array) -> jax.Array:
    """Those of the Gram of some of the points, and a zero for every other point, `[n]`."""
    return gram.restricted(kept).eigenvalues()


@functools.partial(jax.jit, static_argnums=1)
def _of_spectra(of_terms: PerTerm, wanted: tuple[Entropy, ...]) -> list[PerTerm]:
    """Each entropy of every spectrum."""
    return [jax.tree.map(entropy.of_spectrum, of_terms) for entropy in wanted]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _frobenius(points: Pairs, terms: Terms, in_tiles: bool) -> PerTerm:
    """The entropies of order 2, in one pass over the pairs of points."""
    found = entropies.entropies(_RENYI_2, *points.grams(in_tiles=in_tiles))
    return PerTerm(*(value if asked else None for value, asked in zip(found, terms, strict=True)))


@jax.jit
def _store(gram: Gram) -> Gram:
    return gram.store()
