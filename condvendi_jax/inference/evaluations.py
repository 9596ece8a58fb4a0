"""One call from arrays to scores with errors: bandwidths by rule, groups by prompt."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.bandwidth import AUTO
from condvendi_jax.data.kernel_choice import KernelChoice
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.encoders import Encoder
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import asked_once, designs, saturation
from condvendi_jax.inference import population as populations
from condvendi_jax.inference.datasets import Dataset, advised
from condvendi_jax.inference.errors import FEWEST_ROWS, Units, standard_errors
from condvendi_jax.inference.quality import Asked
from condvendi_jax.results.evaluation import Evaluation, ScoredOrder
from condvendi_jax.spectra.computation import Auto
from condvendi_jax.spectra.methods import Method, check_method
from condvendi_jax.spectra.order_two import Answers
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.reasons import Reason

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Data(TypedDict, total=False):
    """What `evaluate`, `compare` and the like know of the data beside outputs and prompts."""

    encoder: Encoder | str | Sequence[Encoder | str | None] | None
    similarity: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None
    clean: bool
    output_kernel: KernelChoice | Mapping[str, KernelChoice]
    prompt_kernel: KernelChoice
    rule: str
    similar_prompts: bool
    prompt_ids: Labels | Mapping[str, Labels] | None
    batches: Labels | Mapping[str, Labels] | None
    weights: ArrayLike | Mapping[str, ArrayLike] | None


_DEFAULTS: dict[str, Any] = dict.fromkeys(Data.__annotations__)
_DEFAULTS |= {"rule": AUTO, "similar_prompts": False, "clean": True}


class Keys:
    """The random keys of an evaluation, all from one seed; made when they are first used."""

    def __init__(self, seed: int):
        self._seed = checks.check_seed(seed)

    _key = functools.cached_property(lambda self: jax.random.key(self._seed))
    #: Of the subsets of a rule, of the groups that are left out, and of the probes of an estimate.
    rule = functools.cached_property(lambda self: jax.random.split(self._key)[0])
    groups = functools.cached_property(lambda self: jax.random.split(self._key)[1])
    probes = functools.cached_property(lambda self: jax.random.fold_in(self._key, 2))


class Plan:
    """The options that `evaluate` and `compare` share, checked, and the loop over models."""

    def __init__(
        self,
        orders: Sequence[float],
        truncation: int | None,
        method: Method | None,
        errors: bool,
        groups: int | ArrayLike | None,
        seed: int,
        progress: Callable[[str], Any],
        unbiased: bool = True,
    ):
        self.unbiased = checks.check_flag(unbiased, name="unbiased")
        if not isinstance(orders, (list, tuple, np.ndarray)):
            raise ValueError(f"orders: expected a list of numbers above 0, received {orders!r}.")
        self.entropies = [Entropy(order=order, truncation=truncation) for order in orders]
        if not self.entropies or len(set(self.entropies)) < len(self.entropies):
            raise ValueError(f"orders: expected different numbers above 0, received {orders!r}.")
        self.keys = Keys(seed)
        self.method = check_method(Auto(lambda: self.keys.probes) if method is None else method)
        self.errors = checks.check_flag(errors, name="errors")
        number = isinstance(groups, (int, np.integer))
        self.count = checks.check_count(groups, name="groups", minimum=2) if number else None
        self.labels: Any = None if number else groups
        self.seed, self.progress = seed, progress
        self.encoder: Mapping[str, Any] = {}
        self.dataset: Dataset | None = None

    def pairs(
        self, models: Mapping[str, Any], prompts: Any, *, across: bool = False, **data: Unpack[Data]
    ) -> dict[str, Pairs]:
        """The pairs of models under the same kernels; texts are embedded, or compared by pairs."""
        if across and len(models) < 2:
            raise ValueError(f"models: expected at least two, received {[*models]}.")
        if models and isinstance(models, dict) and isinstance([*models.values()][0], Pairs):
            return models
        options: dict[str, Any] = _DEFAULTS | {**data}
        how = [options.pop(name) for name in ("encoder", "similarity", "clean")]
        dataset = Dataset.of(models, prompts, *how, across=across)
        if options["prompt_ids"] is None:
            dataset = dataset.matched(refuse=True)
        self.dataset = dataset
        kind = "texts" if dataset.texts else "images"
        self.encoder = {} if dataset.encoder is None else dataset.encoder.described(kind)
        key = None if options["rule"] == AUTO else self.keys.rule
        options |= {"key": key, "groups": self.labels, "progress": self.progress}
        return dataset.pairs(**options)

    def evaluate(self, models: Mapping[str, Pairs]) -> tuple[dict[str, Evaluation], Units | None]:
        """The evaluation of each model, whose rows have weights above 0, and the groups if any."""
        numbers, units = [pairs.n for pairs in models.values()], None
        entropies = [entropy.clamped(min(numbers), max(numbers)) for entropy in self.entropies]
        if self.errors and min(pairs.total for pairs in models.values()) >= FEWEST_ROWS:
            units = Units.of(models, self.count, lambda: self.keys.groups)
        by_order = [self._scored(models, entropy, units) for entropy in entropies]
        to_one = asked_once.of_models(models, by_order, units) if self.unbiased else {}
        evaluations = {}
        for name, pairs in models.items():
            orders = tuple(of_models[name] for of_models in by_order)
            more: Any = {"weighted": pairs.weights is not None, "unbiased": self.unbiased}
            more |= {"encoder": self.encoder, "one_prompt": to_one.get(name)}
            if pairs.paired and pairs.layout is None:
                more["distinct_prompts"] = pairs.prompt_kinds[0]
                if max(counts := answers_to_each(pairs), default=1) > 1:
                    more["answers"] = int(counts.min()), int(counts.max())
            chosen = pairs.dtype.name, pairs.bandwidths
            evaluation = Evaluation(pairs.n, *chosen, orders, self.seed, **more)
            advice = saturation.advice(evaluation, pairs)
            evaluations[name] = dataclasses.replace(evaluation, advice=advice)
        return evaluations, units

    def _scored(
        self, models: Mapping[str, Pairs], entropy: Entropy, units: Units | None
    ) -> dict[str, ScoredOrder]:
        """The scores of each model by one entropy, with errors where there are units."""
        scored, counted = {}, dict(models)
        # Each prompt counts once, unless groups say that rows were drawn, and not prompts.
        if self.unbiased and entropy.needs_spectrum:
            for name, pairs in models.items():
                kinds = pairs.prompt_kinds[1]
                if not (units and populations.splits(units.of_models[name].membership, kinds)):
                    counted[name] = pairs.prompts_once()
        by_model = standard_errors(counted, entropy, self.method, units, self.progress)
        for name, result in by_model.items():
            pairs, whole, errors = result.pairs, result.decomposition, result.errors
            if self.errors and units is None:
                # Without one of two rows every score is 1, whatever they are.
                least = f"at least three rows: it is NaN for n = {pairs.n}"
                checks.warn(f"the standard error of a score needs {least}.")
                missing = Reason(f"a standard error of a score needs {least}")
                error = Error(math.nan, np.full((1, 1), math.nan), reason=missing)
                errors = PerScore(error, error, error)
            largest, population = saturation.largest_score(pairs, entropy), None
            if not entropy.needs_spectrum:
                population = populations.of_pairs(pairs, result.units, result.pair_sums)
            near = saturation.limits_of(whole, population, paired=pairs.paired, largest=largest)
            by: Any = {"errors_by": result.errors_by, "largest": largest, "population": population}
            scored[name] = ScoredOrder(whole, errors, near, **by)
        return scored


def takes_data(function: _Function) -> _Function:
    """Shows the arguments of `Data` in the signature of a function outside transformations."""
    signature = inspect.signature(function)
    *given, data = signature.parameters.values()
    keyword = functools.partial(inspect.Parameter, kind=data.KEYWORD_ONLY)
    given[2:2] = [  # After outputs and prompts.
        keyword(name, default=_DEFAULTS[name], annotation=hint.__forward_arg__)
        for name, hint in Data.__annotations__.items()
    ]
    vars(function)["__signature__"] = signature.replace(parameters=given)
    return checks.outside_transformations(function)


@takes_data
def evaluate(
    outputs: ArrayLike | Labels | Similarities | Pairs,
    prompts: ArrayLike | Labels | None = None,
    *,
    orders: Sequence[float] = (2, 1),
    truncation: int | None = None,
    method: Method | None = None,
    errors: bool = True,
    unbiased: bool = True,
    quality: ArrayLike | None = None,
    at_least: float | None = None,
    draws: int | None = None,
    groups: int | ArrayLike | None = None,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
    **data: Unpack[Data],
) -> Evaluation:
    """The scores of one model with standard errors: what most callers want, in one call.

    Args:
      outputs: X, embeddings `[n, d_x]`, or `[prompts, k, d_x]` of k answers to each prompt; texts
        or pictures (paths, or of Pillow), which are embedded; integer labels `[n]`, which are equal
        or different; `Similarities`; or `Pairs`, which already have prompts, kernels and groups.
      prompts: T, embeddings `[n, d_t]`, or texts or other labels `[n]`, row by row of the prompts
        that gave the outputs; without them the scores are Vendi and RKE.
      encoder: of outputs that are texts or pictures, or its name (`load_encoder`); where None,
        all-MiniLM-L6-v2 or EfficientNet-Lite0.
      similarity: in place of embeddings, a function that returns how similar two outputs are, or
        its import path: see `Similarities.from_function`. Prompts are labels.
      clean: whether to cut what stands around outputs that are texts, with a warning: reasoning,
        prompts that most repeat, and marks and labels that most share.
      output_kernel, prompt_kernel: where None, a `Gaussian` whose bandwidth follows the rule; for
        prompts that repeat, `Indicator` (they are equal or different) unless `similar_prompts`.
      rule: 'auto', the default rule (see `Pairs`), half of it for outputs where prompts repeat; or
        'variance' (CV), 'std' (RKE) or 'median': see `bandwidth_by_rule`. CV has
        `rule="variance", similar_prompts=True`.
      similar_prompts: whether prompts that repeat get a kernel by the rule, too.
      orders: Renyi orders in (0, inf].
      truncation: how many eigenvalues every entropy keeps; all where None.
      method: how eigenvalues are computed; `Auto` with a key of the seed where None.
      errors: whether to compute standard errors, from the influences of rows (docs/errors.md).
      unbiased: whether order 2 is shown as `decompose(unbiased=True)` gives it, with an interval
        for the population, and the papers' score beside it; or the papers' score alone.
      quality: a number for each output `[n]`, such as a reward.
      at_least: the quality from which an output is good; needed with `quality`.
      draws: of the outputs to a prompt, among which the good and different ones are counted; where
        None, the most common number of outputs to a prompt (the smallest of models), up to 100.
        Prompts with fewer are left out.
      prompt_ids: as `Pairs`: which prompts are the same, a label for each row `[n]`.
      groups: rows that depend on each other: their labels `[n]`; where None, rows of equal prompts
        do. If labels split the answers to a prompt, rows count equally at orders other than 2. A
        number asks for errors by deletions: a jackknife that leaves out that many groups of rows in
        turn, at the price of as many scores.
      batches, weights: as `Pairs`.
      seed: of the rule's subsets, the groups and the probes of an estimate.
      progress: called with a few words before each step.

    Raises:
      TypeError, ValueError: as `decompose`, `bandwidth_by_rule` and `standard_error`; or a quality
        is missing, there is no `at_least`, rows have weights, or no prompt has so many outputs.

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
    plan = Plan(orders, truncation, method, errors, groups, seed, progress, unbiased)
    if isinstance(outputs, Pairs):
        if any(x is not None and x is not False for x in (prompts, plan.labels, *data.values())):
            received = "received Pairs and prompts, kernels, ids, labels, weights or encoder"
            raise TypeError(f"evaluate: {received}; expected Pairs alone, which have them.")
        pairs = outputs
    else:
        checks.check_indices({"outputs": outputs, "quality": quality})
        pairs = plan.pairs({"": outputs}, prompts, **data)[""]
    asked = Asked.of({"": pairs}, quality, at_least, draws)
    rows, pairs = pairs, pairs.supported()
    evaluations, units = plan.evaluate({"": pairs})
    evaluation = advised(evaluations[""], rows, plan.dataset)
    orders, failed = [], dict[str, str]()
    for scored in evaluation.orders:
        whole = scored.decomposition
        entropy = Entropy(whole.order, whole.truncation)
        if entropy.order < 2 and entropy.truncation is None:  # Scores that grow with the rows.
            what = f"slope of order {entropy.order:g}"
            progress(what)
            with checks.optional(what, failed):
                slope = designs.slope(pairs, entropy, plan.method, whole.scores, seed=seed)
                scored = dataclasses.replace(scored, slope=slope)
        orders.append(scored)
    quality = None
    with checks.optional("quality", failed, asked=True):
        quality = asked and asked.scored({"": pairs}, units)[""]
    return dataclasses.replace(evaluation, orders=tuple(orders), failed=failed, quality=quality)


def answers_to_each(pairs: Pairs) -> np.ndarray:
    """How many answers each prompt that counts has, under `Indicator`; else empty."""
    if not pairs.paired or not pairs.kernels[1].compares_equality:
        return np.zeros(0, int)
    answers = Answers.of(pairs)
    kinds = answers.points.prompt_kinds[1] if answers.kind is None else answers.kind
    return np.bincount(kinds, answers.copies).astype(int)
