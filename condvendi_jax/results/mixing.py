"""The shares in which models together give the most different answers."""

import dataclasses
from typing import Any, NamedTuple

from condvendi_jax.base.result import Figure, Result
from condvendi_jax.base.tables import Table, listed
from condvendi_jax.results.estimate import Estimate


class Floor(NamedTuple):
    """The best shares at a least mean quality, with the same numbers as `Mix`."""

    least_quality: float
    shares: dict[str, float]
    score: Estimate
    quality: Estimate
    gain: Estimate


@dataclasses.dataclass(frozen=True, repr=False)
class Mix(Result):
    """The shares in which to ask models. Prints as a few lines.

    The score, the gain and the quality are those of groups of prompts, each with the shares that
    the other groups choose, and intervals at 95% over groups.
    """

    shares: dict[str, float]  # Of each model, by all prompts.
    score: Estimate  # The effective number of answers of the mixture, 1 / w' J w.
    fitted: float  # The score of `shares` on the prompts that chose them: too large.
    best: str  # The most diverse model within the limits, or of all where no model meets them.
    gain: Estimate  # The score over that of `best`, whichever model may be the most diverse.
    quality: Estimate | None  # The mean quality; None where there is none.
    cost: float | None  # The mean price of an answer at `shares`.
    least_quality: float | None
    most_cost: float | None
    frontier: tuple[Floor, ...]  # From the quality of the most diverse mixture to the largest.
    alone: dict[str, tuple[float, float | None]]  # The score and the quality of each model.
    units: str  # What is in groups: 'prompts', 'rows' or 'given labels'.
    left_out: int  # Prompts that not all models answer.

    @property
    def asked(self) -> dict[str, float]:
        """The shares that are not 0%, the largest first."""
        ordered = sorted(self.shares.items(), key=lambda item: -item[1])
        return {name: share for name, share in ordered if share >= 0.005}

    @property
    def is_shown(self) -> bool:
        """Whether the interval of the gain is above 1."""
        return self.gain.ends is not None and self.gain.ends[0] > 1

    def lines(self) -> list[dict[str, Any]]:
        """A line for each model: its share, and its score and quality alone."""
        names, alone = ("model", "share", "score", "quality"), self.alone
        return [dict(zip(names, (m, w, *alone[m]), strict=True)) for m, w in self.shares.items()]

    def parts(self) -> list[str | Table]:
        asked = listed([f"{name} {share:.0%}" for name, share in self.asked.items()])
        none = "" if self.is_shown else ": no gain is shown"
        parts: list[str | Table] = [
            f"Ask {asked}: {self.score} effective answers on {self.units} that were not used, "
            f"{self.gain} times the most diverse model ({self.best}){none}"
        ]
        if self.cost is not None:
            parts.append(f"Mean cost: {self.cost:.3g}, at most {self.most_cost:g}")
        if self.quality is not None:
            parts.append(f"Mean quality: {self.quality}, where at least {self.least_quality:g}")
            rows = [[f"{x.least_quality:.4g}", f"{x.quality}", f"{x.score}"] for x in self.frontier]
            parts.append(Table(["quality at least", "mean quality", "effective answers"], rows))
        if self.left_out:
            parts.append(f"{self.left_out:,} prompts that not all models answer are left out")
        return parts

    def plot(self) -> Figure:
        """The effective number against the mean quality; without a quality, the shares."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        times = f"{self.gain.value:.2g} times as many different answers as {self.best}"
        title = f"{len(self.asked)} models give {times}"
        return plots.of_mix(self, title if self.is_shown else f"No gain over {self.best} is shown")
