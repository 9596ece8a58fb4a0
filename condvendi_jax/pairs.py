"""The data of a call: outputs, prompts, their kernels, groups and devices, checked once.

Everything else in the library takes a `Pairs` and asks it for its n, its dtype and its Grams. No
other code needs to know whether the rows lie on one device or on many.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from condvendi_jax import kernel_choice, validation
from condvendi_jax.bandwidth import RuledBandwidth, as_given
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import Gram, Layout, layout_of, represent, to_host
from condvendi_jax.kernel_choice import NAMES
from condvendi_jax.kernels import Indicator, Kernel, check_kernel

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_ResultOf = TypeVar("_ResultOf", covariant=True)
#: A label of each row, `[n]`: strings or numbers.
Labels = ArrayLike | Sequence[Any]


@jax.tree_util.register_pytree_node_class
class Pairs:
    """Outputs, or outputs with their prompts, and a kernel for each.

    A pytree: its leaves are the arrays and the parameters of the kernels.

    Args:
      outputs: X, embeddings `[n, d_x]` of any real dtype. Arrays that are sharded by rows over
        several devices stay so.
      prompts: T, embeddings `[n, d_t]`: row i holds the prompt of output i. None for outputs alone.
      output_kernel: the kernel of the outputs. Its bandwidth is in the units of `outputs`. Where
        None, a `Gaussian` whose bandwidth follows `rule`.
      prompt_kernel: the same for the prompts.
      rule: 'variance' (CV), 'std' (RKE) or 'median', as `bandwidth_by_rule`; needs a key.
      key: draws the random subsets of the rule.
      prompt_ids: which prompts are the same, a label for each row `[n]`, such as their texts. They
        decide which prompts an `Indicator`, errors and tables take as equal. Where None, prompts
        are equal if their rows are, up to rounding.
      groups: a label for each row, `[n]`: rows of one label count as dependent in a standard error.
        Where None, rows of equal prompts do.
      weights: of each row, `[n]`, not negative; equal where None. Only their shares matter for the
        scores: a row of weight 2 counts as two equal rows. For standard errors integers are
        numbers of independent equal rows, and other numbers are weights of one row each. A rule
        sees each row as often as an integer says, or in proportion to its share.
      mesh: devices to spread the rows over, for arrays that are not sharded yet.
      progress: called with a few words before each bandwidth is chosen.

    Attributes:
      arrays: `[n, d_x]` and, where there are prompts, `[n, d_t]`, in the compute dtype;
        `[layout.rows, ...]` on several devices. Rows under `Indicator` are replaced by the numbers
        of the distinct ones, `[n, 1]`, on one device outside of transformations.
      kernels: one for each array, in the form that suits its points.
      weights: the share of each row, of sum one, `[n]` or, zero in the padding, `[layout.rows]`;
        None where all are equal.
      n: the number of pairs.
      prompt_ids: the number of the prompt of each row, `[n]`, the same for equal prompts of
        several models; None before it is needed.
      layout: the devices that the rows are spread over; None for one device.
      groups: the number of the label of each row, `[n]`, or None. A `Pairs` that went through
        `jax.jit` or another transformation has lost them, and the rules of its bandwidths.
      copies: the weights, where they are integers: how many independent rows each row stands for.

    Raises:
      TypeError: an array is not of real numbers or is masked, or a kernel is not one.
      ValueError: an array is not finite, two-dimensional and of at least one row; the lengths
        differ; a kernel is missing; the rule finds no bandwidth; or a weight is negative or not
        finite, or all are zero.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts = np.repeat([[0.0], [1.0]], 8, axis=0).astype(np.float32)
      >>> outputs = np.tile([[0.0], [1.0]], (8, 1)).astype(np.float32) + 2 * prompts
      >>> sharp = cv.Gaussian(0.1)
      >>> pairs = cv.Pairs(outputs, prompts, output_kernel=sharp, prompt_kernel=sharp)
      >>> print(f"{cv.decompose(pairs).conditional:.2f}")
      2.00
    """

    arrays: tuple[jax.Array, ...]
    kernels: tuple[Kernel, ...]
    weights: jax.Array | None
    n: int
    layout: Layout | None
    prompt_ids: np.ndarray | None
    groups: np.ndarray | None
    copies: np.ndarray | None
    _ruled: Mapping[str, RuledBandwidth]

    def __init__(
        self,
        outputs: ArrayLike,
        prompts: ArrayLike | None = None,
        *,
        output_kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        rule: str | None = None,
        key: jax.Array | None = None,
        prompt_ids: Labels | None = None,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        mesh: Mesh | None = None,
        progress: Callable[[str], Any] = lambda _: None,
    ):
        given = kernel_choice.check(prompts is not None, output_kernel, prompt_kernel, rule)
        paired = {} if prompts is None else {"prompts": prompts}
        arrays = {"outputs": outputs} | paired
        labels = {"prompt_ids": prompt_ids, "groups": groups, "weights": weights}
        validation.check_indices(arrays | labels)
        self.index = validation.index_of(outputs)  # That of labels that come later must be equal.
        named = validation.as_paired(arrays)
        self.n = named["outputs"].shape[0]
        self.prompt_ids = self.groups = None
        if prompt_ids is not None:
            _identify({"": self}, prompt_ids, paired=prompts is not None, shared=True)
        if groups is not None:
            self.groups = validation.check_labels(groups, self.n, name="groups")[1]
        self.layout = layout_of(named["outputs"], mesh=mesh)
        self.weights = self.copies = None
        if weights is not None:
            self._weigh(weights)
        validation.warn_of_float64(named)
        origins = validation.origins_of(named, kernel_choice.shiftable(given))
        place = jnp.asarray if self.layout is None else self.layout.shard
        self.arrays = tuple(validation.cast_arrays(named, place=place, origins=origins))
        ruling = _resampled(self)
        kernels, self._ruled = kernel_choice.by_rule(ruling, given, rule, key, progress)
        self.kernels = kernel_choice.suited(kernels, self.arrays)
        _number([self])

    @classmethod
    def trusted(
        cls,
        arrays: tuple[jax.Array, ...],
        kernels: tuple[Kernel, ...],
        *,
        n: int,
        layout: Layout | None = None,
        weights: jax.Array | None = None,
    ) -> Pairs:
        """Pairs of arrays that were checked before: nothing is looked at."""
        pairs = object.__new__(cls)
        pairs.arrays, pairs.kernels, pairs.n, pairs.layout = arrays, kernels, n, layout
        pairs.weights, pairs.groups, pairs.copies, pairs._ruled = weights, None, None, {}
        pairs.prompt_ids = None
        return pairs

    @classmethod
    def of_models(
        cls,
        models: Mapping[str, ArrayLike],
        prompts: ArrayLike | Mapping[str, ArrayLike] | None = None,
        *,
        output_kernel: Kernel | None = None,
        prompt_kernel: Kernel | None = None,
        rule: str | None = None,
        key: jax.Array | None = None,
        prompt_ids: Labels | Mapping[str, Labels] | None = None,
        groups: ArrayLike | None = None,
        weights: ArrayLike | Mapping[str, ArrayLike] | None = None,
        progress: Callable[[str], Any] = lambda _: None,
    ) -> dict[str, Pairs]:
        """The pairs of several models under the same kernels, by the name of the model.

        Args:
          models: the outputs of each model by its name, embeddings `[n, d_x]` of one encoder.
          prompts: embeddings `[n, d_t]` that all models share row by row; or those of each model,
            by its name.
          output_kernel, prompt_kernel, rule, key, groups, progress: as `Pairs`. A rule is applied
            to the rows of all models together, as many rows of each.
          prompt_ids, weights: as `Pairs`: `[n]` for all models, or those of each model by its name.
            Equal ids of several models are one prompt.

        Raises:
          TypeError, ValueError: as `Pairs`, with the name of the model; or there is no model, or
            the arrays of the models do not fit together.
        """
        given = kernel_choice.check(prompts is not None, output_kernel, prompt_kernel, rule)
        shared = not isinstance(prompts, Mapping)
        if isinstance(weights, Mapping) and set(weights) != set(models):
            raise ValueError(
                f"weights: expected those of {sorted(models)}, received those of {sorted(weights)}."
            )
        named = {}
        for name, arrays in _by_model(models, prompts).items():
            own = weights[name] if isinstance(weights, Mapping) else weights
            with _naming(name):
                ids = prompt_ids.get(name) if isinstance(prompt_ids, Mapping) else prompt_ids
                labels = {"prompt_ids": ids, "groups": groups, "weights": own}
                validation.check_indices(arrays | labels)
                named[name] = validation.as_paired(arrays)
        first = next(iter(named.values()))
        for role in first:
            widths = {name: arrays[role].shape[1] for name, arrays in named.items()}
            if len(set(widths.values())) > 1:
                raise ValueError(
                    f"{role}: expected one dimension for all models, received {widths}."
                )
        validation.warn_of_float64(*named.values())
        # One origin for all models, since their rows are compared with each other.
        origins = validation.origins_of(first, kernel_choice.shiftable(given))
        ready: dict[str, tuple[jax.Array, ...]] = {}
        members: dict[str, np.ndarray | None] = dict.fromkeys(named)
        common: tuple[jax.Array, ...] = ()
        for name, arrays in named.items():
            if common:
                arrays = {"outputs": arrays["outputs"]}
            with _naming(name):
                layout, n = layout_of(arrays["outputs"]), arrays["outputs"].shape[0]
                if groups is not None:
                    members[name] = validation.check_labels(groups, n, name="groups")[1]
                place = jnp.asarray if layout is None else layout.shard
                own = validation.cast_arrays(arrays, place=place, origins=origins)
            ready[name] = _gathered(tuple(own), layout, n) + common
            if shared:
                common = ready[name][1:]
        found = {name: cls.trusted(own, (), n=own[0].shape[0]) for name, own in ready.items()}
        if prompt_ids is not None:
            _identify(found, prompt_ids, paired=prompts is not None, shared=shared)
        distinct_prompts([*found.values()])
        for name, pairs in found.items():
            if weights is not None:
                with _naming(name):
                    pairs._weigh(weights[name] if isinstance(weights, Mapping) else weights)
        resampled = [_resampled(pairs) for pairs in found.values()]
        pooled = _pooled(resampled, shared and not isinstance(weights, Mapping), key)
        kernels, ruled = kernel_choice.by_rule(pooled, given, rule, key, progress)
        for name, pairs in found.items():
            with _naming(name):
                pairs.kernels = kernel_choice.suited(kernels, pairs.arrays)
            pairs.groups, pairs._ruled = members[name], ruled
        _number(list(found.values()))
        return found

    def _weigh(self, weights: ArrayLike) -> None:
        """Sets `weights` and `copies`."""
        checked = validation.check_weights(weights, self.n)
        if checked.dtype.kind == "i" and isinstance(checked, np.ndarray):
            self.copies = checked
        self.weights = self.weighed(validation.shares_of(checked)).weights

    @property
    def dtype(self) -> np.dtype:
        """The dtype that everything is computed in."""
        return np.dtype(self.arrays[0].dtype)

    @property
    def paired(self) -> bool:
        """Whether there are prompts."""
        return len(self.arrays) == 2

    @property
    def bandwidths(self) -> dict[str, RuledBandwidth]:
        """The bandwidth of each kernel by name, and where it comes from."""
        return {
            name: self._ruled.get(name) or as_given(kernel)
            for name, kernel in zip(NAMES, self.kernels, strict=False)
        }

    @functools.cached_property
    def prompt_kinds(self) -> tuple[int, np.ndarray]:
        """How many prompts differ, and the number of its distinct prompt for each row, `[n]`.

        Outputs alone count as answers to one prompt.
        """
        return distinct_prompts([self])

    def grams(self, *, in_tiles: bool = False) -> tuple[Gram, ...]:
        """The Gram of the outputs and, where there are any, of the prompts.

        Args:
          in_tiles: no Gram of points is an array, however few they are: the quickest way to a norm,
            without derivatives in forward mode.
        """
        return _grams(self, in_tiles)

    @property
    def total(self) -> int:
        """How many rows the pairs stand for: the sum of integer weights, or n."""
        return self.n if self.copies is None else int(self.copies.sum())

    def rows(self, chosen: Any) -> Pairs:
        """Some of the rows, by a slice or by their numbers; of points on one device."""
        arrays = tuple(array[chosen] for array in self.arrays)
        weights = None
        if self.weights is not None:
            weights = self.weights[chosen] / jnp.sum(self.weights[chosen])
        pairs = Pairs.trusted(arrays, self.kernels, n=arrays[0].shape[0], weights=weights)
        pairs.prompt_ids = None if self.prompt_ids is None else self.prompt_ids[chosen]
        pairs.groups = None if self.groups is None else self.groups[chosen]
        pairs.copies = None if self.copies is None else self.copies[chosen]
        pairs._ruled = self._ruled
        return pairs

    def labelled(self, groups: ArrayLike) -> Pairs:
        """The same pairs with other groups."""
        validation.check_indices({"outputs": self, "groups": groups})
        pairs = copy.copy(self)
        pairs.groups = validation.check_labels(groups, self.n, name="groups")[1]
        return pairs

    def supported(self) -> Pairs:
        """The pairs without the rows of weight zero."""
        kept = np.flatnonzero(self.shares > 0)
        if kept.size == self.n:
            return self
        pairs = self.gathered().rows(kept)
        if self.layout is not None:
            pairs.layout = layout = dataclasses.replace(self.layout, n=kept.size)
            pairs.arrays = tuple(map(layout.shard, pairs.arrays))
            assert pairs.weights is not None  # Otherwise no row would have a weight of zero.
            pairs.weights = layout.place(pairs.weights[:, None])[:, 0]
        return pairs

    def repeated(self) -> Pairs:
        """Every row as often as its integer weight says, 2^14 rows at most; the same without."""
        if self.copies is None:
            return self
        if self.total > _RESAMPLED:
            raise ValueError(
                f"weights: expected integers with a sum of at most {_RESAMPLED:,} for groups of "
                f"rows, received {self.total:,}; give labels as groups, or floating-point weights, "
                "which are shares of one row each."
            )
        pairs = self.gathered().rows(np.repeat(np.arange(self.n), self.copies))
        pairs.weights = pairs.copies = None
        return pairs

    def moved(self) -> tuple[Pairs, ...]:
        """For each bandwidth that the rule drew, the same pairs with its error added to it."""
        others = []
        for index, chosen in enumerate(self.bandwidths.values()):
            if chosen.relative_error is not None:
                kernels = list(self.kernels)
                larger = functools.partial(operator.mul, 1 + chosen.relative_error)
                kernels[index] = jax.tree.map(larger, kernels[index])  # Its leaf is the bandwidth.
                others.append(self.under(tuple(kernels)))
        return tuple(others)

    def under(self, kernels: tuple[Kernel, ...]) -> Pairs:
        """The same points under other kernels, which no rule has drawn."""
        other = copy.copy(self)
        other.kernels, other._ruled = kernels, {}
        return other

    def weighed(self, shares: ArrayLike) -> Pairs:
        """The same points with other weights `[n]`, of sum one, and no copies."""
        other, weights = copy.copy(self), jnp.asarray(shares)
        placed = weights if self.layout is None else self.layout.place(weights[:, None])[:, 0]
        other.weights, other.copies = placed, None
        return other

    def gathered(self) -> Pairs:
        """The same points on one device, without padding."""
        if self.layout is None:
            return self
        weights = None
        if self.weights is not None:
            (weights,) = _gathered((self.weights,), self.layout, self.n)
        arrays = _gathered(self.arrays, self.layout, self.n)
        pairs = Pairs.trusted(arrays, self.kernels, n=self.n, weights=weights)
        pairs.groups, pairs.copies, pairs._ruled = self.groups, self.copies, self._ruled
        pairs.prompt_ids = self.prompt_ids
        return pairs

    def largest(self, entropy: Entropy) -> float:
        """The largest score that the weights allow, of rows that share nothing: n if equal."""
        if self.weights is None:
            return float(min(self.n, entropy.truncation or self.n))
        shares = jnp.sort(jnp.asarray(self.shares))[::-1]
        return float(np.exp(entropy.of_spectrum(shares)))

    @property
    def shares(self) -> np.ndarray:
        """The share of each row, float64 `[n]`, of sum one."""
        if self.weights is None:
            return np.full(self.n, 1 / self.n)
        shares = np.asarray(to_host(self.weights), np.float64)[: self.n]
        return shares / shares.sum()

    def refuse_weights(self, asked: str) -> None:
        """Raises ValueError where rows are weighted, which `asked` has no use for."""
        if self.weights is not None:
            raise ValueError(f"weights: received some, and {asked} have none; expected None.")

    def duplicates(self) -> int:
        """How many rows repeat an earlier one exactly, outputs and prompts together."""
        host = [to_host(array)[: self.n] for array in self.arrays]
        return self.n - validation.distinct_rows(np.concatenate(host, axis=1))[0]

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Arrays, kernels and weights are children; n and the layout are static."""
        return (self.arrays, self.kernels, self.weights), (self.n, self.layout)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Pairs:
        """Rebuilds the pairs."""
        arrays, kernels, weights = children
        return cls.trusted(arrays, kernels, n=static[0], layout=static[1], weights=weights)


class OfPairs(Protocol[_Parameters, _ResultOf]):
    """A function of `Pairs`, or of the arrays and kernels that make them."""

    __name__: str

    @overload
    def __call__(
        self, pairs: Pairs, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _ResultOf: ...

    @overload
    def __call__(self, outputs: Any, /, *prompts: Any, **kwargs: Any) -> _ResultOf: ...


def takes_pairs(
    function: Callable[Concatenate[Pairs, _Parameters], _Result],
) -> OfPairs[_Parameters, _Result]:
    """Lets a function of `Pairs` take arrays in their place.

    `f(outputs, prompts, output_kernel=..., prompt_kernel=..., order=2)` is then short for
    `f(Pairs(outputs, prompts, output_kernel=..., prompt_kernel=...), order=2)`. `kernel` is another
    name of `output_kernel`.
    """
    parameters = tuple(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def taking(*args: Any, **kwargs: Any) -> Any:
        if not args and "pairs" in kwargs:
            args = (kwargs.pop("pairs"),)
        kernel = kwargs.pop("kernel", None)
        making = {name: kwargs.pop(name) for name in _MAKING if name in kwargs}
        for name in kwargs.keys() - set(parameters):
            raise TypeError(
                f"{function.__name__}: expected {_MAKING + parameters}, received {name}."
            )
        if args and isinstance(args[0], Pairs):
            if making or kernel is not None:
                raise TypeError(
                    f"{function.__name__}: received Pairs and {', '.join(making) or 'kernel'}; "
                    "expected Pairs alone, which have arrays and kernels."
                )
            return function(*args, **kwargs)
        if kernel is not None:
            if "output_kernel" in making:
                raise TypeError("kernel: received beside output_kernel, which it is short for.")
            making["output_kernel"] = check_kernel(kernel, name="kernel")
        return function(Pairs(*args[:2], **making), *args[2:], **kwargs)

    return cast(OfPairs[_Parameters, _Result], taking)


# Rows that integer weights may make a rule or a jackknife see: their time grows with them.
_RESAMPLED = 2**14
_MAKING = ("outputs", "prompts", "output_kernel", "prompt_kernel", "prompt_ids", "weights", "mesh")


def _resampled(pairs: Pairs) -> tuple[jax.Array, ...]:
    """The rows that a bandwidth rule sees, each in proportion to its weight, within one.

    Of integer weights, as many as they say, up to a limit. Systematic resampling of m rows: row i
    is taken once for every k + 1/2 between m times the shares before it and m times those up to it.
    """
    if pairs.weights is None or not validation.is_concrete(pairs.weights):
        return pairs.arrays
    shares = pairs.shares
    rows = int(np.count_nonzero(shares))
    if pairs.copies is not None:
        rows = max(rows, min(pairs.total, _RESAMPLED))
    chosen = np.searchsorted(np.cumsum(shares), (np.arange(rows) + 0.5) / rows)
    return tuple(array[chosen] for array in pairs.arrays)


def distinct_prompts(models: Sequence[Pairs]) -> tuple[int, np.ndarray]:
    """How many prompts of models of one call differ, and the number of each row's, model by model.

    Outputs alone count as answers to one prompt. Which rows are equal is decided once, here.
    """
    sizes = [pairs.n for pairs in models]
    if not models[0].paired:
        return 1, np.zeros(sum(sizes), int)
    known = [pairs.prompt_ids for pairs in models if pairs.prompt_ids is not None]
    if len(known) == len(models):
        return validation.number_values(np.concatenate(known))
    host = [to_host(pairs.arrays[1])[: pairs.n] for pairs in models]
    count, numbers = validation.equal_rows(np.concatenate(host), name="prompts")
    for pairs, ids in zip(models, np.split(numbers, np.cumsum(sizes)[:-1]), strict=True):
        pairs.prompt_ids = ids
    return count, numbers


def _identify(models: Mapping[str, Pairs], prompt_ids: Any, *, paired: bool, shared: bool) -> None:
    """Sets `prompt_ids` of models, whose prompts may be `shared` row by row."""
    if not paired:
        raise ValueError("prompt_ids: received some, and there are no prompts; expected None.")
    each = prompt_ids if isinstance(prompt_ids, Mapping) else dict.fromkeys(models, prompt_ids)
    if set(each) != set(models):
        raise ValueError(
            f"prompt_ids: expected those of {sorted(models)}, received those of {sorted(each)}."
        )
    numbers: dict[Any, int] = {}
    for name, pairs in models.items():
        with _naming(name) if name else contextlib.nullcontext():
            labels, kind = validation.check_labels(each[name], pairs.n, name="prompt_ids")
        ids = [numbers.setdefault(label, len(numbers)) for label in labels.tolist()]
        pairs.prompt_ids = np.array(ids)[kind]
    first, *rest = (np.asarray(pairs.prompt_ids) for pairs in models.values())
    if shared and not all(np.array_equal(first, other) for other in rest):
        raise ValueError("prompt_ids: those of the models differ, and their prompts are the same.")


def _number(models: Sequence[Pairs]) -> None:
    """Replaces rows that only count as equal or not by the numbers of the distinct ones, `[n, 1]`.

    Comparing d coordinates of all pairs takes d times as long. Equal rows of several models get one
    number.
    """
    first = models[0]
    for index, kernel in enumerate(first.kernels):
        arrays = [pairs.arrays[index] for pairs in models]
        identified = index == 1 and first.prompt_ids is not None
        if not isinstance(kernel, Indicator) or not validation.is_concrete(*arrays):
            continue
        if first.layout is not None or (arrays[0].shape[1] == 1 and not identified):
            continue
        with jax.ensure_compile_time_eval():
            if index == 1:
                _, numbers = distinct_prompts(models)
            else:
                stacked = np.concatenate([np.asarray(array) for array in arrays])
                _, numbers = validation.equal_rows(stacked, name=NAMES[index])
            parts = np.split(numbers, np.cumsum([pairs.n for pairs in models])[:-1])
            numbered = {
                id(array): jnp.asarray(part[:, None], first.dtype)
                for array, part in zip(arrays, parts, strict=True)
            }
        for pairs in models:
            placed = list(pairs.arrays)
            placed[index] = numbered[id(placed[index])]
            pairs.arrays = tuple(placed)


def _gathered(
    arrays: tuple[jax.Array, ...], layout: Layout | None, n: int
) -> tuple[jax.Array, ...]:
    if layout is None:
        return arrays
    return tuple(jnp.asarray(to_host(array)[:n]) for array in arrays)


def _by_model(
    models: Mapping[str, ArrayLike], prompts: ArrayLike | Mapping[str, ArrayLike] | None
) -> dict[str, dict[str, Any]]:
    """The outputs of each model, and its prompts where there are any."""
    if not isinstance(models, Mapping) or not models:
        raise ValueError("models: expected the outputs of each model by its name.")
    for name in models:
        if not isinstance(name, str):
            raise TypeError(f"models: expected names that are strings, received {name!r}.")
        if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e]", name):
            raise ValueError(f"models: expected names of printable text, received {name!r}.")
    if isinstance(prompts, Mapping) and set(prompts) != set(models):
        raise ValueError(
            f"prompts: expected those of {sorted(models)}, received those of {sorted(prompts)}."
        )
    own = prompts if isinstance(prompts, Mapping) else dict.fromkeys(models, prompts)
    return {
        name: {"outputs": outputs} | ({} if prompts is None else {"prompts": own[name]})
        for name, outputs in models.items()
    }


@contextlib.contextmanager
def _naming(model: str) -> Iterator[None]:
    """Puts the name of the model in front of what its arrays raise."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{model}: {error}") from error


def _pooled(
    models: Sequence[tuple[jax.Array, ...]], shared: bool, key: jax.Array | None
) -> list[jax.Array]:
    """As many rows of every model, drawn at random where it has more; shared prompts once."""
    if len(models) == 1:
        return list(models[0])
    fewest = min(arrays[0].shape[0] for arrays in models)
    pooled: list[list[np.ndarray]] = [[] for _ in models[0]]
    for index, arrays in enumerate(models):
        n = arrays[0].shape[0]
        rows = np.arange(n)
        if n > fewest:
            drawn = jax.random.permutation(
                jax.random.fold_in(validation.check_key(key), 100 + index), n
            )
            rows = np.sort(np.asarray(drawn)[:fewest])
        for parts, array in zip(pooled, arrays, strict=True):
            parts.append(np.asarray(array)[rows])
    if shared:
        pooled[1:] = [parts[:1] for parts in pooled[1:]]
    return [jnp.asarray(np.concatenate(parts)) for parts in pooled]


@functools.partial(jax.jit, static_argnums=1)
def _grams(points: Pairs, in_tiles: bool) -> tuple[Gram, ...]:
    pairs = zip(points.kernels, points.arrays, strict=True)
    options: Any = {"layout": points.layout, "in_tiles": in_tiles}
    return tuple(represent(kernel, array, **options) for kernel, array in pairs)
