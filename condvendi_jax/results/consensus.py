"""Models under several encoders or similarities, and which of them lead under all."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result
from condvendi_jax.results.comparison import Comparison
from condvendi_jax.results.evaluation import warning_lines
from condvendi_jax.statistics import multiplicity, reasons


class Agreement(NamedTuple):
    """Whether one of two models leads under all encoders: 'A > B', or who leads under which.

    A sign is 1 where the comparison under an encoder shows that the first leads, -1 the second. The
    p-value is the largest of all, or 1 if encoders put different models ahead; `adjusted` is by
    Holm, over pairs. Both are NaN where an encoder has no test, for the `reason`.
    """

    first: str
    second: str
    signs: dict[str, int]
    reason: reasons.Reason | None
    p_value: float = math.nan
    adjusted: float = math.nan
    holds: bool = False

    def __str__(self) -> str:
        shown = {name: " > ".join(self[:2][::sign]) for name, sign in self.signs.items() if sign}
        if self.holds:
            return next(iter(shown.values()))
        told = [f"{order} under {n}{' only' * (len(shown) == 1)}" for n, order in shown.items()]
        if abs(sum(self.signs.values())) == len(self.signs):  # By Holm, for other pairs.
            told.append("not for all pairs at once")
        told += [f"not tested: {self.reason}"] if self.reason else []
        return f"{self.first} - {self.second} ({'; '.join(told) or 'no significant difference'})"


@dataclasses.dataclass(frozen=True, repr=False)
class Consensus(Result):
    """Models under several encoders or similarities, and which lead under all. Prints as lines.

    One leads under all where every test shows it: an intersection-union test (Berger, 1982), which
    needs no correction for the number of encoders. `orders` are the models under each in words,
    `pairs` every two models, by Conditional-RKE or, without prompts, RKE.
    """

    comparisons: Mapping[str, Comparison]
    orders: dict[str, str]
    pairs: tuple[Agreement, ...]
    level: float  # The largest rate of studies with a false statement under all.

    @classmethod
    def of(cls, comparisons: Mapping[str, Comparison]) -> Self:
        """What holds under all comparisons, which are of the same models and level."""
        # Not every encoder may have a ranking of near prompts.
        main = {n: next(r for r in c.main if r.score != "near") for n, c in comparisons.items()}
        (first, *_), pairs, p_values = main.values(), list[Agreement](), list[float]()
        for two in itertools.combinations(first.values, 2):
            tests = {name: ranking.difference(*two) for name, ranking in main.items()}
            # A NaN, of a score without a number, has the sign of the difference, too.
            ways = {name: int(math.copysign(1, d.value)) for name, d in tests.items()}
            signs = {n: ways[n] * (d.adjusted <= first.level) for n, d in tests.items()}
            pairs.append(Agreement(*two, signs, reasons.first([d.reason for d in tests.values()])))
            known = [d.p_value for d in tests.values() if d.reason is None]
            sure = len(known) == len(main) and len({*ways.values()}) == 1
            # A pair that one encoder tests counts among the pairs, as it does there.
            p_values.append(max(known) if sure else 1.0 if known else math.nan)
        for k, (p, adjusted) in enumerate(zip(p_values, multiplicity.holm(p_values), strict=True)):
            if pairs[k].reason is None:
                tested = {"p_value": p, "adjusted": adjusted, "holds": adjusted <= first.level}
                pairs[k] = pairs[k]._replace(**tested)
        orders = {name: f"{ranking.name}: {ranking}" for name, ranking in main.items()}
        return cls(comparisons, orders, tuple(pairs), first.level)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each two models and each encoder, with the sign under it."""
        every = [(pair, *item) for pair in self.pairs for item in pair.signs.items()]
        return [{"under": name, **p._asdict(), "signs": sign} for p, name, sign in every]

    def parts(self) -> list[str]:
        every = (line for c in self.comparisons.values() for line in warning_lines(c.advice))
        told, rest = ([str(p) for p in self.pairs if p.holds == holds] for holds in (True, False))
        words = f"Under all {len(self.comparisons)}: {tables.listed(told or ['none'])}"
        words += f"; not under all: {tables.listed(rest)}" if rest else ""
        level = f"Statements under all are false in at most {100 * self.level:.3g}% of studies"
        orders = (f"{name}: {order}" for name, order in self.orders.items())
        return [*dict.fromkeys(every), *orders, words, level]
