"""Rebuild emoji.npz: nine designers' drawings of the same named emoji, embedded.

Needs `npm`. With --pictures=DIR nothing is embedded, and the drawings are written there in the
order of the rows.
"""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base.files import atomic_writer
from condvendi_jax.cli.flags import flag
from condvendi_jax.encoders.efficientnet import SIDE
from experiments.builders.common import EFFICIENTNET, MINILM, Work, recipe

NAMES_PACKAGE = "openmoji@17.0.0"
DESIGNERS = {
    "Noto": "@iconify-json/noto@1.2.9",
    "Noto v1": "@iconify-json/noto-v1@1.2.5",
    "Twemoji": "@iconify-json/twemoji@1.2.5",
    "OpenMoji": "@iconify-json/openmoji@1.2.29",
    "Emoji One 2": "@iconify-json/emojione@1.2.3",
    "Emoji One 1": "@iconify-json/emojione-v1@1.2.3",
    "Fluent": "@iconify-json/fluent-emoji@1.2.7",
    "Fluent flat": "@iconify-json/fluent-emoji-flat@1.2.6",
    "Firefox OS": "@iconify-json/fxemoji@1.2.2",
}
# Drawings whose name means another emoji than the CLDR's: this is the face with sunglasses.
FALSE_FRIENDS = {("Firefox OS", "sunglasses")}
LEFT_OUT_GROUPS = {"component", "extras-openmoji", "extras-unicode"}
LEFT_OUT_SUBGROUPS = {"country-flag", "subdivision-flag"}
_SMALL = 64  # Pixels of a drawing for figures.


class Concept(NamedTuple):
    """One emoji: its code points, CLDR name and place in the CLDR order."""

    code: str
    text: str
    group: str
    subgroup: str


class IconSet(NamedTuple):
    """One designer's drawings, as the package stores them."""

    designer: str
    info: dict[str, Any]
    icons: dict[str, Any]
    characters: dict[str, str]

    def drawing(self, name: str) -> str | None:
        """The icon that a name or alias stands for.

        None if it is mirrored or turned, withdrawn by the designer, or known to be misnamed.
        """
        if (self.designer, name) in FALSE_FRIENDS:
            return None
        while name in self.icons.get("aliases", {}):
            alias = self.icons["aliases"][name]
            if set(alias) != {"parent"}:
                return None
            name = alias["parent"]
        return None if self.icons["icons"][name].get("hidden") else name

    def svg(self, name: str) -> str:
        """The drawing as an SVG of `SIDE` pixels; a drawing that is not square is centred."""
        icon = self.icons["icons"][name]
        square = {"left": 0, "top": 0, "width": 16, "height": 16}
        view = "{left} {top} {width} {height}".format_map(square | self.icons | icon)
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{SIDE}" height="{SIDE}" viewBox="{view}">{icon["body"]}</svg>'
        )


def read(package: str, member: str, cache: Path) -> Any:
    """A JSON file of an npm package `name@version`, downloaded unless the folder has it."""
    name, version = package.rsplit("@", 1)
    archive = cache / f"{name.lstrip('@').replace('/', '-')}-{version}.tgz"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(cache), package]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as opened:
        content = opened.extractfile(f"package/{member}")
        assert content
        return json.load(content)


def load_icon_set(designer: str, cache: Path) -> IconSet:
    """Reads one designer's package."""
    parts = ("info", "icons", "chars")
    return IconSet(designer, *(read(DESIGNERS[designer], f"{p}.json", cache) for p in parts))


def code_points(code: str) -> str:
    """Hexadecimal code points without the variation selector, which sets use inconsistently."""
    return "-".join(part for part in code.lower().split("-") if part != "fe0f")


def load_concepts(cache: Path) -> list[Concept]:
    """The emoji that stand for a thing of their own, in the CLDR order.

    Skin-tone variants repeat a concept and are left out; so are the flags of countries and
    regions (a flag leaves its designer no choice), characters outside the emoji standard and bare
    modifiers.
    """
    kept = (
        entry
        for entry in read(NAMES_PACKAGE, "data/openmoji.json", cache)
        if not entry["skintone"]
        and entry["group"] not in LEFT_OUT_GROUPS
        and entry["subgroups"] not in LEFT_OUT_SUBGROUPS
    )
    return [
        Concept(code_points(e["hexcode"]), e["annotation"], e["group"], e["subgroups"])
        for e in sorted(kept, key=lambda e: e["order"])  # Some of the others have none.
    ]


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def name_index(concepts: list[Concept], icon_sets: list[IconSet]) -> dict[str, str]:
    """Letters and digits of a name -> code of the only concept so called.

    Names come from the CLDR and from the sets that give code points; ambiguous ones are dropped.
    """
    found: dict[str, set[str]] = {}
    for concept in concepts:
        found.setdefault(_letters(concept.text), set()).add(concept.code)
    known = set().union(*found.values())
    for code, name in (pair for of in icon_sets for pair in of.characters.items()):
        found.setdefault(_letters(name), set()).update({code_points(code)} & known)
    return {name: next(iter(group)) for name, group in found.items() if len(group) == 1}


def match(icon_set: IconSet, concepts: list[Concept], names: Mapping[str, str]) -> dict[str, str]:
    """Code of a concept -> the designer's drawing of it.

    By code point where the set gives them, else by name: the drawings' own names before their
    aliases. A drawing serves one concept only, so that a loose alias ("cricket" for the game)
    cannot put one picture under two prompts.
    """
    if icon_set.characters:
        candidates = [(code_points(c), name) for c, name in icon_set.characters.items()]
    else:
        every_name = [*icon_set.icons["icons"], *icon_set.icons.get("aliases", {})]
        candidates = [(names.get(_letters(name), ""), name) for name in every_name]
    left, matched = {concept.code for concept in concepts}, {}
    for code, name in candidates:
        drawing = icon_set.drawing(name)
        if code in left and drawing and drawing not in matched:
            matched[drawing] = code
            left.remove(code)
    return {code: drawing for drawing, code in matched.items()}


def render(svg: str) -> np.ndarray:
    """Draw an SVG over white: uint8 `[224, 224, 3]`; ValueError if nothing was drawn."""
    import resvg_py
    from PIL import Image

    png = resvg_py.svg_to_bytes(svg_string=svg, background="white", skip_system_fonts=True)
    picture = np.asarray(Image.open(io.BytesIO(bytes(png))).convert("RGB"))
    if picture.min() == 255:
        raise ValueError("the drawing is blank")
    return picture


def write_pictures(drawings: Sequence[str], folder: Path) -> None:
    """Writes the drawings as small `ROW.png`, row by row of emoji.npz."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for row, drawing in enumerate(drawings):
        small = Image.fromarray(render(drawing)).resize((_SMALL, _SMALL), Image.Resampling.LANCZOS)
        with atomic_writer(folder / f"{row}.png") as file:
            small.save(file, "png")
    print(f"{folder}: {len(drawings):,} pictures")


_PICTURES = flag(None, "Folder for the drawings; nothing is embedded then.")
_PACKAGES = MINILM, EFFICIENTNET, "resvg_py", "tokenizers"


@recipe("emoji", *_PACKAGES, takes={"pictures": (str | None, _PICTURES)})
def build(work: Work) -> dict[str, Any] | tuple[()]:
    """The drawings and names, or with --pictures only the drawings, in a folder without any."""
    folder = work.flags.pictures and Path(work.flags.pictures)
    if folder and any(folder.glob("*.png")) and not work.flags.overwrite:
        raise ValueError(
            f"--pictures: {folder} holds pictures already; choose another folder, or add "
            "--overwrite to replace those of the same names."
        )
    icon_sets = [load_icon_set(designer, work.cache) for designer in DESIGNERS]
    concepts = load_concepts(work.cache)
    index = name_index(concepts, icon_sets)
    matches = [match(icon_set, concepts, index) for icon_set in icon_sets]
    pairs = [
        (number, designer, icon_sets[designer].svg(matched[concept.code]))
        for number, concept in enumerate(concepts)
        for designer, matched in enumerate(matches)
        if concept.code in matched
    ]
    of_pairs, designers, drawings = zip(*pairs, strict=True)
    if folder:
        write_pictures(drawings, folder)
        return ()
    drawn, prompt = np.unique(of_pairs, return_inverse=True)
    codes, names, groups, subgroups = zip(*(concepts[number] for number in drawn), strict=True)
    provenance = work.provenance(*DESIGNERS.values(), NAMES_PACKAGE)
    digests = [hashlib.sha256(drawing.encode()).hexdigest() for drawing in drawings]
    arrays = {"drawings": np.array(digests)}
    features = work.embed(map(render, drawings), work.pictures, arrays=arrays, packages=provenance)
    return {
        "outputs": features.astype(np.float16),
        "prompt_embeddings": work.embed_texts(names).astype(np.float16),
        "prompt_index": prompt.astype(np.int16),
        "designer_index": np.array(designers, np.int8),
        "prompt_texts": names,
        "concept_codes": codes,
        "groups": groups,
        "subgroups": subgroups,
        "designers": [*DESIGNERS],
        "packages": [*DESIGNERS.values()],
        "licences": [icon_set.info["license"]["spdx"] for icon_set in icon_sets],
        "sources": [icon_set.info["author"]["url"] for icon_set in icon_sets],
        "provenance": provenance,
        "description": f"emoji drawn by {len(icon_sets)} designers, {len(pairs):,} pairs of "
        f"{len(names):,} names; {work.pictures.name} pictures, {work.texts.name} prompts",
    }
