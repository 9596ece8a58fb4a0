"""Rebuild a set of photographs of ten kinds of thing, whose prompts name the kind or do not.

    python -m experiments.builders.kinds dogs --source=CLONE --names_source=CLONE
    python -m experiments.builders.kinds dogs --kinds=beagle,pug --output=mine.npz

The sets are dogs, fruits, clothing, animals and objects. Needs the extra `embed`, the two weights
packages and the second encoder of texts (README.md).

The kinds are chosen before any score is known: those with the most photographs, ties by name in the
order of the alphabet; `--kinds` names others. Of each kind as many photographs are drawn at random
as `--per_kind` says, at a fixed seed, or all where there are fewer. Every photograph is given one
of the set's wordings at random (`wordings.py`), with the category ("a dog") and with the kind ("a
beagle"), and both sentences are embedded by two encoders.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from absl import flags

from condvendi_jax.bandwidth import median_heuristic
from condvendi_jax.cli import command
from condvendi_jax.encoders import load_efficientnet, load_minilm, load_universal
from condvendi_jax.encoders.efficientnet import PACKAGE as EFFICIENTNET_PACKAGE
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from condvendi_jax.encoders.universal import PACKAGE as UNIVERSAL_PACKAGE
from experiments.builders import common
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER
from experiments.data.wordings import WORDINGS

KINDS, PER_KIND, SEED = 10, 140, 0
_MEASURED = 2  # The cut is held against up to so many times the photographs.
_PICTURE = re.compile(r"\.jpe?g$", re.IGNORECASE)
# WordNet's noun files follow each other in the order of their ids: animals, then artefacts.
_ANIMALS, _ARTEFACTS = ("n01440764", "n02666195"), ("n02666196", "n04613697")

Names = tuple[str, str]
ByKind = Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the photographs of a set are.

    Attributes:
      repository: name and commit.
      licence: of the photographs.
      what: a few words for the caption.
      kinds: from the repository and the one of names, the paths of every kind's photographs.
      names: name and commit of a repository whose file names say what a WordNet id means.
    """

    repository: Names
    licence: str
    what: str
    kinds: Callable[[Repository, Repository | None], ByKind]
    names: Names | None = None


def _photographs(repository: Repository, *under: str) -> list[str]:
    return [path for path in repository.paths(*under) if _PICTURE.search(path)]


def _by(paths: Sequence[str], kind: Callable[[str], str | None]) -> ByKind:
    found: dict[str, list[str]] = {}
    for path in paths:
        name = kind(path)
        if name is not None:
            found.setdefault(name, []).append(path)
    return found


def _dogs(photographs: Repository, names: Repository | None) -> ByKind:
    """Folders `data/ID-name`, whose names are partly Portuguese: English ones are by the id."""
    assert names is not None
    english = {path[:9]: path[10:].partition(".")[0] for path in _photographs(names)}
    return _by(
        _photographs(photographs, "data"),
        lambda path: english[path.split("/")[1][:9]].replace("_", " "),
    )


def _fruits(photographs: Repository, _: Repository | None) -> ByKind:
    """`dataset/{train,val,test}/Fruit/KIND/...`, varieties of a kind in folders of their own."""
    paths = _photographs(photographs, *(f"dataset/{s}/Fruit" for s in ("train", "val", "test")))
    return _by(paths, lambda path: path.split("/")[3].replace("-", " ").lower())


def _clothing(photographs: Repository, _: Repository | None) -> ByKind:
    """`{train,validation,test}/KIND/...`."""
    paths = _photographs(photographs, "train", "validation", "test")
    return _by(paths, lambda path: path.split("/")[1])


def _tiny_imagenet(first: str, last: str) -> Callable[[Repository, Repository | None], ByKind]:
    """`tiny-imagenet-200/train/ID/images/...` of a range of ids, named by `words.txt`."""

    def kinds(photographs: Repository, _: Repository | None) -> ByKind:
        (words,) = photographs.read(["tiny-imagenet-200/words.txt"])
        lines = (line.split("\t") for line in words.decode().splitlines() if line)
        names = {wordnet: synonyms.split(",")[0] for wordnet, synonyms in lines}

        def kind(path: str) -> str | None:
            wordnet = path.split("/")[2]
            return names[wordnet] if first <= wordnet <= last else None

        return _by(_photographs(photographs, "tiny-imagenet-200/train"), kind)

    return kinds


_TINY = ("seshuad/IMagenet", "153dbc161ab7942a12c99515e80ef6454dd06693")
_TINY_LICENCE = "ImageNet's terms: non-commercial research and education only"
SOURCES = {
    "dogs": Source(
        repository=("kassya-rosa/IA_Racas_Caninas", "99df0ad4c010bca95dfaf6b5ed905a5ee47681d8"),
        licence="Stanford Dogs, under ImageNet's terms: non-commercial research and education only",
        what="photographs of dogs (Stanford Dogs)",
        kinds=_dogs,
        names=("EliSchwartz/imagenet-sample-images", "bc69043e2862758a1906c6a24a792bb28c6bb2ff"),
    ),
    "fruits": Source(
        repository=(
            "marcusklasson/GroceryStoreDataset",
            "fc80ba90f803d79d0383df52c5a4ac5de99ff6fc",
        ),
        licence="MIT (Grocery Store Dataset)",
        what="photographs of fruit in shops (Grocery Store Dataset)",
        kinds=_fruits,
    ),
    "clothing": Source(
        repository=(
            "alexeygrigorev/clothing-dataset-small",
            "11961516512414bf9f6c150a832cfd21b54a6b54",
        ),
        licence="CC0-1.0 (Clothing Dataset)",
        what="photographs of clothes (Clothing Dataset)",
        kinds=_clothing,
    ),
    "animals": Source(_TINY, _TINY_LICENCE, "animals of Tiny-ImageNet", _tiny_imagenet(*_ANIMALS)),
    "objects": Source(
        _TINY, _TINY_LICENCE, "objects of Tiny-ImageNet", _tiny_imagenet(*_ARTEFACTS)
    ),
}


def choose_kinds(photographs: ByKind, wanted: Sequence[str]) -> list[str]:
    """The kinds that are named, or those with the most photographs; in the order of the alphabet.

    Raises:
      ValueError: a kind is unknown or named twice, with those that are like it or all.
    """
    if not wanted:
        ranked = sorted(photographs, key=lambda kind: (-len(photographs[kind]), kind.lower()))
        return sorted(ranked[:KINDS], key=str.lower)
    known = {kind.lower(): kind for kind in photographs}
    for name in wanted:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=5)
            near += [kind for kind in known if name.lower() in kind and kind not in near]
            words = ", ".join(known[kind] for kind in near or sorted(known))
            raise ValueError(
                f"--kinds: unknown kind {name!r}; {'like it' if near else 'known'}: {words}."
            )
    chosen = [known[name.lower()] for name in wanted]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"--kinds: a kind is named twice in {', '.join(wanted)}.")
    return sorted(chosen, key=str.lower)


def draw(paths: Sequence[str], count: int) -> list[str]:
    """At most `count` of some paths at random; fewer are the first of those."""
    order: list[int] = np.random.default_rng(SEED).permutation(len(paths)).tolist()
    return [paths[index] for index in order[:count]]


def build(
    name: str,
    photographs: Repository,
    names: Repository | None,
    *,
    kinds: Sequence[str],
    per_kind: int,
    cache: Path,
    output: Path,
) -> None:
    """Embeds the photographs and prompts of a set and writes its file."""
    source, wordings = SOURCES[name], WORDINGS[name]
    found = source.kinds(photographs, names)
    chosen = choose_kinds(found, kinds)
    drawn = {kind: draw(found[kind], _MEASURED * per_kind) for kind in chosen}
    print("; ".join(f"{kind}: {min(len(drawn[kind]), per_kind)}" for kind in chosen))

    pictures, texts, second = load_efficientnet(), load_minilm(), load_universal()
    paths = [path for kind in chosen for path in drawn[kind]]
    features = common.embed_pictures(
        photographs, paths, pictures, cache=cache, name=f"{name}-pictures"
    )
    number = np.repeat(np.arange(len(chosen)), [len(drawn[kind]) for kind in chosen])
    kept = np.concatenate([np.arange(len(drawn[kind])) < per_kind for kind in chosen])
    wording = wordings.pair(len(paths), SEED)
    typed = number * len(wordings.templates) + wording
    tables = {
        role: common.embed_texts(sentences, encoder, cache=cache, name=f"{name}-{role}")
        for role, sentences, encoder in (
            ("prompts", wordings.unspecified(), texts),
            ("typed_prompts", wordings.specified(chosen), texts),
            ("second_prompts", wordings.unspecified(), second),
            ("second_typed_prompts", wordings.specified(chosen), second),
        )
    }
    rows = {role: typed if "typed" in role else wording for role in tables}
    counts = {
        kind: {"of": len(found[kind]), "kept": int(kept[number == index].sum())}
        for index, kind in enumerate(chosen)
    }
    common.write_set(
        output,
        outputs=features[kept],
        prompts=(tables["prompts"], wording[kept]),
        further={r: (tables[r], rows[r][kept]) for r in tables if r != "prompts"},
        labels={"types": np.array(chosen)[number[kept]], "wording": wording[kept]},
        description=f"{int(kept.sum()):,} {source.what} of {len(chosen)} kinds, "
        f"{len(wordings.templates)} wordings; {pictures.name} pictures, {texts.name} prompts",
        licence=source.licence,
        provenance=[
            *(repository.reference for repository in (photographs, names) if repository),
            *common.versions(MINILM_PACKAGE, EFFICIENTNET_PACKAGE, UNIVERSAL_PACKAGE),
        ],
        cut={
            "kinds": f"{len(chosen)} of {len(found)}: "
            + ("named" if kinds else "those with the most photographs, ties by name"),
            "drawn": f"at random, seed {SEED}",
            "photographs": counts,
            "cost": cost(features, tables["prompts"][wording], kept),
        },
    )


def cost(
    features: np.ndarray, prompts: np.ndarray, kept: np.ndarray
) -> dict[str, dict[str, float] | dict[str, dict[str, float]]]:
    """What the cut costs: float16, and the photographs left out, at the medians of the distances.

    Args:
      features: of up to twice the photographs a kind.
      prompts: theirs, with the type unspecified.
      kept: which of them are in the set.
    """
    whole = PairedEmbeddings("whole", features, prompts, "before the cut")
    cut = whole.rows(kept)
    widths = {
        side: float(median_heuristic(points, key=jax.random.key(SEED)))
        for side, points in (("outputs", cut.outputs), ("prompts", cut.prompts))
    }
    halved = dataclasses.replace(cut, outputs=common.unit_rows(cut.outputs.astype(np.float16)))
    return {
        "bandwidths": widths,
        "photographs": common.cost_of(whole, cut, widths),
        "float16": common.cost_of(cut, halved, widths),
    }


def main(argv: list[str]) -> None:
    """Opens the clones, embeds and writes."""
    words = argv[1:]
    if len(words) != 1 or words[0] not in SOURCES:
        raise ValueError(f"expected one of {', '.join(SOURCES)}, received {' '.join(words)!r}.")
    name, values = words[0], flags.FLAGS
    source, cache = SOURCES[name], Path(values.cache_dir)
    output = Path(values.output or FOLDER / f"{name}.npz")
    if values.per_kind < 1:
        raise ValueError(f"--per_kind: expected a positive number, received {values.per_kind}.")
    if source.names is None and values.names_source:
        raise ValueError(f"--names_source means nothing for {name}.")
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(FOLDER / f"{name}.npz", sources=("source", "names_source"))
    photographs = Repository.opened(*source.repository, source=values.source, cache=cache)
    names = source.names and Repository.opened(
        *source.names, source=values.names_source, cache=cache
    )
    build(
        name,
        photographs,
        names or None,
        kinds=values.kinds,
        per_kind=values.per_kind,
        cache=cache,
        output=output,
    )


if __name__ == "__main__":
    common.define_flags(
        None, source="the set's repository of photographs", names_source="the repository of names"
    )
    flags.DEFINE_list("kinds", [], f"The kinds of thing; {KINDS} by the rule if unset.")
    flags.DEFINE_integer("per_kind", PER_KIND, "Photographs of each kind, at most.")
    command.run(main)
