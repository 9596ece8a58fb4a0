"""What is computed of each model, and the computing of it: `evaluate` and `compare` are this."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import _designs as designs
from condvendi_jax.inference import _infinitesimal as infinitesimal
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import _population as populations
from condvendi_jax.inference import saturation
from condvendi_jax.inference._designs import Design
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.inference._population import Population
from condvendi_jax.inference._results import Evaluation, RepeatedPrompts, ScoredOrder
from condvendi_jax.pairs import Pairs
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.scores._in_strips import decompose_in_strips
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Auto, Method
from condvendi_jax.spectra._order_two import Matrices


class Keys:
    """The random keys of an evaluation, all from one seed."""

    def __init__(self, seed: int):
        root = jax.random.key(validation.check_seed(seed))
        self.rule, self.groups = jax.random.split(root)
        self.probes = jax.random.fold_in(root, 2)


class Plan:
    """What is computed of each model: the options that `evaluate` and `compare` share, checked."""

    def __init__(
        self,
        orders: Sequence[float],
        truncation: int | None,
        method: Method | None,
        errors: bool,
        groups: int | ArrayLike | None,
        seed: int,
        progress: Callable[[str], Any],
        checkpoint: str | os.PathLike[str] | None = None,
        unbiased: bool = True,
    ):
        self.unbiased = validation.check_flag(unbiased, name="unbiased")
        self.entropies, self.keys = check_orders(orders, truncation), Keys(seed)
        method = Auto(self.keys.probes) if method is None else method
        self.method = methods.check_method(method)
        self.errors = validation.check_flag(errors, name="errors")
        if self.errors and not self.method.gives_errors:
            raise methods.no_errors(self.method)
        self.count, self.labels = None, None
        if isinstance(groups, (int, np.integer)):
            self.count = validation.check_count(groups, name="groups", minimum=2)
        else:
            self.labels = groups
        self.seed, self.progress, self.checkpoint = seed, progress, checkpoint
        #: The matrices that the last spectrum of a single model has stored: order 2 needs them too.
        self.stored: Matrices | None = None
        if checkpoint is not None:
            spectral = len(self.entropies) > 1 or self.method.computes(self.entropies[0])
            if self.errors or spectral:
                raise ValueError(
                    "checkpoint: expected order 2 alone, without truncation, errors or features "
                    "in place of the kernels."
                )

    def evaluate(
        self, models: Mapping[str, Pairs], *, shared: bool = True
    ) -> tuple[dict[str, Evaluation], str]:
        """The evaluation of each model, under the same kernels and with the same groups.

        `shared` says whether all models have the same prompts row by row. Also returns how models
        are matched, as `group_models`.
        """
        models = {name: pairs.supported() for name, pairs in models.items()}
        by_order, matched = self.score(models, shared=shared)
        return {
            name: Evaluation(
                n=pairs.n,
                dtype=pairs.dtype.name,
                bandwidths=pairs.bandwidths,
                orders=tuple(of_models[name] for of_models in by_order),
                seed=self.seed,
                repeated_prompts=RepeatedPrompts.of(pairs),
                distinct_prompts=pairs.prompt_kinds[0]
                if pairs.paired and pairs.layout is None
                else None,
                weighted=pairs.weights is not None,
                unbiased=self.unbiased,
            )
            for name, pairs in models.items()
        }, matched

    def score(
        self, models: Mapping[str, Pairs], *, shared: bool = True
    ) -> tuple[list[dict[str, ScoredOrder]], str]:
        """By order the scores of each model, without rows of weight zero; and as `evaluate`."""
        fewest = min(pairs.n for pairs in models.values())
        total = min(pairs.total for pairs in models.values())
        with_errors = self.errors and total >= jackknife.FEWEST_ROWS
        units: dict[str, Groups] = {}
        matched = "none"
        if with_errors:
            units, matched = jackknife.group_models(
                models, None, key=self.keys.groups, shared=shared
            )
        found = {}
        # Spectra first: order 2 takes the matrices that they have stored.
        for entropy in sorted(self.entropies, key=self.method.computes, reverse=True):
            fitted = entropy.clamped(fewest)
            if with_errors:
                found[entropy] = self._with_errors(models, fitted, units, shared)
            else:
                found[entropy] = self._without_errors(models, fitted)
        return [found[entropy] for entropy in self.entropies], matched

    def _without_errors(
        self, models: Mapping[str, Pairs], entropy: Entropy
    ) -> dict[str, ScoredOrder]:
        scored = {}
        for name, pairs in models.items():
            words = _words(entropy, name)
            self.progress(words)
            if self.checkpoint is None:
                (computed,) = methods.compute(pairs, (entropy,), self.method)
                found = Decomposition.of(computed, entropy, n=pairs.n, points=pairs)
                population = None
                if not self.method.computes(entropy):
                    population = populations.of_pairs(pairs, None)
            else:
                show = _with_time_left(words, self.progress)
                found = decompose_in_strips(pairs, checkpoint=self.checkpoint, progress=show)
                norms = [np.exp(-float(of)) for of in found.entropies[: 3 if pairs.paired else 1]]
                population = populations.of_total(pairs, np.array(norms))
            errors = jackknife.undefined_errors(pairs) if self.errors else None
            largest = pairs.largest(entropy)
            limits = saturation.limits_of(found, paired=pairs.paired, largest=largest)
            scored[name] = ScoredOrder(
                found, errors, saturated=limits, largest=largest, population=population
            )
        return scored

    def _with_errors(
        self,
        models: Mapping[str, Pairs],
        entropy: Entropy,
        units: Mapping[str, Groups],
        shared: bool,
    ) -> dict[str, ScoredOrder]:
        """By influences; by deletions for all models, where influences of one give no error."""
        reason = None
        if self.method.computes(entropy):
            self.stored = None
        if self.count is None:
            scored, known = {}, None
            for name, pairs in models.items():
                self.progress(_words(entropy, name))
                left = infinitesimal.leaving(pairs, units[name])
                found = infinitesimal.influences(
                    pairs, entropy, self.method, left, known, self.stored
                )
                known = found.sloped if _same_prompts(models, units) else None
                reason = infinitesimal.doubt(pairs, found, units[name])
                if reason is not None:
                    break
                own = infinitesimal.score(pairs, entropy, found, units[name])
                if not self.method.computes(entropy):
                    of = pairs, units[name], found.sloped.pair_sums
                    own = dataclasses.replace(own, population=populations.of_pairs(*of))
                scored[name] = own
                if len(models) == 1 and found.sloped.stored is not None:
                    self.stored = found.sloped.stored
            else:
                return scored
        near = {name: pairs.gathered() for name, pairs in models.items()}
        if all(own.units == "rows" for own in units.values()):
            near = {name: pairs.repeated() for name, pairs in near.items()}
        count = jackknife.DEFAULT_GROUPS if self.count is None else self.count
        groups, _ = jackknife.group_models(near, count, key=self.keys.groups, shared=shared)
        scored = {}
        for name, pairs in near.items():
            words = _words(entropy, name)
            self.progress(words)
            scored[name] = jackknife.score(
                pairs,
                entropy,
                groups[name],
                method=self.method,
                moved=pairs.moved(),
                progress=functools.partial(self._count, words, itertools.count(1)),
                reason=reason,
            )
            if not self.method.computes(entropy):
                units_of = groups[name]._replace(units=f"groups of {groups[name].units}")
                population = populations.of_pairs(pairs, units_of)
                scored[name] = dataclasses.replace(scored[name], population=population)
        return scored

    def _count(self, words: str, count: Iterator[int]) -> None:
        self.progress(f"errors of {words}: {next(count)} done")


def _with_time_left(words: str, progress: Callable[[str], Any]) -> Callable[[float], Any]:
    """Shows which share of the pairs is done and, at the pace so far, how long the rest takes."""
    started: list[tuple[float, float]] = []

    def show(share: float) -> None:
        now, left = time.monotonic(), ""
        if not started:
            started.append((share, now))  # What a checkpoint held took no time.
        first, since = started[0]
        if share > first:
            seconds = round((now - since) * (1 - share) / (share - first))
            left = f", {datetime.timedelta(seconds=seconds)} left"
        progress(f"{words}: {share:.1%} of the pairs{left}")

    return show


def _same_prompts(models: Mapping[str, Pairs], units: Mapping[str, Groups]) -> bool:
    """Whether the prompts, as arrays and by their units, are those of all models, unweighted."""
    first, *rest = models
    if not models[first].paired:
        return False
    return all(
        models[name].arrays[1] is models[first].arrays[1]
        and models[name].weights is models[first].weights is None
        and np.array_equal(units[name].membership, units[first].membership)
        for name in rest
    )


class Common(NamedTuple):
    """What models of different designs have in common: scores grow with prompts and answers.

    Attributes:
      design: the smallest common one, where designs differ.
      untested: why scores that grow cannot be compared, in a sentence; None where they can.
    """

    design: Design | None
    untested: str | None

    @classmethod
    def of(cls, models: Mapping[str, Pairs]) -> Common:
        """That of models."""
        first, *others = map(_design, models.values())
        if all(_alike(first, other) for other in others):
            return cls(None, None)
        design = designs.common(models)
        if design is not None:
            return cls(design, None)
        numbers = [f"{name} ({_in_words(pairs)})" for name, pairs in models.items()]
        words = " and ".join(numbers[:2])
        return cls(None, f"{words} differ in their numbers or weights, with which scores grow")

    @property
    def differ(self) -> str | None:
        """That models have several designs, in words; None where they have one."""
        if self.design is None:
            return self.untested
        return "numbers of prompts, or of answers to each, differ, and scores grow with them"

    def shares(self, of: Iterable[Population], *, unbiased: bool) -> tuple[float, float]:
        """The shares of pairs of a prompt and of an answer with itself at which models are scored.

        Of unbiased scores, those of the fewest prompts, or of any number of prompts where those of
        some model do not repeat.
        """
        if unbiased or self.design is None:
            own = [found.of_prompts for found in of]
            return (max(own) if min(own) > 0 else 0.0), 0.0
        return 1 / self.design.prompts, 1 / self.design.answers


def _design(pairs: Pairs) -> list[np.ndarray]:
    """Sorted: the numbers of answers to each prompt, and the shares of prompts and of rows."""
    kinds, rows = pairs.prompt_kinds[1], pairs.shares
    if pairs.copies is not None or np.allclose(rows, rows[0], rtol=1e-5, atol=0):
        rows = np.full(1, 1 / pairs.total)
    counts = np.bincount(kinds, pairs.copies)
    return [np.sort(of) for of in (counts, np.bincount(kinds, pairs.shares), rows)]


def _alike(one: Sequence[np.ndarray], two: Sequence[np.ndarray]) -> bool:
    """Whether two designs are equal up to rounding."""
    each = zip(one, two, strict=True)
    return all(a.size == b.size and np.allclose(a, b, rtol=1e-5, atol=0) for a, b in each)


def _in_words(pairs: Pairs) -> str:
    """The number of outputs; where prompts repeat, those of prompts and of answers to each."""
    counts = np.bincount(pairs.prompt_kinds[1], pairs.copies).astype(int)
    if counts.size == 1 or counts.max() == 1:
        return f"{pairs.total:,} outputs"
    answers = "-".join(map(str, sorted({counts.min(), counts.max()})))
    return f"{counts.size:,} prompts, {answers} answers each"


def _words(entropy: Entropy, name: str) -> str:
    return f"order {entropy.order:g}" + (f" of {name}" if name else "")


def check_orders(orders: Sequence[float], truncation: int | None) -> list[Entropy]:
    """The entropies of these orders, or ValueError: none, out of range, or the same twice."""
    if not isinstance(orders, (list, tuple, np.ndarray)):
        raise ValueError(f"orders: expected a list of numbers above 0, received {orders!r}.")
    wanted = [Entropy(order=order, truncation=truncation) for order in orders]
    if not wanted or len(set(wanted)) < len(wanted):
        raise ValueError(f"orders: expected different numbers above 0, received {orders!r}.")
    return wanted
