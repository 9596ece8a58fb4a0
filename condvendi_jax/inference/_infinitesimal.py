"""Standard errors from the influences of rows: the infinitesimal jackknife.

A score of n rows changes, to first order, by the sum of the influences of the rows that change.
Rows that depend on each other, such as those of one prompt, are one unit: their influences add up.
The variance of a score is then G / (G - 1) times the sum of the squares over G units, as
docs/errors.md derives, which also says how often the intervals cover. It costs one decomposition
into eigenvectors, not one spectrum for each group that is left out. At orders 1 and 2 the library
uses the exact change of the score when a unit is left out, in place of the unit's influence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, log_scores
from condvendi_jax.inference import saturation
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.inference._results import ErrorsBy, ScoredOrder
from condvendi_jax.pairs import Pairs
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Method, Sloped
from condvendi_jax.spectra._order_two import Leaving, Matrices, leaving_of

# Where influences are too few, or too unlike the change by a deletion, for an error that covers; by
# simulation (docs/errors.md). Rows; groups of rows at order 2; groups of rows elsewhere.
FEWEST_ROWS, FEWEST_GROUPS, FEWEST_SPECTRAL_GROUPS = 20, 7, 50
# Below order 2, a row whose mode no other row has counts for more than its derivative says: up to
# this share of modes among the rows it does not matter.
# This is also true of groups of rows, up to a larger share (docs/errors.md).
_MODES, _MODES_OF_GROUPS = 0.1, 0.5
# Where noise is a larger part of the variance, it stays in.
_NOISE = 0.5


class Influenced(NamedTuple):
    """The scores of one model, and what the weight of each row does to them.

    Attributes:
      decomposition: the scores.
      of_rows: for each score, float64 `[replicates, n]`, in effective numbers of modes: see
        `methods.Sloped`.
      bandwidth_errors: what the draws of the bandwidth rule move, to first order; None where none
        was drawn.
      of_deletions: what each score loses without each unit, `[1, G]`: see `methods.Sloped`.
      sloped: the entropies that all this follows from.
    """

    decomposition: Decomposition
    of_rows: PerScore
    bandwidth_errors: PerScore | None
    of_deletions: PerScore | None
    sloped: Sloped


def leaving(pairs: Pairs, units: Groups) -> list[Leaving]:
    """The rows of each unit, or a copy of each row; units of unlike sizes apart."""
    if units.units == "rows":
        copies = np.ones(pairs.n) if pairs.copies is None else np.maximum(pairs.copies, 1)
        rows = np.arange(pairs.n)
        return [Leaving(rows, rows[:, None], (pairs.shares / copies)[:, None])]
    return leaving_of(units.membership, units.count, pairs.shares)


def influences(
    pairs: Pairs,
    entropy: Entropy,
    method: Method,
    left: Sequence[Leaving] | None = None,
    known: Sloped | None = None,
    stored: Matrices | None = None,
) -> Influenced:
    """The scores of pairs, the influences of rows, and deletions of the units that are `left`.

    `known` and `stored` are as in `methods.compute_sloped`.
    """
    sloped = methods.compute_sloped(pairs, entropy, method, left, known, stored)
    whole = Decomposition.of(sloped.computed, entropy, n=pairs.n, points=pairs)
    changes = [
        list(pairs.bandwidths.values())[index].relative_error * np.array(of_scores(whole, slopes))
        for index, slopes in sloped.of_bandwidths.items()
    ]
    # To first order, the changes by several bandwidths add up as independent ones do.
    noise = PerScore(*np.linalg.norm(changes, axis=0).tolist()) if changes else None
    deletions = None
    if sloped.of_deletions is not None:
        terms = PerTerm(
            *(None if of is None else np.asarray(of)[None] for of in sloped.of_deletions)
        )
        deletions = of_scores(whole, terms)
    return Influenced(whole, of_scores(whole, sloped.of_rows), noise, deletions, sloped)


def of_scores(whole: Decomposition, of_terms: PerTerm) -> PerScore:
    """Derivatives of the scores from those of the entropies: d exp(h) = exp(h) dh."""
    terms = [np.asarray(term, np.float64) for term in of_terms if term is not None]
    if len(terms) == 1:  # Outputs alone: H(T) = 0.
        terms = [terms[0], np.zeros_like(terms[0]), terms[0]]
    logs = log_scores(*terms)
    return PerScore(*(float(score) * log for score, log in zip(whole.scores, logs, strict=True)))


def score(pairs: Pairs, entropy: Entropy, found: Influenced, units: Groups) -> ScoredOrder:
    """The scores with standard errors from the influences of units, or from their deletions."""
    influences = influences_of_units(found, pairs, units)
    # Of a larger number of rows deletions would take too long: there is no error.
    reason = too_many_modes(pairs, found, units)
    if reason is not None:
        reason = f"derivatives make errors too small if {reason}: give a number of groups"
        validation.warn(f"there are no standard errors (NaN): {reason}.")
        influences = PerScore(*(np.full_like(of, np.nan) for of in influences))
    for name, of in zip(PerScore._fields, influences, strict=True):
        if _noisy(of):
            validation.warn(
                f"the standard error of {name} is mostly that of the estimated spectra: a smaller "
                "rtol gives a smaller one."
            )
    errors = PerScore(*map(root_mean_square, influences))
    largest = pairs.largest(entropy)
    limits = saturation.limits_of(found.decomposition, paired=pairs.paired, largest=largest)
    by = ErrorsBy("influences", independent_units(pairs, units), units.units, reason)
    return ScoredOrder(
        found.decomposition, errors, found.bandwidth_errors, limits, influences, by, largest
    )


def doubt(pairs: Pairs, found: Influenced, units: Groups) -> str | None:
    """Why influences give no error that covers, in words; None where they do."""
    whole = found.decomposition
    few = too_few(pairs, units, Entropy(whole.order, whole.truncation))
    if few is not None or whole.estimation is not None:
        return few
    return too_many_modes(pairs, found, units)


def too_few(pairs: Pairs, units: Groups, entropy: Entropy) -> str | None:
    """Why there are too few units for influences, in words; None where there are enough."""
    of_groups = FEWEST_SPECTRAL_GROUPS if entropy.needs_spectrum else FEWEST_GROUPS
    fewest = FEWEST_ROWS if units.units == "rows" else of_groups
    enough = _effective_count(pairs, units) >= fewest
    return None if enough else f"there are fewer than {fewest} {units.units}"


def too_many_modes(pairs: Pairs, found: Influenced, units: Groups) -> str | None:
    """Why influences that are derivatives give too small an error, in words; None where not."""
    whole = found.decomposition
    steep = whole.order < 2 and whole.truncation is None and found.of_deletions is None
    count, modes = pairs.total, math.exp(float(max(whole.entropies)))
    share = _MODES_OF_GROUPS
    if units.units == "rows":
        count, share = _effective_count(pairs, units), _MODES
    if not steep or modes <= share * count:
        return None
    return f"{count:,} rows are few for {modes:,.0f} modes"


def _effective_count(pairs: Pairs, units: Groups) -> int:
    """As many units of equal weight: rows of unequal weights count for fewer."""
    if pairs.weights is None or pairs.copies is not None or units.units != "rows":
        return independent_units(pairs, units)
    return round(1 / float(np.sum(np.square(pairs.shares))))


def independent_units(pairs: Pairs, units: Groups) -> int:
    """How many units count as independent: of rows, as many as integer weights say."""
    return pairs.total if units.units == "rows" else units.present


def influences_of_units(found: Influenced, pairs: Pairs, units: Groups) -> PerScore:
    """For each score `of_units`, from deletions where they were computed."""
    deleted = found.of_deletions is not None
    changes = found.of_deletions or found.of_rows
    return PerScore(*(of_units(of, pairs, units, deleted=deleted) for of in changes))


def of_units(
    changes: np.ndarray, pairs: Pairs, units: Groups, *, deleted: bool = False
) -> np.ndarray:
    """The influences of units, `[replicates, G]`, of which the root mean square is the error.

    From those of rows, or from what is lost without each unit.
    """
    count, independent = units.count, independent_units(pairs, units)
    shares, membership = pairs.shares, units.membership
    if deleted:
        if units.units != "rows":
            shares, membership = np.bincount(membership, shares, count), np.arange(count)
        changes = changes - changes @ shares[:, None]
    weighted = np.where(shares > 0, changes * shares, 0)
    if pairs.copies is not None and units.units == "rows":  # Row i stands for copies_i units.
        weighted /= np.sqrt(np.maximum(pairs.copies, 1))
    sums = [np.bincount(membership, row, minlength=count) for row in weighted]
    return np.stack(sums) * math.sqrt(count * independent / (independent - 1))


def root_mean_square(of_units: np.ndarray) -> float:
    """The error of the mean of replicates `[replicates, G]`, less what their noise adds to it."""
    naive = float(np.mean(np.square(np.mean(of_units, axis=0))))
    unbiased = _unbiased(of_units)
    return math.sqrt(naive if unbiased < _NOISE * naive else unbiased)


def _noisy(of_units: np.ndarray) -> bool:
    """Whether most of the mean square is the noise of the replicates, which then stays in it."""
    return _unbiased(of_units) < _NOISE * float(np.mean(np.square(np.mean(of_units, axis=0))))


def _unbiased(of_units: np.ndarray) -> float:
    """The mean square without noise: from products of different replicates."""
    count = of_units.shape[0]
    if count == 1:
        return float(np.mean(np.square(of_units)))
    products = np.square(of_units.sum(axis=0)) - np.square(of_units).sum(axis=0)
    return float(np.mean(products)) / (count * (count - 1))
