"""Builds a set of captions: of Flickr8k's photographs, or without pictures.

captions.npz, captioning.npz and caption_pairs.npz have Flickr8k's photographs; judged_captions.npz
captions of them that people judged, or of which a word was changed. captioners.npz,
ten_captions.npz, fifty_captions.npz and judged_pairs.npz are of captioners and of many people.
"""

import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import io as matlab

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
JUDGED = {"expert": "ExpertAnnotations.txt", "crowd": "CrowdFlowerAnnotations.txt"}
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
BLIP = ("sabirdvd/BLIP_image_caption_demo", "363ad3929bf37cec11c8bf38423490972979bc3c")
TEN = ("qingzwang/DiversityMetrics", "dddc220e20dab0b60a54e5d631e4aa4fc160d1d4")
PEOPLE = ("hoavt-54/nli-images", "77fdad88252f206448437ad753abef5bef287f27")
PASCAL = ("vrama91/cider-matlab", "febe63b05723c1fdb4cb47d646a9ca90f33e8c59")
# By set and captioner, the file with its captions.
FILES = {
    "captioners": {
        "BLIP beam": "BLIP_ViT-L.json",
        "BLIP nucleus": "BLIP_nucleus_ViT-L.json",
        "BLIP-2": "BLIP_2_2.7b.json",
    },
    "ten_captions": {"a captioner": "results/merge_results.json"},
}
PICTURES = {"captioners": 2000, "ten_captions": 200, "fifty_captions": 120}
REFERENCES = 5  # Captions of a picture that a judged one is compared with: MID table 6.
CATEGORIES = ("HC", "HI", "HM", "MM")
_GRAMS = range(1, 5)


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
    token, *files = (content.decode() for content in texts.read([FILE, *JUDGED.values()]))
    written = read_captions(token)
    for task, content in zip(JUDGED, files, strict=True):
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


def human_captions(files: Sequence[str]) -> dict[int, str]:
    """The first human caption of each picture, of lines `yes<TAB>caption<TAB>file<TAB>_<TAB>id`."""
    found: dict[int, str] = {}
    for fields in (line.split("\t") for content in files for line in content.splitlines()):
        if fields[0] == "yes" and len(fields) == 5:
            found.setdefault(int(fields[4]), fields[1].strip())
    return found


@recipe("captioners", *OF_TEXTS, source=BLIP, captions_source=PEOPLE)
@recipe("ten_captions", *OF_TEXTS, source=TEN, captions_source=PEOPLE)
def build_coco(work: Work, source: Repository, people: Repository) -> NewSet:
    """Captions of COCO's pictures by captioners; the prompt is a person's caption."""
    tables = people.read([f"datasets/IC/ic_{part}.tsv" for part in ("dev", "test")])
    human = human_captions([content.decode(errors="replace") for content in tables])
    files = FILES[work.name]
    said = {
        model: {of["image_id"]: of.get("captions") or [of["caption"]] for of in json.loads(content)}
        for model, content in zip(files, source.read([*files.values()]), strict=True)
    }
    words = f"{' and '.join(files)} on COCO: captions of {{:,}} pictures"
    return _of_pictures(work, words, said, human)


def read_pascal(source: Repository) -> tuple[dict[str, list[str]], list[tuple[Any, ...]]]:
    """The captions of each picture, and judged pairs: category, picture, captions, signed votes."""
    files = source.read([f"data/{name}.mat" for name in ("pascal50S", "pair_pascal")])
    refs, pairs = (matlab.loadmat(io.BytesIO(content), squeeze_me=True) for content in files)
    written = {str(one["image"]): [str(s).strip() for s in one["sent"]] for one in refs["refs"]}
    kinds = (CATEGORIES[number - 1] for number in pairs["category"])
    judged = [
        (kind, str(of["name"]), *(str(of[k]).strip() for k in ("sent1", "sent2")), votes["result"])
        for kind, of, votes in zip(kinds, pairs["new_input"], pairs["result"], strict=True)
    ]
    return written, judged


@recipe("fifty_captions", *OF_TEXTS, source=PASCAL)
def build_fifty(work: Work, source: Repository) -> NewSet:
    """Fifty people's captions of pictures; the prompt is one by somebody else."""
    written, judged = read_pascal(source)
    prompts = {picture: one for kind, picture, one, *_ in judged if kind == "HC"}
    words = "people on Pascal-50S: fifty human captions of each of {} pictures"
    return _of_pictures(work, words, {"people": written}, prompts)


@recipe("judged_pairs", *OF_TEXTS, source=PASCAL)
def build_pairs(work: Work, source: Repository) -> NewSet:
    """Two rows of each judged pair of captions, with scores that need no picture."""
    written, judged = read_pascal(source)
    names, rng = sorted(written), np.random.default_rng(SEED)
    candidates = {text for _, _, *pair, _ in judged for text in pair}
    known = {
        name: rng.permutation([t for t in written[name] if t not in candidates])[:REFERENCES]
        for name in names
    }
    frequency = Counter(g for own in written.values() for g in set().union(*map(grams, own)))
    rows = []
    for kind, picture, *pair, votes in judged:
        for place, text in enumerate(pair):
            people = int(np.sum(np.asarray(votes) == 1 - 2 * place))
            near = cider(text, known[picture].tolist(), frequency, len(names))
            rows.append((people, names.index(picture), len(text.split()), near, kind, text))
    *numbers, kinds, texts = (np.array(column) for column in zip(*rows, strict=True))
    distinct, caption = np.unique(texts, return_inverse=True)
    every = [*distinct, *np.concatenate([*known.values()])]
    embedded = work.embed_texts(every)
    others = embedded[len(distinct) :].reshape(len(names), REFERENCES, -1)
    roles = ("people", "photograph", "metric_length", "metric_cider")
    labels = dict(zip(roles, numbers, strict=True))
    nearest = np.einsum("nd,nrd->nr", embedded[caption], others[labels["photograph"]]).max(axis=1)
    labels |= {"task": kinds, "caption": caption, "metric_reference": nearest}
    return NewSet(
        (rounded(embedded[: len(distinct)], TEXT_STEP), caption),
        (rounded(others[:, 0], TEXT_STEP), labels["photograph"]),
        labels={k: v.astype(np.float32) if v.dtype == float else v for k, v in labels.items()},
        description=f"Pascal-50S: {len(judged):,} judged pairs of captions; {work.texts.name}",
        cut={"steps_that_features_are_rounded_to": TEXT_STEP, "references": REFERENCES},
    )


def grams(text: str) -> Counter[tuple[str, ...]]:
    """How often each sequence of one to four words occurs."""
    words = re.findall(r"\w+", text.lower())
    return Counter(g for n in _GRAMS for g in zip(*(words[k:] for k in range(n)), strict=False))


def cider(text: str, references: Sequence[str], frequency: Counter[Any], count: int) -> float:
    """CIDEr (Vedantam et al. 2015) without stemming; of `count` pictures."""

    def weighted(of: str) -> list[dict[Any, float]]:
        found = {g: k * math.log(count / max(frequency[g], 1)) for g, k in grams(of).items()}
        return [{g: v for g, v in found.items() if len(g) == n} for n in _GRAMS]

    def cosine(a: dict[Any, float], b: dict[Any, float]) -> float:
        norms = math.hypot(*a.values()) * math.hypot(*b.values())
        return sum(v * b.get(g, 0.0) for g, v in a.items()) / norms if norms else 0.0

    one, others = weighted(text), map(weighted, references)
    return float(np.mean([[cosine(a, b) for a, b in zip(one, o, strict=True)] for o in others]))


def _of_pictures(
    work: Work, words: str, said: Mapping[str, dict[Any, list[str]]], human: Mapping[Any, str]
) -> NewSet:
    """The captions of each model, by picture, of pictures drawn from those that all have."""
    shared = np.array(sorted(set(human).intersection(*said.values())))
    order = np.random.default_rng(SEED).permutation(shared)
    drawn = sorted(order[: PICTURES[work.name]].tolist())
    texts = [text for of in said.values() for picture in drawn for text in of[picture]]
    every = [*texts, *(human[picture] for picture in drawn)]
    rows, count = rounded(work.embed_texts(every), TEXT_STEP), len(texts) // len(said)
    prompt = np.tile(np.repeat(np.arange(len(drawn)), count // len(drawn)), len(said))
    drawing = f"{len(drawn)} of {len(shared)} pictures, seed {SEED}"
    return NewSet(
        rows[: len(texts)],
        (rows[len(texts) :], prompt),
        labels={"prompt": prompt, "models": np.repeat([*said], count)},
        description=f"{words.format(len(drawn))}; {work.texts.name}",
        cut={"steps_that_features_are_rounded_to": TEXT_STEP, "drawn": drawing},
    )
