"""Rebuild language.npz: answers of AlpacaEval's systems to the same instructions, embedded."""

import json
import re
from collections.abc import Iterable

import numpy as np

from experiments.builders.common import OF_TEXTS, NewSet, Work, cut_alike, recipe
from experiments.data.repository import Repository

VARIANTS = ("", "_concise", "_verbose")
SIZES = re.compile(r"Qwen1\.5-([\d.]+)B-Chat")
EVERY = 6  # Of the instructions that all systems answered, every so many are taken.


def chosen_systems(systems: Iterable[str]) -> list[str]:
    """Systems with a concise and a verbose variant, and these; then the sizes of one family."""
    known = set(systems)
    plain = sorted(name for name in known if all(name + words in known for words in VARIANTS))
    sizes = [(float(found[1]), name) for name in known if (found := SIZES.fullmatch(name))]
    return [name + words for name in plain for words in VARIANTS] + [n for _, n in sorted(sizes)]


@recipe("language", *OF_TEXTS, source=("tatsu-lab/alpaca_eval", "cd543a1"))
def build(work: Work, repository: Repository) -> NewSet:
    """Some of the instructions that all systems answered, with the answers whole and cut."""
    files = [path for path in repository.paths("results") if path.endswith("_outputs.json")]
    systems = chosen_systems(path.split("/")[1] for path in files)
    contents = repository.read([f"results/{system}/model_outputs.json" for system in systems])
    by_system = [
        {entry["instruction"]: entry["output"] for entry in json.loads(content)}
        for content in contents
    ]
    shared = [text for text in by_system[0] if all(text in answers for answers in by_system)]
    kept = np.arange(0, len(shared), EVERY)
    taken = [answers[text] for answers in by_system for text in shared[::EVERY]]
    words, cut, length = cut_alike(taken)
    models, row = np.repeat(systems, len(kept)), np.tile(np.arange(len(kept)), len(systems))
    return NewSet(
        work.embed_parts(taken, models),
        (work.embed_texts(shared[::EVERY]), row),
        labels={"models": models, "prompt": kept[row], "words": words},
        description=f"answers of {len(systems)} language models to the same {len(kept)} "
        f"instructions of AlpacaEval; {work.texts.name} answers (256 tokens at most) and "
        "instructions",
        cut={
            "instructions": {"of": len(shared), "every": EVERY, "kept": len(kept)},
            "truncated": length,
        },
        further={"truncated": work.embed_parts(cut, models)},
    )
