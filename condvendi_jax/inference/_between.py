"""How many of several models are different given the prompts, and what every two have in common.

With M the model of an output, this is the exponential of I(X; M | T) at order 2. All entropies are
those of mixtures of models, in which each has the same share whatever its number of rows. They are
estimated without bias, from pairs of different rows: see docs/contributions.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import saturation
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.inference._plan import Keys, Plan
from condvendi_jax.inference._results import Difference, Evaluation
from condvendi_jax.kernels import Kernel
from condvendi_jax.pairs import Labels, Pairs, distinct_prompts
from condvendi_jax.report import _render
from condvendi_jax.spectra import _order_two as order_two

# More labels than this make the sums of all pairs of labels too large.
_MANY_LABELS = 50
# A weight that is smaller, relative to what it is left of, is zero.
_ROUNDING = 1e-12
_ALONE = "no two outputs that could be compared are alike; give several answers to each prompt"
_SPLIT = "the labels of the groups split the answers to a prompt"
_OTHER_PROMPTS = (
    "models with other prompts overlap less; give every model the same number of answers to the "
    "same prompts"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Between:
    """How many of several models are different, and the overlap of every two. Prints as text.

    Attributes:
      models: their names.
      dtype: the name of the dtype of the computation.
      paired: whether prompts are given.
      number: the effective number of different models, exp I(X; M | T): 1 if all say the same given
        the prompts.
      largest: exp H(M | T), which the number reaches if no two models have an output in common: how
        many models there are or, if they have prompts of their own, fewer.
      overlaps: of every two models, `[m, m]`: the share of their outputs that they have in common,
        1 if they say the same given the prompts and 0 if nothing is common; NaN if they have no
        prompt in common, or if no two of their outputs are alike. Two samples of one model have 1
        in the mean, and may have more.
      influences: the effect of each group of the jackknife on the number, `[g]`, whose root mean
        square is the standard error; None where there are no errors.
      overlap_influences: the same of the overlaps, `[m, m, g]`.
      units: what the groups are made of.
      untested: why `difference` tests nothing; None where it does.
      left_out: how many prompts were left out, to which some model has a single answer.
    """

    models: tuple[str, ...]
    dtype: str
    paired: bool
    number: float
    largest: float
    overlaps: np.ndarray
    influences: np.ndarray | None
    overlap_influences: np.ndarray | None
    units: str | None
    untested: str | None = None
    left_out: int = 0

    @property
    def groups(self) -> int | None:
        """How many groups the jackknife has; None where there are no errors."""
        return None if self.influences is None else self.influences.size

    @property
    def standard_error(self) -> float:
        """The standard error of the number, NaN where there is none."""
        return math.nan if self.influences is None else float(_root_mean_square(self.influences))

    @property
    def overlap_errors(self) -> np.ndarray:
        """The standard errors of the overlaps, `[m, m]`, NaN where there are none."""
        if self.overlap_influences is None:
            return np.full_like(self.overlaps, math.nan)
        return _root_mean_square(self.overlap_influences)

    def difference(self, first: tuple[str, str], second: tuple[str, str]) -> Difference:
        """The overlap of two models less that of two others, with a paired test.

        Args:
          first, second: the names of two models each.

        Returns:
          A `Difference` of one test, so that `adjusted` is the p-value; NaN without errors, with
          fewer than five groups, or where `untested` says why.

        Raises:
          KeyError: a name is not that of a model.
        """
        from scipy.special import stdtr  # Imported where it is used: it is slow to import.

        one, two = (tuple(map(self._number_of, pair)) for pair in (first, second))
        value = float(self.overlaps[one] - self.overlaps[two])
        error = p_value = math.nan
        if self.overlap_influences is not None:
            groups = self.overlap_influences[one] - self.overlap_influences[two]
            error = float(_root_mean_square(groups))
            if self.untested:
                pass
            elif abs(value) <= saturation.rounding(Entropy(2), self.dtype):
                p_value = 1.0
            elif groups.size >= jackknife.FEWEST_TESTED and not math.isnan(error):
                p_value = float(2 * stdtr(groups.size - 1, -abs(value) / error)) if error else 0.0
        names = " and ".join(first), " and ".join(second)
        return Difference(*names, value, error, p_value, p_value)

    def _number_of(self, model: str) -> int:
        if model not in self.models:
            raise KeyError(f"{model!r} is none of the models {[*self.models]}.")
        return self.models.index(model)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the influences as plain data, for JSON."""
        errors = self.overlap_errors
        return {
            "number": self.number,
            "standard_error": self.standard_error,
            "largest": self.largest,
            "overlaps": [
                {
                    "first": self.models[one],
                    "second": self.models[two],
                    "value": float(self.overlaps[one, two]),
                    "standard_error": float(errors[one, two]),
                }
                for one, two in itertools.combinations(range(len(self.models)), 2)
            ],
            "groups": self.groups,
            "groups_of": self.units,
            "untested": self.untested,
            "prompts_left_out": self.left_out,
        }

    def __str__(self) -> str:
        """The number in a line, the overlaps as a table, and what they mean."""
        return _render.between(self)


@validation.outside_transformations
def between_models(
    models: Mapping[str, ArrayLike],
    prompts: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    rule: str = "variance",
    errors: bool = True,
    prompt_ids: Labels | Mapping[str, Labels] | None = None,
    groups: int | ArrayLike | None = None,
    weights: ArrayLike | Mapping[str, ArrayLike] | None = None,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Between:
    """How many of several models are different given the prompts, and the overlap of every two.

    The number is exp I(X; M | T), of order 2, for outputs X, prompts T and the model M of each
    output, in which all models have the same share. It is 1 if all models say the same, and the
    number of models if no two have an output in common (docs/contributions.md).

    No row is compared with itself. Where most answers are to prompts with several answers of
    their model, the mean over the other answers takes the place of a row itself, and prompts with a
    single answer of some model are left out. Elsewhere rows of one prompt are not compared.

    Args:
      models: the outputs of at least two by name, embeddings `[n, d_x]` of one encoder.
      prompts: embeddings `[n, d_t]` that all models share row by row; or those of each model by
        name; or None to compare outputs alone.
      output_kernel, prompt_kernel, rule, seed, progress: as `compare`.
      errors: whether to compute standard errors, by leaving out groups of rows in turn, in the one
        pass over all pairs of rows.
      prompt_ids: as `compare`.
      groups: how many groups (20 where None) or the label `[n]` of every row, which needs models of
        the same rows. Rows with equal prompts leave together, of all models.
      weights: as `compare`: of the rows of each model, whose shares of the models stay equal.

    Returns:
      `Between`; `print` shows it.

    Raises:
      TypeError, ValueError: there is one model, or as `compare`.

    Examples:
      To every prompt A and B say the same, and C says something else:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts, exact = np.repeat(np.arange(6), 2)[:, None], cv.Indicator()
      >>> models = {"A": prompts, "B": prompts, "C": prompts + 6}
      >>> found = cv.between_models(models, prompts, output_kernel=exact, prompt_kernel=exact)
      >>> print(f"{found.number:.1f} of {found.largest:.0f}")
      1.8 of 3
      >>> print(found.overlaps.round(2)[0])
      [1. 1. 0.]
    """
    keys = Keys(seed)
    errors = validation.check_flag(errors, name="errors")
    count, labels = jackknife.DEFAULT_GROUPS, None
    if isinstance(groups, (int, np.integer)):
        count = validation.check_count(groups, name="groups", minimum=2)
    else:
        labels = groups
    pairs = Pairs.of_models(
        models,
        prompts,
        output_kernel=output_kernel,
        prompt_kernel=prompt_kernel,
        rule=rule,
        key=keys.rule,
        prompt_ids=prompt_ids,
        groups=labels,
        weights=weights,
        progress=progress,
    )
    pairs = {name: own.supported() for name, own in pairs.items()}
    if len(pairs) < 2:
        raise ValueError(f"models: expected at least two, received {[*pairs]}.")
    fewest = min(own.n for own in pairs.values())
    if errors and fewest < jackknife.FEWEST_ROWS:
        errors = False
        validation.warn(
            f"standard errors need at least three outputs of each model: they are NaN for {fewest}."
        )
    chosen = None
    if errors:
        chosen = _groups(pairs, count, keys.groups, not isinstance(prompts, Mapping))
    progress("between models")
    return of_pairs(pairs, chosen)


def of_pairs(pairs: Mapping[str, Pairs], groups: Mapping[str, Groups] | None) -> Between:
    """What `between_models` returns, of pairs under the same kernels on one device.

    There are errors by groups.
    """
    pooled, left_out = Pooled(pairs, groups), 0
    single = pooled.single_answers()
    if single is not None and single.any():
        left_out = np.unique(pooled.prompt[single]).size
        pooled.weigh(np.where(single, 0, pooled.weights))
    shared = pooled.shares_prompts()
    # The prompts say nothing of the model where all models have them alike.
    means = pooled.means_of(("joint",) if shared else ("joint", "prompts"), single is not None)
    untested = None if shared or single is None else _OTHER_PROMPTS
    if single is not None and groups is not None and pooled.splits_answers():
        groups, untested = None, _SPLIT

    def information(models: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """I(X; M | T) and H(M | T) of some models, `[1 + g]`."""
        joint, *of_prompts = (_between_means(of, models) for of in means)
        prompts = sum(of_prompts, np.zeros_like(joint))
        return joint - prompts, math.log(len(models)) - prompts

    everything, most = information(tuple(range(len(pairs))))
    number = np.exp(everything)
    if np.isnan(number).any():
        untested = _ALONE
    overlaps = np.broadcast_to(np.eye(len(pairs)), (number.size, len(pairs), len(pairs))).copy()
    rounding = saturation.rounding(Entropy(2), pooled.points.dtype)
    for one, two in itertools.combinations(range(len(pairs)), 2):
        of_both = _overlap(*information((one, two)), rounding)
        overlaps[:, one, two] = overlaps[:, two, one] = of_both
    return Between(
        models=tuple(pairs),
        dtype=pooled.points.dtype.name,
        paired=pooled.points.paired,
        number=float(number[0]),
        largest=float(len(pairs)) if shared else math.exp(most[0]),
        overlaps=overlaps[0],
        influences=None if groups is None else pooled.influences(number),
        overlap_influences=None if groups is None else pooled.influences(overlaps),
        units=None if groups is None else _units(groups),
        untested=untested,
        left_out=left_out,
    )


def of_plan(
    pairs: Mapping[str, Pairs], plan: Plan, evaluations: Mapping[str, Evaluation], *, shared: bool
) -> Between | None:
    """What `compare` shows: order 2 of several models, where it is computed from their pairs."""
    if len(pairs) < 2 or all(map(plan.method.computes, plan.entropies)):
        return None
    plan.progress("between models")
    groups = None
    if all(own.order(2).standard_errors is not None for own in evaluations.values()):
        # A model without a row in some group has no such error; the number needs none.
        with contextlib.suppress(ValueError):
            count = plan.count or jackknife.DEFAULT_GROUPS
            groups = _groups(pairs, count, plan.keys.groups, shared)
    return of_pairs(pairs, groups)


def _groups(
    pairs: Mapping[str, Pairs], count: int, key: jax.Array, shared: bool
) -> Mapping[str, Groups]:
    """The groups of each model; many labels are put into `count` groups at random."""
    groups, _ = jackknife.group_models(pairs, count, key=key, shared=shared)
    labels = max(own.count for own in groups.values())
    if labels <= max(count, _MANY_LABELS):
        return groups
    dealt = np.asarray(jax.random.permutation(key, labels)) % count
    return {name: Groups(dealt[own.membership], own.units) for name, own in groups.items()}


class Pooled:
    """The rows of all models, of which each model has the same share, and groups of these rows."""

    def __init__(self, pairs: Mapping[str, Pairs], groups: Mapping[str, Groups] | None):
        first, *_ = each = list(pairs.values())
        arrays = tuple(map(jnp.concatenate, zip(*(own.arrays for own in each), strict=True)))
        of_arrays = zip(first.kernels, arrays, strict=True)
        kernels = tuple(kernel.suited_to(array) for kernel, array in of_arrays)
        self.points = Pairs.trusted(arrays, kernels, n=arrays[0].shape[0])
        # Whether all models have the very same rows of prompts.
        self.one_prompts = first.paired and all(own.arrays[1] is first.arrays[1] for own in each)
        self.prompt = distinct_prompts(each)[1]
        self.model = np.repeat(np.arange(len(each)), [own.n for own in each])
        copies = [np.ones(own.n) if own.copies is None else own.copies for own in each]
        self.copies = np.concatenate(copies)
        self.group, self.count = np.zeros(self.points.n, int), 0
        if groups is not None:
            self.group = np.concatenate([groups[name].membership for name in pairs])
            self.count = int(self.group.max()) + 1
        self.weigh(np.concatenate([own.n * own.shares for own in each]))

    def weigh(self, weights: np.ndarray) -> None:
        """Sets the weights of rows, `[n]`, and of those of each model in each group."""
        self.weights = weights
        self.sizes = np.zeros((self.model[-1] + 1, max(self.count, 1)))
        np.add.at(self.sizes, (self.model, self.group), weights)

    def shares_prompts(self) -> bool:
        """Whether the prompts have the same shares in all models."""
        of_models = np.zeros((len(self.sizes), self.prompt.max() + 1))
        np.add.at(of_models, (self.model, self.prompt), self.weights)
        of_models /= of_models.sum(axis=1, keepdims=True)
        return np.allclose(of_models, of_models[0], rtol=1e-6, atol=0)

    @property
    def _answers(self) -> np.ndarray:
        """The number of the model and prompt of each row, `[n]`."""
        return np.unique([self.model, self.prompt], axis=1, return_inverse=True)[1].ravel()

    def splits_answers(self) -> bool:
        """Whether a group has a part of the answers of a model to a prompt."""
        parts = np.unique([self._answers, self.group], axis=1)[0]
        return np.unique(parts).size < parts.size

    def single_answers(self) -> np.ndarray | None:
        """The rows of prompts to which some model has one answer, `[n]`; None if they are most.

        None also where all prompts are equal.
        """
        alone = np.bincount(self._answers, self.copies)[self._answers] == 1
        single = np.isin(self.prompt, self.prompt[alone])
        left = np.bincount(self.model, self.copies * ~single) / np.bincount(self.model, self.copies)
        return single if self.prompt.any() and left.min() >= 0.5 else None

    def influences(self, values: np.ndarray) -> np.ndarray:
        """`jackknife.influences` in float64, `[..., g]`, of numbers `[1 + g, ...]`."""
        shares = np.mean(self.sizes / self.sizes.sum(axis=1, keepdims=True), axis=0)
        h = 1 / np.maximum(shares, _ROUNDING)  # Of a group that is left out, zero.
        whole, deleted = values[0][..., None], np.moveaxis(values[1:], 0, -1)
        estimate = np.sum(whole - (1 - 1 / h) * deleted, axis=-1, keepdims=True)
        return (h * whole - (h - 1) * deleted - estimate) / np.sqrt(h - 1)

    def means_of(self, terms: tuple[str, ...], repeated: bool) -> list[np.ndarray]:
        """Mean squared kernels of every two models, `[1 + g, m, m]`, of all and without each group.

        Of these prompts with any number of answers where they are `repeated`; elsewhere over the
        pairs of rows of different prompts.
        """
        copies = self.weights**2 * (1 - 1 / self.copies)
        if not repeated:
            one_prompt = not self.prompt.any()
            kind = np.arange(self.points.n) if one_prompt else self.prompt
            return self.means(terms, kind, copies if one_prompt else 0 * copies)
        # The pairs of different answers to a prompt take the weight of all its pairs.
        kind = self._answers
        every = np.square(np.bincount(kind, self.weights))[kind]
        others = every - np.bincount(kind, self.weights**2 - copies)[kind]
        times = np.stack([every / np.where(others > 0, others, 1), np.ones(kind.size)])
        sums = self._sums(terms, kind, times)
        own = (times[0] * copies, self.weights**2)
        every = self._total(np.multiply.outer(self.sizes, self.sizes))
        return [
            self._total(of + self._diagonal(with_itself)) / every
            for of, with_itself in zip(sums, own, strict=False)
        ]

    def means(self, terms: Sequence[str], kind: np.ndarray, copies: np.ndarray) -> list[np.ndarray]:
        """Mean squared kernels of every two models, `[1 + g, m, m]`, of all and without each group.

        Over the pairs of rows of different kinds `[n]`, and those of the copies of a row, of weight
        `copies` `[n]`.
        """
        from scipy.sparse import csr_array  # Imported where it is used: it is slow to import.

        of_kind = csr_array((self.weights, (self._place, kind)), (self.sizes.size, kind.max() + 1))
        equal = (of_kind @ of_kind.T).toarray().reshape(self.sizes.shape * 2)
        every, copied = np.multiply.outer(self.sizes, self.sizes), self._diagonal(copies)
        counted, every = self._total(every - equal + copied), self._total(every)
        counted = np.where(counted > _ROUNDING * every, counted, math.nan)
        sums = self._sums(terms, kind, np.zeros((2, kind.size)))
        return [self._total(of + copied) / counted for of in sums]

    @property
    def _place(self) -> np.ndarray:
        """The number of the model and group of each row, `[n]`."""
        return self.model * self.sizes.shape[1] + self.group

    def _diagonal(self, values: np.ndarray) -> np.ndarray:
        """What rows `[n]` have with themselves, by models and groups, `[m, g, m, g]`."""
        sums = np.bincount(self._place, values, self.sizes.size)
        return np.diag(sums).reshape(self.sizes.shape * 2)

    def _total(self, sums: np.ndarray) -> np.ndarray:
        """Of every two models `[1 + g, m, m]`, with all rows and without each group."""
        kept = np.concatenate(
            [np.ones((1, self.sizes.shape[1])), 1 - np.eye(self.count, self.sizes.shape[1])]
        )
        return np.einsum("agbh,kg,kh->kab", sums, kept, kept, optimize=True)

    def _sums(self, terms: Sequence[str], kind: np.ndarray, times: np.ndarray) -> list[np.ndarray]:
        """Sums of squared kernels, those of one kind `[n]` multiplied as in `_norms`.

        By models and groups `[m, g, m, g]`, over the pairs of different rows.
        """
        longest = int(np.bincount(self.model).max())
        count, size = pairwise.tiling(longest, None)
        # By model and place, the row; the same one again, without a weight, in the padding.
        rows = np.zeros((len(self.sizes), count * size), int)
        weights = np.zeros((*rows.shape, self.sizes.shape[1]))
        for model in range(len(rows)):
            own = np.flatnonzero(self.model == model)
            rows[model, :] = own[0]
            rows[model, : own.size] = own
            weights[model, np.arange(own.size), self.group[own]] = self.weights[own]
        blocks = rows.reshape(-1, count, size)
        dtype = self.points.dtype
        weighted = jnp.asarray(weights.reshape(*blocks.shape, -1), dtype)
        beside = jnp.asarray(kind), jnp.asarray(times, dtype)
        norms = _norms(self.points, blocks, *beside, weighted, tuple(terms), self.one_prompts)
        return list(np.asarray(norms, np.float64).transpose(0, 1, 3, 2, 4))


@functools.partial(jax.jit, static_argnums=(5, 6))
def _norms(
    points: Pairs,
    rows: jax.Array,
    kind: jax.Array,
    times: jax.Array,
    weights: jax.Array,
    terms: tuple[str, ...],
    one_prompts: bool,
) -> jax.Array:
    """Weighted sums of squared kernels over pairs of rows, by the models and groups of both.

    A tile holds rows of two models, so that few groups meet in it. Where all models have
    `one_prompts`, their tile serves all pairs of models.

    Args:
      points: the rows of all models.
      rows: the numbers of the rows of each model, in blocks, `[m, blocks, size]`.
      kind, times: what a pair of rows of one kind `[n]` is multiplied by in each term, `[2, n]`; a
        row is not paired with itself.
      weights: of these rows in the column of their group, `[m, blocks, size, g]`.
      terms: joint or prompts, or both.
      one_prompts: whether the prompts of all models are equal, row by row.

    Returns:
      `[terms, m, m, g, g]`.
    """
    factors, subsets = order_two.factors_of(points)
    named = {"joint": subsets[-1], "prompts": subsets[1] if points.paired else ()}
    wanted, kernels = tuple(named[term] for term in terms), [f.kernel for f in factors]
    models, count, size, groups = weights.shape
    product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def cut(factor: int, model: jax.Array, block: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[rows[model, block]], factors[factor].points)

    def geometry(factor: int, one: tuple[Any, Any], two: tuple[Any, Any]) -> jax.Array:
        return kernels[factor].geometry(cut(factor, *one), cut(factor, *two))

    def of_blocks(p: jax.Array, q: jax.Array, sums: jax.Array) -> jax.Array:
        start = jnp.zeros_like(p)
        known = geometry(1, (start, p), (start, q)) if one_prompts else None

        def of_models(a: jax.Array, b: jax.Array, sums: jax.Array) -> jax.Array:
            one, two, same = (a, p), (b, q), (a == b) & (p == q)
            geometries = [
                known if known is not None and f == 1 else geometry(f, one, two)
                for f in range(len(factors))
            ]
            products = pairwise.squared_products(wanted, tuple(kernels), geometries, None)
            first, second = rows[one][:, None], rows[two][None]
            equal = kind[first] == kind[second]
            counted = [
                jnp.where(first != second, jnp.where(equal, of[first], 1) * square, 0)
                for of, square in zip(times, products, strict=False)
            ]
            found = [product(weights[one].T, product(of, weights[two])) for of in counted]
            # A tile on the diagonal has both orders of a pair; any other one of them.
            both = jnp.where(same, 0.5, 1).astype(sums.dtype) * jnp.stack(found)
            return sums.at[:, a, b].add(both)

        def of_model(a: jax.Array, sums: jax.Array) -> jax.Array:
            first = jnp.where(p == q, a, 0)
            return lax.fori_loop(first, models, functools.partial(of_models, a), sums)

        return lax.fori_loop(0, models, of_model, sums)

    def of_column(q: jax.Array, sums: jax.Array) -> jax.Array:
        return lax.fori_loop(0, q + 1, lambda p, sums: of_blocks(p, q, sums), sums)

    empty = jnp.zeros((len(terms), models, models, groups, groups), weights.dtype)
    sums = lax.fori_loop(0, count, of_column, empty)
    return sums + sums.transpose(0, 2, 1, 4, 3)


def _between_means(means: np.ndarray, models: tuple[int, ...]) -> np.ndarray:
    """H of the mixture of some models less that of a model, from `Pooled.means_of`."""
    of_models = means[:, models][:, :, models]
    own = of_models.diagonal(axis1=1, axis2=2).mean(axis=1)
    return np.log(np.where(own > 0, own, math.nan) / of_models.mean(axis=(1, 2)))


def _overlap(information: np.ndarray, most: np.ndarray, rounding: float) -> np.ndarray:
    """(exp(L - I) - 1) / (exp(L) - 1) with L = H(M | T), I at most L; NaN where L is zero."""
    known = np.where(most > rounding, most, math.nan)
    return np.expm1(np.maximum(known - information, 0)) / np.expm1(known)


def _units(groups: Mapping[str, Groups]) -> str:
    """What the groups are made of, in words."""
    return " or ".join(dict.fromkeys(own.units for own in groups.values()))


def _root_mean_square(influences: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.square(influences), axis=-1))
