"""Kernels of a study: bandwidths at multiples of a rule's (`Scales`), or by several (`Rules`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

import condvendi_jax as cv
from condvendi_jax.cli.flags import flag
from condvendi_jax.data import bandwidth
from condvendi_jax.data.pairs import Pairs
from experiments.data import PairedEmbeddings
from experiments.lab.study import resolved

KERNELS = ("gaussian", "cosine")
SCALES = (0.5, 1.0, 2.0)
_RULE = "variance"  # That of CV, which the studies reproduce.
_KEY = 0x5E1EC7  # Of the rules' random subsets.
_GAUSSIAN = {"kernel": "gaussian"}
_NOT_GIVEN: Any = {"needs": _GAUSSIAN, "excludes": ("output_bandwidth", "prompt_bandwidth")}


@dataclasses.dataclass(frozen=True)
class Bandwidths:
    """The Gaussian bandwidths of outputs and prompts in their units; both None for cosine.

    The coordinate is the multiple of the rule's bandwidths, or the name of the rule; `rule` says in
    words how they were chosen.
    """

    coordinate: Any
    outputs: float | None
    prompts: float | None
    rule: str

    def __str__(self) -> str:
        of = self.coordinate
        return f"{of:g}" if isinstance(of, float) else of

    @property
    def kernels(self) -> dict[str, Any]:
        """The two kernels, as the scores take them."""
        widths = {"output_kernel": self.outputs, "prompt_kernel": self.prompts}
        return {k: cv.Cosine() if w is None else cv.Gaussian(w) for k, w in widths.items()}

    @property
    def widths(self) -> str:
        """Both in words; nothing for cosine."""
        known = self.outputs is not None and self.prompts is not None
        return f"{self.outputs:.3g} / {self.prompts:.3g}" if known else ""

    def scaled(self, scale: float) -> Bandwidths:
        """At this multiple of both; cosine stays as it is."""
        if self.outputs is None or self.prompts is None:
            return dataclasses.replace(self, coordinate=scale)
        return Bandwidths(scale, scale * self.outputs, scale * self.prompts, self.rule)


def by_rule(pairs: PairedEmbeddings, rule: str, seed: int) -> Bandwidths:
    """The bandwidths by a rule, of outputs and prompts each by itself; ValueError of the rule."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), _KEY))
    try:
        of_x, of_t = (
            bandwidth.bandwidth_by_rule(points, rule, key=key, partitions=1)
            for points, key in zip((pairs.outputs, pairs.prompts), keys, strict=True)
        )
    except ValueError as error:
        raise ValueError(f"--outputs or --prompts, by the rule {rule}: {error}") from error
    return Bandwidths(rule, of_x.bandwidth, of_t.bandwidth, of_x.rule)


def _width(role: str) -> Any:
    """The flag of a bandwidth that is given."""
    words = f"The bandwidth of the {role}, instead of the rule's; give both or neither."
    return flag(None, words, needs=_GAUSSIAN, above=0)


@dataclasses.dataclass(frozen=True)
class _Kernels:
    """The kernel, and bandwidths that are given."""

    kernel: str = flag("gaussian", "The kernel of outputs and prompts.", choices=KERNELS)
    output_bandwidth: float | None = _width("outputs")
    prompt_bandwidth: float | None = _width("prompts")

    def _choose(
        self, pairs: PairedEmbeddings, rules: tuple[str, ...], seed: int
    ) -> tuple[Bandwidths, ...]:
        """The given bandwidths, or those of each rule, or none for cosine; kernels are checked."""
        given = self.output_bandwidth, self.prompt_bandwidth
        if self.kernel == "cosine":
            chosen = [Bandwidths("cosine", None, None, "no bandwidth")]
        elif given.count(None) == 1:
            raise ValueError("give both --output_bandwidth and --prompt_bandwidth, or neither.")
        elif None not in given:
            chosen = [Bandwidths("given", *given, "given")]
        else:
            chosen = [by_rule(pairs, rule, seed) for rule in rules]
        for bandwidths in chosen:
            # Rows are named in the order of the user's files.
            Pairs(pairs.outputs, pairs.prompts, **bandwidths.kernels)
        return tuple(chosen)


@dataclasses.dataclass(frozen=True)
class Scales(_Kernels):
    """Multiples of the bandwidths that a rule chooses once, on all pairs together."""

    rule: str = flag(
        _RULE,
        "How the bandwidths are chosen on all pairs together: variance (CV), std (RKE), median "
        "(median distance).",
        choices=bandwidth.RULES,
        **_NOT_GIVEN,
    )
    scales: tuple[float, ...] | None = flag(
        help="Factors of both bandwidths; everything is computed for each. 0.5, 1 and 2 if unset.",
        needs=_GAUSSIAN,
        above=0,
    )
    described: str = resolved("")

    def resolve(self, pairs: PairedEmbeddings, seed: int) -> Scales:
        """With the bandwidths by the rule, and it in words; ValueError where they are refused."""
        (chosen,) = self._choose(pairs, (self.rule,), seed)
        return dataclasses.replace(
            self,
            output_bandwidth=chosen.outputs,
            prompt_bandwidth=chosen.prompts,
            scales=(1.0,) if self.kernel == "cosine" else self.scales or SCALES,
            described=chosen.rule,
        )

    @property
    def _whole(self) -> Bandwidths:
        return Bandwidths(1.0, self.output_bandwidth, self.prompt_bandwidth, self.described)

    @property
    def axis(self) -> tuple[Bandwidths, ...]:
        """The bandwidths at every scale, of resolved scales."""
        return tuple(self._whole.scaled(float(scale)) for scale in self.scales or ())

    @property
    def shown(self) -> float:
        """The scale that a figure shows where it shows one: 1, or the first where that is not."""
        scales = self.scales or (1.0,)
        return 1.0 if 1.0 in scales else scales[0]

    def words(self, scale: float | None = None) -> str:
        """The kernel, the bandwidths `{}` and their rule, for a caption; at one scale or at all."""
        if self.kernel == "cosine":
            return "Cosine kernel"
        times = ", ".join(f"{scale:g}" for scale in ([scale] if scale else self.scales or ()))
        ending = "" if times == "1" else f" x {times}"
        rule = "given" if self.described == "given" else f"{self.rule} rule"
        widths = "" if self.output_bandwidth is None else " (outputs / prompts) {}"
        return f"Gaussian bandwidths{widths}: {rule}{ending}"

    @property
    def widths(self) -> str:
        """The bandwidths, for a caption."""
        return self._whole.widths


@dataclasses.dataclass(frozen=True)
class Rules(_Kernels):
    """The bandwidths of several rules, each of which is a panel."""

    rules: tuple[str, ...] | None = flag(
        help="How the bandwidths are chosen: variance (CV), std (RKE), median (median distance); "
        "each is a panel. variance if unset.",
        choices=bandwidth.RULES,
        **_NOT_GIVEN,
    )
    axis: tuple[Bandwidths, ...] = resolved(())

    def resolve(self, pairs: PairedEmbeddings, seed: int) -> Rules:
        """With the bandwidths by every rule; ValueError where they are refused."""
        return dataclasses.replace(self, axis=self._choose(pairs, self.rules or (_RULE,), seed))

    def words(self, scale: float | None = None) -> str:
        """The kernel, and the bandwidths `{}` by every rule, for a caption."""
        words = "Gaussian bandwidths (outputs / prompts) {}"
        return "Cosine kernel" if self.kernel == "cosine" else words

    @property
    def widths(self) -> str:
        """The bandwidths by rule, for a caption."""
        return ", ".join(f"{of.coordinate} {of.widths}" for of in self.axis)
