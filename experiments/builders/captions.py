"""Builds captions.npz, captioning.npz, caption_pairs.npz: Flickr8k's photographs and captions.

Or judged_captions.npz: captions that people judged, or of which a word was changed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.builders.common import EFFICIENTNET, OF_TEXTS, NewSet, Work, recipe, rounded
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER, SEED, SETS

PHOTOGRAPHS = ("RlNZLER/Image-Text-Matching", "56a15d913c3f290e2ee896386ece6076c1eea02e")
CAPTIONS = ("prakhar-dhakar/Image-Captioning", "5ab3142167da9315c4287173ed24a643a0425ab8")
OTHER, KINDS = "other", ("dog", "water", "street")
DRAWN, OF_A_KIND = 2300, 160  # Photographs in captioning, and how many of each kind at least.
PAIRS = 25_000  # Of a photograph and a caption, as in CV figure 2.
PICTURE_STEP, TEXT_STEP = 2.0**-10, 2.0**-9  # Features are rounded to multiples of them.
_FOLDER, FILE = "data/images", "Flickr8k.token.txt"
_EACH = 5
FILES = {"expert": "ExpertAnnotations.txt", "crowd": "CrowdFlowerAnnotations.txt"}
FIRST_CAPTIONS = FOLDER / "captions.npz"
# The task, a photograph's name, a caption, what people say of it, and what it was changed from.
Row = tuple[str, str, str, float, str]
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


def read_captions(content: str) -> dict[str, list[str]]:
    """The captions of each photograph by its name, of lines `name#number<TAB>caption`.

    A photograph is left out unless it has the captions 0 to 4, none of them empty.
    """
    found: dict[str, dict[str, str]] = {}
    for name, index, caption in re.findall(r"^(.+)#(\d+)\t(.*)$", content, re.MULTILINE):
        found.setdefault(name, {})[index] = caption.strip()
    wanted = [str(index) for index in range(_EACH)]
    return {
        name: [own[index] for index in wanted]
        for name, own in found.items()
        if sorted(own) == wanted and all(own.values())
    }


def kind_of(caption: str) -> str:
    """The one kind whose word the caption has, alone or with an s; 'other' for none or several."""
    words = set(re.findall("[a-z]+", caption.lower()))
    named = [kind for kind in KINDS if words & {kind, f"{kind}s"}]
    return named[0] if len(named) == 1 else OTHER


def draw(kinds: np.ndarray) -> np.ndarray:
    """The numbers of the photographs that are taken, ascending, of the kinds `[n]` of all.

    So many of each kind are taken at random, then of all the rest.
    """
    order = np.random.default_rng(SEED).permutation(len(kinds))
    first = [number for kind in sorted(KINDS) for number in order[kinds[order] == kind][:OF_A_KIND]]
    rest = order[~np.isin(order, first)][: DRAWN - len(first)]
    return np.sort([*first, *rest])


def draw_further(chosen: np.ndarray, count: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Captions that make so many pairs of all first captions and all five of the chosen.

    Of the other photographs second captions are taken, in a random order, then third ones. Returns
    the photograph and the number of each caption, ascending.
    """
    order = np.random.default_rng(SEED).permutation(np.setdiff1d(np.arange(count), chosen))
    found = np.array([(p, k) for k in range(1, _EACH) for p in order])
    found = found[: max(0, pairs - count - (_EACH - 1) * len(chosen))].reshape(-1, 2)
    return tuple(found[np.lexsort(found.T[::-1])].T)


@recipe(
    "captions",
    EFFICIENTNET,
    *OF_TEXTS,
    beside=["captioning.npz", "caption_pairs.npz"],
    source=PHOTOGRAPHS,
    captions_source=CAPTIONS,
)
def build(
    work: Work, photographs: Repository, texts: Repository
) -> tuple[NewSet, NewSet, dict[str, Any]]:
    """Photographs with their first captions, with all five, and with further ones."""
    (content,) = texts.read([FILE])
    written = read_captions(content.decode())
    found = {path.rpartition("/")[2]: path for path in photographs.paths(_FOLDER)}
    names = [name for name in found if name in written]
    first = [written[name][0] for name in names]
    rows = work.embed_pictures(photographs, [found[name] for name in names])
    rows = rounded(rows, PICTURE_STEP)
    kinds = np.array([kind_of(caption) for caption in first])
    chosen = draw(kinds)
    photograph = np.repeat(chosen, _EACH)
    of_pair, number = draw_further(chosen, len(names), PAIRS)
    one_each, five_each, further = (
        rounded(work.embed_texts(captions), TEXT_STEP)
        for captions in (
            first,
            [caption for number in chosen for caption in written[names[number]]],
            [written[names[p]][k] for p, k in zip(of_pair, number, strict=True)],
        )
    )
    encoders = f"{work.pictures.name} photographs, {work.texts.name} captions"
    cut = {
        "steps_that_features_are_rounded_to": {"photographs": PICTURE_STEP, "captions": TEXT_STEP}
    }
    captions = NewSet(
        rows,
        one_each,
        labels={
            "prompt": np.unique(first, return_inverse=True)[1],
            "photograph": np.arange(len(names)),
            "pictures": kinds,
        },
        description=f"Flickr8k: {len(names):,} photographs with their first captions; {encoders}",
        cut=cut,
    )
    captioning = NewSet(
        five_each,
        (rows[chosen], np.repeat(np.arange(len(chosen)), _EACH)),
        labels={
            "prompt": photograph,
            "caption": np.tile(np.arange(_EACH), len(chosen)),
            "pictures": kinds[photograph],
        },
        description=f"Flickr8k: five human captions of each of {len(chosen):,} photographs; "
        f"{encoders}",
        cut={**cut, "drawn": f"{len(chosen)} of {len(names)} photographs, seed {SEED}"},
    )
    count = len(names) + (_EACH - 1) * len(chosen) + len(further)
    pairs = {
        "prompts": further.astype(np.float16),
        "photograph": of_pair.astype(np.uint16),
        "description": f"Flickr8k: {count:,} pairs of {len(names):,} photographs and captions; "
        f"{encoders}",
        "licence": SETS["caption_pairs"].licence,
        "provenance": work.provenance(),
    }
    return captions, captioning, pairs


def judgements(task: str, content: str, written: Mapping[str, Sequence[str]]) -> list[Row]:
    """Of a file's lines, three of experts (of no photograph's own caption), or the crowd's yes."""
    found = []
    for line in content.splitlines():
        photograph, caption, *numbers = line.split("\t")
        name, _, index = caption.partition("#")
        text = written[name][int(index)]
        if task == "crowd" or text not in written[photograph]:
            judged = numbers[:1] if task == "crowd" else numbers
            found += [(task, photograph, text, float(number), "") for number in judged]
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
            return [(task, photograph, *of, text) for of in values]
    return []


@recipe("judged_captions", EFFICIENTNET, *OF_TEXTS, source=CAPTIONS)
def build_judged(work: Work, texts: Repository) -> NewSet:
    """All captions that are judged or altered."""
    rng, rows = np.random.default_rng(SEED), []
    token, *files = (content.decode() for content in texts.read([FILE, *FILES.values()]))
    written = read_captions(token)
    for task, content in zip(FILES, files, strict=True):
        rows += judgements(task, content, written)
    judged = sorted({photograph for _, photograph, *_ in rows})
    for task in SWAPS:
        rows += [row for name in judged for row in swaps(task, name, written[name], rng)]
    tasks, photographs, captions, people, originals = zip(*rows, strict=True)

    with np.load(FIRST_CAPTIONS, allow_pickle=False) as stored:
        features = stored["outputs"]
    photograph = np.searchsorted(sorted(written), photographs)
    shown, shown_index = np.unique(photograph, return_inverse=True)
    distinct, caption = np.unique(captions, return_inverse=True)
    every = [*distinct.tolist(), *(text for name in judged for text in written[name])]
    embedded = work.embed_texts(every)
    of_text = dict(zip(every, embedded, strict=True))
    nearest = []
    for name, text, original in zip(photographs, captions, originals, strict=True):
        others = set(written[name]) - {text, original}
        nearest.append(max(of_text[text] @ of_text[other] for other in others))
    return NewSet(
        (rounded(embedded[: len(distinct)], TEXT_STEP), caption),
        (features[shown], shown_index),
        labels={
            "task": tasks,
            "people": people,
            "photograph": photograph,
            "caption": caption,
            "metric_reference": np.array(nearest, np.float32),
        },
        description=f"Flickr8k: judged and changed captions of {len(judged):,} photographs; "
        f"EfficientNet-Lite0 photographs, {work.texts.name} captions",
        cut={"steps_that_features_are_rounded_to": TEXT_STEP},
    )
