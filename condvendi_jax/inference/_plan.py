"""What is computed of each model, and the computing of it: `evaluate` and `compare` are this."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference._results import Evaluation, RepeatedPrompts
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Auto, Method

Errors = Literal["auto", "all", "none"]
# With errors="auto": above this n the spectra of 20 groups take minutes on two CPU cores, so errors
# that need spectra are left out.
ERRORS_UP_TO = 2000


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
        errors: Errors,
        groups: int | ArrayLike | None,
        seed: int,
        progress: Callable[[str], Any],
    ):
        self.entropies, self.keys = check_orders(orders, truncation), Keys(seed)
        if errors not in ("auto", "all", "none"):
            raise ValueError(f"errors: expected 'auto', 'all' or 'none', received {errors!r}.")
        method = Auto(self.keys.probes) if method is None else method
        self.method = methods.check_method(method)
        self.errors: Errors = errors
        self.errors_up_to = [errors_up_to(errors, e, self.method) for e in self.entropies]
        self.count, self.labels = jackknife.DEFAULT_GROUPS, None
        if isinstance(groups, (int, np.integer)):
            self.count = validation.check_count(groups, name="groups", minimum=2)
        else:
            self.labels = groups
        self.seed, self.progress = seed, progress

    def evaluate(
        self, models: Mapping[str, Pairs], *, shared: bool = True
    ) -> tuple[dict[str, Evaluation], str]:
        """The evaluation of each model, under the same kernels and with the same groups.

        `shared` says whether all models have the same prompts row by row. Also returns how models
        are matched, as `group_models`.
        """
        numbers = [pairs.n for pairs in models.values()]
        entropies = [entropy.clamped(min(numbers)) for entropy in self.entropies]
        spread = [max(numbers) <= limit for limit in self.errors_up_to]
        groups, matched, near = dict.fromkeys(models), "none", models
        moved: dict[str, tuple[Pairs, ...]] = dict.fromkeys(models, ())
        if any(spread) and min(numbers) >= jackknife.FEWEST_ROWS:
            near = {name: pairs.gathered() for name, pairs in models.items()}
            moved = {name: pairs.moved() for name, pairs in near.items()}
            groups, matched = jackknife.group_models(
                near, self.count, key=self.keys.groups, shared=shared
            )
        evaluations = {}
        for name, pairs in models.items():
            chosen = groups[name]
            orders = []
            for entropy, with_errors in zip(entropies, spread, strict=True):
                words = f"order {entropy.order:g}" + (f" of {name}" if name else "")
                self.progress(words)
                orders.append(
                    jackknife.score(
                        near[name] if with_errors else pairs,
                        entropy,
                        chosen,
                        method=self.method,
                        with_errors=with_errors,
                        moved=moved[name],
                        progress=functools.partial(self._count, words, itertools.count(1)),
                    )
                )
            evaluations[name] = Evaluation(
                n=pairs.n,
                dtype=pairs.dtype.name,
                bandwidths=pairs.bandwidths,
                orders=tuple(orders),
                groups=chosen and chosen.count,
                units=chosen and chosen.units,
                seed=self.seed,
                repeated_prompts=RepeatedPrompts.of(pairs),
            )
        return evaluations, matched

    def _count(self, words: str, count: Iterator[int]) -> None:
        self.progress(f"errors of {words}: {next(count)} done")


def errors_up_to(errors: Errors, entropy: Entropy, method: Method) -> float:
    """The largest n at which standard errors of an entropy are computed."""
    if errors == "auto":
        return ERRORS_UP_TO if method.computes(entropy) else math.inf
    return math.inf if errors == "all" else 0


def check_orders(orders: Sequence[float], truncation: int | None) -> list[Entropy]:
    """The entropies of these orders, or ValueError: none, out of range, or the same twice."""
    if not isinstance(orders, (list, tuple, np.ndarray)):
        raise ValueError(f"orders: expected a list of numbers above 0, received {orders!r}.")
    wanted = [Entropy(order=order, truncation=truncation) for order in orders]
    if not wanted or len(set(wanted)) < len(wanted):
        raise ValueError(f"orders: expected different numbers above 0, received {orders!r}.")
    return wanted
