"""Builds judged_captions.npz: captions that people judged, or of which a word was changed."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.builders.captions import CAPTIONS, FILE, TEXT_STEP, read_captions
from experiments.builders.common import EFFICIENTNET, OF_TEXTS, NewSet, Work, recipe, rounded
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER, SEED

FILES = {"expert": "ExpertAnnotations.txt", "crowd": "CrowdFlowerAnnotations.txt"}
PHOTOGRAPHS = FOLDER / "captions.npz"
# Words of one group take each other's place: MID appendix C, and for objects classes of COCO.
SWAPS: dict[str, tuple[str, ...]] = {
    "object": (
        "bicycle bike car motorcycle airplane bus train truck boat",
        "bird cat dog horse sheep cow elephant bear zebra giraffe",
        "frisbee skis snowboard ball kite bat skateboard surfboard racket",
        "chair couch bench bed table",
    ),
    "count": ("one two three four",),
    "color": (
        "black blue gray green lime maroon navy olive purple red silver teal white yellow "
        "aqua fuchsia",
    ),
    "spatial": ("above below left right front back",),
}


class Row(NamedTuple):
    """A photograph's name and a caption, what people say of it, and what it was changed from."""

    task: str
    photograph: str
    caption: str
    people: float
    original: str = ""


def judgements(task: str, content: str, written: Mapping[str, Sequence[str]]) -> list[Row]:
    """Of a file's lines, three of experts (of no photograph's own caption), or the crowd's yes."""
    found = []
    for line in content.splitlines():
        photograph, caption, *numbers = line.split("\t")
        name, _, index = caption.partition("#")
        text = written[name][int(index)]
        if task == "crowd" or text not in written[photograph]:
            judged = numbers[:1] if task == "crowd" else numbers
            found += [Row(task, photograph, text, float(number)) for number in judged]
    return found


def swapped(caption: str, task: str, others: str, rng: np.random.Generator) -> str | None:
    """The caption with one word exchanged for another of its group that is not in others."""
    words = " ".join(SWAPS[task]).replace(" ", "|")
    place = re.search(rf"\b({words})\b", caption, re.IGNORECASE)
    if place is None:
        return None
    group = next(group.split() for group in SWAPS[task] if place[0].lower() in group.split())
    new = [word for word in group if word not in re.findall(r"\w+", others.lower())]
    return f"{caption[: place.start()]}{rng.choice(new)}{caption[place.end() :]}" if new else None


def swaps(task: str, photograph: str, own: Sequence[str], rng: np.random.Generator) -> list[Row]:
    """The first caption that can be altered, another one of the photograph, and the altered one."""
    for index, text in enumerate(own):
        altered, other = swapped(text, task, " ".join(own), rng), own[index - 1]
        if altered is not None and other != text:
            values = {text: 2, other: 1, altered: 0}.items()  # In the place of a judgement.
            return [Row(task, photograph, *of, text) for of in values]
    return []


@recipe("judged_captions", EFFICIENTNET, *OF_TEXTS, source=CAPTIONS)
def build(work: Work, texts: Repository) -> NewSet:
    """All captions that are judged or altered."""
    rng, rows = np.random.default_rng(SEED), []
    token, *files = (content.decode() for content in texts.read([FILE, *FILES.values()]))
    written = read_captions(token)
    for task, content in zip(FILES, files, strict=True):
        rows += judgements(task, content, written)
    judged = sorted({row.photograph for row in rows})
    for task in SWAPS:
        rows += [row for name in judged for row in swaps(task, name, written[name], rng)]

    with np.load(PHOTOGRAPHS, allow_pickle=False) as stored:
        features = stored["outputs"]
    photograph = np.searchsorted(sorted(written), [row.photograph for row in rows])
    shown, shown_index = np.unique(photograph, return_inverse=True)
    distinct, caption = np.unique([row.caption for row in rows], return_inverse=True)
    every = [*distinct.tolist(), *(text for name in judged for text in written[name])]
    embedded = work.embed_texts(every)
    of_text = dict(zip(every, embedded, strict=True))
    nearest = []
    for row in rows:
        others = set(written[row.photograph]) - {row.caption, row.original}
        nearest.append(max(of_text[row.caption] @ of_text[other] for other in others))
    return NewSet(
        (rounded(embedded[: len(distinct)], TEXT_STEP), caption),
        (features[shown], shown_index),
        labels={
            "task": [row.task for row in rows],
            "people": [row.people for row in rows],
            "photograph": photograph,
            "caption": caption,
            "metric_reference": np.array(nearest, np.float32),
        },
        description=f"Flickr8k: judged and changed captions of {len(judged):,} photographs; "
        f"EfficientNet-Lite0 photographs, {work.texts.name} captions",
        cut={"steps_that_features_are_rounded_to": TEXT_STEP},
    )
