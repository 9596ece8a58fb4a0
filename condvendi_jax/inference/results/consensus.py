"""Models under several encoders, and which of them is more diverse under all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from condvendi_jax.base.result import Result, plain
from condvendi_jax.base.tables import LISTED, listed
from condvendi_jax.inference.results.comparison import Comparison
from condvendi_jax.inference.results.profile import PairProfile


@dataclasses.dataclass(frozen=True, repr=False)
class Consensus(Result):
    """Models under several encoders, and what holds under all. Prints as lines.

    Attributes:
      comparisons: the `Comparison` under each encoder, each with a level of its own.
      pairs: every two models by unbiased Conditional-RKE, or RKE without prompts; `signs` and
        `untested` have an entry for each encoder. All signs of all pairs are right at once.
      level: the rate at which any of the signs is wrong.
    """

    comparisons: Mapping[str, Comparison]
    pairs: tuple[PairProfile, ...]
    level: float

    def holds(self, pair: PairProfile) -> bool:
        """Whether one of the two is more diverse under every encoder."""
        return abs(int(pair.signs.sum())) == len(self.comparisons)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each two models and each encoder; the p-value is of all encoders together."""
        return [
            {"first": pair.first, "second": pair.second, "score": pair.score, "encoder": encoder}
            | {"sign": int(pair.signs[k]), "untested": pair.untested[k]}
            | {"adjusted_p_value": float(pair.adjusted), "under_all": self.holds(pair)}
            for pair in self.pairs
            for k, encoder in enumerate(self.comparisons)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return {"level": self.level, "encoders": plain(self.comparisons), "pairs": self.lines()}

    def in_words(self, pair: PairProfile) -> str:
        """'A > B' where it holds, or 'A - C (A > C under MiniLM only)'."""
        told, others, names = {}, {}, (pair.first, pair.second)
        for encoder, state in zip(self.comparisons, pair.states, strict=True):
            if state in (1, -1):
                told.setdefault(" > ".join(names[::state]), []).append(encoder)
            others[f"not tested: {state}" if state else "no significant difference"] = encoder
        if self.holds(pair):
            return next(iter(told))
        parts = [f"{order} under {listed(under)}" for order, under in told.items()]
        parts[:1] = [f"{part} only" if len(told) == 1 else part for part in parts[:1]]
        return f"{' - '.join(names)} ({'; '.join(parts or others)})"

    def parts(self) -> list[str]:
        """The order under each encoder, and what holds under all."""
        score, both = self.pairs[0].score, {"": [], "not ": []}
        for pair in self.pairs:
            both["" if self.holds(pair) else "not "].append(self.in_words(pair))
        orders = [
            f"{encoder}: {(ranking := comparison.ranking(score, 2)).name}: {ranking}"
            for encoder, comparison in self.comparisons.items()
        ]
        words = []
        for start, pairs in both.items():
            count = f"{len(pairs)} of {len(self.pairs)} pairs, " * (len(self.pairs) > LISTED)
            named = count + listed(pairs) if pairs else "none"
            if pairs or not start:
                words.append(f"{start}under all {len(self.comparisons)} encoders: {named}")
        lines = [*orders, "; ".join(words)]
        if any(pair.signs.any() for pair in self.pairs):
            lines.append(f"these statements hold jointly with {1 - self.level:.0%} confidence")
        return lines
