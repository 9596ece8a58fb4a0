"""Builds captions.npz and captioning.npz: photographs and what five people each wrote of them.

Reads the photographs and the captions of Flickr8k (Hodosh et al. 2013) from two public
repositories, embeds both and writes the embeddings alone. In `captions` a photograph is the output
and its first caption the prompt; in `captioning` the captions are the outputs and the photograph is
the prompt.

    python -m experiments.builders.captions --cache_dir=captions-cache
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Sequence

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.encoders import load_efficientnet, load_minilm
from condvendi_jax.encoders.efficientnet import PACKAGE as EFFICIENTNET_PACKAGE
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from experiments.builders import common
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER

PHOTOGRAPHS = ("RlNZLER/Image-Text-Matching", "56a15d913c3f290e2ee896386ece6076c1eea02e")
CAPTIONS = ("prakhar-dhakar/Image-Captioning", "5ab3142167da9315c4287173ed24a643a0425ab8")
LICENCE = "Flickr8k: for non-commercial research only; the photographs are their photographers'"
OTHER = "other"
_FOLDER, _FILE = "data/images", "Flickr8k.token.txt"
_EACH = 5
_DIRECTIONS = 512  # Of the cut that rounding is held against.


def read_captions(content: str) -> dict[str, list[str]]:
    """The captions of each photograph by its name, of lines `name#number<TAB>caption`.

    A photograph is left out unless it has the captions 0 to 4, once each and none of them empty.

    Raises:
      ValueError: a line is not of this form.
    """
    found: dict[str, dict[int, str]] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        matched = re.fullmatch(r"(.+)#(\d+)\t(.*)", line)
        if not matched:
            raise ValueError(f"line {number}: expected name#number, a tab and a caption.")
        name, index, caption = matched.groups()
        own = found.setdefault(name, {})
        if int(index) in own:
            raise ValueError(f"line {number}: {name} has a caption {index} already.")
        own[int(index)] = caption.strip()
    wanted = set(range(_EACH))
    return {
        name: [own[index] for index in range(_EACH)]
        for name, own in found.items()
        if set(own) == wanted and all(own.values())
    }


def kind_of(caption: str, kinds: Sequence[str]) -> str:
    """The one kind whose word the caption has, alone or with an s; 'other' for none or several."""
    words = set(re.findall("[a-z]+", caption.lower()))
    named = [kind for kind in kinds if words & {kind, f"{kind}s"}]
    return named[0] if len(named) == 1 else OTHER


def draw(kinds: np.ndarray, *, count: int, per_kind: int, seed: int) -> np.ndarray:
    """Which photographs are taken: so many of each kind at random, then of all the rest.

    Args:
      kinds: `[n]`, of all photographs.
      count: how many are taken.
      per_kind: how many of each kind but 'other', or all that there are.
      seed: of the order in which they are taken.

    Returns:
      Their numbers, ascending.

    Raises:
      ValueError: there are fewer, or the kinds alone are more.
    """
    order = np.random.default_rng(seed).permutation(len(kinds))
    named = sorted(set(kinds.tolist()) - {OTHER})
    first = [number for kind in named for number in order[kinds[order] == kind][:per_kind]]
    if not len(first) <= count <= len(kinds):
        raise ValueError(
            f"--photographs: expected {len(first)} (the kinds) to {len(kinds)} (all), "
            f"received {count}."
        )
    rest = order[~np.isin(order, first)][: count - len(first)]
    return np.sort(np.concatenate([np.array(first, int), rest]))


def cost(
    whole: tuple[np.ndarray, np.ndarray], **cuts: tuple[np.ndarray, np.ndarray]
) -> dict[str, object]:
    """The rule's bandwidths on whole outputs and prompts, and what cuts change at order 2."""
    before, *after = (
        PairedEmbeddings("", common.unit_rows(outputs), common.unit_rows(prompts), "")
        for outputs, prompts in (whole, *cuts.values())
    )
    widths, rule = common.bandwidths_by_rule(before)
    costs = {
        name: common.cost_of(before, cut, widths) for name, cut in zip(cuts, after, strict=True)
    }
    return {"bandwidths": widths, "rule": rule, **costs}


def main(argv: list[str]) -> None:
    """Read, embed, cut and write."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    cache = pathlib.Path(values.cache_dir)
    targets = [pathlib.Path(path) for path in (values.output, values.captioning_output)]
    sources = ("source", "captions_source")
    common.check_output(FOLDER / "captions.npz", sources=sources)
    common.check_output(FOLDER / "captioning.npz", flag="captioning_output", sources=sources)
    if targets[0].resolve() == targets[1].resolve():
        raise ValueError("--output and --captioning_output: expected two files, received one.")
    cache.mkdir(parents=True, exist_ok=True)
    build(
        Repository.opened(*PHOTOGRAPHS, source=values.source, cache=cache),
        Repository.opened(*CAPTIONS, source=values.captions_source, cache=cache),
        Cuts(
            kinds=tuple(values.kinds),
            per_kind=values.per_kind,
            photographs=values.photographs,
            picture_step=values.picture_step,
            text_step=values.text_step,
            seed=values.seed,
        ),
        targets,
        cache=cache,
    )


@dataclasses.dataclass(frozen=True)
class Cuts:
    """What the two sets are cut to: see the flags."""

    kinds: tuple[str, ...]
    per_kind: int
    photographs: int
    picture_step: float
    text_step: float
    seed: int


def build(
    photographs: Repository,
    texts: Repository,
    cuts: Cuts,
    targets: Sequence[pathlib.Path],
    *,
    cache: pathlib.Path,
) -> None:
    """Embeds photographs and captions, and writes both sets.

    Args:
      photographs, texts: the repositories.
      cuts: what is kept of them.
      targets: the files of captions and of captioning.
      cache: folder of what is embedded.

    Raises:
      ValueError: a file is not there or not of its form, or a cut cannot be made.
    """
    pictures, language = load_efficientnet(), load_minilm()
    (content,) = texts.read([_FILE])
    written = read_captions(content.decode())
    found = {path.rpartition("/")[2]: path for path in photographs.paths(_FOLDER)}
    names = [name for name in found if name in written]
    paths = [found[name] for name in names]
    first = [written[name][0] for name in names]
    whole = common.embed_pictures(photographs, paths, pictures, cache=cache)
    one_each = common.embed_texts(first, language, cache=cache, name="first captions")
    kinds = np.array([kind_of(caption, cuts.kinds) for caption in first])
    chosen = draw(kinds, count=cuts.photographs, per_kind=cuts.per_kind, seed=cuts.seed)
    every = [caption for number in chosen for caption in written[names[number]]]
    five_each = common.embed_texts(every, language, cache=cache, name="drawn captions")
    index = np.repeat(np.arange(len(chosen)), _EACH)

    rows = common.rounded(whole, cuts.picture_step)
    one_rounded, five_rounded = (
        common.rounded(captions, cuts.text_step) for captions in (one_each, five_each)
    )
    fewer, share = common.principal_rows(whole, min(_DIRECTIONS, whole.shape[1]))
    instead = f"instead_{fewer.shape[1]}_directions_of_photographs"
    steps = {"photographs": cuts.picture_step, "captions": cuts.text_step}
    both = {"steps_that_features_are_rounded_to": steps, f"norm_kept_{instead}": share}
    encoders = f"{pictures.name} photographs, {language.name} captions"
    packages = common.versions(EFFICIENTNET_PACKAGE, MINILM_PACKAGE, "tokenizers")
    provenance = [photographs.reference, texts.reference, *packages]
    common.write_set(
        targets[0],
        outputs=rows,
        prompts=one_rounded,
        labels={
            "prompt": np.unique(first, return_inverse=True)[1],
            "photograph": np.arange(len(paths)),
            "pictures": kinds,
        },
        description=f"Flickr8k: {len(paths):,} photographs with their first captions; {encoders}",
        licence=LICENCE,
        provenance=provenance,
        cut={
            **both,
            **cost((whole, one_each), rounding=(rows, one_rounded), **{instead: (fewer, one_each)}),
        },
    )
    common.write_set(
        targets[1],
        outputs=five_rounded,
        prompts=(rows[chosen], index),
        labels={
            "prompt": chosen[index],
            "caption": np.tile(np.arange(_EACH), len(chosen)),
            "pictures": kinds[chosen][index],
        },
        description=(
            f"Flickr8k: five human captions of each of {len(chosen):,} photographs; {encoders}"
        ),
        licence=LICENCE,
        provenance=provenance,
        cut={
            **both,
            "drawn": f"{len(chosen)} of {len(paths)} photographs, seed {cuts.seed}",
            "five_captions": cost(
                (five_each, whole[chosen][index]),
                rounding=(five_rounded, rows[chosen][index]),
                **{instead: (five_each, fewer[chosen][index])},
            ),
            "first_captions": cost((one_each, whole), drawing=(one_each[chosen], whole[chosen])),
        },
    )


if __name__ == "__main__":
    common.define_flags(FOLDER / "captions.npz", source=PHOTOGRAPHS[0], captions_source=CAPTIONS[0])
    flags.DEFINE_string(
        "captioning_output", str(FOLDER / "captioning.npz"), "The second file to write."
    )
    flags.DEFINE_list(
        "kinds", ["dog", "water", "street"], "Kinds of pictures, by the words that name them."
    )
    flags.DEFINE_integer("per_kind", 160, "Photographs of each kind in captioning.", lower_bound=1)
    flags.DEFINE_integer("photographs", 2300, "Photographs in captioning.", lower_bound=1)
    flags.DEFINE_float(
        "picture_step", 2.0**-10, "Features of photographs are rounded to multiples of it."
    )
    flags.DEFINE_float("text_step", 2.0**-9, "Features of captions are rounded to multiples of it.")
    flags.DEFINE_integer("seed", 0, "Draws the photographs of captioning.")
    command.run(main)
