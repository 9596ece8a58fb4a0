"""Rebuild a set of photographs of ten kinds of thing, whose prompts name the kind or do not.

    python -m experiments.builders dogs --kinds=beagle,pug --output=mine.npz

The kinds are chosen before any score is known: those with the most photographs, ties by name.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from condvendi_jax.cli.flags import flag
from experiments.builders.common import EFFICIENTNET, MINILM, UNIVERSAL, NewSet, Work, recipe
from experiments.data.repository import Repository
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS

KINDS, PER_KIND = 10, 140

ByKind = Mapping[str, Sequence[str]]


def _by(paths: Iterable[str], kind: Callable[[str], str]) -> ByKind:
    """The photographs among some files, by their kind."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if path.lower().endswith((".jpg", ".jpeg")):
            found.setdefault(kind(path), []).append(path)
    return found


def _dogs(photographs: Repository, names: Repository) -> ByKind:
    """Folders `data/ID-name`, whose names are partly Portuguese: English ones are by the id."""
    english = {path[:9]: path[10:].partition(".")[0] for path in names.paths()}
    return _by(
        photographs.paths("data"), lambda path: english[path.split("/")[1][:9]].replace("_", " ")
    )


def _fruits(photographs: Repository) -> ByKind:
    """`dataset/{train,val,test}/Fruit/KIND/...`, varieties of a kind in folders of their own."""
    paths = photographs.paths(*(f"dataset/{part}/Fruit" for part in ("train", "val", "test")))
    return _by(paths, lambda path: path.split("/")[3].replace("-", " ").lower())


def _clothing(photographs: Repository) -> ByKind:
    """`{train,validation,test}/KIND/...`."""
    return _by(photographs.paths("train", "validation", "test"), lambda path: path.split("/")[1])


def _tiny_imagenet(photographs: Repository, *, first: str, last: str) -> ByKind:
    """`tiny-imagenet-200/train/ID/images/...` of a range of ids, which are ordered by subject."""
    (words,) = photographs.read(["tiny-imagenet-200/words.txt"])
    lines = (line.split("\t") for line in words.decode().splitlines() if line)
    names = {wordnet: synonyms.split(",")[0] for wordnet, synonyms in lines}
    paths = photographs.paths("tiny-imagenet-200/train")
    inside = [path for path in paths if first <= path.split("/")[2] <= last]
    return _by(inside, lambda path: names[path.split("/")[2]])


def choose_kinds(photographs: ByKind, wanted: Sequence[str]) -> list[str]:
    """The kinds that are named, or those with the most photographs; in alphabetical order."""
    if not wanted:
        ranked = sorted(photographs, key=lambda kind: (-len(photographs[kind]), kind.lower()))
        return sorted(ranked[:KINDS], key=str.lower)
    known = {kind.lower(): kind for kind in photographs}
    for name in wanted:
        if name.lower() not in known:
            words = ", ".join(known[kind] for kind in sorted(known))
            raise ValueError(f"--kinds: expected some of {words}, received {name!r}.")
    return sorted({known[name.lower()] for name in wanted}, key=str.lower)


def build(work: Work, *repositories: Repository) -> NewSet:
    """The photographs of some kinds with prompts that name them and that do not."""
    (what, by_kind, _), wordings = SOURCES[work.name], WORDINGS[work.name]
    found = by_kind(*repositories)
    chosen = choose_kinds(found, work.flags.kinds)
    # Wordings are drawn for twice the photographs, as they were for the set that ships.
    drawn = [np.random.default_rng(SEED).permutation(found[k])[: 2 * PER_KIND] for k in chosen]
    number = np.repeat(np.arange(len(chosen)), list(map(len, drawn)))
    kept = np.concatenate([np.arange(len(of)) < PER_KIND for of in drawn])
    wording, number = wordings.pair(len(number), SEED)[kept], number[kept]
    paths = np.concatenate(drawn)[kept].tolist()
    typed = number * len(wordings.templates) + wording
    named, unnamed = wordings.specified(chosen), wordings.unspecified()
    return NewSet(
        work.embed_pictures(repositories[0], paths),
        (work.embed_texts(unnamed), wording),
        labels={"types": np.array(chosen)[number], "wording": wording},
        description=f"{len(paths):,} {what} of {len(chosen)} kinds, {len(wordings.templates)} "
        f"wordings; {work.pictures.name} pictures, {work.texts.name} prompts",
        cut={
            "kinds": f"{len(chosen)} of {len(found)}: "
            + ("named" if work.flags.kinds else "those with the most photographs, ties by name"),
            "drawn": f"at random, seed {SEED}",
            "photographs": {
                kind: {"of": len(found[kind]), "kept": min(len(found[kind]), PER_KIND)}
                for kind in chosen
            },
        },
        further={
            "typed_prompts": (work.embed_texts(named), typed),
            "second_prompts": (work.embed_texts(unnamed, work.second), wording),
            "second_typed_prompts": (work.embed_texts(named, work.second), typed),
        },
    )


_DOGS = ("kassya-rosa/IA_Racas_Caninas", "99df0ad4c010bca95dfaf6b5ed905a5ee47681d8")
_IDS = ("EliSchwartz/imagenet-sample-images", "bc69043e2862758a1906c6a24a792bb28c6bb2ff")
_SHOP = ("marcusklasson/GroceryStoreDataset", "fc80ba90f803d79d0383df52c5a4ac5de99ff6fc")
_CLOTHES = ("alexeygrigorev/clothing-dataset-small", "11961516512414bf9f6c150a832cfd21b54a6b54")
_TINY = ("seshuad/IMagenet", "153dbc161ab7942a12c99515e80ef6454dd06693")
_animals = functools.partial(_tiny_imagenet, first="n01440764", last="n02666195")
_objects = functools.partial(_tiny_imagenet, first="n02666196", last="n04613697")
# By set: a few words for the caption, what finds every kind's photographs, and the repositories: of
# photographs, and one whose file names say in English what a WordNet id means.
SOURCES: dict[str, tuple[str, Callable[..., ByKind], dict[str, tuple[str, str]]]] = {
    "dogs": ("photographs of dogs (Stanford Dogs)", _dogs, {"source": _DOGS, "names_source": _IDS}),
    "fruits": ("photographs of fruit in shops (Grocery Store Dataset)", _fruits, {"source": _SHOP}),
    "clothing": ("photographs of clothes (Clothing Dataset)", _clothing, {"source": _CLOTHES}),
    "animals": ("animals of Tiny-ImageNet", _animals, {"source": _TINY}),
    "objects": ("objects of Tiny-ImageNet", _objects, {"source": _TINY}),
}
_KINDS = flag((), f"The kinds of thing; {KINDS} by the rule if unset.")
_TAKES = {"kinds": (tuple[str, ...], _KINDS)}
for _name, (_, _, _sources) in SOURCES.items():
    recipe(_name, MINILM, EFFICIENTNET, UNIVERSAL, takes=_TAKES, **_sources)(build)
