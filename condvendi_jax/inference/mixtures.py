"""The most diverse mixture of several models, and its gain over the best model.

A mixture with the weights w takes each output from a model that is drawn with these probabilities.
Let U_ab be the mean of (k_x k_t)^2 over pairs of different rows, one of model a and one of b, and
T_ab that of k_t^2. The mixture has

    Conditional-RKE(w) = w' T w / w' U w,    w >= 0,    sum_a w_a = 1.

No row meets itself, so that a mixture of equal models has the score of each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.pairs import Labels
from condvendi_jax.inference import comparisons
from condvendi_jax.inference.between import Pooled
from condvendi_jax.inference.errors import (
    DEFAULT_GROUPS,
    Groups,
    group_influences,
    group_models,
    leaves_one_prompt,
    root_mean_square,
)
from condvendi_jax.inference.evaluations import Data, Plan, takes_data

# Smaller gains, relative to the score, may be rounding in float32.
_ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True, repr=False)
class Mixture(Result):
    """The mixture of models with the largest Conditional-RKE. Prints as a few lines.

    Attributes:
      name: 'Conditional-RKE', or 'RKE' where there are no prompts.
      weights: the share of each model by its name. The sum is one.
      score: of the mixture, in effective numbers of modes.
      standard_error: of the score at these weights.
      model_scores: the score of each model alone.
      best: the name of the model with the largest score.
      gain: the score of the mixture minus that of the best model; 0 if no mixture is better.
      gain_error: the standard error of the gain at these weights.
      groups: how many groups the jackknife deleted in turn.
      units: what the groups consist of, in words.
      bandwidths: of the kernels, by name, and where they come from.
    """

    name: str
    weights: dict[str, float]
    score: float
    standard_error: float
    model_scores: dict[str, float]
    best: str
    gain: float
    gain_error: float
    groups: int
    units: str
    bandwidths: Mapping[str, RuledBandwidth]

    def lines(self) -> list[dict[str, Any]]:
        """A line for each model: its weight, and its score alone."""
        each, alone = self.weights.items(), self.model_scores
        return [{"model": m, "weight": w, "score": alone[m]} for m, w in each]

    def parts(self) -> list[str]:
        """The score, the weights and the gain, with errors."""
        score = tables.with_error(self.score, self.standard_error)
        lines = [f"{self.name} of the best mixture: {score}"]
        if self.gain > 0:
            shares = [
                f"{name} {weight:.2f}" for name, weight in self.weights.items() if weight >= 0.005
            ]
            gain = tables.with_error(self.gain, self.gain_error)
            lines.append(f"Weights: {', '.join(shares)}")
            lines.append(f"Gain over the best model, {self.best}: {gain}")
        else:
            lines.append(f"No mixture is better than the best model, {self.best}.")
        return [*lines, f"Errors: jackknife over {self.groups} groups of {self.units}"]


@takes_data
def mixture(
    models: Mapping[str, ArrayLike | Labels],
    prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
    *,
    groups: int | ArrayLike | None = None,
    seed: int = 0,
    **data: Unpack[Data],
) -> Mixture:
    """The weights of the models whose mixture has the largest Conditional-RKE, with errors.

    One pass over the pairs of all rows gives the unbiased scores of all mixtures. The search starts
    at each of the models, and returns the best maximum that it reaches.

    The errors are those of the scores at fixed weights: a change of the weights does not change the
    score at its maximum, to first order.

    Args:
      models, prompts: as `compare`; without prompts the score is RKE.
      groups, seed, data: see `compare`.

    Returns:
      A `Mixture`; `print` shows it as a few lines.

    Raises:
      TypeError, ValueError: `compare` would refuse the arguments.

    Examples:
      Each of two models has two outputs that the other does not have:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> low = np.repeat([[0.0], [1.0]], 60, axis=0).astype(np.float32)
      >>> print(cv.mixture({"low": low, "high": low + 2}, output_kernel=cv.Gaussian(0.1)))
      RKE of the best mixture: 4.0339 ± 0.0070
      Weights: low 0.50, high 0.50
      Gain over the best model, low: 2.0169 ± 0.0039
      Errors: jackknife over 20 groups of rows
    """
    plan = Plan([2], None, None, True, groups, seed, lambda _: None)
    plan.across = True
    pairs = plan.pairs(models, prompts, **data)
    pairs = {name: rows.supported() for name, rows in pairs.items()}
    comparisons.check_numbers(pairs, plan)
    count = plan.count or DEFAULT_GROUPS
    by_name, _ = group_models(pairs, count, key=plan.keys.groups)
    pooled, units = Pooled(pairs, by_name), next(iter(by_name.values())).units
    repeated = pooled.leave_out_single_answers() is not None
    terms = ("joint", "prompts") if pooled.points.paired else ("joint",)
    below, *above = pooled.means_of(terms, repeated)
    fractions = pooled.sizes / pooled.sizes.sum(axis=1, keepdims=True)
    means = _Means(above[0] if above else np.ones_like(below), below, fractions)
    weights, best = _maximise(means)
    alone = np.eye(len(pairs))
    of_mixture, of_best = means.influences(weights), means.influences(alone[best])
    everyone = Groups(pooled.group, units)
    if leaves_one_prompt(pooled.points, everyone):
        of_mixture = np.full_like(of_mixture, np.nan)
    score = float(means.scores(weights)[0])
    model_scores = [float(means.scores(of)[0]) for of in alone]

    def named(values: Any) -> dict[str, float]:
        return dict(zip(pairs, map(float, values), strict=True))

    return Mixture(
        name="Conditional-RKE" if pooled.points.paired else "RKE",
        weights=named(weights),
        score=score,
        standard_error=float(root_mean_square(of_mixture)),
        model_scores=named(model_scores),
        best=[*pairs][best],
        gain=score - model_scores[best],
        gain_error=float(root_mean_square(of_mixture - of_best)),
        groups=everyone.count,
        units=everyone.units,
        bandwidths=next(iter(pairs.values())).bandwidths,
    )


class _Means(NamedTuple):
    """The matrices T and U, of all rows and without each group."""

    above: np.ndarray  # T, `[1 + g, m, m]`.
    below: np.ndarray  # U.
    fractions: np.ndarray  # The share of each group in the rows of each model, `[m, g]`.

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """w' T w / w' U w of all rows, and without each group, `[1 + g]`."""
        above, below = (weights @ of @ weights for of in (self.above, self.below))
        return above / below

    def slopes(self, weights: np.ndarray) -> np.ndarray:
        """The derivatives of the score of all rows in the weights, `[m]`; w' slopes = 0."""
        above, below = (of[0] @ weights for of in (self.above, self.below))
        return 2 * (above - self.scores(weights)[0] * below) / (weights @ below)

    def influences(self, weights: np.ndarray) -> np.ndarray:
        """The influence of each group on the score at fixed weights, `[g]`."""
        whole, *deleted = self.scores(weights)
        return group_influences(whole, deleted, weights @ self.fractions)


def _maximise(means: _Means) -> tuple[np.ndarray, int]:
    """The weights of the largest score, all on the best model unless they gain; and its number."""
    from scipy.optimize import minimize  # Imported where it is used: it is slow to import.

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        score = means.scores(weights)[0]
        return -np.log(score), -means.slopes(weights) / score

    m = means.above.shape[1]
    alone = np.eye(m)
    best = int(np.argmax([means.scores(weights)[0] for weights in alone]))
    weights, largest = alone[best], means.scores(alone[best])[0] * (1 + _ROUNDING)
    for start in alone:
        result = minimize(
            loss,
            start,
            jac=True,
            method="SLSQP",
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        reached = result.x / result.x.sum()
        if means.scores(reached)[0] > largest:
            weights, largest = reached, means.scores(reached)[0]
    return weights, best
