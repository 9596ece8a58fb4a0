"""The looks of a monitor at a run: what `Monitor.look` returns."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Figure, Result
from condvendi_jax.data.bandwidth import RuledBandwidth


class Look(NamedTuple):
    """One look: its number, the step of the training, and what it found.

    The score is the unbiased Conditional-RKE of these prompts, from low to high at 95% over other
    answers to them; `ratio` is the score over the baseline's; `evidence` is that of all looks so
    far that it fell; `alarm` is whether the evidence has reached its limit, now or before.
    """

    look: int
    step: int
    score: float
    low: float
    high: float
    ratio: float
    evidence: float
    alarm: bool


@dataclasses.dataclass(frozen=True, repr=False)
class Looks(Result):
    """The state of a run after its last look. Prints as a few lines."""

    level: float  # The largest probability of a false alarm, over all looks.
    tolerated: float  # The share of the baseline's score down to which there is no alarm.
    prompts: int
    bandwidth: RuledBandwidth  # Of the outputs.
    baseline: tuple[float, float, float]  # Its score, and the ends of its interval.
    bound: float  # The least true score of the baseline, times `tolerated`: evidence is below.
    limit: float  # The evidence at which there is an alarm, 2 / level.
    looks: tuple[Look, ...]

    @property
    def alarm(self) -> Look | None:
        """The look of the alarm; None without one."""
        return next((look for look in self.looks if look.alarm), None)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each look, with the baseline's score and the limit."""
        also = {"baseline": self.baseline[0], "bound": self.bound, "limit": self.limit}
        return [{**look._asdict(), **also} for look in self.looks]

    def plot(self) -> Figure:
        """The score at each step, with the baseline, and the alarm."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.of_looks(self)

    def parts(self) -> list[str]:
        last, first, (baseline, *ends) = self.looks[-1], self.alarm, self.baseline
        said = f"no alarm: no fall is shown, and only scores below {self.bound:.3g} can show one"
        if self.bound == 1:
            said = "no alarm is possible: the baseline's score may be the least one"
        if first is not None:
            below = "the baseline's" if self.tolerated == 1 else f"{self.tolerated:.0%} of it"
            said = f"ALARM at look {first.look:,} (step {first.step:,}): the score fell below "
            said += f"{below}; false alarms in at most {100 * self.level:.3g}% of runs"
        now = f"{last.ratio:.0%} of it" if np.isfinite(last.ratio) else "above it"
        return [
            f"look {last.look:,} (step {last.step:,}): Conditional-RKE of {self.prompts:,} prompts "
            f"{tables.with_interval(last.score, (last.low, last.high))}",
            f"baseline: {tables.with_interval(baseline, ends)}; now {now}",
            f"evidence of a fall: {last.evidence:.3g}, alarm from {self.limit:.3g}",
            said,
            "assumed: answers drawn independently, at the same settings in all looks; "
            "a rise raises no alarm",
            f"intervals: 95%, over other answers to these prompts; outputs: {self.bandwidth}",
        ]
