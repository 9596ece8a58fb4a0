"""One call from arrays to scores with errors: bandwidths by rule, groups by prompt.

What `decompose` leaves to its caller is chosen here, and the result records every choice: the
bandwidths and their rule, the groups of the jackknife, the seed. `compare` is the same program for
several models.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import saturation
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.inference._results import Evaluation, RepeatedPrompts, ScoredOrder
from condvendi_jax.kernels import Kernel
from condvendi_jax.pairs import Pairs
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Auto, Method

Errors = Literal["auto", "all", "none"]
# With errors="auto": above this n the spectra of 20 groups take minutes on two CPU cores, so errors
# that need spectra are left out.
ERRORS_UP_TO = 2000
# The Gram of this many distinct prompts, whose RKE is reported, takes a second.
_LOOKED_AT = 4096


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
        self.count, self.labels = jackknife.DEFAULT_GROUPS, None
        if isinstance(groups, (int, np.integer)):
            self.count = validation.check_count(groups, name="groups", minimum=2)
        else:
            self.labels = groups
        self.seed, self.progress = seed, progress


@validation.outside_transformations
def evaluate(
    outputs: ArrayLike | Pairs,
    prompts: ArrayLike | None = None,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    rule: str = "variance",
    orders: Sequence[float] = (1, 2),
    truncation: int | None = None,
    method: Method | None = None,
    errors: Errors = "auto",
    groups: int | ArrayLike | None = None,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Evaluation:
    """The scores of one model with standard errors: what most callers want, in one call.

    Args:
      outputs: X, embeddings `[n, d_x]`; or `Pairs`, which already have prompts, kernels and groups.
      prompts: T, embeddings `[n, d_t]`, row by row of the prompts that gave the outputs; without
        them the scores are Vendi and RKE.
      output_kernel, prompt_kernel: where None, a `Gaussian` whose bandwidth follows the rule.
      rule: 'variance' (CV), 'std' (RKE) or 'median': see `bandwidth_by_rule`.
      orders: Renyi orders in (0, inf].
      truncation: how many eigenvalues every entropy keeps; all where None.
      method: how eigenvalues are computed; `Auto` with a key of the seed where None.
      errors: standard errors of every order ('all'), of none, or ('auto') of those that one pass
        gives, and of the others up to n = 2,000.
      groups: of the jackknife, how many (20 where None) or the label `[n]` of every row; rows with
        equal prompts stay together.
      seed: of the rule's subsets, the groups and the probes of an estimate.
      progress: called with a few words before each step.

    Returns:
      An `Evaluation`; `print` shows it as a table.

    Raises:
      TypeError, ValueError: as `decompose`, `bandwidth_by_rule` and `standard_error`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.integers(2, size=(400, 1)).astype(np.float32)
      >>> outputs = (2 * prompts + rng.integers(2, size=(400, 1))).astype(np.float32)
      >>> result = cv.evaluate(outputs, prompts, orders=[2], rule="median", errors="none")
      >>> print(f"{result.order(2).decomposition.vendi:.1f}")
      2.5
    """
    plan = Plan(orders, truncation, method, errors, groups, seed, progress)
    if isinstance(outputs, Pairs):
        if any(given is not None for given in (prompts, output_kernel, prompt_kernel, plan.labels)):
            raise TypeError(
                "evaluate: received Pairs and prompts, kernels or labels; expected Pairs alone, "
                "which have them."
            )
        pairs = outputs
    else:
        pairs = Pairs(
            outputs,
            prompts,
            output_kernel=output_kernel,
            prompt_kernel=prompt_kernel,
            rule=rule,
            key=plan.keys.rule,
            groups=plan.labels,
            progress=progress,
        )
    evaluations, _ = evaluate_models({"": pairs}, plan)
    return evaluations[""]


def evaluate_models(
    models: Mapping[str, Pairs], plan: Plan, *, shared: bool = True
) -> tuple[dict[str, Evaluation], str]:
    """The evaluation of each model, under the same kernels and with the same groups.

    `shared` says whether all models have the same prompts row by row. Also returns how models are
    matched, as `group_models`.
    """
    numbers = [pairs.n for pairs in models.values()]
    entropies = [entropy.clamped(min(numbers)) for entropy in plan.entropies]
    spread = [wants_errors(plan.errors, e, max(numbers), plan.method) for e in entropies]
    groups, matched = dict.fromkeys(models), "none"
    if any(spread) and min(numbers) >= jackknife.FEWEST_ROWS:
        groups, matched = jackknife.group_models(
            models, plan.count, key=plan.keys.groups, shared=shared
        )
    wanted = list(zip(entropies, spread, strict=True))
    return {
        name: _evaluate_model(pairs, wanted, groups[name], plan, name)
        for name, pairs in models.items()
    }, matched


def _evaluate_model(
    pairs: Pairs,
    wanted: Sequence[tuple[Entropy, bool]],
    groups: Groups | None,
    plan: Plan,
    name: str,
) -> Evaluation:
    """The scores of one model: of each entropy, with or without errors."""
    near = pairs if groups is None else pairs.gathered()
    orders = []
    for entropy, spread in wanted:
        words = f"order {entropy.order:g}" + (f" of {name}" if name else "")
        plan.progress(words)
        if spread and groups is not None:
            scored = _score_with_errors(near, entropy, groups, plan, words)
        else:
            (computed,) = methods.compute(pairs, (entropy,), plan.method)
            errors = jackknife.undefined_errors(pairs) if spread else None
            scored = ScoredOrder(Decomposition.of(computed, entropy, n=pairs.n), errors)
        limits = _limits(scored.decomposition.scores, entropy, pairs)
        orders.append(dataclasses.replace(scored, saturated=limits))
    return Evaluation(
        n=pairs.n,
        dtype=pairs.dtype.name,
        bandwidths=pairs.bandwidths,
        orders=tuple(orders),
        groups=groups and groups.count,
        units=groups and groups.units,
        seed=plan.seed,
        repeated_prompts=_repeated_prompts(pairs),
    )


def _score_with_errors(
    pairs: Pairs, entropy: Entropy, groups: Groups, plan: Plan, words: str
) -> ScoredOrder:
    """One order by the jackknife, which also gives the scores of all rows."""
    count = itertools.count(1)

    def progress() -> None:
        plan.progress(f"errors of {words}: {next(count)} done")

    deletions = jackknife.delete_groups(
        pairs, entropy, groups, method=plan.method, progress=progress
    )
    plan.progress(f"{words}, noise of the bandwidth")
    noise = jackknife.bandwidth_errors(pairs, entropy, deletions, method=plan.method)
    return ScoredOrder(
        deletions.decomposition, deletions.errors(), noise, influences=deletions.influences()
    )


def _limits(scores: PerScore, entropy: Entropy, pairs: Pairs) -> dict[str, saturation.Limit]:
    """The saturated scores, each with the limit that it has reached."""
    limits: dict[str, saturation.Limit] = {}
    for name in PerScore._fields if pairs.paired else ("vendi",):
        limit = saturation.limit_of([float(getattr(scores, name))], pairs.n, entropy, pairs.dtype)
        if limit is not None:
            limits[name] = limit
    return limits


def _repeated_prompts(pairs: Pairs) -> RepeatedPrompts | None:
    """How many of the prompts count as different; None unless each comes twice on average."""
    if not pairs.paired or pairs.layout is not None:
        return None
    kinds, of_row = pairs.prompt_kinds
    if not 1 < kinds <= min(pairs.n // 2, _LOOKED_AT):
        return None
    _, first = np.unique(of_row, return_index=True)
    shares = np.bincount(of_row) / pairs.n
    kernel = pairs.kernels[1]
    prepared = kernel.prepare(pairs.arrays[1][first])
    gram = np.array(kernel.cross(prepared, prepared), np.float64)
    np.fill_diagonal(gram, 1.0)
    return RepeatedPrompts(
        kinds, float(1 / np.sum(shares**2)), float(1 / (shares @ np.square(gram) @ shares))
    )


def wants_errors(errors: Errors, entropy: Entropy, n: int, method: Method) -> bool:
    """Whether standard errors of an entropy of n rows are computed."""
    cheap = not method.computes(entropy) or n <= ERRORS_UP_TO
    return errors == "all" or (errors == "auto" and cheap)


def check_orders(orders: Sequence[float], truncation: int | None) -> list[Entropy]:
    """The entropies of these orders, or ValueError: none, out of range, or the same twice."""
    if not isinstance(orders, (list, tuple, np.ndarray)):
        raise ValueError(f"orders: expected a list of numbers above 0, received {orders!r}.")
    wanted = [Entropy(order=order, truncation=truncation) for order in orders]
    if not wanted or len(set(wanted)) < len(wanted):
        raise ValueError(f"orders: expected different numbers above 0, received {orders!r}.")
    return wanted
