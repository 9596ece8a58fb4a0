"""The effective number of different models given the prompts, and the overlap of every two.

Pairs of different rows give unbiased estimates: see docs/contributions.md.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # Its modules are imported when they are used.
from jax.typing import ArrayLike

from condvendi_jax.base import checks, programs
from condvendi_jax.base.devices import to_host
from condvendi_jax.data.kernels import Kernel
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import fold
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.inference import population, saturation
from condvendi_jax.inference.errors import DEFAULT_GROUPS, FEWEST_ROWS, Groups, group_models
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.results.between import Between
from condvendi_jax.results.evaluation import Evaluation
from condvendi_jax.spectra import order_two, pair_sums
from condvendi_jax.spectra.pair_sums import to_float64
from condvendi_jax.statistics import reasons
from condvendi_jax.statistics.influences import Error, group_influences

_MANY_LABELS = 50  # More labels than this make the sums of all pairs of labels too large.
_ENTRIES = 2**22  # Numbers of the blocks of prompts that are compared at once.
_ROUNDING = 1e-12  # A total weight below this share of its terms is rounding.


@takes_data
def between_models(
    models: Mapping[str, ArrayLike | Labels],
    prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
    *,
    errors: bool = True,
    groups: int | ArrayLike | None = None,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
    **data: Unpack[Data],
) -> Between:
    """Returns the effective number of different models, and the overlap of every two.

    The number is exp I(X; M | T) at order 2, for outputs X, prompts T and the model M of each
    output, of equal shares: 1 if all models say the same, and their number if no two have an output
    in common (docs/contributions.md).

    No row is compared with itself. Where most answers are to prompts with several answers of
    their model, the mean over the other answers takes the place of a row itself, and prompts with a
    single answer of some model are left out. Elsewhere rows of one prompt are not compared.

    Args:
      models, prompts: the outputs of at least two models by name, and their prompts, as `compare`.
      errors: whether to compute standard errors, by leaving out groups of rows in turn, in the one
        pass over all pairs of rows.
      groups: how many groups (20 where None) or the label `[n]` of every row, which needs models of
        the same rows. Rows with equal prompts leave together, of all models.
      seed, progress, data: see `compare`. Under weights models keep equal shares.

    Raises:
      TypeError, ValueError: there is one model, or `compare` would refuse the arguments.

    Examples:
      To every prompt A and B say the same, and C says something else:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts, exact = np.repeat(np.arange(6), 2)[:, None], cv.Indicator()
      >>> models = {"A": prompts, "B": prompts, "C": prompts + 6}
      >>> result = cv.between_models(models, prompts, output_kernel=exact, prompt_kernel=exact)
      >>> print(f"{result.number:.1f} of {result.largest:.0f}")
      1.8 of 3
      >>> print(result.overlaps.round(2)[0])
      [1. 1. 0.]
    """
    plan = Plan([2], None, None, errors, groups, seed, progress)
    pairs = plan.pairs(models, prompts, across=True, **data)
    pairs = {name: rows.supported() for name, rows in pairs.items()}
    fewest, chosen = min(rows.n for rows in pairs.values()), None
    if plan.errors and fewest < FEWEST_ROWS:
        least = "at least three outputs of each model"
        checks.warn(f"standard errors need {least}: they are NaN for {fewest}.")
    elif plan.errors:
        chosen = groups_of(pairs, plan)
    progress("between models")
    return of_pairs(pairs, chosen)


def of_pairs(pairs: Mapping[str, Pairs], groups: Mapping[str, Groups] | None) -> Between:
    """Computes `Between` from pairs under the same kernels on one device, with errors by groups."""
    pooled, reason = Pooled(pairs, groups), None
    shared = pooled.shares_prompts()
    # If all models have the same prompts, these carry no information on the model.
    means = pooled.means_of(("joint",) if shared else ("joint", "prompts"))
    if pooled.repeated and groups is not None and population.splits(pooled.group, pooled.answers):
        reason = reasons.SPLIT

    def information(models: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """I(X; M | T) and H(M | T) of some models, `[1 + g]`."""
        joint, *of_prompts = (_between_means(term, models) for term in means)
        prompts = sum(of_prompts, np.zeros_like(joint))
        return joint - prompts, math.log(len(models)) - prompts

    everything, most = information(tuple(range(len(pairs))))
    number = np.exp(everything)
    if np.isnan(number).any():
        reason = reasons.ALONE
    overlaps = np.broadcast_to(np.eye(len(pairs)), (number.size, len(pairs), len(pairs))).copy()
    rounding = saturation.rounding(Entropy(2), pooled.models[0].dtype)
    for one, two in itertools.combinations(range(len(pairs)), 2):
        # (exp(L - I) - 1) / (exp(L) - 1) with L = H(M | T), I at most L; NaN where L is zero.
        told, possible = information((one, two))
        known = np.where(possible > rounding, possible, math.nan)
        overlap = np.expm1(np.maximum(known - told, 0)) / np.expm1(known)
        overlaps[:, one, two] = overlaps[:, two, one] = overlap
    error, of_overlaps = None, None
    if groups is not None:
        unknown = math.nan if reason is reasons.SPLIT else 1.0
        influences, of_overlaps = (unknown * pooled.influences(item) for item in (number, overlaps))
        units = " or ".join({group.units: 0 for group in groups.values()})
        error = Error(float(number[0]), influences[None], units, influences.size - 1, reason)
    largest = float(len(pairs)) if shared else math.exp(most[0])
    numbers = float(number[0]), largest, overlaps[0]
    errors = error, of_overlaps, pooled.left_out
    return Between(tuple(pairs), pooled.models[0].paired, *numbers, *errors)


def of_plan(
    pairs: Mapping[str, Pairs], plan: Plan, evaluations: Mapping[str, Evaluation]
) -> Between | None:
    """Computes `Between` for `compare`; None unless order 2 is computed from pairs of rows."""
    first, unknown = next(iter(pairs.values())), all(e.needs_spectrum for e in plan.entropies)
    if len(pairs) < 2 or unknown or not first.across_models:
        return None
    plan.progress("between models")
    groups = None
    if all(result.order(2).standard_errors is not None for result in evaluations.values()):
        # A model without a row in some group has no such error; the number needs none.
        with contextlib.suppress(ValueError):
            groups = groups_of(pairs, plan)
    return of_pairs(pairs, groups)


def groups_of(pairs: Mapping[str, Pairs], plan: Plan) -> Mapping[str, Groups]:
    """The groups of each model; many labels are put into fewer groups at random."""
    count, key = plan.count or DEFAULT_GROUPS, plan.keys.groups
    groups, _ = group_models(pairs, count, key=key)
    labels = max(of_model.count for of_model in groups.values())
    if labels <= max(count, _MANY_LABELS):
        return groups
    dealt = np.asarray(jax.random.permutation(key, labels)) % count
    return {name: Groups(dealt[group.membership], group.units) for name, group in groups.items()}


class Pooled:
    """The rows of all models, with groups; every model has the same share."""

    def __init__(self, pairs: Mapping[str, Pairs], groups: Mapping[str, Groups] | None):
        first, *_ = models = list(pairs.values())
        if not first.across_models:
            received = "received those of each model alone; give matrices of all, and divide them"
            expected = f"expected similarities of outputs of different models, {received}"
            raise ValueError(f"models: {expected} by cv.Similarities.split.")
        self.models = models
        self.prompt = np.concatenate(prompts_by_model(models)[1])
        self.model = np.repeat(np.arange(len(models)), [rows.n for rows in models])
        draws = np.concatenate([rows.draws for rows in models])
        self.copies = np.maximum(draws, 1)
        kinds = [np.arange(r.n) if r.batches is None else r.batch_kinds for r in models]
        of_rows = [self.model, np.concatenate(kinds)]
        self.batch = np.unique(of_rows, axis=1, return_inverse=True)[1].reshape(-1)
        self.group, self.count = np.zeros(self.prompt.size, int), 0
        if groups is not None:
            self.group = np.concatenate([groups[name].membership for name in pairs])
            self.count = int(self.group.max()) + 1
        once = [rows.prompts_once() for rows in models]
        self.weights = np.concatenate([rows.n * rows.shares for rows in once])
        # Where prompts repeat, those to which some model has one answer do not count.
        self.exact = first.kernels[-1].compares_equality
        single = order_two.single_answers(self.prompt, draws, self.model, exact=self.exact)
        self.repeated, self.left_out = single is not None, 0
        if single is not None:
            self.left_out = np.unique(self.prompt[single]).size
            self.weights = np.where(single, 0, self.weights)
        shape = len(models), max(self.count, 1)
        self.place = self.model * shape[1] + self.group  # The number of the model and group.
        self.sizes = np.bincount(self.place, self.weights, math.prod(shape)).reshape(shape)
        # The groups of which there are means: all, and those without each group.
        self.kept = np.concatenate([np.ones((1, shape[1])), 1 - np.eye(self.count, shape[1])])

    def shares_prompts(self) -> bool:
        """Whether the prompts have the same shares in all models."""
        of_models = np.zeros((len(self.sizes), self.prompt.max() + 1))
        np.add.at(of_models, (self.model, self.prompt), self.weights)
        of_models /= of_models.sum(axis=1, keepdims=True)
        return np.allclose(of_models, of_models[0], rtol=1e-6, atol=0)

    @property
    def answers(self) -> np.ndarray:
        """The number of the model and prompt of each row, `[n]`."""
        return np.unique([self.model, self.prompt], axis=1, return_inverse=True)[1].ravel()

    def influences(self, values: np.ndarray) -> np.ndarray:
        """The influences of groups, `[..., g]`, on numbers with all rows and without each group."""
        shares = np.mean(self.sizes / self.sizes.sum(axis=1, keepdims=True), axis=0)
        return group_influences(values[0], np.moveaxis(values[1:], 0, -1), shares)

    def means_of(self, terms: tuple[str, ...]) -> list[np.ndarray]:
        """Mean squared kernels of every two models, `[1 + g, m, m]`, of the groups that are kept.

        Of these prompts with any number of answers if they repeat; else over the pairs of rows of
        different prompts.
        """
        copies = self.weights**2 * (1 - 1 / self.copies)
        alone = self.weights * np.bincount(self.batch, self.weights)[self.batch]
        counted = every = self._total(np.multiply.outer(self.sizes, self.sizes))
        if self.repeated:
            # Pairs of different answers to a prompt take the weight of all its pairs.
            kind = self.answers
            of_prompt = np.square(np.bincount(kind, self.weights))[kind]
            others = of_prompt - np.bincount(kind, alone - copies)[kind]
            times = np.stack([of_prompt / np.where(others > 0, others, 1), np.ones(kind.size)])
            same_row = (times[0] * copies, self.weights**2)
        else:
            one_prompt = not self.prompt.any()
            kind, copies = (self.batch, copies) if one_prompt else (self.prompt, 0 * copies)
            times, same_row = np.zeros((2, kind.size)), (copies, copies)
            counted = every - self._total(self._inside(kind) - self._diagonal(copies))
            counted = np.where(counted > _ROUNDING * every, counted, math.nan)
        sums = zip(self._sums(terms, kind, times), same_row, strict=False)
        return [self._total(term + self._diagonal(itself)) / counted for term, itself in sums]

    def _inside(self, kind: np.ndarray) -> np.ndarray:
        """Sums over pairs of rows of one kind, by models and groups, `[m, g, m, g]`."""
        shape = self.sizes.size, kind.max() + 1
        of_kind = scipy.sparse.csr_array((self.weights, (self.place, kind)), shape)
        return (of_kind @ of_kind.T).toarray().reshape(self.sizes.shape * 2)

    def _diagonal(self, values: np.ndarray) -> np.ndarray:
        """Sums over pairs of a row with itself, by models and groups, `[m, g, m, g]`."""
        sums = np.bincount(self.place, values, self.sizes.size)
        return np.diag(sums).reshape(self.sizes.shape * 2)

    def _total(self, sums: np.ndarray) -> np.ndarray:
        """Totals for every two models, `[1 + g, m, m]`, over the groups that are kept."""
        return np.einsum("agbh,kg,kh->kab", sums, self.kept, self.kept, optimize=True)

    def _sums(self, terms: Sequence[str], kind: np.ndarray, times: np.ndarray) -> list[np.ndarray]:
        """Sums over pairs of rows, `[m, g, m, g]` a term; those of one kind `times` `[2, n]`."""
        alone = self.batch, np.arange(kind.size)  # Prompts of one batch are compared.
        roots = zip(np.sqrt(times), alone, strict=True)
        multipliers = np.stack([np.stack([kind, *root], axis=1) for root in roots], axis=1)
        if not (self.exact and self.prompt.any()):
            return self._by_block(np.zeros_like(kind), multipliers, terms)
        # Different prompts have nothing in common, and equal ones are not compared unless repeated.
        of_prompts = self._inside(self.prompt) - self._diagonal(np.square(self.weights))
        if not self.repeated:
            return [0 * of_prompts] * len(terms)
        joint = self._by_block(self.prompt, multipliers[:, :1], ("joint",))
        return [joint[0], of_prompts][: len(terms)]

    def _by_block(
        self, kinds: np.ndarray, multipliers: np.ndarray, terms: Sequence[str]
    ) -> list[np.ndarray]:
        """Sums over pairs of one kind, a few at once; of one multiplier, under that of outputs."""
        count, number = self.sizes.size, kinds.max() + 1
        there, numbered = np.unique(kinds * count + self.place, return_inverse=True)
        block, place = np.divmod(there, count)
        first = np.searchsorted(block, np.arange(number))
        places = np.zeros((number, np.bincount(block).max()), int)
        places[block, np.arange(there.size) - first[block]] = place
        column, totals = numbered - first[kinds], np.zeros((len(terms), count**2))
        arrays = zip(*(rows.arrays[: multipliers.shape[1]] for rows in self.models), strict=True)
        every = [np.concatenate([*map(to_host, parts)]) for parts in arrays]
        for groups, rows, weights in pair_sums.leaving_of(self.weights, kinds):
            # As many blocks each time, so that one program serves all: the last one again.
            at_once = max(1, min(len(rows), _ENTRIES // (rows.shape[1] * every[0].shape[1])))
            for start in range(0, len(rows), at_once):
                blocks = np.arange(start, start + at_once)
                some, kept = np.minimum(blocks, len(rows) - 1), (blocks < len(rows))[:, None]
                of_blocks = rows[some]
                points = tuple(array[of_blocks] for array in every)
                flat: Any = [part.reshape(-1, part.shape[2]) for part in points]
                suited = zip(self.models[0].kernels, flat, strict=False)
                kernels = tuple(kernel.suited_to(part) for kernel, part in suited)
                of_rows = kept * weights[some], column[of_blocks], multipliers[of_blocks]
                given = points, *(part.astype(every[0].dtype) for part in of_rows)
                sums = to_float64(_sums_by_block(kernels, given, places.shape[1], tuple(terms)))
                pairs = places[groups[some]]
                pairs = (pairs[:, :, None] * count + pairs[:, None, :]).ravel()
                for k, total in enumerate(totals):
                    total += np.bincount(pairs, sums[:, k].ravel(), total.size)
        sums = totals.reshape(-1, count, count)
        return list((sums + sums.transpose(0, 2, 1)).reshape(-1, *self.sizes.shape * 2))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Multiplier(Kernel):
    """Of rows `[kind, root, batch]`: 0 for two of a batch, the root for two of a kind, else 1."""

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(x[0] == y[0], jnp.where(x[2] == y[2], 0, x[1]), 1)


@functools.partial(programs.compiled, static_argnums=(2, 3))
def _sums_by_block(kernels: Any, blocks: Any, width: int, terms: tuple[str, ...]) -> jax.Array:
    """Sums over i < j of weights times k(i, j)^2 by columns, `[blocks, terms, width, width]`."""

    def compute(block: Any) -> jax.Array:
        arrays, weights, column, multipliers = block
        tiles = pair_sums.tiles_of(Pairs.trusted(arrays, kernels[: len(arrays)], n=weights.size))
        count = len(tiles.factors)
        others = tuple(fold.Factor(_Multiplier(), rows) for rows in multipliers.swapaxes(0, 1))
        wanted = {"joint": (*tiles.subsets[-1], count), "prompts": (1, count + 1)}
        tiles = fold.Tiles(tiles.factors + others, tuple(wanted[term] for term in terms))
        of_column = column[:, None] == jnp.arange(width, dtype=column.dtype)[None]
        weights = jnp.where(of_column, weights[:, None], 0)
        sums = pairwise.arrival_sums(tiles, weights=weights)
        return jnp.matmul(sums, weights, precision=jax.lax.Precision.HIGHEST)

    return jax.lax.map(compute, blocks)


def _between_means(means: np.ndarray, models: tuple[int, ...]) -> np.ndarray:
    """H of the mixture of some models less that of a model, from `Pooled.means_of`."""
    of_models = means[:, models][:, :, models]
    within = of_models.diagonal(axis1=1, axis2=2).mean(axis=1)
    return np.log(np.where(within > 0, within, math.nan) / of_models.mean(axis=(1, 2)))
