"""Scores of models over a ladder of bandwidths, and where one model leads."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Figure, Result, plain
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.entropies import PerScore
from condvendi_jax.results.evaluation import ErrorsBy, plain_order, score_name
from condvendi_jax.statistics.reasons import Reason

Over = Literal["outputs", "prompts", "both"]
# Bands from fewer groups, of unequal size and skewed, covered in 91% of draws (docs/bandwidths.md).
_FEW = 100


class PairProfile(NamedTuple):
    """The bandwidths of a ladder at which one model is more diverse than another.

    Attributes:
      first, second: the models.
      score: vendi, conditional or information.
      signs: `[m]`, 1 where the first model has the larger score, -1 where the second has, 0 where
        none is significant; those of all pairs of a score hold at once, at about the level.
      reasons: `[m]`, why the two are not tested; None where they are.
      p_value: of no difference at any bandwidth of the ladder; NaN where nothing is tested.
      adjusted: the same for all pairs at once.
    """

    first: str
    second: str
    score: str
    signs: np.ndarray
    reasons: Sequence[Reason | None]
    p_value: float
    adjusted: float

    @property
    def depends(self) -> bool:
        """Whether each of the two is more diverse somewhere."""
        return bool((self.signs > 0).any() and (self.signs < 0).any())

    @property
    def states(self) -> list[int | str]:
        """At each bandwidth why the two are not tested, or the sign: 0 if it is not significant."""
        return [why or sign for why, sign in zip(self.reasons, self.signs.tolist(), strict=True)]

    def in_words(self, widths: Sequence[float]) -> str:
        """The state everywhere: 'A is more diverse than B at 0.4; not tested at 0.8 (why)'."""
        states, one, two = self.states, self.first, self.second
        places: dict[int | str, str] = {}
        for state, run in itertools.groupby(zip(states, widths, strict=True), lambda at: at[0]):
            ends = [f"{width:.3g}" for _, width in run]
            words = f"bandwidths from {ends[0]} to {ends[-1]}" if len(ends) > 1 else ends[0]
            places[state] = f"{places[state]} and at {words}" if state in places else f"at {words}"
        signs = ((one, two, 1), (two, one, -1))
        orders = [f"{a} is more diverse than {b} {places[x]}" for a, b, x in signs if x in places]
        parts = [", and ".join(orders)] if orders else []
        if 0 in places:
            parts.append(f"no significant difference {places[0]}")
        parts += [f"not tested {at}: {why}" for why, at in places.items() if isinstance(why, str)]
        start = f"the order of {one} and {two} depends on the bandwidth: " if self.depends else ""
        return (start if orders else f"{one} and {two}: ") + "; ".join(parts)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Profile(Result):
    """Scores of models over a ladder of bandwidths. Prints as text; `plot` draws it.

    Attributes:
      models, n: their names, and the number of rows of each.
      order: the Renyi order.
      over: whose bandwidth the ladder multiplies: 'outputs', 'prompts' or 'both'.
      multiples: of the bandwidths in `chosen`, `[m]`, ascending.
      chosen: the bandwidth of outputs and of prompts at the multiple 1, with their rule.
      values: the scores, `[models, m]` each.
      bands: the ends of their simultaneous bands, `[models, m, 2]` each; NaN if not known.
      saturated: where a score counts rows, or all outputs count as the same, `[models, m]` each.
      pairs: every two models by every score.
      level: one less the coverage of a band, and the rate at which any of the signs is wrong.
      units, groups: what the rows are that count as independent, and the smallest number of them.
      seed: of all that is drawn.
      reason: why nothing is tested; None where something is.
      sampled: how many prompts vendi and information compare, drawn at random; 0 where all.
      answers: how many each prompt has, where these are equal or different and have equally many;
        else 1.
    """

    models: tuple[str, ...]
    n: tuple[int, ...]
    order: float
    over: Over
    multiples: np.ndarray
    chosen: Mapping[str, RuledBandwidth]
    values: PerScore
    bands: PerScore
    saturated: PerScore
    pairs: tuple[PairProfile, ...]
    level: float
    units: str
    groups: int
    seed: int
    reason: Reason | None = None
    sampled: int = 0
    answers: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores: one without prompts, three with them."""
        return PerScore._fields if "prompts" in self.chosen else ("vendi",)

    @property
    def main(self) -> str:
        """The score of which the text tells: conditional, or vendi where there are no prompts."""
        return "conditional" if "conditional" in self.names else "vendi"

    @property
    def axis(self) -> str:
        """Whose bandwidths `bandwidths` are: those of the outputs, unless only prompts move."""
        return "prompts" if self.over == "prompts" else "outputs"

    @property
    def bandwidths(self) -> np.ndarray:
        """The bandwidths of `axis` in the units of the embeddings, `[m]`."""
        width = self.chosen[self.axis].bandwidth
        assert width is not None  # `profile` refuses kernels that have none.
        return width * self.multiples

    def pair(self, first: str, second: str, score: str = "conditional") -> PairProfile:
        """Two models, in that order; KeyError where they were not compared by this score."""
        pairs = {pair[:3]: pair for pair in self.pairs}
        if (first, second, score) in pairs:
            return pairs[first, second, score]
        if turned := pairs.get((second, first, score)):
            return turned._replace(first=first, second=second, signs=-turned.signs)
        raise KeyError(f"{first!r} and {second!r} were not compared by {score!r}.")

    def as_dict(self) -> dict[str, Any]:

        def curve(values: Any, bands: Any, saturated: Any) -> dict[str, Any]:
            known = [None if math.isnan(ends[0]) else ends for ends in bands]
            return {"values": values, "bands": known, "saturated": saturated}

        names = ("order", "over", "seed", "level", "units", "groups", "reason", "multiples")
        names += ("sampled",) if self.sampled else ()
        shown = {name: getattr(self, name) for name in names} | {"bandwidths": self.chosen}
        along = ((name, map(curve, *self.curves(name))) for name in self.names)
        curves = {name: dict(zip(self.models, rows, strict=True)) for name, rows in along}
        counts = dict(zip(self.models, self.n, strict=True))
        return plain({**shown, "n": counts, "curves": curves, "pairs": self.pairs})

    def lines(self) -> list[dict[str, Any]]:
        """A line for each score, model and bandwidth."""
        columns = ("multiple", "bandwidth", "value", "low", "high", "saturated")
        lines = []
        for name in self.names:
            for model, *curve in zip(self.models, *self.curves(name), strict=True):
                start = {"score": name, "order": plain_order(self.order), "model": model}
                places = map(np.ndarray.tolist, (self.multiples, self.bandwidths, *curve))
                for multiple, width, value, band, saturated in zip(*places, strict=True):
                    cells = multiple, width, value, *band, saturated
                    lines.append(start | dict(zip(columns, cells, strict=True)))
        return lines

    def plot(self, score: str | None = None) -> Figure:
        """A score with its bands, `main` where None; grey where all models are at a limit.

        Where prompts have several answers, it is how many of these differ.
        """
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.over_bandwidths(self, score)

    def curves(self, score: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A score of all models `[models, m]`, its bands `[models, m, 2]`, and its limits."""
        values, bands = getattr(self.values, score), getattr(self.bands, score)
        return values, bands, getattr(self.saturated, score)

    @property
    def title(self) -> str:
        """The main score, and whose bandwidths move."""
        whose = "outputs and prompts" if self.over == "both" and len(self.names) > 1 else self.axis
        return f"{score_name(self.main, self.order, None)} over the bandwidths of {whose}"

    def heading(self) -> str:
        """The main score and the ends of the ladder, to stand before `leads`."""
        widths, axis = self.bandwidths, self.axis
        whose = "" if self.title.endswith(axis) else f"{axis} "
        return f"{self.title}, {whose}from {widths[0]:.3g} to {widths[-1]:.3g}:"

    def joint_confidence(self) -> str:
        """How sure all stated differences are together."""
        return f"all stated differences hold jointly with about {1 - self.level:.0%} confidence"

    def leads(self) -> list[str]:
        """Sentences that say at which bandwidths one model is more diverse than another."""
        if self.reason is not None:
            return [f"nothing is tested over the bandwidths: {self.reason}"]
        pairs, turning = [pair for pair in self.pairs if pair.score == self.main], self.turning
        if len(pairs) <= tables.LISTED:
            return [pair.in_words(self.bandwidths.tolist()) for pair in pairs]
        named = f" ({tables.listed(turning)})" if turning else ""
        whose = f"the order of {len(turning)} of {len(pairs)} pairs of models"
        return [f"{whose} depends on the bandwidth{named}"]

    @property
    def turning(self) -> list[str]:
        """The pairs of models of which each is more diverse somewhere."""
        depending = (pair for pair in self.pairs if pair.score == self.main and pair.depends)
        return [f"{pair.first} - {pair.second}" for pair in depending]

    def verdict(self) -> str:
        """Whether the order of models depends on the bandwidth."""
        if not self.pairs or self.reason is not None:
            return self.title
        if turning := self.turning:
            return f"The order depends on the bandwidth: {tables.listed(turning)}"
        states = {x for pair in self.pairs if pair.score == self.main for x in pair.states}
        if states.isdisjoint((-1, 1)):
            tested = "significant difference at any tested"
            return f"No {tested if 0 in states else 'difference was tested at any'} bandwidth"
        return "No bandwidth reverses the order of two models"

    def table(self) -> tables.Table:
        """A row for each bandwidth: the main score of every model with its band."""
        values, bands, saturated = self.curves(self.main)

        def cell(value: float, n: int, band: Sequence[float], at_limit: bool) -> str:
            if at_limit or math.isnan(band[0]):
                return tables.up_to(value, n) + (" *" if at_limit else "")
            return tables.with_interval(value, band)

        rows = [
            [f"{multiple:.3g}", f"{width:.4g}"]
            + [cell(values[m, k], n, bands[m, k], saturated[m, k]) for m, n in enumerate(self.n)]
            for k, (multiple, width) in enumerate(zip(self.multiples, self.bandwidths, strict=True))
        ]
        names = [model or "score" for model in self.models]
        return tables.Table(["times", f"bandwidth of {self.axis}", *names], rows)

    def parts(self) -> list[str | tables.Table]:
        """The scores along the ladder, and where one model is more diverse than another."""
        bands = f"[low, high]: {1 - self.level:.0%} bands, each for all bandwidths at once"
        few = "; these are few, so bands may hold in 90% only" if self.groups < _FEW else ""
        notes = [f"{bands}, {ErrorsBy('influences', self.groups, self.units)}{few}"]
        if getattr(self.saturated, self.main).any():
            rows, outputs = "nearly all rows count as different", "nearly all outputs as the same"
            notes.append(f"*: saturated: {rows}, or {outputs}")
        if self.sampled:
            scores = " and ".join(score_name(n, self.order, None) for n in ("vendi", "information"))
            notes.append(f"{scores} are those of {self.sampled:,} prompts, drawn at random")
        told = [*self.leads(), ""] if self.pairs else []
        first = [f"{self.verdict()}.", ""] if self.pairs and self.reason is None else []
        return [*first, self.title, self.table(), "", *told, *notes]
