"""Kernels of a study: bandwidths at multiples of a rule's (`Scales`), or by several (`Rules`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import condvendi_jax as cv
from condvendi_jax import bandwidth
from experiments.data import PairedEmbeddings
from experiments.lab import choices
from experiments.lab.declaring import flag, resolved

KERNELS = choices.KERNELS


@dataclasses.dataclass(frozen=True)
class Bandwidths:
    """The Gaussian bandwidths of outputs and prompts in their units; both None for cosine.

    Attributes:
      coordinate: the multiple of the rule's bandwidths, or the name of the rule.
      outputs: of the outputs.
      prompts: of the prompts.
      rule: how they were chosen, in words.
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


@dataclasses.dataclass(frozen=True)
class Scales:
    """Multiples of the bandwidths that a rule chooses once, on all pairs together."""

    kernel: str = flag("gaussian", "The kernel of outputs and prompts.", choices=KERNELS)
    rule: str = flag(
        "variance",
        "How the bandwidths are chosen on all pairs together: variance (CV), std (RKE), median "
        "(median distance).",
        choices=bandwidth.RULES,
    )
    output_bandwidth: float | None = flag(
        None,
        "The bandwidth of the outputs, in their units, in the place of the rule's.",
        needs={"kernel": "gaussian"},
        above=0,
    )
    prompt_bandwidth: float | None = flag(
        None,
        "The bandwidth of the prompts, in their units, in the place of the rule's.",
        needs={"kernel": "gaussian"},
        above=0,
    )
    scales: tuple[float, ...] | None = flag(
        None,
        "Multiples of both bandwidths at which everything is repeated; 0.5, 1 and 2 if unset.",
        needs={"kernel": "gaussian"},
        above=0,
    )
    described: str = resolved("")

    def resolve(self, pairs: PairedEmbeddings, seed: int) -> Scales:
        """With the bandwidths that the rule chooses, and the rule in words.

        Raises:
          ValueError: a rule cannot be followed, a flag contradicts another or a scale is given
            twice.
        """
        options = choices.ScaledOptions(
            self.kernel, self.rule, self.output_bandwidth, self.prompt_bandwidth, self.scales
        )
        # Chosen at scale 1, whichever scales are asked for.
        choices.choose_scaled(pairs, options, seed)
        once = dataclasses.replace(options, scales=None)
        found = choices.choose_scaled(pairs, once, seed)
        whole = found["cosine" if self.kernel == "cosine" else "1"]
        scales = choices.SCALES if self.scales is None else self.scales
        return dataclasses.replace(
            self,
            output_bandwidth=whole.outputs,
            prompt_bandwidth=whole.prompts,
            scales=(1.0,) if self.kernel == "cosine" else scales,
            described=whole.rule,
        )

    @property
    def axis(self) -> tuple[Bandwidths, ...]:
        """The bandwidths at every scale, of resolved scales."""
        return tuple(self._at(float(scale)) for scale in self.scales or ())

    def _at(self, scale: float) -> Bandwidths:
        if self.output_bandwidth is None or self.prompt_bandwidth is None:
            return Bandwidths(scale, None, None, self.described)
        widths = (scale * self.output_bandwidth, scale * self.prompt_bandwidth)
        return Bandwidths(scale, *widths, self.described)

    @property
    def shown(self) -> float:
        """The scale that a figure shows where it shows one: 1, or the first where that is not."""
        scales = self.scales or (1.0,)
        return 1.0 if 1.0 in scales else scales[0]

    def words(self, scale: float | None = None) -> str:
        """The kernel, the bandwidths and their rule, for a caption; at one scale or at all."""
        if self.kernel == "cosine":
            return "Cosine kernel"
        times = ", ".join(f"{scale:g}" for scale in ([scale] if scale else self.scales or ()))
        ending = "" if times == "1" else f" times {times}"
        return (
            f"Gaussian bandwidths {self.output_bandwidth:.3g} (outputs), "
            f"{self.prompt_bandwidth:.3g} (prompts): {_short(self)}{ending}"
        )


def _short(scales: Scales) -> str:
    """How the bandwidths were chosen, in a word or two."""
    return "given" if scales.described == "given" else f"{scales.rule} rule"


@dataclasses.dataclass(frozen=True)
class Rules:
    """The bandwidths of several rules, each of which is a panel."""

    kernel: str = flag("gaussian", "The kernel of outputs and prompts.", choices=KERNELS)
    rules: tuple[str, ...] | None = flag(
        None,
        "How the bandwidths are chosen: variance (CV), std (RKE), median (median distance); each "
        "is a panel. variance if unset.",
        choices=bandwidth.RULES,
        needs={"kernel": "gaussian"},
    )
    output_bandwidth: float | None = flag(
        None, "The bandwidth of the outputs, in their units.", needs={"kernel": "gaussian"}, above=0
    )
    prompt_bandwidth: float | None = flag(
        None, "The bandwidth of the prompts, in their units.", needs={"kernel": "gaussian"}, above=0
    )
    axis: tuple[Bandwidths, ...] = resolved(())

    def resolve(self, pairs: PairedEmbeddings, seed: int) -> Rules:
        """With the bandwidths of every rule.

        Raises:
          ValueError: a rule cannot be followed, or a flag contradicts another.
        """
        options = choices.KernelOptions(
            self.kernel, self.rules, self.output_bandwidth, self.prompt_bandwidth
        )
        found = choices.choose(pairs, options, seed)
        axis = tuple(Bandwidths(name, b.outputs, b.prompts, b.rule) for name, b in found.items())
        return dataclasses.replace(self, axis=axis)

    def words(self, scale: float | None = None) -> str:
        """The kernel and the rules, for a caption."""
        if self.kernel == "cosine":
            return "Cosine kernel"
        widths = (f"{b.coordinate} {b.outputs:.3g} / {b.prompts:.3g}" for b in self.axis)
        return f"Gaussian bandwidths (outputs / prompts): {', '.join(widths)}"
