"""Saturated scores: those that differ by nothing but rounding, or are nearly at a limit.

At these bandwidths saturated scores tell nothing apart: ranks, correlations and tests would order
rounding errors, or the tail of a kernel. `of_entropies` is the one test of scores that are nearly
at a limit, `untested` says which two models are then not compared, and `advice` what to do.
"""

import math
import pathlib
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base.devices import take
from condvendi_jax.base.tables import span
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Decomposition, Entropy, PerScore
from condvendi_jax.results.evaluation import Advice, Evaluation, Limit, score_name
from condvendi_jax.spectra import methods, order_two
from condvendi_jax.statistics.reasons import Reason, Saturated

# What rounding moves a score by when its rows are permuted, in eps of the dtype relative to the
# score. Measured under narrow, usual and wide bandwidths, in float32 at n = 10 to 2,000 and in
# float64 at 10 to 200: where scores are 1 or n, at most 4 at order 2, which sums kernel values, and
# 357 from eigenvalues. Elsewhere distances round too: those of tight, far clusters moved by 2,500.
_EPS_OF_SUMS, _EPS_OF_EIGENVALUES = 8, 512
# Choices. Let RKE of n rows be a share a of n. Rows of equal law then have an RKE of n a / (1 - a)
# in the limit, and twice as many rows multiply RKE by 2 / (2 - a): by 1.82 at a = 0.9, which is
# nearly the 2 of a count. Of outputs and prompts of six shipped sets, n = 40 to 300, scores above
# 0.9 n grew by 1.9 to 2.0, at order 1 too. At the other end, two equal modes have an RKE of 1.05
# where the square of the kernel between them is 0.905, and one mode where it has 97.6% of the rows.
APART, ALIKE = 0.9, 1.05
_LOOKED_AT = 4096  # A choice: all pairs of this many distinct prompts take a moment.


def rounding(entropy: Entropy, dtype: Any) -> float:
    """The largest change of a score by rounding in a dtype, relative to the score."""
    units = _EPS_OF_EIGENVALUES if entropy.needs_spectrum else _EPS_OF_SUMS
    # Below order 1 small eigenvalues count more, and so does their rounding.
    return float(units * np.finfo(dtype).eps) ** min(1.0, entropy.order)


def largest_score(pairs: Pairs, entropy: Entropy) -> float:
    """The largest score that the weights allow, of rows that share nothing: n if they are equal."""
    if pairs.weights is None:
        return float(min(pairs.n, entropy.truncation or pairs.n))
    return float(np.exp(entropy.of_spectrum(np.sort(pairs.shares)[::-1].astype(pairs.dtype))))


class Nearly(NamedTuple):
    """Scores that are nearly at a limit: booleans of their shape, nowhere true at both."""

    smallest: np.ndarray
    largest: np.ndarray


def nearly(values: Any, largest: Any) -> Nearly:
    """Whether scores are below 1.05, or above 0.9 of the largest that they can be.

    Args:
      values: scores of outputs or of prompts, Vendi or RKE, of any shape; effective numbers.
      largest: the largest that each can be, of a shape that fits: the number of rows, or of kept
        eigenvalues. Of NaN, and where these are so few that a score is near both, both are False.
    """
    values = np.asarray(values, np.float64)
    alike, apart = values < ALIKE, values > APART * np.asarray(largest, np.float64)
    return Nearly(alike & ~apart, apart & ~alike)


def of_entropies(terms: Any, largest: Any) -> Nearly:
    """Whether scores are nearly at a limit, `[scores, ...]`: see `untested`.

    Of entropies `[terms, ...]` in nats, as `order_two.entropies_of`, and `largest` as `nearly`.
    """
    alike, apart = nearly(np.exp(terms), largest)
    of_scores = np.stack([apart[0], apart[-1], apart[0] | apart[-1]][: len(apart)])
    return Nearly(np.broadcast_to(alike[0], of_scores.shape), of_scores)


def limits_of(
    decomposition: Decomposition, population: Any, *, paired: bool, largest: float
) -> dict[str, Limit]:
    """By name, the limits that scores of one model are near: of a `Population`, of its rows."""
    if decomposition.truncation is not None:  # Its limit says nothing of pairs of rows.
        return {}
    terms = decomposition.entropies[: 3 if paired else 1]
    limits = population.limits if population else of_entropies(terms, largest)
    ends: tuple[Limit, Limit] = ("smallest", "largest")
    flags = (zip(PerScore._fields, at, strict=False) for at in limits)
    return {name: end for end, at in zip(ends, flags, strict=True) for name, there in at if there}


def untested(score: str, models: Sequence[str], values: Any, limits: Nearly) -> list[Reason | None]:
    """Why two models are not tested by a score, `[m]`; None where they are.

    Let s be the mean squared kernel of two different rows. Then n / RKE = 1 + (n - 1) s: at equal n
    the model with the smaller s has the larger score, even at the limit. Above 0.9 n fewer than
    n / 18 pairs of rows count as the same, too few to estimate s. Such a model can be more diverse
    than one below the limit, whose pairs make the error, but not less, and two such models are not
    tested. At equal prompts this holds for pairs of output and prompt, and conditional scores.
    Information may move either way. Outputs that count as the same can only be less diverse.

    Args:
      score: vendi, conditional or information.
      models: the names of the two.
      values: their scores, an array `[2, m]`; nothing is said of NaN.
      limits: whether their outputs, or pairs, are at a limit, `[2, m]` each.
    """
    smaller = values <= values[::-1]
    reasons: list[Reason | None] = [None] * values.shape[1]
    for at_limit, decides, words in (
        (limits.smallest, smaller[::-1], "the same"),
        (limits.largest, smaller | (score == "information"), "different"),
    ):
        for k in np.flatnonzero((at_limit & decides).any(axis=0)).tolist():
            whose = "both" if at_limit[:, k].all() else models[int(at_limit[:, k].argmax())]
            reasons[k] = Saturated(f"nearly every output of {whose} counts as {words}")
    return reasons


_SAID = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def advice(evaluation: Evaluation, pairs: Pairs | None = None) -> tuple[Advice, ...]:
    """The advice on scores of one model that are nearly saturated: at most one a kernel.

    It looks at exp H(X) and exp H(T) of all orders: near 1, or near the largest that they can be.
    Where prompts repeat, it also looks at how many of the answers to a prompt differ, and in the
    data `pairs`, if they are given, whether the kernel blends prompts: fewer than 0.9 are apart.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.arange(30, dtype=np.float32)[:, None]
      >>> result = cv.evaluate(outputs, output_kernel=cv.Gaussian(0.2), orders=[2], errors=False)
      >>> [(item.code, item.evidence) for item in cv.inference.saturation.advice(result)]
      [('outputs apart', 'RKE 30 of 30')]
    """
    advised = []
    for role, chosen in evaluation.bandwidths.items():
        end, evidence = _end(evaluation, role)
        if role == "prompts" and end is None and pairs is not None:
            end, evidence = _blended(pairs)
        if end is None:
            continue
        remedies = {"narrower": "a kernel that tells more of them apart"}
        remedies["wider"] = "a kernel that tells fewer of them apart"
        if chosen.bandwidth is not None:
            remedies = {way: f"a {way} {role[:-1]} bandwidth" for way in remedies}
        code = f"{role} {end}"
        remedy = _SAID["remedies"][code].format(**remedies, noun=evaluation.noun)
        what = evaluation.noun if role == "outputs" else role
        advised.append(Advice(code, _SAID["findings"][end].format(what), evidence, remedy))
    return tuple(advised)


def _end(evaluation: Evaluation, role: str) -> tuple[str | None, str]:
    """At which end the outputs or the prompts are, and the scores that show it."""
    shown: dict[str, list[str]] = {}
    for scored in evaluation.orders:
        result = scored.decomposition
        value = float(np.exp(getattr(result, f"entropy_{role}")))
        words = f"{score_name('vendi', result.order, None)} {value:.4g}"
        smallest, largest = nearly(value, scored.largest)
        differ = scored.saturated.get("conditional") == "largest"
        if differ and role == "outputs" and evaluation.answers:
            words = f"{score_name('conditional', result.order, None)} {result.conditional:.4g}"
            most = f"{scored.largest / np.exp(result.entropy_prompts):.4g} by the weights"
            words += f" of {most if evaluation.weighted else span(evaluation.answers)}"
            shown.setdefault("different", []).append(words)
        elif smallest:
            shown.setdefault("alike", []).append(words)
        elif largest:
            end = "apart" if (result.truncation or result.n) >= result.n else "cut"
            shown.setdefault(end, []).append(f"{words} of {scored.largest:.4g}")
    if role == "prompts" and evaluation.distinct_prompts == 1:
        return None, ""  # No kernel tells equal prompts apart.
    end = next(iter(shown), None)
    return end, ", ".join(shown.get(end or "", ()))


def _blended(pairs: Pairs) -> tuple[str | None, str]:
    """'blended' and the evidence if the kernel tells too few of the repeated prompts apart."""
    kinds, of_row = pairs.prompt_kinds
    if pairs.layout is not None or not 1 < kinds <= min(pairs.n // 2, _LOOKED_AT):
        return None, ""
    _, first = np.unique(of_row, return_index=True)
    shares = np.bincount(of_row, pairs.shares)
    prompts = Pairs.trusted((take(pairs.arrays[1], first),), pairs.kernels[1:], n=kinds)
    points = prompts.weighed(shares.astype(pairs.dtype))
    counted = math.exp(order_two.frobenius(points, methods.OUTPUTS).outputs)
    if counted >= APART / np.sum(shares**2):
        return None, ""
    return "blended", f"RKE {counted:.3g} of {kinds:,} distinct prompts"
