"""One call from two arrays to scores with errors: bandwidths by rule, groups by prompt.

What `decompose` leaves to its caller is chosen here, and everything that was chosen is in the
result: the bandwidths and their rule, the groups of the jackknife, the seed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import bandwidth, validation
from condvendi_jax.bandwidth import RuledBandwidth
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import _jackknife as uncertainty
from condvendi_jax.inference import saturation
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.kernels import Cosine, Gaussian, Kernel
from condvendi_jax.pairs import NAMES, Pairs
from condvendi_jax.report import _tables as tables
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Auto, Method

Errors = Literal["auto", "all", "none"]
# Where an error takes a spectrum a group, it is left out above this unless asked for.
ERRORS_UP_TO = 2000
HEADINGS = {
    "vendi": "total",
    "conditional": "conditional",
    "information": "information",
}
_ORDERS = {1.0: "1 (Vendi)", 2.0: "2 (RKE)"}
# Below this share of the prompts the user is told that prompts count as alike.
_BLURRED = 0.9
# Distinct prompts up to which this is found out, from all their pairs.
_LOOKED_AT = 4096


class Keys:
    """The random keys of an evaluation, all from one seed."""

    def __init__(self, seed: int):
        root = jax.random.key(validation.check_seed(seed))
        self.rule, self.groups = jax.random.split(root)
        self.probes = jax.random.fold_in(root, 2)


@dataclasses.dataclass(frozen=True)
class ScoredOrder:
    """The scores of one order.

    Attributes:
      decomposition: the scores, and how they were computed.
      standard_errors: of the sample, at these kernels; None where they were left out.
      bandwidth_errors: how far other draws of the rule's random subsets would move the scores, as
        standard deviations; None where no bandwidth was drawn, or no errors were computed.
      saturated: the scores that are 1, or as large as they can be, up to rounding, by name with
        which of the two (`saturation.limit_of`): at these bandwidths they tell nothing.
    """

    decomposition: Decomposition
    standard_errors: PerScore | None
    bandwidth_errors: PerScore | None = None
    saturated: Mapping[str, saturation.Limit] = dataclasses.field(default_factory=dict)

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain numbers: the scores of some names, their errors and intervals, the entropies."""
        found = self.decomposition

        def plain(values: PerScore | None) -> dict[str, Any] | None:
            return (
                None if values is None else {name: float(getattr(values, name)) for name in names}
            )

        intervals = None
        if found.estimation is not None:
            intervals = {name: list(getattr(found.intervals, name)) for name in names}
        entropies = ("entropy_outputs", "entropy_prompts", "entropy_joint")[: len(names)]
        return {
            "order": "inf" if math.isinf(found.order) else found.order,
            "truncation": found.truncation,
            "method": found.method,
            **(plain(found.scores) or {}),
            "intervals": intervals,
            "standard_errors": plain(self.standard_errors),
            "bandwidth_errors": plain(self.bandwidth_errors),
            "saturated": dict(self.saturated),
            **{name: float(getattr(found, name)) for name in entropies},
        }


class RepeatedPrompts(NamedTuple):
    """How many prompts there are where they repeat, and how many the kernel tells apart.

    Attributes:
      distinct: the number of distinct prompts.
      frequency: the number of equally frequent prompts that have their order-2 diversity.
      counted: RKE of the prompts: how many of them count as different under their kernel.
    """

    distinct: int
    frequency: float
    counted: float

    @property
    def blurred(self) -> bool:
        """Whether different prompts count as alike, so that outputs of several are compared."""
        return self.counted < _BLURRED * self.frequency

    def describe(self) -> str:
        """What that means for the conditional scores, in a line."""
        return (
            f"prompts repeat: there are {self.distinct:,}, of which the prompt kernel tells about "
            f"{self.counted:.3g} apart (RKE). Conditional scores therefore mix the outputs of "
            "similar prompts; to count the outputs of each prompt, use a smaller prompt bandwidth"
        )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores with errors, and everything that was chosen on the way. Prints as a table.

    Attributes:
      n: the number of pairs, or of outputs.
      dtype: the name of the dtype they were computed in.
      bandwidths: of outputs and prompts, in their units, with the rule in words.
      orders: the scores of each order.
      groups: how many groups the jackknife had; None where there is no error.
      units: what its groups are made of, in words.
      seed: of everything that is drawn.
      repeated_prompts: how many prompts the kernel tells apart; None unless prompts repeat.
    """

    n: int
    dtype: str
    bandwidths: Mapping[str, RuledBandwidth]
    orders: tuple[ScoredOrder, ...]
    groups: int | None
    units: str | None
    seed: int
    repeated_prompts: RepeatedPrompts | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The scores there are: one without prompts, three with them."""
        return PerScore._fields if "prompts" in self.bandwidths else ("vendi",)

    def order(self, order: float) -> ScoredOrder:
        """The scores of one order.

        Raises:
          KeyError: it was not computed.
        """
        for found in self.orders:
            if found.decomposition.order == order:
                return found
        raise KeyError(
            f"order {order}: computed were {[o.decomposition.order for o in self.orders]}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return {
            "n": self.n,
            "dtype": self.dtype,
            "bandwidths": {name: chosen._asdict() for name, chosen in self.bandwidths.items()},
            "seed": self.seed,
            "groups": self.groups,
            "groups_of": self.units,
            "errors_cover": None if self.groups is None else ERRORS_COVER,
            "repeated_prompts": self.repeated_prompts and self.repeated_prompts._asdict(),
            "scores": [found.as_dict(self.names) for found in self.orders],
        }

    def __str__(self) -> str:
        """The table, and below it what its numbers mean."""
        rows = []
        for found in self.orders:
            scored = found.decomposition
            cells = []
            for name in self.names:
                errors = found.standard_errors
                error = None if errors is None else float(getattr(errors, name))
                cell = tables.with_error(float(getattr(scored, name)), error)
                if scored.estimation is not None:
                    cell += " [{:.4g}, {:.4g}]".format(*getattr(scored.intervals, name))
                cells.append(cell)
            rows.append([order_name(scored), *cells])
        kind = "pairs" if len(self.names) > 1 else "outputs"
        title = f"{self.n:,} {kind}, {self.dtype}"
        heading = ["order", *(HEADINGS[name] for name in self.names)]
        return "\n".join([title, tables.aligned(heading, rows), *self._notes()])

    def _notes(self) -> list[str]:
        notes = describe_bandwidths(self.bandwidths)
        if self.repeated_prompts and self.repeated_prompts.blurred:
            notes.append(self.repeated_prompts.describe())
        if any(found.decomposition.estimation for found in self.orders):
            ways = {o.decomposition.method for o in self.orders if o.decomposition.estimation}
            notes.append(
                f"[low, high]: estimated ({', '.join(sorted(ways))}), the 95% interval of what all "
                "eigenvalues would give"
            )
        if self.groups is not None:
            notes.append(f"±: {ERRORS_COVER}; {self.groups} groups of {self.units}")
        missing = [order_name(o.decomposition) for o in self.orders if o.standard_errors is None]
        if missing:
            notes.append(f"no standard errors were computed of order {', '.join(missing)}")
        for found in self.orders:
            notes += [
                f"saturated: {HEADINGS[name]} of order {order_name(found.decomposition)} is "
                + saturation.describe(name, limit)
                for name, limit in found.saturated.items()
            ]
            noise = found.bandwidth_errors
            if noise is not None:
                spread = ", ".join(
                    f"{HEADINGS[n]} by ± {float(getattr(noise, n)):.2g}" for n in self.names
                )
                notes.append(
                    f"choice of bandwidth, order {order_name(found.decomposition)}: other draws of "
                    f"the rule's subsets move {spread}"
                )
        return notes


ERRORS_COVER = (
    "one standard error of the sample at these bandwidths (delete-group jackknife), not of their "
    "choice"
)


def order_name(found: Decomposition) -> str:
    """The order for a table: '1 (Vendi)', 'inf, t = 50'."""
    cut = "" if found.truncation is None else f", t = {found.truncation:,}"
    return _ORDERS.get(found.order, f"{found.order:g}") + cut


def describe_bandwidths(bandwidths: Mapping[str, RuledBandwidth]) -> list[str]:
    """A line for each bandwidth and its rule."""
    return [
        f"bandwidth of {name}: "
        + ("" if chosen.bandwidth is None else f"{chosen.bandwidth:.4g}, ")
        + chosen.rule
        for name, chosen in bandwidths.items()
    ]


@validation.outside_transformations
def evaluate(
    outputs: ArrayLike,
    prompts: ArrayLike | None = None,
    *,
    output_kernel: Kernel | None = None,
    prompt_kernel: Kernel | None = None,
    rule: str = "variance",
    orders: Sequence[float] = (1, 2),
    truncation: int | None = None,
    method: Method | None = None,
    errors: Errors = "auto",
    groups: int | ArrayLike = uncertainty.DEFAULT_GROUPS,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Evaluation:
    """The scores of two arrays with standard errors: what most callers want, in one call.

    Args:
      outputs: X, embeddings `[n, d_x]`.
      prompts: T, embeddings `[n, d_t]`, row by row of the prompts that gave the outputs; without
        them there is Vendi and RKE.
      output_kernel: a `Gaussian` whose bandwidth follows the rule, where None.
      prompt_kernel: the same for the prompts.
      rule: 'variance' (CV), 'std' (RKE) or 'median': see `bandwidth_by_rule`.
      orders: Renyi orders in (0, inf].
      truncation: how many eigenvalues every entropy keeps; all where None.
      method: how eigenvalues are computed; `Auto` with a key of the seed where None.
      errors: standard errors of every order ('all'), of none, or ('auto') of those that one pass
        gives, and of the others up to n = 2,000.
      groups: of the jackknife, how many or the label `[n]` of every row; rows with equal prompts
        stay together.
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
      >>> found = cv.evaluate(outputs, prompts, orders=[2], rule="median", errors="none")
      >>> print(f"{found.order(2).decomposition.vendi:.1f}")
      2.5
    """
    entropies = check_orders(orders, truncation)
    keys = Keys(seed)
    if errors not in ("auto", "all", "none"):
        raise ValueError(f"errors: expected 'auto', 'all' or 'none', received {errors!r}.")
    method = methods.check_method(Auto(keys.probes) if method is None else method)
    arrays = check_named(outputs, prompts)
    given = dict(zip(NAMES, (output_kernel, prompt_kernel), strict=True))
    if prompts is None and prompt_kernel is not None:
        raise ValueError("prompts: expected beside prompt_kernel, received None.")
    n = arrays["outputs"].shape[0]
    entropies = [entropy.clamped(n) for entropy in entropies]
    chosen = None
    if n > 2 and any(wants_errors(errors, entropy, n, method) for entropy in entropies):
        chosen = _groups(arrays, groups, keys.groups)
    kernels, bandwidths = choose_kernels(arrays, given, rule, keys.rule, progress)
    points = _points(arrays, kernels)
    found = []
    for entropy in entropies:
        progress(f"order {entropy.order:g}")
        spread = noise = decomposition = None
        if wants_errors(errors, entropy, n, method):
            if chosen is None:
                spread = uncertainty.undefined_errors(points)
            else:
                gathered = points.gathered()
                deletions = uncertainty.delete_groups(
                    gathered,
                    entropy,
                    chosen,
                    method=method,
                    progress=counting(progress, f"errors of order {entropy.order:g}"),
                )
                spread, decomposition = deletions.errors(), deletions.decomposition
                progress(f"order {entropy.order:g}, noise of the bandwidth")
                noise = uncertainty.bandwidth_errors(
                    gathered,
                    entropy,
                    chosen,
                    deletions.whole,
                    [bandwidths[name].relative_error for name in arrays],
                    method=method,
                )
        if decomposition is None:
            (computed,) = methods.compute(points, (entropy,), method)
            decomposition = Decomposition.of(computed, entropy, n=n)
        saturated = _saturated(decomposition, entropy, points)
        found.append(ScoredOrder(decomposition, spread, noise, saturated))
    return Evaluation(
        n=n,
        dtype=points.dtype.name,
        bandwidths=bandwidths,
        orders=tuple(found),
        groups=None if chosen is None else chosen.count,
        units=None if chosen is None else chosen.units,
        seed=seed,
        repeated_prompts=repeated_prompts(points),
    )


def _saturated(
    found: Decomposition, entropy: Entropy, points: Pairs
) -> dict[str, saturation.Limit]:
    """The saturated scores, each with the limit that it has reached."""
    names = PerScore._fields if points.paired else ("vendi",)
    limits: dict[str, saturation.Limit] = {}
    for name in names:
        value = float(getattr(found, name))
        limit = saturation.limit_of([value], points.n, entropy, points.dtype)
        if limit is not None:
            limits[name] = limit
    return limits


def repeated_prompts(points: Pairs) -> RepeatedPrompts | None:
    """How many of the prompts count as different; None unless each comes twice on average."""
    if not points.paired or points.layout is not None:
        return None
    prompts = np.asarray(points.arrays[1])
    kinds, of_row = validation.distinct_rows(prompts)
    if not 1 < kinds <= min(points.n // 2, _LOOKED_AT):
        return None
    _, first = np.unique(of_row, return_index=True)
    shares = np.bincount(of_row) / points.n
    kernel = points.kernels[1]
    prepared = kernel.prepare(points.arrays[1][first])
    gram = np.array(kernel.cross(prepared, prepared), np.float64)
    np.fill_diagonal(gram, 1.0)
    return RepeatedPrompts(
        kinds, float(1 / np.sum(shares**2)), float(1 / (shares @ np.square(gram) @ shares))
    )


def _groups(arrays: Mapping[str, Any], groups: int | ArrayLike, key: jax.Array) -> Groups:
    """The groups of the jackknife, as many as rows where more are asked for."""
    n = arrays["outputs"].shape[0]
    together = np.asarray(arrays["prompts"]) if "prompts" in arrays else None
    if isinstance(groups, (int, np.integer)):
        groups = min(validation.check_count(groups, name="groups", minimum=2), n)
    return uncertainty.group_rows(n, groups, key=key, prompts=together)


def counting(progress: Callable[[str], Any], words: str) -> Callable[[], None]:
    """Calls `progress` with the words and how often that happened."""
    count = itertools.count(1)
    return lambda: progress(f"{words}: {next(count)} done")


def wants_errors(errors: Errors, entropy: Entropy, n: int, method: Method) -> bool:
    """Whether standard errors of an entropy of n rows are computed."""
    cheap = not method.computes(entropy) or n <= ERRORS_UP_TO
    return errors == "all" or (errors == "auto" and cheap)


def check_orders(orders: Sequence[float], truncation: int | None) -> list[Entropy]:
    """The entropies that are asked for.

    Raises:
      ValueError: there is none, or one is out of range or asked for twice.
    """
    if not isinstance(orders, (list, tuple, np.ndarray)):
        raise ValueError(f"orders: expected a list of numbers above 0, received {orders!r}.")
    wanted = [Entropy(order=order, truncation=truncation) for order in orders]
    if not wanted or len(set(wanted)) < len(wanted):
        raise ValueError(f"orders: expected different numbers above 0, received {orders!r}.")
    return wanted


def check_named(outputs: ArrayLike, prompts: ArrayLike | None) -> dict[str, jax.Array | np.ndarray]:
    """The arrays by name, as they are but no tensors: finite, and of as many rows each."""
    named = {"outputs": outputs} | ({} if prompts is None else {"prompts": prompts})
    arrays = {name: validation.as_array(array, name=name) for name, array in named.items()}
    validation.check_shapes(arrays)
    for name, array in arrays.items():
        validation.check_finite(array, name=name)
    return arrays


def choose_kernels(
    arrays: Mapping[str, Any],
    given: Mapping[str, Kernel | None],
    rule: str,
    key: jax.Array,
    progress: Callable[[str], Any],
) -> tuple[dict[str, Kernel], dict[str, RuledBandwidth]]:
    """The kernel of each array, given or by rule, and what is to be said of its bandwidth.

    Raises:
      ValueError: no bandwidth follows the rule on these points.
    """
    kernels: dict[str, Kernel] = {}
    described: dict[str, RuledBandwidth] = {}
    for index, (name, array) in enumerate(arrays.items()):
        kernel = given.get(name)
        if kernel is None:
            progress(f"bandwidth of {name}")
            chosen = _by_rule(array, rule, jax.random.fold_in(key, index), name)
            assert chosen.bandwidth is not None  # Every rule gives one.
            kernel, described[name] = Gaussian(chosen.bandwidth), chosen
        else:
            described[name] = _as_given(kernel)
        kernels[name] = kernel
    return kernels, described


def _by_rule(array: Any, rule: str, key: jax.Array, name: str) -> RuledBandwidth:
    if rule not in bandwidth.RULES:
        raise ValueError(f"rule: expected one of {', '.join(bandwidth.RULES)}, received {rule!r}.")
    if array.shape[0] == 1 or bool((array == array[:1]).all()):
        # No distance to choose from, and none that matters: every score is 1.
        why = "n = 1" if array.shape[0] == 1 else "all rows are identical"
        return RuledBandwidth(1.0, f"arbitrary: {why}")
    try:
        with warnings.catch_warnings():
            # What a cast of the points gives rise to is said when they are scored.
            warnings.filterwarnings("ignore", "points: ")
            return bandwidth.bandwidth_by_rule(array, rule, key=key)
    except ValueError as error:
        raise ValueError(str(error).replace("points:", f"{name}:", 1)) from error


def _as_given(kernel: Kernel) -> RuledBandwidth:
    if isinstance(kernel, Gaussian):
        return RuledBandwidth(float(kernel.bandwidth), "given")
    if isinstance(kernel, Cosine):
        return RuledBandwidth(None, "none: the cosine kernel has no bandwidth")
    return RuledBandwidth(None, f"given: {kernel!r}")


def _points(arrays: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> Pairs:
    return Pairs(
        arrays["outputs"],
        arrays.get("prompts"),
        output_kernel=kernels["outputs"],
        prompt_kernel=kernels.get("prompts"),
    )
