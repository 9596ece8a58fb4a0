"""The shares in which models together give the most different answers."""

import dataclasses
from typing import Any

from condvendi_jax.base.result import Figure, Result
from condvendi_jax.base.tables import Table, listed
from condvendi_jax.results.estimate import Estimate


@dataclasses.dataclass(frozen=True, repr=False)
class Mix(Result):
    """The shares in which to ask models. Prints as a few lines.

    The score, the gain and the quality are those of groups of prompts, each with the shares that
    the other groups choose, and intervals at 95% over groups.
    """

    shares: dict[str, float]  # Of each model, by all prompts.
    fitted: float  # The score of `shares` on the prompts that chose them: too large.
    best: str  # The most diverse model within the limits, or of all where no model meets them.
    score: Estimate  # The effective number of answers of the mixture, 1 / w' J w.
    gain: Estimate  # The score over that of `best`.
    quality: Estimate | None
    cost: float | None  # The mean price of an answer at `shares`.
    least_quality: float | None
    most_cost: float | None
    left_out: int  # Prompts that not all models answer.
    alone: dict[str, tuple[float, float | None]]  # The score and the quality of each model.
    frontier: tuple["Mix", ...] = ()  # From the quality of the most diverse shares to the largest.

    @property
    def asked(self) -> dict[str, float]:
        """The shares that are not 0%, the largest first."""
        ordered = sorted(self.shares.items(), key=lambda item: -item[1])
        return {name: share for name, share in ordered if share >= 0.005}

    @property
    def verdict(self) -> str:
        """The gain in words, which is shown if its interval is above 1."""
        shown = self.gain.ends is not None and self.gain.ends[0] > 1
        limits = " within the limits" * (self.least_quality is not None or self.cost is not None)
        words = f"{self.gain} times the most diverse model{limits} ({self.best})"
        return words if shown else f"{words}: no gain over it alone is shown"

    def lines(self) -> list[dict[str, Any]]:
        """A line for each model: its share, and its score and quality alone."""
        names, alone = ("model", "share", "score", "quality"), self.alone
        return [dict(zip(names, (m, w, *alone[m]), strict=True)) for m, w in self.shares.items()]

    def parts(self) -> list[str | Table]:
        asked = listed([f"{name} {share:.0%}" for name, share in self.asked.items()])
        score = f"{self.score} effective answers on data that were not used"
        parts: list[str | Table] = [f"Ask {asked}: {score}, {self.verdict}"]
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

        return plots.of_mix(self)
