"""How many outputs of each model differ, on one scale, and what can be said of the models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from condvendi_jax.base import tables
from condvendi_jax.results.planning import percent

if TYPE_CHECKING:
    from condvendi_jax.results.ranking import Ranking


class Bar(NamedTuple):
    """How many outputs of a model differ, with the ends of the 95% interval.

    The value is NaN where an end alone is known, high is infinite where n rows cannot tell it.
    Models that share one of the `letters` cannot be told apart; they are '' where none is tested.
    """

    model: str
    value: float
    low: float
    high: float
    letters: str = ""

    def __str__(self) -> str:
        """'3.1 [2.9, 3.6]', '> 13', '< 7.7' or 'cannot be told'."""
        if math.isinf(self.high):
            return f"> {self.low:.3g}" if self.low > 1 else "cannot be told"
        if math.isnan(self.value):
            return f"< {self.high:.3g}" if self.high > 1 else "cannot be told"
        return f"{self.value:.3g}" + f" [{self.low:.3g}, {self.high:.3g}]" * (self.low == self.low)


class Bars(NamedTuple):
    """The numbers of several models, the most diverse first.

    `what` names them ('different answers, of 8'); they are at most `limit`, NaN without one.
    """

    what: str
    limit: float
    models: tuple[Bar, ...]

    def ranked(self, letters: Mapping[str, str]) -> Self:
        """In the order of `letters`, which is that of a ranking, with its letters."""
        bars = {bar.model: bar for bar in self.models}
        marked = (bars[model]._replace(letters=marks) for model, marks in letters.items())
        return self._replace(models=tuple(marked))

    @property
    def end(self) -> float:
        """The end of the axis: the limit, or the largest number that is known."""
        if not math.isnan(self.limit):
            return self.limit
        known = [x for bar in self.models for x in bar[1:4] if math.isfinite(x)]
        return 1.05 * max(known, default=2.0)


def verdict(ranking: Ranking, turning: Sequence[str] = ()) -> str:
    """One of three sentences: which models lead, that none is shown to, or why none is tested.

    `turning` are the pairs of models whose order depends on the bandwidth.
    """
    names, pairs = [*ranking.values], ranking.differences
    told = [d for d in pairs if d.adjusted <= ranking.level]
    if not ranking.tested or not pairs:
        reasons = tables.listed([*dict.fromkeys(map(str, ranking.reasons))]) or "they are saturated"
        return f"These answers cannot tell the models apart: {reasons}."
    if told:
        best = ranking.best
        rest = tables.listed([name for name in names if name not in best])
        some = "the others" if len(names) - len(best) > tables.LISTED else rest
        words = f"{tables.listed(best)} lead{'s' * (len(best) == 1)}"
        words += f": more diverse than {some}" if len(best) == 1 else ", and cannot be told apart"
    else:
        equal = all(d.equal <= ranking.level for d in pairs)
        words = f"All are {ranking.equal}" if equal else "No difference is shown"
        known = [d.detectable for d in pairs if math.isfinite(d.detectable)]
        if known and not equal:
            words += f": this sample would miss differences below {percent(max(known))}"
    turns = f" At other bandwidths the order changes ({tables.listed(turning)})." if turning else ""
    return f"{words}.{turns}"
