"""The data of a call: outputs, prompts, their kernels, groups and devices, checked once."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from condvendi_jax.base import checks, labelling, programs
from condvendi_jax.base.devices import layout_of, placed
from condvendi_jax.data import kernel_choice, shapes, similarities
from condvendi_jax.data.kernels import Indicator, Kernel, check_kernel
from condvendi_jax.data.rows import NAMES, Rows, prompts_by_model, shares_of

#: A label of each row, `[n]`: strings or numbers.
Labels = ArrayLike | Sequence[Any]
_Result = TypeVar("_Result")


@jax.tree_util.register_pytree_node_class
class Pairs(Rows):
    """Outputs, or outputs with their prompts, and a kernel for each; a pytree.

    Args:
      outputs: X, embeddings `[n, d_x]` of any real dtype, a column of vectors, or
        `[prompts, k, d_x]`; integer labels `[n]`, which are equal or different; or `Similarities`,
        which have prompts and a kernel. Arrays that are sharded over several devices stay so.
      prompts: T, embeddings `[n, d_t]` or labels `[n]`, the prompt of each output; or None.
      output_kernel: the kernel of the outputs, or the bandwidth of a `Gaussian` one as
        `bandwidth_by_rule` returns it, in the units of `outputs`. Where None, by `rule`.
      prompt_kernel: the same for the prompts.
      rule: 'variance' (CV), 'std' (RKE) or 'median', which need a key: see `bandwidth_by_rule`. Or
        'auto', the default rule: the smallest bandwidth at which RKE of 100 independent rows has a
        variance below 0.01; for outputs half of it where prompts repeat. It compares answers to
        different prompts, of six prompts or more (of fewer, all rows); each prompt counts once,
        and so does each model. Of more than 3,000 rows their content decides which it takes. Below
        20 rows, or six prompts to compare, it is the median distance.
      similar_prompts: whether the rule also chooses a kernel for prompts that repeat. If not, they
        are equal or different (`Indicator`) where seven repeat, or most rows share their prompt.
      key: draws the random subsets of a rule.
      prompt_ids: which prompts are the same, a label for each row `[n]`, such as their texts. They
        decide which prompts an `Indicator`, errors and tables take as equal. Where None, prompts
        are equal if their rows are, up to rounding.
      groups: a label for each row, `[n]`: rows of one label count as dependent in a standard error.
        Where None, rows of equal prompts do.
      batches: a label for each row, `[n]`: answers to one prompt in one batch, such as a request,
        were not drawn independently. Unbiased scores of order 2 leave out the pairs within a batch.
      weights: of each row, `[n]`, not negative; equal where None. Integers are numbers of
        independent equal rows. Other numbers are weights of one row each, of which only the shares
        matter: unbiased scores then count prompts by them (at order 2 by their squares, as CV eq.
        11), and not each prompt once. The rules that need a key resample the rows by either.
      mesh: devices to spread the rows over, for arrays that are not sharded yet.
      progress: called with a few words before each bandwidth is chosen.
      kernel: another name of `output_kernel`.

    Attributes:
      arrays: `[n, d_x]` and, where there are prompts, `[n, d_t]`, in the compute dtype;
        `[layout.rows, ...]` on several devices. Rows under `Indicator` become the numbers of the
        distinct ones, `[n, 1]`, on one device outside of transformations.
      kernels: one for each array, in the form that suits its points.
      weights: the shares of the rows, `[n]` or, with zeros, `[layout.rows]`; None if all are equal.
      n, layout: the number of pairs, and the devices that they are spread over, or None for one.
      prompt_ids, groups, batches: the numbers of the prompt, the group and the batch of each row,
        `[n]`, or None. Transformations such as `jax.jit` lose them, and the bandwidths' rules.
      copies: the weights, where they are integers: how many independent rows each row stands for.

    Raises:
      TypeError: an array is not of real numbers or is masked, or a kernel is not one.
      ValueError: an array is not finite, two-dimensional and of at least one row; the lengths
        differ; a kernel is missing; the rule finds no bandwidth; or weights are not valid.

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

    def __init__(
        self,
        outputs: ArrayLike | Labels | similarities.Similarities,
        prompts: ArrayLike | Labels | None = None,
        *,
        output_kernel: kernel_choice.KernelChoice = None,
        prompt_kernel: kernel_choice.KernelChoice = None,
        rule: str | None = None,
        similar_prompts: bool = False,
        key: jax.Array | None = None,
        prompt_ids: Labels | None = None,
        groups: ArrayLike | None = None,
        batches: Labels | None = None,
        weights: ArrayLike | None = None,
        mesh: Mesh | None = None,
        progress: Callable[[str], Any] = lambda _: None,
        kernel: Kernel | None = None,
    ):
        given = {"outputs": outputs, "prompts": prompts, "prompt_ids": prompt_ids}
        given |= {"groups": groups, "weights": weights, "batches": batches}
        short = None if kernel is None else check_kernel(kernel, name="kernel")
        kernels = short, output_kernel, prompt_kernel
        made = _make({"": given}, kernels, rule, similar_prompts, key, progress, mesh)
        vars(self).update(vars(made[""]))

    @classmethod
    def of_models(
        cls,
        models: Mapping[str, ArrayLike | Labels | similarities.Similarities],
        prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
        *,
        prompt_ids: Labels | Mapping[str, Labels] | None = None,
        groups: ArrayLike | None = None,
        weights: ArrayLike | Mapping[str, ArrayLike] | None = None,
        batches: Labels | Mapping[str, Labels] | None = None,
        **options: Any,
    ) -> dict[str, "Pairs"]:
        """The pairs of several models under the same kernels, by the name of the model.

        Args:
          models: the outputs of each model by its name, embeddings `[n, d_x]` of one encoder.
          prompts: embeddings `[n, d_t]` that all models share row by row, or those of each by name.
          prompt_ids, weights, batches: see `Pairs`. `[n]`, or those of each. Equal ids: one prompt.
          groups: see `Pairs`; `[n]` for all models.
          **options: `output_kernel`, `prompt_kernel`, `rule`, `similar_prompts`, `key` and
            `progress` of `Pairs`. A rule sees as many rows of each model.

        Raises:
          TypeError, ValueError: an argument is not valid for `Pairs` (the error names the model),
            there is no model, or the arrays of the models do not fit together.
        """
        check_names(models)
        checks.check_keywords(options, inspect.signature(cls), name="Pairs.of_models")
        given = {"prompts": prompts, "prompt_ids": prompt_ids, "weights": weights}
        rows = {name: {"outputs": outputs, "groups": groups} for name, outputs in models.items()}
        for role, value in (given | {"batches": batches}).items():
            for name, of_model in of_each_model(value, models, role).items():
                rows[name][role] = of_model
        names = ("kernel", "output_kernel", "prompt_kernel")
        kernels: Any = tuple(options.pop(name, None) for name in names)
        shared = not isinstance(prompts, Mapping)
        return _make(rows, kernels, shared=shared, together=True, **options)


def _make(
    models: Mapping[str, Mapping[str, Any]],
    kernels: tuple[kernel_choice.KernelChoice, ...],
    rule: str | None = None,
    similar_prompts: bool = False,
    key: jax.Array | None = None,
    progress: Callable[[str], Any] = lambda _: None,
    mesh: Mesh | None = None,
    *,
    shared: bool = True,
    together: bool = False,
) -> dict[str, Pairs]:
    """The checked pairs of each model; with `shared` prompts, or `together` on one device."""
    kernel, *others = kernels
    if kernel is not None and others[0] is not None:
        raise TypeError("kernel: received beside output_kernel, which it is short for.")
    programs.keep()
    roles: Sequence[str] = NAMES[: 1 + any(r["prompts"] is not None for r in models.values())]
    passed = {name: {role: rows[role] for role in roles} for name, rows in models.items()}
    passed, asked, separate = similarities.unpacked(passed, (kernel or others[0], others[1]))
    shared = shared and not separate
    by_row: dict[str, dict[str, Any]] = {}
    for name, arrays in passed.items():
        with checks.naming(name):
            by_row[name] = shapes.by_row(arrays)
    first = next(iter(by_row))
    roles, paired = [*by_row[first]], "prompts" in by_row[first]
    labelled = shapes.labelled(by_row, asked, similar_prompts)
    by_role = zip(NAMES, asked, strict=True)
    given = tuple(Indicator() if k is None and role in labelled else k for role, k in by_role)
    identified = any(rows["prompt_ids"] is not None for rows in models.values())
    if identified and not paired:
        raise ValueError("prompt_ids: received some, and there are no prompts; expected None.")
    named, about = dict[str, Mapping[str, Any]](), dict[str, dict[str, Any]]()
    weights, numbers = dict[str, Any](), dict[str, dict[Any, int]]()  # Models share numbers.
    for name, rows in models.items():
        with checks.naming(name):
            checks.check_indices(rows)
            arrays = by_row[name]
            kinds = {r: _numbers(arrays[r], r, numbers.setdefault(r, {})) for r in labelled}
            named[name] = checks.as_paired(arrays | kinds)
            if given[0] is None and rule is not None:
                kernel_choice.refuse_ids(named[name]["outputs"])
            n = named[name]["outputs"].shape[0]
            about[name] = labels = {"index": checks.index_of(rows["outputs"])}
            if (ids := rows["prompt_ids"]) is None and "prompts" in labelled:
                ids = arrays["prompts"]
            if ids is not None or identified:
                of_rows = _numbers(ids, "prompt_ids", numbers.setdefault("ids", {}), n)
                labels |= {"prompt_ids": of_rows[:, 0], "prompt_numbers": numbers["ids"]}
            for role in ("groups", "batches"):
                if rows[role] is not None:
                    labels[role] = labelling.check_labels(rows[role], n, name=role)[1]
            if "batches" in labels and not paired:  # Rows of one batch are not independent.
                labels.setdefault("groups", labels["batches"])
            if rows["weights"] is not None:
                weights[name] = checks.check_weights(rows["weights"], n)
    given = kernel_choice.check(paired, given, rule)
    ids = [labels["prompt_ids"] for labels in about.values() if "prompt_ids" in labels]
    if shared and not all(np.array_equal(ids[0], other) for other in ids):
        raise ValueError("prompt_ids: those of the models differ, and their prompts are the same.")
    for role in roles:
        widths = {name: arrays[role].shape[1] for name, arrays in named.items()}
        if len(set(widths.values())) > 1:
            raise ValueError(f"{role}: expected one dimension for all models, received {widths}.")
    checks.warn_of_float64(*named.values())

    # One origin for all models, since their rows are compared with each other.
    kinds = zip(named[first].items(), given, strict=True)
    moved = [part for part, k in kinds if not isinstance(k, Kernel) or k.shift_invariant]
    origins = {role: checks.origin_of(array) for role, array in moved}
    made: dict[str, Pairs] = {}
    for name, arrays in named.items():
        layout = layout_of(arrays["outputs"], mesh=mesh)
        place = placed if layout is None else layout.shard
        known = made[first].arrays[1:] if shared and made else ()
        fresh = roles[: len(roles) - len(known)]
        with checks.naming(name):
            cast = tuple(checks.cast_array(arrays[r], r, place, origins.get(r)) for r in fresh)
        pairs = Pairs.trusted(cast, (), n=arrays["outputs"].shape[0], layout=layout)
        if together:
            pairs = pairs.gathered()
        pairs = pairs._but(arrays=pairs.arrays + known)
        if (checked := weights.get(name)) is not None:
            whole = isinstance(checked, np.ndarray) and checked.dtype.kind == "i"
            pairs = pairs.weighed(shares_of(checked), copies=checked if whole else None)
        made[name] = pairs._but(**about[name])
    if together:
        prompts_by_model([*made.values()])
    once = shared and len({id(rows["weights"]) for rows in models.values()}) == 1
    options: Any = {"asked": asked, "once": once, "similar": similar_prompts}
    return _numbered(kernel_choice.chosen(made, named, given, rule, key, progress, **options))


def _numbers(labels: Any, name: str, known: dict[Any, int], n: int | None = None) -> np.ndarray:
    """The number of the label of each row, `[n, 1]`; those that are `known` keep theirs."""
    distinct, kinds = labelling.check_labels(labels, len(labels) if n is None else n, name=name)
    if name == "outputs":
        labelling.refuse_noise(distinct, kinds, name=name)
    typed, written = labelling.typed(distinct), {f"{label}": kind for label, kind in known}
    twins = [one for one in typed if one not in known and f"{one[0]}" in written]
    if twins and name != "prompts":  # They count as prompt_ids, too.
        label, kind, role = *twins[0], name.replace("_ids", "s")
        words = f"is {written[f'{label}']} in one model and {kind} in another, and so differs"
        checks.warn(f"{role}: {label} {words}: pass one type in all, [*map(str, {role})].")
    return np.array([known.setdefault(label, len(known)) for label in typed])[kinds][:, None]


def _numbered(models: dict[str, Pairs]) -> dict[str, Pairs]:
    """The models with numbers, `[n, 1]`, in place of rows under an `Indicator`."""
    # Comparing d coordinates of all pairs takes d times as long. Equal rows have one number.
    every = [*models.values()]
    first = every[0]
    columns = [list(arrays) for arrays in zip(*(pairs.arrays for pairs in every), strict=True)]
    for index, (kernel, arrays) in enumerate(zip(first.kernels, columns, strict=True)):
        numbers = arrays[0].shape[1] == 1 and (index == 0 or first.prompt_ids is None)
        alone = first.layout is None and checks.is_concrete(arrays)
        if numbers or not alone or not kernel.compares_equality:
            continue
        if index == 1:
            parts = prompts_by_model(every)[1]
        else:
            stacked = np.concatenate([np.asarray(array) for array in arrays])
            kinds = checks.equal_rows(stacked, name="outputs")[1]
            parts = np.split(kinds, np.cumsum([pairs.n for pairs in every])[:-1])
        with jax.ensure_compile_time_eval():
            both = zip(arrays, parts, strict=True)
            numbered = {id(a): placed(part[:, None].astype(first.dtype)) for a, part in both}
        columns[index] = [numbered[id(array)] for array in arrays]
    by_model = zip(models.items(), zip(*columns, strict=True), strict=True)
    return {name: pairs._but(arrays=arrays) for (name, pairs), arrays in by_model}


def check_names(models: Any) -> None:
    """Raises unless `models` is a mapping from names of printable text."""
    if not isinstance(models, Mapping) or not models:
        raise ValueError("models: expected the outputs of each model by its name.")
    for name in models:
        if not isinstance(name, str):
            raise TypeError(f"models: expected names that are strings, received {name!r}.")
        if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e]", name):
            raise ValueError(f"models: expected names of printable text, received {name!r}.")


def of_each_model(value: Any, models: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """The value of each model: from a mapping by its name, or one value for all."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(models, value)
    if set(value) != set(models):
        received = f"received those of {sorted(value)}"
        raise ValueError(f"{argument}: expected those of {sorted(models)}, {received}.")
    return {name: value[name] for name in models}


def takes_pairs(function: Callable[Concatenate[Pairs, ...], _Result]) -> Callable[..., _Result]:
    """Lets a function of `Pairs` take arrays in their place.

    `f(outputs, prompts, output_kernel=..., prompt_kernel=..., order=2)` is then short for
    `f(Pairs(outputs, prompts, output_kernel=..., prompt_kernel=...), order=2)`.
    """
    makers, signature = inspect.signature(Pairs).parameters, inspect.signature(function)
    arrays = {name: makers[name] for name in _MAKING}
    further = [*signature.parameters.values()][1:]
    if further[0].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD:  # And without a default.
        arrays["prompts"] = arrays["prompts"].replace(default=inspect.Parameter.empty)
    parameters = sorted([*arrays.values(), *further], key=lambda parameter: parameter.kind)
    signature = signature.replace(parameters=parameters)

    @functools.wraps(function)
    def taking(*args: Any, **kwargs: Any) -> Any:
        if not args and "pairs" in kwargs:
            args = (kwargs.pop("pairs"),)
        checks.check_keywords(kwargs, signature, name=function.__name__)
        making = {n: value for n in _MAKING if (value := kwargs.pop(n, None)) is not None}
        if not args or not isinstance(args[0], Pairs):
            rows = args[0] if args else making.get("outputs")
            checks.check_indices({"outputs": rows, "quality": kwargs.get("quality")})
            args = (Pairs(*args[:2], **making), *args[2:])
        elif making:
            expected = "expected Pairs alone, which have arrays and kernels"
            received = f"received Pairs and {', '.join(making)}"
            raise TypeError(f"{function.__name__}: {received}; {expected}.")
        return function(*args, **kwargs)

    vars(taking)["__signature__"] = signature
    return taking


_MAKING = ("outputs", "prompts", "output_kernel", "prompt_kernel", "kernel")
_MAKING += ("prompt_ids", "weights", "mesh")
