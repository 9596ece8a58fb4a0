"""The kernels of a call: given or by a rule, checked, and in the form that suits its points."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.base.devices import compiled_elsewhere, host_view, placed, take, to_host
from condvendi_jax.data import bandwidth
from condvendi_jax.data import kernels as kernel_classes
from condvendi_jax.data.kernels import Gaussian, Indicator, Kernel, WithinPrompts, is_equality
from condvendi_jax.data.rows import NAMES, RESAMPLED, Rows, prompts_by_model

#: A kernel, a chosen bandwidth of a Gaussian one, or None where a rule chooses.
KernelChoice = Kernel | bandwidth.RuledBandwidth | None
# Rows compared to find a bandwidth under which the kernel is constant or the identity.
_PROBED_ROWS, _FEW_ROWS = 256, 16
#: Prompts of each model that were asked several times, and know the outputs to one prompt.
ENOUGH_REPEATED = 7
# All kernel values between different points this near to one, or to zero, say nothing.
_NEGLIGIBLE = 1e-6
_few_values = compiled_elsewhere(kernel_classes.of_all)


def check(paired: bool, asked: Sequence[KernelChoice], rule: str | None) -> Sequence[KernelChoice]:
    """Checks the kernels. Returns one for each array, or None where a rule will choose it."""
    if not paired and asked[1] is not None:
        raise ValueError("prompts: expected beside prompt_kernel, received None.")
    given = asked if paired else asked[:1]
    for kernel, name in zip(given, ("output_kernel", "prompt_kernel"), strict=False):
        if kernel is not None and not isinstance(kernel, bandwidth.RuledBandwidth):
            kernel_classes.check_kernel(kernel, name=name)
        elif kernel is not None and kernel.rule.startswith(bandwidth.GIVEN):
            received = f"received that of another kernel ({kernel.rule}): pass the kernel"
            raise ValueError(f"{name}: expected a kernel or a Gaussian's bandwidth, {received}.")
        elif kernel is None and rule is None:
            beside = " beside prompts" if name == "prompt_kernel" else ""
            expected = f"expected{beside} a kernel such as Gaussian(bandwidth) or Cosine()"
            raise ValueError(f"{name}: {expected}, received None.")
    if rule is not None:
        bandwidth.check_rule(rule, auto=True)
    return given


def _pooled(
    models: Sequence[tuple[jax.Array, ...]], prompts_once: bool, key: jax.Array | None
) -> Sequence[jax.Array]:
    """As many rows of every model, drawn at random where it has more; their prompts once."""
    if len(models) == 1:
        return models[0]
    fewest = min(arrays[0].shape[0] for arrays in models)
    parts: list[list[np.ndarray]] = []
    for index, arrays in enumerate(models):
        n = arrays[0].shape[0]
        rows = np.arange(n)
        if n > fewest:
            model_key = jax.random.fold_in(checks.check_key(key), 100 + index)
            rows = np.sort(np.asarray(jax.random.permutation(model_key, n))[:fewest])
        parts.append([np.asarray(array)[rows] for array in arrays])
    outputs, *prompts = zip(*parts, strict=True)
    pooled = [outputs, *(part[:1] if prompts_once else part for part in prompts)]
    return [placed(np.concatenate(part)) for part in pooled]


def chosen(
    models: Mapping[str, Any],
    content: Mapping[str, Mapping[str, Any]],
    given: Sequence[KernelChoice],
    rule: str | None,
    key: jax.Array | None,
    progress: Callable[[str], Any],
    *,
    asked: Sequence[KernelChoice],
    once: bool,
    similar: bool,
) -> dict[str, Any]:
    """The models under their kernels; `once`: models share prompts; `asked`: by the caller."""
    kernels: list[Kernel] = []
    ruled: dict[str, bandwidth.RuledBandwidth] = {}
    drawn: Sequence[jax.Array] = ()
    if rule in bandwidth.RULES and any(kernel is None for kernel in given):
        drawn = _pooled([_resampled(pairs) for pairs in models.values()], once, key)
    repeated = _count_as_repeated([*models.values()], asked, rule, similar)
    for index, (name, kernel) in enumerate(zip(NAMES, given, strict=False)):
        if asked[index] is None and name == "prompts" and repeated:
            kernel = Indicator()
            ruled[name] = bandwidth.RuledBandwidth(None, f"{kernel.words}, because prompts repeat")
        elif kernel is None:
            progress(f"bandwidth of {name}")
            if rule == bandwidth.AUTO:
                compared = _compared(models, content, name)
                kernel = bandwidth.by_default(*compared, name=name, repeated=repeated)
            else:
                assert rule is not None  # `check` has seen to it.
                rule_key, points = jax.random.fold_in(checks.check_key(key), index), drawn[index]
                arbitrary = bandwidth.arbitrary(points)
                kernel = arbitrary or bandwidth.by_rule(points, rule, rule_key, name)
        if isinstance(kernel, bandwidth.RuledBandwidth):
            ruled[name], width = kernel, kernel.bandwidth
            kernel = Gaussian(math.nan if width is None else width)
        kernels.append(kernel)
    made = {}
    for model, pairs in models.items():
        with checks.naming(model):
            suited = tuple(map(_suited, kernels, pairs.arrays, NAMES))
        made[model] = pairs._but(kernels=suited, _ruled=ruled)
    return made


def refuse_ids(outputs: Any) -> None:
    """Raises ValueError for integers of above 8 bits, of which a rule would measure distances."""
    dtype, (n, k) = np.dtype(outputs.dtype), outputs.shape
    if k > 1 and dtype.kind in "iu" and dtype.itemsize > 1:
        raise ValueError(
            f"outputs: received integers [{n}, {k}]. Of {k} ids or classes to a prompt: "
            f"`prompts = np.repeat(prompts, {k}, axis=0)` where there are prompts, then "
            "`outputs = np.reshape(outputs, -1)`. Of counts or other coordinates: `outputs = "
            "np.asarray(outputs, np.float32)`. Of tokens: decode them to texts."
        )


def _count_as_repeated(models: Sequence[Rows], given: Any, rule: Any, similar: bool) -> bool:
    """Whether prompts are equal or different, and repeat: more than half of the rows, or enough."""
    if rule is None or not models[0].paired or similar and given[1] is None:
        return False
    if given[1] is not None and not (given[0] is None and is_equality(given[1])):
        return False
    total, several, prompts = 0.0, 0.0, list[int]()
    for pairs in models:
        numbers = (pairs.shares > 0) * (1 if pairs.copies is None else pairs.copies)
        kinds = pairs.prompt_kinds[1]
        answers = np.bincount(kinds, numbers)
        total += numbers.sum()
        several += numbers[answers[kinds] > 1].sum()
        prompts.append(int(np.count_nonzero(answers > 1)))
    return several > total / 2 or min(prompts) >= ENOUGH_REPEATED


def _resampled(pairs: Rows) -> tuple[jax.Array, ...]:
    """The rows that a rule sees, by systematic resampling: each by its weight, within one row."""
    if pairs.weights is None or not checks.is_concrete(pairs.weights):
        return pairs.arrays
    shares = pairs.shares
    rows = int(np.count_nonzero(shares))
    if pairs.copies is not None:  # As many as integer weights say, up to a limit.
        rows = max(rows, min(pairs.total, RESAMPLED))
    chosen = np.searchsorted(np.cumsum(shares), (np.arange(rows) + 0.5) / rows)
    return tuple(take(array, chosen) for array in pairs.arrays)


def _compared(models: Mapping[str, Rows], content: Mapping[str, Any], role: str) -> tuple[Any, ...]:
    """What the default rule compares: points, prompts, labels, weights, of outputs or prompts."""
    # All models weigh the same, and so do all prompts of a model for which no weights are given.
    parts, start, every = [], 0, [*models.values()]
    for (name, pairs), kinds in zip(models.items(), prompts_by_model(every)[1], strict=True):
        given = pairs.prompts_once().shares, None if pairs.paired else pairs.copies
        more: Any = {"most": bandwidth.MOST_ROWS // len(models), "content": content[name][role]}
        rows, labels, weights = bandwidth.to_compare(*given, prompts=kinds, **more)
        points = to_host(take(pairs.arrays[role == "prompts"], rows))
        parts.append((points, kinds[rows], start + labels, weights / len(models)))
        start += max(pairs.n, pairs.total)
    points, kinds, labels, weights = map(np.concatenate, zip(*parts, strict=True))
    return points, kinds, None if role == "prompts" else labels, weights


def _suited(kernel: Kernel, points: jax.Array, name: str) -> Kernel:
    """The kernel in the form that suits the points; warns where it says nothing of them."""
    if not checks.is_concrete(kernel, points):
        return kernel
    with jax.ensure_compile_time_eval():  # At once, also for constants inside jit.
        kernel.check_points(points, name=name)
        fitting = kernel.suited_to(points)
        if isinstance(kernel, WithinPrompts):
            return fitting  # Most rows that a probe takes are of different prompts.
        # A fixed number of rows, some of them twice, lets one program serve arrays of all lengths.
        step = -(-points.shape[0] // _PROBED_ROWS)
        rows = np.resize(np.arange(0, points.shape[0], step), _PROBED_ROWS)
        near = host_view(points)
        some = to_host(points[rows]) if near is None else near[rows]
        for count in (_FEW_ROWS, _PROBED_ROWS):  # Few rows can show that it tells points apart.
            apart = rows[:count, None] != rows[:count]
            if not apart.any() or (some == some[:1]).all():
                return fitting
            values = np.asarray(_few_values(fitting, some[:count]))[apart]
            if ((np.abs(values) >= _NEGLIGIBLE) & (values <= 1 - _NEGLIGIBLE)).any():
                return fitting
        smallest, largest = values.min(), values.max()
    n = points.shape[0]
    if largest < 1 and kernel.compares_equality and checks.distinct_rows(to_host(points))[0] < n:
        return fitting  # Two rows are equal, which a sample need not show.
    words = f"{name}: under {kernel!r} all kernel values between {min(n, _PROBED_ROWS)} rows"
    if smallest > 1 - _NEGLIGIBLE:
        constant = "the Gram is numerically constant and its scores are 1"
        checks.warn(f"{words} exceed 1 - 1e-6, {constant}: it cannot tell these embeddings apart.")
    elif max(abs(smallest), abs(largest)) < _NEGLIGIBLE:
        identity = "the Gram is numerically the identity and its scores only count points"
        checks.warn(f"{words} are below 1e-6, {identity}.")
    return fitting
