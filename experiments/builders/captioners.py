"""Builds sets of captions without their pictures: of captioners, and of many people."""

import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import io as matlab

from experiments.builders.captions import TEXT_STEP
from experiments.builders.common import OF_TEXTS, NewSet, Work, recipe, rounded
from experiments.data.repository import Repository
from experiments.data.sets import SEED

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
DRAWN = {"captioners": 2000, "ten_captions": 200, "fifty_captions": 120}
REFERENCES = 5  # Captions of a picture that a judged one is compared with: MID table 6.
CATEGORIES = ("HC", "HI", "HM", "MM")
_GRAMS = range(1, 5)


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
    drawn = sorted(order[: DRAWN[work.name]].tolist())
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
