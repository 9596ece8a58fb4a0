"""Kernels and bandwidths, chosen in one place for all studies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

import condvendi_jax as cv
from condvendi_jax import bandwidth
from condvendi_jax.pairs import Pairs
from experiments.data import PairedEmbeddings
from experiments.lab.study import option, positive

KERNELS = ("gaussian", "cosine")
SCALES = (0.5, 1.0, 2.0)
_RULE = "variance"  # That of CV, which the studies reproduce.
_KEY = 0x5E1EC7  # Of the rules' random subsets.


@dataclasses.dataclass(frozen=True)
class Bandwidths:
    """The Gaussian bandwidths of outputs and prompts in their units, and the rule in words.

    Both are None for the cosine kernel.
    """

    outputs: float | None
    prompts: float | None
    rule: str

    def scaled(self, scale: float) -> Bandwidths:
        """Both, multiplied."""
        if self.outputs is None or self.prompts is None:
            return self
        rule = f"{scale:g} of the {self.rule}"
        return Bandwidths(scale * self.outputs, scale * self.prompts, rule)

    def kernels(self) -> dict[str, cv.Kernel]:
        """The two kernels, as the scores take them."""
        output_kernel, prompt_kernel = (
            cv.Cosine() if width is None else cv.Gaussian(width)
            for width in (self.outputs, self.prompts)
        )
        return {"output_kernel": output_kernel, "prompt_kernel": prompt_kernel}


@dataclasses.dataclass(frozen=True)
class KernelOptions:
    """The options of a study that is repeated for several ways of choosing the bandwidths."""

    kernel: str = option("gaussian", "The kernel of outputs and prompts.", choices=KERNELS)
    rules: tuple[str, ...] | None = option(
        None,
        "How the bandwidths are chosen: variance (CV), std (RKE), median (median distance); each "
        "is a panel. variance if unset.",
        choices=bandwidth.RULES,
        needs={"kernel": "gaussian"},
    )
    output_bandwidth: float | None = option(
        None, "The bandwidth of the outputs, in their units.", needs={"kernel": "gaussian"}
    )
    prompt_bandwidth: float | None = option(
        None, "The bandwidth of the prompts, in their units.", needs={"kernel": "gaussian"}
    )


@dataclasses.dataclass(frozen=True)
class ScaledOptions:
    """The options of a study that says what hangs on the bandwidths.

    They are chosen once, by a rule on all pairs together, and everything is repeated at multiples
    of them.
    """

    kernel: str = option("gaussian", "The kernel of outputs and prompts.", choices=KERNELS)
    rule: str = option(
        _RULE,
        "How the bandwidths are chosen on all pairs together: variance (CV), std (RKE), median "
        "(median distance).",
        choices=bandwidth.RULES,
    )
    output_bandwidth: float | None = option(
        None,
        "The bandwidth of the outputs, in their units, in the place of the rule's.",
        needs={"kernel": "gaussian"},
    )
    prompt_bandwidth: float | None = option(
        None,
        "The bandwidth of the prompts, in their units, in the place of the rule's.",
        needs={"kernel": "gaussian"},
    )
    scales: tuple[float, ...] | None = option(
        None,
        "Multiples of both bandwidths at which everything is repeated; 0.5, 1 and 2 if unset.",
        needs={"kernel": "gaussian"},
    )


def choose_scaled(
    pairs: PairedEmbeddings, options: ScaledOptions, seed: int
) -> dict[str, Bandwidths]:
    """The bandwidths at every scale, by the scale as a word: '0.5', '1', '2'; or 'cosine'.

    Raises:
      ValueError: as `choose`, or a scale is not positive or is given twice.
    """
    given = options.output_bandwidth is not None or options.prompt_bandwidth is not None
    rules = None
    if options.kernel == "gaussian" and not given:
        rules = (options.rule,)
    elif options.rule != ScaledOptions.rule:
        beside = "given bandwidths" if given else f"--kernel={options.kernel}"
        raise ValueError(f"--rule={options.rule} means nothing beside {beside}.")
    once = KernelOptions(options.kernel, rules, options.output_bandwidth, options.prompt_bandwidth)
    ((name, bandwidths),) = choose(pairs, once, seed).items()
    if bandwidths.outputs is None:
        return {name: bandwidths}
    scales = SCALES if options.scales is None else options.scales
    words = [f"{positive(scale, name='scales'):g}" for scale in scales]
    if len(set(words)) < len(words):
        raise ValueError(f"--scales: a scale is given twice in {', '.join(words)}.")
    return {
        word: bandwidths if word == "1" else bandwidths.scaled(scale)
        for word, scale in zip(words, scales, strict=True)
    }


def choose(pairs: PairedEmbeddings, options: KernelOptions, seed: int) -> dict[str, Bandwidths]:
    """The bandwidths by the name of their rule: 'variance', 'std', 'median', 'given' or 'cosine'.

    Raises:
      ValueError: one bandwidth of two is given, or bandwidths beside rules; a rule cannot be
        followed on these pairs; the kernel is not defined on a row.
    """
    given = {
        name: value
        for name in ("output_bandwidth", "prompt_bandwidth")
        if (value := getattr(options, name)) is not None
    }
    if options.kernel == "cosine":
        found = {"cosine": Bandwidths(None, None, "no bandwidth")}
    elif given:
        if options.rules is not None:
            raise ValueError(f"--rules and --{next(iter(given))}: give one or the other.")
        if len(given) < 2:
            raise ValueError("give both --output_bandwidth and --prompt_bandwidth, or neither.")
        of_x, of_t = (positive(value, name=name) for name, value in given.items())
        found = {"given": Bandwidths(of_x, of_t, "given")}
    else:
        found = by_rules(pairs, options.rules or (_RULE,), seed)
    for bandwidths in found.values():
        # Rows are named in the order of the user's files.
        kernels: dict[str, Any] = bandwidths.kernels()
        Pairs(pairs.outputs, pairs.prompts, **kernels)
    return found


def by_rules(pairs: PairedEmbeddings, rules: Sequence[str], seed: int) -> dict[str, Bandwidths]:
    """The bandwidths by each of some rules, for outputs and prompts each by itself.

    Raises:
      ValueError: a rule cannot be followed on these pairs.
    """
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), _KEY))
    found = {}
    for rule in rules:
        try:
            of_x, of_t = (
                bandwidth.bandwidth_by_rule(points, rule, key=key, partitions=1)
                for points, key in zip((pairs.outputs, pairs.prompts), keys, strict=True)
            )
        except ValueError as error:
            raise ValueError(f"--rules={rule}: {error}") from error
        found[rule] = Bandwidths(of_x.bandwidth, of_t.bandwidth, of_x.rule)
    return found


def shown(bandwidths: Mapping[str, Any]) -> str:
    """The multiple that a figure shows where it shows one: 1, or the first where that is not."""
    return "1" if "1" in bandwidths else next(iter(bandwidths))


def describe(bandwidths: Mapping[str, Bandwidths]) -> str:
    """The rules in words, for a caption; nothing for the cosine kernel."""
    rules = dict.fromkeys(b.rule for b in bandwidths.values() if b.outputs is not None)
    words = []
    for rule in rules:
        whole = next((other for other in rules if rule.endswith(f" of the {other}")), None)
        if whole is None:
            multiples = [r.split(" of ")[0] for r in rules if r.endswith(f" of the {rule}")]
            words.append(f"{rule}; and {', '.join(multiples)} of it" if multiples else rule)
    return f"Bandwidths: {'; '.join(words)}" if words else ""
