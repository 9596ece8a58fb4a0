"""The prompts of the type studies: wordings that name a thing by its kind, or only its category.

The manner is that of the papers (CV figs 16-18; CV-early figs 2, 12, 13); the sentences are this
project's own. Each has a slot that takes "a dog" as well as "a beagle", so that two prompts differ
in nothing but the type.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Wordings:
    """The sentences of a set.

    Attributes:
      category: what stands in the slot where the type is not specified, with its article.
      templates: sentences with one slot `{}` for a thing and its article.
    """

    category: str
    templates: tuple[str, ...]

    def unspecified(self) -> list[str]:
        """The sentences with the category, in their order."""
        return [_sentence(template, self.category) for template in self.templates]

    def specified(self, kinds: Sequence[str]) -> list[str]:
        """The sentences with each kind, kind after kind."""
        return [
            _sentence(template, with_article(kind)) for kind in kinds for template in self.templates
        ]

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


def _sentence(template: str, thing: str) -> str:
    sentence = template.format(thing)
    return sentence[0].upper() + sentence[1:]


_ANIMAL = (
    "{} is rolling in the grass.",
    "{} is drinking from a puddle.",
    "{} is resting in the shade of a tree.",
    "{} is looking straight into the camera.",
    "{} is moving slowly along a dirt track.",
    "{} is lying on a patch of bare ground.",
    "{} is standing still in the rain.",
    "{} is seen from the side in morning light.",
    "{} is half hidden behind a bush.",
    "{} is turning its head towards a sound.",
    "{} is eating something off the ground.",
    "{} is crossing a shallow stream.",
    "{} is waiting next to a wooden fence.",
    "{} is asleep on a warm stone.",
    "{} is close to the edge of a lake.",
    "{} is out in the snow.",
    "{} is walking away from the viewer.",
    "{} is watched by a group of children.",
    "{} is covered in mud.",
    "{} is in front of a grey wall.",
    "{} is sitting beside a heap of leaves.",
    "{} is basking in the afternoon sun.",
    "{} is staring at another one of its kind.",
    "{} is exploring an open field at dusk.",
)
_DOG = (
    "{} is rolling in the grass.",
    "{} is drinking from a bowl on the kitchen floor.",
    "{} is running along the beach.",
    "{} is sleeping on a sofa.",
    "{} is waiting at the front door.",
    "{} is chewing on a stick.",
    "{} is standing in fresh snow.",
    "{} is sitting next to its owner on a bench.",
    "{} is looking out of a car window.",
    "{} is shaking water from its coat.",
    "{} is chasing a ball across the lawn.",
    "{} is lying in front of the fireplace.",
    "{} is being brushed on a table.",
    "{} is walking on a leash through the city.",
    "{} is digging a hole in the garden.",
    "{} is posing for a portrait in a studio.",
    "{} is begging for food at the table.",
    "{} is sniffing at a flower.",
    "{} is climbing up a flight of stairs.",
    "{} is resting under a tree.",
    "{} is playing with a small child.",
    "{} is swimming in a lake.",
    "{} is wearing a red collar at a show.",
    "{} is watching ducks on a pond.",
)
_FRUIT = (
    "{} is lying on a wooden board.",
    "{} is being washed under the tap.",
    "{} is being sliced with a small knife.",
    "{} is in a bowl on the kitchen table.",
    "{} is on a shelf in the supermarket.",
    "{} is falling out of a paper bag.",
    "{} is next to a glass of cold water.",
    "{} is held in an open hand.",
    "{} is weighed on a scale.",
    "{} is hanging from a branch in an orchard.",
    "{} is packed into a lunch box.",
    "{} is rolling across the counter.",
    "{} is in a crate at the farmers' market.",
    "{} is photographed against a white background.",
    "{} is cut in half on a plate.",
    "{} is put into a blender.",
    "{} is covered with drops of water.",
    "{} is on top of a bowl of yoghurt.",
    "{} is being peeled by a cook.",
    "{} is at the bottom of a shopping basket.",
    "{} is beside a slice of cake.",
    "{} is picked up by a customer.",
    "{} is ripening on a window sill.",
    "{} is painted in a still life.",
)
_CLOTHING = (
    "{} is hanging on a hook by the door.",
    "{} is laid out on a bed.",
    "{} is folded on a chair.",
    "{} is drying on a washing line.",
    "{} is on display in a shop window.",
    "{} is lying on the carpet.",
    "{} is photographed against a white wall.",
    "{} is for sale at a flea market.",
    "{} is packed into a suitcase.",
    "{} is soaked by the rain.",
    "{} is spread out on a wooden floor.",
    "{} is on a hanger in the wardrobe.",
    "{} is in a cardboard box.",
    "{} is seen from the front in daylight.",
    "{} is waiting to be ironed.",
    "{} is left behind on a bench.",
    "{} is held up in front of a mirror.",
    "{} is on top of a pile of laundry.",
    "{} is worn by a mannequin.",
    "{} is wrapped as a present.",
    "{} is missing its price tag.",
    "{} is offered in an online shop.",
    "{} is lit by a bedside lamp.",
    "{} is thrown over the back of a sofa.",
)
_OBJECT = (
    "{} is seen in bright sunlight.",
    "{} is in the middle of the picture.",
    "{} is next to a brick wall.",
    "{} is photographed from below.",
    "{} is covered in dust.",
    "{} is lit by a single lamp.",
    "{} is surrounded by people.",
    "{} is shown in an old photograph.",
    "{} is seen through a window.",
    "{} is part of a museum's collection.",
    "{} is partly in the shade.",
    "{} is at the side of the road.",
    "{} is being repaired.",
    "{} is on show at a fair.",
    "{} is painted in a dark colour.",
    "{} is seen from a distance.",
    "{} is almost new.",
    "{} is behind a row of plants.",
    "{} is being cleaned by two workers.",
    "{} is photographed on a winter morning.",
    "{} is drawn in a child's sketchbook.",
    "{} is waiting for a buyer.",
    "{} is in the corner of a large hall.",
    "{} is reflected in a pool of water.",
)
_DRAWING = (
    "{} is drawn with a few quick lines.",
    "{} is sketched in black ink.",
    "{} fills a page of the notebook.",
    "{} is outlined with a felt-tip pen.",
    "{} is doodled on the back of an envelope.",
    "{} is drawn from memory.",
    "{} is scribbled in twenty seconds.",
    "{} is traced on a touch screen.",
    "{} is drawn on a blackboard.",
    "{} is the only thing on the sheet.",
    "{} is drawn without lifting the pen much.",
    "{} is drawn for a guessing game.",
    "{} is drawn on a paper napkin.",
    "{} is shown as a simple line drawing.",
    "{} is left unfinished on the drawing board.",
    "{} is drawn in the margin of a letter.",
    "{} is drawn by somebody in a hurry.",
    "{} is reduced to a handful of strokes.",
    "{} is drawn in the middle of a white page.",
    "{} is drawn with a shaky hand.",
    "{} is copied from a picture book.",
    "{} is drawn while talking on the phone.",
    "{} is drawn on a sticky note.",
    "{} is pencilled lightly at first.",
)
_CATALOGUE = (
    "{} is photographed on a plain background.",
    "{} is shown from the front in an online shop.",
    "{} is on sale this week.",
    "{} is laid out flat for the camera.",
    "{} is listed in the spring catalogue.",
    "{} is one of this season's bestsellers.",
    "{} is shown without a model.",
    "{} is a present for a friend.",
    "{} is waiting in the wardrobe.",
    "{} is packed for the weekend.",
    "{} is returned in its original box.",
    "{} is worn to work every day.",
)

WORDINGS = {
    "dogs": Wordings("a dog", _DOG),
    "fruits": Wordings("a fruit", _FRUIT),
    "clothing": Wordings("a piece of clothing", _CLOTHING),
    "animals": Wordings("an animal", _ANIMAL),
    "objects": Wordings("an object", _OBJECT),
    "fashion": Wordings("a piece of clothing", _CATALOGUE),
    "sketches": Wordings("an animal", _DRAWING),
    "quickdraw": Wordings("a thing", _DRAWING),
}
