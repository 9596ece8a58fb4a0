"""The prompts of the type studies: wordings that name a thing by its kind, or only its category."""

import dataclasses
import pathlib
import re
import tomllib
from collections.abc import Iterable, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Wordings:
    """The sentences of a set."""

    category: str  # What fills the slot where the type is not specified, with its article.
    templates: Sequence[str]  # Sentences with one slot `{}` for a thing and its article.

    def unspecified(self) -> list[str]:
        """The sentences with the category, in their order."""
        return self._with([self.category])

    def specified(self, kinds: Sequence[str]) -> list[str]:
        """The sentences with each kind, kind after kind."""
        return self._with(map(with_article, kinds))

    def _with(self, things: Iterable[str]) -> list[str]:
        filled = (template.format(thing) for thing in things for template in self.templates)
        return [sentence[0].upper() + sentence[1:] for sentence in filled]

    def pair(self, count: int, seed: int) -> np.ndarray:
        """The wording of each of some photographs, `[count]`, drawn at random."""
        return np.random.default_rng(seed).integers(len(self.templates), size=count)


_PHRASES = {
    "antyoga": "an ant or a yoga pose",
    "longsleeve": "a long-sleeved top",
    "outwear": "a piece of outerwear",
    "pool": "a swimming pool",
    "rain": "rain",
    "satsumas": "a satsuma",
    "toothpaste": "a tube of toothpaste",
}
_PAIRS = ("pants", "shoes", "shorts", "sunglasses", "trunks", "binoculars")


def with_article(kind: str) -> str:
    """A kind with its article: 'an Afghan hound', 'a pug', 'a pair of shoes'."""
    if kind in _PHRASES:
        return _PHRASES[kind]
    if kind.endswith(_PAIRS):
        return f"a pair of {kind}"
    # By sound: 'a unicycle' and 'a European', but 'an umbrella'.
    vowel = re.match("[aeio]|u(?!ni|s)|hour", kind, re.IGNORECASE)
    european = re.match("eu", kind, re.IGNORECASE)
    return f"{'an' if vowel and not european else 'a'} {kind}"


_TOML = pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
WORDINGS = {name: Wordings(**entry) for name, entry in tomllib.loads(_TOML).items()}
