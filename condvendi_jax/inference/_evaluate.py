"""One call from arrays to scores with errors: bandwidths by rule, groups by prompt.

What `decompose` leaves to its caller is chosen here, and the result records every choice: the
bandwidths and their rule, the groups of the jackknife, the seed. `compare` is the same program for
several models.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import _designs as designs
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import _profile as profiles
from condvendi_jax.inference._plan import Plan
from condvendi_jax.inference._results import Evaluation, ScoredOrder
from condvendi_jax.kernels import Gaussian, Kernel
from condvendi_jax.pairs import Labels, Pairs, takes_pairs
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Method

# Rows up to which a pass at another bandwidth takes no more than a second.
_CHEAP = 10_000


@validation.outside_transformations
def evaluate(
    outputs: ArrayLike | Pairs,
    prompts: ArrayLike | None = None,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    rule: str = "variance",
    orders: Sequence[float] = (2, 1),
    truncation: int | None = None,
    method: Method | None = None,
    errors: bool = True,
    unbiased: bool = True,
    prompt_ids: Labels | None = None,
    groups: int | ArrayLike | None = None,
    weights: ArrayLike | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
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
      errors: whether to compute standard errors, from the influences of rows (docs/errors.md).
      unbiased: whether order 2 is shown as `decompose(unbiased=True)` gives it, with an interval
        for the population, and the papers' score beside it; or the papers' score alone.
      prompt_ids: as `Pairs`: which prompts are the same, a label for each row `[n]`.
      groups: rows that depend on each other: their labels `[n]`; where None, rows of equal prompts
        do. A number asks for errors by deletions: a jackknife that leaves out that many groups of
        rows in turn, at the price of as many scores.
      weights: as `Pairs`.
      seed: of the rule's subsets, the groups and the probes of an estimate.
      checkpoint: of `orders=[2]` without errors: a file from which an interrupted call goes on, as
        `scores.decompose_in_strips`. Progress then says how long the rest takes.
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
      >>> result = cv.evaluate(outputs, prompts, orders=[2], rule="median", errors=False)
      >>> print(f"{result.order(2).unbiased.vendi:.1f}")
      2.5
    """
    plan = Plan(orders, truncation, method, errors, groups, seed, progress, checkpoint, unbiased)
    if isinstance(outputs, Pairs):
        beside = (prompts, output_kernel, prompt_kernel, prompt_ids, plan.labels, weights)
        if any(given is not None for given in beside):
            raise TypeError(
                "evaluate: received Pairs and prompts, kernels, ids, labels or weights; expected "
                "Pairs alone, which have them."
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
            prompt_ids=prompt_ids,
            groups=plan.labels,
            weights=weights,
            progress=progress,
        )
    evaluations, _ = plan.evaluate({"": pairs})
    found, pairs = evaluations[""], pairs.supported()
    sloped = tuple(_sloped(scored, pairs, plan) for scored in found.orders)
    return dataclasses.replace(found, orders=sloped, elsewhere=_elsewhere(pairs, plan))


def _sloped(scored: ScoredOrder, pairs: Pairs, plan: Plan) -> ScoredOrder:
    """With the slope, of scores that grow with the rows and that the method does not bound."""
    whole = scored.decomposition
    entropy = Entropy(whole.order, whole.truncation)
    unbounded = entropy.order < 2 and entropy.truncation is None
    if not unbounded or not plan.method.gives_errors:
        return scored
    plan.progress(f"slope of order {entropy.order:g}")
    slope = designs.slope(pairs, entropy, plan.method, whole.scores, seed=plan.seed)
    return dataclasses.replace(scored, slope=slope)


def _elsewhere(pairs: Pairs, plan: Plan) -> dict[float, PerScore] | None:
    """The scores of order 2 at half and at twice the bandwidths, where that is cheap."""
    wanted = [entropy for entropy in plan.entropies if not plan.method.computes(entropy)]
    moving = [k for k, kernel in enumerate(pairs.kernels) if isinstance(kernel, Gaussian)]
    if not wanted or not moving or pairs.n > _CHEAP:
        return None
    return profiles.scores_at(pairs, moving, np.array([0.5, 2.0]), unbiased=plan.unbiased)


@validation.outside_transformations
@takes_pairs
def decomposition_errors(
    pairs: Pairs,
    *,
    order: float = 1,
    truncation: int | None = None,
    method: Method = AUTO,
    key: jax.Array | None = None,
    groups: int | ArrayLike | None = None,
    progress: Callable[[], Any] = lambda: None,
) -> PerScore:
    """The standard errors of the three scores of `decompose`, by influences or by deletions.

    By default they are those of `evaluate`: from the influences of rows, where rows of equal
    prompts, or of one label of the pairs, count as dependent. With `groups` they are those of
    `standard_error`, from deletions. At order 2 all deletions come out of one pass over the pairs:
    the squared norm without a group is that of all rows minus the contribution of the pairs with a
    member in that group. At other orders the method computes one spectrum for each group. The noise
    of estimated spectra enlarges the error; a warning says where it is most of it.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      order, truncation, method: as `decompose`.
      key: as `standard_error`. Without `groups` it need not be given: deletions, where influences
        do not suffice, are of groups drawn by a key of their own.
      groups: as `standard_error`, the rows that leave together: their number or their labels.
      progress: called before each step.

    Returns:
      The standard errors of vendi, conditional and information, in effective numbers of modes.

    Raises:
      TypeError, ValueError: as `decompose` and `standard_error`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
      >>> options = dict(output_kernel=cv.Gaussian(1.0), order=2)
      >>> error = cv.decomposition_errors(outputs, **options).vendi
      >>> print(f"{cv.decompose(outputs, **options).vendi:.2f} +- {error:.2f}")
      4.84 +- 0.29
    """
    methods.check_method(method)
    plan = Plan([order], truncation, method, True, groups, 0, lambda _: progress())
    if plan.count is not None or key is not None:
        plan.keys.groups = validation.check_key(key)
    if plan.labels is not None:
        pairs, plan.count = pairs.labelled(plan.labels), jackknife.DEFAULT_GROUPS
    elif plan.count is not None and plan.count > pairs.n:
        raise ValueError(f"groups: expected at most n = {pairs.n}, received {plan.count}.")
    by_order, _ = plan.score({"": pairs.supported()})
    errors = by_order[0][""].standard_errors
    assert errors is not None  # The plan asks for them.
    return errors
